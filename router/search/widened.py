"""One search that goes deeper: more hits of each leg, and more of them reranked. Costs milliseconds and no second search; it finds what stands far down."""

from __future__ import annotations

from router.search.port import Ordered, Part, Searching, Tools, plain

WIDER = 4


def widened(question: str, tools: Tools) -> Searching:
    (hits,) = yield (plain(question, WIDER * tools.candidates),)
    return Ordered(tools.rank([Part(question, hits.question, hits.candidates, depth=WIDER * tools.rerank)]))
