"""One matrix product for every place that needs one, always on the calling thread.

A BLAS hands larger products to threads of its own. For the small ones here that costs more than it saves, and on a machine
that is busy it waits for a core: a rerank of 50 candidates took 13 ms instead of 0.8 (tests/bench/rerank.py). The embedding
application's own numpy stays as it configured it: no environment variable is set, no thread count is changed.

INVARIANT: the result is that of `@` (tests/unit/test_matrix.py::test_equals_the_plain_product).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[Any]

BLOCK = 200_000
"""Multiplications in one call: OpenBLAS stays on one thread below 262,144."""


def multiply(rows: Floats, columns: Floats) -> Floats:
    """`rows @ columns` as float32, in blocks of rows that are too small to be worth a thread."""
    import numpy as np

    count, depth = rows.shape
    width = columns.shape[1]
    block = max(1, BLOCK // max(1, depth * width))
    blocks = -(-count // block)
    padded = np.zeros((blocks, block, depth), np.float32)
    padded.reshape(-1, depth)[:count] = rows
    product: Floats = (padded @ columns.astype(np.float32, copy=False)).reshape(-1, width)[:count]
    return product
