"""Several questions in one, each searched for itself, taking turns in the answer. By rules here, or by a model.

One vector of two questions lies between them and near neither. The rules split at a question mark and at a conjunction before a
question word, and nowhere else: a question that is one stays one. What a part leaves out ("and who approves it") is looked for
with the words of the part before.

INVARIANT: a question that is one gives the same searches as `simple` (tests/unit/test_search_strategies.py::test_one_question_stays_one).
"""

from __future__ import annotations

import re

from router.lexicon import STOP_WORDS
from router.search.port import MAX_QUERIES, Ordered, Part, Searching, Tools, plain

_ASKING = (
    r"what|which|who|whom|whose|when|where|why|how|is|are|was|were|do|does|did|can|could|may|must|should|will|would|has|have|"
    r"name|list|show|tell|give|find|explain|describe"
)
_BEFORE = (
    r"(?:(?:up|down|out|back|as|next|close|according)\s+)?(?:in|at|on|for|by|to|from|of|with|until|till|since|above|below|over|under|within|"
    r"beyond|after|before|during|through|against|about|near|per|into|between|behind|without|inside|outside)"
)
_WORDS = rf"{_BEFORE}\s+(?:what|which|whom|whose|when|where|how)"
_CUT = re.compile(
    rf"\?+\s+(?:and\s+|also\s+|then\s+)*|;\s+(?:and\s+)?|[,.]?\s+(?:and|but|or)\s+(?:also\s+|then\s+)?(?=(?:{_ASKING}|{_WORDS})\b)|"
    rf",\s+(?=(?:what|which|who|whom|whose|when|where|why|how)\b)|[.!]\s+(?=(?:{_ASKING})\b)",
    re.IGNORECASE,
)
_ASKS = re.compile(rf"^(?:{_BEFORE}\s+)?(?:{_ASKING})\b", re.IGNORECASE)
_POINTS_BACK = re.compile(
    r"\b(?:its?|they|them|their|theirs|these|those|he|she|him|his|hers?|there|th(?:is|at)|(?:which|the|new|old|other|each|every)\s+one)\b",
    re.IGNORECASE,
)
_SAYS_ITSELF = re.compile(
    # "how many are there", "there are": that something is, not where
    r"\b(?:is|are|was|were|be|been|exists?)\s+there\b|\bthere\s+(?:is|are|was|were|has|have|will|may|can|be)\b|"
    # "this year": a time of its own
    r"\bth(?:is|ese)\s+(?:past\s+|last\s+|coming\s+)?(?:day|week|month|quarter|half|year|season|morning|spring|summer|autumn|winter)s?\b|"
    # "claims that are open": a relative clause
    r"(?<=\w)\s+that\s+(?:is|are|was|were|has|have|had|do|does|did|can|could|may|must|will|would|should|need|needs|we|you|i|they|he|she|a|an|the)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_][\w.\-/]*")
FEWEST_WORDS = 2
"""That carry content: what has fewer is no question of its own."""


def decomposed(question: str, tools: Tools) -> Searching:
    return (yield from search_parts(question, split(question), tools))


def search_parts(question: str, parts: list[str], tools: Tools) -> Searching:
    """Each part's own ranking, taking turns. With fewer than two parts the question as it stands."""
    texts = parts if len(parts) > 1 else [question]
    found = yield tuple(plain(text) for text in texts)
    return Ordered(tools.rank([Part(str(hits.query.text), hits.question, hits.candidates) for hits in found]))


def clauses(question: str) -> list[str]:
    """The questions that the text holds, as written; one of them where it is only one."""
    pieces = [piece.strip(" ,;.?!\n\t") for piece in _CUT.split(question[:2_000])]
    pieces = [piece for piece in pieces if piece]
    if not all(content(piece) for piece in pieces):
        return [question]  # "and when?" asks more of the same
    if len(pieces) < 2 or not all(_ASKS.match(piece) for piece in pieces):
        return [question]  # `ERR-4012 on the CX-400, which torque?` names its matter and asks once
    return [question] if len(content(pieces[0])) < FEWEST_WORDS else pieces


def points_back(clause: str) -> bool:
    """Whether a word of it stands for something said before."""
    return _POINTS_BACK.search(_SAYS_ITSELF.sub(" ", clause)) is not None


def split(question: str) -> list[str]:
    """The questions that the text holds, each complete enough to be searched for; one of them where it is only one."""
    pieces = clauses(question)
    if len(pieces) < 2:
        return pieces
    parts: list[str] = []
    for piece in pieces:
        lacking = len(content(piece)) < FEWEST_WORDS or points_back(piece)
        parts.append(f"{piece} {' '.join(content(parts[-1]))}" if parts and lacking else piece)
    return list(dict.fromkeys(parts))[:MAX_QUERIES]


def content(text: str) -> list[str]:
    """Words that carry content, as written, once each."""
    words = (word.strip(".-/") for word in _WORD.findall(text))
    return list(dict.fromkeys(word for word in words if word and word.lower() not in STOP_WORDS))
