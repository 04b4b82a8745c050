"""Curves along lineages and the genes behind them, on expression whose course is known."""

from __future__ import annotations

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import entropath_sc as ep
from entropath_sc.core import trends as core
from entropath_sc.tl._trends import storable_names

COURSES = ["early", "rises", "only A", "only B", "A late", "flat", "zero"]


def forked(n_cells: int = 900, n_noise: int = 40, states=("A", "B", "C"), seed: int = 0) -> ad.AnnData:
    """A trunk until 0.4 that parts in three, with expression of a known course."""
    rng = np.random.default_rng(seed)
    time = np.r_[0.0, rng.uniform(size=n_cells - 1)]
    end = rng.integers(0, 3, size=n_cells)
    past = np.clip((time - 0.4) / 0.6, 0.0, None)
    own = np.eye(3)[end]
    fates = np.where(past[:, None] > 0, own * (1 - np.exp(-8 * past[:, None])), 0)
    fates += (1 - fates.sum(axis=1, keepdims=True)) / 3
    membership = np.where(past[:, None] > 0.02, own, 1.0)
    course = {
        "early": np.exp(-4 * time),
        "rises": 2 * time,
        "only A": 2 * past * (end == 0),
        "only B": 2 * past * (end == 1),
        "A late": 2 * np.clip(past - 0.5, 0, None) * (end == 0),
    }
    X = np.column_stack([*course.values(), np.full(n_cells, 3.3), np.zeros(n_cells)])
    X[:, : len(course)] += 0.2 * rng.normal(size=(n_cells, len(course)))
    X = np.hstack([X, rng.poisson(0.3, size=(n_cells, n_noise))])
    adata = ad.AnnData(X.astype(np.float32), obs=pd.DataFrame(index=[f"cell_{i}" for i in range(n_cells)]))
    adata.var_names = COURSES + [f"noise_{i}" for i in range(n_noise)]
    adata.obs["entropath_pseudotime"] = time
    for name, values in (("fates", fates), ("membership", membership)):
        adata.obsm[f"entropath_{name}"] = pd.DataFrame(values, index=adata.obs_names, columns=list(states))
    return adata


@pytest.fixture(scope="module")
def _tree():
    return forked()


@pytest.fixture
def tree(_tree):
    return _tree.copy()


# Curves, on arrays.


def sine(n_cells: int, n_genes: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    time = rng.uniform(size=n_cells)
    return time, np.sin(2 * np.pi * time)[:, None] + 0.7 * rng.normal(size=(n_cells, n_genes))


def test_a_sine_is_found_within_its_band():
    time, X = sine(1500, 100)
    (found,) = core.trends(X, time, np.ones((1500, 1)), 50)
    off = found.mean - np.sin(2 * np.pi * found.grid)
    assert np.sqrt((off**2).mean()) < 0.06
    # Bands of 95 % across the curve; 100 curves of a few independent stretches each.
    assert 0.92 < (np.abs(off) < 1.96 * found.se).mean() < 0.98


def test_noise_gives_almost_a_line():
    rng = np.random.default_rng(1)
    time = rng.uniform(size=1500)
    (found,) = core.trends(rng.normal(size=(1500, 100)), time, np.ones((1500, 1)), 50)
    assert 0.92 < (np.abs(found.mean) < 1.96 * found.se).mean() < 0.98
    assert np.median(np.abs(np.diff(found.mean, 2, axis=1)).max(axis=1)) < 1e-3


def test_cells_without_weight_do_not_count():
    time, X = sine(600, 5)
    weights = (np.arange(600) % 3 > 0).astype(float)[:, None]
    spoilt = X.copy()
    spoilt[::3] = np.nan
    kept = weights[:, 0] > 0
    for given in (X, spoilt, sp.csr_array(spoilt)):
        (found,) = core.trends(given, time, weights, 30)
        (expected,) = core.trends(X[kept], time[kept], np.ones((kept.sum(), 1)), 30)
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-10)
        np.testing.assert_allclose(found.se, expected.se, atol=1e-10)


def test_half_a_weight_twice_is_a_whole_one():
    time, X = sine(300, 4)
    (found,) = core.trends(np.vstack([X, X]), np.r_[time, time], np.full((600, 1), 0.5), 20)
    (expected,) = core.trends(X, time, np.ones((300, 1)), 20)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(found.se, expected.se, atol=1e-8)


def test_lines_and_constants_come_back():
    time = np.linspace(0, 0.8, 200)
    X = np.column_stack([1 - 3 * time, np.full(200, 3.3), np.zeros(200)])
    (found,) = core.trends(X, time, np.ones((200, 1)), 20)
    np.testing.assert_allclose(found.mean, np.stack([1 - 3 * found.grid, np.full(20, 3.3), np.zeros(20)]), atol=1e-6)
    np.testing.assert_allclose(found.se, 0, atol=1e-6)
    assert found.grid[[0, -1]].tolist() == [0.0, 0.8]


def test_a_gap_without_cells_is_bridged_with_less_certainty():
    time, X = sine(900, 3)
    kept = (time < 0.4) | (time > 0.7)
    (found,) = core.trends(X[kept], time[kept], np.ones((kept.sum(), 1)), 101)
    assert np.isfinite(found.mean).all()
    assert (found.se[:, 55] > 1.5 * found.se[:, 20]).all()


@pytest.mark.parametrize("n_cells", [2, 5, 12])
def test_few_cells_give_finite_curves(n_cells):
    time, X = sine(n_cells, 3)
    (found,) = core.trends(X, time, np.ones((n_cells, 1)), 10)
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.se).all()


def test_blocks_and_storage_make_no_difference(monkeypatch, tree):
    dense, time = np.asarray(tree.X), tree.obs["entropath_pseudotime"].to_numpy()
    weights = tree.obsm["entropath_membership"].to_numpy()
    expected = core.trends(dense, time, weights, 20)
    monkeypatch.setattr(core, "BLOCK_VALUES", 500)
    da = pytest.importorskip("dask.array")
    for X in (dense, sp.csr_matrix(dense), sp.csc_matrix(dense), da.from_array(dense, chunks=(200, 10))):
        for one, other in zip(core.trends(X, time, weights, 20), expected, strict=True):
            np.testing.assert_allclose(one.mean, other.mean, atol=1e-6)
            np.testing.assert_allclose(one.se, other.se, atol=1e-6)


# The tool.


def test_trends_follow_their_own_lineage(tree):
    ep.tl.trends(tree, ["only A", "early"])
    grid = dict(zip("ABC", tree.uns["entropath"]["trends"]["pseudotime"], strict=True))
    at = tree.var_names.get_loc("only A")
    for state, slope in (("A", 2.0), ("B", 0.0), ("C", 0.0)):
        curve = tree.varm[f"entropath_trends_{state}"][at]
        expected = slope * np.clip((grid[state] - 0.4) / 0.6, 0, None)
        assert np.abs(curve - expected).max() < 0.2
    assert np.isnan(tree.varm["entropath_trends_A"][tree.var_names.get_loc("rises")]).all()


def test_all_genes_are_the_default_and_do_not_depend_on_each_other(tree):
    ep.tl.trends(tree)
    alone = ep.tl.trends(tree, "rises", fate="B", n_points=100, copy=True)
    at = tree.var_names.get_loc("rises")
    for end in ("", "_se"):
        both = [adata.varm[f"entropath_trends_B{end}"][at] for adata in (tree, alone)]
        np.testing.assert_allclose(*both, atol=1e-6)
    assert np.isfinite(tree.varm["entropath_trends_A"]).all()
    # Earlier trends of other states are replaced.
    assert {name for name in alone.varm if "trends" in name} == {"entropath_trends_B", "entropath_trends_B_se"}


def test_a_lineage_ends_with_its_last_cell(tree):
    member = tree.obsm["entropath_membership"]["B"] > 0.5
    kept = tree[~member | (tree.obs["entropath_pseudotime"] < 0.7)].copy()
    ep.tl.trends(kept, "rises")
    ends = kept.uns["entropath"]["trends"]["pseudotime"][:, -1]
    assert ends[1] < 0.7 < 0.98 < min(ends[0], ends[2])


def test_a_gene_that_cannot_be_fitted_is_nan_with_one_warning(tree):
    tree.X[0, [1, 3]] = np.nan, np.inf  # at the root, which all lineages share
    for function in (ep.tl.trends, ep.tl.drivers):
        with pytest.warns(UserWarning, match=r"2 of 47 genes hold NaN or inf.*'rises'") as caught:
            function(tree)
        assert len(caught) == 1
    found = tree.varm["entropath_trends_A"]
    assert np.flatnonzero(np.isnan(found[:, 0])).tolist() == [1, 3]
    table = tree.uns["entropath"]["drivers"]
    assert set(table["gene"][table["q"].isna()]) == {"rises", "only B"}


def test_names_that_keys_cannot_hold(tmp_path):
    assert storable_names(["A/B", "A_B", "A", "A_se", "é/ü"]) == ["A_B", "A_B_2", "A", "A_se_2", "é_ü"]
    tree = forked(200, 2, states=("Mono/DC", "Mono_DC", "B (pro)"))
    ep.tl.trends(tree)
    part = tree.uns["entropath"]["trends"]
    assert part["states"].tolist() == ["Mono/DC", "Mono_DC", "B (pro)"]
    assert all(field in tree.varm and "/" not in field for field in part["fields"])


@pytest.mark.parametrize("kind", ["h5ad", "zarr"])
def test_results_survive_a_file(tree, tmp_path, kind):
    if kind == "zarr":
        pytest.importorskip("zarr")
    tree.X = sp.csr_matrix(tree.X)
    ep.tl.trends(tree, ["only A", "early"])
    ep.tl.drivers(tree)
    ep.tl.drivers(tree, versus=("A", "B"))
    getattr(tree, f"write_{kind}")(tmp_path / "cells")
    back = getattr(ad, f"read_{kind}")(tmp_path / "cells")
    for name in tree.varm:
        np.testing.assert_array_equal(back.varm[name], tree.varm[name])
    for name in ("drivers", "versus"):
        pd.testing.assert_frame_equal(back.uns["entropath"][name], tree.uns["entropath"][name], check_dtype=False)
    ep.tl.trends(back, fate="A")
    ep.tl.drivers(back, fate=["A", "C"])
    figure = ep.pl.trends(back, "early", return_fig=True)
    assert len(figure.axes[0].lines) == 1
    plt.close(figure)


def test_errors_name_the_key_and_the_next_step(tree):
    for field, where, command in (
        ("entropath_pseudotime", "obs", r"ep\.tl\.pseudotime"),
        ("entropath_membership", "obsm", r"ep\.tl\.fates"),
        ("entropath_fates", "obsm", r"ep\.tl\.fates"),
    ):
        less = tree.copy()
        del getattr(less, where)[field]
        for function in (ep.tl.trends, ep.tl.drivers):
            with pytest.raises(KeyError, match=rf"{field}.*{command}"):
                function(less)
    with pytest.raises(ValueError, match=r"'D' is not a terminal state. Choose from 'A', 'B', 'C'"):
        ep.tl.trends(tree, fate="D")
    with pytest.raises(KeyError, match=r"'Gata1' is not in adata.var_names.*look like 'early'"):
        ep.tl.trends(tree, ["early", "Gata1"])
    with pytest.raises(KeyError, match=r"No adata.layers\['counts'\]; adata.layers holds nothing"):
        ep.tl.trends(tree, layer="counts")
    with pytest.raises(ValueError, match="two different terminal states"):
        ep.tl.drivers(tree, versus=("A", "A"))
    with pytest.raises(ValueError, match="either `fate` or `versus`"):
        ep.tl.drivers(tree, fate="A", versus=("A", "B"))
    tree.obsm["entropath_membership"]["B"] = tree.obsm["entropath_membership"]["A"]
    with pytest.raises(ValueError, match=r"0 cells are on the way to 'A' and not to 'B'"):
        ep.tl.drivers(tree, versus=("A", "B"))
    tree.obs["entropath_pseudotime"] = np.nan
    with pytest.raises(ValueError, match=r"NaN or inf in 900 of 900 cells"):
        ep.tl.trends(tree)


# Drivers.


def ranked(tree: ad.AnnData, state: str) -> pd.DataFrame:
    table = tree.uns["entropath"]["drivers"]
    return table[table["state"] == state].set_index("gene")


def test_a_planted_gene_comes_first_and_a_common_one_does_not(tree):
    ep.tl.drivers(tree)
    assert list(ranked(tree, "A").index[:2]) == ["only A", "A late"]
    assert ranked(tree, "B").index[0] == "only B"
    for state in "ABC":
        found = ranked(tree, state)
        assert abs(found.loc["rises", "correlation"]) < 0.1
        assert found.loc[["rises", "early"], "change_q"].max() < 1e-6
        assert found.loc[["rises", "early"], "p"].min() > 1e-3
        assert found.loc[["flat", "zero"], "p"].min() == 1.0
        assert found.loc[["flat", "zero"], ["correlation", "change"]].abs().to_numpy().max() == 0.0
    assert ranked(tree, "A").loc["only A", "q"] < 1e-20
    assert (ranked(tree, "B").loc["only A", ["correlation"]] < 0).all()


def test_two_branches_are_compared_after_they_part(tree):
    ep.tl.drivers(tree, versus=("A", "B"))
    found = tree.uns["entropath"]["versus"].set_index("gene")
    assert list(found.index[:2]) == ["only A", "A late"]
    assert found.index[-1] == "only B"
    assert set(found.index[found["q"] < 0.01]) == {"only A", "A late", "only B"}
    assert tree.uns["entropath"]["params"]["drivers"]["versus"].tolist() == ["A", "B"]


def test_branches_that_cross_differ(tree):
    """No difference in the mean, but in the course."""
    time = tree.obs["entropath_pseudotime"].to_numpy()
    sign = tree.obsm["entropath_membership"]["A"].to_numpy() - tree.obsm["entropath_membership"]["B"].to_numpy()
    tree.X[:, 5] = sign * np.sin(2 * np.pi * (time - 0.4) / 0.6) + 0.3 * np.random.default_rng(0).normal(size=900)
    ep.tl.drivers(tree, versus=("A", "B"))
    assert tree.uns["entropath"]["versus"].set_index("gene").loc["flat", "q"] < 1e-10


def test_one_state_leaves_the_change_along_the_order(tree):
    for name in ("fates", "membership"):
        tree.obsm[f"entropath_{name}"] = pd.DataFrame({"end": np.ones(tree.n_obs)}, index=tree.obs_names)
    ep.tl.drivers(tree)
    found = ranked(tree, "end")
    assert found["correlation"].isna().all()
    assert found.index[0] == "rises"


def test_shuffled_cells_give_no_more_small_p_values_than_chance():
    """Independent genes of all kinds; tolerance: three standard errors of a share of 5 %."""
    rng = np.random.default_rng(5)
    tree = forked(600, 0, seed=5)
    n = 1500
    rates = np.repeat([0.05, 0.3, 2.0], n // 3)
    X = np.log1p(rng.poisson(rates * rng.gamma(2.0, 0.5, size=(600, n))))
    # Half of the genes have a course, which shuffling cells breaks.
    X[:, ::2] += np.outer(tree.obs["entropath_pseudotime"], np.ones(n // 2))
    X = rng.permuted(X, axis=0)
    shuffled = ad.AnnData(sp.csr_matrix(X), obs=tree.obs, obsm=dict(tree.obsm))
    ep.tl.drivers(shuffled)
    ep.tl.drivers(shuffled, versus=("A", "C"))
    found, versus = shuffled.uns["entropath"]["drivers"], shuffled.uns["entropath"]["versus"]
    limit = 0.05 + 3 * np.sqrt(0.05 * 0.95 / n)
    for state in "ABC":
        own = found[found["state"] == state]
        assert 0.02 < (own["p"] < 0.05).mean() < limit
        assert 0.02 < (own["change_p"] < 0.05).mean() < limit
    assert 0.02 < (versus["p"] < 0.05).mean() < limit


def test_curves_agree_where_lineages_share_their_cells():
    """A long lineage with much detail and a short straight one have the same trunk, and so the same curve there."""
    rng = np.random.default_rng(0)
    time = rng.uniform(0, 1, 1500)
    on_long = time > 0.4
    short = rng.uniform(0.4, 0.6, 200)
    time, on_short = np.append(time, short), np.append(np.zeros(1500, bool), np.ones(200, bool))
    on_long = np.append(on_long, np.zeros(200, bool))
    weights = np.column_stack([~on_short, ~on_long]).astype(float)
    mean = np.where(on_short, np.sin(4), np.sin(10 * time))
    found = core.trends((mean + 0.3 * rng.normal(size=1700))[:, None], time, weights, 101)
    trunk = np.linspace(0, 0.35, 20)
    one, other = (np.interp(trunk, curve.grid, curve.mean[0]) for curve in found)
    assert np.abs(one - other).max() < 0.05
    assert np.abs(one - np.sin(10 * trunk)).max() < 0.15
