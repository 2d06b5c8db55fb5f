"""A form in words, as the person who asked reads it: what will be counted, where, by what, in which order.

The reading is made of the form and of nothing else, so that it cannot say more or less than what is compiled.

INVARIANT: every name and value bound in the form stands in the reading (tests/sql/form/test_reading.py::test_nothing_bound_is_left_out).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime

from router.sql.form import (
    STAR,
    AgainstAll,
    Aggregated,
    AnyOf,
    Compare,
    Dim,
    Exists,
    Form,
    Label,
    Measure,
    Named,
    Order,
    Pred,
    Ref,
    TimeRange,
    Value,
)

_AGGREGATES = {
    "count": "number of", "count_distinct": "number of different", "sum": "sum of", "avg": "average of", "min": "least", "max": "greatest",
    "median": "median of",
}  # fmt: skip
_NUMBERS = {"=": "is", "<>": "is not", ">": "is more than", ">=": "is at least", "<": "is less than", "<=": "is at most"}
_DATES = {"=": "is", "<>": "is not", ">": "is after", ">=": "is from", "<": "is before", "<=": "is until"}
_TEXTS = {"contains": "contains", "not_contains": "does not contain", "starts": "starts with", "ends": "ends with"}
_COUNTS = {"=": "exactly", "<>": "not exactly", ">": "more than", ">=": "at least", "<": "fewer than", "<=": "at most"}


_BOLD = "\x00"
"""Stands for the marks of bold type until the end: no value can hold it, so none can set type."""


def read_form(form: Form, bold: str = "**") -> str:
    """One sentence, what is bound between marks of bold type. Texts stand in quotes, so that no value reads like a condition."""
    return _read(form).replace(_BOLD, bold)


def _read(form: Form) -> str:
    home = form.dataset
    if form.show:
        shown = _listed(_ref(ref, home) for ref in form.show)
        parts = [f"I list {'the different values of ' if form.distinct else ''}{shown} of {_BOLD}{_words(home)}{_BOLD}"]
    elif form.measures:
        parts = [f"I {_measures(form.measures, home)}"]
    else:
        parts = [f"I list each {_listed((_dim(dim, home) for dim in form.by), ' and each ')} of {_BOLD}{_words(home)}{_BOLD}"]
    if form.measures and form.by:
        parts.append(f"for each {_listed((_dim(dim, home) for dim in form.by), ' and each ')}")
    conditions = [_pred(pred, home) for pred in form.where] + ([_time(form.time, home)] if form.time else [])
    if conditions:
        parts.append(f"where {_listed(conditions, ' and ')}")
    more = [" ".join(parts)]
    if form.having:
        kept = (f"{_measure(one.measure, home)} {_BOLD}{_compared(one.op, one.value)}{_BOLD}" for one in form.having)
        more.append(f"keeping groups where the {_listed(kept, ' and the ')}")
    if form.order:
        more.append(f"ordered by {_listed(_order(order, home) for order in form.order)}")
    if form.limit is not None:
        more.append(f"only the first {_BOLD}{form.limit}{_BOLD}")
    return " ".join([", ".join(more), *(f"({note})" for note in form.notes)])


def _words(name: str) -> str:
    return name.replace("_", " ")


def _ref(ref: Ref, home: str) -> str:
    return f"{_BOLD}{_plain(ref, home)}{_BOLD}"


def _plain(ref: Ref, home: str) -> str:
    owner = "" if ref.dataset in ("", home) and not ref.via else f" of {_words(ref.dataset)}"
    return f"{_words(ref.field)}{owner}{_through(ref.via)}"


def _through(via: tuple[str, ...]) -> str:
    return f" (through {', '.join(_words(name) for name in via)})" if via else ""


def _measures(measures: tuple[Measure, ...], home: str) -> str:
    rows = [one for one in measures if isinstance(one, Aggregated) and one.of.field == STAR]
    if len(measures) == len(rows) == 1:
        return f"count {_BOLD}{_words(rows[0].of.dataset)}{_BOLD}"
    return f"compute the {_listed((_measure(one, home) for one in measures), ' and the ')}"


def _measure(measure: Measure, home: str) -> str:
    if isinstance(measure, Named):
        return f"{_BOLD}{_words(measure.metric)}{_BOLD}"
    if measure.of.field == STAR:
        return f"{_BOLD}number of {_words(measure.of.dataset)}{_BOLD}"
    return f"{_BOLD}{_AGGREGATES[measure.agg]} {_plain(measure.of, home)}{_BOLD}"


def _dim(dim: Dim, home: str) -> str:
    if isinstance(dim, Label):
        return f"{_BOLD}one of {_words(dim.dataset)}{_BOLD}{_through(dim.via)}"
    return f"{_BOLD}{dim.grain} of {_plain(dim.ref, home)}{_BOLD}" if dim.grain else _ref(dim.ref, home)


def _order(order: Order, home: str) -> str:
    by = _measure(order.by, home) if isinstance(order.by, Named | Aggregated) else _dim(order.by, home)
    return f"{by}{', highest first' if order.descending else ''}{f', missing ones {order.nulls}' if order.nulls else ''}"


def _pred(pred: Pred, home: str) -> str:
    match pred:
        case AnyOf(preds):
            return f"({_listed((_pred(one, home) for one in preds), ' or ')})"
        case AgainstAll():
            against = f"{_AGGREGATES[pred.agg]} {_plain(pred.ref, home)} over all"
            return f"{_BOLD}{_plain(pred.ref, home)} {_NUMBERS[pred.op]} the {against}{_BOLD}"
        case Exists():
            return _exists(pred)
        case Compare():
            return f"{_BOLD}{_plain(pred.ref, home)} {_compare(pred)}{_BOLD}{_said(pred.values)}"


def _compare(pred: Compare) -> str:
    values = pred.values
    if pred.op == "is_null":
        return "is missing"
    if pred.op == "not_null":
        return "is not missing"
    if pred.op == "between":
        return f"is between {_value(values[0])} and {_value(values[1])}"
    if pred.op in ("in", "not_in"):
        return f"is {'none' if pred.op == 'not_in' else 'one'} of {', '.join(_value(value) for value in values)}"
    if pred.op in _TEXTS:
        return f"{_TEXTS[pred.op]} {_value(values[0])}"
    return _compared(pred.op, values[0])


def _exists(pred: Exists) -> str:
    rows = f"{_BOLD}{_words(pred.dataset)}{_BOLD}{_through(pred.via)}"
    where = f" where {_listed((_pred(one, pred.dataset) for one in pred.where), ' and ')}" if pred.where else ""
    if pred.count is not None:
        op, number = pred.count
        none = " (none counts, too)" if op in ("<", "<=", "<>") or number == 0 else ""
        return f"there are {'not ' if pred.negated else ''}{_BOLD}{_COUNTS[op]} {number}{_BOLD} {rows}{none}{where}"
    return f"there {'is no' if pred.negated else 'is a'} row of {rows}{where}"


def _time(span: TimeRange, home: str) -> str:
    bounds = [] if span.start is None else [f"from {_moment(span.start)}"]
    bounds += [] if span.end is None else [f"before {_moment(span.end)}"]
    return f"{_BOLD}{_plain(span.ref, home)} {' and '.join(bounds)}{_BOLD}{f' ({_quoted(span.said)})' if span.said else ''}"


def _compared(op: str, value: Value) -> str:
    return f"{(_DATES if isinstance(value.value, date) else _NUMBERS)[op]} {_value(value)}"


def _value(value: Value) -> str:
    plain = value.value
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, str):
        return f'"{_quoted(plain)}"' if plain else "empty"
    return _moment(plain) if isinstance(plain, date) else str(plain)


def _quoted(text: str) -> str:
    """As in the readings of filters: what would end the quotes is escaped."""
    return text.replace("\x00", "").replace("\\", "\\\\").replace('"', '\\"')


def _moment(moment: date | datetime) -> str:
    return moment.isoformat(sep=" ") if isinstance(moment, datetime) else moment.isoformat()


def _said(values: tuple[Value, ...]) -> str:
    """The question's words, where they are others than the stored spelling."""
    told = [_quoted(value.said) for value in values if value.said and value.said.lower() != str(value.value).lower()]
    return f" ({', '.join(told)})" if told else ""


def _listed(parts: Iterable[str], between: str = ", ") -> str:
    return between.join(parts)
