"""From a form to one DuckDB SELECT over governed names. What comes out is a draft like any other: the gate has the last word.

A form asks for rows as they are (here) or for measures of groups (`groups.py`). The semantics are those of the Ossie Foundation
draft; `deploy/ossie.md` says of each of its test vectors whether it passes, is refused, or does not apply.

INVARIANT: the same form over the same catalogue is the same text (tests/sql/form/test_compile.py::test_text_is_stable).
INVARIANT: everything bound in the form stands in the text (tests/sql/form/test_compile.py::test_everything_bound_is_in_the_text).
"""

from __future__ import annotations

from collections.abc import Mapping

from router.catalog import Catalog
from router.errors import Refused
from router.sql.branch import Branch, Names, quoted, text_of
from router.sql.compilation import Compiled, Plan, direction
from router.sql.expressions import not_found
from router.sql.form import By, Form
from router.sql.groups import lower_groups
from router.sql.paths import build_graph
from router.sql.predicates import field_text, refuse_small


def lower_form(form: Form, catalog: Catalog, *, min_group: Mapping[str, int] | None = None) -> Compiled:
    """The form's SELECT, or `Refused`. The catalogue must be the caller's part of it: what it lacks does not exist."""
    if form.show and (form.measures or form.by):
        raise Refused(
            "E_MIXED_QUERY_SHAPE",
            "`show` (the Fields of a scalar query) stands beside `by` (Dimensions) or `measures`",
            "show rows or measure groups, not both",
        )
    if not (form.show or form.measures or form.by):
        raise Refused(
            "E_EMPTY_AGGREGATION_QUERY",
            "the query is empty: it has neither Dimensions (`by`) nor Measures",
            "give at least one of them",
        )
    dataset = catalog.dataset(form.dataset)
    if dataset is None:
        raise not_found(form.dataset, "dataset")
    plan = Plan(form, catalog, build_graph(catalog), dataset.name, dict(min_group or {}))
    return _rows(plan) if form.show else lower_groups(plan)


def _rows(plan: Plan) -> Compiled:
    """A scalar query: the rows of one dataset, each once, with what is known of each."""
    form = plan.form
    if form.having:
        raise Refused("E_AGGREGATE_IN_SCALAR_QUERY", "`having` speaks of groups, and a scalar query has none", "use `where`")
    branch = Branch(plan.catalog, plan.graph, plan.names, plan.reads, plan.start, rows_only=True)
    columns = Names()
    shown = [(field_text(branch, ref, "row"), columns.fresh(plan.field_of(ref).name)) for ref in form.show]
    where = plan.where_of(branch)
    order = _order(plan, branch, [text for text, _ in shown])
    refuse_small(branch, plan.min_group)
    listed = ", ".join(f"{text} AS {quoted(name)}" for text, name in shown)
    parts = [f"SELECT {'DISTINCT ' if form.distinct else ''}{listed}", branch.sources(), where, order, plan.limit_text()]
    return plan.compiled(parts, [name for _, name in shown])


def _order(plan: Plan, branch: Branch, shown: list[str]) -> str:
    """What was asked for, then the key, so that equal rows keep their order and a cut is always the same cut."""
    form = plan.form
    wanted: dict[str, str] = {}
    for order in form.order:
        if not isinstance(order.by, By) or order.by.grain:
            raise Refused(
                "E_AGGREGATE_IN_SCALAR_QUERY",
                "a scalar query is ordered by something that its rows do not have",
                "order by a field",
            )
        text = field_text(branch, order.by.ref, "row")
        if form.distinct and text not in shown:
            raise Refused("form_order", "different rows are ordered by a field that is not shown", "show the field, too")
        wanted.setdefault(text, direction(order))
    if wanted or form.limit is not None:
        dataset = plan.catalog.dataset(plan.start)
        key = dataset.primary_key if dataset else ()
        by_key = [text_of(branch.column_of(branch.base, name)) for name in key] if key and not form.distinct else shown
        for text in by_key:
            wanted.setdefault(text, "ASC NULLS LAST")
    return f"ORDER BY {', '.join(f'{text} {way}' for text, way in wanted.items())}" if wanted else ""
