"""Which field each slot means, all slots together.

Weights speak for names that are said in full, for datasets that the question mentions and for what stands near; every dataset
more speaks against. Where the runner-up is as good and means something else, the question is ambiguous and nothing is chosen.

INVARIANT: a choice is never made between equals (tests/sql/planner/test_plan_refusals.py::test_refusal).
"""

from __future__ import annotations

from dataclasses import dataclass

from router.sql.planner.draft import Cond, Draft, Slot, Stop
from router.sql.planner.index import FieldInfo, FieldKey, Index

BEAM = 64
MENTIONED, NEAR, PER_DATASET, MARGIN = 0.35, 0.6, 0.3, 0.05
PER_HOP = 0.1
MOST_STRANGE = 6
"""A name that as many datasets have that the question does not mention is not looked at."""

Item = Slot | Cond


@dataclass(frozen=True, slots=True)
class Choice:
    """One meaning of a slot, or of a value without one. `spelled` is the stored text, by literal."""

    key: FieldKey
    weight: float
    gain: float
    descending: bool = False


@dataclass(frozen=True, slots=True)
class _State:
    score: float
    picks: tuple[Choice, ...]
    datasets: frozenset[str]


def resolve(draft: Draft, index: Index) -> dict[Item, Choice]:
    """A choice for every slot and every value on its own, or `Stop`."""
    items = _items(draft)
    needed = frozenset(_needed(draft))
    known = set(draft.mentioned) | _measured(draft, index)
    soft = known | _implied(items, index)
    first = frozenset(needed)
    states = [_State(0.0, (), first)]
    for item in items:
        choices = _choices(item, draft, index, known, soft)
        if not choices:
            words = item.words
            raise Stop("planner_unbound", (words,), f"`{words}` fits no field here")
        states = _extend(states, choices)
    ranked = sorted(
        ((state.score - PER_DATASET * len(state.datasets - first), state) for state in states), key=lambda one: -one[0]
    )
    best = ranked[0]
    for score, other in ranked[1:]:
        if best[0] - score >= MARGIN:
            break
        _refuse_rival(items, best[1], other, index)
    return dict(zip(items, best[1].picks, strict=True))


def _measured(draft: Draft, index: Index) -> set[str]:
    """Datasets that the metrics read."""
    asks = [*draft.asks, *(one.ask for one in draft.having), *(one.ask for one in draft.sorts if one.ask is not None)]
    names = {ask.metric for ask in asks if ask.metric}
    return {table for name in names for table in index.metric_tables.get(name, ())}


def _implied(items: list[Item], index: Index) -> set[str]:
    """Datasets that need no mention: the only one there is, and the only one that has a field which is named in full."""
    if len(index.declared) == 1:
        return set(index.declared)
    named = [item.meaning for item in items if isinstance(item, Slot) and item.meaning is not None]
    return {next(iter(meaning.fields)) for meaning in named if len(meaning.fields) == 1}


def _extend(states: list[_State], choices: list[Choice]) -> list[_State]:
    grown = [
        _State(state.score + choice.weight + choice.gain, (*state.picks, choice), state.datasets | {choice.key[0]})
        for state in states
        for choice in choices
    ]
    if len(grown) > BEAM:
        grown.sort(key=lambda one: PER_DATASET * len(one.datasets) - one.score)
    return grown[:BEAM]


def _refuse_rival(items: list[Item], best: _State, other: _State, index: Index) -> None:
    for item, mine, theirs in zip(items, best.picks, other.picks, strict=True):
        if mine.key != theirs.key and not index.linked(mine.key, theirs.key):
            names = " or ".join(f"`{dataset}.{name}`" for dataset, name in sorted((mine.key, theirs.key)))
            raise Stop("planner_ambiguous", (item.words,), f"`{item.words}` may be {names}")


def _items(draft: Draft) -> list[Item]:
    found: list[Item] = [*draft.shows]
    asks = [*draft.asks, *(one.ask for one in draft.having), *(one.ask for one in draft.sorts if one.ask is not None)]
    found += [ask.slot for ask in asks if ask.slot is not None]
    found += [group.slot for group in draft.groups if group.slot is not None]
    found += [sort.slot for sort in draft.sorts if sort.slot is not None]
    for cond in draft.conds:
        if cond.slot is not None:
            found.append(cond.slot)
        elif cond.period is None:
            found.append(cond)
    return list(dict.fromkeys(found))


def _needed(draft: Draft) -> list[str]:
    return [*draft.mentioned]


def _choices(item: Item, draft: Draft, index: Index, known: set[str], soft: set[str]) -> list[Choice]:
    if isinstance(item, Cond):
        return _value_choices(item, index, known)
    if item.wanted:
        return _adjective_choices(item, draft, index, known)
    meaning = item.meaning
    if meaning is None:
        return []
    found: dict[FieldKey, float] = {}
    if item.owner and not item.tie and item.words.lower().rstrip("s") in ("name", "title") and index.labels[item.owner]:
        return [Choice((item.owner, index.labels[item.owner][0]), 0.75, 0.0)]
    tied = item.tie
    if tied is not None and (tied in meaning.fields or tied in meaning.partial):
        for table in (meaning.partial, meaning.fields):
            for name, weight in table.get(tied, {}).items():
                found[tied, name] = max(weight, found.get((tied, name), 0.0))
        best = max(found.values())
        found = {key: weight for key, weight in found.items() if weight >= best - 0.3}
    else:
        for dataset in soft:
            for table in (meaning.partial, meaning.fields):
                for name, weight in table.get(dataset, {}).items():
                    found[dataset, name] = max(weight, found.get((dataset, name), 0.0))
        strange = (
            [dataset for dataset in meaning.fields if dataset not in known]
            if len(meaning.fields) <= MOST_STRANGE + len(known)
            else []
        )
        for dataset in strange:
            for name, weight in meaning.fields[dataset].items():
                found[dataset, name] = weight
        if not found and len(meaning.fields) > MOST_STRANGE:
            names = " or ".join(f"`{dataset}`" for dataset in sorted(meaning.fields)[:3])
            raise Stop("planner_ambiguous", (item.words,), f"`{item.words}` may be of {names} and others")
    found = {key: weight for key, weight in found.items() if _fits(item, index, key)}
    return [
        Choice(key, weight, _gain(key[0], item.near, known) - _distance(index, key[0], known)) for key, weight in found.items()
    ]


def _fits(slot: Slot, index: Index, key: FieldKey) -> bool:
    info = index.info[key]
    if slot.numeric and (info.datatype in ("String", "Boolean", "Opaque") or info.time):
        return False
    if slot.text and info.datatype not in ("String", None):
        return False
    return not slot.time or info.time or info.year


def _gain(dataset: str, near: str | None, known: set[str]) -> float:
    return (MENTIONED if dataset in known else 0.0) + (NEAR if dataset == near else 0.0)


def _distance(index: Index, dataset: str, known: set[str]) -> float:
    """Fields of datasets that the question does not mention count less the further they are, and least where no row has one."""
    if not known or dataset in known:
        return 0.0
    hops = min((index.to_one(name)[dataset][0] for name in known if dataset in index.to_one(name)), default=5)
    return PER_HOP * (hops - 1)


def _value_choices(cond: Cond, index: Index, known: set[str]) -> list[Choice]:
    """Fields in which every value of the condition is stored."""
    shared: set[FieldKey] | None = None
    for stored in cond.stored:
        keys = set(stored or ())
        shared = keys if shared is None else shared & keys
    weight = 0.75 if cond.derived else 0.9 if len(cond.literals[0][1].split()) == 1 and cond.literals[0][1].islower() else 0.95
    return [
        Choice(key, weight, _gain(key[0], cond.near, known) - _distance(index, key[0], known)) for key in sorted(shared or ())
    ]


def _adjective_choices(slot: Slot, draft: Draft, index: Index, known: set[str]) -> list[Choice]:
    datasets = [slot.tie] if slot.tie else sorted(known) or sorted(_shown_owners(draft))
    found = _adjectives(slot, datasets, index, known)
    if not found:
        beyond = dict.fromkeys(name for dataset in datasets for name in index.to_one(dataset) if name not in datasets)
        found = _adjectives(slot, list(beyond), index, known)
    return found


def _adjectives(slot: Slot, datasets: list[str], index: Index, known: set[str]) -> list[Choice]:
    found: list[Choice] = []
    for dataset in datasets:
        time = index.declared[dataset].time
        for rank, (words, descending) in enumerate(slot.wanted):
            wanted = tuple(words.split())
            if words == "date" and time is not None:
                found.append(Choice((dataset, time), 0.9, _gain(dataset, slot.near, known), descending))
                break
            names = [
                info.name
                for info in _fields_of(index, dataset)
                if not info.key and (info.words[-len(wanted) :] == wanted or _called(index, wanted, dataset, info.name))
            ]
            if names:
                ordered = all(_ordered(index.info[dataset, name]) for name in names)
                if not ordered:
                    raise Stop(
                        "planner_extreme_of_text", (slot.words,), f"`{names[0]}` has no order that `{slot.words}` could mean"
                    )
                weight = 0.9 if len(names) == 1 else 0.7
                found += [
                    Choice((dataset, name), weight - 0.001 * rank, _gain(dataset, slot.near, known), descending) for name in names
                ]
                break
    return found


def _ordered(info: FieldInfo) -> bool:
    return info.numeric or info.time or info.datatype in (None, "Time") or info.year


def _called(index: Index, wanted: tuple[str, ...], dataset: str, name: str) -> bool:
    meaning = index.phrases.get(wanted)
    return meaning is not None and name in meaning.fields.get(dataset, {})


def _fields_of(index: Index, dataset: str) -> list[FieldInfo]:
    return [index.info[dataset, one.name] for one in index.declared[dataset].fields]


def _shown_owners(draft: Draft) -> set[str]:
    return {dataset for slot in draft.shows if slot.meaning for dataset in slot.meaning.fields}
