"""Cells on landmarks: nearest landmarks in blocks, and sparse interpolation weights."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import scipy.sparse as sp

# Cells a block, such that block × landmarks inner products stay in the cache.
BLOCK_CELLS = 512


def nearest_landmarks(
    X: np.ndarray, landmarks: np.ndarray, k: int, *, progress: Callable[[int], None] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The ``k`` nearest landmarks of each cell, nearest first: indices (int32) and exact distances (float32)."""
    landmarks = np.ascontiguousarray(landmarks, dtype=np.float32)
    # Centred, the float32 inner products lose less to cancellation; the distances kept are computed directly.
    centre = landmarks.mean(axis=0)
    landmarks = landmarks - centre
    half_norms = 0.5 * np.einsum("ij,ij->i", landmarks, landmarks)
    indices = np.empty((X.shape[0], k), dtype=np.int32)
    distances = np.empty((X.shape[0], k), dtype=np.float32)
    transposed = np.ascontiguousarray(landmarks.T)
    for first in range(0, X.shape[0], BLOCK_CELLS):
        block = slice(first, min(first + BLOCK_CELLS, X.shape[0]))
        cells = np.asarray(X[block], dtype=np.float32) - centre
        _select(cells, landmarks, cells @ transposed, half_norms, indices[block], distances[block])
        if progress is not None:
            progress(block.stop)
    return indices, distances


@numba.njit(parallel=True, cache=True)
def _select(cells, landmarks, products, half_norms, indices, distances):
    n_cells, k = indices.shape
    n_landmarks, n_features = landmarks.shape
    for i in numba.prange(n_cells):
        heap_score, heap_index = np.empty(k, np.float32), np.empty(k, np.int32)
        for j in range(n_landmarks):
            score = half_norms[j] - products[i, j]
            if j < k:
                # Sift up: the worst of the kept ones stays at the root.
                at = j
                while at > 0 and heap_score[(at - 1) // 2] < score:
                    heap_score[at], heap_index[at] = heap_score[(at - 1) // 2], heap_index[(at - 1) // 2]
                    at = (at - 1) // 2
                heap_score[at], heap_index[at] = score, j
            elif score < heap_score[0]:
                at = 0
                while True:
                    child = 2 * at + 1
                    if child >= k:
                        break
                    if child + 1 < k and heap_score[child + 1] > heap_score[child]:
                        child += 1
                    if heap_score[child] <= score:
                        break
                    heap_score[at], heap_index[at] = heap_score[child], heap_index[child]
                    at = child
                heap_score[at], heap_index[at] = score, j
        for m in range(k):
            total = 0.0
            for f in range(n_features):
                difference = cells[i, f] - landmarks[heap_index[m], f]
                total += difference * difference
            heap_score[m] = np.sqrt(total)
        order = np.argsort(heap_score)
        for m in range(k):
            indices[i, m] = heap_index[order[m]]
            distances[i, m] = heap_score[order[m]]


def bandwidths(landmarks: np.ndarray, n_neighbors: int) -> np.ndarray:
    """Distance of each landmark to its ``n_neighbors``-th nearest, itself included as scanpy counts."""
    k = min(n_neighbors, len(landmarks))
    _, distances = nearest_landmarks(landmarks, landmarks, k)
    return _positive(distances[:, -1].astype(np.float64))


def weights(indices: np.ndarray, distances: np.ndarray, landmark_bandwidth: np.ndarray) -> sp.csr_matrix:
    """Rows of adaptive product-bandwidth weights that sum to one: exp(-d²/(σ(x) σ_j)), σ(x) the farthest distance."""
    n_cells, k = indices.shape
    values = np.empty((n_cells, k), dtype=np.float32)
    _fill_weights(indices, distances, landmark_bandwidth.astype(np.float32), values)
    indptr = np.arange(n_cells + 1, dtype=np.int64) * k
    return sp.csr_matrix((values.ravel(), indices.ravel(), indptr), shape=(n_cells, len(landmark_bandwidth)))


@numba.njit(parallel=True, cache=True)
def _fill_weights(indices, distances, landmark_bandwidth, values):
    n_cells, k = indices.shape
    for i in numba.prange(n_cells):
        own = distances[i, k - 1]
        # Relative to the nearest landmark the largest weight is one, so the sum cannot vanish far from all of them.
        least = np.float32(np.inf)
        for m in range(k):
            scale = own * landmark_bandwidth[indices[i, m]]
            cost = distances[i, m] * distances[i, m] / scale if scale > 0 else np.float32(0)
            values[i, m] = cost
            least = min(least, cost)
        total = np.float32(0)
        for m in range(k):
            values[i, m] = np.exp(least - values[i, m])
            total += values[i, m]
        for m in range(k):
            values[i, m] /= total


def _positive(bandwidth: np.ndarray) -> np.ndarray:
    """Duplicated landmarks have no scale of their own: they get a small fraction of the mean."""
    return np.maximum(bandwidth, 1e-3 * bandwidth.mean())
