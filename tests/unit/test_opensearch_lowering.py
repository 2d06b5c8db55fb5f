"""Filters as OpenSearch queries: the traps of the engine by name, without an engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given

from connectors.opensearch_documents import lowering
from connectors.opensearch_documents.lowering import (
    ALL,
    LONGEST_BYTES,
    NONE,
    count_leaves,
    field_path,
    fits_shape,
    label_fields,
    lower_filter,
    shape_of,
    stand_in,
)
from router.domain import SOURCE_FIELD
from router.errors import PolicyError
from router.filters import (
    ALWAYS,
    LONG_MAX,
    LONG_MIN,
    NEVER,
    And,
    EntityType,
    Eq,
    Field,
    Filter,
    Gt,
    Has,
    In,
    Like,
    Not,
    Or,
    Overlaps,
    Within,
    fits,
)
from tests.conformance import corpus
from tests.conformance.corpus import ENTITY

FIELDS = {**ENTITY.fields, SOURCE_FIELD: Field("string", True)}


def lower(f: Filter) -> Mapping[str, Any]:
    return lower_filter(f, FIELDS)


def queries(query: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield query
    for part in ("filter", "should", "must_not"):
        for inner in query.get("bool", {}).get(part, ()):
            yield from queries(inner)


def check_closed(query: Mapping[str, Any]) -> None:
    """No clause that matches everything because it is empty."""
    for inner in queries(query):
        assert len(inner) == 1, inner
        if "bool" in inner:
            clauses = inner["bool"]
            assert any(clauses.get(part) for part in ("filter", "should", "must_not")), inner
            for part in ("filter", "should", "must_not"):
                assert clauses.get(part) != [], inner
                assert len(clauses.get(part, ())) <= lowering.MOST_CLAUSES
            assert ("should" in clauses) == (clauses.get("minimum_should_match") == 1), inner
        if "terms" in inner:
            [values] = inner["terms"].values()
            assert 0 < len(values) <= lowering.MOST_TERMS


def test_trap_empty_should_matches_all() -> None:
    """`bool.should: []` matches everything, even with `minimum_should_match: 1`."""
    for nothing in (Or(()), In("rank", frozenset()), Overlaps("tags", frozenset()), NEVER, Or((Or(()),))):
        assert lower(nothing) == NONE, nothing
    assert lower(And((ALWAYS, Or(())))) == {"bool": {"filter": [ALL, NONE]}}
    assert lower(Not(Or(()))) == {"bool": {"must_not": [NONE]}}


def test_trap_empty_bool_matches_all() -> None:
    for everything in (And(()), ALWAYS, And((And(()),)), Has("tags")):
        assert lower(everything) == ALL, everything
    assert lower(Not(And(()))) == {"bool": {"must_not": [ALL]}}


@given(corpus.filters)
def test_no_clause_is_empty(f: Filter) -> None:
    check_closed(lower(f))
    json.dumps(lower(f))


def test_trap_should_beside_filter_needs_a_minimum() -> None:
    either = lower(Or((Eq("rank", 1), Eq("region", "x"))))
    assert either["bool"]["minimum_should_match"] == 1
    assert set(lower(And((Has("rank"), Or((Eq("rank", 1), Eq("region", "x"))))))["bool"]) == {"filter"}


def test_trap_too_many_clauses() -> None:
    """1,024 clauses are a 400: comparisons with one field are one list, and the rest stands in groups."""
    many = Or(tuple(Eq("region", f"r{number}") for number in range(3_990)))
    assert list(lower(many)) == ["terms"]
    assert list(lower(Not(many))["bool"]["must_not"][0]) == ["terms"]
    mixed = lower(Or(tuple(Gt("rank", number) for number in range(3_990))))
    check_closed(mixed)
    assert count_leaves(mixed) == 3_990
    check_closed(lower(And(tuple(Not(Gt("rank", number)) for number in range(3_990)))))
    check_closed(lower(And(tuple(Gt("rank", number) for number in range(3_990)))))


def test_trap_too_many_terms() -> None:
    """More than 65,536 in one `terms` is a 400."""
    lists = tuple(In("region", frozenset(f"{part}.{number}" for number in range(10_000))) for part in range(8))
    query = lower(Or(lists))
    check_closed(query)
    assert sum(len(values) for inner in queries(query) for values in inner.get("terms", {}).values()) == 80_000


def test_what_cannot_be_said_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowering, "MOST_LEAVES", 10)
    with pytest.raises(PolicyError, match="filter_too_large"):
        lower(Or(tuple(Gt("rank", number) for number in range(11))))


def test_trap_long_keyword() -> None:
    """Over 32,766 bytes a keyword is a 400, and `ignore_above` would hide it: a digest stands for it, which no label can forge."""
    longest, longer = "é" * (LONGEST_BYTES // 2), "é" * (LONGEST_BYTES // 2) + "x"
    assert stand_in(longest) == longest
    assert stand_in(longer).startswith("\0")
    assert len(stand_in(longer)) < 100
    assert lower(Eq("region", longer)) == {"term": {"l.s_region": {"value": stand_in(longer)}}}
    fields = label_fields({"region": longer, "tags": frozenset({longer, "a"})})
    assert fields["s_region"] == stand_in(longer)
    assert set(fields["g_tags"]) == {stand_in(longer), "a"}
    assert "w_region" in fields


def test_trap_wildcard_characters() -> None:
    """Only Cedar's own wildcards are wildcards."""
    short = lower(Like("region", ("a*b?", "c\\", "d")))["bool"]["should"][0]["bool"]["filter"][0]
    assert short == {"wildcard": {"l.s_region": {"value": "a\\*b\\?*c\\\\*d"}}}
    for jagged in (("", *"abcdefgh", ""), ("a" * 301, ""), ("", *[""] * 600, "")):
        assert "wildcard" not in json.dumps(lower(Like("region", jagged)))


def test_trap_coerced_numbers_and_instants_as_long() -> None:
    """`long` would read "5" and cut 1.7; `date` is wrong before 1970: every number is a long that does not coerce."""
    for value in (LONG_MIN, -62_135_596_800_000, LONG_MAX):
        assert lower(Gt("rank", value)) == {"range": {"l.n_rank": {"gt": value}}}
    types = lowering.field_mappings(["n_rank", "b_active", "s_region", "g_tags", "w_region"])
    assert types["n_rank"] == {"type": "long", "coerce": False}
    assert not any("ignore_above" in one or one["type"] in ("date", "integer") for one in types.values())


def test_trap_unmapped_field_is_false() -> None:
    """A field is named by its type, so that no value is read as another type's; what no schema declares is never asked for."""
    assert field_path("rank", "long") != field_path("rank", "string")
    assert len({field_path(name, kind) for name in ("a.b", "a b", "A", "a", 'a"') for kind in ("string", "set")}) == 10
    assert all("." not in field_path(name, "string").removeprefix("l.") for name in ("a.b", "a..b", "."))


@given(corpus.random_labels())
def test_shapes_say_what_fits(given_: Any) -> None:
    for entity in (
        ENTITY,
        EntityType("Document", {**ENTITY.fields, "rank": Field("string", False)}),
        EntityType("Document", {name: spec for name, spec in ENTITY.fields.items() if name != "region"}),
        EntityType("Document", {**ENTITY.fields, "more": Field("set", True)}),
    ):
        assert fits_shape(shape_of(given_), entity) == fits(given_, entity)


def test_within_reads_the_set() -> None:
    assert lower(Within("tags", frozenset())) == {"bool": {"must_not": [{"exists": {"field": "l.g_tags"}}]}}
    assert lower(Within("tags", frozenset({"a"})))["script"]["script"]["params"] == {"field": "l.g_tags", "values": {"a": True}}
