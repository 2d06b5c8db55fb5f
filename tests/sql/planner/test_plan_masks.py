"""What may be done with a masked field: it is shown, and where a policy says so looked for; nothing is computed of a mask."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.sql.form import AgainstAll, Aggregated, AnyOf, By, Compare, Exists, Form
from router.sql.planner import plan_question
from router.sql.reading import read_form
from router.sql.vocabulary import rounds
from tests.sql.planner.shop_world import DAY, asks, conditions, masked, read

PHONE, SALARY, CREATOR, AMOUNT = ("clerks", "telephone"), ("clerks", "salary"), ("orders", "creator"), ("orders", "amount")
PLAIN = masked((PHONE, SALARY, CREATOR, AMOUNT))
OPEN = masked((PHONE, SALARY, CREATOR, AMOUNT), findable=(CREATOR,), rounded=(SALARY,))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("What is the telephone of Ann Lee?", 'I list telephone of clerks where name is "Ann Lee" (telephone is shown masked)'),
        ("What does the clerk Ann Lee earn?", 'I list salary of clerks where name is "Ann Lee" (salary is shown masked)'),
        ("List name and telephone of clerks", "I list name, telephone of clerks (telephone is shown masked)"),
        ("Show the amount of late orders", 'I list amount of orders where status is "late" (amount is shown masked)'),
    ],
)
def test_a_mask_is_shown_and_said_to_be_one(text, meant):
    assert read_form(read(text, PLAIN), "") == meant


NOTHING_ELSE = [
    "How many orders were created by Ann Lee?",
    "Number of orders per creator",
    "How many clerks have a salary over 3000?",
    "clerks sorted by salary",
    "Clerk with the highest salary",
    "average salary of clerks",
    "total amount of late orders",
    "What do the late orders add up to?",
    "highest amount of late orders",
    "number of different creators",
    "List the different telephones of clerks",
    "Orders over 300 dollars",
    "Which orders have no creator?",
    "shops with average salary over 2000",
    "orders with an amount above the average amount",
    "Which shops have orders with an amount over 300?",
    "How many orders are there in Graz with amount over 10 or status late?",
]


@pytest.mark.parametrize("text", NOTHING_ELSE)
def test_nothing_else_is_done_with_a_mask(text):
    asks(text, PLAIN)


def test_the_same_questions_are_answered_over_raw_values():
    answered = [text for text in NOTHING_ELSE if isinstance(plan_question(text, masked(()), DAY), Form)]
    assert len(answered) >= 0.7 * len(NOTHING_ELSE), set(NOTHING_ELSE) - set(answered)


def test_raw_values_are_looked_for_where_a_policy_opens_them():
    assert conditions(read("How many orders were created by Ann Lee?", OPEN)) == [("orders.creator", "=", "Ann Lee")]
    assert conditions(read("Show the creator of orders with creator 'Ann Lee'", OPEN)) == [("orders.creator", "=", "Ann Lee")]


@pytest.mark.parametrize(
    "text",
    [
        "How many orders in Graz were created by Ann Lee?",  # over a join the mask would be compared
        "Which shops have orders created by Ann Lee?",
        "Orders with creator 'Ann Lee' or status late",
        "Orders not created by Ann Lee",
        "Orders whose creator starts with 'A'",
        "Number of orders per creator",
    ],
)
def test_raw_values_are_looked_for_in_no_other_way(text):
    asks(text, OPEN)


def test_what_is_only_rounded_has_a_greatest_and_no_sum():
    assert (
        read_form(read("What is the highest salary of clerks?", OPEN), "")
        == "I compute the greatest salary (salary is shown masked)"
    )
    assert read("lowest salary per shop", OPEN).measures
    asks("average salary of clerks", OPEN)
    asks("What is the highest salary of clerks?", PLAIN)
    asks("Clerk with the highest salary", OPEN)


@pytest.mark.parametrize(
    ("mask", "whether"),
    [
        ("CAST(round(reserve / 100) * 100 AS DECIMAL(10,2))", True),
        ("round(reserve)", True),
        ("floor(reserve/10)*10", True),
        ("round(reserve / 100) * 10", False),
        ("round(amount / 100) * 100", False),
        ("round(reserve / 100) * -100", False),
        ("round(-reserve)", False),
        ("reserve % 10", False),
        ("round(reserve / 100) * 100 + hash(reserve)", False),
        ("NULL", False),
        ("'***'", False),
    ],
)
def test_a_rounding_is_told_by_its_text(mask, whether):
    assert rounds(mask, "reserve") is whether


PARTS = [
    "orders", "clerks", "creator", "amount", "salary", "telephone", "per", "by", "over", "300", "highest", "average", "total", "how many",
    "sorted by", "with", "late", "created by", "Ann Lee", "in Graz", "and", "or", "not", "different", "newest first", "no",
]  # fmt: skip


@given(st.lists(st.sampled_from(PARTS), min_size=2, max_size=8).map(" ".join))
def test_no_mix_of_words_uses_a_mask(text):
    form = plan_question(text, PLAIN, DAY)
    if isinstance(form, Form):
        used = [one.of for one in form.measures if isinstance(one, Aggregated)]
        used += [one.ref for one in form.by if isinstance(one, By)]
        used += [one.by.ref for one in form.order if isinstance(one.by, By)]
        preds = list(form.where)
        while preds:
            pred = preds.pop()
            preds += pred.preds if isinstance(pred, AnyOf) else pred.where if isinstance(pred, Exists) else ()
            used += [pred.ref] if isinstance(pred, Compare | AgainstAll) else []
        assert not {(ref.dataset, ref.field) for ref in used} & PLAIN.masks.shown
