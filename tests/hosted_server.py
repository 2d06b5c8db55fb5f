"""What servers of hosted models have in common here: they keep every byte they get, say what the test scripted, and have bad days.

`tests/cohere_server.py` and `tests/embeddings_server.py` add what their wire formats say on a good day.
"""

from __future__ import annotations

import json
import math
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIMENSIONS = 32


@dataclass(frozen=True)
class Received:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)


Reply = Callable[["Handler", Received], None]


@dataclass
class HostedServer:
    """Replies in the order of the script; the last one again and again. An empty script means a good day."""

    good: Reply
    script: list[Reply] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    url: str = ""
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def says(self, *replies: Reply) -> None:
        """From now on; what was received before is forgotten."""
        with self.lock:
            self.script, self.received, self.most_at_once = list(replies), [], 0

    def next_reply(self, request: Received) -> Reply:
        with self.lock:
            self.received.append(request)
            return self.script[min(len(self.received), len(self.script)) - 1] if self.script else self.good

    @property
    def heard(self) -> bytes:
        """Every byte that was ever sent to it since `says`, headers too."""
        return b"\n".join(json.dumps([one.path, one.headers]).encode() + one.raw for one in self.received)


class Handler(BaseHTTPRequestHandler):
    server: Any
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        fake = self.server.fake
        raw = self.rfile.read(int(self.headers["content-length"]))
        received = Received(self.path, {k.lower(): v for k, v in self.headers.items()}, raw)
        with fake.lock:
            fake.at_once += 1
            fake.most_at_once = max(fake.most_at_once, fake.at_once)
        try:
            fake.next_reply(received)(self, received)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with fake.lock:
                fake.at_once -= 1

    def send(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@contextmanager
def serving(good: Reply) -> Iterator[HostedServer]:
    """A running server, ended afterwards."""
    fake = HostedServer(good)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.fake = fake  # type: ignore[attr-defined]
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()


def vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Texts that share words are near each other: a bag of words, each at a place of its own."""
    values = [0.01] * dimensions
    for word in set(re.findall(r"[a-z0-9]+", text.lower())):
        values[sum(word.encode()) * 7 % dimensions] += 1.0
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


def overlap(question: str, text: str) -> float:
    """Share of the question's words that the text holds: what the server here calls relevance."""
    asked = set(re.findall(r"[a-z0-9]+", question.lower()))
    return len(asked & set(re.findall(r"[a-z0-9]+", text.lower()))) / max(1, len(asked))


# --- bad days ---------------------------------------------------------------------------------------------------------


def failure(status: int, **headers: str) -> Reply:
    return lambda handler, _: handler.send(status, json.dumps({"message": "PROVIDER-WORDS"}).encode(), **headers)


def raw(body: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> Reply:
    return lambda handler, _: handler.send(status, body, kind, **headers)


def slow(seconds: float, then: Reply) -> Reply:
    def reply(handler: Handler, request: Received) -> None:
        time.sleep(seconds)
        then(handler, request)

    return reply


def cut_off() -> Reply:
    """Ends in the middle of the body."""

    def reply(handler: Handler, _: Received) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", "100000")
        handler.end_headers()
        handler.wfile.write(b'{"id": "x", "results": [{"index": 0')
        handler.close_connection = True

    return reply


def reset() -> Reply:
    """The connection is reset instead of an answer."""

    def reply(handler: Handler, _: Received) -> None:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
        handler.close_connection = True

    return reply


def trickle(seconds: float) -> Reply:
    """Headers at once, then a byte now and then: no single read is ever late."""

    def reply(handler: Handler, _: Received) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", "100000")
        handler.end_headers()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
        handler.close_connection = True

    return reply


def endless() -> Reply:
    """As many bytes as the other side takes."""

    def reply(handler: Handler, _: Received) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.wfile.write(b'{"x": "')
        for _ in range(1_000):
            handler.wfile.write(b"x" * 65_536)
        handler.close_connection = True

    return reply


def redirect(to: str) -> Reply:
    return lambda handler, _: handler.send(307, b"", location=to)


def spoiled(rows: Sequence[list[float]], at: int, value: float) -> list[list[float]]:
    """The same with one number of the first row replaced."""
    first = [*rows[0][:at], value, *rows[0][at + 1 :]]
    return [first, *rows[1:]]
