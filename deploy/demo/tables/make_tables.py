"""Tables of the demonstration world, the same rows each time: `python make_tables.py FOLDER` (default: ../state/made).

Two companies stand in every table; a row says whose it is in `tenant`. Bins, claims and customers are those of the documents
(README.md). Contoso uses the same part numbers, claim numbers and depot numbers with other facts. CSV for what comes from hand-kept
lists, SQLite for what comes from a running system.

    depots         11 rows  fabrikam 1 to 8, contoso 1 to 3
    technicians    60 rows  with their home telephone (personal) and hourly cost (confidential)
    parts       50,000 rows  inventory: one row a part, depot and bin
    claims      20,000 rows  by region; `reserve` is what the desk expects to lose, `claimant` is personal
    approvals    6,000 rows  who approved how much of which claim
"""

from __future__ import annotations

import csv
import datetime
import random
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

TODAY = datetime.date(2026, 12, 1)
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
CLAIMS = [  # those that the notes of the regions speak of
    ("CLM-2025-0490", 8, "Kestrel Parcels"), ("CLM-2025-0533", 5, "Kestrel Parcels"), ("CLM-2026-0117", 4, "Brightwell Bottlers"),
    ("CLM-2026-0151", 5, "Kestrel Parcels"), ("CLM-2026-0203", 4, "Lakeshore Dairy"), ("CLM-2026-0219", 6, "Dunmere Mills"),
    ("CLM-2026-0264", 5, "Brightwell Bottlers"), ("CLM-2026-0288", 1, "Harbour Mills"),
]  # fmt: skip
CUSTOMERS = [
    "Brightwell Bottlers",
    "Lakeshore Dairy",
    "Harbour Mills",
    "Kestrel Parcels",
    "Tamarind Foods",
    "Dunmere Mills",
    "Oakum Paper",
]
BUSY = [6, 2, 2, 5, 4, 1, 1, 3]  # how much of the work falls on each depot
TYPES = ["R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "W1", "W1", "W1", "E1", "G1", "N1", "N2"]
MACHINES = ["CX-400", "CX-200", "PM-7", "WR-30", "SF-12", "SL-900", "SG-5", "LD-2"]
FIRST = "Ada Bela Carl Dora Egon Fay Gil Hana Ivo Jana Kai Lea Max Nina Otto Pia Quin Rosa Sven Tara".split()
LAST = "Lindqvist Marsh Novak Okoye Petrov Quist Rahm Sato Tran Ulm Vance Weiss Yilmaz Zorn Abbot Brandt".split()
LIMITS = [("technician", 400), ("depot lead", 2000), ("regional manager", 15000), ("head of service", 10**9)]


def technicians(rng: random.Random) -> Iterator[tuple[object, ...]]:
    yield ("tenant", "technician_id", "name", "depot", "region", "band", "hourly_cost", "home_phone", "hired_on")
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
    yield ("tenant", "part", "description", "depot", "bin", "on_hand", "minimum", "price_eur", "counted_on")
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
            stock = shown or (place, max(0, int(rng.gauss(14, 12))), rng.randrange(0, 20))
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
    known = {(number, "fabrikam"): (depot, customer) for number, depot, customer in CLAIMS}
    for tenant, share in (("fabrikam", 16_000), ("contoso", 4_000)):
        own = [depot for whose, depot, *_ in DEPOTS if whose == tenant]
        for number in range(share):
            year = 2023 + number * 4 // share
            claim = f"CLM-{year}-{number - (year - 2023) * share // 4 + 1:04d}"
            depot, customer = known.get(
                (claim, tenant),
                (rng.choices(own, BUSY[: len(own)])[0], rng.choice(CUSTOMERS) if tenant == "fabrikam" else "own hall"),
            )
            last = (TODAY if year == 2026 else datetime.date(year, 12, 31)) - datetime.timedelta(days=1)
            opened = datetime.date(year, 1, 1) + datetime.timedelta(
                days=rng.randrange((last - datetime.date(year, 1, 1)).days + 1)
            )
            state, closed = status(rng, opened)
            amount = round(min(30_000.0, rng.lognormvariate(5.4, 1.1)), 2)
            reserve = round(amount * rng.uniform(0.5, 3), 2) if rng.random() < 0.7 else None
            who = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
            rows.append(
                (tenant, claim, opened.isoformat(), closed.isoformat() if closed else None, state, rng.choice(TYPES), depot,
                 region(tenant, depot), customer, who, rng.choice(MACHINES), f"{amount:.2f}", f"{reserve:.2f}" if reserve else None)
            )  # fmt: skip
    return rows


def status(rng: random.Random, opened: datetime.date) -> tuple[str, datetime.date | None]:
    age = (TODAY - opened).days
    closed = opened + datetime.timedelta(days=rng.randrange(2, 90))
    if closed < TODAY and rng.random() < (0.97 if age > 90 else 0.7):
        return ("paid" if rng.random() < 0.7 else "refused"), closed
    return ("open" if rng.random() < 0.8 else "disputed"), None


def approvals(rng: random.Random, made: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Of 6,000 claims; an amount above one's own limit went up to who may approve it."""
    rows: list[tuple[object, ...]] = []
    for number, claim in enumerate(sorted(rng.sample(range(len(made)), 6_000))):
        tenant, claim_id, opened, *_ = made[claim]
        amount = float(str(made[claim][11]))
        role = next(role for role, limit in LIMITS if amount <= limit)
        day = datetime.date.fromisoformat(str(opened)) + datetime.timedelta(days=rng.randrange(0, 2))
        rows.append((tenant, f"ATP-{number + 1:05d}", claim_id, role, f"{amount:.2f}", day.isoformat(), int(rng.random() < 0.1)))
    return rows


def region(tenant: str, depot: int) -> str:
    return next(area for whose, number, _, area, _ in DEPOTS if (whose, number) == (tenant, depot))


SCRIPT = """
CREATE TABLE claims (tenant TEXT NOT NULL, claim_id TEXT NOT NULL, opened_on DATE NOT NULL, closed_on DATE, status TEXT NOT NULL,
  type TEXT NOT NULL, depot INTEGER NOT NULL, region TEXT NOT NULL, customer TEXT NOT NULL, claimant TEXT NOT NULL,
  machine TEXT NOT NULL, amount DECIMAL(10,2) NOT NULL, reserve DECIMAL(10,2), PRIMARY KEY (tenant, claim_id));
CREATE TABLE approvals (tenant TEXT NOT NULL, approval_id TEXT NOT NULL PRIMARY KEY, claim_id TEXT NOT NULL, role TEXT NOT NULL,
  amount DECIMAL(10,2) NOT NULL, approved_on DATE NOT NULL, verbal BOOLEAN NOT NULL);
"""


def make_tables(folder: Path) -> None:
    """Everything into `folder`; lists that are the same already keep their time, so that they are not copied again for nothing."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    rng = random.Random(20261201)
    write_csv(folder / "depots.csv", [("tenant", "depot", "place", "region", "lead"), *DEPOTS])
    write_csv(folder / "technicians.csv", list(technicians(rng)))
    write_csv(folder / "parts.csv", list(parts(rng)))
    made = claims(rng)
    beside = folder / "service_desk.sqlite.new"
    beside.unlink(missing_ok=True)
    con = sqlite3.connect(beside)
    con.executescript(SCRIPT)
    con.executemany(f"INSERT INTO claims VALUES ({', '.join('?' * 13)})", made)
    con.executemany(f"INSERT INTO approvals VALUES ({', '.join('?' * 7)})", approvals(rng, made))
    con.commit()
    con.close()
    beside.replace(folder / "service_desk.sqlite")


def write_csv(path: Path, rows: Sequence[Sequence[object]]) -> None:
    beside = path.with_suffix(".new")
    with beside.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    if path.exists() and path.read_bytes() == beside.read_bytes():
        beside.unlink()
    else:
        beside.replace(path)


if __name__ == "__main__":
    make_tables(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "state" / "made")
