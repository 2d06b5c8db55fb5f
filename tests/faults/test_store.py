"""The document store when the machine fails it: no torn document, nothing lost, a clear error, and nobody sees more."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from connectors import sqlite_documents
from connectors.sqlite_documents import SqliteDocuments
from router.domain import Entity, Found, Search
from router.errors import SourceError
from router.filters import ALWAYS, Eq, Or
from tests.conformance import corpus, suite
from tests.conformance.corpus import ENTITY, TENANT, document, examples, labels
from tests.conformance.labs import SqliteLab

ROOT = Path(__file__).parents[2]
CHUNKS = [f"s/{at}#{part}" for at in range(5) for part in range(3)]


def generation_of(version: int) -> list[Any]:
    """Five documents of three chunks that all say one version, in text and label."""
    return [document(str(at), labels(rank=version), *(f"v{version} part {part}" for part in range(3))) for at in range(5)]


def versions(store: SqliteDocuments) -> set[tuple[int, str]]:
    """(label, text's version) of every chunk, in one call."""
    found = store.load(TENANT, CHUNKS, ALWAYS, deadline_s=30)
    assert len(found) == len(CHUNKS)
    return {(int(item.labels["rank"]), item.chunk.text.split()[1]) for item in found}  # type: ignore[arg-type]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[SqliteLab]:
    opened = SqliteLab(tmp_path)
    yield opened
    opened.close()


# --- killed -----------------------------------------------------------------------------------------------------------

KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
from connectors.sqlite_documents import SqliteDocuments
from tests.conformance.corpus import ENTITY, TENANT
from tests.conformance.suite import put
from tests.faults.test_store import generation_of, versions

folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
random.seed(5)
version = 0
for _ in range(rounds):
    seen, told = os.pipe()
    child = os.fork()
    if child == 0:
        store = SqliteDocuments(folder, lambda: ENTITY)
        while True:
            version += 1
            put(store, generation_of(version))
            os.write(told, version.to_bytes(4, "big"))
    os.close(told)
    acknowledged = int.from_bytes(os.read(seen, 4), "big")
    time.sleep(random.random() * 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(seen, 4):
        acknowledged = int.from_bytes(more, "big")
    os.close(seen)
    store = SqliteDocuments(folder, lambda: ENTITY)
    held = sorted(versions(store))
    print(json.dumps([acknowledged, held, store.verify(TENANT)]), flush=True)
    version = held[0][0]
    store.close()
"""


def run(code: str, *arguments: object, timeout_s: float = 120) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_kill_in_the_middle_of_put(tmp_path: Path) -> None:
    """Twenty kills: every document whole, all of one transaction or of the next, and nothing acknowledged is lost."""
    rounds = run(KILLED, tmp_path / "store", examples(20))
    assert len(rounds) == examples(20)
    for acknowledged, held, faults in rounds:
        assert len(held) == 1, held
        assert held[0][1] == f"v{held[0][0]}"
        assert held[0][0] in (acknowledged, acknowledged + 1)
        assert faults == []


# --- full -------------------------------------------------------------------------------------------------------------


def _many(count: int) -> list[Any]:
    return [document(f"new{at}", labels(), f"{at} " * 500) for at in range(count)]


def _check_intact(lab: SqliteLab) -> None:
    for store in (lab.store, lab.reopened()):
        assert versions(store) == {(1, "v1")}
        assert store.verify(TENANT) == []
        assert not [name for name in store.admitted(TENANT, ALWAYS) if "new" in name]


def test_full_disk(lab: SqliteLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """`store_full`, the old content intact, and room again makes the next write good."""
    suite.put(lab.store, generation_of(1))
    connect = sqlite_documents._connect

    def small(path: Path, busy_s: float, *, write: bool) -> apsw.Connection:
        con = connect(path, busy_s, write=write)
        con.execute("PRAGMA max_page_count = 60")
        return con

    monkeypatch.setattr(sqlite_documents, "_connect", small)
    for call in (
        lambda: suite.put(lab.store, _many(200)),
        lambda: lab.store.relabel(TENANT, {f"s/{at}": labels(rank=1, region="x" * 400_000) for at in range(5)}),
    ):
        with pytest.raises(SourceError, match="store_full"):
            call()
        _check_intact(lab)
    monkeypatch.setattr(sqlite_documents, "_connect", connect)
    suite.put(lab.store, _many(3))
    assert len(lab.store.admitted(TENANT, ALWAYS)) == 8


def test_a_limit_on_file_sizes(lab: SqliteLab) -> None:
    """The same where the system refuses the write instead of the engine."""
    suite.put(lab.store, generation_of(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, before[1]))
        for _ in range(2):
            with pytest.raises(SourceError, match="store_full"):
                suite.put(lab.store, _many(400))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    _check_intact(lab)
    suite.put(lab.store, _many(400))
    assert lab.store.verify(TENANT) == []


# --- locked -----------------------------------------------------------------------------------------------------------


def _took_s(call: Any, code: str) -> float:
    start = time.monotonic()
    with pytest.raises(SourceError, match=code) as caught:
        call()
    assert caught.value.retryable
    return time.monotonic() - start


def test_a_locked_file(lab: SqliteLab) -> None:
    """A writer waits its bounded time for another writer; readers go on; then all is as before."""
    suite.put(lab.store, generation_of(1))
    other = apsw.Connection(str(lab.current(TENANT)))
    other.execute("BEGIN IMMEDIATE")
    store = SqliteDocuments(lab.root / "store", lambda: ENTITY, busy_s=0.3)
    for call in (
        lambda: suite.put(store, generation_of(2)),
        lambda: store.relabel(TENANT, {"s/0": labels()}),
        lambda: store.delete(TENANT, ["s/0"]),
        lambda: store.forget(TENANT, ["s/0"]),
    ):
        assert 0.2 < _took_s(call, "store_busy") < 3
    assert versions(store) == {(1, "v1")}
    other.execute("ROLLBACK")
    suite.put(store, generation_of(2))
    assert versions(lab.store) == {(2, "v2")}
    store.close()


def test_a_file_locked_against_readers(lab: SqliteLab) -> None:
    """A reader waits no longer than its own deadline, whatever the store's patience is."""
    suite.put(lab.store, generation_of(1))
    lab.close()
    other = apsw.Connection(str(lab.current(TENANT)))
    other.execute("PRAGMA journal_mode = DELETE").fetchall()
    other.execute("BEGIN EXCLUSIVE")
    store = SqliteDocuments(lab.root / "store", lambda: ENTITY, busy_s=30)
    assert _took_s(lambda: suite.ask(store, ALWAYS, deadline_s=0.3), "store_busy") < 3
    assert _took_s(lambda: store.load(TENANT, CHUNKS, ALWAYS, deadline_s=0.3), "store_busy") < 3
    other.execute("ROLLBACK")
    other.close()
    assert versions(store) == {(1, "v1")}
    store.close()


def test_a_reader_that_holds_old_text_stops_forgetting(lab: SqliteLab) -> None:
    """`forget` does not claim what it could not do: while an old snapshot is read, the text is still on disk."""
    suite.put(lab.store, [document("0", labels(), "zygomorphic"), document("1", labels())])
    reading = apsw.Connection(str(lab.current(TENANT)))
    reading.execute("BEGIN; SELECT count(*) FROM chunk")
    with pytest.raises(SourceError, match="store_busy"):
        lab.store.forget(TENANT, ["s/0"])
    reading.execute("ROLLBACK")
    lab.store.forget(TENANT, ["s/0"])
    assert b"zygomorph" not in lab.everything(TENANT)


def test_every_connection_has_its_settings(lab: SqliteLab) -> None:
    """Full durability, deleted bytes overwritten, no memory mapping (a corruption bug), no functions called by a foreign schema."""
    suite.put(lab.store, generation_of(1))
    wanted = {"mmap_size": 0, "synchronous": 2, "secure_delete": 1, "trusted_schema": 0, "cache_size": -65536}
    for write in (False, True):
        con = sqlite_documents._connect(lab.current(TENANT), 1.0, write=write)
        assert {name: con.execute(f"PRAGMA {name}").get for name in wanted} == wanted
        assert con.execute("PRAGMA journal_mode").get == "wal"
        con.close()


def test_deleted_text_is_overwritten(lab: SqliteLab) -> None:
    """Replaced and deleted text does not stay in free pages, `forget` or not."""
    suite.put(lab.store, [document("0", labels(), *("zygomorphic petals " * 200 for _ in range(9))), document("1", labels())])
    lab._checkpoint()
    assert b"zygomorph" in lab.everything(TENANT)
    lab.store.delete(TENANT, ["s/0"])
    lab._checkpoint()
    assert b"zygomorph" not in lab.everything(TENANT)


# --- damaged ----------------------------------------------------------------------------------------------------------


def _damage(path: Path, how: str) -> None:
    whole = path.read_bytes()
    match how:
        case "header":
            path.write_bytes(b"\0" * 100 + whole[100:])
        case "middle":
            path.write_bytes(whole[:4096] + random.Random(1).randbytes(len(whole) - 4096))
        case "cut":
            path.write_bytes(whole[: len(whole) // 3])
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
        case "folder":
            path.unlink()
            path.mkdir()


@pytest.mark.parametrize("how", ["header", "middle", "cut", "empty", "gone", "folder"])
def test_a_damaged_file(lab: SqliteLab, how: str) -> None:
    """A `SourceError` from every call, with a way out, and no answer."""
    suite.put(lab.store, generation_of(1))
    lab._checkpoint()
    lab.close()
    for beside in lab.folder(TENANT).glob("*-*m"):
        beside.unlink()
    _damage(lab.current(TENANT), how)
    store = lab.reopened()
    calls = [
        lambda: suite.ask(store, ALWAYS),
        lambda: suite.ask(store, Or((Eq("rank", 1), Eq("rank", 2))), None, corpus.question(1, 0, 0, 0)),
        lambda: store.load(TENANT, CHUNKS, ALWAYS, deadline_s=5),
        lambda: list(store.documents(TENANT)),
        lambda: store.admitted(TENANT, ALWAYS),
        lambda: suite.put(store, [document("new", labels())]),
        lambda: store.delete(TENANT, ["s/0"]),
    ]
    for call in calls[: None if how != "empty" else -2]:
        with pytest.raises(SourceError) as caught:
            call()
        assert caught.value.code in {"store_corrupt", "store_failed", "store_unreadable", "tenant_mismatch"}
        assert caught.value.hint
        assert str(lab.root) not in f"{caught.value} {caught.value.hint}"


def test_a_damaged_pointer(lab: SqliteLab) -> None:
    suite.put(lab.store, generation_of(1))
    pointer = lab.folder(TENANT) / "current"
    for text in (b"\xff\xfe", b"../g-000001", b"", b"g-1; DROP"):
        pointer.write_bytes(text)
        with pytest.raises(SourceError, match="store_corrupt"):
            suite.ask(lab.store, ALWAYS)
        with pytest.raises(SourceError, match="store_corrupt"):
            suite.put(lab.store, generation_of(2))
    pointer.write_bytes(b"g-000001")
    assert versions(lab.store) == {(1, "v1")}


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    store = SqliteDocuments(tmp_path / "store", lambda: ENTITY)
    for call in (lambda: suite.put(store, generation_of(1)), lambda: suite.ask(store, ALWAYS)):
        with pytest.raises(SourceError, match="store_unreadable"):
            call()


def test_bytes_that_are_no_text(lab: SqliteLab) -> None:
    """Damage that SQLite does not see is met where the row is read."""
    suite.put(lab.store, generation_of(1))
    con = apsw.Connection(str(lab.current(TENANT)))
    for change in ("span = 'no json'", "body = CAST(x'ff00fe' AS TEXT)", "heading_path = '{'"):
        con.execute(f"UPDATE chunk SET {change} WHERE rid = 1")
        with pytest.raises(SourceError, match="store_corrupt"):
            lab.store.load(TENANT, CHUNKS, ALWAYS, deadline_s=5)
    con.close()


# --- many at once -----------------------------------------------------------------------------------------------------

READERS = """
import json, sys, threading, time
from pathlib import Path
from connectors.sqlite_documents import SqliteDocuments
from tests.conformance.corpus import ENTITY
from tests.faults.test_store import read_for

store = SqliteDocuments(Path(sys.argv[1]), lambda: ENTITY)
results = []
threads = [threading.Thread(target=read_for, args=(store, float(sys.argv[2]), results)) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps(results))
"""


def read_for(store: SqliteDocuments, seconds: float, results: list[tuple[int, str]]) -> None:
    """Ask until the time is up; (answers, what went wrong)."""
    count, end = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            seen = versions(store)
            assert len(seen) == 1, f"torn: {seen}"
            odd = suite.ask(store, Eq("archived", True), "shared part", corpus.question(1, 0, 0, 0))
            assert odd.admitted == len(odd.candidates), "the count and the hits are of one snapshot"
            assert odd.admitted in (0, len(CHUNKS)), "all labels of one relabelling, or none"
            scores = {(candidate.bm25, candidate.cosine) for candidate in odd.candidates}
            assert len(scores) <= 1, f"scores of two snapshots: {scores}"
            count += 1
        results.append((count, ""))
    except BaseException as error:
        results.append((count, f"{type(error).__name__}: {error}"))


def test_eight_readers_beside_a_writer(tmp_path: Path) -> None:
    """Four threads here and four in another process, while documents are put, relabelled, deleted and switched: no error,
    and every answer of one snapshot."""
    folder, seconds = tmp_path / "store", float(examples(3))
    store = SqliteDocuments(folder, lambda: ENTITY)
    suite.put(store, generation_of(1))
    results: list[tuple[int, str]] = []
    other = subprocess.Popen(
        [sys.executable, "-c", READERS, str(folder), str(seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    threads = [threading.Thread(target=read_for, args=(store, seconds, results)) for _ in range(4)]
    for thread in threads:
        thread.start()
    writes, version, end = 0, 1, time.monotonic() + seconds
    while time.monotonic() < end:
        version += 1
        suite.put(store, generation_of(version))
        store.relabel(TENANT, {f"s/{at}": labels(rank=version, archived=True) for at in range(5)})
        suite.put(store, [document("x", labels(rank=version), "shared part")])
        store.delete(TENANT, ["s/x"])
        if version % 10 == 0:
            store.switch(TENANT, store.begin_generation(TENANT, keep_sources=["s"]))
        writes += 4
    for thread in threads:
        thread.join()
    out, err = other.communicate(timeout=60)
    assert other.returncode == 0, err[-2_000:]
    results += [tuple(result) for result in json.loads(out)]
    assert [wrong for _, wrong in results if wrong] == []
    assert len(results) == 8
    assert sum(count for count, _ in results) > 8
    assert writes > 8
    assert store.verify(TENANT) == []
    store.close()


# --- written by an older version --------------------------------------------------------------------------------------


def test_a_store_of_the_first_schema_is_read_and_brought_up_to_date(lab):
    """Before a document could have two indexes: read as it is, and changed by the first write, which keeps all of it."""
    suite.put(lab.store, [document("a", labels(rank=1), "one", "two"), document("b", labels(rank=2), "three")])
    con = apsw.Connection(str(lab.current(TENANT)))
    con.execute(
        "DROP INDEX document_id; DROP INDEX document_source; ALTER TABLE document RENAME TO new; "
        "CREATE TABLE document(did INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, source TEXT NOT NULL, lid INTEGER NOT NULL) STRICT; "
        "CREATE INDEX document_source ON document(source, id); INSERT INTO document SELECT * FROM new; DROP TABLE new; "
        "ALTER TABLE label DROP COLUMN idx; DROP TABLE entity; ALTER TABLE chunk DROP COLUMN entities; "
        "UPDATE meta SET value = '1' WHERE key = 'schema'"
    )
    con.close()
    before = suite.bits(suite.ask(lab.store, Eq("rank", 1), "one"))
    assert [item.chunk.chunk_id for item in lab.store.siblings(TENANT, "s/a", 0, 9, ALWAYS, deadline_s=9)] == ["s/a#0", "s/a#1"]
    assert [info.chunks for info in lab.store.documents(TENANT)] == [2, 1]
    suite.put(lab.store, [corpus.twinned(document("b", labels(rank=2), "three"), "harrow")])
    assert suite.bits(suite.ask(lab.store, Eq("rank", 1), "one")) == before
    assert suite.hits(suite.ask(lab.store, ALWAYS, "harrow")) == ["s/b"]
    assert [info.chunks for info in lab.store.documents(TENANT)] == [2, 2]
    assert lab.store.verify(TENANT) == []


def test_a_store_of_the_second_schema_knows_no_names_until_it_is_written(lab):
    """Before chunks said what they name: read as it is, and nothing is narrowed or linked by what nobody wrote down."""
    item = document("a", labels(rank=1), "one")
    chunk, vectors = item.chunks[0]
    naming = replace(item, chunks=((replace(chunk, entities=(Entity("code", "inc-2", subject=True),)), vectors),))
    suite.put(lab.store, [item])
    con = apsw.Connection(str(lab.current(TENANT)))
    con.execute("DROP TABLE entity; ALTER TABLE chunk DROP COLUMN entities; UPDATE meta SET value = '2' WHERE key = 'schema'")
    con.close()
    search = Search(TENANT, ALWAYS, "one", None, "", 9, 9.0, entities=frozenset({"inc-2"}))
    assert lab.store.search(search) == Found((), 0)
    assert lab.store.subjects(TENANT, ["inc-2"], ALWAYS, most=9, deadline_s=9) == []
    assert [stored.chunk for stored in lab.store.load(TENANT, ["s/a#0"], ALWAYS, deadline_s=9)] == [chunk]
    suite.put(lab.store, [naming])
    assert [hit.chunk_id for hit in lab.store.search(search).candidates] == ["s/a#0"]
    assert [name for name, _ in lab.store.subjects(TENANT, ["inc-2"], ALWAYS, most=9, deadline_s=9)] == ["inc-2"]
    assert lab.store.verify(TENANT) == []
