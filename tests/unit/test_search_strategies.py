"""Strategies over the real store and embedder: what each searches, and that none reaches beyond the caller's filter."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.ask import ask
from router.domain import Question
from router.errors import SourceError, UsageError
from router.search.decomposed import clauses, points_back, split
from router.search.feedback import expansion_terms
from router.search.port import MAX_QUERIES, Query
from router.search.strategies import STRATEGIES, choose_strategy, parse_strategy
from tests import world
from tests.world import NOW, PAGES, ask_as, bytes_of, ids, write_page

MECHANICAL = [name for name, known in STRATEGIES.items() if not known.model]
PRESS = "what does ERR-4012 on the press mean"
OSMOSIS = {
    "handbook/staff/ro.md": "# Water unit\n\nReverse Osmosis (RO) cleans the water of the hall.",
    "handbook/staff/salt.md": "# Membranes\n\nThe membranes of the reverse osmosis are changed every fourteen months.",
    "handbook/staff/soft.md": "# Softener\n\nSalt for the softener is filled up on Mondays.",
    "handbook/board/ro.md": "# Return orders\n\nReturn Order (RO) volumes fell after the sale.",
}


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    with world.open_world(tmp_path_factory.mktemp("strategies") / "world") as made:
        yield made


class Watched:
    """The real store, and every search and load that it was asked for."""

    def __init__(self, real, fail_after=None):
        self._real, self.searches, self.loads, self._fail_after = real, [], [], fail_after

    def __getattr__(self, name):
        return getattr(self._real, name)

    def search(self, search):
        self.searches.append(search)
        if self._fail_after is not None and len(self.searches) > self._fail_after:
            raise SourceError("busy", "the store is busy", "try again", retryable=True)
        return self._real.search(search)

    def load(self, tenant, ids, f, *, deadline_s):
        self.loads.append(f)
        return self._real.load(tenant, ids, f, deadline_s=deadline_s)

    def vectors(self, tenant, ids, f, *, deadline_s):
        self.loads.append(f)
        return self._real.vectors(tenant, ids, f, deadline_s=deadline_s)


def put(router, text, *, person="ada", strategy="simple", k=5, store=None, **search):
    line = dataclasses.replace(
        router.line, store=store or router.line.store, search=router.line.search.model_copy(update={"relevance": "off", **search})
    )
    return ask(line, router.mint(person), Question(text, NOW, k, 10.0, route="documents", strategy=strategy))


# --- for all of them --------------------------------------------------------------------------------------------------


def test_a_query_names_no_filter():
    assert {field.name for field in dataclasses.fields(Query)} == {"text", "meaning", "candidates"}


@pytest.mark.parametrize("strategy", MECHANICAL)
def test_one_filter_for_every_search(router, strategy):
    store = Watched(router.line.store)
    answer = put(router, "How is the press oiled, and what does RO or ERR-4012 mean?", strategy=strategy, store=store)
    assert answer.passages
    assert len({id(search.filter) for search in store.searches}) == 1
    assert {id(f) for f in store.loads} == {id(store.searches[0].filter)}
    assert {search.tenant for search in store.searches} == {"north"}


@pytest.mark.parametrize("strategy", MECHANICAL)
@pytest.mark.parametrize("person", ["low", "ada", "hal", "nil", "bob"])
def test_nobody_sees_more(router, strategy, person):
    everything = set(ids(put(router, PRESS, person=person, k=50)))
    assert set(ids(put(router, f"{PRESS} and who was paid a supplement?", person=person, strategy=strategy, k=50))) <= everything


@pytest.mark.parametrize("strategy", MECHANICAL)
def test_hidden_pages_change_nothing(tmp_path, strategy):
    """Pages that the person may not see are rich in the question's words and define its acronym otherwise."""
    question = "How often are the membranes of the RO unit changed?"
    with world.open_world(tmp_path / "world") as router:
        for place, text in OSMOSIS.items():
            if "board" not in place:
                write_page(tmp_path / "world", place, text)
        router.index()
        before = bytes_of(put(router, question, strategy=strategy))
        for number in range(6):
            text = (
                f"# Return orders {number}\n\n{OSMOSIS['handbook/board/ro.md'][2:]} Membranes of the RO unit are changed daily."
            )
            write_page(tmp_path / "world", f"handbook/board/ro{number}.md", text)
        router.index()
        assert bytes_of(put(router, question, strategy=strategy)) == before


@pytest.mark.parametrize("strategy", MECHANICAL)
@pytest.mark.parametrize("text", ["?", "and", "what and what and what", "RO", "a\0b", "ß" * 3000, "( ( (", "x " * 4000, "؟ سؤال"])
def test_hostile_questions_end_in_an_answer(router, strategy, text):
    goes_on = text == "and"  # from a question that nobody asked
    assert put(router, text, strategy=strategy).outcome in (("clarify",) if goes_on else ("answered", "empty"))


def test_nothing_but_what_was_searched(router):
    store = Watched(router.line.store)
    answer = put(router, "How is the press oiled, and what does ERR-4012 mean?", strategy="decomposed", store=store, k=50)
    found = {hit.chunk_id for search in store.searches for hit in router.line.store.search(search).candidates}
    assert {passage.chunk_id for passage in answer.passages} <= found


def test_a_later_search_may_fail(router):
    store = Watched(router.line.store, fail_after=1)
    answer = put(router, PRESS, strategy="feedback", store=store)
    assert len(store.searches) == 2
    assert ids(answer) == ids(put(router, PRESS))
    assert [entry.reason for entry in answer.degraded] == ["busy: one of its searches was left out"]
    with pytest.raises(SourceError):
        put(router, PRESS, strategy="feedback", store=Watched(router.line.store, fail_after=0))


def test_simple_is_the_line_as_it_was(router):
    store = Watched(router.line.store)
    answer = put(router, PRESS, store=store)
    assert len(store.searches) == 1
    assert [stage.name for stage in answer.stages if stage.name in ("strategy", "search", "rerank")] == ["search", "rerank"]


# --- several questions in one -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("How tight is the belt and who changes the oil?", ["How tight is the belt", "who changes the oil"]),
        ("How tight is the belt? What does ERR-4012 mean?", ["How tight is the belt", "What does ERR-4012 mean"]),
        (
            "What is the limit of a claim; and who approves the payment",
            ["What is the limit of a claim", "who approves the payment"],
        ),
        ("Where is part PN-88213 kept and how do I replace it?", 2),
    ],
)
def test_two_questions_are_two(text, parts):
    found = split(text)
    assert len(found) == 2 if isinstance(parts, int) else found == parts


def test_what_points_back_takes_the_words_along():
    assert "PN-88213" in split("Where is part PN-88213 kept and how do I replace it?")[1]


@pytest.mark.parametrize(
    "text",
    [
        "what does ERR-4012 on the press mean",
        "What is the difference between oil and grease?",
        "Salt and pepper in the canteen",
        "which torque for belt and guard",
        "Who may open the press, and when?",
        "research and development budget",
        "?",
        "",
    ],
)
def test_one_question_stays_one(router, text):
    assert split(text) == [text]
    if text.strip("? "):
        store = Watched(router.line.store)
        put(router, text, strategy="decomposed", store=store)
        assert [search.text for search in store.searches] == [text]


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_parts_are_few_and_never_empty(text):
    parts = split(text)
    assert 1 <= len(parts) <= MAX_QUERIES
    assert parts == [text] or all(part.strip() for part in parts)


def test_each_part_has_its_share(router):
    """By two searches both answers come first; the plain search has room for one of the two."""
    answer = put(router, "How tight is the belt of the feeder and who is helmeted in the hall?", strategy="decomposed", k=2)
    assert set(ids(answer)) == {"handbook/staff/belt.md", "handbook/all/welcome.md"}
    assert next(stage.note for stage in answer.stages if stage.name == "strategy") == "decomposed: 2 searches"


# --- feedback ---------------------------------------------------------------------------------------------------------


def test_feedback_sees_only_the_callers(router):
    """Terms and vectors of the second search are of pages that the person may see."""
    store = Watched(router.line.store)
    put(router, PRESS, strategy="feedback", store=store)
    first, second = store.searches
    hidden = " ".join(text for place, text in PAGES.items() if "/board/" in place or "/hr/" in place or "hidden" in place).lower()
    visible = " ".join(
        text
        for place, text in PAGES.items()
        if place.startswith(("handbook/all", "handbook/staff", "handbook/since", "notes/m", "notes/t"))
    ).lower()
    added = set(second.text.split()) - set(first.text.split())
    assert added
    assert added <= set(visible.replace(".", " ").replace(",", " ").split())
    assert not (added - set(visible.replace(".", " ").replace(",", " ").split())) & set(hidden.split())
    assert second.vector != first.vector


def test_terms_are_shared_by_the_first_and_rare_in_the_rest(router):
    class Item:
        def __init__(self, text):
            self.stored = type("S", (), {"chunk": type("C", (), {"title": "", "text": text})})

    ranked = [Item("flange torque steel"), Item("flange steel weld"), *(Item("steel office") for _ in range(6))]
    assert expansion_terms("where is the weld", ranked[:2], ranked) == ["flange", "steel"]


# --- acronyms ---------------------------------------------------------------------------------------------------------


def test_acronyms_of_the_callers_own(tmp_path):
    """Who does not see the definition gets no words for it; who sees another definition gets that one."""
    question = "How often are the membranes of the RO changed?"
    with world.open_world(tmp_path / "world") as router:
        for place, text in OSMOSIS.items():
            write_page(tmp_path / "world", place, text)
        router.index()
        store = Watched(router.line.store)
        answer = put(router, question, strategy="acronyms", store=store)
        assert any(search.text == f"{question} Reverse Osmosis" for search in store.searches)
        assert "Return" not in " ".join(str(search.text) for search in store.searches)
        assert ids(answer)[0] == "handbook/staff/salt.md"
        narrow = Watched(router.line.store)
        put(router, question, person="low", strategy="acronyms", store=narrow)
        assert not any("Osmosis" in str(search.text) for search in narrow.searches)


# --- a whole source ---------------------------------------------------------------------------------------------------


def test_whole_small_source(router):
    answer = put(router, "anything at all", strategy="whole", whole_chunks=20, k=2)
    assert len(answer.passages) == 9
    assert ids(answer) == sorted(ids(answer))
    assert "handed over whole" in next(stage.note for stage in answer.stages if stage.name == "strategy")
    above = put(router, "anything at all", strategy="whole", whole_chunks=8, k=2)
    assert len(above.passages) == 2
    assert len(put(router, PRESS, strategy=None, whole_chunks=9, k=2).passages) == 9
    assert len(put(router, PRESS, strategy="simple", whole_chunks=9, k=2).passages) == 2


# --- choosing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (PRESS, "simple"),
        ("How tight is the belt and who changes the oil?", "decomposed"),
        ("what is the MTBF of a pump", "acronyms"),
        ("PN-88213", "simple"),
        ("WHAT IS THE LIMIT", "simple"),
    ],
)
def test_auto_goes_by_the_form(text, name):
    assert choose_strategy(text, "auto") == name
    assert choose_strategy(text, "widened") == "widened"


def test_unknown_strategy_is_named(router):
    with pytest.raises(UsageError) as raised:
        ask_as(router, "ada", PRESS, strategy="clever")
    assert raised.value.code == "strategy_unknown"
    assert "simple" in raised.value.hint
    with pytest.raises(UsageError):
        parse_strategy("hyde", model=False)


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        (
            "How many open claims are there, and up to which amount may an adjuster approve?",
            ["How many open claims are there", "up to which amount may an adjuster approve"],
        ),
        (
            "Which claims are open? Above which amount must a lead sign?",
            ["Which claims are open", "Above which amount must a lead sign"],
        ),
        (
            "How many are late and within which time may a clerk answer?",
            ["How many are late", "within which time may a clerk answer"],
        ),
        (
            "How many claims did we pay over the period that the adjuster may choose?",
            ["How many claims did we pay over the period that the adjuster may choose?"],
        ),
    ],
)
def test_a_question_may_begin_before_its_question_word(question, parts):
    assert clauses(question) == parts


@pytest.mark.parametrize(
    ("clause", "points"),
    [
        ("how many claims are there in region West", False),
        ("are there open ones", False),
        ("how many were closed this year", False),
        ("which claims that are open exceed 100", False),
        ("how many one can carry", False),
        ("how do I get there", True),
        ("who approves this", True),
        ("which one is older", True),
        ("how many of these are closed", True),
        ("is that allowed", True),
        ("who leads it", True),
    ],
)
def test_what_points_back(clause, points):
    assert points_back(clause) is points
