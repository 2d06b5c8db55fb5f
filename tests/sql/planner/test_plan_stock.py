"""Pieces in stock: added up, there, or gone; and only where the catalogue calls a number so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.sql.planner import Index, build_index
from router.sql.reading import read_form
from tests.sql.planner.shop_world import CATALOG, VALUES, asks, field, read

READ = [
    ("How many walnut tables do we have in Graz?",
     'I compute the sum of units in stock where name is "walnut table" (walnut tables) and city of shops is "Graz"'),
    ("How many pieces of desk lamp are there?", 'I compute the sum of units in stock where name is "desk lamp"'),
    ("How many units of desk lamp are in stock?", 'I compute the sum of units in stock where name is "desk lamp"'),
    ("How many desk lamps are left?", 'I compute the sum of units in stock where name is "desk lamp" (desk lamps)'),
    ("How many pieces of furniture do we have per shop?",
     'I compute the sum of units in stock for each city of shops and each shop id where category is "furniture"'),
    ("Number of pieces of furniture in Lyon",
     'I compute the sum of units in stock where category is "furniture" and city of shops is "Lyon"'),
    ("Which articles are out of stock?", "I list name, product id of products where units in stock is at most 0 (out of stock)"),
    ("Which articles of category lighting are sold out?",
     'I list name, product id of products where category is "lighting" and units in stock is at most 0 (sold out)'),
    ("How many articles are in stock in Graz?",
     'I count products where units in stock is more than 0 (in stock) and city of shops is "Graz"'),
    ("Which shops have desk lamps in stock?",
     'I list city, shop id of shops where there is a row of products where name is "desk lamp" (desk lamps) and units in stock is more than 0 (in stock)'),
    ("How many articles are not in stock?", "I count products where units in stock is at most 0 (not in stock)"),
    ("Which article has the least stock?",
     "I list name, product id, units in stock of products, ordered by units in stock, missing ones last, only the first 1"),
    ("Which category has the biggest stock?",
     "I compute the sum of units in stock for each category, ordered by sum of units in stock, highest first, only the first 1"),
    ("What is the lowest stock of desk lamps?", 'I compute the least units in stock where name is "desk lamp" (desk lamps)'),
    ("Which article has the most weight?",
     "I list name, product id, weight of products, ordered by weight, highest first, missing ones last, only the first 1"),
    ("Which order has the least amount?",
     "I list order id, amount of orders, ordered by amount, missing ones last, only the first 1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "meant"), READ, ids=[text for text, _ in READ])
def test_read_as_meant(text, meant):
    assert read_form(read(text), "") == meant


LEAST, MOST = "least lowest smallest fewest".split(), "most highest biggest largest greatest".split()


@pytest.mark.parametrize("said", [*LEAST, *MOST])
@pytest.mark.parametrize("named", ["stock", "units in stock"])
def test_the_least_stock_is_of_pieces(said, named):
    """Over all rows that a shop has of it, and over no number of rows."""
    way = ("", " (what has none at all is not among them)") if said in LEAST else (", highest first", "")
    meant = f"ordered by sum of units in stock{way[0]}, only the first 1{way[1]}"
    shops = "I compute the sum of units in stock for each city of shops and each shop id"
    assert read_form(read(f"Which shop has the {said} {named}?"), "") == f"{shops}, {meant}"
    lamps = f'{shops} where name is "desk lamp" (desk lamps), {meant}'
    assert read_form(read(f"Which shop has the {said} {named} of desk lamps?"), "") == lamps


@pytest.mark.parametrize(
    "text",
    [
        "Which shop has the least stock of desk lamps in 2025?",
        "Which shop had the most stock?",
        "Which clerk has the most stock?",
        "Which shop has the most articles of desk lamp?",
        "How many desk lamps were sold?",
        "How many desk lamps were ordered in 2025?",
        "How many desk lamps are late?",
        "How many desk lamps have a price over 3?",
        "How many desk lamps are not in stock?",
        "How many desk lamps will we have?",
        "How many desk lamps should we have in Graz?",
        "How many desk lamps did we have?",
        "How many desk lamps were there in 2025?",
        "How many desk lamps do we have in 2025?",
        "How many desk lamps and walnut tables do we have?",
        "How many units do we have?",
        "How many pieces of stock do we have?",
        "How many pieces of orders are there?",
        "How many pieces of late are there?",
        "Which orders are out of stock?",
        "Which clerks are in stock?",
        "How many articles were in stock in 2025?",
        "Which articles were out of stock last month?",
        "Which articles were out of stock?",
        "Which articles are not out of stock?",
        "Which articles are almost out of stock?",
    ],
)
def test_near_misses_stay_asked_back(text):
    asks(text)


def test_without_one_number_that_is_called_a_stock_nothing_is_added_up():
    products = CATALOG.datasets[0]
    sold = tuple(
        replace(one, name="units_sold", expression="units_sold") if one.name == "units_in_stock" else one
        for one in products.fields
    )
    two = (*products.fields, field("quantity_on_hand", "Integer"))
    for fields in (sold, two):
        index = build_index(
            replace(CATALOG, datasets=(replace(products, fields=fields), *CATALOG.datasets[1:]), metrics=()), VALUES
        )
        asks("How many pieces of desk lamp are there?", index)
        asks("Which articles are out of stock?", index)


def named_stock(fields) -> Index:
    """The shop where rows of products are called its stock."""
    called = replace(CATALOG.datasets[0], synonyms=("article", "stock", "inventory"), fields=fields)
    return build_index(replace(CATALOG, datasets=(called, *CATALOG.datasets[1:]), metrics=()), VALUES)


def test_rows_are_no_stock():
    """Where rows are called stock, the least of it is of pieces; where pieces are not counted, or twice, nobody can tell."""
    fields = CATALOG.datasets[0].fields
    index = named_stock(fields)
    for said in ("least stock", "most stock", "least inventory", "highest inventory"):
        form = read(f"Which shop has the {said} of desk lamps?", index)
        assert "the sum of units in stock" in read_form(form, ""), said
    without = tuple(one for one in fields if one.name != "units_in_stock")
    for other in (named_stock(without), named_stock((*fields, field("quantity_on_hand", "Integer")))):
        for said in ("least stock", "most stock", "least inventory", "highest inventory"):
            asks(f"Which shop has the {said} of desk lamps?", other)
    for text in ("have no stock", "have stock", "have more than 5 stock"):
        asks(f"Which shops {text} of desk lamps?", index)
    asks("How many stock of desk lamps are there?", index)
    assert "I count products" in read_form(read("Which shop has the most articles?", index), "")
