"""What the tables hold for whom, by hands that know nothing of the product: plain DuckDB over the raw files of the demonstration.

`python -m tests.e2e.expected_values` writes the values into questions.jsonl. Each person's rows and masks are written out below, as
policies/tables.cedar means them; a policy that lets somebody see other rows has to be said here, too.

INVARIANT: the values in questions.jsonl are those computed here (tests/e2e/test_question_set.py::test_values_are_those_computed_by_hand).
"""

from __future__ import annotations

import csv
import json
import runpy
import sqlite3
import tempfile
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

HERE = Path(__file__).parent
MAKE = HERE.parents[1] / "deploy" / "demo" / "tables" / "make_tables.py"

INITIAL = "left(claimant, 1) || '***' AS claimant"
HUNDREDS = "(round(reserve / 100) * 100)::DECIMAL(10,2) AS reserve"
PHONE = "'*** ' || right(home_phone, 3) AS home_phone"
TENS = "(round(hourly_cost / 10) * 10)::DECIMAL(8,2) AS hourly_cost"
DESK = f"SELECT * REPLACE ({INITIAL}, {HUNDREDS}) FROM raw_claims WHERE tenant = 'fabrikam'"

VIEWS = {
    # who sees them                 rows and masks
    "claims_west": f"{DESK} AND region = 'West' AND status <> 'disputed'",  # esther
    "claims_east": f"{DESK} AND region = 'East' AND status <> 'disputed'",  # farid
    "claims_north": f"{DESK} AND region = 'North' AND status <> 'disputed'",  # hugo
    "claims_disputed": f"{DESK} AND status = 'disputed'",  # nadia
    "claims_all": "SELECT * FROM raw_claims WHERE tenant = 'fabrikam'",  # mira
    "claims_books": f"SELECT * REPLACE ({INITIAL}) FROM raw_claims WHERE tenant = 'fabrikam'",  # otto
    "claims_contoso": "SELECT * FROM raw_claims WHERE tenant = 'contoso'",  # pavel
    "approvals_west": "SELECT * FROM raw_approvals WHERE tenant = 'fabrikam' AND region = 'West'",  # esther
    "approvals_east": "SELECT * FROM raw_approvals WHERE tenant = 'fabrikam' AND region = 'East'",  # farid
    "approvals_all": "SELECT * FROM raw_approvals WHERE tenant = 'fabrikam'",  # mira, otto
    "approvals_contoso": "SELECT * FROM raw_approvals WHERE tenant = 'contoso'",  # pavel
    "stock": "SELECT * FROM raw_parts WHERE tenant = 'fabrikam'",  # gwen, hugo, otto
    "stock_unpriced": "SELECT * EXCLUDE (price_eur) FROM raw_parts WHERE tenant = 'fabrikam'",  # ada
    "stock_contoso": "SELECT * EXCLUDE (price_eur) FROM raw_parts WHERE tenant = 'contoso'",  # ines
    "fitters_west": f"SELECT * EXCLUDE (hourly_cost) REPLACE ({PHONE}) FROM raw_technicians WHERE tenant = 'fabrikam' AND region = 'West'",  # ada
    "fitters_south": f"SELECT * EXCLUDE (hourly_cost) REPLACE ({PHONE}) FROM raw_technicians WHERE tenant = 'fabrikam' AND region = 'South'",  # gwen
    "fitters_all": f"SELECT * REPLACE ({TENS}) FROM raw_technicians WHERE tenant = 'fabrikam'",  # carla
    "fitters_books": f"SELECT * REPLACE ({PHONE}) FROM raw_technicians WHERE tenant = 'fabrikam'",  # otto
    "fitters_contoso_west": f"SELECT * EXCLUDE (hourly_cost) REPLACE ({PHONE}) FROM raw_technicians WHERE tenant = 'contoso' AND region = 'West'",  # ines
    "fitters_contoso": f"SELECT * REPLACE ({TENS}) FROM raw_technicians WHERE tenant = 'contoso'",  # jonas
    "depots": "SELECT * FROM raw_depots WHERE tenant = 'fabrikam'",  # all staff
    "depots_contoso": "SELECT * FROM raw_depots WHERE tenant = 'contoso'",  # all staff of Contoso
}  # fmt: skip

# id of a question -> SQL, or several where the question may be read in more than one way. With ORDER BY the order counts.
QUERIES: dict[str, tuple[str, ...]] = {
    # --- before ---
    "open-now-west": ("SELECT count(*) FROM claims_west WHERE status = 'open'",),
    "open-now-all": ("SELECT count(*) FROM claims_all WHERE status = 'open'",),
    "refused-2025-east": ("SELECT count(*) FROM claims_east WHERE status = 'refused' AND year(opened_on) = 2025",),
    "most-open-customer": (
        "SELECT customer FROM claims_all WHERE status = 'open' GROUP BY customer ORDER BY count(*) DESC LIMIT 1",
    ),
    "disputed-by-region": ("SELECT region, count(*) FROM claims_all WHERE status = 'disputed' GROUP BY region",),
    "disputed-by-customer": ("SELECT customer, count(*) FROM claims_disputed GROUP BY customer",),
    "claimed-november": ("SELECT sum(amount) FROM claims_books WHERE opened_on >= '2026-11-01' AND opened_on < '2026-12-01'",),
    "cost-by-band": ("SELECT band, avg(hourly_cost) FROM fitters_books GROUP BY band",),
    "heads-by-region": ("SELECT region, count(*) FROM fitters_all GROUP BY region",),
    "hired-2025": ("SELECT name FROM fitters_all WHERE hired_on > '2025-01-01'",),
    "cups-depot-4": ("SELECT on_hand FROM stock_unpriced WHERE part = 'PN-70417' AND depot = 4",),
    "bin-kit-6": ("SELECT bin FROM stock WHERE part = 'PN-88213' AND depot = 6",),
    "team-4-ada": ("SELECT name FROM fitters_west WHERE depot = 4",),
    "team-1-ines": ("SELECT name FROM fitters_contoso_west WHERE depot = 1",),
    "north-cx400": ("SELECT count(*) FROM claims_north WHERE machine = 'CX-400'",),
    "opened-2026-contoso": ("SELECT count(*) FROM claims_contoso WHERE year(opened_on) = 2026",),
    "opened-2026-fabrikam": ("SELECT count(*) FROM claims_all WHERE year(opened_on) = 2026",),
    "hours-by-role": (
        "SELECT role, avg(date_diff('minute', asked_at, approved_at) / 60.0) FROM approvals_all GROUP BY role HAVING count(*) >= 5",
    ),
    "last-day-east": ("SELECT claim_id FROM claims_east WHERE opened_on = '2026-11-29'",),
    "status-0117": ("SELECT status FROM claims_west WHERE claim_id = 'CLM-2026-0117'",),
    "lead-6": ("SELECT lead FROM depots WHERE depot = 6",),
    "heads-contoso": (
        "SELECT depot, count(*) FROM fitters_contoso GROUP BY depot",
        "SELECT place, count(*) FROM fitters_contoso JOIN depots_contoso USING (depot) GROUP BY place",
    ),
    "value-top-depots": (
        "SELECT place, sum(on_hand * price_eur) AS v FROM stock JOIN depots USING (depot) GROUP BY place ORDER BY v DESC LIMIT 3",
        "SELECT depot, sum(on_hand * price_eur) AS v FROM stock GROUP BY depot ORDER BY v DESC LIMIT 3",
    ),
    "value-by-region": ("SELECT d.region, sum(on_hand * price_eur) FROM stock JOIN depots d USING (depot) GROUP BY d.region",),
    "below-2": ("SELECT count(*) FROM stock WHERE depot = 2 AND on_hand < minimum",),
    "gearbox-total": ("SELECT sum(on_hand) FROM stock_unpriced WHERE description = 'gearbox axis 3'",),
    "q3-by-machine": (
        "SELECT machine, count(*) FROM claims_all WHERE opened_on >= '2026-07-01' AND opened_on < '2026-10-01' GROUP BY machine",
    ),
    "largest-open": (
        "SELECT claim_id, amount FROM claims_all WHERE status = 'open' ORDER BY amount DESC LIMIT 5",
        "SELECT claim_id FROM claims_all WHERE status = 'open' ORDER BY amount DESC LIMIT 5",
    ),
    "without-reserve": ("SELECT count(*) FROM claims_books WHERE reserve IS NULL",),
    "share-open": (
        "SELECT region, 100.0 * count(CASE WHEN status = 'open' THEN 1 END) / count(*) FROM claims_all GROUP BY region",
    ),
    "oldest-dispute": (
        "SELECT min(opened_on) FROM claims_disputed",
        "SELECT date_diff('day', min(opened_on), DATE '2026-12-01') FROM claims_disputed",
    ),
    "brightwell-west": ("SELECT count(*) FROM claims_west WHERE customer = 'Brightwell Bottlers'",),
    "brightwell-east": ("SELECT count(*) FROM claims_east WHERE customer = 'Brightwell Bottlers'",),
    "reserve-0117": ("SELECT reserve FROM claims_west WHERE claim_id = 'CLM-2026-0117'",),
    "since-28-east": ("SELECT claim_id FROM claims_east WHERE opened_on >= '2026-11-28'",),
    "south-hugo": ("SELECT count(*) FROM claims_north WHERE region = 'South' AND status = 'open'",),
    "depots-north": ("SELECT place FROM depots WHERE region = 'North'", "SELECT depot FROM depots WHERE region = 'North'"),
    "depots-ines": ("SELECT count(*) FROM depots_contoso",),
    "depots-lena": ("SELECT count(*) FROM depots",),
    "cost-depot-4": ("SELECT avg(hourly_cost) FROM fitters_books WHERE depot = 4",),
    "counted-coupling": ("SELECT counted_on FROM stock WHERE part = 'PN-88251' AND depot = 1",),
    "phone-carla": ("SELECT home_phone FROM fitters_all WHERE name = 'Ada Lindqvist'",),
    "phone-ada": ("SELECT home_phone FROM fitters_west WHERE name = 'Ada Lindqvist'",),
    "novak-east": (
        "SELECT claim_id FROM claims_east JOIN raw_claims r USING (tenant, claim_id) WHERE r.claimant = 'Rosa Novak'",
    ),
    "future-march": (
        "SELECT count(*) FROM claims_all WHERE opened_on >= '2027-03-01' AND opened_on < '2027-04-01'",
        "SELECT claim_id FROM claims_all WHERE opened_on >= '2027-03-01' AND opened_on < '2027-04-01'",
    ),
    "french-open-mira": ("SELECT count(*) FROM claims_all WHERE status = 'open' AND region = 'South'",),
    "follow-south": ("SELECT count(*) FROM claims_all WHERE status = 'open' AND region = 'South'",),
    "follow-2024": ("SELECT count(*) FROM claims_east WHERE year(opened_on) = 2024",),
    "follow-depot-1": ("SELECT name FROM fitters_west WHERE depot = 1",),
    "follow-kit-2": ("SELECT on_hand FROM stock_unpriced WHERE part = 'PN-88213' AND depot = 2",),
    "both-over-technician": ("SELECT count(*) FROM claims_west WHERE status = 'open' AND amount > 400",),
    "both-over-lead": ("SELECT count(*) FROM claims_all WHERE year(opened_on) = 2026 AND amount > 2000",),
    "both-coupling-4": ("SELECT on_hand FROM stock_unpriced WHERE part = 'PN-88251' AND depot = 4",),
    "both-cups-4": ("SELECT on_hand FROM stock_unpriced WHERE part = 'PN-70417' AND depot = 4",),
    "both-gearbox-1": ("SELECT on_hand FROM stock WHERE part = 'PN-70455' AND depot = 1",),
    "both-kit-6": ("SELECT bin FROM stock WHERE part = 'PN-88213' AND depot = 6",),
    "both-r7": ("SELECT count(*) FROM claims_west WHERE type = 'R7'",),
    "both-r6-2026": ("SELECT count(*) FROM claims_east WHERE type = 'R6' AND year(opened_on) = 2026",),
    "both-sorter": ("SELECT count(*) FROM claims_north WHERE machine = 'SL-900' AND status = 'open'",),
    "both-cost-hours": ("SELECT avg(hourly_cost) FROM fitters_books",),
    "both-band-t2": ("SELECT count(*) FROM fitters_all WHERE band = 'T2'",),
    "both-disputed-tamarind": ("SELECT count(*) FROM claims_disputed WHERE customer = 'Tamarind Foods'",),
    "both-bearing-ines": ("SELECT on_hand FROM stock_contoso WHERE part = 'PN-88213' AND depot = 1",),
    "both-workshop-jonas": ("SELECT count(*) FROM fitters_contoso WHERE depot = 1",),
    "both-nozzle-6": ("SELECT on_hand FROM stock WHERE part = 'PN-53007' AND depot = 6",),
    # --- after ---
    "open-90-west": ("SELECT count(*) FROM claims_west WHERE status = 'open' AND opened_on < '2026-09-02'",),
    "open-90-all": ("SELECT count(*) FROM claims_books WHERE status = 'open' AND opened_on < '2026-09-02'",),
    "region-2026": ("SELECT region, count(*) FROM claims_all WHERE year(opened_on) = 2026 GROUP BY region",),
    "months-2025": (
        "SELECT date_trunc('month', opened_on)::DATE, count(*) FROM claims_east WHERE year(opened_on) = 2025 GROUP BY 1 ORDER BY 1",
    ),
    "claimed-region": ("SELECT region, sum(amount) FROM claims_books WHERE year(opened_on) = 2026 GROUP BY region",),
    "low-share-region": (
        "SELECT d.region, 100.0 * count(CASE WHEN on_hand < minimum THEN 1 END) / count(*) FROM stock JOIN depots d USING (depot) GROUP BY 1",
    ),
    "kit-214-ada": ("SELECT on_hand FROM stock_unpriced WHERE part = 'PN-88214' AND depot = 2",),
    "kit-214-ines": ("SELECT on_hand FROM stock_contoso WHERE part = 'PN-88214' AND depot = 2",),
    "shoes-5": ("SELECT on_hand FROM stock WHERE part = 'PN-45510' AND depot = 5",),
    "approval-region": (
        "SELECT region, avg(date_diff('minute', asked_at, approved_at) / 60.0) FROM approvals_all GROUP BY region HAVING count(*) >= 5",
    ),
    "approval-west": ("SELECT avg(date_diff('minute', asked_at, approved_at) / 60.0) FROM approvals_west",),
    "approval-contoso": ("SELECT avg(date_diff('minute', asked_at, approved_at) / 60.0) FROM approvals_contoso",),
    "kestrel-disputes": ("SELECT claim_id FROM claims_disputed WHERE customer = 'Kestrel Parcels'",),
    "value-parts-1": (
        "SELECT part, sum(on_hand * price_eur) AS v FROM stock WHERE depot = 1 GROUP BY part ORDER BY v DESC, part LIMIT 5",
    ),
    "bands": ("SELECT band, count(*) FROM fitters_books GROUP BY band",),
    "joined-2024": ("SELECT count(*) FROM fitters_all WHERE year(hired_on) = 2024",),
    "team-7": ("SELECT name FROM fitters_all WHERE depot = 7",),
    "team-3-gwen": ("SELECT name FROM fitters_south WHERE depot = 3",),
    "oakum-hugo": ("SELECT count(*) FROM claims_north WHERE customer = 'Oakum Paper'",),
    "w1-hugo": ("SELECT count(*) FROM claims_north WHERE type = 'W1'",),
    "avg-pm7": ("SELECT avg(amount) FROM claims_all WHERE machine = 'PM-7'",),
    "max-reserve-mira": ("SELECT max(reserve) FROM claims_all WHERE status = 'open'",),
    "max-reserve-esther": ("SELECT max(reserve) FROM claims_west WHERE status = 'open'",),
    "all-depots": ("SELECT place FROM depots", "SELECT depot FROM depots"),
    "depots-region-lena": ("SELECT region, count(*) FROM depots GROUP BY region",),
    "depots-region-ines": ("SELECT region, count(*) FROM depots_contoso GROUP BY region",),
    "since-day-mira": ("SELECT claim_id FROM claims_all WHERE opened_on >= '2026-11-29'",),
    "open-machine": ("SELECT machine, count(*) FROM claims_books WHERE status = 'open' GROUP BY machine",),
    "by-status-farid": ("SELECT status, count(*) FROM claims_east GROUP BY status",),
    "by-status-mira": ("SELECT status, count(*) FROM claims_all GROUP BY status",),
    "cups-total": ("SELECT sum(on_hand) FROM stock WHERE part = 'PN-70417'",),
    "most-couplings": (
        "SELECT depot FROM stock_unpriced WHERE part = 'PN-88251' ORDER BY on_hand DESC LIMIT 1",
        "SELECT place FROM stock_unpriced JOIN depots USING (depot) WHERE part = 'PN-88251' ORDER BY on_hand DESC LIMIT 1",
    ),
    "next-year": (
        "SELECT count(*) FROM claims_east WHERE year(opened_on) = 2028",
        "SELECT claim_id FROM claims_east WHERE year(opened_on) = 2028",
    ),
    "cost-t1-otto": ("SELECT hourly_cost FROM fitters_books WHERE name = 'Ada Lindqvist'",),
    "cost-t1-carla": ("SELECT hourly_cost FROM fitters_all WHERE name = 'Ada Lindqvist'",),
    "verbal": ("SELECT count(*) FROM approvals_all WHERE verbal",),
    "value-4-gwen": ("SELECT sum(on_hand * price_eur) FROM stock WHERE depot = 4",),
    "west-pavel": ("SELECT count(*) FROM claims_contoso WHERE region = 'West'",),
    "german-open-mira": ("SELECT count(*) FROM claims_all WHERE status = 'open'",),
    "price-gwen": ("SELECT price_eur FROM stock WHERE part = 'PN-70460' AND depot = 1",),
    "over-400-otto": ("SELECT count(*) FROM claims_books WHERE status = 'open' AND amount > 400",),
    "filter-4-ada": ("SELECT on_hand FROM stock_unpriced WHERE part = 'PN-70422' AND depot = 4",),
    "roller-4-ada": ("SELECT on_hand FROM stock_unpriced WHERE part = 'PN-61102' AND depot = 4",),
    "battery-6-gwen": ("SELECT on_hand FROM stock WHERE part = 'PN-30940' AND depot = 6",),
    "shoes-5-hugo": ("SELECT on_hand FROM stock WHERE part = 'PN-45510' AND depot = 5",),
    "joined-week-carla": ("SELECT count(*) FROM fitters_all WHERE year(hired_on) = 2025",),
    "lead-5-lena": ("SELECT lead FROM depots WHERE depot = 5",),
    "cups-2-ines": ("SELECT on_hand FROM stock_contoso WHERE part = 'PN-70417' AND depot = 2",),
    "gearbox-price-ada": ("SELECT on_hand FROM stock_unpriced WHERE part = 'PN-70455' AND depot = 1",),
    "brightwell-both-esther": ("SELECT status FROM claims_west WHERE claim_id = 'CLM-2026-0117'",),
    "brightwell-both-farid": ("SELECT status FROM claims_east WHERE claim_id = 'CLM-2026-0219'",),
    "follow-kestrel": ("SELECT count(*) FROM claims_east WHERE customer = 'Kestrel Parcels'",),
    "follow-band": ("SELECT region, count(*) FROM fitters_books GROUP BY region",),
    "follow-status": ("SELECT status FROM claims_west WHERE claim_id = 'CLM-2026-0203'",),
    "follow-depot-6": ("SELECT name FROM fitters_south WHERE depot = 6",),
}


def compute(folder: Path) -> dict[str, dict[str, Any]]:
    """Values of all questions over the tables made in `folder`."""
    con = load_raw(folder)
    values = {}
    for name, queries in QUERIES.items():
        first, *more = [[[plain(cell) for cell in row] for row in con.execute(sql).fetchall()] for sql in queries]
        values[name] = {"rows": first} | ({"or": more} if more else {}) | ({"ordered": True} if "ORDER BY" in queries[0] else {})
    con.close()
    return values


def load_raw(folder: Path) -> duckdb.DuckDBPyConnection:
    """The files as they are, read by nothing of ours."""
    con = duckdb.connect(config={"threads": 1})
    con.execute(f"CREATE TABLE raw_depots AS FROM read_csv('{folder}/depots.csv')")
    con.execute(f"CREATE TABLE raw_parts AS FROM read_parquet('{folder}/parts.parquet')")
    con.execute(f"ATTACH '{folder}/roster.duckdb' AS roster (READ_ONLY)")
    con.execute("CREATE TABLE raw_technicians AS FROM roster.technicians")
    desk = sqlite3.connect(folder / "service_desk.sqlite")
    for table in ("claims", "approvals"):
        described = [
            (name, kind.replace("DATETIME", "TIMESTAMP")) for _, name, kind, *_ in desk.execute(f"PRAGMA table_info({table})")
        ]
        con.execute(f"CREATE TABLE raw_{table} ({', '.join(f'{name} {kind}' for name, kind in described)})")
        between = folder / f"{table}.csv"
        with between.open("w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows(desk.execute(f"SELECT * FROM {table}"))
        con.execute(f"COPY raw_{table} FROM '{between}' (FORMAT csv, HEADER false)")
    desk.close()
    for view, sql in VIEWS.items():
        con.execute(f"CREATE VIEW {view} AS {sql}")
    return con


def plain(cell: Any) -> Any:
    """As it stands in JSON: days as text, numbers as numbers with two decimals."""
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == time() else cell.isoformat(sep=" ")
    if isinstance(cell, date):
        return cell.isoformat()
    return round(float(cell), 2) if isinstance(cell, Decimal | float) else cell


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runpy.run_path(str(MAKE))["make_tables"](Path(folder) / "made")
        values = compute(Path(folder) / "made")
    path = HERE / "questions.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        line["value"] = values.get(line["id"])
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    print(f"{sum(line['value'] is not None for line in lines)} of {len(lines)} questions have a value")


if __name__ == "__main__":
    main()
