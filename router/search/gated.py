"""The relevance gate as a strategy around a strategy: where what was found hardly answers, one more search, and then a judgement.

The second search is the last yield, so the line stays straight. Where the question repeats or gives orders, it is of what is asked
apart from them; else it is relevance feedback: what was found is near the matter even where it is no answer. Its order is taken only
where it answers better.

INVARIANT: at most one more batch is searched (tests/unit/test_search_relevance.py::test_once_more_and_no_more).
"""

from __future__ import annotations

from collections.abc import Generator

from router.search.asked import asked_part
from router.search.feedback import TOP, build_feedback
from router.search.merge import merge
from router.search.port import Batch, Hits, Ordered, Part, Searching, Strategy, Tools, plain
from router.search.relevance import Gate, names_nothing

BETTER = 0.05
"""How much likelier the second order has to be: feedback moves good hits, too, and a tie is no reason to."""


def gated(inner: Strategy, gate: Gate) -> Strategy:
    def run(question: str, tools: Tools) -> Searching:
        ordered = yield from inner(question, tools)
        likely = tools.likelihood(ordered.passages)
        if ordered.whole or likely is None:
            return ordered
        if names_nothing(question, ordered.passages):
            tools.trace.notes.append("what is named stands nowhere")
            return Ordered(ordered.passages, answers=False)
        if likely >= gate.again:
            return ordered
        best, better = ordered, likely
        again = yield from _once_more(question, ordered, tools)
        if again is not None and again[1] >= better + BETTER:
            best, better = again
        if better >= gate.empty:
            return best
        tools.trace.notes.append("nothing answers")
        return Ordered(best.passages, answers=False)

    return run


def _once_more(question: str, ordered: Ordered, tools: Tools) -> Generator[Batch, tuple[Hits, ...], tuple[Ordered, float] | None]:
    """Another order and how likely it answers; None where there is no other way to ask, or it cannot be judged."""
    first, part = tools.first(), asked_part(question)
    if part:
        tools.trace.notes.append("searched without what it orders")
        found = yield (plain(part),)
        again = Ordered(tools.rank([Part(part, found[0].question, found[0].candidates)] if found else []))
        likely = tools.likelihood_of(found[0], again.passages) if found else None
    elif len(ordered.passages) > TOP and first is not None:
        tools.trace.notes.append("searched once more")
        more = yield (build_feedback(question, first.question, ordered.passages, tools),)
        merged = merge([(1.0, first.candidates), *((1.0, hits.candidates) for hits in more)])
        again = Ordered(tools.rank([Part(question, first.question, merged)]))
        likely = tools.likelihood(again.passages)
    else:
        return None
    return (again, likely) if likely is not None else None
