"""Runs the ingestion line, waits for what it sent away to be written, and runs it again over the documents that were waiting.

Documents are indexed, relabelled and removed before anybody waits, so a provider that takes a day delays no revocation.

INVARIANT: waiting comes after every source was gone through (tests/unit/test_written_contexts_indexed.py::
test_removals_and_labels_do_not_wait_for_answers).
INVARIANT: after waiting, sources, envelopes, labels and permits are those of that moment (…::
test_a_run_goes_by_the_sources_of_the_moment, tests/unit/test_waiting_runs.py::test_a_run_that_waited_undoes_no_revocation).
INVARIANT: a document counts once, however often a run made it (tests/unit/test_written_contexts_indexed.py::
test_a_document_counts_once_in_all_rounds).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from router.errors import PointsmanError
from router.ingest.build import Judge, Refresh, index_sources
from router.ingest.scribe import Scribe
from router.ingest.workshop import ContextReport, IndexReport, Progress, SourceJob, SourceReport, Workshop
from router.ports import Tokens

ROUNDS = 6
"""How often what came back is indexed and what is still missing is asked for again, at most, in one run."""
BUSY_S = 1.0
"""How soon a lock that another run holds is tried again, where answers wait to be indexed."""
_ADDED = ("relabelled", "removed", "revoked")


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
    refresh: Refresh | None = None,
    judge: Judge | None = None,
) -> IndexReport:
    """As `index_sources`; where contexts were sent away to be written, the documents that wait for them come again, for at most
    `wait_s` seconds. What is not there by then the next run collects."""
    report = index_sources(
        jobs, workshop, full=full, dry_run=dry_run, estimate=estimate, declared=declared, elsewhere=elsewhere, progress=progress,
        refresh=refresh, judge=judge,
    )  # fmt: skip
    written = [job for job in jobs if job.scribe is not None]
    scribes = list({id(job.scribe): job.scribe for job in written if job.scribe is not None}.values())
    if not scribes or dry_run:
        return report
    until_s, stopped = time.monotonic() + wait_s, ""
    for _ in range(ROUNDS):
        if not sum([_wait(scribe, until_s, progress) for scribe in scribes]):
            break
        for scribe in scribes:
            scribe.begin_round()
        try:
            report = _joined(report, _index_again(written, workshop, until_s, progress, refresh))
        except PointsmanError as error:
            if error.code not in _NOT_NOW:
                raise
            stopped = error.code  # what came is kept: the next run indexes it
            break
    return replace(report, contexts=_context_report(scribes, stopped))


def _index_again(
    jobs: Sequence[SourceJob],
    workshop: Workshop,
    until_s: float,
    progress: Callable[[Progress], None] | None,
    refresh: Refresh | None,
) -> IndexReport:
    while True:
        try:
            return index_sources(jobs, workshop, progress=progress, refresh=refresh)
        except PointsmanError as error:
            if error.code != "index_busy" or time.monotonic() + BUSY_S > until_s:
                raise
        time.sleep(BUSY_S)


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
        made = {**item.made_chunks, **new.made_chunks}
        left = max(0, min(item.unchanged, new.unchanged - len(item.made_chunks.keys() - new.made_chunks.keys())))
        changes |= {"made_chunks": made, "indexed": len(made), "chunks": sum(made.values()), "unchanged": left}
        sources.append(replace(new, looked_at_us=item.looked_at_us, **changes))
    return replace(first, elapsed_s=first.elapsed_s + then.elapsed_s, sources=tuple(sources))


_NOT_NOW = frozenset({"index_busy", "policy_broken", "policy_invalid"})


def _context_report(scribes: Sequence[Scribe], stopped: str) -> ContextReport:
    tallies = [scribe.tally for scribe in scribes]
    purse = scribes[0].purse
    prices = purse.writing.prices
    tokens: Tokens = purse.tokens
    return ContextReport(
        written=sum(tally.written for tally in tallies),
        reused=sum(tally.reused for tally in tallies),
        direct=sum(tally.direct for tally in tallies),
        batched=sum(tally.batched for tally in tallies),
        waiting=sum(scribe.waiting for scribe in scribes),
        structural=dict(sum((tally.structural for tally in tallies), Counter[str]())),
        stopped=next((scribe.stopped for scribe in scribes if scribe.stopped), stopped),
        tokens=tokens,
        money=purse.money(promised=False) if prices is not None else None,
        currency=prices.currency if prices is not None else "",
        unclear=sum(scribe.unclear for scribe in scribes),
        uncounted=sum(tally.uncounted for tally in tallies),
    )
