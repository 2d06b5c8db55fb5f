"""The fixture as the planner sees it: the four views with labels, times, synonyms and two metrics, and tenant 1's stored texts."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path

import yaml

from router.catalog import Catalog, Dataset, DatasetField, Metric, Relationship
from router.domain import TableGrant
from router.sql.check import narrow
from router.sql.form import Form
from router.sql.planner import Abstention, Index, StoredValues, build_index, plan_question
from tests.sql.oracle import Oracle, grants

DAY = date(2024, 8, 15)
POLICIES = Path(__file__).parents[1] / "policies"
FACTS = {
    "claims_v": (("claim",), "claim_id", "reported_at"),
    "approvals_v": (("approval",), "approval_id", "decided_at"),
    "inventory_v": (("inventory", "stock item"), "sku", "last_counted"),
    "depots_v": (("depot", "warehouse"), "code", "opened_on"),
}
SYNONYMS = {"claim_type": ("type",), "capacity_pallets": ("capacity",), "qty_on_hand": ("quantity", "stock")}
METRICS = (
    Metric(
        "approval_time",
        "AVG(date_diff('minute', claims_v.reported_at, approvals_v.decided_at)) / 60",
        synonyms=("average approval time",),
    ),
    Metric(
        "share_above_reorder",
        "AVG(CASE WHEN inventory_v.qty_on_hand > inventory_v.reorder_point THEN 1.0 ELSE 0.0 END)",
        synonyms=("share of SKUs above the reorder point", "SKUs above the reorder point"),
    ),
)


def whole() -> Catalog:
    """Everything that the policy folder's catalogue says, and what is added here."""
    model = yaml.safe_load((POLICIES / "catalog.yaml").read_text(encoding="utf-8"))["semantic_model"][0]
    datasets = tuple(_dataset(one) for one in model["datasets"])
    links = tuple(
        Relationship(one["name"], one["from"], one["to"], tuple(one["from_columns"]), tuple(one["to_columns"]))
        for one in model["relationships"]
    )
    return Catalog(model["name"], datasets, links, METRICS)


def _dataset(body: dict) -> Dataset:
    synonyms, label, time = FACTS[body["name"]]
    fields = tuple(
        DatasetField(
            one["name"],
            one["expression"]["dialects"][0]["expression"],
            datatype=one["datatype"],
            is_time=one["datatype"] in ("Date", "DateTime"),
            synonyms=SYNONYMS.get(one["name"], ()),
        )
        for one in body["fields"]
    )
    return Dataset(body["name"], body["source"], fields, tuple(body["primary_key"]), synonyms=synonyms, label=label, time=time)


@cache
def granted(tenant: int = 1) -> Catalog:
    return narrow(whole(), grants(tenant))


@cache
def stored(tenant: int = 1) -> tuple[StoredValues, ...]:
    """Distinct texts of every column that is text, as this tenant has them."""
    oracle, found = Oracle(tenant), []
    for dataset in granted(tenant).datasets:
        for one in dataset.fields:
            if one.datatype == "String":
                rows = oracle.run(f"SELECT DISTINCT {one.name} FROM {dataset.name} WHERE {one.name} IS NOT NULL ORDER BY 1") or []
                found.append(StoredValues(dataset.name, one.name, tuple(str(row[0]) for row in rows)))
    return tuple(found)


@cache
def index(tenant: int = 1) -> Index:
    return build_index(granted(tenant), stored(tenant))


def plan(text: str, today: date = DAY) -> Form:
    """The form, where there must be one."""
    found = plan_question(text, index(), today)
    assert isinstance(found, Form), f"{text}: {found}"
    return found


def declined(text: str, over: Index | None = None) -> Abstention:
    """The abstention, where there must be one."""
    found = plan_question(text, over or index(), DAY)
    assert isinstance(found, Abstention), f"{text}: {found}"
    return found


def narrowed_to(*grants_: TableGrant) -> Index:
    return build_index(narrow(whole(), grants_))


def with_values(*values: StoredValues) -> Index:
    """The index with more stored texts than there are."""
    return build_index(granted(), (*stored(), *values))


def small(**changes: object) -> Catalog:
    """The granted catalogue with facts left out or changed on every dataset."""
    return replace(granted(), datasets=tuple(replace(one, **changes) for one in granted().datasets))  # type: ignore[arg-type]
