"""Any text is answered or declined, soon, and what a text holds never becomes SQL."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.sql.compile import lower_form
from router.sql.form import Form
from router.sql.planner import Abstention, StoredValues, plan_question
from router.sql.planner.tokens import name_words, tokenise
from tests.sql.planner.planner_world import DAY, granted, index, with_values

WORDS = """how many claims depots open region west of the by per average total amount and or not without between 5 10 2024 highest most top
 ordered descending each product status is above than older which have no more 'x' "y" , ? with in last month % sum count approvals""".split()


@settings(max_examples=300)
@given(st.text(max_size=200))
def test_any_text_is_answered_or_declined(text):
    found = plan_question(text, index(), DAY)
    assert isinstance(found, Form | Abstention)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=14))
def test_any_order_of_known_words_is_answered_or_declined(words):
    found = plan_question(" ".join(words), index(), DAY)
    if isinstance(found, Form):
        lower_form(found, granted())
        assert 0 <= found.confidence <= 1


@pytest.mark.parametrize(
    "text",
    [
        "claims " * 1_400,
        "(" * 10_000,
        "a" * 10_000,
        '"' * 9_999,
        "1" * 10_000,
        "claims where amount > 5 or " * 40,
        "first and last and " * 50,
        "\u202e\u0000\ufeff" * 3_000,
        "é́" * 5_000,
        "'" + "x " * 5_000,
        "between 1 and " * 70,
    ],
    ids=lambda text: text[:12].encode("unicode_escape").decode(),
)
def test_long_and_odd_texts_take_no_time(text):
    began = time.perf_counter()
    found = plan_question(text, index(), DAY)
    assert time.perf_counter() - began < 1.0
    assert isinstance(found, Abstention)


def test_tokens_take_linear_time():
    for text in ("1," * 5_000, "a-" * 5_000, "a@" * 5_000, "a.b" * 3_000, "-1" * 5_000):
        began = time.process_time()
        tokenise(text)
        assert time.process_time() - began < 0.5


@pytest.mark.parametrize("payload", ["'; DROP TABLE claims_v; --", "x' OR '1'='1", "west' UNION SELECT 1 --", 'a" b', "\\", "%"])
def test_a_quoted_payload_is_a_literal(payload):
    found = plan_question(f'How many claims have the product "{payload.replace(chr(34), "")}"?', index(), DAY)
    assert isinstance(found, Form)
    sql = lower_form(found, granted()).sql
    assert payload.replace('"', "").strip().replace("'", "''") in sql


def test_a_stored_payload_is_a_literal():
    found = plan_question(
        "How many claims robert tables?", with_values(StoredValues("claims_v", "product", ("Robert' tables",))), DAY
    )
    assert isinstance(found, Form | Abstention)


@given(st.text(max_size=60))
def test_names_of_a_catalogue_may_be_any_text(name):
    assert isinstance(name_words(name), tuple)
