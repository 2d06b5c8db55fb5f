"""Tables of the demonstration world, the same rows each time: `python make_tables.py FOLDER` (default: ../state/made).

Two companies stand in every table; a row says whose it is in `tenant`. Bins, claims and customers are those of the documents
(README.md). Contoso uses the same part numbers, claim numbers and depot numbers with other facts. Each comes as such things come: a
hand-kept list as CSV, a nightly export as Parquet, somebody's analysis as a DuckDB file, a running system as its database (SQLite).

    depots.csv                      11 rows  fabrikam 1 to 8, contoso 1, 2 and 4
    roster.duckdb      technicians  60 rows  with their home telephone (personal) and hourly cost (confidential)
    parts.parquet               50,000 rows  inventory: one row a part and depot
    service_desk.sqlite claims  20,000 rows  by region; `reserve` is what the desk expects to lose, `claimant` is personal
                     approvals   6,000 rows  who approved how much of which claim, and when that was asked for

All days lie before `TODAY`, the day on which the demonstration asks (`now` in questions.yaml).
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import random
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb

Facts = tuple[str, str | None, str, str, int, str, str, float, float | None]
TODAY = datetime.date(2026, 12, 1)
DAY, CLOSED = datetime.timedelta(days=1), datetime.time(18)
DEPOTS = [
    ("fabrikam", 1, "Harrow Quay", "West", "R. Okafor"), ("fabrikam", 2, "Northfell", "North", "M. Olsen"),
    ("fabrikam", 3, "Saltmarsh", "South", "P. Duarte"), ("fabrikam", 4, "Wickham Cross", "West", "S. Whitlock"),
    ("fabrikam", 5, "Easterby", "East", "I. Rahman"), ("fabrikam", 6, "Dunmere", "South", "T. Byrne"),
    ("fabrikam", 7, "Pikehall", "North", "L. Varga"), ("fabrikam", 8, "Lindholm", "East", "J. Castellan"),
    ("contoso", 1, "Hall A", "West", "H. Kessler"), ("contoso", 2, "Hall B", "West", "H. Kessler"),
    ("contoso", 4, "Sugar Quay", "East", "M. Thorn"),
]  # fmt: skip
PARTS = [
    ("PN-88213", "bearing kit drive roller 25 mm", 37.0), ("PN-88214", "bearing kit drive roller 20 mm", 25.5),
    ("PN-88240", "belt 600 mm", 412.0), ("PN-88241", "belt 400 mm", 298.0), ("PN-88251", "encoder coupling", 43.0),
    ("PN-88260", "pull-cord switch", 88.0), ("PN-88271", "scraper blade 600", 14.5), ("PN-88290", "grease G2 cartridge", 6.8),
    ("PN-70417", "suction cup set of 12", 168.0), ("PN-70422", "vacuum filter cartridge", 19.0),
    ("PN-70455", "gearbox axis 3", 2140.0), ("PN-70460", "light curtain", 760.0), ("PN-61102", "rubber roller pre-stretch", 145.0),
    ("PN-61118", "pre-stretch belt", 31.0), ("PN-61119", "pre-stretch belt reinforced", 39.0), ("PN-61125", "turntable drive wheel", 52.0),
    ("PN-61140", "strip kit carriage", 21.0), ("PN-53007", "glue nozzle 0.4 mm", 64.0), ("PN-53011", "heated hose", 310.0),
    ("PN-53020", "knife two holes", 12.0), ("PN-45510", "sorter shoe", 7.9), ("PN-45518", "chain tensioner", 95.0),
    ("PN-45533", "diverter solenoid", 120.0), ("PN-30915", "window", 186.0), ("PN-30922", "gateway board", 890.0),
    ("PN-30940", "buffer battery 3 V", 4.2), ("PN-94002", "slat", 23.0), ("PN-94008", "guide", 48.0),
]  # fmt: skip
STOCK = {  # what the pages of the warehouse say is in the bin: depot, part -> (bin, on hand, minimum)
    (4, "PN-88213"): ("B-02-1", 11, 8), (4, "PN-70417"): ("A-01-1", 14, 6), (4, "PN-70455"): ("B-05-1", 0, 0),
    (4, "PN-30922"): ("C-01-2", 0, 0), (6, "PN-88213"): ("B-17-1", 12, 6), (1, "PN-88251"): ("B-31-2", 40, 20),
    (2, "PN-88213"): ("B-04-1", 9, 4), (2, "PN-88214"): ("B-04-2", 7, 4), (5, "PN-45510"): ("A-15-1", 71, 40),
}  # fmt: skip
CLAIMS: dict[
    str, Facts
] = {  # those that the notes of the regions speak of: opened, closed, status, type, depot, customer, machine, amount, reserve
    "CLM-2025-0490": ("2025-11-18", None, "disputed", "R3", 3, "Tamarind Foods", "PM-7", 6200.0, None),
    "CLM-2025-0533": ("2025-12-04", "2025-12-19", "refused", "E1", 3, "Tamarind Foods", "PM-7", 2140.0, None),
    "CLM-2026-0117": ("2026-03-16", "2026-04-16", "paid", "R7", 4, "Brightwell Bottlers", "CX-400", 1427.0, 2500.0),
    "CLM-2026-0151": ("2026-05-07", "2026-06-30", "paid", "R6", 5, "Kestrel Parcels", "SL-900", 38000.0, 12000.0),
    "CLM-2026-0203": ("2026-05-26", "2026-06-12", "refused", "R2", 4, "Lakeshore Dairy", "CX-400", 412.0, 0.0),
    "CLM-2026-0219": ("2026-05-29", "2026-09-21", "paid", "R7", 8, "Brightwell Bottlers", "CX-400", 210.0, 500.0),
    "CLM-2026-0264": ("2026-06-23", None, "open", "R5", 6, "Dunmere Mills", "SF-12", 4800.0, 6000.0),
    "CLM-2026-0288": ("2026-04-20", "2026-05-11", "paid", "R1", 1, "Harbour Mills", "PM-7", 168.0, None),
}
CUSTOMERS = [
    "Brightwell Bottlers",
    "Lakeshore Dairy",
    "Harbour Mills",
    "Kestrel Parcels",
    "Tamarind Foods",
    "Dunmere Mills",
    "Oakum Paper",
]
LEAST = {1: 8, 2: 14, 3: 24, 4: 18, 5: 16, 6: 20, 7: 10, 8: 16}  # below how many pieces, at most, a depot orders a part again
BUSY = [6, 2, 2, 5, 4, 1, 1, 3]  # how much of the work falls on each depot
TYPES = ["R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "W1", "W1", "W1", "E1", "G1", "N1", "N2"]
MACHINES = ["CX-400", "CX-200", "PM-7", "WR-30", "SF-12", "SL-900", "SG-5", "LD-2"]
FIRST = "Ada Bela Carl Dora Egon Fay Gil Hana Ivo Jana Kai Lea Max Nina Otto Pia Quin Rosa Sven Tara".split()
LAST = "Lindqvist Marsh Novak Okoye Petrov Quist Rahm Sato Tran Ulm Vance Weiss Yilmaz Zorn Abbot Brandt".split()
SLOW = {"West": 1.0, "North": 0.8, "South": 2.2, "East": 1.4}  # the desk of the South is vacant
LIMITS = [("technician", 400), ("depot lead", 2000), ("regional manager", 15000), ("head of service", 10**9)]


def technicians(rng: random.Random) -> Iterator[tuple[object, ...]]:
    known = [("fabrikam", 4, "Ada Lindqvist"), ("contoso", 1, "Ines Albrecht")]
    places = [(tenant, depot) for tenant, depot, *_ in DEPOTS]
    for number in range(60):
        drawn = (*rng.choice(places), f"{rng.choice(FIRST)} {rng.choice(LAST)}")
        tenant, depot, name = known[number] if number < len(known) else drawn
        hired = datetime.date(2010, 1, 1) + datetime.timedelta(days=rng.randrange(5800))
        cost = f"{rng.randrange(3800, 7200) / 100:.2f}"
        phone = f"+44 55 {rng.randrange(10**7, 10**8)}"
        yield (tenant, f"T-{number + 1:03d}", name, depot, region(tenant, depot), f"T{rng.randrange(1, 4)}", cost, phone, hired)


def parts(rng: random.Random) -> Iterator[tuple[object, ...]]:
    names = PARTS + [
        (f"PN-{number:05d}", f"{rng.choice(SORTS)} {rng.choice(SIZES)}", rng.randrange(100, 90000) / 100)
        for number in others(rng)
    ]
    places = [(tenant, depot) for tenant, depot, *_ in DEPOTS]
    rows = 0
    for part, description, price in names:
        for tenant, depot in places:
            if rows == 50_000:
                return
            shown = STOCK.get((depot, part)) if tenant == "fabrikam" else None
            place = f"{rng.choice('ABCHL')}-{rng.randrange(1, 40):02d}-{rng.randrange(1, 6)}"
            stock = shown or (place, max(0, int(rng.gauss(16, 9))), rng.randrange(LEAST[depot]))
            cost = price if tenant == "fabrikam" else round(price * 1.18, 2)
            counted = TODAY - datetime.timedelta(days=rng.randrange(1, 200))
            yield (tenant, part, description, depot, *stock, f"{cost:.2f}", counted)
            rows += 1


def others(rng: random.Random) -> list[int]:
    taken = {int(part[3:]) for part, *_ in PARTS}
    return [number for number in rng.sample(range(10_000, 99_999), 4_700) if number not in taken]


SORTS = "screw nut washer seal hose cable sensor valve spring bracket plate sleeve pulley relay fuse filter gasket clamp".split()
SIZES = ["M6", "M8", "M10", "12 mm", "16 mm", "20 mm", "25 mm", "40 mm", "24 V", "230 V", "0.4 mm", "600 mm"]


def claims(rng: random.Random) -> list[tuple[object, ...]]:
    """Claim numbers repeat between the companies; a region follows from the depot that looks after the machine."""
    rows: list[tuple[object, ...]] = []
    for tenant, share in (("fabrikam", 16_000), ("contoso", 4_000)):
        own = [depot for whose, depot, *_ in DEPOTS if whose == tenant]
        for number in range(share):
            year = 2023 + number * 4 // share
            claim = f"CLM-{year}-{number - (year - 2023) * share // 4 + 1:04d}"
            depot = rng.choices(own, BUSY[: len(own)])[0]
            customer = rng.choice(CUSTOMERS) if tenant == "fabrikam" else "own hall"
            last = (TODAY if year == 2026 else datetime.date(year, 12, 31)) - datetime.timedelta(days=1)
            opened = datetime.date(year, 1, 1) + datetime.timedelta(
                days=rng.randrange((last - datetime.date(year, 1, 1)).days + 1)
            )
            state, closed = status(rng, opened)
            amount = round(min(30_000.0, rng.lognormvariate(5.4, 1.1)), 2)
            reserve = round(amount * rng.uniform(0.5, 3), 2) if rng.random() < 0.7 else None
            who = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
            facts = (
                str(opened),
                str(closed) if closed else None,
                state,
                rng.choice(TYPES),
                depot,
                customer,
                rng.choice(MACHINES),
                amount,
                reserve,
            )
            if tenant == "fabrikam":
                facts = CLAIMS.get(claim, facts)
            rows.append(claim_row(tenant, claim, who, facts))
    return rows


def claim_row(tenant: str, claim: str, who: str, facts: Facts) -> tuple[object, ...]:
    opened, closed, state, kind, depot, customer, machine, amount, reserve = facts
    money = f"{amount:.2f}", None if reserve is None else f"{reserve:.2f}"
    return (tenant, claim, opened, closed, state, kind, depot, region(tenant, depot), customer, who, machine, *money)


def status(rng: random.Random, opened: datetime.date) -> tuple[str, datetime.date | None]:
    age = (TODAY - opened).days
    closed = opened + datetime.timedelta(days=rng.randrange(2, 90))
    if closed < TODAY and rng.random() < (0.97 if age > 90 else 0.7):
        return ("paid" if rng.random() < 0.7 else "refused"), closed
    return ("open" if rng.random() < 0.8 else "disputed"), None


def approvals(rng: random.Random, made: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Of 6,000 claims; an amount above one's own limit went up to who may approve it, and that takes longer."""
    rows: list[tuple[object, ...]] = []
    for number, claim in enumerate(sorted(rng.sample(range(len(made)), 6_000))):
        tenant, claim_id, opened, *_ = made[claim]
        amount = float(str(made[claim][11]))
        role = next(role for role, limit in LIMITS if amount <= limit)
        area = str(made[claim][7])
        begun = datetime.datetime.fromisoformat(f"{opened} {rng.randrange(7, 18):02d}:{rng.randrange(60):02d}:00")
        minutes = int(rng.lognormvariate(5.6, 0.7) * SLOW[area] * (1 + LIMITS.index((role, dict(LIMITS)[role]))))
        done = min(begun + datetime.timedelta(minutes=5 + minutes), datetime.datetime.combine(TODAY, CLOSED) - DAY)
        verbal = int(rng.random() < 0.1)
        rows.append((tenant, f"ATP-{number + 1:05d}", claim_id, area, role, f"{amount:.2f}", str(begun), str(done), verbal))
    return rows


def region(tenant: str, depot: int) -> str:
    return next(area for whose, number, _, area, _ in DEPOTS if (whose, number) == (tenant, depot))


ROSTER = """tenant VARCHAR NOT NULL, technician_id VARCHAR PRIMARY KEY, name VARCHAR NOT NULL, depot INTEGER NOT NULL,
  region VARCHAR NOT NULL, band VARCHAR NOT NULL, hourly_cost DECIMAL(8,2) NOT NULL, home_phone VARCHAR NOT NULL, hired_on DATE NOT NULL"""
INVENTORY = """tenant VARCHAR, part VARCHAR, description VARCHAR, depot INTEGER, bin VARCHAR, on_hand INTEGER, minimum INTEGER,
  price_eur DECIMAL(10,2), counted_on DATE"""
SCRIPT = """
CREATE TABLE claims (tenant TEXT NOT NULL, claim_id TEXT NOT NULL, opened_on DATE NOT NULL, closed_on DATE, status TEXT NOT NULL,
  type TEXT NOT NULL, depot INTEGER NOT NULL, region TEXT NOT NULL, customer TEXT NOT NULL, claimant TEXT NOT NULL,
  machine TEXT NOT NULL, amount DECIMAL(10,2) NOT NULL, reserve DECIMAL(10,2), PRIMARY KEY (tenant, claim_id));
CREATE TABLE approvals (tenant TEXT NOT NULL, approval_id TEXT NOT NULL PRIMARY KEY, claim_id TEXT NOT NULL, region TEXT NOT NULL,
  role TEXT NOT NULL,  amount DECIMAL(10,2) NOT NULL, asked_at DATETIME NOT NULL, approved_at DATETIME NOT NULL, verbal BOOLEAN NOT NULL);
"""


def make_tables(folder: Path) -> None:
    """Everything into `folder`; lists that are the same already keep their time, so that they are not copied again for nothing."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    rng = random.Random(20261201)
    write_csv(folder / "depots.csv", [("tenant", "depot", "place", "region", "lead"), *DEPOTS])
    write_duckdb(folder / "roster.duckdb", "technicians", ROSTER, list(technicians(rng)))
    write_parquet(folder / "parts.parquet", INVENTORY, list(parts(rng)))
    made = claims(rng)
    beside = folder / "service_desk.sqlite.new"
    beside.unlink(missing_ok=True)
    con = sqlite3.connect(beside)
    con.executescript(SCRIPT)
    con.executemany(f"INSERT INTO claims VALUES ({', '.join('?' * 13)})", made)
    con.executemany(f"INSERT INTO approvals VALUES ({', '.join('?' * 9)})", approvals(rng, made))
    con.commit()
    con.close()
    beside.replace(folder / "service_desk.sqlite")


def write_csv(path: Path, rows: Sequence[Sequence[object]]) -> None:
    beside = path.with_suffix(".new")
    with beside.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    keep_or_replace(path, beside)


def write_parquet(path: Path, columns: str, rows: Sequence[Sequence[object]]) -> None:
    beside, between = path.with_suffix(".new"), path.with_suffix(".csv.new")
    with between.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    con = duckdb.connect(config={"threads": 1})
    con.execute(f"CREATE TABLE made ({columns})")
    con.execute(f"COPY made FROM '{quote(between)}' (FORMAT csv, HEADER false)")
    con.execute(f"COPY made TO '{quote(beside)}' (FORMAT parquet)")
    con.close()
    between.unlink()
    keep_or_replace(path, beside)


def write_duckdb(path: Path, name: str, columns: str, rows: Sequence[Sequence[object]]) -> None:
    """The file of an engine is other bytes each time; the same rows are the same list all the same."""
    beside = path.with_suffix(".new")
    beside.unlink(missing_ok=True)
    con = duckdb.connect(str(beside))
    con.execute(f"CREATE TABLE {name} ({columns})")
    con.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    made = con.execute(f"SELECT * FROM {name} ORDER BY ALL").fetchall()
    con.close()
    # the engine's error: there is none yet, or something else lies there
    with contextlib.suppress(duckdb.Error), duckdb.connect(str(path), read_only=True) as con:
        if con.execute(f"SELECT * FROM {name} ORDER BY ALL").fetchall() == made:
            beside.unlink()
            return
    beside.replace(path)


def keep_or_replace(path: Path, beside: Path) -> None:
    if path.exists() and path.read_bytes() == beside.read_bytes():
        beside.unlink()
    else:
        beside.replace(path)


def quote(path: Path) -> str:
    return str(path).replace("'", "''")


if __name__ == "__main__":
    make_tables(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "state" / "made")
