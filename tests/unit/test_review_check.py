"""`policies check`: errors are what loading refuses, with place and policy; warnings are what merely looks wrong."""

from pathlib import Path

import pytest

from router.errors import PolicyError
from router.policy import load_policies
from router.review.check import check_policies
from tests import policy_world as world

ROOT = Path(__file__).parents[2] / "policies"


def write(folder, files):
    for name, body in files.items():
        (folder / name).write_bytes(body)
    return folder


def policy(condition, name="tested", effect="permit"):
    return (
        f'\n@id("{name}") @reason("r") @owner("o")\n{effect} (principal, action == Pointsman::Action::"search", resource)\n'
        f"when {{ {condition} }};\n"
    )


def test_a_good_folder_has_no_finding(tmp_path):
    assert check_policies(ROOT) == []
    assert check_policies(write(tmp_path, world.folder_files(policy("resource.active")))) == []


def test_errors_are_what_loading_refuses(tmp_path):
    text = policy("resource.active", "one") + policy("resource.groups.isEmpty()", "two") + policy("resource.active", "one")
    write(tmp_path, world.folder_files(text))
    findings = check_policies(tmp_path)
    assert [(finding.level, finding.file, finding.line, finding.policy_id) for finding in findings] == [
        ("error", "documents.cedar", 6, "two"),
        ("error", "documents.cedar", 10, "one"),
    ]
    with pytest.raises(PolicyError) as caught:
        load_policies(tmp_path)
    assert "documents.cedar:6" in caught.value.message
    assert "1 more" in caught.value.message
    assert findings[0].as_json()["hint"]


def test_a_group_without_its_issuer_never_matches(tmp_path):
    text = policy('principal.groups.contains("contractors")', effect="forbid") + policy(
        'resource.groups.containsAny(["corp:a", "other:b"])', "second"
    )
    text += policy('["corp:a"].containsAll(principal.groups) && principal in Pointsman::Group::"staff"', "third")
    write(tmp_path, world.folder_files(text))
    findings = check_policies(tmp_path)
    assert [(finding.level, finding.policy_id, finding.message.split("`")[3]) for finding in findings] == [
        ("warning", "tested", "contractors"),
        ("warning", "second", "other:b"),
        ("warning", "third", "staff"),
    ]
    load_policies(tmp_path)


def test_missing_key_file(tmp_path):
    text = world.IDENTITY.replace("development: true", "jwks: corp.jwks.json")
    write(tmp_path, world.folder_files(identity__yaml=text))
    assert ["corp.jwks.json" in finding.hint for finding in check_policies(tmp_path)] == [True]
    (tmp_path / "corp.jwks.json").write_text("{}")
    assert check_policies(tmp_path) == []


def test_source_that_nobody_can_reach(tmp_path):
    identity = world.IDENTITY.replace('tenants: [t1, "t\'2"]', "tenants: [t1]")
    other = world.IDENTITY.split("issuers:\n")[1].replace("  corp:", "  other:").replace("issuer.example", "other.example")
    write(tmp_path, world.folder_files(identity__yaml=identity + other))
    assert ["`gamma`" in finding.message for finding in check_policies(tmp_path)] == [True]
