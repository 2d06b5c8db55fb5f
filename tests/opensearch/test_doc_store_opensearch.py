"""The store in OpenSearch, through the one suite that every document store passes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.suite import *  # noqa: F403 (the suite is the tests of this module)
from tests.opensearch.opensearch_lab import OpenSearchLab, lab_of

SLOW = ("forget", "version_changes", "tenants_do_not_meet")
"""What forgets waits up to thirty seconds for the engine, once an index: one number of shards is enough."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "lab" in metafunc.fixturenames:
        shards = [1] if any(word in metafunc.function.__name__ for word in SLOW) else [1, 3]
        metafunc.parametrize("lab", shards, indirect=True, ids=[f"{count} shards" for count in shards])


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[OpenSearchLab]:
    with lab_of(shards=request.param) as opened:
        yield opened
