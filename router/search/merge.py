"""Hits of several searches in one order: the one place where that is done.

Scores of different searches are not comparable, so each search's are standardised over its own hits before they are added. A hit
that a search did not find counts there as its worst. One search alone comes back untouched.

INVARIANT: one list is itself (tests/unit/test_search_merge.py::test_one_list_is_itself).
INVARIANT: every hit of every list stands in the result once (…::test_every_hit_once).
INVARIANT: taking turns gives each list its share of every prefix (…::test_turns_are_fair).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from router.domain import Candidate, Leg

T = TypeVar("T")
_LEGS: tuple[Leg, ...] = ("dense", "lexical")


def merge(lists: Sequence[tuple[float, Sequence[Candidate]]]) -> tuple[Candidate, ...]:
    """Best first. Each list comes with its weight; scores of the result are weighted means of standardised ones."""
    filled = [(weight, candidates) for weight, candidates in lists if candidates and weight > 0]
    if len(filled) < 2:
        return tuple(filled[0][1]) if filled else ()
    first: dict[str, Candidate] = {}
    legs: dict[str, set[Leg]] = {}
    for _, candidates in filled:
        for candidate in candidates:
            first.setdefault(candidate.chunk_id, candidate)
            legs.setdefault(candidate.chunk_id, set()).update(candidate.legs)
    bm25 = _mean(filled, first, lambda candidate: candidate.bm25)
    cosine = _mean(filled, first, lambda candidate: candidate.cosine)
    merged = [
        replace(
            candidate,
            bm25=bm25[chunk_id],
            cosine=cosine[chunk_id],
            legs=tuple(leg for leg in _LEGS if leg in legs[chunk_id]),
        )
        for chunk_id, candidate in first.items()
    ]
    return tuple(sorted(merged, key=lambda candidate: (-(candidate.bm25 + candidate.cosine), candidate.chunk_id)))


def _mean(
    lists: Sequence[tuple[float, Sequence[Candidate]]], ids: Iterable[str], score: Callable[[Candidate], float]
) -> dict[str, float]:
    means = dict.fromkeys(ids, 0.0)
    total = sum(weight for weight, _ in lists)
    for weight, candidates in lists:
        standard = _standardised([score(candidate) for candidate in candidates])
        by_id = {candidate.chunk_id: value for candidate, value in zip(candidates, standard, strict=True)}
        worst = min(standard)
        for chunk_id in means:
            means[chunk_id] += weight / total * by_id.get(chunk_id, worst)
    return means


def _standardised(values: Sequence[float]) -> list[float]:
    mean = sum(values) / len(values)
    spread = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    return [(value - mean) / spread if spread > 1e-9 else 0.0 for value in values]


def take_turns(lists: Sequence[Sequence[T]], key: Callable[[T], Hashable]) -> list[T]:
    """The first of each list, then the second of each, and so on; what came before is passed over."""
    taken: dict[Hashable, T] = {}
    at = [0] * len(lists)
    while any(place < len(one) for place, one in zip(at, lists, strict=True)):
        for number, one in enumerate(lists):
            while at[number] < len(one) and key(one[at[number]]) in taken:
                at[number] += 1
            if at[number] < len(one):
                taken[key(one[at[number]])] = one[at[number]]
                at[number] += 1
    return list(taken.values())
