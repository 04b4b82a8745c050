"""The affinity of neighbours, and the one connected graph that they form."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from entropath_sc.core import graph as graphs
from entropath_sc.core import neighbors
from entropath_sc.core.graph import BRIDGE_AFFINITY, connected, graph_of_cells
from entropath_sc.core.kernel import BANDWIDTHS, SMALLEST_AFFINITY, WIDTH, Kernel, positive_bandwidths
from entropath_sc.core.neighbors import knn_distances

# Cells at 0, 1 and 3: each has its one or two neighbours stored, so σ = 1, 2, 3.
ON_A_LINE = sp.csr_matrix(np.array([[0, 1.0, 0], [1.0, 0, 2.0], [3.0, 2.0, 0]]))


def affinity(distances: sp.csr_matrix, *, decay: float, bandwidth: str) -> np.ndarray:
    return graph_of_cells(distances, None, decay=decay, bandwidth=bandwidth)[0].affinity.toarray()


def test_the_larger_bandwidth_by_hand():
    found = affinity(ON_A_LINE, decay=2.0, bandwidth="larger")
    # (0, 1): exp(-1) from 0, exp(-1/4) from 1; the larger stays.
    assert found[0, 1] == found[1, 0] == pytest.approx(np.exp(-0.25))
    assert found[1, 2] == pytest.approx(np.exp(-4 / 9))
    assert found[0, 2] == found[2, 0] == pytest.approx(np.exp(-1))


def test_the_adaptive_bandwidth_by_hand():
    found = affinity(ON_A_LINE, decay=2.0, bandwidth="adaptive")
    assert found[0, 1] == pytest.approx(np.exp(-1 / 2))
    assert found[1, 2] == pytest.approx(np.exp(-4 / 6))
    assert found[0, 2] == pytest.approx(np.exp(-9 / 3))


def test_the_fixed_bandwidth_by_hand():
    # The distances are 1, 1, 2, 3, 2, of which the median is 2.
    found = affinity(ON_A_LINE, decay=3.0, bandwidth="fixed")
    for (i, j), distance in {(0, 1): 1.0, (1, 2): 2.0, (0, 2): 3.0}.items():
        assert found[i, j] == found[j, i] == pytest.approx(np.exp(-((distance / (WIDTH * 2.0)) ** 3)))


def test_the_tempered_bandwidth_by_hand():
    # With one cell far away: the distances 1, 1, 2, 3, 2, 300, of which the median is 2; σ = 1, 2, 3, 300.
    D = sp.csr_matrix(np.array([[0, 1.0, 0, 0], [1.0, 0, 2.0, 0], [3.0, 2.0, 0, 0], [0, 0, 300.0, 0]]))
    found = affinity(D, decay=3.0, bandwidth="tempered")
    typical = 1800.0**0.25
    # The geometric mean of one length for all and the pair's own.
    scale = {(0, 1): (2 / typical**2) ** 0.25, (0, 2): (3 / typical**2) ** 0.25}
    for (i, j), distance in {(0, 1): 1.0, (0, 2): 3.0}.items():
        assert found[i, j] == found[j, i] == pytest.approx(np.exp(-((distance / (WIDTH * 2.0 * scale[i, j])) ** 3)))
    # Nobody is cut off.
    assert found[2, 3] == found[3, 2] == SMALLEST_AFFINITY


def test_the_tempered_bandwidth_lies_between_one_length_and_a_length_for_each():
    # The same chain twice, once at half the density: with one length for all, the sparse hops cost 2³ times as much as
    # the dense ones, with a length for each the same; half way it is the square root of that.
    steps = np.r_[np.full(50, 1.0), np.full(50, 2.0)]
    i = np.arange(100)
    D = sp.csr_matrix((np.r_[steps, steps], (np.r_[i, i + 1], np.r_[i + 1, i])), shape=(101, 101))
    for bandwidth, expected in (("fixed", 2**3), ("tempered", 2**1.5), ("adaptive", 1.0)):
        cost = -np.log(affinity(D, decay=3.0, bandwidth=bandwidth)[i, i + 1])
        assert cost[80] / cost[20] == pytest.approx(expected), bandwidth


@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
def test_the_kernel_does_not_depend_on_the_unit_of_length(bandwidth):
    D = knn_distances(np.random.default_rng(0).normal(size=(60, 3)), 8)
    expected = affinity(D, decay=3.0, bandwidth=bandwidth)
    np.testing.assert_allclose(affinity(1000.0 * D, decay=3.0, bandwidth=bandwidth), expected, rtol=1e-9)


@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
def test_duplicates_make_no_nan(bandwidth):
    X = np.repeat(np.random.default_rng(0).normal(size=(20, 3)), 8, axis=0)
    graph, bandwidths = graph_of_cells(knn_distances(X, 5), X, decay=3.0, bandwidth=bandwidth)
    assert np.isfinite(graph.affinity.data).all()
    assert graph.affinity.data.min() > 0
    assert graph.lengths.min() > 0
    assert bandwidths.min() > 0
    assert connected_components(graph.affinity)[0] == 1
    # Duplicates are neighbours of each other, and as alike as can be.
    all_the_same = affinity(knn_distances(np.ones((10, 3)), 5), decay=3.0, bandwidth=bandwidth)
    assert set(np.unique(all_the_same)) == {0.0, 1.0}


def test_bandwidths_of_cells_among_their_duplicates():
    found = positive_bandwidths(np.array([0.0, 1.0, 3.0]))
    assert 0 < found[0] < 0.01
    assert found[1:].tolist() == [1.0, 3.0]
    assert positive_bandwidths(np.zeros(3)).tolist() == [1.0, 1.0, 1.0]


def test_a_fitted_kernel_is_that_of_the_graph():
    D = knn_distances(np.random.default_rng(0).normal(size=(60, 3)), 8)
    graph, bandwidths = graph_of_cells(D, None, decay=3.0, bandwidth="tempered")
    kernel = Kernel.fitted(3.0, "tempered", D.data, bandwidths)
    rows, columns = graph.rows, graph.affinity.indices
    np.testing.assert_array_equal(kernel(graph.lengths, bandwidths[rows], bandwidths[columns]), graph.affinity.data)


def test_a_graph_joins_all_neighbours_both_ways():
    X = np.random.default_rng(0).normal(size=(60, 3))
    D = knn_distances(X, 6)
    graph, bandwidths = graph_of_cells(D, X, decay=3.0, bandwidth="tempered")
    A = graph.affinity
    assert np.abs(A - A.T).max() == 0
    assert A.diagonal().sum() == 0
    assert ((A > 0) != ((D > 0) + (D > 0).T)).nnz == 0
    np.testing.assert_allclose(graph.lengths, cdist(X, X)[graph.rows, A.indices])
    np.testing.assert_allclose(bandwidths, np.sort(cdist(X, X))[:, 5])


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
    monkeypatch.setattr(neighbors, "EXACT_SEARCH_CELLS", 100)
    found = knn_distances(X, 10, random_state=1)
    again = knn_distances(X, 10, random_state=1)
    assert (found != again).nnz == 0
    assert found.diagonal().sum() == 0
    shared = (exact > 0).multiply(found > 0).nnz / exact.nnz
    assert shared > 0.95


@pytest.mark.parametrize("tile", [7, 2048])
def test_components_are_joined_by_their_shortest_bridges(monkeypatch, tile):
    # Three clusters on a line: the middle one must be joined to both, the outer ones not to each other.
    monkeypatch.setattr(graphs, "_TILE", tile)
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.uniform(size=(30, 1)), 5 + rng.uniform(size=(20, 1)), 12 + rng.uniform(size=(10, 1))])
    D = knn_distances(X, 5)
    graph, _ = graph_of_cells(D, X, decay=3.0, bandwidth="tempered")
    assert connected_components(D, directed=False)[0] == 3
    assert connected_components(graph.affinity)[0] == 1
    assert graph.bridges.component_sizes.tolist() == [30, 20, 10]
    ends = sorted(tuple(sorted(X[pair, 0])) for pair in graph.bridges.pairs)
    assert ends == [(X[:30].max(), X[30:50].min()), (X[30:50].max(), X[50:].min())]
    assert (graph.affinity != graph.affinity.T).nnz == 0
    # A bridge is as long as it is, and has an affinity of its own.
    along = sp.csr_matrix((graph.lengths, graph.affinity.indices, graph.affinity.indptr), shape=graph.affinity.shape)
    for (i, j), length in zip(graph.bridges.pairs, graph.bridges.lengths, strict=True):
        assert graph.affinity[i, j] == BRIDGE_AFFINITY
        assert along[i, j] == along[j, i] == length == pytest.approx(abs(X[i, 0] - X[j, 0]))


def test_a_connected_graph_is_left_alone():
    D = knn_distances(np.random.default_rng(0).normal(size=(60, 2)), 10)
    graph, _ = graph_of_cells(D, None, decay=3.0, bandwidth="tempered")  # positions are not needed
    assert graph.bridges.component_sizes.tolist() == [60]
    assert len(graph.bridges.pairs) == len(graph.bridges.lengths) == 0
    again = connected(graph.affinity, graph.lengths, None)
    assert again.affinity is graph.affinity
