"""What every document store must do, whatever engine it stands on: one function a promise, each given a `Lab`.

Expected answers come from the reference evaluator, never from a store. A store's own test module imports these functions
and defines the fixture `lab`; `test_suite_bites.py` runs them against stores that are broken on purpose.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pytest

from router.domain import (
    SOURCE_FIELD,
    Candidate,
    Entity,
    Found,
    Generation,
    IndexedDocument,
    ManifestRow,
    ModelCard,
    Search,
    Span,
    label_digest,
)
from router.errors import PointsmanError, PolicyError, SourceError
from router.filters import (
    ALWAYS,
    LONG_MAX,
    LONG_MIN,
    MAX_DEPTH,
    MAX_NODES,
    MAX_VALUES,
    NEVER,
    And,
    EntityType,
    Eq,
    Field,
    Filter,
    Ge,
    Gt,
    Has,
    In,
    Like,
    Lt,
    Not,
    Or,
    Overlaps,
    Within,
    compile_filter,
    matches,
)
from router.ingest.versions import read_document
from router.ports import DocStore
from tests.conformance import corpus
from tests.conformance.corpus import ENTITY, HOSTILE, MODEL, NEIGHBOUR, OTHER_MODEL, TENANT, document, labels, twinned

LEGS = {"lexical": ("shared", False), "dense": (None, True), "both": ("shared", True)}
"""Leg -> (question, whether the dense leg is on)."""


class Lab(Protocol):
    """A store and the means to mistreat it."""

    entity: EntityType
    """What the store is told of documents; may be assigned to between calls, as a policy reload does."""

    @property
    def store(self) -> DocStore: ...
    def reopened(self) -> DocStore:
        """The same store as another process would open it."""
        ...

    def sever(self) -> None:
        """From now on any I/O of the store fails."""
        ...

    def secrets(self) -> list[str]:
        """Texts that no error may show: places, credentials."""
        ...

    def swap(self, one: str, other: str) -> None:
        """Put the partition of each tenant in the place of the other's, under open connections too."""
        ...

    def age(self, tenant: str) -> None:
        """Make the tenant's store one of a newer version."""
        ...

    def everything(self, tenant: str) -> bytes:
        """All bytes that the tenant's partition has on disk."""
        ...

    def torn_build(self, tenant: str) -> None:
        """Leave what a killed `begin_generation` leaves."""
        ...

    def lose(self, tenant: str) -> None:
        """Remove the tenant's partition by hand, under open connections."""
        ...

    def keep(self, tenant: str) -> Callable[[], None]:
        """Take a copy of the partition as it is; what is given back puts it in the place of what is there then."""
        ...


# --- asking -----------------------------------------------------------------------------------------------------------


def ask(
    store: DocStore,
    f: Filter,
    text: str | None = "shared",
    vector: bytes | None = None,
    *,
    limit: int = 100_000,
    tenant: str = TENANT,
    deadline_s: float = 60.0,
) -> Found:
    return store.search(Search(tenant, f, text, vector, MODEL.id, limit, deadline_s))


def ask_leg(store: DocStore, f: Filter, leg: str, *, limit: int = 100_000, tenant: str = TENANT) -> Found:
    text, dense = LEGS[leg]
    return ask(store, f, text, corpus.question(1, 0, 0, 0) if dense else None, limit=limit, tenant=tenant)


def hits(found: Found) -> list[str]:
    return sorted({candidate.document_id for candidate in found.candidates})


def bits(found: Found) -> tuple[Any, ...]:
    """Every bit that could differ between two answers."""
    return found.admitted, tuple((c.chunk_id, c.source, c.bm25.hex(), c.cosine.hex(), c.legs) for c in found.candidates)


def put(store: DocStore, documents: Sequence[IndexedDocument], *, tenant: str = TENANT, **more: Any) -> None:
    store.put(tenant, documents, model=MODEL, **more)


def check_everywhere(store: DocStore, documents: Sequence[IndexedDocument], f: Filter, entity: EntityType = ENTITY) -> None:
    """Each leg and each other reading call admits exactly what the reference admits."""
    expected = corpus.reference(documents, f, entity)
    chunks = sum(len(item.chunks) for item in documents if item.document_id in set(expected))
    for leg in LEGS:
        found = ask_leg(store, f, leg)
        assert hits(found) == expected, (leg, f)
        assert len(found.candidates) == chunks
        assert [c.chunk_id for c in found.candidates] == sorted(c.chunk_id for c in found.candidates)
        if f != NEVER:
            assert found.admitted == chunks, (leg, f)
    assert store.admitted(TENANT, f) == expected, f


def check_reads(store: DocStore, documents: Sequence[IndexedDocument], f: Filter) -> None:
    """`load`, `siblings`, `vectors` and `admitted_labels` show what the reference admits and nothing else."""
    expected = set(corpus.reference(documents, f))
    ids = [chunk.chunk_id for item in documents for chunk, _ in item.chunks]
    loaded = store.load(TENANT, [*ids, "s/none#0"], f, deadline_s=60)
    assert [item.chunk.chunk_id for item in loaded] == [name for name in ids if name.rsplit("#", 1)[0] in expected]
    own = {chunk.chunk_id: embedded.vector for item in documents for chunk, embedded in item.chunks}
    backwards = [name for name in reversed(ids) if name.rsplit("#", 1)[0] in expected]
    assert store.vectors(TENANT, [*reversed(ids), "s/none#0"], f, deadline_s=60) == [own[name] for name in backwards]
    shown = store.admitted_labels(TENANT, f, deadline_s=60)
    assert {label_digest("", one) for one in shown} == {
        label_digest("", item.labels) for item in documents if item.document_id in expected and item.chunks
    }
    for item in documents:
        near = store.siblings(TENANT, item.document_id, 0, 10, f, deadline_s=60)
        wanted = [chunk.chunk_id for chunk, _ in item.chunks] if item.document_id in expected else []
        assert [found.chunk.chunk_id for found in near] == wanted


# --- filters ----------------------------------------------------------------------------------------------------------


def test_every_comparison_equals_the_reference(lab: Lab) -> None:
    """Each comparison with each field, on labels that are absent, empty, extreme or syntax elsewhere."""
    documents = corpus.grid()
    put(lab.store, documents)
    for f in corpus.atoms():
        assert lab.store.admitted(TENANT, f) == corpus.reference(documents, f), f


def test_compounds_equal_the_reference(lab: Lab) -> None:
    """Three-valued traps, as written and as compiled, in both legs and every reading call."""
    documents = corpus.grid()
    put(lab.store, documents)
    for f in corpus.compounds():
        check_everywhere(lab.store, documents, f)
        compiled = compile_filter(f, EntityType("Document", {**ENTITY.fields, SOURCE_FIELD: Field("string", True)}))
        check_everywhere(lab.store, documents, compiled)
    for f in (Not(Eq("rank", 1)), Has("region"), NEVER, ALWAYS, Overlaps("tags", frozenset({"a"}))):
        check_reads(lab.store, documents, f)


def test_missing_reads_as_missing(lab: Lab) -> None:
    """A comparison with an attribute that is not there is false, and its negation true."""
    absent, one, two = document("absent", labels()), document("one", labels(rank=1)), document("two", labels(rank=2))
    put(lab.store, [absent, one, two])
    assert lab.store.admitted(TENANT, Eq("rank", 1)) == ["s/one"]
    assert lab.store.admitted(TENANT, Not(Eq("rank", 1))) == ["s/absent", "s/two"]
    assert lab.store.admitted(TENANT, And((Has("rank"), Not(Eq("rank", 1))))) == ["s/two"]
    assert lab.store.admitted(TENANT, Not(Has("rank"))) == ["s/absent"]
    assert lab.store.admitted(TENANT, Gt("rank", LONG_MIN)) == ["s/one", "s/two"]


def test_required_scalars_are_demanded(lab: Lab) -> None:
    """A compiled filter shows nobody a document that lacks a required scalar, a guarded Not included."""
    whole, lacking = document("whole", labels()), document("lacking", labels(title=None))
    put(lab.store, [whole, lacking])
    for f in (ALWAYS, Not(Eq("title", "x")), Not(Has("rank")), Or((Eq("title", "plain"), Not(Eq("title", "plain"))))):
        check_everywhere(lab.store, [whole, lacking], compile_filter(f, ENTITY))
        assert lab.store.admitted(TENANT, compile_filter(f, ENTITY)) == ["s/whole"]


def test_empty_sets_and_empty_lists(lab: Lab) -> None:
    """An empty disjunction, `In` or `Overlaps` admits nothing; an empty conjunction everything; the empty set is within any."""
    bare, tagged = document("bare", labels(tags=frozenset())), document("tagged", labels(tags=frozenset({""})))
    put(lab.store, [bare, tagged])
    for nothing in (Or(()), In("title", frozenset()), Overlaps("tags", frozenset()), Not(And(())), And((Or(()), ALWAYS))):
        check_everywhere(lab.store, [bare, tagged], nothing)
        assert lab.store.admitted(TENANT, nothing) == []
    assert lab.store.admitted(TENANT, And(())) == ["s/bare", "s/tagged"]
    assert lab.store.admitted(TENANT, Within("tags", frozenset())) == ["s/bare"]
    assert lab.store.admitted(TENANT, Within("tags", frozenset({""}))) == ["s/bare", "s/tagged"]
    assert lab.store.admitted(TENANT, Overlaps("tags", frozenset({""}))) == ["s/tagged"]
    assert lab.store.admitted(TENANT, Has("tags")) == ["s/bare", "s/tagged"]


def test_narrowing_never_adds(lab: Lab) -> None:
    """A caller's own filter under the policy's takes away and never gives."""
    put(lab.store, corpus.grid())
    some = [*corpus.compounds()][::3]
    for f in some:
        wide = set(hits(ask_leg(lab.store, f, "both")))
        for g in some:
            assert set(hits(ask_leg(lab.store, And((f, g)), "both"))) <= wide


def test_hostile_values_match_literally(lab: Lab) -> None:
    """Quotes, wildcards, query syntax, other scripts: in labels, in ids, in text and in questions."""
    documents = [
        document(f"{at} {text[:50]}", labels(region=text, tags=frozenset({text})), text[:300]) for at, text in enumerate(HOSTILE)
    ]
    put(lab.store, documents)
    for item in documents:
        text = item.labels["region"]
        assert isinstance(text, str)
        for f in (
            Eq("region", text),
            In("region", frozenset({text})),
            Like("region", (text,)),
            Overlaps("tags", frozenset({text})),
        ):
            assert lab.store.admitted(TENANT, f) == corpus.reference(documents, f) == [item.document_id], f
        found = ask(lab.store, Eq("region", text), f"shared {text[:300]}", corpus.question(1, 0, 0, 0))
        assert hits(found) == [item.document_id]
        stored = lab.store.load(TENANT, [item.chunks[0][0].chunk_id], Eq("region", text), deadline_s=60)
        assert [(got.chunk, got.labels) for got in stored] == [(item.chunks[0][0], item.labels)]
    for f in (Like("region", (text[:2], "")) for text in HOSTILE):
        assert lab.store.admitted(TENANT, f) == corpus.reference(documents, f), f


def test_hostile_questions(lab: Lab) -> None:
    """No question is syntax: each either finds its words or finds nothing, under the filter."""
    put(lab.store, [document("open", labels(rank=1)), document("closed", labels(rank=2))])
    nasty = (
        "",
        " ",
        "\0",
        "\0shared\0",
        "\ud800 shared",
        "the of and",
        "shared " * 3000,
        "*",
        '"',
        "shared*",
        'shared"',
        "NOT shared",
    )
    for text in (*nasty, *HOSTILE):
        found = ask(lab.store, Eq("rank", 1), text, corpus.question(1, 0, 0, 0))
        assert hits(found) == ["s/open"]
        lexical = ask(lab.store, Eq("rank", 1), text)
        assert hits(lexical) in ([], ["s/open"])
        assert lexical.admitted == 1
        assert "shared" not in text or "\u202e" in text or hits(lexical) == ["s/open"], text


def test_large_sets(lab: Lab) -> None:
    """Ten thousand values in `In`, `Overlaps` and `Within`."""
    many = frozenset(f"corp:{number:05}" for number in range(MAX_VALUES))
    documents = [
        document("first", labels(region="corp:00000", tags=frozenset({"corp:09999", "x"}))),
        document("last", labels(region="corp:09999", tags=frozenset({"corp:00000"}))),
        document("out", labels(region="corp:10000", tags=frozenset({"x"}))),
        document("long", labels(rank=5_000)),
    ]
    put(lab.store, documents)
    for f in (
        In("region", many),
        Overlaps("tags", many),
        Within("tags", many),
        Not(In("region", many)),
        And((Not(Overlaps("tags", many)), Has("region"))),
        In("rank", frozenset(range(-1, MAX_VALUES - 1))),
    ):
        check_everywhere(lab.store, documents, f)


def test_filters_at_the_size_bound(lab: Lab) -> None:
    """The deepest and the widest filters that are allowed are answered, and in time."""
    documents = [document("one", labels(rank=1)), document("two", labels(rank=2)), document("none", labels())]
    put(lab.store, documents)
    wide = tuple(Eq("region", f"r{number}") for number in range(MAX_NODES - 4))
    start = time.monotonic()
    for f in (
        corpus.nested(MAX_DEPTH),
        Or((*wide, Eq("rank", 1))),
        And((Not(Or(wide)), Has("rank"))),
        And(tuple(Not(Eq("rank", 10 + number)) for number in range(MAX_NODES // 2 - 2))),
    ):
        assert hits(ask_leg(lab.store, f, "both")) == lab.store.admitted(TENANT, f) == corpus.reference(documents, f)
    assert time.monotonic() - start < 20
    for f in (corpus.nested(MAX_DEPTH + 1), Or((*wide, *wide))):
        with pytest.raises(PolicyError, match="filter_too_large"):
            ask(lab.store, f)


def test_extreme_numbers(lab: Lab) -> None:
    """64-bit integers stay exact where a double would not."""
    values = (LONG_MIN, LONG_MIN + 1, -(2**53) - 1, -(2**53), 0, 2**53, 2**53 + 1, LONG_MAX - 1, LONG_MAX)
    documents = [document(str(at), labels(rank=value)) for at, value in enumerate(values)]
    put(lab.store, documents)
    for value in values:
        for f in (
            Eq("rank", value),
            Lt("rank", value),
            Ge("rank", value),
            Not(Gt("rank", value)),
            In("rank", frozenset({value, 3})),
        ):
            assert lab.store.admitted(TENANT, f) == corpus.reference(documents, f), f


def test_a_bool_is_no_number(lab: Lab) -> None:
    """True and 1 are equal in Python and different in policy."""
    documents = [document("one", labels(rank=1)), document("true", labels(archived=True)), document("zero", labels(rank=0))]
    put(lab.store, documents)
    assert lab.store.admitted(TENANT, Eq("rank", 1)) == ["s/one"]
    assert lab.store.admitted(TENANT, Eq("archived", True)) == ["s/true"]
    for f in (Eq("rank", True), Eq("archived", 1), In("rank", frozenset({True})), In("archived", frozenset({0}))):
        with pytest.raises(PolicyError, match="filter_type"):
            lab.store.admitted(TENANT, f)
    for wrong in (
        {"rank": True},
        {"archived": 1},
        {"rank": "1"},
        {"region": 1},
        {"tags": "a"},
        {"rank": 2**63},
        {"rank": frozenset()},
    ):
        with pytest.raises(SourceError, match="label_type"):
            put(lab.store, [document("wrong", labels(**wrong))])  # type: ignore[arg-type]
        with pytest.raises(SourceError, match="label_type"):
            lab.store.relabel(TENANT, {"s/one": labels(**wrong)})  # type: ignore[arg-type]
    assert lab.store.admitted(TENANT, ALWAYS) == ["s/one", "s/true", "s/zero"]


# --- before top-k, before I/O -----------------------------------------------------------------------------------------


def test_filter_comes_before_top_k(lab: Lab) -> None:
    """Five allowed among a thousand forbidden that score better in both legs."""
    better = [
        document(f"f{at:04}", labels(rank=0), "pump pump pump seal seal", vectors=[(1.0, 0.0, 0.0, 0.0)]) for at in range(1_000)
    ]
    allowed = [
        document(
            f"z{at}", labels(rank=1), "a pump and a seal among many other words of no use", vectors=[(0.2, 0.9, 0.1, 0.1 * at)]
        )
        for at in range(5)
    ]
    put(lab.store, [*better, *allowed])
    expected = [item.document_id for item in allowed]
    for text, vector in (("pump seal", None), (None, corpus.question(1, 0, 0, 0)), ("pump seal", corpus.question(1, 0, 0, 0))):
        found = ask(lab.store, Eq("rank", 1), text, vector, limit=5)
        assert hits(found) == expected
        assert found.admitted == 5
    with pytest.raises(SourceError, match="deadline"):
        ask(lab.store, ALWAYS, "pump seal", corpus.question(1, 0, 0, 0), deadline_s=1e-6)
    with pytest.raises(SourceError, match="deadline"):
        lab.store.load(TENANT, [f"s/f{at:04}#0" for at in range(1_000)] * 5, ALWAYS, deadline_s=1e-6)
    assert hits(ask(lab.store, Eq("rank", 1), "pump seal", limit=5)) == expected, "usable after a deadline"


def test_what_was_foreseen_changes_nothing(lab: Lab) -> None:
    """A search says the same with and without it, and takes none that was made for another tenant, filter or text."""
    put(lab.store, [document(f"r{at}", labels(rank=at % 2), f"pump number {at} seal") for at in range(8)])
    vector = corpus.question(1, 0, 0, 0)
    wanted = Search(TENANT, Eq("rank", 1), "pump seal", vector, MODEL.id, 5, 60.0)
    plain = lab.store.search(wanted)
    for other in (
        {},
        {"filter": ALWAYS},
        {"filter": NEVER},
        {"text": "number"},
        {"text": None},
        {"entities": frozenset({"pn-1"})},
    ):
        foreseen = lab.store.foresee(replace(wanted, vector=None, **other))
        assert lab.store.search(replace(wanted, foreseen=foreseen)) == plain, other


def test_never_does_no_io(lab: Lab) -> None:
    """`Never`, and a search with both legs off, do not touch the store."""
    put(lab.store, [document("one", labels())])
    lab.sever()
    assert ask(lab.store, NEVER, "shared", corpus.question(1, 0, 0, 0)) == Found((), 0)
    assert ask(lab.store, ALWAYS, None, None) == Found((), 0)
    assert lab.store.load(TENANT, ["s/one#0"], NEVER, deadline_s=60) == []
    assert lab.store.siblings(TENANT, "s/one", 0, 9, NEVER, deadline_s=60) == []
    assert lab.store.vectors(TENANT, ["s/one#0"], NEVER, deadline_s=60) == []
    assert lab.store.admitted_labels(TENANT, NEVER, deadline_s=60) == []
    assert lab.store.admitted(TENANT, NEVER) == []
    with pytest.raises(SourceError):
        ask(lab.store, ALWAYS)


def test_refused_before_io(lab: Lab) -> None:
    """What a store could misread raises while the store is out of reach: nothing was sent."""
    put(lab.store, [document("one", labels())])
    lab.sever()
    refused = {
        "filter_unknown_field": (Eq("nowhere", "x"), Has("Tenant"), And((ALWAYS, Not(Lt("none", 1))))),
        "filter_type": (
            Eq("rank", "1"),
            Lt("region", 1),
            Lt("rank", "abc"),  # type: ignore[arg-type]
            Eq("rank", 1.0),  # type: ignore[arg-type]
            Eq("rank", 2**63),
            Eq("tags", "a"),
            Overlaps("region", frozenset({"a"})),
            Like("rank", ("1", "")),
            In("region", frozenset({"a", 1})),
        ),
        "hostile_text": (Eq("region", "a\0b"), Like("region", ("\ud800", "")), Overlaps("tags", frozenset({"\udfff"}))),
        "filter_too_large": (In("rank", frozenset(range(MAX_VALUES + 1))), corpus.nested(MAX_DEPTH + 1)),
    }
    for code, several in refused.items():
        for f in several:
            for call in (
                lambda f=f: ask(lab.store, f),
                lambda f=f: lab.store.load(TENANT, ["s/one#0"], f, deadline_s=60),
                lambda f=f: lab.store.siblings(TENANT, "s/one", 0, 1, f, deadline_s=60),
                lambda f=f: lab.store.vectors(TENANT, ["s/one#0"], f, deadline_s=60),
                lambda f=f: lab.store.admitted_labels(TENANT, f, deadline_s=60),
                lambda f=f: lab.store.admitted(TENANT, f),
                lambda f=f: ask(lab.store, And((NEVER, f))),
            ):
                with pytest.raises(PolicyError) as caught:
                    call()
                assert caught.value.code == code, f


def test_bad_documents_are_refused_whole(lab: Lab) -> None:
    """One document that cannot be stored keeps out its whole batch, and the store stays as it was."""
    good = document("good", labels())
    chunk, vectors = good.chunks[0]
    wrong = [
        document("bad", labels(region="a\0")),
        document("bad", labels(tags=frozenset({"\ud800"}))),
        document("bad\0", labels()),
        document("bad\ud800", labels()),
        document("bad", labels(), "\ud800"),
        document("bad", labels(), title="\udfff"),
        replace(good, chunks=((replace(chunk, heading_path=("\ud800",)), vectors),)),
        replace(good, chunks=((chunk, replace(vectors, vector=vectors.vector[:-4])),)),
        replace(good, chunks=((chunk, replace(vectors, vector=struct.pack("<4f", float("nan"), 0, 0, 1))),)),
        replace(good, chunks=((chunk, replace(vectors, vector=struct.pack("<4f", float("inf"), 0, 0, 1))),)),
        replace(good, chunks=((chunk, replace(vectors, token_ids=b"123")),)),
        replace(good, chunks=((chunk, replace(vectors, token_vectors=b"1")),)),
        replace(good, chunks=((chunk, replace(vectors, token_scale=0.0)),)),
        replace(good, chunks=(good.chunks[0], good.chunks[0])),
    ]
    put(lab.store, [document("first", labels())])
    for bad in wrong:
        with pytest.raises(PointsmanError):
            put(lab.store, [document("other", labels()), bad])
        assert lab.store.admitted(TENANT, ALWAYS) == ["s/first"]
    assert lab.store.verify(TENANT) == []


def test_errors_tell_nothing(lab: Lab) -> None:
    """No place, no statement, no text of a document or a question in any error."""
    put(lab.store, [document("hidden-id", labels(region="hidden-label"), "hidden-text")])
    lab.sever()
    calls = (
        lambda: ask(lab.store, Eq("region", "hidden-label"), "hidden-question"),
        lambda: lab.store.load(TENANT, ["s/hidden-id#0"], ALWAYS, deadline_s=60),
        lambda: lab.store.siblings(TENANT, "s/hidden-id", 0, 9, ALWAYS, deadline_s=60),
        lambda: lab.store.admitted(TENANT, ALWAYS),
        lambda: list(lab.store.documents(TENANT)),
        lambda: list(lab.store.labelled(TENANT)),
        lambda: put(lab.store, [document("hidden-id", labels(), "hidden-text")]),
        lambda: lab.store.relabel(TENANT, {"s/hidden-id": labels(region="hidden-label")}),
        lambda: lab.store.delete(TENANT, ["s/hidden-id"]),
        lambda: lab.store.forget(TENANT, ["s/hidden-id"]),
        lambda: lab.store.begin_generation(TENANT, keep_sources=["s"]),
        lambda: lab.store.verify(TENANT),
        lambda: lab.store.version(TENANT),
    )
    for call in calls:
        with pytest.raises(SourceError) as caught:
            call()
        shown = f"{caught.value} {caught.value.hint} {caught.value.__cause__}"
        assert not any(secret in shown for secret in (*lab.secrets(), "hidden", "SELECT", "INSERT")), shown
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


# --- scores -----------------------------------------------------------------------------------------------------------


def _mixed() -> list[IndexedDocument]:
    words = "pump seal valve gasket error reset belt scanner depot order claim approval limit filter oil".split()
    random_ = random.Random(7)
    return [
        document(
            f"{at:03}",
            labels(rank=at % 3, groups=frozenset({f"corp:{'abc'[at % 3]}"})),
            *(" ".join(random_.choices(words, k=random_.randint(2, 30))) for _ in range(1 + at % 2)),
            source="ab"[at % 2],
            vectors=[tuple(random_.gauss(0, 1) for _ in range(4)) for _ in range(2)],
        )
        for at in range(60)
    ]


QUESTIONS = ("pump seal error", "claim approval limit shared", "valves and oil filters", "nothing of it")


def _answers(store: DocStore, f: Filter) -> list[Any]:
    """All that an asker could see of the store under `f`."""
    seen: list[Any] = []
    for text in QUESTIONS:
        for limit in (3, 1_000):
            seen.append(bits(ask(store, f, text, None, limit=limit)))
            seen.append(bits(ask(store, f, None, corpus.question(0.3, -1, 0.2, 0.5), limit=limit)))
            seen.append(bits(ask(store, f, text, corpus.question(0.3, -1, 0.2, 0.5), limit=limit)))
    ids = [candidate.chunk_id for candidate in ask(store, f).candidates]
    seen.append(store.load(TENANT, ids, f, deadline_s=60))
    seen.append([store.siblings(TENANT, name.split("#")[0], 0, 9, f, deadline_s=60) for name in ids[:5]])
    seen.append(store.vectors(TENANT, ids, f, deadline_s=60))
    seen.append(store.admitted_labels(TENANT, f, deadline_s=60))
    seen.append(store.admitted(TENANT, f))
    return seen


def test_hidden_chunks_change_nothing(lab: Lab) -> None:
    """Adding, deleting, changing or relabelling what a filter does not admit changes no bit of a score, order or count."""
    f = compile_filter(And((Eq("rank", 1), Overlaps("groups", frozenset({"corp:b"})))), ENTITY)
    put(lab.store, _mixed())
    before, random_ = _answers(lab.store, f), random.Random(11)
    hidden = [item for item in _mixed() if not matches(f, item.labels)]
    for round_ in range(8):
        some = random_.sample(hidden, 6)
        match round_ % 4:
            case 0:
                put(lab.store, [document(f"new{round_}{at}", labels(rank=0), "pump " * 50, "claim oil") for at in range(6)])
            case 1:
                lab.store.delete(TENANT, [item.document_id for item in some])
            case 2:
                lab.store.relabel(TENANT, {item.document_id: labels(rank=1, groups=frozenset({"corp:a"})) for item in some})
            case _:
                put(lab.store, [document(item.document_id[2:], item.labels, "seal " * 9, source=item.source) for item in some])
        assert _answers(lab.store, f) == before, round_
    put(lab.store, [document("seen", labels(rank=1, groups=frozenset({"corp:b"})), "pump")])
    assert _answers(lab.store, f) != before, "what is visible does change them"


def test_scores_are_those_of_the_visible_alone(lab: Lab) -> None:
    """The same bits as in a store that holds nothing but the visible documents, inserted in another order."""
    f = Eq("rank", 2)
    documents = _mixed()
    put(lab.store, documents)
    visible = [item for item in documents if matches(f, item.labels)]
    for item in reversed(visible):
        put(lab.store, [item], tenant=NEIGHBOUR)
    for text in QUESTIONS:
        for leg_text, vector in ((text, None), (None, corpus.question(1, 2, 3, 4)), (text, corpus.question(1, 2, 3, 4))):
            for limit in (4, 1_000):
                here = bits(ask(lab.store, f, leg_text, vector, limit=limit))
                assert here == bits(ask(lab.store, ALWAYS, leg_text, vector, limit=limit, tenant=NEIGHBOUR))


def test_ties_by_chunk_id(lab: Lab) -> None:
    """Equal scores are cut by id, whatever the order of insertion, replacement and deletion was."""
    documents = [document(f"{at:02}", labels(), "pump", "pump") for at in range(30)]
    put(lab.store, documents)
    shuffled = random.Random(3).sample(documents, len(documents))
    for item in shuffled:
        put(lab.store, [document("gone", labels(), "pump"), item], tenant=NEIGHBOUR)
    lab.store.delete(NEIGHBOUR, ["s/gone"])
    for leg in LEGS:
        first, second = (ask_leg(lab.store, ALWAYS, leg, limit=7, tenant=tenant) for tenant in (TENANT, NEIGHBOUR))
        assert bits(first) == bits(second)
        assert [c.chunk_id for c in first.candidates] == [f"s/{at:02}#{part}" for at in range(4) for part in (0, 1)][:7]


def test_scores_are_finite(lab: Lab) -> None:
    """Zero vectors, empty texts, questions without words: every score is a finite number."""
    put(lab.store, [document("zero", labels(), "", vectors=[(0.0, 0.0, 0.0, 0.0)]), document("one", labels(), "pump")])
    for text in ("shared", "pump", "", None):
        for vector in (corpus.question(0, 0, 0, 0), corpus.question(1, 1, 1, 1), struct.pack("<4f", float("nan"), 0, 0, 0)):
            for c in ask(lab.store, ALWAYS, text, vector).candidates:
                assert isinstance(c, Candidate)
                assert (type(c.bm25), type(c.cosine)) == (float, float)
                assert abs(c.bm25) < 1e9
                assert abs(c.cosine) <= 1.0 + 1e-6
    ranked = sorted(ask(lab.store, ALWAYS, None, corpus.question(1, 0.5, 0.25, 0)).candidates, key=lambda c: -c.cosine)
    assert ranked[0].chunk_id == "s/one#0"


def test_limit_counts_candidates_of_a_leg(lab: Lab) -> None:
    put(lab.store, [document(f"{at:02}", labels(), "pump") for at in range(9)])
    for leg in ("lexical", "dense"):
        assert [len(ask_leg(lab.store, ALWAYS, leg, limit=limit).candidates) for limit in (0, 1, 5, 99)] == [0, 1, 5, 9]
        assert ask_leg(lab.store, ALWAYS, leg, limit=0).admitted == 9


def test_identifiers_meet_in_every_spelling(lab: Lab) -> None:
    """Codes and names are found whole and in parts, however they are joined."""
    texts = {
        "code": "The drive shows ERR-4012 at start",
        "part": "Order PN-88213 from depot 4",
        "snake": "set max_retry_count to 5",
        "camel": "maxRetryCount = 5",
    }
    put(lab.store, [document(key, labels(), text) for key, text in texts.items()])

    def found(text: str) -> list[str]:
        return [name[2:] for name in hits(ask(lab.store, ALWAYS, text))]

    assert found("ERR-4012") == found("err4012") == found("4012") == ["code"]
    assert found("PN-88213") == found("pn88213") == found("88213") == ["part"]
    for spelling in ("max_retry_count", "maxRetryCount", "max-retry-count 7x", "maxretrycount", "retry", "max retry count"):
        assert found(spelling) == ["camel", "snake"], spelling


# --- writing ----------------------------------------------------------------------------------------------------------


def test_everything_comes_back(lab: Lab) -> None:
    """Each attribute of a chunk, its labels and its vectors come back as they were given."""
    base = document("deep/key with space.md", labels(region="é", tags=frozenset({"x", "y"})), "text\0with \x07controls\r\n")
    chunk, vectors = base.chunks[0]
    full = replace(
        chunk,
        title="Titel ☂",
        heading_path=("A", "B › C", ""),
        kind="code",
        uri="https://host/p?q=1#f",
        span=Span(page=3, lines=(1, 2), sheet="Über"),
        context="made context",
        version="2.1",
        language="python",
        meta={"scope": "class A", "imports": "os"},
        entities=(Entity("code", "err-4012", subject=True), Entity("name", "mara-lindqvist"), Entity("product", "größe-9")),
    )
    bare = replace(chunk, chunk_id="s/deep/key with space.md#1", ordinal=1, span=Span(), text="")
    item = replace(base, chunks=((full, vectors), (bare, corpus.embedded(0, 1, 0, 0, tokens=0))))
    put(lab.store, [item])
    loaded = lab.store.load(TENANT, [bare.chunk_id, full.chunk_id, bare.chunk_id], ALWAYS, deadline_s=60)
    assert [got.chunk for got in loaded] == [bare, full, bare]
    assert loaded[1].labels == item.labels
    assert (loaded[1].token_ids, loaded[1].token_vectors, loaded[1].token_scale) == (
        vectors.token_ids,
        vectors.token_vectors,
        vectors.token_scale,
    )
    assert loaded[0].token_ids == b""
    assert [got.chunk for got in lab.store.siblings(TENANT, item.document_id, 1, 1, ALWAYS, deadline_s=60)] == [bare]
    assert lab.store.verify(TENANT) == []


def test_a_document_read_back_is_whole(lab: Lab) -> None:
    """What is kept of an earlier version is what was searched: text, contexts, names and vectors, in both indexes."""
    item = twinned(_naming(document("a", labels(rank=1), "one", "two"), "pn-1!", "inc-2"), "harrow", "wickham")
    put(lab.store, [item, document("b", labels(rank=1), "three")])
    row = ManifestRow(TENANT, "g-1", "s", "a", "indexed", "f", "h", chunks=4)
    kept = read_document(lab.store, TENANT, row, key="a@@00000000000f", replaces="s/a")
    assert kept is not None
    assert read_document(lab.store, TENANT, replace(row, chunks=5), key="x", replaces="s/a") is None
    assert (kept.document_id, kept.labels) == ("s/a@@00000000000f", item.labels)
    for before, after in ((item.chunks, kept.chunks), (item.contextual, kept.contextual)):
        for (old, vectors), (new, same) in zip(before, after, strict=True):
            assert new.chunk_id == old.chunk_id.replace("s/a#", "s/a@@00000000000f#")
            assert new == replace(
                old, chunk_id=new.chunk_id, document_id=kept.document_id, meta={**old.meta, "supersedes": "s/a"}
            )
            assert same == vectors
    put(lab.store, [kept])
    found = lab.store.superseding(TENANT, ["s/a"], ALWAYS, deadline_s=60)
    assert [one.chunk.chunk_id for one in found] == ["s/a@@00000000000f#0"]
    assert lab.store.verify(TENANT) == []


def test_put_replaces_whole_documents(lab: Lab) -> None:
    put(lab.store, [document("a", labels(rank=1), "old", "older", "oldest"), document("b", labels(), "kept")])
    put(lab.store, [document("a", labels(rank=2), "young")])
    assert lab.store.admitted(TENANT, Eq("rank", 1)) == []
    assert hits(ask(lab.store, ALWAYS, "older oldest")) == []
    assert [info.chunks for info in lab.store.documents(TENANT)] == [1, 1]
    assert ask(lab.store, ALWAYS).admitted == 2
    assert lab.store.verify(TENANT) == []


def test_relabel_is_seen_at_once(lab: Lab) -> None:
    """New labels hold in every call, text and vectors untouched; what is the same or unknown does not count as changed."""
    put(lab.store, [document("a", labels(rank=1), "one", "two"), document("b", labels(rank=1))])
    text = [item.chunk for item in lab.store.load(TENANT, ["s/a#0", "s/a#1"], ALWAYS, deadline_s=60)]
    same, new = labels(rank=1), labels(rank=2, tags=frozenset({"t"}))
    assert lab.store.relabel(TENANT, {"s/a": new, "s/b": same, "s/none": new}) == 1
    assert lab.store.admitted(TENANT, Eq("rank", 1)) == ["s/b"]
    for leg in LEGS:
        assert hits(ask_leg(lab.store, Eq("rank", 1), leg)) == ["s/b"]
        assert hits(ask_leg(lab.store, Overlaps("tags", frozenset({"t"})), leg)) == ["s/a"]
    assert lab.store.load(TENANT, ["s/a#0"], Eq("rank", 1), deadline_s=60) == []
    after = lab.store.load(TENANT, ["s/a#0", "s/a#1"], Eq("rank", 2), deadline_s=60)
    assert [item.chunk for item in after] == text
    assert {item.labels["rank"] for item in after} == {2}
    assert [of["rank"] for _, _, of in lab.store.labelled(TENANT)] == [2, 1]
    assert hits(ask(lab.reopened(), Eq("rank", 1))) == ["s/b"]


def test_delete(lab: Lab) -> None:
    put(lab.store, [document("a", labels(), "one", "two"), document("b", labels())])
    assert lab.store.delete(TENANT, ["s/a", "s/none", "s/a"]) == 1
    assert lab.store.admitted(TENANT, ALWAYS) == ["s/b"]
    assert ask(lab.store, ALWAYS, "one two").candidates == ()
    assert lab.store.load(TENANT, ["s/a#0"], ALWAYS, deadline_s=60) == []
    assert lab.store.siblings(TENANT, "s/a", 0, 9, ALWAYS, deadline_s=60) == []
    assert lab.store.verify(TENANT) == []


def test_lists_agree(lab: Lab) -> None:
    """`documents` and `labelled` list everything by id, with the digest that `label_digest` gives."""
    given = [document(key, labels(rank=at), "x", "y", source="ba"[at % 2]) for at, key in enumerate("dbac")]
    put(lab.store, given)
    infos = list(lab.store.documents(TENANT))
    assert [info.document_id for info in infos] == sorted(item.document_id for item in given)
    by_id = {item.document_id: item for item in given}
    for info, (source, name, of) in zip(infos, lab.store.labelled(TENANT), strict=True):
        item = by_id[info.document_id]
        assert (source, name, of) == (item.source, item.document_id, item.labels)
        assert (info.source, info.chunks) == (item.source, 2)
        assert info.label_digest == lab.store.label_digest(item.source, item.labels)
    assert lab.store.label_digest("a", labels()) != lab.store.label_digest("b", labels())
    assert lab.store.label_digest("a", labels(rank=1)) != lab.store.label_digest("a", labels(archived=True))


def test_version_changes_with_every_write(lab: Lab) -> None:
    seen = [lab.store.version(TENANT)]
    put(lab.store, [document("a", labels()), document("b", labels())])
    seen.append(lab.store.version(TENANT))
    lab.store.relabel(TENANT, {"s/a": labels(rank=1)})
    seen.append(lab.store.version(TENANT))
    lab.store.delete(TENANT, ["s/a"])
    seen.append(lab.store.version(TENANT))
    name = lab.store.begin_generation(TENANT, keep_sources=["s"])
    assert lab.store.version(TENANT) == seen[-1], "a build beside it is no write"
    lab.store.switch(TENANT, name)
    seen.append(lab.store.version(TENANT))
    lab.store.forget(TENANT, ["s/b"])
    seen.append(lab.store.version(TENANT))
    assert len(set(seen)) == len(seen)
    assert lab.store.version(TENANT) == lab.reopened().version(TENANT) == seen[-1]


def _seen(store: DocStore) -> list[str]:
    """What this store's own connections show to people of rank 1, by search and by id."""
    found = hits(ask(store, Eq("rank", 1)))
    loaded = [one.chunk.document_id for one in store.load(TENANT, CHUNKS, Eq("rank", 1), deadline_s=30.0)]
    assert store.admitted(TENANT, Eq("rank", 1)) == found == list(dict.fromkeys(loaded))
    return found


CHUNKS = [document(name, labels()).chunks[0][0].chunk_id for name in "ab"]


def test_a_partition_made_anew_is_noticed(lab: Lab) -> None:
    """Lost and made again under the very same name, by another process: nobody goes on reading what is no longer there."""
    put(lab.store, [document("a", labels(rank=1)), document("b", labels(rank=1))])
    assert _seen(lab.store) == ["s/a", "s/b"]
    before, name = lab.store.version(TENANT), lab.store.generation(TENANT)
    lab.lose(TENANT)
    with pytest.raises(SourceError) as caught:
        ask(lab.store, ALWAYS)
    assert caught.value.code == "store_missing"
    assert lab.store.load(TENANT, CHUNKS, ALWAYS, deadline_s=30.0) == []
    other = lab.reopened()
    put(other, [document("a", labels(rank=1)), document("b", labels(rank=2))])
    assert _seen(lab.store) == ["s/a"]
    assert lab.store.generation(TENANT) == name
    assert lab.store.version(TENANT) == other.version(TENANT) != before, "as many writes, and not the same ones"
    other.relabel(TENANT, {"s/a": labels(rank=3)})
    assert _seen(lab.store) == []


def test_a_restored_partition_is_noticed(lab: Lab) -> None:
    """A copy that was put back under open connections: what is revoked from then on reaches them, and no version comes again."""
    put(lab.store, [document("a", labels(rank=1)), document("b", labels(rank=1))])
    restore = lab.keep(TENANT)
    lab.store.relabel(TENANT, {"s/b": labels(rank=2)})
    assert _seen(lab.store) == ["s/a"]
    before = lab.store.version(TENANT)
    restore()
    assert _seen(lab.store) == ["s/a", "s/b"]
    lab.reopened().relabel(TENANT, {"s/a": labels(rank=2)})
    assert _seen(lab.store) == ["s/b"]
    assert lab.store.version(TENANT) == lab.reopened().version(TENANT) != before


def test_forget_leaves_no_byte(lab: Lab) -> None:
    """Neither text, title, context, label nor stem, in any generation, nor what a killed build left."""
    secret, label = "zygomorphically", "quixotically-labelled"
    item = document("a", labels(region=label), f"{secret} sealed", title=f"Title {secret}")
    kept = document("b", labels(), "kept words here")
    put(lab.store, [item, kept])
    second = lab.store.begin_generation(TENANT, keep_sources=["s"])
    lab.store.switch(TENANT, second)
    lab.torn_build(TENANT)
    ask(lab.store, ALWAYS, secret, corpus.question(1, 0, 0, 0))
    raw = lab.everything(TENANT)
    assert secret.encode() in raw
    assert label.encode() in raw
    assert lab.store.forget(TENANT, ["s/a", "s/none"]) == 2
    raw = lab.everything(TENANT)
    for trace in (secret, secret[:-4], label):
        assert trace.encode() not in raw
    assert lab.store.admitted(TENANT, ALWAYS) == ["s/b"]
    assert lab.store.forget(TENANT, ["s/a"]) == 0
    assert lab.store.verify(TENANT) == []


def test_forget_after_a_removal_leaves_no_byte(lab: Lab) -> None:
    """As where an earlier call removed it and ended before its traces were gone."""
    secret = "zygomorphically"
    put(lab.store, [document("a", labels(), f"{secret} sealed"), document("b", labels(), "kept words here")])
    assert secret.encode() in lab.everything(TENANT)
    assert lab.store.delete(TENANT, ["s/a"]) == 1
    assert lab.store.forget(TENANT, ["s/a"]) == 0
    assert secret.encode() not in lab.everything(TENANT)
    assert lab.store.admitted(TENANT, ALWAYS) == ["s/b"]


def test_superseding_is_admitted_like_the_rest(lab: Lab) -> None:
    """Who replaces what, once a document, under the filter; a claim of what may not be seen is not there."""
    old = [document(key, labels(rank=1), "old") for key in "ab"]
    new = [_claiming(document(f"new{at}", labels(rank=at), "new", "more"), "s/a") for at in (1, 2)]
    put(
        lab.store,
        [*old, *(twinned(item, "harrow", "wickham") for item in new), _claiming(document("c", labels(), "x"), "s/none")],
    )
    names = [item.chunk.chunk_id for item in lab.store.superseding(TENANT, ["s/a", "s/b"], ALWAYS, deadline_s=60)]
    assert names == ["s/new1#0", "s/new2#0"]
    seen = lab.store.superseding(TENANT, ["s/a"], Eq("rank", 2), deadline_s=60)
    assert [(item.chunk.document_id, item.chunk.meta["supersedes"], item.labels["rank"]) for item in seen] == [
        ("s/new2", "s/a", 2)
    ]
    assert lab.store.superseding(TENANT, ["s/b", "s/new1"], ALWAYS, deadline_s=60) == []
    assert lab.store.superseding(TENANT, ["s/a"], NEVER, deadline_s=60) == []
    assert lab.store.superseding(NEIGHBOUR, ["s/a"], ALWAYS, deadline_s=60) == []


def _claiming(item: IndexedDocument, replaced: str) -> IndexedDocument:
    chunks = tuple((replace(chunk, meta={"supersedes": replaced}), embedded) for chunk, embedded in item.chunks)
    return replace(item, chunks=chunks)


# --- what chunks name -------------------------------------------------------------------------------------------------


def _naming(item: IndexedDocument, *names: str) -> IndexedDocument:
    """Names by chunk, in order, several with commas; those with `!` are what the chunk is about."""
    told = zip(item.chunks, names, strict=True)
    chunks = tuple(
        (replace(chunk, entities=tuple(Entity("code", one.rstrip("!"), one.endswith("!")) for one in said.split(",") if one)), e)
        for (chunk, e), said in told
    )
    return replace(item, chunks=chunks)


def _named(*names: str, f: Filter = ALWAYS, leg: str = "both") -> Search:
    text, dense = LEGS[leg]
    vector = corpus.question(1, 0, 0, 0) if dense else None
    return Search(TENANT, f, text, vector, MODEL.id, 1_000, 60.0, entities=frozenset(names))


def test_narrowed_by_what_chunks_name(lab: Lab) -> None:
    """Only chunks that name all of what is asked are found; scores and counts are those of these chunks alone, as in a store that
    holds nothing else."""
    one = _naming(document("a", labels(rank=1), "one more", "two", "three of it"), "pn-1!,inc-2", "pn-1", "inc-2")
    two = _naming(document("b", labels(rank=2), "four", "five"), "inc-2!,pn-1", "")
    put(lab.store, [one, two, document("c", labels(rank=1), "six")])
    found = {leg: lab.store.search(_named("pn-1", leg=leg)) for leg in LEGS}
    for leg, got in found.items():
        assert [hit.chunk_id for hit in got.candidates] == ["s/a#0", "s/a#1", "s/b#0"], leg
        assert got.admitted == 3
    assert [hit.chunk_id for hit in lab.store.search(_named("pn-1", "inc-2")).candidates] == ["s/a#0", "s/b#0"]
    assert [hit.chunk_id for hit in lab.store.search(_named("inc-2", f=Eq("rank", 1))).candidates] == ["s/a#0", "s/a#2"]
    for names in (("none",), ("pn-1", "none"), ("pn-1' OR 1",), ("*",)):
        assert bits(lab.store.search(_named(*names))) == (0, ()), names
    assert lab.store.search(_named("pn-1", f=NEVER)) == Found((), 0)
    lab.store.delete(TENANT, ["s/c"])
    put(lab.store, [replace(one, chunks=one.chunks[:2]), replace(two, chunks=two.chunks[:1])])
    for leg, got in found.items():
        assert bits(ask_leg(lab.store, ALWAYS, leg)) == bits(got), leg


def test_subjects_are_admitted_like_the_rest(lab: Lab) -> None:
    """The first chunk about a name of each document that the filter admits, never a twin, at most so many a name."""
    first = _naming(document("a", labels(rank=1), "x", "y", "z"), "inc-2", "inc-2!,pn-1!", "inc-2!")
    second = twinned(_naming(document("b", labels(rank=2), "x", "y"), "inc-2!", "inc-2!"), "harrow", "wickham")
    third = _naming(document("c", labels(rank=1), "x"), "inc-2!")
    put(lab.store, [third, second, first, document("d", labels(), "inc-2")])

    def about(*names: str, f: Filter = ALWAYS, most: int = 9) -> list[tuple[str, str]]:
        found = lab.store.subjects(TENANT, names, f, most=most, deadline_s=60)
        assert all(any(entity == Entity("code", name, subject=True) for entity in item.chunk.entities) for name, item in found)
        return [(name, item.chunk.chunk_id) for name, item in found]

    assert about("inc-2") == [("inc-2", "s/a#1"), ("inc-2", "s/b#0"), ("inc-2", "s/c#0")]
    assert about("pn-1", "inc-2", "none", most=2) == [("pn-1", "s/a#1"), ("inc-2", "s/a#1"), ("inc-2", "s/b#0")]
    assert about("inc-2", f=Eq("rank", 2), most=1) == [("inc-2", "s/b#0")]
    assert about("inc-2", "inc-2", f=Eq("rank", 1), most=1) == [("inc-2", "s/a#1")]
    assert about() == about("inc-2", f=NEVER) == about("inc-2", most=0) == about("*") == []
    assert lab.store.subjects(NEIGHBOUR, ["inc-2"], ALWAYS, most=9, deadline_s=60) == []
    lab.store.relabel(TENANT, {"s/a": labels(rank=3)})
    assert about("inc-2", f=Eq("rank", 1)) == [("inc-2", "s/c#0")]
    lab.store.delete(TENANT, ["s/c"])
    put(lab.store, [_naming(document("b", labels(rank=2), "x", "y"), "", "")])
    assert about("inc-2") == [("inc-2", "s/a#1")]
    assert lab.store.verify(TENANT) == []


def test_hidden_names_change_nothing(lab: Lab) -> None:
    """What may not be seen neither is a subject nor crowds one out, and moves no score of a search by names."""
    seen = [_naming(document(f"m{at}", labels(rank=1), f"text {at}"), "inc-2!,pn-1") for at in range(2)]
    put(lab.store, seen)
    f = Eq("rank", 1)

    def asked() -> tuple[Any, ...]:
        about = lab.store.subjects(TENANT, ["inc-2", "pn-1"], f, most=2, deadline_s=60)
        return [(name, item.chunk) for name, item in about], [
            bits(lab.store.search(_named("inc-2", f=f, leg=leg))) for leg in LEGS
        ]

    before = asked()
    hidden = [
        _naming(document(f"a{at}", labels(rank=2), "shared text 1 text 0", "x"), "inc-2!,pn-1!", "inc-2!") for at in range(5)
    ]
    put(lab.store, hidden)
    assert asked() == before
    lab.store.delete(TENANT, [item.document_id for item in hidden[:3]])
    assert asked() == before


# --- a plain and a contextual index of one document -------------------------------------------------------------------


def test_one_index_of_two(lab: Lab) -> None:
    """A search sees the contextual chunks, or the plain ones of the sources named; a document with one index is always there.
    Statistics are those of the index that is searched: bit for bit as if the other did not exist."""
    first, second = document("a", labels(), "one", "two", source="a"), document("b", labels(), "three", source="b")
    only, words = document("c", labels(), "four", source="a"), ("harrow", "wickham")
    put(lab.store, [twinned(first, *words), twinned(second, "harrow"), only])
    for leg in LEGS:
        ids = {name: _chunk_ids(lab.store, leg, frozenset(name)) for name in ("", "a", "b", "ab")}
        assert ids == {
            "": {"a/a#0c", "a/a#1c", "b/b#0c", "a/c#0"},
            "a": {"a/a#0", "a/a#1", "b/b#0c", "a/c#0"},
            "b": {"a/a#0c", "a/a#1c", "b/b#0", "a/c#0"},
            "ab": {"a/a#0", "a/a#1", "b/b#0", "a/c#0"},
        }
    plain = _ask_plain(lab.store, "harrow", frozenset("ab")).candidates
    assert {candidate.legs for candidate in plain} == {("dense",)}, "a context is in its own index only"
    both = [bits(_ask_plain(lab.store, "shared one four", plain)) for plain in (frozenset(), frozenset("ab"))]
    put(lab.store, [first, second])
    assert bits(_ask_plain(lab.store, "shared one four", frozenset())) == both[1]
    told = [replace(item, chunks=item.contextual, contextual=()) for item in (twinned(first, *words), twinned(second, "harrow"))]
    put(lab.store, told)
    assert bits(_ask_plain(lab.store, "shared one four", frozenset("ab"))) == both[0]
    assert lab.store.verify(TENANT) == []


def test_two_indexes_are_one_document(lab: Lab) -> None:
    """Lists name it once, labels hold for both, neighbours come once, and what is removed is removed from both."""
    item = twinned(document("a", labels(rank=1), "one", "two"), "harrow", "wickham")
    put(lab.store, [item, document("b", labels(rank=1), "three")])
    assert [(info.document_id, info.chunks) for info in lab.store.documents(TENANT)] == [("s/a", 4), ("s/b", 1)]
    assert next(iter(lab.store.documents(TENANT))).label_digest == lab.store.label_digest("s", labels(rank=1))
    assert [name for _, name, _ in lab.store.labelled(TENANT)] == lab.store.admitted(TENANT, ALWAYS) == ["s/a", "s/b"]
    loaded = lab.store.load(TENANT, ["s/a#1c", "s/a#0"], ALWAYS, deadline_s=60)
    assert [(held.chunk.chunk_id, held.chunk.context, held.chunk.text) for held in loaded] == [
        ("s/a#1c", "wickham", "shared two"),
        ("s/a#0", "", "shared one"),
    ]
    near = lab.store.siblings(TENANT, "s/a", 0, 9, ALWAYS, deadline_s=60)
    assert [held.chunk.chunk_id for held in near] == ["s/a#0", "s/a#1"]
    assert lab.store.relabel(TENANT, {"s/a": labels(rank=2)}) == 1
    for plain in (frozenset[str](), frozenset({"s"})):
        assert hits(_ask_plain(lab.store, "shared", plain, Eq("rank", 1))) == ["s/b"]
        assert hits(_ask_plain(lab.store, "shared", plain, Eq("rank", 2))) == ["s/a"]
    assert lab.store.verify(TENANT) == []
    assert lab.store.delete(TENANT, ["s/a"]) == 1
    assert lab.store.load(TENANT, ["s/a#0", "s/a#0c"], ALWAYS, deadline_s=60) == []
    assert lab.store.verify(TENANT) == []


def test_hidden_contexts_change_nothing(lab: Lab) -> None:
    """A context is searched and counted under its chunk's labels: contexts of hidden documents move no bit of an answer."""
    seen = [twinned(document(f"seen{at}", labels(rank=1), f"pump {at}"), "harrow seal") for at in range(3)]
    hidden = [document(f"hidden{at}", labels(rank=2), f"pump {at}") for at in range(20)]
    f, asked = Eq("rank", 1), "harrow seal pump"
    put(lab.store, [*seen, *(twinned(item, "harrow") for item in hidden)])
    before = [bits(_ask_plain(lab.store, asked, plain, f)) for plain in (frozenset(), frozenset({"s"}))]
    put(lab.store, [twinned(item, "seal seal harrow wickham quay") for item in hidden])
    assert [bits(_ask_plain(lab.store, asked, plain, f)) for plain in (frozenset(), frozenset({"s"}))] == before
    lab.store.delete(TENANT, [item.document_id for item in hidden])
    assert [bits(_ask_plain(lab.store, asked, plain, f)) for plain in (frozenset(), frozenset({"s"}))] == before


def test_forget_leaves_no_byte_of_a_context(lab: Lab) -> None:
    item = twinned(document("a", labels(), "sealed"), "zygomorphically zygomorphic")
    put(lab.store, [item, document("b", labels(), "kept words here")])
    lab.store.switch(TENANT, lab.store.begin_generation(TENANT, keep_sources=["s"]))
    assert b"zygomorph" in lab.everything(TENANT)
    assert lab.store.forget(TENANT, ["s/a"]) == 2
    assert b"zygomorph" not in lab.everything(TENANT)
    assert lab.store.verify(TENANT) == []


def _ask_plain(store: DocStore, text: str, plain: frozenset[str], f: Filter = ALWAYS) -> Found:
    return store.search(Search(TENANT, f, text, corpus.question(1, 0, 0, 0), MODEL.id, 1_000, 60.0, plain))


def _chunk_ids(store: DocStore, leg: str, plain: frozenset[str]) -> set[str]:
    text, dense = LEGS[leg]
    vector = corpus.question(1, 0, 0, 0) if dense else None
    found = store.search(Search(TENANT, ALWAYS, text, vector, MODEL.id, 1_000, 60.0, plain))
    return {candidate.chunk_id for candidate in found.candidates}


# --- generations ------------------------------------------------------------------------------------------------------


def test_generations(lab: Lab) -> None:
    """A build beside the current one is invisible until the switch; what is kept is copied; one may go back once."""
    assert lab.store.generation(TENANT) is None
    put(lab.store, [document("a", labels(), source="keep"), document("b", labels(), source="drop")])
    first = lab.store.generation(TENANT)
    second = lab.store.begin_generation(TENANT, keep_sources=["keep"])
    assert second != first
    put(lab.store, [document("c", labels(), "new")], generation=second)
    assert lab.store.relabel(TENANT, {"keep/a": labels(rank=5)}, generation=second) == 1
    assert lab.store.admitted(TENANT, ALWAYS) == ["drop/b", "keep/a"]
    assert [info.document_id for info in lab.store.documents(TENANT, generation=second)] == ["keep/a", "s/c"]
    lab.store.switch(TENANT, second)
    assert lab.store.generation(TENANT) == second
    assert hits(ask(lab.store, ALWAYS)) == lab.store.admitted(TENANT, ALWAYS) == ["keep/a", "s/c"]
    assert lab.store.admitted(TENANT, Eq("rank", 5)) == ["keep/a"]
    lab.store.switch(TENANT, second)  # a repeated switch keeps the one before
    assert first is not None
    lab.store.switch(TENANT, first)
    assert lab.store.admitted(TENANT, ALWAYS) == ["drop/b", "keep/a"]
    assert lab.store.verify(TENANT) == []


def test_a_crashed_build_changes_nothing(lab: Lab) -> None:
    """What a killed build leaves is never shown, is not taken up by the next one, and goes with the next switch."""
    put(lab.store, [document("a", labels())])
    dead = lab.store.begin_generation(TENANT, keep_sources=["s"])
    put(lab.store, [document("ghost", labels(), "ghost")], generation=dead)
    lab.torn_build(TENANT)
    assert lab.reopened().admitted(TENANT, ALWAYS) == ["s/a"]
    fresh = lab.store.begin_generation(TENANT, keep_sources=["s"])
    assert fresh != dead
    assert [info.document_id for info in lab.store.documents(TENANT, generation=fresh)] == ["s/a"]
    lab.store.switch(TENANT, fresh)
    assert b"ghost" not in lab.everything(TENANT)
    with pytest.raises(SourceError, match="generation_missing"):
        lab.store.switch(TENANT, dead)
    assert lab.store.admitted(TENANT, ALWAYS) == ["s/a"]


def test_an_empty_generation_can_be_switched_to(lab: Lab) -> None:
    put(lab.store, [document("a", labels())])
    lab.store.switch(TENANT, lab.store.begin_generation(TENANT))
    found = ask(lab.store, ALWAYS, "shared", corpus.question(1, 0, 0, 0))
    assert (found.candidates, found.admitted) == ((), 0)
    assert list(lab.store.documents(TENANT)) == []


def test_generations_are_listed(lab: Lab) -> None:
    """Which there are, which one is current, which are whole, whose vectors they hold and how much."""
    assert lab.store.generations(TENANT) == []
    put(lab.store, [document("a", labels()), document("b", labels(), "two words", "three words")])
    first = lab.store.generation(TENANT)
    assert first is not None
    assert lab.store.generations(TENANT) == [Generation(first, True, True, MODEL.id, 2, 3)]
    second = lab.store.begin_generation(TENANT, keep_sources=["s"])
    assert lab.store.generations(TENANT)[1] == Generation(second, False, False, MODEL.id, 2, 3)
    third = lab.store.begin_generation(TENANT)
    lab.store.seal(TENANT, third)
    assert lab.reopened().generations(TENANT)[2] == Generation(third, False, True, None, 0, 0)
    lab.torn_build(TENANT)
    assert not any(one.whole for one in lab.store.generations(TENANT)[3:])
    lab.store.switch(TENANT, second)
    assert [(one.name, one.current, one.whole) for one in lab.store.generations(TENANT)] == [
        (first, False, True),
        (second, True, True),
    ]
    for name in ("g-000077", "nonsense"):
        with pytest.raises(SourceError, match="generation_missing"):
            lab.store.seal(TENANT, name)


def test_a_generation_can_be_discarded(lab: Lab) -> None:
    put(lab.store, [document("a", labels())])
    dead = lab.store.begin_generation(TENANT)
    put(lab.store, [document("ghost", labels(), "ghost")], generation=dead)
    lab.store.discard(TENANT, dead)
    assert b"ghost" not in lab.everything(TENANT)
    current = lab.store.generation(TENANT)
    assert current is not None
    assert [one.name for one in lab.store.generations(TENANT)] == [current]
    with pytest.raises(SourceError, match="generation_current"):
        lab.store.discard(TENANT, current)
    with pytest.raises(SourceError, match="generation_missing"):
        lab.store.discard(TENANT, dead)
    assert lab.store.admitted(TENANT, ALWAYS) == ["s/a"]


def test_a_pinned_generation_is_governed_and_hidden(lab: Lab) -> None:
    """Searched, relabelled and emptied under the same filters as the current one, which sees nothing of it; another tenant neither."""
    put(lab.store, [document("old", labels())])
    put(lab.store, [document("theirs", labels(tenant=NEIGHBOUR))], tenant=NEIGHBOUR)
    first = lab.store.generation(TENANT)
    second = lab.store.begin_generation(TENANT)
    new = [document("new", labels(rank=1)), document("high", labels(rank=9)), document("gone", labels(rank=1))]
    put(lab.store, new, generation=second)
    with lab.store.pinned(TENANT, second) as view:
        check_everywhere(view, new, ALWAYS)
        check_everywhere(view, new, Ge("rank", 5))
        check_reads(view, new, Ge("rank", 5))
        assert view.generation(TENANT) == second
        assert view.delete(TENANT, ["s/gone"]) == 1
        assert view.relabel(TENANT, {"s/new": labels(rank=7)}) == 1
        put(view, [document("more", labels(rank=2))])
        assert view.admitted(TENANT, Ge("rank", 2)) == ["s/high", "s/more", "s/new"]
        assert hits(ask(view, Ge("rank", 2))) == ["s/high", "s/more", "s/new"]
        assert hits(ask(view, ALWAYS, tenant=NEIGHBOUR)) == ["s/theirs"]
        assert view.verify(TENANT) == []
        assert hits(ask(lab.store, ALWAYS)) == ["s/old"]
    assert lab.store.generation(TENANT) == first
    assert lab.store.admitted(TENANT, ALWAYS) == ["s/old"]
    lab.store.switch(TENANT, second)
    assert hits(ask(lab.store, ALWAYS)) == ["s/high", "s/more", "s/new"]
    with pytest.raises(SourceError, match="generation_missing"), lab.store.pinned(TENANT, "g-000077"):
        pass


def test_mending_a_whole_store_changes_nothing(lab: Lab) -> None:
    put(lab.store, [document("a", labels(rank=1)), document("b", labels())])
    found = bits(ask(lab.store, ALWAYS, vector=corpus.question(1, 0, 0, 0)))
    assert lab.store.doubtful(TENANT) == []
    assert lab.store.mend(TENANT) == []
    assert lab.store.mend("nobody") == []
    assert bits(ask(lab.store, ALWAYS, vector=corpus.question(1, 0, 0, 0))) == found
    assert lab.store.verify(TENANT) == []


# --- partitions -------------------------------------------------------------------------------------------------------


def test_tenants_do_not_meet(lab: Lab) -> None:
    """Names that differ in case only are two partitions, with the same ids in each."""
    put(lab.store, [document("a", labels(), "ours")])
    put(lab.store, [document("a", labels(tenant=NEIGHBOUR), "theirs")], tenant=NEIGHBOUR)
    for tenant, word, other in ((TENANT, "ours", "theirs"), (NEIGHBOUR, "theirs", "ours")):
        assert hits(ask(lab.store, ALWAYS, word, tenant=tenant)) == ["s/a"]
        assert hits(ask(lab.store, ALWAYS, other, tenant=tenant)) == []
        assert [of["tenant"] for _, _, of in lab.store.labelled(tenant)] == [tenant]
    assert lab.store.forget(NEIGHBOUR, ["s/a"]) == 1
    assert lab.store.admitted(TENANT, ALWAYS) == ["s/a"]


def test_an_unknown_tenant_has_nothing(lab: Lab) -> None:
    put(lab.store, [document("a", labels())])
    for nobody in ("nobody", "", "../x", "a\0b", "\ud800", "x" * 5_000):
        with pytest.raises(SourceError, match="store_missing"):
            ask(lab.store, ALWAYS, tenant=nobody)
        assert lab.store.admitted(nobody, ALWAYS) == lab.store.load(nobody, ["s/a#0"], ALWAYS, deadline_s=60) == []
        assert list(lab.store.documents(nobody)) == list(lab.store.labelled(nobody)) == lab.store.verify(nobody) == []
        assert lab.store.delete(nobody, ["s/a"]) == lab.store.forget(nobody, ["s/a"]) == 0
        assert lab.store.relabel(nobody, {"s/a": labels()}) == 0
        assert lab.store.generation(nobody) is None


def _every_call(store: DocStore) -> Iterable[Any]:
    return (
        lambda: ask(store, ALWAYS),
        lambda: ask(store, ALWAYS, None, corpus.question(1, 0, 0, 0)),
        lambda: store.load(TENANT, ["s/a#0"], ALWAYS, deadline_s=60),
        lambda: store.siblings(TENANT, "s/a", 0, 9, ALWAYS, deadline_s=60),
        lambda: store.vectors(TENANT, ["s/a#0"], ALWAYS, deadline_s=60),
        lambda: store.admitted_labels(TENANT, ALWAYS, deadline_s=60),
        lambda: store.subjects(TENANT, ["pn-1"], ALWAYS, most=1, deadline_s=60),
        lambda: store.admitted(TENANT, ALWAYS),
        lambda: list(store.documents(TENANT)),
        lambda: list(store.labelled(TENANT)),
        lambda: store.version(TENANT),
        lambda: store.verify(TENANT),
        lambda: store.mend(TENANT),
        lambda: store.doubtful(TENANT),
        lambda: store.generations(TENANT),
        lambda: put(store, [document("b", labels())]),
        lambda: store.relabel(TENANT, {"s/a": labels(rank=9)}),
        lambda: store.delete(TENANT, ["s/a"]),
        lambda: store.forget(TENANT, ["s/a"]),
    )


def test_foreign_partition_is_refused(lab: Lab) -> None:
    """Another tenant's store in one's own place is refused by every call, under an open connection too."""
    put(lab.store, [document("a", labels(), "ours")])
    put(lab.store, [document("a", labels(tenant=NEIGHBOUR), "theirs")], tenant=NEIGHBOUR)
    assert hits(ask(lab.store, ALWAYS)) == ["s/a"]
    lab.swap(TENANT, NEIGHBOUR)
    for store in (lab.store, lab.reopened()):
        for call in _every_call(store):
            with pytest.raises(SourceError, match="tenant_mismatch"):
                call()
    lab.swap(TENANT, NEIGHBOUR)
    assert hits(ask(lab.reopened(), ALWAYS, "ours")) == ["s/a"]


def test_a_newer_store_is_refused(lab: Lab) -> None:
    put(lab.store, [document("a", labels())])
    lab.age(TENANT)
    for store in (lab.store, lab.reopened()):
        for call in _every_call(store):
            with pytest.raises(SourceError, match="store_newer"):
                call()


def test_another_model_is_refused(lab: Lab) -> None:
    """An index is never searched with, nor added to by, another model than built it; the lexical leg needs none."""
    put(lab.store, [document("a", labels())])
    vector = corpus.question(1, 0, 0, 0)
    with pytest.raises(SourceError, match="model_mismatch"):
        lab.store.search(Search(TENANT, ALWAYS, "shared", vector, OTHER_MODEL.id, 9, 60))
    assert hits(lab.store.search(Search(TENANT, ALWAYS, "shared", None, OTHER_MODEL.id, 9, 60))) == ["s/a"]
    with pytest.raises(SourceError, match="model_mismatch"):
        lab.store.put(TENANT, [document("b", labels())], model=ModelCard("toy", "f" * 64, 4, 2, 256))
    assert lab.store.admitted(TENANT, ALWAYS) == ["s/a"]
    fresh = lab.store.begin_generation(TENANT)
    lab.store.put(TENANT, [document("b", labels())], model=OTHER_MODEL, generation=fresh)


# --- the schema moves -------------------------------------------------------------------------------------------------


def _entity(**changes: Field | None) -> EntityType:
    fields = {**ENTITY.fields, **changes}
    return EntityType("Document", {name: spec for name, spec in fields.items() if spec is not None})


def _check_moved(lab: Lab, entity: EntityType, documents: Sequence[IndexedDocument], *several: Filter) -> None:
    """Under the new schema at once, in open and in new connections, and again after the next write."""
    lab.entity = entity
    for write in (False, True):
        if write:
            lab.store.relabel(TENANT, {})
        for store in (lab.store, lab.reopened()):
            for f in (ALWAYS, *several):
                check_everywhere(store, documents, f, entity)


def test_schema_changes_between_runs(lab: Lab) -> None:
    """An attribute that policy adds, removes or gives another type: labels are judged as Cedar would, never misread."""
    region, other = "region", {name: spec for name, spec in ENTITY.fields.items() if name not in ("rank", "tags")}
    documents = [
        document("plain", labels()),
        document("ranked", labels(rank=1)),
        document("zero", labels(rank=0)),
        document("tagged", labels(rank=1, tags=frozenset({"1"}))),
        document("region", labels(region="1")),
    ]
    put(lab.store, documents)
    assert hits(ask(lab.store, ALWAYS)) == corpus.reference(documents, ALWAYS)
    retyped = _entity(rank=Field("string", False))
    _check_moved(lab, retyped, documents, Has("rank"), Not(Has("rank")), Eq("rank", "1"), Not(Eq("rank", "1")))
    _check_moved(lab, _entity(rank=Field("bool", False)), documents, Eq("rank", True), Not(Eq("rank", True)))
    _check_moved(
        lab, _entity(rank=Field("set", True)), documents, Overlaps("rank", frozenset({"1"})), Within("rank", frozenset())
    )
    _check_moved(lab, EntityType("Document", other), documents, Has(region), Eq(region, "1"))
    _check_moved(lab, _entity(rank=None), documents, Not(Eq(region, "1")))
    _check_moved(lab, ENTITY, documents, Eq("rank", 1), Not(Eq("rank", 1)), Overlaps("tags", frozenset({"1"})))


def test_an_attribute_that_appears_is_seen_at_once(lab: Lab) -> None:
    """A forbid on a new attribute holds for the very next question, on connections opened before it existed."""
    lab.entity = _entity(embargo=None)
    put(lab.store, [document("a", labels()), document("b", labels())])
    assert hits(ask(lab.store, ALWAYS)) == ["s/a", "s/b"]
    lab.entity = _entity(embargo=Field("long", False))
    lab.reopened().relabel(TENANT, {"s/b": labels(embargo=9)})  # another process
    f = Not(And((Has("embargo"), Ge("embargo", 5))))
    assert hits(ask(lab.store, f)) == lab.store.admitted(TENANT, f) == ["s/a"]
    lab.entity = _entity(embargo=Field("long", True))
    assert lab.store.admitted(TENANT, compile_filter(ALWAYS, lab.entity)) == ["s/b"]


def test_verify_names_labels_that_fit_no_more(lab: Lab) -> None:
    put(lab.store, [document("a", labels(rank=1)), document("b", labels())])
    assert lab.store.verify(TENANT) == []
    lab.entity = _entity(rank=None)
    assert [fault for fault in lab.store.verify(TENANT) if "schema" in fault and "(1)" in fault]


def all_tests() -> dict[str, Any]:
    """Name -> function of every promise in this module."""
    return {name: value for name, value in globals().items() if name.startswith("test_")}


__all__ = [  # noqa: PLE0604 (made of the functions above, so that none is forgotten)
    *all_tests(),
    "Lab",
    "all_tests",
]
