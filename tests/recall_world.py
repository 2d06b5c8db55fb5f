"""The small world of `tests/world.py` under two routers, one of which keeps evidence: whoever asks what in whichever order, before and
after labels, pages and the store itself change, both answer the same, byte for byte."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from router.app import Router
from router.config import Settings
from tests.world import ask_as, bytes_of

PEOPLE = ("ada", "hal", "max", "low", "bob", "sue")
QUESTIONS = (
    "what does ERR-4012 on the press mean",
    "oil of the press",
    "who guards the press at night?",
    "the price of the hall",
)
RULES = (
    "",
    '  - { match: "staff/oil.md", groups: ["dev:board"], sensitivity: restricted }\n',
    '  - { match: "hr/**", sensitivity: restricted }\n',
    '  - { match: "staff/**", effective_from: 2026-06-15T15:00:00Z }\n',
    '  - { match: "**", sensitivity: confidential }\n',
)


@contextmanager
def two_routers(settings: Settings) -> Iterator[tuple[Router, Router]]:
    """One that keeps, one that does not and by which everything changes, so that the other has to notice."""
    kept, plain = (settings.cache.model_copy(update={"enabled": enabled}) for enabled in (True, False))
    with (
        Router(settings.model_copy(update={"cache": kept})) as keeping,
        Router(settings.model_copy(update={"cache": plain})) as fresh,
    ):
        yield keeping, fresh


def check_that_nothing_is_told(keeping: Router, fresh: Router, *, seed: int, asks: int, lose: Callable[[], None]) -> None:
    """`lose` removes the store by hand; a full run makes it anew."""
    drawn, folder = random.Random(seed), fresh.settings.folder
    labels, pages = (
        folder / "handbook" / "labels.yaml",
        [folder / "notes" / "monday.md", folder / "handbook" / "staff" / "guard.md"],
    )
    rules, hits, shown = labels.read_text(), 0, {}
    for at in range(asks):
        if at % 8 == 7:
            _change(drawn, fresh, labels, rules, pages, lose if at > asks // 2 else None)
        person, question, k = drawn.choice(PEOPLE), drawn.choice(QUESTIONS), drawn.choice((50, 50, 2))
        told, expected = (ask_as(router, person, question, k=k) for router in (keeping, fresh))
        assert bytes_of(told) == bytes_of(expected), (at, person, question)
        hits += _cache_of(keeping, told.decision_id) == "hit"
        shown[person] = shown.get(person, frozenset()) | {one.document_id for one in told.passages}
    assert hits > asks // 8, "or it would have compared nothing"
    assert len(set(shown.values())) > 3, "people who were shown the same would say nothing"


def _change(
    drawn: random.Random, fresh: Router, labels: Path, rules: str, pages: list[Path], lose: Callable[[], None] | None
) -> None:
    what = drawn.choice(("labels", "labels", "page", "store"))
    if what == "page" and pages:
        pages.pop().unlink()
    elif what == "store" and lose is not None:
        lose()
    else:
        labels.write_text(rules + drawn.choice(RULES))
    report = fresh.index(full=what == "store")
    assert not any(source.failures or source.error for source in report.sources), report


def _cache_of(router: Router, decision_id: str) -> str | None:
    for tenant in router.ledger.tenants():
        for _, record in router.ledger.read(tenant, decision_id=decision_id):
            if record.kind == "answered":
                return str(json.loads(record.body)["cache"])
    raise AssertionError("no record")
