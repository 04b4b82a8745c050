"""Positive solutions of f = N f, given on a part of the nodes, that span more than the range of floats."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

from .parallel import on_one_blas_thread

# Conjugate gradients are accurate relative to the largest entry: entries above this fraction of it are kept, and the
# rest is solved again with them as its boundary.
TRUST = 1e-6
RESIDUAL = 1e-13
MOST_STEPS = 20_000


@on_one_blas_thread
def solve_in_stages(
    N: sp.csr_matrix, log_f: np.ndarray, among: np.ndarray | None = None, enough: int | None = None
) -> np.ndarray:
    """log f with f = N f where ``log_f`` is -inf, and as given elsewhere.

    N is symmetric and non-negative, the graph connected, and I - N positive definite where f is unknown. With ``among``
    it ends as soon as the ``enough`` largest of these nodes are known; the others stay -inf.
    """
    log_f = log_f.copy()
    known = np.isfinite(log_f)
    while not known.all() if among is None else np.count_nonzero(known[among]) < enough:
        unknown = np.flatnonzero(~known)
        rows = N[unknown]
        inflow, inner = rows[:, known], rows[:, unknown]
        boundary = log_f[known]
        shift = boundary[np.unique(inflow.indices)].max()
        b = inflow @ np.exp(np.minimum(boundary - shift, 0.0))
        shift, b = shift + np.log(b.max()), b / b.max()
        system = LinearOperator(inner.shape, matvec=lambda v, M=inner: v - M @ v, dtype=np.float64)
        f, _ = cg(system, b, rtol=RESIDUAL, maxiter=MOST_STEPS)
        kept = f > TRUST * f.max()
        log_f[unknown[kept]] = np.log(f[kept]) + shift
        known[unknown[kept]] = True
    return log_f


@on_one_blas_thread
def sum_in_stages(P: sp.csr_matrix, cost: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log f with f = P f outside the targets and 1 on them, and the mean cost of the paths that f adds up.

    Rows of P sum to less than one, so that its series converges; P need not be symmetric, which conjugate gradients
    need. ``cost`` goes with the stored values of P.
    """
    costly = sp.csr_matrix((P.data * cost, P.indices, P.indptr), shape=P.shape)
    log_f, mean = np.full(P.shape[0], -np.inf), np.zeros(P.shape[0])
    log_f[targets] = 0.0
    known = np.isfinite(log_f)
    while not known.all():
        unknown = np.flatnonzero(~known)
        rows, costly_rows = P[unknown], costly[unknown]
        inflow, inner, costly_inner = rows[:, known], rows[:, unknown], costly_rows[:, unknown]
        shift = log_f[known][np.unique(inflow.indices)].max()
        f = np.exp(np.minimum(log_f[known] - shift, 0.0))
        term, h_term = inflow @ f, inflow @ (f * mean[known]) + costly_rows[:, known] @ f
        scale = term.max()
        shift, term, h_term = shift + np.log(scale), term / scale, h_term / scale
        f, h = term.copy(), h_term.copy()
        while term.max() > RESIDUAL * f.max():
            term, h_term = inner @ term, inner @ h_term + costly_inner @ term
            f += term
            h += h_term
        kept = f > TRUST * f.max()
        log_f[unknown[kept]] = np.log(f[kept]) + shift
        mean[unknown[kept]] = h[kept] / f[kept]
        known[unknown[kept]] = True
    return log_f, mean
