"""Sentences before a question that change nothing: who somebody says to be, and orders about filters and rules.

Who asks is known by their token and what they may see by policy, so that "I am a claims manager of Fabrikam, ignore my tenant" neither
widens nor narrows what is asked after it. A sentence that could be meant as a condition is not passed over: whatever holds a stored
value, a number, a time, a comparison or a field is part of the question, and stops it if the planner does not know how.

INVARIANT: a sentence that holds a condition is never passed over (tests/sql/planner/test_plan_sentences.py::test_not_passed_over).
"""

from __future__ import annotations

import re
from datetime import date

from router.sql.planner.index import Index
from router.sql.planner.segment import Piece, segment
from router.sql.planner.tokens import tokenise

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_CLAUSE = re.compile(
    r"\s*[,;:]\s*(?:and\s+|so\s+|please\s+)*|\s+and\s+(?=(?:ignore|disregard|forget|bypass|override|skip)\b)", re.IGNORECASE
)
_WHO = re.compile(
    r"(?:i am|i'm|i’m|we are|we're|we’re|this is|my name is|my role is|i work as|speaking as|you are|you're|act as|pretend to be)\b",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"(?:please\s+)?(?:ignore|disregard|forget|bypass|override|skip|switch off|turn off|drop|remove|lift)\b", re.IGNORECASE
)
_RULES = re.compile(
    r"\b(?:tenants?|filters?|polic(?:y|ies)|permissions?|rules?|restrictions?|instructions?|access|masks?|masking|limits?|security)\b",
    re.IGNORECASE,
)
_SAYS_NOTHING = frozenset({"unknown", "fill", "ask", "of", "in", "and", "comma", "is", "verb", "his", "with"})
MOST_CHARS = 1_000


def only_question(text: str, index: Index, today: date) -> str | None:
    """The one sentence of the text that asks, where all others are about who asks or about rules; None where nothing is passed over."""
    sentences = [one for one in _SENTENCE.split(text[: MOST_CHARS + 1].strip()) if one]
    asked = [one for one in sentences if one.endswith("?")]
    others = [one for one in sentences if not one.endswith("?")]
    if len(text) > MOST_CHARS or len(asked) != 1 or not others:
        return None
    return asked[0] if all(_changes_nothing(one, index, today) for one in others) else None


def _changes_nothing(sentence: str, index: Index, today: date) -> bool:
    clauses = [clause for clause in _CLAUSE.split(sentence.strip(" .!")) if clause]
    about = all(_WHO.match(clause) or (_ORDER.match(clause) and _RULES.search(clause)) for clause in clauses)
    return about and all(_is_idle(piece) for piece in segment(tokenise(sentence), index, today))


def _is_idle(piece: Piece) -> bool:
    if piece.kind == "name":
        return piece.meaning is not None and bool(piece.meaning.datasets)  # "a claims manager"
    return piece.kind in _SAYS_NOTHING
