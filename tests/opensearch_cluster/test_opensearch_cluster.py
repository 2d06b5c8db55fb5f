"""Three nodes, each shard on two of them: one is killed or falls silent while sixteen ask and one writes.

`POINTSMAN_TEST_OPENSEARCH="$(deploy/dev/opensearch.sh start 3)"`. Figures are printed with `-s`.
"""

from __future__ import annotations

import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.opensearch_documents import OpenSearchDocuments, Place
from router.errors import SourceError
from router.filters import ALWAYS, Eq
from tests.conformance import corpus, suite
from tests.conformance.corpus import ENTITY, TENANT, document, labels
from tests.opensearch.opensearch_lab import NODES, call

SCRIPT = Path(__file__).parents[2] / "deploy" / "dev" / "opensearch.sh"
ASKERS = 16
DEADLINE_S = 10.0
DOCUMENTS = 120
F = Eq("rank", 1)
pytestmark = pytest.mark.timeout(900)


def run(*words: str) -> str:
    return subprocess.run([SCRIPT, *words], check=True, capture_output=True, text=True).stdout


def ask_any(path: str) -> Any:
    """Of whichever node answers."""
    for node in NODES:
        try:
            return call("GET", path, node=node)
        except OSError:
            continue
    raise AssertionError("no node answers")


def manager() -> int:
    """Number of the node that leads."""
    return int(ask_any("/_cat/cluster_manager?format=json")[0]["node"].removeprefix("n"))


@pytest.fixture
def store() -> Iterator[OpenSearchDocuments]:
    assert len(NODES) == 3, 'set POINTSMAN_TEST_OPENSEARCH="$(deploy/dev/opensearch.sh start 3)"'
    run("start", "3")
    prefix = f"cluster{secrets.token_hex(6)}"
    opened = OpenSearchDocuments(Place(NODES), lambda: ENTITY, prefix=prefix, shards=2, replicas=1)
    suite.put(opened, [document(f"{at:03}", labels(rank=at % 2), f"pump {at}") for at in range(DOCUMENTS)])
    assert len(opened.admitted(TENANT, F)) == DOCUMENTS // 2
    ask_any(f"/_cluster/health/{prefix}-*?wait_for_status=green&timeout=120s")
    yield opened
    run("start", "3")
    opened.close()
    call("DELETE", f"/{prefix}-*")


class Askers:
    """Ask until told to stop; what came of it."""

    def __init__(self, store: OpenSearchDocuments) -> None:
        self.store, self.answers, self.failures, self.degraded, self.longest_s = store, 0, [], 0, 0.0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(ASKERS)]

    def __enter__(self) -> Askers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        expected = [f"s/{at:03}" for at in range(1, DOCUMENTS, 2)]
        while not self._stop.is_set():
            start = time.monotonic()
            try:
                found = suite.ask(self.store, F, "pump", corpus.question(1, 0, 0, 0), limit=200, deadline_s=DEADLINE_S)
                self.degraded += bool(found.failed)
                assert suite.hits(found) == expected
                self.answers += 1
            except (SourceError, AssertionError) as error:
                self.failures.append(repr(error))
            self.longest_s = max(self.longest_s, time.monotonic() - start)


@pytest.mark.parametrize("victim", [manager, lambda: manager() % 3 + 1], ids=["the leader", "another"])
def test_a_node_is_killed_while_sixteen_ask(store: OpenSearchDocuments, victim: Callable[[], int]) -> None:
    """Every question is answered in full and in time by the other two."""
    killed = victim()
    with Askers(store) as asking:
        end = time.monotonic() + 60.0
        while asking.answers < ASKERS and time.monotonic() < end:  # the first ones compile what the nodes have never run
            time.sleep(0.1)
        before = asking.answers
        run("kill", str(killed))
        time.sleep(8.0)
    start = time.monotonic()
    run("start", "3")
    ask_any("/_cluster/health?wait_for_status=green&timeout=120s")
    print(
        f"\n{asking.answers} answers ({before} before), {len(asking.failures)} failed, {asking.degraded} degraded, "
        f"longest {asking.longest_s:.1f} s, whole again {time.monotonic() - start:.0f} s after the node was started"
    )
    assert before >= ASKERS
    assert asking.answers > before
    assert asking.failures == []
    assert asking.longest_s < DEADLINE_S + 0.5


def test_a_node_is_killed_while_one_writes(store: OpenSearchDocuments) -> None:
    """What a write acknowledged is there, whole and under its own labels; what it did not is written by the next."""
    written: list[str] = []
    failed: list[str] = []
    stop = threading.Event()

    def write() -> None:
        at = 0
        while not stop.is_set():
            batch = [document(f"new{at:04}-{part}", labels(rank=5), "one", "two") for part in range(5)]
            try:
                suite.put(store, batch)
                store.relabel(TENANT, {item.document_id: labels(rank=6) for item in batch})
                written.extend(item.document_id for item in batch)
            except SourceError as error:
                failed.append(error.code)
                continue  # the same batch again, as the manifest would have it
            at += 1

    thread = threading.Thread(target=write)
    thread.start()
    time.sleep(3.0)
    run("kill", str(manager()))
    time.sleep(8.0)
    stop.set()
    thread.join()
    run("start", "3")
    ask_any("/_cluster/health?wait_for_status=green&timeout=120s")
    print(f"\n{len(written)} documents written and relabelled, {len(failed)} writes were tried again")
    assert len(written) > 10
    assert set(store.admitted(TENANT, Eq("rank", 6))) >= set(written)
    assert not set(store.admitted(TENANT, Eq("rank", 5))) & set(written)
    assert {info.chunks for info in store.documents(TENANT) if info.document_id in set(written)} == {2}
    assert len(suite.ask(store, F).candidates) == DOCUMENTS // 2
    assert store.verify(TENANT) == []


def test_a_node_falls_silent(store: OpenSearchDocuments) -> None:
    """Slower than every deadline: right answers or failures with a code, in time, and never a part for the whole."""
    silent = manager() % 3 + 1
    outcomes: dict[str, int] = {}
    run("pause", str(silent))
    try:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            start = time.monotonic()
            try:
                found = suite.ask(store, F, "pump", limit=200, deadline_s=2.0)
                outcome = "answered"
                assert len(found.candidates) == DOCUMENTS // 2
            except SourceError as error:
                outcome = error.code
            assert time.monotonic() - start < 3.0
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    finally:
        run("resume", str(silent))
    print(f"\n{outcomes}")
    assert set(outcomes) <= {"answered", "deadline", "store_unavailable"}
    ask_any("/_cluster/health?wait_for_status=green&timeout=120s")
    assert len(suite.ask(store, ALWAYS, deadline_s=DEADLINE_S).candidates) == DOCUMENTS


def test_the_last_copy_is_gone(store: OpenSearchDocuments) -> None:
    """With two of three nodes down there is no quorum: failures with a code, and everything is back when they are."""
    leader = manager()
    others = [node for node in (1, 2, 3) if node != leader]
    for node in others:
        run("kill", str(node))
    codes = {
        _code_of(lambda: suite.ask(store, F, "pump", deadline_s=4.0)),
        _code_of(lambda: store.load(TENANT, ["s/001#0"], F, deadline_s=4.0)),
    }
    assert codes <= {"answered", "store_unavailable", "deadline", "store_unreachable", "store_failed"}
    run("start", "3")
    ask_any("/_cluster/health?wait_for_status=green&timeout=120s")
    assert len(suite.ask(store, F, deadline_s=DEADLINE_S).candidates) == DOCUMENTS // 2
    assert store.verify(TENANT) == []


def _code_of(run_: Callable[[], object]) -> str:
    try:
        run_()
    except SourceError as error:
        return error.code
    return "answered"
