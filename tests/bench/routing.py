"""Routing one question (features, three heads, the rule) over the embedding of that question; gates and probe for information."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from router.catalog import Catalog, Dataset, DatasetField
from router.domain import Purpose
from router.routing.decide import decide
from router.routing.gates import UNJUDGED, build_named, gate_rows
from router.routing.heads import load_heads, score
from tests.bench.measure import Figure, run_pairs

BAR = 0.5
PAIRS = 400
QUESTIONS = (
    "How many claims over 5,000 euros were filed in the North last year, and who has to sign them?",
    "What does error ERR-4012 mean and how do I clear it?",
    "Is PN-88213 in stock at depot 4?",
    "Which adjuster had the highest average paid amount per month in 2025?",
    "Why do we keep approvals for ten years?",
    "thanks, that helped",
)
TABLES, FIELDS = 20, 15
PURPOSE = Purpose("bench", "embed_question", frozenset(), "d-0")


def run(_: Path) -> Iterator[Figure]:
    from connectors.local_models import load_embedder
    from router.app import MODEL_FOLDER

    model, heads = load_embedder(MODEL_FOLDER), load_heads(MODEL_FOLDER)
    count = len(QUESTIONS)
    vectors = [model.embed_question(text, PURPOSE).vector for text in QUESTIONS]
    named = build_named(build_tables(), lambda text: model.embed_question(text, PURPOSE).vector)

    def embed(at: int) -> object:
        return model.embed_question(QUESTIONS[at % count], PURPOSE)

    def route(at: int) -> object:
        question = QUESTIONS[at % count]
        return decide(question, score(heads, question, vectors[at % count]), rows=UNJUDGED, text=UNJUDGED)

    def gate(at: int) -> object:
        return gate_rows(QUESTIONS[at % count], vectors[at % count], named)

    yield run_pairs(route, embed, PAIRS, warm=20).figure("routing", "routing : embedding of one question", BAR)
    yield run_pairs(gate, embed, PAIRS, warm=20).figure(
        "gate of rows", "gate : embedding of one question", None, note=f"{TABLES} tables of {FIELDS} fields"
    )


def build_tables() -> Catalog:
    """Names long enough to be real ones; what they say does not matter for the time."""
    return Catalog(
        "bench",
        tuple(
            Dataset(f"table_{at}", f"t{at}", tuple(DatasetField(f"field_{at}_{one}", f"f{one}") for one in range(FIELDS)))
            for at in range(TABLES)
        ),
    )
