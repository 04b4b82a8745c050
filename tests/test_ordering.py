"""From a potential to an order: scaling, roots and terminal cells, on arrays."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import graph_of, path_graph, weighted_graph

from entropath_sc.core.cells import Cells
from entropath_sc.core.ensemble import PathEnsemble
from entropath_sc.core.pipeline import (
    DEFAULT,
    PAPER,
    between,
    landmark_graph,
    order,
    pinned,
    root_in,
    scaled,
    terminal_corrected,
)


def rows(n: int, *nodes: int) -> sp.csr_matrix:
    """Each of the nodes as a source of its own."""
    return sp.csr_matrix(np.eye(n)[list(nodes)])


def test_scaling_and_pinning():
    potential = np.array([3.0, 1.0, 2.0, 5.0])
    assert scaled(pinned(potential, np.array([0]))).tolist() == [0.0, 0.0, 0.25, 1.0]
    assert potential[0] == 3.0  # not changed itself
    # The step into a root, which all paths share, is not part of the scale.
    assert scaled(np.array([0.0, 4.0, 5.0, 8.0]), roots=np.array([0])).tolist() == [0.0, 0.0, 0.25, 1.0]
    assert scaled(np.zeros(2), roots=np.arange(2)).tolist() == [0.0, 0.0]
    assert scaled(potential, "rank").tolist() == [2 / 3, 0.0, 1 / 3, 1.0]
    assert scaled(np.array([1.0, 1.0, 2.0]), "rank").tolist() == [0.0, 0.0, 1.0]
    assert scaled(np.ones(3)).tolist() == scaled(np.ones(3), "rank").tolist() == [0.0, 0.0, 0.0]


def test_between_two_limits():
    assert between(np.array([2.0, 3.0, 6.0]), 2.0, 6.0).tolist() == [0.0, 0.25, 1.0]
    columns = between(np.array([[2.0, 5.0], [6.0, 5.0]]), np.array([2.0, 5.0]), np.array([6.0, 5.0]))
    assert columns.tolist() == [[0.0, 0.0], [1.0, 0.0]]


def test_terminal_correction_by_hand():
    times, towards = np.array([0.0, 0.5, 1.0]), np.array([1.0, 0.5, 0.0])
    assert terminal_corrected(times, towards, DEFAULT).tolist() == [0.0, 0.5, 1.0]
    assert terminal_corrected(np.zeros(2), np.zeros(2), DEFAULT).tolist() == [0.0, 0.0]
    # A terminal cell is last, wherever it was.
    assert terminal_corrected(np.array([0.4]), np.array([0.0]), DEFAULT).tolist() == [1.0]
    # Another branch leads away from the terminal cell: the share alone falls along it.
    times, towards = np.array([0.5, 0.6, 0.8]), np.array([0.5, 0.7, 1.0])
    assert terminal_corrected(times, towards, DEFAULT).tolist() == times.tolist()
    np.testing.assert_allclose(terminal_corrected(times, towards, PAPER), [0.5, 0.6 / 1.3, 0.8 / 1.8])


def test_each_set_of_sources_has_a_column():
    graph = graph_of(weighted_graph(40))
    found = order(graph, DEFAULT, [rows(40, 3), rows(40, 7, 9)])
    ensemble = PathEnsemble.of(graph, DEFAULT.depth)
    assert found.potentials.shape == (40, 2)
    np.testing.assert_array_equal(found.potentials[:, 0], ensemble.first_passages(np.array([3])))
    np.testing.assert_array_equal(found.potentials[:, 1], ensemble.first_passages(np.array([7, 9])))
    assert (found.potentials[:, 1][[7, 9]] == 0).all()


def test_a_source_between_nodes_begins_at_the_nearest():
    graph = graph_of(path_graph(20))
    shared = sp.csr_matrix(np.array([[0.2, 0.5, 0.3, *[0.0] * 17]]))
    np.testing.assert_array_equal(
        order(graph, DEFAULT, [shared]).potentials, order(graph, DEFAULT, [rows(20, 1)]).potentials
    )


@pytest.mark.parametrize("settings", [DEFAULT, PAPER], ids=["default", "paper"])
def test_the_root_of_a_category_is_deepest_inside_it(settings):
    graph = graph_of(path_graph(30))
    # The first ten nodes of a path: its end is farthest from the others. The mean over neighbours of the end is the
    # passage of its only neighbour, so that either of them may be found.
    assert root_in(graph, settings, None, np.arange(10)) in (0, 1)
    # In the middle of the path, the middle of the category.
    assert root_in(graph, settings, None, np.arange(10, 21)) == 15
    assert root_in(graph, settings, None, np.arange(30)) is None


def test_an_outlier_is_not_the_root_of_its_category():
    # A cell that hangs on the border of its category by one weak, long edge is far from all others, and its neighbour
    # is not.
    A = path_graph(30).tolil()
    A.resize(31, 31)
    A[3, 30] = A[30, 3] = 1e-6
    graph = graph_of(A)
    long = (graph.rows == 30) | (graph.affinity.indices == 30)
    graph = graph_of(A, np.where(long, 100.0, 1.0))
    members = np.append(np.arange(4), 30)
    passages = PathEnsemble.of(graph, DEFAULT.depth).first_passages(np.arange(4, 30))
    assert members[passages[members].argmax()] == 30
    assert root_in(graph, DEFAULT, None, members) in (0, 1)


def test_the_root_of_a_category_on_landmarks_is_one_of_its_cells():
    along = np.linspace(0, 20, 600)
    X = np.column_stack([along, np.random.default_rng(0).normal(scale=0.2, size=600)])
    cells = Cells(X)
    _, graph = landmark_graph(cells, DEFAULT, 100)
    members = np.arange(100, 300)
    found = root_in(graph, DEFAULT, cells, members)
    assert found in members
    assert along[found] == pytest.approx(along[200], abs=1.5)
