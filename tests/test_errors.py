"""Bad input: the error names the key and the next step, and `adata` stays as it was."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc

import entropath_sc as ep


def snapshot(adata) -> tuple:
    return (
        sorted(adata.obs),
        sorted(adata.obsm),
        sorted(adata.obsp),
        sorted(adata.uns),
        adata.is_view,
    )


def no_pca(adata):
    del adata.obsm["X_pca"]


def nan(adata):
    adata.obsm["X_pca"][3, 0] = np.nan


def broken_neighbours(adata):
    sc.pp.neighbors(adata)
    del adata.obsp["distances"]


def nan_neighbours(adata):
    sc.pp.neighbors(adata)
    adata.obsp["distances"].data[0] = np.nan


def dense_neighbours(adata):
    sc.pp.neighbors(adata)
    adata.obsp["distances"] = adata.obsp["distances"].toarray()


def nothing(adata):
    pass


def doubled_names(adata):
    adata.obs_names = ["cell_0", *adata.obs_names[:-1]]


def one_category(adata):
    adata.obs["all"] = "the same"


GRAPH = [
    (no_pca, {}, KeyError, ["adata.uns['neighbors']", "adata.obsm['X_pca']", "sc.pp.neighbors(adata)"]),
    (nan, {}, ValueError, ["'X_pca'", "NaN", "1 of 400 cells"]),
    (nothing, {"use_rep": "X_scvi"}, KeyError, ["adata.obsm['X_scvi']", "'X_pca'", "use_rep="]),
    (nothing, {"neighbors_key": "mine"}, KeyError, ["adata.uns['mine']", "sc.pp.neighbors(adata, key_added='mine')"]),
    (nothing, {"n_neighbors": 401}, ValueError, ["n_neighbors=401", "401 cells", "adata has 400"]),
    (nothing, {"n_neighbors": 1}, ValueError, ["n_neighbors=1", "at least 2"]),
    (nothing, {"n_pcs": 0}, ValueError, ["n_pcs=0", "at least 1"]),
    (nothing, {"decay": "40"}, ValueError, ["decay='40'"]),
    (nothing, {"key_added": "a/b"}, ValueError, ["key_added='a/b'", "'/'"]),
    (nothing, {"key_added": "pca"}, ValueError, ["adata.uns['pca']", "another `key_added`"]),
    (nothing, {"n_pcs": 99}, ValueError, ["n_pcs=99", "30 columns"]),
    (nothing, {"bandwidth": "cauchy"}, ValueError, ["bandwidth='cauchy'", "'tempered'", "'larger'"]),
    (nothing, {"decay": 0.0}, ValueError, ["decay=0.0", "positive"]),
    (nothing, {"decay": float("inf")}, ValueError, ["decay=inf", "positive"]),
    (nothing, {"preset": "phate"}, ValueError, ["preset='phate'", "'paper'", "'heat'"]),
    (nothing, {"random_state": -1}, ValueError, ["random_state=-1"]),
    (nothing, {"disconnected": "ignore"}, ValueError, ["disconnected='ignore'", "'bridge'"]),
    (nothing, {"neighbors_key": "a", "use_rep": "X"}, ValueError, ["neighbors_key", "use_rep", "not both"]),
    (broken_neighbours, {}, KeyError, ["adata.obsp['distances']", "sc.pp.neighbors(adata)"]),
    (nan_neighbours, {}, ValueError, ["adata.obsp['distances']", "NaN"]),
    (dense_neighbours, {}, ValueError, ["dense", "knn=True"]),
]


@pytest.mark.parametrize(("break_it", "options", "error", "words"), GRAPH)
def test_graph_errors(cells, break_it, options, error, words):
    break_it(cells)
    before = snapshot(cells)
    with pytest.raises(error) as caught:
        ep.tl.merw_graph(cells, **options)
    for word in words:
        assert word in str(caught.value)
    assert snapshot(cells) == before


EMBEDDING = [
    ({"depth": 0}, ValueError, ["depth=0", "positive number"]),
    ({"depth": -1.5}, ValueError, ["depth=-1.5", "positive number"]),
    ({"depth": True}, ValueError, ["depth=True", "positive number"]),
    ({"depth": float("nan")}, ValueError, ["depth=nan"]),
    ({"depth": "auto"}, ValueError, ["depth='auto'", "positive number"]),
    ({"depth": "knee"}, ValueError, ["depth='knee'", "positive number"]),
    ({"depth": "deep", "preset": "heat"}, ValueError, ["depth='deep'", "'knee'"]),
    ({"depth": 2.5, "preset": "paper"}, ValueError, ["depth=2.5", "whole number"]),
    ({"preset": "phate"}, ValueError, ["preset='phate'", "'paper'"]),
    ({"n_components": 0}, ValueError, ["n_components=0"]),
    ({"n_components": 400}, ValueError, ["n_components=400", "below"]),
    ({"n_landmarks": 1}, ValueError, ["n_landmarks=1"]),
    ({"n_landmarks": 150.0}, ValueError, ["n_landmarks=150.0", "whole number"]),
    ({"random_state": -1}, ValueError, ["random_state=-1"]),
    ({"n_project": 0}, ValueError, ["n_project=0"]),
    ({"landmarks": "best"}, ValueError, ["landmarks='best'", "'kmeans'"]),
    ({"landmarks": ["nobody"]}, KeyError, ["'nobody'", "adata.obs_names"]),
    ({"include": "nobody"}, KeyError, ["include", "'nobody'"]),
    ({"mds": "nonmetric"}, ValueError, ["mds='nonmetric'"]),
    ({"use_rep": "X_scvi"}, KeyError, ["adata.obsm['X_scvi']", "'X_pca'", "use_rep="]),
    ({"key_added": "a/b"}, ValueError, ["key_added='a/b'", "'/'"]),
    ({"n_jobs": 0}, ValueError, ["n_jobs=0"]),
]


@pytest.mark.parametrize(("options", "error", "words"), EMBEDDING)
def test_embedding_errors(cells, options, error, words):
    before = snapshot(cells)
    with pytest.raises(error) as caught:
        ep.tl.embedding(cells, **options)
    for word in words:
        assert word in str(caught.value)
    assert snapshot(cells) == before


PSEUDOTIME = [
    (nothing, {}, ValueError, ["No root", "root=", "adata.uns['iroot']", "`ep.tl.suggest_root(adata)`"]),
    (nothing, {"root": pd.DataFrame({"n_genes": [1]}, index=["cell_1"])}, TypeError, ["`root=table.index[0]`"]),
    (nothing, {"root": "AAAC"}, KeyError, ["'AAAC'", "adata.obs_names", "'cell_0'"]),
    (nothing, {"root": 7}, TypeError, ["7"]),
    (nothing, {"root": [7]}, TypeError, ["7", "adata.obs_names[7]"]),
    (nothing, {"root": []}, ValueError, ["root is empty"]),
    (nothing, {"root": ["cell_1", "cell_1"]}, ValueError, ["'cell_1'", "given twice"]),
    (nothing, {"root": "cell_1", "terminal": "cell_1"}, ValueError, ["'cell_1'", "both as root and as terminal"]),
    (nothing, {"root": ("brnch", "trunk")}, KeyError, ["adata.obs['brnch']", "'branch'"]),
    (nothing, {"root": ("branch", "fate Z")}, ValueError, ["'fate Z'", "'fate A'"]),
    (nothing, {"root": ("branch", ["fate A", "fate B"])}, TypeError, ["several categories", "list barcodes"]),
    (doubled_names, {"root": "cell_0"}, ValueError, ["obs_names_make_unique"]),
    (nothing, {"root": "cell_1", "depth": 0}, ValueError, ["depth=0"]),
    (nothing, {"root": "cell_1", "depth": "embedding"}, ValueError, ["depth='embedding'", "positive number"]),
    (nothing, {"root": "cell_1", "depth": "embedding", "preset": "paper"}, ValueError, ["depth='embedding'"]),
    (nothing, {"root": "cell_1", "n_landmarks": 2}, ValueError, ["n_landmarks=2", "at least 3"]),
    (nothing, {"root": "cell_1", "preset": "phate"}, ValueError, ["preset='phate'", "'paper'"]),
    (nothing, {"root": "cell_1", "terminal": ("branch", "fate Z")}, ValueError, ["terminal", "'fate Z'", "'fate A'"]),
    (one_category, {"root": ("all", "the same")}, ValueError, ["('all', 'the same')", "everywhere", "barcode"]),
    (nothing, {"root": "cell_1", "scaling": "log"}, ValueError, ["'rank'"]),
    (no_pca, {"root": "cell_1"}, KeyError, ["sc.pp.pca(adata)"]),
]


@pytest.mark.filterwarnings("ignore:Observation names are not unique")
@pytest.mark.parametrize(("break_it", "options", "error", "words"), PSEUDOTIME)
def test_pseudotime_errors(cells, break_it, options, error, words):
    break_it(cells)
    before = snapshot(cells)
    with pytest.raises(error) as caught:
        ep.tl.pseudotime(cells, **options)
    for word in words:
        assert word in str(caught.value)
    assert snapshot(cells) == before


def test_iroot_that_is_no_position(cells):
    for wrong in (4000, -1, "cell_1"):
        cells.uns["iroot"] = wrong
        with pytest.raises(ValueError, match=r"iroot.*not a position among the 400 cells"):
            ep.tl.pseudotime(cells)


@pytest.mark.parametrize("tool", [ep.tl.merw_graph, ep.tl.embedding, ep.tl.pseudotime])
def test_objects_that_no_tool_takes(tool, cells, tmp_path):
    with pytest.raises(ValueError, match="no cells"):
        tool(cells[:0])
    with pytest.raises(TypeError, match="AnnData"):
        tool(cells.obsm["X_pca"])
    cells.write_h5ad(tmp_path / "x.h5ad")
    backed = ad.read_h5ad(tmp_path / "x.h5ad", backed="r")
    with pytest.raises(ValueError, match="to_memory"):
        tool(backed)
    backed.file.close()


def test_a_view_stays_a_view_when_refused(cells):
    part = cells[:10]
    with pytest.raises(ValueError, match="n_neighbors=15 needs at least 15 cells"):
        ep.tl.merw_graph(part)
    assert part.is_view


def test_disconnected_graphs_can_be_refused(cells):
    cells.obsm["X_pca"][:100] += 1000.0
    before = snapshot(cells)
    with pytest.raises(ValueError, match=r"2 components, of 300, 100 cells.*disconnected='bridge'"):
        ep.tl.merw_graph(cells, disconnected="error")
    assert snapshot(cells) == before


def test_components_without_a_representation(cells):
    cells.obsm["X_pca"][:100] += 1000.0
    sc.pp.neighbors(cells, use_rep="X_pca")
    del cells.obsm["X_pca"]
    with pytest.raises(ValueError, match="use_rep="):
        ep.tl.merw_graph(cells)


def test_landmarks_without_positions(cells):
    sc.pp.neighbors(cells, use_rep="X_pca")
    del cells.obsm["X_pca"]
    for step in (
        lambda: ep.tl.pseudotime(cells, root="cell_0", n_landmarks=100),
        lambda: ep.tl.embedding(cells, n_landmarks=100),
    ):
        with pytest.raises(ValueError, match=r"not in `adata`\. Put it back, .*`use_rep=`.*raise `n_landmarks`"):
            step()


@pytest.mark.parametrize("kind", [np.asarray, list, lambda mask: mask], ids=["array", "list", "series"])
def test_a_mask_as_root_is_told_what_to_pass(cells, kind):
    mask = cells.obs["branch"] == "trunk"
    mask = kind(mask) if kind is not list else mask.tolist()
    for name in ("root", "terminal"):
        with pytest.raises(TypeError, match=rf"{name} is a mask.*adata\.obs_names\[mask\]"):
            ep.tl.pseudotime(cells, **{"root": "cell_0", name: mask})
    ep.tl.pseudotime(cells, root=cells.obs_names[mask])
    assert (cells.obs["entropath_pseudotime"][mask] == 0).all()


def graph(cells, **options):
    ep.tl.merw_graph(cells, **options)


def embedding(cells, **options):
    ep.tl.embedding(cells, **options)


def pseudotime(cells, **options):
    ep.tl.pseudotime(cells, root="cell_0", **options)


def estimator(cells, **options):
    ep.EntroPath(**options)


OLD_OPTIONS = [
    (graph, "kernel", "gaussian", ["decay=2", "bandwidth='adaptive'", "decay=40", "bandwidth='larger'"]),
    (embedding, "landmark_graph", "knn", ["graph of cells where there are neighbours"]),
    (embedding, "diffusion", "power", ["`depth=`", "preset='paper'", "preset='heat'"]),
    (embedding, "dissimilarity", "free_energy", ["`depth=`", "preset='paper'"]),
    (embedding, "max_depth", 100, ["150 points"]),
    (pseudotime, "refine", 0.5, ["larger `depth=` smooths more"]),
    (pseudotime, "on", "landmarks", ["`n_landmarks=`"]),
    (pseudotime, "potential", "merw", ["preset='paper'"]),
    (pseudotime, "diffusion", "heat", ["preset='paper'", "'heat'"]),
    (estimator, "kernel", "tempered", ["`decay=`", "`bandwidth=`"]),
    (estimator, "dissimilarity", "balanced", ["free energy of all paths"]),
]


@pytest.mark.parametrize(("tool", "name", "value", "words"), OLD_OPTIONS)
def test_old_options_are_told_what_replaces_them(cells, tool, name, value, words):
    before = snapshot(cells)
    with pytest.raises(TypeError) as caught:
        tool(cells, **{name: value})
    for word in (f"`{name}` is gone", *words):
        assert word in str(caught.value)
    assert snapshot(cells) == before


def test_options_that_never_were_are_refused_as_python_does(cells):
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_neighbours'"):
        ep.tl.merw_graph(cells, n_neighbours=15)


WARNINGS = {
    "view": "Received a view",
    "components": "2 components",
    "changed": "it is made again",
    "preset": "not the paper's",
    "remote": "as far from the reference",
}


@pytest.mark.parametrize("where", WARNINGS)
def test_warnings_point_at_the_line_that_called(cells, where):
    def step():
        if where == "view":
            ep.tl.merw_graph(cells[:300])
        elif where == "components":
            ep.tl.embedding(cells)
        elif where == "remote":
            ep.tl.project(new, cells)
        else:
            ep.tl.pseudotime(cells, root="cell_0", preset="paper" if where == "preset" else "default")

    if where == "components":
        cells.obsm["X_pca"][:100] += 1000.0
    if where in ("changed", "preset"):
        ep.tl.merw_graph(cells)
    if where == "changed":
        cells.obsm["X_pca"] = cells.obsm["X_pca"][:, :10]
    if where == "remote":
        ep.tl.embedding(cells)
        new = cells.copy()
        new.obsm["X_pca"] = new.obsm["X_pca"] + 1000.0
    with pytest.warns(UserWarning, match=WARNINGS[where]) as caught:
        step()
    # Not those of pandas about anndata.
    assert [warning.filename for warning in caught if warning.category is UserWarning] == [__file__]
