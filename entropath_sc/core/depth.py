"""What is known about the depth: the paper's entropy knee, and how much other depths would change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.linalg import SuperLU, splu
from scipy.stats import rankdata

from .ensemble import PathEnsemble
from .graph import Graph
from .parallel import in_threads, on_one_blas_thread

# The deepest point of the entropy curve.
MAX_DEPTH = 150
# Depths that are compared with the chosen one, relative to it, and from how many nodes.
COMPARED = 10.0 ** np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
N_SOURCES = 16


@dataclass(frozen=True)
class Knee:
    """Entropy of the spectrum at depths 1..MAX_DEPTH, its knee, and where the knee lies on shorter curves."""

    entropy: np.ndarray
    depth: int
    depth_range: tuple[int, int]


def von_neumann_entropy(spectrum: np.ndarray, max_depth: int) -> np.ndarray:
    """Entropy of spectrum^t, normalised to sum to one, for t = 1..max_depth."""
    log_values = np.log(spectrum[spectrum > 0])
    entropy = np.empty(max_depth)
    for t in range(1, max_depth + 1):
        p = np.exp(t * (log_values - log_values.max()))
        p /= p.sum()
        p = p[p > 0]
        entropy[t - 1] = -(p * np.log(p)).sum()
    return entropy


def find_knee(curve: np.ndarray) -> int:
    """Index where two straight lines, fitted on either side and sharing that point, miss the curve least."""
    n = len(curve)
    if n < 4:
        return 0
    x = np.arange(n, dtype=np.float64)
    errors = np.full(n, np.inf)
    for i in range(1, n - 1):
        errors[i] = _line_error(x[: i + 1], curve[: i + 1]) + _line_error(x[i:], curve[i:])
    return int(errors.argmin())


def _line_error(x: np.ndarray, y: np.ndarray) -> float:
    dx, dy = x - x.mean(), y - y.mean()
    slope = (dx @ dy) / (dx @ dx)
    return float(np.abs(dy - slope * dx).sum())


def entropy_knee(spectrum: np.ndarray) -> Knee:
    """The paper's depth: the knee of the von Neumann entropy of the powers of a walk, from its singular values."""
    entropy = von_neumann_entropy(spectrum, MAX_DEPTH)
    cuts = np.unique(np.linspace(MAX_DEPTH / 2, MAX_DEPTH, 6).astype(int))
    knees = [find_knee(entropy[:cut]) + 1 for cut in cuts]
    return Knee(entropy, knees[-1], (min(knees), max(knees)))


@on_one_blas_thread
def eigenvalues(symmetric: np.ndarray) -> np.ndarray:
    """All eigenvalues of a symmetric matrix, which is overwritten: transposed, as LAPACK would copy it otherwise."""
    return scipy.linalg.eigvalsh(symmetric.T, overwrite_a=True, check_finite=False, driver="evr")


def agreement(graph: Graph, depth: float) -> tuple[np.ndarray, np.ndarray]:
    """Depths around the chosen one, and how alike they rank all nodes as seen from some: the mean rank correlation."""
    n = graph.n_nodes
    sources = np.unique(np.linspace(0, n - 1, min(N_SOURCES, n)).astype(int))
    # The order of elimination takes most of the time, and depends only on which nodes are joined.
    order = np.argsort(_factors(_system(graph, depth), "MMD_AT_PLUS_A").perm_c)
    ends = (order[:, None] == sources).astype(np.float64)

    def ranks(tau: float) -> np.ndarray:
        """All nodes ranked by the weights of their paths to each source, as columns."""
        return rankdata(_factors(_system(graph, tau)[order][:, order], "NATURAL").solve(ends), axis=0)

    depths = depth * COMPARED
    found = in_threads(ranks, depths.tolist())
    chosen = found[len(found) // 2]
    return depths, np.array([np.mean([_correlation(a, b) for a, b in zip(r.T, chosen.T, strict=True)]) for r in found])


def _system(graph: Graph, depth: float) -> sp.csr_array:
    return sp.csr_array(sp.eye_array(graph.n_nodes) - PathEnsemble.of(graph, depth).normalised)


def _factors(system: sp.csr_array, order: str) -> SuperLU:
    return splu(system.tocsc(), permc_spec=order, options={"SymmetricMode": True})


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) and np.ptp(b) else 1.0
