"""What the ingestion line works with and what it reports: plain values, so that doors can show them as they like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from router.domain import Compared, LabelChange, Labels, Source, Switched
from router.egress import IndexEmbedder
from router.errors import PointsmanError
from router.filters import EntityType
from router.ingest.blocks import LIMITS, ParseLimits
from router.ingest.context import VERSION as CONTEXT_VERSION
from router.ingest.entities import Aliases
from router.ingest.scribe import Scribe
from router.ingest.written_context import Prices
from router.ports import DocStore, DocumentSource, Embedder, Manifest, Tokens

PIPELINE = "4"
"""Version of parser, chunker and of what is read of entities: a document made by another is made again."""

Contexts = Literal["none", "structure", "both", "claude"]


@dataclass(frozen=True, slots=True)
class SourceJob:
    """`contexts`: a plain index, a contextual one, or both; with `claude` a contextual one whose contexts `scribe` has written. A
    `declared` one is opened as the policy folder declares it, and goes by that at every moment.
    `keep_versions` is how many earlier versions of a document stay."""

    source: Source
    documents: DocumentSource
    contexts: Contexts = "structure"
    scribe: Scribe | None = None
    declared: bool = False
    keep_versions: int = 0

    @property
    def pipeline(self) -> str:
        """What the manifest keeps of how a document was made: parser, chunker, contexts."""
        made = PIPELINE if self.contexts == "none" else f"{PIPELINE}+{self.contexts}+{CONTEXT_VERSION}"
        return made if self.scribe is None else f"{made}+{self.scribe.version}"

    def pipeline_of(self, labels: Labels) -> str:
        """The same of a document under these labels: where its class may not be sent away its contexts are structural ones, and
        a change of labels or permits across that line makes it anew."""
        if self.scribe is None or self.scribe.permits(class_of(labels)):
            return self.pipeline
        return f"{self.pipeline}+local"


def class_of(labels: Labels) -> int:
    """The class of everything in a document: its sensitivity, and the highest where that is unknown."""
    sensitivity = labels.get("sensitivity")
    return sensitivity if type(sensitivity) is int else 3


def _unrecorded(*_: object) -> None:
    """For lines of one's own without a ledger."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """`record(tenant, changes)` writes label changes to the ledger and returns when they are durable, `record_switch` what becomes of
    whole generations, and `record_forgotten(tenant, source, hashes)` that contents are kept out. `principal` is the
    Service in whose name documents are indexed; `now_us` is the clock; `aliases` of a tenant are read when its documents are made."""

    store: DocStore
    embedder: Embedder
    manifest: Manifest
    entity: EntityType
    record: Callable[[str, Sequence[LabelChange]], None]
    principal: str
    now_us: Callable[[], int]
    limits: ParseLimits = LIMITS
    record_switch: Callable[[Switched], None] = _unrecorded
    record_forgotten: Callable[[str, str, Sequence[str]], None] = _unrecorded
    aliases: Callable[[str], Aliases] = lambda _: Aliases()

    @property
    def hosted(self) -> IndexEmbedder | None:
        """The embedder, where its vectors are made at somebody else's."""
        return self.embedder if isinstance(self.embedder, IndexEmbedder) else None


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
    """Figures of one source; in a dry run they say what would happen. `error` is set when the source as a whole failed. `revoked`
    holds (microseconds, documents): how long after its labels changed, or it was gone, a document was no longer found as before, at
    most; it is not told where nobody can know. `made_chunks` counts the chunks of each document that was made, by its key."""

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
    error: PointsmanError | None = None
    estimate: ContextEstimate | None = None
    embedding: EmbeddingEstimate | None = None
    revoked: list[tuple[int, int]] = field(default_factory=list)
    looked_at_us: int = 0
    made: bool = False
    made_chunks: dict[str, int] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        return bool(self.indexed or self.relabelled or self.removed)


@dataclass(frozen=True, slots=True)
class ContextEstimate:
    """What having contexts written would take, before anything is sent. `expected` is with the provider keeping each document for
    the asks after its first, `most` without. `local` documents may not be sent; money is None without prices."""

    documents: int = 0
    contexts: int = 0
    local: int = 0
    expected: Tokens = field(default_factory=Tokens)
    most: Tokens = field(default_factory=Tokens)
    prices: Prices | None = None

    def money(self, *, batch: bool) -> tuple[float, float] | None:
        """Expected, and at most."""
        if self.prices is None:
            return None
        return self.prices.of(self.expected, batch=batch), self.prices.of(self.most, batch=batch)


@dataclass(frozen=True, slots=True)
class EmbeddingEstimate:
    """What having vectors made by a provider would take, before anything is sent. `local` documents may not be sent; `cost_micros`
    are millionths of what its price is in. Texts are counted by their bytes, with structural contexts where others are not written yet."""

    provider: str
    documents: int = 0
    texts: int = 0
    tokens: int = 0
    local: int = 0
    cost_micros: int = 0


@dataclass(frozen=True, slots=True)
class ContextReport:
    """What came of written contexts in one run. `structural` are chunks that stand under a structural one, by reason; `waiting` were
    sent and not answered yet; of `unclear` ones the provider does not say what became of them, so that they are neither used nor sent
    again. `uncounted` ones came without a count, or were lost, and are in `tokens` as they were set aside. `stopped` is why nothing
    more was asked."""

    written: int
    reused: int
    direct: int
    batched: int
    waiting: int
    structural: Mapping[str, int]
    stopped: str
    tokens: Tokens
    money: float | None
    currency: str
    unclear: int = 0
    uncounted: int = 0


@dataclass(frozen=True, slots=True)
class IndexReport:
    run_id: str
    dry_run: bool
    elapsed_s: float
    sources: tuple[SourceReport, ...]
    contexts: ContextReport | None = None
    compared: tuple[Compared, ...] = ()
