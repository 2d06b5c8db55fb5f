"""Documents in OpenSearch: a tenant's own indices behind an alias, one index a generation. Implements `router.ports.DocStore`.

Every read is one request of several searches, the first of which reads whose index it is. A process sees its own writes at once;
others see them within the refresh interval of a second, changes of labels and removals at once. Writes are not one transaction, as
the embedded store's are: a document's list of chunks is written before and after them, so that a write that was cut off is
finished or taken back by the next (`index verify` names it), and nothing is visible under other labels than its own.

INVARIANT: every read carries a filter, lowered to `bool.filter`; nothing is filtered after top-k
(tests/conformance/suite.py::test_filter_comes_before_top_k).
INVARIANT: an index says whose it is, and that is compared in every request (…::test_foreign_partition_is_refused).
INVARIANT: labels are read under the schema of the caller's policy (…::test_schema_changes_between_runs).
INVARIANT: changes go by id and never by query, which would miss what is not yet refreshed
(tests/opensearch/test_opensearch_traps.py::test_trap_by_query_sees_refreshed_only).
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from connectors.opensearch_documents import mapping, search
from connectors.opensearch_documents.lowering import Query, all_of, lower_filter
from connectors.opensearch_documents.mapping import META_ID, Filed, Partition, Words, entry_id
from connectors.opensearch_documents.search import Statistics
from connectors.opensearch_documents.wire import Deadline, Place, Wire, check_answer, failure
from router.domain import SOURCE_FIELD, Found, IndexedDocument, Labels, Leg, ModelCard, Search, Stored, label_digest
from router.errors import SourceError
from router.filters import EntityType, Field, Filter, Never, check, check_text
from router.ports import DocumentInfo
from router.storable import check_document, check_labels, partition_name

WAIT_S = 30.0
"""Of calls that come without a deadline: writes, lists, reviews."""
EXACT_BELOW = 100_000
_GENERATION = re.compile(r"g-\d{6,}")
_PAGE = 1_000
_MOST_AT_ONCE = 10_000
_MOST_LOWERED = 512
_TRIES = 3
_EXPUNGE_S = 300.0
_COPY_S = 3600.0
_META_PART = json.dumps({"size": 1, "query": {"ids": {"values": [META_ID]}}, "_source": ["meta"], "seq_no_primary_term": True})

Build = Callable[[Partition], list[str]]


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
        self._document_type = document_type
        self._prefix, self._exact_below, self._wait_s = prefix, exact_below, wait_s
        self._settings = mapping.index_settings(shards, replicas)
        self._words = Words()
        self._known: dict[str, Partition] = {}
        self._checked: set[str] = set()
        self._dirty: set[str] = set()
        self._lowered: dict[int, tuple[Filter, EntityType, Query]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """What was written last becomes visible to all before the connection goes."""
        with contextlib.suppress(SourceError):
            for index in sorted(self._dirty):
                self._refresh(index, Deadline(self._wait_s))
        self._wire.close()

    # --- asking -------------------------------------------------------------------------------------------------------

    def search(self, search_: Search) -> Found:
        filter_ = self._lower(search_.filter)
        if isinstance(search_.filter, Never) or (search_.text is None and search_.vector is None):
            return Found((), 0)
        deadline = Deadline(search_.deadline_s)
        words = [] if search_.text is None else self._words.of_question(search_.text)
        for _ in range(_TRIES):
            state, statistics = self._count(search_, filter_, words, deadline)
            answers = self._search_legs(search_, filter_, state, statistics, deadline)
            if answers is not None:
                return answers
        raise failure(409, "")  # generations change faster than they can be asked

    def _count(self, search_: Search, filter_: Query, words: Sequence[str], deadline: Deadline) -> tuple[Partition, Statistics]:
        def build(state: Partition) -> list[str]:
            return [search.count_part(self._chunks(search_, filter_, state), words, _wait_ms(deadline))]

        asked = self._ask(search_.tenant, build, deadline)
        if asked is None:
            raise failure(404, "")
        state, [counted] = asked
        check_answer(counted)
        if search_.vector is not None and search_.model_id != (state.model_id or search_.model_id):
            raise _other_model()
        return state, search.read_statistics(counted, words)

    def _search_legs(
        self, search_: Search, filter_: Query, state: Partition, statistics: Statistics, deadline: Deadline
    ) -> Found | None:
        """Both legs in one request, on the very index that was counted; None where it is gone by now."""
        chunks, limit, wait_ms = self._chunks(search_, filter_, state), max(0, search_.limit), _wait_ms(deadline)
        vector = None if search_.vector is None else search.as_floats(search_.vector)
        parts: dict[Leg, str] = {}
        if limit and statistics.admitted and vector is not None and state.dimensions is not None:
            exact = statistics.admitted <= self._exact_below
            parts["dense"] = search.dense_part(chunks, vector, limit, wait_ms, exact=exact)
        if limit and statistics.weights:
            parts["lexical"] = search.lexical_part(chunks, statistics, limit, wait_ms)
        if not parts:
            return Found((), statistics.admitted)
        answers = self._wire.search_many(state.index, [_META_PART, *parts.values()], deadline=deadline)
        if answers is None or self._read_state(search_.tenant, answers[0]) is None:
            return None
        hits, failed = _read_legs(dict(zip(parts, answers[1:], strict=True)))
        candidates = search.read_candidates(hits.get("lexical", ()), hits.get("dense", ()), statistics, vector)
        return Found(candidates, statistics.admitted, statistics.possible if candidates else 0.0, failed)

    def _chunks(self, search_: Search, filter_: Query, state: Partition) -> Query:
        return search.admitted_chunks(filter_, state.fitting(self._document_type()), search_.plain)

    # --- reading ------------------------------------------------------------------------------------------------------

    def load(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[Stored]:
        found: dict[str, Stored] = {}
        for names in _pages(list(dict.fromkeys(chunk_ids))):
            wanted: Query = {"ids": {"values": [entry_id("chunk", name) for name in names]}}
            for stored in self._stored(tenant, f, wanted, len(names), Deadline(deadline_s)):
                found[stored.chunk.chunk_id] = stored
        return [found[name] for name in chunk_ids if name in found]

    def vectors(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[bytes]:
        found: dict[str, bytes] = {}
        for names in _pages(list(dict.fromkeys(chunk_ids))):
            wanted: Query = {"ids": {"values": [entry_id("chunk", name) for name in names]}}
            more = {"docvalue_fields": ["id", "vector"], "_source": False}
            for hit in self._hits(tenant, f, [wanted], {"size": len(names), **more}, Deadline(deadline_s)):
                found[hit["fields"]["id"][0]] = mapping.decode_value(hit["fields"]["vector"][0])
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

    def admitted_labels(self, tenant: str, f: Filter, *, deadline_s: float) -> list[Labels]:
        """One hit a label digest, of documents that have chunks."""
        body = {"size": mapping.MOST_RESULTS, "_source": ["labels"], "collapse": {"field": "digest"}}
        some: list[Query] = [{"term": {"kind": "document"}}, {"range": {"chunks": {"gt": 0}}}]
        hits = self._hits(tenant, f, some, body, Deadline(deadline_s), chunks=False)
        return [mapping.read_labels(text) for text in sorted({hit["_source"]["labels"] for hit in hits})]

    def _stored(self, tenant: str, f: Filter, wanted: Query, size: int, deadline: Deadline) -> list[Stored]:
        body = {"size": size, "_source": list(mapping.STORED_FIELDS)}
        return [mapping.read_stored(hit["_source"]) for hit in self._hits(tenant, f, [wanted], body, deadline)]

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
        filter_ = self._lower(f)
        if isinstance(f, Never):
            return []
        kind: list[Query] = [{"term": {"kind": "chunk"}}] if chunks else []

        def build(state: Partition) -> list[str]:
            inner = [*kind, *wanted, search.fits(state.fitting(self._document_type())), filter_]
            query = {"bool": {"filter": inner}}
            return [json.dumps({"query": query, "track_total_hits": False, "timeout": f"{_wait_ms(deadline)}ms", **body})]

        asked = self._ask(tenant, build, deadline)
        if asked is None:
            return []
        _, [answer] = asked
        check_answer(answer)
        hits: list[dict[str, Any]] = answer["hits"]["hits"]
        return hits

    def _ask(self, tenant: str, build: Build, deadline: Deadline) -> tuple[Partition, list[dict[str, Any]]] | None:
        """The tenant's current index, and the searches that `build` makes for it, in one request. Asked again where the index or
        the shapes of its labels are not those that were known; None where the tenant has nothing."""
        alias = self._alias(tenant)
        for _ in range(_TRIES):
            known = self._known.get(tenant)
            if known is not None and known.index in self._dirty:
                self._refresh(known.index, deadline)
            answers = self._wire.search_many(alias, [_META_PART, *(build(known) if known else [])], deadline=deadline)
            if answers is None:
                self._known.pop(tenant, None)
                return None
            state = self._read_state(tenant, answers[0])
            if state is None:
                raise SourceError("store_corrupt", "the document store is damaged", "run `pointsman index --full`")
            self._check_settings(state.index, deadline)
            self._known[tenant] = state
            if known is not None and (known.index, known.shapes) == (state.index, state.shapes):
                return state, answers[1:]
        raise failure(409, "")

    def _read_state(self, tenant: str, answer: Mapping[str, Any]) -> Partition | None:
        check_answer(answer)
        hits = answer["hits"]["hits"]
        return mapping.read_partition(hits[0]["_index"], hits[0]["_source"]["meta"], tenant) if hits else None

    def _check_settings(self, index: str, deadline: Deadline) -> None:
        """Once an index: a setting on which changes of labels hang, and which cannot change later."""
        if index in self._checked:
            return
        path = f"/{index}/_settings/index.knn.derived_source.enabled"
        held = self._wire.send("GET", path, params={"flat_settings": "true"}, deadline=deadline)
        settings: dict[str, str] = next(iter(held.values()))["settings"]
        if settings.get("index.knn.derived_source.enabled") != "false":
            raise SourceError(
                "store_unsuitable",
                "the index rebuilds its source from vectors, which can lose it",
                "run `pointsman index --full`",
            )
        self._checked.add(index)

    # --- lists --------------------------------------------------------------------------------------------------------

    def documents(self, tenant: str, *, generation: str | None = None) -> Iterator[DocumentInfo]:
        for row in self._rows(tenant, generation, ("id", "source", "chunks", "digest")):
            yield DocumentInfo(row["source"], row["id"], row["chunks"], row["digest"])

    def labelled(self, tenant: str) -> Iterator[tuple[str, str, Labels]]:
        for row in self._rows(tenant, None, ("id", "source", "labels")):
            yield row["source"], row["id"], mapping.read_labels(row["labels"])

    def admitted(self, tenant: str, f: Filter) -> list[str]:
        body = {"size": _MOST_AT_ONCE + 1, "sort": [{"id": "asc"}], "_source": False, "docvalue_fields": ["id"]}
        documents: list[Query] = [{"term": {"kind": "document"}}]
        hits = self._hits(tenant, f, documents, body, Deadline(self._wait_s), chunks=False)
        if len(hits) <= _MOST_AT_ONCE:
            return [hit["fields"]["id"][0] for hit in hits]
        state = self._state(tenant, Deadline(self._wait_s))
        if state is None:
            return []
        query = all_of([search.fits(state.fitting(self._document_type())), self._lower(f)])
        return [row["id"] for row in self._pages(state.index, query, ("id",))]

    def _rows(self, tenant: str, generation: str | None, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        deadline = Deadline(self._wait_s)
        state = self._state(tenant, deadline) if generation is None else self._held(tenant, generation, deadline)
        if state is not None:
            yield from self._pages(state.index, {"match_all": {}}, fields)

    def _pages(self, index: str, query: Query, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        """`document` entries by id, as of one moment."""
        if index in self._dirty:
            self._refresh(index, Deadline(self._wait_s))
        opened = self._wire.send(
            "POST", f"/{index}/_search/point_in_time", params={"keep_alive": "5m"}, deadline=Deadline(self._wait_s)
        )
        after: list[Any] = []
        body = {
            "size": _PAGE,
            "pit": {"id": opened["pit_id"], "keep_alive": "5m"},
            "query": {"bool": {"filter": [{"term": {"kind": "document"}}, query]}},
            "sort": [{"id": "asc"}],
            "track_total_hits": False,
            "_source": list(fields),
        }
        try:
            while True:
                answer = self._wire.send(
                    "POST",
                    "/_search",
                    params={"allow_partial_search_results": "false"},
                    body=body | ({"search_after": after} if after else {}),
                    deadline=Deadline(self._wait_s),
                )
                check_answer(answer)
                hits = answer["hits"]["hits"]
                yield from (hit["_source"] for hit in hits)
                if len(hits) < _PAGE:
                    return
                after = hits[-1]["sort"]
        finally:
            with contextlib.suppress(SourceError):
                self._wire.send(
                    "DELETE", "/_search/point_in_time", body={"pit_id": [opened["pit_id"]]}, deadline=Deadline(self._wait_s)
                )

    def label_digest(self, source: str, labels: Labels) -> str:
        return label_digest(source, labels)

    def tenants(self) -> list[str]:
        """Read inside each index, whose name is a digest."""
        found: set[str] = set()
        for index in self._indices("*"):
            held = self._wire.send(
                "GET", f"/{index}/_doc/{META_ID}", params={"routing": META_ID}, deadline=Deadline(self._wait_s), absent_ok=True
            )
            tenant = held["_source"]["meta"].get("tenant") if held and held.get("found") else None
            if isinstance(tenant, str) and index.startswith(f"{self._alias(tenant)}-g-"):
                found.add(tenant)
        return sorted(found)

    def version(self, tenant: str) -> str:
        deadline = Deadline(self._wait_s)
        current = self._current(tenant, deadline)
        state = None if current is None else self._read_meta(tenant, current, deadline)
        return "empty" if state is None else f"{state.generation}.{state.writes}"

    def generation(self, tenant: str) -> str | None:
        current = self._current(tenant, Deadline(self._wait_s))
        return None if current is None else current.removeprefix(f"{self._alias(tenant)}-")

    def _state(self, tenant: str, deadline: Deadline) -> Partition | None:
        asked = self._ask(tenant, _nothing_more, deadline)
        return None if asked is None else asked[0]

    def _held(self, tenant: str, generation: str, deadline: Deadline) -> Partition | None:
        """What a named generation says of itself, as of the latest write; None where there is none."""
        if not _GENERATION.fullmatch(generation):
            return None
        return self._read_meta(tenant, f"{self._alias(tenant)}-{generation}", deadline)

    def _read_meta(self, tenant: str, index: str, deadline: Deadline) -> Partition | None:
        held = self._wire.send("GET", f"/{index}/_doc/{META_ID}", params={"routing": META_ID}, deadline=deadline, absent_ok=True)
        if not held or not held.get("found"):
            return None
        return mapping.read_partition(index, held["_source"]["meta"], tenant, (held["_seq_no"], held["_primary_term"]))

    def _current(self, tenant: str, deadline: Deadline) -> str | None:
        """The index behind the tenant's alias."""
        found = self._wire.send("GET", f"/_alias/{self._alias(tenant)}", deadline=deadline, absent_ok=True)
        return next(iter(found), None) if found else None

    def _alias(self, tenant: str) -> str:
        return f"{self._prefix}-{partition_name(tenant)}"

    def _indices(self, names: str) -> list[str]:
        path = f"/_cat/indices/{self._prefix}-t-{names}" if names == "*" else f"/_cat/indices/{names}-g-*"
        found = self._wire.send("GET", path, params={"format": "json", "h": "index"}, deadline=Deadline(self._wait_s))
        return sorted(row["index"] for row in found)

    def _refresh(self, index: str, deadline: Deadline) -> None:
        self._dirty.discard(index)
        try:
            self._wire.send("POST", f"/{index}/_refresh", deadline=deadline, absent_ok=True)
        except SourceError:
            self._dirty.add(index)
            raise

    def _lower(self, f: Filter) -> Query:
        """Refuse before any I/O what could be misread. Grants are remembered, so the very same filter comes with every question:
        known by identity, and the entry keeps it, so that no other object can take its place."""
        entity = self._document_type()
        held = self._lowered.get(id(f))
        if held is None or held[0] is not f or held[1] is not entity:
            fields = {**entity.fields, SOURCE_FIELD: Field("string", required=True)}
            check(f, EntityType(entity.name, fields))
            if len(self._lowered) >= _MOST_LOWERED:
                self._lowered.clear()
            held = self._lowered[id(f)] = (f, entity, lower_filter(f, fields))
        return held[2]

    # --- writing ------------------------------------------------------------------------------------------------------

    def put(self, tenant: str, documents: Sequence[IndexedDocument], *, model: ModelCard, generation: str | None = None) -> None:
        entity = self._document_type()
        for document in documents:
            check_document(document, entity, model)
            mapping.check_sizes(document)
        with self._lock:
            state = self._open(tenant, generation, model)
            filed = [mapping.file_labels(document.source, document.labels) for document in documents]
            state = self._prepare(state, filed, [document.labels for document in documents], model)
            held = self._members(state.index, [document.document_id for document in documents])
            self._wire.write_many(state.index, self._entries(documents, filed, held))
            self._dirty.add(state.index)
            self._note(replace(state, writes=state.writes + 1))
            if generation is None and self._current(tenant, Deadline(self._wait_s)) is None:
                self._refresh(state.index, Deadline(self._wait_s))
                self._point(tenant, state.index, None)

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
            state = self._existing(tenant, generation)
            if state is None:
                return 0
            rows = self._document_rows(state.index, list(labels))
            filed = {name: mapping.file_labels(row["source"], labels[name]) for name, row in rows.items()}
            changed = [name for name, row in rows.items() if filed[name].fields["digest"] != row["digest"]]
            if not changed:
                return 0
            state = self._prepare(state, [filed[name] for name in changed], [labels[name] for name in changed], None)
            self._wire.write_many(state.index, self._relabelling(changed, rows, filed), missing_ok=True)
            self._refresh(state.index, Deadline(self._wait_s))
            self._note(replace(state, writes=state.writes + 1))
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
            state = self._existing(tenant, generation)
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
        self._refresh(state.index, Deadline(self._wait_s))
        self._note(replace(state, writes=state.writes + 1))
        return len(held)

    def _open(self, tenant: str, generation: str | None, model: ModelCard | None) -> Partition:
        """The partition to write to, made when it does not exist yet."""
        check_text(tenant, "a tenant's name")
        deadline = Deadline(self._wait_s)
        current = self._current(tenant, deadline) if generation is None else None
        name = generation or (current.removeprefix(f"{self._alias(tenant)}-") if current else "g-000001")
        if current is None and not _GENERATION.fullmatch(name):
            raise _no_generation(name)
        index = current or f"{self._alias(tenant)}-{name}"
        state = self._read_meta(tenant, index, deadline)
        if state is None:
            self._create(index)
            state = self._note(Partition(index, tenant))
        self._check_settings(index, deadline)
        if model is not None and state.model_id not in (None, model.id):
            raise _other_model()
        return state

    def _existing(self, tenant: str, generation: str | None) -> Partition | None:
        deadline = Deadline(self._wait_s)
        if generation is not None:
            return self._held(tenant, generation, deadline)
        current = self._current(tenant, deadline)
        return None if current is None else self._read_meta(tenant, current, deadline)

    def _create(self, index: str) -> None:
        if self._wire.send("HEAD", f"/{index}", deadline=Deadline(self._wait_s)):
            return  # left by a write that was cut off
        self._wire.send("PUT", f"/{index}", body=self._settings, deadline=Deadline(self._wait_s))

    def _prepare(self, state: Partition, filed: Sequence[Filed], labels: Sequence[Labels], model: ModelCard | None) -> Partition:
        """Fields and shapes are there before the first entry that has them, and so is the vectors' field."""
        new = state.with_labels(labels)
        fields = frozenset[str]().union(*(one.names for one in filed)) - state.fields
        properties = mapping.label_mapping(fields) if fields else {}
        if model is not None and state.model_id is None:
            properties |= mapping.vector_mapping(model.dimensions)
            new = replace(new, model_id=model.id, dimensions=model.dimensions)
        new = replace(new, fields=state.fields | fields)
        if properties:
            body = {"properties": properties}
            self._wire.send("PUT", f"/{state.index}/_mapping", body=body, deadline=Deadline(self._wait_s))
        if (new.shapes, new.fields, new.model_id) == (state.shapes, state.fields, state.model_id):
            return state
        new = self._note(new)
        self._refresh(state.index, Deadline(self._wait_s))
        return new

    def _note(self, state: Partition) -> Partition:
        """Write the partition's own entry; another writer in between is a conflict."""
        at = state.at
        guard = {"op_type": "create"} if at is None else {"if_seq_no": at[0], "if_primary_term": at[1]}
        written = self._wire.send(
            "PUT",
            f"/{state.index}/_doc/{META_ID}",
            params={"routing": META_ID, **guard},
            body=state.as_json(),
            deadline=Deadline(self._wait_s),
        )
        self._dirty.add(state.index)
        return replace(state, at=(written["_seq_no"], written["_primary_term"]))

    def _members(self, index: str, document_ids: Sequence[str]) -> dict[str, list[str]]:
        """Entries of the chunks of those documents that are there, whether refreshed or not."""
        return {name: row["members"].split() for name, row in self._document_rows(index, document_ids).items()}

    def _document_rows(self, index: str, document_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for names in _pages(document_ids):
            entries = [entry_id("document", name) for name in names]
            body = {"docs": [{"_id": entry, "routing": entry, "_source": ["source", "digest", "members"]} for entry in entries]}
            answer = self._wire.send("POST", f"/{index}/_mget", body=body, deadline=Deadline(self._wait_s))
            for name, held in zip(names, answer["docs"], strict=True):
                if "error" in held:
                    raise failure(503, "")
                if held.get("found"):
                    found[name] = held["_source"]
        return found

    # --- generations --------------------------------------------------------------------------------------------------

    def begin_generation(self, tenant: str, *, keep_sources: Iterable[str] = ()) -> str:
        """An index says whose it is when it holds all it starts with: one that does not say it was cut off, and is never used."""
        check_text(tenant, "a tenant's name")
        keep = sorted(keep_sources)
        with self._lock:
            state = self._existing(tenant, None)
            numbers = [int(index.rpartition("-g-")[2]) for index in self._indices(self._alias(tenant))]
            name = f"g-{max(numbers, default=0) + 1:06d}"
            new = Partition(f"{self._alias(tenant)}-{name}", tenant)
            self._create(new.index)
            if state is not None and keep:
                self._copy(state, new.index, keep)
                new = replace(state, index=new.index, at=None, writes=0)
            self._note(new)
            self._refresh(new.index, Deadline(self._wait_s))
        return name

    def _copy(self, old: Partition, index: str, keep: Sequence[str]) -> None:
        """Inside the cluster."""
        self._refresh(old.index, Deadline(self._wait_s))
        properties = mapping.label_mapping(old.fields) if old.fields else {}
        if old.dimensions is not None:
            properties |= mapping.vector_mapping(old.dimensions)
        self._wire.send("PUT", f"/{index}/_mapping", body={"properties": properties}, deadline=Deadline(self._wait_s))
        query = {"bool": {"filter": [{"terms": {"source": list(keep)}}]}}
        body = {"source": {"index": old.index, "size": 500, "query": query}, "dest": {"index": index, "op_type": "create"}}
        copied = self._wire.send("POST", "/_reindex", params={"refresh": "true"}, body=body, deadline=Deadline(_COPY_S))
        if copied["failures"] or copied["timed_out"]:
            raise failure(500, "")

    def switch(self, tenant: str, generation: str) -> None:
        with self._lock:
            deadline = Deadline(self._wait_s)
            previous = self._current(tenant, deadline)
            index = f"{self._alias(tenant)}-{generation}"
            if previous == index:
                return
            if self._held(tenant, generation, deadline) is None:
                raise _no_generation(generation)
            self._refresh(index, deadline)
            self._point(tenant, index, previous)
            for left in self._indices(self._alias(tenant)):
                if left not in (index, previous):
                    self._wire.send("DELETE", f"/{left}", deadline=Deadline(self._wait_s), absent_ok=True)

    def _point(self, tenant: str, index: str, previous: str | None) -> None:
        """A reader sees the old generation or the new one."""
        alias = self._alias(tenant)
        actions: list[dict[str, Any]] = [{"add": {"index": index, "alias": alias, "is_write_index": True}}]
        if previous is not None:
            actions.insert(0, {"remove": {"index": previous, "alias": alias, "must_exist": True}})
        self._wire.send("POST", "/_aliases", body={"actions": actions}, deadline=Deadline(self._wait_s))

    def forget(self, tenant: str, document_ids: Sequence[str]) -> int:
        held: list[str] = []
        with self._lock:
            if self._existing(tenant, None) is None:
                return 0
            for index in self._indices(self._alias(tenant)):
                state = self._read_meta(tenant, index, Deadline(self._wait_s))
                if state is None:
                    self._wire.send("DELETE", f"/{index}", deadline=Deadline(self._wait_s), absent_ok=True)
                elif self._remove(state, document_ids):
                    held.append(index)
            for index in held:
                self._expunge(index)
        return len(held)

    def _expunge(self, index: str) -> None:
        """Rewrite what is left and drop the log of writes, until no removed entry is kept. The engine keeps them for copies that
        might have missed the removal, and asks these every thirty seconds."""
        end = Deadline(_EXPUNGE_S)
        while True:
            for path, params in (
                ("_flush", {"force": "true", "wait_if_ongoing": "true"}),
                ("_forcemerge", {"max_num_segments": "1", "flush": "true"}),
                ("_refresh", {}),
            ):
                self._wire.send("POST", f"/{index}/{path}", params=params, deadline=Deadline(_EXPUNGE_S))
            held = self._wire.send("GET", f"/{index}/_stats/docs", deadline=Deadline(self._wait_s))
            if not held["_all"]["total"]["docs"]["deleted"]:
                return
            if end.is_over():
                raise SourceError("store_busy", "OpenSearch still holds the old text", "try again in a moment", retryable=True)
            time.sleep(1.0)

    # --- verifying ----------------------------------------------------------------------------------------------------

    def verify(self, tenant: str) -> list[str]:
        deadline = Deadline(self._wait_s)
        state = self._state(tenant, deadline)
        if state is None:
            return []
        faults = [f"opensearch: {colour}" for colour in self._colour(state.index, deadline)]
        rows = {row["id"]: row for row in self._pages(state.index, {"match_all": {}}, ("id", "chunks", "digest", "shape"))}
        counted, foreign = self._count_chunks(state.index)
        wrong = [name for name, row in rows.items() if counted.get((name, row["digest"]), 0) != row["chunks"]]
        wrong += [name for name, _ in counted if name not in rows]
        if wrong or foreign:
            faults.append(
                f"documents whose chunks are not all there, or under other labels ({len(set(wrong)) + foreign}): run `pointsman index`"
            )
        fitting = set(state.fitting(self._document_type()))
        if misfits := sum(row["shape"] not in fitting for row in rows.values()):
            faults.append(
                f"documents whose labels do not fit schema.cedarschema, so that nobody sees them ({misfits}): run `pointsman index`"
            )
        return faults

    def _colour(self, index: str, deadline: Deadline) -> list[str]:
        health = self._wire.send("GET", f"/_cluster/health/{index}", params={"level": "indices"}, deadline=deadline)
        return [f"the index is {health['status']}"] if health["status"] == "red" else []

    def _count_chunks(self, index: str) -> tuple[dict[tuple[str, str], int], int]:
        """Chunks by document and label digest, and how many have a direction but no place among the vectors."""
        counted: dict[tuple[str, str], int] = {}
        after: dict[str, Any] = {}
        sources = [{name: {"terms": {"field": name}}} for name in ("document", "digest")]
        lost = {"bool": {"filter": [{"term": {"directed": True}}], "must_not": [{"exists": {"field": "v"}}]}}
        while True:
            pages = {"size": _PAGE, "sources": sources} | ({"after": after} if after else {})
            body = {
                "size": 0,
                "query": {"bool": {"filter": [{"term": {"kind": "chunk"}}]}},
                "aggs": {"each": {"composite": pages}, "lost": {"filter": lost}},
            }
            answer = self._wire.send(
                "POST",
                f"/{index}/_search",
                params={"allow_partial_search_results": "false"},
                body=body,
                deadline=Deadline(self._wait_s),
            )
            check_answer(answer)
            each = answer["aggregations"]["each"]
            for bucket in each["buckets"]:
                counted[bucket["key"]["document"], bucket["key"]["digest"]] = bucket["doc_count"]
            if "after_key" not in each:
                return counted, int(answer["aggregations"]["lost"]["doc_count"])
            after = each["after_key"]


_NO_TWINS: Query = {"bool": {"must_not": [{"term": {"idx": mapping.CONTEXTUAL}}]}}


def _read_legs(answers: Mapping[Leg, Mapping[str, Any]]) -> tuple[dict[Leg, list[dict[str, Any]]], tuple[tuple[Leg, str], ...]]:
    """Hits of each leg that is whole, and the codes of those that are not. Raises only where none is."""
    hits: dict[Leg, list[dict[str, Any]]] = {}
    failed: list[tuple[Leg, SourceError]] = []
    for leg, answer in answers.items():
        try:
            check_answer(answer)
            hits[leg] = answer["hits"]["hits"]
        except SourceError as error:
            failed.append((leg, error))
    if failed and not hits:
        raise failed[0][1]
    return hits, tuple((leg, error.code) for leg, error in failed)


def _nothing_more(_: Partition) -> list[str]:
    return []


def _pages(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[at : at + _PAGE] for at in range(0, len(names), _PAGE)]


def _wait_ms(deadline: Deadline) -> int:
    return max(1, int(deadline.left_s() * 1000))


def _other_model() -> SourceError:
    return SourceError("model_mismatch", "the index was built with another embedding model", "run `pointsman index --full`")


def _no_generation(name: str) -> SourceError:
    return SourceError("generation_missing", f"there is no generation `{name}`", "run `pointsman index --full`")
