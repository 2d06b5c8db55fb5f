"""Models and their faults, and the part of a model that exists for a caller."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.catalog import Metric
from router.domain import ColumnGrant, TableGrant
from router.errors import Refused
from router.filters import Always
from router.sql.check import check_catalog, check_document, narrow
from router.sql.compile import lower_form
from router.sql.expressions import expand_field, expand_metric, parse_expression, reads
from router.sql.form import STAR, Aggregated, By, Form, Ref
from tests.sql.form.vectors import fields, metric
from tests.sql.form.worlds import F_BRIDGE, F_CHAIN, F_PRELUDE, link


def grant(name, columns, masked=()):
    granted = tuple(ColumnGrant(column, "'***'" if column in masked else None) for column in columns)
    return TableGrant(name, f"main.{name}", granted, Always(), (), None, ())


def codes(catalog):
    return {fault.code for fault in check_catalog(catalog)}


def test_worlds_have_no_fault():
    assert check_catalog(F_PRELUDE) == check_catalog(F_BRIDGE) == check_catalog(F_CHAIN) == ()
    assert check_document({"semantic_model": [{"name": "m", "datasets": [{"name": "d", "fields": []}]}]}) == ()


def test_circles_are_refused():
    assert codes(fields(F_PRELUDE, "orders", a="b + 1", b="a + 1")) == {"E_FIELD_DEPENDENCY_CYCLE"}
    assert codes(metric(F_PRELUDE, a="b + 1", b="a + 1")) == {"E_FIELD_DEPENDENCY_CYCLE"}
    across = fields(fields(F_PRELUDE, "orders", a="customers.b"), "customers", b="orders.a")
    assert codes(across) == {"E_FIELD_DEPENDENCY_CYCLE"}


@pytest.mark.parametrize(
    ("catalog", "code"),
    [
        (replace(F_PRELUDE, metrics=(Metric("orders", "COUNT(*)"),)), "E_NAME_COLLISION"),
        (replace(F_PRELUDE, metrics=(Metric("a", "COUNT(*)"), Metric("A", "COUNT(*)"))), "E_NAME_COLLISION"),
        (fields(F_PRELUDE, "orders", AMOUNT="1"), "E_NAME_COLLISION"),
        (fields(F_PRELUDE, "orders", query_filter="1"), "E_RESERVED_NAME"),
        (fields(F_PRELUDE, "orders", x="customers.nothing"), "E_NAME_NOT_FOUND"),
        (fields(F_PRELUDE, "orders", x="nowhere.id"), "E_NAME_NOT_FOUND"),
        (fields(F_PRELUDE, "orders", x="returns.id"), "E3012_MN_NO_SAFE_REWRITE"),
        (fields(F_PRELUDE, "orders", x="premium_customers.id"), "E_NO_PATH"),
        (metric(F_PRELUDE, x="SUM(orders.nothing)"), "E_NAME_NOT_FOUND"),
        (metric(F_PRELUDE, x="nothing / 2"), "E_NAME_NOT_FOUND"),
        (metric(F_PRELUDE, x="SUM("), "E_EXPRESSION"),
        (metric(F_PRELUDE, x="(SELECT 1)"), "E_EXPRESSION"),
        (metric(F_PRELUDE, x="SUM(orders.id); DROP TABLE orders"), "E_EXPRESSION"),
        (metric(F_PRELUDE, x="SUM(orders.id) AS total"), "E_EXPRESSION"),
        (metric(F_PRELUDE, x="SUM($1)"), "E_EXPRESSION"),
        (replace(F_PRELUDE, relationships=(link("r", "orders", "customer_id", "nowhere", "id"),)), "E_NAME_NOT_FOUND"),
        (replace(F_PRELUDE, relationships=(link("r", "orders", "customer_id id", "customers", "id"),)), "E_RELATIONSHIP_KEYS"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fault_of_a_model(catalog, code):
    assert codes(catalog) == {code}


def test_expression_that_is_too_long_or_deep():
    for text in ("1 + " * 1_000 + "1", "(" * 900 + "1" + ")" * 900):
        with pytest.raises(Refused) as caught:
            parse_expression(text)
        assert caught.value.code == "E_EXPRESSION"


RICH = metric(
    fields(F_PRELUDE, "orders", big="amount > 100", where_from="customers.region"),
    revenue="SUM(orders.amount)",
    people="COUNT(DISTINCT orders.customer_id)",
    per_head="revenue / people",
)


def test_what_is_hidden_or_masked_does_not_exist():
    own = narrow(
        RICH, (grant("orders", ["id", "customer_id", "status", "amount"], masked=["amount"]), grant("customers", ["id"]))
    )
    assert [dataset.name for dataset in own.datasets] == ["customers", "orders"]
    assert [field.name for field in own.dataset("orders").fields] == ["id", "customer_id", "status"]
    assert [one.name for one in own.metrics] == ["people"]
    assert [one.name for one in own.relationships] == ["orders_to_customer"]
    for form in (
        Form("orders", show=(Ref("orders", "amount"),)),
        Form("orders", measures=(Aggregated("sum", Ref("orders", "amount")),)),
        Form("returns", measures=(Aggregated("count", Ref("returns", "*")),)),
        Form("orders", show=(Ref("customers", "region"),)),
    ):
        with pytest.raises(Refused) as caught:
            lower_form(form, own)
        assert caught.value.code == "E_NAME_NOT_FOUND"


def test_hidden_key_takes_the_relationship_with_it():
    own = narrow(RICH, (grant("orders", ["id", "amount"]), grant("customers", ["id", "region"])))
    assert own.relationships == ()
    with pytest.raises(Refused) as caught:
        lower_form(
            Form("orders", measures=(Aggregated("sum", Ref("orders", "amount")),), by=(By(Ref("customers", "region")),)), own
        )
    assert caught.value.code == "E_NO_PATH"


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_narrowed_catalogue_reads_only_what_is_granted(data):
    grants = []
    for dataset in data.draw(st.lists(st.sampled_from(RICH.datasets), unique=True)):
        columns = data.draw(
            st.lists(
                st.sampled_from([field.expression for field in dataset.fields if field.name == field.expression]), unique=True
            )
        )
        masked = data.draw(st.lists(st.sampled_from(columns), unique=True)) if columns else []
        grants.append(grant(dataset.name, columns, masked))
    own = narrow(RICH, tuple(grants))
    raw = {(one.name, column.name) for one in grants for column in one.columns if column.mask is None}
    raw |= {(one.name, STAR) for one in grants}
    for dataset in own.datasets:
        keys = {(dataset.name, column) for column in dataset.primary_key}
        assert keys | {pair for field in dataset.fields for pair in reads(expand_field(own, dataset, field))} <= raw
    for one in own.metrics:
        assert reads(expand_metric(own, one.name)) <= raw
    for one in own.relationships:
        assert {(one.from_dataset, column) for column in one.from_columns} <= raw
