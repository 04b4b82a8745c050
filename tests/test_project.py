"""New cells in an old embedding."""

from __future__ import annotations

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from sklearn.utils.estimator_checks import parametrize_with_checks

import entropath_sc as ep
from entropath_sc.core.placement import Carrier, Nodes


def split(n_cells: int = 900):
    """A reference with order, and a fifth of the cells held out of it."""
    adata = ep.datasets.branching(n_cells=n_cells, n_genes=200)
    held = np.arange(n_cells) % 5 == 2
    held[adata.obs_names.get_loc(adata.uns["root"])] = False
    return adata, adata[~held].copy(), adata[held].copy(), held


@pytest.fixture(scope="module")
def _split():
    adata, ref, new, held = split()
    ep.tl.embedding(ref, n_landmarks=300)
    ep.tl.pseudotime(ref, root=ref.uns["root"])
    return adata, ref, new, held


@pytest.fixture
def parts(_split):
    return tuple(part.copy() for part in _split)


def test_a_cell_between_two_nodes_by_hand():
    nodes = Nodes.at(np.array([[0.0], [2.0]]), n_project=2, n_neighbors=2)
    carried = Carrier(nodes, np.array([[10.0], [20.0]]), remoteness=True)(np.array([[1.0], [8.0]]))
    assert carried[0] == pytest.approx([15.0, 0.5])
    # Far off: σ(x) = 8, so the weights are exp(-36/16) and exp(-64/16); the distance is three times that of the nodes.
    assert carried[1, 0] == pytest.approx((20 * np.exp(-2.25) + 10 * np.exp(-4)) / (np.exp(-2.25) + np.exp(-4)))
    assert carried[1, 1] == pytest.approx(3.0)


def test_nodes_coincide_only_where_they_are_all_the_cells():
    X = np.random.default_rng(0).normal(size=(50, 3))
    values = np.arange(50.0)[:, None]
    for coincide in (True, False):
        nodes = Nodes.at(X, n_project=5, n_neighbors=10, coincide=coincide)
        assert (np.abs(Carrier(nodes, values)(X) - values).max() < 1e-5) == coincide


@pytest.mark.parametrize(("graph", "n_landmarks"), [("anchor", 200), ("compressed", 200), ("knn", 200), ("auto", 2000)])
def test_the_references_own_cells_get_their_coordinates_back(cells, graph, n_landmarks):
    ep.tl.embedding(cells, n_landmarks=n_landmarks, landmark_graph=graph)
    ep.tl.pseudotime(cells, root=cells.uns["root"])
    own = ep.tl.project(cells, cells, copy=True)
    np.testing.assert_allclose(own.obsm["X_entropath"], cells.obsm["X_entropath"], atol=1e-5)
    order = own.obs["entropath_pseudotime"]
    # Where landmarks carry the order, the root is put first by decree; where it was found on all cells, it is known.
    others = cells.obs_names != (cells.uns["root"] if graph == "anchor" else None)
    np.testing.assert_allclose(order[others], cells.obs["entropath_pseudotime"][others], atol=1e-5)


def test_held_out_cells_land_where_a_joint_fit_puts_them(parts):
    joint, ref, new, held = parts
    ep.tl.embedding(joint, n_landmarks=300)
    ep.tl.pseudotime(joint, root=joint.uns["root"])
    ep.tl.project(new, ref)
    target = joint.obsm["X_entropath"]
    place = similarity(ref.obsm["X_entropath"], target[~held])
    diameter = np.linalg.norm(target[:, None] - target[None], axis=2).max()

    def error(points):
        return np.median(np.linalg.norm(points - target[held], axis=1)) / diameter

    assert error(place(new.obsm["X_entropath"])) < 0.05
    # The same places in another order are what being lost looks like.
    assert error(place(new.obsm["X_entropath"])[::-1]) > 0.2
    assert spearmanr(new.obs["entropath_pseudotime"], joint.obs["entropath_pseudotime"][held]).statistic > 0.98


def test_noisy_cells_keep_what_sets_them_apart():
    # As in the noisiest real cells, an order of which each cell's own steps are a large part.
    rng = np.random.default_rng(0)
    X = np.column_stack([np.linspace(0, 6, 1200), np.zeros((1200, 19))]) + rng.normal(size=(1200, 20))
    cells = ad.AnnData(obs=pd.DataFrame(index=[f"c{i}" for i in range(1200)]), obsm={"X_pca": X.astype(np.float32)})
    held = np.arange(1200) % 5 == 2
    ref, new = cells[~held].copy(), cells[held].copy()
    for some in (cells, ref):
        ep.tl.embedding(some)
        ep.tl.pseudotime(some, root="c0", refine=0)
    ep.tl.project(new, ref)
    joint = cells.obs["entropath_pseudotime"][held]
    carried = Carrier(Nodes.at(ref.obsm["X_pca"], n_project=10, n_neighbors=15), ref.obs[["entropath_pseudotime"]])
    assert spearmanr(new.obs["entropath_pseudotime"], joint).statistic > 0.98
    assert spearmanr(carried(new.obsm["X_pca"])[:, 0], joint).statistic < 0.96  # the mean of the neighbours alone


@pytest.fixture
def ordered_on_cells(parts):
    _, ref, new, _ = parts
    ep.tl.merw_graph(ref)
    ep.tl.embedding(ref, n_landmarks=300)
    ep.tl.pseudotime(ref, root=ref.uns["root"])
    return ref, new


def test_pseudotime_by_rank_follows_the_joined_potential(ordered_on_cells):
    ref, new = ordered_on_cells
    ep.tl.pseudotime(ref, root=ref.uns["root"], scaling="rank", refine=0)
    ep.tl.project(new, ref)
    inside = new.obs["entropath_pseudotime"].between(0, 1, inclusive="neither")
    order = new.obs[inside][["entropath_potential", "entropath_pseudotime"]]
    assert spearmanr(*order.to_numpy().T).statistic > 0.9999


def test_other_potentials_are_carried_by_the_embedded_cells(ordered_on_cells):
    ref, new = ordered_on_cells
    ep.tl.pseudotime(ref, root=ref.uns["root"], potential="normalised")
    assert "joining" not in ref.uns["entropath"]["landmarks"]
    ep.tl.project(new, ref)
    assert new.obs["entropath_pseudotime"].between(0, 1).all()


@pytest.mark.parametrize(
    ("embedded", "graph", "joins"),
    [({}, {"use_rep": "X_other"}, False), ({"n_pcs": 10}, {"n_pcs": 30}, False), ({"n_pcs": 10}, {"n_pcs": 5}, True)],
)
def test_an_order_in_other_columns_than_the_embeddings(parts, embedded, graph, joins):
    _, ref, new, _ = parts
    for cells in (ref, new):
        cells.obsm["X_other"] = cells.obsm["X_pca"][:, ::-1].copy()
    ep.tl.merw_graph(ref, **embedded)
    ep.tl.embedding(ref, n_landmarks=300)
    ep.tl.merw_graph(ref, **graph)
    ep.tl.pseudotime(ref, root=ref.uns["root"])
    assert ("joining" in ref.uns["entropath"]["landmarks"]) == joins
    ep.tl.project(new, ref)
    assert spearmanr(new.obs["entropath_pseudotime"], new.obs["time"]).statistic > 0.9
    own = ep.tl.project(ref, ref, copy=True)
    assert spearmanr(own.obs["entropath_pseudotime"], ref.obs["entropath_pseudotime"]).statistic > 0.95


def test_the_order_may_come_before_the_embedding(ordered_on_cells):
    ref, new = ordered_on_cells
    later = ep.tl.project(new, ref, copy=True)
    ep.tl.embedding(ref, n_landmarks=200)
    ep.tl.project(new, ref)
    np.testing.assert_array_equal(new.obs["entropath_pseudotime"], later.obs["entropath_pseudotime"])


def test_foreign_cells_do_not_leave_the_order(ordered_on_cells):
    ref, new = ordered_on_cells
    new.obsm["X_pca"] = new.obsm["X_pca"] + 1000.0
    with pytest.warns(UserWarning, match="as far from the reference"):
        ep.tl.project(new, ref)
    limits = ref.obs["entropath_potential"].min(), 2 * ref.obs["entropath_potential"].max()
    assert new.obs["entropath_potential"].between(*limits).all()


def similarity(source: np.ndarray, target: np.ndarray):
    """The rotation, reflection, scale and shift that bring source onto target."""
    a, b = source.mean(axis=0), target.mean(axis=0)
    U, s, Vt = np.linalg.svd((source - a).T @ (target - b))
    scale = s.sum() / ((source - a) ** 2).sum()
    return lambda points: scale * (points - a) @ U @ Vt + b


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_a_reference_read_back_without_expression(ordered_on_cells, tmp_path, suffix):
    ref, new = ordered_on_cells
    ep.tl.project(new, ref, labels="branch")
    slim = ad.AnnData(obs=ref.obs, uns={"entropath": ref.uns["entropath"]})
    if suffix == "h5ad":
        slim.write_h5ad(tmp_path / "ref.h5ad")
        back = ad.read_h5ad(tmp_path / "ref.h5ad")
    else:
        slim.write_zarr(tmp_path / "ref.zarr")
        back = ad.read_zarr(tmp_path / "ref.zarr")
    again = ep.tl.project(new, back, labels="branch", copy=True)
    np.testing.assert_array_equal(again.obsm["X_entropath"], new.obsm["X_entropath"])
    np.testing.assert_array_equal(again.obs["entropath_pseudotime"], new.obs["entropath_pseudotime"])
    assert (again.obs["entropath_branch"] == new.obs["entropath_branch"]).all()


def test_what_the_new_cells_had_of_their_own_is_forgotten(parts):
    _, ref, new, _ = parts
    ep.tl.embedding(new, n_landmarks=50)
    ep.tl.pseudotime(new, root=new.obs_names[0])
    ep.tl.project(new, ref)
    assert set(new.uns["entropath"]["params"]) <= {"merw_graph", "project"}
    assert "entropath_landmark" not in new.obs
    with pytest.raises(ValueError, match="has no embedding"):
        ep.tl.project(ref.copy(), new)
    ax = ep.pl.pseudotime(new, show=False)
    assert ax.get_legend() is None  # nothing of their own to mark
    plt.close(ax.figure)
    ep.tl.project(ref, ref)  # but a reference stays one
    ep.tl.project(new, ref)


def test_an_order_that_new_cells_will_not_get_is_told(cells):
    ep.tl.embedding(cells)
    cells.obs_names = [f"renamed_{name}" for name in cells.obs_names]
    with pytest.warns(UserWarning, match="will give new cells no order"):
        ep.tl.pseudotime(cells, root=cells.obs_names[0])


@pytest.mark.filterwarnings("ignore:Observation names are not unique")
@pytest.mark.parametrize("n_landmarks", [2000, 150])
def test_cells_of_the_same_name_are_told_apart(cells, n_landmarks):
    cells.obs_names = ["same", "same", *cells.obs_names[2:]]
    ep.tl.merw_graph(cells)
    ep.tl.embedding(cells, n_landmarks=n_landmarks)
    ep.tl.pseudotime(cells, root="cell_5")
    assert cells.obs["entropath_pseudotime"].iloc[5] == 0
    stored = cells.uns["entropath"]["landmarks"]["pseudotime"]
    np.testing.assert_array_equal(stored, cells.obs["entropath_pseudotime"][cells.obs["entropath_landmark"]])


def test_labels_are_voted_and_numbers_averaged(parts):
    _, ref, new, _ = parts
    ref.uns["branch_colors"] = np.array(["#000000"] * ref.obs["branch"].nunique(), dtype=object)
    ep.tl.project(new, ref, labels=["branch", "time"])
    right = new.obs["entropath_branch"].astype(str) == new.obs["branch"].astype(str)
    assert right.mean() > 0.8
    # Where the vote is split, it errs more often.
    sure = new.obs["entropath_branch_share"] > 0.9
    assert right[sure].mean() > right[~sure].mean()
    assert spearmanr(new.obs["entropath_time"], new.obs["time"]).statistic > 0.95
    assert list(new.uns["entropath_branch_colors"]) == list(ref.uns["branch_colors"])


def test_names_that_are_given_twice_and_empty_labels_are_refused(parts):
    _, ref, new, _ = parts
    twice = new.copy()
    twice.var_names = [twice.var_names[1], *twice.var_names[1:]]
    with pytest.raises(ValueError, match="var_names_make_unique"):
        ep.tl.project(twice, ref, use_reference_pca=True)
    ref.obs["nothing"] = pd.Categorical([np.nan] * ref.n_obs, categories=[])
    with pytest.raises(ValueError, match="is empty in all embedded cells"):
        ep.tl.project(new, ref, labels="nothing")
    same = ref.copy()
    same.obs_names = ["x"] * ref.n_obs
    with pytest.raises(ValueError, match="obs_names_make_unique"):
        ep.tl.project(new, same, labels="branch")


def test_missing_labels_do_not_vote(parts):
    _, ref, new, _ = parts
    ref.obs["known"] = ref.obs["branch"].where(ref.obs["branch"] == ref.obs["branch"].iloc[0])
    ep.tl.project(new, ref, labels="known")
    assert set(new.obs["entropath_known"].dropna()) == {ref.obs["branch"].iloc[0]}
    assert new.obs["entropath_known"].isna().any()


def test_foreign_cells_are_remote(parts):
    _, ref, new, _ = parts
    ep.tl.project(new, ref)
    foreign = new.copy()
    foreign.obsm["X_pca"] = foreign.obsm["X_pca"] + 5 * foreign.obsm["X_pca"].std()
    with pytest.warns(UserWarning, match="as far from the reference"):
        ep.tl.project(foreign, ref)
    assert foreign.obs["entropath_remoteness"].min() > new.obs["entropath_remoteness"].quantile(0.99)
    assert new.obs["entropath_remoteness"].median() < 1.5


def test_raw_cells_through_the_references_pca(parts):
    _, ref, new, _ = parts
    ep.tl.project(new, ref)
    raw = ad.AnnData(new.X.copy(), var=new.var[[]].copy(), obs=new.obs[["branch"]].copy())[:, ::-1].copy()
    slim = ref.copy()
    slim.X = None
    ep.tl.project(raw, slim, use_reference_pca=True)
    np.testing.assert_allclose(raw.obsm["X_pca"], new.obsm["X_pca"], atol=1e-3)
    np.testing.assert_allclose(raw.obsm["X_entropath"], new.obsm["X_entropath"], atol=1e-2)


def test_errors_say_what_to_do(parts):
    adata, ref, new, _ = parts
    with pytest.raises(ValueError, match=r"Run `ep.tl.embedding\(adata_ref\)` first"):
        ep.tl.project(new, adata)
    narrow = new.copy()
    narrow.obsm["X_pca"] = narrow.obsm["X_pca"][:, :10]
    with pytest.raises(ValueError, match="has 10 columns"):
        ep.tl.project(narrow, ref)
    bare = new.copy()
    del bare.obsm["X_pca"]
    with pytest.raises(KeyError, match="use_reference_pca=True"):
        ep.tl.project(bare, ref)
    other = new.copy()
    other.varm["PCs"] = -other.varm["PCs"]
    with pytest.raises(ValueError, match="a PCA of its own"):
        ep.tl.project(other, ref)
    with pytest.raises(ValueError, match=r"of the 200 genes of the reference's PCA are not in"):
        ep.tl.project(new[:, :50].copy(), ref, use_reference_pca=True)
    counts = ref.copy()
    counts.X = counts.layers["counts"]
    del counts.uns["entropath"]["landmarks"]["pca_offset"]
    with pytest.raises(ValueError, match="mean that the reference's PCA took off is not known"):
        ep.tl.project(new, counts, use_reference_pca=True)
    with pytest.raises(KeyError, match="no column"):
        ep.tl.project(new, ref, labels="mood")
    with pytest.raises(ValueError, match="no longer among its cells"):
        ep.tl.project(new, ref[:50].copy(), labels="branch")
    with pytest.raises(ValueError, match="`store` is for a representation that is a dask array"):
        ep.tl.project(new, ref, store="somewhere.zarr")


@pytest.mark.filterwarnings("ignore:The .* form .* components")  # separate blobs
@parametrize_with_checks([ep.EntroPath(), ep.EntroPath(n_landmarks=10, n_components=1)])
def test_estimator_keeps_scikit_learns_rules(estimator, check):
    check(estimator)


def test_estimator_is_the_tool(cells):
    X = cells.obsm["X_pca"]
    for n_landmarks in (2000, 150):
        tool = ep.tl.embedding(cells, n_landmarks=n_landmarks, landmark_graph="anchor", copy=True)
        model = ep.EntroPath(n_landmarks=n_landmarks).fit(X)
        np.testing.assert_allclose(model.embedding_, tool.obsm["X_entropath"], atol=1e-4)
        assert model.depth_ == tool.uns["entropath"]["depth"]["chosen"]


@pytest.mark.parametrize(("n_landmarks", "what"), [(2000, "samples"), (100, "landmarks")])
def test_estimator_tells_of_components_and_refuses_objects(cells, n_landmarks, what):
    X = cells.obsm["X_pca"].copy()
    X[:100] += 1000.0
    with pytest.warns(UserWarning, match=f"The {what} form 2 components"):
        model = ep.EntroPath(n_landmarks=n_landmarks).fit(X)
    for method in (model.fit, model.transform):
        with pytest.raises(TypeError, match="AnnData object"):
            method(cells)


def test_estimator_in_a_pipeline(cells):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X = cells.obsm["X_pca"]
    pipeline = make_pipeline(StandardScaler(), ep.EntroPath(n_components=3)).fit(X[::2])
    assert pipeline.transform(X[1::2]).shape == (200, 3)
    assert list(pipeline.get_feature_names_out()) == ["entropath0", "entropath1", "entropath2"]
    with pytest.raises(ValueError, match="kernel='warm' is not known"):
        ep.EntroPath(kernel="warm").fit(X)
    with pytest.raises(TypeError, match="X is an AnnData object"):
        ep.EntroPath().fit(cells)
    with pytest.raises(ValueError, match="n_components=5 must be below"):
        ep.EntroPath(n_components=5, n_landmarks=5).fit(X)
