"""The gate: what any text must pass before DuckDB runs anything, whoever wrote it.

    L0  size, characters, nesting            `check_text`, in the parent, before a worker sees the text
    L1  DuckDB: exactly one SELECT           `engine.statements`
    L2  sqlglot: classes and parts allowed   `rewrite.parse`, `rewrite.check_nodes`
    L3  every table replaced                 `rewrite.rewrite`; the original is never run
        both parsers mean the same           DuckDB's tree of the original equals that of sqlglot's spelling of it
    L4  DuckDB's tree of what will be run    types, keys, tables, functions, also those named in strings

`govern` is a top-level function, pickled by name into the worker, where `engine` is a bare in-process connection that parses and
holds no data. Refusals carry a stable code and our own words: nothing of either parser's messages, which quote and suggest.

INVARIANT: a text that is refused is refused before the engine that holds data sees any of it
(tests/sql/test_gate.py::test_refused_texts_are_never_run).
INVARIANT: a type, key, function or table of DuckDB's tree that no list has is refused
(tests/sql/test_gate.py::test_unknown_nodes_are_refused).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol

from router.domain import SqlLimits, TableGrant
from router.errors import Refused, SourceError
from router.sql.allowed import (
    AGGREGATES,
    BARE_NAMES,
    CONSTANTS,
    DUCKDB_VERSION,
    FUNCTIONS,
    JOINS,
    KEYS,
    MATERIALIZED,
    NAMED_IN_STRINGS,
    OPERATORS,
    SAME_FUNCTION,
    SAME_TYPE,
    SERIES,
    SQLGLOT_VERSION,
    TABLE_FUNCTIONS,
    TYPE_NAMES,
    TYPES,
)
from router.sql.rewrite import VIEW_CATALOG, VIEW_SCHEMA, Unfit, check_nodes, generate, parse, rewrite

REASONS = {
    "sql_too_large": "the text is too long, too deep or joins too much",
    "sql_characters": "the text holds characters that SQL has no use for",
    "sql_syntax": "the text is not SQL that can be read in one way only",
    "sql_not_one": "exactly one statement is run at a time",
    "sql_not_select": "only a SELECT is run",
    "sql_parameter": "placeholders are not filled in",
    "sql_construct": "the text uses a part of SQL that is not offered",
    "sql_cte_name": "a name in WITH is missing, given twice or that of a table",
    "sql_unknown_table": "a table does not exist",
    "sql_unknown_column": "a column does not exist or its use does not fit its type",
    "sql_function": "a function is not offered",
    "sql_type": "a type is not offered",
    "sql_series": "bounds of a series must be written out and few",
    "sql_small_groups": "this table answers metrics and query tools only",
    "sql_value": "a value cannot be computed as the text asks",
    "sql_limit_time": "the statement took too long",
    "sql_limit_memory": "the statement took too much memory",
}
_HINTS = {
    "sql_unknown_table": "use the tables that you are shown, each by its plain name",
    "sql_too_large": "ask for less at a time",
    "sql_limit_time": "narrow the question",
    "sql_limit_memory": "narrow the question",
}


class ParsingEngine(Protocol):
    """DuckDB as a parser: a bare connection without data. Any failure to parse is a `ValueError`."""

    def versions(self) -> tuple[str, str]: ...

    def statements(self, text: str) -> list[tuple[str, int]]:
        """(kind, number of parameters) of every statement."""
        ...

    def trees(self, texts: Sequence[str]) -> list[Any]:
        """DuckDB's own tree of each text, defaults left out, in one round trip; None for what it cannot show."""
        ...


@dataclass(frozen=True, slots=True)
class Governed:
    """What may be run: `sql` over secure views of `tables` (governed names), `masked` lower-case output names."""

    sql: str
    tables: tuple[str, ...]
    masked: frozenset[str]


def refuse(code: str) -> Refused:
    return Refused(code, REASONS[code], _HINTS.get(code, ""))


# --- L0 ---------------------------------------------------------------------------------------------------------------

_LEXEME = re.compile(
    r"""(?P<space>[ \t\r\n]+) | (?P<line>--[^\r\n]*) | (?P<block>/\*) | [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*"
    | \$(?P<tag>[A-Za-z_0-9]*)\$ | (?P<word>\w+) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_OPEN, _CLOSE = "([{", ")]}"


def check_text(text: str, limits: SqlLimits) -> None:
    """L0. Cheap, and in front of both parsers: what is deep, long or written in odd characters ends here."""
    if not isinstance(text, str) or len(text) > limits.max_chars:
        raise refuse("sql_too_large")
    if not text.strip():
        raise refuse("sql_not_one")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise refuse("sql_characters") from None
    if any(unicodedata.category(char) == "Cc" and char not in "\t\r\n" for char in text):
        raise refuse("sql_characters")
    at = tokens = depth = subscripts = 0
    while at < len(text):
        found = _LEXEME.match(text, at)
        assert found is not None  # `other` takes any character
        at = found.end()
        kind, lexeme = found.lastgroup, found.group()
        if kind in {"space", "line"}:
            continue
        if kind == "block":
            at = _after_comment(text, at)
            continue
        if kind == "tag":
            end = text.find(lexeme, at)
            at = len(text) if end < 0 else end + len(lexeme)
        tokens += 1
        if kind == "other":
            depth += (lexeme in _OPEN) - (lexeme in _CLOSE)
            subscripts += lexeme == "["
            if lexeme == "`" or (not lexeme.isascii() and unicodedata.category(lexeme)[0] not in "LNMS"):
                raise refuse("sql_characters")
        if tokens > limits.max_tokens or depth > limits.max_depth or subscripts > limits.max_subscripts:
            raise refuse("sql_too_large")


def _after_comment(text: str, at: int) -> int:
    """Comments nest."""
    depth = 1
    while depth and at < len(text):
        if text.startswith("/*", at):
            depth, at = depth + 1, at + 2
        elif text.startswith("*/", at):
            depth, at = depth - 1, at + 2
        else:
            at += 1
    return at


# --- L1 to L4 ---------------------------------------------------------------------------------------------------------


def check_versions(engine: ParsingEngine) -> None:
    """Both parsers' trees are known for one version each: with another, nothing is run at all."""
    duckdb, sqlglot = engine.versions()
    if not duckdb.removeprefix("v").startswith(DUCKDB_VERSION) or not sqlglot.startswith(SQLGLOT_VERSION):
        raise SourceError(
            "sql_version",
            f"duckdb `{duckdb}` with sqlglot `{sqlglot}` is not known to the gate",
            f"install duckdb {DUCKDB_VERSION}x and sqlglot {SQLGLOT_VERSION}x",
        )


def govern(
    engine: ParsingEngine,
    text: str,
    grants: Sequence[TableGrant],
    today: date,
    limits: SqlLimits,
    compiled: bool = False,
) -> Governed:
    """Raises `Refused`. `compiled` says that the text comes of a compiled form, which keeps to a table's minimum group."""
    check_text(text, limits)
    try:
        return _govern(engine, text, {grant.name.lower(): grant for grant in grants}, today, limits, compiled)
    except Unfit as unfit:
        raise refuse(unfit.args[0]) from None
    except RecursionError:
        raise refuse("sql_too_large") from None


def _govern(
    engine: ParsingEngine, text: str, grants: dict[str, TableGrant], today: date, limits: SqlLimits, compiled: bool
) -> Governed:
    _check_statement(engine, text)
    tree = parse(text)
    check_nodes(tree, limits)
    spelled = generate(tree, copy=True)
    found = rewrite(tree, grants, today)
    if not compiled and any(grants[name].min_group is not None for name in found.tables):
        raise Unfit("sql_small_groups")
    generated = generate(tree, copy=False)
    original, again, final = engine.trees([text, spelled, generated])
    if original is None or again is None or final is None:
        raise Unfit("sql_syntax")
    _check_tree(final, {grants[name].name for name in found.tables}, frozenset(found.ctes), _column_names(grants), limits)
    if _meaning(original) != _meaning(again):
        raise Unfit("sql_syntax")
    return Governed(generated, tuple(dict.fromkeys(grants[name].name for name in found.tables)), frozenset(found.masked))


def _check_statement(engine: ParsingEngine, text: str) -> None:
    try:
        statements = engine.statements(text)
    except ValueError:
        raise Unfit("sql_syntax") from None
    if len(statements) != 1:
        raise Unfit("sql_not_one")
    kind, parameters = statements[0]
    if kind != "SELECT":
        raise Unfit("sql_not_select")
    if parameters:
        raise Unfit("sql_parameter")


def _column_names(grants: dict[str, TableGrant]) -> frozenset[str]:
    return frozenset(column.name.lower() for grant in grants.values() for column in grant.columns)


# --- L4: DuckDB's tree of what will be run ----------------------------------------------------------------------------


def _check_tree(tree: Any, views: set[str], ctes: frozenset[str], columns: frozenset[str], limits: SqlLimits) -> None:
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += [item for item in node if isinstance(item, dict | list)]
            continue
        if not KEYS.issuperset(node):
            raise Unfit("sql_construct")
        kind = node.get("type")
        if isinstance(kind, str):
            if kind not in TYPES:
                raise Unfit("sql_construct")
            check = _CHECKS.get(kind) or (_check_function if kind.startswith("WINDOW_") else None)
            if check is _check_table:
                _check_table(node, views, ctes)
            elif check is not None:
                check(node, columns, limits)
        if "cte_map" in node:
            _check_ctes(node["cte_map"], ctes)
        if node.get("cte_name", CTE_ANY) not in ctes and "cte_name" in node:
            raise Unfit("sql_construct")
        stack += [value for value in node.values() if isinstance(value, dict | list)]


CTE_ANY = ""


def _check_ctes(cte_map: Any, ctes: frozenset[str]) -> None:
    for entry in cte_map.get("map", ()):
        if entry["key"] not in ctes or entry["value"].get("materialized") not in MATERIALIZED:
            raise Unfit("sql_construct")


def _check_table(node: Any, views: set[str], ctes: frozenset[str]) -> None:
    """Only a secure view by its full name, or a CTE by the name that we gave it."""
    path = node.get("qualified_name", {}).get("path", [])
    name = node.get("table_name")
    if path == [VIEW_CATALOG, VIEW_SCHEMA, name]:
        known = name in views and node.get("catalog_name") == VIEW_CATALOG and node.get("schema_name") == VIEW_SCHEMA
    else:
        known = path == [name] and name in ctes and "schema_name" not in node and "catalog_name" not in node
    if not known:
        raise Unfit("sql_unknown_table")


def _check_function(node: Any, _: frozenset[str], limits: SqlLimits) -> None:
    name = node.get("function_name", "").lower()
    if [part.lower() for part in node.get("qualified_name", {}).get("path", [])] != [name]:
        raise Unfit("sql_function")
    if name not in FUNCTIONS and name not in OPERATORS:
        raise Unfit("sql_function")
    if name in NAMED_IN_STRINGS:
        _check_named(node)
    elif name in SERIES:
        _check_series(node, limits, literal=False)


def _check_named(node: Any) -> None:
    operands = [argument["expression"] for argument in node.get("arguments", ())]
    literal = operands[1].get("literal", {}) if len(operands) > 1 else {}
    if literal.get("kind") != "STRING" or literal.get("text", "").lower() not in AGGREGATES:
        raise Unfit("sql_function")


def _check_table_function(node: Any, _: frozenset[str], limits: SqlLimits) -> None:
    function = node.get("function", {})
    name = function.get("function_name", "").lower()
    if function.get("type") != "FUNCTION" or name not in TABLE_FUNCTIONS:
        raise Unfit("sql_function")
    if name in SERIES:
        _check_series(function, limits, literal=True)


def _check_series(node: Any, limits: SqlLimits, *, literal: bool) -> None:
    """Bounds of a table function are literals, those of a scalar may be columns; where all are written out, they are few."""
    operands = [argument["expression"] for argument in node.get("arguments", ())]
    if literal and not all(_is_literal(operand) for operand in operands):
        raise Unfit("sql_series")
    numbers = [_integer(operand) for operand in operands]
    if all(number is not None for number in numbers) and 1 <= len(numbers) <= 3:
        bounds = [number for number in numbers if number is not None]
        first, last, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if step == 0 or abs(last - first) // abs(step) > limits.max_series_rows:
            raise Unfit("sql_series")
    elif any(number is not None and abs(number) > limits.max_series_rows for number in numbers):
        raise Unfit("sql_series")


def _is_literal(node: Any) -> bool:
    kind = node.get("type")
    if kind == "VALUE_CONSTANT":
        return True
    if kind == "OPERATOR_CAST":
        return _is_literal(node["child"])
    if kind == "FUNCTION" and (node["function_name"].startswith("to_") or node["function_name"] in {"-", "+", "trunc"}):
        return all(_is_literal(argument["expression"]) for argument in node.get("arguments", ()))
    return False


def _integer(node: Any) -> int | None:
    if node.get("type") == "FUNCTION" and node.get("function_name") == "-" and len(node.get("arguments", ())) == 1:
        number = _integer(node["arguments"][0]["expression"])
        return None if number is None else -number
    literal = node.get("literal", {})
    try:
        return int(float(literal["text"])) if literal.get("kind") in {"INTEGER", "NUMERIC"} else None
    except (ValueError, OverflowError):
        return None


def _check_column(node: Any, columns: frozenset[str], _: SqlLimits) -> None:
    names = node.get("column_names", ())
    if len(names) == 1 and names[0].lower() in BARE_NAMES and names[0].lower() not in columns:
        raise Unfit("sql_function")


def _check_constant(node: Any, _: frozenset[str], __: SqlLimits) -> None:
    if node.get("literal", {}).get("kind") not in CONSTANTS:
        raise Unfit("sql_construct")


def _check_type(node: Any, _: frozenset[str], __: SqlLimits) -> None:
    name = node.get("type_name", "").lower()
    if name not in TYPE_NAMES or [part.lower() for part in node.get("qualified_name", {}).get("path", [name])] != [name]:
        raise Unfit("sql_type")


def _check_lambda(node: Any, _: frozenset[str], __: SqlLimits) -> None:
    if node.get("syntax_type") != "LAMBDA_KEYWORD":
        raise Unfit("sql_construct")


def _check_join(node: Any, _: frozenset[str], __: SqlLimits) -> None:
    if node.get("ref_type", "REGULAR") not in JOINS:
        raise Unfit("sql_construct")


_CHECKS: dict[str, Any] = {
    "BASE_TABLE": _check_table,
    "TABLE_FUNCTION": _check_table_function,
    "FUNCTION": _check_function,
    "COLUMN_REF": _check_column,
    "VALUE_CONSTANT": _check_constant,
    "TYPE": _check_type,
    "LAMBDA": _check_lambda,
    "JOIN": _check_join,
}


# --- both parsers mean the same ---------------------------------------------------------------------------------------

_PLACES = frozenset({"query_location", "query_location_length", "qualified_name", "class", "is_operator", "is_implicit", "name"})


def _meaning(node: Any) -> Any:
    """DuckDB's tree as plain nested values, in order, without places and with the few spellings evened out that sqlglot
    changes and DuckDB does not distinguish. Equal values, equal statements."""
    if isinstance(node, list):
        return [_meaning(item) for item in node]
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    even = _EVEN.get(kind) if isinstance(kind, str) else None
    if even is not None:
        return even(node)
    return _plain(node)


def _plain(node: Any) -> Any:
    return {key: _meaning(value) for key, value in node.items() if key not in _PLACES}


def _even_function(node: Any) -> Any:
    name = node["function_name"].lower()
    plain = _plain(node)
    plain["function_name"] = SAME_FUNCTION.get(name, name)
    if name == "date_part" and plain.get("arguments"):
        part = plain["arguments"][0]["expression"]
        if part.get("type") == "VALUE_CONSTANT":
            part["literal"] = part["literal"] | {"text": part["literal"].get("text", "").lower()}
    path = node.get("qualified_name", {}).get("path", ())
    plain["path"] = [part.lower() for part in path[:-1]]
    return plain


def _even_type(node: Any) -> Any:
    name = node.get("type_name", "").lower()
    plain = _plain(node) | {"type_name": SAME_TYPE.get(name, name)}
    sizes = [child.get("literal", {}).get("text") for child in plain.get("children", ())]
    if plain["type_name"] == "varchar" or (plain["type_name"] == "decimal" and sizes == ["18", "3"]):
        plain.pop("children", None)  # the engine reads no length of a text, and this is its decimal without sizes
    return plain


def _even_series_of(node: Any) -> Any:
    """`ARRAY[1, 2]` is `[1, 2]`."""
    call = {"type": "FUNCTION", "function_name": "list_value", "order_bys": {"type": "ORDER_MODIFIER"}}
    alias = {"alias": node["alias"]} if "alias" in node else {}
    return _even_function(call | alias | {"arguments": [{"expression": child} for child in node.get("children", ())]}) | {
        "path": []
    }


def _even_column(node: Any) -> Any:
    plain = _plain(node)
    names = plain.get("column_names", ())
    if len(names) == 1 and names[0].lower() in BARE_NAMES:
        plain["column_names"] = [names[0].lower()]
    return plain


def _even_constant(node: Any) -> Any:
    literal = node.get("literal", {})
    if literal.get("kind") not in {"INTEGER", "NUMERIC"}:
        return _plain(node)
    text = literal["text"].replace("_", "")
    return _plain(node) | {"literal": {"kind": literal["kind"], "text": f"0{text}" if text.startswith(".") else text}}


def _even_not(node: Any) -> Any:
    """`a IS NOT TRUE` is `NOT a IS TRUE`."""
    (child,) = node["children"]
    if child.get("type") != "COMPARE_NOT_DISTINCT_FROM":
        return _plain(node)
    return _meaning(child | {"type": "COMPARE_DISTINCT_FROM"} | ({"alias": node["alias"]} if "alias" in node else {}))


def _even_subquery(node: Any) -> Any:
    """`FROM (PIVOT t …)` is `PIVOT t …`."""
    inner = node.get("subquery", {}).get("node", {})
    if "alias" not in node and inner.get("from_table", {}).get("type") == "PIVOT" and not inner.get("cte_map"):
        star = [{key: value for key, value in item.items() if key not in _PLACES} for item in inner.get("select_list", ())]
        if star == [{"type": "STAR"}] and inner.keys() <= _BARE_SELECT:
            return _meaning(inner["from_table"])
    return _plain(node)


_BARE_SELECT = frozenset({"type", "cte_map", "select_list", "from_table", "aggregate_handling"})


def _even_not_null(node: Any) -> Any:
    inner = {key: value for key, value in node.items() if key != "alias"} | {"type": "OPERATOR_IS_NULL"}
    plain = {"type": "OPERATOR_NOT", "children": [_meaning(inner)]}
    return plain | ({"alias": node["alias"]} if "alias" in node else {})


def _even_order(node: Any) -> Any:
    plain = _plain(node)
    if plain.get("null_order") == "NULLS LAST":  # the engine's default, which no statement can change
        plain["null_order"] = "ORDER_DEFAULT"
    if plain.get("type") == "ASCENDING":
        plain["type"] = "ORDER_DEFAULT"
    return plain


def _even_table(node: Any) -> Any:
    return _plain(node) | {"path": [part.lower() for part in node.get("qualified_name", {}).get("path", ())]}


_EVEN: dict[str, Any] = {
    "FUNCTION": _even_function,
    "TYPE": _even_type,
    "OPERATOR_IS_NOT_NULL": _even_not_null,
    "ORDER_DEFAULT": _even_order,
    "ASCENDING": _even_order,
    "DESCENDING": _even_order,
    "BASE_TABLE": _even_table,
    "COLUMN_REF": _even_column,
    "VALUE_CONSTANT": _even_constant,
    "OPERATOR_NOT": _even_not,
    "ARRAY_CONSTRUCTOR": _even_series_of,
    "SUBQUERY": _even_subquery,
}
