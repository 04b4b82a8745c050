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
from .perron import largest_eigenvalue, perron_pair
from .refinement import by_length, cleaned, twiced
from .sparse import averaged, times

POTENTIALS = ("symmetric", "normalised", "merw")
SCALINGS = ("minmax", "rank")

# In the geodesic regime the order is the same at both of these depths. The plain one is at the first, the refined one
# at the second. Of fewer nodes than so many, heat soon reaches all: there the first is less, in proportion.
SHALLOW, DEEP = 4.0, 8.0
MANY_NODES = 2000
# Fewer means of cells are too few to average over: the order stays plain.
FEWEST_MEANS = 100

# How many digits of their rank agreement, averaged over neighbours, are nines, and the share that is refined for it.
NINES = 1.8, 2.3, 3.0, 3.7
SHARES = 0.0, 0.6, 0.6, 1.0
# The rank agreement of the plain order with its own average over neighbours: below the second number what sets cells
# apart is mostly noise, and the order is refined too, below the first in full.
SMOOTHNESS = 0.935, 0.965

# A single root has noise of its own: this share of the plain order is as the cells nearest to it see it, so many of
# them, and at most one in so many of all.
WITNESSED = 0.25
N_WITNESSES = 30
CELLS_PER_WITNESS = 50

# Rounds of averaging over neighbours in the refined order.
ROUNDS = 8

# Smaller values are near the end of the float range, where sums lose digits: the leading term replaces them.
_SMALLEST = 1e-280


def heat_from(A: sp.csr_matrix | np.ndarray, lambda_max: float, sources: np.ndarray, depth: float) -> np.ndarray:
    """log of e^{-depth (I - A/λ)} applied to a non-negative source, or to each row of several.

    The series has positive terms only, so each entry is accurate relative to itself. Cells so far away that the series
    underflows get its leading term, hop by hop, in logarithms.
    """
    rows = np.atleast_2d(sources)
    term = (rows / rows.sum(axis=1, keepdims=True)).T
    total = np.zeros_like(term)
    for weight in _series_weights(depth):
        total += weight * term
        term = times(A, term) / lambda_max
    with np.errstate(divide="ignore"):
        log_mass = np.where(total > _SMALLEST, np.log(total), -np.inf).T
    for source, found in zip(rows, log_mass, strict=True):
        if not np.isfinite(found).all():
            # At h hops the series begins with its h-th term: t/h times that of the hop before.
            hops = count_hops(sp.csr_matrix(A), source > 0)
            continue_by_hops(sp.csr_matrix(A), lambda_max, hops, found, lambda h: np.log(depth / h))
    return log_mass.reshape(sources.shape)


def _series_weights(depth: float) -> np.ndarray:
    """e^{-t} t^m/m! for a depth t and as many m as count."""
    m = np.arange(np.ceil(depth + 10 * np.sqrt(depth) + 30))
    return np.exp(-depth + m * np.log(depth) - gammaln(m + 1))


def power_from(A: sp.csr_matrix | np.ndarray, lambda_max: float, source: np.ndarray, depth: float) -> np.ndarray:
    """log of (A/λ)^depth applied to ``source``; cells beyond ``depth`` steps follow at their first arrival."""
    term = source / source.sum()
    for _ in range(int(depth)):
        term = A @ term / lambda_max
    with np.errstate(divide="ignore"):
        log_mass = np.log(term)
    reached = np.isfinite(log_mass)
    if not reached.all():
        log_mass[~reached] = np.log(_SMALLEST) - count_hops(sp.csr_matrix(A), reached)[~reached]
    return log_mass


@dataclass(frozen=True)
class Potential:
    """Free energy of the paths from a set of nodes to each node, at a depth.

    ``agreement`` is that of the orders at two depths, and ``smoothness`` that of the order with its average over
    neighbours, where the share that is ``refined`` follows from them.
    """

    values: np.ndarray
    depth: float
    refined: float = 0.0
    agreement: float = np.nan
    smoothness: float = np.nan


def potential_from(
    A: sp.csr_matrix,
    lambda_max: float,
    source: np.ndarray,
    *,
    X: np.ndarray | None = None,
    kind: str = "symmetric",
    diffusion: str = "heat",
    depth: float | str = "auto",
    refine: float | str = "auto",
    means: bool = False,
    like: Potential | None = None,
) -> Potential:
    """-log of the path ensemble from ``source``, a non-negative weight on each node.

    ``symmetric`` reads it off the symmetric kernel S; ``merw`` reads it off the walk, T_rx = S_rx ψ_x/ψ_r, as the paper
    does; ``normalised`` is -2 log of the cosine S_rx/sqrt(S_rr S_xx), and forms S as a dense matrix. With positions
    ``X``, the symmetric heat kernel is also seen from the nodes nearest to a single root, and can be refined:
    ``refine`` is the share of the refined order, which by itself follows from how the plain one agrees with that at
    twice the depth and with its own mean over neighbours, and is zero at a given depth. With ``means``, nodes are means
    of many cells. With ``like``, another's share is taken over.
    """
    at = depth if not isinstance(depth, str) else _plain_depth(A, source, diffusion)
    is_plain = kind == "symmetric" and diffusion == "heat"
    witnesses = _witnesses(X, source) if is_plain and X is not None and not means else np.empty((0, len(source)))

    def at_depth(depth: float) -> np.ndarray:
        seen = _plain(A, lambda_max, source, kind, diffusion, depth)
        if not len(witnesses):
            return seen
        return (1 - WITNESSED) * seen - WITNESSED * heat_from(A, lambda_max, witnesses, depth).mean(axis=0)

    values = at_depth(at)
    share, agreement, smoothness = 0.0 if isinstance(refine, str) else refine, np.nan, np.nan
    if X is None or not is_plain:
        share = 0.0
    elif like is not None:
        share, agreement, smoothness = like.refined, like.agreement, like.smoothness
    elif isinstance(depth, str) and isinstance(refine, str):
        smooth, deeper = averaged(A, values), averaged(A, at_depth(2 * at))
        agreement, smoothness = (float(spearmanr(smooth, other).statistic) for other in (deeper, values))
        share = _share(agreement, smoothness) if not means or A.shape[0] >= FEWEST_MEANS else 0.0
    if share:
        finer = _refined(A, X, source, values, means)
        # A length has other units than a free energy: it takes over the mean and the spread of the plain order.
        finer = values.mean() + (finer - finer.mean()) * (values.std() / (finer.std() or 1.0))
        values = (1 - share) * values + share * finer
    return Potential(values, at, share, agreement, smoothness)


def _share(agreement: float, smoothness: float) -> float:
    """How much of the refined order to take: the more, the clearer the order is, and where it is mostly noise."""
    if not np.isfinite(agreement + smoothness):  # all nodes are in one place
        return 0.0
    nines = -np.log10(max(1.0 - agreement, 1e-16))
    return max(float(np.interp(nines, NINES, SHARES)), float(np.interp(smoothness, SMOOTHNESS, (1.0, 0.0))))


def _witnesses(X: np.ndarray, source: np.ndarray) -> np.ndarray:
    """A source at each of the nodes nearest to a single root, as rows; none for several, which have less noise."""
    roots = np.flatnonzero(source)
    n_witnesses = min(N_WITNESSES, len(X) // CELLS_PER_WITNESS) if len(roots) == 1 else 0
    others = np.flatnonzero(source == 0)
    nearest = others[np.argsort(np.linalg.norm(X[others] - X[roots[0]], axis=1), kind="stable")[:n_witnesses]]
    sources = np.zeros((n_witnesses, len(X)))
    sources[np.arange(n_witnesses), nearest] = 1.0
    return sources


def _plain_depth(A: sp.csr_matrix, source: np.ndarray, diffusion: str) -> float:
    """The depth of the plain order; as a number of steps, at least as many as lead to the last node."""
    if diffusion == "heat":
        return SHALLOW * min(A.shape[0] / MANY_NODES, 1.0)
    return max(SHALLOW, float(count_hops(sp.csr_matrix(A), source > 0).max()))


def _refined(A: sp.csr_matrix, X: np.ndarray, source: np.ndarray, potential: np.ndarray, means: bool) -> np.ndarray:
    """The order on a cleaner graph, averaged over neighbours, with length as its clock.

    The free energy of the paths from a root holds what sets the root, and each node, apart from their own neighbours,
    and it counts steps: a branch of few cells seems shorter than it is.
    """
    # In the order of the plain potential, neighbours are near each other in memory too, which is faster.
    order = np.argsort(potential, kind="stable")
    graph, kept = cleaned(A[order][:, order], X[order], means=means)
    potential = -heat_from(graph, largest_eigenvalue(graph), source[order], DEEP)
    values = np.empty_like(potential)
    values[order] = by_length(graph, kept, twiced(graph, potential, ROUNDS))
    return values


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
    return -spread(A, lambda_max, weighted, depth) - log_psi


def _normalised_from(
    A: sp.csr_matrix, lambda_max: float, source: np.ndarray, diffusion: str, depth: float
) -> np.ndarray:
    rescaled = A / lambda_max
    if diffusion == "power":
        kernel = matrix_power(rescaled.toarray(), int(depth))
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


def terminal_corrected(pseudotime: np.ndarray, towards_terminal: np.ndarray, *, published: bool = False) -> np.ndarray:
    """Cells pulled towards terminal ones: the order, or the share τ/(τ + d_term) where that is later.

    The share is 0 at roots and 1 at terminals. Alone, as ``published``, it turns branches without a terminal cell
    around, as their cells are ever farther from one.
    """
    total = pseudotime + towards_terminal
    share = np.divide(pseudotime, total, out=np.zeros_like(total), where=total > 0)
    return share if published else np.maximum(pseudotime, share)
