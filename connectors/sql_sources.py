"""Rows of a database through SQLAlchemy: as documents (`Rows`), or as they are, for a table of a snapshot (`TableRows`).

The query is the operator's (pointsman.toml); it is read, never written to. One row is one document, its id the key.

INVARIANT: no two rows share a key: rows that do are all refused, as is one without a key, and the others go on, so that nobody
who may add a row can keep the labels of others from changing (tests/unit/test_ingest_rows.py::test_keys, ::test_one_bad_row).
INVARIANT: a bare group in a column gets the issuer's alias only when all groups of the source's envelope share one
(tests/unit/test_ingest_rows.py::test_bare_groups).
INVARIANT: a column whose type has no equal in a snapshot is refused by name, never bent (tests/unit/test_table_types.py::
test_type_without_an_equal).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from router.domain import Content, Entry, RawLabels, Rejected, RowColumn
from router.errors import SourceError, UsageError

_SHORT = 120  # a value up to this length is shown with its column's name, a longer one is text by itself
_KEPT_ROWS = 50_000  # rows remembered between list and read; above, a row is read again by id
_HINT = "check `database` and `query` in pointsman.toml"
_BATCH = 4_096  # rows of a table in memory at once


class Rows:
    """Implements `router.ports.DocumentSource`. `label_columns` maps label names to columns."""

    def __init__(
        self,
        *,
        database: str,
        query: str,
        id_column: str,
        text_columns: Sequence[str],
        label_columns: Mapping[str, str],
        title_column: str | None = None,
        envelope: frozenset[str] = frozenset(),
    ) -> None:
        self._database, self._query = database, query.strip().rstrip(";")
        self._id, self._title, self._text, self._labels = id_column, title_column, tuple(text_columns), dict(label_columns)
        self._envelope = envelope
        aliases = {group.split(":", 1)[0] for group in envelope}
        self._alias = aliases.pop() if len(aliases) == 1 else None
        self._rows: dict[str, Mapping[str, Any]] = {}
        self._raw: dict[str, RawLabels] = {}

    def entries(self) -> Iterator[Entry | Rejected]:
        self._rows, self._raw = {}, {}
        found: dict[str, Entry] = {}
        repeated: dict[str, int] = {}
        with self._connect() as connection:
            result = connection.execution_options(stream_results=True).execute(sa.text(self._query))
            self._check_columns(list(result.keys()))
            for number, row in enumerate(result.mappings(), 1):
                item = self._entry(dict(row), number)
                if isinstance(item, Rejected):
                    yield item
                elif item.key in found:
                    repeated[item.key] = repeated.get(item.key, 1) + 1
                else:
                    found[item.key] = item
        for key in sorted(found):
            if key in repeated:
                yield Rejected(
                    key, "repeated_key", f"{repeated[key]} rows have this `{self._id}`; which one is meant cannot be known"
                )
            else:
                yield found[key]

    def _check_columns(self, there: Sequence[str]) -> None:
        for column in (self._id, *self._text, *self._labels.values(), *([self._title] if self._title else [])):
            if column not in there:
                raise UsageError("column_missing", f"the query gives no column `{column}`", "name it in `query`")

    def _entry(self, row: Mapping[str, Any], number: int) -> Entry | Rejected:
        value = row[self._id]
        key = "" if value is None else _text(value)
        if not key.strip() or not key.isprintable():
            return Rejected(f"row {number}", "row_without_id", f"its `{self._id}` is empty or no plain text")
        if key != key.strip():
            return Rejected(f"row {number}", "row_without_id", f"its `{self._id}` has blanks around it; trim it in `query`")
        if len(self._rows) < _KEPT_ROWS:
            self._rows[key] = row
        self._raw[key] = RawLabels((self._rule(row),))
        body = json.dumps({name: _text(item) for name, item in row.items() if item is not None}, sort_keys=True)
        address = f"{self._place()}#{quote(key, safe='')}"
        return Entry(key, len(body), hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest(), address)

    def _place(self) -> str:
        """Where the rows stand, without credentials: a file's address, or nothing but the dialect and name."""
        url = sa.engine.make_url(self._database)
        if url.get_backend_name() == "sqlite" and url.database:
            return Path(url.database).absolute().as_uri()
        return ""

    # --- labels ---

    def labels(self, entry: Entry) -> RawLabels:
        return self._raw.get(entry.key, RawLabels(()))

    def _rule(self, row: Mapping[str, Any]) -> dict[str, object]:
        """An empty cell says nothing, so a required label that is missing keeps the row out of the index."""
        rule: dict[str, object] = {}
        for name, column in self._labels.items():
            value = row[column]
            if value is None or (isinstance(value, str) and not value.strip()):
                continue
            if name == "groups":
                rule[name] = self._groups(_text(value))
            else:
                rule[name] = int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else value
        return rule

    def _groups(self, cell: str) -> object:
        """One permitted group whose name may hold commas, a JSON list, or names parted by commas."""
        if cell != cell.strip() or self._group(cell) in self._envelope:
            return [self._group(cell)]
        if cell.startswith("["):
            try:
                return [self._group(group) if isinstance(group, str) else group for group in json.loads(cell)]
            except (ValueError, RecursionError):
                return [cell]
        return [self._group(group.strip()) for group in cell.split(",") if group.strip()]

    def _group(self, group: str) -> str:
        return group if ":" in group or self._alias is None else f"{self._alias}:{group}"

    # --- reading ---

    def read(self, entry: Entry) -> Content:
        row = self._rows.get(entry.key)
        if row is None:
            row = self._read_again(entry)
        title = _text(row[self._title]) if self._title and row[self._title] is not None else ""
        parts = [self._part(column, row[column]) for column in self._text if row[column] is not None and column != self._title]
        text = "\n\n".join(part for part in (title, *parts) if part.strip())
        return Content(text.encode("utf-8", "replace"), entry.key, entry.fingerprint, title=title or entry.key, ready=True)

    def _part(self, column: str, value: object) -> str:
        text = _text(value)
        return f"{column.replace('_', ' ')}: {text}" if text.strip() and len(text) <= _SHORT and "\n" not in text else text

    def _read_again(self, entry: Entry) -> Mapping[str, Any]:
        """By id: the row as it is now; when it is another than was listed, the next run takes it."""
        with self._connect() as connection:
            quoted = connection.dialect.identifier_preparer.quote(self._id)
            sql = sa.text(f"SELECT * FROM ({self._query}) AS listed WHERE CAST({quoted} AS VARCHAR(1000)) = :wanted")
            row = connection.execute(sql, {"wanted": entry.key}).mappings().first()
        if row is None:
            raise SourceError("gone", "the row is not there any more", retryable=True)
        now = self._entry(dict(row), 0)
        if not isinstance(now, Entry) or now.fingerprint != entry.fingerprint:
            raise SourceError(
                "changed_while_read", "the row changed after it was listed", "it is read by the next run", retryable=True
            )
        return dict(row)

    def _connect(self) -> contextlib.AbstractContextManager[sa.Connection]:
        return _connected(self._database)


# --- tables -----------------------------------------------------------------------------------------------------------


class TableRows:
    """Implements `router.ports.RowSource` over one table (`schema.name`) or one query of the operator's.

    PostgreSQL says of every column which type it has; of others a table does, and a query needs `types` for all of its columns."""

    def __init__(
        self,
        *,
        name: str,
        database: str,
        table: str | None = None,
        query: str | None = None,
        types: Mapping[str, str] | None = None,
    ) -> None:
        self._name, self._database, self._table = name, database, table
        self._query = query.strip().rstrip(";") if query else None
        self._types = dict(types or {})

    @property
    def origin(self) -> str:
        """The kind of database, without address or credentials."""
        return _url(self._database).get_backend_name()

    @contextlib.contextmanager
    def open(self) -> Iterator[tuple[tuple[RowColumn, ...], Iterator[Sequence[Sequence[Any]]]]]:
        with _connected(
            self._database, hint="check `database`, `table` and `query` of the table in pointsman.toml"
        ) as connection:
            relation, declared = self._declared(connection)
            columns = tuple(self._column(column, kind) for column, kind in declared.items())
            unknown = next((column for column in self._types if column not in declared), None)
            if unknown is not None:
                raise SourceError(
                    "table_column", f"`types` of table `{self._name}` names a column that is not there: `{unknown}`", "correct it"
                )
            cells = ", ".join(self._cell(connection, column) for column in columns)
            options = connection.execution_options(stream_results=True, max_row_buffer=_BATCH, yield_per=_BATCH)
            result = options.execute(_verbatim(f"SELECT {cells} FROM {relation}"))
            yield columns, (batch for batch in result.partitions(_BATCH))

    def _declared(self, connection: sa.Connection) -> tuple[str, dict[str, str]]:
        """What to select from, and each column's type in the database's own words (empty where nobody says)."""
        quote_part = connection.dialect.identifier_preparer.quote_identifier
        schema, _, table = (self._table or "").rpartition(".")
        relation = f"({self._query}) AS copied" if self._query else ".".join(quote_part(part) for part in (schema, table) if part)
        if connection.dialect.name == "postgresql":
            shown = connection.execute(_verbatim(f"SELECT * FROM {relation} LIMIT 0"))
            described: Any = shown.cursor.description  # psycopg's own: it knows the types in full
            return relation, {str(column.name): str(column.type_display) for column in described}
        if self._query:
            shown = connection.execute(_verbatim(f"SELECT * FROM {relation} WHERE 1 = 0"))
            return relation, dict.fromkeys(shown.keys(), "")
        found = sa.inspect(connection).get_columns(table, schema=schema or None)
        return relation, {str(column["name"]): _declared_type(column["type"], connection) for column in found}

    def _column(self, column: str, declared: str) -> RowColumn:
        said = self._types.get(column)
        kind = duckdb_type(declared)
        if said is not None:
            form: Any = kind[1] if kind is not None else "json" if said.rstrip().endswith("]") else "text"
            return RowColumn(column, said, form)
        if kind is None:
            what = f"has type `{declared}`, which has no equal here" if declared else "has no declared type"
            raise SourceError(
                "table_type",
                f"column `{column}` of table `{self._name}` {what}",
                f"say under `[tables.{self._name}.types]` what it is to become, for example VARCHAR, or cast it in `query`",
            )
        return RowColumn(column, *kind)

    def _cell(self, connection: sa.Connection, column: RowColumn) -> str:
        """PostgreSQL writes its values down itself: no driver's idea of a date or a number comes between."""
        quoted = connection.dialect.identifier_preparer.quote_identifier(column.name)
        if connection.dialect.name != "postgresql":
            return quoted
        if column.form == "json":
            return f"CAST(to_json({quoted}) AS text)"
        if column.form == "hex":
            return f"encode({quoted}, 'hex')"
        if column.type == "TIMESTAMP":
            return f"CAST(CAST({quoted} AS timestamp) AS text)"
        return f"CAST({quoted} AS text)"


_EQUALS = {
    "smallint": "SMALLINT", "int2": "SMALLINT", "tinyint": "SMALLINT", "mediumint": "INTEGER",
    "integer": "INTEGER", "int": "INTEGER", "int4": "INTEGER", "serial": "INTEGER", "bigint": "BIGINT", "int8": "BIGINT",
    "oid": "UINTEGER", "real": "FLOAT", "float4": "FLOAT", "float": "DOUBLE", "float8": "DOUBLE", "double": "DOUBLE",
    "double precision": "DOUBLE", "boolean": "BOOLEAN", "bool": "BOOLEAN", "uuid": "UUID",
    "text": "VARCHAR", "varchar": "VARCHAR", "character varying": "VARCHAR", "char": "VARCHAR", "character": "VARCHAR",
    "bpchar": "VARCHAR", "name": "VARCHAR", "nvarchar": "VARCHAR", "nchar": "VARCHAR", "clob": "VARCHAR", "longtext": "VARCHAR",
    "mediumtext": "VARCHAR", "tinytext": "VARCHAR", "enum": "VARCHAR", "json": "VARCHAR", "jsonb": "VARCHAR",
    "inet": "VARCHAR", "cidr": "VARCHAR", "macaddr": "VARCHAR", "citext": "VARCHAR",
    "date": "DATE", "time": "TIME", "time without time zone": "TIME",
    "timestamp": "TIMESTAMP", "datetime": "TIMESTAMP", "timestamp without time zone": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMP", "timestamptz": "TIMESTAMP",
    "blob": "BLOB", "bytea": "BLOB", "binary": "BLOB", "varbinary": "BLOB", "longblob": "BLOB",
}  # fmt: skip


def duckdb_type(declared: str) -> tuple[str, Any] | None:
    """(DuckDB type, form of its cells) for a type as databases write it; None where there is no equal. Instants with a zone
    become instants in UTC; a number without a declared precision has no equal, since it would have to be cut."""
    text = " ".join(declared.lower().replace('"', "").split())
    if text.endswith("[]"):
        inner = duckdb_type(text[:-2])
        return None if inner is None or inner[1] == "hex" or inner[0] == "TIMESTAMP" else (f"{inner[0]}[]", "json")
    shape = re.fullmatch(r"([a-z0-9_ ]+?) ?(?:\(([^()]*)\))?((?: [a-z ]+)?)", text)
    if shape is None:
        return None
    word, size = f"{shape[1]}{shape[3]}".strip(), shape[2]
    if word in {"numeric", "decimal", "dec"}:
        digits = re.fullmatch(r"(\d+)(?: ?, ?(\d+))?", size or "")
        if digits is None or not 1 <= int(digits[1]) <= 38 or int(digits[2] or 0) > int(digits[1]):
            return None
        return f"DECIMAL({digits[1]},{digits[2] or 0})", "text"
    found = _EQUALS.get(word)
    return None if found is None else (found, "hex" if found == "BLOB" else "text")


def _declared_type(kind: Any, connection: sa.Connection) -> str:
    """As the dialect writes it. SQLite's INTEGER holds eight bytes."""
    if isinstance(kind, sa.types.NullType):
        return ""
    text = "enum" if isinstance(kind, sa.Enum) else str(kind.compile(dialect=connection.dialect))
    return "bigint" if connection.dialect.name == "sqlite" and text.lower() in {"integer", "int", "smallint", "tinyint"} else text


def _verbatim(sql: str) -> sa.TextClause:
    """A colon inside the operator's own text is a colon."""
    return sa.text(re.sub(r":(?=\w)", r"\:", sql))


# --- databases --------------------------------------------------------------------------------------------------------


def _url(database: str) -> sa.URL:
    try:
        return sa.engine.make_url(database)
    except sa.exc.ArgumentError:
        raise UsageError("database_url", "the database URL is not understood", "use one that SQLAlchemy knows") from None


@contextlib.contextmanager
def _connected(database: str, hint: str = _HINT) -> Iterator[sa.Connection]:
    """A connection that reads only, and sees one state of the database from its first statement to its last where it can."""
    url = _url(database)
    if url.get_backend_name() == "sqlite" and url.database:
        url = _read_only(url)
    try:
        engine = sa.create_engine(url)
    except (sa.exc.ArgumentError, ImportError):
        raise UsageError("database_url", "the database URL is not understood", "use one that SQLAlchemy knows") from None
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    try:
        with engine.connect() as connection:
            yield connection
    except sa.exc.OperationalError:
        raise SourceError("source_unavailable", "the database cannot be reached or read", hint, retryable=True) from None
    except sa.exc.SQLAlchemyError:
        raise SourceError("source_failed", "the database refuses the query", hint) from None
    finally:
        engine.dispose()


def _read_only(url: sa.URL) -> sa.URL:
    """A missing file is an error and not a new, empty database."""
    assert url.database is not None
    return url.set(database=f"file:{quote(url.database)}", query={"mode": "ro", "uri": "true"})


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)


def make_database(path: Path, script: str) -> None:
    """A new SQLite file from an SQL script, in place of the one that is there; it appears whole or not at all."""
    beside = path.with_name(f"{path.name}.new")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside.unlink(missing_ok=True)
    connection = sqlite3.connect(beside)
    try:
        connection.executescript(script)
    finally:
        connection.close()
    os.replace(beside, path)
