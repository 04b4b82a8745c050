"""The tools on an AnnData object: what they set, that it lasts, and that it is the same twice."""

from __future__ import annotations

from io import StringIO

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scipy.sparse as sp
from scipy.stats import spearmanr

import entropath_sc as ep


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
    assert cells.obs["entropath_stationary"].sum() == pytest.approx(1.0)
    T = cells.obsp["entropath_transitions"]
    np.testing.assert_allclose(np.asarray(T.sum(axis=1)).ravel(), 1.0)
    assert {"params", "graph", "depth", "embedding", "pseudotime"} <= set(cells.uns["entropath"])
    assert set(cells.uns["entropath"]["params"]) == {"merw_graph", "embedding", "pseudotime"}
    order = cells.obs["entropath_pseudotime"]
    assert order[cells.uns["root"]] == 0.0
    assert order.max() == 1.0
    assert spearmanr(order, cells.obs["time"]).statistic > 0.9


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


def test_a_graph_is_made_again_when_its_neighbours_are_new(cells):
    sc.pp.neighbors(cells, use_rep="X_pca")
    ep.tl.merw_graph(cells, kernel="gaussian")
    before = cells.obsp["entropath_affinity"].nnz
    sc.pp.neighbors(cells, n_neighbors=30, use_rep="X_pca")
    order = cells.copy()
    for adata, step in ((cells, ep.tl.embedding), (order, lambda adata: ep.tl.pseudotime(adata, root="cell_0"))):
        with pytest.warns(UserWarning, match="neighbours are not what .* made again"):
            step(adata)
        assert adata.obsp["entropath_affinity"].nnz > 1.5 * before
        assert adata.uns["entropath"]["params"]["merw_graph"]["kernel"] == "gaussian"
        step(adata)  # a warning would be an error
    # The same neighbours of the same cells in another order are no other ones.
    ep.tl.embedding(cells[::-1].copy())


def test_a_graph_is_made_again_when_its_representation_is_new(cells):
    ep.tl.embedding(cells)
    first = cells.obsm["X_entropath"].copy()
    cells.obsm["X_pca"] = cells.obsm["X_pca"][:, :5]
    with pytest.warns(UserWarning, match="representation is not what"):
        ep.tl.embedding(cells)
    assert not np.allclose(first, cells.obsm["X_entropath"])
    ep.tl.embedding(cells)
    del cells.obsm["X_pca"]  # nothing to compare with, and nothing new
    ep.tl.pseudotime(cells, root="cell_0")


def test_the_papers_preset_on_another_graph_is_told(cells):
    ep.tl.merw_graph(cells)
    for step in (ep.tl.embedding, lambda adata, preset: ep.tl.pseudotime(adata, root="cell_0", preset=preset)):
        with pytest.warns(UserWarning, match="not the paper's: its kernel is 'tempered'"):
            step(cells, preset="paper")
    ep.tl.merw_graph(cells, preset="paper")
    ep.tl.embedding(cells, preset="paper")


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
    for category in (1, "1"):
        ep.tl.pseudotime(cells, root=("cluster", category))
        assert len(cells.uns["entropath"]["pseudotime"]["roots"]) == (cells.obs["cluster"] == 1).sum()


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
@pytest.mark.parametrize("graph", ["knn", "compressed", "anchor"])
def test_landmark_routes(cells, rule, graph):
    ep.tl.embedding(cells, n_landmarks=120, landmarks=rule, landmark_graph=graph, include=cells.uns["root"])
    assert cells.obs["entropath_landmark"].sum() == 120
    assert cells.obs.loc[cells.uns["root"], "entropath_landmark"]
    assert np.isfinite(cells.obsm["X_entropath"]).all()
    assert ("entropath_affinity" in cells.obsp) == (graph != "anchor")


def test_given_landmarks(cells):
    given = list(cells.obs_names[::4])
    ep.tl.embedding(cells, landmarks=given, include=("branch", "fate C"))
    expected = set(given) | set(cells.obs_names[cells.obs["branch"] == "fate C"])
    assert set(cells.obs_names[cells.obs["entropath_landmark"]]) == expected


def test_pseudotime_through_landmarks_agrees_with_the_graph(landmarked):
    root = landmarked.uns["root"]
    ep.tl.embedding(landmarked, n_landmarks=300, landmark_graph="anchor", key_added="anchor")
    ep.tl.pseudotime(landmarked, root=root, key_added="anchor")
    ep.tl.pseudotime(landmarked, root=root)
    assert "anchor_affinity" not in landmarked.obsp
    assert landmarked.obs.loc[root, "anchor_pseudotime"] == 0
    assert spearmanr(landmarked.obs["anchor_pseudotime"], landmarked.obs["entropath_pseudotime"]).statistic > 0.95


@pytest.fixture
def as_if_many(monkeypatch):
    """A few hundred cells count as many, and are ordered on 200 landmarks."""
    from entropath_sc.tl import _ground

    monkeypatch.setattr(_ground, "MOST_CELLS", 300)
    monkeypatch.setattr(_ground, "N_LANDMARKS", 200)


def test_the_order_of_many_cells_is_carried_by_landmarks_whatever_was_run_before(cells, as_if_many):
    fresh, with_graph, embedded, in_full = (cells.copy() for _ in range(4))
    ep.tl.merw_graph(with_graph)
    ep.tl.merw_graph(embedded)
    ep.tl.embedding(embedded, n_landmarks=200)
    for adata in (fresh, with_graph, embedded):
        ep.tl.pseudotime(adata, root="cell_0")
        assert adata.uns["entropath"]["pseudotime"]["on"] == "landmarks"
        np.testing.assert_allclose(adata.obs["entropath_potential"], fresh.obs["entropath_potential"], rtol=1e-5)
    assert "entropath_affinity" not in fresh.obsp
    ep.tl.pseudotime(in_full, root="cell_0", on="cells")
    assert in_full.uns["entropath"]["pseudotime"]["on"] == "cells"
    assert 0.9 < spearmanr(in_full.obs["entropath_potential"], fresh.obs["entropath_potential"])[0] < 0.9999


def test_many_cells_stay_in_their_graph_where_landmarks_cannot_carry_their_order(cells, as_if_many):
    sc.pp.neighbors(cells, use_rep="X_pca")
    of_the_paper, without = cells.copy(), cells.copy()
    ep.tl.pseudotime(of_the_paper, root="cell_0", potential="merw")
    del without.obsm["X_pca"]
    ep.tl.pseudotime(without, root="cell_0")
    for adata in (of_the_paper, without):
        assert adata.uns["entropath"]["pseudotime"]["on"] == "cells"


def test_landmarks_in_several_components_are_told(cells, as_if_many):
    cells.obsm["X_pca"][:100] += 1000.0
    with pytest.warns(UserWarning, match=r"landmarks form 2 components, of \d+, \d+\. .*order across a bridge"):
        ep.tl.pseudotime(cells, root="cell_0")
    assert np.isfinite(cells.obs["entropath_potential"]).all()
    with pytest.warns(UserWarning, match=r"landmarks form 2 components, of \d+, \d+\. .*distances"):
        ep.tl.embedding(cells, n_landmarks=200)
    assert np.isfinite(cells.obsm["X_entropath"]).all()


def test_landmarks_are_not_misled_by_a_few_false_neighbours():
    adata = ep.datasets.swiss_roll(4000)
    intrinsic = adata.obsm["intrinsic"]
    corner = int(intrinsic.sum(axis=1).argmin())
    truth = np.linalg.norm(intrinsic - intrinsic[corner], axis=1)
    ep.tl.merw_graph(adata, use_rep="X")
    found = {}
    for on in ("cells", "landmarks"):
        ep.tl.pseudotime(adata, root=adata.obs_names[corner], on=on)
        found[on] = spearmanr(adata.obs["entropath_pseudotime"], truth)[0]
    assert found["landmarks"] > 0.99
    assert found["cells"] < 0.95


def mean_agreement(n_cells: int, **options) -> float:
    """With the true time, on three seeds."""
    found = []
    for seed in range(3):
        adata = ep.datasets.branching(n_cells, random_state=seed)
        if options.get("on") == "landmarks":
            ep.tl.embedding(adata, n_landmarks=150)
        ep.tl.pseudotime(adata, root=adata.uns["root"], **options)
        found.append(spearmanr(adata.obs["entropath_pseudotime"], adata.obs["time"])[0])
    return float(np.mean(found))


def test_few_cells_are_ordered_by_their_paths_and_not_by_where_heat_settles():
    assert mean_agreement(100) > 0.94
    assert mean_agreement(100, depth=4.0) < 0.9


def test_few_landmarks_are_not_averaged_away(monkeypatch):
    from entropath_sc.core import refinement

    assert mean_agreement(1500, on="landmarks", refine=1.0) > 0.97
    monkeypatch.setattr(refinement, "MEANS_PER_NEIGHBOUR", refinement.CELLS_PER_NEIGHBOUR)
    assert mean_agreement(1500, on="landmarks", refine=1.0) < 0.95


@pytest.mark.parametrize("n_components", [1, 3, 5])
def test_dimensions(cells, n_components):
    ep.tl.embedding(cells, n_components=n_components, mds="metric")
    assert cells.obsm["X_entropath"].shape == (400, n_components)


def test_options_change_the_result(cells):
    ep.tl.merw_graph(cells)
    seen = []
    for options in (
        {},
        {"depth": 3},
        {"depth": "knee"},
        {"diffusion": "power"},
        {"dissimilarity": "normalised"},
        {"dissimilarity": "free_energy"},
        {"mds": "classical"},
    ):
        ep.tl.embedding(cells, **options)
        found = cells.obsm["X_entropath"].copy()
        assert np.isfinite(found).all()
        assert not any(np.array_equal(found, other) for other in seen), options
        seen.append(found)


@pytest.mark.parametrize("potential", ["merw", "symmetric", "normalised"])
@pytest.mark.parametrize("diffusion", ["heat", "power"])
@pytest.mark.parametrize("scaling", ["minmax", "rank"])
def test_orders(cells, potential, diffusion, scaling):
    if potential == "merw":
        ep.tl.merw_graph(cells, kernel="alpha_decay")
    ep.tl.pseudotime(cells, root=cells.uns["root"], potential=potential, diffusion=diffusion, scaling=scaling)
    order = cells.obs["entropath_pseudotime"]
    assert np.isfinite(order).all()
    assert np.isfinite(cells.obs["entropath_potential"]).all()
    assert order.between(0, 1).all()
    assert order[cells.uns["root"]] == 0
    # The paper's potential is bent by ψ, which localises, on its own kernel less than on the default one.
    assert spearmanr(order, cells.obs["time"]).statistic > (0.5 if potential == "merw" else 0.9)


def test_the_papers_walk_potential_bends_the_order(cells):
    scores = {}
    for potential in ("symmetric", "merw"):
        ep.tl.pseudotime(cells, root=cells.uns["root"], potential=potential, depth=8)
        scores[potential] = spearmanr(cells.obs["entropath_pseudotime"], cells.obs["time"]).statistic
    assert scores["symmetric"] > scores["merw"]


def test_a_refined_order_is_nearer_to_the_true_time_than_a_plain_one():
    cells = ep.datasets.branching(1500, random_state=1)
    scores = {}
    for depth in ("auto", 4.0, 8.0):
        ep.tl.pseudotime(cells, root=cells.uns["root"], depth=depth)
        scores[depth] = spearmanr(cells.obs["entropath_pseudotime"], cells.obs["time"]).statistic
        assert (cells.uns["entropath"]["pseudotime"]["refined"] > 0.5) == (depth == "auto")
    assert scores["auto"] > 0.98
    assert max(scores[4.0], scores[8.0]) < scores["auto"] - 0.005


def test_the_share_of_the_refined_order_can_be_given(cells):
    orders = {}
    for refine in (0, 0.5, 1.0):
        ep.tl.pseudotime(cells, root=cells.uns["root"], refine=refine)
        assert cells.uns["entropath"]["pseudotime"]["refined"] == refine
        assert cells.uns["entropath"]["params"]["pseudotime"]["refine"] == refine
        orders[refine] = cells.obs["entropath_potential"].to_numpy()
    inside = cells.obs_names != cells.uns["root"]
    np.testing.assert_allclose(orders[0.5][inside], 0.5 * (orders[0] + orders[1.0])[inside], rtol=1e-9)


def test_without_the_representation_behind_its_neighbours_an_order_stays_plain(cells):
    ep.tl.merw_graph(cells)
    del cells.obsm["X_pca"]
    ep.tl.pseudotime(cells, root=cells.uns["root"])
    assert cells.uns["entropath"]["pseudotime"]["refined"] == 0
    with pytest.raises(ValueError, match="representation behind the neighbours is needed"):
        ep.tl.pseudotime(cells, root=cells.uns["root"], refine=0.5)


@pytest.mark.parametrize(
    ("genes", "options", "expected"),
    [
        (slice(None), {"n_pcs": 10}, ("X_pca", 10)),
        (slice(None), {"use_rep": "X", "n_pcs": 10}, ("X", None)),
        (slice(None), {"n_pcs": 0}, ("X", None)),
        (slice(30), {"n_pcs": 10}, ("X", None)),
    ],
)
def test_an_order_is_refined_where_scanpy_searched_the_neighbours(cells, genes, options, expected):
    some = cells[:, genes].copy()
    sc.pp.neighbors(some, **options)
    ep.tl.pseudotime(some, root=some.uns["root"], refine=1)
    params = some.uns["entropath"]["params"]["merw_graph"]
    assert (params["use_rep"], params.get("n_pcs")) == expected


def test_genes_left_out_since_do_not_mislead(cells):
    sc.pp.neighbors(cells)
    few = cells[:, :30].copy()
    ep.tl.pseudotime(few, root=few.uns["root"], refine=1)
    ep.tl.pseudotime(cells, root=cells.uns["root"], refine=1)
    assert few.uns["entropath"]["params"]["merw_graph"]["use_rep"] == "X_pca"
    np.testing.assert_array_equal(few.obs["entropath_pseudotime"], cells.obs["entropath_pseudotime"])
    # Without the representation the order is a plain one, from the root alone; one with NaN is refused.
    few.obsm["X_pca"][0, 0] = np.nan
    with pytest.raises(ValueError, match="holds NaN or inf in 1 of 400 cells"):
        ep.tl.pseudotime(few, root=few.uns["root"], refine=0)
    del few.obsm["X_pca"]
    few.X = None
    ep.tl.pseudotime(few, root=few.uns["root"])
    assert few.uns["entropath"]["pseudotime"]["refined"] == 0


def test_several_roots_a_category_and_iroot(cells):
    some = list(cells.obs_names[[5, 7]])
    ep.tl.pseudotime(cells, root=some)
    assert (cells.obs.loc[some, "entropath_pseudotime"] == 0).all()
    assert list(cells.uns["entropath"]["pseudotime"]["roots"]) == some
    ep.tl.pseudotime(cells, root=cells.obs_names[[5, 7]])  # an Index does as well as a list
    assert list(cells.uns["entropath"]["pseudotime"]["roots"]) == some
    ep.tl.pseudotime(cells, root=("branch", "fate A"))
    assert (cells.obs["entropath_pseudotime"][cells.obs["branch"] == "fate A"] == 0).all()
    cells.uns["iroot"] = 11
    ep.tl.pseudotime(cells)
    assert cells.obs["entropath_pseudotime"].iloc[11] == 0


def test_a_terminal_cell_leaves_other_branches_as_they_are():
    adata = ep.datasets.branching(1000)
    last = adata.obs.loc[adata.obs["branch"] == "fate B", "time"].idxmax()
    sibling = (adata.obs["branch"] == "fate C").to_numpy()
    options = {"depth": "auto", "diffusion": "heat", "potential": "symmetric"}
    ep.tl.merw_graph(adata, kernel="gaussian")
    found = {}
    for preset in ("default", "paper"):
        ep.tl.pseudotime(adata, adata.uns["root"], terminal=last, preset=preset, **options)
        assert adata.obs.loc[last, "entropath_pseudotime"] == 1.0
        found[preset] = spearmanr(adata.obs["entropath_pseudotime"][sibling], adata.obs["time"][sibling])[0]
    assert found["default"] > 0.8
    assert found["paper"] < 0


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


def test_results_do_not_depend_on_threads(cells):
    import numba

    before = numba.get_num_threads()
    ep.tl.embedding(cells, n_landmarks=150, n_jobs=1)
    one = cells.obsm["X_entropath"].copy()
    ep.tl.embedding(cells, n_landmarks=150, n_jobs=2)
    assert numba.get_num_threads() == before
    np.testing.assert_allclose(one, cells.obsm["X_entropath"], atol=1e-5 * np.ptp(one))


def test_interruption_leaves_the_object_as_it_was(cells, monkeypatch):
    from entropath_sc.core import mds

    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(mds, "_guttman", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ep.tl.embedding(cells)
    assert not [key for key in (*cells.uns, *cells.obs, *cells.obsm, *cells.obsp) if "entropath" in key]


def test_the_papers_preset_is_its_options(cells):
    """Written out or as a preset, the result is the same to the bit; and not that of the defaults."""
    other = cells.copy()
    ep.tl.merw_graph(cells, preset="paper")
    ep.tl.embedding(cells, preset="paper", n_landmarks=150)
    ep.tl.pseudotime(cells, root=cells.uns["root"], preset="paper")
    ep.tl.merw_graph(other, kernel="alpha_decay")
    ep.tl.embedding(
        other,
        n_landmarks=150,
        landmarks="kmeans",
        landmark_graph="knn",
        n_project=50,
        diffusion="power",
        depth="knee",
        dissimilarity="free_energy",
    )
    depth = int(other.uns["entropath"]["depth"]["chosen"])
    ep.tl.pseudotime(other, root=cells.uns["root"], potential="merw", diffusion="power", depth=depth)
    np.testing.assert_array_equal(cells.obsm["X_entropath"], other.obsm["X_entropath"])
    np.testing.assert_array_equal(cells.obs["entropath_potential"], other.obs["entropath_potential"])
    ep.tl.embedding(other, n_landmarks=150)
    assert not np.array_equal(cells.obsm["X_entropath"], other.obsm["X_entropath"])


def test_given_options_win_over_the_preset(cells):
    ep.tl.embedding(cells, preset="paper", diffusion="heat", depth=3)
    params = cells.uns["entropath"]["params"]["embedding"]
    assert (params["diffusion"], params["depth"], params["landmarks"]) == ("heat", 3, "kmeans")


def test_depth_of_the_embedding_for_the_order(cells):
    with pytest.raises(ValueError, match=r"run `ep.tl.embedding\(adata\)` first"):
        ep.tl.pseudotime(cells, root=cells.uns["root"], depth="embedding")
    ep.tl.embedding(cells, depth=6)
    ep.tl.pseudotime(cells, root=cells.uns["root"], depth="embedding")
    assert cells.uns["entropath"]["pseudotime"]["depth"] == 6


@pytest.mark.parametrize("n_landmarks", [2000, 150])
def test_a_named_representation_is_used_throughout(cells, n_landmarks):
    other = cells.copy()
    other.obsm["X_pca"] = cells.obsm["X_pca"][:, 5:]
    ep.tl.embedding(other, n_landmarks=n_landmarks, landmark_graph="compressed")
    cells.obsm["X_latent"] = other.obsm["X_pca"]
    ep.tl.merw_graph(cells)  # in X_pca, and not to be used
    ep.tl.embedding(cells, n_landmarks=n_landmarks, landmark_graph="compressed", use_rep="X_latent")
    np.testing.assert_array_equal(cells.obsm["X_entropath"], other.obsm["X_entropath"])
    assert cells.uns["entropath"]["params"]["merw_graph"]["use_rep"] == "X_latent"
    assert cells.uns["entropath"]["params"]["embedding"]["use_rep"] == "X_latent"
    with pytest.raises(KeyError, match="X_nowhere"):
        ep.tl.embedding(cells, n_landmarks=n_landmarks, use_rep="X_nowhere")


def test_an_anchor_graph_in_a_named_representation_needs_no_neighbours(cells):
    cells.obsm["X_latent"] = cells.obsm.pop("X_pca")
    ep.tl.embedding(cells, n_landmarks=150, use_rep="X_latent")
    assert cells.uns["entropath"]["params"]["embedding"]["landmark_graph"] == "anchor"
    ep.tl.pseudotime(cells, root=cells.uns["root"])
    assert ep.metrics.pseudotime_agreement("entropath_pseudotime", "time", adata=cells)["spearman"] > 0.9
