"""The tools on an AnnData object: what they set, that it lasts, and that it is the same twice."""

from __future__ import annotations

import re
import warnings
from io import StringIO

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scipy.sparse as sp
from scipy.stats import spearmanr

import entropath_sc as ep
from entropath_sc.core.parallel import n_threads


def run_all(adata, **options):
    ep.tl.merw_graph(adata, transitions=True)
    ep.tl.embedding(adata, **options)
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    return adata


def fields(adata) -> dict:
    """All that was set, flat."""
    flat = {}

    def collect(prefix, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                collect(f"{prefix}/{key}", inner)
        else:
            flat[prefix] = value.toarray() if sp.issparse(value) else np.asarray(value)

    collect("uns", adata.uns["entropath"])
    for name in ("obs", "obsm", "obsp"):
        for key in getattr(adata, name):
            if "entropath" in key:
                collect(f"{name}/{key}", getattr(adata, name)[key])
    return flat


def assert_same(a: dict, b: dict) -> None:
    assert a.keys() == b.keys()
    for key in a:
        np.testing.assert_array_equal(a[key], b[key], err_msg=key)


def test_all_documented_fields_are_set(cells):
    run_all(cells)
    assert cells.obsm["X_entropath"].shape == (400, 2)
    assert cells.obsm["X_entropath"].dtype == np.float32
    assert cells.obs["entropath_landmark"].all()
    assert "entropath_stationary" not in cells.obs
    T = cells.obsp["entropath_transitions"]
    np.testing.assert_allclose(np.asarray(T.sum(axis=1)).ravel(), 1.0, atol=2e-6)
    assert np.abs(T - T.T).max() < 1e-12  # so that all cells have the same mass
    A, lengths = cells.obsp["entropath_affinity"], cells.obsp["entropath_lengths"]
    assert ((A > 0) != (lengths > 0)).nnz == 0
    bandwidths, scale = cells.obsm["entropath_scales"].T
    np.testing.assert_allclose(scale * (A @ scale + scale), 1.0, atol=2e-6)
    assert (bandwidths > 0).all()
    assert {"params", "graph", "depth", "embedding", "pseudotime"} <= set(cells.uns["entropath"])
    assert "landmarks" not in cells.uns["entropath"]
    assert set(cells.uns["entropath"]["params"]) == {"merw_graph", "embedding", "pseudotime"}
    order = cells.obs["entropath_pseudotime"]
    assert order[cells.uns["root"]] == 0.0
    assert order.max() == 1.0
    assert spearmanr(order, cells.obs["time"]).statistic > 0.9
    depth = cells.uns["entropath"]["depth"]
    assert len(depth["depths"]) == len(depth["agreement"])
    assert depth["chosen"] in depth["depths"]
    assert "knee" not in depth  # it is of the paper's walk
    assert cells.uns["entropath"]["pseudotime"]["on"] == "cells"
    assert cells.uns["entropath"]["pseudotime"]["depth"] == depth["chosen"]


def test_fields_of_landmarks(landmarked):
    kept = landmarked.uns["entropath"]["landmarks"]
    assert list(kept["barcodes"]) == list(landmarked.obs_names[landmarked.obs["entropath_landmark"]])
    assert list(kept["barcodes"]) == list(landmarked.obs_names[kept["cells"]])
    assert len(kept["barcodes"]) == 200
    for name in ("positions", "bandwidths", "coordinates"):
        assert len(kept[name]) == 200, name
    assert kept["affinity"].shape == (200, 200)
    assert len(kept["lengths"]) == kept["affinity"].nnz
    assert sum(kept["component_sizes"]) == 200
    # Without landmarks, nothing of them stays.
    ep.tl.embedding(landmarked)
    assert "landmarks" not in landmarked.uns["entropath"]
    assert landmarked.obs["entropath_landmark"].all()


def test_the_papers_graph_has_the_papers_walk(cells):
    ep.tl.merw_graph(cells, preset="paper", transitions=True)
    mass, T = cells.obs["entropath_stationary"].to_numpy(), cells.obsp["entropath_transitions"]
    assert mass.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(np.asarray(T.sum(axis=1)).ravel(), 1.0)
    np.testing.assert_allclose(mass @ T, mass, rtol=1e-6)
    found = cells.uns["entropath"]["graph"]
    assert found["lambda_max"] == pytest.approx(np.linalg.eigvalsh(cells.obsp["entropath_affinity"].toarray())[-1])
    assert found["residual"] < 1e-4
    ep.tl.merw_graph(cells)
    assert "entropath_stationary" not in cells.obs
    assert "lambda_max" not in cells.uns["entropath"]["graph"]


def test_embedding_keeps_branches_apart_where_time_reversed_labels_do_not(cells):
    from sklearn.metrics import silhouette_score

    ep.tl.embedding(cells)
    tips = cells[(cells.obs["time"] > 0.75) | (cells.obs["time"] < 0.2)]
    score = silhouette_score(tips.obsm["X_entropath"], tips.obs["branch"])
    shuffled = silhouette_score(
        tips.obsm["X_entropath"], np.random.default_rng(0).permutation(tips.obs["branch"].to_numpy())
    )
    assert score > 0.5
    assert shuffled < 0.1


@pytest.mark.parametrize("landmarked_run", [False, True])
def test_same_seed_same_bytes(cells, landmarked_run):
    options = {"n_landmarks": 150} if landmarked_run else {}
    assert_same(fields(run_all(cells.copy(), **options)), fields(run_all(cells, **options)))


def test_the_seed_reaches_the_landmarks_of_the_order(cells):
    first, again, other = (cells.copy() for _ in range(3))
    for adata, seed in ((first, 0), (again, 0), (other, 5)):
        ep.tl.pseudotime(adata, root="cell_0", n_landmarks=100, random_state=seed)
    positions = [adata.uns["entropath"]["pseudotime"]["landmarks"]["positions"] for adata in (first, again, other)]
    assert np.array_equal(positions[0], positions[1])
    assert not np.array_equal(positions[0], positions[2])
    ep.tl.terminal_states(other, n_resamples=0)  # reads the order on the same landmarks
    assert "entropath_terminal" in other.obs


def test_how_many_landmarks_cells_are_placed_among_does_not_change_their_graph(cells):
    few, usual = cells.copy(), cells.copy()
    ep.tl.embedding(few, n_landmarks=100, n_project=1)
    ep.tl.embedding(usual, n_landmarks=100)
    graphs = [adata.uns["entropath"]["landmarks"]["affinity"] for adata in (few, usual)]
    assert (graphs[0] != graphs[1]).nnz == 0
    assert len(np.unique(few.obsm["X_entropath"], axis=0)) <= 100 < len(np.unique(usual.obsm["X_entropath"], axis=0))


@pytest.mark.parametrize("neighbours", [False, True])
def test_copies_of_cells_are_no_reason_for_warnings(cells, neighbours):
    rows = np.r_[0, 0:400, 0:200]
    more = ad.AnnData(obs=pd.DataFrame(index=[f"cell_{i}" for i in range(len(rows))]))
    more.obsm["X_pca"] = cells.obsm["X_pca"][rows]
    if neighbours:
        sc.pp.neighbors(more, use_rep="X_pca")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ep.tl.merw_graph(more)
        ep.tl.embedding(more, n_landmarks=500)
        ep.tl.pseudotime(more, root="cell_0")
    # Of cells in one place one is a landmark.
    assert len(np.unique(more.obsm["X_pca"][more.obs["entropath_landmark"]], axis=0)) == 400
    assert more.obs["entropath_landmark"].sum() == 400


def test_changed_positions_are_noticed_wherever_they_are(cells):
    """Neighbours that were searched in them before are those of other cells."""
    for origin in (0.0, 1000.0):
        adata = cells.copy()
        adata.obsm["X_pca"] = cells.obsm["X_pca"] + np.float32(origin)
        sc.pp.neighbors(adata)
        adata.obsm["X_pca"] = adata.obsm["X_pca"] + np.random.default_rng(0).normal(scale=0.3, size=(400, 30))
        with pytest.warns(UserWarning, match="which has changed since"):
            ep.tl.merw_graph(adata)


def test_the_seed_reaches_the_landmarks(cells):
    ep.tl.embedding(cells, n_landmarks=100, random_state=0, key_added="a")
    ep.tl.embedding(cells, n_landmarks=100, random_state=1, key_added="b")
    assert (cells.obs["a_landmark"] != cells.obs["b_landmark"]).any()


def test_transitions_of_an_earlier_graph_do_not_stay(cells):
    ep.tl.merw_graph(cells, transitions=True)
    ep.tl.merw_graph(cells, decay=2.0)
    assert "entropath_transitions" not in cells.obsp


def test_steps_can_be_repeated(cells):
    first = fields(run_all(cells))
    assert_same(first, fields(run_all(cells)))


def test_a_permutation_of_the_cells_permutes_the_result(cells):
    order = np.random.default_rng(0).permutation(cells.n_obs)
    moved = run_all(cells[order].copy())
    run_all(cells)
    back = np.argsort(order)
    difference = moved.obsp["entropath_affinity"][back][:, back] - cells.obsp["entropath_affinity"]
    assert np.abs(difference).max() < 1e-12
    np.testing.assert_allclose(moved.obs["entropath_pseudotime"].to_numpy()[back], cells.obs["entropath_pseudotime"])
    scale = np.ptp(cells.obsm["X_entropath"])
    np.testing.assert_allclose(moved.obsm["X_entropath"][back], cells.obsm["X_entropath"], atol=2e-3 * scale)


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_everything_survives_a_round_trip(tmp_path, landmarked, suffix):
    ep.tl.pseudotime(landmarked, root=landmarked.uns["root"], terminal=[landmarked.obs_names[-1]])
    path = tmp_path / f"x.{suffix}"
    if suffix == "h5ad":
        landmarked.write_h5ad(path)
        back = ad.read_h5ad(path)
    else:
        landmarked.write_zarr(path)
        back = ad.read_zarr(path)
    assert_same(fields(landmarked), fields(back))
    # And what was read can be worked on.
    ep.tl.pseudotime(back, root=back.uns["root"], terminal=[back.obs_names[-1]])
    ep.tl.embedding(back, n_landmarks=200)
    assert_same(fields(landmarked), fields(back))


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_everything_of_all_cells_survives_a_round_trip(tmp_path, cells, suffix, preset):
    path = tmp_path / f"x.{suffix}"
    ep.tl.merw_graph(cells, preset=preset)
    ep.tl.embedding(cells, preset=preset)
    ep.tl.pseudotime(cells, root=("branch", "trunk"), preset=preset)
    cells.write_h5ad(path) if suffix == "h5ad" else cells.write_zarr(path)
    back = ad.read_h5ad(path) if suffix == "h5ad" else ad.read_zarr(path)
    assert_same(fields(cells), fields(back))
    ep.tl.embedding(back, preset=preset)
    ep.tl.pseudotime(back, root=("branch", "trunk"), preset=preset)
    assert_same(fields(cells), fields(back))
    new = cells[::3].copy()
    expected = ep.tl.project(new, cells, copy=True)
    assert_same(fields(ep.tl.project(new, back, copy=True)), fields(expected))


def test_scanpys_neighbours_are_read(cells):
    sc.pp.neighbors(cells, n_neighbors=10, key_added="other")
    ep.tl.merw_graph(cells, neighbors_key="other")
    params = cells.uns["entropath"]["params"]["merw_graph"]
    assert params["neighbors_key"] == "other"
    assert params["n_neighbors"] == 10
    edges = cells.obsp["entropath_affinity"] > 0
    stored = cells.obsp["other_distances"] > 0
    assert (edges != (stored + stored.T)).nnz == 0
    # The exact search of this package finds the same neighbours.
    ep.tl.merw_graph(cells, use_rep="X_pca", n_neighbors=10, key_added="own")
    difference = cells.obsp["own_affinity"] - cells.obsp["entropath_affinity"]
    assert np.abs(difference).max() < 1e-3


def test_neighbours_as_scanpy_stores_those_of_many_cells_are_read_and_left_alone(cells):
    """Beyond 8,000 cells: single precision, indices by distance, and the cell itself first."""
    sc.pp.neighbors(cells, use_rep="X_pca")
    expected = run_all(cells.copy()).obsp["entropath_affinity"]
    dense = cells.obsp["distances"].toarray()
    # Each row by distance, the cell itself and then its neighbours.
    indices = np.argsort(np.where(np.eye(len(dense)) + dense > 0, dense, np.inf), axis=1)[:, :15]
    lengths = np.take_along_axis(dense, indices, axis=1).astype(np.float32)
    indptr = 15 * np.arange(len(dense) + 1)
    cells.obsp["distances"] = sp.csr_matrix((lengths.ravel(), indices.ravel(), indptr), shape=dense.shape)
    assert not cells.obsp["distances"].has_sorted_indices
    before = cells.obsp["distances"].toarray()
    for _ in range(2):
        run_all(cells)
        np.testing.assert_array_equal(cells.obsp["distances"].toarray(), before)
        np.testing.assert_allclose(cells.obsp["entropath_affinity"].toarray(), expected.toarray(), rtol=1e-5)
    ep.metrics.demap("distances", "X_entropath", adata=cells)
    np.testing.assert_array_equal(cells.obsp["distances"].toarray(), before)


def test_a_given_size_of_neighbourhoods_is_searched(cells):
    sc.pp.neighbors(cells, use_rep="X_pca")
    ep.tl.merw_graph(cells)
    before = cells.obsp["entropath_affinity"].nnz
    ep.tl.merw_graph(cells, n_neighbors=40)
    assert cells.obsp["entropath_affinity"].nnz > 2 * before
    assert cells.uns["entropath"]["params"]["merw_graph"]["n_neighbors"] == 40


@pytest.mark.parametrize("kind", [lambda X: pd.DataFrame(X).add_prefix("PC"), sp.csr_matrix])
@pytest.mark.parametrize("n_landmarks", [2000, 150])
def test_a_representation_may_be_any_kind_of_table(cells, kind, n_landmarks):
    expected = run_all(cells.copy(), n_landmarks=n_landmarks)
    table = kind(cells.obsm["X_pca"])
    if isinstance(table, pd.DataFrame):
        table.index = cells.obs_names
    cells.obsm["X_pca"] = table
    assert_same(fields(run_all(cells, n_landmarks=n_landmarks)), fields(expected))


def test_a_number_names_its_category_as_it_is_printed(cells):
    cells.obs["cluster"] = np.arange(cells.n_obs) % 3
    ep.tl.merw_graph(cells)
    orders = []
    for category in (1, "1"):
        ep.tl.pseudotime(cells, root=("cluster", category))
        (root,) = cells.uns["entropath"]["pseudotime"]["roots"]
        assert cells.obs.loc[root, "cluster"] == 1
        orders.append(cells.obs["entropath_pseudotime"].to_numpy())
    np.testing.assert_array_equal(*orders)


def test_search_options(cells):
    ep.tl.merw_graph(cells, n_pcs=5, n_neighbors=8)
    assert cells.uns["entropath"]["params"]["merw_graph"]["n_pcs"] == 5
    ep.tl.merw_graph(cells, use_rep="X", key_added="expression")
    assert cells.uns["expression"]["params"]["merw_graph"]["use_rep"] == "X"


def test_a_sparse_representation_is_read(cells):
    cells.obsm["X_sparse"] = sp.csr_matrix(cells.obsm["X_pca"])
    ep.tl.merw_graph(cells, use_rep="X_sparse", key_added="sparse")
    ep.tl.merw_graph(cells, use_rep="X_pca", key_added="dense")
    assert np.abs(cells.obsp["sparse_affinity"] - cells.obsp["dense_affinity"]).max() < 1e-6


def test_copy_leaves_the_original_alone(cells):
    before = list(cells.uns)
    done = ep.tl.merw_graph(cells, copy=True)
    done = ep.tl.embedding(done, copy=True)
    done = ep.tl.pseudotime(done, root=cells.uns["root"], copy=True)
    assert "X_entropath" in done.obsm
    assert list(cells.uns) == before
    assert not [key for key in (*cells.obs, *cells.obsm, *cells.obsp) if "entropath" in key]


def test_each_step_works_alone(cells):
    alone = cells.copy()
    ep.tl.embedding(alone)
    assert "entropath_affinity" in alone.obsp
    ep.tl.pseudotime(cells, root=cells.uns["root"])
    assert "entropath_affinity" in cells.obsp
    assert "X_entropath" not in cells.obsm


def test_a_view_is_made_actual_with_scanpys_warning(cells):
    part = cells[:300]
    with pytest.warns(UserWarning, match="Received a view"):
        ep.tl.merw_graph(part)
    assert not part.is_view
    assert "entropath_affinity" in part.obsp
    assert "entropath_affinity" not in cells.obsp


@pytest.mark.parametrize("rule", ["kmeans", "farthest", "random"])
@pytest.mark.parametrize("neighbours", [True, False])
def test_landmark_routes(cells, rule, neighbours):
    if neighbours:
        sc.pp.neighbors(cells, use_rep="X_pca")
    ep.tl.embedding(cells, n_landmarks=120, landmarks=rule, include=cells.uns["root"])
    assert cells.obs["entropath_landmark"].sum() == 120
    assert cells.obs.loc[cells.uns["root"], "entropath_landmark"]
    assert np.isfinite(cells.obsm["X_entropath"]).all()
    # Without neighbours no graph of cells is made.
    assert ("entropath_affinity" in cells.obsp) == neighbours


def test_neighbours_join_the_landmarks_where_there_are_some(cells):
    from entropath_sc.core.landmarks import compressed_graph
    from entropath_sc.core.nodes import Nodes

    sc.pp.neighbors(cells, use_rep="X_pca")
    ep.tl.embedding(cells, n_landmarks=120)
    kept = cells.uns["entropath"]["landmarks"]
    nodes = Nodes(kept["positions"], kept["bandwidths"], 10)
    nearest = nodes.nearest(cells.obsm["X_pca"])[0][:, 0]
    expected = compressed_graph(cells.obsp["entropath_affinity"], nearest, nodes)
    np.testing.assert_allclose(kept["affinity"].toarray(), expected.affinity.toarray())
    alone = ep.datasets.branching(n_cells=400, n_genes=200)
    ep.tl.embedding(alone, n_landmarks=120)
    assert not np.allclose(alone.uns["entropath"]["landmarks"]["affinity"].toarray(), expected.affinity.toarray())


def test_given_landmarks(cells):
    given = list(cells.obs_names[::4])
    ep.tl.embedding(cells, landmarks=given, include=("branch", "fate C"))
    expected = set(given) | set(cells.obs_names[cells.obs["branch"] == "fate C"])
    assert set(cells.obs_names[cells.obs["entropath_landmark"]]) == expected


@pytest.fixture
def as_if_many(monkeypatch):
    """More than 300 cells count as many: without neighbours they are ordered on 200 landmarks."""
    from entropath_sc.tl import _nodes

    monkeypatch.setattr(_nodes, "N_LANDMARKS", 200)


def test_pseudotime_through_landmarks_agrees_with_the_graph(cells):
    root = cells.uns["root"]
    ep.tl.pseudotime(cells, root=root, n_landmarks=150, key_added="few")
    ep.tl.merw_graph(cells)
    ep.tl.pseudotime(cells, root=root)
    assert "few_affinity" not in cells.obsp
    assert cells.uns["few"]["pseudotime"]["on"] == "landmarks"
    assert len(cells.uns["few"]["pseudotime"]["landmarks"]["positions"]) == 150
    assert cells.uns["entropath"]["pseudotime"]["on"] == "cells"
    assert cells.obs.loc[root, "few_pseudotime"] == 0
    assert 0.95 < spearmanr(cells.obs["few_pseudotime"], cells.obs["entropath_pseudotime"]).statistic < 0.99999


def test_landmarks_of_the_order_are_those_of_the_embedding(cells):
    fresh = cells.copy()
    ep.tl.embedding(cells, n_landmarks=150)
    ep.tl.pseudotime(cells, root="cell_0", n_landmarks=150)
    ep.tl.pseudotime(fresh, root="cell_0", n_landmarks=150)
    positions = cells.uns["entropath"]["landmarks"]["positions"]
    for adata in (cells, fresh):
        np.testing.assert_array_equal(adata.uns["entropath"]["pseudotime"]["landmarks"]["positions"], positions)


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_many_cells_are_ordered_on_landmarks_only_without_neighbours(cells, as_if_many, preset):
    with_neighbours = cells.copy()
    sc.pp.neighbors(with_neighbours, use_rep="X_pca")
    ep.tl.pseudotime(with_neighbours, root="cell_0", preset=preset)
    ep.tl.pseudotime(cells, root="cell_0", preset=preset)
    assert cells.uns["entropath"]["pseudotime"]["on"] == "landmarks"
    assert "entropath_affinity" not in cells.obsp
    # The paper's order of many cells is that of the paper's landmarks in any case.
    expected = "cells" if preset == "default" else "landmarks"
    assert with_neighbours.uns["entropath"]["pseudotime"]["on"] == expected
    for adata in (cells, with_neighbours):
        assert adata.obs["entropath_pseudotime"].iloc[0] == 0
        assert np.isfinite(adata.obs["entropath_potential"]).all()


def test_an_order_needs_no_positions_where_there_are_neighbours(cells):
    sc.pp.neighbors(cells, use_rep="X_pca")
    expected = ep.tl.pseudotime(cells, root="cell_0", copy=True)
    del cells.obsm["X_pca"]
    ep.tl.pseudotime(cells, root="cell_0")
    np.testing.assert_array_equal(cells.obs["entropath_pseudotime"], expected.obs["entropath_pseudotime"])
    assert cells.uns["entropath"]["pseudotime"]["on"] == "cells"


def test_landmarks_in_several_components_are_told(cells):
    cells.obsm["X_pca"][:100] += 1000.0
    for step in (
        lambda: ep.tl.pseudotime(cells, root="cell_0", n_landmarks=200),
        lambda: ep.tl.embedding(cells, n_landmarks=200),
    ):
        with pytest.warns(
            UserWarning, match=r"landmarks form 2 components, of \d+, \d+\. .*distances, nor the pseudotime"
        ):
            step()
    assert np.isfinite(cells.obs["entropath_potential"]).all()
    assert np.isfinite(cells.obsm["X_entropath"]).all()


def test_a_few_false_neighbours_do_not_mislead_the_order():
    adata = ep.datasets.swiss_roll(2000)
    intrinsic = adata.obsm["intrinsic"]
    corner = int(intrinsic.sum(axis=1).argmin())
    truth = np.linalg.norm(intrinsic - intrinsic[corner], axis=1)
    ep.tl.merw_graph(adata, use_rep="X")
    for n_landmarks in (None, 800):
        ep.tl.pseudotime(adata, root=adata.obs_names[corner], n_landmarks=n_landmarks)
        assert spearmanr(adata.obs["entropath_pseudotime"], truth).statistic > 0.98


def test_few_cells_are_ordered_by_their_paths():
    found = []
    for seed in range(3):
        adata = ep.datasets.branching(100, random_state=seed)
        ep.tl.pseudotime(adata, root=adata.uns["root"])
        found.append(spearmanr(adata.obs["entropath_pseudotime"], adata.obs["time"]).statistic)
    assert np.mean(found) > 0.94


@pytest.mark.parametrize("n_components", [1, 3, 5])
def test_dimensions(cells, n_components):
    ep.tl.embedding(cells, n_components=n_components, mds="metric")
    assert cells.obsm["X_entropath"].shape == (400, n_components)


def test_options_change_the_result(cells):
    ep.tl.merw_graph(cells, decay=40, bandwidth="larger")  # on which the paper's presets run without a warning
    seen = []
    for options in ({}, {"depth": 3}, {"preset": "paper"}, {"preset": "heat"}, {"mds": "classical"}):
        ep.tl.embedding(cells, **options)
        found = cells.obsm["X_entropath"].copy()
        assert np.isfinite(found).all()
        assert not any(np.array_equal(found, other) for other in seen), options
        seen.append(found)


@pytest.mark.parametrize("preset", ["default", "paper", "heat"])
@pytest.mark.parametrize("scaling", ["minmax", "rank"])
def test_orders(cells, preset, scaling):
    # Deep paths of the published walk lead to where it localises, wherever they begin.
    ep.tl.pseudotime(cells, root=cells.uns["root"], preset=preset, scaling=scaling, depth=4)
    order = cells.obs["entropath_pseudotime"]
    assert np.isfinite(order).all()
    assert np.isfinite(cells.obs["entropath_potential"]).all()
    assert order.between(0, 1).all()
    assert order[cells.uns["root"]] == 0
    assert spearmanr(order, cells.obs["time"]).statistic > (0.9 if preset == "default" else 0.5)


def test_depth_reaches_the_order(cells):
    ep.tl.merw_graph(cells)
    orders = {}
    for depth in (None, 10, 3.5, 100):
        ep.tl.pseudotime(cells, root=cells.uns["root"], depth=depth)
        assert cells.uns["entropath"]["pseudotime"]["depth"] == (depth or 10)
        orders[depth] = cells.obs["entropath_potential"].to_numpy()
    np.testing.assert_array_equal(orders[None], orders[10])
    assert not np.allclose(orders[3.5], orders[10])
    # A shallow path stays closer to the shortest one, and costs more.
    assert (orders[3.5] >= orders[100] - 1e-9).all()


def test_the_potential_solves_its_equation(cells):
    from entropath_sc.core.ensemble import PathEnsemble
    from entropath_sc.core.graph import Bridges, Graph

    ep.tl.pseudotime(cells, root="cell_7")
    A, lengths = cells.obsp["entropath_affinity"], cells.obsp["entropath_lengths"]
    ensemble = PathEnsemble.of(Graph(A, lengths.data, Bridges(np.array([400]), np.empty((0, 2)), np.empty(0))), 10.0)
    root = np.array([cells.obs_names.get_loc("cell_7")])
    assert ensemble.residual(cells.obs["entropath_potential"].to_numpy(), root) < 1e-6


@pytest.mark.parametrize(
    ("genes", "options", "expected"),
    [
        (slice(None), {"n_pcs": 10}, ("X_pca", 10)),
        (slice(None), {"use_rep": "X", "n_pcs": 10}, ("X", None)),
        (slice(None), {"n_pcs": 0}, ("X", None)),
        (slice(30), {"n_pcs": 10}, ("X", None)),
    ],
)
def test_landmarks_are_where_scanpy_searched_the_neighbours(cells, genes, options, expected):
    some = cells[:, genes].copy()
    sc.pp.neighbors(some, **options)
    ep.tl.pseudotime(some, root=some.uns["root"], n_landmarks=100)
    params = some.uns["entropath"]["params"]["merw_graph"]
    assert (params["use_rep"], params.get("n_pcs")) == expected
    n_columns = some.n_vars if expected[0] == "X" else expected[1]
    assert some.uns["entropath"]["pseudotime"]["landmarks"]["positions"].shape == (100, n_columns)


def test_genes_left_out_since_do_not_mislead(cells):
    sc.pp.neighbors(cells)
    few = cells[:, :30].copy()
    ep.tl.pseudotime(few, root=few.uns["root"], n_landmarks=100)
    ep.tl.pseudotime(cells, root=cells.uns["root"], n_landmarks=100)
    assert few.uns["entropath"]["params"]["merw_graph"]["use_rep"] == "X_pca"
    np.testing.assert_array_equal(few.obs["entropath_pseudotime"], cells.obs["entropath_pseudotime"])
    few.obsm["X_pca"][0, 0] = np.nan
    with pytest.raises(ValueError, match="holds NaN or inf in 1 of 400 cells"):
        ep.tl.pseudotime(few, root=few.uns["root"], n_landmarks=100)


def test_several_roots_and_iroot(cells):
    some = list(cells.obs_names[[5, 7]])
    ep.tl.pseudotime(cells, root=some)
    assert (cells.obs.loc[some, "entropath_pseudotime"] == 0).all()
    assert list(cells.uns["entropath"]["pseudotime"]["roots"]) == some
    ep.tl.pseudotime(cells, root=cells.obs_names[[5, 7]])  # an Index does as well as a list
    assert list(cells.uns["entropath"]["pseudotime"]["roots"]) == some
    cells.uns["iroot"] = 11
    ep.tl.pseudotime(cells)
    assert cells.obs["entropath_pseudotime"].iloc[11] == 0


@pytest.mark.parametrize("n_landmarks", [None, 150])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_a_category_has_one_root_deep_inside_it(cells, n_landmarks, preset):
    ep.tl.pseudotime(cells, root=("branch", "trunk"), n_landmarks=n_landmarks, preset=preset)
    (root,) = cells.uns["entropath"]["pseudotime"]["roots"]
    trunk = cells.obs["branch"] == "trunk"
    assert trunk[root]
    assert cells.obs.loc[root, "entropath_pseudotime"] == 0
    if preset == "default":  # the paper's walk may prefer another cell to its own root
        # Of the others, the first is where the scale begins.
        assert (cells.obs["entropath_pseudotime"] == 0).sum() == (2 if n_landmarks is None else 1)
    # The other branches begin at the late end of the trunk.
    assert cells.obs.loc[root, "time"] < cells.obs["time"][trunk].quantile(0.3)
    # The same cell as a barcode gives the same order.
    again = ep.tl.pseudotime(cells, root=root, n_landmarks=n_landmarks, preset=preset, copy=True)
    np.testing.assert_array_equal(cells.obs["entropath_pseudotime"], again.obs["entropath_pseudotime"])


def test_a_category_as_terminal_is_all_its_cells(cells):
    ep.tl.pseudotime(cells, root=cells.uns["root"], terminal=("branch", "fate B"))
    inside = cells.obs["branch"] == "fate B"
    assert (cells.obs["entropath_pseudotime"][inside] == 1).all()
    assert set(cells.uns["entropath"]["pseudotime"]["terminals"]) == set(cells.obs_names[inside])


def test_a_terminal_cell_leaves_other_branches_as_they_are():
    adata = ep.datasets.branching(1000)
    last = adata.obs.loc[adata.obs["branch"] == "fate B", "time"].idxmax()
    sibling = (adata.obs["branch"] == "fate C").to_numpy()
    ep.tl.pseudotime(adata, adata.uns["root"], terminal=last)
    assert adata.obs.loc[last, "entropath_pseudotime"] == 1.0
    assert spearmanr(adata.obs["entropath_pseudotime"][sibling], adata.obs["time"][sibling]).statistic > 0.8


def test_terminal_cells_come_last(cells):
    last = cells.obs_names[int(np.where(cells.obs["branch"] == "fate B", cells.obs["time"], 0).argmax())]
    ep.tl.pseudotime(cells, root=cells.uns["root"])
    without = cells.obs.loc[last, "entropath_pseudotime"]
    ep.tl.pseudotime(cells, root=cells.uns["root"], terminal=last)
    assert without < 1
    assert cells.obs.loc[last, "entropath_pseudotime"] == 1
    assert cells.obs.loc[cells.uns["root"], "entropath_pseudotime"] == 0


def test_components_are_bridged_with_a_warning(cells):
    apart = cells.copy()
    apart.obsm["X_pca"][:100] += 1000.0
    with pytest.warns(UserWarning, match=r"components, of 300, 100 cells"):
        ep.tl.merw_graph(apart)
    graph = apart.uns["entropath"]["graph"]
    assert graph["component_sizes"].tolist() == [300, 100]
    assert graph["bridges"].shape == (1, 2)
    ep.tl.embedding(apart)
    ep.tl.pseudotime(apart, root=apart.obs_names[0])
    assert np.isfinite(apart.obs["entropath_pseudotime"]).all()
    assert np.isfinite(apart.obsm["X_entropath"]).all()


def test_progress_is_reported_on_scanpys_terms(cells, capsys, monkeypatch):
    from entropath_sc.tl import _progress

    monkeypatch.setattr(_progress, "SECONDS_BEFORE_SHOWN", 0.0)
    ep.tl.embedding(cells)  # which may compile, and says so
    shown, logged = {}, {}
    verbosity = sc.settings.verbosity
    try:
        for level in (1, 3):
            sc.settings.verbosity = level
            sc.settings.logfile = log = StringIO()
            ep.tl.embedding(cells)
            shown[level] = capsys.readouterr().err
            logged[level] = log.getvalue()
    finally:
        sc.settings.verbosity = verbosity
        sc.settings.logfile = None
    assert "metric MDS" not in shown[1]
    assert "metric MDS" in shown[3]
    assert logged[1] == ""
    assert "computing the EntroPath embedding" in logged[3]
    assert "finished" in logged[3]


def logged_at(level, call) -> str:
    verbosity = sc.settings.verbosity
    try:
        sc.settings.verbosity = level
        sc.settings.logfile = log = StringIO()
        call()
    finally:
        sc.settings.verbosity = verbosity
        sc.settings.logfile = None
    return log.getvalue()


def test_each_tool_sums_up_in_one_line(cells):
    ep.tl.embedding(cells)
    new = cells[::4].copy()
    calls = {
        "400 cells embedded directly, depth 10": lambda: ep.tl.embedding(cells),
        "400 cells among 100 landmarks, depth 5": lambda: ep.tl.embedding(
            cells, n_landmarks=100, depth=5, key_added="other"
        ),
        "100 cells among 400 cells of the reference": lambda: ep.tl.project(new, cells),
        "2 terminal states ('fate A', 'fate B') of 400 cells": lambda: ep.tl.terminal_states(
            cells, groupby="branch", n_resamples=1
        ),
        "400 cells, 2 terminal states": lambda: ep.tl.fates(cells),
        "2 genes along 2 lineages, 400 cells": lambda: ep.tl.trends(cells, list(cells.var_names[:2])),
        "200 genes along 2 lineages, 400 cells": lambda: ep.tl.drivers(cells),
        "2 repeats of 400 cells": lambda: ep.tl.stability(cells, n_repeats=2),
    }
    ep.tl.pseudotime(cells, root=cells.uns["root"])
    for summary, call in calls.items():
        (line,) = [line for line in logged_at(2, call).splitlines() if "finished" in line]
        assert line.startswith(f"    finished: {summary}")
        assert re.search(r"\(\d+:\d\d:\d\d\)$", line)
        assert logged_at(1, call) == ""


def test_the_first_call_says_that_it_compiles(cells, monkeypatch):
    from entropath_sc.tl import _progress

    class Kernel:
        signatures = ()
        _cache = type("Cache", (), {"_cache_file": type("File", (), {"_index_path": "nowhere.nbi"})})

    _progress._say_compiling.cache_clear()
    assert "compiling" in logged_at(1, lambda: _progress.say_if_compiling(Kernel))
    assert logged_at(1, lambda: _progress.say_if_compiling(Kernel)) == ""  # once
    _progress._say_compiling.cache_clear()
    Kernel.signatures = ("compiled",)
    assert logged_at(1, lambda: _progress.say_if_compiling(Kernel)) == ""


def test_progress_counts_toward_its_end(cells):
    from entropath_sc.core.layout import smacof

    X = cells.obsm["X_pca"]
    D = np.linalg.norm(X[:, None] - X[None], axis=2)
    reports = []
    found = smacof(D, X[:, :2], report=lambda *report: reports.append(report))
    assert found.converged
    stages, done, totals = zip(*reports, strict=True)
    assert set(stages) == {"metric MDS, percent"}
    assert set(totals) == {100}
    assert list(done) == sorted(done)
    assert done[-1] == 100
    assert done[len(done) // 2] > 25  # not a bar that stands still and then jumps


def test_results_do_not_depend_on_threads(cells):
    before = n_threads()
    ep.tl.embedding(cells, n_landmarks=150, n_jobs=1)
    one = cells.obsm["X_entropath"].copy()
    ep.tl.embedding(cells, n_landmarks=150, n_jobs=2)
    assert n_threads() == before
    np.testing.assert_allclose(one, cells.obsm["X_entropath"], atol=1e-5 * np.ptp(one))


def test_interruption_leaves_the_object_as_it_was(cells, monkeypatch):
    from entropath_sc.core import layout

    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(layout, "_guttman", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ep.tl.embedding(cells)
    assert not [key for key in (*cells.uns, *cells.obs, *cells.obsm, *cells.obsp) if "entropath" in key]


def test_the_papers_preset_is_the_papers_method(cells):
    from entropath_sc.core import paper
    from entropath_sc.core.graph import graph_of_cells
    from entropath_sc.core.layout import classical
    from entropath_sc.core.neighbors import knn_distances

    ep.tl.embedding(cells, preset="paper", mds="classical")
    ep.tl.pseudotime(cells, root="cell_7", preset="paper")
    X = cells.obsm["X_pca"]
    graph, _ = graph_of_cells(knn_distances(X, 15), X, decay=40.0, bandwidth="larger")
    perron, knee = paper.walk_of(graph)
    assert cells.uns["entropath"]["depth"]["chosen"] == cells.uns["entropath"]["pseudotime"]["depth"] == knee.depth
    expected = classical(paper.free_energies(graph, perron, knee.depth, heat=False), 2)
    np.testing.assert_allclose(cells.obsm["X_entropath"], expected, rtol=1e-5, atol=1e-5)
    potential = paper.potential(graph, perron, np.arange(400) == 7, knee.depth, heat=False)
    others = np.arange(400) != 7
    np.testing.assert_allclose(cells.obs["entropath_potential"][others], potential[others], rtol=1e-9)


def test_the_papers_depth_is_the_knee_of_the_graph_that_it_runs_on(cells):
    ep.tl.embedding(cells, preset="paper", n_landmarks=100)
    ep.tl.pseudotime(cells, root="cell_0", preset="paper", n_landmarks=100)
    found = cells.uns["entropath"]
    assert found["pseudotime"]["depth"] == found["depth"]["knee"] == found["depth"]["chosen"]
    ep.tl.pseudotime(cells, root="cell_0", preset="paper")
    assert found["params"]["embedding"]["preset"] == "paper"
    assert cells.uns["entropath"]["pseudotime"]["on"] == "cells"
    assert cells.uns["entropath"]["pseudotime"]["depth"] != found["depth"]["knee"]


def test_given_options_win_over_the_preset(cells):
    ep.tl.embedding(cells, preset="paper", depth=3, n_landmarks=100, n_project=20)
    params = cells.uns["entropath"]["params"]["embedding"]
    assert (params["n_project"], params["depth"], params["landmarks"]) == (20, 3, "kmeans")
    assert cells.uns["entropath"]["depth"]["chosen"] == 3
    ep.tl.merw_graph(cells, preset="paper", decay=7)
    params = cells.uns["entropath"]["params"]["merw_graph"]
    assert (params["decay"], params["bandwidth"]) == (7, "larger")


@pytest.mark.parametrize("n_landmarks", [2000, 150])
def test_a_named_representation_is_used_throughout(cells, n_landmarks):
    other = cells.copy()
    other.obsm["X_pca"] = cells.obsm["X_pca"][:, 5:]
    ep.tl.embedding(other, n_landmarks=n_landmarks)
    cells.obsm["X_latent"] = other.obsm["X_pca"]
    ep.tl.merw_graph(cells)  # in X_pca, and not to be used
    ep.tl.embedding(cells, n_landmarks=n_landmarks, use_rep="X_latent")
    np.testing.assert_array_equal(cells.obsm["X_entropath"], other.obsm["X_entropath"])
    assert cells.uns["entropath"]["params"]["embedding"]["use_rep"] == "X_latent"
    if n_landmarks == 2000:
        assert cells.uns["entropath"]["params"]["merw_graph"]["use_rep"] == "X_latent"
    with pytest.raises(KeyError, match="X_nowhere"):
        ep.tl.embedding(cells, n_landmarks=n_landmarks, use_rep="X_nowhere")


def test_a_representation_other_than_the_pca_needs_no_neighbours(cells):
    cells.obsm["X_latent"] = cells.obsm.pop("X_pca")
    ep.tl.embedding(cells, n_landmarks=150, use_rep="X_latent")
    assert cells.uns["entropath"]["params"]["embedding"]["use_rep"] == "X_latent"
    assert "entropath_affinity" not in cells.obsp
    ep.tl.merw_graph(cells, use_rep="X_latent")
    ep.tl.pseudotime(cells, root=cells.uns["root"])
    assert ep.metrics.pseudotime_agreement("entropath_pseudotime", "time", adata=cells)["spearman"] > 0.9
