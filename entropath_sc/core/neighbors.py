"""Nearest neighbours among cells."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .frame import Frame
from .parallel import n_threads, without_openmp

# Up to here an exact search is as fast as an approximate one.
EXACT_SEARCH_CELLS = 8192
# An approximate search looks for some neighbours more than it keeps: of 15 among 50,000 cells in 50 dimensions it then
# finds more than 0.99 (benchmarks/speed.py), instead of 0.93.
SPARE = 5


def knn_distances(X: np.ndarray, n_neighbors: int, *, random_state: int = 0) -> sp.csr_matrix:
    """Distances to the nearest neighbours, ``n_neighbors - 1`` others a cell (scanpy counts the cell itself)."""
    n_cells, frame = X.shape[0], Frame.of(X)
    X = frame(X, X.dtype.type)  # products of numbers far from zero would lose the digits that tell neighbours apart
    if n_cells <= EXACT_SEARCH_CELLS:
        from sklearn.neighbors import NearestNeighbors

        # Querying without X leaves each cell out of its own neighbours, also where it has duplicates.
        with without_openmp():
            distances, indices = NearestNeighbors(n_neighbors=n_neighbors - 1).fit(X).kneighbors()
    else:
        from pynndescent import NNDescent

        # UMAP's settings: more trees and rounds for more cells.
        effort = {"n_trees": min(64, 5 + round(n_cells**0.5 / 20)), "n_iters": max(5, round(np.log2(n_cells)))}
        effort |= {"max_candidates": 60, "n_jobs": n_threads()}
        index = NNDescent(X, n_neighbors=n_neighbors + SPARE, random_state=random_state, **effort)
        indices, distances = _drop_self(*(found[:, :n_neighbors] for found in index.neighbor_graph))
    distances = distances.ravel().astype(np.float64) * frame.length
    indptr = np.arange(n_cells + 1) * (n_neighbors - 1)
    return sp.csr_matrix((distances, indices.ravel(), indptr), shape=(n_cells, n_cells))


def _drop_self(indices: np.ndarray, distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One neighbour less a row: the cell itself, or the farthest where duplicates pushed it out."""
    own = indices == np.arange(len(indices))[:, None]
    own[~own.any(axis=1), -1] = True
    shape = (len(indices), indices.shape[1] - 1)
    return indices[~own].reshape(shape), distances[~own].reshape(shape)
