"""What the Foundation draft demands of a model, and which part of a model exists for a caller.

`check_document` looks at the document as written, for keys that the draft knows and defers; `check_catalog` at its meaning.
`narrow` leaves of a catalogue what a caller's grants cover; forms are compiled over nothing else.

INVARIANT: what is not granted raw is in no narrowed catalogue (tests/sql/form/test_check.py::test_narrowed_catalogue_reads_only_what_is_granted).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from router.catalog import Catalog, Dataset
from router.domain import TableGrant
from router.errors import Refused
from router.sql.expressions import expand_field, expand_metric, reads
from router.sql.form import STAR
from router.sql.paths import build_graph, connected, one_way

DEFERRED_KEYS = frozenset(
    """grain agg filter filters named_filter joins using_relationships referential_integrity from_all_rows_match to_all_rows_match
    unsafe natural_grain condition asof range semi_additive symmetric_aggregate cardinality parameters variables hierarchies""".split()
)
"""Keys that the draft knows and puts off; what they would mean is not guessed."""

RESERVED = frozenset(
    """grain filter query_filter
    all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create default deferrable desc
    describe distinct do else end except false fetch for foreign from group having in initially intersect into lambda lateral leading
    limit not null offset on only or order pivot pivot_longer pivot_wider placing primary qualify references returning select show some
    summarize symmetric table then to trailing true union unique unpivot using variadic when where window with""".split()
)
"""The draft's three names and the words that DuckDB reserves."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a model. `where` is a path of names, `orders.amount`, and `key` what stands under it in the document."""

    code: str
    where: str
    message: str
    hint: str = ""
    key: str = "name"


def check_document(document: Mapping[str, Any]) -> tuple[Fault, ...]:
    """Deferred keys in a model as written: `semantic_model: [...]` or one model itself."""
    models = document.get("semantic_model", [document])
    return tuple(fault for model in models if isinstance(model, Mapping) for fault in _deferred(model))


def _deferred(model: Mapping[str, Any]) -> Iterator[Fault]:
    yield from _keys(model, str(model.get("name", "")), frozenset())
    for part in ("datasets", "relationships", "metrics"):
        for one in _mappings(model.get(part)):
            where = str(one.get("name", part))
            yield from _keys(one, where, frozenset({"metrics"}) if part == "datasets" else frozenset())
            for field in _mappings(one.get("fields")):
                yield from _keys(field, f"{where}.{field.get('name', '')}", frozenset())


def _keys(body: Mapping[str, Any], where: str, also: frozenset[str]) -> Iterator[Fault]:
    for key in sorted(body.keys() & (DEFERRED_KEYS | also)):
        yield Fault("E_DEFERRED_KEY_REJECTED", where, f"`{key}` is deferred by the Foundation draft (§10)", "take it out", key)


def _mappings(parts: object) -> list[Mapping[str, Any]]:
    return (
        [part for part in parts if isinstance(part, Mapping)]
        if isinstance(parts, Sequence) and not isinstance(parts, str)
        else []
    )


def check_catalog(catalog: Catalog) -> tuple[Fault, ...]:
    """Every fault of a model's meaning, in the order of its parts."""
    return (*_names(catalog), *_relationships(catalog), *_fields(catalog), *_metrics(catalog))


def _names(catalog: Catalog) -> Iterator[Fault]:
    named = [one.name for one in catalog.datasets]
    named += [one.name for one in catalog.relationships] + [one.name for one in catalog.metrics]
    yield from _collisions(named, "")
    for dataset in catalog.datasets:
        yield from _collisions([field.name for field in dataset.fields], f"{dataset.name}.")


def _collisions(named: list[str], prefix: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for name in named:
        if name.lower() in seen:
            yield Fault("E_NAME_COLLISION", prefix + name, f"`{name}` is the name of two things", "names do not care for case")
        if name.lower() in RESERVED:
            yield Fault("E_RESERVED_NAME", prefix + name, f"`{name}` is reserved: rename it")
        seen.add(name.lower())


def _relationships(catalog: Catalog) -> Iterator[Fault]:
    for one in catalog.relationships:
        for end in (one.from_dataset, one.to_dataset):
            if catalog.dataset(end) is None:
                yield Fault("E_NAME_NOT_FOUND", one.name, f"there is no dataset `{end}`", key="from")
        if len(one.from_columns) != len(one.to_columns) or not one.from_columns:
            yield Fault("E_RELATIONSHIP_KEYS", one.name, "both sides must name the same number of columns, and at least one")


def _fields(catalog: Catalog) -> Iterator[Fault]:
    graph = None
    for dataset in catalog.datasets:
        for field in dataset.fields:
            where = f"{dataset.name}.{field.name}"
            try:
                for other, column in sorted(reads(expand_field(catalog, dataset, field))):
                    if other == dataset.name:
                        continue
                    graph = graph or build_graph(catalog)
                    if one_way(graph, dataset.name, other) is not None:
                        continue
                    if one_way(graph, other, dataset.name) is not None:
                        raise Refused(
                            "E_UNAGGREGATED_FINER_GRAIN_REFERENCE",
                            f"the field `{where}` takes `{other}.{column}`, of which one row of `{dataset.name}` has many: aggregate it in a metric",
                        )
                    code = "E3012_MN_NO_SAFE_REWRITE" if connected(graph, dataset.name, other) else "E_NO_PATH"
                    raise Refused(code, f"no path leads from `{dataset.name}` to `{other}`")
            except Refused as refused:
                yield Fault(refused.code, where, refused.message, refused.hint, "expression")


def _metrics(catalog: Catalog) -> Iterator[Fault]:
    for metric in catalog.metrics:
        try:
            expand_metric(catalog, metric.name)
        except Refused as refused:
            yield Fault(refused.code, metric.name, refused.message, refused.hint, "expression")


# --- what exists for a caller ---------------------------------------------------------------------------------------------


def narrow(catalog: Catalog, grants: tuple[TableGrant, ...]) -> Catalog:
    """The part of a catalogue that a caller may bind: everything all of whose columns are granted and not masked.

    A field, key, relationship or metric that reads one column more does not exist."""
    raw = {(grant.name.lower(), column.name.lower()) for grant in grants for column in grant.columns if column.mask is None}
    raw |= {(grant.name.lower(), STAR) for grant in grants}
    granted = {grant.name.lower() for grant in grants}
    datasets = tuple(_narrowed(catalog, one, raw) for one in catalog.datasets if one.name.lower() in granted)
    relationships = tuple(
        one
        for one in catalog.relationships
        if _covered(((one.from_dataset, column) for column in one.from_columns), raw)
        and _covered(((one.to_dataset, column) for column in one.to_columns), raw)
    )
    metrics = tuple(one for one in catalog.metrics if _readable(catalog, one.name, raw))
    return replace(catalog, datasets=datasets, relationships=relationships, metrics=metrics)


def _narrowed(catalog: Catalog, dataset: Dataset, raw: set[tuple[str, str]]) -> Dataset:
    def own(columns: Sequence[str]) -> bool:
        return _covered(((dataset.name, column) for column in columns), raw)

    fields = tuple(field for field in dataset.fields if _field_readable(catalog, dataset, field.name, raw))
    names = {field.name.lower() for field in fields}
    return replace(
        dataset,
        fields=fields,
        primary_key=dataset.primary_key if own(dataset.primary_key) else (),
        unique_keys=tuple(key for key in dataset.unique_keys if own(key)),
        label=dataset.label if dataset.label and dataset.label.lower() in names else None,
        time=dataset.time if dataset.time is None or dataset.time.lower() in names else "",
    )


def _field_readable(catalog: Catalog, dataset: Dataset, name: str, raw: set[tuple[str, str]]) -> bool:
    field = dataset.field(name)
    try:
        return field is not None and _covered(reads(expand_field(catalog, dataset, field)), raw)
    except Refused:
        return False


def _readable(catalog: Catalog, metric: str, raw: set[tuple[str, str]]) -> bool:
    try:
        return _covered(reads(expand_metric(catalog, metric)), raw)
    except Refused:
        return False


def _covered(pairs: Any, raw: set[tuple[str, str]]) -> bool:
    return all((dataset.lower(), column.lower()) in raw for dataset, column in pairs)
