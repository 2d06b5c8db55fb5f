"""A node that answers wrongly, slowly, too much or not at all: the store over a server that holds an index in memory and is told what
to do instead of answering. What a real node does: tests/opensearch."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.opensearch_documents import OpenSearchDocuments, Place, connection, mapping, replies
from connectors.opensearch_documents.mapping import Words, shape_digest, shape_of
from connectors.opensearch_documents.wire import Deadline, Wire
from router.domain import Search
from router.errors import SourceError
from router.filters import And, Has, Le
from tests.conformance import corpus
from tests.opensearch.tls_front import issue, make_authority

WHOLE = {"timed_out": False, "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0}}
VISIBLE = And((Has("sensitivity"), Le("sensitivity", 1)))
Instead = Callable[["Handler", bytes], Any]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    index: Index

    def answer(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.split("?")[0]
        self.index.asked.append((self.command, self.path))
        for part, instead in self.index.instead.items():
            if part in path:
                told = instead(self, raw)
                if told is not None:
                    self.say(*(told if isinstance(told, tuple) else (200, told)))
                return
        self.say(200, self.index.answer(self.command, self.path, path, raw))

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer

    def say(self, status: int, body: Any, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def break_off(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass  # whoever asked has hung up


class Index:
    """One index with two documents, on `several` hosts that know the same."""

    def __init__(self, several: int = 1) -> None:
        self.instead: dict[str, Instead] = {}
        self.asked: list[tuple[str, str]] = []
        self.seq, self.mark = 1, ""
        documents = [corpus.document(key, corpus.labels(), f"shared pump {key}") for key in "ab"]
        self.shapes = {shape_digest(shape): shape for shape in (shape_of(one.labels) for one in documents)}
        words = Words()
        self.rows = []
        for document in documents:
            chunk, embedded = document.chunks[0]
            filed = mapping.file_labels(document.source, document.labels)
            self.rows.append(json.loads(mapping.chunk_json(0, chunk, embedded, filed, words.of_chunk(chunk))))
        handler = type("Here", (Handler,), {"index": self})
        self.servers = [Server(("127.0.0.1", 0), handler) for _ in range(several)]
        for server in self.servers:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.store = OpenSearchDocuments(Place(tuple(self.hosts)), lambda: corpus.ENTITY, wait_s=3.0)
        self.name = f"{self.store._partitions.alias(corpus.TENANT)}-g-000001"

    @property
    def hosts(self) -> list[str]:
        return [f"http://127.0.0.1:{server.server_address[1]}" for server in self.servers]

    def close(self) -> None:
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def meta(self) -> dict[str, Any]:
        model = {"model_id": corpus.MODEL.id, "dimensions": corpus.MODEL.dimensions}
        return {
            "schema": 1,
            "tenant": corpus.TENANT,
            "writes": 1,
            **model,
            "shapes": self.shapes,
            "fields": [],
            "mark": self.mark,
        }

    def answer(self, method: str, full: str, path: str, raw: bytes) -> Any:
        last = path.rpartition("/")[2]
        if last == "_msearch":
            return {"responses": [self.part(json.loads(line)) for line in raw.decode().split("\n")[1::2]]}
        if "/_settings/" in path:
            return {self.name: {"settings": {"index.knn.derived_source.enabled": "false"}}}
        if path.startswith("/_alias/"):
            return {self.name: {"aliases": {}}}
        if last == "meta":
            return self.own_entry(method, full, raw)
        if last == "_mget":
            return {"docs": [{"_index": self.name, "_id": one["_id"], "found": False} for one in json.loads(raw)["docs"]]}
        if last == "_bulk":
            told = [item for line in raw.decode().splitlines()[::2] for item in json.loads(line).items()]
            return {"errors": False, "items": [{kind: {"_id": one["_id"], "status": 201}} for kind, one in told]}
        if path.startswith("/_cat/"):
            return [{"index": self.name}]
        return {"acknowledged": True, **WHOLE}

    def own_entry(self, method: str, full: str, raw: bytes) -> Any:
        place = {"_index": self.name, "_primary_term": 1}
        if method == "PUT":
            self.mark = json.loads(raw)["meta"]["mark"]
            self.seq += 1
            return {**place, "_seq_no": self.seq}
        return {**place, "_seq_no": self.seq, "found": True, "_source": {"meta": self.meta()}}

    def part(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["query"] == {"ids": {"values": ["meta"]}}:
            return {**WHOLE, "hits": {"hits": [{"_index": self.name, "_id": "meta", "_source": {"meta": self.meta()}}]}}
        if "aggs" in body:
            count = len(self.rows)
            named = body["aggs"].get("words", {}).get("filters", {}).get("filters", {})
            length = {"value": float(sum(row["length"] for row in self.rows))}
            buckets = {"buckets": {name: {"doc_count": count} for name in named}}
            return {
                **WHOLE,
                "hits": {"total": {"value": count}, "hits": []},
                "aggregations": {"length": length, "words": buckets},
            }
        asked = body.get("docvalue_fields", ())
        hits = []
        for row in self.rows[: body["size"]]:
            flat = {**row, **{name: row[name].rstrip("=").replace("+", "-").replace("/", "_") for name in ("counts", "vector")}}
            fields = {name: [flat[name]] for name in asked}
            hits.append({"_index": self.name, "_id": row["id"], "sort": [0.9, row["id"]], "fields": fields, "_source": row})
        return {**WHOLE, "hits": {"hits": hits}}

    def instead_of_legs(self, change: Callable[[list[dict[str, Any]]], Any]) -> None:
        """The answers of a search with both legs: their own entry's, dense, lexical."""

        def instead(_: Handler, raw: bytes) -> Any:
            reply = self.answer("POST", "", "/_msearch", raw)
            if len(reply["responses"]) == 3:
                change(reply["responses"])
            return reply

        self.instead["_msearch"] = instead

    def search(self, deadline_s: float = 2.0) -> Any:
        return self.store.search(
            Search(
                tenant=corpus.TENANT,
                filter=VISIBLE,
                text="pump",
                vector=corpus.question(1, 0, 0, 0),
                model_id=corpus.MODEL.id,
                limit=5,
                deadline_s=deadline_s,
                plain=frozenset(),
            )
        )

    def put(self) -> None:
        self.store.put(corpus.TENANT, [corpus.document(key, corpus.labels(), key) for key in "cd"], model=corpus.MODEL)


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    yield made
    made.close()


@pytest.fixture
def three() -> Iterator[Index]:
    made = Index(3)
    yield made
    made.close()


def refused(code: str, run: Callable[[], Any]) -> float:
    """After how many seconds."""
    start = time.monotonic()
    with pytest.raises(SourceError) as caught:
        run()
    assert caught.value.code == code
    return time.monotonic() - start


def test_the_server_is_believed(index: Index) -> None:
    """Otherwise no refusal below would mean anything."""
    assert {candidate.chunk_id for candidate in index.search().candidates} == {row["id"] for row in index.rows}
    name = index.rows[0]["id"]
    assert [one.chunk.chunk_id for one in index.store.load(corpus.TENANT, [name], VISIBLE, deadline_s=2)] == [name]
    index.put()


# --- time and size ----------------------------------------------------------------------------------------------------


def drip(handler: Handler, _: bytes) -> None:
    handler.send_response(200)
    handler.send_header("content-length", "100000")
    handler.end_headers()
    _drip(handler)


def drip_heads(handler: Handler, _: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for _ in range(20):
        handler.wfile.write(b"x-more: 1\r\n")
        time.sleep(0.2)
    handler.close_connection = True


def drip_chunks(handler: Handler, _: bytes) -> None:
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    for _ in range(20):
        handler.wfile.write(b"1\r\n \r\n")
        time.sleep(0.2)
    handler.close_connection = True


def _drip(handler: Handler) -> None:
    for _ in range(20):
        handler.wfile.write(b" ")
        time.sleep(0.2)
    handler.close_connection = True


@pytest.mark.parametrize("instead", [drip, drip_heads, drip_chunks])
def test_a_reply_that_drips(index: Index, instead: Instead) -> None:
    """Each byte comes in time, the reply does not."""
    index.instead["_msearch"] = instead
    assert refused("deadline", lambda: index.search(0.7)) < 1.2


def late_break(handler: Handler, _: bytes) -> None:
    time.sleep(0.35)
    handler.break_off()


def late_502(handler: Handler, _: bytes) -> Any:
    time.sleep(0.35)
    return 502, {}


@pytest.mark.parametrize("instead", [late_break, late_502, drip])
def test_hosts_that_break_off_late(three: Index, instead: Instead) -> None:
    """Three hosts have together the time of one."""
    three.instead["_msearch"] = instead
    start = time.monotonic()
    with pytest.raises(SourceError):
        three.search(0.7)
    assert time.monotonic() - start < 1.2
    assert len(three.asked) > 1


def test_a_name_with_addresses_that_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them have the time of one; 192.0.2.0/24 is nobody's."""
    dead = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{at}", 9)) for at in range(1, 4)]
    tried: list[Any] = []
    waits_s: list[float] = []

    def connect(self: socket.socket, address: Any) -> None:
        tried.append(address)
        waits_s.append(self.gettimeout() or 10)
        time.sleep(self.gettimeout() or 10)
        raise TimeoutError

    store = OpenSearchDocuments(Place(("http://several:9",)), lambda: corpus.ENTITY)
    monkeypatch.setattr(connection.socket, "getaddrinfo", lambda *_, **__: dead)
    monkeypatch.setattr(connection.socket, "socket", type("Slow", (socket.socket,), {"connect": connect}))
    start = time.monotonic()
    with pytest.raises(SourceError):
        store.load(corpus.TENANT, ["x"], VISIBLE, deadline_s=0.6)
    assert time.monotonic() - start < 1.0
    assert set(tried) == {place[-1] for place in dead}
    assert max(waits_s) < 0.3


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def slow_reader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Takes what it is sent in small pieces, and never answers."""
    listener = socket.create_server(("127.0.0.1", 0))
    authority = make_authority(tmp_path, "authority")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issue(tmp_path, "node", authority))

    def serve() -> None:
        with contextlib.suppress(OSError):
            near, _ = listener.accept()
            with context.wrap_socket(near, server_side=True) if request.param else near as heard:
                while heard.recv(65_536):
                    time.sleep(0.05)

    threading.Thread(target=serve, daemon=True).start()
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    yield Place((f"https://{address}",), ca=str(authority[0])) if request.param else Place((f"http://{address}",))
    listener.close()


def test_a_node_that_reads_slowly(slow_reader: Place) -> None:
    """Each piece is taken in time, the request is not."""
    body = "x" * 30_000_000
    assert refused("deadline", lambda: Wire(slow_reader).send("POST", "/x/_bulk", body=body, deadline=Deadline(0.7))) < 1.4


def test_tls_is_under_the_same_clock(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issue(tmp_path, "node", authority))
    index = Index()
    [server] = index.servers
    server.socket = context.wrap_socket(server.socket, server_side=True)
    index.store = OpenSearchDocuments(
        Place((index.hosts[0].replace("http:", "https:"),), ca=str(authority[0])), lambda: corpus.ENTITY
    )
    assert len(index.search().candidates) == 2
    index.instead["_msearch"] = drip
    assert refused("deadline", lambda: index.search(0.7)) < 1.2
    index.close()


def test_a_reply_that_unfolds(index: Index) -> None:
    """Nobody asked for gzip: what comes so is not unfolded."""
    packed = gzip.compress(b" " * 50_000_000)

    def bomb(handler: Handler, _: bytes) -> None:
        handler.say(200, packed, content_encoding="gzip")

    index.instead["_msearch"] = bomb
    assert refused("store_reply_invalid", index.search) < 1.0

    def packed_but_right(handler: Handler, raw: bytes) -> None:
        handler.say(200, gzip.compress(json.dumps(index.answer("POST", "", "/_msearch", raw)).encode()), content_encoding="gzip")

    index.instead["_msearch"] = packed_but_right
    refused("store_reply_invalid", index.search)


def test_a_reply_that_is_too_large(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it says so or not, also of errors."""
    monkeypatch.setattr(connection, "MOST_BYTES", 100_000)

    def endless(handler: Handler, _: bytes) -> None:
        handler.send_response(503)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for _ in range(1_000):
            handler.wfile.write(b"1000\r\n" + b" " * 4096 + b"\r\n")

    def said(handler: Handler, _: bytes) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "100001")
        handler.end_headers()

    for instead in (endless, said, lambda *_: (200, b" " * 99_999)):
        index.instead["_msearch"] = instead
        refused("store_reply_too_large", index.search)


# --- what cannot be right ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"null", b"[1]", b"{}", b"<html>", b"", b"3", b'"x"', b"[" * 100_000, b"\xff\xfe", b"NaN"])
@pytest.mark.parametrize(
    "run", ["search", "put", "version", "documents", "verify", "tenants", "generations", "forget", "relabel"]
)
def test_what_is_no_reply(index: Index, run: str, text: bytes) -> None:
    """Neither a fault of ours nor "nothing has been indexed"."""
    calls: dict[str, Callable[[], Any]] = {
        "search": index.search,
        "put": index.put,
        "version": lambda: index.store.version(corpus.TENANT, deadline_s=2.0),
        "documents": lambda: list(index.store.documents(corpus.TENANT)),
        "verify": lambda: index.store.verify(corpus.TENANT),
        "tenants": index.store.tenants,
        "generations": lambda: index.store.generations(corpus.TENANT),
        "forget": lambda: index.store.forget(corpus.TENANT, ["x"]),
        "relabel": lambda: index.store.relabel(corpus.TENANT, {"s/a": corpus.labels()}),
    }
    index.instead[""] = lambda *_: (200, text)
    refused("store_reply_invalid", calls[run])


def test_what_says_that_nothing_is_there(index: Index) -> None:
    """OpenSearch does. A 404 of anything else is not believed."""
    for body in ({}, b"404 page not found", {"error": "no handler"}, {"found": False}):
        index.instead[""] = lambda *_, body=body: (404, body)
        refused("store_reply_invalid", index.search)
        refused("store_reply_invalid", lambda: index.store.relabel(corpus.TENANT, {"s/a": corpus.labels()}))
    index.instead[""] = lambda *_: (404, {"error": {"type": "index_not_found_exception"}, "status": 404})
    refused("store_missing", index.search)
    index.instead[""] = lambda *_: (404, {"error": "alias [x] missing", "status": 404})
    assert index.store.generation(corpus.TENANT) is None


def _drop(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda held: held.pop(name)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda answers: answers.pop(), "store_reply_invalid"),
        (lambda answers: answers.append(answers[-1]), "store_reply_invalid"),
        (lambda answers: answers.__setitem__(slice(1, 3), answers[:0:-1]), "store_reply_invalid"),
        (lambda answers: answers.__setitem__(1, None), "store_reply_invalid"),
        (lambda answers: [hit.pop("fields") for hit in answers[1]["hits"]["hits"]], "store_reply_invalid"),
        (lambda answers: [hit["fields"].pop("source") for hit in answers[1]["hits"]["hits"]], "store_reply_invalid"),
        (lambda answers: [hit["fields"].update(source=[3]) for hit in answers[1]["hits"]["hits"]], "store_reply_invalid"),
        (lambda answers: [hit["fields"].update(counts=["%"]) for hit in answers[1]["hits"]["hits"]], "store_reply_invalid"),
        (lambda answers: [hit.update(sort=[float("nan"), "x"]) for hit in answers[1]["hits"]["hits"]], "store_reply_invalid"),
        (lambda answers: [hit.update(sort=[]) for hit in answers[1]["hits"]["hits"]], "store_reply_invalid"),
        (lambda answers: answers[1]["hits"].update(hits=answers[1]["hits"]["hits"] * 9), "store_reply_invalid"),
        (lambda answers: answers[0]["hits"]["hits"][0].update(_source={}), "store_reply_invalid"),
        (lambda answers: answers[0]["hits"]["hits"][0]["_source"]["meta"].update(schema="1"), "store_reply_invalid"),
        (lambda answers: answers[0]["hits"]["hits"][0]["_source"]["meta"].update(tenant="other"), "tenant_mismatch"),
        (lambda answers: answers[0]["hits"]["hits"].append(answers[0]["hits"]["hits"][0]), "store_mixed"),
        (lambda answers: [answer.update(error="SECRET", status=500) for answer in answers[1:]], "store_failed"),
        (lambda answers: [answer.update(error={"type": ["SECRET"]}) for answer in answers[1:]], "store_failed"),
        (lambda answers: [answer.update(status=500) for answer in answers[1:]], "store_failed"),
        (lambda answers: [answer.update(timed_out="false") for answer in answers[1:]], "deadline"),
        (lambda answers: [answer.pop("timed_out") for answer in answers[1:]], "store_reply_invalid"),
    ],
)
def test_answers_that_cannot_be_right(index: Index, change: Callable[[Any], Any], code: str) -> None:
    index.instead_of_legs(change)
    refused(code, index.search)


def test_hits_of_another_index_are_refused(index: Index) -> None:
    """A generation of yesterday, or another tenant's, behind the same alias; by each way that hits come in."""
    index.instead_of_legs(lambda answers: [hit.update(_index="another") for hit in answers[2]["hits"]["hits"]])
    refused("store_mixed", index.search)

    def other(_: Handler, raw: bytes) -> Any:
        reply = index.answer("POST", "", "/_msearch", raw)
        for hit in [hit for answer in reply["responses"][1:] for hit in answer["hits"]["hits"]]:
            hit["_index"] = "another"
        return reply

    index.instead["_msearch"] = other
    name = index.rows[0]["id"]
    for run in (
        lambda: index.store.load(corpus.TENANT, [name, index.rows[1]["id"]], VISIBLE, deadline_s=2.0),
        lambda: index.store.vectors(corpus.TENANT, [name, index.rows[1]["id"]], VISIBLE, deadline_s=2.0),
        lambda: index.store.siblings(corpus.TENANT, "s/a", 0, 1, VISIBLE, deadline_s=2.0),
        lambda: index.store.admitted(corpus.TENANT, VISIBLE),
        lambda: index.store.admitted_labels(corpus.TENANT, VISIBLE, deadline_s=2.0),
    ):
        refused("store_mixed", run)


def test_an_alias_of_two_indices_is_refused(index: Index) -> None:
    index.instead["/_alias/"] = lambda *_: {index.name: {}, "another": {}}
    refused("store_mixed", lambda: index.store.generation(corpus.TENANT))
    refused("store_mixed", index.put)


def test_a_moment_that_lacks_a_shard_is_no_list(index: Index) -> None:
    """What a search opens over the shards that were there says afterwards that nothing failed."""
    index.instead["point_in_time"] = lambda *_: {"pit_id": "x", "_shards": {"total": 2, "successful": 1, "failed": 1}}
    refused("store_unavailable", lambda: list(index.store.documents(corpus.TENANT)))
    assert any("allow_partial_pit_creation=false" in path for _, path in index.asked)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 600) | st.floats() | st.sampled_from(["", "x", "meta", "type", "1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "responses",
                    "hits",
                    "_index",
                    "_id",
                    "error",
                    "status",
                    "items",
                    "errors",
                    "docs",
                    "found",
                    "index",
                    "_shards",
                    "total",
                ]
            )
            | st.sampled_from(
                ["successful", "failed", "timed_out", "_source", "type", "root_cause", "failed_shards", "caused_by", "reason"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(JSON)
def test_no_reply_is_a_fault_of_ours(reply: Any) -> None:
    """Every reader takes any JSON: a value, or an error of ours that shows nothing of it."""
    entries = [mapping.write_entry("x", "x", "{}")]
    for read in (
        replies.check_answer,
        replies.check_shards,
        replies.check_whole,
        replies.check_done,
        replies.check_copied,
        replies.kind_of,
        replies.is_absent,
        lambda reply: replies.answers_of(reply, 1),
        lambda reply: replies.hits_of(replies.object_of(reply), "x", 2, fields=("id",)),
        lambda reply: replies.refused_of(reply, entries, missing_ok=False),
        lambda reply: replies.rows_of(reply, "x", ["x"]),
    ):
        with contextlib.suppress(SourceError):
            read(reply)


# --- writes -----------------------------------------------------------------------------------------------------------


def _items(*statuses: int) -> list[dict[str, Any]]:
    return [{"index": {"_id": "x", "status": status, "error": {"type": "mapper_parsing_exception"}}} for status in statuses]


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ({}, "store_reply_invalid"),
        ([], "store_reply_invalid"),
        ({"errors": False}, "store_reply_invalid"),
        ({"errors": False, "items": []}, "store_reply_invalid"),
        ({"errors": "false", "items": []}, "store_reply_invalid"),
        ({"errors": True, "items": _items(429)}, "store_reply_invalid"),
        ({"errors": True, "items": _items(400, 400, 400, 400)}, "store_reply_invalid"),
        ({"error": {"type": "security_exception"}, "status": 403}, "store_denied"),
    ],
)
def test_a_bulk_that_was_not_done(index: Index, reply: Any, code: str) -> None:
    """Each entry is answered by its name, or the write is not believed."""
    index.instead["_bulk"] = lambda *_: (200, reply)
    refused(code, index.put)


@pytest.mark.parametrize("change", ["status", "name", "operation", "order", "errors"])
def test_a_bulk_of_other_entries(index: Index, change: str) -> None:
    def other(_: Handler, raw: bytes) -> Any:
        reply = index.answer("POST", "", "/_bulk", raw)
        first = reply["items"][0]["index"]
        if change == "status":
            first["status"] = "201"
        elif change == "name":
            first["_id"] = "another"
        elif change == "operation":
            reply["items"][0] = {"delete": first}
        elif change == "order":
            reply["items"].reverse()
        else:
            reply["errors"] = True
        return reply

    index.instead["_bulk"] = other
    refused("store_reply_invalid", index.put)


def test_entries_that_are_read_are_those_that_were_asked_for(index: Index) -> None:
    row = {"found": True, "_source": {"source": "s", "digest": "d", "members": ""}}
    for docs in ([], [{"_id": "x", **row}] * 2, [{"_index": index.name, "_id": "x", **row}] * 2):
        index.instead["_mget"] = lambda *_, docs=docs: {"docs": docs}
        refused("store_reply_invalid", index.put)


def test_a_lost_answer_of_the_own_entry(index: Index) -> None:
    """It was written: nobody else did it, and it is not written twice."""
    lost: list[int] = []

    def own(handler: Handler, raw: bytes) -> Any:
        reply = index.own_entry(handler.command, handler.path, raw)
        if handler.command == "PUT" and not lost:
            lost.append(1)
            handler.break_off()
            return None
        return reply

    index.instead["/_doc/meta"] = own
    index.put()
    assert lost
    assert sum(method == "PUT" for method, path in index.asked if "/_doc/meta" in path) == index.seq - 1


def test_an_own_entry_that_did_not_arrive_is_sent_again(index: Index) -> None:
    lost: list[int] = []

    def own(handler: Handler, raw: bytes) -> Any:
        if handler.command == "PUT" and len(lost) < 2:
            lost.append(1)
            return 503, {}
        return index.own_entry(handler.command, handler.path, raw)

    index.instead["/_doc/meta"] = own
    index.put()
    assert sum(method == "PUT" for method, path in index.asked if "/_doc/meta" in path) == index.seq - 1 + len(lost)


def test_an_own_entry_that_a_busy_node_rejects_is_sent_until_it_is_taken(index: Index) -> None:
    """A rejected write was not done, so an index run waits as it does with chunks."""
    rejected: list[int] = []

    def own(handler: Handler, raw: bytes) -> Any:
        if handler.command == "PUT" and len(rejected) < 3:
            rejected.append(1)
            return 429, {"error": {"type": "rejected_execution_exception"}}
        return index.own_entry(handler.command, handler.path, raw)

    index.instead["/_doc/meta"] = own
    index.put()
    assert len(rejected) == 3  # one more than what fails otherwise


@pytest.mark.parametrize("broken", [True, False])
def test_an_own_entry_that_somebody_else_wrote(index: Index, broken: bool) -> None:
    """Also where our answer was lost: what is there is compared, and it is not ours."""

    def own(handler: Handler, raw: bytes) -> Any:
        if handler.command == "GET":
            return index.own_entry("GET", handler.path, raw)
        index.seq, index.mark = index.seq + 1, "another"
        if broken:
            handler.break_off()
            return None
        return 409, {"error": {"type": "version_conflict_engine_exception"}}

    index.instead["/_doc/meta"] = own
    refused("store_busy", index.put)
    assert sum(method == "PUT" for method, path in index.asked if "/_doc/meta" in path) == 1


@pytest.mark.parametrize("status", [429, 503, 0])
def test_a_copy_is_begun_once(index: Index, status: int) -> None:
    """A second one would run beside the first."""

    def copy(handler: Handler, _: bytes) -> Any:
        if not status:
            handler.break_off()
            return None
        return status, {"error": {"type": "x"}}

    index.instead["_reindex"] = copy
    with pytest.raises(SourceError):
        index.store.begin_generation(corpus.TENANT, keep_sources=["s"])
    assert sum("_reindex" in path for _, path in index.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        {"failures": [], "timed_out": False},
        {},
        {"failures": [], "timed_out": False, "version_conflicts": 0, "total": 2, "created": 1},
    ],
)
def test_a_copy_that_is_not_whole(index: Index, reply: Any) -> None:
    index.instead["_reindex"] = lambda *_: reply
    with pytest.raises(SourceError, match=r"store_(reply_invalid|failed)"):
        index.store.begin_generation(corpus.TENANT, keep_sources=["s"])


def test_a_switch_whose_answer_was_lost(index: Index) -> None:
    """The alias says which one it was."""
    target, held = f"{index.name[:-1]}2", {"index": index.name}

    def switch(handler: Handler, _: bytes) -> None:
        held["index"] = target
        handler.break_off()

    index.instead["/_aliases"] = switch
    index.instead["/_alias/"] = lambda *_: {held["index"]: {}}
    index.store._partitions.point(corpus.TENANT, target, index.name)
    assert sum(path == "/_aliases" for _, path in index.asked) == 1
    held["index"], index.instead["/_aliases"] = "a third", lambda *_: (404, {"error": {"type": "aliases_not_found_exception"}})
    refused("store_busy", lambda: index.store._partitions.point(corpus.TENANT, target, index.name))


def test_a_change_that_not_all_nodes_took(index: Index) -> None:
    index.instead["/_mapping"] = lambda *_: {"acknowledged": False}
    index.shapes = {}
    refused("store_unavailable", index.put)
