"""Nodes at known positions, and other cells placed among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from .kernel import positive_bandwidths
from .progress import Report, silent
from .search import nearest_landmarks, placement_weights

# Fitted on rolls and real cells (benchmarks/landmarks.py): how many landmarks each cell joins, and how far it reaches
# relative to the landmarks' own distances.
N_JOINED = 5
REACH = 0.8
# Numerical: the smallest weight, so that landmarks that hardly any cell joins are not quite apart.
SMALLEST_WEIGHT = 1e-4
# Numerical: a cell this near to another, relative to its bandwidth, is in the same place but for rounding.
SAME_PLACE = 1e-3


@dataclass(frozen=True)
class Nodes:
    """Positions of nodes, their bandwidths, and how many of them another cell is placed among."""

    positions: np.ndarray
    bandwidths: np.ndarray
    n_project: int

    @classmethod
    def at(cls, positions: np.ndarray, *, n_project: int, n_neighbors: int) -> Nodes:
        """Nodes at the given positions; a bandwidth reaches to the ``n_neighbors``-th nearest, as scanpy counts."""
        positions = np.ascontiguousarray(positions, dtype=np.float32)
        _, distances = nearest_landmarks(positions, positions, min(n_neighbors, len(positions)))
        return cls(positions, positive_bandwidths(distances[:, -1]), min(n_project, len(positions)))

    @property
    def n_searched(self) -> int:
        """How many nearest nodes of each cell are searched: those that it is placed among, and those that it joins."""
        return min(max(self.n_project, N_JOINED), len(self.positions))

    def nearest(self, X: np.ndarray, *, report: Report = silent) -> tuple[np.ndarray, np.ndarray]:
        """The nearest nodes of each cell, the first one first, and their distances."""
        return nearest_landmarks(X, self.positions, self.n_searched, report=report)

    def is_searched_as(self, other: Nodes) -> bool:
        """Whether a search among other nodes finds the same."""
        return self.n_searched == other.n_searched and np.array_equal(self.positions, other.positions)

    def weights(self, indices: np.ndarray, distances: np.ndarray) -> sp.csr_matrix:
        """Weights of cells on the nodes that they are placed among, the first of their nearest; rows sum to one."""
        return placement_weights(indices[:, : self.n_project], distances[:, : self.n_project], self.bandwidths)


@dataclass(frozen=True)
class Interpolator:
    """Values of cells, from those of their nearest nodes; with ``remoteness``, that of each cell as one more column.

    Remoteness is the distance to the nearest node in units of that node's bandwidth: around or below one among them.
    Where nodes are cells, ``exact`` gives a cell in the place of one its values; landmarks stand for many.
    """

    nodes: Nodes
    values: np.ndarray
    remoteness: bool = False
    exact: bool = False

    def __call__(self, indices: np.ndarray, distances: np.ndarray) -> np.ndarray:
        """Values of the cells with these nearest nodes."""
        carried = self.nodes.weights(indices, distances) @ self.values
        nearest = indices[:, 0]
        remoteness = distances[:, 0] / self.nodes.bandwidths[nearest]
        if self.exact:
            carried = np.where(remoteness[:, None] <= SAME_PLACE, self.values[nearest], carried)
        return np.column_stack([carried, remoteness]) if self.remoteness else carried


@dataclass(frozen=True)
class SoftAssignment:
    """VᵀV of the cells' weights V on their few nearest nodes; those of several sets of cells add up.

    The bandwidth is half way between one for all nodes and one for each, as that of a tempered affinity: nodes that
    few cells join are then farther apart, also where density varies.
    """

    nodes: Nodes

    def __call__(self, indices: np.ndarray, distances: np.ndarray) -> sp.csr_matrix:
        """The joint weights of the cells with these nearest nodes."""
        some, far = indices[:, :N_JOINED], distances[:, :N_JOINED]
        typical = np.exp(np.log(self.nodes.bandwidths).mean())
        V = placement_weights(some, far, REACH * self.nodes.bandwidths, np.full(len(some), REACH * typical))
        V = V.astype(np.float64)
        V.data = np.maximum(V.data, SMALLEST_WEIGHT)
        return (V.T @ V).tocsr()
