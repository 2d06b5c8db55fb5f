"""The semantic model as plain values: datasets, fields, relationships and metrics of an Apache Ossie document.

What may be used by whom stands elsewhere (grants); this is only what things are called and how they hang together.
A field's expression speaks of the columns of its own dataset by bare name; these **columns** are what is granted, masked and
hidden (`ColumnGrant.name`), and what compiled SQL names. `dataset.name` in an expression is a field of another dataset.
A metric's expression speaks of fields as `dataset.field` and of other metrics by bare name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatasetField:
    """One field. `datatype` is one of Ossie's ten or None; `is_time` is resolved (an explicit flag wins over the datatype)."""

    name: str
    expression: str
    description: str = ""
    datatype: str | None = None
    is_time: bool = False
    label: str | None = None
    synonyms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dataset:
    """One logical table. `primary_key` and `unique_keys` are columns. `label` names the field by which people know a row,
    `time` the field meant where a question gives a period without naming one, empty in the part of a caller who may not see it;
    both stand in governance.yaml."""

    name: str
    source: str
    fields: tuple[DatasetField, ...]
    primary_key: tuple[str, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    description: str = ""
    synonyms: tuple[str, ...] = ()
    label: str | None = None
    time: str | None = None

    def field(self, name: str) -> DatasetField | None:
        """By name; regular identifiers do not care for case."""
        wanted = name.lower()
        return next((field for field in self.fields if field.name.lower() == wanted), None)

    @property
    def keys(self) -> tuple[frozenset[str], ...]:
        """Every declared key as a set of lower-case columns."""
        declared = (self.primary_key, *self.unique_keys)
        return tuple(frozenset(column.lower() for column in key) for key in declared if key)


@dataclass(frozen=True, slots=True)
class Relationship:
    """`from_columns` of one dataset equal `to_columns` of another, pair by pair. Which side is the one side follows from the
    declared keys alone. `synonyms` are the names of the role that the far side plays."""

    name: str
    from_dataset: str
    to_dataset: str
    from_columns: tuple[str, ...]
    to_columns: tuple[str, ...]
    synonyms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """One named aggregate expression. Metrics live in one namespace of the model."""

    name: str
    expression: str
    description: str = ""
    datatype: str | None = None
    synonyms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Catalog:
    """A whole model, or the part of it that exists for one caller."""

    name: str
    datasets: tuple[Dataset, ...]
    relationships: tuple[Relationship, ...] = ()
    metrics: tuple[Metric, ...] = ()

    def dataset(self, name: str) -> Dataset | None:
        wanted = name.lower()
        return next((dataset for dataset in self.datasets if dataset.name.lower() == wanted), None)

    def metric(self, name: str) -> Metric | None:
        wanted = name.lower()
        return next((metric for metric in self.metrics if metric.name.lower() == wanted), None)


# --- what a database says ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """`type` in the database's own words."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """One table or view as its database describes it. `foreign_keys` are (columns, other relation, its columns)."""

    name: str
    columns: tuple[RelationColumn, ...]
    primary_key: tuple[str, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = ()
