"""All paths of a graph, each weighted by its steps and by its length: what everything else is read off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.sparse.csgraph import dijkstra
from scipy.special import logsumexp, softmax

from .graph import Graph
from .kernel import Kernel
from .nodes import SAME_PLACE
from .parallel import on_one_blas_thread
from .stages import solve_in_stages

# The kernel's value at distance zero. With it every connected graph can be equalised, a star or a path too.
SELF_AFFINITY = 1.0
# Numerical: equalised rows sum to one within this error, after at most this number of iterations.
TOLERANCE = 1e-6
MOST_ITERATIONS = 1000

# Numerical. A step counts as at least a twentieth and at most twenty times the typical one: duplicates would make the
# equations singular, and one outlier would be farther than all other cells are from each other.
STEP_RANGE = 20.0
# Numerical: beyond this cost of a step floats end.
LARGEST_COST = 600.0

# Numerical: nodes that paths longer than the range of floats are added up through.
N_WAYPOINTS = 64

# Over how many nearest nodes a node's own noise is averaged. Not varied; that half of it is taken off was compared with
# none and with all of it on marrow and on generated manifolds of seed 100.
N_NOISE = 15


def equalise(A: sp.csr_matrix) -> np.ndarray:
    """Factors s such that the rows of s_i (A_ij + δ_ij) s_j sum to one (symmetric Sinkhorn scaling)."""
    s = 1.0 / np.sqrt(np.asarray(A.sum(axis=1)).ravel() + SELF_AFFINITY)
    for _ in range(MOST_ITERATIONS):
        row_sums = s * (A @ s + SELF_AFFINITY * s)
        if np.abs(row_sums - 1.0).max() <= TOLERANCE:
            break
        s /= np.sqrt(row_sums)
    return s


def step_costs(lengths: np.ndarray, unit: float, depth: float) -> np.ndarray:
    """What the length of a step adds to the free energy of a path."""
    return np.minimum(np.clip(lengths / unit, 1.0 / STEP_RANGE, STEP_RANGE) / depth, LARGEST_COST)


@dataclass(frozen=True)
class PathEnsemble:
    """All paths of a graph at a depth.

    With B the equalised affinity, whose rows sum to one, a path's weight is the product over its steps of
    B_ij exp(-d_ij/(depth ``unit``)), where ``unit`` is the median length of an edge. So ``depth`` is how many neighbour
    distances a path may wander before its weight has fallen by e. Self-loops are eliminated: ``weights`` W has none,
    and ``degree`` is Σ_j B_ij over the others, summed and never formed as 1 - B_ii, which outliers would round to 0.
    """

    weights: sp.csr_matrix
    degree: np.ndarray
    scale: np.ndarray
    unit: float
    depth: float

    @classmethod
    def of(cls, graph: Graph, depth: float) -> PathEnsemble:
        """The paths of a graph."""
        A, rows = graph.affinity, graph.rows
        scale = equalise(A)
        B = A.data * scale[rows] * scale[A.indices]
        unit = float(np.median(graph.lengths)) if len(graph.lengths) else 1.0
        W = B * np.exp(-step_costs(graph.lengths, unit, depth))
        degree = np.bincount(rows, B, minlength=graph.n_nodes)
        return cls(sp.csr_matrix((W, A.indices, A.indptr), shape=A.shape), degree, scale, unit, depth)

    def equalised(self, graph: Graph) -> sp.csr_matrix:
        """B without its diagonal: the weights of steps before their length counts."""
        A, rows = graph.affinity, graph.rows
        return sp.csr_matrix((A.data * self.scale[rows] * self.scale[A.indices], A.indices, A.indptr), shape=A.shape)

    def first_passages(self, targets: np.ndarray) -> np.ndarray:
        """-log of the weight of all paths from each node to where they first meet ``targets``; 0 on these.

        The weight f solves Δ f = W f outside the targets, and is 1 on them.
        """
        half = 0.5 * np.log(self.degree)
        boundary = np.full(len(half), -np.inf)
        boundary[targets] = half[targets]  # of sqrt(Δ) f, which the symmetric system is in
        passages = half - solve_in_stages(self.normalised(), boundary)
        passages[targets] = 0.0
        return passages

    def residual(self, passages: np.ndarray) -> float:
        """The largest relative error with which first passages solve their equation outside the targets."""
        rows = np.repeat(np.arange(len(passages)), np.diff(self.weights.indptr))
        arriving = self.weights.data * np.exp(passages[rows] - passages[self.weights.indices])
        sums = np.bincount(rows, arriving, minlength=len(passages)) / self.degree
        return float(np.abs(sums - 1.0)[passages > 0].max(initial=0.0))

    @on_one_blas_thread
    def free_energies(self) -> np.ndarray:
        """D_ij = ½ log(G_ii G_jj) - log G_ij between all nodes, with G = (Δ - W)⁻¹: a metric that adds up through cuts.

        In the Cholesky factors of such a matrix only the diagonal is a difference, so that also the smallest entries of
        its inverse are accurate relative to themselves.
        """
        system = (-self.normalised()).toarray(order="F")
        system.flat[:: len(system) + 1] += 1.0
        factor, _ = dpotrf(system, lower=1, overwrite_a=1)
        half, _ = dpotri(factor, lower=1, overwrite_c=1)
        G = half.T + half  # zeros above the diagonal, which counts twice
        G.flat[:: len(G) + 1] *= 0.5
        beyond = G < np.finfo(float).tiny
        log_G = np.log(np.maximum(G, np.finfo(float).tiny, out=G), out=G)
        own = 0.5 * log_G.diagonal()
        D = own[:, None] + own[None, :]
        np.maximum(np.subtract(D, log_G, out=D), 0.0, out=D)
        np.fill_diagonal(D, 0.0)
        return _through_waypoints(D, np.tril(beyond)) if beyond.any() else D

    def normalised(self) -> sp.csr_matrix:
        """Δ^-½ W Δ^-½: symmetric, and with eigenvalues below one."""
        root = 1.0 / np.sqrt(self.degree)
        rows = np.repeat(np.arange(len(root)), np.diff(self.weights.indptr))
        values = self.weights.data * root[rows] * root[self.weights.indices]
        return sp.csr_matrix((values, self.weights.indices, self.weights.indptr), shape=self.weights.shape)


def _through_waypoints(D: np.ndarray, beyond: np.ndarray) -> np.ndarray:
    """D with the pairs that are ``beyond`` the range of floats as the shortest sum over nodes between them.

    A sum is exact through a bottleneck, and an upper bound elsewhere. Pairs so far apart have hundreds of steps between
    them, so that what a waypoint adds is small.
    """
    waypoints = np.unique(np.linspace(0, len(D) - 1, N_WAYPOINTS).astype(int))
    within = ~(beyond | beyond.T)[waypoints]
    rows, columns = np.nonzero(within)
    lengths = np.maximum(D[waypoints][within], np.finfo(float).tiny)
    steps = sp.csr_matrix((lengths, (waypoints[rows], columns)), shape=D.shape)
    ends, others = np.nonzero(beyond)
    found = dijkstra(steps.maximum(steps.T), indices=np.unique(ends))[np.searchsorted(np.unique(ends), ends), others]
    D[ends, others] = D[others, ends] = np.where(np.isfinite(found), found, D[ends, others])
    return D


def without_own_noise(D: np.ndarray) -> np.ndarray:
    """D_ij - ½(o_i + o_j), at least 0, with o the mean dissimilarity of a node to its nearest ones.

    What sets a node apart from its own neighbourhood is mostly noise, and is in all its dissimilarities alike.
    """
    k = min(N_NOISE, len(D) - 1)
    # The zero on the diagonal is among the smallest.
    own = 0.5 * np.partition(D, k, axis=1)[:, : k + 1].sum(axis=1) / max(k, 1)
    reduced = np.maximum(D - own[:, None] - own[None, :], 0.0)
    np.fill_diagonal(reduced, 0.0)
    return reduced


@dataclass(frozen=True)
class PassagesOfNeighbors:
    """First passages of new cells, from those of their nearest cells in a graph, and means of what these have.

    A new cell x has f(x) = Σ_y P_xy e^{-cost_xy} f(y) with P_xy ∝ A_xy s_y: the equation that the graph's own cells
    solve. ``passages`` has a column for each set of targets, ``values`` for each mean. A cell in the place of one of
    the graph has its values.
    """

    kernel: Kernel
    bandwidths: np.ndarray
    scale: np.ndarray
    passages: np.ndarray
    values: np.ndarray
    unit: float
    depth: float

    def __call__(self, indices: np.ndarray, distances: np.ndarray) -> np.ndarray:
        """Passages and means, as columns, of cells with these nearest cells of the graph."""
        far = distances.astype(np.float64)
        own = np.maximum(far[:, -1:], self.bandwidths.min())
        weight = np.log(self.kernel(far, own, self.bandwidths[indices])) + np.log(self.scale[indices])
        total, leaving = logsumexp(weight, axis=1), weight - step_costs(far, self.unit, self.depth)
        passages = [total - logsumexp(leaving - column[indices], axis=1) for column in self.passages.T]
        share = softmax(weight, axis=1)
        means = [(share * column[indices]).sum(axis=1) for column in self.values.T]
        nearest = indices[:, 0]
        same = far[:, 0] <= SAME_PLACE * self.bandwidths[nearest]
        known = np.hstack([self.passages[nearest], self.values[nearest]])
        return np.where(same[:, None], known, np.column_stack([*passages, *means]))
