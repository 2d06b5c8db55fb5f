"""Train the router's three heads: `python -m router.evals.train_route DATA.jsonl… -o router/model/route.npz`.

Rows are `{"question", "route", "source"}`. The questions beside this file (route_questions.jsonl, our own) are always added.
What is shipped and why stands in router/model/ROUTE.md; `eval routing --leave-source-out` measures the recipe on anybody's data.

The recipe: five blocks of features a head, each its own logistic regression, their mean; a question weighs
n(source group, route)^-0.5 times its group's factor, then both answers of a head weigh the same. Platt's two numbers come of
logits that other sources' questions gave, under declared shares of the routes. Sources without a licence are left out (`DROPPED`).

INVARIANT: a question is scored by weights, and calibrated by (logit, answer) pairs, of other folds than its source's only
(tests/unit/test_routing_training.py::test_a_source_that_is_left_out_is_not_seen).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import sys
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from router.errors import PointsmanError, UsageError
from router.evals.fit_logistic import Dense, Part, build_sparse, fit_logistic
from router.routing.features import PATTERN_BUCKETS, WORD_BUCKETS, hash_patterns, hash_words, read_cues
from router.routing.heads import Heads

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[Any]

OWN_QUESTIONS = Path(__file__).with_name("route_questions.jsonl")
ROUTES = ("documents", "sql", "both", "none")
DROPPED = frozenset({"multimodalqa"})
"""States no licence."""
FACTORS = {"tpl": 0.3, "own:reference": 0.15}
"""Templates cost public questions and buy compound ones; questions on lists and lives buy recall and cost idle text legs."""
SCALES = {"embedding": 4.0, "cues": 1.0, "patterns": 2.0, "words": 3.0}
BLOCKS: tuple[tuple[tuple[str, ...], float], ...] = (
    (("embedding",), 0.1),
    (("cues",), 0.1),
    (("patterns",), 0.1),
    (("embedding", "cues", "patterns"), 0.1),
    (("words",), 1.0),
)
"""Features that are fitted together, and C."""
HEADS = (("sql", "both"), ("documents", "both"), ("none",))
"""Routes that say yes to a head: rows, text, none."""
PRIOR = {"documents": 0.3, "sql": 0.3, "both": 0.2, "none": 0.2}
"""Shares of the routes that the probabilities are true for. Training data has no shares of its own: we chose how much of each."""
FOLDS = {
    group: fold
    for fold, groups in enumerate(
        (
            "banking77 kaggledbqa snips own:howto",
            "cranfield spider clinc_talk",
            "stackfaq wikitablequestions expertqa own:compound",
            "zaragoza-construction-faq clinc_oos",
            "multimodalqa own:reference",
            "policyqa ehrsql own:command",
            "covidqa rasa-helpdesk",
            "pubmedqa codesearchnet defog",
        )
    )
    for group in groups.split()
}
FOLD_COUNT = 9
"""The ninth holds half of the template domains; the other half is never left out, or compound questions would have none."""


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled question. `source` is for weights, folds and reports, never a feature."""

    question: str
    route: str
    source: str

    @property
    def group(self) -> str:
        """What is left out together: sources that share authors, topics or wording."""
        if self.source.startswith("clinc150"):
            return "clinc_oos" if "/oos" in self.source else "clinc_talk"
        if self.source.startswith("own:"):
            return self.source
        first = self.source.split("/")[0].split(":")[0]
        return {"covidqa-faq": "covidqa"}.get(first, first)

    @property
    def fold(self) -> int:
        """-1 where it is never left out. A group that is not known here gets a fold of its name's choosing."""
        if self.group == "tpl":
            return FOLD_COUNT - 1 if zlib.crc32(self.source.encode()) % 2 else -1
        return FOLDS.get(self.group, zlib.crc32(self.group.encode()) % (FOLD_COUNT - 1))


def load_rows(path: Path) -> list[Row]:
    """Raises `UsageError` with the line that is wrong."""
    rows: list[Row] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            "questions_missing", f"`{path}` cannot be read", "a file of JSON lines: question, route, source"
        ) from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            rows.append(_parse_row(line, f"{path.name}:{number}"))
    if not rows:
        raise UsageError("questions_missing", f"`{path}` holds no question", "JSON lines with question, route, source")
    return rows


def _parse_row(line: str, where: str) -> Row:
    try:
        read = json.loads(line)
        question, route, source = read["question"], read["route"], str(read.get("source") or "unnamed")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            "questions_malformed",
            f"line `{where}` has no question with a route",
            "each line is an object with `question` and `route`",
        ) from None
    if not isinstance(question, str) or route not in ROUTES:
        raise UsageError("questions_malformed", f"line `{where}` has no known route", f"one of {', '.join(ROUTES)}")
    return Row(question, route, source)


@contextmanager
def local_embedding() -> Iterator[Callable[[str], bytes]]:
    """The vector of a text by the embedder that ships, from a throw-away folder: no configured file is read."""
    from router.app import Router
    from router.config import FILE_NAME, load_settings
    from router.domain import Purpose
    from router.starter import write_starter

    with tempfile.TemporaryDirectory(prefix="pointsman-eval-") as place:
        folder = Path(place) / "eval"
        write_starter(folder, tenant="eval", group="readers", sensitivity="internal")
        with Router(load_settings(folder / FILE_NAME)) as router:
            embedder, purpose = router.embedder, Purpose("eval", "route", frozenset(), "")
            yield lambda text: embedder.embed_question(text, purpose).vector


def embed_all(texts: Iterable[str], embed: Callable[[str], bytes]) -> Floats:
    """One float64 row for each text."""
    import numpy as np

    return np.stack([np.frombuffer(embed(text), "<f4") for text in texts]).astype(np.float64)


# --- fitting ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Material:
    """Rows with their features, scaled as the fit wants them."""

    rows: tuple[Row, ...]
    parts: Mapping[str, Part]


def build_material(rows: Sequence[Row], vectors: Floats) -> Material:
    import numpy as np

    texts = [row.question for row in rows]

    def scaled(name: str, read: Callable[[str], Mapping[int, float]], width: int) -> Part:
        scale = SCALES[name]
        return build_sparse(({key: scale * value for key, value in read(text).items()} for text in texts), width)

    return Material(
        tuple(rows),
        {
            "embedding": Dense(vectors * SCALES["embedding"]),
            "cues": Dense(np.array([read_cues(text) for text in texts]) * SCALES["cues"]),
            "patterns": scaled("patterns", hash_patterns, PATTERN_BUCKETS),
            "words": scaled("words", hash_words, WORD_BUCKETS),
        },
    )


def fit_heads(material: Material, used: Floats) -> Heads:
    """Uncalibrated heads from the rows where `used` is true."""
    import numpy as np

    fitted = [_fit_head(material, used, routes) for routes in HEADS]
    arrays = {name: np.stack([weights[name] for weights, _ in fitted], axis=1) for name in SCALES}
    return Heads(**arrays, bias=np.array([bias for _, bias in fitted]))


def _fit_head(material: Material, used: Floats, routes: Collection[str]) -> tuple[dict[str, Floats], float]:
    """The mean of the blocks, by part, without the scales."""
    import numpy as np

    labels = np.array([row.route in routes for row in material.rows], dtype=np.float64)
    weights = _balance(source_weights(material.rows, used), labels)
    out = {name: np.zeros(part.width) for name, part in material.parts.items()}
    bias = 0.0
    for names, c in BLOCKS:
        found = fit_logistic([material.parts[name] for name in names], labels, weights, c)
        bias += found.bias / len(BLOCKS)
        cuts = np.cumsum([material.parts[name].width for name in names])[:-1]
        for name, piece in zip(names, np.split(found.weights, cuts), strict=True):
            out[name] += piece * SCALES[name] / len(BLOCKS)
    return out, bias


def source_weights(rows: Sequence[Row], used: Floats) -> Floats:
    """n(group, route)^-0.5 times the group's factor; 0 where a row is not used."""
    import numpy as np

    counts = Counter((row.group, row.route) for row, yes in zip(rows, used, strict=True) if yes)
    return np.array(
        [
            counts[row.group, row.route] ** -0.5 * FACTORS.get(row.group, 1.0) if yes else 0.0
            for row, yes in zip(rows, used, strict=True)
        ]
    )


def _balance(weights: Floats, labels: Floats) -> Floats:
    """Both answers weigh the same, and all together as much as there are rows."""
    out = weights.copy()
    used = weights > 0
    count = float(used.sum())
    for answer in (0.0, 1.0):
        chosen = used & (labels == answer)  # of what is used alone: a sum over more zeros may round otherwise
        share = float(out[chosen].sum())
        if share:
            out[chosen] *= count / 2 / share
    return out


def score_rows(material: Material, heads: Heads) -> Floats:
    """Logits: one row of three for each question."""
    import numpy as np

    columns = []
    for head in range(len(HEADS)):
        logits = np.full(len(material.rows), heads.bias[head])
        for name, part in material.parts.items():
            logits += part.forward(getattr(heads, name)[:, head]) / SCALES[name]
        columns.append(logits)
    return np.stack(columns, axis=1)


# --- calibration ------------------------------------------------------------------------------------------------------


def leave_out(material: Material, say: Callable[[str], None] = lambda _: None) -> Floats:
    """Logits of every row by heads that saw nothing of its source's fold; NaN where it is never left out."""
    import numpy as np

    folds = np.array([row.fold for row in material.rows])
    usable = np.array([row.group not in DROPPED for row in material.rows])
    logits = np.full((len(folds), len(HEADS)), np.nan)
    for fold in sorted({int(fold) for fold in folds} - {-1}):
        say(f"fold {fold + 1} of {FOLD_COUNT}")
        held = folds == fold
        logits[held] = score_rows(material, fit_heads(material, usable & ~held))[held]
    return logits


def fit_platt(rows: Sequence[Row], logits: Floats, used: Floats) -> list[tuple[float, float]]:
    """Per head the two numbers (a, b) of sigmoid(a x logit + b), from rows whose logits are not their own fit, under `PRIOR`."""
    import numpy as np

    known = used & ~np.isnan(logits[:, 0])
    weights = source_weights(rows, known)
    for route, share in PRIOR.items():
        chosen = known & np.array([row.route == route for row in rows])
        weights[chosen] *= share / max(float(weights[chosen].sum()), 1e-12)
    weights *= known.sum()
    filled = np.nan_to_num(logits)
    out = []
    for head, routes in enumerate(HEADS):
        labels = np.array([row.route in routes for row in rows], dtype=np.float64)
        found = fit_logistic([Dense(filled[:, head : head + 1])], labels, weights, 1e6)
        out.append((float(found.weights[0]), found.bias))
    return out


def calibrate(heads: Heads, platt: Sequence[tuple[float, float]]) -> Heads:
    """Platt's numbers folded into the weights."""
    import numpy as np

    slopes, shifts = np.array([a for a, _ in platt]), np.array([b for _, b in platt])
    return Heads(
        heads.embedding * slopes, heads.cues * slopes, heads.patterns * slopes, heads.words * slopes, heads.bias * slopes + shifts
    )


def seal_heads(heads: Heads) -> bytes:
    """The weights file: float16, names in order, no clock inside, so that the same weights give the same bytes."""
    import numpy as np

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in ("embedding", "cues", "patterns", "words", "bias"):
            array = io.BytesIO()
            np.save(array, getattr(heads, name).astype(np.float32 if name == "bias" else np.float16), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (2026, 1, 1, 0, 0, 0)), array.getvalue(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def train(
    rows: Sequence[Row], embed: Callable[[str], bytes], say: Callable[[str], None]
) -> tuple[Heads, list[tuple[float, float]]]:
    """Calibrated heads and Platt's numbers."""
    import numpy as np

    kept = [row for row in rows if row.group not in DROPPED]
    say(f"embedding {len(kept)} questions")
    material = build_material(kept, embed_all((row.question for row in kept), embed))
    everything = np.ones(len(kept), dtype=bool)
    platt = fit_platt(kept, leave_out(material, say), everything)
    return calibrate(fit_heads(material, everything), platt), platt


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m router.evals.train_route", description="Train the router's heads.")
    parser.add_argument("data", nargs="+", type=Path, help="JSON lines: question, route, source")
    parser.add_argument("-o", dest="out", required=True, type=Path, help="the weights file to write")
    parser.add_argument(
        "--without", action="append", default=[], metavar="GROUP", help="leave a source group out; may be repeated"
    )
    options = parser.parse_args(arguments)
    try:
        rows = [row for path in [*options.data, OWN_QUESTIONS] for row in load_rows(path) if row.group not in options.without]
        with local_embedding() as embed:
            heads, platt = train(rows, embed, lambda text: print(text, file=sys.stderr))  # noqa: T201
        options.out.write_bytes(data := seal_heads(heads))
    except PointsmanError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    print(f"{options.out}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}, platt {platt}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
