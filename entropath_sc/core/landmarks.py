"""Choosing landmark cells, and the graph among them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numba
import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from .affinity import Bridges, affinity, bridge_components, knn_distances
from .placement import Nodes
from .progress import Report, silent
from .projection import nearest_landmarks

RULES = ("farthest", "kmeans", "random")
GRAPHS = ("auto", "compressed", "anchor", "knn")

# Landmarks are chosen among a sample of this many cells for each; all cells are assigned afterwards. In a sample not
# much larger than the landmarks, farthest-point sampling also meets few outliers.
SAMPLE_PER_LANDMARK = 10
KMEANS_ITERATIONS = 10
# Steps that landmarks take towards the middle of the sampled cells nearest to them.
CENTRING_STEPS = 4


@dataclass(frozen=True)
class Landmarks:
    """Indices of the landmark cells, where they are, and the centres of the cells around them."""

    cells: np.ndarray
    positions: np.ndarray
    centres: np.ndarray

    def nodes(self, graph: str, *, n_project: int, n_neighbors: int) -> Nodes:
        """Nodes for the named graph: at the cells themselves for the paper's, at the centres for all others.

        A cell has noise of its own, of which the mean of some has less.
        """
        at = self.positions if graph == "knn" else self.centres
        return Nodes.at(at, n_project=n_project, n_neighbors=n_neighbors)


def choose(
    X: np.ndarray, n_landmarks: int, rule: str, *, include: np.ndarray | None = None, random_state: int = 0
) -> Landmarks:
    """``n_landmarks`` distinct cells, with those in ``include`` (which may be more) among them, sorted.

    Of ``X`` only the rows of a sample are read, so it may be any array whose rows can be picked by sorted indices.
    """
    include = np.unique(np.asarray([] if include is None else include, dtype=np.int64))
    n_landmarks = max(n_landmarks, len(include))
    rng = np.random.default_rng(random_state)
    n_sample = min(X.shape[0], SAMPLE_PER_LANDMARK * n_landmarks)
    sampled = np.union1d(rng.choice(X.shape[0], size=n_sample, replace=False), include)
    sample = np.ascontiguousarray(X[sampled], dtype=np.float32)
    among = _chosen(sample, n_landmarks, rule, np.searchsorted(sampled, include), rng)
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
    start = X[rng.choice(len(X), size=n_landmarks, replace=False)]
    with warnings.catch_warnings():
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
    _fill_farthest(X, len(first), chosen)
    return chosen


@numba.njit(cache=True)
def _fill_farthest(X, n_first, chosen):
    """On one core: so many short passes would wait for each other's threads longer than they take."""
    n_cells = X.shape[0]
    nearest, owner = np.full(n_cells, np.inf, np.float32), np.zeros(n_cells, np.uint32)
    between = np.empty(len(chosen), np.float32)
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


@dataclass(frozen=True)
class LandmarkSet:
    """Landmarks, the connected graph among them, the weights of all cells on them, and what had to be joined."""

    nodes: Nodes
    graph: sp.csr_matrix
    weights: sp.csr_matrix
    bridges: Bridges


def landmark_set(
    X: np.ndarray,
    A: sp.csr_matrix | None,
    landmarks: Landmarks,
    graph: str,
    *,
    n_project: int = 10,
    n_neighbors: int = 15,
    kernel: str = "tempered",
    decay: float = 40.0,
    report: Report = silent,
) -> LandmarkSet:
    """Connect the landmarks by the named graph and weigh all cells on them; ``anchor`` needs no ``A``."""
    nodes = landmarks.nodes(graph, n_project=n_project, n_neighbors=n_neighbors)
    if graph == "anchor":
        return anchored_set(X, nodes, report=report)
    nearest = nodes.nearest(X, report=report)
    if graph == "compressed":
        connected = compressed_graph(A, nearest[0][:, 0], len(nodes.positions))
    else:
        connected = knn_graph(nodes.positions, n_neighbors, kernel=kernel, decay=decay)
    connected, bridges = bridge_components(connected, nodes.positions)
    return LandmarkSet(nodes, connected, nodes.weights(*nearest), bridges)


def anchored_set(X: np.ndarray, nodes: Nodes, *, report: Report = silent) -> LandmarkSet:
    """Connect landmarks by the votes of all cells, and weigh these on them."""
    nearest = nodes.nearest(X, report=report)
    connected, bridges = bridge_components(anchor_graph(nodes.votes(*nearest)), nodes.positions)
    return LandmarkSet(nodes, connected, nodes.weights(*nearest), bridges)


def knn_graph(positions: np.ndarray, n_neighbors: int, *, kernel: str, decay: float) -> sp.csr_matrix:
    """A neighbour graph of the landmarks alone."""
    return affinity(knn_distances(positions, min(n_neighbors, len(positions))), kernel=kernel, decay=decay)


def compressed_graph(A: sp.csr_matrix, assignment: np.ndarray, n_landmarks: int) -> sp.csr_matrix:
    """CᵀAC, the cells' own affinity on the landmarks they are assigned to; columns of C have unit length.

    A Rayleigh-Ritz compression: every path of the cells is still there, between clusters instead of cells.
    """
    counts = np.bincount(assignment, minlength=n_landmarks)
    scale = 1.0 / np.sqrt(np.maximum(counts, 1))
    C = _indicator(assignment, n_landmarks, scale[assignment])
    return (C.T @ A @ C).tocsr()


def anchor_graph(votes: sp.csr_matrix) -> sp.csr_matrix:
    """The cells' votes for their few nearest landmarks, scaled by 1/sqrt(mass): needs no graph of cells."""
    # Rows of V sum to one, so those of VᵀV sum to the mass of each landmark.
    mass = np.asarray(votes.sum(axis=1)).ravel()
    scale = sp.diags(1.0 / np.sqrt(np.maximum(mass, np.finfo(float).tiny)))
    return (scale @ votes @ scale).tocsr()
