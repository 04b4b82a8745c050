"""Positive solutions of f = N f, given on a part of the nodes, that span more than the range of floats."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, bicgstab, cg

from .parallel import on_one_blas_thread
from .sparse import submatrix

# Conjugate gradients are accurate relative to the largest entry: entries above this fraction of it are kept, and the
# rest is solved again with them as its boundary.
TRUST = 1e-6
RESIDUAL = 1e-14
MOST_STEPS = 20_000
NOT_FINITE = "The weights of paths cannot be computed: the graph has weights that are not finite."


@on_one_blas_thread
def solve_in_stages(N: sp.csr_matrix, log_f: np.ndarray) -> np.ndarray:
    """log f with f = N f where ``log_f`` is -inf, and as given elsewhere.

    N is symmetric and non-negative, the graph connected, and I - N positive definite where f is unknown.
    """
    log_f = log_f.copy()
    unknown = np.isneginf(log_f)
    guess, guess_shift = np.zeros_like(log_f), 0.0
    while unknown.any():
        rows = np.flatnonzero(unknown)
        # The known nodes next to unknown ones are the boundary.
        edge = np.where((N @ unknown.astype(np.float64) > 0) & ~unknown, log_f, -np.inf)
        shift = edge.max()
        b = (N @ np.exp(edge - shift))[rows]
        shift, b = shift + np.log(b.max()), b / b.max()
        inner = submatrix(N, rows)
        system = LinearOperator(inner.shape, matvec=lambda v, M=inner: v - M @ v, dtype=np.float64)
        # What the last stage found here is about right, unless it is beyond its precision.
        with np.errstate(over="ignore", invalid="ignore"):
            start = guess[rows] * np.exp(guess_shift - shift)
            is_better = np.linalg.norm(b - system @ start) < np.linalg.norm(b)
        f, _ = cg(system, b, start if is_better else None, rtol=RESIDUAL, maxiter=MOST_STEPS)
        kept = _kept(f)
        log_f[rows[kept]] = np.log(f[kept]) + shift
        unknown[rows[kept]] = False
        guess[rows], guess_shift = f, shift
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
        inflow, inner = rows[:, known], rows[:, unknown]
        shift = log_f[known][np.unique(inflow.indices)].max()
        f_known = np.exp(np.minimum(log_f[known] - shift, 0.0))
        b = inflow @ f_known
        scale = b.max()
        f = _series(inner, b / scale)
        paid = inflow @ (f_known * mean[known]) + costly_rows[:, known] @ f_known
        h = _series(inner, paid / scale + costly_rows[:, unknown] @ f)
        kept = _kept(f)
        log_f[unknown[kept]] = np.log(f[kept]) + shift + np.log(scale)
        mean[unknown[kept]] = h[kept] / f[kept]
        known[unknown[kept]] = True
    return log_f, mean


def _kept(f: np.ndarray) -> np.ndarray:
    """Which entries of a solution are accurate: some of them, unless there is none."""
    kept = f > TRUST * f.max()
    if not kept.any():
        raise ArithmeticError(NOT_FINITE)
    return kept


def _series(M: sp.csr_matrix, b: np.ndarray) -> np.ndarray:
    """Σ M^k b, which solves f = M f + b: by an iteration that is fast but may fail, and term by term what it left."""
    system = LinearOperator(M.shape, matvec=lambda v: v - M @ v, dtype=np.float64)
    f, _ = bicgstab(system, b, rtol=RESIDUAL, maxiter=MOST_STEPS)
    term, size = b - system @ f, np.linalg.norm(b)
    if not np.linalg.norm(term) < size:
        f, term = np.zeros_like(b), b
    while np.linalg.norm(term) > RESIDUAL * size:
        f += term
        term = M @ term
    return f
