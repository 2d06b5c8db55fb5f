"""The demonstration's tables: the same rows each time, two companies, and the facts that its documents tell."""

from __future__ import annotations

import csv
import re
import runpy
import sqlite3
import tomllib

import duckdb
import pytest

from tests.table_world import World
from tests.world import ROOT

DEMO = ROOT / "deploy" / "demo"
MADE = runpy.run_path(str(DEMO / "tables" / "make_tables.py"))
MAKE, TODAY, TOLD = MADE["make_tables"], MADE["TODAY"], MADE["CLAIMS"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("demo"))
    MAKE(world.folder / "state" / "made")
    world.tables = tomllib.loads((DEMO / "pointsman.toml").read_text())["tables"]
    assert {name: report.error for name, report in world.copy().items()} == dict.fromkeys(world.tables)
    return world


def test_sizes_and_two_tenants(world):
    assert {table.name: table.rows for table in world.snapshots.current().tables} == {
        "approvals": 6_000, "claims": 20_000, "depots": 11, "parts": 50_000, "technicians": 60,
    }  # fmt: skip
    for name in world.tables:
        assert world.rows(f"SELECT DISTINCT tenant FROM {name} ORDER BY 1") == [("contoso",), ("fabrikam",)]


def rows_of(path):
    """The engine's own file is other bytes each time, so it is looked into."""
    if path.suffix != ".duckdb":
        return path.read_bytes()
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute("SELECT * FROM technicians ORDER BY ALL").fetchall()


def test_the_same_rows_each_time(world, tmp_path):
    """Copied again where nothing changed, lists are not touched."""
    MAKE(tmp_path)
    for name in ("depots.csv", "roster.duckdb", "parts.parquet"):
        made = (world.folder / "state" / "made" / name, tmp_path / name)
        assert rows_of(made[0]) == rows_of(made[1])
        before = made[1].stat().st_mtime_ns
        MAKE(tmp_path)
        assert made[1].stat().st_mtime_ns == before
    dumps = []
    for folder in (tmp_path, world.folder / "state" / "made"):
        con = sqlite3.connect(folder / "service_desk.sqlite")
        dumps.append([con.execute(f"SELECT * FROM {table}").fetchall() for table in ("claims", "approvals")])
        con.close()
    assert dumps[0] == dumps[1]


def test_what_lies_in_the_way_is_replaced(tmp_path):
    (tmp_path / "roster.duckdb").write_bytes(b"no file of the engine")
    (tmp_path / "parts.parquet").write_bytes(b"")
    MAKE(tmp_path)
    assert len(rows_of(tmp_path / "roster.duckdb")) == 60
    assert not [path.name for path in tmp_path.iterdir() if path.suffix == ".new"]


def test_tables_come_in_every_way(world):
    """A list, an export, somebody's analysis and a running system: each way that `[tables.NAME]` has is shown."""
    ways = {name: set(table) for name, table in world.tables.items()}
    assert ways == {
        "depots": {"path"},
        "technicians": {"path"},
        "parts": {"path"},
        "claims": {"database"},
        "approvals": {"database"},
    }
    assert {table["path"].rpartition(".")[2] for table in world.tables.values() if "path" in table} == {
        "csv",
        "duckdb",
        "parquet",
    }


def test_types_are_what_governance_can_speak_of(world):
    assert world.types("claims") == {
        "tenant": "VARCHAR", "claim_id": "VARCHAR", "opened_on": "DATE", "closed_on": "DATE", "status": "VARCHAR", "type": "VARCHAR",
        "depot": "BIGINT", "region": "VARCHAR", "customer": "VARCHAR", "claimant": "VARCHAR", "machine": "VARCHAR",
        "amount": "DECIMAL(10,2)", "reserve": "DECIMAL(10,2)",
    }  # fmt: skip
    assert world.types("parts")["price_eur"] == "DECIMAL(10,2)"
    assert world.types("parts")["counted_on"] == "DATE"
    assert world.types("technicians")["home_phone"] == "VARCHAR"
    assert world.types("approvals")["verbal"] == "BOOLEAN"
    assert world.types("approvals")["approved_at"] == "TIMESTAMP"


def test_depots_are_those_of_the_readme(world):
    told = re.findall(r"\| (\d) \| ([A-Z][a-z ]+[A-Za-z]+) \| (\w+) \| ([A-Z]\. \w+) ", (DEMO / "README.md").read_text())
    assert len(told) == 8
    held = world.rows("SELECT depot::VARCHAR, place, region, lead FROM depots WHERE tenant = 'fabrikam'")
    assert sorted(held) == sorted(told)


def test_stock_is_that_of_the_bin_list(world):
    """Is PN-88213 in stock at depot 4? The list of bins says eleven, in B-02-1; Contoso's depot 4 is another."""
    with (DEMO / "documents" / "warehouse" / "stock" / "bins-depot-4.csv").open(newline="") as file:
        bins = {row["bin"]: row for row in csv.DictReader(file)}
    ask = "SELECT bin, on_hand, minimum FROM parts WHERE part = 'PN-88213' AND depot = 4 AND tenant = "
    [(place, on_hand, minimum)] = world.rows(ask + "'fabrikam'")
    assert (int(bins[place]["on_hand"]), int(bins[place]["minimum"])) == (on_hand, minimum) == (11, 8)
    assert world.rows(ask + "'contoso'") != [(place, on_hand, minimum)]


def test_claims_follow_the_house_rules(world):
    """The region is the depot's; numbers are unique in a company and repeat between the two; keys join."""
    assert world.rows("SELECT count(*) FROM claims JOIN depots USING (tenant, depot) WHERE claims.region <> depots.region") == [
        (0,)
    ]
    assert world.rows("SELECT count(*) FROM claims JOIN depots USING (tenant, depot)") == [(20_000,)]
    assert world.rows("SELECT count(DISTINCT (tenant, claim_id)) FROM claims") == [(20_000,)]
    assert world.rows("SELECT count(*) FROM approvals JOIN claims USING (tenant, claim_id)") == [(6_000,)]
    [(shared,)] = world.rows("SELECT count(*) FROM (SELECT claim_id FROM claims GROUP BY 1 HAVING count(DISTINCT tenant) = 2)")
    assert shared > 1_000
    assert world.rows("SELECT customer, region FROM claims WHERE claim_id = 'CLM-2026-0203' AND tenant = 'fabrikam'") == [
        ("Lakeshore Dairy", "West")
    ]
    counts = dict(
        world.rows(
            "SELECT region, count(*) FROM claims WHERE tenant = 'fabrikam' AND status = 'open' AND opened_on < DATE '2026-11-01' GROUP BY 1"
        )
    )
    assert world.rows(
        "SELECT max(opened_on), max(closed_on), max(approved_at)::DATE FROM claims LEFT JOIN approvals USING (tenant, claim_id)"
    ) < [(TODAY,) * 3]
    assert world.rows("SELECT count(*) FROM approvals WHERE approved_at < asked_at") == [(0,)]
    assert set(counts) == {"East", "North", "South", "West"}
    assert len(set(counts.values())) == 4
    assert min(counts.values()) > 10


def test_claims_are_those_of_the_notes(world):
    """Region and reserve of a claim stand in a desk's confidential notes and in a table; both must say the same."""
    found = {}
    for path in sorted((DEMO / "documents" / "rules" / "claims" / "regional").glob("*/notes-*-2026.md")):
        for part in path.read_text().split("\n## ")[1:]:
            if (claim := re.search(r"CLM-\d{4}-\d{4}", part.splitlines()[0])) is not None:
                reserve = re.search(r"[Rr]eserve (?:was )?([\d,]+)", part)
                customer = part.partition(",")[0]
                found[claim[0]] = (path.parent.name, customer, None if reserve is None else int(reserve[1].replace(",", "")))
    held = world.rows("SELECT claim_id, lower(region), customer, reserve::INTEGER FROM claims WHERE tenant = 'fabrikam'")
    assert {claim: tuple(facts) for claim, *facts in held if claim in found} == found
    assert set(found) == set(TOLD)
