"""The gate without a worker: what passes, what is refused with which code, and that both parsers are held to one meaning."""

from __future__ import annotations

import copy
import json
import re
from datetime import date
from types import SimpleNamespace

import pytest

from connectors import duckdb_tables
from connectors.duckdb_tables import _Clock, _Parsing
from router.errors import Refused
from router.sql import gate, rewrite
from tests.sql.oracle import CASES, GATE, LIMITS, grants

DAY = date(2026, 3, 1)
PARSING = _Parsing()


def govern(text: str, **changes):
    settings = {"grants": grants(1), "today": DAY, "limits": LIMITS} | changes
    return gate.govern(PARSING, text, settings["grants"], settings["today"], settings["limits"], settings.get("compiled", False))


def code_of(text: str, **changes) -> str:
    try:
        govern(text, **changes)
    except Refused as refusal:
        return refusal.code if refusal.message == gate.REASONS[refusal.code] else "other words"
    return ""


# --- L0 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "sql_not_one"),
        (" \n\t", "sql_not_one"),
        ("\ufeffSELECT 1", "sql_characters"),
        ("SELECT\u00a01", "sql_characters"),
        ("SELECT\u20031", "sql_characters"),
        ("SELECT\u200b1", "sql_characters"),
        ("SELECT 1\x00", "sql_characters"),
        ("SELECT '\x07'", "sql_characters"),
        ("SELECT '\ud800'", "sql_characters"),
        ("SELECT `a` FROM claims_v", "sql_characters"),
        ("SELECT " + "(" * 65 + "1" + ")" * 65, "sql_too_large"),
        ("SELECT a" + "[1]" * 300 + " FROM claims_v", "sql_too_large"),
        ("SELECT " + "1+" * 2100 + "1", "sql_too_large"),
        ("SELECT '" + "x" * 8192 + "'", "sql_too_large"),
    ],
)
def test_lexical_gate(text, code):
    with pytest.raises(Refused) as refusal:
        gate.check_text(text, LIMITS)
    assert refusal.value.code == code


@pytest.mark.parametrize(
    "text",
    [
        "SELECT '\u00a0[[[[((((`' AS x FROM claims_v",
        "SELECT /* (((( /* nested ' */ ` */ 1 -- ((( `",
        "SELECT $$ (((` $$, $a$ [[$$[ $a$, e'\\'((', \"((`\" FROM claims_v",
        "SELECT 'Zürich', 'Łódź', '東京' FROM depots_v",
    ],
)
def test_lexical_gate_looks_through_literals(text):
    gate.check_text(text, LIMITS)


def test_text_is_a_text():
    with pytest.raises(Refused):
        gate.check_text(None, LIMITS)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "NOT " * 1500 + "true",
        "SELECT " + "- " * 1500 + "1",
        "SELECT 1" + "+1" * 1900,
        "SELECT " + "CASE WHEN true THEN " * 60 + "1" + " END" * 60,
        "SELECT 1" + " UNION ALL SELECT 1" * 40,
        "SELECT count(*) FROM claims_v" + ", depots_v" * 13,
        f"SELECT 1 FROM claims_v WHERE claim_id IN ({', '.join(map(str, range(1001)))})",
        "SELECT x" + ".a" * 1900 + " FROM claims_v",
        "SELECT 1 WHERE " + "1=1 AND " * 900 + "true",
        "WITH a AS (SELECT 1 AS x)" + "".join(f", b{i} AS (SELECT * FROM a, a y)" for i in range(40)) + " SELECT 1",
    ],
)
def test_large_texts_end_in_a_code(text):
    """Whatever of it stops them, they neither raise anything else nor hang."""
    assert code_of(text) in {"", "sql_too_large", "sql_syntax", "sql_construct", "sql_unknown_table"}


# --- L1 to L3 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in CASES if case["must"] == "accept"], ids=lambda case: case["id"])
def test_every_reference_is_replaced(case):
    """The generated text names no table but the secure views, by their full names, and CTEs by reserved ones."""
    governed = govern(case["sql"])
    tree = rewrite.parse(governed.sql.replace('"temp"."main".', "held."))
    from sqlglot import exp

    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier):
            assert table.db == "held" or table.name.startswith(rewrite.CTE_PREFIX), governed.sql


@pytest.mark.parametrize(
    "name",
    [
        "list_contains",
        "quantile_cont",
        "string_agg",
        "date_trunc",
        "if",
        "ifnull",
        "len",
        "strlen",
        "substr",
        "arg_max",
        "first",
        "listagg",
    ],
)
def test_functions_keep_their_names(name):
    assert f"{name.upper()}(" in rewrite.generate(rewrite.parse(f"SELECT {name}(a, b, c)"), copy=True).upper()


def test_columns_that_are_not_granted_do_not_stand_in_the_text():
    governed = govern("SELECT * FROM claims_v")
    assert "claimant_phone" not in governed.sql
    assert governed.tables == ("claims_v",)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SELECT claimant_name FROM claims_v", {"claimant_name"}),
        ("SELECT upper(claimant_name) AS who FROM claims_v", {"who"}),
        ("WITH a AS (SELECT claimant_name || 'x' AS b FROM claims_v) SELECT lower(b) AS c, 1 AS d FROM a", {"b", "c"}),
        ("SELECT amount FROM claims_v", set()),
    ],
)
def test_masked_names_are_known(text, shown):
    masked = govern(text).masked
    assert shown <= masked
    assert "amount" not in masked
    assert "d" not in masked


def test_day_is_the_questions():
    text = "SELECT current_date, today(), age(reported_at) FROM claims_v WHERE reported_at < current_date"
    generated = govern(text).sql
    assert generated.count("2026-03-01") == 4
    assert not re.search("current_date|today", generated, re.IGNORECASE)


def test_qualified_columns_of_a_qualified_table():
    assert "main.claims_v" not in govern("SELECT main.claims_v.claim_id FROM main.claims_v").sql


def test_method_calls_are_calls():
    assert "LOWER(status)" in govern("SELECT status.lower() FROM claims_v").sql
    assert code_of("SELECT main.lower(status) FROM claims_v") in {"sql_function", "sql_construct"}
    assert code_of("SELECT pg_catalog.lower(status) FROM claims_v") in {"sql_function", "sql_construct"}


def test_small_groups_are_for_compiled_forms():
    guarded = grants(1, min_group=5)
    assert code_of("SELECT count(*) FROM claims_v", grants=guarded) == "sql_small_groups"
    assert code_of("SELECT count(*) FROM claims_v HAVING count(*) >= 5", grants=guarded, compiled=True) == ""


# --- both parsers -----------------------------------------------------------------------------------------------------

CHANGED_BY_SQLGLOT = [
    "SELECT last(severity IGNORE NULLS) FROM claims_v",
    "SELECT list(severity) EXPORT_STATE FROM claims_v",
    "SELECT tags[:n] FROM claims_v",
    "PIVOT claims_v USING sum(amount)",
    "SELECT claim_id INTO x FROM claims_v",
    "SELECT claim_id INTO TEMP x FROM claims_v",
    "SELECT claim_id FROM claims_v FOR UPDATE",
    "SELECT claim_id FROM claims_v DISTRIBUTE BY claim_id",
    "SELECT * FROM (SHOW tables)",
    "SELECT list_transform(tags, x -> x || 'a') FROM claims_v",
    "SELECT struct_pack(*) FROM claims_v",
    "SELECT b'01' FROM claims_v",
    "SELECT x'41' FROM claims_v",
    "SELECT severity! FROM claims_v",
    "SELECT @severity FROM claims_v",
    "SELECT status ~ 'o' FROM claims_v",
    "SELECT default FROM claims_v",
    "SELECT *COLUMNS('a.*') FROM claims_v",
]


@pytest.mark.parametrize("text", CHANGED_BY_SQLGLOT)
def test_what_the_parsers_read_differently_is_never_changed_silently(text):
    """Either refused, or what is run means what was written: DuckDB's own tree of both, and the flag is still there."""
    try:
        governed = govern(text)
    except Refused:
        return
    assert ("IGNORE NULLS" in governed.sql) == ("IGNORE NULLS" in text)
    assert "EXPORT_STATE" not in text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("SELECT INTERVAL '1 month ago'", "'1 month ago'"),
        ("SELECT claim_id FROM claims_v ORDER BY claim_id LIMIT 3", "LIMIT 3"),
        ("SELECT quantile_cont(amount, 0.5) FROM claims_v", "QUANTILE_CONT(amount, 0.5)"),
        ("SELECT 1 - (2 - 3)", "1 - (2 - 3)"),
        ("SELECT first_value(amount IGNORE NULLS) OVER (ORDER BY claim_id) FROM claims_v", "IGNORE NULLS"),
    ],
)
def test_meaning_is_kept(text, kept):
    assert kept in govern(text).sql


def test_a_change_of_meaning_is_seen():
    """`_meaning` tells apart what the evened-out spellings must not hide."""
    pairs = [
        ("SELECT 1 - 2 - 3", "SELECT 1 - (2 - 3)"),
        ("SELECT a FROM t ORDER BY a", "SELECT a FROM t ORDER BY a NULLS FIRST"),
        ("SELECT INTERVAL '1 month'", "SELECT INTERVAL '1 month ago'"),
        ("SELECT count(a)", "SELECT count(DISTINCT a)"),
        ("SELECT sum(a) FILTER (b)", "SELECT sum(a)"),
        ("SELECT * FROM a JOIN b USING (x)", "SELECT * FROM a LEFT JOIN b USING (x)"),
        ("SELECT a UNION SELECT b", "SELECT a UNION ALL SELECT b"),
        ("SELECT CAST(a AS INT)", "SELECT CAST(a AS BIGINT)"),
        ("SELECT a IS TRUE", "SELECT NOT a IS TRUE"),
        ("SELECT 'a'", "SELECT 'A'"),
        ("SELECT DISTINCT a FROM t", "SELECT a FROM t"),
        ("SELECT a FROM t", "SELECT a FROM u"),
    ]
    for left, right in pairs:
        one, other = PARSING.trees([left, right])
        assert gate._meaning(one) != gate._meaning(other), left
        assert gate._meaning(one) == gate._meaning(copy.deepcopy(one))


# --- L4 ---------------------------------------------------------------------------------------------------------------


def _dicts(node):
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _dicts(value)
    elif isinstance(node, list):
        for value in node:
            yield from _dicts(value)


RICH = """WITH a(x) AS (SELECT list_transform(tags, LAMBDA t : upper(t)) FROM claims_v) SELECT count(*) FILTER (WHERE x IS NOT NULL),
 sum(len(x)) OVER (ORDER BY 1), CASE WHEN true THEN CAST(1 AS INTEGER) ELSE (SELECT 2) END FROM a, range(3) AS r(i) LEFT JOIN depots_v
 ON true GROUP BY ALL LIMIT 3"""


def test_unknown_nodes_are_refused():
    """One strange key or type anywhere in DuckDB's tree is enough."""
    governed = govern(RICH)
    (tree,) = PARSING.trees([governed.sql])
    ctes = frozenset({f"{rewrite.CTE_PREFIX}0"})
    views = {"claims_v", "depots_v"}
    gate._check_tree(tree, views, ctes, frozenset(), LIMITS)
    for at, node in enumerate(_dicts(tree)):
        for key, value in [
            ("sample", {}),
            ("at_clause", {}),
            ("never_seen", 1),
            *([("type", "NEVER_SEEN")] if "type" in node else []),
        ]:
            changed = copy.deepcopy(tree)
            list(_dicts(changed))[at][key] = value
            with pytest.raises(rewrite.Unfit):
                gate._check_tree(changed, views, ctes, frozenset(), LIMITS)


def test_tables_are_checked_again_in_duckdbs_tree():
    """As if the rewriting had overlooked one: `FROM employees` never passes, whatever the other layers did."""
    for text in (
        "SELECT ssn FROM employees",
        'SELECT 1 FROM "temp"."main"."claims"',
        "SELECT 1 FROM served.main.claims_v",
        "TABLE claims_v",
    ):
        (tree,) = PARSING.trees([text])
        with pytest.raises(rewrite.Unfit):
            gate._check_tree(tree, {"claims_v"}, frozenset(), frozenset(), LIMITS)


@pytest.mark.parametrize(
    "name", ["current_user", '"current_user"', '"Current_Schema"', "user", '"localtimestamp"', "current_catalog"]
)
def test_bare_names_that_are_functions(name):
    assert code_of(f"SELECT {name} FROM claims_v") in {"sql_function", "sql_syntax", "sql_construct"}


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("list_aggregate(tags, 'min')", ""),
        ("list_aggregate(tags, 'stats')", "sql_function"),
        ("list_aggregate(tags, status)", "sql_function"),
        ("list_aggregate(tags, 'mi' || 'n')", "sql_function"),
        ("array_aggregate(tags, 'histogram')", ""),
        ("tags.list_aggregate('write_log')", "sql_function"),
        ("list_aggregate(tags)", "sql_function"),
        ("list_aggr(tags, 'min')", "sql_function"),
        ("range(10001)", "sql_series"),
        ("range(severity)", ""),
        ("range(1, 5)", ""),
        ("len(generate_series(1, 1000000))", "sql_series"),
    ],
)
def test_functions_named_in_strings_and_series(call, code):
    assert code_of(f"SELECT {call} FROM claims_v") == code


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("range(10)", ""),
        ("range(0, 100000, 10)", ""),
        ("range(0, 100001)", "sql_series"),
        ("range(0, 10, 0)", "sql_series"),
        ("range(-5000, 5000)", ""),
        ("range(1e9)", "sql_series"),
        ("generate_series(DATE '2023-01-01', DATE '2024-01-01', INTERVAL 1 MONTH)", ""),
        ("generate_series(1, (SELECT 5))", "sql_series"),
        ("range(len('abc'))", "sql_series"),
        ("unnest([1, 2])", ""),
        ("repeat_row(1, num_rows = 5)", "sql_function"),
        ("main.range(5)", "sql_function"),
    ],
)
def test_table_functions(source, code):
    assert code_of(f"SELECT 1 FROM {source}") in (
        {code} if code != "sql_function" else {"sql_function", "sql_construct", "sql_unknown_table"}
    )


@pytest.mark.parametrize(
    "kind", ["JSON", "BLOB", "ENUM('a')", "UUID", "employees", "main.employees", "TIMESTAMPTZ", "BIT", "UNION(a INT)", "VARIANT"]
)
def test_types_that_are_not_offered(kind):
    assert code_of(f"SELECT CAST(status AS {kind}) FROM claims_v") in {"sql_type", "sql_construct", "sql_syntax"}


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["run", "bind"])
@pytest.mark.parametrize("case", [case for case in CASES if case["must"] == "reject"], ids=lambda case: case["id"])
def test_refused_texts_are_never_run(case, op):
    """A text that the gate refuses reaches no session: the engine that holds data does not even parse it."""
    opened, told = [], []
    served = SimpleNamespace(session=lambda *_: opened.append(1) or (_ for _ in ()).throw(duckdb_tables.Fault("sql_start")))
    clock = _Clock()
    import pickle

    request = (op, case["sql"], pickle.dumps(grants(1)), DAY, LIMITS, 2.0, False)
    try:
        gate.check_text(case["sql"], LIMITS)
    except Refused:
        return
    reply = json.loads(duckdb_tables._answer(PARSING, served, clock, GATE, request, {}, told.append)[0])
    refused = code_of(case["sql"])
    assert bool(opened) == bool(told) == (not refused)
    assert reply["code"] == (refused or "sql_start")


def test_versions_other_than_the_pinned_are_refused():
    from router.errors import SourceError

    for versions in (("2.1.0", "30.30.0"), ("2.0.1", "31.0.0"), ("1.4.4", "30.30.0")):
        with pytest.raises(SourceError, match="not known to the gate"):
            gate.check_versions(SimpleNamespace(versions=lambda versions=versions: versions))
    gate.check_versions(PARSING)
