"""What is selected: measures, groups, shown fields, orders.

INVARIANT: a field shown beside a measure is grouped by, or there is no form (tests/sql/planner/test_plan_examples.py).
"""

from __future__ import annotations

from router.sql.form import (
    STAR,
    Aggregated,
    By,
    Compare,
    Dim,
    Having,
    Measure,
    Named,
    Order,
    Ref,
    Value,
)
from router.sql.planner.draft import Ask, Slot, Stop
from router.sql.planner.index import FieldKey
from router.sql.planner.shaping import Shape, all_asks, follow_way, key_at, key_fields, nearest_key, reference
from router.sql.planner.units import refuse_unit, refuse_unit_of_metric

_PER_TOP = 0.05


def select_all(
    shape: Shape,
) -> tuple[tuple[Measure, ...], tuple[Dim, ...], tuple[Ref, ...], tuple[Order, ...], tuple[Having, ...]]:
    """What the draft asks for, as (measures, groups, shown fields, orders, conditions on groups)."""
    draft = shape.draft
    _count_orders(shape)
    measures = tuple(
        dict.fromkeys(_measure(shape, ask) for ask in (*draft.asks, *(sort.ask for sort in draft.sorts if sort.ask is not None)))
    )
    having = tuple(Having(_measure(shape, one.ask), one.op, Value(one.value, str(one.value), "question")) for one in draft.having)
    _refuse_units(shape)
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
        show = tuple(dict.fromkeys(reference(shape, key_at(shape, slot)) for slot in draft.shows))
        if draft.everything:
            owner = draft.head or shape.base
            show = tuple(dict.fromkeys((*show, *(Ref(owner, one.name) for one in shape.index.declared[owner].fields))))
            shape.used.add(owner)
        if shape.labelled:
            show = tuple(
                dict.fromkeys((*show, *(Ref(*key_at(shape, sort.slot)) for sort in draft.sorts if sort.slot is not None)))
            )
        for group in draft.groups:
            _each_row(shape, group.dataset, group.slot)
    order = tuple(_order(shape, by, show, sort_at) for sort_at in range(len(draft.sorts)))
    if not order:
        order = tuple(Order(dim) for dim in by if isinstance(dim, By) and dim.grain)
    return measures, by, show, order, having


def _refuse_units(shape: Shape) -> None:
    """What groups are compared with is in the unit of what is measured."""
    for one in shape.draft.having:
        if one.ask.metric is not None:
            refuse_unit_of_metric(shape.index, one.ask.metric, one.value, shape.draft.units, str(one.value))
        elif one.ask.slot is not None and one.ask.agg not in ("count", "count_distinct"):
            refuse_unit(shape.index, key_at(shape, one.ask.slot), one.value, shape.draft.units, str(one.value))


def _each_row(shape: Shape, dataset: str | None, slot: Slot | None) -> None:
    """ "of each DS" without a measure: every row of the base, if it is of that."""
    if slot is not None or dataset != shape.base:
        words = slot.words if slot is not None else dataset or ""
        raise Stop("planner_no_measure", (words,), "what is measured of each group is not said")
    shape.used.add(shape.base)


def _count_orders(shape: Shape) -> None:
    """Counts of the shown dataset's own relatives in order and having; a count of groups needs the groups' key."""
    for sort in shape.draft.sorts:
        if sort.common and shape.draft.shows:
            owner = key_at(shape, shape.draft.shows[-1])[0]
            if shape.base != owner or shape.draft.relations:
                raise Stop("planner_no_base", (owner,), "what is most common is not certain")
            sort.ask = Ask("count", dataset=owner, words=sort.words)


def _measure(shape: Shape, ask: Ask) -> Measure:
    if ask.metric is not None:
        return Named(ask.metric)
    if ask.pointer is not None:
        return Aggregated("count_distinct", Ref(*ask.pointer))
    if ask.slot is None:
        shape.used.add(ask.dataset or "")
        return Aggregated("count", Ref(ask.dataset or "", STAR))
    key = key_at(shape, ask.slot)
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


def _dims(shape: Shape) -> tuple[Dim, ...]:
    """Groups that were named, and all fields shown beside a measure; entities get their key."""
    draft, index = shape.draft, shape.index
    dims: dict[Dim, None] = {}
    entities: dict[str, None] = {}
    for slot in draft.shows:
        key = key_at(shape, slot)
        own = key[1] in (*index.labels[key[0]], *key_fields(index, key[0])[:1])
        if (
            key[0] == shape.base
            and own
            and any(ask.dataset == shape.base and ask.pointer is None for ask in all_asks(shape))
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
            dims.setdefault(By(_grouped(shape, key_at(shape, group.slot))))
    if not dims and not entities and not draft.asks and draft.head and draft.head != shape.base:
        entities.setdefault(draft.head)
        shape.used.add(draft.head)
    for name in entities:
        if name == shape.base and draft.asks:
            raise Stop("planner_no_group", (name,), f"each `{name}` is one row of what is counted")
        if not any(isinstance(dim, By) and dim.ref.dataset == name for dim in dims):
            for label in index.labels[name]:
                dims.setdefault(By(_grouped(shape, (name, label))))
        keys = key_fields(index, name)
        if not keys and not dims:
            raise Stop("planner_no_label", (name,), f"rows of `{name}` cannot be told apart")
        if keys and name not in index.to_one(shape.base):
            shape.where.append(Compare(Ref(name, keys[0]), "not_null"))
        for key_name in keys:
            dims.setdefault(By(_grouped(shape, (name, key_name))))
    return tuple(dims)


def _grouped(shape: Shape, key: FieldKey) -> Ref:
    """A field to group by."""
    key = nearest_key(shape, key)
    if key[0] != shape.base:
        follow_way(shape, key[0])
    shape.used.add(key[0])
    return Ref(*key)


def _time_ref(shape: Shape, slot: Slot | None, near: str | None = None) -> Ref:
    if slot is not None:
        key = key_at(shape, slot)
        if not shape.index.info[key].time:
            raise Stop("planner_no_time", (slot.words,), f"`{slot.words}` is not a time")
        return reference(shape, key)
    for owner in dict.fromkeys((near or shape.base, shape.base)):
        names = shape.index.times.get(owner, ())
        if len(names) == 1:
            shape.used.add(owner)
            return Ref(owner, names[0])
        if len(names) > 1:
            listed = " or ".join(f"`{owner}.{name}`" for name in names[:3])
            raise Stop("planner_ambiguous", (), f"the time meant may be {listed}")
    raise Stop("planner_no_time", (), f"`{shape.base}` has no time field to cut by")


def _told_apart(shape: Shape, show: tuple[Ref, ...]) -> bool:
    """Whether what is shown names rows of the base, and not what many of them share: "top 3 customers by amount"."""
    own = {*shape.index.labels[shape.base], *key_fields(shape.index, shape.base)}
    return any(ref.dataset == shape.base and (ref.field in own or shape.index.info[ref.dataset, ref.field].key) for ref in show)


def _order(shape: Shape, by: tuple[Dim, ...], show: tuple[Ref, ...], at: int) -> Order:
    sort = shape.draft.sorts[at]
    if sort.superlative:
        shape.penalty += _PER_TOP
    if sort.ask is not None:
        added_up = sort.ask.agg == "count" or (sort.ask.agg == "sum" and shape.draft.stock)
        if sort.superlative and not sort.descending and added_up and sort.ask.metric is None:
            shape.notes.append("what has none at all is not among them")
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
        for dim in (By(ref), By(Ref(*nearest_key(shape, choice.key)))):
            if dim in by:
                return Order(dim, descending)
        raise Stop("planner_order", (sort.words,), f"groups are not ordered by `{info.name}`")
    if sort.ranked and not _told_apart(shape, show):
        raise Stop(
            "planner_no_group", (sort.words,), f"whether `{info.name}` is of single rows or of groups of them is not certain"
        )
    if choice.key[0] != shape.base:
        if sort.superlative and sort.slot.near != shape.base:
            raise Stop("planner_nested", (sort.words,), f"the extreme of `{choice.key[0]}` is not understood as a condition")
        reference(shape, choice.key)
    shape.used.add(choice.key[0])
    nulls = None if not sort.superlative else "last"
    return Order(By(ref), descending, nulls)  # type: ignore[arg-type]
