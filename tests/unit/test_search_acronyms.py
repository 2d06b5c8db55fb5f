"""Acronyms as documents define them."""

from __future__ import annotations

import time

import pytest

from router.domain import Chunk, Ranked, Span, Stored
from router.search.acronyms import has_acronym, read_definitions, rewrite


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
