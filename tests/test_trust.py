"""Stability, candidates for a root, and the summary of what can be trusted."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pytest
from scipy.stats import spearmanr

import entropath_sc as ep


@pytest.fixture(scope="module")
def _tree():
    adata = ep.datasets.branching(n_cells=900, random_state=4)
    ep.tl.merw_graph(adata)
    ep.tl.embedding(adata)
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    ep.tl.terminal_states(adata, groupby="branch", n_resamples=2)
    ep.tl.fates(adata)
    return adata


@pytest.fixture
def tree(_tree):
    """Branching cells with all results."""
    return _tree.copy()


def plain(X: np.ndarray) -> ad.AnnData:
    """Cells at positions."""
    adata = ad.AnnData(np.zeros((len(X), 1), np.float32), obsm={"X_pca": X})
    adata.obs_names = [f"c{i}" for i in range(len(X))]
    return adata


def test_stability_of_a_clear_tree(tree):
    ep.tl.stability(tree, n_repeats=4)
    found = tree.uns["entropath"]["stability"]
    assert found["agreement"].min() > 0.99
    assert sorted(found["tips"]) == ["fate A", "fate B", "fate C"]
    assert found["found_again"].min() >= 0.75
    assert tree.obs["entropath_same_branch"].mean() > 0.9
    assert tree.obs["entropath_coordinates_sd"].median() < 0.1
    for name in ("pseudotime_sd", "fates_sd", "same_branch", "coordinates_sd"):
        assert np.isfinite(tree.obs[f"entropath_{name}"]).mean() > 0.98
    first = tree.obs["entropath_pseudotime_sd"].copy()
    ep.tl.stability(tree, n_repeats=4)
    assert tree.obs["entropath_pseudotime_sd"].equals(first)


def test_what_is_noise_is_less_stable_than_what_is_not(tree):
    """Cells that a smaller graph moves most are those near branch points, not those at the ends of long branches."""
    ep.tl.stability(tree, n_repeats=4)
    late = (tree.obs["entropath_branch"] == "fate A") & (tree.obs["entropath_branch_position"] > 0.5)
    undecided = tree.obs["entropath_plasticity"].between(0.3, 0.9)
    assert tree.obs["entropath_fates_sd"][undecided].mean() > 2 * tree.obs["entropath_fates_sd"][late].mean()
    cloud = plain(np.random.default_rng(0).normal(size=(500, 20)))
    ep.tl.pseudotime(cloud, root="c0")
    ep.tl.stability(cloud, n_repeats=3)
    assert cloud.uns["entropath"]["stability"]["agreement"].mean() < 0.9
    assert "entropath_fates_sd" not in cloud.obs


def test_roots_are_suggested_at_the_ends_or_inside_a_category(tree):
    table = ep.tl.suggest_root(tree, groupby="branch")
    assert sorted(table["group"]) == ["fate A", "fate B", "fate C", "trunk"]
    assert table["first"].iloc[0] == pytest.approx(1)
    trunk = table.index[table["group"] == "trunk"][0]
    assert tree.obs.loc[trunk, "time"] < 0.1
    inside = ep.tl.suggest_root(tree, ("branch", "trunk"), n_candidates=3)
    assert len(inside) == 3
    assert (tree.obs.loc[inside.index, "branch"] == "trunk").all()
    assert (inside["nearby"] > 0.9).all()
    # A gene that falls along the true time marks the beginning.
    X = np.asarray(tree.X)
    falling = tree.var_names[np.argmin([spearmanr(X[:, g], tree.obs["time"])[0] for g in range(60)])]
    assert ep.tl.suggest_root(tree, groupby="branch", markers=[falling])["group"].iloc[0] == "trunk"
    assert len(ep.tl.suggest_root(tree, n_candidates=2)) == 2
    with pytest.raises(ValueError, match="must be"):
        ep.tl.suggest_root(tree, ("nothing", "trunk"))
    with pytest.raises(KeyError, match=r"no adata\.layers"):
        ep.tl.suggest_root(tree, layer="nothing")
    few = tree[:15].copy()
    with pytest.raises(ValueError, match="at least 20 cells"):
        ep.tl.suggest_root(few)
    with pytest.raises(KeyError, match=r"not in adata.var_names"):
        ep.tl.suggest_root(tree, markers=["no gene"])


def failing(adata: ad.AnnData) -> set[str]:
    with pytest.warns(UserWarning, match="See the column 'next'"):
        table = ep.tl.diagnose(adata)
    assert table["next"][~table["ok"]].str.len().min() > 20
    assert (table["next"][table["ok"]] == "").all()
    return set(table.index[~table["ok"]])


def test_nothing_is_wrong_with_a_clear_tree(tree):
    ep.tl.stability(tree, n_repeats=2)
    table = ep.tl.diagnose(tree)
    assert table["ok"].all(), table["found"][~table["ok"]].tolist()
    assert {"input", "components", "direction", "embedding", "terminal states", "stability"} <= set(table.index)


def test_a_cloud_and_islands_are_flagged():
    rng = np.random.default_rng(0)
    cloud = plain(rng.normal(size=(600, 20)))
    ep.tl.pseudotime(cloud, root="c0")
    assert {"direction", "continuum"} <= failing(cloud)
    line = np.column_stack([np.linspace(0, 60, 400), rng.normal(size=(400, 9))])
    islands = plain(np.vstack([line, line + 200]))
    with pytest.warns(UserWarning, match="2 components"):
        ep.tl.pseudotime(islands, root="c0")
    assert {"components", "islands"} <= failing(islands)


def test_raw_counts_are_flagged():
    import scanpy as sc

    adata = ep.datasets.branching(n_cells=500)
    adata.X = adata.layers["counts"] * 10
    sc.pp.pca(adata, n_comps=20)
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    assert "input" in failing(adata)


def test_a_root_in_the_middle_of_a_branch_is_flagged(tree):
    middle = tree.obs.query("branch == 'fate A'")["time"].sub(0.7).abs().idxmin()
    ep.tl.pseudotime(tree, root=middle)
    assert "root at an end" in failing(tree)


def test_several_ends_of_one_label_are_named(tree):
    tree.obs["type"] = tree.obs["branch"].astype(str).replace({"fate B": "late", "fate C": "late"})
    ep.tl.terminal_states(tree, groupby="branch", n_resamples=0)
    assert ep.tl.diagnose(tree).loc["terminal states of one type", "ok"]
    ep.tl.terminal_states(tree, groupby="type", n_resamples=0)
    assert failing(tree) == {"terminal states of one type"}
    with pytest.warns(UserWarning, match="with one label: 'late 1', 'late 2'"):
        ep.tl.diagnose(tree)
