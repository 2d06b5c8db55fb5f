"""Three nodes, each shard on two of them: one is killed or falls silent while sixteen ask and one writes.

`POINTSMAN_TEST_OPENSEARCH="$(deploy/dev/opensearch.sh start 3)"`. Figures are printed with `-s`.
"""

from __future__ import annotations

import secrets
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.opensearch_documents import OpenSearchDocuments, Place
from router import decision
from router.app import Router
from router.errors import PointsmanError, SourceError
from router.filters import Eq
from tests.conformance import suite
from tests.conformance.corpus import ENTITY, TENANT, document, labels
from tests.opensearch.opensearch_lab import NODES, call
from tests.opensearch.opensearch_world import WHO, answered, ask, degraded_in, index_all, refused_in, router_on, write_on
from tests.world import ids, write_page

SCRIPT = Path(__file__).parents[2] / "deploy" / "dev" / "opensearch.sh"
ASKERS = 16
DEADLINE_S = 20.0
"""Twice what a question has by default: the nodes share two cores with whoever asks. How long the longest took is printed."""
NOT_SEEN = {"ada": ("hidden", "/board/", "/hr/"), "hal": ("hidden", "/board/"), "max": (), "low": ("/board/", "/hr/", "notes/")}
"""Parts of the names of documents that nobody of that name may see."""
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


def heal() -> float:
    """Seconds until every node runs and every shard has both copies."""
    start = time.monotonic()
    run("start", "3")
    assert ask_any("/_cluster/health?wait_for_status=green&timeout=120s")["status"] == "green"
    return time.monotonic() - start


def manager() -> int:
    """Number of the node that leads."""
    return int(ask_any("/_cat/cluster_manager?format=json")[0]["node"].removeprefix("n"))


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """One world for all: what each test leaves is what the next one finds."""
    assert len(NODES) == 3, 'set POINTSMAN_TEST_OPENSEARCH="$(deploy/dev/opensearch.sh start 3)"'
    heal()
    config = write_on(tmp_path_factory.mktemp("cluster") / "world", NODES, shards=2, replicas=1)
    with router_on(config) as opened:
        index_all(opened)
        heal()
        for _ in range(6):  # whatever node is asked first compiles what it has never run
            expected_of(opened)
        yield opened
        heal()


def expected_of(router: Router) -> dict[str, list[str]]:
    """What a whole cluster answers, with all the time there is."""
    return {person: ids(ask(router, person, deadline_s=60.0)) for person in WHO}


class Askers:
    """Sixteen who ask until told to stop: every answer is compared with the one of a whole cluster, and with its record."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.expected = expected_of(router)
        self.answers, self.longest_s = 0, 0.0
        self.failures: list[str] = []
        self.degraded: Counter[str] = Counter()
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._ask, args=(WHO[at % len(WHO)],)) for at in range(ASKERS)]

    def __enter__(self) -> Askers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, answers: int) -> None:
        """The first ones compile what the nodes have never run."""
        end = time.monotonic() + 60.0
        while self.answers < answers and time.monotonic() < end:
            time.sleep(0.1)

    def _ask(self, person: str) -> None:
        while not self._stop.is_set():
            start = time.monotonic()
            try:
                self._look(person)
            except (PointsmanError, AssertionError) as error:
                self.failures.append(repr(error))
            self.longest_s = max(self.longest_s, time.monotonic() - start)

    def _look(self, person: str) -> None:
        answer = ask(self.router, person, deadline_s=DEADLINE_S)
        found = ids(answer)
        assert not [name for name in found for part in NOT_SEEN[person] if part in name], "widened"
        told = [(entry.stage, entry.reason) for entry in answer.degraded]
        assert degraded_in(answered(self.router, answer.decision_id)) == told, "the record says something else"
        outages = [reason for stage, reason in told if stage != "now"]
        assert outages or found == self.expected[person], "lost or in another order"
        with self._lock:
            self.answers += 1
            self.degraded.update(outages)


@pytest.mark.parametrize("victim", [manager, lambda: manager() % 3 + 1], ids=["the leader", "another"])
def test_a_node_is_killed_while_sixteen_ask(router: Router, victim: Callable[[], int]) -> None:
    """Every question is answered in time by the other two, in full or with what is missing on record; none fails."""
    killed = victim()
    with Askers(router) as asking:
        asking.wait_for(2 * ASKERS)
        before = asking.answers
        run("kill", str(killed))
        time.sleep(8.0)
    whole_s = heal()
    print(
        f"\nnode killed: {asking.answers} answers ({before} before), {len(asking.failures)} failed, "
        f"{sum(asking.degraded.values())} degraded {dict(asking.degraded)}, longest {asking.longest_s:.1f} s, "
        f"whole again {whole_s:.0f} s after the node was started"
    )
    assert before >= ASKERS
    assert asking.answers > before + ASKERS
    assert asking.failures == []
    assert asking.longest_s < DEADLINE_S + 1.0
    assert decision.verify_chain(router.ledger.read("north")).whole
    assert router.store.verify("north") == []


def test_a_node_is_killed_while_one_indexes(router: Router) -> None:
    """A run that meets the kill ends well, or with a code and is finished by the next: nothing lost, nothing under other labels."""
    folder = router.settings.folder
    runs: list[str] = []
    stop = threading.Event()

    def index() -> None:
        version = 0
        while not stop.is_set():
            version += 1
            for number in range(10):
                write_page(
                    folder, f"notes/page-{number}.md", f"# Page {number}\n\nPage {number} of the press, version {version}."
                )
                write_page(folder, f"notes/hidden/page-{number}.md", f"# Hidden {number}\n\nHidden {number}, version {version}.")
            try:
                report = router.index()
                runs.extend(str(source.error.code) for source in report.sources if source.error is not None)
                runs.append("done")
            except SourceError as error:
                runs.append(error.code)

    thread = threading.Thread(target=index)
    thread.start()
    time.sleep(4.0)
    run("kill", str(manager()))
    end = time.monotonic() + 10.0
    while time.monotonic() < end:
        found = ids(ask(router, "ada", "page of the press", deadline_s=DEADLINE_S))
        assert not [name for name in found if "hidden" in name]
    stop.set()
    thread.join()
    whole_s = heal()
    print(f"\nnode killed while indexing: runs {dict(Counter(runs))}, whole again {whole_s:.0f} s after the node was started")
    assert "done" in runs
    assert set(runs) <= {"done", "store_unavailable", "store_unreachable", "store_busy", "deadline"}
    index_all(router)
    assert router.store.verify("north") == []
    assert [finding for finding in router.index_verify() if finding.kind != "note"] == []
    held = {info.document_id for info in router.store.documents("north")}
    assert {f"notes/page-{at}.md" for at in range(10)} | {f"notes/hidden/page-{at}.md" for at in range(10)} <= held
    answer = ask(router, "ada", "page of the press, version", deadline_s=60.0)
    versions = {passage.text.rsplit("version ", 1)[1] for passage in answer.passages if "version " in passage.text}
    assert len(versions) == 1, "one version of all, the last"
    assert len([name for name in ids(answer) if "page-" in name]) == 10
    assert not [name for name in ids(answer) if "hidden" in name]


@pytest.mark.usefixtures("router")
def test_a_node_is_killed_while_labels_change() -> None:
    """What a change of labels acknowledged holds on every copy; what it did not is done by the next try."""
    prefix = f"labels{secrets.token_hex(6)}"
    lab = OpenSearchDocuments(Place(NODES), lambda: ENTITY, prefix=prefix, shards=2, replicas=1)
    written: list[str] = []
    failed: list[str] = []
    stop = threading.Event()

    def write() -> None:
        at = 0
        while not stop.is_set():
            batch = [document(f"new{at:04}-{part}", labels(rank=5), "one", "two") for part in range(5)]
            try:
                suite.put(lab, batch)
                lab.relabel(TENANT, {item.document_id: labels(rank=6) for item in batch})
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
    heal()
    print(f"\n{len(written)} documents written and relabelled, {len(failed)} writes were tried again")
    assert len(written) > 10
    assert set(lab.admitted(TENANT, Eq("rank", 6))) >= set(written)
    assert not set(lab.admitted(TENANT, Eq("rank", 5))) & set(written)
    assert {info.chunks for info in lab.documents(TENANT) if info.document_id in set(written)} == {2}
    assert lab.verify(TENANT) == []
    lab.close()
    call("DELETE", f"/{prefix}-*")


def test_a_node_falls_silent(router: Router) -> None:
    """Slower than every deadline: right answers, or failures with a code and on record, in time; never a part for the whole."""
    expected = expected_of(router)["ada"]
    silent = manager() % 3 + 1
    outcomes: Counter[str] = Counter()
    run("pause", str(silent))
    try:
        end = time.monotonic() + 12
        while time.monotonic() < end:
            start = time.monotonic()
            try:
                answer = ask(router, "ada", deadline_s=3.0)
                body = answered(router, answer.decision_id)
                told = [entry for entry in degraded_in(body) if entry[0] != "now"]
                assert told or ids(answer) == expected
                assert set(ids(answer)) <= set(expected)
                outcomes["degraded" if told else "answered"] += 1
            except SourceError as error:
                outcomes[refused_in(router, error)] += 1
            assert time.monotonic() - start < 4.0
    finally:
        run("resume", str(silent))
    print(f"\nnode silent: {dict(outcomes)}")
    assert set(outcomes) <= {"answered", "degraded", "deadline", "store_unavailable", "store_unreachable"}
    heal()
    assert expected_of(router)["ada"] == expected


def test_the_last_copy_is_gone(router: Router) -> None:
    """With two of three nodes down there is no quorum: failures with a code and on record, and everything is back when they are."""
    expected = expected_of(router)
    leader = manager()
    for node in (1, 2, 3):
        if node != leader:
            run("kill", str(node))
    codes = Counter(_outcome(router, person, expected[person]) for person in WHO)
    with pytest.raises(SourceError) as caught:
        write_page(router.settings.folder, "notes/late.md", "# Late\n\nWritten while nobody could take it.")
        router.index()
    whole_s = heal()
    print(f"\nno quorum: asks {dict(codes)}, index {caught.value.code}, whole again {whole_s:.0f} s after the nodes were started")
    assert set(codes) <= {"answered", "degraded", "store_unavailable", "deadline", "store_unreachable"}
    assert caught.value.code in {"store_unavailable", "store_unreachable", "deadline"}
    assert expected_of(router) == expected
    index_all(router)
    assert "notes/late.md" in ids(ask(router, "ada", "written while nobody could take it", deadline_s=60.0))
    assert router.store.verify("north") == []


def _outcome(router: Router, person: str, expected: list[str]) -> str:
    """What became of a question, which its record says too."""
    try:
        answer = ask(router, person, deadline_s=4.0)
    except SourceError as error:
        return refused_in(router, error)
    told = [entry for entry in degraded_in(answered(router, answer.decision_id)) if entry[0] != "now"]
    assert set(ids(answer)) <= set(expected)
    assert told or ids(answer) == expected
    return "degraded" if told else "answered"
