"""The heart: the filter of a grant admits exactly what Cedar in full allows, for every policy in the fragment."""

import json
from pathlib import Path

import cedarpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.filters import matches, walk
from router.policy import PolicySet, load_policies
from router.policy.bound import bound_filter
from router.policy.decide import principal_id
from router.review.cases import map_person
from tests import policy_world as world

SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@SETTINGS
@given(policies=world.policy_sets(), principal=world.principals(), documents=world.documents())
def test_filter_equals_cedar_in_full(policies, principal, documents):
    grants = {grant.source: grant.filter for grant in policies.grants(principal, world.NOW).search}
    verdicts = policies.recheck(principal, world.NOW, documents)
    for (source, _, labels), verdict in zip(documents, verdicts, strict=True):
        found = source in grants and matches(grants[source], labels)
        assert found == verdict.allowed, world.describe(policies, principal, [source, labels])


@SETTINGS
@given(policies=world.policy_sets(), principal=world.principals(), documents=world.documents(most=4))
def test_recheck_equals_one_bare_question_each(policies, principal, documents):
    """`recheck` batches, keys, folds equals and retries; the bare call from the reviewed text does none of that."""
    text = "\n".join(statement.text for statement in policies.statements)
    schema = policies.raw["schema.cedarschema"].decode()
    kind = f"Pointsman::{principal.kind}"
    who = {"type": kind, "id": principal_id(principal)}
    parents = [{"type": "Pointsman::Group", "id": group} for group in principal.groups]
    attributes = {"tenant": principal.tenant, "groups": principal.groups, **dict(principal.attributes)}
    person = {"uid": who, "attrs": attributes, "parents": parents}
    verdicts = policies.recheck(principal, world.NOW, documents)
    for (source, _, labels), verdict in zip(documents, verdicts, strict=True):
        what = {"type": "Pointsman::Document", "id": "d"}
        thing = {"uid": what, "attrs": labels, "parents": [{"type": "Pointsman::Source", "id": source}]}
        request = {
            "principal": who,
            "action": {"type": "Pointsman::Action", "id": "search"},
            "resource": what,
            "context": {"now": 1_781_481_600_000},
        }
        bare = cedarpy.is_authorized(request, text, json.dumps([person, thing], default=list), schema)
        expected = bare.allowed and not bare.diagnostics.errors and world.inside_envelope(source, labels)
        assert verdict.allowed == expected, world.describe(policies, principal, [source, labels])


@SETTINGS
@given(policies=world.policy_sets(), principal=world.principals(), documents=world.documents())
def test_policies_named_in_a_grant_cover_those_that_decide(policies, principal, documents):
    """A grant names every policy that decides any document which it admits."""
    grants = {grant.source: grant for grant in policies.grants(principal, world.NOW).search}
    for (source, _, _), verdict in zip(documents, policies.recheck(principal, world.NOW, documents), strict=True):
        if verdict.allowed:
            assert set(verdict.policies) <= set(grants[source].policies)


@SETTINGS
@given(
    condition=world.conditions,
    value=world.literals,
    principal=world.principals(),
    title=world.literals,
    data=st.data(),
)
def test_like_matches_as_cedar_does(condition, value, principal, title, data):
    """Patterns made of the title itself hit often: `*` inside literals must stay literal."""
    cut = data.draw(st.integers(0, len(title)))
    parts = data.draw(
        st.sampled_from([[title[:cut], title[cut:]], [title], ["", title, ""], [title[:cut], value, title[cut:]], ["", ""]])
    )
    policies = _one(f"resource.title like {world.cedar_pattern(parts)} && ({condition})")
    labels = {
        "tenant": principal.tenant,
        "groups": frozenset(),
        "tags": frozenset(),
        "sensitivity": 1,
        "title": title,
        "active": True,
    }
    source = next(name for name, tenant in world.SOURCES.items() if tenant == principal.tenant)
    grants = {grant.source: grant.filter for grant in policies.grants(principal, world.NOW).search}
    verdict = policies.recheck(principal, world.NOW, [(source, "d", labels)])[0]
    assert (source in grants and matches(grants[source], labels)) == verdict.allowed


def _one(condition: str) -> PolicySet:
    text = '@id("one") @reason("drawn") @owner("tests")\n'
    text += f'permit (principal, action == Pointsman::Action::"search", resource) when {{ {condition} }};'
    return world.load_files(world.folder_files(text))


@SETTINGS
@given(policies=world.policy_sets(), principal=world.principals())
def test_no_filter_is_larger_than_the_bound(policies, principal):
    """Of principals whose sets have at most three elements; what `policies check` warns of is counted from above."""
    bodies = [statement.body for statement in policies.statements]
    bound = bound_filter(bodies, policies.sources, policies.document_type, held=3)[principal.tenant]
    joined = policies.grants(principal, world.NOW).joined
    assert len(list(walk(joined.filter))) <= bound, world.describe(policies, principal, bound)


def test_the_bound_is_near():
    """Counted from above, and not by much: a folder far from the limit is not warned of."""
    folder = Path(__file__).parents[2] / "policies"
    policies = load_policies(folder)
    bodies = [statement.body for statement in policies.statements]
    bound = bound_filter(bodies, policies.sources, policies.document_type)
    for name in ("hugo", "nadia", "bela", "ines"):
        principal = map_person(name, policies)
        nodes = len(list(walk(policies.grants(principal, world.NOW).joined.filter)))
        assert nodes <= bound[principal.tenant] <= 4 * nodes
