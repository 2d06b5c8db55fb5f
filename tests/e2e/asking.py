"""The demonstration world in a folder of its own, and every line of questions.jsonl asked in it, as a caller would."""

from __future__ import annotations

import inspect
import itertools
import runpy
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from router.app import Router, make_database, make_development_issuer
from router.config import load_settings
from router.domain import Answer
from tests.e2e.judging import Got, Line

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
UNCHOSEN = "only documents are searched by this version"
"""What a line says that has no classifier yet; its questions are asked with the route that they need, and no route is judged."""
AT_ONCE = 2
"""People who ask at the same time: what one may see could get into the answer of another, if anything of theirs were shared."""
DEADLINE_S = 60.0
"""What is right is judged here and not what is fast, so that a busy machine fails nobody."""


@contextmanager
def open_world(folder: Path) -> Iterator[Router]:
    """A copy, so that neither a state left in the checkout helps nor this leaves one."""
    demo = folder / "deploy" / "demo"
    shutil.copytree(ROOT / "deploy" / "demo", demo, ignore=shutil.ignore_patterns("state"))
    shutil.copytree(ROOT / "policies", folder / "policies")
    settings = load_settings(demo / "pointsman.toml")
    make_development_issuer(settings)
    make_database(settings.state_folder / "tickets.sqlite", (demo / "tickets.sql").read_text(encoding="utf-8"))
    runpy.run_path(str(demo / "tables" / "make_tables.py"))["make_tables"](settings.state_folder / "made")
    with Router(settings) as router:
        router.index()
        router.copy_tables()
        yield router


def chooses(router: Router) -> bool:
    answer = router.ask("Good morning!", token=router.mint("lena"), now=NOW)
    return UNCHOSEN not in answer.route.reasons


def ask_all(lines: Sequence[Line], ask: Callable[[Line], T]) -> list[T]:
    """Each person asks one question after the other, while others ask theirs. In the order of `lines`."""
    people = {line.person: [other for other in lines if other.person == line.person] for line in lines}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        asked = threads.map(lambda own: [(line.id, ask(line)) for line in own], people.values())
        answers = dict(itertools.chain.from_iterable(asked))
    return [answers[line.id] for line in lines]


def ask_line(router: Router, line: Line, *, chosen: bool, k: int | None = None) -> Got:
    options: dict[str, Any] = {"token": router.mint(line.person), "now": NOW, "deadline_s": DEADLINE_S} | (
        {} if k is None else {"k": k}
    )
    if line.context and "context" in inspect.signature(router.ask).parameters:
        options["context"] = line.context
    began = time.perf_counter()
    if chosen:
        answers = [router.ask(line.question, **options)]
    else:
        routes: dict[str, tuple[str, ...]] = {"sql": ("sql",), "both": ("documents", "sql")}
        answers = [router.ask(line.question, route=route, **options) for route in routes.get(line.route, ("documents",))]
    return _got(answers, chosen=chosen, ms=(time.perf_counter() - began) * 1000)


def _got(answers: list[Answer], *, chosen: bool, ms: float) -> Got:
    bodies = [answer.as_json() for answer in answers]
    return Got(
        route=answers[0].route.name.replace("contextual", "documents") if chosen else None,
        outcomes=tuple(answer.outcome for answer in answers),
        documents=tuple(dict.fromkeys(passage.document_id for answer in answers for passage in answer.passages)),
        tables=tuple(table.rows for answer in answers for table in answer.tables),
        body={**bodies[0], "passages": [body["passages"] for body in bodies], "more": [_rest(body) for body in bodies[1:]]},
        ms=ms,
    )


def _rest(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "passages"}
