"""The Perron pair of an affinity, and the maximum entropy random walk that it defines: for the paper's preset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackNoConvergence, eigs, eigsh

from .parallel import on_one_blas_thread
from .stages import solve_in_stages

# A sparse matrix, or an array.
Matrix: TypeAlias = Any

# Lanczos restarts so often, before λ_max is found to this relative accuracy, and then by inverse iteration.
MOST_RESTARTS = 1000
LOOSE = 1e-6
# Lanczos is accurate relative to the largest entry only; entries below this fraction of it are found in further stages.
TRUST = 1e-8

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
    lambda_max, psi = _leading(A)
    # Given the larger entries, the rest solves ψ = (A/λ) ψ.
    with np.errstate(divide="ignore"):
        log_psi = np.where(psi > TRUST * psi.max(), np.log(psi), -np.inf)
    log_psi = solve_in_stages(sp.csr_matrix(A) / lambda_max, log_psi)
    log_psi, residual = _polished(A, lambda_max, log_psi, tolerance, max_steps)
    log_psi -= log_psi.max()
    log_psi -= 0.5 * np.log(np.exp(2 * log_psi).sum())
    return PerronPair(lambda_max, log_psi, residual)


@on_one_blas_thread
def directed_perron_pair(A: sp.csr_matrix, *, tolerance: float = 1e-6, max_steps: int = 2000) -> PerronPair:
    """λ_max and log ψ of a strongly connected matrix that is not symmetric; that of its transpose is the left ψ."""
    if A.shape[0] < 4:
        values, vectors = np.linalg.eig(A.toarray())
        leading = values.real.argmax()
        lambda_max, psi = float(values[leading].real), np.abs(vectors[:, leading])
    else:
        values, vectors = eigs(A, k=1, which="LR", v0=np.asarray(A.sum(axis=1)).ravel() + 1e-3)
        lambda_max, psi = float(values[0].real), np.abs(vectors[:, 0])
    log_psi = np.log(np.maximum(psi / psi.max(), TRUST))
    log_psi, residual = _polished(A, lambda_max, log_psi, tolerance, max_steps)
    log_psi -= log_psi.max()
    log_psi -= 0.5 * np.log(np.exp(2 * log_psi).sum())
    return PerronPair(lambda_max, log_psi, residual)


@on_one_blas_thread
def _leading(A: Matrix) -> tuple[float, np.ndarray]:
    """λ_max, and ψ as accurate as its largest entries are."""
    if A.shape[0] < 3:
        values, vectors = np.linalg.eigh(A.toarray() if sp.issparse(A) else A)
    else:
        # The degree is a start that a permutation of the cells permutes.
        start = np.asarray(A.sum(axis=1)).ravel() + 1e-3
        try:
            values, vectors = eigsh(A, k=1, which="LA", v0=start, maxiter=MOST_RESTARTS)
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
