"""All paths of a graph, each weighted by its steps and by its length: what everything else is read off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, dijkstra, reverse_cuthill_mckee
from sklearn.utils import gen_batches

from .graph import Graph
from .inverse import invert
from .parallel import in_blocks, in_threads
from .potential import circular_flow
from .sparse import product, rearranged, submatrix
from .stages import solve_in_stages, sum_in_stages

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

# Numerical: how far passages may rise along a step before floats end; what rises more has next to no weight.
LARGEST_RISE = 709.0

# Numerical: nodes that paths longer than the range of floats are added up through.
N_WAYPOINTS = 64

# The nearest nodes are chosen from so many times as many around a node. On real and generated cells, the ten nearest
# are then the same as among all cells; with 100 times as many, about one in 1,000 is another.
AROUND = 200

# How many steps of each path lead through a resample (benchmarks/resamples.py): with 8 or more, the shares of resamples
# that find an end again are within 0.05 of those of resamples that are solved alone.
N_RELAXED = 16

# Rows of a matrix that a thread takes at a time, so that temporary arrays fit into the cache.
_ROWS = 64


def equalise(A: sp.csr_matrix, known: np.ndarray | None = None) -> np.ndarray:
    """Factors s such that the rows of s_i (A_ij + δ_ij) s_j sum to one (symmetric Sinkhorn scaling).

    Factors that are ``known`` are taken if they do that.
    """

    def sums(s: np.ndarray) -> np.ndarray:
        return s * (A @ s + SELF_AFFINITY * s)

    if known is not None and np.abs(sums(known) - 1.0).max() <= TOLERANCE:
        return known
    s = 1.0 / np.sqrt(np.asarray(A.sum(axis=1)).ravel() + SELF_AFFINITY)
    for _ in range(MOST_ITERATIONS):
        row_sums = sums(s)
        if np.abs(row_sums - 1.0).max() <= TOLERANCE:
            break
        s /= np.sqrt(row_sums)
    return s


def step_costs(lengths: np.ndarray, unit: float, depth: float) -> np.ndarray:
    """What the length of a step adds to the free energy of a path."""
    with np.errstate(over="ignore"):  # where most edges join copies of cells
        steps = np.clip(lengths / unit, 1.0 / STEP_RANGE, STEP_RANGE)
    return np.minimum(steps / depth, LARGEST_COST)


@dataclass(frozen=True)
class PathEnsemble:
    """All paths of a graph at a depth.

    With B the equalised affinity, whose rows sum to one, a path's weight is the product over its steps of
    B_ij exp(-d_ij/(depth ``unit``)), where ``unit`` is the median length of an edge. So ``depth`` is how many neighbour
    distances a path may wander before its weight has fallen by e. Self-loops are eliminated: ``weights`` W has none,
    and ``degree`` is Σ_j B_ij over the others, summed and never formed as 1 - B_ii, which outliers would round to 0.

    Arrows move weight from steps back to steps forward: ``weights`` of a directed graph are W_ij e^{-``against``_ij},
    where a step back costs as much as it goes against the arrows, and each row keeps its sum. Only what
    goes round in circles counts: a potential weighs all paths between two nodes alike.
    """

    weights: sp.csr_matrix
    degree: np.ndarray
    scale: np.ndarray
    unit: float
    depth: float
    forward: np.ndarray | None = None
    against: np.ndarray | None = None

    @classmethod
    def of(cls, graph: Graph, depth: float) -> PathEnsemble:
        """The paths of a graph."""
        A, rows = graph.affinity, graph.rows
        scale = equalise(A, graph.scale)
        unit = float(np.median(graph.lengths)) if len(graph.lengths) else 1.0
        B = in_blocks(lambda some: A.data[some] * scale[rows[some]] * scale[A.indices[some]], A.nnz)
        W = in_blocks(lambda some: B[some] * np.exp(-step_costs(graph.lengths[some], unit, depth)), A.nnz)
        degree = np.bincount(rows, B, minlength=graph.n_nodes)
        ensemble = cls(sp.csr_matrix((W, A.indices, A.indptr), shape=A.shape), degree, scale, unit, depth)
        if graph.forward is None:
            return ensemble
        return ensemble._along(circular_flow(graph))

    def _along(self, forward: np.ndarray) -> PathEnsemble:
        """The paths along arrows, of an ensemble without them."""
        W, rows = self.weights, self.rows
        against = np.minimum(np.maximum(-forward, 0.0), LARGEST_COST)
        kept = np.bincount(rows, W.data * np.exp(-against)) / np.bincount(rows, W.data)
        against += np.log(kept)[rows]
        weights = sp.csr_matrix((W.data * np.exp(-against), W.indices, W.indptr), shape=W.shape)
        return replace(self, weights=weights, forward=forward, against=against)

    @cached_property
    def rows(self) -> np.ndarray:
        """The node that each step starts from."""
        return np.repeat(np.arange(self.weights.shape[0]), np.diff(self.weights.indptr))

    @property
    def undirected(self) -> PathEnsemble:
        """The same paths without arrows."""
        if self.forward is None:
            return self
        W = self.weights
        weights = sp.csr_matrix((W.data * np.exp(self.against), W.indices, W.indptr), shape=W.shape)
        return replace(self, weights=weights, forward=None, against=None)

    @property
    def reversed(self) -> PathEnsemble:
        """The paths along the opposite arrows; the same paths where there are none."""
        return self if self.forward is None else self.undirected._along(-self.forward)

    def equalised(self, graph: Graph) -> sp.csr_matrix:
        """B without its diagonal: the weights of steps before their length counts."""
        A, rows = graph.affinity, graph.rows
        return sp.csr_matrix((A.data * self.scale[rows] * self.scale[A.indices], A.indices, A.indptr), shape=A.shape)

    def first_passages(self, targets: np.ndarray) -> np.ndarray:
        """-log of the weight of all paths from each node to where they first meet ``targets``; 0 on these.

        The weight f solves Δ f = W f outside the targets, and is 1 on them.
        """
        if self.forward is not None:
            return self._passages_along(targets)[0]
        return _symmetric_passages(self.normalised, self.degree, targets)

    def passages_to(self, sets: Sequence[np.ndarray]) -> np.ndarray:
        """First passages to each set of targets, as columns."""
        _ = self.normalised  # once, and not in each thread
        return np.column_stack(in_threads(self.first_passages, sets))

    def nearest(self, nodes: Sequence[int], among: np.ndarray, n: int) -> list[np.ndarray]:
        """For each node the ``n`` nodes among some that have most paths to it, whichever way arrows point.

        Paths through the nodes around it count, as far as :data:`AROUND` times as many to choose from are there.
        """
        plain, n = self.undirected, min(n, len(among))
        N, wanted = plain.normalised, np.isin(np.arange(len(self.degree)), among)

        def nearest_to(node: int) -> np.ndarray:
            outward = breadth_first_order(N, node, return_predecessors=False)
            there = np.cumsum(wanted[outward])
            around = np.sort(outward[: 1 + np.searchsorted(there, min(AROUND * n, there[-1]))])
            at = np.searchsorted(around, [node])
            far = _symmetric_passages(submatrix(N, around), plain.degree[around], at)
            chosen = wanted[around]
            return around[chosen][np.argsort(far[chosen], kind="stable")[:n]]

        return in_threads(nearest_to, nodes)

    def relaxed(
        self, B: sp.csr_matrix, order: np.ndarray, targets: np.ndarray, kept: np.ndarray, n_steps: int = N_RELAXED
    ) -> np.ndarray:
        """First passages among some of the nodes, a column for each choice of them (``kept``); others are infinite.

        ``B`` is what :meth:`equalised` gives, and ``order`` the first passages to ``targets`` among all nodes. The
        first ``n_steps`` steps of each path lead through kept nodes only: steps to the others go to these instead, in
        proportion. From there on paths go as among all. So what is near is as in a graph of the kept nodes alone, and
        only differences over long ways are left out.
        """
        W, rows = self.weights, self.rows
        # Relative to all that leaves a node, in float64 still: outliers have next to nothing.
        total = np.asarray(B.sum(axis=1)).ravel()
        share = in_blocks(lambda some: B.data[some] / total[rows[some]], B.nnz, np.float32)
        M = sp.csr_matrix((in_blocks(self._arriving(order), W.nnz, np.float32), W.indices, W.indptr), shape=W.shape)
        # To the weight of the paths among all nodes, with as many empty columns as products like.
        ratio = np.pad(kept.astype(np.float32), ((0, 0), (0, -kept.shape[1] % 8)))
        leaving, after = np.empty_like(ratio), np.empty_like(ratio)
        product(sp.csr_matrix((share, B.indices, B.indptr), shape=B.shape), ratio, ratio, leaving)
        leaving = np.divide(1.0, leaving, out=np.zeros_like(ratio), where=leaving > np.finfo(np.float32).tiny)
        for _ in range(n_steps):
            product(M, leaving, ratio, after)
            after[targets] = ratio[targets]
            ratio, after = after, ratio
        with np.errstate(divide="ignore"):
            return order[:, None] - np.log(ratio[:, : kept.shape[1]])

    def ordering(self, roots: np.ndarray) -> PathEnsemble:
        """The ensemble without arrows whose first passages to the roots are the order.

        Arrows tell which paths count. Along them only, each node would have half of its neighbours to average noise
        over, so they are asked once, how far apart the ends of each step are (:meth:`order_along_arrows`). A step that
        is shorter without arrows, such as the one that closes a cycle, is made that long; then all paths count.
        """
        if self.forward is None:
            return self
        along, plain = self.order_along_arrows(roots), self.undirected
        W, rows = plain.weights, self.rows
        missing = np.abs(along[rows] - along[W.indices]) + np.log(plain.normalised.data)
        weights = sp.csr_matrix((W.data * np.exp(-np.maximum(missing, 0.0)), W.indices, W.indptr), shape=W.shape)
        kept = np.bincount(rows, weights.data) / np.bincount(rows, W.data)
        return replace(plain, weights=weights, degree=self.degree * kept)

    def order(self, roots: np.ndarray) -> np.ndarray:
        """The free energy of the paths between the roots and each node, as far as arrows let them count."""
        return self.ordering(roots).first_passages(roots)

    def order_along_arrows(self, roots: np.ndarray) -> np.ndarray:
        """The free energy, without arrows, of the paths that lead from the roots to each node along them.

        These are the first passages from the node to the roots along opposite arrows, less what they pay for going
        back. So a node behind the root is near on a line, where only paths that go back lead to it, and far on a cycle,
        where others lead all the way round.
        """
        passages, paid = self.reversed._passages_along(roots)
        return np.maximum(passages - paid, 0.0)

    def _passages_along(self, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First passages of a directed graph, and what their paths pay for the arrows on average."""
        W = self.weights
        P = sp.csr_matrix((W.data / self.degree[self.rows], W.indices, W.indptr), shape=W.shape)
        log_f, paid = sum_in_stages(P, self.against, targets)
        return -log_f, paid

    def residual(self, passages: np.ndarray, targets: np.ndarray) -> float:
        """The largest relative error with which first passages solve their equation; infinite if not 0 on targets."""
        if passages[targets].any():
            return np.inf
        with np.errstate(invalid="ignore"):  # of what are no passages
            shares = in_blocks(self._arriving(passages), self.weights.nnz)
            error = np.abs(np.bincount(self.rows, shares, minlength=len(passages)) - 1.0)
            return float(np.delete(error, targets).max(initial=0.0))

    def _arriving(self, passages: np.ndarray) -> Callable[[slice], np.ndarray]:
        """Of some steps, the share that the paths which begin with it have in all paths from there to the targets."""
        W, rows = self.weights, self.rows

        def shares(some: slice) -> np.ndarray:
            start = rows[some]
            rise = np.minimum(passages[start] - passages[W.indices[some]], LARGEST_RISE)
            return W.data[some] * np.exp(rise) / self.degree[start]

        return shares

    def free_energies(self) -> np.ndarray:
        """D_ij = ½ log(G_ii G_jj) - log G_ij for all nodes, with G = (Δ - W)⁻¹: a metric that adds up through cuts."""
        order, same = self.banded  # so that the two halves of the nodes have few edges between them
        G = (-same.normalised).toarray()
        G.flat[:: len(G) + 1] += 1.0
        invert(G)
        tiny, own = np.finfo(float).tiny, 0.5 * np.log(G.diagonal())
        batches = list(gen_batches(len(G), _ROWS))
        E = np.empty_like(G)

        def energies(rows: slice) -> None:
            # Up to the diagonal, and the rest the same, so that D is exactly symmetric.
            columns = slice(0, rows.stop)
            found = own[rows, None] + own[None, columns] - np.log(np.maximum(G[rows, columns], tiny))
            found[:, rows] = np.minimum(found[:, rows], found[:, rows].T)
            E[rows, columns] = np.maximum(found, 0.0, out=found)
            E[columns, rows] = found.T

        in_threads(energies, batches)
        place = np.argsort(order)
        D = np.empty_like(G)

        def in_place(rows: slice) -> None:
            np.take(E[place[rows]], place, axis=1, out=D[rows])

        in_threads(in_place, batches)
        np.fill_diagonal(D, 0.0)
        return D if G.min() >= tiny else _through_waypoints(D, np.tril(G < tiny)[np.ix_(place, place)])

    @cached_property
    def banded(self) -> tuple[np.ndarray, PathEnsemble]:
        """An order of the nodes in which neighbours follow each other, as the cache likes it, and the paths in it."""
        band = reverse_cuthill_mckee(self.weights, symmetric_mode=True)
        moved = {"weights": rearranged(self.weights, band), "degree": self.degree[band], "scale": self.scale[band]}
        return band, replace(self, **moved, forward=None, against=None)

    @cached_property
    def normalised(self) -> sp.csr_matrix:
        """Δ^-½ W Δ^-½: symmetric without arrows, and with eigenvalues below one."""
        W, root, rows = self.weights, 1.0 / np.sqrt(self.degree), self.rows
        values = in_blocks(lambda some: W.data[some] * root[rows[some]] * root[W.indices[some]], W.nnz)
        return sp.csr_matrix((values, W.indices, W.indptr), shape=W.shape)


def _symmetric_passages(N: sp.csr_matrix, degree: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """First passages without arrows, from what :attr:`PathEnsemble.normalised` is."""
    half = 0.5 * np.log(degree)
    boundary = np.full(len(half), -np.inf)
    boundary[targets] = half[targets]  # of sqrt(Δ) f, which the symmetric system is in
    passages = half - solve_in_stages(N, boundary)
    passages[targets] = 0.0
    return passages


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
