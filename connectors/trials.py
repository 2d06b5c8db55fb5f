"""Throw-away databases in memory, in which evaluation runs somebody's gold queries and our plans over the same rows.

Nothing of a caller is ever in one: the rows are made up, or stand beside the questions. Texts are run as they are, without the gate.
"""

from __future__ import annotations

import datetime as clock
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import duckdb

LONGEST_S = 10.0
_BLOCK = 500
_DUCK_TYPES = {
    "text": "VARCHAR", "integer": "BIGINT", "float": "DOUBLE", "decimal": "DECIMAL(18,4)", "date": "DATE", "datetime": "TIMESTAMP",
    "time": "TIME", "boolean": "BOOLEAN",
}  # fmt: skip
_SQLITE_TYPES = {"integer": "INTEGER", "float": "REAL", "decimal": "NUMERIC", "boolean": "INTEGER"}


class DuckTrial:
    """DuckDB. What it cannot run is a `ValueError` with its own words."""

    def __init__(self) -> None:
        self._con = duckdb.connect(config={"threads": 1, "enable_external_access": False})
        self._con.execute("SET TimeZone = 'UTC'")

    def load(self, name: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> None:
        listed = ", ".join(f"{_quoted(column)} {_DUCK_TYPES[kind]}" for column, kind in columns)
        self._con.execute(f"CREATE TABLE {_quoted(name)} ({listed})")
        for start in range(0, len(rows), _BLOCK):
            values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows[start : start + _BLOCK])
            self._con.execute(f"INSERT INTO {_quoted(name)} VALUES {values}")

    def execute(self, text: str) -> None:
        try:
            self._con.execute(text)
        except duckdb.Error as error:
            raise ValueError(str(error)) from error

    def run(self, text: str) -> list[tuple[Any, ...]]:
        timer = threading.Timer(LONGEST_S, self._con.interrupt)
        timer.start()
        try:
            return self._con.execute(text).fetchall()
        except duckdb.Error as error:
            raise ValueError(str(error)) from error
        finally:
            timer.cancel()

    def close(self) -> None:
        self._con.close()


class SqliteTrial:
    """SQLite, with its own ideas of types: dates are text, and a name in double quotes that no column has is text, too."""

    def __init__(self) -> None:
        self._con = sqlite3.connect(":memory:")
        self._con.text_factory = lambda raw: raw.decode("utf-8", "replace")
        self._end = 0.0
        self._con.set_progress_handler(lambda: int(time.monotonic() > self._end), 20_000)

    def load(self, name: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> None:
        self._end = time.monotonic() + LONGEST_S
        listed = ", ".join(f"{_quoted(column)} {_SQLITE_TYPES.get(kind, 'TEXT')}" for column, kind in columns)
        self._con.execute(f"CREATE TABLE {_quoted(name)} ({listed})")
        marks = ", ".join("?" * len(columns))
        self._con.executemany(f"INSERT INTO {_quoted(name)} VALUES ({marks})", map(_stored, rows))

    def run(self, text: str) -> list[tuple[Any, ...]]:
        self._end = time.monotonic() + LONGEST_S
        try:
            return self._con.execute(text).fetchall()
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ValueError(str(error)) from error

    def close(self) -> None:
        self._con.close()


def _stored(row: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    if isinstance(value, clock.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, clock.date | clock.time):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float | Decimal):
        return str(value)
    return "'" + str(_plain(value)).replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
