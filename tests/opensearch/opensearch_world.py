"""The small world of `tests/world.py` with its documents in OpenSearch, and what its records say."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from router.app import Router
from router.config import load_settings
from router.domain import Answer
from router.errors import PointsmanError
from tests import world
from tests.opensearch.opensearch_lab import call
from tests.world import NOW, PAGES

QUESTION = "what does ERR-4012 on the press mean"
WHO = ("ada", "hal", "max", "low")


def write_on(
    folder: Path, hosts: Sequence[str], *, pages: Mapping[str, str] = PAGES, prefix: str = "", said: str = "", **more: Any
) -> Path:
    """Configuration, not indexed yet. `more` are further settings of the store, `said` further lines before them."""
    config = world.write_world(folder, pages)
    settings = {"prefix": prefix or f"world{secrets.token_hex(6)}", "shards": 1, "replicas": 0, "wait_s": 20.0, **more}
    lines = [f"{name} = {json.dumps(value)}" for name, value in {"hosts": list(hosts), **settings}.items()]
    config.write_text("\n".join([config.read_text(), said, "[stores.opensearch]", *lines, ""]))
    return config


@contextmanager
def router_on(config: Path) -> Iterator[Router]:
    """A router on a world that `write_on` wrote; its indices are removed afterwards."""
    settings = load_settings(config)
    assert settings.stores.opensearch is not None
    try:
        with Router(settings) as router:
            yield router
    finally:
        remove_indices(settings.stores.opensearch.prefix)


def remove_indices(prefix: str) -> None:
    for row in call("GET", f"/_cat/indices/{prefix}-*?format=json&h=index"):
        call("DELETE", f"/{row['index']}")


def index_all(router: Router) -> None:
    report = router.index()
    assert not any(source.failures or source.error for source in report.sources), report


def ask(router: Router, person: str = "ada", question: str = QUESTION, **options: Any) -> Answer:
    return router.ask(question, token=router.mint(person), **{"now": NOW, "route": "documents", "k": 50, **options})


def answered(router: Router, decision_id: str | None, tenant: str = "north") -> dict[str, Any]:
    """The `answered` record of a decision, also of one that failed."""
    for _, record in router.ledger.read(tenant, decision_id=decision_id):
        if record.kind == "answered":
            body: dict[str, Any] = json.loads(record.body)
            return body
    raise AssertionError("no record")


def refused_in(router: Router, error: PointsmanError) -> str:
    """The code of a question that failed, which its record says too."""
    refusal = answered(router, error.decision_id)["refusal"]
    assert (refusal["code"], refusal["reason"]) == (error.code, error.message)
    return error.code


def degraded_in(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(item["stage"], item["reason"]) for item in body["degraded"]]
