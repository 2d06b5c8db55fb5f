"""The ingestion line over real folders, the real store, manifest and embedder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from connectors.folder import Folder
from connectors.local_models import load_embedder
from connectors.manifest import open_manifest
from connectors.sqlite_documents import SqliteDocuments
from router.domain import LabelChange, Source
from router.filters import EntityType, Field
from router.ingest.build import index_sources
from router.ingest.workshop import IndexReport, SourceJob, Workshop

MODEL = Path(__file__).parents[2] / "router" / "model"
DOCUMENT = EntityType(
    "Document",
    {
        "tenant": Field("string", True),
        "groups": Field("set", True),
        "sensitivity": Field("long", True),
        "effective_from": Field("long", False),
        "owner": Field("string", False),
    },
)
RULES = "rules:\n  - { match: '**', groups: [corp:all, corp:hr], sensitivity: internal }\n"


class World:
    """One tenant, one folder, one index."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.docs = root / "docs"
        self.docs.mkdir(exist_ok=True)
        self.source = Source("docs", "fabrikam", "folder", frozenset({"corp:all", "corp:hr"}), 1, "", "")
        self.store: Any = SqliteDocuments(root / "store", lambda: DOCUMENT)
        self.manifest = open_manifest(f"sqlite:///{root}/manifest.sqlite")
        self.embedder = load_embedder(MODEL)
        self.changes: list[LabelChange] = []
        self.workshop = Workshop(self.store, self.embedder, self.manifest, DOCUMENT, self.record, "dev#indexer", lambda: 1)

    def record(self, tenant: str, changes: Sequence[LabelChange]) -> None:
        assert tenant == "fabrikam"
        self.changes.extend(changes)

    def write(self, key: str, text: str) -> None:
        path = self.docs / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def index(self, **options: Any) -> IndexReport:
        return index_sources([SourceJob(self.source, Folder(self.docs))], self.workshop, **options)

    def ids(self) -> list[str]:
        return [info.document_id for info in self.store.documents("fabrikam")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_first_and_second_run(world: World) -> None:
    world.write("labels.yaml", RULES)
    world.write("a.md", "# Leave\n\nThirty days a year.\n")
    world.write("hr/b.txt", "Sick pay\n\nSix weeks.\n")
    first = world.index().sources[0]
    assert (first.listed, first.indexed, first.failures) == (2, 2, [])
    assert world.ids() == ["docs/a.md", "docs/hr/b.txt"]
    assert [(change.document_id, change.old, change.cause) for change in world.changes] == [
        ("docs/a.md", None, "indexed"),
        ("docs/hr/b.txt", None, "indexed"),
    ]
    second = world.index().sources[0]
    assert (second.indexed, second.unchanged, second.failures) == (0, 2, [])
    assert len(world.changes) == 2
