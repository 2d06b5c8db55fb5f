"""Earlier versions of a document, kept for questions "as of" a day (adr/0033).

A version stands in the store as a document of its own, under an id that no source can list: the document's key, `@@` and the moment
when it was replaced. Its labels are the strictest of those it had itself and of those that the living document has now, so what is
taken from the document is taken from all its versions. What cannot be combined strictly is let go.

INVARIANT: a version is never labelled wider than the living document, nor than it was itself (tests/unit/test_ingest_versions.py::
test_labels_are_the_strictest).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from router.domain import SOURCE_FIELD, Chunk, Embedded, IndexedDocument, Labels, ManifestRow, twin_id
from router.errors import UsageError
from router.filters import EntityType, Eq, Field, Scalar, compile_filter
from router.ports import DocStore

SINCE, UNTIL = "effective_from", "effective_to"
READ_S = 60.0
_KEY = re.compile(r"@@[0-9a-f]{12}\Z")
_SPAN = frozenset({SINCE, UNTIL})
_COMBINED = _SPAN | {"sensitivity"}


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
    """Raises `UsageError` where the schema cannot say from when until when a version held."""
    for name in (SINCE, UNTIL):
        if entity.fields.get(name) != Field("long", required=False):
            raise UsageError(
                "versions_without_span",
                f"a source keeps versions, and schema.cedarschema gives documents no optional `{name}`",
                f"add `{name}?: Long` to Document, or set `keep_versions = 0`",
            )


def version_json(version: Version) -> str:
    labels = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in version.labels.items()}
    return json.dumps([labels, version.since_ms, version.until_ms], sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def parse_version(text: str) -> Version:
    labels, since_ms, until_ms = json.loads(text)
    return Version(
        {name: frozenset(value) if isinstance(value, list) else value for name, value in labels.items()}, since_ms, until_ms
    )


def narrowest(*all_labels: Labels) -> dict[str, Scalar | frozenset[str]] | None:
    """Labels under which nobody sees what one of these denies: groups intersect, the highest sensitivity, the latest start and the
    earliest end. None where any other attribute differs, since which of two regions is the stricter nobody can say."""
    found = dict(all_labels[0])
    for labels in all_labels[1:]:
        if (found.keys() ^ labels.keys()) - _SPAN:
            return None
        for name, value in labels.items():
            one = found.setdefault(name, value)
            if name == "groups" and isinstance(one, frozenset) and isinstance(value, frozenset):
                found[name] = one & value
            elif name in _COMBINED and isinstance(one, int) and isinstance(value, int):
                found[name] = min(one, value) if name == UNTIL else max(one, value)
            elif one != value or type(one) is not type(value):
                return None
    return found


def version_labels(version: Version, living: Sequence[Labels], now_ms: int) -> Labels | None:
    """`living` are the labels of the living document. The day from which it holds counts where that is still to come: until then
    nobody sees it, nor what it was. None where the version must be let go."""
    without = [{name: value for name, value in one.items() if name != SINCE or _later(value, now_ms)} for one in living]
    labels = narrowest(version.labels, *without)
    if labels is None:
        return None
    since_ms, until_ms = labels.get(SINCE), labels.get(UNTIL)
    if version.since_ms is not None:
        labels[SINCE] = max(since_ms, version.since_ms) if isinstance(since_ms, int) else version.since_ms
    labels[UNTIL] = min(until_ms, version.until_ms) if isinstance(until_ms, int) else version.until_ms
    return labels


def _later(value: object, now_ms: int) -> bool:
    return not isinstance(value, int) or value > now_ms


def replaced_at_ms(own: Labels, living: Labels, now_ms: int) -> int:
    """When a version ceased to hold: on the day that the new one says of itself, where that is over, else now."""
    before, after = own.get(SINCE), living.get(SINCE)
    if isinstance(after, int) and after <= now_ms and (not isinstance(before, int) or after > before):
        return after
    return now_ms


def read_document(
    store: DocStore, tenant: str, row: ManifestRow, entity: EntityType, *, key: str, replaces: str
) -> IndexedDocument | None:
    """A document of the current generation with its vectors, as one that goes by `key`. Its chunks say that they stand for the
    document `replaces` on the days that are theirs. None where the store does not hold it whole."""
    typed = EntityType(entity.name, {**entity.fields, SOURCE_FIELD: Field("string", required=True)})
    mine = compile_filter(Eq(SOURCE_FIELD, row.source), typed)
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
