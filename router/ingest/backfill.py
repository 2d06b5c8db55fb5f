"""Runs the ingestion line, waits for what it sent away to be written, and runs it again over the documents that were waiting.

Documents are indexed, relabelled and removed before anybody waits, so a provider that takes a day delays no revocation.

INVARIANT: waiting comes after every source was gone through (tests/unit/test_written_contexts_indexed.py::
test_removals_and_labels_do_not_wait_for_answers).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from router.ingest.build import Judge, index_sources
from router.ingest.scribe import Scribe, Tally
from router.ingest.workshop import ContextReport, IndexReport, Progress, SourceJob, SourceReport, Workshop
from router.ports import Tokens

ROUNDS = 6
"""How often what came back is indexed and what is still missing is asked for again, at most, in one run."""
_ADDED = ("indexed", "relabelled", "removed", "chunks", "revoked")


def index_and_wait(
    jobs: Sequence[SourceJob],
    workshop: Workshop,
    *,
    wait_s: float,
    full: bool = False,
    dry_run: bool = False,
    estimate: bool = False,
    declared: frozenset[str] | None = None,
    elsewhere: frozenset[str] = frozenset(),
    progress: Callable[[Progress], None] | None = None,
    judge: Judge | None = None,
) -> IndexReport:
    """As `index_sources`; where contexts were sent away to be written, the documents that wait for them come again, for at most
    `wait_s` seconds. What is not there by then the next run collects."""
    report = index_sources(
        jobs,
        workshop,
        full=full,
        dry_run=dry_run,
        estimate=estimate,
        declared=declared,
        elsewhere=elsewhere,
        progress=progress,
        judge=judge,
    )
    written = [job for job in jobs if job.scribe is not None]
    scribes = list({id(job.scribe): job.scribe for job in written if job.scribe is not None}.values())
    if not scribes or dry_run:
        return report
    until_s = time.monotonic() + wait_s
    for _ in range(ROUNDS):
        if not sum([_wait(scribe, until_s, progress) for scribe in scribes]):
            break
        report = _joined(report, index_sources(written, workshop, progress=progress))
    return replace(report, contexts=_context_report(scribes))


def _wait(scribe: Scribe, until_s: float, progress: Callable[[Progress], None] | None) -> int:
    total, began_s = scribe.waiting, time.monotonic()

    def told(waiting: int) -> None:
        if progress is not None and total:
            progress(Progress("written contexts", max(0, total - waiting), total, 0, time.monotonic() - began_s))

    return scribe.wait(until_s, told)


def _joined(first: IndexReport, then: IndexReport) -> IndexReport:
    """Work of both; what a source holds and lacks, as the later one found it."""
    later: Mapping[tuple[str, str], SourceReport] = {(item.tenant, item.source): item for item in then.sources}
    sources: list[SourceReport] = []
    for item in first.sources:
        new = later.get((item.tenant, item.source))
        if new is None:
            sources.append(item)
            continue
        changes: dict[str, Any] = {name: getattr(item, name) + getattr(new, name) for name in _ADDED}
        changes["looked_at_us"] = item.looked_at_us
        sources.append(replace(new, unchanged=item.unchanged, **changes))
    return replace(first, elapsed_s=first.elapsed_s + then.elapsed_s, sources=tuple(sources))


def _context_report(scribes: Sequence[Scribe]) -> ContextReport:
    total, structural = Tally(), Counter[str]()
    for scribe in scribes:
        tally = scribe.tally
        total.written, total.reused = total.written + tally.written, total.reused + tally.reused
        total.direct, total.batched = total.direct + tally.direct, total.batched + tally.batched
        structural += tally.structural
    purse = scribes[0].purse
    prices = purse.writing.prices
    tokens: Tokens = purse.tokens
    return ContextReport(
        written=total.written,
        reused=total.reused,
        direct=total.direct,
        batched=total.batched,
        waiting=sum(scribe.waiting for scribe in scribes),
        structural=dict(structural),
        stopped=next((scribe.stopped for scribe in scribes if scribe.stopped), ""),
        tokens=tokens,
        money=purse.money(promised=False) if prices is not None else None,
        currency=prices.currency if prices is not None else "",
    )
