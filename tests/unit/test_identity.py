"""Claims to principals: what identity.yaml says, in NFC, typed by the schema; anything else is a refusal."""

import dataclasses
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.domain import Claim
from router.errors import Refused
from router.identity import MAX_CHARS, identify, indexing_service, map_claims
from tests import policy_world as world

IDENTITY = re.sub(r"(floor|region|trained): {[^}]*}", r"\1: \1", world.IDENTITY)
"""Every claim that the schema leaves open may be left out of a token here."""
POLICIES = world.load_files(
    world.folder_files(
        '@id("p") @reason("r") @owner("o")\npermit (principal, action == Pointsman::Action::"search", resource)'
        " when { principal.vip || resource.groups.containsAny(principal.groups) };",
        identity__yaml=IDENTITY,
    )
)
CLAIMS = {"sub": "ada", "exp": 2**31, "tenant": "t1", "groups": ["a"], "teams": ["x"], "clearance": 1, "vip": False}


def to_principal(issuers=None, **changes):
    claims = {name: value for name, value in (CLAIMS | changes).items() if value is not ...}
    return map_claims("corp", claims, issuers or POLICIES.issuers, POLICIES.types)


def with_issuer(**changes):
    return {"corp": dataclasses.replace(POLICIES.issuers["corp"], **changes)}


def test_attributes_are_typed_and_sorted():
    principal = to_principal(region="w", trained=True)
    assert principal.attributes == (
        ("clearance", 1),
        ("region", "w"),
        ("teams", frozenset({"x"})),
        ("trained", True),
        ("vip", False),
    )
    assert principal.name == "corp#ada"
    assert principal.development
    assert principal.expires_at_s == 2**31


def test_groups_carry_the_alias_even_if_they_look_as_if_they_had_one():
    assert to_principal(groups=["a", "dev:a", "a"]).groups == {"corp:a", "corp:dev:a"}


def test_text_is_compared_in_nfc():
    principal = to_principal(groups=["e\u0301"], region="e\u0301", teams=["e\u0301", "é"])
    assert principal.groups == {"corp:é"}
    assert dict(principal.attributes)["region"] == "é"
    assert dict(principal.attributes)["teams"] == frozenset({"é"})


def test_case_and_space_are_kept():
    assert to_principal(groups=["A", "a "]).groups == {"corp:A", "corp:a "}


def test_tenant_must_be_allowed():
    assert to_principal(tenant="t'2").tenant == "t'2"
    for tenant in ("T1", "t1 ", "t9"):
        with pytest.raises(Refused) as caught:
            to_principal(tenant=tenant)
        assert caught.value.code == "tenant_not_allowed"


def test_unknown_issuer():
    with pytest.raises(Refused) as caught:
        map_claims("other", CLAIMS, POLICIES.issuers, POLICIES.types)
    assert caught.value.code == "token_issuer"


def test_nested_claims_and_names_with_dots():
    issuers = with_issuer(
        tenant=Claim(("org", "tenant")),
        groups=Claim(("https://x.example/groups",), required=True),
        attributes=(("clearance", Claim(("a", "b", "c"))), ("teams", Claim(("teams",))), ("vip", Claim(("vip",)))),
    )
    principal = to_principal(issuers, org={"tenant": "t1"}, **{"https://x.example/groups": ["g"]}, a={"b": {"c": 3}})
    assert principal.groups == {"corp:g"}
    assert dict(principal.attributes)["clearance"] == 3
    for broken in ({"a": {"b": 3}}, {"a": []}, {"a": None}, {"a": {"b": {"c": None}}}):
        with pytest.raises(Refused) as caught:
            to_principal(issuers, org={"tenant": "t1"}, **{"https://x.example/groups": ["g"]}, **broken)
        assert caught.value.code == "claims_missing"


def test_required_optional_attribute():
    attributes = tuple(
        (name, dataclasses.replace(claim, required=name == "region")) for name, claim in POLICIES.issuers["corp"].attributes
    )
    assert to_principal(with_issuer(attributes=attributes), region="w")
    with pytest.raises(Refused) as caught:
        to_principal(with_issuer(attributes=attributes))
    assert caught.value.code == "claims_missing"


def test_attribute_that_is_not_mapped_is_not_taken():
    attributes = tuple(pair for pair in POLICIES.issuers["corp"].attributes if pair[0] != "region")
    assert "region" not in dict(to_principal(with_issuer(attributes=attributes), region="w").attributes)


def test_service_tokens():
    issuers = with_issuer(service=Claim(("client_id",)), service_absent=Claim(("preferred_username",)))
    assert to_principal(issuers).kind == "User"
    assert to_principal(issuers, client_id="batch").kind == "Service"
    assert to_principal(issuers, client_id="web", preferred_username="ada").kind == "User"
    assert to_principal(client_id="batch").kind == "User"


def test_the_indexing_service_has_the_least():
    """It fits the schema, so that policies can judge it, and nothing of it opens anything."""
    service = indexing_service("t1", POLICIES.types)
    assert (service.name, service.kind, service.tenant, service.groups) == ("service#indexer", "Service", "t1", frozenset())
    assert dict(service.attributes) == {"clearance": 0, "teams": frozenset(), "vip": False}
    assert not POLICIES.may_disclose(service, provider="claude", purpose="context", sensitivity=0)
    permit = (
        '@id("c") @reason("r") @owner("o")\npermit (principal is Pointsman::Service, action == Pointsman::Action::"disclose", resource)'
        ' when { context.purpose == "context" && context.class == 0 };'
    )
    permitting = world.load_files(world.folder_files(permit))
    assert permitting.may_disclose(service, provider="claude", purpose="context", sensitivity=0)
    assert not permitting.may_disclose(to_principal(), provider="claude", purpose="context", sensitivity=0)
    assert POLICIES.grants(service, datetime(2026, 6, 1, tzinfo=UTC)).search == ()


@pytest.mark.parametrize("value", ["x" * (MAX_CHARS + 1), "", 3, None, ["x"], {"x": 1}, "a\0", "\ud800"])
def test_subject_must_be_a_text(value):
    with pytest.raises(Refused):
        to_principal(sub=value)


def test_identify_asks_the_verifier():
    class Verifier:
        def verify(self, token, *, now_s):
            assert (token, now_s) == ("t", 7)
            return "corp", CLAIMS

    assert identify("t", Verifier(), POLICIES.issuers, POLICIES.types, now_s=7).subject == "ada"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | world.strings | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["tenant", "groups", "x"]), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=400, deadline=None)
@given(changes=st.dictionaries(st.sampled_from([*CLAIMS, "region", "floor", "trained", "hasgroups"]), json_values, max_size=4))
def test_any_claims_map_or_are_refused(changes):
    """Whatever an issuer signs: a principal that policies can judge, or a refusal; never another error."""
    try:
        principal = to_principal(**changes)
    except Refused:
        return
    grants = POLICIES.grants(principal, world.NOW)
    assert all(POLICIES.sources[grant.source].tenant == principal.tenant for grant in grants.search)
    assert all(group.startswith("corp:") for group in principal.groups)


@pytest.mark.parametrize("exp", [1_781_481_600_000, 253_402_300_800, 2**63, 1e300, float("inf"), float("-inf"), float("nan")])
def test_expiry_that_no_calendar_can_show(exp):
    """F17: milliseconds are thousands of years ahead; whatever prints the expiry would break."""
    with pytest.raises(Refused) as caught:
        to_principal(exp=exp)
    assert caught.value.code == "claims_malformed"
    assert datetime.fromtimestamp(to_principal(exp=253_402_300_799).expires_at_s, UTC).year == 9999
