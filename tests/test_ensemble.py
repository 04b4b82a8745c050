"""The path ensemble, where the answer is known on paper."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import graph_of, weighted_graph
from scipy.sparse.csgraph import dijkstra
from scipy.stats import spearmanr

import entropath_sc as ep
from entropath_sc.core.ensemble import PathEnsemble, equalise
from entropath_sc.core.graph import Bridges, Graph, graph_of_cells
from entropath_sc.core.kernel import Kernel
from entropath_sc.core.layout import without_own_noise
from entropath_sc.core.neighbors import knn_distances
from entropath_sc.core.new_cells import PassagesOfNeighbors
from entropath_sc.core.perron import perron_pair


def graph_from(A, lengths=1.0) -> Graph:
    """A graph with the given affinities, and lengths of its edges."""
    A = sp.csr_matrix(A)
    A.sort_indices()
    bridges = Bridges(np.array([A.shape[0]]), np.empty((0, 2), dtype=int), np.empty(0))
    return Graph(A, np.broadcast_to(lengths, A.nnz).astype(float), bridges)


def random_graph(n: int, seed: int) -> Graph:
    A = weighted_graph(n, seed)
    lengths = np.random.default_rng(seed).uniform(0.3, 2.0, size=(n, n))
    lengths = lengths + lengths.T
    rows = np.repeat(np.arange(n), np.diff(A.indptr))
    return graph_from(A, lengths[rows, A.indices])


def path(n: int) -> np.ndarray:
    return np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)


def star(n: int) -> np.ndarray:
    A = np.zeros((n, n))
    A[0, 1:] = A[1:, 0] = 1.0
    return A


def ring(n: int) -> np.ndarray:
    A = path(n)
    A[0, -1] = A[-1, 0] = 1.0
    return A


GRAPHS = {
    "random": weighted_graph(40).toarray(),
    "star": star(9),
    "odd path": path(7),
    "weak pendant": np.pad(weighted_graph(20).toarray(), (0, 1)) + 1e-9 * (star(21) > 0),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_equalised_rows_sum_to_one_and_their_perron_vector_is_flat(name):
    A = GRAPHS[name]
    s = equalise(sp.csr_matrix(A))
    B = s[:, None] * (A + np.eye(len(A))) * s[None, :]
    np.testing.assert_allclose(B.sum(axis=1), 1.0, atol=2e-6)
    pair = perron_pair(B)
    assert pair.lambda_max == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(pair.log_psi, pair.log_psi[0], atol=1e-2)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("depth", [0.5, 10.0])
def test_free_energies_are_a_metric(seed, depth):
    D = PathEnsemble.of(random_graph(30, seed), depth).free_energies()
    assert (D == D.T).all()
    assert (np.diag(D) == 0).all()
    assert (D[~np.eye(30, dtype=bool)] > 0).all()
    through = (D[:, :, None] + D[None, :, :]).min(axis=1)  # the best way through a third node
    assert (D <= through + 1e-12).all()


def test_free_energies_add_up_through_a_cut_vertex():
    # Two random graphs that share node 19.
    left, right = weighted_graph(20, 1).toarray(), weighted_graph(20, 2).toarray()
    A = np.zeros((39, 39))
    A[:20, :20], A[19:, 19:] = left, A[19:, 19:] + right
    D = PathEnsemble.of(graph_from(A), 7.0).free_energies()
    np.testing.assert_allclose(D[:19, 20:], D[:19, 19][:, None] + D[19, 20:][None, :], rtol=1e-12)
    assert D[0, 1] < D[0, 19] + D[19, 1] - 1e-3  # within a part there are ways around it


def test_closed_form_on_a_ring():
    n, depth = 60, 8.0
    ensemble = PathEnsemble.of(graph_from(ring(n)), depth)
    # Each step goes either way with weight e^{-1/depth}/2: cosh is the solution that is even around the ring.
    theta = np.arccosh(np.exp(1 / depth))
    hops = np.minimum(np.arange(n), n - np.arange(n))
    expected = np.log(np.cosh(n * theta / 2) / np.cosh((n / 2 - hops) * theta))
    np.testing.assert_allclose(ensemble.first_passages(np.array([0])), expected, atol=1e-9)
    np.testing.assert_allclose(ensemble.free_energies()[0], expected, atol=1e-9)


def test_closed_form_on_a_chain_with_an_open_end():
    n, depth = 80, 5.0
    W, degree = sp.csr_matrix(path(n) * np.exp(-1 / depth)), path(n).sum(axis=1)
    ensemble = PathEnsemble(W, degree, np.ones(n), 1.0, depth)
    theta = np.arccosh(np.exp(1 / depth))
    expected = np.log(np.cosh((n - 1) * theta) / np.cosh((n - 1 - np.arange(n)) * theta))
    np.testing.assert_allclose(ensemble.first_passages(np.array([0])), expected, atol=1e-9)


def test_far_down_a_chain_every_entry_is_accurate_relative_to_itself():
    n = 2000
    rng = np.random.default_rng(0)
    b, loss = rng.uniform(0.2, 0.5, n - 1), rng.uniform(0.5, 0.95, n - 1)
    W, B = (sp.csr_matrix(sp.diags([v, v], [-1, 1])) for v in (b * loss, b))
    degree = np.asarray(B.sum(axis=1)).ravel()
    ensemble = PathEnsemble(W, degree, np.ones(n), 1.0, 1.0)
    found = ensemble.first_passages(np.array([0]))
    # Elimination from the far end, f_i = r_i f_{i-1} with r_i = w_{i-1}/(Δ_i - w_i r_{i+1}), in 50 digits.
    with localcontext() as context:
        context.prec = 50
        w, delta = [Decimal(x) for x in b * loss], [Decimal(x) for x in degree]
        ratios, r = [], Decimal(0)
        for i in range(n - 1, 0, -1):
            r = w[i - 1] / (delta[i] - (w[i] * r if i < n - 1 else 0))
            ratios.append(r)
        costs = [-float(r.ln()) for r in reversed(ratios)]
    expected = np.append(0.0, np.cumsum(costs))
    assert expected[-1] > 460  # far below 1e-200
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert ensemble.residual(found, np.array([0])) < 1e-7
    # The dense inverse too, as far as floats reach.
    m = int((expected < 600).sum())
    part = PathEnsemble(W[:m, :m], np.asarray(B[:m, :m].sum(axis=1)).ravel(), np.ones(m), 1.0, 1.0)
    forward, backward = part.first_passages(np.array([0]))[-1], part.first_passages(np.array([m - 1]))[0]
    assert forward > 400
    assert part.free_energies()[0, -1] == pytest.approx(0.5 * (forward + backward), abs=1e-8)


def test_free_energies_add_up_beyond_the_range_of_floats():
    """On a path every node between two is a cut, also where the weight of all paths is far below the smallest float."""
    D = PathEnsemble.of(graph_from(path(900)), 0.5).free_energies()
    assert D[0, -1] > 1500
    for middle in (7, 450, 893):
        assert D[0, -1] == pytest.approx(D[0, middle] + D[middle, -1], rel=1e-9)


def test_first_passages_are_those_of_simulated_walks():
    graph = random_graph(12, 3)
    ensemble = PathEnsemble.of(graph, 6.0)
    step = ensemble.weights.toarray() / ensemble.degree[:, None]
    survives = step.sum(axis=1)
    rng = np.random.default_rng(0)
    at, arrived, alive = np.full(40_000, 11), np.zeros(40_000, dtype=bool), np.ones(40_000, dtype=bool)
    cumulative = np.cumsum(step / survives[:, None], axis=1)
    while alive.any():
        walkers = np.flatnonzero(alive)
        lives = rng.random(len(walkers)) < survives[at[walkers]]
        alive[walkers[~lives]] = False
        walkers = walkers[lives]
        at[walkers] = (rng.random((len(walkers), 1)) > cumulative[at[walkers]]).sum(axis=1)
        arrived[walkers[at[walkers] == 0]] = True
        alive[at == 0] = False
    expected = np.exp(-ensemble.first_passages(np.array([0]))[11])
    assert arrived.mean() == pytest.approx(expected, abs=4 * np.sqrt(expected / 40_000))


def test_free_energy_is_the_mean_of_both_passages():
    ensemble = PathEnsemble.of(random_graph(25, 4), 10.0)
    there, back = ensemble.first_passages(np.array([3]))[9], ensemble.first_passages(np.array([9]))[3]
    assert there != pytest.approx(back, rel=1e-3)
    assert ensemble.free_energies()[3, 9] == pytest.approx(0.5 * (there + back), rel=1e-10)


def test_at_no_depth_paths_are_shortest_paths():
    graph = random_graph(40, 5)
    lengths = sp.csr_matrix((graph.lengths, graph.affinity.indices, graph.affinity.indptr))
    shortest = dijkstra(lengths, indices=0)[1:]
    errors = []
    for depth in (0.02, 0.01, 0.005):
        ensemble = PathEnsemble.of(graph, depth)
        found = ensemble.first_passages(np.array([0]))[1:] * depth * ensemble.unit
        errors.append(np.abs(found / shortest - 1).max())
    # What is left is -log of the steps' own weights, times the depth.
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.01)
    assert errors[2] == pytest.approx(errors[0] / 4, rel=0.01)
    assert errors[2] < 0.1


def test_an_order_has_no_local_minimum_but_its_roots():
    graph = random_graph(60, 6)
    u = PathEnsemble.of(graph, 10.0).first_passages(np.array([5, 17]))
    assert (u[[5, 17]] == 0).all()
    lowest = np.minimum.reduceat(u[graph.affinity.indices], graph.affinity.indptr[:-1])
    others = np.setdiff1d(np.arange(60), [5, 17])
    assert (lowest[others] < u[others]).all()


def test_own_noise_is_taken_off_half_by_half():
    # Three nodes at mutual dissimilarities 2, 3 and 4: o = 2.5, 3 and 3.5.
    D = np.array([[0.0, 2, 3], [2, 0, 4], [3, 4, 0]])
    expected = D - 0.5 * (np.array([2.5, 3, 3.5])[:, None] + np.array([2.5, 3, 3.5]))
    np.testing.assert_allclose(
        without_own_noise(D)[np.triu_indices(3, 1)], np.maximum(expected, 0)[np.triu_indices(3, 1)]
    )


def test_new_cells_solve_the_equation_of_the_graphs_own():
    rng = np.random.default_rng(1)
    X = np.c_[np.sort(rng.uniform(0, 10, 300)), rng.normal(scale=0.2, size=(300, 2))]
    distances = knn_distances(X, 10)
    graph, bandwidths = graph_of_cells(distances, X, decay=3.0, bandwidth="fixed")
    kernel = Kernel.fitted(3.0, "fixed", distances.data, bandwidths)
    ensemble = PathEnsemble.of(graph, 10.0)
    u = ensemble.first_passages(np.array([0]))
    function = PassagesOfNeighbors(
        kernel, bandwidths, ensemble.scale, u[:, None], u[:, None] / u.max(), ensemble.unit, 10.0
    )
    for cell in (7, 150, 299):
        edges = slice(*graph.affinity.indptr[cell : cell + 2])
        found = function(graph.affinity.indices[None, edges], graph.lengths[None, edges])
        assert found[0, 0] == pytest.approx(u[cell], abs=1e-6)
        same = function(np.array([[cell, 1]]), np.array([[0.0, 1.0]]))
        np.testing.assert_allclose(same[0], [u[cell], u[cell] / u.max()])


def test_duplicates_and_outliers_leave_the_order_as_it_is():
    rng = np.random.default_rng(2)
    t = np.sort(rng.uniform(0, 1, 500))
    X = np.c_[20 * t, rng.normal(scale=0.3, size=(500, 4))]

    def order(X):
        graph, _ = graph_of_cells(knn_distances(X, 12), X, decay=3.0, bandwidth="tempered")
        return PathEnsemble.of(graph, 10.0).first_passages(np.array([0]))

    plain = order(X)
    far = X.copy()
    far[250] *= 1000
    others = np.delete(np.arange(500), 250)
    found = order(far)
    assert np.isfinite(found).all()
    assert spearmanr(found[others], plain[others])[0] > 0.9995
    twins = order(np.vstack([X, np.repeat(X[[100]], 40, axis=0)]))
    assert np.isfinite(twins).all()
    assert spearmanr(twins[:500], plain)[0] > 0.995


def test_a_roll_is_unrolled_where_the_published_method_cuts_across_its_folds():
    adata = ep.datasets.swiss_roll(1500, random_state=1)
    truth = ep.datasets.geodesic(adata)
    scores = {}
    for preset, kernel in (("default", {}), ("paper", {"decay": 2, "bandwidth": "adaptive"})):
        ep.tl.merw_graph(adata, use_rep="X", preset=preset, **kernel)
        ep.tl.embedding(adata, preset=preset)
        scores[preset] = ep.metrics.geodesic_correlation("X_entropath", truth, adata=adata)
    assert scores["default"] > 0.98
    assert scores["paper"] < 0.95


def test_the_true_time_of_a_tree_is_found_where_the_published_potential_bends_it():
    adata = ep.datasets.branching(800, random_state=2)
    scores = {}
    for preset in ("default", "paper"):
        ep.tl.merw_graph(adata, preset=preset)
        ep.tl.pseudotime(adata, root=adata.uns["root"], preset=preset)
        scores[preset] = spearmanr(adata.obs["entropath_pseudotime"], adata.obs["time"])[0]
    assert scores["default"] > 0.97
    assert scores["paper"] < 0.95


def test_free_energies_do_not_depend_on_the_order_of_the_nodes():
    X = ep.datasets.branching(n_cells=700, n_genes=60).obsm["X_pca"]
    graph, _ = graph_of_cells(knn_distances(X, 10), X, decay=3.0, bandwidth="tempered")
    D = PathEnsemble.of(graph, 10.0).free_energies()
    shuffled = np.random.default_rng(0).permutation(len(X))
    other, _ = graph_of_cells(knn_distances(X[shuffled], 10), X[shuffled], decay=3.0, bandwidth="tempered")
    np.testing.assert_array_equal(D, D.T)
    np.testing.assert_allclose(PathEnsemble.of(other, 10.0).free_energies(), D[np.ix_(shuffled, shuffled)], atol=1e-8)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(wrong):
    graph = graph_of(weighted_graph(20))
    ensemble = PathEnsemble.of(graph, 10.0)
    ensemble.weights.data[-1] = wrong
    with pytest.raises(ArithmeticError, match="not finite"), np.errstate(all="ignore"):
        ensemble.first_passages(np.array([0]))


def test_the_nearest_nodes_are_those_with_most_paths():
    """Chosen from the nodes around, which are fewer than all of them here."""
    X = ep.datasets.branching(n_cells=1500, n_genes=60).obsm["X_pca"]
    graph, _ = graph_of_cells(knn_distances(X, 15), X, decay=3.0, bandwidth="tempered")
    ensemble, nodes = PathEnsemble.of(graph, 10.0), [0, 400, 800, 1200]
    found = ensemble.nearest(nodes, np.arange(1500), 3)
    for node, near in zip(nodes, found, strict=True):
        assert near.tolist() == np.argsort(ensemble.first_passages(np.array([node])))[:3].tolist()
