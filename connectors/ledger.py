"""The ledger: one append-only table of records, a hash chain per tenant, on SQLite or PostgreSQL through SQLAlchemy.

SQLite runs with a rollback journal: the standard library's SQLite may be one of those whose WAL loses commits (3.7.0 to
3.51.2). The journal is truncated, not kept: a kept journal would hold erased inputs. With synchronous=FULL SQLite also
syncs the truncation, so that no acknowledged commit comes back as a hot journal.

Concurrent callers share one transaction and one fsync, without a thread of the ledger's own: the first caller leads, those
who come while it commits wait, and one of them leads the next commit for all of them.

INVARIANT: when `append` returns, its rows are durable (tests/faults/test_ledger.py::test_kill_while_appending); when it
raises, none of them is stored (::test_full_disk), but for a commit whose outcome a lost connection kept from us.
INVARIANT: seq has no gap and each row names the digest before it, also when several processes append
(tests/faults/test_ledger.py::test_eight_processes_append).
INVARIANT: sixteen callers need far fewer commits than calls (tests/unit/test_ledger_append.py::test_group_commit).
INVARIANT: rows are never updated or deleted: the database itself refuses (tests/unit/test_ledger_append.py::test_rows_are_append_only).
INVARIANT: no path, address or credential stands in an error (tests/faults/test_ledger.py::test_errors_name_no_path).
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.pool import PoolProxiedConnection

from router.domain import CHAIN_START, Link, Record, link_digest
from router.errors import LedgerError, UsageError

SCHEMA_VERSION = 1
BUSY_S = 5.0
"""How long another process's lock is waited for; then there is no record, and so no answer."""

GROUP_RECORDS = 512
PAGE_ROWS = 500
"""Readers hold a lock for one page only: on SQLite a long reader would block every writer."""

LOOKED_AT_ROWS = 20_000
"""How many rows one statement that looks for a kind goes over."""

_LOCK_CLASS = 0x706F696E  # "poin": the class of our advisory locks on PostgreSQL
_LONG = 2**63
_REPORT = "this is a fault in Pointsman: report it"

_metadata = sa.MetaData()
_schema = sa.Table("ledger_schema", _metadata, sa.Column("version", sa.Integer, nullable=False))
_records = sa.Table(
    "ledger_records",
    _metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("decision_id", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("at_us", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Index("ledger_records_by_id", "tenant", "decision_id"),
    sa.Index("ledger_records_by_time", "tenant", "at_us"),
)
_inputs = sa.Table(
    "ledger_inputs",
    _metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("salt", sa.LargeBinary, nullable=False),
    sa.Column("inputs", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
_APPEND_ONLY = {
    "sqlite": tuple(
        f"CREATE TRIGGER ledger_records_no_{verb} BEFORE {verb} ON ledger_records BEGIN SELECT RAISE(ABORT, 'append only'); END"
        for verb in ("update", "delete")
    ),
    "postgresql": (
        """CREATE OR REPLACE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''append only''; END'""",
        """CREATE TRIGGER ledger_records_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_records
        FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()""",
    ),
}

_LOCK_TENANT = "SELECT pg_advisory_xact_lock(%s, hashtext(%s))"


@dataclass(frozen=True, slots=True)
class _Sql:
    """The three statements of every append, compiled once: run through SQLAlchemy each time they cost thrice the insert."""

    head: str
    insert_record: str
    insert_input: str


def _compile(dialect: sa.Dialect) -> _Sql:
    columns, mine = _records.c, _records.c.tenant == sa.bindparam("tenant")
    last = sa.select(sa.func.max(columns.seq)).where(mine).scalar_subquery()
    head = sa.select(columns.seq, columns.digest).where(mine, columns.seq == last)
    return _Sql(*(str(statement.compile(dialect=dialect)) for statement in (head, _records.insert(), _inputs.insert())))


@dataclass(slots=True, eq=False)
class _Call:
    """One `append` in the queue. `wake` is held until the call is done or leads."""

    records: Sequence[Record]
    wake: threading.Lock = field(default_factory=threading.Lock)
    leads: bool = False
    links: list[Link] | None = None
    error: LedgerError | None = None


class SqlLedger:
    """Implements `router.ports.Ledger`. Thread-safe; several processes may append to the same database."""

    def __init__(self, where: Path | str, *, busy_s: float = BUSY_S) -> None:
        """`where` is the path of a SQLite file, or a PostgreSQL address. Nothing is opened before the first call."""
        self._path = where if isinstance(where, Path) else None
        self._engine = _build_engine(where, busy_s)
        self._sqlite = self._engine.dialect.name == "sqlite"
        self._driver: Any = self._engine.dialect.loaded_dbapi
        self._failures = (self._driver.Error, sa.exc.SQLAlchemyError, OSError)
        self._sql = _compile(self._engine.dialect)
        self._mutex = threading.Lock()
        self._queue: list[_Call] = []
        self._led = False
        self._writer: PoolProxiedConnection | None = None
        self._place: tuple[int, int] | None = None
        self._ready = False
        self.commits = 0
        """How many transactions this object has committed (for metrics: calls over commits is what sharing saves)."""

    # --- append: one leader, one commit ---

    def append(self, records: Sequence[Record]) -> list[Link]:
        if not records:
            return []
        for record in records:
            _check(record)
        call = _Call(records)
        call.wake.acquire()
        with self._mutex:
            self._queue.append(call)
            if not self._led:
                self._led = call.leads = True
        if not call.leads:
            self._follow(call)
        if call.leads:
            self._lead()
        if call.error is not None:
            raise call.error
        assert call.links is not None
        return call.links

    def _follow(self, call: _Call) -> None:
        try:
            call.wake.acquire()
        except BaseException:  # interrupted while waiting: leave the queue, and never keep the lead
            with self._mutex:
                if call in self._queue:
                    self._queue.remove(call)
                    if call.leads:
                        self._pass_lead()
            raise

    def _lead(self) -> None:
        """Commit the queue, its first call being our own, and pass the lead on."""
        with self._mutex:
            group = self._take_group()
        failure: LedgerError | None = LedgerError("ledger_unwritable", "recording was interrupted", "ask again")
        try:
            for call, links in zip(group, self._commit(group), strict=True):
                call.links = links
            failure = None
        except LedgerError as error:
            failure = error
        finally:
            for call in group:
                if failure is not None:
                    call.error = LedgerError(failure.code, failure.message, failure.hint)
                if not call.leads:
                    call.wake.release()
            with self._mutex:
                self._pass_lead()

    def _take_group(self) -> list[_Call]:
        taken, rows = 0, 0
        for call in self._queue:
            rows += len(call.records)
            if taken and rows > GROUP_RECORDS:
                break
            taken += 1
        group, self._queue = self._queue[:taken], self._queue[taken:]
        return group

    def _pass_lead(self) -> None:
        self._led = bool(self._queue)
        if self._queue:
            self._queue[0].leads = True
            self._queue[0].wake.release()

    def _commit(self, group: Sequence[_Call]) -> list[list[Link]]:
        """One transaction. A connection that was lost before COMMIT was sent stored nothing, so it is tried once more."""
        for attempt in (1, 2):
            committing = False
            try:
                writer = self._open_writer()
                cursor = writer.cursor()
                if self._sqlite:
                    cursor.execute("BEGIN IMMEDIATE")
                links = self._insert(cursor, group)
                committing = True
                writer.commit()
                self._check_place()
                self.commits += 1
                return links
            except BaseException as error:
                lost = self._is_lost(error)
                self._drop_writer()
                if not isinstance(error, self._failures):
                    raise
                if attempt == 2 or committing or not lost:
                    raise _translate(error) from None
        raise AssertionError("unreachable")

    def _insert(self, cursor: Any, group: Sequence[_Call]) -> list[list[Link]]:
        heads = self._heads(cursor, sorted({record.tenant for call in group for record in call.records}))
        rows: list[tuple[Any, ...]] = []
        inputs: list[tuple[Any, ...]] = []
        result: list[list[Link]] = []
        for call in group:
            links: list[Link] = []
            for record in call.records:
                tenant, (last, previous) = record.tenant, heads[record.tenant]
                link = Link(last + 1, previous, link_digest(last + 1, previous, record))
                heads[tenant] = (link.seq, link.digest)
                links.append(link)
                rows.append((tenant, link.seq, previous, link.digest, record.decision_id, record.kind, record.at_us, record.body))
                if record.inputs is not None:
                    inputs.append((tenant, link.seq, record.salt, record.inputs))
            result.append(links)
        cursor.executemany(self._sql.insert_record, rows)
        if inputs:
            cursor.executemany(self._sql.insert_input, inputs)
        return result

    def _heads(self, cursor: Any, tenants: Sequence[str]) -> dict[str, tuple[int, str]]:
        """The last link of each tenant, read under the write lock; in one order, so that two groups cannot deadlock."""
        heads: dict[str, tuple[int, str]] = {}
        for tenant in tenants:
            if not self._sqlite:
                cursor.execute(_LOCK_TENANT, (_LOCK_CLASS, tenant))
            cursor.execute(self._sql.head, (tenant, tenant))
            row = cursor.fetchone()
            heads[tenant] = (0, CHAIN_START) if row is None else (row[0], row[1])
        return heads

    def _open_writer(self) -> PoolProxiedConnection:
        """One connection for all commits of this process; the leader alone uses it."""
        if self._writer is None:
            self._create()
            self._writer = self._engine.raw_connection()
        return self._writer

    def _is_lost(self, error: BaseException) -> bool:
        """The server or the network ended the connection; never true of a file."""
        if self._writer is None or not isinstance(error, self._driver.Error):
            return False
        return bool(self._engine.dialect.is_disconnect(error, self._writer.dbapi_connection, None))

    def _create(self) -> None:
        if self._path is not None:
            if self._place is not None:
                self._check_place()
            _create_file(self._path)
        with self._engine.connect().execution_options(ledger_writes=True) as connection, connection.begin():
            _create_schema(connection)
        if self._path is not None and self._place is None:
            self._place = _place(self._path)

    def _check_place(self) -> None:
        """A file that was removed or replaced while open takes commits that nobody will ever find again."""
        if self._path is not None and _place(self._path) != self._place:
            raise LedgerError(
                "ledger_unwritable", "the ledger's file was removed or replaced while in use", "put it back and restart"
            )

    def _drop_writer(self) -> None:
        """Roll back first: a closed SQLite connection whose cursor somebody still holds keeps its locks."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(self._driver.Error):
                writer.rollback()
            writer.invalidate()

    # --- read, erase, look ---

    def read(
        self, tenant: str, *, decision_id: str | None = None, since_us: int = 0, after_seq: int = 0, limit: int | None = None
    ) -> Iterator[tuple[Link, Record]]:
        """Pages of their own short transactions: rows never change, so the pages fit, and writers are never kept waiting."""
        wanted = [_records.c.tenant == tenant, _records.c.seq > sa.bindparam("after")]
        if decision_id is not None:
            wanted.append(_records.c.decision_id == decision_id)
        if since_us > 0:
            wanted.append(_records.c.at_us >= since_us)
            first = self._rows(sa.select(sa.func.min(_records.c.seq)).where(*wanted), {"after": after_seq})
            if not first or first[0][0] is None:
                return
            after_seq = max(after_seq, first[0][0] - 1)
        joined = _records.outerjoin(_inputs, sa.and_(_inputs.c.tenant == _records.c.tenant, _inputs.c.seq == _records.c.seq))
        page = sa.select(*_records.c, _inputs.c.inputs, _inputs.c.salt).select_from(joined).where(*wanted)
        page = page.order_by(_records.c.seq).limit(sa.bindparam("rows"))
        left = limit
        while left is None or left > 0:
            size = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
            rows = self._rows(page, {"after": after_seq, "rows": size})
            for seen_tenant, seq, previous, digest, record_id, kind, at_us, body, inputs, salt in rows:
                yield Link(seq, previous, digest), Record(seen_tenant, record_id, kind, at_us, body, inputs, salt)
            if len(rows) < size:
                return
            after_seq = rows[-1][1]
            left = None if left is None else left - size

    def read_kind(self, tenant: str, kind: str, *, after_seq: int, to_seq: int) -> Iterator[tuple[Link, Record]]:
        """A statement looks at so many rows at most: on a chain of any length each ends within its time."""
        mine = _records.c.tenant == tenant, _records.c.kind == kind
        place = _records.c.seq > sa.bindparam("after"), _records.c.seq <= sa.bindparam("last")
        page = sa.select(_records).where(*mine, *place).order_by(_records.c.seq)
        for start in range(after_seq, to_seq, LOOKED_AT_ROWS):
            rows = self._rows(page, {"after": start, "last": min(to_seq, start + LOOKED_AT_ROWS)})
            for its_tenant, seq, previous, digest, record_id, its_kind, at_us, body in rows:
                yield Link(seq, previous, digest), Record(its_tenant, record_id, its_kind, at_us, body)

    def head(self, tenant: str) -> Link | None:
        columns = _records.c.seq, _records.c.previous, _records.c.digest
        last = sa.select(*columns).where(_records.c.tenant == tenant).order_by(_records.c.seq.desc()).limit(1)
        rows = self._rows(last, {})
        return Link(*rows[0]) if rows else None

    def tenants(self) -> list[str]:
        """Every tenant with a chain, in order; one step in the index each, however long the chains are."""
        found: list[str] = []
        following = sa.select(sa.func.min(_records.c.tenant)).where(_records.c.tenant > sa.bindparam("after"))
        while rows := self._rows(following, {"after": found[-1] if found else ""}):
            if rows[0][0] is None:
                break
            found.append(rows[0][0])
        return found

    def erase_inputs(self, tenant: str, decision_ids: Sequence[str]) -> int:
        """SQLite overwrites the freed bytes at once; PostgreSQL when it reuses the page (ADR 0010)."""
        erased = 0
        try:
            if not self._exists():
                return 0
            with self._engine.connect().execution_options(ledger_writes=True) as writer, writer.begin():
                _check_schema(writer)
                for start in range(0, len(decision_ids), PAGE_ROWS):
                    ids = list(decision_ids[start : start + PAGE_ROWS])
                    places = sa.select(_records.c.seq).where(_records.c.tenant == tenant, _records.c.decision_id.in_(ids))
                    erased += writer.execute(
                        sa.delete(_inputs).where(_inputs.c.tenant == tenant, _inputs.c.seq.in_(places))
                    ).rowcount
        except self._failures as error:
            raise _translate(error) from None
        return erased

    def check(self) -> None:
        """Raise unless a record could be written now (readiness, `doctor`): really writes, and takes it back."""
        try:
            self._create()
            with self._engine.connect().execution_options(ledger_writes=True) as writer, writer.begin() as transaction:
                writer.execute(sa.update(_schema).values(version=_schema.c.version))
                transaction.rollback()
            self._check_place()
        except self._failures as error:
            raise _translate(error) from None

    def close(self) -> None:
        """Callers in flight finish; a later call opens anew."""
        with self._mutex:
            if not self._led and self._writer is not None:
                self._writer.close()
                self._writer = None
        self._engine.dispose()

    def _rows(self, statement: sa.Select[Any], values: dict[str, Any]) -> Sequence[Any]:
        try:
            if not self._exists():
                return []
            with self._engine.connect() as reader, reader.begin():
                self._ready = self._ready or _check_schema(reader)
                return reader.execute(statement, values).fetchall() if self._ready else []
        except self._failures as error:
            raise _translate(error) from None

    def _exists(self) -> bool:
        """A reader never creates the file."""
        return self._path is None or self._path.exists()


# --- records ----------------------------------------------------------------------------------------------------------


def _check(record: Record) -> None:
    """What one database would refuse or change is refused for all, before it can spoil other callers' commit."""
    if not all(_is_storable(text) for text in (record.tenant, record.decision_id, record.kind)):
        raise LedgerError("record_invalid", "tenant, id and kind of a record are text without NUL", _REPORT)
    if not (isinstance(record.at_us, int) and 0 <= record.at_us < _LONG):
        raise LedgerError("record_invalid", "the time of a record is microseconds since 1970", _REPORT)
    personal = (record.inputs, record.salt)
    if not isinstance(record.body, bytes) or not (personal == (None, None) or all(isinstance(part, bytes) for part in personal)):
        raise LedgerError("record_invalid", "body, inputs and salt of a record are bytes, and inputs have a salt", _REPORT)


def _is_storable(text: str) -> bool:
    try:
        return bool(text.encode()) and "\0" not in text
    except (UnicodeEncodeError, AttributeError):
        return False


# --- the database -----------------------------------------------------------------------------------------------------


def _build_engine(where: Path | str, busy_s: float) -> Engine:
    if isinstance(where, Path):
        # Our own BEGIN: the driver's implicit one comes too late to hold the head still.
        engine = sa.create_engine(
            URL.create("sqlite", database=str(where)), connect_args={"timeout": busy_s, "isolation_level": None}
        )
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        url = sa.make_url(where)
    except sa.exc.ArgumentError:
        url = None
    if url is None or url.get_backend_name() != "postgresql":
        raise UsageError("ledger_address", "the ledger's address is not one of PostgreSQL", "write postgresql://host/database")
    if importlib.util.find_spec("psycopg") is None:
        raise UsageError("ledger_driver", "PostgreSQL's driver is not installed", "install pointsman[postgres]")
    options = f"-c lock_timeout={busy_s * 1000:.0f} -c statement_timeout={busy_s * 2000:.0f} -c synchronous_commit=on"
    return sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        isolation_level="READ COMMITTED",  # a head read after the lock must be the newest
        paramstyle="format",  # positional, as SQLite's
        connect_args={
            "connect_timeout": max(2, round(busy_s)),
            "tcp_user_timeout": round(busy_s * 2000),  # a network that swallows packets is a failure, not a wait
            "options": options,
        },
    )


def _prepare_sqlite(connection: Any, _: Any) -> None:
    """Per connection: durable at commit, a truncated rollback journal, freed bytes overwritten."""
    for pragma in ("synchronous=FULL", "secure_delete=ON", "foreign_keys=OFF", "temp_store=MEMORY"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    mode = connection.execute("PRAGMA journal_mode=TRUNCATE").fetchone()[0]
    if mode != "truncate":
        raise LedgerError(
            "ledger_unwritable", f"the ledger is in journal mode `{mode}`", "close other programs that have it open"
        )


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("ledger_writes") else "BEGIN")


def _create_file(path: Path) -> None:
    """Only the owner reads questions: SQLite gives its journal the mode of the file."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _place(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _create_schema(writer: Connection) -> None:
    if writer.dialect.name != "sqlite":
        writer.exec_driver_sql(_LOCK_TENANT, (_LOCK_CLASS, ""))
    if _check_schema(writer):
        return
    if writer.dialect.name == "sqlite" and sa.inspect(writer).get_table_names():
        raise LedgerError("ledger_corrupt", "the file is a database, but not a ledger", "name another file for the ledger")
    _metadata.create_all(writer)
    for statement in _APPEND_ONLY[writer.dialect.name]:
        writer.exec_driver_sql(statement)
    writer.execute(_schema.insert(), {"version": SCHEMA_VERSION})


def _check_schema(connection: Connection) -> bool:
    """False where there is no ledger yet."""
    if not sa.inspect(connection).has_table(_schema.name):
        return False
    version = connection.execute(sa.select(sa.func.max(_schema.c.version))).scalar()
    if version is None or version < 1:
        raise LedgerError("ledger_corrupt", "the ledger does not name its version", "restore it from a copy")
    if version > SCHEMA_VERSION:
        raise LedgerError(
            "ledger_newer", f"the ledger has version {version}, this program knows {SCHEMA_VERSION}", "install a newer pointsman"
        )
    return True


# --- errors -----------------------------------------------------------------------------------------------------------

_FAILURES = {
    "ledger_locked": ("the ledger is locked by another process", "end the process that holds it, or ask again"),
    "ledger_full": ("the ledger's disk is full", "free space on it; nothing is answered until then"),
    "ledger_corrupt": ("the ledger is damaged, or no ledger", "keep it as it is and restore it from a copy"),
    "ledger_unwritable": ("the ledger cannot be reached or written", "check that it exists, is writable and has a working disk"),
}
_SQLITE_CODES = {5: "ledger_locked", 6: "ledger_locked", 13: "ledger_full", 11: "ledger_corrupt", 26: "ledger_corrupt"}
_POSTGRES_CODES = {
    "53100": "ledger_full",
    "55P03": "ledger_locked",
    "57014": "ledger_locked",
    "40P01": "ledger_locked",
    "XX001": "ledger_corrupt",
    "XX002": "ledger_corrupt",
}


def _translate(error: Exception) -> LedgerError:
    """By the driver's codes, never by its text; what is unknown is unwritable."""
    cause = getattr(error, "orig", error)
    code = "ledger_unwritable"
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        code = "ledger_full"
    elif (number := getattr(cause, "sqlite_errorcode", None)) is not None:
        code = _SQLITE_CODES.get(number & 0xFF, code)
    elif (state := getattr(cause, "sqlstate", None)) is not None:
        code = _POSTGRES_CODES.get(state, code)
    return LedgerError(code, *_FAILURES[code])
