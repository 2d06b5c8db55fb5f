"""What OpenSearch does that a connector must know of, each shown on the engine, and that the store is not caught by it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from connectors.opensearch_documents.lowering import lower_filter
from router.errors import SourceError
from router.filters import ALWAYS, And, Eq, Field, Gt, Le, Not, Overlaps
from tests.conformance import corpus, suite
from tests.conformance.corpus import ENTITY, TENANT, document, labels
from tests.opensearch.opensearch_lab import OpenSearchLab, call, lab_of


@pytest.fixture
def lab() -> Iterator[OpenSearchLab]:
    with lab_of() as opened:
        yield opened


def raw(lab: OpenSearchLab, query: dict[str, Any], **more: Any) -> list[str]:
    found = call("POST", f"/{lab.current(TENANT)}/_search", {"query": query, "size": 1000, "_source": ["id"], **more})
    return sorted(hit["_source"].get("id", "") for hit in found["hits"]["hits"])


def test_trap_empty_should_matches_all_on_the_engine(lab: OpenSearchLab) -> None:
    suite.put(lab.store, [document("a", labels())])
    lab.store.admitted(TENANT, ALWAYS)
    for wide in ({"bool": {"should": [], "minimum_should_match": 1}}, {"bool": {}}, {"bool": {"filter": []}}):
        assert raw(lab, wide) == ["", "s/a", "s/a#0"], "the engine reads it as everything"


def _crowd() -> list[Any]:
    near = [document(f"f{at:04}", labels(rank=0), vectors=[(1.0, 0.001 * at, 0.0, 0.0)]) for at in range(400)]
    return [*near, *(document(f"z{at}", labels(rank=1), vectors=[(-1.0, 0.1 * at, 0.0, 0.0)]) for at in range(5))]


def test_trap_post_filter_loses_hits() -> None:
    """Beside the `knn` clause a filter leaves what the nearest had; inside it every admitted chunk is found, by graph too."""
    with lab_of(exact_below=0) as lab:
        suite.put(lab.store, _crowd())
        found = suite.ask(lab.store, Eq("rank", 1), None, corpus.question(1, 0, 0, 0), limit=5)
        assert suite.hits(found) == [f"s/z{at}" for at in range(5)]
        knn = {"knn": {"v": {"vector": [1.0, 0.0, 0.0, 0.0], "k": 5}}}
        beside = {"bool": {"must": [knn], "filter": [lower_filter(Eq("rank", 1), ENTITY.fields)]}}
        assert raw(lab, beside) == []


@pytest.mark.parametrize("exact_below", [0, 100_000], ids=["by graph", "each measured"])
def test_the_filter_is_in_the_plan(exact_below: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the engine explains the queries that were sent: inside the k-NN clause, as a filter clause, and in the exact one."""
    with lab_of(exact_below=exact_below) as lab:
        suite.put(lab.store, _crowd())
        sent: list[str] = []
        search_many = lab.store._wire.search_many

        def spy(index: str, parts: Sequence[str], **more: Any) -> Any:
            sent.extend(parts)
            return search_many(index, parts, **more)

        monkeypatch.setattr(lab.store._wire, "search_many", spy)
        suite.ask(lab.store, Eq("rank", 1), "shared", corpus.question(1, 0, 0, 0), limit=5)
        legs = [json.loads(part)["query"] for part in sent if '"sort"' in part]
        assert len(legs) == 2
        for query in legs:
            told = call("POST", f"/{lab.current(TENANT)}/_validate/query?explain=true", {"query": query})
            assert told["valid"]
            assert "l.n_rank:[1 TO 1]" in told["explanations"][0]["explanation"], told


def test_trap_by_query_sees_refreshed_only(lab: OpenSearchLab) -> None:
    """What was written a moment ago is removed and relabelled all the same: by id."""
    call("PUT", f"/{lab.prefix}-probe", {"settings": {"refresh_interval": "60s", "number_of_replicas": 0}})
    call("POST", f"/{lab.prefix}-probe/_doc/1", {"a": "x"})
    missed = call("POST", f"/{lab.prefix}-probe/_delete_by_query", {"query": {"match_all": {}}})
    assert missed["deleted"] == 0, "the engine does not see it"
    suite.put(lab.store, [document("keep", labels())])
    call("PUT", f"/{lab.current(TENANT)}/_settings", {"index": {"refresh_interval": "60s"}})
    suite.put(lab.store, [document("a", labels(rank=1)), document("b", labels(rank=1))])
    assert lab.store.delete(TENANT, ["s/a"]) == 1
    suite.put(lab.store, [document("c", labels(rank=1))])
    assert lab.store.relabel(TENANT, {"s/c": labels(rank=2)}) == 1
    other = lab.reopened()
    assert other.admitted(TENANT, Eq("rank", 1)) == ["s/b"]
    assert suite.hits(suite.ask(other, Eq("rank", 2))) == ["s/c"]


def test_trap_derived_source_is_refused(lab: OpenSearchLab) -> None:
    """An index that was made with it on is not read and not written to, whoever made it."""
    suite.put(lab.store, [document("a", labels())])
    index = lab.current(TENANT)
    held = call("GET", f"/{index}")[index]
    kept = {name: held["settings"]["index"][name] for name in ("similarity", "analysis")}
    meta = call("GET", f"/{index}/_doc/meta?routing=meta")["_source"]
    call("DELETE", f"/{index}")
    settings = {"index": {**kept, "knn": True, "knn.derived_source.enabled": True, "number_of_replicas": 0}}
    call("PUT", f"/{index}", {"settings": settings, "mappings": held["mappings"], "aliases": {lab.alias(TENANT): {}}})
    call("PUT", f"/{index}/_doc/meta?routing=meta&refresh=true", meta)
    fresh = lab.reopened()
    for refused in (lambda: suite.ask(fresh, ALWAYS), lambda: suite.put(fresh, [document("b", labels())])):
        with pytest.raises(SourceError, match="store_unsuitable"):
            refused()


def test_trap_reading_all_leaves_labels_changeable(lab: OpenSearchLab) -> None:
    """With derived source on, labels could not be changed after any scroll: here they can, and vectors stay."""
    documents = [document(f"{at:03}", labels(rank=1), vectors=[(1.0, 0.1 * at, 0.0, 0.0)]) for at in range(60)]
    suite.put(lab.store, documents)
    lab.store.admitted(TENANT, ALWAYS)
    index = lab.current(TENANT)
    found = call("POST", f"/{index}/_search?scroll=1m", {"size": 10})
    while found["hits"]["hits"]:
        found = call("POST", "/_search/scroll", {"scroll": "1m", "scroll_id": found["_scroll_id"]})
    call("POST", f"/{index}/_update_by_query?refresh=true", {"query": {"term": {"kind": "chunk"}}})
    assert lab.store.relabel(TENANT, {item.document_id: labels(rank=2) for item in documents}) == 60
    found = suite.ask(lab.store, Eq("rank", 2), None, corpus.question(1, 0, 0, 0))
    assert len(found.candidates) == 60
    ids = [f"s/{at:03}#0" for at in range(60)]
    assert lab.store.vectors(TENANT, ids, ALWAYS, deadline_s=60) == [item.chunks[0][1].vector for item in documents]
    assert lab.store.verify(TENANT) == []


def test_trap_coerced_numbers_are_refused_by_the_index(lab: OpenSearchLab) -> None:
    """Whoever writes past the store: "5" and 1.7 are no numbers, and a field that is not in the mapping is refused."""
    suite.put(lab.store, [document("a", labels(rank=5))])
    index = lab.current(TENANT)
    for wrong in ({"l": {"n_rank": "5"}}, {"l": {"n_rank": 1.7}}, {"l": {"n_more": 1}}, {"more": "x"}):
        with pytest.raises(AssertionError, match=r"mapper_parsing|strict_dynamic"):
            call("POST", f"/{index}/_doc", wrong)


def test_trap_instants_before_1970_are_numbers(lab: OpenSearchLab) -> None:
    """As `date` they would be wrong below zero."""
    instants = (-62_135_596_800_000, -86_400_001, -1, 0, 1, 253_402_300_799_999)
    documents = [document(str(at), labels(rank=value)) for at, value in enumerate(instants)]
    suite.put(lab.store, documents)
    for value in instants:
        for f in (Eq("rank", value), Le("rank", value), Gt("rank", value), Not(Le("rank", value))):
            assert lab.store.admitted(TENANT, f) == corpus.reference(documents, f), f


def test_trap_statistics_of_others(lab: OpenSearchLab) -> None:
    """In one index five hundred documents of others move a score by the engine's own similarity; here they move no bit."""
    seen = document("seen", labels(rank=1), "pump valve")
    suite.put(lab.store, [seen])
    f = Eq("rank", 1)
    before = suite.bits(suite.ask(lab.store, f, "pump"))
    suite.put(lab.store, [document(f"{at}", labels(rank=2), "pump " * 20) for at in range(500)])
    assert suite.bits(suite.ask(lab.store, f, "pump")) == before
    lab.store.delete(TENANT, [f"s/{at}" for at in range(500)])
    assert suite.bits(suite.ask(lab.store, f, "pump")) == before


def test_by_graph_what_is_found_is_admitted() -> None:
    """Above `exact_below` the graph chooses: never more than is admitted, and with small numbers all of it."""
    random_ = random.Random(5)
    documents = [
        document(
            f"{at:03}",
            labels(rank=at % 7, tags=frozenset(random_.sample("abc", 2))),
            vectors=[tuple(random_.gauss(0, 1) for _ in range(4))],
        )
        for at in range(200)
    ]
    with lab_of(exact_below=10) as lab:
        suite.put(lab.store, documents)
        for f in (Eq("rank", 3), And((Gt("rank", 2), Overlaps("tags", frozenset({"a"})))), Not(Eq("rank", 0)), ALWAYS):
            found = suite.ask(lab.store, f, None, corpus.question(1, 0.2, 0.1, 0), limit=1_000)
            assert suite.hits(found) == corpus.reference(documents, f)
            assert {candidate.legs for candidate in found.candidates} == {("dense",)}


def test_a_lost_vector_is_a_fault(lab: OpenSearchLab) -> None:
    """A partial update of somebody else's that drops the vectors is named by `index verify`."""
    suite.put(lab.store, [document("a", labels()), document("b", labels())])
    lab.store.admitted(TENANT, ALWAYS)
    script = {"script": {"source": "ctx._source.remove('v')"}, "query": {"term": {"id": "s/a#0"}}}
    call("POST", f"/{lab.current(TENANT)}/_update_by_query?refresh=true", script)
    [fault] = lab.store.verify(TENANT)
    assert "(1)" in fault


def test_a_half_written_document_is_a_fault(lab: OpenSearchLab) -> None:
    suite.put(lab.store, [document("a", labels(), "one", "two"), document("b", labels())])
    lab.store.admitted(TENANT, ALWAYS)
    call("POST", f"/{lab.current(TENANT)}/_delete_by_query?refresh=true", {"query": {"term": {"id": "s/a#1"}}})
    [fault] = lab.store.verify(TENANT)
    assert "(1)" in fault
    suite.put(lab.store, [document("a", labels(), "one", "two")])
    assert lab.store.verify(TENANT) == []


def test_a_change_of_labels_and_its_version_are_seen_together(lab: OpenSearchLab) -> None:
    """By another process, however seldom the index refreshes: what is kept by version goes when what it holds may no longer be seen."""
    suite.put(lab.store, [document("a", labels(rank=1)), document("b", labels(rank=1))])
    other = lab.reopened()
    versions = [other.version(TENANT)]
    call("PUT", f"/{lab.current(TENANT)}/_settings", {"index": {"refresh_interval": "60s"}})
    lab.store.relabel(TENANT, {"s/a": labels(rank=2)})
    versions.append(other.version(TENANT))
    assert other.admitted(TENANT, Eq("rank", 1)) == ["s/b"]
    lab.store.delete(TENANT, ["s/b"])
    versions.append(other.version(TENANT))
    assert other.admitted(TENANT, Eq("rank", 1)) == []
    assert len(set(versions)) == 3
    assert suite.ask(other, ALWAYS).version == versions[-1] == other.version(TENANT, seen=True)


def test_tenants_are_read_in_the_index(lab: OpenSearchLab) -> None:
    suite.put(lab.store, [document("a", labels())])
    suite.put(lab.store, [document("a", labels())], tenant=corpus.NEIGHBOUR)
    assert lab.store.tenants() == sorted([TENANT, corpus.NEIGHBOUR])
    assert ENTITY.fields["rank"] == Field("long", False)
