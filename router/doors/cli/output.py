"""What the command line prints. INVARIANT: text from documents is data: control characters are stripped and nothing in it
is terminal markup (tests/unit/test_cli.py::test_hostile_text_is_printed_plain)."""

from __future__ import annotations

import json
import os
import shlex
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from router.errors import PointsmanError

if TYPE_CHECKING:
    from rich.console import Console


def plain(text: str) -> str:
    """`text` without control, format and surrogate characters; line breaks and tabs stay."""
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn"))


def one_line(text: str, most: int = 200) -> str:
    flat = " ".join(plain(text).split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=str) + "\n")
    sys.stdout.flush()


def console(*, error: bool = False) -> Console:
    from rich.console import Console

    out = Console(stderr=error, highlight=False, soft_wrap=True, markup=False, emoji=False)
    return (
        out if out.is_terminal else Console(stderr=error, highlight=False, soft_wrap=True, markup=False, emoji=False, width=160)
    )


def say(text: str = "", style: str | None = None) -> None:
    console().print(text, style=style)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None, figures: bool = False
) -> None:
    """With `figures`, all columns but the first are numbers, which stand under each other."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for at, column in enumerate(columns):
        table.add_column(column, no_wrap=True, justify="right" if figures and at else "left")
    for row in rows:
        table.add_row(*(Text(one_line(str(cell), 400)) for cell in row))
    out = console()
    out.print(table, width=max(out.width, 160), crop=False)


def called_as() -> str:
    """The command as it was called, so that what is printed can be copied."""
    return shlex.quote(sys.argv[0]) if os.sep in sys.argv[0] and sys.argv[0].endswith("pointsman") else "pointsman"


def print_error(error: PointsmanError, *, as_json: bool) -> None:
    if as_json:
        print_json(error.as_json())
        return
    out = console(error=True)
    out.print(f"{error.code}: {plain(error.message)}", style="bold red")
    if error.hint:
        out.print(f"  {plain(error.hint)}")
    if error.decision_id:
        out.print(f"  decision {error.decision_id}")
