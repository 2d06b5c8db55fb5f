"""`ask`, `whoami` and `token`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, cast

from router.app import Router
from router.domain import Answer, Passage, Table, Wanted
from router.doors.cli.output import console, one_line, plain, print_json, print_table, say
from router.doors.facts import principal_facts
from router.errors import Refused, UsageError

MAX_TOKEN_FILE = 1_000_000
READ_AS = "read as: "
"""Begins the note of the stage that read a follow-up in full."""


def read_token(router: Router, person: str | None, token: Path | None, people: Path | None = None) -> str:
    """Exactly one of --as and --token. `--as` mints a short-lived token, which is then verified like any other."""
    if (person is None) == (token is None):
        raise UsageError("identity_missing", "say who asks: --as PERSON or --token FILE, one of them", "for example --as ada")
    if token is not None:
        try:
            return token.read_text(encoding="ascii")[:MAX_TOKEN_FILE].strip()
        except (OSError, UnicodeDecodeError):
            raise UsageError("token_unreadable", f"the token file `{token}` cannot be read", "check the path") from None
    return router.mint(person or "", people=_people(people))


def _people(path: Path | None) -> Any:
    if path is None:
        return None
    from router.plain import NotPlain, parse_yaml

    try:
        known = parse_yaml(path.read_text(encoding="utf-8"))["people"]
    except (OSError, UnicodeDecodeError, NotPlain, KeyError, TypeError):
        raise UsageError("people_unreadable", f"`{path}` is not a people.yaml", "it begins with `people:`") from None
    if not isinstance(known, dict) or not all(isinstance(claims, dict) for claims in known.values()):
        raise UsageError("people_unreadable", f"`{path}` is not a people.yaml", "each person is a name with claims")
    try:
        json.dumps(known, allow_nan=False)
    except (TypeError, ValueError):
        hint = "claims are texts, numbers, true, false and lists; put dates in quotes"
        raise UsageError("people_unreadable", f"`{path}` holds a claim that no token can carry", hint) from None
    return known


def parse_now(now: str | None) -> datetime | None:
    if now is None:
        return None
    try:
        day = date.fromisoformat(now)
    except ValueError:
        raise UsageError("now_malformed", f"`{now}` is not a date", "write YYYY-MM-DD") from None
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def run_ask(
    question: str,
    *,
    person: str | None,
    token: Path | None,
    people: Path | None,
    k: int,
    route: str | None,
    context: Sequence[str],
    strategy: str | None,
    sources: Sequence[str],
    filters: Sequence[str],
    now: str | None,
    as_json: bool,
    config: Path | None,
) -> None:
    with Router.open(config) as router:
        bearer = read_token(router, person, token, people)
        answer = router.ask(
            question,
            token=bearer,
            k=k,
            route=cast(Wanted | None, route),
            context=context,
            strategy=strategy,
            sources=sources,
            filters=filters,
            now=parse_now(now),
        )
    if as_json:
        print_json(answer.as_json())
    else:
        print_answer(answer)
    if answer.refusal is not None:
        raise SystemExit(Refused.exit_code)


def print_answer(answer: Answer, *, lines: int = 8) -> None:
    """Passages with citations, what degraded, stages, and the receipt."""
    out = console()
    if answer.refusal is not None:
        out.print(f"refused  {answer.refusal.code}: {plain(answer.refusal.reason)}", style="bold red")
    elif answer.clarify is not None:
        out.print(plain(answer.clarify.question), style="yellow")
        for option in answer.clarify.options:
            out.print("   perhaps: " + one_line(option, 1000))
    elif answer.outcome == "none":
        out.print("nothing was looked up: this reads as small talk or as a command", style="yellow")
    elif answer.outcome == "empty" and not answer.tables:
        out.print("nothing found among what you may see", style="yellow")
        for heading in answer.nearest:
            out.print("   nearest: " + one_line(heading, 200))
    for stage in answer.stages:
        if stage.note.startswith(READ_AS):
            out.print(one_line(stage.note, 1000), style="dim")
    ranked: list[Passage | Table] = [*answer.passages, *answer.tables]
    for evidence in sorted(ranked, key=lambda one: one.rank):
        if isinstance(evidence, Table):
            print_rows(evidence, lines=max(lines, 20))
        else:
            print_passage(evidence, lines=lines)
    for note in answer.notes:
        out.print(plain(note), style="yellow")
    for entry in answer.degraded:
        out.print(f"degraded  {entry.stage}: {plain(entry.reason)}", style="yellow")
    print_receipt(answer)


def print_rows(table: Table, *, lines: int) -> None:
    """How the question was read, the rows, and the SQL over governed names."""
    out = console()
    out.print(f"{table.rank}  {one_line(table.reading, 1000)}", style="bold")
    columns = [f"{column.name} (masked)" if column.masked else column.name for column in table.columns]
    print_table([plain(column) for column in columns], [[_cell(cell) for cell in row] for row in table.rows[:lines]])
    hidden = len(table.rows) - lines
    more = f", {hidden} of them not shown here" if hidden > 0 else ""
    cut = ", cut at the limit" if table.truncated else ""
    named = ", ".join(f"`{plain(word)}`" for word in table.why[1:])
    out.print(
        f"{len(table.rows)} {'row' if len(table.rows) == 1 else 'rows'}{more}{cut}, by {table.origin}{f' from {named}' if named else ''}",
        style="dim",
    )
    out.print(plain(table.sql), style="dim")
    out.print()


def _cell(cell: Any) -> Any:
    """A computed number with four decimals: the JSON has them all."""
    return f"{cell:.4f}".rstrip("0").rstrip(".") if isinstance(cell, float) else cell


def print_passage(passage: Passage, *, lines: int) -> None:
    out = console()
    out.print(f"{passage.rank}  {one_line(passage.title)}", style="bold")
    place = [passage.document_id, _span(passage)]
    if passage.version:
        place.append(f"version {passage.version}")
    if passage.effective_from:
        place.append(f"in force from {passage.effective_from}")
    place.append(_found_by(passage.why))
    out.print("   " + one_line(" · ".join(part for part in place if part), 400), style="dim")
    heading = " > ".join(part for part in passage.heading_path if part != passage.title)
    if heading:
        out.print("   " + one_line(heading), style="italic")
    body = [line for line in plain(passage.text).splitlines() if line.strip()]
    for line in body[:lines]:
        out.print("   " + line[:400])
    if len(body) > lines:
        out.print(f"   … {len(body) - lines} more lines", style="dim")
    out.print()


def _found_by(why: Sequence[str]) -> str:
    """By which searches, or by what it is linked to a passage above it."""
    if legs := [_LEGS[leg] for leg in why if leg in _LEGS]:
        return f"found by {' and '.join(legs)}"
    return ", ".join(one_line(one) for one in why)


def _span(passage: Passage) -> str:
    span = passage.span
    if span.sheet is not None:
        return f"sheet {span.sheet}"
    if span.page is not None:
        return f"page {span.page}"
    if span.lines is not None:
        first, last = span.lines
        return f"lines {first}-{last}" if first != last else f"line {first}"
    return ""


_LEGS = {"dense": "meaning", "lexical": "words"}


def print_receipt(answer: Answer) -> None:
    out = console()
    total = sum(stage.us for stage in answer.stages) / 1000
    stages = " · ".join(
        f"{_STAGES.get(stage.name, stage.name)} {stage.us / 1000:.1f}" for stage in answer.stages if stage.us >= 1000
    )
    out.print(f"{answer.outcome}, route {answer.route.name} · {total:.1f} ms: {stages}", style="dim")
    receipts = ", ".join(dict.fromkeys(receipt.digest[:12] for receipt in answer.filters))
    out.print(f"decision {answer.decision_id} · policy {answer.policy_version[:12]} · filter {receipts or 'none'}", style="dim")


_STAGES = {"asked": "record asked", "answered": "record answered"}


def run_whoami(*, person: str | None, token: Path | None, people: Path | None, as_json: bool, config: Path | None) -> None:
    with Router.open(config) as router:
        principal = router.whoami(read_token(router, person, token, people))
    facts = principal_facts(principal)
    if as_json:
        print_json(facts)
        return
    clearance = facts.pop("clearance_name", None)
    for name, value in facts.items():
        words = (
            ", ".join(value)
            if isinstance(value, list)
            else {True: "yes", False: "no"}[value]
            if isinstance(value, bool)
            else str(value)
        )
        say(f"{name:<12} {one_line(words, 1000)}{f' ({clearance})' if name == 'clearance' and clearance else ''}")


def run_token(person: str, *, minutes: int, people: Path | None, as_json: bool, config: Path | None) -> None:
    with Router.open(config) as router:
        token = router.mint(person, minutes=minutes, people=_people(people))
    if as_json:
        print_json({"token": token, "minutes": minutes})
    else:
        print(token)
