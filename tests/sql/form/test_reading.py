"""The reading: word for word for what people ask, and nothing bound is left out of it."""

from __future__ import annotations

from datetime import date, datetime

import pytest
from hypothesis import given, settings

from router.sql.form import AgainstAll, Aggregated, AnyOf, By, Compare, Exists, Label, Named
from router.sql.parse_form import parse_form
from router.sql.reading import read_form
from tests.sql.form.strategies import FORMS

READINGS = [
    (
        {
            "from": "claims",
            "measures": [{"agg": "count", "of": "*"}],
            "where": [
                {"field": "claims.status", "op": "=", "value": "open"},
                {"field": "claims.region", "op": "=", "value": {"value": "west", "said": "West"}},
            ],
            "time": {"field": "claims.reported_at", "to": "2024-07-16", "said": "older than 30 days"},
        },
        'I count **claims** where **status is "open"** and **region is "west"** and **reported at before 2024-07-16** (older than 30 days)',
    ),
    (
        {"from": "approvals", "measures": ["average_approval_hours"], "by": ["claims.region"]},
        "I compute the **average approval hours** for each **region of claims**",
    ),
    (
        {"from": "depots", "show": ["depots.code"], "where": [{"has": "claims", "not": True}]},
        "I list **code** of **depots** where there is no row of **claims**",
    ),
    (
        {
            "from": "claims",
            "measures": [{"agg": "sum", "of": "claims.amount"}],
            "by": ["claims.product"],
            "order": [{"by": {"agg": "sum", "of": "claims.amount"}, "dir": "desc"}],
            "limit": 5,
        },
        "I compute the **sum of amount** for each **product**, ordered by **sum of amount**, highest first, only the first **5**",
    ),
    (
        {
            "from": "claims",
            "measures": [{"agg": "avg", "of": "claims.amount"}],
            "by": [{"field": "claims.reported_at", "grain": "month"}],
            "having": [{"agg": "avg", "of": "claims.amount", "op": ">", "value": 9000}],
        },
        "I compute the **average of amount** for each **month of reported at**, keeping groups where the **average of amount** **is more than 9000**",
    ),
    (
        {"from": "depots", "measures": [{"agg": "count", "of": "*"}], "where": [{"has": "claims", "count": {"op": "<", "n": 3}}]},
        "I count **depots** where there are **fewer than 3** **claims** (none counts, too)",
    ),
]


@pytest.mark.parametrize(("data", "reading"), READINGS, ids=[reading for _, reading in READINGS])
def test_reading(data, reading):
    assert read_form(parse_form(data)) == reading


def words(name):
    return name.replace("_", " ")


def bound_in(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()
    return escaped(value) if isinstance(value, str) else str(value)


def escaped(text):
    return text.replace("\x00", "").replace("\\", "\\\\").replace('"', '\\"')


def bound(part):
    """Every name and value that a part of a form binds."""
    match part:
        case Compare(ref, _, values):
            return [words(ref.field), *map(words, ref.via), *(bound_in(value.value) for value in values)]
        case AgainstAll(ref, _, _):
            return [words(ref.field), *map(words, ref.via)]
        case AnyOf(preds):
            return [one for pred in preds for one in bound(pred)]
        case Exists(dataset, where, count, _, via):
            own = [words(dataset), *map(words, via), *([str(count[1])] if count else [])]
            return own + [one for pred in where for one in bound(pred)]
        case By(ref, grain):
            return [words(ref.field), *map(words, ref.via), *([grain] if grain else [])]
        case Label(dataset, via):
            return [words(dataset), *map(words, via)]
        case Named(metric):
            return [words(metric)]
        case Aggregated(_, of):
            return [words(of.field)]


@settings(max_examples=300, deadline=None)
@given(FORMS)
def test_nothing_bound_is_left_out(form):
    reading = read_form(form)
    parts = [*form.where, *(one.measure for one in form.having), *(one.by for one in form.order)]
    if form.show:
        parts += [By(ref) for ref in form.show]
    else:
        parts += [*form.measures, *form.by]
    wanted = [one for part in parts for one in bound(part)] + [bound_in(one.value.value) for one in form.having]
    wanted += [str(form.limit)] if form.limit is not None else []
    if form.time:
        wanted += [
            words(form.time.ref.field),
            *(bound_in(edge) for edge in (form.time.start, form.time.end) if edge),
            escaped(form.time.said),
        ]
    assert [one for one in wanted if one not in reading] == []


def test_a_value_is_told_from_a_condition():
    """`Oakum Paper and status is paid` is what a customer may be called."""
    one = parse_form(
        {
            "from": "claims",
            "measures": [{"agg": "count", "of": "*"}],
            "where": [{"field": "claims.c", "op": "=", "value": "O and s is p"}],
        }
    )
    two = [{"field": "claims.c", "op": "=", "value": "O"}, {"field": "claims.s", "op": "=", "value": "p"}]
    other = parse_form({"from": "claims", "measures": [{"agg": "count", "of": "*"}], "where": two})
    assert read_form(one, bold="") != read_form(other, bold="")
    assert '"O and s is p"' in read_form(one)


def test_a_value_sets_no_type():
    form = parse_form(
        {
            "from": "claims",
            "measures": [{"agg": "count", "of": "*"}],
            "where": [{"field": "claims.c", "op": "=", "value": "**a**"}],
        }
    )
    assert '"**a**"' in read_form(form, bold="")
