"""A centre and a length for positions, so that single precision is enough wherever they are and whatever their unit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils import gen_batches

_BLOCK = 65_536
# Numerical. Single precision has seven digits, of which the distance from the origin may take one. It holds the
# squares of lengths in this range.
FARTHEST = 10.0
LENGTHS = (1e-9, 1e9)


@dataclass(frozen=True)
class Frame:
    """Positions relative to ``centre``, in units of ``length``: a power of two, which costs no digits."""

    centre: np.ndarray | float = 0.0
    length: float = 1.0

    @classmethod
    def of(cls, X: np.ndarray) -> Frame:
        """About the mean of the cells and their median distance from it; as they are where that is good enough."""
        some = np.asarray(X[:: -(-len(X) // _BLOCK)], dtype=np.float64)
        top = float(np.abs(some).max(initial=0.0)) or 1.0  # the squares of numbers near the largest would overflow
        centre = (some / top).mean(axis=0)
        far = np.linalg.norm(some / top - centre, axis=1)
        middle = float(np.median(far)) or float(far.max(initial=0.0)) or 1.0
        if np.linalg.norm(centre) <= FARTHEST * middle and LENGTHS[0] <= middle * top <= LENGTHS[1]:
            return cls()
        return cls(centre * top, float(2.0 ** np.clip(np.round(np.log2(middle) + np.log2(top)), -1000, 1000)))

    @property
    def is_identity(self) -> bool:
        """Whether positions stay as they are."""
        return np.isscalar(self.centre)

    def __call__(self, X: np.ndarray, dtype: type = np.float32) -> np.ndarray:
        """Positions in this frame."""
        if self.is_identity:
            return X
        found: np.ndarray = np.empty(X.shape, dtype=dtype)
        for some in gen_batches(len(X), _BLOCK):
            found[some] = (X[some] - self.centre) / self.length
        return found
