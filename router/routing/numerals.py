"""Numbers as documents write them, each with its unit, or nothing: a text whose digits are not all understood gives no number.

Each word with a digit in it, and the words beside it, have to be of a few plain forms: `400`, `1,500`, `12.50 euro`, `€250`, `5 %`,
`30 days`. What is left out is a wrong number: `1 500` is not 500, `10^3` is not 3, `5,000 yen` is not 5,000 of anything else.

INVARIANT: digits that are not read as a quantity (ranges, negative numbers, powers, spaces inside, other scripts' digits, decimal
commas, other units) make their text unreadable, not nearly right
(tests/unit/test_routing_steps.py::test_numbers_that_are_not_certain_are_not_read).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

Kind = Literal["money", "minutes", "hours", "days", "weeks", "months", "years", "percent", "count"]
DURATIONS: frozenset[Kind] = frozenset({"minutes", "hours", "days", "weeks", "months", "years"})

_UNITS: dict[str, tuple[Kind, str]] = {
    **dict.fromkeys("euro euros eur €".split(), ("money", "euro")),
    **dict.fromkeys("dollar dollars usd $".split(), ("money", "dollars")),
    **dict.fromkeys("pound pounds gbp £".split(), ("money", "pounds")),
    **{word: (kind, kind) for kind in sorted(DURATIONS) for word in (kind, kind[:-1])},
    **dict.fromkeys(("percent", "per cent", "%", "pct"), ("percent", "percent")),
}
_UNIT = "|".join(sorted((re.escape(word) for word in _UNITS), key=len, reverse=True))
_IN_UNIT = re.compile(rf"(?:\bin\s+|\(\s*|\b|(?=[€$£%]))(?P<unit>{_UNIT})(?![a-z])", re.IGNORECASE)
_MONTH = r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_NO_QUANTITY = re.compile(
    rf"\b\d{{1,2}}(?:st|nd|rd|th)?\s+{_MONTH}\b(?:\s+\d{{4}}\b)?|\b{_MONTH}\s+\d{{4}}\b|\b\d{{4}}-\d\d(?:-\d\d)?\b|"
    rf"\b(?:in|since|from|until|of|by|before|after)\s+(?:19|20)\d\d\b(?!\s*(?:{_UNIT})(?![a-z]))|\b\d{{1,2}}:\d\d\b|"
    r"\b(?:version|section|chapter|page|line|row|step|level|depot|region|zone|table|form|rule|article|paragraph|annex|class|type|phase|"
    r"tier|note|no\.?|number|band|grade|group|shift|building|gate|bay|clause|item|point|day|week)\s+\d+(?:\.\d+)*\b(?!\s*(?:%|euro))|"
    r"^\s*(?:[-*]\s+)?\d+(?:\.\d+)*[.)]\s|\b[A-Za-z][A-Za-z_/.-]*\d[\w./-]*|§\s*\d+",
    re.IGNORECASE,
)
"""Days, times, places in a document, identifiers: digits that are no quantity."""
_MARK = "\x00"
"""Stands where such digits stood: a number directly behind or before it may be a part of them."""
_IN_WORDS = re.compile(
    rf"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|sixty|ninety|hundred|"
    rf"thousand|million|dozen|half)[\s-]+(?:{_UNIT}|hundred|thousand|million|working|calendar|times)(?![a-z])",
    re.IGNORECASE,
)
"""Numbers in words are not read, so what they stand in is not."""
_WORD = re.compile(r"\S+")
_PLAIN = re.compile(
    r"(?P<ahead>[€$£])?(?P<number>[1-9]\d{0,2}(?:,\d{3})+|\d{1,9})(?P<part>\.\d{1,2})?(?:-?(?P<unit>[a-z]+|[€%]))?",
    re.IGNORECASE | re.ASCII,
)
_AHEAD = frozenset("eur usd gbp \u20ac $ \u00a3".split())
_BEFORE, _BEHIND = "\"'(*_\u201c\u2018", ".,;:!?)\"'*_\u201d\u2019"
_NOT_BEFORE = frozenset(
    """
    about approximately approx approx. circa ca ca. around roughly nearly almost some half double twice triple between minus plus less
    x \u00d7 * ^ + - \u2212 \u2013 \u2014 / ~ \u2248 \u00b1 = < > \u2264 \u2265 chf yen jpy kr sek nok dkk pln cad aud rs inr factor times
    """.split()
)
"""What changes the number behind it."""
_COUNTED = frozenset("piece pieces pcs pcs. unit units item items".split())
"""What may stand behind a number that is of nothing else."""
_MAY_FOLLOW = frozenset(
    """
    and or but for in on at by from with without per a an each every if when where unless until is are was were be as that which who
    only before after above below since during may must can should has have will then it this they we you
    """.split()
)
"""What may stand behind a number or its unit: any other word could be what it is of, or change it."""
_NOT_BEHIND = frozenset(
    """
    cent cents hundred thousand thousands million millions billion dozen times plus minus less more to x \u00d7 * ^ + - \u2212 \u2013 \u2014 /
    = < > working off short
    """.split()
)
"""What changes the number even where its unit stands between."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with what it is of. Made here and nowhere else."""

    number: Decimal
    kind: Kind
    unit: str = ""

    @property
    def words(self) -> str:
        """In the router's own spelling, which is safe to place into a question."""
        number = f"{self.number.normalize():f}"
        return f"{number} {self.unit}" if self.unit else number


@dataclass(frozen=True, slots=True)
class Written:
    """A quantity and where in its text it begins."""

    quantity: Quantity
    at: int


def unit_kind(word: str) -> Kind | None:
    found = _UNITS.get(word.lower())
    return found[0] if found else None


def units_in(text: str) -> frozenset[tuple[Kind, str]]:
    """Units that a text names, each with its kind."""
    return frozenset(_UNITS[match["unit"].lower()] for match in _IN_UNIT.finditer(text))


def kinds_in(text: str) -> frozenset[Kind]:
    """Kinds of quantity that a text names as units."""
    return frozenset(kind for kind, _ in units_in(text))


def parse_quantities(text: str) -> list[Written] | None:
    """In order. None where digits are left that are neither a quantity nor known to be none. Places are those of `text`."""
    if _IN_WORDS.search(text) or any(char.isnumeric() and not ("0" <= char <= "9") for char in text):
        return None
    # as long as what it stands for, so that places stay
    left = _NO_QUANTITY.sub(lambda match: _MARK.rjust(len(match[0])), text)
    words = list(_WORD.finditer(left))
    found: list[Written] = []
    for at, word in enumerate(words):
        if any(map(str.isdigit, word[0])):
            written = _parse_word(words, at)
            if written is None:
                return None
            found.append(written)
    return found


def _parse_word(words: Sequence[re.Match[str]], at: int) -> Written | None:
    """The quantity that a word with digits is, by itself and what stands beside it."""
    word = words[at][0].lstrip(_BEFORE)
    bare = word.rstrip(_BEHIND)
    ended = bare != word
    match = _PLAIN.fullmatch(bare)
    before = words[at - 1][0].lower() if at else ""
    if match is None or before.lstrip(_BEFORE) in _NOT_BEFORE or before.endswith(_MARK) or before.rstrip(".")[-1:].isdigit():
        return None
    if word != words[at][0] and words[at][0].rstrip(_BEHIND) != words[at][0] and "(" in words[at][0]:
        return None  # `(500)` is minus 500 in some books
    behind = [one[0] for one in words[at + 1 : at + 3]]
    unit = match["unit"]
    if unit is None and not ended:
        unit, taken, ended = _unit_behind(behind)
        behind = behind[taken:]
    ahead = match["ahead"] or (before.lstrip(_BEFORE) if before.lstrip(_BEFORE) in _AHEAD else None)
    if (unit and (ahead or (unit_kind(unit) is None and unit.lower() not in _COUNTED))) or (
        not ended and behind and not _may_follow(behind[0], has_unit=bool(ahead or unit))
    ):
        return None
    kind, name = _UNITS.get((ahead or unit or "").lower(), ("count", ""))
    number = Decimal(match["number"].replace(",", "") + (match["part"] or ""))
    return Written(Quantity(number, kind, name), words[at].start())


def _unit_behind(behind: Sequence[str]) -> tuple[str | None, int, bool]:
    """The unit that the next words are, how many they are, and whether a sentence or part of it ends in them."""
    for many in (2, 1):
        said = " ".join(behind[:many])
        bare = said.rstrip(_BEHIND)
        if len(behind) >= many and (unit_kind(bare) or bare.lower() in _COUNTED):
            return bare, many, bare != said
    return None, 0, False


def _may_follow(word: str, *, has_unit: bool) -> bool:
    first = word.lower().rstrip(_BEHIND)
    if has_unit:
        return first not in _NOT_BEHIND and not any(char in _MARK or char.isdigit() for char in word)
    return first in _MAY_FOLLOW or word[0] == ";"
