"""The relevance gate: what is kept, searched once more, or called not found."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.ask import ask
from router.domain import Candidate, Chunk, Question, Ranked, Span, Stored
from router.search.gated import gated
from router.search.port import Hits, Ordered, Tools, Trace, drive, plain
from router.search.relevance import FEATURES, Found, build_nearest, build_note, features, is_about, load_gate, weigh
from router.search.simple import simple
from tests import world
from tests.world import NOW, ask_as, bytes_of, write_page

PRESS = "what does ERR-4012 on the press mean"


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with world.open_world(tmp_path_factory.mktemp("relevance") / "world") as made:
        yield made


def item(text, *, title="Title", number=0, heading=()):
    chunk = Chunk(f"s/{number}#0", f"s/{number}", "s", 0, title, heading, text, "prose", "", Span())
    return Ranked(Stored(chunk, {}, b"", b"", 1.0), ())


def candidates(count, cosine=0.5, bm25=3.0):
    return [
        Candidate(f"s/{at}#0", f"s/{at}", "s", bm25 - at / 10, cosine - at / 100, ("dense", "lexical")) for at in range(count)
    ]


# --- the judgement ----------------------------------------------------------------------------------------------------


def test_what_answers_is_kept(router):
    answer = ask_as(router, "ada", PRESS)
    assert answer.outcome == "answered"
    assert answer.nearest == ()


@pytest.mark.parametrize(
    "text",
    [
        "What is the melting point of tungsten?",
        "How do I bake sourdough bread?",
        "Which team won the football championship in 1994?",
        "How can parents transfer savings to a child's college account?",
    ],
)
def test_what_is_not_there_is_empty_with_headings(router, text):
    answer = ask_as(router, "ada", text)
    assert answer.outcome == "empty"
    assert answer.passages == ()
    assert 0 < len(answer.nearest) <= 3
    visible = {passage.title for passage in ask_as(router, "ada", PRESS, k=50).passages}
    assert {name.split(" > ")[0] for name in answer.nearest} <= visible


def test_judgement_of_the_callers_own(tmp_path):
    """A hidden page that answers word for word moves neither judgement nor headings; for who may see it, it is the answer."""
    question = "What is the melting point of tungsten?"
    with world.open_world(tmp_path / "world") as router:
        before = bytes_of(ask_as(router, "ada", question))
        write_page(
            tmp_path / "world", "handbook/board/tungsten.md", "# Tungsten\n\nThe melting point of tungsten is 3422 degrees."
        )
        router.index()
        assert bytes_of(ask_as(router, "ada", question)) == before
        assert ask_as(router, "max", question).passages[0].title == "Tungsten"


def test_identifier_that_no_passage_holds_is_said(router):
    answer = ask_as(router, "ada", "what does ERR-9999 on the press mean")
    assert answer.notes == ("`err-9999` stands in none of the passages found",)
    lost = ask_as(router, "ada", "How is sourdough bread XK-7781 baked?")
    assert lost.outcome == "empty"
    assert lost.notes == ("`xk-7781` stands in none of the passages found",)
    held = ask_as(router, "ada", PRESS)
    assert held.notes == ()


def test_nothing_is_judged_without_vectors(router):
    class Silent:
        card = router.line.embedder.card

        def embed_question(self, text, purpose):
            raise RuntimeError("no")

    line = dataclasses.replace(router.line, embedder=Silent())
    answer = ask(line, router.mint("ada"), Question("What is said about bread near the press?", NOW, 5, 10.0, route="documents"))
    assert answer.passages
    assert "relevance" not in [stage.name for stage in answer.stages]


def test_another_language_is_not_judged(router):
    answer = ask_as(router, "ada", "Was bedeutet die Meldung ERR-4012 an der Presse und wer ist zu rufen?")
    assert answer.passages


def test_a_pasted_trace_is_not_judged(router):
    trace = "Traceback (most recent call last):\n" + '  File "/srv/bread/oven.py", line 40, in bake\n    rise(dough)\n' * 20
    assert ask_as(router, "ada", trace).passages


def test_off_keeps_all(router):
    line = dataclasses.replace(router.line, search=router.line.search.model_copy(update={"relevance": "off"}))
    answer = ask(line, router.mint("ada"), Question("How do I bake sourdough bread?", NOW, 5, 10.0, route="documents"))
    assert len(answer.passages) == 5


# --- once more --------------------------------------------------------------------------------------------------------


def searched(likelihoods, passages=9):
    """What a gated plain search asks for and ends with, where `likelihoods` are judged one after the other."""
    ranked = tuple(item("press oil guard belt", number=at) for at in range(passages))
    batches, said = [], iter(likelihoods)

    def search(batch):
        batches.append(batch)
        return tuple(Hits(query, None, tuple(candidates(passages))) for query in batch)

    first = Hits(plain("q"), None, tuple(candidates(passages)))
    tools = Tools(
        rank=lambda parts: ranked[: len(parts[0].candidates)],
        vectors=lambda ids: [],
        shown=list,
        draft=None,
        candidates=50,
        rerank=50,
        trace=Trace("simple"),
        likelihood=lambda ranked: next(said),
        first=lambda: first,
    )
    return drive(gated(simple, load_gate())("q", tools), search), batches


def test_once_more_and_no_more():
    gate = load_gate()
    ordered, batches = searched([1.0])
    assert len(batches) == 1
    assert ordered.answers
    ordered, batches = searched([gate.again - 0.01, gate.again - 0.01])
    assert len(batches) == 2
    assert ordered.answers
    ordered, batches = searched([0.0, 0.0])
    assert len(batches) == 2
    assert not ordered.answers
    assert ordered.passages


def test_a_better_second_search_is_taken():
    assert searched([0.0, 1.0])[0].answers


def test_not_judged_is_kept():
    ordered, batches = searched([None])
    assert len(batches) == 1
    assert ordered.answers


def test_few_passages_are_not_searched_again():
    ordered, batches = searched([0.0], passages=3)
    assert len(batches) == 1
    assert not ordered.answers


# --- features ---------------------------------------------------------------------------------------------------------


TEXTS = st.lists(st.text(max_size=60), max_size=6)


@given(st.text(max_size=80), TEXTS, st.integers(0, 12), st.floats(0, 50))
def test_features_are_finite(question, texts, count, possible):
    ranked = [item(text, number=at) for at, text in enumerate(texts)]
    values = features(Found(question, candidates(count), possible, ranked, [0.5] * len(ranked)))
    assert len(values) == len(FEATURES)
    assert all(math.isfinite(value) and -1 <= value <= 2 for value in values)
    assert 0 <= load_gate().likelihood(values) <= 1


def test_each_feature_speaks_for_an_answer():
    """More of what tells an answer never makes one less likely."""
    gate = load_gate()
    assert min(gate.weights) >= 0
    assert 0 < gate.empty <= gate.again < 1


def test_doubt_asks_for_what_needs_no_second_search():
    gate = load_gate()
    assert gate.doubt(gate.again) == pytest.approx(gate.empty)
    assert gate.doubt(gate.again - 0.01) < gate.empty < gate.doubt(gate.again + 0.01)
    assert [gate.doubt(0.0), gate.doubt(1.0)] == pytest.approx([0.0, 1.0], abs=1e-6)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_wording_only_takes_away(likely, prior, other):
    assert 0 <= weigh(likely, prior) <= max(likely, 1e-9)
    assert weigh(likely, min(prior, other)) <= weigh(likely, max(prior, other)) + 1e-9


def test_what_stands_under_a_name_is_about_it():
    page = [item("the lift stood still", title="Harbour Mills, lift 7: a worn rope"), item("Harbour Mills paid", title="Bills")]
    assert is_about("What went wrong at Harbour Mills this year?", page)
    assert is_about("Why did lift 7 at Harbour Mills stop?", page)
    assert not is_about("Why did lift 8 at Harbour Mills stop?", page)
    assert not is_about("What went wrong this year?", page)
    assert not is_about("What went wrong at Harbour Mills this year?", page[1:])
    assert is_about("What went wrong at Harbour Mills?", [item("x", heading=("Customers", "Harbour Mills"))])


def test_a_missing_identifier_makes_an_answer_less_likely():
    there, gone = [item("the press shows ERR-4012")], [item("the press shows a lamp")]
    likely = [
        load_gate().likelihood(features(Found("what is ERR-4012 on the press", candidates(1), 8.0, ranked, [0.7])))
        for ranked in (there, gone)
    ]
    assert likely[0] > likely[1]


def test_notes_and_headings():
    assert build_note("what is ERR-4012", [item("ERR-4012 is oil")]) == ""
    assert build_note("what is ERR-4013", [item("ERR-4012 is oil")]) == "`err-4013` stands in none of the passages found"
    assert build_note("ERR-1111 or ERR-2222", [item("oil")]).startswith("`err-1111`, `err-2222` stand in none")
    named = [item("x", title="A", heading=("B", "C")), item("y", title="A", heading=("B", "C")), item("z", title="D")]
    assert build_nearest([one.stored.chunk for one in named]) == ("A > B > C", "D")


def test_a_whole_source_is_not_judged():
    ordered = Ordered((item("x"),), whole=True)

    def inner(question, tools):
        yield (plain(question),)
        return ordered

    tools = Tools(
        rank=lambda parts: (), vectors=lambda ids: [], shown=list, draft=None, candidates=5, rerank=5, trace=Trace("whole"),
        likelihood=lambda ranked: 0.0,
    )  # fmt: skip
    assert drive(gated(inner, load_gate())("q", tools), lambda batch: ()) is ordered
