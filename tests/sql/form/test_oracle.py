"""The compiler against a plain evaluator: random rows, random measures, groups and conditions, one row at a time in Python.

The evaluator knows nothing of SQL. It takes every row of the dataset that a measure is about, finds the groups the row belongs to
by following keys, and adds the row to each of them once. What the compiled text answers must be the same.
"""

from __future__ import annotations

from collections import defaultdict

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from router.catalog import Catalog
from router.sql.compile import lower_form
from router.sql.form import Aggregated, By, Compare, Exists, Form, Ref, Value
from tests.sql.form.worlds import link, table

WORLD = Catalog(
    "random",
    (
        table("lands", "id name", "id"),
        table("shops", "id land_id kind", "id"),
        table("sales", "id shop_id amount tag", "id"),
        table("costs", "id shop_id amount tag", "id"),
        table("tags", "id word", "id"),
        table("tagged", "shop_id tag_id", "shop_id tag_id"),
    ),
    (
        link("shop_land", "shops", "land_id", "lands", "id"),
        link("sale_shop", "sales", "shop_id", "shops", "id"),
        link("cost_shop", "costs", "shop_id", "shops", "id"),
        link("tagged_shop", "tagged", "shop_id", "shops", "id"),
        link("tagged_tag", "tagged", "tag_id", "tags", "id"),
    ),
)
TYPES = {"id": "INTEGER", "name": "VARCHAR", "kind": "VARCHAR", "word": "VARCHAR", "amount": "INTEGER", "tag": "VARCHAR"}
WORDS = st.sampled_from(["a", "b", None])
KEYS = st.integers(1, 4) | st.none()


def unique(parts):
    return st.lists(parts, max_size=7, unique_by=lambda row: row[0])


ROWS = st.fixed_dictionaries(
    {
        "lands": unique(st.tuples(st.integers(1, 3), WORDS)),
        "shops": unique(st.tuples(st.integers(1, 4), KEYS, WORDS)),
        "sales": unique(st.tuples(st.integers(1, 9), KEYS, st.integers(0, 5) | st.none(), WORDS)),
        "costs": unique(st.tuples(st.integers(1, 9), KEYS, st.integers(0, 5) | st.none(), WORDS)),
        "tags": unique(st.tuples(st.integers(1, 3), WORDS)),
        "tagged": st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), max_size=6, unique=True),
    }
)
LINKS = {("sales", "shops"): "shop_id", ("costs", "shops"): "shop_id", ("shops", "lands"): "land_id"}

MEASURES = st.sampled_from(
    [
        Aggregated(agg, Ref(home, "amount"))
        for home in ("sales", "costs")
        for agg in ("sum", "count", "min", "max", "count_distinct")
    ]
    + [Aggregated("count", Ref(home, "*")) for home in ("sales", "costs", "shops")]
)
GROUPS = st.sampled_from([By(Ref("lands", "name")), By(Ref("shops", "kind")), By(Ref("shops", "id"))])
HAS = st.sampled_from([None, Exists("sales"), Exists("sales", negated=True), Exists("costs", count=(">=", 2)), Exists("tags")])


class Rows:
    """Rows as dictionaries, and the one row that another points at."""

    def __init__(self, data):
        self.tables = {}
        for dataset in WORLD.datasets:
            names = [field.name for field in dataset.fields]
            self.tables[dataset.name] = [dict(zip(names, row, strict=True)) for row in data[dataset.name]]

    def follow(self, home, row, goal):
        """The row of `goal` that a row of `home` leads to, or None."""
        if home == goal or row is None:
            return row
        step = {"sales": "shops", "costs": "shops", "shops": "lands"}[home]
        key = row[LINKS[home, step]]
        return self.follow(step, next((one for one in self.tables[step] if one["id"] == key), None), goal)

    def has(self, shop, pred):
        if pred is None:
            return True
        if pred.dataset == "tags":
            linked = {one["tag_id"] for one in self.tables["tagged"] if one["shop_id"] == shop["id"]}
            found = [one for one in self.tables["tags"] if one["id"] in linked]
        else:
            found = [one for one in self.tables[pred.dataset] if one["shop_id"] == shop["id"]]
        ok = len(found) >= pred.count[1] if pred.count else bool(found)
        return ok != pred.negated


def value_of(agg, rows, field):
    if field == "*":
        return len(rows)
    values = [row[field] for row in rows if row[field] is not None]
    if agg in ("count", "count_distinct"):
        return len(set(values)) if agg == "count_distinct" else len(values)
    return {"sum": sum, "min": min, "max": max}[agg](values) if values else None


def expected(rows, measures, groups, kind):
    """Group -> values, by taking one row at a time."""
    cells = defaultdict(lambda: [[] for _ in measures])
    for number, measure in enumerate(measures):
        home = measure.of.dataset
        for row in rows.tables[home]:
            shop = rows.follow(home, row, "shops")
            if kind is not None and (shop is None or shop["kind"] != kind):
                continue
            key = tuple((rows.follow(home, row, by.ref.dataset) or defaultdict(lambda: None))[by.ref.field] for by in groups)
            cells[key][number].append(row)
    if not groups:
        cells.setdefault((), [[] for _ in measures])
    found = {
        key: [value_of(m.agg, part, m.of.field) for m, part in zip(measures, parts, strict=True)] for key, parts in cells.items()
    }
    return {(*key, *values) for key, values in found.items()}


def load(data):
    connection = duckdb.connect(":memory:")
    for dataset in WORLD.datasets:
        columns = ", ".join(f"{field.name} {TYPES.get(field.name, 'INTEGER')}" for field in dataset.fields)
        connection.execute(f"CREATE TABLE {dataset.name} ({columns})")
        if data[dataset.name]:
            marks = ", ".join("?" * len(dataset.fields))
            connection.executemany(f"INSERT INTO {dataset.name} VALUES ({marks})", data[dataset.name])
    return connection


@settings(max_examples=120, deadline=None)
@given(ROWS, st.lists(MEASURES, min_size=1, max_size=4), st.lists(GROUPS, max_size=2, unique=True), st.sampled_from([None, "a"]))
def test_groups_are_those_of_a_plain_evaluator(data, measures, groups, kind):
    where = () if kind is None else (Compare(Ref("shops", "kind"), "=", (Value(kind),)),)
    form = Form("sales", measures=tuple(measures), by=tuple(groups), where=where)
    with load(data) as connection:
        found = connection.execute(lower_form(form, WORLD).sql).fetchall()
    assert len(found) == len(set(found))
    assert set(found) == expected(Rows(data), measures, groups, kind)


LINKED = st.fixed_dictionaries(
    {
        "lands": st.just([]),
        "sales": st.just([]),
        "costs": st.just([]),
        "shops": st.tuples(KEYS, KEYS).map(lambda lands: [(1, lands[0], "a"), (2, lands[1], "b")]),
        "tags": st.tuples(WORDS, WORDS, WORDS).map(lambda words: list(enumerate(words, 1))),
        "tagged": st.lists(st.tuples(st.integers(1, 2), st.integers(1, 4)), max_size=8, unique=True),
    }
)


@settings(max_examples=80, deadline=None)
@given(LINKED, st.sampled_from(["sum", "count", "min", "avg"]), st.booleans())
def test_each_row_counts_once_a_group_over_a_bridge(data, agg, grouped):
    """Shops by the words of their tags: a shop with two tags of one word is in that group once."""
    measure = Aggregated(agg, Ref("shops", "land_id"))
    form = Form("shops", measures=(measure,), by=(By(Ref("tags", "word")),) if grouped else ())
    rows = Rows(data)
    cells = defaultdict(list)
    for shop in rows.tables["shops"]:
        linked = {one["tag_id"] for one in rows.tables["tagged"] if one["shop_id"] == shop["id"]}
        # a link to a tag that does not exist leads to no word, as no link does
        words = {next((tag["word"] for tag in rows.tables["tags"] if tag["id"] == one), None) for one in linked} or {None}
        for word in words if grouped else {None}:
            cells[word].append(shop)
    if agg == "avg":
        plain = {word: [one["land_id"] for one in shops if one["land_id"] is not None] for word, shops in cells.items()}
        want = {(word, sum(values) / len(values) if values else None) for word, values in plain.items()}
    else:
        want = {(word, value_of(agg, shops, "land_id")) for word, shops in cells.items()}
    if not grouped:
        want = {(value,) for _, value in want} or {(0 if agg == "count" else None,)}
    with load(data) as connection:
        assert set(connection.execute(lower_form(form, WORLD).sql).fetchall()) == want


@settings(max_examples=80, deadline=None)
@given(ROWS, HAS)
def test_rows_that_have_others_are_each_there_once(data, pred):
    form = Form("shops", show=(Ref("shops", "id"), Ref("lands", "name")), where=() if pred is None else (pred,))
    rows = Rows(data)
    want = [
        (shop["id"], (rows.follow("shops", shop, "lands") or {"name": None})["name"])
        for shop in rows.tables["shops"]
        if rows.has(shop, pred)
    ]
    with load(data) as connection:
        found = connection.execute(lower_form(form, WORLD).sql).fetchall()
    assert sorted(found, key=str) == sorted(want, key=str)
