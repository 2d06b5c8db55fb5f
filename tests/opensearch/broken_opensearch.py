"""The store in OpenSearch broken on purpose, each the way a connector to this engine is or could be, and the promises that must
catch it. Most spoil the filter on its way down, or one function that builds a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from connectors.opensearch_documents import OpenSearchDocuments, lowering, mapping, partitions, search, store
from connectors.opensearch_documents.mapping import Filed, Partition
from router.domain import SOURCE_FIELD, Found, Labels, Search, Stored
from router.errors import PointsmanError
from router.filters import ALWAYS, Filter, Never
from tests.conformance import broken

ALL: Mapping[str, Any] = {"match_all": {}}
Patch = tuple[Any, str, Any]


class Spoiled(OpenSearchDocuments):
    """Lowers another filter than it was given."""

    change: Callable[[Filter], Filter]

    def _lower(self, f: Filter) -> str:
        return super()._lower(broken._map(f, type(self).change))


def _spoiled(change: Callable[[Filter], Filter]) -> type[OpenSearchDocuments]:
    return type("Changed", (Spoiled,), {"change": staticmethod(change)})


def _loses_source(f: Filter) -> Filter:
    """A source is no label here: what speaks of it is taken as true."""
    return ALWAYS if getattr(f, "field", None) == SOURCE_FIELD else f


class PostFilter(OpenSearchDocuments):
    """Searches everything, cuts to the limit, and takes out what may not be seen."""

    def search(self, search_: Search) -> Found:
        self._lower(search_.filter)
        if isinstance(search_.filter, Never):
            return Found((), 0)
        found = super().search(replace(search_, filter=ALWAYS))
        allowed = set(self.admitted(search_.tenant, search_.filter))
        kept = tuple(candidate for candidate in found.candidates if candidate.document_id in allowed)
        return Found(kept, super().search(replace(search_, limit=0)).admitted)


class CountsItsWrites(OpenSearchDocuments):
    """Tells two states of a partition apart by how often it was written to."""

    def version(self, tenant: str, *, deadline_s: float | None = None, seen: bool = False) -> str:
        return ".".join(super().version(tenant, deadline_s=deadline_s, seen=seen).split(".")[:2])


class StaleLabels(OpenSearchDocuments):
    """Says that it relabelled, and leaves everything as it is."""

    def relabel(self, tenant: str, labels: Mapping[str, Labels], *, generation: str | None = None) -> int:
        held = {name: (source, of) for source, name, of in self.labelled(tenant)}
        return sum(name in held and held[name][1] != new for name, new in labels.items())


class HalfRelabelled(OpenSearchDocuments):
    """The document gets its new label, its chunks keep the old one."""

    def _relabelling(
        self, changed: Sequence[str], rows: Mapping[str, Mapping[str, Any]], filed: Mapping[str, Filed]
    ) -> Iterator[str]:
        return super()._relabelling(changed, {name: {**row, "members": ""} for name, row in rows.items()}, filed)


class UnguardedLoad(OpenSearchDocuments):
    """The search filters; what loads the text trusts its caller."""

    def load(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[Stored]:
        return super().load(tenant, chunk_ids, ALWAYS, deadline_s=deadline_s)


class UnguardedSiblings(OpenSearchDocuments):
    def siblings(self, tenant: str, document_id: str, first: int, last: int, f: Filter, *, deadline_s: float) -> list[Stored]:
        return super().siblings(tenant, document_id, first, last, ALWAYS, deadline_s=deadline_s)


class UnguardedVectors(OpenSearchDocuments):
    def vectors(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[bytes]:
        return super().vectors(tenant, chunk_ids, ALWAYS, deadline_s=deadline_s)


class AllLabelsAreShown(OpenSearchDocuments):
    def admitted_labels(self, tenant: str, f: Filter, *, deadline_s: float) -> list[Labels]:
        return super().admitted_labels(tenant, ALWAYS, deadline_s=deadline_s)


class UnguardedSuperseding(OpenSearchDocuments):
    def superseding(self, tenant: str, document_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[Stored]:
        return super().superseding(tenant, document_ids, ALWAYS, deadline_s=deadline_s)


class Eager(OpenSearchDocuments):
    """Asks the cluster first and looks at the filter afterwards."""

    def _lower(self, f: Filter) -> str:
        self._partitions.indices("*")
        return super()._lower(f)


class TellsAll(OpenSearchDocuments):
    """Errors as the client words them: with the host."""

    def search(self, search_: Search) -> Found:
        try:
            return super().search(search_)
        except PointsmanError as error:
            error.message += f" {self._wire._client.transport.hosts}"
            error.args = (error.message,)
            raise


def _whole_index(part: Callable[..., str]) -> Callable[..., str]:
    """A part of the request that is built over everything."""

    def build(_: str, *rest: Any, **more: Any) -> str:
        return part('{"term":{"kind":"chunk"}}', *rest, **more)

    return build


def _unchecked(index: str, meta: Mapping[str, Any], tenant: str, at: tuple[int, int] | None = None) -> Partition:
    return _read_partition(index, {**meta, "tenant": tenant, "schema": 1}, tenant, at)


_read_partition = mapping.read_partition


def _jokers(path: str, parts: Sequence[str]) -> Mapping[str, Any]:
    """What is a wildcard to the engine is let through."""
    return {"wildcard": {path: {"value": "*".join(parts)}}}


def _by_score_alone(chunks: str, query: Mapping[str, Any], limit: int, wait_ms: int, fields: Sequence[str]) -> str:
    return _leg_part(chunks, query, limit, wait_ms, fields).replace(
        '"sort":[{"_score":"desc"},{"id":"asc"}]', '"sort":["_score"]'
    )


_leg_part = search._leg_part
_stand_in = lowering.stand_in
NO_PROOF: Patch = (store, "_prove", lambda *_: "filter sent, or so it is said")


@dataclass(frozen=True, slots=True)
class Break:
    """A broken store, what of the real one is replaced for it, and the promises that must not hold of it."""

    name: str
    store: type[OpenSearchDocuments]
    patches: tuple[Patch, ...]
    caught_by: tuple[str, ...]


def _breaks(rows: Iterable[tuple[str, type[OpenSearchDocuments], Sequence[Patch], str]]) -> list[Break]:
    return [
        Break(name, kind, tuple(patches), tuple(f"test_{word}" for word in words.split())) for name, kind, patches, words in rows
    ]


_REAL = OpenSearchDocuments
BREAKS = _breaks(
    [
        ("PostFilter", PostFilter, (), "filter_comes_before_top_k scores_are_those_of_the_visible_alone"),
        (
            "DenseUnfilteredButSaid",
            _REAL,
            [(search, "dense_part", _whole_index(search.dense_part))],
            "compounds_equal_the_reference",
        ),
        (
            "DenseUnfiltered",
            _REAL,
            [(search, "dense_part", _whole_index(search.dense_part)), NO_PROOF],
            "filter_comes_before_top_k compounds_equal_the_reference",
        ),
        (
            "LexicalUnfiltered",
            _REAL,
            [(search, "lexical_part", _whole_index(search.lexical_part)), NO_PROOF],
            "compounds_equal_the_reference hidden_chunks_change_nothing",
        ),
        (
            "CountsOfAll",
            _REAL,
            [(search, "count_part", _whole_index(search.count_part)), NO_PROOF],
            "hidden_chunks_change_nothing scores_are_those_of_the_visible_alone",
        ),
        (
            "DroppedClause",
            _spoiled(broken.DroppedClause.change),
            (),
            "compounds_equal_the_reference required_scalars_are_demanded",
        ),
        ("DroppedNot", _spoiled(broken.DroppedNot.change), (), "compounds_equal_the_reference missing_reads_as_missing"),
        ("NotOverAndStaysAnd", _spoiled(broken.NotOverAndStaysAnd.change), (), "compounds_equal_the_reference"),
        ("MissingIsEqual", _spoiled(broken.MissingIsEqual.change), (), "missing_reads_as_missing"),
        ("HasFoldedAway", _spoiled(broken.HasFoldedAway.change), (), "required_scalars_are_demanded missing_reads_as_missing"),
        ("EmptyListIsTrue", _spoiled(broken.EmptyListIsTrue.change), (), "empty_sets_and_empty_lists"),
        ("EmptySetIsNotWithin", _spoiled(broken.EmptySetIsNotWithin.change), (), "empty_sets_and_empty_lists"),
        ("OffByOne", _spoiled(broken.OffByOne.change), (), "extreme_numbers"),
        ("DroppedValues", _spoiled(broken.DroppedValues.change), (), "large_sets"),
        ("LosesSource", _spoiled(_loses_source), (), "compounds_equal_the_reference"),
        (
            "EmptyShould",
            _REAL,
            [(lowering, "NONE", {"bool": {"should": [], "minimum_should_match": 1}})],
            "empty_sets_and_empty_lists",
        ),
        ("FoldedCase", _REAL, [(lowering, "stand_in", lambda text: _stand_in(text).lower())], "hostile_values_match_literally"),
        ("Jokers", _REAL, [(lowering, "_like_short", _jokers)], "hostile_values_match_literally"),
        ("ShapesAreNotRead", _REAL, [(mapping, "fits_shape", lambda *_: True)], "schema_changes_between_runs"),
        ("TiesByPlace", _REAL, [(search, "_leg_part", _by_score_alone)], "ties_by_chunk_id"),
        ("BothIndexes", _REAL, [(search, "_one_index", lambda _: ALL)], "one_index_of_two"),
        ("TwinsAreNeighbours", _REAL, [(store, "_NO_TWINS", ALL)], "two_indexes_are_one_document"),
        (
            "TrustsThePlace",
            _REAL,
            [(mapping, "read_partition", _unchecked)],
            "foreign_partition_is_refused a_newer_store_is_refused",
        ),
        ("StaleLabels", StaleLabels, (), "relabel_is_seen_at_once"),
        ("HalfRelabelled", HalfRelabelled, (), "relabel_is_seen_at_once"),
        ("CountsItsWrites", CountsItsWrites, (), "a_partition_made_anew_is_noticed a_restored_partition_is_noticed"),
        ("NeverRefreshes", _REAL, [(partitions.Partitions, "refresh", lambda *_: None)], "relabel_is_seen_at_once"),
        ("UnguardedLoad", UnguardedLoad, (), "never_does_no_io compounds_equal_the_reference"),
        ("UnguardedSiblings", UnguardedSiblings, (), "compounds_equal_the_reference"),
        ("UnguardedVectors", UnguardedVectors, (), "compounds_equal_the_reference"),
        ("AllLabelsAreShown", AllLabelsAreShown, (), "compounds_equal_the_reference"),
        ("UnguardedSuperseding", UnguardedSuperseding, (), "superseding_is_admitted_like_the_rest"),
        ("NothingExpunged", _REAL, [(partitions.Partitions, "expunge", lambda *_: None)], "forget_leaves_no_byte"),
        ("TellsAll", TellsAll, (), "errors_tell_nothing"),
        ("Eager", Eager, (), "never_does_no_io refused_before_io"),
    ]
)
