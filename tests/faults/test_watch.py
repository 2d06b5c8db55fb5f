"""`index --watch` as a real process: it keeps up, survives what fails, and ends when asked, with everything whole."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.manifest import open_manifest
from router import app
from router.app import Router
from router.config import load_settings
from router.errors import SourceError
from router.ingest.watch import Stop
from tests import world
from tests.world import NOW, ask_as, build_world, ids, run_command, write_page

COMMAND = [sys.executable, "-c", "from router.doors.cli import main; main()"]
LONG_S = 60.0


class Watching:
    """The process and its lines."""

    def __init__(self, config: Path, *arguments: str) -> None:
        command = [*COMMAND, "index", *arguments, "--watch", "--every", "0.3", "--json", "--config", str(config)]
        env = {**os.environ, "PYTHONPATH": str(world.ROOT)}
        self.process = subprocess.Popen(
            command, cwd=config.parent, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))

    def until(self, wanted: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first line that is as wanted."""
        deadline = time.monotonic() + LONG_S
        while True:
            line = self._lines.get(timeout=max(0.1, deadline - time.monotonic()))
            if wanted(line):
                return line

    def end(self, number: int = signal.SIGTERM) -> tuple[int, bytes]:
        os.killpg(self.process.pid, number)
        code = self.process.wait(LONG_S)
        assert self.process.stderr is not None
        return code, self.process.stderr.read()

    def last(self) -> dict[str, Any]:
        """What was said at the very end."""
        line: dict[str, Any] = {}
        time.sleep(0.2)
        while not self._lines.empty():
            line = self._lines.get()
        return line


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return build_world(tmp_path / "world")


@pytest.fixture
def watching(config: Path) -> Iterator[Watching]:
    made = Watching(config)
    yield made
    if made.process.poll() is None:
        os.killpg(made.process.pid, signal.SIGKILL)
        made.process.wait(LONG_S)


def seen(config: Path, person: str, question: str) -> set[str]:
    with Router(load_settings(config)) as router:
        return set(ids(ask_as(router, person, question, k=50)))


def hide(config: Path, pattern: str) -> None:
    """As an editor does: a new file in the place of the old one."""
    labels = config.parent / "handbook" / "labels.yaml"
    beside = labels.with_name("beside.tmp")
    beside.write_text(labels.read_text() + f'  - {{ match: "{pattern}", groups: ["dev:board"], sensitivity: restricted }}\n')
    beside.rename(labels)


def whole(config: Path) -> None:
    with Router(load_settings(config)) as router:
        assert [one for one in router.index_verify() if one.kind not in ("note", "changed")] == []
        assert router.store.verify("north") == []


def test_it_keeps_up(config: Path, watching: Watching) -> None:
    """New text, a deletion and a change of labels, each in a later round; the short lines between, and SIGTERM at the end."""
    short = watching.until(lambda line: not line["changed"])
    assert set(short) <= {"round", "at_us", "elapsed_s", "changed", "next_s"}
    assert "handbook/staff/oil.md" in seen(config, "ada", "oil of the press")
    began = time.monotonic()
    hide(config, "staff/oil.md")
    line = watching.until(lambda line: line["changed"])
    took_us = (time.monotonic() - began) * 1e6
    assert sum(source["relabelled"] for source in line["sources"]) == 1
    assert line["revocation"]["documents"] == 1
    assert 0 < line["revocation"]["max_us"] <= took_us
    assert "handbook/staff/oil.md" not in seen(config, "ada", "oil of the press")
    (config.parent / "handbook" / "staff" / "belt.md").unlink()
    line = watching.until(lambda line: line["changed"])
    assert sum(source["removed"] for source in line["sources"]) == 1
    write_page(config.parent, "handbook/staff/new.md", "# Grease\n\nGrease the press with PN-70001.")
    watching.until(lambda line: line["changed"])
    assert "handbook/staff/new.md" in seen(config, "ada", "PN-70001")
    code, trace = watching.end(signal.SIGTERM)
    assert (code, trace) == (0, b"")
    assert watching.last().get("error") is None
    whole(config)
    deleted = run_command("index", "status", "--deleted", "--json", "--config", config, cwd=config.parent)
    assert [item["document_id"] for item in json.loads(deleted.stdout)["deleted"]] == ["handbook/staff/belt.md"]
    summary = run_command("log", "summary", "--json", "--config", config, cwd=config.parent)
    words = run_command("log", "summary", "--config", config, cwd=config.parent).stdout.decode()
    assert "revocation       sqlite: 2 documents, p50 " in words
    status = run_command("index", "status", "--config", config, cwd=config.parent).stdout.decode()
    assert "changes not indexed" in status
    revoked = json.loads(summary.stdout)["revocations"]["sqlite"]
    assert revoked["documents"] == 2
    assert 0 < revoked["p50_us"] <= revoked["max_us"]


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_interrupt_between_two_documents(config: Path, watching: Watching, number: int, expected: int) -> None:
    """Ctrl-C, or a supervisor that ends the whole group, while much is to be read: it ends within a moment, what was stored is whole,
    no document counts as broken for it, and the next run goes on."""
    watching.until(lambda line: not line["changed"])
    for page in range(400):
        write_page(config.parent, f"aside/{page:03d}.md", f"# Page {page}\n\nThe press on day {page}.\n" * 8)
    (config.parent / "aside").rename(config.parent / "notes" / "more")
    deadline, store = time.monotonic() + LONG_S, None
    while time.monotonic() < deadline:
        with Router(load_settings(config)) as router:
            store = len(list(router.store.documents("north")))
        if store > 20:
            break
        time.sleep(0.05)
    code, _ = watching.end(number)
    assert code == expected
    assert number == signal.SIGTERM or watching.last()["error"]["code"] == "interrupted"
    with Router(load_settings(config)) as router:
        assert router.store.verify("north") == []
        held = len(list(router.store.documents("north")))
        assert 20 < held < 400
        assert router.manifest.runs(limit=1)[0].outcome in ("interrupted", "failed")
        assert not any(status.failures for status in router.index_status().sources)


def test_people_are_told_what_changed_and_what_failed(config: Path) -> None:
    """Without --json: nothing of rounds that changed nothing; what fails once, and that it is well again."""
    command = [*COMMAND, "index", "--watch", "--every", "0.3", "--config", str(config)]
    env = {**os.environ, "PYTHONPATH": str(world.ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=config.parent, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        (config.parent / "notes").rename(config.parent / "away")
        failed = process.stdout.readline()
        write_page(config.parent, "handbook/staff/new.md", "# Grease\n\nGrease the press with PN-70001.")
        changed = process.stdout.readline()
        (config.parent / "away").rename(config.parent / "notes")
        well = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG_S) == 0
        rest = process.stdout.read()
    assert "notes: " in failed
    assert "it is tried again" in failed
    assert "1 indexed, 0 relabelled, 0 removed" in changed
    assert "notes: well again" in well
    assert rest == ""


def test_a_failing_source_stops_nobody(config: Path, watching: Watching) -> None:
    """Its folder is gone: what was indexed of it stays, the others go on, it is said and backed off, and well again in the end."""
    watching.until(lambda line: not line["changed"])
    folder = config.parent / "notes"
    folder.rename(config.parent / "away")
    failed = watching.until(lambda line: line.get("failed"))
    assert failed["failed"]["notes"]["code"] in ("source_missing", "labels_missing")
    assert watching.until(lambda line: line.get("resting"))["resting"].keys() == {"notes"}
    write_page(config.parent, "handbook/staff/new.md", "# Grease\n\nGrease the press with PN-70001.")
    watching.until(lambda line: line["changed"])
    assert "handbook/staff/new.md" in seen(config, "ada", "PN-70001")
    assert "notes/monday.md" in seen(config, "ada", "the press stopped twice")
    status = run_command("index", "status", "--json", "--config", config, cwd=config.parent)
    notes = next(item for item in json.loads(status.stdout)["freshness"] if item["source"] == "notes")
    assert notes["failures"] >= 1
    assert (notes["changes"], notes["untold"]) == (None, failed["failed"]["notes"]["code"])
    doctor = run_command("doctor", "--json", "--config", config, cwd=config.parent)
    check = next(item for item in json.loads(doctor.stdout)["checks"] if item["name"] == "freshness")
    assert check["level"] == "warning"
    (config.parent / "away").rename(folder)
    watching.until(lambda line: not line.get("failed") and not line.get("resting"))
    assert watching.end()[0] == 0


def test_the_only_source_of_a_tenant_may_fail(config: Path, watching: Watching) -> None:
    """A tenant whose sources all rest is not one of whom no source speaks any more."""
    watching.until(lambda line: not line["changed"])
    (config.parent / "elsewhere").rename(config.parent / "away")
    watching.until(lambda line: line.get("resting"))
    watching.until(lambda line: line.get("resting"))
    assert "elsewhere/press.md" in seen(config, "sue", "how many bar has our press")
    assert watching.end()[0] == 0


def test_broken_policies_refuse_the_round(config: Path, watching: Watching) -> None:
    """Nothing is indexed meanwhile, neither wider nor otherwise; once they are whole, what they say now is what holds."""
    watching.until(lambda line: not line["changed"])
    sources = config.parent / "policies" / "sources.yaml"
    good = sources.read_text()
    sources.write_text(good + "  broken: [\n")
    refused = watching.until(lambda line: line.get("error"))
    assert refused["error"]["code"] == "policy_broken"
    write_page(config.parent, "handbook/staff/new.md", "# Grease\n\nGrease the press with PN-70001.")
    watching.until(lambda line: line.get("error"))
    manifest = open_manifest(f"sqlite:///{config.parent}/state/manifest.sqlite")
    generation = manifest.generations("north")[-1]
    assert "staff/new.md" not in {row.key for row in manifest.rows("north", generation, source="handbook")}
    manifest.close()
    sources.write_text(good.replace('["dev:staff", "dev:hr"]', '["dev:hr"]'))
    watching.until(lambda line: line["changed"])
    watching.until(lambda line: not line["changed"] and not line.get("error"))
    assert "handbook/staff/new.md" in seen(config, "ada", "PN-70001")
    assert not any(name.startswith("notes/") for name in seen(config, "ada", "the press stopped twice"))
    assert watching.end()[0] == 0


def test_a_held_lock_is_waited_for(config: Path) -> None:
    manifest = open_manifest(f"sqlite:///{config.parent}/state/manifest.sqlite")
    with manifest.exclusive():
        watching = Watching(config)
        busy = watching.until(lambda line: line.get("error"))
        assert busy["error"]["code"] == "index_busy"
        time.sleep(1.5)
    assert watching.until(lambda line: not line.get("error"))["round"] == 1
    other = run_command("index", "--json", "--config", config, cwd=config.parent)
    assert other.returncode in (0, 4)
    assert watching.end()[0] == 0


def test_forgetting_waits_for_a_run_that_ends_soon(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = open_manifest(f"sqlite:///{config.parent}/state/manifest.sqlite")
    with Router(load_settings(config)) as router:
        router.index()
        held, free = threading.Event(), threading.Event()

        def hold() -> None:
            with manifest.exclusive():
                held.set()
                free.wait(20)

        other = threading.Thread(target=hold)
        other.start()
        held.wait(20)
        monkeypatch.setattr(app, "FORGET_WAITS_S", 0.3)
        with pytest.raises(SourceError, match="index_busy") as raised:
            router.index_forget("handbook/staff/oil.md")
        assert "stop that run" in str(raised.value.hint)
        monkeypatch.setattr(app, "FORGET_WAITS_S", 30.0)
        threading.Timer(0.5, free.set).start()
        assert router.index_forget("handbook/staff/oil.md").documents == ("handbook/staff/oil.md",)
        other.join()


def test_options_that_do_not_go_together(config: Path) -> None:
    for extra in (("--watch", "--full"), ("--watch", "--dry-run"), ("--every", "5"), ("--watch", "--every", "0")):
        done = run_command("index", *extra, "--json", "--config", config, cwd=config.parent)
        assert done.returncode == 2, done
        assert json.loads(done.stdout)["error"]["code"] in ("watch_alone", "every_without_watch", "usage")


# --- the property -----------------------------------------------------------------------------------------------------

KEYS = ("staff/oil.md", "staff/guard.md", "hr/pay.md", "all/signs.md")
GROUPS = {"staff": "ada", "hr": "hal", "board": "max"}
CHANGE = st.one_of(
    st.tuples(st.just("label"), st.sampled_from(KEYS), st.sampled_from([*GROUPS, "nobody", ""])),
    st.tuples(st.just("narrow"), st.sampled_from(KEYS), st.sampled_from(["public", "restricted", "nonsense"])),
    st.tuples(st.just("delete"), st.sampled_from(KEYS), st.just("")),
    st.tuples(st.just("write"), st.sampled_from(KEYS), st.sampled_from(["one", "two"])),
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(st.lists(CHANGE, min_size=1, max_size=3), min_size=1, max_size=4))
def test_after_a_round_nothing_is_found_that_labels_deny(tmp_path_factory: pytest.TempPathFactory, rounds: Any) -> None:
    """Whatever changed between rounds of one watch: who finds a document is who its labels, as they stand now, admit."""
    folder = tmp_path_factory.mktemp("watched")
    config = build_world(folder / "world")
    stop = Stop()
    with Router(load_settings(config)) as router:
        watch = router.watch(["handbook"], stop=stop, every_s=0.2, tables=None)
        state: dict[str, dict[str, str]] = {key: {} for key in KEYS}
        next(watch)
        for changes in rounds:
            for what, key, how in changes:
                _change(config.parent / "handbook", state, what, key, how)
            told = next(watch)
            assert told.error is None
            assert told.failed == {}
            found = {
                group: set(ids(ask_as(router, person, "press guard oil sign pay", k=50, now=NOW)))
                for group, person in GROUPS.items()
            }
            for key in KEYS:
                for group in GROUPS:
                    if f"handbook/{key}" in found[group]:
                        assert _may_see(state[key], key, group), (key, group, state[key])
    stop.close()
    shutil.rmtree(folder)


def _change(folder: Path, state: dict[str, dict[str, str]], what: str, key: str, how: str) -> None:
    state[key][what] = how
    if what == "delete":
        (folder / key).unlink(missing_ok=True)
        state[key].pop("write", None)
        state[key]["gone"] = "yes"
    elif what == "label":
        rules = [
            f'  - {{ match: "{name}", groups: ["dev:{said["label"]}"] }}\n'
            if said["label"] != "nobody"
            else f'  - {{ match: "{name}", groups: [] }}\n'
            for name, said in state.items()
            if said.get("label")
        ]
        (folder / "labels.yaml").write_text(world.LABELS["handbook"] + "".join(rules))
    else:
        state[key].pop("gone", None)
        narrowing = state[key].get("narrow", "")
        head = f"---\nsensitivity: {narrowing}\n---\n" if narrowing else ""
        (folder / key).write_text(f"{head}# Page\n\nThe press, its guard, oil, sign and pay: {state[key].get('write', '')}.\n")


OWN = {"staff/oil.md": ("staff", 1), "staff/guard.md": ("staff", 1), "hr/pay.md": ("hr", 2), "all/signs.md": ("staff", 0)}
CLEARANCE = {"staff": 1, "hr": 2, "board": 3}
MEMBERS = {"staff": {"staff"}, "hr": {"staff", "hr"}, "board": {"staff", "hr", "board"}}


def _may_see(said: dict[str, str], key: str, group: str) -> bool:
    """By the words of labels and front matter alone."""
    own, least = OWN[key]
    wanted = {own} if not said.get("label") else {own} & {said["label"]}
    narrowed = said.get("narrow", "")
    if said.get("gone") or narrowed == "nonsense":
        return False
    return bool(wanted & MEMBERS[group]) and CLEARANCE[group] >= max(least, {"restricted": 3}.get(narrowed, 0))
