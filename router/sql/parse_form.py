"""A form from JSON and back: what a model, a tool or a file says becomes typed here or is refused with a code.

A name without a dataset is kept as it is: only a metric can be called so, and the compiler says what it is where it may not stand.

INVARIANT: a form read back from its JSON is the same form (tests/sql/form/test_parse.py::test_json_and_back).
INVARIANT: unknown keys, wrong types and endless lists are refused with a code, whatever is sent
(tests/sql/form/test_parse.py::test_bad_input_is_refused_with_a_code, ::test_any_json_is_a_form_or_a_refusal).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, TypeVar, get_args

from router.errors import Refused
from router.sql.form import (
    STAR,
    AgainstAll,
    Aggregate,
    Aggregated,
    AnyOf,
    By,
    Compare,
    Compared,
    Dim,
    Exists,
    Explained,
    Form,
    Grain,
    Having,
    Label,
    Measure,
    Named,
    Op,
    Order,
    Pred,
    Ref,
    Scalar,
    TimeRange,
    Value,
)

MAX_LIST = 64
MAX_VALUES = 1_000
MAX_NAME = 128
MAX_TEXT = 1_000
MAX_DEPTH = 2
"""Levels of `has` inside `has`."""

Json = Any
T = TypeVar("T")

_FORM_KEYS = frozenset("from show measures by where time having order limit distinct confidence explained notes".split())
_DEFERRED_KEYS = frozenset({"grouping_sets", "pivot", "natural_grain", "filter_context", "parameters"})
_AGGREGATED_KEYS = frozenset({"agg", "of", "metric", "measure"})


def parse_form(data: Json) -> Form:
    """A form from JSON text or from what such text holds. Raises `Refused` for everything that is no form."""
    if isinstance(data, str | bytes):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise _invalid("form", "is not JSON") from error
    if deferred := sorted(_mapping(data, "form").keys() & _DEFERRED_KEYS):
        raise Refused("E_DEFERRED_KEY_REJECTED", f"`{deferred[0]}` is deferred by the Foundation draft (§10)", "ask without it")
    body = _object(data, "form", _FORM_KEYS)
    dataset = _name(body.get("from"), "from")
    if body.get("show") == [] and not body.get("measures") and not body.get("by"):
        raise Refused("E_EMPTY_SCALAR_QUERY", "`show` (the Fields of a scalar query) is empty", "name at least one field")
    time = body.get("time")
    return Form(
        dataset,
        show=_each(body, "show", parse_ref),
        measures=_each(body, "measures", lambda one, at: _measure(one, at, dataset)),
        by=_each(body, "by", _dim),
        where=_each(body, "where", lambda one, at: _pred(one, at, 0)),
        time=None if time is None else _time(time, "time"),
        having=_each(body, "having", lambda one, at: _having(one, at, dataset)),
        order=_each(body, "order", lambda one, at: _order(one, at, dataset)),
        limit=None if body.get("limit") is None else _integer(body["limit"], "limit", 1, 1_000_000),
        distinct=_boolean(body.get("distinct", False), "distinct"),
        confidence=_confidence(body.get("confidence", 1.0)),
        explained=_each(body, "explained", _explained),
        notes=_each(body, "notes", _text),
    )


# --- parts ----------------------------------------------------------------------------------------------------------------


def parse_ref(data: Json, at: str) -> Ref:
    """`dataset.field`, or an object with `field` and `via`."""
    if isinstance(data, str):
        dataset, dot, field = _name(data, at, 2 * MAX_NAME + 1).partition(".")
        return Ref(dataset, _name(field, at)) if dot else Ref("", dataset)
    body = _object(data, at, {"field", "via"})
    plain = parse_ref(_string(body.get("field"), f"{at}.field"), f"{at}.field")
    return Ref(plain.dataset, plain.field, _via(body, at))


def _via(body: Mapping[str, Json], at: str) -> tuple[str, ...]:
    via = body.get("via", [])
    return (_name(via, f"{at}.via"),) if isinstance(via, str) else _list(via, f"{at}.via", _name)


def _measure(data: Json, at: str, dataset: str) -> Measure:
    if isinstance(data, str):
        return Named(_name(data, at, 2 * MAX_NAME + 1))
    if isinstance(data, Mapping) and "metric" in data:
        return Named(_name(_object(data, at, {"metric"})["metric"], f"{at}.metric"))
    body = _object(data, at, {"agg", "of"})
    of = body.get("of")
    ref = Ref(dataset, STAR) if of == STAR else parse_ref(_string(of, f"{at}.of"), f"{at}.of")
    return Aggregated(_choice(body.get("agg"), f"{at}.agg", Aggregate), ref)


def _dim(data: Json, at: str) -> Dim:
    if isinstance(data, Mapping) and "label" in data:
        body = _object(data, at, {"label", "via"})
        return Label(_name(body["label"], f"{at}.label"), _via(body, at))
    if isinstance(data, Mapping) and "grain" in data:
        body = _object(data, at, {"field", "via", "grain"})
        ref = parse_ref({key: body[key] for key in ("field", "via") if key in body}, at)
        return By(ref, None if body["grain"] is None else _choice(body["grain"], f"{at}.grain", Grain))
    return By(parse_ref(data, at))


def _pred(data: Json, at: str, depth: int) -> Pred:
    """One condition on rows; what speaks of groups is refused with the draft's code for it."""
    body = _mapping(data, at)
    if "any" in body:
        return _any(_object(body, at, {"any"})["any"], f"{at}.any", depth)
    if "has" in body:
        return _exists(_object(body, at, {"has", "where", "count", "not", "via"}), at, depth)
    if "window" in body:
        raise Refused(
            "E_WINDOW_IN_WHERE", "a window stands in Where", "make it a field, or wrap it in a subquery (Qualify has no form)"
        )
    if _AGGREGATED_KEYS & body.keys():
        raise Refused("E_AGGREGATE_IN_WHERE", "an aggregate stands in Where", "move it to Having")
    _object(body, at, {"field", "via", "op", "value"})
    ref = parse_ref({key: body[key] for key in ("field", "via") if key in body}, at)
    value = body.get("value")
    if isinstance(value, Mapping) and "agg" in value:
        return _against(_object(value, f"{at}.value", {"agg", "of"}), ref, body, at)
    op: Op = _choice(body.get("op"), f"{at}.op", Op)
    if op in ("is_null", "not_null"):
        if value is not None:
            raise _invalid(f"{at}.value", f"has no place beside `{op}`")
        return Compare(ref, op)
    listed = op in ("in", "not_in", "between")
    values = _list(value, f"{at}.value", _value, MAX_VALUES) if listed else (_value(value, f"{at}.value"),)
    if not values or (op == "between" and len(values) != 2):
        raise _invalid(f"{at}.value", "has the wrong number of values")
    return Compare(ref, op, values)


def _any(data: Json, at: str, depth: int) -> AnyOf:
    parts = [one for one in data if isinstance(one, Mapping)] if isinstance(data, list) else []
    grouped = [bool(_AGGREGATED_KEYS & one.keys()) for one in parts]
    if any(grouped) and not all(grouped):
        raise _mixed()
    if any("any" in one for one in parts):
        raise _invalid(at, "holds another `any`")
    preds = _list(data, at, lambda one, place: _pred(one, place, depth))
    if not preds:
        raise _invalid(at, "is empty")
    return AnyOf(preds)


def _exists(body: Mapping[str, Json], at: str, depth: int) -> Exists:
    if depth >= MAX_DEPTH:
        raise _invalid(at, f"stands more than {MAX_DEPTH} levels deep")
    count = None
    if body.get("count") is not None:
        part = _object(body["count"], f"{at}.count", {"op", "n"})
        op: Compared = _choice(part.get("op"), f"{at}.count.op", Compared)
        count = (op, _integer(part.get("n"), f"{at}.count.n", 0, 2**31 - 1))
    where = _list(body.get("where", []), f"{at}.where", lambda one, place: _pred(one, place, depth + 1))
    negated = _boolean(body.get("not", False), f"{at}.not")
    return Exists(_name(body["has"], f"{at}.has"), where, count, negated, _via(body, at))


def _against(value: Mapping[str, Json], ref: Ref, body: Mapping[str, Json], at: str) -> AgainstAll:
    if "of" in value and parse_ref(value["of"], f"{at}.value.of") != Ref(ref.dataset, ref.field):
        raise _invalid(f"{at}.value.of", "is another field than the one compared")
    op: Compared = _choice(body.get("op"), f"{at}.op", Compared)
    return AgainstAll(ref, op, _choice(value["agg"], f"{at}.value.agg", Aggregate))


def _having(data: Json, at: str, dataset: str) -> Having:
    body = _mapping(data, at)
    for key in ("any", "all"):
        parts = [one for one in body[key] if isinstance(one, Mapping)] if isinstance(body.get(key), list) else []
        grouped = [bool(_AGGREGATED_KEYS & one.keys()) for one in parts]
        if any(grouped) and not all(grouped):
            raise _mixed()
        if parts and not any(grouped):
            raise _row_in_having()
    if "field" in body:
        raise _row_in_having()
    op: Compared = _choice(body.get("op"), f"{at}.op", Compared)
    named = {key: body[key] for key in body if key not in ("op", "value")}
    measure = _measure(_object(named, at, {"measure"})["measure"] if "measure" in named else named, at, dataset)
    return Having(measure, op, _value(body.get("value"), f"{at}.value"))


def _order(data: Json, at: str, dataset: str) -> Order:
    body = _object(data, at, {"by", "dir", "nulls"})
    by, place = body.get("by"), f"{at}.by"
    measured = (isinstance(by, str) and "." not in by) or (isinstance(by, Mapping) and bool({"agg", "metric"} & by.keys()))
    direction = body.get("dir", "asc")
    if direction not in ("asc", "desc") or body.get("nulls") not in (None, "first", "last"):
        raise _invalid(at, "has a direction that is neither `asc` nor `desc`, or `nulls` that are neither `first` nor `last`")
    return Order(_measure(by, place, dataset) if measured else _dim(by, place), direction == "desc", body.get("nulls"))


def _time(data: Json, at: str) -> TimeRange:
    body = _object(data, at, {"field", "via", "from", "to", "said"})
    ref = parse_ref({key: body[key] for key in ("field", "via") if key in body}, at)
    start, end = (None if body.get(key) is None else _moment(body[key], f"{at}.{key}") for key in ("from", "to"))
    if start is None and end is None:
        raise _invalid(at, "has neither `from` nor `to`")
    if start is not None and end is not None and _instant(start) >= _instant(end):
        raise _invalid(at, "ends before it begins")
    return TimeRange(ref, start, end, _text(body.get("said", ""), f"{at}.said"))


def _explained(data: Json, at: str) -> Explained:
    body = _object(data, at, {"words", "as"})
    return Explained(_text(body.get("words"), f"{at}.words"), _text(body.get("as"), f"{at}.as"))


# --- values ---------------------------------------------------------------------------------------------------------------


def _value(data: Json, at: str) -> Value:
    """A literal; an object where it is a date, a decimal, or where its origin is told."""
    if isinstance(data, Mapping):
        body = _object(data, at, {"value", "date", "timestamp", "decimal", "said", "origin"})
        found = [key for key in ("value", "date", "timestamp", "decimal") if key in body]
        if len(found) != 1:
            raise _invalid(at, "must hold exactly one of `value`, `date`, `timestamp` and `decimal`")
        said, origin = (_text(body.get(key, ""), f"{at}.{key}") for key in ("said", "origin"))
        return Value(_special(found[0], body[found[0]], at), said, origin)
    return Value(_special("value", data, at))


def _special(kind: str, data: Json, at: str) -> Scalar:
    if kind in ("date", "timestamp"):
        found = _moment(data, at)
        if isinstance(found, datetime) != (kind == "timestamp"):
            raise _invalid(at, f"is no {kind}")
        return found
    if kind == "decimal":
        try:
            number = Decimal(_string(data, at))
        except InvalidOperation as error:
            raise _invalid(at, "is no decimal") from error
        if not number.is_finite() or abs(number.adjusted()) > 38:
            raise _invalid(at, "is no decimal that a column can hold")
        return number
    if isinstance(data, str):
        return _text(data, at)
    if isinstance(data, bool):
        return data
    if isinstance(data, int) and abs(data) < 2**63:
        return data
    if isinstance(data, float) and isfinite(data):
        return data
    raise _invalid(at, "is no value")


def _moment(data: Json, at: str) -> date | datetime:
    text = _string(data, at)
    try:
        return date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
    except ValueError as error:
        raise _invalid(at, "is no date in ISO 8601") from error


def _instant(moment: date | datetime) -> datetime:
    whole = moment if isinstance(moment, datetime) else datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001
    return whole.replace(tzinfo=None)


def _confidence(data: Json) -> float:
    if isinstance(data, bool) or not isinstance(data, int | float) or not 0 <= data <= 1:
        raise _invalid("confidence", "is no number from 0 to 1")
    return float(data)


def _integer(data: Json, at: str, least: int, most: int) -> int:
    if isinstance(data, bool) or not isinstance(data, int) or not least <= data <= most:
        raise _invalid(at, f"is no whole number from {least} to {most}")
    return data


def _boolean(data: Json, at: str) -> bool:
    if not isinstance(data, bool):
        raise _invalid(at, "is neither true nor false")
    return data


def _string(data: Json, at: str) -> str:
    if not isinstance(data, str):
        raise _invalid(at, "is no text")
    return data


def _text(data: Json, at: str) -> str:
    text = _string(data, at)
    if len(text) > MAX_TEXT or any(ord(char) < 32 or 0xD800 <= ord(char) < 0xE000 for char in text):
        raise _invalid(at, f"is longer than {MAX_TEXT} characters or holds control characters")
    return text


def _name(data: Json, at: str, most: int = MAX_NAME) -> str:
    text = _text(data, at)
    if not text or len(text) > most:
        raise _invalid(at, "is no name")
    return text


def _choice(data: Json, at: str, options: Any) -> Any:
    if data not in get_args(options) or not isinstance(data, str):
        raise _invalid(at, f"is none of {', '.join(get_args(options))}")
    return data


def _each(body: Mapping[str, Json], key: str, parse: Callable[[Json, str], T]) -> tuple[T, ...]:
    return _list(body.get(key, []), key, parse)


def _list(data: Json, at: str, parse: Callable[[Json, str], T], most: int = MAX_LIST) -> tuple[T, ...]:
    if not isinstance(data, Sequence) or isinstance(data, str | bytes) or len(data) > most:
        raise _invalid(at, f"is no list of at most {most}")
    return tuple(parse(one, f"{at}[{number}]") for number, one in enumerate(data))


def _mapping(data: Json, at: str) -> Mapping[str, Json]:
    if not isinstance(data, Mapping):
        raise _invalid(at, "is no object")
    return data


def _object(data: Json, at: str, keys: frozenset[str] | set[str]) -> Mapping[str, Json]:
    body = _mapping(data, at)
    if unknown := sorted(str(key)[:MAX_NAME] for key in body.keys() - keys):
        raise _invalid(at, f"has the unknown key `{unknown[0]}`")
    return body


def _invalid(at: str, what: str) -> Refused:
    return Refused("form_invalid", f"`{at}` {what}", "see the keys of the semantic form")


def _mixed() -> Refused:
    return Refused(
        "E_MIXED_PREDICATE_LEVEL",
        "one condition mixes row-level terms with an aggregate",
        "split it: `where` for rows, `having` for groups",
    )


def _row_in_having() -> Refused:
    return Refused("E_NON_AGGREGATE_IN_HAVING", "a condition on rows stands in Having", "move it to Where")


# --- and back -------------------------------------------------------------------------------------------------------------


def form_json(form: Form) -> dict[str, Json]:
    """The form as JSON, without what is at its default."""
    body: dict[str, Json] = {
        "from": form.dataset,
        "show": [_ref_json(ref) for ref in form.show],
        "measures": [_measure_json(measure) for measure in form.measures],
        "by": [_dim_json(dim) for dim in form.by],
        "where": [_pred_json(pred) for pred in form.where],
        "having": [{"measure": _measure_json(one.measure), "op": one.op, "value": _value_json(one.value)} for one in form.having],
        "order": [_order_json(order) for order in form.order],
        "limit": form.limit,
        "distinct": form.distinct,
        "explained": [{"words": one.words, "as": one.bound} for one in form.explained],
        "notes": list(form.notes),
    }
    if form.time is not None:
        bounds = {"from": form.time.start, "to": form.time.end}
        body["time"] = _ref_object(form.time.ref) | {key: bound.isoformat() for key, bound in bounds.items() if bound is not None}
        body["time"] |= {"said": form.time.said} if form.time.said else {}
    kept = {key: value for key, value in body.items() if value not in ([], None, False)}
    return kept | {"confidence": form.confidence}


def _ref_json(ref: Ref) -> Json:
    return _ref_object(ref) if ref.via else _dotted(ref)


def _dotted(ref: Ref) -> str:
    return str(ref) if ref.dataset else ref.field


def _ref_object(ref: Ref) -> dict[str, Json]:
    return {"field": _dotted(ref)} | ({"via": list(ref.via)} if ref.via else {})


def _measure_json(measure: Measure) -> Json:
    return {"metric": measure.metric} if isinstance(measure, Named) else {"agg": measure.agg, "of": _dotted(measure.of)}


def _dim_json(dim: Dim) -> Json:
    if isinstance(dim, Label):
        return {"label": dim.dataset} | ({"via": list(dim.via)} if dim.via else {})
    return _ref_object(dim.ref) | {"grain": dim.grain} if dim.grain else _ref_json(dim.ref)


def _order_json(order: Order) -> Json:
    by = _measure_json(order.by) if isinstance(order.by, Named | Aggregated) else _dim_json(order.by)
    plain = {"by": by} | ({"dir": "desc"} if order.descending else {})
    return plain | ({"nulls": order.nulls} if order.nulls else {})


def _pred_json(pred: Pred) -> Json:
    match pred:
        case AnyOf(preds):
            return {"any": [_pred_json(one) for one in preds]}
        case AgainstAll():
            return _ref_object(pred.ref) | {"op": pred.op, "value": {"agg": pred.agg, "of": _dotted(pred.ref)}}
        case Exists():
            body: dict[str, Json] = {"has": pred.dataset, "where": [_pred_json(one) for one in pred.where], "not": pred.negated}
            body |= {"via": list(pred.via), "count": None if pred.count is None else {"op": pred.count[0], "n": pred.count[1]}}
            return {key: value for key, value in body.items() if value not in ([], None, False)}
        case Compare():
            values = [_value_json(value) for value in pred.values]
            body = _ref_object(pred.ref) | {"op": pred.op}
            if pred.op in ("in", "not_in", "between"):
                return body | {"value": values}
            return body | ({"value": values[0]} if values else {})


def _value_json(value: Value) -> Json:
    plain = value.value
    told = {key: text for key, text in (("said", value.said), ("origin", value.origin)) if text}
    if isinstance(plain, datetime):
        return {"timestamp": plain.isoformat()} | told
    if isinstance(plain, date):
        return {"date": plain.isoformat()} | told
    if isinstance(plain, Decimal):
        return {"decimal": str(plain)} | told
    return {"value": plain} | told if told else plain
