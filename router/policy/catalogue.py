"""catalog.yaml, a plain Apache Ossie document, to the nouns of `router/catalog.py`. Nothing of ours stands in it.

The shape is judged by Ossie's own published JSON schema (router/schemas); what a schema cannot say is judged here: that names are
given once, that relationships join what exists, and that everything speaks of columns that governance.yaml lists. What the
Foundation draft demands of a model's meaning is `router/sql/check.py`'s to say, once the rest is right.

INVARIANT: what is wrong is said with file, line and key (tests/unit/test_catalog.py::test_faults_name_the_place).
INVARIANT: no expression that reads a column without a rule is served (tests/unit/test_catalog.py::test_meaning).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from router.catalog import Catalog, Dataset, DatasetField, Metric, Relationship
from router.policy.governance import FILE as GOVERNANCE
from router.policy.governance import DatasetFacts
from router.policy.strict import Faults, Lined, nearest, top

FILE = "catalog.yaml"
OSSIE_VERSION = "0.2.0.dev0"
SCHEMA_FILE = Path(__file__).parents[1] / "schemas" / f"ossie-{OSSIE_VERSION}.json"

_BARE = re.compile(r'[A-Za-z_]\w*|"[^"]+"')
_TEMPORAL = ("Date", "Time", "DateTime", "DateTimeTz")


def parse_catalog(raw: Mapping[str, bytes], datasets: Mapping[str, DatasetFacts], faults: Faults) -> Catalog | None:
    """None where there is no catalogue, or a fault says why it cannot be read."""
    if FILE not in raw:
        return None
    file = top(raw, FILE, faults)
    if file is None:
        return None
    before = len(faults.items)
    _check_shape(file.body, faults)
    if len(faults.items) > before:
        return None
    models = file.body["semantic_model"]
    if len(models) != 1:
        _fault(faults, file.body, "semantic_model", f"there are {len(models)} models", "one folder governs one model")
        return None
    (model,) = models
    catalog = _catalog(model, datasets, faults)
    _check_names(model, faults)
    _check_relationships(model, catalog, faults)
    _check_columns(model, catalog, datasets, faults)
    if len(faults.items) == before:
        _check_meaning(model, catalog, datasets, faults)
    return catalog if len(faults.items) == before else None


# --- shape ------------------------------------------------------------------------------------------------------------


@functools.cache
def _validator() -> Any:
    import jsonschema

    return jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))


def _check_shape(body: Lined, faults: Faults) -> None:
    told: set[tuple[str, ...]] = set()
    for error in sorted(_validator().iter_errors(body), key=lambda error: list(map(str, error.absolute_path))):
        path = list(error.absolute_path)
        if (once := (error.validator, *map(str, path))) in told:
            continue  # one is reported for every missing key
        told.add(once)
        for key in _unexpected(error) or ("",):
            whole = [*path, key] if key else path
            deferred = bool(key) and _is_deferred(key, path)
            code = "E_DEFERRED_KEY_REJECTED" if deferred else "catalog_format"
            said = "is deferred by the Foundation draft (§10)" if deferred else _said(error)
            hint = "take it out" if deferred else f"see Apache Ossie {OSSIE_VERSION}"
            faults.add(code, FILE, _line(body, whole), f"`{'.'.join(map(str, whole)) or FILE}` {said}", hint)


def _is_deferred(key: str, path: list[Any]) -> bool:
    """Keys that the Foundation draft knows and puts off are told apart from slips of the pen."""
    from router.sql.check import DEFERRED_KEYS

    return key in DEFERRED_KEYS or (key == "metrics" and "datasets" in path)


def _unexpected(error: Any) -> list[str]:
    if error.validator != "additionalProperties":
        return []
    return sorted(set(error.instance) - set(error.schema.get("properties", ())))


def _said(error: Any) -> str:
    """What is wrong, in words that hold no more of the file than one short value."""
    shown = json.dumps(error.instance, ensure_ascii=False, default=str)[:60]
    match error.validator:
        case "required":
            return "has no " + " and no ".join(f"`{name}`" for name in error.validator_value if name not in error.instance)
        case "additionalProperties":
            return "is an unknown key"
        case "const":
            return f"is {shown}, and this version reads `{error.validator_value}`"
        case "enum":
            return f"is {shown}; known here: {', '.join(map(str, error.validator_value))}"
        case "type":
            return f"is {shown}, not of type {error.validator_value}"
    return f"is {shown}, which does not fit"


def _line(body: Lined, path: list[Any]) -> int:
    """The line of the last key on the way that has one."""
    at: Any = body
    line = body.line("")
    for part in path:
        if isinstance(at, Lined):
            line = at.line(str(part))
        at = at[part] if isinstance(at, list) or (isinstance(at, Mapping) and part in at) else None
        if isinstance(at, Lined) and isinstance(part, int):
            line = at.line("")
    return line


# --- nouns ------------------------------------------------------------------------------------------------------------


def _catalog(model: Lined, datasets: Mapping[str, DatasetFacts], faults: Faults) -> Catalog:
    return Catalog(
        name=model["name"],
        datasets=tuple(_dataset(item, datasets.get(item["name"]), faults) for item in model["datasets"]),
        relationships=tuple(_relationship(item) for item in model.get("relationships", ())),
        metrics=tuple(_metric(item, faults) for item in model.get("metrics", ())),
    )


def _dataset(item: Lined, facts: DatasetFacts | None, faults: Faults) -> Dataset:
    return Dataset(
        name=item["name"],
        source=item["source"],
        fields=tuple(_field(field, faults) for field in item.get("fields", ())),
        primary_key=tuple(item.get("primary_key", ())),
        unique_keys=tuple(tuple(key) for key in item.get("unique_keys", ())),
        description=item.get("description", ""),
        synonyms=_synonyms(item),
        label=facts.label if facts else None,
        time=facts.time if facts else None,
    )


def _field(item: Lined, faults: Faults) -> DatasetField:
    datatype = item.get("datatype")
    return DatasetField(
        name=item["name"],
        expression=_expression(item, faults),
        description=item.get("description", ""),
        datatype=datatype,
        is_time=item.get("dimension", {}).get("is_time", datatype in _TEMPORAL),
        label=item.get("label"),
        synonyms=_synonyms(item),
    )


def _relationship(item: Lined) -> Relationship:
    return Relationship(
        name=item["name"],
        from_dataset=item["from"],
        to_dataset=item["to"],
        from_columns=tuple(item["from_columns"]),
        to_columns=tuple(item["to_columns"]),
        synonyms=_synonyms(item),
    )


def _metric(item: Lined, faults: Faults) -> Metric:
    return Metric(
        name=item["name"],
        expression=_expression(item, faults),
        description=item.get("description", ""),
        datatype=item.get("datatype"),
        synonyms=_synonyms(item),
    )


def _expression(item: Lined, faults: Faults) -> str:
    for dialect in item["expression"]["dialects"]:
        if dialect["dialect"] == "ANSI_SQL":
            return str(dialect["expression"])
    _fault(faults, item, "expression", f"`{item['name']}` has no expression in ANSI_SQL", "add one; other dialects are not read")
    return ""


def _synonyms(item: Lined) -> tuple[str, ...]:
    context = item.get("ai_context")
    return tuple(context.get("synonyms", ())) if isinstance(context, Mapping) else ()


# --- what the shape cannot say ----------------------------------------------------------------------------------------


def _check_names(model: Lined, faults: Faults) -> None:
    for kind in ("datasets", "relationships", "metrics"):
        _check_once(model.get(kind, ()), kind, faults)
    for item in model["datasets"]:
        _check_once(item.get("fields", ()), f"fields of `{item['name']}`", faults)


def _check_once(items: Iterable[Lined], kind: str, faults: Faults) -> None:
    seen: set[str] = set()
    for item in items:
        name = item["name"].lower()
        if name in seen:
            _fault(faults, item, "name", f"the name `{item['name']}` stands twice among the {kind}", "names do not care for case")
        seen.add(name)


def _check_relationships(model: Lined, catalog: Catalog, faults: Faults) -> None:
    names = [dataset.name for dataset in catalog.datasets]
    for item in model.get("relationships", ()):
        for side in ("from", "to"):
            if catalog.dataset(item[side]) is None:
                _fault(
                    faults, item, side, f"`{item['name']}` joins `{item[side]}`, which is no dataset", nearest(item[side], names)
                )
        if len(item["from_columns"]) != len(item["to_columns"]):
            message = f"`{item['name']}` joins {len(item['from_columns'])} columns with {len(item['to_columns'])}"
            _fault(faults, item, "to_columns", message, "they are equal pair by pair")


def _check_columns(model: Lined, catalog: Catalog, datasets: Mapping[str, DatasetFacts], faults: Faults) -> None:
    """Everything that names a column outright; what calculates is looked at with its meaning."""
    facts = {name.lower(): known for name, known in datasets.items()}
    for item in model["datasets"]:
        known = facts.get(item["name"].lower())
        if known is None:
            hint = nearest(item["name"], datasets) or f"add it to {GOVERNANCE}, or take it out here"
            _fault(faults, item, "name", f"{GOVERNANCE} says nothing of the dataset `{item['name']}`", hint)
            continue
        for field in item.get("fields", ()):
            expression = catalog_expression(field)
            if _BARE.fullmatch(expression):
                _need_column(field, "expression", expression.strip('"'), known, faults)
        for key in ("primary_key", "unique_keys"):
            for column in _flat(item.get(key, ())):
                _need_column(item, key, column, known, faults)
    for item in model.get("relationships", ()):
        for side in ("from", "to"):
            if known := facts.get(item[side].lower()):
                for column in item[f"{side}_columns"]:
                    _need_column(item, f"{side}_columns", column, known, faults)
    for name in sorted(set(datasets) - {dataset.name.lower() for dataset in catalog.datasets}):
        hint = f"add it, or take it out of {GOVERNANCE}"
        _fault(faults, model, "datasets", f"the dataset `{name}` of {GOVERNANCE} is not in the catalogue", hint)


def _check_meaning(model: Lined, catalog: Catalog, datasets: Mapping[str, DatasetFacts], faults: Faults) -> None:
    """What the Foundation draft demands, then what is read: the same expansion that grants and compiled SQL go by."""
    from router.errors import Refused
    from router.sql.check import check_catalog
    from router.sql.expressions import expand_field, expand_metric, reads

    places = _places(model)
    for fault in check_catalog(catalog):
        message = fault.message if f"`{fault.where}`" in fault.message else f"`{fault.where}`: {fault.message}"
        line = places.get(fault.where.lower(), model).line(fault.key)
        faults.add(fault.code, FILE, line, message, fault.hint or f"see Apache Ossie {OSSIE_VERSION}")
    facts = {name.lower(): known for name, known in datasets.items()}
    named = [(f"{dataset.name}.{field.name}", dataset, field) for dataset in catalog.datasets for field in dataset.fields]
    for where, expand in (
        *((where, functools.partial(expand_field, catalog, dataset, field)) for where, dataset, field in named),
        *((metric.name, functools.partial(expand_metric, catalog, metric.name)) for metric in catalog.metrics),
    ):
        try:
            pairs = reads(expand())
        except Refused:
            continue  # said above
        for dataset_name, column in sorted(pairs):
            if column != "*":
                _need_column(places[where.lower()], "expression", column, facts[dataset_name.lower()], faults)
    _check_roles(catalog, places, faults)


def _check_roles(catalog: Catalog, places: Mapping[str, Lined], faults: Faults) -> None:
    for dataset in catalog.datasets:
        for role, name in (("label", dataset.label), ("time", dataset.time)):
            if name is not None and dataset.field(name) is None:
                message = f"{GOVERNANCE} gives `{dataset.name}` the {role} `{name}`, which is none of its fields"
                hint = nearest(name, [field.name for field in dataset.fields])
                _fault(faults, places[dataset.name.lower()], "fields", message, hint)


def _places(model: Lined) -> dict[str, Lined]:
    """Where each thing stands, by path of names; of two with one name the later, which is the one too many."""
    places = {model["name"].lower(): model}
    for kind in ("datasets", "relationships", "metrics"):
        for item in model.get(kind, ()):
            places[item["name"].lower()] = item
            places |= {f"{item['name']}.{field['name']}".lower(): field for field in item.get("fields", ())}
    return places


def catalog_expression(item: Lined) -> str:
    found = [dialect["expression"] for dialect in item["expression"]["dialects"] if dialect["dialect"] == "ANSI_SQL"]
    return str(found[0]).strip() if found else ""


def _flat(keys: Iterable[Any]) -> list[str]:
    return [column for key in keys for column in (key if isinstance(key, list) else [key])]


def _need_column(item: Lined, key: str, column: str, facts: DatasetFacts, faults: Faults) -> None:
    if facts.column(column) is None:
        hint = nearest(column, [known.name for known in facts.columns])
        message = f"`{item['name']}` speaks of the column `{column}`, which {GOVERNANCE} does not list for `{facts.name}`"
        _fault(faults, item, key, message, hint)


def _fault(faults: Faults, item: Lined, key: str, message: str, hint: str) -> None:
    faults.add("catalog_format", FILE, item.line(key), message, hint)
