"""Generated SQL: under the gate it answers what it answers on physical copies, for every tenant, and shows nothing else.

500 texts; POINTSMAN_LONG=1 makes it 20,000. A failure prints the seed: `text_of(seed)` is the text.
"""

from __future__ import annotations

import json
import logging
import os

import pytest

from connectors.duckdb_tables import DuckTables
from router.domain import SqlLimits
from router.errors import PointsmanError
from tests.sql.generator import text_of
from tests.sql.oracle import GATE, TENANTS, leaks, make_database, oracle, run, same

TEXTS = 20_000 if os.environ.get("POINTSMAN_LONG") else 500
BLOCK = 100
LIMITS = SqlLimits(max_rows=1_000_000, max_bytes=1 << 30, timeout_s=20.0)
MOST_ROWS = 100_000


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    with DuckTables(GATE, make_database(tmp_path_factory.mktemp("generated")), workers=2, limits=LIMITS) as engine:
        yield engine


@pytest.mark.parametrize("first", range(0, TEXTS, BLOCK))
def test_answers_equal_those_of_physical_copies(engine, first, caplog):
    caplog.set_level(logging.DEBUG)
    ran = 0
    for seed in range(first, first + BLOCK):
        text, tenant = text_of(seed), TENANTS[seed % 3]
        expected = oracle(tenant).run(text)
        if expected is not None and len(expected) > MOST_ROWS:
            continue
        try:
            rows, shown = run(engine, text, tenant, limits=LIMITS).rows, ""
        except PointsmanError as error:
            rows, shown = None, str(error.as_json())
        if expected is None:
            assert rows is None, f"seed {seed}: more than the oracle\n{text}"
        else:
            assert rows is not None, f"seed {seed}: refused with {shown}\n{text}"
            assert same(rows, expected), f"seed {seed}: other rows\n{text}"
            ran += 1
        found = leaks(tenant, json.dumps(rows) + shown + caplog.text)
        assert not [word for word in found if word not in text], f"seed {seed}: leaks {found}\n{text}"
    assert ran > BLOCK * 0.8  # a generator whose texts do not run would prove nothing


def test_generator_reaches_every_part_of_the_grammar():
    """Every construct that it claims stands in some of the first texts."""
    texts = " ".join(text_of(seed) for seed in range(1_500))
    for (
        part
    ) in """ FULL JOIN| SEMI JOIN| ANTI JOIN|LATERAL|UNNEST(|WITH RECURSIVE|NOT MATERIALIZED|INTERSECT|EXCEPT|UNION ALL BY NAME
        |GROUPING SETS|ROLLUP|CUBE|PIVOT|UNPIVOT|QUALIFY|WINDOW win|IGNORE NULLS|EXCLUDE TIES|FILTER (WHERE|WITHIN GROUP|LAMBDA|[1:2]
        |['color']|.lat|REPLACE (|EXCLUDE (|COLUMNS(|EXISTS (|= ANY|GROUP BY ALL|VALUES|TABLE |.len()|NULLS LAST|OFFSET""".split(
        "|"
    ):
        assert part.strip() in texts, part
