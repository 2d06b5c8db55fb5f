"""Rows that a caller may not see change nothing, not even the order of rows without ORDER BY, what LIMIT keeps, or a sum's last digit.

Two worlds hold the same rows of tenant 1; of the other tenants one has hardly any, the other very many.
"""

import json

import duckdb
import pytest

from router.app import Router
from tests.claims_world import NOW, build_claims_world

TEXTS = """
SELECT claim_id FROM claims_v
SELECT c.claim_id, i.item_id FROM claims_v c JOIN inventory_v i ON c.depot_id = i.depot_id
SELECT i.item_id, d.code FROM inventory_v i JOIN depots_v d ON i.depot_id = d.depot_id LIMIT 3
SELECT i.item_id, d.code, c.claim_id FROM inventory_v i JOIN depots_v d USING (depot_id) JOIN claims_v c USING (depot_id) LIMIT 5
SELECT d.region, count(*) FROM inventory_v i JOIN depots_v d USING (depot_id) GROUP BY d.region
SELECT d.region, first(c.claim_id) FROM claims_v c JOIN depots_v d USING (depot_id) JOIN inventory_v i USING (depot_id) GROUP BY 1
SELECT region, string_agg(claim_id) FROM claims_v GROUP BY region
SELECT DISTINCT category FROM inventory_v
SELECT a.approval_id FROM approvals_v a LEFT JOIN claims_v c USING (claim_id)
SELECT a.approval_id, c.claim_id FROM claims_v c LEFT JOIN approvals_v a USING (claim_id)
SELECT claim_id FROM claims_v WHERE depot_id IN (SELECT depot_id FROM inventory_v)
SELECT sum(amount::DOUBLE / 3), avg(amount), stddev(amount) FROM claims_v JOIN inventory_v USING (depot_id)
SELECT sum(unit_cost::DOUBLE / 3 + x.severity / 7) FROM inventory_v JOIN claims_v x USING (depot_id)
SELECT category, avg(unit_cost::DOUBLE / 3) FROM inventory_v JOIN depots_v USING (depot_id) GROUP BY ALL
SELECT item_id FROM inventory_v ORDER BY category LIMIT 5
SELECT item_id, row_number() OVER (PARTITION BY category ORDER BY depot_id) AS rn FROM inventory_v
SELECT depot_id FROM depots_v INTERSECT SELECT depot_id FROM inventory_v
SELECT depot_id FROM inventory_v UNION SELECT depot_id FROM claims_v
SELECT approx_quantile(unit_cost, 0.5), approx_count_distinct(item_id) FROM inventory_v
SELECT i.item_id, d.depot_id FROM inventory_v i, depots_v d LIMIT 5
""".strip().splitlines()


def few(con):
    for table in ("approvals", "claims", "policies_sold"):
        con.execute(f"DELETE FROM {table} WHERE tenant_id <> 1")
    many(con, "inventory", {"item_id": "1000000 + row_number() OVER ()", "sku": "sku || x::VARCHAR"}, 3_000)
    many(con, "depots", {"depot_id": "1000000 + row_number() OVER ()"}, 20_000)


def many(con, table, changed, times):
    names = [row[0] for row in con.execute(f"DESCRIBE {table}").fetchall()]
    listed = ", ".join(changed.get(name, name) for name in names)
    con.execute(f"INSERT INTO {table} SELECT {listed} FROM {table}, range({times}) t(x) WHERE tenant_id <> 1")


@pytest.fixture(scope="module")
def routers(tmp_path_factory):
    folders = [tmp_path_factory.mktemp("few"), tmp_path_factory.mktemp("many")]
    configs = [build_claims_world(folder) for folder in folders]
    with duckdb.connect(str(folders[1] / "world.duckdb")) as con:
        few(con)
    with Router.open(configs[0]) as one, Router.open(configs[1]) as other:
        one.copy_tables()
        other.copy_tables()
        yield one, other


@pytest.mark.parametrize("text", TEXTS)
def test_hidden_rows_leave_no_trace(routers, text):
    shown = []
    for router in routers:
        answer = router.ask_sql(text, token=router.mint("analyst-1"), now=NOW).as_json()
        assert answer["outcome"] == "answered"
        shown.append(json.dumps({name: answer[name] for name in ("columns", "rows", "truncated")}))
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    "text", ["How many claims per region?", "List the claims with their amount", "What is the average amount per status?"]
)
def test_neither_do_they_in_words(routers, text):
    shown = []
    for router in routers:
        answer = router.ask(text, token=router.mint("analyst-1"), now=NOW, route="sql")
        assert answer.tables, answer.clarify
        shown.append(json.dumps(answer.as_json()["tables"]))
    assert shown[0] == shown[1]
