"""The demonstration must notice when somebody gets other rows than were promised: its comparison can fail."""

import datetime
from dataclasses import replace

import pytest

from router.domain import Answer, Clarify, Route, Table, TableColumn
from router.doors.cli.demo_tables import RowsAsked, rows_as_json
from router.errors import Refused

ROUTE = Route("sql", {}, 1.0, abstained=False, reasons=())


def table(*rows):
    columns = tuple(TableColumn(f"c{at}", "VARCHAR", masked=False) for at in range(len(rows[0]) if rows else 1))
    return Table(columns, rows, truncated=False, sql="SELECT 1", generated="", origin="planner", reading="I count")


def answer(*rows, outcome="answered"):
    tables = () if outcome == "clarify" else (table(*rows),)
    clarify = Clarify("`x` is not known here", ()) if outcome == "clarify" else None
    return Answer("d-1", outcome, ROUTE, (), (), (), "p", (), None, tables, clarify)


def asked(came, *rows, ordered=False, outcome="answered"):
    return RowsAsked("q", "ada", "why", came, rows, ordered, outcome)


DAY = datetime.date(2026, 1, 1)


@pytest.mark.parametrize(
    ("found", "promised"),
    [
        ([(280,)], [[280]]),
        ([("West", 8.33517156862745)], [["West", 8.34]]),
        ([("276060.00",)], [[276060.0]]),
        ([("2026-01-01T00:00:00", 103)], [[DAY, 103]]),
        ([("Saltmarsh", 3, 35.2397)], [["Saltmarsh", 35.24]]),
        ([("Saltmarsh",)], [["Saltmarsh", 35.24]]),
        ([("b",), ("a",)], [["a"], ["b"]]),
        ([(None,)], [[None]]),
    ],
)
def test_what_is_the_same(found, promised):
    assert asked(answer(*found), *promised).problem == ""


@pytest.mark.parametrize(
    ("found", "promised"),
    [
        ([(281,)], [[280]]),
        ([("West", 8.32)], [["West", 8.34]]),
        ([("276061.00",)], [[276060.0]]),
        ([("2026-01-02T00:00:00", 103)], [[DAY, 103]]),
        ([("Dunmere", 3, 35.2397)], [["Saltmarsh", 35.24]]),
        ([("a",), ("a",)], [["a"], ["b"]]),
        ([("a",), ("b",), ("c",)], [["a"], ["b"]]),
        ([], [["a"]]),
        ([("a",)], []),
        ([("0.00",)], [[None]]),
        ([("I***",)], [["Ivo"]]),
    ],
)
def test_what_is_not(found, promised):
    assert "other rows" in asked(answer(*found), *promised).problem


def test_an_order_that_was_asked_for_counts():
    assert asked(answer(("b",), ("a",)), ["b"], ["a"], ordered=True).problem == ""
    assert asked(answer(("b",), ("a",)), ["a"], ["b"], ordered=True).problem


def test_an_answer_where_there_should_be_none():
    assert asked(answer(outcome="clarify"), outcome="clarify").problem == ""
    assert asked(answer(("a",)), outcome="clarify").problem == "answered, not clarify"
    assert asked(answer(outcome="clarify"), [1]).problem == "clarify, not answered"
    leaking = replace(answer(outcome="clarify"), tables=(table((1,)),))
    assert asked(leaking, outcome="clarify").problem == "rows that must not be there"
    assert asked(Refused("token_expired", "the token has expired", ""), outcome="refused").problem == ""
    assert asked(Refused("token_expired", "the token has expired", ""), [1]).problem == "refused, not answered"


def test_as_json():
    shown = rows_as_json(asked(answer((1,)), [2]))
    assert (shown["rows"], shown["origin"], shown["outcome"]) == ([[1]], "planner", "answered")
    assert shown["problem"] == "other rows: 1"
