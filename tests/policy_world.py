"""Random policy worlds for the differential suites: folders inside the fragment, principals, and hostile documents.

Everything drawn here must load: a generator that is wider than the fragment, or a fragment narrower than promised, fails
the suites. Strings are chosen to be mistaken for syntax somewhere: Cedar, JSON, SQL, LIKE, FTS5, Lucene.
"""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from router.domain import Principal
from router.filters import LONG_MAX, LONG_MIN, Scalar
from router.policy import PolicySet
from router.policy.load import inspect_files
from router.policy.strict import Faults

NOW = datetime(2026, 6, 15, 12, 30, tzinfo=UTC)
TENANTS = ("t1", "t'2")
SOURCES = {"alpha": "t1", "beta": "t1", "gamma": "t'2"}

STRINGS = (
    "",
    "a",
    "A",
    "ab",
    "corp:a",
    "corp:b",
    "corp:*",
    'quo"te',
    "quo'te",
    "back\\slash",
    "star*star",
    "per%cent_",
    "new\nline",
    "tab\t\r",
    "é",
    "e\u0301",
    "straße",
    "\U0001f6a7",
    "\u202egnirts",
    "\u2028",
    "null",
    "0",
    "true",
    "__entity",
    "x" * 400,
    "OR 1=1 --",
    "]}{[",
)
LONGS = (LONG_MIN, LONG_MIN + 1, -(2**53) - 1, -1, 0, 1, 2, 3, 2**31, 2**53 + 1, 1_781_481_600_000, LONG_MAX - 1, LONG_MAX)

SCHEMA = """
namespace Pointsman {
  entity Group;
  entity User in [Group] = {
    tenant: String, groups: Set<String>, teams: Set<String>, clearance: Long, floor?: Long, region?: String, vip: Bool, trained?: Bool,
  };
  entity Service in [Group] = {
    tenant: String, groups: Set<String>, teams: Set<String>, clearance: Long, floor?: Long, region?: String, vip: Bool, trained?: Bool,
  };
  entity Source = { tenant: String };
  entity Document in [Source] = {
    tenant: String, groups: Set<String>, tags: Set<String>, sensitivity: Long, title: String, active: Bool,
    rank?: Long, region?: String, archived?: Bool,
  };
  entity Column = { tenant: String, tags: Set<String> };
  entity Provider;
  entity Decision = { tenant: String };
  action "search" appliesTo { principal: [User, Service], resource: [Document], context: { now: Long } };
  action "query", "read_column", "read_masked", "filter_raw" appliesTo {
    principal: [User, Service], resource: [Column], context: { now: Long }
  };
  action "audit", "explain_own" appliesTo { principal: [User, Service], resource: [Decision], context: { now: Long } };
  action "disclose" appliesTo {
    principal: [User, Service], resource: [Provider], context: { purpose: String, class: Long }
  };
}
"""

WALL = """
@id("tenant-wall") @reason("nobody crosses a tenant") @owner("security")
forbid (principal, action in [Pointsman::Action::"search", Pointsman::Action::"query", Pointsman::Action::"read_column",
  Pointsman::Action::"read_masked", Pointsman::Action::"filter_raw", Pointsman::Action::"audit", Pointsman::Action::"explain_own"],
  resource)
unless { resource.tenant == principal.tenant };
"""

IDENTITY = """
issuers:
  corp:
    iss: https://issuer.example
    development: true
    audiences: [pointsman]
    algorithms: [EdDSA]
    tenants: [t1, "t'2"]
    claims:
      tenant: tenant
      groups: { path: groups, required: true }
      attributes:
        teams: teams
        clearance: clearance
        floor: { path: floor, required: true }
        region: { path: region, required: true }
        vip: vip
        trained: { path: trained, required: true }
"""

SOURCES_YAML = """
sources:
  alpha: { tenant: t1, connector: folder, groups: ["corp:a", "corp:b"], least: public, description: alpha }
  beta: { tenant: t1, connector: folder, groups: ["corp:a", "corp:*", 'corp:c"', "corp:é"], least: public, description: beta }
  gamma: { tenant: "t'2", connector: folder, groups: ["corp:a", "corp:b"], least: internal, description: gamma }
"""
ENVELOPES = {"alpha": ("corp:a", "corp:b"), "beta": ("corp:a", "corp:*", 'corp:c"', "corp:é"), "gamma": ("corp:a", "corp:b")}
LEAST = {"alpha": 0, "beta": 0, "gamma": 1}


def folder_files(policies: str = "", **files: str) -> dict[str, bytes]:
    """The files of a folder as bytes; keyword arguments replace whole files (dots in names written as `__`)."""
    texts = {
        "schema.cedarschema": SCHEMA,
        "00-never.cedar": WALL,
        "documents.cedar": policies,
        "identity.yaml": IDENTITY,
        "sources.yaml": SOURCES_YAML,
        "governance.yaml": "datasets: {}\n",
    }
    texts |= {name.replace("__", "."): text for name, text in files.items()}
    return {name: text.encode() for name, text in texts.items()}


def load_files(raw: dict[str, bytes]) -> PolicySet:
    """Load, or fail with everything that is wrong."""
    policies, faults = inspect_files(raw, Faults())
    assert policies is not None, [f"{fault.where}: {fault.message}" for fault in faults]
    return policies


def cedar_string(text: str) -> str:
    """A Cedar string literal."""
    return '"' + "".join(_escape(char) for char in text) + '"'


def cedar_pattern(parts: list[str]) -> str:
    """A `like` pattern: literal runs joined by wildcards."""
    return '"' + "*".join("".join("\\*" if char == "*" else _escape(char) for char in part) for part in parts) + '"'


def _escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\u{{{ord(char):x}}}"


# --- expressions inside the fragment ----------------------------------------------------------------------------------

strings = st.sampled_from(STRINGS) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
literals = strings.map(lambda text: unicodedata.normalize("NFC", text))
"""What a policy may compare with; labels and claims are drawn in any form, as if nobody had normalised them."""
longs = st.sampled_from(LONGS) | st.integers(LONG_MIN, LONG_MAX)
string_sets = st.lists(literals, min_size=1, max_size=4, unique=True)
group_literals = st.sampled_from(["corp:a", "corp:b", "corp:*", "corp:é"]) | literals.map(
    lambda text: f"corp:{text.strip() or 'a'}"
)
group_sets = st.lists(group_literals, min_size=1, max_size=4, unique=True)

_ORDER = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
_EQUAL = st.sampled_from(["==", "!="])


def _long(value: int) -> str:
    return str(value)


def _set(values: list[str]) -> str:
    return "[" + ", ".join(cedar_string(value) for value in values) + "]"


def _compare(draw: Any, field: str, op: str, value: str) -> str:
    """Either way round."""
    return f"{field} {op} {value}" if draw(st.booleans()) else f"{value} {op} {field}"


@st.composite
def _string_atom(draw: Any, field: str) -> str:
    match draw(st.sampled_from(["compare", "principal", "in", "like", "teams"])):
        case "compare":
            return _compare(draw, field, draw(_EQUAL), cedar_string(draw(literals)))
        case "principal":
            return _compare(draw, field, draw(_EQUAL), "principal.tenant")
        case "in":
            return f"{_set(draw(string_sets))}.contains({field})"
        case "teams":
            return f"principal.teams.contains({field})"
    return f"{field} like {cedar_pattern(draw(st.lists(literals, min_size=1, max_size=4)))}"


@st.composite
def _long_atom(draw: Any, field: str) -> str:
    if draw(st.booleans()):
        other = draw(longs.map(_long) | st.sampled_from(["principal.clearance", "context.now"]))
        return _compare(draw, field, draw(_ORDER), other)
    values = draw(st.lists(longs, min_size=1, max_size=4))
    return f"[{', '.join(map(_long, values))}].contains({field})"


@st.composite
def _bool_atom(draw: Any, field: str) -> str:
    match draw(st.sampled_from(["bare", "literal", "principal"])):
        case "bare":
            return field
        case "literal":
            return _compare(draw, field, draw(_EQUAL), draw(st.sampled_from(["true", "false"])))
    return _compare(draw, field, draw(_EQUAL), "principal.vip")


@st.composite
def _set_atom(draw: Any, field: str) -> str:
    op = draw(st.sampled_from(["containsAny", "containsAll"]))
    ours, our_sets = (group_literals, group_sets) if field == "resource.groups" else (literals, string_sets)
    other = draw(our_sets.map(_set) | st.sampled_from(["principal.groups", "principal.teams"]))
    match draw(st.sampled_from(["contains", "principal", "left", "right"])):
        case "contains":
            return f"{field}.contains({cedar_string(draw(ours))})"
        case "principal":
            return f"{field}.contains(principal.tenant)"
        case "left":
            return f"{field}.{op}({other})"
    return f"{other}.{op}({field})"


_PRINCIPAL_ATOMS = (
    "principal.vip",
    "principal.clearance > 1",
    'principal.groups.contains("corp:a")',
    'principal in Pointsman::Group::"corp:b"',
    "principal is Pointsman::User",
    "principal is Pointsman::Service",
    'principal has region && principal.region like "*a*"',
    "principal has trained && principal.trained",
    "principal has floor && principal.floor < context.now",
    "context.now > 1781000000000",
    "context.now == 1781481600000",
    '["a", "corp:a"].containsAll(principal.teams)',
    "true",
    "false",
)


@st.composite
def _across(draw: Any) -> str:
    """A resource's optional attribute against a principal's optional one: both must be there first."""
    name, op = draw(st.sampled_from([("region", "=="), ("region", "!=")]))
    field = "region"
    return f"resource has {field} && principal has {name} && {_compare(draw, f'resource.{field}', op, f'principal.{name}')}"


def _optional(field: str, atom: str) -> str:
    return f"(resource has {field} && {atom})"


_ATOMS = st.one_of(
    _string_atom("resource.title"),
    _string_atom("resource.tenant"),
    _long_atom("resource.sensitivity"),
    _bool_atom("resource.active"),
    _set_atom("resource.groups"),
    _set_atom("resource.tags"),
    _long_atom("resource.rank").map(lambda atom: _optional("rank", atom)),
    _string_atom("resource.region").map(lambda atom: _optional("region", atom)),
    _bool_atom("resource.archived").map(lambda atom: _optional("archived", atom)),
    _across().map(lambda atom: f"({atom})"),
    st.sampled_from(["rank", "region", "archived", "tags", "title"]).map(lambda field: f"resource has {field}"),
    st.sampled_from(["alpha", "beta", "gamma"]).map(lambda name: f'resource in Pointsman::Source::"{name}"'),
    st.just('resource in [Pointsman::Source::"alpha", Pointsman::Source::"gamma"]'),
    st.just('resource is Pointsman::Document in Pointsman::Source::"beta"'),
    st.just("resource is Pointsman::Document"),
    st.sampled_from(_PRINCIPAL_ATOMS).map(lambda atom: f"({atom})"),
)

conditions = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: "(" + " && ".join(f"({part})" for part in parts) + ")"),
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: "(" + " || ".join(f"({part})" for part in parts) + ")"),
        inner.map(lambda part: f"!({part})"),
    ),
    max_leaves=8,
)
"""Cedar text of a condition inside the fragment."""

_PRINCIPAL_SCOPES = st.sampled_from(
    ["principal"] * 6
    + [
        "principal is Pointsman::User",
        'principal in Pointsman::Group::"corp:a"',
        'principal is Pointsman::User in Pointsman::Group::"corp:b"',
    ]
)
_ACTION_SCOPES = st.sampled_from(['action == Pointsman::Action::"search"', 'action in [Pointsman::Action::"search"]'])
_RESOURCE_SCOPES = st.sampled_from(
    ["resource"] * 6
    + [
        "resource is Pointsman::Document",
        'resource in Pointsman::Source::"alpha"',
        'resource is Pointsman::Document in Pointsman::Source::"gamma"',
    ]
)


@st.composite
def policy_texts(draw: Any, most: int = 6) -> str:
    """Some permits and forbids inside the fragment; at least one permit."""
    statements = []
    for at in range(draw(st.integers(1, most))):
        effect = "permit" if at == 0 else draw(st.sampled_from(["permit", "permit", "forbid"]))
        clauses = draw(st.lists(st.tuples(st.sampled_from(["when", "when", "unless"]), conditions), max_size=2))
        body = " ".join(f"{kind} {{ {condition} }}" for kind, condition in clauses)
        scope = f"{draw(_PRINCIPAL_SCOPES)}, {draw(_ACTION_SCOPES)}, {draw(_RESOURCE_SCOPES)}"
        statements.append(f'@id("policy-{at}") @reason("drawn") @owner("tests")\n{effect} ({scope})\n{body};')
    return "\n".join(statements)


@st.composite
def policy_sets(draw: Any) -> PolicySet:
    return load_files(folder_files(draw(policy_texts())))


# --- principals and documents -----------------------------------------------------------------------------------------


@st.composite
def principals(draw: Any) -> Principal:
    attributes: dict[str, Scalar | frozenset[str]] = {
        "clearance": draw(st.integers(0, 3)),
        "teams": frozenset(draw(st.lists(strings, max_size=3))),
        "vip": draw(st.booleans()),
    }
    if draw(st.booleans()):
        attributes["region"] = draw(strings)
    if draw(st.booleans()):
        attributes["floor"] = draw(longs)
    if draw(st.booleans()):
        attributes["trained"] = draw(st.booleans())
    return Principal(
        issuer="corp",
        subject=draw(strings.filter(bool)),
        kind=draw(st.sampled_from(["User", "User", "Service"])),
        tenant=draw(st.sampled_from(TENANTS)),
        groups=frozenset(f"corp:{name}" for name in draw(st.lists(st.sampled_from(["a", "b", "*", 'c"', "é"]), max_size=3))),
        attributes=tuple(sorted(attributes.items())),
        expires_at_s=2**40,
    )


@st.composite
def labels(draw: Any, tenant: str, source: str = "alpha") -> dict[str, Scalar | frozenset[str]]:
    """Labels of a document, mostly inside the envelope; now and then one lacks a required scalar and nobody may see it."""
    inside = draw(st.integers(0, 3)) > 0
    found: dict[str, Scalar | frozenset[str]] = {
        "tenant": tenant,
        "groups": frozenset(draw(st.lists(st.sampled_from(ENVELOPES[source]) if inside else strings, max_size=3))),
        "tags": frozenset(draw(st.lists(strings, max_size=3))),
        "sensitivity": draw(st.integers(0, 3) if inside else longs),
        "title": draw(strings),
        "active": draw(st.booleans()),
    }
    if draw(st.booleans()):
        found["rank"] = draw(longs)
    if draw(st.booleans()):
        found["region"] = draw(strings)
    if draw(st.booleans()):
        found["archived"] = draw(st.booleans())
    if draw(st.integers(0, 19)) == 0:
        del found[draw(st.sampled_from(["sensitivity", "title", "active"]))]
    return found


@st.composite
def documents(draw: Any, most: int = 12) -> list[tuple[str, str, dict[str, Scalar | frozenset[str]]]]:
    """(source, document id, labels), as `recheck` takes them."""
    found = []
    for at in range(draw(st.integers(1, most))):
        source = draw(st.sampled_from(sorted(SOURCES)))
        found.append((source, f"{source}/{at}", draw(labels(SOURCES[source], source))))
    return found


def inside_envelope(source: str, of: dict[str, Any]) -> bool:
    """Written apart from the product: what sources.yaml above says of a source's labels."""
    return of["groups"] <= set(ENVELOPES[source]) and of.get("sensitivity", LEAST[source]) >= LEAST[source]


def describe(policies: PolicySet, principal: Principal, thing: object) -> str:
    """What to print when a suite disagrees."""
    text = "\n".join(statement.text for statement in policies.statements)
    return f"{text}\n{principal}\n{json.dumps(thing, default=sorted, ensure_ascii=True)}"
