"""Three calibrated probabilities of a question: its answer needs rows, it needs text, there is nothing to retrieve.

Each head is the mean of five logistic regressions over blocks of features, calibrated by Platt's two numbers, all folded into
one dot product when the weights were made (router/evals/train_route.py, router/model/ROUTE.md).

INVARIANT: the weights are the ones that were measured: their sha256 is compared at load
(tests/unit/test_routing_heads.py::test_altered_weights_are_refused).
INVARIANT: every text gives three finite numbers between 0 and 1 (…::test_any_text_gives_probabilities).
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from router.errors import SourceError
from router.routing.features import CUE_COUNT, PATTERN_BUCKETS, WORD_BUCKETS, hash_patterns, hash_words, read_cues

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[Any]

FILE_NAME = "route.npz"
SHA256 = "64eb1544ed4a6ccf78c1270d0e3ef4dfc8e07a149040a2864fc999136208017f"
DIMENSIONS = 384
SHAPES = {
    "embedding": (DIMENSIONS, 3),
    "cues": (CUE_COUNT, 3),
    "patterns": (PATTERN_BUCKETS, 3),
    "words": (WORD_BUCKETS, 3),
    "bias": (3,),
}


@dataclass(frozen=True, slots=True)
class Likelihoods:
    """Between 0 and 1 each; they need not add up to anything. A question may need rows and text."""

    rows: float
    text: float
    none: float


@dataclass(frozen=True, slots=True)
class Heads:
    """One row of three weights (rows, text, none) for each feature."""

    embedding: Floats
    cues: Floats
    patterns: Floats
    words: Floats
    bias: Floats


def load_heads(directory: Path) -> Heads:
    """The weights that ship. Raises `SourceError("model_files")` when they are missing or not the measured ones."""
    try:
        data = (directory / FILE_NAME).read_bytes()
    except OSError:
        raise SourceError("model_files", f"the model file `{FILE_NAME}` cannot be read", "install pointsman again") from None
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise SourceError("model_files", f"the model file `{FILE_NAME}` is not the one that ships", "install pointsman again")
    return parse_heads(data)


def parse_heads(data: bytes) -> Heads:
    """The arrays of a weights file, as float64: few enough numbers for the wider type, and one sum for all machines."""
    import numpy as np

    with np.load(io.BytesIO(data)) as arrays:
        found = {name: np.ascontiguousarray(arrays[name], dtype=np.float64) for name in SHAPES}
    if any(found[name].shape != shape for name, shape in SHAPES.items()):
        raise SourceError("model_files", f"the arrays of `{FILE_NAME}` do not have the shapes of its features", "train it again")
    return Heads(**found)


def score(heads: Heads, text: str, vector: bytes) -> Likelihoods:
    """`vector` is the question's embedding: float32 of unit length, as in `domain.Embedded`."""
    import numpy as np

    logits = heads.bias + np.frombuffer(vector, "<f4").astype(np.float64) @ heads.embedding
    logits = logits + np.array(read_cues(text)) @ heads.cues
    for weights, items in ((heads.patterns, hash_patterns(text)), (heads.words, hash_words(text))):
        buckets, values = np.fromiter(items.keys(), np.intp, len(items)), np.fromiter(items.values(), np.float64, len(items))
        logits = logits + values @ weights[buckets]
    rows, text_, none = (1.0 / (1.0 + np.exp(-np.clip(logits, -60.0, 60.0)))).tolist()
    return Likelihoods(rows, text_, none)
