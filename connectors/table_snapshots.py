"""Tables copied into versioned DuckDB files: what people query is a snapshot, never the system that it was copied from.

One folder holds a file for each version and `tables.json`, which names the current one and says of every table how many rows it
has, of which types, from when. Renaming that one file is the switch: who opened a version keeps it, who comes next gets the new one.
Rows of databases come in batches of texts that the engine casts to the column's type; what does not fit is refused, never bent.

INVARIANT: until a copy is whole and checked, the current version stays, whatever ends the copy (tests/faults/test_tables.py::
test_killed_in_the_middle_leaves_the_old_snapshot, ::test_ctrl_c_leaves_the_old_snapshot).
INVARIANT: a snapshot holds only types that can be served; another is refused by name (tests/unit/test_table_snapshots.py::
test_type_that_cannot_be_served).
INVARIANT: no cell of a table stands in an error (tests/unit/test_table_snapshots.py::test_no_cell_in_an_error).
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import hashlib
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from router.domain import CopiedTable, RowColumn, TableFile, TableSnapshot
from router.errors import PointsmanError, SourceError
from router.ports import RowSource

SCHEMA = 1
RECORD = "tables.json"
_NAMED = re.compile(r"tables-[0-9a-f]{24}\.duckdb")
_MEMORY_MB = 256
_STOP_S = 10.0
_MOST_COLUMNS = 1_000
_SIMPLE = frozenset(
    "BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT FLOAT DOUBLE VARCHAR BLOB "
    "DATE TIME TIMESTAMP INTERVAL UUID".split()
)
_NESTED = {"list": "children", "array": "children", "struct": "children", "map": "children"}
_ZONED = "TIMESTAMP WITH TIME ZONE"
_CONFIG: dict[str, Any] = {
    "threads": 2,
    "memory_limit": f"{_MEMORY_MB}MB",
    "python_enable_replacements": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
}


class DuckSnapshots:
    """Implements `router.ports.TableSnapshots` in one folder, which is made for its owner only."""

    def __init__(self, folder: Path, *, keep_s: float = 60.0) -> None:
        """A version is kept for `keep_s` after its successor's successor came: a worker that was told of it may still start."""
        self._folder, self._keep_s = folder, keep_s

    def path(self) -> Path:
        """The file of the current version. Raises `SourceError` before the first."""
        snapshot = self.current()
        if snapshot is None or not snapshot.version:
            raise SourceError("tables_missing", "no table has been copied yet", "run `pointsman index`")
        return self._folder / _file_name(snapshot.version)

    def current(self) -> TableSnapshot | None:
        try:
            raw = json.loads((self._folder / RECORD).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise _unreadable_record() from None
        if not isinstance(raw, dict) or not isinstance(raw.get("schema"), int):
            raise _unreadable_record()
        if raw["schema"] > SCHEMA:
            raise SourceError(
                "tables_newer",
                f"the tables have schema {raw['schema']}, this version knows {SCHEMA}",
                "use the newer pointsman that wrote them",
            )
        try:
            snapshot = _parse_snapshot(raw)
        except (KeyError, TypeError, ValueError):
            raise _unreadable_record() from None
        if snapshot.version and not (self._folder / _file_name(snapshot.version)).is_file():
            return TableSnapshot("", 0, ())  # somebody removed the file: everything is to be copied again
        return snapshot

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        self._make_folder()
        with open(self._folder / "tables.lock", "a+b") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SourceError(
                    "tables_busy", "another run copies tables", "wait for it to end, then try again", retryable=True
                ) from None
            yield

    def fingerprint(self, origin: TableFile) -> str:
        """Places, sizes, times and inodes of the files, and what is said of them."""
        parts: list[object] = [origin.format, origin.table, origin.types]
        for path in origin.paths:
            try:
                stat = os.stat(path)
                journal = os.stat(f"{path}.wal").st_mtime_ns if os.path.exists(f"{path}.wal") else 0
            except OSError:
                raise SourceError("table_missing", "a file of the table is not there", "check `path`", retryable=True) from None
            parts += [path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev, journal]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @contextlib.contextmanager
    def draft(self) -> Iterator[_Draft]:
        self._make_folder()
        self._clean()
        draft = _Draft(self, self._folder)
        try:
            yield draft
        finally:
            draft.close()

    def verify(self) -> list[tuple[str, str]]:
        snapshot = self.current()
        if snapshot is None or not snapshot.version:
            return []
        con = duckdb.connect(":memory:", config=_CONFIG)
        try:
            con.execute("SET enable_progress_bar = false")
            con.execute(f"ATTACH {_text(str(self._folder / _file_name(snapshot.version)))} AS held (READ_ONLY)")
            names = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'held'").fetchall()
            there = {name: _described(con, "held", name) for (name,) in names}
            for name in there:  # every block is read, and with it its checksum
                con.execute(f"SELECT bit_xor(hash(held)) FROM held.main.{_name(name)} AS held").fetchall()
        except (duckdb.Error, OSError, RuntimeError):
            return [("", "the snapshot of the tables cannot be read")]
        finally:
            con.close()
        recorded = {table.name: (table.columns, table.rows) for table in snapshot.tables}
        return [
            (name, "the snapshot does not hold what was copied")
            for name in sorted({*there, *recorded})
            if there.get(name) != recorded.get(name)
        ]

    def note(self, snapshot: TableSnapshot) -> None:
        self._make_folder()
        beside = self._folder / f"{RECORD}.new"
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump({"schema": SCHEMA, **asdict(snapshot)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self._folder / RECORD)
        _sync_folder(self._folder)

    def keep(self, versions: Sequence[str]) -> None:
        """Remove the files of every other version that was replaced long enough ago."""
        kept = {_file_name(version) for version in versions}
        for path in self._folder.iterdir():
            if _NAMED.fullmatch(path.name) and path.name not in kept and path.stat().st_mtime <= time.time() - self._keep_s:
                path.unlink(missing_ok=True)

    def _clean(self) -> None:
        """What a run that was killed left behind."""
        for path in self._folder.glob("draft-*"):
            with contextlib.suppress(OSError):
                path.unlink()

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            raise SourceError("tables_unwritable", "the folder of the tables cannot be made", "check the state folder") from None


def _described(con: Any, catalog: str, name: str) -> tuple[tuple[tuple[str, str], ...], int]:
    """Columns and types, and how many rows."""
    place = f"{catalog}.main.{_name(name)}"
    described = con.execute(f"SELECT * FROM {place} LIMIT 0").description
    ((rows,),) = con.execute(f"SELECT count(*) FROM {place}").fetchall()
    return tuple((str(column), str(kind)) for column, kind, *_ in described), int(rows)


class _Unfit(Exception):  # noqa: N818 (what a value is, not whose fault)
    """A value is not of the type it is to have, or a row has not the columns of its table."""


class _Draft:
    """Implements `router.ports.TableDraft`: a file beside the others that takes its name when it is switched."""

    def __init__(self, snapshots: DuckSnapshots, folder: Path) -> None:
        self._snapshots, self._folder = snapshots, folder
        self._version = secrets.token_hex(12)
        self._path = folder / f"draft-{self._version}.duckdb"
        self._con: Any = duckdb.connect(
            ":memory:", config=_CONFIG | {"temp_directory": str(folder / f"draft-{self._version}.tmp")}
        )
        with _translated("tables_unwritable", "the snapshot of the tables cannot be written", _DISK):
            self._con.execute("SET enable_progress_bar = false")
            self._con.execute(f"ATTACH {_text(str(self._path))} AS draft")

    @property
    def version(self) -> str:
        return self._version

    def copy(self, name: str, origin: TableFile | RowSource, *, fingerprint: str, at_us: int) -> CopiedTable:
        target = f"draft.main.{_name(name)}"
        kind: str = origin.format if isinstance(origin, TableFile) else origin.origin
        try:
            with _translated("tables_unwritable", f"table `{name}` cannot be written to the snapshot", _DISK):
                if isinstance(origin, TableFile):
                    self._copy_file(name, target, origin)
                else:
                    self._copy_rows(name, target, origin)
                columns, rows = _described(self._con, "draft", name)
        except BaseException:
            with contextlib.suppress(duckdb.Error, RuntimeError):
                self._con.execute(f"DROP TABLE IF EXISTS {target}")
            raise
        return CopiedTable(name, columns, rows, kind, fingerprint, at_us)

    def carry(self, table: CopiedTable) -> None:
        with _translated(
            "tables_unreadable", "the current snapshot of the tables cannot be read", "run `pointsman index --full`"
        ):
            self._con.execute(f"ATTACH {_text(str(self._snapshots.path()))} AS held (READ_ONLY)")
            try:
                self._run(f"CREATE TABLE draft.main.{_name(table.name)} AS SELECT * FROM held.main.{_name(table.name)}")
            finally:
                self._con.execute("DETACH held")

    def switch(self, snapshot: TableSnapshot) -> None:
        before = self._snapshots.current()
        self._check(snapshot)
        self._con.close()
        self._con = None
        with _translated("tables_unwritable", "the snapshot of the tables cannot be written", _DISK):
            os.chmod(self._path, 0o600)
            with open(self._path, "rb") as file:
                os.fsync(file.fileno())
            os.replace(self._path, self._folder / _file_name(snapshot.version))
            self._snapshots.note(snapshot)
        if before is not None and before.version:
            with contextlib.suppress(OSError):
                os.utime(self._folder / _file_name(before.version))  # from now on it is a version before
        self._snapshots.keep([snapshot.version, *([before.version] if before is not None else [])])

    def close(self) -> None:
        if self._con is not None:
            self._con.close()
        for path in self._folder.glob(f"draft-{self._version}*"):
            with contextlib.suppress(OSError):
                path.unlink() if path.is_file() else path.rmdir()

    def _check(self, snapshot: TableSnapshot) -> None:
        """Written, closed and opened again, every table is what the copy said of it, and there is no other."""
        with _translated("tables_unwritable", "the snapshot of the tables cannot be written", _DISK):
            self._con.execute("DETACH draft")
            self._con.execute(f"ATTACH {_text(str(self._path))} AS draft (READ_ONLY)")
            found = self._con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'draft'").fetchall()
            there = {name: _described(self._con, "draft", name) for (name,) in found}
            self._con.execute("DETACH draft")
        if there != {table.name: (table.columns, table.rows) for table in snapshot.tables}:
            raise SourceError("tables_differ", "the snapshot does not hold what was copied", "run `pointsman index` again")

    def _run(self, sql: str) -> list[Any]:
        """A statement that may take long. It stands in a thread of its own, since the engine does not hear Ctrl-C reliably: the
        caller waits, and stops the statement when it is interrupted itself."""
        rows: list[Any] = []
        failed: list[Exception] = []
        done = threading.Event()  # a join that was interrupted calls its thread ended

        def work() -> None:
            try:
                rows.extend(self._con.execute(sql).fetchall())
            except Exception as error:  # noqa: BLE001 (raised again below)
                failed.append(error)
            finally:
                done.set()

        threading.Thread(target=work, daemon=True, name="table-snapshots").start()
        try:
            done.wait()
        except BaseException:
            self._con.interrupt()
            done.wait(_STOP_S)
            raise
        for error in failed:
            raise _Unfit if isinstance(error, duckdb.DataError | duckdb.InvalidInputException) else error
        return rows

    # files

    def _copy_file(self, name: str, target: str, origin: TableFile) -> None:
        relation = self._open_file(name, origin)
        try:
            with _translated("table_unreadable", f"the files of table `{name}` cannot be read", _HINTS[origin.format]):
                found = self._con.execute(f"SELECT * FROM {relation} LIMIT 0").description
            columns = _columns(name, [(str(column), kind) for column, kind, *_ in found], dict(origin.types))
            try:
                with _translated(
                    "table_failed", f"the copy of table `{name}` did not come to its end", f"{_HINTS[origin.format]}; {_DISK}"
                ):
                    self._run(f"CREATE TABLE {target} AS SELECT {columns} FROM {relation}")
            except _Unfit:
                raise SourceError(
                    "table_value", f"a value in the files of table `{name}` is not of its column's type", _RETYPE(name)
                ) from None
        finally:
            if origin.format == "duckdb":
                with contextlib.suppress(duckdb.Error):
                    self._con.execute("DETACH outside")

    def _open_file(self, name: str, origin: TableFile) -> str:
        paths = "[" + ", ".join(map(_text, origin.paths)) + "]"
        if origin.format == "parquet":
            return f"read_parquet({paths}, union_by_name := true)"
        if origin.format == "csv":
            return self._open_csv(name, paths, origin)
        (path,) = origin.paths
        try:
            self._con.execute(f"ATTACH {_text(path)} AS outside (READ_ONLY, TYPE duckdb)")
        except duckdb.Error:
            if _is_locked(path):
                raise SourceError(
                    "table_locked",
                    f"the DuckDB file of table `{name}` is open for writing elsewhere",
                    "close it there, or copy it",
                    retryable=True,
                ) from None
            raise SourceError("table_unreadable", f"the files of table `{name}` cannot be read", _HINTS[origin.format]) from None
        schema, _, table = (origin.table or name).rpartition(".")
        return f"outside.{_name(schema or 'main')}.{_name(table)}"

    def _open_csv(self, name: str, paths: str, origin: TableFile) -> str:
        """Types are found by the engine, but a number written with a leading zero is a name and not a number."""
        plain = f"read_csv({paths}, union_by_name := true, all_varchar := true)"
        found = f"read_csv({paths}, union_by_name := true)"
        with _translated("table_unreadable", f"the files of table `{name}` cannot be read", _HINTS["csv"]):
            kinds = self._con.execute(f"SELECT * FROM {found} LIMIT 0").description
            numbers = [str(column) for column, kind, *_ in kinds if str(kind) in {"BIGINT", "DOUBLE"}]
            zeros: tuple[Any, ...] = ()
            if numbers:
                asked = ", ".join(f"bool_or(regexp_matches({_name(column)}, '^[+-]?0[0-9]'))" for column in numbers)
                try:
                    (zeros,) = self._run(f"SELECT {asked} FROM {plain}")
                except _Unfit:
                    raise SourceError("table_unreadable", f"the files of table `{name}` cannot be read", _HINTS["csv"]) from None
        said = {column for column, _ in origin.types}
        texts = [column for column, zero in zip(numbers, zeros, strict=False) if zero] + [
            str(column) for column, *_ in kinds if str(column) in said
        ]
        if not texts:
            return found
        types = ", ".join(f"{_text(column)}: 'VARCHAR'" for column in dict.fromkeys(texts))
        return f"read_csv({paths}, union_by_name := true, types := {{{types}}})"

    # rows of databases

    def _copy_rows(self, name: str, target: str, origin: RowSource) -> None:
        with origin.open() as (columns, batches):
            _check_names(name, [column.name for column in columns])
            declared = ", ".join(f"{_name(column.name)} {column.type}" for column in columns)
            with _translated("table_type", f"a type of table `{name}` is not one that can be kept", _RETYPE(name)):
                self._con.execute(f"CREATE TABLE {target} ({declared})")
                described = self._con.execute(f"SELECT * FROM {target} LIMIT 0").description
            for column, kind, *_ in described:
                _servable(name, str(column), kind)
            cells = ", ".join(_cast(number, column) for number, column in enumerate(columns))
            for batch in batches:
                self._insert(name, target, columns, cells, batch)

    def _insert(self, name: str, target: str, columns: Sequence[RowColumn], cells: str, batch: Sequence[Sequence[Any]]) -> None:
        stood = {f"c{number}": _cells(values) for number, values in enumerate(zip(*batch, strict=True))}
        if not stood:
            return
        try:
            with _translated("table_value", "", ""):
                self._con.register("batch", stood)
                self._con.execute(f"INSERT INTO {target} SELECT {cells} FROM batch")
        except SourceError:
            wrong = next((column for number, column in enumerate(columns) if self._is_wrong(number, column)), None)
            where = f"column `{wrong.name}` of table `{name}`" if wrong is not None else f"table `{name}`"
            kind = f" that is no {wrong.type}" if wrong is not None else " that cannot be kept"
            raise SourceError("table_value", f"{where} holds a value{kind}", _RETYPE(name)) from None
        finally:
            with _translated("table_failed", f"the copy of table `{name}` did not come to its end", _DISK):
                self._con.unregister("batch")

    def _is_wrong(self, number: int, column: RowColumn) -> bool:
        cast = _cast(number, column)
        try:
            with _translated("table_value", "", ""):
                self._con.execute(f"SELECT count({cast}) FROM batch").fetchall()
        except SourceError:
            return True
        return False


def _cells(values: Sequence[Any]) -> Any:
    """One column of a batch as texts, NULL as None."""
    cells = np.empty(len(values), dtype=object)
    cells[:] = [value if value is None or type(value) is str else _cell(value) for value in values]
    return cells


def _cell(value: Any) -> str:
    if isinstance(value, bytes | memoryview | bytearray):
        return bytes(value).hex()
    if isinstance(value, datetime.datetime):
        return (value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value).isoformat(" ")
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)


def _cast(number: int, column: RowColumn) -> str:
    cell = f"c{number}::VARCHAR"
    if column.form == "hex":
        return f"from_hex({cell})"
    return f"CAST({cell}::JSON AS {column.type})" if column.form == "json" else f"CAST({cell} AS {column.type})"


def _columns(table: str, found: Sequence[tuple[str, Any]], said: dict[str, str]) -> str:
    """The select list: instants with a zone become instants in UTC, what the operator says of a type is done."""
    _check_names(table, [name for name, _ in found])
    unknown = next((name for name in said if name not in {column for column, _ in found}), None)
    if unknown is not None:
        raise SourceError(
            "table_column", f"`types` of table `{table}` names a column that is not there: `{unknown}`", "correct it"
        )
    parts = []
    for name, kind in found:
        if name in said:
            parts.append(f"CAST({_name(name)} AS {said[name]}) AS {_name(name)}")
        elif str(kind) == _ZONED:
            parts.append(f"({_name(name)} AT TIME ZONE 'UTC') AS {_name(name)}")
        elif str(kind) == "JSON" or kind.id == "enum":
            parts.append(f"CAST({_name(name)} AS VARCHAR) AS {_name(name)}")
        elif str(kind) in {"TIMESTAMP_S", "TIMESTAMP_MS"}:
            parts.append(f"CAST({_name(name)} AS TIMESTAMP) AS {_name(name)}")
        else:
            _servable(table, name, kind)
            parts.append(_name(name))
    return ", ".join(parts)


def _servable(table: str, column: str, kind: Any) -> None:
    """Raises `SourceError` unless the type and everything inside it can be served."""
    text = str(kind)
    if text in _SIMPLE or kind.id == "decimal":
        return
    if kind.id in _NESTED:
        for _, inner in kind.children:
            if not isinstance(inner, int):  # the length of an array
                _servable(table, column, inner)
        return
    raise SourceError(
        "table_type", f"column `{column}` of table `{table}` has type `{text}`, which is not served", _RETYPE(table)
    )


def _check_names(table: str, names: Sequence[str]) -> None:
    if not names or len(names) > _MOST_COLUMNS:
        raise SourceError("table_columns", f"table `{table}` has {len(names)} columns", f"copy from 1 to {_MOST_COLUMNS}")
    seen: set[str] = set()
    for name in names:
        if not name.strip() or not name.isprintable():
            raise SourceError("table_columns", f"a column of table `{table}` has no readable name", "name it in `query`")
        if name.lower() in seen:
            raise SourceError(
                "table_columns", f"table `{table}` has two columns named `{name.lower()}` but for case", "rename one in `query`"
            )
        seen.add(name.lower())


def _RETYPE(table: str) -> str:  # noqa: N802 (a text with one gap)
    return f"say under `[tables.{table}.types]` which type the column has, for example VARCHAR"


_DISK = "check the space and the rights of the state folder"
_HINTS = {
    "csv": "check that it is a CSV file in UTF-8 with a header, the same columns in every row",
    "parquet": "check that it is a whole Parquet file",
    "duckdb": "check that it is a whole DuckDB file that this version can read, and that it has the table",
}


@contextlib.contextmanager
def _translated(code: str, message: str, hint: str) -> Iterator[None]:
    """The engine's words hold cells and places: they stay here."""
    try:
        yield
    except PointsmanError:
        raise
    except (duckdb.Error, OSError, UnicodeError, RuntimeError) as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        raise SourceError(code, message, hint) from None


def _is_interrupt(error: Exception) -> bool:
    """Where the engine itself hears Ctrl-C it takes the signal and says so in one of its own ways; nobody else interrupts here. What a
    cell makes it say is of a class below `Error`."""
    if type(error) is duckdb.Error:
        return str(error).startswith("KeyboardInterrupt")
    return isinstance(error, duckdb.InterruptException) or (
        isinstance(error, RuntimeError) and "interrupted" in str(error).lower()
    )


def _is_locked(path: str) -> bool:
    """Whether another process holds the file for writing. Asked after opening it failed: nothing of ours holds it then."""
    try:
        with open(path, "rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _parse_snapshot(raw: dict[str, Any]) -> TableSnapshot:
    if not re.fullmatch(r"[0-9a-f]{24}|", raw["version"]):
        raise ValueError
    tables = tuple(
        CopiedTable(**{**table, "columns": tuple((str(name), str(kind)) for name, kind in table["columns"])})
        for table in raw["tables"]
    )
    failures = tuple((str(name), str(code), int(at_us)) for name, code, at_us in raw["failures"])
    return TableSnapshot(raw["version"], int(raw["made_at_us"]), tables, failures)


def _file_name(version: str) -> str:
    return f"tables-{version}.duckdb"


def _unreadable_record() -> SourceError:
    return SourceError("tables_unreadable", f"`{RECORD}` of the tables cannot be read", "remove it and run `pointsman index`")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
