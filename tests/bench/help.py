"""`pointsman --help` over `--help` of an empty Typer app with as many commands and groups, each a process of its own."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.measure import Figure, run_pairs

BAR = 1.3
PAIRS = 25
_OURS = "from router.doors.cli import main; import sys; sys.argv = ['pointsman', '--help']; main()"


def run(folder: Path) -> Iterator[Figure]:
    empty = folder / "empty_app.py"
    empty.write_text(_empty_app(), encoding="utf-8")
    product = [sys.executable, "-c", _OURS]
    bare = [sys.executable, str(empty), "--help"]
    pairs = run_pairs(lambda _: _call(product), lambda _: _call(bare), PAIRS, warm=2)
    figure = pairs.figure("help", "pointsman --help : empty Typer app, same groups and commands", BAR)
    yield dataclasses.replace(figure, cpu_ratio=None)  # the processes are others'


def _call(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def _empty_app() -> str:
    """The same tree of groups and commands with the same plain formatting, and nothing in it."""
    from router.doors.cli import app

    lines = [
        "import typer",
        "plain = dict(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)",
    ]
    lines.append("app = typer.Typer(**plain)")
    lines += _commands(app, "app")
    for at, group in enumerate(app.registered_groups):
        lines += [f"group_{at} = typer.Typer(**plain)", f"app.add_typer(group_{at}, name={group.name!r})"]
        lines += _commands(group.typer_instance, f"group_{at}")
    return "\n".join([*lines, "app()", ""])


def _commands(app: Any, name: str) -> list[str]:
    return [f"@{name}.command('c{at}')\ndef {name}_c{at}() -> None: ..." for at, _ in enumerate(app.registered_commands)]
