"""How fresh an index is: what its sources hold, and it does not yet. Looks at the sources as a run would, and reads no document.

INVARIANT: an index that has just been brought up to date lacks nothing, and what a run would do is told before it
(tests/unit/test_ingest_freshness.py::test_what_a_run_would_do).
INVARIANT: of a source that cannot be looked at quickly, or not at all now, nothing is guessed
(tests/unit/test_ingest_freshness.py::test_what_cannot_be_told).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from router.domain import Entry, ManifestRow, Source, SourceState
from router.errors import PointsmanError
from router.filters import EntityType
from router.ingest.blocks import TRANSIENT
from router.ingest.survey import Labeller, Survey, survey_source
from router.ingest.workshop import SourceJob
from router.ports import DocStore, DocumentInfo, Manifest

UNTOLD = "not_quick"
"""The source has to be read to know what changed."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """What the index lacks of one source. `changes` is None where that cannot be told, and `untold` is then why: `not_quick`, or the
    code of what is wrong with the source now. Times are in microseconds, 0 where unknown: of the newest and the oldest change that is
    not indexed, of the last good run, and of the last that failed, `failures` of them since the good one."""

    source: str
    tenant: str
    changes: int | None
    untold: str
    newest_us: int
    oldest_us: int
    good_at_us: int
    failures: int
    code: str
    failed_at_us: int

    def lag_us(self, now_us: int) -> int:
        """How long the oldest change waits; where changes cannot be told, how long ago all of the source was seen."""
        since = self.oldest_us if self.changes is not None else self.good_at_us
        return max(0, now_us - since) if since else 0


def measure_freshness(
    sources: Sequence[Source],
    jobs: Iterable[SourceJob],
    faults: Mapping[str, PointsmanError],
    *,
    store: DocStore,
    manifest: Manifest,
    entity: EntityType,
) -> list[Freshness]:
    """Of every source, in the order given. `faults` are of sources that could not even be opened."""
    states = {(state.tenant, state.source): state for state in manifest.states()}
    by_name = {job.source.name: job for job in jobs}
    held: dict[str, list[DocumentInfo]] = {}
    found = []
    for source in sources:
        state = states.get((source.tenant, source.name), SourceState(source.tenant, source.name))
        job, fault = by_name.get(source.name), faults.get(source.name)
        if job is None or fault is not None:
            found.append(_untold(source, state, fault.code if fault is not None else UNTOLD))
        elif not getattr(job.documents, "quick", False):
            found.append(_untold(source, state, UNTOLD))
        else:
            if source.tenant not in held:
                held[source.tenant] = list(store.documents(source.tenant)) if store.generation(source.tenant) else []
            infos = {info.document_id: info for info in held[source.tenant] if info.source == source.name}
            found.append(_of_source(job, state, infos, store.generation(source.tenant) or "", manifest, entity))
    return found


def _untold(source: Source, state: SourceState, why: str) -> Freshness:
    return Freshness(source.name, source.tenant, None, why, 0, 0, *_of_state(state))


def _of_state(state: SourceState) -> tuple[int, int, str, int]:
    return state.good_at_us, state.failures, state.code, state.failed_at_us


def _of_source(
    job: SourceJob,
    state: SourceState,
    held: Mapping[str, DocumentInfo],
    generation: str,
    manifest: Manifest,
    entity: EntityType,
) -> Freshness:
    source = job.source
    rows = {row.key: row for row in manifest.rows(source.tenant, generation, source=source.name)} if generation else {}
    labeller = Labeller(entity, source, job.documents)
    buried = manifest.buried(source.tenant, source.name)
    try:
        survey = survey_source(job, labeller, generation=generation, rows=rows, held=held, buried=buried)
        times = list(_changes(job, survey, rows, held, state.looked_at_us))
    except PointsmanError as error:
        return _untold(source, state, error.code)
    known = [since for since in times if since]
    return Freshness(source.name, source.tenant, len(times), "", max(known, default=0), min(known, default=0), *_of_state(state))


def _changes(
    job: SourceJob, survey: Survey, rows: Mapping[str, ManifestRow], held: Mapping[str, DocumentInfo], looked_us: int
) -> Iterator[int]:
    """When each change happened, 0 where nobody knows. What is otherwise than at the last look came after it."""
    name = job.source.name
    for drop in survey.drops:
        if drop.document_id in held:
            yield looked_us
    relabels = [item for item in survey.relabels if item.row.key in survey.entries]  # kept versions follow their documents
    taken = {item.row.key for item in relabels}
    for item in relabels:
        yield max(job.documents.labels(survey.entries[item.row.key]).changed_us, looked_us)
    for entry in survey.pending:
        row = rows.get(entry.key)
        if entry.key in taken:
            continue
        if row is None:
            yield max(entry.changed_us, looked_us)
        elif _waits(entry, row, f"{name}/{entry.key}" in held, looked_us):
            yield entry.changed_us or looked_us


def _waits(entry: Entry, row: ManifestRow, held: bool, looked_us: int) -> bool:
    """Whether the source holds something that the index does not: not so where only parser or contexts are newer, nor where a file was
    read so soon after it was written that the next run looks at it again."""
    if (row.state == "indexed" and not held) or row.state == "writing" or row.reason in TRANSIENT:
        return True
    if row.fingerprint or not entry.changed_us:
        return row.fingerprint != entry.fingerprint
    return entry.changed_us > (row.indexed_at_us if row.state == "indexed" else looked_us)
