"""What the paper proves, checked where the answer is known."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import graph_of, path_graph, unweighted_graph, weighted_graph
from scipy.linalg import expm
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from entropath_sc.core import perron
from entropath_sc.core.graph import graph_of_cells
from entropath_sc.core.neighbors import knn_distances
from entropath_sc.core.paper import (
    HEAT_FLOOR,
    POWER_FLOOR,
    count_hops,
    free_energies,
    heat_kernel,
    matrix_power,
    potential,
)
from entropath_sc.core.perron import log_stationary, perron_pair, transition_matrix
from entropath_sc.core.pipeline import PAPER


def paths(A: np.ndarray, k: int, i: int, j: int):
    """All k-step paths from i to j, with the weight of each."""
    for middle in product(range(len(A)), repeat=k - 1):
        path = (i, *middle, j)
        weight = np.prod([A[u, v] for u, v in pairwise(path)])
        if weight > 0:
            yield path, weight


def test_perron_pair_of_a_star_is_known():
    # A star with m leaves: λ = sqrt(m), centre 1/sqrt(2), each leaf 1/sqrt(2m).
    m = 9
    A = sp.csr_matrix((np.ones(m), (np.zeros(m, int), np.arange(1, m + 1))), shape=(m + 1, m + 1))
    A = (A + A.T).tocsr()
    pair = perron_pair(A)
    assert pair.lambda_max == pytest.approx(3.0)
    np.testing.assert_allclose(np.exp(pair.log_psi), [2**-0.5, *[18**-0.5] * m], rtol=1e-8)


def test_perron_pair_of_landmarks_that_are_almost_apart(monkeypatch):
    # Weights V with rows of sum one, masses m = Vᵀ1: VᵀV scaled by 1/sqrt(m) has λ = 1 and ψ ∝ sqrt(m). Half of the
    # landmarks are well joined and half of them by one part in a million, where Lanczos does not converge for long;
    # with few restarts it gives up whatever its implementation.
    monkeypatch.setattr(perron, "MOST_RESTARTS", 10)
    n = 300
    rng = np.random.default_rng(0)
    cells, near = np.arange(5 * n), np.append(np.arange(n), rng.integers(n, size=4 * n))
    next_to = (near + rng.integers(1, 4, size=5 * n)) % n
    share = np.where(near < n // 2, 0.4, 1e-6 * rng.uniform(0.1, 1.0, size=5 * n))
    V = sp.csr_matrix((np.append(1 - share, share), (np.tile(cells, 2), np.append(near, next_to))), shape=(5 * n, n))
    mass = np.asarray(V.sum(axis=0)).ravel()
    scale = sp.diags(1.0 / np.sqrt(mass))
    A = sp.csr_matrix(scale @ (V.T @ V) @ scale)
    with pytest.raises(ArpackNoConvergence):
        eigsh(A, k=1, which="LA", v0=np.asarray(A.sum(axis=1)).ravel(), maxiter=perron.MOST_RESTARTS)
    pair = perron_pair(A)
    assert pair.lambda_max == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(np.exp(pair.log_psi), np.sqrt(mass / mass.sum()), rtol=1e-5)


def test_walk_is_stochastic_and_reversible_with_pi_psi_squared():
    A = weighted_graph(40)
    pair = perron_pair(A)
    T = transition_matrix(A, pair.log_psi).toarray()
    pi = np.exp(2 * pair.log_psi)
    np.testing.assert_allclose(T.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(pi[:, None] * T, (pi[:, None] * T).T, rtol=1e-6)
    np.testing.assert_allclose(np.exp(log_stationary(A, pair.log_psi)), pi, rtol=1e-6)
    np.testing.assert_allclose(pi @ T, pi, rtol=1e-6)


def test_all_paths_between_two_nodes_are_equally_likely():
    A = unweighted_graph()
    T = transition_matrix(A, perron_pair(A).log_psi)
    degrees = A / A.sum(axis=1, keepdims=True)
    for k in (4, 5):
        likely = [np.prod([T[u, v] for u, v in pairwise(p)]) for p, _ in paths(A, k, 0, 3)]
        ordinary = [np.prod([degrees[u, v] for u, v in pairwise(p)]) for p, _ in paths(A, k, 0, 3)]
        assert len(likely) > 2
        np.testing.assert_allclose(likely, likely[0], rtol=1e-6)
        assert np.ptp(ordinary) > 0.1 * max(ordinary)  # the ordinary walk prefers some


def test_perron_ratios_cancel_exactly():
    A = weighted_graph(25)
    pair = perron_pair(A)
    T = transition_matrix(A, pair.log_psi).toarray()
    rescaled = A.toarray() / pair.lambda_max
    for k in (1, 2, 7):
        Tk = np.linalg.matrix_power(T, k)
        np.testing.assert_allclose(Tk * Tk.T, matrix_power(rescaled, k) ** 2, rtol=1e-6)


def test_even_powers_are_gram_matrices():
    A = weighted_graph(25)
    rescaled = A.toarray() / perron_pair(A).lambda_max
    values, vectors = np.linalg.eigh(rescaled)
    k = 6
    features = vectors * values ** (k // 2)
    np.testing.assert_allclose(matrix_power(rescaled, k), features @ features.T, atol=1e-14)


@pytest.mark.parametrize("heat", [False, True], ids=["power", "heat"])
def test_deep_free_energy_is_the_stationary_mass(heat):
    A = weighted_graph(25)
    pair = perron_pair(A)
    log_pi = 2 * pair.log_psi
    expected = -0.5 * (log_pi[:, None] + log_pi[None, :])
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(free_energies(graph_of(A), pair, 4000.0, heat=heat), expected, atol=1e-5)


def test_free_energy_is_mean_path_cost_less_path_entropy():
    A = np.array([[0, 0.9, 0.2, 0], [0.9, 0, 0.5, 0.3], [0.2, 0.5, 0, 0.8], [0, 0.3, 0.8, 0]])
    pair = perron_pair(A)
    rescaled = A / pair.lambda_max
    k = 4
    D = free_energies(graph_of(A), pair, k, heat=False)
    for i, j in [(0, 1), (0, 3), (1, 2)]:
        weight = np.array([w for _, w in paths(rescaled, k, i, j)])
        p = weight / weight.sum()
        mean_cost, entropy = p @ -np.log(weight), -(p @ np.log(p))
        assert D[i, j] == pytest.approx(mean_cost - entropy, rel=1e-12)


def test_pairs_that_no_path_joins_are_at_the_floor():
    A = path_graph(30)
    pair = perron_pair(A)
    assert free_energies(graph_of(A), pair, 4, heat=False)[0, 9] == pytest.approx(-np.log(POWER_FLOOR))
    # In continuous time all pairs are joined.
    D = free_energies(graph_of(A), pair, 4.0, heat=True)
    assert D.max() < -np.log(HEAT_FLOOR)
    assert (np.diff(D[0]) > 0).all()


def test_on_a_circle_free_energy_approaches_squared_arc_length():
    time = 0.1
    errors = []
    for n in (100, 200, 400):
        angle = 2 * np.pi * np.arange(n) / n
        D = knn_distances(np.c_[np.cos(angle), np.sin(angle)], 5)
        A = graph_of_cells(D, None, decay=2.0, bandwidth="adaptive")[0].affinity
        hop = np.abs((np.arange(n) + n // 2) % n - n // 2) * 2 * np.pi / n
        row = A.toarray()[0]
        variance = row @ hop**2 / row.sum()  # of one step; a walk of depth τ diffuses for t = τ variance / 2
        kernel = heat_kernel(A.toarray() / perron_pair(A).lambda_max, 2 * time / variance)
        D = -np.log(kernel[0] / kernel[0, 0])
        near = hop < 1.5
        errors.append(np.abs(4 * time * D[near] - hop[near] ** 2).max())
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 0.05


def test_sparse_is_dense():
    A = weighted_graph(30)
    sparse, dense = perron_pair(A), perron_pair(A.toarray())
    assert sparse.lambda_max == pytest.approx(dense.lambda_max, rel=1e-12)
    np.testing.assert_allclose(sparse.log_psi, dense.log_psi, rtol=1e-7)
    np.testing.assert_allclose(
        transition_matrix(A, sparse.log_psi).toarray(), transition_matrix(A.toarray(), dense.log_psi), atol=1e-7
    )


def test_perron_vector_survives_beyond_the_range_of_floats():
    # A clique with a tail of 400 weak edges: each step down the tail loses a factor of about 100.
    n_clique, n_tail = 12, 400
    n = n_clique + n_tail
    A = np.zeros((n, n))
    A[:n_clique, :n_clique] = 1.0 - np.eye(n_clique)
    tail = np.arange(n_clique - 1, n - 1)
    A[tail, tail + 1] = A[tail + 1, tail] = 0.1
    A = sp.csr_matrix(A)
    pair = perron_pair(A)
    assert pair.log_psi.min() < np.log(np.finfo(float).tiny)
    T = transition_matrix(A, pair.log_psi)
    np.testing.assert_allclose(np.asarray(T.sum(axis=1)).ravel(), 1.0, rtol=1e-12)
    # Down the tail ψ_{i+1}/ψ_i solves x = 0.1/(λ - 0.1 x).
    ratio = np.exp(np.diff(pair.log_psi[n_clique + 5 : -5]))
    x = (pair.lambda_max - np.sqrt(pair.lambda_max**2 - 0.04)) / 0.2
    np.testing.assert_allclose(ratio, x, rtol=1e-3)


def test_perron_vector_is_accurate_far_down_a_chain_of_cells():
    # Power steps alone, or leading terms alone, are off by tens of orders of magnitude here.
    rng = np.random.default_rng(0)
    along = np.sort(rng.uniform(0, 60, 3000))
    X = np.c_[along, rng.normal(scale=0.3, size=(3000, 5))]
    A = graph_of_cells(knn_distances(X, 10), X, decay=3.0, bandwidth="tempered")[0].affinity
    pair = perron_pair(A)
    assert np.ptp(pair.log_psi) > 50
    assert pair.residual < 1e-4


def test_powers_keep_tiny_entries():
    # On a path graph, the only n-1 step path between the ends has a known weight.
    n = 60
    A = sp.diags([np.full(n - 1, 1e-4), np.full(n - 1, 1e-4)], [-1, 1]).toarray()
    assert matrix_power(A, n - 1)[0, -1] == pytest.approx(1e-4 ** (n - 1), rel=1e-10)


@pytest.mark.parametrize("time", [0.3, 2.0, 31.0])
def test_heat_kernel_equals_expm(time):
    A = weighted_graph(40).toarray()
    A /= perron_pair(A).lambda_max
    np.testing.assert_allclose(heat_kernel(A, time), expm(-time * (np.eye(40) - A)), rtol=1e-6)


def test_heat_kernel_joins_far_pairs():
    from scipy.special import gammaln

    n = 200
    A = path_graph(n).toarray() / 2
    # e^{-t} (t/2)^h / h! to leading order, h = n - 1 hops.
    time = 20.0
    expected = -time + (n - 1) * np.log(time / 2) - gammaln(n)
    assert np.log(heat_kernel(A, time)[0, -1]) == pytest.approx(expected, abs=1.0)


def test_hops_are_counted_from_the_nearest_start():
    A = path_graph(7)
    assert count_hops(A, np.arange(7) == 2).tolist() == [2, 1, 0, 1, 2, 3, 4]
    assert count_hops(A, np.isin(np.arange(7), [0, 6])).tolist() == [0, 1, 2, 3, 2, 1, 0]
    apart = sp.csr_matrix(sp.block_diag([path_graph(3), path_graph(2)]))
    with pytest.raises(ValueError, match="not connected"):
        count_hops(apart, np.arange(5) == 0)


# The paper's order: -log of the probability of the walk from the roots.


def one_hot(n: int, *nodes: int) -> np.ndarray:
    source = np.zeros(n)
    source[list(nodes)] = 1.0
    return source


@pytest.mark.parametrize("heat", [False, True], ids=["power", "heat"])
def test_potential_is_that_of_the_walk(heat):
    A = weighted_graph(40)
    pair = perron_pair(A)
    T = transition_matrix(A, pair.log_psi).toarray()
    walk = expm(-9.0 * (np.eye(40) - T)) if heat else np.linalg.matrix_power(T, 9)
    for roots in ([5], [2, 11]):
        found = potential(graph_of(A), pair, one_hot(40, *roots), 9, heat=heat)
        difference = found + np.log(walk[roots].sum(axis=0))
        np.testing.assert_allclose(difference, difference[0], atol=1e-6)  # equal up to a constant


@pytest.mark.parametrize("heat", [False, True], ids=["power", "heat"])
def test_a_long_path_has_a_finite_order_at_any_depth(heat):
    # 700 hops: far beyond the range of floats at these depths.
    n = 700
    A = path_graph(n)
    pair = perron_pair(A)
    for depth in (1, 30):
        values = potential(graph_of(A), pair, one_hot(n, 0), depth, heat=heat) + pair.log_psi
        assert np.isfinite(values).all()
        assert np.argmax(values) == n - 1


def test_cells_beyond_the_steps_follow_hop_by_hop():
    A = path_graph(12)
    pair = perron_pair(A)
    symmetric = potential(graph_of(A), pair, one_hot(12, 0), 4, heat=False) + pair.log_psi
    assert np.isfinite(symmetric).all()
    assert symmetric[[0, 2, 4]].max() < symmetric[5] < symmetric[6] < symmetric[11]


def test_the_papers_settings_run_the_papers_walk():
    from entropath_sc.core.pipeline import order

    A = weighted_graph(60)
    graph = graph_of(A)
    pair = perron_pair(A)
    sources = sp.csr_matrix(one_hot(60, 4)[None])
    found = order(graph, PAPER, [sources])
    assert found.unit is None
    assert found.depth == int(found.depth) >= 1
    np.testing.assert_array_equal(
        found.potentials[:, 0], potential(graph, pair, one_hot(60, 4), found.depth, heat=False)
    )
