"""A folder with tables of every kind, copied by the ordinary line into snapshots beside it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import duckdb

from connectors.sql_sources import TableRows
from connectors.table_snapshots import DuckSnapshots
from router.config import parse_settings
from router.ingest.tables import TableReport, copy_tables, table_jobs


class World:
    """A folder with a configuration of tables, and the snapshots made of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.snapshots = DuckSnapshots(folder / "state" / "tables")
        self.tables: dict[str, dict[str, object]] = {}
        self.now_us = 1_000_000

    def copy(self, *names: str, full: bool = False) -> dict[str, TableReport]:
        settings = parse_settings({"tables": self.tables}, self.folder)
        self.now_us += 1_000_000
        jobs = table_jobs(settings, names, TableRows)
        reports = copy_tables(jobs, tuple(settings.tables), self.snapshots, now_us=lambda: self.now_us, full=full)
        return {report.table: report for report in reports}

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        con = duckdb.connect(str(self.snapshots.path()), read_only=True)
        try:
            return con.execute(sql).fetchall()
        finally:
            con.close()

    def types(self, table: str) -> dict[str, str]:
        snapshot = self.snapshots.current()
        assert snapshot is not None
        return dict(next(found for found in snapshot.tables if found.name == table).columns)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def csv(self, name: str, text: str, **more: object) -> None:
        self.write(f"{name}.csv", text)
        self.tables[name] = {"path": f"{name}.csv", **more}

    def sqlite(self, script: str) -> str:
        path = self.folder / "source.sqlite"
        con = sqlite3.connect(path)
        con.executescript(script)
        con.close()
        return "sqlite:///source.sqlite"

    def duckdb(self, sql: str, name: str = "source.duckdb") -> None:
        con = duckdb.connect(str(self.folder / name))
        con.execute(sql)
        con.close()
