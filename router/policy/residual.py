"""Cedar's residuals to filters: what partial evaluation left open becomes one `Filter` per source.

Partial evaluation leaves `is` and `in` of the resource in place, because it knows neither type nor parents of a thing
not seen yet. Pointsman does: it asks per source, so both fold to constants here and never reach a store.

A residual is first read into a tree of filters with `Member` leaves (once per principal), then folded per source.

INVARIANT: whatever is not understood raises; a clause is never dropped, and NOT is never lost
(tests/unit/test_policy_residual.py; tests/unit/test_policy_agreement.py proves agreement with Cedar in full).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from router.errors import PolicyError
from router.filters import (
    ALWAYS,
    NEVER,
    Always,
    And,
    Eq,
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
from router.policy.schema import NAMESPACE

Node = Mapping[str, Any]

_RESOURCE = {"unknown": [{"Value": "resource"}]}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ORDER: Mapping[str, type[Lt | Le | Gt | Ge]] = {"<": Lt, "<=": Le, ">": Gt, ">=": Ge}


@dataclass(frozen=True, slots=True)
class Member:
    """The resource is in one of these sources."""

    sources: frozenset[str]


@dataclass(frozen=True, slots=True)
class Open:
    """A residual as read: a tree whose leaves are filters and memberships. `kind` is and, or, not or leaf."""

    kind: str
    items: tuple[Open, ...] = ()
    leaf: Filter | Member = NEVER


TRUE, FALSE = Open("leaf", leaf=ALWAYS), Open("leaf", leaf=NEVER)
"""The only trees that are constant: like `ALWAYS` and `NEVER` they are compared by identity here."""


def read_residual(residual: Node, entity: str) -> Open:
    """One policy's residual, for resources of type `entity`: true where the policy speaks."""
    bodies = []
    for condition in residual["conditions"]:
        body = _read(condition["body"], f"{NAMESPACE}::{entity}")
        bodies.append(_not(body) if condition["kind"] == "unless" else body)
    return _and(bodies)


def fold(tree: Open, source: str) -> Filter:
    """The tree for the documents of one source."""
    match tree.kind:
        case "and":
            return _flat(And, (fold(item, source) for item in tree.items), NEVER, ALWAYS)
        case "or":
            return _flat(Or, (fold(item, source) for item in tree.items), ALWAYS, NEVER)
        case "not":
            return negate(fold(tree.items[0], source))
    if isinstance(tree.leaf, Member):
        return ALWAYS if source in tree.leaf.sources else NEVER
    return tree.leaf


def only_declared(tree: Open, fields: Container[str]) -> Open:
    """The tree for things of one type: `has` of an attribute that the type does not have is false, as in Cedar in full."""
    if isinstance(tree.leaf, Has) and tree.kind == "leaf":
        return tree if tree.leaf.field in fields else FALSE
    items = [only_declared(item, fields) for item in tree.items]
    match tree.kind:
        case "and":
            return _and(items)
        case "or":
            return _or(items)
        case "not":
            return _not(items[0])
    return tree


def negate(f: Filter) -> Filter:
    """Not, pushed inward at once, so that nesting stays as deep as the policy's own."""
    match f:
        case Always():
            return NEVER
        case Never():
            return ALWAYS
        case Not(item):
            return item
        case And(items):
            return _flat(Or, (negate(item) for item in items), ALWAYS, NEVER)
        case Or(items):
            return _flat(And, (negate(item) for item in items), NEVER, ALWAYS)
        case _:
            return Not(f)


def _flat(kind: type[And | Or], items: Iterable[Filter], zero: Filter, neutral: Filter) -> Filter:
    flat: list[Filter] = []
    for item in items:
        if item is zero:
            return zero
        if isinstance(item, kind):
            flat.extend(item.items)
        elif item is not neutral:
            flat.append(item)
    return flat[0] if len(flat) == 1 else kind(tuple(flat)) if flat else neutral


# --- reading ----------------------------------------------------------------------------------------------------------


def _read(node: Node, entity: str) -> Open:
    ((op, body),) = node.items()
    match op:
        case "&&" | "||":
            # As Cedar does, the right side is looked at only where the left leaves it open. Behind a `has` that is false
            # for this principal stands an attribute that is not there, and Cedar leaves the access in the residual.
            left = _read(body["left"], entity)
            if left is (FALSE if op == "&&" else TRUE):
                return left
            both = [left, _read(body["right"], entity)]
            return _and(both) if op == "&&" else _or(both)
        case "!":
            return _not(_read(body["arg"], entity))
        case "Value":
            if not isinstance(body, bool):
                raise _unknown(op)
            return TRUE if body else FALSE
        case "is":
            _need_resource(body["left"])
            here = TRUE if body["entity_type"] == entity else FALSE
            return here if "in" not in body else _and([here, Open("leaf", leaf=Member(_sources(body["in"])))])
        case "in":
            _need_resource(body["left"])
            return Open("leaf", leaf=Member(_sources(body["right"])))
        case "==" if body["left"] == _RESOURCE:
            # `resource == Provider::"x"` in a scope; no document is a provider.
            return FALSE if _entity_type(body["right"]) not in (entity, None) else _leaf(_compare(op, body))
        case "!=":
            return _not(_leaf(_equal(body["left"], body["right"])))
    return _leaf(_compare(op, body))


def _compare(op: str, body: Node) -> Filter:
    match op:
        case "==":
            return _equal(body["left"], body["right"])
        case "<" | "<=" | ">" | ">=":
            return _ordered(op, body["left"], body["right"])
        case "contains" | "containsAny" | "containsAll":
            return _set_test(op, body["left"], body["right"])
        case "like":
            return Like(_need_field(body["left"]), _pattern(body["pattern"]))
        case "has":
            _need_resource(body["left"])
            return Has(body["attr"])
        case ".":
            return Eq(_need_field({op: body}), value=True)
    raise _unknown(op)


def _equal(left: Node, right: Node) -> Filter:
    name = _field(left)
    if name is None:
        return Eq(_need_field(right), _value(left))
    return Eq(name, _value(right))


def _ordered(op: str, left: Node, right: Node) -> Filter:
    name = _field(left)
    if name is None:
        return _ORDER[_FLIPPED[op]](_need_field(right), _long(left))
    return _ORDER[op](name, _long(right))


def _set_test(op: str, left: Node, right: Node) -> Filter:
    name = _field(left)
    if name is None:
        other, values = _need_field(right), _values(left)
        if op == "contains":
            return In(other, values)
        return Overlaps(other, _strings(values)) if op == "containsAny" else Within(other, _strings(values))
    if op == "contains":
        return Overlaps(name, _strings([_value(right)]))
    if op == "containsAny":
        return Overlaps(name, _strings(_values(right)))
    return _flat(And, (Overlaps(name, frozenset([value])) for value in sorted(_strings(_values(right)))), NEVER, ALWAYS)


def _field(node: Node) -> str | None:
    """The attribute's name where `node` is an attribute of the unknown resource."""
    access = node.get(".")
    return str(access["attr"]) if access is not None and access["left"] == _RESOURCE else None


def _need_field(node: Node) -> str:
    name = _field(node)
    if name is None:
        raise _unknown(next(iter(node)))
    return name


def _need_resource(node: Node) -> None:
    if node != _RESOURCE:
        raise _unknown(next(iter(node)))


def _value(node: Node) -> Scalar:
    value = node.get("Value")
    if not isinstance(value, bool | int | str):
        raise _unknown(next(iter(node)))
    return value


def _long(node: Node) -> int:
    value = _value(node)
    if type(value) is not int:
        raise _unknown("order")
    return value


def _values(node: Node) -> frozenset[Scalar]:
    if "Set" not in node:
        raise _unknown(next(iter(node)))
    return frozenset(_value(item) for item in node["Set"])


def _strings(values: Iterable[Scalar]) -> frozenset[str]:
    strings = frozenset(value for value in values if isinstance(value, str))
    if len(strings) != len(frozenset(values)):
        raise _unknown("set")
    return strings


def _sources(node: Node) -> frozenset[str]:
    items = node.get("Set", [node])
    if any(_entity_type(item) is None for item in items):
        raise _unknown("in")
    entities = [item["Value"]["__entity"] for item in items]
    return frozenset(entity["id"] for entity in entities if entity["type"] == f"{NAMESPACE}::Source")


def _entity_type(node: Node) -> str | None:
    value = node.get("Value")
    return value["__entity"]["type"] if isinstance(value, Mapping) and "__entity" in value else None


def _pattern(parts: list[Any]) -> tuple[str, ...]:
    """Cedar lists characters and wildcards; a filter holds the runs of characters between wildcards."""
    runs = [""]
    for part in parts:
        if part == "Wildcard":
            runs.append("")
        else:
            runs[-1] += part["Literal"]
    return tuple(runs)


def _leaf(f: Filter) -> Open:
    return TRUE if f is ALWAYS else FALSE if f is NEVER else Open("leaf", leaf=f)


def _and(items: list[Open]) -> Open:
    return _joined("and", items, FALSE, TRUE)


def _or(items: list[Open]) -> Open:
    return _joined("or", items, TRUE, FALSE)


def _joined(kind: str, items: list[Open], zero: Open, neutral: Open) -> Open:
    flat: list[Open] = []
    for item in items:
        if item is zero:
            return zero
        if item.kind == kind:
            flat.extend(item.items)
        elif item is not neutral:
            flat.append(item)
    return flat[0] if len(flat) == 1 else Open(kind, tuple(flat)) if flat else neutral


def _not(item: Open) -> Open:
    if item.kind == "not":
        return item.items[0]
    return FALSE if item is TRUE else TRUE if item is FALSE else Open("not", (item,))


def _unknown(what: str) -> PolicyError:
    return PolicyError(
        "residual_unknown", f"a policy left something open that no filter can say (`{what}`)", "report it; nothing was granted"
    )
