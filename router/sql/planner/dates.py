"""Periods in words: "last quarter", "since May 2014", "between 2010 and 2012", "older than 30 days". Half open, from `today`.

A period that is years only also keeps them as numbers, because years are often stored as numbers.
What is not unambiguous (03/04/2015, a weekday, "recently") is no period here and stays unexplained.

INVARIANT: a period is never empty and never reaches outside the calendar (tests/sql/planner/test_plan_dates.py::test_any_period_is_in_order).
"""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from router.sql.planner.tokens import Token
from router.sql.planner.words import GRAINS, MONTHS, TIME_UNITS

FIRST_YEAR, LAST_YEAR = 1000, 2999


@dataclass(frozen=True, slots=True)
class Period:
    """From `start` on, before `end`; None is open. `years` are (first, last) where only years were said, inclusive.

    `age`: said as an age ("older than 30 days"), which only a time field can have."""

    start: date | None
    end: date | None
    years: tuple[int | None, int | None] | None = None
    said: str = ""
    age: bool = False
    bare: bool = False


@dataclass(frozen=True, slots=True)
class _Point:
    """A day, month, quarter or year: its first day and the first day after it."""

    start: date
    end: date
    length: int
    year: int | None = None


def read_period(tokens: Sequence[Token], at: int, today: date) -> tuple[Period, int] | None:
    """The longest period that starts here, and its number of tokens."""
    try:
        return _read(tokens, at, today)
    except (OverflowError, ValueError):
        return None


def _read(tokens: Sequence[Token], at: int, today: date) -> tuple[Period, int] | None:
    word = _low(tokens, at)
    if word in ("between", "from"):
        found = _from_to(tokens, at, today, word)
        if found is not None:
            return found
    if word in _BOUNDS:
        found = _bounded(tokens, at, today)
        if found is not None:
            return found
    found = _age(tokens, at, today)
    if found is not None:
        return found
    skip = 1 if word in ("in", "during", "on", "for", "within", "over", "from", "of") else 0
    skip += int(_low(tokens, at + skip) == "the")
    rolling = _rolling(tokens, at + skip, today)
    if rolling is not None:
        return rolling[0], rolling[1] + skip
    point = _point(tokens, at + skip, today)
    if point is None or (word in ("for", "over", "within") and point.year is not None):
        return None
    end = at + skip + point.length
    if word == "from" and _low(tokens, end) in ("on", "onward", "onwards"):
        years = (point.year, None) if point.year is not None else None
        return Period(point.start, None, years, _said(tokens, at, end + 1)), end + 1 - at
    if point.year is not None:
        return _more_years(tokens, at, end, point.year)
    return Period(point.start, point.end, None, _said(tokens, at, end)), end - at


_BOUNDS = {"since": (">=",), "after": (">",), "before": ("<",), "until": ("<=",), "till": ("<=",), "by": ("<=",), "prior": ("<",),
           "starting": (">=",), "later": (">",), "earlier": ("<",), "following": (">",)}  # fmt: skip


def _bounded(tokens: Sequence[Token], at: int, today: date) -> tuple[Period, int] | None:
    word = _low(tokens, at)
    op = _BOUNDS[word][0]
    after = at + 1
    if word in ("prior", "later", "earlier"):
        if _low(tokens, after) not in ("to", "than"):
            return None
        after += 1
    if word == "starting":
        if _low(tokens, after) not in ("from", "in"):
            return None
        after += 1
    if word == "by" and _low(tokens, after + 1) != "end":
        return None
    edge = ""
    for joint in (("the", "year"), ("the", "end", "of"), ("year",), ("the", "start", "of"), ("the", "beginning", "of"), ("the",)):
        if tuple(_low(tokens, after + k) for k in range(len(joint))) == joint:
            after += len(joint)
            edge = joint[1] if len(joint) == 3 else ""
            break
    point = _point(tokens, after, today) or _near(tokens, after, today)
    if point is None or (word in ("until", "till") and not edge and point.end - point.start > timedelta(1)):
        return None  # "until 2024" may end before that year or with it
    end = after + point.length
    said = _said(tokens, at, end)
    if edge:
        return _edged(point, op, edge == "end", said), end - at
    start = {">=": point.start, ">": point.end}.get(op)
    stop = {"<": point.start, "<=": point.end}.get(op)
    years = None
    if point.year is not None:
        years = {">=": (point.year, None), ">": (point.year + 1, None), "<": (None, point.year - 1), "<=": (None, point.year)}[op]
    return Period(start, stop, years, said), end - at


def _edged(point: _Point, op: str, last: bool, said: str) -> Period:
    """ "Before the end of 2024", "since the start of 2024": what is compared is that edge, and not the whole of it."""
    edge = point.end if last else point.start
    first = None if point.year is None else point.year + int(last)
    if op in (">=", ">"):
        return Period(edge, None, (first, None) if first is not None else None, said)
    return Period(None, edge, (None, first - 1) if first is not None else None, said)


def _from_to(tokens: Sequence[Token], at: int, today: date, word: str) -> tuple[Period, int] | None:
    skip = at + 1 + int(_low(tokens, at + 1) in ("the", "year", "years"))
    one = _lent(tokens, skip, today) or _point(tokens, skip, today)
    if one is None:
        return None
    joint = skip + one.length
    if _low(tokens, joint) not in (("and",) if word == "between" else ("to", "until", "till", "through")):
        return None
    other = _point(tokens, joint + 1, today)
    if other is None and _low(tokens, joint + 1) in ("now", "today") and one.start <= today:
        end = joint + 2
        return Period(one.start, today + timedelta(1), None, _said(tokens, at, end)), end - at
    if other is None or (one.year is None) != (other.year is None):
        return None
    if _low(tokens, joint) in ("until", "till") and other.end - other.start > timedelta(1):
        return None  # may end before that year or with it
    end = joint + 1 + other.length
    if other.end <= one.start:
        return None
    years = (one.year, other.year) if one.year is not None else None
    return Period(one.start, other.end, years, _said(tokens, at, end)), end - at


def _lent(tokens: Sequence[Token], at: int, today: date) -> _Point | None:
    """ "March" in "between March and May 2026", "7" in "from 7 to 13 December 2026", "Q1" in "from Q1 to Q3 2025": what the second one
    says of year and month is meant of the first, too."""
    quarter = _quarter(tokens, at, today)
    size = 2 if quarter is not None and _low(tokens, at + 1) == "quarter" else 1
    other = _point(tokens, at + size + 1, today)
    if other is None or other.year is not None:
        return None
    count, number = other.end - other.start, tokens[at].number
    named = any(_year(tokens, at + size + 1 + step) is not None for step in range(other.length))
    if quarter is not None and quarter.length == size and timedelta(80) < count < timedelta(100) and named:
        start = quarter.start.replace(year=other.start.year)
        return _Point(start, _forward(start, 3, "month"), size)
    month = MONTHS.get(_low(tokens, at))
    if month is not None and timedelta(27) < count < timedelta(32) and named:
        start = date(other.start.year, month, 1)
        return _Point(start, _forward(start, 1, "month"), 1)
    if (
        count == timedelta(1)
        and tokens[at].kind == "number"
        and isinstance(number, int)
        and 1 <= number <= other.start.day
        and named
    ):
        start = other.start.replace(day=number)
        return _Point(start, start + timedelta(1), 1)
    return None


def _more_years(tokens: Sequence[Token], at: int, end: int, year: int) -> tuple[Period, int]:
    """A year alone; "2014 or later" and "2014 or after" open it."""
    if _low(tokens, end) == "or" and _low(tokens, end + 1) in ("later", "after", "newer"):
        return Period(date(year, 1, 1), None, (year, None), _said(tokens, at, end + 2)), end + 2 - at
    if _low(tokens, end) == "or" and _low(tokens, end + 1) in ("earlier", "before", "older"):
        return Period(None, date(year + 1, 1, 1), (None, year), _said(tokens, at, end + 2)), end + 2 - at
    return Period(date(year, 1, 1), date(year + 1, 1, 1), (year, year), _said(tokens, at, end), bare=True), end - at


def _age(tokens: Sequence[Token], at: int, today: date) -> tuple[Period, int] | None:
    """Older or newer than N units, and "more than N units ago"."""
    word = _low(tokens, at)
    if _low(tokens, at + 1) != "than":
        return None
    count, unit = _amount(tokens, at + 2)
    if unit is None:
        return None
    ago = _low(tokens, at + 4) == "ago"
    old = word == "older" or (ago and word in ("more", "longer"))
    new = word in ("newer", "fresher") or (ago and word in ("less", "fewer"))
    if not (old or new) or (word == "older" and unit == "year"):
        return None
    length = 5 if ago else 4
    edge = _back(today, count, unit)
    said = _said(tokens, at, at + length)
    return (Period(None, edge, said=said, age=True) if old else Period(edge + timedelta(1), None, said=said, age=True)), length


def _rolling(tokens: Sequence[Token], at: int, today: date) -> tuple[Period, int] | None:
    word = _low(tokens, at)
    if word in ("today", "yesterday"):
        day = today if word == "today" else today - timedelta(1)
        return Period(day, day + timedelta(1), said=word), 1
    if word == "ytd":
        return Period(date(today.year, 1, 1), today + timedelta(1), said=word), 1
    if [_low(tokens, at + k) for k in range(3)] == ["year", "to", "date"]:
        return Period(date(today.year, 1, 1), today + timedelta(1), said="year to date"), 3
    if word not in ("last", "past", "previous", "this", "current", "preceding"):
        return None
    unit = TIME_UNITS.get(tokens[at + 1].lemma) if at + 1 < len(tokens) else None
    if unit is not None and tokens[at + 1].low == unit:
        start = _floor(today, unit)
        if word == "past":
            return None  # the last twelve months or the last year of the calendar
        if word in ("this", "current"):
            return Period(start, _forward(start, 1, unit), said=_said(tokens, at, at + 2)), 2
        return Period(_floor(start - timedelta(1), unit), start, said=_said(tokens, at, at + 2)), 2
    count, unit = _amount(tokens, at + 1)
    if unit is None or word in ("this", "current"):
        return None
    return Period(_back(today, count, unit), today + timedelta(1), said=_said(tokens, at, at + 3)), 3


def _near(tokens: Sequence[Token], at: int, today: date) -> _Point | None:
    """ "Yesterday" or "last month", where something is said to be before or since."""
    found = _rolling(tokens, at, today)
    if found is None or found[0].start is None or found[0].end is None:
        return None
    return _Point(found[0].start, found[0].end, found[1])


def _amount(tokens: Sequence[Token], at: int) -> tuple[int, str | None]:
    if at + 1 >= len(tokens) or not isinstance(tokens[at].number, int):
        return 0, None
    number = tokens[at].number
    unit = TIME_UNITS.get(tokens[at + 1].lemma)
    return (number, unit) if isinstance(number, int) and 0 < number < 10_000 else (0, None)


def _point(tokens: Sequence[Token], at: int, today: date) -> _Point | None:
    if at >= len(tokens):
        return None
    token = tokens[at]
    if token.kind == "word" and token.low[:1].isdigit():
        return _written(token.low)
    if token.kind == "number":
        return _day_month(tokens, at) or _year(tokens, at)
    if token.low == "year" and (year := _year(tokens, at + 1)):
        return _Point(year.start, year.end, 2, year.year)
    if token.low in MONTHS:
        return _month(tokens, at)
    return _quarter(tokens, at, today)


def _written(low: str) -> _Point | None:
    """2015-03-04, or 25/12/2015 where only one reading is a day."""
    parts = [int(part) for part in low.replace("/", "-").split("-") if part.isdigit()]
    if len(parts) != 3:
        return None
    if parts[0] > 31:
        day = date(*parts)
    else:
        one, other, year = parts
        if one <= 12 and other <= 12 and one != other:
            return None
        day = date(year, *((one, other) if one <= 12 else (other, one)))
    return _Point(day, day + timedelta(1), 1)


def _year(tokens: Sequence[Token], at: int) -> _Point | None:
    if at >= len(tokens) or tokens[at].kind != "number" or not tokens[at].text.isdigit():
        return None
    year = int(tokens[at].text)
    if len(tokens[at].text) != 4 or not FIRST_YEAR <= year <= LAST_YEAR:
        return None
    return _Point(date(year, 1, 1), date(year + 1, 1, 1), 1, year)


def _day_month(tokens: Sequence[Token], at: int) -> _Point | None:
    """3 May 2014, 3rd of May 2014."""
    of = int(_low(tokens, at + 1) == "of")
    month = MONTHS.get(_low(tokens, at + 1 + of))
    year = _year(tokens, at + 2 + of)
    number = tokens[at].number
    if month is None or year is None or not isinstance(number, int) or not 1 <= number <= 31:
        return None
    day = date(year.start.year, month, number)
    return _Point(day, day + timedelta(1), 3 + of)


def _month(tokens: Sequence[Token], at: int) -> _Point | None:
    """May 2014; May 3, 2014. A month without a year is not guessed."""
    month = MONTHS[tokens[at].low]
    of = at + 1 + int(_low(tokens, at + 1) in ("of", ","))
    year = _year(tokens, of)
    if year is not None:
        start = date(year.start.year, month, 1)
        return _Point(start, _forward(start, 1, "month"), of + 1 - at)
    number = tokens[at + 1].number if at + 1 < len(tokens) else None
    comma = at + 2 + int(_low(tokens, at + 2) in (",", "of"))
    year = _year(tokens, comma)
    if year is None or not isinstance(number, int) or not 1 <= number <= 31:
        return None
    day = date(year.start.year, month, number)
    return _Point(day, day + timedelta(1), comma + 1 - at)


_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "1st": 1, "2nd": 2, "3rd": 3, "4th": 4}


def _quarter(tokens: Sequence[Token], at: int, today: date) -> _Point | None:
    """Q2 2014, Q2, the second quarter of 2014."""
    low = _low(tokens, at)
    number, length = None, 1
    if len(low) == 2 and low[0] == "q" and low[1] in "1234":
        number = int(low[1])
    elif _low(tokens, at + 1) == "quarter":
        number, length = _ORDINALS.get(low), 2
    if number is None:
        return None
    of = length + int(_low(tokens, at + length) in ("of", "in"))
    year = _year(tokens, at + of)
    length = of + 1 if year else length
    start = date(year.start.year if year else today.year, 3 * number - 2, 1)
    return _Point(start, _forward(start, 3, "month"), length)


def read_grain(tokens: Sequence[Token], at: int) -> str | None:
    """ "month" in "per month", or "monthly"."""
    return GRAINS.get(tokens[at].lemma) if at < len(tokens) else None


def _floor(day: date, unit: str) -> date:
    if unit == "day":
        return day
    if unit == "week":
        return day - timedelta(day.weekday())
    month = 1 if unit == "year" else 3 * ((day.month - 1) // 3) + 1 if unit == "quarter" else day.month
    return date(day.year, month, 1)


def _forward(day: date, count: int, unit: str) -> date:
    if unit in ("day", "week"):
        return day + timedelta(count * (7 if unit == "week" else 1))
    months = day.year * 12 + day.month - 1 + count * {"month": 1, "quarter": 3, "year": 12}[unit]
    year, month = divmod(months, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def _back(day: date, count: int, unit: str) -> date:
    return _forward(day, -count, unit)


def _low(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].low if 0 <= at < len(tokens) else ""


def _said(tokens: Sequence[Token], at: int, end: int) -> str:
    return " ".join(token.text for token in tokens[at:end])
