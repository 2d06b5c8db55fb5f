"""The manifest in SQL through SQLAlchemy: SQLite by default, PostgreSQL by URL. It says what was indexed, never what it says.

SQLite keeps its rollback journal: the SQLite that comes with Python may have the WAL bug fixed in 3.51.3.

INVARIANT: every write is one transaction, and a manifest of a newer schema is refused (tests/unit/test_manifest.py::
test_newer_schema_is_refused, ::test_write_is_all_or_nothing).
INVARIANT: what is removed and the note that it was stand or fall together, and of what was forgotten no note is left
(tests/unit/test_manifest.py::test_what_was_removed).
INVARIANT: what the ledger says was forgotten is buried with the mark of how far it was read (::test_burials_and_the_mark).
INVARIANT: its files are for their owner only (tests/unit/test_manifest.py::test_files_are_for_their_owner).
INVARIANT: one run at a time changes an index (tests/unit/test_manifest.py::test_second_holder_is_refused).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from router.domain import Gone, IndexRun, ManifestRow, SourceState
from router.errors import SourceError

SCHEMA = 1
_BATCH = 500  # rows a statement: SQLite takes 32,766 bound values
_META = sa.MetaData()
_ABOUT = sa.Table(
    "manifest_about", _META, sa.Column("key", sa.String(40), primary_key=True), sa.Column("value", sa.Text, nullable=False)
)
_DOCUMENTS = sa.Table(
    "manifest_document",
    _META,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("generation", sa.Text, primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("content_hash", sa.Text, nullable=False),
    sa.Column("version", sa.Text),
    sa.Column("chunks", sa.Integer, nullable=False),
    sa.Column("label_digest", sa.Text, nullable=False),
    sa.Column("narrowing", sa.Text, nullable=False),
    sa.Column("model_id", sa.Text, nullable=False),
    sa.Column("pipeline", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Column("indexed_at_us", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
_BURIED = sa.Table(
    "manifest_buried",
    _META,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("content_hash", sa.Text, primary_key=True),
    sa.Column("at_us", sa.BigInteger, nullable=False),
)
_LEDGER = sa.Table(
    "manifest_ledger",
    _META,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)
_GONE = sa.Table(
    "manifest_gone",
    _META,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("content_hash", sa.Text, nullable=False),
    sa.Column("at_us", sa.BigInteger, primary_key=True),
    sa.Column("cause", sa.Text, nullable=False),
)
_STATES = sa.Table(
    "manifest_source",
    _META,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("looked_at_us", sa.BigInteger, nullable=False),
    sa.Column("good_at_us", sa.BigInteger, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("code", sa.Text, nullable=False),
    sa.Column("failed_at_us", sa.BigInteger, nullable=False),
)
_RUNS = sa.Table(
    "manifest_run",
    _META,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("started_at_us", sa.BigInteger, nullable=False),
    sa.Column("ended_at_us", sa.BigInteger, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("summary", sa.Text, nullable=False),
)
_NAMES = [column.name for column in _DOCUMENTS.columns]
_KEYS = ["tenant", "generation", "source", "key"]
_GONE_KEYS = ["tenant", "source", "key", "at_us"]
_KEYS_AT_ONCE = 500
KEPT_RUNS = 1_000
"""A run a minute fills no disk."""


def open_manifest(url: str) -> SqlManifest:
    """Open or create. `url` is SQLAlchemy's, for example `sqlite:///state/manifest.sqlite`."""
    try:
        engine = sa.create_engine(url)
    except (sa.exc.ArgumentError, ImportError):
        raise SourceError(
            "manifest_url", "the manifest's database URL is not understood", "use sqlite:///FILE or postgresql+psycopg://…"
        ) from None
    if engine.dialect.name == "sqlite":
        _make_own(engine.url.database)
        sa.event.listen(engine, "connect", _prepare_sqlite)
    manifest = SqlManifest(engine)
    manifest.prepare()
    return manifest


def _make_own(database: str | None) -> None:
    """A file for its owner only, since it holds names of documents; SQLite gives its journal the mode of the file."""
    if not database or database == ":memory:":
        return
    try:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(database, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        for path in (database, f"{database}-journal"):
            if os.path.exists(path) and os.stat(path).st_mode & 0o077:
                os.chmod(path, 0o600)
    except OSError:
        raise SourceError(
            "manifest_unavailable", "the manifest cannot be made", "check the state folder", retryable=True
        ) from None


def _prepare_sqlite(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode = TRUNCATE", "synchronous = FULL", "busy_timeout = 20000", "secure_delete = ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


class SqlManifest:
    """Implements `router.ports.Manifest`."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def prepare(self) -> None:
        """Create the tables, or check that they are of a schema this version knows."""
        with self._begin() as connection:
            _META.create_all(connection, tables=[_ABOUT])
            found = connection.execute(sa.select(_ABOUT.c.value).where(_ABOUT.c.key == "schema")).scalar()
            if found is not None and int(found) > SCHEMA:
                raise SourceError(
                    "manifest_newer",
                    f"the manifest has schema {found}, this version knows {SCHEMA}",
                    "use the newer pointsman that wrote it",
                )
            _META.create_all(connection)
            if found is None:
                connection.execute(sa.insert(_ABOUT).values(key="schema", value=str(SCHEMA)))

    def close(self) -> None:
        self._engine.dispose()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        path = self._engine.url.database
        if self._engine.dialect.name == "sqlite" and path and path != ":memory:":
            with _file_lock(f"{path}.lock"):
                yield
        elif self._engine.dialect.name == "postgresql":
            with self._advisory_lock():
                yield
        else:
            yield

    @contextlib.contextmanager
    def _advisory_lock(self) -> Iterator[None]:
        number = int.from_bytes(hashlib.sha256(b"pointsman manifest").digest()[:8], "big", signed=True)
        with self._connect() as connection:
            if not connection.execute(sa.select(sa.func.pg_try_advisory_lock(number))).scalar():
                raise _busy()
            try:
                yield
            finally:
                connection.execute(sa.select(sa.func.pg_advisory_unlock(number)))

    # --- documents ---

    def rows(self, tenant: str, generation: str, *, source: str | None = None) -> list[ManifestRow]:
        query = sa.select(_DOCUMENTS).where(_DOCUMENTS.c.tenant == tenant, _DOCUMENTS.c.generation == generation)
        if source is not None:
            query = query.where(_DOCUMENTS.c.source == source)
        with self._connect() as connection:
            found = [ManifestRow(*row) for row in connection.execute(query)]  # columns stand in the order of its fields
        return sorted(found, key=lambda row: (row.source, row.key))

    def write(self, rows: Sequence[ManifestRow], gone: Sequence[Gone] = ()) -> None:
        if not rows:
            return
        with self._begin() as connection:
            _upsert(connection, _DOCUMENTS, [_plain(row) for row in rows], _KEYS)
            _upsert(connection, _GONE, [asdict(item) for item in gone], _GONE_KEYS)

    def relabel(self, tenant: str, generation: str, source: str, digests: Mapping[str, str]) -> None:
        if not digests:
            return
        of_source = [_DOCUMENTS.c.tenant == tenant, _DOCUMENTS.c.generation == generation, _DOCUMENTS.c.source == source]
        by_digest: dict[str, list[str]] = {}
        for key, digest in digests.items():
            by_digest.setdefault(digest, []).append(key)
        with self._begin() as connection:
            for digest, keys in by_digest.items():
                for at in range(0, len(keys), _KEYS_AT_ONCE):
                    some = _DOCUMENTS.c.key.in_(keys[at : at + _KEYS_AT_ONCE])
                    connection.execute(sa.update(_DOCUMENTS).where(*of_source, some).values(label_digest=digest))

    def remove(self, rows: Sequence[ManifestRow], gone: Sequence[Gone] = ()) -> None:
        if not rows and not gone:
            return
        matching = sa.and_(*(_DOCUMENTS.c[name] == sa.bindparam(f"b_{name}") for name in _KEYS))
        keys = [{f"b_{name}": getattr(row, name) for name in _KEYS} for row in rows]
        with self._begin() as connection:
            if keys:
                connection.execute(sa.delete(_DOCUMENTS).where(matching), keys)
            _upsert(connection, _GONE, [asdict(item) for item in gone], _GONE_KEYS)

    def gone(self, *, limit: int | None = None, source: str | None = None, key: str | None = None) -> list[Gone]:
        query = sa.select(_GONE).order_by(_GONE.c.at_us.desc(), _GONE.c.tenant, _GONE.c.source, _GONE.c.key).limit(limit)
        if source is not None:
            query = query.where(_GONE.c.source == source)
        if key is not None:
            query = query.where(_GONE.c.key == key)
        with self._connect() as connection:
            return [Gone(*row) for row in connection.execute(query)]

    def forget_gone(self, tenant: str, source: str, keys: Iterable[str], content_hashes: Iterable[str]) -> None:
        of_source = [_GONE.c.tenant == tenant, _GONE.c.source == source]
        with self._begin() as connection:
            for column, wanted in ((_GONE.c.key, sorted(set(keys))), (_GONE.c.content_hash, sorted(set(content_hashes)))):
                for at in range(0, len(wanted), _KEYS_AT_ONCE):
                    connection.execute(sa.delete(_GONE).where(*of_source, column.in_(wanted[at : at + _KEYS_AT_ONCE])))

    def copy(self, tenant: str, *, old: str, new: str, sources: Iterable[str]) -> None:
        wanted = set(sources)
        copies = [{**_plain(row), "generation": new} for row in self.rows(tenant, old) if row.source in wanted]
        with self._begin() as connection:
            connection.execute(sa.delete(_DOCUMENTS).where(_DOCUMENTS.c.tenant == tenant, _DOCUMENTS.c.generation == new))
            _upsert(connection, _DOCUMENTS, copies, _KEYS)

    def generations(self, tenant: str) -> list[str]:
        query = sa.select(_DOCUMENTS.c.generation).where(_DOCUMENTS.c.tenant == tenant).distinct()
        with self._connect() as connection:
            return sorted(connection.execute(query).scalars())

    def keep(self, tenant: str, generations: Iterable[str]) -> None:
        others = _DOCUMENTS.c.generation.not_in(list(generations))
        with self._begin() as connection:
            connection.execute(sa.delete(_DOCUMENTS).where(_DOCUMENTS.c.tenant == tenant, others))

    # --- forgotten contents ---

    def bury(self, tenant: str, source: str, content_hash: str, *, at_us: int) -> None:
        row = {"tenant": tenant, "source": source, "content_hash": content_hash, "at_us": at_us}
        with self._begin() as connection:
            _upsert(connection, _BURIED, [row], ["tenant", "source", "content_hash"])

    def buried(self, tenant: str, source: str) -> frozenset[str]:
        query = sa.select(_BURIED.c.content_hash).where(_BURIED.c.tenant == tenant, _BURIED.c.source == source)
        with self._connect() as connection:
            return frozenset(connection.execute(query).scalars())

    def burials(self, tenant: str) -> set[tuple[str, str]]:
        query = sa.select(_BURIED.c.source, _BURIED.c.content_hash).where(_BURIED.c.tenant == tenant)
        with self._connect() as connection:
            return {(row.source, row.content_hash) for row in connection.execute(query)}

    def buried_tenants(self) -> list[str]:
        with self._connect() as connection:
            return sorted(connection.execute(sa.select(_BURIED.c.tenant).distinct()).scalars())

    def ledger_mark(self, tenant: str) -> tuple[int, str] | None:
        query = sa.select(_LEDGER.c.seq, _LEDGER.c.digest).where(_LEDGER.c.tenant == tenant)
        with self._connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else (row.seq, row.digest)

    def note_ledger(self, tenant: str, burials: Iterable[tuple[str, str]], *, mark: tuple[int, str], at_us: int) -> None:
        rows = [
            {"tenant": tenant, "source": source, "content_hash": content_hash, "at_us": at_us}
            for source, content_hash in sorted(set(burials))
        ]
        with self._begin() as connection:
            _upsert(connection, _BURIED, rows, ["tenant", "source", "content_hash"])
            _upsert(connection, _LEDGER, [{"tenant": tenant, "seq": mark[0], "digest": mark[1]}], ["tenant"])

    # --- runs ---

    def states(self) -> list[SourceState]:
        query = sa.select(_STATES).order_by(_STATES.c.tenant, _STATES.c.source)
        with self._connect() as connection:
            return [SourceState(*row) for row in connection.execute(query)]

    def note_states(self, states: Sequence[SourceState]) -> None:
        if not states:
            return
        with self._begin() as connection:
            _upsert(connection, _STATES, [asdict(state) for state in states], ["tenant", "source"])

    def note_run(self, run: IndexRun) -> None:
        row = {**asdict(run), "summary": json.dumps(dict(run.summary), sort_keys=True)}
        kept = sa.select(_RUNS.c.started_at_us).order_by(_RUNS.c.started_at_us.desc()).offset(KEPT_RUNS - 1).limit(1)
        with self._begin() as connection:
            _upsert(connection, _RUNS, [row], ["run_id"])
            connection.execute(sa.delete(_RUNS).where(_RUNS.c.started_at_us < kept.scalar_subquery()))

    def runs(self, *, limit: int) -> list[IndexRun]:
        query = sa.select(_RUNS).order_by(_RUNS.c.started_at_us.desc(), _RUNS.c.run_id.desc()).limit(limit)
        with self._connect() as connection:
            return [
                IndexRun(row.run_id, row.started_at_us, row.ended_at_us, row.outcome, json.loads(row.summary))
                for row in connection.execute(query)
            ]

    # --- connections: no exception of the driver leaves this file ---

    @contextlib.contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        with _translated(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sa.Connection]:
        with _translated(), self._engine.connect() as connection:
            yield connection


def _plain(row: ManifestRow) -> dict[str, Any]:
    """The row's columns. `asdict` copies every value deeply, which for a thousand rows costs more than storing them."""
    return {name: getattr(row, name) for name in _NAMES}


def _upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> None:
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    for start in range(0, len(rows), _BATCH):
        statement = insert(table)
        changed = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in keys}
        connection.execute(statement.on_conflict_do_update(index_elements=list(keys), set_=changed), rows[start : start + _BATCH])


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sa.exc.OperationalError as error:
        text = str(error.orig).lower()
        if "full" in text or "no space" in text:
            raise SourceError(
                "disk_full", "the manifest cannot be written: the disk is full", "free some space and run again", retryable=True
            ) from None
        raise SourceError(
            "manifest_unavailable", "the manifest cannot be read or written now", "is another program holding it?", retryable=True
        ) from None
    except sa.exc.DBAPIError:
        raise SourceError(
            "manifest_damaged", "the manifest's database gives errors", "run `pointsman index verify`, or restore it"
        ) from None


def _busy() -> SourceError:
    return SourceError("index_busy", "another run is changing this index", "wait for it to end", retryable=True)


@contextlib.contextmanager
def _file_lock(path: str) -> Iterator[None]:
    """Held by the process, so that kill -9 releases it."""
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy() from None
        yield
    finally:
        os.close(handle)
