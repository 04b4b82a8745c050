"""Classical and metric multidimensional scaling of a dissimilarity matrix."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numba
import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.utils import gen_batches

from .parallel import in_threads, on_one_blas_thread, over_rows, serialized
from .progress import Report, silent

SOLVERS = ("metric", "classical")
MAX_ITERATIONS = 3000
# Numerical: up to here all eigenvectors are found at once. Of a few points alike, an iteration has no start.
DENSE = 20

# Over how many nearest nodes a node's own noise is averaged. Not varied; that half of it is taken off was compared with
# none and with all of it on marrow and on generated manifolds of seed 100.
N_NOISE = 15
# Rows that a thread takes at a time, so that temporary arrays fit into the cache.
_ROWS = 64

# Float32 runs of this length are summed before they join a float64 total: fast, and exact to about 1e-6.
_RUN = 256


def without_own_noise(D: np.ndarray) -> np.ndarray:
    """D_ij - ½(o_i + o_j), at least 0, with o the mean dissimilarity of a node to its nearest ones.

    What sets a node apart from its own neighbourhood is mostly noise, and is in all its dissimilarities alike.
    """
    k = min(N_NOISE, len(D) - 1)
    reduced = np.empty_like(D)

    def noise(some: slice) -> np.ndarray:
        # The zero on the diagonal is among the smallest.
        return 0.5 * np.partition(D[some], k, axis=1)[:, : k + 1].sum(axis=1) / max(k, 1)

    own = np.concatenate(in_threads(noise, gen_batches(len(D), _ROWS)))

    def reduce(some: slice) -> None:
        np.maximum(D[some] - own[some, None] - own[None, :], 0.0, out=reduced[some])

    in_threads(reduce, gen_batches(len(D), _ROWS))
    np.fill_diagonal(reduced, 0.0)
    return reduced


@dataclass(frozen=True)
class Layout:
    """Coordinates, with ``stress`` the sum over pairs of (distance - target)², and normalised as Kruskal's stress-1."""

    coordinates: np.ndarray
    stress: float
    stress_1: float
    n_iterations: int
    converged: bool


@on_one_blas_thread
def classical(D: np.ndarray, n_components: int) -> np.ndarray:
    """Classical scaling of ``D`` read as squared distances: the leading eigenvectors of its centred Gram matrix.

    Signs are fixed so that the largest coordinate on each axis is positive.
    """
    n = len(D)
    column_mean = D.mean(axis=0)
    mean = float(column_mean.mean())

    def centred_gram(v: np.ndarray) -> np.ndarray:
        v = v.ravel()
        return -0.5 * (D @ v - v.sum() * column_mean - (column_mean @ v - mean * v.sum()))

    if n > DENSE and n_components < n - 1:
        start = column_mean - mean if np.ptp(column_mean) > 0 else np.arange(n) - (n - 1) / 2
        gram = LinearOperator((n, n), matvec=centred_gram, dtype=np.float64)
        values, vectors = eigsh(gram, k=n_components, which="LA", v0=start)
    else:
        values, vectors = np.linalg.eigh(np.apply_along_axis(centred_gram, 0, np.eye(n)))
        values, vectors = values[-n_components:], vectors[:, -n_components:]
    order = np.argsort(values)[::-1]
    Y = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    return Y * np.where(Y[np.abs(Y).argmax(axis=0), np.arange(Y.shape[1])] < 0, -1.0, 1.0)


def smacof(
    D: np.ndarray,
    start: np.ndarray,
    *,
    eps: float = 1e-6,
    max_iter: int = MAX_ITERATIONS,
    report: Report = silent,
) -> Layout:
    """Metric scaling of ``D`` by majorisation from ``start``, with scikit-learn's stopping rule.

    Relaxed updates (twice the Guttman step) need about half the iterations; the stress still never rises, and the last
    step is a plain one.
    """
    D = np.ascontiguousarray(D, dtype=np.float32)
    X = np.ascontiguousarray(start, dtype=np.float64)
    # The Guttman transform forgets the scale of its argument, so a plain first step also fits the start's units to D.
    X, _, _ = _guttman(D, X - X.mean(axis=0))
    guttman, stress, squares = _guttman(D, X)
    converged = False
    n_iterations = percent = 0
    first: float | None = None
    while not converged and n_iterations < max_iter:
        X = 2.0 * guttman - X
        guttman, new_stress, squares = _guttman(D, X)
        gain = (stress - new_stress) / squares if squares else 0.0
        converged = gain < eps
        first = gain if first is None else first
        stress = new_stress
        n_iterations += 1
        percent = max(percent, 100 if converged else _percent(gain, first, eps))
        report("metric MDS, percent", percent, 100)
    X = guttman
    _, stress, squares = _guttman(D, X)
    return Layout(X, stress, float(np.sqrt(stress / squares)) if squares else 0.0, n_iterations, bool(converged))


def _percent(gain: float, first: float, eps: float) -> int:
    """How far the gain of an iteration has fallen from the first to the one that ends it, in orders of magnitude."""
    return 0 if not 0 < eps < first else int(100 * np.clip(np.log(first / gain) / np.log(first / eps), 0, 1))


@serialized
def _guttman(D: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, float, float]:
    """The Guttman transform of X, the stress of X, and half its sum of squared distances."""
    n, dimension = X.shape
    moved, stress, squares = np.zeros((n, dimension)), np.zeros(n), np.zeros(n)
    columns = np.ascontiguousarray(X.T, dtype=np.float32)
    over_rows(functools.partial(_guttman_rows, D, columns, moved, stress, squares), n)
    # Row sums are added in one order, so that the result does not depend on the number of threads.
    return moved - moved.mean(axis=0), float(stress.sum()) / 2, float(squares.sum()) / 2


# The three short loops stand alone because LLVM vectorises them there; inside the long one it does not.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@numba.njit(fastmath=_FAST, error_model="numpy", inline="never", cache=True)
def _add_squares(total, x, x_i):
    for j in range(x.shape[0]):
        difference = x_i - x[j]
        total[j] += difference * difference


@numba.njit(fastmath=_FAST, error_model="numpy", inline="never", cache=True)
def _to_ratios(squared, target):
    stress, squares, tiny = np.float32(0), np.float32(0), np.float32(1e-12)
    for j in range(squared.shape[0]):
        distance = np.sqrt(squared[j])
        error = distance - target[j]
        stress += error * error
        squares += squared[j]
        squared[j] = target[j] / (distance + tiny)
    return stress, squares


@numba.njit(fastmath=_FAST, error_model="numpy", inline="never", cache=True)
def _pull(ratio, x, x_i):
    total = np.float32(0)
    for j in range(x.shape[0]):
        total += ratio[j] * (x_i - x[j])
    return total


@numba.njit(nogil=True, cache=True)
def _guttman_rows(D, columns, moved, stress, squares, begin, end):
    dimension, n = columns.shape
    work = np.empty(_RUN, np.float32)
    for i in range(begin, end):
        for first in range(0, n, _RUN):
            last = min(first + _RUN, n)
            run = work[: last - first]
            for j in range(last - first):
                run[j] = 0
            for c in range(dimension):
                _add_squares(run, columns[c, first:last], columns[c, i])
            run_stress, run_squares = _to_ratios(run, D[i, first:last])
            stress[i] += run_stress
            squares[i] += run_squares
            for c in range(dimension):
                moved[i, c] += _pull(run, columns[c, first:last], columns[c, i]) / n
