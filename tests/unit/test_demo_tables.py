"""The demonstration's tables: the same rows each time, two companies, and the facts that its documents tell."""

from __future__ import annotations

import csv
import re
import runpy
import sqlite3
import tomllib

import pytest

from tests.table_world import World
from tests.world import ROOT

DEMO = ROOT / "deploy" / "demo"
MAKE = runpy.run_path(str(DEMO / "tables" / "make_tables.py"))["make_tables"]


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


def test_the_same_rows_each_time(world, tmp_path):
    """Copied again where nothing changed, lists are not touched."""
    MAKE(tmp_path)
    for name in ("depots.csv", "technicians.csv", "parts.csv"):
        assert (tmp_path / name).read_bytes() == (world.folder / "state" / "made" / name).read_bytes()
        before = (tmp_path / name).stat().st_mtime_ns
        MAKE(tmp_path)
        assert (tmp_path / name).stat().st_mtime_ns == before
    dumps = []
    for folder in (tmp_path, world.folder / "state" / "made"):
        con = sqlite3.connect(folder / "service_desk.sqlite")
        dumps.append([con.execute(f"SELECT * FROM {table}").fetchall() for table in ("claims", "approvals")])
        con.close()
    assert dumps[0] == dumps[1]


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
    assert set(counts) == {"East", "North", "South", "West"}
    assert len(set(counts.values())) == 4
    assert min(counts.values()) > 10
