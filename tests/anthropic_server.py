"""A server on this machine that speaks the wire format of Anthropic's Messages API and its batches: what it says is scripted, what
it gets is kept, and what it would have been paid for is counted.

It answers as JSON or as a stream of events, as the request asks; and it can do what servers do on a bad day.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "claude-test"


@dataclass(frozen=True)
class Received:
    """One request as it came: `size` is of the body alone."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    size: int
    text: str


Reply = Callable[["Handler", Received], None]


@dataclass
class Batches:
    """Message Batches, and the writer of contexts that answers in them and alone. `polls` are those before a batch ends; `becomes`
    says of a request by its custom id what the result is; `creating` runs when a batch was made and nothing was answered."""

    polls: int = 0
    writes: Callable[[str], str] = lambda chunk: "Says where it stands."
    becomes: Callable[[str], str] = lambda custom_id: "succeeded"
    creating: Callable[[Handler], None] = lambda handler: None
    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    paid: Counter[str] = field(default_factory=Counter)
    kept: set[str] = field(default_factory=set)

    def create(self, handler: Handler, request: Received) -> None:
        name = f"msgbatch_{len(self.made) + 1:04d}"
        requests = request.body["requests"]
        assert all(set(one) == {"custom_id", "params"} and len(one["custom_id"]) <= 64 for one in requests)
        assert len({one["custom_id"] for one in requests}) == len(requests)
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        self.made[name] = {"requests": requests, "polls": self.polls, "at": at}
        self.paid.update(_asked_of(one["params"]) for one in requests)
        self.creating(handler)
        handler.send(200, json.dumps(self.shown(name)).encode())

    def shown(self, name: str) -> dict[str, Any]:
        made = self.made[name]
        ended, count = made["polls"] <= 0, len(made["requests"])
        return {
            "id": name,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "created_at": made["at"],
            "expires_at": made["at"],
            "request_counts": {
                "processing": 0 if ended else count,
                "succeeded": count if ended else 0,
                "errored": 0,
                "canceled": 0,
                "expired": 0,
            },
            "results_url": "http://elsewhere.invalid/results" if ended else None,
        }

    def get(self, handler: Handler, path: str) -> None:
        rest = path.partition("?")[0].removeprefix("/v1/messages/batches").strip("/")
        if not rest:
            shown = [self.shown(name) for name in reversed(self.made)]
            handler.send(200, json.dumps({"data": shown, "has_more": False, "first_id": None, "last_id": None}).encode())
            return
        name, _, results = rest.partition("/")
        if name not in self.made:
            failure(404, "not_found_error")(handler, Received(path, {}, {}, 0, ""))
        elif results:
            lines = [json.dumps(self.result(one)) for one in reversed(self.made[name]["requests"])]
            handler.send(200, "\n".join(lines).encode() + b"\n", "application/x-jsonl")
        else:
            self.made[name]["polls"] -= 1
            handler.send(200, json.dumps(self.shown(name)).encode())

    def result(self, one: dict[str, Any]) -> dict[str, Any]:
        kind = self.becomes(one["custom_id"])
        result: dict[str, Any] = {"type": kind}
        if kind == "succeeded":
            result["message"] = self.message(one["params"])
        elif kind == "errored":
            result["error"] = {"type": "error", "error": {"type": "invalid_request_error", "message": "PROVIDER-WORDS"}}
        return {"custom_id": one["custom_id"], "result": result}

    def message(self, params: dict[str, Any]) -> dict[str, Any]:
        """Counts as the provider does: what is marked is written to the cache once, then read from it."""
        document, chunk = params["messages"][0]["content"]
        size, fresh = len(document["text"]) // 3, len(chunk["text"]) // 3
        usage = {"input_tokens": fresh, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 20}
        if "cache_control" not in document:
            usage["input_tokens"] += size
        elif document["text"] in self.kept:
            usage["cache_read_input_tokens"] = size
        else:
            usage["cache_creation_input_tokens"] = size
            self.kept.add(document["text"])
        return {**_message([{"type": "text", "text": self.writes(chunk["text"])}], "end_turn"), "usage": usage}


def _asked_of(params: dict[str, Any]) -> str:
    return json.dumps(params["messages"])


@dataclass
class AnthropicServer:
    """Replies in the order of the script; the last one again and again."""

    script: list[Reply] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    url: str = ""
    batches: Batches = field(default_factory=Batches)

    def says(self, *replies: Reply) -> None:
        self.script, self.received = list(replies), []

    def next_reply(self, request: Received) -> Reply:
        self.received.append(request)
        posts = sum(one.size > 0 for one in self.received)
        return self.script[min(posts, len(self.script)) - 1]

    @property
    def heard(self) -> str:
        """Everything that was ever sent to it, headers too."""
        return "\n".join(json.dumps([one.path, one.headers]) + one.text for one in self.received)


class Handler(BaseHTTPRequestHandler):
    server: Any

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        received = Received(
            self.path, {k.lower(): v for k, v in self.headers.items()}, json.loads(text), len(text.encode()), text
        )
        fake = self.server.fake
        try:
            if self.path.partition("?")[0] == "/v1/messages/batches":
                fake.received.append(received)
                fake.batches.create(self, received)
            else:
                fake.next_reply(received)(self, received)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_GET(self) -> None:
        fake = self.server.fake
        fake.received.append(Received(self.path, {k.lower(): v for k, v in self.headers.items()}, {}, 0, ""))
        try:
            fake.batches.get(self, self.path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def send(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


def serve() -> Iterator[AnthropicServer]:
    """For a fixture: yields a running server, ends it afterwards."""
    fake = AnthropicServer()
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


# --- what it says -----------------------------------------------------------------------------------------------------


def answer(value: Any, *, stop: str = "tool_use", name: str = "answer") -> Reply:
    """One call of the tool with this input."""
    return content([{"type": "tool_use", "id": "toolu_1", "name": name, "input": value}], stop=stop)


def contexts() -> Reply:
    """One context at once, by the writer of `Batches`, which counts it."""

    def reply(handler: Handler, request: Received) -> None:
        batches = handler.server.fake.batches
        batches.paid[_asked_of(request.body)] += 1
        handler.send(200, json.dumps(batches.message(request.body)).encode())

    return reply


def text(words: str) -> Reply:
    return content([{"type": "text", "text": words}], stop="end_turn")


def content(blocks: Any, *, stop: str) -> Reply:
    def reply(handler: Handler, request: Received) -> None:
        if request.body.get("stream"):
            handler.send(200, _events(blocks, stop), "text/event-stream")
        else:
            handler.send(200, json.dumps(_message(blocks, stop)).encode())

    return reply


def _message(blocks: Any, stop: str | None) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 10},
    }


def event(kind: str, **body: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **body})}\n\n".encode()


def _events(blocks: Any, stop: str, *, cut: bool = False) -> bytes:
    parts = [event("message_start", message=_message([], None)), event("ping")]
    for at, block in enumerate(blocks):
        if block["type"] == "tool_use":
            whole = json.dumps(block["input"]) if not isinstance(block["input"], bytes) else block["input"].decode()
            parts.append(event("content_block_start", index=at, content_block={**block, "input": {}}))
            for start in range(0, len(whole), 7):
                piece = {"type": "input_json_delta", "partial_json": whole[start : start + 7]}
                parts.append(event("content_block_delta", index=at, delta=piece))
        else:
            kind = block["type"]
            parts.append(event("content_block_start", index=at, content_block={"type": kind, kind: ""}))
            parts.append(event("content_block_delta", index=at, delta={"type": f"{kind}_delta", kind: block[kind]}))
        parts.append(event("content_block_stop", index=at))
    if not cut:
        parts.append(event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 10}))
        parts.append(event("message_stop"))
    return b"".join(parts)


def unparsable() -> Reply:
    """The tool's input is no JSON: in a stream as it is, else the whole message."""

    def reply(handler: Handler, request: Received) -> None:
        if request.body.get("stream"):
            block = {"type": "tool_use", "id": "t", "name": "answer", "input": b'{"sql": "SELECT '}
            handler.send(200, _events([block], "tool_use"), "text/event-stream")
        else:
            handler.send(200, b'{"content": [{"type": "tool_use", "input": {"sql"')

    return reply


def cut_stream() -> Reply:
    """The stream ends before the message does; without a stream the body does."""

    def reply(handler: Handler, request: Received) -> None:
        if request.body.get("stream"):
            block = {"type": "tool_use", "id": "t", "name": "answer", "input": {"cannot": "x"}}
            handler.send(200, _events([block], "tool_use", cut=True), "text/event-stream")
        else:
            handler.send_response(200)
            handler.send_header("content-length", "1000")
            handler.end_headers()
            handler.wfile.write(b"{")
            handler.close_connection = True

    return reply


def failure(status: int, kind: str = "api_error", words: str = "PROVIDER-WORDS", **headers: str) -> Reply:
    def reply(handler: Handler, _: Received) -> None:
        body = {"type": "error", "error": {"type": kind, "message": words}}
        handler.send(status, json.dumps(body).encode(), **headers)

    return reply


def failing_stream(kind: str) -> Reply:
    """Status 200, then an error inside."""

    def reply(handler: Handler, request: Received) -> None:
        if request.body.get("stream"):
            body = event("message_start", message=_message([], None))
            body += event("error", error={"type": kind, "message": "PROVIDER-WORDS"})
            handler.send(200, body, "text/event-stream")
        else:
            handler.send(529, json.dumps({"type": "error", "error": {"type": kind, "message": "PROVIDER-WORDS"}}).encode())

    return reply


def raw(body: bytes, kind: str = "application/json", status: int = 200, **headers: str) -> Reply:
    return lambda handler, _: handler.send(status, body, kind, **headers)


def reset() -> Reply:
    """The connection is reset instead of an answer."""

    def reply(handler: Handler, _: Received) -> None:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
        handler.close_connection = True

    return reply


def slow(seconds: float, then: Reply) -> Reply:
    def reply(handler: Handler, request: Received) -> None:
        time.sleep(seconds)
        then(handler, request)

    return reply


def trickle(seconds: float) -> Reply:
    """Headers at once, then a byte now and then: no single read is ever late."""

    def reply(handler: Handler, request: Received) -> None:
        stream = bool(request.body.get("stream"))
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream" if stream else "application/json")
        handler.end_headers()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            handler.wfile.write(event("ping") if stream else b" ")
            handler.wfile.flush()
            time.sleep(0.05)
        handler.close_connection = True

    return reply


def endless() -> Reply:
    """As many bytes as the other side takes."""

    def reply(handler: Handler, request: Received) -> None:
        stream = bool(request.body.get("stream"))
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream" if stream else "application/json")
        handler.end_headers()
        handler.wfile.write(b"event: content_block_delta\ndata: " if stream else b'{"x": "')
        for _ in range(2_000):
            handler.wfile.write(b"x" * 65_536)
        handler.close_connection = True

    return reply
