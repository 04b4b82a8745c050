"""The order of cells that come later, as if they had been among the nodes of the graph that it was computed on."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import scipy.sparse as sp
from sklearn.utils import gen_batches

from .affinity import SMALLEST_AFFINITY, Kernel, positive_bandwidths
from .parallel import exclusive
from .placement import SAME_PLACE
from .progress import Report, silent
from .projection import measure, nearest_landmarks
from .sparse import averaged

# Cells that are joined at a time; their distances to all nodes are in memory together.
JOINED_CELLS = 1024
# No cell is set apart from its neighbours further than all but this share of the graph's own are, to either side.
BEYOND = 0.005


def one_step(A: sp.csr_matrix, potential: np.ndarray) -> np.ndarray:
    """Free energy of one more step: -log of the sum over neighbours of A e^{-potential}."""
    return -np.logaddexp.reduceat(np.log(A.data) - potential[A.indices], A.indptr[:-1])


@dataclass(frozen=True)
class Joining:
    """A function from positions of cells to potential and pseudotime in an order that was computed on other cells.

    A cell gets the mean of its neighbours, and besides what sets it apart from them: how much more, or less, its own
    last step costs than theirs (``steps``), as far as the order is ``plain``. Where the pseudotime is ``monotone`` in
    the potential it follows from that, else it is the mean of the neighbours too.
    """

    positions: np.ndarray
    bandwidth: np.ndarray
    n_neighbors: int
    kernel: Kernel
    potential: np.ndarray
    pseudotime: np.ndarray
    steps: np.ndarray
    limits: np.ndarray
    plain: float
    monotone: bool

    @classmethod
    def to(
        cls,
        positions: np.ndarray,
        A: sp.csr_matrix,
        potential: np.ndarray,
        pseudotime: np.ndarray,
        *,
        plain: float,
        monotone: bool,
        n_neighbors: int,
        kernel: str,
        decay: float,
    ) -> Joining:
        """Joining the nodes of a graph, at ``positions``."""
        positions = np.ascontiguousarray(positions, dtype=np.float32)
        n_neighbors = min(n_neighbors, len(positions))
        _, distances = nearest_landmarks(positions, positions, n_neighbors)
        bandwidth = positive_bandwidths(distances[:, -1])
        fitted = Kernel.fitted(distances[:, 1:], bandwidth, kernel, decay)
        steps = one_step(A, potential)
        limits = np.quantile(steps - averaged(A, steps), [BEYOND, 1 - BEYOND])
        return cls(positions, bandwidth, n_neighbors, fitted, potential, pseudotime, steps, limits, plain, monotone)

    def __call__(self, X: np.ndarray, *, report: Report = silent) -> np.ndarray:
        """Potential and pseudotime of the cells at ``X``, as columns; in the place of a node they are that node's."""
        X = np.ascontiguousarray(X[:, : self.positions.shape[1]], dtype=np.float32)
        found = np.empty((len(X), 2))
        for some in gen_batches(len(X), JOINED_CELLS):
            found[some] = self._joined(X[some])
            report("joining the order", some.stop, len(X))
        return found

    def _joined(self, X: np.ndarray) -> np.ndarray:
        same, edges, bandwidth = _edges(X, self.positions, self.bandwidth, max(self.n_neighbors - 1, 1))
        own = np.repeat(bandwidth, np.diff(edges.indptr))
        edges.data = np.maximum(self.kernel(edges.data, own, self.bandwidth[edges.indices]), SMALLEST_AFFINITY)
        around = averaged(edges, np.column_stack([self.potential, self.pseudotime, self.steps]))
        apart = np.clip(one_step(edges, self.potential) - around[:, 2], *self.limits)
        potential, pseudotime = around[:, 0] + self.plain * apart, around[:, 1]
        if self.monotone:
            order = np.argsort(self.potential, kind="stable")
            pseudotime = np.interp(potential, self.potential[order], self.pseudotime[order])
        known = same >= 0
        potential[known], pseudotime[known] = self.potential[same[known]], self.pseudotime[same[known]]
        return np.column_stack([potential, pseudotime])


@exclusive
def _edges(
    X: np.ndarray, positions: np.ndarray, bandwidth: np.ndarray, k: int
) -> tuple[np.ndarray, sp.csr_matrix, np.ndarray]:
    """Distances of cells to the nodes that are among their ``k`` nearest or whose bandwidth reaches to them.

    With, before them, the node in the same place (-1 where there is none), and after them the cells' own bandwidths.
    """
    reach = bandwidth.astype(np.float32)
    length = np.empty((len(X), len(positions)), np.float32)
    same, counts, kth = np.empty(len(X), np.int64), np.empty(len(X), np.int64), np.empty(len(X), np.float32)
    _count_edges(X, positions, reach, k, length, same, counts, kth)
    indptr = np.append(0, np.cumsum(counts))
    indices, distances = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float64)
    _fill_edges(length, reach, kth, indptr, indices, distances)
    edges = sp.csr_matrix((distances, indices, indptr), shape=length.shape)
    return same, edges, np.maximum(kth.astype(np.float64), bandwidth.min())


@numba.njit(parallel=True, cache=True)
def _count_edges(X, positions, reach, k, length, same, counts, kth):
    nodes = np.arange(len(positions))
    for i in numba.prange(len(X)):
        row = length[i]
        measure(X[i], positions, nodes, row)
        nearest = row.argmin()
        same[i] = nearest if row[nearest] <= SAME_PLACE * reach[nearest] else -1
        kth[i] = np.partition(row, k - 1)[k - 1]
        counts[i] = (row <= np.maximum(reach, kth[i])).sum()


@numba.njit(parallel=True, cache=True)
def _fill_edges(length, reach, kth, indptr, indices, distances):
    for i in numba.prange(len(length)):
        e = indptr[i]
        for j in range(length.shape[1]):
            if length[i, j] <= max(reach[j], kth[i]):
                indices[e], distances[e] = j, length[i, j]
                e += 1
