"""The method as published: powers of the maximum entropy random walk at the knee of its entropy.

Only ``preset='paper'`` and, in continuous time, ``preset='heat'`` need this module.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.special import factorial, gammaln, softmax

from .depth import Knee, eigenvalues, entropy_knee
from .ensemble import LARGEST_COST
from .graph import Graph
from .perron import PerronPair, directed_perron_pair, log_stationary, perron_pair, transition_matrix

# The paper's floor: what a pair that no k-step path joins is given instead of zero.
POWER_FLOOR = 1e-21
# A heat kernel joins all pairs; this catches those beyond the range of floats.
HEAT_FLOOR = 1e-300
# The heat kernel is squared up from a short time, where its series to this degree has a relative error of 1e-10.
SHORT_TIME = 2.0**-3
SERIES_DEGREE = 6


def singular_values(T: sp.csr_matrix) -> np.ndarray:
    """Singular values of T, from the eigenvalues of T Tᵀ; those below 1e-8 are lost, as they are in the entropy."""
    return np.sqrt(np.maximum(eigenvalues((T @ T.T).toarray())[::-1], 0.0))


def matrix_power(A: np.ndarray, depth: int) -> np.ndarray:
    """A^depth by repeated squaring; sums and products of non-negative numbers stay accurate entry by entry."""
    power, square = None, A
    while True:
        if depth & 1:
            power = square if power is None else power @ square
        depth >>= 1
        if not depth:
            return power
        square = square @ square


def heat_kernel(A: np.ndarray, time: float) -> np.ndarray:
    """e^{-time (I - A)}, by squaring a short-time series of non-negative terms, often enough to join all pairs."""
    hops = int(count_hops(sp.csr_matrix(A), np.arange(len(A)) == 0).max())
    doublings = max(0, int(np.ceil(np.log2(max(time / SHORT_TIME, 2 * hops / SERIES_DEGREE, 1.0)))))
    short = time / 2.0**doublings
    orders = np.arange(SERIES_DEGREE + 1)
    terms = np.exp(-short) * short**orders / factorial(orders)
    kernel = np.zeros_like(A)
    for term in terms[::-1]:
        kernel = A @ kernel
        kernel.flat[:: len(A) + 1] += term
    return matrix_power(kernel, 2**doublings)


def affinity_of(graph: Graph) -> sp.csr_matrix:
    """The affinity that the walk runs on: a step against the arrows of a directed graph has less."""
    A = graph.affinity
    if graph.forward is None:
        return A
    against = np.minimum(np.maximum(-graph.forward, 0.0), LARGEST_COST)
    return sp.csr_matrix((A.data * np.exp(-against), A.indices, A.indptr), shape=A.shape)


def perron_of(graph: Graph) -> PerronPair:
    """The Perron pair of a graph; the right one where it is directed."""
    return (perron_pair if graph.forward is None else directed_perron_pair)(affinity_of(graph))


def stationary(graph: Graph, perron: PerronPair) -> np.ndarray:
    """The stationary mass of each node: the product of the left and the right Perron vector."""
    if graph.forward is None:
        return np.exp(log_stationary(graph.affinity, perron.log_psi))
    left = directed_perron_pair(affinity_of(graph).T.tocsr())
    return softmax(left.log_psi + perron.log_psi)


def walk_of(graph: Graph) -> tuple[PerronPair, Knee]:
    """The Perron pair of a graph, and the knee of its walk."""
    perron = perron_of(graph)
    return perron, entropy_knee(singular_values(transition_matrix(affinity_of(graph), perron.log_psi)))


def free_energies(graph: Graph, perron: PerronPair, depth: float, *, heat: bool) -> np.ndarray:
    """-log of the symmetric kernel between all nodes, with a zero diagonal.

    The kernel is sqrt(T^k_ij T^k_ji), in which ψ cancels: without arrows, a power of the affinity itself.
    """
    rescaled = affinity_of(graph).toarray() / perron.lambda_max
    kernel = heat_kernel(rescaled, depth) if heat else matrix_power(rescaled, int(depth))
    if graph.forward is not None:
        kernel = np.sqrt(kernel) * np.sqrt(kernel.T)
    # Rounding, and odd powers (which are not positive semidefinite), can leave a pair slightly below zero.
    D = np.maximum(-np.log(np.maximum(kernel, HEAT_FLOOR if heat else POWER_FLOOR)), 0.0)
    np.fill_diagonal(D, 0.0)
    return D


def potential(graph: Graph, perron: PerronPair, sources: np.ndarray, depth: float, *, heat: bool) -> np.ndarray:
    """-log Σ_r T^k_rx, up to a constant, from a non-negative weight on each node r; T^k_rx = S_rx ψ_x/ψ_r.

    Nodes that no path of k steps reaches follow hop by hop.
    """
    A, log_psi = affinity_of(graph).T.tocsr(), perron.log_psi
    # The walk divides by ψ at the root; relative to the largest such weight nothing overflows.
    inside = sources > 0
    term = np.zeros(graph.n_nodes)
    term[inside] = sources[inside] * np.exp(log_psi[inside].min() - log_psi[inside])
    term /= term.sum()
    steps = _series_weights(depth) if heat else np.arange(int(depth) + 1) == int(depth)
    total = np.zeros_like(term)
    for weight in steps:
        total += weight * term
        term = A @ term / perron.lambda_max
    with np.errstate(divide="ignore"):
        log_mass = np.log(total)
    reached = np.isfinite(log_mass)
    if not reached.all():
        log_mass[~reached] = np.log(1e-280) - count_hops(A, reached)[~reached]
    return -log_mass - log_psi


def _series_weights(time: float) -> np.ndarray:
    """e^{-t} t^m/m! for a time t and as many m as count."""
    m = np.arange(np.ceil(time + 10 * np.sqrt(time) + 30))
    return np.exp(-time + m * np.log(time) - gammaln(m + 1))


def count_hops(A: sp.csr_matrix, start: np.ndarray) -> np.ndarray:
    """Hops of each node of a connected graph from the nearest one where ``start`` is true."""
    hops = np.where(start, 0, -1)
    h = 0
    while (hops < 0).any():
        reached = (A @ (hops == h).astype(np.float64) > 0) & (hops < 0)
        if not reached.any():
            raise ValueError("The graph is not connected.")
        h += 1
        hops[reached] = h
    return hops
