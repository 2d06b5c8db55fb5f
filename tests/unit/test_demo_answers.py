"""What the demonstration promises of its tables: each person's rows, computed twice and by different hands.

Once by the governed line under policies/. Once by plain DuckDB over the raw files, with what each person may see written out here:
whoever changes a policy so that somebody sees other rows has to say it here, too.
"""

from __future__ import annotations

import csv
import datetime
import runpy
import sqlite3
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pytest

from router.app import Router, make_development_issuer
from router.config import parse_settings
from router.domain import SqlLimits
from router.errors import Refused
from router.plain import parse_yaml
from router.review.cases import map_person
from router.sql.check import narrow
from router.sql.compile import lower_form
from router.sql.parse_form import parse_form
from tests.world import ROOT

DEMO = ROOT / "deploy" / "demo"
FILE = parse_yaml((DEMO / "questions.yaml").read_text(encoding="utf-8"))
ENTRIES, TODAY = FILE["tables"], FILE["now"]
NOW = datetime.datetime.combine(TODAY, datetime.time(12), datetime.UTC)
IDS = [f"{at}-{entry['as']}" for at, entry in enumerate(ENTRIES)]

OURS, THEIRS = "tenant = 'fabrikam'", "tenant = 'contoso'"
DISPUTED = "status = 'disputed'"
INITIAL = {"claimant": "left(claimant, 1) || '***'"}
DESK = {**INITIAL, "reserve": "(round(reserve / 100) * 100)::DECIMAL(10,2)"}
PHONE: dict[str, str | None] = {"home_phone": "'*** ' || right(home_phone, 3)"}
COLLEAGUES = {**PHONE, "hourly_cost": None}
TENS = {"hourly_cost": "(round(hourly_cost / 10) * 10)::DECIMAL(8,2)"}
UNPRICED = {"price_eur": None}


def adjuster(region: str) -> dict[str, Any]:
    here = f"{OURS} AND region = '{region}'"
    return {"depots": (OURS, {}), "claims": (f"{here} AND NOT {DISPUTED}", DESK), "approvals": (here, {})}


SEES: dict[str, dict[str, tuple[str, dict[str, str | None]]]] = {
    # person -> table -> rows, and the columns that are masked (an expression) or hidden (None)
    "ada": {"depots": (OURS, {}), "parts": (OURS, UNPRICED), "technicians": (f"{OURS} AND region = 'West'", COLLEAGUES)},
    "bela": {},
    "carla": {"depots": (OURS, {}), "technicians": (OURS, TENS)},
    "dmitri": {"depots": (OURS, {})},
    "esther": adjuster("West"),
    "farid": adjuster("East"),
    "gwen": {"depots": (OURS, {}), "parts": (OURS, {}), "technicians": (f"{OURS} AND region = 'South'", COLLEAGUES)},
    "hugo": {**adjuster("North"), "parts": (OURS, {})},
    "ines": {"depots": (THEIRS, {}), "parts": (THEIRS, UNPRICED), "technicians": (f"{THEIRS} AND region = 'West'", COLLEAGUES)},
    "jonas": {"depots": (THEIRS, {}), "technicians": (THEIRS, TENS)},
    "lena": {"depots": (OURS, {})},
    "mira": {"depots": (OURS, {}), "claims": (OURS, {}), "approvals": (OURS, {})},
    "nadia": {"depots": (OURS, {}), "claims": (f"{OURS} AND {DISPUTED}", DESK)},
    "otto": {
        "depots": (OURS, {}), "technicians": (OURS, PHONE), "parts": (OURS, {}), "claims": (OURS, INITIAL), "approvals": (OURS, {}),
    },
    "pavel": {"depots": (THEIRS, {}), "claims": (THEIRS, {}), "approvals": (THEIRS, {})},
}  # fmt: skip
TABLES = ("depots", "technicians", "parts", "claims", "approvals")


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    """Policies and tables of the demonstration, in a folder of its own and without its documents."""
    folder = tmp_path_factory.mktemp("demo")
    runpy.run_path(str(DEMO / "tables" / "make_tables.py"))["make_tables"](folder / "state" / "made")
    shipped = tomllib.loads((DEMO / "pointsman.toml").read_text(encoding="utf-8"))
    settings = parse_settings({"policies": str(ROOT / "policies"), "tables": shipped["tables"]}, folder)
    make_development_issuer(settings)
    with Router(settings) as made:
        made.copy_tables()
        made.folder = folder / "state" / "made"
        yield made


@pytest.fixture(scope="module")
def raw(router):
    """The files as they are, read by nothing of ours."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE raw_depots AS FROM read_csv('{router.folder}/depots.csv')")
    con.execute(f"CREATE TABLE raw_parts AS FROM read_parquet('{router.folder}/parts.parquet')")
    con.execute(f"ATTACH '{router.folder}/roster.duckdb' AS roster (READ_ONLY)")
    con.execute("CREATE TABLE raw_technicians AS FROM roster.technicians")
    desk = sqlite3.connect(router.folder / "service_desk.sqlite")
    for table in ("claims", "approvals"):
        columns = [
            (name, kind.replace("DATETIME", "TIMESTAMP")) for _, name, kind, *_ in desk.execute(f"PRAGMA table_info({table})")
        ]
        con.execute(f"CREATE TABLE raw_{table} ({', '.join(f'{name} {kind}' for name, kind in columns)})")
        with (router.folder / f"{table}.csv").open("w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows(desk.execute(f"SELECT * FROM {table}"))
        con.execute(f"COPY raw_{table} FROM '{router.folder}/{table}.csv' (FORMAT csv, HEADER false)")
    desk.close()
    yield con
    con.close()


def by_hand(raw, person: str, sql: str) -> list[tuple[Any, ...]]:
    for table in TABLES:
        rows, columns = SEES[person].get(table, ("false", {}))
        hidden = [name for name, mask in columns.items() if mask is None]
        masks = [f"{mask} AS {name}" for name, mask in columns.items() if mask is not None]
        star = "*" + (f" EXCLUDE ({', '.join(hidden)})" if hidden else "") + (f" REPLACE ({', '.join(masks)})" if masks else "")
        raw.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS SELECT {star} FROM raw_{table} WHERE {rows}")
    return raw.execute(sql).fetchall()


def governed(router, entry) -> tuple[str, Sequence[Sequence[Any]]]:
    """Code and rows of the governed line."""
    if "form" not in entry:
        answer = router.ask_sql(entry["sql"], token=router.mint(entry["as"]), now=NOW)
        return answer.verdict.code, answer.table.rows if answer.table is not None else ()
    return "", measured(router, entry["as"], entry["form"])


def measured(router, person: str, form: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
    """What is measured in groups only is asked as a form."""
    policies = router.policies.current()
    principal = map_person(person, policies)
    grants = policies.grants(principal, NOW).query
    small = {grant.name: grant.min_group for grant in grants if grant.min_group}
    spelt = {**form, "time": {key: str(value) for key, value in form["time"].items()}} if "time" in form else form
    compiled = lower_form(parse_form(spelt), narrow(policies.catalog, grants), min_group=small)
    options = {"tenant": principal.tenant, "today": TODAY, "limits": SqlLimits(), "deadline_s": 5.0, "compiled": True}
    return router.tables.run_governed(compiled.sql, grants, **options).rows


def same(rows: Sequence[Sequence[Any]], entry: Mapping[str, Any]) -> bool:
    """In order where the question asks for an order."""
    expected = entry["rows"]
    if not entry.get("ordered"):
        return len(rows) == len(expected) and all(any(alike(row, wanted) for row in rows) for wanted in expected)
    return len(rows) == len(expected) and all(map(alike, rows, expected))


def alike(row: Sequence[Any], wanted: Sequence[Any]) -> bool:
    return len(row) == len(wanted) and all(map(equal, row, wanted))


def equal(got: Any, wanted: Any) -> bool:
    """Rows survive JSON, so decimals and days are texts; what a person wrote down has two decimals."""
    if isinstance(wanted, float):
        return got is not None and abs(float(got) - wanted) <= 0.0051
    if isinstance(wanted, datetime.date):
        return str(got)[:10] == str(wanted)
    return got == wanted


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_rows_are_those_of_the_policy_written_by_hand(router, raw, entry):
    code, rows = governed(router, entry)
    assert code == entry.get("code", "")
    if code:
        with pytest.raises(duckdb.BinderException):
            by_hand(raw, entry["as"], entry["sql"])
        return
    assert same(rows, entry), rows
    assert same(by_hand(raw, entry["as"], entry["sql"]), entry)


@pytest.mark.parametrize("person", sorted(SEES))
@pytest.mark.parametrize("table", TABLES)
def test_everybody_has_these_rows_and_columns_and_no_others(router, raw, person, table):
    """Every table, every column: counts, ends and different values, so that no row and no mask can be another."""

    def ask(sql: str) -> Any:
        return router.ask_sql(sql, token=router.mint(person), now=NOW)

    if table not in SEES[person]:
        assert ask(f"SELECT count(*) FROM {table}").verdict.code == "sql_unknown_table"
        return
    count = f"SELECT count(*) FROM {table}"
    if table == "approvals":
        assert ask(count).verdict.code == "sql_small_groups"
        [[found]] = measured(router, person, {"from": table, "measures": [{"agg": "count", "of": "*"}]})
        assert [(found,)] == by_hand(raw, person, count)
        return
    _, columns = SEES[person][table]
    names = [name for name, *_ in raw.execute(f"DESCRIBE raw_{table}").fetchall()]
    for hidden in (name for name in names if columns.get(name, "") is None):
        assert ask(f"SELECT max({hidden}) FROM {table}").verdict.code == "sql_unknown_column"
    told = ", ".join(
        f"count({name}), count(DISTINCT {name}), min({name}), max({name})" for name in names if columns.get(name, "") is not None
    )
    sql = f"SELECT count(*), {told} FROM {table}"
    answer = ask(sql)
    assert answer.verdict.code == ""
    assert list(map(str, answer.table.rows[0])) == list(map(str, by_hand(raw, person, sql)[0]))


def test_everybody_is_told_of(router):
    """Whoever is added to people.yaml has to be said here, too."""
    accepted = set(router.policies.current().people) - {"kim"}
    assert set(SEES) == accepted
    with pytest.raises(Refused):
        map_person("kim", router.policies.current())


def test_what_is_measured_in_groups_is_not_shown_in_rows(router):
    for sql in (
        "SELECT approval_id FROM approvals",
        "SELECT count(*) FROM approvals",
        *(e["sql"] for e in ENTRIES if "form" in e),
    ):
        assert router.ask_sql(sql, token=router.mint("mira"), now=NOW).verdict.code == "sql_small_groups"


def test_what_is_hidden_reads_like_what_does_not_exist(router):
    """Byte for byte, but for the name that the asker wrote."""
    for hidden, missing in (("hourly_cost", "shoe_size"), ("price_eur", "colour")):
        table = "technicians" if hidden == "hourly_cost" else "parts"
        verdicts = [
            router.ask_sql(f"SELECT max({name}) FROM {table}", token=router.mint("ada"), now=NOW).verdict
            for name in (hidden, missing)
        ]
        assert verdicts[0].code == "sql_unknown_column"
        assert verdicts[0].reason == verdicts[1].reason
    for table in ("claims", "complaints"):
        assert router.ask_sql(f"FROM {table}", token=router.mint("ada"), now=NOW).verdict.code == "sql_unknown_table"


def test_an_adjuster_finds_a_claim_by_a_name_that_stays_masked(router):
    sql = "SELECT claim_id, claimant FROM claims WHERE claimant = 'Jana Marsh' AND region = 'East' AND claim_id > 'CLM-2026-3'"
    assert router.ask_sql(sql, token=router.mint("farid"), now=NOW).table.rows == (("CLM-2026-3343", "J***"),)
    assert router.ask_sql(sql, token=router.mint("nadia"), now=NOW).table.rows == ()


def test_enough_is_asked_by_enough_people():
    questions = {entry["ask"] for entry in ENTRIES if not entry.get("written")}
    assert len(questions) >= 8
    assert len({entry["as"] for entry in ENTRIES}) >= 8
    pairs: dict[str, list[Any]] = {}
    for entry in ENTRIES:
        assert ("rows" in entry) != ("code" in entry)
        if "pair" in entry:
            pairs.setdefault(entry["pair"], []).append(entry)
    for name, asked in pairs.items():
        assert len({entry["ask"] for entry in asked}) == 1, name
        assert len({str(entry.get("rows")) for entry in asked}) == len(asked), name
