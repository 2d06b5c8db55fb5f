"""Contexts that were written and paid for, in a SQLite file of their own: text, so it stands apart from the manifest, which holds none.

A context is kept only as long as some document of its tenant uses it; what a document that is forgotten used goes at once, without a
byte left on disk, and an answer that comes later is not kept. Batches that are on their way are kept beside, so that a run that was killed finds them again.

INVARIANT: every write is one transaction, and a file of a newer schema is refused (tests/unit/test_context_cache.py::
test_newer_schema_is_refused, ::test_a_batch_is_there_before_it_is_sent).
INVARIANT: its file is for its owner only (…::test_the_file_is_for_its_owner).
INVARIANT: a forgotten document leaves no byte of its contexts (…::test_forgetting_leaves_no_byte).
INVARIANT: no call reaches across tenants (…::test_tenants_share_nothing).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from router.errors import SourceError
from router.ports import OpenBatch, Tokens, WrittenContext

SCHEMA = 1
_AT_ONCE = 500
_META = sa.MetaData()
_ABOUT = sa.Table("about", _META, sa.Column("key", sa.String(40), primary_key=True), sa.Column("value", sa.Text, nullable=False))
_CONTEXTS = sa.Table(
    "context",
    _META,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("code", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("prompt", sa.Text, nullable=False),
    sa.Column("document_hash", sa.Text, nullable=False),
    sa.Column("answered_by", sa.Text, nullable=False),
    sa.Column("at_us", sa.BigInteger, nullable=False),
)
_USES = sa.Table(
    "context_use",
    _META,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("document_id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Index("context_use_by_key", "tenant", "key"),
)
_BATCHES = sa.Table(
    "context_batch",
    _META,
    sa.Column("intent", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("batch_id", sa.Text, nullable=False),
    sa.Column("sensitivity", sa.Integer, nullable=False),
    sa.Column("items", sa.Integer, nullable=False),
    sa.Column("at_us", sa.BigInteger, nullable=False),
    sa.Column("fresh", sa.BigInteger, nullable=False),
    sa.Column("cache_write", sa.BigInteger, nullable=False),
    sa.Column("cache_read", sa.BigInteger, nullable=False),
    sa.Column("output", sa.BigInteger, nullable=False),
)
_ASKED = sa.Table(
    "context_asked",
    _META,
    sa.Column("intent", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("document_hash", sa.Text, nullable=False),
    sa.Index("context_asked_by_key", "key"),
)
_PRAGMAS = ("journal_mode = TRUNCATE", "synchronous = FULL", "busy_timeout = 20000", "secure_delete = ON")


class SqlContexts:
    """Implements `router.ports.ContextCache`."""

    def __init__(self, path: Path) -> None:
        with _translated():
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)
        self._engine = sa.create_engine(f"sqlite:///{path}")
        sa.event.listen(self._engine, "connect", _prepare)
        self._open()

    def _open(self) -> None:
        with self._begin() as connection:
            _META.create_all(connection, tables=[_ABOUT])
            found = connection.execute(sa.select(_ABOUT.c.value).where(_ABOUT.c.key == "schema")).scalar()
            if found is not None and int(found) > SCHEMA:
                raise SourceError(
                    "contexts_newer",
                    f"the written contexts have schema {found}, this version knows {SCHEMA}",
                    "use the newer pointsman that wrote them",
                )
            _META.create_all(connection)
            if found is None:
                connection.execute(sa.insert(_ABOUT).values(key="schema", value=str(SCHEMA)))

    def close(self) -> None:
        self._engine.dispose()

    # --- contexts -----------------------------------------------------------------------------------------------------

    def find(self, tenant: str, keys: Sequence[str]) -> dict[str, WrittenContext]:
        found: dict[str, WrittenContext] = {}
        columns = [_CONTEXTS.c[name] for name in WrittenContext.__slots__]
        with self._begin() as connection:
            for some in _batches(keys):
                query = sa.select(*columns).where(_CONTEXTS.c.tenant == tenant, _CONTEXTS.c.key.in_(some))
                found.update((row.key, WrittenContext(*row)) for row in connection.execute(query))
        return found

    def write(self, tenant: str, contexts: Sequence[WrittenContext]) -> None:
        keys = [item.key for item in contexts]
        with self._begin() as connection:
            used: set[str] = set()
            for some in _batches(keys):
                query = sa.select(_USES.c.key).where(_USES.c.tenant == tenant, _USES.c.key.in_(some))
                used.update(connection.execute(query).scalars())
            rows = [
                {"tenant": tenant, **{name: getattr(item, name) for name in WrittenContext.__slots__}}
                for item in contexts
                if item.key in used
            ]
            if rows:
                connection.execute(sa.insert(_CONTEXTS).prefix_with("OR REPLACE"), rows)

    def use(self, tenant: str, source: str, document_id: str, keys: Sequence[str]) -> None:
        mine = sa.and_(_USES.c.tenant == tenant, _USES.c.source == source, _USES.c.document_id == document_id)
        with self._begin() as connection:
            held = set(connection.execute(sa.select(_USES.c.key).where(mine)).scalars())
            if held == set(keys):
                return
            connection.execute(sa.delete(_USES).where(mine))
            rows = [{"tenant": tenant, "source": source, "document_id": document_id, "key": key} for key in dict.fromkeys(keys)]
            if rows:
                connection.execute(sa.insert(_USES), rows)

    def prune(self, tenant: str, source: str, document_ids: Iterable[str]) -> int:
        left = set(document_ids)
        mine = sa.and_(_USES.c.tenant == tenant, _USES.c.source == source)
        with self._begin() as connection:
            known = connection.execute(sa.select(_USES.c.document_id).where(mine).distinct()).scalars()
            return _drop(connection, tenant, [name for name in known if name not in left])

    def forget(self, tenant: str, document_ids: Sequence[str]) -> int:
        with self._begin() as connection:
            return _drop(connection, tenant, document_ids)

    def keep_sources(self, sources: Iterable[tuple[str, str]]) -> None:
        left = set(sources)
        with self._begin() as connection:
            known = connection.execute(sa.select(_USES.c.tenant, _USES.c.source).distinct()).all()
            for tenant, source in known:
                if (tenant, source) not in left:
                    connection.execute(sa.delete(_USES).where(_USES.c.tenant == tenant, _USES.c.source == source))
            tenants = set(connection.execute(sa.select(_CONTEXTS.c.tenant).distinct()).scalars())
            for tenant in tenants:
                _drop(connection, tenant, ())

    # --- batches ------------------------------------------------------------------------------------------------------

    def begin(self, batch: OpenBatch, keys: Mapping[str, str]) -> None:
        worst = batch.worst
        row = {
            "intent": batch.intent, "tenant": batch.tenant, "batch_id": batch.batch_id, "sensitivity": batch.sensitivity,
            "items": batch.items, "at_us": batch.at_us, "fresh": worst.fresh, "cache_write": worst.cache_write,
            "cache_read": worst.cache_read, "output": worst.output,
        }  # fmt: skip
        asked = [{"intent": batch.intent, "key": key, "document_hash": document} for key, document in keys.items()]
        with self._begin() as connection:
            connection.execute(sa.insert(_BATCHES), [row])
            connection.execute(sa.insert(_ASKED), asked)

    def named(self, intent: str, batch_id: str) -> None:
        with self._begin() as connection:
            connection.execute(sa.update(_BATCHES).where(_BATCHES.c.intent == intent).values(batch_id=batch_id))

    def dated(self, intent: str, at_us: int) -> None:
        with self._begin() as connection:
            connection.execute(sa.update(_BATCHES).where(_BATCHES.c.intent == intent).values(at_us=at_us))

    def end(self, intent: str) -> None:
        with self._begin() as connection:
            connection.execute(sa.delete(_ASKED).where(_ASKED.c.intent == intent))
            connection.execute(sa.delete(_BATCHES).where(_BATCHES.c.intent == intent))

    def open_batches(self, tenant: str) -> list[OpenBatch]:
        query = sa.select(_BATCHES).where(_BATCHES.c.tenant == tenant).order_by(_BATCHES.c.at_us, _BATCHES.c.intent)
        with self._begin() as connection:
            return [
                OpenBatch(
                    row.intent, row.tenant, row.batch_id, row.sensitivity, row.items, row.at_us,
                    Tokens(row.fresh, row.cache_write, row.cache_read, row.output),
                )
                for row in connection.execute(query)
            ]  # fmt: skip

    def keys_of(self, intent: str) -> dict[str, str]:
        with self._begin() as connection:
            query = sa.select(_ASKED.c.key, _ASKED.c.document_hash).where(_ASKED.c.intent == intent)
            return {row.key: row.document_hash for row in connection.execute(query)}

    def on_their_way(self, tenant: str, keys: Sequence[str]) -> frozenset[str]:
        found: set[str] = set()
        joined = _ASKED.join(_BATCHES, _ASKED.c.intent == _BATCHES.c.intent)
        with self._begin() as connection:
            for some in _batches(keys):
                query = sa.select(_ASKED.c.key).select_from(joined).where(_BATCHES.c.tenant == tenant, _ASKED.c.key.in_(some))
                found.update(connection.execute(query).scalars())
        return frozenset(found)

    @contextlib.contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        with _translated(), self._engine.begin() as connection:
            yield connection


def _drop(connection: sa.Connection, tenant: str, document_ids: Iterable[str]) -> int:
    """Uses of the documents, then every context of the tenant that no document uses."""
    for some in _batches(list(document_ids)):
        connection.execute(sa.delete(_USES).where(_USES.c.tenant == tenant, _USES.c.document_id.in_(some)))
    used = sa.exists().where(_USES.c.tenant == tenant, _USES.c.key == _CONTEXTS.c.key)
    return connection.execute(sa.delete(_CONTEXTS).where(_CONTEXTS.c.tenant == tenant, ~used)).rowcount


def _batches(items: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(items), _AT_ONCE):
        yield items[at : at + _AT_ONCE]


def _prepare(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """No exception of the driver leaves this file."""
    try:
        yield
    except sa.exc.OperationalError as error:
        busy = "locked" in str(error.orig)
        raise SourceError(
            "contexts_busy" if busy else "contexts_unavailable",
            "the file of written contexts cannot be used",
            "try again later" if busy else "check the state folder",
            retryable=busy,
        ) from None
    except (sa.exc.SQLAlchemyError, OSError):
        raise SourceError(
            "contexts_unavailable", "the file of written contexts cannot be used", "check the state folder"
        ) from None
