"""What a database says of its relations: names, types, keys, and how many rows lack a value. Never a value itself.

DuckDB files are read by DuckDB, everything else through SQLAlchemy.

INVARIANT: nothing that stands in a row is read out; of rows there is a count alone (tests/unit/test_catalog_commands.py::test_no_value_is_told).
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from router.catalog import Relation, RelationColumn
from router.errors import SourceError


def read_relations(database: str) -> tuple[Relation, ...]:
    """Every table and view, by name. Raises `SourceError`."""
    return _of_url(database) if "://" in database else _of_duckdb(Path(database))


def count_missing(database: Path, relation: str, expressions: Sequence[str]) -> tuple[int | None, ...]:
    """For each expression over the relation, how many rows have none; None where it cannot be computed."""
    with _open(database) as con:
        return tuple(_count(con, f"SELECT count(*) FROM {_quoted(relation)} WHERE ({text}) IS NULL") for text in expressions)


def _count(con: Any, text: str) -> int | None:
    import duckdb

    try:
        return int(con.execute(text).fetchone()[0])
    except duckdb.Error:
        return None


def _quoted(relation: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in relation.split("."))


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Read only, and with nothing fetched to read it: by itself the engine loads what other kinds of file would need."""
    import duckdb

    if not path.is_file():
        raise SourceError("database_missing", f"there is no database `{path}`", "name a DuckDB file or a SQLAlchemy URL")
    try:
        con = duckdb.connect(":memory:", config=_CONFIG)
        con.execute(f"ATTACH '{str(path).replace(chr(39), chr(39) * 2)}' AS looked_at (READ_ONLY, TYPE duckdb)")
        con.execute("USE looked_at")
    except duckdb.Error:
        raise _unreadable(path) from None
    try:
        yield con
    except duckdb.Error:
        raise _unreadable(path) from None
    finally:
        con.close()


_CONFIG: dict[str, Any] = {
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,
}


def _unreadable(path: Path) -> SourceError:
    """What is wrong with a file that the engine refuses, in our words: its own may hold what stands in the file."""
    try:
        with open(path, "rb") as file:
            head = file.read(16)
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        message = f"the database `{path}` is open for writing elsewhere"
        return SourceError("database_locked", message, "close it there, or copy it", retryable=True)
    except OSError:
        return SourceError("database_unreadable", f"the database `{path}` cannot be opened", "may this user read it")
    if head.startswith(b"SQLite format 3"):
        hint = "write it as the URL `sqlite:///PATH`"
        return SourceError("database_unreadable", f"the database `{path}` is an SQLite file", hint)
    hint = "restore it from a copy; a DuckDB file of another version is to be exported and imported"
    return SourceError("database_unreadable", f"the database `{path}` is no DuckDB file, or a damaged one", hint)


def _of_duckdb(path: Path) -> tuple[Relation, ...]:
    with _open(path) as con:
        names = con.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'looked_at' AND NOT internal AND NOT temporary "
            "UNION ALL SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = 'looked_at' AND NOT internal AND NOT temporary ORDER BY 1, 2"
        ).fetchall()
        return tuple(_duckdb_relation(con, schema, name) for schema, name in names)


def _duckdb_relation(con: Any, schema: str, name: str) -> Relation:
    here = [schema, name]
    columns = con.execute(
        "SELECT column_name, data_type, is_nullable FROM duckdb_columns() "
        "WHERE database_name = 'looked_at' AND schema_name = ? AND table_name = ? ORDER BY column_index",
        here,
    ).fetchall()
    keys = con.execute(
        "SELECT constraint_type, constraint_column_names, referenced_table, referenced_column_names FROM duckdb_constraints() "
        "WHERE database_name = 'looked_at' AND schema_name = ? AND table_name = ? ORDER BY constraint_index",
        here,
    ).fetchall()
    return Relation(
        name=name if schema == "main" else f"{schema}.{name}",
        columns=tuple(RelationColumn(column, kind, bool(nullable)) for column, kind, nullable in columns),
        primary_key=next((tuple(of) for kind, of, *_ in keys if kind == "PRIMARY KEY"), ()),
        unique_keys=tuple(tuple(of) for kind, of, *_ in keys if kind == "UNIQUE"),
        foreign_keys=tuple((tuple(of), other, tuple(theirs)) for kind, of, other, theirs in keys if kind == "FOREIGN KEY"),
    )


def _of_url(url: str) -> tuple[Relation, ...]:
    import sqlalchemy as sa

    try:
        engine = sa.create_engine(url)
        try:
            inspector = sa.inspect(engine)
            names = sorted([*inspector.get_table_names(), *inspector.get_view_names()])
            return tuple(_inspected(inspector, name) for name in names)
        finally:
            engine.dispose()
    except (sa.exc.SQLAlchemyError, ImportError, OSError):
        # The driver's words may hold the URL, and that a password.
        hint = "check the SQLAlchemy URL and that its driver is installed"
        raise SourceError("database_unreadable", "the database cannot be read", hint) from None


def _inspected(inspector: Any, name: str) -> Relation:
    columns = inspector.get_columns(name)
    return Relation(
        name=name,
        columns=tuple(RelationColumn(column["name"], _type(column["type"]), bool(column["nullable"])) for column in columns),
        primary_key=tuple(inspector.get_pk_constraint(name).get("constrained_columns") or ()),
        unique_keys=tuple(tuple(key["column_names"]) for key in inspector.get_unique_constraints(name)),
        foreign_keys=tuple(
            (tuple(key["constrained_columns"]), key["referred_table"], tuple(key["referred_columns"]))
            for key in inspector.get_foreign_keys(name)
        ),
    )


def _type(kind: Any) -> str:
    import sqlalchemy as sa

    try:
        return str(kind)
    except sa.exc.SQLAlchemyError:
        return type(kind).__name__.upper()
