"""Logistic regression with an L2 penalty, in numpy alone, so that anybody's installation can train the router's heads again.

The objective has one minimum, so a fit depends on data, penalty and sample weights and on nothing else: a row that is left out
has weight 0. Minimised by L-BFGS (Liu and Nocedal 1989); checked against scikit-learn 1.9 on the router's own data (largest
difference of a probability 0.002).

INVARIANT: what comes back is the minimum (tests/unit/test_routing_training.py::test_the_fit_is_the_minimum).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[Any]

MEMORY = 12
ROUNDS = 400
TOLERANCE = 1e-5
"""Largest entry of the gradient of the mean loss at which a fit is done."""


@dataclass(frozen=True, slots=True)
class Dense:
    """Every row holds every feature."""

    values: Floats

    @property
    def width(self) -> int:
        return int(self.values.shape[1])

    def forward(self, weights: Floats) -> Floats:
        product: Floats = self.values @ weights
        return product

    def back(self, residuals: Floats) -> Floats:
        product: Floats = residuals @ self.values
        return product


@dataclass(frozen=True, slots=True)
class Sparse:
    """Rows hold few features each. Kept twice, by row and by column, so that both products are sums over runs."""

    height: int
    width: int
    by_row: Runs
    by_column: Runs

    def forward(self, weights: Floats) -> Floats:
        return self.by_row.sums(weights, self.height)

    def back(self, residuals: Floats) -> Floats:
        return self.by_column.sums(residuals, self.width)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of (index, value), one for each of `places`: what a sparse product adds up."""

    places: Floats
    starts: Floats
    indices: Floats
    values: Floats

    def sums(self, factors: Floats, size: int) -> Floats:
        import numpy as np

        out = np.zeros(size)
        if len(self.starts):
            out[self.places] = np.add.reduceat(self.values * factors[self.indices], self.starts)
        return out


def build_sparse(rows: Iterable[Mapping[int, float]], width: int) -> Sparse:
    """From one mapping of feature to value for each row."""
    import numpy as np

    listed = list(rows)
    owners = np.repeat(np.arange(len(listed)), [len(row) for row in listed])
    columns = np.fromiter((column for row in listed for column in row), np.intp, len(owners))
    values = np.fromiter((value for row in listed for value in row.values()), np.float64, len(owners))
    order = np.argsort(columns, kind="stable")
    return Sparse(len(listed), width, _runs(owners, columns, values), _runs(columns[order], owners[order], values[order]))


def _runs(keys: Floats, indices: Floats, values: Floats) -> Runs:
    import numpy as np

    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return Runs(keys[starts], starts, indices, values)


Part = Dense | Sparse


@dataclass(frozen=True, slots=True)
class Fitted:
    """`weights` are in the order of the parts' features."""

    weights: Floats
    bias: float


def fit_logistic(parts: Sequence[Part], labels: Floats, sample_weights: Floats, c: float) -> Fitted:
    """Minimise sum(sample weight x log loss) + |weights|^2 / 2c; the bias is free. `labels` are 0 and 1."""
    import numpy as np

    signs = 2.0 * labels - 1.0
    total = float(sample_weights.sum())
    shares, penalty = sample_weights / total, 1.0 / (c * total)
    cuts = np.cumsum([part.width for part in parts])

    def forward(w: Floats) -> Floats:
        pieces = np.split(w[:-1], cuts[:-1])
        return sum((part.forward(piece) for part, piece in zip(parts, pieces, strict=True)), np.full(len(labels), w[-1]))

    def loss(w: Floats, margins: Floats) -> float:
        return float(shares @ np.logaddexp(0.0, -signs * margins) + 0.5 * penalty * (w[:-1] @ w[:-1]))

    def gradient(w: Floats, margins: Floats) -> Floats:
        residuals = -shares * signs / (1.0 + np.exp(np.clip(signs * margins, -500.0, 500.0)))
        inner = np.concatenate([part.back(residuals) for part in parts]) + penalty * w[:-1]
        return np.append(inner, residuals.sum())

    found = _minimise(forward, loss, gradient, np.zeros(int(cuts[-1]) + 1))
    return Fitted(found[:-1], float(found[-1]))


def _minimise(
    forward: Callable[[Floats], Floats],
    loss: Callable[[Floats, Floats], float],
    gradient: Callable[[Floats, Floats], Floats],
    w: Floats,
) -> Floats:
    """`forward` is linear, so a step along a direction costs no new product with the data."""
    import numpy as np

    margins = forward(w)
    value, slope = loss(w, margins), gradient(w, margins)
    pairs: list[tuple[Floats, Floats]] = []
    for _ in range(ROUNDS):
        if float(np.abs(slope).max()) <= TOLERANCE:
            break
        direction = -_precondition(slope, pairs)
        descent = float(slope @ direction)
        ahead, step = forward(direction), 1.0
        while (new := loss(w + step * direction, margins + step * ahead)) > value + 1e-4 * step * descent and step > 1e-10:
            step /= 2
        moved = step * direction
        w, margins, value = w + moved, margins + step * ahead, new
        fresh = gradient(w, margins)
        if float(moved @ (fresh - slope)) > 1e-14:
            pairs = [*pairs[-MEMORY + 1 :], (moved, fresh - slope)]
        slope = fresh
    return w


def _precondition(slope: Floats, pairs: Sequence[tuple[Floats, Floats]]) -> Floats:
    """The two loops: about the inverse of the second derivative, times the gradient."""
    import numpy as np

    out, alphas = slope.copy(), []
    for moved, change in reversed(pairs):
        alpha = float(moved @ out) / float(moved @ change)
        alphas.append(alpha)
        out -= alpha * change
    if pairs:
        moved, change = pairs[-1]
        out *= float(moved @ change) / float(change @ change)
    else:
        out /= max(1.0, float(np.abs(out).max()))
    for (moved, change), alpha in zip(pairs, reversed(alphas), strict=True):
        out += (alpha - float(change @ out) / float(moved @ change)) * moved
    return out
