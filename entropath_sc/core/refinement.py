"""What makes an order finer: a cleaner graph, and the length that expression moves as the clock."""

from __future__ import annotations

import numba
import numpy as np
import scipy.sparse as sp
from scipy.integrate import cumulative_trapezoid
from scipy.sparse.linalg import LinearOperator, cg

from .parallel import exclusive, on_one_blas_thread
from .projection import measure
from .sparse import averaged, product, unsigned

# Components of which neighbours share more than this are kept: the rest is mostly noise.
SHARED = 0.5
# Neighbours in these components, out of those at most two hops away; where nodes are few, at most one in so many of
# them. Single cells are averaged over more, as there is more noise in them than in means of cells.
N_NEAREST = 40
CELLS_PER_NEIGHBOUR, MEANS_PER_NEIGHBOUR = 10, 50
# How much of the old graph stays in the cleaner one, so that what it joined is still joined.
REMAINDER = 1e-3
# Rounds in which the speed is averaged over neighbours, and the error that the fitted clock may have.
SPEED_ROUNDS = 4
TOLERANCE = 1e-3
MAX_ITERATIONS = 2000


def cleaned(A: sp.csr_matrix, X: np.ndarray, *, means: bool = False) -> tuple[sp.csr_matrix, np.ndarray]:
    """A graph of the same nodes without the noise of most components, and their positions in the components it keeps.

    A graph of nearest neighbours is made of all components alike. Those in which a node has little in common with its
    neighbours only choose among the latter by chance. Where nodes are ``means`` of many cells, all are kept.
    """
    X = np.asarray(X, dtype=np.float64)
    X = X - X.mean(axis=0)
    if not means:
        variance = (X**2).sum(axis=0)
        shared = (X * averaged(A, X)).sum(axis=0) / np.where(variance > 0, variance, np.inf)
        kept = shared > SHARED
        X = np.ascontiguousarray(X[:, kept] if kept.any() else X)
    per_neighbour = MEANS_PER_NEIGHBOUR if means else CELLS_PER_NEIGHBOUR
    nearest, weights = _nearest_within_two_hops(A, X, min(N_NEAREST, max(len(X) // per_neighbour, 5)))
    there = weights > 0
    indptr = np.append(0, np.cumsum(there.sum(axis=1)))
    one_way = sp.csr_matrix((weights[there], nearest[there], indptr), shape=A.shape)
    return (0.5 * (one_way + one_way.T) + REMAINDER * A).tocsr(), X


@exclusive
def _nearest_within_two_hops(A: sp.csr_matrix, X: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The nearest nodes at most two hops from each, and Gaussian weights; weights of zero where there are fewer."""
    nearest = np.zeros((len(X), size), dtype=np.int32)
    weights = np.zeros((len(X), size))
    _fill_nearest(*unsigned(A), X.astype(np.float32), numba.get_num_threads(), nearest, weights)
    return nearest, weights


@numba.njit(parallel=True, cache=True)
def _fill_nearest(indptr, indices, X, n_threads, nearest, weights):
    n = len(nearest)
    for thread in numba.prange(n_threads):
        seen = np.full(n, n, np.uint32)
        found, length = np.empty(n, np.uint32), np.empty(n, np.float32)
        # Nodes are dealt out in turn: those with many neighbours are often next to each other.
        for i in range(thread, n, n_threads):
            seen[i] = i
            n_found = 0
            for e in range(indptr[i], indptr[i + 1]):
                between = indices[e]
                if seen[between] != i:
                    seen[between] = i
                    found[n_found] = between
                    n_found += 1
                for f in range(indptr[between], indptr[between + 1]):
                    j = indices[f]
                    if seen[j] != i:
                        seen[j] = i
                        found[n_found] = j
                        n_found += 1
            if n_found == 0:
                continue
            measure(X[i], X, found[:n_found], length)
            _keep(found[:n_found], length[:n_found], nearest[i], weights[i])


@numba.njit(inline="never", cache=True)
def _keep(found, length, nearest, weights):
    """The nearest of the nodes that were found, by insertion; Gaussian weights with the median as their scale."""
    size = min(len(nearest), len(found))
    kept = 0
    for m in range(len(found)):
        if kept == size and length[m] >= weights[size - 1]:
            continue
        place = min(kept, size - 1)
        while place > 0 and weights[place - 1] > length[m]:
            weights[place], nearest[place] = weights[place - 1], nearest[place - 1]
            place -= 1
        weights[place], nearest[place] = length[m], found[m]
        kept = min(kept + 1, size)
    scale = weights[size // 2]
    for m in range(size):
        weights[m] = np.exp(-((weights[m] / scale) ** 2)) if scale > 0 else 1.0


def twiced(A: sp.csr_matrix, values: np.ndarray, rounds: int) -> np.ndarray:
    """Averaged over neighbours. That draws in the ends of branches; the average of what it took off gives most back."""
    average = averaged(A, values, rounds)
    return average + averaged(A, values - average, rounds)


@on_one_blas_thread
def by_length(A: sp.csr_matrix, X: np.ndarray, potential: np.ndarray) -> np.ndarray:
    """The potential with another clock: how far the mean position moves along it.

    Free energy counts steps, which are longer where cells are few, so that branches are seen shorter or longer than
    they are. Around each node, the positions are regressed on the potential; the length of the slope is its speed. The
    result is the one whose differences between neighbours fit those of the potential times the speed best, by least
    squares.
    """
    speed = np.sqrt(averaged(A, _slope(A, X, potential) ** 2, SPEED_ROUNDS))
    degree = np.asarray(A.sum(axis=1)).ravel()
    # Each edge asks for the mean of its ends' speeds times the difference of the potential; summed over the neighbours:
    moved = product(A, np.column_stack([speed, potential, speed * potential]))
    pull = 0.5 * (speed * (degree * potential - moved[:, 1]) + potential * moved[:, 0] - moved[:, 2])
    laplacian = LinearOperator(A.shape, matvec=lambda v: degree * v - A @ v, dtype=np.float64)
    precondition = LinearOperator(A.shape, matvec=lambda v: v / degree, dtype=np.float64)
    start = _integrated(speed, potential)
    length, _ = cg(laplacian, pull, x0=start, rtol=TOLERANCE, maxiter=MAX_ITERATIONS, M=precondition)
    return length


def _integrated(speed: np.ndarray, potential: np.ndarray) -> np.ndarray:
    """The length if there were no branches: the speed integrated along the order of all nodes."""
    order = np.argsort(potential, kind="stable")
    length = np.empty_like(potential)
    length[order] = cumulative_trapezoid(speed[order], potential[order], initial=0.0)
    return length


def _slope(A: sp.csr_matrix, X: np.ndarray, potential: np.ndarray) -> np.ndarray:
    """Length of the slope of the regression of positions on the potential, among the neighbours of each node."""
    around = averaged(A, np.column_stack([X, X * potential[:, None], potential, potential**2]))
    d = X.shape[1]
    mean = around[:, -2]
    joint = around[:, d : 2 * d] - around[:, :d] * mean[:, None]
    spread = around[:, -1] - mean**2
    return np.linalg.norm(joint, axis=1) / np.maximum(spread, 1e-9 * potential.var())
