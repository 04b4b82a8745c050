from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import weighted_graph
from scipy.linalg import expm

from entropath_sc.core import ordering
from entropath_sc.core.diffusion import averaged
from entropath_sc.core.ordering import (
    POTENTIALS,
    REACH,
    ROUNDS,
    anchored,
    heat_from,
    potential_from,
    power_from,
    refined,
    scaled,
    terminal_corrected,
)
from entropath_sc.core.perron import perron_pair, transition_matrix


def one_hot(n: int, *nodes: int) -> np.ndarray:
    source = np.zeros(n)
    source[list(nodes)] = 1.0
    return source


def path_graph(n: int) -> sp.csr_matrix:
    return sp.csr_matrix(sp.diags([np.ones(n - 1), np.ones(n - 1)], [-1, 1]))


def test_heat_from_is_a_row_of_the_exponential():
    A = weighted_graph(40)
    lam = perron_pair(A).lambda_max
    found = heat_from(A, lam, one_hot(40, 3), np.array([0.5, 2.0, 16.0]))
    for time, row in zip(found.depths, found.log_mass, strict=True):
        expected = expm(-time * (np.eye(40) - A.toarray() / lam))[3]
        np.testing.assert_allclose(np.exp(row), expected, rtol=1e-9)


def test_potentials_are_what_they_say():
    A = weighted_graph(40)
    pair = perron_pair(A)
    S = expm(-3.0 * (np.eye(40) - A.toarray() / pair.lambda_max))
    T = transition_matrix(A, pair.log_psi).toarray()
    roots = [2, 11]
    expected = {
        "symmetric": -np.log(S[roots].sum(axis=0)),
        "merw": -np.log(expm(-3.0 * (np.eye(40) - T))[roots].sum(axis=0)),
        "normalised": -2 * np.log((S[roots] / np.sqrt(np.outer(np.diag(S)[roots], np.diag(S)))).sum(axis=0)),
    }
    for kind in POTENTIALS:
        found = potential_from(A, pair.lambda_max, one_hot(40, *roots), kind=kind, depth=3.0)
        difference = found.values - expected[kind]
        np.testing.assert_allclose(difference, difference[0], atol=1e-6)  # equal up to a constant


def test_power_of_the_walk_is_the_papers():
    A = weighted_graph(40)
    pair = perron_pair(A)
    Tk = np.linalg.matrix_power(transition_matrix(A, pair.log_psi).toarray(), 9)
    found = potential_from(A, pair.lambda_max, one_hot(40, 5), kind="merw", diffusion="power", depth=9)
    difference = found.values + np.log(Tk[5])
    np.testing.assert_allclose(difference, difference[0], atol=1e-6)


@pytest.mark.parametrize("kind", POTENTIALS)
@pytest.mark.parametrize("diffusion", ["heat", "power"])
def test_a_path_is_ordered_to_its_end_at_any_depth(kind, diffusion):
    # 700 hops: far beyond the range of floats at these depths.
    n = 700
    A = path_graph(n)
    lam = perron_pair(A).lambda_max
    for depth in (1, 30):
        values = potential_from(A, lam, one_hot(n, 0), kind=kind, diffusion=diffusion, depth=depth).values
        assert np.isfinite(values).all()
        if kind != "normalised" and diffusion == "heat" and depth == 1:  # deeper, the open end itself is felt
            assert (np.diff(anchored(values, np.array([0]))) > -1e-9).all()


def test_leading_terms_continue_the_series_smoothly():
    n = 400
    A = path_graph(n)
    lam = perron_pair(A).lambda_max
    d = -heat_from(A, lam, one_hot(n, 0), np.array([4.0])).log_mass[0]
    steps = np.diff(d)
    assert np.isfinite(d).all()
    # Each further hop h costs log(h λ / t): no jump where the series hands over.
    assert np.abs(np.diff(steps[20:])).max() < 0.1


def test_cells_beyond_the_steps_follow_hop_by_hop():
    A = path_graph(12)
    mass = power_from(A, 2.0, one_hot(12, 0), 4).log_mass[0]
    assert np.isfinite(mass).all()
    assert mass[[0, 2, 4]].min() > mass[5] > mass[6] > mass[11]


def test_scaling_and_anchoring():
    potential = np.array([3.0, 1.0, 2.0, 5.0])
    assert scaled(anchored(potential, np.array([0]))).tolist() == [0.0, 0.0, 0.25, 1.0]
    assert scaled(potential, "rank").tolist() == [2 / 3, 0.0, 1 / 3, 1.0]
    assert scaled(np.ones(3)).tolist() == [0.0, 0.0, 0.0]


def test_terminal_correction_by_hand():
    order, towards = np.array([0.0, 0.5, 1.0]), np.array([1.0, 0.5, 0.0])
    assert terminal_corrected(order, towards).tolist() == [0.0, 0.5, 1.0]
    assert terminal_corrected(np.zeros(2), np.zeros(2)).tolist() == [0.0, 0.0]


def test_averaging_is_over_neighbours_by_affinity():
    A = weighted_graph(40)
    mean = A.toarray() / A.toarray().sum(axis=1, keepdims=True)
    values = np.random.default_rng(0).normal(size=40)
    np.testing.assert_allclose(averaged(A, values, 3), np.linalg.matrix_power(mean, 3) @ values, rtol=1e-10)
    np.testing.assert_array_equal(averaged(A, values, 0), values)


def test_waypoints_see_each_node_at_their_potential_and_the_free_energy_between():
    A = weighted_graph(40)
    lam = perron_pair(A).lambda_max
    potential = potential_from(A, lam, one_hot(40, 3), depth=8.0).values
    F = -np.log(expm(-8.0 * (np.eye(40) - A.toarray() / lam)))
    seen = np.empty(40)
    for x in range(40):  # as few nodes as these are all waypoints
        weights = np.exp(-0.5 * (F[x] / (REACH * potential.std())) ** 2)
        sightings = np.where(potential[x] < potential, potential - F[x], potential + F[x])
        seen[x] = (weights * sightings).sum() / weights.sum()
    average = averaged(A, seen, ROUNDS)
    expected = average + averaged(A, seen - average, ROUNDS)
    np.testing.assert_allclose(refined(A, lam, potential, 8.0), expected, rtol=1e-9)


def test_refining_keeps_an_order_that_is_right_already():
    A = path_graph(400) + sp.csr_matrix(sp.diags([np.full(398, 0.5), np.full(398, 0.5)], [-2, 2]))
    lam = perron_pair(A).lambda_max
    potential = potential_from(A, lam, one_hot(400, 0), depth=8.0).values
    assert (np.diff(refined(A, lam, potential, 8.0)) > 0).all()


@pytest.mark.parametrize(("agreement", "share"), [(0.99, 0.0), (0.9986, 0.0), (0.999, 0.5), (0.9994, 1.0), (1.0, 1.0)])
def test_the_order_is_refined_as_far_as_it_survives_a_doubling(monkeypatch, agreement, share):
    A = weighted_graph(40)
    lam = perron_pair(A).lambda_max
    monkeypatch.setattr(ordering, "spearmanr", lambda *_: SimpleNamespace(statistic=agreement))
    found = potential_from(A, lam, one_hot(40, 3))
    shallow, deep = (potential_from(A, lam, one_hot(40, 3), depth=depth).values for depth in (4.0, 8.0))
    assert found.refined == pytest.approx(share)
    assert found.depth == (8.0 if share >= 0.5 else 4.0)
    expected = (1 - share) * shallow + share * refined(A, lam, deep, 8.0)
    np.testing.assert_allclose(found.values, expected, rtol=1e-9)
    # Another source takes over what was found, and a potential that is not refined only its depth.
    assert potential_from(A, lam, one_hot(40, 7), like=found).refined == found.refined
    walk = potential_from(A, lam, one_hot(40, 3), kind="merw")
    assert (walk.depth, walk.refined) == (found.depth, 0.0)


def test_a_given_depth_is_taken_as_it_is():
    A = weighted_graph(40)
    lam = perron_pair(A).lambda_max
    found = potential_from(A, lam, one_hot(40, 3), depth=16.0)
    np.testing.assert_allclose(found.values, -heat_from(A, lam, one_hot(40, 3), 16.0).log_mass[0])
    powers = potential_from(A, lam, one_hot(40, 3), depth=8, diffusion="power").values
    np.testing.assert_allclose(powers, -power_from(A, lam, one_hot(40, 3), 8).log_mass[0])
