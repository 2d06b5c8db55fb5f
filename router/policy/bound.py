"""How large a filter the reviewed folder can make for one person, counted before anybody asks.

Sources that policies tell apart each bring their own copy of every policy that can speak of them, so sources times
policies is what outgrows a filter. The count is from above: whatever depends on the principal is taken to be there.

INVARIANT: no filter over all sources of a tenant has more nodes than is said here of principals whose sets have at most
`held` elements (tests/unit/test_policy_agreement.py::test_no_filter_is_larger_than_the_bound).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from router.domain import Source
from router.filters import EntityType
from router.policy import fragment
from router.policy.schema import NAMESPACE

Node = Mapping[str, Any]

HELD = 20
"""Elements taken for a set of the principal's, where a policy makes one part of each (`containsAll`)."""


def bound_filter(bodies: Sequence[Node], sources: Mapping[str, Source], document: EntityType, held: int = HELD) -> dict[str, int]:
    """By tenant, the most nodes that one person's filter over all sources can have. `bodies` are policies in Cedar's JSON."""
    names = [fragment.sources_named(body) for body in bodies]
    counted: dict[tuple[int, str], int | bool] = {}

    def count(at: int, source: str) -> int | bool:
        # A policy says the same of all sources that it does not name.
        key = (at, source if source in names[at] else "")
        if key not in counted:
            counted[key] = _bound_policy(bodies[at], source, document, held)
        return counted[key]

    required = sum(spec.required and spec.kind != "set" for spec in document.fields.values())
    around = 5 + required  # the source's own And and name, the Or of permits, and the envelope
    named = set[str]().union(*names)
    kinds: dict[str, dict[object, int]] = {}
    for name, source in sources.items():
        kind = (source.groups, source.least, name if name in named else "")
        of_tenant = kinds.setdefault(source.tenant, {})
        if kind not in of_tenant:
            of_tenant[kind] = around + sum(int(count(at, name)) for at in range(len(bodies)))
    return {tenant: 1 + sum(counts.values()) for tenant, counts in kinds.items()}


def _bound_policy(policy: Node, source: str, document: EntityType, held: int) -> int | bool:
    action, resource = policy["action"], policy["resource"]
    actions = [action["entity"]] if "entity" in action else action.get("entities", [])
    if action["op"] != "All" and not any(entity["id"] == "search" for entity in actions):
        return False
    within = resource.get("entity") or resource.get("in", {}).get("entity")
    if resource["op"] == "==" or (within is not None and within["id"] != source):
        return False
    if resource["op"] == "is" and resource["entity_type"] != f"{NAMESPACE}::Document":
        return False
    negated = policy["effect"] == "forbid"
    parts: list[int | bool] = [
        _bound(condition["body"], source, document, held, negated=(condition["kind"] == "unless") != negated)
        for condition in policy["conditions"]
    ]
    return _join(parts, negated)  # a permit is the And of its conditions, a forbid the Or of their negations


def _bound(node: Node, source: str, document: EntityType, held: int, *, negated: bool) -> int | bool:
    """Nodes of the condition (its negation, where `negated`) for documents of `source`; a Bool where that decides it."""
    ((op, body),) = node.items()
    if op in ("&&", "||"):
        both = [_bound(body[side], source, document, held, negated=negated) for side in ("left", "right")]
        return _join(both, (op == "||") != negated)
    if op == "!":
        return _bound(body["arg"], source, document, held, negated=not negated)
    if op in ("is", "in") and body["left"] == {"Var": "resource"}:
        return _is_here(op, body, source) != negated
    if not _speaks_of_resource(node):
        return 0
    return _bound_leaf(op, node, document, held, negated=negated)


def _join(parts: Sequence[int | bool], zero: bool) -> int | bool:
    """Of And (`zero` is False) or Or (`zero` is True): decided where one part decides, without the parts that are neutral."""
    if any(part is zero for part in parts):
        return zero
    counts = [int(part) for part in parts if not isinstance(part, bool)]
    return 1 + sum(counts) if counts else not zero


def _is_here(op: str, body: Node, source: str) -> bool:
    if op == "is" and body["entity_type"] != f"{NAMESPACE}::Document":
        return False
    within = body.get("in") if op == "is" else body["right"]
    if within is None:
        return True
    return any(item["Value"]["__entity"]["id"] == source for item in within.get("Set", [within]))


def _bound_leaf(op: str, node: Node, document: EntityType, held: int, *, negated: bool) -> int:
    """A comparison, its Not, and where its attribute may be missing `has` and what joins them."""
    name = _attribute(node)
    spec = document.fields.get(name)
    guarded = spec is not None and spec.kind != "set" and not spec.required
    each = (5 if negated else 3) if guarded else (2 if negated else 1)
    if op == "containsAll" and _speaks_of_resource(node[op]["left"]):
        return 1 + each * max(held, len(node[op]["right"].get("Set", ())))
    return each


def _attribute(node: Node) -> str:
    return next((str(at["."]["attr"]) for at in fragment.walk(node) if "." in at and at["."]["left"] == {"Var": "resource"}), "")


def _speaks_of_resource(node: Node) -> bool:
    return any(at == {"Var": "resource"} for at in fragment.walk(node))
