"""Agentic rounds: a model sees what was found and plans what to search next. It plans searches, and nothing that it says ranks.

What it is shown are titles and beginnings of passages that were judged once more, under their classes. Those that may not go are left
out, and said; where none may, the first search stands. The order comes of the searches and the rerank against the question.

INVARIANT: nothing that a model says moves a passage, it only adds searches (tests/unit/test_search_models.py::test_rounds_rank_by_search_alone);
of the places the question's own search keeps every other one (…::test_a_hostile_reply_takes_every_other_place_at_most).
INVARIANT: text is shown only after it was judged in full (…::test_rounds_show_only_what_was_judged), and what may not be disclosed
keeps nothing else back (…::test_rounds_leave_out_what_may_not_be_disclosed).
"""

from __future__ import annotations

from collections.abc import Sequence

from router.domain import CLASSES, Ranked
from router.search.drafting import ask, beside, rank_own, schema, texts
from router.search.merge import merge
from router.search.port import Hits, Ordered, Part, Searching, Tools, plain

ROUNDS = 2
SHOWN = 6
SHOWN_CHARS = 400
TASK = "These passages were found so far. What should be searched next to answer the question? Give no search where they suffice."
NEXT = schema("searches", "up to three searches, in the words that documents would use; empty where enough was found", 3)
FOLLOWING = 0.5


def rounds(question: str, tools: Tools) -> Searching:
    found: list[Hits] = list((yield (plain(question),)))
    asked = {question}
    first = found[0]
    own = ranked = rank_own(question, first, tools)
    for _ in range(ROUNDS):
        wanted = [text for text in _plan(question, ranked, tools) if text not in asked]
        if not wanted:
            break
        asked.update(wanted)
        found += yield tuple(plain(text) for text in wanted)
        merged = merge([(1.0 if hits is first else FOLLOWING, hits.candidates) for hits in found])
        ranked = beside(own, tools.rank([Part(question, first.question, merged)]))
    return Ordered(ranked)


def _plan(question: str, ranked: Sequence[Ranked], tools: Tools) -> list[str]:
    shown = tools.shown(ranked[:SHOWN])
    if ranked and not shown:
        return []
    levels = [item.stored.labels.get("sensitivity") for item in shown]
    classes = frozenset(level if isinstance(level, int) else len(CLASSES) - 1 for level in levels)
    text = "\n\n".join(f"{item.stored.chunk.title}\n{item.stored.chunk.text[:SHOWN_CHARS]}" for item in shown)
    reply = ask(tools, TASK, question, NEXT, shown=text, classes=classes)
    if isinstance(reply, dict) and reply.get("searches") == []:
        return []
    return texts(reply, "searches", 3, tools)
