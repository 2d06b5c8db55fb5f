"""Kept evidence over documents in OpenSearch: everybody gets what they get without it, also where the index was lost and made anew."""

from __future__ import annotations

from pathlib import Path

from router.config import load_settings
from tests.opensearch.opensearch_lab import NODES
from tests.opensearch.opensearch_world import index_all, remove_indices, write_on
from tests.recall_world import check_that_nothing_is_told, two_routers

PREFIX = "recalled"


def test_kept_or_not_everybody_gets_the_same_bytes_of_opensearch(tmp_path: Path) -> None:
    settings = load_settings(write_on(tmp_path / "world", NODES[:1], prefix=PREFIX))
    try:
        with two_routers(settings) as (keeping, fresh):
            index_all(fresh)
            check_that_nothing_is_told(keeping, fresh, seed=1, asks=60, lose=lambda: remove_indices(PREFIX))
    finally:
        remove_indices(PREFIX)
