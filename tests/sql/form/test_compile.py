"""Forms compiled and run: what is counted, what is refused, and what the text must hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.errors import Refused
from router.sql.compile import lower_form
from router.sql.form import AgainstAll, Aggregated, AnyOf, By, Compare, Exists, Form, Having, Label, Named, Order, Ref, Value
from tests.sql.form.worlds import F_AMBIG, F_BRIDGE, F_CHAIN, F_PRELUDE, F_REFLEXIVE, metrics, run

REGION = By(Ref("customers", "region"))
REVENUE = Aggregated("sum", Ref("orders", "amount"))
RETURNED = Aggregated("sum", Ref("returns", "amount"))
ORDERS_COUNT = Aggregated("count", Ref("orders", "*"))
CUSTOMERS_COUNT = Aggregated("count", Ref("customers", "*"))


def equal(dataset, field, value):
    return Compare(Ref(dataset, field), "=", (Value(value),))


def rows(form, catalog=F_PRELUDE, extra="", **options):
    compiled = lower_form(form, catalog, **options)
    return sorted(run(compiled.sql, catalog.name, extra), key=lambda row: [(value is None, str(value)) for value in row])


def ordered(form, catalog=F_PRELUDE):
    return run(lower_form(form, catalog).sql, catalog.name)


def refused(form, catalog=F_PRELUDE, **options):
    with pytest.raises(Refused) as caught:
        lower_form(form, catalog, **options)
    return caught.value


def test_text_is_stable():
    form = Form("orders", measures=(REVENUE, CUSTOMERS_COUNT), by=(REGION,), where=(equal("customers", "segment", "retail"),))
    assert {lower_form(form, F_PRELUDE).sql for _ in range(5)} == {lower_form(form, F_PRELUDE).sql}


def test_rows_of_one_dataset_with_what_is_known_of_each():
    form = Form("orders", show=(Ref("orders", "id"), Ref("customers", "region")), where=(equal("orders", "status", "completed"),))
    assert rows(form) == [(101, "EAST"), (102, "EAST"), (104, "WEST"), (105, None)]


def test_condition_on_the_many_side_repeats_nothing():
    completed = Exists("orders", (equal("orders", "status", "completed"),))
    assert rows(Form("customers", measures=(CUSTOMERS_COUNT,), where=(completed,))) == [(2,)]
    assert rows(Form("customers", show=(Ref("customers", "id"),), where=(replace(completed, negated=True),))) == [(2,), (4,)]
    many = Exists("orders", count=(">=", 2))
    assert rows(Form("customers", show=(Ref("customers", "id"),), where=(many,))) == [(1,)]
    none = Exists("orders", count=("<", 1))
    assert rows(Form("customers", show=(Ref("customers", "id"),), where=(none,))) == [(4,)]


def test_has_over_a_bridge_and_up_a_chain():
    action = Exists("movies", (equal("movies", "title", "Action"),))
    assert rows(Form("actors", show=(Ref("actors", "name"),), where=(action,)), F_BRIDGE) == [("Alice",), ("Bob",)]
    two = Exists("movies", count=("=", 2))
    assert rows(Form("actors", show=(Ref("actors", "name"),), where=(two,)), F_BRIDGE) == [("Alice",)]
    again = "INSERT INTO appearances VALUES (2, 10), (2, 10);"
    assert rows(Form("actors", show=(Ref("actors", "name"),), where=(two,)), F_BRIDGE, extra=again) == [("Alice",)]
    lines = Exists("order_lines", (equal("order_lines", "sku", "B"),))
    assert rows(Form("customers", show=(Ref("customers", "id"),), where=(lines,)), F_CHAIN) == [(1,), (4,)]
    retail = Exists("segments", (equal("segments", "name", "retail"),))
    assert rows(Form("orders", show=(Ref("orders", "id"),), where=(retail,)), F_CHAIN) == [(1001,), (1002,)]
    managers = Exists("employees", count=(">", 1))
    assert rows(Form("employees", show=(Ref("employees", "name"),), where=(managers,)), F_REFLEXIVE) == [("Alice",), ("Bob",)]


def test_role_chooses_between_two_ways():
    by = By(Ref("users", "region", ("order_fulfilled_by",)))
    assert rows(Form("orders", measures=(ORDERS_COUNT,), by=(by,)), F_AMBIG) == [("WEST", 2)]
    manager = By(Ref("employees", "name", ("reports_to",)))
    count = Aggregated("count", Ref("employees", "*"))
    found = rows(Form("employees", measures=(count,), by=(manager,)), F_REFLEXIVE)
    assert found == [("Alice", 2), ("Bob", 2), ("Carol", 1), (None, 1)]


def test_above_the_average_is_of_all_rows():
    above = AgainstAll(Ref("orders", "amount"), ">", "avg")
    assert rows(Form("orders", show=(Ref("orders", "id"),), where=(above,))) == [(101,), (103,)]


def test_either_of_two_conditions():
    either = AnyOf((equal("orders", "status", "pending"), Compare(Ref("orders", "amount"), "<", (Value(40),))))
    assert rows(Form("orders", show=(Ref("orders", "id"),), where=(either,))) == [(103,), (105,)]


def test_order_is_total_and_a_cut_repeatable():
    form = Form("orders", show=(Ref("orders", "status"),), order=(Order(By(Ref("orders", "status"))),), limit=2)
    assert '"orders"."id" ASC NULLS LAST LIMIT 2' in lower_form(form, F_PRELUDE).sql
    top = Form("orders", measures=(REVENUE,), by=(REGION,), order=(Order(REVENUE, descending=True),), limit=1)
    assert ordered(top) == [("EAST", 350)]
    by_count = Form("orders", by=(REGION,), order=(Order(ORDERS_COUNT, descending=True),))
    assert ordered(by_count)[0] == ("EAST",)


def test_having_over_one_and_over_several_datasets():
    big = Having(REVENUE, ">", Value(60))
    assert rows(Form("orders", measures=(REVENUE,), by=(REGION,), having=(big,))) == [("EAST", 350), ("WEST", 75)]
    both = Form("orders", measures=(REVENUE, RETURNED), by=(REGION,), having=(big,))
    assert rows(both) == [("EAST", 350, 10), ("WEST", 75, 5)]


def test_no_join_multiplies_a_measure():
    with_metric = replace(
        F_PRELUDE, metrics=metrics(net="SUM(orders.amount) - SUM(returns.amount)", paid="COUNT(DISTINCT orders.customer_id)")
    )
    both = Form("orders", measures=(Named("net"), Named("paid"), CUSTOMERS_COUNT), by=(REGION,))
    assert rows(both, with_metric) == [("EAST", 340, 2, 2), ("NORTH", None, 0, 1), ("WEST", 70, 1, 1), (None, None, 1, 0)]


def test_dataset_itself_is_grouped_by_its_label_and_key():
    labelled = replace(F_BRIDGE, datasets=(replace(F_BRIDGE.datasets[0], label="name"), *F_BRIDGE.datasets[1:]))
    form = Form("movies", measures=(Aggregated("sum", Ref("movies", "gross")),), by=(Label("actors"),))
    compiled = lower_form(form, labelled)
    assert compiled.columns == ("name", "actor_id", "sum_gross")
    assert rows(form, labelled) == [("Alice", 1, 300), ("Bob", 2, 100), ("Carol", 3, 50)]


@pytest.mark.parametrize(
    "text",
    [
        "o'Brien",
        "'; DROP TABLE orders; --",
        "\\",
        '"',
        "--",
        "/*",
        "$1",
        "?",
        "%_",
        "é\u202e",
        "''",
        "\x1b[31m",
        "\\x1b\x1b'\x9b",
        "\r\n",
    ],
)
def test_literals_are_never_sql(text):
    form = Form("orders", show=(Ref("orders", "id"),), where=(equal("orders", "status", text),))
    extra = "INSERT INTO orders VALUES (900, 1, 1, '" + text.replace("'", "''") + "');"
    assert rows(form, extra=extra) == [(900,)]
    for op in ("contains", "starts", "ends"):
        part = replace(form, where=(Compare(Ref("orders", "status"), op, (Value(text.upper()),)),))
        assert rows(part, extra=extra) == [(900,)]


def test_small_groups_do_not_appear():
    least = {"orders": 2}
    assert rows(Form("orders", measures=(REVENUE,), by=(REGION,)), min_group=least) == [("EAST", 350)]
    both = Form("orders", measures=(ORDERS_COUNT, RETURNED), by=(REGION,))
    assert rows(both, min_group=least) == [("EAST", 3, 10), ("NORTH", None, 15), ("WEST", None, 5)]
    people = Form("orders", measures=(REVENUE,), by=(REGION,))
    assert rows(people, min_group={"customers": 2}) == [("EAST", 350)]
    assert refused(Form("orders", show=(Ref("orders", "id"),)), min_group=least).code == "form_min_group"
    assert refused(Form("orders", show=(Ref("customers", "region"),)), min_group={"customers": 2}).code == "form_min_group"
    assert (
        refused(Form("customers", measures=(CUSTOMERS_COUNT,), where=(Exists("orders"),)), min_group=least).code
        == "form_min_group"
    )


def test_small_groups_are_not_asked_after_one_by_one():
    """Nor inside EXISTS, where no group could be counted: not the rows themselves, and nothing that is joined to them."""
    behind = Exists("orders", (equal("customers", "region", "EAST"),))
    form = Form("customers", measures=(CUSTOMERS_COUNT,), where=(behind,))
    assert refused(form, min_group={"customers": 2}).code == "form_min_group"
    segment = Exists("orders", (equal("segments", "name", "retail"),))
    assert (
        refused(Form("customers", measures=(CUSTOMERS_COUNT,), where=(segment,)), F_CHAIN, min_group={"segments": 2}).code
        == "form_min_group"
    )
    above = Form("orders", measures=(ORDERS_COUNT,), where=(AgainstAll(Ref("orders", "amount"), ">", "avg"),))
    assert rows(above, min_group={"orders": 3}) == []
    assert "CASE WHEN count(*) >= 3 THEN avg" in lower_form(above, F_PRELUDE, min_group={"orders": 3}).sql


@pytest.mark.parametrize("agg", ["min", "max", "median"])
def test_no_single_row_stands_for_a_small_group_or_a_large_one(agg):
    """The extreme of a group is one row's own value, whether it is shown, compared or sorted by."""
    one = Aggregated(agg, Ref("orders", "amount"))
    for form in (
        Form("orders", measures=(one,), by=(REGION,)),
        Form("orders", measures=(one,)),
        Form("orders", measures=(REVENUE,), by=(REGION,), having=(Having(one, ">", Value(1)),)),
        Form("orders", measures=(REVENUE,), by=(REGION,), order=(Order(one),)),
        Form("orders", measures=(ORDERS_COUNT,), where=(AgainstAll(Ref("orders", "amount"), "=", agg),)),
    ):
        assert refused(form, min_group={"orders": 2}).code == "form_min_group"
        assert lower_form(form, F_PRELUDE).sql


def test_everything_bound_is_in_the_text():
    form = Form(
        "orders",
        measures=(REVENUE,),
        by=(REGION, By(Ref("orders", "status"))),
        where=(equal("customers", "segment", "retail"),),
        having=(Having(ORDERS_COUNT, ">", Value(0)),),
        order=(Order(REVENUE),),
        limit=7,
    )
    sql = lower_form(form, F_PRELUDE).sql
    for bound in ('"region"', '"status"', "'retail'", 'SUM("orders"."amount")', "COUNT(*) > 0", "LIMIT 7"):
        assert bound in sql
