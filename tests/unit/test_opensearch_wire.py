"""Requests to OpenSearch and what they make of its failures, against a server that fails the way a node does.

What a real node does when it is killed, full, busy or slow: tests/opensearch/test_opensearch_faults.py.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from connectors.opensearch_documents import wire
from connectors.opensearch_documents.mapping import write_entry
from connectors.opensearch_documents.replies import check_answer
from connectors.opensearch_documents.wire import Deadline, Place, Wire
from router.errors import SourceError

WHOLE = {"timed_out": False, "_shards": {"total": 2, "successful": 2, "failed": 0}, "hits": {"hits": []}}


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        pass  # whoever asked has hung up


class Node:
    """Gives its answers in turn, the last one for ever; a number of seconds in place of a status is a silence."""

    def __init__(self, *answers: tuple[int | float, Any]) -> None:
        self.answers, self.bodies = list(answers), []
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                node.bodies.append(self.rfile.read(int(self.headers.get("content-length", 0))).decode())
                status, body = node.answers.pop(0) if len(node.answers) > 1 else node.answers[0]
                if isinstance(status, float):
                    time.sleep(status)
                    status = 200
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_DELETE = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    made: list[Node] = []
    yield made
    for node in made:
        node.close()


def open_wire(nodes: list[Node], *several: Node) -> Wire:
    nodes.extend(several)
    return Wire(Place(tuple(node.address for node in several)))


def error(kind: str, reason: str = "secret reason with [field] and /a/path") -> dict[str, Any]:
    return {"error": {"type": kind, "reason": reason, "root_cause": [{"type": kind, "reason": reason}]}, "status": 0}


def send(opened: Wire, deadline_s: float = 5.0) -> Any:
    return opened.send("POST", "/index/_search", body={"query": {"term": {"hidden": "hidden"}}}, deadline=Deadline(deadline_s))


@pytest.mark.parametrize(
    ("status", "kind", "code", "retryable"),
    [
        (400, "parsing_exception", "store_failed", False),
        (401, "security_exception", "store_denied", False),
        (403, "security_exception", "store_denied", False),
        (403, "cluster_block_exception", "store_read_only", False),
        (404, "index_not_found_exception", "store_missing", False),
        (409, "version_conflict_engine_exception", "store_busy", True),
        (429, "rejected_execution_exception", "store_busy", True),
        (429, "circuit_breaking_exception", "store_busy", True),
        (429, "cluster_block_exception", "store_read_only", False),
        (500, "task_cancelled_exception", "deadline", True),
        (500, "already_closed_exception", "store_failed", False),
        (500, "node_disconnected_exception", "store_unavailable", True),
        (404, "search_context_missing_exception", "store_unavailable", True),
        (503, "search_phase_execution_exception", "store_unavailable", True),
    ],
)
def test_errors_show_nothing(
    nodes: list[Node], status: int, kind: str, code: str, retryable: bool, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    """Codes by status and type; neither the engine's words nor place, query or label, in the error or in the client's log."""
    opened = open_wire(nodes, Node((status, error(kind))))
    with caplog.at_level(logging.DEBUG), pytest.raises(SourceError) as caught:
        send(opened)
    assert (caught.value.code, caught.value.retryable) == (code, retryable)
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("opensearch")]
    said = f"{caught.value} {caught.value.hint} {logged} {capfd.readouterr().err}"
    assert not any(word in said for word in ("secret", "hidden", "127.0.0.1", kind, "/index"))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_password_is_in_no_text() -> None:
    assert "word" not in repr(Place(("https://host",), username="ada", password="word"))


def test_what_is_tried_again(nodes: list[Node]) -> None:
    """A host that is busy, after a pause; another host for one that fails; nothing that was refused for good."""
    busy = Node((429, error("rejected_execution_exception")), (200, WHOLE))
    assert send(open_wire(nodes, busy)) == WHOLE
    assert len(busy.bodies) == 2
    for status, kind in ((400, "x"), (401, "x"), (409, "x"), (429, "cluster_block_exception"), (500, "x")):
        node = Node((status, error(kind)), (200, WHOLE))
        with pytest.raises(SourceError):
            send(open_wire(nodes, node))
        assert len(node.bodies) == 1, (status, kind)
    down = Node((200, WHOLE))
    down.close()
    opened = Wire(Place((down.address, busy.address)))
    for _ in range(4):
        assert send(opened) == WHOLE


@pytest.mark.parametrize(
    ("method", "path", "twice"),
    [
        ("POST", "/index/_search", True),
        ("POST", "/index/_bulk", True),
        ("DELETE", "/index", True),
        ("POST", "/_reindex", False),
        ("PUT", "/index/_doc/meta", False),
        ("PUT", "/index", False),
        ("POST", "/_aliases", False),
        ("POST", "/index/_whatever_comes", False),
    ],
)
@pytest.mark.parametrize("status", [429, 502, 503, 0.6])
def test_what_may_be_sent_twice(nodes: list[Node], method: str, path: str, twice: bool, status: float) -> None:
    """Nobody knows what became of what a node broke off, was too busy for, or said nothing to."""
    several = [Node((status, error("x")), (200, WHOLE)) for _ in range(2)]
    several[1].answers = several[0].answers  # whoever is asked first
    opened = open_wire(nodes, *several)
    if twice or status == 0.6:  # what may not be sent twice is waited for to the end
        opened.send(method, path, deadline=Deadline(1.0))
    else:
        with pytest.raises(SourceError):
            opened.send(method, path, deadline=Deadline(1.0))
    assert sum(len(node.bodies) for node in several) == 1 + twice


def test_what_reached_nobody_is_sent_to_the_next(nodes: list[Node]) -> None:
    down, well = Node((200, WHOLE)), Node((200, WHOLE))
    down.close()
    opened = Wire(Place((down.address, well.address)))
    nodes.append(well)
    for _ in range(4):
        assert opened.send("POST", "/_reindex", deadline=Deadline(2.0)) == WHOLE


def test_writers_wait_for_a_busy_cluster(nodes: list[Node]) -> None:
    """A question waits with half of what it has left; whoever indexes has more time than the cluster is busy."""
    busy = [(429, error("rejected_execution_exception"))] * 4
    node = Node(*busy, (200, WHOLE))
    opened = open_wire(nodes, node)
    with pytest.raises(SourceError, match="store_busy"):
        opened.send("GET", "/", deadline=Deadline(0.4))
    assert len(node.bodies) == 3
    assert opened.send("GET", "/", deadline=Deadline(5.0, patient=True)) == WHOLE
    with pytest.raises(SourceError, match="store_busy"):
        open_wire(nodes, Node(busy[0])).send("GET", "/", deadline=Deadline(0.5, patient=True))


def test_a_silent_host_costs_half(nodes: list[Node]) -> None:
    """The other one is asked in the time that is left; with one host alone the deadline is the deadline."""
    silent, well = Node((5.0, WHOLE)), Node((200, WHOLE))
    opened = open_wire(nodes, silent, well)
    for _ in range(2):
        start = time.monotonic()
        assert send(opened, 0.8) == WHOLE
        assert time.monotonic() - start < 0.8
    assert len(silent.bodies) == 1, "a host that said nothing is left alone for a while"
    start = time.monotonic()
    with pytest.raises(SourceError, match="deadline"):
        send(open_wire(nodes, Node((5.0, WHOLE))), 0.3)
    assert time.monotonic() - start < 1.0
    with pytest.raises(SourceError, match="deadline"):
        send(opened, 0.0)


def test_trap_partial_hits_come_as_200(nodes: list[Node]) -> None:
    """Timed out or without a shard, and still HTTP 200 with hits: both are failures, and so is a part of several searches."""
    check_answer(WHOLE)
    for wrong, code in (
        ({**WHOLE, "timed_out": True}, "deadline"),
        ({**WHOLE, "_shards": {"total": 2, "successful": 1, "failed": 1}}, "store_unavailable"),
        ({**WHOLE, "_shards": {"total": 2, "successful": 1, "failed": 0}}, "store_unavailable"),
        ({"hits": {"hits": []}}, "store_unavailable"),
        ({"error": {"type": "x"}, "status": 400}, "store_failed"),
    ):
        with pytest.raises(SourceError) as caught:
            check_answer(wrong)
        assert caught.value.code == code
    inner = {"type": "search_phase_execution_exception", "failed_shards": [{"reason": {"type": "task_cancelled_exception"}}]}
    with pytest.raises(SourceError, match="deadline"):
        check_answer({"error": inner, "status": 500})
    node = Node((200, {"responses": [WHOLE, {"error": {"type": "x"}, "status": 400}]}))
    answers = open_wire(nodes, node).search_many("index", ["{}", "{}"], deadline=Deadline(5))
    assert answers is not None
    check_answer(answers[0])
    with pytest.raises(SourceError):
        check_answer(answers[1])
    assert all(json.loads(line)["allow_partial_search_results"] is False for line in node.bodies[0].splitlines()[::2])


def test_a_shard_that_comes_back_is_waited_for(nodes: list[Node]) -> None:
    """While new primaries are named; no longer than half of the deadline, and then it is said which part is missing."""
    part = {**WHOLE, "_shards": {"total": 2, "successful": 1, "failed": 1}}
    node = Node((200, {"responses": [WHOLE, part]}), (200, {"responses": [WHOLE, part]}), (200, {"responses": [WHOLE, WHOLE]}))
    assert open_wire(nodes, node).search_many("index", ["{}", "{}"], deadline=Deadline(5)) == [WHOLE, WHOLE]
    assert len(node.bodies) == 3
    start = time.monotonic()
    gone = Node((200, {"responses": [part]}))
    assert open_wire(nodes, gone).search_many("index", ["{}"], deadline=Deadline(1)) == [part]
    assert time.monotonic() - start < 0.8


@pytest.mark.parametrize(
    "told",
    [
        {"failed_shards": [{"reason": {"type": "node_disconnected_exception"}}]},
        {"failed_shards": [], "caused_by": {"type": "node_not_connected_exception"}},
    ],
    ids=["a shard says it", "the cause says it"],
)
def test_a_node_that_goes_between_hits_and_their_fields(nodes: list[Node], told: dict[str, Any]) -> None:
    """OpenSearch calls it 500 and does not ask the other copy: here it is asked."""
    gone = {"error": {"type": "search_phase_execution_exception", "phase": "fetch", "root_cause": [], **told}, "status": 500}
    node = Node((200, {"responses": [WHOLE, gone]}), (200, {"responses": [WHOLE, WHOLE]}))
    assert open_wire(nodes, node).search_many("index", ["{}", "{}"], deadline=Deadline(5)) == [WHOLE, WHOLE]
    with pytest.raises(SourceError, match="store_unavailable"):
        send(open_wire(nodes, Node((500, gone))))


def test_an_index_that_is_not_there(nodes: list[Node]) -> None:
    inside = {"responses": [{"error": {"type": "index_not_found_exception"}, "status": 404}]}
    for answer in ((200, inside), (404, error("index_not_found_exception"))):
        assert open_wire(nodes, Node(answer)).search_many("index", ["{}"], deadline=Deadline(5)) is None


def _entries(names: str) -> list[str]:
    return [write_entry(name, name, "{}") for name in names]


def _items(names: str, *statuses: int, kind: str = "rejected_execution_exception") -> dict[str, Any]:
    items = [
        {"index": {"_id": name, "status": status, **({"error": {"type": kind}} if status > 299 else {})}}
        for name, status in zip(names, statuses, strict=True)
    ]
    return {"errors": any(status > 299 for status in statuses), "items": items}


def test_bulk_sends_again_what_was_rejected_and_nothing_else(nodes: list[Node]) -> None:
    """A 429 of an item says that it was not written; the others were."""
    node = Node((200, _items("abcd", 201, 429, 201, 429)), (200, _items("bd", 429, 201)), (200, _items("b", 201)))
    open_wire(nodes, node).write_many("index", _entries("abcd"))
    assert node.bodies == ["".join(_entries(names)) for names in ("abcd", "bd", "b")]


def test_bulk_gives_way(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is refused as a whole is sent in halves, and later batches are smaller."""
    monkeypatch.setattr(wire, "LEAST_ENTRIES", 1)
    busy = [(429, error("circuit_breaking_exception"))] * 3
    node = Node(*busy, (200, _items("ab", 201, 201)), (200, _items("cd", 201, 201)))
    open_wire(nodes, node).write_many("index", _entries("abcd"))
    assert node.bodies[3:] == ["".join(_entries(names)) for names in ("ab", "cd")]


@pytest.mark.parametrize(
    ("status", "kind", "code"), [(400, "mapper_parsing_exception", "store_failed"), (409, "x", "store_busy")]
)
def test_bulk_raises_what_is_refused_for_good(nodes: list[Node], status: int, kind: str, code: str) -> None:
    node = Node((200, _items("ab", 201, status, kind=kind)))
    with pytest.raises(SourceError, match=code):
        open_wire(nodes, node).write_many("index", _entries("ab"))
    assert len(node.bodies) == 1


def test_bulk_meets_a_full_disk(nodes: list[Node]) -> None:
    node = Node((200, _items("a", 429, kind="cluster_block_exception")))
    with pytest.raises(SourceError, match="store_read_only"):
        open_wire(nodes, node).write_many("index", _entries("a"))


def test_bulk_loses_patience(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PATIENCE_S", 0.4)
    with pytest.raises(SourceError) as caught:
        open_wire(nodes, Node((200, _items("a", 429)))).write_many("index", _entries("a"))
    assert (caught.value.code, caught.value.retryable) == ("store_busy", True)


def test_an_untrusted_certificate(nodes: list[Node]) -> None:
    """A server without TLS, or with another CA, is never spoken to: the credentials stay here."""
    node = Node((200, WHOLE))
    nodes.append(node)
    opened = Wire(Place((node.address.replace("http:", "https:"),), username="ada", password="word"))
    with pytest.raises(SourceError) as caught:
        send(opened)
    assert caught.value.code in ("store_untrusted", "store_unreachable")
    assert node.bodies == []
