"""What every document store does alike: where a tenant's partition is, what both legs see of a chunk, what is refused unwritten.

Two stores that judged this differently would index different things from the same documents.

INVARIANT: what could not be stored, found or compared again raises before any I/O
(tests/conformance/suite.py::test_bad_documents_are_refused_whole).
"""

from __future__ import annotations

import functools
import hashlib
import math
from array import array

from router.domain import Chunk, Embedded, IndexedDocument, Labels, ModelCard
from router.errors import SourceError
from router.filters import EntityType, check_text, fits


@functools.lru_cache(maxsize=4096)
def partition_name(tenant: str) -> str:
    """`t-` and the first 20 hex digits of SHA-256(tenant): no tenant's name can collide, escape or be read off the disk."""
    return "t-" + hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def indexed_text(chunk: Chunk) -> str:
    """What both legs see of a chunk: title, headings and context stand in front of the text."""
    heading = " ".join(part for part in chunk.heading_path if part != chunk.title)
    return "\n".join(part for part in (chunk.title, heading, chunk.context, chunk.text) if part)


def check_document(document: IndexedDocument, entity: EntityType, model: ModelCard) -> None:
    """Refuse before any I/O what could not be stored, found or compared again."""
    check_labels(document.labels, entity)
    both = (*document.chunks, *document.contextual)
    for name in (document.source, document.document_id, *(chunk.chunk_id for chunk, _ in both)):
        check_text(name, "an id of a document")
    for chunk, embedded in both:
        texts = (
            chunk.title,
            *chunk.heading_path,
            chunk.text,
            chunk.uri,
            chunk.context,
            chunk.version,
            chunk.language,
            chunk.kind,
            *(entity.name for entity in chunk.entities),
        )
        check_text("".join(text for text in texts if text).replace("\0", ""), "a document")
        _check_vectors(embedded, model)


def check_labels(labels: Labels, entity: EntityType) -> None:
    """Labels that lack something or say too much admit nobody, as in Cedar; mistyped ones are a fault of their maker."""
    for name, value in labels.items():
        for text in (name, *(value if isinstance(value, frozenset) else (value,))):
            if isinstance(text, str):
                check_text(text, "a label")
        spec = entity.fields.get(name)
        if spec is not None and not fits({name: value}, EntityType(entity.name, {name: spec})):
            raise SourceError("label_type", f"the label `{name}` is not of its type ({spec.kind})", "run `pointsman index` again")


def _check_vectors(embedded: Embedded, model: ModelCard) -> None:
    vector = array("f", embedded.vector) if len(embedded.vector) == 4 * model.dimensions else array("f", (math.nan,))
    count, odd = divmod(len(embedded.token_ids), 2)
    whole = not odd and len(embedded.token_vectors) == count * model.token_dimensions
    if not whole or not all(map(math.isfinite, vector)) or not 0 < embedded.token_scale < math.inf:
        raise SourceError("vector_invalid", "a vector is not of the model's shape or not finite", "check the embedder")
