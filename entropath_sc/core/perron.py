"""The Perron pair of an affinity, and the maximum entropy random walk that it defines."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackNoConvergence, cg, eigsh

from .hops import continue_by_hops, count_hops
from .parallel import on_one_blas_thread

# A sparse matrix, or an array.
Matrix: TypeAlias = Any

# Lanczos restarts so often, before λ_max is found to this relative accuracy, and then by inverse iteration.
MOST_RESTARTS = 1000
LOOSE = 1e-6
# Lanczos is accurate relative to the largest entry only; entries below this fraction of it are found in further stages.
TRUST = 1e-8
# Each stage goes eight orders of magnitude deeper; beyond all of them, the leading term of ψ has to do.
MOST_STAGES = 100
# Where a stage needs no more iterations than this, ψ mostly falls off so fast that power steps are quicker than stages.
FEW_ITERATIONS = 30

# Beyond this range the running vector is folded into the logarithm, long before it could underflow.
SAFE_RANGE = 1e100


@dataclass(frozen=True)
class PerronPair:
    """λ_max and log ψ of a connected, non-negative symmetric matrix; ``residual`` is max |Aψ/(λψ) - 1|."""

    lambda_max: float
    log_psi: np.ndarray
    residual: float


def perron_pair(A: Matrix, *, tolerance: float = 1e-6, max_steps: int = 200) -> PerronPair:
    """λ_max and log ψ: Lanczos for the large entries, staged solves for the small ones, and power steps to polish.

    ψ localises on real graphs and may span more than the range of floats, so it is kept as a logarithm: the steps,
    whose sums of positive numbers keep small entries accurate, run on the similar matrix S⁻¹AS, S = diag(ψ so far),
    whose own Perron vector is close to one everywhere.
    """
    lambda_max, psi = _leading(A, 0.0)
    for patience in (FEW_ITERATIONS, 0):
        log_psi, residual = _polished(A, lambda_max, _continued(A, lambda_max, psi, patience), tolerance, max_steps)
        if residual <= tolerance:
            break
    log_psi -= log_psi.max()
    log_psi -= 0.5 * np.log(np.exp(2 * log_psi).sum())
    return PerronPair(lambda_max, log_psi, residual)


def largest_eigenvalue(A: Matrix, *, tolerance: float = 1e-3) -> float:
    """λ_max alone, which converges long before ψ does."""
    return _leading(A, tolerance)[0]


@on_one_blas_thread
def _leading(A: Matrix, tolerance: float) -> tuple[float, np.ndarray]:
    """λ_max, and ψ as accurate as its largest entries are."""
    if A.shape[0] < 3:
        values, vectors = np.linalg.eigh(A.toarray() if sp.issparse(A) else A)
    else:
        # The degree is a start that a permutation of the cells permutes.
        start = np.asarray(A.sum(axis=1)).ravel() + 1e-3
        try:
            values, vectors = eigsh(A, k=1, which="LA", v0=start, tol=tolerance, maxiter=MOST_RESTARTS)
        except ArpackNoConvergence:
            # Where parts of the graph are almost apart, the inverse tells their eigenvalues from each other.
            nearly = eigsh(A, k=1, which="LA", v0=start, tol=LOOSE, return_eigenvectors=False)[0]
            values, vectors = eigsh(sp.csc_matrix(A), k=1, sigma=(1 + LOOSE) * nearly, which="LM", v0=start)
    return float(values[-1]), np.abs(vectors[:, -1])


def _polished(
    A: Matrix, lambda_max: float, log_psi: np.ndarray, tolerance: float, max_steps: int
) -> tuple[np.ndarray, float]:
    """log ψ after power steps, and the largest relative residual of the eigenvalue equation."""
    ratios = np.ones(len(log_psi))
    similar = conjugated(A, log_psi)
    residual = np.inf
    # A lazy step: (I + A/λ)/2 has the same ψ, and converges on bipartite graphs too.
    for _ in range(max_steps):
        growth = (similar @ ratios) / lambda_max
        residual = float(np.abs(growth / ratios - 1.0).max())
        if residual <= tolerance:
            break
        ratios = 0.5 * (ratios + growth)
        if ratios.max() > SAFE_RANGE * ratios.min():
            log_psi = log_psi + np.log(ratios)
            similar, ratios = conjugated(A, log_psi), np.ones(len(log_psi))
        ratios /= ratios.max()
    return log_psi + np.log(ratios), residual


@on_one_blas_thread
def _continued(A: Matrix, lambda_max: float, psi: np.ndarray, patience: int) -> np.ndarray:
    """log ψ where Lanczos can be trusted, and from there outward in stages, each as deep as floats are accurate.

    Given ψ inside, ψ outside solves (λI - A_out) ψ_out = A_out,in ψ_in, which is positive definite. Conjugate gradients
    are accurate relative to the largest entry too, so only the larger entries are kept and the rest is solved again. A
    stage of up to ``patience`` iterations is the last: the rest gets its leading term, hop by hop.
    """
    known = psi > TRUST * psi.max()
    log_psi = np.where(known, np.log(np.maximum(psi, np.finfo(float).tiny)), -np.inf)
    if known.all():
        return log_psi
    A = sp.csr_matrix(A)
    for _ in range(MOST_STAGES):
        unknown = np.flatnonzero(~known)
        rows = A[unknown]
        inflow = rows[:, known]
        border = np.unique(inflow.indices)
        shift = log_psi[known][border].max()
        b = inflow @ np.exp(np.minimum(log_psi[known] - shift, 0.0))
        outside = lambda_max * sp.eye_array(len(unknown)) - rows[:, unknown]
        iterations = itertools.count()
        x, _ = cg(outside, b, rtol=1e-12, maxiter=1000, callback=lambda _, count=iterations: next(count))
        kept = x > TRUST * x.max()
        log_psi[unknown[kept]] = np.log(x[kept]) + shift
        known[unknown[kept]] = True
        if known.all():
            return log_psi
        if next(iterations) <= patience:
            break
    continue_by_hops(A, lambda_max, count_hops(A, known), log_psi, lambda _: 0.0)
    return log_psi


def conjugated(A: Matrix, log_psi: np.ndarray) -> Matrix:
    """S⁻¹AS with S = diag(exp(log_psi)); only ratios between neighbours are formed."""
    if sp.issparse(A):
        rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
        values = A.data * np.exp(log_psi[A.indices] - log_psi[rows])
        return sp.csr_matrix((values, A.indices, A.indptr), shape=A.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(A > 0, A * np.exp(log_psi[None, :] - log_psi[:, None]), 0.0)


def transition_matrix(A: Matrix, log_psi: np.ndarray) -> Matrix:
    """T_ij = A_ij ψ_j / (Aψ)_i: the maximum entropy random walk, whose rows sum to one whatever ψ's last digits."""
    T = conjugated(A, log_psi)
    row_sums = np.asarray(T.sum(axis=1)).ravel()
    return sp.diags(1.0 / row_sums).dot(T).tocsr() if sp.issparse(T) else T / row_sums[:, None]


def log_stationary(A: Matrix, log_psi: np.ndarray) -> np.ndarray:
    """Logarithm of π_i ∝ ψ_i (Aψ)_i, which is ψ_i² for the exact ψ, and always the one T is reversible for."""
    log_pi = 2 * log_psi + np.log(np.asarray(conjugated(A, log_psi).sum(axis=1)).ravel())
    top = log_pi.max()
    return log_pi - top - np.log(np.exp(log_pi - top).sum())
