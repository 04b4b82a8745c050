"""The whole path from an affinity among landmarks (or all cells) to their coordinates."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra

from . import diffusion as diffusing
from . import mds as scaling
from .depth import DEEPEST, N_DOUBLINGS, ConsistencyWalk, Knee, entropy_knee
from .perron import perron_pair, transition_matrix
from .progress import Report, silent

DEPTH_RULES = ("auto", "knee")


@dataclass(frozen=True)
class Diffused:
    """A diffusion kernel among the nodes of a graph, at a depth, with the diagnostics that chose it."""

    kernel: np.ndarray
    lambda_max: float
    depth: float
    knee: Knee
    times: np.ndarray
    agreement: np.ndarray
    consistent: float | None


@dataclass(frozen=True)
class Embedded:
    """Coordinates of the nodes of a graph, with how they came about."""

    coordinates: np.ndarray
    diffused: Diffused
    layout: scaling.Layout | None


def diffuse(
    A: sp.csr_matrix, *, depth: float | str, max_depth: int, diffusion: str, report: Report = silent
) -> Diffused:
    """The kernel of a connected affinity at a depth, or at the depth that a rule finds.

    ``knee`` is the paper's rule. ``auto`` is the last doubling of the time, up to 7, at which the dissimilarity still
    ranks the pairs as it did at half the time; for the power, which has no such doublings, it is the knee.
    """
    perron = perron_pair(A)
    knee = entropy_knee(transition_matrix(A, perron.log_psi), max_depth)
    rescaled = A / perron.lambda_max
    if diffusion == "power":
        depth = int(knee.depth if isinstance(depth, str) else depth)
        kernel = diffusing.matrix_power(rescaled.toarray(), depth)
        return Diffused(kernel, perron.lambda_max, depth, knee, np.empty(0), np.empty(0), None)

    # Nearly all pairs are within the eccentricity of any one node, and all within twice that, which two steps reach.
    reach = int(dijkstra(A, unweighted=True, indices=0).max())
    walk = ConsistencyWalk(A.shape[0])
    first = DEEPEST / 2**N_DOUBLINGS
    n_times = 1 + min(N_DOUBLINGS, int(np.log2(max_depth / first)))
    chosen, consistent = None, 0.0
    for time, kernel in itertools.islice(diffusing.heat_doublings(rescaled, first, reach=reach), n_times):
        report("diffusion", len(walk.times) + 1, n_times)
        if not walk.keeps(time, kernel):
            break
        chosen, consistent = kernel, time
    at = consistent
    if depth != "auto":
        at = float(knee.depth if depth == "knee" else depth)
        chosen = diffusing.heat_kernel(rescaled, at, reach=reach)
    return Diffused(chosen, perron.lambda_max, at, knee, np.array(walk.times), np.array(walk.agreement), consistent)


def dissimilarities(A: sp.csr_matrix, kernel: np.ndarray, *, diffusion: str, dissimilarity: str) -> np.ndarray:
    """Free energies of the paths between the nodes of a graph, from its kernel, in the form that is scaled."""
    floor = diffusing.POWER_FLOOR if diffusion == "power" else diffusing.HEAT_FLOOR
    D = diffusing.free_energy(kernel, dissimilarity=dissimilarity, floor=floor)
    return diffusing.shared(D, A) if dissimilarity == "averaged" else D


def embed(
    A: sp.csr_matrix,
    *,
    n_components: int = 2,
    depth: float | str = "auto",
    max_depth: int = 150,
    diffusion: str = "heat",
    dissimilarity: str = "averaged",
    mds: str = "metric",
    report: Report = silent,
) -> Embedded:
    """Perron pair, depth, free energies and their scaling, for a connected affinity."""
    diffused = diffuse(A, depth=depth, max_depth=max_depth, diffusion=diffusion, report=report)
    D = dissimilarities(A, diffused.kernel, diffusion=diffusion, dissimilarity=dissimilarity)
    coordinates, layout = scaling.classical(D, n_components), None
    if mds == "metric":
        layout = scaling.smacof(D, coordinates, report=report)
        coordinates = layout.coordinates
    return Embedded(coordinates, diffused, layout)
