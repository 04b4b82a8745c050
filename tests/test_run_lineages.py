"""`entropath-sc run` from counts to fates: out of core as in memory, and in the representation that is asked for."""

from __future__ import annotations

import anndata as ad
import dask
import matplotlib.image
import numpy as np
import pytest
import scanpy as sc
import scipy.sparse as sp
import zarr

import entropath_sc as ep
from entropath_sc import _figures, _run, _store
from entropath_sc.cli import main
from entropath_sc.tl import _blocks

N_CELLS = 900
QUICK = ["--quiet", "--n-landmarks", "200"]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(_blocks, "LEAST_BLOCK_CELLS", 1)
    monkeypatch.setattr(_blocks, "BLOCKS_AT_ONCE", 3)


@pytest.fixture(scope="module")
def generated():
    return ep.datasets.branching(n_cells=N_CELLS, n_genes=120, random_state=3)


@pytest.fixture
def folder(generated, tmp_path):
    """Cells with a PCA, and cells with nothing but counts; stored in several chunks."""
    obs = generated.obs[["branch"]]
    pca = ad.AnnData(obs=obs, obsm={"X_pca": generated.obsm["X_pca"]})
    pca.write_h5ad(tmp_path / "pca.h5ad")
    pca.write_zarr(tmp_path / "pca.zarr", chunks=(200, 50))
    counts = ad.AnnData(sp.csr_matrix(generated.layers["counts"]), obs=obs, var=generated.var[[]])
    counts.write_h5ad(tmp_path / "counts.h5ad")
    counts.write_zarr(tmp_path / "counts.zarr")
    return tmp_path


def run(folder, source: str, target: str, *options: str) -> int:
    return main(["run", str(folder / source), "-o", str(folder / target), *QUICK, *options])


def small_blocks_of_counts(monkeypatch, X) -> None:
    """About 200 cells each."""
    monkeypatch.setattr(_store, "COUNTS_AT_ONCE", 200 * X.nnz // X.shape[0])


def test_a_seed_means_the_same_out_of_core_as_in_memory(generated, folder):
    options = ["--root", generated.uns["root"], "--random-state", "7"]
    assert run(folder, "pca.h5ad", "memory.h5ad", *options) == 0
    assert run(folder, "pca.zarr", "blocks.zarr", *options, "--out-of-core") == 0
    memory, blocks = ad.read_h5ad(folder / "memory.h5ad"), ad.read_zarr(folder / "blocks.zarr")
    for name in ("entropath_pseudotime", "entropath_landmark"):
        np.testing.assert_allclose(blocks.obs[name].astype(float), memory.obs[name].astype(float), atol=1e-5)
    ep.tl.terminal_states(blocks, n_resamples=0)  # reads the order on the same landmarks
    ep.tl.terminal_states(memory, n_resamples=0)
    assert blocks.obs["entropath_branch"].astype(str).equals(memory.obs["entropath_branch"].astype(str))


def test_lineages_out_of_core_equal_those_in_memory(generated, folder, capsys):
    options = ["--root", generated.uns["root"], "--lineages", "--groupby", "branch", "--figures"]
    assert run(folder, "pca.h5ad", "memory.h5ad", *options, str(folder / "a")) == 0
    assert run(folder, "pca.zarr", "blocks.zarr", *options, str(folder / "b"), "--out-of-core") == 0
    printed = capsys.readouterr().out
    assert printed.count("\nstates     fate ") == 2
    for name in ("a", "b"):
        assert f"\nfigures    {folder / name}\n" in printed
    memory, blocks = ad.read_h5ad(folder / "memory.h5ad"), ad.read_zarr(folder / "blocks.zarr")
    assert len(memory.obsm["entropath_fates"].columns) >= 2
    for name in ("entropath_fates", "entropath_membership", "entropath_passages"):
        assert list(blocks.obsm[name].columns) == list(memory.obsm[name].columns)
        assert blocks.obsm[name].index.equals(blocks.obs_names)
        np.testing.assert_allclose(blocks.obsm[name], memory.obsm[name], atol=1e-6)
    assert set(blocks.obs.columns) == set(memory.obs.columns)
    for name in ("entropath_terminal", "entropath_branch"):
        assert blocks.obs[name].astype(str).equals(memory.obs[name].astype(str))
        assert list(blocks.obs[name].cat.categories) == list(memory.obs[name].cat.categories)
    for name in ("entropath_branch_position", "entropath_at_branch_point", "entropath_plasticity"):
        assert blocks.obs[name].dtype == memory.obs[name].dtype
        np.testing.assert_allclose(blocks.obs[name].astype(float), memory.obs[name].astype(float), atol=1e-5)
    kept, expected = (found.uns["entropath"] for found in (blocks, memory))
    assert kept.keys() == expected.keys()
    for step in ("terminal_states", "fates"):
        assert kept["params"][step] == expected["params"][step]
    for a, b in [(kept["terminal_states"], expected["terminal_states"])] + [
        (kept["tree"][part], expected["tree"][part]) for part in ("nodes", "edges")
    ]:
        assert list(a.columns) == list(b.columns)
        for column in a:
            if a[column].dtype.kind in "fib":
                np.testing.assert_allclose(a[column].astype(float), b[column].astype(float), rtol=1e-5, atol=1e-5)
            else:
                assert list(a[column]) == list(b[column])
    for name in ("passages", "branch", "at_root", "prior"):
        np.testing.assert_allclose(kept["fates"][name], expected["fates"][name], atol=1e-6)
    drawn = {"embedding.png", "depth.png", "pseudotime.png", "tree.png", "terminal_states.png", "fates.png"}
    for where in ("a", "b"):
        assert {path.name for path in (folder / where).iterdir()} == drawn
    # The result is a reference for other cells, and what follows can be computed on it.
    projected = ep.tl.project(memory, blocks, copy=True)
    np.testing.assert_allclose(projected.obsm["entropath_fates"], blocks.obsm["entropath_fates"], atol=1e-5)
    ep.tl.fates(blocks)
    np.testing.assert_allclose(blocks.obsm["entropath_fates"], memory.obsm["entropath_fates"], atol=1e-6)


@pytest.mark.parametrize("how", [[], ["--out-of-core"]], ids=["memory", "blocks"])
def test_old_lineages_do_not_stay(generated, folder, how):
    root = ["--root", generated.uns["root"]]
    assert run(folder, "pca.zarr", "first.zarr", *root, "--lineages", *how) == 0
    first = ad.read_zarr(folder / "first.zarr")
    for options in (root, []):
        assert run(folder, "first.zarr", "second.zarr", *options, *how, "--overwrite") == 0
        found = ad.read_zarr(folder / "second.zarr")
        order = {"entropath_pseudotime", "entropath_potential"} if options else set()
        assert set(found.obs) == {"branch", "entropath_landmark"} | order
        assert set(found.obsm) == {"X_pca", "X_entropath"}
        assert set(found.uns["entropath"]["params"]) == {"embedding"} | ({"pseudotime"} if options else set())
        assert not {"terminal_states", "tree", "fates"} & set(found.uns["entropath"])
    assert set(first.obsm) == set(ad.read_zarr(folder / "first.zarr").obsm)


@pytest.mark.parametrize("how", [[], ["--out-of-core"]], ids=["memory", "blocks"])
def test_without_states_there_is_an_order_and_no_fates(generated, folder, how, monkeypatch, capsys):
    monkeypatch.setattr(_run, "_lineages", lambda options: {"groupby": None, "n_states": 0})
    options = ["--root", generated.uns["root"], "--lineages", "--figures", str(folder / "figures"), *how]
    assert run(folder, "pca.zarr", "out.zarr", *options) == 0
    assert "states     none" in capsys.readouterr().out
    found = ad.read_zarr(folder / "out.zarr")
    assert found.obs["entropath_pseudotime"].max() == 1
    assert found.obs["entropath_terminal"].isna().all()
    assert "entropath_fates" not in found.obsm
    assert {path.name for path in (folder / "figures").iterdir()} == {
        *("embedding.png", "depth.png", "pseudotime.png", "tree.png")
    }


@pytest.mark.parametrize("dense", [False, True], ids=["csr", "dense"])
def test_counts_out_of_core_give_the_pca_of_memory(generated, folder, dense, monkeypatch):
    X = sp.csr_matrix(generated.layers["counts"])
    small_blocks_of_counts(monkeypatch, X)
    if dense:
        monkeypatch.setattr(_store, "COUNTS_AT_ONCE", 200 * X.shape[1])
        stored = ad.read_h5ad(folder / "counts.h5ad")
        stored.X = stored.X.toarray().astype(int)
        stored.obsp["distances"] = stored.obsp["connectivities"] = sp.eye(N_CELLS, format="csr")
        stored.uns["neighbors"] = {"params": {}}
        stored.write_zarr(folder / "counts.zarr")
    assert run(folder, "counts.h5ad", "memory.h5ad", "--preprocess") == 0
    assert run(folder, "counts.zarr", "blocks.zarr", "--preprocess", "--out-of-core") == 0
    memory, blocks = ad.read_h5ad(folder / "memory.h5ad"), ad.read_zarr(folder / "blocks.zarr")
    a, b = blocks.obsm["X_pca"], memory.obsm["X_pca"]
    assert a.dtype == b.dtype
    assert a.shape == (N_CELLS, 50)
    sign = np.sign((a * b).sum(axis=0))
    np.testing.assert_allclose(a * sign, b, atol=2e-3 * np.abs(b).max())
    np.testing.assert_allclose(a[:, :5] * sign[:5], b[:, :5], atol=1e-5 * np.abs(b).max())
    np.testing.assert_allclose(blocks.uns["pca"]["variance"], memory.uns["pca"]["variance"], rtol=1e-4)
    np.testing.assert_allclose(blocks.uns["pca"]["variance_ratio"], memory.uns["pca"]["variance_ratio"], rtol=1e-4)
    dense_of = (lambda Y: Y) if dense else (lambda Y: Y.toarray())
    np.testing.assert_allclose(dense_of(blocks.X), memory.X.toarray(), rtol=1e-5)
    np.testing.assert_array_equal(dense_of(blocks.layers["counts"]), memory.layers["counts"].toarray())
    assert blocks.X.dtype == np.float32
    assert list(blocks.var.columns) == list(memory.var.columns)
    for column in memory.var:
        np.testing.assert_allclose(blocks.var[column].astype(float), memory.var[column].astype(float), rtol=1e-4)
    # Neighbours of other numbers do not stay.
    assert "neighbors" not in blocks.uns
    assert not set(blocks.obsp)
    # New cells can be placed from their expression alone.
    new = ad.AnnData(memory.X[:50].copy(), obs=memory.obs[["branch"]][:50], var=memory.var[[]])
    ep.tl.project(new, blocks, use_reference_pca=True)
    np.testing.assert_allclose(new.obsm["X_entropath"], blocks.obsm["X_entropath"][:50], atol=1e-3)


def test_variable_genes_are_those_of_scanpy(generated):
    from entropath_sc._counts import variable_genes

    rng = np.random.default_rng(1)
    X = rng.poisson(rng.gamma(0.3, 3.0, size=(1, 600)), size=(300, 600)).astype(np.float64)
    X[:, :7] = 0
    X[:, 7] = rng.poisson(4000, 300)  # alone in its bin
    expected = sc.pp.highly_variable_genes(ad.AnnData(np.log1p(X)), n_top_genes=100, inplace=False)
    found = variable_genes(X.mean(axis=0), X.var(axis=0, ddof=1), 100)
    assert found["highly_variable"].sum() == 100
    for column in found:
        np.testing.assert_allclose(found[column].astype(float), expected[column].astype(float), rtol=1e-9, atol=1e-9)


def test_totals_of_counts_have_the_median_of_numpy():
    from entropath_sc._counts import count_totals, middle_total

    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 100, 101):
        X = rng.poisson(0.4, size=(n, 12))
        X[0, 0] = 1
        totals = X.sum(axis=1)
        parts = count_totals(X[: n // 2]) + count_totals(sp.csr_matrix(X[n // 2 :]))
        assert middle_total(parts) == np.median(totals[totals > 0])


def test_counts_go_on_after_an_interruption(generated, folder, monkeypatch, capsys):
    small_blocks_of_counts(monkeypatch, sp.csr_matrix(generated.layers["counts"]))
    command = [
        "counts.zarr",
        "out.zarr",
        "--preprocess",
        "--out-of-core",
        "--lineages",
        "--root",
        generated.uns["root"],
    ]
    stored, applied = [], _blocks._applied

    def interrupt(X, function):
        if type(function).__name__ == "Scores":
            stored.append(X.shape[0])
            if len(stored) == 3:
                raise KeyboardInterrupt
        return applied(X, function)

    with dask.config.set(scheduler="synchronous"), monkeypatch.context() as patch:
        patch.setattr(_blocks, "_applied", interrupt)
        assert run(folder, *command) == 130
        assert "The same command goes on" in capsys.readouterr().err
        assert not (folder / "out.zarr").exists()
        assert run(folder, *command) == 0
        assert len(stored) == 3 + 3  # five blocks, of which two were kept
        assert run(folder, command[0], "fresh.zarr", *command[2:]) == 0
    found, fresh = ad.read_zarr(folder / "out.zarr"), ad.read_zarr(folder / "fresh.zarr")
    np.testing.assert_array_equal(found.obsm["X_pca"], fresh.obsm["X_pca"])
    np.testing.assert_array_equal(found.obsm["entropath_fates"], fresh.obsm["entropath_fates"])
    assert not (folder / "out.zarr.partial").exists()


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("pca", ["--groupby", "mood"], "there is no column adata.obs['mood']; there is 'branch'"),
        ("pca", ["--groupby", "score"], "holds numbers, not labels"),
        ("pca", ["--color", "mood", "--figures", "FIGURES"], "--color: 'mood' is"),
        ("logged", ["--preprocess"], "X holds other numbers"),
        ("empty", ["--preprocess"], "X holds no counts"),
    ],
)
@pytest.mark.parametrize("how", [[], ["--out-of-core"]], ids=["memory", "blocks"])
def test_what_the_data_do_not_allow_is_refused_at_once(generated, folder, source, options, message, how, capsys):
    made = {"pca": None, "logged": np.log1p(generated.layers["counts"]), "empty": sp.csr_matrix((N_CELLS, 120))}
    adata = ad.read_h5ad(folder / "pca.h5ad") if made[source] is None else ad.AnnData(made[source])
    adata.obs_names, adata.obs["score"] = generated.obs_names, np.arange(N_CELLS) / 2
    adata.write_zarr(folder / "in.zarr")
    before = {path.name for path in folder.iterdir()}
    options = [str(folder / "figures") if option == "FIGURES" else option for option in options]
    assert run(folder, "in.zarr", "x.zarr", "--root", generated.uns["root"], "--lineages", *options, *how) == 1
    assert message in capsys.readouterr().err
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize("how", [[], ["--out-of-core"]], ids=["memory", "blocks"])
def test_files_that_cannot_be_read_or_written_are_named(folder, how, capsys):
    (folder / "empty.zarr").mkdir()
    (folder / "a_file").write_text("")
    zarr.open_group(folder / "other.zarr", mode="w").create_group("images")
    sources = ["empty.zarr", *(["other.zarr"] if how else [])]
    for source in sources:
        assert run(folder, source, "x.zarr", *how) == 2
        assert f"{folder / source} cannot be read: " in capsys.readouterr().err
    for options in (["pca.zarr", "a_file/x.zarr"], ["pca.zarr", "x.zarr", "--figures", str(folder / "a_file")]):
        assert run(folder, *options, *how) == 2
        assert f"Nothing can be written in {folder / 'a_file'}: " in capsys.readouterr().err
    assert run(folder, "counts.zarr", "x.zarr", *how) == 1
    assert "pass --preprocess" in capsys.readouterr().err
    assert not (folder / "x.zarr").exists()


def test_counts_that_cannot_be_read_by_rows_are_refused(folder, capsys):
    adata = ad.read_h5ad(folder / "counts.h5ad")
    adata.X = adata.X.tocsc()
    adata.write_zarr(folder / "csc.zarr")
    for source, message in (("csc.zarr", "adata.X.tocsr()"), ("pca.zarr", "There is no X, and")):
        assert run(folder, source, "x.zarr", "--preprocess", "--out-of-core") == 1
        assert message in capsys.readouterr().err
    assert run(folder, "pca.zarr", "x.zarr", "--preprocess") == 1
    assert "There is no X, and" in capsys.readouterr().err


def test_an_x_that_is_stored_as_nothing_is_not_there(folder, capsys):
    ad.io.write_elem(zarr.open_group(folder / "pca.zarr", mode="r+", use_consolidated=False), "X", None)
    zarr.consolidate_metadata(str(folder / "pca.zarr"))
    for options, message in (["--preprocess"], "There is no X, and"), (["--use-rep", "X"], "There is no 'X' in the"):
        assert run(folder, "pca.zarr", "x.zarr", *options, "--out-of-core") == 1
        assert message in capsys.readouterr().err
    assert run(folder, "pca.zarr", "x.zarr", "--out-of-core") == 0


@pytest.mark.parametrize("neighbours", [False, True])
@pytest.mark.parametrize("n_landmarks", ["200", "1000"], ids=["landmarks", "cells"])
def test_the_order_is_one_of_the_representation_that_is_asked_for(generated, folder, neighbours, n_landmarks):
    adata = ad.read_h5ad(folder / "pca.h5ad")
    # Cells in another place: what is in X_pca says nothing of it.
    moved = np.random.default_rng(0).permutation(N_CELLS)
    adata.obsm["Y"] = adata.obsm["X_pca"][moved]
    root = adata.obs_names[moved == adata.obs_names.get_loc(generated.uns["root"])][0]
    if neighbours:
        sc.pp.neighbors(adata, use_rep="X_pca")
    adata.write_h5ad(folder / "both.h5ad")
    only = ad.AnnData(obs=adata.obs, obsm={"X_pca": adata.obsm["Y"]})
    only.write_h5ad(folder / "only.h5ad")
    options = ["--root", root, "--lineages", "--n-landmarks", n_landmarks]
    assert run(folder, "both.h5ad", "a.h5ad", *options, "--use-rep", "Y") == 0
    assert run(folder, "only.h5ad", "b.h5ad", *options) == 0
    found, expected = ad.read_h5ad(folder / "a.h5ad"), ad.read_h5ad(folder / "b.h5ad")
    for name in ("entropath_potential", "entropath_pseudotime", "entropath_plasticity"):
        np.testing.assert_array_equal(found.obs[name], expected.obs[name])
    assert found.uns["entropath"]["pseudotime"]["use_rep"] == "Y"
    # What is read again later is the same graph.
    ep.tl.terminal_states(found, random_state=0)
    np.testing.assert_array_equal(found.obs["entropath_branch"], expected.obs["entropath_branch"])


def test_an_old_graph_does_not_change_how_many_landmarks_carry_an_order(generated, folder):
    root = ["--root", generated.uns["root"]]
    assert run(folder, "pca.h5ad", "first.h5ad", *root, "--n-landmarks", "1000") == 0  # a graph of all cells
    assert run(folder, "first.h5ad", "again.h5ad", *root) == 0
    assert run(folder, "pca.h5ad", "fresh.h5ad", *root) == 0
    again, fresh = ad.read_h5ad(folder / "again.h5ad"), ad.read_h5ad(folder / "fresh.h5ad")
    assert fresh.uns["entropath"]["pseudotime"]["on"] == "landmarks"
    np.testing.assert_array_equal(again.obs["entropath_potential"], fresh.obs["entropath_potential"])


def test_many_cells_are_drawn_as_a_sample_and_as_density(generated, folder, monkeypatch):
    monkeypatch.setattr(_figures, "MOST_DRAWN", 300)
    monkeypatch.setattr(_figures, "MANY_CELLS", 250)
    drawn = []
    density, tree = ep.pl.density, ep.pl.tree
    monkeypatch.setattr(ep.pl, "density", lambda adata, **options: (drawn.append(adata), density(adata, **options))[1])
    monkeypatch.setattr(ep.pl, "tree", lambda adata, **options: (drawn.append(adata), tree(adata, **options))[1])
    options = ["--root", generated.uns["root"], "--lineages", "--out-of-core"]
    assert run(folder, "pca.zarr", "out.zarr", *options, "--figures", str(folder / "f")) == 0
    assert len(drawn) == 2
    sample, all_cells = drawn[0], ad.read_zarr(folder / "out.zarr")
    assert 300 <= sample.n_obs < 600
    terminal = all_cells.obs_names[all_cells.obs["entropath_terminal"].notna()]
    assert terminal.isin(sample.obs_names).all()
    assert generated.uns["root"] in sample.obs_names
    same = all_cells[sample.obs_names]
    np.testing.assert_array_equal(sample.obsm["X_entropath"], same.obsm["X_entropath"])
    np.testing.assert_array_equal(sample.obsm["entropath_fates"], same.obsm["entropath_fates"])
    assert (sample.obs["entropath_branch"] == same.obs["entropath_branch"]).all()
    assert matplotlib.image.imread(folder / "f" / "embedding.png").std() > 0.02
    assert zarr.open_group(folder / "out.zarr").attrs["entropath_sc"]
