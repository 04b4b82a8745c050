"""Products of sparse matrices with dense ones, on all cores."""

from __future__ import annotations

import numba
import numpy as np
import scipy.sparse as sp

from .parallel import exclusive


@exclusive
def product(A: sp.csr_matrix, values: np.ndarray) -> np.ndarray:
    """A @ values of a matrix; for a vector, waking threads that BLAS has just used costs more than they gain."""
    values = np.ascontiguousarray(values, dtype=np.float64)
    out = np.empty((A.shape[0], values.shape[1]))
    _times_matrix(*unsigned(A), A.data, values, out)
    return out


def unsigned(A: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """``indptr`` and ``indices`` for kernels: with a sign, numba would ask of each whether it counts from the end."""
    return A.indptr.view(f"u{A.indptr.itemsize}"), A.indices.view(f"u{A.indices.itemsize}")


@numba.njit(parallel=True, cache=True)
def _times_matrix(indptr, indices, data, values, out):
    for i in numba.prange(len(out)):
        row = out[i]
        row[:] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            weight, there = data[e], values[indices[e]]
            for c in range(row.shape[0]):
                row[c] += weight * there[c]


def times(A: sp.csr_matrix | np.ndarray, values: np.ndarray) -> np.ndarray:
    """A @ values of a vector or a matrix, each in the fastest way."""
    return product(A, values) if sp.issparse(A) and values.ndim > 1 and values.shape[1] > 1 else A @ values


def averaged(A: sp.csr_matrix, values: np.ndarray, rounds: int = 1) -> np.ndarray:
    """The mean over the neighbours of each node, by affinity, in rounds."""
    degree = np.asarray(A.sum(axis=1)).ravel()
    for _ in range(rounds):
        values = (times(A, values).T / degree).T
    return values
