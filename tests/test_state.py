"""What is stored, when it is used again, and when it is made again because cells or neighbours have changed."""

from __future__ import annotations

import numpy as np
import pytest
import scanpy as sc
from scipy.stats import spearmanr

import entropath_sc as ep

CHANGED = "have changed: it is made again"


def order_of(adata) -> np.ndarray:
    return adata.obs["entropath_potential"].to_numpy()


@pytest.fixture(scope="module")
def _neighboured():
    adata = ep.datasets.branching(n_cells=240, n_genes=100)
    sc.pp.neighbors(adata, use_rep="X_pca")
    return adata


@pytest.fixture
def neighboured(_neighboured):
    """Branching cells with scanpy's neighbours."""
    return _neighboured.copy()


# An order does not depend on what was run before.


@pytest.mark.parametrize("neighbours", [True, False], ids=["neighbours", "no neighbours"])
@pytest.mark.parametrize("n_landmarks", [None, 120], ids=["cells", "landmarks"])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_an_embedding_before_does_not_change_the_order(neighboured, neighbours, n_landmarks, preset):
    if not neighbours:
        del neighboured.uns["neighbors"], neighboured.obsp["distances"], neighboured.obsp["connectivities"]
    options = {"root": ("branch", "trunk"), "n_landmarks": n_landmarks, "preset": preset}
    fresh = ep.tl.pseudotime(neighboured, **options, copy=True)
    # All cells, the landmarks of the order, and other ones.
    befores = [{}, {"n_landmarks": 120}, {"n_landmarks": 90, "depth": 3, "random_state": 3}]
    for before in befores if preset == "default" else befores[1:]:
        embedded = ep.tl.embedding(neighboured, preset=preset, **before, copy=True)
        ep.tl.pseudotime(embedded, **options)
        np.testing.assert_allclose(order_of(embedded), order_of(fresh), rtol=1e-12, atol=1e-12, err_msg=str(before))
        roots = [adata.uns["entropath"]["pseudotime"]["roots"].tolist() for adata in (embedded, fresh)]
        assert roots[0] == roots[1]


def test_an_embedding_of_another_preset_does_not_change_the_order(neighboured):
    fresh = ep.tl.pseudotime(neighboured, root="cell_0", copy=True)
    ep.tl.embedding(neighboured, preset="paper")
    ep.tl.pseudotime(neighboured, root="cell_0")
    np.testing.assert_allclose(order_of(neighboured), order_of(fresh), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_landmarks", [2000, 120], ids=["cells", "landmarks"])
def test_an_order_before_does_not_change_the_embedding(neighboured, n_landmarks):
    fresh = ep.tl.embedding(neighboured, n_landmarks=n_landmarks, copy=True)
    for before in ({}, {"n_landmarks": 90}, {"preset": "paper"}, {"depth": 3}):
        ordered = ep.tl.pseudotime(neighboured, root="cell_0", **before, copy=True)
        ep.tl.embedding(ordered, n_landmarks=n_landmarks)
        np.testing.assert_array_equal(ordered.obsm["X_entropath"], fresh.obsm["X_entropath"], err_msg=str(before))


def test_a_graph_of_its_own_is_what_the_tools_make(neighboured):
    made = ep.tl.merw_graph(neighboured, copy=True)
    assert not made.uns["entropath"]["params"]["merw_graph"]["automatic"]
    for adata in (made, neighboured):
        ep.tl.embedding(adata)
        ep.tl.pseudotime(adata, root="cell_0")
    assert neighboured.uns["entropath"]["params"]["merw_graph"]["automatic"]
    np.testing.assert_array_equal(made.obsm["X_entropath"], neighboured.obsm["X_entropath"])
    np.testing.assert_array_equal(order_of(made), order_of(neighboured))


def test_options_of_an_explicit_graph_stay_in_force(neighboured):
    plain = ep.tl.pseudotime(neighboured, root="cell_0", copy=True)
    ep.tl.merw_graph(neighboured, decay=1.0, bandwidth="adaptive")
    A = neighboured.obsp["entropath_affinity"].copy()
    ep.tl.embedding(neighboured)
    ep.tl.pseudotime(neighboured, root="cell_0")
    assert (neighboured.obsp["entropath_affinity"] != A).nnz == 0
    assert not np.allclose(order_of(neighboured), order_of(plain))


# What a graph was made of has changed.


def test_an_explicit_graph_is_made_again_when_its_neighbours_are_new(cells):
    sc.pp.neighbors(cells, use_rep="X_pca")
    ep.tl.merw_graph(cells, decay=2, bandwidth="adaptive")
    before = cells.obsp["entropath_affinity"].nnz
    sc.pp.neighbors(cells, n_neighbors=30, use_rep="X_pca")
    order = cells.copy()
    for adata, step in ((cells, ep.tl.embedding), (order, lambda adata: ep.tl.pseudotime(adata, root="cell_0"))):
        with pytest.warns(UserWarning, match=CHANGED):
            step(adata)
        assert adata.obsp["entropath_affinity"].nnz > 1.5 * before
        params = adata.uns["entropath"]["params"]["merw_graph"]
        assert (params["decay"], params["bandwidth"], params["n_neighbors"]) == (2, "adaptive", 30)
        assert not params["automatic"]
        step(adata)  # a warning would be an error


def test_an_explicit_graph_is_made_again_when_its_representation_is_new(cells):
    ep.tl.merw_graph(cells, n_neighbors=12)
    ep.tl.embedding(cells)
    first = cells.obsm["X_entropath"].copy()
    cells.obsm["X_pca"] = cells.obsm["X_pca"][:, :5]
    with pytest.warns(UserWarning, match=CHANGED):
        ep.tl.embedding(cells)
    assert not np.allclose(first, cells.obsm["X_entropath"])
    assert cells.uns["entropath"]["params"]["merw_graph"]["n_neighbors"] == 12
    ep.tl.embedding(cells)
    fresh = cells.copy()
    ep.tl.merw_graph(fresh, n_neighbors=12)
    ep.tl.embedding(fresh)
    np.testing.assert_array_equal(cells.obsm["X_entropath"], fresh.obsm["X_entropath"])


def test_a_graph_whose_representation_is_gone_is_used_as_it_is(cells):
    ep.tl.merw_graph(cells)
    expected = ep.tl.pseudotime(cells, root="cell_0", copy=True)
    del cells.obsm["X_pca"]  # nothing to compare with, and nothing new
    ep.tl.pseudotime(cells, root="cell_0")
    np.testing.assert_array_equal(order_of(cells), order_of(expected))


def test_an_automatic_graph_is_made_again_without_a_word(neighboured):
    ep.tl.pseudotime(neighboured, root="cell_0")
    first = order_of(neighboured).copy()
    sc.pp.neighbors(neighboured, n_neighbors=30, use_rep="X_pca")
    fresh = neighboured.copy()
    for key in ("entropath_affinity", "entropath_lengths"):
        del fresh.obsp[key]
    del fresh.uns["entropath"], fresh.obsm["entropath_scales"]
    for adata in (neighboured, fresh):
        ep.tl.pseudotime(adata, root="cell_0")
    assert not np.allclose(order_of(neighboured), first)
    np.testing.assert_array_equal(order_of(neighboured), order_of(fresh))
    assert neighboured.uns["entropath"]["params"]["merw_graph"]["n_neighbors"] == 30


def test_neighbours_that_come_later_are_used(cells):
    ep.tl.pseudotime(cells, root="cell_0")  # on neighbours of its own
    assert "neighbors_key" not in cells.uns["entropath"]["params"]["merw_graph"]
    sc.pp.neighbors(cells, n_neighbors=30, use_rep="X_pca")
    ep.tl.pseudotime(cells, root="cell_0")
    params = cells.uns["entropath"]["params"]["merw_graph"]
    assert (params["neighbors_key"], params["n_neighbors"]) == ("neighbors", 30)


def test_the_same_neighbours_in_another_place_are_no_other_ones(neighboured):
    ep.tl.merw_graph(neighboured)
    ep.tl.embedding(neighboured.copy())
    ep.tl.pseudotime(neighboured, root="cell_0")
    # Written again with the same content.
    neighboured.obsp["distances"] = neighboured.obsp["distances"].copy()
    ep.tl.pseudotime(neighboured, root="cell_0")


def test_landmarks_are_made_again_when_cells_have_moved(cells):
    ep.tl.embedding(cells, n_landmarks=100)
    kept = cells.uns["entropath"]["landmarks"]
    ep.tl.embedding(cells, n_landmarks=100)
    assert cells.uns["entropath"]["landmarks"]["fingerprint"] == kept["fingerprint"]
    cells.obsm["X_pca"] = cells.obsm["X_pca"] * np.linspace(1, 3, cells.obsm["X_pca"].shape[1])
    moved = cells.copy()
    del moved.uns["entropath"]
    for adata in (cells, moved):
        ep.tl.embedding(adata, n_landmarks=100)
        ep.tl.pseudotime(adata, root="cell_0", n_landmarks=100)
    assert cells.uns["entropath"]["landmarks"]["fingerprint"] != kept["fingerprint"]
    np.testing.assert_array_equal(cells.obsm["X_entropath"], moved.obsm["X_entropath"])
    np.testing.assert_array_equal(order_of(cells), order_of(moved))


# Subsets.


def without_results(adata):
    """The same cells as if no tool of this package had seen them."""
    fresh = adata.copy()
    for place in (fresh.obs, fresh.obsm, fresh.obsp, fresh.uns):
        for key in [key for key in place if "entropath" in key]:
            del place[key]
    return fresh


@pytest.mark.filterwarnings("ignore:The neighbours or positions that the graph")
@pytest.mark.parametrize("explicit", [False, True], ids=["automatic", "explicit"])
@pytest.mark.parametrize("n_landmarks", [2000, 100], ids=["cells", "landmarks"])
def test_a_subset_with_a_pca_and_neighbours_of_its_own(neighboured, explicit, n_landmarks):
    if explicit:
        ep.tl.merw_graph(neighboured)
    ep.tl.embedding(neighboured, n_landmarks=n_landmarks)
    ep.tl.pseudotime(neighboured, root="cell_0")
    part = neighboured[neighboured.obs["branch"] != "fate C"].copy()
    sc.pp.pca(part, n_comps=20)
    sc.pp.neighbors(part)
    fresh = without_results(part)
    for adata in (part, fresh):
        ep.tl.embedding(adata, n_landmarks=n_landmarks)
        ep.tl.pseudotime(adata, root=part.obs_names[0], n_landmarks=None if n_landmarks > 1000 else n_landmarks)
    np.testing.assert_array_equal(part.obsm["X_entropath"], fresh.obsm["X_entropath"])
    np.testing.assert_array_equal(order_of(part), order_of(fresh))
    own = ep.tl.project(part, part, copy=True)
    np.testing.assert_allclose(own.obsm["X_entropath"], part.obsm["X_entropath"], atol=1e-5)


@pytest.mark.parametrize("first", ["embedding", "pseudotime"])
def test_a_subset_of_an_explicit_graph_is_told_once(neighboured, first):
    ep.tl.merw_graph(neighboured, bandwidth="fixed")
    part = neighboured[::2].copy()
    steps = {
        "embedding": lambda: ep.tl.embedding(part),
        "pseudotime": lambda: ep.tl.pseudotime(part, root=part.obs_names[0]),
    }
    with pytest.warns(UserWarning, match=CHANGED):
        steps.pop(first)()
    steps.popitem()[1]()
    assert part.uns["entropath"]["params"]["merw_graph"]["bandwidth"] == "fixed"
    assert part.obsp["entropath_affinity"].shape == (120, 120)
    assert sum(part.uns["entropath"]["graph"]["component_sizes"]) == 120


def test_a_subset_whose_positions_are_there_finds_neighbours_of_its_own(cells):
    ep.tl.pseudotime(cells, root="cell_0")  # automatic, without neighbours
    part = cells[cells.obs["branch"] != "fate C"].copy()
    fresh = without_results(part)
    for adata in (part, fresh):
        ep.tl.pseudotime(adata, root=part.obs_names[0])
    np.testing.assert_array_equal(order_of(part), order_of(fresh))
    assert spearmanr(order_of(part), part.obs["time"]).statistic > 0.8


def test_a_graph_of_other_cells_is_refused_where_nothing_is_left_to_make_it_of(cells):
    ep.tl.merw_graph(cells)
    part = cells[cells.obs["branch"] != "progenitor"].copy()
    del part.obsm["X_pca"]
    for step in (lambda: ep.tl.embedding(part), lambda: ep.tl.pseudotime(part, root=part.obs_names[0])):
        with pytest.raises(ValueError, match=r"entropath_affinity.*made for other cells.*ep\.tl\.merw_graph\(adata"):
            step()


def test_the_papers_preset_on_another_graph_is_told(cells):
    ep.tl.merw_graph(cells)
    for step in (ep.tl.embedding, lambda adata, preset: ep.tl.pseudotime(adata, root="cell_0", preset=preset)):
        for preset in ("paper", "heat"):
            with pytest.warns(UserWarning, match=f"'tempered'.*preset='{preset}'"):
                step(cells, preset=preset)
    ep.tl.merw_graph(cells, preset="paper")
    ep.tl.embedding(cells, preset="paper")
    ep.tl.pseudotime(cells, root="cell_0", preset="paper")
