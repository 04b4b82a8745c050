"""Powers and heat kernels of the rescaled affinity, and the free energy of their path ensembles."""

from __future__ import annotations

from collections.abc import Iterator

import numba
import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dsyrk
from scipy.special import factorial

from .parallel import exclusive
from .sparse import product

DIFFUSIONS = ("heat", "power")
# How much of the free energy of returning home, -log S_ii, is taken off that of going from one to the other.
DISSIMILARITIES = {"averaged": 0.5, "balanced": 0.5, "free_energy": 0.0, "normalised": 1.0}

# The paper's floor: what a pair that no k-step path joins is given instead of zero.
POWER_FLOOR = 1e-21
# A heat kernel joins all pairs; this only catches those beyond the range of floats.
HEAT_FLOOR = 1e-300

# The heat kernel is squared up from a short time, where its series to this degree has a relative error of 1e-10.
SHORT_TIME = 2.0**-3
SERIES_DEGREE = 6
# A matrix with more than this part of its entries is multiplied as a dense one.
DENSE = 0.1


@exclusive
def squared(S: np.ndarray) -> np.ndarray:
    """S @ S of a symmetric S, at half the cost of a general product."""
    # BLAS fills one triangle, in Fortran's order; read in C's it is the other one of the same symmetric matrix.
    product = dsyrk(1.0, S.T, lower=1).T
    _mirror_upper(product)
    return product


@numba.njit(parallel=True, cache=True)
def _mirror_upper(S):
    """Copy the upper triangle to the lower one, tile by tile so that both sides stay in the cache."""
    n, tile = len(S), 64
    n_tiles = (n + tile - 1) // tile
    for row in numba.prange(n_tiles):
        for column in range(row + 1):
            for i in range(row * tile, min((row + 1) * tile, n)):
                for j in range(column * tile, min((column + 1) * tile, i)):
                    S[i, j] = S[j, i]


def matrix_power(A: np.ndarray, depth: int) -> np.ndarray:
    """A^depth by repeated squaring; sums and products of non-negative numbers stay accurate entry by entry."""
    power, square = None, A
    while True:
        if depth & 1:
            power = square if power is None else power @ square
        depth >>= 1
        if not depth:
            return power
        square = squared(square)


def heat_kernel(A: sp.csr_matrix | np.ndarray, time: float, *, reach: int = 0) -> np.ndarray:
    """e^{-time (I - A)}, by squaring a short-time series of non-negative terms.

    ``reach`` is a number of hops that paths must be able to make, so that no pair stays at zero for want of terms.
    """
    doublings = max(0, int(np.ceil(np.log2(max(time / SHORT_TIME, reach / SERIES_DEGREE, 1.0)))))
    kernel = _short_time(A, time / 2.0**doublings)
    for _ in range(doublings):
        kernel = squared(kernel)
    return kernel


def heat_doublings(A: sp.csr_matrix | np.ndarray, time: float, *, reach: int = 0) -> Iterator[tuple[float, np.ndarray]]:
    """(t, e^{-t(I - A)}) for t = time, 2 time, 4 time ..., each by one squaring of the one before."""
    kernel = heat_kernel(A, time, reach=reach)
    while True:
        yield time, kernel
        time, kernel = 2.0 * time, squared(kernel)


def _short_time(A: sp.csr_matrix | np.ndarray, time: float) -> np.ndarray:
    """The series of e^{-time} e^{time A}, term by term from the last: what A joins directly is few."""
    A = sp.csr_matrix(A)
    terms = np.exp(-time) * time ** np.arange(SERIES_DEGREE + 1) / factorial(np.arange(SERIES_DEGREE + 1))
    identity = sp.eye_array(A.shape[0], format="csr")
    kernel = (terms[-1] * A + terms[-2] * identity).tocsr()
    kernel = (A @ kernel + terms[-3] * identity).toarray()
    dense = A.toarray() if A.nnz > DENSE * A.shape[0] ** 2 else None
    spare = np.empty_like(kernel)
    for term in terms[-4::-1]:
        moved = product(A, kernel, out=spare) if dense is None else np.dot(dense, kernel, out=spare)
        kernel, spare = moved, kernel
        kernel.flat[:: A.shape[0] + 1] += term
    return kernel


@exclusive
def free_energy(kernel: np.ndarray, *, dissimilarity: str = "free_energy", floor: float = HEAT_FLOOR) -> np.ndarray:
    """-log of a symmetric diffusion kernel S, with a zero diagonal.

    ``free_energy`` is -log S_ij; ``normalised`` is -2 log of the cosine S_ij/sqrt(S_ii S_jj); ``balanced`` lies half
    way, -log(S_ij/(S_ii S_jj)^¼), and so does ``averaged`` before :func:`shared` is applied to it.
    """
    share = DISSIMILARITIES[dissimilarity]
    own = -0.5 * share * np.log(np.maximum(np.diag(kernel), floor))
    D = np.empty_like(kernel)
    factor = 2.0 if dissimilarity == "normalised" else 1.0
    _fill_free_energy(kernel, own, factor, floor, numba.get_num_threads(), D)
    _mirror_upper(D)
    return D


@numba.njit(parallel=True, cache=True)
def _fill_free_energy(kernel, own, factor, floor, n_threads, D):
    """The upper triangle; rows are dealt out in turn, as they become shorter."""
    n = len(D)
    for thread in numba.prange(n_threads):
        for i in range(thread, n, n_threads):
            D[i, i] = 0.0
            for j in range(i + 1, n):
                energy = -np.log(max(kernel[i, j], floor)) - own[i] - own[j]
                # Rounding, and odd powers (which are not positive semidefinite), can leave a pair slightly below zero.
                D[i, j] = max(factor * energy, 0.0)


@exclusive
def shared(D: np.ndarray, A: sp.csr_matrix) -> np.ndarray:
    """Dissimilarities half as each node sees them and half as its neighbours do, at both ends of a pair.

    What sets a node apart from its neighbours is mostly noise, and much of it cancels. The whole of their mean would
    blur clean manifolds more than it gains on noisy ones.
    """
    mean = sp.diags_array(1.0 / np.asarray(A.sum(axis=1)).ravel()) @ A
    half = (0.5 * (sp.eye_array(len(D)) + mean)).tocsr()
    D = product(half, _transposed(product(half, D)))
    np.fill_diagonal(D, 0.0)
    _mirror_upper(D)
    return D


@numba.njit(parallel=True, cache=True)
def _transposed(S):
    """Tile by tile, as numpy's own copy would leave the cache at each step."""
    n, tile = len(S), 64
    out = np.empty_like(S)
    for row in numba.prange((n + tile - 1) // tile):
        for column in range(0, n, tile):
            for i in range(row * tile, min((row + 1) * tile, n)):
                for j in range(column, min(column + tile, n)):
                    out[i, j] = S[j, i]
    return out
