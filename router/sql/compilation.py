"""One compilation: a form, the caller's part of the catalogue, and what has been named and read on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.catalog import Catalog, DatasetField
from router.errors import Refused
from router.sql.branch import Branch, Names
from router.sql.expressions import not_found
from router.sql.form import Form, Order, Ref, preds_of
from router.sql.paths import Graph
from router.sql.predicates import Scope, lower_pred


@dataclass(frozen=True, slots=True)
class Compiled:
    """One SELECT. `columns` are the names of its columns, `reads` the (dataset, column) pairs that it touches."""

    sql: str
    columns: tuple[str, ...]
    reads: frozenset[tuple[str, str]]


@dataclass(slots=True)
class Plan:
    """`start` is the form's dataset as the catalogue spells it; `min_group` the least rows of a group, by dataset."""

    form: Form
    catalog: Catalog
    graph: Graph
    start: str
    min_group: dict[str, int]
    names: Names = field(default_factory=Names)
    reads: set[tuple[str, str]] = field(default_factory=set)

    def field_of(self, ref: Ref) -> DatasetField:
        """The field that a reference names. A metric's name in its place is an aggregate where none can be."""
        dataset = self.catalog.dataset(ref.dataset)
        found = dataset.field(ref.field) if dataset else None
        if found is not None:
            return found
        if self.catalog.metric(ref.field) is not None:
            raise Refused(
                "E_AGGREGATE_IN_SCALAR_QUERY",
                f"`{ref.field}` is an aggregate, which a row does not have",
                "put it into `measures`",
            )
        raise not_found(str(ref), "field")

    def where_of(self, branch: Branch) -> str:
        scope = Scope(branch, self.start, self.min_group)
        found = [lower_pred(pred, scope) for pred in preds_of(self.form)]
        return f"WHERE {' AND '.join(found)}" if found else ""

    def limit_text(self) -> str:
        return "" if self.form.limit is None else f"LIMIT {self.form.limit}"

    def compiled(self, parts: list[str], columns: list[str]) -> Compiled:
        return Compiled(" ".join(part for part in parts if part), tuple(columns), frozenset(self.reads))


def direction(order: Order) -> str:
    """Missing values are highest unless the form says otherwise, and it is always written out."""
    nulls = order.nulls or ("first" if order.descending else "last")
    return f"{'DESC' if order.descending else 'ASC'} NULLS {nulls.upper()}"
