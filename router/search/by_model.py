"""Strategies that ask a model for other words of the question: several wordings, a made-up answer, a broader question, its parts.

Of four in one file, since each is a prompt and a way to put two lists together. The question's own search is always one of them and
has every other place of the order, so that a bad or hostile reply costs time and little quality. Sources: multi-query after
RAG-fusion; HyDE after Gao et al. 2022; step-back after Zheng et al. 2023.

INVARIANT: whatever a model replies, what the question's own search found at place n stands at 2n-1 or before
(tests/unit/test_search_models.py::test_a_hostile_reply_takes_every_other_place_at_most).
"""

from __future__ import annotations

from router.search.drafting import ask, beside, rank_own, schema, texts
from router.search.merge import merge
from router.search.port import Hits, Ordered, Part, Query, Searching, Tools, plain

_NONE: frozenset[int] = frozenset()
WORDINGS = schema("wordings", "the question in other words, each complete in itself", 4)
PASSAGE = schema("passage", "one paragraph as it could stand in the document that answers", 1)
BROADER = schema("broader", "one more general question whose answer holds the principle", 1)
PARTS = schema("parts", "the separate questions that it asks, each complete in itself; one where it is only one", 5)


def multi_query(question: str, tools: Tools) -> Searching:
    reply = ask(tools, "Write three other wordings, with the words that documents would use.", question, WORDINGS, classes=_NONE)
    found = yield (plain(question), *(plain(one) for one in texts(reply, "wordings", 4, tools)))
    return _together(question, found, 0.5, tools)


def hyde(question: str, tools: Tools) -> Searching:
    """The made-up passage goes to the dense leg alone: its invented names would mislead the lexical one. It is never evidence."""
    reply = ask(tools, "Write a short passage that would answer the question.", question, PASSAGE, classes=_NONE)
    found = yield (plain(question), *(Query(None, one) for one in texts(reply, "passage", 1, tools)))
    return _together(question, found, 0.5, tools)


def step_back(question: str, tools: Tools) -> Searching:
    reply = ask(tools, "Write the more general question behind this one.", question, BROADER, classes=_NONE)
    found = yield (plain(question), *(plain(one) for one in texts(reply, "broader", 1, tools)))
    return _together(question, found, 0.3, tools)


def decomposed_by_model(question: str, tools: Tools) -> Searching:
    reply = ask(tools, "Which separate questions does it ask?", question, PARTS, classes=_NONE)
    parts = texts(reply, "parts", 5, tools)
    own, *found = yield (plain(question), *(plain(part) for part in parts if len(parts) > 1))
    drafted = [Part(str(hits.query.text), hits.question, hits.candidates) for hits in found]
    return Ordered(beside(rank_own(question, own, tools), tools.rank(drafted)))


def _together(question: str, found: tuple[Hits, ...], weight: float, tools: Tools) -> Ordered:
    """The question's own search, and beside it all searches in one list, reranked against the question as it was asked."""
    own, *others = found
    merged = merge([(1.0, own.candidates), *((weight, hits.candidates) for hits in others)])
    return Ordered(beside(rank_own(question, own, tools), tools.rank([Part(question, own.question, merged)]) if others else ()))
