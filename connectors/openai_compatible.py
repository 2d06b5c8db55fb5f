"""Any embedder behind an OpenAI-compatible `/embeddings` endpoint, one's own for example. Reached through `router/egress.py` alone.

No package is needed: one POST over the standard library, one attempt a call. It reads no key, address or proxy from the
environment and follows no redirect. Nothing that the other side writes stands in an error: `_CODES` has all there is to say.

INVARIANT: every failure is a `SourceError` with a code of `_CODES` and its words (tests/unit/test_openai_compatible.py::test_each_failure_has_its_code).
INVARIANT: a reply is bounded in bytes, and a call in time whatever the other side does: at the deadline its connection is cut
(…::test_huge_reply_is_cut, ::test_slow_replies_end_in_time).
INVARIANT: rows are put in the order of the texts by their `index`, each once (…::test_rows_are_put_in_order).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from router.errors import SourceError, parse_retry_after
from router.ports import HostedRows

PROVIDER = "openai_compatible"
MOST_TEXTS = 64
MAX_REPLY_BYTES = 16_000_000
_BLOCK = 65_536
_CODES: Mapping[str, tuple[str, str, bool]] = {
    "model_key_missing": (
        "the key of `[providers.openai_compatible]` is not there", "set the variable that `key_env` names", False,
    ),
    "model_unauthorised": ("the embedding endpoint does not accept the key", "check the key that `key_env` names", False),
    "model_unknown": ("the embedding endpoint knows no such model or address", "check `model` and `base_url`", False),
    "model_rejected": ("the embedding endpoint does not accept the request", "check `model` and `dimensions`", False),
    "model_rate_limited": ("the embedding endpoint limits how often it is called", "ask later", True),
    "model_overloaded": ("the embedding endpoint is overloaded", "ask later", True),
    "model_failed": ("the embedding endpoint failed", "ask later", True),
    "model_unreachable": ("the embedding endpoint cannot be reached, or broke off", "check that it runs, and `base_url`", True),
    "model_late": ("the embedding endpoint did not answer in time", "allow more time, or ask later", True),
    "model_reply_invalid": ("the answer of the embedding endpoint is not what was asked for", "check `model` and `base_url`", False),
    "model_reply_too_large": ("the answer of the embedding endpoint is too large", "check `base_url`", False),
}  # fmt: skip
_STATUS = {
    401: "model_unauthorised",
    403: "model_unauthorised",
    404: "model_unknown",
    408: "model_late",
    429: "model_rate_limited",
    503: "model_overloaded",
    529: "model_overloaded",
}


class OpenAICompatible:
    """Implements `router.ports.HostedEmbedder`. Thread-safe. `key` is None where the endpoint takes none; prefixes stand in front of
    each text, for models that tell questions and passages apart by them."""

    provider = PROVIDER
    most_texts = MOST_TEXTS

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        dimensions: int,
        key: str | None,
        ask_dimensions: bool = False,
        question_prefix: str = "",
        passage_prefix: str = "",
    ) -> None:
        self._url, self._key, self.model, self.dimensions = urlsplit(base_url), key, model, dimensions
        self._question_prefix, self._passage_prefix = question_prefix, passage_prefix
        self._asked: dict[str, int] = {"dimensions": dimensions} if ask_dimensions else {}
        self._tls = ssl.create_default_context() if self._url.scheme == "https" else None

    @property
    def variant(self) -> str:
        return json.dumps([self._question_prefix, self._passage_prefix])

    def embed_hosted(
        self, texts: Sequence[str], *, question: bool, deadline_s: float, sending: Callable[[bytes], None]
    ) -> HostedRows:
        if self._key == "":
            raise _error("model_key_missing")
        prefix = self._question_prefix if question else self._passage_prefix
        asked = {"model": self.model, "input": [prefix + text for text in texts], "encoding_format": "float", **self._asked}
        body = json.dumps(asked, ensure_ascii=False).encode("utf-8", "replace")
        sending(body)
        status, reply = self._post(body, time.monotonic() + deadline_s)
        if status != 200:
            raise _error("model_failed" if status >= 500 and status not in _STATUS else _STATUS.get(status, "model_rejected"))
        return _read(reply, len(texts))

    def _post(self, body: bytes, until: float) -> tuple[int, bytes]:
        headers = {"content-type": "application/json", "accept": "application/json", "user-agent": "pointsman"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        left_s = max(0.001, until - time.monotonic())
        connection = self._connect(left_s)
        cut = threading.Timer(left_s, _cut, (connection,))
        cut.daemon = True
        cut.start()
        try:
            connection.request("POST", f"{self._url.path.rstrip('/')}/embeddings", body, headers)
            response = connection.getresponse()
            if response.status == 429:
                raise _error("model_rate_limited", parse_retry_after(response.headers.get("retry-after")))
            if response.status in (503, 529):
                raise _error("model_overloaded", parse_retry_after(response.headers.get("retry-after")))
            return response.status, _bounded(response, until)
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = isinstance(error, TimeoutError) or time.monotonic() >= until
            raise _error("model_late" if late else "model_unreachable") from None
        finally:
            cut.cancel()
            connection.close()

    def _connect(self, left_s: float) -> http.client.HTTPConnection:
        host = self._url.hostname or ""
        if self._tls is not None:
            return http.client.HTTPSConnection(host, self._url.port, timeout=left_s, context=self._tls)
        return http.client.HTTPConnection(host, self._url.port, timeout=left_s)


def _cut(connection: http.client.HTTPConnection) -> None:
    """Whoever waits in a read is let go with an error."""
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _bounded(response: http.client.HTTPResponse, until: float) -> bytes:
    blocks, size = [], 0
    while block := response.read(_BLOCK):
        size += len(block)
        if size > MAX_REPLY_BYTES:
            raise _error("model_reply_too_large")
        blocks.append(block)
    if time.monotonic() >= until:
        raise _error("model_late")  # what was cut ends like what is whole
    if response.length:
        raise _error("model_unreachable")
    return b"".join(blocks)


def _read(reply: bytes, count: int) -> HostedRows:
    try:
        value = json.loads(reply)
    except (ValueError, RecursionError):
        raise _error("model_reply_invalid") from None
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, list):
        raise _error("model_reply_invalid")
    rows: dict[int, Any] = {}
    for one in data:
        at = one.get("index") if isinstance(one, dict) else None
        if type(at) is not int or not 0 <= at < count or at in rows:
            raise _error("model_reply_invalid")
        rows[at] = one.get("embedding")
    return HostedRows([rows[at] for at in sorted(rows)], _tokens(value.get("usage")))


def _tokens(usage: Any) -> int:
    count = usage.get("total_tokens") if isinstance(usage, dict) else None
    return count if type(count) is int and 0 <= count < 10**12 else 0


def _error(code: str, retry_after_s: float = 0.0) -> SourceError:
    message, hint, retryable = _CODES[code]
    return SourceError(code, message, hint, retryable=retryable, retry_after_s=retry_after_s)
