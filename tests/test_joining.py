"""New cells in the order of a graph, by their own edges to it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from entropath_sc.core.affinity import KERNELS, Kernel, affinity, knn_distances
from entropath_sc.core.joining import Joining, _edges, one_step


def test_one_step_by_hand():
    A = sp.csr_matrix(np.array([[0.0, 0.5, 0.25]]))
    assert one_step(A, np.array([0.0, 1.0, 2.0])) == pytest.approx([-np.log(0.5 * np.exp(-1) + 0.25 * np.exp(-2))])
    # Far from the root no term is left in the range of floats, and the logarithm is still right.
    assert one_step(A, np.array([9e3, 1e4, 1e4])) == pytest.approx([1e4 - np.log(0.75)])


@pytest.mark.parametrize("kind", KERNELS)
def test_a_cell_joins_by_the_edges_that_it_had(kind):
    # Left out of the nodes and joined to them again, a cell finds its row of the affinity.
    X = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    distances = knn_distances(X, 11)
    A = affinity(distances, kernel=kind, decay=4.0)
    # Where it is itself the farthest neighbour, the bandwidth is this very distance, in other digits.
    bandwidth = distances.max(axis=1).toarray().ravel() * (1 + 1e-6)
    same, edges, own = _edges(X[:1], X[1:], bandwidth[1:], 10)
    assert same[0] == -1
    assert own[0] == pytest.approx(bandwidth[0], rel=1e-5)
    found = Kernel.fitted(distances.data, bandwidth, kind, 4.0)(edges.data, own[0], bandwidth[1:][edges.indices])
    row = A[0, 1:].toarray().ravel()
    np.testing.assert_array_equal(np.sort(edges.indices), np.flatnonzero(row))
    np.testing.assert_allclose(found, row[edges.indices], rtol=1e-3)
    assert len(found) > 10  # those of other cells' neighbourhoods too


def joining(X: np.ndarray, potential: np.ndarray, pseudotime: np.ndarray, **options) -> Joining:
    options = {"plain": 1.0, "monotone": True} | options
    A = affinity(knn_distances(X, 6))
    return Joining.to(X, A, potential, pseudotime, n_neighbors=6, kernel="tempered", decay=40.0, **options)


@pytest.fixture
def line() -> tuple[np.ndarray, np.ndarray]:
    """Nodes along a line, and their places on it as their potential."""
    noise = np.random.default_rng(1).normal(scale=0.1, size=100)
    return np.column_stack([np.linspace(0, 20, 100), noise]), np.linspace(0, 20, 100)


def test_a_cell_gets_the_mean_of_its_neighbours_and_what_sets_it_apart(line):
    X, place = line
    inside, aside, far = (np.array([[10.05, height]]) for height in (0.0, 0.8, 8.0))
    mean = joining(X, place, place / 20, plain=0.0)
    full = joining(X, place, place / 20)
    assert mean(inside)[0] == pytest.approx([10.05, 10.05 / 20], abs=0.2)
    # It is farther from all of them, so that its last step costs more.
    extra = full(aside)[0] - mean(aside)[0]
    assert extra[0] > 0.1
    assert joining(X, place, place / 20, plain=0.5)(aside)[0, 0] == pytest.approx(mean(aside)[0, 0] + extra[0] / 2)
    # Ten times as far, no step of the graph's own cells is as dear: there is a limit.
    assert (full(far) - mean(far))[0, 0] == pytest.approx(full.limits[1])


def test_pseudotime_follows_the_potential_where_it_can(line):
    X, place = line
    aside = np.array([[10.05, 0.8]])
    ranks = np.arange(100) / 99
    for pseudotime in (place / 20, ranks, ranks**2):
        potential, found = joining(X, place, pseudotime)(aside)[0]
        assert found == pytest.approx(np.interp(potential, place, pseudotime))
    falling = joining(X, place, 1 - ranks, monotone=False)
    assert falling(aside)[0, 1] == pytest.approx(joining(X, place, 1 - ranks, monotone=False, plain=0.0)(aside)[0, 1])
    assert falling(aside)[0, 1] == pytest.approx(0.5, abs=0.05)


def test_a_cell_in_the_place_of_a_node_has_its_values(line):
    X, place = line
    join = joining(X, place, np.cos(place), monotone=False)
    expected = np.column_stack([place, np.cos(place)])
    np.testing.assert_array_equal(join(X), expected)
    np.testing.assert_array_equal(join(X + 1e-6), expected)  # but for rounding
    # Further columns than the graph was made in say nothing.
    np.testing.assert_array_equal(join(np.column_stack([X, np.ones(100)])), expected)


def test_cells_do_not_depend_on_those_they_come_with(monkeypatch):
    X = np.random.default_rng(4).normal(size=(300, 5))
    join = joining(X[:200], *np.random.default_rng(5).random((2, 200)), monotone=False)
    together = join(X[200:])
    monkeypatch.setattr("entropath_sc.core.joining.JOINED_CELLS", 7)
    np.testing.assert_array_equal(join(X[200:]), together)
    np.testing.assert_array_equal(join(X[250:251])[0], together[50])
