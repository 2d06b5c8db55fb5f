"""What one line of questions.jsonl promises, and whether an answer keeps it.

A line holds `person`, `question`, `context` (earlier questions), `route` with `wider_ok` (routes that are as right), `evidence` (documents
that answer; a list inside the list holds alternatives), `value` (rows, computed in expected_values.py), `must_not_see`, `half` (`before`:
written from documents and tables alone; `after`: having seen what the router does) and `answerable`.

`must_not_see` holds documents; texts, which may stand nowhere in the answer; `name:…`, which may stand nowhere but in a passage;
and numbers, which may be no cell.

INVARIANT: a wrong answer is found out (tests/e2e/test_question_set.py::test_what_is_wrong_is_found_out).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.visible import may_see

QUESTIONS = Path(__file__).parent / "questions.jsonl"
TOP = 5
CENT = 0.0051
"""Values are written with two decimals."""


@dataclass(frozen=True, slots=True)
class Line:
    id: str
    half: str
    kind: str
    person: str
    question: str
    context: list[str]
    route: str
    wider_ok: list[str]
    evidence: list[str | list[str]]
    value: Mapping[str, Any] | None
    must_not_see: list[str | float]
    answerable: bool


@dataclass(frozen=True, slots=True)
class Got:
    """One answer, or the two of a line that cannot choose yet. `body` is all that the asker is shown, `route` None where nothing chose."""

    route: str | None
    outcomes: tuple[str, ...]
    documents: tuple[str, ...]
    tables: tuple[Sequence[Sequence[Any]], ...]
    body: Mapping[str, Any]
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """None where the line promises nothing of the kind, or the route was not the router's."""

    line: Line
    got: Got
    exact: bool | None
    route: bool | None
    evidence: bool | None
    value: bool | None
    recognised: bool | None
    seen: tuple[str, ...] = field(default=())


def load_lines(path: Path = QUESTIONS) -> list[Line]:
    return [Line(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def judge(line: Line, got: Got) -> Verdict:
    names = {got.route, *({"clarify", "none"} & set(got.outcomes))}
    chosen = got.route is not None
    found = line.answerable
    return Verdict(
        line,
        got,
        exact=line.route in names if chosen else None,
        route=bool(names & {line.route, *line.wider_ok}) if chosen else None,
        evidence=holds_evidence(line, got.documents[:TOP]) if found and line.evidence else None,
        value=any(same(rows, line.value) for rows in got.tables) if found and line.value else None,
        recognised=None if found else not got.documents and not any(map(tells, got.tables)),
        seen=seen(line, got),
    )


def holds_evidence(line: Line, documents: Sequence[str]) -> bool:
    """Every part of the question, each by one of its alternatives."""
    return all(bool(set([part] if isinstance(part, str) else part) & set(documents)) for part in line.evidence)


def tells(rows: Sequence[Sequence[Any]]) -> bool:
    """Whether rows say that there is something: no row, nothing but zeros and empty cells do not."""
    return any(cell not in (None, 0, "0", "0.00") for row in rows for cell in row)


def seen(line: Line, got: Got) -> tuple[str, ...]:
    """What stands in the answer and must not, of this line and of what is hidden from this person anyway."""
    hidden = {document for document in got.documents if not may_see(line.person, document)}
    return tuple(sorted(hidden)) + tuple(str(item) for item in line.must_not_see if stands(item, got))


def stands(item: str | float, got: Got) -> bool:
    if not isinstance(item, str):
        return any(equal(cell, item) for rows in got.tables for row in rows for cell in row)
    if is_document(item):
        return item in got.documents
    body = {key: value for key, value in got.body.items() if not (key == "passages" and item.startswith("name:"))}
    text = json.dumps(_untimed(body), ensure_ascii=False, default=str)
    return re.search(rf"(?<![\w.]){re.escape(item.removeprefix('name:'))}(?![\w])", text, re.IGNORECASE) is not None


def _untimed(value: Any) -> Any:
    """A stage may take as many milliseconds as a secret number says."""
    if isinstance(value, Mapping):
        return {key: _untimed(part) for key, part in value.items() if key != "ms"}
    return [_untimed(part) for part in value] if isinstance(value, list | tuple) else value


def is_document(item: str | float) -> bool:
    return isinstance(item, str) and re.fullmatch(r"[a-z_0-9]+/\S+", item) is not None


def same(rows: Sequence[Sequence[Any]], value: Mapping[str, Any]) -> bool:
    return any(same_rows(rows, wanted, ordered=bool(value.get("ordered"))) for wanted in (value["rows"], *value.get("or", ())))


def same_rows(rows: Sequence[Sequence[Any]], wanted: Sequence[Sequence[Any]], *, ordered: bool) -> bool:
    """As many rows, and columns among those shown that hold what is wanted; more columns may be shown."""
    if len(rows) != len(wanted):
        return False
    if not wanted:
        return True
    picks = itertools.permutations(range(len(rows[0])), len(wanted[0]))
    return any(_rows_match([[row[at] for at in pick] for row in rows], wanted, ordered=ordered) for pick in picks)


def _rows_match(rows: Sequence[Sequence[Any]], wanted: Sequence[Sequence[Any]], *, ordered: bool) -> bool:
    left = list(rows)
    for row in wanted:
        at = next((i for i, other in enumerate(left[:1] if ordered else left) if all(map(equal, other, row))), None)
        if at is None:
            return False
        del left[at]
    return True


def equal(got: Any, wanted: Any) -> bool:
    """Rows survive JSON, so decimals and days are texts; a day may be shown with its hour."""
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        try:
            return got is not None and not isinstance(got, bool) and abs(float(got) - wanted) <= CENT
        except ValueError:
            return False
    if isinstance(wanted, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", wanted):
        return str(got)[:10] == wanted
    return bool(got == wanted)
