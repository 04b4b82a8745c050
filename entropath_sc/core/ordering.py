"""Diffusion potentials from root cells, and the pseudotime made of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra
from scipy.special import gammaln
from scipy.stats import rankdata, spearmanr

from .diffusion import heat_kernel, matrix_power
from .hops import continue_by_hops, count_hops
from .perron import perron_pair

POTENTIALS = ("symmetric", "normalised", "merw")
SCALINGS = ("minmax", "rank")

# Doublings of the diffusion time among which the ordering depth is chosen. The first is enough on all data that were
# looked at: an order needs less depth than an embedding.
CANDIDATE_DEPTHS = 2.0 ** np.arange(2, 7)

# In the geodesic regime D(t/2) and D(t) rank the cells alike; the last doubling that still does is the depth.
CONSISTENCY = 0.9985

# Rounds of averaging over neighbours for each such doubling.
ROUNDS = 4

# Smaller values are near the end of the float range, where sums lose digits: the leading term replaces them.
_SMALLEST = 1e-280


@dataclass(frozen=True)
class RootEnsemble:
    """Log of the path ensemble seen from the roots at each depth (depths × cells)."""

    depths: np.ndarray
    log_mass: np.ndarray


def heat_from(
    A: sp.csr_matrix | np.ndarray, lambda_max: float, source: np.ndarray, depths: np.ndarray | float
) -> RootEnsemble:
    """log of e^{-t(I - A/λ)} applied to a non-negative ``source``, for all depths t in one pass.

    The series has positive terms only, so each entry is accurate relative to itself. Cells so far away that the series
    underflows get its leading term, hop by hop, in logarithms.
    """
    depths = np.atleast_1d(np.asarray(depths, dtype=np.float64))
    n_terms = int(np.ceil(depths.max() + 10 * np.sqrt(depths.max()) + 30))
    log_weights = -depths[:, None] + np.arange(n_terms) * np.log(depths)[:, None] - gammaln(np.arange(n_terms) + 1)
    total = np.zeros((len(depths), len(source)))
    term = source / source.sum()
    for m in range(n_terms):
        total += np.exp(log_weights[:, m])[:, None] * term
        term = A @ term
        term /= lambda_max
    with np.errstate(divide="ignore"):
        log_mass = np.where(total > _SMALLEST, np.log(total), -np.inf)
    if not np.isfinite(log_mass).all():
        # At h hops the series begins with its h-th term: t/h times that of the hop before.
        A = sp.csr_matrix(A)
        hops = count_hops(A, source > 0)
        continue_by_hops(A, lambda_max, hops, log_mass, lambda h: np.log(depths / h)[:, None])
    return RootEnsemble(depths, log_mass)


def power_from(A: sp.csr_matrix | np.ndarray, lambda_max: float, source: np.ndarray, depth: float) -> RootEnsemble:
    """log of (A/λ)^depth applied to ``source``; cells beyond ``depth`` steps follow at their first arrival."""
    term = source / source.sum()
    for _ in range(int(depth)):
        term = A @ term / lambda_max
    with np.errstate(divide="ignore"):
        log_mass = np.log(term)
    reached = np.isfinite(log_mass)
    if not reached.all():
        log_mass[~reached] = np.log(_SMALLEST) - count_hops(sp.csr_matrix(A), reached)[~reached]
    return RootEnsemble(np.array([float(depth)]), log_mass[None, :])


def consistent_depth(ensemble: RootEnsemble, threshold: float = CONSISTENCY) -> tuple[int, np.ndarray]:
    """Index of the last depth up to which each doubling keeps the order of the cells, and the agreements."""
    agreement = np.array(
        [spearmanr(a, b).statistic for a, b in zip(ensemble.log_mass[:-1], ensemble.log_mass[1:], strict=True)]
    )
    kept = np.flatnonzero(~(agreement >= threshold))
    return int(kept[0]) if len(kept) else len(agreement), agreement


@dataclass(frozen=True)
class Potential:
    """Free energy of the paths from a set of nodes to each node, at a depth, with the search for that depth."""

    values: np.ndarray
    depth: float
    times: np.ndarray
    agreement: np.ndarray


def potential_from(
    A: sp.csr_matrix,
    lambda_max: float,
    source: np.ndarray,
    *,
    kind: str = "symmetric",
    diffusion: str = "heat",
    depth: float | str = "auto",
) -> Potential:
    """-log of the path ensemble from ``source``, a non-negative weight on each node.

    ``symmetric`` reads it off the symmetric kernel S, and averages it over neighbours four times for each doubling of
    the depth beyond the first; ``merw`` reads it off the walk, T_rx = S_rx ψ_x/ψ_r, as the paper does; ``normalised``
    is -2 log of the cosine S_rx/sqrt(S_rr S_xx), and forms S as a dense matrix.
    """
    times: np.ndarray = np.empty(0)
    agreement: np.ndarray = np.empty(0)
    log_mass = None
    if isinstance(depth, str):
        ensemble = heat_from(A, lambda_max, source, CANDIDATE_DEPTHS)
        chosen, agreement = consistent_depth(ensemble)
        times, depth, log_mass = CANDIDATE_DEPTHS[1:], float(CANDIDATE_DEPTHS[chosen]), ensemble.log_mass[chosen]
    if kind == "normalised":
        values = _normalised_from(A, lambda_max, source, diffusion, depth)
    elif kind == "symmetric" and diffusion == "heat":
        if log_mass is None:
            log_mass = heat_from(A, lambda_max, source, depth).log_mass[0]
        values = _averaged(A, -log_mass, depth)
    else:
        values = _walk_from(A, lambda_max, source, kind, diffusion, depth)
    return Potential(values, depth, times, agreement)


def _walk_from(
    A: sp.csr_matrix, lambda_max: float, source: np.ndarray, kind: str, diffusion: str, depth: float
) -> np.ndarray:
    log_psi = perron_pair(A).log_psi if kind == "merw" else np.zeros(A.shape[0])
    # The walk divides by ψ at the root; relative to the largest such weight nothing overflows.
    inside = source > 0
    weighted = np.zeros(A.shape[0])
    weighted[inside] = source[inside] * np.exp(log_psi[inside].min() - log_psi[inside])
    spread = heat_from if diffusion == "heat" else power_from
    return -spread(A, lambda_max, weighted, depth).log_mass[0] - log_psi


def _averaged(A: sp.csr_matrix, potential: np.ndarray, depth: float) -> np.ndarray:
    """The mean over each node and its neighbours, in rounds for each doubling of the depth beyond the first candidate.

    The free energy of reaching a node holds what sets it apart from its own neighbours, which is mostly noise. Where
    the order survives a doubling of the depth, it is coarser than that, and averaging takes the noise off.
    """
    degree = np.asarray(A.sum(axis=1)).ravel() + 1.0
    for _ in range(ROUNDS * int(np.log2(max(depth / CANDIDATE_DEPTHS[0], 1.0)))):
        potential = (A @ potential + potential) / degree
    return potential


def _normalised_from(
    A: sp.csr_matrix, lambda_max: float, source: np.ndarray, diffusion: str, depth: float
) -> np.ndarray:
    rescaled = A.toarray() / lambda_max
    if diffusion == "power":
        kernel = matrix_power(rescaled, int(depth))
    else:
        kernel = heat_kernel(rescaled, depth, reach=2 * int(dijkstra(A, unweighted=True, indices=0).max()))
    own = np.sqrt(np.maximum(np.diag(kernel), _SMALLEST))
    roots = source / source.sum() / own
    return -2.0 * np.log(np.maximum((roots @ kernel) / own, _SMALLEST))


def anchored(potential: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """The potential with the roots at its minimum: a cell is at no distance from itself (the paper's D_ii = 0)."""
    potential = potential.copy()
    potential[roots] = potential.min()
    return potential


def between(potential: np.ndarray, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
    """Linearly from [low, high] to [0, 1]; all zero where there is nothing between them."""
    return (potential - low) / np.where(high > low, np.subtract(high, low), np.inf)


def scaled(potential: np.ndarray, scaling: str = "minmax") -> np.ndarray:
    """To [0, 1], linearly or by rank."""
    if scaling == "rank":
        return (rankdata(potential, method="min") - 1) / max(len(potential) - 1, 1)
    return between(potential, potential.min(), potential.max())


def terminal_share(pseudotime: np.ndarray, towards_terminal: np.ndarray) -> np.ndarray:
    """The paper's τ/(τ + d_term): 0 at roots, 1 at terminals."""
    total = pseudotime + towards_terminal
    return np.divide(pseudotime, total, out=np.zeros_like(total), where=total > 0)


def terminal_corrected(pseudotime: np.ndarray, towards_terminal: np.ndarray) -> np.ndarray:
    """The share, rescaled to [0, 1]: pulls late cells towards the terminal ones."""
    return scaled(terminal_share(pseudotime, towards_terminal))
