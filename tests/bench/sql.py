"""What governed SQL costs over what it cannot avoid, and what a hostile tenant costs the others.

Texts are the accepted ones of the corpus beside the tests. Bare parts of the gate: one extraction of statements and three
serialisations by DuckDB, one parse, one copy and two generations by sqlglot. The plain query is the text as it stands, on a
plain connection to the same file, over the rows of every tenant. Bombs are those of `tests/sql/test_worker.py`.
Callers: 64 threads of three tenants on four workers; then again while the third tenant's callers send nothing but bombs.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb

from connectors.duckdb_tables import DuckTables, _Job, _Parsing, _run, _Served
from router.domain import SqlLimits
from router.errors import Refused, SourceError
from router.sql import gate, rewrite
from tests.bench.measure import Figure, run_pairs
from tests.sql.oracle import CASES, GATE, LIMITS, grants, make_database, oracle, same, today
from tests.sql.oracle import run as ask
from tests.sql.test_worker import BOMBS

GATE_BAR, WHOLE_BAR, UNGATED_BAR, CALLERS_BAR, LATE_BAR = 1.4, 3.5, 1.7, 3.0, 0.6
CALLERS, WORKERS = 64, 4
SECONDS = 60.0 if os.environ.get("POINTSMAN_LONG") else 8.0
TEXTS = [case["sql"] for case in CASES if case["must"] == "accept"]
PAIRS = 5 * len(TEXTS)
TIGHT = SqlLimits(timeout_s=1.0)


def run(folder: Path) -> Iterator[Figure]:
    database = make_database(folder)
    yield _gate()
    yield from _workers(database)
    yield _bombs(database)
    yield _callers(database)


def _gate() -> Figure:
    parsing, granted, day = _Parsing(), grants(1), today()
    trees = {text: rewrite.parse(text) for text in TEXTS}
    governed = {text: gate.govern(parsing, text, granted, day, LIMITS).sql for text in TEXTS}

    def product(at: int) -> None:
        gate.govern(parsing, TEXTS[at % len(TEXTS)], granted, day, LIMITS)

    def bare(at: int) -> None:
        text = TEXTS[at % len(TEXTS)]
        parsing.statements(text)
        tree = rewrite.parse(text)
        tree.copy()
        spelled = rewrite.generate(tree, copy=False)
        rewrite.generate(trees[text], copy=False)
        for one in (text, spelled, governed[text]):
            parsing.trees([one])

    return run_pairs(product, bare, PAIRS, warm=len(TEXTS)).figure(
        "sql gate", "the gate on accepted texts, over its bare parts", GATE_BAR
    )


def _workers(database: Path) -> Iterator[Figure]:
    granted = grants(1)
    with DuckTables(GATE, database, workers=1) as engine, duckdb.connect(str(database), read_only=True) as plain:
        engine.warm()

        def product(at: int) -> None:
            ask(engine, TEXTS[at % len(TEXTS)], 1)

        def bare(at: int) -> None:
            plain.execute(TEXTS[at % len(TEXTS)]).fetchall()

        pairs = run_pairs(product, bare, PAIRS, warm=len(TEXTS))
        yield pairs.figure("sql whole", "gate and warm worker, over the plain query", WHOLE_BAR)
    parsing = _Parsing()
    governed = {text: gate.govern(parsing, text, granted, today(), LIMITS) for text in TEXTS}
    by_name = {grant.name: grant for grant in granted}
    served = _Served(_Job(str(database), GATE, LIMITS, None))
    plain = duckdb.connect(str(database.with_name("plain.duckdb")))
    plain.execute((Path(__file__).parents[1] / "sql" / "fixture.sql").read_text(encoding="utf-8"))
    ratios: list[tuple[int, int]] = []
    for at in range(PAIRS):
        text = TEXTS[at % len(TEXTS)]
        served.prepare(b"", by_name, governed[text].tables)  # as a worker does between two statements
        began = time.perf_counter_ns()
        con = served.session(b"", by_name, governed[text].tables)
        _run(con, governed[text], LIMITS)
        con.close()
        between = time.perf_counter_ns()
        plain.execute(text).fetchall()
        ratios.append((between - began, time.perf_counter_ns() - between))
    plain.close()
    low, middle, high = statistics.quantiles([a / b for a, b in ratios], n=4)
    yield Figure(
        "sql ungated",
        "the governed text in its session, over the plain query",
        round(middle, 3),
        round(low, 3),
        round(high, 3),
        UNGATED_BAR,
        at_least=False,
        product_ms=round(statistics.median(a for a, _ in ratios) / 1e6, 3),
        bare_ms=round(statistics.median(b for _, b in ratios) / 1e6, 3),
        pairs=len(ratios),
    )


def _bombs(database: Path) -> Figure:
    late: dict[str, float] = {}
    with DuckTables(GATE, database, workers=1, limits=TIGHT) as engine:
        for name, text in BOMBS.items():
            engine.warm()
            ask(engine, "SELECT 1 AS x", 1)
            began = time.monotonic()
            try:
                ask(engine, text, 1, limits=TIGHT)
                raise AssertionError(f"{name} was answered")
            except Refused:
                late[name] = max(0.0, time.monotonic() - began - TIGHT.timeout_s)
            assert len(ask(engine, "SELECT claim_id FROM claims_v LIMIT 3", 1).rows) == 3
    worst = max(late, key=lambda name: late[name])
    low, middle, high = statistics.quantiles(late.values(), n=4)
    return Figure(
        "sql bombs", "seconds past its limit that the slowest bomb lived", round(late[worst], 3), round(low, 3), round(high, 3), LATE_BAR,
        at_least=False, product_ms=middle * 1e3, bare_ms=TIGHT.timeout_s * 1e3, pairs=len(late), note=f"slowest: {worst}",
    )  # fmt: skip


def _callers(database: Path) -> Figure:
    small = [text for text in TEXTS if "ORDER BY" in text or "GROUP BY" in text][:10]
    expected = {(tenant, text): oracle(tenant).run(text) or [] for tenant in (1, 2, 3) for text in small}
    with DuckTables(GATE, database, workers=WORKERS) as engine:
        engine.warm()
        quiet, wrong, refused = _minute(engine, small, expected, bombs=False)
        loud, more, late = _minute(engine, small, expected, bombs=True)
    assert wrong + more == 0, f"{wrong + more} wrong answers"
    low, high = statistics.median(loud) / statistics.median(quiet), max(loud) / max(quiet)
    p95 = [statistics.quantiles(times, n=20)[-1] for times in (loud, quiet)]
    return Figure(
        "sql callers", "p95 of two tenants' small queries while the third runs bombs, over without", round(p95[0] / p95[1], 3),
        round(low, 3), round(high, 3), CALLERS_BAR, at_least=False, product_ms=round(p95[0] * 1e3, 2), bare_ms=round(p95[1] * 1e3, 2),
        pairs=len(loud), note=f"{CALLERS} callers, {WORKERS} workers, {SECONDS:g} s each; low and high: medians and maxima; "
        f"0 wrong rows, {refused} and {late} small queries refused for time",
    )  # fmt: skip


def _minute(engine: DuckTables, small: list[str], expected: dict, *, bombs: bool) -> tuple[list[float], int, int]:
    """Times of small queries of tenants 1 and 2, how many answers of anybody were not the oracle's, and how many small queries got
    no answer: on a machine with other work, two seconds can pass."""
    until = time.monotonic() + SECONDS
    times: list[float] = []
    wrong: list[str] = []
    refused: list[str] = []
    hostile = [BOMBS[name] for name in ("cross join", "recursion", "concatenation", "lambdas")]

    def caller(at: int) -> None:
        tenant, turn = 1 + at % 3, at
        while time.monotonic() < until:
            turn += 1
            hostile_now = bombs and tenant == 3
            text = (hostile if hostile_now else small)[turn % (len(hostile) if hostile_now else len(small))]
            began = time.monotonic()
            try:
                table = ask(engine, text, tenant, limits=TIGHT if hostile_now else LIMITS, deadline_s=30.0)
            except (Refused, SourceError) as error:
                if not hostile_now:
                    refused.append(error.code)
                continue
            if tenant != 3:
                times.append(time.monotonic() - began)
            if hostile_now or not same(table.rows, expected[tenant, text]):
                wrong.append(text)

    threads = [threading.Thread(target=caller, args=(at,)) for at in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times, len(wrong), len(refused)
