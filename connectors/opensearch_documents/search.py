"""One search as requests: a count of what the filter admits, then both legs; and their hits as candidates with exact scores.

Statistics are those of the chunks that the filter admits: the count gives their number, their mean length and how many hold each
word; from these come the weights that the question brings along. The engine's own statistics enter nothing. Scores of candidates
are then computed here, from the words and vectors that the hits bring, by the formula of the embedded store (BM25 after Robertson
et al. 1994 with k1 1.2, b 0.75 and Lucene's idf).

INVARIANT: the filter stands in the query of every part, inside the k-NN clause too and never beside it
(tests/unit/test_opensearch_search.py::test_trap_post_filter_beside_knn).
INVARIANT: hidden chunks change no bit of a score (tests/conformance/suite.py::test_hidden_chunks_change_nothing); above
`exact_below` admitted chunks the choice of dense candidates is approximate and may hang on hidden ones (adr/0026).
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.opensearch_documents.lowering import Query, all_of, any_of
from connectors.opensearch_documents.mapping import (
    CONTEXTUAL,
    MOST_RESULTS,
    ONLY,
    PLAIN,
    decode_value,
    has_direction,
    read_count,
)
from connectors.opensearch_documents.replies import count_of, invalid, number_of, reading, scores_of, text_of
from router.domain import Candidate, Leg

EF_SEARCH = 500
MOST_NEIGHBOURS = 10_000
_K1, _B = 1.2, 0.75
_HIT_FIELDS = ("id", "document", "source")
LEG_FIELDS: Mapping[Leg, Sequence[str]] = {
    "dense": (*_HIT_FIELDS, "counts", "length"),
    "lexical": (*_HIT_FIELDS, "counts", "length", "vector"),
}
"""What a hit brings, by which the answers of the two are told apart."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the chunks that a filter admits: how many, how long they are in the mean, and the weight of each word that any holds."""

    admitted: int
    mean_length: float
    weights: Mapping[str, float]
    possible: float


_CHUNKS = "@chunks"
"""Where the filter's text goes in a part. Nothing else of a part can be this text: all that a question says are words."""


def as_text(query: Query) -> str:
    return json.dumps(query, separators=(",", ":"))


def admitted_chunks(filter_: str, fitting: Sequence[str], plain: frozenset[str], entities: frozenset[str] = frozenset()) -> str:
    """Chunks under the filter whose labels fit the schema, of one index where their document has two, that name all of `entities`.
    Filters are as large as policies make them and stand in every part, so they come as text, which is written once."""
    named: list[Query] = [{"term": {"entities": name}} for name in sorted(entities)]
    place = all_of([{"term": {"kind": "chunk"}}, fits(fitting), _one_index(plain), *named])
    return f'{{"bool":{{"filter":[{as_text(place)},{filter_}]}}}}'


def _fill(body: Mapping[str, Any], chunks: str) -> str:
    return json.dumps(body, separators=(",", ":")).replace(f'"{_CHUNKS}"', chunks)


def fits(fitting: Sequence[str]) -> Query:
    return any_of([{"terms": {"shape": list(fitting)}}] if fitting else [])


def _one_index(plain: frozenset[str]) -> Query:
    if not plain:
        return {"bool": {"must_not": [{"term": {"idx": PLAIN}}]}}
    named: Query = {"terms": {"source": sorted(plain)}}
    contextual: Query = {"bool": {"filter": [{"term": {"idx": CONTEXTUAL}}], "must_not": [named]}}
    return any_of([{"term": {"idx": ONLY}}, all_of([{"term": {"idx": PLAIN}}, named]), contextual])


def count_part(chunks: str, words: Sequence[str], wait_ms: int) -> str:
    """How many chunks there are, how many words together, and how many chunks hold each word of the question."""
    aggregations: dict[str, Any] = {"length": {"sum": {"field": "length"}}}
    if words:
        held = {str(at): {"term": {"words": word}} for at, word in enumerate(words)}
        aggregations["words"] = {"filters": {"filters": held}}
    return _fill(
        {
            "size": 0,
            "track_total_hits": True,
            "timeout": f"{wait_ms}ms",
            "query": {"bool": {"filter": [_CHUNKS]}},
            "aggs": aggregations,
        },
        chunks,
    )


def read_statistics(answer: Mapping[str, Any], words: Sequence[str]) -> Statistics:
    with reading():
        admitted = count_of(answer["hits"]["total"]["value"])
        length = number_of(answer["aggregations"]["length"]["value"])
        buckets = answer["aggregations"]["words"]["buckets"] if words else {}
        counted = [count_of(buckets[str(at)]["doc_count"]) for at in range(len(words))]
    if length < 0 or any(held > admitted for held in counted):
        raise invalid()
    idf = {word: math.log(1 + (admitted - held + 0.5) / (held + 0.5)) for word, held in zip(words, counted, strict=True)}
    present = {word: weight for (word, weight), held in zip(idf.items(), counted, strict=True) if held}
    possible = sum((_K1 + 1) * weight for weight in idf.values())
    return Statistics(admitted, max(1.0, length / max(1, admitted)), present, possible if admitted else 0.0)


def lexical_part(chunks: str, statistics: Statistics, limit: int, wait_ms: int) -> str:
    """The best by words, equal scores by id; their vectors come along for the other score."""
    terms = [
        {"term": {"words": {"value": word, "boost": (_K1 + 1) * weight}}}
        for word, weight in statistics.weights.items()
        if weight > 0
    ]
    query = {"bool": {"must": [{"bool": {"should": terms, "minimum_should_match": 1}}], "filter": [_CHUNKS]}}
    return _leg_part(chunks, query, limit, wait_ms, LEG_FIELDS["lexical"])


def dense_part(chunks: str, vector: Sequence[float], limit: int, wait_ms: int, *, exact: bool) -> str:
    """The nearest, equal scores by id: each admitted chunk measured, or by the graph under the filter."""
    numbers = list(vector)
    if exact:
        params = {"field": "v", "query_value": numbers, "space_type": "cosinesimil"}
        script = {"lang": "knn", "source": "knn_score", "params": params}
        query: dict[str, Any] = {
            "script_score": {"query": {"bool": {"filter": [_CHUNKS, {"term": {"directed": True}}]}}, "script": script}
        }
    else:
        nearest = {
            "vector": numbers,
            "k": min(limit, MOST_NEIGHBOURS),
            "filter": _CHUNKS,
            "method_parameters": {"ef_search": EF_SEARCH},
        }
        query = {"knn": {"v": nearest}}
    return _leg_part(chunks, query, limit, wait_ms, LEG_FIELDS["dense"])


def _leg_part(chunks: str, query: Mapping[str, Any], limit: int, wait_ms: int, fields: Sequence[str]) -> str:
    return _fill(
        {
            "size": min(limit, MOST_RESULTS),
            "track_total_hits": False,
            "timeout": f"{wait_ms}ms",
            "_source": False,
            "docvalue_fields": list(fields),
            "query": query,
            "sort": [{"_score": "desc"}, {"id": "asc"}],
        },
        chunks,
    )


# --- candidates -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Hit:
    fields: Mapping[str, Any]
    cosine: float | None
    legs: list[Leg]


def read_candidates(
    lexical: Sequence[Mapping[str, Any]],
    dense: Sequence[Mapping[str, Any]],
    statistics: Statistics,
    question: Sequence[float] | None,
) -> tuple[Candidate, ...]:
    """The union of both legs ordered by chunk id, each with both scores."""
    with reading():
        return _candidates(lexical, dense, statistics, question)


def _candidates(
    lexical: Sequence[Mapping[str, Any]],
    dense: Sequence[Mapping[str, Any]],
    statistics: Statistics,
    question: Sequence[float] | None,
) -> tuple[Candidate, ...]:
    held: dict[str, _Hit] = {}
    for hit, score in zip(dense, scores_of(dense), strict=True):
        fields = _fields(hit)
        held[fields["id"]] = _Hit(fields, _bounded(2.0 * score - 1.0), ["dense"])
    for hit in lexical:
        fields = _fields(hit)
        held.setdefault(fields["id"], _Hit(fields, None, [])).legs.append("lexical")
    lonely = [found for found in held.values() if found.cosine is None]
    for found, cosine in zip(lonely, _cosines([found.fields for found in lonely], question), strict=True):
        found.cosine = cosine
    asked = [(f"\n{word} ".encode(), weight) for word, weight in statistics.weights.items()]
    return tuple(
        Candidate(
            name,
            found.fields["document"],
            found.fields["source"],
            _bm25(found.fields, asked, statistics.mean_length),
            found.cosine or 0.0,
            tuple(found.legs),
        )
        for name, found in sorted(held.items())
    )


def _fields(hit: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: values[0] for name, values in hit["fields"].items()}
    for name in _HIT_FIELDS:
        text_of(found[name])
    return found


def _bm25(fields: Mapping[str, Any], asked: Sequence[tuple[bytes, float]], mean_length: float) -> float:
    if not asked:
        return 0.0
    counts = decode_value(fields["counts"])
    norm = _K1 * (1 - _B + _B * float(fields["length"]) / mean_length)
    score = 0.0
    for word, weight in asked:
        if count := read_count(counts, word):
            score += weight * count * (_K1 + 1) / (count + norm)
    return score


def _cosines(several: Sequence[Mapping[str, Any]], question: Sequence[float] | None) -> list[float]:
    """Each row is summed by itself, so that no score hangs on what else was found."""
    if not several or question is None:
        return [0.0] * len(several)
    import numpy as np

    vectors = [decode_value(fields["vector"]) for fields in several]
    if any(len(vector) != 4 * len(question) for vector in vectors):
        raise invalid()
    rows = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(several), -1)
    wide, asked = rows.astype(np.float64), np.asarray(question, dtype=np.float64)
    lengths = np.sqrt((wide * wide).sum(axis=1)) * math.sqrt(float((asked * asked).sum()))
    products = (wide * asked).sum(axis=1)
    return [_bounded(float(product / length)) if length > 0 else 0.0 for product, length in zip(products, lengths, strict=True)]


def _bounded(cosine: float) -> float:
    return max(-1.0, min(1.0, cosine))


def as_floats(vector: bytes) -> array[float] | None:
    """A question's vector; None where it has no direction to search in."""
    numbers = array("f", vector)
    return numbers if has_direction(numbers) and all(map(math.isfinite, numbers)) else None
