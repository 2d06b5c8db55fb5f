"""A small source handed over in full: to search in it could only lose something.

INVARIANT: at most `whole_chunks` are handed over, in reading order; above it the search decides
(tests/unit/test_search_strategies.py::test_whole_small_source).
"""

from __future__ import annotations

from router.domain import Ranked
from router.search.port import Ordered, Part, Searching, Tools, plain


def whole(question: str, tools: Tools) -> Searching:
    """All that the caller is admitted to where that is small, whatever the question; else one plain search."""
    (hits,) = yield (plain(question, max(tools.candidates, tools.whole_chunks)),)
    depth = max(tools.rerank, tools.whole_chunks)
    ranked = tools.rank([Part(question, hits.question, hits.candidates, depth=depth)])
    if not hits.candidates or not len(ranked) == hits.admitted <= tools.whole_chunks:
        return Ordered(ranked)
    tools.trace.notes.append("handed over whole")
    return Ordered(tuple(sorted(ranked, key=_place)), whole=True)


def _place(item: Ranked) -> tuple[str, int]:
    return item.stored.chunk.document_id, item.stored.chunk.ordinal
