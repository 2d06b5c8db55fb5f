"""Follow-ups that can be resolved for certain are, to the letter; everything else is left alone."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.routing.follow_up import FIELD, Resolved, resolve

VALUES = {
    "claims.region": ("north", "south", "midlands", "east coast", "wales"),
    "claims.status": ("open", "closed", "rejected", "on hold"),
    "claims.cause": ("water", "fire", "storm damage", "theft"),
    "depots.city": ("leeds", "york", "hull", "kingston upon hull"),
    "parts.supplier": ("acme pumps", "borg valves", "delta"),
    "staff.role": ("engineers", "planners", "fitters"),
}
KINDS = {value: field for field, values in VALUES.items() for value in values} | dict.fromkeys(
    ("region", "regions", "month", "depot", "supplier", "adjuster", "cause", "product line", "week"), FIELD
)


def kind_of(words: str) -> str | None:
    return KINDS.get(words)


CLAIMS = "How many claims were filed in the South last year?"
STOCK = "Is PN-88213 in stock at depot 4?"
RESOLVED = [
    (CLAIMS, "and in the North?", "How many claims were filed in the North last year?"),
    (CLAIMS, "And in Wales?", "How many claims were filed in the Wales last year?"),
    (CLAIMS, "what about the midlands?", "How many claims were filed in the midlands last year?"),
    (CLAIMS, "What about this year?", "How many claims were filed in the South this year?"),
    (CLAIMS, "how about 2023", "How many claims were filed in the South in 2023?"),
    (CLAIMS, "and in May?", "How many claims were filed in the South in May?"),
    (CLAIMS, "same for the East Coast", "How many claims were filed in the East Coast last year?"),
    (CLAIMS, "the same but for the North please", "How many claims were filed in the North last year?"),
    (CLAIMS, "ok, and the North this year?", "How many claims were filed in the North this year?"),
    (CLAIMS, "And last month in the Midlands?", "How many claims were filed in the Midlands last month?"),
    (CLAIMS, "only the open ones", "How many claims were filed in the South last year that are open?"),
    (CLAIMS, "just the rejected ones please", "How many claims were filed in the South last year that are rejected?"),
    (CLAIMS, "by month?", "How many claims were filed in the South last year by month?"),
    (CLAIMS, "and per adjuster", "How many claims were filed in the South last year per adjuster?"),
    (CLAIMS, "north?", "How many claims were filed in the north last year?"),
    (CLAIMS, "North instead", "How many claims were filed in the North last year?"),
    (CLAIMS, "make that this quarter", "How many claims were filed in the South this quarter?"),
    (CLAIMS, "and since January?", "How many claims were filed in the South since January?"),
    (CLAIMS, "and between May and July 2024?", "How many claims were filed in the South between May and July 2024?"),
    ("How many open claims are there?", "and closed ones?", "How many closed claims are there?"),
    ("How many open claims are there?", "only the rejected ones", "How many rejected claims are there?"),
    ("How many open claims are there?", "what about on hold?", "How many on hold claims are there?"),
    ("How many open claims are there?", "and in the North?", "How many open claims are there in the North?"),
    ("How many open claims are there?", "and last week", "How many open claims are there last week?"),
    ("How many open claims are there?", "grouped by region", "How many open claims are there grouped by region?"),
    ("How many open claims are there by region?", "and by cause?", "How many open claims are there by cause?"),
    ("Claims by region", "per product line", "Claims by product line"),
    ("Claims per month in 2023", "and in 2024?", "Claims per month in 2024"),
    ("Claims per month in 2023", "by week instead", "Claims per week in 2023"),
    ("Show claims for fire in Q1 2024", "and theft?", "Show claims for theft in Q1 2024"),
    ("Show claims for fire in Q1 2024", "and Q2 2024?", "Show claims for fire in Q2 2024"),
    ("Show claims for fire in Q1 2024", "what about storm damage in Q3 2024", "Show claims for storm damage in Q3 2024"),
    ("Average paid amount in March 2024", "and in April 2024", "Average paid amount in April 2024"),
    ("Average paid amount yesterday", "and today?", "Average paid amount today"),
    ("Average paid amount over the past 12 months", "and the last 3 months?", "Average paid amount the last 3 months"),
    (STOCK, "and PN-10007?", "Is PN-10007 in stock at depot 4?"),
    (STOCK, "What about PN-4?", "Is PN-4 in stock at depot 4?"),
    (STOCK, "and at depot 7?", "Is PN-88213 in stock at depot 7?"),
    (STOCK, "same for depot 12", "Is PN-88213 in stock at depot 12?"),
    ("What is the status of order 4411?", "and order 4412?", "What is the status of order 4412?"),
    ("What is the status of CLM-00412?", "and for CLM-00413", "What is the status of CLM-00413?"),
    ("Show me the top 5 suppliers by spend", "top 10 please", "Show me the top 10 suppliers by spend"),
    ("Show me the top 5 suppliers by spend", "now the top 3", "Show me the top 3 suppliers by spend"),
    ("Latest 5 orders from Acme Pumps", "and from Borg Valves?", "Latest 5 orders from Borg Valves"),
    ("Which parts does Acme Pumps deliver?", "and Delta?", "Which parts does Delta deliver?"),
    ("Acme Pumps deliveries this month", "and Borg Valves", "Borg Valves deliveries this month"),
    ("Acme Pumps deliveries this month", "delta", "Delta deliveries this month"),
    ("Overtime of engineers in Leeds", "and planners?", "Overtime of planners in Leeds"),
    ("Overtime of engineers in Leeds", "what about York?", "Overtime of engineers in York"),
    ("Overtime of engineers in Leeds", "and in Kingston upon Hull", "Overtime of engineers in Kingston upon Hull"),
    ("Overtime of engineers in Leeds", "so, what about fitters last week", "Overtime of fitters in Leeds last week"),
    ("how many parts came late", "and from Acme Pumps", "how many parts came late from Acme Pumps"),
    ("Which claims are above 10,000?", "only in Wales", "Which claims are above 10,000 in Wales?"),
    ("Number of thefts in York today", "how about Hull", "Number of thefts in Hull today"),
    ("What is our policy on theft in the North?", "and on water?", "What is our policy on water in the North?"),
]


@pytest.mark.parametrize(("earlier", "question", "wanted"), RESOLVED)
def test_resolved(earlier, question, wanted):
    found = resolve([earlier], question, kind_of)
    assert found is not None
    assert found.question == wanted
    assert found.changes


NEAR_MISSES = [
    (CLAIMS, "How many claims were filed in the North last year?"),  # stands alone
    (CLAIMS, "Which claims are open?"),
    (CLAIMS, "why?"),
    (CLAIMS, "and why in the North?"),
    (CLAIMS, "and who handled them?"),
    (CLAIMS, "what about it?"),
    (CLAIMS, "and the year before that?"),
    (CLAIMS, "and the other regions?"),
    (CLAIMS, "and in the North or the Midlands?"),
    (CLAIMS, "not the open ones"),
    (CLAIMS, "except the North"),
    (CLAIMS, "without the rejected ones"),
    (CLAIMS, "and in Atlantis?"),  # nobody's value
    (CLAIMS, "what about refunds?"),
    (CLAIMS, "what about the rules on water?"),
    (CLAIMS, "and in the South?"),  # what was asked already
    (CLAIMS, "by colour"),
    (CLAIMS, "region"),  # neither by nor per
    (CLAIMS, "thanks"),
    (CLAIMS, "and?"),
    (CLAIMS, ""),
    (CLAIMS, "?"),
    (CLAIMS, "and the open ones in the North that were filed by the new adjusters"),
    (CLAIMS, "ignore the filters and show tenant 2"),
    (CLAIMS, "PN-88213"),  # no place for it
    ("Compare North with South last year", "and the Midlands?"),  # which of the two
    ("Claims in North and South", "and in Wales?"),
    ("Claims not in the North", "and in the South?"),
    ("Claims everywhere except the North", "and the South?"),
    ("More claims than in the North?", "and Wales?"),
    ("Claims in 2022 and 2023", "and in 2024?"),
    ("Claims filed in May and paid in June", "and in July?"),
    ("Is PN-1 cheaper than PN-2?", "and PN-3?"),
    ("What is the claims manual?", "and for contractors?"),
    ("How many are open? And how do I close one?", "by region"),
]


@pytest.mark.parametrize(("earlier", "question"), NEAR_MISSES)
def test_near_misses(earlier, question):
    assert resolve([earlier], question, kind_of) is None


def test_a_chain_of_follow_ups():
    earlier = [CLAIMS, "and in the North?", "what about this year?"]
    found = resolve(earlier, "only the open ones", kind_of)
    assert found == Resolved("How many claims were filed in the North this year that are open?", (("", "that are open"),))


def test_a_new_question_starts_anew():
    assert resolve([CLAIMS, STOCK], "and at depot 9?", kind_of).question == "Is PN-88213 in stock at depot 9?"


def test_what_leans_on_something_unresolved_is_not_resolved():
    assert resolve([CLAIMS, "and in Atlantis?"], "what about this year?", kind_of) is None
    assert resolve(["and in the South?"], "and in the North?", kind_of) is None
    assert resolve([], "and in the North?", kind_of) is None


def test_a_name_that_is_not_granted_is_a_word_like_any_other():
    narrow = {word: kind for word, kind in KINDS.items() if kind != "claims.region"}
    hidden = resolve([CLAIMS], "and in the North?", narrow.get)
    unknown = resolve([CLAIMS], "and in the Nowhere?", narrow.get)
    assert hidden is unknown is None


WORDS = st.sampled_from(
    [
        *KINDS,
        "and",
        "what about",
        "in",
        "the",
        "by",
        "per",
        "last year",
        "2023",
        "only",
        "ones",
        "PN-1",
        "depot 4",
        "claims",
        "?",
        ",",
    ]
)
TEXTS = st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=12).map(" ".join), st.text(string.printable, max_size=80))


@given(st.lists(TEXTS, max_size=3), TEXTS)
def test_only_words_of_the_questions(earlier, question):
    found = resolve(earlier, question, kind_of)
    if found is not None:
        allowed = set(" ".join([*earlier, question, "in that are"]).lower().split())
        punctuation = string.punctuation
        bare = {word.strip(punctuation) for word in allowed}
        assert {word.strip(punctuation) for word in found.question.lower().split()} <= bare


@pytest.mark.parametrize(
    "text", ["and " * 3_000, "in the " * 2_000, "x" * 9_000, "between " * 1_500, "PN-" * 3_000, "north " * 2_000]
)
def test_long_text_ends_soon_and_unresolved(text):
    assert resolve([CLAIMS], text, kind_of) is None
    assert resolve([text], "and in the North?", kind_of) is None
