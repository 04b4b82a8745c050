"""Products of sparse matrices with dense ones, on all cores."""

from __future__ import annotations

import numba
import numpy as np
import scipy.sparse as sp

from .parallel import exclusive


@exclusive
def product(A: sp.csr_matrix, values: np.ndarray) -> np.ndarray:
    """A @ values of a matrix with many columns, or few."""
    values = np.ascontiguousarray(values, dtype=np.float64)
    out = np.empty((A.shape[0], values.shape[1]))
    _times_matrix(A.indptr, A.indices, A.data, values, out)
    return out


@numba.njit(parallel=True, cache=True)
def _times_matrix(indptr, indices, data, values, out):
    for i in numba.prange(len(out)):
        row = out[i]
        row[:] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            weight, there = data[e], values[indices[e]]
            for c in range(row.shape[0]):
                row[c] += weight * there[c]


def averaged(A: sp.csr_matrix, values: np.ndarray, rounds: int = 1) -> np.ndarray:
    """The mean over the neighbours of each node, by affinity, in rounds."""
    degree = np.asarray(A.sum(axis=1)).ravel()
    for _ in range(rounds):
        values = ((A @ values if values.ndim == 1 else product(A, values)).T / degree).T
    return values
