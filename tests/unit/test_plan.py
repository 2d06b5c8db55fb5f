"""One filter for several sources: each under its own grant, whatever Python takes for equal."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from router import plan
from router.domain import SOURCE_FIELD, Grant, Grants, Labels, Principal
from router.filters import (
    ALWAYS,
    NEVER,
    And,
    EntityType,
    Eq,
    Field,
    Filter,
    Has,
    In,
    Overlaps,
    canonical,
    check,
    compile_filter,
    matches,
)
from tests.conformance import corpus
from tests.conformance.corpus import ENTITY, examples


def _grant(source: str, f: Filter) -> Grant:
    return Grant(source, f, ("p",))


@settings(max_examples=examples(150))
@given(
    granted=st.dictionaries(st.sampled_from(["a", "b", "c", "d'"]), corpus.filters, max_size=4),
    thing=corpus.random_labels(),
)
def test_each_source_under_its_own_grant(granted: dict[str, Filter], thing: Labels) -> None:
    grants = [_grant(source, compile_filter(f, plan.with_source(ENTITY))) for source, f in granted.items()]
    scope = plan.scope(grants, ENTITY)
    check(scope, plan.with_source(ENTITY))
    for source in ("a", "b", "c", "d'", "x"):
        held = {**thing, SOURCE_FIELD: source}
        own = next((grant.filter for grant in grants if grant.source == source), NEVER)
        assert matches(scope, held) == matches(own, held)


def test_grants_that_python_takes_for_equal_stay_apart() -> None:
    """`Eq("x", 1) == Eq("x", True)`: the source whose grant says 1 must not be searched under True."""
    entity = EntityType("Document", {"x": Field("long", False), "y": Field("bool", False)})
    number, flag = And((Has("x"), Eq("x", 1))), And((Has("x"), Eq("x", True)))
    assert number == flag
    scope = plan.scope([_grant("a", number), _grant("b", flag)], entity)
    assert matches(scope, {SOURCE_FIELD: "a", "x": 1})
    assert not matches(scope, {SOURCE_FIELD: "b", "x": 1})
    assert not matches(scope, {SOURCE_FIELD: "a", "x": True})
    assert matches(scope, {SOURCE_FIELD: "b", "x": True})


def test_nothing_granted_is_never() -> None:
    assert plan.scope([], ENTITY) == NEVER
    assert plan.scope([_grant("a", NEVER), _grant("b", NEVER)], ENTITY) == NEVER


def test_everything_granted_still_names_its_source() -> None:
    """`Always` for one source is not `Always` for the store."""
    assert plan.scope([_grant("a", ALWAYS)], ENTITY) == Eq(SOURCE_FIELD, "a")
    assert plan.scope([_grant("a", ALWAYS), _grant("b", ALWAYS)], ENTITY) == In(SOURCE_FIELD, frozenset({"a", "b"}))


def test_order_of_grants_does_not_matter() -> None:
    """Receipts compare: one set of grants has one filter."""
    shared = Overlaps("groups", frozenset({"corp:a"}))
    grants = [_grant("a", shared), _grant("b", Eq("rank", 1)), _grant("c", shared)]
    assert canonical(plan.scope(grants, ENTITY)) == canonical(plan.scope(grants[::-1], ENTITY))


def test_build_carries_the_filter_and_the_budgets() -> None:
    who = Principal("corp", "ada", "User", "t1", frozenset(), (), 0)
    grants = Grants(who, "v", 0, (_grant("a", Eq("rank", 1)),))
    steps = plan.build(grants, ENTITY, legs=("dense", "lexical"), candidates=50, rerank=20)
    assert steps.filter == plan.scope(grants.search, ENTITY)
    assert (steps.strategy, steps.legs, steps.candidates, steps.rerank) == ("simple", ("dense", "lexical"), 50, 20)


def test_index_of_each_source() -> None:
    """Wanted by the caller, else as preferred; never a source that is not granted, and the filter stays what it is."""
    who = Principal("corp", "ada", "User", "t1", frozenset(), (), 0)
    grants = Grants(who, "v", 0, (_grant("a", ALWAYS), _grant("b", ALWAYS)))
    budgets: dict[str, Any] = {"legs": ("dense",), "candidates": 5, "rerank": 5, "prefer_plain": frozenset({"b", "hidden"})}
    steps = {index: plan.build(grants, ENTITY, index=index, **budgets) for index in (None, "plain", "contextual")}
    assert {index: step.plain for index, step in steps.items()} == {
        None: frozenset({"b"}),
        "plain": frozenset({"a", "b"}),
        "contextual": frozenset(),
    }
    assert len({canonical(step.filter) for step in steps.values()}) == 1
    assert plan.index_name(grants, frozenset({"a"})) == "documents"
    assert plan.index_name(grants, frozenset({"a", "b", "hidden"})) == "contextual"
    assert plan.index_name(grants, frozenset({"a", "b"}), index="plain") == "documents"
    assert plan.index_name(Grants(who, "v", 0, ()), frozenset({"a"})) == "documents"
