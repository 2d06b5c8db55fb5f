"""Policy folders that must not be loaded, and what happens when a good one breaks. Nothing here ever widens a filter."""

import dataclasses
import json
import os
import re
import threading
import unicodedata
from pathlib import Path

import pytest

from router.domain import Principal
from router.errors import PolicyError, Refused
from router.filters import NEVER, matches
from router.policy import LivePolicies, inspect_folder, load_policies
from router.policy.decide import PolicySet, Statement, build_engine
from router.policy.load import inspect_files
from router.policy.strict import Faults
from tests import policy_world as world

ADA = Principal(
    issuer="corp",
    subject="ada",
    kind="User",
    tenant="t1",
    groups=frozenset({"corp:a"}),
    attributes=(("clearance", 2), ("teams", frozenset()), ("vip", False)),
    expires_at_s=2**40,
)
LABELS = {
    "tenant": "t1",
    "groups": frozenset({"corp:a"}),
    "tags": frozenset(),
    "sensitivity": 1,
    "title": "x",
    "active": True,
}
GOOD = """
@id("read-groups") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"search", resource)
when { resource.groups.containsAny(principal.groups) };
"""


def policy(condition, *, effect="permit", name="tested", scope="resource"):
    return (
        f'@id("{name}") @reason("r") @owner("o")\n'
        f'{effect} (principal, action == Pointsman::Action::"search", {scope})\nwhen {{ {condition} }};\n'
    )


def faults_of(policies=GOOD, **files):
    found = inspect_files(world.folder_files(policies, **files), Faults())
    assert (found[0] is None) == bool(found[1])
    return found[1]


def refused(code, policies=GOOD, **files):
    faults = faults_of(policies, **files)
    matching = [fault for fault in faults if fault.code == code]
    assert matching, [f"{fault.code} {fault.where}: {fault.message}" for fault in faults]
    return matching[0]


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "policies"
    path.mkdir()
    write(path, world.folder_files(GOOD))
    return path


def write(folder, files):
    for name, body in files.items():
        (folder / name).write_bytes(body)


# --- the folder -------------------------------------------------------------------------------------------------------


def test_empty_folder(tmp_path):
    with pytest.raises(PolicyError) as caught:
        load_policies(tmp_path)
    assert caught.value.code == "policy_folder_empty"


def test_missing_folder(tmp_path):
    with pytest.raises(PolicyError) as caught:
        load_policies(tmp_path / "nowhere")
    assert caught.value.code == "policy_folder"


@pytest.mark.parametrize("name", ["00-never.cedar", "schema.cedarschema", "identity.yaml", "sources.yaml", "governance.yaml"])
def test_missing_file(folder, name):
    (folder / name).unlink()
    _, faults = inspect_folder(folder)
    assert ("policy_file_missing", name) in [(fault.code, fault.file) for fault in faults]


def test_unknown_file_names_the_nearest(folder):
    (folder / "source.yaml").write_text("sources: {}")
    (folder / "deep").mkdir()
    (folder / "deep" / "more.cedar").write_text(GOOD)
    _, faults = inspect_folder(folder)
    assert any(fault.file == "source.yaml" and "`sources.yaml`" in fault.hint for fault in faults)
    assert any(fault.file == "deep/more.cedar" for fault in faults)


def test_no_tenant_wall():
    fault = refused(
        "policy_tenant_wall", **{"00-never__cedar": policy("resource.sensitivity > 3", effect="forbid", name="other")}
    )
    assert "search" in fault.message


@pytest.mark.parametrize(
    "change",
    [
        ('Pointsman::Action::"audit", ', ""),
        ("resource.tenant == principal.tenant", "resource.tenant == principal.tenant || true"),
        ("resource.tenant == principal.tenant", 'resource.tenant == principal.tenant || principal.tenant == "t1"'),
        ("resource.tenant == principal.tenant", "resource.tenant != principal.tenant"),
        ("unless {", "when {"),
        ("(principal,", "(principal is Pointsman::User,"),
        ("(principal,", '(principal in Pointsman::Group::"corp:a",'),
        ("\n  resource)", "\n  resource is Pointsman::Document)"),
        ("};", "} unless { principal.vip };"),
        ("};", "} when { principal.clearance < 3 };"),
        ("forbid (", "permit ("),
    ],
)
def test_tenant_wall_that_is_not_whole(change):
    """Every way in which somebody could open a door in it; a wall that merely stands in another file does not count."""
    wall = world.WALL.replace(*change)
    assert wall != world.WALL
    refused("policy_tenant_wall", **{"00-never__cedar": wall})


def test_tenant_wall_in_another_file():
    refused("policy_tenant_wall", world.WALL, **{"00-never__cedar": policy("resource.active", effect="forbid")})


def test_tenant_wall_in_two_pieces_and_the_other_way_round():
    one = world.WALL.replace('Pointsman::Action::"search", Pointsman::Action::"query", ', "")
    two = (
        '@id("wall-two") @reason("r") @owner("o") forbid (principal, action in [Pointsman::Action::"search", '
        'Pointsman::Action::"query"], resource) when { principal.tenant != resource.tenant };'
    )
    assert not faults_of(**{"00-never__cedar": one + two})


def test_permit_among_the_nevers():
    fault = refused("policy_never", **{"00-never__cedar": world.WALL + policy("resource.active")})
    assert fault.policy_id == "tested"


# --- policies ---------------------------------------------------------------------------------------------------------


def test_unknown_attribute():
    fault = refused("policy_validation", GOOD + policy('resource.clasification == "x"'))
    assert fault.policy_id == "tested"
    assert (fault.file, fault.line) == ("documents.cedar", 7)


def test_optional_attribute_without_has():
    for condition in ('resource.region == "west"', "resource.rank > principal.clearance", "principal.region == resource.title"):
        fault = refused("policy_validation", policy(condition))
        assert "has" in fault.hint
        assert fault.policy_id == "tested"


def test_wrong_type():
    refused("policy_validation", policy('resource.sensitivity == "high"'))


@pytest.mark.parametrize(
    "condition",
    [
        'principal == Pointsman::User::"ada"',
        'resource == Pointsman::Document::"d"',
        'resource.groups == ["a"]',
        "resource.groups == principal.groups",
        "principal.groups == principal.teams",
        "resource.groups.isEmpty()",
        "if resource.active then true else false",
        "if principal.vip then resource.active else false",
        "(if principal.vip then 1 else 2) == resource.sensitivity",
        "resource.sensitivity + 1 == 2",
        "resource.sensitivity * 2 == 2",
        "resource.sensitivity - 1 == 2",
        "-resource.sensitivity == 2",
        "principal.clearance + 1 >= resource.sensitivity",
        "resource.title == resource.tenant",
        "resource.sensitivity < resource.sensitivity",
        "resource.groups.contains(resource.title)",
        "resource.groups.containsAll(resource.tags)",
        '[resource.title].contains("x")',
        "[principal.tenant].contains(resource.title)",
        "{a: 1}.a == resource.sensitivity",
        '{a: resource.title} == {a: "x"}',
        "{a: 1} has a && resource.active",
        "(resource.sensitivity == 1) == true",
        "resource.active == (principal has region)",
        'resource in Pointsman::Document::"d"',
        "resource in principal",
        "principal in resource",
        'principal in Pointsman::User::"ada"',
        'decimal("1.0").lessThan(decimal("2.0")) && resource.active',
        'ip("10.0.0.1").isLoopback() || resource.active',
    ],
)
def test_outside_the_fragment(condition):
    """An operator outside the fragment, with the policy's @id and a hint."""
    fault = refused("policy_fragment", GOOD + policy(condition))
    assert fault.policy_id == "tested"
    assert fault.hint
    assert fault.line == 5


@pytest.mark.parametrize(
    "folded",
    [
        "principal.vip && resource.groups.isEmpty()",
        'principal.groups.contains("corp:nobody") && resource.title == resource.tenant',
        "false && resource.sensitivity + 1 == 2",
        'true || resource.groups == ["a"]',
        "context.now < 0 && (if resource.active then true else false)",
    ],
)
def test_condition_that_folds_away_for_one_person(folded):
    """It would compile for Ada and be unanswerable for the next; so the folder is refused, whoever would ask."""
    refused("policy_fragment", policy(folded))


@pytest.mark.parametrize(
    "scope",
    ['resource == Pointsman::Document::"d"', 'resource in Pointsman::Document::"d"'],
)
def test_scope_outside_the_fragment(scope):
    assert refused("policy_fragment", policy("true", scope=scope)).policy_id == "tested"


def test_principal_in_scope():
    text = policy("true").replace("(principal,", '(principal == Pointsman::User::"ada",')
    refused("policy_fragment", text)


def test_template():
    refused("policy_fragment", policy("true").replace("(principal,", "(principal == ?principal,"))


def test_nesting_too_deep():
    condition = "resource.active"
    for at in range(60):
        condition = f"(({condition}) && resource.sensitivity > {at}) || resource.sensitivity == {at}"
    refused("policy_fragment", policy(condition))


def test_long_chains_are_fine():
    policies = world.load_files(world.folder_files(policy(" || ".join(f"resource.sensitivity == {at}" for at in range(150)))))
    assert policies.grants(ADA, world.NOW).search
    refused("policy_fragment", policy(" || ".join(f"resource.sensitivity == {at}" for at in range(400))))


def test_two_policies_with_one_id():
    fault = refused("policy_id_twice", GOOD + policy("resource.active", name="read-groups"))
    assert "documents.cedar:2" in fault.message
    refused("policy_id_twice", policy("resource.active", name="tenant-wall"))


@pytest.mark.parametrize("name", ["", "Not Kebab", "under_score", "double--dash", "-x", "é"])
def test_id_that_is_no_id(name):
    refused("policy_id", policy("resource.active", name=name))


def test_missing_annotations():
    refused("policy_id", policy("resource.active").replace('@id("tested") ', ""))
    assert refused("policy_annotation", policy("resource.active").replace(' @reason("r")', "")).policy_id == "tested"
    assert refused("policy_annotation", policy("resource.active").replace('@owner("o")', '@owner("")')).policy_id == "tested"


def test_syntax_error_has_a_line():
    fault = refused("policy_syntax", GOOD + "\n\n" + policy("resource.active &&& true"))
    assert fault.policy_id == "tested"
    assert fault.line in (7, 9)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (policy("resource.active", name="one").replace(";", "") + "\n// then\n" + policy("resource.active", name="two"), 6),
        (policy("resource.active", name="one").replace(";", "") + "permit (principal, action, resource);", 4),
        (GOOD + policy("resource.active", name="one").replace(";", ""), 7),
        (
            GOOD + policy('resource.title == "a; @ permit"', name="one").replace("};", "}") + policy("resource.active", name="t"),
            8,
        ),
    ],
)
def test_missing_semicolon_names_the_place(text, line):
    """Where the next policy begins, or the file ends; not where the word stands for the first time."""
    fault = refused("policy_syntax", text)
    assert (fault.line, fault.hint) == (line, "did the policy before it end with `;`?")
    assert fault.policy_id == "one"


def test_misspelt_source():
    fault = refused("policy_source_unknown", policy("true", effect="forbid", scope='resource in Pointsman::Source::"alhpa"'))
    assert "`alpha`" in fault.hint
    refused("policy_source_unknown", policy('!(resource in [Pointsman::Source::"alpha", Pointsman::Source::"x"])'))


@pytest.mark.parametrize("literal", ['"a\\0b"', '"\\u{0}"'])
def test_nul_in_a_literal(literal):
    for condition in (
        f"resource.title == {literal}",
        f"[{literal}].contains(resource.title)",
        f"resource.title like {literal}",
        f"principal.teams.contains({literal})",
    ):
        refused("policy_fragment", policy(condition))


def test_nul_in_a_file():
    refused("hostile_text", policy("resource.active") + "\0")
    refused("hostile_text", sources__yaml=world.SOURCES_YAML + "\0")


def test_lone_surrogate_in_a_literal():
    """Neither Cedar nor YAML reads either form."""
    refused("policy_syntax", policy('resource.title == "\\u{d800}"'))
    raw = world.folder_files(GOOD)
    raw["documents.cedar"] = policy('resource.title == "X"').encode().replace(b"X", b"\xed\xa0\x80")
    assert inspect_files(raw, Faults())[1][0].code == "policy_text"
    refused("policy_yaml", sources__yaml=world.SOURCES_YAML.replace("description: alpha", 'description: "\\ud800"'))


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "a\udfff"])
def test_hostile_text_in_a_label(text):
    """Only the bad document is dropped, and never shown; the others of the batch are judged as ever."""
    policies = world.load_files(world.folder_files(GOOD))
    bad = [LABELS | {"title": text}, LABELS | {"groups": frozenset({"corp:a", text})}]
    things = [
        ("alpha", "good", LABELS),
        *(("alpha", "bad", labels) for labels in bad),
        ("alpha", "good", LABELS | {"title": "y"}),
    ]
    verdicts = policies.recheck(ADA, world.NOW, things)
    assert [verdict.allowed for verdict in verdicts] == [True, False, False, True]
    assert verdicts[1].why == "malformed"
    assert verdicts[2].why in ("malformed", "envelope")


@pytest.mark.parametrize(
    "labels",
    [
        {"sensitivity": 2**63},
        {"sensitivity": "1"},
        {"sensitivity": True},
        {"active": 1},
        {"groups": "corp:a"},
        {"title": frozenset({"x"})},
        {"undeclared": 1},
        {"rank": "x"},
        {"title": 1.5},
        {"title": None},
    ],
)
def test_labels_that_do_not_fit_the_schema(labels):
    policies = world.load_files(world.folder_files(GOOD))
    verdicts = policies.recheck(ADA, world.NOW, [("alpha", "bad", LABELS | labels), ("alpha", "good", LABELS)])
    assert [verdict.allowed for verdict in verdicts] == [False, True]


def test_labels_of_another_source_or_tenant():
    policies = world.load_files(world.folder_files(GOOD))
    things = [
        ("nowhere", "d", LABELS),
        ("gamma", "d", LABELS),
        ("alpha", "d", LABELS | {"tenant": "t'2"}),
        ("alpha", "d", LABELS | {"@source": "beta"}),
        ("alpha", "d", LABELS | {"@source": "alpha"}),
    ]
    verdicts = policies.recheck(ADA, world.NOW, things)
    assert [verdict.why for verdict in verdicts] == ["source_unknown", "tenant_mismatch", "tenant_mismatch", "source_unknown", ""]
    assert verdicts[-1].allowed


# --- the envelope of sources.yaml ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('groups: ["corp:a", "corp:b"], least: public', 'groups: ["corp:b"], least: public'),
        ('groups: ["corp:a", "corp:b"], least: public', 'groups: ["corp:a", "corp:b"], least: confidential'),
    ],
)
def test_a_narrower_envelope_holds_before_the_next_index(old, new):
    """F6: labels as they were indexed, an envelope as it is reviewed today: filter and recheck both go by the envelope."""
    for text, visible in ((world.SOURCES_YAML, True), (world.SOURCES_YAML.replace(old, new, 1), False)):
        policies = world.load_files(world.folder_files(GOOD, sources__yaml=text))
        filters = {grant.source: grant.filter for grant in policies.grants(ADA, world.NOW).search}
        verdict = policies.recheck(ADA, world.NOW, [("alpha", "d", LABELS)])[0]
        assert matches(filters.get("alpha", NEVER), LABELS) == verdict.allowed == visible
        assert verdict.why == ("" if visible else "envelope")
        assert policies.recheck(ADA, world.NOW, [("beta", "d", LABELS)])[0].allowed


# --- groups that are missing must not widen -----------------------------------------------------------------------------

NOT_REQUIRED = world.IDENTITY.replace("{ path: groups, required: true }", "groups")


@pytest.mark.parametrize(
    ("effect", "clause"),
    [
        ("forbid", 'when { principal.groups.contains("corp:x") }'),
        ("forbid", 'when { resource.active && (resource.sensitivity > 1 || principal.groups.containsAny(["corp:x"])) }'),
        ("forbid", 'when { principal in Pointsman::Group::"corp:x" }'),
        ("forbid", 'unless { !(principal in [Pointsman::Group::"corp:x"]) }'),
        ("forbid", "when { resource.groups.containsAny(principal.groups) }"),
        ("forbid", "unless { resource.groups.containsAll(principal.groups) }"),
        ("permit", 'unless { principal.groups.contains("corp:x") }'),
        ("permit", 'when { !(principal.groups.contains("corp:x")) }'),
        ("permit", "when { resource.groups.containsAll(principal.groups) }"),
    ],
)
def test_missing_groups_would_widen(effect, clause):
    text = (
        f'@id("tested") @reason("r") @owner("o") {effect} (principal, action == Pointsman::Action::"search", resource) {clause};'
    )
    assert refused("policy_claim_not_required", text, identity__yaml=NOT_REQUIRED).policy_id == "tested"
    assert not faults_of(text)


@pytest.mark.parametrize(
    ("effect", "clause"),
    [
        ("permit", 'when { principal.groups.contains("corp:x") }'),
        ("permit", "when { resource.groups.containsAny(principal.groups) }"),
        ("forbid", 'unless { principal.groups.contains("corp:x") }'),
        ("forbid", "when { resource.sensitivity > 2 }"),
    ],
)
def test_missing_groups_would_narrow(effect, clause):
    text = (
        f'@id("tested") @reason("r") @owner("o") {effect} (principal, action == Pointsman::Action::"search", resource) {clause};'
    )
    assert not faults_of(text, identity__yaml=NOT_REQUIRED)


CLAIM_NOT_REQUIRED = re.sub(r"(floor|region|trained): {[^}]*}", r"\1: \1", world.IDENTITY)
CLAIM_NOT_MAPPED = re.sub(r" *(floor|region|trained): {[^}]*}\n", "", world.IDENTITY)


@pytest.mark.parametrize("identity", [CLAIM_NOT_REQUIRED, CLAIM_NOT_MAPPED])
@pytest.mark.parametrize(
    ("effect", "clause"),
    [
        ("forbid", "when { principal has trained && principal.trained }"),
        ("forbid", 'when { resource.active && (principal has region && principal.region == "x") }'),
        ("forbid", "unless { !(principal has trained && principal.trained) }"),
        ("forbid", "when { resource has region && principal has region && resource.region == principal.region }"),
        ("permit", "when { !(principal has trained) }"),
        ("permit", "unless { principal has trained && principal.trained }"),
        ("permit", 'when { !(principal has region && principal.region == "x") }'),
    ],
)
def test_missing_claim_would_widen(effect, clause, identity):
    """F11: a token that lacks the claim is not a token that says no."""
    text = (
        f'@id("tested") @reason("r") @owner("o") {effect} (principal, action == Pointsman::Action::"search", resource)\n{clause};'
    )
    fault = refused("policy_claim_not_required", text, identity__yaml=identity)
    assert (fault.policy_id, fault.file, fault.line) == ("tested", "documents.cedar", 1)
    assert "required: true" in fault.hint
    assert "identity.yaml" in fault.hint
    assert not faults_of(text)


@pytest.mark.parametrize(
    ("effect", "clause"),
    [
        ("permit", "when { principal has trained && principal.trained }"),
        ("permit", "unless { !(principal has trained) }"),
        ("forbid", "unless { principal has trained && principal.trained }"),
        ("forbid", "when { resource has region } unless { principal has region && resource.region == principal.region }"),
        ("forbid", "when { !(principal has trained && principal.trained) }"),
        ("forbid", "when { principal.vip || principal.clearance < 1 || resource has region }"),
    ],
)
def test_missing_claim_would_narrow(effect, clause):
    text = (
        f'@id("tested") @reason("r") @owner("o") {effect} (principal, action == Pointsman::Action::"search", resource) {clause};'
    )
    assert not faults_of(text, identity__yaml=CLAIM_NOT_REQUIRED)


def test_every_issuer_must_require_the_claim():
    other = world.IDENTITY.split("issuers:\n")[1].replace("  corp:", "  other:").replace("issuer.example", "other.example")
    text = policy("principal has trained && principal.trained", effect="forbid")
    assert not faults_of(text, identity__yaml=world.IDENTITY + other)
    loose = other.replace("trained: { path: trained, required: true }", "trained: trained")
    assert "`other`" in refused("policy_claim_not_required", text, identity__yaml=world.IDENTITY + loose).message


@pytest.mark.parametrize("group", ["corp:x ", " corp:x", "corp: x", "x", "corp:", "other:x", ":x", "", "Corp:x"])
@pytest.mark.parametrize(
    "scope_or_clause",
    [
        "when {{ principal.groups.contains({group}) }}",
        'unless {{ resource.groups.containsAny(["corp:a", {group}]) }}',
        "when {{ principal in Pointsman::Group::{group} }}",
    ],
)
def test_a_forbid_that_names_a_group_that_nobody_can_have(group, scope_or_clause):
    clause = scope_or_clause.format(group=json.dumps(group))
    head = '@id("tested") @reason("r") @owner("o")\n{} (principal, action == Pointsman::Action::"search", resource) {};'
    fault = refused("policy_group_unknown", head.format("forbid", clause))
    assert (fault.policy_id, fault.file, fault.line) == ("tested", "documents.cedar", 1)
    assert "corp" in fault.hint
    assert "policy_group_unknown" not in [fault.code for fault in faults_of(head.format("permit", clause))]


@pytest.mark.parametrize("effect", ["permit", "forbid"])
@pytest.mark.parametrize(
    "condition",
    [
        'principal.groups.contains("corp:cafe\u0301")',
        'principal in Pointsman::Group::"corp:cafe\u0301"',
        'resource has region && resource.region == "Cafe\u0301"',
        '["x", "Cafe\u0301"].contains(resource.title)',
        'resource.title like "*Cafe\u0301*"',
    ],
)
def test_literal_that_is_not_nfc(condition, effect):
    """Claims and labels are in NFC: the literal would equal none of them, and the forbid never fire."""
    text = policy(condition, effect=effect)
    fault = refused("policy_fragment", text)
    assert "NFC" in fault.message
    assert unicodedata.is_normalized("NFC", fault.hint)
    assert not faults_of(unicodedata.normalize("NFC", text))


def test_a_wildcard_parts_what_would_combine():
    assert not faults_of(policy('resource.title like "e*\u0301"'))


def test_group_of_an_envelope_with_blanks():
    refused("policy_format", sources__yaml=world.SOURCES_YAML.replace('"corp:a", "corp:b"', '"corp:a", "corp:b "', 1))


# --- YAML -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("datasets: &a {}\nmore: *a\n", "aliases"),
        ("datasets: {}\ndatasets: {}\n", "twice"),
        ("datasets: {\n", ""),
        ("[]\n", "mapping"),
        ("", "mapping"),
        ("1: {}\n", "not a string"),
        ("? [a]\n: 1\n", "not a string"),
        ("datasets: !!python/object:os.system {}\n", ""),
        ("dataset: {}\n", "`dataset`"),
        ("datasets: {claims: {}}\n", "dataset"),
        ("datasets: {}\n---\ndatasets: {}\n", ""),
    ],
)
def test_yaml_is_strict(text, said):
    faults = faults_of(governance__yaml=text)
    assert faults
    assert faults[0].file == "governance.yaml"
    assert any(said in fault.message for fault in faults), faults


def test_unknown_key_names_file_line_and_the_nearest():
    fault = refused("policy_format", identity__yaml=world.IDENTITY.replace("audiences:", "audience:"))
    assert (fault.file, fault.line) == ("identity.yaml", 6)
    assert "`audiences`" in fault.hint


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("identity", "development: true", "development: false"),
        ("identity", "development: true", "jwks: http://keys.example/jwks"),
        ("identity", "development: true", "development: true\n    jwks: keys.json"),
        ("identity", "[EdDSA]", "[HS256]"),
        ("identity", "[EdDSA]", "[none]"),
        ("identity", "[EdDSA]", "[RS256]"),
        ("identity", "[EdDSA]", "EdDSA"),
        ("identity", 'tenants: [t1, "t\'2"]', "tenants: []"),
        ("identity", "clearance: clearance", "clearence: clearance"),
        ("identity", "        clearance: clearance\n", ""),
        ("identity", "tenant: tenant", "tenant: a..b"),
        ("identity", "  corp:", "  Corp!:"),
        ("identity", "required: true", "required: yes please"),
        ("sources", "least: public", "least: secret"),
        ("sources", 'groups: ["corp:a", "corp:b"]', "groups: [a]"),
        ("sources", 'groups: ["corp:a", "corp:b"]', 'groups: ["other:a"]'),
        ("sources", 'groups: ["corp:a", "corp:b"]', 'groups: ["corp:a", "corp:a"]'),
        ("sources", "tenant: t1", "tenant: t9"),
        ("sources", "tenant: t1, ", ""),
        ("sources", "description: alpha", "descripton: alpha"),
        ("sources", "  alpha:", "  Alpha Beta:"),
    ],
)
def test_declarations_that_do_not_hold(file, old, new):
    text = {"identity": world.IDENTITY, "sources": world.SOURCES_YAML}[file]
    assert old in text
    faults = faults_of(**{f"{file}__yaml": text.replace(old, new, 1)})
    assert any(fault.file == f"{file}.yaml" and fault.line for fault in faults), faults


# --- at run time ------------------------------------------------------------------------------------------------------


def test_principal_missing_from_the_entities(monkeypatch):
    """Cedar says NoDecision without an error and leaves residuals open; that is a refusal."""
    import cedarpy

    policies = world.load_files(world.folder_files(policy("principal.vip || resource.active")))
    empty = cedarpy.Entities.from_json_str("[]", policies.engine.schema)
    monkeypatch.setattr(PolicySet, "_principal_entities", lambda self, principal: empty)
    with pytest.raises(Refused):
        policies.grants(ADA, world.NOW)
    assert not any(policies.recheck(ADA, world.NOW, [("alpha", "d", LABELS)]))


@pytest.mark.parametrize(
    "attributes",
    [
        (("clearance", "2"), ("teams", frozenset()), ("vip", False)),
        (("clearance", 2), ("teams", frozenset())),
        (("clearance", 2**63), ("teams", frozenset()), ("vip", False)),
        (("clearance", 2), ("teams", frozenset({"\ud800"})), ("vip", False)),
        (("clearance", 2), ("teams", frozenset()), ("undeclared", 1), ("vip", False)),
    ],
)
def test_principal_that_does_not_fit_the_schema(attributes):
    policies = world.load_files(world.folder_files(GOOD))
    wrong = Principal("corp", "eve", "User", "t1", frozenset({"corp:a"}), attributes, 2**40)
    with pytest.raises(Refused) as caught:
        policies.grants(wrong, world.NOW)
    assert caught.value.code == "principal_malformed"
    with pytest.raises(Refused):
        policies.recheck(wrong, world.NOW, [("alpha", "d", LABELS)])


def test_residual_that_is_not_understood(monkeypatch):
    """Should Cedar change its residuals, nothing is granted; no clause is ever dropped."""
    import cedarpy

    policies = world.load_files(world.folder_files(GOOD))
    real = cedarpy.is_authorized_partial

    def changed(*args):
        result = real(*args)
        text = json.dumps(result.residuals).replace('"containsAny"', '"sharesWith"')
        residuals = json.loads(text)

        class Changed:
            diagnostics = result.diagnostics

        Changed.residuals = residuals
        return Changed

    monkeypatch.setattr(cedarpy, "is_authorized_partial", changed)
    with pytest.raises(Refused) as caught:
        policies.grants(ADA, world.NOW)
    assert caught.value.code == "residual_unknown"


def test_no_residuals_is_a_refusal(monkeypatch):
    """What cedarpy gives for input that it cannot read: NoDecision, no residuals."""
    import cedarpy

    policies = world.load_files(world.folder_files(GOOD))

    class Nothing:
        residuals: dict[str, object] = {}  # noqa: RUF012

        class diagnostics:
            errors: tuple[str, ...] = ()
            unknown_entities: tuple[str, ...] = ()

    monkeypatch.setattr(cedarpy, "is_authorized_partial", lambda *_: Nothing)
    with pytest.raises(Refused) as caught:
        policies.grants(ADA, world.NOW)
    assert caught.value.code == "policy_no_decision"


def test_forbid_that_errors_is_a_deny():
    """Cedar skips a forbid that errors and says Allow. Validation keeps such a policy out; should one get in, it denies."""
    policies = world.load_files(world.folder_files(GOOD))
    text = policy('resource.region == "west"', effect="forbid", name="errs")
    errs = Statement("errs", "forbid", "r", "o", "documents.cedar", 9, text, {})
    engine = build_engine([*policies.statements, errs], policies.engine.schema)
    broken = dataclasses.replace(policies, engine=engine)
    things = [("alpha", "lacks it", LABELS), ("alpha", "has it", LABELS | {"region": "east"})]
    verdicts = broken.recheck(ADA, world.NOW, things)
    assert [(verdict.allowed, verdict.why) for verdict in verdicts] == [(False, "error"), (True, "")]


def test_filter_too_large_is_refused_not_widened():
    """containsAll of a principal's thousands of groups does not fit a filter."""
    policies = world.load_files(world.folder_files(policy("resource.groups.containsAll(principal.groups)")))
    many = Principal("corp", "eve", "User", "t1", frozenset(f"corp:{at}" for at in range(5_000)), ADA.attributes, 2**40)
    with pytest.raises(Refused) as caught:
        policies.grants(many, world.NOW)
    assert caught.value.code == "policy_too_large"


def test_too_many_sources_times_policies():
    """Each part fits a filter, all together do not: refused with the grants, and never an error further down the line."""
    names = [f"s{at}" for at in range(400)]
    declared = "".join(
        f"  {name}: {{ tenant: t1, connector: folder, groups: [corp:a], least: public, description: d }}\n" for name in names
    )
    text = GOOD + "".join(
        policy(f"resource.title != {json.dumps(name)} && resource.sensitivity <= 2", name=f"p-{name}", scope=scope)
        for name in names
        for scope in [f'resource in Pointsman::Source::"{name}"']
    )
    policies = world.load_files(world.folder_files(text, sources__yaml=world.SOURCES_YAML + declared))
    with pytest.raises(Refused) as caught:
        policies.grants(ADA, world.NOW)
    assert caught.value.code == "policy_too_large"
    assert "s1" not in caught.value.message + caught.value.hint


def test_4000_groups_are_fine():
    groups = ", ".join(f'"corp:{at}"' for at in range(4_000))
    wide = world.SOURCES_YAML.replace('groups: ["corp:a", "corp:b"]', f"groups: [{groups}]", 1)
    policies = world.load_files(world.folder_files(GOOD, sources__yaml=wide))
    many = Principal("corp", "eve", "User", "t1", frozenset(f"corp:{at}" for at in range(4_000)), ADA.attributes, 2**40)
    assert [grant.source for grant in policies.grants(many, world.NOW).search] == ["alpha"]
    assert policies.recheck(many, world.NOW, [("alpha", "d", LABELS | {"groups": frozenset({"corp:7"})})])[0].allowed


# --- while running ----------------------------------------------------------------------------------------------------


class Clock:
    now_s = 1_000.0

    def __call__(self):
        return self.now_s


def test_folder_broken_while_running(folder):
    """Ready turns false at once, the last good version serves for the grace, then every question is refused."""
    clock, told = Clock(), []
    live = LivePolicies(folder, grace_s=60, clock=clock, on_fault=told.append)
    good = live.current()
    (folder / "documents.cedar").write_text("permit (principal, action, resource);")
    clock.now_s += 1
    assert not live.ready
    assert live.current() is good
    assert told[0].file == "documents.cedar"
    clock.now_s += 59
    assert live.current() is good
    clock.now_s += 1
    for _ in range(3):
        with pytest.raises(Refused) as caught:
            live.current()
        assert caught.value.code == "policy_invalid"
        clock.now_s += 100
    write(folder, world.folder_files(GOOD))
    clock.now_s += 1
    assert live.ready
    assert live.current().version == good.version
    assert len(told) == 1


def test_folder_removed_while_running(folder):
    clock = Clock()
    live = LivePolicies(folder, grace_s=60, clock=clock)
    folder.rename(folder.with_name("gone"))
    clock.now_s += 1
    assert not live.ready
    clock.now_s += 61
    with pytest.raises(Refused):
        live.current()


def test_wall_removed_while_running(folder):
    clock = Clock()
    live = LivePolicies(folder, grace_s=60, clock=clock)
    good = live.current()
    (folder / "00-never.cedar").write_text(policy("resource.active", effect="forbid"))
    clock.now_s += 1
    assert live.current() is good
    assert not live.ready


def test_first_load_must_succeed(folder):
    (folder / "00-never.cedar").unlink()
    with pytest.raises(PolicyError):
        LivePolicies(folder)


def test_version_that_cannot_be_kept_does_not_serve(folder):
    clock, full = Clock(), []

    def keep(policies):
        if full:
            raise OSError(28, "No space left on device")

    live = LivePolicies(folder, grace_s=60, clock=clock, on_load=keep)
    good = live.current()
    full.append(True)
    write(folder, world.folder_files(GOOD + policy("resource.active")))
    clock.now_s += 1
    assert live.current() is good
    assert not live.ready
    full.clear()
    clock.now_s += 1
    assert live.current() is not good
    assert live.ready


def test_many_askers_while_the_folder_changes(folder):
    """Every answer comes from one whole version, old or new, and no asker fails."""
    live = LivePolicies(folder, clock=(clock := Clock()))
    versions = {live.current().version}
    wrong: list[BaseException] = []
    stop = threading.Event()
    seen = set()

    def asks():
        while not stop.is_set():
            try:
                policies = live.current()
                seen.add(policies.version)
                assert len(policies.grants(ADA, world.NOW).search) == 2
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=asks) for _ in range(4)]
    for thread in threads:
        thread.start()
    for at in range(5):
        body = world.folder_files(GOOD + policy("resource.active", name=f"p-{at}"))["documents.cedar"]
        making = folder.parent / "making"
        making.write_bytes(body)
        making.rename(folder / "documents.cedar")
        clock.now_s += 1
        versions.add(load_policies(folder).version)
        live.current()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert seen <= versions
    assert live.current().version == load_policies(Path(folder)).version


# --- entries that are no readable files ---------------------------------------------------------------------------------

BOARD = policy("true", effect="forbid", name="board-only")


def _spoil(how, folder):
    """Put something under the name of a policy that is no readable file."""
    path = folder / "50-board.cedar"
    match how:
        case "broken link":
            path.symlink_to(folder.parent / "nowhere.cedar")
        case "link to itself":
            path.symlink_to(path)
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "hidden":
            (folder / ".50-board.cedar").write_text(BOARD)
        case "too large":
            path.write_bytes(b"//" + b"x" * 4_000_000)


SPOILT = ("broken link", "link to itself", "pipe", "folder", "device", "hidden", "too large")


@pytest.mark.parametrize("how", SPOILT)
def test_a_policy_that_cannot_be_read_is_not_skipped(folder, how):
    """A forbid that vanishes widens: the folder does not load, and a running process turns red and then refuses."""
    clock = Clock()
    live = LivePolicies(folder, grace_s=60, clock=clock)
    _spoil(how, folder)
    policies, faults = inspect_folder(folder)
    assert policies is None
    assert [(fault.code, fault.file.lstrip(".")) for fault in faults] == [
        ("policy_file_large" if how == "too large" else "policy_file_unreadable", "50-board.cedar")
    ]
    clock.now_s += 1
    assert not live.ready
    clock.now_s += 60
    with pytest.raises(Refused) as caught:
        live.current()
    assert caught.value.code == "policy_invalid"


@pytest.mark.parametrize("name", ["identity.yaml", "sources.yaml", "schema.cedarschema", "people.yaml", "00-never.cedar"])
def test_a_declaration_that_cannot_be_read_is_not_skipped(folder, name):
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("nowhere")
    _, faults = inspect_folder(folder)
    assert (faults[0].code, faults[0].file) == ("policy_file_unreadable", name)


def test_a_link_to_a_policy_is_read(folder):
    kept = folder.parent / "kept.cedar"
    kept.write_text(BOARD)
    (folder / "50-board.cedar").symlink_to(kept)
    assert not load_policies(folder).recheck(ADA, world.NOW, [("alpha", "d", LABELS)])[0]


@pytest.mark.parametrize("how", ["removed", "unmounted", "forbidden"])
def test_a_link_that_breaks_while_running(folder, how):
    """F2: the target of a link goes while the process runs (a share, a half-done checkout, a rotated ConfigMap)."""
    mount = folder.parent / "mount"
    mount.mkdir()
    (mount / "board.cedar").write_text(BOARD)
    (folder / "50-board.cedar").symlink_to(mount / "board.cedar")
    clock = Clock()
    live = LivePolicies(folder, grace_s=60, clock=clock)
    good = live.current()
    if how == "removed":
        (mount / "board.cedar").unlink()
    elif how == "unmounted":
        mount.rename(folder.parent / "gone")
    else:
        (mount / "board.cedar").unlink()
        (mount / "board.cedar").symlink_to("/dev/zero")
    clock.now_s += 1
    assert live.current() is good
    assert not live.ready
    clock.now_s += 60
    with pytest.raises(Refused):
        live.current()


def test_what_editors_leave_behind_is_ignored(folder):
    good = load_policies(folder).version
    for name in ("documents.cedar~", "documents.cedar.bak", ".documents.cedar.swp", "#documents.cedar#"):
        (folder / name).write_text("not a policy")
    (folder / ".#documents.cedar").symlink_to("somebody@host.1234")
    assert load_policies(folder).version == good


def test_a_mounted_configmap_loads(tmp_path):
    """Kubernetes mounts links to files behind dotted folders, and swaps one link."""
    data = tmp_path / "policies" / "..2026_06_15"
    data.mkdir(parents=True)
    write(data, world.folder_files(GOOD))
    (tmp_path / "policies" / "..data").symlink_to("..2026_06_15")
    for name in world.folder_files(GOOD):
        (tmp_path / "policies" / name).symlink_to(Path("..data") / name)
    assert load_policies(tmp_path / "policies").statements


def test_an_unknown_file_says_what_is_known(folder):
    (folder / "zzzzzzzz").write_text("")
    _, faults = inspect_folder(folder)
    assert faults[0].code == "policy_file_unknown"
    for name in ("*.cedar", "README.md", "MATRIX.md", "cases/", "people.yaml", "sources.yaml"):
        assert name in faults[0].hint
