"""Filters as OpenSearch queries, and labels as the fields that those queries read.

Every query here stands in a filter's place, so none of it scores. A label's field is named by the label and its type: no value
is ever read as another type's, and a field that no document has is silently false, which is what "absent" means. A string that
is too long for an index term stands in its field as a digest (behind a NUL, which no label may hold) and whole in a second field
that only `Like` reads, by script.

INVARIANT: nothing lowers to an empty `bool`, `should` or `terms`: OpenSearch would match everything
(tests/unit/test_opensearch_lowering.py::test_trap_empty_should_matches_all).
INVARIANT: what cannot be said raises before any request (…::test_what_cannot_be_said_is_refused).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from router.domain import SOURCE_FIELD, Labels
from router.errors import PolicyError
from router.filters import (
    LONG_MAX,
    LONG_MIN,
    Always,
    And,
    EntityType,
    Eq,
    Field,
    Filter,
    Ge,
    Gt,
    Has,
    In,
    Le,
    Like,
    Lt,
    Never,
    Not,
    Or,
    Overlaps,
    Scalar,
    Within,
)

Query = Mapping[str, Any]
Shape = tuple[tuple[str, str], ...]
"""(name, letter of the type) of every label a document carries, sorted."""

LONGEST_BYTES = 8_000
"""Of one indexed string; Lucene's own bound is 32,766."""
MOST_CLAUSES = 500
"""Of one `bool`; the engine's bound is 1,024."""
MOST_LEAVES = 20_000
MOST_TERMS = 60_000
"""Of one `terms`; the engine's bound is 65,536."""
MOST_WILD_PARTS = 4
MOST_WILD_CHARS = 300
"""A longer or more jagged pattern makes an automaton that the engine refuses: it goes by script."""
ALL: Query = {"match_all": {}}
NONE: Query = {"match_none": {}}

_LETTERS: Mapping[str, str] = {"string": "s", "long": "n", "bool": "b", "set": "g"}
_MISFIT = "x"
_FIELD_TYPES: Mapping[str, Mapping[str, Any]] = {
    "s": {"type": "keyword"},
    "g": {"type": "keyword"},
    "n": {"type": "long", "coerce": False},
    "b": {"type": "boolean"},
    "w": {"type": "binary", "doc_values": True},
}
_PLAIN_NAME = re.compile(r"[a-z0-9_]+")
_LIKE = """
if (!doc.containsKey(params.field) || doc[params.field].size() == 0) { return false; }
def held = doc[params.field].value;
String text = held instanceof String ? held : held.utf8ToString();
List parts = params.parts;
int last = parts.size() - 1;
String head = parts[0];
String tail = parts[last];
if (text.length() < head.length() + tail.length() || !text.startsWith(head) || !text.endsWith(tail)) { return false; }
int at = head.length();
int end = text.length() - tail.length();
for (int i = 1; i < last; ++i) {
  String part = parts[i];
  int found = text.indexOf(part, at);
  if (found < 0 || found + part.length() > end) { return false; }
  at = found + part.length();
}
return true;
"""
_WITHIN = """
if (!doc.containsKey(params.field)) { return true; }
for (def item : doc[params.field]) { if (!params.values.containsKey(item)) { return false; } }
return true;
"""


# --- fields -----------------------------------------------------------------------------------------------------------


def field_path(name: str, kind: str) -> str:
    """Where a label of that type stands. Names that are not of the plainest are written in hex: a dot would be a path."""
    return "source" if name == SOURCE_FIELD else f"l.{_leaf_name(name, _LETTERS[kind])}"


def _leaf_name(name: str, letter: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return f"{letter}_{name}"
    return f"{letter}x_{name.encode('utf-8', 'surrogatepass').hex()}"


def _letter(value: object) -> str:
    """The type of a label's value; what no schema could declare has none and is never searched by."""
    if isinstance(value, bool):
        return "b"
    if isinstance(value, int):
        return "n" if LONG_MIN <= value <= LONG_MAX else _MISFIT
    if isinstance(value, str):
        return "s"
    return "g" if isinstance(value, frozenset) and all(type(item) is str for item in value) else _MISFIT


def stand_in(text: str) -> str:
    """What is indexed of a string: itself, or its digest where it is too long for a term."""
    data = text.encode()
    return text if len(data) <= LONGEST_BYTES else "\0" + hashlib.sha256(data).hexdigest()


def label_fields(labels: Labels) -> dict[str, Any]:
    """What stands under `l` of a document with these labels."""
    fields: dict[str, Any] = {}
    for name, value in labels.items():
        letter = _letter(value)
        if letter == "g" and isinstance(value, frozenset):
            fields[_leaf_name(name, letter)] = sorted(map(stand_in, value))
        elif letter == "s" and isinstance(value, str):
            fields[_leaf_name(name, letter)] = stand_in(value)
            if stand_in(value) != value:
                fields[_leaf_name(name, "w")] = base64.b64encode(value.encode()).decode()
        elif letter != _MISFIT:
            fields[_leaf_name(name, letter)] = value
    return fields


def field_mappings(names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Mappings of fields that `label_fields` gave."""
    return {name: _FIELD_TYPES[name[0]] for name in names}


def shape_of(labels: Labels) -> Shape:
    return tuple(sorted((name, _letter(value)) for name, value in labels.items()))


def shape_digest(shape: Shape) -> str:
    return hashlib.sha256(json.dumps(shape, ensure_ascii=True).encode()).hexdigest()[:16]


def fits_shape(shape: Iterable[tuple[str, str]], entity: EntityType) -> bool:
    """Whether Cedar would judge labels of this shape at all under the schema that holds now (`filters.fits`)."""
    held = dict(shape)
    for name, letter in held.items():
        spec = entity.fields.get(name)
        if spec is None or _LETTERS[spec.kind] != letter:
            return False
    return all(name in held for name, spec in entity.fields.items() if spec.kind == "set" and spec.required)


# --- filters ----------------------------------------------------------------------------------------------------------


def lower_filter(f: Filter, fields: Mapping[str, Field]) -> Query:
    """The query that matches what `f` admits. `f` was checked against `fields`."""
    query = _lower(f, fields)
    leaves = count_leaves(query)
    if leaves > MOST_LEAVES:
        raise PolicyError(
            "filter_too_large", f"a filter becomes {leaves} clauses, and OpenSearch takes {MOST_LEAVES}", "simplify the policy"
        )
    return query


def count_leaves(query: Query) -> int:
    """Clauses that are no `bool`."""
    if "bool" not in query:
        return 1
    return sum(count_leaves(item) for part in ("filter", "should", "must_not") for item in query["bool"].get(part, ()))


def _lower(f: Filter, fields: Mapping[str, Field]) -> Query:
    match f:
        case Always():
            return ALL
        case Never():
            return NONE
        case And(items):
            return _lower_and(items, fields)
        case Or(items):
            return any_of(_lower_each(items, fields))
        case Not(item):
            return _without([_lower(item, fields)])
        case Has(name):
            return ALL if fields[name].kind == "set" else _exists(field_path(name, fields[name].kind))
        case Eq(name, value):
            return _one_of(field_path(name, fields[name].kind), [value])
        case In(name, scalars):
            return _one_of(field_path(name, fields[name].kind), sorted(scalars, key=repr))
        case Overlaps(name, strings):
            return _one_of(field_path(name, "set"), sorted(strings))
        case Within(name, strings):
            return _within(field_path(name, "set"), strings)
        case Like(name, parts):
            return _like(name, parts)
        case Lt() | Le() | Gt() | Ge():
            return {"range": {field_path(f.field, "long"): {_RANGE[type(f)]: f.value}}}


_RANGE: Mapping[type, str] = {Lt: "lt", Le: "lte", Gt: "gt", Ge: "gte"}


def _lower_and(items: tuple[Filter, ...], fields: Mapping[str, Field]) -> Query:
    """What must hold, and what must not: of the latter, comparisons with one field become one list."""
    positive = [_lower(item, fields) for item in items if not isinstance(item, Not)]
    negative = _lower_each([item.item for item in items if isinstance(item, Not)], fields)
    if not negative:
        return all_of(positive)
    return all_of([*positive, _without(negative)])


def _lower_each(items: Sequence[Filter], fields: Mapping[str, Field]) -> list[Query]:
    """Alternatives; those that compare one field with values become one `terms`, since clauses are few and terms are many."""
    values: dict[str, list[Scalar]] = {}
    rest: list[Query] = []
    for item in items:
        match item:
            case Eq(name, value):
                values.setdefault(field_path(name, fields[name].kind), []).append(value)
            case In(name, scalars):
                values.setdefault(field_path(name, fields[name].kind), []).extend(sorted(scalars, key=repr))
            case Overlaps(name, strings):
                values.setdefault(field_path(name, "set"), []).extend(sorted(strings))
            case _:
                rest.append(_lower(item, fields))
    return [*(_one_of(path, some) for path, some in values.items()), *rest]


def all_of(queries: Sequence[Query]) -> Query:
    """Every one of these, and of none everything."""
    if len(queries) < 2:
        return queries[0] if queries else ALL
    if len(queries) > MOST_CLAUSES:
        return all_of([all_of(some) for some in _cut(queries, MOST_CLAUSES)])
    return {"bool": {"filter": list(queries)}}


def any_of(queries: Sequence[Query]) -> Query:
    """One of these, and of none nothing."""
    if len(queries) < 2:
        return queries[0] if queries else NONE
    if len(queries) > MOST_CLAUSES:
        return any_of([any_of(some) for some in _cut(queries, MOST_CLAUSES)])
    return {"bool": {"should": list(queries), "minimum_should_match": 1}}


def _without(queries: Sequence[Query]) -> Query:
    return {"bool": {"must_not": [any_of(queries)] if len(queries) > MOST_CLAUSES else list(queries)}}


def _exists(path: str) -> Query:
    return {"exists": {"field": path}}


def _one_of(path: str, values: Sequence[Scalar]) -> Query:
    if not values:
        return NONE
    indexed = list(dict.fromkeys(stand_in(value) if isinstance(value, str) else value for value in values))
    if len(indexed) == 1:
        return {"term": {path: {"value": indexed[0]}}}
    return any_of([{"terms": {path: some}} for some in _cut(indexed, MOST_TERMS)])


def _within(path: str, strings: frozenset[str]) -> Query:
    if not strings:
        return _without([_exists(path)])
    allowed = {stand_in(text): True for text in sorted(strings)}
    return _script(_WITHIN, {"field": path, "values": allowed})


def _like(name: str, parts: tuple[str, ...]) -> Query:
    """By index where the pattern is simple, else by script; values too long for a term always by script."""
    path = field_path(name, "string")
    if len(parts) == 1:
        return _one_of(path, [parts[0]])
    head, *middle, tail = parts
    needed = [head, *(part for part in middle if part), tail]
    if name == SOURCE_FIELD:
        return _like_short(path, needed)
    whole = f"l.{_leaf_name(name, 'w')}"
    short = all_of([_like_short(path, needed), _without([_exists(whole)])])
    return any_of([short, all_of([_exists(whole), _script(_LIKE, {"field": whole, "parts": needed})])])


def _like_short(path: str, parts: Sequence[str]) -> Query:
    letters = sum(map(len, parts))
    if letters > LONGEST_BYTES:
        return NONE
    if not any(parts):
        return _exists(path)
    if len(parts) == 2 and not parts[1] and letters <= MOST_WILD_CHARS:
        return {"prefix": {path: {"value": parts[0]}}}
    if len(parts) - 2 <= MOST_WILD_PARTS and letters <= MOST_WILD_CHARS:
        return {"wildcard": {path: {"value": "*".join(re.sub(r"([\\*?])", r"\\\1", part) for part in parts)}}}
    return all_of([_exists(path), _script(_LIKE, {"field": path, "parts": list(parts)})])


def _script(source: str, params: Mapping[str, Any]) -> Query:
    return {"script": {"script": {"lang": "painless", "source": source, "params": params}}}


def _cut(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[at : at + size] for at in range(0, len(items), size)]
