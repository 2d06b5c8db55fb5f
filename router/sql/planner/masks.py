"""What a masked field may do in a form: be shown; be looked for, where a policy opens its raw values to conditions; and where its mask
only rounds, have a least and a greatest.

A mask in a comparison, a group, a count, an order or a sum would answer another question than the one that was asked: all people
whose name begins with R are not Rosa Novak, and the sum of rounded amounts is no sum.

INVARIANT: a masked field does nothing else (tests/sql/planner/test_plan_masks.py::test_nothing_else_is_done_with_a_mask).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard

from router.sql.form import AgainstAll, Aggregated, AnyOf, By, Compare, Dim, Exists, Form, Label, Measure, Pred, Ref
from router.sql.planner.draft import Stop
from router.sql.planner.index import Index


def hold_masks(form: Form, index: Index) -> Form:
    """The same form with a note of what is shown masked, or `Stop`."""
    if not index.masks.shown:
        return form
    shown = [ref for ref in form.show if _key(ref, form) in index.masks.shown]
    shown += [one.of for one in form.measures if _is_rounded(one, form, index)]
    for ref in (*_conditions(form, index), *_used(form, index), *(shown if form.distinct else ())):
        _refuse(ref, form, index)
    told = (f"{_key(ref, form)[1].replace('_', ' ')} is shown masked" for ref in shown)
    return replace(form, notes=(*form.notes, *dict.fromkeys(told)))


def _conditions(form: Form, index: Index) -> Iterator[Ref]:
    """What conditions speak of, but for what is looked for by raw values. That stands in a form over one dataset: over a join it would
    meet the mask."""
    refs = [*form.show, *_used(form, index), *(ref for pred in form.where for ref in _refs(pred))]
    alone = all(_key(ref, form)[0] == form.dataset for ref in refs)
    alone = (
        alone and not any(isinstance(pred, Exists) for pred in form.where) and not any(isinstance(dim, Label) for dim in form.by)
    )
    for pred in form.where:
        raw = isinstance(pred, Compare) and pred.op in ("=", "in") and _key(pred.ref, form) in index.masks.findable
        if not (raw and alone):
            yield from _refs(pred)


def _is_rounded(measure: Measure | Dim, form: Form, index: Index) -> TypeGuard[Aggregated]:
    return isinstance(measure, Aggregated) and measure.agg in ("min", "max") and _key(measure.of, form) in index.masks.rounded


def _key(ref: Ref, form: Form) -> tuple[str, str]:
    return ref.dataset or form.dataset, ref.field


def _refuse(ref: Ref, form: Form, index: Index) -> None:
    key = _key(ref, form)
    if key in index.masks.shown:
        message = f"you see `{key[1]}` masked: it can be shown, and not be compared, counted, added up or ordered by"
        raise Stop("planner_masked", (key[1],), message)


def _used(form: Form, index: Index) -> Iterator[Ref]:
    """Every reference beside conditions and what is shown."""
    if form.time is not None:
        yield form.time.ref
    shown = [one for one in form.measures if not _is_rounded(one, form, index)]
    parts: list[Measure | Dim] = [*shown, *form.by, *(one.measure for one in form.having), *(one.by for one in form.order)]
    for one in parts:
        if isinstance(one, Aggregated):
            yield one.of
        elif isinstance(one, By):
            yield one.ref


def _refs(pred: Pred) -> Iterator[Ref]:
    match pred:
        case AnyOf(preds):
            for one in preds:
                yield from _refs(one)
        case Exists():
            for one in pred.where:
                yield from _refs(one)
        case Compare() | AgainstAll():
            yield pred.ref
