"""The inverse of a symmetric M-matrix, accurate entry by entry."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from sklearn.utils import gen_batches

from .parallel import in_threads, on_one_blas_thread

# Up to this size LAPACK inverts. It is as fast as products there, but runs on one core, and all other threads wait.
_SMALL = 256
# Rows of a product that a thread takes at a time. The same for any number of threads, as rounding depends on it.
_TILE = 512


@on_one_blas_thread
def invert(M: np.ndarray) -> None:
    """Overwrite a symmetric M-matrix with its inverse, up to rounding symmetric.

    By halves: of [[A, Bᵀ], [B, C]], first A is inverted, then C - B A⁻¹ Bᵀ. Only its diagonal is a difference, all else
    are sums of numbers of one sign. So also the smallest entries are accurate relative to themselves.
    """
    if len(M) <= _SMALL:
        lower, _ = dpotri(dpotrf(M, lower=1)[0], lower=1)
        M[:] = lower + np.tril(lower, -1).T
        return
    half = len(M) // 2
    A, B, C = M[:half, :half], M[half:, :half], M[half:, half:]
    invert(A)
    across = _product(B, A)
    C -= _product(across, B.T)
    invert(C)
    B[:] = -_product(C, across)
    A -= _product(across.T, B)
    M[:half, half:] = B.T


def _product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    product = np.empty((len(A), B.shape[1]))
    in_threads(lambda rows: np.matmul(A[rows], B, out=product[rows]), gen_batches(len(A), _TILE))
    return product
