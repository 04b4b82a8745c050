"""Directed graphs: answers on paper, then flows whose order is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import spearmanr

import entropath_sc as ep
from entropath_sc.core import direction, paper
from entropath_sc.core.ensemble import PathEnsemble
from entropath_sc.core.graph import Bridges, Graph
from entropath_sc.core.perron import directed_perron_pair, perron_pair
from entropath_sc.core.potential import circular_flow, circulation, potential

NONE = Bridges(np.array([1]), np.empty((0, 2), dtype=int), np.empty(0))


def graph_of(edges: dict[tuple[int, int], float], n: int, forward: dict[tuple[int, int], float] | None = None) -> Graph:
    """A graph of unit lengths from its edges, with how far some of them go forward."""
    i, j = np.array(list(edges)).T
    A = sp.csr_matrix((list(edges.values()), (i, j)), shape=(n, n))
    A = (A + A.T).tocsr()
    A.sort_indices()
    graph = Graph(A, np.ones(A.nnz), NONE)
    if forward is None:
        return graph
    arrows = {**forward, **{(b, a): -value for (a, b), value in forward.items()}}
    values = [arrows.get((int(a), int(b)), 0.0) for a, b in zip(graph.rows, A.indices, strict=True)]
    return replace(graph, forward=np.array(values))


def random_graph(seed: int, n: int = 30) -> Graph:
    rng = np.random.default_rng(seed)
    edges = {(i, i + 1): rng.uniform(0.2, 1.0) for i in range(n - 1)}
    edges |= {(i, j): rng.uniform(0.1, 1.0) for i in range(n) for j in range(i + 2, n) if rng.random() < 0.15}
    return graph_of(edges, n, {edge: rng.normal() * 3 for edge in edges})


def flow(kind: str, cosine: float = 0.8, n: int = 500, seed: int = 0, noise: float = 0.05) -> ad.AnnData:
    """Cells on a line, or on a circle once around, with noisy velocities of a known cosine with the true ones."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(size=n)
    angle = 2 * np.pi * t
    if kind == "line":
        place, tangent = np.column_stack([10 * t, 0 * t, 0 * t]), np.column_stack([1 + 0 * t, 0 * t, 0 * t])
    else:
        place = 3 * np.column_stack([np.cos(angle), np.sin(angle), 0 * t])
        tangent = np.column_stack([-np.sin(angle), np.cos(angle), 0 * t])
    across = rng.normal(size=(n, 3))
    across -= (across * tangent).sum(axis=1, keepdims=True) * tangent
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    velocity = cosine * tangent + np.sqrt(1 - cosine**2) * across
    adata = ad.AnnData(
        np.zeros((n, 1), dtype=np.float32), obs=pd.DataFrame({"t": t}, index=[f"c{i}" for i in range(n)])
    )
    adata.obsm["X_pca"] = (place + noise * rng.normal(size=place.shape)).astype(np.float32)
    adata.obsm["velocity"] = velocity * rng.lognormal(size=(n, 1))
    adata.uns["first"] = adata.obs_names[t.argmin()]
    return adata


# On paper


def test_rows_keep_their_sums_and_steps_back_lose_weight():
    graph = random_graph(0)
    ensemble = PathEnsemble.of(graph, 10.0)
    plain = PathEnsemble.of(graph.undirected, 10.0)
    np.testing.assert_allclose(ensemble.weights.sum(axis=1), plain.weights.sum(axis=1), rtol=1e-12)
    ratio = ensemble.weights.data / plain.weights.data
    # Within a row, steps differ by what they go against the arrows, and by nothing else.
    row = slice(graph.affinity.indptr[5], graph.affinity.indptr[6])
    left = -np.log(ratio[row]) - np.maximum(-ensemble.forward[row], 0.0)
    np.testing.assert_allclose(left, left[0], atol=1e-12)
    np.testing.assert_allclose(ensemble.undirected.weights.data, plain.weights.data, rtol=1e-12)


def test_passages_solve_their_equation_and_agree_with_a_dense_solve():
    ensemble = PathEnsemble.of(random_graph(1), 10.0)
    passages = ensemble.first_passages(np.array([4]))
    P = ensemble.weights.toarray() / ensemble.degree[:, None]
    others = np.delete(np.arange(30), 4)
    f = np.linalg.solve(np.eye(29) - P[np.ix_(others, others)], P[others, 4])
    np.testing.assert_allclose(passages[others], -np.log(f), rtol=1e-9)
    assert ensemble.residual(passages, np.array([4])) < 1e-9


def test_a_directed_cycle_is_ordered_all_the_way_round():
    n = 12
    edges = {(i, (i + 1) % n): 1.0 for i in range(n)}
    graph = graph_of(edges, n, dict.fromkeys(edges, 30.0))
    ensemble = PathEnsemble.of(graph, 10.0)
    # The one path that never turns: each of its steps has one half of e^-0.1.
    along = ensemble.order_along_arrows(np.array([0]))
    np.testing.assert_allclose(along, (0.1 + np.log(2)) * np.arange(n), atol=1e-6)
    assert (np.diff(ensemble.order(np.array([0]))) > 0).all()
    undirected = PathEnsemble.of(graph.undirected, 10.0).order(np.array([0]))
    np.testing.assert_allclose(undirected[1:], undirected[:0:-1], rtol=1e-9)


def test_order_is_never_below_that_without_arrows():
    # The free energy of a distribution of paths is least for the undirected one itself (Gibbs).
    for seed in range(5):
        graph = random_graph(seed)
        directed, plain = PathEnsemble.of(graph, 10.0), PathEnsemble.of(graph.undirected, 10.0)
        assert (directed.order_along_arrows(np.array([3])) >= plain.order(np.array([3])) - 1e-7).all()


def test_directed_passages_span_more_than_floats():
    n = 600
    edges = {(i, (i + 1) % n): 1.0 for i in range(n)}
    order = PathEnsemble.of(graph_of(edges, n, dict.fromkeys(edges, 3000.0)), 0.5).order_along_arrows(np.array([0]))
    # Going back costs at most what floats hold: the last few nodes are nearer that way.
    np.testing.assert_allclose(np.diff(order)[:-20], 2.0 + np.log(2), rtol=1e-6)
    assert order[-21] > 1500


def test_potential_is_exact_where_steps_add_up_and_flat_on_a_cycle():
    graph = random_graph(2)
    height = np.random.default_rng(0).normal(size=30)
    climbing = replace(graph, forward=height[graph.affinity.indices] - height[graph.rows])
    phi = potential(climbing)
    np.testing.assert_allclose(phi - phi.mean(), height - height.mean(), atol=1e-5)
    np.testing.assert_allclose(circulation(climbing, phi), 0.0, atol=1e-5)
    edges = {(i, (i + 1) % 9): 1.0 for i in range(9)}
    cycle = graph_of(edges, 9, dict.fromkeys(edges, 1.0))
    np.testing.assert_allclose(circulation(cycle, potential(cycle)), cycle.forward, atol=1e-7)


def test_arrows_that_follow_a_potential_change_no_order():
    graph = random_graph(2)
    height = 5 * np.random.default_rng(0).normal(size=30)
    climbing = replace(graph, forward=height[graph.affinity.indices] - height[graph.rows])
    order = PathEnsemble.of(climbing, 10.0).order(np.array([3]))
    np.testing.assert_allclose(order, PathEnsemble.of(graph.undirected, 10.0).order(np.array([3])), atol=1e-4)


def test_two_ways_to_one_place_are_no_circle():
    # Three steps or six from 0 to 8, and all arrows lead there: what does not add up is a third of a step on each.
    short, long = [0, 1, 2, 8], [0, 3, 4, 5, 6, 7, 8]
    edges = {pair: 1.0 for way in (short, long) for pair in pairwise(way)}
    graph = graph_of(edges, 9, dict.fromkeys(edges, 1.0))

    def dense(values):
        return sp.csr_matrix((values, graph.affinity.indices, graph.affinity.indptr)).toarray()

    left, circular = dense(circulation(graph, potential(graph))), dense(circular_flow(graph))
    for way, on_paper, kept in ((short, -1 / 3, 0.0), (long, 1 / 3, 1 / 3)):
        for i, j in pairwise(way):
            assert left[i, j] == pytest.approx(on_paper, abs=1e-6)
            assert circular[i, j] == -circular[j, i] == pytest.approx(kept, abs=1e-6)


def test_steps_along_a_velocity_are_antisymmetric_and_right_on_paper():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    graph = graph_of({(0, 1): 1.0, (1, 2): 1.0}, 3)
    found = direction.along_velocity(graph, X, np.tile([3.0, 0.0], (3, 1)), None)
    # All velocities agree and both steps are alike: a step along them counts 1, whatever the speed.
    np.testing.assert_allclose(found, np.where(graph.affinity.indices > graph.rows, 1.0, -1.0), rtol=1e-6)
    across = direction.along_velocity(graph, X, np.tile([0.0, 2.0], (3, 1)), None)
    np.testing.assert_allclose(across, 0.0)


# The paper's walk on a directed affinity


def test_the_papers_directed_walk_is_the_symmetric_one_without_arrows():
    graph = random_graph(3)
    even = replace(graph, forward=np.zeros_like(graph.forward))
    one, other = paper.perron_of(graph.undirected), paper.perron_of(even)
    assert other.lambda_max == pytest.approx(one.lambda_max, rel=1e-9)
    np.testing.assert_allclose(other.log_psi, one.log_psi, atol=1e-5)
    np.testing.assert_allclose(
        paper.free_energies(even, other, 5, heat=False),
        paper.free_energies(graph.undirected, one, 5, heat=False),
        atol=1e-6,
    )
    np.testing.assert_allclose(paper.stationary(even, other), paper.stationary(graph.undirected, one), rtol=1e-4)


def test_the_papers_dissimilarity_is_symmetric_and_its_definition():
    graph = random_graph(4)
    perron = paper.perron_of(graph)
    A = paper.affinity_of(graph).toarray()
    psi = np.exp(perron.log_psi)
    T = A * psi[None, :] / (perron.lambda_max * psi[:, None])
    np.testing.assert_allclose(T.sum(axis=1), 1.0, atol=1e-5)
    power = np.linalg.matrix_power(T, 6)
    D = paper.free_energies(graph, perron, 6, heat=False)
    np.testing.assert_array_equal(D, D.T)
    expected = -0.5 * np.log(np.maximum(power * power.T, 1e-42))
    off = ~np.eye(30, dtype=bool) & (power * power.T > 1e-30)
    np.testing.assert_allclose(D[off], np.maximum(expected, 0.0)[off], atol=1e-6)
    pi = paper.stationary(graph, perron)
    np.testing.assert_allclose(pi @ T, pi, atol=1e-6)


def test_left_and_right_perron_vectors_have_one_eigenvalue():
    A = paper.affinity_of(random_graph(5))
    assert directed_perron_pair(A).lambda_max == pytest.approx(directed_perron_pair(A.T.tocsr()).lambda_max, rel=1e-9)
    symmetric = random_graph(5).affinity
    assert directed_perron_pair(symmetric).lambda_max == pytest.approx(perron_pair(symmetric).lambda_max, rel=1e-9)


# Flows


def test_no_strength_gives_the_undirected_bytes():
    adata = flow("cycle")
    ep.tl.merw_graph(adata)
    ep.tl.pseudotime(adata, adata.uns["first"])
    again = flow("cycle")
    ep.tl.merw_graph(again, direction="velocity", strength=0)
    ep.tl.pseudotime(again, again.uns["first"])
    assert (
        adata.obs["entropath_potential"].to_numpy().tobytes() == again.obs["entropath_potential"].to_numpy().tobytes()
    )
    assert "entropath_direction" not in again.obsp


def test_a_cycle_is_ordered_by_its_phase():
    adata = flow("cycle")
    ep.tl.pseudotime(adata, adata.uns["first"])
    assert abs(spearmanr(adata.obs["entropath_pseudotime"], adata.obs["t"])[0]) < 0.3
    ep.tl.merw_graph(adata, direction="velocity")
    ep.tl.pseudotime(adata, adata.uns["first"])
    assert spearmanr(adata.obs["entropath_pseudotime"], adata.obs["t"])[0] > 0.97


def test_reversed_arrows_reverse_the_order_without_a_root():
    adata = flow("line")
    ep.tl.merw_graph(adata, direction="velocity")
    ep.tl.pseudotime(adata)
    assert spearmanr(adata.obs["entropath_pseudotime"], adata.obs["t"])[0] > 0.98
    adata.obsm["velocity"] *= -1
    with pytest.warns(UserWarning, match="made again"):
        ep.tl.pseudotime(adata)
    assert spearmanr(adata.obs["entropath_pseudotime"], adata.obs["t"])[0] < -0.95


def test_candidates_of_a_line_begin_upstream_with_confidence():
    adata = flow("line", cosine=0.5)
    ep.tl.merw_graph(adata, direction="velocity")
    table = ep.tl.suggest_root(adata)
    assert adata.obs["t"][table.index[0]] < 0.05
    assert table["confidence"].iloc[0] > 0.9
    noise = [flow("line", cosine=0.0, seed=seed, n=300) for seed in range(4)]
    for cells in noise:
        ep.tl.merw_graph(cells, direction="velocity")
    found = [ep.tl.suggest_root(cells)["confidence"].iloc[0] for cells in noise]
    assert np.mean(found) < table["confidence"].iloc[0]


def test_a_root_behind_which_there_are_cells_is_no_catastrophe():
    adata = flow("line", noise=0.3)
    ep.tl.merw_graph(adata, direction="velocity")
    root = adata.obs["t"].sort_values().index[15]
    ep.tl.pseudotime(adata, root)
    behind = adata.obs["t"] < adata.obs["t"][root]
    assert adata.obs["entropath_pseudotime"][behind].max() < 0.2


def test_transitions_between_cells_give_the_same_order_as_velocities():
    adata = flow("cycle")
    X = adata.obsm["X_pca"]
    near = ep.tl.merw_graph(adata, copy=True).obsp["entropath_affinity"].tocoo()
    cosine = np.einsum("ij,ij->i", X[near.col] - X[near.row], adata.obsm["velocity"][near.row])
    T = sp.csr_matrix((np.exp(np.sign(cosine)), (near.row, near.col)), shape=near.shape)
    adata.obsp["T"] = sp.diags(1 / np.asarray(T.sum(axis=1)).ravel()) @ T
    ep.tl.merw_graph(adata, direction="T")
    ep.tl.pseudotime(adata, adata.uns["first"])
    assert spearmanr(adata.obs["entropath_pseudotime"], adata.obs["t"])[0] > 0.9


def test_what_cannot_be_a_direction_is_refused():
    adata = flow("line", n=100)
    adata.obsm["X_pca"] = adata.obsm["X_pca"].astype(np.float64)
    genes = ad.AnnData(np.zeros((100, 3), dtype=np.float32), obs=adata.obs, obsm={"X_pca": adata.obsm["X_pca"]})
    genes.varm["PCs"], genes.layers["spliced"] = np.eye(3), np.ones((100, 3))
    genes.obsp["same"] = sp.csr_matrix(np.ones((100, 100)))
    genes.obs["day"] = ["4h", "10h", "1d", "2d"] * 25
    for options, error, words in (
        ({"direction": "spliced"}, ValueError, "no negative value: it looks like expression"),
        ({"direction": "same"}, ValueError, "is symmetric, so it leads nowhere"),
        ({"direction": adata.obsm["velocity"]}, TypeError, "direction is the name of a field"),
        ({"time_key": "day"}, ValueError, "have no clear order"),
        ({"strength": 3.0}, ValueError, "give `direction=` or `time_key=` too"),
    ):
        with pytest.raises(error, match=words):
            ep.tl.merw_graph(genes, **options)
    genes.obs["size"] = np.arange(100.0)
    with pytest.warns(UserWarning, match="100 times for 100 cells"):
        ep.tl.merw_graph(genes, time_key="size")


def test_a_matrix_of_transitions_is_not_changed():
    adata = flow("cycle", n=200)
    T = sp.csr_matrix(np.random.default_rng(0).normal(size=(200, 200)))
    adata.obsp["T"] = T
    before = T.toarray()
    ep.tl.merw_graph(adata, direction="T")
    np.testing.assert_array_equal(adata.obsp["T"].toarray(), before)


def test_velocities_of_genes_go_through_the_loadings():
    adata = flow("cycle")
    loadings = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 3)))[0]
    genes = ad.AnnData(np.zeros((500, 20), dtype=np.float32), obs=adata.obs)
    genes.obsm["X_pca"], genes.varm["PCs"] = adata.obsm["X_pca"], loadings
    genes.layers["velocity"] = adata.obsm["velocity"] @ loadings.T
    genes.layers["velocity"][:, 3] = np.nan  # a gene without a velocity
    ep.tl.merw_graph(genes, direction="velocity")
    ep.tl.merw_graph(adata, direction="velocity")
    one, other = genes.obsp["entropath_direction"].data, adata.obsp["entropath_direction"].data
    assert np.corrcoef(one, other)[0, 1] > 0.95


def test_time_points_direct_the_order():
    adata = flow("line", seed=3)
    day = (4 * adata.obs["t"]).astype(int)
    adata.obs["day"] = "E" + (7 + 0.5 * day).astype(str)
    ep.tl.merw_graph(adata, time_key="day")
    ep.tl.pseudotime(adata)
    assert day[adata.uns["entropath"]["pseudotime"]["roots"][0]] == 0
    assert spearmanr(adata.obs["entropath_pseudotime"], adata.obs["t"])[0] > 0.95
    by_number, by_order = adata.copy(), adata.copy()
    by_number.obs["day"] = day.to_numpy()
    by_order.obs["day"] = pd.Categorical(day.map(dict(enumerate("wxyz"))), categories=list("wxyz"), ordered=True)
    for other in (by_number, by_order):
        ep.tl.merw_graph(other, time_key="day")
        assert (other.obsp["entropath_direction"] != adata.obsp["entropath_direction"]).nnz == 0


def test_time_points_tell_a_cycle_from_a_line():
    found = []
    for seed in range(4):
        adata = flow("cycle", n=300, seed=seed)
        adata.obs["day"] = (5 * adata.obs["t"]).astype(int)
        for key in (None, "day"):
            ep.tl.merw_graph(adata, time_key=key)
            ep.tl.pseudotime(adata, adata.uns["first"])
            found.append(spearmanr(adata.obs["entropath_pseudotime"], adata.obs["t"])[0])
    without, with_times = np.reshape(found, (4, 2)).mean(axis=0)
    assert abs(without) < 0.1
    assert with_times > 0.15


def test_lineages_follow_arrows_and_survive_a_file(tmp_path):
    adata = ep.datasets.branching(n_cells=800)
    X, t = adata.obsm["X_pca"], adata.obs["time"].to_numpy()
    graph = ep.tl.merw_graph(adata, copy=True).obsp["entropath_affinity"].tocoo()
    T = sp.csr_matrix((np.where(t[graph.col] > t[graph.row], 1.0, 0.1), (graph.row, graph.col)), shape=graph.shape)
    adata.obsm["velocity"] = sp.diags(1 / np.asarray(T.sum(axis=1)).ravel()) @ T @ X - X
    ep.tl.merw_graph(adata, direction="velocity")
    ep.tl.pseudotime(adata)
    assert t[adata.obs_names.get_loc(adata.uns["entropath"]["pseudotime"]["roots"][0])] < 0.1
    ep.tl.terminal_states(adata, groupby="branch")
    assert set(adata.obs["entropath_terminal"].dropna()) == {"fate A", "fate B", "fate C"}
    adata.write_h5ad(tmp_path / "a.h5ad")
    again = ad.read_h5ad(tmp_path / "a.h5ad")
    for one in (adata, again):
        ep.tl.fates(one, forward=True)
    np.testing.assert_array_equal(again.obsm["entropath_fates"], adata.obsm["entropath_fates"])
    walk = adata.obsp["entropath_forward"]
    np.testing.assert_allclose(walk.sum(axis=1), 1.0, atol=1e-6)
    ahead = walk.tocoo()
    assert np.average(t[ahead.col] - t[ahead.row], weights=ahead.data) > 0


def test_coordinates_are_those_without_arrows():
    adata = flow("cycle")
    ep.tl.embedding(adata)
    before = adata.obsm["X_entropath"].copy()
    ep.tl.merw_graph(adata, direction="velocity")
    ep.tl.embedding(adata)
    np.testing.assert_array_equal(adata.obsm["X_entropath"], before)


def test_a_graph_whose_velocities_were_deleted_stays_as_it_was():
    adata = flow("cycle")
    ep.tl.merw_graph(adata, direction="velocity")
    ep.tl.pseudotime(adata, adata.uns["first"])
    before = adata.obs["entropath_potential"].copy()
    del adata.obsm["velocity"]
    ep.tl.pseudotime(adata, adata.uns["first"])
    pd.testing.assert_series_equal(adata.obs["entropath_potential"], before)


def test_confidence_weights_velocities():
    adata = flow("cycle")
    wrong = np.random.default_rng(0).random(adata.n_obs) < 0.4
    adata.obsm["velocity"][wrong] *= -1
    adata.obs["sure"] = np.where(wrong, 0.0, 1.0)
    found = {}
    for name in (None, "sure"):
        ep.tl.merw_graph(adata, direction="velocity", confidence=name)
        ep.tl.pseudotime(adata, adata.uns["first"])
        found[name] = spearmanr(adata.obs["entropath_pseudotime"], adata.obs["t"])[0]
    assert found["sure"] > 0.97 > found[None]


# Errors


def test_errors_name_the_field_and_the_next_step():
    adata = flow("line", n=100)
    adata.layers["velocity_of_genes"] = np.zeros((100, 1))
    adata.obs["batch"] = ["a", "b"] * 50
    adata.obs["one"] = 1
    adata.obsm["thin"] = np.ones((100, 2))
    adata.obsm["zero"] = np.zeros((100, 3))
    adata.obsm["bad"] = np.where(np.arange(300).reshape(100, 3) == 5, np.nan, 1.0)
    adata.obsp["empty"] = sp.csr_matrix((100, 100))
    cases = [
        ({"direction": "velo"}, KeyError, "scvelo.tl.velocity"),
        ({"direction": "velocity_of_genes"}, ValueError, "loadings"),
        ({"direction": "thin"}, ValueError, r"shape \(100, 2\)"),
        ({"direction": "zero"}, ValueError, "zero in all cells"),
        ({"direction": "bad"}, ValueError, "NaN or inf in 1 cells"),
        ({"direction": "empty"}, ValueError, "no positive entry"),
        ({"direction": "velocity", "strength": -1}, ValueError, "strength=-1"),
        ({"direction": "velocity", "confidence": "none"}, KeyError, "adata.obs"),
        ({"confidence": "one"}, ValueError, "direction="),
        ({"time_key": "when"}, KeyError, "time_key"),
        ({"time_key": "batch"}, ValueError, "ordered"),
        ({"time_key": "one"}, ValueError, "one time only"),
    ]
    for options, error, words in cases:
        with pytest.raises(error, match=words):
            ep.tl.merw_graph(adata, **options)
        assert not adata.uns.get("entropath"), options


def test_genes_without_loadings_and_cells_without_velocity():
    adata = flow("line", n=100)
    genes = ad.AnnData(np.zeros((100, 4), dtype=np.float32), obs=adata.obs)
    genes.obsm["X_pca"] = adata.obsm["X_pca"]
    genes.varm["PCs"] = np.vstack([np.eye(3), np.zeros((1, 3))])
    genes.layers["velocity"] = np.full((100, 4), np.nan)
    genes.layers["velocity"][:, 3] = 1.0
    with pytest.raises(ValueError, match="None of the 1 genes with a velocity"):
        ep.tl.merw_graph(genes, direction="velocity")
    adata.obsm["velocity"][:7] = 0
    with pytest.warns(UserWarning, match="zero in 7 cells"):
        ep.tl.merw_graph(adata, direction="velocity")


def test_landmarks_have_no_direction():
    adata = flow("line")
    ep.tl.merw_graph(adata, direction="velocity")
    with pytest.raises(ValueError, match="landmarks have no direction"):
        ep.tl.pseudotime(adata, adata.uns["first"], n_landmarks=50)


def test_the_papers_preset_runs_on_a_directed_graph():
    adata = flow("cycle", n=200)
    ep.tl.merw_graph(adata, direction="velocity", strength=1, preset="paper")
    assert adata.obs["entropath_stationary"].sum() == pytest.approx(1.0)
    ep.tl.embedding(adata, preset="paper")
    assert np.isfinite(adata.obsm["X_entropath"]).all()
    ep.tl.pseudotime(adata, adata.uns["first"], preset="paper")
    assert np.isfinite(adata.obs["entropath_pseudotime"]).all()
