"""`index` and `index status` at the command line, for tables."""

from __future__ import annotations

import json

import pytest

from router.doors import cli
from tests import world


@pytest.fixture
def command(tmp_path, monkeypatch, capfd):
    """A world whose configuration also names two tables; the second is not there yet."""
    config = world.build_world(tmp_path / "w")
    (tmp_path / "w" / "depots.csv").write_text("depot,place\n1,Harrow Quay\n4,Wickham Cross\n")
    with config.open("a") as file:
        file.write('[tables.depots]\npath = "depots.csv"\n[tables.parts]\npath = "parts.csv"\n')
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments):
        try:
            code = cli._run([*arguments, "--config", str(config)])
        except SystemExit as stop:
            code = stop.code
        return code, capfd.readouterr().out

    run.folder = config.parent
    return run


def test_index_copies_tables_and_status_shows_them(command):
    code, out = command("index", "--json")
    assert code == 4
    report = json.loads(out)
    assert {item["table"]: (item["outcome"], item["rows"]) for item in report["tables"]} == {
        "depots": ("copied", 2),
        "parts": ("failed", 0),
    }
    assert report["tables"][1]["error"]["code"] == "table_missing"
    assert [source["source"] for source in report["sources"]] == ["elsewhere", "handbook", "notes"]

    (command.folder / "parts.csv").write_text("part,n\nPN-1,3\n")
    code, out = command("index", "parts", "--json")
    assert code == 0
    assert json.loads(out) == {"tables": [{"table": "parts", "outcome": "copied", "rows": 1, "error": None}]}

    (command.folder / "depots.csv").unlink()
    assert command("index", "depots")[0] == 4
    status = json.loads(command("index", "status", "--json")[1])["tables"]
    assert [(table["name"], table["rows"], table["failed"]) for table in status["tables"]] == [
        ("depots", 2, "table_missing"),
        ("parts", 1, ""),
    ]
    text = command("index", "status")[1]
    assert "parts" in text
    assert "depots: not copied" in text


def test_a_dry_run_copies_nothing(command):
    assert command("index", "--dry-run", "--json")[0] == 0
    assert json.loads(command("index", "status", "--json")[1])["tables"] is None
    assert not (command.folder / "state" / "tables").exists()
