"""Depth, scaling, landmarks and projection, on arrays."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import weighted_graph
from scipy.spatial.distance import cdist, pdist, squareform
from sklearn.manifold import smacof as sklearn_smacof
from sklearn.neighbors import NearestNeighbors

from entropath_sc.core import projection
from entropath_sc.core.affinity import affinity, bridge_components, knn_distances
from entropath_sc.core.depth import CONSISTENCY, DEEPEST, entropy_knee, find_knee, singular_values, von_neumann_entropy
from entropath_sc.core.diffusion import heat_kernel, shared
from entropath_sc.core.landmarks import RULES, anchor_graph, choose, compressed_graph, landmark_set
from entropath_sc.core.mds import classical, smacof
from entropath_sc.core.model import diffuse, dissimilarities, embed
from entropath_sc.core.perron import perron_pair, transition_matrix
from entropath_sc.core.placement import Nodes


def test_entropy_of_known_spectra():
    assert von_neumann_entropy(np.full(8, 0.5), 3) == pytest.approx([np.log(8)] * 3)
    # 1 and 1/2 at depth 1 are 2/3 and 1/3.
    expected = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
    assert von_neumann_entropy(np.array([1.0, 0.5]), 1)[0] == pytest.approx(expected)


def test_knee_of_two_lines_is_their_meeting():
    x = np.arange(40.0)
    assert find_knee(np.where(x < 12, 24 - 2 * x, 0.0)) == 12


def test_singular_values_are_those_of_an_svd():
    T = transition_matrix(weighted_graph(60), perron_pair(weighted_graph(60)).log_psi).toarray()
    np.testing.assert_allclose(singular_values(T), np.linalg.svd(T, compute_uv=False), atol=1e-7)


def test_knee_reports_where_it_lies_on_shorter_curves():
    A = weighted_graph(60)
    knee = entropy_knee(transition_matrix(A, perron_pair(A).log_psi).toarray(), 100)
    low, high = knee.depth_range
    assert 1 <= low <= knee.depth <= high <= 100
    assert len(knee.entropy) == 100


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
    # At the default tolerance ours stops no earlier, in terms of stress, than theirs.
    _, theirs = sklearn_smacof(
        D, n_components=n_components, init=start, n_init=1, eps=1e-6, max_iter=3000, normalized_stress=False
    )
    assert smacof(D, start).stress <= theirs * (1 + 1e-4)
    assert ours.stress == pytest.approx(((cdist(ours.coordinates, ours.coordinates) - D) ** 2).sum() / 2, rel=1e-5)


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
    monkeypatch.setattr(projection, "BLOCK_CELLS", block)
    indices, distances = projection.nearest_landmarks(X, landmarks, k)
    expected, expected_indices = NearestNeighbors(n_neighbors=k).fit(landmarks).kneighbors(X)
    np.testing.assert_allclose(distances, expected, rtol=1e-4)
    # In single precision a few pairs are equally far.
    assert (indices == expected_indices).mean() > 0.99
    assert all(len(set(row)) == k for row in indices)


def test_projection_weights_by_hand():
    distances = np.array([[1.0, 2.0]], dtype=np.float32)
    P = projection.weights(np.array([[1, 0]], dtype=np.int32), distances, np.array([4.0, 1.0])).toarray()
    # σ(x) = 2; landmark 1 has σ 1: exp(-1/2); landmark 0 has σ 4: exp(-4/8).
    assert P[0] == pytest.approx([0.5, 0.5])
    far = projection.weights(np.array([[1, 0]], dtype=np.int32), 1e6 * distances, np.array([4.0, 1.0]))
    assert far.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("rule", RULES)
def test_landmarks_are_distinct_seeded_and_include_what_is_asked(rule):
    X = np.random.default_rng(0).normal(size=(500, 3))
    chosen = choose(X, 50, rule, include=np.array([3, 499]), random_state=1)
    assert len(np.unique(chosen.cells)) == len(chosen.cells) == 50
    assert {3, 499} <= set(chosen.cells)
    np.testing.assert_array_equal(chosen.positions, X[chosen.cells].astype(np.float32))
    again = choose(X, 50, rule, include=np.array([3, 499]), random_state=1)
    np.testing.assert_array_equal(chosen.cells, again.cells)
    np.testing.assert_array_equal(chosen.centres, again.centres)
    assert set(chosen.cells) != set(choose(X, 50, rule, random_state=2).cells)


def test_centres_are_the_means_of_the_cells_around_the_landmarks():
    # Landmarks at 0 and 10; 4 is nearer to the first, 6 and 8 to the second, and stay so after each step.
    X = np.array([[0.0], [4.0], [6.0], [8.0], [10.0]])
    chosen = choose(X, 2, "farthest", include=np.array([0, 4]))
    np.testing.assert_array_equal(chosen.cells, [0, 4])
    np.testing.assert_allclose(chosen.centres, [[2.0], [8.0]])
    # Of landmarks in the same place one has all the cells, and the others stay.
    np.testing.assert_allclose(choose(np.ones((5, 1)), 3, "farthest").centres, 1.0)


@pytest.mark.parametrize("seed", [0, 1])
def test_centres_have_less_noise_than_cells(seed):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 20, size=2000), rng.normal(scale=0.5, size=(2000, 9))])
    chosen = choose(X, 100, "farthest")
    off_line = {name: np.linalg.norm(getattr(chosen, name)[:, 1:], axis=1).mean() for name in ("positions", "centres")}
    assert off_line["centres"] < 0.7 * off_line["positions"]
    assert np.ptp(chosen.centres[:, 0]) > 17


def test_farthest_points_cover_better_than_random_ones():
    X = np.random.default_rng(0).beta(1, 5, size=(800, 2))
    cover = {rule: cdist(X, choose(X, 40, rule).positions).min(axis=1).max() for rule in ("farthest", "random")}
    assert cover["farthest"] < 0.6 * cover["random"]


def test_landmarks_of_duplicated_cells():
    X = np.repeat(np.random.default_rng(0).normal(size=(20, 3)), 20, axis=0)
    for rule in RULES:
        marks = choose(X, 100, rule)
        A, _ = bridge_components(affinity(knn_distances(X, 15)), X)
        found = landmark_set(X, A, marks, "compressed", n_project=10)
        assert len(np.unique(marks.cells)) == 100
        assert np.isfinite(found.weights.data).all()


def test_compressed_graph_of_pairs_by_hand():
    A = weighted_graph(6).toarray()
    L = compressed_graph(weighted_graph(6), np.array([0, 0, 1, 1, 2, 2]), 3).toarray()
    for a in range(3):
        for b in range(3):
            assert L[a, b] == pytest.approx(A[2 * a : 2 * a + 2, 2 * b : 2 * b + 2].sum() / 2)
    # Its largest eigenvalue is a Rayleigh quotient of A.
    assert np.linalg.eigvalsh(L)[-1] <= np.linalg.eigvalsh(A)[-1] + 1e-12


def test_compression_on_all_cells_is_the_graph_itself():
    A = weighted_graph(20)
    np.testing.assert_allclose(compressed_graph(A, np.arange(20), 20).toarray(), A.toarray())


def test_votes_by_hand():
    # Two nodes whose bandwidths, 1 and 4, have the geometric mean 2; a reach of 0.8 squares to 0.64.
    nodes = Nodes(np.array([[0.0], [3.0]], dtype=np.float32), np.array([1.0, 4.0]), 2, coincide=False)
    cost = np.array([1.0**2 / (0.64 * 2 * 1), 2.0**2 / (0.64 * 2 * 4)])
    v = np.exp(-cost) / np.exp(-cost).sum()
    votes = nodes.votes(*nodes.nearest(np.array([[1.0]])))
    np.testing.assert_allclose(votes.toarray(), np.outer(v, v), rtol=1e-5)
    # A cell far from all but one of them keeps a small vote for the other.
    apart = Nodes(np.array([[0.0], [1e3]], dtype=np.float32), np.array([1.0, 1.0]), 2, coincide=False)
    votes = apart.votes(*apart.nearest(np.array([[0.0]]))).toarray()
    assert votes[0, 1] == pytest.approx(1e-4)


def test_anchor_graph_has_unit_perron_value():
    # diag(mass)^(-1/2) WᵀW diag(mass)^(-1/2) with rows of W summing to one: sqrt(mass) is its vector of eigenvalue 1.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    indices, distances = projection.nearest_landmarks(X, X[:30], 5)
    W = projection.weights(indices, distances, np.ones(30))
    L = anchor_graph((W.T @ W).tocsr())
    mass = np.asarray(W.sum(axis=0)).ravel()
    np.testing.assert_allclose(L @ np.sqrt(mass), np.sqrt(mass), rtol=1e-5)


def roll(n: int, seed: int = 0):
    import entropath_sc as ep

    adata = ep.datasets.swiss_roll(n, random_state=seed)
    intrinsic = adata.obsm["intrinsic"]
    return adata.X, cdist(intrinsic, intrinsic)


def test_compressed_landmarks_keep_a_roll_that_fresh_neighbours_lose():
    from entropath_sc.metrics import geodesic_correlation

    X, geodesic = roll(2500)
    A, _ = bridge_components(affinity(knn_distances(X, 10)), X)
    marks = choose(X, 800, "farthest")
    score = {}
    for graph in ("compressed", "knn"):
        found = landmark_set(X, A, marks, graph, n_neighbors=10)
        score[graph] = geodesic_correlation(found.weights @ embed(found.graph).coordinates, geodesic)
    assert score["compressed"] > 0.95
    assert score["knn"] < 0.9


def test_shared_dissimilarities_of_a_path_of_three():
    path = sp.csr_matrix([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    lengths = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    # The ends see ([0 1 2] + [1 0 1])/2 = [1/2 1/2 3/2], the middle ([1 0 1] + [1 1 1])/2; then the same for columns.
    expected = np.array([[0.0, 3.0, 4.0], [3.0, 0.0, 3.0], [4.0, 3.0, 0.0]]) / 4
    np.testing.assert_allclose(shared(lengths, path), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_sharing_with_neighbours_takes_off_noise(seed):
    import entropath_sc as ep

    tree = ep.datasets.tree(n_branches=10, branch_length=60, n_dims=60, noise=4.0, random_state=seed)
    geodesic = ep.datasets.geodesic(tree)
    A, _ = bridge_components(affinity(knn_distances(tree.X, 15)), tree.X)
    kernel = diffuse(A, depth="auto", max_depth=100, diffusion="heat").kernel
    score = {
        name: ep.metrics.geodesic_correlation(
            dissimilarities(A, kernel, diffusion="heat", dissimilarity=name), geodesic
        )
        for name in ("averaged", "balanced")
    }
    assert score["averaged"] > score["balanced"] + 0.002


def test_depth_rules():
    X, _ = roll(400)
    A = affinity(knn_distances(X, 12))
    knee = diffuse(A, depth="knee", max_depth=100, diffusion="power")
    assert knee.depth == knee.knee.depth
    auto = diffuse(A, depth="auto", max_depth=100, diffusion="heat")
    assert auto.depth == auto.consistent
    kept = auto.agreement >= CONSISTENCY
    assert auto.depth == auto.times[kept][-1] <= DEEPEST
    # It stops at the first depth that changes the ranks, or at the deepest one.
    assert kept[:-1].all()
    assert auto.times[-1] == DEEPEST or not kept[-1]
    cloud = affinity(knn_distances(np.random.default_rng(0).normal(size=(400, 20)), 12))
    early = diffuse(cloud, depth="auto", max_depth=100, diffusion="heat")
    assert early.depth == early.times[-2]
    assert early.agreement[-1] < CONSISTENCY <= early.agreement[-2]
    expected = heat_kernel(A.toarray() / auto.lambda_max, auto.depth, reach=200)
    np.testing.assert_allclose(np.log(auto.kernel), np.log(expected), atol=1e-4)
    shallow = diffuse(A, depth="auto", max_depth=5, diffusion="heat")
    assert shallow.depth == DEEPEST / 2
    fixed = diffuse(A, depth=7.5, max_depth=100, diffusion="heat")
    assert fixed.depth == 7.5
