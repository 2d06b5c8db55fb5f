"""The world of the governed-SQL suites: the fixture, its policy as grants, and the oracle.

The oracle is a database that holds nothing but physical copies of the rows and columns that one tenant may see, made here from
the policy's own words and not through the code under test. What a text answers there is what it must answer under the gate.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from connectors import duckdb_tables
from connectors.duckdb_tables import DuckTables, Gate, plain_value
from router.domain import ColumnGrant, SqlLimits, Table, TableGrant
from router.filters import Eq
from router.sql import gate

HERE = Path(__file__).parent
POLICY = json.loads((HERE / "policy.json").read_text(encoding="utf-8"))
CASES = [json.loads(line) for line in (HERE / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
TENANTS = (1, 2, 3)
LIMITS = SqlLimits()
GATE = Gate(gate.check_text, gate.check_versions, gate.govern, gate.refuse)
DOMAINS = {1: "acme", 2: "globex", 3: "initech"}
EXTREMES = {2: "0.01", 3: "987654.32"}


def today() -> date:
    return datetime.now(UTC).date()


@cache
def grants(tenant: int, *, min_group: int | None = None) -> tuple[TableGrant, ...]:
    return tuple(
        TableGrant(
            name,
            f"main.{name}",
            tuple(ColumnGrant(column, view["masks"].get(column)) for column in view["columns"]),
            Eq("tenant", str(tenant)),
            (("tenant", "CAST(tenant_id AS VARCHAR)", "string"),),
            min_group,
            ("tenant-wall",),
        )
        for name, view in POLICY["views"].items()
    )


def make_database(folder: Path) -> Path:
    target = folder / "tables.duckdb"
    duckdb_tables.build_database((HERE / "fixture.sql").read_text(encoding="utf-8"), target)
    return target


class Oracle:
    """One tenant's physical copies, from the policy's words."""

    def __init__(self, tenant: int) -> None:
        with duckdb.connect(":memory:") as full:
            full.execute((HERE / "fixture.sql").read_text(encoding="utf-8"))
            self._con = duckdb.connect(":memory:", config={"threads": 1})
            for name, view in POLICY["views"].items():
                columns = ", ".join(f"{view['masks'][c]} AS {c}" if c in view["masks"] else c for c in view["columns"])
                rows = full.execute(f"SELECT {columns} FROM (SELECT * FROM {name} WHERE tenant_id = {tenant})")
                types = ", ".join(f'"{column[0]}" {column[1]}' for column in rows.description)
                self._con.execute(f"CREATE TABLE {name} ({types})")
                self._con.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(view['columns']))})", rows.fetchall())

    def run(self, text: str) -> list[tuple[Any, ...]] | None:
        """Rows, or None where the text fails."""
        con = self._con.cursor()
        try:
            return [tuple(plain_value(value) for value in row) for row in con.execute(text).fetchall()]
        except duckdb.Error:
            return None
        finally:
            con.close()


@cache
def oracle(tenant: int) -> Oracle:
    return Oracle(tenant)


def same(left: Iterable[Sequence[Any]], right: Iterable[Sequence[Any]]) -> bool:
    """As multisets; floats to nine digits."""
    return Counter(map(_key, left)) == Counter(map(_key, right))


def _key(value: Any) -> str:
    return json.dumps(_rounded(value), sort_keys=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value


def leaks(tenant: int, shown: str) -> list[str]:
    """Which of the things that this tenant must never see stand in what it was shown."""
    forbidden = ["CANARY", *(domain for other, domain in DOMAINS.items() if other != tenant)]
    forbidden += [f"{value}" for other, value in EXTREMES.items() if other != tenant and other == 3]
    return [word for word in forbidden if word in shown]


def run(engine: DuckTables, text: str, tenant: int, **changes: Any) -> Table:
    settings: dict[str, Any] = {"tenant": str(tenant), "today": today(), "limits": LIMITS, "deadline_s": 20.0} | changes
    return engine.run_governed(text, settings.pop("grants", grants(tenant)), **settings)
