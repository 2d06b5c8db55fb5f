"""Bringing manifest, stores and sources in step again: `index verify --repair`.

What can be derived is made anew, what is in doubt is removed and made again from its source by the ordinary run that follows, which
also does everything that `verify` names of documents. Nothing is ever shown under labels that its source does not give it now.

INVARIANT: repairing never widens, and a second repair finds nothing to do (tests/unit/test_repair.py::test_each_difference_is_repaired,
::test_repairing_never_widens).
INVARIANT: it goes by the sources as they are once it holds the lock, not as they were when it began to look
(tests/unit/test_comparison.py::test_a_repair_goes_by_the_sources_of_the_moment).
INVARIANT: whatever the moment of a crash, the store is whole and the next repair ends it (tests/unit/test_repair.py::
test_crash_anywhere_while_repairing, tests/faults/test_killed_maintenance.py::test_kill_while_repairing).
INVARIANT: a document that is removed for contradicting itself is on record before it is (tests/unit/test_repair.py::test_what_is_removed_is_on_record).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from router.domain import LabelChange
from router.ingest.build import DAMAGED, Moment, Refresh, clear_idle, index_sources, withdraw_access
from router.ingest.reconcile import Finding, erase, forgotten_left, verify_index
from router.ingest.workshop import IndexReport, Progress, SourceJob, SourceReport, Workshop


@dataclass(frozen=True, slots=True)
class Repaired:
    """`found` before and `left` after; `done` is what was done to the stores themselves, in words, by tenant. `report` is of the
    run over the sources that followed."""

    found: tuple[Finding, ...]
    left: tuple[Finding, ...]
    done: tuple[tuple[str, str], ...]
    report: IndexReport

    @property
    def repaired(self) -> tuple[Finding, ...]:
        """What was found and is no more."""
        return tuple(finding for finding in self.found if finding not in self.left)


def repair_index(
    jobs: Sequence[SourceJob],
    workshop: Workshop,
    *,
    declared: frozenset[str],
    progress: Callable[[Progress], None] | None = None,
    refresh: Refresh | None = None,
) -> Repaired:
    """`jobs` are all sources, `declared` their names; `refresh` gives them as they are. A tenant
    whose store cannot be read is left alone; one that another model built
    is made to show no more than its sources say now, and is otherwise left to `index --full`."""
    found = verify_index(jobs, workshop)
    unreadable = frozenset(finding.tenant for finding in found if finding.kind in DAMAGED)
    foreign = frozenset(finding.tenant for finding in found if finding.kind == "other_model") - unreadable
    done: list[tuple[str, str]] = []
    with workshop.manifest.exclusive():
        if refresh is not None:
            now = refresh(Moment(tuple(jobs), workshop, declared))
            jobs, workshop, declared = now.jobs, now.workshop, declared if now.declared is None else now.declared
        for tenant in dict.fromkeys([*workshop.store.tenants(), *(job.source.tenant for job in jobs)]):
            if tenant not in unreadable:
                done += [(tenant, words) for words in _repair_store(tenant, workshop)]
            if tenant in foreign:
                its = [(job, SourceReport(job.source.name, tenant)) for job in jobs if job.source.tenant == tenant]
                withdraw_access(tenant, its, workshop, uuid.uuid4().hex)
    left_alone = unreadable | foreign
    rest = [job for job in jobs if job.source.tenant not in left_alone]
    declared -= {job.source.name for job in jobs if job.source.tenant in left_alone}
    report = index_sources(rest, workshop, declared=declared, elsewhere=left_alone, progress=progress, refresh=refresh)
    if refresh is not None:
        now = refresh(Moment(tuple(jobs), workshop, declared))
        jobs, workshop = now.jobs, now.workshop
    return Repaired(tuple(found), tuple(verify_index(jobs, workshop)), tuple(done), report)


def _repair_store(tenant: str, workshop: Workshop) -> list[str]:
    """What no run over the sources does. The caller holds the lock, so nothing is being built."""
    store = workshop.store
    done: list[str] = []
    for name, why in clear_idle(tenant, workshop):
        done.append(f"generation `{name}` was removed: it {why.partition(' (')[0]}")
    left = sorted({document_id for document_id, _ in forgotten_left(tenant, store.generations(tenant), workshop)})
    if store.generation(tenant) is not None:
        done += _mend(tenant, workshop)  # before anything is erased, which reads the index of words
    if left:
        _, let_go = erase(tenant, left, workshop)
        done.append(f"forgotten documents were erased ({len(left)})")
        done += [f"generation `{name}` was removed: it was damaged" for name in let_go]
    return done


def _mend(tenant: str, workshop: Workshop) -> list[str]:
    store = workshop.store
    doubtful = set(store.doubtful(tenant))
    changes = [
        LabelChange(info.source, info.document_id, info.label_digest, None, "repaired")
        for info in (store.documents(tenant) if doubtful else ())
        if info.document_id in doubtful
    ]
    if changes:
        workshop.record(tenant, changes)
    return store.mend(tenant)
