"""`demo`: build the demonstration world, then ask it as several people and show what is special.

In a checkout the world is used where it stands; from an install, or with --dir, it is copied first.
"""

from __future__ import annotations

import os
import runpy
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from router.app import Router, make_database, make_development_issuer
from router.config import load_settings
from router.domain import Answer, Passage
from router.doors.cli.demo_tables import PATIENCE_S, RowsAsked, ask_rows, print_rows_asked, rows_as_json
from router.doors.cli.index import print_tables, progress_bar
from router.doors.cli.output import called_as, console, one_line, plain, print_json, say
from router.errors import CHECK_FAILED, Refused, UsageError
from router.plain import parse_yaml

PACKAGE = Path(__file__).resolve().parents[2]
DEMO = Path("deploy") / "demo"
NOTHING = "nothing"


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
    shows: str | None
    pair: str | None

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
        if self.shows not in (None, NOTHING) and self.telling is None:
            return f"no passage says `{self.shows}`"
        return ""

    @property
    def telling(self) -> tuple[Passage, str] | None:
        """The passage that answers, and its line."""
        for passage in self.answer.passages if self.answer is not None and self.shows else ():
            for line in passage.text.splitlines():
                if self.shows is not None and self.shows in line and passage.document_id in self.expect:
                    return passage, line
        return None


def run_demo(folder: Path | None, *, as_json: bool) -> None:
    """Exit code 1 when a person gets what they must not, or not what they should."""
    world = find_world(folder)
    settings = load_settings(world / "pointsman.toml")
    make_development_issuer(settings)
    make_database(settings.state_folder / "tickets.sqlite", (world / "tickets.sql").read_text(encoding="utf-8"))
    runpy.run_path(str(world / "tables" / "make_tables.py"))["make_tables"](settings.state_folder / "made")
    with Router(settings) as router:
        tables = router.copy_tables()
        with progress_bar() as progress:
            report = router.index(progress=progress)
        status = router.index_status()
        questions, now = load_questions(world / "questions.yaml")
        asked = ask_all(router, questions, now)
        rows = ask_rows(router, world / "questions.yaml")
    problems = sum(bool(item.problem) for item in asked) + sum(bool(item.problem) for item in rows)
    if as_json:
        print_json({"questions": [_as_json(item) for item in asked], "tables": [rows_as_json(item) for item in rows]})
    else:
        made = sum(source.indexed for source in report.sources)
        documents = sum(source.documents for source in status.sources)
        chunks = sum(source.chunks for source in status.sources)
        say(
            f"{documents} documents of two companies, {chunks} chunks ({f'{made} indexed now' if made else 'nothing changed'})",
            "dim",
        )
        print_tables(tables)
        print_asked([item for item in asked if item.shows is not None or item.problem])
        print_rows_asked(rows)
        _print_end(world, now, asked, rows, problems)
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
        try:
            shutil.copytree(shipped / DEMO, target / DEMO, ignore=shutil.ignore_patterns("state"))
            shutil.copytree(shipped / "policies", target / "policies")
        except OSError:
            raise UsageError("target_unwritable", f"`{target}` cannot be written", "name another folder with --dir") from None
    return target / DEMO


def load_questions(path: Path) -> tuple[list[Mapping[str, Any]], datetime]:
    """The questions, and the day on which their answers hold."""
    raw = parse_yaml(path.read_text(encoding="utf-8"))
    return raw["questions"], datetime.combine(raw["now"], time(12), UTC)


def ask_all(router: Router, questions: Sequence[Mapping[str, Any]], now: datetime) -> list[Asked]:
    return [_ask(router, entry, now) for entry in questions]


def _ask(router: Router, entry: Mapping[str, Any], now: datetime) -> Asked:
    answer: Answer | None = None
    refused: Refused | None = None
    try:
        answer = router.ask(entry["ask"], token=router.mint(entry["as"]), now=now, deadline_s=PATIENCE_S)
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
        entry.get("shows"),
        entry.get("pair"),
    )


def print_asked(asked: Sequence[Asked]) -> None:
    """A question once, then what each person gets: the passage that answers, or what there is instead."""
    out = console()
    out.print("\nThe same question, asked by different people:\n", style="bold")
    previous = ""
    for item in asked:
        if item.question != previous:
            out.print(f"“{plain(item.question)}”", style="bold")
        previous = item.question
        out.print(f"  as {item.person}: {item.why}", style="cyan")
        _print_got(item)
        if item.problem:
            out.print(f"     PROBLEM  {item.problem}", style="bold red")
        out.print()


def _print_got(item: Asked) -> None:
    out = console()
    if item.answer is None:
        out.print(f"     refused: {item.refused.message if item.refused is not None else ''}", style="red")
        return
    if item.telling is not None:
        passage, line = item.telling
        version = f", version {plain(passage.version)}" if passage.version else ""
        out.print(f"     {one_line(line, 150)}", style="green")
        at = item.answer.passages.index(passage) + 1
        out.print(f"     {at}. of {len(item.answer.passages)}: {one_line(passage.document_id, 90)}{version}")
    else:
        found = ", ".join(dict.fromkeys(one_line(document_id, 60) for document_id in item.ids[:3]))
        out.print(f"     no passage about it; other pages that this person may see: {found or 'none'}", style="yellow")
    total = sum(stage.us for stage in item.answer.stages) / 1000
    record = sum(stage.us for stage in item.answer.stages if stage.name in ("asked", "answered")) / 1000
    out.print(f"     {total:.0f} ms, {record:.0f} of them for the record · decision {item.answer.decision_id}", style="dim")


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


def suggested(asked: Sequence[Asked], rows: Sequence[RowsAsked]) -> list[tuple[str, str]]:
    """What to try next, as (question, person): one question to two people whose first passages answer it, each another, and one
    about tables."""
    told = [
        (item.question, item.person, item.telling[0].document_id) for item in asked if item.telling and item.telling[0].rank == 1
    ]
    pairs = ((one, other) for one, other in pairwise(told) if one[0] == other[0] and one[2] != other[2])
    documents = [(question, person) for question, person, _ in next(pairs, ())]
    counted = ((row.question, row.person) for row in rows if isinstance(row.answer, Answer) and row.table is not None)
    return [*documents, *islice(counted, 1)]


def _print_end(world: Path, now: datetime, asked: Sequence[Asked], rows: Sequence[RowsAsked], problems: int) -> None:
    people = len({item.person for item in asked} | {item.person for item in rows})
    questions, times = len({item.question for item in asked} | {item.question for item in rows}), len(asked) + len(rows)
    expected, forbidden = sum(len(item.expect) for item in asked), sum(len(item.never) for item in asked)
    if problems:
        say(f"{problems} of {times} answers are not as they should be", "bold red")
    else:
        say(
            f"{questions} questions asked {times} times by {people} people, all checked: each of the {expected} expected documents was found, "
            f"none of the {forbidden} forbidden ones appeared, and {len(rows)} answers from tables are the rows computed by hand.",
            "bold green",
        )
    say(
        "What each person may see was computed from policies/*.cedar before anything was searched, and judged again before it left.\n"
    )
    command = f"{called_as()} --config {shlex.quote(os.path.relpath(world / 'pointsman.toml'))}"
    for question, person in suggested(asked, rows):
        say(f"  {command} ask {shlex.quote(question)} --as {person} --now {now.date()}")
    say(f"  {command} log tail\n")
