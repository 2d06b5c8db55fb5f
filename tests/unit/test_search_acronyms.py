"""Acronyms as documents define them."""

from __future__ import annotations

import time

import pytest

from router.domain import Chunk, Ranked, Span, Stored
from router.evals.strategies import run_strategies
from router.search.acronyms import has_acronym, read_definitions, rewrite
from tests.unit.test_evals import write

DEFINED = {
    "RO": "reverse osmosis", "PTO": "power take off", "LDR": "light dependent resistor", "VSD": "variable speed drive",
    "OEE": "overall equipment effectiveness", "FIFO": "first in first out", "AGV": "automated guided vehicle", "HMI": "human machine interface",
    "LOTO": "lockout tagout", "BOM": "bill of materials", "SLA": "service level agreement", "RMA": "return merchandise authorization",
}  # fmt: skip
ASKED = ("How often is the {} checked?", "Who looks after the {}?", "Where is the {} described?")
ANSWERS = (
    "Every fourteen months the {} is checked by two people.",
    "Mrs Lindqvist of the east hall looks after the {}.",
    "The red folder describes the {} on page nine.",
)


def passage(text, title="Title"):
    chunk = Chunk("s/a#0", "s/a", "s", 0, title, (), text, "prose", "file:///a", Span())
    return Ranked(Stored(chunk, {}, b"", b"", 1.0), ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Reverse Osmosis (RO) cleans water.", {"RO": "Reverse Osmosis"}),
        ("The mean time between failures (MTBF) is long.", {"MTBF": "mean time between failures"}),
        ("Ministry of the Interior (MI)", {"MI": "Ministry of the Interior"}),
        ("NFF (no fault found) is booked as such.", {"NFF": "no fault found"}),
        ("Several Bills of Materials (BMs) exist.", {"BM": "Bills of Materials"}),
        ("see the table (NOTE) below", {}),
        ("the unit (PN) costs", {}),
        ("it (RO) runs", {}),
        ("(RO)", {}),
        ("", {}),
    ],
)
def test_definitions(text, expected):
    assert read_definitions([passage(text)]) == expected


def test_the_better_passage_defines():
    assert read_definitions([passage("Return Order (RO)"), passage("Reverse Osmosis (RO)")]) == {"RO": "Return Order"}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What does RO cost?", "What does RO cost? Reverse Osmosis"),
        ("What does reverse osmosis cost?", "What does reverse osmosis cost? RO"),
        ("What does RO, reverse osmosis, cost?", "What does RO, reverse osmosis, cost?"),
        ("What does ROI cost?", "What does ROI cost?"),
        ("What does PRO-4 cost?", "What does PRO-4 cost?"),
    ],
)
def test_rewriting(question, expected):
    assert rewrite(question, {"RO": "Reverse Osmosis"}) == expected


@pytest.mark.parametrize(
    ("question", "has"),
    [
        ("what is NFF", True),
        ("what does ERR-4012 mean", False),
        ("PN-88213", False),
        ("WHAT IS THIS", False),
        ("what is A", False),
        ("the MTBFs of both", True),
        ("SB-2025-04 says what", False),
    ],
)
def test_what_is_an_acronym(question, has):
    assert has_acronym(question) is has


def test_hostile_text_takes_linear_time():
    took = []
    for size in (20_000, 80_000):
        texts = ["A" * size, "(" * size, "(AB" * size, "Ab " * size, "AB (" * size, "(AB) " * size]
        began = time.process_time()
        for text in texts:
            read_definitions([passage(text)])
        took.append(time.process_time() - began)
    assert took[1] < 12 * took[0] + 0.5


def test_it_beats_simple_where_documents_write_the_words_out(tmp_path):
    """The question class that it is there for: one page defines the acronym, the page that answers has only the words."""
    corpus = [
        {"_id": f"{short}-defined", "title": "Words", "text": f"{words.capitalize()} ({short}) is a word of ours."}
        for short, words in DEFINED.items()
    ]
    queries, qrels = [], "query-id\tcorpus-id\tscore\n"
    for at, (short, words) in enumerate(DEFINED.items()):
        corpus.append({"_id": f"{short}-answer", "title": f"Page {at}", "text": ANSWERS[at % 3].format(words)})
        queries.append({"_id": short, "text": ASKED[at % 3].format(short)})
        qrels += f"{short}\t{short}-answer\t1\n"
    report = run_strategies(write(tmp_path / "c", corpus=corpus, queries=queries, qrels=qrels), names=["acronyms"])
    simple, acronyms = report["classes"]["own"]["arms"]
    assert acronyms["mrr_at_10"] > simple["mrr_at_10"] + 5, (simple, acronyms)
    assert acronyms["ndcg_at_10"] > simple["ndcg_at_10"] + 5, (simple, acronyms)
