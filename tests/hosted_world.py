"""The small world of `tests/world.py` with hosted models beside it: servers on this machine, a key, permits, and its own index."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from router import attempts
from router.app import Router
from router.config import load_settings
from router.domain import Answer
from tests import hosted_server as days
from tests.world import write_world

KEY = "POINTSMAN_TEST_KEY"
SECRET = "co-CANARY-KEY"
EMBED = """
@id("embed-internal") @reason("internal text may be embedded outside") @owner("security")
permit (principal, action == Pointsman::Action::"disclose", resource == Pointsman::Provider::"PROVIDER")
when { context.purpose == "embed" && context.class <= 1 };
"""
RERANK = """
@id("rerank-internal") @reason("internal text may be reranked outside") @owner("security")
permit (principal, action == Pointsman::Action::"disclose", resource == Pointsman::Provider::"PROVIDER")
when { context.purpose == "rerank" && context.class <= 1 };
"""
NOBODY = "// nothing leaves\n"


def never_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one router through many bad days: what one of them was does not close the provider to the next."""
    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(attempts, "OPEN_AFTER", 10**6)
    monkeypatch.setattr(attempts, "MOST_ASKED_S", 0.0)
    monkeypatch.setattr(attempts, "_REFUSES_US", frozenset())


def write_hosted(
    folder: Path, url: str, *, embedder: str = "local", rerank_by: str = "local", permits: str = EMBED + RERANK, **pages: Any
) -> Path:
    """Configuration and policies; `embedder` and `rerank_by` as in `pointsman.toml`."""
    config = write_world(folder, **pages)
    said = f'[models]\nembedder = "{embedder}"\n[search]\nrerank_by = "{rerank_by}"\n[providers.cohere]\nkey_env = "{KEY}"\n'
    said += f'base_url = "{url}"\nembed_model = "embed-test"\nrerank_model = "rerank-test"\ndimensions = {days.DIMENSIONS}\n'
    said += "embed_price = 0.5\nrerank_price = 2.0\n"
    if embedder == "openai_compatible":
        said += f'[providers.openai_compatible]\nbase_url = "{url}/v1"\nmodel = "e5-test"\ndimensions = {days.DIMENSIONS}\n'
    config.write_text(f"{config.read_text()}\n{said}")
    provider = "openai_compatible" if embedder == "openai_compatible" else "cohere"
    write_permits(config, permits.replace("PROVIDER", provider))
    return config


def write_permits(config: Path, text: str) -> None:
    (config.parent / "policies" / "disclosure.cedar").write_text(text.replace("PROVIDER", "cohere"))


def copied(config: Path, folder: Path, **changes: str) -> Path:
    """The indexed world once more, with words of its configuration replaced."""
    shutil.copytree(config.parent, folder)
    made = folder / "pointsman.toml"
    text = made.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    made.write_text(text)
    return made


def opened(config: Path) -> Router:
    return Router(load_settings(config))


def body_of(router: Router, answer: Answer) -> dict[str, Any]:
    """The `answered` record of an answer."""
    for tenant in router.ledger.tenants():
        for _, record in router.ledger.read(tenant, decision_id=answer.decision_id):
            if record.kind == "answered":
                return json.loads(record.body)
    raise AssertionError("no record")


def reasons(answer: Answer, stage: str) -> list[str]:
    return [entry.reason for entry in answer.degraded if entry.stage == stage]


def index_records(router: Router) -> list[dict[str, Any]]:
    """The records of what left for indexing."""
    return [
        json.loads(record.body)
        for tenant in router.ledger.tenants()
        for _, record in router.ledger.read(tenant)
        if record.kind == "egress"
    ]
