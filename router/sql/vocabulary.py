"""What one caller's words can stand for: the granted part of the catalogue, its index with stored values, and the tools.

It is built once per grant and version of the data and kept; stored values are read under the caller's own row filter, only of
fields whose values reviewers opened (`values:` in governance.yaml), and never of masked ones, which the caller's catalogue lacks.
Masked columns stand in the index only, where a question may ask to be shown them.

INVARIANT: nothing enters a vocabulary that its caller could not query (tests/sql/test_vocabulary.py).
INVARIANT: a masked field is in no catalogue that a tool, a metric or a model sees (tests/sql/test_vocabulary.py::test_masks_are_shown_and_nothing_else).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from router.catalog import Catalog, Dataset, DatasetField
from router.domain import ColumnGrant, Table, TableGrant
from router.errors import Refused, SourceError
from router.filters import canonical
from router.sql.check import narrow
from router.sql.compile import lower_form
from router.sql.expressions import expand_field, reads
from router.sql.form import By, Form, Ref
from router.sql.planner import Index, StoredValues, build_index, reads_as_question
from router.sql.planner.index import FieldKey, Masks
from router.sql.tools import Tool, granted_tools

MAX_VALUES = 2_000
"""A field with more different texts is no category, and its values are not indexed."""

Columns = frozenset[tuple[str, str]]
"""(dataset, column), both in lower case."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`index` speaks of more than `catalog`: of masked fields, too.

    `missing` are fields whose values could not be read just now; `built_s` says when, on a clock that only runs on."""

    catalog: Catalog
    index: Index
    tools: tuple[Tool, ...]
    values: tuple[StoredValues, ...]
    min_group: Mapping[str, int]
    missing: tuple[str, ...] = ()
    built_s: float = 0.0


def vocabulary_key(policy_version: str, tenant: str, data_version: str, grants: tuple[TableGrant, ...]) -> Hashable:
    """Equal only where every input of a vocabulary is. Filters by canonical text: to Python, 1 and True are equal."""
    return policy_version, tenant, data_version, tuple((grant.name, canonical(grant.filter), grant.columns) for grant in grants)


def build_vocabulary(
    catalog: Catalog, grants: tuple[TableGrant, ...], tools: tuple[Tool, ...], open_values: Columns, run: Callable[[str], Table]
) -> Vocabulary:
    """`run` runs compiled SQL for the caller; `open_values` are the columns whose stored values may help to understand questions."""
    granted = narrow(catalog, grants)
    min_group = {grant.name: grant.min_group for grant in grants if grant.min_group is not None}
    values: list[StoredValues] = []
    missing: list[str] = []
    for ref in _open_fields(granted, open_values):
        listing = Form(ref.dataset, by=(By(ref),), limit=MAX_VALUES + 1)
        try:
            table = run(lower_form(listing, granted, min_group=min_group).sql)
        except (Refused, SourceError):
            missing.append(str(ref))
            continue
        if len(table.rows) <= MAX_VALUES and not table.truncated:
            texts = tuple(value for row in table.rows if isinstance(value := row[0], str))
            values.append(StoredValues(ref.dataset, ref.field, texts))
    shown, masks = with_masks(catalog, granted, grants)
    index = build_index(shown, values, masks)
    asked_for = {param.field for tool in tools for param in tool.params if param.field is not None}
    plain = [
        replace(one, values=tuple(value for value in one.values if not reads_as_question(value, index)))
        for one in values
        if Ref(one.dataset, one.field) in asked_for
    ]
    others = [one for one in values if Ref(one.dataset, one.field) not in asked_for]
    return Vocabulary(
        catalog=granted,
        index=index,
        tools=granted_tools(tools, granted, (*plain, *others), min_group),
        values=tuple(values),
        min_group=min_group,
        missing=tuple(missing),
        built_s=time.monotonic(),
    )


def with_masks(catalog: Catalog, granted: Catalog, grants: tuple[TableGrant, ...]) -> tuple[Catalog, Masks]:
    """The granted catalogue with the fields that are one masked column each. What is computed of a mask would be no value at all, and
    stays out."""
    columns = {(grant.name.lower(), one.name.lower()): one for grant in grants for one in grant.columns if one.mask is not None}
    datasets: list[Dataset] = []
    shown: dict[FieldKey, ColumnGrant] = {}
    for dataset in granted.datasets:
        whole, own = catalog.dataset(dataset.name), {one.name for one in dataset.fields}
        fields: list[DatasetField] = []
        for one in whole.fields if whole is not None else dataset.fields:
            column = columns.get((dataset.name.lower(), one.expression.strip('"').lower()))
            if one.name not in own and column is not None:
                shown[dataset.name, one.name] = column
            if one.name in own or column is not None:
                fields.append(one)
        datasets.append(replace(dataset, fields=tuple(fields)))
    findable = frozenset(key for key, column in shown.items() if column.filter_raw)
    rounded = frozenset(key for key, column in shown.items() if rounds(column.mask or "", column.name))
    return replace(granted, datasets=tuple(datasets)), Masks(frozenset(shown), findable, rounded)


_ROUNDS = re.compile(
    r"(?:cast\()?(?:round|floor|ceil|ceiling)\((?P<column>\w+)(?:/(?P<by>[1-9]\d*))?\)(?:\*(?P<times>[1-9]\d*))?(?:as[\w(),]+\))?",
    re.IGNORECASE,
)


def rounds(mask: str, column: str) -> bool:
    """Whether a mask is a rounding of its column and nothing else: it keeps the order, so that it has a least and a greatest."""
    found = _ROUNDS.fullmatch("".join(mask.split()))
    return found is not None and found["column"].lower() == column.lower() and found["by"] == found["times"]


def _open_fields(granted: Catalog, open_values: Columns) -> Iterator[Ref]:
    """Text fields of which every column they read is open."""
    for dataset in granted.datasets:
        for one in dataset.fields:
            read = reads(expand_field(granted, dataset, one))
            if (
                read
                and one.datatype in (None, "String")
                and all((owner.lower(), name.lower()) in open_values for owner, name in read)
            ):
                yield Ref(dataset.name, one.name)
