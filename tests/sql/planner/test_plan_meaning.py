"""What a question takes away, joins, bounds or measures otherwise: it is read as meant, else asked back, never passed over.

Wrong rows are worse than none. Each reading here is checked as a whole, over the demonstration's own catalogue.
"""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.policy import load_policies
from router.sql.compile import lower_form
from router.sql.form import Form
from router.sql.planner import Abstention, StoredValues, build_index, plan_question
from router.sql.planner.words import PHRASES
from router.sql.reading import read_form

TODAY = date(2026, 12, 1)
VALUES = (
    StoredValues("claims", "status", ("open", "paid", "refused", "disputed")),
    StoredValues("claims", "type", ("R1", "R2", "W1")),
    StoredValues("claims", "customer", ("Oakum Paper", "Tamarind Foods")),
    StoredValues("claims", "machine", ("CX-400", "LD-2")),
    StoredValues("depots", "place", ("Ashby", "Wickham Cross")),
    *(StoredValues(name, "region", ("West", "East", "North")) for name in ("claims", "depots", "technicians", "approvals")),
    StoredValues("approvals", "role", ("director", "desk lead")),
)
CATALOG = load_policies(Path(__file__).parents[3] / "policies").catalog
INDEX = build_index(CATALOG, VALUES)


def told(text):
    """What the reading says of rows: after "where"."""
    form = plan_question(text, INDEX, TODAY)
    assert isinstance(form, Form), (text, form)
    return read_form(form, "").partition(" where ")[2]


CLOSED = "closed on is from 2025-01-01 (in 2025) and closed on is before 2026-01-01 (in 2025) and "
READ = [
    ("claims where status is paid or amount is over 1000", '(status is "paid" or amount is more than 1000)'),
    ("claims where status is paid or amount is between 10 and 20", '(status is "paid" or amount is between 10 and 20)'),
    ("claims where amount is over 2000 or reserve is at least 50", "(amount is more than 2000 or reserve is at least 50)"),
    ("claims with amount not between 100 and 200", "(amount is less than 100 or amount is more than 200)"),
    ("claims where amount is not over 100", "amount is at most 100"),
    ("claims save for type R1", 'type is not "R1"'),
    ("claims aside from R1", 'type is not "R1"'),
    ("claims apart from those of type R1", 'type is not "R1"'),
    ("claims other than open", 'status is not "open"'),
    ("claims excluding Oakum Paper", 'customer is not "Oakum Paper"'),
    ("claims except R1 or R2", 'type is none of "R1", "R2"'),
    ("claims outside West", 'region is not "West"'),
    ("all depots except those in West", 'region is not "West"'),
    ("claims in neither West nor East", 'region is not "West" and region is not "East"'),
    ("open but not disputed claims", 'status is "open" and status is not "disputed"'),
    ("claims of Oakum Paper but with amount over 100", 'customer is "Oakum Paper" and amount is more than 100'),
    ("depots with zero claims", "there is no row of claims"),
    ("claims with exactly one approval", "there are exactly 1 approvals"),
    ("open claims in West or with type R1", 'status is "open" and (region is "West" or type is "R1")'),
    (
        "How many claims opened in 2024 were closed in 2025?",
        CLOSED + "opened on from 2024-01-01 and before 2025-01-01 (in 2024)",
    ),
    (
        "claims opened before 2024 but closed after 2025",
        "closed on is from 2026-01-01 (after 2025) and opened on before 2024-01-01 (before 2024)",
    ),
    (
        "claims opened after 2023 and before 2025",
        "opened on is before 2025-01-01 (before 2025) and opened on from 2024-01-01 (after 2023)",
    ),
    ("claims opened before the end of 2024", "opened on before 2025-01-01 (before the end of 2024)"),
    ("claims opened by the end of 2024", "opened on before 2025-01-01 (by the end of 2024)"),
    ("claims opened since the end of 2024", "opened on from 2025-01-01 (since the end of 2024)"),
    ("claims opened after the start of 2024", "opened on from 2024-01-01 (after the start of 2024)"),
    ("claims opened until the start of 2024", "opened on before 2024-01-01 (until the start of 2024)"),
    ("claims opened from 2024 on", "opened on from 2024-01-01 (from 2024 on)"),
    ("claims opened from 2023 through 2024", "opened on from 2023-01-01 and before 2025-01-01 (from 2023 through 2024)"),
    ("claims opened from 2024 to now", "opened on from 2024-01-01 and before 2026-12-02 (from 2024 to now)"),
    ("claims with amount over 1000 euros", "amount is more than 1000"),
    ("approvals over 48 hours", "hours is more than 48"),
    ("claims with amount at least 100 or more", "amount is at least 100"),
]


@pytest.mark.parametrize(("text", "meant"), READ, ids=[one[0] for one in READ])
def test_read_as_meant(text, meant):
    assert told(text) == meant


ASKED_BACK = {
    "planner_negation": """
        all claims but open ones|claims but those of type R1|all claims but those of type R1|every claim but the paid
        |claims from every customer but Oakum Paper|claims of every depot but Ashby|claims save open ones|claims that stopped being open
        |claims except open ones of Oakum Paper|claims of Oakum Paper except open ones in West|claims excluding R1 with amount over 100
        |claims except open and of type R1|all depots except Ashby with claims|depots except those with open claims
        |claims not open or of type R1|claims that are not open or not paid|claims not opened in 2024|claims outside 2025
        |which customer had never an open claim|how many customers never had an open claim
        |claims that don't have status open and region West|depots with no claims and technicians|how many claims became open
        |depots with open claims and without approvals|claims whose machine does not start with "CX" """,
    "planner_or": """
        claims where type is R1 or status is open and region is West|claims where type is R1 and status is open or region is West
        |claims that are open or in West and of type R1|claims opened in 2024 or closed in 2025""",
    "planner_two_periods": """
        claims opened in the last 2 weeks of 2025|claims opened in the last quarter of 2025|claims opened in Q1 this year
        |claims opened in Q1 and Q2 2025|claims opened this year and last year|claims opened in May 2025 and June 2025""",
    "planner_no_time": "claims by 2024|claims opened in 2024 on|claims opened from 2024 to closed|claims refused since 2025",
    "planner_no_condition": "claims opened and closed in 2025|claims opened by 2024|claims opened up to 2024|claims opened or closed in 2025",
    "planner_unit": """
        claims with amount over 1000 dollars|claims with amount over $1000|claims with amount over 2 million
        |claims with amount over 10 %|claims with amount between 100 and 200 dollars|approvals with hours over 3 days
        |roles with approval time over 3 days|customers with total amount over 50000 dollars|parts with price over 10 dollars""",
    "planner_number": """
        claims with amount between 200 and 100|claims with amount above 100 or more|claims with only type R1
        |claims where amount is greater than reserve|claims twice as many as in 2024
        |claims with amount about 100|claims with amount over 1.000""",
    "planner_fewer": "customers with less than 3 open claims|customers with at most 3 claims in 2025",
    "planner_two_heads": """
        open claims and claims in West|claims in West and claims of type R1|average amount per customer and claim
        |list name and depot|customers and their claims""",
    "planner_unused": "claims including open ones|claims including those in West|claims of Oakum Paper as well as type R1",
    "planner_unknown": """
        claims opened until 2024|claims opened through 2024|claims opened in the past year|claims no longer open|claims not yet closed
        |depots with more open claims than paid claims|How many claims of nobody but Oakum Paper?|claims closed before opened
        |claims instead of open|claims opened 30 days ago|claims with amount twice as large as the reserve""",
    "planner_top": "first claim of each customer|last claim of each customer|the last 5 claims",
    "planner_both": "customers with both open and paid claims|claims in both West and East|claims except open and paid",
    "planner_mood": "how many claims should be paid|how many claims used to be open|how many claims were ever open",
    "planner_order": "order of claims",
    "planner_universal": """
        depots where not all claims are open|depots whose claims are all open
        |which customers had claims every year|claims opened every month in 2024""",
}  # fmt: skip
ASKED = [(code, text.strip()) for code, texts in ASKED_BACK.items() for text in texts.split("|")]


@pytest.mark.parametrize(("code", "text"), ASKED, ids=[one[1] for one in ASKED])
def test_asked_back(code, text):
    planned = plan_question(text, INDEX, TODAY)
    assert isinstance(planned, Abstention), (text, read_form(planned))
    assert planned.code == code, planned


@pytest.mark.parametrize(
    "text",
    [
        "List the reserve of claims",
        "reserve of open claims",
        "request of claims",
        "show status and reserve of claims",
        "How many claims are open and what is the reserve?",
        "How many claims are open and report?",
    ],
)
def test_a_field_that_is_called_like_a_verb_is_not_passed_over_where_it_is_hidden(text):
    hidden = replace(
        CATALOG,
        datasets=tuple(
            replace(one, fields=tuple(each for each in one.fields if each.name != "reserve")) for one in CATALOG.datasets
        ),
    )
    assert isinstance(plan_question(text, build_index(hidden, VALUES), TODAY), Abstention)


def test_the_earliest_of_a_time_that_is_named_is_by_that_time():
    form = plan_question("earliest closing date of open claims", INDEX, TODAY)
    assert isinstance(form, Form), form
    assert [str(ref) for ref in form.show] == ["claims.closed_on"]
    assert [(str(one.by.ref), one.descending) for one in form.order] == [("claims.closed_on", False)]


def test_a_field_named_beside_another_is_of_the_same_rows():
    form = plan_question("List name and depot of technicians", INDEX, TODAY)
    assert isinstance(form, Form), form
    assert [str(ref) for ref in form.show] == ["technicians.name", "technicians.depot"]


def test_a_share_that_the_catalogue_has_in_percent_is_compared_in_percent():
    form = plan_question("depots with more than 10 percent open claim rate", INDEX, TODAY)
    assert isinstance(form, Form), form
    assert [one.value.value for one in form.having] == [10]


SAID = sorted({" ".join(words) for table in PHRASES.values() for words in table})
NAMED = (
    "claims depots approvals technicians parts customer region amount status machine opened closed hired hours reserve".split()
)
LITERALS = ["open", "R1", "West", "Oakum Paper", "2024", "5", "100", "'x'", "in 2025", "last month", "percent", "million", "days"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*SAID, *NAMED * 8, *LITERALS * 8]), min_size=2, max_size=9))
def test_no_mix_of_phrases_raises_and_what_is_planned_compiles(words):
    planned = plan_question(" ".join(words), INDEX, TODAY)
    if isinstance(planned, Form):
        lower_form(planned, CATALOG)
        read_form(planned)
