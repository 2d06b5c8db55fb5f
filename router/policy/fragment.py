"""The part of Cedar that a policy may use: exactly what the filter algebra can say of a resource.

The check runs on the policy's own syntax tree, never on a residual: a condition may fold away for one person and be
unanswerable for the next, so whatever a reviewer approved must be answerable for everybody.

INVARIANT: a policy that passes here can be said as a filter for every principal (tests/unit/test_policy_agreement.py).
Only its size depends on the principal: `containsAll` of a set that a token gives has one part an element, and what gets
larger than stores can take is refused `policy_too_large` (tests/faults/test_policies.py::test_filter_too_large_is_refused_not_widened).
INVARIANT: whatever is outside is refused at load with its @id (tests/faults/test_policies.py::test_outside_the_fragment).
INVARIANT: literals are in Unicode NFC, as labels and claims are (tests/faults/test_policies.py::test_literal_that_is_not_nfc).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from router.errors import PolicyError
from router.filters import EntityType, Kind, check_text
from router.policy.schema import NAMESPACE

Node = Mapping[str, Any]

MAX_NESTING = 200
MAX_ALTERNATIONS = 20
GROUP, SOURCE = f"{NAMESPACE}::Group", f"{NAMESPACE}::Source"
PROVIDER = f"{NAMESPACE}::Provider"
_ORDER = ("<", "<=", ">", ">=")
_SETS = ("contains", "containsAny", "containsAll")
_ARITHMETIC = ("+", "-", "*", "neg")
_REFUSED = {
    "if-then-else": ("`if then else`", "write it with `&&` and `||`"),
    "isEmpty": ("`isEmpty`", "name the values instead, for example with containsAny"),
    "Record": ("a record", "compare single attributes"),
    "hasTag": ("`hasTag`", "declare an attribute"),
    "getTag": ("`getTag`", "declare an attribute"),
    "Slot": ("a template slot", "write the policy out"),
}


class Outside(Exception):  # noqa: N818 (a finding, turned into a Fault by the loader)
    """One thing that the fragment does not hold."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Term:
    """One side of a comparison: whose it is and of which kind ("entity" and "elements" only inside this module)."""

    of: Literal["resource", "known"]
    kind: Kind | Literal["entity", "unknown"]


def check_policy(policy: Node, types: Mapping[str, EntityType]) -> None:
    """Raise `Outside` for the first thing in `policy` (Cedar's JSON form) that the filter algebra cannot say."""
    _check_scope(policy)
    for condition in policy["conditions"]:
        _truth(condition["body"], types, 0)
        if _alternations(condition["body"], "", negated=False) > MAX_ALTERNATIONS:
            raise Outside("a condition is nested too deeply", "split the policy")


def _alternations(node: Node, parent: str, *, negated: bool) -> int:
    """How deep the condition is once `!` is pushed inward and chains are flat: the depth that its filter will have."""
    ((op, body),) = node.items()
    if op == "!":
        return _alternations(body["arg"], parent, negated=not negated)
    if op not in ("&&", "||"):
        return 0
    op = {"&&": "||", "||": "&&"}[op] if negated else op
    return (op != parent) + max(_alternations(body[side], op, negated=negated) for side in ("left", "right"))


def _check_scope(policy: Node) -> None:
    for part in ("principal", "action", "resource"):
        if "slot" in policy[part] or "slot" in policy[part].get("in", {}):
            raise Outside("a template is no policy", "write the policy out")
    principal, resource, action = policy["principal"], policy["resource"], policy["action"]
    if principal["op"] == "==":
        raise Outside("it names one principal", "principals are opaque here; speak of their groups or attributes")
    for entity in _entities(principal):
        _need(entity, GROUP, "a principal can only be `in` a Group")
    if resource["op"] == "==" and resource["entity"]["type"] != PROVIDER:
        raise Outside("it compares the resource with one entity", "only a Provider can be named by `==`")
    if resource["op"] != "==":
        for entity in _entities(resource):
            _need(entity, SOURCE, "a resource can only be `in` a Source")
    for entity in _entities(action):
        _need(entity, f"{NAMESPACE}::Action", "the action is not one of Pointsman's")


def _entities(scope: Node) -> list[Node]:
    found = list(scope.get("entities", ()))
    if "entity" in scope:
        found.append(scope["entity"])
    if "in" in scope:
        found.append(scope["in"]["entity"])
    for entity in found:
        _clean(entity["id"])
    return found


def _need(entity: Node, wanted: str, message: str) -> None:
    if entity["type"] != wanted:
        raise Outside(message, f"`{entity['type']}` stands there")


def _truth(node: Node, types: Mapping[str, EntityType], depth: int) -> None:
    """Check an expression that is a Bool."""
    if depth > MAX_NESTING:
        raise Outside("a condition is nested too deeply", "split the policy")
    ((op, body),) = node.items()
    match op:
        case "&&" | "||":
            _truth(body["left"], types, depth + 1)
            _truth(body["right"], types, depth + 1)
        case "!":
            _truth(body["arg"], types, depth + 1)
        case "==" | "!=":
            _check_equality(_term(body["left"], types), _term(body["right"], types))
        case "<" | "<=" | ">" | ">=":
            _check_order(_term(body["left"], types), _term(body["right"], types))
        case "contains" | "containsAny" | "containsAll":
            _check_sets(op, _term(body["left"], types), _term(body["right"], types))
        case "like":
            _check_like(body, types)
        case "has":
            if "Var" not in body["left"]:
                raise Outside("`has` reaches into an attribute", "attributes are flat here")
        case "is":
            _check_is(body)
        case "in":
            _check_in(body)
        case _:
            if _term(node, types).kind not in ("bool", "unknown"):
                raise Outside("something that is no Bool stands as a condition", "compare it with a value")


def _check_equality(left: Term, right: Term) -> None:
    for side in (left, right):
        if side.kind == "entity":
            raise Outside("it compares with an entity", "compare attributes; a Source is asked for with `in`")
        if side.kind == "set":
            raise Outside("it compares a whole set", "use contains, containsAny or containsAll")
    _at_most_one_unknown(left, right)


def _check_order(left: Term, right: Term) -> None:
    for side in (left, right):
        if side.kind not in ("long", "unknown"):
            raise Outside(f"it orders a {side.kind}", "only a Long has an order")
    _at_most_one_unknown(left, right)


def _check_sets(op: str, left: Term, right: Term) -> None:
    if right.kind == "entity":
        raise Outside("an entity stands in a set", "sets hold strings")
    fits = right.kind != "set" if op == "contains" else right.kind in ("set", "unknown")
    if left.kind not in ("set", "unknown") or not fits:
        raise Outside(f"`{op}` is asked of the wrong kind of value", "contains takes one value, the others a set")
    _at_most_one_unknown(left, right)


def _at_most_one_unknown(left: Term, right: Term) -> None:
    if left.of == right.of == "resource":
        raise Outside("it compares one attribute of the resource with another", "compare with a literal or the principal's")


def _check_like(body: Node, types: Mapping[str, EntityType]) -> None:
    term = _term(body["left"], types)
    if term.kind not in ("string", "unknown"):
        raise Outside(f"`like` is asked of a {term.kind}", "only a String can be matched")
    runs = "".join("\n" if part == "Wildcard" else part["Literal"] for part in body["pattern"])
    for run in runs.split("\n"):
        _clean(run)


def _check_is(body: Node) -> None:
    variable = body["left"].get("Var")
    if variable not in ("principal", "resource"):
        raise Outside("`is` is asked of something else than the principal or the resource", "ask it of one of them")
    if "in" in body:
        _check_in({"left": body["left"], "right": body["in"]})


def _check_in(body: Node) -> None:
    """`principal in Group::"x"`, `resource in Source::"x"`, or in a set of such literals."""
    variable = body["left"].get("Var")
    wanted = {"principal": GROUP, "resource": SOURCE}.get(str(variable))
    if wanted is None:
        raise Outside("`in` is asked of something else than the principal or the resource", 'use `["a", "b"].contains(...)`')
    right = body["right"]
    for item in right.get("Set", [right]):
        entity = item.get("Value", {}).get("__entity") if isinstance(item.get("Value"), Mapping) else None
        if entity is None:
            raise Outside("`in` is asked of something that is no literal", f'write `in {wanted}::"name"`')
        _need(entity, wanted, f"the {variable} can only be `in` a {wanted.split('::')[1]}")
        _clean(entity["id"])


def _term(node: Node, types: Mapping[str, EntityType]) -> Term:
    ((op, body),) = node.items()
    match op:
        case "Value":
            return _literal(body)
        case "Var":
            return Term("resource" if body == "resource" else "known", "entity")
        case "Set":
            return _set_literal(body)
        case ".":
            return _attribute(body, types)
    if op in _ARITHMETIC:
        raise Outside("it calculates", "compare with a plain literal")
    if op in _REFUSED:
        raise Outside(f"{_REFUSED[op][0]} cannot be said by a filter", _REFUSED[op][1])
    if op in ("&&", "||", "!", "==", "!=", "has", "like", "is", "in", *_ORDER, *_SETS):
        raise Outside("it compares a condition with something", "use the condition itself, or `!` of it")
    raise Outside(f"`{op}` cannot be said by a filter", "use comparisons, contains, containsAny, containsAll, like and has")


def _literal(value: Any) -> Term:
    match value:
        case bool():
            return Term("known", "bool")
        case int():
            return Term("known", "long")
        case str():
            _clean(value)
            return Term("known", "string")
        case {"__entity": _}:
            return Term("known", "entity")
    raise Outside("a literal of this kind cannot be said by a filter", "use strings, whole numbers, true and false")


def _set_literal(items: list[Node]) -> Term:
    if not items:
        raise Outside("an empty set stands there", "name its values")
    for item in items:
        if set(item) != {"Value"}:
            raise Outside("something that is no literal stands inside a set", "write the values out")
        if _literal(item["Value"]).kind == "entity":
            raise Outside("an entity stands in a set", "sets hold strings and numbers")
    return Term("known", "set")


def _attribute(body: Node, types: Mapping[str, EntityType]) -> Term:
    variable = body["left"].get("Var")
    if variable is None:
        if set(body["left"]) == {"Record"}:
            raise Outside("a record cannot be said by a filter", "compare single attributes")
        raise Outside("it reaches into an attribute", "attributes are flat here; there are no records")
    if variable == "action":
        raise Outside("it asks for an attribute of the action", "actions have none")
    _clean(body["attr"])
    kinds = _kinds_of(str(variable), body["attr"], types)
    kind: Kind | Literal["unknown"] = kinds.pop() if len(kinds) == 1 else "unknown"
    return Term("resource" if variable == "resource" else "known", kind)


def _kinds_of(variable: str, attribute: str, types: Mapping[str, EntityType]) -> set[Kind]:
    """The kinds an attribute has in the types the variable can be of. An unknown attribute is the validator's to refuse."""
    if variable == "context":
        return {"now": {"long"}, "class": {"long"}, "purpose": {"string"}}.get(attribute, set())  # type: ignore[return-value]
    of = [t for name, t in types.items() if (name in ("User", "Service")) == (variable == "principal")]
    return {entity.fields[attribute].kind for entity in of if attribute in entity.fields}


def _clean(text: str) -> None:
    try:
        check_text(text, "a literal")
    except PolicyError as error:
        raise Outside(error.message, error.hint) from None
    if not unicodedata.is_normalized("NFC", text):
        message = f"the literal `{text}` is not in Unicode NFC, so it equals no label and no claim"
        raise Outside(message, f"write it so: `{unicodedata.normalize('NFC', text)}`")


# --- what a policy speaks of ------------------------------------------------------------------------------------------


def sources_named(policy: Node) -> set[str]:
    """Every source that the policy names with `in`: a misspelt one would make a forbid silently never fire."""
    return {entity["id"] for entity in _all_entities(policy) if entity["type"] == SOURCE}


def groups_named(policy: Node) -> set[str]:
    """Every group the policy names, as an entity or as a literal beside `groups`."""
    found = {entity["id"] for entity in _all_entities(policy) if entity["type"] == GROUP}
    for node in walk(policy["conditions"]):
        for op in _SETS:
            if op in node and any(
                _is_groups(node[op][side], variable) for side in ("left", "right") for variable in ("principal", "resource")
            ):
                found |= {value["Value"] for value in walk(node[op]) if isinstance(value.get("Value"), str)}
    return found


def providers_named(policy: Node) -> set[str]:
    """Every provider the policy names."""
    return {entity["id"] for entity in _all_entities(policy) if entity["type"] == PROVIDER}


def purposes_named(policy: Node) -> set[str]:
    """Every purpose that a policy of disclosure compares."""
    purpose = {".": {"left": {"Var": "context"}, "attr": "purpose"}}
    return {
        value["Value"]
        for node in walk(policy["conditions"])
        for op in ("==", "!=", *_SETS)
        if op in node and purpose in (node[op]["left"], node[op]["right"])
        for value in walk(node[op])
        if isinstance(value.get("Value"), str)
    }


def actions_named(policy: Node) -> set[str]:
    """The actions the policy is for; empty where it is for all."""
    return {entity["id"] for entity in _entities(policy["action"])}


def columns_named(policy: Node) -> set[tuple[str, str]]:
    """(attribute, literal) wherever a policy of columns compares what a column or its dataset is called."""
    return {(attribute, text) for attribute in ("name", "dataset") for text in _said_of_column(policy, attribute)}


def tags_named(policy: Node) -> set[str]:
    """The tags that a policy of columns compares."""
    return _said_of_column(policy, "tags")


def _said_of_column(policy: Node, attribute: str) -> set[str]:
    actions = actions_named(policy)
    if not actions or not actions <= {"read_column", "read_masked", "filter_raw"}:
        return set()
    asked = {".": {"left": {"Var": "resource"}, "attr": attribute}}
    return {
        value["Value"]
        for node in walk(policy["conditions"])
        for op in ("==", "!=", *_SETS)
        if op in node and asked in (node[op]["left"], node[op]["right"])
        for value in walk(node[op])
        if isinstance(value.get("Value"), str)
    }


def is_unconditional(policy: Node) -> bool:
    """Whether nothing in the policy depends on who asks or on what is asked for."""
    if policy["principal"]["op"] != "All" or policy["resource"]["op"] != "All":
        return False
    return not any(node.get("Var") in ("principal", "resource") for node in walk(policy["conditions"]))


def claims_that_must_be_there(policy: Node, optional: Collection[str]) -> set[str]:
    """The claims ("groups", and those attributes of the principal that are optional) whose absence can admit more.

    A forbid that fires on what a claim says, or a permit that fires on what it does not say, needs the claim to be
    required; otherwise a token that merely lacks it would see more. An optional attribute can be read only behind `has`
    (Cedar's validation), so where `has` stands, and under which sign, decides.
    """
    growing = policy["effect"] == "forbid"
    found = {"groups"} if growing and any(entity["type"] == GROUP for entity in _entities(policy["principal"])) else set()
    for condition in policy["conditions"]:
        found.update(_lost(condition["body"], optional, positive=(condition["kind"] == "when") == growing))
    return found


def _lost(node: Node, optional: Collection[str], *, positive: bool) -> Iterator[str]:
    """The claims that stand where, under this sign, losing them narrows a forbid or widens a permit."""
    ((op, body),) = node.items()
    match op:
        case "&&" | "||":
            yield from _lost(body["left"], optional, positive=positive)
            yield from _lost(body["right"], optional, positive=positive)
        case "!":
            yield from _lost(body["arg"], optional, positive=not positive)
        case "has" if positive and body["left"].get("Var") == "principal" and body["attr"] in optional:
            yield str(body["attr"])
        case "in" if positive and body["left"].get("Var") == "principal":
            yield "groups"
        case "is" if positive and body["left"].get("Var") == "principal" and "in" in body:
            yield "groups"
        case "contains" | "containsAny" | "containsAll":
            # X.containsAll(groups) is truer of fewer groups.
            shrinks = not (op == "containsAll" and _is_groups(body["right"], "principal"))
            if any(_is_groups(body[side], "principal") for side in ("left", "right")) and positive == shrinks:
                yield "groups"


def _is_groups(node: Node, variable: str) -> bool:
    return "." in node and node["."]["attr"] == "groups" and node["."]["left"] == {"Var": variable}


def _all_entities(policy: Node) -> Iterator[Node]:
    for part in ("principal", "resource"):
        yield from _entities(policy[part])
    for node in walk(policy["conditions"]):
        value = node.get("Value")
        if isinstance(value, Mapping) and "__entity" in value:
            yield value["__entity"]


def walk(node: Any) -> Iterator[Node]:
    """Every mapping inside a JSON value, itself included."""
    stack = [node]
    while stack:
        at = stack.pop()
        if isinstance(at, Mapping):
            yield at
            stack.extend(at.values())
        elif isinstance(at, list):
            stack.extend(at)


# --- the tenant wall --------------------------------------------------------------------------------------------------

_TENANTS = tuple({".": {"left": {"Var": variable}, "attr": "tenant"}} for variable in ("resource", "principal"))


def walled_actions(policy: Node) -> set[str]:
    """The actions for which this policy is the tenant wall whole: nothing narrows it, for nobody and no resource."""
    if policy["effect"] != "forbid" or policy["principal"]["op"] != "All" or policy["resource"]["op"] != "All":
        return set()
    if len(policy["conditions"]) != 1:
        return set()
    condition = policy["conditions"][0]
    ((op, body),) = condition["body"].items()
    if (condition["kind"], op) not in (("unless", "=="), ("when", "!=")):
        return set()
    if (body["left"], body["right"]) not in (_TENANTS, _TENANTS[::-1]):
        return set()
    return {entity["id"] for entity in _entities(policy["action"])}
