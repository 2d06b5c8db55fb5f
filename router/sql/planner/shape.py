"""From settled names to a form: where rows come from, what is a condition and what a sub-query, and what cannot be said.

The base of a form is what its measures are of, else what all shown fields follow from. Conditions on rows of which the base has
many become `has`; nothing is summed over one-to-many.

INVARIANT: whatever is bound ends up in the form (tests/sql/planner/test_plan_invariants.py::test_everything_bound_is_in_the_sql).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date
from typing import cast

from router.sql.form import (
    STAR,
    AgainstAll,
    Aggregated,
    AnyOf,
    By,
    Compare,
    Compared,
    Dim,
    Exists,
    Explained,
    Form,
    Having,
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
from router.sql.planner.dates import Period
from router.sql.planner.draft import Ask, Cond, Draft, Relation, Slot, Stop
from router.sql.planner.draft import Having as Wanted
from router.sql.planner.index import FieldKey, Index
from router.sql.planner.resolve import Choice, Item, resolve
from router.sql.planner.words import PLAIN_EVENTS

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
_PER_JOIN, _PER_VERB, _PER_EXISTS, _PER_NOT, _PER_TOP = 0.06, 0.05, 0.08, 0.1, 0.05


@dataclass(frozen=True, slots=True)
class _Both:
    """Two conditions that stand or fall together, until they are placed."""

    preds: tuple[Pred, ...]


_Placed = Pred | _Both


@dataclass(slots=True)
class _Shape:
    """One form in the making."""

    draft: Draft
    index: Index
    chosen: dict[Item, Choice]
    base: str = ""
    joined: set[str] = field(default_factory=set)
    where: list[_Placed] = field(default_factory=list)
    inside: dict[str, list[_Placed]] = field(default_factory=dict)
    several: list[Exists] = field(default_factory=list)
    time: TimeRange | None = None
    notes: list[str] = field(default_factory=list)
    penalty: float = 0.0
    labelled: bool = False
    used: set[str] = field(default_factory=set)


def shape_form(draft: Draft, index: Index) -> Form:
    """The form that a draft asks for, or `Stop`."""
    _check(draft)
    chosen = resolve(draft, index)
    shape = _Shape(draft, index, chosen)
    _labels(shape)
    _refuse_flags(shape)
    _numbers(shape)
    _count_groups(shape)
    shape.base = _base(shape)
    _count_pointers(shape)
    measures, by, show, order, having = _selected(shape)
    _conditions(shape)
    _relations(shape)
    where = (*_flat(shape.where), *shape.several, *_exists(shape))
    _all_used(shape)
    form = Form(
        shape.base, show, measures, by, where, shape.time, having, order, draft.limit,
        distinct=bool(show) and draft.distinct and not order,
    )  # fmt: skip
    return _finished(form, shape)


def _check(draft: Draft) -> None:
    if not (draft.shows or draft.asks or draft.head or draft.everything or draft.groups):
        raise Stop("planner_nothing_asked", (), "what is asked for is not understood")
    if draft.limit is not None and not draft.sorts:
        raise Stop("planner_top", (), "the first rows are asked for, but not by which order")
    if sum(1 for sort in draft.sorts if sort.superlative) and len(draft.sorts) > 1:
        raise Stop("planner_two_orders", (), "there are two orders")
    if draft.each and draft.limit is not None and draft.limit == 1 and draft.groups and not draft.asks:
        raise Stop("planner_best_per_group", (), "the best of each group is not understood")
    if draft.each and any(sort.superlative for sort in draft.sorts) and draft.asks:
        raise Stop("planner_best_per_group", (), "the best of each group is not understood")


# --- base -----------------------------------------------------------------------------------------------------------------


def _key(shape: _Shape, slot: Slot) -> FieldKey:
    return shape.chosen[slot].key


def _labels(shape: _Shape) -> None:
    """Where only a dataset is asked for, its label is shown."""
    draft, index = shape.draft, shape.index
    if draft.labelled and draft.head and index.labels[draft.head]:
        for name in reversed(index.labels[draft.head]):
            slot = Slot(draft.head, None, 0, tie=draft.head)
            draft.shows.insert(0, slot)
            shape.chosen[slot] = Choice((draft.head, name), 1.0, 0.0)
    if draft.shows or draft.asks or draft.everything:
        return
    head = draft.head or next((group.dataset for group in draft.groups if group.dataset), None)
    if head is None:
        return
    if (
        draft.groups
        and all(group.grain or group.slot is not None for group in draft.groups)
        and not draft.sorts
        and not draft.having
    ):
        draft.asks.append(Ask("count", dataset=head, words=head))
        shape.penalty += 0.1
        return
    dataset = index.declared[head]
    names = [*index.labels[head], *_key_fields(index, head)]
    if not names:
        raise Stop("planner_no_label", (head,), f"what of `{head}` is to be shown is not said")
    shape.penalty += 0.0 if dataset.label else 0.12 if index.labels[head] else 0.2
    shape.labelled = True
    for name in dict.fromkeys(names):
        slot = Slot(head, None, 0, tie=head)
        draft.shows.append(slot)
        shape.chosen[slot] = Choice((head, name), 1.0, 0.0)


def _key_fields(index: Index, dataset: str) -> list[str]:
    """The fields that are the primary key as it stands."""
    declared = index.declared[dataset]
    by_column = {one.expression.strip('"').lower(): one.name for one in declared.fields}
    keys = [by_column.get(column.lower()) for column in declared.primary_key]
    return [name for name in keys if name] if all(keys) else []


def _base(shape: _Shape) -> str:
    draft, index = shape.draft, shape.index
    homes = [_home(shape, ask) for ask in _asks(shape)]
    asked = list(dict.fromkeys(home for home in homes if home is not None))
    if len(asked) > 1:
        raise Stop(
            "planner_two_facts", tuple(asked), f"measures of `{asked[0]}` and `{asked[1]}` in one answer are not understood"
        )
    if asked:
        return asked[0]
    if any(ask.metric for ask in _asks(shape)):
        return _metric_home(shape)
    shown = [_key(shape, slot)[0] for slot in draft.shows]
    sorted_by = [_key(shape, sort.slot)[0] for sort in draft.sorts if sort.slot is not None]
    owners: list[str] = list(dict.fromkeys([*shown, *sorted_by, *((draft.head,) if draft.everything and draft.head else ())]))
    if draft.head and owners != [draft.head] and all(index.to_one(draft.head).get(owner, (0, 2))[1] == 1 for owner in owners):
        return draft.head
    if len(owners) == 1:
        return owners[0]
    return _common(shape, owners)


def _common(shape: _Shape, owners: list[str]) -> str:
    """The nearest dataset from which all of them follow: one of them, one that is mentioned, or a bridge between them."""
    index = shape.index

    def reaches(name: str) -> int | None:
        found = index.to_one(name)
        if any(owner not in found or found[owner][1] > 1 for owner in owners):
            return None
        return max(found[owner][0] for owner in owners)

    for pool in (owners, list(shape.draft.mentioned)):
        fits = [name for name in pool if reaches(name) is not None]
        if len(set(fits)) == 1:
            return fits[0]
        if fits:
            return sorted(fits, key=lambda name: (reaches(name) or 0, name))[0]
    bridges = {step.there for owner in owners for step in index.graph[owner] if not step.to_one}
    fits = sorted(name for name in bridges if (reaches(name) or 9) <= 2)
    if len(fits) == 1:
        shape.penalty += 0.1
        return fits[0]
    named = " and ".join(f"`{name}`" for name in owners[:2])
    raise Stop("planner_no_base", tuple(owners), f"how {named} stand in one row is not certain")


def _asks(shape: _Shape) -> list[Ask]:
    draft = shape.draft
    return [*draft.asks, *(one.ask for one in draft.sorts if one.ask), *(one.ask for one in draft.having)]


def _home(shape: _Shape, ask: Ask) -> str | None:
    if ask.pointer is not None:
        return ask.pointer[0]
    if ask.dataset is not None:
        return ask.dataset
    return _key(shape, ask.slot)[0] if ask.slot is not None else None


def _metric_home(shape: _Shape) -> str:
    """The dataset that the metrics are over: the one from which all others that they read follow."""
    names = [ask.metric for ask in _asks(shape) if ask.metric]
    tables = sorted({table for name in names for table in shape.index.metric_tables[name]})
    fits: list[str] = [one for one in tables if all(other in shape.index.to_one(one) for other in tables)]
    if not fits:
        raise Stop("planner_two_facts", tuple(names), "the metric is of two things at once")
    return fits[0]


def _numbers(shape: _Shape) -> None:
    """ "By number of products", where that number is stored: the field itself, and no count of different ones."""
    for sort in shape.draft.sorts:
        slot = sort.ask.slot if sort.ask is not None and sort.ask.agg == "count_distinct" and not sort.ask.distinct else None
        if slot is not None and (info := shape.index.info[_key(shape, slot)]).numeric and not info.key:
            sort.ask, sort.slot = None, slot


def _count_groups(shape: _Shape) -> None:
    """ "Cities with more than one employee": a number of the very rows whose field is shown speaks of groups of them."""
    draft = shape.draft
    owners = {_key(shape, slot)[0] for slot in draft.shows}
    if len(owners) != 1 or draft.asks or any(sort.slot is not None for sort in draft.sorts):
        return
    owner = owners.pop()
    keys, labels = _key_fields(shape.index, owner), shape.index.labels[owner]
    shown = {_key(shape, slot)[1] for slot in draft.shows}
    own = set(keys) <= shown if len(keys) > 1 else shown & {*keys, *labels}
    if (own and keys) or draft.head == owner:
        return
    for relation in [one for one in draft.relations if one.count is not None and not one.negated and one.upper is None]:
        ask = Ask("count", dataset=relation.dataset, words=relation.words)
        elsewhere = [
            other
            for slot in draft.shows
            for other in (slot.meaning.fields if slot.meaning is not None and slot.tie is None else ())
            if other != owner and other in shape.index.to_one(owner) and not _same(shape, slot, other)
        ]
        if elsewhere and relation.dataset == owner:
            names = f"`{owner}` or of `{elsewhere[0]}`"
            raise Stop("planner_ambiguous", (draft.shows[0].words,), f"`{draft.shows[0].words}` may be of {names}")
        if relation.dataset != owner:
            ask.pointer = _pointer(shape, owner, relation.dataset)
            if ask.pointer is None:
                continue
            shape.used.add(relation.dataset)
        draft.relations.remove(relation)
        assert relation.count is not None
        draft.having.append(Wanted(ask, *relation.count, relation.words))


def _same(shape: _Shape, slot: Slot, other: str) -> bool:
    """Whether the field that the slot may mean over there is the one that its own points at."""
    mine = _key(shape, slot)
    return slot.meaning is not None and any(shape.index.linked(mine, (other, name)) for name in slot.meaning.fields[other])


def _pointer(shape: _Shape, owner: str, goal: str) -> FieldKey | None:
    """The field of `owner` that holds the key of its one row of `goal`."""
    keys = _key_fields(shape.index, goal)
    if len(keys) != 1 or shape.index.to_one(owner).get(goal) != (1, 1):
        return None
    found = shape.index.pointing(owner, (goal, keys[0]))
    return (owner, found) if found else None


def _count_pointers(shape: _Shape) -> None:
    """ "Languages by number of countries", where each language row has one country: the countries that are pointed at are counted."""
    index, draft = shape.index, shape.draft
    owners = {_key(shape, slot)[0] for slot in draft.shows} | {_key(shape, g.slot)[0] for g in draft.groups if g.slot is not None}
    owners |= {group.dataset for group in draft.groups if group.dataset}
    if len(owners) != 1 or shape.base in owners:
        return
    owner = owners.pop()
    counts = [ask for ask in _asks(shape) if ask.dataset == shape.base]
    if owner in index.to_one(shape.base) or len(counts) != len(_asks(shape)):
        return
    pointer = _pointer(shape, owner, shape.base)
    if pointer is None:
        return
    for ask in counts:
        ask.pointer = pointer
    shape.used.add(shape.base)
    shape.base = owner


# --- what is selected -----------------------------------------------------------------------------------------------------


def _selected(
    shape: _Shape,
) -> tuple[tuple[Measure, ...], tuple[Dim, ...], tuple[Ref, ...], tuple[Order, ...], tuple[Having, ...]]:
    draft = shape.draft
    _count_orders(shape)
    measures = tuple(
        dict.fromkeys(_measure(shape, ask) for ask in (*draft.asks, *(sort.ask for sort in draft.sorts if sort.ask is not None)))
    )
    having = tuple(Having(_measure(shape, one.ask), one.op, Value(one.value, str(one.value), "question")) for one in draft.having)
    ranked = [sort.ask for sort in draft.sorts if sort.ask is not None]
    grouped = bool(measures or having or ranked or any(group.grain for group in draft.groups))
    common = next((sort for sort in draft.sorts if sort.common), None)
    if common is not None:
        grouped = True
    by: tuple[Dim, ...] = ()
    show: tuple[Ref, ...] = ()
    if grouped:
        by = _dims(shape)
        if (having or ranked or common) and not by:
            raise Stop("planner_no_group", (), "which groups are meant is not said")
        if draft.shows and any(ask.agg in ("min", "max") for ask in draft.asks) and not draft.each:
            raise Stop(
                "planner_beside_extreme", (draft.shows[0].words,), "a field beside a least or greatest value is not understood"
            )
    else:
        if draft.groups and not draft.shows:
            raise Stop(
                "planner_no_measure", tuple(one.words for one in draft.groups), "what is measured of each group is not said"
            )
        show = tuple(dict.fromkeys(_ref(shape, _key(shape, slot)) for slot in draft.shows))
        if draft.everything:
            owner = draft.head or shape.base
            show = tuple(dict.fromkeys((*show, *(Ref(owner, one.name) for one in shape.index.declared[owner].fields))))
            shape.used.add(owner)
        if shape.labelled:
            show = tuple(dict.fromkeys((*show, *(Ref(*_key(shape, sort.slot)) for sort in draft.sorts if sort.slot is not None))))
        for group in draft.groups:
            _each_row(shape, group.dataset, group.slot)
    order = tuple(_order(shape, by, show, sort_at) for sort_at in range(len(draft.sorts)))
    if not order:
        order = tuple(Order(dim) for dim in by if isinstance(dim, By) and dim.grain)
    return measures, by, show, order, having


def _each_row(shape: _Shape, dataset: str | None, slot: Slot | None) -> None:
    """ "of each DS" without a measure: every row of the base, if it is of that."""
    if slot is not None or dataset != shape.base:
        words = slot.words if slot is not None else dataset or ""
        raise Stop("planner_no_measure", (words,), "what is measured of each group is not said")
    shape.used.add(shape.base)


def _count_orders(shape: _Shape) -> None:
    """Counts of the shown dataset's own relatives in order and having; a count of groups needs the groups' key."""
    for sort in shape.draft.sorts:
        if sort.common and shape.draft.shows:
            owner = _key(shape, shape.draft.shows[-1])[0]
            if shape.base != owner or shape.draft.relations:
                raise Stop("planner_no_base", (owner,), "what is most common is not certain")
            sort.ask = Ask("count", dataset=owner, words=sort.words)


def _nearest(shape: _Shape, key: FieldKey) -> FieldKey:
    """A key of another dataset is taken from the row that points at it: the same value, and one join less."""
    if key[0] == shape.base or not shape.index.info[key].key:
        return key
    here = shape.index.before(shape.base, key[0])
    found = shape.index.pointing(here, key) if here else None
    if found is None or here is None:
        return key
    shape.used.add(key[0])
    return _nearest(shape, (here, found))


def _ref(shape: _Shape, key: FieldKey) -> Ref:
    key = _nearest(shape, key)
    if key[0] != shape.base:
        _follow(shape, key[0])
    shape.used.add(key[0])
    return Ref(*key)


def _follow(shape: _Shape, dataset: str) -> None:
    found = shape.index.to_one(shape.base).get(dataset)
    if found is not None:
        if found[1] > 1:
            raise Stop("planner_two_ways", (dataset,), f"`{dataset}` is reached from `{shape.base}` in two ways")
        shape.joined |= shape.index.on_the_way(shape.base, dataset)


def _measure(shape: _Shape, ask: Ask) -> Measure:
    if ask.metric is not None:
        return Named(ask.metric)
    if ask.pointer is not None:
        return Aggregated("count_distinct", Ref(*ask.pointer))
    if ask.slot is None:
        shape.used.add(ask.dataset or "")
        return Aggregated("count", Ref(ask.dataset or "", STAR))
    key = _key(shape, ask.slot)
    info = shape.index.info[key]
    if ask.agg in ("sum", "avg", "median"):
        if not info.numeric:
            raise Stop("planner_mean_of_text", (ask.words,), f"`{info.name}` is not a number")
        if info.key or (info.year and ask.agg == "sum"):
            raise Stop("planner_sum_of_key", (ask.words,), f"`{info.name}` is a key, and the {ask.agg} of keys says nothing")
    if ask.agg == "count_distinct" and info.numeric and not info.key and not (info.year and ask.distinct):
        raise Stop("planner_count_of_number", (ask.words,), f"whether `{info.name}` is counted or summed is not certain")
    if ask.agg in ("min", "max") and (info.datatype == "String" or info.words[-1:] == ("rank",)):
        raise Stop("planner_extreme_of_text", (ask.words,), f"the {ask.agg} of `{info.name}` is not certain")
    shape.used.add(key[0])
    return Aggregated(ask.agg, Ref(*key))


def _dims(shape: _Shape) -> tuple[Dim, ...]:
    """Groups that were named, and all fields shown beside a measure; entities get their key."""
    draft, index = shape.draft, shape.index
    dims: dict[Dim, None] = {}
    entities: dict[str, None] = {}
    for slot in draft.shows:
        key = _key(shape, slot)
        own = key[1] in (*index.labels[key[0]], *_key_fields(index, key[0])[:1])
        if (
            key[0] == shape.base
            and own
            and any(ask.dataset == shape.base and ask.pointer is None for ask in _asks(shape))
            and not draft.groups
        ):
            raise Stop("planner_no_group", (slot.words,), f"each `{key[0]}` is one row of what is counted")
        dims.setdefault(By(_grouped(shape, key)))
        if key[0] != shape.base and key[1] in index.labels[key[0]]:
            entities.setdefault(key[0])
    for group in draft.groups:
        if group.grain is not None:
            dims.setdefault(By(_time_ref(shape, group.slot), group.grain))
        elif group.dataset is not None:
            entities.setdefault(group.dataset)
            shape.used.add(group.dataset)
        elif group.slot is not None:
            dims.setdefault(By(_grouped(shape, _key(shape, group.slot))))
    if not dims and not entities and not draft.asks and draft.head and draft.head != shape.base:
        entities.setdefault(draft.head)
        shape.used.add(draft.head)
    for name in entities:
        if name == shape.base and draft.asks:
            raise Stop("planner_no_group", (name,), f"each `{name}` is one row of what is counted")
        if not any(isinstance(dim, By) and dim.ref.dataset == name for dim in dims):
            for label in index.labels[name]:
                dims.setdefault(By(_grouped(shape, (name, label))))
        keys = _key_fields(index, name)
        if not keys and not dims:
            raise Stop("planner_no_label", (name,), f"rows of `{name}` cannot be told apart")
        if keys and name not in index.to_one(shape.base):
            shape.where.append(Compare(Ref(name, keys[0]), "not_null"))
        for key_name in keys:
            dims.setdefault(By(_grouped(shape, (name, key_name))))
    return tuple(dims)


def _refuse_flags(shape: _Shape) -> None:
    """A yes or no is nothing to show or count, unless it is called by its own name."""
    asks = [ask.slot for ask in _asks(shape) if ask.slot is not None]
    for slot in (*shape.draft.shows, *asks):
        info = shape.index.info[_key(shape, slot)]
        flag = info.datatype == "Boolean" or info.words[:1] in (("is",), ("has",))
        if flag and slot.meaning is not None and slot.meaning is not shape.index.phrases.get(info.words):
            raise Stop("planner_flag", (slot.words,), f"`{info.name}` says yes or no")


def _grouped(shape: _Shape, key: FieldKey) -> Ref:
    """A field to group by."""
    key = _nearest(shape, key)
    if key[0] != shape.base:
        _follow(shape, key[0])
    shape.used.add(key[0])
    return Ref(*key)


def _time_ref(shape: _Shape, slot: Slot | None, near: str | None = None) -> Ref:
    if slot is not None:
        key = _key(shape, slot)
        if not shape.index.info[key].time:
            raise Stop("planner_no_time", (slot.words,), f"`{slot.words}` is not a time")
        return _ref(shape, key)
    for owner in dict.fromkeys((near or shape.base, shape.base)):
        names = shape.index.times.get(owner, ())
        if len(names) == 1:
            shape.used.add(owner)
            return Ref(owner, names[0])
        if len(names) > 1:
            listed = " or ".join(f"`{owner}.{name}`" for name in names[:3])
            raise Stop("planner_ambiguous", (), f"the time meant may be {listed}")
    raise Stop("planner_no_time", (), f"`{shape.base}` has no time field to cut by")


def _order(shape: _Shape, by: tuple[Dim, ...], show: tuple[Ref, ...], at: int) -> Order:
    sort = shape.draft.sorts[at]
    if sort.superlative:
        shape.penalty += _PER_TOP
    if sort.ask is not None:
        return Order(_measure(shape, sort.ask), sort.descending)
    if sort.first_shown or sort.slot is None:
        if by:
            return Order(by[0], sort.descending)
        return Order(By(show[0]), sort.descending)
    choice = shape.chosen[sort.slot]
    descending = choice.descending if sort.slot.wanted else sort.descending
    info = shape.index.info[choice.key]
    if (
        sort.superlative
        and not sort.slot.wanted
        and (info.words[-1:] in (("rank",), ("ranking",), ("position",)) or (info.datatype == "String"))
    ):
        raise Stop("planner_extreme_of_text", (sort.words,), f"which end of `{info.name}` is meant is not certain")
    ref = Ref(*choice.key)
    if by:
        shape.used.add(choice.key[0])
        for dim in (By(ref), By(Ref(*_nearest(shape, choice.key)))):
            if dim in by:
                return Order(dim, descending)
        raise Stop("planner_order", (sort.words,), f"groups are not ordered by `{info.name}`")
    if choice.key[0] != shape.base:
        if sort.superlative and sort.slot.near != shape.base:
            raise Stop("planner_nested", (sort.words,), f"the extreme of `{choice.key[0]}` is not understood as a condition")
        _ref(shape, choice.key)
    shape.used.add(choice.key[0])
    nulls = None if not sort.superlative else "last"
    return Order(By(ref), descending, nulls)  # type: ignore[arg-type]


# --- conditions -----------------------------------------------------------------------------------------------------------


def _conditions(shape: _Shape) -> None:
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
        owners = {owner for owner, _ in placed}
        if len(owners) > 1 or any(cond.all_of for cond in run):
            raise Stop("planner_or", tuple(cond.words for cond in run), "`or` between different datasets is not understood")
        _place(shape, run[0], owners.pop(), AnyOf(tuple(_whole(run, pred) for _, pred in placed)))


def _whole(run: list[Cond], pred: _Placed) -> Pred:
    """One condition of an OR; a period of two bounds is none."""
    if isinstance(pred, _Both):
        raise Stop("planner_or", tuple(cond.words for cond in run), "`or` between periods is not understood")
    return pred


def _place(shape: _Shape, cond: Cond, owner: str, pred: _Placed) -> None:
    shape.used.add(owner)
    if owner == shape.base or _single(shape, owner):
        if owner != shape.base:
            _follow(shape, owner)
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


def _time_range(period: Period, pred: _Placed) -> TimeRange | None:
    """The period as the form has it, where it is of dates."""
    first = pred.preds[0] if isinstance(pred, _Both) else pred
    if not isinstance(first, Compare) or not isinstance(first.values[0].value, date):
        return None
    return TimeRange(first.ref, period.start, period.end, period.said)


def _single(shape: _Shape, owner: str) -> bool:
    return owner in shape.index.to_one(shape.base)


def _pred(shape: _Shape, cond: Cond) -> tuple[str, _Placed]:
    if cond.period is not None:
        return _period(shape, cond)
    key = _key(shape, cond.slot) if cond.slot is not None else shape.chosen[cond].key
    if cond.op in ("=", "in", "<>", "not_in") and key[0] in shape.index.to_one(shape.base):
        key = _nearest(shape, key)
    ref, info = Ref(*key), shape.index.info[key]
    op = _FLIP[cond.op] if cond.negated else cond.op
    if cond.against is not None:
        if not info.numeric or info.key:
            raise Stop("planner_mean_of_text", (cond.words,), f"`{info.name}` is not a number")
        return key[0], AgainstAll(ref, cast(Compared, op), cond.against)
    if op in ("is_null", "not_null"):
        return key[0], Compare(ref, op)
    values: list[Value] = []
    said_key = _key(shape, cond.slot) if cond.slot is not None else shape.chosen[cond].key
    for at, (literal, said) in enumerate(cond.literals):
        stored = cond.stored[at] if cond.stored else None
        values.append(_value(shape, said_key, op, literal, said, stored))
    if cond.all_of and cond.op == "in" and not cond.negated and len(values) > 1:
        return key[0], Compare(ref, "in", tuple(values))
    return key[0], Compare(ref, op, tuple(values))


def _value(shape: _Shape, key: FieldKey, op: Op, literal: Scalar, said: str, stored: dict[FieldKey, str] | None) -> Value:
    info = shape.index.info[key]
    if op in ("contains", "starts", "ends", "not_contains"):
        return Value(str(literal), said, "question")
    if stored is not None and key in stored:
        return Value(stored[key], said, "index")
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
    if info.time or info.datatype == "Boolean":
        raise Stop("planner_value", (said,), f"`{info.name}` is not compared with a number")
    if info.datatype == "String":
        if op in (">", "<", ">=", "<=", "between"):
            raise Stop("planner_value", (said,), f"`{info.name}` is text and is not compared with a number")
        return Value(said.replace(",", ""), said, "question")
    return Value(literal, said, "question")


def _period(shape: _Shape, cond: Cond) -> tuple[str, _Placed]:
    """A period on a time field is a range; on a field of years it is compared with the years."""
    period = cond.period
    assert period is not None
    if cond.slot is not None:
        key = _key(shape, cond.slot)
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
        return key[0], span[0] if len(span) == 1 else _Both(tuple(span))
    years = period.years
    if years is None or not (info.numeric or info.datatype in (None, "String")) or (not info.year and cond.slot is None):
        raise Stop("planner_no_time", (cond.words,), f"`{info.name}` is not a time")
    low, high = years
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


def _years(shape: _Shape, cond: Cond, key: FieldKey) -> tuple[str, _Placed]:
    """Several years: a list of them, or one range where they follow each other."""
    info, ref, years = shape.index.info[key], Ref(*key), sorted(set(cond.years))
    if info.time:
        if cond.all_of or cond.negated or years[-1] - years[0] != len(years) - 1:
            raise Stop("planner_or", (cond.words,), "several years that do not follow each other are not understood")
        start, end = date(years[0], 1, 1), date(years[-1] + 1, 1, 1)
        first, last = (Value(day, cond.words, "question") for day in (start, end))
        return key[0], _Both((Compare(ref, ">=", (first,)), Compare(ref, "<", (last,))))
    if not info.year and cond.slot is None:
        raise Stop("planner_no_time", (cond.words,), f"`{info.name}` is not a time")
    values = tuple(Value(str(year) if info.datatype == "String" else year, str(year), "question") for year in cond.years)
    return key[0], Compare(ref, "not_in" if cond.negated else "in", values)


def _period_key(shape: _Shape, cond: Cond) -> FieldKey:
    """The time field of what is nearest before the period; two without a default are refused."""
    period = cond.period
    assert period is not None
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


def _same_event(shape: _Shape, cond: Cond, key: FieldKey) -> None:
    """A default time is not taken for something else that was done: "closed in May" where only the report has a date."""
    if not cond.event or cond.event in PLAIN_EVENTS or key in shape.index.events.get(cond.event, {}):
        return
    fields = shape.index.declared[key[0]].fields
    if sum(1 for one in fields if shape.index.info[key[0], one.name].time) > 1:
        raise Stop("planner_no_time", (cond.event, cond.words), f"when something was `{cond.event}` is not stored")


# --- other rows -----------------------------------------------------------------------------------------------------------


def _relations(shape: _Shape) -> None:
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


def _pointed_at(shape: _Shape, name: str) -> bool:
    """Whether a condition is on the very field that points at rows of `name`."""
    keys = _key_fields(shape.index, name)
    fields = [choice.key for item, choice in shape.chosen.items() if isinstance(item, Cond)]
    return len(keys) == 1 and any(shape.index.pointing(key[0], (name, keys[0])) == key[1] for key in fields)


def _own(shape: _Shape, relation: Relation) -> None:
    if relation.plain:
        shape.used.add(shape.base)
        return
    raise Stop("planner_own_rows", (relation.words,), f"`{relation.words}` speaks of the rows that are asked for")


def _related(shape: _Shape, relation: Relation) -> None:
    name = relation.dataset
    inner: tuple[Pred, ...] = tuple(_flat(shape.inside.pop(name, [])))
    inner = (*inner, *(Exists(other) for other in relation.inner))
    shape.used |= set(relation.inner)
    if relation.count is not None and name in shape.index.to_one(shape.base):
        raise Stop("planner_one_only", (relation.words,), f"one `{shape.base}` has at most one `{name}`")
    for other in list(shape.inside):
        if name in shape.index.to_one(other):
            continue
        if other in shape.index.to_one(name):
            inner = (*inner, *_flat(shape.inside.pop(other)))
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


def _known_subject(shape: _Shape, words: str) -> None:
    """What has none of something must be a row that was named, not a field of one."""
    if shape.base not in shape.draft.mentioned:
        raise Stop("planner_negation", (words,), f"none of `{words}`: whose rows are meant is not certain")


def _flat(preds: list[_Placed]) -> list[Pred]:
    found: list[Pred] = []
    for pred in preds:
        found.extend(pred.preds if isinstance(pred, _Both) else [pred])
    return found


def _exists(shape: _Shape) -> tuple[Pred, ...]:
    """The conditions on rows of which there may be many, each dataset's together."""
    shape.penalty += _PER_EXISTS * len(shape.inside)
    return tuple(Exists(name, tuple(_flat(preds))) for name, preds in shape.inside.items())


def _all_used(shape: _Shape) -> None:
    """Every dataset that the question names has a part in the form."""
    for name in shape.draft.mentioned:
        if name not in shape.used and name != shape.base and name not in shape.inside:
            shape.several.append(Exists(name))
            raise Stop("planner_unused", (name,), f"`{name}` is named, but nothing is asked of it")


def _refuse_contradiction(preds: tuple[Pred, ...]) -> None:
    """Two values asked of one field of one row, or a range with nothing in it: the question meant two rows."""
    equal: dict[Ref, Compare] = {}
    low: dict[Ref, Scalar] = {}
    high: dict[Ref, Scalar] = {}
    for pred in preds:
        if isinstance(pred, Exists):
            _refuse_contradiction(pred.where)
        if not isinstance(pred, Compare):
            continue
        if pred.op in ("=", "in"):
            if equal.setdefault(pred.ref, pred) is not pred:
                raise Stop("planner_both", (str(pred.ref),), f"one `{pred.ref.field}` cannot be two things at once")
        elif pred.op in (">", ">="):
            low[pred.ref] = pred.values[0].value
        elif pred.op in ("<", "<="):
            high[pred.ref] = pred.values[0].value
    for ref in low.keys() & high.keys():
        if low[ref] >= high[ref]:  # type: ignore[operator]
            raise Stop("planner_both", (str(ref),), f"no `{ref.field}` is in that range")


def _finished(form: Form, shape: _Shape) -> Form:
    draft, chosen = shape.draft, shape.chosen
    _refuse_contradiction(form.where)
    weights = [choice.weight for choice in chosen.values()] + list(draft.mentioned.values())
    confidence = min(weights, default=1.0) - draft.penalty - shape.penalty
    confidence -= _PER_JOIN * len(shape.joined) + _PER_VERB * min(draft.verbs, 2)
    confidence -= _PER_NOT * sum(1 for cond in draft.conds if cond.negated)
    told = [*draft.explained]
    told += [Explained(item.words, ".".join(choice.key)) for item, choice in chosen.items()]
    told += [Explained(cond.words, "condition") for cond in draft.conds if cond.period is not None]
    return Form(
        form.dataset, form.show, form.measures, form.by, form.where, form.time, form.having, form.order, form.limit,
        distinct=form.distinct, confidence=round(max(0.0, min(1.0, confidence)), 3), explained=tuple(told), notes=tuple(shape.notes),
    )  # fmt: skip
