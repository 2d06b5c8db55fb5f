"""What is left out, folded, mixed, joined and cut on the way from hits to passages: pure functions over admitted hits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.domain import Chunk, ContentKind, Labels, Ranked, Span, Stored, twin_id
from router.expand import FEWEST_CUT_TOKENS, Joined, cut, fold, join, reach, spread, without_superseded

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
LATER_MS = int(datetime(2027, 1, 1, tzinfo=UTC).timestamp() * 1000)
BEFORE_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
SERVICE = (
    "Loosen the four bolts of the guard, draw the belt off the drum and clean both edges with a dry cloth before it goes back. "
    "Nobody stands in the line of the belt while it is turned by hand, and the guard is on before the key leaves the lock."
)


def stored(
    document: str,
    ordinal: int = 0,
    text: str = "text",
    *,
    labels: Labels | None = None,
    supersedes: str = "",
    path: tuple[str, ...] = (),
    span: Span | None = None,
    title: str = "",
    kind: ContentKind = "prose",
) -> Stored:
    name = f"s/{document}"
    meta = {"supersedes": supersedes} if supersedes else {}
    place = span if span is not None else Span(lines=(10 * ordinal + 1, 10 * ordinal + 9))
    chunk = Chunk(f"{name}#{ordinal}", name, "s", ordinal, title, path, text, kind, "file:///a", place, meta=meta)
    return Stored(chunk, {"owner": "it"} if labels is None else labels, b"", b"", 1.0)


def hit(document: str, ordinal: int = 0, text: str = "text", **more: object) -> Ranked:
    return Ranked(stored(document, ordinal, text, **more), ("dense",))  # type: ignore[arg-type]


def ids(items: Sequence[Ranked]) -> list[str]:
    return [item.stored.chunk.chunk_id.removeprefix("s/") for item in items]


def count(text: str) -> int:
    return len(text.split())


# --- versions ---------------------------------------------------------------------------------------------------------


def test_a_superseded_version_is_left_out() -> None:
    ranked = [hit("old"), hit("other"), hit("old", 1)]
    assert ids(without_superseded(ranked, [stored("new", supersedes="s/old")], NOW)) == ["other#0"]
    assert without_superseded(ranked, [], NOW) == tuple(ranked)


def test_a_version_that_holds_later_supersedes_nothing_yet() -> None:
    ranked = [hit("old")]
    later = stored("new", supersedes="s/old", labels={"owner": "it", "effective_from": LATER_MS})
    since = stored("new", supersedes="s/old", labels={"owner": "it", "effective_from": BEFORE_MS})
    assert ids(without_superseded(ranked, [later], NOW)) == ["old#0"]
    assert ids(without_superseded(ranked, [since], NOW)) == []
    assert ids(without_superseded(ranked, [since], datetime(2025, 1, 1, tzinfo=UTC))) == ["old#0"], "asked as of an earlier day"


def test_a_claim_counts_inside_one_owner() -> None:
    assert ids(without_superseded([hit("old")], [stored("new", supersedes="s/old", labels={"owner": "hr"})], NOW)) == ["old#0"]
    assert ids(without_superseded([hit("old")], [stored("new", supersedes="s/old", labels={})], NOW)) == ["old#0"]


def test_only_an_admitted_version_supersedes() -> None:
    """What is not given is not there: the store gives what the filter admits (tests/conformance/suite.py::
    test_superseding_is_admitted_like_the_rest)."""
    assert ids(without_superseded([hit("old")], [stored("new2", supersedes="s/else")], NOW)) == ["old#0"]


def test_a_circle_replaces_nothing() -> None:
    """A page that replaces itself, two that replace each other, three in a ring; what one outside replaces is replaced."""
    own = hit("a", supersedes="s/a")
    assert ids(without_superseded([own], [own.stored], NOW)) == ["a#0"]
    a, b = hit("a", supersedes="s/b"), hit("b", supersedes="s/a")
    assert ids(without_superseded([a, b], [b.stored, a.stored], NOW)) == ["a#0", "b#0"]
    assert ids(without_superseded([a], [b.stored], NOW)) == ["a#0"], "where only one of them was found"
    ring = [hit("a", supersedes="s/b"), hit("b", supersedes="s/c"), hit("c", supersedes="s/a")]
    assert len(without_superseded(ring, [item.stored for item in ring], NOW)) == 3
    newer = stored("d", supersedes="s/a")
    assert ids(without_superseded([a, b], [newer, b.stored, a.stored], NOW)) == ["b#0"]
    chain = [hit("a"), hit("b", supersedes="s/a"), hit("c", supersedes="s/b")]
    assert ids(without_superseded(chain, [item.stored for item in chain], NOW)) == ["c#0"]


def test_a_circle_needs_claims_that_hold() -> None:
    later = {"owner": "it", "effective_from": LATER_MS}
    a, b = hit("a", supersedes="s/b", labels=later), hit("b", supersedes="s/a")
    assert ids(without_superseded([a, b], [b.stored, a.stored], NOW)) == ["b#0"], "what holds later closes no circle yet"
    a = hit("a", supersedes="s/b", labels={"owner": "hr"})
    assert ids(without_superseded([a, b], [b.stored, a.stored], NOW)) == ["a#0", "b#0"], "of another owner"


# --- mirrors ----------------------------------------------------------------------------------------------------------


def test_mirrors_fold_into_the_best_ranked() -> None:
    ranked = [hit("a", 0, SERVICE), hit("b", 3, "else"), hit("c", 7, SERVICE.replace("dry", "soft")), hit("d", 0, SERVICE)]
    folded = fold(ranked)
    assert ids(folded.kept) == ["a#0", "b#3"]
    assert folded.mirrors == {"s/a#0": ("s/c", "s/d")}


@pytest.mark.parametrize("other", [SERVICE.replace("four", "4"), SERVICE + " 45 Nm", SERVICE + " PN-88213"])
def test_a_number_that_differs_keeps_both(other: str) -> None:
    assert len(fold([hit("a", 0, SERVICE), hit("b", 0, other)]).kept) == 2
    assert len(fold([hit("a", 0, SERVICE, title="CX-400"), hit("b", 0, SERVICE, title="CX-600")]).kept) == 2


def test_nothing_folds_across_owners() -> None:
    for labels in ({"owner": "hr"}, {}):
        assert len(fold([hit("a", 0, SERVICE), hit("b", 0, SERVICE, labels=labels)]).kept) == 2
    assert len(fold([hit("a", 0, SERVICE, labels={}), hit("b", 0, SERVICE, labels={})]).kept) == 1


def test_a_document_does_not_mirror_itself() -> None:
    assert len(fold([hit("a", 0, SERVICE), hit("a", 1, SERVICE)]).kept) == 2


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from([SERVICE, SERVICE + " Then stop.", "x", ""])), max_size=8, unique=True
    )
)
def test_folding_loses_no_document(given_: list[tuple[str, str]]) -> None:
    ranked = [hit(document, at, text) for at, (document, text) in enumerate(given_)]
    folded = fold(ranked)
    named = {item.stored.chunk.document_id for item in folded.kept} | set(itertools.chain(*folded.mirrors.values()))
    assert named == {item.stored.chunk.document_id for item in ranked}
    assert [item for item in ranked if item in folded.kept] == list(folded.kept)
    assert set(folded.mirrors) <= {item.stored.chunk.chunk_id for item in folded.kept}


def test_a_hidden_mirror_folds_nothing() -> None:
    """With a mirror that the caller may not see, and so is not among the hits, the answer is what it is without one."""
    seen = [hit("b", 0, SERVICE), hit("c", 0, "else")]
    assert fold(seen).kept == tuple(seen)
    assert fold([hit("a", 0, "hidden"), *seen]).kept[1:] == tuple(seen)


# --- diversity --------------------------------------------------------------------------------------------------------


def test_documents_take_their_turn() -> None:
    ranked = [hit("a", 0), hit("a", 1), hit("a", 2), hit("b", 0), hit("a", 3), hit("c", 0)]
    assert ids(spread(ranked, per_document=2)) == ["a#0", "a#1", "b#0", "c#0", "a#2", "a#3"]
    assert spread(ranked, per_document=9) == tuple(ranked)


@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 4))
def test_spread_is_a_permutation(names: list[str], per_document: int) -> None:
    ranked = [hit(name, at) for at, name in enumerate(names)]
    out = spread(ranked, per_document=per_document)
    assert sorted(ids(out)) == sorted(ids(ranked))
    for name in "abc":
        mine = [one for one in ids(out) if one.startswith(name)]
        assert mine == [one for one in ids(ranked) if one.startswith(name)], "the order inside a document stays"


# --- neighbours -------------------------------------------------------------------------------------------------------


def test_reach_asks_once_a_document() -> None:
    asked = reach([hit("a", 5), hit("b", 0), hit("a", 8)], neighbours=1, section=2)
    assert [(one.document_id, one.first, one.last) for one in asked] == [("s/a", 3, 10), ("s/b", 0, 2)]
    assert reach([hit("a", 5)], neighbours=0, section=0) == ()


def test_neighbours_in_reading_order() -> None:
    (joined,) = join([hit("a", 5, "five")], [stored("a", at, f"text {at}") for at in range(3, 8)], neighbours=1)
    assert joined.text == "text 4\n\nfive\n\ntext 6"
    assert joined.chunk_ids == ("s/a#4", "s/a#5", "s/a#6")
    assert joined.span == Span(lines=(41, 69))


def test_a_section_is_joined_as_far_as_it_goes() -> None:
    paths = [("A",), ("B",), ("B",), ("B",), ("C",)]
    pieces = [stored("a", at, str(at), path=path) for at, path in enumerate(paths)]
    kept = [Ranked(pieces[2], ())]
    assert join(kept, pieces, neighbours=0, section=4)[0].chunk_ids == ("s/a#1", "s/a#2", "s/a#3")
    assert join(kept, pieces, neighbours=1, section=0)[0].chunk_ids == ("s/a#1", "s/a#2", "s/a#3")
    assert join(kept, pieces, neighbours=2, section=2)[0].chunk_ids == tuple(f"s/a#{at}" for at in range(5))


def test_a_gap_ends_a_passage() -> None:
    """What filter or recheck kept back is not jumped over."""
    pieces = [stored("a", at, str(at)) for at in (2, 5, 6)]
    assert join([hit("a", 4)], pieces, neighbours=3)[0].chunk_ids == ("s/a#4", "s/a#5", "s/a#6")
    assert join([hit("a", 4)], [], neighbours=3)[0].text == "text"


def test_overlapping_windows_are_joined_without_repeating() -> None:
    first, second = "One two three. The belt comes off last.", "The belt comes off last. Then the drum."
    (joined,) = join([hit("a", 0, first)], [stored("a", 1, second)])
    assert joined.text == "One two three. The belt comes off last. Then the drum."


def test_a_contextual_twin_has_the_same_neighbours() -> None:
    twin = stored("a", 1, "one")
    twin = Stored(Chunk(twin_id("s/a#1"), "s/a", "s", 1, "", (), "one", "prose", "u", Span()), {}, b"", b"", 1.0)
    (joined,) = join([Ranked(twin, ())], [stored("a", at, str(at)) for at in range(3)])
    assert joined.chunk_ids == ("s/a#0", "s/a#1c", "s/a#2")


def test_a_passage_over_two_pages_names_neither() -> None:
    pieces = [stored("a", 0, "x", span=Span(page=3)), stored("a", 1, "y", span=Span(page=4))]
    assert join([Ranked(pieces[0], ())], pieces[1:])[0].span == Span()
    assert join([Ranked(pieces[0], ())], [stored("a", 1, "y", span=Span(page=3))])[0].span == Span(page=3)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=6, unique=True),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=20, unique=True),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_no_piece_twice(kept: list[tuple[str, int]], held: list[tuple[str, int]], neighbours: int, section: int) -> None:
    joined = join([hit(*place) for place in kept], [stored(*place) for place in held], neighbours=neighbours, section=section)
    pieces = [name for item in joined for name in item.chunk_ids]
    assert len(pieces) == len(set(pieces))
    assert [item.ranked.stored.chunk.chunk_id for item in joined] == [f"s/{name}#{at}" for name, at in kept]
    for item in joined:
        assert {part.chunk.document_id for part in item.parts} == {item.ranked.stored.chunk.document_id}
        ordinals = [part.chunk.ordinal for part in item.parts]
        assert ordinals == list(range(ordinals[0], ordinals[0] + len(ordinals)))


# --- budget -----------------------------------------------------------------------------------------------------------

LONG = " ".join(f"Sentence number {at} says five words." for at in range(30))


def alone(document: str, text: str, **more: object) -> Joined:
    item = hit(document, 0, text, **more)
    return Joined(item, (item.stored,), text, item.stored.chunk.span)


def test_what_fits_stays_as_it_is() -> None:
    joined = join([hit("a", 1, "one two"), hit("b", 0, "three")], [stored("a", 0, "zero"), stored("a", 2, "x y")])
    assert cut(joined, budget_tokens=100, count=count) == joined


def test_neighbours_go_before_hits() -> None:
    joined = join([hit("a", 1, "one two"), hit("b", 0, "three four five")], [stored("a", 0, "zero"), stored("b", 1, "y")])
    assert [item.text for item in cut(joined, budget_tokens=6, count=count)] == ["zero\n\none two", "three four five"]
    assert [item.chunk_ids for item in cut(joined, budget_tokens=5, count=count)] == [("s/a#1",), ("s/b#0",)]


def test_cut_keeps_citations() -> None:
    (one, two) = cut([alone("a", "short text"), alone("b", LONG)], budget_tokens=60, count=count)
    assert one.whole
    assert not two.whole
    assert LONG.startswith(two.text)
    assert two.text.endswith(".")
    assert two.chunk_ids == ("s/b#0",)
    assert FEWEST_CUT_TOKENS <= count(two.text) <= 58
    code = "\n".join(f"line {at} of the file" for at in range(1, 40))
    (item,) = cut([alone("c", code, kind="code", span=Span(lines=(101, 139)))], budget_tokens=50, count=count)
    assert item.span == Span(lines=(101, 100 + item.text.count("\n") + 1))


def test_a_rest_that_says_nothing_is_left_out() -> None:
    assert len(cut([alone("a", "one two three"), alone("b", LONG)], budget_tokens=10, count=count)) == 1
    assert cut([alone("b", "x" * 50 + " " + "word " * 99)], budget_tokens=30, count=count) == (), "no sentence ends within it"


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), max_size=6), st.integers(0, 200))
def test_a_budget_is_kept(lengths: list[int], budget: int) -> None:
    items = [alone(f"d{at}", " ".join(LONG.split(". ")[:length])) for at, length in enumerate(lengths)]
    out = cut(items, budget_tokens=budget, count=count)
    assert sum(count(item.text) for item in out) <= budget
    for given_, kept in zip(items, out, strict=False):
        assert kept.ranked is given_.ranked
        assert given_.text.startswith(kept.text)
    assert [item.whole for item in out].count(False) <= 1
