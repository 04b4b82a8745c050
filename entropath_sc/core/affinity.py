"""From neighbour distances to one connected, symmetric affinity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches

KERNELS = ("tempered", "alpha_decay", "gaussian")

# The tempered kernel: how steeply it falls off, its bandwidth as a part of the median distance, and the exponent with
# which each cell's own scale enters it (0 would be one length for all cells, 1 a length of its own for each).
STEEPNESS = 3.0
WIDTH = 0.85
TEMPER = 0.5

# Up to here an exact search is as fast as an approximate one.
EXACT_SEARCH_CELLS = 8192

# A cell whose neighbours are all its duplicates has no scale of its own; it gets this fraction of the mean scale.
SMALLEST_RELATIVE_BANDWIDTH = 1e-3

# An edge to a cell far from all others keeps this much, so that no cell is cut off by underflow.
SMALLEST_AFFINITY = 1e-30

# A bridge has no bandwidth of its own: it counts as an edge to a k-th neighbour, exp(-1) in either kernel.
BRIDGE_AFFINITY = float(np.exp(-1.0))

# Cells on a side of a tile of distances, when the nearest cell of another component is looked for.
_TILE = 2048


@dataclass(frozen=True)
class Bridges:
    """Components of a neighbour graph, and the edges that joined them."""

    component_sizes: np.ndarray
    cells: np.ndarray
    lengths: np.ndarray


def knn_distances(
    X: np.ndarray, n_neighbors: int, *, random_state: int = 0, n_jobs: int | None = None
) -> sp.csr_matrix:
    """Distances to the nearest neighbours, ``n_neighbors - 1`` others a cell (scanpy counts the cell itself)."""
    n_cells = X.shape[0]
    if n_cells <= EXACT_SEARCH_CELLS:
        search = NearestNeighbors(n_neighbors=n_neighbors - 1, n_jobs=n_jobs).fit(X)
        # Querying without X leaves each cell out of its own neighbours, also where it has duplicates.
        distances, indices = search.kneighbors()
    else:
        from pynndescent import NNDescent

        index = NNDescent(X, n_neighbors=n_neighbors, random_state=random_state, n_jobs=n_jobs)
        indices, distances = _drop_self(*index.neighbor_graph)
    indptr = np.arange(n_cells + 1) * (n_neighbors - 1)
    return sp.csr_matrix((distances.ravel().astype(np.float64), indices.ravel(), indptr), shape=(n_cells, n_cells))


def _drop_self(indices: np.ndarray, distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One neighbour less a row: the cell itself, or the farthest where duplicates pushed it out."""
    own = indices == np.arange(len(indices))[:, None]
    own[~own.any(axis=1), -1] = True
    shape = (len(indices), indices.shape[1] - 1)
    return indices[~own].reshape(shape), distances[~own].reshape(shape)


@dataclass(frozen=True)
class Kernel:
    """Affinity of two cells, from their distance d and their bandwidths σ: how far their k-th neighbours are.

    ``tempered`` is exp(-(d/s_ij)³) with s_ij = 0.85 s (σ_i σ_j/σ²)^¼, where s is the median of all distances to
    neighbours, ``length``, and σ the geometric mean of all bandwidths, ``typical``; ``alpha_decay`` is
    exp(-(d/σ)^decay) with the larger of both bandwidths; ``gaussian`` is exp(-d²/(σ_i σ_j)). Where the bandwidth is a
    cell's own, a hop counts the same wherever it is, and dense regions are stretched; where it is the same for all,
    sparse regions are; half way, distances keep their lengths.
    """

    kind: str
    decay: float
    length: float
    typical: float

    @classmethod
    def fitted(cls, distances: np.ndarray, bandwidth: np.ndarray, kind: str, decay: float) -> Kernel:
        """The kernel of cells with these distances to neighbours."""
        length = float(np.median(distances)) or float(bandwidth.mean())
        return cls(kind, decay, length, float(np.exp(np.log(bandwidth).mean())))

    def __call__(self, distances: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Affinities of pairs, from their distances and the bandwidths of the one cell and of the other."""
        if self.kind == "alpha_decay":
            return np.exp(-((distances / np.maximum(one, other)) ** self.decay))
        if self.kind == "gaussian":
            return np.exp(-(distances**2) / (one * other))
        scale = WIDTH * self.length * (one / self.typical * (other / self.typical)) ** (0.5 * TEMPER)
        return np.maximum(np.exp(-((distances / scale) ** STEEPNESS)), SMALLEST_AFFINITY)


def positive_bandwidths(bandwidth: np.ndarray) -> np.ndarray:
    """Bandwidths without those of cells that have only duplicates around them; one for all if all are duplicates."""
    bandwidth = np.maximum(bandwidth.astype(np.float64), SMALLEST_RELATIVE_BANDWIDTH * bandwidth.mean())
    return bandwidth if bandwidth.any() else np.ones_like(bandwidth)


def affinity(distances: sp.csr_matrix, *, kernel: str = "tempered", decay: float = 40.0) -> sp.csr_matrix:
    """Symmetric affinity from sparse neighbour distances; σ of a cell is its largest stored distance."""
    bandwidth = positive_bandwidths(np.asarray(distances.max(axis=1).todense()).ravel())
    rows = np.repeat(np.arange(distances.shape[0]), np.diff(distances.indptr))
    columns = distances.indices
    fitted = Kernel.fitted(distances.data, bandwidth, kernel, decay)
    values = fitted(distances.data, bandwidth[rows], bandwidth[columns])
    directed = sp.csr_matrix((values, columns, distances.indptr), shape=distances.shape)
    symmetric = directed.maximum(directed.T).tocsr()
    symmetric.setdiag(0)
    symmetric.eliminate_zeros()
    symmetric.sort_indices()
    return symmetric


def bridge_components(A: sp.csr_matrix, X: np.ndarray | None) -> tuple[sp.csr_matrix, Bridges]:
    """Join the components of ``A`` by their shortest bridges in ``X``: a minimum spanning tree of the components.

    ``X`` is read only where there is something to join.
    """
    n_components, label = connected_components(A, directed=False)
    sizes = np.sort(np.bincount(label))[::-1]
    cells = np.empty((0, 2), dtype=np.int64)
    lengths = np.empty(0)
    while n_components > 1:
        ends, distances = _nearest_outside(X, label)
        # Each component but the largest reaches for its nearest outsider; two may reach for each other.
        ends, unique = np.unique(np.sort(ends, axis=1), axis=0, return_index=True)
        cells, lengths = np.vstack([cells, ends]), np.append(lengths, distances[unique])
        n_components, label = connected_components(_with_edges(A, cells), directed=False)
    return _with_edges(A, cells), Bridges(sizes, cells, lengths)


def _nearest_outside(X: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each component but the largest, its cell and the outside cell that are nearest to each other."""
    sizes = np.bincount(label)
    inside = np.flatnonzero(label != sizes.argmax())
    X = np.asarray(X, dtype=np.float64) - X.mean(axis=0)
    half_norms = 0.5 * np.einsum("ij,ij->i", X, X)
    least, nearest = np.full(len(inside), np.inf), np.zeros(len(inside), dtype=np.int64)
    for some in gen_batches(len(inside), _TILE):
        cells = inside[some]
        for others in gen_batches(len(X), _TILE):
            score = half_norms[others] - X[cells] @ X[others].T
            score[label[cells][:, None] == label[others][None, :]] = np.inf
            column = score.argmin(axis=1)
            best = score[np.arange(len(cells)), column]
            nearer = best < least[some]
            least[some][nearer] = best[nearer]
            nearest[some][nearer] = others.start + column[nearer]
    length = np.linalg.norm(X[inside] - X[nearest], axis=1)
    # The first of each component's cells, when all are sorted by component and length.
    order = np.lexsort((length, label[inside]))
    _, first = np.unique(label[inside][order], return_index=True)
    chosen = order[first]
    return np.stack([inside[chosen], nearest[chosen]], axis=1), length[chosen]


def _with_edges(A: sp.csr_matrix, cells: np.ndarray) -> sp.csr_matrix:
    if not len(cells):
        return A
    i, j = cells.T
    edges = sp.csr_matrix((np.full(2 * len(i), BRIDGE_AFFINITY), (np.r_[i, j], np.r_[j, i])), shape=A.shape)
    return A.maximum(edges).tocsr()
