"""The small worlds of the Foundation draft's vectors: catalogues as values, and their rows in DuckDB.

The names F-… are those of the vectors' catalogue (Apache Ossie, compliance/foundation, Apache-2.0); the rows are theirs.
"""

from __future__ import annotations

import duckdb

from router.catalog import Catalog, Dataset, DatasetField, Metric, Relationship


def fields(text: str, **extra: str) -> tuple[DatasetField, ...]:
    plain = [DatasetField(name, name) for name in text.split()]
    return (*plain, *(DatasetField(name, expression) for name, expression in extra.items()))


def table(name: str, columns: str, key: str, **extra: str) -> Dataset:
    return Dataset(name, f"main.{name}", fields(columns, **extra), tuple(key.split()))


def link(name: str, one: str, column: str, other: str, key: str) -> Relationship:
    return Relationship(name, one, other, tuple(column.split()), tuple(key.split()))


def metrics(**named: str) -> tuple[Metric, ...]:
    return tuple(Metric(name, expression) for name, expression in named.items())


CUSTOMERS = table("customers", "id region segment", "id")
ORDERS = table("orders", "id customer_id status amount", "id")
RETURNS = table("returns", "id customer_id amount", "id")
PREMIUM = table("premium_customers", "id", "id")
TO_CUSTOMER = (
    link("orders_to_customer", "orders", "customer_id", "customers", "id"),
    link("returns_to_customer", "returns", "customer_id", "customers", "id"),
)

F_PRELUDE = Catalog("f_prelude", (CUSTOMERS, ORDERS, RETURNS, PREMIUM), TO_CUSTOMER)
F_BRIDGE = Catalog(
    "f_bridge",
    (
        table("actors", "actor_id name height", "actor_id"),
        table("movies", "movie_id title gross", "movie_id"),
        table("appearances", "actor_id movie_id", "actor_id movie_id"),
    ),
    (
        link("app_to_actor", "appearances", "actor_id", "actors", "actor_id"),
        link("app_to_movie", "appearances", "movie_id", "movies", "movie_id"),
    ),
)
F_BRIDGE_NONE = Catalog("f_bridge_none", F_BRIDGE.datasets[:2])
F_AMBIG = Catalog(
    "f_ambig",
    (table("orders", "id placed_by_id fulfilled_by_id amount", "id"), table("users", "id region", "id")),
    (
        link("order_placed_by", "orders", "placed_by_id", "users", "id"),
        link("order_fulfilled_by", "orders", "fulfilled_by_id", "users", "id"),
    ),
)
F_NOPATH = Catalog(
    "f_nopath",
    (
        table("orders", "id customer_id amount", "id"),
        table("inventory_movements", "movement_id warehouse_id quantity", "movement_id"),
        table("customers", "id name region", "id"),
        table("weather_observations", "id station_id observation_date temperature", "id"),
    ),
)
F_CHAIN = Catalog(
    "f_chain",
    (
        table("segments", "id name", "id"),
        table("customers", "id segment_id region", "id"),
        table("orders", "id customer_id amount status", "id"),
        table("order_lines", "id order_id sku qty price", "id"),
    ),
    (
        link("cust_to_segment", "customers", "segment_id", "segments", "id"),
        link("ord_to_cust", "orders", "customer_id", "customers", "id"),
        link("line_to_order", "order_lines", "order_id", "orders", "id"),
    ),
)
F_COMPOSITE = Catalog(
    "f_composite",
    (
        table("inventory", "store_id sku stock_level reorder_point", "store_id sku"),
        table("sales", "id store_id sku qty sale_ts", "id"),
    ),
    (link("sales_to_inv", "sales", "store_id sku", "inventory", "store_id sku"),),
)
F_REFLEXIVE = Catalog(
    "f_reflexive",
    (table("employees", "id name manager_id region", "id"),),
    (link("reports_to", "employees", "manager_id", "employees", "id"),),
)

_CUSTOMER_ROWS = "(1, 'EAST', 'retail'), (2, 'EAST', 'retail'), (3, 'WEST', 'wholesale'), (4, 'NORTH', 'retail')"
_ORDER_ROWS = "(101, 1, 100, 'completed'), (102, 1, 50, 'completed'), (103, 2, 200, 'pending'), (104, 3, 75, 'completed'), (105, 99, 30, 'completed')"
_PRELUDE = f"""
CREATE TABLE customers (id INTEGER, region VARCHAR, segment VARCHAR); INSERT INTO customers VALUES {_CUSTOMER_ROWS};
CREATE TABLE orders (id INTEGER, customer_id INTEGER, amount DECIMAL(10, 2), status VARCHAR); INSERT INTO orders VALUES {_ORDER_ROWS};
CREATE TABLE returns (id INTEGER, customer_id INTEGER, amount DECIMAL(10, 2));
INSERT INTO returns VALUES (201, 1, 10), (202, 3, 5), (203, 4, 15);
CREATE TABLE premium_customers (id INTEGER); INSERT INTO premium_customers VALUES (1), (3);
"""
_BRIDGE = """
CREATE TABLE actors (actor_id INTEGER, name VARCHAR, height INTEGER);
INSERT INTO actors VALUES (1, 'Alice', 170), (2, 'Bob', 170), (3, 'Carol', 180);
CREATE TABLE movies (movie_id INTEGER, title VARCHAR, gross DECIMAL(10, 2));
INSERT INTO movies VALUES (10, 'Action', 100), (11, 'Drama', 200), (12, 'Comedy', 50);
CREATE TABLE appearances (actor_id INTEGER, movie_id INTEGER); INSERT INTO appearances VALUES (1, 10), (1, 11), (2, 10), (3, 12);
"""
SCRIPTS = {
    "f_prelude": _PRELUDE,
    "f_bridge": _BRIDGE,
    "f_bridge_none": _BRIDGE,
    "f_ambig": """
CREATE TABLE users (id INTEGER, region VARCHAR); INSERT INTO users VALUES (1, 'EAST'), (2, 'WEST');
CREATE TABLE orders (id INTEGER, placed_by_id INTEGER, fulfilled_by_id INTEGER, amount DECIMAL(10, 2));
INSERT INTO orders VALUES (301, 1, 2, 100), (302, 2, 2, 50);
""",
    "f_nopath": "",
    "f_chain": """
CREATE TABLE segments (id INTEGER, name VARCHAR); INSERT INTO segments VALUES (1, 'retail'), (2, 'wholesale'), (3, 'partner');
CREATE TABLE customers (id INTEGER, segment_id INTEGER, region VARCHAR);
INSERT INTO customers VALUES (1, 1, 'EAST'), (2, 1, 'WEST'), (3, 2, 'EAST'), (4, 3, 'WEST');
CREATE TABLE orders (id INTEGER, customer_id INTEGER, amount DECIMAL(10, 2), status VARCHAR);
INSERT INTO orders VALUES (1001, 1, 100, 'completed'), (1002, 2, 200, 'completed'), (1003, 3, 300, 'pending'), (1004, 4, 50, 'completed');
CREATE TABLE order_lines (id INTEGER, order_id INTEGER, sku VARCHAR, qty INTEGER, price DECIMAL(10, 2));
INSERT INTO order_lines VALUES (5001, 1001, 'A', 2, 25), (5002, 1001, 'B', 1, 50), (5003, 1002, 'A', 4, 25), (5004, 1003, 'C', 3, 100),
  (5005, 1004, 'B', 1, 50);
""",
    "f_composite": """
CREATE TABLE inventory (store_id INTEGER, sku VARCHAR, stock_level INTEGER, reorder_point INTEGER);
INSERT INTO inventory VALUES (1, 'A', 100, 20), (1, 'B', 50, 10), (2, 'A', 30, 15), (2, 'C', 80, 25);
CREATE TABLE sales (id INTEGER, store_id INTEGER, sku VARCHAR, qty INTEGER, sale_ts TIMESTAMP);
INSERT INTO sales VALUES (10, 1, 'A', 5, '2026-01-01 10:00:00'), (11, 1, 'A', 3, '2026-01-02 11:00:00'),
  (12, 1, 'B', 2, '2026-01-02 12:00:00'), (13, 2, 'A', 4, '2026-01-03 09:00:00'), (14, 2, 'C', 1, '2026-01-03 14:00:00');
""",
    "f_reflexive": """
CREATE TABLE employees (id INTEGER, name VARCHAR, manager_id INTEGER, region VARCHAR);
INSERT INTO employees VALUES (1, 'Alice', NULL, 'EAST'), (2, 'Bob', 1, 'EAST'), (3, 'Carol', 1, 'WEST'), (4, 'Dave', 2, 'EAST'),
  (5, 'Eve', 2, 'EAST'), (6, 'Frank', 3, 'WEST');
""",
}


def run(sql: str, world: str, extra: str = "") -> list[tuple[object, ...]]:
    """The rows of a compiled text over a world's own tables."""
    with duckdb.connect(":memory:") as connection:
        connection.execute(SCRIPTS[world] + extra or "SELECT 1")
        return connection.execute(sql).fetchall()
