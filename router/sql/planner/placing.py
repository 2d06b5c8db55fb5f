"""Where conditions go: on the base, on what the base points at, or into a sub-query over rows of which it may have many.

INVARIANT: a negation over many rows is "none", and only where it was said so (tests/sql/planner/test_plan_refusals.py::test_refusal).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import cast

from router.sql.form import (
    AgainstAll,
    AnyOf,
    Compare,
    Compared,
    Exists,
    Op,
    Pred,
    Ref,
    Scalar,
    TimeRange,
    Value,
)
from router.sql.planner.dates import Period
from router.sql.planner.draft import Cond, Relation, Stop
from router.sql.planner.index import FieldKey
from router.sql.planner.shaping import Both, Placed, Shape, flatten, follow_way, key_at, key_fields, nearest_key
from router.sql.planner.units import refuse_unit
from router.sql.planner.words import AVERSE_VERBS, PLAIN_EVENTS

_FLIP: dict[str, Op] = {
    "=": "<>",
    "<>": "=",
    ">": "<=",
    "<": ">=",
    ">=": "<",
    "<=": ">",
    "in": "not_in",
    "contains": "not_contains",
    "is_null": "not_null",
    "not_null": "is_null",
}
_TIMELY = frozenset("since after before until till in during on prior later earlier by".split())
"""What is said of times and not of amounts: "an amount since 2014" is no number."""
_PER_EXISTS = 0.08
_PER_NOT = 0.1


def place_conditions(shape: Shape) -> None:
    conds = shape.draft.conds
    at = 0
    while at < len(conds):
        run = [conds[at]]
        while at + len(run) < len(conds) and conds[at + len(run)].joined:
            run.append(conds[at + len(run)])
        at += len(run)
        placed = [_pred(shape, cond) for cond in run]
        if len(run) == 1:
            _place(shape, run[0], *placed[0])
            continue
        if any(cond.negated for cond in run):
            raise Stop("planner_negation", tuple(cond.words for cond in run), "`or` beside a negation is not understood")
        owners = {owner for owner, _ in placed}
        if len(owners) > 1 or any(cond.all_of for cond in run):
            raise Stop("planner_or", tuple(cond.words for cond in run), "`or` between different datasets is not understood")
        _place(shape, run[0], owners.pop(), AnyOf(tuple(_whole(run, pred) for _, pred in placed)))


def _whole(run: list[Cond], pred: Placed) -> Pred:
    """One condition of an OR; a period of two bounds is none."""
    if isinstance(pred, Both):
        raise Stop("planner_or", tuple(cond.words for cond in run), "`or` between periods is not understood")
    return pred


def _place(shape: Shape, cond: Cond, owner: str, pred: Placed) -> None:
    shape.used.add(owner)
    if cond.period is not None:
        _refuse_second_period(shape, cond, pred)
    if owner == shape.base or _single(shape, owner):
        if owner != shape.base:
            follow_way(shape, owner)
        if cond.all_of:
            raise Stop("planner_both", (cond.words,), f"one `{shape.base}` cannot be both: is one of the two meant?")
        if (
            cond.period is not None
            and shape.time is None
            and not cond.joined
            and len(cond.years) < 2
            and (span := _time_range(cond.period, pred))
        ):
            shape.time = span
            return
        shape.where.append(pred)
        return
    if cond.never and isinstance(pred, Compare) and pred.op in ("<>", "not_in"):
        _known_subject(shape, cond.words)
        shape.several.append(Exists(owner, (replace(pred, op="=" if pred.op == "<>" else "in"),), negated=True))
        shape.penalty += _PER_EXISTS
        return
    if cond.negated:
        raise Stop("planner_negation", (cond.words,), f"`{cond.words}` negated may mean none or not only")
    if cond.all_of:
        assert isinstance(pred, Compare)
        for value in pred.values:
            shape.several.append(Exists(owner, (Compare(pred.ref, "=", (value,)),)))
        shape.penalty += _PER_EXISTS
        return
    shape.inside.setdefault(owner, []).append(pred)


def _refuse_second_period(shape: Shape, cond: Cond, pred: Placed) -> None:
    """ "The last two weeks of 2025", "this year and last year": two periods of one time are no range, but "after … and before …" is."""
    first = pred.preds[0] if isinstance(pred, Both) else pred
    period = cond.period
    if not isinstance(first, Compare) or period is None:
        return
    for other in shape.periods.setdefault(first.ref, []):
        if (other.start is None) == (period.start is None) or (other.end is None) == (period.end is None):
            raise Stop(
                "planner_two_periods",
                (other.said, period.said),
                f"how `{other.said}` and `{period.said}` go together is not certain",
            )
    shape.periods[first.ref].append(period)


def _time_range(period: Period, pred: Placed) -> TimeRange | None:
    """The period as the form has it, where it is of dates."""
    first = pred.preds[0] if isinstance(pred, Both) else pred
    if not isinstance(first, Compare) or not isinstance(first.values[0].value, date):
        return None
    return TimeRange(first.ref, period.start, period.end, period.said)


def _single(shape: Shape, owner: str) -> bool:
    return owner in shape.index.to_one(shape.base)


def _pred(shape: Shape, cond: Cond) -> tuple[str, Placed]:
    if cond.period is not None:
        return _period(shape, cond)
    key = key_at(shape, cond.slot) if cond.slot is not None else shape.chosen[cond].key
    if cond.op in ("=", "in", "<>", "not_in") and key[0] in shape.index.to_one(shape.base):
        key = nearest_key(shape, key)
    ref, info = Ref(*key), shape.index.info[key]
    if cond.negated and cond.op not in _FLIP and cond.op != "between":
        raise Stop("planner_negation", (cond.words,), f"`{cond.words}` negated is not understood")
    op = _FLIP.get(cond.op, cond.op) if cond.negated else cond.op
    if cond.against is not None:
        if not info.numeric or info.key:
            raise Stop("planner_mean_of_text", (cond.words,), f"`{info.name}` is not a number")
        return key[0], AgainstAll(ref, cast(Compared, op), cond.against)
    if op in ("is_null", "not_null"):
        return key[0], Compare(ref, op)
    values: list[Value] = []
    said_key = key_at(shape, cond.slot) if cond.slot is not None else shape.chosen[cond].key
    for at, (literal, said) in enumerate(cond.literals):
        stored = cond.stored[at] if cond.stored else None
        if stored and said_key not in stored and said_key in shape.index.valued and isinstance(literal, str):
            stored = {said_key: _elsewhere(cond, stored, said_key)}
        values.append(_value(shape, said_key, op, literal, said, stored))
    if op == "between" and cond.negated:
        return key[0], AnyOf((Compare(ref, "<", (values[0],)), Compare(ref, ">", (values[1],))))
    if cond.all_of and cond.op == "in" and not cond.negated and len(values) > 1:
        return key[0], Compare(ref, "in", tuple(values))
    return key[0], Compare(ref, op, tuple(values))


def _elsewhere(cond: Cond, stored: dict[FieldKey, str], key: FieldKey) -> str:
    """The spelling of a value that no row of the named field has, in another field of that name; a text of something else is refused."""
    meaning = cond.slot.meaning if cond.slot is not None else None
    for (dataset, name), spelled in stored.items():
        if meaning is not None and name in meaning.fields.get(dataset, {}):
            return spelled
    raise Stop("planner_value", (cond.words,), f"no `{key[1]}` is `{cond.literals[0][1]}`")


def _value(shape: Shape, key: FieldKey, op: Op, literal: Scalar, said: str, stored: dict[FieldKey, str] | None) -> Value:
    info = shape.index.info[key]
    refuse_unit(shape.index, key, literal, shape.draft.units, said)
    if op in ("contains", "starts", "ends", "not_contains"):
        return Value(str(literal), said, "question")
    if stored is not None and key in stored:
        return Value(stored[key], said, "index")
    if isinstance(literal, bool):
        return Value(literal, said, "question")
    if isinstance(literal, str):
        if info.numeric:
            raise Stop("planner_value", (said,), f"`{info.name}` is a number and `{said}` is not")
        if info.time:
            try:
                return Value(date.fromisoformat(literal), said, "question")
            except ValueError:
                raise Stop("planner_value", (said,), f"`{info.name}` is a date and `{said}` is not") from None
        if info.datatype == "Boolean":
            raise Stop("planner_value", (said,), f"`{info.name}` is true or false")
        shape.penalty = max(shape.penalty, 0.05)
        return Value(literal, said, "question")
    if isinstance(literal, bool) and info.datatype == "Boolean":
        return Value(literal, said, "question")
    if info.time or info.datatype == "Boolean":
        raise Stop("planner_value", (said,), f"`{info.name}` is not compared with a number")
    if info.datatype == "String":
        if op in (">", "<", ">=", "<=", "between"):
            raise Stop("planner_value", (said,), f"`{info.name}` is text and is not compared with a number")
        return Value(said.replace(",", ""), said, "question")
    return Value(literal, said, "question")


def _period(shape: Shape, cond: Cond) -> tuple[str, Placed]:
    """A period on a time field is a range; on a field of years it is compared with the years."""
    period = cond.period
    assert period is not None
    if cond.slot is not None:
        key = key_at(shape, cond.slot)
    else:
        key = _period_key(shape, cond)
    info, ref = shape.index.info[key], Ref(*key)
    shape.used.add(key[0])
    if len(cond.years) > 1:
        return _years(shape, cond, key)
    if info.time:
        if cond.negated:
            raise Stop("planner_negation", (cond.words,), "a negated period is not understood")
        span: list[Pred] = []
        if period.start is not None:
            span.append(Compare(ref, ">=", (Value(period.start, period.said, "question"),)))
        if period.end is not None:
            span.append(Compare(ref, "<", (Value(period.end, period.said, "question"),)))
        return key[0], span[0] if len(span) == 1 else Both(tuple(span))
    years = period.years
    if years is None or not (info.numeric or info.datatype in (None, "String")) or (not info.year and cond.slot is None):
        raise Stop("planner_no_time", (cond.words,), f"`{info.name}` is not a time")
    low, high = years
    if not info.year and period.said.split()[0].lower() in _TIMELY:
        raise Stop("planner_no_time", (cond.words,), f"`{info.name}` is not a time")
    if info.datatype == "String" and not (period.bare or info.year):
        raise Stop("planner_no_time", (cond.words,), f"`{info.name}` is text, not a time")

    def value(year: int) -> Value:
        return Value(str(year) if info.datatype == "String" else year, period.said, "question")

    if low is not None and high is not None:
        pred = Compare(ref, "=", (value(low),)) if low == high else Compare(ref, "between", (value(low), value(high)))
    elif low is not None:
        pred = (
            Compare(ref, ">", (value(low - 1),)) if period.said.lower().startswith("after") else Compare(ref, ">=", (value(low),))
        )
    else:
        assert high is not None
        pred = (
            Compare(ref, "<", (value(high + 1),))
            if period.said.lower().startswith(("before", "prior"))
            else Compare(ref, "<=", (value(high),))
        )
    if cond.negated:
        if pred.op != "=":
            raise Stop("planner_negation", (cond.words,), "a negated period is not understood")
        pred = Compare(ref, "<>", pred.values)
    return key[0], pred


def _years(shape: Shape, cond: Cond, key: FieldKey) -> tuple[str, Placed]:
    """Several years: a list of them, or one range where they follow each other."""
    info, ref, years = shape.index.info[key], Ref(*key), sorted(set(cond.years))
    if info.time:
        if cond.all_of or cond.negated or years[-1] - years[0] != len(years) - 1:
            raise Stop("planner_or", (cond.words,), "several years that do not follow each other are not understood")
        start, end = date(years[0], 1, 1), date(years[-1] + 1, 1, 1)
        first, last = (Value(day, cond.words, "question") for day in (start, end))
        return key[0], Both((Compare(ref, ">=", (first,)), Compare(ref, "<", (last,))))
    if not info.year and cond.slot is None:
        raise Stop("planner_no_time", (cond.words,), f"`{info.name}` is not a time")
    values = tuple(Value(str(year) if info.datatype == "String" else year, str(year), "question") for year in cond.years)
    return key[0], Compare(ref, "not_in" if cond.negated else "in", values)


def _period_key(shape: Shape, cond: Cond) -> FieldKey:
    """The time field of what is nearest before the period; two without a default are refused."""
    period = cond.period
    assert period is not None
    if shape.draft.stock:
        raise Stop("planner_no_time", (cond.words,), f"what is in stock is so now, and not `{cond.words}`")
    told = shape.chosen[cond.after].key[0] if cond.after is not None and cond.after in shape.chosen else None
    for owner in dict.fromkeys(name for name in (told, cond.near, shape.base) if name):
        times = shape.index.times.get(owner, ())
        years = (
            tuple(one.name for one in shape.index.declared[owner].fields if shape.index.info[owner, one.name].year)
            if period.years is not None
            else ()
        )
        found = tuple(dict.fromkeys((*times, *years)))
        if times and shape.index.declared[owner].time:
            found = times
        if len(found) == 1:
            shape.penalty = max(shape.penalty, 0.05)
            _same_event(shape, cond, (owner, found[0]))
            return owner, found[0]
        if len(found) > 1:
            listed = " or ".join(f"`{owner}.{name}`" for name in found[:3])
            raise Stop("planner_ambiguous", (cond.words,), f"`{cond.words}` may be of {listed}")
    raise Stop("planner_no_time", (cond.words,), f"what `{cond.words}` is about is not known")


def _same_event(shape: Shape, cond: Cond, key: FieldKey) -> None:
    """A default time is not taken for something else that was done: "closed in May" where only the report has a date."""
    if not cond.event or cond.event in PLAIN_EVENTS or key in shape.index.events.get(cond.event, {}):
        return
    fields = shape.index.declared[key[0]].fields
    several = sum(1 for one in fields if shape.index.info[key[0], one.name].time) > 1
    # `hired_on` is when nobody left; what a value says became of a row is told by the only day that there is
    says_which = cond.after is None and any(key in keys for keys in shape.index.events.values())
    if several or says_which or cond.event in AVERSE_VERBS:
        raise Stop("planner_no_time", (cond.event, cond.words), f"when something was `{cond.event}` is not stored")


def place_relations(shape: Shape) -> None:
    """What is said of related rows: merged by dataset; one that only names the base, or what is joined anyway, says no more."""
    by_name: dict[str, Relation] = {}
    for relation in shape.draft.relations:
        known = by_name.get(relation.dataset)
        if known is not None and not (known.plain or relation.plain):
            raise Stop(
                "planner_two_relations", (relation.words,), f"two things are said of how many `{relation.words}` there are"
            )
        if known is None or known.plain:
            by_name[relation.dataset] = relation
    for name, relation in by_name.items():
        if name == shape.base:
            _own(shape, relation)
        elif relation.plain and (name in shape.joined or name in shape.inside or name in shape.used or _pointed_at(shape, name)):
            shape.used.add(name)
        else:
            _related(shape, relation)


def _pointed_at(shape: Shape, name: str) -> bool:
    """Whether a condition is on the very field that points at rows of `name`."""
    keys = key_fields(shape.index, name)
    fields = [choice.key for item, choice in shape.chosen.items() if isinstance(item, Cond)]
    return len(keys) == 1 and any(shape.index.pointing(key[0], (name, keys[0])) == key[1] for key in fields)


def _own(shape: Shape, relation: Relation) -> None:
    if relation.plain:
        shape.used.add(shape.base)
        return
    raise Stop("planner_own_rows", (relation.words,), f"`{relation.words}` speaks of the rows that are asked for")


def _related(shape: Shape, relation: Relation) -> None:
    name = relation.dataset
    inner: tuple[Pred, ...] = tuple(flatten(shape.inside.pop(name, [])))
    inner = (*inner, *(Exists(other) for other in relation.inner))
    shape.used |= set(relation.inner)
    if relation.count is not None and name in shape.index.to_one(shape.base):
        raise Stop("planner_one_only", (relation.words,), f"one `{shape.base}` has at most one `{name}`")
    for other in list(shape.inside):
        if name in shape.index.to_one(other):
            continue
        if other in shape.index.to_one(name):
            if relation.negated:
                raise Stop("planner_negation", (relation.words,), f"of which `{other}` there are no `{name}` is not certain")
            inner = (*inner, *flatten(shape.inside.pop(other)))
    if relation.negated and relation.count is not None:
        shape.penalty += _PER_NOT
    if relation.negated:
        _known_subject(shape, relation.words)
        shape.penalty += _PER_NOT
    shape.penalty += _PER_EXISTS
    shape.used.add(name)
    if relation.count and relation.count[0] in ("<", "<="):
        shape.notes.append(f"none counts as fewer than {relation.count[1]}")
    shape.several.append(Exists(name, inner, relation.count, relation.negated))
    if relation.upper is not None:
        shape.several.append(Exists(name, inner, ("<=", relation.upper)))


def _known_subject(shape: Shape, words: str) -> None:
    """What has none of something must be a row that was named, not a field of one."""
    if shape.base not in shape.draft.mentioned:
        raise Stop("planner_negation", (words,), f"none of `{words}`: whose rows are meant is not certain")


def place_inside(shape: Shape) -> tuple[Pred, ...]:
    """The conditions on rows of which there may be many, each dataset's together."""
    shape.penalty += _PER_EXISTS * len(shape.inside)
    return tuple(Exists(name, tuple(flatten(preds))) for name, preds in shape.inside.items())
