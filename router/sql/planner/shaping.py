"""One form in the making, and what every part of it needs: keys, ways, and references over the base."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.sql.form import (
    Exists,
    Pred,
    Ref,
    TimeRange,
)
from router.sql.planner.dates import Period
from router.sql.planner.draft import Ask, Draft, Slot, Stop
from router.sql.planner.index import FieldKey, Index
from router.sql.planner.resolve import Choice, Item


@dataclass(frozen=True, slots=True)
class Both:
    """Two conditions that stand or fall together, until they are placed."""

    preds: tuple[Pred, ...]


Placed = Pred | Both


@dataclass(slots=True)
class Shape:
    """One form in the making."""

    draft: Draft
    index: Index
    chosen: dict[Item, Choice]
    base: str = ""
    joined: set[str] = field(default_factory=set)
    where: list[Placed] = field(default_factory=list)
    inside: dict[str, list[Placed]] = field(default_factory=dict)
    several: list[Exists] = field(default_factory=list)
    time: TimeRange | None = None
    periods: dict[Ref, list[Period]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    penalty: float = 0.0
    labelled: bool = False
    used: set[str] = field(default_factory=set)


def key_at(shape: Shape, slot: Slot) -> FieldKey:
    return shape.chosen[slot].key


def key_fields(index: Index, dataset: str) -> list[str]:
    """The fields that are the primary key as it stands."""
    declared = index.declared[dataset]
    by_column = {one.expression.strip('"').lower(): one.name for one in declared.fields}
    keys = [by_column.get(column.lower()) for column in declared.primary_key]
    return [name for name in keys if name] if all(keys) else []


def all_asks(shape: Shape) -> list[Ask]:
    draft = shape.draft
    return [*draft.asks, *(one.ask for one in draft.sorts if one.ask), *(one.ask for one in draft.having)]


def pointer_to(shape: Shape, owner: str, goal: str) -> FieldKey | None:
    """The field of `owner` that holds the key of its one row of `goal`."""
    keys = key_fields(shape.index, goal)
    if len(keys) != 1 or shape.index.to_one(owner).get(goal) != (1, 1):
        return None
    found = shape.index.pointing(owner, (goal, keys[0]))
    return (owner, found) if found else None


def nearest_key(shape: Shape, key: FieldKey) -> FieldKey:
    """A key of another dataset is taken from the row that points at it: the same value, and one join less."""
    if key[0] == shape.base or not shape.index.info[key].key:
        return key
    here = shape.index.before(shape.base, key[0])
    found = shape.index.pointing(here, key) if here else None
    if found is None or here is None:
        return key
    shape.used.add(key[0])
    return nearest_key(shape, (here, found))


def reference(shape: Shape, key: FieldKey) -> Ref:
    key = nearest_key(shape, key)
    if key[0] != shape.base:
        follow_way(shape, key[0])
    shape.used.add(key[0])
    return Ref(*key)


def follow_way(shape: Shape, dataset: str) -> None:
    found = shape.index.to_one(shape.base).get(dataset)
    if found is not None:
        if found[1] > 1:
            raise Stop("planner_two_ways", (dataset,), f"`{dataset}` is reached from `{shape.base}` in two ways")
        shape.joined |= shape.index.on_the_way(shape.base, dataset)


def flatten(preds: list[Placed]) -> list[Pred]:
    found: list[Pred] = []
    for pred in preds:
        found.extend(pred.preds if isinstance(pred, Both) else [pred])
    return found
