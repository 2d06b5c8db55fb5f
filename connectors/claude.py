"""Claude through the `anthropic` client: one tool call that fills in a schema, and contexts of chunks, one by one or as a batch.
Reached through `router/egress.py` alone. Longer than most because all that speaks to one provider stands in one file.

The client is kept from what it would do of itself: it reads no credential, address, header or proxy from the environment, follows
no redirect, writes no span and no log line, and says nothing of this machine. One call is one attempt; what tries again stands in
`router/attempts.py`. Nothing that the provider writes stands in an error: `_CODES` has all there is to say.

INVARIANT: every failure is a `SourceError` with a code of `_CODES` and its words (tests/sql/draft/test_claude.py::test_each_failure_has_its_code).
INVARIANT: a reply is bounded in bytes, and a call in time whatever the other side does (…::test_huge_reply_is_cut,
::test_slow_replies_end_in_time, tests/unit/test_claude_contexts.py::test_dripping_headers_end_in_time).
INVARIANT: a context that may have been paid for is not asked for again of itself (…::test_what_may_have_been_paid_is_not_tried_again).
INVARIANT: nothing of the environment is sent (tests/sql/draft/test_claude.py::test_environment_is_ignored).
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import anthropic
import httpx2

from router.errors import PointsmanError, SourceError, parse_retry_after
from router.ports import BatchSeen, ContextAsk, ContextReply, ModelReply, Tokens
from router.timed import time_transport

BASE_URL = "https://api.anthropic.com"
TOOL = "answer"
MAX_TOKENS = {"off": 4_096, "model": 16_384}
"""What a model thinks counts as its answer."""
MAX_REPLY_BYTES = 1_000_000
MAX_RESULTS_BYTES = 200_000_000
CONTEXT_TOKENS = {"off": 300, "model": 4_096}
"""What a context may cost at most, thoughts included."""
MOST_LISTED = 5_000

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

_STATUS_200 = {"overloaded_error": "model_overloaded", "rate_limit_error": "model_rate_limited"}
_MAYBE_PAID = frozenset({200, 408, 502, 504})
"""Of these nobody knows whether the answer was made before its way back was lost."""

for _name in ("anthropic", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.ERROR)  # at DEBUG the client would write whole requests


T = TypeVar("T")
_BATCH_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
Thinking = Literal["off", "model"]
"""`off` forces the call, which the provider does not take of a model that thinks; `model` leaves thinking and call to the model."""


class Claude:
    """Implements `router.ports.HostedModel` and `HostedContexts`. Thread-safe; connections are kept between calls."""

    provider = "claude"

    def __init__(
        self, *, key: str, model: str, base_url: str = BASE_URL, streaming: bool = False, thinking: Thinking = "off"
    ) -> None:
        self._key, self.model, self._base_url = key, model, base_url
        self._streaming, self._thinking = streaming, thinking
        self._transport = httpx2.HTTPTransport(trust_env=False)
        self._timed = time_transport(self._transport)

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
        """The tool's input as JSON."""
        request, say = self._request(system, prompt, schema), _streamed if self._streaming else _whole
        return _read(self._exchange(lambda client: say(client, request), deadline_s=deadline_s, sending=sending))

    # --- contexts -----------------------------------------------------------------------------------------------------

    def context_hosted(self, ask: ContextAsk, *, deadline_s: float, sending: Callable[[bytes], None]) -> ContextReply:
        """Where nobody can say whether it was paid for, the error is none that is tried again."""
        request = self._context_request(ask, kept="5m")
        message = self._exchange(lambda client: _whole(client, request), deadline_s=deadline_s, sending=sending, once=True)
        return _read_context(message)

    def submit_hosted(self, asks: Sequence[ContextAsk], *, deadline_s: float, sending: Callable[[bytes], None]) -> str:
        """A batch takes up to a day, so what it shares is kept for an hour."""
        requests = [{"custom_id": ask.key, "params": self._context_request(ask, kept="1h")} for ask in asks]

        def call(client: anthropic.Anthropic) -> Any:
            return _json(client.messages.batches.with_raw_response.create(requests=requests))  # type: ignore[arg-type]

        match self._exchange(call, deadline_s=deadline_s, sending=sending):
            case {"id": str() as batch_id} if _BATCH_ID.fullmatch(batch_id):
                return batch_id
        raise _error("model_reply_invalid")

    def ended_hosted(self, batch_id: str, *, deadline_s: float) -> bool:
        def call(client: anthropic.Anthropic) -> Any:
            return _json(client.messages.batches.with_raw_response.retrieve(batch_id))

        match self._exchange(call, deadline_s=deadline_s):
            case {"processing_status": str() as status}:
                return status == "ended"
        raise _error("model_reply_invalid")

    def results_hosted(self, batch_id: str, *, deadline_s: float) -> Iterator[tuple[str, ContextReply]]:
        """From the batch's own address: the one that a reply could name would be given the key."""
        if not _BATCH_ID.fullmatch(batch_id):
            raise _error("model_unknown")

        def call(client: anthropic.Anthropic) -> bytes:
            return client.get(f"/v1/messages/batches/{batch_id}/results", cast_to=httpx2.Response).content

        body = self._exchange(call, deadline_s=deadline_s, most_bytes=MAX_RESULTS_BYTES)
        for line in body.splitlines():
            if line.strip() and (read := _read_result(line)) is not None:
                yield read

    def batches_hosted(self, since_us: int, *, deadline_s: float) -> list[BatchSeen]:
        """Newest first, as they are listed; those before `since_us` are left out. Raises where the list is not whole, or not one: what is
        not in it would be taken for what never was."""
        until = time.monotonic() + deadline_s
        found: list[BatchSeen] = []
        after: str | anthropic.Omit = anthropic.omit
        while True:

            def call(client: anthropic.Anthropic, after: str | anthropic.Omit = after) -> Any:
                return _json(client.messages.batches.with_raw_response.list(limit=100, after_id=after))

            page = self._exchange(call, deadline_s=until - time.monotonic())
            if not isinstance(page, dict) or not isinstance(page.get("data"), list):
                raise _error("model_reply_invalid")
            seen = [_read_batch(one) for one in page["data"]]
            found += [one for one in seen if one.at_us >= since_us]
            if not seen or seen[-1].at_us < since_us or not page.get("has_more"):
                return found
            if len(found) >= MOST_LISTED:
                raise _error("model_reply_too_large")
            after = seen[-1].batch_id

    def _context_request(self, ask: ContextAsk, *, kept: str) -> dict[str, Any]:
        """The document first, marked as what is shared where others ask of it, then the chunk."""
        document: dict[str, Any] = {"type": "text", "text": ask.document}
        if ask.shared:
            document["cache_control"] = {"type": "ephemeral", "ttl": kept}
        request: dict[str, Any] = {
            "model": self.model,
            "max_tokens": CONTEXT_TOKENS[self._thinking],
            "system": ask.system,
            "messages": [{"role": "user", "content": [document, {"type": "text", "text": ask.chunk}]}],
        }
        return request | {"thinking": {"type": "disabled"}} if self._thinking == "off" else request

    def _exchange(
        self,
        call: Callable[[anthropic.Anthropic], T],
        *,
        deadline_s: float,
        sending: Callable[[bytes], None] | None = None,
        most_bytes: int = MAX_REPLY_BYTES,
        once: bool = False,
    ) -> T:
        """One attempt of anything. Without `sending` no text goes out. What goes `once` and may have arrived is not to be tried again."""
        until = time.monotonic() + deadline_s
        wire = _Wire(self._transport, sending or _no_text, until, most_bytes)
        try:
            with self._timed.until(until):
                return self._with_client(wire, call, until)
        except SourceError as error:
            error.retry_after_s = wire.retry_after_s
            error.retryable = error.retryable and not (once and wire.unclear)
            raise

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

    def _with_client(self, wire: _Wire, call: Callable[[anthropic.Anthropic], T], until: float) -> T:
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
                return call(client)
        except PointsmanError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever the client raises, what leaves here is one of ours, without its words)
            raise (wire.stopped or _error(_code_of(error, until))) from None


# --- one attempt ------------------------------------------------------------------------------------------------------


def _whole(client: anthropic.Anthropic, request: dict[str, Any]) -> Any:
    """The message as the JSON it is: the client would build its types of anything."""
    return _json(client.messages.with_raw_response.create(**request))


def _json(reply: Any) -> Any:
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
            case {"type": "message_start", "message": {"model": str() as model, **more}}:
                message |= {"model": model, "usage": more.get("usage")}
            case {"type": "content_block_start", "index": int() as at, "content_block": dict() as block}:
                blocks[at] = block
            case {"type": "content_block_delta", "index": int() as at, "delta": {"partial_json": str() as part}}:
                parts.setdefault(at, []).append(part)
            case {"type": "message_delta", "delta": {"stop_reason": str() as reason}, **more}:
                message["stop_reason"] = reason
                counted = [one for one in (message.get("usage"), more.get("usage")) if isinstance(one, dict)]
                message["usage"] = {name: count for one in counted for name, count in one.items()}  # of two counts the last
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


def _check_message(message: Any) -> None:
    """A gateway may answer 200 and mean an error: nothing was written, and nothing paid."""
    match message:
        case {"type": "error"} | {"error": dict()}:
            raise _error(_STATUS_200.get(_type_of(message), "model_failed"))
        case {"content": list()}:
            return
    raise _error("model_reply_invalid")


def _read(message: Any) -> ModelReply:
    """The input of the one call; words and thoughts beside it are passed over, anything else is a code."""
    _check_message(message)
    reason = message.get("stop_reason")
    if reason in ("max_tokens", "model_context_window_exceeded"):
        raise _error("model_truncated")
    if reason == "refusal":
        raise _error("model_refused")
    calls = [one for one in message["content"] if isinstance(one, dict) and one.get("type") == "tool_use"]
    if len(calls) != 1 or calls[0].get("name") != TOOL or not isinstance(calls[0].get("input"), dict):
        raise _error("model_reply_invalid")
    model = message.get("model")
    return ModelReply(calls[0]["input"], model[:128] if isinstance(model, str) else "", _read_usage(message.get("usage")))


def _read_context(message: Any) -> ContextReply:
    """What was written, as text; cut off at its limit it is as good as before. Thoughts are passed over, calls are no answer. Where it
    was not counted whole there is no count."""
    _check_message(message)
    model, usage = message.get("model"), message.get("usage")
    model = model[:128] if isinstance(model, str) else ""
    tokens = _read_usage(usage)
    if not isinstance(usage, dict) or not tokens.output or not (tokens.fresh or tokens.cache_write or tokens.cache_read):
        tokens = Tokens()
    if message.get("stop_reason") == "refusal":
        return ContextReply("", model, tokens, "model_refused")
    texts = [one.get("text") for one in message["content"] if isinstance(one, dict)]
    text = " ".join(one for one in texts if isinstance(one, str)).strip()
    return ContextReply(text, model, tokens, "" if text else "model_reply_invalid")


def _read_usage(usage: Any) -> Tokens:
    def number(name: str) -> int:
        value = usage.get(name) if isinstance(usage, dict) else None
        return value if type(value) is int and 0 <= value < 10**9 else 0

    return Tokens(
        number("input_tokens"), number("cache_creation_input_tokens"), number("cache_read_input_tokens"), number("output_tokens")
    )


def _read_result(line: bytes) -> tuple[str, ContextReply] | None:
    """One line of a batch's results; what ran out of time or was cancelled was not paid, and is as if it had not been asked. What cannot
    be read says nothing."""
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match read:
        case {"custom_id": str() as key, "result": {"type": "succeeded", "message": dict() as message}}:
            try:
                return key, _read_context(message)
            except SourceError:
                return None
        case {"custom_id": str() as key, "result": {"type": "errored", "error": dict() as error}}:
            kind = _type_of(error) or str(error.get("type"))
            return key, ContextReply("", code="model_rejected" if kind == "invalid_request_error" else "model_failed")
        case {"custom_id": str() as key, "result": {"type": "expired" | "canceled"}}:
            return key, ContextReply("", code="model_late")
    return None


def _read_batch(one: Any) -> BatchSeen:
    match one:
        case {"id": str() as batch_id, "created_at": str() as at, "request_counts": dict() as counts}:
            try:
                created = datetime.fromisoformat(at)
            except ValueError:
                raise _error("model_reply_invalid") from None
            created = created if created.tzinfo is not None else created.replace(tzinfo=UTC)
            items = sum(value for value in counts.values() if type(value) is int)
            if _BATCH_ID.fullmatch(batch_id):
                return BatchSeen(batch_id, int(created.timestamp() * 1_000_000), items)
    raise _error("model_reply_invalid")


def _no_text(_: bytes) -> None:
    """Asked of a call that sends none."""


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
        return _STATUS_200.get(_type_of(error.body), "model_failed")
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


_NEVER_LEFT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class _Wire(httpx2.BaseTransport):
    """One attempt: counts what is sent, keeps back what was not asked for, and bounds what comes. `stopped` is why it was cut,
    `unclear` that it may have been answered, and paid, all the same."""

    def __init__(
        self, transport: httpx2.BaseTransport, sending: Callable[[bytes], None], until: float, most_bytes: int = MAX_REPLY_BYTES
    ) -> None:
        self._transport, self._sending, self._until, self._most_bytes = transport, sending, until, most_bytes
        self.stopped: PointsmanError | None = None
        self.retry_after_s = 0.0
        self.unclear = False

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
        try:
            response = self._transport.handle_request(bare)
        except Exception as error:
            self.unclear = not isinstance(error, _NEVER_LEFT)
            raise
        self.unclear = response.status_code in _MAYBE_PAID
        self.retry_after_s = parse_retry_after(response.headers.get("retry-after"))
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
            code = "model_reply_too_large" if size > self._most_bytes else "model_late" if time.monotonic() > self._until else ""
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
