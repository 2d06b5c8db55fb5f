"""Turns of phrase: what is said with a verb or at the end of a question is read as the noun that it stands for, over any schema.

Every kind with other wordings than those of the demonstration, and with near misses that stay asked back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.sql.form import Aggregated, Form, Named
from router.sql.planner import build_index, plan_question
from router.sql.planner.segment import spread
from router.sql.planner.tokens import tokenise
from router.sql.planner.turns import turned
from router.sql.reading import read_form
from tests.sql.planner.planner_world import DAY as CLAIMS_DAY
from tests.sql.planner.planner_world import index as claims
from tests.sql.planner.shop_world import CATALOG, DAY, INDEX, VALUES, asks, field, read

READ = {
    "what it is worth": [
        ("What is the stock worth per shop?", "I compute the stock value for each city of shops and each shop id"),
        ("How much are the articles worth?", "I compute the stock value"),
        ("What are the articles in Graz worth?", 'I compute the stock value where city of shops is "Graz"'),
    ],
    "what a verb measures": [
        ("What does a desk lamp cost?", 'I list price of products where name is "desk lamp"'),
        ("How much do the walnut tables cost?", 'I list price of products where name is "walnut table" (walnut tables)'),
        ("What does a fold-out bed weigh?", 'I list weight of products where name is "fold-out bed" (fold - out bed)'),
        ("What does the clerk Ann Lee earn?", 'I list salary of clerks where name is "Ann Lee"'),
        ("What does a clerk earn on average, by shop?", "I compute the average of salary for each city of shops and each shop id"),
    ],
    "on average": [
        ("What is the price of furniture on average?", 'I compute the average of price where category is "furniture"'),
        ("On average, what is the price of furniture?", 'I compute the average of price where category is "furniture"'),
        ("Weight of articles on average by category", "I compute the average of weight for each category"),
        ("What is the amount of sent orders on average per courier?",
         'I compute the average of amount for each courier where status is "sent"'),
    ],
    "how many a row takes": [
        ("How many days does an order take on average?", "I compute the average of days"),
        ("How many days does an order take on average per courier?", "I compute the average of days for each courier"),
        ("How many days does a late order need on average?", 'I compute the average of days where status is "late"'),
    ],
    "what they add up to": [
        ("What do the sent orders add up to?", 'I compute the sum of amount where status is "sent"'),
        ("How much do the orders placed in 2025 come to?",
         "I compute the sum of amount where placed on from 2025-01-01 and before 2026-01-01 (in 2025)"),
        ("What do the orders of Swift Wheels amount to, per status?",
         'I compute the sum of amount for each status where courier is "Swift Wheels"'),
    ],
    "which share is so": [
        ("Which share of the orders is late?", "I compute the late rate"),
        ("What percentage of orders are late per courier?", "I compute the late rate for each courier"),
        ("What proportion of the orders of Swift Wheels is late?", 'I compute the late rate where courier is "Swift Wheels"'),
    ],
    "how long it takes": [
        ("How long does an order take on average?", "I compute the average of days"),
        ("How long do orders take on average, by courier?", "I compute the average of days for each courier"),
        ("How long does an order take on average per shop?", "I compute the average of days for each city of shops and each shop id"),
    ],
    "whether there are any": [
        ("Are there any late orders in Graz?", 'I list order id of orders where status is "late" and city of shops is "Graz"'),
        ("Do we have desk lamps in Graz?",
         'I compute the sum of units in stock where name is "desk lamp" (desk lamps) and city of shops is "Graz"'),
        ("Is there a desk lamp in Lyon?", 'I compute the sum of units in stock where name is "desk lamp" and city of shops is "Lyon"'),
    ],
    "where it is": [
        ("Where is shop 3?", "I list city of shops where shop id is 3"),
        ("Where are the shops with owner 'Ann Lee'?", 'I list city of shops where owner is "Ann Lee"'),
        ("Where is the shop 7?", "I list city of shops where shop id is 7"),
    ],
    "two groups": [
        ("Orders by courier and status", "I count orders for each courier and each status"),
        ("Late orders by courier and creator", 'I count orders for each courier and each creator where status is "late"'),
        ("Articles by category and price", "I count products for each category and each price"),
    ],
    "periods that share a year": [
        ("How many orders were placed between March and May 2025?",
         "I count orders where placed on from 2025-03-01 and before 2025-06-01 (between March and May 2025)"),
        ("Orders placed from 7 to 13 December 2025",
         "I list order id of orders where placed on from 2025-12-07 and before 2025-12-14 (from 7 to 13 December 2025)"),
        ("Orders placed from Q1 to Q3 2025",
         "I list order id of orders where placed on from 2025-01-01 and before 2025-10-01 (from Q1 to Q3 2025)"),
    ],
    "when it was done": [
        ("When did Ann Lee start?", 'I list started on of clerks where name is "Ann Lee"'),
        ("When did Ann Lee join?", 'I list started on of clerks where name is "Ann Lee"'),
        ("When was Ann Lee started?", 'I list started on of clerks where name is "Ann Lee"'),
    ],
    "how high it is": [
        ("How high is the price of the desk lamp?", 'I list price of products where name is "desk lamp"'),
        ("How much is the wage of clerk Ann Lee?", 'I list salary of clerks where name is "Ann Lee"'),
        ("How large is the amount of late orders on average?", 'I compute the average of amount where status is "late"'),
    ],
    "said to somebody": [
        ("Hello, how many late orders are there? Many thanks!", 'I count orders where status is "late"'),
        ("Hi how many orders are late", 'I count orders where status is "late"'),
        ("Good morning. I need the number of orders per courier, please. Thank you.", "I count orders for each courier"),
    ],
    "who did it": [
        ("Which orders were created by Ann Lee?", 'I list order id of orders where creator is "Ann Lee"'),
        ("How many orders created by Ann Lee are late?", 'I count orders where creator is "Ann Lee" and status is "late"'),
        ("Who created the lost orders?", 'I list creator of orders where status is "lost"'),
        ("Number of orders created by Ann Lee per status", 'I count orders for each status where creator is "Ann Lee"'),
    ],
    "in which order": [
        ("Orders per courier, highest first", "I count orders for each courier, ordered by number of orders, highest first"),
        ("Average price per category, lowest first", "I compute the average of price for each category, ordered by average of price"),
        ("Late orders, newest first",
         'I list order id, placed on of orders where status is "late", ordered by placed on, highest first'),
        ("List the lost orders, oldest first",
         'I list order id, placed on of orders where status is "lost", ordered by placed on'),
    ],
    "the only money there is": [
        ("Orders over 300 dollars", "I list order id of orders where amount is more than 300"),
        ("How many orders under 50 dollars were sent?", 'I count orders where amount is less than 50 and status is "sent"'),
        ("Which orders over 20 dollars were sent as a gift?",
         'I list order id of orders where amount is more than 20 and status is "sent" and gift is true (as a gift)'),
    ],
    "marks and plurals of stored values": [
        ("What is the price of the fold out bed?", 'I list price of products where name is "fold-out bed" (fold out bed)'),
        ("What is the weight of the Smith & Sons vase?", 'I list weight of products where name is "Smith & Sons vase"'),
        ("Average price of desk lamps", 'I compute the average of price where name is "desk lamp" (desk lamps)'),
    ],
}  # fmt: skip
ALL = [(text, meant) for pairs in READ.values() for text, meant in pairs]


@pytest.mark.parametrize(("text", "meant"), ALL, ids=[text for text, _ in ALL])
def test_read_as_meant(text, meant):
    assert read_form(read(text), "") == meant


ASKED_BACK = """
    What is a walnut table worth?|How much is the clerk worth?|What are the clerks worth?|What is the stock not worth?
    |How much does the shop cost?|What did a desk lamp cost?|What does a desk lamp cost to send?|What do the clerks do?
    |How many days does an order take?|How many clerks does a shop have on average?|How many kg does an article weigh on average?
    |Which orders are late on average?|Orders on average|Which clerk earns more than others on average?
    |What do the clerks add up to?|What do the articles add up to?|What do the lost orders come to in Graz?|What do the orders add to?
    |What do the orders come to be?|Which share of the orders is lost?|Which share of the orders is late or lost?
    |Which share of the orders is not late?|Which share of the orders is late in Graz?|Which share of the sent orders is late?
    |Which share of the orders is late and sent?|Which share of the clerks is late?
    |When did Ann Lee leave?|When did the shop start?|When did order 7 arrive?|When did Ann Lee and Bob Ray start?
    |How long does an order take?|How long does a clerk take on average?|How long does an order take to send on average?
    |Do we have no late orders?|Are there only late orders?|Are there more than 5 orders?|Is there another desk lamp?
    |Is there a chair?|Where is Ann Lee?|Where are the orders?|Where is the shop not?|Where is the desk lamp?
    |Orders by courier and clerks|Orders placed between March and May|Orders placed from 20 to 13 December 2025
    |Orders placed between 31 and 30 June 2025
    |How large are the shops?|How high are the clerks?|How many orders from Hi are late?|Thanks for the orders
    |Which orders were lost by Ann Lee?|Which orders were placed by Ann Lee?|Which orders were created by the creator?
    |Which orders were not created?|Clerks, highest first|Orders, highest first|Name and price of articles, lowest first
    |Orders over 300 euros|Clerks over 3000 dollars|Articles over 300 dollars and under 2 kg of weight per piece
    |On average, how many orders are there per shop?|Orders by amount, highest first|number of my orders|my late orders
    |Who placed the orders?|Who lost the order?|Who runs the shop in Graz?|Who sold the walnut table?|Who opens the shops?
"""
MISSES = [text.strip() for text in ASKED_BACK.split("|")]


@pytest.mark.parametrize("text", MISSES)
def test_near_misses_stay_asked_back(text):
    asks(text)


def test_the_same_turns_hold_of_claims():
    """The planner's own fixture, which has neither a metric of sums nor a word for what is in stock but `stock`."""

    def planned(text):
        found = plan_question(text, claims(), CLAIMS_DAY)
        assert isinstance(found, Form), (text, found)
        return found

    (summed,) = planned("What do the open claims add up to?").measures
    assert isinstance(summed, Aggregated)
    assert (summed.agg, str(summed.of)) == ("sum", "claims_v.amount")
    assert planned("What is the amount of open claims on average per product?").by
    (metric,) = planned("What is the approval time on average per region?").measures
    assert metric == Named("approval_time")


def test_a_turn_costs_confidence():
    assert read("What does a desk lamp cost?").confidence < read("price of the desk lamp").confidence


def test_a_question_that_may_be_put_in_two_ways_is_asked_back():
    """Where there is a salary and an income, what somebody earns is not certain."""
    clerks = CATALOG.datasets[2]
    both = replace(clerks, fields=(*clerks.fields, field("income", "Decimal")))
    index = build_index(replace(CATALOG, datasets=(*CATALOG.datasets[:2], both, *CATALOG.datasets[3:])), VALUES)
    assert asks("What does the clerk Ann Lee earn?", index).code == "planner_ambiguous"


WORDS = sorted(
    {token.text for text, _ in ALL for token in tokenise(text)} | {token.text for text in MISSES for token in tokenise(text)}
)


@given(
    st.one_of(
        st.sampled_from([text for text, _ in ALL] + MISSES),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join),
    )
)
def test_a_turn_keeps_every_word(text):
    tokens = tuple(spread(tokenise(text), INDEX))
    said = Counter(word for token in tokens for word in token.text.split())
    for other in turned(tokens, INDEX):
        assert Counter(word for token in other for word in token.spelled.split()) == said


@given(st.sampled_from([text for text, _ in ALL]))
def test_every_word_of_a_turn_is_explained(text):
    form = plan_question(text, INDEX, DAY)
    assert isinstance(form, Form)
    told = Counter(word for one in form.explained for word in one.words.split())
    assert told == Counter(word for token in tokenise(text) for word in token.text.split())
    assert all(one.bound for one in form.explained)
