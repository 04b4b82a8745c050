"""The inverse of a symmetric M-matrix, accurate entry by entry."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from sklearn.utils import gen_batches

from .parallel import in_threads, on_one_blas_thread

# Up to this size LAPACK inverts. It is as fast as products there, but runs on one core, and all other threads wait.
_SMALL = 256
# Rows of a product that a thread takes at a time. The same for any number of threads, as rounding depends on it.
_TILE = 256
# Products of fewer multiplications than this are over before threads have begun.
_SHORT = 2**25


@on_one_blas_thread
def invert(M: np.ndarray) -> None:
    """Overwrite a symmetric M-matrix with its inverse, up to rounding symmetric.

    By halves: of [[A, Bᵀ], [B, C]], first A is inverted, then C - B A⁻¹ Bᵀ. Only its diagonal is a difference, all else
    are sums of numbers of one sign. So also the smallest entries are accurate relative to themselves. Empty rows
    and columns of B take no time. Most are empty where the graph is sparse and neighbours follow each other.
    """
    if len(M) <= _SMALL:
        lower, _ = dpotri(dpotrf(M, lower=1)[0], lower=1)
        M[:] = lower + np.tril(lower, -1).T
        return
    half = len(M) // 2
    A, B, C = M[:half, :half], M[half:, :half], M[half:, half:]
    joined = B != 0
    rows, columns = np.flatnonzero(joined.any(axis=1)), np.flatnonzero(joined.any(axis=0))
    links = B[np.ix_(rows, columns)]
    invert(A)
    across = _product(links, A[columns])
    C[np.ix_(rows, rows)] -= across[:, columns] @ links.T
    invert(C)
    B[:] = _product(C[:, rows], -across)
    A -= _product(np.ascontiguousarray(across.T), B[rows])
    M[:half, half:] = B.T


def _product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    if A.size * B.shape[1] < _SHORT:
        return A @ B
    product = np.empty((len(A), B.shape[1]))
    in_threads(lambda rows: np.matmul(A[rows], B, out=product[rows]), gen_batches(len(A), _TILE))
    return product
