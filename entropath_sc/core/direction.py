"""Which way steps lead, along velocities or experimental time, and where all of them come from."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.utils import gen_batches

from . import lineages
from .ensemble import PathEnsemble
from .graph import Graph
from .potential import circulation, potential

# Fitted on simulated flows like those of benchmarks/direction.py, with other seeds (310 to 312): what a typical step
# straight back costs, where it costs anything. 8 to 128 were compared: cycles gain up to 64, and little changes beyond.
STRENGTH = 64.0
# Edges whose steps are formed at a time, which bounds the memory.
_EDGES = 200_000


def averaging(graph: Graph) -> sp.csr_matrix:
    """The mean over a node and its neighbours, weighted by the equalised affinity: rows sum to one."""
    ensemble = PathEnsemble.of(graph.undirected, 1.0)
    return (ensemble.equalised(graph) + sp.diags_array(np.maximum(1.0 - ensemble.degree, 0.0))).tocsr()


def velocity_of(transitions: sp.csr_matrix, X: np.ndarray, graph: Graph) -> np.ndarray:
    """Where transitions lead from each cell, in ``X``: to their mean, away from the mean of the cell's neighbourhood.

    Cells without a transition have no velocity.
    """
    total = np.asarray(transitions.sum(axis=1)).ravel()
    reached = total > 0
    found = np.zeros_like(X)
    found[reached] = (transitions @ X)[reached] / total[reached, None] - (averaging(graph) @ X)[reached]
    return found


def along_velocity(graph: Graph, X: np.ndarray, velocity: np.ndarray, confidence: np.ndarray | None) -> np.ndarray:
    """How far each step goes along the velocities at its two ends, in units of a typical step.

    Velocities and positions are means over a cell and its neighbours. Only the direction of a velocity counts. The mean
    direction is the shorter the less neighbours agree, so that where velocities are noise, steps have little direction.
    """
    speed: np.ndarray = np.linalg.norm(velocity, axis=1, keepdims=True)
    direction = np.divide(velocity, speed, out=np.zeros_like(velocity), where=speed > 0)
    weighted = direction if confidence is None else direction * confidence[:, None]
    average = averaging(graph)
    mean, place = average @ weighted, average @ X
    rows, columns = graph.rows, graph.affinity.indices
    found, squares = np.empty(len(rows)), 0.0
    for some in gen_batches(len(rows), _EDGES):
        start, end = rows[some], columns[some]
        step = place[end] - place[start]
        found[some] = 0.5 * np.einsum("ij,ij->i", step, mean[start] + mean[end])
        squares += float((np.einsum("ij,ij->i", step, direction[start]) ** 2).sum())
    n_moving = int((speed[rows] > 0).sum())
    typical = np.sqrt(squares / max(n_moving, 1))
    return found / typical if typical > 0 else found


def along_time(graph: Graph, stage: np.ndarray) -> np.ndarray:
    """Whether each step goes forward in time (1), back (-1) or neither.

    How far does not count: differences of times would be a potential, which leaves all paths alike. So the step that
    closes a cycle, from the last time point to the first, goes back no farther than others.
    """
    return np.sign(stage[graph.affinity.indices] - stage[graph.rows])


def upstream(graph: Graph, firm: sp.csr_matrix) -> tuple[list[int], float]:
    """The nodes that arrows lead away from, the most upstream first, and the share of the arrows that agree."""
    phi = potential(graph)
    share = 1.0 - float(np.mean(circulation(graph, phi) ** 2) / max(np.mean(graph.forward**2), np.finfo(float).tiny))
    peaks = lineages.find_peaks(-phi, firm, PathEnsemble.of(graph.undirected, 1.0).equalised(graph))
    return [_most_upstream(graph, phi), *peaks.nodes[np.argsort(phi[peaks.nodes], kind="stable")].tolist()], share


def _most_upstream(graph: Graph, phi: np.ndarray) -> int:
    """Where the mean over neighbours is least, as a single cell may be an outlier."""
    return int((averaging(graph) @ phi).argmin())


def upstream_again(graph: Graph, near: list[np.ndarray], n_resamples: int, seed: int) -> np.ndarray:
    """How often the most upstream node is among those near each candidate, with most of the nodes at random."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(len(near))
    for _ in range(n_resamples):
        # The part of the graph with the first candidate, which itself may be left out.
        nodes, part = lineages.resampled(graph, near[0][-1:], rng)
        first = nodes[_most_upstream(part, potential(part))]
        counts += [first in around for around in near]
    return counts / n_resamples
