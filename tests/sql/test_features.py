"""What analysts write: every function and construct that is offered answers as on physical copies, one text a line."""

from __future__ import annotations

import pytest

from connectors.duckdb_tables import DuckTables
from router.sql.allowed import FUNCTIONS
from tests.sql.oracle import GATE, HERE, make_database, oracle, run, same

TEXTS = (HERE / "features.sql").read_text(encoding="utf-8").splitlines()
BLOCK = 60


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    with DuckTables(GATE, make_database(tmp_path_factory.mktemp("features")), workers=1) as engine:
        yield engine


@pytest.mark.parametrize("first", range(0, len(TEXTS), BLOCK))
def test_answers_as_on_physical_copies(engine, first):
    for text in TEXTS[first : first + BLOCK]:
        expected = oracle(2).run(text)
        assert expected is not None, text
        assert same(run(engine, text, 2).rows, expected), text


@pytest.mark.parametrize("depth", [20, 50, 62])
def test_nesting_up_to_the_limit(engine, depth):
    for text in (
        "SELECT * FROM (" * depth + "SELECT count(*) AS n FROM claims_v" + ")" * depth,
        "SELECT " + "(" * depth + "1" + ")" * depth + " AS n",
        "SELECT " + "abs(" * depth + "1" + ")" * depth + " AS n",
        "SELECT count(*) AS n FROM claims_v WHERE " + "(severity > 0 AND " * depth + "true" + ")" * depth,
    ):
        assert same(run(engine, text, 2).rows, oracle(2).run(text)), text


def test_sizes_up_to_the_limit(engine):
    for text in (
        "SELECT count(*) FROM claims_v c" + "".join(f" JOIN depots_v d{at} USING (depot_id)" for at in range(12)),
        "SELECT 1 AS x" + " UNION ALL SELECT 1" * 31,
        f"SELECT count(*) FROM claims_v WHERE claim_id IN ({', '.join(map(str, range(1000)))})",
        "SELECT " + " + ".join(["severity"] * 300) + " FROM claims_v",
        "SELECT count(*) FROM claims_v WHERE " + " OR ".join(f"claim_id = {at}" for at in range(300)),
    ):
        assert same(run(engine, text, 2).rows, oracle(2).run(text)), text


def test_every_function_is_written_somewhere():
    """A name in the list that no text here uses would be an untested permission."""
    written = " ".join(TEXTS).lower()
    missing = {name for name in FUNCTIONS if f"{name}(" not in written}
    assert missing <= set(
        """initcap to_seconds to_quarters to_decades to_centuries to_millennia to_milliseconds to_microseconds
        current_date extract array_distinct array_intersect""".split()
    ), missing
