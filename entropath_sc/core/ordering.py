"""Diffusion potentials from root cells, and the pseudotime made of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numba
import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra
from scipy.special import gammaln
from scipy.stats import rankdata, spearmanr
from sklearn.utils import gen_batches

from .diffusion import averaged, heat_kernel, matrix_power
from .hops import continue_by_hops, count_hops
from .parallel import exclusive
from .perron import perron_pair

POTENTIALS = ("symmetric", "normalised", "merw")
SCALINGS = ("minmax", "rank")

# In the geodesic regime the order is the same at both of these depths.
SHALLOW, DEEP = 4.0, 8.0

# Their rank agreement, averaged over neighbours: what disagrees then is not noise, but shape. From the upper one on the
# order is refined, below the lower one it is not, and in between in part.
CONSISTENCY = 0.9986, 0.9994

# Cells from which the others are seen, and how far they see, in standard deviations of the potential.
N_WAYPOINTS = 48
REACH = 1.4
# Rounds of averaging over neighbours after that.
ROUNDS = 8

# At a million cells, they take a gigabyte.
_WAYPOINTS_AT_A_TIME = 24

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
    weights = _series_weights(depths)
    total = np.zeros((len(depths), len(source)))
    term = source / source.sum()
    for at_depths in weights.T:
        total += at_depths[:, None] * term
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


def _series_weights(depths: np.ndarray) -> np.ndarray:
    """e^{-t} t^m/m! for each depth t and as many m as count."""
    m = np.arange(np.ceil(depths.max() + 10 * np.sqrt(depths.max()) + 30))
    return np.exp(-depths[:, None] + m * np.log(depths)[:, None] - gammaln(m + 1))


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


@dataclass(frozen=True)
class Potential:
    """Free energy of the paths from a set of nodes to each node, at a depth.

    ``agreement`` is that of the orders at two depths, from which the depth and the share of the refinement follow.
    """

    values: np.ndarray
    depth: float
    refined: float = 0.0
    agreement: float = np.nan


def potential_from(
    A: sp.csr_matrix,
    lambda_max: float,
    source: np.ndarray,
    *,
    kind: str = "symmetric",
    diffusion: str = "heat",
    depth: float | str = "auto",
    like: Potential | None = None,
) -> Potential:
    """-log of the path ensemble from ``source``, a non-negative weight on each node.

    ``symmetric`` reads it off the symmetric kernel S, and where the depth is searched for, refines it as far as the
    search says; ``merw`` reads it off the walk, T_rx = S_rx ψ_x/ψ_r, as the paper does; ``normalised`` is -2 log of the
    cosine S_rx/sqrt(S_rr S_xx), and forms S as a dense matrix. With ``like``, another's search is taken over.
    """
    if like is not None and isinstance(depth, str) and not like.refined:
        depth = like.depth
    if not isinstance(depth, str):
        return Potential(_plain(A, lambda_max, source, kind, diffusion, depth), depth)
    shallow, deep = -heat_from(A, lambda_max, source, np.array([SHALLOW, DEEP])).log_mass
    found = like or _searched(A, shallow, deep)
    if kind != "symmetric" or diffusion != "heat":
        return replace(found, values=_plain(A, lambda_max, source, kind, diffusion, found.depth), refined=0.0)
    values = shallow
    if found.refined:
        values = (1 - found.refined) * shallow + found.refined * refined(A, lambda_max, deep, DEEP)
    return replace(found, values=values)


def _searched(A: sp.csr_matrix, shallow: np.ndarray, deep: np.ndarray) -> Potential:
    """The depth, and how far its order is to be refined."""
    orders = [averaged(A, potential, 1) for potential in (shallow, deep)]
    agreement = float(spearmanr(*orders).statistic)
    share = float(np.clip(between(agreement, *CONSISTENCY), 0.0, 1.0)) if np.isfinite(agreement) else 0.0
    return Potential(shallow, DEEP if share >= 0.5 else SHALLOW, share, agreement)


def _plain(
    A: sp.csr_matrix, lambda_max: float, source: np.ndarray, kind: str, diffusion: str, depth: float
) -> np.ndarray:
    if kind == "normalised":
        return _normalised_from(A, lambda_max, source, diffusion, depth)
    return _walk_from(A, lambda_max, source, kind, diffusion, depth)


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


def refined(A: sp.csr_matrix, lambda_max: float, potential: np.ndarray, depth: float) -> np.ndarray:
    """The potential as other nodes see it, averaged over neighbours.

    The free energy of the paths from a root holds what sets the root, and each node, apart from their own neighbours,
    and paths that cut corners where branches part. Where the order survives a doubling of the depth, that is noise.
    Waypoints along the order see each node at their own potential, plus or minus the free energy between them, and the
    nearer ones count for more.
    """
    # In the order of the potential, neighbours are near each other in memory too, which is several times as fast.
    order = np.argsort(potential, kind="stable")
    A, potential = A[order][:, order], potential[order]
    total, seen = np.zeros(len(order)), np.zeros(len(order))
    waypoints = np.linspace(0, len(order) - 1, min(N_WAYPOINTS, len(order))).round().astype(int)
    for some in gen_batches(len(waypoints), _WAYPOINTS_AT_A_TIME):
        mass = _heat_from_each(A, lambda_max, waypoints[some], depth)
        apart = -np.log(np.maximum(mass, _SMALLEST))
        weights = np.where(mass > _SMALLEST, np.exp(-0.5 * (apart / (REACH * potential.std())) ** 2), 0.0)
        there = potential[waypoints[some]]
        total += weights.sum(axis=1)
        seen += (weights * (there + np.where(potential[:, None] < there, -apart, apart))).sum(axis=1)
    # A node that no waypoint sees stays where it is.
    seen = np.divide(seen, total, out=potential, where=total > 0)
    average = averaged(A, seen, ROUNDS)
    # Averaging draws in the ends of branches; the average of what it took off gives most of that back.
    values = np.empty_like(average)
    values[order] = average + averaged(A, seen - average, ROUNDS)
    return values


@exclusive
def _heat_from_each(A: sp.csr_matrix, lambda_max: float, nodes: np.ndarray, depth: float) -> np.ndarray:
    """e^{-t(I - A/λ)} from each of the given nodes to all (nodes × given ones)."""
    weights = _series_weights(np.array([depth]))[0]
    term, following = np.zeros((A.shape[0], len(nodes))), np.empty((A.shape[0], len(nodes)))
    term[nodes, np.arange(len(nodes))] = 1.0
    total = weights[0] * term
    steps = A.data / lambda_max
    for weight in weights[1:]:
        _add_term(A.indptr, A.indices, steps, term, following, weight, total)
        term, following = following, term
    return total


@numba.njit(parallel=True, fastmath=True, cache=True)
def _add_term(indptr, indices, data, term, following, weight, total):
    for i in numba.prange(term.shape[0]):
        row, sums = following[i], total[i]
        row[:] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            value, there = data[e], term[indices[e]]
            for c in range(row.shape[0]):
                row[c] += value * there[c]
        for c in range(row.shape[0]):
            sums[c] += weight * row[c]


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


def between(potential: np.ndarray | float, low: np.ndarray | float, high: np.ndarray | float) -> np.ndarray:
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
