"""What the ingestion line works with and what it reports: plain values, so that doors can show them as they like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from router.domain import LabelChange, Source
from router.errors import SourceError
from router.filters import EntityType
from router.ingest.blocks import LIMITS, ParseLimits
from router.ingest.context import VERSION as CONTEXT_VERSION
from router.ports import DocStore, DocumentSource, Embedder, Manifest

PIPELINE = "3"
"""Version of parser and chunker: a document made by another is made again."""

Contexts = Literal["none", "structure", "both"]


@dataclass(frozen=True, slots=True)
class SourceJob:
    """`contexts`: a plain index, a contextual one, or both."""

    source: Source
    documents: DocumentSource
    contexts: Contexts = "structure"

    @property
    def pipeline(self) -> str:
        """What the manifest keeps of how a document was made: parser, chunker, contexts."""
        return PIPELINE if self.contexts == "none" else f"{PIPELINE}+{self.contexts}+{CONTEXT_VERSION}"


@dataclass(frozen=True, slots=True)
class Workshop:
    """`record(tenant, changes)` writes label changes to the ledger and returns when they are durable. `principal` is the
    Service in whose name documents are indexed; `now_us` is the clock."""

    store: DocStore
    embedder: Embedder
    manifest: Manifest
    entity: EntityType
    record: Callable[[str, Sequence[LabelChange]], None]
    principal: str
    now_us: Callable[[], int]
    limits: ParseLimits = LIMITS


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one source is. `total` counts documents to be read, not all that are listed."""

    source: str
    done: int
    total: int
    chunks: int
    elapsed_s: float

    @property
    def documents_per_s(self) -> float:
        return self.done / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        return (self.total - self.done) / self.documents_per_s if self.documents_per_s > 0 else None


@dataclass(frozen=True, slots=True)
class Failure:
    """A document that is not indexed, or something worth saying of one. `detail` never quotes its text."""

    key: str
    reason: str
    detail: str


@dataclass(slots=True)
class SourceReport:
    """Figures of one source; in a dry run they say what would happen. `error` is set when the source as a whole failed."""

    source: str
    tenant: str
    listed: int = 0
    unchanged: int = 0
    indexed: int = 0
    relabelled: int = 0
    removed: int = 0
    chunks: int = 0
    failures: list[Failure] = field(default_factory=list)
    notes: list[Failure] = field(default_factory=list)
    error: SourceError | None = None


@dataclass(frozen=True, slots=True)
class IndexReport:
    run_id: str
    dry_run: bool
    elapsed_s: float
    sources: tuple[SourceReport, ...]
