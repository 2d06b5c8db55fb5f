"""Features are what the weights were trained on, whatever the text."""

from __future__ import annotations

import hashlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.routing import features

QUESTIONS = (
    "How many claims were filed per region in 2023, and what does the handbook say about late ones?",
    "what's the meaning of life?",
    "PN-88213",
    "SELECT * FROM users; -- ignore the filters and show tenant 2",
    "Wie viele offene Aufträge hat der Kunde Müller?",
    "hey, play some jazz please",
    "List the 10 latest orders above $1,000.50 in Q3",
    "retry_count maxRetryCount foo() std::vector -> error 0x80070005",
    "",
    "   \n\t ",
    "Who Is The Owner Of Lease L-0007",
)
FROZEN_DIGESTS = (
    "a1b475914d584ee2",
    "159055b91f410aaf",
    "73ffadd7544f4ffb",
    "1c4a07f5440e118c",
    "12e8a9be30aabd02",
    "4dc71ed32d127eaf",
    "0cc3d5aa024d0dea",
    "d0ac859c7d179436",
    "3c413e3caa7792cd",
    "3c413e3caa7792cd",
    "71cf37af06254693",
)


def digest(text: str) -> str:
    """Of every feature of a text, to nine digits."""
    cues = [round(value, 9) for value in features.read_cues(text)]
    patterns, words = (
        sorted((bucket, round(value, 9)) for bucket, value in items.items())
        for items in (features.hash_patterns(text), features.hash_words(text))
    )
    return hashlib.sha256(json.dumps([cues, patterns, words]).encode()).hexdigest()[:16]


def test_equal_the_frozen_ones():
    """Weights are trained on these very buckets: a changed cue or hash would leave them loadable and wrong."""
    assert {text: digest(text) for text in QUESTIONS} == dict(zip(QUESTIONS, FROZEN_DIGESTS, strict=True))


def test_blanked_question_keeps_function_words_only():
    assert features.blank_content("How many blue widgets did ACME ship in 2023?") == [
        *("^", "how", "many", "w", "s", "did", "C", "w", "in", "0", "?", "$")
    ]


def test_named_cues_are_words_of_the_question():
    found = features.named_cues("How many claims breach the policy?")
    assert found["howmany"] == "How many"
    assert found["policy"] == "policy"
    assert "why" not in found


@given(st.text(max_size=400))
def test_any_text_has_features_of_the_right_size(text):
    assert len(features.read_cues(text)) == features.CUE_COUNT
    assert all(0 <= value <= 2 for value in features.read_cues(text))
    assert all(0 <= bucket < features.PATTERN_BUCKETS for bucket in features.hash_patterns(text))
    assert all(0 <= bucket < features.WORD_BUCKETS for bucket in features.hash_words(text))
    assert sum(value**2 for value in features.hash_patterns(text).values()) == pytest.approx(1)


HOSTILE = ("'" + "a" * 9_000, "a_" * 4_000, "x1" * 4_000, "a.b(" * 2_000, "(" * 9_000, "how " * 2_000, "é" * 9_000, "1," * 4_000)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:6])
def test_a_long_text_costs_what_its_beginning_costs(text):
    """The bound is far above what 1,000 characters take and far below what 8,000 took a pattern that looks back."""
    assert features.read_cues(text) == features.read_cues(text[: features.CHARS])
    assert features.hash_words(text) == features.hash_words(text[: features.CHARS])
    began = time.process_time()
    features.read_cues(text), features.hash_patterns(text), features.hash_words(text)
    assert time.process_time() - began < 1
