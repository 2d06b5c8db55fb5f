"""Tables of files and databases become versions of one snapshot: whole, typed, checked, or not at all."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import stat

import pytest

from connectors.table_snapshots import RECORD, DuckSnapshots
from router.errors import SourceError, UsageError
from tests.table_world import World

CANARY = "zebra-canary-77"


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


# --- what is copied ---------------------------------------------------------------------------------------------------


def test_csv_parquet_sqlite_and_duckdb_in_one_snapshot(world):
    world.csv("depots", "depot,place,opened\n1,Harrow Quay,2019-04-01\n4,Wickham Cross,\n")
    world.duckdb(f"COPY (SELECT i AS id, i * 1.5 AS v FROM range(5) r(i)) TO '{world.folder}/parts.parquet' (FORMAT parquet)")
    world.tables["parts"] = {"path": "parts.parquet"}
    world.duckdb("CREATE TABLE stock AS SELECT 'PN-1' AS part, 7 AS n; CREATE SCHEMA x; CREATE TABLE x.y AS SELECT 1 AS a")
    world.tables["stock"] = {"path": "source.duckdb"}
    world.tables["deep"] = {"path": "source.duckdb", "table": "x.y"}
    url = world.sqlite("CREATE TABLE claims (id INTEGER, note TEXT, amount DECIMAL(10,2)); INSERT INTO claims VALUES (1,'a',2.5)")
    world.tables["claims"] = {"database": url}
    world.tables["asked"] = {
        "database": url,
        "query": "SELECT id AS n, ':x' AS t FROM claims",
        "types": {"n": "INTEGER", "t": "VARCHAR"},
    }
    reports = world.copy()
    assert {name: (report.outcome, report.rows) for name, report in reports.items()} == {
        "asked": ("copied", 1),
        "claims": ("copied", 1),
        "deep": ("copied", 1),
        "depots": ("copied", 2),
        "parts": ("copied", 5),
        "stock": ("copied", 1),
    }
    assert world.types("depots") == {"depot": "BIGINT", "place": "VARCHAR", "opened": "DATE"}
    assert world.types("claims") == {"id": "BIGINT", "note": "VARCHAR", "amount": "DECIMAL(10,2)"}
    assert str(world.rows("SELECT amount FROM claims")) == "[(Decimal('2.50'),)]"
    assert world.rows("SELECT place, opened IS NULL FROM depots ORDER BY 1") == [("Harrow Quay", False), ("Wickham Cross", True)]
    assert world.rows("SELECT n, t FROM asked") == [(1, ":x")]
    snapshot = world.snapshots.current()
    assert [(table.name, table.origin, table.copied_at_us) for table in snapshot.tables][:2] == [
        ("asked", "sqlite", world.now_us),
        ("claims", "sqlite", world.now_us),
    ]


def test_several_files_of_one_kind(world):
    world.write("a-1.csv", "x,y\n1,a\n")
    world.write("a-2.csv", "x,y\n2,b\n")
    world.tables["both"] = {"path": "a-*.csv"}
    assert world.copy()["both"].rows == 2
    world.write("a-3.csv", "x,y\n3,c\n")
    assert world.copy()["both"].rows == 3


def test_texts_of_a_database_stay_what_they_are(world):
    """Empty is not NULL, and nothing that a CSV or SQL reader would take for its own is changed."""
    texts = ["", "NULL", "\\N", 'a"b', "it's", "two\nlines\r\n", "a,b;c\td", "é – 漢 𝄞", "a\0b", "  padded ", "true", "-0.10"]
    con = sqlite3.connect(world.folder / "source.sqlite")
    con.execute("CREATE TABLE t (n INTEGER, v TEXT, b BLOB)")
    con.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n, text, text.encode()) for n, text in enumerate(texts)])
    con.execute("INSERT INTO t VALUES (99, NULL, NULL)")
    con.commit()
    con.close()
    world.tables["t"] = {"database": "sqlite:///source.sqlite"}
    world.copy()
    assert world.rows("SELECT v, b FROM t ORDER BY n") == [*((text, text.encode()) for text in texts), (None, None)]


def test_a_leading_zero_makes_a_text(world):
    world.csv("parts", "part,zip,n,f\n00123,04101,1,0.5\n00124,99999,2,0.25\n")
    world.copy()
    assert world.types("parts") == {"part": "VARCHAR", "zip": "VARCHAR", "n": "BIGINT", "f": "DOUBLE"}
    assert world.rows("SELECT part FROM parts ORDER BY n") == [("00123",), ("00124",)]


def test_types_that_are_said_win(world):
    world.csv("parts", "n,amount,day\n1,2.50,2026-01-02\n", types={"n": "VARCHAR", "amount": "DECIMAL(12,2)"})
    world.copy()
    assert world.types("parts") == {"n": "VARCHAR", "amount": "DECIMAL(12,2)", "day": "DATE"}


def test_instants_with_a_zone_become_utc(world):
    world.duckdb("CREATE TABLE t AS SELECT TIMESTAMPTZ '2026-01-01 01:00:00+02' AS moment, 'x'::ENUM('x') AS e, ['a'] AS tags")
    world.tables["t"] = {"path": "source.duckdb"}
    world.copy()
    assert world.types("t") == {"moment": "TIMESTAMP", "e": "VARCHAR", "tags": "VARCHAR[]"}
    assert world.rows("SELECT CAST(moment AS VARCHAR) FROM t") == [("2025-12-31 23:00:00",)]


# --- what is refused --------------------------------------------------------------------------------------------------


def failed(world: World, table: str = "t") -> SourceError:
    report = world.copy()[table]
    assert (report.outcome, report.rows) == ("failed", 0)
    assert isinstance(report.error, SourceError)
    assert report.error.message == report.error.message.strip().rstrip(".")
    return report.error


def test_type_that_cannot_be_served(world):
    world.duckdb("CREATE TABLE t AS SELECT 1 AS ok, UNION_VALUE(a := 1) AS odd")
    world.tables["t"] = {"path": "source.duckdb"}
    error = failed(world)
    assert error.code == "table_type"
    assert "`odd`" in error.message
    assert "[tables.t.types]" in error.hint
    assert world.snapshots.current().version == ""
    world.duckdb("CREATE OR REPLACE TABLE t AS SELECT {'a': [UNION_VALUE(b := 1)]} AS nested")
    assert failed(world).code == "table_type"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (f"CREATE TABLE t (n INTEGER); INSERT INTO t VALUES ('{CANARY}')", "table_value"),
        (f"CREATE TABLE t (d DATE); INSERT INTO t VALUES ('2026-01-01'), ('{CANARY}')", "table_value"),
        (f"CREATE TABLE t (d DECIMAL(4,2)); INSERT INTO t VALUES ('{CANARY}')", "table_value"),
        ("CREATE TABLE t (d GEOMETRY)", "table_type"),
        ("CREATE TABLE t (d NUMERIC)", "table_type"),
        ('CREATE TABLE t (a INTEGER, " " INTEGER)', "table_columns"),
        (f"CREATE TABLE other (a TEXT); INSERT INTO other VALUES ('{CANARY}')", "source_failed"),
    ],
)
def test_no_cell_in_an_error(world, script, code):
    world.tables["t"] = {"database": world.sqlite(script)}
    error = failed(world)
    assert error.code == code
    assert CANARY not in str(error.as_json())
    assert str(world.folder) not in str(error.as_json())


def test_a_wrong_value_names_its_column(world):
    world.tables["t"] = {"database": world.sqlite("CREATE TABLE t (a INTEGER, b INTEGER); INSERT INTO t VALUES (1, 'x')")}
    assert failed(world).message == "column `b` of table `t` holds a value that is no BIGINT"


def test_a_csv_with_a_wrong_value_or_broken_rows(world):
    world.csv("t", "n,m\n" + "1,2\n" * 30_000 + f"{CANARY},3\n")
    error = failed(world)
    assert error.code == "table_value"
    assert CANARY not in str(error.as_json())
    world.csv("t", "n\n\xff\n", types={"nothing": "VARCHAR"})
    assert failed(world).code == "table_column"


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ({}, "table_incomplete"),
        ({"path": "a.csv", "database": "sqlite:///x"}, "table_incomplete"),
        ({"path": "a.csv", "query": "SELECT 1"}, "table_incomplete"),
        ({"path": "a.bin"}, "table_format"),
        ({"path": "a.csv", "types": {"a": "VARCHAR); DROP TABLE x"}}, "config_invalid"),
    ],
)
def test_configuration_that_cannot_be_meant(world, table, code):
    world.tables["t"] = table
    with pytest.raises(UsageError) as raised:
        world.copy()
    assert raised.value.code == code


def test_an_address_stays_in_the_environment(world, monkeypatch):
    world.tables["t"] = {"database_env": "POINTSMAN_TEST_URL"}
    monkeypatch.delenv("POINTSMAN_TEST_URL", raising=False)
    assert failed(world).code == "table_unset"
    monkeypatch.setenv("POINTSMAN_TEST_URL", world.sqlite("CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1)"))
    assert world.copy()["t"].outcome == "copied"


def test_unknown_name(world):
    with pytest.raises(UsageError) as raised:
        world.copy("nothing")
    assert raised.value.code == "table_unknown"


# --- versions ---------------------------------------------------------------------------------------------------------


def test_unchanged_files_make_no_new_version(world):
    world.csv("t", "n\n1\n")
    world.copy()
    version = world.snapshots.current().version
    assert world.copy()["t"].outcome == "unchanged"
    assert world.snapshots.current().version == version
    assert world.copy(full=True)["t"].outcome == "copied"
    assert world.snapshots.current().version != version


def test_named_tables_are_copied_and_others_carried(world):
    world.csv("a", "n\n1\n")
    world.csv("b", "n\n1\n")
    world.copy()
    first = world.now_us
    world.csv("a", "n\n1\n2\n")
    world.csv("b", "n\n1\n2\n")
    world.copy("a")
    assert world.rows("SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)") == [(2, 1)]
    assert [table.copied_at_us for table in world.snapshots.current().tables] == [world.now_us, first]


def test_one_failure_costs_no_other_table(world):
    world.csv("a", "n\n1\n")
    world.csv("b", "n\n1\n")
    world.copy()
    world.csv("a", "n\n1\n2\n")
    (world.folder / "b.csv").unlink()
    reports = world.copy()
    assert (reports["a"].outcome, reports["b"].outcome, reports["b"].error.code) == ("copied", "failed", "table_missing")
    assert world.rows("SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)") == [(2, 1)]
    a, b = world.snapshots.current().tables
    assert (a.failed, b.failed, b.failed_at_us) == ("", "table_missing", world.now_us)
    world.csv("b", "n\n1\n2\n3\n")
    assert world.copy()["b"].outcome == "copied"
    assert world.snapshots.current().tables[1].failed == ""


def test_a_table_that_never_could_be_copied_says_so(world):
    world.tables["t"] = {"path": "t.csv"}
    world.copy()
    assert world.snapshots.current().failures == (("t", "table_missing", world.now_us),)
    with pytest.raises(SourceError) as raised:
        world.snapshots.path()
    assert raised.value.code == "tables_missing"
    world.csv("t", "n\n1\n")
    world.copy()
    assert world.snapshots.current().failures == ()


def test_what_is_not_declared_any_more_goes(world):
    world.csv("a", "n\n1\n")
    world.csv("b", "n\n1\n")
    world.copy()
    del world.tables["b"]
    assert world.copy()["b"].outcome == "removed"
    assert [table.name for table in world.snapshots.current().tables] == ["a"]
    assert world.rows("SELECT table_name FROM duckdb_tables()") == [("a",)]


def test_this_version_and_the_one_before_are_kept(world):
    world.snapshots = DuckSnapshots(world.folder / "state" / "tables", keep_s=0)
    for rows in range(1, 5):
        world.csv("t", "n\n" + "1\n" * rows)
        world.copy()
    files = sorted(path.name for path in world.snapshots.path().parent.iterdir())
    assert len([name for name in files if name.endswith(".duckdb")]) == 2
    assert [name for name in files if not name.endswith(".duckdb")] == [RECORD, "tables.lock"]


def test_a_version_is_kept_while_a_worker_may_still_start_on_it(world):
    world.csv("t", "n\n1\n")
    world.copy()
    first = world.snapshots.path()
    for rows in (2, 3, 4):
        world.csv("t", "n\n" + "1\n" * rows)
        world.copy()
    assert first.exists()
    os.utime(first, (0, 0))
    world.copy(full=True)
    assert not first.exists()


def test_files_are_for_their_owner_only(world):
    world.csv("t", "n\n1\n")
    world.copy()
    folder = world.snapshots.path().parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.glob("*.duckdb"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_newer_and_broken_records_are_refused(world):
    world.csv("t", "n\n1\n")
    world.copy()
    record = world.snapshots.path().parent / RECORD
    for text, code in (('{"schema": 99}', "tables_newer"), ("{", "tables_unreadable"), ('{"schema": 1}', "tables_unreadable")):
        record.write_text(text)
        with pytest.raises(SourceError) as raised:
            world.snapshots.current()
        assert raised.value.code == code


def test_a_removed_file_is_made_again(world):
    world.csv("t", "n\n1\n")
    world.copy()
    world.snapshots.path().unlink()
    with pytest.raises(SourceError) as raised:
        world.snapshots.path()
    assert raised.value.code == "tables_missing"
    assert world.copy()["t"].outcome == "copied"
    assert world.rows("SELECT n FROM t") == [(1,)]


def test_the_record_survives_its_reader(world):
    world.csv("t", "n,s\n1,a\n")
    world.copy()
    snapshot = world.snapshots.current()
    world.snapshots.note(snapshot)
    assert DuckSnapshots(world.snapshots.path().parent).current() == snapshot
    assert dataclasses.asdict(snapshot)["tables"][0]["rows"] == 1
    assert os.path.getsize(world.snapshots.path()) > 0
