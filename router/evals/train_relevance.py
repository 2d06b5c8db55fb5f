"""Fits the relevance gate: `python -m router.evals.train_relevance COLLECTION COLLECTION… -o router/model/relevance.json`.

A collection's own judged questions have an answer in it, the other collections' questions have none. What is reported is held out
by collection: weights and thresholds come of the others. Also told, and not fitted: the own questions after every passage that
answers them was taken away, which is the hard case.

INVARIANT: a figure is of a collection that its fit has not seen (tests/unit/test_relevance_training.py::test_figures_are_held_out).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from router import rank
from router.app import Router
from router.config import SearchSettings
from router.domain import Purpose, Ranked, Search
from router.evals import retrieval
from router.evals.fit_logistic import Dense, fit_logistic
from router.evals.retrieval import Collection, Options
from router.search.relevance import FEATURES, JUDGED, Found, features

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[Any]

PENALTY = 0.01
"""Strong: the features move together, and a collection that was not seen must not meet a weight that only fits the others."""
LOST = 0.02
"""Share of answerable questions that may be called unanswered, at most, where the threshold is set."""
RECOGNISED = 0.975
"""Share of foreign questions that is enough: a lower threshold carries over to other collections better than a higher one."""
UNSEEN = 0.95
"""The same for code where no code was seen: its scores lie lower than those of prose."""
LOOKED_AGAIN = 0.1
"""Share of answerable questions that may cost a second search."""
PER_SIDE = 150
SEED = 20261130


@dataclass(frozen=True, slots=True)
class Seen:
    """Features of questions against one collection. `kind` is `own`, `foreign` or `removed`."""

    collection: str
    kind: str
    values: tuple[float, ...]

    @property
    def code(self) -> bool:
        """Whether code stands first among what was found."""
        return bool(self.values[FEATURES.index("code")])


def observe_collection(router: Router, name: str, collection: Collection, foreign: Sequence[str]) -> list[Seen]:
    rng = random.Random(SEED)  # noqa: S311 (a sample)
    own = list(collection.queries)
    rng.shuffle(own)
    seen: list[Seen] = []
    for number, text in own[:PER_SIDE]:
        keys = {f"{at:07d}" for at, document in enumerate(collection.documents) if document["_id"] in collection.judged[number]}
        found = observe(router, text)
        seen.append(Seen(name, "own", features(found)))
        seen.append(Seen(name, "removed", features(_without(found, keys))))
    seen.extend(Seen(name, "foreign", features(observe(router, text))) for text in foreign)
    return seen


def observe(router: Router, text: str) -> Found:
    """What the line finds for a plain question, with the scores that it judges by."""
    policies, now = router.policies.current(), datetime.now(UTC)
    principal = router.whoami(router.mint("ada", minutes=600))
    joined = policies.grants(principal, now).joined
    assert joined is not None
    search = SearchSettings()  # as it is shipped, not as evaluations search
    embedded = router.embedder.embed_question(text, Purpose(principal.name, "embed_question", frozenset(), "evaluation"))
    asked = Search(
        principal.tenant, joined.filter, text, embedded.vector, router.embedder.card.id, search.candidates, 60.0, frozenset()
    )
    found = router.store.search(asked)
    fused = rank.fuse(found.candidates, search.fusion)
    stored = router.store.load(principal.tenant, [one.chunk_id for one in fused[: search.rerank]], joined.filter, deadline_s=60.0)
    by_id = {item.chunk.chunk_id: item for item in stored}
    ranked = [Ranked(by_id[one.chunk_id], one.legs) for one in rank.rerank(text, embedded, fused, stored)]
    maxsim = rank.similarities(embedded, [item.stored for item in ranked[:JUDGED]])
    return Found(text, found.candidates, found.possible, ranked[:JUDGED], maxsim)


def _without(found: Found, keys: set[str]) -> Found:
    """As if the passages that answer were not there."""

    def answers(document_id: str) -> bool:
        return document_id.split("/", 1)[1] in keys

    left = [at for at, item in enumerate(found.ranked) if not answers(item.stored.chunk.document_id)]
    return Found(
        found.text,
        [one for one in found.candidates if not answers(one.document_id)],
        found.possible,
        [found.ranked[at] for at in left],
        [found.maxsim[at] for at in left],
    )


# --- fitting ----------------------------------------------------------------------------------------------------------


def fit(seen: Sequence[Seen]) -> dict[str, Any]:
    """Weights over raw features, and both thresholds by the answerable questions of `seen`."""
    import numpy as np

    fitted = [one for one in seen if one.kind != "removed"]
    values = np.array([one.values for one in fitted])
    labels = np.array([one.kind == "own" for one in fitted], float)
    values[:, FEATURES.index("code")] = 0.0  # it is set below, by thresholds
    mean, spread = values.mean(axis=0), values.std(axis=0)
    spread = np.where(spread > 1e-6, spread, 1.0)
    parts = {(one.collection, one.kind) for one in fitted}
    share = {part: len(fitted) / len(parts) / sum((one.collection, one.kind) == part for one in fitted) for part in parts}
    sample = np.array([share[one.collection, one.kind] for one in fitted])
    result = fit_logistic([Dense((values - mean) / spread)], labels, sample, PENALTY)
    weights = result.weights / spread
    body: dict[str, Any] = {
        "weights": dict(zip(FEATURES, weights.tolist(), strict=True)),
        "bias": float(result.bias - weights @ mean),
    }
    body["weights"]["code"] = 0.0
    empty = _threshold(body, [one for one in seen if not one.code], RECOGNISED)
    code = [one for one in seen if one.code]
    seen_code = any(one.kind == "own" for one in code)
    lower = _threshold(body, code, RECOGNISED) if seen_code else _threshold(body, seen, UNSEEN)
    body["weights"]["code"] = _logit(empty) - _logit(lower)
    again = float(np.quantile(likelihoods(body, [one for one in seen if one.kind == "own"]), LOOKED_AGAIN))
    return {**body, "again": max(empty, again), "empty": empty}


def _threshold(body: Mapping[str, Any], seen: Sequence[Seen], recognised: float) -> float:
    """The likelihood below which few answerable questions lie, and no higher than enough of the others need."""
    import numpy as np

    own, foreign = (likelihoods(body, [one for one in seen if one.kind == kind]) for kind in ("own", "foreign"))
    return float(
        min([*([np.quantile(own, LOST)] if len(own) else []), *([np.quantile(foreign, recognised)] if len(foreign) else [])])
    )


def _logit(chance: float) -> float:
    return math.log(chance / (1 - chance))


def likelihoods(body: Mapping[str, Any], seen: Sequence[Seen]) -> Floats:
    import numpy as np

    values = np.array([one.values for one in seen]).reshape(len(seen), len(FEATURES))
    scores = values @ np.array([body["weights"][name] for name in FEATURES]) + body["bias"]
    chance: Floats = 1 / (1 + np.exp(-scores))
    return chance


def held_out(seen: Sequence[Seen]) -> dict[str, Any]:
    """By collection left out: at its others' threshold, and over all thresholds."""
    names = sorted({one.collection for one in seen})
    figures: dict[str, Any] = {}
    for name in names:
        body = fit([one for one in seen if one.collection != name])
        by_kind = {kind: likelihoods(body, [one for one in seen if (one.collection, one.kind) == (name, kind)]) for kind in KINDS}
        figures[name] = {
            "lost": _below(by_kind["own"], body["empty"]),
            "recognised": _below(by_kind["foreign"], body["empty"]),
            "recognised_near": _below(by_kind["removed"], body["empty"]),
            "searched_again": _below(by_kind["own"], body["again"]),
            "curve": _curve(by_kind),
        }
    return figures


KINDS = ("own", "foreign", "removed")


def _below(chances: Floats, threshold: float) -> float:
    return round(100 * float((chances < threshold).mean()), 1)


def _curve(by_kind: Mapping[str, Floats]) -> list[dict[str, float]]:
    import numpy as np

    points = [float(np.quantile(by_kind["own"], lost)) for lost in (0.005, 0.01, 0.02, 0.03, 0.05, 0.1)]
    return [
        {
            "lost": _below(by_kind["own"], point),
            "recognised": _below(by_kind["foreign"], point),
            "recognised_near": _below(by_kind["removed"], point),
        }
        for point in points
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    loaded = {folder.name: retrieval.load_collection(folder) for folder in given.collections}
    seen: list[Seen] = []
    for name, collection in loaded.items():
        with (
            tempfile.TemporaryDirectory(prefix="pointsman-train-") as place,
            retrieval.open_throw_away(Path(place) / "eval", Options()) as router,
        ):
            retrieval.index_collection(router, collection, Options(), None)
            seen += observe_collection(router, name, collection, foreign_questions(name, loaded))
    figures = held_out(seen)
    body = {**fit(seen), "held_out": figures, "questions": len(seen), "collections": sorted(loaded)}
    given.output.write_text(json.dumps(body, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(json.dumps(figures, indent=1))  # noqa: T201


def foreign_questions(name: str, loaded: Mapping[str, Collection]) -> list[str]:
    rng = random.Random(SEED)  # noqa: S311 (a sample)
    others = [[text for _, text in collection.queries] for other, collection in loaded.items() if other != name]
    for one in others:
        rng.shuffle(one)
    return [text for one in others for text in one[: PER_SIDE // max(1, len(others))]]


if __name__ == "__main__":
    main()
