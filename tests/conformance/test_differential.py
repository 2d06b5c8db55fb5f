"""The heart of the product: Cedar in full, the compiled filter in the reference evaluator, and the store agree on every hit.

Random policies inside the fragment, random principals, random hostile labels; and, many more of them, random filters on
random labels without Cedar.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.sqlite_documents import SqliteDocuments
from router import plan
from router.domain import SOURCE_FIELD, IndexedDocument, Labels
from router.errors import PolicyError
from router.filters import ALWAYS, EntityType, Filter, compile_filter, fits, matches, simplify
from router.policy import PolicySet
from tests import policy_world as world
from tests.conformance import corpus, suite
from tests.conformance.corpus import ENTITY, TENANT, examples
from tests.conformance.labs import SqliteLab, quick_folder

QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@pytest.fixture(scope="module")
def lab() -> Iterator[SqliteLab]:
    with quick_folder() as folder:
        opened = SqliteLab(folder)
        yield opened
        opened.close()


def _hold(store: SqliteDocuments, tenant: str, documents: list[IndexedDocument]) -> None:
    """The tenant's partition holds exactly these."""
    kept = {item.document_id for item in documents}
    store.delete(tenant, [info.document_id for info in store.documents(tenant) if info.document_id not in kept])
    suite.put(store, documents, tenant=tenant)


@settings(max_examples=examples(80), suppress_health_check=QUICK)
@given(
    given_=st.lists(corpus.random_labels(), min_size=1, max_size=10), filters=st.lists(corpus.filters, min_size=6, max_size=12)
)
def test_random_filters_on_random_labels(lab: SqliteLab, given_: list[Labels], filters: list[Filter]) -> None:
    """As written, simplified, guarded and compiled: the store admits what the reference admits, by each leg."""
    documents = [corpus.document(f"{at:02}", of, source="abc"[at % 3]) for at, of in enumerate(given_)]
    _hold(lab.store, TENANT, documents)
    with_source = plan.with_source(ENTITY)
    for f in filters:
        expected = corpus.reference(documents, f)
        simple = simplify(f, with_source)
        compiled = compile_filter(f, with_source)
        visible = [item for item in documents if {"tenant", "sensitivity", "title", "active"} <= set(item.labels)]
        assert lab.store.admitted(TENANT, f) == expected, f
        assert lab.store.admitted(TENANT, simple) == expected, (f, simple)
        assert lab.store.admitted(TENANT, compiled) == corpus.reference(visible, f), (f, compiled)
        found = suite.ask_leg(lab.store, f, "both")
        assert suite.hits(found) == expected, f
        assert found.admitted == len(expected)


@settings(max_examples=examples(40), suppress_health_check=QUICK)
@given(given_=st.lists(corpus.random_labels(), min_size=1, max_size=8), f=corpus.filters, data=st.data())
def test_under_a_schema_that_has_moved(lab: SqliteLab, given_: list[Labels], f: Filter, data: st.DataObject) -> None:
    """Read from the labels' JSON before the next write and from the columns after it: one answer, the reference's."""
    documents = [corpus.document(f"{at:02}", of) for at, of in enumerate(given_)]
    lab.entity = ENTITY
    _hold(lab.store, TENANT, documents)
    kinds = st.sampled_from(["string", "long", "bool", "set"])
    moved = {
        name: replace(spec, kind=data.draw(kinds)) if name in ("rank", "region") else spec for name, spec in ENTITY.fields.items()
    }
    try:
        lab.entity = EntityType("Document", moved)
        try:
            simplify(f, plan.with_source(lab.entity))
            suite.ask(lab.store, f)
        except PolicyError:  # the filter speaks of the old type
            f = ALWAYS
        expected = corpus.reference(documents, f, lab.entity)
        assert lab.store.admitted(TENANT, f) == expected
        lab.store.relabel(TENANT, {})
        assert lab.store.admitted(TENANT, f) == suite.hits(suite.ask(lab.store, f)) == expected
    finally:
        lab.entity = ENTITY


@settings(max_examples=examples(70), suppress_health_check=QUICK)
@given(policies=world.policy_sets(), principals=st.lists(world.principals(), min_size=1, max_size=3), documents=world.documents())
def test_cedar_reference_and_store_agree(lab: SqliteLab, policies: PolicySet, principals: list, documents: list) -> None:
    """For every policy in the fragment, every person and every document, on the hits of each leg and of both."""
    lab.entity = policies.document_type
    try:
        for tenant in world.TENANTS:
            mine = [
                corpus.document(name.split("/")[1], of, source=source)
                for source, name, of in documents
                if world.SOURCES[source] == tenant
            ]
            _hold(lab.store, tenant, mine)
        for principal in principals:
            grants = policies.grants(principal, world.NOW)
            scope = plan.scope(grants.search, policies.document_type)
            here = [item for item in documents if world.SOURCES[item[0]] == principal.tenant]
            verdicts = policies.recheck(principal, world.NOW, here)
            allowed = sorted(name for (_, name, _), verdict in zip(here, verdicts, strict=True) if verdict.allowed)
            by_reference = sorted(name for source, name, of in here if matches(scope, {**of, SOURCE_FIELD: source}))
            assert by_reference == allowed, world.describe(policies, principal, here)
            for leg in suite.LEGS:
                found = suite.ask_leg(lab.store, scope, leg, tenant=principal.tenant)
                assert suite.hits(found) == allowed, world.describe(policies, principal, here)
                assert found.admitted == len(allowed)
            assert lab.store.admitted(principal.tenant, scope) == allowed
    finally:
        lab.entity = ENTITY


PERMIT_ALL = """@id("all") @reason("tests") @owner("tests")
permit (principal, action == Pointsman::Action::"search", resource);"""


@settings(max_examples=examples(60), suppress_health_check=QUICK)
@given(principal=world.principals(), of=world.labels("t1"), data=st.data())
def test_what_fits_is_what_cedar_judges(principal: object, of: dict, data: st.DataObject) -> None:
    """Labels with something undeclared, mistyped or missing are denied by Cedar and invisible by `fits` and the guard."""
    policies = world.load_files(world.folder_files(PERMIT_ALL))
    principal = replace(principal, tenant="t1")  # type: ignore[type-var]
    wrong = {"undeclared": "x", "rank": "1", "region": 1, "archived": 0, "tags": "a", "title": True, "sensitivity": frozenset()}
    for name in data.draw(st.lists(st.sampled_from(sorted(wrong)), max_size=2)):
        of[name] = wrong[name]
    for name in data.draw(st.lists(st.sampled_from(["tags", "groups", "active", "rank"]), max_size=1)):
        of.pop(name, None)
    everything = {grant.source: grant.filter for grant in policies.grants(principal, world.NOW).search}["alpha"]  # type: ignore[arg-type]
    admitted = fits(of, policies.document_type) and matches(everything, of)
    assert policies.recheck(principal, world.NOW, [("alpha", "alpha/1", of)])[0].allowed == admitted, of
