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


def warnings_of(tmp_path, policies="", **files):
    findings = check_policies(write(tmp_path, world.folder_files(policies, **files)))
    load_policies(tmp_path)
    assert {finding.level for finding in findings} <= {"warning"}
    return findings


def test_a_group_without_its_issuer_opens_nothing(tmp_path):
    text = policy('principal.groups.contains("contractors")') + policy(
        'resource.groups.containsAny(["corp:a", "other:b"])', "second"
    )
    text += policy('["corp:a"].containsAll(principal.groups) && principal in Pointsman::Group::"staff"', "third")
    assert [(finding.policy_id, finding.message.split("`")[3]) for finding in warnings_of(tmp_path, text)] == [
        ("tested", "contractors"),
        ("second", "other:b"),
        ("third", "staff"),
    ]


def test_a_group_without_its_issuer_in_a_forbid_is_an_error(tmp_path):
    text = policy('principal.groups.contains("contractors")', effect="forbid")
    findings = check_policies(write(tmp_path, world.folder_files(text)))
    assert [(finding.level, finding.policy_id, finding.line) for finding in findings] == [("error", "tested", 2)]


PEOPLE = """
people:
  ada: { issuer: corp, sub: ada, tenant: t1, groups: [engineering], teams: [], clearance: 1, vip: false, floor: 1, region: x, trained: true }
  kim: { issuer: corp, sub: kim }
"""


@pytest.mark.parametrize("effect", ["permit", "forbid"])
def test_a_group_that_stands_nowhere_else(tmp_path, effect):
    text = policy('principal.groups.containsAny(["corp:a", "corp:enginering"])', effect=effect)
    (finding,) = warnings_of(tmp_path, text, people__yaml=PEOPLE)
    assert "`corp:enginering`" in finding.message
    assert finding.hint == "did you mean `corp:engineering`"
    assert warnings_of(tmp_path, text.replace("enginering", "engineering"), people__yaml=PEOPLE) == []


def test_a_provider_that_is_not_known(tmp_path):
    text = (
        '@id("sends") @reason("r") @owner("o") permit (principal, action == Pointsman::Action::"disclose", '
        'resource == Pointsman::Provider::"coher");'
    )
    (finding,) = warnings_of(tmp_path, text)
    assert (finding.policy_id, finding.hint) == ("sends", "did you mean `cohere`")
    assert warnings_of(tmp_path, text.replace('"coher"', '"openai_compatible"')) == []


@pytest.mark.parametrize("body", ["", "when { true }", "when { context.now > 1 }"])
def test_a_permit_for_everybody_and_everything(tmp_path, body):
    head = (
        '@id("open") @reason("r") @owner("o") {} ({}, action == Pointsman::Action::"{}", {})'
        + body.replace("{", "{{").replace("}", "}}")
        + ";"
    )
    (finding,) = warnings_of(tmp_path, head.format("permit", "principal", "search", "resource"))
    assert finding.policy_id == "open"
    assert "everybody" in finding.message
    for fine in (
        head.format("permit", "principal is Pointsman::User", "search", "resource"),
        head.format("permit", "principal", "search", 'resource in Pointsman::Source::"alpha"'),
        head.format("permit", "principal", "explain_own", "resource"),
        head.format("forbid", "principal", "search", "resource"),
    ):
        assert warnings_of(tmp_path, fine) == []


def test_sources_times_policies_are_counted(tmp_path):
    """F9: known from the folder alone, so the reviewer hears of it and not the first asker."""

    def world_of(count):
        declared = "".join(
            f"  s{at}: {{ tenant: t1, connector: folder, groups: [corp:a], least: public, description: d }}\n"
            for at in range(count)
        )
        text = "".join(
            policy(f'resource.title != "x{at}" && resource in Pointsman::Source::"s{at}"', f"p-{at}") for at in range(count)
        )
        return {"policies": text, "sources__yaml": world.SOURCES_YAML + declared}

    (finding,) = warnings_of(tmp_path, **world_of(500))
    assert (finding.file, "policy_too_large" in finding.hint) == ("sources.yaml", True)
    assert warnings_of(tmp_path, **world_of(100)) == []


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
