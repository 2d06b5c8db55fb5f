"""From an entry to a document with vectors: read, parse, label, chunk, embed. Changes nothing anywhere.

INVARIANT: a document is embedded in the name of the indexing Service under its own class, one call a document, so that a
hosted embedder is judged by it (tests/unit/test_ingest_build.py::test_purpose_carries_the_class).
INVARIANT: a document that cannot be embedded stays as it is only where its labels are still those that it is shown under; it is
made again by the next run (tests/unit/test_hosted_indexing.py::test_a_document_that_fails_is_resumed, ::test_narrowed_labels_do_not_wait).
INVARIANT: `supersedes` stays inside one source and one owner (tests/faults/test_documents.py::test_supersedes_somebody_elses_page).
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from router.domain import Chunk, Content, Embedded, Entry, IndexedDocument, ManifestRow, Purpose, twin_id
from router.errors import Refused, SourceError
from router.ingest.blocks import Block, Parsed, Unreadable, clean_text, clean_title
from router.ingest.chunk import build_chunks, build_passages, embed_text, is_code, looks_like_code
from router.ingest.context import Around, read_code_around, read_prose_around, with_contexts
from router.ingest.front_matter import fold_name
from router.ingest.label import NARROWING, Labelled, Unlabelled, narrowing_json, narrowing_of, refusal_of
from router.ingest.markup import read_text
from router.ingest.parse import Parser
from router.ingest.survey import Labeller, failed_row
from router.ingest.workshop import Failure, SourceJob, Workshop
from router.ports import DocumentSource

_NOT_META = frozenset(map(fold_name, (*NARROWING, "tenant", "title", "version", "language", "supersedes")))
_MOST_META_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class Made:
    """Ready for the store."""

    entry: Entry
    row: ManifestRow
    document: IndexedDocument


@dataclass(frozen=True, slots=True)
class Known:
    """The content is what the manifest says; only the row changes."""

    entry: Entry
    row: ManifestRow


@dataclass(frozen=True, slots=True)
class Lost:
    """Not to be indexed. `row` is None when the document stays as it is until the next run."""

    entry: Entry
    row: ManifestRow | None
    reason: str
    detail: str


Outcome = Made | Known | Lost


@dataclass(slots=True)
class _Begun:
    entry: Entry
    content: Content | None = None
    content_hash: str = ""
    parsed: Parsed | None = None
    ended: Outcome | None = None


class _Unembedded(Exception):  # noqa: N818 (carries what happened out of one document)
    def __init__(self, error: SourceError, labelled: Labelled) -> None:
        super().__init__(str(error))
        self.error, self.labelled = error, labelled


class Maker:
    """Makes the documents of one source during one run. `present` are ids of documents that the store holds whole; unless `lenient`, one
    that cannot be embedded ends the run."""

    def __init__(
        self,
        workshop: Workshop,
        job: SourceJob,
        labeller: Labeller,
        *,
        generation: str,
        run_id: str,
        entries: Mapping[str, Entry],
        rows: Mapping[str, ManifestRow],
        present: frozenset[str],
        lenient: bool = True,
    ) -> None:
        self._lenient = lenient
        self._workshop, self._job, self._labeller = workshop, job, labeller
        self._source = source = job.source
        self._generation, self._run_id = generation, run_id
        self._entries, self._rows, self._present = entries, rows, present
        self._buried = workshop.manifest.buried(source.tenant, source.name)
        self.notes: list[Failure] = []

    def make(self, documents: DocumentSource, pending: Sequence[Entry]) -> Generator[Outcome, None, None]:
        """In order; one document is parsed while the one before is embedded and stored."""
        before: _Begun | None = None
        with Parser(self._workshop.limits) as parser:
            for entry in pending:
                begun = self._begin(documents, entry, parser)
                if before is not None:
                    yield self._finish(before)
                before = self._parsed(begun, parser)
            if before is not None:
                yield self._finish(before)

    def _begin(self, documents: DocumentSource, entry: Entry, parser: Parser) -> _Begun:
        """Read; start parsing unless the content is known or forgotten."""
        begun = _Begun(entry)
        row = self._rows.get(entry.key)
        try:
            content = documents.read(entry)
        except SourceError as error:
            begun.ended = self._unread(entry, error)
            return begun
        begun.content, begun.content_hash = content, hashlib.sha256(content.data).hexdigest()
        if begun.content_hash in self._buried:
            forgotten = failed_row(self._job, self._generation, entry, row, "forgotten", "it was forgotten by `index forget`")
            forgotten = replace(forgotten, state="forgotten", fingerprint=content.fingerprint, content_hash=begun.content_hash)
            begun.ended = Lost(entry, forgotten, forgotten.reason, forgotten.detail)
        elif row is not None and self._is_known(row, begun.content_hash):
            begun.ended = Known(entry, replace(row, fingerprint=content.fingerprint))
        elif not content.ready:
            parser.start(content.data, content.name)
        return begun

    def _is_known(self, row: ManifestRow, content_hash: str) -> bool:
        return (row.state, row.content_hash, row.pipeline) == (
            "indexed",
            content_hash,
            self._job.pipeline,
        ) and row.document_id in self._present

    def _unread(self, entry: Entry, error: SourceError) -> Lost:
        """A file that is being written stays as it was until the next run; anything else may no longer be shown."""
        row = None
        if error.code != "changed_while_read":
            row = failed_row(self._job, self._generation, entry, self._rows.get(entry.key), error.code, error.message)
            row = replace(row, fingerprint="")
        return Lost(entry, row, error.code, error.message)

    def _parsed(self, begun: _Begun, parser: Parser) -> _Begun:
        if begun.ended is None and begun.content is not None:
            try:
                begun.parsed = _read_ready(begun.content) if begun.content.ready else parser.result()
            except Unreadable as failure:
                begun.ended = self._lost(begun, failure.reason, failure.detail, "{}")
        return begun

    def _lost(self, begun: _Begun, reason: str, detail: str, narrowing: str) -> Lost:
        assert begun.content is not None
        row = failed_row(self._job, self._generation, begun.entry, self._rows.get(begun.entry.key), reason, detail)
        row = replace(
            row,
            fingerprint=begun.content.fingerprint,
            content_hash=begun.content_hash,
            narrowing=narrowing,
            pipeline=self._job.pipeline,
        )
        return Lost(begun.entry, row, reason, detail)

    def _finish(self, begun: _Begun) -> Outcome:
        if begun.ended is not None:
            return begun.ended
        assert begun.parsed is not None
        narrowing = self._narrowing(begun.parsed.front_matter)
        try:
            labelled = self._labeller.label(begun.entry, narrowing)
            return self._made(begun, begun.parsed, labelled, narrowing)
        except Unlabelled as fault:
            return self._lost(begun, fault.reason, fault.detail, narrowing)
        except Refused as refusal:
            return self._lost(begun, refusal.code, refusal.message, narrowing)
        except _Unembedded as failed:
            if not self._lenient:
                raise failed.error from None
            return self._unembedded(begun, failed, narrowing)

    def _unembedded(self, begun: _Begun, failed: _Unembedded, narrowing: str) -> Lost:
        """Tried again by the next run. Until then its last version is shown, unless it was under other labels."""
        before, error = self._rows.get(begun.entry.key), failed.error
        if before is not None and before.state == "indexed" and before.label_digest == failed.labelled.digest:
            return Lost(begun.entry, None, error.code, error.message)
        lost = self._lost(begun, error.code, error.message, narrowing)
        return replace(lost, row=None if lost.row is None else replace(lost.row, fingerprint=""))

    def _narrowing(self, front: Mapping[str, Any]) -> str:
        try:
            return narrowing_json(narrowing_of(front, self._source))
        except Unlabelled as fault:
            return narrowing_json(refusal_of(fault))

    def _made(self, begun: _Begun, parsed: Parsed, labelled: Labelled, narrowing: str) -> Made:
        assert begun.content is not None
        entry, front = begun.entry, parsed.front_matter
        self.notes.extend(Failure(entry.key, "label_note", note) for note in labelled.notes)
        version = str(front["version"])[:100] if front.get("version") is not None else None
        passage, title = begun.content.passage, clean_title(begun.content.title)
        build, meta = build_passages if passage else build_chunks, self._meta(entry, front, labelled)
        around = self._around(parsed, begun.content, meta)
        count, limit = self._workshop.embedder.count_tokens, self._workshop.embedder.card.max_tokens - around.reserve_tokens
        chunks = build(
            replace(parsed, title=title if passage else title or parsed.title),
            source=self._source.name,
            key=entry.key,
            uri=entry.uri,
            count=count,
            max_tokens=limit,
            version=version,
            meta=meta,
        )
        told = with_contexts(chunks, around, count)
        twins: tuple[Chunk, ...] = ()
        if self._job.contexts == "both":
            twins = tuple(replace(chunk, chunk_id=twin_id(chunk.chunk_id)) for chunk in told)
        else:
            chunks = told
        vectors = self._vectors([*chunks, *twins], labelled, limit)
        if vectors and not any(vectors[0].vector):
            detail = "its class may not go to the embedder: it is found by its words alone"
            self.notes.append(Failure(entry.key, "disclosure_not_permitted", detail))
        document = IndexedDocument(
            self._source.name,
            f"{self._source.name}/{entry.key}",
            labelled.labels,
            tuple(zip(chunks, vectors[: len(chunks)], strict=True)),
            tuple(zip(twins, vectors[len(chunks) :], strict=True)),
        )
        row = ManifestRow(
            self._source.tenant, self._generation, self._source.name, entry.key, "indexed", begun.content.fingerprint,
            begun.content_hash, version, len(vectors), labelled.digest, narrowing, self._workshop.embedder.card.id,
            self._job.pipeline, indexed_at_us=self._workshop.now_us(),
        )  # fmt: skip
        return Made(entry, row, document)

    def _around(self, parsed: Parsed, content: Content, meta: Mapping[str, str]) -> Around:
        """What contexts are made from, all of it of this document."""
        if self._job.contexts == "none":
            return Around()
        if content.passage:
            whole = clean_text(content.within)
            within = all(block.text in whole for block in parsed.blocks)  # else it is the whole of something else
            return read_code_around(whole) if within and looks_like_code(whole) else Around()
        if is_code(parsed):
            return read_code_around(_whole(parsed.blocks))
        headings = [block.text for block in parsed.blocks if block.kind == "heading"]
        return read_prose_around(headings, {**parsed.meta, **meta})

    def _vectors(self, chunks: Sequence[Chunk], labelled: Labelled, limit: int) -> list[Embedded]:
        """One call a document; a chunk without a context reads like its plain twin and is embedded once."""
        embedder, sensitivity = self._workshop.embedder, labelled.labels.get("sensitivity")
        classes = frozenset({sensitivity}) if isinstance(sensitivity, int) else frozenset({3})
        purpose = Purpose(self._workshop.principal, "embed_chunks", classes, self._run_id, self._source.tenant)
        texts = [embed_text(chunk, embedder.count_tokens, limit) for chunk in chunks]
        different = list(dict.fromkeys(texts))
        try:
            vectors = dict(zip(different, embedder.embed_chunks(different, purpose), strict=True))
        except SourceError as error:
            raise _Unembedded(error, labelled) from error
        return [vectors[text] for text in texts]

    def _meta(self, entry: Entry, front: Mapping[str, Any], labelled: Labelled) -> dict[str, str]:
        """Front matter that is neither label nor field of a chunk, as text."""
        meta = {}
        for name, value in front.items():
            if fold_name(name) not in _NOT_META and name not in labelled.labels and value is not None:
                text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
                meta[clean_title(name, 60)] = clean_title(text, _MOST_META_CHARS)
        if front.get("supersedes") is not None:
            superseded = self._superseded(entry, str(front["supersedes"]), labelled)
            if superseded is not None:
                meta["supersedes"] = superseded
        return meta

    def _superseded(self, entry: Entry, named: str, labelled: Labelled) -> str | None:
        """Document id of what this one replaces; None, with a note, when that is not in this source or another owner's."""
        target = self._entries.get(named) or self._entries.get(named.removeprefix(f"{self._source.name}/"))
        why = "it names no other document of its source"
        if target is not None and target.key != entry.key:
            try:
                if self._labeller.label(target, "{}").labels.get("owner") == labelled.labels.get("owner"):
                    return f"{self._source.name}/{target.key}"
                why = "it names a document of another owner"
            except Unlabelled:
                pass
        self.notes.append(Failure(entry.key, "supersedes_dropped", why))
        return None


def _whole(blocks: Sequence[Block]) -> str:
    """A source file as it was read: each block at its lines."""
    lines: list[str] = []
    for block in blocks:
        first = block.span.lines[0] if block.span.lines else len(lines) + 1
        lines += [""] * (first - 1 - len(lines))
        lines += block.text.split("\n")
    return "\n".join(lines)


def _read_ready(content: Content) -> Parsed:
    """Text that its source made: nothing to open, so no process; its title is the source's business."""
    text = content.data.decode("utf-8", "replace")
    parsed = Parsed("", (Block("paragraph", clean_text(text)),)) if content.passage else read_text(text)
    if not parsed.blocks or not text.strip():
        raise Unreadable("empty", "no text inside")
    return parsed
