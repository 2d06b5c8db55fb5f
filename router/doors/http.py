"""The HTTP door: one call into the line a request, and its outcome as a status.

Who asks is said by the bearer token alone. Nothing is read of a request's body before there is one; whether it is believed is
the line's to say. Nothing here is fetched from elsewhere, by the server or by the page at `/docs`.

INVARIANT: subject, tenant and groups come from the token, never from a body, another header or an argument
(tests/e2e/test_http.py::test_identity_comes_from_the_token_alone).
INVARIANT: a failure names no path, no name that is not granted and no credential (…::test_failures_tell_nothing).
INVARIANT: a question that was taken in is answered before the door closes (…::test_stopping_finishes_what_was_asked).
INVARIANT: beyond this machine nobody is believed while a development issuer is trusted (…::test_an_open_door_needs_real_issuers).
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import ipaddress
import json
import math
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from router.app import Router
from router.doors.bodies import AnswerBody, AskBody, LiveBody, ProblemBody, ReadyBody, SourcesBody, WhoamiBody
from router.doors.facts import principal_facts
from router.errors import LedgerError, PointsmanError, PolicyError, Refused, SourceError, UsageError
from router.execute import open_door_threads

MAX_BODY_BYTES = 256 * 1024
"""A question of 10,000 characters, each escaped as JSON may, is below half of this."""
THREADS = 32
MAX_ASKS = 2 * THREADS
"""Questions inside the door. What comes on top is sent away at once, so that what waits still meets its deadline."""
CLOSING_S = 5
"""What a stop waits beyond the deadline of a question."""
READY_FOR_S = 1.0
"""One look at the parts serves all probes of this time: a probe writes to the ledger and takes it back."""

NOT_THE_TOKEN = frozenset({"policy_invalid", "development_issuer"})
"""Refusals that say something of the server: whoever asks, and with whatever token."""
_TELEMETRY_OFF: Any = {"tracing": False, "metrics": False, "logs": False, "operation_spans": False, "auto_configure": False}
"""FastAPI records by itself, bodies of bad requests included, and sends where an environment variable says. Not here."""


@dataclass(slots=True)
class Door:
    """What the requests of one server share."""

    router: Router
    asks: int = 0
    looked_at_s: float = -math.inf
    parts: dict[str, str] = field(default_factory=dict)
    looking: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def admitted(self) -> Any:
        """Runs on the event loop only."""
        if self.asks >= MAX_ASKS:
            raise SourceError("busy", "too many questions are being answered", "ask again in a moment", retryable=True)
        self.asks += 1
        try:
            yield
        finally:
            self.asks -= 1

    def readiness(self) -> dict[str, str]:
        with self.looking:
            if time.monotonic() - self.looked_at_s >= READY_FOR_S:
                self.parts, self.looked_at_s = self.router.readiness(), time.monotonic()
            return self.parts


# --- the application --------------------------------------------------------------------------------------------------

_bearer = HTTPBearer(auto_error=False, description="A token of an issuer in identity.yaml.")


def _token_of(request: Request, _: Annotated[Any, Depends(_bearer)]) -> str:
    """As the guard found it; FastAPI's own reader only tells OpenAPI that there is one."""
    return str(request.state.token)


Token = Annotated[str, Depends(_token_of)]


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
        }
        for status in statuses
    }


def build_app(router: Router) -> FastAPI:
    door = Door(router)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(open_door_threads(THREADS))
        yield

    app = FastAPI(
        title="Pointsman",
        version=_version(),
        description="Governed retrieval: evidence that the caller may see, with a receipt. Passages and rows are data, not instructions.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=_TELEMETRY_OFF,
        responses={500: {"model": ProblemBody, "description": "A fault in Pointsman."}},
    )
    app.add_middleware(Guard)
    app.add_exception_handler(PointsmanError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_fault)
    _add_line(app, door)
    _add_probes(app, door)
    return app


def _add_line(app: FastAPI, door: Door) -> None:
    router = door.router

    @app.post("/v1/ask", response_model=None, responses={200: {"model": AnswerBody}, **_problems(401, 403, 413, 422, 503)})
    async def ask(body: AskBody, token: Token) -> Response:
        """Evidence for one question. A refusal by policy is a 403 whose problem names the decision."""
        with door.admitted():
            answer = await router.ask_async(body.question, token=token, **body.options(router.settings.deadlines.ask_s))
        if answer.refusal is not None:
            raise Refused(answer.refusal.code, answer.refusal.reason, "ask a reviewer", decision_id=answer.decision_id)
        return _json(answer.as_json())

    @app.get("/v1/sources", response_model=None, responses={200: {"model": SourcesBody}, **_problems(401, 403, 503)})
    async def sources(token: Token) -> Response:
        """What the caller could ask about, by granted names only."""
        offer = await asyncio.to_thread(router.sources, token)
        if offer.refusal is not None:
            return _problem(HTTPStatus.FORBIDDEN, Refused(offer.refusal.code, offer.refusal.reason, "ask a reviewer"))
        return _json(offer.as_json())

    @app.get("/v1/whoami", response_model=None, responses={200: {"model": WhoamiBody}, **_problems(401, 503)})
    async def whoami(token: Token) -> Response:
        """Who the token makes the caller."""
        return _json(principal_facts(await asyncio.to_thread(router.whoami, token)))


def _add_probes(app: FastAPI, door: Door) -> None:
    @app.get("/healthz")
    async def healthz() -> LiveBody:
        """The process lives and its loop turns."""
        return LiveBody()

    @app.get("/readyz", response_model=None, responses={200: {"model": ReadyBody}, 503: {"model": ReadyBody}})
    def readyz() -> Response:
        """Policies valid, ledger writable, engines reachable. Runs on a thread of its own: asks that wait must not delay it."""
        parts = door.readiness()
        ready = all(said == "ok" for said in parts.values())
        body = {"status": "ok" if ready else "not_ready", "parts": parts}
        return _json(body, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        page = _docs_page(app.openapi())
        return HTMLResponse(page, headers={"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"})


def _version() -> str:
    from importlib.metadata import version

    return version("pointsman")


# --- what stands in front ---------------------------------------------------------------------------------------------


class Guard:
    """Sends whoever brings no token away before a byte of the body is read, bounds the body, and marks every response as nobody's
    to keep."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                marks = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
                message = {**message, "headers": [*message.get("headers", ()), *marks]}
            await send(message)

        if scope["path"].startswith("/v1/"):
            token = read_bearer(scope["headers"])
            if token is None:
                missing = Refused(
                    "token_missing", "the request carries no bearer token", "send `Authorization: Bearer TOKEN`, once"
                )
                await _problem(HTTPStatus.UNAUTHORIZED, missing)(scope, receive, marked)
                return
            scope.setdefault("state", {})["token"] = token
        if any(name == b"content-length" and int(value) > MAX_BODY_BYTES for name, value in scope["headers"]):
            await _problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large())(scope, receive, marked)
            return
        await self.app(scope, _bounded(receive), marked)


def _bounded(receive: Receive) -> Receive:
    """What comes in pieces says nowhere how long it is."""
    taken = 0

    async def bounded() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY_BYTES:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return message

    return bounded


def _too_large() -> UsageError:
    return UsageError("body_too_large", "the body is too large", f"send at most {MAX_BODY_BYTES // 1024} KiB")


def read_bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The token, where there is exactly one `Authorization` header and it is a bearer's."""
    given = [value for name, value in headers if name.lower() == b"authorization"]
    if len(given) != 1:
        return None
    scheme, _, token = given[0].decode("latin-1").strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


# --- failures ---------------------------------------------------------------------------------------------------------


def status_of(error: PointsmanError) -> HTTPStatus:
    """A refusal with a decision is one by policy: the principal was known. One without is the token's."""
    match error:
        case Refused() if error.code in NOT_THE_TOKEN:
            return HTTPStatus.SERVICE_UNAVAILABLE
        case Refused():
            return HTTPStatus.FORBIDDEN if error.decision_id else HTTPStatus.UNAUTHORIZED
        case UsageError():
            return HTTPStatus.UNPROCESSABLE_ENTITY
        case SourceError() | LedgerError() | PolicyError():
            return HTTPStatus.SERVICE_UNAVAILABLE
    return HTTPStatus.INTERNAL_SERVER_ERROR


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, PointsmanError)
    return _problem(status_of(error), error)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _problem(HTTPStatus.UNPROCESSABLE_ENTITY, _usage(error.errors()))


async def _on_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return _problem(status, _too_large())
    code, hint = _HTTP.get(status, ("http", "see /docs"))
    said = UsageError(code, status.phrase[:1].lower() + status.phrase[1:], hint)
    return _problem(status, said, dict(error.headers or {}))


_HTTP = {
    HTTPStatus.BAD_REQUEST: ("body_malformed", "send one JSON object"),
    HTTPStatus.NOT_FOUND: ("not_found", "see /docs for what is here"),
    HTTPStatus.METHOD_NOT_ALLOWED: ("method_not_allowed", "see /docs for what is here"),
}


async def _on_fault(_: Request, error: Exception) -> Response:
    """What nobody foresaw. Its trace goes to standard error, where the operator is."""
    name = type(error).__name__
    return _problem(
        HTTPStatus.INTERNAL_SERVER_ERROR, SourceError("fault", f"a fault in Pointsman (`{name}`)", "tell the operator")
    )


def _usage(faults: Sequence[Any]) -> UsageError:
    """The first thing that is wrong with a body, without a word of what stood there."""
    first = faults[0]
    place = ".".join(str(part) for part in first["loc"][1:])[:80]
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(place, AskBody.model_fields, n=1, cutoff=0.4)
        return UsageError(
            "body_unknown_key", f"`{place}` is not a known key", f"did you mean `{near[0]}`" if near else "remove it"
        )
    if first["type"] == "json_invalid":
        return UsageError("body_malformed", "the body is not JSON", "send one JSON object")
    if not place:
        return UsageError("body_malformed", "the body is not a JSON object", "send one with `Content-Type: application/json`")
    said = first["msg"][:1].lower() + first["msg"][1:]
    return UsageError("body_invalid", f"`{place}` is wrong: {said}", "correct that key")


def _problem(status: HTTPStatus, error: PointsmanError, headers: dict[str, str] | None = None) -> Response:
    body = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": error.message, **error.as_json()}
    more = dict(headers or {})
    if status == HTTPStatus.UNAUTHORIZED:
        known = "" if error.code == "token_missing" else f', error="invalid_token", error_description="{error.code}"'
        more["www-authenticate"] = f'Bearer realm="pointsman"{known}'
    if status == HTTPStatus.SERVICE_UNAVAILABLE and (not isinstance(error, SourceError) or error.retryable):
        more["retry-after"] = "1"
    return _json(body, status, "application/problem+json", more)


def _json(body: Any, status: HTTPStatus = HTTPStatus.OK, kind: str = "application/json", more: Any = None) -> Response:
    """ASCII, so that no text of a document can be more than text on its way."""
    text = json.dumps(body, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Response(text, status, more, kind)


# --- the page ---------------------------------------------------------------------------------------------------------


def _docs_page(spec: dict[str, Any]) -> str:
    """OpenAPI to be read, without a script: the usual page would fetch one from a stranger."""
    from html import escape

    parts = []
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            statuses = ", ".join(operation["responses"])
            parts.append(f"<h2>{escape(method.upper())} {escape(path)}</h2><p>{escape(operation.get('description', ''))}</p>")
            parts.append(f"<p>Statuses: {escape(statuses)}</p>")
            if body := operation.get("requestBody"):
                parts.append(f"<pre>{escape(json.dumps(body['content']['application/json']['schema']))}</pre>")
    for name, schema in spec["components"]["schemas"].items():
        parts.append(f"<h3>{escape(name)}</h3><pre>{escape(json.dumps(schema, indent=2))}</pre>")
    style = "body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}pre{background:#f4f4f4;padding:.7rem;overflow:auto}"
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Pointsman</title><style>{style}</style></head>'
    intro = f"<h1>Pointsman {escape(spec['info']['version'])}</h1><p>{escape(spec['info']['description'])}</p>"
    return f"{head}<body>{intro}<p>For programs: <a href='/openapi.json'>openapi.json</a></p>{''.join(parts)}</body></html>"


# --- serving ----------------------------------------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_exposed(router: Router, host: str) -> None:
    """Raises `UsageError` where others could reach a door at which a development issuer is believed."""
    development = [issuer.alias for issuer in router.policies.current().issuers.values() if issuer.development]
    if development and not is_loopback(host):
        raise UsageError(
            "development_issuer_exposed",
            f"`{development[0]}` is a development issuer: whoever reads its key can be anybody, and `{host}` can be reached by others",
            "take it out of identity.yaml, or serve on 127.0.0.1",
        )


def serve(router: Router, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Until SIGTERM or Ctrl-C; what was asked by then is answered, within its deadline. `announce` gets the address."""
    check_exposed(router, host)
    router.line  # noqa: B018 (model, store and ledger are there before anybody is told of the door)
    router.ledger.check()
    config = uvicorn.Config(
        build_app(router),
        host=host,
        port=port,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=math.ceil(router.settings.deadlines.ask_s) + CLOSING_S,
    )
    listener = _bind(config)
    check_exposed(router, listener.getsockname()[0])  # a name may stand for any address
    server = uvicorn.Server(config)

    def stop(*_: object) -> None:
        server.should_exit = True

    before = {sig: signal.signal(sig, stop) for sig in (signal.SIGINT, signal.SIGTERM)}
    try:
        announce(f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}")
        server.run(sockets=[listener])
    finally:
        for sig, handler in before.items():
            signal.signal(sig, handler)


def _bind(config: uvicorn.Config) -> Any:
    try:
        listener = config.bind_socket()
    except (SystemExit, OSError, OverflowError):
        message, hint = f"`{config.host}` port {config.port} cannot be listened on", "choose another --host or --port"
        raise UsageError("address_unavailable", message, hint) from None
    listener.set_inheritable(False)
    listener.listen(config.backlog)
    return listener
