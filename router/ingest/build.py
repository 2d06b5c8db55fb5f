"""The ingestion line: list -> labels -> drop and relabel -> read -> parse -> chunk -> embed -> record -> store -> manifest.

A source is listed and labelled whole before anything changes. What may no longer be seen goes first, of every source and tenant; then
what is shown and reads otherwise now, since it may narrow itself; what is new comes last.
Every run compares manifest and store with the source, so a run after any interruption finishes what was begun. Longer than most,
because the order of these steps is one promise, whether a generation is shown while it changes or not.

INVARIANT: a label change is recorded before the store shows it, so no crash leaves a visible change unrecorded; at worst a
record repeats (tests/unit/test_ingest_build.py::test_record_comes_before_the_store).
INVARIANT: a document that is gone, cannot be read or has no valid labels is not in the store after the run
(tests/unit/test_ingest_build.py::test_lost_documents_disappear).
INVARIANT: no text is read before what other sources and tenants no longer show is gone
(tests/unit/test_ingest_revocation.py::test_revocation_comes_before_text).
INVARIANT: a restriction or removal waits for a batch and not for the run (tests/unit/test_ingest_revocation.py::
test_a_restriction_does_not_wait_for_the_backlog).
INVARIANT: what fails of one tenant holds up no other: it is raised when they are done (tests/unit/test_ingest_tenants.py::
test_a_damaged_store_holds_up_no_other_tenant, ::test_a_full_build_that_fails_holds_up_no_other_tenant).
INVARIANT: a run over all sources leaves no text of a tenant whose last source was withdrawn
(tests/unit/test_ingest_build.py::test_a_tenant_without_sources_is_cleared).
INVARIANT: whatever the moment of a crash, the next run leads to the state of an undisturbed one
(tests/unit/test_ingest_build.py::test_crash_anywhere).
INVARIANT: what a full build makes is seen whole or not at all; what may no longer be seen goes before it begins
(tests/unit/test_ingest_build.py::test_full_is_atomic).
INVARIANT: a run goes by the sources as they are once it holds the lock (tests/unit/test_written_contexts_indexed.py::
test_a_run_goes_by_the_sources_of_the_moment).
INVARIANT: an earlier version that is kept is in the store before its text is replaced, under labels that both versions allow
(tests/unit/test_ingest_versions.py::test_crash_anywhere_while_keeping).
INVARIANT: what is about to be shown is first held against sources and labels of that moment, however long its making took
(tests/unit/test_generations.py::test_labels_that_change_during_a_full_build, ::test_sources_that_change_during_a_full_build).
INVARIANT: a source that moved to another tenant is gone from the one that it left (tests/unit/test_generations.py::test_a_source_that_moved).
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from router.domain import (
    Entry,
    Generation,
    Gone,
    IndexedDocument,
    IndexRun,
    LabelChange,
    ManifestRow,
    Revocation,
    SourceState,
    Switched,
)
from router.errors import PointsmanError, SourceError, UsageError
from router.ingest.keep import Keeper
from router.ingest.make import Known, Lost, Made, Maker, Outcome
from router.ingest.survey import Drop, Emptied, Labeller, Relabel, Survey, has_changed, survey_source
from router.ingest.versions import check_spans
from router.ingest.workshop import Failure, IndexReport, Progress, SourceJob, SourceReport, Workshop
from router.ports import DocumentInfo

BATCH_CHUNKS, BATCH_DOCUMENTS = 128, 100
BATCH_LABELS = 1_000
LOOK_AGAIN_S, LOOK_SHARE = 2.0, 0.1
"""Of work, after which labels and removals are looked at again; later where looking would take more than its share of the time."""
RunOutcome = Literal["done", "failed", "interrupted"]
T = TypeVar("T")
Judge = Callable[[str, str, str], bool]
"""Of a tenant's shown generation and a new one beside it, whether the new one may take its place."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a run goes by: its sources, the schema of labels, the names of all declared sources, the tenants that are left alone."""

    jobs: tuple[SourceJob, ...]
    workshop: Workshop
    declared: frozenset[str] | None = None
    elsewhere: frozenset[str] = frozenset()


Refresh = Callable[[Moment], Moment]
"""The same as it is now."""
__all__ = ["IndexReport", "Moment", "Progress", "Refresh", "SourceJob", "SourceReport", "Workshop", "index_sources"]


def index_sources(
    jobs: Sequence[SourceJob],
    workshop: Workshop,
    *,
    full: bool = False,
    dry_run: bool = False,
    declared: frozenset[str] | None = None,
    elsewhere: frozenset[str] = frozenset(),
    progress: Callable[[Progress], None] | None = None,
    estimate: bool = False,
    judge: Judge | None = None,
    refresh: Refresh | None = None,
) -> IndexReport:
    """Bring the stores up to date with the sources. A source that fails as a whole is reported and the others go on; a
    store, model or ledger that fails ends what is done for that tenant, which the next run continues, and is raised (the first of
    them) when the other tenants are done. `declared` (names of all sources in
    sources.yaml) also removes what belongs to no declared source any more, or to one that is another tenant's now, in tenants that have
    none left, too; `elsewhere` are tenants of declared sources that this run leaves alone. `full` builds everything anew beside the
    current generation and shows it at the end; there a failing source leaves its tenant as it is, and is raised when the others are
    done, and `judge` may keep the new one from being shown. `estimate` with `dry_run` also
    reads what would be read, to say what written contexts and hosted vectors would take. `refresh` gives sources and labels' schema
    as they are once nobody else can change the index: another run may have come first, by newer ones."""
    run_id, started, began_us = uuid.uuid4().hex, time.monotonic(), workshop.now_us()
    outcome: RunOutcome = "interrupted"
    with contextlib.nullcontext() if dry_run else workshop.manifest.exclusive():
        if refresh is not None:
            now = refresh(Moment(tuple(jobs), workshop, declared, elsewhere))
            jobs, workshop, declared, elsewhere = now.jobs, now.workshop, now.declared, now.elsewhere
        reports = [SourceReport(job.source.name, job.source.tenant) for job in jobs]
        pairs = list(zip(jobs, reports, strict=True))
        faults: list[PointsmanError] = []
        try:
            tenants = []
            for name in dict.fromkeys(job.source.tenant for job in jobs):
                its = [(job, report) for job, report in pairs if job.source.tenant == name]
                mine = declared_here(name, jobs, declared)
                try:
                    if full and not dry_run:
                        _let_go(name, its, workshop, run_id, mine)
                    tenant = _Tenant(
                        name, workshop, run_id, full=full, dry_run=dry_run, progress=progress, estimate=estimate, judge=judge,
                        refresh=refresh,
                    )  # fmt: skip
                    tenant.take_away(its, mine)
                except _SourceFailed as stopped:  # in a full build
                    faults.append(stopped.error)
                except PointsmanError as error:
                    faults.append(error)
                else:
                    tenants.append(tenant)
            if declared is not None:
                known = {job.source.tenant for job in jobs} | elsewhere
                reports += _clear_strangers(known, workshop, faults, dry_run=dry_run)
            again = _Again(tenants)
            for tenant in tenants:
                tenant.again = again
            _each(tenants, _Tenant.make_shown)
            _each(tenants, _Tenant.make_new)
            faults += [tenant.fault for tenant in tenants if tenant.fault is not None]
            if faults:
                raise faults[0]
            outcome = "failed" if any(report.error for report in reports) else "done"
        except Exception:
            outcome = "failed"
            raise
        finally:
            if not dry_run:
                with contextlib.suppress(SourceError):
                    ended_us = workshop.now_us()
                    workshop.manifest.note_run(summarise_run(run_id, began_us, ended_us, outcome, reports))
                    workshop.manifest.note_states(_states(workshop, reports[: len(jobs)], ended_us, outcome, full=full))
    return IndexReport(run_id, dry_run, time.monotonic() - started, tuple(reports))


def _each(tenants: Iterable[_Tenant], step: Callable[[_Tenant], None]) -> None:
    """Of every tenant that has not failed: what fails of one is told when the others are done."""
    for tenant in tenants:
        if tenant.fault is None:
            try:
                step(tenant)
            except PointsmanError as error:
                tenant.fault = tenant.fault or error


def declared_here(tenant: str, jobs: Iterable[SourceJob], declared: frozenset[str] | None) -> frozenset[str] | None:
    """Of the declared names those that may be the tenant's: without the ones that `jobs` know to be another's."""
    return None if declared is None else declared - {job.source.name for job in jobs if job.source.tenant != tenant}


def _let_go(
    tenant: str,
    pairs: Sequence[tuple[SourceJob, SourceReport]],
    workshop: Workshop,
    run_id: str,
    declared: frozenset[str] | None,
) -> None:
    """Before a full build, which may take hours: what may no longer be seen goes from the generation that is shown. Of a damaged one
    nothing can be taken, and it is not searched either; a source that fails is told by the build itself."""
    shown = _Tenant(tenant, workshop, run_id, full=False, dry_run=False, progress=None)
    if shown.current is None:
        return
    told = [(job, SourceReport(job.source.name, tenant)) for job, _ in pairs]
    try:
        shown.take_away(told, declared, any_model=True)
    except SourceError as error:
        if error.code not in DAMAGED:
            raise
    for (_, report), (_, first) in zip(pairs, told, strict=True):
        report.removed, report.relabelled = first.removed, first.relabelled
        report.revoked.extend(first.revoked)


def _states(
    workshop: Workshop, reports: Sequence[SourceReport], ended_us: int, outcome: RunOutcome, *, full: bool
) -> list[SourceState]:
    """How the run went over each source that it went through."""
    before = {(state.tenant, state.source): state for state in workshop.manifest.states()}
    states = []
    for report in reports:
        state = before.get((report.tenant, report.source), SourceState(report.tenant, report.source))
        if report.error is not None:
            states.append(replace(state, failures=state.failures + 1, code=report.error.code, failed_at_us=ended_us))
        elif report.made and (outcome == "done" or not full):
            states.append(replace(state, looked_at_us=report.looked_at_us, good_at_us=ended_us, failures=0, code=""))
    return states


def prepare_generation(
    tenant: str,
    pairs: Sequence[tuple[SourceJob, SourceReport]],
    workshop: Workshop,
    run_id: str,
    *,
    declared: frozenset[str],
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Bring the generation that `workshop.store` takes for current in step with all sources of a tenant, before `settle_generation`;
    the caller holds the lock. Raises where a source fails."""
    one = _Tenant(tenant, workshop, run_id, full=False, dry_run=False, progress=progress, unseen=True)
    one.take_away(pairs, declared)
    failed = next((report.error for _, report in pairs if report.error is not None), None)
    if failed is not None:
        raise failed
    one.make_shown()
    one.make_new()


def settle_generation(
    tenant: str,
    pairs: Sequence[tuple[SourceJob, SourceReport]],
    workshop: Workshop,
    run_id: str,
    *,
    declared: frozenset[str],
    refresh: Refresh | None = None,
) -> None:
    """The last look before that generation is shown, by sources, labels and removals of this moment. What could not be read anew is
    not left as it was. Raises where a source fails."""
    one = _Tenant(tenant, workshop, run_id, full=False, dry_run=False, progress=None, unseen=True, refresh=refresh)
    one.declared = declared
    one.look_again(pairs, unread=True)


def withdraw_access(
    tenant: str,
    pairs: Sequence[tuple[SourceJob, SourceReport]],
    workshop: Workshop,
    run_id: str,
    *,
    looked_us: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """Removals and labels alone, which need no model; the caller holds the lock. A failing source is reported. `looked_us` is when each
    source was last looked at, where that is later than the manifest knows. Returns the label digest of each document that is left."""
    one = _Tenant(tenant, workshop, run_id, full=False, dry_run=False, progress=None)
    one.looked_us.update(looked_us or {})
    one.shown = {info.document_id: info.label_digest for info in workshop.store.documents(tenant)}
    for pair in pairs:
        try:
            one.withdraw([pair])
        except (SourceError, UsageError) as error:
            pair[1].error = error
    return one.shown


def _clear_strangers(tenants: set[str], workshop: Workshop, faults: list[PointsmanError], *, dry_run: bool) -> list[SourceReport]:
    """Erase what is held for tenants of whom no source speaks any more: from every generation, since no run comes back to it."""
    reports: list[SourceReport] = []
    try:
        strangers = sorted(set(workshop.store.tenants()) - tenants)
    except PointsmanError as error:
        faults.append(error)
        strangers = []
    for tenant in strangers:
        try:
            reports += _clear_stranger(tenant, workshop, dry_run=dry_run)
        except PointsmanError as error:
            faults.append(error)
    return reports


def _clear_stranger(tenant: str, workshop: Workshop, *, dry_run: bool) -> list[SourceReport]:
    store, manifest = workshop.store, workshop.manifest
    held = list(store.documents(tenant))
    report = {info.source: SourceReport(info.source, tenant) for info in held}
    for info in held:
        report[info.source].removed += 1
    if dry_run:
        return list(report.values())
    rows = [row for name in manifest.generations(tenant) for row in manifest.rows(tenant, name)]
    if held:
        workshop.record(tenant, [LabelChange(info.source, info.document_id, info.label_digest, None, "gone") for info in held])
    if held or rows:
        store.forget(tenant, sorted({info.document_id for info in held} | {row.document_id for row in rows}))
        shown = [row for row in rows if row.generation == store.generation(tenant)]
        manifest.remove([], gone_rows(shown, workshop.now_us(), "withdrawn"))
        manifest.keep(tenant, [])
    return list(report.values())


def gone_rows(rows: Iterable[ManifestRow], at_us: int, cause: Literal["gone", "not_indexable", "withdrawn"]) -> list[Gone]:
    """What is to be remembered of documents that were shown; of a forgotten one that is nothing."""
    return [
        Gone(row.tenant, row.source, row.key, row.content_hash, at_us, cause)
        for row in rows
        if row.state in {"indexed", "writing"}
    ]


def summarise_run(run_id: str, began_us: int, ended_us: int, outcome: RunOutcome, reports: Sequence[SourceReport]) -> IndexRun:
    names = ("listed", "unchanged", "indexed", "relabelled", "removed", "chunks")
    summary = {name: sum(getattr(report, name) for report in reports) for name in names}
    summary["failures"] = sum(len(report.failures) for report in reports)
    revoked = Revocation.of(pair for report in reports for pair in report.revoked)
    if revoked.documents:
        summary |= {"revoked": revoked.documents, "revocation_p50_us": revoked.p50_us, "revocation_max_us": revoked.max_us}
    return IndexRun(run_id, began_us, ended_us, outcome, summary)


DAMAGED = frozenset({"store_corrupt", "store_unreadable"})
"""Codes of a store of which nothing can be read."""


def idle_generations(generations: Sequence[Generation]) -> list[tuple[str, str]]:
    """(name, why) of those that go: of builds that were cut off, and all but the latest before and the latest after the current one."""
    current = next((one.name for one in generations if one.current), "")
    earlier = sorted(
        (len(one.name), one.name) for one in generations if one.whole and (len(one.name), one.name) < (len(current), current)
    )
    superseded = {name for _, name in earlier[:-1]}
    later = sorted(
        (len(one.name), one.name) for one in generations if one.whole and (len(one.name), one.name) > (len(current), current)
    )
    aside = {name for _, name in later[:-1]} if current else set()
    found: list[tuple[str, str]] = []
    for one in generations:
        if not one.whole and not one.current:
            found.append((one.name, "was never finished, or cannot be read (a run that builds it now ends that)"))
        elif one.name in superseded:
            found.append((one.name, "is older than the previous one and was to be removed"))
        elif one.name in aside:
            found.append((one.name, "was kept aside before another one was"))
    return found


def clear_idle(tenant: str, workshop: Workshop) -> list[tuple[str, str]]:
    """Remove the generations that nobody can go to, in store and manifest, which the caller holds: nobody builds them. (name, why) of
    those that were there."""
    store, manifest = workshop.store, workshop.manifest
    held = store.generations(tenant)
    idle = dict(idle_generations(held))
    for name in idle:
        store.discard(tenant, name)
    kept = [one.name for one in held if one.name not in idle]
    unknown = set(manifest.generations(tenant)) - set(kept)
    if unknown:
        manifest.keep(tenant, kept)
    return [*idle.items(), *((name, "was known to the manifest alone") for name in sorted(unknown - idle.keys()))]


class _Tenant:
    """One tenant's partition during one run. `shown` is the label digest under which askers see a document now. Of a generation that is
    `unseen` nothing is remembered as removed, and no revocation is measured."""

    def __init__(
        self,
        tenant: str,
        workshop: Workshop,
        run_id: str,
        *,
        full: bool,
        dry_run: bool,
        progress: Callable[[Progress], None] | None,
        estimate: bool = False,
        judge: Judge | None = None,
        unseen: bool = False,
        refresh: Refresh | None = None,
    ) -> None:
        self.judge, self.unseen, self.refresh = judge, unseen, refresh
        self.declared: frozenset[str] | None = None
        self.estimate = estimate and dry_run
        self.tenant, self.workshop, self.run_id = tenant, workshop, run_id
        self.full, self.dry_run, self.progress = full, dry_run, progress
        self.current = workshop.store.generation(tenant)
        self.generation = self.current or ""
        self.shown: dict[str, str] = {}
        self.looked_us = {state.source: state.looked_at_us for state in workshop.manifest.states() if state.tenant == tenant}
        self._lines: list[_SourceLine] = []
        self._lost: list[DocumentInfo] = []
        self._pairs: Sequence[tuple[SourceJob, SourceReport]] = ()
        self.again: _Again | None = None
        self.again_us = 0
        self.fault: PointsmanError | None = None

    def take_away(
        self, pairs: Sequence[tuple[SourceJob, SourceReport]], declared: frozenset[str] | None, *, any_model: bool = False
    ) -> None:
        """Look at every source, and let go of what may no longer be seen; for that alone it does not matter who embedded it."""
        self._pairs, self.declared = pairs, declared
        names = {job.source.name for job, _ in pairs}
        before = self.workshop.manifest.rows(self.tenant, self.current) if self.current else []
        if self.full and declared is not None:  # what no source speaks for is not carried over
            names |= {row.source for row in before} - declared
        if not any_model:
            self._check_model(row for row in before if not self.full or row.source not in names)
        held = self._held(before, names)
        self.shown = {info.document_id: info.label_digest for of_source in held.values() for info in of_source.values()}
        if not self.dry_run:
            self._clear_idle()
            self._open_generation({*held, *(row.source for row in before)} - names)
        written = {} if self.full else held
        for job, report in pairs:
            rows = {row.key: row for row in before if row.source == job.source.name and not self.full}
            known = {row.key: row for row in before if row.source == job.source.name}
            line = _SourceLine(self, job, report, rows, written.get(job.source.name, {}), known)
            try:
                line.take_away()
            except _SourceFailed as failed:
                report.error = failed.error
                if self.full:
                    if not self.dry_run:
                        self.workshop.store.discard(self.tenant, self.generation)
                        clear_idle(self.tenant, self.workshop)
                    raise
            else:
                if line.survey.pending or job.scribe is not None or self.dry_run or self.full:
                    self._lines.append(line)
                report.made = not self._lines or self._lines[-1] is not line
        if self.full:
            self._lost = [info for name, of_source in held.items() if name in names for info in of_source.values()]
        elif declared is not None and not self.dry_run:
            self._drop_undeclared(declared | names, before, held)

    def make_shown(self) -> None:
        """What is shown and has changed: it may narrow itself."""
        for line in self._lines:
            line.make_shown()

    def make_new(self) -> None:
        """The rest; a full build is shown at its end."""
        for line in self._lines:
            line.make_new()
        if self.full and not self.dry_run:
            self._show(self._lost)

    def _held(self, before: Sequence[ManifestRow], names: set[str]) -> dict[str, dict[str, DocumentInfo]]:
        """What the store really holds, by source and document id.

        A full build of all that there is needs nothing of a damaged store: there the manifest says what was shown.
        """
        found: dict[str, dict[str, DocumentInfo]] = {}
        infos: Iterable[DocumentInfo] = ()
        try:
            infos = list(self.workshop.store.documents(self.tenant)) if self.current else ()
        except SourceError as error:
            if not self.full or error.code not in DAMAGED or {row.source for row in before} - names:
                raise
            infos = [
                DocumentInfo(row.source, row.document_id, row.chunks, row.label_digest)
                for row in before
                if row.state == "indexed"
            ]
        for info in infos:
            found.setdefault(info.source, {})[info.document_id] = info
        return found

    def _clear_idle(self) -> None:
        """What killed runs left."""
        if not self.unseen:
            clear_idle(self.tenant, self.workshop)

    def _open_generation(self, others: set[str]) -> None:
        store, manifest = self.workshop.store, self.workshop.manifest
        if self.full or self.current is None:
            self.generation = store.begin_generation(self.tenant, keep_sources=sorted(others))
            store.put(self.tenant, [], model=self.workshop.embedder.card, generation=self.generation)  # there, though empty
            manifest.copy(self.tenant, old=self.current or "", new=self.generation, sources=others)
        if self.current is None and not self.full:
            store.switch(self.tenant, self.generation)

    def _show(self, before: Sequence[DocumentInfo]) -> None:
        """Record what the new generation no longer shows, then show it, unless it is judged to be worse than the one that is shown."""
        store, manifest = self.workshop.store, self.workshop.manifest
        if self.current is None:
            self.look_again(self._pairs)
        elif not self._is_accepted(self.current):
            return
        kept = {row.document_id for row in manifest.rows(self.tenant, self.generation) if row.state in {"indexed", "kept"}}
        lost = [info for info in before if info.document_id not in kept and info.document_id in self.shown]
        self.record([LabelChange(info.source, info.document_id, info.label_digest, None, "gone") for info in lost])
        self.workshop.record_switch(Switched(self.tenant, self.current, self.generation, "built"))
        store.switch(self.tenant, self.generation)
        old = {row.document_id: row for row in manifest.rows(self.tenant, self.current or self.generation)}
        manifest.remove(
            [], gone_rows([old[info.document_id] for info in lost if info.document_id in old], self.workshop.now_us(), "gone")
        )
        manifest.keep(self.tenant, [one.name for one in store.generations(self.tenant)])

    def _is_accepted(self, current: str) -> bool:
        """Judged, and in step with its sources of this moment. What is not, or cannot be held against them now, is kept beside the
        shown one: it may have been paid for, and going to it looks again."""
        try:
            if self.judge is None or self.judge(self.tenant, current, self.generation):
                self.look_again(self._pairs)
                return True
        except PointsmanError as error:
            self._keep_aside()
            to = f"`pointsman index rollback --tenant {self.tenant} --to {self.generation}`"
            error.hint = (
                f"{error.hint or 'see the error'}; what was built is kept beside `{current}` and not shown: {to} shows it"
            )
            raise
        self._keep_aside()
        return False

    def _keep_aside(self) -> None:
        self.workshop.store.seal(self.tenant, self.generation)
        self.workshop.record_switch(Switched(self.tenant, self.current, self.generation, "kept_aside"))
        clear_idle(self.tenant, self.workshop)

    def look_again(self, pairs: Sequence[tuple[SourceJob, SourceReport]], *, unread: bool = False) -> None:
        """`withdraw`, by the sources of this moment; of one that is not the tenant's any more nothing is left in what will be shown."""
        declared, reports = self.declared, {job.source.name: report for job, report in pairs}
        if self.refresh is not None:
            now = self.refresh(Moment(tuple(job for job, _ in pairs), self.workshop, self.declared))
            self.workshop = replace(self.workshop, entity=now.workshop.entity)
            declared = None if declared is None or now.declared is None else declared & now.declared
            pairs = [(job, reports[job.source.name]) for job in now.jobs]
        names = {job.source.name for job, _ in pairs}
        gone = reports.keys() - names
        store, manifest = self.workshop.store, self.workshop.manifest
        held = [
            info
            for info in store.documents(self.tenant, generation=self.generation)
            if info.source in gone or (declared is not None and info.source not in declared | names)
        ]
        if held:
            store.delete(self.tenant, [info.document_id for info in held], generation=self.generation)
        sources = gone | {info.source for info in held}
        manifest.remove([row for row in manifest.rows(self.tenant, self.generation) if row.source in sources])
        self.withdraw(pairs, unread=unread)

    def withdraw(self, pairs: Sequence[tuple[SourceJob, SourceReport]], *, unread: bool = False) -> None:
        """Removals and labels of this moment, for a generation whose making took time. With `unread` also documents that were to be read
        anew and were not: their text may be another by now."""
        held: dict[str, dict[str, DocumentInfo]] = {}
        for info in self.workshop.store.documents(self.tenant, generation=self.generation):
            held.setdefault(info.source, {})[info.document_id] = info
        for job, report in pairs:
            rows = self.workshop.manifest.rows(self.tenant, self.generation, source=job.source.name)
            line = _SourceLine(self, job, report, {row.key: row for row in rows}, held.get(job.source.name, {}))
            line.withdraw(unread=unread)

    def catch_up(self) -> None:
        """What was taken away since the last look goes from the shown generation now; a source that cannot be looked at makes no more
        text. A full build says so at its end, when it looks again."""
        pairs = [
            (job, SourceReport(job.source.name, self.tenant))
            for job, report in self._pairs
            if report.error is None and getattr(job.documents, "quick", False)
        ]
        if not pairs or self.workshop.store.generation(self.tenant) is None:
            return
        began_us = self.workshop.now_us()
        looked_us = {report.source: max(report.looked_at_us, self.again_us) for _, report in self._pairs}
        try:
            seen = withdraw_access(self.tenant, pairs, self.workshop, self.run_id, looked_us=looked_us)
        except SourceError as error:
            if not self.full or error.code not in DAMAGED:
                raise
            return  # nothing can be taken from it, and it is not searched either
        self.again_us = began_us
        self.shown.clear()
        self.shown.update(seen)
        told = {job.source.name: report for job, report in pairs}
        for job, report in self._pairs:
            if (one := told.get(job.source.name)) is not None:
                report.removed += one.removed
                report.relabelled += one.relabelled
                report.revoked.extend(one.revoked)
                report.error = None if self.full else one.error
                if self.full and isinstance(one.error, Emptied):
                    raise one.error  # all that is still to be read of it would be taken for gone
        for line in self._lines:
            line.caught_up()

    def remember(self, rows: Iterable[ManifestRow], cause: Literal["gone", "not_indexable", "withdrawn"]) -> list[Gone]:
        return [] if self.unseen else gone_rows(rows, self.workshop.now_us(), cause)

    def _drop_undeclared(
        self, declared: frozenset[str] | set[str], before: Sequence[ManifestRow], held: Mapping[str, Mapping[str, DocumentInfo]]
    ) -> None:
        infos = [info for name, of_source in held.items() if name not in declared for info in of_source.values()]
        self.record([LabelChange(info.source, info.document_id, info.label_digest, None, "gone") for info in infos])
        if infos:
            self.workshop.store.delete(self.tenant, [info.document_id for info in infos], generation=self.generation)
        rows = [row for row in before if row.source not in declared]
        self.workshop.manifest.remove(rows, self.remember(rows, "withdrawn"))

    def _check_model(self, rows: Iterable[ManifestRow]) -> None:
        card = self.workshop.embedder.card
        if any(row.state in {"indexed", "kept"} and row.model_id != card.id for row in rows):
            raise UsageError(
                "model_changed", f"documents of this index were embedded by another model than `{card.id}`",
                "run `pointsman index --full` over all sources; it builds a new generation beside the old one",
            )  # fmt: skip

    def record(self, changes: Sequence[LabelChange]) -> None:
        if changes:
            self.workshop.record(self.tenant, changes)


class _Again:
    """Between two batches of a run that may take hours, labels and removals are looked at again, of every source that costs no more
    than a look at its files, and applied to what is shown before more text is read."""

    def __init__(self, tenants: Sequence[_Tenant]) -> None:
        self._tenants = tenants
        self._next_s = time.monotonic() + LOOK_AGAIN_S

    def is_due(self) -> bool:
        return time.monotonic() >= self._next_s

    def look(self) -> None:
        began_s = time.monotonic()
        for tenant in self._tenants:
            try:
                tenant.catch_up()
            except PointsmanError as error:
                tenant.fault = tenant.fault or error
        ended_s = time.monotonic()
        self._next_s = ended_s + max(LOOK_AGAIN_S, (ended_s - began_s) * (1 / LOOK_SHARE - 1))


class _SourceFailed(Exception):  # noqa: N818 (carries what happened out of one source)
    def __init__(self, error: SourceError | UsageError) -> None:
        super().__init__(str(error))
        self.error = error


class _SourceLine:
    """One source during one run. `held` is what the written generation holds of it when the run begins, `earlier` what the manifest
    says of the one that is shown."""

    def __init__(
        self,
        tenant: _Tenant,
        job: SourceJob,
        report: SourceReport,
        rows: Mapping[str, ManifestRow],
        held: Mapping[str, DocumentInfo],
        earlier: Mapping[str, ManifestRow] | None = None,
    ) -> None:
        self.tenant, self.workshop, self.report = tenant, tenant.workshop, report
        self.job, self.source, self.documents = job, job.source, job.documents
        self.rows, self.held = rows, held
        self.present = set(held)
        self.was_shown = any(row.state in {"indexed", "writing", "kept"} for row in (earlier or {}).values())
        self.looked_us = tenant.looked_us.get(job.source.name, 0)
        self.labeller = Labeller(self.workshop.entity, self.source, self.documents)
        self.keeper = Keeper(
            self.workshop,
            job,
            rows,
            earlier or {},
            tenant.shown,
            generation=tenant.generation,
            full=tenant.full,
            unseen=tenant.unseen,
        )
        self.survey = Survey()
        self.done, self.began_s = 0, 0.0

    def _look(self) -> Survey:
        """Hides what the source held where nothing stands in it any more, which is raised as its fault."""
        try:
            return survey_source(
                self.job,
                self.labeller,
                generation=self.tenant.generation,
                rows=self.rows,
                held=self.held,
                buried=self.workshop.manifest.buried(self.source.tenant, self.source.name),
                shown=self.was_shown,
            )
        except Emptied as emptied:
            if not self.tenant.dry_run:
                self.apply_relabels(emptied.hidden)
            raise

    def withdraw(self, *, unread: bool) -> None:
        """Raises `SourceError` where the source cannot be looked at."""
        survey = self.survey = self._look()
        doubtful = [entry for entry in survey.pending if unread and self._is_shown(entry)]
        unsaid = [
            Drop(f"{self.source.name}/{entry.key}", row, None, "not_indexable")
            for entry in doubtful
            if (row := self.rows.get(entry.key)) is None or row.state != "indexed" or has_changed(self.job, entry, row)
        ]
        self._apply(survey, unsaid)

    def _is_broken(self) -> bool:
        """Since a look between two batches: what it says of labels does not hold any more."""
        return self.report.error is not None

    def caught_up(self) -> None:
        """The sources were looked at again: what was found out before about labels that were relaxed is old."""
        if not self.tenant.full:
            self.present &= self.tenant.shown.keys()
            self.keeper.catch_up()

    def take_away(self) -> None:
        """Look at the source; what it no longer holds or shows otherwise goes at once."""
        self.report.looked_at_us = self.workshop.now_us()
        try:
            self.survey = self._look()
        except (SourceError, UsageError) as error:
            raise _SourceFailed(error) from None
        self._report_survey(self.survey)
        if not self.tenant.dry_run:
            self._apply(self.survey)
        if (
            self.job.keep_versions
        ):  # no text is replaced that cannot be kept; what may no longer be seen does not wait for the schema
            try:
                check_spans(self.workshop.entity)
            except UsageError as error:
                raise _SourceFailed(error) from None

    def _apply(self, survey: Survey, unsaid: Sequence[Drop] = ()) -> None:
        """What nobody may see any more, then labels; what a text was under when they changed is remembered first."""
        self.apply_relabels(survey.held_back)
        self.apply_drops([*survey.drops, *unsaid])
        self.workshop.manifest.write(self.keeper.mark_unread(survey))
        self.apply_relabels(survey.relabels)
        self.workshop.manifest.write(survey.corrected)

    def make_shown(self) -> None:
        """What is shown and may read otherwise now, with what was written for it since."""
        if self.tenant.dry_run:
            return
        if self.job.scribe is not None:
            self.job.scribe.collect()
        self.make_pending([entry for entry in self.survey.pending if self._is_shown(entry)])

    def make_new(self) -> None:
        """The rest; what is still to be written is sent when the source has been gone through."""
        scribe, survey = self.job.scribe, self.survey
        if not self.tenant.dry_run:
            self.make_pending([entry for entry in survey.pending if not self._is_shown(entry)])
            if self._is_broken():
                return
            there = survey.entries.keys() | {failure.key for failure in survey.failures}
            self.workshop.manifest.write(self._put_versions(self.keeper.left_behind(there)))
            self.report.made = True
            if scribe is not None:
                scribe.submit(self.tenant.run_id)
                scribe.prune(self.source.name, [f"{self.source.name}/{key}" for key in survey.entries])
        elif self.tenant.estimate and (scribe is not None or self.tenant.workshop.hosted is not None):
            self.report.estimate, self.report.embedding = self._maker().estimate(self.documents, survey.pending)

    def _is_shown(self, entry: Entry) -> bool:
        return f"{self.source.name}/{entry.key}" in self.held

    def _report_survey(self, survey: Survey) -> None:
        report = self.report
        report.listed, report.unchanged = len(survey.entries), survey.unchanged
        report.failures, report.notes = list(survey.failures), list(survey.notes)
        if self.tenant.dry_run:
            report.indexed, report.relabelled = len(survey.pending), len(survey.relabels) + len(survey.held_back)
            report.removed = sum(drop.document_id in self.present for drop in survey.drops)

    def apply_drops(self, drops: Sequence[Drop]) -> None:
        """Record, then the store, then the manifest, which remembers what was there. What was kept of a document goes, or is held back,
        before it."""
        self.apply_relabels(self.keeper.held_back(drops))
        for batch in _batches(self.keeper.with_versions(drops), BATCH_LABELS):
            there = [drop for drop in batch if drop.document_id in self.present]
            self.tenant.record(
                [
                    LabelChange(self.source.name, drop.document_id, self.tenant.shown.get(drop.document_id), None, drop.cause)
                    for drop in there
                ]
            )
            if there:
                ids = [drop.document_id for drop in there]
                self.workshop.store.delete(self.tenant.tenant, ids, generation=self.tenant.generation)
                self._erase([drop.document_id for drop in there if drop.cause == "forgotten"])
                self.present.difference_update(ids)
                for document_id in ids:
                    self.tenant.shown.pop(document_id, None)
                self._measure([self._changed_us(drop.document_id) for drop in there])
            manifest = self.workshop.manifest
            gone = [drop.before for drop in batch if drop.before is not None and drop.after is None]
            manifest.remove(gone, self.tenant.remember(gone, "gone"))
            kept_out = [drop.before for drop in there if drop.before is not None and drop.cause == "not_indexable" and drop.after]
            manifest.write(
                [drop.after for drop in batch if drop.after is not None], self.tenant.remember(kept_out, "not_indexable")
            )
            self.report.removed += len(there)

    def _erase(self, ids: Sequence[str]) -> None:
        """What `index forget` was kept from: the traces, and what other generations hold. Where that fails nobody is shown it any more,
        and `index verify` tells what is left."""
        if ids and not self.tenant.unseen:
            with contextlib.suppress(SourceError):
                self.workshop.store.forget(self.tenant.tenant, ids)

    def _changed_us(self, document_id: str) -> int:
        """When what the source says of it last changed, where it still speaks of it."""
        entry = self.survey.entries.get(document_id.removeprefix(f"{self.source.name}/"))
        return self.documents.labels(entry).changed_us if entry is not None else 0

    def _measure(self, changed_us: Iterable[int]) -> None:
        """What the store shows from now on was otherwise when the source was last looked at, so the change came after that."""
        if self.tenant.unseen:
            return
        now_us = self.workshop.now_us()
        taken = Counter(max(0, now_us - since) for one in changed_us if (since := max(one, self.looked_us)))
        self.report.revoked.extend(sorted(taken.items()))

    def apply_relabels(self, relabels: Sequence[Relabel]) -> None:
        """Record, then the store, then the manifest; text and vectors stay."""
        for batch in _batches(relabels, BATCH_LABELS):
            shown = self.tenant.shown
            self.tenant.record(
                [
                    LabelChange(
                        self.source.name, item.row.document_id, shown.get(item.row.document_id), item.digest, "relabelled"
                    )
                    for item in batch
                ]
            )
            labels = {item.row.document_id: item.labels for item in batch}
            self.workshop.store.relabel(self.tenant.tenant, labels, generation=self.tenant.generation)
            digests = {item.row.key: item.digest for item in batch}
            self.workshop.manifest.relabel(self.tenant.tenant, self.tenant.generation, self.source.name, digests)
            shown.update((item.row.document_id, item.digest) for item in batch)
            self._measure([self._changed_us(item.row.document_id) for item in batch])
            self.report.relabelled += len(batch)

    def make_pending(self, pending: Sequence[Entry]) -> None:
        if not pending or self._is_broken():
            return
        maker = self._maker()
        batch: list[Outcome] = []
        self.began_s = self.began_s or time.monotonic()
        with contextlib.closing(maker.make(self.documents, pending)) as outcomes:
            for outcome in outcomes:
                batch.append(outcome)
                self.done += 1
                again = self.tenant.again if self.tenant.again is not None and self.tenant.again.is_due() else None
                if again is not None or len(batch) >= BATCH_DOCUMENTS or _chunks(batch) >= BATCH_CHUNKS:
                    self._flush(batch)
                    batch = []
                if again is not None:
                    again.look()
                    if self.tenant.fault is not None:
                        raise self.tenant.fault
                    if self._is_broken():
                        break
                if self.tenant.progress is not None:
                    chunks, elapsed_s = self.report.chunks + _chunks(batch), time.monotonic() - self.began_s
                    self.tenant.progress(Progress(self.source.name, self.done, len(self.survey.pending), chunks, elapsed_s))
        self._flush(batch)
        self.report.notes.extend(maker.notes)

    def _maker(self) -> Maker:
        survey = self.survey
        written = {row.key: row for row in survey.corrected}
        written.update({item.row.key: replace(item.row, label_digest=item.digest) for item in survey.relabels})
        return Maker(
            self.workshop,
            self.job,
            self.labeller,
            generation=self.tenant.generation,
            run_id=self.tenant.run_id,
            entries=survey.entries,
            rows={**self.rows, **written},
            present=frozenset(info.document_id for info in self.held.values() if info.chunks == self._chunks(info)),
            lenient=not self.tenant.full,
        )

    def _chunks(self, info: DocumentInfo) -> int:
        row = self.rows.get(info.document_id.removeprefix(f"{self.source.name}/"))
        return row.chunks if row is not None else -1

    def _flush(self, batch: Sequence[Outcome]) -> None:
        """Intent, record, store, manifest: a crash between any two leaves rows that the next run does again."""
        made = [item for item in batch if isinstance(item, Made)]
        lost = [item for item in batch if isinstance(item, Lost)]
        for item in lost:
            into = self.report.notes if item.reason == "forgotten" else self.report.failures
            into.append(Failure(item.entry.key, item.reason, item.detail))
        self.apply_drops([Drop(item.row.document_id, None, item.row, _cause(item)) for item in lost if item.row is not None])
        self._put(made)
        shown = self.tenant.shown  # labels may have changed, or the document may have gone, since the rows were read
        known = [
            replace(item.row, label_digest=shown[item.row.document_id], reason="")
            for item in batch
            if isinstance(item, Known) and item.row.document_id in shown
        ]
        self.report.unchanged += sum(row.label_digest == self.rows[row.key].label_digest for row in known)
        self.workshop.manifest.write([*known, *(item.row for item in made)])

    def _put(self, made: Sequence[Made]) -> None:
        if not made:
            return
        kept = self._keep_versions(made)
        self.workshop.manifest.write([*kept, *(replace(item.row, state="writing") for item in made)])
        shown = self.tenant.shown
        changes = [
            LabelChange(self.source.name, item.row.document_id, old, item.row.label_digest, "changed" if old else "indexed")
            for item in made
            if (old := shown.get(item.row.document_id)) != item.row.label_digest
        ]
        self.tenant.record(changes)
        self.workshop.store.put(
            self.tenant.tenant,
            [item.document for item in made],
            model=self.workshop.embedder.card,
            generation=self.tenant.generation,
        )
        entries = {item.row.document_id: item.entry for item in made}
        self._measure([entries[change.document_id].changed_us for change in changes if change.old is not None])
        self.present.update(item.row.document_id for item in made)
        self.apply_relabels([relabel for item in made for relabel in self.keeper.follow(item, after=True)[1]])
        self.report.indexed += len(made)
        self.report.chunks += _chunks(made)
        self.report.made_chunks.update((item.row.key, item.row.chunks) for item in made)

    def _keep_versions(self, made: Sequence[Made]) -> list[ManifestRow]:
        """What is about to be replaced is put beside it first, and earlier versions are brought under the new labels. Nothing that a
        crash leaves half done is taken for kept: without its row a version is removed by the next run, which keeps it again."""
        follow = [self.keeper.follow(item) for item in made]
        self.apply_drops([drop for drops, _ in follow for drop in drops])
        self.apply_relabels([relabel for _, relabels in follow for relabel in relabels])
        return self._put_versions([version for item in made for version in self.keeper.versions_beside(item)])

    def _put_versions(self, versions: Sequence[tuple[ManifestRow, IndexedDocument]]) -> list[ManifestRow]:
        self.report.notes.extend(self.keeper.notes)
        self.keeper.notes.clear()
        if not versions:
            return []
        shown = self.tenant.shown
        self.tenant.record(
            [
                LabelChange(self.source.name, row.document_id, old, row.label_digest, "kept")
                for row, _ in versions
                if (old := shown.get(row.document_id)) != row.label_digest
            ]
        )
        self.workshop.store.put(
            self.tenant.tenant,
            [document for _, document in versions],
            model=self.workshop.embedder.card,
            generation=self.tenant.generation,
        )
        self.present.update(row.document_id for row, _ in versions)
        shown.update((row.document_id, row.label_digest) for row, _ in versions)
        return [row for row, _ in versions]


def _cause(item: Lost) -> Literal["forgotten", "not_indexable"]:
    return "forgotten" if item.reason == "forgotten" else "not_indexable"


def _chunks(batch: Iterable[Outcome]) -> int:
    return sum(item.row.chunks for item in batch if isinstance(item, Made))


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
