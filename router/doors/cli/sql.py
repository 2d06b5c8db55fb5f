"""`sql check` and `sql run`: a text over governed names, as somebody."""

from __future__ import annotations

from pathlib import Path

from router.app import Router
from router.ask_sql import SqlAnswer
from router.doors.cli.asking import parse_now, read_token
from router.doors.cli.output import plain, print_json, print_table, say
from router.errors import Refused


def run_sql(
    text: str,
    *,
    run: bool,
    person: str | None,
    token: Path | None,
    people: Path | None,
    now: str | None,
    as_json: bool,
    config: Path | None,
) -> None:
    """Exit code 3 where the gate or policy refuses."""
    with Router.open(config) as router:
        bearer = read_token(router, person, token, people)
        answer = router.ask_sql(text, token=bearer, run=run, now=parse_now(now))
    if as_json:
        print_json(answer.as_json())
    else:
        _print(answer)
    if answer.verdict.code:
        raise SystemExit(Refused.exit_code)


def _print(answer: SqlAnswer) -> None:
    if answer.verdict.code:
        say(f"refused  {answer.verdict.code}: {plain(answer.verdict.reason)}", "red")
    elif answer.table is None:
        say(f"passes the gate; it reads {', '.join(answer.verdict.tables) or 'no table'}", "green")
    else:
        columns = [f"{column.name} (masked)" if column.masked else column.name for column in answer.table.columns]
        print_table([plain(column) for column in columns], answer.table.rows)
        count = len(answer.table.rows)
        say(f"{count} {'row' if count == 1 else 'rows'}" + (", cut at the limit" if answer.table.truncated else ""))
    if answer.generated:
        say(plain(answer.generated))
    say(f"decision {answer.decision_id}")
