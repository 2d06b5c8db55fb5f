"""What the planner declines, each refusal by name, and what must not hijack a binding."""

from __future__ import annotations

import pytest

from router.sql.form import Aggregated, Compare, Form, Ref
from router.sql.planner import StoredValues, plan_question
from tests.sql.planner.planner_world import DAY, declined, plan, with_values

REFUSALS = [
    ("unexplained word", "How many suspicious claims are there?", "planner_unknown"),
    ("question of another kind", "Why did water claims rise?", "planner_unknown"),
    ("field without condition", "How many claims with product?", "planner_no_condition"),
    ("field after an aggregate", "What is the average amount and reserve of claims?", "planner_after_aggregate"),
    ("mean of text", "What is the average region of claims?", "planner_unbound"),
    ("sum of a key", "What is the total claim id?", "planner_sum_of_key"),
    ("count of a number", "What is the number of amounts?", "planner_count_of_number"),
    ("extreme of text", "What is the maximum status of claims?", "planner_extreme_of_text"),
    ("largest without a field", "List the 3 largest claims", "planner_no_field"),
    ("most popular", "What is the most popular product?", "planner_no_field"),
    ("top n without order", "Show the top 5 products", "planner_top"),
    ("last n", "Show the last 5 claims", "planner_top"),
    ("two orders", "Which product has the highest amount and the lowest reserve?", "planner_two_orders"),
    ("best of each group", "Which product has the most claims for each region?", "planner_best_per_group"),
    ("or with having", "Which products have more than 5 claims or an average amount above 10?", "planner_or"),
    ("two values by and", "How many claims are open and pending?", "planner_both"),
    ("empty range", "How many claims with amount above 10 and amount below 5?", "planner_both"),
    ("percent of no metric", "Which depots have more than 20 % of claims?", "planner_percent"),
    ("bare number", "How many claims 400?", "planner_number"),
    ("number for a text", "How many claims with status above 5?", "planner_value"),
    ("no time", "How many claims with product since 2020?", "planner_no_time"),
    ("month without a year", "How many claims were reported in May?", "planner_unknown"),
    ("quoted text of no field", 'How many claims "nowhere"?', "planner_unknown"),
    ("negation of nothing", "How many claims not?", "planner_unused"),
    ("participle as a kind", "How many reopened claims?", "planner_unknown"),
    ("words that stand together", "Show the amount reserve of claims", "planner_two_names"),
    ("nothing asked", "the of and", "planner_nothing_asked"),
    ("another language", "Wie viele offene Schäden gibt es in der Region West?", "planner_unknown"),
    ("aggregate of some rows", "Which claims have an amount above the average amount of open claims?", "planner_nested"),
    ("state without a value", "How many claims were cancelled?", "planner_unknown"),
    ("verb without an object", "How many claims were shipped?", "planner_unknown"),
    ("all of many", "Which depots have all claims?", "planner_universal"),
    ("field beside a measure", "What is the average amount of claims product", "planner_two_names"),
    ("two questions", "Which depots have claims which approvals have", "planner_two_names"),
    ("largest rows", "Which depots have the largest claims?", "planner_no_field"),
    ("text too long", "claims " * 500, "planner_too_long"),
]


@pytest.mark.parametrize(("text", "code"), [one[1:] for one in REFUSALS], ids=[one[0] for one in REFUSALS])
def test_refusal(text, code):
    found = declined(text)
    assert found.code == code, found
    assert found.message
    assert found.message[0] in "`" or found.message[0].islower()
    assert not found.message.endswith(".")


def test_the_words_that_are_not_known_are_named():
    assert declined("How many suspicious claims are there in Mordor?").unbound == ("suspicious", "Mordor")


def test_near_names_are_suggested_and_never_bound():
    found = declined("How many clams are there?")
    assert "claim" in found.nearest


@pytest.mark.parametrize(
    "value", ["total", "open claims", "claims", "average amount", "per product", "how many", "region", "2024", "not"]
)
def test_a_stored_value_named_like_something_else_hijacks_nothing(value):
    """The very same form as without the value."""
    index = with_values(StoredValues("claims_v", "product", (value,)), StoredValues("claims_v", "claim_type", (value,)))
    for text in (
        "What is the total amount of open claims per product?",
        "How many claims are not open in region west?",
        "What is the average amount of claims in 2024?",
    ):
        found = plan_question(text, index, DAY)
        assert isinstance(found, Form), found
        plain = plan(text)
        assert (found.measures, found.by, found.where, found.time) == (plain.measures, plain.by, plain.where, plain.time)


def test_a_quoted_value_is_a_value():
    index = with_values(StoredValues("claims_v", "product", ("total",)))
    found = plan_question('How many claims have the product "total"?', index, DAY)
    assert isinstance(found, Form)
    (pred,) = found.where
    assert isinstance(pred, Compare)
    assert (pred.ref, pred.values[0].value) == (Ref("claims_v", "product"), "total")


def test_a_value_is_spelled_as_it_is_stored():
    (pred,) = plan("How many claims in region WEST?").where
    assert isinstance(pred, Compare)
    assert pred.values[0].value == "west"


def test_negation_is_kept():
    (pred,) = plan("How many claims are not open?").where
    assert isinstance(pred, Compare)
    assert pred.op == "<>"


def test_confidence_falls_with_what_is_guessed():
    sure, joined, negated = (
        plan(text).confidence
        for text in ("How many claims are there?", "How many claims per depot city?", "How many claims are not open?")
    )
    assert sure > joined
    assert sure > negated
    assert plan("How many claims are there?").measures == (Aggregated("count", Ref("claims_v", "*")),)
