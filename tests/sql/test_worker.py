"""The workers: right rows, bounded time and memory, and nothing that passes from one caller to another."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pickle
import signal
import threading
import time
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors import duckdb_tables
from connectors.duckdb_tables import DuckTables, plain_value
from router.domain import ColumnGrant, SqlLimits, TableGrant
from router.doors.cli.output import plain
from router.errors import Refused, SourceError
from router.filters import Always, Eq
from router.sql.branch import literal
from tests.sql.oracle import CASES, GATE, LIMITS, TENANTS, grants, leaks, make_database, oracle, run, same

TIGHT = SqlLimits(timeout_s=1.0)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    return make_database(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def engine(database):
    with DuckTables(GATE, database, workers=2) as engine:
        yield engine


@pytest.fixture(scope="module")
def tight(database):
    with DuckTables(GATE, database, workers=2, limits=TIGHT) as engine:
        yield engine


def refusal(engine, text, tenant=1, **changes):
    with pytest.raises(Refused) as found:
        run(engine, text, tenant, **changes)
    return found.value


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_corpus(engine, tight, case, caplog):
    """Accepted texts answer as on physical copies, for every tenant; rejected ones leave a code and nothing else."""
    caplog.set_level(logging.DEBUG)
    for tenant in TENANTS:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            if case["must"] == "accept":
                table = run(engine, case["sql"], tenant)
                assert same(table.rows, oracle(tenant).run(case["sql"]))
                shown.write(json.dumps(table.rows))
            else:
                error = refusal(tight, case["sql"], tenant, limits=TIGHT)
                shown.write(str(error.as_json()))
        assert not leaks(tenant, shown.getvalue() + caplog.text)
        if case["must"] == "reject":
            break


def test_order_is_kept(engine):
    text = "SELECT claim_id, amount FROM claims_v ORDER BY amount DESC, claim_id LIMIT 20"
    assert list(run(engine, text, 2).rows) == oracle(2).run(text)


def test_typed_columns_survive_json(engine):
    text = """SELECT amount, reported_at, CAST(reported_at AS DATE) AS d, tags, loss, severity, reserve IS NULL AS n, NULL AS nothing,
        CAST(amount AS DOUBLE) AS f, INTERVAL '3 days' AS i FROM claims_v ORDER BY claim_id LIMIT 1"""
    table = run(engine, text, 1)
    assert [(column.name, column.type) for column in table.columns[:6]] == [
        ("amount", "DECIMAL(12,2)"),
        ("reported_at", "TIMESTAMP"),
        ("d", "DATE"),
        ("tags", "VARCHAR[]"),
        ("loss", "STRUCT(cause VARCHAR, items INTEGER)"),
        ("severity", "INTEGER"),
    ]
    (row,) = table.rows
    assert row[0] == "1027.13"
    assert row[1] == "2023-01-04T01:17:00"
    assert row[3:5] == (["urgent", "fraud-check"], {"cause": "mechanical", "items": 4})
    assert json.loads(json.dumps(row, allow_nan=False)) == list(row)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (b"\x01\xff", "01ff"),
        ({1: "a"}, [[1, "a"]]),
        ({"a": (1, None)}, {"a": [1, None]}),
        (2**100, 2**100),
        (date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_plain_values(value, plain):
    assert plain_value(value) == plain


def test_masked_columns_say_so(engine):
    table = run(engine, "SELECT claimant_name, amount, upper(claimant_email) AS e FROM claims_v LIMIT 2", 1)
    assert [column.masked for column in table.columns] == [True, False, True]


def _raw_grants(tenant):
    claims, *others = grants(tenant)
    columns = tuple(
        ColumnGrant(column.name, column.mask, filter_raw=column.name == "claimant_email") for column in claims.columns
    )
    return (TableGrant(claims.name, claims.relation, columns, claims.filter, claims.attributes, None, ()), *others)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT count(*) FROM claims_v WHERE claimant_email = 'c1@acme.example'", ((1,),)),
        ("SELECT count(*) FROM claims_v WHERE severity > 0 AND (claimant_email LIKE 'c1@%') AND status <> ''", ((1,),)),
        ("SELECT count(*) FROM claims_v WHERE NOT claimant_email IN ('c1@acme.example', 'c4@acme.example')", ((118,),)),
        ("SELECT claimant_email FROM claims_v c WHERE c.claimant_email = 'c1@acme.example'", (("***@acme.example",),)),
        ("SELECT count(*) FROM claims_v c JOIN depots_v d USING (depot_id) WHERE c.claimant_email = 'c1@acme.example'", ((1,),)),
        # everywhere else the mask stands
        ("SELECT count(*) FROM claims_v WHERE claimant_name = 'Jonas Costa T1'", ((0,),)),
        ("SELECT count(*) FROM claims_v WHERE claimant_email = 'c2@globex.example'", ((0,),)),
        ("SELECT count(*) FROM claims_v WHERE claimant_email = 'c1@acme.example' OR false", ((0,),)),
        ("SELECT count(*) FROM claims_v WHERE lower(claimant_email) = 'c1@acme.example'", ((0,),)),
        (
            "SELECT count(*) FROM depots_v d LEFT JOIN claims_v c USING (depot_id) WHERE c.claimant_email = 'c1@acme.example'",
            ((0,),),
        ),
        ("SELECT count(*) FROM claims_v GROUP BY claimant_email HAVING claimant_email = 'c1@acme.example'", ()),
        ("SELECT count(*) FROM (SELECT 'c1@acme.example' AS claimant_email) x JOIN claims_v USING (claimant_email)", ((0,),)),
    ],
)
def test_raw_values_stand_in_predicates_where_granted(engine, text, rows):
    assert run(engine, text, 1, grants=_raw_grants(1)).rows == rows


def test_raw_values_are_never_shown(engine):
    table = run(
        engine, "SELECT * FROM claims_v WHERE claimant_email LIKE 'c%' ORDER BY claim_id LIMIT 3", 1, grants=_raw_grants(1)
    )
    assert [column.name for column in table.columns] == [column.name for column in grants(1)[0].columns]
    assert "c1@" not in json.dumps(table.rows)
    for text in (
        "SELECT pointsman_raw_claimant_email FROM claims_v",
        "SELECT c['pointsman_raw_claimant_email'] FROM claims_v c",
        "SELECT COLUMNS('.*raw.*') FROM claims_v",
        "SELECT 1 FROM claims_v WHERE pointsman_raw_claimant_email = 'c1@acme.example'",
        "SELECT 1 FROM claims_v ORDER BY pointsman_raw_claimant_email",
    ):
        assert refusal(engine, text, grants=_raw_grants(1)).code == "sql_unknown_column"


def test_rows_are_cut_at_the_cap(engine):
    table = run(engine, "SELECT a.claim_id FROM claims_v a, claims_v b", 1, limits=SqlLimits(max_rows=50))
    assert len(table.rows) == 50
    assert table.truncated
    exact = run(engine, "SELECT claim_id FROM claims_v LIMIT 50", 1, limits=SqlLimits(max_rows=50))
    assert len(exact.rows) == 50
    assert not exact.truncated


def test_bytes_are_cut_at_the_cap(engine):
    table = run(engine, "SELECT claimant_email FROM claims_v", 1, limits=SqlLimits(max_bytes=500))
    assert table.truncated
    assert 0 < len(json.dumps(table.rows)) < 700


def test_day_is_the_callers(engine):
    assert run(engine, "SELECT current_date AS d, today() AS t", 1, today=date(2020, 2, 29)).rows == (
        ("2020-02-29", "2020-02-29"),
    )


def test_verdict(engine):
    common = {"tenant": "1", "today": date(2026, 1, 1), "limits": LIMITS, "deadline_s": 10.0}
    fine = engine.check("SELECT count(*) FROM depots_v", grants(1), **common)
    assert (fine.code, fine.tables) == ("", ("depots_v",))
    assert engine.check("SELECT * FROM employees", grants(1), **common).code == "sql_unknown_table"
    assert engine.check("SELECT '\x07'", grants(1), **common).code == "sql_characters"


COMMON = {"tenant": "1", "today": date(2026, 1, 1), "limits": LIMITS, "deadline_s": 20.0}


def test_bound_verdict_is_that_of_a_run(engine):
    """Whatever the corpus holds: what binds runs, and what does not leaves the code that it leaves when it runs."""
    for case in CASES:
        if "exhausts a limit" in case["why"]:
            continue
        try:
            run(engine, case["sql"], 1)
            code = ""
        except Refused as refused:
            code = refused.code
        assert engine.check(case["sql"], grants(1), bound=True, **COMMON).code == code, case["id"]


def test_hidden_columns_bind_as_absent_ones_do(engine):
    verdicts = [
        engine.check(f"SELECT {name} FROM claims_v WHERE amount > 0", grants(1), bound=True, **COMMON)
        for name in ("claimant_phone", "no_such_column", "pointsman_raw_claimant_email")
    ]
    assert {(verdict.code, verdict.reason) for verdict in verdicts} == {
        ("sql_unknown_column", "a column does not exist or its use does not fit its type")
    }
    assert verdicts[0].tables == ("claims_v",)


def test_binding_reads_no_row(engine, tight):
    """What fails on a row, or would never end, binds."""
    endless = f"SELECT count(*) FROM {', '.join(f'claims_v c{at}' for at in range(6))}"
    assert refusal(tight, endless, limits=TIGHT).code == "sql_limit_time"
    began = time.monotonic()
    assert engine.check(endless, grants(1), bound=True, **COMMON).code == ""
    assert time.monotonic() - began < 1.0
    failing = "SELECT CAST(claimant_name AS INTEGER) FROM claims_v"
    assert refusal(engine, failing).code == "sql_value"
    assert engine.check(failing, grants(1), bound=True, **COMMON).code == ""


def test_the_gate_is_heard_of_before_rows(engine, tight):
    """Once, with what is read, also where the rows never come; a text that the gate refuses is never heard of."""
    told = []
    table = run(engine, "SELECT count(*) FROM depots_v", 1, judged=told.append)
    assert [(verdict.code, verdict.tables, verdict.generated) for verdict in told] == [("", ("depots_v",), table.generated)]
    for text, tables in (
        (f"SELECT count(*) FROM {', '.join(f'claims_v c{at}' for at in range(6))}", [("claims_v",)]),
        ("SELECT no_such_column FROM claims_v", [("claims_v",)]),
        ("SELECT * FROM employees", []),
    ):
        told.clear()
        refusal(tight, text, limits=TIGHT, judged=told.append)
        assert [verdict.tables for verdict in told] == tables


@settings(max_examples=150, deadline=None)
@given(
    st.text(
        st.one_of(
            st.characters(exclude_categories=["Cs"], exclude_characters="\0"), st.sampled_from("\x1b\x9b\\'\r\u200b\u202ex1b")
        ),
        max_size=20,
    )
)
def test_any_stored_text_can_be_asked_for(engine, text):
    """A value with signs of control passes the gate as it is meant, and what is shown of its SQL is all of it."""
    written = literal(text)
    assert plain(written) == written
    assert run(engine, f"SELECT {written} AS x, 'a' IN ({written}) AS y", 1).rows == ((text, text == "a"),)


# --- limits -----------------------------------------------------------------------------------------------------------

TEN = " || ".join(["x"] * 10)
BOMBS = {
    "recursion": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
    "cross join": "SELECT count(*) FROM claims_v a, claims_v b, claims_v c, claims_v d, claims_v e WHERE a.amount + b.amount > e.amount + c.amount",
    "concatenation": "WITH c0 AS (SELECT status AS x FROM claims_v LIMIT 1)"
    + "".join(f", c{i + 1} AS (SELECT {TEN} AS x FROM c{i})" for i in range(9))
    + " SELECT length(x) FROM c9",
    "replace": "SELECT length(" + "replace(" * 9 + "'aaaaaaaaaa'" + ", 'a', 'aaaaaaaaaaaa')" * 9 + ")",
    "lists": "SELECT sum(len(list_concat(a, a))) FROM (SELECT list(x.amount) AS a FROM claims_v x, claims_v y, claims_v z, claims_v q)",
    "lambdas": "SELECT list_sum(list_transform(range(10000), LAMBDA x : list_sum(list_transform(range(10000), LAMBDA y : x * y))))",
    "sort": "SELECT a.claimant_email, b.claimant_email FROM claims_v a, claims_v b, claims_v c, claims_v d ORDER BY a.amount + b.amount * c.amount",
    "pivot": "PIVOT (SELECT a.claim_id % 50 AS k, b.claim_id AS v, c.region AS r FROM claims_v a, claims_v b, claims_v c, claims_v d) ON k IN ("
    + ", ".join(map(str, range(50)))
    + ") USING sum(v), max(v) GROUP BY r",
    "aggregated text": "SELECT length(string_agg(a.claimant_email || b.claimant_email, ',')) FROM claims_v a, claims_v b, claims_v c, claims_v d",
}


@pytest.mark.parametrize("deadline_s", [0.02, 0.3, 0.8])
def test_a_deadline_of_the_caller_is_no_refusal(tight, deadline_s):
    """With more time it may have ended well; only the limit that holds for everybody refuses."""
    tight.warm()
    for text in (BOMBS["cross join"], BOMBS["recursion"]):
        with pytest.raises(SourceError) as late:
            run(tight, text, 1, limits=TIGHT, deadline_s=deadline_s)
        assert (late.value.code in ("deadline", "sql_busy"), late.value.retryable) == (True, True)
        assert late.value.code == "deadline" or deadline_s < 0.1
    assert refusal(tight, BOMBS["cross join"], limits=TIGHT, deadline_s=20.0).code == "sql_limit_time"


def test_a_check_that_its_deadline_ends_is_no_verdict(tight):
    with pytest.raises(SourceError) as late:
        for tried in range(50):  # a fast machine may be done in time, but not in ever less of it
            limits = {"limits": TIGHT, "deadline_s": 0.005 * 0.8**tried}
            tight.check("SELECT 1" + "+1" * 1_900, grants(1), bound=True, **COMMON | limits)
    assert late.value.code in ("deadline", "sql_busy")


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_bombs_end_in_time(tight, name):
    tight.warm()
    started = time.monotonic()
    error = refusal(tight, BOMBS[name], limits=TIGHT)
    assert error.code in {"sql_limit_time", "sql_limit_memory", "sql_value"}
    assert time.monotonic() - started < TIGHT.timeout_s + 0.6
    assert len(run(tight, "SELECT claim_id FROM claims_v LIMIT 3", 1).rows) == 3


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "NOT " * 1900 + "true",
        "SELECT " + "- " * 1900 + "1",
        "SELECT 1" + "+1" * 1900,
        "SELECT " + "CASE WHEN true THEN " * 200 + "1" + " END" * 200,
        "SELECT x" + ".a" * 1900 + " FROM claims_v",
        "SELECT 1 WHERE " + "1=1 AND " * 900 + "true",
        "SELECT " + "a," * 1900 + "a FROM claims_v",
        "SELECT " + "1 IN (" * 60 + "1" + ")" * 60,
    ],
)
def test_deep_texts_never_cost_a_worker(tight, text):
    """Whatever sqlglot's recursion makes of it: an answer or a code, from the same process."""
    with contextlib.suppress(Refused):
        run(tight, text, 1, limits=TIGHT)
    assert len(run(tight, "SELECT claim_id FROM claims_v LIMIT 3", 1).rows) == 3


def test_memory_is_bounded(database):
    """Resident memory of the worker while strings that the engine does not count grow."""
    with DuckTables(GATE, database, workers=1, limits=TIGHT) as engine:
        engine.warm()
        most = {"kb": 0}
        over = threading.Event()

        def watch():
            while not over.wait(0.005):
                for worker in list(engine._all):
                    with contextlib.suppress(OSError, ValueError, IndexError):
                        text = Path(f"/proc/{worker.process.pid}/status").read_text()
                        most["kb"] = max(most["kb"], int(text.split("VmRSS:")[1].split()[0]))

        watcher = threading.Thread(target=watch)
        watcher.start()
        for name in ("concatenation", "replace", "lists", "aggregated text"):
            refusal(engine, BOMBS[name], limits=TIGHT)
        over.set()
        watcher.join()
        assert 0 < most["kb"] < 1_000_000


def test_processor_time_is_the_systems_to_end(database):
    """Where both of our clocks would stand still, the soft limit of processor time ends the worker."""
    with DuckTables(GATE, database, workers=1) as engine:
        run(engine, "SELECT 1 AS x", 1)
        (worker,) = engine._all
        limits = Path(f"/proc/{worker.process.pid}/limits").read_text()
        soft = next(line for line in limits.splitlines() if line.startswith("Max cpu time")).split()[3]
        assert soft != "unlimited"
        assert int(soft) <= 8


# --- faults -----------------------------------------------------------------------------------------------------------


def test_killed_worker_costs_its_caller_only(database):
    with DuckTables(GATE, database, workers=2) as engine:
        engine.warm()
        outcome = {}

        def ask(name, text):
            try:
                outcome[name] = len(run(engine, text, 1).rows)
            except (Refused, SourceError) as error:
                outcome[name] = error.code

        victim = threading.Thread(target=ask, args=("victim", BOMBS["cross join"]))
        victim.start()
        time.sleep(0.4)
        (busy,) = engine._all - set(engine._idle)
        os.kill(busy.process.pid, signal.SIGKILL)
        victim.join(5)
        ask("other", "SELECT claim_id FROM claims_v LIMIT 4")
        assert outcome == {"victim": "sql_worker_lost", "other": 4}
        time.sleep(0.5)
        ask("next", "SELECT claim_id FROM claims_v LIMIT 5")
        assert outcome["next"] == 5


def test_every_worker_killed_while_idle(database):
    with DuckTables(GATE, database, workers=2) as engine:
        engine.warm()
        for worker in list(engine._all):
            os.kill(worker.process.pid, signal.SIGKILL)
        codes = []
        for _ in range(4):
            try:
                codes.append(len(run(engine, "SELECT claim_id FROM claims_v LIMIT 2", 1).rows))
            except SourceError as error:
                codes.append(error.retryable)
        assert codes[-1] == 2
        assert False not in codes


def test_workers_are_recycled(database):
    with DuckTables(GATE, database, workers=1, recycle_after=3) as engine:
        pids = set()
        for _ in range(8):
            run(engine, "SELECT 1 AS x", 1)
            pids |= {worker.process.pid for worker in engine._all}
        assert len(pids) >= 3


@pytest.mark.parametrize("content", [None, b"", b"this is no database" * 1000])
def test_missing_or_broken_database(tmp_path, content):
    target = tmp_path / "x.duckdb"
    if content is not None:
        target.write_bytes(content)
    with DuckTables(GATE, target, workers=1) as engine, pytest.raises(SourceError) as error:
        run(engine, "SELECT claim_id FROM claims_v", 1)
    assert error.value.code in {"sql_database", "sql_relation"}
    assert str(tmp_path) not in str(error.value.as_json())


def test_attributes_of_another_type_are_a_fault(engine):
    claims = grants(1)[0]
    wrong = TableGrant(
        claims.name, claims.relation, claims.columns, Eq("tenant", "1"), (("tenant", "tenant_id", "string"),), None, ()
    )
    with pytest.raises(SourceError) as error:
        run(engine, "SELECT count(*) FROM claims_v", 1, grants=(wrong,))
    assert error.value.code == "sql_attribute"


def test_relation_that_is_not_there_is_a_fault(engine):
    gone = TableGrant("claims_v", "main.never", (ColumnGrant("a"),), Always(), (), None, ())
    with pytest.raises(SourceError) as error:
        run(engine, "SELECT count(*) FROM claims_v", 1, grants=(gone,))
    assert error.value.code == "sql_relation"


def test_snapshot_switches_under_running_statements(tmp_path, database):
    """What runs ends on the old snapshot, what comes next reads the new one, old workers are gone."""
    second = tmp_path / "second.duckdb"
    duckdb_tables.build_database("CREATE TABLE claims_v AS SELECT 1 AS tenant_id, 77 AS claim_id", second)
    served = {"now": database}
    small = TableGrant(
        "claims_v", "main.claims_v", (ColumnGrant("claim_id"),), Eq("tenant", "1"), grants(1)[0].attributes, None, ()
    )
    with DuckTables(GATE, lambda: served["now"], workers=2) as engine:
        engine.warm()
        rows = []
        slow = "SELECT count(*) AS n FROM claims_v a, claims_v b, claims_v c, claims_v d WHERE a.claim_id <> d.claim_id"
        running = threading.Thread(target=lambda: rows.append(_outcome(engine, slow, (small,))))
        running.start()
        time.sleep(0.2)
        served["now"] = second
        assert run(engine, "SELECT claim_id FROM claims_v", 1, grants=(small,)).rows == ((77,),)
        running.join()
        assert rows[0] != ((1,),)
        deadline = time.monotonic() + 5
        while any(worker.database != str(second) for worker in engine._all) and time.monotonic() < deadline:
            run(engine, "SELECT claim_id FROM claims_v", 1, grants=(small,))
        assert {worker.database for worker in engine._all} == {str(second)}


def _outcome(engine, text, granted):
    try:
        return run(engine, text, 1, grants=granted).rows
    except Refused as error:
        return error.code


# --- nothing passes over ----------------------------------------------------------------------------------------------


def _inside(database, copies=None):
    job = duckdb_tables._Job(str(database), GATE, LIMITS, copies)
    served = duckdb_tables._Served(job)
    return served, pickle.dumps(grants(1)), {grant.name: grant for grant in grants(1)}


def test_nothing_survives_a_statement(database):
    """As if the gate had failed: temp objects, variables and search paths of one statement are gone in the next."""
    served, key, granted = _inside(database)
    con = served.session(key, granted, ("claims_v",))
    con.execute("CREATE TEMP TABLE left_behind AS SELECT 1 AS x")
    con.execute("SET VARIABLE left_behind = 1")
    con.close()
    served.prepare(key, granted, ("claims_v",))
    con = served.session(key, granted, ("claims_v",))
    with pytest.raises(duckdb.Error):
        con.execute("SELECT * FROM left_behind")
    assert con.execute("SELECT getvariable('left_behind')").fetchone() == (None,)
    other = pickle.dumps(grants(2))
    served.prepare(key, granted, ("claims_v",))
    con = served.session(other, {grant.name: grant for grant in grants(2)}, ("claims_v",))
    assert con.execute("SELECT DISTINCT tenant_id FROM temp.main.claims_v").fetchall() == [(2,)]


LOCKED = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT content FROM read_text('/etc/hostname')",
    "SELECT * FROM glob('/etc/*')",
    "ATTACH '/tmp/other.duckdb'",
    "ATTACH ':memory:' AS side",
    "COPY (SELECT 1) TO '/tmp/pointsman-leak.csv'",
    "EXPORT DATABASE '/tmp/pointsman-leak'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET memory_limit = '10GB'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "RESET memory_limit",
    "PRAGMA enable_profiling",
    "INSERT INTO served.main.tenants VALUES (4, 'x', 'x', 'x', 'x', 'x')",
    "DELETE FROM served.main.tenants",
    "CREATE TABLE served.main.x (a INT)",
    "SELECT nextval('served.main.ticket_seq')",
    "FROM employees",
]


@pytest.mark.parametrize("text", LOCKED)
def test_lock_down_holds_behind_the_gate(database, text):
    """The engine itself, as if the gate had failed. (ATTACH of memory is stopped by the gate alone.)"""
    served, key, granted = _inside(database)
    con = served.session(key, granted, ())
    if text == "ATTACH ':memory:' AS side":
        assert refused_by_gate(text)
        return
    with pytest.raises(duckdb.Error):
        con.execute(text).fetchall()


def refused_by_gate(text):
    from tests.sql.test_gate import code_of

    return code_of(text) == "sql_not_select"


def test_own_file_is_closed_too(database):
    """The file that is open stays readable under external_access=false; disabled_filesystems closes it."""
    served, key, granted = _inside(database)
    con = served.session(key, granted, ())
    for text in (
        f"SELECT * FROM read_blob('{database}')",
        f"SELECT * FROM read_duckdb('{database}', table_name='employees')",
        f"ATTACH '{database}' AS again",
    ):
        with pytest.raises(duckdb.Error):
            con.execute(text).fetchall()


def test_statistics_stop_at_the_view(database):
    """`stats` behind a secure view knows nothing of other tenants' extremes; the gate refuses it as well."""
    served, key, granted = _inside(database)
    con = served.session(key, granted, ("claims_v",))
    shown = str(con.execute("SELECT stats(amount) FROM temp.main.claims_v LIMIT 1").fetchall())
    assert "987654" not in shown
    assert "0.01" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "SELECT CAST(claimant_name AS INTEGER) FROM claims_v",
        "SELECT CAST('x' AS DATE)",
        "SELECT claimant_phone FROM claims_v",
        "SELECT nonsense FROM claims_v",
        "SELECT 1 // (severity - severity) FROM claims_v",
        "SELECT (SELECT claim_id FROM claims_v)",
        "SELECT CAST(amount * 1e300 AS DECIMAL(4,1)) FROM claims_v",
        "SELECT make_date(99999999, 1, 1)",
        "SELECT 9223372036854775807 + severity FROM claims_v",
        "SELECT regexp_matches(status, '(') FROM claims_v",
        "SELECT amount FROM claims_v GROUP BY status",
    ],
)
def test_errors_are_codes(engine, text):
    error = refusal(engine, text)
    shown = json.dumps(error.as_json())
    assert error.code in {"sql_value", "sql_unknown_column"}
    assert not {"Candidate", "LINE", "claimant", "Conversion", "***", "employees"} & set(shown.replace('"', " ").split())
    assert not leaks(1, shown)


def test_throwing_expression_never_meets_a_hidden_row(engine):
    """Division by what is zero in other tenants' rows only: the filter comes first."""
    for tenant in TENANTS:
        text = f"SELECT count(*) FROM claims_v WHERE 1 // (tenant_id - {tenant % 3 + 1}) > -9 AND CAST(claim_id AS TINYINT) IS NULL OR true"
        assert run(engine, f"SELECT count(*) AS n FROM claims_v WHERE 1 // (tenant_id - {tenant % 3 + 1}) > -9", tenant).rows == (
            (120,),
        )
        assert run(engine, text, tenant).rows


def test_unusable_answers_of_a_worker_are_lost(engine):
    """JSON of another shape than ours is not passed on."""
    engine_like = SimpleNamespace(_gate=GATE)
    assert DuckTables._error(engine_like, "never_heard_of").code == "sql_worker_lost"


# --- copies -----------------------------------------------------------------------------------------------------------


def test_copies_hold_only_what_is_granted(database):
    served, key, granted = _inside(database, copies=pickle.dumps(grants(1)))
    con = served.session(key, granted, ("claims_v",))
    assert [row[0] for row in con.execute("SELECT database_name FROM duckdb_databases() WHERE NOT internal").fetchall()] == [
        "memory"
    ]
    assert con.execute("SELECT DISTINCT tenant_id FROM memory.copies.claims_v").fetchall() == [(1,)]


def test_copies_answer_as_views_do(database):
    with DuckTables(GATE, database, workers=2, mode="copies") as engine:
        for case in [case for case in CASES if case["must"] == "accept"][:12]:
            for tenant in TENANTS:
                assert same(run(engine, case["sql"], tenant).rows, oracle(tenant).run(case["sql"])), case["id"]
        assert len(engine._all) <= 2


# --- many callers -----------------------------------------------------------------------------------------------------


def test_tenants_take_turns(database):
    """While one tenant holds every worker it may, another's statement does not wait for it."""
    with DuckTables(GATE, database, workers=2, limits=TIGHT) as engine:
        engine.warm()
        run(engine, "SELECT 1 AS x", 2)
        bombs = [threading.Thread(target=lambda: refusal(engine, BOMBS["cross join"], 1, limits=TIGHT)) for _ in range(3)]
        for bomb in bombs:
            bomb.start()
        time.sleep(0.2)
        started = time.monotonic()
        assert run(engine, "SELECT count(*) AS n FROM claims_v", 2).rows == ((120,),)
        assert time.monotonic() - started < 0.6
        for bomb in bombs:
            bomb.join()


def test_busy_is_said_in_time(database):
    with DuckTables(GATE, database, workers=1, limits=TIGHT) as engine:
        engine.warm()
        bomb = threading.Thread(target=lambda: refusal(engine, BOMBS["cross join"], 1, limits=TIGHT))
        bomb.start()
        time.sleep(0.1)
        started = time.monotonic()
        with pytest.raises(SourceError) as error:
            run(engine, "SELECT 1 AS x", 1, deadline_s=0.2)
        assert error.value.code == "sql_busy"
        assert time.monotonic() - started < 0.5
        bomb.join()


def test_many_callers_get_their_own_rows(engine):
    wrong = []

    def ask(tenant):
        shown = [run(engine, "SELECT DISTINCT tenant_id FROM claims_v", tenant).rows for _ in range(6)]
        wrong.extend(rows for rows in shown if rows != ((tenant,),))

    callers = [threading.Thread(target=ask, args=(1 + at % 3,)) for at in range(12)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_closing_ends_every_worker(database):
    engine = DuckTables(GATE, database, workers=2)
    engine.warm()
    pids = [worker.process.pid for worker in engine._all]
    engine.close()
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}/fd/0")]
    with pytest.raises(SourceError):
        run(engine, "SELECT 1 AS x", 1)


def test_off_where_workers_cannot_be_confined(monkeypatch, database):
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(SourceError) as error:
        DuckTables(GATE, database)
    assert error.value.code == "sql_off"


# --- the world outside ------------------------------------------------------------------------------------------------


def test_ten_million_rows_under_the_cap(tmp_path):
    """The answer is cut, and the worker's memory does not follow the table's size."""
    target = tmp_path / "big.duckdb"
    duckdb_tables.build_database(
        "CREATE TABLE t AS SELECT i AS n, 'x' || i AS s, 1 AS tenant_id FROM range(10000000) AS r(i)", target
    )
    big = TableGrant("t", "main.t", (ColumnGrant("n"), ColumnGrant("s")), Eq("tenant", "1"), grants(1)[0].attributes, None, ())
    with DuckTables(GATE, target, workers=1, limits=SqlLimits(timeout_s=20)) as engine:
        table = run(engine, "SELECT n, s FROM t", 1, grants=(big,), limits=SqlLimits(timeout_s=20))
        (worker,) = engine._all
        resident_kb = int(Path(f"/proc/{worker.process.pid}/status").read_text().split("VmRSS:")[1].split()[0])
    assert (len(table.rows), table.truncated) == (10_000, True)
    assert resident_kb < 500_000


def test_interrupt_of_the_caller_ends_the_statement(database):
    """Ctrl-C while a statement runs: the caller hears it at once, its worker is gone, the next statement runs."""
    with DuckTables(GATE, database, workers=1) as engine:
        engine.warm()
        started = time.monotonic()
        timer = threading.Timer(0.3, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            run(engine, BOMBS["cross join"], 1)
        assert time.monotonic() - started < 1.5
        assert len(run(engine, "SELECT claim_id FROM claims_v LIMIT 3", 1).rows) == 3


def test_database_that_somebody_writes(tmp_path):
    """A file locked by its writer is a fault with a code, and served again when the writer is gone."""
    target = make_database(tmp_path)
    with DuckTables(GATE, target, workers=1) as engine:
        with duckdb.connect(str(target)):
            with pytest.raises(SourceError) as error:
                run(engine, "SELECT count(*) AS n FROM claims_v", 1)
            assert error.value.code == "sql_database"
        assert run(engine, "SELECT count(*) AS n FROM claims_v", 1).rows == ((120,),)
