"""Grants: memo, day, tenants, what a grant names; and the questions that are asked in full only."""

import dataclasses
from datetime import UTC, datetime, timedelta, timezone

import pytest

from router.domain import Principal
from router.errors import PolicyError
from router.filters import canonical, matches
from router.memo import Memo
from router.policy import to_day_ms
from tests import policy_world as world

POLICIES = """
@id("read-groups") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"search", resource)
when { resource.groups.containsAny(principal.groups) && resource.sensitivity <= principal.clearance };

@id("not-before") @reason("r") @owner("o")
forbid (principal, action == Pointsman::Action::"search", resource)
when { resource has rank && resource.rank > context.now };

@id("beta-for-b") @reason("r") @owner("o")
forbid (principal, action == Pointsman::Action::"search", resource in Pointsman::Source::"beta")
unless { principal.groups.contains("corp:b") };

@id("audits") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"audit", resource) when { principal.groups.contains("corp:b") };

@id("own") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"explain_own", resource);

@id("rerank") @reason("r") @owner("o")
permit (principal, action == Pointsman::Action::"disclose", resource == Pointsman::Provider::"cohere")
when { context.purpose == "rerank" && context.class <= 1 };
"""

ADA = Principal(
    "corp", "ada", "User", "t1", frozenset({"corp:a"}), (("clearance", 2), ("teams", frozenset()), ("vip", False)), 2**40
)
LABELS = {
    "tenant": "t1",
    "groups": frozenset({"corp:a"}),
    "tags": frozenset(),
    "sensitivity": 1,
    "title": "x",
    "active": True,
}


@pytest.fixture
def policies():
    return world.load_files(world.folder_files(POLICIES))


def test_sources_with_never_are_absent(policies):
    assert [grant.source for grant in policies.grants(ADA, world.NOW).search] == ["alpha"]
    both = dataclasses.replace(ADA, groups=frozenset({"corp:a", "corp:b"}))
    assert [grant.source for grant in policies.grants(both, world.NOW).search] == ["alpha", "beta"]


def test_only_sources_of_the_tenant_are_listed(policies):
    assert [grant.source for grant in policies.grants(dataclasses.replace(ADA, tenant="t'2"), world.NOW).search] == ["gamma"]
    assert policies.grants(dataclasses.replace(ADA, tenant="elsewhere"), world.NOW).search == ()


def test_a_grant_names_the_policies_that_speak(policies):
    (grant,) = policies.grants(ADA, world.NOW).search
    assert grant.policies == ("not-before", "read-groups", "tenant-wall")


def test_the_tenant_wall_is_a_top_level_conjunct(policies):
    (grant,) = policies.grants(ADA, world.NOW).search
    assert '["eq","tenant","t1"]' in [canonical(item) for item in grant.filter.items]
    assert '["has","tenant"]' in [canonical(item) for item in grant.filter.items]


def test_no_groups_no_grants(policies):
    assert policies.grants(dataclasses.replace(ADA, groups=frozenset()), world.NOW).search == ()


def test_what_no_label_could_ever_open_does_not_exist(policies):
    """Groups outside the envelope, or a clearance below the least of it: the source is not even named."""
    assert [grant.source for grant in policies.grants(ADA, world.NOW).search] == ["alpha"]
    assert policies.grants(dataclasses.replace(ADA, groups=frozenset({"corp:z"})), world.NOW).search == ()
    low = dataclasses.replace(ADA, tenant="t'2", attributes=(("clearance", 0), ("teams", frozenset()), ("vip", False)))
    assert policies.grants(low, world.NOW).search == ()


def test_memo_key(policies):
    """The mapped principal and the UTC day; neither expiry nor the hour, and each asker keeps its own expiry."""
    first = policies.grants(ADA, world.NOW)
    assert len(policies.engine.granted) == 1
    later = policies.grants(dataclasses.replace(ADA, expires_at_s=7, development=True), world.NOW + timedelta(hours=11))
    assert len(policies.engine.granted) == 1
    assert later.search is first.search
    assert later.principal.expires_at_s == 7
    for other in (
        dataclasses.replace(ADA, subject="eve"),
        dataclasses.replace(ADA, issuer="dev"),
        dataclasses.replace(ADA, tenant="t'2"),
        dataclasses.replace(ADA, kind="Service"),
        dataclasses.replace(ADA, groups=frozenset({"corp:b"})),
        dataclasses.replace(ADA, attributes=(("clearance", 3), ("teams", frozenset()), ("vip", False))),
    ):
        before = len(policies.engine.granted)
        policies.grants(other, world.NOW)
        assert len(policies.engine.granted) == before + 1
    before = len(policies.engine.granted)
    policies.grants(ADA, world.NOW + timedelta(hours=12))
    assert len(policies.engine.granted) == before + 1


def test_memo_tells_true_from_one(policies):
    """1 == True in Python; a principal's attribute is one or the other."""
    one = dataclasses.replace(ADA, attributes=(("clearance", 1), ("teams", frozenset()), ("vip", True)))
    assert policies.grants(one, world.NOW).search
    other = dataclasses.replace(ADA, attributes=(("clearance", True), ("teams", frozenset()), ("vip", True)))
    with pytest.raises(Exception, match="cannot be judged"):
        policies.grants(other, world.NOW)


def test_memo_is_bounded():
    memo = Memo(limit=3)
    for at in range(10):
        assert memo.get(at, lambda at=at: at * 2) == at * 2
    assert len(memo) == 3
    assert memo.get(9, lambda: "computed again") == 18
    assert memo.get(0, lambda: "computed again") == "computed again"
    assert memo.get("heavy", lambda: "kept", weight=2) == "kept"
    assert (len(memo), memo.weight) == (2, 3)
    assert memo.get("too heavy", lambda: "not kept", weight=9) == "not kept"
    assert (len(memo), memo.weight) == (0, 0)


def test_day_decides_not_the_hour(policies):
    day = to_day_ms(world.NOW)
    assert day == 1_781_481_600_000
    midnight = datetime(2026, 6, 15, tzinfo=UTC)
    assert to_day_ms(midnight) == to_day_ms(midnight + timedelta(hours=24) - timedelta(microseconds=1)) == day
    assert to_day_ms(datetime(2026, 6, 16, 1, tzinfo=timezone(timedelta(hours=2)))) == day
    assert to_day_ms(datetime(1969, 12, 31, 23, tzinfo=UTC)) == -86_400_000
    (grant,) = policies.grants(ADA, world.NOW).search
    assert matches(grant.filter, LABELS | {"rank": day})
    assert not matches(grant.filter, LABELS | {"rank": day + 1})


def test_now_without_a_zone_is_refused(policies):
    with pytest.raises(PolicyError):
        policies.grants(ADA, world.NOW.replace(tzinfo=None))


def test_recheck_keeps_order_and_folds_equals(policies):
    things = [("alpha", f"d{at}", LABELS | {"sensitivity": at % 4}) for at in range(40)]
    verdicts = policies.recheck(ADA, world.NOW, things)
    assert [verdict.allowed for verdict in verdicts] == [at % 4 <= 2 for at in range(40)]
    assert verdicts[0].policies == ("read-groups",)
    assert policies.recheck(ADA, world.NOW, []) == []


def test_recheck_tells_one_from_true(policies):
    """1 == True in Python, and only one of them is a Long."""
    verdicts = policies.recheck(ADA, world.NOW, [("alpha", "a", LABELS), ("alpha", "b", LABELS | {"sensitivity": True})])
    assert [verdict.allowed for verdict in verdicts] == [True, False]


def test_recheck_names_the_forbid(policies):
    verdict = policies.recheck(ADA, world.NOW, [("beta", "d", LABELS)])[0]
    assert (verdict.allowed, verdict.policies) == (False, ("beta-for-b",))


def test_audit_and_own_decisions(policies):
    auditor = dataclasses.replace(ADA, groups=frozenset({"corp:b"}))
    assert policies.authorize(auditor, world.NOW, "audit", tenant="t1").policies == ("audits",)
    assert not policies.authorize(ADA, world.NOW, "audit", tenant="t1")
    assert policies.authorize(auditor, world.NOW, "audit", tenant="t'2").policies == ("tenant-wall",)
    assert policies.authorize(ADA, world.NOW, "explain_own", tenant="t1")
    assert not policies.authorize(ADA, world.NOW, "explain_own", tenant="t'2")
    for nonsense in ("search", "disclose", "nothing", 'audit"'):
        assert not policies.authorize(auditor, world.NOW, nonsense, tenant="t1")


def test_disclosure(policies):
    assert policies.may_disclose(ADA, provider="cohere", purpose="rerank", sensitivity=1).policies == ("rerank",)
    assert not policies.may_disclose(ADA, provider="cohere", purpose="rerank", sensitivity=2)
    assert not policies.may_disclose(ADA, provider="cohere", purpose="embed", sensitivity=0)
    assert not policies.may_disclose(ADA, provider="claude", purpose="rerank", sensitivity=0)
    assert not policies.may_disclose(ADA, provider='cohere"\ud800', purpose="rerank", sensitivity=0)
    assert not policies.may_disclose(ADA, provider="cohere", purpose="rerank", sensitivity=2**70)


def test_hostile_names_are_opaque_to_cedar(policies):
    for subject in ('a"b', "a\\", 'x"; permit(principal,action,resource);//', "\n", "\U0001f6a7"):
        grants = policies.grants(dataclasses.replace(ADA, subject=subject), world.NOW)
        assert [grant.source for grant in grants.search] == ["alpha"]


def test_permit_for_every_action_names_a_provider(policies):
    """Its scope stays open when a document is asked for, and no document is a provider."""
    text = '@id("any") @reason("r") @owner("o")\npermit (principal, action, resource == Pointsman::Provider::"cohere");'
    open_handed = world.load_files(world.folder_files(POLICIES + text))
    assert open_handed.grants(ADA, world.NOW).search == policies.grants(ADA, world.NOW).search
    assert open_handed.may_disclose(ADA, provider="cohere", purpose="embed", sensitivity=3)
