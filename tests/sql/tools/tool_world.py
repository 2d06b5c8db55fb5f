"""The policy folder of the tool tests, loaded once, with the values that its caller may read and the embedder that ships."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import yaml

from connectors.local_models import load_embedder
from router.policy import load_policies
from router.policy.decide import PolicySet
from router.review.cases import map_person
from router.sql.check import narrow
from router.sql.tools import Tool, granted_tools

HERE = Path(__file__).parent
TODAY = date(2026, 12, 1)
NOW = datetime(2026, 12, 1, 9, tzinfo=UTC)
CUSTOMERS = (
    "Brightwell Bottlers", "Lakeshore Dairy", "Harbour Mills", "Kestrel Parcels", "Tamarind Foods", "Dunmere Mills", "Oakum Paper",
)  # fmt: skip


@dataclass(frozen=True)
class Values:
    dataset: str
    field: str
    values: tuple[str, ...]


STORED = (Values("claims", "customer", CUSTOMERS),)


@functools.cache
def policies() -> PolicySet:
    return load_policies(HERE / "policies")


@functools.cache
def tools_of(person: str = "desk", stored: tuple[Values, ...] = STORED) -> tuple[Tool, ...]:
    grants = policies().grants(map_person(person, policies()), NOW).query
    catalog = policies().catalog
    assert catalog is not None
    return granted_tools(policies().tools, narrow(catalog, grants), stored)


@functools.cache
def questions() -> dict[str, list[dict[str, object]]]:
    return yaml.safe_load((HERE / "questions.yaml").read_text(encoding="utf-8"))


@functools.cache
def _embedder():
    return load_embedder(Path(__file__).parents[3] / "router" / "model")


@functools.cache
def _vector(text: str):
    return np.frombuffer(_embedder().embed_question(text, None).vector, "<f4")


def similarity(text: str, others: tuple[str, ...]) -> list[float]:
    return [float(_vector(text) @ _vector(other)) for other in others]
