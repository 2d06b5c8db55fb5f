"""governance.yaml: what is true of a dataset and its columns, as reviewers state it. Facts only; who may see what is Cedar's.

    datasets:
      claims:
        relation: main.claims_v                      # inside the served database; `main.<name>` where it is left out
        attributes: { tenant: CAST(tenant_id AS VARCHAR) }   # every attribute of the schema's entity, as a DuckDB expression
        columns:
          claim_id: [plain]                          # tags, which policies speak of
          claimant: { tags: [personal], mask: "left(claimant, 1) || '***'" }
          status: { tags: [plain], values: true }    # its stored values may be used to understand questions
        min_group: 5                                 # only compiled questions, over at least so many rows each
        label: claim_id                              # the field by which people know a row
        time: reported_at                            # the field meant where a question gives a period
    tools: {}                                        # query tools: see tools.py

INVARIANT: a column that is not listed does not exist for anybody, and an attribute that is not mapped is a fault
(tests/unit/test_policy_tables.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from router.filters import EntityType, Kind
from router.policy.schema import DATASET, VOCABULARY
from router.policy.strict import Entry, Faults, Lined, nearest, top

FILE = "governance.yaml"
Values = Literal["no", "granted", "public"]

_RELATION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """`mask` stands for the column where it may be read only masked; without one it then does not exist.
    `values` says whose questions its stored values may help to understand: of whoever may read them, or of everybody."""

    name: str
    tags: frozenset[str]
    mask: str | None = None
    values: Values = "no"


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """`attributes` are (row attribute, DuckDB expression, kind) in the order of the schema."""

    name: str
    relation: str
    attributes: tuple[tuple[str, str, Kind], ...]
    columns: tuple[ColumnFacts, ...]
    min_group: int | None = None
    label: str | None = None
    time: str | None = None

    def column(self, name: str) -> ColumnFacts | None:
        """By name; DuckDB does not care for case."""
        wanted = name.lower()
        return next((column for column in self.columns if column.name.lower() == wanted), None)


def parse_governance(
    raw: Mapping[str, bytes], types: Mapping[str, EntityType], faults: Faults
) -> tuple[dict[str, DatasetFacts], Entry | None]:
    """The datasets, and the section of query tools as it is: these are read once there is a catalogue."""
    file = top(raw, FILE, faults)
    if file is None:
        return {}, None
    file.only(("datasets", "tools"))
    tools = file.child("tools", required=False)
    section = file.child("datasets")
    if section is None:
        return {}, tools
    datasets: dict[str, DatasetFacts] = section.children(lambda name, entry: _dataset(name, entry, types))
    if types:
        for name in sorted(set(types) - set(VOCABULARY) - set(section.body)):
            section.fault("", f"says nothing of the dataset `{name}`, which the schema has", "add it, or take the entity out")
    return datasets, tools


def _dataset(name: str, entry: Entry, types: Mapping[str, EntityType]) -> DatasetFacts | None:
    entry.only(("relation", "attributes", "columns", "min_group", "label", "time"))
    if not DATASET.fullmatch(name):
        entry.fault("", "is no name for a dataset", "use lower case letters, digits and underscores")
        return None
    if types and name not in types:
        entry.fault("", "is a dataset that the schema does not have", f"declare `entity {name}` in schema.cedarschema")
        return None
    columns = _columns(entry)
    return DatasetFacts(
        name=name,
        relation=_relation(entry, name),
        attributes=_attributes(entry, types.get(name)),
        columns=columns,
        min_group=_min_group(entry),
        label=_optional(entry, "label"),
        time=_optional(entry, "time"),
    )


def _relation(entry: Entry, name: str) -> str:
    relation = entry.text("relation", f"main.{name}")
    if not _RELATION.fullmatch(relation):
        entry.fault("relation", f"has the relation `{relation}`", "write `schema.name`, both plain names")
    return relation if "." in relation else f"main.{relation}"


def _attributes(entry: Entry, entity: EntityType | None) -> tuple[tuple[str, str, Kind], ...]:
    """Optional ones, too: a policy may speak of them, and what is not mapped would silently be absent from every row."""
    section = entry.child("attributes")
    if section is None or entity is None:
        return ()
    section.only(entity.fields)
    for name in entity.fields:
        if name not in section.body:
            section.fault("", f"maps nothing to `{name}`, which the schema's `{entity.name}` has", f"add `{name}: <expression>`")
    known = [name for name in entity.fields if name in section.body]
    return tuple((name, _expression(section, name), entity.fields[name].kind) for name in known)


def _columns(entry: Entry) -> tuple[ColumnFacts, ...]:
    section = entry.child("columns")
    if section is None:
        return ()
    if not section.body:
        entry.fault("columns", "has no columns", "list those that anybody may use, each with its tags")
    seen: dict[str, str] = {}
    columns = []
    for name in section.body:
        if other := seen.get(name.lower()):
            section.fault(name, f"has both `{other}` and `{name}`", "names of columns do not differ by case")
        seen[name.lower()] = name
        columns.append(_column(name, section))
    return tuple(columns)


def _column(name: str, section: Entry) -> ColumnFacts:
    if not name or '"' in name or any(ord(letter) < 32 for letter in name):
        section.fault(name, "has a column without a plain name", "name columns as the relation does")
    if not isinstance(section.body[name], Lined):
        return ColumnFacts(name, frozenset(section.words(name)))
    entry = section.child(name)
    assert entry is not None
    entry.only(("tags", "mask", "values"))
    mask = _expression(entry, "mask") if "mask" in entry.body else None
    return ColumnFacts(name, frozenset(entry.words("tags")), mask, _values(entry))


def _values(entry: Entry) -> Values:
    value = entry.body.get("values", False)
    if value is True:
        return "granted"
    if value not in (False, "public"):
        entry.fault("values", "needs `values` to be true, false or public", nearest(str(value), ("true", "false", "public")))
    return "public" if value == "public" else "no"


def _expression(entry: Entry, key: str) -> str:
    """A DuckDB expression. It is reviewed, not untrusted; a statement's end in it is a slip all the same."""
    text = entry.text(key).strip()
    if ";" in re.sub(r"'(?:[^']|'')*'", "", text) or "--" in re.sub(r"'(?:[^']|'')*'", "", text):
        entry.fault(key, f"has an expression for `{key}` with `;` or `--` in it", "write one DuckDB expression")
    return text


def _min_group(entry: Entry) -> int | None:
    value = entry.body.get("min_group")
    if value is None:
        return None
    if type(value) is not int or value < 2:
        entry.fault("min_group", "needs `min_group`, a whole number from 2", "write `min_group: 5` or leave it out")
        return None
    return value


def _optional(entry: Entry, key: str) -> str | None:
    return entry.text(key) if key in entry.body else None
