"""Forms by chance, over the worlds' names: what a form can say at all."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import get_args

from hypothesis import strategies as st

from router.sql.form import (
    AgainstAll,
    Aggregate,
    Aggregated,
    AnyOf,
    By,
    Compare,
    Compared,
    Exists,
    Explained,
    Form,
    Grain,
    Having,
    Label,
    Named,
    Order,
    Ref,
    TimeRange,
    Value,
)

WORDS = st.text(st.characters(min_codepoint=32, blacklist_categories=["Cs"]), max_size=12)
DAYS = st.dates(date(1970, 1, 1), date(2100, 1, 1))
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1))  # noqa: DTZ001
SCALARS = st.one_of(
    WORDS,
    st.integers(-(2**62), 2**62),
    st.floats(-1e9, 1e9),
    st.booleans(),
    DAYS,
    MOMENTS,
    st.decimals(-(10**6), 10**6, places=2).map(lambda number: Decimal(str(number))),
)
VALUES = st.builds(Value, SCALARS, WORDS, WORDS)
COMPARED = st.sampled_from(get_args(Compared))
AGGREGATES = st.sampled_from(get_args(Aggregate))


def lists(part, most=3):
    return st.lists(part, max_size=most).map(tuple)


def forms(datasets, refs, plain, via):
    """Forms over some names. `plain` are references without a way of their own."""
    measures = st.one_of(st.builds(Named, datasets), st.builds(Aggregated, AGGREGATES, plain))
    dims = st.one_of(st.builds(By, refs, st.none() | st.sampled_from(get_args(Grain))), st.builds(Label, datasets, via))
    compares = st.one_of(
        st.builds(
            Compare, refs, st.sampled_from(["=", "<>", ">", ">=", "<", "<=", "contains", "starts", "ends"]), st.tuples(VALUES)
        ),
        st.builds(Compare, refs, st.just("between"), st.tuples(VALUES, VALUES)),
        st.builds(Compare, refs, st.sampled_from(["in", "not_in"]), st.lists(VALUES, min_size=1, max_size=3).map(tuple)),
        st.builds(Compare, refs, st.sampled_from(["is_null", "not_null"])),
        st.builds(AgainstAll, refs, COMPARED, AGGREGATES),
    )
    counts = st.none() | st.tuples(COMPARED, st.integers(0, 9))
    preds = st.one_of(
        compares,
        st.builds(AnyOf, st.lists(compares, min_size=1, max_size=3).map(tuple)),
        st.builds(Exists, datasets, lists(compares, 2), counts, st.booleans(), via),
    )
    spans = st.one_of(
        st.builds(TimeRange, refs, DAYS, st.none(), WORDS),
        st.builds(TimeRange, refs, st.none(), MOMENTS, WORDS),
        st.builds(lambda ref, start: TimeRange(ref, start, date(2101, 1, 1), "then"), refs, DAYS),
    )
    orders = st.builds(Order, st.one_of(dims, measures), st.booleans(), st.sampled_from([None, "first", "last"]))
    return st.builds(
        Form,
        datasets,
        lists(refs),
        lists(measures),
        lists(dims),
        lists(preds),
        st.none() | spans,
        lists(st.builds(Having, measures, COMPARED, VALUES)),
        lists(orders),
        st.none() | st.integers(1, 100),
        st.booleans(),
        st.floats(0, 1),
        lists(st.builds(Explained, WORDS, WORDS)),
        lists(WORDS),
    )


NAMES = st.sampled_from(["orders", "customers", "returns", "amount", "region", "id"])
VIA = st.lists(NAMES, max_size=2).map(tuple)
FORMS = forms(NAMES, st.builds(Ref, NAMES, NAMES, VIA), st.builds(Ref, NAMES, NAMES), VIA)


def forms_over(catalog):
    """Forms over what a catalogue has, so that most of them can be compiled: rows or groups, of the datasets it names."""
    pairs = [Ref(dataset.name, field.name) for dataset in catalog.datasets for field in dataset.fields]
    refs = st.sampled_from(pairs)
    made = forms(st.sampled_from([dataset.name for dataset in catalog.datasets]), refs, refs, st.just(()))
    first = {dataset.name: Ref(dataset.name, dataset.fields[0].name) for dataset in catalog.datasets}

    def rows(form):
        order = tuple(one for one in form.order if isinstance(one.by, By) and not one.by.grain)
        return replace(form, show=form.show or (first[form.dataset],), measures=(), by=(), having=(), order=order)

    def groups(form):
        count = Aggregated("count", Ref(form.dataset, "*"))
        having = tuple(replace(one, measure=count) if isinstance(one.measure, Named) else one for one in form.having)
        order = tuple(Order(count, one.descending, one.nulls) for one in form.order)
        measures = tuple(one for one in form.measures if not isinstance(one, Named)) or (count,)
        return replace(form, show=(), measures=measures, having=having, order=order)

    return st.one_of(made.map(rows), made.map(groups))
