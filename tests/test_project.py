"""New cells in an old embedding."""

from __future__ import annotations

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy.stats import spearmanr
from sklearn.utils.estimator_checks import parametrize_with_checks

import entropath_sc as ep


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


@pytest.mark.parametrize("neighbours", [True, False], ids=["neighbours", "no neighbours"])
@pytest.mark.parametrize("n_landmarks", [2000, 150], ids=["all embedded", "landmarks embedded"])
@pytest.mark.parametrize("order_on", [None, 150], ids=["order on cells", "order on landmarks"])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_the_references_own_cells_get_their_values_back(cells, neighbours, n_landmarks, order_on, preset):
    if neighbours:
        ep.tl.merw_graph(cells, preset=preset)
    ep.tl.embedding(cells, n_landmarks=n_landmarks, preset=preset)
    ep.tl.pseudotime(cells, root=cells.uns["root"], n_landmarks=order_on, preset=preset)
    own = ep.tl.project(cells, cells, labels="branch", copy=True)
    np.testing.assert_allclose(own.obsm["X_entropath"], cells.obsm["X_entropath"], atol=1e-5)
    # Where landmarks carry the order, the root is put first by decree; where it was found on all cells, it is known.
    others = cells.obs_names != (cells.uns["root"] if order_on else None)
    for name in ("entropath_pseudotime", "entropath_potential"):
        np.testing.assert_allclose(own.obs[name][others], cells.obs[name][others], atol=1e-5)
    if n_landmarks == 2000:
        assert (own.obs["entropath_branch"].astype(str) == cells.obs["branch"].astype(str)).all()
        assert (own.obs["entropath_remoteness"] < 1e-3).all()


@pytest.mark.parametrize("n_landmarks", [2000, 150], ids=["all embedded", "landmarks embedded"])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_a_reference_in_the_first_columns_of_a_representation(cells, n_landmarks, preset):
    sc.pp.neighbors(cells, use_rep="X_pca", n_pcs=10)
    ep.tl.embedding(cells, n_landmarks=n_landmarks, preset=preset)
    own = ep.tl.project(cells, cells, copy=True)
    np.testing.assert_allclose(own.obsm["X_entropath"], cells.obsm["X_entropath"], atol=1e-5)


@pytest.mark.parametrize("options", [{"scaling": "rank"}, {"terminal": ("branch", "fate A")}], ids=["rank", "terminal"])
def test_scaled_and_corrected_orders_come_back_too(cells, options):
    ep.tl.embedding(cells)
    ep.tl.pseudotime(cells, root=cells.uns["root"], **options)
    own = ep.tl.project(cells, cells, copy=True)
    np.testing.assert_allclose(own.obs["entropath_pseudotime"], cells.obs["entropath_pseudotime"], atol=1e-5)


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


@pytest.mark.parametrize("seed", [0, 1])
def test_noisy_cells_are_placed_as_a_joint_order_has_them(seed):
    # As in the noisiest real cells, an order of which each cell's own steps are a large part.
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.linspace(0, 6, 1200), np.zeros((1200, 19))]) + rng.normal(size=(1200, 20))
    cells = ad.AnnData(obs=pd.DataFrame(index=[f"c{i}" for i in range(1200)]), obsm={"X_pca": X.astype(np.float32)})
    held = np.arange(1200) % 5 == 2
    ref, new = cells[~held].copy(), cells[held].copy()
    for some in (cells, ref):
        ep.tl.pseudotime(some, root="c0")
    ep.tl.embedding(ref, n_landmarks=100)
    ep.tl.project(new, ref)
    joint = cells.obs["entropath_pseudotime"]
    assert spearmanr(new.obs["entropath_pseudotime"], joint[held]).statistic > 0.96
    # The place on the line alone says less.
    assert spearmanr(np.flatnonzero(held), joint[held]).statistic < 0.9


@pytest.fixture
def ordered_on_cells(parts):
    _, ref, new, _ = parts
    ep.tl.merw_graph(ref)
    ep.tl.embedding(ref, n_landmarks=300)
    ep.tl.pseudotime(ref, root=ref.uns["root"])
    return ref, new


def test_pseudotime_by_rank_follows_the_potential(ordered_on_cells):
    ref, new = ordered_on_cells
    ep.tl.pseudotime(ref, root=ref.uns["root"], scaling="rank")
    ep.tl.project(new, ref)
    inside = new.obs["entropath_pseudotime"].between(0, 1, inclusive="neither")
    order = new.obs[inside][["entropath_potential", "entropath_pseudotime"]]
    assert spearmanr(*order.to_numpy().T).statistic > 0.9999


def test_new_cells_solve_the_equation_of_the_order(ordered_on_cells):
    """A cell left out and placed again has the passage that its edges to the others give it."""
    from entropath_sc.core.ensemble import step_costs
    from entropath_sc.core.kernel import Kernel

    ref, new = ordered_on_cells
    ep.tl.project(new, ref)
    made, graph = (ref.uns["entropath"][part] for part in ("params", "graph"))
    part = ref.uns["entropath"]["pseudotime"]
    kernel = Kernel(made["merw_graph"]["decay"], "tempered", graph["unit"], graph["typical_bandwidth"])
    far = np.linalg.norm(new.obsm["X_pca"][:1] - ref.obsm["X_pca"], axis=1)
    near = np.argsort(far)[:14]
    bandwidths, scale = ref.obsm["entropath_scales"][near].T
    weight = kernel(far[near], far[near].max(), bandwidths) * scale
    cost = step_costs(far[near], part["unit"], part["depth"]) + ref.obs["entropath_potential"].to_numpy()[near]
    expected = -np.log((weight * np.exp(-cost)).sum() / weight.sum())
    assert new.obs["entropath_potential"].iloc[0] == pytest.approx(expected, rel=1e-4)


def test_the_papers_order_is_carried_by_the_nearest_cells(parts):
    _, ref, new, _ = parts
    ep.tl.embedding(ref, preset="paper")
    ep.tl.pseudotime(ref, root=ref.uns["root"], preset="paper")
    ep.tl.project(new, ref)
    assert new.obs["entropath_pseudotime"].between(0, 1).all()
    low, high = ref.obs["entropath_potential"].min(), ref.obs["entropath_potential"].max()
    assert new.obs["entropath_potential"].between(low, high).all()


@pytest.mark.parametrize("n_landmarks", [2000, 300], ids=["cells", "landmarks"])
@pytest.mark.parametrize(
    ("embedded", "graph"),
    [({}, {"use_rep": "X_other"}), ({"n_pcs": 10}, {"n_pcs": 30}), ({"n_pcs": 10}, {"n_pcs": 5})],
    ids=["other field", "more columns", "fewer columns"],
)
def test_an_order_in_other_columns_than_the_embeddings(parts, embedded, graph, n_landmarks):
    _, ref, new, _ = parts
    for cells in (ref, new):
        cells.obsm["X_other"] = cells.obsm["X_pca"][:, ::-1].copy()
    ep.tl.merw_graph(ref, **embedded)
    ep.tl.embedding(ref, n_landmarks=n_landmarks)
    ep.tl.merw_graph(ref, **graph)
    ep.tl.pseudotime(ref, root=ref.uns["root"])
    ep.tl.project(new, ref)
    assert spearmanr(new.obs["entropath_pseudotime"], new.obs["time"]).statistic > 0.9
    own = ep.tl.project(ref, ref, copy=True)
    np.testing.assert_allclose(own.obs["entropath_pseudotime"], ref.obs["entropath_pseudotime"], atol=1e-5)
    np.testing.assert_allclose(own.obsm["X_entropath"], ref.obsm["X_entropath"], atol=1e-5)


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
@pytest.mark.parametrize("landmarks", [True, False], ids=["landmarks", "all cells"])
def test_a_reference_read_back_without_expression(parts, tmp_path, suffix, landmarks):
    _, ref, new, _ = parts
    n_landmarks = 200 if landmarks else None
    ep.tl.embedding(ref, n_landmarks=n_landmarks or 2000)
    ep.tl.pseudotime(ref, root=ref.uns["root"], n_landmarks=n_landmarks)
    ep.tl.project(new, ref, labels="branch")
    # With landmarks, what is in `uns` is enough; else positions and scales are needed too.
    kept = [] if landmarks else ["X_pca", "entropath_scales", "X_entropath"]
    slim = ad.AnnData(obs=ref.obs, obsm={key: ref.obsm[key] for key in kept}, uns={"entropath": ref.uns["entropath"]})
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


@pytest.mark.parametrize("missing", ["X_pca", "entropath_scales"])
def test_a_reference_of_all_cells_needs_their_positions(parts, missing):
    _, ref, new, _ = parts
    ep.tl.embedding(ref)
    del ref.obsm[missing]
    with pytest.raises(ValueError, match=r"The reference lacks .*entropath_scales.*ep\.tl\.embedding\(adata_ref\)"):
        ep.tl.project(new, ref)


def test_a_subset_of_a_reference_of_all_cells_is_a_reference(parts):
    _, ref, new, _ = parts
    ep.tl.embedding(ref)
    ep.tl.pseudotime(ref, root=ref.uns["root"])
    half = ref[::2].copy()
    ep.tl.project(new, half)
    own = ep.tl.project(half, half, copy=True)
    np.testing.assert_allclose(own.obsm["X_entropath"], half.obsm["X_entropath"], atol=1e-5)
    np.testing.assert_allclose(own.obs["entropath_pseudotime"], half.obs["entropath_pseudotime"], atol=1e-5)
    assert spearmanr(new.obs["entropath_pseudotime"], new.obs["time"]).statistic > 0.9


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


@pytest.mark.parametrize("n_landmarks", [2000, 150], ids=["cells", "landmarks"])
def test_names_of_the_references_cells_do_not_matter(parts, n_landmarks):
    _, ref, new, _ = parts
    ep.tl.embedding(ref, n_landmarks=n_landmarks)
    ep.tl.pseudotime(ref, root=ref.uns["root"], n_landmarks=n_landmarks)
    expected = ep.tl.project(new, ref, copy=True)
    ref.obs_names = [f"renamed_{name}" for name in ref.obs_names]
    ep.tl.project(new, ref)
    np.testing.assert_array_equal(new.obs["entropath_pseudotime"], expected.obs["entropath_pseudotime"])
    np.testing.assert_array_equal(new.obsm["X_entropath"], expected.obsm["X_entropath"])


@pytest.mark.filterwarnings("ignore:Observation names are not unique")
@pytest.mark.parametrize("n_landmarks", [2000, 150], ids=["cells", "landmarks"])
def test_cells_of_the_same_name_are_told_apart(cells, n_landmarks):
    expected = cells.copy()
    cells.obs_names = ["same", "same", *cells.obs_names[2:]]
    for adata in (expected, cells):
        ep.tl.embedding(adata, n_landmarks=n_landmarks)
        ep.tl.pseudotime(adata, root="cell_5", n_landmarks=n_landmarks)
    assert cells.obs["entropath_pseudotime"].iloc[5] == 0
    placed = [ep.tl.project(cells, reference, copy=True) for reference in (cells, expected)]
    for own, other in ((cells, expected), placed):
        np.testing.assert_array_equal(own.obs["entropath_pseudotime"], other.obs["entropath_pseudotime"])
        np.testing.assert_array_equal(own.obsm["X_entropath"], other.obsm["X_entropath"])
    if n_landmarks == 150:
        stored = cells.uns["entropath"]["pseudotime"]["landmarks"]["pseudotime"]
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
    for options in ({}, {"use_reference_pca": True}):
        with pytest.raises(ValueError, match=rf"adata_new: the gene '{new.var_names[1]}' .*adata_new.var_names_make"):
            ep.tl.project(twice, ref, **options)
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
    del counts.uns["entropath"]["pca_offset"]
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
        tool = ep.tl.embedding(cells, n_landmarks=n_landmarks, depth=6.0, copy=True)
        model = ep.EntroPath(n_landmarks=n_landmarks, depth=6.0).fit(X)
        np.testing.assert_allclose(model.embedding_, tool.obsm["X_entropath"], atol=1e-4)
        placed = ep.tl.project(cells, tool, copy=True)
        np.testing.assert_allclose(model.transform(X), placed.obsm["X_entropath"], atol=1e-4)


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
    with pytest.raises(ValueError, match="bandwidth='warm' is not known"):
        ep.EntroPath(bandwidth="warm").fit(X)
    with pytest.raises(ValueError, match="depth=0 must be a positive number"):
        ep.EntroPath(depth=0).fit(X)
    with pytest.raises(TypeError, match="X is an AnnData object"):
        ep.EntroPath().fit(cells)
    with pytest.raises(ValueError, match="n_components=5 must be below"):
        ep.EntroPath(n_components=5, n_landmarks=5).fit(X)


@pytest.mark.parametrize("tool", [ep.tl.terminal_states, ep.tl.diagnose, ep.tl.stability])
def test_projected_cells_have_no_lineages_of_their_own(parts, tool):
    _, ref, new, _ = parts
    ep.tl.project(new, ref)
    with pytest.raises(KeyError, match=r"comes without its root.*Go on with the reference"):
        tool(new)
