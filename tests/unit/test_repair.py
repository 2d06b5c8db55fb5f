"""`index verify --repair` over a real store, manifest and folder, each damaged as a crash, a fault or a hand would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.domain import Labels, ModelCard
from router.ingest import build
from router.ingest.reconcile import verify_index
from router.ingest.repair import Repaired, repair_index
from tests.conformance.labs import quick_folder
from tests.ingest_world import RULES, TENANT, World, embedder
from tests.unit.test_ingest_build import Breaking, Killed, contents
from tests.unit.test_mending import DAMAGES

HR_ONLY = RULES + "  - { match: 'hr/**', groups: [corp:hr], sensitivity: confidential }\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return start(tmp_path)


def start(root: Path) -> World:
    made = World(root)
    made.write("labels.yaml", HR_ONLY)
    for name in ("a.md", "hr/b.md"):
        made.write(name, f"# {name}\n\nText of {name}.\n")
    made.index()
    made.index(full=True)
    return made


def repair(world: World, **options: Any) -> Repaired:
    return repair_index(world.jobs(), world.workshop(**options), declared=frozenset({"docs"}))


def wider(world: World) -> Labels:
    (stored,) = world.load("docs/hr/b.md#0")  # of this one alone: others may be damaged already
    return {**stored.labels, "groups": frozenset({"corp:all"})}


def sql(world: World, statement: str) -> None:
    (partition,) = (world.root / "store").iterdir()
    con = apsw.Connection(str(partition / f"{world.store.generation(TENANT)}.sqlite"))
    con.execute(statement)
    con.close()


def rows(world: World) -> Any:
    return world.manifest.rows(TENANT, world.store.generation(TENANT))


def orphan(world: World) -> None:
    world.manifest.remove([row for row in rows(world) if row.key == "a.md"])
    (world.docs / "a.md").rename(world.root / "a.md")


DIFFERENCES: dict[str, Any] = {
    "in the store alone": orphan,
    "in the manifest alone": lambda world: world.store.delete(TENANT, ["docs/a.md"]),
    "manifest lost": lambda world: world.manifest.remove(rows(world)),
    "other labels in the store": lambda world: world.store.relabel(TENANT, {"docs/hr/b.md": wider(world)}),
    "other labels in the manifest": lambda world: world.manifest.relabel(
        TENANT, world.store.generation(TENANT), "docs", {"a.md": "0" * 64}
    ),
    "labels changed": lambda world: world.write("labels.yaml", RULES),
    "a lost chunk": lambda world: sql(world, "DELETE FROM chunk WHERE rid = 1"),
    "words out of step": lambda world: sql(world, DAMAGES["a lost word"]),
    "a build that was cut off": lambda world: world.store.put(
        TENANT, [], model=embedder().card, generation=world.store.begin_generation(TENANT)
    ),
    "an erasure that was cut off": lambda world: [
        world.manifest.bury(TENANT, "docs", row.content_hash, at_us=1) for row in rows(world) if row.key == "a.md"
    ],
    **{f"sql: {name}": (lambda world, statement=statement: sql(world, statement)) for name, statement in DAMAGES.items()
       if "rank" not in name and "corp:b" not in statement},
}  # fmt: skip


def expected(world: World) -> set[str]:
    return {name for name in ("a.md", "hr/b.md") if (world.docs / name).exists()}


@pytest.mark.parametrize("name", sorted(DIFFERENCES))
def test_each_difference_is_repaired(world: World, name: str) -> None:
    DIFFERENCES[name](world)
    done = repair(world)
    assert done.found
    assert done.left == ()
    assert done.repaired == done.found
    buried = {"a.md"} if name == "an erasure that was cut off" else set()
    assert set(world.ids()) == expected(world) - buried
    assert verify_index(world.jobs(), world.workshop()) == []
    again = repair(world)
    assert (again.found, again.done, again.report.sources[0].indexed) == ((), (), 0)
    if buried:
        assert all(b"Text of a.md" not in path.read_bytes() for path in world.root.glob("store/*/*") if path.is_file())


@settings(max_examples=15)
@given(st.lists(st.sampled_from(sorted(DIFFERENCES)), min_size=2, max_size=4, unique=True))
def test_repairing_never_widens(names: list[str]) -> None:
    """Several at once: after it every document that is there stands under the labels that its source gives."""
    with quick_folder() as folder:
        world = start(folder)
        for name in sorted(names, key=lambda name: (name != "labels changed", "word" in name)):
            DIFFERENCES[name](world)
        repair(world)
        assert repair(world).left == ()
        groups = {
            "a.md": {"corp:all", "corp:hr"},
            "hr/b.md": {"corp:all", "corp:hr"} if "labels changed" in names else {"corp:hr"},
        }
        for key, labels in world.labels().items():
            assert labels["groups"] == groups[key]


def test_what_is_removed_is_on_record(world: World) -> None:
    sql(world, "DELETE FROM emb WHERE rid = 1")
    world.changes.clear()
    repair(world)
    assert [(change.document_id, change.old is None, change.new is None, change.cause) for change in world.changes] == [
        ("docs/a.md", False, True, "repaired"),
        ("docs/a.md", True, False, "indexed"),
    ]


def test_a_damaged_file_is_told_and_left(world: World) -> None:
    (partition,) = (world.root / "store").iterdir()
    (partition / f"{world.store.generation(TENANT)}.sqlite").write_bytes(b"overwritten " * 5_000)
    world.store.close()
    done = repair(world)
    assert [finding.kind for finding in done.left] == ["store_corrupt"]
    assert "--full" in done.left[0].detail


def test_a_source_that_fails_is_told_and_the_others_repaired(world: World) -> None:
    world.store.delete(TENANT, ["docs/a.md"])
    world.write("labels.yaml", "rules: [ {")
    assert [finding.kind for finding in repair(world).left] == ["source_failed"]
    world.write("labels.yaml", HR_ONLY)
    assert repair(world).left == ()


def test_another_model_is_told_and_access_is_withdrawn(world: World) -> None:
    class Models:
        card = ModelCard("other", "0" * 64, 384, 64, 256)
        count_tokens = staticmethod(embedder().count_tokens)
        embed_chunks = staticmethod(embedder().embed_chunks)

    (world.docs / "a.md").unlink()
    done = repair(world, models=Models())
    assert {finding.kind for finding in done.left} == {"other_model"}
    assert world.ids() == ["hr/b.md"]
    assert world.changes[-1].document_id == "docs/a.md"


def test_crash_anywhere_while_repairing() -> None:
    """Whole at every moment: nothing that was not shown before is shown, and the next repair ends it."""

    def harm(world: World) -> None:
        world.store.relabel(TENANT, {"docs/hr/b.md": wider(world)})
        sql(world, "DELETE FROM emb WHERE rid = 1")
        DIFFERENCES["a build that was cut off"](world)

    with quick_folder() as folder:
        counted = start(folder / "counted")
        harm(counted)
        counting = Mending(0, after=False)
        counted.wrap = counting.wrap
        repair(counted)
        wanted = contents(counted)
        assert counting.calls >= 6
        for at in range(1, counting.calls + 1):
            world = start(folder / str(at))
            harm(world)
            world.wrap = Mending(at, after=True).wrap
            with pytest.raises(Killed):
                repair(world)
            world.wrap = lambda _, port: port
            assert set(world.ids()) <= {"a.md", "hr/b.md"}
            assert repair(world).left == ()
            assert contents(world) == wanted


class Mending(Breaking):
    """Also counts what only repairing calls."""

    def wrap(self, name: str, port: Any) -> Any:
        inner = super().wrap(name, port)

        class Port:
            def __getattr__(_, called: str) -> Any:
                if called in ("mend", "discard"):
                    return lambda *given: self.called(f"{name}.{called}", getattr(port, called), *given)
                return getattr(inner, called)

        return Port()


def test_the_next_run_clears_what_killed_builds_left(world: World) -> None:
    dead = world.store.begin_generation(TENANT)
    world.store.put(TENANT, [], model=embedder().card, generation=dead)
    build.index_sources(world.jobs(), world.workshop())
    assert dead not in [one.name for one in world.store.generations(TENANT)]
