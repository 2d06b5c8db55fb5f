"""`index rollback` and `index verify --repair` killed with SIGKILL, by real processes over a real store, at moments of chance."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from router.ingest.generations import roll_back
from router.ingest.reconcile import verify_index
from router.ingest.repair import repair_index
from tests.ingest_world import RULES, TENANT, World
from tests.unit.test_ingest_build import contents

ROOT = Path(__file__).parents[2]
HR_ONLY = RULES + "  - { match: 'hr/**', groups: [corp:hr], sensitivity: confidential }\n"
ROUNDS = 6
DOCUMENTS = frozenset({"docs"})


def go_back(world: World) -> None:
    roll_back(world.jobs(), TENANT, world.workshop(), declared=DOCUMENTS)


def mend(world: World) -> None:
    repair_index(world.jobs(), world.workshop(), declared=DOCUMENTS)


def close(world: World) -> None:
    world.store.close()
    world.manifest.close()


def change_sources(root: Path) -> None:
    """Two generations of a dozen documents; then some were removed, restricted and written anew."""
    world = World(root)
    world.write("labels.yaml", RULES)
    for at in range(6):
        world.write(f"a{at}.md", f"# A {at}\n\nFirst text of {at}.\n")
        world.write(f"hr/b{at}.md", f"# B {at}\n\nFirst text for some, {at}.\n")
    world.index()
    world.index(full=True)
    (world.docs / "a0.md").unlink()
    world.write("labels.yaml", HR_ONLY)
    for at in range(1, 5):
        world.write(f"a{at}.md", f"# A {at}\n\nSecond text of {at}.\n", old=False)
    world.settle()
    close(world)


def damage_store(root: Path) -> None:
    """And the store contradicts itself, and holds what a killed build left."""
    change_sources(root)
    world = World(root)
    name = world.store.generation(TENANT)
    world.store.begin_generation(TENANT)
    (partition,) = (root / "store").iterdir()
    con = apsw.Connection(str(partition / f"{name}.sqlite"))
    con.execute("DELETE FROM emb WHERE rid IN (2, 5)")
    con.execute("DELETE FROM ft WHERE rid = 7")
    con.close()
    close(world)


def test_kill_on_the_way_back(tmp_path: Path) -> None:
    """Askers see the one generation or the other, whole; going back can be begun again."""
    _kill(tmp_path, "go_back", change_sources, lambda world: world.store.generation(TENANT) == "g-000002")


def test_kill_while_repairing(tmp_path: Path) -> None:
    """A second repair ends it."""
    _kill(tmp_path, "mend", damage_store, lambda _: True)


def _kill(tmp_path: Path, work: str, prepare: Callable[[Path], None], undone: Callable[[World], bool]) -> None:
    prepare(tmp_path / "begun")
    calm_s = _run(_copy(tmp_path, "calm"), work, None)
    calm = World(tmp_path / "calm")
    wanted = contents(calm)
    assert verify_index(calm.jobs(), calm.workshop()) == []
    close(calm)
    chance, killed = random.Random(6), 0
    for at in range(ROUNDS):
        root = _copy(tmp_path, f"killed-{at}")
        killed += _run(root, work, chance.uniform(0.0, calm_s)) < 0
        world = World(root)
        shown = world.store.verify(TENANT)
        assert shown == [] or work == "mend"
        if undone(world):
            {"go_back": go_back, "mend": mend}[work](world)
        world.index()
        assert contents(world) == wanted
        assert verify_index(world.jobs(), world.workshop()) == []
        close(world)
    assert killed >= ROUNDS // 2


def _copy(tmp_path: Path, name: str) -> Path:
    return Path(shutil.copytree(tmp_path / "begun", tmp_path / name))


def _run(root: Path, work: str, kill_s: float | None) -> float:
    """How long the work took, without the start of its process; negative where it was killed."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.test_killed_maintenance", str(root), work], cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        began_s = time.monotonic()
        if kill_s is not None:
            time.sleep(kill_s)
            child.send_signal(signal.SIGKILL)
        code = child.wait(60)
        assert code == 0 or (kill_s is not None and code == -signal.SIGKILL)
        return time.monotonic() - began_s if code == 0 else -1.0
    finally:
        child.kill()
        child.communicate()


def main() -> None:
    """The process that is killed."""
    world = World(Path(sys.argv[1]))
    world.workshop().embedder.embed_chunks(["a text that opens the model"], None)  # type: ignore[arg-type]
    print("ready", flush=True)
    {"go_back": go_back, "mend": mend}[sys.argv[2]](world)


if __name__ == "__main__":
    main()
