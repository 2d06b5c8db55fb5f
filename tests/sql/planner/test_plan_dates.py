"""Periods in words, from one day on."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.sql.planner.dates import read_period
from router.sql.planner.tokens import tokenise

DAY = date(2024, 8, 15)

PERIODS = [
    ("today", date(2024, 8, 15), date(2024, 8, 16)),
    ("yesterday", date(2024, 8, 14), date(2024, 8, 15)),
    ("last week", date(2024, 8, 5), date(2024, 8, 12)),
    ("this week", date(2024, 8, 12), date(2024, 8, 19)),
    ("last month", date(2024, 7, 1), date(2024, 8, 1)),
    ("last quarter", date(2024, 4, 1), date(2024, 7, 1)),
    ("this quarter", date(2024, 7, 1), date(2024, 10, 1)),
    ("last year", date(2023, 1, 1), date(2024, 1, 1)),
    ("past 30 days", date(2024, 7, 16), date(2024, 8, 16)),
    ("in the last two years", date(2022, 8, 15), date(2024, 8, 16)),
    ("ytd", date(2024, 1, 1), date(2024, 8, 16)),
    ("May 2014", date(2014, 5, 1), date(2014, 6, 1)),
    ("in May of 2014", date(2014, 5, 1), date(2014, 6, 1)),
    ("May 3, 2014", date(2014, 5, 3), date(2014, 5, 4)),
    ("3rd of May 2014", date(2014, 5, 3), date(2014, 5, 4)),
    ("on 2014-05-03", date(2014, 5, 3), date(2014, 5, 4)),
    ("25/12/2015", date(2015, 12, 25), date(2015, 12, 26)),
    ("in 2014", date(2014, 1, 1), date(2015, 1, 1)),
    ("in the year 2014", date(2014, 1, 1), date(2015, 1, 1)),
    ("2014 or later", date(2014, 1, 1), None),
    ("since 2014", date(2014, 1, 1), None),
    ("after May 2014", date(2014, 6, 1), None),
    ("before 2014-05-03", None, date(2014, 5, 3)),
    ("until 2014-05-31", None, date(2014, 6, 1)),
    ("prior to 2014", None, date(2014, 1, 1)),
    ("between 2010 and 2012", date(2010, 1, 1), date(2013, 1, 1)),
    ("from May 2014 to June 2015", date(2014, 5, 1), date(2015, 7, 1)),
    ("Q2 2014", date(2014, 4, 1), date(2014, 7, 1)),
    ("the second quarter of 2014", date(2014, 4, 1), date(2014, 7, 1)),
    ("older than 30 days", None, date(2024, 7, 16)),
    ("more than 3 months ago", None, date(2024, 5, 15)),
    ("less than 3 months ago", date(2024, 5, 16), None),
    ("newer than 2 weeks", date(2024, 8, 2), None),
]


@pytest.mark.parametrize(("text", "start", "end"), PERIODS, ids=[one[0] for one in PERIODS])
def test_period(text, start, end):
    tokens = tokenise(text)
    at = 1 if text.startswith("the ") else 0
    found = read_period(tokens, at, DAY)
    assert found is not None
    assert (found[0].start, found[0].end, found[1]) == (start, end, len(tokens) - at)


@pytest.mark.parametrize(
    "text",
    [
        "recently",
        "May",
        "03/04/2015",
        "2014-13-01",
        "last 0 days",
        "older than 30",
        "between 2012 and 2010",
        "in 123",
        "31 February 2014",
    ],
)
def test_what_is_not_certain_is_no_period(text):
    assert read_period(tokenise(text), 0, DAY) is None


def test_years_stay_numbers_too():
    found = read_period(tokenise("between 2010 and 2012"), 0, DAY)
    assert found is not None
    assert found[0].years == (2010, 2012)


WORDS = """last past this between and from to since after before until may june q2 quarter of the year years days month 2014 2020 3 31 99
 older newer than ago more or later 0001-01-01 9999-12-31""".split()


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), st.dates())
def test_any_period_is_in_order(words, today):
    tokens = tokenise(" ".join(words))
    for at in range(len(tokens)):
        found = read_period(tokens, at, today)
        if found is not None:
            period, length = found
            assert 0 < length <= len(tokens) - at
            assert period.start is None or period.end is None or period.start < period.end
            assert period.start is not None or period.end is not None


@given(st.dates(min_value=date(1990, 1, 1), max_value=date(2100, 1, 1)))
def test_last_and_this_month_touch(today):
    last, this = (read_period(tokenise(f"{word} month"), 0, today) for word in ("last", "this"))
    assert last is not None
    assert this is not None
    assert last[0].end == this[0].start
    assert this[0].start <= today < this[0].end
    assert last[0].end - last[0].start >= timedelta(28)
