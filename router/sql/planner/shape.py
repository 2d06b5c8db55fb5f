"""From settled names to a form: where rows come from, what is a condition and what a sub-query, and what cannot be said.

The base of a form is what its measures are of, else what all shown fields follow from. Conditions on rows of which the base has
many become `has`; nothing is summed over one-to-many.

INVARIANT: whatever is bound ends up in the form (tests/sql/planner/test_plan_invariants.py::test_everything_bound_is_in_the_sql).
"""

from __future__ import annotations

from router.sql.form import (
    Aggregated,
    Compare,
    Exists,
    Explained,
    Form,
    Having,
    Measure,
    Pred,
    Ref,
    Scalar,
)
from router.sql.planner.draft import Draft, Stop
from router.sql.planner.homes import count_groups, count_pointers, find_base, refuse_flags, show_labels, take_numbers
from router.sql.planner.index import Index
from router.sql.planner.placing import place_conditions, place_inside, place_relations
from router.sql.planner.resolve import resolve
from router.sql.planner.selection import select_all
from router.sql.planner.shaping import Shape, flatten

_PER_JOIN, _PER_VERB, _PER_NOT = 0.06, 0.05, 0.1


def shape_form(draft: Draft, index: Index) -> Form:
    """The form that a draft asks for, or `Stop`."""
    _check(draft)
    chosen = resolve(draft, index)
    shape = Shape(draft, index, chosen)
    show_labels(shape)
    refuse_flags(shape)
    take_numbers(shape)
    count_groups(shape)
    shape.base = find_base(shape)
    count_pointers(shape)
    measures, by, show, order, having = select_all(shape)
    place_conditions(shape)
    place_relations(shape)
    where = (*flatten(shape.where), *shape.several, *place_inside(shape))
    _all_used(shape)
    kinds = _of_kinds(shape, show)
    if kinds and show and any(isinstance(pred, Exists) and pred.negated for pred in where):
        words = draft.shows[0].words if draft.shows else shape.base
        raise Stop("planner_negation", (words,), f"whether no row of one `{words}` or only some are meant is not certain")
    _refuse_never(shape, kinds and bool(show), measures)
    _refuse_fewer(shape, having, where)
    form = Form(
        shape.base, show, measures, by, where, shape.time, having, order, draft.limit,
        distinct=bool(show) and not order and (draft.distinct or kinds),
    )  # fmt: skip
    return _finished(form, shape)


def _refuse_never(shape: Shape, kinds: bool, measures: tuple[Measure, ...]) -> None:
    """ "Which customers never had an open claim": a claim of theirs that is not open says nothing of the others."""
    counted = any(isinstance(one, Aggregated) and one.agg == "count_distinct" for one in measures)
    for cond in shape.draft.conds if kinds or counted else ():
        if cond.negated and cond.never:
            raise Stop("planner_negation", (cond.words,), f"whether `{cond.words}` is meant of no row or of some is not certain")


def _refuse_fewer(shape: Shape, having: tuple[Having, ...], where: tuple[Pred, ...]) -> None:
    """ "Customers with fewer than 3 open claims": who has none of them is in no group, and would be left out."""
    for one in having:
        counted = isinstance(one.measure, Aggregated) and one.measure.agg in ("count", "count_distinct")
        if counted and one.op in ("<", "<=", "<>") and (where or shape.time is not None):
            raise Stop("planner_fewer", (shape.draft.having[0].words,), "what has none at all would be left out")


def _of_kinds(shape: Shape, show: tuple[Ref, ...]) -> bool:
    """ "List the machines", "which customers have open claims": kinds of rows are asked for, each once, where no rows are."""
    own = shape.index.labels[shape.base]
    infos = [shape.index.info[ref.dataset, ref.field] for ref in show]
    if any((ref.dataset, ref.field) in shape.index.masks.shown for ref in show):
        return False  # two that look alike behind a mask are two
    plain = all(one.dataset == shape.base and one.datatype == "String" and not one.key and one.name not in own for one in infos)
    return plain and not shape.draft.heads and not shape.draft.everything


def _refuse_two_of_one(draft: Draft) -> None:
    """ "In the West and in the East": values of one field, though each could be placed in a field of its own."""
    bare = [cond for cond in draft.conds if cond.op == "=" and cond.slot is None and not (cond.negated or cond.joined)]
    for at, one in enumerate(bare):
        for other in bare[at + 1 :]:
            held = [{key for stored in cond.stored if stored for key in stored} for cond in (one, other)]
            if held[0] & held[1] and one.words.lower() != other.words.lower():
                words = (one.words, other.words)
                raise Stop(
                    "planner_both", words, f"`{one.words}` and `{other.words}` are values of one field, and no row has both"
                )


def _check(draft: Draft) -> None:
    _refuse_two_of_one(draft)
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


def _all_used(shape: Shape) -> None:
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


def _finished(form: Form, shape: Shape) -> Form:
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
