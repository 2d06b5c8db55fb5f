"""The schema's entity types as Pointsman reads them: which attributes a policy, a label and a claim may speak of.

cedarpy offers no structured schema, but renders one in a normal form; that text is what is parsed here, so comments,
grouping and order of the reviewed file do not matter.

INVARIANT: attributes are String, Long, Bool or Set<String>, sets are required, and the vocabulary of types and actions
is Pointsman's own (tests/unit/test_policy_load.py::test_schema_faults).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from router.filters import EntityType, Field, Kind
from router.policy.strict import Faults, nearest

FILE = "schema.cedarschema"
NAMESPACE = "Pointsman"
WALLED = ("search", "query", "read_column", "read_masked", "filter_raw", "audit", "explain_own")
ACTIONS = (*WALLED, "disclose")
PROVIDERS = ("cohere", "claude", "openai_compatible")
"""The providers that Pointsman can be configured to send text to."""

_PARENTS = {"User": "Group", "Service": "Group", "Document": "Source"}
VOCABULARY = ("User", "Group", "Service", "Source", "Document", "Column", "Provider", "Decision")
_WITHOUT_TENANT = ("Group", "Provider")
_KINDS: Mapping[str, Kind] = {"String": "string", "Long": "long", "Bool": "bool", "Set<String>": "set"}
DATASET = re.compile(r"[a-z_][a-z0-9_]*")
_ENTITY = re.compile(r"^  entity (\w+)(?: in \[([^\]]*)\])?(?: = \{\n(.*?)\n  \})?(?: tags [^;]*)?;", re.M | re.S)
_ATTRIBUTE = re.compile(r"^    (\w+|\"(?:[^\"\\]|\\.)*\")(\?)?: (.*?),?$", re.M)
_ACTION = re.compile(r"^  action \"([^\"]*)\"(?: in \[[^\]]*\])?(?: appliesTo \{\n(.*?)\n  \})?;", re.M | re.S)
_SEARCH = {"principal": "[User, Service]", "resource": "[Document]", "context": "{ now: Long }"}
_DISCLOSE = {"principal": "[User, Service]", "resource": "[Provider]", "context": "{ class: Long, purpose: String }"}


def parse_schema(rendered: str, source: str, faults: Faults) -> dict[str, EntityType]:
    """Entity types by name out of cedarpy's rendering; `source` is the reviewed text, for line numbers."""
    whole = re.match(rf"namespace {NAMESPACE} \{{\n(.*)\n\}}\s*$", re.sub(r"^ *@.*\n", "", rendered, flags=re.M), re.S)
    if whole is None:
        _fault(
            faults,
            source,
            NAMESPACE,
            f"the schema is not one namespace `{NAMESPACE}`",
            f"write `namespace {NAMESPACE} {{ ... }}`",
        )
        return {}
    body = whole[1]
    if named := re.search(r"^  type (\w+)", body, re.M):
        _fault(faults, source, named[1], f"the common type `{named[1]}` is refused", "write the attributes out where they stand")
    if " enum [" in body:
        _fault(faults, source, "enum", "enumerated entities are refused", "declare a plain entity")
    types = {name: _entity(name, parents, inner or "", source, faults) for name, parents, inner in _ENTITY.findall(body)}
    _check_vocabulary(types, source, faults)
    actions = dict(_ACTION.findall(body))
    _check_actions(actions, source, faults)
    _check_tables(types, actions, source, faults)
    return types


def _entity(name: str, parents: str, inner: str, source: str, faults: Faults) -> EntityType:
    wanted = _PARENTS.get(name, "")
    if parents.strip() != wanted:
        hint = f"write `entity {name} in [{wanted}]`" if wanted else f"write `entity {name}` without parents"
        _fault(faults, source, name, f"the parents of `{name}` are not as Pointsman knows them", hint)
    fields: dict[str, Field] = {}
    for attribute, optional, kind in _ATTRIBUTE.findall(inner):
        where = f"`{name}.{attribute}`"
        plain = kind.replace("__cedar::", "")
        if plain not in _KINDS or not re.fullmatch(r"[A-Za-z_]\w*", attribute):
            _fault(faults, source, attribute, f"{where} is a `{kind}`", "attributes are String, Long, Bool or Set<String>")
            continue
        if optional and plain == "Set<String>":
            _fault(faults, source, attribute, f"{where} is an optional set", "make it required; the empty set says the same")
        fields[attribute] = Field(_KINDS[plain], required=not optional)
    return EntityType(name, fields)


def _check_vocabulary(types: Mapping[str, EntityType], source: str, faults: Faults) -> None:
    for name in VOCABULARY:
        if name not in types:
            _fault(faults, source, "entity", f"the entity `{name}` is missing", f"declare `entity {name}`")
    for name, entity in types.items():
        if name not in VOCABULARY and not DATASET.fullmatch(name):
            _fault(
                faults,
                source,
                name,
                f"`{name}` is no entity of Pointsman",
                nearest(name, VOCABULARY) + "; datasets are lower case",
            )
        if name not in _WITHOUT_TENANT and entity.fields.get("tenant") != Field("string", required=True):
            _fault(faults, source, name, f"`{name}` has no `tenant: String`", "add it; the tenant wall compares it")
    for name, attribute, kind in (
        ("User", "groups", "set"),
        ("Service", "groups", "set"),
        ("Document", "groups", "set"),
        ("Document", "sensitivity", "long"),
    ):
        if name in types and types[name].fields.get(attribute) != Field(kind, required=True):  # type: ignore[arg-type]
            cedar = next(text for text, known in _KINDS.items() if known == kind)
            _fault(faults, source, name, f"`{name}` has no `{attribute}: {cedar}`", "add it, without a question mark")


def _check_actions(actions: Mapping[str, str], source: str, faults: Faults) -> None:
    for name in actions:
        if name not in ACTIONS:
            _fault(faults, source, name, f"`{name}` is no action of Pointsman", nearest(name, ACTIONS))
    for name in ACTIONS:
        if name not in actions:
            _fault(faults, source, "action", f"the action `{name}` is missing", f'declare `action "{name}" appliesTo {{ ... }}`')
    for name, wanted in (("search", _SEARCH), ("disclose", _DISCLOSE)):
        flat = re.sub(r"\s+", " ", actions.get(name, ""))
        for key, value in wanted.items():
            if name in actions and f"{key}: {value}" not in flat:
                _fault(faults, source, name, f"the action `{name}` does not apply to `{key}: {value}`", "correct its appliesTo")


def _check_tables(types: Mapping[str, EntityType], actions: Mapping[str, str], source: str, faults: Faults) -> None:
    """With datasets in the schema, `query` is of them and the three actions on columns are of `Column`."""
    datasets = sorted(set(types) - set(VOCABULARY))
    if not datasets:
        return
    for action, wanted in (("query", datasets), *((name, ["Column"]) for name in ("read_column", "read_masked", "filter_raw"))):
        flat = re.sub(r"\s+", " ", actions.get(action, ""))
        named = re.search(r"resource: \[([^\]]*)\]", flat)
        if action in actions and sorted(re.findall(r"\w+", named[1] if named else "")) != wanted:
            hint = f"write `resource: [{', '.join(wanted)}]`"
            _fault(faults, source, action, f"the action `{action}` is not of what it should be", hint)
        for key in ("principal", "context"):
            if action in actions and f"{key}: {_SEARCH[key]}" not in flat:
                _fault(faults, source, action, f"the action `{action}` does not apply to `{key}: {_SEARCH[key]}`", "correct it")
    extra = set(types["Column"].fields) - {"tenant", "tags", "dataset", "name"} if "Column" in types else set()
    for name in sorted(extra):
        _fault(faults, source, name, f"`Column.{name}` is known of no column", "columns have tenant, tags, dataset and name")
    for name, kind in (("tags", "set"), ("dataset", "string"), ("name", "string")):
        spec = types["Column"].fields.get(name) if "Column" in types else None
        if (spec is None and name == "tags") or (spec is not None and spec.kind != kind):
            cedar = next(text for text, known in _KINDS.items() if known == kind)
            _fault(faults, source, "Column", f"`Column` has no `{name}: {cedar}`", "add it; policies speak of columns by it")


def _fault(faults: Faults, source: str, word: str, message: str, hint: str) -> None:
    faults.add("policy_schema", FILE, line_of(source, word), message, hint)


def line_of(text: str, word: str) -> int:
    """The first line that holds `word` as a whole word outside a comment; 1 when none does."""
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.search(line.split("//")[0]):
            return number
    return 1
