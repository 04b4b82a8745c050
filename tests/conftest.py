from __future__ import annotations

import functools

import matplotlib
import numpy as np
import pytest
import scanpy as sc
import scipy.sparse as sp

import entropath_sc as ep
from entropath_sc.core.graph import Graph, connected
from entropath_sc.tl import _blocks

# Only distances are read; connectivities by UMAP would compile for half a minute in each process.
sc.pp.neighbors = functools.partial(sc.pp.neighbors, method="gauss")


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


def count_searches(monkeypatch, most: float = np.inf) -> list[int]:
    """Sizes of the blocks whose nearest landmarks are searched; an interrupt comes in the one after ``most``."""
    searched, nearest = [], _blocks.nearest_landmarks

    def counted(X, *args):
        if len(searched) == most:
            raise KeyboardInterrupt
        searched.append(len(X))
        return nearest(X, *args)

    monkeypatch.setattr(_blocks, "nearest_landmarks", counted)
    return searched
