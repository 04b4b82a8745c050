"""Positive solutions of f = N f, given on a part of the nodes, that span more than the range of floats."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, bicgstab

from .parallel import on_one_blas_thread
from .sparse import submatrix

# Conjugate gradients are accurate relative to the largest entry: entries above this fraction of it are kept, and the
# rest is solved again with them as its boundary.
TRUST = 1e-6
RESIDUAL = 1e-14
MOST_STEPS = 20_000
NOT_FINITE = "The weights of paths cannot be computed: the graph has weights that are not finite."


@on_one_blas_thread
def solve_in_stages(
    N: sp.csr_matrix,
    log_f: np.ndarray,
    scale: np.ndarray | None = None,
    among: np.ndarray | None = None,
    enough: int | None = None,
) -> np.ndarray:
    """log f with f = N f where ``log_f`` is -inf, and as given elsewhere; a column for each problem.

    N is symmetric and non-negative, and I - N positive definite where f is unknown. With ``scale`` each column s has a
    matrix of its own, diag(s) N diag(s). Where s is 0, and where no path leads, log f stays -inf. With ``among`` it
    ends as soon as the ``enough`` largest of these nodes are known; the others stay -inf.
    """
    if log_f.ndim == 1:
        return solve_in_stages(N, log_f[:, None], scale, among, enough)[:, 0]
    log_f = log_f.copy()
    scale = np.ones_like(log_f) if scale is None else scale
    unknown = np.isneginf(log_f) & (scale > 0)
    guess, guess_shift = np.zeros_like(log_f), np.zeros(log_f.shape[1])
    while True:
        # The known nodes next to unknown ones are the boundary.
        edge = np.where((N @ unknown.astype(np.float64) > 0) & ~unknown, log_f, -np.inf)
        shift = edge.max(axis=0)
        reached = np.isfinite(shift)
        unknown &= reached
        if not unknown.any():
            return log_f
        if among is not None and (np.count_nonzero(np.isfinite(log_f[among]), axis=0) >= enough).all():
            return log_f
        shift = np.where(reached, shift, 0.0)
        rows = np.flatnonzero(unknown.any(axis=1))
        b = unknown[rows] * (scale * (N @ (scale * np.exp(edge - shift))))[rows]
        size = np.where(reached, b.max(axis=0, initial=0.0), 1.0)
        shift, b = shift + np.log(size), b / size
        # What the last stage found here is about right, unless it is beyond its precision.
        with np.errstate(over="ignore", invalid="ignore"):
            start = np.where(unknown[rows], guess[rows] * np.exp(guess_shift - shift), 0.0)
        f = _conjugate_gradients(submatrix(N, rows), unknown[rows] * scale[rows], b, start)
        kept = unknown[rows] & _kept(f, reached)
        log_f[rows] = np.where(kept, np.log(f, where=kept, out=np.zeros_like(f)) + shift, log_f[rows])
        unknown[rows] &= ~kept
        guess[rows], guess_shift = f, shift


def _conjugate_gradients(N: sp.csr_matrix, scale: np.ndarray, b: np.ndarray, start: np.ndarray) -> np.ndarray:
    """f with f = diag(s) N diag(s) f + b, column by column; ``start`` where it is better than nothing."""

    alike = bool((scale == 1.0).all())

    def left_over(f: np.ndarray) -> np.ndarray:
        return f - N @ f if alike else f - scale * (N @ (scale * f))

    def squares(v: np.ndarray) -> np.ndarray:
        return np.einsum("ij,ij->j", v, v)

    size = squares(b)
    with np.errstate(over="ignore", invalid="ignore"):
        r = b - left_over(start)
        better = squares(r) < size
    f, r = np.where(better, start, 0.0), np.where(better, r, b)
    step, now = r.copy(), squares(r)
    for _ in range(MOST_STEPS):
        going = now > RESIDUAL**2 * size
        if not going.any():
            break
        change = left_over(step)
        along = np.divide(now, np.einsum("ij,ij->j", step, change), out=np.zeros_like(now), where=going)
        f += along * step
        r -= along * change
        before, now = now, squares(r)
        step *= np.divide(now, before, out=np.zeros_like(now), where=going)
        step += r
    return f


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


def _kept(f: np.ndarray, reached: np.ndarray | bool = True) -> np.ndarray:
    """Which entries of a solution are accurate; a column that is reached has some."""
    kept = f > TRUST * f.max(axis=0)
    if not (kept.any(axis=0) | ~np.asarray(reached)).all():
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
