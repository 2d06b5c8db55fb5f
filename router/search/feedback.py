"""Relevance feedback (Rocchio 1971): a second search nearer to what the first one found best.

The dense leg moves towards the mean vector of the first hits, the lexical leg gets the terms that set those hits apart from the
other hits. Both are computed from the caller's own hits, so nothing that is hidden moves the second search either.

INVARIANT: vectors and terms come of admitted hits alone (tests/unit/test_search_strategies.py::test_feedback_sees_only_the_callers).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from router.domain import Embedded, Ranked
from router.lexicon import STOP_WORDS
from router.search.merge import merge
from router.search.port import Ordered, Part, Query, Searching, Tools, plain

TOP = 5
TERMS = 8
BETA = 0.5
"""How far the question moves towards the mean of the first hits."""
SECOND = 0.5
"""Weight of the second search beside the first."""
_WORD = re.compile(r"[a-z][a-z0-9_\-]{2,}")


def feedback(question: str, tools: Tools) -> Searching:
    (first,) = yield (plain(question),)
    before = tools.rank([Part(question, first.question, first.candidates)])
    if len(before) <= TOP:
        return Ordered(before)
    second = yield (build_feedback(question, first.question, before, tools),)
    merged = merge([(1.0, first.candidates), *((SECOND, hits.candidates) for hits in second)])
    return Ordered(tools.rank([Part(question, first.question, merged)]))


def build_feedback(question: str, embedded: Embedded | None, ranked: Sequence[Ranked], tools: Tools) -> Query:
    """The search that is nearer to the first of `ranked`."""
    terms = " ".join([question, *expansion_terms(question, ranked[:TOP], ranked)])
    sought = None if embedded is None else embedded.dense
    if sought is None:
        return Query(terms, None)
    vectors = tools.vectors([item.stored.chunk.chunk_id for item in ranked[:TOP]])
    return Query(terms, _moved(sought, vectors))


def _moved(vector: bytes, towards: Sequence[bytes]) -> bytes:
    import numpy as np

    if not towards:
        return vector
    moved = np.frombuffer(vector, "<f4") + BETA * np.mean([np.frombuffer(one, "<f4") for one in towards], axis=0)
    length = float(np.linalg.norm(moved))
    return (moved / length).astype("<f4").tobytes() if math.isfinite(length) and length > 1e-6 else vector


def expansion_terms(question: str, top: Sequence[Ranked], ranked: Sequence[Ranked]) -> list[str]:
    """Terms of `top` that are frequent there and rare in the rest, best first; at least two of `top` hold each."""
    asked = set(_WORD.findall(question.lower()))
    held: Counter[str] = Counter()
    for item in ranked:
        held.update(_terms(item))
    often: Counter[str] = Counter()
    for item in top:
        often.update(_terms(item))
    weights = {
        term: count * math.log((len(ranked) + 1) / held[term]) for term, count in often.items() if count > 1 and term not in asked
    }
    return sorted(weights, key=lambda term: (-weights[term], term))[:TERMS]


def _terms(item: Ranked) -> set[str]:
    return set(_WORD.findall(f"{item.stored.chunk.title}\n{item.stored.chunk.text}".lower())) - STOP_WORDS
