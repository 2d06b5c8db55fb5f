"""`catalog derive` and `catalog check`: a first catalogue from a database, and what a reviewer should know of the present one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from router.catalog import Catalog, Relation
from router.policy import PolicySet, fragment
from router.policy.catalogue import FILE, OSSIE_VERSION
from router.policy.governance import FILE as GOVERNANCE
from router.policy.governance import DatasetFacts
from router.policy.strict import nearest

AGGREGATE_WORDS = frozenset(
    "total sum average mean avg count number amount_of how_many most least highest lowest largest smallest max maximum min minimum "
    "median per each every top bottom share percentage".split()
)
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_TYPES = (
    (r"TIMESTAMP WITH TIME ZONE|TIMESTAMPTZ|TIMESTAMP_TZ", "DateTimeTz"),
    (r"TIMESTAMP|DATETIME", "DateTime"),
    (r"DATE", "Date"),
    (r"TIME", "Time"),
    (r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|SERIAL|BIGSERIAL", "Integer"),
    (r"DECIMAL|NUMERIC", "Decimal"),
    (r"DOUBLE|FLOAT|REAL", "Float"),
    (r"BOOL(EAN)?", "Boolean"),
    (r"N?(VAR)?CHAR(ACTER)?|TEXT|STRING|UUID|ENUM|CLOB", "String"),
)

Count = Callable[[Path, str, Sequence[str]], Sequence[int | None]]


@dataclass(frozen=True, slots=True)
class CatalogFinding:
    """`error`: the catalogue cannot be served so. `warning`: it can, and somebody should look."""

    level: Literal["error", "warning"]
    file: str
    place: str
    message: str
    hint: str

    def as_json(self) -> dict[str, str]:
        return {"level": self.level, "file": self.file, "place": self.place, "message": self.message, "hint": self.hint}


# --- derive -----------------------------------------------------------------------------------------------------------


def derive_catalog(relations: Iterable[Relation], name: str) -> dict[str, Any]:
    """An Ossie document of names, types and keys. Names become plain ones; expressions speak of the columns as they are."""
    of = list(relations)
    known = _plain_names(relation.name for relation in of)
    taken = set(known.values())
    model: dict[str, Any] = {"name": _plain(name), "datasets": [_derive_dataset(relation, known) for relation in of]}
    joins = [join for relation in of for join in _derive_joins(relation, known, taken)]
    if joins:
        model["relationships"] = joins
    return {"version": OSSIE_VERSION, "semantic_model": [model]}


def _derive_dataset(relation: Relation, known: Mapping[str, str]) -> dict[str, Any]:
    dataset: dict[str, Any] = {
        "name": known[relation.name],
        "source": relation.name if "." in relation.name else f"main.{relation.name}",
    }
    if relation.primary_key:
        dataset["primary_key"] = list(relation.primary_key)
    if relation.unique_keys:
        dataset["unique_keys"] = [list(key) for key in relation.unique_keys]
    names = _plain_names(column.name for column in relation.columns)
    dataset["fields"] = [
        {
            "name": names[column.name],
            "expression": {"dialects": [{"dialect": "ANSI_SQL", "expression": _expression(column.name)}]},
            "datatype": ossie_type(column.type),
        }
        for column in relation.columns
    ]
    return dataset


def _derive_joins(relation: Relation, known: Mapping[str, str], taken: set[str]) -> list[dict[str, Any]]:
    """Datasets and relationships share one space of names; `taken` grows."""
    return [
        {
            "name": _free(f"{known[relation.name]}_{'_'.join(map(_plain, columns))}", taken),
            "from": known[relation.name],
            "to": known[other],
            "from_columns": list(columns),
            "to_columns": list(theirs),
        }
        for columns, other, theirs in relation.foreign_keys
        if other in known
    ]


def _plain_names(names: Iterable[str]) -> dict[str, str]:
    """Each name and its plain one. What is plain already keeps its own: an expression that says it must mean it."""
    given = list(names)
    kept = {name for name in given if _plain(name) == name.lower()}
    taken = {name.lower() for name in kept}
    return {name: name.lower() if name in kept else _free(_plain(name), taken) for name in given}


def _free(name: str, taken: set[str]) -> str:
    """The name, or the first of its kind that nothing else has; it is taken from now on."""
    every = itertools.chain([name], (f"{name}_{count}" for count in itertools.count(2)))
    free = next(each for each in every if each not in taken)
    taken.add(free)
    return free


def ossie_type(kind: str) -> str:
    upper = kind.upper()
    if upper.endswith("]") or upper.startswith(("STRUCT", "MAP", "UNION")):
        return "Opaque"
    return next((name for pattern, name in _TYPES if re.match(rf"({pattern})\b", upper)), "Opaque")


def _plain(name: str) -> str:
    """A regular name that a catalogue may give: no words that SQL or the Foundation draft keeps for itself."""
    from router.sql.check import RESERVED

    plain = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "unnamed"
    return f"_{plain}" if plain[0].isdigit() else f"{plain}_" if plain in RESERVED else plain


def _expression(column: str) -> str:
    from router.sql.check import RESERVED

    plain = _PLAIN.fullmatch(column.lower()) and column.lower() not in RESERVED
    return column if plain else '"' + column.replace('"', '""') + '"'


# --- check ------------------------------------------------------------------------------------------------------------


def check_catalog(
    policies: PolicySet, relations: Sequence[Relation], database: Path | None, count: Count
) -> list[CatalogFinding]:
    """What can be said without a database, and with one what it has and lacks."""
    found = [*_check_tags(policies), *_check_tags_named(policies)]
    if policies.catalog is not None:
        found += [
            *_check_synonyms(policies.catalog),
            *_check_cycles(policies.catalog),
        ]
    elif policies.datasets:
        found.append(
            CatalogFinding(
                "warning", FILE, "", "there is no catalogue", "questions in words need one: `pointsman catalog derive`"
            )
        )
    if database is not None:
        by_name = {
            (name if "." in name else f"main.{name}").lower(): relation for relation in relations for name in [relation.name]
        }
        for facts in policies.datasets.values():
            found += _check_relation(facts, by_name.get(facts.relation.lower()))
            found += _check_attributes(policies, facts, database, count)
    return found


def _check_tags(policies: PolicySet) -> list[CatalogFinding]:
    """A tag that no policy speaks of is a column without a rule."""
    spoken = {
        node["Value"]
        for statement in policies.statements
        for node in fragment.walk(statement.body["conditions"])
        if isinstance(node.get("Value"), str)
    }
    return [
        CatalogFinding(
            "warning",
            GOVERNANCE,
            f"{facts.name}.{column.name}",
            f"no policy speaks of any tag of the column `{column.name}` ({', '.join(sorted(column.tags))})",
            "it is seen only by whom a permit of every column covers; write a rule, or take it out",
        )
        for facts in policies.datasets.values()
        for column in facts.columns
        if not column.tags & spoken
    ]


def _check_tags_named(policies: PolicySet) -> list[CatalogFinding]:
    """A tag that no column has: the policy that speaks of it says nothing, and a forbid closes nothing."""
    tags = {tag for facts in policies.datasets.values() for column in facts.columns for tag in column.tags}
    return [
        CatalogFinding(
            "warning",
            statement.file,
            statement.policy_id,
            f"`{statement.policy_id}` speaks of the tag `{tag}`, which no column has",
            nearest(tag, tags) or f"tag the columns in {GOVERNANCE}",
        )
        for statement in policies.statements
        for tag in sorted(fragment.tags_named(statement.body) - tags)
    ]


def _check_synonyms(catalog: Catalog) -> list[CatalogFinding]:
    named = [
        *((dataset.name, dataset.synonyms) for dataset in catalog.datasets),
        *((f"{dataset.name}.{field.name}", field.synonyms) for dataset in catalog.datasets for field in dataset.fields),
    ]
    return [
        CatalogFinding(
            "warning",
            FILE,
            place,
            f"the synonym `{text}` holds the word `{word}`, which means an aggregate",
            "say it of a metric",
        )
        for place, synonyms in named
        for text in synonyms
        for word in re.findall(r"\w+", text.lower())
        if word in AGGREGATE_WORDS
    ]


def _check_cycles(catalog: Catalog) -> list[CatalogFinding]:
    """Relationships that lead back to where they began leave more than one way between two datasets."""
    after: dict[str, set[str]] = {}
    for join in catalog.relationships:
        after.setdefault(join.from_dataset.lower(), set()).add(join.to_dataset.lower())
    found = []
    for join in catalog.relationships:
        seen, reached = set[str](), {join.to_dataset.lower()}
        while reached - seen:
            seen |= reached
            reached = {name for start in reached for name in after.get(start, ())}
        if join.from_dataset.lower() in seen:
            message = f"the relationship `{join.name}` is part of a cycle"
            found.append(
                CatalogFinding("warning", FILE, join.name, message, "questions across it may be ambiguous; name the way")
            )
    return found


def _check_relation(facts: DatasetFacts, relation: Relation | None) -> list[CatalogFinding]:
    if relation is None:
        message = f"the database has no relation `{facts.relation}`"
        return [CatalogFinding("error", GOVERNANCE, facts.name, message, "copy it in, or correct `relation`")]
    there = {column.name.lower() for column in relation.columns}
    return [
        *(
            CatalogFinding(
                "error",
                GOVERNANCE,
                f"{facts.name}.{column.name}",
                f"`{facts.relation}` has no column `{column.name}`",
                "take it out",
            )
            for column in facts.columns
            if column.name.lower() not in there
        ),
        *(
            CatalogFinding(
                "warning",
                GOVERNANCE,
                f"{facts.name}.{column.name}",
                f"the column `{column.name}` of `{facts.relation}` is not listed, so it exists for nobody",
                "list it with its tags if anybody should use it",
            )
            for column in relation.columns
            if facts.column(column.name) is None
        ),
    ]


def _check_attributes(policies: PolicySet, facts: DatasetFacts, database: Path, count: Count) -> list[CatalogFinding]:
    """A row that lacks a required attribute is seen by nobody."""
    fields = policies.types[facts.name].fields
    found = []
    for (name, _, _), missing in zip(
        facts.attributes, count(database, facts.relation, [text for _, text, _ in facts.attributes]), strict=True
    ):
        place = f"{facts.name}.attributes.{name}"
        if missing is None:
            message = f"the expression of the row attribute `{name}` cannot be computed over `{facts.relation}`"
            found.append(CatalogFinding("error", GOVERNANCE, place, message, "correct it"))
        elif missing and fields[name].required:
            message = f"{missing} rows of `{facts.relation}` lack the required attribute `{name}`, so nobody sees them"
            found.append(CatalogFinding("error", GOVERNANCE, place, message, "declare it optional (`?`), or fill it in"))
    return found
