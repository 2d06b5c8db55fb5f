"""Where rows come from: what a question is about, what is shown of it where nothing is said, and whose rows are counted.

INVARIANT: nothing is counted that is one row of itself (tests/sql/planner/test_plan_refusals.py::test_refusal).
"""

from __future__ import annotations

from router.sql.planner.draft import Ask, Slot, Stop
from router.sql.planner.draft import Having as Wanted
from router.sql.planner.index import FieldInfo
from router.sql.planner.resolve import Choice
from router.sql.planner.shaping import Shape, all_asks, key_at, key_fields, pointer_to


def show_labels(shape: Shape) -> None:
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
        and all(group.grain or group.slot is not None or group.dataset != head for group in draft.groups)
        and not draft.sorts
        and not draft.having
    ):
        draft.asks.append(Ask("count", dataset=head, words=head))
        shape.penalty += 0.1
        return
    dataset = index.declared[head]
    names = [*index.labels[head], *key_fields(index, head)]
    if not names:
        raise Stop("planner_no_label", (head,), f"what of `{head}` is to be shown is not said")
    shape.penalty += 0.0 if dataset.label else 0.12 if index.labels[head] else 0.2
    shape.labelled = True
    for name in dict.fromkeys(names):
        slot = Slot(head, None, 0, tie=head)
        draft.shows.append(slot)
        shape.chosen[slot] = Choice((head, name), 1.0, 0.0)


def find_base(shape: Shape) -> str:
    draft, index = shape.draft, shape.index
    homes = [_home(shape, ask) for ask in all_asks(shape)]
    asked = list(dict.fromkeys(home for home in homes if home is not None))
    if len(asked) > 1:
        raise Stop(
            "planner_two_facts", tuple(asked), f"measures of `{asked[0]}` and `{asked[1]}` in one answer are not understood"
        )
    if asked:
        return asked[0]
    if any(ask.metric for ask in all_asks(shape)):
        return _metric_home(shape)
    shown = [key_at(shape, slot)[0] for slot in draft.shows]
    sorted_by = [key_at(shape, sort.slot)[0] for sort in draft.sorts if sort.slot is not None]
    owners: list[str] = list(dict.fromkeys([*shown, *sorted_by, *((draft.head,) if draft.everything and draft.head else ())]))
    if draft.head and owners != [draft.head] and all(index.to_one(draft.head).get(owner, (0, 2))[1] == 1 for owner in owners):
        return draft.head
    if not owners:
        raise Stop("planner_nothing_asked", (), "what is asked for is not understood")
    if len(owners) == 1:
        return owners[0]
    return _common(shape, owners)


def _common(shape: Shape, owners: list[str]) -> str:
    """The nearest dataset from which all of them follow: one of them, one that is mentioned, or a bridge between them."""
    index = shape.index
    if not owners:
        raise Stop("planner_no_base", (), "whose rows are asked for is not certain")

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


def _home(shape: Shape, ask: Ask) -> str | None:
    if ask.pointer is not None:
        return ask.pointer[0]
    if ask.dataset is not None:
        return ask.dataset
    return key_at(shape, ask.slot)[0] if ask.slot is not None else None


def _metric_home(shape: Shape) -> str:
    """The dataset that the metrics are over: the one from which all others that they read follow."""
    names = [ask.metric for ask in all_asks(shape) if ask.metric]
    tables = sorted({table for name in names for table in shape.index.metric_tables[name]})
    fits: list[str] = [one for one in tables if all(other in shape.index.to_one(one) for other in tables)]
    if not fits:
        raise Stop("planner_two_facts", tuple(names), "the metric is of two things at once")
    return fits[0]


def take_numbers(shape: Shape) -> None:
    """ "By number of products", where that number is stored: the field itself, and no count of different ones."""
    for sort in shape.draft.sorts:
        slot = sort.ask.slot if sort.ask is not None and sort.ask.agg == "count_distinct" and not sort.ask.distinct else None
        if slot is not None and (info := shape.index.info[key_at(shape, slot)]).numeric and not info.key:
            sort.ask, sort.slot = None, slot


def count_groups(shape: Shape) -> None:
    """ "Cities with more than one employee": a number of the very rows whose field is shown speaks of groups of them."""
    draft = shape.draft
    owners = {key_at(shape, slot)[0] for slot in draft.shows}
    if len(owners) != 1 or draft.asks or any(sort.slot is not None for sort in draft.sorts):
        return
    owner = owners.pop()
    keys, labels = key_fields(shape.index, owner), shape.index.labels[owner]
    shown = {key_at(shape, slot)[1] for slot in draft.shows}
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
            ask.pointer = pointer_to(shape, owner, relation.dataset)
            if ask.pointer is None:
                continue
            shape.used.add(relation.dataset)
        draft.relations.remove(relation)
        assert relation.count is not None
        draft.having.append(Wanted(ask, *relation.count, relation.words))


def _same(shape: Shape, slot: Slot, other: str) -> bool:
    """Whether the field that the slot may mean over there is the one that its own points at."""
    mine = key_at(shape, slot)
    return slot.meaning is not None and any(shape.index.linked(mine, (other, name)) for name in slot.meaning.fields[other])


def count_pointers(shape: Shape) -> None:
    """ "Languages by number of countries", where each language row has one country: the countries that are pointed at are counted."""
    index, draft = shape.index, shape.draft
    owners = {key_at(shape, slot)[0] for slot in draft.shows} | {
        key_at(shape, g.slot)[0] for g in draft.groups if g.slot is not None
    }
    owners |= {group.dataset for group in draft.groups if group.dataset}
    if len(owners) != 1 or shape.base in owners:
        return
    owner = owners.pop()
    counts = [ask for ask in all_asks(shape) if ask.dataset == shape.base]
    if owner in index.to_one(shape.base) or len(counts) != len(all_asks(shape)):
        return
    pointer = pointer_to(shape, owner, shape.base)
    if pointer is None:
        return
    for ask in counts:
        ask.pointer = pointer
    shape.used.add(shape.base)
    shape.base = owner


def refuse_flags(shape: Shape) -> None:
    """A yes or no is nothing to show or count, unless it is called by its own name."""
    asks = [ask.slot for ask in all_asks(shape) if ask.slot is not None]
    for slot in (*shape.draft.shows, *asks):
        info = shape.index.info[key_at(shape, slot)]
        flag = info.datatype == "Boolean" or info.words[:1] in (("is",), ("has",)) or _stuck(shape, info)
        if flag and slot.meaning is not None and slot.meaning is not shape.index.phrases.get(info.words):
            raise Stop("planner_flag", (slot.words,), f"`{info.name}` says yes or no")


def _stuck(shape: Shape, info: FieldInfo) -> bool:
    """`isofficial`, where "official" is a name of it."""
    word = info.words[0] if info.words else ""
    rest = word[2:] if word.startswith("is") else word[3:] if word.startswith("has") else ""
    meaning = shape.index.phrases.get((rest,)) if rest else None
    return meaning is not None and info.name in meaning.fields.get(info.dataset, {})
