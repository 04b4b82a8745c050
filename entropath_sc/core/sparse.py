"""Products of sparse matrices with dense ones, on all cores."""

from __future__ import annotations

import numba
import numpy as np
import scipy.sparse as sp

from .parallel import exclusive


@exclusive
def product(A: sp.csr_matrix, values: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """A @ values of a matrix, on all cores; fresh memory for a large result would cost half as much as the product."""
    values = np.ascontiguousarray(values, dtype=np.float64)
    out = np.empty((A.shape[0], values.shape[1])) if out is None else out
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
        e, last = indptr[i], indptr[i + 1]
        # Four at a time, so that the row is read and written less often.
        while e + 4 <= last:
            a, b, c, d = indices[e], indices[e + 1], indices[e + 2], indices[e + 3]
            _add_four(row, data[e : e + 4], values[a], values[b], values[c], values[d])
            e += 4
        while e < last:
            _add_one(row, data[e], values[indices[e]])
            e += 1


@numba.njit(inline="never", cache=True)
def _add_four(row, weights, a, b, c, d):
    for j in range(row.shape[0]):
        row[j] += weights[0] * a[j] + weights[1] * b[j] + weights[2] * c[j] + weights[3] * d[j]


@numba.njit(inline="never", cache=True)
def _add_one(row, weight, a):
    for j in range(row.shape[0]):
        row[j] += weight * a[j]


def times(A: sp.csr_matrix | np.ndarray, values: np.ndarray) -> np.ndarray:
    """A @ values of a vector or a matrix, each in the fastest way."""
    return product(A, values) if sp.issparse(A) and values.ndim > 1 and values.shape[1] > 1 else A @ values


def averaged(A: sp.csr_matrix, values: np.ndarray, rounds: int = 1) -> np.ndarray:
    """The mean over the neighbours of each node, by affinity, in rounds."""
    degree = np.asarray(A.sum(axis=1)).ravel()
    for _ in range(rounds):
        values = (times(A, values).T / degree).T
    return values
