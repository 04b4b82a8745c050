from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import weighted_graph
from scipy.linalg import expm

from entropath_sc.core import ordering
from entropath_sc.core.ordering import (
    POTENTIALS,
    _share,
    anchored,
    heat_from,
    potential_from,
    power_from,
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
    for time in (0.5, 2.0, 16.0):
        expected = expm(-time * (np.eye(40) - A.toarray() / lam))
        np.testing.assert_allclose(np.exp(heat_from(A, lam, one_hot(40, 3), time)), expected[3], rtol=1e-9)
        several = np.stack([one_hot(40, 3), one_hot(40, 7)])
        np.testing.assert_allclose(np.exp(heat_from(A, lam, several, time)), expected[[3, 7]], rtol=1e-9)


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


def test_a_quarter_of_the_plain_order_is_as_the_cells_around_the_root_see_it():
    n = 120  # so that there are two of them
    A, lam = path_graph(n), 2.0
    X = np.arange(n, dtype=float)[:, None] ** 1.1
    seen = [-heat_from(A, lam, one_hot(n, i), 3.0) for i in (60, 59, 61)]
    found = potential_from(A, lam, one_hot(n, 60), X=X, depth=3.0)
    np.testing.assert_allclose(found.values, 0.75 * seen[0] + 0.125 * (seen[1] + seen[2]))
    # Several roots and means of cells have less noise, and other potentials are the paper's.
    several = one_hot(n, 60, 70)
    expected = potential_from(A, lam, several, depth=3.0).values
    np.testing.assert_array_equal(potential_from(A, lam, several, X=X, depth=3.0).values, expected)
    for plain in ({"means": True}, {"kind": "merw"}, {"diffusion": "power"}):
        options = {"depth": 3} | plain
        with_X = potential_from(A, lam, one_hot(n, 60), X=X, **options).values
        np.testing.assert_array_equal(with_X, potential_from(A, lam, one_hot(n, 60), **options).values)


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
    d = -heat_from(A, lam, one_hot(n, 0), 4.0)
    steps = np.diff(d)
    assert np.isfinite(d).all()
    # Each further hop h costs log(h λ / t): no jump where the series hands over.
    assert np.abs(np.diff(steps[20:])).max() < 0.1


def test_cells_beyond_the_steps_follow_hop_by_hop():
    A = path_graph(12)
    mass = power_from(A, 2.0, one_hot(12, 0), 4)
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
    # Another branch leads away from the terminal cell: the share alone falls along it.
    order, towards = np.array([0.5, 0.6, 0.8]), np.array([0.5, 0.7, 1.0])
    assert terminal_corrected(order, towards).tolist() == order.tolist()
    np.testing.assert_allclose(terminal_corrected(order, towards, published=True), [0.5, 0.6 / 1.3, 0.8 / 1.8])


@pytest.mark.parametrize(
    ("nines", "smoothness", "share"),
    [
        (1.0, 0.98, 0.0),  # neither clear nor mostly noise
        (1.8, 0.98, 0.0),
        (2.05, 0.99, 0.3),
        (2.6, 0.99, 0.6),
        (3.35, 0.99, 0.8),
        (20.0, 0.99, 1.0),
        (1.0, 0.965, 0.0),
        (1.0, 0.95, 0.5),
        (1.0, 0.5, 1.0),
        (2.6, 0.95, 0.6),  # the larger of both
        (np.nan, np.nan, 0.0),  # all in one place
    ],
)
def test_clear_orders_and_noise_are_refined(nines, smoothness, share):
    assert _share(1 - 10.0**-nines, smoothness) == pytest.approx(share)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_refined_order_is_mixed_in(monkeypatch, share):
    A, X = weighted_graph(40), np.random.default_rng(0).normal(size=(40, 3))
    lam = perron_pair(A).lambda_max
    monkeypatch.setattr(ordering, "_share", lambda *_: share)
    found = potential_from(A, lam, one_hot(40, 3), X=X)
    assert found.refined == share
    assert found.depth == pytest.approx(4.0 * 40 / 2000)  # of few nodes, less than 4
    plain = potential_from(A, lam, one_hot(40, 3), depth=found.depth).values
    full = potential_from(A, lam, one_hot(40, 3), X=X, refine=1.0).values
    np.testing.assert_allclose(found.values, (1 - found.refined) * plain + found.refined * full, rtol=1e-9)
    # The refined order is in the units of the plain one.
    np.testing.assert_allclose([full.mean(), full.std()], [plain.mean(), plain.std()], rtol=1e-9)
    # Another source takes over what was found.
    other = potential_from(A, lam, one_hot(40, 7), X=X, like=found)
    itself = potential_from(A, lam, one_hot(40, 7), X=X, refine=found.refined)
    assert other.refined == found.refined
    np.testing.assert_allclose(other.values, itself.values, rtol=1e-9)


def test_few_means_of_cells_are_not_refined_by_themselves():
    for n, refined in ((99, 0.0), (100, 1.0)):
        A, X = path_graph(n) + sp.eye_array(n), np.arange(float(n))[:, None]
        A, lam = sp.csr_matrix(A), perron_pair(A).lambda_max
        assert potential_from(A, lam, one_hot(n, 0), X=X, means=True).refined == refined
        assert potential_from(A, lam, one_hot(n, 0), X=X).refined == 1.0
        assert potential_from(A, lam, one_hot(n, 0), X=X, means=True, refine=1.0).refined == 1.0


def test_what_cannot_be_refined_is_not():
    A, X = weighted_graph(40), np.random.default_rng(0).normal(size=(40, 3))
    lam = perron_pair(A).lambda_max
    assert potential_from(A, lam, one_hot(40, 3)).refined == 0  # nowhere to measure lengths in
    assert potential_from(A, lam, one_hot(40, 3), X=X, depth=4.0).refined == 0
    assert potential_from(A, lam, one_hot(40, 3), X=X, kind="merw").refined == 0
    assert potential_from(A, lam, one_hot(40, 3), X=X, depth=4.0, refine=0.5).refined == 0.5


def test_the_plain_depth_of_few_and_many_nodes():
    for n, diffusion, depth in ((500, "heat", 1.0), (500, "power", 499.0), (3, "power", 4.0), (3000, "heat", 4.0)):
        assert potential_from(path_graph(n), 2.0, one_hot(n, 0), diffusion=diffusion).depth == depth


def test_a_given_depth_is_taken_as_it_is():
    A = weighted_graph(40)
    lam = perron_pair(A).lambda_max
    found = potential_from(A, lam, one_hot(40, 3), depth=16.0)
    np.testing.assert_allclose(found.values, -heat_from(A, lam, one_hot(40, 3), 16.0))
    powers = potential_from(A, lam, one_hot(40, 3), depth=8, diffusion="power").values
    np.testing.assert_allclose(powers, -power_from(A, lam, one_hot(40, 3), 8))
