"""The semantic form: what a question asks of the catalogue, typed, before there is any SQL.

Tools, metrics, planner and model drafts all end in a `Form`; `reading.py` says it in words, `compile.py` makes one SELECT of it.
A form names granted things only and holds values, never text of SQL. Where it cannot say something, there is no such form:
the codes of refusals are those of the Ossie Foundation draft where it has one (`E_…`), else `form_…`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Literal

Grain = Literal["day", "week", "month", "quarter", "year"]
Aggregate = Literal["count", "count_distinct", "sum", "avg", "min", "max", "median"]
Compared = Literal["=", "<>", ">", ">=", "<", "<="]
Op = Literal[
    "=",
    "<>",
    ">",
    ">=",
    "<",
    "<=",
    "between",
    "in",
    "not_in",
    "contains",
    "not_contains",
    "starts",
    "ends",
    "is_null",
    "not_null",
]
STAR = "*"
"""Field name that stands for the rows of a dataset, in a count of them."""

Scalar = str | int | float | bool | Decimal | date | datetime


@dataclass(frozen=True, slots=True)
class Ref:
    """A field as `dataset.field`. `via` names relationships that the way to it must take, where there is more than one way.

    `field` is `*` only in a count of rows."""

    dataset: str
    field: str
    via: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.dataset}.{self.field}"


@dataclass(frozen=True, slots=True)
class Value:
    """One literal in the spelling in which it is stored. `said` are the question's words for it, `origin` where it was found."""

    value: Scalar
    said: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """A metric of the catalogue."""

    metric: str


@dataclass(frozen=True, slots=True)
class Aggregated:
    """An aggregate over one field, or over the rows of one dataset (`count` of `dataset.*`)."""

    agg: Aggregate
    of: Ref


Measure = Named | Aggregated


@dataclass(frozen=True, slots=True)
class By:
    """One field to group by; a time field may be cut to a grain."""

    ref: Ref
    grain: Grain | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """Grouping by the rows of a dataset themselves: the field by which people know them, and the key beside it."""

    dataset: str
    via: tuple[str, ...] = ()


Dim = By | Label


@dataclass(frozen=True, slots=True)
class Compare:
    """A field against literals: one value, two for `between`, any number for `in`, none for `is_null`."""

    ref: Ref
    op: Op
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class AgainstAll:
    """A field against an aggregate of the same field over all rows the caller may see: "above the average"."""

    ref: Ref
    op: Compared
    agg: Aggregate


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One level of OR."""

    preds: tuple[Pred, ...]


@dataclass(frozen=True, slots=True)
class Exists:
    """Rows of `from` that have (or, negated, have not) rows of another dataset, or this many of them; zero counts."""

    dataset: str
    where: tuple[Pred, ...] = ()
    count: tuple[Compared, int] | None = None
    negated: bool = False
    via: tuple[str, ...] = ()


Pred = Compare | AgainstAll | AnyOf | Exists


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Half open: from `start` on, before `end`. `said` are the question's words."""

    ref: Ref
    start: date | datetime | None = None
    end: date | datetime | None = None
    said: str = ""


@dataclass(frozen=True, slots=True)
class Having:
    """A measure of a group against a number or a date."""

    measure: Measure
    op: Compared
    value: Value


@dataclass(frozen=True, slots=True)
class Order:
    """By a field, a group or a measure. Without `nulls`, missing values count as the highest, as the Foundation draft has it."""

    by: Dim | Named | Aggregated
    descending: bool = False
    nulls: Literal["first", "last"] | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """Which words of the question stand for what in the form."""

    words: str
    bound: str


@dataclass(frozen=True, slots=True)
class Form:
    """One question. Either `show` (rows as they are) or `measures` and `by` (groups), never both.

    `dataset` is where rows come from for `show`, what `has` is anchored to, and what `count(*)` without a dataset counts."""

    dataset: str
    show: tuple[Ref, ...] = ()
    measures: tuple[Measure, ...] = ()
    by: tuple[Dim, ...] = ()
    where: tuple[Pred, ...] = ()
    time: TimeRange | None = None
    having: tuple[Having, ...] = ()
    order: tuple[Order, ...] = ()
    limit: int | None = None
    distinct: bool = False
    confidence: float = 1.0
    explained: tuple[Explained, ...] = ()
    notes: tuple[str, ...] = ()


def preds_of(form: Form) -> tuple[Pred, ...]:
    """The conditions with the period among them."""
    if form.time is None:
        return form.where
    start, end, said = form.time.start, form.time.end, form.time.said
    span: list[Pred] = []
    if start is not None:
        span.append(Compare(form.time.ref, ">=", (Value(start, said),)))
    if end is not None:
        span.append(Compare(form.time.ref, "<", (Value(end, said),)))
    return (*form.where, *span)
