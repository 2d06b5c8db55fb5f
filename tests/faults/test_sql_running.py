"""Governed SQL under faults, through the whole line: each costs its caller a code, is on record, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from router import decision
from router.app import Router
from router.config import load_settings
from router.errors import SourceError
from tests.rows_world import build_rows_world
from tests.world import ROOT, run_command

LONG = (
    "SELECT count(*) FROM claims_v a, claims_v b, claims_v c, claims_v d, claims_v e, claims_v f, claims_v g "
    "WHERE a.amount + b.amount > e.amount + c.amount + d.amount - f.amount - g.amount"
)
SHORT = "SELECT count(*) AS n FROM claims_v"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build_rows_world(tmp_path_factory.mktemp("sql") / "world").parent


@pytest.fixture
def config(built, tmp_path):
    return Path(shutil.copytree(built, tmp_path / "w")) / "pointsman.toml"


def sealed(router):
    """(outcome, code) of every decision, in order; every chain is whole."""
    found = []
    for tenant in router.ledger.tenants():
        assert decision.verify_chain(router.ledger.read(tenant)).whole
        bodies = [json.loads(record.body) for _, record in router.ledger.read(tenant)]
        asked = sum(body.get("outcome") is None and "principal" in body for body in bodies)
        answers = [(body["outcome"], (body["refusal"] or {}).get("code", "")) for body in bodies if body.get("outcome")]
        assert len(answers) == asked
        found += answers
    return found


def descendants(pid):
    """Command lines of the living processes in the session of `pid`."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(place.name)) == pid:
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [line for line in found if line]


def test_ctrl_c_at_the_command_line(config):
    """Exit code 130, one JSON document, no worker left, and the chain with the decision that was opened is whole."""
    command = [sys.executable, "-c", "from router.doors.cli import main; main()", "sql", "run", LONG, "--as", "analyst-1"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    started = subprocess.Popen(
        [*command, "--config", str(config), "--json"],
        cwd=config.parent, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while sum("forkserver" in line for line in descendants(started.pid)) < 2:  # the server of workers, and one of them
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.5)
    os.killpg(started.pid, signal.SIGINT)
    out, err = started.communicate(timeout=60)
    if started.returncode == 3:  # a slow machine: the statement met its own limit first
        assert json.loads(out)["refusal"]["code"] == "sql_limit_time"
    else:
        assert (started.returncode, json.loads(out).get("error", {}).get("code")) == (130, "interrupted"), (out, err)
    assert "Traceback" not in err, err
    deadline = time.monotonic() + 20
    while left := descendants(started.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    done = run_command("sql", "run", SHORT, "--as", "analyst-1", "--config", config, "--json", cwd=config.parent)
    assert done.returncode == 0, done.stdout
    with Router(load_settings(config)) as router:
        assert all(decision.verify_chain(router.ledger.read(tenant)).whole for tenant in router.ledger.tenants())


def test_a_worker_killed_from_outside(config):
    with Router(load_settings(config)) as router:
        token, other = router.mint("analyst-1"), router.mint("analyst-2")
        rows = router.ask_sql(SHORT, token=other).table.rows
        router.tables.warm()
        caught = []

        def ask():
            try:
                router.ask_sql(LONG, token=token)
            except SourceError as error:
                caught.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        killed = False
        deadline = time.monotonic() + 20
        while not killed and time.monotonic() < deadline:
            time.sleep(0.05)
            for worker in router.tables._all - set(router.tables._idle):
                os.kill(worker.process.pid, signal.SIGKILL)
                killed = True
        asking.join(30)
        assert [(error.code, error.retryable) for error in caught] == [("sql_worker_lost", True)]
        assert caught[0].decision_id
        assert router.ask_sql(SHORT, token=other).table.rows == rows
        assert sorted(sealed(router)) == [("answered", ""), ("answered", ""), ("refused", "sql_worker_lost")]


@pytest.mark.parametrize("damage", ["gone", "empty", "noise", "half"])
def test_a_snapshot_that_is_damaged(config, damage):
    """A code, a record, and what to do, which helps; never a traceback, a path or an answer."""
    (path,) = (config.parent / "state" / "tables").glob("tables-*.duckdb")
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "noise": os.urandom(50_000), "half": whole[:8192]}[damage])
    done = run_command("sql", "run", SHORT, "--as", "analyst-1", "--config", config, "--json", cwd=config.parent)
    assert done.returncode == 4
    error = json.loads(done.stdout)["error"]
    assert error["code"] == ("tables_missing" if damage == "gone" else "sql_database")
    assert "pointsman index" in error["hint"]
    assert str(config.parent) not in done.stdout.decode()
    assert b"Traceback" not in done.stderr
    again = error["hint"].split("`")[1].split()[1:]
    with Router(load_settings(config)) as router:
        assert [code for _, code in sealed(router)] == [error["code"]]
    assert run_command(*again, "--config", config, "--json", cwd=config.parent).returncode == 0
    with Router(load_settings(config)) as router:
        assert router.ask_sql(SHORT, token=router.mint("analyst-1")).table.rows[0][0] > 0


def test_a_switch_under_the_whole_line(config):
    """New copies while people ask: every answer is of one version, none fails, and the last sees the newest."""
    with Router(load_settings(config)) as router:
        token = router.mint("analyst-1")
        before = router.ask_sql(SHORT, token=token).table.rows
        wrong, seen, stop = [], [], threading.Event()

        def work():
            try:
                while not stop.is_set():
                    seen.append(router.ask_sql(SHORT, token=token, deadline_s=60).table.rows)
            except Exception as error:
                wrong.append(error)

        asking = [threading.Thread(target=work) for _ in range(3)]
        for thread in asking:
            thread.start()
        for _ in range(3):
            assert {report.outcome for report in router.copy_tables(full=True)} == {"copied"}
            time.sleep(0.3)
        stop.set()
        for thread in asking:
            thread.join()
        assert wrong == []
        assert set(seen) == {before}
        assert len(sealed(router)) == len(seen) + 1


def test_a_ledger_that_cannot_record_gives_no_rows(config):
    with Router(load_settings(config)) as router:
        token = router.mint("analyst-1")
        router.ask_sql(SHORT, token=token)
    ledger = config.parent / "state" / "ledger.sqlite"
    ledger.write_bytes(b"no ledger, but longer than the header of a database" * 100)
    done = run_command("sql", "run", SHORT, "--as", "analyst-1", "--config", config, "--json", cwd=config.parent)
    assert done.returncode == 5
    assert set(json.loads(done.stdout)) == {"error"}
