"""One host's connections, each request and its reply under one span of time and one size. The client below bounds every wait by itself
and adds up nothing: a node that sends a byte now and then keeps a request as long as it likes, a name with three dead addresses takes
three times the time, and a reply of a few bytes unfolds to what memory holds.

INVARIANT: a reply ends in time, however slowly it drips (tests/unit/test_opensearch_replies.py::test_a_reply_that_drips).
INVARIANT: no reply is larger than `MOST_BYTES`, and none is unfolded (…::test_a_reply_that_unfolds).
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

from opensearchpy import Urllib3HttpConnection, exceptions
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError, ProtocolError
from urllib3.util import Timeout

from connectors.opensearch_documents.replies import invalid, too_large
from router.errors import SourceError

MOST_BYTES = 128 * 1024 * 1024
"""Of one reply with its headers. A thousand chunks with their token vectors are less."""


class Unanswered(exceptions.ConnectionTimeout):
    """With the connection that it was: the client does not remember it."""

    def __init__(self, error: exceptions.ConnectionError, connection: Connection) -> None:
        super().__init__(*error.args)
        self.connection = connection


class Unsent(exceptions.ConnectionError):
    """Nobody took the connection, so nothing was asked."""


class Connection(Urllib3HttpConnection):
    """Says what became of a request that failed, as far as it is known."""

    def _create_urllib3_pool(self) -> None:
        super()._create_urllib3_pool()
        self.pool.ConnectionCls = _TlsLine if self.use_ssl else _Line

    def perform_request(self, *request: Any, **more: Any) -> Any:
        if more.get("timeout") is not None:
            more["timeout"] = Timeout(total=more["timeout"])
        try:
            return super().perform_request(*request, **more)
        except exceptions.SSLError:
            raise
        except exceptions.ConnectionTimeout as error:
            raise Unanswered(error, self) from None
        except exceptions.ConnectionError as error:
            match error.info:
                case SourceError() as said:
                    raise said from None
                case UnicodeDecodeError():
                    raise invalid() from None
                case NewConnectionError() | ConnectTimeoutError() | NameResolutionError():
                    raise Unsent(*error.args) from None
                case ProtocolError(args=(_, TimeoutError())):  # it did not take in time what was sent
                    raise Unanswered(error, self) from None
            raise


class _Clocked(io.RawIOBase):
    """What a socket says until the time is over or it is too much."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._raw: Any = sock.makefile("rb", buffering=0)
        self._end = time.monotonic() + (sock.gettimeout() or 0.0)
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        count: int | None = self._raw.readinto(buffer)
        self._size += count or 0
        if self._size > MOST_BYTES:
            raise too_large()
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Reply(http.client.HTTPResponse):
    """The socket's timeout, which so far held for each single wait, holds for the whole reply."""

    def __init__(self, sock: socket.socket, *rest: Any, **more: Any) -> None:
        super().__init__(sock, *rest, **more)
        self.fp.close()
        self.fp = io.BufferedReader(_Clocked(sock))

    def begin(self) -> None:
        super().begin()
        if self.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise invalid()  # what nobody asked for
        if (self.length or 0) > MOST_BYTES:
            raise too_large()


class _Line(HTTPConnection):
    """`timeout` is set once a request and, whenever it is read, is what is left of it: to connect, to send and to hear."""

    response_class = _Reply
    _end: float | None = None

    @property
    def timeout(self) -> float | None:
        return None if self._end is None else max(0.001, self._end - time.monotonic())

    @timeout.setter
    def timeout(self, wait_s: Any) -> None:
        self._end = time.monotonic() + wait_s if isinstance(wait_s, int | float) else None

    def send(self, data: Any) -> None:
        """In what connecting and the handshake left."""
        if self.sock is not None:
            self.sock.settimeout(self.timeout)
        super().send(data)

    def _new_conn(self) -> socket.socket:
        """All addresses of the name in the time of one."""
        try:
            places = socket.getaddrinfo(self._dns_host, self.port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise NameResolutionError(self.host, self, socket.gaierror(str(error))) from None
        failed: OSError = OSError("no address")
        for at, (family, kind, protocol, _, address) in enumerate(places):
            sock = socket.socket(family, kind, protocol)
            try:
                for option in self.socket_options or ():
                    sock.setsockopt(*option)
                left_s = self.timeout
                sock.settimeout(None if left_s is None else left_s / (len(places) - at))
                sock.connect(address)
                sock.settimeout(self.timeout)
            except OSError as error:
                sock.close()
                failed = error
            else:
                return sock
        if isinstance(failed, TimeoutError):
            raise ConnectTimeoutError(self, "nobody took the connection in time")
        raise NewConnectionError(self, "nobody took the connection")


class _TlsLine(_Line, HTTPSConnection):
    pass
