"""The tree that leads from the root to each end, read off the paths to the ends, and which ends are decided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import squareform
from scipy.special import logsumexp

# A peak has at least this many nodes, and this many stand for an end. From simulated trees with outliers; peaks of 2
# and of 5 nodes were compared on simulated trees of seeds 300 to 311 and on marrow.
END_CELLS = 10


def advance(passages: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """How far the paths from the root to each end have come at each node: log f_s(x)/f_s(root), a column an end.

    On a tree it is the distance from the root as far as a node is on the way to the end. Past the place where the way
    turns off, it falls again at the rate at which it rose.
    """
    return passages_from(passages, roots) - passages


def passages_from(passages: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """-log of the mean weight of the paths from the roots to each end."""
    return -logsumexp(-passages[roots], axis=0) + np.log(len(roots))


def heights(advanced: np.ndarray, ends: list[np.ndarray], apart: np.ndarray) -> np.ndarray:
    """How far from the root the ways to two ends part, for each pair of ends."""
    K = advanced.shape[1]
    found = np.zeros((K, K))
    for i in range(K):
        for j in range(i):
            silent = np.concatenate([ends[i], ends[j], apart])
            found[i, j] = found[j, i] = parting(advanced[:, i], advanced[:, j], silent)
    return found


def parting(one: np.ndarray, other: np.ndarray, silent: np.ndarray) -> float:
    """How far from the root two ways part, by how far each node has come on either.

    On a tree the mean of both is this height at every node past the branch point. So it is the median of that mean,
    where nodes count as far as they have decided between the two. ``silent`` ones do not count: the ends, where paths
    have arrived, and other parts of the graph.
    """
    weight = decided(one, other) ** 2
    weight[silent] = 0.0
    if not weight.any():  # ends that no other node can tell apart part where they are
        return float(max(one.max(), other.max()))
    mean = 0.5 * (one + other)
    upward = np.argsort(mean)
    total = np.cumsum(weight[upward])
    return float(mean[upward[np.searchsorted(total, 0.5 * total[-1])]])


def decided(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far nodes have decided between two ways: the difference of the two fates, 0 where they are even.

    It is tanh of the distance past the branch point.
    """
    return np.tanh(0.5 * np.abs(one - other))


@dataclass(frozen=True)
class Tree:
    """Root, branch points and ends. Branch 0 begins at the root; each branch point ends a branch and begins two.

    ``parents`` are positions of branches, ``leads_to`` the ends that each leads to, and ``height`` how far from the
    root its branch point is (infinite for the branch of an end, which has none).
    """

    parents: np.ndarray
    leads_to: list[list[int]]
    height: np.ndarray

    def children(self, branch: int) -> tuple[int, int]:
        """The two branches that begin where one ends."""
        one, other = np.flatnonzero(self.parents == branch)
        return int(one), int(other)

    def tip(self, end: int) -> int:
        """The branch that leads to an end and to no other."""
        return self.leads_to.index([end])

    def sides(self, advanced: np.ndarray, branch: int) -> np.ndarray:
        """How far nodes have come on the way to either side of a branch point, as columns."""
        return np.column_stack([advanced[:, self.leads_to[child]].max(axis=1) for child in self.children(branch)])

    def place(self, advanced: np.ndarray) -> np.ndarray:
        """The branch of each node: past a branch point, the side that it has come farther on."""
        branch = np.zeros(len(advanced), dtype=np.int64)
        for b in np.flatnonzero(np.isfinite(self.height)):  # parents come before their children
            nodes = np.flatnonzero(branch == b)
            sides = self.sides(advanced[nodes], int(b))
            past = sides.max(axis=1) > self.height[b]
            branch[nodes[past]] = np.array(self.children(int(b)))[sides[past].argmax(axis=1)]
        return branch

    def points(self, advanced: np.ndarray, apart: np.ndarray) -> np.ndarray:
        """The node nearest to the branch point of each branch, none of those ``apart``; -1 for the branch of an end."""
        found = np.full(len(self.height), -1)
        for b in np.flatnonzero(np.isfinite(self.height)):
            one, other = self.sides(advanced, int(b)).T
            far = np.abs(0.5 * (one + other) - self.height[b]) + 0.5 * np.abs(one - other)
            far[apart] = np.inf
            found[b] = far.argmin()
        return found

    def firmness(self, advanced: np.ndarray, ends: list[np.ndarray]) -> np.ndarray:
        """How far the nodes that stand for each end have decided for it, on average: 0 not at all, 1 entirely.

        That they have arrived says nothing, so they count as far on their way as the farthest of the others. An end
        alone has no other to decide against, and has 1.
        """
        found = np.ones(len(ends))
        for end, nodes in enumerate(ends) if len(ends) > 1 else ():
            tip = self.tip(end)
            parent = int(self.parents[tip])
            other = self.sides(advanced[nodes], parent)[:, 1 - self.children(parent).index(tip)]
            farthest = np.delete(advanced[:, end], nodes).max(initial=-np.inf)
            found[end] = decided(np.maximum(farthest, other), other).mean()
        return found


def tree_of(advanced: np.ndarray, ends: list[np.ndarray], apart: np.ndarray, height: np.ndarray) -> Tree:
    """The tree of ends whose ways part at these heights, pair by pair: those that part last are joined first.

    Where two groups of ends are joined, all nodes past that branch point say how high it is, but for those ``apart``.
    """
    from scipy.cluster.hierarchy import linkage  # not loaded by scanpy

    K = len(ends)
    members, pairs = [[i] for i in range(K)], []
    if K > 1:
        above = height.max() - height
        np.fill_diagonal(above, 0.0)
        for one, other, *_ in linkage(squareform(above, checks=False), "average"):
            pairs.append((int(one), int(other)))
            members.append(sorted(members[int(one)] + members[int(other)]))
    # From the root outward, which is the reverse of how they were joined.
    groups, parents = [len(members) - 1], [-1]
    height = np.full(2 * K - 1, np.inf)
    for b, group in enumerate(groups):
        if group >= K:
            groups += pairs[group - K]
            parents += [b, b]
            one, other = (advanced[:, members[part]].max(axis=1) for part in pairs[group - K])
            height[b] = parting(one, other, np.concatenate([apart, *(ends[i] for i in members[group])]))
    return Tree(np.array(parents), [members[group] for group in groups], height)


def grow(passages: np.ndarray, roots: np.ndarray, ends: list[np.ndarray], apart: np.ndarray) -> tuple[Tree, np.ndarray]:
    """The tree from the roots to the ends, from the passages to each, and how far nodes have come on it.

    Nodes ``apart`` are in parts of the graph that only bridges join to it.
    """
    advanced = advance(passages, roots)
    return tree_of(advanced, ends, apart, heights(advanced, ends, apart)), advanced


def firm_ends(
    advanced: np.ndarray, ends: list[np.ndarray], apart: np.ndarray, n_ends: int | None = None
) -> tuple[np.ndarray, tuple[int, float] | None]:
    """The ends whose nodes have decided for them, and the last end that was left out, with how far its nodes have.

    Of the ends whose nodes are more undecided than decided, the last (in the order given, the least persistent) is left
    out, and the others are asked again, until all are decided, or ``n_ends`` are left.
    """
    kept, height, nearly = np.arange(len(ends)), heights(advanced, ends, apart), None
    while True:
        of_kept = advanced[:, kept], [ends[i] for i in kept]
        firmness = tree_of(*of_kept, apart, height[np.ix_(kept, kept)]).firmness(*of_kept)
        undecided = np.flatnonzero(firmness <= 0.5)
        if len(kept) <= (n_ends or 1) or (n_ends is None and not len(undecided)):
            return kept, nearly
        last = int(undecided[-1]) if len(undecided) else len(kept) - 1
        nearly = int(kept[last]), float(firmness[last])
        kept = np.delete(kept, last)


def between(branch: np.ndarray, firm: sp.csr_matrix) -> np.ndarray:
    """Whether a node has a firm neighbour on another branch."""
    rows = np.repeat(np.arange(len(branch)), np.diff(firm.indptr))
    found = np.zeros(len(branch), dtype=bool)
    found[rows[branch[rows] != branch[firm.indices]]] = True
    return found
