"""The one number that passages give to a description: "the amount that a technician may give away" -> 400 euro.

Read from sentences and cells of tables by rules. A piece of text answers only where it says a limit, holds now by all that stands
around it, and has exactly one quantity in a clause, or a cell, that is about whom the description is about and, together with its
headings, holds every word of it that names something. What holds most of them beside the number wins; where two that differ hold
as many, all are told; where what holds most cannot be read, or nothing holds enough, nothing is read and nothing is guessed: a
wrong number is far worse than a question back.

INVARIANT: what is read is a `Quantity`: a plain decimal number and a unit of the few that `numerals.py` knows; whatever else a
document says is never part of it (tests/unit/test_routing_steps.py::test_a_hostile_document_gives_a_number_or_nothing).
INVARIANT: a number is read of its own clause alone (…::test_a_number_belongs_to_its_own_clause).
INVARIANT: text that says of itself, or stands under a heading which says, that it does not hold gives nothing
(…::test_what_does_not_hold_is_not_read).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from router.domain import Passage
from router.routing.gates import content_tokens
from router.routing.numerals import MONTHS, Kind, Quantity, parse_quantities, units_in
from router.routing.pieces import LONGEST_NEAR, LONGEST_TEXT, Piece, cut_pieces

MOST_PASSAGES, MOST_OPTIONS = 5, 3
LARGEST = Decimal(10) ** 9

_SAID_IN = re.compile(r"\bin\s+(?:full\s+)?(?=(?P<unit>\S{1,12}(?:\s+cent\b)?))", re.IGNORECASE)
_SCALED = re.compile(
    r"\b(?:in|of|all)?\s*(?:hundreds?|thousands?|millions?|tsd|mio|k\s?(?:eur|euro|€))(?!\w)|['\u2019]000\b|\b000s\b",
    re.IGNORECASE,
)
"""Said of a whole table, its numbers are not what they look like."""
_MONTH = "|".join(f"{month}[a-z]*" for month in MONTHS)
_DAY = (
    rf"(?:\d{{1,2}}[./]){{0,2}}(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+)?(?:(?P<month>{_MONTH})\s+(?:(?P<day_behind>\d{{1,2}})(?:st|nd|rd|th)?,?\s+)?)?"
    r"(?P<year>20\d\d)(?:-(?P<mm>\d\d)(?:-(?P<dd>\d\d))?)?\b(?!\s*[\u20ac$\u00a3%]|\s+(?:euros?|eur|dollars?|pounds?|days?|hours?|pieces)\b)"
)
_HOLDS_FROM = re.compile(
    rf"\b(?:from|as of|as from|since|on|starting|beginning|effective|after):?\s+(?:[a-z]+\s+)?{_DAY}", re.IGNORECASE
)
_HELD_UNTIL = re.compile(rf"\b(?:until|till|ended|ends|expire[sd]?):?\s+(?:[a-z]+\s+){{0,3}}?{_DAY}", re.IGNORECASE)
_IN_YEAR = re.compile(r"\b(?:in|for|during)\s+(?:[a-z]+\s+)?(?P<year>20\d\d)\b", re.IGNORECASE)
_LIMITS = re.compile(
    r"\b(?:up to|at (?:most|least)|no (?:more|less|later) than|not (?:more|less|exceed)|more than|less than|above|below|beyond|over|under|"
    r"max(?:imum)?|min(?:imum)?|limit\w*|may|must|can|cannot|allow\w*|permit\w*|within|ceiling|threshold|deadline|latest|entitle\w*|"
    r"quota|cap(?:ped)?|require\w*|right to)\b",
    re.IGNORECASE,
)
_DOES = re.compile(
    r"\b(?:may|must|can|cannot|should|is|are|up to|at (?:most|least)|(?:no|not) (?:more|less|later)|approves?|gives?|signs?|within)\b",
    re.IGNORECASE,
)
"""Where what a sentence says of somebody begins: whom it is about stands before, or behind `by`."""
_NOT_NOW = re.compile(
    r"\b(?:was|were|used to|formerly|previously|no longer|until (?:the end of )?(?:\w+ )?(?:19|20)\d\d|before (?:19|20)\d\d|"
    r"for example|e\.g\.|raised from|from \d\S* to \d)\b",
    re.IGNORECASE,
)
_RULE = (
    r"(?:rules?|limits?|versions?|polic(?:y|ies)|tables?|pages?|documents?|sections?|guid\w+|amounts?|numbers?|figures?|terms|handbook|"
    r"manual|rates?|sums?|this|these|they)"
)
_VOID = re.compile(
    r"\bno longer\s+(?:valid|hold\w*|appl\w+|in (?:force|use)|used|current|effective|binding|true)\b|"
    r"\b(?:not|never)\s+(?:yet\s+|been\s+|yet been\s+)?(?:adopted|approved|agreed|accepted|valid|binding|in force|effective|decided|final|"
    r"released|current)\b|"
    rf"\b{_RULE}\s+(?:\w+\s+){{0,4}}?(?:was|were|is|are|been|be|being)\s+(?:\w+\s+)?(?:replaced|cancell?ed|suspended|annulled|void|invalid|"
    r"retired|abolished|expired|changed|raised|lowered|planned|suggested)\b|"
    r"\b(?:withdrawn|superseded|repealed|revoked|rescinded|obsolete|outdated|out of date|lapsed|deprecated|discontinued|archived)\b|"
    r"\b(?:drafts?|proposals?|proposed|under (?:review|discussion|consultation)|for (?:discussion|comment)|"
    r"to be (?:confirmed|decided|agreed|adopted|approved)|tbd|tbc|fictional|fictitious|ceased to)\b|"
    rf"\b{_RULE}\s+(?:\w+\s+){{0,4}}?will\s+(?:apply|hold|be (?:valid|in force)|rise|fall|change|become|come into)\b|"
    r"\b(?:from|as of|starting|beginning)\s+(?:the\s+)?(?:next|coming)\s+(?:year|month|quarter|week)\b",
    re.IGNORECASE,
)
"""What a text says of itself where it does not hold, or not yet."""
_FORMER = re.compile(
    r"\b(?:former(?:ly)?|previous(?:ly)?|historic(?:al)?|history|examples?|(?:old|older|earlier|past)\s+(?:\w+\s+)?"
    r"(?:rules?|limits?|versions?|polic(?:y|ies)|tables?|rates?|amounts?|sums?))\b",
    re.IGNORECASE,
)
"""The same of a heading, or of the words before a table."""
_OTHER_ROLE = re.compile(
    r"\b(?:trainee|apprentice|junior|senior|deputy|assistant|acting|interim|vice|external|temporary|freelance|retired|intern|probationary|"
    r"together|jointly|combined|both)\b",
    re.IGNORECASE,
)
"""A trainee adjuster is no adjuster, and two of them are not one."""
_CONDITION = re.compile(
    r"\b(?:unless|except|excluding|without|if|when|only|provided|otherwise|instead|exceed\w*|more than)\b", re.IGNORECASE
)
_RATE = re.compile(
    r"(?:/|\b(?:per|an?|each|every|in\s+an?)\b)\s*(?P<period>minute|hour|day|night|week|month|quarter|year|shift)\b|"
    r"\b(?P<often>daily|nightly|weekly|monthly|yearly|annual|hourly)(?:ly)?\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?<![\w.,-])(?:19|20)\d\d(?![\w.,-])")
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=[#|*-])|\|")
_FOR_WHOM = re.compile(r"^\s*(?:for|with|of|to|under)\s+(?:\w+\s+)?\w+\s+(?=(?:an?|the|our|each|every)\s)", re.IGNORECASE)
_CLAUSE = re.compile(
    r"[,:;()]\s+|\s[\u2013\u2014-]\s|\s\(|\s(?:and|or|but|while|whereas|who|which|whose|whom|that|unlike)\s", re.IGNORECASE
)
_OF_WHOM = re.compile(
    r"^(?:what|whatever|.*?\b(?:that|which|what))?\s*(?P<whom>[^,]*?)\s+(?:may|can|could|must|should|is\s+allowed|are\s+allowed|has\s+to|have\s+to)\b|"
    r"^(?:the\s+|an?\s+|our\s+)?(?P<whose>[\w -]+?)['\u2019]s?\s",
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
_STEM = re.compile(r"(?:'s|ing|ies|ed|es|s|e|y|um)$")


@dataclass(frozen=True, slots=True)
class Supported:
    """A quantity and which of the passages says it (from 0)."""

    quantity: Quantity
    passage: int


def stem(word: str) -> str:
    word = word.lower()
    while len(word) > 4 and (shorter := _STEM.sub("", word)) != word and len(shorter) >= 3:
        word = shorter
    return word


def is_generic(word: str) -> bool:
    return word in _GENERIC


@dataclass(frozen=True, slots=True)
class _Sought:
    """Stems: all that have to stand somewhere, and of them whom it is about. `units` are those that the description names."""

    required: frozenset[str]
    whole: bool
    whom: frozenset[str]
    units: frozenset[tuple[Kind, str]]
    wanted: frozenset[Kind]
    words: str
    about: frozenset[str]


def _stems(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in content_tokens(text))


def _sought(description: str, about: str, wanted: frozenset[Kind]) -> _Sought:
    named = frozenset(word for word in _stems(description) if not is_generic(word))
    required = named or frozenset(word for word in _stems(about) if not is_generic(word))
    match = _OF_WHOM.match(description)
    whom = _stems(match["whom"] or match["whose"] or "") & named if match else frozenset()
    return _Sought(required, bool(named), whom, units_in(description), wanted, description, _stems(about) | _stems(description))


def read_quantities(
    description: str, about: str, wanted: frozenset[Kind], passages: Sequence[Passage], today: date
) -> tuple[Supported, ...]:
    """One where the passages agree on what is supported best, several (at most three) where they do not, none where nothing is.

    `about` is what is counted, for a description that names nothing of its own (`the limit that the policy sets`)."""
    sought = _sought(description, about, wanted)
    best: dict[Quantity, int] = {}
    top, unclear = 0, False
    for at, passage in enumerate(passages):
        holds = _holds(passage, today)
        for piece in cut_pieces(passage):
            score = _support(piece, sought)
            if not score or score < top or _is_to_come(piece.own, today):
                continue
            fitting = _fitting(piece, sought, today)
            if fitting == []:
                continue  # it speaks of something else, a time where a sum is asked for
            if score > top:
                best, top, unclear = {}, score, False
            if fitting is None or not holds or (piece.is_cell and _FORMER.search(piece.lead)):
                unclear = True  # what says it best cannot be read: what says it less well is no answer
            else:
                best.setdefault(fitting[0], at)
    return () if unclear else tuple(Supported(quantity, at) for quantity, at in best.items())[:MOST_OPTIONS]


def _holds(passage: Passage, today: date) -> bool:
    """Whether neither its heading nor its text says that it does not, or only later."""
    heading = " . ".join((passage.title, *passage.heading_path))[:LONGEST_NEAR]
    # what stands in one paragraph is not said of the next
    said = f"{heading} . {_PARAGRAPH.sub(' . ', passage.text[:LONGEST_TEXT])}"
    later = passage.effective_from is not None and passage.effective_from > today.isoformat()
    ended = any(_day(match)[:2] < (today.year, today.month) for match in _HELD_UNTIL.finditer(said))
    return not (later or ended or _FORMER.search(heading) or _VOID.search(said) or _is_to_come(said, today))


def _support(piece: Piece, sought: _Sought) -> int:
    """How much speaks for it: what stands beside the number counts twice. 0 where it says no limit, or something is missing."""
    # what a heading says of a whole table holds for its cells; of a sentence, only what it says itself
    said = f"{piece.own}\n{piece.near}" if piece.is_cell else piece.own
    required = sought.required
    if not required or _NOT_NOW.search(piece.own) or not _LIMITS.search(said):
        return 0
    own, near = _stems(piece.own), _stems(piece.near)
    missing = required - own - near
    if not required & own or (missing if sought.whole else len(missing) * 2 > len(required)):
        return 0
    return 2 * len(required & own) + len((required & near) - own)


def _is_to_come(text: str, today: date) -> bool:
    """Whether it says of itself that it holds from a later day on."""
    return any(_day(match) > (today.year, today.month, today.day) for match in _HOLDS_FROM.finditer(text))


def _day(match: re.Match[str]) -> tuple[int, int, int]:
    """The first of a month or a year; the last month of a year that something held until."""
    least = 12 if match.re is _HELD_UNTIL else 1
    month = MONTHS.index(match["month"][:3].lower()) + 1 if match["month"] else int(match["mm"] or least)
    return int(match["year"]), month, int(match["day"] or match["day_behind"] or match["dd"] or 1)


def _fitting(piece: Piece, sought: _Sought, today: date) -> list[Quantity] | None:
    """The only quantity that is said of what is sought, in the unit beside it or the one that its heading gives it; none where none is
    of a wanted kind, None where there are several, or something that is not read."""
    written = parse_quantities(piece.value)
    if written is None or _SCALED.search(f"{piece.header}\n{piece.near}") or _OTHER_ROLE.search(_unsaid(piece.own, sought.words)):
        return None
    typed = [(one.at, _typed(one.quantity, piece)) for one in written]
    if not any(not sought.wanted or one.kind in sought.wanted for _, one in typed):
        return []
    years = {match["year"] for match in _IN_YEAR.finditer(f"{piece.own} \n {piece.lead}")}
    years |= set(_YEAR.findall(f"{piece.label} \n {piece.header}"))
    if any(int(year) != today.year and year not in sought.words for year in years):
        return None
    if piece.is_cell:
        found = [one for _, one in typed] if len(typed) == 1 and not _is_changed(piece.own, sought, piece.value) else []
    else:
        found = _of_its_clause(piece, sought, typed)
    if len(found) != 1 or found[0].number > LARGEST:
        return None
    (one,) = found
    if sought.wanted and one.kind not in sought.wanted:
        return []
    return None if one.kind == "money" and _money(sought.units) - {one.unit} else [one]


def _money(units: frozenset[tuple[Kind, str]]) -> set[str]:
    return {unit for kind, unit in units if kind == "money"}


def _unsaid(text: str, words: str) -> str:
    """A text without the words that the description says, too."""
    said = set(words.lower().split())
    return " ".join(word for word in text.split() if word.lower().strip(".,;:") not in said)


def _is_changed(text: str, sought: _Sought, value: str) -> bool:
    """Whether the number holds for a time, or on a condition, that the description does not name."""
    periods = {stem(match["period"] or match["often"]) for match in _RATE.finditer(text)}
    said = {stem(word) for word in re.findall(r"[a-z]+", sought.words.lower())}
    return bool(periods - said) or _CONDITION.search(_unsaid(value, sought.words)) is not None


def _of_its_clause(piece: Piece, sought: _Sought, typed: Sequence[tuple[int, Quantity]]) -> list[Quantity]:
    """Quantities that stand alone in a clause which is about what is sought."""
    starts = [0, *(match.end() for match in _CLAUSE.finditer(piece.value))]
    clauses = [(start, piece.value[start:end]) for start, end in zip(starts, [*starts[1:], len(piece.value)], strict=True)]
    # "For storm damage, an adjuster may ...", "Adjusters: up to ...": said of what follows
    leads = len(clauses) > 1 and re.match(r"\s*(?:for|in|with|on)\b|.*:\s+$", clauses[0][1], re.IGNORECASE)
    first = clauses[0][1] if leads else ""
    found: list[Quantity] = []
    for start, text in clauses:
        places = [at for at, _ in typed if start <= at < start + len(text)]
        inside = [one for at, one in typed if at in places]
        if not inside:
            continue
        if not _is_about(text, first if start else "", piece.near, sought):
            if not _stems(re.split(r"\d", text)[0]) - _GENERIC:
                return []  # "or 600 euro with a second signature": of whom the clause before speaks
            continue
        if (
            len(inside) > 1
            or _is_changed(piece.value, sought, piece.value)
            or _is_of_else(piece.value[start : places[0]], sought)
        ):
            return []
        found += inside
    return found


def _is_of_else(before: str, sought: _Sought) -> bool:
    """Whether what somebody may do up to the number is something that nobody asked about: "may claim a meal allowance up to"."""
    does = _DOES.search(before)
    said = _stems(_LIMITS.sub(" ", before[does.end() :])) if does and sought.whom else frozenset()
    return bool(said - _GENERIC - sought.about - sought.required)


def _is_about(clause: str, first: str, near: str, sought: _Sought) -> bool:
    """Whether a clause names whom it is about before what it says of them, and lacks nothing that was sought."""
    does = _DOES.search(clause)
    subject = clause[: does.start()] if does else clause
    if first.rstrip().endswith(":") and not _stems(subject) - _GENERIC:
        clause, subject, first = f"{first} {clause}", f"{first} {subject}", ""
    own = _stems(clause)
    missing = sought.required - own - _stems(first) - _stems(near)
    if not sought.whom <= own or not sought.required & (own | _stems(first)):
        return False
    if missing if sought.whole else len(missing) * 2 > len(sought.required):
        return False
    # of "for adjusters a manager may", whom it is about is the manager
    subject = _FOR_WHOM.sub("", subject)
    behind = re.search(r"\bby\b", clause, re.IGNORECASE)
    return sought.whom <= _stems(subject) or (behind is not None and sought.whom <= _stems(clause[behind.end() :]))


def _typed(quantity: Quantity, piece: Piece) -> Quantity:
    if quantity.kind != "count":
        return quantity
    said = units_in(piece.header) or units_in(" ".join(match["unit"] for match in _SAID_IN.finditer(piece.near)))
    if len(said) != 1:
        return quantity
    ((kind, unit),) = said
    return Quantity(quantity.number, kind, unit)
