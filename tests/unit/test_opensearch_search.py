"""One search as OpenSearch requests, and hits as candidates: without an engine."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from connectors.opensearch_documents import mapping, search
from connectors.opensearch_documents.mapping import Words, read_count, write_counts
from connectors.opensearch_documents.search import (
    Statistics,
    admitted_chunks,
    as_floats,
    count_part,
    dense_part,
    lexical_part,
    read_candidates,
    read_statistics,
)
from tests.conformance import corpus

FILTER = {"term": {"l.n_rank": {"value": 7}}}
TEXT = search.as_text(FILTER)
CHUNKS = admitted_chunks(TEXT, ["s1"], frozenset())
STATISTICS = Statistics(100, 20.0, {"pump": 1.5, "seal": 0.5}, 4.4)


def parts() -> dict[str, dict[str, Any]]:
    made = {
        "count": count_part(CHUNKS, ["pump"], 1000),
        "lexical": lexical_part(CHUNKS, STATISTICS, 5, 1000),
        "exact": dense_part(CHUNKS, [1.0, 0.0], 5, 1000, exact=True),
        "near": dense_part(CHUNKS, [1.0, 0.0], 5, 1000, exact=False),
    }
    return {name: json.loads(text) for name, text in made.items()}


def places(body: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where the filter stands."""
    if body == FILTER:
        yield path
    for key, inner in body.items() if isinstance(body, Mapping) else enumerate(body) if isinstance(body, list) else ():
        yield from places(inner, (*path, str(key)))


def test_trap_post_filter_beside_knn() -> None:
    """`bool.filter` beside a `knn` clause filters after the nearest were chosen: it stands inside the clause, and nowhere else."""
    [place] = places(parts()["near"])
    assert place[:4] == ("query", "knn", "v", "filter")
    assert list(parts()["near"]["query"]) == ["knn"]


def test_the_filter_stands_in_every_part() -> None:
    for name, body in parts().items():
        [place] = places(body)
        if name != "near":
            assert place[0] == "query"
            assert "filter" in place
        assert "post_filter" not in body
    assert "must_not" not in next(iter(places(parts()["exact"])))


def test_trap_misspelt_keys() -> None:
    """A misspelt key is a 400, and `terminate_after` cuts silently: only these are sent."""
    for body in parts().values():
        assert set(body) <= {"size", "track_total_hits", "timeout", "query", "aggs", "_source", "docvalue_fields", "sort"}


def test_trap_neighbours_are_counted_by_shard() -> None:
    """`k` is per shard, and above 10,000 a 400: the number of hits is bounded by `size`."""
    body = json.loads(dense_part(CHUNKS, [1.0], 20_000, 1000, exact=False))
    assert (body["query"]["knn"]["v"]["k"], body["size"]) == (10_000, 20_000)


def test_nobody_fits_where_no_shape_does() -> None:
    assert '{"match_none":{}}' in admitted_chunks(TEXT, [], frozenset())


def test_trap_zero_vector_is_a_400() -> None:
    for wrong in ((0.0, 0.0), (math.nan, 1.0), (math.inf, 1.0), (1e-9, 0.0)):
        assert as_floats(struct.pack("<2f", *wrong)) is None, wrong
    assert list(as_floats(struct.pack("<2f", 0.5, 0.25)) or ()) == [0.5, 0.25]
    zero = corpus.document("zero", corpus.labels(), vectors=[(0.0, 0.0, 0.0, 0.0)])
    chunk, embedded = zero.chunks[0]
    row = json.loads(mapping.chunk_json(0, chunk, embedded, mapping.file_labels("s", zero.labels), ["shared"]))
    assert "v" not in row
    assert row["directed"] is False


def test_vectors_keep_every_bit() -> None:
    item = corpus.document("x", corpus.labels(), vectors=[(0.1, -1 / 3, 1e-7, 0.7)])
    chunk, embedded = item.chunks[0]
    row = json.loads(mapping.chunk_json(0, chunk, embedded, mapping.file_labels("s", item.labels), ["shared"]))
    assert struct.pack("<4f", *row["v"]) == embedded.vector == base64.b64decode(row["vector"])


def test_statistics_are_of_the_admitted() -> None:
    answer = {
        "hits": {"total": {"value": 10}},
        "aggregations": {
            "length": {"value": 250.0},
            "words": {"buckets": {"0": {"doc_count": 3}, "1": {"doc_count": 0}}},
        },
    }
    found = read_statistics(answer, ["pump", "none"])
    assert (found.admitted, found.mean_length, list(found.weights)) == (10, 25.0, ["pump"])
    assert found.weights["pump"] == math.log(1 + 7.5 / 3.5)
    assert found.possible == 2.2 * (math.log(1 + 7.5 / 3.5) + math.log(1 + 10.5 / 0.5))
    nothing = {"hits": {"total": {"value": 0}}, "aggregations": {"length": {"value": 0.0}}}
    assert read_statistics(nothing, []) == Statistics(0, 1.0, {}, 0.0)


def _hit(name: str, score: float, words: list[str], vector: tuple[float, float]) -> dict[str, Any]:
    def told(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    fields = {"id": name, "document": name[:3], "source": "s", "counts": told(write_counts(words)), "length": len(words)}
    return {
        "sort": [score, name],
        "fields": {key: [value] for key, value in {**fields, "vector": told(struct.pack("<2f", *vector))}.items()},
    }


def test_candidates_have_both_scores() -> None:
    """A hit of one leg gets the other's score too, by the formula of the embedded store, whatever the engine's score was."""
    words = ["pump"] * 3 + ["oil"] * 7
    lexical = [_hit("s/b#0", 99.0, words, (0.6, 0.8)), _hit("s/c#0", 98.0, ["seal"], (-1.0, 0.0))]
    dense = [_hit("s/b#0", 0.8, words, (0.6, 0.8)), _hit("s/a#0", 0.75, ["pumps"], (0.5, 0.5))]
    found = read_candidates(lexical, dense, STATISTICS, [1.0, 0.0])
    assert [(c.chunk_id, c.legs) for c in found] == [
        ("s/a#0", ("dense",)),
        ("s/b#0", ("dense", "lexical")),
        ("s/c#0", ("lexical",)),
    ]
    bm25 = 1.5 * 3 * 2.2 / (3 + 1.2 * (0.25 + 0.75 * 10 / 20))
    assert [round(c.bm25, 9) for c in found] == [0.0, round(bm25, 9), round(0.5 * 2.2 / (1 + 1.2 * (0.25 + 0.75 / 20)), 9)]
    assert [round(c.cosine, 6) for c in found] == [0.5, 0.6, -1.0]


def test_counts_are_found_whole() -> None:
    counts = write_counts(["pump", "pumps", "pump", "a", "1"])
    found = {word: read_count(counts, f"\n{word} ".encode()) for word in ("pump", "pumps", "ump", "1", "a", "2")}
    assert found == {"pump": 2, "pumps": 1, "ump": 0, "1": 1, "a": 1, "2": 0}


@pytest.mark.parametrize("text", ["", "\0", "the of and", "\ud800 x", "a" * 3000, *corpus.HOSTILE[:40]])
def test_words_hold_no_space_and_fit_a_term(text: str) -> None:
    words = Words()
    for word in words.of_question(text):
        assert word
        assert not any(char.isspace() or char == "\n" for char in word)
        assert len(word.encode()) < 32_766
    assert words.of_question("the of and") == ["the", "of", "and"]
    assert words.of_question("the valves of valve") == ["valv"]


def test_one_index_of_two() -> None:
    whole = admitted_chunks(TEXT, ["s1"], frozenset({"a", "b"}))
    assert '{"terms":{"source":["a","b"]}}' in whole
    assert json.loads(CHUNKS)["bool"]["filter"][0]["bool"]["filter"][2] == {"bool": {"must_not": [{"term": {"idx": 1}}]}}


def test_no_question_takes_the_place_of_the_filter() -> None:
    """A word of a question stands in the request as a word, whatever it looks like."""
    words = Words().of_question('@chunks "@chunks" \\"@chunks')
    assert words == ["chunk"]
    spoken = json.loads(count_part(CHUNKS, words, 1000))
    assert spoken["aggs"]["words"]["filters"]["filters"] == {"0": {"term": {"words": "chunk"}}}
