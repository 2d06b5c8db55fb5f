"""Whether a plan's rows answer as gold's do, on rows that are the same for both.

Right: gold's columns are found among the plan's, with the same rows as often (as a set, where gold is a plain list). The order of
rows counts where gold orders and either cuts or the question speaks of an order; rows that gold's order leaves equal may stand in
any order. Where gold cuts among equals, no answer is right and the seed says nothing.

INVARIANT: gold judges itself right, and a plan whose rows differ under any seed is wrong
(tests/unit/test_text_to_sql.py::test_gold_is_right, ::test_mutants_are_wrong).
"""

from __future__ import annotations

import datetime as clock
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from router.evals.text_to_sql.golds import Gold

Verdict = Literal["right", "wrong", "tied", "empty"]
Row = tuple[Any, ...]
MOST_PROJECTIONS = 5_000
"""Ways tried of finding gold's columns among a plan's."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What gold gives on one seed. `runs` are its rows, equals in its order together, of which `cut` are wanted; a single run where
    the order does not count. `rows` are exactly what gold says."""

    rows: list[Row]
    runs: list[list[Row]]
    plain_list: bool
    tied: bool
    any_of: list[Row] | None = None

    @property
    def empty(self) -> bool:
        return all(value in (None, 0) for row in self.rows for value in row)


def run_gold(gold: Gold, run: Callable[[str], list[Row]]) -> Wanted:
    """Raises `ValueError` where gold does not run."""
    rows = _even(run(gold.text))
    if gold.keyed is None:
        loose = gold.limit is not None and not gold.ordered
        return Wanted(rows, [rows], gold.plain_list, tied=False, any_of=_even(run(_uncut(gold.text))) if loose else None)
    keyed = _even(run(gold.keyed))
    runs: list[list[Row]] = []
    last: Row | None = None
    for row in keyed:
        if row[gold.width :] != last:
            runs.append([])
            last = row[gold.width :]
        runs[-1].append(row[: gold.width])
    if gold.limit is None:
        return Wanted(rows, runs, gold.plain_list, tied=False)
    kept, tied = _cut(runs, gold.offset, gold.limit)
    return Wanted(rows, kept, plain_list=False, tied=tied)


def _uncut(text: str) -> str:
    return re.sub(r"(?i)\blimit\s+\d+(\s+offset\s+\d+)?\s*;?\s*$", "", text)


def _cut(runs: list[list[Row]], offset: int, limit: int) -> tuple[list[list[Row]], bool]:
    """The runs inside the cut, and whether it parts rows that differ."""
    kept: list[list[Row]] = []
    at, tied = 0, False
    for run in runs:
        start, end = max(at, offset), min(at + len(run), offset + limit)
        if start < end:
            tied |= end - start < len(run) and len(set(run)) > 1
            kept.append(run[: end - start])
        at += len(run)
    return kept, tied


_ORDER = re.compile(
    r"order|sort|arrang|rank|ascend|descend|alphabet|chronolog|\bfrom (the )?\w+est\b|\bto (the )?(low|high|small|larg|old|young|least|most)"
    r"|\b(top|first|last)\b|\w+est first\b",
    re.IGNORECASE,
)


def asks_order(question: str) -> bool:
    """Whether a question speaks of an order at all. Some gold orders whatever it lists; that order nobody asked for."""
    return _ORDER.search(question) is not None


def judge(wanted: Wanted, rows: Sequence[Row], *, ordered: bool) -> Verdict:
    """`rows` are the plan's, in its order. `ordered`: gold orders, so the plan must."""
    if wanted.tied:
        return "tied"
    found = _even(rows)
    if not wanted.rows or not found:
        return "right" if bool(wanted.rows) == bool(found) else "wrong"
    if any(_agrees(wanted, projected, ordered=ordered) for projected in _projections(wanted, found)):
        return "right"
    return "wrong"


def _projections(wanted: Wanted, found: list[Row]) -> Iterator[list[Row]]:
    """The plan's rows cut to what could be gold's columns, in gold's order of columns."""
    width, wide = len(wanted.rows[0]), len(found[0])
    if width > wide or (not wanted.plain_list and len(found) != len(wanted.rows)):
        return
    pool = wanted.any_of if wanted.any_of is not None else wanted.rows

    def column(rows: list[Row], at: int) -> Any:
        values = [row[at] for row in rows]
        return set(values) if wanted.plain_list or wanted.any_of is not None else Counter(values)

    mine = [column(found, at) for at in range(wide)]
    fits: list[list[int]] = []
    for at in range(width):
        theirs = column(pool, at)
        if wanted.any_of is None:
            fits.append([other for other in range(wide) if mine[other] == theirs])
        else:
            fits.append([other for other in range(wide) if mine[other] <= theirs])
    budget = MOST_PROJECTIONS
    for chosen in _choices(fits, ()):
        yield [tuple(row[at] for at in chosen) for row in found]
        budget -= 1
        if budget == 0:
            return


def _choices(fits: list[list[int]], chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if len(chosen) == len(fits):
        yield chosen
        return
    for at in fits[len(chosen)]:
        if at not in chosen:
            yield from _choices(fits, (*chosen, at))
    if all(at in chosen for at in fits[len(chosen)]):  # gold shows one column twice
        for at in fits[len(chosen)]:
            yield from _choices(fits, (*chosen, at))


def _agrees(wanted: Wanted, rows: list[Row], *, ordered: bool) -> bool:
    if wanted.any_of is not None:
        return not Counter(rows) - Counter(wanted.any_of)
    if wanted.plain_list:
        if set(rows) != set(wanted.rows):
            return False
    elif Counter(rows) != Counter(wanted.rows):
        return False
    if not ordered or len(wanted.runs) < 2:
        return True
    if Counter(rows) == Counter(row for run in wanted.runs for row in run):
        at = 0
        for run in wanted.runs:
            if Counter(rows[at : at + len(run)]) != Counter(run):
                return False
            at += len(run)
        return True
    return _rises(wanted.runs, rows)


def _rises(runs: list[list[Row]], rows: list[Row]) -> bool:
    """A list that is right as a set: some place of each row's in gold's order never goes back."""
    places: dict[Row, list[int]] = {}
    for at, run in enumerate(runs):
        for row in run:
            places.setdefault(row, []).append(at)
    now = 0
    for row in rows:
        later = [at for at in places.get(row, []) if at >= now]
        if not later:
            return False
        now = later[0]
    return True


# --- values -----------------------------------------------------------------------------------------------------------


def _even(rows: Sequence[Sequence[Any]]) -> list[Row]:
    return [tuple(_value(value) for value in row) for row in rows]


def _value(value: Any) -> Any:
    """One spelling for what is the same in both engines: numbers to nine digits, days and moments as text, flags as 0 and 1."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float | Decimal):
        return _number(float(value))
    if isinstance(value, clock.datetime):
        return value.date().isoformat() if value.time() == clock.time() else value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, clock.date | clock.time):
        return value.isoformat()
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch(r"-?(0|[1-9]\d{0,14})(\.\d+)?", text):
            return _number(float(text))
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}[ T]00:00:00(\.0+)?", text):
            return text[:10]
        if text.lower() in ("true", "false"):
            return float(text.lower() == "true")
        return text
    return value if value is None else str(value)


def _number(value: float) -> float:
    return float(f"{value:.9g}") + 0.0
