"""The local rerank of fifty candidates over the embedding of one question, on real text and real token vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from router.domain import Candidate, Chunk, Purpose, Span, Stored
from router.rank import rerank
from tests.bench.measure import Figure, run_pairs

if TYPE_CHECKING:
    from connectors.local_models import MiniLM

BAR = 1.5
PAIRS, CANDIDATES = 300, 50
DOCUMENTS = Path(__file__).parents[2] / "deploy" / "demo" / "documents"
QUESTIONS = (
    "What does error ERR-4012 mean and how do I clear it?",
    "Which part number replaces the tension spring of the sealing bar?",
    "How long may an approval wait before it goes to the regional lead?",
    "max_retry_count of the scan gateway",
    "Who has to sign a claim over 5,000 euros in 2026?",
)
PURPOSE = Purpose("bench", "embed_question", frozenset(), "d-0")


def run(_: Path) -> Iterator[Figure]:
    from connectors.local_models import load_embedder
    from router.app import MODEL_FOLDER

    model = load_embedder(MODEL_FOLDER)
    stored, candidates = load_candidates(model)
    questions = [model.embed_question(text, PURPOSE) for text in QUESTIONS]
    count = len(QUESTIONS)
    pairs = run_pairs(
        lambda at: rerank(QUESTIONS[at % count], questions[at % count], candidates, stored),
        lambda at: model.embed_question(QUESTIONS[at % count], PURPOSE),
        PAIRS,
        warm=10,
    )
    tokens = sum(len(item.token_ids) for item in stored) // 2 // len(stored)
    yield pairs.figure(
        "rerank of 50", "rerank : embedding of one question", BAR, note=f"{tokens} stored token vectors a candidate"
    )


def load_candidates(model: MiniLM) -> tuple[list[Stored], list[Candidate]]:
    """Fifty pieces of the demonstration's pages of 120 to 200 word pieces, as loaded from a store."""
    stored: list[Stored] = []
    for text in _pieces(model):
        at = len(stored)
        document_id = f"manuals/{at:03d}"
        chunk = Chunk(
            f"{document_id}#0", document_id, "manuals", 0, text.split("\n")[0][:60], (), text, "prose", "file:///x", Span()
        )
        embedded = model.embed_chunks([text], PURPOSE)[0]
        stored.append(Stored(chunk, {}, embedded.token_ids, embedded.token_vectors, embedded.token_scale))
        if len(stored) == CANDIDATES:
            break
    assert len(stored) == CANDIDATES
    candidates = [
        Candidate(item.chunk.chunk_id, item.chunk.document_id, "manuals", float(at % 7), 0.9 - at / 100, ("dense", "lexical"))
        for at, item in enumerate(stored)
    ]
    return stored, candidates


def _pieces(model: MiniLM) -> Iterator[str]:
    wanted = 120
    for path in sorted(DOCUMENTS.rglob("*.md")):
        piece: list[str] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            piece.append(line)
            size = model.count_tokens("\n".join(piece))
            if size >= wanted:
                if size <= 200:
                    yield "\n".join(piece)
                    wanted = 120 + (wanted - 120 + 17) % 70
                piece = []
