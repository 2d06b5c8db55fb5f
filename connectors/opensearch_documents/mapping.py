"""What an index of one tenant's documents holds, and how it is read back.

Three kinds of entries stand in one index: `meta`, one, says whose index it is; `document`, one a document, lists its chunks, so
that they can be replaced and removed by id, which needs no refresh; `chunk` is what is searched. Text is taken apart here and not
by the engine, with the tokenizer and the identifiers of the embedded store: both find the same words, and neither depends on an
analyzer of some version. The similarity holds no term or field statistics; the weights of terms come with the question
(`search.py`).

INVARIANT: derived source is off: a reader that scrolls would leave the engine of 3.5 unable to change labels
(tests/opensearch/test_opensearch_traps.py::test_trap_derived_source_is_refused).
INVARIANT: `vector` bytes come back as they were given (tests/conformance/suite.py::test_everything_comes_back).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import apsw

from connectors.opensearch_documents.lowering import (
    LONGEST_BYTES,
    Shape,
    field_mappings,
    fits_shape,
    label_fields,
    shape_digest,
    shape_of,
)
from connectors.opensearch_documents.replies import count_of, list_of, object_of, text_of, truth_of
from router.domain import Chunk, Embedded, Entity, IndexedDocument, Labels, Span, Stored, label_digest
from router.errors import SourceError
from router.filters import EntityType
from router.lexicon import STOP_WORDS, expand
from router.storable import indexed_text

SCHEMA = 2
"""2: what chunks name. An index of the first is brought up to it by the next write."""
META_ID = "meta"
FIXED_LENGTH = 120
"""Mean length that the engine's norm is taken against: a constant, so that no hidden chunk moves it. Only which chunks become
candidates hangs on it; their scores use the mean of the visible ones."""
ONLY, PLAIN, CONTEXTUAL = 0, 1, 2
"""Which index of its document a chunk is of: the only one, or one of two."""
MOST_TERMS = 256
MOST_RESULTS = 100_000
_LONGEST_TOKEN = 500
_NOTHING = 1e-12
"""Squared length under which a vector has no direction; the engine refuses such vectors."""
_UNSEARCHED = {"type": "keyword", "index": False, "doc_values": False}


def index_settings(shards: int, replicas: int) -> dict[str, Any]:
    """Everything of a new index but the vectors, whose size the first write says."""
    similarity = f"double f = doc.freq; return query.boost * f / (f + 1.2 * (0.25 + 0.75 * doc.length / {FIXED_LENGTH}.0));"
    return {
        "settings": {
            "index": {
                "knn": True,
                "knn.derived_source.enabled": False,
                "number_of_shards": shards,
                "number_of_replicas": replicas,
                "refresh_interval": "1s",  # said aloud, so that an index nobody asks keeps refreshing
                "max_result_window": MOST_RESULTS,
                "mapping.total_fields.limit": 5_000,
                "similarity": {"visible": {"type": "scripted", "script": {"source": similarity}}},
                "analysis": {
                    "tokenizer": {"told": {"type": "whitespace", "max_token_length": 2 * _LONGEST_TOKEN}},
                    "analyzer": {"told": {"type": "custom", "tokenizer": "told"}},
                },
            }
        },
        "mappings": {"dynamic": "strict", "properties": _PROPERTIES},
    }


ENTITIES: Mapping[str, Any] = {"entities": {"type": "keyword"}, "subjects": {"type": "keyword"}}
"""Names of what a chunk names, and of what it is about."""
_PROPERTIES: Mapping[str, Any] = {
    "kind": {"type": "keyword"},
    "id": {"type": "keyword"},
    "document": {"type": "keyword"},
    "source": {"type": "keyword"},
    "ordinal": {"type": "long", "coerce": False},
    "idx": {"type": "long", "coerce": False},
    "chunks": {"type": "long", "coerce": False},
    "length": {"type": "long", "coerce": False},
    "shape": {"type": "keyword"},
    "digest": {"type": "keyword"},
    "supersedes": {"type": "keyword"},
    **ENTITIES,
    "words": {"type": "text", "analyzer": "told", "similarity": "visible", "index_options": "freqs"},
    "counts": {"type": "binary", "doc_values": True},
    "vector": {"type": "binary", "doc_values": True},
    "directed": {"type": "boolean"},
    "l": {"properties": {}},
    "labels": _UNSEARCHED,
    "members": _UNSEARCHED,
    "body": {"type": "object", "enabled": False},
    "meta": {"type": "object", "enabled": False},
}


def vector_mapping(dimensions: int) -> dict[str, Any]:
    method = {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil", "parameters": {"m": 16, "ef_construction": 100}}
    return {"v": {"type": "knn_vector", "dimension": dimensions, "method": method}}


def label_mapping(names: Iterable[str]) -> dict[str, Any]:
    return {"l": {"properties": field_mappings(names)}}


# --- whose index it is ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Partition:
    """The `meta` entry of one index. `shapes` are all that any of its documents has or had, `fields` all label fields."""

    index: str
    tenant: str
    writes: int = 0
    model_id: str | None = None
    dimensions: int | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    fields: frozenset[str] = frozenset()
    whole: bool = False
    """A build of it came to its end."""
    at: tuple[int, int] | None = None
    """(sequence number, term) of the entry, which the next write of it must still find."""
    schema: int = SCHEMA
    identity: str = ""
    """Drawn when the index was made, since another one may stand under its name later; none in one of an older version."""
    mark: str = ""
    """Drawn with each write of the entry: its writer knows it again when the answer was lost, and no two states have one."""

    @property
    def generation(self) -> str:
        return self.index[-8:] if re.fullmatch(r".*-g-\d{6}", self.index) else self.index[self.index.rindex("-g-") + 1 :]

    def is_one_with(self, other: Partition) -> bool:
        """Whether both were read of the very same index."""
        return (self.index, self.identity) == (other.index, other.identity)

    @property
    def version(self) -> str:
        """An index that was put back or made anew comes to the same number of writes by others: hence the mark."""
        return f"{self.generation}.{self.writes}.{self.mark}"

    def fitting(self, entity: EntityType) -> list[str]:
        """Shapes that Cedar would judge under the schema of now; all others are seen by nobody."""
        return sorted(digest for digest, shape in self.shapes.items() if fits_shape(shape, entity))

    def with_labels(self, several: Iterable[Labels]) -> Partition:
        shapes = {shape_digest(shape): shape for shape in map(shape_of, several)}
        return replace(self, shapes=MappingProxyType({**self.shapes, **shapes}))

    def as_json(self) -> str:
        meta = {
            "schema": self.schema,
            "tenant": self.tenant,
            "writes": self.writes,
            "model_id": self.model_id,
            "dimensions": self.dimensions,
            "shapes": dict(self.shapes),
            "fields": sorted(self.fields),
            "whole": self.whole,
            "identity": self.identity,
            "mark": self.mark,
        }
        return json.dumps({"kind": "meta", "meta": meta})


def read_partition(index: str, meta: Mapping[str, Any], tenant: str, at: tuple[int, int] | None = None) -> Partition:
    """Raises unless the entry is of a schema that is known, and of this tenant."""
    if count_of(meta["schema"]) > SCHEMA:
        raise SourceError("store_newer", "the document store was written by a newer pointsman", "update pointsman")
    if meta.get("tenant") != tenant:
        raise SourceError(
            "tenant_mismatch", "the document store in this place belongs to another tenant", "restore the right index"
        )
    shapes = {
        digest: tuple((text_of(name), text_of(letter)) for name, letter in list_of(shape))
        for digest, shape in object_of(meta["shapes"]).items()
    }
    return Partition(
        index,
        tenant,
        count_of(meta["writes"]),
        None if meta["model_id"] is None else text_of(meta["model_id"]),
        None if meta["dimensions"] is None else count_of(meta["dimensions"]),
        MappingProxyType(shapes),
        frozenset(text_of(name) for name in list_of(meta["fields"])),
        truth_of(meta.get("whole", False)),
        at,
        int(meta["schema"]),
        text_of(meta.get("identity", "")),
        text_of(meta.get("mark", "")),
    )


# --- words ------------------------------------------------------------------------------------------------------------


class Words:
    """The tokenizer of the embedded store: letters and digits, lower case, without accents, stems by Porter."""

    def __init__(self) -> None:
        self._con = apsw.Connection(":memory:")
        self._plain = self._con.fts5_tokenizer("unicode61", ["remove_diacritics", "2"])
        self._stems = self._con.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
        self._lock = threading.Lock()

    def of_chunk(self, chunk: Chunk) -> list[str]:
        return self._cut(self._stems, expand(indexed_text(chunk)).encode())

    def of_question(self, text: str) -> list[str]:
        """Distinct stems; stop words only when there is nothing else."""
        words = self._cut(self._plain, expand(text.replace("\0", " ")).encode("utf-8", "replace"))
        spoken = [word for word in words if word not in STOP_WORDS] or words
        return list(dict.fromkeys(self._cut(self._stems, " ".join(spoken).encode())))[:MOST_TERMS]

    def _cut(self, tokenizer: Any, text: bytes) -> list[str]:
        with self._lock:
            found = tokenizer(text, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
        return [token[:_LONGEST_TOKEN] for token in found]


def write_counts(words: Sequence[str]) -> bytes:
    """How often each word stands in a chunk, in a form in which one word is found without reading the rest."""
    return "".join(f"\n{word} {count}" for word, count in sorted(Counter(words).items())).encode() + b"\n"


def read_count(counts: bytes, word: bytes) -> int:
    """`word` comes as `\\nword `."""
    at = counts.find(word)
    return 0 if at < 0 else int(counts[at + len(word) : counts.index(b"\n", at + 1)])


# --- entries ----------------------------------------------------------------------------------------------------------


def entry_id(kind: str, name: str) -> str:
    """Of a document or chunk: an id of the engine's may not be longer than 512 bytes."""
    return f"{kind[0]}{hashlib.sha256(name.encode()).hexdigest()}"


def write_entry(entry: str, routing: str, body: str) -> str:
    """One line pair of a bulk request. A document's entries go to one shard, so that they are written in order."""
    return f'{{"index":{{"_id":"{entry}","routing":"{routing}"}}}}\n{body}\n'


def remove_entry(entry: str, routing: str) -> str:
    return f'{{"delete":{{"_id":"{entry}","routing":"{routing}"}}}}\n'


_RELABEL = "ctx._source.l = params.l; ctx._source.labels = params.labels; ctx._source.shape = params.shape; ctx._source.digest = params.digest;"


def relabel_entry(entry: str, routing: str, filed: Filed) -> str:
    """Only what labels say changes; text and vectors stay as they are, without passing through here."""
    script = json.dumps({"script": {"lang": "painless", "source": _RELABEL, "params": filed.fields}})
    return f'{{"update":{{"_id":"{entry}","routing":"{routing}","retry_on_conflict":3}}}}\n{script}\n'


@dataclass(frozen=True, slots=True)
class Filed:
    """Labels as every entry of a document carries them."""

    fields: Mapping[str, Any]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.fields["l"])


def file_labels(source: str, labels: Labels) -> Filed:
    return Filed(
        {
            "l": label_fields(labels),
            "labels": _labels_json(labels),
            "shape": shape_digest(shape_of(labels)),
            "digest": label_digest(source, labels),
        }
    )


def _labels_json(labels: Labels) -> str:
    plain = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in labels.items()}
    return json.dumps(plain, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


@functools.lru_cache(maxsize=4096)
def read_labels(text: str) -> Labels:
    """Many chunks carry the same labels: they share one value, which nobody can change."""
    held = json.loads(text).items()
    return MappingProxyType({name: frozenset(value) if isinstance(value, list) else value for name, value in held})


def indexes_of(document: IndexedDocument) -> Iterator[tuple[int, Chunk, Embedded]]:
    for chunk, embedded in document.chunks:
        yield PLAIN if document.contextual else ONLY, chunk, embedded
    for chunk, embedded in document.contextual:
        yield CONTEXTUAL, chunk, embedded


def check_sizes(document: IndexedDocument) -> None:
    """Ids are searched by, so they must fit a term of the index; a chunk is in the index once."""
    names = [chunk.chunk_id for _, chunk, _ in indexes_of(document)]
    supersedes = [chunk.meta.get("supersedes", "") for _, chunk, _ in indexes_of(document)]
    if any(len(name.encode()) > LONGEST_BYTES for name in (document.source, document.document_id, *names, *supersedes)):
        raise SourceError("id_too_long", f"an id of a document is over {LONGEST_BYTES} bytes", "give the document a shorter name")
    if len(set(names)) != len(names):
        raise SourceError("chunk_twice", "two chunks of a document have one id", "run `pointsman index --full`")


def document_json(document: IndexedDocument, filed: Filed, members: Sequence[str]) -> str:
    """`members` are the entries of its chunks, those that may be left of an earlier write among them."""
    row = {
        "kind": "document",
        "id": document.document_id,
        "document": document.document_id,
        "source": document.source,
        "chunks": len(document.chunks) + len(document.contextual),
        "members": " ".join(members),
        **filed.fields,
    }
    return json.dumps(row)


def chunk_json(idx: int, chunk: Chunk, embedded: Embedded, filed: Filed, words: Sequence[str]) -> str:
    row: dict[str, Any] = {
        "kind": "chunk",
        "id": chunk.chunk_id,
        "document": chunk.document_id,
        "source": chunk.source,
        "ordinal": chunk.ordinal,
        "idx": idx,
        "length": len(words),
        "words": " ".join(words),
        "counts": _encode(write_counts(words)),
        "vector": _encode(embedded.vector),
        "body": _body(chunk, embedded),
        **filed.fields,
    }
    if "supersedes" in chunk.meta:
        row["supersedes"] = chunk.meta["supersedes"]
    if chunk.entities:
        row["entities"] = [entity.name for entity in chunk.entities]
        row["subjects"] = [entity.name for entity in chunk.entities if entity.subject]
    vector = array("f", embedded.vector)
    row["directed"] = has_direction(vector)
    text = json.dumps(row)
    if row["directed"]:
        return f'{text[:-1]},"v":[{",".join([f"{part:.9g}" for part in vector])}]}}'
    return text


def has_direction(vector: Sequence[float]) -> bool:
    """Neither zero nor anything that is no number: the engine refuses both."""
    return sum(part * part for part in vector) > _NOTHING


def _body(chunk: Chunk, embedded: Embedded) -> dict[str, Any]:
    return {
        "title": chunk.title,
        "heading": chunk.heading_path,
        "text": chunk.text,
        "kind": chunk.kind,
        "uri": chunk.uri,
        "span": [chunk.span.page, chunk.span.lines, chunk.span.sheet],
        "context": chunk.context,
        "version": chunk.version,
        "language": chunk.language,
        "meta": dict(chunk.meta),
        "entities": [[entity.kind, entity.name, entity.subject] for entity in chunk.entities],
        "token_ids": _encode(embedded.token_ids),
        "token_vectors": _encode(embedded.token_vectors),
        "token_scale": embedded.token_scale,
    }


STORED_FIELDS = ("id", "document", "source", "ordinal", "labels", "body")


def read_stored(row: Mapping[str, Any]) -> Stored:
    """A hit's `_source` as the line takes it."""
    body = row["body"]
    page, lines, sheet = body["span"]
    chunk = Chunk(
        chunk_id=row["id"],
        document_id=row["document"],
        source=row["source"],
        ordinal=row["ordinal"],
        title=body["title"],
        heading_path=tuple(body["heading"]),
        text=body["text"],
        kind=body["kind"],
        uri=body["uri"],
        span=Span(page, tuple(lines) if lines else None, sheet),
        context=body["context"],
        version=body["version"],
        language=body["language"],
        meta=body["meta"],
        entities=tuple(Entity(kind, name, subject) for kind, name, subject in body.get("entities", ())),
    )
    return Stored(
        chunk,
        read_labels(row["labels"]),
        decode(body["token_ids"]),
        decode(body["token_vectors"]),
        body["token_scale"],
    )


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def decode(text: str) -> bytes:
    """Of a hit's `_source`."""
    return base64.b64decode(text, validate=True)


def decode_value(text: str) -> bytes:
    """Of a hit's `fields`, where the engine writes another alphabet and no padding."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
