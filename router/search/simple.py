"""One search with the question as it stands: the arm that every other strategy has to beat."""

from __future__ import annotations

from router.search.port import Ordered, Part, Searching, Tools, plain


def simple(question: str, tools: Tools) -> Searching:
    (hits,) = yield (plain(question),)
    return Ordered(tools.rank([Part(question, hits.question, hits.candidates)]))
