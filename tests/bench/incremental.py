"""A run over 10,000 unchanged files of 20 kB over reading and hashing them in this process; nothing is embedded.

The files are real; store and manifest are filled through their ports with what a first run would have left: twenty chunks a
document, so that the run finds everything unchanged (it is checked that it does).
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from router.app import Router
from router.domain import Embedded, Entry, IndexedDocument, ManifestRow, ModelCard
from router.ingest.build import index_sources
from router.ingest.survey import Labeller
from router.ingest.workshop import Workshop
from tests.bench import worlds
from tests.bench.measure import Figure, run_pairs

BAR = 1.5
FILES, BYTES, CHUNKS, PAIRS = 10_000, 20_000, 20, 7
CARD = ModelCard("tiny", "0" * 64, 4, 1, 256)
TINY = Embedded(struct.pack("<4f", 1.0, 0.0, 0.0, 0.0), b"", b"", 1.0)


class Idle:
    """An embedder of four dimensions that is never asked to embed."""

    card = CARD

    def count_tokens(self, _: str) -> int:
        raise AssertionError("an unchanged file was read")

    def embed_chunks(self, *_: object) -> list[Embedded]:
        raise AssertionError("an unchanged file was embedded")

    def embed_question(self, *_: object) -> Embedded:
        raise AssertionError("nobody asks here")


def open_workshop(router: Router) -> Workshop:
    """The router's own, but for the embedder: a store of small vectors is built in seconds."""
    return dataclasses.replace(router.workshop, embedder=Idle())


def run(folder: Path) -> Iterator[Figure]:
    settings = worlds.write_world(folder / "world")
    pages = settings.folder / "pages"
    paths = _write_files(pages)
    with Router(settings) as router:
        workshop = open_workshop(router)
        _fill(router, workshop)

        def product(_: int) -> None:
            report = index_sources(router.jobs(["manuals"]), workshop).sources[0]
            assert (report.unchanged, report.failures) == (FILES, []), report

        pairs = run_pairs(product, lambda _: _read_and_hash(paths), PAIRS, warm=1)
    yield pairs.figure("incremental", f"index over {FILES} unchanged files : read and hash them", BAR)


def _write_files(pages: Path) -> list[Path]:
    (pages / "labels.yaml").write_text(
        "rules:\n"
        '  - { match: "**", groups: ["dev:g060", "dev:g061", "dev:g062"], sensitivity: internal }\n'
        '  - { match: "part-00/**", groups: ["dev:g060"], sensitivity: confidential }\n',
        encoding="utf-8",
    )
    paths = []
    for number in range(FILES):
        path = pages / f"part-{number % 50:02d}" / f"page-{number:05d}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(BYTES // 2).hex().encode())
        paths.append(path)
    return paths


def _read_and_hash(paths: list[Path]) -> None:
    for path in paths:
        with open(path, "rb") as file:
            hashlib.sha256(file.read()).hexdigest()


def _fill(router: Router, workshop: Workshop) -> None:
    """What a first run leaves, without parsing and embedding 200,000 chunks."""
    job = router.jobs(["manuals"])[0]
    labeller = Labeller(workshop.entity, job.source, job.documents)
    entries = [item for item in job.documents.entries() if isinstance(item, Entry)]
    generation = workshop.store.begin_generation(worlds.TENANT)
    rows: list[ManifestRow] = []
    batch: list[IndexedDocument] = []
    at_us = round(datetime.now(UTC).timestamp() * 1e6)
    for number, entry in enumerate(entries, 1):
        labelled = labeller.label(entry, "{}")
        document_id = f"manuals/{entry.key}"
        pairs = tuple((worlds._chunk(document_id, "manuals", at, "text"), TINY) for at in range(CHUNKS))
        batch.append(IndexedDocument("manuals", document_id, labelled.labels, pairs))
        rows.append(
            ManifestRow(
                worlds.TENANT, generation, "manuals", entry.key, "indexed", entry.fingerprint,
                hashlib.sha256(entry.key.encode()).hexdigest(), None, CHUNKS, labelled.digest, "{}", CARD.id, job.pipeline,
                indexed_at_us=at_us,
            )
        )  # fmt: skip
        if number % 1000 == 0 or number == len(entries):
            workshop.store.put(worlds.TENANT, batch, model=CARD, generation=generation)
            batch = []
    workshop.store.switch(worlds.TENANT, generation)
    workshop.manifest.write(rows)
