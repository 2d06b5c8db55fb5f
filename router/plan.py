"""From a route and grants to steps. A step cannot be built without its filter.

INVARIANT: a source is searched under its own grant and no other's (tests/unit/test_plan.py::test_each_source_under_its_own_grant).
INVARIANT: nothing granted is `Never`, which no store answers with a hit (tests/unit/test_plan.py::test_nothing_granted_is_never).
"""

from __future__ import annotations

from collections.abc import Iterable

from router.domain import SOURCE_FIELD, Grant, Grants, Leg, Steps
from router.filters import EntityType, Field, Filter, In, all_of, any_of, canonical, simplify


def build(grants: Grants, document_type: EntityType, *, legs: tuple[Leg, ...], candidates: int, rerank: int) -> Steps:
    if grants.joined is not None:
        return Steps("simple", grants.joined.filter, legs, candidates, rerank, text=grants.joined.key)
    return Steps("simple", scope(grants.search, document_type), legs, candidates, rerank)


def scope(granted: Iterable[Grant], document_type: EntityType) -> Filter:
    """One filter for a search over several sources: each source under its own grant. Nothing granted is `Never`.

    Grants are brought together by canonical text: `Eq("x", 1)` and `Eq("x", True)` are equal to Python and not to policy.
    """
    sharing: dict[str, tuple[Filter, set[str]]] = {}
    for grant in granted:
        sharing.setdefault(canonical(grant.filter), (grant.filter, set()))[1].add(grant.source)
    terms = [all_of((In(SOURCE_FIELD, frozenset(names)), f)) for f, names in sharing.values()]
    return simplify(any_of(terms), with_source(document_type))


def with_source(document_type: EntityType) -> EntityType:
    """The document type with the store's own source field."""
    return EntityType(document_type.name, {**document_type.fields, SOURCE_FIELD: Field("string", required=True)})
