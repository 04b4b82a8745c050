"""Ends, branches and fates, on trees whose answers are known on paper, and on simulated cells."""

from __future__ import annotations

import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import graph_of
from sklearn.neighbors import kneighbors_graph

import entropath_sc as ep
from entropath_sc.core import branches, lineages, sparse
from entropath_sc.core.ensemble import PathEnsemble
from entropath_sc.core.graph import graph_of_cells
from entropath_sc.core.neighbors import knn_distances

NONE = np.empty(0, dtype=int)


def branched(trunk: int, arms: tuple[int, ...]) -> tuple[sp.csr_matrix, list[np.ndarray]]:
    """A trunk of nodes in a row, and arms that begin at its last node; the nodes of each arm, outward."""
    n = trunk + sum(arms)
    A = sp.lil_matrix((n, n))
    for i in range(trunk - 1):
        A[i, i + 1] = A[i + 1, i] = 1.0
    nodes, first = [], trunk
    for length in arms:
        arm = np.arange(first, first + length)
        for a, b in zip(np.append(trunk - 1, arm[:-1]), arm, strict=True):
            A[a, b] = A[b, a] = 1.0
        nodes.append(arm)
        first += length
    return A.tocsr(), nodes


def steps_from_root(A: sp.csr_matrix) -> np.ndarray:
    return sp.csgraph.dijkstra(A, indices=0)


def test_peaks_of_a_tree_have_the_lengths_of_its_arms_as_persistence():
    A, arms = branched(10, (12, 7, 5))
    peaks = lineages.find_peaks(steps_from_root(A), A, A, least=3)
    assert peaks.nodes.tolist() == [arm[-1] for arm in arms]
    assert peaks.persistence.tolist() == [np.inf, 7, 5]
    assert peaks.has_direction


def plain_persistence(order: np.ndarray, A: sp.csr_matrix, least: int) -> list[tuple[int, float]]:
    """Node by node, from the top: (peak, how far it is above the node where it meets a higher one)."""
    side, found = {}, []
    for node in np.argsort(-order, kind="stable"):
        near = {id(side[j]): side[j] for j in A[node].indices if j in side}
        groups = sorted(near.values(), key=lambda group: -order[group["peak"]])
        elder = groups[0] if groups else {"peak": node, "nodes": []}
        for younger in groups[1:]:
            if min(len(younger["nodes"]), len(elder["nodes"])) >= least:
                found.append((int(younger["peak"]), float(order[younger["peak"]] - order[node])))
            elif len(younger["nodes"]) >= least:
                elder["peak"] = younger["peak"]
            elder["nodes"] += younger["nodes"]
        elder["nodes"].append(node)
        for member in elder["nodes"]:
            side[member] = elder
    return sorted(found)


@pytest.mark.parametrize("seed", range(5))
def test_peaks_are_those_of_a_walk_down_node_by_node(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(400, 2))
    A = sp.csr_matrix(kneighbors_graph(X, 6))
    A = A.maximum(A.T).tocsr()
    order = np.sin(9 * X[:, 0]) + np.cos(7 * X[:, 1]) + 0.6 * rng.normal(size=400)
    assert sp.csgraph.connected_components(A)[0] == 1
    peaks = lineages.find_peaks(order, A, A, least=8)
    found = sorted(zip(peaks.nodes[1:].tolist(), peaks.persistence[1:].tolist(), strict=True))
    assert len(found) >= 2
    expected = plain_persistence(order, A, 8)
    assert [peak for peak, _ in found] == [peak for peak, _ in expected]
    np.testing.assert_allclose([p for _, p in found], [p for _, p in expected])


def test_an_arm_of_too_few_nodes_is_no_peak_and_gives_its_branch_none():
    A, arms = branched(10, (12, 2))
    order = steps_from_root(A)
    assert lineages.find_peaks(order, A, A, least=3).nodes.tolist() == [arms[0][-1]]
    order[arms[1]] += 100  # two outliers, above all others
    assert lineages.find_peaks(order, A, A, least=3).nodes.tolist() == [arms[0][-1]]


def ends_of(A: sp.csr_matrix, n_ends: int | None = None, depth: float = 5.0):
    """The ends of the order from node 0, and the ensemble."""
    ensemble, root = PathEnsemble.of(graph_of(A), depth), np.array([0])
    peaks = lineages.find_peaks(ensemble.order(root), A, A)
    return lineages.find_ends(ensemble, root, peaks, n_ends), ensemble


def test_an_end_needs_ten_nodes_that_have_decided_for_it():
    for length, n_ends in ((9, 1), (10, 2), (25, 2)):
        A, arms = branched(20, (40, length))
        found, _ = ends_of(A)
        assert found.peaks.tolist() == [arm[-1] for arm in arms[:n_ends]]
        assert found.nearly is None


def test_a_bump_that_paths_pass_by_is_no_end():
    """Its nodes are as much on the way to the end behind them."""
    n = 80
    A = sp.diags([np.ones(n - k) for k in (1, 2, 3)] * 2, [1, 2, 3, -1, -2, -3]).tocsr()
    ensemble, root = PathEnsemble.of(graph_of(A), 5.0), np.array([0])
    order = ensemble.order(root)
    order[40:60] += 12
    peaks = lineages.find_peaks(order, A, A)
    assert len(peaks.nodes) == 2
    found = lineages.find_ends(ensemble, root, peaks)
    assert len(found.peaks) == 1
    assert found.nearly[1] < 0.5
    assert len(lineages.find_ends(ensemble, root, peaks, n_ends=2).peaks) == 2


def test_the_ways_to_two_ends_part_at_the_branch_point():
    """How far that is from the root, whatever the lengths of the arms, but for what nodes return to themselves."""
    A, arms = branched(8, (30, 14, 22))
    ensemble = PathEnsemble.of(graph_of(A), 5.0)
    ends = [arm[-1:] for arm in arms]
    passages = np.column_stack([ensemble.first_passages(end) for end in ends])
    tree, advanced = branches.grow(passages, np.array([0]), ends, NONE)
    to_point = ensemble.first_passages(np.array([7]))[0]
    G = np.linalg.inv(np.diag(ensemble.degree) - ensemble.weights.toarray()).diagonal()
    own = 0.5 * np.log(G / G[7])
    for i, arm in enumerate(arms):
        both = 0.5 * (advanced[arm[:-1], i] + advanced[arm[:-1], i - 1])
        np.testing.assert_allclose(both, to_point + own[arm[:-1]], rtol=1e-6)
    past = np.concatenate(arms)
    height = branches.heights(advanced, ends, NONE)[~np.eye(3, dtype=bool)]
    for found in (*height, *tree.height[np.isfinite(tree.height)]):
        assert to_point + own[past].min() < found < to_point + own[past].max()
    assert tree.points(advanced, NONE)[0] == 7
    branch = tree.place(advanced)
    for i, arm in enumerate(arms):
        assert (branch[arm[1:]] == tree.tip(i)).all()
    assert (branch[:7] == 0).all()


def test_other_parts_and_outliers_do_not_move_a_branch_point():
    """A part that a bridge joins to an arm has decided as that arm has, and is far from everything."""
    A, arms = branched(8, (30, 20))
    n, outliers = A.shape[0], 3
    part, _ = branched(40, (60, 60))
    joined = sp.block_diag([A, sp.csr_matrix((outliers, outliers)), part]).tolil()
    for at, node in zip(arms[0][10:], range(n, n + outliers), strict=False):
        joined[at, node] = joined[node, at] = 1e-6
    joined[arms[0][20], n + outliers] = joined[n + outliers, arms[0][20]] = 1e-9
    ends = [arm[-1:] for arm in arms]
    found = []
    for affinity, apart in ((A, NONE), (joined.tocsr(), np.arange(n + outliers, joined.shape[0]))):
        ensemble = PathEnsemble.of(graph_of(affinity), 5.0)
        passages = np.column_stack([ensemble.first_passages(end) for end in ends])
        tree, advanced = branches.grow(passages, np.array([0]), ends, apart)
        assert tree.points(advanced, apart)[0] == 7
        found.append(tree.height[0])
    assert found[1] == pytest.approx(found[0], abs=0.2)


def test_a_tree_joins_first_what_parts_last():
    """A branch point on an arm: the two ends behind it are joined, and the third one stands apart."""
    A, (arm, other) = branched(6, (10, 24))
    A = A.tolil()
    A.resize(70, 70)
    for start in (40, 55):  # two arms of 15 from the end of the first
        for a, b in zip([arm[-1], *range(start, start + 14)], range(start, start + 15), strict=True):
            A[a, b] = A[b, a] = 1.0
    ends = [np.array([54]), other[-1:], np.array([69])]
    ensemble = PathEnsemble.of(graph_of(A.tocsr()), 5.0)
    passages = np.column_stack([ensemble.first_passages(end) for end in ends])
    tree, advanced = branches.grow(passages, np.array([0]), ends, NONE)
    assert tree.leads_to[0] == [0, 1, 2]
    assert [0, 2] in tree.leads_to
    assert tree.points(advanced, NONE)[[0, tree.leads_to.index([0, 2])]].tolist() == [5, arm[-1]]
    branch = tree.place(advanced)
    assert (branch[arm[1:-1]] == tree.leads_to.index([0, 2])).all()
    edges = branches.between(branch, A.tocsr())
    assert np.flatnonzero(edges).tolist() == sorted(
        {int(i) for i, j in zip(*A.nonzero(), strict=True) if branch[i] != branch[j]}
    )
    single = branches.tree_of(advanced[:, :1], ends[:1], NONE, np.zeros((1, 1)))
    assert (single.parents.tolist(), single.leads_to) == ([-1], [[0]])
    assert (single.place(advanced[:, :1]) == 0).all()


@pytest.mark.parametrize("arms", [(6, 6), (9, 4, 6)])
def test_fates_past_a_branch_point_are_those_on_paper(arms):
    """Even along the trunk; e^2D/(e^2D + K - 1) at a distance D past the branch point, however long the arms are."""
    A, nodes = branched(7, arms)
    ensemble = PathEnsemble.of(graph_of(A), 5.0)
    passages = np.column_stack([ensemble.first_passages(arm[-1:]) for arm in nodes])
    K = len(arms)
    prior = np.full(K, 1 / K)
    probability = lineages.fates(passages, passages[0], prior)
    np.testing.assert_allclose(probability[:7], 1 / K, atol=1e-9)
    D = ensemble.free_energies()[6]
    for i, arm in enumerate(nodes):
        far = np.exp(2 * D[arm])
        np.testing.assert_allclose(probability[arm[:-1], i], (far / (far + K - 1))[:-1], rtol=1e-7)
    plasticity = lineages.plasticity(probability)
    assert plasticity[0] == pytest.approx(1)
    assert plasticity[nodes[0][-1]] < 0.5
    shifted = lineages.fates(passages, passages[0], np.arange(1.0, K + 1) / np.arange(1.0, K + 1).sum())
    np.testing.assert_allclose(shifted[0], np.arange(1.0, K + 1) / np.arange(1.0, K + 1).sum())


def test_the_forward_walk_arrives_where_the_fates_say():
    A, nodes = branched(7, (9, 5))
    ensemble = PathEnsemble.of(graph_of(A), 5.0)
    passages = np.column_stack([ensemble.first_passages(arm[-1:]) for arm in nodes])
    prior, ends = np.array([0.3, 0.7]), np.array([arm[-1] for arm in nodes])
    T = lineages.forward_walk(ensemble, passages, passages[0], prior, [arm[-1:] for arm in nodes])
    np.testing.assert_allclose(T.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(T.diagonal()[ends], 1)
    inner = np.setdiff1d(np.arange(T.shape[0]), ends)
    arrives = np.linalg.solve(np.eye(len(inner)) - T[inner][:, inner].toarray(), T[inner][:, ends].toarray())
    np.testing.assert_allclose(arrives[0], prior, atol=2e-3)  # paths that return from an end count in the fates
    fates = lineages.fates(passages, passages[0], prior)
    np.testing.assert_allclose(arrives, fates[inner], atol=0.06)  # as above
    assert np.abs(arrives - fates[inner]).mean() < 0.01


@pytest.fixture(scope="module")
def _ended():
    adata = ep.datasets.branching(n_cells=1000, random_state=3)
    ep.tl.merw_graph(adata)
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    ep.tl.terminal_states(adata, groupby="branch")
    ep.tl.fates(adata, forward=True)
    return adata


@pytest.fixture
def ended(_ended):
    """Branching cells up to their fates."""
    return _ended.copy()


def test_the_ends_of_branching_cells_are_found_and_no_other(ended):
    table = ended.uns["entropath"]["terminal_states"]
    assert sorted(table.index) == ["fate A", "fate B", "fate C"]
    assert (table["found_again"] >= 0.8).all()
    assert (ended.obs.loc[table["cell"], "time"] > 0.8).all()
    assert ended.obs["entropath_terminal"].value_counts().tolist() == [lineages.END_CELLS] * 3


def test_fates_are_even_on_the_trunk_and_decided_past_the_branch_point(ended):
    probability = ended.obsm["entropath_fates"]
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    # The truth: early cells of the trunk, and the last half of each branch.
    trunk = (ended.obs["branch"] == "trunk") & (ended.obs["time"] < 0.3)
    assert np.abs(probability[trunk.to_numpy()] - 1 / 3).to_numpy().mean() < 0.05
    late = ended.obs["branch"].str.startswith("fate") & (ended.obs["time"] > 0.8)
    right = probability.idxmax(axis=1)[late] == ended.obs["branch"][late].astype(str)
    assert right.mean() > 0.95
    assert ended.obs["entropath_plasticity"][trunk].mean() > 0.98
    assert ended.obs["entropath_plasticity"][late].mean() < 0.3


def test_branches_follow_the_true_ones(ended):
    late = ended.obs["branch"].str.startswith("fate") & (ended.obs["time"] > 0.85)
    same = ended.obs["entropath_branch"].astype(str)[late] == ended.obs["branch"].astype(str)[late]
    assert same.mean() > 0.95
    early = ended.obs["time"] < 0.3
    assert (ended.obs["entropath_branch"][early] == "trunk").all()
    position = ended.obs["entropath_branch_position"]
    assert position.between(0, 1).all()
    for _, cells in ended.obs.groupby("entropath_branch", observed=True):
        assert cells["entropath_branch_position"].corr(cells["entropath_pseudotime"]) > 0.9
    assert 0 < ended.obs["entropath_at_branch_point"].mean() < 0.5


def test_the_tree_is_one(ended):
    nodes, edges = (ended.uns["entropath"]["tree"][name] for name in ("nodes", "edges"))
    assert nodes["kind"].value_counts().to_dict() == {"tip": 3, "branch point": 2, "root": 1}
    assert sorted(edges["child"]) == sorted(nodes.index.drop("root"))
    assert edges["n_cells"].sum() == ended.n_obs
    up = edges.set_index("child")
    for name in edges["child"]:
        parent = up.loc[name, "parent"]
        assert nodes.loc[name, "potential"] >= nodes.loc[parent, "potential"]
        if parent != "root":
            rise = nodes.loc[name, "potential"] - nodes.loc[parent, "potential"]
            assert up.loc[name, "length"] == pytest.approx(rise)


def test_the_forward_walk_is_one_of_cells_and_goes_forward(ended):
    T = ended.obsp["entropath_forward"]
    np.testing.assert_allclose(T.sum(axis=1), 1, atol=1e-9)
    assert T.data.min() > 0
    u = ended.obs["entropath_potential"].to_numpy()
    inner = ended.obs["entropath_terminal"].isna().to_numpy()
    drift = (T @ u - u)[inner]
    assert drift.mean() > 0
    for state in ended.obs["entropath_terminal"].cat.categories:
        own = np.flatnonzero(ended.obs["entropath_terminal"] == state)
        np.testing.assert_allclose(T[own][:, own].toarray(), 1 / len(own))
    assert (drift > 0).mean() > 0.8


def test_a_line_has_one_end_and_a_cloud_none():
    rng = np.random.default_rng(0)
    cloud = ad.AnnData(np.zeros((800, 1), np.float32), obsm={"X_pca": rng.normal(size=(800, 20))})
    cloud.obs_names = [f"c{i}" for i in range(800)]
    line = cloud.copy()
    line.obsm["X_pca"][:, 0] += np.linspace(0, 60, 800)
    for adata, n_states in ((line, 1), (cloud, 0)):
        ep.tl.merw_graph(adata)
        ep.tl.pseudotime(adata, root="c0")
        if n_states:
            ep.tl.terminal_states(adata, n_resamples=3)
            assert set(adata.obs["entropath_branch"]) == {"end 1"}
        else:
            with pytest.warns(UserWarning, match="no direction"):
                ep.tl.terminal_states(adata, n_resamples=3)
            with pytest.raises(ValueError, match="Name one by hand"):
                ep.tl.fates(adata)
        assert len(adata.obs["entropath_terminal"].cat.categories) == n_states


def test_states_are_named_added_renamed_and_removed_by_hand(ended):
    ep.tl.terminal_states(ended, groupby="branch", names={"fate A": "alpha", "fate C": None}, n_resamples=0)
    assert ended.obs["entropath_terminal"].cat.categories.tolist() == ["alpha", "fate B"]
    assert ended.uns["entropath"]["terminal_states"]["found_again"].isna().all()
    assert "fate C" not in ended.obs["entropath_branch"].cat.categories
    middle = ended.obs_names[(ended.obs["branch"] == "progenitor")][0]
    late = ended.obs.query("branch == 'fate B'")["time"].idxmax()
    ep.tl.terminal_states(
        ended, groupby="branch", terminal={"by hand": middle, "the last": [late]}, n_states=2, n_resamples=0
    )
    table = ended.uns["entropath"]["terminal_states"]
    assert table["given"].to_dict() == {"fate A": False, "the last": True, "by hand": True}
    assert middle in ended.obs_names[ended.obs["entropath_terminal"] == "by hand"]
    assert ended.obs["entropath_terminal"].value_counts().to_dict() == {"fate A": 10, "by hand": 10, "the last": 1}
    ep.tl.terminal_states(ended, terminal={"C": ("branch", "fate C")}, n_states=0, n_resamples=0)
    cells = ended.obs_names[ended.obs["entropath_terminal"] == "C"]
    assert len(cells) == lineages.END_CELLS
    assert (ended.obs.loc[cells, "branch"] == "fate C").all()


def test_several_states_by_hand_may_share_a_branch(ended):
    on_a = ended.obs.query("branch == 'fate A'")["time"]
    by_hand = {"middle": on_a.sub(0.85).abs().idxmin(), "last": on_a.idxmax()}
    ep.tl.terminal_states(ended, groupby="branch", terminal=by_hand, n_resamples=0)
    table = ended.uns["entropath"]["terminal_states"]
    assert sorted(table.index) == ["fate B", "fate C", "last", "middle"]
    nodes = ended.uns["entropath"]["tree"]["nodes"]
    for name in by_hand:
        assert nodes.loc[name, "pseudotime"] == table.loc[name, "pseudotime"]


def test_a_state_of_another_label_does_not_replace_a_found_one(ended):
    # A second type on the same branch, without an end.
    other = list(ended.obs.query("branch == 'fate A' and 0.75 < time < 0.85").index)
    ended.obs["type"] = ended.obs["branch"].astype(str)
    ended.obs.loc[other, "type"] = "other"
    with pytest.warns(UserWarning, match="'by hand' lies on the branch of 'fate A', and both are kept"):
        ep.tl.terminal_states(ended, groupby="type", terminal={"by hand": other}, n_resamples=0)
    table = ended.uns["entropath"]["terminal_states"]
    assert sorted(table.index) == ["by hand", "fate A", "fate B", "fate C"]
    assert np.isnan(table.loc["by hand", "found_again"])
    assert "fate A" in ended.obs["entropath_branch"].cat.categories


def test_ends_that_cannot_be_told_apart_are_said_so(ended):
    on_the_way = ended.obs.query("branch == 'fate A' and 0.6 < time < 0.7").index[0]
    ep.tl.terminal_states(ended, groupby="branch", terminal={"between": on_the_way}, names=None, n_resamples=0)
    table = ended.uns["entropath"]["terminal_states"]
    assert "fate A" not in table.index  # it is on the branch of the found end, and took its place
    assert table.loc["between", "given"]
    trunk = list(ended.obs.query("branch == 'trunk' and 0.2 < time < 0.25").index)
    ep.tl.terminal_states(ended, groupby="branch", terminal={"on the trunk": trunk}, n_resamples=0)
    with pytest.warns(UserWarning, match="'on the trunk' lies on the paths"):
        ep.tl.fates(ended)


def test_a_root_inside_a_branch_is_flagged(ended):
    middle = ended.obs.query("branch == 'fate A'")["time"].sub(0.9).abs().idxmin()
    ep.tl.pseudotime(ended, root=middle)
    ep.tl.terminal_states(ended, n_resamples=0)
    ends = ended.uns["entropath"]["terminal_states"]
    early = ended.obs.loc[ends["cell"], "time"] < 0.3
    assert early.any()  # the true beginning looks like an end from here


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"groupby": "nothing"}, KeyError, "there is no column"),
        ({"n_states": -1}, ValueError, "whole number"),
        ({"n_states": 50}, ValueError, "has only"),
        ({"names": {"nobody": "x"}}, ValueError, "there is no state 'nobody'"),
        ({"names": {"end 1": "x", "end 2": "x"}}, ValueError, "same name"),
        ({"terminal": {"x": "no such cell"}}, KeyError, "is not in adata.obs_names"),
        ({"terminal": ["cell_1"]}, TypeError, "must be a dict"),
        ({"terminal": {"root": "cell_1"}}, ValueError, "cannot be called 'root'"),
        ({"terminal": {"a/b": "cell_1"}}, ValueError, "cannot be called 'a/b'"),
        ({"terminal": {"x": "cell_1", "y": "cell_1"}}, ValueError, "would stand for both 'x' and 'y'"),
        ({"names": {"end 1": ""}}, TypeError, "is not a name"),
        ({"names": {"end 1": "trunk"}}, ValueError, "cannot be called 'trunk'"),
        ({"groupby": "time"}, ValueError, "holds numbers"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(ended, options, error, message):
    before = ended.copy()
    with pytest.raises(error, match=message):
        ep.tl.terminal_states(ended, n_resamples=0, **options)
    pd.testing.assert_frame_equal(ended.obs, before.obs)


def test_labels_of_any_kind_name_states(ended, tmp_path):
    """Also those that the tree or a file could not hold, and missing ones."""
    labels = ended.obs["branch"].astype(object)
    ended.obs["odd"] = labels.replace({"fate A": "root", "fate B": "T/NK", "fate C": np.nan})
    ep.tl.terminal_states(ended, groupby="odd", n_resamples=0)
    ep.tl.fates(ended)
    names = set(ended.obsm["entropath_fates"].columns)
    assert {"root end", "T-NK"} < names
    (unnamed,) = names - {"root end", "T-NK"}
    assert unnamed in ("end 2", "end 3")  # the end without a label, by its place
    assert ended.uns["entropath"]["tree"]["nodes"].index.is_unique
    del ended.obs["odd"]
    ended.write_zarr(tmp_path / "cells.zarr")


def test_what_comes_first_is_said(cells):
    with pytest.raises(KeyError, match=r"Run `ep.tl.pseudotime\(adata, root=...\)` first"):
        ep.tl.terminal_states(cells)
    with pytest.raises(KeyError, match=r"Run `ep.tl.terminal_states\(adata\)` first"):
        ep.tl.fates(cells)
    ep.tl.pseudotime(cells, root=cells.uns["root"], preset="paper")
    with pytest.raises(ValueError, match="without `preset`"):
        ep.tl.terminal_states(cells)


def test_an_order_of_other_neighbours_is_refused(ended):
    ep.tl.merw_graph(ended, n_neighbors=30)
    with pytest.raises(ValueError, match="other neighbours or cells"):
        ep.tl.fates(ended)


def test_priors_by_name(ended):
    ep.tl.fates(ended, prior={"fate A": 2, "fate B": 1, "fate C": 1})
    at_root = ended.obsm["entropath_fates"].loc[ended.uns["root"]]
    assert at_root.to_dict() == pytest.approx({"fate A": 0.5, "fate B": 0.25, "fate C": 0.25}, abs=1e-6)
    assert ended.obsm["entropath_membership"].loc[ended.uns["root"]].to_numpy() == pytest.approx(1, abs=1e-6)
    wrong = [("sizes", "is not known"), ({"fate A": 1}, "for each"), (dict.fromkeys("ABC", 1), "states")]
    wrong += [(None, "for each"), ({"fate A": "x", "fate B": 1, "fate C": 1}, "positive number")]
    for prior, message in wrong:
        with pytest.raises(ValueError, match=message):
            ep.tl.fates(ended, prior=prior)


def test_landmarks_carry_fates_too():
    adata = ep.datasets.branching(n_cells=1500, random_state=3)
    ep.tl.pseudotime(adata, root=adata.uns["root"], n_landmarks=500)
    ep.tl.terminal_states(adata, groupby="branch", n_resamples=2)
    ep.tl.fates(adata)
    probability = adata.obsm["entropath_fates"]
    late = adata.obs["branch"].str.startswith("fate") & (adata.obs["time"] > 0.85)
    assert (probability.idxmax(axis=1)[late] == adata.obs["branch"][late].astype(str)).mean() > 0.95
    with pytest.raises(ValueError, match="landmarks carried this pseudotime"):
        ep.tl.fates(adata, forward=True)


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_all_of_it_survives_a_file(ended, tmp_path, suffix):
    path = tmp_path / f"cells.{suffix}"
    # Not all versions of zarr can hold the strings of numpy.
    assert {type(kind) for kind in ended.uns["entropath"]["tree"]["nodes"]["kind"]} == {str}
    ended.write_h5ad(path) if suffix == "h5ad" else ended.write_zarr(path)
    back = ad.read_h5ad(path) if suffix == "h5ad" else ad.read_zarr(path)
    for name in ("entropath_fates", "entropath_membership", "entropath_passages"):
        pd.testing.assert_frame_equal(back.obsm[name], ended.obsm[name])
    for name in ("nodes", "edges"):
        kept = back.uns["entropath"]["tree"][name]
        pd.testing.assert_frame_equal(kept, ended.uns["entropath"]["tree"][name], check_index_type=False)
    assert back.obs["entropath_branch"].tolist() == ended.obs["entropath_branch"].tolist()
    ep.tl.terminal_states(back, groupby="branch")
    ep.tl.fates(back, forward=True)
    np.testing.assert_array_equal(back.obsm["entropath_fates"], ended.obsm["entropath_fates"])
    assert (back.obsp["entropath_forward"] != ended.obsp["entropath_forward"]).nnz == 0


def test_new_cells_get_their_fates_and_their_branch():
    adata = ep.datasets.branching(n_cells=1400, random_state=3)
    for n_landmarks in (None, 500):
        ref, new = adata[::2].copy(), adata[1::2].copy()
        ep.tl.embedding(ref)
        ep.tl.pseudotime(ref, root=ref.obs["time"].idxmin(), n_landmarks=n_landmarks)
        ep.tl.terminal_states(ref, groupby="branch", n_resamples=0)
        ep.tl.fates(ref)
        ep.tl.project(new, ref)
        late = new.obs["branch"].str.startswith("fate") & (new.obs["time"] > 0.85)
        assert (new.obsm["entropath_fates"].idxmax(axis=1)[late] == new.obs["branch"][late].astype(str)).mean() > 0.95
        assert (new.obs["entropath_branch"].astype(str)[late] == new.obs["branch"][late].astype(str)).mean() > 0.9
        np.testing.assert_allclose(new.obsm["entropath_fates"].sum(axis=1), 1)
        assert new.obsm["entropath_membership"].columns.tolist() == ref.obsm["entropath_fates"].columns.tolist()
        own = ep.tl.project(ref, ref, copy=True)
        tolerance = 1e-6 if n_landmarks is None else 1e-3
        np.testing.assert_allclose(own.obsm["entropath_fates"], ref.obsm["entropath_fates"], atol=tolerance)
        ep.tl.project(new, ref, labels=["branch", "time"])  # the branch that was found has the name already
        carried = new.obs["entropath_branch_label"].astype(str) == new.obs["branch"].astype(str)
        assert carried.mean() > 0.8
        assert (new.obs["entropath_branch_label_share"] > 0).all()
        assert (new.obs["entropath_branch"].astype(str)[late] == new.obs["branch"][late].astype(str)).mean() > 0.9
        ep.tl.project(new, ref, labels="branch")  # again, over its own fields


def test_what_followed_from_an_earlier_order_is_removed(ended):
    ep.tl.trends(ended, ended.var_names[:3])
    ep.tl.drivers(ended)
    fresh = ep.datasets.branching(n_cells=1000, random_state=3)
    ep.tl.merw_graph(fresh)
    other = ended.obs["time"].idxmax()
    for adata in (ended, fresh):
        ep.tl.pseudotime(adata, root=other)
    assert set(ended.obs) == set(fresh.obs)
    assert set(ended.obsm) == set(fresh.obsm)
    assert set(ended.obsp) == set(fresh.obsp)
    assert set(ended.varm) == set(fresh.varm)
    assert set(ended.uns["entropath"]) == set(fresh.uns["entropath"])
    assert set(ended.uns["entropath"]["params"]) == set(fresh.uns["entropath"]["params"])


def test_a_dask_array_gives_the_fates_of_memory():
    da = pytest.importorskip("dask.array")
    adata = ep.datasets.branching(n_cells=900, random_state=3)
    lazy = adata.copy()
    lazy.obsm["X_pca"] = da.from_array(np.asarray(adata.obsm["X_pca"]), chunks=(250, 30))
    for cells in (adata, lazy):
        ep.tl.pseudotime(cells, root=cells.uns["root"], n_landmarks=300)
        ep.tl.terminal_states(cells, groupby="branch", n_resamples=0)
        ep.tl.fates(cells)
    np.testing.assert_array_equal(lazy.obsm["entropath_fates"], adata.obsm["entropath_fates"])
    assert (lazy.obs["entropath_branch"] == adata.obs["entropath_branch"]).all()


def test_parts_of_matrices_are_those_of_slices_and_products():
    A = sp.random(60, 60, 0.15, format="csr", random_state=1)
    A = (A + A.T).tocsr()
    A.sort_indices()
    nodes = np.flatnonzero(np.random.default_rng(0).random(60) < 0.6)
    np.testing.assert_array_equal(sparse.submatrix(A, nodes).toarray(), A[nodes][:, nodes].toarray())
    links = (A != 0).astype(int)
    for least in (1, 3):
        expected = (links @ links).toarray()[A.nonzero()] >= least
        np.testing.assert_array_equal(sparse.have_common(A, least, np.ones(A.nnz, dtype=bool)), expected)
        np.testing.assert_array_equal(sparse.have_common(A, least, A.data > 0.5), expected & (A.data > 0.5))
    there = np.arange(60) % 3 > 0
    last = nodes[there[nodes]]
    expected = A[last][:, last].sum() / A[last][:, there].sum()
    assert sparse.share_inside(A, last, there) == pytest.approx(expected)
    assert sparse.share_inside(A, last[:0], there) == 0.0


def test_ends_are_looked_for_in_the_part_with_the_root():
    """Also where another part is larger, and where the root itself stands alone."""
    small, arms = branched(10, (12, 8))
    large, _ = branched(30, (40, 40))
    A = sp.block_diag([small, large, [[0.0]]]).tocsr()
    order = np.append(np.concatenate([steps_from_root(small), 50 + steps_from_root(large)]), 0.0)
    peaks = lineages.find_peaks(order, A, A, least=3)
    assert peaks.nodes.tolist() == [arms[0][-1], arms[1][-1]]
    assert set(peaks.left_out) == set(range(30, 140))
    alone = lineages.find_peaks(np.append(order[:-1] + 1, 0.0), A, A, least=3)
    assert alone.nodes.tolist() == peaks.nodes.tolist()


def test_ends_are_looked_for_beyond_cells_that_wait_around_the_root():
    """They are joined to each other alone, so that the order has no direction among them; if nowhere, none is found."""
    small, arms = branched(10, (12, 8))
    waiting = np.ones((8, 8)) - np.eye(8)
    A = sp.block_diag([small, waiting]).tocsr()
    order = np.concatenate([50 + steps_from_root(small), np.append(np.linspace(0.2, 0.1, 7), 0.0)])
    peaks = lineages.find_peaks(order, A, A, least=3)
    assert peaks.has_direction
    assert peaks.nodes.tolist() == [arms[0][-1], arms[1][-1]]
    assert peaks.before.tolist() == list(range(30, 38))
    assert not len(peaks.left_out)
    cloud = sp.block_diag([np.ones((9, 9)) - np.eye(9), waiting]).tocsr()
    nowhere = lineages.find_peaks(np.append(np.linspace(2, 1, 9), order[30:]), cloud, cloud, least=3)
    assert not nowhere.has_direction
    assert nowhere.left_out.tolist() == list(range(9))
    assert not len(nowhere.before)


@pytest.mark.parametrize("n_copies", [15, 30])
def test_copies_of_the_root_leave_the_terminal_states_as_they_are(n_copies):
    adata = ep.datasets.branching(n_cells=600)
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    ep.tl.terminal_states(adata, groupby="branch")
    at_root = adata.obs_names.get_loc(adata.uns["root"])
    copies = ad.AnnData(obs=pd.DataFrame(index=[f"copy {i}" for i in range(n_copies)]))
    copies.obsm["X_pca"] = np.repeat(adata.obsm["X_pca"][[at_root]], n_copies, axis=0)
    more = ad.concat([ad.AnnData(obs=adata.obs[["branch"]], obsm={"X_pca": adata.obsm["X_pca"]}), copies], join="outer")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The neighbour graph has 2 components")
        ep.tl.pseudotime(more, root=adata.uns["root"])
    with pytest.warns(UserWarning, match=f"cells around it, {n_copies + 1} in all, have no firm link"):
        ep.tl.terminal_states(more, groupby="branch")
    found, before = (some.uns["entropath"]["terminal_states"] for some in (more, adata))
    assert found.index.tolist() == before.index.tolist()
    assert found["cell"].tolist() == before["cell"].tolist()
    assert (found["found_again"] == 1).all()


def test_ends_are_found_again_in_the_part_where_they_were_found():
    """A few cells in a row before it are too few for ends, also where resamples need fewer."""
    adata = ep.datasets.branching(n_cells=600)
    X, rng = adata.obsm["X_pca"], np.random.default_rng(0)
    spread = np.linalg.norm(X - X.mean(axis=0), axis=1).mean()
    line = np.zeros((18, X.shape[1]))
    line[:, 0], line[:, 1] = 6 * spread, np.linspace(0, 2 * spread, 18)
    more = ad.AnnData(obs=pd.DataFrame(index=[f"cell_{i}" for i in range(618)]))
    more.obsm["X_pca"] = np.vstack([X, X.mean(axis=0) + line + 0.01 * spread * rng.normal(size=line.shape)])
    with pytest.warns(UserWarning, match="2 components"):
        ep.tl.merw_graph(more, n_neighbors=10)
    ep.tl.pseudotime(more, root="cell_600")
    with pytest.warns(UserWarning, match="18 in all, .* too few for a trajectory, or have no order"):
        ep.tl.terminal_states(more)
    found = more.uns["entropath"]["terminal_states"]
    assert len(found) == 3
    assert (found["found_again"] > 0.9).all()


def test_all_cells_as_roots_have_no_terminal_state():
    adata = ep.datasets.branching(n_cells=300)
    ep.tl.pseudotime(adata, root=adata.obs_names.tolist())
    with pytest.warns(UserWarning, match="has no direction"):
        ep.tl.terminal_states(adata)
    assert adata.uns["entropath"]["terminal_states"].empty


def test_cells_that_are_left_out_are_counted():
    adata = ep.datasets.branching(n_cells=900, random_state=3)
    away = (adata.obs["branch"] == "fate A").to_numpy()
    adata.obsm["X_pca"][away] += 500.0
    with pytest.warns(UserWarning, match="components"):
        ep.tl.merw_graph(adata)
    root = adata.obs[away]["time"].idxmin()
    ep.tl.pseudotime(adata, root=root)
    with pytest.warns(UserWarning, match=f"{(~away).sum()} of 900 cells, in groups of 10 and more, have no firm link"):
        ep.tl.terminal_states(adata, groupby="branch", n_resamples=0)
    assert adata.uns["entropath"]["terminal_states"].index.tolist() == ["fate A"]


@pytest.mark.parametrize("flag", ["forward", "copy"])
def test_flags_are_true_or_false(ended, flag):
    with pytest.raises(TypeError, match=f"{flag}='yes' must be True or False"):
        ep.tl.fates(ended, **{flag: "yes"})


@pytest.fixture
def plain():
    adata = ep.datasets.branching(n_cells=600)
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    return adata


def test_a_state_by_hand_on_another_branch_keeps_the_only_found_one(plain):
    """The branch of a single state is the whole of the data; without labels, paths tell the two apart."""
    other = plain.obs.query("branch == 'fate B'")["time"].idxmax()
    ep.tl.terminal_states(plain, n_states=1, terminal={"B": other}, n_resamples=0)
    assert list(plain.uns["entropath"]["terminal_states"].index) == ["end 1", "B"]
    same = plain.obs.query("branch == 'fate A'")["time"].nlargest(5).index[-1]
    ep.tl.terminal_states(plain, n_states=1, terminal={"A": same}, n_resamples=0)
    assert list(plain.uns["entropath"]["terminal_states"].index) == ["A"]


def test_a_state_by_hand_does_not_take_the_name_of_a_found_one(plain):
    other = plain.obs.query("branch == 'fate B'")["time"].idxmax()
    with pytest.raises(ValueError, match=r"'fate A' is already the name .*rename or remove"):
        ep.tl.terminal_states(plain, groupby="branch", terminal={"fate A": other}, n_resamples=0)
    assert "entropath_terminal" not in plain.obs


def test_numbered_names_do_not_meet_labels(plain):
    plain.obs["type"] = plain.obs["branch"].astype(str).replace({"fate A": "E", "fate B": "E", "fate C": "E 1"})
    ep.tl.terminal_states(plain, groupby="type", n_resamples=0)
    assert sorted(plain.uns["entropath"]["terminal_states"].index) == ["E 1", "E 2", "E 3"]


def test_a_state_on_the_way_to_another_one_is_named_whatever_the_prior(plain):
    """Its cells have not decided for it, and a small prior alone says nothing of a branch."""
    middle = plain.obs.query("branch == 'progenitor'")["time"].idxmin()
    ep.tl.terminal_states(plain, groupby="branch", terminal={"middle": middle}, n_resamples=0)
    assert plain.uns["entropath"]["terminal_states"].loc["middle", "decided"] < 0.5
    with pytest.warns(UserWarning, match="The cells of 'middle' are as much on their way"):
        ep.tl.fates(plain)
    ep.tl.terminal_states(plain, groupby="branch", n_resamples=0)
    ep.tl.fates(plain, prior={"fate A": 0.98, "fate B": 0.01, "fate C": 0.01})


def test_branches_do_not_turn_back_in_time(plain):
    """Also where a state at the root leaves no trunk."""
    early = plain.obs["entropath_pseudotime"].nsmallest(40).index[-3:]
    with pytest.warns(UserWarning, match="less than half the pseudotime of the last state: 'early'"):
        ep.tl.terminal_states(plain, groupby="branch", terminal={"early": list(early)}, n_resamples=0)
    tree = plain.uns["entropath"]["tree"]
    time = tree["nodes"]["pseudotime"]
    assert (time[tree["edges"]["child"]].to_numpy() >= time[tree["edges"]["parent"]].to_numpy()).all()
    assert plain.obs["entropath_branch_position"].between(0, 1).all()
    assert np.isfinite(tree["edges"]["length"]).all()
    assert (tree["edges"]["length"] >= 0).all()


def test_outliers_do_not_make_states_early(plain):
    X = plain.obsm["X_pca"].copy()
    X[np.random.default_rng(0).choice(len(X), 12, replace=False)] *= 10
    far = ad.AnnData(obsm={"X_pca": X}, obs=plain.obs[["branch", "time"]].copy())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ep.tl.pseudotime(far, root=plain.uns["root"])
        ep.tl.terminal_states(far, groupby="branch", n_resamples=0)
    assert not [w for w in caught if "less than half" in str(w.message)]


def test_a_state_of_one_cell_does_not_hide_how_often_the_others_are_found(plain):
    """Repeats that leave that cell out measure no state."""
    lone = plain.obs.query("branch == 'progenitor'").index[:4]
    ep.tl.terminal_states(plain, groupby="branch", terminal={name: [name] for name in lone}, n_resamples=0)
    ep.tl.stability(plain, n_repeats=12)
    found = plain.uns["entropath"]["stability"]
    again = dict(zip(found["tips"], found["found_again"], strict=True))
    assert again["fate A"] == 1


@pytest.fixture(scope="module")
def among_most():
    """An ensemble, its equalised weights, the order of all nodes, random samples, and the order of each sample."""
    X = ep.datasets.branching(n_cells=500, n_genes=60).obsm["X_pca"]
    graph, _ = graph_of_cells(knn_distances(X, 10), X, decay=3.0, bandwidth="tempered")
    ensemble, root = PathEnsemble.of(graph, 10.0), np.array([0])
    B = ensemble.equalised(graph)
    kept = np.column_stack([lineages.most_nodes(graph, root, rng) for rng in np.random.default_rng(1).spawn(3)])
    alone = np.full(kept.shape, np.inf)
    for column, nodes in zip(alone.T, kept.T, strict=True):
        inside = np.flatnonzero(nodes)
        degree = B[inside][:, inside].sum(axis=1).A1
        system = np.diag(degree) - ensemble.weights[inside][:, inside].toarray()
        f = np.linalg.solve(system[1:, 1:], -system[1:, 0])  # the root is the first
        column[inside] = np.append(0.0, -np.log(f))
    return ensemble, B, ensemble.order(root), kept, alone


def test_relaxed_orders_become_those_of_the_nodes_alone(among_most):
    ensemble, B, order, kept, alone = among_most
    relaxed = ensemble.relaxed(B, order, np.array([0]), kept, n_steps=1000)
    np.testing.assert_allclose(relaxed, alone, atol=1e-4)


def test_a_few_steps_tell_which_of_two_neighbors_comes_first(among_most):
    """Better than the order of all nodes does."""
    ensemble, B, order, kept, alone = among_most
    links = B.tocoo()
    both = kept[links.row] & kept[links.col]

    def agreement(found: np.ndarray) -> float:
        return float(np.mean(((found[links.row] > found[links.col]) == (alone[links.row] > alone[links.col]))[both]))

    before = agreement(np.repeat(order[:, None], 3, axis=1))
    assert agreement(ensemble.relaxed(B, order, np.array([0]), kept)) > 0.97 > before


def test_outliers_do_not_spoil_the_relaxed_order_of_others():
    """Where all that leaves one is below the range of single precision."""
    A, (arm, _) = branched(10, (12, 7))
    A = A.tolil()
    A[arm[-1], arm[-2]] = A[arm[-2], arm[-1]] = 1e-42
    graph = graph_of(A.tocsr())
    ensemble, root = PathEnsemble.of(graph, 10.0), np.array([0])
    order = ensemble.order(root)
    relaxed = ensemble.relaxed(ensemble.equalised(graph), order, root, np.ones((graph.n_nodes, 1), dtype=bool))[:, 0]
    np.testing.assert_allclose(relaxed, order, atol=1e-4)


def test_nodes_without_a_neighbor_have_no_order():
    A, (arm, _) = branched(10, (12, 7))
    graph = graph_of(A)
    ensemble, root = PathEnsemble.of(graph, 10.0), np.array([0])
    B, order = ensemble.equalised(graph), ensemble.order(root)
    kept = np.ones((graph.n_nodes, 2), dtype=bool)
    kept[arm[-2], 0] = False
    relaxed = ensemble.relaxed(B, order, root, kept)
    assert np.flatnonzero(np.isinf(relaxed[:, 0])).tolist() == arm[-2:].tolist()
    np.testing.assert_allclose(relaxed[:, 1], order, atol=1e-5)
    np.testing.assert_array_equal(ensemble.relaxed(B, order, root, kept[:, :1])[:, 0], relaxed[:, 0])


@pytest.mark.parametrize("change", ["passages", "states"])
def test_fates_follow_the_states_also_where_stored_passages_do_not(plain, change):
    ep.tl.terminal_states(plain, groupby="branch", n_resamples=0)
    if change == "passages":
        plain.obsm["entropath_passages"] *= 1.01
    else:
        terminal = plain.obs["entropath_terminal"].copy()
        terminal[terminal.dropna().index[0]] = np.nan
        plain.obs["entropath_terminal"] = terminal
    computed = plain.copy()
    del computed.obsm["entropath_passages"]
    ep.tl.fates(computed)
    ep.tl.fates(plain)
    pd.testing.assert_frame_equal(plain.obsm["entropath_fates"], computed.obsm["entropath_fates"])


@pytest.mark.parametrize("wrong", [0.0, np.nan, 1.0])
def test_a_potential_that_was_changed_is_refused(plain, wrong):
    potential = plain.obs["entropath_potential"]
    plain.obs["entropath_potential"] = wrong * potential + (potential if wrong == 1.0 else 0.0)
    with pytest.raises(ValueError, match="made with other neighbours or cells"):
        ep.tl.terminal_states(plain)


def test_roots_are_no_terminal_states():
    """All have the same pseudotime, which is a peak nowhere."""
    A, (arm, _) = branched(30, (12, 12))
    order = steps_from_root(A)
    order[:25] = 0.0
    order[25:] -= order[25:].min() - 1
    shuffled = np.random.default_rng(0).permutation(len(order))
    peaks = lineages.find_peaks(order[shuffled], A[shuffled][:, shuffled], A[shuffled][:, shuffled], least=3)
    assert sorted(order[shuffled][peaks.nodes]) == sorted(order[[arm[-1], -1]])


def test_single_precision_keeps_an_order(plain):
    exact = ep.tl.terminal_states(plain, n_resamples=0, copy=True)
    plain.obs["entropath_potential"] = plain.obs["entropath_potential"].astype(np.float32)
    ep.tl.terminal_states(plain, n_resamples=0)
    assert (plain.obs["entropath_branch"] == exact.obs["entropath_branch"]).mean() > 0.99
    plain.obsm["entropath_passages"] = plain.obsm["entropath_passages"].to_numpy(np.float32)
    ep.tl.fates(plain)
    ep.tl.fates(exact)
    np.testing.assert_allclose(plain.obsm["entropath_fates"], exact.obsm["entropath_fates"], atol=1e-4)


def test_a_state_by_hand_replaces_a_found_one_that_shares_its_cells(plain):
    """Also where labels tell the two apart, as no cell stands for both."""
    ep.tl.terminal_states(plain, groupby="branch", n_resamples=0)
    shared = plain.obs_names[plain.obs["entropath_terminal"] == "fate A"][:3]
    plain.obs["label"] = "late"
    plain.obs.loc[shared, "label"] = "odd"
    ep.tl.terminal_states(plain, groupby="label", terminal={"mine": list(shared)}, n_resamples=0)
    states = plain.uns["entropath"]["terminal_states"]
    assert len(states) == 3
    assert states["given"].sum() == 1
    assert states.loc["mine", "given"]
