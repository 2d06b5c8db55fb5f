"""Questions of a service desk over the demonstration's own catalogue: what is answered means what was asked, else it is asked back.

Each of these was once answered with other rows than were asked for.
"""

from datetime import date
from pathlib import Path

import pytest

from router.domain import ColumnGrant, TableGrant
from router.filters import ALWAYS
from router.policy import load_policies
from router.sql.check import narrow
from router.sql.form import Aggregated, By, Compare, Form
from router.sql.planner import Abstention, StoredValues, build_index, plan_question

TODAY = date(2026, 12, 1)
VALUES = (
    StoredValues("claims", "status", ("open", "settled", "rejected", "disputed", "reopened")),
    StoredValues("claims", "region", ("West", "East", "North", "South")),
    StoredValues("depots", "region", ("West", "East", "North", "South")),
    StoredValues("technicians", "region", ("West", "East", "North", "South")),
)


@pytest.fixture(scope="module")
def index():
    catalog = load_policies(Path(__file__).parents[3] / "policies").catalog
    return build_index(catalog, VALUES)


def plan(index, text):
    return plan_question(text, index, TODAY)


def dims(form):
    return [(str(dim.ref), dim.grain) if isinstance(dim, By) else dim.dataset for dim in form.by]


def test_per_month_groups_by_the_month_alone(index):
    form = plan(index, "How many claims were reported per month this year?")
    assert isinstance(form, Form), form
    assert dims(form) == [("claims.opened_on", "month")]
    assert (form.time.start, form.time.end) == (date(2026, 1, 1), date(2027, 1, 1))


@pytest.mark.parametrize("words", ["closed last month", "settled last month"])
def test_the_period_is_of_the_day_that_is_named(index, words):
    """`closed last month` speaks of the day of closing, though the default time is the day of opening."""
    form = plan(index, f"How many claims were {words}?")
    if isinstance(form, Abstention):
        assert words.startswith("settled")  # it is a stored value, too
        return
    assert form.by == ()
    assert (str(form.time.ref), form.time.start, form.time.end) == ("claims.closed_on", date(2026, 11, 1), date(2026, 12, 1))


def test_a_field_beside_a_count_is_no_group_by_itself(index):
    planned = plan(index, "How many claims were opened?")
    assert isinstance(planned, Abstention) or planned.by == ()


def test_which_rows_are_told_by_their_label(index):
    form = plan(index, "Which claims were reported between 2026-10-01 and 2026-10-05?")
    assert isinstance(form, Form), form
    assert "claims.claim_id" in [str(ref) for ref in form.show] or any(getattr(dim, "dataset", "") == "claims" for dim in form.by)
    assert (str(form.time.ref), form.time.start, form.time.end) == ("claims.opened_on", date(2026, 10, 1), date(2026, 10, 6))


def test_what_is_listed_with_something_is_named_too(index):
    form = plan(index, "List the technicians in region west with their home phone")
    assert isinstance(form, Form), form
    assert [str(ref) for ref in form.show] == ["technicians.name", "technicians.home_phone"]


def test_a_name_of_several_datasets_is_that_of_the_measure(index):
    form = plan(index, "What is the average amount of claims per region?")
    assert isinstance(form, Form), form
    assert dims(form) == [("claims.region", None)]


def test_open_is_a_status_before_it_is_a_verb(index):
    for text in (
        "How many claims are open?",
        "How many open claims are there?",
        "How many claims in region West are still open?",
    ):
        form = plan(index, text)
        assert isinstance(form, Form), (text, form)
        assert any(isinstance(pred, Compare) and str(pred.ref) == "claims.status" for pred in form.where), text
        assert [one.agg for one in form.measures if isinstance(one, Aggregated)] == ["count"]


def test_two_values_of_one_field_joined_by_or(index):
    form = plan(index, "How many claims are open or disputed per region?")
    assert isinstance(form, Form), form
    assert dims(form) == [("claims.region", None)]


HIJACKERS = [
    "by region",
    "per month",
    "this year",
    "between 2025 and 2026",
    "open claims",
    "Harbour Foods and status is open",
    "West or East",
    "open or settled",
    "how many",
    "more than 3",
    "average amount",
]
ASKED = [
    "total amount of claims by region",
    "How many claims were opened per month?",
    "How many claims were opened this year?",
    "How many claims were opened between 2025 and 2026?",
    "How many open claims are there?",
    "How many claims of Harbour Foods and status is open?",
    "How many claims are in region West or East?",
    "How many claims are open or settled?",
    "Which customers have more than 3 claims?",
    "What is the average amount of claims per region?",
]


@pytest.mark.parametrize("text", ASKED)
def test_a_value_that_reads_like_a_part_of_a_question_takes_nothing_over(text):
    catalog = load_policies(Path(__file__).parents[3] / "policies").catalog
    customers = ("Harbour Foods", "Tamarind Foods")
    plain = build_index(catalog, (*VALUES, StoredValues("claims", "customer", customers)))
    hostile = build_index(catalog, (*VALUES, StoredValues("claims", "customer", (*customers, *HIJACKERS))))
    assert plan(plain, text) == plan(hostile, text)


def test_such_a_value_is_meant_in_quotes():
    catalog = load_policies(Path(__file__).parents[3] / "policies").catalog
    hostile = build_index(catalog, (*VALUES, StoredValues("claims", "customer", tuple(HIJACKERS))))
    form = plan(hostile, 'How many claims have the customer "by region"?')
    assert isinstance(form, Form), form
    assert [pred.values[0].value for pred in form.where if isinstance(pred, Compare)] == ["by region"]


def test_a_hidden_default_time_is_replaced_by_no_other():
    """Who may not see the day of opening is not told of the day of closing instead."""
    catalog = load_policies(Path(__file__).parents[3] / "policies").catalog
    columns = {
        one.name: tuple(ColumnGrant(field.name) for field in one.fields if field.name != "opened_on") for one in catalog.datasets
    }
    grants = tuple(TableGrant(name, f"main.{name}", held, ALWAYS, (), None, ("p",)) for name, held in columns.items())
    index = build_index(narrow(catalog, grants), VALUES)
    for text in (
        "How many claims are older than 30 days?",
        "How many claims per month?",
        "How many claims were there last month?",
    ):
        assert isinstance(plan(index, text), Abstention), text
    assert isinstance(plan(index, "How many claims were closed last month?"), Form)


def test_a_metric_before_a_percentage(index):
    form = plan(index, "Which depots have a low stock share above 20 %?")
    assert isinstance(form, Form), form
    assert [(one.measure.metric, one.op, float(one.value.value)) for one in form.having] == [("low_stock_share", ">", 20.0)]


@pytest.mark.parametrize("said", ["least stock", "most stock", "lowest inventory", "biggest stock", "fewest pieces in stock"])
def test_the_least_stock_of_a_part_is_of_pieces(said):
    """`stock` is a name of the dataset, too: how many rows a depot has of a part says nothing."""
    catalog = load_policies(Path(__file__).parents[3] / "policies").catalog
    index = build_index(catalog, (*VALUES, StoredValues("parts", "part", ("PN-88213",))))
    form = plan(index, f"Which depot has the {said} of PN-88213?")
    assert isinstance(form, Form), form
    assert [(one.agg, str(one.of)) for one in form.measures if isinstance(one, Aggregated)] == [("sum", "parts.on_hand")]
    assert [(str(pred.ref), pred.values[0].value) for pred in form.where if isinstance(pred, Compare)] == [
        ("parts.part", "PN-88213")
    ]
    for text in ("Which depot has no stock of PN-88213?", "Which depot has the fewest parts of PN-88213?"):
        assert isinstance(plan(index, text), Abstention), text
