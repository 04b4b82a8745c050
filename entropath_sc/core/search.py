"""The nearest landmarks of cells, exactly and in blocks, and the weights of cells on them."""

from __future__ import annotations

import functools

import numba
import numpy as np
import scipy.sparse as sp

from .parallel import over_rows, serialized, thread_pools
from .progress import Report, silent

# Cells a block, large enough for an efficient product, and small enough for the cache.
BLOCK_CELLS = 128
# Cells between two reports of progress.
REPORT_CELLS = 65_536
# The minima of groups of this many scores bound the k-th smallest score. An odd number keeps rows of scores from being
# a power of two apart, where they would push each other out of the cache.
_GROUP = 9
# Compiled loops take this many values at a time, and the rest one by one, which is slower: arrays are padded to it.
_VECTOR = 32
# Scores are rounded differently by different shapes of product; what they might have missed is this close to the bound,
# relative to the norms.
_ROUNDING = np.float32(1e-5)
_LARGEST = np.finfo(np.float32).max


@serialized
def nearest_landmarks(
    X: np.ndarray, landmarks: np.ndarray, k: int, *, report: Report = silent
) -> tuple[np.ndarray, np.ndarray]:
    """The ``k`` nearest landmarks of each cell, nearest first: indices (int32) and distances (float32)."""
    landmarks = np.asarray(landmarks, dtype=np.float32)
    if X.shape[1] != landmarks.shape[1]:
        raise ValueError(f"Cells have {X.shape[1]} columns, and what they are placed among {landmarks.shape[1]}.")
    # Before one of them spoils the centre, and so all.
    _check_finite(np.einsum("ij,ij->i", landmarks, landmarks))
    # Centred, the float32 inner products lose less to cancellation.
    centre = landmarks.mean(axis=0)
    landmarks = np.ascontiguousarray(landmarks - centre)
    # One more feature makes the product itself the score: half the squared distance, less what is the cell's own.
    half_norms = 0.5 * np.einsum("ij,ij->i", landmarks, landmarks)
    _check_finite(half_norms)
    scoring = _padded(np.vstack([-landmarks.T, half_norms]))
    indices = np.empty((X.shape[0], k), dtype=np.int32)
    distances = np.empty((X.shape[0], k), dtype=np.float32)
    # Each thread multiplies its own blocks: threads inside BLAS would only get in the way.
    with thread_pools().limit(limits=1, user_api="blas"):
        for first in range(0, X.shape[0], REPORT_CELLS):
            part = slice(first, min(first + REPORT_CELLS, X.shape[0]))
            cells = np.ones((part.stop - part.start, landmarks.shape[1] + 1), dtype=np.float32)
            np.subtract(X[part], centre, out=cells[:, :-1], casting="same_kind")
            norms = np.einsum("ij,ij->i", cells[:, :-1], cells[:, :-1])
            _check_finite(norms)
            job = (cells, norms, landmarks, scoring, BLOCK_CELLS, indices[part], distances[part])
            over_rows(functools.partial(_search, *job), len(cells))
            report("nearest landmarks, cells", part.stop, X.shape[0])
    return indices, distances


def _check_finite(norms: np.ndarray) -> None:
    """Refuse cells that are nowhere: nothing is nearest to them."""
    bad = len(norms) - np.count_nonzero(np.isfinite(norms))
    if bad:
        raise ValueError(
            f"The representation holds NaN, inf or numbers too large for single precision, in {bad} of the "
            f"{len(norms)} cells looked at so far. Remove such cells, or rescale it."
        )


def _padded(scoring: np.ndarray) -> np.ndarray:
    """With further landmarks, infinitely far from all cells, until groups of them fill whole vectors."""
    n_features, n_landmarks = scoring.shape
    padded = np.zeros((n_features, -(-n_landmarks // (_GROUP * _VECTOR)) * _GROUP * _VECTOR), dtype=np.float32)
    padded[:, :n_landmarks] = scoring
    padded[-1, n_landmarks:] = np.inf
    return padded


def _search(cells, norms, landmarks, scoring, block, indices, distances, begin, end):
    """Cells from ``begin`` to ``end``, in blocks."""
    width = scoring.shape[1]
    # One workspace for all blocks: fresh memory for each would cost as much as the work on it.
    products = np.empty((block, width), np.float32)
    minima, length = np.empty(width // _GROUP, np.float32), np.empty(width, np.float32)
    found = np.empty((2, width + 1), np.uint32)
    for first in range(begin, end, block):
        last = min(first + block, end)
        np.dot(cells[first:last], scoring, out=products[: last - first])
        _select(products, cells, norms, landmarks, first, last, indices, distances, minima, length, found)


# Few and plain kernels: numba takes seconds to compile slices, products, allocations and its own sort. The short loops
# stand alone because LLVM vectorises them there; inside the long one it does not.
_FAST = {"reassoc", "contract", "arcp", "nsz", "nnan"}


@numba.njit(nogil=True, cache=True)
def _select(products, cells, norms, landmarks, first, last, indices, distances, minima, length, found):
    """The nearest landmarks of the cells from ``first`` to ``last``, whose scores are ``products``."""
    k = indices.shape[1]
    for i in range(first, last):
        row = products[i - first]
        _minima(row, minima)
        if k <= minima.shape[0]:
            bound = _upper_bound(minima, minima.shape[0], k)
        else:
            bound = _upper_bound(row, landmarks.shape[0], k)
        # Scores only find the candidates. A distance is computed from the cell and the landmark alone, so that it
        # does not depend on which other cells were in the block.
        bound = min(bound + _ROUNDING * (abs(bound) + norms[i]), _LARGEST)
        n_found = np.int64(_collect(row, minima, bound, found))
        _measure(cells, i, landmarks, found, n_found, length)
        for m in range(n_found):
            # Into its place among the k nearest so far; the first of those as far comes first.
            place = min(m, k)
            while place > 0 and distances[i, place - 1] > length[m]:
                if place < k:
                    distances[i, place], indices[i, place] = distances[i, place - 1], indices[i, place - 1]
                place -= 1
            if place < k:
                distances[i, place], indices[i, place] = length[m], found[1, m]


@numba.njit(fastmath=_FAST, inline="never", cache=True)
def _minima(scores, minima):
    """Landmarks j, j + n_groups, j + 2 n_groups ... form a group, so that minima are taken over whole vectors."""
    n_groups = minima.shape[0]
    for j in range(n_groups):
        least = scores[j]
        for m in range(1, _GROUP):
            least = min(least, scores[j + m * n_groups])
        minima[j] = least


@numba.njit(fastmath=_FAST, inline="never", cache=True)
def _upper_bound(scores, n, k):
    """By bisection, a value that at least ``k`` of the first ``n`` scores do not exceed, and not many more."""
    low, high = scores[0], scores[0]
    for j in range(n):
        low, high = min(low, scores[j]), max(high, scores[j])
    # What the landmarks were padded with is infinitely far.
    high = min(high, _LARGEST)
    for _ in range(20):
        middle = np.float32(0.5) * low + np.float32(0.5) * high
        n_below = np.uint32(0)  # a count as wide as the values is the fastest
        for j in range(n):
            n_below += np.uint32(scores[j] < middle)
        if n_below >= k:
            high = middle
            if n_below <= k + 4:
                break
        else:
            low = middle
    return high


@numba.njit(inline="never", cache=True)
def _collect(scores, minima, bound, found):
    """Indices of the scores up to ``bound``, without a branch for each: first the groups, then within them."""
    n_groups, n_near, n_found = np.uint32(minima.shape[0]), np.uint32(0), np.uint32(0)
    for group in range(n_groups):
        found[0, n_near] = group
        n_near += np.uint32(minima[group] <= bound)
    for near in range(n_near):
        for m in range(np.uint32(_GROUP)):
            j = found[0, near] + m * n_groups
            found[1, n_found] = j
            n_found += np.uint32(scores[j] <= bound)
    return n_found


@numba.njit(fastmath=_FAST, inline="never", cache=True)
def _measure(cells, i, landmarks, found, n_found, length):
    """Distances of a cell to the landmarks that were found."""
    for m in range(n_found):
        total = np.float32(0)
        for f in range(landmarks.shape[1]):
            difference = cells[i, f] - landmarks[found[1, m], f]
            total += difference * difference
        length[m] = np.sqrt(total)


def placement_weights(
    indices: np.ndarray, distances: np.ndarray, landmark_bandwidth: np.ndarray, cell_bandwidth: np.ndarray | None = None
) -> sp.csr_matrix:
    """Rows of weights exp(-d²/(σ(x) σ_j)) that sum to one; by default σ(x) is the farthest distance of the row."""
    n_cells, k = indices.shape
    own = (distances[:, -1] if cell_bandwidth is None else cell_bandwidth).astype(np.float32)
    scale = landmark_bandwidth.astype(np.float32)[indices] * own[:, None]
    costs = np.divide(distances**2, scale, out=np.zeros_like(scale), where=scale > 0)
    # Relative to the nearest landmark the largest weight is one, so the sum cannot vanish far from all of them.
    values = np.exp(costs.min(axis=1, keepdims=True) - costs)
    values /= values.sum(axis=1, keepdims=True)
    indptr = np.arange(n_cells + 1, dtype=np.int64) * k
    return sp.csr_matrix((values.ravel(), indices.ravel(), indptr), shape=(n_cells, len(landmark_bandwidth)))
