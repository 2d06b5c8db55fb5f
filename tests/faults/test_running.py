"""The whole of it while the machine misbehaves: kills, full disks, locks, strangers' files, many at once, broken policies."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.sqlite_documents import partition_name
from router import decision
from router.app import Router
from router.config import load_settings
from router.errors import LedgerError, PointsmanError, Refused, SourceError
from tests import world
from tests.world import ask_as, ids, run_command, write_page

QUESTION = "what does ERR-4012 on the press mean"
LONG_S = 60.0 if os.environ.get("POINTSMAN_LONG") else 12.0
COMMAND = [sys.executable, "-c", "from router.doors.cli import main; main()"]


@pytest.fixture
def memory(tmp_path):
    """A folder in memory where there is one: what is tested here is not the disk's speed."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def start(*arguments: object, cwd: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": str(world.ROOT)}
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)], cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def many_pages(folder: Path, count: int, version: int = 0) -> None:
    for number in range(count):
        text = "".join(f"\n## Part {part}\n\nPage {number} part {part} version {version} of the press.\n" for part in range(3))
        write_page(folder, f"notes/page-{number:03d}.md", f"# Page {number}\n{text}")


def torn(folder: Path) -> list[str]:
    """Documents in the store whose chunks are not all of one version, or not all there."""
    found = []
    for file in (folder / "state" / "stores" / partition_name("north")).glob("g-*.sqlite"):
        with contextlib.closing(sqlite3.connect(file)) as con:
            rows = con.execute(
                "SELECT d.id, group_concat(c.body, '|') FROM document d JOIN chunk c ON c.did = d.did WHERE d.id LIKE 'notes/page-%' "
                "GROUP BY d.id"
            ).fetchall()
        for name, bodies in rows:
            versions = [part.split()[0] for part in bodies.split("version ")[1:]]
            if len(versions) != 3 or len(set(versions)) != 1:
                found.append(f"{name}: {versions}")
    return found


# --- killed and interrupted -------------------------------------------------------------------------------------------


def test_kill_while_indexing(memory):
    """Twenty rounds: the pages change, the indexer is killed at some moment; no document is torn, and the next run finishes."""
    folder, draw = memory / "world", random.Random(4)
    config = world.write_world(folder, {})
    many_pages(folder, 16)
    began = time.monotonic()
    assert run_command("index", "--config", config, cwd=memory).returncode == 0
    whole_s = time.monotonic() - began
    killed = 0
    for round_number in range(1, 21):
        many_pages(folder, 16, round_number)
        started = start("index", "--config", config, "--json", cwd=memory)
        time.sleep(draw.uniform(0.35, 1.0) * whole_s)
        os.killpg(started.pid, signal.SIGKILL)
        killed += started.wait(30) == -signal.SIGKILL
        started.stdout.close()
        started.stderr.close()
        assert torn(folder) == []
    assert killed >= 8, "the rounds were too slow to meet a running indexer"
    with Router(load_settings(config)) as router:
        report = router.index()
        assert not any(source.failures or source.error for source in report.sources)
        assert [finding for finding in router.index_verify() if finding.kind != "note"] == []
        assert router.store.verify("north") == []
        answer = ask_as(router, "ada", "page 7 of the press", k=50)
        assert all(f"version {20}" in passage.text for passage in answer.passages if "version" in passage.text)
        assert all(decision.verify_chain(router.ledger.read(tenant)).whole for tenant in router.ledger.tenants())
    assert torn(folder) == []


def test_interrupt_while_indexing(memory):
    """Ctrl-C: exit code 130, one JSON document, stores whole, no process left behind, and the next run finishes."""
    folder = memory / "world"
    config = world.write_world(folder, {})
    many_pages(folder, 200)
    started = start("index", "--config", config, "--json", cwd=memory)
    store = folder / "state" / "stores" / partition_name("north")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(store.glob("g-*.sqlite")):
        time.sleep(0.02)
    time.sleep(0.2)
    os.killpg(started.pid, signal.SIGINT)  # as a terminal does: to everybody in the foreground
    out, err = started.communicate(timeout=60)
    assert started.returncode == 130, (started.returncode, out, err)
    assert json.loads(out)["error"]["code"] == "interrupted"
    assert b"Traceback" not in err
    deadline = time.monotonic() + 20
    while left := still_running(started.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    assert torn(folder) == []
    done = run_command("index", "--config", config, "--json", cwd=memory)
    assert done.returncode == 0
    done = run_command("index", "verify", "--config", config, "--json", cwd=memory)
    assert (done.returncode, json.loads(done.stdout)["findings"]) == (0, [])


def still_running(group: int) -> list[str]:
    """Command lines of the group's processes; an ended one that nobody has collected yet has none."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(place.name)) == group:
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [line for line in found if line]


def test_two_indexers_at_once(memory):
    """The second is told so at once; nothing waits and nothing mixes."""
    config = world.build_world(memory / "world")
    with Router.open(config) as one, Router.open(config) as other, one.manifest.exclusive():
        with pytest.raises(SourceError) as raised:
            other.index()
        assert raised.value.code == "index_busy"
        assert ask_as(other, "ada", QUESTION).outcome == "answered"


# --- many at once -----------------------------------------------------------------------------------------------------


def test_eight_askers_beside_one_indexer(memory):
    """Pages that are hidden from the askers come, change and go, and so do pages they may see: no error, no leak."""
    folder = memory / "world"
    config = world.build_world(folder)
    people = ["ada", "hal", "low", "bob", "sue", "ada", "max", "hal"]
    errors: list[str] = []
    leaks: list[tuple[str, str]] = []
    counts = [0] * len(people)
    over = threading.Event()

    def work(at: int, router: Router) -> None:
        token = router.mint(people[at], minutes=10)
        while not over.is_set():
            try:
                answer = router.ask(QUESTION, token=token, now=world.NOW, k=20)
            except PointsmanError as error:
                errors.append(f"{people[at]}: {error}")
                return
            if {entry.stage for entry in answer.degraded} - {"now"}:
                errors.append(f"{people[at]}: degraded {answer.degraded}")
            leaks.extend((people[at], name) for name in ids(answer) if not may_see(people[at], name))
            counts[at] += 1

    with Router.open(config) as shared, Router.open(config) as second, Router.open(config) as indexer:
        threads = [threading.Thread(target=work, args=(at, (shared, second)[at % 2])) for at in range(len(people))]
        for thread in threads:
            thread.start()
        ends = time.monotonic() + LONG_S
        turn = 0
        while time.monotonic() < ends and not errors:
            turn += 1
            secret = "".join(f"\nERR-4012 on the press, secret {turn}" for _ in range(3))
            for source in ("handbook/hr", "handbook/board", "notes/hidden", "notes", "elsewhere"):
                write_page(folder, f"{source}/turn-{turn % 3}.md", f"# ERR-4012 {turn}\n{secret}")
                (folder / source / f"turn-{(turn + 1) % 3}.md").unlink(missing_ok=True)
            report = indexer.index(full=turn % 5 == 0)
            assert not any(entry.error or entry.failures for entry in report.sources), report
        over.set()
        for thread in threads:
            thread.join(30)
        verdicts = [decision.verify_chain(shared.ledger.read(tenant)) for tenant in shared.ledger.tenants()]
    assert (errors, leaks) == ([], [])
    assert turn >= 3
    assert min(counts) >= 3
    assert all(verdict.whole and not verdict.open for verdict in verdicts)


def may_see(person: str, document: str) -> bool:
    """By the folders' labels, written down a second time."""
    if person == "bob":
        return False
    if person == "sue":
        return document.startswith("elsewhere/")
    allowed = {"low": ("handbook/all/",)}.get(person, ("handbook/all/", "handbook/staff/", "handbook/since/", "notes/"))
    extra = {"hal": ("handbook/hr/",), "max": ("handbook/hr/", "handbook/board/")}.get(person, ())
    if document.startswith("notes/hidden/"):
        return person == "max"
    return document.startswith((*allowed, *extra))


# --- full disks and locks ---------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(tmp_path):
    """A file system of two megabytes of its own. Mounting needs root; elsewhere a limit on file sizes stands in for it."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(place)], check=False, capture_output=True)
    yield place if mounted.returncode == 0 else None
    if mounted.returncode == 0:
        subprocess.run(["umount", "-l", str(place)], check=True)


LIMITED = """
import resource, sys
from router.doors.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
main()
"""


def run_limited(limit: int, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """No file may grow beyond `limit` bytes: what a full disk does to a file, without root."""
    call = [sys.executable, "-c", LIMITED, str(limit), *map(str, arguments)]
    return subprocess.run(
        call, check=False, cwd=cwd, env={**os.environ, "PYTHONPATH": str(world.ROOT)}, capture_output=True, timeout=120
    )


def test_ledger_that_cannot_grow_gives_no_answer(tmp_path):
    folder = tmp_path / "world"
    config = world.build_world(folder)
    size = (folder / "state" / "ledger.sqlite").stat().st_size
    done = run_limited(size, "ask", QUESTION, "--as", "ada", "--config", config, "--json", cwd=tmp_path)
    for _ in range(40):  # free pages of the file may take the first records
        if done.returncode:
            break
        done = run_limited(size, "ask", QUESTION, "--as", "ada", "--config", config, "--json", cwd=tmp_path)
    body = json.loads(done.stdout)
    assert done.returncode == 5, body
    assert body["error"]["code"] in {"ledger_full", "ledger_unwritable"}
    assert "passages" not in body
    done = run_command("log", "verify", "--config", config, "--json", cwd=tmp_path)
    assert done.returncode == 0


def test_full_disk_for_the_ledger(tmp_path, full_disk):
    folder = tmp_path / "world"
    config = world.build_world(folder)
    if full_disk is not None:
        shutil.copy(folder / "state" / "ledger.sqlite", full_disk / "ledger.sqlite")
        with config.open("a") as file:
            file.write(f'[ledger]\nurl = "{full_disk / "ledger.sqlite"}"\n')
        (full_disk / "ballast").write_bytes(b"x" * shutil.disk_usage(full_disk).free)
        with Router.open(config) as router:
            with pytest.raises(LedgerError) as raised:
                ask_as(router, "ada", QUESTION)
            assert raised.value.code == "ledger_full"
            (full_disk / "ballast").unlink()
            assert ask_as(router, "ada", QUESTION).outcome == "answered"
            assert decision.verify_chain(router.ledger.read("north")).whole


def test_full_disk_for_the_store(tmp_path, full_disk):
    """Indexing ends with a code and changes nothing that is shown; after space was made it finishes."""
    folder = tmp_path / "world"
    config = world.build_world(folder)
    many_pages(folder, 30)
    if full_disk is None:
        largest = max(file.stat().st_size for file in (folder / "state" / "stores").rglob("g-*.sqlite"))
        done = run_limited(largest + 4096, "index", "--config", config, "--json", cwd=tmp_path)
        assert done.returncode == 4
        assert json.loads(done.stdout)["error"]["code"] in {"store_full", "store_unreadable"}
    else:
        stores = full_disk / "stores"
        shutil.copytree(folder / "state" / "stores", stores)
        with config.open("a") as file:
            file.write(f'[stores]\npath = "{stores}"\n')
        (full_disk / "ballast").write_bytes(b"x" * max(0, shutil.disk_usage(full_disk).free - 131_072))
        with Router.open(config) as router:
            with pytest.raises(SourceError) as raised:
                router.index()
            assert raised.value.code == "store_full"
            (full_disk / "ballast").unlink()
    with Router.open(config) as router:
        assert set(ids(ask_as(router, "ada", QUESTION))) >= {"notes/monday.md", "handbook/staff/press.md"}
        assert not any(source.failures or source.error for source in router.index().sources)
        assert "notes/page-007.md" in ids(ask_as(router, "ada", "page 7", k=50))
        assert router.index_verify() == []


HOLDER = """
import sqlite3, sys
con = sqlite3.connect(sys.argv[1], isolation_level=None)
con.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Held by another process: two libraries of SQLite in one process do not see each other's locks."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        yield
    finally:
        holder.stdin.close()
        holder.wait(20)
        holder.stdout.close()


def test_locked_store(tmp_path):
    """An asker reads beside a writer; an indexer that cannot write says so."""
    folder = tmp_path / "world"
    config = world.build_world(folder)
    [file] = (folder / "state" / "stores" / partition_name("north")).glob("g-*.sqlite")
    write_page(folder, "notes/new.md", "# New\n\nA new page of the press.\n")
    with Router.open(config) as router:
        with locked(file):
            assert ask_as(router, "ada", QUESTION).outcome == "answered"
            router.store._busy_s = 0.2
            with pytest.raises(SourceError) as raised:
                router.index()
            assert (raised.value.code, raised.value.retryable) == ("store_busy", True)
        router.index()
        assert "notes/new.md" in ids(ask_as(router, "ada", "new page of the press"))


def test_locked_ledger(tmp_path):
    folder = tmp_path / "world"
    config = world.build_world(folder)
    with locked(folder / "state" / "ledger.sqlite"):
        done = run_command("ask", QUESTION, "--as", "ada", "--config", config, "--json", cwd=tmp_path)
    assert done.returncode == 5
    assert json.loads(done.stdout)["error"]["code"] == "ledger_locked"


# --- strangers' files -------------------------------------------------------------------------------------------------


def swap_stores(folder: Path) -> None:
    stores = folder / "state" / "stores"
    north, south = stores / partition_name("north"), stores / partition_name("south")
    shutil.rmtree(south)
    shutil.copytree(north, south)


def test_another_tenants_store_in_place_of_ones_own(tmp_path):
    """A restored backup in the wrong place: refused, for asking and for indexing, and not a word of it gets out."""
    config = world.build_world(tmp_path / "world")
    swap_stores(tmp_path / "world")
    with Router.open(config) as router:
        with pytest.raises(SourceError) as raised:
            ask_as(router, "sue", QUESTION)
        assert raised.value.code == "tenant_mismatch"
        assert "north" not in raised.value.message + raised.value.hint
        assert ask_as(router, "ada", QUESTION).outcome == "answered"
        with pytest.raises(SourceError) as raised:
            router.index()
        assert raised.value.code == "tenant_mismatch"
    done = run_command("ask", QUESTION, "--as", "sue", "--config", config, "--json", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (4, "tenant_mismatch")


def test_another_tenants_store_exchanged_while_running(tmp_path):
    """Also behind the back of a router that has the file open: what it answers is its own tenant's, or an error."""
    config = world.build_world(tmp_path / "world")
    with Router.open(config) as router:
        assert set(ids(ask_as(router, "sue", QUESTION))) == {"elsewhere/press.md", "elsewhere/oil.md"}
        swap_stores(tmp_path / "world")
        found, codes = [], set()
        for _ in range(3):
            try:
                found += ids(ask_as(router, "sue", QUESTION))
            except SourceError as error:
                codes.add(error.code)
        assert set(found) <= {"elsewhere/press.md", "elsewhere/oil.md"}
        assert codes <= {"tenant_mismatch", "store_unreadable"}


# --- policies while running -------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_policy_folder_broken_while_running(tmp_path):
    """Readiness turns red at once; the last good version serves for the grace; then every question is refused, and a mended
    folder serves again. A refusal for policy is no refused token."""
    config = world.build_world(tmp_path / "world")
    with Router(load_settings(config)) as router:
        clock = Clock()
        router.policies._clock = clock
        router.policies._looked_at_s = clock()
        version = ask_as(router, "ada", QUESTION).policy_version
        file = tmp_path / "world" / "policies" / "documents.cedar"
        good = file.read_text()
        file.write_text(good + "\npermit (")
        clock.now_s += 2
        assert not router.policies.ready
        assert ask_as(router, "ada", QUESTION).policy_version == version
        clock.now_s += 61
        token_rows = list(router.ledger.read("-"))
        for call in (lambda: router.ask(QUESTION, token="any"), lambda: router.whoami("any"), lambda: router.mint("ada")):
            with pytest.raises(Refused) as raised:
                call()
            assert (raised.value.code, raised.value.exit_code) == ("policy_invalid", 3)
        assert list(router.ledger.read("-")) == token_rows
        file.write_text(good + "\n// mended\n")
        clock.now_s += 2
        answer = ask_as(router, "ada", QUESTION)
        assert router.policies.ready
        assert answer.policy_version != version
        kinds = [record.kind for _, record in router.ledger.read("-")]
        assert kinds == ["policy_loaded"]


def test_policy_that_takes_a_right_away_counts_at_once(tmp_path):
    config = world.build_world(tmp_path / "world")
    with Router(load_settings(config)) as router:
        clock = Clock()
        router.policies._clock = clock
        router.policies._looked_at_s = clock()
        assert "handbook/hr/accident.md" in ids(ask_as(router, "hal", QUESTION))
        with (tmp_path / "world" / "policies" / "00-never.cedar").open("a") as file:
            file.write(
                '\n@id("no-hr") @reason("r") @owner("o") forbid (principal, action == Pointsman::Action::"search", resource)\n'
                'when { resource.groups.contains("dev:hr") };\n'
            )
        clock.now_s += 2
        assert "handbook/hr/accident.md" not in ids(ask_as(router, "hal", QUESTION))


def test_refused_tokens_are_summed_on_record_and_logged(tmp_path):
    config = world.build_world(tmp_path / "world")
    with Router(load_settings(config)) as router:
        good = router.mint("ada")
        for token in ("", "nonsense", good[:-4] + "AAAA", good[:-4] + "AAAA"):
            with pytest.raises(Refused):
                router.whoami(token)
    with Router(load_settings(config)) as router:
        sums = [json.loads(record.body) for _, record in router.ledger.read("-") if record.kind == "refused_tokens"]
        assert sum(entry["count"] for entry in sums) == 4
        assert {entry["issuer"] for entry in sums} == {"dev", "unknown"}
        lines = (tmp_path / "world" / "state" / "pointsman.jsonl").read_text()
        assert lines.count('"token_refused"') == 4
        assert good[:40] not in lines
