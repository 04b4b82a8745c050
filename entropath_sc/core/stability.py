"""How much an order, fates, branches and a map change when cells are left out and the root moves to a neighbour."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import procrustes
from scipy.stats import spearmanr

from . import lineages
from .branches import Tree, grow, passages_from
from .ensemble import PathEnsemble
from .graph import Graph
from .layout import smacof, without_own_noise
from .parallel import as_done
from .pipeline import scaled
from .progress import Report, silent


class Spread:
    """Mean and standard deviation of values that come for some of the nodes at a time."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count, self.total, self.squares = np.zeros(shape[0]), np.zeros(shape), np.zeros(shape)

    def add(self, nodes: np.ndarray, values: np.ndarray) -> None:
        """Values of some nodes."""
        self.count[nodes] += 1
        self.total[nodes] += values
        self.squares[nodes] += values**2

    @property
    def mean(self) -> np.ndarray:
        """Of each node; NaN where it had none."""
        with np.errstate(invalid="ignore"):
            return (self.total.T / self.count).T

    @property
    def sd(self) -> np.ndarray:
        """Of each node; NaN where it had none."""
        with np.errstate(invalid="ignore"):
            return np.sqrt(np.maximum((self.squares.T / self.count).T - self.mean**2, 0.0))


@dataclass(frozen=True)
class Repeats:
    """What repeats gave: per node the spread of pseudotime, of fates, and how often the branch was the same.

    ``agreement`` is the rank correlation of each repeat with the order itself, ``found_again`` the share of repeats
    where cells decide for each end, of those that kept cells of every end.
    """

    pseudotime_sd: np.ndarray
    fates_sd: np.ndarray
    same_branch: np.ndarray
    agreement: np.ndarray
    found_again: np.ndarray


@dataclass
class Repeat:
    """One of them: the order of some nodes, their fates and whether their branch is the same, and the ends found."""

    nodes: np.ndarray
    roots: np.ndarray
    order: np.ndarray
    fates: np.ndarray | None = None
    same_branch: np.ndarray | None = None
    found: np.ndarray | None = None


def repeat_order(
    graph: Graph,
    depth: float,
    order: np.ndarray,
    roots: list[np.ndarray],
    tree: Tree | None,
    branch: np.ndarray,
    ends: list[np.ndarray],
    apart: np.ndarray,
    seed: int,
    report: Report = silent,
) -> Repeats:
    """Order, fates and branches from each of the roots, among most of the nodes at random.

    ``tree`` is that of the ``ends``, and ``branch`` the branch of each node on it. Nodes ``apart`` are in other parts.
    """
    n, K = graph.n_nodes, len(ends)
    pseudotime, fates, same = Spread((n,)), Spread((n, max(K, 1))), Spread((n,))
    agreement, found, measured = np.empty(len(roots)), np.zeros(K), 0

    def again(root: np.ndarray, rng: np.random.Generator) -> Repeat:
        nodes, part = lineages.resampled(graph, root, rng)
        ensemble = PathEnsemble.of(part, depth)
        at = np.flatnonzero(np.isin(nodes, root))
        repeat = Repeat(nodes, at, ensemble.order(at))
        kept = [np.flatnonzero(np.isin(nodes, end)) for end in ends]
        if tree is not None and all(len(end) for end in kept):
            passages = np.column_stack([ensemble.first_passages(end) for end in kept])
            repeat.fates = lineages.fates(passages, passages_from(passages, at), np.full(K, 1.0 / K))
            other, advanced = grow(passages, at, kept, np.flatnonzero(np.isin(nodes, apart)))
            same_ends = np.array([[a == b for b in other.leads_to] for a in tree.leads_to])
            repeat.same_branch = same_ends[branch[nodes], other.place(advanced)]
            repeat.found = other.firmness(advanced, kept) > 0.5
        return repeat

    rngs = np.random.default_rng(seed).spawn(len(roots))
    for r, repeat in enumerate(as_done(lambda job: again(*job), zip(roots, rngs, strict=True))):
        report("repeats of the pseudotime", r, len(roots))
        pseudotime.add(repeat.nodes, scaled(repeat.order, roots=repeat.roots))
        agreement[r] = spearmanr(repeat.order, order[repeat.nodes])[0]
        if repeat.fates is not None:
            fates.add(repeat.nodes, repeat.fates)
            same.add(repeat.nodes, repeat.same_branch)
            found, measured = found + repeat.found, measured + 1
    return Repeats(pseudotime.sd, fates.sd, same.mean, agreement, found / measured if measured else np.full(K, np.nan))


def repeat_map(
    graph: Graph, depth: float, coordinates: np.ndarray, n_repeats: int, seed: int, report: Report = silent
) -> np.ndarray:
    """How far each node of a map moves, relative to the map's radius, after Procrustes; the root mean square."""
    moved = Spread((graph.n_nodes,))

    def again(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        nodes, part = lineages.resampled(graph, rng.integers(graph.n_nodes, size=1), rng)
        D = without_own_noise(PathEnsemble.of(part.undirected, depth).free_energies())
        layout = smacof(D, coordinates[nodes].astype(np.float64))
        one, other, _ = procrustes(coordinates[nodes], layout.coordinates)
        # Procrustes scales both to a unit sum of squares: times n the mean square is 1.
        return nodes, np.linalg.norm(one - other, axis=1) * np.sqrt(len(nodes))

    for r, (nodes, far) in enumerate(as_done(again, np.random.default_rng(seed).spawn(n_repeats))):
        report("repeats of the embedding", r, n_repeats)
        moved.add(nodes, far)
    return np.sqrt(moved.mean**2 + moved.sd**2)
