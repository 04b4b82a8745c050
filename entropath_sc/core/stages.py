"""Positive solutions of f = N f, given on a part of the nodes, that span more than the range of floats."""

from __future__ import annotations

import numba
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
# Steps between two chances to interrupt.
_AT_ONCE = 100
NOT_FINITE = (
    "The weights of paths cannot be computed: those of the graph are not finite, or, with arrows and a large depth, "
    "beyond what floats hold. Use a smaller depth."
)


@on_one_blas_thread
def solve_in_stages(N: sp.csr_matrix, log_f: np.ndarray) -> np.ndarray:
    """log f with f = N f where ``log_f`` is -inf, and as given elsewhere.

    N is symmetric and non-negative, the graph connected, and I - N positive definite where f is unknown.
    """
    known = np.flatnonzero(np.isfinite(log_f))
    outward, level = np.empty(len(log_f), dtype=np.int64), np.full(len(log_f), -1)
    outward[: len(known)], level[known] = known, 0
    if _go_outward(N.indptr, N.indices, outward, level, len(known)) < len(log_f):
        raise ArithmeticError(NOT_FINITE)
    N, solved, level = submatrix(N, outward), log_f[outward], level[outward]
    rows = np.flatnonzero(np.isneginf(solved))
    f, unit = np.zeros_like(solved), 0.0
    while len(rows):
        f, unit = _stage(N, level, solved, rows, f, unit)
        kept = _kept(f[rows])
        solved[rows[kept]] = np.log(f[rows[kept]]) + unit
        f[rows[kept]] = 0.0
        rows = rows[~kept]
    found = np.empty_like(solved)
    found[outward] = solved
    return found


def _stage(
    N: sp.csr_matrix, level: np.ndarray, log_f: np.ndarray, rows: np.ndarray, guess: np.ndarray, guess_unit: float
) -> tuple[np.ndarray, float]:
    """f in the unknown rows and 0 elsewhere, relative to the largest inflow, and the log of that.

    The rows are in the order of their level: how many steps they are from where f was given.
    """
    n_within = np.searchsorted(level[rows], np.arange(level[-1] + 2), side="right")
    near = rows[: n_within[level[np.isfinite(log_f)][-1] + 1]]
    b = np.zeros(len(near))
    unit = _inflow(N.indptr, N.indices, N.data, log_f, near, b)
    unit, b = unit + np.log(b.max()), b / b.max()
    # What the last stage found here is about right, as far as it was precise.
    with np.errstate(over="ignore", invalid="ignore"):
        f = np.where(guess > RESIDUAL * guess.max(), guess * np.exp(guess_unit - unit), 0.0)
        r = np.zeros_like(f)
        r[rows] = (N @ f - f)[rows]
    r[near] += b
    size, target = float(r @ r), RESIDUAL**2 * (b @ b)
    if not size < b @ b:
        f, r, size = np.zeros_like(f), np.zeros_like(f), float(b @ b)
        r[near] = b
    # A step leads to the next level at the most. So far, all is zero beyond the last level where there is something.
    p, last = r.copy(), level[np.flatnonzero((f != 0) | (r != 0))[-1]]
    for first in range(last + 1, last + 1 + MOST_STEPS, _AT_ONCE):
        within = n_within[np.minimum(np.arange(first, first + _AT_ONCE), level[-1])]
        size = _conjugate_gradients(N.indptr, N.indices, N.data, rows, within, f, r, p, size, target)
        if not size > target:
            break
    return f, unit


@numba.njit(nogil=True, cache=True)
def _go_outward(indptr, indices, order, level, n):
    """From the first ``n`` nodes of the order, whose level is 0, on to their neighbours; how many nodes are reached."""
    at = 0
    while at < n:
        i = order[at]
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            if level[j] < 0:
                order[n], level[j] = j, level[i] + 1
                n += 1
        at += 1
    return n


@numba.njit(nogil=True, cache=True)
def _inflow(indptr, indices, data, log_f, rows, inflow):
    """Add up N_ij f_j over the known nodes j for some rows i; the log of the unit that it is in: the largest f_j."""
    largest = -np.inf
    for i in rows:
        for at in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            largest = max(largest, log_f[np.uint32(indices[at])])
    for place in range(len(rows)):
        i = rows[place]
        for at in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            known = log_f[np.uint32(indices[at])]
            if known > -np.inf:
                inflow[place] += data[at] * np.exp(known - largest)
    return largest


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _conjugate_gradients(indptr, indices, data, rows, within, x, r, p, size, target):
    """Steps towards x = N x + b in some rows, in place; step k changes the first ``within[k]`` of them.

    ``r`` is what is missing, ``p`` the direction, and ``size`` the squared length of r, which is returned.
    """
    q = np.empty(len(rows))
    for n in within:
        if not size > target:
            break
        along = 0.0
        for m in range(n):
            i = rows[m]
            total = 0.0
            # Unsigned, as numba would look at the sign of each index.
            for at in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                total += data[at] * p[np.uint32(indices[at])]
            q[m] = p[i] - total
            along += p[i] * q[m]
        before, size = size, 0.0
        for m in range(n):
            i = rows[m]
            x[i] += before / along * p[i]
            r[i] -= before / along * q[m]
            size += r[i] * r[i]
        for m in range(n):
            i = rows[m]
            p[i] = r[i] + size / before * p[i]
    return size


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
