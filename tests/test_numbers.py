"""Numbers of any kind, size and place: the same order, or an error that names what is wrong."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import ortho_group, spearmanr

import entropath_sc as ep


@pytest.fixture(scope="module")
def positions():
    return ep.datasets.branching(n_cells=300, n_genes=100).obsm["X_pca"].astype(np.float64)


def cells_at(X, names=None) -> ad.AnnData:
    names = [f"cell_{i}" for i in range(X.shape[0])] if names is None else names
    return ad.AnnData(obs=pd.DataFrame(index=names), obsm={"X_pca": X})


def order_of(X, n_landmarks=None, **options) -> np.ndarray:
    adata = cells_at(X)
    ep.tl.pseudotime(adata, root="cell_0", n_landmarks=n_landmarks, **options)
    return adata.obs["entropath_potential"].to_numpy()


LANDMARKS = pytest.mark.parametrize("n_landmarks", [None, 100], ids=["cells", "landmarks"])
MOVES = {f"shift {shift:g}": lambda X, shift=shift: X + shift for shift in (1e3, 1e6, 1e7)}
MOVES |= {f"scale {scale:g}": lambda X, scale=scale: X * scale for scale in (1e-300, 1e-30, 3.3, 1e30, 1e150)}
MOVES["rotation"] = lambda X: X @ ortho_group.rvs(X.shape[1], random_state=0)


@LANDMARKS
@pytest.mark.parametrize("move", MOVES)
def test_an_order_does_not_depend_on_place_unit_and_axes(positions, move, n_landmarks):
    expected, found = order_of(positions, n_landmarks), order_of(MOVES[move](positions), n_landmarks)
    np.testing.assert_allclose(found, expected, rtol=1e-6 if n_landmarks else 1e-9)


@LANDMARKS
@pytest.mark.parametrize("move", ["shift 1e+07", "scale 1e-30", "scale 1e+30"])
def test_an_embedding_and_new_cells_do_not_depend_on_place_and_unit(positions, move, n_landmarks):
    def placed(X):
        ref, new = cells_at(X[::2]), cells_at(X[1::2])
        ep.tl.embedding(ref, n_landmarks=n_landmarks or 2000)
        ep.tl.pseudotime(ref, root="cell_0", n_landmarks=n_landmarks)
        ep.tl.project(new, ref)
        return np.column_stack(
            [new.obsm["X_entropath"], new.obs["entropath_pseudotime"], new.obs["entropath_remoteness"]]
        )

    expected, found = placed(positions), placed(MOVES[move](positions))
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())
    model, moved = ep.EntroPath(n_landmarks=n_landmarks or 2000), ep.EntroPath(n_landmarks=n_landmarks or 2000)
    expected = model.fit(positions[::2]).transform(positions[1::2])
    found = moved.fit(MOVES[move](positions)[::2]).transform(MOVES[move](positions)[1::2])
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


def test_blocks_of_new_cells_far_from_the_origin(positions):
    import dask.array as da

    ref, new = cells_at(positions[::2] + 1e7), cells_at(positions[1::2] + 1e7)
    ep.tl.embedding(ref, n_landmarks=80)
    ep.tl.pseudotime(ref, root="cell_0")
    blocks = ad.AnnData(obs=new.obs.copy(), obsm={"X_pca": da.from_array(new.obsm["X_pca"], chunks=(40, 7))})
    for adata in (new, blocks):
        ep.tl.project(adata, ref)
    np.testing.assert_allclose(np.asarray(blocks.obsm["X_entropath"]), new.obsm["X_entropath"], atol=1e-5)
    np.testing.assert_allclose(blocks.obs["entropath_pseudotime"], new.obs["entropath_pseudotime"], atol=1e-5)


def test_cells_in_another_order_have_the_same_order(positions):
    some = np.random.default_rng(0).permutation(len(positions))
    adata = cells_at(positions[some], [f"cell_{i}" for i in some])
    ep.tl.pseudotime(adata, root="cell_0")
    np.testing.assert_allclose(adata.obs["entropath_potential"], order_of(positions)[some], rtol=1e-9)


WHOLE = np.random.default_rng(0).integers(0, 256, (120, 6))
KINDS = {
    "uint8": WHOLE.astype(np.uint8),
    "int16": WHOLE.astype(np.int16),
    "uint64": WHOLE.astype(np.uint64),
    "float16": WHOLE.astype(np.float16),
    "float32": WHOLE.astype(np.float32),
    "longdouble": WHOLE.astype(np.longdouble),
    "fortran": np.asfortranarray(WHOLE.astype(float)),
    "sparse": sp.csr_matrix(WHOLE.astype(np.int32)),
    "frame": pd.DataFrame(WHOLE, index=[f"cell_{i}" for i in range(120)]).astype({0: np.int8, 1: np.float32}),
}
KINDS["frame"][0] = WHOLE[:, 0]


@LANDMARKS
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_numbers(kind, n_landmarks):
    np.testing.assert_allclose(
        order_of(KINDS[kind], n_landmarks), order_of(WHOLE.astype(float), n_landmarks), rtol=1e-6
    )


def test_truth_values_are_numbers():
    mask = WHOLE > 128
    mask = np.column_stack([mask, WHOLE[:, ::-1] > 64])
    np.testing.assert_array_equal(order_of(mask), order_of(mask.astype(float)))


@pytest.mark.parametrize("tool", ["merw_graph", "embedding", "pseudotime"])
def test_cells_in_one_place_are_refused(tool):
    adata = ad.AnnData(np.zeros((30, 4), dtype=np.float32), obs=pd.DataFrame(index=[f"cell_{i}" for i in range(30)]))
    adata.obsm["X_pca"] = np.full((30, 3), 7.0)
    options = {"root": "cell_0"} if tool == "pseudotime" else {}
    with pytest.raises(ValueError, match=r"All cells are in one place in 'X_pca'. Is it a placeholder\?"):
        getattr(ep.tl, tool)(adata, **options)
    if tool != "pseudotime":
        with pytest.raises(ValueError, match="All cells are in one place in 'X'"):
            getattr(ep.tl, tool)(adata, use_rep="X")
    adata.uns["neighbors"] = {"distances_key": "distances", "params": {"n_neighbors": 2}}
    ring = sp.csr_matrix((np.zeros(30), (np.arange(30), (np.arange(30) + 1) % 30)), shape=(30, 30))
    adata.obsp["distances"] = ring
    with pytest.raises(ValueError, match=r"adata.uns\['neighbors'\] has all cells in one place"):
        getattr(ep.tl, tool)(adata, **options)


def test_few_cells():
    X = np.array([[0.0, 0.0], [1.0, 0.1], [2.5, 0.0]])
    three = cells_at(X)
    ep.tl.merw_graph(three, n_neighbors=3)
    ep.tl.embedding(three)
    ep.tl.pseudotime(three, root="cell_0")
    assert three.obs["entropath_potential"].is_monotonic_increasing
    assert np.isfinite(three.obsm["X_entropath"]).all()
    two = cells_at(X[:2])
    ep.tl.merw_graph(two, n_neighbors=2)
    ep.tl.embedding(two, n_components=1)
    ep.tl.pseudotime(two, root="cell_1")
    assert two.obs["entropath_potential"].iloc[0] > two.obs["entropath_potential"].iloc[1] == 0
    assert np.isfinite(two.obsm["X_entropath"]).all()
    with pytest.raises(ValueError, match="n_components=2 must be below"):
        ep.tl.embedding(two)
    for step in (
        ep.tl.merw_graph,
        ep.tl.embedding,
        lambda adata: ep.tl.merw_graph(adata, n_neighbors=2),
        lambda adata: ep.tl.pseudotime(adata, root="cell_0"),
    ):
        with pytest.raises(ValueError, match="has one cell"):
            step(cells_at(X[:1]))
    ep.tl.project(one := cells_at(X[:1]), three)  # one new cell is no graph
    np.testing.assert_allclose(one.obsm["X_entropath"], three.obsm["X_entropath"][:1], atol=1e-6)


def test_what_is_no_number_is_named(positions):
    for X, words in (
        (positions + 1j, "'X_pca' holds complex128, not real numbers"),
        (positions[:, :0], "'X_pca' has no columns"),
    ):
        with pytest.raises(ValueError, match=words):
            order_of(X)
    bare = ad.AnnData(obs=pd.DataFrame(index=[f"cell_{i}" for i in range(30)]), obsm={"X_some": np.eye(30)})
    with pytest.raises(KeyError, match=r"use_rep='X', but adata.X is None.*'X_some'"):
        ep.tl.merw_graph(bare, use_rep="X")


def test_a_missing_pca_is_told_from_missing_neighbours(cells):
    import scanpy as sc

    sc.pp.neighbors(cells, use_rep="X_pca")
    cells.obsm["X_other"] = cells.obsm.pop("X_pca")
    with pytest.raises(KeyError, match=r"No PCA.*'X_other'.*use_rep=.*leave `n_neighbors` and `n_pcs` out"):
        ep.tl.merw_graph(cells, n_neighbors=10)


def test_a_walk_that_was_not_found_gives_a_warning(positions, monkeypatch):
    from dataclasses import replace

    from entropath_sc.core import paper

    found = paper.perron_pair
    monkeypatch.setattr(paper, "perron_pair", lambda A: replace(found(A), residual=1.9e9))
    adata = cells_at(positions)
    for step in (
        lambda: ep.tl.merw_graph(adata, preset="paper"),
        lambda: ep.tl.embedding(adata, preset="paper"),
        lambda: ep.tl.pseudotime(adata, root="cell_0", preset="heat"),
    ):
        with pytest.warns(UserWarning, match=r"walk was not found.*relative error of 2e\+09"):
            step()


@pytest.mark.parametrize("times", [10, 100, 1_000, 10_000])
def test_one_outlier_is_named_and_moves_no_other_cell(positions, times):
    X = positions.copy()
    X[17] *= times
    adata, expected = cells_at(X), order_of(positions)
    others = np.arange(len(X)) != 17
    if times == 10:  # not beyond all bounds
        ep.tl.pseudotime(adata, root="cell_0")
    else:
        with pytest.warns(
            UserWarning, match=r"Outlying cells \(1\), more than 20 typical neighbour distances.*'cell_17'"
        ):
            ep.tl.pseudotime(adata, root="cell_0")
        assert adata.uns["entropath"]["graph"]["outliers"].tolist() == ["cell_17"]
    assert spearmanr(adata.obs["entropath_potential"][others], expected[others]).statistic > 0.995
