"""Row filters in DuckDB: they admit exactly the rows that the reference evaluator admits, on hostile values."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.duckdb_tables import lower_filter
from router.filters import (
    And,
    EntityType,
    Eq,
    Field,
    Ge,
    Gt,
    Has,
    In,
    Le,
    Like,
    Lt,
    Not,
    Or,
    Overlaps,
    Within,
    compile_filter,
    matches,
)

ROW = EntityType(
    "row",
    {
        "s": Field("string", False),
        "n": Field("long", False),
        "b": Field("bool", False),
        "g": Field("set", True),
        "t": Field("string", True),
    },
)
ATTRIBUTES = {"s": ("s", "string"), "n": ("n", "long"), "b": ("b", "bool"), "g": ("g", "set"), "t": ("t", "string")}
TEXTS = [
    "",
    "a",
    "A",
    "it's",
    '"',
    "%",
    "_",
    "!",
    "a%b",
    "a_b",
    "a!b",
    "é",
    "e\u0301",
    "x\ny",
    "1",
    "true",
    "NULL",
    "東",
    "\U0001f600",
    "' OR 1=1 --",
]
NUMBERS = [0, 1, -1, 2**63 - 1, -(2**63), 42]
texts, numbers = st.sampled_from(TEXTS), st.sampled_from(NUMBERS)
sets = st.frozensets(texts, max_size=3)


def atoms():
    return st.one_of(
        st.builds(Eq, st.sampled_from("st"), texts),
        st.builds(Eq, st.just("n"), numbers),
        st.builds(Eq, st.just("b"), st.booleans()),
        st.builds(In, st.just("s"), st.frozensets(texts, min_size=1, max_size=3)),
        st.builds(In, st.just("n"), st.frozensets(numbers, min_size=1, max_size=3)),
        *(st.builds(kind, st.just("n"), numbers) for kind in (Lt, Le, Gt, Ge)),
        st.builds(Overlaps, st.just("g"), sets.filter(bool)),
        st.builds(Within, st.just("g"), sets),
        st.builds(Like, st.just("s"), st.lists(texts, min_size=1, max_size=3).map(tuple)),
        st.builds(Has, st.sampled_from("snbg")),
    )


filters = st.recursive(
    atoms(),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.lists(inner, max_size=3).map(tuple).map(And),
        st.lists(inner, max_size=3).map(tuple).map(Or),
    ),
    max_leaves=8,
)
rows = st.fixed_dictionaries({"g": sets}, optional={"s": texts, "n": numbers, "b": st.booleans(), "t": texts})


@given(filters, st.lists(rows, min_size=1, max_size=12))
def test_agrees_with_the_reference(raw, things):
    compiled = compile_filter(raw, ROW)
    with duckdb.connect(":memory:") as con:
        con.execute("CREATE TABLE r (i INTEGER, s VARCHAR, n BIGINT, b BOOLEAN, g VARCHAR[], t VARCHAR)")
        for at, thing in enumerate(things):
            con.execute(
                "INSERT INTO r VALUES (?, ?, ?, ?, ?, ?)",
                [at, thing.get("s"), thing.get("n"), thing.get("b"), sorted(thing["g"]), thing.get("t")],
            )
        found = {row[0] for row in con.execute(f"SELECT i FROM r WHERE {lower_filter(compiled, ATTRIBUTES)}").fetchall()}
    assert found == {at for at, thing in enumerate(things) if matches(compiled, thing)}


def test_long_chains_fit_the_engine():
    wide = Or(tuple(And((Has("n"), Eq("n", number))) for number in range(1500)))
    with duckdb.connect(":memory:") as con:
        con.execute("CREATE TABLE r (n BIGINT, t VARCHAR)")
        con.execute("INSERT INTO r SELECT i, 'x' FROM range(3000) AS q(i)")
        assert con.execute(f"SELECT count(*) FROM r WHERE {lower_filter(wide, ATTRIBUTES)}").fetchone() == (1500,)


@pytest.mark.parametrize("value", ["'; DROP TABLE r; --", "''", "\\'", "$$"])
def test_literals_stay_literals(value):
    with duckdb.connect(":memory:") as con:
        con.execute("CREATE TABLE r (s VARCHAR)")
        con.execute("INSERT INTO r VALUES (?)", [value])
        assert con.execute(f"SELECT count(*) FROM r WHERE {lower_filter(Eq('s', value), ATTRIBUTES)}").fetchone() == (1,)
