"""Residuals and verdicts to `TableGrant`s: which datasets exist for a caller, with which rows and which columns.

Rows: the residual of `query` for one dataset, over that dataset's row attributes. Columns: Cedar in full on one `Column` entity
a set of tags, since its tags are known; its tenant is the caller's own, because only the caller's rows can be reached.

INVARIANT: `read_column` wins over `read_masked`; what neither allows does not exist, and neither does a column that may be
read only masked and has no mask (tests/unit/test_policy_tables.py::test_columns_by_tag).
INVARIANT: a row is admitted exactly where Cedar in full allows `query` on it (tests/unit/test_policy_tables.py::test_rows_agree).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from router.domain import ColumnGrant, TableGrant
from router.filters import ALWAYS, NEVER, EntityType, Filter, Part, compile_part, join_parts
from router.policy.governance import ColumnFacts, DatasetFacts
from router.policy.residual import fold, only_declared, read_residual

COLUMN_ACTIONS = ("read_column", "read_masked", "filter_raw")
_IN_NO_SOURCE = "\0"


def compile_rows(
    residuals: Mapping[str, Mapping[str, Any]], effects: Mapping[str, str], entity: EntityType
) -> tuple[Part, tuple[str, ...]]:
    """The rows of one dataset: some permit and no forbid; and the ids of the policies that speak of them."""
    permits: list[Part] = []
    vetoes: list[Part] = []
    speaking: list[str] = []
    for policy_id, residual in residuals.items():
        forbids = effects[policy_id] == "forbid"
        tree = only_declared(read_residual(residual, entity.name), entity.fields)
        part = compile_part(fold(tree, _IN_NO_SOURCE), entity, negated=forbids)
        if part.filter is not (ALWAYS if forbids else NEVER):
            speaking.append(policy_id)
            (vetoes if forbids else permits).append(part)
    return join_parts(permits, vetoes, entity), tuple(sorted(speaking))


def column_attributes(
    dataset: DatasetFacts, column: ColumnFacts, tenant: str, entity: EntityType
) -> dict[str, str | frozenset[str]]:
    """What policies can know of a column: its tags, and by what it is called where the schema asks for that."""
    known: dict[str, str | frozenset[str]] = {"tenant": tenant, "tags": column.tags, "dataset": dataset.name, "name": column.name}
    return {name: known[name] for name in entity.fields if name in known}


def grant_columns(columns: Iterable[tuple[ColumnFacts, Mapping[str, bool]]]) -> tuple[ColumnGrant, ...]:
    """Each column with what is said of it for each of the three actions."""
    granted = []
    for column, may in columns:
        if may["read_column"]:
            granted.append(ColumnGrant(column.name))
        elif may["read_masked"] and column.mask is not None:
            granted.append(ColumnGrant(column.name, column.mask, may["filter_raw"]))
    return tuple(granted)


def build_table(facts: DatasetFacts, columns: tuple[ColumnGrant, ...], f: Filter, policies: tuple[str, ...]) -> TableGrant:
    return TableGrant(facts.name, facts.relation, columns, f, facts.attributes, facts.min_group, policies)
