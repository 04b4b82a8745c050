"""From a graph to coordinates and an order: the one recipe that tools, estimator and command line call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import rankdata

from . import layout as layouts
from . import paper
from .cells import Cells
from .depth import Knee, agreement
from .ensemble import PathEnsemble
from .graph import Graph
from .landmarks import Landmarks, choose, compressed_graph, joined_graph, knn_graph
from .nodes import Nodes, SoftAssignment
from .progress import Report, silent

SCALINGS = ("minmax", "rank")
N_NEIGHBORS = 15
N_LANDMARKS = 2000
# Where landmarks stand for the cells, at most this many cells of a category are looked at to find its root.
MOST_CANDIDATES = 10_000


@dataclass(frozen=True)
class Settings:
    """A method: the kernel, the landmarks, and how deep paths go.

    ``walk`` names the path ensemble: ``'equalised'`` (paths of all lengths), or the paper's ``'power'`` and ``'heat'``.
    """

    decay: float
    bandwidth: str
    landmarks: str
    n_project: int
    depth: float | str
    walk: str = "equalised"

    @property
    def is_published(self) -> bool:
        """Whether this is the paper's method."""
        return self.walk != "equalised"


# Fitted: the decay on generated manifolds (seeds 100, 101 and 300 to 302 of benchmarks/quality.py), n_project on rolls
# and real cells (benchmarks/landmarks.py), and the depth on the data that docs/choices.md lists.
DEFAULT = Settings(decay=3.0, bandwidth="tempered", landmarks="farthest", n_project=10, depth=10.0)
PAPER = Settings(decay=40.0, bandwidth="larger", landmarks="kmeans", n_project=50, depth="knee", walk="power")
HEAT = Settings(decay=40.0, bandwidth="larger", landmarks="kmeans", n_project=50, depth="knee", walk="heat")
PRESETS = {"default": DEFAULT, "paper": PAPER, "heat": HEAT}


def landmark_graph(
    cells: Cells,
    settings: Settings,
    n_landmarks: int,
    *,
    affinity: sp.csr_matrix | None = None,
    include: np.ndarray | None = None,
    n_neighbors: int = N_NEIGHBORS,
    random_state: int = 0,
) -> tuple[Landmarks, Graph]:
    """Landmarks, and the graph among them: of the cells' ``affinity`` where there is one, else joined by all cells."""
    chosen = choose(cells, n_landmarks, settings.landmarks, include=include, random_state=random_state)
    # A cell has noise of its own, of which the mean of some has less; the paper's landmarks are cells.
    at = chosen.positions if settings.is_published else chosen.centres
    nodes = Nodes.at(at, n_project=settings.n_project, n_neighbors=n_neighbors)
    if settings.is_published:
        return chosen, knn_graph(nodes, n_neighbors, decay=settings.decay, bandwidth=settings.bandwidth)
    if affinity is None:
        return chosen, joined_graph(cells.total(nodes, SoftAssignment(nodes), "landmarks"), nodes)
    return chosen, compressed_graph(affinity, cells.assignment(nodes), nodes)


@dataclass(frozen=True)
class Diagnostics:
    """The depth that was used, and how alike other depths rank the nodes.

    The paper's walk has a ``knee`` instead, and the relative error of the walk as ``residual``.
    """

    depth: float
    depths: np.ndarray | None = None
    agreement: np.ndarray | None = None
    knee: Knee | None = None
    residual: float | None = None


@dataclass(frozen=True)
class Embedded:
    """Coordinates of the nodes of a graph, with how they came about."""

    coordinates: np.ndarray
    depth: Diagnostics
    layout: layouts.Layout | None


def dissimilarities(graph: Graph, settings: Settings) -> tuple[np.ndarray, Diagnostics]:
    """Free energies of the paths between all nodes of a graph, in the form that is scaled."""
    if settings.is_published:
        perron, knee = paper.walk_of(graph)
        depth = float(knee.depth if settings.depth == "knee" else settings.depth)
        D = paper.free_energies(graph, perron, depth, heat=settings.walk == "heat")
        return D, Diagnostics(depth, knee=knee, residual=perron.residual)
    depth = float(settings.depth)
    # Arrows say in which order cells come, not how far apart they are: on a cycle, all are equally far there and back.
    graph = graph.undirected
    D = PathEnsemble.of(graph, depth).free_energies()
    return layouts.without_own_noise(D), Diagnostics(depth, *agreement(graph, depth))


def embed(
    graph: Graph, settings: Settings, *, n_components: int = 2, mds: str = "metric", report: Report = silent
) -> Embedded:
    """Coordinates of the nodes of a graph."""
    D, diagnostics = dissimilarities(graph, settings)
    # The paper's free energies grow with the square of the length, those of all paths with the length itself.
    coordinates, layout = layouts.classical(D if settings.is_published else D**2, n_components), None
    if mds == "metric":
        layout = layouts.smacof(D, coordinates, report=report)
        coordinates = layout.coordinates
    return Embedded(coordinates, diagnostics, layout)


@dataclass(frozen=True)
class Order:
    """The free energy of the paths from the roots to each node (and from the terminals, if any), at a depth.

    ``residual`` is the largest relative error with which it solves its equation; the paper's is that of its walk.
    """

    potentials: np.ndarray
    depth: float
    unit: float | None = None
    residual: float | None = None


def order(graph: Graph, settings: Settings, sources: list[sp.csr_matrix]) -> Order:
    """Free energies from each set of sources (weights on the nodes, a row a cell), as columns."""
    if settings.is_published:
        perron, knee = paper.walk_of(graph)
        depth = float(knee.depth if settings.depth == "knee" else settings.depth)
        weights = [np.asarray(source.sum(axis=0), dtype=np.float64).ravel() for source in sources]
        heat = settings.walk == "heat"
        found = [paper.potential(graph, perron, weight, depth, heat=heat) for weight in weights]
        return Order(np.stack(found, axis=1), depth, residual=perron.residual)
    ensemble = PathEnsemble.of(graph, float(settings.depth))
    ends = [np.unique(np.asarray(source.argmax(axis=1)).ravel()) for source in sources]
    found = [ensemble.order(ends[0]), *(ensemble.first_passages(end) for end in ends[1:])]
    residual = None
    if graph.forward is None:
        residual = max(ensemble.residual(passages, end) for passages, end in zip(found, ends, strict=True))
    return Order(np.stack(found, axis=1), ensemble.depth, ensemble.unit, residual)


def root_in(graph: Graph, settings: Settings, cells: Cells | None, members: np.ndarray) -> int | None:
    """The cell deepest inside a category: whose neighbourhood is farthest, by first passages, from all other cells.

    None where all nodes belong to the category.
    """
    some = members[:: -(-len(members) // MOST_CANDIDATES)] if graph.nodes is not None else members
    node = np.asarray(graph.sources(cells, some).argmax(axis=1)).ravel()
    outside = np.setdiff1d(np.arange(graph.n_nodes), node)
    if not len(outside):
        return None
    depth = settings.depth if not settings.is_published else DEFAULT.depth
    ensemble = PathEnsemble.of(graph.undirected, float(depth))
    # The mean over neighbours, as an outlier is far from all others too.
    passages = ensemble.weights @ ensemble.first_passages(outside) / np.asarray(ensemble.weights.sum(axis=1)).ravel()
    return int(some[passages[node].argmax()])


def pinned(potential: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """The potential with the roots at its minimum: a cell is at no distance from itself (the paper's D_ii = 0)."""
    potential = potential.copy()
    potential[roots] = potential.min()
    return potential


def between(potential: np.ndarray | float, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    """Linearly from [low, high] to [0, 1]; all zero where there is nothing between them."""
    return (potential - low) / np.where(high > low, np.subtract(high, low), np.inf)


def scaled(potential: np.ndarray, scaling: str = "minmax", roots: np.ndarray | None = None) -> np.ndarray:
    """To [0, 1], linearly or by rank; with ``roots``, linearly from the first of the other cells.

    All paths share the last step, into a root, which is its own noise.
    """
    if scaling == "rank":
        return (rankdata(potential, method="min") - 1) / max(len(potential) - 1, 1)
    others = potential if roots is None else np.delete(potential, roots)
    low = others.min() if len(others) else 0.0
    return np.maximum(between(potential, low, potential.max()), 0.0)


def terminal_corrected(pseudotime: np.ndarray, towards_terminal: np.ndarray, settings: Settings) -> np.ndarray:
    """Cells pulled towards terminal ones: the order, or the share τ/(τ + d_term) where that is later.

    The share is 0 at roots and 1 at terminals. Alone, as in the paper, it turns branches without a terminal cell
    around, as their cells are ever farther from one.
    """
    total = pseudotime + towards_terminal
    share: Any = np.divide(pseudotime, total, out=np.zeros_like(total), where=total > 0)
    return share if settings.is_published else np.maximum(pseudotime, share)
