"""The suite is worth what it catches on this engine too: each broken store must fail the promises that name its fault."""

from __future__ import annotations

import pytest

from router.errors import PointsmanError
from tests.conformance import suite
from tests.opensearch.broken_opensearch import BREAKS, Break
from tests.opensearch.opensearch_lab import OpenSearchLab

CAUGHT = (AssertionError, PointsmanError, pytest.fail.Exception)
CASES = [(broken, name) for broken in BREAKS for name in broken.caught_by]


@pytest.mark.parametrize(("broken", "name"), CASES, ids=[f"{broken.name}-{name}" for broken, name in CASES])
def test_a_broken_store_in_opensearch_is_caught(broken: Break, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, attribute, value in broken.patches:
        assert hasattr(owner, attribute)
        monkeypatch.setattr(owner, attribute, value)
    lab = type(f"Broken{broken.name}", (OpenSearchLab,), {"kind": broken.store})()
    try:
        with pytest.raises(CAUGHT):
            suite.all_tests()[name](lab)
    finally:
        monkeypatch.undo()
        lab.close()
