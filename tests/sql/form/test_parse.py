"""From JSON to a form and back, and what is no form."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import Refused
from router.sql.form import Aggregated, AnyOf, By, Compare, Exists, Form, Ref, TimeRange, Value
from router.sql.parse_form import form_json, parse_form
from tests.sql.form.strategies import FORMS


@settings(max_examples=300, deadline=None)
@given(FORMS)
def test_json_and_back(form):
    assert parse_form(json.dumps(form_json(form))) == form


def test_a_whole_form_is_read():
    form = parse_form(
        {
            "from": "claims",
            "measures": [{"agg": "count", "of": "*"}],
            "by": [{"field": "claims.reported_at", "grain": "month"}],
            "where": [
                {"field": "claims.region", "op": "=", "value": {"value": "west", "said": "West", "origin": "values"}},
                {"any": [{"field": "claims.amount", "op": ">", "value": 9000}, {"has": "approvals", "not": True}]},
            ],
            "time": {"field": "claims.reported_at", "to": "2024-07-16", "said": "older than 30 days"},
        }
    )
    assert form == Form(
        "claims",
        measures=(Aggregated("count", Ref("claims", "*")),),
        by=(By(Ref("claims", "reported_at"), "month"),),
        where=(
            Compare(Ref("claims", "region"), "=", (Value("west", "West", "values"),)),
            AnyOf((Compare(Ref("claims", "amount"), ">", (Value(9000),)), Exists("approvals", negated=True))),
        ),
        time=TimeRange(Ref("claims", "reported_at"), None, date(2024, 7, 16), "older than 30 days"),
    )


DEEP: dict = {"has": "a"}
for _ in range(5):
    DEEP = {"has": "a", "where": [DEEP]}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("{", "form_invalid"),
        ("[]", "form_invalid"),
        ("[" * 100_000, "form_invalid"),
        ({}, "form_invalid"),
        ({"from": ""}, "form_invalid"),
        ({"from": "x", "sql": "SELECT 1"}, "form_invalid"),
        ({"from": "x\x00"}, "form_invalid"),
        ({"from": "x", "show": "a.b"}, "form_invalid"),
        ({"from": "x", "show": ["a.b"] * 65}, "form_invalid"),
        ({"from": "x", "show": [1]}, "form_invalid"),
        ({"from": "x", "show": ["a."]}, "form_invalid"),
        ({"from": "x", "show": []}, "E_EMPTY_SCALAR_QUERY"),
        ({"from": "x", "measures": [{"agg": "hack", "of": "a.b"}]}, "form_invalid"),
        ({"from": "x", "measures": [{"agg": "sum"}]}, "form_invalid"),
        ({"from": "x", "measures": ["m" * 300]}, "form_invalid"),
        ({"from": "x", "by": [{"field": "a.b", "grain": "aeon"}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "~", "value": 1}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "=", "value": None}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "=", "value": [1]}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "in", "value": []}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "in", "value": [1] * 1001}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "between", "value": [1]}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "is_null", "value": 1}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "=", "value": float("nan")}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "=", "value": 2**80}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "=", "value": {"decimal": "1e999"}}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "=", "value": {"date": "2024-13-01"}}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "=", "value": "\ud800"}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": "=", "value": "a" * 1001}]}, "form_invalid"),
        ({"from": "x", "where": [{"any": []}]}, "form_invalid"),
        ({"from": "x", "where": [{"any": [{"any": [{"field": "a.b", "op": "is_null"}]}]}]}, "form_invalid"),
        ({"from": "x", "where": [{"any": 1}]}, "form_invalid"),
        ({"from": "x", "where": [DEEP]}, "form_invalid"),
        ({"from": "x", "where": [{"has": "a", "count": {"op": ">", "n": True}}]}, "form_invalid"),
        ({"from": "x", "where": [{"field": "a.b", "op": ">", "value": {"agg": "avg", "of": "a.c"}}]}, "form_invalid"),
        ({"from": "x", "where": [{"any": [{"field": "a.b", "op": "is_null"}, {"agg": "sum"}]}]}, "E_MIXED_PREDICATE_LEVEL"),
        ({"from": "x", "time": {"field": "a.b"}}, "form_invalid"),
        ({"from": "x", "time": {"field": "a.b", "from": "2024-02-01", "to": "2024-01-01"}}, "form_invalid"),
        ({"from": "x", "limit": 0}, "form_invalid"),
        ({"from": "x", "limit": True}, "form_invalid"),
        ({"from": "x", "confidence": 2}, "form_invalid"),
        ({"from": "x", "distinct": "yes"}, "form_invalid"),
        ({"from": "x", "order": [{"by": "a.b", "dir": "sideways"}]}, "form_invalid"),
        ({"from": "x", "pivot": {}}, "E_DEFERRED_KEY_REJECTED"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_bad_input_is_refused_with_a_code(data, code):
    with pytest.raises(Refused) as caught:
        parse_form(data)
    assert caught.value.code == code


KEYS = st.sampled_from(
    "from show measures by where time having order limit op value field has any agg of label grain via metric".split()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["*", "a.b", "=", "sum", "x", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(KEYS, JSON, max_size=6))
def test_any_json_is_a_form_or_a_refusal(data):
    with suppress(Refused):
        assert isinstance(parse_form({"from": "x", **data}), Form)
