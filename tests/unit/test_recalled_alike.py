"""Two people with different filters, in whichever order they ask: with kept evidence each gets what they get without."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from router.config import load_settings
from tests import world
from tests.recall_world import check_that_nothing_is_told, two_routers


@pytest.mark.parametrize("seed", range(3))
def test_kept_or_not_everybody_gets_the_same_bytes(seed: int, tmp_path: Path) -> None:
    settings = load_settings(world.build_world(tmp_path / "world"))
    with two_routers(settings) as (keeping, fresh):
        check_that_nothing_is_told(keeping, fresh, seed=seed, asks=80, lose=lambda: shutil.rmtree(settings.store_folder))
