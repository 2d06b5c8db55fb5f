"""Earlier versions of a document, kept for questions "as of" a day (adr/0033).

A version stands in the store as a document of its own, under an id that no source can list: the document's key, `@@` and the moment
when it was replaced. It is shown under its own labels, and only while the document is shown under the very same ones: whoever sees it
may see both, whatever policies say of labels. Otherwise it is held back under labels that admit nobody, until the two agree again.

INVARIANT: a version is shown under labels that are its own and its document's, or to nobody (tests/unit/test_ingest_versions.py::
test_shown_under_the_labels_of_both_or_to_nobody, ::test_a_version_is_seen_by_those_who_may_see_both).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from router.domain import (
    SINCE_FIELD,
    SOURCE_FIELD,
    UNTIL_FIELD,
    Chunk,
    Embedded,
    IndexedDocument,
    Labels,
    ManifestRow,
    label_digest,
    twin_id,
    with_spans,
)
from router.errors import UsageError
from router.filters import EntityType, Eq, Field, compile_filter
from router.ports import DocStore

READ_S = 60.0
_KEY = re.compile(r"@@[0-9a-f]{12}\Z")


@dataclass(frozen=True, slots=True)
class Version:
    """What the manifest keeps of a version: its own labels, and from when (None: always) until when it held, in milliseconds."""

    labels: Labels
    since_ms: int | None
    until_ms: int


def is_version(key: str) -> bool:
    """Whether a key names a kept version. A source's own key that reads so is refused."""
    return key[-14:-12] == "@@" and _KEY.search(key) is not None


def version_key(key: str, at_ms: int) -> str:
    """Later versions sort behind earlier ones."""
    return f"{key}@@{at_ms:012x}"


def versions_of(rows: Iterable[ManifestRow]) -> dict[str, list[ManifestRow]]:
    """Rows of kept versions by the key of their document, oldest first."""
    found: dict[str, list[ManifestRow]] = {}
    for row in sorted((row for row in rows if is_version(row.key)), key=lambda row: row.key):
        found.setdefault(_KEY.sub("", row.key), []).append(row)
    return found


def check_spans(entity: EntityType) -> None:
    """Raises `UsageError` where documents have no end, so that stores keep none of versions either (`with_spans`)."""
    if with_spans(entity) is entity:
        raise UsageError(
            "versions_without_span",
            "a source keeps versions, and schema.cedarschema gives documents no optional `effective_to`",
            "add `effective_to?: Long` to Document, or set `keep_versions = 0`",
        )


def version_json(version: Version) -> str:
    labels = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in version.labels.items()}
    return json.dumps([labels, version.since_ms, version.until_ms], sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def parse_version(text: str) -> Version:
    labels, since_ms, until_ms = json.loads(text)
    return Version(
        {name: frozenset(value) if isinstance(value, list) else value for name, value in labels.items()}, since_ms, until_ms
    )


def version_labels(version: Version, living: Labels | None, entity: EntityType) -> Labels:
    """`living` are the labels of the document, None where it is not shown. Which of two different sets is the stricter nobody can say
    who does not read the policies: a group that is taken away may be the one that forbids. Where the schema gives documents no end, a
    version would be taken for a text of today."""
    if living is None or with_spans(entity) is entity or label_digest("", version.labels) != label_digest("", living):
        return {name: frozenset() for name, spec in entity.fields.items() if spec.kind == "set"}
    since = {} if version.since_ms is None else {SINCE_FIELD: version.since_ms}
    return {**version.labels, **since, UNTIL_FIELD: version.until_ms}


def is_held_back(labels: Labels) -> bool:
    """Whether they admit nobody: every filter demands a tenant, which every schema makes required."""
    return "tenant" not in labels


def read_document(store: DocStore, tenant: str, row: ManifestRow, *, key: str, replaces: str) -> IndexedDocument | None:
    """A document of the current generation with its vectors, as one that goes by `key`. Its chunks say that they stand for the
    document `replaces` on the days that are theirs. None where the store does not hold it whole."""
    anybody = EntityType("Document", {SOURCE_FIELD: Field("string", required=True)})  # also one that is held back
    mine = compile_filter(Eq(SOURCE_FIELD, row.source), anybody)
    plain = [f"{row.document_id}#{at}" for at in range(row.chunks)]
    ids = [*plain, *map(twin_id, plain)]
    stored = store.load(tenant, ids, mine, deadline_s=READ_S)
    vectors = store.vectors(tenant, [item.chunk.chunk_id for item in stored], mine, deadline_s=READ_S)
    if len(stored) != row.chunks or len(vectors) != len(stored):
        return None
    name, twins = f"{row.source}/{key}", {twin_id(one) for one in plain}
    parts: tuple[list[tuple[Chunk, Embedded]], list[tuple[Chunk, Embedded]]] = ([], [])
    for item, vector in zip(stored, vectors, strict=True):
        old = item.chunk
        own = f"{name}#{old.ordinal}"
        twin = old.chunk_id in twins
        chunk = replace(old, chunk_id=twin_id(own) if twin else own, document_id=name, meta={**old.meta, "supersedes": replaces})
        parts[twin].append((chunk, Embedded(vector, item.token_ids, item.token_vectors, item.token_scale)))
    return IndexedDocument(row.source, name, stored[0].labels if stored else {}, tuple(parts[0]), tuple(parts[1]))
