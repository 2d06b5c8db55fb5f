"""What looks English and what does not."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.routing.language import is_foreign

FOREIGN = [
    "Wie viele offene Schadensfälle gibt es im Westen?",
    "Was bedeutet ERR-4012 auf dem Palettierer?",
    "Combien de sinistres sont ouverts ?",
    "Comment est-ce que je remplace la courroie ?",
    "¿Cuántos siniestros hay en el oeste?",
    "Quanti reclami sono aperti nella regione?",
    "Quantas peças há no armazém do sul?",
    "Hoeveel claims zijn er in het westen?",
    "未解決の請求はいくつありますか",
    "Сколько открытых заявок на западе?",
]
ENGLISH = [
    "How many open claims are there in region west?",
    "ERR-4012",
    "PN-88213 depot 4",
    "claims by region",
    "stock of PN-88213 in Dunmere",
    "Is El Nino named in a claim?",
    "Who is Jan de Vries?",
    "list os versions per machine",
    "",
    "?",
]


@pytest.mark.parametrize("text", FOREIGN)
def test_another_language_is_seen(text):
    assert is_foreign(text)


@pytest.mark.parametrize("text", ENGLISH)
def test_english_and_names_are_left_alone(text):
    assert not is_foreign(text)


def test_questions_of_the_training_set_are_english():
    file = Path(__file__).parents[2] / "router" / "evals" / "route_questions.jsonl"
    questions = [json.loads(line)["question"] for line in file.read_text(encoding="utf-8").splitlines()]
    assert [text for text in questions if is_foreign(text)] == []


@given(st.text())
def test_any_text_is_judged(text):
    assert is_foreign(text) in (True, False)
