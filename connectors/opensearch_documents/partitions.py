"""A tenant's indices: whose they are, which one is current, what they hold by id. What `store.py` reads and writes through.

Every read of a tenant's documents is one request of several searches, the first of which reads the index's own entry: whose it
is, and which shapes of labels its documents have. What is not in that entry is admitted to nobody.

The file is longer than most because every way to an index stands here.

INVARIANT: a write that may not be done twice is sent again only after it was read that it was not done
(tests/unit/test_opensearch_replies.py::test_a_lost_answer_of_the_own_entry, ::test_a_switch_whose_answer_was_lost).
INVARIANT: an index says whose it is, and that is compared in every request
(tests/conformance/suite.py::test_foreign_partition_is_refused).
INVARIANT: an index whose building was cut off does not say whose it is, and is never used
(…::test_a_crashed_build_changes_nothing).
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from connectors.opensearch_documents import mapping
from connectors.opensearch_documents.lowering import Query
from connectors.opensearch_documents.mapping import META_ID, Filed, Partition, entry_id
from connectors.opensearch_documents.replies import (
    check_answer,
    check_copied,
    check_done,
    check_index,
    check_shards,
    check_whole,
    count_of,
    failure,
    hits_of,
    invalid,
    is_of,
    list_of,
    mixed,
    object_of,
    reading,
    rows_of,
    text_of,
)
from connectors.opensearch_documents.wire import Deadline, Wire
from router.domain import Labels, ModelCard
from router.errors import SourceError
from router.filters import check_text
from router.storable import partition_name

PAGE = 1_000
TRIES = 3
_EXPUNGE_S = 300.0
_COPY_S = 3600.0
_SETTLE_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_GENERATION = re.compile(r"g-\d{6,}")
_DERIVED = "index.knn.derived_source.enabled"
META_PART = json.dumps({"size": 2, "query": {"ids": {"values": [META_ID]}}, "_source": ["meta"]})

Done = TypeVar("Done")
Build = Callable[[Partition], list[str]]


class Partitions:
    """All indices under one prefix. `dirty` are those that this process wrote to and has not refreshed since."""

    def __init__(
        self,
        wire: Wire,
        *,
        prefix: str,
        wait_s: float,
        settings: Mapping[str, Any],
        pins: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`pins` are generations by tenant that are taken for the current ones, whatever the alias says."""
        self._wire, self._prefix, self._wait_s, self._settings, self._pins = wire, prefix, wait_s, settings, pins
        self._known: dict[str, Partition] = {}
        self._read: dict[str, tuple[str, Any, Partition]] = {}
        self._checked: set[tuple[str, str]] = set()
        self._dirty: set[str] = set()

    def close(self) -> None:
        """What was written last becomes visible to all."""
        with contextlib.suppress(SourceError):
            for index in sorted(self._dirty):
                self.refresh(index, self.soon())

    def pinned(self, tenant: str, generation: str) -> Partitions:
        """A view of its own: what it writes it refreshes itself."""
        self.refresh(f"{self.alias(tenant)}-{generation}", self.soon())
        pins = {**self._pins, tenant: generation}
        return Partitions(self._wire, prefix=self._prefix, wait_s=self._wait_s, settings=self._settings, pins=pins)

    def soon(self) -> Deadline:
        """Of one request outside a question."""
        return Deadline(self._wait_s, patient=True)

    def wrote(self, index: str) -> None:
        self._dirty.add(index)

    # --- reading ------------------------------------------------------------------------------------------------------

    def ask(self, tenant: str, build: Build, deadline: Deadline) -> tuple[Partition, list[dict[str, Any]]] | None:
        """The tenant's current index, and the searches that `build` makes for it, in one request. Asked again where the index or
        the shapes of its labels are not those that were known, or the place changed between two of the searches; None where the
        tenant has nothing."""
        place = self._pinned(tenant) or self.alias(tenant)
        strange = False
        for _ in range(TRIES):
            known = self._known.get(tenant)
            if known is not None and known.index in self._dirty:
                self.refresh(known.index, deadline)
            answers = self._wire.search_many(place, [META_PART, *(build(known) if known else [])], deadline=deadline)
            if answers is None:
                self._known.pop(tenant, None)
                return None
            state = self.read_state(tenant, answers[0])
            if state is None:
                raise SourceError("store_corrupt", "the document store is damaged", "run `pointsman index --full`")
            self._check_settings(state, deadline)
            self._known[tenant] = state
            if known is not None and known.is_one_with(state) and known.shapes == state.shapes:
                strange = not all(is_of(answer, state.index) for answer in answers[1:])
                if not strange:
                    return state, answers[1:]
        raise mixed() if strange else failure(409, "")

    def read_state(self, tenant: str, answer: Mapping[str, Any]) -> Partition | None:
        """Of the place's own entry, which is one: two are of two indices, one of which nobody meant."""
        check_answer(answer)
        hits = list_of(object_of(answer.get("hits")).get("hits"))
        if len(hits) > 1:
            raise mixed()
        with reading():
            if not hits:
                return None
            if hits[0]["_id"] != META_ID:
                raise invalid()
            index, meta = text_of(hits[0]["_index"]), hits[0]["_source"]["meta"]
            read = self._read.get(tenant)
            if read is not None and read[:2] == (index, meta):  # three times a question, and seldom another
                return read[2]
            state = mapping.read_partition(index, meta, tenant)
            self._read[tenant] = (index, meta, state)
            return state

    def _check_settings(self, state: Partition, deadline: Deadline) -> None:
        """Once an index: a setting on which changes of labels hang, and which cannot change later."""
        index = state.index
        if (index, state.identity) in self._checked:
            return
        path = f"/{index}/_settings/{_DERIVED}"
        held = self._wire.send("GET", path, params={"flat_settings": "true"}, deadline=deadline)
        settings = object_of(object_of(object_of(held).get(index)).get("settings"))
        if settings.get(_DERIVED) != "false":
            raise SourceError(
                "store_unsuitable",
                "the index rebuilds its source from vectors, which can lose it",
                "run `pointsman index --full`",
            )
        self._checked.add((index, state.identity))

    def seen(self, tenant: str) -> Partition | None:
        """What the latest read found, without reading."""
        return self._known.get(tenant)

    def state(self, tenant: str, deadline: Deadline) -> Partition | None:
        asked = self.ask(tenant, _nothing_more, deadline)
        return None if asked is None else asked[0]

    def held(self, tenant: str, generation: str, deadline: Deadline) -> Partition | None:
        """What a named generation says of itself, as of the latest write; None where there is none."""
        if not _GENERATION.fullmatch(generation):
            return None
        return self.read_meta(tenant, f"{self.alias(tenant)}-{generation}", deadline)

    def existing(self, tenant: str, generation: str | None) -> Partition | None:
        deadline = self.soon()
        if generation is not None:
            return self.held(tenant, generation, deadline)
        current = self.current(tenant, deadline)
        return None if current is None else self.read_meta(tenant, current, deadline)

    def read_meta(self, tenant: str, index: str, deadline: Deadline) -> Partition | None:
        held = self._wire.send("GET", f"/{index}/_doc/{META_ID}", params={"routing": META_ID}, deadline=deadline, absent_ok=True)
        if held is None:
            return None
        check_index(object_of(held), index)
        with reading():
            at = count_of(held["_seq_no"]), count_of(held["_primary_term"])
            return mapping.read_partition(index, held["_source"]["meta"], tenant, at)

    def owner(self, index: str) -> str | None:
        """The tenant that an index says it is of."""
        held = self._wire.send(
            "GET", f"/{index}/_doc/{META_ID}", params={"routing": META_ID}, deadline=self.soon(), absent_ok=True
        )
        if held is None:
            return None
        check_index(object_of(held), index)
        with reading():
            return text_of(held["_source"]["meta"]["tenant"])

    def current(self, tenant: str, deadline: Deadline) -> str | None:
        """The index behind the tenant's alias."""
        if (pinned := self._pinned(tenant)) is not None:
            return pinned
        found = self._wire.send("GET", f"/_alias/{self.alias(tenant)}", deadline=deadline, absent_ok=True)
        if found is None:
            return None
        if len(object_of(found)) > 1:
            raise mixed()
        with reading():
            [index] = found
        return str(index)

    def _pinned(self, tenant: str) -> str | None:
        return f"{self.alias(tenant)}-{self._pins[tenant]}" if tenant in self._pins else None

    def alias(self, tenant: str) -> str:
        return f"{self._prefix}-{partition_name(tenant)}"

    def indices(self, names: str) -> list[str]:
        path = f"/_cat/indices/{self._prefix}-t-{names}" if names == "*" else f"/_cat/indices/{names}-g-*"
        found = self._wire.send("GET", path, params={"format": "json", "h": "index"}, deadline=self.soon())
        return sorted(text_of(object_of(row).get("index")) for row in list_of(found))

    def refresh(self, index: str, deadline: Deadline) -> None:
        self._dirty.discard(index)
        try:
            done = self._wire.send("POST", f"/{index}/_refresh", deadline=deadline, absent_ok=True)
            if done is not None:
                check_shards(done)
        except SourceError:
            self._dirty.add(index)
            raise

    def pages(self, index: str, query: Query, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        """`document` entries by id, as of one moment."""
        if index in self._dirty:
            self.refresh(index, self.soon())
        whole = {"keep_alive": "5m", "allow_partial_pit_creation": "false"}
        opened = self._wire.send("POST", f"/{index}/_search/point_in_time", params=whole, deadline=self.soon())
        check_whole(opened)
        moment = text_of(opened.get("pit_id"))
        after: list[Any] = []
        body = {
            "size": PAGE,
            "pit": {"id": moment, "keep_alive": "5m"},
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
                    deadline=self.soon(),
                )
                check_answer(answer)
                hits = hits_of(answer, index, PAGE)
                yield from (_row_of(hit, fields) for hit in hits)
                if len(hits) < PAGE:
                    return
                after = list_of(hits[-1].get("sort"))
        finally:
            with contextlib.suppress(SourceError):
                self._wire.send("DELETE", "/_search/point_in_time", body={"pit_id": [moment]}, deadline=self.soon())

    # --- writing ------------------------------------------------------------------------------------------------------

    def open(self, tenant: str, generation: str | None, model: ModelCard | None) -> Partition:
        """The partition to write to, made when it does not exist yet."""
        check_text(tenant, "a tenant's name")
        deadline = self.soon()
        current = self.current(tenant, deadline) if generation is None else None
        name = generation or (current.removeprefix(f"{self.alias(tenant)}-") if current else "g-000001")
        if current is None and not _GENERATION.fullmatch(name):
            raise no_generation(name)
        index = current or f"{self.alias(tenant)}-{name}"
        state = self.read_meta(tenant, index, deadline)
        if state is None:
            self.create(index)
            state = self.note(Partition(index, tenant))
        self._check_settings(state, deadline)
        if model is not None and state.model_id not in (None, model.id):
            raise other_model()
        return state

    def create(self, index: str) -> None:
        def is_there() -> bool:
            return bool(self._wire.send("HEAD", f"/{index}", deadline=self.soon()))

        def make() -> bool:
            check_done(self._wire.send("PUT", f"/{index}", body=self._settings, deadline=self.soon()))
            return True

        if not is_there():  # left by a write that was cut off
            self._settle(make, lambda: is_there() or None)

    def remove(self, index: str) -> None:
        """Whether or not it is there."""
        done = self._wire.send("DELETE", f"/{index}", deadline=self.soon(), absent_ok=True)
        if done is not None:
            check_done(done)

    def _settle(self, write: Callable[[], Done], read: Callable[[], Done | None]) -> Done:
        """A write that must not be done twice. Where it failed, or its answer was lost, what is there says what became of it: it is
        sent again only when it was not done, and only as long as it still may be: three times, and for as long as a request may take
        where the node is too busy for it."""
        end, pause_s, tries = time.monotonic() + self._wait_s, _SETTLE_PAUSE_S, 0
        while True:
            try:
                return write()
            except SourceError as error:
                done = read()
                if done is not None:
                    return done
                tries += error.code != "store_busy"
                if not error.retryable or tries >= 3 or time.monotonic() + pause_s > end:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def prepare(self, state: Partition, filed: Sequence[Filed], labels: Sequence[Labels], model: ModelCard | None) -> Partition:
        """Fields and shapes are there before the first entry that has them, and so is the vectors' field."""
        new = state.with_labels(labels)
        fields = frozenset[str]().union(*(one.names for one in filed)) - state.fields
        properties = mapping.label_mapping(fields) if fields else {}
        if model is not None and state.model_id is None:
            properties |= mapping.vector_mapping(model.dimensions)
            new = replace(new, model_id=model.id, dimensions=model.dimensions)
        if state.schema < mapping.SCHEMA:
            properties |= mapping.ENTITIES
        new = replace(new, fields=state.fields | fields, schema=mapping.SCHEMA)
        if properties:
            body = {"properties": properties}
            check_done(self._wire.send("PUT", f"/{state.index}/_mapping", body=body, deadline=self.soon()))
        if (new.shapes, new.fields, new.model_id, new.schema) == (state.shapes, state.fields, state.model_id, state.schema):
            return state
        new = self.note(new)
        self.refresh(state.index, self.soon())
        return new

    def note(self, state: Partition) -> Partition:
        """Write the partition's own entry; another writer in between is a conflict."""
        at, mark = state.at, secrets.token_hex(8)
        state = replace(state, mark=mark, identity=state.identity or secrets.token_hex(8))
        guard = {"op_type": "create"} if at is None else {"if_seq_no": at[0], "if_primary_term": at[1]}
        path = f"/{state.index}/_doc/{META_ID}"

        def write() -> tuple[int, int]:
            params = {"routing": META_ID, **guard}
            return _place_of(self._wire.send("PUT", path, params=params, body=state.as_json(), deadline=self.soon()), state.index)

        def read() -> tuple[int, int] | None:
            params = {"routing": META_ID, "preference": "_primary"}
            held = self._wire.send("GET", path, params=params, deadline=self.soon(), absent_ok=True)
            found = None if held is None else _place_of(held, state.index)
            with reading():
                if held is not None and held["_source"]["meta"].get("mark") == mark:
                    return found
            if found != at:
                raise failure(409, "")
            return None

        self._dirty.add(state.index)
        return replace(state, at=self._settle(write, read))

    def entries_of(self, index: str, document_id: str) -> list[str]:
        """Entries of all chunks that say they are of the document, whatever its own entry says."""
        found: list[str] = []
        after: list[Any] = []
        body: dict[str, Any] = {
            "size": PAGE,
            "query": {"bool": {"filter": [{"term": {"kind": "chunk"}}, {"term": {"document": document_id}}]}},
            "sort": [{"id": "asc"}],
            "_source": False,
        }
        while True:
            answer = self._wire.send(
                "POST",
                f"/{index}/_search",
                params={"allow_partial_search_results": "false"},
                body=body | ({"search_after": after} if after else {}),
                deadline=self.soon(),
            )
            check_answer(answer)
            hits = hits_of(answer, index, PAGE)
            found += [text_of(hit.get("_id")) for hit in hits]
            if len(hits) < PAGE:
                return found
            after = list_of(hits[-1].get("sort"))

    def count(self, index: str, kind: str) -> int:
        body = {"query": {"bool": {"filter": [{"term": {"kind": kind}}]}}}
        counted = self._wire.send("POST", f"/{index}/_count", body=body, deadline=self.soon())
        check_whole(counted)
        return count_of(counted.get("count"))

    def document_rows(self, index: str, document_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for names in pages_of(document_ids):
            entries = [entry_id("document", name) for name in names]
            body = {"docs": [{"_id": entry, "routing": entry, "_source": ["source", "digest", "members"]} for entry in entries]}
            answer = self._wire.send("POST", f"/{index}/_mget", body=body, deadline=self.soon())
            for name, row in zip(names, rows_of(answer, index, entries), strict=True):
                if row is not None:
                    found[name] = {field: text_of(row.get(field)) for field in ("source", "digest", "members")}
        return found

    # --- generations --------------------------------------------------------------------------------------------------

    def point(self, tenant: str, index: str, previous: str | None) -> None:
        """A reader sees the old generation or the new one."""
        alias = self.alias(tenant)
        actions: list[dict[str, Any]] = [{"add": {"index": index, "alias": alias, "is_write_index": True}}]
        if previous is not None:
            actions.insert(0, {"remove": {"index": previous, "alias": alias, "must_exist": True}})

        def write() -> str:
            check_done(self._wire.send("POST", "/_aliases", body={"actions": actions}, deadline=self.soon()))
            return index

        def read() -> str | None:
            held = self.current(tenant, self.soon())
            if held not in (index, previous):
                raise failure(409, "")  # somebody else switched
            return index if held == index else None

        self._settle(write, read)

    def copy(self, old: Partition, index: str, keep: Sequence[str]) -> None:
        """Inside the cluster."""
        self.refresh(old.index, self.soon())
        properties = mapping.label_mapping(old.fields) if old.fields else {}
        if old.dimensions is not None:
            properties |= mapping.vector_mapping(old.dimensions)
        check_done(self._wire.send("PUT", f"/{index}/_mapping", body={"properties": properties}, deadline=self.soon()))
        query = {"bool": {"filter": [{"terms": {"source": list(keep)}}]}}
        body = {"source": {"index": old.index, "size": 500, "query": query}, "dest": {"index": index, "op_type": "create"}}
        copied = self._wire.send("POST", "/_reindex", params={"refresh": "true"}, body=body, deadline=Deadline(_COPY_S))
        check_copied(copied)

    def expunge(self, index: str) -> None:
        """Rewrite what is left and drop the log of writes, until no removed entry is kept. The engine keeps them for copies that
        might have missed the removal, and asks these every thirty seconds; the commit that held them goes with the next one after that, so
        it is done once more."""
        end, clean = Deadline(_EXPUNGE_S), False
        while True:
            for path, params in (
                ("_flush", {"force": "true", "wait_if_ongoing": "true"}),
                ("_forcemerge", {"max_num_segments": "1", "flush": "true"}),
                ("_refresh", {}),
            ):
                check_shards(self._wire.send("POST", f"/{index}/{path}", params=params, deadline=Deadline(_EXPUNGE_S)))
            held = self._wire.send("GET", f"/{index}/_stats/docs", deadline=self.soon())
            check_shards(held)
            with reading():
                deleted = count_of(held["_all"]["total"]["docs"]["deleted"])
            if clean and not deleted:
                return
            clean = not deleted
            if end.is_over():
                raise SourceError("store_busy", "OpenSearch still holds the old text", "try again in a moment", retryable=True)
            time.sleep(0.1 if clean else 1.0)


def _place_of(reply: Any, index: str) -> tuple[int, int]:
    """Where an entry was written or read, as the next write of it must say."""
    held = object_of(reply)
    check_index(held, index)
    return count_of(held.get("_seq_no")), count_of(held.get("_primary_term"))


def _row_of(hit: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Of a `document` entry."""
    row = object_of(hit.get("_source"))
    return {field: count_of(row.get(field)) if field == "chunks" else text_of(row.get(field)) for field in fields}


def pages_of(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[at : at + PAGE] for at in range(0, len(names), PAGE)]


def other_model() -> SourceError:
    return SourceError("model_mismatch", "the index was built with another embedding model", "run `pointsman index --full`")


def no_generation(name: str) -> SourceError:
    return SourceError("generation_missing", f"there is no generation `{name}`", "run `pointsman index --full`")


def _nothing_more(_: Partition) -> list[str]:
    return []
