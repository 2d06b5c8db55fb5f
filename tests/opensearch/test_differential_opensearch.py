"""Cedar, the reference evaluator, SQLite and OpenSearch agree on every hit of both legs, whatever the filter and the labels.

The first three are those that the embedded store passes, on another laboratory. POINTSMAN_LONG=10 makes the last one 100,000 pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router import plan
from router.domain import IndexedDocument, Labels
from router.filters import Filter, compile_filter
from tests.conformance import corpus, suite
from tests.conformance.corpus import ENTITY, TENANT, examples
from tests.conformance.labs import SqliteLab, quick_folder
from tests.conformance.test_differential import (  # noqa: F401 (tests of this module, on this module's laboratory)
    test_cedar_reference_and_store_agree,
    test_random_filters_on_random_labels,
    test_under_a_schema_that_has_moved,
)
from tests.opensearch.opensearch_lab import OpenSearchLab, lab_of

PAIRS = examples(10_000)
DOCUMENTS, FILTERS = 20, 25
TURNS = -(-PAIRS // (DOCUMENTS * FILTERS))
pytestmark = pytest.mark.timeout(3_600)


@pytest.fixture(scope="module")
def lab() -> Iterator[OpenSearchLab]:
    with lab_of() as opened:
        yield opened


@pytest.fixture(scope="module")
def embedded() -> Iterator[SqliteLab]:
    with quick_folder() as folder:
        opened = SqliteLab(folder)
        yield opened
        opened.close()


@settings(max_examples=TURNS, suppress_health_check=list(HealthCheck), database=None)
@given(
    given_=st.lists(corpus.random_labels(), min_size=DOCUMENTS, max_size=DOCUMENTS),
    filters=st.lists(corpus.filters, min_size=FILTERS, max_size=FILTERS),
)
def test_both_stores_and_the_reference_agree(
    lab: OpenSearchLab, embedded: SqliteLab, given_: list[Labels], filters: list[Filter]
) -> None:
    """By each leg, by both and without a leg: no document too many, none too few; half of the filters as policy compiles them."""
    documents = [corpus.document(f"{at:02}", of, source="abc"[at % 3]) for at, of in enumerate(given_)]
    _hold((lab, embedded), documents)
    with_source = plan.with_source(ENTITY)
    whole = [item for item in documents if {"tenant", "sensitivity", "title", "active"} <= set(item.labels)]
    for at, drawn in enumerate(filters):
        f = compile_filter(drawn, with_source) if at % 2 else drawn
        expected = corpus.reference(whole if at % 2 else documents, drawn)
        for store in (embedded.store, lab.store):
            assert store.admitted(TENANT, f) == expected, (type(store), f)
            for leg in suite.LEGS:
                found = suite.ask_leg(store, f, leg)
                assert suite.hits(found) == expected, (type(store), leg, f)
                assert found.admitted == len(expected), (type(store), leg, f)


def _hold(labs: tuple[OpenSearchLab, SqliteLab], documents: list[IndexedDocument]) -> None:
    kept = {item.document_id for item in documents}
    for lab in labs:
        lab.store.delete(TENANT, [info.document_id for info in lab.store.documents(TENANT) if info.document_id not in kept])
        suite.put(lab.store, documents)
