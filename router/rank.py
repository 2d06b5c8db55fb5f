"""From hits to ranked passages: fuse the two legs, then rerank by late interaction, all on this machine.

Everything is computed from the caller's own candidates, the reranker's term weights too: a document that the caller
may not see moves no score. Ties are broken by chunk id.

INVARIANT: a rerank is a permutation of what it was given (tests/unit/test_rank.py::test_rerank_is_a_permutation).
INVARIANT: term weights come from the candidates alone (…::test_nothing_but_the_candidates_counts).
INVARIANT: damaged vectors raise, so that the line degrades aloud (…::test_hostile_bytes_raise).
INVARIANT: passages and tables of an answer share one order, from 1 without gaps, each kind in its own
(tests/unit/test_rank.py::test_one_order_over_both_kinds).

Sources: standardised score sums after Lee 1997; reciprocal rank fusion after Cormack, Clarke and Büttcher 2009 (k = 60);
MaxSim after Khattab and Zaharia 2020, here untrained, over stored 64-dimensional int8 token vectors. The weights are
round numbers set on the development collections, for prose and for code apart (adr/0011).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from router.domain import Candidate, ContentKind, Embedded, Passage, Stored, Table
from router.lexicon import STOP_WORDS, identifiers
from router.matrix import multiply

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[Any]

Fusion = Literal["zsum", "rrf", "weighted"]

RRF_K = 60
NO_COSINE = 0.0
"""Exactly, what a store says of a chunk that has no vector, because it might not be sent to the embedder."""
FEWEST_FOR_Z = 5
"""With fewer candidates a standard deviation says nothing: ranks are fused instead."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the standardised features in the rerank sum."""

    bm25: float
    cosine: float
    maxsim: float
    identifiers: float
    title: float


PROSE = Weights(bm25=0.7, cosine=1.0, maxsim=0.7, identifiers=0.5, title=0.3)
CODE = Weights(bm25=1.5, cosine=1.0, maxsim=0.3, identifiers=0.3, title=0.3)
WEIGHTS: Mapping[ContentKind, Weights] = {"prose": PROSE, "table": PROSE, "code": CODE}


def fuse(candidates: Sequence[Candidate], fusion: Fusion = "zsum", *, dense_weight: float = 0.5) -> list[Candidate]:
    """Best first. `zsum` adds standardised scores, `weighted` weighs them, `rrf` adds reciprocal ranks of the legs' own hits."""
    legs = {leg for candidate in candidates for leg in candidate.legs}
    if fusion == "rrf" or len(candidates) < FEWEST_FOR_Z or len(legs) < 2:
        scores = _reciprocal_ranks(candidates)
    else:
        dense = 2 * dense_weight if fusion == "weighted" else 1.0
        cosine = _standardised([candidate.cosine for candidate in candidates], unknown=NO_COSINE)
        bm25 = _standardised([candidate.bm25 for candidate in candidates])
        scores = [dense * c + (2 - dense) * b for c, b in zip(cosine, bm25, strict=True)]
    order = sorted(range(len(candidates)), key=lambda at: (-scores[at], candidates[at].chunk_id))
    return [candidates[at] for at in order]


def _reciprocal_ranks(candidates: Sequence[Candidate]) -> list[float]:
    scores = {candidate.chunk_id: 0.0 for candidate in candidates}
    for leg in ("dense", "lexical"):
        hits = [candidate for candidate in candidates if leg in candidate.legs]
        hits.sort(key=lambda hit: (-(hit.cosine if leg == "dense" else hit.bm25), hit.chunk_id))
        for rank, hit in enumerate(hits, 1):
            scores[hit.chunk_id] += 1 / (RRF_K + rank)
    return [scores[candidate.chunk_id] for candidate in candidates]


def _standardised(values: Sequence[float], *, unknown: float | None = None) -> list[float]:
    """Mean 0, standard deviation 1; all zero where the values do not differ. What is `unknown` counts as the mean."""
    known = [value for value in values if value != unknown] or [0.0]
    mean = sum(known) / len(known)
    spread = (sum((value - mean) ** 2 for value in known) / len(known)) ** 0.5
    return [(value - mean) / spread if spread > 1e-9 and value != unknown else 0.0 for value in values]


def rerank(text: str, question: Embedded, candidates: Sequence[Candidate], stored: Sequence[Stored]) -> list[Candidate]:
    """The candidates of `stored` in their new order, best first.

    `candidates` are all fused hits: the legs' scores are standardised over them. `stored` are those to rerank, loaded,
    each a candidate's. With fewer than five candidates the fused order stands.
    """
    by_id = {item.chunk.chunk_id: item for item in stored}
    chosen = [candidate for candidate in candidates if candidate.chunk_id in by_id]
    if len(candidates) < FEWEST_FOR_Z or not chosen:
        return chosen
    import numpy as np

    items = [by_id[candidate.chunk_id] for candidate in chosen]
    features = np.column_stack(
        [
            _legs(np, candidates, chosen),
            _z(
                np, np.column_stack([_maxsim(np, question, items), _identifier_share(text, items), _title_share(np, text, items)])
            ),
        ]
    )
    weights = np.array([_row(WEIGHTS[item.chunk.kind]) for item in items])
    scores = (weights * features).sum(axis=1).tolist()
    order = sorted(range(len(chosen)), key=lambda at: (-scores[at], chosen[at].chunk_id))
    return [chosen[at] for at in order]


def _row(weights: Weights) -> tuple[float, ...]:
    return weights.bm25, weights.cosine, weights.maxsim, weights.identifiers, weights.title


def _legs(np: Any, candidates: Sequence[Candidate], chosen: Sequence[Candidate]) -> Floats:
    """BM25 and cosine of the chosen, standardised over all candidates."""
    scores = np.array([(candidate.bm25, candidate.cosine) for candidate in candidates])
    z, known = _z(np, scores), scores[:, 1] != NO_COSINE
    if known.any() and not known.all():
        z[known, 1], z[~known, 1] = _z(np, scores[known])[:, 1], 0.0
    row = {candidate.chunk_id: at for at, candidate in enumerate(candidates)}
    picked: Floats = z[[row[candidate.chunk_id] for candidate in chosen]]
    return picked


def _z(np: Any, columns: Floats) -> Floats:
    """Each column to mean 0 and deviation 1; a constant column is 0."""
    spread = columns.std(axis=0)
    standard: Floats = (columns - columns.mean(axis=0)) / np.where(spread > 1e-9, spread, np.inf)
    return standard


def similarities(question: Embedded, stored: Sequence[Stored]) -> list[float]:
    """How well each answers the question token by token, from 0 to about 1; comparable between questions."""
    import numpy as np

    found: list[float] = (_maxsim(np, question, stored) / question.token_scale).tolist()
    return found


def _maxsim(np: Any, question: Embedded, stored: Sequence[Stored]) -> Floats:
    """Each question token's best match in a candidate, averaged by how rare its word piece is among the candidates."""
    out: Floats = np.zeros(len(stored))
    _check_tokens(question, stored)
    asked = np.frombuffer(question.token_ids, "<u2")
    lengths = np.array([len(item.token_ids) // 2 for item in stored])
    filled = np.flatnonzero(lengths)
    if not len(asked) or not len(filled):
        return out
    starts = np.concatenate(([0], np.cumsum(lengths[filled])[:-1]))
    rows = np.frombuffer(b"".join([item.token_vectors for item in stored]), np.int8).reshape(int(lengths.sum()), -1)
    ids = np.frombuffer(b"".join([item.token_ids for item in stored]), "<u2")
    scales = np.array([stored[at].token_scale for at in filled])
    directions = np.frombuffer(question.token_vectors, np.int8).reshape(len(asked), -1).astype(np.float32)
    best = np.maximum.reduceat(multiply(rows, directions.T), starts, axis=0).T / scales
    found = np.logical_or.reduceat(asked[:, None] == ids[None, :], starts, axis=1).sum(axis=1)
    weight = np.log(1 + (len(stored) - found + 0.5) / (found + 0.5))
    out[filled] = weight @ best / weight.sum()
    return out


def _check_tokens(question: Embedded, stored: Sequence[Stored]) -> None:
    """Damaged bytes raise: two odd lengths joined would pass for rows, and a NaN would sort anywhere."""
    width = 2 * len(question.token_vectors) // len(question.token_ids) if question.token_ids else 0
    held: tuple[Embedded | Stored, ...] = (question, *stored) if question.token_ids else (question,)
    for item in held:
        if (
            len(item.token_ids) % 2
            or (item.token_ids and not width)
            or 2 * len(item.token_vectors) != width * len(item.token_ids)
        ):
            raise ValueError("token vectors do not match their word pieces")
        if not 0 < item.token_scale < float("inf"):
            raise ValueError("the scale of token vectors is no positive number")


def _identifier_share(text: str, stored: Sequence[Stored]) -> list[float]:
    wanted = identifiers(text)
    if not wanted:
        return [0.0] * len(stored)
    texts = [f"{item.chunk.title}\n{item.chunk.text}".lower() for item in stored]
    return [sum(word in lowered for word in wanted) / len(wanted) for lowered in texts]


def rank_together(
    passages: Sequence[Passage], tables: Sequence[Table], scores: Mapping[str, float]
) -> tuple[tuple[Passage, ...], tuple[Table, ...]]:
    """Numbered in one order. Tables with rows come first where the wording asks for rows at least as much as for text, for a draft
    explains every word and a passage is only near; else behind the passages. Tables without rows are last."""
    told, empty = [one for one in tables if one.rows], [one for one in tables if not one.rows]
    ahead = len(told) if scores.get("sql", 0.0) >= scores.get("documents", 0.0) else 0
    behind = len(passages)
    places = [*range(1, ahead + 1), *range(ahead + behind + 1, behind + len(tables) + 1)]
    return (
        tuple(replace(one, rank=at) for at, one in enumerate(passages, ahead + 1)),
        tuple(replace(one, rank=at) for at, one in zip(places, [*told, *empty], strict=True)),
    )


_WORD = re.compile(r"[a-z0-9]+")


def _title_share(np: Any, text: str, stored: Sequence[Stored]) -> list[float]:
    """Share of the question's words that stand in the title, each weighed by how few of the candidates' titles hold it."""
    wanted = set(_WORD.findall(text.lower())) - STOP_WORDS
    titles = [set(_WORD.findall(item.chunk.title.lower())) & wanted for item in stored]
    held: dict[str, int] = {}
    for title in titles:
        for word in title:
            held[word] = held.get(word, 0) + 1
    count = len(stored)
    weight = {word: float(np.log(1 + (count - held.get(word, 0) + 0.5) / (held.get(word, 0) + 0.5))) for word in wanted}
    total = sum(weight.values()) or 1.0
    return [sum(weight[word] for word in title) / total for title in titles]
