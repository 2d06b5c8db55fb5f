"""Runs that have contexts written and are killed (SIGKILL) wherever it hurts: the next one goes on and pays for nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import anthropic_server as fake
from tests.context_world import ContextWorld, manual
from tests.ingest_world import RULES, TENANT
from tests.world import ROOT

CHILD = """
import sys, types
from pathlib import Path
from tests.context_world import ContextWorld
root, url, send = sys.argv[1:]
world = ContextWorld(Path(root), types.SimpleNamespace(url=url), send=send)
report = world.whole(wait_s=30.0)
print(report.contexts.written, flush=True)
"""
NAMES = ("press", "pump")


@pytest.fixture(scope="module")
def running():
    yield from fake.serve()


@pytest.fixture
def server(running):
    running.says(fake.contexts())
    running.batches = fake.Batches()
    return running


class Killer:
    """Kills the run that is under way, once, at the given call of a place."""

    def __init__(self, at: int) -> None:
        self.left, self.pid = at, 0

    def __call__(self, *_: object) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(self.pid, signal.SIGKILL)
            raise ConnectionResetError


def kill_run(root: Path, server: fake.AnthropicServer, send: str, killer: Killer) -> int:
    command = [sys.executable, "-c", CHILD, str(root), server.url, send]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    killer.pid = child.pid
    child.communicate(timeout=120)
    return child.returncode


def placed(server: fake.AnthropicServer, place: str, killer: Killer) -> None:
    """`killer` comes where a batch was made and nobody was told; where its state is asked; where its results are; where a context was
    written and not yet sent back."""
    batches = server.batches
    if place == "made":
        batches.creating = killer
        return
    get, message = batches.get, batches.message

    def asked(handler: fake.Handler, path: str) -> None:
        if path.endswith("results") == (place == "results"):
            killer()
        get(handler, path)

    def wrote(params: dict) -> dict:
        killer()
        return message(params)

    if place == "written":
        batches.message = wrote  # type: ignore[method-assign]
    else:
        batches.get = asked  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("send", "place", "at"),
    [
        ("batch", "made", 1),
        ("batch", "polled", 2),
        ("batch", "results", 1),
        ("direct", "written", 1),
        ("direct", "written", 9),
    ],
)
def test_killed_anywhere_pays_once(tmp_path, server, send, place, at):
    """Of single calls the one on the wire may be paid again, since its answer never arrived; of batches nothing."""
    world = ContextWorld(tmp_path, server, send=send)
    world.write("labels.yaml", RULES)
    for name in NAMES:
        world.write(f"{name}.md", manual(name))
    server.batches.polls = 2
    killer = Killer(at)
    placed(server, place, killer)
    assert kill_run(tmp_path, server, send, killer) == -signal.SIGKILL
    world.whole()
    for name in NAMES:
        assert set(world.contexts(f"{name}.md")) == {"Says where it stands."}
    assert world.cache.open_batches(TENANT) == []
    assert world.paid.count(1) >= len(world.paid) - (send == "direct")
    assert len(server.batches.made) == (send == "batch")
    posts = world.posts
    assert world.run().unchanged == len(NAMES)
    assert world.posts == posts
