"""Cohere's embed and rerank (API v2) through the `cohere` client, one attempt a call. Reached through `router/egress.py` alone.

The client is kept from what it would do of itself: it reads no key, address or proxy from the environment, follows no redirect,
tries nothing again, and says nothing of this machine (its own headers name Python, kernel and version). Whether there is another
attempt is decided in `router/attempts.py`. Nothing that the provider writes stands in an error: `_CODES` has all there is to say.

INVARIANT: every failure is a `SourceError` with a code of `_CODES` and its words (tests/unit/test_cohere_models.py::test_each_failure_has_its_code).
INVARIANT: a reply is bounded in bytes, and a call in time whatever the other side does (…::test_huge_reply_is_cut, ::test_slow_replies_end_in_time).
INVARIANT: nothing of the environment is sent (…::test_environment_is_ignored).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import cohere
import httpx
from cohere.core.api_error import ApiError

from router.errors import PointsmanError, SourceError, parse_retry_after
from router.ports import HostedRows, HostedScores
from router.timed import time_transport

BASE_URL = "https://api.cohere.com"
MOST_TEXTS = 96
"""As the provider says."""
MAX_REPLY_BYTES = 16_000_000
"""96 vectors of 1,536 numbers are about 2 MB."""

_HEADERS = frozenset({b"host", b"connection", b"accept", b"content-length", b"content-type", b"authorization"})
"""All that is sent beside the body."""
_CODES: Mapping[str, tuple[str, str, bool]] = {
    "model_key_missing": ("the key of `[providers.cohere]` is not there", "set the variable that `key_env` names", False),
    "model_unauthorised": ("the model's provider does not accept the key", "check the key that `key_env` names", False),
    "model_unknown": ("the provider knows no such model or address", "check the model's name and `base_url`", False),
    "model_rejected": ("the provider does not accept the request", "check the model's name and `dimensions`", False),
    "model_rate_limited": ("the provider limits how often it is called", "ask later", True),
    "model_overloaded": ("the provider is overloaded", "ask later", True),
    "model_failed": ("the provider failed", "ask later", True),
    "model_unreachable": ("the provider cannot be reached, or broke off", "check the network and `base_url`", True),
    "model_late": ("the model did not answer in time", "allow more time, or ask later", True),
    "model_reply_invalid": ("the model's answer is not what was asked for", "check the model's name and settings", False),
    "model_reply_too_large": ("the model's answer is too large", "check `base_url`", False),
}
_STATUS = {
    401: "model_unauthorised",
    403: "model_unauthorised",
    404: "model_unknown",
    408: "model_late",
    429: "model_rate_limited",
    498: "model_unauthorised",
    503: "model_overloaded",
    529: "model_overloaded",
}

for _name in ("cohere", "httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.ERROR)  # at INFO the client would write addresses, at DEBUG whole requests


class Cohere:
    """The connection that both models share. Thread-safe; connections are kept between calls."""

    provider = "cohere"

    def __init__(self, *, key: str, base_url: str = BASE_URL) -> None:
        self._key, self._base_url = key, base_url
        self._transport = httpx.HTTPTransport(trust_env=False)
        self._timed = time_transport(self._transport)

    def close(self) -> None:
        self._transport.close()

    def attempt(self, call: Callable[[cohere.ClientV2], Any], *, deadline_s: float, sending: Callable[[bytes], None]) -> Any:
        """What `call` makes of the client. Raises `SourceError`, or what `sending` raised."""
        if not self._key:
            raise _error("model_key_missing")
        until = time.monotonic() + deadline_s
        wire = _Wire(self._transport, sending, until)
        http = httpx.Client(transport=wire, trust_env=False, follow_redirects=False, timeout=httpx.Timeout(deadline_s))
        try:
            client = cohere.ClientV2(
                api_key=self._key,
                base_url=self._base_url,
                timeout=deadline_s,
                max_retries=0,
                httpx_client=http,
                log_warning_experimental_features=False,
            )
            with self._timed.until(until):
                return call(client)
        except PointsmanError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever the client raises, what leaves here is one of ours, without its words)
            raise (wire.stopped or wire.error_of(error)) from None
        finally:
            http.close()


class CohereEmbedder:
    """Implements `router.ports.HostedEmbedder`. With `ask_dimensions` the length of vectors is asked for, which models before v4 do
    not know."""

    provider = "cohere"
    most_texts = MOST_TEXTS

    def __init__(self, connection: Cohere, *, model: str, dimensions: int, ask_dimensions: bool = True) -> None:
        self._connection, self.model, self.dimensions = connection, model, dimensions
        self._asked: dict[str, Any] = {"output_dimension": dimensions} if ask_dimensions else {}

    @property
    def variant(self) -> str:
        return "search_document, search_query, END"

    def embed_hosted(
        self, texts: Sequence[str], *, question: bool, deadline_s: float, sending: Callable[[bytes], None]
    ) -> HostedRows:
        def call(client: cohere.ClientV2) -> Any:
            return client.embed(
                model=self.model,
                texts=list(texts),
                input_type="search_query" if question else "search_document",
                embedding_types=["float"],
                truncate="END",
                request_options={"max_retries": 0},
                **self._asked,
            )

        reply = self._connection.attempt(call, deadline_s=deadline_s, sending=sending)
        return HostedRows(_part(_part(reply, "embeddings"), "float_"), _billed(reply, "input_tokens"))


class CohereReranker:
    """Implements `router.ports.HostedReranker`."""

    provider = "cohere"

    def __init__(self, connection: Cohere, *, model: str) -> None:
        self._connection, self.model = connection, model

    def rerank_hosted(
        self, question: str, texts: Sequence[str], *, deadline_s: float, sending: Callable[[bytes], None]
    ) -> HostedScores:
        def call(client: cohere.ClientV2) -> Any:
            return client.rerank(
                model=self.model, query=question, documents=list(texts), top_n=len(texts), request_options={"max_retries": 0}
            )

        reply = self._connection.attempt(call, deadline_s=deadline_s, sending=sending)
        results = _part(reply, "results")
        if not isinstance(results, list):
            raise _error("model_reply_invalid")
        pairs = [(_part(one, "index"), _part(one, "relevance_score")) for one in results]
        return HostedScores(pairs, _billed(reply, "search_units"))


# --- what comes back --------------------------------------------------------------------------------------------------


def _part(value: Any, name: str) -> Any:
    """The client builds its types of anything, unchecked: a part may be missing, or of any type."""
    return getattr(value, name, None)


def _billed(reply: Any, name: str) -> int:
    count = _part(_part(_part(reply, "meta"), "billed_units"), name)
    return int(count) if type(count) in (int, float) and 0 <= count < 1e12 else 0


def _code_of(error: Exception, until: float) -> str:
    if isinstance(error, ApiError):
        status = error.status_code or 0
        if 200 <= status < 300:
            return "model_reply_invalid"  # no JSON
        return _STATUS.get(status, "model_failed" if status >= 500 else "model_rejected")
    if isinstance(error, httpx.TimeoutException) or time.monotonic() >= until:
        return "model_late"
    return "model_unreachable" if isinstance(error, httpx.TransportError) else "model_reply_invalid"


def _error(code: str, retry_after_s: float = 0.0) -> SourceError:
    message, hint, retryable = _CODES[code]
    return SourceError(code, message, hint, retryable=retryable, retry_after_s=retry_after_s)


# --- the wire ---------------------------------------------------------------------------------------------------------


class _Wire(httpx.BaseTransport):
    """One attempt: counts what is sent, keeps back what was not asked for, and bounds what comes. `stopped` is why it was cut."""

    def __init__(self, transport: httpx.BaseTransport, sending: Callable[[bytes], None], until: float) -> None:
        self._transport, self._sending, self._until = transport, sending, until
        self.stopped: PointsmanError | None = None
        self._retry_after_s = 0.0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        kept = [(name, value) for name, value in request.headers.raw if name.lower() in _HEADERS]
        bare = httpx.Request(
            request.method,
            request.url,
            headers=[*kept, (b"user-agent", b"pointsman"), (b"accept-encoding", b"identity")],
            content=body,
            extensions=request.extensions,
        )
        try:
            self._sending(body)
        except PointsmanError as error:
            self.stopped = error
            raise
        response = self._transport.handle_request(bare)
        self._retry_after_s = parse_retry_after(response.headers.get("retry-after"))
        if response.headers.get("content-encoding", "identity") != "identity":
            response.close()
            self.stopped = _error("model_reply_invalid")
            raise self.stopped
        stream = response.stream
        assert isinstance(stream, httpx.SyncByteStream)
        return httpx.Response(
            response.status_code, headers=response.headers, stream=_Bounded(stream, self), extensions=response.extensions
        )

    def error_of(self, error: Exception) -> SourceError:
        return _error(_code_of(error, self._until), self._retry_after_s)

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


class _Bounded(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, wire: _Wire) -> None:
        self._stream, self._wire = stream, wire

    def __iter__(self) -> Iterator[bytes]:
        return self._wire.bounded(iter(self._stream))

    def close(self) -> None:
        self._stream.close()
