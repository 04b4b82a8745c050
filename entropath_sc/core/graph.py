"""A connected graph of nodes: all cells, or landmarks that stand for them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from sklearn.utils import gen_batches

from .cells import Cells
from .kernel import Kernel, positive_bandwidths
from .nodes import Interpolator, Nodes
from .parallel import in_blocks

# A bridge has no bandwidth of its own: it counts as an edge to the farthest neighbour, exp(-1) in the paper's kernels.
BRIDGE_AFFINITY = float(np.exp(-1.0))

# Cells on a side of a tile of distances, when the nearest cell of another component is looked for.
_TILE = 2048


@dataclass(frozen=True)
class Bridges:
    """Sizes of the components of a graph, and the pairs of nodes, with their distances, that join them."""

    component_sizes: np.ndarray
    pairs: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True)
class Graph:
    """A connected graph: the affinity and the length of each edge, and where its nodes are.

    ``affinity`` is symmetric with an empty diagonal, and ``lengths`` go with its stored values. ``nodes`` is None where
    each cell is a node; landmarks have positions, which cells are placed among. A directed graph has ``forward``: how
    far each step goes along the arrows, below zero against them, as the cost that going back has. ``scale`` are the
    factors that equalise the affinity, where they are known.
    """

    affinity: sp.csr_matrix
    lengths: np.ndarray
    bridges: Bridges
    nodes: Nodes | None = None
    forward: np.ndarray | None = None
    scale: np.ndarray | None = None

    @property
    def n_nodes(self) -> int:
        """How many nodes there are."""
        return int(self.affinity.shape[0])

    @property
    def rows(self) -> np.ndarray:
        """The node that each edge starts from."""
        return np.repeat(np.arange(self.n_nodes), np.diff(self.affinity.indptr))

    @property
    def undirected(self) -> Graph:
        """The same graph without arrows."""
        return replace(self, forward=None)

    def sources(self, cells: Cells | None, chosen: np.ndarray) -> sp.csr_matrix:
        """Weights of the chosen cells on the nodes, a row a cell."""
        if self.nodes is None:
            n = len(chosen)
            return sp.csr_matrix((np.ones(n), chosen, np.arange(n + 1)), shape=(n, self.n_nodes))
        return self.nodes.weights(*self.nodes.nearest(cells.rows(chosen)))

    def carry(self, values: np.ndarray, cells: Cells | None, stage: str):
        """Values of the nodes (a column each) on all cells."""
        if self.nodes is None:
            return values
        return cells.map(self.nodes, Interpolator(self.nodes, values), values.shape[1], values.dtype, stage)


def graph_of_cells(
    distances: sp.csr_matrix, X: np.ndarray | None, *, decay: float, bandwidth: str
) -> tuple[Graph, np.ndarray]:
    """The graph of sparse neighbour distances, and the bandwidth of each cell: its largest stored distance."""
    bandwidths = positive_bandwidths(np.asarray(distances.max(axis=1).todense()).ravel())
    kernel = Kernel.fitted(decay, bandwidth, distances.data, bandwidths)
    # Duplicates are at no distance, which a sparse matrix would forget.
    apart = sp.csr_matrix(
        (np.maximum(distances.data, np.finfo(float).tiny), distances.indices, distances.indptr), shape=distances.shape
    )
    lengths = apart.maximum(apart.T).tocsr()
    lengths.sort_indices()
    rows = np.repeat(np.arange(lengths.shape[0]), np.diff(lengths.indptr))
    values = in_blocks(
        lambda some: kernel(lengths.data[some], bandwidths[rows[some]], bandwidths[lengths.indices[some]]), lengths.nnz
    )
    A = sp.csr_matrix((values, lengths.indices, lengths.indptr), shape=lengths.shape)
    return connected(A, lengths.data, X), bandwidths


def connected(A: sp.csr_matrix, lengths: np.ndarray, X: np.ndarray | None, nodes: Nodes | None = None) -> Graph:
    """Join the components of ``A`` by their shortest bridges in ``X``: a minimum spanning tree of the components.

    ``X`` is read only where there is something to join.
    """
    n_components, label = connected_components(A, directed=False)
    sizes = np.sort(np.bincount(label))[::-1]
    pairs, spans = np.empty((0, 2), dtype=np.int64), np.empty(0)
    while n_components > 1:
        ends, distances = _nearest_outside(X, label)
        # Each component but the largest reaches for its nearest outsider; two may reach for each other.
        ends, unique = np.unique(np.sort(ends, axis=1), axis=0, return_index=True)
        pairs, spans = np.vstack([pairs, ends]), np.append(spans, distances[unique])
        n_components, label = connected_components(_with_edges(A, pairs, BRIDGE_AFFINITY), directed=False)
    if len(pairs):
        along = sp.csr_matrix((lengths, A.indices, A.indptr), shape=A.shape)
        lengths = _with_edges(along, pairs, np.maximum(spans, np.finfo(float).tiny)).data
        A = _with_edges(A, pairs, BRIDGE_AFFINITY)
    return Graph(A, lengths, Bridges(sizes, pairs, spans), nodes)


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


def _with_edges(A: sp.csr_matrix, pairs: np.ndarray, values: np.ndarray | float) -> sp.csr_matrix:
    i, j = pairs.T
    both = np.tile(np.broadcast_to(values, len(i)), 2)
    joined = A.maximum(sp.csr_matrix((both, (np.r_[i, j], np.r_[j, i])), shape=A.shape)).tocsr()
    joined.sort_indices()
    return joined
