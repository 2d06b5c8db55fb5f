"""What is there of a thing: pieces in stock, and what has run out.

Where a dataset has one number of pieces in stock, "how many belts do we have" adds it up, "which parts are in stock" has some of it
and "out of stock" none. Without such a number, or with two, nothing is read so. "The least stock" is of that number, too: a mass has
no rows to count, whatever dataset it may name.

INVARIANT: pieces are added up only of a number that the catalogue calls a stock (tests/sql/planner/test_plan_stock.py).
INVARIANT: rows are never counted as a stock (…::test_rows_are_no_stock).
"""

from __future__ import annotations

from collections.abc import Iterable

from router.sql.planner.index import FieldKey, Index, Meaning
from router.sql.planner.tokens import name_words

CALLED = tuple(
    name_words(name)
    for name in (
        "in stock", "on hand", "stock on hand", "quantity on hand", "qty on hand", "units on hand", "pieces on hand", "units in stock",
        "pieces in stock", "items in stock", "quantity in stock", "stock level", "stock quantity", "number in stock",
    )
)  # fmt: skip
SAYING_SOME = frozenset({"in stock", "on hand"})
"""Said of rows without a number: there is some."""
MASSES = frozenset({("stock",), ("inventory",)})
"""What there is more or less of, and not more or fewer."""
PIECES = frozenset("piece unit item".split())


def stock_field(index: Index, dataset: str) -> FieldKey | None:
    """The one number of this dataset's rows that is called a stock."""
    names = {
        name
        for words in CALLED
        for name in (index.phrases[words].fields.get(dataset, {}) if words in index.phrases else {})
        if index.info[dataset, name].numeric and not index.info[dataset, name].key
    }
    return (dataset, names.pop()) if len(names) == 1 else None


def stock_of(index: Index, keys: Iterable[FieldKey]) -> FieldKey | None:
    """The stock of what a value names: the only one among the datasets that hold the value."""
    found = {stock for dataset in {key[0] for key in keys} if (stock := stock_field(index, dataset)) is not None}
    return found.pop() if len(found) == 1 else None


def is_mass(words: str) -> bool:
    return name_words(words) in MASSES


def stock_meant(index: Index, words: str, meaning: Meaning | None) -> FieldKey | None:
    """The number that is named as a stock: by its own name, or as `stock` by that of its dataset or a part of its own."""
    if meaning is None:
        return None
    keys = [(owner, name) for owner, names in meaning.fields.items() for name in names]
    if keys:
        return keys[0] if keys == [stock_of(index, keys)] else None
    return stock_of(index, [(owner, "") for owner in (*meaning.datasets, *meaning.partial)]) if is_mass(words) else None
