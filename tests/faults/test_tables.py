"""Tables under faults: whatever ends a copy, people go on asking the snapshot they had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import date

import duckdb
import pytest

from connectors.duckdb_tables import DuckTables
from connectors.table_snapshots import _translated
from router.domain import ColumnGrant, SqlLimits, TableGrant
from router.errors import SourceError
from router.filters import Always
from tests.sql.oracle import GATE
from tests.table_world import World
from tests.world import ROOT

ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c"
COPY = """
import json, sys
from pathlib import Path
from tests.table_world import World

world = World(Path(sys.argv[1]))
world.tables = json.loads(sys.argv[2])
world.copy()
"""


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.csv("t", "n\n1\n2\n")
    world.copy()
    return world


def endless(world: World, kind: str) -> str:
    """A table that is never copied whole: rows through Python, or the engine alone."""
    if kind == "rows":
        world.sqlite("CREATE TABLE x (n)")
        return f'{{"t": {{"database": "sqlite:///source.sqlite", "query": "{ENDLESS}", "types": {{"n": "BIGINT"}}}}}}'
    world.duckdb("CREATE VIEW t AS SELECT i, hash(i) AS h FROM range(100000000000) r(i)")
    return '{"t": {"path": "source.duckdb"}}'


def started(world: World, kind: str) -> subprocess.Popen[str]:
    """A process in the middle of a copy: its draft grows."""
    command = [sys.executable, "-c", COPY, str(world.folder), endless(world, kind)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while drafted(world) < 100_000:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


def drafted(world: World) -> int:
    folder = world.snapshots.path().parent
    return sum(path.stat().st_size for path in folder.glob("draft-*") if path.is_file())


@pytest.mark.parametrize("kind", ["rows", "engine"])
def test_killed_in_the_middle_leaves_the_old_snapshot(world, kind):
    before = world.snapshots.current()
    process = started(world, kind)
    process.kill()
    process.communicate()
    assert world.snapshots.current() == before
    assert world.rows("SELECT sum(n) FROM t") == [(3,)]
    world.csv("t", "n\n5\n")
    assert world.copy()["t"].outcome == "copied"
    assert drafted(world) == 0
    assert world.rows("SELECT sum(n) FROM t") == [(5,)]


@pytest.mark.parametrize("kind", ["rows", "engine"])
def test_ctrl_c_leaves_the_old_snapshot(world, kind):
    before = world.snapshots.current()
    process = started(world, kind)
    time.sleep(2)  # deep inside the statement
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert said.splitlines()[-1:] == ["KeyboardInterrupt"], (process.returncode, said)
    assert world.snapshots.current() == before
    assert drafted(world) == 0
    assert world.rows("SELECT sum(n) FROM t") == [(3,)]


@pytest.mark.parametrize(
    ("error", "interrupt"),
    [
        (duckdb.Error("KeyboardInterrupt: "), True),
        (duckdb.InterruptException("INTERRUPT Error"), True),
        (RuntimeError("Query interrupted"), True),
        (duckdb.ConversionException("Could not convert string 'KeyboardInterrupt: ' to INT64"), False),
        (duckdb.ConversionException("KeyboardInterrupt: interrupted"), False),
    ],
)
def test_ctrl_c_in_the_engines_own_words(error, interrupt):
    """Also while it registers or reads a batch: then its words are all there is of the signal. A cell's words are none."""
    with pytest.raises(KeyboardInterrupt if interrupt else SourceError), _translated("table_value", "no", ""):
        raise error


def test_two_runs_at_once(world):
    process = started(world, "rows")
    try:
        with pytest.raises(SourceError) as raised:
            world.copy(full=True)
        assert (raised.value.code, raised.value.retryable) == ("tables_busy", True)
    finally:
        process.kill()
        process.communicate()


# --- DuckDB files that are not as they should be ----------------------------------------------------------------------


def refused(world: World) -> SourceError:
    before = world.rows("SELECT * FROM t")
    world.tables["t"] = {"path": "source.duckdb"}
    report = world.copy()["t"]
    assert report.outcome == "failed"
    assert isinstance(report.error, SourceError)
    assert str(world.folder) not in str(report.error.as_json())
    assert world.rows("SELECT * FROM t") == before
    assert world.snapshots.current().tables[0].failed == report.error.code
    return report.error


def test_locked_duckdb_file(world):
    world.duckdb("CREATE TABLE t AS SELECT 7 AS n")
    hold = "import duckdb, sys\ncon = duckdb.connect(sys.argv[1])\nprint('held', flush=True)\nsys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(world.folder / "source.duckdb")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        error = refused(world)
        assert (error.code, error.retryable) == ("table_locked", True)
    finally:
        holder.communicate("")
    assert world.copy()["t"].outcome == "copied"


def test_missing_duckdb_file(world):
    error = refused(world)
    assert (error.code, error.retryable) == ("table_missing", True)
    assert not (world.folder / "source.duckdb").exists()


@pytest.mark.parametrize("damage", ["empty", "noise", "header", "middle", "cut"])
def test_corrupt_duckdb_file(world, damage):
    world.duckdb("CREATE TABLE t AS SELECT i, hash(i)::VARCHAR AS h FROM range(200000) r(i)")
    path = world.folder / "source.duckdb"
    whole = path.read_bytes()
    half = len(whole) // 2
    path.write_bytes(
        {
            "empty": b"",
            "noise": os.urandom(50_000),
            "header": b"\xff" * 4096 + whole[4096:],
            "middle": whole[:12288] + b"\xff" * (len(whole) - 12288),
            "cut": whole[:half],
        }[damage]
    )
    assert refused(world).code in {"table_unreadable", "table_failed", "table_value"}


def test_the_table_is_not_in_the_file(world):
    world.duckdb("CREATE TABLE other AS SELECT 7 AS n")
    assert refused(world).code == "table_unreadable"


@pytest.mark.parametrize("text", [b"PAR1" + b"\0" * 100 + b"PAR1", b"", b"n\n1\n"])
def test_corrupt_parquet_file(world, text):
    (world.folder / "t.parquet").write_bytes(text)
    world.tables["t"] = {"path": "t.parquet"}
    assert world.copy()["t"].error.code == "table_unreadable"
    assert world.rows("SELECT sum(n) FROM t") == [(3,)]


# --- size -------------------------------------------------------------------------------------------------------------

MEASURE = """
import resource, sys
from pathlib import Path
from tests.table_world import World

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

world = World(Path(sys.argv[1]))
world.tables = {"few": eval(sys.argv[2])}
world.copy()
before = peak()
world.tables = {"many": eval(sys.argv[3])}
report = world.copy()["many"]
assert report.error is None, report.error
print(report.rows, peak() - before)
"""


def grown_mb(world: World, few: dict[str, object], many: dict[str, object]) -> tuple[int, int]:
    """(rows, peak memory in MB beyond what a small copy took)"""
    command = [sys.executable, "-c", MEASURE, str(world.folder), repr(few), repr(many)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    rows, grown = map(int, done.stdout.split())
    return rows, grown


def test_ten_million_rows_of_a_file_in_flat_memory(world):
    con = duckdb.connect()
    for name, rows in (("few", 100_000), ("many", 10_000_000)):
        sql = f"SELECT i AS id, 'note ' || (i % 1013) AS note FROM range({rows}) r(i)"
        con.execute(f"COPY ({sql}) TO '{world.folder}/{name}.parquet' (FORMAT parquet)")
    con.close()
    rows, grown = grown_mb(world, {"path": "few.parquet"}, {"path": "many.parquet"})
    assert rows == 10_000_000
    assert grown < 350, grown


def test_rows_of_a_database_stream_in_flat_memory(world):
    """400,000 rows of 1,200 bytes through the driver: whole they would take far more."""
    world.sqlite("CREATE TABLE x (n)")
    many = f"SELECT n, printf('%01200d', n) AS t FROM ({ENDLESS} LIMIT ROWS)"
    place = {"database": "sqlite:///source.sqlite", "types": {"n": "BIGINT", "t": "VARCHAR"}}
    rows, grown = grown_mb(
        world, {**place, "query": many.replace("ROWS", "50000")}, {**place, "query": many.replace("ROWS", "400000")}
    )
    assert rows == 400_000
    assert grown < 350, grown  # the engine's own limit is 256


# --- a switch under those who ask -------------------------------------------------------------------------------------

GRANT = TableGrant("t", "main.t", (ColumnGrant("n"), ColumnGrant("version")), Always(), (), None, ("all",))


def test_a_switch_under_running_queries(world):
    """Every answer is of one version whole, none fails, and the last is of the last version."""
    limits = SqlLimits(timeout_s=10)

    def write(version: int) -> None:
        world.csv("t", "n,version\n" + "".join(f"{n},{version}\n" for n in range(1000 + version)))
        assert world.copy()["t"].outcome == "copied"

    write(0)
    seen: list[tuple[object, ...]] = []
    wrong: list[BaseException] = []
    with DuckTables(GATE, world.snapshots.path, workers=2, limits=limits) as engine:
        stop = threading.Event()

        def ask() -> tuple[object, ...]:
            text = "SELECT count(*), min(version), max(version) FROM t"
            return engine.run_governed(text, (GRANT,), tenant="x", today=date(2026, 1, 1), limits=limits, deadline_s=30).rows[0]

        def work() -> None:
            try:
                while not stop.is_set():
                    seen.append(ask())
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for version in range(1, 6):
            write(version)
            time.sleep(0.3)
        stop.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert ask() == (1005, 5, 5)
    assert all(low == high and rows == 1000 + low for rows, low, high in seen)
    assert len({low for _, low, _ in seen}) > 1
