"""`index rollback`, `index verify`, and what `index --full` and `index status` say of generations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from router.app import Router
from router.doors.cli.output import one_line, print_json, print_table, say
from router.errors import CHECK_FAILED

if TYPE_CHECKING:
    from router.domain import Compared, Generation
    from router.ingest.reconcile import Finding
    from router.ingest.repair import Repaired

SHOWN_LINES = 10


def run_verify(*, repair: bool, as_json: bool, config: Path | None) -> None:
    """Exit code 1 when something differs, with `repair` when something is left."""
    from router.doors.cli.index import progress_bar
    from router.ingest.reconcile import Finding
    from router.review.tables import check_copies, check_governed

    with Router.open(config) as router, progress_bar() as progress:
        repaired = router.index_repair(progress=progress) if repair else None
        findings = list(repaired.left) if repaired is not None else list(router.index_verify())
        faults = [*check_copies(router), *(fault for fault in check_governed(router) if fault.level == "fault")]
        findings += [Finding("", each.place, "", each.kind, f"{each.message}; {each.hint}") for each in faults]
    if as_json:
        more = {} if repaired is None else _repaired_json(repaired)
        print_json({"ok": not findings, "findings": [dataclasses.asdict(finding) for finding in findings], **more})
    else:
        if repaired is not None:
            _print_repaired(repaired)
        _print_findings(findings, repaired=repaired is not None)
    if findings:
        raise SystemExit(CHECK_FAILED)


def _repaired_json(repaired: Repaired) -> dict[str, Any]:
    return {
        "found": [dataclasses.asdict(finding) for finding in repaired.found],
        "repaired": [dataclasses.asdict(finding) for finding in repaired.repaired],
        "done": [{"tenant": tenant, "what": words} for tenant, words in repaired.done],
        "run_id": repaired.report.run_id,
    }


def _print_repaired(repaired: Repaired) -> None:
    for finding in repaired.repaired:
        say(f"repaired  {_words(finding)}", "green")
    for tenant, words in repaired.done:
        say(one_line(f"{tenant}  {words}", 400), "dim")


def _print_findings(findings: Sequence[Finding], *, repaired: bool) -> None:
    for finding in findings:
        say(_words(finding), "yellow")
    if findings and repaired:
        say(f"{len(findings)} differences are left; each says what to do, or runs of `pointsman index` go on with it", "yellow")
    elif findings:
        say(
            f"{len(findings)} differences; `pointsman index` mends those of documents, `pointsman index verify --repair` those of the stores, too",
            "yellow",
        )
    else:
        say("manifest, store, sources and tables agree", "green")


def _words(finding: Finding) -> str:
    return one_line(f"{finding.tenant}  {finding.source}  {finding.kind}  {finding.document_id}  {finding.detail}", 400)


def run_rollback(tenant: str | None, to: str | None, *, as_json: bool, config: Path | None) -> None:
    """Askers see the one generation or the other, at every moment."""
    from router.doors.cli.index import COUNTS, progress_bar

    with Router.open(config) as router, progress_bar() as progress:
        done = router.index_rollback(tenant, to=to, progress=progress)
    if as_json:
        sources = [{name: getattr(report, name) for name in ("source", *COUNTS)} for report in done.sources]
        print_json({"tenant": done.tenant, "before": done.before, "now": done.now, "changes": done.changes, "sources": sources})
        return
    rows = [(report.source, *(getattr(report, name) for name in COUNTS)) for report in done.sources]
    print_table(("source", *COUNTS), rows, title=f"{done.now} was brought in step with its sources first")
    say(f"{done.tenant}: {done.now} is shown, {done.changes} documents otherwise than before")
    say(f"{done.before} is kept: `pointsman index rollback --to {done.before}` goes there", "dim")


def compared_json(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """Without the words of questions, which stand in their file."""
    return [{**dataclasses.asdict(one), "worse": len(one.worse)} for one in compared]


def print_compared(compared: Sequence[Compared]) -> None:
    """What each question set found in the generation that was shown and in the new one, and what became of that."""
    for one in compared:
        if one.judged:
            rows = [
                ("Recall@20", *one.recall_at_20, round(one.recall_at_20[1] - one.recall_at_20[0], 2)),
                ("nDCG@10", *one.ndcg_at_10, round(one.ndcg_at_10[1] - one.ndcg_at_10[0], 2)),
            ]
            print_table(("", one.old, one.new, "difference"), rows, title=f"{one.tenant}: {one.judged} judged questions")
        if not one.questions:
            say(f"{one.tenant}: no question is asked by one of its people, so {one.new} was not judged; it is shown", "yellow")
            continue
        say(f"{one.tenant}: {one.overlap_at_10:.0f} % of the first ten are the same, over {one.questions} questions", "dim")
        for text, old, new in one.worse[:SHOWN_LINES]:
            say(f"worse  {old:.0f} -> {new:.0f}  {one_line(text)}", "yellow")
        if not one.judged:
            say(
                f"{one.tenant}: no question says what answers it, so the new generation could not be judged; it is shown",
                "yellow",
            )
        if not one.accepted:
            say(
                f"{one.tenant}: {one.new} is worse by more than {one.allowed_points:g} points; {one.old} is still shown",
                "bold red",
            )
            say(
                f"{one.new} is kept until the next generation is shown: `pointsman index rollback --tenant {one.tenant} --to {one.new}` shows it",
                "dim",
            )


def generations_json(generations: Mapping[str, Sequence[Generation]]) -> list[dict[str, Any]]:
    """With what each is there for."""
    return [
        {"tenant": tenant, **dataclasses.asdict(one), "role": role}
        for tenant, several in sorted(generations.items())
        for one, role in zip(several, _roles(several), strict=True)
    ]


def print_generations(generations: Mapping[str, Sequence[Generation]]) -> None:
    """Each generation of each tenant, what it is there for, whose vectors it holds and how many documents."""
    rows = [
        (tenant, one.name, role, one.documents, one.chunks, one.model_id or "none yet")
        for tenant, several in sorted(generations.items())
        for one, role in zip(several, _roles(several), strict=True)
    ]
    print_table(("tenant", "generation", "", "documents", "chunks", "model"), rows)


def _roles(generations: Sequence[Generation]) -> list[str]:
    """In the words of `index status`: current, previous, kept aside (newer, not shown), building or cut off."""
    current = next((at for at, one in enumerate(generations) if one.current), -1)
    return [
        "current"
        if one.current
        else "building, or cut off"
        if not one.whole
        else "previous"
        if at < current
        else "newer, not shown"
        for at, one in enumerate(generations)
    ]
