"""The potential that the steps of a flow climb, and what goes round in circles instead."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

from .graph import Graph
from .parallel import on_one_blas_thread

# Numerical: a potential needs no more digits than the ranks of nodes.
RESIDUAL = 1e-8
MOST_STEPS = 5000


@on_one_blas_thread
def potential(graph: Graph) -> np.ndarray:
    """φ with Σ (φ_j - φ_i - forward_ij)² over all steps least: how far each node is along the flow.

    All steps count alike. Weighted by affinity, a circular flow would be left at its weakest link, and climb elsewhere.
    """
    A, rows, forward = graph.affinity, graph.rows, graph.forward
    steps = sp.csr_matrix((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape)
    degree = np.diff(A.indptr).astype(np.float64)
    leaving = np.bincount(rows, forward, minlength=graph.n_nodes)
    system = LinearOperator(A.shape, matvec=lambda v: degree * v - steps @ v, dtype=np.float64)
    jacobi = LinearOperator(A.shape, matvec=lambda v: v / degree, dtype=np.float64)
    phi, _ = cg(system, leaving.mean() - leaving, rtol=RESIDUAL, maxiter=MOST_STEPS, M=jacobi)
    return phi


def circulation(graph: Graph, phi: np.ndarray) -> np.ndarray:
    """What a potential leaves of the flow of each step: circles, and noise."""
    return graph.forward - (phi[graph.affinity.indices] - phi[graph.rows])


def circular_flow(graph: Graph) -> np.ndarray:
    """The circulation, less the flow of each step that runs against it: what goes round in circles.

    Two ways to one place, one longer than the other, leave a circulation too, and it runs against the shorter one. As
    the flow of that one is stronger, nothing is left of it there.
    """
    left, forward = circulation(graph, potential(graph)), graph.forward
    opposed = np.where(left * forward < 0, np.abs(forward), 0.0)
    return np.sign(left) * np.maximum(np.abs(left) - opposed, 0.0)
