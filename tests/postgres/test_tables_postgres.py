"""Tables copied from a real PostgreSQL: exact values, refused types, and a server that goes away in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from router.errors import SourceError
from tests.table_world import World

ROOT = Path(__file__).parents[2]
COPY = """
import sys
from pathlib import Path
from tests.table_world import World

world = World(Path(sys.argv[1]))
world.tables = {"t": {"database_env": "POINTSMAN_TEST_TABLES", "query": sys.argv[2]}}
error = world.copy()["t"].error
print(error.code, error.retryable)
"""


@pytest.fixture
def address() -> Iterator[str]:
    server = os.environ.get("POINTSMAN_TEST_POSTGRES", "")
    if not server:
        pytest.fail('set POINTSMAN_TEST_POSTGRES="$(deploy/dev/postgres.sh start)"')
    name = f"tables_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    yield sa.make_url(server).set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]


@pytest.fixture
def world(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("POINTSMAN_TEST_TABLES", address)
    world = World(tmp_path)
    world.tables["t"] = {"database_env": "POINTSMAN_TEST_TABLES"}
    return world


def run(address: str, sql: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(sql)  # type: ignore[arg-type]


def failed(world: World) -> SourceError:
    report = world.copy()["t"]
    assert report.outcome == "failed"
    assert isinstance(report.error, SourceError)
    return report.error


def test_values_arrive_exactly(world: World, address: str) -> None:
    run(
        address,
        """SET timezone = 'Asia/Tokyo'; SET datestyle = 'German';
        CREATE TYPE mood AS ENUM ('calm', 'cross');
        CREATE TABLE t (n integer PRIMARY KEY, big bigint, small smallint, yes boolean, amount numeric(12,2), exact numeric(38,0),
          f double precision, r real, txt text, vc varchar(20), c char(4), d date, ts timestamp, tz timestamptz, tm time, u uuid,
          b bytea, j jsonb, tags text[], nums integer[], "Odd name; --" text);
        INSERT INTO t VALUES (1, 9223372036854775807, -32768, true, 1234567890.12, 12345678901234567890123456789012345678, 0.1,
          'NaN', 'a "b" é\n' || chr(8232), 'x', 'ab', '2026-02-28', '2026-01-02 03:04:05.678901', '2026-01-02 03:04:05+09',
          '23:59:59', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '\\x00ff', '{"a": 1.10}', '{a,"b,c",NULL}', '{1,2}', ':x'),
          (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL)""",
    )
    assert world.copy()["t"].error is None
    assert world.types("t") == {
        "n": "INTEGER", "big": "BIGINT", "small": "SMALLINT", "yes": "BOOLEAN", "amount": "DECIMAL(12,2)", "exact": "DECIMAL(38,0)",
        "f": "DOUBLE", "r": "FLOAT", "txt": "VARCHAR", "vc": "VARCHAR", "c": "VARCHAR", "d": "DATE", "ts": "TIMESTAMP",
        "tz": "TIMESTAMP", "tm": "TIME", "u": "UUID", "b": "BLOB", "j": "VARCHAR", "tags": "VARCHAR[]", "nums": "INTEGER[]",
        "Odd name; --": "VARCHAR",
    }  # fmt: skip
    columns = "n, big, small, yes, amount::VARCHAR, exact::VARCHAR, f, isnan(r), txt, vc, d::VARCHAR, ts::VARCHAR, tz::VARCHAR, tm::VARCHAR"
    first, second = world.rows(f'SELECT {columns}, u::VARCHAR, b, j, tags, nums, "Odd name; --" FROM t ORDER BY n')
    assert first == (
        1, 9223372036854775807, -32768, True, "1234567890.12", "12345678901234567890123456789012345678", 0.1, True,
        'a "b" é\n\u2028', "x", "2026-02-28", "2026-01-02 03:04:05.678901", "2026-01-01 18:04:05", "23:59:59",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", b"\x00\xff", '{"a": 1.10}', ["a", "b,c", None], [1, 2], ":x",
    )  # fmt: skip
    assert second == (2, *[None] * 7, "", *[None] * 8, [], None, None)
    snapshot = world.snapshots.current()
    assert snapshot is not None
    assert snapshot.tables[0].origin == "postgresql"


@pytest.mark.parametrize(
    "declared", ["interval", "numeric", "money", "int4range", "tsvector", "point", "bytea[]", "timetz", "xml"]
)
def test_types_without_an_equal_are_refused(world: World, address: str, declared: str) -> None:
    run(address, f"CREATE TABLE t (n integer, odd {declared})")
    error = failed(world)
    assert error.code == "table_type"
    assert "`odd`" in error.message
    world.tables["t"]["types"] = {"odd": "VARCHAR"}
    assert world.copy()["t"].outcome == "copied"


def test_views_schemas_and_queries(world: World, address: str) -> None:
    run(address, "CREATE SCHEMA s; CREATE TABLE s.x AS SELECT 7 AS n, 'y'::text AS v; CREATE VIEW t AS SELECT n FROM s.x")
    world.tables["deep"] = {"database_env": "POINTSMAN_TEST_TABLES", "table": "s.x"}
    world.tables["asked"] = {
        "database_env": "POINTSMAN_TEST_TABLES",
        "query": "SELECT n::numeric(5,1) AS m, ':v' || v AS v FROM s.x -- all of it\n;",
    }
    assert {name: report.error for name, report in world.copy().items()} == {"t": None, "deep": None, "asked": None}
    assert world.rows("SELECT t.n, deep.v, asked.m::VARCHAR, asked.v FROM t, deep, asked") == [(7, "y", "7.0", ":vy")]


def test_a_query_cannot_write(world: World, address: str) -> None:
    run(
        address,
        "CREATE TABLE x (n integer); CREATE FUNCTION w() RETURNS integer LANGUAGE sql AS 'INSERT INTO x VALUES (1) RETURNING n'",
    )
    world.tables["t"]["query"] = "SELECT w() AS n"
    assert failed(world).code == "source_failed"
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT count(*) FROM x").fetchone() == (0,)


def test_no_server_and_no_table(world: World, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failed(world).code == "source_failed"
    monkeypatch.setenv("POINTSMAN_TEST_TABLES", "postgresql://u:hunter2@/nowhere?host=/nonexistent")
    error = failed(world)
    assert (error.code, error.retryable) == ("source_unavailable", True)
    assert "hunter2" not in str(error.as_json())


def test_server_gone_in_the_middle_leaves_the_old_snapshot(world: World, address: str) -> None:
    run(address, "CREATE TABLE t AS SELECT 1 AS n")
    world.copy()
    before = world.snapshots.current()
    query = "SELECT i AS n, repeat('x', 50) AS v FROM generate_series(1, 100000000) i"
    process = subprocess.Popen(
        [sys.executable, "-c", COPY, str(world.folder), query],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    folder, until = world.snapshots.path().parent, time.monotonic() + 60
    while sum(path.stat().st_size for path in folder.glob("draft-*") if path.is_file()) < 1_000_000:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    run(address, others)
    said, wrong = process.communicate(timeout=60)
    assert said == "source_unavailable True\n", wrong
    after = world.snapshots.current()
    assert after is not None
    assert before is not None
    assert (after.version, after.tables[0].failed) == (before.version, "source_unavailable")
    assert world.rows("SELECT n FROM t") == [(1,)]
    assert not list(folder.glob("draft-*"))
