"""The product on the calling thread equals the plain one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from router import matrix


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 700), st.integers(1, 80), st.integers(1, 90), st.integers(0, 2**32 - 1))
def test_equals_the_plain_product(count: int, depth: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(-127, 128, (count, depth)).astype(np.int8)
    columns = rng.standard_normal((depth, width)).astype(np.float32)
    product = matrix.multiply(rows, columns)
    assert product.shape == (count, width)
    np.testing.assert_allclose(product, rows.astype(np.float32) @ columns, rtol=1e-4, atol=1e-3)


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    """A passage's score must not change in its last bit because of how many others were loaded."""
    rng = np.random.default_rng(3)
    rows = rng.integers(-127, 128, (900, 64)).astype(np.int8)
    columns = rng.standard_normal((64, 7)).astype(np.float32)
    whole = matrix.multiply(rows, columns)
    for count in (1, 5, 446, 447, 899):
        assert matrix.multiply(rows[:count], columns).tobytes() == whole[:count].tobytes()
