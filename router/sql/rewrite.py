"""From a caller's tree to the tree that is run: every table resolved by a lexical walk of our own and replaced.

The walk knows three facts of DuckDB that general scope builders get wrong: a CTE is seen only by what follows it (by itself
only under RECURSIVE), a qualified name is never a CTE, and an alias never hides a table's name. Every CTE gets a reserved
name, so that a reference which this walk did not resolve resolves to nothing in the engine either.

INVARIANT: after `rewrite` every table of the tree is a secure view by its full name or a renamed CTE
(tests/sql/test_gate.py::test_every_reference_is_replaced).
INVARIANT: the dialect keeps every function by the name in the text (tests/sql/test_gate.py::test_functions_keep_their_names).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from typing import Any, cast

from router.domain import SqlLimits, TableGrant
from router.sql.allowed import (
    INTERVAL_UNITS,
    JOIN_ARGS,
    NODES,
    SCHEMAS,
    SELECT_ARGS,
    SETOP_ARGS,
    TABLE_ARGS,
    TABLE_FUNCTIONS,
    WITH_HOLDERS,
)

CTE_PREFIX = "pointsman_cte_"
RAW_PREFIX = "pointsman_raw_"
"""Columns of a secure view that hold raw values for predicates; no sub-query projects them."""
VIEW_CATALOG, VIEW_SCHEMA = "temp", "main"
_ARGS = {
    "Select": SELECT_ARGS,
    "Table": TABLE_ARGS,
    "Join": JOIN_ARGS,
    "Union": SETOP_ARGS,
    "Intersect": SETOP_ARGS,
    "Except": SETOP_ARGS,
}
_SCHEMAS_OF_VIEWS = {"", "main"}


class Unfit(Exception):  # noqa: N818 (becomes a refusal in gate.py, where the words are)
    """The tree is not one that may be run; `args[0]` is the refusal's code."""


@dataclass(slots=True)
class Rewritten:
    """`tables` are the governed names in order of appearance, `ctes` the reserved names given out, `masked` output names
    that may hold masked values (names only: the mask itself stands in the view)."""

    tables: list[str] = field(default_factory=list)
    ctes: list[str] = field(default_factory=list)
    masked: set[str] = field(default_factory=set)


@cache
def dialect() -> Any:
    """DuckDB's dialect without sqlglot's knowledge of functions: what it does not understand it cannot change."""
    from sqlglot import exp
    from sqlglot.dialects.duckdb import DuckDB
    from sqlglot.generator import Generator as Plain
    from sqlglot.tokenizer_core import TokenType

    plain_parser: Any = DuckDB.Parser
    plain_generator: Any = DuckDB.Generator

    class Governed(DuckDB):
        DATE_PART_MAPPING: dict[str, str] = {}  # noqa: RUF012

        class Parser(plain_parser):  # type: ignore[misc]
            FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012
            FUNCTION_PARSERS = {  # noqa: RUF012
                name: parse
                for name, parse in plain_parser.FUNCTION_PARSERS.items()
                if name in {"CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION"}
            }
            NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
                name: parse for name, parse in plain_parser.NO_PAREN_FUNCTION_PARSERS.items() if name in {"CASE", "MAP", "ANY"}
            }
            NO_PAREN_FUNCTIONS = {  # noqa: RUF012
                token: kind for token, kind in plain_parser.NO_PAREN_FUNCTIONS.items() if kind is exp.CurrentDate
            }

            def _parse_interval_span(self, this: Any, **_: Any) -> Any:
                """Number, string and unit stay as they are written: sqlglot would read `1 month ago` as a month."""
                unit = None
                if self._curr is not None and self._curr.text.upper() in INTERVAL_UNITS:
                    unit = self._parse_var(any_token=True, upper=True)
                return self.expression(exp.Interval(this=this, unit=unit))

            def _parse_type(self, *args: Any, **rest: Any) -> Any:
                """`DATE '2024-01-01'::TIMESTAMP` casts a date; sqlglot would cast the text first."""
                here, behind = self._curr, self._next
                if (
                    here
                    and behind
                    and behind.token_type is TokenType.STRING
                    and here.token_type in self.TYPE_TOKENS - {TokenType.INTERVAL}
                ):
                    index = self._index
                    kind = self._parse_types(check_func=True, allow_identifiers=False)
                    literal = self._parse_primary() if isinstance(kind, exp.DataType) else None
                    if isinstance(literal, exp.Literal):
                        return self._parse_column_ops(self.expression(exp.Cast(this=literal, to=kind)))
                    self._retreat(index)
                return super()._parse_type(*args, **rest)

            def _values_to_select(self, values: Any) -> Any:
                return values

            def _parse_from(self, joins: bool = False, **rest: Any) -> Any:
                """`FROM unnest(…) JOIN … SELECT …`: sqlglot looks for joins only behind the name of a table."""
                from_ = super()._parse_from(joins=joins, **rest)
                behind = joins and from_ is not None and isinstance(from_.this, exp.Unnest | exp.Values)
                if behind and (found := list(self._parse_joins())):
                    from_.this.meta["joins"] = found  # `parse` hands them to the SELECT
                return from_

            def _parse_bracket(self, this: Any = None) -> Any:
                """`list(x)[1]` takes one of a list; sqlglot would read a list constructor and lose `x`."""
                if isinstance(this, exp.Anonymous) and self._curr is not None and self._curr.text == "[":
                    this = exp.Paren(this=this)
                return super()._parse_bracket(this)

            _in_pivot = False

            def _parse_in(self, this: Any, alias: bool = False) -> Any:
                return super()._parse_in(this, alias=alias or self._in_pivot)

            def _parse_simplified_pivot(self, is_unpivot: bool | None = None) -> Any:
                """sqlglot knows no ORDER BY or LIMIT behind a PIVOT statement: they stand around it as a sub-query. Nor does it
                know names for the values of such a statement's IN."""
                self._in_pivot = True
                pivot = super()._parse_simplified_pivot(is_unpivot)
                self._in_pivot = False
                around = exp.Select(expressions=[exp.Star()], from_=exp.From(this=exp.Subquery(this=pivot)))
                around = self._parse_query_modifiers(around)
                return around if any(around.args.get(part) for part in ("order", "limit", "offset")) else pivot

        class Generator(plain_generator):  # type: ignore[misc]
            MULTI_ARG_DISTINCT = True
            TRANSFORMS = {  # noqa: RUF012
                kind: make
                for kind, make in plain_generator.TRANSFORMS.items()
                if kind not in {exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls, exp.Pivot}
            }
            withingroup_sql = Plain.withingroup_sql
            ignorenulls_sql = Plain.ignorenulls_sql
            respectnulls_sql = Plain.respectnulls_sql
            join_sql = Plain.join_sql

            def interval_sql(self, expression: Any) -> str:
                unit = self.sql(expression, "unit")
                return f"INTERVAL {self.sql(expression, 'this')}{' ' + unit if unit else ''}"

    return Governed()


def parse(text: str) -> Any:
    """One tree, or `Unfit`. Nothing of sqlglot's messages gets out: they quote the text."""
    from sqlglot.errors import SqlglotError

    try:
        trees = dialect().parse(text)
    except SqlglotError:
        raise Unfit("sql_syntax") from None
    except RecursionError:
        raise Unfit("sql_too_large") from None
    if trees and len(trees) > 1 and type(trees[-1]).__name__ == "Semicolon":
        trees = trees[:-1]
    if len(trees) != 1 or trees[0] is None:
        raise Unfit("sql_not_one")
    if type(trees[0]).__name__ not in WITH_HOLDERS:
        raise Unfit("sql_not_select")
    _attach_joins(trees[0])
    return trees[0]


def _attach_joins(tree: Any) -> None:
    """Joins that `_parse_from` found behind the first source of a FROM-first SELECT."""
    from sqlglot import exp

    for source in tree.find_all(exp.Unnest, exp.Values):
        joins = source.meta.pop("joins", None)
        if joins:
            select = source.parent.parent if isinstance(source.parent, exp.From) else None
            if not isinstance(select, exp.Select):
                raise Unfit("sql_syntax")
            select.set("joins", joins + (select.args.get("joins") or []))


def generate(tree: Any, *, copy: bool) -> str:
    from sqlglot.errors import SqlglotError

    try:
        return cast(str, tree.sql(dialect=dialect(), comments=False, copy=copy))
    except SqlglotError:
        raise Unfit("sql_syntax") from None
    except RecursionError:
        raise Unfit("sql_too_large") from None


def check_nodes(tree: Any, limits: SqlLimits) -> None:
    """Every class and every part of a query is one that this module understands, and there are not too many."""
    joins = operands = 0
    for node in tree.walk():
        kind = type(node).__name__
        if kind not in NODES:
            raise Unfit("sql_construct")
        args = node.args
        allowed = _ARGS.get(kind)
        if allowed is not None and not allowed.issuperset(args):
            for name, value in args.items():
                if value and name not in allowed:
                    raise Unfit("sql_construct")
        if "with_" in args and args["with_"] and kind not in WITH_HOLDERS:
            raise Unfit("sql_construct")
        joins += kind == "Join"
        operands += kind in {"Union", "Intersect", "Except"}
        if kind == "In" and len(args.get("expressions") or ()) > limits.max_in_list:
            raise Unfit("sql_too_large")
        if kind == "Join" and (args.get("kind") or "").upper() == "ARRAY":
            raise Unfit("sql_construct")
    if joins > limits.max_joins or operands >= limits.max_set_operands:
        raise Unfit("sql_too_large")


# --- the walk ---------------------------------------------------------------------------------------------------------


def rewrite(tree: Any, grants: Mapping[str, TableGrant], today: date) -> Rewritten:
    """Replace in place; `grants` by lower-case governed name. Raises `Unfit` at the first name that does not exist."""
    found = Rewritten()
    tables: list[tuple[Any, str | None]] = []
    _walk(tree, lambda table, cte: tables.append((table, cte)), found, grants)
    _replace_time(tree, today)
    _unqualify(tree, {name for table, cte in tables if cte is None and (name := _name(table))})
    found.masked = _masked_names(tree, [grants[name] for name in dict.fromkeys(found.tables)])
    for table, cte in tables:
        raw = [] if cte is not None else _take_raw(table, grants[table.this.name.lower()])
        _replace(table, cte, grants, raw)
    return found


def _walk(tree: Any, place: Callable[[Any, str | None], None], found: Rewritten, grants: Mapping[str, TableGrant]) -> None:
    """Visit every node with the CTEs that it sees: no recursion, since a chain of operators is as deep as it is long."""
    from sqlglot import exp

    stack: list[tuple[Any, dict[str, str]]] = [(tree, {})]
    while stack:
        node, scope = stack.pop()
        args = node.args
        if args.get("with_"):
            scope = _enter(args["with_"], scope, stack, found, grants)
        if isinstance(node, exp.Table):
            _resolve(node, scope, place, found, grants)
        for name, value in args.items():
            if name == "with_" or value is None:
                continue
            if isinstance(value, exp.Expression):
                stack.append((value, scope))
            elif isinstance(value, list):
                stack += [(item, scope) for item in value if isinstance(item, exp.Expression)]


def _enter(
    with_: Any, scope: dict[str, str], stack: list[tuple[Any, dict[str, str]]], found: Rewritten, grants: Mapping[str, TableGrant]
) -> dict[str, str]:
    """The scope below a WITH; its bodies are put on the stack, each with the scope that it sees itself."""
    from sqlglot import exp

    seen: set[str] = set()
    for cte in with_.expressions:
        alias = cte.args.get("alias")
        name = alias.this.name.lower() if alias is not None and alias.this is not None else ""
        if not name or name in seen or name in grants or cte.args.get("scalar") or cte.args.get("key_expressions"):
            raise Unfit("sql_cte_name")
        seen.add(name)
        reserved = f"{CTE_PREFIX}{len(found.ctes)}"
        found.ctes.append(reserved)
        below = {**scope, name: reserved}
        recursive = bool(with_.args.get("recursive")) and isinstance(cte.this.unnest(), exp.Union)
        stack.append((cte.this, below if recursive else scope))
        alias.set("this", exp.to_identifier(reserved))
        scope = below
    return scope


def _resolve(
    table: Any,
    scope: dict[str, str],
    place: Callable[[Any, str | None], None],
    found: Rewritten,
    grants: Mapping[str, TableGrant],
) -> None:
    from sqlglot import exp

    this = table.this
    if isinstance(this, exp.Anonymous):
        if table.args.get("db") or str(this.this).lower() not in TABLE_FUNCTIONS:
            raise Unfit("sql_function")
        return
    if isinstance(this, exp.Values) and table.args.get("db") is None:
        return
    if not isinstance(this, exp.Identifier):
        raise Unfit("sql_unknown_table")
    name, schema = this.name.lower(), table.args.get("db")
    if schema is not None and not isinstance(schema, exp.Identifier):
        raise Unfit("sql_unknown_table")
    if schema is None and name in scope:
        place(table, scope[name])
        return
    if (schema.name.lower() if schema is not None else "") not in _SCHEMAS_OF_VIEWS or name not in grants:
        raise Unfit("sql_unknown_table")
    found.tables.append(name)
    place(table, None)


def _name(table: Any) -> str:
    return cast(str, table.this.name.lower()) if table.args.get("db") else ""


# --- predicates that may see the raw value ----------------------------------------------------------------------------

_PLAIN = {"Column", "Identifier", "Literal", "Boolean", "Null", "Neg", "Not", "Paren", "Tuple"}
_COMPARISONS = {"EQ", "NEQ", "GT", "GTE", "LT", "LTE", "Like", "ILike", "In", "Between"}


def _take_raw(table: Any, grant: TableGrant) -> list[Any]:
    """Comparisons with literals that `filter_raw` lets see the raw value: taken out of the WHERE that the table stands under,
    to stand inside its sub-query. Only top-level conjuncts, and only where no outer join could tell the difference."""
    from sqlglot import exp

    raw = {column.name.lower() for column in grant.columns if column.mask is not None and column.filter_raw}
    holder = table.parent
    select = holder.parent if isinstance(holder, exp.From | exp.Join) else None
    if not raw or not isinstance(select, exp.Select) or not select.args.get("where") or table.args.get("pivots"):
        return []
    alias, joins = table.args.get("alias"), select.args.get("joins") or []
    if (alias is not None and alias.args.get("columns")) or any(not _is_inner(join) for join in joins):
        return []
    where = select.args["where"]
    kept: list[Any] = []
    taken: list[Any] = []
    for conjunct in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
        column = _compared(conjunct, raw)
        named = column is not None and (column.table.lower() == table.alias_or_name.lower() if column.table else not joins)
        (taken if named else kept).append(conjunct)
    if taken:
        select.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)
    for conjunct in taken:
        for column in conjunct.find_all(exp.Column):
            column.replace(exp.Column(this=exp.to_identifier(RAW_PREFIX + column.name.lower(), quoted=True)))
    return taken


def _is_inner(join: Any) -> bool:
    return (
        not join.args.get("side")
        and not join.args.get("method")
        and (join.args.get("kind") or "").upper() in {"", "INNER", "CROSS"}
    )


def _compared(conjunct: Any, raw: set[str]) -> Any:
    """The one raw column that a plain comparison with literals speaks of."""
    from sqlglot import exp

    while isinstance(conjunct, exp.Paren | exp.Not):
        conjunct = conjunct.this
    nodes = list(conjunct.walk())
    columns = [node for node in nodes if isinstance(node, exp.Column)]
    if type(conjunct).__name__ not in _COMPARISONS or len(columns) != 1 or conjunct.args.get("query"):
        return None
    plain = all(node is conjunct or type(node).__name__ in _PLAIN for node in nodes)
    return columns[0] if plain and columns[0].name.lower() in raw and not columns[0].args.get("db") else None


def _replace(table: Any, cte: str | None, grants: Mapping[str, TableGrant], raw: list[Any]) -> None:
    """A CTE's reference gets the reserved name and keeps the old one as alias; a governed name becomes a sub-query of the
    allowed columns over the secure view."""
    from sqlglot import exp

    alias = table.args.get("alias")
    if alias is None or alias.this is None:
        columns = alias.args.get("columns") if alias is not None else None
        alias = exp.TableAlias(this=exp.to_identifier(table.this.name, quoted=True), columns=columns)
    if cte is not None:
        table.set("this", exp.to_identifier(cte))
        table.set("alias", alias)
        return
    grant = grants[table.this.name.lower()]
    inner = exp.Select(
        expressions=[exp.Column(this=exp.to_identifier(column.name, quoted=True)) for column in grant.columns],
        from_=exp.From(this=exp.Table(
            this=exp.to_identifier(grant.name, quoted=True),
            db=exp.to_identifier(VIEW_SCHEMA, quoted=True),
            catalog=exp.to_identifier(VIEW_CATALOG, quoted=True),
        )),
    )  # fmt: skip
    if raw:
        inner.set("where", exp.Where(this=exp.and_(*(exp.Paren(this=one) for one in raw), copy=False)))
    parts = {name: table.args.get(name) for name in ("pivots", "joins") if table.args.get(name)}
    table.replace(exp.Subquery(this=inner, alias=alias, **parts))


def _replace_time(tree: Any, today: date) -> None:
    """`current_date`, `today()` and the one-armed `age` read the day that the question was asked on."""
    from sqlglot import exp

    for node in list(tree.find_all(exp.CurrentDate, exp.Anonymous)):
        name = "current_date" if isinstance(node, exp.CurrentDate) else str(node.this).lower()
        operands = node.args.get("expressions") or []
        if name in {"current_date", "today"} and not operands:
            node.replace(exp.cast(exp.Literal.string(today.isoformat()), "DATE"))
        elif name == "age" and len(operands) == 1:
            moment = exp.cast(exp.Literal.string(f"{today.isoformat()} 00:00:00"), "TIMESTAMP")
            node.set("expressions", [moment, *operands])


def _unqualify(tree: Any, qualified: set[str]) -> None:
    """`main.claims_v.amount` names the table that the sub-query's alias stands for; `x.lower()` is a call, not a schema."""
    from sqlglot import exp

    for column in tree.find_all(exp.Column):
        schema, table = column.args.get("db"), column.args.get("table")
        if (
            schema is not None
            and schema.name.lower() == "main"
            and table.name.lower() in qualified
            and not column.args.get("catalog")
        ):
            column.set("db", None)
    for dot in list(tree.find_all(exp.Dot)):
        call, subject = dot.expression, dot.this
        if isinstance(call, exp.Anonymous) and _is_value(subject):
            call = call.copy()
            call.set("expressions", [subject.copy(), *call.expressions])
            dot.replace(call)


def _is_value(subject: Any) -> bool:
    """A name, qualified or not, whose first part is no schema."""
    from sqlglot import exp

    while isinstance(subject, exp.Dot) and isinstance(subject.expression, exp.Identifier):
        subject = subject.this
    if isinstance(subject, exp.Column):
        subject = subject.parts[0]
    return isinstance(subject, exp.Identifier) and subject.name.lower() not in SCHEMAS


def _masked_names(tree: Any, grants: list[TableGrant]) -> set[str]:
    """Names that a masked value may come out under: the columns themselves and every alias of an expression over one."""
    from sqlglot import exp

    masked = {column.name.lower() for grant in grants for column in grant.columns if column.mask is not None}
    if not masked:
        return masked
    aliases = [
        (node.alias.lower(), {column.name.lower() for column in node.find_all(exp.Column)})
        for node in tree.find_all(exp.Alias)
        if node.alias
    ]
    while grown := {name for name, columns in aliases if columns & masked} - masked:
        masked |= grown
    return masked
