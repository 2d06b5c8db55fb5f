"""`demo`: build the demonstration world, then ask it as several people and show what is special.

In a checkout the world is used where it stands; from an install, or with --dir, it is copied first.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

from router.app import Router, make_database, make_development_issuer
from router.config import load_settings
from router.domain import Answer
from router.doors.cli.index import print_report, progress_bar
from router.doors.cli.output import console, one_line, plain, print_json, say
from router.errors import CHECK_FAILED, Refused, UsageError
from router.plain import parse_yaml

PACKAGE = Path(__file__).resolve().parents[2]
DEMO = Path("deploy") / "demo"


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of the demonstration as one person, with what came back."""

    question: str
    person: str
    why: str
    answer: Answer | None
    refused: Refused | None
    expect: tuple[str, ...]
    never: tuple[str, ...]
    outcome: str

    @property
    def ids(self) -> list[str]:
        return [] if self.answer is None else [passage.document_id for passage in self.answer.passages]

    @property
    def problem(self) -> str:
        leaked = [document_id for document_id in self.never if document_id in self.ids]
        if leaked:
            return f"must not be seen: {', '.join(leaked)}"
        missing = [document_id for document_id in self.expect if document_id not in self.ids]
        if missing:
            return f"not found: {', '.join(missing)}"
        if (self.outcome == "refused") != (self.refused is not None):
            return "refused" if self.refused is not None else "not refused"
        return ""


def run_demo(folder: Path | None, *, as_json: bool) -> None:
    """Exit code 1 when a person gets what they must not, or not what they should."""
    world = find_world(folder)
    settings = load_settings(world / "pointsman.toml")
    make_development_issuer(settings)
    make_database(settings.state_folder / "tickets.sqlite", (world / "tickets.sql").read_text(encoding="utf-8"))
    with Router(settings) as router:
        with progress_bar() as progress:
            report = router.index(progress=progress)
        if not as_json:
            print_report(report, details=False)
        asked = ask_all(router, *load_questions(world / "questions.yaml"), show=not as_json)
    problems = [item for item in asked if item.problem]
    if as_json:
        print_json({"questions": [_as_json(item) for item in asked]})
    else:
        _print_end(world, asked, problems)
    if problems:
        raise SystemExit(CHECK_FAILED)


def find_world(folder: Path | None) -> Path:
    """The folder that holds the demonstration's pointsman.toml, with `policies` two levels above."""
    checkout = PACKAGE.parent
    if folder is None and (checkout / DEMO / "pointsman.toml").is_file():
        return checkout / DEMO
    shipped = checkout if (checkout / DEMO).is_dir() else PACKAGE / "world"
    target = Path("pointsman-demo") if folder is None else folder
    if not (target / DEMO).is_dir():
        if target.exists() and any(target.iterdir()):
            raise UsageError(
                "target_not_empty", f"`{target}` is not empty and holds no demonstration", "name another folder with --dir"
            )
        shutil.copytree(shipped / DEMO, target / DEMO, ignore=shutil.ignore_patterns("state"))
        shutil.copytree(shipped / "policies", target / "policies")
    return target / DEMO


def load_questions(path: Path) -> tuple[list[Mapping[str, Any]], datetime]:
    """The questions, and the day on which their answers hold."""
    raw = parse_yaml(path.read_text(encoding="utf-8"))
    return raw["questions"], datetime.combine(raw["now"], time(12), UTC)


def ask_all(router: Router, questions: Sequence[Mapping[str, Any]], now: datetime, *, show: bool) -> list[Asked]:
    asked: list[Asked] = []
    previous = ""
    for entry in questions:
        item = _ask(router, entry, now)
        asked.append(item)
        if show:
            _print_asked(item, again=item.question == previous)
        previous = item.question
    return asked


def _ask(router: Router, entry: Mapping[str, Any], now: datetime) -> Asked:
    answer: Answer | None = None
    refused: Refused | None = None
    try:
        answer = router.ask(entry["ask"], token=router.mint(entry["as"]), now=now)
    except Refused as error:
        refused = error
    expected = tuple(entry.get("expect") or ())
    return Asked(
        entry["ask"],
        entry["as"],
        entry.get("why", ""),
        answer,
        refused,
        expected,
        tuple(entry.get("never") or ()),
        entry.get("outcome", ""),
    )


def _print_asked(item: Asked, *, again: bool) -> None:
    out = console()
    if not again:
        out.rule(style="dim")
        out.print(f"“{plain(item.question)}”", style="bold")
    out.print(f"  as {item.person}" + (f": {item.why}" if item.why else ""), style="cyan")
    if item.refused is not None:
        out.print(f"    refused  {item.refused.code}: {item.refused.message}", style="red")
    elif item.answer is not None and not item.answer.passages:
        out.print("    nothing: no document that this person may see was found", style="yellow")
    elif item.answer is not None:
        for passage in item.answer.passages[:3]:
            version = f"  (version {plain(passage.version)})" if passage.version else ""
            out.print(f"    {passage.rank}  {one_line(passage.document_id, 90)}{version}", style="green")
            out.print(f"       {_best_line(item.question, passage.text)}")
    if item.answer is not None:
        total = sum(stage.us for stage in item.answer.stages) / 1000
        longest = sorted(item.answer.stages, key=lambda stage: -stage.us)[:3]
        parts = ", ".join(f"{stage.name} {stage.us / 1000:.1f}" for stage in longest)
        out.print(f"       {total:.1f} ms ({parts}) · decision {item.answer.decision_id}", style="dim")
    if item.problem:
        out.print(f"    PROBLEM  {item.problem}", style="bold red")


def _best_line(question: str, text: str) -> str:
    """The line of the passage that shares most words with the question: enough to see why it is there."""
    words = {word.strip("?.,:;").lower() for word in question.split() if len(word) > 2}
    lines = [line for line in plain(text).splitlines() if line.strip()] or [""]
    best = max(lines, key=lambda line: sum(word in line.lower() for word in words))
    return one_line(best, 150)


def _as_json(item: Asked) -> dict[str, Any]:
    return {
        "question": item.question,
        "as": item.person,
        "outcome": "refused" if item.answer is None else item.answer.outcome,
        "documents": item.ids,
        "decision_id": None if item.answer is None else item.answer.decision_id,
        "stages": {} if item.answer is None else {stage.name: round(stage.us / 1000, 3) for stage in item.answer.stages},
        "problem": item.problem,
    }


def _print_end(world: Path, asked: Sequence[Asked], problems: Sequence[Asked]) -> None:
    out = console()
    out.rule(style="dim")
    people = len({item.person for item in asked})
    say(f"{len(asked)} questions by {people} people, {len(problems)} problems.", "bold red" if problems else "bold green")
    say(
        "What each person may see was computed from policies/*.cedar before anything was searched, and judged again before it left."
    )
    config = json.dumps(str(world / "pointsman.toml"))
    say(f"\n  pointsman --config {config} ask 'your question' --as ada\n  pointsman --config {config} log tail\n")
