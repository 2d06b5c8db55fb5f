"""Forms by chance, over the worlds' names: what a form can say at all."""

from __future__ import annotations

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

NAMES = st.sampled_from(["orders", "customers", "returns", "amount", "region", "id"])
WORDS = st.text(st.characters(min_codepoint=32, blacklist_categories=["Cs"]), max_size=12)
VIA = st.lists(NAMES, max_size=2).map(tuple)
REFS = st.builds(Ref, NAMES, NAMES, VIA)
PLAIN = st.builds(Ref, NAMES, NAMES)
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
MEASURES = st.one_of(st.builds(Named, NAMES), st.builds(Aggregated, AGGREGATES, PLAIN))
DIMS = st.one_of(st.builds(By, REFS, st.none() | st.sampled_from(get_args(Grain))), st.builds(Label, NAMES, VIA))
COMPARES = st.one_of(
    st.builds(Compare, REFS, st.sampled_from(["=", "<>", ">", ">=", "<", "<=", "contains", "starts", "ends"]), st.tuples(VALUES)),
    st.builds(Compare, REFS, st.just("between"), st.tuples(VALUES, VALUES)),
    st.builds(Compare, REFS, st.sampled_from(["in", "not_in"]), st.lists(VALUES, min_size=1, max_size=3).map(tuple)),
    st.builds(Compare, REFS, st.sampled_from(["is_null", "not_null"])),
    st.builds(AgainstAll, REFS, COMPARED, AGGREGATES),
)
COUNTS = st.none() | st.tuples(COMPARED, st.integers(0, 9))
PREDS = st.one_of(
    COMPARES,
    st.builds(AnyOf, st.lists(COMPARES, min_size=1, max_size=3).map(tuple)),
    st.builds(Exists, NAMES, st.lists(COMPARES, max_size=2).map(tuple), COUNTS, st.booleans(), VIA),
)


def lists(part, most=3):
    return st.lists(part, max_size=most).map(tuple)


SPANS = st.one_of(
    st.builds(TimeRange, REFS, DAYS, st.none(), WORDS),
    st.builds(TimeRange, REFS, st.none(), MOMENTS, WORDS),
    st.builds(lambda ref, start: TimeRange(ref, start, date(2101, 1, 1), "then"), REFS, DAYS),
)
FORMS = st.builds(
    Form,
    NAMES,
    lists(REFS),
    lists(MEASURES),
    lists(DIMS),
    lists(PREDS),
    st.none() | SPANS,
    lists(st.builds(Having, MEASURES, COMPARED, VALUES)),
    lists(st.builds(Order, st.one_of(DIMS, MEASURES), st.booleans(), st.sampled_from([None, "first", "last"]))),
    st.none() | st.integers(1, 100),
    st.booleans(),
    st.floats(0, 1),
    lists(st.builds(Explained, WORDS, WORDS)),
    lists(WORDS),
)
