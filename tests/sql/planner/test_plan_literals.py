"""Texts that no index holds: codes whose shape a description tells, names on a label; and what else plain questions of a desk need.

Over the demonstration's own catalogue.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from router.policy import load_policies
from router.sql.form import Compare, Form
from router.sql.planner import Abstention, StoredValues, build_index, plan_question

TODAY = date(2026, 12, 1)
VALUES = (
    StoredValues("claims", "status", ("open", "paid", "refused", "disputed")),
    StoredValues("claims", "region", ("North",)),
    StoredValues("depots", "region", ("West", "East", "North", "South")),
    StoredValues("claims", "machine", ("CX-400", "PM-7")),
)


@pytest.fixture(scope="module")
def catalog():
    return load_policies(Path(__file__).parents[3] / "policies").catalog


@pytest.fixture(scope="module")
def index(catalog):
    return build_index(catalog, VALUES)


def answered(index, text):
    found = plan_question(text, index, TODAY)
    assert isinstance(found, Form), (text, found)
    return found


def asked_back(index, text):
    found = plan_question(text, index, TODAY)
    assert isinstance(found, Abstention), (text, found)
    return found


def conditions(form):
    return [(str(pred.ref), pred.op, *(one.value for one in pred.values)) for pred in form.where if isinstance(pred, Compare)]


def shown(form):
    return [str(ref) for ref in form.show]


@pytest.mark.parametrize("spelled", ["CLM-2026-0117", "clm-2026-0117"])
def test_a_code_belongs_to_the_key_whose_description_tells_its_shape(index, spelled):
    form = answered(index, f"What is the reserve of claim {spelled}?")
    assert shown(form) == ["claims.reserve"]
    assert conditions(form) == [("claims.claim_id", "=", "CLM-2026-0117")]


def test_a_code_and_the_number_of_a_depot(index):
    form = answered(index, "What is the price of PN-70460 at depot 1?")
    assert shown(form) == ["parts.price_eur"]
    assert conditions(form) == [("parts.part", "=", "PN-70460"), ("parts.depot", "=", 1)]


@pytest.mark.parametrize("code", ["LD-9", "XX-12345", "PN", "PN-", "-PN-1"])
def test_a_code_of_no_known_shape_is_not_bound(index, code):
    asked_back(index, f"How many claims are about the {code}?")


def test_what_two_fields_could_hold_is_not_bound(catalog):
    from dataclasses import replace

    def told(one):
        return replace(one, description="Bin code, PN- and more") if one.name == "bin" else one

    twice = tuple(
        replace(one, fields=tuple(map(told, one.fields)), primary_key=("tenant", "part", "depot", "bin"))
        if one.name == "parts"
        else one
        for one in catalog.datasets
    )
    index = build_index(replace(catalog, datasets=twice), VALUES)
    assert asked_back(index, "What is the price of PN-70460?").code == "planner_ambiguous"


@pytest.mark.parametrize(
    "text", ["What is the home telephone of Ada Lindqvist?", "Show the home telephone of technician Ada Lindqvist"]
)
def test_a_name_is_looked_for_on_the_label(index, text):
    form = answered(index, text)
    assert shown(form) == ["technicians.home_phone"]
    assert conditions(form) == [("technicians.name", "=", "Ada Lindqvist")]


def test_a_name_is_not_looked_for_on_a_label_that_is_indexed_or_a_key(catalog, index):
    indexed = build_index(catalog, (*VALUES, StoredValues("technicians", "name", ("Otto Sato",))))
    assert asked_back(indexed, "What is the home telephone of Ada Lindqvist?").unbound == ("Ada", "Lindqvist")
    asked_back(index, "What is the amount of Ada Lindqvist?")
    asked_back(index, "Which claims were opened by Rosa Novak?")


def test_a_share_is_of_a_metric_or_is_not_answered(index):
    assert asked_back(index, "Which share of the claims is paid in each region?").code == "planner_percent"
    assert asked_back(index, "What percentage of claims is disputed?").code == "planner_percent"
    assert isinstance(plan_question("Which share of the claims is open in each region?", index, TODAY), Form)
    assert isinstance(plan_question("What is the share of open claims per region?", index, TODAY), Form)


def test_what_was_done_and_when_is_a_condition_and_no_field_that_is_counted(index):
    """It was once the number of different days."""
    form = answered(index, "How many of the claims opened in 2025 were refused?")
    assert str(form.measures[0].of) == "claims.*"
    assert conditions(form) == [("claims.status", "=", "refused")]
    assert (form.time.start, form.time.end) == (date(2025, 1, 1), date(2026, 1, 1))


@pytest.mark.parametrize("text", ["Number of claims by status", "Claims opened in 2026 by status"])
def test_by_parts_what_is_counted(index, text):
    form = answered(index, text)
    assert [str(dim.ref) for dim in form.by] == ["claims.status"]


@pytest.mark.parametrize(
    ("text", "value"), [("How many approvals were verbal?", True), ("How many verbal approvals are there?", True)]
)
def test_a_flag_is_what_rows_are(index, text, value):
    assert conditions(answered(index, text)) == [("approvals.verbal", "=", value)]


def test_a_name_holds_words_that_say_nothing(index):
    form = answered(index, "How many parts are below their reorder level at depot 2?")
    assert conditions(form) == [("parts.running_low", "=", True), ("parts.depot", "=", 2)]


def test_the_first_rows_of_an_order(index):
    form = answered(index, "What are the 5 open claims with the highest amount?")
    assert form.limit == 5
    assert [(str(one.by.ref), one.descending) for one in form.order] == [("claims.amount", True)]
    assert conditions(form) == [("claims.status", "=", "open")]
    assert asked_back(index, "What are the 5 open claims?").code == "planner_top"


def test_when_shows_the_time_that_is_named(index):
    form = answered(index, "When was PN-88251 last counted at depot 1?")
    assert shown(form) == ["parts.counted_on"]
    asked_back(index, "When was PN-88251?")


def test_a_noun_that_is_hidden_is_no_verb(catalog):
    """Somebody who has no `reserve` once got the number of the claim instead."""
    from dataclasses import replace

    less = tuple(replace(one, fields=tuple(field for field in one.fields if field.name != "reserve")) for one in catalog.datasets)
    found = asked_back(build_index(replace(catalog, datasets=less), VALUES), "What is the reserve of claim CLM-2026-0117?")
    assert found.unbound == ("reserve",)


def test_a_value_that_only_another_field_of_that_name_holds_is_none_here_and_one_of_something_else_is_refused(index):
    assert conditions(answered(index, "How many claims are there in region South?")) == [("claims.region", "=", "South")]
    assert asked_back(index, "How many claims with status CX-400?").code in ("planner_value", "planner_no_condition")


def test_words_that_are_not_known_are_told_in_grammar(index):
    assert asked_back(index, "How many suspicious claims are there?").message == "`suspicious` is not known here"
    assert asked_back(index, "Why did water rise?").message == "`Why`, `water` and `rise` are not known here"


def span(form):
    return (str(form.time.ref), form.time.start, form.time.end)


YEAR_2025 = (date(2025, 1, 1), date(2026, 1, 1))


@pytest.mark.parametrize("text", ["Number of claims closed per month in 2025", "How many claims closed in 2025 per month?"])
def test_a_period_and_its_months_are_of_one_day(index, text):
    form = answered(index, text)
    assert span(form) == ("claims.closed_on", *YEAR_2025)
    assert [str(dim.ref) for dim in form.by] == ["claims.closed_on"]


@pytest.mark.parametrize(
    "text",
    ["How many claims were paid in 2025?", "How many claims did the desk open in 2025?", "How many claims are open today?"],
)
def test_when_a_state_was_reached_is_not_the_default_time(index, text):
    asked_back(index, text)


def test_an_attribute_before_a_period_is_no_state(index):
    for words in ("in region North", "about the CX-400"):
        assert span(answered(index, f"How many claims {words} in 2025?")) == ("claims.opened_on", *YEAR_2025)


@pytest.mark.parametrize(("words", "start"), [("since yesterday", date(2026, 11, 30)), ("since last month", date(2026, 11, 1))])
def test_since_a_day_that_is_told_from_today(index, words, start):
    assert span(answered(index, f"How many claims were opened {words}?")) == ("claims.opened_on", start, None)


@pytest.mark.parametrize("done", ["left", "stayed", "started", "retired"])
def test_a_day_that_says_what_was_done_is_not_the_day_of_something_else(index, done):
    """ "Left in 2024" once counted who was hired then: there is no other day."""
    asked_back(index, f"How many technicians {done} in 2024?")
    assert span(answered(index, "How many technicians were hired in 2025?")) == ("technicians.hired_on", *YEAR_2025)


def test_a_code_after_the_field_that_holds_it(index):
    assert conditions(answered(index, "Which parts are in bin B-17-1?")) == [("parts.bin", "=", "B-17-1")]
    asked_back(index, "How many claims with machine LD-9?")


def test_months_and_something_else_part_what_is_counted(index):
    form = answered(index, "How many claims per month and machine in 2025?")
    assert [(str(dim.ref), dim.grain) for dim in form.by] == [("claims.opened_on", "month"), ("claims.machine", None)]


def test_since_when_a_state_holds_is_when_it_began(index):
    assert span(answered(index, "How many claims are open since May 2026?")) == ("claims.opened_on", date(2026, 5, 1), None)


def test_the_first_by_an_amount_are_rows_and_not_what_many_rows_share(index):
    assert answered(index, "Top 5 claims by amount").limit == 5
    assert asked_back(index, "Top 3 customers by amount").code == "planner_no_group"
    form = answered(index, "Which 3 customers have the most claims?")
    assert (form.limit, [str(dim.ref) for dim in form.by]) == (3, ["claims.customer"])


def test_an_amount_is_no_year(index):
    form = answered(index, "List all claims of 2026 with amount over 1000 sorted by amount")
    assert conditions(form) == [("claims.amount", ">", 1000)]
    assert span(form) == ("claims.opened_on", date(2026, 1, 1), date(2027, 1, 1))
    asked_back(index, "How many claims with a customer in 2026?")


@pytest.mark.parametrize(
    "text",
    [
        "Which claims were opened by region West?",
        "claims opened by Kestrel Parcels",
        "List the claims closed",
        "How many approvals by the depot lead in 2026?",
    ],
)
def test_who_did_it_is_no_group_and_what_was_done_is_no_column(index, text):
    asked_back(index, text)


def test_a_metric_is_parted_by_a_dataset(index):
    form = answered(index, "open rate by depot")
    assert [str(getattr(dim, "ref", dim)) for dim in form.by][:1] == ["depots.place"]


def test_the_oldest_is_so_by_the_time_that_is_asked_for(index):
    form = answered(index, "When was the oldest disputed claim opened?")
    assert (shown(form), form.limit) == (["claims.opened_on"], 1)
    assert [(str(one.by.ref), one.descending) for one in form.order] == [("claims.opened_on", False)]
    newest = answered(index, "When was the newest disputed claim closed?")
    assert [(str(one.by.ref), one.descending) for one in newest.order] == [("claims.closed_on", True)]


def test_a_depot_is_told_by_its_number(index):
    assert conditions(answered(index, "How many technicians work at depot 4?")) == [("technicians.depot", "=", 4)]
    form = answered(index, "What is the region of depot 4?")
    assert (shown(form), conditions(form)) == (["depots.region"], [("depots.depot", "=", 4)])


def test_zero_of_a_number_is_nought_and_none_is_missing(index):
    assert conditions(answered(index, "How many parts with zero on hand are there?")) == [("parts.on_hand", "=", 0)]
    assert conditions(answered(index, "How many claims have no reserve?")) == [("claims.reserve", "is_null")]


def test_how_many_of_a_part_adds_up_pieces_and_never_amounts(index):
    form = answered(index, "How many PN-70417 are on hand in total?")
    assert [(one.agg, str(one.of)) for one in form.measures] == [("sum", "parts.on_hand")]
    assert conditions(form) == [("parts.part", "=", "PN-70417")]
    at_depot = answered(index, "How many PN-70417 are at depot 1?")
    assert [(one.agg, str(one.of)) for one in at_depot.measures] == [("sum", "parts.on_hand")]
    for text in ("How many PN-70417 are price?", "How many PN-70417 were ordered?", "How many CLM-2026-0117 are there?"):
        asked_back(index, text)


def test_who_did_it_is_the_field_that_is_called_so(index):
    """ "Reported by" is of the reporter, which is a name of the claimant."""
    form = answered(index, "Which claims were reported by Rosa Novak?")
    assert conditions(form) == [("claims.claimant", "=", "Rosa Novak")]


def test_what_somebody_does_is_the_field_that_says_who(index):
    form = answered(index, "Who leads depot 5?")
    assert (shown(form), conditions(form)) == (["depots.lead"], [("depots.depot", "=", 5)])


@pytest.mark.parametrize("text", ["List all but paid claims", "Show all claims except paid ones"])
def test_all_but_some_are_the_others(index, text):
    assert conditions(answered(index, text)) == [("claims.status", "<>", "paid")]


def test_what_is_listed_with_its_owner_is_shown(index):
    assert shown(answered(index, "List technicians and their depot")) == ["technicians.name", "technicians.depot"]


def test_what_is_listed_with_rows_of_many_is_asked_back(index):
    assert asked_back(index, "Show claims and their approvals").code == "planner_two_heads"


def test_none_of_a_kind_is_not_none_of_a_row(index):
    """It once listed the regions of which some claim has no approval."""
    assert asked_back(index, "Which regions have claims but no approvals?").code in ("planner_negation", "planner_ambiguous")


def test_kinds_are_listed_once_and_what_rows_have_as_often_as_they_have_it(index):
    assert answered(index, "List machines").distinct
    assert answered(index, "Which machines have open claims?").distinct
    assert not answered(index, "List the machines of the open claims").distinct
    assert not answered(index, "List the amounts of claims").distinct
    assert not answered(index, "Which claims are open?").distinct


@pytest.mark.parametrize("text", ["by month claims", "per month", "monthly claims by month", "each claims per year claims"])
def test_groups_before_what_is_grouped_raise_nothing(index, text):
    assert isinstance(plan_question(text, index, TODAY), Form | Abstention)


def test_the_fewest_say_that_none_is_not_among_them(index):
    assert answered(index, "Which depot has the fewest technicians?").notes == ("what has none at all is not among them",)
    assert not answered(index, "Which depot has the most technicians?").notes


def test_what_is_had_in_common_is_no_relation(index):
    assert asked_back(index, "How many technicians share a depot?").unbound == ("share",)
