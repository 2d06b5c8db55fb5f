"""What one source keeps of earlier versions during one run: which, under which labels, and when they are let go (adr/0033).

Decides and reads, changes nothing: router/ingest/build.py records and writes, in its order.

INVARIANT: no version is shown to whom its document is denied, before, while and after that one changes
(tests/unit/test_ingest_versions.py::test_versions_are_held_back_before_and_shown_after).
INVARIANT: a text of which nobody knows whether its labels changed before it did is not kept
(tests/unit/test_ingest_versions.py::test_an_edition_that_is_declassified_with_its_new_text, ::test_labels_that_change_while_the_text_is_unread).
INVARIANT: a version is let go only with its document, for a newer one, or where it cannot be shown again
(tests/unit/test_ingest_versions.py::test_what_is_not_readable_keeps_its_versions).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from router.domain import IndexedDocument, Labels, ManifestRow, label_digest
from router.errors import SourceError
from router.ingest.make import Made
from router.ingest.survey import Drop, Relabel, Survey
from router.ingest.versions import (
    Version,
    is_held_back,
    is_version,
    parse_version,
    read_document,
    version_json,
    version_key,
    version_labels,
    versions_of,
)
from router.ingest.workshop import Failure, SourceJob, Workshop

_LONGEST_BYTES = 4_000
_RELABELLED_UNREAD = "relabelled_unread"
"""The reason of a row that is indexed: its labels changed when its text may have been another already."""

Kept = list[tuple[ManifestRow, IndexedDocument]]


class Keeper:
    """`rows` are of the generation that is written, `earlier` of the one that is shown, `shown` the digests that the store holds.
    In a generation that is `unseen` no text becomes a version: what is shown knows more of it than this one does."""

    def __init__(
        self,
        workshop: Workshop,
        job: SourceJob,
        rows: Mapping[str, ManifestRow],
        earlier: Mapping[str, ManifestRow],
        shown: Mapping[str, str],
        *,
        generation: str,
        full: bool,
        unseen: bool = False,
    ) -> None:
        self._workshop, self._job, self._unseen = workshop, job, unseen
        self._earlier, self._shown, self._generation, self._full = dict(earlier), shown, generation, full
        self._versions = versions_of(rows.values())
        self._before = versions_of(earlier.values())
        self.notes: list[Failure] = []

    def mark_unread(self, survey: Survey) -> list[ManifestRow]:
        """Rows of documents whose labels change while their text may be another already, for the manifest to remember: the rules may
        have been relaxed for the new text, so that the old one is no version under them."""
        pending = {entry.key for entry in survey.pending} if self._job.keep_versions else set()
        rows = [replace(item.row, reason=_RELABELLED_UNREAD) for item in survey.relabels if item.row.key in pending]
        self._earlier.update((row.key, row) for row in rows)
        return rows

    def catch_up(self) -> None:
        """The source was looked at again: versions may have gone."""
        self._versions = {key: [row for row in its if row.document_id in self._shown] for key, its in self._versions.items()}

    def with_versions(self, drops: Sequence[Drop]) -> list[Drop]:
        """And what was kept of documents that are gone, each before its document."""
        if not self._versions:
            return list(drops)
        named = {drop.document_id for drop in drops}
        found: list[Drop] = []
        for drop in drops:
            if drop.cause != "not_indexable":
                cause: Literal["gone", "forgotten"] = "forgotten" if drop.cause == "forgotten" else "gone"
                its = self._versions.pop(self._key(drop), [])
                found += [Drop(row.document_id, row, None, cause) for row in its if row.document_id not in named]
            found.append(drop)
        gone = {drop.document_id for drop in found}
        self._versions.update({key: [row for row in its if row.document_id not in gone] for key, its in self._versions.items()})
        return found

    def held_back(self, drops: Sequence[Drop]) -> list[Relabel]:
        """What was kept of documents that are not shown for now, and may be again."""
        rows = [row for drop in drops if drop.cause == "not_indexable" for row in self._versions.get(self._key(drop), [])]
        return self._relabels(rows, None)

    def follow(self, made: Made, *, after: bool = False) -> tuple[list[Drop], list[Relabel]]:
        """Of versions that are there already, once the document says this of itself: what goes and is held back before that is shown,
        and what may be seen again `after` it is."""
        its = self._versions.get(made.row.key, [])
        free = self._job.keep_versions - self._is_replaced(made)
        going = [] if after else its[: max(0, len(its) - free)]
        changed = self._relabels([row for row in its if row not in going], made.document.labels)
        return (
            [Drop(row.document_id, row, None, "gone") for row in going],
            [item for item in changed if is_held_back(item.labels) is not after],
        )

    def versions_beside(self, made: Made) -> Kept:
        """What is to stand in the store beside a new version: the one that it replaces; in a full build also those before."""
        found: Kept = []
        if not self._job.keep_versions or self._generation == "":
            return found
        replaced = self._is_replaced(made)
        if self._full:
            found += self._carried(made.row.key, self._job.keep_versions - replaced, made.document.labels)
        if replaced:
            found += self._replaced(self._earlier[made.row.key], made)
        self._versions.setdefault(made.row.key, []).extend(row for row, _ in found)
        return found

    def left_behind(self, listed: Container[str]) -> Kept:
        """In a full build, what was kept of documents that the source holds and that could not be made: held back."""
        found: Kept = []
        for key in self._before if self._full and self._job.keep_versions else ():
            if key in listed and key not in self._versions:
                self._versions[key] = []
                found += self._carried(key, self._job.keep_versions, None)
        return found

    def _carried(self, key: str, most: int, living: Labels | None) -> Kept:
        found: Kept = []
        for row in self._before.get(key, [])[-most:] if most else ():
            found += self._copied(row, key, living, row.key, parse_version(row.narrowing))
        return found

    def _is_replaced(self, made: Made) -> bool:
        before = self._earlier.get(made.row.key)
        return before is not None and before.state == "indexed" and before.content_hash not in {"", made.row.content_hash}

    def _replaced(self, before: ManifestRow, made: Made) -> Kept:
        now_ms, others = self._workshop.now_us() // 1000, self._before.get(before.key, [])
        key = version_key(before.key, now_ms)
        if self._unseen:
            return self._let_go(before.key, "a text that is replaced on the way back to another generation is not kept")
        if before.reason == _RELABELLED_UNREAD or before.label_digest != self._shown.get(before.document_id):
            return self._let_go(before.key, "its labels changed with its text, or while that could not be read")
        if len(key.encode()) > _LONGEST_BYTES or (others and others[-1].key >= key):
            return self._let_go(before.key, "its name is too long, or the clock was put back")
        since_ms = parse_version(others[-1].narrowing).until_ms if others else None
        return self._copied(before, before.key, made.document.labels, key, (since_ms, now_ms))

    def _copied(
        self, row: ManifestRow, of: str, living: Labels | None, key: str, version: Version | tuple[int | None, int]
    ) -> Kept:
        """A document or version of the shown generation as a version; nothing, with a note, where that cannot be."""
        workshop, source = self._workshop, self._job.source
        if row.model_id != workshop.embedder.card.id:
            return self._let_go(of, "another model embedded it")
        if row.content_hash in workshop.manifest.buried(source.tenant, source.name):
            return []
        try:
            document = read_document(workshop.store, source.tenant, row, key=key, replaces=f"{source.name}/{of}")
        except SourceError:
            if not self._full:
                raise
            document = None
        if document is None:
            return self._let_go(of, "the store does not hold it whole")
        own = version if isinstance(version, Version) else Version(document.labels, *version)
        labels = version_labels(own, living, workshop.entity)
        kept = replace(
            row, generation=self._generation, key=key, state="kept", fingerprint="", narrowing=version_json(own), reason="",
            label_digest=label_digest(source.name, labels),
        )  # fmt: skip
        return [(kept, replace(document, labels=labels))]

    def _relabels(self, rows: Sequence[ManifestRow], living: Labels | None) -> list[Relabel]:
        source, found = self._job.source.name, []
        for row in rows:
            labels = version_labels(parse_version(row.narrowing), living, self._workshop.entity)
            if (digest := label_digest(source, labels)) != self._shown.get(row.document_id):
                found.append(Relabel(row, labels, digest))
        return found

    def _key(self, drop: Drop) -> str:
        return drop.document_id.removeprefix(f"{self._job.source.name}/")

    def _let_go(self, key: str, why: str) -> Kept:
        self.notes.append(Failure(key, "version_not_kept", f"an earlier version was let go: {why}"))
        return []


def drop_versions(tenant: str, workshop: Workshop, shown: str) -> list[ManifestRow]:
    """On the way back to the generation that `workshop.store` takes for current: of its versions only those stay that are in the one
    that is `shown`, too. What was removed or forgotten since does not come back. Returns what was let go."""
    there = {(row.document_id, row.narrowing) for row in workshop.manifest.rows(tenant, shown) if is_version(row.key)}
    rows = workshop.manifest.rows(tenant, workshop.store.generation(tenant) or "")
    gone = [row for row in rows if is_version(row.key) and (row.document_id, row.narrowing) not in there]
    workshop.store.delete(tenant, [row.document_id for row in gone])
    workshop.manifest.remove(gone)
    return gone
