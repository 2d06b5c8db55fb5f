"""The line of the tables: list -> copy -> check -> switch -> record how fresh they are.

One snapshot holds every table, so that a question that joins two sees both of one switch. What did not change is carried over;
what cannot be copied keeps its last copy, and says since when.

INVARIANT: a table that cannot be copied costs no other table anything, and its last copy stays
(tests/unit/test_table_snapshots.py::test_one_failure_costs_no_other_table).
INVARIANT: where nothing changed, there is no new version (tests/unit/test_table_snapshots.py::test_unchanged_files_make_no_new_version).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from router.config import Settings, TableSettings
from router.domain import CopiedTable, TableFile, TableSnapshot
from router.errors import PointsmanError, SourceError, UsageError
from router.ports import RowSource, TableDraft, TableSnapshots


@dataclass(frozen=True, slots=True)
class TableJob:
    """One table to be copied: its governed name inside the snapshot, and where its rows come from. `fault` stands where that
    place is not there at all."""

    name: str
    origin: TableFile | RowSource | None
    fault: SourceError | None = None


@dataclass(frozen=True, slots=True)
class TableReport:
    """What became of one table."""

    table: str
    rows: int
    outcome: str  # copied, unchanged, failed, removed
    error: PointsmanError | None = None


def table_jobs(settings: Settings, names: Sequence[str], rows: Callable[..., RowSource]) -> list[TableJob]:
    """The named tables of the configuration, or all; `rows` makes the source of those that stand in a database."""
    for name in names:
        if name not in settings.tables:
            raise UsageError("table_unknown", f"there is no table `{name}`", f"`[tables.{name}]` is missing in pointsman.toml")
    return [_job(name, settings.tables[name], settings, rows) for name in names or sorted(settings.tables)]


def _job(name: str, table: TableSettings, settings: Settings, rows: Callable[..., RowSource]) -> TableJob:
    given = [place for place in (table.path, table.database, table.database_env) if place is not None]
    if len(given) != 1 or (table.query is not None and (table.path is not None or table.table is not None)):
        raise UsageError(
            "table_incomplete",
            f"`[tables.{name}]` needs one of `path`, `database` and `database_env`; `query` goes with a database and without `table`",
            "complete it",
        )
    if table.path is not None:
        return _file_job(name, table, settings.at(table.path))
    url = table.database if table.database is not None else os.environ.get(str(table.database_env), "")
    if not url:
        fault = SourceError(
            "table_unset", f"the environment variable `{table.database_env}` of table `{name}` is not set", "set it to a URL"
        )
        return TableJob(name, None, fault)
    wanted = table.table or (None if table.query else name)
    url = settings.database_url(url)
    return TableJob(name, rows(name=name, database=url, table=wanted, query=table.query, types=dict(table.types)))


def _file_job(name: str, table: TableSettings, path: Path) -> TableJob:
    kind = _format(name, table, path)
    paths = sorted(path.parent.glob(path.name)) if "*" in path.name else [path]
    missing = not paths or not all(found.is_file() for found in paths)
    if missing:
        return TableJob(
            name, None, SourceError("table_missing", f"a file of table `{name}` is not there", "check `path`", retryable=True)
        )
    if kind == "duckdb" and len(paths) > 1:
        raise UsageError("table_incomplete", f"`[tables.{name}]` names several DuckDB files", "name one")
    return TableJob(name, TableFile(tuple(map(str, paths)), kind, table.table or "", tuple(sorted(table.types.items()))))


_ENDINGS: Mapping[str, Literal["csv", "parquet", "duckdb"]] = {
    ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet", ".duckdb": "duckdb", ".ddb": "duckdb",
}  # fmt: skip


def _format(name: str, table: TableSettings, path: Path) -> Literal["csv", "parquet", "duckdb"]:
    if table.format != "auto":
        return table.format
    endings = [ending.lower() for ending in path.suffixes if ending.lower() not in {".gz", ".zst"}]
    if not endings or endings[-1] not in _ENDINGS:
        raise UsageError(
            "table_format", f"the ending of `path` in `[tables.{name}]` says no format", "add `format`: csv, parquet or duckdb"
        )
    return _ENDINGS[endings[-1]]


def copy_tables(
    jobs: Sequence[TableJob],
    declared: Sequence[str],
    snapshots: TableSnapshots,
    *,
    now_us: Callable[[], int],
    full: bool = False,
    progress: Callable[[TableReport], None] | None = None,
) -> list[TableReport]:
    """Copy `jobs`; of the `declared` ones, others are carried over, and what is not declared any more goes. `full` copies also
    what did not change. Raises `SourceError` where no snapshot can be written; what concerns one table is in its report."""
    with snapshots.exclusive():
        held = snapshots.current()
        old = {table.name: table for table in held.tables} if held is not None else {}
        gone = [TableReport(name, 0, "removed") for name in sorted(set(old) - set(declared))]
        prints = {job.name: _fingerprint(job, snapshots) for job in jobs}
        fresh = [job for job in jobs if full or not _unchanged(prints[job.name], old.get(job.name))]
        reports = [TableReport(job.name, old[job.name].rows, "unchanged") for job in jobs if job not in fresh]
        if not fresh and not gone:
            return _told(reports, progress)
        with snapshots.draft() as draft:
            made = [_copy(job, prints[job.name], draft, now_us) for job in fresh]
            reports = sorted([*reports, *(report for report, _ in made)], key=lambda report: report.table) + gone
            copied = {table.name: table for _, table in made if table is not None}
            kept = {name: table for name, table in old.items() if name in declared and name not in copied}
            failed = {report.table: report.error for report, table in made if report.error is not None}
            noted = _noted(held, {**kept, **copied}, failed, declared, now_us())
            if copied or gone:
                for table in kept.values():
                    draft.carry(table)
                draft.switch(replace(noted, version=draft.version, made_at_us=now_us()))
            else:
                snapshots.note(noted)
        return _told(reports, progress)


OLD_US = 7 * 86_400 * 1_000_000
"""Of a table whose place does not say whether it has changed, a copy is old after a week."""


@dataclass(frozen=True, slots=True)
class TableFinding:
    """Where configuration, places and snapshot do not agree. A `fault` costs answers, a `warning` makes them old."""

    level: Literal["warning", "fault"]
    table: str
    kind: str
    message: str
    hint: str


def verify_tables(jobs: Sequence[TableJob], snapshots: TableSnapshots, *, now_us: int) -> list[TableFinding]:
    """What is not copied, what has changed since, what is old, and what is wrong with the snapshot itself."""
    held = snapshots.current()
    tables = {table.name: table for table in held.tables} if held is not None else {}
    failed = {name: code for name, code, _ in (held.failures if held is not None else ())}
    broken = [
        TableFinding("fault", name, "table_damaged", message, "run `pointsman index --full`")
        for name, message in snapshots.verify()
    ]
    named = {job.name for job in jobs}
    surplus = [
        TableFinding(
            "warning", name, "table_surplus", f"`{name}` is served, and not configured any more", "run `pointsman index`"
        )
        for name in sorted(set(tables) - named)
    ]
    stale = [_stale(job, tables.get(job.name), failed.get(job.name, ""), snapshots, now_us) for job in jobs]
    return [*broken, *(finding for finding in stale if finding is not None), *surplus]


def _stale(job: TableJob, table: CopiedTable | None, failed: str, snapshots: TableSnapshots, now_us: int) -> TableFinding | None:
    again = "run `pointsman index`"
    if table is None:
        why = f"`{job.name}` could not be copied: {failed}" if failed else f"`{job.name}` has not been copied yet"
        return TableFinding("fault", job.name, "table_not_copied", why, again)
    if table.failed:
        message = f"the latest copy of `{job.name}` failed: {table.failed}"
        return TableFinding("warning", job.name, "table_not_renewed", message, f"{again}; it says what is wrong")
    now = _fingerprint(job, snapshots)
    if isinstance(now, SourceError):
        return TableFinding("warning", job.name, now.code, now.message, now.hint)
    if now != table.fingerprint:
        return TableFinding("warning", job.name, "table_changed", f"`{job.name}` changed since it was copied", again)
    if not now and now_us - table.copied_at_us > OLD_US:
        days = (now_us - table.copied_at_us) // 86_400_000_000
        return TableFinding("warning", job.name, "table_old", f"`{job.name}` was copied {days} days ago", again)
    return None


def _fingerprint(job: TableJob, snapshots: TableSnapshots) -> str | SourceError:
    if job.fault is not None or job.origin is None:
        return job.fault or SourceError("table_missing", f"table `{job.name}` has no place to be copied from", "check `path`")
    if not isinstance(job.origin, TableFile):
        return ""
    try:
        return snapshots.fingerprint(job.origin)
    except SourceError as error:
        return error


def _unchanged(fingerprint: str | SourceError, old: CopiedTable | None) -> bool:
    return (
        old is not None
        and isinstance(fingerprint, str)
        and fingerprint != ""
        and fingerprint == old.fingerprint
        and not old.failed
    )


def _copy(
    job: TableJob, fingerprint: str | SourceError, draft: TableDraft, now_us: Callable[[], int]
) -> tuple[TableReport, CopiedTable | None]:
    try:
        if isinstance(fingerprint, SourceError):
            raise fingerprint
        assert job.origin is not None
        table = draft.copy(job.name, job.origin, fingerprint=fingerprint, at_us=now_us())
    except PointsmanError as error:
        return TableReport(job.name, 0, "failed", error), None
    return TableReport(job.name, table.rows, "copied"), table


def _noted(
    held: TableSnapshot | None,
    tables: dict[str, CopiedTable],
    failed: Mapping[str, PointsmanError | None],
    declared: Sequence[str],
    at_us: int,
) -> TableSnapshot:
    """The record anew: what failed says so beside its last copy, or by itself where there is none."""
    now = {name: (error.code, at_us) for name, error in failed.items() if error is not None}
    marked = tuple(
        replace(table, failed=now[name][0], failed_at_us=at_us) if name in now else table
        for name, table in sorted(tables.items())
    )
    before = {name: (code, when) for name, code, when in (held.failures if held is not None else ())}
    alone = {name: what for name, what in {**before, **now}.items() if name in declared and name not in tables}
    failures = tuple((name, code, when) for name, (code, when) in sorted(alone.items()))
    base = held if held is not None else TableSnapshot("", 0, ())
    return replace(base, tables=marked, failures=failures)


def _told(reports: list[TableReport], progress: Callable[[TableReport], None] | None) -> list[TableReport]:
    for report in reports if progress is not None else ():
        assert progress is not None
        progress(report)
    return reports
