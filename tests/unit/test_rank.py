"""Fusion and rerank against slow, plain arithmetic; ties, borders and damage."""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router import rank
from router.domain import Candidate, Chunk, Embedded, Leg, Passage, Span, Stored, Table
from router.lexicon import STOP_WORDS, identifiers
from router.rank import CODE, FEWEST_FOR_Z, PROSE, RRF_K, Weights, fuse, rank_together, rerank
from tests.conformance.corpus import examples

BOTH: tuple[Leg, ...] = ("dense", "lexical")


def candidate(key: str, bm25: float = 0.0, cosine: float = 0.0, legs: tuple[Leg, ...] = BOTH) -> Candidate:
    return Candidate(f"s/{key}#0", f"s/{key}", "s", bm25, cosine, legs)


def ids(candidates: Sequence[Candidate]) -> list[str]:
    return [item.chunk_id for item in candidates]


def tokens(rows: Sequence[Sequence[float]], pieces: Sequence[int], scale: float | None = None) -> dict[str, Any]:
    """Unit rows as stored: int8 under one scale, chosen as the embedder does unless given."""
    unit = [[part / (math.hypot(*row) or 1.0) for part in row] for row in rows]
    largest = max((abs(part) for row in unit for part in row), default=1.0)
    by = 127.0 / largest if scale is None else scale
    packed = b"".join(struct.pack(f"<{len(row)}b", *(round(part * by) for part in row)) for row in unit)
    return {"token_ids": struct.pack(f"<{len(pieces)}H", *pieces), "token_vectors": packed, "token_scale": by}


def stored(key: str, text: str = "", title: str = "", kind: Any = "prose", **of: Any) -> Stored:
    made = of or tokens([[1.0, 0.0]], [1])
    chunk = Chunk(f"s/{key}#0", f"s/{key}", "s", 0, title, (), text, kind, "file:///x", Span())
    return Stored(chunk, {}, made["token_ids"], made["token_vectors"], made["token_scale"])


def question(**of: Any) -> Embedded:
    return Embedded(b"", of["token_ids"], of["token_vectors"], of["token_scale"])


# --- fuse -------------------------------------------------------------------------------------------------------------


def _z(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return [(value - mean) / spread if spread > 1e-9 else 0.0 for value in values]


SIX = [
    candidate("a", 9.0, 0.1),
    candidate("b", 8.0, 0.9),
    candidate("c", 0.0, 0.8, ("dense",)),
    candidate("d", 7.0, 0.2, ("lexical",)),
    candidate("e", 1.0, 0.5),
    candidate("f", 2.0, 0.4),
]


def test_zsum_adds_standardised_scores() -> None:
    sums = [b + c for b, c in zip(_z([x.bm25 for x in SIX]), _z([x.cosine for x in SIX]), strict=True)]
    expected = [item for _, item in sorted(zip(sums, SIX, strict=True), key=lambda pair: -pair[0])]
    assert ids(fuse(SIX)) == ids(expected)
    assert ids(fuse(SIX))[0] == "s/b#0"


def test_rrf_adds_reciprocal_ranks_of_a_legs_own_hits() -> None:
    scores = dict.fromkeys(ids(SIX), 0.0)
    for leg, score in (("dense", lambda x: x.cosine), ("lexical", lambda x: x.bm25)):
        own = sorted((x for x in SIX if leg in x.legs), key=score, reverse=True)
        for at, x in enumerate(own, 1):
            scores[x.chunk_id] += 1 / (RRF_K + at)
    assert ids(fuse(SIX, "rrf")) == sorted(scores, key=lambda name: -scores[name])


def test_weighted_goes_from_one_leg_to_the_other() -> None:
    by_cosine, by_bm25 = (ids(sorted(SIX, key=key, reverse=True)) for key in (lambda x: x.cosine, lambda x: x.bm25))
    assert ids(fuse(SIX, "weighted", dense_weight=1.0)) == by_cosine
    assert ids(fuse(SIX, "weighted", dense_weight=0.0)) == by_bm25
    assert ids(fuse(SIX, "weighted", dense_weight=0.5)) == ids(fuse(SIX, "zsum"))


def test_fewer_than_five_are_ranked_by_reciprocal_ranks() -> None:
    few = SIX[: FEWEST_FOR_Z - 1]
    assert ids(fuse(few, "zsum")) == ids(fuse(few, "rrf"))
    assert ids(fuse(few, "weighted", dense_weight=1.0)) == ids(fuse(few, "rrf"))
    assert fuse([]) == []
    assert fuse(SIX[:1]) == SIX[:1]


@pytest.mark.parametrize("leg", ["dense", "lexical"])
def test_one_leg_alone_keeps_its_order(leg: Leg) -> None:
    alone = [replace(x, legs=(leg,), bm25=x.bm25 if leg == "lexical" else 0.0) for x in SIX]
    score = (lambda x: x.cosine) if leg == "dense" else (lambda x: x.bm25)
    for fusion in ("zsum", "rrf", "weighted"):
        assert ids(fuse(alone, fusion)) == ids(sorted(alone, key=score, reverse=True))  # type: ignore[arg-type]


def test_ties_by_chunk_id() -> None:
    same = [candidate(key, 1.0, 0.5) for key in "hgfedcba"]
    for fusion in ("zsum", "weighted"):
        assert ids(fuse(same, fusion)) == sorted(ids(same))  # type: ignore[arg-type]
    assert ids(fuse(same, "rrf")) == sorted(ids(same))


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(-1, 1), st.sampled_from([("dense",), ("lexical",), BOTH])), max_size=12),
    st.sampled_from(["zsum", "rrf", "weighted"]),
    st.randoms(),
)
def test_fusion_is_a_permutation_and_ignores_the_order_given(rows: list, fusion: Any, random_: random.Random) -> None:
    given_ = [candidate(f"{at:02}", bm25, cosine, legs) for at, (bm25, cosine, legs) in enumerate(rows)]
    fused = fuse(given_, fusion)
    assert sorted(ids(fused)) == ids(given_)
    assert ids(fuse(random_.sample(given_, len(given_)), "rrf")) == ids(fuse(given_, "rrf"))


# --- rerank -----------------------------------------------------------------------------------------------------------


def _words(text: str) -> list[str]:
    return "".join(char if char.isascii() and char.isalnum() else " " for char in text.lower()).split()


def _reference(text: str, asked: Embedded, candidates: Sequence[Candidate], items: Sequence[Stored]) -> list[float]:
    """The rerank sum in plain Python, one candidate after another."""
    at = {
        c.chunk_id: (b, s)
        for c, b, s in zip(candidates, _z([c.bm25 for c in candidates]), _z([c.cosine for c in candidates]), strict=True)
    }
    pieces = struct.unpack(f"<{len(asked.token_ids) // 2}H", asked.token_ids)
    width = len(asked.token_vectors) // max(1, len(pieces))

    def rows(of: Any) -> list[tuple[int, ...]]:
        return [struct.unpack(f"<{width}b", of.token_vectors[n : n + width]) for n in range(0, len(of.token_vectors), width)]

    held = [set(struct.unpack(f"<{len(x.token_ids) // 2}H", x.token_ids)) for x in items]
    rare = [math.log(1 + (len(items) - n + 0.5) / (n + 0.5)) for n in (sum(piece in of for of in held) for piece in pieces)]
    maxsim = []
    for item in items:
        score = 0.0
        if item.token_vectors and pieces:
            for row, weight in zip(rows(asked), rare, strict=True):
                score += (
                    weight * max(sum(a * b for a, b in zip(row, other, strict=True)) for other in rows(item)) / item.token_scale
                )
            score /= sum(rare)
        maxsim.append(score)
    names = identifiers(text)
    share = [sum(n in f"{x.chunk.title}\n{x.chunk.text}".lower() for n in names) / len(names) if names else 0.0 for x in items]
    wanted = {*_words(text)} - STOP_WORDS
    titles = [wanted & {*_words(x.chunk.title)} for x in items]
    seldom = {w: math.log(1 + (len(items) - n + 0.5) / (n + 0.5)) for w in wanted for n in [sum(w in t for t in titles)]}
    title = [sum(seldom[w] for w in t) / (sum(seldom.values()) or 1.0) for t in titles]
    total = []
    for x, m, i, t in zip(items, _z(maxsim), _z(share), _z(title), strict=True):
        w: Weights = CODE if x.chunk.kind == "code" else PROSE
        b, c = at[x.chunk.chunk_id]
        total.append(w.bm25 * b + w.cosine * c + w.maxsim * m + w.identifiers * i + w.title * t)
    return total


WORDS = "pump seal ERR-4012 max_retry_count valve guide".split()


@st.composite
def scenes(draw: st.DrawFn) -> tuple[str, Embedded, list[Candidate], list[Stored]]:
    random_ = random.Random(draw(st.integers(0, 2**32)))
    width = draw(st.sampled_from([2, 4]))

    def some(count: int) -> dict[str, Any]:
        return tokens([[random_.gauss(0, 1) for _ in range(width)] for _ in range(count)], random_.choices(range(6), k=count))

    candidates, items = [], []
    for at in range(draw(st.integers(5, 12))):
        key = f"{at:02}"
        candidates.append(candidate(key, random_.choice([0.0, random_.random() * 20]), random_.uniform(-1, 1)))
        text, title = (" ".join(random_.choices(WORDS, k=random_.randint(0, 3))) for _ in range(2))
        items.append(stored(key, text, title, random_.choice(["prose", "code", "table"]), **some(random_.randint(0, 5))))
    asked = some(draw(st.integers(0, 4)))
    return (
        " ".join(random_.choices(WORDS, k=4)),
        question(**asked),
        candidates,
        random_.sample(items, random_.randint(1, len(items))),
    )


@settings(max_examples=examples(150))
@given(scenes())
def test_rerank_equals_plain_arithmetic(scene: tuple[str, Embedded, list[Candidate], list[Stored]]) -> None:
    """Unit directions, scales, rarity, titles and identifiers: each as the formula says."""
    text, asked, candidates, items = scene
    order = ids(rerank(text, asked, candidates, items))
    by_candidate = sorted(items, key=lambda item: item.chunk.chunk_id)
    expected = dict(zip((x.chunk.chunk_id for x in by_candidate), _reference(text, asked, candidates, by_candidate), strict=True))
    for first, second in itertools.pairwise(order):
        assert expected[first] >= expected[second] - 1e-4, (expected[first], expected[second])


@settings(max_examples=examples(60))
@given(scenes(), st.randoms())
def test_rerank_is_a_permutation(scene: tuple[str, Embedded, list[Candidate], list[Stored]], random_: random.Random) -> None:
    text, asked, candidates, items = scene
    found = rerank(text, asked, candidates, items)
    assert sorted(ids(found)) == sorted(item.chunk.chunk_id for item in items)
    assert all(item in candidates for item in found)
    assert ids(rerank(text, asked, candidates, random_.sample(items, len(items)))) == ids(found)


def test_nothing_but_the_candidates_counts() -> None:
    """What is not given cannot matter: a store full of a word leaves its rarity among the candidates alone."""
    common, rare = tokens([[1, 0]], [7]), tokens([[1, 0]], [8])
    asked = question(**tokens([[1, 0], [1, 0]], [7, 8]))
    candidates = [candidate(str(at)) for at in range(6)]
    items = [stored(str(at), **(rare if at == 5 else common)) for at in range(6)]
    assert np.array_equal(rank._maxsim(np, asked, items), rank._maxsim(np, asked, items[::1]))
    alone = rank._maxsim(np, asked, items[:5])
    assert len(alone) == 5
    assert rerank("x", asked, candidates, items) == rerank("x", asked, candidates, [*items])
    weights = [math.log(1 + (6 - n + 0.5) / (n + 0.5)) for n in (5, 1)]
    assert weights[1] > weights[0]


def test_the_scale_of_a_text_does_not_count() -> None:
    """The same unit directions under another int8 scale have the same MaxSim, up to rounding."""
    rows = [[0.9, 0.1, 0.3, 0.2], [0.1, -0.7, 0.4, 0.5]]
    asked = question(**tokens([[0.8, 0.2, 0.3, 0.1]], [1]))
    full, coarse = stored("a", **tokens(rows, [1, 2])), stored("b", **tokens(rows, [1, 2], scale=60.0))
    first, second = rank._maxsim(np, asked, [full, coarse])
    assert abs(first - second) < 0.02 * abs(first)


def test_constant_features_say_nothing() -> None:
    """Where nothing tells candidates apart but one feature, that one decides; where nothing does, the chunk id."""
    same = [candidate(key, 1.0, 0.5) for key in "fedcba"]
    items = [stored(key) for key in "fedcba"]
    asked = question(**tokens([[1.0, 0.0]], [1]))
    assert ids(rerank("x", asked, same, items)) == sorted(ids(same))
    items[2] = stored("d", text="see err-4012")
    assert ids(rerank("what is ERR-4012", asked, same, items))[0] == "s/d#0"


def test_fewer_than_five_keep_the_fused_order() -> None:
    few = [candidate(key, at, at) for at, key in enumerate("dcba")]
    items = [stored(key) for key in "abcd"]
    assert rerank("x", question(**tokens([[1, 0]], [1])), few, items) == few
    assert rerank("x", question(**tokens([[1, 0]], [1])), few, items[:2]) == few[2:]
    assert rerank("x", question(**tokens([[1, 0]], [1])), SIX, []) == []


def test_a_question_of_no_token() -> None:
    empty = question(token_ids=b"", token_vectors=b"", token_scale=1.0)
    items = [stored(key) for key in "abcdef"]
    assert sorted(ids(rerank("the of", empty, SIX, items))) == ids(SIX)


HALF = tokens([[1.0, 0.0]], [1])


@pytest.mark.parametrize(
    "damage",
    [
        {"token_ids": b"\1"},
        {"token_ids": b"\1\0\1"},
        {"token_ids": b"\1\0\1\0"},
        {"token_vectors": b""},
        {"token_vectors": b"\1"},
        {"token_vectors": b"\1\1\1"},
        {"token_scale": 0.0},
        {"token_scale": -1.0},
        {"token_scale": float("nan")},
        {"token_scale": float("inf")},
    ],
    ids=str,
)
def test_hostile_bytes_raise(damage: dict[str, Any]) -> None:
    """In one item, in two whose damage would add up, and in the question."""
    good = [stored(key) for key in "abcd"]
    bad = [stored(key, **{**HALF, **damage}) for key in "ef"]
    asked = question(**HALF)
    for items in ([*good, bad[0]], [*good, *bad], [bad[0], *good, bad[1]]):
        with pytest.raises(ValueError, match="token vectors"):
            rerank("x", asked, SIX, items)
    with pytest.raises(ValueError, match="token vectors"):
        rerank("x", question(**{**HALF, **damage}), SIX, good)
    with pytest.raises(KeyError):
        rerank("x", asked, SIX, [*good, stored("e", kind="poem")])


# --- passages and tables together -------------------------------------------------------------------------------------


def _passage(at):
    return Passage(at, "s", f"s/{at}", f"s/{at}#0", "t", (), "text", "", Span(), None, None, ("dense",))


def _table(rows):
    return Table((), ((1,),) * rows, truncated=False, sql="", generated="")


SCORES = st.dictionaries(st.sampled_from(("documents", "sql", "both", "none")), st.floats(0, 1))


@given(st.integers(0, 6), st.lists(st.integers(0, 2), max_size=4), SCORES)
def test_one_order_over_both_kinds(passages, rows, scores):
    given_passages, given_tables = [_passage(at) for at in range(1, passages + 1)], [_table(count) for count in rows]
    placed, tables = rank_together(given_passages, given_tables, scores)
    both = sorted((*placed, *tables), key=lambda one: one.rank)
    assert [one.rank for one in both] == list(range(1, passages + len(rows) + 1))
    assert [one.document_id for one in placed] == [one.document_id for one in given_passages]
    assert list(tables) == sorted(tables, key=lambda one: one.rank)
    assert sorted(len(one.rows) for one in tables) == sorted(rows)
    empty = [at for at, one in enumerate(both) if isinstance(one, Table) and not one.rows]
    assert empty == list(range(len(both) - len(empty), len(both)))


@pytest.mark.parametrize(
    ("scores", "kinds"),
    [
        ({"sql": 0.6, "documents": 0.1}, "TPP"),
        ({"sql": 0.1, "documents": 0.6}, "PPT"),
        ({"both": 1.0}, "TPP"),  # chosen by the caller: nobody weighed the wording
        ({}, "TPP"),
    ],
)
def test_rows_come_first_where_the_wording_asks_for_them(scores, kinds):
    passages, tables = rank_together([_passage(1), _passage(2)], [_table(1)], scores)
    assert "".join(type(one).__name__[0] for one in sorted((*passages, *tables), key=lambda one: one.rank)) == kinds
    passages, tables = rank_together([_passage(1), _passage(2)], [_table(0)], scores)
    assert tables[0].rank == 3


def test_a_chunk_without_a_vector_is_as_near_as_the_others_are() -> None:
    """Its words decide; the others are standardised as if it were not there."""
    blind = candidate("x", 8.5, 0.0, ("lexical",))
    without = [name for name in ids(fuse([*SIX, blind])) if name != "s/x#0"]
    assert without.index("s/b#0") == 0
    assert ids(fuse([*SIX, blind])).index("s/x#0") < ids(fuse([*SIX, candidate("x", 8.5, 0.05, ("lexical",))])).index("s/x#0")
    held = {key: stored(key) for key in "abcdefx"}
    ranked = ids(rerank("?", question(**tokens([[1.0, 0.0]], [1])), [*SIX, blind], list(held.values())))
    assert sorted(ranked) == sorted(ids([*SIX, blind]))
    assert ranked.index("s/x#0") < ranked.index("s/f#0")
