"""Nothing leaves unasked where tables are copied, governed, judged and evaluated, workers and the engine's own files included."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.rows_world import SQL, write_rows_world
from tests.unit.test_quiet import Quiet, check


@pytest.fixture
def quiet(tmp_path):
    return Quiet(tmp_path)


def test_commands_on_tables_are_quiet(quiet):
    write_rows_world(quiet.work / "x")
    shutil.copytree(SQL / "policies", quiet.work / "eval")
    shutil.copyfile(SQL / "fixture.sql", quiet.work / "fixture.sql")
    cases = [
        {"id": "a", "sql": "SELECT region, count(*) AS n FROM claims_v GROUP BY region ORDER BY region", "must": "accept"},
        {"id": "b", "sql": "SELECT * FROM read_csv('/etc/passwd')", "must": "reject"},
        {"id": "c", "sql": "INSTALL httpfs", "must": "reject"},
    ]
    (quiet.work / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    config = ("--config", "x/pointsman.toml")
    report = json.loads(quiet.run("index", *config, "--json"))
    assert {table["outcome"] for table in report["tables"]} == {"copied"}
    rows = json.loads(quiet.run("sql", "run", "SELECT count(*) AS n FROM claims_v", "--as", "analyst-1", *config, "--json"))[
        "rows"
    ]
    assert rows[0][0] > 0
    quiet.run("catalog", "derive", "x/source.duckdb")
    quiet.run("doctor", *config)  # all that `catalog check` and `index verify` do with tables
    quiet.run("eval", "access", "--cases", "500", *config)
    quiet.run("eval", "sql", "--database", "fixture.sql", "--policies", "eval", "--cases", "cases.jsonl")
    check(quiet)
    tables = quiet.work / "x" / "state" / "tables"
    assert tables.stat().st_mode & 0o077 == 0
    assert any("forkserver" in line or "multiprocessing" in line for line in quiet.events("process")), "no worker was watched"
    assert quiet.left_in_temp() == []
    assert sorted(path.name for path in quiet.work.iterdir()) == ["cases.jsonl", "eval", "fixture.sql", "x"]
