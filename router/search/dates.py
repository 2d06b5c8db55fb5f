"""The day that a question asks about: "what did the travel policy say in March 2024", "as of 2024-03-01".

A year alone is part of the matter ("the 2024 report"); it is a day only after "as of" and its like, or in the past tense of what is
in force. The end of the period that was named is meant.

INVARIANT: a day that is not named in full stands for the last of its period (tests/unit/test_search_narrowing.py::test_periods_end_on_their_last_day).
INVARIANT: only the past is another day (…::test_the_future_is_today).
"""

from __future__ import annotations

import calendar
import re
from datetime import UTC, date, datetime, timedelta

_MONTHS = {name.lower(): at for at, name in enumerate(calendar.month_name) if name}
_MONTHS.update({name.lower(): at for at, name in enumerate(calendar.month_abbr) if name})
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATE = rf"""(?P<iso>\d{{4}}-\d{{2}}(?:-\d{{2}})?)\b
|(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?)?(?P<month>{_MONTH})\.?\s+(?:(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?,?\s+)?(?P<year>\d{{4}})\b
|(?:q(?P<quarter>[1-4])\s+)?(?P<bare>(?:19|20)\d{{2}})\b
|(?P<last>last|the\s+previous)\s+(?P<unit>year|month)\b"""
_AS_OF = re.compile(
    rf"\b(?:as\s+of|as\s+at|as\s+it\s+stood\s+(?:in|on)|valid\s+(?:in|on)|in\s+force\s+(?:in|on)|back\s+in)\s+(?:{_DATE})",
    re.I | re.X,
)
_PAST = re.compile(r"\b(?:did|was|were|used\s+to|said|applied|had)\b", re.IGNORECASE)
_IN = re.compile(rf"\b(?:in|on|at\s+the\s+end\s+of|before|by|until|during)\s+(?:{_DATE})", re.I | re.X)
_DAY = timedelta(days=1)


def find_as_of(question: str, today: date) -> date | None:
    """The day whose documents are asked for; None where that is today's."""
    return _find(question, today)[0]


def without_day(question: str, today: date) -> str:
    """The question apart from the words that name its day: passages of that day do not repeat it. As it is where nothing else is asked."""
    _, words = _find(question, today)
    rest = question.replace(words, " ").strip() if words else question
    return rest or question


def _find(question: str, today: date) -> tuple[date | None, str]:
    text = question[:2_000]
    found = _AS_OF.search(text) or (_IN.search(text) if _PAST.search(text) else None)
    day = _last_day(found, today) if found else None
    return (day, found.group()) if found and day is not None and day < today else (None, "")


def parse_period(text: str) -> tuple[date, date] | None:
    """First and last day of `2024`, `2024-03` or `2024-03-01`."""
    parts = text.strip().split("-")
    try:
        numbers = [int(part) for part in parts]
        if len(parts[0]) != 4 or not 1 <= len(parts) <= 3:
            return None
        if len(numbers) == 1:
            return date(numbers[0], 1, 1), date(numbers[0], 12, 31)
        if len(numbers) == 2:
            return date(numbers[0], numbers[1], 1), _month_end(numbers[0], numbers[1])
        day = date(numbers[0], numbers[1], numbers[2])
        return day, day
    except (ValueError, TypeError, OverflowError):
        return None


def to_ms(day: date) -> int:
    """The first millisecond of a day in UTC."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)


def _last_day(found: re.Match[str], today: date) -> date | None:
    part = found.groupdict()
    try:
        if part["iso"]:
            period = parse_period(part["iso"])
            return period[1] if period else None
        if part["month"]:
            year, month, day = int(part["year"]), _MONTHS[part["month"].lower()], part["day"] or part["day2"]
            return date(year, month, int(day)) if day else _month_end(year, month)
        if part["bare"]:
            return _month_end(int(part["bare"]), 3 * int(part["quarter"]) if part["quarter"] else 12)
        return date(today.year - 1, 12, 31) if part["unit"].lower() == "year" else today.replace(day=1) - _DAY
    except (ValueError, OverflowError):
        return None


def _month_end(year: int, month: int) -> date:
    return date(year, month, calendar.monthrange(year, month)[1])
