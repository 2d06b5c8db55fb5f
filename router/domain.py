"""The frozen values that travel along the line. No behaviour beyond what a value knows of itself.

Vectors are bytes here (little-endian), so that the nouns need no numpy: float32 for a chunk, int8 rows for its tokens.
The module is above 600 lines because the nouns of the whole line stand in one place and refer to each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from json.encoder import encode_basestring_ascii
from typing import Any, Literal, Self

from router.filters import ALWAYS, EntityType, Field, Filter, Kind, Part, Scalar

Labels = Mapping[str, Scalar | frozenset[str]]
Leg = Literal["dense", "lexical"]
Outcome = Literal["answered", "empty", "clarify", "none", "refused"]
Wanted = Literal["documents", "contextual", "sql", "both"]
ContentKind = Literal["prose", "code", "table"]
Index = Literal["plain", "contextual"]

CLASSES = ("public", "internal", "confidential", "restricted")
"""Names of sensitivity and clearance 0 to 3."""

SOURCE_FIELD = "@source"
"""The store's own label field that holds the source's name; no Cedar attribute can be called so."""
SINCE_FIELD, UNTIL_FIELD = "@since", "@until"
"""The store's own label fields of an earlier version that is kept: from when until when it held, in epoch milliseconds. No policy can
speak of them, so that what is not written about a document never decides who may see it."""


def with_spans(document_type: EntityType) -> EntityType:
    """The document type as stores have it: where documents may have an end, so may versions, whatever their authors wrote."""
    if document_type.fields.get("effective_to") != Field("long", required=False):
        return document_type
    spans = {name: Field("long", required=False) for name in (SINCE_FIELD, UNTIL_FIELD)}
    return EntityType(document_type.name, {**document_type.fields, **spans})


# --- who asks what ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, as mapped by identity.yaml from a verified token. Born in `identity.py` and nowhere else.

    `groups` carry the issuer's alias (`corp:hr`). `attributes` are the schema's other attributes of User, sorted by name.
    """

    issuer: str
    subject: str
    kind: Literal["User", "Service"]
    tenant: str
    groups: frozenset[str]
    attributes: tuple[tuple[str, Scalar | frozenset[str]], ...]
    expires_at_s: int = field(compare=False)
    development: bool = field(default=False, compare=False)

    @property
    def name(self) -> str:
        return f"{self.issuer}#{self.subject}"


@dataclass(frozen=True, slots=True)
class Claim:
    """Where in a token's claims a value stands: the keys to follow from the top."""

    path: tuple[str, ...]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Issuer:
    """One issuer of identity.yaml. `alias` is the prefix of its groups and principals; `tenants` all it may assert.

    A development issuer signs with the key in the state folder; every other has `jwks`, a file or an https URL.
    A token is a `Service`'s where the claim at `service` is there and the one at `service_absent` is not.
    """

    alias: str
    iss: str
    development: bool
    jwks: str | None
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...]
    tenants: frozenset[str]
    tenant: Claim
    groups: Claim | None
    attributes: tuple[tuple[str, Claim], ...]
    service: Claim | None = None
    service_absent: Claim | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """`now` is the router's clock or `--now` (then `as_of` is set), aware and in UTC; `k` the number of passages wanted;
    `route` and `strategy` are what the caller wants, None where the router is to choose; `sources` and `filters` (FIELD=VALUE) are what
    the caller narrows by; `context` are earlier questions, oldest first."""

    text: str
    now: datetime
    k: int
    deadline_s: float
    as_of: bool = False
    route: Wanted | None = None
    strategy: str | None = None
    sources: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    context: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """One source as sources.yaml declares it. `groups` and `least` are the envelope that no label may leave."""

    name: str
    tenant: str
    connector: str
    groups: frozenset[str]
    least: int
    description: str
    question: str
    labels: str | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """What one action on one source may touch. `policies` are the ids of the policies that speak in the filter."""

    source: str
    filter: Filter
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnGrant:
    """One column that the caller may use. `mask` is the DuckDB expression that stands for it everywhere; None = raw.

    `filter_raw` says that the raw value may stand in a predicate; it means something only with a mask."""

    name: str
    mask: str | None = None
    filter_raw: bool = False


@dataclass(frozen=True, slots=True)
class TableGrant:
    """One dataset that exists for the caller. `relation` is schema-qualified inside the served DuckDB catalogue.

    `attributes` maps row attributes to (DuckDB expression, kind), as governance.yaml declares them; `filter` speaks of them.
    Over a dataset with `min_group` only compiled forms may be run."""

    name: str
    relation: str
    columns: tuple[ColumnGrant, ...]
    filter: Filter
    attributes: tuple[tuple[str, str, Kind], ...]
    min_group: int | None
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grants:
    """Everything a principal may search, by source; sources with `Never` are absent. `day_ms` is `context.now`.

    `joined` is one filter over all of them, remembered with them: to join them anew costs more than to decide."""

    principal: Principal
    policy_version: str
    day_ms: int
    search: tuple[Grant, ...]
    joined: Part | None = field(default=None, compare=False)
    query: tuple[TableGrant, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """Which legs the question needs. Scores and margin lie between 0 and 1."""

    name: Literal["documents", "contextual", "sql", "both", "none", "clarify"]
    scores: Mapping[str, float]
    margin: float
    abstained: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """The plan of one question: one filter over all granted sources, the legs, and how many candidates each gives.

    `text` is the filter's canonical text where it is known. `plain` names the granted sources whose plain index is searched, where
    they have a contextual one, too. `narrowed` is the filter AND what the question narrows by, where it does; `entities` are names
    that every hit must hold, as the caller asked. `span` keeps what holds on the day that is asked about, whatever else is narrowed."""

    strategy: str
    filter: Filter
    legs: tuple[Leg, ...]
    candidates: int
    rerank: int
    text: str | None = field(default=None, compare=False)
    plain: frozenset[str] = frozenset()
    narrowed: Filter | None = None
    entities: frozenset[str] = frozenset()
    span: Filter = ALWAYS

    @property
    def searched(self) -> Filter:
        """What every search and every load is under: never more than `filter`."""
        return self.filter if self.narrowed is None else self.narrowed


# --- documents --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """Where in its document a passage stands: page or slide from 1, lines from 1 (both ends included), sheet by name."""

    page: int | None = None
    lines: tuple[int, int] | None = None
    sheet: str | None = None


EntityKind = Literal["code", "product", "name", "value"]
"""A code by its shape, a product by front matter, a name as people have, a stored value that is everybody's."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A thing that a chunk names. `name` is the same for every spelling (`lexicon.code_name`); of a `subject` the chunk, its heading
    or its document is about."""

    kind: EntityKind
    name: str
    subject: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """One retrievable piece. `chunk_id` is `document_id#ordinal`; `document_id` is `source/` + the key inside the source.

    `context` goes in front of both legs and is never evidence. `meta` holds front matter that is not a label,
    for code also `scope` and `imports`. `entities` are what it names, each name once.
    """

    chunk_id: str
    document_id: str
    source: str
    ordinal: int
    title: str
    heading_path: tuple[str, ...]
    text: str
    kind: ContentKind
    uri: str
    span: Span
    context: str = ""
    version: str | None = None
    language: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    entities: tuple[Entity, ...] = ()


@dataclass(frozen=True, slots=True)
class Embedded:
    """One text under one model: `vector` float32 of unit length; per kept token its word-piece id (uint16) and its
    projected, unit-length direction (int8, `token_dimensions` a row, divided by `token_scale`).

    Of a question over an index of another model, `sought` is its vector there, empty where that could not be had.
    """

    vector: bytes
    token_ids: bytes
    token_vectors: bytes
    token_scale: float
    sought: bytes | None = None

    @property
    def dense(self) -> bytes | None:
        """What the dense leg is searched with; None where it is left out."""
        return self.vector if self.sought is None else self.sought or None


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What an index records of its embedder; an index is never searched with another."""

    name: str
    sha256: str
    dimensions: int
    token_dimensions: int
    max_tokens: int

    @property
    def id(self) -> str:
        return f"{self.name}@{self.sha256[:12]}"


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """A document as a store takes it: complete labels (tenant included) and chunks with their vectors, in order.

    Where its source has a plain and a contextual index, `chunks` are the plain ones and `contextual` the same with contexts,
    under ids of their own (`twin_id`).
    """

    source: str
    document_id: str
    labels: Labels
    chunks: tuple[tuple[Chunk, Embedded], ...]
    contextual: tuple[tuple[Chunk, Embedded], ...] = ()


def twin_id(chunk_id: str) -> str:
    """Id of a chunk's contextual twin, where both are indexed."""
    return f"{chunk_id}c"


def label_digest(source: str, labels: Labels) -> str:
    """SHA-256 of a source's name and complete labels in canonical JSON. Store, manifest and ledger compare this one."""
    plain = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in labels.items()}
    text = json.dumps(plain, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(f"{json.dumps(source)}{text}".encode()).hexdigest()


# --- where documents come from ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One document as its source lists it. `key` is its place inside the source; `fingerprint` is cheap to take and
    changes whenever the bytes may have changed (for a file: size, times and inode). `changed_us` is when they last did, 0 where the
    source cannot tell."""

    key: str
    size_bytes: int
    fingerprint: str
    uri: str
    changed_us: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Rejected:
    """Something a source holds but will not give: a link out of its folder, a name that is no text, a row without id."""

    key: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Content:
    """An entry's bytes as read. `name` hints at the format, the bytes decide. `fingerprint` is of what was read, empty when
    it cannot be trusted to change with the next write (the file was written a moment ago). `title` stands above what the
    text says of itself. `ready` marks plain text made by the source: it needs no parser process. `passage` marks such text as one
    passage already: it is only cut where the model's limit demands it. `within` is the whole that a passage was cut from, for its
    context; the source vouches that whoever may see the passage may see all of it."""

    data: bytes
    name: str
    fingerprint: str
    title: str = ""
    ready: bool = False
    passage: bool = False
    within: str = ""


@dataclass(frozen=True, slots=True)
class RawLabels:
    """What a source says of one entry, unchecked. Every rule that matches; narrowing mappings (sidecars) come after.

    `fault` is set when the labels cannot be read at all; the document is then not indexed. `changed_us` is when what says them was
    last changed, 0 where the source cannot tell.
    """

    rules: tuple[Mapping[str, object], ...]
    narrowing: tuple[Mapping[str, object], ...] = ()
    fault: str = ""
    changed_us: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class LabelChange:
    """A change of what a document may be seen by, for the ledger. `old` or `new` is None when there is none."""

    source: str
    document_id: str
    old: str | None
    new: str | None
    cause: Literal["indexed", "relabelled", "changed", "gone", "not_indexable", "forgotten", "repaired", "rolled_back", "kept"]


RowState = Literal["writing", "indexed", "failed", "forgotten", "kept"]


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """What is known of one document of one generation. `writing` says that the store may or may not hold it.

    `narrowing` is the front matter's part of the labels in canonical JSON, so that a change of rules needs no parsing; of a version
    that is `kept` what `router.ingest.versions` says of it.
    `pipeline` is the version of parser, chunker and contexts that made the chunks.
    """

    tenant: str
    generation: str
    source: str
    key: str
    state: RowState
    fingerprint: str
    content_hash: str
    version: str | None = None
    chunks: int = 0
    label_digest: str = ""
    narrowing: str = "{}"
    model_id: str = ""
    pipeline: str = ""
    reason: str = ""
    detail: str = ""
    indexed_at_us: int = 0

    @property
    def document_id(self) -> str:
        return f"{self.source}/{self.key}"


@dataclass(frozen=True, slots=True)
class Gone:
    """That a document was indexed and is not any more: when, which bytes and why; never what they said."""

    tenant: str
    source: str
    key: str
    content_hash: str
    at_us: int
    cause: Literal["gone", "not_indexable", "withdrawn"]


@dataclass(frozen=True, slots=True)
class Revocation:
    """How long after labels changed, or a document was gone, it was no longer found as before: of how many, median and longest."""

    documents: int
    p50_us: int
    max_us: int

    @classmethod
    def of(cls, measured: Iterable[tuple[int, int]]) -> Self:
        """From pairs of microseconds and documents."""
        pairs = sorted(measured)
        total, passed = sum(count for _, count in pairs), 0
        for us, count in pairs:
            passed += count
            if 2 * passed >= total:
                return cls(total, us, pairs[-1][0])
        return cls(0, 0, 0)


@dataclass(frozen=True, slots=True)
class SourceState:
    """How the latest runs over a source went. `looked_at_us` is when the last good one began to list it, `good_at_us` when it ended;
    `failures` have followed each other since then, the last with `code`."""

    tenant: str
    source: str
    looked_at_us: int = 0
    good_at_us: int = 0
    failures: int = 0
    code: str = ""
    failed_at_us: int = 0


@dataclass(frozen=True, slots=True)
class Switched:
    """That a tenant's askers see another generation from now on, or that a new one was kept from them, for the ledger. `figures` are
    whole numbers."""

    tenant: str
    old: str | None
    new: str
    cause: Literal["built", "rolled_back", "kept_aside"]
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compared:
    """Saved questions asked of the shown generation and of a new one. Figures are pairs in points of 100, the shown one first, over the
    `judged` questions, of which it is known what answers them; `worse` are the worst of those with their nDCG."""

    tenant: str
    old: str
    new: str
    questions: int
    judged: int
    recall_at_20: tuple[float, float]
    ndcg_at_10: tuple[float, float]
    overlap_at_10: float
    allowed_points: float
    worse: tuple[tuple[str, float, float], ...]
    accepted: bool


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a tenant's documents as a store holds it. `whole` says that a build of it came to its end; `model_id` is None
    where nothing was embedded yet. One that cannot be read is not whole and counts nothing."""

    name: str
    current: bool
    whole: bool
    model_id: str | None
    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class IndexRun:
    """One run of the ingestion line, as `index status` shows it."""

    run_id: str
    started_at_us: int
    ended_at_us: int
    outcome: Literal["done", "failed", "interrupted"]
    summary: Mapping[str, int]


# --- search -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Search:
    """One pre-filtered search of one tenant. `filter` is compiled and speaks also of `SOURCE_FIELD`.

    `vector` is float32 bytes or None when the dense leg is off; `text` is None when the lexical leg is off. Of a document that
    has both, the contextual chunks are searched, and the plain ones where its source is among `plain`. `entities` are names all of
    which a chunk must name, for the statistics too. `foreseen` is what `DocStore.foresee` gave for the same search without its vector.
    """

    tenant: str
    filter: Filter
    text: str | None
    vector: bytes | None
    model_id: str
    limit: int
    deadline_s: float
    plain: frozenset[str] = frozenset()
    entities: frozenset[str] = frozenset()
    foreseen: object = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hit of either leg with both exact scores (BM25 is 0 without a matching term, cosine NaN-free)."""

    chunk_id: str
    document_id: str
    source: str
    bm25: float
    cosine: float
    legs: tuple[Leg, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Hits ordered by chunk id; `admitted` is the number of chunks that the filter admits, `possible` the BM25 that a chunk could
    reach at most: every term of the question without end, weighed over the admitted chunks alone. `failed` names legs that the
    store could not search to their end, with the code why; nothing of them is among the hits. `proof` says of a store elsewhere
    which of the requests that were sent held the filter, and `version` what such a store was at then, for the record."""

    candidates: tuple[Candidate, ...]
    admitted: int
    possible: float = 0.0
    failed: tuple[tuple[Leg, str], ...] = ()
    proof: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """A chunk as loaded for ranking and answering, with the labels it carries in the store."""

    chunk: Chunk
    labels: Labels
    token_ids: bytes
    token_vectors: bytes
    token_scale: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """One passage in rank order, before it becomes part of an answer."""

    stored: Stored
    legs: tuple[Leg, ...]


# --- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """Bounds of one governed statement. What stands above them is refused with a code; rows and bytes are cut."""

    max_chars: int = 8_192
    max_rows: int = 10_000
    max_bytes: int = 8_000_000
    timeout_s: float = 2.0
    memory_mb: int = 256
    max_tokens: int = 4_000
    max_depth: int = 64
    max_subscripts: int = 256
    max_joins: int = 12
    max_set_operands: int = 32
    max_in_list: int = 1_000
    max_series_rows: int = 10_000


@dataclass(frozen=True, slots=True)
class TableColumn:
    """`type` as DuckDB names it; `masked` where the values come of a mask."""

    name: str
    type: str
    masked: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Governed rows. Values survive JSON: decimals, dates, times and intervals are texts, lists and structs stay what they are.

    `sql` is the draft over governed names; `generated` holds row filters and masks and is shown only with `audit`. `why` is who wrote
    the draft, then the words of the question that stand for names and values of the caller's tables, and the passage that a number in it
    is from, where a step before read one; `rank` its place in the answer."""

    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool
    sql: str
    generated: str
    origin: str = ""
    reading: str = ""
    why: tuple[str, ...] = ()
    rank: int = 1


@dataclass(frozen=True, slots=True)
class RowColumn:
    """One column of a table that is copied: `type` in DuckDB's words, `form` how a cell's text is to be read: as it is, as
    hexadecimal digits of bytes, or as JSON (lists)."""

    name: str
    type: str
    form: Literal["text", "hex", "json"] = "text"


@dataclass(frozen=True, slots=True)
class TableFile:
    """Files of one format that make up one table. `table` is the relation inside a DuckDB file; `types` are what the operator says
    of columns, and win over what is found."""

    paths: tuple[str, ...]
    format: Literal["csv", "parquet", "duckdb"]
    table: str = ""
    types: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """One table of a snapshot and how fresh it is. `fingerprint` is of what it was copied from, empty where that cannot be told;
    `origin` says what kind of place that is. `failed` is the code of the latest copy that did not succeed, if it came after."""

    name: str
    columns: tuple[tuple[str, str], ...]
    rows: int
    origin: str
    fingerprint: str
    copied_at_us: int
    failed: str = ""
    failed_at_us: int = 0


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """Every table as of one switch. `failures` are codes and times of tables that no copy of ever succeeded."""

    version: str
    made_at_us: int
    tables: tuple[CopiedTable, ...]
    failures: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the gate says of one text. `code` is empty where it may run; `tables` are the governed names it reads."""

    code: str
    reason: str
    generated: str = ""
    tables: tuple[str, ...] = ()


# --- answer -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Passage:
    rank: int
    source: str
    document_id: str
    chunk_id: str
    title: str
    heading_path: tuple[str, ...]
    text: str
    uri: str
    span: Span
    version: str | None
    effective_from: str | None
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage as the record and the answer show it. Counts start at what the filter admitted."""

    name: str
    us: int
    count_in: int | None = None
    count_out: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Degraded:
    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof of the filter that one leg ran under; a table's leg is `sql:` and its governed name."""

    leg: str
    digest: str


@dataclass(frozen=True, slots=True)
class Refusal:
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Clarify:
    """What is asked back: why there is no answer yet, and what could be meant, all of it of granted names."""

    question: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Evidence with a receipt (interface.md, section 3). Ranks only, in one order over passages and tables (`rank.rank_together`): no
    engine score, no data version, no drop count. `notes` say what a reader of the evidence should know; `nearest` are headings of what
    stands nearest where nothing answers."""

    decision_id: str
    outcome: Outcome
    route: Route
    passages: tuple[Passage, ...]
    stages: tuple[Stage, ...]
    degraded: tuple[Degraded, ...]
    policy_version: str
    filters: tuple[Receipt, ...]
    refusal: Refusal | None = None
    tables: tuple[Table, ...] = ()
    clarify: Clarify | None = None
    notes: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "decision_id": self.decision_id,
            "outcome": self.outcome,
            "route": {
                "name": self.route.name,
                "scores": dict(self.route.scores),
                "margin": self.route.margin,
                "abstained": self.route.abstained,
                "reasons": list(self.route.reasons),
            },
            "passages": [_passage_json(passage) for passage in self.passages],
            "tables": [_table_json(table) for table in self.tables],
            "stages": [_stage_json(stage) for stage in self.stages],
            "degraded": [{"stage": entry.stage, "reason": entry.reason} for entry in self.degraded],
            "policy_version": self.policy_version,
            "filters": [{"leg": receipt.leg, "digest": receipt.digest} for receipt in self.filters],
            "notes": list(self.notes),
            "nearest": list(self.nearest),
        }
        if self.clarify is not None:
            body["clarify"] = {"question": self.clarify.question, "options": list(self.clarify.options)}
        if self.refusal is not None:
            body["refusal"] = {"code": self.refusal.code, "reason": self.refusal.reason}
        return body


@dataclass(frozen=True, slots=True)
class Named:
    """Something that exists for a caller. `question` hints at what it answers."""

    name: str
    description: str
    question: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """What one principal could ask about, by granted names only. A refusal by policy stands in it, as it stands in an answer."""

    sources: tuple[Named, ...] = ()
    datasets: tuple[Named, ...] = ()
    metrics: tuple[Named, ...] = ()
    refusal: Refusal | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "sources": [{"name": one.name, "description": one.description, "question": one.question} for one in self.sources],
            "datasets": [{"name": one.name, "description": one.description} for one in self.datasets],
            "metrics": [{"name": one.name, "description": one.description} for one in self.metrics],
        }


def _table_json(table: Table) -> dict[str, Any]:
    """Without the generated text, which holds row filters and masks."""
    return {
        "rank": table.rank,
        "origin": table.origin,
        "reading": table.reading,
        "sql": table.sql,
        "columns": [{"name": column.name, "type": column.type, "masked": column.masked} for column in table.columns],
        "rows": [list(row) for row in table.rows],
        "truncated": table.truncated,
        "why": list(table.why),
    }


def _passage_json(passage: Passage) -> dict[str, Any]:
    span = {
        key: value
        for key, value in (("page", passage.span.page), ("lines", passage.span.lines), ("sheet", passage.span.sheet))
        if value is not None
    }
    return {
        "rank": passage.rank,
        "source": passage.source,
        "document_id": passage.document_id,
        "chunk_id": passage.chunk_id,
        "title": passage.title,
        "heading_path": list(passage.heading_path),
        "text": passage.text,
        "uri": passage.uri,
        "span": span,
        "version": passage.version,
        "effective_from": passage.effective_from,
        "why": list(passage.why),
    }


def _stage_json(stage: Stage) -> dict[str, Any]:
    return {"name": stage.name, "ms": round(stage.us / 1000, 3), "in": stage.count_in, "out": stage.count_out, "note": stage.note}


# --- the record -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """One row for the ledger. `body` is canonical JSON; `inputs` are personal, kept apart and erasable, under a salt."""

    tenant: str
    decision_id: str
    kind: str
    at_us: int
    body: bytes
    inputs: bytes | None = None
    salt: bytes | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A record's place in its tenant's chain: digest = SHA-256 over seq, previous, tenant, id, kind, time and body."""

    seq: int
    previous: str
    digest: str


CHAIN_START = "0" * 64
"""`previous` of a tenant's first record."""


def link_digest(seq: int, previous: str, record: Record) -> str:
    """SHA-256 over one line of JSON, a newline and the body; ledger and verification share it and nothing else."""
    texts = ",".join([encode_basestring_ascii(text) for text in (previous, record.tenant, record.decision_id, record.kind)])
    header = f"[{seq},{texts},{record.at_us}]"
    return hashlib.sha256(b"%b\n%b" % (header.encode(), record.body)).hexdigest()


@dataclass(frozen=True, slots=True)
class Purpose:
    """Why a model is called and for whom; local models ignore it, hosted ones are judged by it. `tenant` is of the documents, where
    the principal serves several."""

    principal: str
    name: Literal["embed_question", "embed_chunks", "rerank", "context", "draft_sql", "route", "plan_search"]
    classes: frozenset[int]
    decision_id: str
    tenant: str = ""
