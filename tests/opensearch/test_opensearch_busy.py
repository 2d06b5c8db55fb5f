"""A node that takes one search and one write at a time and lets few more wait: real 429s, while sixteen ask and one indexes.

The node is started anew with these limits, and without them afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.app import Router
from router.errors import SourceError
from tests.opensearch.opensearch_lab import NODES, call
from tests.opensearch.opensearch_world import WHO, answered, ask, degraded_in, index_all, refused_in, router_on, write_on
from tests.world import ids, write_page

SCRIPT = Path(__file__).parents[2] / "deploy" / "dev" / "opensearch.sh"
QUEUES = {"search": 6, "write": 1}
"""The parts of one question's request run side by side: alone they must fit."""
NARROW = "\n".join(f"thread_pool.{pool}.size: 1\nthread_pool.{pool}.queue_size: {size}" for pool, size in QUEUES.items())
ASKERS, ASKS = 16, 8
pytestmark = pytest.mark.timeout(900)


@contextmanager
def node_with(settings: str) -> Iterator[None]:
    """Where the node keeps its data goes with it, so no world of another test may be open meanwhile."""
    here = {"PORT": NODES[0].rpartition(":")[2]}
    for words, said in ((("stop",), ""), (("start",), settings)):
        subprocess.run([SCRIPT, *words], check=True, capture_output=True, env={**os.environ, **here, "SETTINGS": said})
    try:
        yield
    finally:
        for words in (("stop",), ("start",)):
            subprocess.run([SCRIPT, *words], check=True, capture_output=True, env={**os.environ, **here})


def _on(folder: Path) -> Path:
    """An index run has patience: it is not a question."""
    return write_on(folder / "world", NODES[:1], wait_s=240.0)


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    with node_with(NARROW), router_on(_on(tmp_path_factory.mktemp("busy"))) as opened:
        index_all(opened)
        yield opened


def test_searches_that_are_rejected(router: Router) -> None:
    """Asked again, then left out or refused, and each is on record; no answer holds less without saying so, and none holds more."""
    expected = {person: ids(ask(router, person, deadline_s=60.0)) for person in WHO}
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []

    def ask_often(person: str) -> None:
        for _ in range(ASKS):
            try:
                answer = ask(router, person)
            except SourceError as error:
                outcomes[refused_in(router, error)] += 1
                continue
            told = [entry for entry in degraded_in(answered(router, answer.decision_id)) if entry[0] != "now"]
            if set(ids(answer)) - set(expected[person]) or (not told and ids(answer) != expected[person]):
                wrong.append(f"{person}: {ids(answer)}")
            outcomes["degraded" if told else "answered"] += 1

    _all([threading.Thread(target=ask_often, args=(WHO[at % len(WHO)],)) for at in range(ASKERS)])
    rejected = call("GET", "/_nodes/stats/thread_pool")["nodes"].popitem()[1]["thread_pool"]["search"]["rejected"]
    print(f"\nbusy node: {dict(outcomes)}, {rejected} searches rejected by the node")
    assert rejected, "the node was never too busy"
    assert not wrong
    assert set(outcomes) <= {"answered", "degraded", "store_busy", "deadline"}
    assert {person: ids(ask(router, person, deadline_s=60.0)) for person in WHO} == expected


def test_writes_that_are_rejected(router: Router) -> None:
    """Sent again until they are taken: an index run among other writers ends whole, only later."""
    for number in range(60):
        write_page(router.settings.folder, f"notes/busy-{number:02}.md", f"# Busy {number}\n\nBusy page {number} of the press.")
    call("PUT", "/noise", {"settings": {"number_of_replicas": 0, "number_of_shards": 8}})
    stop = threading.Event()

    def write() -> None:
        rows = [{"index": {"_index": "noise"}}, {"text": "word " * 2_000}] * 40
        while not stop.is_set():
            _bulk(rows)

    noise = [threading.Thread(target=write) for _ in range(4)]
    for thread in noise:
        thread.start()
    try:
        index_all(router)
    finally:
        stop.set()
        for thread in noise:
            thread.join()
    rejected = call("GET", "/_nodes/stats/thread_pool")["nodes"].popitem()[1]["thread_pool"]["write"]["rejected"]
    print(f"\nbusy node: {rejected} writes rejected by the node")
    assert rejected, "the node was never too busy"
    call("DELETE", "/noise")
    assert router.store.verify("north") == []
    assert [finding for finding in router.index_verify() if finding.kind != "note"] == []
    held = {info.document_id for info in router.store.documents("north")}
    assert {f"notes/busy-{number:02}.md" for number in range(60)} <= held


def _bulk(rows: list[dict[str, object]]) -> None:
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    head = {"content-type": "application/x-ndjson"}
    request = urllib.request.Request(f"{NODES[0]}/_bulk", data=data, method="POST", headers=head)
    try:
        urllib.request.urlopen(request, timeout=60).read()
    except urllib.error.HTTPError as error:
        if error.code != 429:
            raise


def _all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
