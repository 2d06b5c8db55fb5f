"""`eval strategies`: strategies and transforms over one collection, quality beside milliseconds, searches and model calls.

`simple` stands on top, the arm that every other has to beat. Besides the collection's own questions there is a class of compound
ones: two questions with disjoint answers, joined by "and". Strategies that ask a model are run only where a provider is configured
by `--config`; nothing is sent otherwise. The line is unchanged, in a throw-away folder as in `eval retrieval`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from router.app import Router
from router.config import ProviderSettings
from router.domain import Answer
from router.errors import UsageError
from router.evals import retrieval
from router.evals.retrieval import Collection, Options
from router.ingest.workshop import Progress
from router.search.strategies import STRATEGIES

MOST_COMPOUND = 200
_COST = re.compile(r"(\d+) search(?:es)?(?:, (\d+) model calls?(?:, (\d+) failed)?)?")


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions of one class with their judgments."""

    name: str
    queries: tuple[tuple[str, str], ...]
    judged: Mapping[str, Mapping[str, float]]


def run_strategies(
    folder: Path,
    *,
    names: Sequence[str] = (),
    queries: int | None = None,
    providers: ProviderSettings | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """One index, every strategy; the figures as they are printed."""
    collection = retrieval.load_collection(folder)
    if not collection.queries or not collection.documents:
        raise UsageError("collection_empty", f"`{folder}` has no judged query or no document", "check qrels.tsv")
    arms = parse_arms(names, model=providers is not None and providers.claude is not None)
    classes = [Asked("own", collection.queries[:queries], collection.judged), build_compound(collection, queries)]
    options = Options()
    with (
        tempfile.TemporaryDirectory(prefix="pointsman-eval-") as place,
        retrieval.open_throw_away(Path(place) / "eval", options, providers) as router,
    ):
        chunks, _ = retrieval.index_collection(router, collection, options, progress)
        results = {
            asked.name: {"queries": len(asked.queries), "arms": [_run_arm(router, collection, asked, arm) for arm in arms]}
            for asked in classes
            if asked.queries
        }
    not_run = sorted(set(STRATEGIES) - set(arms))
    return {"documents": len(collection.documents), "chunks": chunks, "classes": results, "not_run": not_run}


def parse_arms(names: Sequence[str], *, model: bool) -> list[str]:
    """`simple` first; all that need no model, and those that do where there is one."""
    for name in names:
        if name not in STRATEGIES:
            raise UsageError("strategy_unknown", f"`{name}` is no strategy", f"one of {', '.join(STRATEGIES)}")
        if STRATEGIES[name].model and not model:
            raise UsageError(
                "strategy_without_model", f"`{name}` asks a model, and none is configured", "give --config with a provider"
            )
    wanted = names or [name for name, known in STRATEGIES.items() if model or not known.model]
    return list(dict.fromkeys(["simple", *wanted]))


def build_compound(collection: Collection, queries: int | None) -> Asked:
    """Each question with the one half the list further on, where they share no answer."""
    own = collection.queries[:queries]
    step = len(own) // 2
    pairs: list[tuple[str, str]] = []
    judged: dict[str, dict[str, float]] = {}
    for at in range(min(step, MOST_COMPOUND)):
        (first, one), (second, other) = own[at], own[at + step]
        if collection.judged[first].keys() & collection.judged[second].keys() or not _asks(other):
            continue
        number = f"{first}+{second}"
        pairs.append((number, f"{one.strip(' .?')} and {other[:1].lower()}{other[1:]}"))
        judged[number] = {**collection.judged[first], **collection.judged[second]}
    return Asked("compound", tuple(pairs), judged)


def _asks(text: str) -> bool:
    return re.match(r"(what|which|who|when|where|why|how|is|are|does|do|can|has|have)\b", text.strip(), re.IGNORECASE) is not None


def _run_arm(router: Router, collection: Collection, asked: Asked, arm: str) -> dict[str, Any]:
    answers, total_us = retrieval.ask_all(router, asked.queries, arm)
    ranked = {
        number: retrieval.documents_of(collection, answer) for (number, _), answer in zip(asked.queries, answers, strict=True)
    }
    costs = [_cost(answer) for answer in answers]
    count = len(answers)
    return {
        "strategy": arm,
        **retrieval.score_rankings(ranked, asked.judged),
        "ms": {share: retrieval.percentile(total_us, int(share[1:])) for share in ("p50", "p95")},
        "searches": round(sum(cost[0] for cost in costs) / count, 2),
        "model_calls": round(sum(cost[1] for cost in costs) / count, 2),
        "model_failed": sum(cost[2] for cost in costs),
    }


def _cost(answer: Answer) -> tuple[int, int, int]:
    """Searches, model calls and failed ones, as the stage of the strategy says; without one it was a plain search."""
    note = next((stage.note for stage in answer.stages if stage.name == "strategy"), "")
    found = _COST.search(note)
    return (1, 0, 0) if found is None else (int(found[1]), int(found[2] or 0), int(found[3] or 0))
