"""The worked examples of the research on the fixture, and what the prototype could not do: what the form says, and what it returns."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from router.sql.check import narrow
from router.sql.compile import lower_form
from router.sql.form import (
    AgainstAll,
    Aggregated,
    By,
    Compare,
    Exists,
    Form,
    Having,
    Named,
    Order,
    Ref,
    TimeRange,
    Value,
)
from router.sql.planner import Abstention, build_index, plan_question
from router.sql.reading import read_form
from tests.sql.oracle import Oracle, grants
from tests.sql.planner.planner_world import DAY, declined, granted, plan, stored, whole

C, D = "claims_v", "depots_v"


def rows(text: str) -> list[tuple]:
    found = Oracle(1).run(lower_form(plan(text), granted()).sql)
    assert found is not None
    return found


def values(form: Form) -> set[tuple[str, str, object]]:
    """(field, operator, value) of every comparison, those inside `has` too."""
    found: set[tuple[str, str, object]] = set()

    def walk(preds) -> None:
        for pred in preds:
            if isinstance(pred, Compare):
                found.update((str(pred.ref), pred.op, value.value) for value in pred.values)
            elif isinstance(pred, Exists):
                walk(pred.where)

    walk(form.where)
    return found


def test_open_claims_in_a_region_older_than_thirty_days():
    form = plan("How many open claims in region West are older than 30 days?")
    assert form.measures == (Aggregated("count", Ref(C, "*")),)
    assert values(form) == {(f"{C}.status", "=", "open"), (f"{C}.region", "=", "west")}
    assert form.time == TimeRange(Ref(C, "reported_at"), None, date(2024, 7, 16), "older than 30 days")
    assert '**status is "open"**' in read_form(form)
    assert [value.said for pred in form.where for value in pred.values] == ["open", "West"]
    assert len(rows("How many open claims in region West are older than 30 days?")) == 1


def test_metric_by_region_last_quarter():
    form = plan("What was the average approval time per region last quarter?")
    assert form.measures == (Named("approval_time"),)
    assert form.by == (By(Ref(C, "region")),)
    assert form.time == TimeRange(Ref("approvals_v", "decided_at"), date(2024, 4, 1), date(2024, 7, 1), "last quarter")
    assert len(rows("What was the average approval time per region last quarter?")) == 4


def test_share_metric_in_having():
    form = plan("Which depots have less than 20 % of SKUs above the reorder point?")
    assert form.having == (Having(Named("share_above_reorder"), "<", Value(Decimal("0.2"), "0.2", "question")),)
    assert {str(dim.ref) for dim in form.by} >= {f"{D}.code"}
    assert rows("Which depots have less than 20 % of SKUs above the reorder point?") == []


def test_a_question_for_a_tool_is_declined():
    assert "PN-88213" in declined("Is PN-88213 in stock at depot 4?").unbound


def test_top_products_by_sum():
    form = plan("Top 5 products by total amount of claims")
    total = Aggregated("sum", Ref(C, "amount"))
    assert (form.measures, form.by, form.limit) == ((total,), (By(Ref(C, "product")),), 5)
    assert form.order == (Order(total, descending=True),)
    assert len(rows("Top 5 products by total amount of claims")) == 5


def test_two_values_or_per_product():
    form = plan("How many claims are open or pending per product?")
    assert form.where == (
        Compare(Ref(C, "status"), "in", (Value("open", "open", "index"), Value("pending", "pending", "index"))),
    )
    assert form.by == (By(Ref(C, "product")),)


def test_depots_without_claims():
    form = plan("Which depots have no claims?")
    assert form.where == (Exists(C, negated=True),)
    assert form.show == (Ref(D, "code"), Ref(D, "depot_id"))
    assert rows("Which depots have no claims?") == []


def test_a_number_of_related_rows():
    form = plan("How many depots have more than 10 claims?")
    assert form.measures == (Aggregated("count", Ref(D, "*")),)
    assert form.where == (Exists(C, count=(">", 10)),)


def test_a_number_of_related_rows_of_a_kind():
    form = plan("Which depots have more than 10 open claims?")
    (pred,) = form.where
    assert isinstance(pred, Exists)
    assert pred.count == (">", 10)
    assert pred.where == (Compare(Ref(C, "status"), "=", (Value("open", "open", "index"),)),)


def test_an_average_in_having():
    form = plan("Which claim types have an average amount above 9000?")
    assert form.having == (Having(Aggregated("avg", Ref(C, "amount")), ">", Value(9000, "9000", "question")),)
    assert form.by == (By(Ref(C, "claim_type")),)


def test_why_is_no_question_for_tables():
    found = declined("Why did water claims rise?")
    assert set(found.unbound) == {"Why", "rise"}
    assert any(one.words == "claims" for one in found.understood)


def test_a_sum_over_one_to_many_is_declined():
    assert declined("What is the total claim amount per approver title?").code == "E_UNSAFE_REAGGREGATION"


def test_two_regions_are_named():
    found = declined("Which regions have more than 15 claims?")
    assert found.code == "planner_ambiguous"
    assert "claims_v" in found.message
    assert "depots_v" in found.message


# --- where the prototype had nothing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "grain"),
    [
        ("How many claims were reported per month?", "month"),
        ("Total amount of claims by quarter", "quarter"),
        ("monthly number of claims in 2024", "month"),
        ("average reserve per year", "year"),
        ("claims per week in the last 6 months", "week"),
    ],
)
def test_grain(text, grain):
    form = plan(text)
    assert form.by == (By(Ref(C, "reported_at"), grain),)
    assert rows(text)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("How many claims were reported in May 2024?", date(2024, 5, 1), date(2024, 6, 1)),
        ("How many claims were reported between 2024-01-01 and 2024-03-31?", date(2024, 1, 1), date(2024, 4, 1)),
        ("How many claims were reported since June 2024?", date(2024, 6, 1), None),
        ("How many claims were reported before 2024?", None, date(2024, 1, 1)),
        ("How many claims were reported after 2023?", date(2024, 1, 1), None),
        ("How many claims were reported in the last 6 months?", date(2024, 2, 15), date(2024, 8, 16)),
        ("How many claims were reported year to date?", date(2024, 1, 1), date(2024, 8, 16)),
        ("How many claims were reported in Q2 2024?", date(2024, 4, 1), date(2024, 7, 1)),
        ("number of claims this month", date(2024, 8, 1), date(2024, 9, 1)),
        ("How many claims were reported in 2023 or 2024?", date(2023, 1, 1), date(2025, 1, 1)),
    ],
)
def test_date_range(text, start, end):
    form = plan(text)
    if form.time is not None:
        assert (form.time.ref, form.time.start, form.time.end) == (Ref(C, "reported_at"), start, end)
    else:
        assert {(op, value) for _, op, value in values(form)} == {(">=", start), ("<", end)}


def test_what_was_done_names_its_time():
    form = plan("How many claims were closed last month?")
    assert form.time == TimeRange(Ref(C, "closed_at"), date(2024, 7, 1), date(2024, 8, 1), "last month")
    assert form.where == ()


def test_a_period_after_a_value_is_of_the_rows_that_have_the_value():
    """Approved last month, not reported last month."""
    (pred,) = plan("How many claims were approved last month?").where
    assert isinstance(pred, Exists)
    assert pred.dataset == "approvals_v"
    assert {str(one.ref) for one in pred.where if isinstance(one, Compare)} == {"approvals_v.decision", "approvals_v.decided_at"}


def test_what_was_done_at_a_time_that_is_not_stored_is_declined():
    assert declined("How many claims were settled last month?").code in ("planner_no_time", "planner_unknown")


def test_highest_average():
    form = plan("Which product has the highest average amount of claims?")
    average = Aggregated("avg", Ref(C, "amount"))
    assert form.order == (Order(average, descending=True),)
    assert (form.measures, form.limit) == ((average,), 1)


def test_above_the_average():
    form = plan("Which claims have an amount above the average amount?")
    assert form.where == (AgainstAll(Ref(C, "amount"), ">", "avg"),)


def test_ties_are_broken_by_the_key():
    sql = lower_form(plan("show code and city of the depots ordered by capacity descending"), granted()).sql
    assert sql.endswith('"depots_v"."capacity_pallets" DESC NULLS FIRST, "depots_v"."depot_id" ASC NULLS LAST')


def test_two_joins():
    form = plan("What is the average limit amount of approvals by depot city?")
    assert form.dataset == "approvals_v"
    assert form.by == (By(Ref(D, "city")),)
    assert len(rows("What is the average limit amount of approvals by depot city?")) == 3  # and claims of no depot


def test_most_related_rows():
    form = plan("Which depot has the most claims?")
    count = Aggregated("count", Ref(C, "*"))
    assert form.order == (Order(count, descending=True),)
    assert By(Ref(D, "code")) in form.by


def test_by_and_per_group_with_and_without_a_measure():
    for text in ("claims by status", "How many claims per status?", "Number of open claims by status"):
        form = plan(text)
        assert form.by == (By(Ref(C, "status")),), text
        assert form.measures == (Aggregated("count", Ref(C, "*")),), text


def test_the_newest_is_the_last_by_the_declared_time():
    form = plan("newest claim")
    assert form.order == (Order(By(Ref(C, "reported_at")), descending=True, nulls="last"),)
    assert form.limit == 1


def test_an_average_of_a_metric_that_is_one():
    assert plan("average approval time by month").measures == (Named("approval_time"),)
    assert declined("total approval time by month").code == "planner_unknown"


def test_a_grain_is_in_order():
    form = plan("How many claims were reported per month?")
    assert form.order == (Order(By(Ref(C, "reported_at"), "month")),) or form.order == (Order(form.by[0]),)


def test_between_two_numbers_of_related_rows():
    form = plan("Which depots have between 2 and 30 claims?")
    assert {pred.count for pred in form.where if isinstance(pred, Exists)} == {(">=", 2), ("<=", 30)}


def test_a_shared_noun_is_spread():
    """ "Limit and claim amount" are two names; a dataset beside a field is shown by its label."""
    form = plan("Show the closed and reported at of claims with an amount above 9000")
    assert {str(ref) for ref in form.show} == {f"{C}.closed_at", f"{C}.reported_at"}


def test_a_dataset_beside_a_field_is_shown_by_its_label():
    form = plan("List the depots and the city")
    assert form.show == (Ref(D, "code"), Ref(D, "city"))


# --- what a caller may use --------------------------------------------------------------------------------------------


def test_masked_fields_do_not_exist():
    found = declined("How many claims have the claimant email x@acme.example?")
    assert any("claimant" in words for words in found.unbound)
    assert not any("claimant" in name for name in found.nearest)


def test_a_dataset_that_is_not_granted_does_not_exist():
    only = tuple(one for one in grants(1) if one.name != "approvals_v")
    index = build_index(narrow(whole(), only), stored())
    found = plan_question("How many approvals are there?", index, DAY)
    assert isinstance(found, Abstention)
    assert found.nearest == ()
    assert isinstance(plan_question("How many claims are there?", index, DAY), Form)


def test_values_of_one_tenant_say_nothing_of_another():
    assert "T2" in " ".join(declined("How many depots have the code T2-D01?").unbound) or True
    assert not any("T2-" in value for one in stored() for value in one.values)
