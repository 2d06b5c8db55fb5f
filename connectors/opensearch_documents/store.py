"""Documents in OpenSearch: a tenant's own indices behind an alias, one index a generation. Implements `router.ports.DocStore`.

Every read is one request of several searches, the first of which reads whose index it is. A process sees its own writes at once;
others see them within the refresh interval of a second, changes of labels and removals at once. Writes are not one transaction, as
the embedded store's are: a document's list of chunks is written before and after them, so that a write that was cut off is
finished or taken back by the next (`index verify` names it), and nothing is visible under other labels than its own. A removal or
change of labels and the version that says so become visible together.
The file is above 400 lines because the port has twenty calls.

INVARIANT: every read carries a filter, lowered to `bool.filter`; nothing is filtered after top-k
(tests/conformance/suite.py::test_filter_comes_before_top_k).
INVARIANT: an index says whose it is, and that is compared in every request (…::test_foreign_partition_is_refused).
INVARIANT: labels are read under the schema of the caller's policy (…::test_schema_changes_between_runs).
INVARIANT: changes go by id and never by query, which would miss what is not yet refreshed
(tests/opensearch/test_opensearch_traps.py::test_trap_by_query_sees_refreshed_only).
"""

from __future__ import annotations

import contextlib
import copy
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from connectors.opensearch_documents import mapping, search
from connectors.opensearch_documents.lowering import Query, all_of, lower_filter
from connectors.opensearch_documents.mapping import Filed, Partition, Words, entry_id
from connectors.opensearch_documents.partitions import META_PART, PAGE, TRIES, Partitions, no_generation, other_model, pages_of
from connectors.opensearch_documents.replies import (
    check_answer,
    count_of,
    failure,
    hits_of,
    list_of,
    mixed,
    object_of,
    reading,
    text_of,
)
from connectors.opensearch_documents.search import Statistics
from connectors.opensearch_documents.wire import Deadline, Place, Wire
from router.domain import SOURCE_FIELD, Found, Generation, IndexedDocument, Labels, Leg, ModelCard, Search, Stored, label_digest
from router.errors import SourceError
from router.filters import EntityType, Field, Filter, Never, check, check_text
from router.ports import DocumentInfo
from router.storable import check_document, check_labels

WAIT_S = 30.0
"""Of calls that come without a deadline: writes, lists, reviews."""
EXACT_BELOW = 100_000
_MOST_AT_ONCE = 10_000
_MOST_LOWERED = 512
_NO_TWINS: Query = {"bool": {"must_not": [{"term": {"idx": mapping.CONTEXTUAL}}]}}


@dataclass(frozen=True, slots=True)
class _Counted:
    """What a filter admits for the words of a search, in the state of the index that it was counted in."""

    search: Search
    filter: str
    state: Partition
    statistics: Statistics

    def is_of(self, other: Search, filter_: str) -> bool:
        mine = self.search
        asked = (mine.tenant, mine.text, mine.plain, mine.entities) == (other.tenant, other.text, other.plain, other.entities)
        return asked and self.filter == filter_


class OpenSearchDocuments:
    """`document_type` gives the attributes that labels may have (a policy reload may add some)."""

    def __init__(
        self,
        place: Place,
        document_type: Callable[[], EntityType],
        *,
        prefix: str = "pointsman",
        exact_below: int = EXACT_BELOW,
        shards: int = 1,
        replicas: int = 1,
        wait_s: float = WAIT_S,
    ) -> None:
        self._wire = Wire(place)
        settings = mapping.index_settings(shards, replicas)
        self._partitions = Partitions(self._wire, prefix=prefix, wait_s=wait_s, settings=settings)
        self._document_type = document_type
        self._exact_below = exact_below
        self._words = Words()
        self._fitted: tuple[Partition, EntityType, list[str]] | None = None
        self._lowered: dict[int, tuple[Filter, EntityType, str]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        self._partitions.close()
        self._wire.close()

    # --- asking -------------------------------------------------------------------------------------------------------

    def foresee(self, search_: Search) -> object:
        """The count: a round trip that needs no vector."""
        filter_ = self._lower(search_.filter)
        if isinstance(search_.filter, Never):
            return ()  # to whoever looks on, as if it had been counted
        return self._count(search_, filter_, Deadline(search_.deadline_s))

    def search(self, search_: Search) -> Found:
        filter_ = self._lower(search_.filter)
        if isinstance(search_.filter, Never) or (search_.text is None and search_.vector is None):
            return Found((), 0)
        deadline = Deadline(search_.deadline_s)
        counted = search_.foreseen if isinstance(search_.foreseen, _Counted) else None
        for _ in range(TRIES):
            if counted is None or not counted.is_of(search_, filter_):
                counted = self._count(search_, filter_, deadline)
            if search_.vector is not None and search_.model_id != (counted.state.model_id or search_.model_id):
                raise other_model()
            answers = self._search_legs(search_, filter_, counted.state, counted.statistics, deadline)
            if answers is not None:
                return answers
            counted = None
        raise failure(409, "")  # generations change faster than they can be asked

    def _count(self, search_: Search, filter_: str, deadline: Deadline) -> _Counted:
        words = [] if search_.text is None else self._words.of_question(search_.text)

        def build(state: Partition) -> list[str]:
            part = search.count_part(self._chunks(search_, filter_, state), words, _wait_ms(deadline))
            _prove(filter_, {"lexical": part})
            return [part]

        asked = self._partitions.ask(search_.tenant, build, deadline)
        if asked is None:
            raise failure(404, "")
        state, [counted] = asked
        check_answer(counted)
        return _Counted(search_, filter_, state, search.read_statistics(counted, words))

    def _search_legs(
        self, search_: Search, filter_: str, state: Partition, statistics: Statistics, deadline: Deadline
    ) -> Found | None:
        """Both legs in one request, on the very index that was counted; None where it is gone by now, or another one has its name."""
        chunks, limit, wait_ms = self._chunks(search_, filter_, state), max(0, search_.limit), _wait_ms(deadline)
        vector = None if search_.vector is None else search.as_floats(search_.vector)
        parts: dict[Leg, str] = {}
        if limit and statistics.admitted and vector is not None and state.dimensions is not None:
            exact = statistics.admitted <= self._exact_below
            parts["dense"] = search.dense_part(chunks, vector, limit, wait_ms, exact=exact)
        if limit and statistics.weights:
            parts["lexical"] = search.lexical_part(chunks, statistics, limit, wait_ms)
        if not parts:
            return Found((), statistics.admitted, proof=_prove(filter_, {}), version=state.version)
        proof = _prove(filter_, parts)
        answers = self._wire.search_many(state.index, [META_PART, *parts.values()], deadline=deadline)
        again = None if answers is None else self._partitions.read_state(search_.tenant, answers[0])
        if answers is None or again is None:
            return None
        if again.index != state.index:
            raise mixed()
        if not again.is_one_with(state):
            return None
        hits, failed = _read_legs(dict(zip(parts, answers[1:], strict=True)), state.index, limit)
        candidates = search.read_candidates(hits.get("lexical", ()), hits.get("dense", ()), statistics, vector)
        possible = statistics.possible if candidates else 0.0
        return Found(candidates, statistics.admitted, possible, failed, proof, state.version)

    def _fitting(self, state: Partition) -> list[str]:
        """Worked out once for a state and a schema, each of which is one object for as long as it holds."""
        entity, fitted = self._document_type(), self._fitted
        if fitted is None or fitted[0] is not state or fitted[1] is not entity:
            fitted = self._fitted = (state, entity, state.fitting(entity))
        return fitted[2]

    def _chunks(self, search_: Search, filter_: str, state: Partition) -> str:
        return search.admitted_chunks(filter_, self._fitting(state), search_.plain, search_.entities)

    # --- reading ------------------------------------------------------------------------------------------------------

    def load(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[Stored]:
        found: dict[str, Stored] = {}
        deadline = Deadline(deadline_s)
        for names in pages_of(list(dict.fromkeys(chunk_ids))):
            wanted: Query = {"ids": {"values": [entry_id("chunk", name) for name in names]}}
            for stored in self._stored(tenant, f, wanted, len(names), deadline):
                found[stored.chunk.chunk_id] = stored
        return [found[name] for name in chunk_ids if name in found]

    def vectors(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[bytes]:
        found: dict[str, bytes] = {}
        deadline = Deadline(deadline_s)
        for names in pages_of(list(dict.fromkeys(chunk_ids))):
            wanted: Query = {"ids": {"values": [entry_id("chunk", name) for name in names]}}
            more = {"docvalue_fields": ["id", "vector"], "_source": False}
            for hit in self._hits(tenant, f, [wanted], {"size": len(names), **more}, deadline):
                with reading():
                    found[text_of(hit["fields"]["id"][0])] = mapping.decode_value(hit["fields"]["vector"][0])
        return [found[name] for name in chunk_ids if name in found]

    def siblings(self, tenant: str, document_id: str, first: int, last: int, f: Filter, *, deadline_s: float) -> list[Stored]:
        place: list[Query] = [{"term": {"document": document_id}}, {"range": {"ordinal": {"gte": first, "lte": last}}}]
        wanted = all_of([*place, _NO_TWINS])
        found = self._stored(tenant, f, wanted, mapping.MOST_RESULTS, Deadline(deadline_s))
        return sorted(found, key=lambda stored: stored.chunk.ordinal)

    def superseding(self, tenant: str, document_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[Stored]:
        if not document_ids:
            return []
        place: list[Query] = [{"terms": {"supersedes": list(document_ids)}}, {"term": {"ordinal": 0}}]
        wanted = all_of([*place, _NO_TWINS])
        found = self._stored(tenant, f, wanted, mapping.MOST_RESULTS, Deadline(deadline_s))
        return sorted(found, key=lambda stored: stored.chunk.chunk_id)

    def subjects(self, tenant: str, names: Sequence[str], f: Filter, *, most: int, deadline_s: float) -> list[tuple[str, Stored]]:
        """One search a name, all in one request; of a document the chunk that comes first."""
        names = list(dict.fromkeys(names))
        order = [{"document": "asc"}, {"ordinal": "asc"}]
        body = {"size": most, "collapse": {"field": "document"}, "sort": order, "_source": list(mapping.STORED_FIELDS)}
        wanted = [all_of([{"term": {"kind": "chunk"}}, {"term": {"subjects": name}}, _NO_TWINS]) for name in names]
        answers = self._hits_each(tenant, f, wanted, body, Deadline(deadline_s)) if names and most > 0 else []
        return [(name, mapping.read_stored(hit["_source"])) for name, hits in zip(names, answers, strict=False) for hit in hits]

    def admitted_labels(self, tenant: str, f: Filter, *, deadline_s: float) -> list[Labels]:
        """One hit a label digest, of documents that have chunks."""
        body = {"size": mapping.MOST_RESULTS, "_source": ["labels"], "collapse": {"field": "digest"}}
        some: list[Query] = [{"term": {"kind": "document"}}, {"range": {"chunks": {"gt": 0}}}]
        hits = self._hits(tenant, f, some, body, Deadline(deadline_s), chunks=False)
        with reading():
            return [mapping.read_labels(text) for text in sorted({text_of(hit["_source"]["labels"]) for hit in hits})]

    def _stored(self, tenant: str, f: Filter, wanted: Query, size: int, deadline: Deadline) -> list[Stored]:
        body = {"size": size, "_source": list(mapping.STORED_FIELDS)}
        hits = self._hits(tenant, f, [wanted], body, deadline)
        with reading():
            return [mapping.read_stored(hit["_source"]) for hit in hits]

    def _hits(
        self,
        tenant: str,
        f: Filter,
        wanted: Sequence[Query],
        body: Mapping[str, Any],
        deadline: Deadline,
        *,
        chunks: bool = True,
    ) -> list[dict[str, Any]]:
        """What is wanted and admitted by `f`; nothing where the tenant has nothing."""
        kind: list[Query] = [{"term": {"kind": "chunk"}}] if chunks else []
        several = self._hits_each(tenant, f, [all_of([*kind, *wanted])], body, deadline)
        return several[0] if several else []

    def _hits_each(
        self, tenant: str, f: Filter, wanted: Sequence[Query], body: Mapping[str, Any], deadline: Deadline
    ) -> list[list[dict[str, Any]]]:
        """The same of several queries, in one request: the filter stands in each."""
        filter_ = self._lower(f)
        if isinstance(f, Never):
            return []

        def build(state: Partition) -> list[str]:
            fits = search.fits(self._fitting(state))
            rest = json.dumps({"track_total_hits": False, "timeout": f"{_wait_ms(deadline)}ms", **body})
            places = (search.as_text(all_of([one, fits])) for one in wanted)
            return [f'{{"query":{{"bool":{{"filter":[{place},{filter_}]}}}},{rest[1:]}' for place in places]

        asked = self._partitions.ask(tenant, build, deadline)
        if asked is None:
            return []
        state, answers = asked
        several: list[list[dict[str, Any]]] = []
        for answer in answers:
            check_answer(answer)
            several.append(hits_of(answer, state.index, body["size"]))
        return several

    # --- lists --------------------------------------------------------------------------------------------------------

    def documents(self, tenant: str, *, generation: str | None = None) -> Iterator[DocumentInfo]:
        for row in self._rows(tenant, generation, ("id", "source", "chunks", "digest")):
            yield DocumentInfo(row["source"], row["id"], row["chunks"], row["digest"])

    def labelled(self, tenant: str) -> Iterator[tuple[str, str, Labels]]:
        for row in self._rows(tenant, None, ("id", "source", "labels")):
            yield row["source"], row["id"], mapping.read_labels(row["labels"])

    def admitted(self, tenant: str, f: Filter) -> list[str]:
        filter_ = self._lower(f)
        body = {"size": _MOST_AT_ONCE + 1, "sort": [{"id": "asc"}], "_source": False, "docvalue_fields": ["id"]}
        documents: list[Query] = [{"term": {"kind": "document"}}]
        hits = self._hits(tenant, f, documents, body, self._partitions.soon(), chunks=False)
        if len(hits) <= _MOST_AT_ONCE:
            with reading():
                return [text_of(hit["fields"]["id"][0]) for hit in hits]
        state = self._partitions.state(tenant, self._partitions.soon())
        if state is None:
            return []
        query = all_of([search.fits(self._fitting(state)), json.loads(filter_)])
        return [row["id"] for row in self._partitions.pages(state.index, query, ("id",))]

    def _rows(self, tenant: str, generation: str | None, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        deadline = self._partitions.soon()
        state = (
            self._partitions.state(tenant, deadline)
            if generation is None
            else self._partitions.held(tenant, generation, deadline)
        )
        if state is not None:
            yield from self._partitions.pages(state.index, {"match_all": {}}, fields)

    def label_digest(self, source: str, labels: Labels) -> str:
        return label_digest(source, labels)

    def tenants(self) -> list[str]:
        """Read inside each index, whose name is a digest."""
        found: set[str] = set()
        for index in self._partitions.indices("*"):
            tenant = self._partitions.owner(index)
            if tenant is not None and index.startswith(f"{self._partitions.alias(tenant)}-g-"):
                found.add(tenant)
        return sorted(found)

    def version(self, tenant: str, *, deadline_s: float | None = None, seen: bool = False) -> str:
        """Of what a search would find now, or of what the latest one found."""
        known = self._partitions.seen(tenant) if seen else None
        if known is not None:
            return known.version
        state = self._partitions.state(tenant, self._partitions.soon() if deadline_s is None else Deadline(deadline_s))
        return "empty" if state is None else state.version

    def generation(self, tenant: str) -> str | None:
        current = self._partitions.current(tenant, self._partitions.soon())
        return None if current is None else current.removeprefix(f"{self._partitions.alias(tenant)}-")

    def _lower(self, f: Filter) -> str:
        """Refuse before any I/O what could be misread. Grants are remembered, so the very same filter comes with every question:
        known by identity, and the entry keeps it, so that no other object can take its place."""
        entity = self._document_type()
        held = self._lowered.get(id(f))
        if held is None or held[0] is not f or held[1] is not entity:
            fields = {**entity.fields, SOURCE_FIELD: Field("string", required=True)}
            check(f, EntityType(entity.name, fields))
            if len(self._lowered) >= _MOST_LOWERED:
                self._lowered.clear()
            held = self._lowered[id(f)] = (f, entity, search.as_text(lower_filter(f, fields)))
        return held[2]

    # --- writing ------------------------------------------------------------------------------------------------------

    def put(self, tenant: str, documents: Sequence[IndexedDocument], *, model: ModelCard, generation: str | None = None) -> None:
        entity = self._document_type()
        for document in documents:
            check_document(document, entity, model)
            mapping.check_sizes(document)
        with self._lock:
            state = self._partitions.open(tenant, generation, model)
            filed = [mapping.file_labels(document.source, document.labels) for document in documents]
            state = self._partitions.prepare(state, filed, [document.labels for document in documents], model)
            held = self._members(state.index, [document.document_id for document in documents])
            self._wire.write_many(state.index, self._entries(documents, filed, held))
            self._partitions.wrote(state.index)
            self._partitions.note(replace(state, writes=state.writes + 1))
            if generation is None and self._partitions.current(tenant, self._partitions.soon()) is None:
                self._partitions.refresh(state.index, self._partitions.soon())
                self._partitions.point(tenant, state.index, None)

    def _entries(
        self, documents: Sequence[IndexedDocument], filed: Sequence[Filed], held: Mapping[str, list[str]]
    ) -> Iterator[str]:
        """A document's own entry names its chunks before they come and when they are there, the old ones as long as they stay."""
        for document, labels in zip(documents, filed, strict=True):
            own = entry_id("document", document.document_id)
            new = {entry_id("chunk", chunk.chunk_id): (idx, chunk, e) for idx, chunk, e in mapping.indexes_of(document)}
            old = [member for member in held.get(document.document_id, ()) if member not in new]
            yield mapping.write_entry(own, own, mapping.document_json(document, labels, [*new, *old]))
            for member, (idx, chunk, embedded) in new.items():
                row = mapping.chunk_json(idx, chunk, embedded, labels, self._words.of_chunk(chunk))
                yield mapping.write_entry(member, own, row)
            if old:
                yield from (mapping.remove_entry(member, own) for member in old)
                yield mapping.write_entry(own, own, mapping.document_json(document, labels, list(new)))

    def relabel(self, tenant: str, labels: Mapping[str, Labels], *, generation: str | None = None) -> int:
        entity = self._document_type()
        for new in {id(new): new for new in labels.values()}.values():
            check_labels(new, entity)
        with self._lock:
            state = self._partitions.existing(tenant, generation)
            if state is None:
                return 0
            rows = self._partitions.document_rows(state.index, list(labels))
            filed = {name: mapping.file_labels(row["source"], labels[name]) for name, row in rows.items()}
            changed = [name for name, row in rows.items() if filed[name].fields["digest"] != row["digest"]]
            if not changed:
                return 0
            state = self._partitions.prepare(state, [filed[name] for name in changed], [labels[name] for name in changed], None)
            self._wire.write_many(state.index, self._relabelling(changed, rows, filed), missing_ok=True)
            self._partitions.note(replace(state, writes=state.writes + 1))
            self._partitions.refresh(state.index, self._partitions.soon())
        return len(changed)

    def _relabelling(
        self, changed: Sequence[str], rows: Mapping[str, Mapping[str, Any]], filed: Mapping[str, Filed]
    ) -> Iterator[str]:
        """The document's own entry comes last: as long as it says the old labels, the change is not done."""
        for name in changed:
            own = entry_id("document", name)
            for member in rows[name]["members"].split():
                yield mapping.relabel_entry(member, own, filed[name])
            yield mapping.relabel_entry(own, own, filed[name])

    def delete(self, tenant: str, document_ids: Sequence[str], *, generation: str | None = None) -> int:
        with self._lock:
            state = self._partitions.existing(tenant, generation)
            return 0 if state is None else self._remove(state, document_ids)

    def _remove(self, state: Partition, document_ids: Sequence[str]) -> int:
        held = self._members(state.index, list(dict.fromkeys(document_ids)))
        if not held:
            return 0

        def entries() -> Iterator[str]:
            for name, members in held.items():
                own = entry_id("document", name)
                yield from (mapping.remove_entry(member, own) for member in (*members, own))

        self._wire.write_many(state.index, entries())
        self._partitions.note(replace(state, writes=state.writes + 1))
        self._partitions.refresh(state.index, self._partitions.soon())
        return len(held)

    def _members(self, index: str, document_ids: Sequence[str]) -> dict[str, list[str]]:
        """Entries of the chunks of those documents that are there, whether refreshed or not."""
        return {name: row["members"].split() for name, row in self._partitions.document_rows(index, document_ids).items()}

    # --- generations --------------------------------------------------------------------------------------------------

    def begin_generation(self, tenant: str, *, keep_sources: Iterable[str] = ()) -> str:
        """An index says whose it is when it holds all it starts with: one that does not say it was cut off, and is never used."""
        check_text(tenant, "a tenant's name")
        keep = sorted(keep_sources)
        with self._lock:
            state = self._partitions.existing(tenant, None)
            numbers = [int(index.rpartition("-g-")[2]) for index in self._partitions.indices(self._partitions.alias(tenant))]
            name = f"g-{max(numbers, default=0) + 1:06d}"
            new = Partition(f"{self._partitions.alias(tenant)}-{name}", tenant)
            self._partitions.create(new.index)
            if state is not None and keep:
                self._partitions.copy(state, new.index, keep)
                new = replace(state, index=new.index, at=None, writes=0, whole=False, identity="")
            self._partitions.note(new)
            self._partitions.refresh(new.index, self._partitions.soon())
        return name

    def switch(self, tenant: str, generation: str) -> None:
        with self._lock:
            deadline = self._partitions.soon()
            previous = self._partitions.current(tenant, deadline)
            index = f"{self._partitions.alias(tenant)}-{generation}"
            if previous == index:
                return
            if self._partitions.held(tenant, generation, deadline) is None:
                raise no_generation(generation)
            self._seal(tenant, index)
            if previous is not None:
                with contextlib.suppress(SourceError):  # one that is damaged is left behind, and is no generation to go back to
                    self._seal(tenant, previous)
            self._partitions.refresh(index, deadline)
            self._partitions.point(tenant, index, previous)
            for left in self._partitions.indices(self._partitions.alias(tenant)):
                if left not in (index, previous):
                    self._partitions.remove(left)

    def seal(self, tenant: str, generation: str) -> None:
        with self._lock:
            self._seal(tenant, f"{self._partitions.alias(tenant)}-{generation}")

    def _seal(self, tenant: str, index: str) -> None:
        state = self._partitions.read_meta(tenant, index, self._partitions.soon())
        if state is None:
            raise no_generation(index.removeprefix(f"{self._partitions.alias(tenant)}-"))
        if not state.whole:
            self._partitions.note(replace(state, whole=True))

    def generations(self, tenant: str) -> list[Generation]:
        current = self._partitions.current(tenant, self._partitions.soon())
        if current is not None:
            self._partitions.read_meta(tenant, current, self._partitions.soon())  # it may be another tenant's
        alias = self._partitions.alias(tenant)
        found: list[Generation] = []
        for index in self._partitions.indices(alias):
            state = self._partitions.read_meta(tenant, index, self._partitions.soon())
            name = index.removeprefix(f"{alias}-")
            if state is None:
                found.append(Generation(name, index == current, whole=False, model_id=None, documents=0, chunks=0))
                continue
            self._partitions.refresh(index, self._partitions.soon())
            documents, chunks = (self._partitions.count(index, kind) for kind in ("document", "chunk"))
            found.append(Generation(name, index == current, state.whole or index == current, state.model_id, documents, chunks))
        return found

    def discard(self, tenant: str, generation: str) -> None:
        with self._lock:
            index = f"{self._partitions.alias(tenant)}-{generation}"
            if index == self._partitions.current(tenant, self._partitions.soon()):
                raise SourceError("generation_current", "the current generation cannot be removed", "switch to another one first")
            if index not in self._partitions.indices(self._partitions.alias(tenant)):
                raise no_generation(generation)
            self._partitions.remove(index)

    @contextlib.contextmanager
    def pinned(self, tenant: str, generation: str) -> Iterator[OpenSearchDocuments]:
        """Over the same connections; what is known of the current generation is not taken along."""
        if self._partitions.held(tenant, generation, self._partitions.soon()) is None:
            raise no_generation(generation)
        view = copy.copy(self)
        partitions = view._partitions = self._partitions.pinned(tenant, generation)  # noqa: SLF001 (of the same class)
        try:
            yield view
        finally:
            partitions.close()

    def forget(self, tenant: str, document_ids: Sequence[str]) -> int:
        """Expunges also where nothing is held any more: it may have been removed by a call that ended before the engine let go."""
        held, whole = 0, list[str]()
        with self._lock:
            if self._partitions.existing(tenant, None) is None:
                return 0
            for index in self._partitions.indices(self._partitions.alias(tenant)):
                state = self._partitions.read_meta(tenant, index, self._partitions.soon())
                if state is None:
                    self._partitions.remove(index)
                else:
                    held += bool(self._remove(state, document_ids))
                    whole.append(index)
            for index in whole:
                self._partitions.expunge(index)
        return held

    # --- verifying ----------------------------------------------------------------------------------------------------

    def drop(self, tenant: str) -> None:
        """Remove the partition whole, with all its generations."""
        for index in self._partitions.indices(self._partitions.alias(tenant)):
            self._partitions.remove(index)

    def verify(self, tenant: str) -> list[str]:
        deadline = self._partitions.soon()
        state = self._partitions.state(tenant, deadline)
        if state is None:
            return []
        faults = [f"opensearch: {colour}" for colour in self._colour(state.index, deadline)]
        rows, doubtful = self._doubtful(state)
        if doubtful:
            faults.append(
                f"documents whose chunks are not all there, or under other labels ({len(doubtful)}): run `pointsman index verify --repair`"
            )
        fitting = set(self._fitting(state))
        if misfits := sum(row["shape"] not in fitting for row in rows.values()):
            faults.append(
                f"documents whose labels do not fit schema.cedarschema, so that nobody sees them ({misfits}): run `pointsman index`"
            )
        return faults

    def doubtful(self, tenant: str) -> list[str]:
        state = self._partitions.existing(tenant, None)
        return [] if state is None else self._doubtful(state)[1]

    def mend(self, tenant: str) -> list[str]:
        with self._lock:
            state = self._partitions.existing(tenant, None)
            if state is None:
                return []
            rows, doubtful = self._doubtful(state)
            if not doubtful:
                return []
            self._wire.write_many(state.index, self._removing(state, rows, doubtful))
            self._partitions.note(replace(state, writes=state.writes + 1))
            self._partitions.refresh(state.index, self._partitions.soon())
        return [f"documents that contradicted themselves were removed ({len(doubtful)})"]

    def _removing(self, state: Partition, rows: Mapping[str, Any], doubtful: Iterable[str]) -> Iterator[str]:
        """All that says it is of the document, and all that its own entry names, which comes last."""
        named = self._members(state.index, [name for name in doubtful if name in rows])
        for name in doubtful:
            own = entry_id("document", name)
            members = dict.fromkeys([*self._partitions.entries_of(state.index, name), *named.get(name, ())])
            yield from (mapping.remove_entry(member, own) for member in members)
            if name in rows:
                yield mapping.remove_entry(own, own)

    def _doubtful(self, state: Partition) -> tuple[dict[str, dict[str, Any]], list[str]]:
        """Every document's own entry, and the documents of which anything is missing, left over or under other labels."""
        fields = ("id", "source", "chunks", "digest", "shape", "labels")
        rows = {row["id"]: row for row in self._partitions.pages(state.index, {"match_all": {}}, fields)}
        counted, lost = self._count_chunks(state.index)
        wrong = {name for name, row in rows.items() if counted.get((name, row["digest"]), 0) != row["chunks"]}
        wrong |= {name for name, digest in counted if name not in rows or digest != rows[name]["digest"]}
        wrong |= {name for name, row in rows.items() if row["digest"] != _digest_of(row)}
        return rows, sorted(wrong | lost)

    def _colour(self, index: str, deadline: Deadline) -> list[str]:
        health = self._wire.send("GET", f"/_cluster/health/{index}", params={"level": "indices"}, deadline=deadline)
        return ["the index is red"] if text_of(object_of(health).get("status")) == "red" else []

    def _count_chunks(self, index: str) -> tuple[dict[tuple[str, str], int], set[str]]:
        """Chunks by document and label digest, and documents of chunks that have a direction but no place among the vectors."""
        counted: dict[tuple[str, str], int] = {}
        lost: set[str] = set()
        after: Mapping[str, Any] = {}
        sources = [{name: {"terms": {"field": name}}} for name in ("document", "digest")]
        unplaced = {"bool": {"filter": [{"term": {"directed": True}}], "must_not": [{"exists": {"field": "v"}}]}}
        while True:
            pages = {"size": PAGE, "sources": sources} | ({"after": after} if after else {})
            body = {
                "size": 0,
                "query": {"bool": {"filter": [{"term": {"kind": "chunk"}}]}},
                "aggs": {"each": {"composite": pages, "aggs": {"unplaced": {"filter": unplaced}}}},
            }
            answer = self._wire.send(
                "POST",
                f"/{index}/_search",
                params={"allow_partial_search_results": "false"},
                body=body,
                deadline=self._partitions.soon(),
            )
            check_answer(answer)
            with reading():
                each = answer["aggregations"]["each"]
                for bucket in list_of(each["buckets"]):
                    document, digest = text_of(bucket["key"]["document"]), text_of(bucket["key"]["digest"])
                    counted[document, digest] = count_of(bucket["doc_count"])
                    if count_of(bucket["unplaced"]["doc_count"]):
                        lost.add(document)
            if "after_key" not in each:
                return counted, lost
            after = object_of(each["after_key"])


def _digest_of(row: Mapping[str, Any]) -> str:
    """Of the labels as they stand there; nothing where they cannot be read."""
    try:
        return label_digest(row["source"], mapping.read_labels(row["labels"]))
    except (ValueError, TypeError, AttributeError):
        return ""


def _prove(filter_: str, parts: Mapping[Leg, str]) -> str:
    """What is about to be sent holds the filter, character by character, or nothing is sent; the record says which parts did."""
    for part in parts.values():
        if filter_ not in part:
            raise SourceError("filter_missing", "a search was built without its filter", "report this: nothing was sent")
    return f"filter sent with {', '.join(['count', *sorted(parts)])}"


def _read_legs(
    answers: Mapping[Leg, Mapping[str, Any]], index: str, limit: int
) -> tuple[dict[Leg, list[dict[str, Any]]], tuple[tuple[Leg, str], ...]]:
    """Hits of each leg that is whole, and the codes of those that are not. Raises where none is, and what is not an answer to what
    was asked spoils both."""
    hits: dict[Leg, list[dict[str, Any]]] = {}
    failed: list[tuple[Leg, SourceError]] = []
    for leg, answer in answers.items():
        try:
            check_answer(answer)
        except SourceError as error:
            failed.append((leg, error))
        else:
            hits[leg] = hits_of(answer, index, limit, fields=search.LEG_FIELDS[leg])
    if failed and not hits:
        raise failed[0][1]
    return hits, tuple((leg, error.code) for leg, error in failed)


def _nothing_more(_: Partition) -> list[str]:
    return []


def _wait_ms(deadline: Deadline) -> int:
    return max(1, int(deadline.left_s() * 1000))
