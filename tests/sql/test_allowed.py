"""The lists of what a statement may be made of: what must never stand in them, and that they are lists of real things."""

from __future__ import annotations

import json

import duckdb
import pytest

from router.sql import allowed
from tests.sql.oracle import POLICY

DANGEROUS = """
read_text read_blob read_csv read_csv_auto read_parquet read_json read_duckdb parquet_scan parquet_metadata glob sniff_csv query query_table
json_execute_serialized_sql json_serialize_sql summary stats vector_type current_setting current_query getvariable getenv version
current_user current_schema current_database current_catalog session_user pg_typeof txid_current nextval currval setseed random uuid
gen_random_uuid now get_current_timestamp get_current_time current_timestamp transaction_timestamp repeat lpad rpad format printf bar
list_resize array_resize damerau_levenshtein levenshtein jaro_similarity sleep_ms pg_sleep write_log parse_duckdb_log_message duckdb_tables
duckdb_settings duckdb_columns duckdb_views pragma_storage_info pragma_table_info pragma_database_size which_secret error md5 sha256 hash
pg_get_viewdef col_description obj_description to_base64 from_base64 encode decode finalize combine add_parquet_key test_all_types seq_scan
repeat_row icu_sort_key in_search_path getbit set_bit getdatabase write_blob unpivot_list checkpoint force_checkpoint enable_logging
""".split()


def test_nothing_dangerous_is_allowed():
    everything = allowed.FUNCTIONS | allowed.OPERATORS | allowed.TABLE_FUNCTIONS | allowed.AGGREGATES
    assert not everything & set(DANGEROUS)
    assert not [
        name for name in everything if name.startswith(("read_", "duckdb_", "pragma_", "pg_", "json_", "write_", "current_"))
    ]


def test_policy_of_the_corpus_is_covered():
    for family in ("scalar", "aggregate", "window"):
        missing = set(POLICY["functions"][family]) - allowed.FUNCTIONS - {"current_date"}
        assert not missing, (family, missing)


def test_every_function_exists_in_the_engine():
    known = {row[0] for row in duckdb.connect().execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()}
    made_by_the_parser = """coalesce ifnull nullif if extract position unnest grouping grouping_id row countif percentile_cont
    percentile_disc initcap row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value trim map""".split()
    assert not allowed.FUNCTIONS - known - set(made_by_the_parser)


@pytest.mark.parametrize("name", sorted(allowed.SAME_FUNCTION))
def test_aliases_are_one_function(name):
    """Two names count as equal only where the engine has one documentation for both or makes one of the other."""
    other = allowed.SAME_FUNCTION[name]
    texts = {
        "position": "('abc', 'b')", "substring": "('abc', 2, 1)", "pow": "(2, 3)", "list_value": "(1, 2)",
    }  # fmt: skip
    operands = texts[other]
    con = duckdb.connect()
    left = con.execute(f"SELECT {_call(name, operands)}").fetchone()
    right = con.execute(f"SELECT {_call('strpos' if other == 'position' else other, operands)}").fetchone()
    assert left == right


def _call(name: str, operands: str) -> str:
    if name.isalpha() or "_" in name:
        return f"{name}{operands}"
    return operands.strip("()").replace(", ", f" {name} ")


@pytest.mark.parametrize("name", sorted(allowed.SAME_TYPE))
def test_type_aliases_are_one_type(name):
    con = duckdb.connect()
    body = "(a INTEGER)" if name == "row" else ""
    left, right = (
        con.execute(f"SELECT typeof(CAST(NULL AS {kind}{body}))").fetchone() for kind in (name, allowed.SAME_TYPE[name])
    )
    assert left == right


def test_versions_are_the_pinned_ones():
    import sqlglot

    assert duckdb.__version__.startswith(allowed.DUCKDB_VERSION)
    assert sqlglot.__version__.startswith(allowed.SQLGLOT_VERSION)


def test_lists_are_plain_data():
    assert json.dumps(sorted(allowed.FUNCTIONS | allowed.KEYS | allowed.TYPES))
