"""From a route and grants to steps. A step cannot be built without its filter.

INVARIANT: a source is searched under its own grant and no other's (tests/unit/test_plan.py::test_each_source_under_its_own_grant).
INVARIANT: which index is searched changes no filter, and names no source that is not granted (…::test_index_of_each_source).
INVARIANT: nothing granted is `Never`, which no store answers with a hit (tests/unit/test_plan.py::test_nothing_granted_is_never).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from router.domain import SOURCE_FIELD, Grant, Grants, Index, Leg, Steps, with_spans
from router.filters import EntityType, Field, Filter, In, all_of, any_of, canonical, simplify


def build(
    grants: Grants,
    document_type: EntityType,
    *,
    legs: tuple[Leg, ...],
    candidates: int,
    rerank: int,
    index: Index | None = None,
    prefer_plain: frozenset[str] = frozenset(),
) -> Steps:
    """`index` is the one that every source is searched by that has both; without it each is searched by the one that was
    measured to serve it better: the plain one of `prefer_plain`, the contextual one of the others."""
    granted = frozenset(grant.source for grant in grants.search)
    plain = {"plain": granted, "contextual": frozenset[str](), None: granted & prefer_plain}[index]
    if grants.joined is not None:
        return Steps("simple", grants.joined.filter, legs, candidates, rerank, text=grants.joined.key, plain=plain)
    return Steps("simple", scope(grants.search, document_type), legs, candidates, rerank, plain=plain)


def index_name(grants: Grants, contextual: frozenset[str], *, index: Index | None = None) -> Literal["documents", "contextual"]:
    """What a search of these grants is called: `contextual` where every granted source is searched by such an index.
    `contextual` names the sources that are searched so unless the caller says otherwise; of others nothing is asked."""
    granted = frozenset(grant.source for grant in grants.search)
    return "contextual" if index != "plain" and granted and granted <= contextual else "documents"


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
    """The document type with the store's own fields."""
    return EntityType(document_type.name, {**with_spans(document_type).fields, SOURCE_FIELD: Field("string", required=True)})
