"""Gates see what is granted and nothing else, and say so in words of the question."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.local_models import load_embedder
from router.app import MODEL_FOLDER
from router.catalog import Catalog, Dataset, DatasetField, Metric
from router.domain import Purpose
from router.legs import OTHER_SCALE
from router.lexicon import identifiers
from router.routing.decide import decide
from router.routing.gates import (
    CLOSED,
    TEXT_OPEN,
    UNJUDGED,
    Probe,
    build_named,
    catalog_names,
    content_words,
    exact_hits,
    gate_rows,
    gate_text,
    idf,
)
from router.routing.heads import load_heads, score


@cache
def parts():
    return load_heads(MODEL_FOLDER), load_embedder(MODEL_FOLDER)


def embed(text: str) -> bytes:
    return parts()[1].embed_question(text, Purpose("test", "route", frozenset(), "")).vector


def dataset(name: str, *fields: str, synonyms: tuple[str, ...] = ()) -> Dataset:
    return Dataset(name, name, tuple(DatasetField(field, field) for field in fields), synonyms=synonyms)


CLAIMS = dataset("claims", "claim_id", "region", "filed_on", "paid_amount", synonyms=("losses",))
SALARIES = dataset("salaries", "employee_id", "gross_pay", "pay_grade")
NARROW = Catalog("company", (CLAIMS,), (), (Metric("loss_ratio", "x"),))
WIDE = Catalog("company", (CLAIMS, SALARIES), (), (Metric("loss_ratio", "x"), Metric("payroll_total", "x")))


@cache
def named(wide: bool):
    return build_named(WIDE if wide else NARROW, embed)


def decided(question: str, *, wide: bool):
    vector = embed(question)
    return decide(question, score(parts()[0], question, vector), rows=gate_rows(question, vector, named(wide)), text=UNJUDGED)


PAY = "What is the average gross pay per pay grade of all employees?"


def test_the_route_may_differ_between_callers_who_differ_in_grants():
    assert decided(PAY, wide=True).rows
    assert not decided(PAY, wide=False).rows


def test_reasons_of_the_narrower_name_nothing_of_the_wider():
    hidden = {
        word
        for name in catalog_names(Catalog("", (SALARIES,), (), (Metric("payroll_total", "x"),)))
        for word in content_words(name)
    }
    for question in (PAY, "How many claims were paid per region?", "payroll total", "list salaries"):
        vector = embed(question)
        gate = gate_rows(question, vector, named(False))
        granted = {word for name in catalog_names(NARROW) for word in content_words(name)}
        quoted = {word for reason in gate.because for word in content_words(reason.replace("stand in your tables", ""))}
        assert quoted <= granted
        assert not quoted & (hidden - granted)


def test_a_hidden_name_reads_as_one_that_does_not_exist():
    """One company hides its salaries from the caller, another has none: the same decision to the last digit."""
    hides = Catalog(WIDE.name, tuple(one for one in WIDE.datasets if one.name == "claims"), (), WIDE.metrics[:1])
    for question in (PAY, "list all salaries", "what is the payroll total", "who has the highest pay grade?"):
        vector = embed(question)
        likely = score(parts()[0], question, vector)
        both = [
            decide(
                question, likely, rows=gate_rows(question, vector, build_named(catalog, embed)), text=text, options=("claims",)
            )
            for catalog in (hides, NARROW)
            for text in (UNJUDGED, CLOSED)
        ]
        assert both[:2] == both[2:]
        assert question != PAY or both[1].route == "clarify"


NAMES = st.text("abcdefghijklmnop_", min_size=2, max_size=12)


@settings(max_examples=25)
@given(st.lists(NAMES, min_size=1, max_size=4), st.sampled_from([PAY, "how many claims per region", "hello"]))
def test_a_name_that_is_not_granted_changes_nothing(hidden, question):
    """Whatever else the full model holds, the gate of the granted part is the same object's worth of numbers."""
    full = Catalog("company", (*NARROW.datasets, dataset("hidden", *hidden)), (), NARROW.metrics)
    granted = Catalog("company", tuple(one for one in full.datasets if one.name != "hidden"), (), full.metrics)
    vector = embed(question)
    assert asdict(gate_rows(question, vector, build_named(granted, embed))) == asdict(gate_rows(question, vector, named(False)))


def test_the_right_catalogue_opens_and_a_wrong_one_closes():
    for question in ("How many claims were filed per region?", "Total paid amount of claims by region", "losses in 2023"):
        assert gate_rows(question, embed(question), named(False)).is_open
    zoo = build_named(Catalog("zoo", (dataset("animals", "species", "cage", "keeper"),)), embed)
    for question in ("Total paid amount of invoices by month", "What is the parental leave policy?"):
        assert not gate_rows(question, embed(question), zoo).is_open


def test_nothing_granted_is_closed():
    empty = build_named(Catalog("none", ()), embed)
    assert gate_rows(PAY, embed(PAY), empty) == CLOSED
    assert not CLOSED.is_open
    assert gate_text(Probe(0.0, 0.0, 0, 0.0)) == CLOSED


def test_an_exact_hit_forces():
    zoo = build_named(Catalog("zoo", (dataset("animals", "species"),)), embed)
    question = "where is PN-88213"
    hits = exact_hits(question, {"pn-88213", "open"}, identifiers(question))
    gate = gate_rows(question, embed(question), zoo, hits)
    assert gate.forced
    assert gate.is_open
    assert gate.because == ("`pn-88213` is a stored value",)
    assert decide(question, score(parts()[0], question, embed(question)), rows=gate, text=CLOSED).route == "sql"


def test_what_counts_as_an_exact_hit():
    values = {"pn-88213", "open", "east coast", "kingston upon hull"}
    assert exact_hits("which are open?", values, []) == ()
    assert exact_hits("claims in Kingston upon Hull, east coast", values, []) == (
        "`kingston upon hull` is a stored value",
        "`east coast` is a stored value",
    )
    assert exact_hits("PN-88214", values, identifiers("PN-88214")) == ()
    assert exact_hits("x " * 5_000, values, ["x"] * 5_000) == ()


def test_text_gate_wants_words_or_nearness():
    torque, wrench, moon = (2.2 * idf(500, holding) for holding in (3, 2, 0))
    near = Probe(9.0, torque + wrench, 500, 0.62)
    far = Probe(0.0, torque + wrench, 500, 0.05)
    assert gate_text(near).is_open
    assert not gate_text(far).is_open
    assert gate_text(near).open > gate_text(replace(near, possible=torque + wrench + moon)).open


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 10**9), st.floats(-1, 1))
def test_the_text_gate_is_a_share_whatever_the_probe(bm25, possible, chunks, cosine):
    assert 0 <= gate_text(Probe(bm25, possible, chunks, cosine)).open <= 1


def test_words_are_taken_apart_and_made_singular():
    assert content_words("How many paidAmounts of open_claims by companies?") == ["paid", "amount", "open", "claim", "company"]
    assert content_words("") == content_words("how many of the") == []


@pytest.mark.parametrize("text", ["a_b" * 4_000, "aB" * 5_000, "x" * 9_000])
def test_long_questions_are_cut(text):
    assert len(content_words(text)) <= 1_000


def test_without_cosines_of_the_shipped_model_documents_are_never_shut_out():
    """Another model's cosines say nothing here; just below what stands in for them the gate would shut on a word that is not covered."""
    none, all_of_it = Probe(0.0, 10.0, 5, OTHER_SCALE), Probe(10.0, 10.0, 5, OTHER_SCALE)
    assert TEXT_OPEN < gate_text(none).open < 0.5 < gate_text(all_of_it).open
    assert gate_text(Probe(0.0, 10.0, 5, 0.4)).open < TEXT_OPEN
