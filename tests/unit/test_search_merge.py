"""Hits of several searches in one order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.domain import Candidate
from router.search.merge import merge, take_turns

SCORES = st.floats(-5, 50, allow_nan=False)
LISTS = st.lists(
    st.lists(st.tuples(st.integers(0, 12), SCORES, SCORES), max_size=8, unique_by=lambda one: one[0]), min_size=1, max_size=4
)


def hit(number, bm25, cosine, legs=("dense", "lexical")):
    return Candidate(f"s/{number}#0", f"s/{number}", "s", bm25, cosine, legs)


def test_one_list_is_itself():
    """Raw scores and order, so that `simple` is not changed by being a strategy; empty lists count for nothing."""
    one = (hit(2, 1.5, 0.3), hit(1, 9.0, 0.9))
    assert merge([(1.0, one)]) == one
    assert merge([(0.2, ()), (1.0, one), (0.5, [])]) == one
    assert merge([(0.0, (hit(7, 1, 1),)), (1.0, one)]) == one
    assert merge([]) == ()


@given(LISTS)
def test_every_hit_once(lists):
    merged = merge([(1.0, [hit(*one) for one in some]) for some in lists])
    assert sorted(one.chunk_id for one in merged) == sorted({f"s/{number}#0" for some in lists for number, _, _ in some})
    assert all(one.bm25 == one.bm25 and one.cosine == one.cosine for one in merged)


def test_what_both_find_stands_above_what_one_finds():
    first = [hit(1, 5, 0.9), hit(2, 4, 0.8), hit(3, 1, 0.1)]
    second = [hit(2, 6, 0.9), hit(4, 5, 0.8), hit(5, 1, 0.2)]
    assert merge([(1.0, first), (1.0, second)])[0].document_id == "s/2"


def test_weight_decides_between_lists():
    first, second = [hit(1, 5, 0.9), hit(2, 1, 0.1)], [hit(3, 5, 0.9), hit(4, 1, 0.1)]
    assert merge([(1.0, first), (0.2, second)])[0].document_id == "s/1"
    assert merge([(0.2, first), (1.0, second)])[0].document_id == "s/3"


def test_scale_of_a_list_does_not_matter():
    first, second = [hit(1, 5, 0.9), hit(2, 3, 0.5), hit(3, 1, 0.1)], [hit(3, 2, 0.4), hit(2, 1, 0.2)]
    loud = [hit(one, 1000 * bm25 + 7, cosine * 3) for one, bm25, cosine in ((3, 2, 0.4), (2, 1, 0.2))]
    order = [one.chunk_id for one in merge([(1.0, first), (1.0, second)])]
    assert [one.chunk_id for one in merge([(1.0, first), (1.0, loud)])] == order


def test_legs_are_joined():
    merged = merge([(1.0, [hit(1, 1, 1, ("lexical",))]), (1.0, [hit(1, 1, 1, ("dense",))])])
    assert merged[0].legs == ("dense", "lexical")


@given(st.lists(st.lists(st.integers(0, 20), max_size=8, unique=True), max_size=4))
def test_turns_are_fair(lists):
    """Nothing is lost, nothing stands twice, each keeps its order; the first of each list comes before the second of any."""
    taken = take_turns(lists, lambda one: one)
    assert sorted(taken) == sorted({one for some in lists for one in some})
    firsts = {some[0] for some in lists if some}
    assert set(taken[: len(firsts)]) <= firsts | {one for some in lists for one in some[1 : len(lists)]}
    for some in lists:
        if some:
            assert taken.index(some[0]) < len(lists)
