"""`doctor` and `index verify` look at tables: copied, whole, fresh, and as governance.yaml says; each line says what to do."""

import json
import shutil

import duckdb
import pytest

from connectors.table_snapshots import DuckSnapshots
from router.app import Router
from router.config import load_settings
from router.doors.cli import _run
from tests.rows_world import build_rows_world, edit, write_rows_world


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build_rows_world(tmp_path_factory.mktemp("review") / "world").parent


@pytest.fixture
def folder(built, tmp_path):
    """A copy; the modification times of its database stay, and what its fingerprint is made of does not: it is copied again."""
    folder = shutil.copytree(built, tmp_path / "w")
    with Router(load_settings(folder / "pointsman.toml")) as router:
        router.copy_tables()
    return folder


def shown(capsys, folder, *command):
    try:
        code = _run([*command, "--config", str(folder / "pointsman.toml"), "--json"])
    except SystemExit as ended:
        code = ended.code
    return code, json.loads(capsys.readouterr().out)


def doctor(capsys, folder):
    _, out = shown(capsys, folder, "doctor")
    return {check["name"]: check for check in out["checks"] if check["name"] in ("tables", "catalogue", "table workers")}


def verify(capsys, folder):
    code, out = shown(capsys, folder, "index", "verify")
    assert code == (0 if out["ok"] else 1)
    return [(finding["source"], finding["kind"]) for finding in out["findings"]]


def test_everything_in_order(capsys, folder):
    lines = doctor(capsys, folder)
    assert lines["tables"]["level"] == lines["table workers"]["level"] == "ok"
    assert lines["tables"]["message"].startswith("4 tables, ")
    assert "hours ago" in lines["tables"]["message"]
    assert lines["catalogue"]["level"] == "warning"  # one column is tagged for nobody, on purpose
    assert "claimant_phone" in lines["catalogue"]["message"]
    assert verify(capsys, folder) == []


def test_nothing_copied_yet(capsys, tmp_path):
    config = write_rows_world(tmp_path / "w")
    lines = doctor(capsys, config.parent)
    assert (lines["tables"]["level"], lines["tables"]["hint"]) == ("fault", "run `pointsman index`")
    assert "has not been copied yet (and 3 more)" in lines["tables"]["message"]
    assert lines["table workers"]["level"] == "ok"
    assert {kind for _, kind in verify(capsys, config.parent)} == {"table_not_copied"}


def test_no_table_configured(capsys, tmp_path):
    config = write_rows_world(tmp_path / "w")
    config.write_text("")
    lines = doctor(capsys, config.parent)
    assert lines["tables"]["level"] == "fault"
    assert "4 datasets are governed, and no table is configured" in lines["tables"]["message"]


def test_changed_and_gone(capsys, folder):
    with duckdb.connect(str(folder / "source.duckdb")) as con:
        con.execute("CREATE TABLE more AS SELECT 1 AS n")
    assert doctor(capsys, folder)["tables"]["level"] == "warning"
    assert {kind for _, kind in verify(capsys, folder)} == {"table_changed"}
    (folder / "source.duckdb").unlink()
    assert {kind for _, kind in verify(capsys, folder)} == {"table_missing"}
    with Router(load_settings(folder / "pointsman.toml")) as router:
        router.copy_tables()
    assert {kind for _, kind in verify(capsys, folder)} == {"table_not_renewed"}


def test_old_copies_of_a_database(capsys, folder, monkeypatch):
    """A database does not say that it has changed; after a week somebody should look."""
    config = folder / "pointsman.toml"
    config.write_text(config.read_text() + '[tables.rows]\ndatabase = "sqlite:///rows.sqlite"\n')
    import sqlite3

    with sqlite3.connect(folder / "rows.sqlite") as con:
        con.execute("CREATE TABLE rows (n INTEGER)")
    con.close()
    with Router(load_settings(config)) as router:
        router.copy_tables()
    assert verify(capsys, folder) == [("rows", "table_ungoverned")]
    monkeypatch.setattr("router.app._clock_us", lambda: 2**60)
    assert verify(capsys, folder) == [("rows", "table_old"), ("rows", "table_ungoverned")]


def test_tables_that_are_not_configured_any_more(capsys, folder):
    config = folder / "pointsman.toml"
    config.write_text(config.read_text().replace('[tables.depots_v]\npath = "source.duckdb"\n', ""))
    assert verify(capsys, folder) == [("depots_v", "table_surplus")]


@pytest.mark.parametrize("damage", ["truncated", "middle", "record", "gone"])
def test_a_damaged_snapshot(capsys, folder, damage):
    path = DuckSnapshots(folder / "state" / "tables").path()
    body = path.read_bytes()
    match damage:
        case "truncated":
            path.write_bytes(body[: len(body) // 2])
        case "middle":
            path.write_bytes(body[:12288] + b"\xff" * (len(body) - 12288))
        case "gone":
            path.unlink()
        case "record":
            edit(folder / "state" / "tables", "tables.json", '"rows": ', '"rows": 1')
    code, out = shown(capsys, folder, "index", "verify")
    assert code == 1
    kinds = {finding["kind"] for finding in out["findings"]}
    assert kinds == {"table_not_copied"} if damage == "gone" else "table_damaged" in kinds
    assert doctor(capsys, folder)["tables"]["level"] == "fault"
    assert str(folder) not in json.dumps(out)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("relation: main.depots_v", "relation: main.depot_v", "no relation `main.depot_v`"),
        ("code: [plain]", "code: [plain]\n      bay: [plain]", "has no column `bay`"),
        ("epoch_ms(reported_at)", "epoch_ms(reported)", "cannot be computed over"),
        (
            "epoch_ms(reported_at)",
            '"IF(claim_id < 4, NULL, epoch_ms(reported_at))"',
            "3 rows of `main.claims_v` lack the required attribute `reported`",
        ),
    ],
)
def test_governance_against_the_snapshot(capsys, folder, old, new, said):
    edit(folder / "policies", "governance.yaml", old, new)
    line = doctor(capsys, folder)["catalogue"]
    assert line["level"] == "fault"
    assert said in line["message"]
    assert line["hint"]
    assert any(kind == "catalogue" for _, kind in verify(capsys, folder))


def test_a_worker_that_cannot_start(capsys, folder, monkeypatch):
    monkeypatch.setattr("router.sql.gate.check_versions", _broken)
    line = doctor(capsys, folder)["table workers"]
    assert line["level"] == "fault"
    assert line["hint"]


def _broken(engine):
    from router.errors import SourceError

    raise SourceError("sql_version", "another version", "install it")
