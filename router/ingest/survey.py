"""What has to be done for one source: its list and labels held against manifest and store. Reads bytes only where labels and file changed together.

INVARIANT: a document whose labels cannot be built is dropped, whatever it was labelled before
(tests/unit/test_ingest_build.py::test_lost_documents_disappear).
INVARIANT: labels are those of the text that stands under them: one that may be older than a change of labels goes before they change
(tests/unit/test_ingest_revocation.py::test_an_old_text_is_never_under_labels_of_the_new_one).
INVARIANT: labels of now hold for all that a store shows before text is read, whatever the manifest knows of it
(tests/unit/test_ingest_revocation.py::test_labels_reach_what_the_manifest_does_not_vouch_for).
INVARIANT: of a source in which nothing stands any more nothing is shown, and nothing is thrown away
(tests/unit/test_ingest_build.py::test_an_emptied_folder_is_hidden_and_kept).
INVARIANT: what is taken from a document is taken from its kept versions before it
(tests/unit/test_ingest_versions.py::test_a_version_is_seen_by_those_who_may_see_both).
INVARIANT: a document counts as unchanged only when source, manifest and store agree about it
(tests/unit/test_ingest_build.py::test_crash_anywhere).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from router.domain import Entry, Labels, ManifestRow, Rejected, Source, label_digest
from router.errors import SourceError
from router.filters import EntityType
from router.ingest.blocks import REASONS, TRANSIENT
from router.ingest.label import Labelled, Unlabelled, build_labels
from router.ingest.versions import is_held_back, is_version, parse_version, version_labels, versions_of
from router.ingest.workshop import Failure, SourceJob
from router.ports import DocumentInfo, DocumentSource

_NOTES = frozenset({"rule_matches_nothing", "sidecar_without_document", "labels_not_used"})


@dataclass(frozen=True, slots=True)
class Drop:
    """A document to be removed from the store; `after` is what the manifest says of it then, None for nothing. Earlier versions go with
    it, and are held back where it is `not_indexable`."""

    document_id: str
    before: ManifestRow | None
    after: ManifestRow | None
    cause: Literal["gone", "not_indexable", "forgotten"]


@dataclass(frozen=True, slots=True)
class Relabel:
    row: ManifestRow
    labels: Labels
    digest: str


NOBODY: Labels = {}
"""Labels that lack all that is required admit nobody (router/storable.py)."""


class Emptied(SourceError):  # noqa: N818 (says what the source is)
    """A source in which nothing stands any more is not believed, and not shown: its documents are `hidden` until it says more."""

    def __init__(self, source: str, hidden: Sequence[Relabel]) -> None:
        super().__init__(
            "source_empty", f"nothing stands in the source `{source}`, whose documents are indexed; they are hidden and kept until something does",
            "mount it; if it was emptied on purpose put any file there, or take it out of sources.yaml", retryable=True,
        )  # fmt: skip
        self.hidden = tuple(hidden)


@dataclass(slots=True)
class Survey:
    """Work lists of one source. `held_back` are versions that nobody may see for now, which comes before all else; `corrected` are
    manifest rows that lag behind the store."""

    entries: dict[str, Entry] = field(default_factory=dict)
    held_back: list[Relabel] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)
    relabels: list[Relabel] = field(default_factory=list)
    corrected: list[ManifestRow] = field(default_factory=list)
    pending: list[Entry] = field(default_factory=list)
    unchanged: int = 0
    failures: list[Failure] = field(default_factory=list)
    notes: list[Failure] = field(default_factory=list)


class Labeller:
    """Labels of a source's entries, computed once for equal rules and narrowing."""

    def __init__(self, entity: EntityType, source: Source, documents: DocumentSource) -> None:
        self.entity, self._source, self._documents = entity, source, documents
        self._known: dict[tuple[str, str], Labelled | Unlabelled] = {}
        self._last: tuple[object, str] = None, ""

    def label(self, entry: Entry, narrowing: str) -> Labelled:
        """`narrowing` is the front matter's part as canonical JSON. Raises `Unlabelled`."""
        raw = self._documents.labels(entry)
        if raw.narrowing or raw.fault:
            return build_labels(self.entity, self._source, raw, json.loads(narrowing))
        if raw.rules is not self._last[0]:  # neighbours mostly share their rules
            self._last = raw.rules, json.dumps(raw.rules, default=repr)
        key = self._last[1], narrowing
        known = self._known.get(key)
        if known is None:
            try:
                known = build_labels(self.entity, self._source, raw, json.loads(narrowing))
            except Unlabelled as fault:
                known = fault
            self._known[key] = known
        if isinstance(known, Unlabelled):
            raise Unlabelled(known.reason, known.detail)
        return known


def survey_source(
    job: SourceJob,
    labeller: Labeller,
    *,
    generation: str,
    rows: Mapping[str, ManifestRow],
    held: Mapping[str, DocumentInfo],
    buried: frozenset[str],
    shown: bool = False,
) -> Survey:
    """`rows` by key and `held` by document id are what manifest and store know; `buried` are hashes of forgotten contents; `shown` says
    that documents of it are in another generation. Raises `SourceError`, and `Emptied` with what is to be hidden."""
    source, survey = job.source, Survey()
    living: dict[str, Labels] = {}
    _list_entries(survey, job.documents)
    if (held or shown) and getattr(job.documents, "emptied", False):
        raise Emptied(source.name, _hidden(source, rows.values(), held))
    there = survey.entries.keys() | {failure.key for failure in survey.failures}  # a key that is listed and refused is not gone
    for entry in survey.entries.values():
        row, info = rows.get(entry.key), held.get(f"{source.name}/{entry.key}")
        if row is not None and row.state == "indexed" and row.content_hash in buried:
            after = failed_row(job, generation, entry, row, "forgotten", "it was forgotten by `index forget`")
            survey.drops.append(Drop(row.document_id, row, replace(after, state="forgotten"), "forgotten"))
            continue
        try:
            labelled = labeller.label(entry, row.narrowing if row is not None else "{}")
        except Unlabelled as fault:
            after = failed_row(job, generation, entry, row, fault.reason, fault.detail)
            _unlabelled(survey, entry, after, row, info, again=_may_be_labelled(labeller, entry, row, job.pipeline))
            continue
        indexed = row is not None and row.state == "indexed"
        if row is not None and row.state in {"indexed", "writing"}:
            living[entry.key] = labelled.labels
        _labelled(survey, job, entry, row, info, labelled, job.pipeline_of(labelled.labels) if indexed else job.pipeline)
    survey.drops.extend(
        Drop(row.document_id, row, None, "not_indexable" if key in there else "gone")
        for key, row in rows.items()
        if key not in survey.entries and not is_version(key)
    )
    _survey_versions(survey, job, rows.values(), held, buried, living, there, labeller.entity)
    listed = {f"{source.name}/{key}" for key in (*survey.entries, *rows)}
    survey.drops.extend(Drop(document_id, None, None, "gone") for document_id in held if document_id not in listed)
    return survey


def _hidden(source: Source, rows: Iterable[ManifestRow], held: Mapping[str, DocumentInfo]) -> list[Relabel]:
    """Also what the manifest does not know; versions before their documents, so that none is found without it."""
    digest, known = label_digest(source.name, NOBODY), {row.document_id: row for row in rows}
    found = [
        known.get(name) or ManifestRow(source.tenant, "", source.name, name.removeprefix(f"{source.name}/"), "writing", "", "")
        for name, info in held.items()
        if info.label_digest != digest
    ]
    return [Relabel(row, NOBODY, digest) for row in sorted(found, key=lambda row: not is_version(row.key))]


def _survey_versions(
    survey: Survey,
    job: SourceJob,
    rows: Iterable[ManifestRow],
    held: Mapping[str, DocumentInfo],
    buried: frozenset[str],
    living: Mapping[str, Labels],
    there: Container[str],
    entity: EntityType,
) -> None:
    """Versions go with their document, before it, and are shown under its labels, after it. `living` are those of documents that are
    shown or being written; one that is only `there` keeps its versions, which nobody sees until it is shown again."""
    drops: list[Drop] = []
    for key, its in versions_of(rows).items():
        most = its[-job.keep_versions :] if job.keep_versions else []
        for row in its:
            info, forgotten = held.get(row.document_id), row.content_hash in buried
            whole = info is not None and info.chunks == row.chunks and row.state == "kept"
            if info is None or not whole or forgotten or row not in most or key not in there:
                drops.append(Drop(row.document_id, row, None, "forgotten" if forgotten else "gone"))
                continue
            labels = version_labels(parse_version(row.narrowing), living.get(key), entity)
            digest = label_digest(job.source.name, labels)
            if info.label_digest != digest:
                (survey.held_back if is_held_back(labels) else survey.relabels).append(Relabel(row, labels, digest))
            elif row.label_digest != digest:
                survey.corrected.append(replace(row, label_digest=digest))
    survey.drops[:0] = drops


def _list_entries(survey: Survey, documents: DocumentSource) -> None:
    """A key that comes twice names no document: which of the two is meant, and under which labels, cannot be known."""
    repeated: set[str] = set()
    for item in documents.entries():
        if isinstance(item, Rejected):
            (survey.notes if item.reason in _NOTES else survey.failures).append(Failure(item.key, item.reason, item.detail))
        elif is_version(item.key):
            survey.failures.append(Failure(item.key, "reserved_name", "names that end so are of kept versions; rename it"))
        elif item.key in survey.entries:
            repeated.add(item.key)
        else:
            survey.entries[item.key] = item
    for key in sorted(repeated):
        del survey.entries[key]
        survey.failures.append(Failure(key, "repeated_key", "the source lists this key more than once"))


def has_changed(job: SourceJob, entry: Entry, row: ManifestRow) -> bool:
    """A fingerprint that differs says that it may have changed; the bytes decide. What cannot be read counts as changed."""
    try:
        return hashlib.sha256(job.documents.read(entry).data).hexdigest() != row.content_hash
    except SourceError:
        return True


def failed_row(job: SourceJob, generation: str, entry: Entry, row: ManifestRow | None, reason: str, detail: str) -> ManifestRow:
    """The manifest's row for a document that is not indexed; what was read of it before is remembered."""
    new = ManifestRow(job.source.tenant, generation, job.source.name, entry.key, "failed", "", "")
    known = row if row is not None else new
    return replace(
        known, generation=generation, state="failed", reason=reason, detail=detail, chunks=0, label_digest="", version=None,
        pipeline=known.pipeline or job.pipeline,
    )  # fmt: skip


def _may_be_labelled(labeller: Labeller, entry: Entry, row: ManifestRow | None, pipeline: str) -> bool:
    """Whether only what was read of the document before keeps it out, and it may read otherwise now."""
    if row is None or row.narrowing == "{}" or _same(row, entry, pipeline):
        return False
    try:
        labeller.label(entry, "{}")
    except Unlabelled:
        return False
    return True


def _same(row: ManifestRow, entry: Entry, pipeline: str) -> bool:
    return bool(row.fingerprint) and (row.fingerprint, row.pipeline) == (entry.fingerprint, pipeline)


def _unlabelled(
    survey: Survey, entry: Entry, after: ManifestRow, row: ManifestRow | None, info: DocumentInfo | None, *, again: bool
) -> None:
    if after != row or info is not None:
        survey.drops.append(Drop(after.document_id, row, after, "not_indexable"))
    if again:
        survey.pending.append(entry)
    else:
        survey.failures.append(Failure(after.key, after.reason, after.detail))


def _labelled(
    survey: Survey,
    job: SourceJob,
    entry: Entry,
    row: ManifestRow | None,
    info: DocumentInfo | None,
    labelled: Labelled,
    pipeline: str,
) -> None:
    if row is None or row.state == "writing":
        _unvouched(survey, info, labelled)
        survey.pending.append(entry)
    elif row.state == "indexed":
        _indexed(survey, job, entry, row, info, labelled, pipeline)
    elif not _same(row, entry, pipeline) or row.reason in TRANSIENT or (row.state == "failed" and row.reason not in REASONS):
        _unvouched(survey, info, labelled)
        survey.pending.append(entry)
    else:
        into = survey.notes if row.state == "forgotten" else survey.failures
        into.append(Failure(entry.key, row.reason, row.detail))
        if info is not None:
            survey.drops.append(Drop(row.document_id, row, row, "not_indexable"))


def _unvouched(survey: Survey, info: DocumentInfo | None, labelled: Labelled) -> None:
    """What the store holds and the manifest does not vouch for may be another text than the labels are of: it stays under exactly those
    of now, else it goes until it is made again."""
    if info is not None and info.label_digest != labelled.digest:
        survey.drops.append(Drop(info.document_id, None, None, "not_indexable"))


def _indexed(
    survey: Survey,
    job: SourceJob,
    entry: Entry,
    row: ManifestRow,
    info: DocumentInfo | None,
    labelled: Labelled,
    pipeline: str,
) -> None:
    """A change of rules applies at once, also to a document that will be made again: that takes time. Where the text may be another
    as well, the rules may have been opened for the new one: the old one goes."""
    other = info is not None and info.label_digest != labelled.digest and row.fingerprint != entry.fingerprint
    if info is None or info.chunks != row.chunks or (other and has_changed(job, entry, row)):
        _unvouched(survey, info, labelled)
        survey.pending.append(entry)
        return
    if info.label_digest != labelled.digest:
        survey.relabels.append(Relabel(row, labelled.labels, labelled.digest))
    elif row.label_digest != labelled.digest:
        survey.corrected.append(replace(row, label_digest=labelled.digest))
    if not _same(row, entry, pipeline):
        survey.pending.append(entry)
    else:
        survey.unchanged += info.label_digest == labelled.digest
        survey.notes.extend(Failure(entry.key, "label_note", note) for note in labelled.notes)
