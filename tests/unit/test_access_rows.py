"""`eval access` over tables: DuckDB, the reference evaluator and Cedar agree on live rows, and what is wider or narrower is counted."""

import dataclasses
import json
import shutil

import pytest

from router.app import Router
from router.config import load_settings
from router.doors.cli import _run
from router.errors import SourceError
from router.evals.access import as_json, run_access
from router.filters import ALWAYS, NEVER
from router.policy import PolicySet
from tests.rows_world import build_rows_world, edit, write_rows_world


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return build_rows_world(tmp_path_factory.mktemp("access") / "world")


@pytest.fixture
def router(config):
    with Router(load_settings(config)) as made:
        yield made


def altered(monkeypatch, change):
    """Grants as they would be if `change` had been made to each of them."""
    real = PolicySet.grants

    def grants(self, principal, now):
        found = real(self, principal, now)
        return dataclasses.replace(found, query=tuple(change(grant) for grant in found.query))

    monkeypatch.setattr(PolicySet, "grants", grants)


def test_access_agrees_on_tables(router):
    report = run_access(router, 20_000, seed=1)
    assert report.cases >= 20_000
    assert report.documents == 0
    assert report.rows > 100
    assert report.columns > 1_000
    assert 0 < report.allowed < report.cases
    assert (report.leaks, report.over_blocks, report.disagreements) == (0, 0, 0), report.examples


def test_access_repeats_itself(router):
    assert as_json(run_access(router, 2_000, seed=7)) == as_json(run_access(router, 2_000, seed=7))
    assert as_json(run_access(router, 2_000, seed=7)) != as_json(run_access(router, 2_000, seed=8))


def test_a_wider_filter_is_a_leak(router, monkeypatch):
    altered(monkeypatch, lambda grant: dataclasses.replace(grant, filter=ALWAYS))
    report = run_access(router, 5_000, seed=1)
    assert report.leaks > 0
    assert report.disagreements == report.leaks
    assert report.over_blocks == 0
    assert all(example.startswith("row ") for example in report.examples)


def test_a_narrower_filter_is_an_over_block(router, monkeypatch):
    altered(monkeypatch, lambda grant: dataclasses.replace(grant, filter=NEVER))
    assert run_access(router, 5_000, seed=1).over_blocks > 0


def test_a_filter_that_only_duckdb_reads_otherwise_is_a_leak(router, monkeypatch):
    """The lowering alone is wrong: the reference evaluator still agrees with Cedar."""
    monkeypatch.setattr("connectors.duckdb_tables.lower_filter", lambda *_: "TRUE")
    report = run_access(router, 5_000, seed=1)
    assert report.leaks > 0
    assert report.disagreements == 0


@pytest.mark.parametrize(
    ("change", "kind", "what"),
    [
        ({"mask": None}, "leaks", "column leak: claims_v.claimant_"),
        ({"filter_raw": True}, "leaks", "raw predicate leak: claims_v.claimant_"),
        ({"name": "gone", "mask": "'x'"}, "over_blocks", "masked column over-block: "),
    ],
)
def test_columns_granted_otherwise_are_counted(router, monkeypatch, change, kind, what):
    def one(grant):
        columns = (dataclasses.replace(column, **change) if column.mask is not None else column for column in grant.columns)
        return dataclasses.replace(grant, columns=tuple(columns))

    altered(monkeypatch, one)
    report = run_access(router, 5_000, seed=1)
    assert getattr(report, kind) > 0
    assert any(example.startswith(what) for example in report.examples), report.examples


def test_rows_that_lack_an_attribute_are_nobodys(config, tmp_path):
    """A required attribute that is NULL in some rows: Cedar cannot judge them, and no filter admits them."""
    shutil.copytree(config.parent, tmp_path / "w")
    edit(
        tmp_path / "w" / "policies",
        "governance.yaml",
        "epoch_ms(reported_at)",
        '"IF(claim_id < 50, NULL, epoch_ms(reported_at))"',
    )
    edit(tmp_path / "w" / "policies", "governance.yaml", "lower(region)", "nullif(lower(region), 'north')")
    with Router(load_settings(tmp_path / "w" / "pointsman.toml")) as router:
        report = run_access(router, 20_000, seed=3)
    assert (report.leaks, report.over_blocks, report.disagreements) == (0, 0, 0), report.examples
    assert report.allowed > 0


def test_command(config, capsys, tmp_path):
    assert _run(["eval", "access", "--cases", "500", "--config", str(config), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["rows"] > 100
    assert (shown["leaks"], shown["over_blocks"], shown["disagreements"]) == (0, 0, 0)
    empty = write_rows_world(tmp_path / "w")
    assert _run(["eval", "access", "--config", str(empty), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "nothing_indexed"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("relation: main.depots_v", "relation: main.depot_v", "sql_relation"),
        ("epoch_ms(reported_at)", "reported_at", "sql_attribute"),
    ],
)
def test_tables_that_are_not_as_governance_says(config, tmp_path, old, new, code):
    shutil.copytree(config.parent, tmp_path / "w")
    edit(tmp_path / "w" / "policies", "governance.yaml", old, new)
    with Router(load_settings(tmp_path / "w" / "pointsman.toml")) as router, pytest.raises(SourceError) as caught:
        run_access(router, 10, seed=0)
    assert caught.value.code == code
