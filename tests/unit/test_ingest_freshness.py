"""How fresh an index is, told by a look at the sources."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from router.errors import SourceError, UsageError
from router.ingest.freshness import Freshness, measure_freshness
from router.ingest.workshop import SourceJob
from tests.ingest_world import DOCUMENT, RULES, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write("labels.yaml", RULES)
    made.write("a.md", "# Leave\n\nThirty days a year.\n")
    made.write("b.md", "# Sick pay\n\nSix weeks.\n")
    return made


def look(world: World, jobs: Any = None, faults: Any = None) -> Freshness:
    (found,) = measure_freshness(
        [world.source],
        world.jobs() if jobs is None else jobs,
        faults or {},
        store=world.store,
        manifest=world.manifest,
        entity=DOCUMENT,
    )
    return found


def test_what_a_run_would_do(world: World) -> None:
    before = look(world)
    assert (before.changes, before.good_at_us) == (2, 0)
    world.index()
    fresh = look(world)
    assert (fresh.changes, fresh.newest_us, fresh.oldest_us, fresh.failures) == (0, 0, 0, 0)
    assert abs(fresh.good_at_us / 1e6 - time.time()) < 60
    assert fresh.lag_us(fresh.good_at_us + 5) == 0
    began_us = time.time_ns() // 1000
    world.write("labels.yaml", RULES + "  - { match: 'b.md', groups: [corp:hr], sensitivity: confidential }\n", old=False)
    time.sleep(0.1)
    world.write("c.md", "# New\n\nText.\n", old=False)
    (world.docs / "a.md").unlink()
    late = look(world)
    now_us = time.time_ns() // 1000
    assert late.changes == 3
    assert late.oldest_us == world.manifest.states()[0].looked_at_us  # of what is gone: after the last look
    assert began_us + 90_000 < late.newest_us <= now_us
    assert late.lag_us(now_us) >= 100_000
    world.index()
    assert look(world).changes == 0


def test_a_file_indexed_just_after_it_was_written_is_no_change(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run reads it again to be sure; that is no reason to alarm anybody."""
    monkeypatch.setattr("connectors.folder.SETTLED_S", 60.0)
    world.write("a.md", "# Leave\n\nThirty-one days.\n", old=False)
    world.index()
    assert world.manifest.rows("fabrikam", world.store.generation("fabrikam") or "")[0].fingerprint == ""
    assert look(world).changes == 0
    world.write("a.md", "# Leave\n\nThirty-two days.\n", old=False)
    assert look(world).changes == 1


@pytest.mark.parametrize("settled_s", [0.0, 60.0])
def test_a_document_that_cannot_be_read_is_no_change_until_it_changes(
    world: World, monkeypatch: pytest.MonkeyPatch, settled_s: float
) -> None:
    monkeypatch.setattr("connectors.folder.SETTLED_S", settled_s)
    world.write("a.md", b"\x00\x01\x02")
    assert world.failed(world.index()).keys() == {"a.md"}
    assert look(world).changes == 0
    world.write("a.md", "# Leave\n\nReadable.\n", old=False)
    assert look(world).changes == 1


def test_an_old_file_moved_into_place_is_as_old_as_the_last_look(world: World) -> None:
    world.index()
    (world.root / "beside").mkdir()
    (world.root / "beside" / "old.md").write_text("# Old\n\nText.\n")
    os.utime(world.root / "beside" / "old.md", (1_000_000_000, 1_000_000_000))
    (world.root / "beside").rename(world.docs / "moved")
    found = look(world)
    assert found.changes == 1
    assert found.oldest_us >= world.manifest.states()[0].looked_at_us


def test_what_cannot_be_told(world: World) -> None:
    world.index()

    class Slow:
        def entries(self) -> Any:
            raise AssertionError("it is not read for this")

    class Broken:
        quick = True

        def entries(self) -> Any:
            raise SourceError("source_missing", "it is not there")

    for documents, why in ((Slow(), "not_quick"), (Broken(), "source_missing")):
        found = look(world, [SourceJob(world.source, documents)])  # type: ignore[arg-type]
        assert (found.changes, found.untold, found.newest_us, found.oldest_us) == (None, why, 0, 0)
        assert found.lag_us(found.good_at_us + 7) == 7
    found = look(world, [], {"docs": UsageError("source_incomplete", "no path")})
    assert (found.changes, found.untold) == (None, "source_incomplete")
