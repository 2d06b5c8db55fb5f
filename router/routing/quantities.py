"""The one number that passages give to a description: "the amount that a technician may give away" -> 400 euro.

Read from sentences and cells of tables by rules. A piece of text answers only where it says a limit, holds exactly one quantity,
and together with its headings holds every word of the description that names something. What holds most of them beside the
number wins; where two that differ hold as many, all are told; where what holds most cannot be read, or nothing holds enough,
nothing is read and nothing is guessed.

INVARIANT: what is read is a `Quantity`: a plain decimal number and a unit of the few that stand here; whatever else a document
says is never part of it (tests/unit/test_routing_steps.py::test_a_hostile_document_gives_a_number_or_nothing).
INVARIANT: digits that are not read as the one quantity (ranges, negative numbers, powers, other scripts' digits, decimal commas)
make their piece of text unreadable, not nearly right (…::test_numbers_that_are_not_certain_are_not_read).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal

from router.domain import Passage
from router.routing.gates import content_tokens

Kind = Literal["money", "minutes", "hours", "days", "weeks", "months", "years", "percent", "count"]
DURATIONS: frozenset[Kind] = frozenset({"minutes", "hours", "days", "weeks", "months", "years"})

MOST_PASSAGES, MOST_PIECES, MOST_OPTIONS = 5, 600, 3
LONGEST_TEXT, LONGEST_PIECE, LONGEST_NEAR = 20_000, 600, 1_000
"""A sentence of a rule is short: what is longer is no sentence, and could be made to take its reader's time."""
LARGEST = Decimal(10) ** 9

_UNITS: dict[str, tuple[Kind, str]] = {
    **dict.fromkeys("euro euros eur €".split(), ("money", "euro")),
    **dict.fromkeys("dollar dollars usd $".split(), ("money", "dollars")),
    **dict.fromkeys("pound pounds gbp £".split(), ("money", "pounds")),
    **{word: (kind, kind) for kind in sorted(DURATIONS) for word in (kind, kind[:-1])},
    **dict.fromkeys(("percent", "per cent", "%", "pct"), ("percent", "percent")),
}
_UNIT = "|".join(sorted((re.escape(word) for word in _UNITS), key=len, reverse=True))
_QUANTITY = re.compile(
    rf"(?:(?P<ahead>€|\$|£|(?:eur|usd|gbp)\b)\s?)?(?<![\w.,:/+\-\u2212\u2013#§])(?P<number>\d{{1,3}}(?:,\d{{3}})+|\d{{1,9}})(?P<part>\.\d{{1,2}})?"
    rf"(?![\d.,:/\-\u2212\u2013]*\d)(?:[\s-]?(?P<unit>{_UNIT})(?![a-z])|(?![\w%]))",
    re.IGNORECASE | re.ASCII,
)
_IN_UNIT = re.compile(rf"(?:\bin\s+|\(\s*|\b)(?P<unit>{_UNIT})(?![a-z])", re.IGNORECASE)
_SAID_IN = re.compile(rf"\bin\s+(?:full\s+)?(?P<unit>{_UNIT})(?![a-z])", re.IGNORECASE)
_MONTH = r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
_NO_QUANTITY = re.compile(
    rf"\b\d{{1,2}}(?:st|nd|rd|th)?\s+{_MONTH}\b(?:\s+\d{{4}}\b)?|\b{_MONTH}\s+\d{{4}}\b|\b\d{{4}}-\d\d(?:-\d\d)?\b|"
    r"\b(?:in|since|from|until|of|by|before|after)\s+(?:19|20)\d\d\b|\b\d{1,2}:\d\d\b|"
    r"\b(?:version|section|chapter|page|line|row|step|level|depot|region|zone|table|form|rule|article|paragraph|annex|class|type|phase|"
    r"tier|note|no\.?|number|band|grade|group|shift|building|gate|bay|clause|item|point|day|week)\s+\d+(?:\.\d+)*\b(?!\s*(?:%|euro))|"
    r"^\s*(?:[-*]\s+)?\d+(?:\.\d+)*[.)]\s|\b[A-Za-z][A-Za-z_/.-]*\d[\w./-]*|§\s*\d+",
    re.IGNORECASE,
)
"""Days, times, places in a document, identifiers: digits that are no quantity."""
_IN_WORDS = re.compile(
    rf"\d\s*(?:hundred|thousand|million|billion|dozen|mio|bn)\b|"
    rf"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|sixty|ninety|hundred|"
    rf"thousand|million|dozen|half)\s+(?:{_UNIT}|hundred|thousand|million|working|calendar)(?![a-z])",
    re.IGNORECASE,
)
"""Numbers in words, and words that change a number: they are not read, so what they stand in is not."""
_SCALED = re.compile(
    r"\b(?:in|of|all)?\s*(?:thousands?|millions?|tsd|mio|k\s?(?:eur|euro|€))(?!\w)|['\u2019]000\b|\b000s\b", re.IGNORECASE
)
"""Said of a whole table, its numbers are not what they look like."""
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_HOLDS_FROM = re.compile(
    rf"\b(?:from|as of|as from|starting|beginning|after)\s+(?:\d{{1,2}}(?:st|nd|rd|th)?\s+)?(?:(?P<month>{_MONTH})\s+)?(?P<year>20\d\d)\b",
    re.IGNORECASE,
)
_LIMITS = re.compile(
    r"\b(?:up to|at (?:most|least)|no (?:more|less|later) than|not (?:more|less|exceed)|more than|less than|above|below|beyond|over|under|"
    r"max(?:imum)?|min(?:imum)?|limit\w*|may|must|can|cannot|allow\w*|permit\w*|within|ceiling|threshold|deadline|latest|entitle\w*|"
    r"quota|cap(?:ped)?|require\w*|right to)\b",
    re.IGNORECASE,
)
_NOT_NOW = re.compile(
    r"\b(?:was|were|used to|formerly|previously|no longer|until (?:the end of )?(?:\w+ )?(?:19|20)\d\d|before (?:19|20)\d\d|"
    r"for example|e\.g\.|raised from|from \d\S* to \d)\b",
    re.IGNORECASE,
)
_GENERIC = frozenset(
    """
    limit amount sum value maxim minim max min threshold ceil cap number allowanc quota deadlin period time rate term notic polic
    rul handbook guidelin law regulat contract agreement docum page company set say stat giv away grant allow permit approv authoris
    authoriz sign spend accept requir demand forese prescrib lay down nam charg pay decid agre someon anyon somebody anybody person
    peopl staff own own ask asking without call writ written count quantit percentag share level mark bar target euro dollar pound
    day hour week month year minut percent cent price cost budget fee age duration standard manual bulletin warrant
    """.split()
)
"""Stems of what a description calls its number, its rule and the deed: no document need say the same ones."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*\"(\d])|;\s+")
_STEM = re.compile(r"(?:'s|ing|ies|ed|es|s|e|y|um)$")


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
class Supported:
    """A quantity and which of the passages says it (from 0)."""

    quantity: Quantity
    passage: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """One sentence, or one cell with what stands beside it: `own` is said with the number, `near` around it."""

    value: str
    own: str
    near: str
    header: str = ""
    is_cell: bool = False


def stem(word: str) -> str:
    word = word.lower()
    while len(word) > 4 and (shorter := _STEM.sub("", word)) != word and len(shorter) >= 3:
        word = shorter
    return word


def is_generic(word: str) -> bool:
    return word in _GENERIC


def unit_kind(word: str) -> Kind | None:
    found = _UNITS.get(word.lower())
    return found[0] if found else None


def kinds_in(text: str) -> frozenset[Kind]:
    """Kinds of quantity that a text names as units."""
    return frozenset(_UNITS[match["unit"].lower()][0] for match in _IN_UNIT.finditer(text))


def read_quantities(
    description: str, about: str, wanted: frozenset[Kind], passages: Sequence[Passage], today: date
) -> tuple[Supported, ...]:
    """One where the passages agree on what is supported best, several (at most three) where they do not, none where nothing is.

    `about` is what is counted, for a description that names nothing of its own (`the limit that the policy sets`)."""
    named = {word for word in map(stem, content_tokens(description)) if not is_generic(word)}
    required = named or {word for word in map(stem, content_tokens(about)) if not is_generic(word)}
    best: dict[Quantity, int] = {}
    top, unclear = 0, False
    for at, passage in enumerate(passages[:MOST_PASSAGES]):
        for piece in _pieces(passage):
            score = _support(piece, required, whole=bool(named))
            if not score or score < top or _is_to_come(piece.own, today):
                continue
            fitting = _fitting(piece, wanted)
            if fitting == []:
                continue  # it speaks of something else, a time where a sum is asked for
            if score > top:
                best, top, unclear = {}, score, False
            if fitting is None:
                unclear = True  # what says it best cannot be read: what says it less well is no answer
            else:
                best.setdefault(fitting[0], at)
    return () if unclear else tuple(Supported(quantity, at) for quantity, at in best.items())[:MOST_OPTIONS]


def _support(piece: _Piece, required: set[str], *, whole: bool) -> int:
    """How much speaks for it: what stands beside the number counts twice. 0 where it says no limit, or something is missing."""
    # what a heading says of a whole table holds for its cells; of a sentence, only what it says itself
    said = f"{piece.own}\n{piece.near}" if piece.is_cell else piece.own
    if not required or _NOT_NOW.search(piece.own) or not _LIMITS.search(said):
        return 0
    own = {stem(word) for word in content_tokens(piece.own)}
    near = {stem(word) for word in content_tokens(piece.near)}
    missing = required - own - near
    if not required & own or (missing if whole else len(missing) * 2 > len(required)):
        return 0
    return 2 * len(required & own) + len((required & near) - own)


def _is_to_come(text: str, today: date) -> bool:
    """Whether it says of itself that it holds from a later month on."""
    for match in _HOLDS_FROM.finditer(text):
        month = MONTHS.index(match["month"][:3].lower()) + 1 if match["month"] else 1
        if (int(match["year"]), month) > (today.year, today.month):
            return True
    return False


def _fitting(piece: _Piece, wanted: frozenset[Kind]) -> list[Quantity] | None:
    """The only quantity that is said, in the unit beside it or the one that its heading gives it; none where none is of a wanted
    kind, None where there are several, or digits that are not read."""
    found = _quantities(piece.value)
    if found is None or _SCALED.search(f"{piece.header}\n{piece.near}"):
        return None
    typed = [_typed(one, piece) for one in found]
    fitting = [one for one in typed if not wanted or one.kind in wanted]
    return None if len(fitting) > 1 or any(one.number > LARGEST for one in fitting) else fitting


def _typed(quantity: Quantity, piece: _Piece) -> Quantity:
    if quantity.kind != "count":
        return quantity
    match = _IN_UNIT.search(piece.header) or _SAID_IN.search(piece.near)
    if match is None:
        return quantity
    kind, unit = _UNITS[match["unit"].lower()]
    return Quantity(quantity.number, kind, unit)


def _quantities(text: str) -> list[Quantity] | None:
    """None where digits are left that are neither a quantity nor known to be none."""
    if _IN_WORDS.search(text) or any(char.isnumeric() and not ("0" <= char <= "9") for char in text):
        return None
    left = _NO_QUANTITY.sub(" ", text)
    found: list[Quantity] = []
    for match in _QUANTITY.finditer(left):
        said = match["ahead"] or match["unit"]
        kind, unit = _UNITS[said.lower()] if said else ("count", "")
        found.append(Quantity(Decimal(match["number"].replace(",", "") + (match["part"] or "")), kind, unit))
    return None if re.search(r"\d", _QUANTITY.sub(" ", left)) else found


# --- pieces of a passage ----------------------------------------------------------------------------------------------


def _pieces(passage: Passage) -> Iterator[_Piece]:
    """Cells and sentences, in order, each with what stands around it."""
    around = " \n ".join((passage.title, *passage.heading_path))[:LONGEST_NEAR]
    lead, rows, many = "", [], 0
    for block in [*_blocks(passage.text[:LONGEST_TEXT]), ("end", "")]:
        kind, text = block
        if kind == "row":
            rows.append(text)
            continue
        for piece in _cells(rows, f"{around} \n {lead}"):
            yield piece
            many += 1
        rows = []
        if kind == "end" or many > MOST_PIECES:
            return
        for sentence in _SENTENCE.split(text):
            if len(sentence) <= LONGEST_PIECE:
                yield _Piece(sentence, sentence, around)
                many += 1
        lead = text[-400:]


def _blocks(text: str) -> Iterator[tuple[Literal["row", "prose", "end"], str]]:
    """Rows of tables line by line; paragraphs and points of lists joined."""
    held: list[str] = []
    for line in [*text.splitlines(), ""]:
        row = " | " in line or line.lstrip().startswith("|")
        if held and (row or not line.strip() or re.match(r"\s*(?:[-*#]|\d+[.)])\s", line)):
            yield "prose", " ".join(held)
            held = []
        if row:
            yield "row", line
        elif line.strip():
            held.append(line.strip())


def _cells(lines: Sequence[str], near: str) -> Iterator[_Piece]:
    """Each cell but those of the first row and of the first column, which say what it is of."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    rows = [row for row in rows if not all(re.fullmatch(r":?-*:?", cell) for cell in row)]
    if not rows:
        return
    header = rows[0]
    for row in rows[1:]:
        if len(row) != len(header):
            continue
        for at in range(1, len(row)):
            own = f"{row[0]} \n {header[at]} \n {row[at]}"
            if any(map(str.isnumeric, row[at])) and len(own) <= LONGEST_PIECE:
                yield _Piece(row[at], own, near, header[at], True)
