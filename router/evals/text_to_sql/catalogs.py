"""The catalogue of a database: names, types and keys as `catalog derive` would write them, and what a person added to that.

Readable names that come with the data set are part of its schema; where they say more than the name itself, they are synonyms.
`--synonyms DIR` holds one `<db_id>.yaml` a database (deploy/text-to-sql.md); what it names and the schema lacks is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from router.catalog import Catalog, Dataset, DatasetField, Metric, Relationship
from router.domain import ColumnGrant, TableGrant
from router.errors import UsageError
from router.evals.text_to_sql.schemas import Column, Schema, Table
from router.filters import Always

_TYPES = {
    "text": "String", "integer": "Integer", "float": "Float", "decimal": "Decimal", "date": "Date", "datetime": "DateTime", "time": "Time",
    "boolean": "Boolean",
}  # fmt: skip
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


def plain_name(name: str) -> str:
    plain = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "unnamed"
    return f"_{plain}" if plain[0].isdigit() else plain


def build_catalog(schema: Schema) -> Catalog:
    names = {table.name.lower(): plain_name(table.name) for table in schema.tables}
    return Catalog(
        plain_name(schema.name),
        tuple(_dataset(table) for table in schema.tables),
        tuple(
            Relationship(
                f"{names[table.name.lower()]}_{'_'.join(map(plain_name, link.columns))}",
                names[table.name.lower()],
                names[link.table.lower()],
                link.columns,
                link.to_columns,
            )
            for table in schema.tables
            for link in table.links
            if link.table.lower() in names
        ),
    )


def _dataset(table: Table) -> Dataset:
    return Dataset(
        plain_name(table.name),
        f"main.{table.name}",
        tuple(_field(column) for column in table.columns),
        table.primary_key,
        table.unique_keys,
        synonyms=_more(table.name, table.readable),
    )


def _field(column: Column) -> DatasetField:
    expression = column.name if _PLAIN.fullmatch(column.name.lower()) else '"' + column.name.replace('"', '""') + '"'
    return DatasetField(
        plain_name(column.name),
        expression,
        datatype=_TYPES[column.kind],
        is_time=column.kind in ("date", "datetime", "time"),
        synonyms=_more(column.name, column.readable),
    )


def _more(name: str, readable: str) -> tuple[str, ...]:
    """The readable name, where it is not the name itself with its parts set apart."""
    apart = re.sub(r"[^a-z0-9]+", " ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()).strip()
    said = " ".join(readable.lower().split())
    return (said,) if said and said != apart and said != name.lower() else ()


def grants_over(catalog: Catalog, schema: Schema) -> tuple[TableGrant, ...]:
    """One ordinary permit: everything of the catalogue, nothing masked."""
    columns = {plain_name(table.name): tuple(ColumnGrant(column.name) for column in table.columns) for table in schema.tables}
    return tuple(
        TableGrant(one.name, one.source, columns[one.name], Always(), (), None, ("10-eval.permit",)) for one in catalog.datasets
    )


# --- what a person added ----------------------------------------------------------------------------------------------


def with_synonyms(catalog: Catalog, folder: Path, database: str) -> tuple[Catalog, list[str]]:
    """The fuller catalogue, and what was written about a relationship that is not declared."""
    path = folder / f"{database}.yaml"
    if not path.is_file():
        return catalog, []
    import yaml

    try:
        body = yaml.safe_load(path.read_text(encoding="utf-8-sig")) or {}
    except (OSError, ValueError, yaml.YAMLError):
        raise UsageError("synonyms_malformed", f"`{path.name}` is not YAML in UTF-8", "see deploy/text-to-sql.md") from None
    reader = _Reader(path.name, catalog)
    return reader.read(body), reader.unused


class _Reader:
    """One file over one catalogue. Every fault names file and key."""

    def __init__(self, file: str, catalog: Catalog) -> None:
        self.file = file
        self.catalog = catalog
        self.unused: list[str] = []

    def read(self, body: Any) -> Catalog:
        parts = self._mapping(body, "the file", ("datasets", "relationships", "metrics"))
        found = self.catalog
        for name, one in self._mapping(parts.get("datasets"), "datasets").items():
            found = self._dataset(found, str(name), one)
        for name, said in self._mapping(parts.get("relationships"), "relationships").items():
            found = self._relationship(found, str(name), said)
        metrics = tuple(self._metric(str(name), one) for name, one in self._mapping(parts.get("metrics"), "metrics").items())
        return replace(found, metrics=metrics)

    def _dataset(self, catalog: Catalog, name: str, body: Any) -> Catalog:
        key = f"datasets.{name}"
        dataset = catalog.dataset(plain_name(name)) or catalog.dataset(plain_name(name.rpartition(".")[2]))
        if dataset is None:
            raise self._fault(key, f"there is no table `{name}`")
        parts = self._mapping(body, key, ("synonyms", "label", "time", "fields", "key"))
        made = replace(
            dataset,
            synonyms=self._joined(dataset.synonyms, parts.get("synonyms"), f"{key}.synonyms"),
            label=self._named(dataset, parts.get("label"), f"{key}.label"),
            time=self._named(dataset, parts.get("time"), f"{key}.time"),
            primary_key=tuple(map(str, self._list(parts.get("key"), f"{key}.key"))) or dataset.primary_key,
        )
        for column, said in self._mapping(parts.get("fields"), f"{key}.fields").items():
            field = self._field(dataset, str(column), f"{key}.fields.{column}")
            fuller = replace(field, synonyms=self._joined(field.synonyms, said, f"{key}.fields.{column}"))
            made = replace(made, fields=tuple(fuller if one.name == field.name else one for one in made.fields))
        for column in made.primary_key:
            self._field(dataset, column, f"{key}.key")
        return replace(catalog, datasets=tuple(made if one.name == dataset.name else one for one in catalog.datasets))

    def _relationship(self, catalog: Catalog, name: str, body: Any) -> Catalog:
        """Role names of a foreign key, or `{from: table.column, to: table.column, synonyms: […]}` for one that is not declared."""
        key = f"relationships.{name}"
        if isinstance(body, Mapping):
            parts = self._mapping(body, key, ("from", "to", "synonyms"))
            one, column = self._end(catalog, parts.get("from"), f"{key}.from")
            other, target = self._end(catalog, parts.get("to"), f"{key}.to")
            said = tuple(self._list(parts.get("synonyms"), f"{key}.synonyms"))
            made = Relationship(plain_name(name), one.name, other.name, (column,), (target,), said)
            return replace(catalog, relationships=(*catalog.relationships, made))
        table, _, column = name.rpartition(".")
        found = [
            one
            for one in catalog.relationships
            if one.name == plain_name(name)
            or (table and one.from_dataset == plain_name(table) and [c.lower() for c in one.from_columns] == [column.lower()])
        ]
        said = tuple(self._list(body, key))
        if not found:
            self._end(catalog, name, key)
            self.unused.append(f"`{self.file}`, `{key}`: the column is no declared foreign key")
        fuller = {one.name: replace(one, synonyms=(*one.synonyms, *said)) for one in found}
        return replace(catalog, relationships=tuple(fuller.get(one.name, one) for one in catalog.relationships))

    def _end(self, catalog: Catalog, text: Any, key: str) -> tuple[Dataset, str]:
        table, _, column = str(text).rpartition(".")
        dataset = catalog.dataset(plain_name(table)) if table else None
        if dataset is None:
            raise self._fault(key, f"there is no table `{table or text}`")
        return dataset, self._field(dataset, column, key).expression.strip('"')

    def _metric(self, name: str, body: Any) -> Metric:
        key = f"metrics.{name}"
        parts = self._mapping(body, key, ("expression", "synonyms", "description"))
        if not isinstance(parts.get("expression"), str):
            raise self._fault(key, "a metric needs an `expression`")
        synonyms = tuple(self._list(parts.get("synonyms"), f"{key}.synonyms"))
        return Metric(plain_name(name), parts["expression"], str(parts.get("description") or ""), synonyms=synonyms)

    def _field(self, dataset: Dataset, column: str, key: str) -> DatasetField:
        found = dataset.field(plain_name(column))
        if found is None:
            raise self._fault(key, f"`{dataset.name}` has no column `{column}`")
        return found

    def _named(self, dataset: Dataset, column: Any, key: str) -> str | None:
        return None if column is None else self._field(dataset, str(column), key).name

    def _joined(self, known: tuple[str, ...], more: Any, key: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*known, *self._list(more, key))))

    def _list(self, value: Any, key: str) -> Sequence[str]:
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str | int | float) for one in value):
            raise self._fault(key, "a list of texts is wanted")
        return [str(one) for one in value]

    def _mapping(self, value: Any, key: str, known: tuple[str, ...] = ()) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._fault(key, "a mapping is wanted")
        for name in value:
            if known and name not in known:
                raise self._fault(
                    f"{key}.{name}" if key != "the file" else str(name), f"unknown key; known here: {', '.join(known)}"
                )
        return value

    def _fault(self, key: str, message: str) -> UsageError:
        return UsageError("synonyms_malformed", f"`{self.file}`, `{key}`: {message}", "see deploy/text-to-sql.md")
