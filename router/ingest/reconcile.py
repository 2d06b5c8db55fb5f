"""Looking at an index and erasing from it: `index status`, `index verify`, `index forget`.

`verify` asks the survey that a run acts on, so what it calls wrong is exactly what the next run would mend.

INVARIANT: a forgotten document is in no generation of any tenant, and neither the content that was indexed nor the one that
stands in the source is indexed again under any name of it (tests/unit/test_ingest_build.py::test_forget,
::test_forget_what_was_edited_since, ::test_forget_every_version, ::test_forget_where_no_source_speaks).
INVARIANT: nothing damaged beside the shown text keeps it standing (tests/unit/test_ingest_build.py::test_forget_beside_damage).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from router.domain import Entry, Generation, IndexRun, LabelChange, ManifestRow, Source
from router.errors import PointsmanError, SourceError, UsageError
from router.ingest.blocks import REASONS, TRANSIENT
from router.ingest.build import DAMAGED, idle_generations
from router.ingest.label import Unlabelled
from router.ingest.survey import Labeller, Survey, has_changed, survey_source
from router.ingest.versions import is_version, versions_of
from router.ingest.workshop import SourceJob, Workshop
from router.ports import DocStore, DocumentInfo, DocumentSource, Manifest


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What the manifest says of one source. Times are of the oldest and newest document, in microseconds; 0 for none. `versions` are
    earlier ones that are kept beside the documents."""

    source: str
    tenant: str
    generation: str | None
    documents: int
    chunks: int
    failures: Mapping[str, int]
    models: tuple[str, ...]
    oldest_us: int
    newest_us: int
    versions: int = 0


@dataclass(frozen=True, slots=True)
class IndexStatus:
    sources: tuple[SourceStatus, ...]
    runs: tuple[IndexRun, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that source, manifest and store do not agree about. `document_id` is empty for a fault of the store itself."""

    tenant: str
    source: str
    document_id: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """`documents` shared the content, of which each generation may hold another version; `generations` held at least one. `let_go` are
    generations that were removed whole, since they are damaged."""

    documents: tuple[str, ...]
    generations: int
    content_hashes: tuple[str, ...]
    let_go: tuple[str, ...] = ()


def index_status(sources: Sequence[Source], store: DocStore, manifest: Manifest, *, runs: int = 5) -> IndexStatus:
    """Counts and ages by source, and the latest runs."""
    return IndexStatus(tuple(_status(source, store, manifest) for source in sources), tuple(manifest.runs(limit=runs)))


def _status(source: Source, store: DocStore, manifest: Manifest) -> SourceStatus:
    generation = store.generation(source.tenant)
    rows = manifest.rows(source.tenant, generation, source=source.name) if generation else []
    indexed = [row for row in rows if row.state == "indexed"]
    times = [row.indexed_at_us for row in indexed]
    return SourceStatus(
        source.name,
        source.tenant,
        generation,
        len(indexed),
        sum(row.chunks for row in indexed),
        dict(sorted(Counter(row.reason for row in rows if row.state in {"failed", "forgotten"}).items())),
        tuple(sorted({row.model_id for row in indexed})),
        min(times, default=0),
        max(times, default=0),
        sum(row.state == "kept" for row in rows),
    )


# --- verify -----------------------------------------------------------------------------------------------------------


def verify_index(jobs: Sequence[SourceJob], workshop: Workshop) -> list[Finding]:
    """Everything that the next run over all sources, which `jobs` are, would change, and the stores' own faults. Changes
    nothing. A source or a store that cannot be looked at is a finding; raises `SourceError` where nothing can be."""
    findings: list[Finding] = []
    for tenant in dict.fromkeys([*workshop.store.tenants(), *(job.source.tenant for job in jobs)]):
        try:
            findings += _tenant_findings(tenant, [job for job in jobs if job.source.tenant == tenant], workshop)
        except SourceError as error:
            if error.code not in DAMAGED:
                raise
            findings.append(Finding(tenant, "", "", error.code, f"{error.message}: {error.hint}"))
    return findings


def _tenant_findings(tenant: str, jobs: Sequence[SourceJob], workshop: Workshop) -> Iterator[Finding]:
    generation = workshop.store.generation(tenant) or ""
    yield from _undeclared(tenant, jobs, workshop)
    yield from _of_generations(tenant, workshop)
    for fault in workshop.store.verify(tenant) if jobs else ():
        yield Finding(tenant, "", "", "store_fault", fault)
    held: dict[str, dict[str, DocumentInfo]] = {}
    for info in workshop.store.documents(tenant) if generation else ():
        held.setdefault(info.source, {})[info.document_id] = info
    for job in jobs:
        rows = workshop.manifest.rows(tenant, generation, source=job.source.name) if generation else []
        try:
            yield from _source_findings(job, workshop, generation, rows, held.get(job.source.name, {}))
        except (SourceError, UsageError) as error:
            yield Finding(tenant, job.source.name, "", "source_failed", f"{error.code}: {error.message}")


def _of_generations(tenant: str, workshop: Workshop) -> Iterator[Finding]:
    """What is wrong with whole generations: left by killed runs, unknown to one of store and manifest, of another model."""
    generations, card = workshop.store.generations(tenant), workshop.embedder.card
    for name, why in idle_generations(generations):
        yield Finding(tenant, "", "", "idle_generation", f"`{name}` {why}")
    names = {one.name for one in generations}
    for name in workshop.manifest.generations(tenant):
        if name not in names:
            yield Finding(
                tenant, "", "", "manifest_lags", f"the manifest knows a generation `{name}` that the store does not hold"
            )
    for one in generations:
        if one.current and one.model_id not in (None, card.id):
            yield Finding(
                tenant, "", "", "other_model",
                f"the store holds vectors of `{one.model_id}`, the configuration names `{card.id}`: run `pointsman index --full`",
            )  # fmt: skip
    for document_id, name in forgotten_left(tenant, generations, workshop):
        yield Finding(
            tenant, document_id.partition("/")[0], document_id, "forgotten_content", f"generation `{name}` still holds it"
        )


def forgotten_left(tenant: str, generations: Sequence[Generation], workshop: Workshop) -> list[tuple[str, str]]:
    """(document id, generation) of forgotten contents that a generation beside the current one still holds, since erasing them was
    cut off; those in the current one are a run's own work."""
    found: list[tuple[str, str]] = []
    buried: dict[str, frozenset[str]] = {}
    for one in generations:
        if one.current or not one.whole:
            continue
        held = {info.document_id for info in workshop.store.documents(tenant, generation=one.name)}
        for row in workshop.manifest.rows(tenant, one.name):
            if row.source not in buried:
                buried[row.source] = workshop.manifest.buried(tenant, row.source)
            if row.content_hash in buried[row.source] and row.document_id in held:
                found.append((row.document_id, one.name))
    return found


def _undeclared(tenant: str, jobs: Sequence[SourceJob], workshop: Workshop) -> Iterator[Finding]:
    """What no declared source speaks for."""
    names = {job.source.name for job in jobs}
    for info in workshop.store.documents(tenant) if workshop.store.generation(tenant) else ():
        if info.source not in names:
            yield Finding(
                tenant, info.source, info.document_id, "should_not_be_indexed", "its source is not declared for this tenant"
            )


def _source_findings(
    job: SourceJob, workshop: Workshop, generation: str, rows: Iterable[ManifestRow], held: Mapping[str, DocumentInfo]
) -> Iterator[Finding]:
    source, known = job.source, {row.key: row for row in rows}
    survey = survey_source(
        job,
        Labeller(workshop.entity, source, job.documents),
        generation=generation,
        rows=known,
        held=held,
        buried=workshop.manifest.buried(source.tenant, source.name),
    )
    for document_id, kind, detail in (*_present_but_wrong(survey, held), *_absent(survey, known, held, job, workshop)):
        yield Finding(source.tenant, source.name, document_id, kind, detail)


def _present_but_wrong(survey: Survey, held: Mapping[str, DocumentInfo]) -> Iterator[tuple[str, str, str]]:
    for drop in survey.drops:
        if drop.document_id in held:
            detail = {"gone": "the source does not hold it", "forgotten": "it was forgotten"}.get(drop.cause, "")
            yield drop.document_id, "should_not_be_indexed", detail or (drop.after.detail if drop.after else "")
        elif drop.after is None:
            yield drop.document_id, "manifest_lags", "the manifest knows a document that source and store do not hold"
    for item in (*survey.held_back, *survey.relabels):
        yield item.row.document_id, "labels_differ", "the store holds it under other labels than the source gives now"
    for row in survey.corrected:
        yield row.document_id, "manifest_lags", "the manifest holds other labels than the store"


def _absent(
    survey: Survey,
    known: Mapping[str, ManifestRow],
    held: Mapping[str, DocumentInfo],
    job: SourceJob,
    workshop: Workshop,
) -> Iterator[tuple[str, str, str]]:
    for entry in survey.pending:
        row = known.get(entry.key)
        if row is None:
            yield entry.key, "not_indexed", "the source holds it, the index does not know it"
        elif row.state == "writing":
            yield row.document_id, "interrupted", "a run ended while it was written"
        elif row.state in {"failed", "forgotten"}:
            if _may_be_read_now(job, workshop, entry, row):
                yield row.document_id, "not_indexed", "it was kept out before and may be read now"
        elif row.document_id not in held:
            yield row.document_id, "missing_in_store", "the manifest holds it, the store does not"
        elif held[row.document_id].chunks != row.chunks:
            yield (
                row.document_id,
                "chunks_differ",
                f"{held[row.document_id].chunks} chunks in the store, {row.chunks} in the manifest",
            )
        elif row.pipeline.startswith(f"{job.pipeline}+partly."):
            yield row.document_id, "contexts_missing", "some of its contexts are not written yet"
        elif row.pipeline not in (job.pipeline, f"{job.pipeline}+local"):
            yield row.document_id, "changed", "it was made by another version of parser, chunker or contexts"
        elif has_changed(job, entry, row):
            yield row.document_id, "changed", "it reads otherwise than when it was indexed"
        elif row.fingerprint == entry.fingerprint:
            yield row.document_id, "changed", "labels or permits say otherwise now whether its contexts may be written outside"
    for row in known.values():
        if row.state in {"indexed", "kept"} and row.model_id != workshop.embedder.card.id:
            yield row.document_id, "other_model", f"embedded by `{row.model_id}`"


def _may_be_read_now(job: SourceJob, workshop: Workshop, entry: Entry, row: ManifestRow) -> bool:
    """Other bytes, a fault that may have passed, or labels that are valid now."""
    if row.reason in TRANSIENT or has_changed(job, entry, row):
        return True
    if row.reason in REASONS or row.state == "forgotten":
        return False
    try:
        Labeller(workshop.entity, job.source, job.documents).label(entry, row.narrowing)
    except Unlabelled:
        return False
    return True


# --- forget -----------------------------------------------------------------------------------------------------------


def forget_document(source: Source, document_id: str, workshop: Workshop, documents: DocumentSource | None = None) -> Forgotten:
    """Erase a document, and others of its source with the same bytes, from all generations, and keep the content out: the
    bytes that were indexed, those of its kept versions, and those that `documents` holds under its key now.

    The hash is put on record and buried first: a crash later leaves a document that the next run removes. Raises `UsageError` when
    neither manifest nor store knows the document.
    """
    store, manifest = workshop.store, workshop.manifest
    with manifest.exclusive():
        rows = [
            row for name in manifest.generations(source.tenant) for row in manifest.rows(source.tenant, name, source=source.name)
        ]
        held = _shown(source.tenant, rows, store)
        key = document_id.removeprefix(f"{source.name}/")
        removed = [item for item in manifest.gone(source=source.name, key=key) if item.tenant == source.tenant]
        if document_id not in held and not removed and all(row.document_id != document_id for row in rows):
            raise _unknown(document_id)
        versions = versions_of(rows)
        known = {row.content_hash for row in rows if row.document_id == document_id and row.content_hash}
        known |= {row.content_hash for row in versions.get(key, [])}
        known |= {item.content_hash for item in removed if item.content_hash}
        hashes = sorted(known | _hash_now(documents, key))
        same = [row for row in rows if row.document_id == document_id or row.content_hash in hashes]
        kept = [row for row in same if is_version(row.key)]
        kept += [row for one in {row.key for row in same} for row in versions.get(one, []) if row not in kept]
        ids = sorted({document_id, *(row.document_id for row in (*same, *kept))})
        _bury(source.tenant, source.name, hashes, workshop)
        changes = [LabelChange(source.name, name, held[name].label_digest, None, "forgotten") for name in ids if name in held]
        if changes:
            workshop.record(source.tenant, changes)
        generations, let_go = erase(source.tenant, ids, workshop)
        manifest.write([_forgotten_row(row) for row in same if not is_version(row.key) and row.generation not in let_go])
        manifest.remove(kept)
        manifest.forget_gone(source.tenant, source.name, [name.removeprefix(f"{source.name}/") for name in ids], hashes)
    return Forgotten(tuple(ids), generations, tuple(hashes), let_go)


def _bury(tenant: str, source: str, hashes: Sequence[str], workshop: Workshop) -> None:
    """On record first: what the ledger says is buried by whatever looks at the manifest next, and in one that is made anew. Where
    nothing can be recorded it is buried all the same, and the failure told."""
    if not hashes:
        return
    try:
        workshop.record_forgotten(tenant, source, hashes)
    finally:
        for content_hash in hashes:
            workshop.manifest.bury(tenant, source, content_hash, at_us=workshop.now_us())


def _shown(tenant: str, rows: Sequence[ManifestRow], store: DocStore) -> dict[str, DocumentInfo]:
    """By document id; of a damaged store what the manifest says: what is forgotten is kept out of what is built in its place."""
    current = store.generation(tenant)
    try:
        return {info.document_id: info for info in store.documents(tenant)} if current else {}
    except SourceError as error:
        if error.code not in DAMAGED:
            raise
    return {
        row.document_id: DocumentInfo(row.source, row.document_id, row.chunks, row.label_digest)
        for row in rows
        if row.generation == current and row.state in {"indexed", "kept"}
    }


def erase(tenant: str, ids: Sequence[str], workshop: Workshop) -> tuple[int, tuple[str, ...]]:
    """From every generation: in how many it was, and which were removed whole, since they are damaged and shown to nobody. Whatever
    fails, what is shown is taken away first if it can be. The caller holds the lock."""
    store = workshop.store
    try:
        return store.forget(tenant, ids), ()
    except SourceError as error:
        if error.code not in DAMAGED:
            with contextlib.suppress(SourceError):
                store.delete(tenant, ids)
            raise
    let_go = [one.name for one in store.generations(tenant) if not one.current and not _is_sound(tenant, one.name, store)]
    for name in let_go:
        store.discard(tenant, name)
    workshop.manifest.keep(tenant, [one.name for one in store.generations(tenant)])
    try:
        return store.forget(tenant, ids), tuple(let_go)
    except SourceError as error:
        with contextlib.suppress(SourceError):
            store.delete(tenant, ids)
        if error.code in DAMAGED:
            error.hint = (
                "the content is kept out from now on; run `pointsman index verify --repair` and forget it again, or"
                " `pointsman index --full`, which removes the damaged generation"
            )
        raise


def _is_sound(tenant: str, name: str, store: DocStore) -> bool:
    try:
        with store.pinned(tenant, name) as view:
            return not view.verify(tenant)
    except SourceError:
        return False


def forget_everywhere(
    sources: Mapping[str, Source], document_id: str, workshop: Workshop, documents: Callable[[Source], DocumentSource | None]
) -> Forgotten:
    """The same in every tenant that holds it, also where its source was withdrawn or moved to another tenant. `documents`
    opens a declared source, or gives None where that cannot be done."""
    name = document_id.partition("/")[0]
    declared = sources.get(name)
    stores = [Source(name, tenant, "", frozenset(), 0, "", "") for tenant in workshop.store.tenants()]
    others = [source for source in stores if declared is None or source.tenant != declared.tenant]
    now = documents(declared) if declared is not None else None
    found: list[Forgotten] = []
    for source in ([declared] if declared is not None else []) + others:
        try:
            found.append(forget_document(source, document_id, workshop, now))
        except UsageError as error:
            if error.code != "document_unknown":
                raise
    if not found:
        raise _unknown(document_id)
    hashes = sorted({content_hash for item in found for content_hash in item.content_hashes})
    if declared is not None:
        _bury(declared.tenant, name, sorted(set(hashes) - workshop.manifest.buried(declared.tenant, name)), workshop)
    return Forgotten(
        tuple(sorted({name for item in found for name in item.documents})),
        sum(item.generations for item in found),
        tuple(hashes),
        tuple(name for item in found for name in item.let_go),
    )


def _unknown(document_id: str) -> UsageError:
    return UsageError("document_unknown", f"there is no document `{document_id}`", "`pointsman index status` shows the sources")


def _hash_now(documents: DocumentSource | None, key: str) -> set[str]:
    """Of the bytes that stand in the source, which may have changed since the last run; none where it cannot be read."""
    if documents is None:
        return set()
    try:
        entry = next((item for item in documents.entries() if isinstance(item, Entry) and item.key == key), None)
        return {hashlib.sha256(documents.read(entry).data).hexdigest()} if entry is not None else set()
    except PointsmanError:  # erasing must not wait for a source to be mended
        return set()


def _forgotten_row(row: ManifestRow) -> ManifestRow:
    return replace(
        row, state="forgotten", reason="forgotten", detail="it was forgotten by `index forget`", chunks=0, label_digest="",
        narrowing="{}", version=None,
    )  # fmt: skip
