"""Placing cells among the embedded ones, whichever cells they are and however many at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from sklearn.utils import gen_batches

from .progress import Report, silent
from .projection import bandwidths, nearest_landmarks, weights

# Landmarks that each cell votes for in the anchor graph; how far votes reach, relative to the landmarks' own distances;
# and the smallest vote, so that landmarks that hardly any cell joins are not quite apart.
N_ANCHORS = 5
REACH = 0.8
SMALLEST_VOTE = 1e-4
# A cell this near to a node, relative to the node's bandwidth, is in the same place but for rounding.
SAME_PLACE = 1e-3
# Cells that are weighed at a time.
MASS_CELLS = 65_536


@dataclass(frozen=True)
class Nodes:
    """Embedded cells: their positions, their bandwidths, and among how many of them another cell is placed.

    Where the nodes are all the cells there were, a cell in the same place as one of them ``coincides`` with it; where
    they are landmarks, their own cells are placed among them as all others are.
    """

    positions: np.ndarray
    bandwidth: np.ndarray
    n_project: int
    coincide: bool

    @classmethod
    def at(cls, positions: np.ndarray, *, n_project: int, n_neighbors: int, coincide: bool = False) -> Nodes:
        """Nodes at the given positions, with bandwidths that reach to their ``n_neighbors``-th nearest."""
        positions = np.ascontiguousarray(positions, dtype=np.float32)
        n_project = min(n_project, len(positions))
        return cls(positions, bandwidths(positions, n_neighbors), n_project, coincide)

    def nearest(self, X: np.ndarray, *, report: Report = silent) -> tuple[np.ndarray, np.ndarray]:
        """The nodes that each cell is placed among, nearest first, and their distances."""
        return nearest_landmarks(X, self.positions, self.n_project, report=report)

    def weights(self, indices: np.ndarray, distances: np.ndarray) -> sp.csr_matrix:
        """Weights of cells on their nearest nodes; rows sum to one."""
        W = weights(indices, distances, self.bandwidth)
        if self.coincide:
            same = distances[:, 0] <= SAME_PLACE * self.bandwidth[indices[:, 0]]
            values = W.data.reshape(indices.shape)
            values[same, 0], values[same, 1:] = 1.0, 0.0
        return W

    def mass(self, X: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Total weight on each node of the given cells; ``X`` may be any array whose rows can be picked."""
        total = np.zeros(len(self.positions))
        for some in gen_batches(len(cells), MASS_CELLS):
            W = self.weights(*self.nearest(np.asarray(X[cells[some]])))
            total += np.asarray(W.sum(axis=0), dtype=np.float64).ravel()
        return total

    def votes(self, indices: np.ndarray, distances: np.ndarray) -> sp.csr_matrix:
        """VᵀV of the cells' weights V on their few nearest nodes; those of several sets of cells add up.

        Their bandwidth is half way between one for all nodes and one for each, as that of a tempered affinity: what
        few cells join is then farther, also where density varies.
        """
        n_votes = min(N_ANCHORS, indices.shape[1])
        typical = np.exp(np.log(self.bandwidth).mean())
        some, far = indices[:, :n_votes], distances[:, :n_votes]
        V = weights(some, far, REACH * self.bandwidth, np.full(len(some), REACH * typical)).astype(np.float64)
        V.data = np.maximum(V.data, SMALLEST_VOTE)
        return (V.T @ V).tocsr()

    def remoteness(self, indices: np.ndarray, distances: np.ndarray) -> np.ndarray:
        """Distance to the nearest node, in units of that node's bandwidth: around or below one among the nodes."""
        return distances[:, 0] / self.bandwidth[indices[:, 0]]


@dataclass(frozen=True)
class Carrier:
    """A function from positions of cells to values interpolated from those of the nodes.

    With ``remoteness``, that of each cell is one more column.
    """

    nodes: Nodes
    values: np.ndarray
    remoteness: bool = False

    def __call__(self, X: np.ndarray, *, report: Report = silent) -> np.ndarray:
        """Values of the cells at ``X``."""
        nearest = self.nodes.nearest(X, report=report)
        carried = self.nodes.weights(*nearest) @ self.values
        return np.column_stack([carried, self.nodes.remoteness(*nearest)]) if self.remoteness else carried


@dataclass(frozen=True)
class Voting:
    """A function from positions of cells to their votes for the nodes."""

    nodes: Nodes

    def __call__(self, X: np.ndarray) -> sp.csr_matrix:
        """Votes of the cells at ``X``."""
        return self.nodes.votes(*self.nodes.nearest(X))
