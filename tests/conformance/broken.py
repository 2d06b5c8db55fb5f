"""Document stores that are broken on purpose, each the way a real one was or could be, and the promises that must catch it.

Most take the real store and spoil one thing: the filter on its way down, or one statement.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from connectors import sqlite_documents as real
from connectors.sqlite_documents import SqliteDocuments
from router.domain import SOURCE_FIELD, Found, IndexedDocument, Labels, ModelCard, Search, Stored
from router.errors import PointsmanError
from router.filters import ALWAYS, And, Eq, Filter, Ge, Gt, Has, In, Le, Like, Lt, Never, Not, Or, Overlaps, Within, matches
from tests.conformance.labs import SqliteLab


def _map(f: Filter, change: Callable[[Filter], Filter]) -> Filter:
    """`change` at every node, leaves first."""
    match f:
        case And(items):
            return change(And(tuple(_map(item, change) for item in items)))
        case Or(items):
            return change(Or(tuple(_map(item, change) for item in items)))
        case Not(item):
            return change(Not(_map(item, change)))
        case _:
            return change(f)


class Spoiled(SqliteDocuments):
    """Lowers another filter than it was given."""

    @staticmethod
    def change(f: Filter) -> Filter:
        return f

    def _where(self, f: Filter, reader: Any) -> tuple[str, dict[str, Any]]:
        return super()._where(_map(f, self.change), reader)


class DroppedClause(Spoiled):
    @staticmethod
    def change(f: Filter) -> Filter:
        return And(f.items[:-1]) if isinstance(f, And) and len(f.items) > 1 else f


class DroppedNot(Spoiled):
    @staticmethod
    def change(f: Filter) -> Filter:
        return f.item if isinstance(f, Not) else f


class NotOverAndStaysAnd(Spoiled):
    """De Morgan half done: not (a and b) read as (not a) and (not b)."""

    @staticmethod
    def change(f: Filter) -> Filter:
        return And(tuple(map(Not, f.item.items))) if isinstance(f, Not) and isinstance(f.item, And) else f


class MissingIsEqual(Spoiled):
    """A comparison with an absent attribute is true."""

    @staticmethod
    def change(f: Filter) -> Filter:
        return Or((f, Not(Has(f.field)))) if isinstance(f, Eq | In | Lt | Le | Gt | Ge | Like) else f


class HasFoldedAway(Spoiled):
    @staticmethod
    def change(f: Filter) -> Filter:
        return ALWAYS if isinstance(f, Has) else f


class EmptyOrIsTrue(Spoiled):
    @staticmethod
    def change(f: Filter) -> Filter:
        return ALWAYS if f == Or(()) else f


class EmptyListIsTrue(Spoiled):
    @staticmethod
    def change(f: Filter) -> Filter:
        return ALWAYS if isinstance(f, In | Overlaps) and not f.values else f


class EmptySetIsNotWithin(Spoiled):
    @staticmethod
    def change(f: Filter) -> Filter:
        return And((f, Overlaps(f.field, f.values))) if isinstance(f, Within) else f


class OffByOne(Spoiled):
    @staticmethod
    def change(f: Filter) -> Filter:
        return Le(f.field, f.value) if isinstance(f, Lt) else f


class DroppedValues(Spoiled):
    """Only the first thousand of a list arrive."""

    @staticmethod
    def change(f: Filter) -> Filter:
        if isinstance(f, In | Overlaps) and len(f.values) > 1000:
            kept: frozenset[Any] = frozenset(sorted(f.values, key=repr)[:1000])
            return replace(f, values=kept)
        return f


class ThreeValuedNot(SqliteDocuments):
    """NOT of an unknown stays unknown."""

    def _where(self, f: Filter, reader: Any) -> tuple[str, dict[str, Any]]:
        where, values = super()._where(f, reader)
        return where.replace("IS NOT TRUE", "IS FALSE"), values


class FoldedCase(SqliteDocuments):
    """Strings compare as a careless collation would."""

    def _where(self, f: Filter, reader: Any) -> tuple[str, dict[str, Any]]:
        where, values = super()._where(f, reader)
        return where.replace('"s_region" =', '"s_region" COLLATE NOCASE ='), values


class SqlLike(SqliteDocuments):
    """Wildcards of the engine are let through, and its case rules too."""

    def _where(self, f: Filter, reader: Any) -> tuple[str, dict[str, Any]]:
        def sql(g: Filter) -> Filter:
            return Eq(g.field, "%".join(g.parts)) if isinstance(g, Like) else g

        where, values = super()._where(_map(f, sql), reader)
        return where.replace('"s_region" =', '"s_region" LIKE'), values


class PostFilter(SqliteDocuments):
    """Searches everything, cuts to the limit, and takes out what may not be seen."""

    def search(self, search: Search) -> Found:
        self._check(search.filter)
        if isinstance(search.filter, Never):
            return Found((), 0)
        found = super().search(replace(search, filter=ALWAYS))
        allowed = set(self.admitted(search.tenant, search.filter))
        kept = tuple(candidate for candidate in found.candidates if candidate.document_id in allowed)
        return Found(kept, super().search(replace(search, limit=0)).admitted)


class OneLegUnfiltered(SqliteDocuments):
    """The dense leg forgets the filter where both legs run."""

    def search(self, search: Search) -> Found:
        found = super().search(search)
        if search.text is None or search.vector is None or isinstance(search.filter, Never):
            return found
        loose = super().search(replace(search, text=None, filter=ALWAYS))
        merged = {candidate.chunk_id: candidate for candidate in (*loose.candidates, *found.candidates)}
        return Found(tuple(merged[name] for name in sorted(merged)), found.admitted)


class StaleLabels(SqliteDocuments):
    """A relabelled document keeps its old label until it is put anew."""

    def relabel(self, tenant: str, labels: Mapping[str, Labels], *, generation: str | None = None) -> int:
        held = {name: (source, of) for source, name, of in self.labelled(tenant)}
        return sum(name in held and held[name][1] != new for name, new in labels.items())


class HalfRelabelled(SqliteDocuments):
    """The document gets its new label, its chunks keep the old one."""

    def relabel(self, tenant: str, labels: Mapping[str, Labels], *, generation: str | None = None) -> int:
        changed = 0
        with self._write(tenant, generation, None) as con:
            for name, new in labels.items():
                row = con.execute("SELECT source, lid FROM document WHERE id = ?", (name,)).get
                if row is not None:
                    lid = real._lid(con, row[0], new, self._document_type())
                    con.execute("UPDATE document SET lid = ? WHERE id = ?", (lid, name))
                    changed += lid != row[1]
        return changed


class UnguardedLoad(SqliteDocuments):
    """The search filters; what loads the text trusts its caller."""

    def load(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[Stored]:
        return super().load(tenant, chunk_ids, ALWAYS, deadline_s=deadline_s)


class UnguardedSiblings(SqliteDocuments):
    def siblings(self, tenant: str, document_id: str, first: int, last: int, f: Filter, *, deadline_s: float) -> list[Stored]:
        return super().siblings(tenant, document_id, first, last, ALWAYS, deadline_s=deadline_s)


class UnguardedVectors(SqliteDocuments):
    def vectors(self, tenant: str, chunk_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[bytes]:
        return super().vectors(tenant, chunk_ids, ALWAYS, deadline_s=deadline_s)


class AllLabelsAreShown(SqliteDocuments):
    """What may be narrowed by is read of every document."""

    def admitted_labels(self, tenant: str, f: Filter, *, deadline_s: float) -> list[Labels]:
        return super().admitted_labels(tenant, ALWAYS, deadline_s=deadline_s)


class UnguardedSuperseding(SqliteDocuments):
    """A version that the caller may not see leaves out the one that the caller may."""

    def superseding(self, tenant: str, document_ids: Sequence[str], f: Filter, *, deadline_s: float) -> list[Stored]:
        return super().superseding(tenant, document_ids, ALWAYS, deadline_s=deadline_s)


class UnguardedSubjects(SqliteDocuments):
    """What a document that the caller may not see is about links to it."""

    def subjects(self, tenant: str, names: Sequence[str], f: Filter, *, most: int, deadline_s: float) -> list[tuple[str, Stored]]:
        return super().subjects(tenant, names, ALWAYS, most=most, deadline_s=deadline_s)


class SubjectsCutFirst(SqliteDocuments):
    """Cut at the number wanted, then filtered: what is hidden crowds out what is not."""

    def subjects(self, tenant: str, names: Sequence[str], f: Filter, *, most: int, deadline_s: float) -> list[tuple[str, Stored]]:
        found = super().subjects(tenant, names, ALWAYS, most=most, deadline_s=deadline_s)
        kept = {item.chunk.chunk_id for item in super().load(tenant, [item.chunk.chunk_id for _, item in found], f, deadline_s=9)}
        return [(name, item) for name, item in found if item.chunk.chunk_id in kept]


class NamesAfterTopK(SqliteDocuments):
    """What chunks name is looked at in what was found: counts and scores are those of all."""

    def search(self, search: Search) -> Found:
        found = super().search(replace(search, entities=frozenset()))
        named = {hit.chunk_id for hit in super().search(search).candidates}
        return replace(found, candidates=tuple(hit for hit in found.candidates if hit.chunk_id in named))


class DeleteIsForget(SqliteDocuments):
    """Forgets in the current generation, and leaves the pages as they are."""

    def forget(self, tenant: str, document_ids: Sequence[str]) -> int:
        return self.delete(tenant, document_ids)


class TrustsThePlace(SqliteDocuments):
    """Never compares whose partition it opened."""

    @contextlib.contextmanager
    def _reading(self, tenant: str, deadline_s: float) -> Iterator[Any]:
        with _patched("_check_partition", lambda meta, tenant: None), super()._reading(tenant, deadline_s) as reader:
            yield reader


class KeepsTheFile(SqliteDocuments):
    """Reads on in the file that it opened, whatever stands in its place by now."""

    @contextlib.contextmanager
    def _reading(self, tenant: str, deadline_s: float) -> Iterator[Any]:
        with _patched("_file_of", lambda path: (0, 0)), super()._reading(tenant, deadline_s) as reader:
            yield reader


class CountsItsWrites(SqliteDocuments):
    """Tells two states of a partition apart by how often it was written to."""

    def version(self, tenant: str, *, deadline_s: float | None = None, seen: bool = False) -> str:
        return ".".join(super().version(tenant, deadline_s=deadline_s, seen=seen).split(".")[:2])


class ColumnsOfTheOldSchema(SqliteDocuments):
    """Reads the columns it knew when the file was written, whatever policy declares by now."""

    def _where(self, f: Filter, reader: Any) -> tuple[str, dict[str, Any]]:
        where, values = real.lower_filter(f, real._with_source(self._document_type()).fields)
        known: set[str] = self.__dict__.setdefault("known", {row[1] for row in reader.con.execute("PRAGMA table_info(label)")})
        for name, spec in self._document_type().fields.items():
            column = real._column(name, spec)
            where = where if column in known else where.replace(f'c."{column}"', "NULL")
        return where, values


class TellsAll(SqliteDocuments):
    """Errors as the driver words them."""

    def search(self, search: Search) -> Found:
        try:
            return super().search(search)
        except PointsmanError as error:
            error.message += f" {self._folder}"
            error.args = (error.message,)
            raise


class Eager(SqliteDocuments):
    """Opens the partition first and looks at the filter afterwards."""

    def _check(self, f: Filter) -> None:
        for path in self._folder.glob("*/g-*.sqlite"):
            with real._translated():
                real._connect(path, 1.0, write=False).execute("SELECT count(*) FROM meta")
        super()._check(f)


class Halves(SqliteDocuments):
    """Each document of a batch in a transaction of its own."""

    def put(self, tenant: str, documents: Sequence[IndexedDocument], *, model: ModelCard, generation: str | None = None) -> None:
        for item in documents:
            super().put(tenant, [item], model=model, generation=generation)


class LosesSource(SqliteDocuments):
    """A source is no label here: what speaks of it is taken as true."""

    def _where(self, f: Filter, reader: Any) -> tuple[str, dict[str, Any]]:
        def change(g: Filter) -> Filter:
            return ALWAYS if getattr(g, "field", None) == SOURCE_FIELD else g

        return super()._where(_map(f, change), reader)


class BothIndexes(SqliteDocuments):
    """Plain and contextual chunks of one document side by side."""

    def search(self, search: Search) -> Found:
        with _patched("_ONE_INDEX", "(1 OR :plain)"):
            return super().search(search)


class CountsBothIndexes(SqliteDocuments):
    """One index is shown, the statistics are of both."""

    def search(self, search: Search) -> Found:
        with _patched("_ONE_INDEX", "(1 OR :plain)"):
            found = super().search(search)
        shown = {candidate.chunk_id for candidate in super().search(search).candidates}
        kept = tuple(candidate for candidate in found.candidates if candidate.chunk_id in shown)
        return Found(kept, len(kept))


class TwinsAreNeighbours(SqliteDocuments):
    """Neighbours come twice."""

    def siblings(self, tenant: str, document_id: str, first: int, last: int, f: Filter, *, deadline_s: float) -> list[Stored]:
        with _patched("_CONTEXTUAL", 99):
            return super().siblings(tenant, document_id, first, last, f, deadline_s=deadline_s)


class ForgetsOneIndex(SqliteDocuments):
    """The contextual twins stay."""

    def forget(self, tenant: str, document_ids: Sequence[str]) -> int:
        def remove(con: Any, ids: Sequence[str]) -> int:
            con.execute("UPDATE document SET id = id || '.' WHERE lid IN (SELECT lid FROM label WHERE idx = 2)")
            removed = kept(con, ids)
            con.execute("UPDATE document SET id = rtrim(id, '.') WHERE lid IN (SELECT lid FROM label WHERE idx = 2)")
            return removed

        kept = real._remove
        with _patched("_remove", remove):
            return super().forget(tenant, document_ids)


class InMemoryReference(SqliteDocuments):
    """Filters in Python after reading all labels: right, and slow. The suite must not complain of it."""

    def admitted(self, tenant: str, f: Filter) -> list[str]:
        whole = super().admitted(tenant, f)
        if isinstance(f, Never):
            return []
        fitting = set(super().admitted(tenant, ALWAYS))
        mine = [n for source, n, of in self.labelled(tenant) if n in fitting and matches(f, {**of, SOURCE_FIELD: source})]
        return mine if mine == whole else ["disagrees"]


# --- statements -------------------------------------------------------------------------------------------------------


class _patched:
    """One global of the real module replaced for a while."""

    def __init__(self, name: str, value: Any) -> None:
        self._name, self._value = name, value

    def __enter__(self) -> None:
        self._kept = getattr(real, self._name)
        setattr(real, self._name, self._value)

    def __exit__(self, *_: object) -> None:
        setattr(real, self._name, self._kept)


def _statement(name: str, *swaps: tuple[str, str]) -> type[SqliteDocuments]:
    """The real store with parts of one SQL text replaced while it searches."""
    text = getattr(real, name)
    for old, new in swaps:
        assert old in text, f"{name} no longer holds: {old}"
        text = text.replace(old, new)

    class Restated(SqliteDocuments):
        def search(self, search: Search) -> Found:
            with _patched(name, text):
                return super().search(search)

    return Restated


_VISIBLE = "\n  WHERE k.lid IN (SELECT lid FROM ok)"
_INTO_LEX = ("ON k.rid = x.rid ORDER", "ON k.rid = x.rid WHERE k.lid IN (SELECT lid FROM ok) ORDER")
CORPUS_COUNT = _statement("_LEXICAL", ("a FROM ok)", "a FROM label)"))
CORPUS_FREQUENCY = _statement("_LEXICAL", (_VISIBLE, ""), _INTO_LEX)
LEXICAL_UNFILTERED = _statement("_LEXICAL", (_VISIBLE, ""))
DENSE_UNFILTERED = _statement("_DENSE", ("\n  WHERE k.lid IN (SELECT lid FROM ok)", ""))
TIES_BY_ROW = _statement("_DENSE", ("ORDER BY d, k.id", "ORDER BY d, k.rid"))
TIES_BY_ROW_LEXICAL = _statement("_LEXICAL", ("x.s DESC, k.id", "x.s DESC, k.rid DESC"))
ANY_NAME = _statement("_NAMING", ("count(*) = json_array_length(:entities)", "count(*) > 0"))
NAMES_UNCOUNTED = _statement("_COUNTED", (real._COUNTED, real._SUMMED))
NOT_FINITE = _statement("_BOTH", ("{cosine}", "vec_distance_cosine(e.v, :vector)"))


@dataclass(frozen=True, slots=True)
class Break:
    """A broken store and the promises that must not hold of it."""

    name: str
    store: type[SqliteDocuments]
    caught_by: tuple[str, ...]

    def lab(self) -> type[SqliteLab]:
        return type(f"Broken{self.name}", (SqliteLab,), {"kind": self.store})


def _breaks(rows: Iterable[tuple[str, type[SqliteDocuments], str]]) -> list[Break]:
    return [Break(name, store, tuple(f"test_{word}" for word in words.split())) for name, store, words in rows]


BREAKS = _breaks(
    [
        (
            "PostFilter",
            PostFilter,
            "filter_comes_before_top_k scores_are_those_of_the_visible_alone hidden_chunks_change_nothing",
        ),
        ("OneLegUnfiltered", OneLegUnfiltered, "filter_comes_before_top_k compounds_equal_the_reference"),
        (
            "LexicalUnfiltered",
            LEXICAL_UNFILTERED,
            "compounds_equal_the_reference hidden_chunks_change_nothing",
        ),
        (
            "DenseUnfiltered",
            DENSE_UNFILTERED,
            "filter_comes_before_top_k compounds_equal_the_reference hidden_chunks_change_nothing",
        ),
        ("DroppedClause", DroppedClause, "compounds_equal_the_reference required_scalars_are_demanded missing_reads_as_missing"),
        ("DroppedNot", DroppedNot, "compounds_equal_the_reference missing_reads_as_missing large_sets"),
        ("NotOverAndStaysAnd", NotOverAndStaysAnd, "compounds_equal_the_reference"),
        ("ThreeValuedNot", ThreeValuedNot, "compounds_equal_the_reference missing_reads_as_missing large_sets"),
        ("MissingIsEqual", MissingIsEqual, "every_comparison_equals_the_reference missing_reads_as_missing large_sets"),
        (
            "HasFoldedAway",
            HasFoldedAway,
            "every_comparison_equals_the_reference required_scalars_are_demanded missing_reads_as_missing",
        ),
        ("EmptyOrIsTrue", EmptyOrIsTrue, "empty_sets_and_empty_lists compounds_equal_the_reference"),
        ("EmptyListIsTrue", EmptyListIsTrue, "empty_sets_and_empty_lists every_comparison_equals_the_reference"),
        (
            "EmptySetIsNotWithin",
            EmptySetIsNotWithin,
            "empty_sets_and_empty_lists every_comparison_equals_the_reference large_sets",
        ),
        ("OffByOne", OffByOne, "every_comparison_equals_the_reference extreme_numbers"),
        ("DroppedValues", DroppedValues, "large_sets"),
        ("FoldedCase", FoldedCase, "every_comparison_equals_the_reference hostile_values_match_literally"),
        ("SqlLike", SqlLike, "every_comparison_equals_the_reference hostile_values_match_literally"),
        ("LosesSource", LosesSource, "every_comparison_equals_the_reference compounds_equal_the_reference"),
        ("CorpusCount", CORPUS_COUNT, "hidden_chunks_change_nothing scores_are_those_of_the_visible_alone"),
        ("CorpusFrequency", CORPUS_FREQUENCY, "hidden_chunks_change_nothing scores_are_those_of_the_visible_alone"),
        ("TiesByRow", TIES_BY_ROW, "ties_by_chunk_id"),
        ("TiesByRowLexical", TIES_BY_ROW_LEXICAL, "ties_by_chunk_id"),
        ("NotFinite", NOT_FINITE, "scores_are_finite"),
        ("StaleLabels", StaleLabels, "relabel_is_seen_at_once"),
        ("HalfRelabelled", HalfRelabelled, "relabel_is_seen_at_once"),
        ("UnguardedLoad", UnguardedLoad, "compounds_equal_the_reference never_does_no_io refused_before_io"),
        ("UnguardedSiblings", UnguardedSiblings, "compounds_equal_the_reference never_does_no_io refused_before_io"),
        ("UnguardedVectors", UnguardedVectors, "compounds_equal_the_reference never_does_no_io refused_before_io"),
        ("AllLabelsAreShown", AllLabelsAreShown, "compounds_equal_the_reference never_does_no_io refused_before_io"),
        ("DeleteIsForget", DeleteIsForget, "forget_leaves_no_byte"),
        ("TrustsThePlace", TrustsThePlace, "foreign_partition_is_refused a_newer_store_is_refused"),
        (
            "ColumnsOfTheOldSchema",
            ColumnsOfTheOldSchema,
            "schema_changes_between_runs an_attribute_that_appears_is_seen_at_once",
        ),
        ("TellsAll", TellsAll, "errors_tell_nothing"),
        ("KeepsTheFile", KeepsTheFile, "a_partition_made_anew_is_noticed a_restored_partition_is_noticed"),
        ("CountsItsWrites", CountsItsWrites, "a_partition_made_anew_is_noticed a_restored_partition_is_noticed"),
        ("Eager", Eager, "never_does_no_io refused_before_io"),
        ("Halves", Halves, "bad_documents_are_refused_whole"),
        ("UnguardedSubjects", UnguardedSubjects, "subjects_are_admitted_like_the_rest hidden_names_change_nothing"),
        ("SubjectsCutFirst", SubjectsCutFirst, "subjects_are_admitted_like_the_rest hidden_names_change_nothing"),
        ("AnyName", ANY_NAME, "narrowed_by_what_chunks_name"),
        ("NamesUncounted", NAMES_UNCOUNTED, "narrowed_by_what_chunks_name"),
        ("NamesAfterTopK", NamesAfterTopK, "narrowed_by_what_chunks_name"),
        ("UnguardedSuperseding", UnguardedSuperseding, "superseding_is_admitted_like_the_rest"),
        ("BothIndexes", BothIndexes, "one_index_of_two"),
        ("CountsBothIndexes", CountsBothIndexes, "one_index_of_two"),
        ("TwinsAreNeighbours", TwinsAreNeighbours, "two_indexes_are_one_document"),
        ("ForgetsOneIndex", ForgetsOneIndex, "forget_leaves_no_byte_of_a_context"),
    ]
)
