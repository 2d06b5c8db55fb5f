"""One tenant with one folder and an index of real parts, for the tests of ingestion."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from connectors.folder import SETTLED_S, Folder
from connectors.local_models import MiniLM, load_embedder
from connectors.manifest import open_manifest
from connectors.sqlite_documents import SqliteDocuments
from router.domain import SOURCE_FIELD, Content, Entry, LabelChange, RawLabels, Rejected, Source, label_digest
from router.filters import Always, EntityType, Eq, Field, compile_filter
from router.ingest.blocks import LIMITS, ParseLimits
from router.ingest.build import index_sources
from router.ingest.workshop import IndexReport, SourceJob, SourceReport, Workshop

MODEL = Path(__file__).parents[1] / "router" / "model"
TENANT = "fabrikam"
DOCUMENT = EntityType(
    "Document",
    {
        "tenant": Field("string", True),
        "groups": Field("set", True),
        "sensitivity": Field("long", True),
        "effective_from": Field("long", False),
        "owner": Field("string", False),
        "region": Field("string", False),
    },
)
RULES = "rules:\n  - { match: '**', groups: [corp:all, corp:hr], sensitivity: internal }\n"
ENVELOPE = frozenset({"corp:all", "corp:hr"})


@cache
def embedder() -> MiniLM:
    return load_embedder(MODEL)


class World:
    """`wrap` stands between the line and each port, to count or to break calls."""

    def __init__(self, root: Path, *, wrap: Callable[[str, Any], Any] = lambda _, port: port) -> None:
        self.root, self.docs = root, root / "docs"
        self.docs.mkdir(parents=True, exist_ok=True)
        self.source = Source("docs", TENANT, "folder", ENVELOPE, 1, "", "")
        self.store: Any = SqliteDocuments(root / "store", lambda: DOCUMENT)
        self.manifest = open_manifest(f"sqlite:///{root}/manifest.sqlite")
        self.changes: list[LabelChange] = []
        self.wrap = wrap

    def workshop(self, *, limits: ParseLimits = LIMITS, models: Any = None) -> Workshop:
        return Workshop(
            self.wrap("store", self.store),
            models or embedder(),
            self.wrap("manifest", self.manifest),
            DOCUMENT,
            self.record,
            "dev#indexer",
            lambda: time.time_ns() // 1000,
            limits,
        )

    def record(self, tenant: str, changes: Sequence[LabelChange]) -> None:
        assert tenant == TENANT
        self.changes.extend(changes)

    def write(self, key: str, content: str | bytes, *, old: bool = True) -> None:
        """A file; `old` gives it a time stamp that can be trusted."""
        path = self.docs / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if old:
            os.utime(path, (1_700_000_000, 1_700_000_000))

    def settle(self) -> None:
        """Until files written just now count as settled."""
        time.sleep(SETTLED_S * 1.5)

    def jobs(self) -> list[SourceJob]:
        return [SourceJob(self.source, Folder(self.docs))]

    def index(self, **options: Any) -> SourceReport:
        return self.report(**options).sources[0]

    def report(self, *, limits: ParseLimits = LIMITS, models: Any = None, **options: Any) -> IndexReport:
        return index_sources(self.jobs(), self.workshop(limits=limits, models=models), **options)

    def ids(self) -> list[str]:
        return [info.document_id.removeprefix("docs/") for info in self.store.documents(TENANT)]

    def labels(self) -> Mapping[str, Any]:
        """Labels in the store by key, read back through the store's own load."""
        found = {}
        for info in self.store.documents(TENANT):
            (stored,) = self.load(f"{info.document_id}#0")
            assert label_digest("docs", stored.labels) == info.label_digest
            found[info.document_id.removeprefix("docs/")] = stored.labels
        return found

    def load(self, *chunk_ids: str) -> Any:
        entity = EntityType("Document", {**DOCUMENT.fields, SOURCE_FIELD: Field("string", True)})
        everything = compile_filter(Eq(SOURCE_FIELD, "docs"), entity)
        assert not isinstance(everything, Always)
        return self.store.load(TENANT, list(chunk_ids), everything, deadline_s=5.0)

    def text(self, key: str) -> str:
        """All text of a document in the store."""
        (info,) = [info for info in self.store.documents(TENANT) if info.document_id == f"docs/{key}"]
        return "\n".join(stored.chunk.text for stored in self.load(*(f"docs/{key}#{at}" for at in range(info.chunks))))

    def failed(self, report: SourceReport) -> dict[str, str]:
        return {failure.key: failure.reason for failure in report.failures}


class Shelf:
    """A source in memory: what stands there and under which groups."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, tuple[str, ...]]] = {}

    def entries(self) -> Iterator[Entry | Rejected]:
        for key, (text, _) in sorted(self.held.items()):
            yield Entry(key, len(text), text, f"file:///{key}")

    def labels(self, entry: Entry) -> RawLabels:
        return RawLabels(({"groups": list(self.held[entry.key][1]), "sensitivity": "internal"},))

    def read(self, entry: Entry) -> Content:
        text = self.held[entry.key][0]
        return Content(text.encode(), entry.key, text, title=entry.key, ready=True, passage=True)
