"""The ledger when the machine fails it: no torn row, no lost acknowledged row, and a clear error each time."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.ledger import SqlLedger
from router import decision
from router.domain import Record
from router.errors import LedgerError

ROOT = Path(__file__).parents[2]
APPENDER = """
import json, os, sys, threading, time
from pathlib import Path
from connectors.ledger import SqlLedger
from router.domain import Record
from router.errors import LedgerError

path, tenant, threads, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
ledger = SqlLedger(path)

def work(number):
    for turn in range(count):
        records = [Record(tenant, f"d-{os.getpid()}-{number}-{turn}", kind, 1, b"{}" * 400) for kind in ("asked", "answered")]
        links = ledger.append(records)
        os.write(1, (json.dumps([link.seq for link in links] + [links[-1].digest]) + "\\n").encode())

workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
"""
LIMITED = """
import json, os, resource, sys
from pathlib import Path
from connectors.ledger import SqlLedger
from router.domain import Record
from router.errors import LedgerError

def appended(ledger):
    return ledger.append([Record("fabrikam", "d-1", "k", 1, b"x" * 20000)])[0].seq

warm = SqlLedger(Path(sys.argv[2])); appended(warm); warm.close()
ledger = SqlLedger(Path(sys.argv[1]))
if sys.argv[3] == "nobody":
    os.setgid(65534); os.setuid(65534)
elif sys.argv[3] == "limit":
    appended(ledger)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
seq = 0
try:
    for _ in range(100):
        seq = appended(ledger)
except LedgerError as error:
    print(json.dumps([seq, error.code, error.message + error.hint]))
"""


def row(number: int = 0, size: int = 10) -> Record:
    return Record("fabrikam", f"d-{number}", "label_change", 1, b"x" * size)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a-private-folder-name" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[SqlLedger]:
    opened = SqlLedger(path, busy_s=0.3)
    opened.append([row(0), row(1)])
    yield opened
    opened.close()


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def code_of(ledger: SqlLedger, record: Record | None = None) -> str:
    with pytest.raises(LedgerError) as raised:
        ledger.append([record or row()])
    return raised.value.code


def seqs(path: Path, tenant: str = "fabrikam") -> list[int]:
    """Read by a fresh process's eyes, the chain verified on the way."""
    ledger = SqlLedger(path)
    verdict = decision.verify_chain(ledger.read(tenant))
    assert verdict.whole, verdict.faults[:3]
    found = [link.seq for link, _ in ledger.read(tenant)]
    ledger.close()
    return found


# --- processes ---


def test_kill_while_appending(path: Path) -> None:
    """Twenty rounds: four threads append, the process is killed; the chain verifies and every acknowledged row is there."""
    dice, rows = random.Random(4), 0
    for _ in range(20):
        process = start(APPENDER, path, "fabrikam", 4, 10_000)
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(dice.uniform(0, 0.15))
        process.kill()
        lines = [first, *process.stdout.readlines()]
        process.communicate()
        acknowledged = [json.loads(line) for line in lines if line.endswith("\n")]
        assert acknowledged, "the round tested nothing"
        ledger = SqlLedger(path)
        verdict = decision.verify_chain(ledger.read("fabrikam"))
        assert verdict.whole, verdict.faults[:3]
        digests = {link.seq: link.digest for link, _ in ledger.read("fabrikam", after_seq=rows)}
        ledger.close()
        assert all(digests[last] == digest for _, last, digest in acknowledged)
        assert verdict.rows % 2 == 0, "a call of two records is stored whole or not at all"
        assert verdict.open == ()
        rows = verdict.rows


def test_eight_processes_append(path: Path) -> None:
    processes = [start(APPENDER, path, f"t{number % 2}", 2, 10) for number in range(8)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [(process.returncode, errors) for process, (_, errors) in zip(processes, outputs, strict=True)] == [(0, "")] * 8
    for tenant in ("t0", "t1"):
        reported = [
            seq
            for number, (output, _) in enumerate(outputs)
            if f"t{number % 2}" == tenant
            for line in output.splitlines()
            for seq in json.loads(line)[:-1]
        ]
        assert sorted(reported) == seqs(path, tenant) == list(range(1, 161))


# --- the disk ---


def test_full_disk(ledger: SqlLedger, path: Path) -> None:
    writer = ledger._open_writer().dbapi_connection
    assert writer is not None
    writer.execute("PRAGMA max_page_count = 60")  # type: ignore[attr-defined]
    stored = 2
    with pytest.raises(LedgerError) as raised:
        for number in range(200):
            ledger.append([row(number, 3_000), row(number, 3_000)])
            stored += 2
    assert raised.value.code == "ledger_full"
    assert stored > 2
    assert seqs(path) == list(range(1, stored + 1)), "nothing acknowledged is lost, nothing refused is stored"
    assert ledger.append([row()])[0].seq == stored + 1, "with space again it goes on"


def test_write_beyond_a_file_size_limit(path: Path, tmp_path: Path) -> None:
    output, errors = start(LIMITED, path, tmp_path / "warm.db", "limit").communicate(timeout=60)
    assert errors == ""
    seq, code, _ = json.loads(output)
    assert code in {"ledger_full", "ledger_unwritable"}
    assert seqs(path) == list(range(1, seq + 1))
    assert seq > 2


def test_read_only_file() -> None:
    """As an ordinary user, also where the suite runs as root."""
    folder = Path(tempfile.mkdtemp(prefix="pointsman-read-only-"))
    try:
        path = folder / "ledger.db"
        ledger = SqlLedger(path)
        ledger.append([row()])
        ledger.close()
        path.chmod(0o444)
        folder.chmod(0o555)
        who = "nobody" if os.geteuid() == 0 else "myself"
        warm = Path(tempfile.mkdtemp()) / "warm.db"
        output, errors = start(LIMITED, path, warm, who).communicate(timeout=60)
        shutil.rmtree(warm.parent)
        assert errors == ""
        assert json.loads(output)[:2] == [0, "ledger_unwritable"]
        assert seqs(path) == [1]
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_removed_or_replaced_file(ledger: SqlLedger, path: Path) -> None:
    kept = path.read_bytes()
    path.unlink()
    assert code_of(ledger) == "ledger_unwritable"
    assert code_of(ledger) == "ledger_unwritable"
    assert not path.exists(), "no new ledger appears in place of a lost one"
    path.write_bytes(kept)
    assert code_of(ledger) == "ledger_unwritable"
    assert seqs(path) == [1, 2]


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "ledger.db", tmp_path):
        ledger = SqlLedger(path)
        assert code_of(ledger) == "ledger_unwritable"
        with pytest.raises(LedgerError):
            ledger.check()


# --- locks ---


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_locked_file(ledger: SqlLedger, path: Path, lock: str) -> None:
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute(f"BEGIN {lock}")
        before = time.monotonic()
        assert code_of(ledger) == "ledger_locked"
        assert time.monotonic() - before < 2
        other.execute("ROLLBACK")
    assert ledger.append([row()])[0].seq == 3


def test_reader_that_never_ends(ledger: SqlLedger, path: Path) -> None:
    """A stranger's open read blocks the commit itself: nothing is stored, and no lock waits for the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        with sqlite3.connect(path, isolation_level=None) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM ledger_records").fetchone()
            assert code_of(ledger) == "ledger_locked"
            other.execute("ROLLBACK")
        assert seqs(path) == [1, 2]
        assert ledger.append([row()])[0].seq == 3
    finally:
        gc.enable()


# --- what the file holds ---


def fresh(path: Path) -> SqlLedger:
    return SqlLedger(path, busy_s=0.3)


def test_corrupt_file(ledger: SqlLedger, path: Path) -> None:
    ledger.append([row(number, 3_000) for number in range(40)])
    ledger.close()
    whole = path.read_bytes()
    for damaged in (b"not a database " * 400, whole[:4096] + os.urandom(len(whole) - 4096), b"\0" * 8192):
        path.write_bytes(damaged)
        assert code_of(fresh(path)) == "ledger_corrupt"
        with pytest.raises(LedgerError) as raised:
            list(fresh(path).read("fabrikam"))
        assert raised.value.code == "ledger_corrupt"
        assert path.read_bytes() == damaged, "a damaged ledger is evidence: it is left as it is"


def test_some_other_database(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE chunks (id INTEGER)")
    before = path.read_bytes()
    assert code_of(fresh(path)) == "ledger_corrupt"
    assert path.read_bytes() == before


def test_newer_schema(ledger: SqlLedger, path: Path) -> None:
    ledger.close()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE ledger_schema SET version = 2")
    for use in (
        lambda opened: opened.append([row()]),
        lambda opened: list(opened.read("fabrikam")),
        lambda opened: opened.check(),
    ):
        with pytest.raises(LedgerError) as raised:
            use(fresh(path))
        assert raised.value.code == "ledger_newer"


def test_write_ahead_log_is_left(ledger: SqlLedger, path: Path) -> None:
    """Somebody's tool switched the file to WAL, which the standard library's SQLite may corrupt: it is switched back."""
    ledger.close()
    with sqlite3.connect(path, isolation_level=None) as other:
        assert other.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    other.close()
    assert fresh(path).append([row()])[0].seq == 3
    assert seqs(path) == [1, 2, 3]
    assert [entry.name for entry in path.parent.iterdir() if "wal" in entry.name] == []


# --- errors ---


def test_errors_name_no_path(ledger: SqlLedger, path: Path) -> None:
    errors = []
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        errors += [_error(ledger), _error(fresh(path))]
        other.execute("ROLLBACK")
    path.write_bytes(b"not a database " * 400)
    errors.append(_error(fresh(path)))
    path.unlink()
    path.mkdir()
    errors.append(_error(fresh(path)))
    errors.append(_error(SqlLedger("postgresql://someone:a-private-password@127.0.0.1:1/a-private-name", busy_s=0.3)))
    for error in errors:
        shown = json.dumps(error.as_json()) + repr(error) + str(error)
        assert "a-private" not in shown
        assert "127.0.0.1" not in shown
        assert error.message == error.message.strip(".")
        assert error.hint
        assert error.__cause__ is None


def _error(ledger: SqlLedger) -> LedgerError:
    with pytest.raises(LedgerError) as raised:
        ledger.append([row()])
    return raised.value
