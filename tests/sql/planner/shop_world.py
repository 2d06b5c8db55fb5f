"""A shop: another schema, in which the turns of phrase that the demonstration needs have to hold as well."""

from __future__ import annotations

from datetime import date

from router.catalog import Catalog, Dataset, DatasetField, Metric, Relationship
from router.sql.form import Compare, Form
from router.sql.planner import Abstention, StoredValues, build_index, plan_question
from router.sql.planner.index import Index, Masks

DAY = date(2026, 6, 15)


def field(name: str, datatype: str = "String", *synonyms: str, description: str = "") -> DatasetField:
    return DatasetField(name, name, datatype=datatype, is_time=datatype == "Date", synonyms=synonyms, description=description)


PRODUCTS = Dataset(
    "products",
    "main.products",
    (
        field("product_id"),
        field("name"),
        field("category"),
        field("shop_id", "Integer"),
        field("price", "Decimal", description="Price in dollars"),
        field("weight", "Float", description="Weight in kg"),
        field("units_in_stock", "Integer"),
    ),
    ("product_id",),
    synonyms=("article",),
    label="name",
)
ORDERS = Dataset(
    "orders",
    "main.orders",
    (
        field("order_id"),
        field("status"),
        field("courier"),
        field("creator"),
        field("shop_id", "Integer"),
        field("amount", "Decimal", description="What the order comes to, in dollars"),
        field("placed_on", "Date", "placed", "created"),
        field("days", "Integer", "days of delivery", "order time"),
        field("gift", "Boolean", "as a gift"),
    ),
    ("order_id",),
    label="order_id",
    time="placed_on",
)
CLERKS = Dataset(
    "clerks",
    "main.clerks",
    (
        field("clerk_id"),
        field("name"),
        field("salary", "Decimal", "wage"),
        field("telephone"),
        field("shop_id", "Integer"),
        field("started_on", "Date", "started", "joined"),
    ),
    ("clerk_id",),
    synonyms=("clerk", "shop assistant"),
    label="name",
    time="started_on",
)
SHOPS = Dataset(
    "shops", "main.shops", (field("shop_id", "Integer", "shop"), field("city"), field("owner")), ("shop_id",), label="city"
)
METRICS = (
    Metric("late_rate", "100.0 * COUNT(CASE WHEN orders.status = 'late' THEN 1 END) / COUNT(orders.order_id)", synonyms=("share of late orders",)),
    Metric("stock_value", "SUM(products.units_in_stock * products.price)", synonyms=("value of stock", "value of the articles")),
)  # fmt: skip
TIES = tuple(
    Relationship(f"{name}_of_shop", name, "shops", ("shop_id",), ("shop_id",)) for name in ("products", "orders", "clerks")
)
CATALOG = Catalog("shop", (PRODUCTS, ORDERS, CLERKS, SHOPS), TIES, METRICS)
VALUES = (
    StoredValues("products", "name", ("walnut table", "desk lamp", "fold-out bed", "chair no 7", "Smith & Sons vase")),
    StoredValues("products", "category", ("furniture", "lighting")),
    StoredValues("orders", "status", ("late", "sent", "lost")),
    StoredValues("orders", "courier", ("Swift Wheels", "Post")),
    StoredValues("shops", "city", ("Graz", "Lyon")),
)
INDEX = build_index(CATALOG, VALUES)


def masked(
    shown: tuple[tuple[str, str], ...], findable: tuple[tuple[str, str], ...] = (), rounded: tuple[tuple[str, str], ...] = ()
) -> Index:
    """The index of somebody who sees these fields as masks."""
    return build_index(CATALOG, VALUES, Masks(frozenset(shown), frozenset(findable), frozenset(rounded)))


def read(text: str, index: Index = INDEX) -> Form:
    found = plan_question(text, index, DAY)
    assert isinstance(found, Form), (text, found)
    return found


def asks(text: str, index: Index = INDEX) -> Abstention:
    found = plan_question(text, index, DAY)
    assert isinstance(found, Abstention), (text, found)
    return found


def conditions(form: Form) -> list[tuple[object, ...]]:
    return [(str(pred.ref), pred.op, *(one.value for one in pred.values)) for pred in form.where if isinstance(pred, Compare)]
