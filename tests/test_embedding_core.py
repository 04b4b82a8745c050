"""Depth, scaling, landmarks and projection, on arrays."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import graph_of, path_graph, weighted_graph
from scipy.spatial.distance import cdist, pdist, squareform
from scipy.stats import spearmanr
from sklearn.manifold import smacof as sklearn_smacof
from sklearn.neighbors import NearestNeighbors

import entropath_sc as ep
from entropath_sc.core import search
from entropath_sc.core.cells import Cells
from entropath_sc.core.depth import (
    COMPARED,
    MAX_DEPTH,
    agreement,
    entropy_knee,
    find_knee,
    von_neumann_entropy,
)
from entropath_sc.core.ensemble import PathEnsemble
from entropath_sc.core.graph import graph_of_cells
from entropath_sc.core.landmarks import RULES, choose, compressed_graph, joined_graph
from entropath_sc.core.layout import classical, smacof, without_own_noise
from entropath_sc.core.neighbors import knn_distances
from entropath_sc.core.nodes import N_JOINED, REACH, SMALLEST_WEIGHT, Interpolator, Nodes, SoftAssignment
from entropath_sc.core.paper import singular_values
from entropath_sc.core.perron import perron_pair, transition_matrix
from entropath_sc.core.pipeline import DEFAULT, HEAT, PAPER, dissimilarities, embed, landmark_graph


def cell_graph(X: np.ndarray, n_neighbors: int):
    distances = knn_distances(X, n_neighbors)
    return graph_of_cells(distances, X, decay=DEFAULT.decay, bandwidth=DEFAULT.bandwidth)[0]


def test_entropy_of_known_spectra():
    assert von_neumann_entropy(np.full(8, 0.5), 3) == pytest.approx([np.log(8)] * 3)
    # 1 and 1/2 at depth 1 are 2/3 and 1/3.
    expected = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
    assert von_neumann_entropy(np.array([1.0, 0.5]), 1)[0] == pytest.approx(expected)


def test_knee_of_two_lines_is_their_meeting():
    x = np.arange(40.0)
    assert find_knee(np.where(x < 12, 24 - 2 * x, 0.0)) == 12


def test_singular_values_are_those_of_an_svd():
    T = transition_matrix(weighted_graph(60), perron_pair(weighted_graph(60)).log_psi)
    np.testing.assert_allclose(singular_values(T), np.linalg.svd(T.toarray(), compute_uv=False), atol=1e-7)


def test_knee_reports_where_it_lies_on_shorter_curves():
    A = weighted_graph(60)
    knee = entropy_knee(singular_values(transition_matrix(A, perron_pair(A).log_psi)))
    low, high = knee.depth_range
    assert 1 <= low <= knee.depth <= high <= MAX_DEPTH
    assert len(knee.entropy) == MAX_DEPTH
    assert knee.depth == find_knee(knee.entropy) + 1


def test_depths_around_the_chosen_one_are_compared():
    graph = cell_graph(np.random.default_rng(0).uniform(size=(150, 3)), 10)
    depths, alike = agreement(graph, 7.0)
    np.testing.assert_allclose(depths, 7.0 * COMPARED)
    middle = len(depths) // 2
    assert alike[middle] == pytest.approx(1.0)
    # The farther from the chosen depth, the less alike.
    assert (np.diff(alike[: middle + 1]) > 0).all()
    assert (np.diff(alike[middle:]) < 0).all()


def test_agreement_is_the_mean_rank_correlation_of_path_weights():
    graph = cell_graph(np.random.default_rng(0).uniform(size=(15, 2)), 6)  # so few that all are sources
    depths, alike = agreement(graph, 5.0)
    weights = []
    for depth in depths:
        N = PathEnsemble.of(graph, depth).normalised.toarray()
        weights.append(np.linalg.inv(np.eye(15) - N))
    for found, G in zip(alike, weights, strict=True):
        expected = np.mean([spearmanr(G[:, i], weights[2][:, i]).statistic for i in range(15)])
        assert found == pytest.approx(expected, abs=1e-9)


def test_classical_scaling_recovers_a_configuration():
    X = np.random.default_rng(0).normal(size=(60, 3))
    Y = classical(squareform(pdist(X)) ** 2, 3)
    np.testing.assert_allclose(pdist(Y), pdist(X), rtol=1e-8)


@pytest.mark.parametrize("n", [3, 4])
def test_scaling_of_very_few_points(n):
    X = np.random.default_rng(0).normal(size=(n, 2))
    D = squareform(pdist(X))
    np.testing.assert_allclose(pdist(smacof(D, classical(D**2, 2)).coordinates), pdist(X), rtol=1e-3)


@pytest.mark.parametrize("n_components", [2, 3])
def test_smacof_reaches_scikit_learns_stress(n_components):
    X = np.random.default_rng(0).normal(size=(300, 5))
    D = squareform(pdist(X)) ** 2
    start = classical(D, n_components)
    ours = smacof(D, start, eps=1e-9)
    _, theirs = sklearn_smacof(
        D, n_components=n_components, init=start, n_init=1, eps=1e-9, max_iter=3000, normalized_stress=False
    )
    assert ours.stress == pytest.approx(theirs, rel=1e-4)
    assert ours.converged
    assert ours.stress == pytest.approx(((cdist(ours.coordinates, ours.coordinates) - D) ** 2).sum() / 2, rel=1e-5)
    # At the default tolerance ours stops no earlier, in terms of stress, than theirs.
    pytest.importorskip("sklearn", minversion="1.7", reason="its tolerance was another one before")
    _, theirs = sklearn_smacof(
        D, n_components=n_components, init=start, n_init=1, eps=1e-6, max_iter=3000, normalized_stress=False
    )
    assert smacof(D, start).stress <= theirs * (1 + 1e-4)


def test_smacof_tells_when_it_did_not_converge():
    D = squareform(pdist(np.random.default_rng(0).normal(size=(50, 5))))
    layout = smacof(D, classical(D**2, 2), eps=0.0, max_iter=3)
    assert not layout.converged
    assert layout.n_iterations == 3


# Few and many landmarks; fewer and more of them than vectors hold, than there are groups, and all.
@pytest.mark.parametrize(
    ("n_landmarks", "k"), [(40, 1), (40, 7), (40, 40), (700, 16), (700, 50), (700, 100), (700, 700)]
)
@pytest.mark.parametrize("block", [13, 512])
def test_nearest_landmarks_are_exact(monkeypatch, n_landmarks, k, block):
    rng = np.random.default_rng(0)
    X, landmarks = rng.normal(size=(100, 6)) + 100, rng.normal(size=(n_landmarks, 6)) + 100
    monkeypatch.setattr(search, "BLOCK_CELLS", block)
    indices, distances = search.nearest_landmarks(X, landmarks, k)
    expected, expected_indices = NearestNeighbors(n_neighbors=k).fit(landmarks).kneighbors(X)
    np.testing.assert_allclose(distances, expected, rtol=1e-4)
    # In single precision a few pairs are equally far.
    assert (indices == expected_indices).mean() > 0.99
    assert all(len(set(row)) == k for row in indices)


def test_placement_weights_by_hand():
    distances = np.array([[1.0, 2.0]], dtype=np.float32)
    P = search.placement_weights(np.array([[1, 0]], dtype=np.int32), distances, np.array([4.0, 1.0])).toarray()
    # σ(x) = 2; landmark 1 has σ 1: exp(-1/2); landmark 0 has σ 4: exp(-4/8).
    assert P[0] == pytest.approx([0.5, 0.5])
    far = search.placement_weights(np.array([[1, 0]], dtype=np.int32), 1e6 * distances, np.array([4.0, 1.0]))
    assert far.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("rule", RULES)
def test_landmarks_are_distinct_seeded_and_include_what_is_asked(rule):
    X = np.random.default_rng(0).normal(size=(500, 3))
    chosen = choose(Cells(X), 50, rule, include=np.array([3, 499]), random_state=1)
    assert len(np.unique(chosen.cells)) == len(chosen.cells) == 50
    assert {3, 499} <= set(chosen.cells)
    np.testing.assert_array_equal(chosen.positions, X[chosen.cells].astype(np.float32))
    again = choose(Cells(X), 50, rule, include=np.array([3, 499]), random_state=1)
    np.testing.assert_array_equal(chosen.cells, again.cells)
    np.testing.assert_array_equal(chosen.centres, again.centres)
    assert set(chosen.cells) != set(choose(Cells(X), 50, rule, random_state=2).cells)


def test_centres_are_the_means_of_the_cells_around_the_landmarks():
    # Landmarks at 0 and 10; 4 is nearer to the first, 6 and 8 to the second, and stay so after each step.
    X = np.array([[0.0], [4.0], [6.0], [8.0], [10.0]])
    chosen = choose(Cells(X), 2, "farthest", include=np.array([0, 4]))
    np.testing.assert_array_equal(chosen.cells, [0, 4])
    np.testing.assert_allclose(chosen.centres, [[2.0], [8.0]])
    # Of landmarks in the same place one has all the cells, and the others stay.
    np.testing.assert_allclose(choose(Cells(np.ones((5, 1))), 3, "farthest").centres, 1.0)


@pytest.mark.parametrize("seed", [0, 1])
def test_centres_have_less_noise_than_cells(seed):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 20, size=2000), rng.normal(scale=0.5, size=(2000, 9))])
    chosen = choose(Cells(X), 100, "farthest")
    off_line = {name: np.linalg.norm(getattr(chosen, name)[:, 1:], axis=1).mean() for name in ("positions", "centres")}
    assert off_line["centres"] < 0.7 * off_line["positions"]
    assert np.ptp(chosen.centres[:, 0]) > 17


def test_farthest_points_cover_better_than_random_ones():
    X = np.random.default_rng(0).beta(1, 5, size=(800, 2))
    cover = {rule: cdist(X, choose(Cells(X), 40, rule).positions).min(axis=1).max() for rule in ("farthest", "random")}
    assert cover["farthest"] < 0.6 * cover["random"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("joined", [True, False], ids=["cells' graph", "all cells"])
def test_landmarks_of_duplicated_cells(rule, joined):
    from dataclasses import replace

    X = np.repeat(np.random.default_rng(0).normal(size=(20, 3)), 20, axis=0)
    affinity = cell_graph(X, 25).affinity if joined else None
    marks, graph = landmark_graph(Cells(X), replace(DEFAULT, landmarks=rule), 100, affinity=affinity)
    assert len(marks.cells) == len(np.unique(marks.positions, axis=0)) == 20
    assert np.isfinite(graph.affinity.data).all()
    assert graph.lengths.min() > 0
    assert np.isfinite(PathEnsemble.of(graph, DEFAULT.depth).first_passages(np.array([0]))).all()


def nodes_at(X: np.ndarray) -> Nodes:
    return Nodes.at(X, n_project=5, n_neighbors=5)


def test_compressed_graph_of_pairs_by_hand():
    A = weighted_graph(6).toarray()
    nodes = nodes_at(np.array([[0.0], [1.0], [3.0]]))
    graph = compressed_graph(weighted_graph(6), np.array([0, 0, 1, 1, 2, 2]), nodes)
    L = graph.affinity.toarray()
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        assert L[a, b] == L[b, a] == pytest.approx(A[2 * a : 2 * a + 2, 2 * b : 2 * b + 2].sum() / 2)
    assert (L.diagonal() == 0).all()
    # An edge is as long as its ends are apart.
    np.testing.assert_allclose(graph.lengths, [1.0, 3.0, 1.0, 2.0, 3.0, 2.0])


def test_compression_on_all_cells_is_the_graph_itself():
    A = weighted_graph(20)
    nodes = nodes_at(np.random.default_rng(0).normal(size=(20, 2)))
    np.testing.assert_allclose(compressed_graph(A, np.arange(20), nodes).affinity.toarray(), A.toarray())


def test_soft_assignment_by_hand():
    # Two nodes whose bandwidths, 1 and 4, have the geometric mean 2.
    nodes = Nodes(np.array([[0.0], [3.0]], dtype=np.float32), np.array([1.0, 4.0]), 2)
    cost = np.array([1.0**2 / (REACH**2 * 2 * 1), 2.0**2 / (REACH**2 * 2 * 4)])
    v = np.exp(-cost) / np.exp(-cost).sum()
    found = SoftAssignment(nodes)(*nodes.nearest(np.array([[1.0]])))
    np.testing.assert_allclose(found.toarray(), np.outer(v, v), rtol=1e-5)
    # A cell far from all but one of them keeps a small weight on the other.
    apart = Nodes(np.array([[0.0], [1e3]], dtype=np.float32), np.array([1.0, 1.0]), 2)
    found = SoftAssignment(apart)(*apart.nearest(np.array([[0.0]]))).toarray()
    assert found[0, 1] == pytest.approx(SMALLEST_WEIGHT)


def test_soft_assignments_of_parts_add_up():
    X = np.random.default_rng(0).normal(size=(200, 3))
    nodes = Nodes.at(X[:30], n_project=10, n_neighbors=5)
    assign = SoftAssignment(nodes)
    indices, distances = nodes.nearest(X)
    parts = sum(assign(indices[some], distances[some]) for some in (slice(0, 70), slice(70, 200)))
    np.testing.assert_allclose(parts.toarray(), assign(indices, distances).toarray(), rtol=1e-12)
    # A cell joins its few nearest nodes only, all pairs of them.
    assert assign(indices[:1], distances[:1]).nnz == N_JOINED**2


def test_joined_landmarks_have_unit_perron_value():
    # diag(mass)^(-1/2) VᵀV diag(mass)^(-1/2) with rows of V summing to one: sqrt(mass) is its vector of eigenvalue 1.
    X = np.random.default_rng(0).normal(size=(200, 3))
    indices, distances = search.nearest_landmarks(X, X[:30], 5)
    V = search.placement_weights(indices, distances, np.ones(30)).astype(np.float64)
    mass = np.asarray(V.sum(axis=0)).ravel()
    total = (V.T @ V).tocsr()
    graph = joined_graph(total, nodes_at(X[:30]))
    own = total.diagonal() / mass  # on the diagonal, which a graph leaves out
    np.testing.assert_allclose(graph.affinity @ np.sqrt(mass) + own * np.sqrt(mass), np.sqrt(mass), rtol=1e-5)
    assert (graph.affinity.diagonal() == 0).all()
    assert (np.abs(graph.affinity - graph.affinity.T) > 1e-12).nnz == 0


def test_the_papers_landmarks_are_a_neighbour_graph_of_their_own():
    X = np.random.default_rng(0).normal(size=(300, 3))
    marks, graph = landmark_graph(Cells(X), PAPER, 80, n_neighbors=9)
    np.testing.assert_array_equal(graph.nodes.positions, X[marks.cells].astype(np.float32))
    expected, _ = graph_of_cells(
        knn_distances(graph.nodes.positions, 9), graph.nodes.positions, decay=PAPER.decay, bandwidth=PAPER.bandwidth
    )
    np.testing.assert_array_equal(graph.affinity.toarray(), expected.affinity.toarray())


def test_a_cell_between_two_nodes_by_hand():
    nodes = Nodes.at(np.array([[0.0], [2.0]]), n_project=2, n_neighbors=2)
    place = Interpolator(nodes, np.array([[10.0], [20.0]]), remoteness=True)
    found = place(*nodes.nearest(np.array([[1.0], [8.0]])))
    assert found[0] == pytest.approx([15.0, 0.5])
    # Far off: σ(x) = 8, so the weights are exp(-36/16) and exp(-64/16); the distance is three times that of the nodes.
    assert found[1, 0] == pytest.approx((20 * np.exp(-2.25) + 10 * np.exp(-4)) / (np.exp(-2.25) + np.exp(-4)))
    assert found[1, 1] == pytest.approx(3.0)


@pytest.mark.parametrize("exact", [True, False])
def test_cells_have_their_own_values_only_where_nodes_are_cells(exact):
    X = np.random.default_rng(0).normal(size=(50, 3))
    values = np.arange(50.0)[:, None]
    nodes = Nodes.at(X, n_project=5, n_neighbors=10)
    found = Interpolator(nodes, values, exact=exact)(*nodes.nearest(X))
    assert (np.abs(found - values).max() < 1e-5) == exact


def roll(n: int, seed: int = 0):
    adata = ep.datasets.swiss_roll(n, random_state=seed)
    intrinsic = adata.obsm["intrinsic"]
    return adata.X, cdist(intrinsic, intrinsic)


def test_compressed_landmarks_keep_a_roll_that_fresh_neighbours_lose():
    X, geodesic = roll(1500)
    cells = Cells(X)
    _, compressed = landmark_graph(cells, DEFAULT, 400, affinity=cell_graph(X, 10).affinity, n_neighbors=10)
    _, fresh = landmark_graph(cells, PAPER, 400, n_neighbors=10)
    score = {}
    for name, graph in (("compressed", compressed), ("fresh", fresh)):
        placed = graph.carry(embed(graph, DEFAULT).coordinates, cells, name)
        score[name] = ep.metrics.geodesic_correlation(placed, geodesic)
    assert score["compressed"] > 0.95
    assert score["fresh"] < 0.9


def test_own_noise_by_hand():
    # So few that all others are nearest: the means of the rows are 3/2, 3/2 and 2.
    D = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 2.0], [2.0, 2.0, 0.0]])
    expected = np.array([[0.0, 0.0, 0.25], [0.0, 0.0, 0.25], [0.25, 0.25, 0.0]])
    np.testing.assert_allclose(without_own_noise(D), expected)


@pytest.mark.parametrize("seed", [0, 1])
def test_taking_off_own_noise_helps_where_there_is_much(seed):
    tree = ep.datasets.tree(n_branches=10, branch_length=60, n_dims=60, noise=4.0, random_state=seed)
    geodesic = ep.datasets.geodesic(tree)
    D = PathEnsemble.of(cell_graph(tree.X, 15), DEFAULT.depth).free_energies()
    with_noise, without = (ep.metrics.geodesic_correlation(d, geodesic) for d in (D, without_own_noise(D)))
    assert without > with_noise


@pytest.mark.parametrize("settings", [PAPER, HEAT], ids=["paper", "heat"])
def test_the_published_depth_is_the_knee_unless_it_is_given(settings):
    from dataclasses import replace

    graph = cell_graph(roll(300)[0], 12)
    _, knee = dissimilarities(graph, settings)
    assert knee.depth == knee.knee.depth
    D, given = dissimilarities(graph, replace(settings, depth=7))
    assert given.depth == 7
    assert given.knee.depth == knee.depth
    assert not np.array_equal(D, dissimilarities(graph, replace(settings, depth=8))[0])


def test_the_default_depth_is_the_given_one():
    from dataclasses import replace

    graph = cell_graph(roll(300)[0], 12)
    D, found = dissimilarities(graph, replace(DEFAULT, depth=7.5))
    assert found.depth == 7.5
    assert found.depths[len(found.depths) // 2] == 7.5
    np.testing.assert_array_equal(D, without_own_noise(PathEnsemble.of(graph, 7.5).free_energies()))


@pytest.mark.parametrize("settings", [DEFAULT, HEAT], ids=["default", "heat"])
def test_a_path_becomes_a_line(settings):
    place = embed(graph_of(path_graph(40)), settings, n_components=1).coordinates[:, 0]
    assert abs(spearmanr(place, np.arange(40)).statistic) > 0.99


def test_means_of_nodes_and_their_indices():
    graph = graph_of(weighted_graph(10))
    found = graph.sources(None, np.array([4, 2]))
    assert found.shape == (2, 10)
    np.testing.assert_array_equal(found.toarray(), sp.eye_array(10).toarray()[[4, 2]])
    values = np.arange(20.0).reshape(10, 2)
    assert graph.carry(values, None, "nothing") is values


def test_nearest_among_very_many_equally_near_landmarks():
    """More candidates than are sorted by counting: the nearest come first, and none twice."""
    rng = np.random.default_rng(0)
    landmarks = np.ones((3000, 4), dtype=np.float32)
    landmarks[::500] = rng.normal(scale=0.01, size=(6, 4))
    X = rng.normal(scale=0.01, size=(50, 4)).astype(np.float32)
    indices, distances = search.nearest_landmarks(X, landmarks, 12)
    assert (np.sort(indices[:, :6], axis=1) == np.arange(0, 3000, 500)).all()
    assert (np.diff(distances, axis=1) >= 0).all()
    assert all(len(set(row)) == 12 for row in indices)
    np.testing.assert_allclose(distances, np.linalg.norm(X[:, None] - landmarks[indices], axis=2), atol=1e-6)
