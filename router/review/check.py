"""`policies check`: everything that is wrong with the folder at once, and what is right but looks like a mistake.

INVARIANT: a folder without an error here loads, and one that loads has no error here
(tests/unit/test_review_check.py::test_errors_are_what_loading_refuses).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from router.egress import DISCLOSED_AS
from router.errors import Refused
from router.filters import MAX_NODES
from router.policy import Fault, PolicySet, Statement, fragment, inspect_folder
from router.policy.bound import bound_filter
from router.policy.folder import is_group, spell_group
from router.policy.governance import FILE as GOVERNANCE
from router.policy.schema import PROVIDERS
from router.policy.strict import nearest
from router.review.cases import map_person
from router.sql.tools import fitting_tools, granted_tools


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `policies check`. An error keeps the folder from loading; a warning does not."""

    level: Literal["error", "warning"]
    file: str
    line: int
    policy_id: str
    message: str
    hint: str

    def as_json(self) -> dict[str, object]:
        return {
            "level": self.level,
            "file": self.file,
            "line": self.line,
            "policy_id": self.policy_id,
            "message": self.message,
            "hint": self.hint,
        }


def check_policies(folder: Path) -> list[Finding]:
    """Errors first, then warnings, each in the order of the files."""
    policies, faults = inspect_folder(folder)
    findings = [_of_fault(fault) for fault in faults]
    if policies is not None:
        findings += [
            *_misnamed_groups(policies),
            *_unknown_groups(policies),
            *_unknown_providers(policies),
            *_unknown_purposes(policies),
            *_open_permits(policies),
            *_missing_keys(policies, folder),
            *_idle_sources(policies),
            *_large_filters(policies),
            *_unlike_examples(policies),
        ]
    return findings


def _of_fault(fault: Fault) -> Finding:
    return Finding("error", fault.file, fault.line, fault.policy_id, fault.message, fault.hint)


def _warn(statement: Statement, message: str, hint: str) -> Finding:
    return Finding("warning", statement.file, statement.line, statement.policy_id, message, hint)


def _misnamed_groups(policies: PolicySet) -> list[Finding]:
    """A group written so that no issuer can give it. In a permit it opens nothing; in a forbid the folder does not load."""
    return [
        _warn(
            statement,
            f"`{statement.policy_id}` names the group `{group}`, which no issuer can give anybody",
            spell_group(policies.issuers),
        )
        for statement in policies.statements
        for group in sorted(fragment.groups_named(statement.body))
        if not is_group(group, policies.issuers)
    ]


def _unknown_groups(policies: PolicySet) -> list[Finding]:
    """A group that an issuer could give, and that stands nowhere else in the folder: mostly one that is misspelt."""
    known = set[str]().union(*(source.groups for source in policies.sources.values()), *_groups_of_people(policies))
    return [
        _warn(
            statement,
            f"`{statement.policy_id}` names the group `{group}`, which no source permits and nobody in people.yaml has",
            nearest(group, known),
        )
        for statement in policies.statements
        for group in sorted(fragment.groups_named(statement.body) - known)
        if is_group(group, policies.issuers)
    ]


def _groups_of_people(policies: PolicySet) -> list[frozenset[str]]:
    found = []
    for name in policies.people:
        try:
            found.append(map_person(name, policies).groups)
        except Refused:  # some people stand there because their token is refused
            continue
    return found


def _unknown_providers(policies: PolicySet) -> list[Finding]:
    return [
        _warn(
            statement,
            f"`{statement.policy_id}` names the provider `{provider}`, which Pointsman does not know",
            nearest(provider, PROVIDERS),
        )
        for statement in policies.statements
        for provider in sorted(fragment.providers_named(statement.body) - set(PROVIDERS))
    ]


def _unknown_purposes(policies: PolicySet) -> list[Finding]:
    known = set(DISCLOSED_AS.values())
    return [
        _warn(
            statement,
            f"`{statement.policy_id}` names the purpose `{purpose}`, for which nothing is ever sent",
            nearest(purpose, known),
        )
        for statement in policies.statements
        for purpose in sorted(fragment.purposes_named(statement.body) - known)
    ]


def _open_permits(policies: PolicySet) -> list[Finding]:
    """A permit that asks nothing of anybody. `explain_own` is asked of one's own decisions only, so it may be open."""
    findings = []
    for statement in policies.statements:
        actions = fragment.actions_named(statement.body)
        if statement.effect == "permit" and actions != {"explain_own"} and fragment.is_unconditional(statement.body):
            what = ", ".join(sorted(actions)) or "every action"
            message = f"`{statement.policy_id}` permits {what} to everybody of a tenant, whatever it is asked for"
            findings.append(_warn(statement, message, "add a condition on the principal or the resource, if that is not meant"))
    return findings


def _large_filters(policies: PolicySet) -> list[Finding]:
    """Sources times policies can outgrow what a store takes; that can be counted before anybody asks."""
    bodies = [statement.body for statement in policies.statements]
    bounds = bound_filter(bodies, policies.sources, policies.document_type)
    findings = []
    for tenant, nodes in sorted(bounds.items()):
        if nodes > MAX_NODES:
            count = sum(source.tenant == tenant for source in policies.sources.values())
            message = (
                f"the filter over the {count} sources of `{tenant}` can have {nodes} parts; one of over {MAX_NODES} is refused"
            )
            hint = "let sources share policies and envelopes; whoever has a larger filter gets `policy_too_large`"
            findings.append(Finding("warning", "sources.yaml", 0, "", message, hint))
    return findings


def _unlike_examples(policies: PolicySet) -> list[Finding]:
    """An example that is not answered by its own tool, or that words alone cannot tell from another tool's."""
    if policies.catalog is None or not policies.tools:
        return []
    least = {name: facts.min_group for name, facts in policies.datasets.items() if facts.min_group is not None}
    tools = granted_tools(policies.tools, policies.catalog, min_group=least)
    findings = []
    for tool in tools:
        for example in tool.examples:
            fitting = fitting_tools(example, tool, tools)
            if fitting != (tool.name,):
                others = ", ".join(f"`{name}`" for name in fitting if name != tool.name)
                said = f"fits {others}, too" if tool.name in fitting else f"fits {others}" if others else "does not fit it"
                message = f"the example `{example}` of the tool `{tool.name}` {said}"
                findings.append(Finding("warning", GOVERNANCE, tool.line, "", message, "ask in words that only this tool has"))
    return findings


def _missing_keys(policies: PolicySet, folder: Path) -> list[Finding]:
    return [
        Finding(
            "warning",
            "identity.yaml",
            0,
            "",
            f"the key file of `{alias}` is missing",
            f"put `{issuer.jwks}` beside identity.yaml",
        )
        for alias, issuer in sorted(policies.issuers.items())
        if issuer.jwks and "://" not in issuer.jwks and not (folder / issuer.jwks).is_file()
    ]


def _idle_sources(policies: PolicySet) -> list[Finding]:
    """A source whose whole envelope belongs to issuers that may not assert its tenant: no label can reach anybody."""
    findings = []
    for source in policies.sources.values():
        aliases = {group.partition(":")[0] for group in source.groups}
        if not any(source.tenant in policies.issuers[alias].tenants for alias in aliases if alias in policies.issuers):
            message = f"no group of `{source.name}` comes from an issuer of its tenant"
            findings.append(Finding("warning", "sources.yaml", 0, "", message, "check `groups` and `tenant`"))
    return findings
