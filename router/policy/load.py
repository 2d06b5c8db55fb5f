"""Loads the policy folder strictly: all of it is right, or nothing is answered from it.

INVARIANT: every policy carries a unique @id, @reason and @owner, validates against the schema, and stays inside the
fragment; `00-never.cedar` holds forbids only and the whole tenant wall (tests/faults/test_policies.py).
INVARIANT: what is evaluated is what was checked: statements are parsed one by one, and together they are the file
(tests/unit/test_policy_load.py::test_statements_are_the_file).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from router.domain import Issuer, Source
from router.filters import EntityType
from router.policy import fragment
from router.policy.catalogue import parse_catalog
from router.policy.decide import PolicySet, Statement, build_engine
from router.policy.folder import (
    NEVER_FILE,
    compute_version,
    is_group,
    parse_identity,
    parse_people,
    parse_sources,
    read_folder,
    spell_group,
    write_version,
)
from router.policy.governance import DatasetFacts, parse_governance
from router.policy.schema import FILE as SCHEMA_FILE
from router.policy.schema import WALLED, line_of, parse_schema
from router.policy.strict import Fault, Faults, decode, nearest
from router.policy.tools import parse_tools

_LEXEME = r"//[^\n]*|\"(?:[^\"\\]|\\[\s\S])*\"|[;(){}\[\]]"
"""A comment, a string, or what opens, closes and ends."""
_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def load_policies(folder: Path) -> PolicySet:
    """The folder as one value that decides; raises `PolicyError` with file and line for the first thing wrong."""
    policies, faults = inspect_folder(folder)
    if policies is None:
        raise faults[0].as_error(len(faults) - 1)
    return policies


def keep_version(policies: PolicySet, state: Path) -> Path:
    """Keep the loaded bytes under state/policies/<version>, so that a past decision can be explained. Idempotent."""
    return write_version(policies.raw, policies.version, state)


def inspect_folder(folder: Path) -> tuple[PolicySet | None, list[Fault]]:
    """Load the folder, or say everything that is wrong with it."""
    faults = Faults()
    raw = read_folder(folder, faults)
    return inspect_files(raw, faults) if raw else (None, faults.items)


def inspect_files(raw: Mapping[str, bytes], faults: Faults) -> tuple[PolicySet | None, list[Fault]]:
    """The same for files already read, so that what is loaded is what was hashed."""
    schema, types = _schema(raw, faults)
    issuers, question_classes = parse_identity(raw, types, faults)
    sources = parse_sources(raw, issuers, faults)
    people = parse_people(raw, issuers, faults)
    datasets, section = parse_governance(raw, types, faults)
    catalog = parse_catalog(raw, datasets, faults)
    tools = parse_tools(section, catalog, datasets)
    statements = _statements(raw, faults)
    if schema is None or faults.items:
        return None, faults.items
    _check_statements(statements, types, sources, issuers, faults)
    _check_columns_named(statements, datasets, faults)
    _validate(statements, schema, faults)
    if faults.items:
        return None, faults.items
    policies = PolicySet(
        version=compute_version(raw),
        raw=dict(raw),
        types=types,
        issuers=issuers,
        sources=sources,
        people=people,
        datasets=datasets,
        catalog=catalog,
        statements=tuple(statements),
        engine=build_engine(statements, schema),
        tools=tools,
        question_classes=question_classes,
    )
    return policies, []


def _schema(raw: Mapping[str, bytes], faults: Faults) -> tuple[Any, dict[str, EntityType]]:
    import cedarpy

    text = decode(raw, SCHEMA_FILE, faults)
    if text is None:
        return None, {}
    try:
        schema = cedarpy.Schema.from_str(text)
    except ValueError as error:
        message = str(error).removeprefix("error parsing schema: ")
        faults.add("policy_schema", SCHEMA_FILE, _line_named(text, message, 1), message, "correct the schema")
        return None, {}
    return schema, parse_schema(str(schema), text, faults)


# --- statements -------------------------------------------------------------------------------------------------------


def split_statements(text: str) -> list[tuple[int, str]]:
    """(line, text) of each statement of a Cedar file: up to its semicolon, comments and strings respected."""
    found: list[tuple[int, str]] = []
    start: int | None = None
    for token in re.finditer(_LEXEME + r"|\S", text):
        if token[0].startswith("//"):
            continue
        if start is None:
            start = token.start()
        if token[0] == ";":
            found.append((text.count("\n", 0, start) + 1, text[start : token.end()]))
            start = None
    if start is not None:
        found.append((text.count("\n", 0, start) + 1, text[start:]))
    return found


def _statements(raw: Mapping[str, bytes], faults: Faults) -> list[Statement]:
    if NEVER_FILE not in raw:
        faults.add(
            "policy_file_missing", NEVER_FILE, 0, "the file is missing", "it holds the tenant wall; restore it from review"
        )
    statements: list[Statement] = []
    for name in sorted(raw):
        text = decode(raw, name, faults) if name.endswith(".cedar") else None
        if text is not None:
            statements.extend(_parse_file(name, text, faults))
    return statements


def _parse_file(file: str, text: str, faults: Faults) -> list[Statement]:
    parsed: list[Statement] = []
    before = len(faults.items)
    for line, part in split_statements(text):
        body = _parse_statement(file, line, part, faults)
        if body is not None:
            parsed.append(_build_statement(file, line, part, body))
    if len(faults.items) == before and not _is_whole(text, parsed):
        faults.add(
            "policy_text", file, 1, "the file reads differently as a whole and statement by statement", "simplify its strings"
        )
    return parsed


def _parse_statement(file: str, line: int, part: str, faults: Faults) -> dict[str, Any] | None:
    import cedarpy

    try:
        parsed = json.loads(cedarpy.policies_to_json_str(part))
    except ValueError as error:
        unended = _unended(part)
        where = line + (part.count("\n", 0, unended) if unended is not None else _line_named(part, str(error), 1) - 1)
        hint = "correct the policy" if unended is None else "did the policy before it end with `;`?"
        faults.add("policy_syntax", file, where, str(error), hint, _id_in(part))
        return None
    if parsed["templates"]:
        faults.add("policy_fragment", file, line, "a template is no policy", "write the policy out", _id_in(part))
        return None
    (body,) = parsed["staticPolicies"].values()
    return dict(body)


def _unended(part: str) -> int | None:
    """Where a policy without its `;` runs into the next one, or ends; Cedar names the token and not the place."""
    depth, begun, last = 0, False, 0
    for token in re.finditer(_LEXEME + r"|@|\b(?:permit|forbid)\b", part):
        word = token[0]
        if word.startswith(("//", '"')):
            continue
        depth += (word in ("(", "{", "[")) - (word in (")", "}", "]"))
        if depth == 0 and word in ("permit", "forbid", "@"):
            if begun:
                return token.start()
            begun = word != "@"
        last = token.start()
    return last if begun and depth == 0 and not part.endswith(";") else None


def _is_whole(text: str, statements: list[Statement]) -> bool:
    import cedarpy

    whole = json.loads(cedarpy.policies_to_json_str(text))["staticPolicies"].values()
    return sorted(map(json.dumps, whole)) == sorted(json.dumps(statement.body) for statement in statements)


def _build_statement(file: str, line: int, text: str, body: dict[str, Any]) -> Statement:
    notes = body.get("annotations", {})
    said = {key: notes.get(key) or "" for key in ("id", "reason", "owner")}
    return Statement(said["id"], body["effect"], said["reason"], said["owner"], file, line, text, body)


def _id_in(text: str) -> str:
    found = re.search(r"@id\(\s*\"([^\"]*)\"", text)
    return found[1] if found else ""


def _line_named(text: str, message: str, default: int) -> int:
    """The line of the first thing that Cedar's message quotes; Cedar gives no position."""
    for word in re.findall(r"`([^`]+)`", message):
        line = line_of(text, word)
        if line > 1 or word in text.split("\n", 1)[0]:
            return line
    return default


# --- checks -----------------------------------------------------------------------------------------------------------


def _check_statements(
    statements: list[Statement],
    types: Mapping[str, EntityType],
    sources: Mapping[str, Source],
    issuers: Mapping[str, Issuer],
    faults: Faults,
) -> None:
    seen: dict[str, Statement] = {}
    walled: set[str] = set()
    for statement in statements:
        _check_annotations(statement, seen, faults)
        try:
            fragment.check_policy(statement.body, types)
        except fragment.Outside as outside:
            message = f"`{statement.policy_id}` cannot be made a search filter: {outside.message}"
            _fault(faults, "policy_fragment", statement, message, outside.hint)
            continue
        for name in sorted(fragment.sources_named(statement.body) - set(sources)):
            hint = nearest(name, sources) or "declare it in sources.yaml"
            _fault(faults, "policy_source_unknown", statement, f"`{statement.policy_id}` names the source `{name}`", hint)
        if statement.file == NEVER_FILE:
            walled |= fragment.walled_actions(statement.body)
            if statement.effect != "forbid":
                _fault(faults, "policy_never", statement, f"`{statement.policy_id}` is a permit in {NEVER_FILE}", "move it")
        _check_groups_named(statement, issuers, faults)
        _check_claims_required(statement, types, issuers, faults)
    if missing := [action for action in WALLED if action not in walled]:
        message = f"the tenant wall is missing for {', '.join(missing)}"
        faults.add("policy_tenant_wall", NEVER_FILE, 1, message, "forbid ... unless { resource.tenant == principal.tenant }")


def _check_annotations(statement: Statement, seen: dict[str, Statement], faults: Faults) -> None:
    policy_id = statement.policy_id
    if not _KEBAB.fullmatch(policy_id):
        problem = f"the @id `{policy_id}` is not in kebab case" if policy_id else "a policy has no @id"
        _fault(faults, "policy_id", statement, problem, 'write @id("say-what-it-does") in front of it')
    elif other := seen.get(policy_id):
        message = f"the @id `{policy_id}` stands twice, first at {other.file}:{other.line}"
        _fault(faults, "policy_id_twice", statement, message, "ids name decisions; give each its own")
    seen.setdefault(policy_id, statement)
    for name, value in (("reason", statement.reason), ("owner", statement.owner)):
        if not value.strip():
            _fault(
                faults, "policy_annotation", statement, f"`{policy_id}` has no @{name}", f'write @{name}("...") beside its @id'
            )


def _check_groups_named(statement: Statement, issuers: Mapping[str, Issuer], faults: Faults) -> None:
    """In a permit a group that nobody can have opens nothing; in a forbid it closes nothing, so it is refused."""
    if statement.effect != "forbid":
        return
    for group in sorted(fragment.groups_named(statement.body)):
        if not is_group(group, issuers):
            message = f"`{statement.policy_id}` names the group `{group}`, which no issuer can give anybody"
            _fault(faults, "policy_group_unknown", statement, message, spell_group(issuers))


def _check_columns_named(statements: list[Statement], datasets: Mapping[str, DatasetFacts], faults: Faults) -> None:
    """A column that is not there: in a forbid it would close nothing, in a permit it says that somebody meant another."""
    columns = {column.name for facts in datasets.values() for column in facts.columns}
    for statement in statements:
        named = fragment.columns_named(statement.body)
        within = {name for attribute, name in named if attribute == "dataset"}
        near = {column.name for name in within & set(datasets) for column in datasets[name].columns} or columns
        for attribute, name in sorted(named):
            known = near if attribute == "name" else set(datasets)
            if name not in known:
                message = f"`{statement.policy_id}` names the {'column' if attribute == 'name' else attribute} `{name}`"
                hint = nearest(name, known) or "list it in governance.yaml, or take it out"
                _fault(faults, "policy_column_unknown", statement, f"{message}, which governance.yaml does not list", hint)


def _check_claims_required(
    statement: Statement, types: Mapping[str, EntityType], issuers: Mapping[str, Issuer], faults: Faults
) -> None:
    optional = {
        name for kind in ("User", "Service") if kind in types for name, spec in types[kind].fields.items() if not spec.required
    }
    for name in sorted(fragment.claims_that_must_be_there(statement.body, optional)):
        for alias, issuer in issuers.items():
            claim = issuer.groups if name == "groups" else dict(issuer.attributes).get(name)
            if claim is None or not claim.required:
                message = f"`{statement.policy_id}` depends on `{name}`, but a token of `{alias}` may leave that claim out"
                place = "" if name == "groups" else " `attributes` of"
                hint = f"write `{name}: {{ path: ..., required: true }}` under{place} `{alias}` in identity.yaml"
                _fault(faults, "policy_claim_not_required", statement, message, hint)


def _validate(statements: list[Statement], schema: Any, faults: Faults) -> None:
    """Cedar's own strict validation: unknown attributes, optional ones without `has`, wrong types."""
    import cedarpy

    result = cedarpy.validate_policies("\n".join(statement.text for statement in statements), schema)
    for error in result.errors:
        place = re.fullmatch(r"policy(\d+)", error.policy_id)
        message = re.sub(r"for policy `policy\d+`, ", "", error.error)
        if place is None:
            faults.add("policy_validation", NEVER_FILE, 0, message, "correct the policy")
            continue
        statement = statements[int(place[1])]
        line = statement.line + _line_named(statement.text, message, 1) - 1
        hint = "test it with `has` first" if "optional attribute" in message else "correct the policy or the schema"
        faults.add("policy_validation", statement.file, line, f"`{statement.policy_id}`: {message}", hint, statement.policy_id)
    if not result.validation_passed and not result.errors:
        faults.add(
            "policy_validation", NEVER_FILE, 0, "cedar refuses the policies without saying why", "simplify the last change"
        )


def _fault(faults: Faults, code: str, statement: Statement, message: str, hint: str) -> None:
    faults.add(code, statement.file, statement.line, message, hint, statement.policy_id)
