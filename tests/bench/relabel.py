"""A label change of 1,000 documents over the bare update transaction, with detection (listing, rules) apart.

The product records every change in the ledger in one commit, relabels the store and writes the manifest. By hand: two UPDATE
statements a document, in one durable transaction on a copy of the store.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from router.app import Router
from router.domain import IndexedDocument, ManifestRow
from router.ingest.build import _SourceLine, _Tenant
from router.ingest.survey import Labeller, Survey, survey_source
from router.ingest.workshop import SourceJob, SourceReport
from tests.bench import worlds
from tests.bench.incremental import CARD, TINY, open_workshop
from tests.bench.measure import Figure, run_pairs
from tests.bench.search import traced

BAR = 3.0
DOCUMENTS, CHUNKS, PAIRS = 1_000, 5, 21
GROUPS = ("dev:g060", "dev:g061")


def run(folder: Path) -> Iterator[Figure]:
    settings = worlds.write_world(folder / "world")
    pages = settings.folder / "pages"
    for number in range(DOCUMENTS):
        (pages / f"page-{number:04d}.md").write_text("text", encoding="utf-8")
    _write_rules(pages, GROUPS[0])
    with Router(settings) as router:
        _fill(router)
        change = _Changes(router, pages)
        with traced() as trace:
            change.apply(0)
            there = _updates(trace.statements)
            trace.statements.clear()
            change.apply(1)
            back = _updates(trace.statements)
        bare = _Bare(Path(trace.path), folder / "copy.sqlite", (there, back))
        pairs = run_pairs(change.apply, bare.apply, PAIRS * 2, warm=2)
        note = f"{len(there)} UPDATE statements by hand"
    yield pairs.figure("relabel 1,000", "record, store, manifest : bare update transaction", BAR, note=note)


class _Changes:
    """The same thousand documents from one label to the other and back, without the detection that comes before."""

    def __init__(self, router: Router, pages: Path) -> None:
        self._router = router
        self._job: SourceJob = router.jobs(["manuals"])[0]
        self._tenant = _Tenant(worlds.TENANT, open_workshop(router), "run", full=False, dry_run=False, progress=None)
        infos = list(router.store.documents(worlds.TENANT))
        self._tenant.shown = {info.document_id: info.label_digest for info in infos}
        self._surveys = (self._survey(pages, GROUPS[1]), None)
        self._apply(self._surveys[0])
        self._surveys = (self._surveys[0], self._survey(pages, GROUPS[0]))
        self._apply(self._surveys[1])

    def apply(self, at: int) -> None:
        self._apply(self._surveys[at % 2])

    def _apply(self, survey: Survey | None) -> None:
        assert survey is not None
        report = SourceReport("manuals", worlds.TENANT)
        _SourceLine(self._tenant, self._job, report, {}, {}).apply_relabels(survey.relabels)
        assert report.relabelled == DOCUMENTS

    def _survey(self, pages: Path, group: str) -> Survey:
        _write_rules(pages, group)
        workshop, job = self._router.workshop, self._router.jobs(["manuals"])[0]
        generation = workshop.store.generation(worlds.TENANT) or ""
        survey = survey_source(
            job,
            Labeller(workshop.entity, job.source, job.documents),
            generation=generation,
            rows={row.key: row for row in workshop.manifest.rows(worlds.TENANT, generation)},
            held={info.document_id: info for info in workshop.store.documents(worlds.TENANT)},
            buried=frozenset(),
            now_ms=workshop.now_us() // 1000,
        )
        assert len(survey.relabels) == DOCUMENTS
        return survey


def _updates(statements: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """What the product moves in sets, document by document, as one would write it by hand."""
    moved = [bound for sql, bound in statements if sql.lstrip().upper().startswith("UPDATE DOCUMENT")]
    return [
        (sql, (lid, did))
        for lid, dids in moved
        for did in json.loads(dids)
        for sql in (
            "UPDATE document SET lid = ?1 WHERE did = ?2",
            "UPDATE cn SET lid = ?1 WHERE rid IN (SELECT rid FROM chunk WHERE did = ?2)",
        )
    ]


class _Bare:
    """The captured statements in one durable transaction on a copy of the store."""

    def __init__(self, path: Path, copy: Path, calls: tuple[list[tuple[str, Any]], list[tuple[str, Any]]]) -> None:
        with sqlite3.connect(path) as old:
            old.execute("VACUUM INTO ?", (str(copy),))
        self._con = apsw.Connection(str(copy))
        # One by one: a statement behind one that returns a row would not be run.
        for setting in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "cache_size = -65536"):
            self._con.execute(f"PRAGMA {setting}").fetchall()
        self._calls = calls

    def apply(self, at: int) -> None:
        self._con.execute("BEGIN IMMEDIATE")
        for sql, bound in self._calls[at % 2]:
            self._con.execute(sql, bound)
        self._con.execute("COMMIT")


def _write_rules(pages: Path, group: str) -> None:
    text = f'rules:\n  - {{ match: "**", groups: ["{group}"], sensitivity: internal }}\n'
    (pages / "labels.yaml").write_text(text, encoding="utf-8")


def _fill(router: Router) -> None:
    job, workshop = router.jobs(["manuals"])[0], open_workshop(router)
    labeller = Labeller(workshop.entity, job.source, job.documents)
    generation = workshop.store.begin_generation(worlds.TENANT)
    documents, rows = [], []
    for entry in job.documents.entries():
        labelled = labeller.label(entry, "{}")  # type: ignore[arg-type]
        document_id = f"manuals/{entry.key}"
        pairs = tuple((worlds._chunk(document_id, "manuals", at, "text"), TINY) for at in range(CHUNKS))
        documents.append(IndexedDocument("manuals", document_id, labelled.labels, pairs))
        rows.append(
            ManifestRow(
                worlds.TENANT, generation, "manuals", entry.key, "indexed", entry.fingerprint, "0" * 64, None, CHUNKS,  # type: ignore[union-attr]
                labelled.digest, "{}", CARD.id, job.pipeline,
            )
        )  # fmt: skip
    workshop.store.put(worlds.TENANT, documents, model=CARD, generation=generation)
    workshop.store.switch(worlds.TENANT, generation)
    workshop.manifest.write(rows)
