"""Expressions of the catalogue: from text to a tree over columns, with everything that may not stand in one refused.

Field expressions are expanded through other fields down to columns, metrics through other metrics and fields, so that what a
form reads is known as (dataset, column) pairs before any SQL exists: grants are decided on exactly these.

INVARIANT: fields and metrics that refer to themselves are refused, not followed
(tests/sql/form/test_check.py::test_circles_are_refused).
INVARIANT: no field holds an aggregate and no aggregate another one (tests/sql/form/test_vectors.py::test_vector).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from sqlglot import exp, parse
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from router.catalog import Catalog, Dataset, DatasetField
from router.errors import Refused
from router.sql.form import STAR

MAX_CHARS = 2_000

_DEFERRED = re.compile(
    r"\b(EXISTS_IN|ATTR|AGG|GRAIN_AGG|UNSAFE)\s*\(|\bEXISTS_IN\b|\bWITHIN\s+GROUP\b|\bEXCLUD(?:E|ING)\b|\{\s*role\b",
    re.IGNORECASE,
)
_NOT_IN_EXPRESSIONS = (
    exp.Query, exp.Alias, exp.Parameter, exp.Dot, exp.Lambda, exp.Command, exp.DDL, exp.DML, exp.Star, exp.Table, exp.SessionParameter,
)  # fmt: skip


class _Ansi(DuckDB):
    """DuckDB's grammar with the draft's order of missing values: highest, so last going up and first going down."""

    NULL_ORDERING = "nulls_are_large"


@lru_cache(maxsize=8_192)
def parse_expression(text: str) -> exp.Expr:
    """One expression as a tree. The result is shared: copy before changing it."""
    if len(text) > MAX_CHARS:
        raise Refused("E_EXPRESSION", "an expression of the catalogue is too long", f"keep it below {MAX_CHARS} characters")
    if _DEFERRED.search(text):
        raise Refused(
            "E_DEFERRED_KEY_REJECTED", f"`{text}` uses a feature that the Foundation draft defers", "write a plain metric"
        )
    try:
        trees = parse(text, read=_Ansi)
    except (SqlglotError, RecursionError) as error:
        raise Refused(
            "E_EXPRESSION", f"`{text}` is not an expression of SQL", "write one scalar or aggregate expression"
        ) from error
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Expr):
        raise Refused("E_EXPRESSION", f"`{text}` is not one expression of SQL", "write one scalar or aggregate expression")
    _check_shape(text, tree)
    return tree


def _check_shape(text: str, tree: exp.Expr) -> None:
    for node in tree.walk():
        if isinstance(node, exp.WindowSpec) and (node.args.get("kind") == "GROUPS" or node.find(exp.Placeholder)):
            raise Refused(
                "E_DEFERRED_FRAME_MODE",
                f"`{text}` has a frame that the Foundation draft defers (§10): GROUPS, or a bound that is a parameter",
                "use ROWS or RANGE, each bound a literal integer, UNBOUNDED or CURRENT ROW",
            )
        if isinstance(node, exp.Window) and node.find_ancestor(exp.Window):
            raise Refused(
                "E_NESTED_WINDOW", f"`{text}` has a nested window", "use a single window; make the inner one a derived field"
            )
        starred = isinstance(node, exp.Star) and _counts(node)
        if isinstance(node, exp.Placeholder) or (isinstance(node, _NOT_IN_EXPRESSIONS) and not starred):
            raise Refused(
                "E_EXPRESSION",
                f"`{text}` holds what an expression may not hold",
                "use columns, literals, operators and functions",
            )


def _counts(star: exp.Star) -> bool:
    parent = star.parent.parent if isinstance(star.parent, exp.Column) else star.parent
    return isinstance(parent, exp.Count)


def column(dataset: str, name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(dataset, quoted=True))


def rows_of(dataset: str) -> exp.Column:
    """What COUNT counts when it counts the rows of a dataset."""
    return column(dataset, STAR)


def expand_field(catalog: Catalog, dataset: Dataset, field: DatasetField) -> exp.Expr:
    """The field over columns, every one qualified by the dataset it belongs to. An own copy."""
    return _expand(catalog, dataset, field, ())


def _expand(catalog: Catalog, dataset: Dataset, field: DatasetField, above: tuple[tuple[str, str], ...]) -> exp.Expr:
    here = (dataset.name, field.name)
    if here in above:
        raise Refused("E_FIELD_DEPENDENCY_CYCLE", f"the field `{dataset.name}.{field.name}` refers to itself", "break the circle")
    tree = parse_expression(field.expression).copy()
    if any(aggregates(tree)):
        raise Refused("E_AGGREGATE_IN_FIELD", f"the field `{dataset.name}.{field.name}` holds an aggregate", "make it a metric")

    def bound(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        table, name = node.table, node.name
        owner = dataset if not table or table.lower() == dataset.name.lower() else catalog.dataset(table)
        if owner is None:
            raise not_found(f"{table}.{name}", "dataset")
        other = owner.field(name)
        own = owner is dataset and name.lower() == field.name.lower()
        if other is None or own:
            if owner is not dataset or (table and not own):
                raise not_found(f"{owner.name}.{name}", "field")
            return column(owner.name, name)
        return _paren(_expand(catalog, owner, other, (*above, here)))

    return _transform(tree, bound)


def expand_metric(catalog: Catalog, name: str) -> exp.Expr:
    """The metric over columns, through other metrics. An own copy."""
    return _metric(catalog, name, ())


def _metric(catalog: Catalog, name: str, above: tuple[str, ...]) -> exp.Expr:
    metric = catalog.metric(name)
    if metric is None:
        raise not_found(name, "metric")
    if metric.name in above:
        raise Refused("E_FIELD_DEPENDENCY_CYCLE", f"the metric `{metric.name}` refers to itself", "break the circle")
    tree = parse_expression(metric.expression).copy()

    def bound(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if not node.table:
            inner = _metric(catalog, node.name, (*above, metric.name))
            if inner.find(exp.Window):
                raise Refused(
                    "E_WINDOWED_METRIC_COMPOSITION",
                    f"`{metric.name}` is a composition onto a metric with a window (deferred, §10)",
                    "make a derived field of the window",
                )
            return _paren(inner)
        dataset = catalog.dataset(node.table)
        if dataset is None:
            raise not_found(f"{node.table}.{node.name}", "field")
        if isinstance(node.this, exp.Star):
            return rows_of(dataset.name)
        return _paren(expand_ref(catalog, dataset.name, node.name))

    whole = _transform(tree, bound)
    for found in aggregates(whole):
        if any(inner is not found for inner in _calls(found)):
            raise Refused(
                "E_NESTED_AGGREGATION_DEFERRED", f"`{metric.name}` aggregates an aggregate", "use one aggregate over the rows"
            )
    return whole


def expand_ref(catalog: Catalog, dataset_name: str, field_name: str) -> exp.Expr:
    """`dataset.field` over columns."""
    dataset = catalog.dataset(dataset_name)
    field = dataset.field(field_name) if dataset else None
    if dataset is None or field is None:
        raise not_found(f"{dataset_name}.{field_name}", "field")
    return expand_field(catalog, dataset, field)


def not_found(name: str, what: str) -> Refused:
    hint = "a bare name is that of a global metric; write fields as `dataset.field`"
    return Refused("E_NAME_NOT_FOUND", f"there is no {what} `{name}`", hint)


def _transform(tree: exp.Expr, bound: Any) -> exp.Expr:
    """Replace columns; what replaces them is not looked at again."""
    if isinstance(tree, exp.Column):
        replaced: exp.Expr = bound(tree)
        return replaced
    for node in list(tree.find_all(exp.Column)):
        node.replace(bound(node))
    return tree


def _paren(tree: exp.Expr) -> exp.Expr:
    return tree if isinstance(tree, exp.Column | exp.Func | exp.Literal) else exp.Paren(this=tree)


def _calls(tree: exp.Expr) -> list[exp.Expr]:
    """Aggregate calls that are not functions of a window."""
    return [node for node in tree.find_all(exp.AggFunc) if not _windowed(node)]


def _windowed(node: exp.Expr) -> bool:
    while isinstance(node.parent, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        node = node.parent
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"


def aggregates(tree: exp.Expr) -> list[exp.Expr]:
    """The outermost aggregates, each with its FILTER."""
    calls = _calls(tree)
    outer = [node for node in calls if not any(other is not node and _inside(node, other) for other in calls)]
    return [node.parent if isinstance(node.parent, exp.Filter) else node for node in outer]


def _inside(node: exp.Expr, other: exp.Expr) -> bool:
    above = node.parent
    while above is not None:
        if above is other:
            return True
        above = above.parent
    return False


def reads(tree: exp.Expr) -> frozenset[tuple[str, str]]:
    """The (dataset, column) pairs that an expanded expression reads; the rows of a dataset count as `*`."""
    return frozenset((node.table, node.name) for node in tree.find_all(exp.Column))
