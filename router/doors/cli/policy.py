"""`policies check` and `policies test`, through the enforcing code path."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from router.config import find_settings, load_settings
from router.doors.cli.output import plain, print_json, say
from router.errors import CHECK_FAILED, PolicyError
from router.policy import load_policies
from router.review.cases import CaseReport, run_cases
from router.review.check import check_policies


def run_check(*, as_json: bool, config: Path | None) -> None:
    """Exit code 2 when the folder would not load, 0 with warnings."""
    folder = load_settings(find_settings(config)).policy_folder
    findings = check_policies(folder)
    faults = [finding for finding in findings if finding.level == "error"]
    if as_json:
        print_json({"ok": not faults, "findings": [finding.as_json() for finding in findings]})
    elif not findings:
        policies = load_policies(folder)
        counts = f"{len(policies.statements)} policies, {len(policies.sources)} sources, version {policies.version[:12]}"
        say(f"the policy folder is sound: {counts}; now `policies test`", "green")
    else:
        for item in findings:
            place = f"{item.file}:{item.line}" if item.line else item.file
            say(f"{item.level}  {place}  {item.policy_id}".rstrip(), "red" if item.level == "error" else "yellow")
            say(f"  {plain(item.message)}" + (f"; {plain(item.hint)}" if item.hint else ""))
    if faults:
        raise SystemExit(PolicyError.exit_code)


def run_cases_command(*, as_json: bool, config: Path | None) -> None:
    """Exit code 1 when a case fails or a policy has no case that it decides."""
    folder = load_settings(find_settings(config)).policy_folder
    report = run_cases(folder, datetime.now(UTC))
    if as_json:
        print_json(_cases_json(report))
    else:
        failed = [result for result in report.results if not result.passed]
        for result in failed:
            say(
                f"{result.case.file}:{result.case.line}  {result.case.person} {result.case.action} {result.case.resource}: {result.problem}",
                "red",
            )
        say(f"{len(report.results) - len(failed)} cases passed, {len(failed)} failed", "red" if failed else "green")
        for policy_id in report.uncovered:
            say(f"no case is decided by `{policy_id}`", "yellow")
    if not report.passed:
        raise SystemExit(CHECK_FAILED)


def _cases_json(report: CaseReport) -> dict[str, Any]:
    return {
        "passed": report.passed,
        "cases": [
            {**dataclasses.asdict(result.case), "got": result.got, "policies": list(result.policies), "problem": result.problem}
            for result in report.results
        ],
        "uncovered": list(report.uncovered),
    }
