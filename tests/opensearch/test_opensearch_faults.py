"""What a node does when it is full, busy, slow, red or not to be trusted: the code, nothing lost and nothing widened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from connectors.opensearch_documents import OpenSearchDocuments, Place, search, wire
from router.errors import SourceError
from router.filters import ALWAYS, Eq
from tests.conformance import corpus, suite
from tests.conformance.corpus import ENTITY, TENANT, document, labels
from tests.opensearch.opensearch_lab import OpenSearchLab, call, lab_of
from tests.opensearch.tls_front import Front, issue, make_authority


@pytest.fixture
def lab() -> Iterator[OpenSearchLab]:
    with lab_of() as opened:
        suite.put(opened.store, [document("a", labels(rank=1)), document("b", labels(rank=2))])
        assert opened.store.admitted(TENANT, Eq("rank", 1)) == ["s/a"]
        yield opened


def failing(code: str, run: Any, *, retryable: bool | None = None) -> None:
    with pytest.raises(SourceError) as caught:
        run()
    assert caught.value.code == code
    assert retryable is None or caught.value.retryable is retryable


def test_read_only_index(lab: OpenSearchLab) -> None:
    """As at the flood stage of a full disk: no write is taken or believed, reading goes on, and afterwards everything does."""
    block = {"index.blocks.read_only_allow_delete": True}
    call("PUT", f"/{lab.current(TENANT)}/_settings", block)
    failing("store_read_only", lambda: suite.put(lab.store, [document("c", labels(rank=1))]))
    failing("store_read_only", lambda: lab.store.relabel(TENANT, {"s/a": labels(rank=2)}))
    assert lab.store.admitted(TENANT, Eq("rank", 1)) == ["s/a"]
    call("PUT", f"/{lab.current(TENANT)}/_settings", {"index.blocks.read_only_allow_delete": None})
    assert lab.store.relabel(TENANT, {"s/a": labels(rank=2)}) == 1
    assert lab.store.admitted(TENANT, Eq("rank", 1)) == []
    assert lab.store.verify(TENANT) == []


def test_red_index(lab: OpenSearchLab) -> None:
    """Without its primary shard an index is not empty: every call fails, and says so."""
    index, lost = lab.current(TENANT), f"{lab.alias(TENANT)}-g-000002"
    held = call("GET", f"/{index}")[index]
    settings = {name: held["settings"]["index"][name] for name in ("knn", "similarity", "analysis")}
    nowhere = {
        **settings,
        "knn.derived_source.enabled": False,
        "number_of_replicas": 0,
        "routing.allocation.require._name": "nobody",
    }
    call("PUT", f"/{lost}?wait_for_active_shards=0", {"settings": {"index": nowhere}, "mappings": held["mappings"]})
    _point(lab, index, lost)
    for run in (
        lambda: suite.ask(lab.store, ALWAYS, "shared", corpus.question(1, 0, 0, 0), deadline_s=5.0),
        lambda: lab.store.load(TENANT, ["s/a#0"], ALWAYS, deadline_s=5.0),
        lambda: lab.store.admitted(TENANT, ALWAYS),
        lambda: list(lab.store.documents(TENANT)),
        lambda: lab.store.version(TENANT),
        lambda: lab.store.verify(TENANT),
    ):
        failing("store_unavailable", run, retryable=True)
    _point(lab, lost, index)
    assert lab.store.admitted(TENANT, Eq("rank", 1)) == ["s/a"]


def _point(lab: OpenSearchLab, old: str, new: str) -> None:
    moves = [{kind: {"index": index, "alias": lab.alias(TENANT)}} for kind, index in (("remove", old), ("add", new))]
    call("POST", "/_aliases", {"actions": moves})


def test_circuit_breaker(lab: OpenSearchLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is too large for the node's memory is refused; in halves it is taken, and nothing of it is lost."""
    monkeypatch.setattr(wire, "LEAST_ENTRIES", 2)
    many = [document(f"{at:03}", labels(rank=1), "word " * 300) for at in range(60)]
    with _breaker("30kb"):
        suite.put(lab.store, many)
    assert len(lab.store.admitted(TENANT, Eq("rank", 1))) == 61
    assert lab.store.verify(TENANT) == []
    monkeypatch.setattr(wire, "PATIENCE_S", 0.5)
    with _breaker("1kb"):
        failing("store_busy", lambda: suite.put(lab.store, [document("big", labels(), "word " * 3000)]), retryable=True)
    suite.put(lab.store, [document("big", labels(), "word " * 3000)])
    assert lab.store.verify(TENANT) == []


@contextmanager
def _breaker(limit: str | None) -> Iterator[None]:
    name = "network.breaker.inflight_requests.limit"
    call("PUT", "/_cluster/settings", {"transient": {name: limit}})
    try:
        yield
    finally:
        call("PUT", "/_cluster/settings", {"transient": {name: None}})


def test_slow_node(lab: OpenSearchLab) -> None:
    """The deadline holds, and nobody takes silence for an empty answer."""
    lab.door.delay_s = 1.0
    start = time.monotonic()
    failing("deadline", lambda: suite.ask(lab.store, ALWAYS, "shared", deadline_s=0.4), retryable=True)
    failing("deadline", lambda: lab.store.load(TENANT, ["s/a#0"], ALWAYS, deadline_s=0.4), retryable=True)
    assert time.monotonic() - start < 2.0
    lab.door.delay_s = 0.0
    assert suite.hits(suite.ask(lab.store, Eq("rank", 1))) == ["s/a"]


def test_one_leg_fails(lab: OpenSearchLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the engine could not finish is no part of the answer; the other leg is, under the same filter and with its reason."""
    search_many = lab.store._wire.search_many

    def broken(index: str, parts: Any, **more: Any) -> Any:
        spoilt = [part.replace('"cosinesimil"', '"nonsense"') for part in parts]
        return search_many(index, spoilt, **more)

    monkeypatch.setattr(lab.store._wire, "search_many", broken)
    found = suite.ask(lab.store, Eq("rank", 1), "shared", corpus.question(1, 0, 0, 0))
    assert suite.hits(found) == ["s/a"]
    assert [(leg, code) for leg, code in found.failed if code] == [("dense", "store_failed")]
    assert {candidate.legs for candidate in found.candidates} == {("lexical",)}
    failing("store_failed", lambda: suite.ask(lab.store, Eq("rank", 1), None, corpus.question(1, 0, 0, 0)))


def test_a_search_without_its_filter_is_not_sent(lab: OpenSearchLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that was built wrongly does not leave; one that was built rightly says so for the record."""
    assert suite.ask(lab.store, Eq("rank", 1), "shared", corpus.question(1, 0, 0, 0)).proof == (
        "filter sent with count, dense, lexical"
    )
    sent = lab.door.sent_bytes
    monkeypatch.setattr(search, "admitted_chunks", lambda *_: '{"match_all":{}}')
    failing("filter_missing", lambda: suite.ask(lab.store, Eq("rank", 1), "shared"))
    assert lab.door.sent_bytes == sent


def test_mapping_conflict(lab: OpenSearchLab) -> None:
    """A field that somebody mapped as another type: the write is refused whole, and no document is seen under a wrong label."""
    properties = {"l": {"properties": {"s_region": {"type": "long"}}}}
    call("PUT", f"/{lab.current(TENANT)}/_mapping", {"properties": properties})
    failing("store_failed", lambda: suite.put(lab.store, [document("c", labels(region="north", rank=1))]))
    failing("store_failed", lambda: lab.store.relabel(TENANT, {"s/a": labels(region="north", rank=2)}))
    assert lab.store.admitted(TENANT, Eq("rank", 1)) == ["s/a"]
    assert lab.store.verify(TENANT) == []


def test_an_index_that_vanishes(lab: OpenSearchLab) -> None:
    call("DELETE", f"/{lab.current(TENANT)}")
    failing("store_missing", lambda: suite.ask(lab.store, ALWAYS))
    assert lab.store.admitted(TENANT, ALWAYS) == []


def test_certificates_and_credentials(lab: OpenSearchLab, tmp_path: Path) -> None:
    """The right ones work. To a node that is not vouched for nothing is said; a password that expired is a code of its own."""
    ours, theirs = make_authority(tmp_path, "ours"), make_authority(tmp_path, "theirs")
    front = Front(issue(tmp_path, "node", ours), "ada", "right")

    def ask(**more: Any) -> list[str]:
        place = Place((front.address,), **{"username": "ada", "password": "right", "ca": str(ours[0]), **more})
        store = OpenSearchDocuments(place, lambda: ENTITY, prefix=lab.prefix, wait_s=5.0)
        try:
            return store.admitted(TENANT, Eq("rank", 1))
        finally:
            store.close()

    assert ask() == ["s/a"]
    failing("store_denied", lambda: ask(password="expired"), retryable=False)
    failing("store_denied", lambda: ask(username=None, password=None))
    heard = front.heard
    failing("store_untrusted", lambda: ask(ca=str(theirs[0])))
    failing("store_untrusted", lambda: ask(ca=None))
    assert front.heard == heard, "no credential was sent to it"
    front.close()
    mutual = Front(issue(tmp_path, "other", ours), "ada", "right", ca=ours[0])
    place = Place((mutual.address,), "ada", "right", str(ours[0]), client_cert=str(issue(tmp_path, "client", ours)))
    store = OpenSearchDocuments(place, lambda: ENTITY, prefix=lab.prefix)
    assert store.admitted(TENANT, Eq("rank", 1)) == ["s/a"]
    store.close()
    mutual.close()
