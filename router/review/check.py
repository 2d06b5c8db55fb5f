"""`policies check`: everything that is wrong with the folder at once, and what is right but looks like a mistake.

INVARIANT: a folder without an error here loads, and one that loads has no error here
(tests/unit/test_review_check.py::test_errors_are_what_loading_refuses).
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from router.policy import Fault, PolicySet, fragment, inspect_folder


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
        findings += [*_misnamed_groups(policies), *_missing_keys(policies, folder), *_idle_sources(policies)]
    return findings


def _of_fault(fault: Fault) -> Finding:
    return Finding("error", fault.file, fault.line, fault.policy_id, fault.message, fault.hint)


def _misnamed_groups(policies: PolicySet) -> list[Finding]:
    """A group written without its issuer's alias never matches: a forbid that names it would never fire."""
    findings = []
    for statement in policies.statements:
        for group in sorted(fragment.groups_named(statement.body)):
            alias, _, name = group.partition(":")
            if alias in policies.issuers and name and unicodedata.is_normalized("NFC", group):
                continue
            message = f"`{statement.policy_id}` names the group `{group}`, which no issuer can give anybody"
            hint = f"write issuer-alias:name, in Unicode NFC; aliases: {', '.join(sorted(policies.issuers))}"
            findings.append(Finding("warning", statement.file, statement.line, statement.policy_id, message, hint))
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
