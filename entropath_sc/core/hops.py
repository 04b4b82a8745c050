"""Values that fall off with the number of hops, continued in logarithms where floats end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp


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


def continue_by_hops(
    A: sp.csr_matrix,
    lambda_max: float,
    hops: np.ndarray,
    log_values: np.ndarray,
    log_gain: Callable[[int], float],
) -> None:
    """Fill the -inf entries of ``log_values`` in place, nearest first.

    An entry h hops away becomes its leading term: the sum of A/λ times the entries one hop nearer, times a gain.
    """
    log_data = np.log(A.data / lambda_max)
    for h in range(1, int(hops.max()) + 1):
        nodes = np.flatnonzero((hops == h) & ~np.isfinite(log_values))
        if not len(nodes):
            continue
        edges = np.concatenate([np.arange(A.indptr[node], A.indptr[node + 1]) for node in nodes])
        target = np.repeat(np.arange(len(nodes)), np.diff(A.indptr)[nodes])
        nearer = hops[A.indices[edges]] == h - 1
        edges, first = edges[nearer], np.searchsorted(target[nearer], np.arange(len(nodes)))
        arriving = log_data[edges] + log_values[A.indices[edges]]
        log_values[nodes] = np.logaddexp.reduceat(arriving, first) + log_gain(h)
