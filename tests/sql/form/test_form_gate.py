"""Compiled text passes the gate like any other draft, and means what it says on what the caller may see."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from connectors.duckdb_tables import _Parsing
from router.catalog import Catalog
from router.domain import ColumnGrant, SqlLimits, TableGrant
from router.errors import Refused
from router.filters import Always
from router.sql import gate
from router.sql.compile import lower_form
from router.sql.parse_form import parse_form
from tests.sql.form.strategies import forms_over
from tests.sql.form.vectors import VECTORS
from tests.sql.form.worlds import F_BRIDGE, F_CHAIN, F_PRELUDE, link, metrics, table
from tests.sql.oracle import Oracle, grants

PARSING = _Parsing()
DAY = date(2024, 8, 15)


def granted(catalog):
    """Everything of a catalogue, column by column."""
    return tuple(
        TableGrant(one.name, f"main.{one.name}", tuple(ColumnGrant(field.name) for field in one.fields), Always(), (), None, ())
        for one in catalog.datasets
    )


@pytest.mark.parametrize(
    "vector", [one for one in VECTORS if one.rows is not None], ids=lambda one: f"{one.number}-{one.list}-{one.title}"
)
def test_text_of_a_vector_passes_the_gate(vector):
    compiled = lower_form(parse_form(vector.form), vector.catalog)
    governed = gate.govern(PARSING, compiled.sql, granted(vector.catalog), DAY, SqlLimits(), compiled=True)
    assert set(governed.tables) == {dataset for dataset, _ in compiled.reads} or not compiled.reads


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([F_PRELUDE, F_BRIDGE, F_CHAIN]).flatmap(lambda world: st.tuples(st.just(world), forms_over(world))))
def test_any_form_is_refused_or_passes_the_gate(asked):
    """Nothing but `Refused` leaves the compiler, and what it writes the gate can read: only size and odd characters stop there."""
    world, form = asked
    try:
        compiled = lower_form(form, world)
    except Refused as refused:
        event(refused.code)
        return
    try:
        gate.govern(PARSING, compiled.sql, granted(world), DAY, SqlLimits(), compiled=True)
    except Refused as refused:
        event(f"gate {refused.code}")
        stopped = refused.code
    else:
        event("passes")
        stopped = ""
    assert stopped in ("", "sql_characters", "sql_too_large"), compiled.sql


CLAIMS = Catalog(
    "claims",
    (
        table("claims_v", "claim_id product region depot_id claim_type status amount reported_at claimant_name", "claim_id"),
        table("approvals_v", "approval_id claim_id decision decided_at approver_title", "approval_id"),
        table("inventory_v", "item_id depot_id sku qty_on_hand reorder_point", "item_id"),
        table("depots_v", "depot_id code city region", "depot_id"),
    ),
    (
        link("approval_of", "approvals_v", "claim_id", "claims_v", "claim_id"),
        link("claim_at", "claims_v", "depot_id", "depots_v", "depot_id"),
        link("stock_of", "inventory_v", "depot_id", "depots_v", "depot_id"),
    ),
    metrics(
        approval_hours="avg(date_diff('minute', claims_v.reported_at, approvals_v.decided_at)) / 60.0",
        stocked="avg(CASE WHEN inventory_v.qty_on_hand > inventory_v.reorder_point THEN 1.0 ELSE 0.0 END)",
    ),
)
COUNT = [{"agg": "count", "of": "*"}]
OPEN_WEST = [
    {"field": "claims_v.status", "op": "=", "value": "open"},
    {"field": "claims_v.region", "op": "=", "value": "west"},
]
QUESTIONS = {
    "open claims in region west older than 30 days": (
        {
            "from": "claims_v",
            "measures": COUNT,
            "where": OPEN_WEST,
            "time": {"field": "claims_v.reported_at", "to": "2024-07-16"},
        },
        "SELECT count(*) FROM claims_v WHERE status = 'open' AND region = 'west' AND reported_at < DATE '2024-07-16'",
    ),
    "average approval time per region last quarter": (
        {
            "from": "approvals_v",
            "measures": ["approval_hours"],
            "by": ["claims_v.region"],
            "time": {"field": "approvals_v.decided_at", "from": "2024-04-01", "to": "2024-07-01"},
        },
        (
            "SELECT c.region, avg(date_diff('minute', c.reported_at, a.decided_at)) / 60.0 FROM approvals_v a LEFT JOIN claims_v c "
            "ON a.claim_id = c.claim_id WHERE a.decided_at >= DATE '2024-04-01' AND a.decided_at < DATE '2024-07-01' GROUP BY 1"
        ),
    ),
    "depots with less than half of their items above the reorder point": (
        {
            "from": "inventory_v",
            "measures": ["stocked"],
            "by": [{"label": "depots_v"}],
            "having": [{"metric": "stocked", "op": "<", "value": 0.5}],
        },
        "SELECT depot_id, avg(CASE WHEN qty_on_hand > reorder_point THEN 1.0 ELSE 0.0 END) AS s FROM inventory_v GROUP BY 1 HAVING s < 0.5",
    ),
    "top five products by amount": (
        {
            "from": "claims_v",
            "measures": [{"agg": "sum", "of": "claims_v.amount"}],
            "by": ["claims_v.product"],
            "order": [{"by": {"agg": "sum", "of": "claims_v.amount"}, "dir": "desc"}],
            "limit": 5,
        },
        "SELECT product, sum(amount) FROM claims_v GROUP BY 1 ORDER BY 2 DESC LIMIT 5",
    ),
    "claims a month": (
        {"from": "claims_v", "measures": COUNT, "by": [{"field": "claims_v.reported_at", "grain": "month"}]},
        "SELECT CAST(date_trunc('month', reported_at) AS DATE), count(*) FROM claims_v GROUP BY 1",
    ),
    "depots without claims": (
        {"from": "depots_v", "show": ["depots_v.code"], "where": [{"has": "claims_v", "not": True}]},
        "SELECT code FROM depots_v WHERE depot_id NOT IN (SELECT depot_id FROM claims_v WHERE depot_id IS NOT NULL)",
    ),
    "depots with more than ten claims": (
        {"from": "depots_v", "measures": COUNT, "where": [{"has": "claims_v", "count": {"op": ">", "n": 10}}]},
        "SELECT count(*) FROM (SELECT depot_id FROM claims_v GROUP BY 1 HAVING count(*) > 10) JOIN depots_v USING (depot_id)",
    ),
    "claims and items by depot": (
        {
            "from": "claims_v",
            "measures": [{"agg": "count", "of": "claims_v.*"}, {"agg": "count", "of": "inventory_v.*"}],
            "by": ["depots_v.city"],
        },
        (
            "SELECT city, sum(n)::BIGINT, sum(m)::BIGINT FROM (SELECT city, 1 AS n, 0 AS m FROM claims_v LEFT JOIN depots_v USING (depot_id) "
            "UNION ALL SELECT city, 0, 1 FROM inventory_v LEFT JOIN depots_v USING (depot_id)) GROUP BY 1"
        ),
    ),
    "claims above the average": (
        {
            "from": "claims_v",
            "show": ["claims_v.claim_id"],
            "where": [{"field": "claims_v.amount", "op": ">", "value": {"agg": "avg", "of": "claims_v.amount"}}],
        },
        "SELECT claim_id FROM claims_v WHERE amount > (SELECT avg(amount) FROM claims_v)",
    ),
}


@pytest.fixture(scope="module")
def copies():
    return {tenant: Oracle(tenant) for tenant in (1, 2, 3)}


@pytest.mark.parametrize("asked", QUESTIONS)
def test_question_answers_what_plain_sql_answers(asked, copies):
    form, plain = QUESTIONS[asked]
    compiled = lower_form(parse_form(form), CLAIMS)
    for tenant, oracle in copies.items():
        gate.govern(PARSING, compiled.sql, grants(tenant), DAY, SqlLimits(), compiled=True)
        assert sorted(map(str, oracle.run(compiled.sql))) == sorted(map(str, oracle.run(plain)))
