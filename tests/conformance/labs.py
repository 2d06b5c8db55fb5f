"""The laboratories in which stores are examined: one for each engine."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw

from connectors.sqlite_documents import SqliteDocuments, partition_name
from router.filters import EntityType
from tests.conformance.corpus import ENTITY


@contextlib.contextmanager
def quick_folder() -> Iterator[Path]:
    """In memory where there is a place for it: these suites ask about answers; whether a disk is synced, tests/faults asks."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None, prefix="pointsman-") as name:
        yield Path(name)


class SqliteLab:
    """The document store in SQLite, in a folder of its own."""

    kind: type[SqliteDocuments] = SqliteDocuments

    def __init__(self, root: Path) -> None:
        self.root = root
        self.entity: EntityType = ENTITY
        self._opened: list[SqliteDocuments] = []
        self.store = self.reopened()

    def reopened(self) -> SqliteDocuments:
        store = self.kind(self.root / "store", lambda: self.entity, busy_s=1.0)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def folder(self, tenant: str) -> Path:
        return self.root / "store" / partition_name(tenant)

    def current(self, tenant: str) -> Path:
        return self.folder(tenant) / f"{self.store.generation(tenant)}.sqlite"

    def sever(self) -> None:
        """Every file becomes rubbish, in place, so that open connections meet it too."""
        self._checkpoint()
        for path in (self.root / "store").glob("*/g-*.sqlite"):
            path.write_bytes(b"rubbish " * 4096)

    def _checkpoint(self) -> None:
        for path in (self.root / "store").glob("*/g-*.sqlite"):
            con = apsw.Connection(str(path))
            con.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            con.close()

    def secrets(self) -> list[str]:
        return [str(self.root), self.root.name, "t-", ".sqlite"]

    def swap(self, one: str, other: str) -> None:
        """By content and not by rename: the harder case, since connections stay open on the same file."""
        self._checkpoint()
        first, second = self.current(one), self.current(other)
        kept = first.read_bytes()
        shutil.copyfile(second, first)
        second.write_bytes(kept)

    def age(self, tenant: str) -> None:
        con = apsw.Connection(str(self.current(tenant)))
        con.execute("UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'schema'")
        con.close()

    def everything(self, tenant: str) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.folder(tenant).iterdir()) if path.is_file())

    def lose(self, tenant: str) -> None:
        shutil.rmtree(self.folder(tenant))

    def keep(self, tenant: str) -> Callable[[], None]:
        kept = self.root / f"kept-{tenant}"
        shutil.copytree(self.folder(tenant), kept)

        def restore() -> None:
            self.lose(tenant)
            shutil.copytree(kept, self.folder(tenant))

        return restore

    def torn_build(self, tenant: str) -> None:
        half = self.current(tenant).read_bytes()
        (self.folder(tenant) / "g-000099.sqlite.copy").write_bytes(half[: len(half) // 2])
