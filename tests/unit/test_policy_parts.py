"""Filters compiled in parts mean what `compile_filter` means of the whole; canonical text written out is the JSON."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from router.domain import SOURCE_FIELD, Grant
from router.filters import (
    ALWAYS,
    NEVER,
    And,
    EntityType,
    Eq,
    Field,
    Ge,
    Gt,
    Has,
    In,
    Le,
    Like,
    Lt,
    Not,
    Or,
    Overlaps,
    Within,
    as_json,
    canonical,
    compile_filter,
    compile_part,
    join_parts,
    join_sources,
    matches,
    simplify,
    walk,
)
from router.plan import scope
from tests import policy_world as world

ENTITY = EntityType(
    "Document",
    {
        "tenant": Field("string", required=True),
        "level": Field("long", required=True),
        "owner": Field("string", required=False),
        "flag": Field("bool", required=False),
        "groups": Field("set", required=True),
    },
)

string_fields = st.sampled_from(["tenant", "owner"])
sets = st.frozensets(world.strings, max_size=3)
leaves = st.one_of(
    st.builds(Eq, string_fields, world.strings),
    st.builds(Eq, st.just("flag"), st.booleans()),
    st.builds(Eq, st.just("level"), world.longs),
    st.builds(In, string_fields, sets),
    st.builds(In, st.just("level"), st.frozensets(world.longs, max_size=3)),
    *(st.builds(kind, st.just("level"), world.longs) for kind in (Lt, Le, Gt, Ge)),
    st.builds(Overlaps, st.just("groups"), sets),
    st.builds(Within, st.just("groups"), sets),
    st.builds(Like, string_fields, st.lists(world.strings, min_size=1, max_size=3).map(tuple)),
    st.builds(Has, st.sampled_from(sorted(ENTITY.fields))),
    st.sampled_from([ALWAYS, NEVER]),
)
filters = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, max_size=3).map(lambda items: And(tuple(items))),
        st.lists(inner, max_size=3).map(lambda items: Or(tuple(items))),
    ),
    max_leaves=10,
)
things = st.fixed_dictionaries(
    {"groups": sets},
    optional={"tenant": world.strings, "level": world.longs, "owner": world.strings, "flag": st.booleans()},
)


@settings(max_examples=400, deadline=None)
@given(f=filters)
def test_canonical_is_the_json(f):
    assert canonical(f) == json.dumps(as_json(f), ensure_ascii=True, separators=(",", ":"))


@settings(max_examples=400, deadline=None)
@given(permits=st.lists(filters, max_size=3), forbids=st.lists(filters, max_size=3), thing=things)
def test_parts_mean_the_whole(permits, forbids, thing):
    whole = compile_filter(And((Or(tuple(permits)), Not(Or(tuple(forbids))))), ENTITY)
    joined = join_parts(
        [compile_part(f, ENTITY) for f in permits], [compile_part(f, ENTITY, negated=True) for f in forbids], ENTITY
    ).filter
    complete = "tenant" in thing and "level" in thing
    truth = complete and any(matches(f, thing) for f in permits) and not any(matches(f, thing) for f in forbids)
    assert matches(joined, thing) == truth
    assert matches(whole, thing) == truth


@settings(max_examples=200, deadline=None)
@given(first=filters, second=filters)
def test_sources_joined_from_parts_are_the_plan_s_own_filter(first, second):
    """What is remembered with grants is, to the byte, what the plan would make of them: receipts do not depend on the way."""
    parts = [join_parts([compile_part(f, ENTITY)], [], ENTITY) for f in (first, second)]
    by_source = [("a", parts[0]), ("b", parts[1]), ("c", parts[0])]
    joined = join_sources(by_source, SOURCE_FIELD)
    planned = scope([Grant(source, part.filter, ()) for source, part in by_source if part.filter != NEVER], ENTITY)
    assert joined.key == canonical(joined.filter) == canonical(planned)
    assert joined.filter == planned


@settings(max_examples=300, deadline=None)
@given(f=filters, thing=things)
def test_simplify_keeps_truth_and_is_stable(f, thing):
    once = simplify(f, ENTITY)
    assert matches(once, thing) == matches(f, thing)
    assert canonical(simplify(once, ENTITY)) == canonical(once)


@settings(max_examples=300, deadline=None)
@given(f=filters)
def test_every_comparison_of_a_scalar_stands_beside_has(f):
    """In a conjunction with, or below one with, `Has` of its field; else SQL's third truth value could come through a Not."""
    compiled = join_parts([compile_part(f, ENTITY)], [], ENTITY).filter
    _assert_guarded(compiled, frozenset())


def _assert_guarded(f, held):
    if isinstance(f, And):
        held |= {item.field for item in f.items if isinstance(item, Has)}
        for item in f.items:
            _assert_guarded(item, held)
    elif isinstance(f, Or):
        absent = {item.item.field for item in f.items if isinstance(item, Not) and isinstance(item.item, Has)}
        for item in f.items:
            _assert_guarded(item, held | absent)
    elif not isinstance(f, Has):
        fields = {node.field for node in walk(f) if hasattr(node, "field") and ENTITY.fields[node.field].kind != "set"}
        if not (isinstance(f, Not) and isinstance(f.item, Has)):
            assert fields <= held, f
