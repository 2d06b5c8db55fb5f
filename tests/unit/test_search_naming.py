"""What a question names so exactly that its answer has to hold it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.search.naming import holds, holds_code, named_things, read_passage, share_held


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Why was furnace 3 at Harbour Mills shut down?", ["furnace 3", "harbour mills"]),
        ("Who may enter hall K after dark?", ["hall K".lower()]),
        ("What was agreed in October 2031 about boiler 12?", ["boiler 12", "october 2031"]),
        ("Which oil does the XR-200 take?", ["xr-200"]),
        ("What did Maria Ostrowska's team find?", ["maria ostrowska"]),
        ("Which form does ward B need, and who signs for ward C?", ["ward b", "ward c"]),
    ],
)
def test_things_are_named(text, named):
    assert named_things(text) == named


@pytest.mark.parametrize(
    "text",
    [
        "What do I do when I lose my key?",
        "Is it done within 15 minutes?",
        "Which of the top 5 suppliers is late?",
        "Who was tightened to 45 and no longer to 38?",
        "It grew by about 20 % since March",
        "How long does it take in May?",
        "Show me page after page",
        "Where Do We Meet When The Alarm Bell Rings?",
        "A plan for people who walk 4 miles",
        "Harbour Mills",
    ],
)
def test_nothing_is_named(text):
    assert named_things(text) == []


@pytest.mark.parametrize(
    ("passage", "name", "held"),
    [
        ("Furnace 3 was relined.", "furnace 3", True),
        ("Furnace 31 was relined.", "furnace 3", False),
        ("Blast furnace\n3 was relined", "furnace 3", True),
        ("Harbour-Mills, second gate", "harbour mills", True),
        ("the mills at the harbour", "harbour mills", False),
        ("dated 2031-10-04", "october 2031", True),
        ("in the autumn, from October on, 2031", "october 2031", True),
        ("October 2030", "october 2031", False),
        ("the XR 200 takes", "xr-200", True),
        ("max retry count", "max_retry_count", True),
    ],
)
def test_what_holds_a_name(passage, name, held):
    assert holds(read_passage(passage), name) is held


@pytest.mark.parametrize(
    ("passage", "code", "held"),
    [
        ("E-71xx: the line is cut, call the office", "E-7104", True),
        ("E-71xx: the line is cut, call the office", "E-7204", False),
        ("E-71xx: the line is cut, call the office", "E-71043", False),
        ("any code that begins with WRN-3: ignore", "WRN-3055", True),
        ("codes beginning with `WRN-3` are warnings", "WRN-4055", False),
        ("FLT 900 to FLT 949: replace the fuse", "FLT-912", True),
        ("FLT-900–949: replace the fuse", "flt-912", True),
        ("FLT-900–949: replace the fuse", "flt-950", False),
        ("all of ALM-2*", "ALM-2001", True),
        ("ALM-200 and ALM-201", "ALM-2001", False),
    ],
)
def test_a_family_holds_its_members(passage, code, held):
    assert holds_code(read_passage(passage), code.lower()) is held


def test_what_is_named_together_stands_together():
    """Two passages that hold one of two things each are about two other matters; two questions in one need no passage in common."""
    apart = [read_passage("furnace 3 was relined"), read_passage("Harbour Mills paid the bill")]
    together = [read_passage("furnace 3 of Harbour Mills was relined")]
    question = "Why was furnace 3 at Harbour Mills shut down?"
    assert share_held(question, together) == 1.0
    assert share_held(question, apart) == 0.25
    assert share_held(question, []) == 0.0
    assert share_held("Why was furnace 3 shut down, and when did the firm Harbour Mills pay?", apart) == 1.0
    assert share_held("Why was furnace 9 shut down, and how do we pay?", apart) == 0.5
    assert share_held("How do we pay?", []) == 1.0


@given(st.text(max_size=200), st.lists(st.text(max_size=200), max_size=4))
def test_any_text_has_a_share(question, texts):
    passages = [read_passage(text) for text in texts]
    assert 0 <= share_held(question, passages) <= 1
    assert all(isinstance(holds(one, name), bool) for one in passages for name in named_things(question))


@given(st.sampled_from(["tank", "room", "bay"]), st.integers(1, 999), st.text("abc .,", max_size=40))
def test_a_passage_that_repeats_the_words_holds_them(word, number, rest):
    question = f"What is wrong with {word} {number} today?"
    assert f"{word} {number}" in named_things(question)
    assert share_held(question, [read_passage(f"{rest} {word} {number} {rest}")]) == 1.0


@pytest.mark.parametrize("unit", ["E-71xx ", "A ", "Aa Bb ", "a 1 ", "x" * 7 + "-1 to ", "begins with ", "9", "March 2031 "])
def test_hostile_text_takes_linear_time(unit):
    def measure(size):
        text = unit * (size // len(unit))
        began = time.perf_counter()
        named_things(text)
        read_passage(text)
        return time.perf_counter() - began

    measure(1_000)
    small, large = min(measure(20_000) for _ in range(3)), min(measure(160_000) for _ in range(3))
    assert large < 24 * small + 0.05
