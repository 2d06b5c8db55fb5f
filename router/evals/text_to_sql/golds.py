"""Gold queries, read: which values and columns they speak of, how they order and cut, and what kind of question they stand for.

A gold query is trusted text of the folder and is run as it is; reading it serves the rows that are made up for it, the judge and the
classes of the report.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import sqlglot
from sqlglot import exp

from router.evals.text_to_sql.schemas import Schema, split_statements

MOST_VARIANTS = 64
_AGGREGATES = (exp.Sum, exp.Avg, exp.Min, exp.Max)
_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.Like: "like", exp.ILike: "like",
}  # fmt: skip
_UNITS = {"MIN": "MINUTE", "MINS": "MINUTE", "SEC": "SECOND", "SECS": "SECOND", "HR": "HOUR", "HRS": "HOUR"}
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


@dataclass(frozen=True, slots=True)
class Gold:
    """One text that is right. `keyed` is the same without its limit and with what it is ordered by as further columns, where that
    can be said: then `width` columns are the answer and the rest is the order."""

    text: str
    plain_list: bool
    limit: int | None = None
    offset: int = 0
    ordered: bool = False
    keyed: str | None = None
    width: int = 0


@dataclass(slots=True)
class Theme:
    """One SELECT of one gold query: the values its conditions want, by table and column, and how many rows of a kind it counts."""

    query: str
    tables: list[str]
    wanted: dict[tuple[str, str], tuple[str, Any]] = field(default_factory=dict)
    copies: int = 1


@dataclass(slots=True)
class Uses:
    """What the gold queries of one database do with its columns; all names in lower case, columns as (table, column). `widest` is
    the longest list that one cuts."""

    literals: dict[tuple[str, str], list[tuple[str, Any]]] = field(default_factory=dict)
    nullable: set[tuple[str, str]] = field(default_factory=set)
    grouped: set[tuple[str, str]] = field(default_factory=set)
    averaged: set[tuple[str, str]] = field(default_factory=set)
    links: dict[tuple[tuple[str, str], tuple[str, str]], None] = field(default_factory=dict)
    themes: list[Theme] = field(default_factory=list)
    widest: int = 0


# --- variants and texts -----------------------------------------------------------------------------------------------


def gold_texts(query: str) -> list[str]:
    """Each of the texts that are right: parted by semicolons, and for `{a, b}` with either of the columns."""
    found: list[str] = []
    for part in split_statements(query):
        choices = [[one.strip() for one in group.split(",")] for group in re.findall(r"\{([^{}]+)\}", part)]
        if not choices:
            found.append(part.strip())
            continue
        for chosen in itertools.islice(itertools.product(*choices), MOST_VARIANTS):
            left = iter(chosen)
            text = re.sub(r"\{[^{}]+\}", lambda _, left=left: next(left), part)  # type: ignore[misc]
            found.append(text.replace("{}", ", ".join(re.sub(r"(?i)\s+as\s+\w+$", "", one) for one in chosen)).strip())
    return list(dict.fromkeys(found))


def parse(text: str, dialect: str, schema: Schema, today: date) -> exp.Expr | None:
    """The tree, today's date written in and SQLite's text in double quotes made text; None for what sqlglot cannot read."""
    try:
        tree = sqlglot.parse_one(text, dialect=dialect)
    except (sqlglot.errors.SqlglotError, RecursionError):
        return None
    if not isinstance(tree, exp.Query):
        return None
    dated(tree, today)
    if dialect == "sqlite":
        known = {column.name.lower() for table in schema.tables for column in table.columns}
        aliases = {alias.alias.lower() for alias in tree.find_all(exp.Alias)}
        for found in list(tree.find_all(exp.Column)):
            if not found.table and found.this.args.get("quoted") and found.name.lower() not in known | aliases:
                found.replace(exp.Literal.string(found.name))
    return tree


def dated(tree: exp.Expr, today: date) -> None:
    """Today's date written in, and names of schemas left out."""
    day = exp.cast(exp.Literal.string(today.isoformat()), "date")
    moment = exp.cast(exp.Literal.string(f"{today.isoformat()} 00:00:00"), "timestamp")
    for node in list(tree.walk()):
        if isinstance(node, exp.CurrentDate):
            node.replace(day.copy())
        elif isinstance(node, exp.CurrentTimestamp | exp.Localtimestamp | exp.CurrentDatetime):
            node.replace(moment.copy())
        elif (
            isinstance(node, exp.Literal) and node.is_string and node.this.lower() == "now" and isinstance(node.parent, exp.Func)
        ):
            node.replace(exp.Literal.string(today.isoformat()))
        elif isinstance(node, exp.Table):
            node.set("db", None)
        elif isinstance(node, exp.Var) and node.name.upper() in _UNITS:
            node.set("this", _UNITS[node.name.upper()])


def read_gold(text: str, tree: exp.Expr | None, dialect: str, run_in: str) -> Gold:
    """SQLite's gold is run as it stands; PostgreSQL's as sqlglot writes it for DuckDB."""
    if tree is None:
        return Gold(text, plain_list=False)
    ran = text if dialect == "sqlite" else tree.sql(run_in)
    limit, offset = _number(tree.args.get("limit")), _number(tree.args.get("offset")) or 0
    ordered = bool(tree.args.get("order"))
    if not isinstance(tree, exp.Select):
        return Gold(ran, plain_list=limit is None, limit=limit, offset=offset, ordered=ordered)
    grouped = tree.args.get("group") is not None or any(part.find(exp.AggFunc) for part in tree.expressions)
    keyed = _keyed(tree, run_in) if ordered else None
    width = len(tree.expressions)
    return Gold(ran, not grouped and limit is None, limit, offset, ordered, keyed, width)


def _number(part: Any) -> int | None:
    value = part.expression if part is not None else None
    return int(value.this) if isinstance(value, exp.Literal) and not value.is_string else None


def _keyed(tree: exp.Select, dialect: str) -> str | None:
    if any(part.is_star for part in tree.expressions):
        return None
    whole = tree.copy()
    keys = []
    aliases = {part.alias.lower(): part.this for part in whole.expressions if part.alias}
    for one in whole.args["order"].expressions:
        key = one.this
        if isinstance(key, exp.Literal) and not key.is_string:
            at = int(key.this) - 1
            if not 0 <= at < len(whole.expressions):
                return None
            key = whole.expressions[at]
            key = key.this if isinstance(key, exp.Alias) else key
        elif isinstance(key, exp.Column) and not key.table and key.name.lower() in aliases:
            key = aliases[key.name.lower()]
        keys.append(key.copy())
    if whole.args.get("distinct"):
        shown = {(part.this if isinstance(part, exp.Alias) else part).sql() for part in whole.expressions}
        if not {key.sql() for key in keys} <= shown:
            return None
    for number, key in enumerate(keys):
        whole.append("expressions", exp.alias_(key, f"order_key_{number}"))
    whole.set("limit", None)
    whole.set("offset", None)
    return whole.sql(dialect)


# --- what it speaks of ------------------------------------------------------------------------------------------------


def read_uses(schema: Schema, trees: Iterable[exp.Expr]) -> Uses:
    uses = Uses()
    seen: set[str] = set()
    for tree in trees:
        query = tree.sql()
        if query in seen:
            continue
        seen.add(query)
        uses.widest = max(uses.widest, min(_number(tree.args.get("limit")) or 0, 20))
        for select in tree.find_all(exp.Select):
            _read_select(schema, select, query, uses)
    return uses


def _read_select(schema: Schema, select: exp.Select, query: str, uses: Uses) -> None:
    theme = Theme(query, [name for name in _sources(select).values() if schema.table(name)])
    for node in _within(select):
        if isinstance(node, exp.Group):
            uses.grouped |= {owner for part in node.expressions if (owner := _owner(schema, part))}
        elif isinstance(node, exp.Sum | exp.Avg) and (owner := _owner(schema, node)):
            uses.averaged.add(owner)
        elif isinstance(node, exp.Is) and (owner := _owner(schema, node.this)):
            uses.nullable.add(owner)
        elif isinstance(node, exp.Between):
            bounds = [_value(node.args["low"]), _value(node.args["high"])]
            if (owner := _owner(schema, node.this)) and None not in bounds:
                uses.literals.setdefault(owner, []).extend(("between", bound) for bound in bounds)
                _want(theme, node, owner, "between", tuple(bounds))
        elif isinstance(node, exp.In) and (owner := _owner(schema, node.this)):
            values = [value for one in node.expressions if (value := _value(one)) is not None]
            uses.literals.setdefault(owner, []).extend(("=", value) for value in values)
            for value in values[:1]:
                _want(theme, node, owner, "=", value)
            if (inner := node.args.get("query")) is not None:
                _link(uses, owner, next((_owner(schema, part) for part in inner.this.expressions), None))
        elif (op := _COMPARISONS.get(type(node))) is not None:
            _read_comparison(schema, node, op, theme, uses)
    if select.args.get("distinct"):
        uses.grouped |= {owner for part in select.expressions if (owner := _owner(schema, part))}
    if isinstance(select.parent, exp.SetOperation):
        uses.grouped |= {owner for part in select.expressions if (owner := _owner(schema, part))}
        if select.arg_key == "this" and isinstance(other := select.parent.expression, exp.Select):
            for one, two in zip(select.expressions, other.expressions, strict=False):
                _link(uses, _owner(schema, one), _owner(schema, two))
    uses.themes.append(theme)


def _within(select: exp.Select) -> Iterator[exp.Expr]:
    """Nodes of one SELECT without those of a SELECT inside."""
    todo: list[exp.Expr] = [select]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(child for child in node.iter_expressions() if not isinstance(child, exp.Select | exp.SetOperation))


def _read_comparison(schema: Schema, node: exp.Expr, op: str, theme: Theme, uses: Uses) -> None:
    left, right = node.this, node.expression
    if _value(left) is not None:
        left, right, op = right, left, _MIRRORED.get(op, op)
    owner, value = _owner(schema, left), _value(right)
    if value is None:
        if op == "=" and owner:
            _link(uses, owner, _owner(schema, right))
        return
    counts = left.find(exp.Count) if isinstance(left, exp.Expr) else None
    if counts is not None and isinstance(value, int | float):
        theme.copies = max(theme.copies, min(12, int(value) + (op in (">", "<>"))))
        return
    if owner is None:
        return
    if _is_null(value):
        uses.nullable.add(owner)
        return
    inner = next(iter(left.find_all(exp.Column)), None)
    if inner is not None and inner is not left and not left.find(exp.AggFunc) and re.fullmatch(r"(19|20)\d\d", str(value)):
        value = f"{value}-06-15"  # a year taken out of a date
    uses.literals.setdefault(owner, []).append((op, value))
    if not left.find(exp.AggFunc):
        _want(theme, node, owner, op, value)


def _is_null(value: Any) -> bool:
    return isinstance(value, str) and value.lower() == "null"


def _want(theme: Theme, node: exp.Expr, owner: tuple[str, str], op: str, value: Any) -> None:
    if node.find_ancestor(exp.Not, exp.Having) is None and owner not in theme.wanted:
        theme.wanted[owner] = (op, value)


def _link(uses: Uses, one: tuple[str, str] | None, other: tuple[str, str] | None) -> None:
    if one and other and one != other:
        uses.links.setdefault((one, other))


def _value(node: Any) -> Any:
    if isinstance(node, exp.Neg) and isinstance(inner := _value(node.this), int | float):
        return -inner
    if isinstance(node, exp.Cast | exp.Paren):
        return _value(node.this)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return node.this
    return float(node.this) if re.search(r"[.eE]", node.this) else int(node.this)


def _sources(select: exp.Select) -> dict[str, str]:
    parts = [select.args["from_"].this] if select.args.get("from_") else []
    parts += [join.this for join in select.args.get("joins") or []]
    return {part.alias_or_name.lower(): part.name.lower() for part in parts if isinstance(part, exp.Table)}


def _owner(schema: Schema, node: Any) -> tuple[str, str] | None:
    """The column that an expression is about: itself, or the one inside."""
    found = next(iter(node.find_all(exp.Column)), None) if isinstance(node, exp.Expr) else None
    if found is None or (isinstance(node, exp.Query | exp.Subquery)):
        return None
    select = found.find_ancestor(exp.Select)
    while select is not None:
        sources = _sources(select)
        names = (
            [sources[found.table.lower()]] if found.table.lower() in sources else [] if found.table else list(sources.values())
        )
        for name in names:
            table = schema.table(name)
            if table is not None and (column := table.column(found.name)) is not None:
                return table.name.lower(), column.name.lower()
        select = select.find_ancestor(exp.Select)
    return None


# --- classes ----------------------------------------------------------------------------------------------------------


def classes_of(schema: Schema, tree: exp.Expr | None) -> list[str]:
    """The kinds of question that a gold query stands for; one query is of several."""
    if tree is None:
        return ["unread"]
    joins = len(list(tree.find_all(exp.Join)))
    found = ["no join" if joins == 0 else "1 join" if joins == 1 else "2+ joins"]
    if tree.find(exp.Count):
        found.append("count")
    if tree.find(*_AGGREGATES):
        found.append("sum-avg-min-max")
    if tree.find(exp.Group):
        found.append("group-by")
    if tree.find(exp.Limit) and tree.find(exp.Order):
        found.append("top-n, superlative")
    elif tree.find(exp.Order):
        found.append("order")
    kept = [node for node in tree.find_all(*_COMPARISONS, exp.In, exp.Between) if node.find_ancestor(exp.Having) is None]
    if any(node.expressions if isinstance(node, exp.In) else isinstance(_value(node.expression), str) for node in kept):
        found.append("filter by value")
    ranged = exp.GT | exp.GTE | exp.LT | exp.LTE
    if any(isinstance(node, exp.Between) or (isinstance(node, ranged) and _value(node.expression) is not None) for node in kept):
        found.append("filter by comparison")
    if isinstance(tree, exp.SetOperation) or len(list(tree.find_all(exp.Select, exp.SetOperation))) > 1:
        found.append("nested, set")
    if tree.find(exp.Having):
        found.append("having")
    if _by_date(schema, tree):
        found.append("date range")
    return found


def _by_date(schema: Schema, tree: exp.Expr) -> bool:
    if tree.find(exp.Interval, exp.TimestampTrunc, exp.DateTrunc, exp.Extract, exp.DateSub, exp.DateAdd, exp.TimeToStr):
        return True
    for node in tree.find_all(exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between):
        owner = _owner(schema, node.this)
        table = schema.table(owner[0]) if owner else None
        column = table.column(owner[1]) if table and owner else None
        if column is not None and column.kind in ("date", "datetime"):
            return True
    return False
