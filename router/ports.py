"""What the core asks of the outside. Each port is implemented by one or more files under `connectors/`.

Every method that can wait takes `deadline_s`, the seconds it may still use. Every failure is a `router.errors` error:
no exception of a driver crosses a port. Longer than most because every port stands here, side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol

from router.domain import (
    Content,
    CopiedTable,
    Embedded,
    Entry,
    Found,
    Generation,
    Gone,
    IndexedDocument,
    IndexRun,
    Labels,
    Link,
    ManifestRow,
    ModelCard,
    Purpose,
    RawLabels,
    Record,
    Rejected,
    RowColumn,
    Search,
    SourceState,
    SqlLimits,
    Stored,
    Table,
    TableFile,
    TableGrant,
    TableSnapshot,
    Verdict,
)
from router.filters import Filter


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A document as a store holds it; `label_digest` is of the labels only."""

    source: str
    document_id: str
    chunks: int
    label_digest: str


class DocStore(Protocol):
    """Documents of many tenants, each tenant a partition of its own. There is no call without a filter or a tenant.

    Reads see the current generation. Writes go to `generation` (None = the current one). A call for a partition whose
    stored tenant is another raises `SourceError("tenant_mismatch")`; a search in one that no indexing run has made raises
    `SourceError("store_missing")`.
    """

    def search(self, search: Search) -> Found:
        """Both legs under the filter, inside one snapshot; filter before top-k; ties by chunk id; `Never` does no I/O. Of a
        document's plain and contextual chunks one kind is there, as `Search.plain` says, for the statistics too; where
        `Search.entities` says so, only chunks that name all of these are, and nothing else is counted."""
        ...

    def foresee(self, search: Search) -> object:
        """What can be asked before the question's vector is there, for `Search.foreseen` of the same search; None where a store has
        nothing to gain by it. Under the same filter, and as wrong as any earlier answer when the documents changed since."""
        ...

    def load(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[Stored]:
        """The named chunks that `f` admits, in the order asked for; others are left out silently."""
        ...

    def vectors(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[bytes]:
        """Vectors of the named chunks that `f` admits, float32, in the order asked for; others are left out silently."""
        ...

    def admitted_labels(self, tenant: str, f: Filter, *, deadline_s: float) -> list[Labels]:
        """Each distinct set of labels that `f` admits and some chunk carries, in an order that depends on nothing else."""
        ...

    def siblings(self, tenant: str, document_id: str, first: int, last: int, f: Filter, *, deadline_s: float) -> list[Stored]:
        """Chunks of one document with ordinals from `first` to `last` that `f` admits: neighbours and parents. Never the
        contextual ones of a document that has both: their text is the same."""
        ...

    def superseding(self, tenant: str, document_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[Stored]:
        """First chunks of the documents that `f` admits and that say of one of these that they replace it (`meta["supersedes"]`)."""
        ...

    def subjects(self, tenant: str, names: Sequence[str], f: Filter, *, most: int, deadline_s: float) -> list[tuple[str, Stored]]:
        """Of each name (`Entity.name`) the documents that `f` admits and that are about it, at most `most` by id: the first chunk of
        each that is. In the order of `names`, never the contextual chunks of a document that has both."""
        ...

    def put(self, tenant: str, documents: Sequence[IndexedDocument], *, model: ModelCard, generation: str | None = None) -> None:
        """Insert or replace whole documents, all in one transaction."""
        ...

    def relabel(self, tenant: str, labels: Mapping[str, Labels], *, generation: str | None = None) -> int:
        """Give documents (by document_id) new complete labels without touching text or vectors; returns how many changed."""
        ...

    def delete(self, tenant: str, document_ids: Sequence[str], *, generation: str | None = None) -> int:
        """Remove documents; returns how many there were."""
        ...

    def forget(self, tenant: str, document_ids: Sequence[str]) -> int:
        """Remove from every generation and leave no byte of the text on disk; returns how many generations held one."""
        ...

    def documents(self, tenant: str, *, generation: str | None = None) -> Iterator[DocumentInfo]:
        """Every document, ordered by id."""
        ...

    def labelled(self, tenant: str) -> Iterator[tuple[str, str, Labels]]:
        """(source, document id, labels) of every document, ordered by id: what reviews and audits judge, without text."""
        ...

    def admitted(self, tenant: str, f: Filter) -> list[str]:
        """Ids of the documents that `f` admits, as this store lowers it."""
        ...

    def tenants(self) -> list[str]:
        """Every tenant that has a partition, also one of whom no source speaks any more."""
        ...

    def generation(self, tenant: str) -> str | None:
        """Name of the current generation; None when the tenant has none."""
        ...

    def begin_generation(self, tenant: str, *, keep_sources: Iterable[str] = ()) -> str:
        """A new generation beside the current one that starts with copies of `keep_sources`."""
        ...

    def switch(self, tenant: str, generation: str) -> None:
        """Make `generation` current, atomically; the previous one is kept until the next switch. Both are whole from then on."""
        ...

    def seal(self, tenant: str, generation: str) -> None:
        """Note that a build beside the current generation is whole, without showing it."""
        ...

    def generations(self, tenant: str) -> list[Generation]:
        """Every generation on disk, by name, the one being built and what killed builds left among them."""
        ...

    def discard(self, tenant: str, generation: str) -> None:
        """Remove a generation. Refuses the current one."""
        ...

    def pinned(self, tenant: str, generation: str) -> AbstractContextManager[DocStore]:
        """The same store for whom `generation` is the current one of this tenant, so that it can be searched, verified and brought up to
        date before anybody is shown it. Raises `SourceError("generation_missing")`."""
        ...

    def verify(self, tenant: str) -> list[str]:
        """Faults of the store itself in words; empty when whole."""
        ...

    def doubtful(self, tenant: str) -> list[str]:
        """Ids of documents of which anything is missing or contradicts the rest."""
        ...

    def mend(self, tenant: str) -> list[str]:
        """Bring the current generation in step with itself, in words what was done. What is derived is made anew; `doubtful` documents
        are removed, for the next run to make again. Shows nothing under labels that its digest does not name."""
        ...

    def label_digest(self, source: str, labels: Labels) -> str:
        """The digest under which this store files the labels; compare it with `DocumentInfo.label_digest`."""
        ...

    def version(self, tenant: str, *, deadline_s: float | None = None, seen: bool = False) -> str:
        """Changes with every committed write (for records and caches, never for answers). Without a deadline the store's own holds.
        `seen`: the one that was read last is enough, where a new one would cost a request; `Found.version` says what was searched."""
        ...


class DocumentSource(Protocol):
    """Where documents come from. Write your own with three methods; `connectors/folder.py` is the example to read.

    One object serves one run: `entries` is called first, `labels` and `read` for entries it yielded. Where both of the former cost no
    more than a look at each file, say so with an attribute `quick = True`: how fresh the index is can then be told between runs, and a long run looks
    at it again. With an attribute `emptied`, true after a listing, it says that it may be the wrong place: what was indexed is hidden and kept.
    """

    def entries(self) -> Iterator[Entry | Rejected]:
        """Everything the source holds, in an order that depends only on the keys; each key once, and valid text.

        Raises `SourceError` when the source cannot be listed as a whole: half a list would read as deletions.
        """
        ...

    def labels(self, entry: Entry) -> RawLabels:
        """What the source says of who may see the entry. No rule at all means: not to be indexed. Does not read the entry."""
        ...

    def read(self, entry: Entry) -> Content:
        """The entry's bytes. Raises `SourceError` with code `gone`, `changed_while_read`, `too_large` or `unreadable`, and with
        `read_failed` where that says nothing of the entry, which then stays as it was."""
        ...


class Manifest(Protocol):
    """What was indexed, from what, under which labels. Keeps no text of a document. Every write is one transaction."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Held by whoever changes an index; a second holder gets `SourceError("index_busy")` at once."""
        ...

    def rows(self, tenant: str, generation: str, *, source: str | None = None) -> list[ManifestRow]:
        """Rows ordered by source and key."""
        ...

    def write(self, rows: Sequence[ManifestRow], gone: Sequence[Gone] = ()) -> None:
        """Insert or replace by tenant, generation, source and key. `gone` is kept with it."""
        ...

    def relabel(self, tenant: str, generation: str, source: str, digests: Mapping[str, str]) -> None:
        """Give rows (by key) another label digest."""
        ...

    def remove(self, rows: Sequence[ManifestRow], gone: Sequence[Gone] = ()) -> None:
        """`gone` is kept in their place."""
        ...

    def gone(self, *, limit: int | None = None, source: str | None = None, key: str | None = None) -> list[Gone]:
        """What was removed, latest first."""
        ...

    def forget_gone(self, tenant: str, source: str, keys: Iterable[str], content_hashes: Iterable[str]) -> None:
        """Of forgotten documents nothing is known but the hash that is buried."""
        ...

    def copy(self, tenant: str, *, old: str, new: str, sources: Iterable[str]) -> None:
        """Give `new` the rows of `sources` in `old`."""
        ...

    def generations(self, tenant: str) -> list[str]:
        """Every generation with rows, the one being built and the previous one among them."""
        ...

    def keep(self, tenant: str, generations: Iterable[str]) -> None:
        """Remove the rows of every other generation of the tenant."""
        ...

    def bury(self, tenant: str, source: str, content_hash: str, *, at_us: int) -> None:
        """Remember that this content was forgotten and must not be indexed again."""
        ...

    def buried(self, tenant: str, source: str) -> frozenset[str]: ...

    def burials(self, tenant: str) -> set[tuple[str, str]]:
        """(source, hash of the content) of all that was forgotten."""
        ...

    def buried_tenants(self) -> list[str]:
        """Tenants of whom something was forgotten."""
        ...

    def ledger_mark(self, tenant: str) -> tuple[int, str] | None:
        """Place and digest of the record up to which the ledger was read for what was forgotten."""
        ...

    def note_ledger(self, tenant: str, burials: Iterable[tuple[str, str]], *, mark: tuple[int, str], at_us: int) -> None:
        """Bury these, and move the mark: both or none."""
        ...

    def states(self) -> list[SourceState]:
        """Of every source that a run went over."""
        ...

    def note_states(self, states: Sequence[SourceState]) -> None: ...

    def note_run(self, run: IndexRun) -> None:
        """Of runs long past the oldest are let go."""
        ...

    def runs(self, *, limit: int) -> list[IndexRun]:
        """The latest runs, newest first."""
        ...


class QuestionVector(Protocol):
    """A question under the embedder: bytes as in `Embedded`, special tokens and punctuation left out."""

    @property
    def vector(self) -> bytes: ...
    @property
    def token_ids(self) -> bytes: ...
    @property
    def token_vectors(self) -> bytes: ...
    @property
    def token_scale(self) -> float: ...


class Embedder(Protocol):
    """Texts to vectors. A text's vector never depends on the texts beside it."""

    @property
    def card(self) -> ModelCard: ...

    def embed_question(self, text: str, purpose: Purpose) -> Embedded: ...

    def embed_chunks(self, texts: Sequence[str], purpose: Purpose) -> list[Embedded]: ...

    def count_tokens(self, text: str) -> int:
        """Word pieces of `text` without special tokens, not cut at the model's limit."""
        ...


class Reranker(Protocol):
    """Scores texts against a question; the result has one finite score a text, in the order given."""

    def rerank(self, question: str, texts: Sequence[str], purpose: Purpose, *, deadline_s: float) -> list[float]: ...


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a hosted model counted of one call or of many: read anew, written to and read from its cache, and answered."""

    fresh: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.fresh + other.fresh,
            self.cache_write + other.cache_write,
            self.cache_read + other.cache_read,
            self.output + other.output,
        )

    @property
    def total(self) -> int:
        return self.fresh + self.cache_write + self.cache_read + self.output


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model said, read from JSON and otherwise unchecked: untrusted. `model` is the one that answered, `tokens` what it counted."""

    value: Any
    model: str
    tokens: Tokens = Tokens()


class Model(Protocol):
    """A model that fills in a JSON schema."""

    def draft(
        self, system: str, prompt: str, schema: Mapping[str, Any], *, purpose: Purpose, deadline_s: float
    ) -> ModelReply: ...


class HostedModel(Protocol):
    """A model at somebody else's. It is no `Model`: only `router/egress.py` makes one of it, by judging what may leave.

    One call is one attempt, as with every hosted port. `sending` is called with the payload before it leaves; what it raises
    stops the attempt and is raised from here.
    """

    @property
    def provider(self) -> str:
        """Its name in the policies."""
        ...

    @property
    def model(self) -> str:
        """Its name at the provider."""
        ...

    def draft_hosted(
        self,
        system: str,
        prompt: str,
        schema: Mapping[str, Any],
        *,
        deadline_s: float,
        sending: Callable[[bytes], None],
    ) -> ModelReply: ...


@dataclass(frozen=True, slots=True)
class HostedRows:
    """One row of numbers a text, as a hosted embedder gave them: unchecked, untrusted. `tokens` is what it counted."""

    rows: Sequence[Any]
    tokens: int = 0


class HostedEmbedder(Protocol):
    """An embedder at somebody else's. It is no `Embedder`: only `router/egress.py` calls it, by judging what may leave.

    One call is one attempt: trying again, pausing and counting is done in one place for all providers (`router/attempts.py`).
    """

    @property
    def provider(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def dimensions(self) -> int: ...
    @property
    def most_texts(self) -> int:
        """How many texts one call may hold."""
        ...

    @property
    def variant(self) -> str:
        """Whatever else of its settings changes its vectors."""
        ...

    def embed_hosted(
        self, texts: Sequence[str], *, question: bool, deadline_s: float, sending: Callable[[bytes], None]
    ) -> HostedRows: ...


@dataclass(frozen=True, slots=True)
class HostedScores:
    """(place of the text, score) as a hosted reranker gave them: unchecked, untrusted. `searches` is what it counted."""

    pairs: Sequence[tuple[Any, Any]]
    searches: int = 0


class HostedReranker(Protocol):
    """A reranker at somebody else's; one call is one attempt, and only `router/egress.py` makes it."""

    @property
    def provider(self) -> str: ...
    @property
    def model(self) -> str: ...

    def rerank_hosted(
        self, question: str, texts: Sequence[str], *, deadline_s: float, sending: Callable[[bytes], None]
    ) -> HostedScores: ...


@dataclass(frozen=True, slots=True)
class ContextAsk:
    """One context to be written. `document` comes first and is the same for all chunks of a window, so that a provider can keep
    it (`shared`: others ask of it, too); `chunk` says what of it is meant. `key` names the answer."""

    key: str
    system: str
    document: str
    chunk: str
    shared: bool


@dataclass(frozen=True, slots=True)
class ContextReply:
    """What a model wrote, untrusted, or the code of why there is nothing; `tokens` were paid either way."""

    text: str
    model: str = ""
    tokens: Tokens = Tokens()
    code: str = ""


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """A batch as its provider lists it."""

    batch_id: str
    at_us: int
    items: int


class HostedContexts(Protocol):
    """A writer of contexts at somebody else's, called by `router/egress.py` alone. What has no `sending` sends no text."""

    @property
    def provider(self) -> str: ...
    @property
    def model(self) -> str: ...

    def context_hosted(self, ask: ContextAsk, *, deadline_s: float, sending: Callable[[bytes], None]) -> ContextReply: ...

    def submit_hosted(self, asks: Sequence[ContextAsk], *, deadline_s: float, sending: Callable[[bytes], None]) -> str:
        """The id of a batch that now runs. Never tried twice where the first may have arrived."""
        ...

    def ended_hosted(self, batch_id: str, *, deadline_s: float) -> bool: ...

    def results_hosted(self, batch_id: str, *, deadline_s: float) -> Iterator[tuple[str, ContextReply]]:
        """(key, reply) of an ended batch, in any order."""
        ...

    def batches_hosted(self, since_us: int, *, deadline_s: float) -> list[BatchSeen]:
        """The batches of this key since then, so that one whose id was lost is found again."""
        ...


class ContextWriter(Protocol):
    """A `HostedContexts` that is judged and counted. What is not permitted raises `Refused` before anything is opened."""

    @property
    def model(self) -> str: ...

    def permits(self, sensitivity: int) -> bool:
        """Whether text of this class may go there to have contexts written."""
        ...

    def write(self, ask: ContextAsk, *, purpose: Purpose, deadline_s: float) -> ContextReply: ...

    def submit(self, asks: Sequence[ContextAsk], *, purpose: Purpose, deadline_s: float) -> str: ...

    def ended(self, batch_id: str, *, deadline_s: float) -> bool: ...

    def results(self, batch_id: str, *, deadline_s: float) -> Iterator[tuple[str, ContextReply]]: ...

    def batches(self, since_us: int, *, deadline_s: float) -> list[BatchSeen]: ...


@dataclass(frozen=True, slots=True)
class WrittenContext:
    """A context as it is kept: for search only, never evidence. `key` is of tenant, model, prompt, document and chunk; `code`
    says why there is none and will be none; `answered_by` is the model that the provider names."""

    key: str
    text: str
    code: str
    model: str
    prompt: str
    document_hash: str
    answered_by: str
    at_us: int


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch that was begun and whose answers are not kept yet. `batch_id` is empty until the provider's answer is on disk."""

    intent: str
    tenant: str
    batch_id: str
    sensitivity: int
    items: int
    at_us: int
    worst: Tokens


class ContextCache(Protocol):
    """What was written and paid for, so that it is paid for once. Every write is one transaction."""

    def find(self, tenant: str, keys: Sequence[str]) -> dict[str, WrittenContext]: ...

    def write(self, tenant: str, contexts: Sequence[WrittenContext]) -> None:
        """Keep those that some document uses."""
        ...

    def use(self, tenant: str, source: str, document_id: str, keys: Sequence[str]) -> None:
        """These are the contexts of a document now, written already or not, and no others."""
        ...

    def prune(self, tenant: str, source: str, document_ids: Iterable[str]) -> int:
        """Remove what no document of the source uses any more, of which these are left; returns how many contexts that were."""
        ...

    def forget(self, tenant: str, document_ids: Sequence[str]) -> int:
        """The same for named documents, at once, without a byte left on disk."""
        ...

    def keep_sources(self, sources: Iterable[tuple[str, str]]) -> None:
        """Remove what belongs to any other (tenant, source)."""
        ...

    def begin(self, batch: OpenBatch, keys: Mapping[str, str]) -> None:
        """Remember, before it is sent, that these keys (with the hash of their document) are on their way."""
        ...

    def named(self, intent: str, batch_id: str) -> None: ...

    def dated(self, intent: str, at_us: int) -> None:
        """Begun then, as far as anybody knows: the clock was ahead when it was."""
        ...

    def end(self, intent: str) -> None: ...

    def open_batches(self, tenant: str) -> list[OpenBatch]: ...

    def keys_of(self, intent: str) -> dict[str, str]:
        """Key to hash of the document."""
        ...

    def on_their_way(self, tenant: str, keys: Sequence[str]) -> frozenset[str]:
        """Which of these an open batch asks for."""
        ...


class Ledger(Protocol):
    """Append-only rows, one hash chain a tenant. When `append` returns, the rows are durable. No row is ever updated."""

    def append(self, records: Sequence[Record]) -> list[Link]:
        """All or none, in one commit (shared with concurrent callers). Raises `LedgerError`."""
        ...

    def read(
        self, tenant: str, *, decision_id: str | None = None, since_us: int = 0, after_seq: int = 0, limit: int | None = None
    ) -> Iterator[tuple[Link, Record]]:
        """Rows in chain order; `inputs` and `salt` are None where they were erased."""
        ...

    def read_kind(self, tenant: str, kind: str, *, after_seq: int, to_seq: int) -> Iterator[tuple[Link, Record]]:
        """Rows of one kind in chain order, without personal inputs: looks at no other row's body."""
        ...

    def head(self, tenant: str) -> Link | None:
        """The last link of the chain."""
        ...

    def tenants(self) -> list[str]: ...

    def erase_inputs(self, tenant: str, decision_ids: Sequence[str]) -> int:
        """Remove the personal inputs; the chain stays verifiable. Returns how many rows held some."""
        ...


class Verifier(Protocol):
    """Checks a bearer token's signature, issuer, audience and times; returns (issuer alias, claims) or raises `Refused`."""

    def verify(self, token: str, *, now_s: int) -> tuple[str, Mapping[str, Any]]: ...


class SqlEngine(Protocol):
    """Untrusted text in, one governed SELECT out. Everything that is refused is `Refused` with a stable code; the engine's own
    words never leave. `tenant` only shares workers out fairly; `compiled` says that the text comes of a compiled form."""

    def run_governed(
        self,
        text: str,
        grants: tuple[TableGrant, ...],
        *,
        tenant: str,
        today: date,
        limits: SqlLimits,
        deadline_s: float,
        compiled: bool = False,
        judged: Callable[[Verdict], None] = ...,
    ) -> Table:
        """`judged` is told what the gate lets through before any of it is run, so that a record of it does not depend on its end."""
        ...

    def check(
        self,
        text: str,
        grants: tuple[TableGrant, ...],
        *,
        tenant: str,
        today: date,
        limits: SqlLimits,
        deadline_s: float,
        compiled: bool = False,
        bound: bool = False,
    ) -> Verdict:
        """The gate alone: nothing is run. With `bound`, columns and types are looked up too, over the caller's own views, and no row
        is read. What is refused is a verdict, not an error."""
        ...


class RowSource(Protocol):
    """One table or query of a database, read once from its first row to its last in one consistent view."""

    @property
    def origin(self) -> str:
        """What kind of database it is, for people."""
        ...

    def open(self) -> AbstractContextManager[tuple[tuple[RowColumn, ...], Iterator[Sequence[Sequence[Any]]]]]:
        """Its columns, and its rows in batches. Raises `SourceError` also between two batches."""
        ...


class TableDraft(Protocol):
    """A snapshot that nobody sees yet."""

    @property
    def version(self) -> str: ...

    def copy(self, name: str, origin: TableFile | RowSource, *, fingerprint: str, at_us: int) -> CopiedTable:
        """All rows, in bounded memory. Raises `SourceError`; the draft then holds nothing of that name."""
        ...

    def carry(self, table: CopiedTable) -> None:
        """The table as the current snapshot has it."""
        ...

    def switch(self, snapshot: TableSnapshot) -> None:
        """Check every table against what `snapshot` says of it, then make the draft current, atomically."""
        ...


class TableSnapshots(Protocol):
    """Versions of all tables. The current one and the one before it are kept, so that what still reads ends undisturbed."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Held by whoever copies; a second holder gets `SourceError("tables_busy")` at once."""
        ...

    def current(self) -> TableSnapshot | None: ...

    def fingerprint(self, origin: TableFile) -> str:
        """Changes whenever the files may have changed. Raises `SourceError("table_missing")`."""
        ...

    def draft(self) -> AbstractContextManager[TableDraft]:
        """Thrown away unless it was switched."""
        ...

    def note(self, snapshot: TableSnapshot) -> None:
        """Record what is known of the current version anew: that a copy failed."""
        ...

    def verify(self) -> list[tuple[str, str]]:
        """(table, what is wrong) with the current version itself; empty when whole. Reads every row."""
        ...
