"""From an entry to a document with vectors: read, parse, label, chunk, embed. Changes nothing anywhere.

INVARIANT: a document is embedded in the name of the indexing Service under its own class, one call a document, so that a
hosted embedder is judged by it (tests/unit/test_ingest_build.py::test_purpose_carries_the_class).
INVARIANT: a document that cannot be embedded stays as it is only where its labels are still those that it is shown under; it is
made again by the next run (tests/unit/test_hosted_indexing.py::test_a_document_that_fails_is_resumed, ::test_narrowed_labels_do_not_wait).
INVARIANT: a written context is of its document alone, and where some are missing the document is known to be made again, without
being embedded for nothing (tests/unit/test_written_contexts_indexed.py::test_only_what_changed_is_embedded_again).
INVARIANT: `supersedes` stays inside one source and one owner (tests/faults/test_documents.py::test_supersedes_somebody_elses_page).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from router.domain import Chunk, Content, Embedded, Entry, IndexedDocument, ManifestRow, Purpose, twin_id
from router.egress import IndexEmbedder
from router.errors import Refused, SourceError
from router.ingest.blocks import Block, Parsed, Unreadable, clean_text, clean_title
from router.ingest.chunk import build_chunks, build_passages, embed_text, is_code, looks_like_code
from router.ingest.context import Around, read_code_around, read_prose_around, with_contexts
from router.ingest.entities import with_entities
from router.ingest.front_matter import fold_name
from router.ingest.label import NARROWING, Labelled, Unlabelled, narrowing_json, narrowing_of, refusal_of
from router.ingest.markup import read_text
from router.ingest.parse import Parser
from router.ingest.scribe import Scribe, Told
from router.ingest.survey import Labeller, failed_row
from router.ingest.workshop import PIPELINE, ContextEstimate, EmbeddingEstimate, Failure, SourceJob, Workshop, class_of
from router.ingest.written_context import WRITTEN_TOKENS, at_worst, estimate_asks, estimate_tokens, fit_context
from router.ports import ContextAsk, DocumentSource

_NOT_META = frozenset(map(fold_name, (*NARROWING, "tenant", "title", "version", "language", "supersedes")))
_MOST_META_CHARS = 1_000
UNREAD = frozenset({"changed_while_read", "read_failed", "source_unavailable"})
"""Why a file could not be read that says nothing about the document."""
QUIET = frozenset({"waiting", "spend_cap"})
"""Why there is no context that the run as a whole says once."""


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


@dataclass(frozen=True, slots=True)
class _Cut:
    """A document in chunks, before contexts: `limit` is what the chunks were cut under, `within` the whole that a passage is of."""

    chunks: tuple[Chunk, ...]
    around: Around
    within: str
    limit: int
    version: str | None


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
        self._aliases = workshop.aliases(source.tenant)
        self._buried = workshop.manifest.buried(source.tenant, source.name)
        self.notes: list[Failure] = []

    def make(self, documents: DocumentSource, pending: Sequence[Entry]) -> Generator[Outcome, None, None]:
        """In order; one document is parsed while the one before is embedded and stored."""
        with contextlib.closing(self._read(documents, pending)) as read:
            for begun in read:
                yield self._finish(begun)

    def _read(self, documents: DocumentSource, pending: Sequence[Entry]) -> Generator[_Begun, None, None]:
        before: _Begun | None = None
        with Parser(self._workshop.limits) as parser:
            for entry in pending:
                begun = self._begin(documents, entry, parser)
                if before is not None:
                    yield before
                before = self._parsed(begun, parser)
            if before is not None:
                yield before

    def estimate(
        self, documents: DocumentSource, pending: Sequence[Entry]
    ) -> tuple[ContextEstimate | None, EmbeddingEstimate | None]:
        """What contexts and vectors of these documents would take at somebody else's, None where they are made here; reads and cuts
        the documents, and sends and changes nothing."""
        scribe, hosted = self._job.scribe, self._workshop.hosted
        contexts = ContextEstimate(prices=scribe.purse.writing.prices) if scribe is not None else None
        embedding = EmbeddingEstimate(hosted.remote.hosted.provider) if hosted is not None else None
        for labelled, cut in self._cuts(documents, pending):
            sensitivity = class_of(labelled.labels)
            if contexts is not None and scribe is not None:
                contexts = _add_contexts(contexts, scribe, scribe.measure(cut.chunks, cut.within, sensitivity), sensitivity)
            if embedding is not None and hosted is not None:
                embedding = self._add_vectors(embedding, hosted, cut, sensitivity)
        return contexts, embedding

    def _add_vectors(self, total: EmbeddingEstimate, hosted: IndexEmbedder, cut: _Cut, sensitivity: int) -> EmbeddingEstimate:
        if not hosted.permits(self._source.tenant, sensitivity):
            return replace(total, local=total.local + 1)
        told = with_contexts(cut.chunks, cut.around, hosted.count_tokens)
        chunks = [*cut.chunks, *told] if self._job.contexts == "both" else told
        texts = {embed_text(chunk, hosted.count_tokens, cut.limit) for chunk in chunks}
        tokens = total.tokens + sum(map(estimate_tokens, texts))
        return replace(
            total,
            documents=total.documents + 1,
            texts=total.texts + len(texts),
            tokens=tokens,
            cost_micros=round(tokens * hosted.remote.micros_per_token),
        )

    def _cuts(self, documents: DocumentSource, pending: Sequence[Entry]) -> Iterator[tuple[Labelled, _Cut]]:
        with contextlib.closing(self._read(documents, pending)) as read:
            for begun in read:
                if begun.ended is not None or begun.parsed is None:
                    continue
                try:
                    labelled = self._labeller.label(begun.entry, self._narrowing(begun.parsed.front_matter))
                except (Unlabelled, Refused):
                    continue
                yield labelled, self._cut(begun, begun.parsed, labelled)

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
        elif row is not None and self._is_known(entry, row, begun.content_hash):
            begun.ended = Known(entry, replace(row, fingerprint=content.fingerprint))
        elif not content.ready:
            parser.start(content.data, content.name)
        return begun

    def _is_known(self, entry: Entry, row: ManifestRow, content_hash: str) -> bool:
        return self._is_held(row, content_hash) and row.pipeline == self._pipeline(entry, row)

    def _is_held(self, row: ManifestRow | None, content_hash: str) -> bool:
        """Whether the store holds it, whole and of this content."""
        held = row is not None and (row.state, row.content_hash) == ("indexed", content_hash)
        return held and row is not None and row.document_id in self._present

    def _pipeline(self, entry: Entry, row: ManifestRow) -> str:
        if self._job.scribe is None:
            return self._job.pipeline
        try:
            return self._job.pipeline_of(self._labeller.label(entry, row.narrowing).labels)
        except Unlabelled:
            return ""

    def _unread(self, entry: Entry, error: SourceError) -> Lost:
        """A file that is being written, or that the medium does not give, stays as it was until the next run, while its labels do;
        anything else may no longer be shown."""
        row = None
        if error.code not in UNREAD:
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

    def _cut(self, begun: _Begun, parsed: Parsed, labelled: Labelled) -> _Cut:
        assert begun.content is not None
        entry, front = begun.entry, parsed.front_matter
        version = str(front["version"])[:100] if front.get("version") is not None else None
        passage, title = begun.content.passage, clean_title(begun.content.title)
        build, meta = build_passages if passage else build_chunks, self._meta(entry, front, labelled)
        within = self._within(parsed, begun.content)
        around = self._around(parsed, begun.content, meta, within)
        reserve = WRITTEN_TOKENS if self._job.scribe is not None else around.reserve_tokens
        limit = self._workshop.embedder.card.max_tokens - reserve
        chunks = build(
            replace(parsed, title=title if passage else title or parsed.title),
            source=self._source.name,
            key=entry.key,
            uri=entry.uri,
            count=self._workshop.embedder.count_tokens,
            max_tokens=limit,
            version=version,
            meta=meta,
        )
        named = with_entities(chunks, entry.key, {**parsed.meta, **meta}, self._aliases)
        return _Cut(named, around, within, limit, version)

    def _made(self, begun: _Begun, parsed: Parsed, labelled: Labelled, narrowing: str) -> Made | Known:
        assert begun.content is not None
        entry, before = begun.entry, self._rows.get(begun.entry.key)
        self.notes.extend(Failure(entry.key, "label_note", note) for note in labelled.notes)
        cut = self._cut(begun, parsed, labelled)
        chunks, limit, version = cut.chunks, cut.limit, cut.version
        told = with_contexts(chunks, cut.around, self._workshop.embedder.count_tokens)
        pipeline = self._job.pipeline_of(labelled.labels)
        if self._job.scribe is not None:
            written = self._written(entry, cut, labelled)
            told = self._with_written(told, written)
            pipeline = f"{pipeline}+partly.{_digest(written.texts)}" if written.again else pipeline
            if (
                before is not None
                and self._is_held(before, begun.content_hash)
                and (before.pipeline == pipeline or (written.waiting and self._may_stay(before, labelled)))
            ):  # nothing new to show, or soon: not embedded for so little
                return Known(entry, replace(before, fingerprint=begun.content.fingerprint))
        twins: tuple[Chunk, ...] = ()
        if self._job.contexts == "both":
            twins = tuple(replace(chunk, chunk_id=twin_id(chunk.chunk_id)) for chunk in told)
        else:
            chunks = told
        vectors = self._vectors([*chunks, *twins], labelled, limit)
        self._note_without_vector(entry, vectors, labelled)
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
            pipeline, indexed_at_us=self._workshop.now_us(),
        )  # fmt: skip
        return Made(entry, row, document)

    def _within(self, parsed: Parsed, content: Content) -> str:
        """The whole that a passage was cut from; nothing where it does not hold it, being the whole of something else."""
        whole = clean_text(content.within) if content.passage else ""
        return whole if whole and all(block.text in whole for block in parsed.blocks) else ""

    def _around(self, parsed: Parsed, content: Content, meta: Mapping[str, str], within: str) -> Around:
        """What contexts are made from, all of it of this document."""
        if self._job.contexts == "none":
            return Around()
        if content.passage:
            return read_code_around(within) if within and looks_like_code(within) else Around()
        if is_code(parsed):
            return read_code_around(_whole(parsed.blocks))
        headings = [block.text for block in parsed.blocks if block.kind == "heading"]
        return read_prose_around(headings, {**parsed.meta, **meta})

    def _written(self, entry: Entry, cut: _Cut, labelled: Labelled) -> Told:
        """Contexts written for this document under its labels; a note says of how many there are none, and why."""
        assert self._job.scribe is not None
        told = self._job.scribe.tell(
            cut.chunks,
            cut.within,
            source=self._source.name,
            document_id=f"{self._source.name}/{entry.key}",
            sensitivity=class_of(labelled.labels),
            run_id=self._run_id,
        )
        for code, count in sorted(told.codes.items()):
            if code not in QUIET:
                detail = f"{count} of {len(cut.chunks)} chunks stand under a structural context: {code}"
                self.notes.append(Failure(entry.key, "context_not_written", detail))
        return told

    def _with_written(self, chunks: Sequence[Chunk], told: Told) -> tuple[Chunk, ...]:
        count = self._workshop.embedder.count_tokens
        return tuple(
            replace(chunk, context=fit_context(text, count)) if text else chunk
            for chunk, text in zip(chunks, told.texts, strict=True)
        )

    def _may_stay(self, before: ManifestRow, labelled: Labelled) -> bool:
        """Whether the store may show what it has until the answers are there: made under these labels and by these rules, but for contexts."""
        return before.label_digest == labelled.digest and before.pipeline.split("+")[0] == PIPELINE

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

    def _note_without_vector(self, entry: Entry, vectors: Sequence[Embedded], labelled: Labelled) -> None:
        """Why a document, or a piece of it, is found by its words alone: it may not be sent, or the model knows no word of it."""
        without, hosted = sum(not any(one.vector) for one in vectors), self._workshop.hosted
        if not without:
            return
        if hosted is not None and not hosted.permits(self._source.tenant, class_of(labelled.labels)):
            detail = "its class may not go to the embedder: it is found by its words alone"
            self.notes.append(Failure(entry.key, "disclosure_not_permitted", detail))
        else:
            detail = f"the embedder gives no vector for {without} of {len(vectors)} chunks: they are found by their words alone"
            self.notes.append(Failure(entry.key, "no_vector", detail))

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


def _add_contexts(total: ContextEstimate, scribe: Scribe, asks: Sequence[ContextAsk], sensitivity: int) -> ContextEstimate:
    expected = estimate_asks(asks, scribe.purse.writing.reply_tokens)
    return replace(
        total,
        documents=total.documents + bool(asks),
        contexts=total.contexts + len(asks),
        local=total.local + (not scribe.permits(sensitivity)),
        expected=total.expected + expected,
        most=total.most + at_worst(expected, total.prices),
    )


def _digest(texts: Sequence[str | None]) -> str:
    return hashlib.sha256("\0".join(text or "" for text in texts).encode("utf-8", "replace")).hexdigest()[:16]


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
