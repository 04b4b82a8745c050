from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist, pdist
from scipy.stats import pearsonr, spearmanr

import entropath_sc as ep
from entropath_sc.metrics import (
    branch_silhouette,
    continuity,
    demap,
    geodesic_correlation,
    kmeans_agreement,
    pseudotime_agreement,
    shortest_paths,
    trustworthiness,
)


@pytest.mark.parametrize(("method", "reference"), [("spearman", spearmanr), ("pearson", pearsonr)])
def test_geodesic_correlation_is_the_brute_force_one(method, reference):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    G, D = cdist(X, X), cdist(Y, Y)
    rows = np.mean([reference(d, g).statistic for d, g in zip(D, G, strict=True)])
    assert geodesic_correlation(D, G, method=method) == pytest.approx(rows)
    assert geodesic_correlation(Y, G, method=method) == pytest.approx(rows)
    overall = reference(pdist(Y), pdist(X)).statistic
    assert geodesic_correlation(Y, G, method=method, rowwise=False) == pytest.approx(overall)


def test_demap_is_one_for_the_truth_and_low_for_noise():
    angle = np.sort(np.random.default_rng(0).uniform(0, 3, 300))
    X = np.c_[np.cos(angle), np.sin(angle)]
    assert demap(X, angle[:, None])[0] > 0.999
    assert abs(demap(X, np.random.default_rng(1).normal(size=(300, 2)))[0]) < 0.1
    assert demap(X, angle[:, None], n_cells=100)[1] > 0


def test_bad_shapes_are_refused():
    with pytest.raises(ValueError, match="square"):
        geodesic_correlation(np.zeros((3, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="3 cells, geodesic 4"):
        geodesic_correlation(np.zeros((3, 2)), np.zeros((4, 4)))
    with pytest.raises(ValueError, match="'pearson'"):
        geodesic_correlation(np.zeros((3, 2)), np.zeros((3, 3)), method="kendall")
    with pytest.raises(ValueError, match="estimate holds NaN"):
        geodesic_correlation(np.full((3, 2), np.nan), np.ones((3, 3)))
    with pytest.raises(ValueError, match="embedding holds NaN"):
        demap(np.arange(20.0)[:, None], np.full((20, 2), np.nan), n_neighbors=3)


def brute_trustworthiness(X, Y, k):
    n = len(X)
    rank = [sorted(range(n), key=lambda j: (j == i, np.linalg.norm(X[i] - X[j]))) for i in range(n)]
    near = [sorted(range(n), key=lambda j: (j == i, np.linalg.norm(Y[i] - Y[j])))[:k] for i in range(n)]
    penalty = sum(max(0, rank[i].index(j) + 1 - k) for i in range(n) for j in near[i])
    return 1 - 2 * penalty / (n * k * (2 * n - 3 * k - 1))


def test_neighbourhoods_are_the_brute_force_ones():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 5)), rng.normal(size=(40, 2))
    assert trustworthiness(X, Y, n_neighbors=6) == pytest.approx(brute_trustworthiness(X, Y, 6))
    assert continuity(X, Y, n_neighbors=6) == pytest.approx(brute_trustworthiness(Y, X, 6))
    assert continuity(X, Y, n_neighbors=6) != pytest.approx(trustworthiness(X, Y, n_neighbors=6))
    with pytest.raises(ValueError, match="n_neighbors=20"):
        trustworthiness(X, Y, n_neighbors=20)


def test_shortest_paths_by_hand():
    graph = sp.csr_matrix(np.array([[0, 1, 5, 0], [0, 0, 1.5, 0], [0, 0, 0, 0], [0, 0, 0, 0.0]]))
    found = shortest_paths(graph)
    assert found[0, 2] == found[2, 0] == 2.5
    assert found[0, 3] == 5.0  # another component: twice the longest


def test_ties_share_their_rank():
    a, b = np.array([[0.0, 1, 1, 2, 3]] * 5), np.array([[0.0, 4, 2, 2, 5]] * 5)
    assert geodesic_correlation(a, b) == pytest.approx(spearmanr(a[0], b[0]).statistic)


def test_labels():
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "c"], 50)
    apart = rng.normal(size=(150, 2)) + 50 * np.repeat([[0, 0], [1, 0], [0, 1]], 50, axis=0)
    assert branch_silhouette(apart, labels) > 0.9
    assert kmeans_agreement(apart, labels) == pytest.approx({"homogeneity": 1, "ami": 1, "ari": 1, "nmi": 1})
    mixed = rng.normal(size=(150, 2))
    assert branch_silhouette(mixed, labels) < 0.1
    assert kmeans_agreement(mixed, labels)["ami"] < 0.1


def test_orders_agree_where_both_are_known():
    found = pseudotime_agreement([0, 1, np.inf, 2, 3], [0, 1, 2, 3, 2.5])
    assert found["spearman"] == pytest.approx(0.8)
    assert found["kendall"] == pytest.approx(2 / 3)


def test_fields_of_an_object_by_name():
    adata = ep.datasets.swiss_roll(200)
    adata.obsm["X"] = np.asarray(adata.X)
    adata.obsp["geodesic"] = ep.datasets.geodesic(adata)
    named = geodesic_correlation("intrinsic", "geodesic", adata=adata)
    assert named == pytest.approx(1.0)
    assert trustworthiness("intrinsic", "X", adata=adata) == trustworthiness(adata.obsm["intrinsic"], adata.obsm["X"])
    assert pseudotime_agreement("angle", "angle", adata=adata)["spearman"] == pytest.approx(1.0)
    with pytest.raises(KeyError, match="'X_umap' is neither in"):
        trustworthiness("X_umap", "X", adata=adata)
    with pytest.raises(ValueError, match="pass `adata=`"):
        trustworthiness("X_umap", "X")
    with pytest.raises(ValueError, match="reference has 200 cells, embedding 3"):
        demap("X", np.zeros((3, 2)), adata=adata)


def test_shortest_paths_pass_through_duplicates_and_refuse_what_is_no_length():
    # 0 and 1 are in the same place, which scanpy stores as a zero.
    graph = sp.csr_matrix((np.array([0.0, 2.0]), (np.array([0, 1]), np.array([1, 2]))), shape=(3, 3))
    np.testing.assert_array_equal(shortest_paths(graph), [[0, 0, 2], [0, 0, 2], [2, 2, 0]])
    assert demap(graph, np.array([[0.0], [0.0], [1.0]]))[0] == pytest.approx(1.0)
    for bad, words in ((-1.0, "negative lengths"), (np.nan, "graph holds NaN"), (np.inf, "graph holds NaN")):
        wrong = sp.csr_matrix(np.array([[0, bad], [0, 0]]))
        with pytest.raises(ValueError, match=words):
            shortest_paths(wrong)
        with pytest.raises(ValueError, match=words):
            demap(wrong, np.zeros((2, 1)))
    with pytest.raises(ValueError, match="must be square"):
        shortest_paths(sp.csr_matrix((2, 3)))
