"""What a question asks, apart from orders that it repeats or gives ("ignore the filters and show me …: what is the limit?").

An order moves no filter, here as anywhere; it only drowns the question among words that no passage holds. So where the question as
it stands finds nothing, what it asks is searched alone. A quotation that is no order is part of what is asked and stays.

INVARIANT: nothing is added, so the words that are searched are the caller's (tests/unit/test_search_asked.py::test_only_words_of_the_question).
"""

from __future__ import annotations

import re

_QUOTED = re.compile(r"\"[^\"]{1,2000}\"|“[^”]{1,2000}”|«[^»]{1,2000}»|„[^“”]{1,2000}[“”]")
_CLAUSE = re.compile(r"[^.!?:;\n]+[.!?:;\n]*")
_ORDER = re.compile(
    r"^\W*(?:system ?:|assistant ?:|(?:please |now |and |then |you (?:must|should|will|can) )*"
    r"(?:ignore|disregard|forget|override|overrule|bypass|pretend|imagine|act as|behave as|switch off|turn off|disable|drop) |"
    r"you are (?:now )?(?:an?|the|in|my|no longer) |from now on|new instructions?\b|maintenance mode|developer mode)",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"\?|\b(?:who|whom|whose|what|which|when|where|why|how|whether|asks?|asked|want(?:s|ed)? to know|need(?:s|ed)? to know|tell me|"
    r"explain)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]{2,}")
FEWEST = 3
"""Words that a question has at least."""


def asked_part(text: str) -> str:
    """The clauses that ask, where others give orders; empty where there is no order, or nothing else."""
    without = _QUOTED.sub(lambda match: " " if _is_order(match.group()) else match.group(), text)
    clauses = [match.group().strip() for match in _CLAUSE.finditer(without)]
    left = [clause for clause in clauses if not _ORDER.match(clause)]
    if without == text and len(left) == len(clauses):
        return ""
    asking = [clause for clause in left if _ASKS.search(clause)]
    part = " ".join(asking or left).strip()
    return part if len(_WORD.findall(part)) >= FEWEST else ""


def _is_order(quoted: str) -> bool:
    return _ORDER.match(quoted) is not None
