"""Token vectors for late interaction: unit length, in fewer dimensions, one int8 scale a text."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from router.matrix import multiply

Floats = npt.NDArray[Any]


def pack_tokens(hidden: Floats, mean: Floats, basis: Floats) -> tuple[npt.NDArray[np.int8], float]:
    """Unit length, minus the model's mean, onto the directions of `basis`, unit length, one int8 scale."""
    if not len(hidden):
        return np.zeros((0, basis.shape[1]), np.int8), 1.0
    directions = _unit(multiply(_unit(hidden) - mean, basis))
    scale = 127.0 / max(float(np.abs(directions).max()), 1e-6)
    return np.rint(directions * scale).astype(np.int8), scale


def build_basis(width: int, dimensions: int) -> Floats:
    """Directions that no training chose: signs out of a digest, the same on every machine, under which distances keep within about
    the root of 1 / `dimensions` (Achlioptas 2003). Where there is nothing to leave out, the axes themselves."""
    if dimensions >= width:
        return np.eye(width, dtype=np.float32)
    needed = -(-width * dimensions // 256)
    bits = b"".join(hashlib.sha256(b"token directions %d" % at).digest() for at in range(needed))
    signs = np.unpackbits(np.frombuffer(bits, np.uint8))[: width * dimensions].reshape(width, dimensions)
    basis: Floats = ((2.0 * signs - 1.0) / np.sqrt(dimensions)).astype(np.float32)
    return basis


def _unit(rows: Floats) -> Floats:
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    unit: Floats = rows / np.maximum(lengths, 1e-12)
    return unit
