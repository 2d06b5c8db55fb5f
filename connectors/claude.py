"""Claude through the `anthropic` client: one tool call that fills in a schema. Reached through `router/egress.py` alone.

The client is kept from what it would do of itself: it reads no credential, address, header or proxy from the environment, follows
no redirect, writes no span and no log line, and says nothing of this machine. Retries are ours, so that each is counted and all
stay inside the deadline. Nothing that the provider writes stands in an error: `_CODES` has all there is to say.

INVARIANT: every failure is a `SourceError` with a code of `_CODES` and its words (tests/sql/draft/test_claude.py::test_each_failure_has_its_code).
INVARIANT: a reply is bounded in bytes and a call in time, retries included; a peer that trickles and then stalls can hold a call
for at most twice its deadline (…::test_huge_reply_is_cut, ::test_slow_replies_end_in_time).
INVARIANT: nothing of the environment is sent (tests/sql/draft/test_claude.py::test_environment_is_ignored).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import anthropic
import httpx2

from router.errors import PointsmanError, SourceError
from router.ports import ModelReply

BASE_URL = "https://api.anthropic.com"
TOOL = "answer"
MAX_TOKENS = {"off": 4_096, "model": 16_384}
"""What a model thinks counts as its answer."""
MAX_REPLY_BYTES = 1_000_000
ATTEMPTS = 4
FIRST_PAUSE_S = 0.5
LEAST_CALL_S = 0.25
"""A pause is not begun that would leave less than this for the call after it."""

_HEADERS = frozenset(
    {b"host", b"connection", b"accept", b"content-length", b"content-type", b"authorization", b"anthropic-version"}
)
"""All that is sent beside the body."""

_CODES: Mapping[str, tuple[str, str, bool]] = {
    "model_unauthorised": ("the model's provider does not accept the key", "check the key that `key_env` names", False),
    "model_unknown": ("the provider knows no such model or address", "check `model` and `base_url`", False),
    "model_rejected": ("the provider does not accept the request", "check `model`, `thinking` and `base_url`", False),
    "model_rate_limited": ("the provider limits how often it is called", "ask later", True),
    "model_overloaded": ("the provider is overloaded", "ask later", True),
    "model_failed": ("the provider failed", "ask later", True),
    "model_unreachable": ("the provider cannot be reached, or broke off", "check the network and `base_url`", True),
    "model_late": ("the model did not answer in time", "allow more time, or ask later", True),
    "model_truncated": ("the model's answer was cut off at its limit", "ask for less", False),
    "model_refused": ("the model declined to answer", "ask in other words", False),
    "model_reply_invalid": ("the model's answer is not what was asked for", "ask again, or in other words", False),
    "model_reply_too_large": ("the model's answer is too large", "ask for less", False),
}
_STATUS = {
    401: "model_unauthorised",
    403: "model_unauthorised",
    404: "model_unknown",
    408: "model_late",
    429: "model_rate_limited",
}
_AGAIN = frozenset({"model_rate_limited", "model_overloaded", "model_failed", "model_unreachable"})

for _name in ("anthropic", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.ERROR)  # at DEBUG the client would write whole requests


Thinking = Literal["off", "model"]
"""`off` forces the call, which the provider does not take of a model that thinks; `model` leaves thinking and call to the model."""


class Claude:
    """Implements `router.ports.HostedModel`. Thread-safe; connections are kept between calls."""

    provider = "claude"

    def __init__(
        self, *, key: str, model: str, base_url: str = BASE_URL, streaming: bool = False, thinking: Thinking = "off"
    ) -> None:
        self._key, self.model, self._base_url = key, model, base_url
        self._streaming, self._thinking = streaming, thinking
        self._transport = httpx2.HTTPTransport(trust_env=False)

    def close(self) -> None:
        self._transport.close()

    def draft_hosted(
        self,
        system: str,
        prompt: str,
        schema: Mapping[str, Any],
        *,
        deadline_s: float,
        sending: Callable[[bytes], None],
    ) -> ModelReply:
        """The tool's input as JSON. Tries again where that can help and the deadline allows it."""
        until = time.monotonic() + deadline_s
        request = self._request(system, prompt, schema)
        pause_s = FIRST_PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            wire = _Wire(self._transport, sending, until)
            try:
                return self._attempt(wire, request, until)
            except SourceError as error:
                wait_s = max(pause_s, wire.retry_after_s)
                if error.code not in _AGAIN or attempt == ATTEMPTS or time.monotonic() + wait_s + LEAST_CALL_S > until:
                    raise
            time.sleep(wait_s)
            pause_s *= 2
        raise _error("model_late")

    def _request(self, system: str, prompt: str, schema: Mapping[str, Any]) -> dict[str, Any]:
        tool = {"name": TOOL, "description": "the answer, in exactly one of its keys", "input_schema": dict(schema)}
        forced = {"type": "tool", "name": TOOL, "disable_parallel_tool_use": True}
        asked: dict[str, Any] = {
            "model": self.model,
            "max_tokens": MAX_TOKENS[self._thinking],
            "system": system,
            "messages": [{"role": "user", "content": prompt}],
            "tools": [tool],
        }
        if self._thinking == "off":
            return asked | {"thinking": {"type": "disabled"}, "tool_choice": forced}
        return asked | {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}

    def _attempt(self, wire: _Wire, request: dict[str, Any], until: float) -> ModelReply:
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise _error("model_late")
        http = httpx2.Client(transport=wire, trust_env=False, follow_redirects=False)
        try:
            with anthropic.Anthropic(
                api_key=self._key,
                base_url=self._base_url,
                timeout=httpx2.Timeout(left_s),
                max_retries=0,
                open_telemetry=False,
                http_client=http,
            ) as client:
                message = _streamed(client, request) if self._streaming else _whole(client, request)
        except PointsmanError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever the client raises, what leaves here is one of ours, without its words)
            raise (wire.stopped or _error(_code_of(error, until))) from None
        return _read(message)


# --- one attempt ------------------------------------------------------------------------------------------------------


def _whole(client: anthropic.Anthropic, request: dict[str, Any]) -> Any:
    """The message as the JSON it is: the client would build its types of anything."""
    reply = client.messages.with_raw_response.create(**request)
    try:
        return json.loads(reply.http_response.content)
    except (ValueError, RecursionError):
        raise _error("model_reply_invalid") from None


def _streamed(client: anthropic.Anthropic, request: dict[str, Any]) -> Any:
    """The same message, put together from its events."""
    message: dict[str, Any] = {"content": [], "stop_reason": None}
    blocks: dict[Any, dict[str, Any]] = {}
    parts: dict[Any, list[str]] = {}
    ended = False
    for typed in client.messages.create(**request, stream=True):
        event = typed.to_dict(mode="json")
        match event:
            case {"type": "message_start", "message": {"model": str() as model}}:
                message["model"] = model
            case {"type": "content_block_start", "index": int() as at, "content_block": dict() as block}:
                blocks[at] = block
            case {"type": "content_block_delta", "index": int() as at, "delta": {"partial_json": str() as part}}:
                parts.setdefault(at, []).append(part)
            case {"type": "message_delta", "delta": {"stop_reason": str() as reason}}:
                message["stop_reason"] = reason
            case {"type": "message_stop"}:
                ended = True
    if not ended:
        raise _error("model_unreachable")
    if message["stop_reason"] not in ("max_tokens", "refusal"):
        for at, texts in parts.items():
            try:
                blocks[at]["input"] = json.loads("".join(texts))
            except (KeyError, ValueError, RecursionError):
                raise _error("model_reply_invalid") from None
    message["content"] = [blocks[at] for at in sorted(blocks)]
    return message


def _read(message: Any) -> ModelReply:
    """The input of the one call; words and thoughts beside it are passed over, anything else is a code."""
    if not isinstance(message, dict):
        raise _error("model_reply_invalid")
    reason = message.get("stop_reason")
    if reason in ("max_tokens", "model_context_window_exceeded"):
        raise _error("model_truncated")
    if reason == "refusal":
        raise _error("model_refused")
    content = message.get("content")
    calls = (
        [one for one in content if isinstance(one, dict) and one.get("type") == "tool_use"] if isinstance(content, list) else []
    )
    if len(calls) != 1 or calls[0].get("name") != TOOL or not isinstance(calls[0].get("input"), dict):
        raise _error("model_reply_invalid")
    model = message.get("model")
    return ModelReply(calls[0]["input"], model[:128] if isinstance(model, str) else "")


def _code_of(error: Exception, until: float) -> str:
    if isinstance(error, anthropic.APIStatusError):
        return _code_of_status(error)
    if isinstance(error, anthropic.APITimeoutError | httpx2.TimeoutException) or time.monotonic() >= until:
        return "model_late"
    if isinstance(error, anthropic.APIConnectionError | httpx2.TransportError):
        return "model_unreachable"
    return "model_reply_invalid"


def _code_of_status(error: anthropic.APIStatusError) -> str:
    """By status; an error inside a stream comes with status 200 and a type."""
    status = error.response.status_code
    if status == 200:
        return {"overloaded_error": "model_overloaded", "rate_limit_error": "model_rate_limited"}.get(
            _type_of(error.body), "model_failed"
        )
    if status == 529:
        return "model_overloaded"
    if status >= 500:
        return "model_failed"
    return _STATUS.get(status, "model_rejected")


def _type_of(body: object) -> str:
    match body:
        case {"error": {"type": str() as kind}}:
            return kind
    return ""


def _error(code: str) -> SourceError:
    message, hint, retryable = _CODES[code]
    return SourceError(code, message, hint, retryable=retryable)


# --- the wire ---------------------------------------------------------------------------------------------------------


class _Wire(httpx2.BaseTransport):
    """One attempt: counts what is sent, keeps back what was not asked for, and bounds what comes. `stopped` is why it was cut."""

    def __init__(self, transport: httpx2.BaseTransport, sending: Callable[[bytes], None], until: float) -> None:
        self._transport, self._sending, self._until = transport, sending, until
        self.stopped: PointsmanError | None = None
        self.retry_after_s = 0.0

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        body = request.read()
        kept = [(name, value) for name, value in request.headers.raw if name.lower() in _HEADERS]
        bare = httpx2.Request(
            request.method,
            request.url,
            headers=[*kept, (b"user-agent", b"pointsman")],
            content=body,
            extensions=request.extensions,
        )
        bare.headers["accept-encoding"] = "identity"
        try:
            self._sending(body)
        except PointsmanError as error:
            self.stopped = error
            raise
        response = self._transport.handle_request(bare)
        self.retry_after_s = _seconds(response.headers.get("retry-after"))
        if response.headers.get("content-encoding", "identity") != "identity":
            response.close()
            self.stopped = _error("model_reply_invalid")
            raise self.stopped
        stream = response.stream
        assert isinstance(stream, httpx2.SyncByteStream)
        return httpx2.Response(
            response.status_code, headers=response.headers, stream=_Bounded(stream, self), extensions=response.extensions
        )

    def bounded(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            code = "model_reply_too_large" if size > MAX_REPLY_BYTES else "model_late" if time.monotonic() > self._until else ""
            if code:
                self.stopped = _error(code)
                raise self.stopped
            yield chunk

    def close(self) -> None:
        """The transport outlives the attempt."""


class _Bounded(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, wire: _Wire) -> None:
        self._stream, self._wire = stream, wire

    def __iter__(self) -> Iterator[bytes]:
        return self._wire.bounded(iter(self._stream))

    def close(self) -> None:
        self._stream.close()


def _seconds(text: str | None) -> float:
    """`retry-after` in seconds; a date or nonsense is no wish of theirs that we could keep."""
    try:
        wanted = float(text or 0)
    except ValueError:
        return 0.0
    return wanted if 0 <= wanted < 1e9 else 0.0
