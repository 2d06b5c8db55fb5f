"""The values of a tool's parameters, as they stand in a question: typed, in range, behind their cue.

A value that is not valid is none: its words then have to be explained by something else, and numbers never are.

INVARIANT: every type takes what it says and nothing else (tests/sql/tools/test_tools.py::test_types_of_parameters).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Literal

from router.sql.form import Ref, Scalar
from router.sql.tool_text import Token, fold_words

Type = Literal["text", "int", "num", "date", "enum", "ref"]
MAX_PATTERNED = 64
MAX_DIGITS = 15
_BETWEEN = frozenset("the a an number of is nr".split())
_CURRENCIES = frozenset({"euro", "dollar"})
_MONTHS = {
    name: number
    for number, names in enumerate(
        "january jan|february feb|march mar|april apr|may may|june jun|july jul|august aug|september sep sept|october oct|november nov"
        "|december dec".split("|"),
        start=1,
    )
    for name in names.split()
}
_DAY_OF_MONTH = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?")

Phrases = Mapping[tuple[str, ...], tuple[str, ...]]
"""Folded words of stored values, each with its stored spellings."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """`cues` are folded; where there are any, one must stand before the value. `least` and `most` are of the value's own type."""

    name: str
    type: Type
    field: Ref | None = None
    pattern: str = ""
    values: tuple[str, ...] = ()
    least: Decimal | date | None = None
    most: Decimal | date | None = None
    required: bool = True
    cues: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """One value, the tokens that are it, and those of the cue before it."""

    name: str
    value: Scalar
    said: str
    tokens: tuple[int, ...]
    cue: tuple[int, ...]

    def take(self, taken: dict[int, str]) -> None:
        taken.update(dict.fromkeys(self.tokens, self.name))
        taken.update(dict.fromkeys(self.cue, ""))


NO_SLOTS: Mapping[str, Parameter] = MappingProxyType({})


def build_phrases(values: Iterable[str], quoted_only: Callable[[tuple[str, ...]], bool] = lambda _: False) -> Phrases:
    """What can be asked for by name. A stored value that reads like a part of the question can be asked for in quotes only."""
    phrases: dict[tuple[str, ...], tuple[str, ...]] = {}
    for value in values:
        words = fold_words(value)
        key = ("\0", value.casefold()) if not words or quoted_only(words) else words
        phrases[key] = (*phrases.get(key, ()), value)
    return phrases


def find_values(
    parameter: Parameter,
    tokens: tuple[Token, ...],
    taken: Mapping[int, str],
    today: date,
    *,
    phrases: Phrases | None = None,
    slots: Mapping[str, Parameter] = NO_SLOTS,
) -> list[Found]:
    """Every place where a value of the parameter stands. `slots` are names in braces that an example has for values."""
    found = []
    last = 0
    for first, after, value in _read(parameter, tokens, today, phrases or {}):
        if first < last or any(at in taken for at in range(first, after)):
            continue
        cue = _cue(parameter, tokens, first)
        if cue is not None:
            found.append(_found(parameter, tokens, first, after, value, cue))
            last = after
    for at, token in enumerate(tokens if slots else ()):
        other = slots.get(token.text) if token.kind == "slot" and at not in taken else None
        if other is not None and _takes(parameter, other) and (cue := _cue(parameter, tokens, at)) is not None:
            found.append(_found(parameter, tokens, at, at + 1, sample(parameter), cue))
    return found


def _takes(parameter: Parameter, other: Parameter) -> bool:
    """Whether what one parameter takes may be a value of the other."""
    return (parameter.type, parameter.pattern, parameter.values) == (other.type, other.pattern, other.values)


def _found(parameter: Parameter, tokens: tuple[Token, ...], first: int, after: int, value: Scalar, cue: tuple[int, ...]) -> Found:
    said = " ".join(token.text for token in tokens[first:after])
    return Found(parameter.name, value, said, tuple(range(first, after)), cue)


def _cue(parameter: Parameter, tokens: tuple[Token, ...], first: int) -> tuple[int, ...] | None:
    """The tokens of the cue that ends before `first`, articles and currencies aside; () where none is needed."""
    if not parameter.cues:
        return ()
    at = first
    between: list[int] = []
    while True:
        for cue in sorted(parameter.cues, key=len, reverse=True):
            if tuple(token.word for token in tokens[max(0, at - len(cue)) : at]) == cue:
                return (*range(at - len(cue), at), *between)
        if at == 0 or first - at == 3 or tokens[at - 1].word not in _BETWEEN | _CURRENCIES:
            return None
        at -= 1
        if tokens[at].word in _BETWEEN:
            between.append(at)


def _read(parameter: Parameter, tokens: tuple[Token, ...], today: date, phrases: Phrases) -> Iterator[tuple[int, int, Scalar]]:
    match parameter.type:
        case "int" | "num":
            found = _numbers(tokens, whole=parameter.type == "int")
            yield from ((at, at + 1, value) for at, value in found if _within(Decimal(value), parameter))
        case "date":
            yield from (one for one in _dates(tokens, today) if _within(one[2], parameter))
        case "text":
            yield from ((at, at + 1, value) for at, value in _texts(parameter, tokens))
        case "enum" | "ref":
            yield from _named(tokens, phrases)


def _within(value: Decimal | date, parameter: Parameter) -> bool:
    least, most = parameter.least, parameter.most
    return (least is None or value >= least) and (most is None or value <= most)  # type: ignore[operator]


# --- numbers --------------------------------------------------------------------------------------------------------------


def _numbers(tokens: tuple[Token, ...], *, whole: bool) -> Iterator[tuple[int, int | Decimal]]:
    for at, token in enumerate(tokens):
        if token.kind == "number" and (value := parse_number(token.text)) is not None:
            if not whole:
                yield at, value
            elif value == value.to_integral_value():
                yield at, int(value)


def parse_number(text: str) -> Decimal | None:
    """`1500`, `1,500`, `1500.50`, `25k`. `1.500` is a thousand to some and one and a half to others, so it is none."""
    match = re.fullmatch(r"(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?([km]?)", text.casefold())
    if match is None or len(match[1]) > MAX_DIGITS or (match[2] and (len(match[2]) == 4 or len(match[2]) > MAX_DIGITS)):
        return None
    factor = {"": 1, "k": 1_000, "m": 1_000_000}[match[3]]
    return Decimal(match[1].replace(",", "") + (match[2] or "")) * factor


# --- days -----------------------------------------------------------------------------------------------------------------


def _dates(tokens: tuple[Token, ...], today: date) -> Iterator[tuple[int, int, date]]:
    """Days that are written out with their year, and yesterday and today. Others depend on who reads them."""
    for at, token in enumerate(tokens):
        if token.kind == "day":
            numbers = [int(part) for part in re.split(r"[-.]", token.text)]
            day = _day(*(numbers if "-" in token.text else numbers[::-1]))
            if day is not None:
                yield at, at + 1, day
        elif token.kind == "word" and token.word in ("today", "yesterday") and today > date.min:
            yield at, at + 1, today - timedelta(days=token.word == "yesterday")
        elif written := _written(tokens, at):
            yield written


def _written(tokens: tuple[Token, ...], at: int) -> tuple[int, int, date] | None:
    """`1 November 2026`, `the 1st of November 2026`, `November 1, 2026`."""
    part = [token.word for token in tokens[at : at + 4]]
    if len(part) > 1 and part[1] == "of":
        part, length = [part[0], *part[2:]], 4
    else:
        part, length = part[:3], 3
    if len(part) != 3:
        return None
    day, month = (part[1], part[0]) if part[0] in _MONTHS and length == 3 else (part[0], part[1])
    number = _DAY_OF_MONTH.fullmatch(day)
    if month not in _MONTHS or number is None or not re.fullmatch(r"[12]\d{3}", part[2]):
        return None
    found = _day(int(part[2]), _MONTHS[month], int(number[1]))
    return None if found is None else (at, at + length, found)


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


# --- texts ----------------------------------------------------------------------------------------------------------------


def _texts(parameter: Parameter, tokens: tuple[Token, ...]) -> Iterator[tuple[int, str]]:
    """What the pattern fits, in the case in which it fits; without a pattern only what stands in quotes."""
    for at, token in enumerate(tokens):
        text = token.text
        if not parameter.pattern:
            if token.kind == "quoted" and text.isprintable() and text.strip():
                yield at, text
        elif token.kind in ("word", "number", "quoted") and len(text) <= MAX_PATTERNED:
            spelt = next((one for one in (text, text.upper(), text.lower()) if re.fullmatch(parameter.pattern, one)), None)
            if spelt is not None:
                yield at, spelt


def _named(tokens: tuple[Token, ...], phrases: Phrases) -> Iterator[tuple[int, int, str]]:
    """The longest stored values first from each place on; two spellings of the same words are told apart by the question's own."""
    longest = max((len(words) for words in phrases), default=0)
    at = 0
    while at < len(tokens):
        size, value = _named_at(tokens, at, phrases, longest)
        if value is not None:
            yield at, at + size, value
        at += size


def _named_at(tokens: tuple[Token, ...], at: int, phrases: Phrases, longest: int) -> tuple[int, str | None]:
    if tokens[at].kind == "quoted":
        whole = (*phrases.get(fold_words(tokens[at].text), ()), *phrases.get(("\0", tokens[at].word), ()))
        return 1, _spelling(whole, tokens[at].text)
    for size in range(min(longest, len(tokens) - at), 0, -1):
        part = tokens[at : at + size]
        if spellings := phrases.get(tuple(token.word for token in part)):
            return size, _spelling(spellings, " ".join(token.text for token in part))
    return 1, None


def _spelling(spellings: tuple[str, ...], said: str) -> str | None:
    return spellings[0] if len(set(spellings)) == 1 else said if said in spellings else None


# --- samples --------------------------------------------------------------------------------------------------------------


def sample(parameter: Parameter) -> Scalar:
    """A value of the parameter's type, to see whether a form with it can be made."""
    least = parameter.least
    match parameter.type:
        case "int":
            return int(least) if isinstance(least, Decimal) else 1
        case "num":
            return least if isinstance(least, Decimal) else Decimal(1)
        case "date":
            return least if isinstance(least, date) else date(2000, 1, 1)
        case "enum":
            return parameter.values[0] if parameter.values else ""
        case "text" | "ref":
            return "x"
