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
def solve_in_stages(N: sp.csr_matrix, log_f: np.ndarray) -> np.ndarray:
    """log f with f = N f where ``log_f`` is -inf, and as given elsewhere.

    N is symmetric and non-negative, the graph connected, and I - N positive definite where f is unknown.
    """
    log_f = log_f.copy()
    known = np.isfinite(log_f)
    while not known.all():
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
