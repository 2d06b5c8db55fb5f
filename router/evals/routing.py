"""`eval routing`: how well the router's heads tell what a question needs, on anybody's labelled questions.

`accuracy`, `macro_f1`, confusion and calibration judge the most likely of the four routes; `needed_evidence_recall` (needed legs
that were searched) and `unneeded_search_share` (searched legs that were not needed) judge the rule that a router runs by.
Each question weighs 1. Wording alone, unless catalogues or collections open the gates.

INVARIANT: with `leave_source_out` no figure comes of weights that saw the question's source group, nor of a calibration fitted on it
(tests/unit/test_routing_training.py::test_a_source_that_is_left_out_is_not_seen).
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from router.app import MODEL_FOLDER
from router.errors import UsageError
from router.evals import gated
from router.evals.train_route import (
    DROPPED,
    HEADS,
    OWN_QUESTIONS,
    ROUTES,
    Row,
    build_material,
    fit_platt,
    leave_out,
    load_rows,
    local_embedding,
)
from router.routing.decide import POINTS, Decided, Point, decide
from router.routing.gates import UNJUDGED, Gate
from router.routing.heads import Likelihoods, load_heads, score

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[Any]

COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.5)
BINS = 15
ASKED_BACK = ("what is granted",)
"""Stands for the names that a caller would be asked back with."""
TRAINING_FILE = "routing_train.jsonl"
Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """`train` are more questions to train on when sources are left out; None = `routing_train.jsonl` beside the file."""

    point: Point = POINTS["default"]
    leave_source_out: bool = False
    without: tuple[str, ...] = ()
    train: tuple[Path, ...] | None = None
    catalogs: tuple[Path, ...] = ()
    collections: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """One question with what was said of it. `needs` are (rows, text); None where the evidence was not there to be found."""

    row: Row
    likely: Likelihoods
    decided: Decided
    needs: tuple[bool | None, bool | None]

    @property
    def most_likely(self) -> str:
        scores = self.decided.scores
        return max(ROUTES, key=lambda name: scores[name])

    @property
    def searched(self) -> tuple[bool, bool]:
        return self.decided.rows, self.decided.text


def run_routing(file: Path, options: Options, say: Say = lambda _: None) -> dict[str, Any]:
    """The figures as they are printed."""
    rows = [row for row in load_rows(file) if not _is_without(row, options.without)]
    if not rows:
        raise UsageError("questions_missing", "no question is left", "check --without-source")
    likely: Sequence[Likelihoods | None]
    with local_embedding() as embed:
        timed = _Timed(embed)
        vectors = [timed.embed(row.question) for row in rows]
        if options.leave_source_out:
            likely, settings = _left_out(rows, vectors, file, options, embed, say)
        else:
            heads = load_heads(MODEL_FOLDER)
            likely = [timed.score(partial(score, heads, row.question, one)) for row, one in zip(rows, vectors, strict=True)]
            settings = {"weights": "shipped"}
        judged = _judge_all(rows, vectors, likely, options, embed)
    return {
        **build_report(judged),
        "ms": timed.as_json(),
        "settings": {**settings, "point": [options.point.leg, options.point.none]},
    }


def _is_without(row: Row, without: Collection[str]) -> bool:
    return row.group in without or row.source in without


def _left_out(
    rows: Sequence[Row], vectors: Sequence[bytes], file: Path, options: Options, embed: Callable[[str], bytes], say: Say
) -> tuple[list[Likelihoods | None], dict[str, Any]]:
    """Likelihoods by heads and calibration that did not see the question's fold; None where it is never left out."""
    import numpy as np

    beside = file.with_name(TRAINING_FILE)
    paths = options.train if options.train is not None else (beside,) if beside.is_file() and beside != file else ()
    known = {gated.plain_words(row.question) for row in rows}
    more = [row for path in (*paths, OWN_QUESTIONS) for row in load_rows(path) if gated.plain_words(row.question) not in known]
    more = [row for row in more if not _is_without(row, options.without) and row.group not in DROPPED]
    everything = [*rows, *more]
    say(f"embedding {len(more)} questions to train on")
    all_vectors = np.stack([np.frombuffer(one, "<f4") for one in [*vectors, *(embed(row.question) for row in more)]])
    material = build_material(everything, all_vectors.astype(np.float64))
    logits = leave_out(material, say)
    folds = np.array([row.fold for row in everything])
    fair = np.array([row.group not in DROPPED for row in everything])
    likely: list[Likelihoods | None] = [None] * len(rows)
    for fold in sorted({row.fold for row in rows} - {-1}):
        platt = fit_platt(everything, logits, fair & (folds != fold))
        for at in np.flatnonzero(folds[: len(rows)] == fold):
            r, t, n = (float(1 / (1 + np.exp(-(a * z + b)))) for (a, b), z in zip(platt, logits[at], strict=True))
            likely[int(at)] = Likelihoods(r, t, n)
    settings = {
        "weights": "trained again with sources left out",
        "trained_on": len(everything),
        "files": [file.name, *(path.name for path in (*paths, OWN_QUESTIONS))],
        "never_left_out": sum(one is None for one in likely),
    }
    return likely, settings


def _judge_all(
    rows: Sequence[Row],
    vectors: Sequence[bytes],
    likely: Sequence[Likelihoods | None],
    options: Options,
    embed: Callable[[str], bytes],
) -> list[Judged]:
    catalogs = gated.load_catalogs(options.catalogs, embed) if options.catalogs else None
    collections = gated.load_collections(options.collections, embed) if options.collections else None
    judged = []
    for row, vector, one in zip(rows, vectors, likely, strict=True):
        if one is None:
            continue
        rows_gate, own_rows = gated.gate_of_rows(catalogs, row.question, vector) if catalogs else (UNJUDGED, True)
        text_gate, own_text = gated.gate_of_text(collections, row.question, vector) if collections else (UNJUDGED, True)
        decided = decide(row.question, one, rows=rows_gate, text=text_gate, point=options.point, options=ASKED_BACK)
        needs = (_needs(row, HEADS[0], own_rows), _needs(row, HEADS[1], own_text))
        judged.append(Judged(row, _through(one, rows_gate, text_gate), decided, needs))
    return judged


def _needs(row: Row, routes: Collection[str], own: bool) -> bool | None:
    """None: the leg is needed, but what would answer is not there, so that neither searching nor leaving it is wrong."""
    needed = row.route in routes
    return None if needed and not own else needed


def _through(likely: Likelihoods, rows: Gate, text: Gate) -> Likelihoods:
    """Wording x gate: what the figures of a gated run rank by."""
    return replace(likely, rows=likely.rows * min(1.0, rows.open), text=likely.text * min(1.0, text.open))


# --- figures ----------------------------------------------------------------------------------------------------------


def build_report(judged: Sequence[Judged]) -> dict[str, Any]:
    """Everything but times and settings."""
    pairs = [(one.row.route, one.most_likely) for one in judged]
    by_source: dict[str, list[Judged]] = defaultdict(list)
    for one in judged:
        by_source[one.row.source].append(one)
    return {
        "questions": len(judged),
        "accuracy": _share(sum(a == b for a, b in pairs), len(pairs)),
        "macro_f1": _macro_f1(pairs),
        "by_route": {
            route: {**_f1(pairs, route), **_legs([one for one in judged if one.row.route == route])} for route in ROUTES
        },
        "by_source": {
            source: {
                "questions": len(held),
                "accuracy": _share(sum(o.row.route == o.most_likely for o in held), len(held)),
                **_legs(held),
            }
            for source, held in sorted(by_source.items())
        },
        **_legs(judged),
        "routes": dict(Counter(one.decided.route for one in judged)),
        "documents_that_search_rows": _share(
            sum(one.decided.rows for one in judged if one.row.route == "documents"), sum(a == "documents" for a, _ in pairs)
        ),
        "auc": {name: _head_auc(judged, name) for name in ("rows", "text", "none")},
        "ece": calibration_error([one.decided.scores[one.most_likely] for one in judged], [a == b for a, b in pairs]),
        "ece_heads": {name: _head_ece(judged, name) for name in ("rows", "text", "none")},
        "risk_coverage": _risk_coverage(judged),
        "confusion": {route: dict(Counter(b for a, b in pairs if a == route)) for route in ROUTES},
    }


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def _f1(pairs: Sequence[tuple[str, str]], route: str) -> dict[str, Any]:
    wanted, given = sum(a == route for a, _ in pairs), sum(b == route for _, b in pairs)
    right = sum(a == b == route for a, b in pairs)
    return {
        "questions": wanted,
        "precision": _share(right, given),
        "recall": _share(right, wanted),
        "f1": _share(2 * right, wanted + given),
    }


def _macro_f1(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Over the routes that the questions have."""
    scores = [_f1(pairs, route)["f1"] or 0.0 for route in ROUTES if any(a == route for a, _ in pairs)]
    return _share(sum(scores), len(scores))


def _legs(judged: Sequence[Judged]) -> dict[str, Any]:
    legs = [(need, done) for one in judged for need, done in zip(one.needs, one.searched, strict=True) if need is not None]
    return {
        "needed_evidence_recall": _share(sum(need and done for need, done in legs), sum(need for need, _ in legs)),
        "unneeded_search_share": _share(sum(done and not need for need, done in legs), sum(done for _, done in legs)),
    }


def _head(judged: Sequence[Judged], name: str) -> tuple[list[float], list[bool]]:
    """Likelihoods and truth, without questions whose evidence was not there."""
    kept = [(float(getattr(one.likely, name)), yes) for one in judged if (yes := _says(one, name)) is not None]
    return [value for value, _ in kept], [yes for _, yes in kept]


def _says(one: Judged, name: str) -> bool | None:
    if name == "none":
        return one.row.route == "none"
    return one.needs[0] if name == "rows" else one.needs[1]


def _head_auc(judged: Sequence[Judged], name: str) -> float | None:
    return auc(*_head(judged, name))


def _head_ece(judged: Sequence[Judged], name: str) -> float | None:
    return calibration_error(*_head(judged, name))


def auc(scores: Sequence[float], truth: Sequence[bool]) -> float | None:
    """The chance that a yes scores above a no; half for a tie. None without both."""
    import numpy as np

    yes = sum(truth)
    if not 0 < yes < len(truth):
        return None
    values, labels = np.array(scores), np.array(truth)
    ordered = np.sort(values)
    ranks = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1) / 2
    return round(float((ranks[labels].sum() - yes * (yes + 1) / 2) / (yes * (len(truth) - yes))), 4)


def calibration_error(chances: Sequence[float], truth: Sequence[bool]) -> float | None:
    """Expected calibration error over 15 bins of equal width: how far what was said lies from what came."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for chance, yes in zip(chances, truth, strict=True):
        bins[min(BINS - 1, int(chance * BINS))].append((chance, yes))
    gaps = sum(abs(sum(chance for chance, _ in held) - sum(yes for _, yes in held)) for held in bins.values())
    return _share(gaps, len(truth))


def _risk_coverage(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Accuracy on the surest share of the questions."""
    ordered = sorted(judged, key=lambda one: -one.decided.scores[one.most_likely])
    out = []
    for coverage in COVERAGES:
        kept = ordered[: max(1, round(coverage * len(ordered)))]
        out.append({"coverage": coverage, "accuracy": _share(sum(one.row.route == one.most_likely for one in kept), len(kept))})
    return out


class _Timed:
    """Milliseconds of an embedding and of a score, as they pass."""

    def __init__(self, embed: Callable[[str], bytes]) -> None:
        self._embed = embed
        self._us: dict[str, list[float]] = {"embed": [], "score": []}

    def embed(self, text: str) -> bytes:
        return self._time("embed", lambda: self._embed(text))

    def score(self, run: Callable[[], Likelihoods]) -> Likelihoods:
        return self._time("score", run)

    def _time(self, name: str, run: Callable[[], T]) -> T:
        began = time.perf_counter_ns()
        done = run()
        self._us[name].append((time.perf_counter_ns() - began) / 1e6)
        return done

    def as_json(self) -> dict[str, Any]:
        return {
            name: {"p50": round(sorted(held)[len(held) // 2], 3), "p95": round(sorted(held)[len(held) * 95 // 100], 3)}
            for name, held in self._us.items()
            if held
        }
