"""Where an order ends: its peaks, and which of them cells decide for; and which way each node goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp

from .branches import END_CELLS, advance, firm_ends, grow
from .ensemble import PathEnsemble
from .graph import Graph
from .parallel import as_done
from .progress import Report, silent
from .sparse import have_common, merge_downward, rearranged, share_inside, submatrix

# Peaks meet along firm edges only: those with at least this fraction of an average edge's weight, between cells with
# at least this many neighbours in common. Outliers, doublets and single false edges would join all peaks from above.
# From simulated trees with outliers; not varied since.
FIRM_WEIGHT = 0.2
FIRM_COMMON = 2
# The share of the cells that each resampling keeps, as is usual for samples without replacement.
RESAMPLED = 0.8
# Resamples that are ordered together: a product with several columns reads the graph once for all.
_TOGETHER = 20

TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Peaks:
    """Peaks of an order, the most persistent first, and how far the last nodes are apart from the others.

    ``persistence`` is how far each rises above the place where it meets a higher one; the highest has infinity.
    ``inside`` is the share of the weight of the last nodes' edges that stays among them; the last nodes are those above
    half way from the median to the highest peak. In a cloud less than half of it does: the order has no direction.
    ``part`` says which nodes are in the part with the peaks. ``left_out`` are those of other parts that are large
    enough for an end, and ``before`` those of the root's own part, where that is another one.
    """

    nodes: np.ndarray
    persistence: np.ndarray
    inside: float
    part: np.ndarray
    left_out: np.ndarray
    before: np.ndarray

    @property
    def has_direction(self) -> bool:
        """Whether more of the last nodes' edges stay among them than leave them."""
        return _has_direction(self.inside)


def firm_edges(ensemble: PathEnsemble, graph: Graph) -> sp.csr_matrix:
    """The edges that branches may meet along, as a matrix of ones."""
    B = ensemble.equalised(graph)
    average = B.shape[0] / max(B.nnz, 1)
    firm = have_common(B, FIRM_COMMON, B.data >= FIRM_WEIGHT * average)
    found = sp.csr_matrix((firm.astype(np.float32), B.indices.copy(), B.indptr.copy()), shape=B.shape)
    found.eliminate_zeros()
    return found


def find_peaks(
    order: np.ndarray,
    firm: sp.csr_matrix,
    weights: sp.csr_matrix,
    least: int = END_CELLS,
    within: np.ndarray | None = None,
) -> Peaks:
    """Peaks of an order by persistence, in the part that ``firm`` edges join to the root.

    Where the root stands alone, or among nodes without a direction, as cells do that wait to begin, the peaks are those
    of the first larger part that the order reaches and that has one. Or they are those of the part with most of the
    nodes ``within``. Nodes where the order is infinite are not there.

    Going down from the largest value, nodes join the peak of their neighbours. Where two peaks meet, the lower one
    dies, if at least ``least`` nodes are above on either side; ``weights`` measure how far the last nodes stand alone.
    """
    there = np.isfinite(order)
    downward = np.argsort(np.where(there, -order, np.inf), kind="stable")[: np.count_nonzero(there)]
    part, peak, lower, heights = merge_downward(firm, downward, least)
    size = np.where(there, np.bincount(part[there], minlength=len(part))[part], 0)

    def share_of_last(inside: np.ndarray) -> float:
        top = peak[part[inside.argmax()]]
        last = np.flatnonzero(inside & (order > 0.5 * (np.median(order[inside]) + order[top])))
        return share_inside(weights, last, there)

    if within is None:
        inside, share = _part_with_direction(order, part, size, least, share_of_last)
    else:
        inside = part == np.bincount(part[within & there]).argmax()
        share = share_of_last(inside)
    rise = order[lower] - order[heights]
    rising = inside[lower] & (rise > 0)  # roots are all alike, and no peaks
    nodes, persistence = lower[rising], rise[rising]
    by_persistence = np.lexsort((nodes, -persistence))
    elsewhere, before = there & ~inside, part == part[order.argmin()]
    return Peaks(
        np.append(peak[part[inside.argmax()]], nodes[by_persistence]),
        np.append(np.inf, persistence[by_persistence]),
        share,
        inside,
        np.flatnonzero(elsewhere & ~before & (size >= least)),
        np.flatnonzero(elsewhere & before),
    )


def _part_with_direction(
    order: np.ndarray, part: np.ndarray, size: np.ndarray, least: int, share_of_last: Callable[[np.ndarray], float]
) -> tuple[np.ndarray, float]:
    """Which nodes are in the part that peaks are looked for in, and the share of the last nodes' links among these.

    Parts come in the order in which they are reached from the root, each larger than the one before. The first is
    large enough for two ends, unless none is. Where none has a direction, it is the first. ``size`` is that of the part
    of each node.
    """
    tried, largest = [], size.max()
    enough = min(2 * least, largest)
    while enough <= largest:
        inside = part == part[np.where(size >= enough, order, np.inf).argmin()]
        tried.append((inside, share_of_last(inside)))
        if _has_direction(tried[-1][1]):
            return tried[-1]
        enough = int(size[inside][0]) + 1
    return tried[0]


def _has_direction(inside: float) -> bool:
    return inside > 0.5


def most_nodes(graph: Graph, roots: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Most of the nodes at random, with the roots and their neighbours; whether each is among them."""
    kept = rng.random(graph.n_nodes) < RESAMPLED
    kept[roots] = kept[graph.affinity[roots].indices] = True
    return kept


def resampled(graph: Graph, roots: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, Graph]:
    """Most of the nodes, as far as the roots reach, and their graph."""
    nodes = np.flatnonzero(most_nodes(graph, roots, rng))
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


@dataclass(frozen=True)
class Ends:
    """Ends of an order: the peak of each, the nodes that stand for it, and the passages to these.

    ``part`` says which nodes are in the same part of the graph, and ``apart`` are those of others. ``nearly`` is the
    last peak that was left out, with how far its nodes have decided for it.
    """

    peaks: np.ndarray
    nodes: list[np.ndarray]
    passages: np.ndarray
    part: np.ndarray
    apart: np.ndarray
    nearly: tuple[int, float] | None


def find_ends(ensemble: PathEnsemble, roots: np.ndarray, peaks: Peaks, n_ends: int | None = None) -> Ends:
    """The peaks whose nodes have decided for them, or the ``n_ends`` that are left when the last ones are left out."""
    everywhere = np.arange(len(ensemble.degree))
    nearest = ensemble.nearest(peaks.nodes.tolist(), everywhere, END_CELLS)
    # A peak among the nodes of a more persistent one is the same end.
    taken, chosen, nodes = set(), [], []
    for i, near in enumerate(nearest):
        if int(peaks.nodes[i]) not in taken:
            nodes.append(np.array([node for node in near if int(node) not in taken]))
            taken.update(near.tolist())
            chosen.append(i)
    passages = ensemble.passages_to(nodes)
    kept, nearly = firm_ends(advance(passages, roots), nodes, peaks.left_out, n_ends)
    return Ends(
        peaks.nodes[chosen][kept],
        [nodes[i] for i in kept],
        passages[:, kept],
        peaks.part,
        peaks.left_out,
        None if nearly is None else (int(peaks.nodes[chosen[nearly[0]]]), nearly[1]),
    )


def recovery(
    graph: Graph,
    ordering: PathEnsemble,
    order: np.ndarray,
    roots: np.ndarray,
    firm: sp.csr_matrix,
    ends: Ends,
    n_resamples: int,
    seed: int,
    report: Report = silent,
) -> np.ndarray:
    """How often each end is found again among most of the nodes at random: a peak on its branch.

    ``order`` has the first passages of ``ordering`` to the roots.
    """
    tree, advanced = grow(ends.passages, roots, ends.nodes, ends.apart)
    tips = np.array([tree.tip(i) for i in range(len(ends.nodes))])
    band, same = ordering.banded
    within, branch, at_roots = ends.part[band], tree.place(advanced)[band], np.flatnonzero(np.isin(band, roots))
    firm, weights = rearranged(firm, band), rearranged(ordering.equalised(graph), band)
    least = int(RESAMPLED * END_CELLS)

    def peaks_of(resampled_order: np.ndarray) -> Peaks:
        return find_peaks(np.ascontiguousarray(resampled_order), firm, weights, least, within)

    rngs = np.random.default_rng(seed).spawn(n_resamples)
    counts = np.zeros(len(tips))
    for first in range(0, n_resamples, _TOGETHER):
        kept = np.column_stack([most_nodes(graph, roots, rng) for rng in rngs[first : first + _TOGETHER]])
        orders = same.relaxed(weights, order[band], at_roots, kept[band])
        for done, peaks in enumerate(as_done(peaks_of, orders.T), first):
            report("resamples", done, n_resamples)
            counts += np.isin(tips, branch[peaks.nodes]) & peaks.has_direction
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
    logs = np.log(np.maximum(probability, TINY))
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
