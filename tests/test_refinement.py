from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import weighted_graph
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr

from entropath_sc.core.affinity import affinity, bridge_components, knn_distances
from entropath_sc.core.refinement import CELLS_PER_NEIGHBOUR, N_NEAREST, REMAINDER, by_length, cleaned, twiced
from entropath_sc.core.sparse import averaged, product


def line(n: int, reach: int = 1) -> sp.csr_matrix:
    """Each node joined to those up to ``reach`` steps away."""
    apart = abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return sp.csr_matrix((apart > 0) & (apart <= reach), dtype=float)


def test_product_and_average_are_those_of_dense_matrices():
    A = weighted_graph(40)
    mean = A.toarray() / A.toarray().sum(axis=1, keepdims=True)
    values = np.random.default_rng(0).normal(size=(40, 3))
    np.testing.assert_allclose(product(A, values), A.toarray() @ values, rtol=1e-12)
    np.testing.assert_allclose(averaged(A, values, 3), np.linalg.matrix_power(mean, 3) @ values, rtol=1e-10)
    np.testing.assert_allclose(averaged(A, values[:, 0], 2), (mean @ mean @ values)[:, 0], rtol=1e-10)
    np.testing.assert_array_equal(averaged(A, values, 0), values)


def test_length_is_the_clock_of_a_line():
    # Two units of length for each of potential, whatever the direction.
    potential = np.arange(60.0)
    X = 2.0 * potential[:, None] * np.array([0.6, -0.8])
    length = by_length(line(60, 3), X, potential)
    np.testing.assert_allclose(np.diff(length), 2.0, rtol=1e-6)


def test_length_follows_a_change_of_speed():
    potential = np.arange(200.0)
    X = np.where(potential < 100, potential, 100 + 3 * (potential - 100))[:, None]
    steps = np.diff(by_length(line(200, 3), X, potential))
    np.testing.assert_allclose(steps[:80], 1.0, rtol=0.01)
    np.testing.assert_allclose(steps[120:], 3.0, rtol=0.01)


def test_a_sparse_branch_is_as_long_as_a_dense_one():
    # Two arms of the same length from one root, one of them with a quarter of the cells: steps say it is short.
    dense, sparse = np.linspace(0, 1, 200)[1:], np.linspace(0, 1, 50)[1:]
    X = np.vstack([[[0.0, 0.0]], np.column_stack([dense, 0 * dense]), np.column_stack([0 * sparse, sparse])])
    parent = np.r_[np.arange(199), 0, np.arange(200, 248)]
    A = sp.csr_matrix((np.ones(248), (np.arange(1, 249), parent)), shape=(249, 249))
    steps = np.r_[np.arange(200.0), np.arange(1, 50)]
    A = A + A.T
    length = by_length((A + 0.5 * A @ A).tocsr(), X, steps)
    assert steps[248] < 0.3 * steps[199]
    np.testing.assert_allclose(length[[199, 248]] - length[0], 1.0, rtol=0.05)


def test_cleaning_keeps_the_components_that_neighbours_share():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.sort(rng.uniform(0, 30, 600)), rng.normal(size=(600, 8))])
    A = affinity(knn_distances(X, 15))
    A, _ = bridge_components(A, X)
    graph, kept = cleaned(A, X)
    np.testing.assert_allclose(kept[:, 0], X[:, 0] - X[:, 0].mean())
    assert kept.shape[1] == 1
    assert connected_components(graph)[0] == 1
    assert abs(graph - graph.T).max() < 1e-12
    # In the direction of the line, the neighbours of the cleaner graph are nearer.
    spread = [(M.tocoo().data * abs(X[M.tocoo().row, 0] - X[M.tocoo().col, 0])).sum() / M.sum() for M in (A, graph)]
    assert spread[1] < 0.6 * spread[0]


def test_the_nearest_two_hops_away_are_found():
    n = CELLS_PER_NEIGHBOUR * N_NEAREST
    X = np.random.default_rng(1).normal(size=(n, 2)) * 10
    A = sp.csr_matrix(np.ones((n, n)) - np.eye(n))
    graph, kept = cleaned(A, X)  # all are within two hops; with nothing shared, all components are kept
    squares = cdist(kept, kept, "sqeuclidean")
    expected = np.zeros((n, n))
    for i in range(n):
        nearest = np.argsort(squares[i])[1 : N_NEAREST + 1]
        expected[i, nearest] = np.exp(-squares[i, nearest] / squares[i, nearest[N_NEAREST // 2]])
    np.testing.assert_allclose(
        graph.toarray(), 0.5 * (expected + expected.T) + REMAINDER * A.toarray(), rtol=1e-4, atol=1e-7
    )


def test_few_means_of_cells_keep_all_components_and_have_few_neighbours():
    X = np.column_stack([np.arange(400.0), np.random.default_rng(0).normal(size=(400, 8))])
    A = line(400, reach=20)
    sizes = {}
    for means in (False, True):
        graph, kept = cleaned(A, X, means=means)
        sizes[means] = kept.shape[1], np.median(np.asarray((graph - REMAINDER * A > 1e-9).sum(axis=1)))
    assert sizes[False][0] == 1
    assert sizes[True][0] == 9
    assert sizes[False][1] == pytest.approx(40, rel=0.1)
    assert sizes[True][1] == pytest.approx(400 / 50, rel=0.1)


@pytest.mark.parametrize("n", [2, 5])
def test_few_and_duplicated_nodes(n):
    graph, kept = cleaned(line(n), np.ones((n, 3)))
    assert np.isfinite(graph.data).all()
    assert connected_components(graph)[0] == 1
    assert np.isfinite(by_length(graph, kept, np.arange(float(n)))).all()


def test_averaging_twice_gives_the_ends_back():
    A, values = line(100) + sp.eye(100, format="csr"), np.arange(100.0)
    noisy = values + np.random.default_rng(0).normal(size=100)
    average, better = averaged(A, values, 8), twiced(A, values, 8)
    assert average[0] > 1.5
    assert abs(better[0]) < 0.6 * average[0]
    assert spearmanr(twiced(A, noisy, 8), values).statistic > spearmanr(noisy, values).statistic
