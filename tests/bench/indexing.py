"""Indexing a folder of Markdown over the embedder alone on exactly the texts that the index embeds, token vectors in both.

Everything counts: listing, parsing in its process, chunking, labels, ledger, store and manifest. Each run builds a generation
of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from router.app import Router
from router.domain import Embedded, ModelCard, Purpose
from router.ingest.build import index_sources
from tests.bench import worlds
from tests.bench.measure import Figure, run_pairs

BAR = 0.85
PAIRS, DOCUMENTS, SECTIONS = 4, 30, 6
PURPOSE = Purpose("bench", "embed_chunks", frozenset(), "run")


def run(folder: Path) -> Iterator[Figure]:
    settings = worlds.write_world(folder / "world")
    write_pages(settings.folder / "pages")
    with Router(settings) as router:
        model = router.embedder
        kept = _Kept(model)
        assert _index(router, kept) == len(kept.texts)
        texts = kept.texts

        def product(_: int) -> None:
            assert _index(router, model) == len(texts)

        pairs = run_pairs(product, lambda _: model.embed_chunks(texts, PURPOSE), PAIRS, warm=1)
    tokens = sum(min(256, model.count_tokens(text)) for text in texts) // len(texts)
    speed = len(texts) / (sorted(pairs.product)[len(pairs.product) // 2] / 1e9)
    note = f"{len(texts)} chunks of {tokens} tokens on average, {speed:.0f} chunks a second"
    yield pairs.figure("indexing", "chunks a second, whole line : embedder alone", BAR, rate=True, note=note)


class _Kept:
    """The embedder, remembering what it was given."""

    def __init__(self, model: object) -> None:
        self._model = model
        self.texts: list[str] = []

    @property
    def card(self) -> ModelCard:
        card: ModelCard = self._model.card  # type: ignore[attr-defined]
        return card

    def count_tokens(self, text: str) -> int:
        count: int = self._model.count_tokens(text)  # type: ignore[attr-defined]
        return count

    def embed_chunks(self, texts: Sequence[str], purpose: Purpose) -> list[Embedded]:
        self.texts.extend(texts)
        made: list[Embedded] = self._model.embed_chunks(texts, purpose)  # type: ignore[attr-defined]
        return made


def _index(router: Router, model: object) -> int:
    """Chunks of a full build beside the generation before, parsed, embedded and recorded anew."""
    workshop = dataclasses.replace(router.workshop, embedder=model)
    report = index_sources(router.jobs(["manuals"]), workshop, full=True).sources[0]
    assert (report.failures, report.error) == ([], None)
    return report.chunks


def write_pages(folder: Path, documents: int = DOCUMENTS, sections: int = SECTIONS) -> None:
    """Markdown of ordinary shape: headings, two paragraphs a section, a list, now and then a table."""
    words = worlds.build_corpus().words
    (folder / "labels.yaml").write_text(
        'rules:\n  - { match: "**", groups: ["dev:g060", "dev:g061"], sensitivity: internal }\n', encoding="utf-8"
    )
    at = 0

    def some(count: int) -> str:
        nonlocal at
        picked = [words[(at * 7919 + step * step * 31) % 4000] for step in range(count)]
        at += count
        return " ".join(picked).capitalize() + "."

    for number in range(documents):
        lines = [f"# {some(5)}", "", some(40), ""]
        for section in range(sections):
            lines += [f"## {some(4)}", "", some(14) + " " + some(16) + " " + some(12), "", some(13) + " " + some(15), ""]
            lines += [f"- {some(6)}" for _ in range(3)] if section % 3 == 0 else []
            lines += (
                ["", "| part | place |", "|---|---|", *(f"| {some(2)} | {some(3)} |" for _ in range(3)), ""]
                if section % 4 == 1
                else [""]
            )
        (folder / f"page-{number:03d}.md").write_text("\n".join(lines), encoding="utf-8")
