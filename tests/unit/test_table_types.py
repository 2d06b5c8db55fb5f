"""What databases call their types, and what becomes of them."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.sql_sources import duckdb_type


@pytest.mark.parametrize(
    ("declared", "wanted"),
    [
        ("integer", ("INTEGER", "text")),
        ("BIGINT", ("BIGINT", "text")),
        ("numeric(10,2)", ("DECIMAL(10,2)", "text")),
        ("NUMERIC(10, 2)", ("DECIMAL(10,2)", "text")),
        ("DECIMAL(5)", ("DECIMAL(5,0)", "text")),
        ("character varying(40)", ("VARCHAR", "text")),
        ("VARCHAR(40)", ("VARCHAR", "text")),
        ("double precision", ("DOUBLE", "text")),
        ("timestamp with time zone", ("TIMESTAMP", "text")),
        ("timestamp(3) with time zone", ("TIMESTAMP", "text")),
        ("timestamptz(3)", ("TIMESTAMP", "text")),
        ("bytea", ("BLOB", "hex")),
        ("text[]", ("VARCHAR[]", "json")),
        ("numeric(6,2)[]", ("DECIMAL(6,2)[]", "json")),
        ("jsonb", ("VARCHAR", "text")),
    ],
)
def test_types_with_an_equal(declared, wanted):
    assert duckdb_type(declared) == wanted


@pytest.mark.parametrize(
    "declared",
    ["", "numeric", "numeric(50,2)", "numeric(2,5)", "numeric(0)", "interval", "money", "tsvector", "int4range", "point", "geometry(Point,4326)",
     "bit(3)", "time with time zone", "bytea[]", "timestamptz[]", "hstore", "; DROP TABLE x", "integer; --", "xml"],
)  # fmt: skip
def test_type_without_an_equal(declared):
    assert duckdb_type(declared) is None


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abcdefinrtux0123456789 (),[]\"';-", max_size=30))
def test_whatever_is_declared_becomes_a_type_of_the_engine_or_nothing(declared):
    """The result is spliced into a statement: it is one of few words, whatever stands in the other database."""
    found = duckdb_type(declared)
    if found is not None:
        assert duckdb.sql(f"SELECT CAST(NULL AS {found[0]}) AS x").types[0] is not None
        assert ";" not in found[0]
