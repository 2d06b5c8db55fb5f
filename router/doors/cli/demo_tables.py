"""The half of `demo` whose answers are rows: asked in words, once as SQL, each checked against what questions.yaml promises.

What it promises was computed by hand from the raw files (tests/unit/test_demo_answers.py), so a wrong policy, a wrong reading of the
question and a wrong query all show as a problem here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from router.app import Router
from router.ask_sql import SqlAnswer
from router.domain import Answer, Table
from router.doors.cli.output import console, one_line, plain
from router.errors import Refused
from router.plain import parse_yaml

MOST_ROWS = 5
PATIENCE_S = 60.0
"""For each question: on a slow machine a demonstration waits, the first question for the workers to start, rather than fails."""
_CENT = 0.0051
"""Promised numbers are written with two decimals."""


@dataclass(frozen=True, slots=True)
class RowsAsked:
    """One question about tables as one person, with what came back and what should have."""

    question: str
    person: str
    why: str
    answer: Answer | SqlAnswer | Refused
    rows: Sequence[Sequence[Any]]
    ordered: bool
    outcome: str

    @property
    def got(self) -> str:
        return "refused" if isinstance(self.answer, Refused) else self.answer.outcome

    @property
    def table(self) -> Table | None:
        if isinstance(self.answer, Answer):
            return self.answer.tables[0] if self.answer.tables else None
        return None if isinstance(self.answer, Refused) else self.answer.table

    @property
    def problem(self) -> str:
        if self.got != self.outcome:
            return f"{self.got}, not {self.outcome}"
        if self.outcome != "answered":
            return "" if self.table is None else "rows that must not be there"
        found = () if self.table is None else self.table.rows
        return "" if _same(found, self.rows, ordered=self.ordered) else f"other rows: {_shown(found)}"


def ask_rows(router: Router, path: Path) -> list[RowsAsked]:
    """Every question of `tables` in questions.yaml, on its day."""
    raw = parse_yaml(path.read_text(encoding="utf-8"))
    now = datetime.fromisoformat(f"{raw['now']}T12:00:00+00:00")
    return [_ask(router, entry, now) for entry in raw["tables"]]


def _ask(router: Router, entry: Mapping[str, Any], now: datetime) -> RowsAsked:
    """What is not permitted is asked back in words and refused as SQL; both read as if the thing did not exist."""
    written = bool(entry.get("written"))
    token = router.mint(entry["as"])
    answer: Answer | SqlAnswer | Refused
    try:
        answer = (
            router.ask_sql(entry["ask"], token=token, now=now, deadline_s=PATIENCE_S)
            if written
            else router.ask(entry["ask"], token=token, route="sql", now=now, deadline_s=PATIENCE_S)
        )
    except Refused as error:
        answer = error
    usual = "answered" if "rows" in entry else ("refused" if written else "clarify")
    outcome = entry.get("asked", usual)
    return RowsAsked(
        entry["ask"], entry["as"], entry["why"], answer, entry.get("rows") or (), bool(entry.get("ordered")), outcome
    )


# --- rows that should be the same ---------------------------------------------------------------------------------------


def _same(found: Sequence[Sequence[Any]], wanted: Sequence[Sequence[Any]], *, ordered: bool) -> bool:
    if len(found) != len(wanted):
        return False
    if ordered:
        return all(map(_alike, found, wanted))
    return all(any(_alike(row, one) for row in found) for one in wanted)


def _alike(found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """One may show more columns than the other; what both show is the same."""
    fewer, more = (found, wanted) if len(found) <= len(wanted) else (wanted, found)
    left = iter(more)
    return bool(fewer) and all(any(_equal(cell, other) for other in left) for cell in fewer)


def _equal(one: Any, other: Any) -> bool:
    """A promised number has two decimals; days and decimals of rows are texts, so that they survive JSON."""
    for promised, got in ((one, other), (other, one)):
        if isinstance(promised, date):
            return str(got)[:10] == str(promised)
        if isinstance(promised, float) and isinstance(got, int | float | str):
            return _number(got) is not None and abs(_number(got) - promised) <= _CENT  # type: ignore[operator]
    return bool(one == other)


def _number(text: float | str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


# --- showing ------------------------------------------------------------------------------------------------------------


def print_rows_asked(asked: Sequence[RowsAsked]) -> None:
    """A question once with how it was read, then what each person gets."""
    out = console()
    out.print("\nThe same question about tables, over each person's own rows and columns:\n", style="bold")
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


def _print_got(item: RowsAsked) -> None:
    out = console()
    if isinstance(item.answer, Refused):
        out.print(f"     refused: {item.answer.message}", style="red")
        return
    if item.table is not None:
        for row in item.table.rows[:MOST_ROWS]:
            out.print(f"     {one_line(_row(row), 150)}", style="green")
        if len(item.table.rows) > MOST_ROWS:
            out.print(f"     … {len(item.table.rows) - MOST_ROWS} more rows")
        out.print(f"     {one_line(item.table.reading, 300)}" if item.table.reading else "     written as SQL", style="dim")
    elif isinstance(item.answer, Answer) and item.answer.clarify is not None:
        out.print(f"     {one_line(item.answer.clarify.question, 150)}", style="yellow")
    decision = item.answer.decision_id
    if isinstance(item.answer, Answer):
        total = sum(stage.us for stage in item.answer.stages) / 1000
        origin = f", drafted by a {item.table.origin}" if item.table is not None else ""
        out.print(f"     {total:.0f} ms{origin} · decision {decision}", style="dim")
    else:
        out.print(f"     decision {decision}", style="dim")


def _row(row: Sequence[Any]) -> str:
    return " · ".join(_cell(cell) for cell in row)


def _cell(cell: Any) -> str:
    if cell is None:
        return "–"
    return f"{cell:,.2f}" if isinstance(cell, float) else str(cell)


def _shown(rows: Sequence[Sequence[Any]]) -> str:
    shown = " / ".join(_row(row) for row in rows[:MOST_ROWS])
    return one_line(f"{shown or 'none'}{' / …' if len(rows) > MOST_ROWS else ''}", 300)


def rows_as_json(item: RowsAsked) -> dict[str, Any]:
    table = item.table
    return {
        "question": item.question,
        "as": item.person,
        "outcome": item.got,
        "origin": None if table is None else table.origin,
        "rows": None if table is None else [list(row) for row in table.rows],
        "decision_id": None if isinstance(item.answer, Refused) else item.answer.decision_id,
        "problem": item.problem,
    }
