"""The algebra of filters: truth, guards, simplification, digests, words and bounds."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.domain import SOURCE_FIELD, Labels
from router.errors import PolicyError
from router.filters import (
    ALWAYS,
    LONG_MAX,
    LONG_MIN,
    MAX_DEPTH,
    MAX_NODES,
    MAX_VALUES,
    NEVER,
    Always,
    And,
    EntityType,
    Eq,
    Field,
    Filter,
    Ge,
    Gt,
    Has,
    In,
    Le,
    Like,
    Lt,
    Never,
    Not,
    Or,
    Overlaps,
    Within,
    all_of,
    any_of,
    as_json,
    canonical,
    check,
    check_text,
    compile_filter,
    digest,
    fits,
    guard,
    like,
    matches,
    may_hold,
    simplify,
    walk,
    words,
)
from tests.conformance import corpus
from tests.conformance.corpus import examples

ENTITY = EntityType("Document", {**corpus.ENTITY.fields, SOURCE_FIELD: Field("string", True)})
LONG = settings(max_examples=examples(200))


@st.composite
def things(draw: st.DrawFn) -> Labels:
    return {**draw(corpus.random_labels()), SOURCE_FIELD: draw(st.sampled_from("abc"))}


# --- truth ------------------------------------------------------------------------------------------------------------


def test_missing_is_false_and_its_negation_true() -> None:
    for f in (Eq("rank", 1), In("rank", frozenset({1})), Lt("rank", 1), Ge("rank", LONG_MIN), Like("region", ("", ""))):
        assert not matches(f, {})
        assert matches(Not(f), {})
    assert not matches(Overlaps("tags", frozenset({"a"})), {})
    assert matches(Within("tags", frozenset()), {})


def test_a_bool_is_no_number() -> None:
    for f, thing in ((Eq("x", 1), {"x": True}), (Eq("x", True), {"x": 1}), (In("x", frozenset({1})), {"x": True})):
        assert not matches(f, thing)  # type: ignore[arg-type]
    assert not matches(Ge("x", 0), {"x": True})
    assert not matches(Lt("x", 5), {"x": "1"})


@pytest.mark.parametrize(
    ("text", "parts", "expected"),
    [
        ("", ("",), True),
        ("", ("", ""), True),
        ("a", ("a",), True),
        ("a", ("A",), False),
        ("ab", ("a", "b"), True),
        ("a", ("a", "a"), False),
        ("aa", ("a", "a"), True),
        ("aba", ("ab", "ba"), False),
        ("abba", ("ab", "ba"), True),
        ("abcabc", ("a", "ca", "c"), True),
        ("abab", ("", "ba", "b"), True),
        ("aXbXc", ("a", "b", "c"), True),
        ("abc", ("a", "c", "b"), False),
        ("a*b", ("a*b",), True),
        ("axb", ("a*b",), False),
        ("%", ("_",), False),
        ("new\nline", ("new", "line"), True),
        ("👩‍👧", ("👩", ""), True),
        ("e\u0301", ("é", ""), False),
    ],
)
def test_like(text: str, parts: tuple[str, ...], expected: bool) -> None:
    assert like(text, parts) is expected


def _slow_like(text: str, parts: tuple[str, ...]) -> bool:
    if len(parts) == 1:
        return text == parts[0]
    if not text.startswith(parts[0]):
        return False
    rest = text[len(parts[0]) :]
    return any(_slow_like(rest[at:], parts[1:]) for at in range(len(rest) + 1))


@LONG
@given(text=st.text("ab*%", max_size=9), parts=st.lists(st.text("ab*%", max_size=3), min_size=1, max_size=4).map(tuple))
def test_like_equals_trying_everything(text: str, parts: tuple[str, ...]) -> None:
    assert like(text, parts) == _slow_like(text, parts)


def test_like_is_linear() -> None:
    start = time.process_time()
    assert not like("a" * 100_000, ("", *("a" * 50,) * 1_000, "b", ""))
    assert like("ab" * 50_000, ("", *("ab",) * 40_000, ""))
    assert time.process_time() - start < 1


# --- guard and simplify -----------------------------------------------------------------------------------------------

COMPARISONS = (Eq, In, Lt, Le, Gt, Ge, Like)


def _undominated(f: Filter, held: frozenset[str] = frozenset()) -> list[Filter]:
    """Comparisons with a scalar that no `Has` above or beside them dominates."""
    match f:
        case And(items):
            held |= {item.field for item in items if isinstance(item, Has)}
            return [bad for item in items for bad in _undominated(item, held)]
        case Or(items):
            return [bad for item in items for bad in _undominated(item, held)]
        case Not(item):
            return _undominated(item, held)
        case Eq() | In() | Lt() | Le() | Gt() | Ge() | Like():
            return [] if f.field in held else [f]
        case _:
            return []


@LONG
@given(f=corpus.filters, thing=things())
def test_guard_dominates(f: Filter, thing: Labels) -> None:
    """Every comparison is dominated by `Has` on its field, and no truth changes."""
    guarded = guard(f, ENTITY)
    assert _undominated(guarded) == []
    assert matches(guarded, thing) == matches(f, thing)


@LONG
@given(f=corpus.filters, thing=things(), negated=st.booleans())
def test_what_may_not_hold_matches_nothing_inside_the_envelope(f: Filter, thing: Labels, negated: bool) -> None:
    """Whatever the envelope, so long as the thing lies in it: here the narrowest one that it does."""
    groups, sensitivity = thing.get("groups", frozenset()), thing.get("sensitivity", LONG_MIN)
    assert isinstance(groups, frozenset)
    assert isinstance(sensitivity, int)
    one = simplify(Not(f) if negated else f, ENTITY)
    assert may_hold(one, {"groups": groups}, {"sensitivity": sensitivity}) or not matches(one, thing)


def test_what_may_not_hold() -> None:
    sets, least = {"groups": frozenset({"a", "b"})}, {"sensitivity": 2}
    mine, low = Overlaps("groups", frozenset({"c"})), Le("sensitivity", 1)
    for f in (NEVER, mine, low, Lt("sensitivity", 2), Eq("sensitivity", 0), And((ALWAYS, low)), Or((mine, low, NEVER))):
        assert not may_hold(f, sets, least)
    for f in (
        ALWAYS,
        Overlaps("groups", frozenset({"c", "a"})),
        Le("sensitivity", 2),
        Or((mine, ALWAYS)),
        Not(mine),
        Le("rank", 0),
    ):
        assert may_hold(f, sets, least)


def _negations_are_read_right(f: Filter, thing: Labels) -> bool | None:
    """Three-valued truth, as a store without our care would have it: None is unknown."""
    match f:
        case And(items):
            found = [_negations_are_read_right(item, thing) for item in items]
            return False if False in found else None if None in found else True
        case Or(items):
            found = [_negations_are_read_right(item, thing) for item in items]
            return True if True in found else None if None in found else False
        case Not(item):
            inner = _negations_are_read_right(item, thing)
            return None if inner is None else not inner
        case Eq() | In() | Lt() | Le() | Gt() | Ge() | Like() if f.field not in thing:
            return None
        case _:
            return matches(f, thing)


@LONG
@given(f=corpus.filters, thing=things())
def test_guarded_filters_are_two_valued_even_where_nothing_else_is(f: Filter, thing: Labels) -> None:
    """A store whose NOT of unknown is unknown gives the same answers, once guarded."""
    assert bool(_negations_are_read_right(guard(f, ENTITY), thing)) == matches(f, thing)


@LONG
@given(f=corpus.filters, thing=things())
@example(
    f=And(
        (Eq("rank", 1), Or((And((Has("region"), Has("rank"))),)), Or((And((Has("region"), Eq("region", "a"))), Eq("rank", 2))))
    ),
    thing={},
)
def test_simplify_preserves_meaning_and_is_stable(f: Filter, thing: Labels) -> None:
    simple = simplify(f, ENTITY)
    assert matches(simple, thing) == matches(f, thing)
    assert simplify(simple, ENTITY) == simple
    assert canonical(simplify(simple, ENTITY)) == canonical(simple)
    for node in walk(simple):
        if isinstance(node, Not):
            assert not isinstance(node.item, And | Or | Not | Always | Never), "Not stands at the leaves"
        if isinstance(node, And | Or):
            assert len(node.items) >= 2
            assert not any(isinstance(item, type(node)) for item in node.items)
            assert not any(isinstance(item, Always | Never) for item in node.items)


@LONG
@given(f=corpus.filters, thing=things())
def test_compile_demands_every_required_scalar(f: Filter, thing: Labels) -> None:
    compiled = compile_filter(f, ENTITY)
    whole = all(name in thing for name, spec in ENTITY.fields.items() if spec.required and spec.kind != "set")
    assert matches(compiled, thing) == (whole and matches(f, thing))
    assert compile_filter(compiled, ENTITY) == compiled


@LONG
@given(items=st.lists(corpus.filters, max_size=4), data=st.data())
def test_order_and_repetition_do_not_matter(items: list[Filter], data: st.DataObject) -> None:
    """Filters that say the same in another order have one canonical text, so that receipts can be compared."""
    for kind in (And, Or):
        once = simplify(kind(tuple(items)), ENTITY)
        again = simplify(kind(tuple(data.draw(st.permutations([*items, *items])))), ENTITY)
        assert canonical(once) == canonical(again)


def test_the_tenant_wall_stays_on_top() -> None:
    """The deny of every other tenant comes out as a plain conjunct that an index can serve."""
    wall = Not(Not(Eq("tenant", "t1")))
    f = compile_filter(And((wall, Or((Overlaps("groups", frozenset({"a"})), Not(Gt("sensitivity", 1)))))), ENTITY)
    assert isinstance(f, And)
    assert Eq("tenant", "t1") in f.items


def test_folding() -> None:
    a, b = Eq("region", "a"), Eq("region", "b")
    folded: list[tuple[Filter, Filter]] = [
        (And(()), ALWAYS),
        (Or(()), NEVER),
        (all_of([]), ALWAYS),
        (any_of([]), NEVER),
        (And((a, NEVER)), NEVER),
        (Or((a, ALWAYS)), ALWAYS),
        (And((a, Not(a))), NEVER),
        (Or((a, Not(a))), ALWAYS),
        (And((a, a)), a),
        (In("region", frozenset()), NEVER),
        (Not(In("region", frozenset())), ALWAYS),
        (In("region", frozenset({"a"})), a),
        (Overlaps("tags", frozenset()), NEVER),
        (Within("tags", frozenset()), Within("tags", frozenset())),
        (Like("region", ("a",)), a),
        (Has("tags"), ALWAYS),
        (Not(Has("tags")), NEVER),
        (Not(And((a, b))), Or((Not(a), Not(b)))),
        (And((Has("rank"), Or((Not(Has("rank")), Eq("rank", 1))))), And((Eq("rank", 1), Has("rank")))),
    ]
    for f, expected in folded:
        assert canonical(simplify(f, ENTITY)) == canonical(expected), f


# --- literals ---------------------------------------------------------------------------------------------------------


def test_mistyped_literal_is_refused() -> None:
    wrong: list[Filter] = [
        Eq("rank", "1"),
        Eq("rank", True),
        Eq("rank", 1.0),  # type: ignore[arg-type]
        Eq("active", 1),
        Eq("region", 1),
        Eq("tags", "a"),
        Eq("rank", LONG_MAX + 1),
        Lt("rank", LONG_MIN - 1),
        Lt("region", 1),
        Lt("active", 1),
        Ge("tags", 1),
        Like("rank", ("1",)),
        Like("tags", ("", "")),
        Overlaps("region", frozenset({"a"})),
        Within("rank", frozenset({"1"})),
        Overlaps("tags", frozenset({1})),  # type: ignore[arg-type]
        In("tags", frozenset({"a"})),
        In("rank", frozenset({1, "1"})),
        In("rank", frozenset({True})),
        Eq("region", None),  # type: ignore[arg-type]
    ]
    for f in wrong:
        for placed in (f, Not(f), And((NEVER, Or((ALWAYS, f))))):
            with pytest.raises(PolicyError) as caught:
                compile_filter(placed, ENTITY)
            assert caught.value.code == "filter_type"


def test_unknown_field_is_refused() -> None:
    for f in (Has("nowhere"), Eq("Tenant", "x"), Not(Overlaps("group", frozenset({"a"})))):
        with pytest.raises(PolicyError, match="filter_unknown_field"):
            compile_filter(And((NEVER, f)), ENTITY)


def test_hostile_literal() -> None:
    for text in ("\0", "a\0b", "\ud800", "x\udfff"):
        for f in (
            Eq("region", text),
            In("region", frozenset({"a", text})),
            Like("region", ("a", text)),
            Overlaps("tags", frozenset({text})),
            Within("tags", frozenset({text})),
        ):
            with pytest.raises(PolicyError, match="hostile_text"):
                check(f, ENTITY)
        with pytest.raises(PolicyError, match="hostile_text"):
            check_text(text, "a test")
    for text in ("", "\uffff", "👩‍👧", "\u202e", "\x07", "\ufeff"):
        check_text(text, "a test")


def test_size_is_bounded() -> None:
    chain: Filter = Eq("rank", 1)
    for _ in range(MAX_DEPTH - 1):
        chain = Not(chain)
    check(chain, ENTITY)
    check(Or(tuple(Eq("rank", at) for at in range(MAX_NODES - 1))), ENTITY)
    check(In("rank", frozenset(range(MAX_VALUES))), ENTITY)
    too_large: list[Filter] = [
        Not(chain),
        Or(tuple(Eq("rank", at) for at in range(MAX_NODES))),
        In("rank", frozenset(range(MAX_VALUES + 1))),
        Within("tags", frozenset(map(str, range(MAX_VALUES + 1)))),
    ]
    endless: Filter = ALWAYS
    for _ in range(100_000):
        endless = Not(endless)
    for f in (*too_large, endless):
        with pytest.raises(PolicyError, match="filter_too_large"):
            compile_filter(f, ENTITY)


def test_fits() -> None:
    good = corpus.labels(rank=1, region="x", archived=False)
    assert fits(good, corpus.ENTITY)
    assert fits({"groups": frozenset(), "tags": frozenset()}, corpus.ENTITY), "required scalars are the filter's to demand"
    wrong: list[dict[str, object]] = [
        {"rank": True}, {"rank": "1"}, {"rank": LONG_MAX + 1}, {"rank": 1.0}, {"active": 1}, {"region": 1}, {"tags": "a"},
        {"tags": frozenset({1})}, {"tags": ["a"]}, {"region": frozenset({"a"})}, {"unknown": "x"},
    ]  # fmt: skip
    for change in wrong:
        assert not fits({**good, **change}, corpus.ENTITY), change  # type: ignore[dict-item]
    del good["tags"]
    assert not fits(good, corpus.ENTITY)


# --- canonical text, digest, words ------------------------------------------------------------------------------------


@LONG
@given(f=corpus.filters, g=corpus.filters)
def test_canonical_text_is_the_filter(f: Filter, g: Filter) -> None:
    """It is the JSON of `as_json`, and two filters share it only where they are the same, types included."""
    assert json.loads(canonical(f)) == json.loads(json.dumps(as_json(f)))
    assert canonical(f).isascii()
    assert (canonical(f) == canonical(g)) == (repr(as_json(f)) == repr(as_json(g)))


def test_equal_numbers_and_bools_have_their_own_text() -> None:
    pairs: list[tuple[Filter, Filter]] = [
        (Eq("x", 1), Eq("x", True)),
        (Eq("x", 0), Eq("x", False)),
        (In("x", frozenset({1, 2})), In("x", frozenset({True, 2}))),
        (Not(Eq("x", 1)), Not(Eq("x", True))),
        (And((Has("x"), Eq("x", 1))), And((Has("x"), Eq("x", True)))),
    ]
    for one, other in pairs:
        assert one == other, "Python cannot tell them apart: no dictionary may be keyed by a filter"
        assert canonical(one) != canonical(other)
        assert digest(one, key=b"k", tenant="t", source="s") != digest(other, key=b"k", tenant="t", source="s")


def test_digest_depends_on_all_of_it() -> None:
    f = And((Eq("region", "a"), Overlaps("groups", frozenset({"x", "y", "z"}))))
    base = digest(f, key=b"k", tenant="t", source="s")
    assert base == digest(f, key=b"k", tenant="t", source="s")
    assert base == "acad0992f7027182ecd50f8f88fd533829762b1ef2d8262e2148484581c22e19", (
        "receipts of old decisions must stay comparable"
    )
    others = {
        digest(f, key=b"K", tenant="t", source="s"),
        digest(f, key=b"k", tenant="T", source="s"),
        digest(f, key=b"k", tenant="t", source="S"),
        digest(f, key=b"k", tenant="ts", source=""),
        digest(f, key=b"k", tenant="", source="ts"),
        digest(And((Eq("region", "b"), f.items[1])), key=b"k", tenant="t", source="s"),
    }
    assert base not in others
    assert len(others) == 6


WORDS: list[tuple[Filter, str]] = [
    (ALWAYS, "everything"),
    (NEVER, "nothing"),
    (Eq("tenant", "fabrikam"), 'tenant is "fabrikam"'),
    (Eq("active", True), "active is true"),
    (Not(Eq("region", "north")), 'region is not "north"'),
    (Has("effective_from"), "effective_from is present"),
    (Not(Has("effective_from")), "effective_from is absent"),
    (Le("sensitivity", 2), "sensitivity is at most 2"),
    (Lt("sensitivity", 2), "sensitivity is below 2"),
    (Gt("sensitivity", 2), "sensitivity is above 2"),
    (Ge("sensitivity", 2), "sensitivity is at least 2"),
    (In("region", frozenset({"b", "a"})), 'region is one of "a", "b"'),
    (Overlaps("groups", frozenset({"corp:hr", "corp:all"})), 'groups shares one of "corp:all", "corp:hr"'),
    (Within("tags", frozenset()), "tags is empty"),
    (Within("tags", frozenset({"x"})), 'tags holds nothing but "x"'),
    (Like("title", ("guide", "")), 'title looks like "guide*"'),
    (Not(Overlaps("tags", frozenset({"x"}))), 'not (tags shares one of "x")'),
    (In("rank", frozenset(range(11))), "rank is one of 0, 1, 2, 3, 4, 5, 6, 7 and 3 more"),
    (
        And((Eq("tenant", "t"), Or((Le("sensitivity", 1), And((Has("rank"), Eq("rank", 3))))))),
        'tenant is "t" and (sensitivity is at most 1 or (rank is present and rank is 3))',
    ),
    (Eq("region", 'quo"te\nline'), r'region is "quo\"te\nline"'),
]


@pytest.mark.parametrize(("f", "expected"), WORDS, ids=range(len(WORDS)))
def test_words(f: Filter, expected: str) -> None:
    assert words(f) == expected


@given(f=corpus.filters)
def test_words_are_one_line_for_any_filter(f: Filter) -> None:
    assert "\n" not in words(f)
    assert words(f)
