"""What one source keeps of earlier versions during one run: which, under which labels, and when they are let go (adr/0033).

Decides and reads, changes nothing: router/ingest/build.py records and writes, in its order.

INVARIANT: no version is shown wider than its document before, while and after that one changes
(tests/unit/test_ingest_versions.py::test_versions_follow_what_the_document_says_of_itself).
INVARIANT: text that is replaced in the run in which its rules were relaxed is kept under the rules it had
(tests/unit/test_ingest_versions.py::test_an_edition_that_is_declassified_with_its_new_text).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from router.domain import IndexedDocument, Labels, ManifestRow, label_digest
from router.errors import SourceError
from router.ingest.label import Unlabelled
from router.ingest.make import Made
from router.ingest.survey import Drop, Labeller, Relabel, Survey
from router.ingest.versions import (
    Version,
    narrowest,
    parse_version,
    read_document,
    replaced_at_ms,
    version_json,
    version_key,
    version_labels,
    versions_of,
)
from router.ingest.workshop import Failure, SourceJob, Workshop

_LONGEST_BYTES = 4_000


class Keeper:
    """`rows` are of the generation that is written, `earlier` of the one that is shown, `shown` the digests that the store holds.
    `held_back` are changes of labels of documents that may read otherwise now, by key: until that is known only what they take away
    is applied, since the text that is there may be another than the rules were relaxed for."""

    def __init__(
        self,
        workshop: Workshop,
        job: SourceJob,
        labeller: Labeller,
        rows: Mapping[str, ManifestRow],
        earlier: Mapping[str, ManifestRow],
        shown: Mapping[str, str],
        *,
        generation: str,
        full: bool,
    ) -> None:
        self._workshop, self._job, self._labeller = workshop, job, labeller
        self._earlier, self._shown, self._generation, self._full = earlier, shown, generation, full
        self._versions = versions_of(rows.values())
        self._before = versions_of(earlier.values())
        self._unlike: set[str] = set()
        self.held_back: dict[str, Relabel] = {}
        self.notes: list[Failure] = []

    def hold_back(self, survey: Survey) -> None:
        """Of labels that change together with the text, for now only what is stricter."""
        pending = {entry.key for entry in survey.pending} if self._job.keep_versions else set()
        at_once = {item.row.key: item for item in survey.relabels if item.row.key in pending}
        if not at_once:
            return
        source, wanted = self._job.source, {item.row.document_id for item in at_once.values()}
        held = {name: labels for _, name, labels in self._workshop.store.labelled(source.tenant) if name in wanted}
        kept: list[Relabel] = []
        for item in survey.relabels:
            labels = narrowest(held[item.row.document_id], item.labels) if item.row.document_id in held else None
            if item.row.key not in at_once or labels is None:
                kept.append(item)
                self._unlike.update({item.row.key} & at_once.keys())
                continue
            digest = label_digest(source.name, labels)
            if digest != self._shown.get(item.row.document_id):
                kept.append(Relabel(item.row, labels, digest))
            if digest != item.digest:
                self.held_back[item.row.key] = item
        survey.relabels[:] = kept

    def catch_up(self) -> None:
        """The source was looked at again: what it allowed before is old, and versions may have gone."""
        self.held_back.clear()
        self._versions = {key: [row for row in its if row.document_id in self._shown] for key, its in self._versions.items()}

    def with_versions(self, drops: Sequence[Drop]) -> list[Drop]:
        """And what was kept of these documents, each before its document."""
        if not self._versions:
            return list(drops)
        named = {drop.document_id for drop in drops}
        found: list[Drop] = []
        prefix = f"{self._job.source.name}/"
        for drop in drops:
            cause: Literal["gone", "forgotten"] = "forgotten" if drop.cause == "forgotten" else "gone"
            its = [] if drop.alone else self._versions.pop(drop.document_id.removeprefix(prefix), [])
            found += [Drop(row.document_id, row, None, cause) for row in its if row.document_id not in named]
            found.append(drop)
        gone = {drop.document_id for drop in found}
        self._versions.update({key: [row for row in its if row.document_id not in gone] for key, its in self._versions.items()})
        return found

    def follow(self, made: Made, *, after: bool = False) -> tuple[list[Drop], list[Relabel]]:
        """Of versions that are there already, under what the document says of itself now: before it is shown, nobody gains by it."""
        drops: list[Drop] = []
        relabels: list[Relabel] = []
        living = [made.document.labels] if after else self._living(made)
        its = self._versions.get(made.row.key, [])
        free = self._job.keep_versions - self._is_replaced(made)
        for at, row in enumerate(its):
            labels = None
            if len(its) - at <= free or after:
                labels = version_labels(parse_version(row.narrowing), living, self._now_ms())
            if labels is None:
                drops.append(Drop(row.document_id, row, None, "gone"))
            elif (digest := label_digest(self._job.source.name, labels)) != self._shown.get(row.document_id):
                relabels.append(Relabel(row, labels, digest))
        return drops, relabels

    def versions_beside(self, made: Made) -> list[tuple[ManifestRow, IndexedDocument]]:
        """What is to stand in the store beside a new version: the one that it replaces; in a full build also those before."""
        found: list[tuple[ManifestRow, IndexedDocument]] = []
        if not self._job.keep_versions or self._generation == "":
            return found
        replaced = self._is_replaced(made)
        if self._full and (carried := self._job.keep_versions - replaced):
            for row in self._before.get(made.row.key, [])[-carried:]:
                found += self._copied(row, made, row.key, parse_version(row.narrowing))
        if replaced:
            found += self._replaced(self._earlier[made.row.key], made)
        self._versions.setdefault(made.row.key, []).extend(row for row, _ in found)
        return found

    def _is_replaced(self, made: Made) -> bool:
        before = self._earlier.get(made.row.key)
        return before is not None and before.state == "indexed" and before.content_hash not in {"", made.row.content_hash}

    def _replaced(self, before: ManifestRow, made: Made) -> list[tuple[ManifestRow, IndexedDocument]]:
        now_ms, others = self._now_ms(), self._before.get(before.key, [])
        since_ms = parse_version(others[-1].narrowing).until_ms if others else None
        key = version_key(before.key, now_ms)
        if before.key in self._unlike:
            return self._let_go(before.key, "its labels changed with its text")
        if len(key.encode()) > _LONGEST_BYTES or (others and others[-1].key >= key):
            return self._let_go(before.key, "its name is too long, or the clock was put back")
        return self._copied(before, made, key, since_ms)

    def _copied(
        self, row: ManifestRow, made: Made, key: str, version: Version | int | None
    ) -> list[tuple[ManifestRow, IndexedDocument]]:
        """A document or version of the shown generation as a version; nothing, with a note, where that cannot be."""
        workshop, source = self._workshop, self._job.source
        if row.model_id != workshop.embedder.card.id:
            return self._let_go(made.row.key, "another model embedded it")
        if row.content_hash in workshop.manifest.buried(source.tenant, source.name):
            return []
        try:
            document = read_document(workshop.store, source.tenant, row, workshop.entity, key=key, replaces=made.row.document_id)
        except SourceError:
            if not self._full:
                raise
            document = None
        if document is None:
            return self._let_go(made.row.key, "the store does not hold it whole")
        if not isinstance(version, Version):
            until_ms = replaced_at_ms(document.labels, made.document.labels, self._now_ms())
            version = Version(document.labels, version, until_ms)
        labels = version_labels(version, self._living(made), self._now_ms())
        if labels is None:
            return self._let_go(made.row.key, "its labels cannot be combined with those of the document")
        kept = replace(
            row, generation=self._generation, key=key, state="kept", fingerprint="", narrowing=version_json(version),
            label_digest=label_digest(source.name, labels),
        )  # fmt: skip
        return [(kept, replace(document, labels=labels))]

    def _let_go(self, key: str, why: str) -> list[tuple[ManifestRow, IndexedDocument]]:
        self.notes.append(Failure(key, "version_not_kept", f"an earlier version was let go: {why}"))
        return []

    def _living(self, made: Made) -> list[Labels]:
        """Of the document as it is shown, where it still has labels, and as it will be."""
        before = self._earlier.get(made.row.key)
        try:
            shown = [] if before is None or self._full else [self._labeller.label(made.entry, before.narrowing).labels]
        except Unlabelled:
            shown = []
        return [*shown, made.document.labels]

    def _now_ms(self) -> int:
        return self._workshop.now_us() // 1000
