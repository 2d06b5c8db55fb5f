"""Ends an attempt on a network at one moment, whatever the other side does: clients bound each read alone, so that a peer who sends
a byte now and then, in the headers above all, would hold a caller for as long as it likes.

Works on whatever calls itself a network backend of `httpcore`, of any release: it is called here and never imported.

INVARIANT: after the moment nothing is read or written any more (tests/unit/test_claude_contexts.py::test_dripping_headers_end_in_time,
tests/unit/test_cohere_models.py::test_slow_replies_end_in_time).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_BLOCK = 16_384
"""Written at once: a peer who reads slowly is not waited for beyond the moment, either."""


class _Moment(threading.local):
    until_s = math.inf


class Timed:
    """A network backend that lets each thread go at the moment set with `until`. Thread-safe."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._moment = inner, _Moment()

    @contextmanager
    def until(self, until_s: float) -> Iterator[None]:
        """What this thread reads and writes here ends at `time.monotonic()` `until_s`."""
        before = self._moment.until_s
        self._moment.until_s = until_s
        try:
            yield
        finally:
            self._moment.until_s = before

    def left_s(self, timeout: float | None) -> float | None:
        """Of a timeout, what is left. Raises `TimeoutError` where that is nothing."""
        left_s = self._moment.until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if timeout is None:
            return None if left_s == math.inf else left_s
        return min(timeout, left_s)

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **more: Any) -> _Stream:
        """As the inner one, in time."""
        return _Stream(self._inner.connect_tcp(host, port, timeout=self.left_s(timeout), **more), self)

    def connect_unix_socket(self, path: str, timeout: float | None = None, **more: Any) -> _Stream:
        """As the inner one, in time."""
        return _Stream(self._inner.connect_unix_socket(path, timeout=self.left_s(timeout), **more), self)

    def sleep(self, seconds: float) -> None:
        """Between two tries to connect."""
        self._inner.sleep(self.left_s(seconds))


def time_transport(transport: Any) -> Timed:
    """Of an `httpx` transport, whichever release: from now on its connections end in time."""
    pool = transport._pool  # noqa: SLF001 (it takes no backend by any other way; the tests above fail where this one is gone)
    pool._network_backend = timed = Timed(pool._network_backend)  # noqa: SLF001
    return timed


class _Stream:
    def __init__(self, inner: Any, timed: Timed) -> None:
        self._inner, self._timed = inner, timed

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = self._inner.read(max_bytes, timeout=self._timed.left_s(timeout))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for at in range(0, len(buffer), _BLOCK):
            self._inner.write(buffer[at : at + _BLOCK], timeout=self._timed.left_s(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> _Stream:
        left_s = self._timed.left_s(timeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname=server_hostname, timeout=left_s), self._timed)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
