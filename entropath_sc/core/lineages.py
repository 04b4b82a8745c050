"""Where an order ends and how it branches: peaks of the order that stay apart, and the tree between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp

from .ensemble import PathEnsemble
from .graph import Graph
from .parallel import as_done
from .progress import Report, silent
from .sparse import have_common, submatrix

# An end has at least this many cells, and this many stand for it. From simulated trees with outliers; not varied since.
END_CELLS = 10
# Branches meet along firm edges only: those with at least this fraction of an average edge's weight, between cells with
# at least this many neighbours in common. Outliers, doublets and single false edges would join every branch from above.
# From simulated trees with outliers; not varied since.
FIRM_WEIGHT = 0.2
FIRM_COMMON = 2
# The share of the cells that each resampling keeps, as is usual for samples without replacement.
RESAMPLED = 0.8


@dataclass(frozen=True)
class Split:
    """Two branches that meet where the order has fallen to ``height``: one that ends at ``peak``, and the ``elder``.

    ``younger_nodes`` and ``elder_nodes`` are what lies above the height on both sides. ``inside`` is the share of the
    weight of the younger branch's edges that stays within it.
    """

    peak: int
    elder: int
    height: float
    saddle: int
    persistence: float
    inside: float
    younger_nodes: np.ndarray
    elder_nodes: np.ndarray


@dataclass(frozen=True)
class Peaks:
    """The highest peak of an order, all splits below it (most persistent first), and how far the last nodes are apart.

    ``inside`` is the share of the weight of the last nodes' edges that stays among them; the last nodes are those above
    half way from the median to the highest peak. In a cloud less than half of it does: the order has no direction.
    ``left_out`` are the nodes of other parts that are large enough for an end.
    """

    top: int
    splits: list[Split]
    inside: float
    left_out: np.ndarray

    def ends(self, n_ends: int | None = None) -> list[Split] | None:
        """The splits that make an end each, besides the highest peak; None where there is no end at all.

        A branch ends where more of the weight of its edges stays inside than leaves it, or where it branches again.
        """
        if n_ends is not None:
            return self.splits[: n_ends - 1] if n_ends else None
        if self.inside <= 0.5:
            return None
        chosen = [split for split in self.splits if split.inside > 0.5]
        inner = {int(split.elder) for split in chosen}
        return [s for s in self.splits if s.inside > 0.5 or s.peak in inner]


def firm_edges(ensemble: PathEnsemble, graph: Graph) -> sp.csr_matrix:
    """The edges that branches may meet along, as a matrix of ones."""
    A, rows = graph.affinity, graph.rows
    weight = A.data * ensemble.scale[rows] * ensemble.scale[A.indices]
    average = A.shape[0] / max(A.nnz, 1)
    firm = (weight >= FIRM_WEIGHT * average) & have_common(A, FIRM_COMMON)
    found = sp.csr_matrix((firm.astype(np.float32), A.indices.copy(), A.indptr.copy()), shape=A.shape)
    found.eliminate_zeros()
    return found


def find_peaks(order: np.ndarray, firm: sp.csr_matrix, weights: sp.csr_matrix, least: int = END_CELLS) -> Peaks:
    """Peaks of an order by persistence, in the part that ``firm`` edges join to the root.

    Going down from the largest value, nodes join the peak of their neighbours. Where two peaks meet, the lower one
    dies, if at least ``least`` nodes are above on either side; ``weights`` measure how far a side stands alone.
    """
    inside, left_out = _root_part(order, firm, least)
    u = order[inside]
    firm = submatrix(firm, inside)
    tops, basin = _basins(u, firm)
    pairs, saddles = _passes(u, firm, basin)
    heights = u[saddles]
    members = [[i] for i in range(len(tops))]
    values_in = np.split(u[np.argsort(basin, kind="stable")], np.cumsum(np.bincount(basin))[:-1])
    component, peak, supported = np.arange(len(tops)), tops.copy(), np.zeros(len(tops), dtype=bool)

    def found(i: int) -> int:
        while component[i] != i:
            component[i] = component[component[i]]
            i = component[i]
        return i

    def has_support(i: int, height: float) -> bool:
        if not supported[i]:
            # As long as it has none, it has few basins.
            values = np.concatenate([values_in[b] for b in members[i]])
            supported[i] = np.count_nonzero(values > height) >= least
        return bool(supported[i])

    def above(i: int, height: float) -> np.ndarray:
        return inside[np.isin(basin, members[i]) & (u > height)]

    splits = []
    for (i, j), height, saddle in zip(pairs, heights, saddles, strict=True):
        i, j = found(i), found(j)
        if i == j:
            continue
        if (u[peak[i]], -peak[i]) < (u[peak[j]], -peak[j]):
            i, j = j, i
        of_elder, of_younger = has_support(i, height), has_support(j, height)
        if of_elder and of_younger:
            nodes = above(j, height)
            splits.append(
                Split(
                    int(inside[peak[j]]),
                    int(inside[peak[i]]),
                    float(height),
                    int(inside[saddle]),
                    float(u[peak[j]] - height),
                    _share_inside(weights, nodes),
                    nodes,
                    above(i, height),
                )
            )
        elif of_younger:
            peak[i] = peak[j]  # a few outliers above a branch are not its end
        supported[i] |= supported[j]
        component[j] = i
        members[i] += members[j]
    top = peak[found(0)]
    last = inside[u > 0.5 * (np.median(u) + u[top])]
    splits.sort(key=lambda split: -split.persistence)
    return Peaks(int(inside[top]), splits, _share_inside(weights, last), left_out)


def _root_part(order: np.ndarray, firm: sp.csr_matrix, least: int) -> tuple[np.ndarray, np.ndarray]:
    """The nodes of the part with the root, and those of other parts that have at least ``least``.

    Where the root stands alone, or nearly so, it is the first larger part that the order reaches.
    """
    label = connected_components(firm, directed=False)[1]
    sizes = np.bincount(label)
    first = np.full(len(sizes), np.inf)
    np.minimum.at(first, label, order)
    chosen = np.where(sizes >= min(2 * least, sizes.max()), first, np.inf).argmin()
    return np.flatnonzero(label == chosen), np.flatnonzero((label != chosen) & (sizes >= least)[label])


def _basins(u: np.ndarray, firm: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Local maxima, and for each node the one that steepest ascent leads to."""
    by_rank = np.lexsort((np.arange(len(u)), -u))
    rank = np.empty(len(u), dtype=np.int64)
    rank[by_rank] = np.arange(len(u))
    best = rank if firm.nnz == 0 else np.minimum(rank, np.minimum.reduceat(rank[firm.indices], firm.indptr[:-1]))
    higher = by_rank[best]
    while (higher != (highest := higher[higher])).any():
        higher = highest
    tops, basin = np.unique(higher, return_inverse=True)
    return tops, basin


def _passes(u: np.ndarray, firm: sp.csr_matrix, basin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of basins that touch, the highest pass first, and the node that each pass is at."""
    apart = np.flatnonzero(np.repeat(basin, np.diff(firm.indptr)) < basin[firm.indices])
    rows, columns = np.searchsorted(firm.indptr, apart, side="right") - 1, firm.indices[apart]
    lower = np.where(u[rows] < u[columns], rows, columns)
    one, other = basin[rows], basin[columns]
    downward = np.lexsort((lower, -u[lower]))
    pair = one[downward].astype(np.int64) * (basin.max() + 1) + other[downward]
    _, first = np.unique(pair, return_index=True)
    highest = downward[np.sort(first)]
    return np.column_stack([one[highest], other[highest]]), lower[highest]


def _share_inside(weights: sp.csr_matrix, nodes: np.ndarray) -> float:
    chosen = np.zeros(weights.shape[0], dtype=bool)
    chosen[nodes] = True
    links = weights[nodes]
    return float(links.data[chosen[links.indices]].sum() / max(links.data.sum(), np.finfo(float).tiny))


@dataclass(frozen=True)
class Tree:
    """Root, branch points and ends, and the branch of each node.

    ``parents`` are positions of branches: branch 0 begins at the root; each split ends a branch and begins two.
    ``splits`` holds the split that ends a branch (-1: an end), ``ends`` its end (-1: a split). ``branch`` is the branch
    of each node, and ``between`` whether a node has a firm neighbour on another branch.
    """

    parents: np.ndarray
    splits: np.ndarray
    ends: np.ndarray
    branch: np.ndarray
    between: np.ndarray

    def branch_of_end(self, end: int) -> np.ndarray:
        """The nodes on the branch that leads to an end, and to no other."""
        return np.flatnonzero(self.branch == np.flatnonzero(self.ends == end)[0])


def tree_of(peaks: Peaks, splits: list[Split], firm: sp.csr_matrix, weights: sp.csr_matrix) -> Tree:
    """The tree of the chosen splits. Its ends are the highest peak, then the peaks of the splits in their order."""
    n = firm.shape[0]
    branch = np.full(n, -1)
    label = connected_components(firm, directed=False)[1]
    branch[label == label[peaks.top]] = 0
    end_of = {peaks.top: 0} | {split.peak: i for i, split in enumerate(splits, 1)}
    parents, split_at, ends = [-1], [-1], [0]
    # The lowest split first: those above it lie inside one of its sides.
    for i in sorted(range(len(splits)), key=lambda i: (splits[i].height, i)):
        split = splits[i]
        parent = int(branch[split.peak])
        split_at[parent], ends[parent] = i, -1
        for nodes, peak in ((split.younger_nodes, split.peak), (split.elder_nodes, split.elder)):
            branch[nodes] = len(parents)
            parents.append(parent)
            split_at.append(-1)
            ends.append(end_of[peak])
    branch = _spread(branch, weights)
    rows = np.repeat(np.arange(n), np.diff(firm.indptr))
    between = np.zeros(n, dtype=bool)
    between[rows[branch[rows] != branch[firm.indices]]] = True
    return Tree(np.array(parents), np.array(split_at), np.array(ends), branch, between)


def _spread(branch: np.ndarray, weights: sp.csr_matrix) -> np.ndarray:
    """Nodes without a branch get that of their strongest neighbour which has one, as often as it takes."""
    branch = branch.copy()
    while (missing := np.flatnonzero(branch < 0)).size:
        towards = weights[missing].tocsr()
        towards.data = np.where(branch[towards.indices] >= 0, towards.data, 0.0)
        strongest = np.asarray(towards.argmax(axis=1)).ravel()
        reached = branch[strongest] >= 0
        if not reached.any():
            branch[missing] = 0
            break
        branch[missing[reached]] = branch[strongest[reached]]
    return branch


def resampled(graph: Graph, roots: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, Graph]:
    """Most of the nodes at random, with the roots and their neighbours, as far as these reach, and their graph."""
    kept = rng.random(graph.n_nodes) < RESAMPLED
    kept[roots] = kept[graph.affinity[roots].indices] = True
    nodes = np.flatnonzero(kept)
    part = induced(graph, nodes)
    label = connected_components(part.affinity, directed=False)[1]
    reached = label == label[np.searchsorted(nodes, roots[0])]
    return (nodes, part) if reached.all() else (nodes[reached], induced(graph, nodes[reached]))


def induced(graph: Graph, nodes: np.ndarray) -> Graph:
    """The graph of some nodes, in rising order."""
    A = graph.affinity

    def part(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else submatrix(sp.csr_matrix((values, A.indices, A.indptr), A.shape), nodes).data

    return Graph(submatrix(A, nodes), part(graph.lengths), graph.bridges, forward=part(graph.forward))


def recovery(
    graph: Graph,
    depth: float,
    roots: np.ndarray,
    firm: sp.csr_matrix,
    regions: list[np.ndarray],
    n_resamples: int,
    seed: int,
    report: Report = silent,
) -> np.ndarray:
    """How often an end is found again in each region, among most of the nodes at random."""
    region = np.full(graph.n_nodes, -1)
    for i, nodes in enumerate(regions):
        region[nodes] = i

    def found_in(rng: np.random.Generator) -> np.ndarray:
        nodes, part = resampled(graph, roots, rng)
        ensemble = PathEnsemble.of(part, depth)
        order = ensemble.order(np.flatnonzero(np.isin(nodes, roots)))
        peaks = find_peaks(order, submatrix(firm, nodes), ensemble.equalised(part), int(RESAMPLED * END_CELLS))
        splits = peaks.ends()
        return np.empty(0, dtype=int) if splits is None else region[nodes[[peaks.top, *(s.peak for s in splits)]]]

    counts = np.zeros(len(regions))
    for i, found in enumerate(as_done(found_in, np.random.default_rng(seed).spawn(n_resamples))):
        report("resamples", i, n_resamples)
        counts[np.unique(found[found >= 0])] += 1
    return counts / max(n_resamples, 1)


def fates(passages: np.ndarray, at_root: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Probability of each end, a column each: of the paths from the root to it, relative to all, those through a cell.

    ``passages`` are -log of the weights of the paths from each cell to each end, and ``at_root`` those of the root.
    """
    log_weight = at_root - passages + np.log(prior)
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)


def plasticity(probability: np.ndarray) -> np.ndarray:
    """Entropy of the fates, relative to that of even ones: 0 committed, 1 undecided. 0 where there is one end."""
    n_ends = probability.shape[1]
    if n_ends < 2:
        return np.zeros(len(probability))
    logs = np.log(np.maximum(probability, np.finfo(float).tiny))
    return np.clip(-(probability * logs).sum(axis=1) / np.log(n_ends), 0.0, 1.0)


def forward_walk(
    ensemble: PathEnsemble, passages: np.ndarray, at_root: np.ndarray, prior: np.ndarray, ends: list[np.ndarray]
) -> sp.csr_matrix:
    """The walk along all paths, conditioned to arrive at the ends, which keep it: rows sum to one.

    ``T_xy = W_xy h(y)/(Δ_x h(x))`` with ``h = Σ_s prior_s f_s/f_s(root)``. Within an end the walk goes to any of its
    nodes, so that each end is one closed class, and 1 is an eigenvalue once for each.
    """
    log_h = logsumexp(at_root - passages + np.log(prior), axis=1)
    W = ensemble.weights
    rows = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
    values = W.data / ensemble.degree[rows] * np.exp(log_h[W.indices] - log_h[rows])
    values[np.isin(rows, np.concatenate(ends))] = 0.0
    walk = sp.csr_matrix((values, W.indices, W.indptr), shape=W.shape)
    for end in ends:
        chosen = sp.csr_matrix((np.ones(len(end)), (end, np.zeros(len(end), dtype=int))), shape=(W.shape[0], 1))
        walk = walk + chosen @ chosen.T / len(end)
    walk = walk.tocsr()
    walk.eliminate_zeros()
    # h solves its equation outside the ends, to the solver's accuracy; what is left over is rounding.
    return sp.diags(1.0 / np.asarray(walk.sum(axis=1)).ravel()) @ walk
