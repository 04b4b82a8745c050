from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from entropath_sc.core import affinity as affinities
from entropath_sc.core.affinity import SMALLEST_AFFINITY, affinity, bridge_components, knn_distances


def test_the_tempered_kernel_by_hand():
    # Cells at 0, 1, 3 and far away: the distances 1, 1, 2, 3, 2, 300, of which the median is 2; σ = 1, 2, 3, 300.
    D = sp.csr_matrix(np.array([[0, 1.0, 0, 0], [1.0, 0, 2.0, 0], [3.0, 2.0, 0, 0], [0, 0, 300.0, 0]]))
    found = affinity(D, kernel="tempered").toarray()
    mean = 1800.0**0.25
    # (0, 1): 0.85 · 2 · (1 · 2/σ²)^¼, and the third power of the ratio.
    assert found[0, 1] == found[1, 0] == pytest.approx(np.exp(-((1 / (1.7 * (2 / mean**2) ** 0.25)) ** 3)))
    assert found[0, 2] == pytest.approx(np.exp(-((3 / (1.7 * (3 / mean**2) ** 0.25)) ** 3)))
    # Nobody is cut off.
    assert found[2, 3] == found[3, 2] == SMALLEST_AFFINITY


def test_the_tempered_kernel_lies_between_one_length_and_a_length_for_each():
    # The same chain twice, once at half the density: with one length for all, the sparse hops would cost 2³ times as
    # much as the dense ones, with a length for each the same; half way it is the square root of that.
    steps = np.r_[np.full(50, 1.0), np.full(50, 2.0)]
    i = np.arange(100)
    D = sp.csr_matrix((np.r_[steps, steps], (np.r_[i, i + 1], np.r_[i + 1, i])), shape=(101, 101))
    cost = -np.log(affinity(D, kernel="tempered").toarray()[i, i + 1])
    assert cost[80] / cost[20] == pytest.approx(2**1.5)


def test_kernels_by_hand():
    # Cells at 0, 1, 3: each has its one or two neighbours stored, so σ = 1, 2, 3.
    D = sp.csr_matrix(np.array([[0, 1.0, 0], [1.0, 0, 2.0], [3.0, 2.0, 0]]))
    alpha = affinity(D, kernel="alpha_decay", decay=2.0).toarray()
    # (0, 1): exp(-1) from 0, exp(-1/4) from 1; the larger stays.
    assert alpha[0, 1] == alpha[1, 0] == pytest.approx(np.exp(-0.25))
    assert alpha[1, 2] == pytest.approx(np.exp(-4 / 9))
    assert alpha[0, 2] == alpha[2, 0] == pytest.approx(np.exp(-1))
    gaussian = affinity(D, kernel="gaussian").toarray()
    assert gaussian[0, 1] == pytest.approx(np.exp(-1 / 2))
    assert gaussian[1, 2] == pytest.approx(np.exp(-4 / 6))
    assert gaussian[0, 2] == pytest.approx(np.exp(-9 / 3))


@pytest.mark.parametrize("kernel", affinities.KERNELS)
def test_duplicates_make_no_nan(kernel):
    X = np.repeat(np.random.default_rng(0).normal(size=(20, 3)), 8, axis=0)
    A, _ = bridge_components(affinity(knn_distances(X, 5), kernel=kernel), X)
    assert np.isfinite(A.data).all()
    assert A.data.min() > 0
    assert connected_components(A)[0] == 1
    all_the_same = affinity(knn_distances(np.ones((10, 3)), 5), kernel=kernel)
    assert (all_the_same.data == 1).all()


def test_neighbours_are_exact_and_leave_the_cell_out():
    X = np.random.default_rng(0).normal(size=(50, 4))
    D = knn_distances(X, 6)
    full = np.linalg.norm(X[:, None] - X[None], axis=2)
    np.fill_diagonal(full, np.inf)
    assert D.diagonal().sum() == 0
    np.testing.assert_allclose(np.sort(D.data.reshape(50, 5)), np.sort(full)[:, :5], rtol=1e-6)


def test_approximate_search_agrees_with_exact(monkeypatch):
    X = np.random.default_rng(0).normal(size=(800, 8)).astype(np.float32)
    exact = knn_distances(X, 10)
    monkeypatch.setattr(affinities, "EXACT_SEARCH_CELLS", 100)
    found = knn_distances(X, 10, random_state=1)
    again = knn_distances(X, 10, random_state=1)
    assert (found != again).nnz == 0
    assert found.diagonal().sum() == 0
    shared = (exact > 0).multiply(found > 0).nnz / exact.nnz
    assert shared > 0.95


def test_components_are_joined_by_their_shortest_bridges():
    # Three clusters on a line: the middle one must be joined to both, the outer ones not to each other.
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.uniform(size=(30, 1)), 5 + rng.uniform(size=(20, 1)), 12 + rng.uniform(size=(10, 1))])
    A = affinity(knn_distances(X, 5))
    joined, bridges = bridge_components(A, X)
    assert connected_components(A)[0] == 3
    assert connected_components(joined)[0] == 1
    assert bridges.component_sizes.tolist() == [30, 20, 10]
    ends = sorted(tuple(sorted(X[pair, 0])) for pair in bridges.cells)
    assert ends == [(X[:30].max(), X[30:50].min()), (X[30:50].max(), X[50:].min())]
    assert (joined != joined.T).nnz == 0


def test_a_connected_graph_is_left_alone():
    X = np.random.default_rng(0).normal(size=(60, 2))
    A = affinity(knn_distances(X, 10))
    joined, bridges = bridge_components(A, None)
    assert joined is A
    assert len(bridges.cells) == 0
