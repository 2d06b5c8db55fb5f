"""The test vectors of the Ossie Foundation draft as this compiler meets them, and the table of them in `deploy/ossie.md`.

Two lists exist under the same numbers: the catalogue (`compliance/foundation/DATA_TESTS.md`) and the older runnable suite
(`compliance/foundation-v0.1/tests`), which uses some numbers for other things. Both are here, told apart by `list`. Models, rows
and expectations are theirs (Apache-2.0); the forms are ours. `python -m tests.sql.form.vectors` writes the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from router.catalog import Catalog, DatasetField
from tests.sql.form.worlds import (
    F_AMBIG,
    F_BRIDGE,
    F_BRIDGE_NONE,
    F_CHAIN,
    F_COMPOSITE,
    F_NOPATH,
    F_PRELUDE,
    F_REFLEXIVE,
    link,
    metrics,
)

TABLE = Path(__file__).resolve().parents[3] / "deploy" / "ossie.md"
DATA, SUITE = "catalogue", "suite"


@dataclass(frozen=True)
class Vector:
    """`rows` that must come, or the `code` of the refusal, or neither: `note` says why it does not apply.

    With `document` the model as written is checked, with `model` its meaning, else the form is compiled and run."""

    number: str
    title: str
    catalog: Catalog | None = None
    form: Any = None
    rows: tuple[tuple[Any, ...], ...] | None = None
    code: str = ""
    note: str = ""
    extra: str = ""
    ordered: bool = False
    model: bool = False
    document: Any = None
    list: str = DATA

    @property
    def verdict(self) -> str:
        return "refused" if self.code else "passes" if self.rows is not None or self.form is not None else "not applicable"


def fields(catalog: Catalog, dataset: str, **extra: str) -> Catalog:
    """The catalogue with fields added to one dataset."""
    more = tuple(DatasetField(name, expression) for name, expression in extra.items())
    datasets = tuple(replace(one, fields=(*one.fields, *more)) if one.name == dataset else one for one in catalog.datasets)
    return replace(catalog, datasets=datasets)


def metric(catalog: Catalog, **named: str) -> Catalog:
    return replace(catalog, metrics=(*catalog.metrics, *metrics(**named)))


def ask(start: str, **parts: Any) -> dict[str, Any]:
    return {"from": start, **parts}


def agg(name: str, of: str) -> dict[str, str]:
    return {"agg": name, "of": of}


REGION, HEIGHT = ["customers.region"], ["actors.height"]
REVENUE, RETURNED = agg("sum", "orders.amount"), agg("sum", "returns.amount")
COMPLETED = {"field": "orders.status", "op": "=", "value": "completed"}
BY_REGION = (("EAST", 350), ("WEST", 75), (None, 30))
BRIDGED = ((170, 300), (180, 50))
RANK = "ROW_NUMBER() OVER (PARTITION BY orders.customer_id ORDER BY orders.amount DESC, orders.id ASC)"
NULL_KEY = "INSERT INTO orders VALUES (106, NULL, 80, 'completed');"
NULL_REGION = "UPDATE customers SET region = NULL WHERE id = 4;"
LATER = "the later text (foundational_semantics.md) and the runnable suite say so; the catalogue's entry is older"


def windowed(text: str, where: Any = (), **more: Any) -> tuple[Catalog, dict[str, Any]]:
    shown = [*more.pop("show", ["orders.id"]), "orders.w"]
    return fields(F_PRELUDE, "orders", w=text), ask("orders", show=shown, where=list(where), **more)


W_NUMBER = windowed("ROW_NUMBER() OVER (PARTITION BY orders.customer_id ORDER BY orders.amount DESC)", [COMPLETED])
W_TOTAL = windowed(
    "SUM(orders.amount) OVER (PARTITION BY orders.customer_id ORDER BY orders.id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    [{"field": "orders.customer_id", "op": "not_null"}],
    show=["orders.id", "orders.customer_id", "orders.amount"],
    order=[{"by": "orders.customer_id"}, {"by": "orders.id"}],
)
W_FIRST = windowed(
    RANK, [{"field": "orders.w", "op": "=", "value": 1}], show=["orders.id", "orders.customer_id", "orders.amount"]
)
W_RANK = windowed(
    "RANK() OVER (PARTITION BY orders.customer_id ORDER BY orders.amount DESC)", show=["orders.id", "orders.customer_id"]
)
CHAINED = {"line_total": "qty * price", "discounted": "line_total * 0.9", "final_price": "discounted + 1"}
FINAL = ask("order_lines", measures=[agg("sum", "order_lines.final_price")])
TOP_ONLY = fields(
    F_PRELUDE,
    "orders",
    rank_in_customer="ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY amount DESC, id ASC)",
    top_only="CASE WHEN rank_in_customer = 1 THEN amount ELSE 0 END",
)
TAGGED = fields(F_PRELUDE, "customers", region_segment="region || ':' || segment", tagged="'rs=' || region_segment")
SECOND_WAY = replace(
    F_PRELUDE, relationships=(*F_PRELUDE.relationships, link("secondary", "returns", "customer_id", "customers", "id"))
)


def deferred(number: str, title: str, part: dict[str, Any]) -> Vector:
    return Vector(number, title, document={"name": "m", **part}, code="E_DEFERRED_KEY_REJECTED", list=SUITE)


def one_metric(**keys: Any) -> dict[str, Any]:
    return {"metrics": [{"name": "x", "expression": "SUM(orders.amount)", **keys}]}


CATALOGUE = (
    Vector("T-001", "one row a group, orphans under NULL", F_PRELUDE, ask("orders", by=REGION, measures=[REVENUE]), BY_REGION),
    Vector(
        "T-002",
        "groups and rows at once",
        F_PRELUDE,
        ask("customers", by=REGION, show=["customers.id"], measures=[REVENUE]),
        code="E_MIXED_QUERY_SHAPE",
    ),
    Vector(
        "T-003",
        "a metric among rows",
        metric(F_PRELUDE, total_revenue="SUM(orders.amount)"),
        ask("orders", show=["orders.id", "total_revenue"]),
        code="E_AGGREGATE_IN_SCALAR_QUERY",
    ),
    Vector(
        "T-004",
        "aggregate in a field",
        fields(F_PRELUDE, "customers", lifetime_value="SUM(orders.amount)"),
        model=True,
        code="E_AGGREGATE_IN_FIELD",
        note=f"deferred since: {LATER}",
    ),
    Vector(
        "T-005a",
        "sum over 1:N",
        metric(F_PRELUDE, total_order_amount="SUM(orders.amount)"),
        ask("customers", by=REGION, measures=["total_order_amount"]),
        BY_REGION,
    ),
    Vector(
        "T-005b",
        "average over 1:N",
        metric(F_PRELUDE, avg_order_amount="AVG(orders.amount)"),
        ask("customers", by=REGION, measures=["avg_order_amount"]),
        (("EAST", 116.67), ("WEST", 75), (None, 30)),
    ),
    Vector(
        "T-005c",
        "average of averages",
        metric(F_PRELUDE, nested="AVG(AVG(orders.amount))"),
        ask("customers", by=REGION, measures=["nested"]),
        code="E_NESTED_AGGREGATION_DEFERRED",
        note=f"deferred since: {LATER}",
    ),
    Vector(
        "T-005d",
        "sum of sums",
        metric(F_PRELUDE, nested="SUM(SUM(orders.amount))"),
        ask("customers", by=REGION, measures=["nested"]),
        code="E_NESTED_AGGREGATION_DEFERRED",
        note=f"the single sum is T-005a; the nested one is deferred since: {LATER}",
    ),
    Vector(
        "T-005e",
        "count distinct over 1:N",
        metric(F_PRELUDE, statuses="COUNT(DISTINCT orders.status)"),
        ask("customers", by=REGION, measures=["statuses"]),
        (("EAST", 2), ("WEST", 1), (None, 1)),
    ),
    Vector(
        "T-006",
        "count of rows under a condition",
        F_PRELUDE,
        ask("orders", by=REGION, measures=[agg("count", "*")], where=[COMPLETED]),
        (("EAST", 2), ("WEST", 1), (None, 1)),
    ),
    Vector(
        "T-007",
        "aggregate in Where",
        F_PRELUDE,
        ask("orders", by=REGION, measures=[REVENUE], where=[{**REVENUE, "op": ">", "value": 100}]),
        code="E_AGGREGATE_IN_WHERE",
    ),
    Vector(
        "T-008",
        "row condition in Having",
        F_PRELUDE,
        ask("orders", by=REGION, measures=[REVENUE], having=[{"field": "customers.region", "op": "=", "value": "EAST"}]),
        code="E_NON_AGGREGATE_IN_HAVING",
    ),
    Vector(
        "T-009",
        "rows and groups in one condition",
        F_PRELUDE,
        ask(
            "orders",
            by=REGION,
            measures=[REVENUE],
            having=[{"all": [{"field": "customers.region", "op": "=", "value": "EAST"}, {**REVENUE, "op": ">", "value": 100}]}],
        ),
        code="E_MIXED_PREDICATE_LEVEL",
    ),
    Vector("T-010", "enrichment keeps orphans", F_PRELUDE, ask("orders", by=REGION, measures=[REVENUE]), BY_REGION),
    Vector(
        "T-011",
        "two facts by what they share",
        F_PRELUDE,
        ask("orders", by=REGION, measures=[REVENUE, RETURNED]),
        (("EAST", 350, 10), ("WEST", 75, 5), ("NORTH", None, 15), (None, 30, None)),
    ),
    Vector("T-012", "grand totals of two facts", F_PRELUDE, ask("orders", measures=[REVENUE, RETURNED]), ((455, 30),)),
    Vector(
        "T-013",
        "two facts without anything shared",
        F_NOPATH,
        ask("orders", measures=[agg("sum", "orders.amount"), agg("sum", "inventory_movements.quantity")]),
        code="E3013_NO_STITCHING_DIMENSION",
    ),
    Vector(
        "T-014",
        "many to many, nothing declared",
        F_BRIDGE_NONE,
        ask("actors", by=HEIGHT, measures=[agg("sum", "movies.gross")]),
        code="E_NO_PATH",
        note="the catalogue says E3012 and the suite E3013 here, and both E_NO_PATH in T-040, which is the same shape; §6.9 says E_NO_PATH",
    ),
    Vector(
        "T-015",
        "each row once a group over a bridge",
        F_BRIDGE,
        ask("actors", by=HEIGHT, measures=[agg("sum", "movies.gross")]),
        BRIDGED,
    ),
    Vector(
        "T-016",
        "average over a bridge",
        F_BRIDGE,
        ask("actors", by=HEIGHT, measures=[agg("avg", "movies.gross")]),
        ((170, 150), (180, 50)),
        note=f"accepted (D-027): {LATER}",
    ),
    Vector(
        "T-017",
        "average of averages over a bridge",
        metric(F_BRIDGE, nested="AVG(AVG(movies.gross))"),
        ask("actors", by=HEIGHT, measures=["nested"]),
        code="E_NESTED_AGGREGATION_DEFERRED",
        note=f"deferred since: {LATER}",
    ),
    Vector("T-018", "EXISTS_IN", note="struck from the catalogue; the form's `has` is a semi-join of its own"),
    Vector(
        "T-019",
        "two relationships between two datasets",
        F_AMBIG,
        ask("orders", by=["users.region"], measures=[agg("count", "orders.id")]),
        code="E_AMBIGUOUS_PATH",
    ),
    Vector(
        "T-020",
        "a bare name is a metric of the model",
        F_PRELUDE,
        ask("orders", by=REGION, measures=["total_revenue"]),
        code="E_NAME_NOT_FOUND",
        note="its second half, metrics of a dataset, is deferred (T-045 of the suite)",
    ),
    Vector(
        "T-021",
        "one side grouped by its many side",
        F_PRELUDE,
        ask("customers", by=["orders.status"], measures=[agg("count_distinct", "customers.id")]),
        code="E_UNSAFE_REAGGREGATION",
    ),
    Vector(
        "T-022",
        "rows repeated by a finer dataset",
        F_PRELUDE,
        ask("customers", show=["customers.region", "orders.id"]),
        code="E_FAN_OUT_IN_SCALAR_QUERY",
    ),
    Vector(
        "T-023",
        "a field that takes one of many",
        fields(F_PRELUDE, "customers", first_order_amount="orders.amount"),
        model=True,
        code="E_UNAGGREGATED_FINER_GRAIN_REFERENCE",
    ),
    Vector(
        "T-024",
        "aggregate in a field, used in Where",
        fields(
            F_PRELUDE, "customers", has_completed_orders="COUNT(CASE WHEN orders.status = 'completed' THEN orders.id END) > 0"
        ),
        model=True,
        code="E_AGGREGATE_IN_FIELD",
        note=f"deferred since: {LATER}; `has` says the same",
    ),
    Vector(
        "T-025",
        "rows of two facts at once",
        F_PRELUDE,
        ask("customers", show=["orders.amount", "returns.amount", "customers.region"]),
        code="E_FAN_OUT_IN_SCALAR_QUERY",
    ),
    Vector(
        "T-026",
        "missing values last going up",
        F_PRELUDE,
        ask("orders", by=REGION, measures=[REVENUE], order=[{"by": "customers.region"}]),
        BY_REGION,
        ordered=True,
    ),
    Vector(
        "T-027", "missing values inside a window", *W_NUMBER, ((101, 1), (102, 2), (104, 1), (105, 1)), note="as a windowed field"
    ),
    Vector(
        "T-028",
        "two conditions are both meant",
        F_PRELUDE,
        ask("orders", by=REGION, measures=[REVENUE], where=[COMPLETED, {"field": "orders.amount", "op": ">", "value": 60}]),
        (("EAST", 100), ("WEST", 75)),
        note="the catalogue's third row (NULL, 200) contradicts its own data, where order 105 is 30; the suite has two rows",
    ),
    Vector(
        "T-029",
        "window in Where",
        F_PRELUDE,
        ask("orders", by=["orders.customer_id"], measures=[REVENUE], where=[{"window": "row_number", "op": "=", "value": 1}]),
        code="E_WINDOW_IN_WHERE",
    ),
    Vector(
        "T-030",
        "window of a window",
        *windowed("SUM(SUM(orders.amount) OVER (PARTITION BY orders.customer_id)) OVER ()"),
        code="E_NESTED_WINDOW",
    ),
    Vector(
        "T-031",
        "running total",
        *W_TOTAL,
        ((101, 1, 100, 100), (102, 1, 50, 150), (103, 2, 200, 200), (104, 3, 75, 75), (105, 99, 30, 30)),
        ordered=True,
        note="as a windowed field; the catalogue forgets order 105, whose customer is 99 and not NULL",
    ),
    Vector(
        "T-032",
        "filter by a window",
        *W_FIRST,
        ((101, 1, 100, 1), (103, 2, 200, 1), (104, 3, 75, 1), (105, 99, 30, 1)),
        note="as a windowed field; the catalogue's amount of order 105 is 200 only here",
    ),
    Vector(
        "T-033",
        "a metric composed onto a windowed one",
        metric(F_PRELUDE, running="SUM(orders.amount) OVER (ORDER BY orders.id)", ratio="running / SUM(orders.amount)"),
        ask("orders", by=["orders.customer_id"], measures=["ratio"]),
        code="E_WINDOWED_METRIC_COMPOSITION",
    ),
    Vector(
        "T-034",
        "GROUPS frame",
        *windowed("SUM(orders.amount) OVER (ORDER BY orders.amount GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW)"),
        code="E_DEFERRED_FRAME_MODE",
    ),
    Vector(
        "T-035",
        "frame bound by parameter",
        *windowed("SUM(orders.amount) OVER (ORDER BY orders.id ROWS BETWEEN :n PRECEDING AND CURRENT ROW)"),
        code="E_DEFERRED_FRAME_MODE",
        note="E_DEFERRED_FRAME_BOUND in the catalogue; Appendix A and the suite know one code for both",
    ),
    Vector(
        "T-036",
        "window at its own grain",
        *W_RANK,
        ((101, 1, 1), (102, 1, 2), (103, 2, 1), (104, 3, 1), (105, 99, 1)),
        note="as a windowed field",
    ),
    Vector(
        "T-036b",
        "window over another dataset's rows",
        fields(F_PRELUDE, "customers", w="RANK() OVER (PARTITION BY orders.customer_id ORDER BY orders.amount)"),
        model=True,
        code="E_UNAGGREGATED_FINER_GRAIN_REFERENCE",
        note="E_AMBIGUOUS_MEASURE_GRAIN in the catalogue, which §6.2 keeps for what has no narrower code",
    ),
    Vector(
        "T-040",
        "nothing connects two datasets",
        F_NOPATH,
        ask("customers", by=REGION, measures=[agg("avg", "weather_observations.temperature")]),
        code="E_NO_PATH",
    ),
    Vector("T-041", "reserved name", fields(F_PRELUDE, "customers", select="'placeholder'"), model=True, code="E_RESERVED_NAME"),
    Vector("T-042", "deferred key `grain`", document={"name": "m", **one_metric(grain="FIXED")}, code="E_DEFERRED_KEY_REJECTED"),
    Vector(
        "T-043",
        "three hops many to one",
        metric(F_CHAIN, revenue="SUM(order_lines.qty * order_lines.price)"),
        ask("order_lines", by=["segments.name"], measures=["revenue"]),
        (("retail", 200), ("wholesale", 300), ("partner", 50)),
    ),
    Vector(
        "T-044",
        "key of two columns",
        F_COMPOSITE,
        ask("sales", by=["inventory.reorder_point"], measures=[agg("sum", "sales.qty")]),
        ((20, 8), (10, 2), (15, 4), (25, 1)),
    ),
    Vector(
        "T-045",
        "two measures, one over a bridge",
        F_BRIDGE,
        ask("actors", by=HEIGHT, measures=[agg("count", "appearances.*"), agg("count_distinct", "movies.movie_id")]),
        ((170, 3, 2), (180, 1, 1)),
        note="over F-BRIDGE: the catalogue gives no rows for its campaigns",
    ),
    Vector(
        "T-046",
        "a dataset that refers to itself",
        F_REFLEXIVE,
        ask("employees", by=[{"field": "employees.region", "via": ["reports_to"]}], measures=[agg("count", "employees.id")]),
        (("EAST", 4), ("WEST", 1), (None, 1)),
        note="roles are deferred; the form's `via` names the relationship",
    ),
    Vector(
        "T-047",
        "three measures of one fact",
        F_PRELUDE,
        ask("orders", by=REGION, measures=[REVENUE, agg("count", "orders.id"), agg("count", "orders.*")]),
        (("EAST", 350, 3, 3), ("WEST", 75, 1, 1), (None, 30, 1, 1)),
    ),
    Vector(
        "T-048",
        "missing foreign key",
        F_PRELUDE,
        ask("orders", by=REGION, measures=[REVENUE]),
        (("EAST", 350), ("WEST", 75), (None, 110)),
        extra=NULL_KEY,
        note="the catalogue's NORTH row contradicts its own §1.6; the suite has none",
    ),
    Vector(
        "T-049",
        "missing value in a group",
        F_PRELUDE,
        ask("orders", by=REGION, measures=[REVENUE, agg("count", "customers.id")]),
        (("EAST", 350, 2), ("WEST", 75, 1), (None, 30, 1)),
        extra=NULL_REGION,
    ),
    Vector("T-050", "nothing asked for", F_PRELUDE, ask("orders", by=[], measures=[]), code="E_EMPTY_AGGREGATION_QUERY"),
    Vector("T-051", "no field to show", F_PRELUDE, ask("orders", show=[]), code="E_EMPTY_SCALAR_QUERY"),
    Vector(
        "T-052",
        "a cut without an order",
        F_PRELUDE,
        ask("orders", by=REGION, measures=[REVENUE], limit=2),
        (("EAST", 350), ("WEST", 75)),
        note="the form orders by the groups, so that the cut is repeatable",
    ),
    Vector(
        "T-053",
        "average, least and greatest",
        F_PRELUDE,
        ask("orders", by=REGION, measures=[agg(name, "orders.amount") for name in ("avg", "min", "max")]),
        (("EAST", 116.67, 50, 200), ("WEST", 75, 75, 75), (None, 30, 30, 30)),
    ),
)

ONLY_IN_SUITE = (
    Vector(
        "T-021", "count distinct over a bridge", F_BRIDGE,
        ask("movies", by=["movies.title"], measures=[agg("count_distinct", "actors.actor_id")]), (("Action", 2), ("Drama", 1), ("Comedy", 1)),
        list=SUITE,
    ),
    Vector(
        "T-024", "boolean field in Where", fields(F_PRELUDE, "customers", is_premium="segment = 'PREMIUM'"),
        ask("orders", by=REGION, measures=[agg("count", "orders.id")], where=[{"field": "customers.is_premium", "op": "=", "value": True}]),
        (), list=SUITE,
    ),
    deferred("T-042b", "deferred key `referential_integrity`", {"relationships": [{"name": "r", "referential_integrity": "enforced"}]}),
    Vector(
        "T-042a", "EXISTS_IN in a metric", metric(F_PRELUDE, x="COUNT(customers.id WHERE customers.id EXISTS_IN premium_customers)"),
        model=True, code="E_DEFERRED_KEY_REJECTED", list=SUITE,
    ),
    deferred("T-042c", "deferred key `named_filter`", one_metric(named_filter="orders.status = 'completed'")),
    deferred("T-042d", "deferred key `joins`", one_metric(joins={"type": "LEFT"})),
    deferred("T-042e", "deferred key `using_relationships`", one_metric(using_relationships=["orders_to_customer"])),
    Vector(
        "T-042f", "role on a field", metric(F_PRELUDE, x="customers{role=manager}.region"), model=True, code="E_DEFERRED_KEY_REJECTED",
        list=SUITE,
    ),
    Vector("T-042g", "ATTR", metric(F_PRELUDE, x="ATTR(customers.region)"), model=True, code="E_DEFERRED_KEY_REJECTED", list=SUITE),
    deferred("T-042h", "deferred key `unsafe`", one_metric(unsafe=True)),
    deferred("T-042i", "deferred key `agg`", {"datasets": [{"name": "o", "fields": [{"name": "a", "expression": "amount", "agg": "SUM"}]}]}),
    deferred("T-042j", "deferred keys `grain` and `agg`", one_metric(grain="FIXED", agg="SUM")),
    deferred("T-042m", "deferred key `filter`", one_metric(filter="orders.status = 'completed'")),
    deferred("T-042n", "deferred key `grain` on a composed metric", one_metric(grain=["customers.id"])),
    deferred("T-042o", "deferred key `natural_grain`", {"natural_grain": "customers"}),
    deferred("T-042p", "deferred key `condition`", {"relationships": [{"name": "r", "condition": "a.x > b.y"}]}),
    deferred("T-042q", "deferred key `asof`", {"relationships": [{"name": "r", "asof": "orders.created_at"}]}),
    deferred("T-042r", "deferred key `semi_additive`", one_metric(semi_additive="last")),
    Vector(
        "T-042s", "grouping sets", F_PRELUDE, ask("orders", by=REGION, measures=[REVENUE], grouping_sets=[REGION]),
        code="E_DEFERRED_KEY_REJECTED", list=SUITE,
    ),
    Vector(
        "T-042t", "pivot", F_PRELUDE, ask("orders", by=REGION, measures=[REVENUE], pivot={"by": "customers.segment"}),
        code="E_DEFERRED_KEY_REJECTED", list=SUITE,
    ),
    deferred("T-042u", "deferred key `filter` on a dataset", {"datasets": [{"name": "orders", "filter": "status = 'completed'"}]}),
    Vector(
        "T-042v", "WITHIN GROUP", metric(F_PRELUDE, x="PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY orders.amount)"), model=True,
        code="E_DEFERRED_KEY_REJECTED", list=SUITE,
    ),
    deferred("T-042w", "deferred key `symmetric_aggregate`", one_metric(symmetric_aggregate=True)),
    Vector(
        "T-042x", "a second way to the group", SECOND_WAY, ask("returns", by=REGION, measures=[RETURNED]), code="E_AMBIGUOUS_PATH",
        note="E_DEFERRED_KEY_REJECTED in the suite, though the model holds no deferred key; §6.9 says E_AMBIGUOUS_PATH", list=SUITE,
    ),
    Vector(
        "T-042y", "EXCLUDING in a window",
        metric(F_PRELUDE, x="SUM(orders.amount) OVER (PARTITION BY customers.region EXCLUDING TIES ORDER BY customers.id)"), model=True,
        code="E_DEFERRED_KEY_REJECTED", list=SUITE,
    ),
    Vector(
        "T-043", "aggregate in a field", fields(F_PRELUDE, "orders", total_amount="SUM(amount)"), model=True, code="E_AGGREGATE_IN_FIELD",
        list=SUITE,
    ),
    Vector(
        "T-044", "aggregate of an aggregate", metric(F_PRELUDE, x="AVG(SUM(orders.amount))"), ask("orders", by=REGION, measures=["x"]),
        code="E_NESTED_AGGREGATION_DEFERRED", list=SUITE,
    ),
    deferred("T-045", "metrics of a dataset", {"datasets": [{"name": "orders", "metrics": [{"name": "t", "expression": "SUM(amount)"}]}]}),
    Vector(
        "T-045", "sum and distinct count over one bridge", F_BRIDGE,
        ask("actors", by=HEIGHT, measures=[agg("sum", "movies.gross"), agg("count_distinct", "movies.movie_id")]), ((170, 300, 2), (180, 50, 1)),
        list=SUITE,
    ),
    Vector(
        "T-046", "a dataset that refers to itself, by its own field", F_REFLEXIVE,
        ask("employees", by=["employees.region"], measures=[agg("count", "employees.id")]), (("EAST", 4), ("WEST", 2)), list=SUITE,
    ),
    Vector("T-046", "fields of fields", fields(F_CHAIN, "order_lines", **CHAINED), FINAL, ((500,),), list=SUITE),
    Vector(
        "T-047", "fields of fields, declared backwards", fields(F_CHAIN, "order_lines", **dict(reversed(CHAINED.items()))), FINAL, ((500,),),
        list=SUITE,
    ),
    Vector(
        "T-048", "a field of a windowed field", TOP_ONLY, ask("orders", measures=[agg("sum", "orders.top_only")]), ((405,),), list=SUITE
    ),
    Vector(
        "T-049", "group by fields of fields", TAGGED, ask("orders", by=["customers.tagged"], measures=[REVENUE]),
        (("rs=EAST:retail", 350), ("rs=WEST:wholesale", 75), (None, 30)), list=SUITE,
    ),
    Vector(
        "T-050", "fields that refer to each other", fields(F_PRELUDE, "orders", a="b + 1", b="a * 2"), model=True,
        code="E_FIELD_DEPENDENCY_CYCLE", list=SUITE,
    ),
    Vector(
        "T-051", "median over a bridge", F_BRIDGE, ask("actors", by=HEIGHT, measures=[agg("median", "movies.gross")]), ((170, 150), (180, 50)),
        list=SUITE,
    ),
    Vector(
        "T-052", "window beside rows that repeat", fields(F_PRELUDE, "orders", w="RANK() OVER (ORDER BY orders.amount DESC)"),
        ask("returns", show=["returns.id", "orders.id", "orders.w"]), code="E_FAN_OUT_IN_SCALAR_QUERY", list=SUITE,
    ),
    Vector(
        "T-060", "distinct count of no rows", F_PRELUDE,
        ask("orders", by=REGION, measures=[agg("count_distinct", "orders.status")], where=[{"field": "orders.amount", "op": ">", "value": 1000000}]),
        (), list=SUITE,
    ),
    Vector("T-061", "orphans under NULL", F_PRELUDE, ask("orders", by=REGION, measures=[REVENUE]), BY_REGION, list=SUITE),
    Vector(
        "T-062", "missing values first going down", F_PRELUDE,
        ask("orders", by=REGION, measures=[REVENUE], order=[{"by": "customers.region", "dir": "desc"}]),
        ((None, 30), ("WEST", 75), ("EAST", 350)), ordered=True, list=SUITE,
    ),
)  # fmt: skip

VECTORS = (*CATALOGUE, *ONLY_IN_SUITE)


def table() -> str:
    """The whole catalogue as Markdown."""
    counts = {
        verdict: sum(vector.verdict == verdict for vector in VECTORS) for verdict in ("passes", "refused", "not applicable")
    }
    lines = [
        "# Test vectors of the Ossie Foundation draft",
        "",
        "Generated by `python -m tests.sql.form.vectors`; each line is a test in `tests/sql/form/test_vectors.py`.",
        "The draft has two lists under the same numbers: the *catalogue* (`DATA_TESTS.md`) and an older runnable *suite*; vectors of the",
        "suite that repeat the catalogue's are named once. Where the lists disagree, `foundational_semantics.md` decides.",
        "",
        f"{len(VECTORS)} vectors: {counts['passes']} pass, {counts['refused']} are refused, {counts['not applicable']} does not apply.",
        "",
        "| vector | list | what it is about | result | note |",
        "| --- | --- | --- | --- | --- |",
    ]
    for vector in VECTORS:
        result = f"refused `{vector.code}`" if vector.code else vector.verdict
        lines.append(f"| {vector.number} | {vector.list} | {vector.title} | {result} | {vector.note} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
