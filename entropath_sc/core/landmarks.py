"""Choosing landmark cells, and the graph among them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numba
import numpy as np
import scipy.sparse as sp

from .cells import Cells
from .graph import Graph, connected, graph_of_cells
from .neighbors import knn_distances
from .nodes import Nodes
from .parallel import without_openmp
from .search import nearest_landmarks

RULES = ("farthest", "kmeans", "random")

# Landmarks are chosen among a sample of this many cells for each; all cells are assigned afterwards. In a sample not
# much larger than the landmarks, farthest-point sampling also meets few outliers.
SAMPLE_PER_LANDMARK = 10
KMEANS_ITERATIONS = 10
# Fitted on rolls and real cells (benchmarks/landmarks.py): steps that landmarks take towards the mean of the sampled
# cells nearest to them.
CENTRING_STEPS = 4


@dataclass(frozen=True)
class Landmarks:
    """Indices of the landmark cells, where they are, and the centres of the cells around them."""

    cells: np.ndarray
    positions: np.ndarray
    centres: np.ndarray


def choose(
    cells: Cells, n_landmarks: int, rule: str, *, include: np.ndarray | None = None, random_state: int = 0
) -> Landmarks:
    """``n_landmarks`` cells, with those in ``include`` (which may be more) among them, sorted.

    Only a sample of the cells is read. Of cells in one place one is a landmark, so that there may be fewer.
    """
    include = np.unique(np.asarray([] if include is None else include, dtype=np.int64))
    n_landmarks = max(n_landmarks, len(include))
    rng = np.random.default_rng(random_state)
    n_sample = min(cells.shape[0], SAMPLE_PER_LANDMARK * n_landmarks)
    sampled = np.union1d(rng.choice(cells.shape[0], size=n_sample, replace=False), include)
    sample = np.ascontiguousarray(cells.rows(sampled), dtype=np.float32)
    among = _chosen(sample, n_landmarks, rule, np.searchsorted(sampled, include), rng)
    among = among[np.sort(np.unique(sample[among], axis=0, return_index=True)[1])]
    return Landmarks(sampled[among], sample[among], _centred(sample, sample[among]))


def _chosen(sample: np.ndarray, n_landmarks: int, rule: str, include: np.ndarray, rng) -> np.ndarray:
    """Sorted indices of the landmarks in the sample."""
    n_free = n_landmarks - len(include)
    if n_free == 0:
        return include
    if rule == "farthest":
        first = include if len(include) else rng.integers(len(sample), size=1)
        return np.sort(_farthest(sample, first, n_landmarks))
    chosen = include
    if rule == "kmeans":
        chosen = np.union1d(_nearest_to_centroids(sample, n_free, rng), include)
    # Two centroids can share a nearest cell, and an included cell can be chosen again: fill up at random.
    rest = np.setdiff1d(np.arange(len(sample)), chosen)
    return np.union1d(chosen, rng.choice(rest, size=n_landmarks - len(chosen), replace=False))


def _centred(sample: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Landmarks moved to the mean of the cells nearest to them, a few times: steps of Lloyd's algorithm."""
    for _ in range(CENTRING_STEPS):
        nearest = nearest_landmarks(sample, positions, 1)[0][:, 0]
        counts = np.bincount(nearest, minlength=len(positions))[:, None]
        means = _indicator(nearest, len(positions)).T @ sample / np.maximum(counts, 1)
        # Of landmarks in the same place only one has cells.
        positions = np.where(counts > 0, means, positions).astype(np.float32)
    return positions


def _indicator(assignment: np.ndarray, n_landmarks: int, values: np.ndarray | None = None) -> sp.csr_matrix:
    """Cells by landmarks, with one entry a row: at the landmark that the cell is assigned to."""
    n_cells = len(assignment)
    values = np.ones(n_cells) if values is None else values
    return sp.csr_matrix((values, assignment, np.arange(n_cells + 1)), shape=(n_cells, n_landmarks))


def _nearest_to_centroids(X: np.ndarray, n_landmarks: int, rng: np.random.Generator) -> np.ndarray:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    start = X[rng.choice(len(X), size=n_landmarks, replace=False)]
    with warnings.catch_warnings(), without_openmp():
        # Fewer distinct cells than landmarks is no problem here: the rest is filled up at random.
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters = KMeans(n_landmarks, init=start, n_init=1, max_iter=KMEANS_ITERATIONS).fit(X)
    assigned, distance = nearest_landmarks(X, clusters.cluster_centers_, 1)
    # The nearest cell of each centroid: the first of its cells when all are sorted by distance.
    by_distance = np.argsort(distance[:, 0], kind="stable")
    _, first = np.unique(assigned[by_distance, 0], return_index=True)
    return by_distance[first]


def _farthest(X: np.ndarray, first: np.ndarray, n_landmarks: int) -> np.ndarray:
    chosen = np.empty(n_landmarks, dtype=np.int64)
    chosen[: len(first)] = first
    nearest, owner = np.full(len(X), np.inf, np.float32), np.zeros(len(X), np.uint32)
    _fill_farthest(X, len(first), chosen, nearest, owner, np.empty(n_landmarks, np.float32))
    return chosen


@numba.njit(cache=True)
def _fill_farthest(X, n_first, chosen, nearest, owner, between):
    """On one core: thousands of short passes would wait for each other's threads longer than they take."""
    n_cells = X.shape[0]
    farthest = 0
    for i in range(len(chosen)):
        if i >= n_first:
            chosen[i] = farthest
        centre = X[chosen[i]]
        for j in range(i):
            between[j] = _squared_distance(X[chosen[j]], centre)
        most = np.float32(-2)
        for cell in range(n_cells):
            # A cell less than half as far from its nearest landmark as that is from the new one stays with it.
            if i == 0 or between[owner[cell]] < 4 * nearest[cell]:
                distance = _squared_distance(X[cell], centre)
                if distance < nearest[cell]:
                    nearest[cell], owner[cell] = distance, i
            if cell == chosen[i]:
                nearest[cell] = -1.0
            if nearest[cell] > most:
                most, farthest = nearest[cell], cell


@numba.njit(fastmath={"reassoc", "contract"}, cache=True)
def _squared_distance(a, b):
    total = np.float32(0)
    for f in range(a.shape[0]):
        difference = a[f] - b[f]
        total += difference * difference
    return total


def joined_graph(total: sp.csr_matrix, nodes: Nodes) -> Graph:
    """Landmarks joined by all cells: VᵀV of their weights on their few nearest landmarks. Needs no graph of cells."""
    # Rows of V sum to one, so those of VᵀV sum to the mass of each landmark.
    mass = np.asarray(total.sum(axis=1)).ravel()
    scale = sp.diags(1.0 / np.sqrt(np.maximum(mass, np.finfo(float).tiny)))
    return _among((scale @ total @ scale).tocsr(), nodes)


def compressed_graph(A: sp.csr_matrix, assignment: np.ndarray, nodes: Nodes) -> Graph:
    """CᵀAC, the cells' own affinity on the landmarks they are assigned to; columns of C have unit length.

    A Rayleigh-Ritz compression: every path of the cells is still there, between clusters instead of cells.
    """
    n_landmarks = len(nodes.positions)
    counts = np.bincount(assignment, minlength=n_landmarks)
    scale = 1.0 / np.sqrt(np.maximum(counts, 1))
    C = _indicator(assignment, n_landmarks, scale[assignment])
    return _among((C.T @ A @ C).tocsr(), nodes)


def knn_graph(nodes: Nodes, n_neighbors: int, *, decay: float, bandwidth: str) -> Graph:
    """A neighbour graph of the landmarks alone, as in the paper."""
    distances = knn_distances(nodes.positions, min(n_neighbors, len(nodes.positions)))
    graph, _ = graph_of_cells(distances, nodes.positions, decay=decay, bandwidth=bandwidth)
    return replace(graph, nodes=nodes)


def _among(A: sp.csr_matrix, nodes: Nodes) -> Graph:
    """The graph of an affinity among landmarks; an edge is as long as they are apart."""
    A.setdiag(0)
    A.eliminate_zeros()
    A.sort_indices()
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    X = nodes.positions.astype(np.float64)
    lengths = np.maximum(np.linalg.norm(X[rows] - X[A.indices], axis=1), np.finfo(float).tiny)
    return connected(A, lengths, nodes.positions, nodes)
