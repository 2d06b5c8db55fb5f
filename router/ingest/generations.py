"""Going back to another generation of a tenant's documents: `index rollback`.

What a generation says of access is as old as itself. So it is brought in step with the sources while nobody sees it (removals,
labels, forgotten contents, documents that changed since), in the very line that an ordinary run goes, and shown only then.

INVARIANT: no going back shows anybody what the labels of now deny, whatever changed since
(tests/unit/test_generations.py::test_nothing_denied_comes_back).
INVARIANT: what is shown again goes by sources and labels of the moment before it is, however long the way back took
(tests/unit/test_generations.py::test_sources_that_change_on_the_way_back).
INVARIANT: whatever the moment of a crash, askers see the one generation or the other, whole, and going back can be begun again
(tests/unit/test_generations.py::test_crash_anywhere_on_the_way_back, tests/faults/test_killed_maintenance.py::test_kill_on_the_way_back).
INVARIANT: every document that is shown otherwise than before is on record before it is
(tests/unit/test_generations.py::test_what_changes_is_on_record_first).
INVARIANT: vectors of two models never meet (tests/unit/test_generations.py::test_another_model_is_not_gone_back_to).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from router.domain import Generation, LabelChange, ManifestRow, Switched
from router.errors import SourceError, UsageError
from router.ingest.build import Moment, Refresh, gone_rows, prepare_generation, settle_generation, summarise_run
from router.ingest.keep import drop_versions
from router.ingest.workshop import Failure, Progress, SourceJob, SourceReport, Workshop
from router.ports import DocumentInfo

BATCH_LABELS = 1_000


@dataclass(frozen=True, slots=True)
class RolledBack:
    """`sources` are what had to be done to `now` before it could be shown, `changes` how many documents are shown otherwise."""

    tenant: str
    before: str
    now: str
    sources: tuple[SourceReport, ...]
    changes: int


def roll_back(
    jobs: Sequence[SourceJob],
    tenant: str,
    workshop: Workshop,
    *,
    to: str | None = None,
    declared: frozenset[str],
    progress: Callable[[Progress], None] | None = None,
    refresh: Refresh | None = None,
) -> RolledBack:
    """Show the latest whole generation before the current one, or `to`, after it was brought in step with all sources of the tenant,
    which `jobs` are (`declared` their names); `refresh` gives them as they are. The one that was shown is kept.
    Raises `UsageError` where there is none that can be shown, `SourceError` where a source cannot be looked at; nothing has changed
    for askers then."""
    store, run_id, began_us = workshop.store, uuid.uuid4().hex, workshop.now_us()
    with workshop.manifest.exclusive():
        if refresh is not None:
            now = refresh(Moment(tuple(jobs), workshop, declared))
            jobs, workshop, declared = now.jobs, now.workshop, declared if now.declared is None else declared & now.declared
        reports = [SourceReport(job.source.name, tenant) for job in jobs]
        pairs = list(zip(jobs, reports, strict=True))
        current, target = _choose(store.generations(tenant), tenant, to)
        _check_model(target, workshop)
        _check_pipelines(workshop.manifest.rows(tenant, target.name), jobs, target)
        with store.pinned(tenant, target.name) as view:
            hidden = replace(workshop, store=view, record=_unseen, record_switch=_unseen)
            view.mend(tenant)
            let_go = drop_versions(tenant, hidden, current.name)
            prepare_generation(tenant, pairs, hidden, run_id, declared=declared, progress=progress)
            if faults := view.verify(tenant):
                raise SourceError(
                    "generation_damaged",
                    f"generation `{target.name}` is damaged: {faults[0]}",
                    "build anew with `pointsman index --full`",
                )
            settle_generation(tenant, pairs, hidden, run_id, declared=declared, refresh=refresh)
            _tell(let_go, reports, current.name)
            after = {info.document_id: info for info in view.documents(tenant)}
        changes = _changes(_shown(workshop, tenant, current.name), after)
        for at in range(0, len(changes), BATCH_LABELS):
            workshop.record(tenant, changes[at : at + BATCH_LABELS])
        figures = {"documents": len(changes), **({"versions_let_go": len(let_go)} if let_go else {})}
        workshop.record_switch(Switched(tenant, current.name, target.name, "rolled_back", figures))
        lost = {change.document_id for change in changes if change.new is None}
        gone = [row for row in workshop.manifest.rows(tenant, current.name) if row.document_id in lost]
        store.switch(tenant, target.name)
        workshop.manifest.remove([], gone_rows(gone, workshop.now_us(), "gone"))
        workshop.manifest.keep(tenant, [one.name for one in store.generations(tenant)])
        with contextlib.suppress(SourceError):
            workshop.manifest.note_run(summarise_run(run_id, began_us, workshop.now_us(), "done", reports))
    return RolledBack(tenant, current.name, target.name, tuple(reports), len(changes))


def _tell(let_go: Sequence[ManifestRow], reports: Sequence[SourceReport], shown: str) -> None:
    why = f"an earlier version was let go: `{shown}`, which was shown, does not hold it, and may have let go of it for a reason"
    for report in reports:
        keys = [row.key for row in let_go if row.source == report.source]
        report.notes.extend(Failure(key, "version_not_kept", why) for key in keys)


def _unseen(*_: object) -> None:
    """What changes in a generation that nobody sees is no change of what anybody may see."""


def _choose(generations: Sequence[Generation], tenant: str, to: str | None) -> tuple[Generation, Generation]:
    current = next((one for one in generations if one.current), None)
    if current is None:
        raise SourceError("store_missing", f"nothing has been indexed for `{tenant}` yet", "run `pointsman index`")
    others = {one.name: one for one in generations if one.whole and not one.current}
    known = ", ".join(sorted(others)) or "none"
    if to is None:
        earlier = [one for one in others.values() if _number(one) < _number(current)]
        if not earlier:
            forward = (
                f"`--to` goes to {known}" if others else "the next `pointsman index --full` keeps this one as the previous one"
            )
            raise UsageError("generation_none", f"`{tenant}` has no generation before `{current.name}`", forward)
        return current, max(earlier, key=_number)
    if to == current.name:
        raise UsageError("generation_current", f"generation `{to}` is the one that is shown", f"whole ones beside it: {known}")
    if to not in others:
        raise UsageError(
            "generation_unknown", f"`{tenant}` has no whole generation `{to}` beside the shown one", f"there is: {known}"
        )
    return current, others[to]


def _number(one: Generation) -> int:
    return int(one.name.removeprefix("g-"))


def _check_model(target: Generation, workshop: Workshop) -> None:
    card = workshop.embedder.card
    if target.model_id not in (None, card.id):
        raise UsageError(
            "model_changed",
            f"generation `{target.name}` holds vectors of `{target.model_id}`, the configuration names `{card.id}`",
            "set `[models] embedder` back to that model first, then roll back",
        )


def _check_pipelines(rows: Sequence[ManifestRow], jobs: Sequence[SourceJob], target: Generation) -> None:
    """What was made otherwise than the configuration says, the next run would make anew: going back would go nowhere."""
    wanted = {job.source.name: job for job in jobs}
    for row in rows:
        job = wanted.get(row.source)
        if row.state != "indexed" or job is None:
            continue
        made = row.pipeline.partition("+partly.")[0].removesuffix("+local")
        if made != job.pipeline:
            raise UsageError(
                "generation_outdated",
                f"generation `{target.name}` was made with `{made}` for source `{row.source}`, the configuration makes `{job.pipeline}`",
                f"set `contexts` of `[sources.{row.source}]` back first (the first number is the parser's, of this version of pointsman)",
            )


def _shown(workshop: Workshop, tenant: str, current: str) -> dict[str, DocumentInfo]:
    """What askers see now; of a store that cannot be read any more, what the manifest says."""
    try:
        return {info.document_id: info for info in workshop.store.documents(tenant)}
    except SourceError:
        rows = [row for row in workshop.manifest.rows(tenant, current) if row.state == "indexed"]
        return {row.document_id: DocumentInfo(row.source, row.document_id, row.chunks, row.label_digest) for row in rows}


def _changes(before: dict[str, DocumentInfo], after: dict[str, DocumentInfo]) -> list[LabelChange]:
    """Removals first."""
    gone = [
        LabelChange(info.source, name, info.label_digest, None, "rolled_back")
        for name, info in sorted(before.items())
        if name not in after
    ]
    others = [
        LabelChange(info.source, name, old, info.label_digest, "rolled_back")
        for name, info in sorted(after.items())
        if (old := before[name].label_digest if name in before else None) != info.label_digest
    ]
    return gone + others
