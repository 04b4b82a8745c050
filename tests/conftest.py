from __future__ import annotations

import anndata as ad
import matplotlib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import entropath_sc as ep
from entropath_sc.core.graph import Graph, connected

matplotlib.use("Agg")


@pytest.fixture(scope="session")
def _cells():
    return ep.datasets.branching(n_cells=400, n_genes=200)


@pytest.fixture
def cells(_cells):
    """Branching cells with a PCA, and no neighbours."""
    return _cells.copy()


@pytest.fixture(scope="session")
def _landmarked():
    adata = ep.datasets.branching(n_cells=900, n_genes=200)
    ep.tl.merw_graph(adata)
    ep.tl.embedding(adata, n_landmarks=200)
    return adata


@pytest.fixture
def landmarked(_landmarked):
    """More cells than landmarks, embedded."""
    return _landmarked.copy()


def weighted_graph(n: int, seed: int = 0, density: float = 0.3) -> sp.csr_matrix:
    """A connected random graph with positive symmetric weights."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(0.1, 1.0, (n, n)) * (rng.uniform(size=(n, n)) < density), 1)
    upper[np.arange(n - 1), np.arange(1, n)] = 0.5
    return sp.csr_matrix(upper + upper.T)


def path_graph(n: int) -> sp.csr_matrix:
    """Nodes in a row, each joined to the next by a weight of one."""
    return sp.csr_matrix(sp.diags([np.ones(n - 1), np.ones(n - 1)], [-1, 1]))


def graph_of(A: sp.csr_matrix | np.ndarray, lengths: np.ndarray | float = 1.0) -> Graph:
    """A connected affinity as a graph whose edges all have the given length."""
    A = sp.csr_matrix(A)
    A.sort_indices()
    return connected(A, np.broadcast_to(np.asarray(lengths, dtype=float), A.nnz).copy(), None)


def unweighted_graph() -> np.ndarray:
    """Six nodes, two cycles that share an edge, and a tail."""
    A = np.zeros((6, 6))
    for i, j in [(0, 1), (1, 2), (2, 0), (2, 3), (3, 1), (3, 4), (4, 5)]:
        A[i, j] = A[j, i] = 1.0
    return A


def without_results(adata):
    """A copy of the cells as if no tool of this package had seen them."""
    fresh = adata.copy()
    for place in (fresh.obs, fresh.obsm, fresh.obsp, fresh.uns):
        for key in [key for key in place if "entropath" in key]:
            del place[key]
    return fresh


def assert_same(adata, before) -> None:
    """All fields are there, in the same order, with the same content."""
    assert adata.is_view == before.is_view
    assert adata.obs_names.equals(before.obs_names)
    for place in ("obs", "obsm", "obsp", "uns"):
        assert list(getattr(adata, place)) == list(getattr(before, place)), place
    assert adata.obs.equals(before.obs)
    for place in ("obsm", "obsp"):
        for name, value in getattr(before, place).items():
            found = getattr(adata, place)[name]
            assert type(found) is type(value)
            assert (abs(found - value)).max() == 0, name
    assert str(dict(adata.uns)) == str(dict(before.uns))


COURSES = ["early", "rises", "only A", "only B", "A late", "flat", "zero"]


def forked(n_cells: int = 900, n_noise: int = 40, states=("A", "B", "C"), seed: int = 0) -> ad.AnnData:
    """A trunk until 0.4 that parts in three, with expression of a known course."""
    rng = np.random.default_rng(seed)
    time = np.r_[0.0, rng.uniform(size=n_cells - 1)]
    end = rng.integers(0, 3, size=n_cells)
    past = np.clip((time - 0.4) / 0.6, 0.0, None)
    own = np.eye(3)[end]
    fates = np.where(past[:, None] > 0, own * (1 - np.exp(-8 * past[:, None])), 0)
    fates += (1 - fates.sum(axis=1, keepdims=True)) / 3
    membership = np.where(past[:, None] > 0.02, own, 1.0)
    course = {
        "early": np.exp(-4 * time),
        "rises": 2 * time,
        "only A": 2 * past * (end == 0),
        "only B": 2 * past * (end == 1),
        "A late": 2 * np.clip(past - 0.5, 0, None) * (end == 0),
    }
    X = np.column_stack([*course.values(), np.full(n_cells, 3.3), np.zeros(n_cells)])
    X[:, : len(course)] += 0.2 * rng.normal(size=(n_cells, len(course)))
    X = np.hstack([X, rng.poisson(0.3, size=(n_cells, n_noise))])
    adata = ad.AnnData(X.astype(np.float32), obs=pd.DataFrame(index=[f"cell_{i}" for i in range(n_cells)]))
    adata.var_names = COURSES + [f"noise_{i}" for i in range(n_noise)]
    adata.obs["entropath_pseudotime"] = time
    for name, values in (("fates", fates), ("membership", membership)):
        adata.obsm[f"entropath_{name}"] = pd.DataFrame(values, index=adata.obs_names, columns=list(states))
    return adata
