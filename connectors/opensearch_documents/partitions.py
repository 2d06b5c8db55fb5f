"""A tenant's indices: whose they are, which one is current, what they hold by id. What `store.py` reads and writes through.

Every read of a tenant's documents is one request of several searches, the first of which reads the index's own entry: whose it
is, and which shapes of labels its documents have. What is not in that entry is admitted to nobody.

INVARIANT: an index says whose it is, and that is compared in every request
(tests/conformance/suite.py::test_foreign_partition_is_refused).
INVARIANT: an index whose building was cut off does not say whose it is, and is never used
(…::test_a_crashed_build_changes_nothing).
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from connectors.opensearch_documents import mapping
from connectors.opensearch_documents.lowering import Query
from connectors.opensearch_documents.mapping import META_ID, Filed, Partition, entry_id
from connectors.opensearch_documents.wire import Deadline, Wire, check_answer, failure
from router.domain import Labels, ModelCard
from router.errors import SourceError
from router.filters import check_text
from router.storable import partition_name

PAGE = 1_000
TRIES = 3
_EXPUNGE_S = 300.0
_COPY_S = 3600.0
_GENERATION = re.compile(r"g-\d{6,}")
_DERIVED = "index.knn.derived_source.enabled"
META_PART = json.dumps({"size": 1, "query": {"ids": {"values": [META_ID]}}, "_source": ["meta"]})

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
        self._checked: set[str] = set()
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
        the shapes of its labels are not those that were known; None where the tenant has nothing."""
        place = self._pinned(tenant) or self.alias(tenant)
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
            self._check_settings(state.index, deadline)
            self._known[tenant] = state
            if known is not None and (known.index, known.shapes) == (state.index, state.shapes):
                return state, answers[1:]
        raise failure(409, "")

    def read_state(self, tenant: str, answer: Mapping[str, Any]) -> Partition | None:
        check_answer(answer)
        hits = answer["hits"]["hits"]
        return mapping.read_partition(hits[0]["_index"], hits[0]["_source"]["meta"], tenant) if hits else None

    def _check_settings(self, index: str, deadline: Deadline) -> None:
        """Once an index: a setting on which changes of labels hang, and which cannot change later."""
        if index in self._checked:
            return
        path = f"/{index}/_settings/{_DERIVED}"
        held = self._wire.send("GET", path, params={"flat_settings": "true"}, deadline=deadline)
        settings: dict[str, str] = next(iter(held.values()))["settings"]
        if settings.get(_DERIVED) != "false":
            raise SourceError(
                "store_unsuitable",
                "the index rebuilds its source from vectors, which can lose it",
                "run `pointsman index --full`",
            )
        self._checked.add(index)

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
        if not held or not held.get("found"):
            return None
        return mapping.read_partition(index, held["_source"]["meta"], tenant, (held["_seq_no"], held["_primary_term"]))

    def owner(self, index: str) -> str | None:
        """The tenant that an index says it is of."""
        held = self._wire.send(
            "GET", f"/{index}/_doc/{META_ID}", params={"routing": META_ID}, deadline=self.soon(), absent_ok=True
        )
        tenant = held["_source"]["meta"].get("tenant") if held and held.get("found") else None
        return tenant if isinstance(tenant, str) else None

    def current(self, tenant: str, deadline: Deadline) -> str | None:
        """The index behind the tenant's alias."""
        if (pinned := self._pinned(tenant)) is not None:
            return pinned
        found = self._wire.send("GET", f"/_alias/{self.alias(tenant)}", deadline=deadline, absent_ok=True)
        return next(iter(found), None) if found else None

    def _pinned(self, tenant: str) -> str | None:
        return f"{self.alias(tenant)}-{self._pins[tenant]}" if tenant in self._pins else None

    def alias(self, tenant: str) -> str:
        return f"{self._prefix}-{partition_name(tenant)}"

    def indices(self, names: str) -> list[str]:
        path = f"/_cat/indices/{self._prefix}-t-{names}" if names == "*" else f"/_cat/indices/{names}-g-*"
        found = self._wire.send("GET", path, params={"format": "json", "h": "index"}, deadline=self.soon())
        return sorted(row["index"] for row in found)

    def refresh(self, index: str, deadline: Deadline) -> None:
        self._dirty.discard(index)
        try:
            self._wire.send("POST", f"/{index}/_refresh", deadline=deadline, absent_ok=True)
        except SourceError:
            self._dirty.add(index)
            raise

    def pages(self, index: str, query: Query, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
        """`document` entries by id, as of one moment."""
        if index in self._dirty:
            self.refresh(index, self.soon())
        opened = self._wire.send("POST", f"/{index}/_search/point_in_time", params={"keep_alive": "5m"}, deadline=self.soon())
        after: list[Any] = []
        body = {
            "size": PAGE,
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
                    deadline=self.soon(),
                )
                check_answer(answer)
                hits = answer["hits"]["hits"]
                yield from (hit["_source"] for hit in hits)
                if len(hits) < PAGE:
                    return
                after = hits[-1]["sort"]
        finally:
            with contextlib.suppress(SourceError):
                self._wire.send("DELETE", "/_search/point_in_time", body={"pit_id": [opened["pit_id"]]}, deadline=self.soon())

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
        self._check_settings(index, deadline)
        if model is not None and state.model_id not in (None, model.id):
            raise other_model()
        return state

    def create(self, index: str) -> None:
        if self._wire.send("HEAD", f"/{index}", deadline=self.soon()):
            return  # left by a write that was cut off
        self._wire.send("PUT", f"/{index}", body=self._settings, deadline=self.soon())

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
            self._wire.send("PUT", f"/{state.index}/_mapping", body=body, deadline=self.soon())
        if (new.shapes, new.fields, new.model_id, new.schema) == (state.shapes, state.fields, state.model_id, state.schema):
            return state
        new = self.note(new)
        self.refresh(state.index, self.soon())
        return new

    def note(self, state: Partition) -> Partition:
        """Write the partition's own entry; another writer in between is a conflict."""
        at = state.at
        guard = {"op_type": "create"} if at is None else {"if_seq_no": at[0], "if_primary_term": at[1]}
        written = self._wire.send(
            "PUT",
            f"/{state.index}/_doc/{META_ID}",
            params={"routing": META_ID, **guard},
            body=state.as_json(),
            deadline=self.soon(),
        )
        self._dirty.add(state.index)
        return replace(state, at=(written["_seq_no"], written["_primary_term"]))

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
            hits = answer["hits"]["hits"]
            found += [hit["_id"] for hit in hits]
            if len(hits) < PAGE:
                return found
            after = hits[-1]["sort"]

    def count(self, index: str, kind: str) -> int:
        body = {"query": {"bool": {"filter": [{"term": {"kind": kind}}]}}}
        counted = self._wire.send("POST", f"/{index}/_count", body=body, deadline=self.soon())
        return int(counted["count"])

    def document_rows(self, index: str, document_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for names in pages_of(document_ids):
            entries = [entry_id("document", name) for name in names]
            body = {"docs": [{"_id": entry, "routing": entry, "_source": ["source", "digest", "members"]} for entry in entries]}
            answer = self._wire.send("POST", f"/{index}/_mget", body=body, deadline=self.soon())
            for name, held in zip(names, answer["docs"], strict=True):
                if "error" in held:
                    raise failure(503, "")
                if held.get("found"):
                    found[name] = held["_source"]
        return found

    # --- generations --------------------------------------------------------------------------------------------------

    def point(self, tenant: str, index: str, previous: str | None) -> None:
        """A reader sees the old generation or the new one."""
        alias = self.alias(tenant)
        actions: list[dict[str, Any]] = [{"add": {"index": index, "alias": alias, "is_write_index": True}}]
        if previous is not None:
            actions.insert(0, {"remove": {"index": previous, "alias": alias, "must_exist": True}})
        self._wire.send("POST", "/_aliases", body={"actions": actions}, deadline=self.soon())

    def copy(self, old: Partition, index: str, keep: Sequence[str]) -> None:
        """Inside the cluster."""
        self.refresh(old.index, self.soon())
        properties = mapping.label_mapping(old.fields) if old.fields else {}
        if old.dimensions is not None:
            properties |= mapping.vector_mapping(old.dimensions)
        self._wire.send("PUT", f"/{index}/_mapping", body={"properties": properties}, deadline=self.soon())
        query = {"bool": {"filter": [{"terms": {"source": list(keep)}}]}}
        body = {"source": {"index": old.index, "size": 500, "query": query}, "dest": {"index": index, "op_type": "create"}}
        copied = self._wire.send("POST", "/_reindex", params={"refresh": "true"}, body=body, deadline=Deadline(_COPY_S))
        if copied["failures"] or copied["timed_out"]:
            raise failure(500, "")

    def expunge(self, index: str) -> None:
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
            held = self._wire.send("GET", f"/{index}/_stats/docs", deadline=self.soon())
            if not held["_all"]["total"]["docs"]["deleted"]:
                return
            if end.is_over():
                raise SourceError("store_busy", "OpenSearch still holds the old text", "try again in a moment", retryable=True)
            time.sleep(1.0)


def pages_of(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[at : at + PAGE] for at in range(0, len(names), PAGE)]


def other_model() -> SourceError:
    return SourceError("model_mismatch", "the index was built with another embedding model", "run `pointsman index --full`")


def no_generation(name: str) -> SourceError:
    return SourceError("generation_missing", f"there is no generation `{name}`", "run `pointsman index --full`")


def _nothing_more(_: Partition) -> list[str]:
    return []
