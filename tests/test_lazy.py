"""Cells that are read block by block give the same as cells in memory, also after an interruption."""

from __future__ import annotations

import shutil

import anndata as ad
import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from anndata.experimental import read_elem_lazy
from scipy.spatial.distance import pdist

import entropath_sc as ep
from entropath_sc.cli import main
from entropath_sc.tl import _lazy

N_CELLS = 3000


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(_lazy, "LEAST_BLOCK_CELLS", 1)
    monkeypatch.setattr(_lazy, "BLOCKS_AT_ONCE", 3)


@pytest.fixture(scope="module")
def in_memory():
    """Embedded, ordered, and with new cells placed in it."""
    adata = ep.datasets.branching(n_cells=N_CELLS, n_genes=200)
    ep.tl.embedding(adata, n_landmarks=200, landmark_graph="anchor")
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    return adata


def lazy(adata: ad.AnnData, chunks: tuple[int, int]) -> ad.AnnData:
    fresh = ad.AnnData(obs=adata.obs[["branch"]].copy(), uns={"root": adata.uns["root"]})
    fresh.obsm["X_pca"] = da.from_array(adata.obsm["X_pca"], chunks=chunks)
    return fresh


def assert_same(found: ad.AnnData, expected: ad.AnnData) -> None:
    np.testing.assert_allclose(np.asarray(found.obsm["X_entropath"]), expected.obsm["X_entropath"], atol=1e-5)
    np.testing.assert_allclose(found.obs["entropath_pseudotime"], expected.obs["entropath_pseudotime"], atol=1e-5)


@pytest.mark.parametrize("stored", [False, True], ids=["lazy", "stored"])
@pytest.mark.parametrize("chunks", [(3000, 50), (700, 50), (257, 20)], ids=str)
def test_any_chunks_give_what_memory_gives(in_memory, chunks, stored, tmp_path):
    store = tmp_path / "results.zarr" if stored else None
    adata = lazy(in_memory, chunks)
    ep.tl.embedding(adata, n_landmarks=200, store=store)
    assert isinstance(adata.obsm["X_entropath"], da.Array)
    ep.tl.pseudotime(adata, root=adata.uns["root"], store=store)
    assert_same(adata, in_memory)
    assert adata.uns["entropath"]["params"]["embedding"]["landmark_graph"] == "anchor"

    reference, new = in_memory, lazy(in_memory, chunks)
    ep.tl.project(new, reference, labels="branch", store=store)
    expected = ep.tl.project(in_memory, reference, labels="branch", copy=True)
    assert_same(new, expected)
    assert (new.obs["entropath_branch"] == expected.obs["entropath_branch"]).all()


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_any_scheduler_gives_what_memory_gives(in_memory, scheduler):
    adata = lazy(in_memory, (1500, 50))
    with dask.config.set(scheduler=scheduler, num_workers=2):
        ep.tl.embedding(adata, n_landmarks=200)
        ep.tl.pseudotime(adata, root=adata.uns["root"])
        assert_same(adata, in_memory)


def test_a_distributed_cluster_gives_what_memory_gives(in_memory, tmp_path):
    from distributed import Client

    adata = lazy(in_memory, (800, 50))
    with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None):
        ep.tl.embedding(adata, n_landmarks=200, store=tmp_path / "results.zarr")
        ep.tl.pseudotime(adata, root=adata.uns["root"], store=tmp_path / "results.zarr")
        assert_same(adata, in_memory)


def test_an_order_alone_needs_no_embedding(in_memory, tmp_path, monkeypatch):
    from entropath_sc.tl import _ground

    monkeypatch.setattr(_ground, "MOST_CELLS", 1000)
    monkeypatch.setattr(_ground, "N_LANDMARKS", 200)
    adata, fresh = lazy(in_memory, (700, 50)), ad.AnnData(obs=in_memory.obs[["branch"]].copy())
    fresh.obsm["X_pca"] = in_memory.obsm["X_pca"]
    ep.tl.pseudotime(adata, root=adata.uns["root"], store=tmp_path / "results.zarr")
    ep.tl.pseudotime(fresh, root=adata.uns["root"])
    assert adata.uns["entropath"]["pseudotime"]["on"] == "landmarks"
    np.testing.assert_allclose(adata.obs["entropath_pseudotime"], fresh.obs["entropath_pseudotime"], atol=1e-5)


def test_landmarks_do_not_depend_on_chunks(in_memory):
    chosen = []
    for chunks in [(3000, 50), (100, 7)]:
        adata = lazy(in_memory, chunks)
        ep.tl.embedding(adata, n_landmarks=100)
        chosen.append(adata.obs_names[adata.obs["entropath_landmark"]])
    assert list(chosen[0]) == list(chosen[1])


class Interrupted(Exception):
    pass


def interrupt_after(monkeypatch, n_blocks: int) -> list[int]:
    """Blocks that were begun; the one after ``n_blocks`` fails."""
    begun = []
    applied = _lazy._applied

    def counted(X, function):
        begun.append(len(X))
        if len(begun) > n_blocks:
            raise Interrupted
        return applied(X, function)

    monkeypatch.setattr(_lazy, "_applied", counted)
    return begun


@pytest.mark.parametrize("n_blocks", [2, 9], ids=["in the votes", "in the coordinates"])
def test_an_interrupted_job_goes_on_without_redoing_blocks(in_memory, n_blocks, tmp_path, monkeypatch):
    store = tmp_path / "results.zarr"
    n_all = 2 * len(lazy(in_memory, (500, 50)).obsm["X_pca"].chunks[0])  # votes, then coordinates
    with dask.config.set(scheduler="synchronous"):
        with monkeypatch.context() as patch:
            interrupt_after(patch, n_blocks)
            adata = lazy(in_memory, (500, 50))
            before = set(adata.obsm) | set(adata.uns)
            with pytest.raises(Interrupted):
                ep.tl.embedding(adata, n_landmarks=200, store=store)
            assert set(adata.obsm) | set(adata.uns) == before
        with monkeypatch.context() as patch:
            begun = interrupt_after(patch, n_all)
            ep.tl.embedding(adata, n_landmarks=200, store=store)
            assert len(begun) == n_all - n_blocks
        with monkeypatch.context() as patch:  # all is there already
            begun = interrupt_after(patch, 0)
            ep.tl.embedding(adata, n_landmarks=200, store=store)
            assert begun == []
    np.testing.assert_allclose(np.asarray(adata.obsm["X_entropath"]), in_memory.obsm["X_entropath"], atol=1e-5)


def test_a_store_of_other_cells_begins_anew(in_memory, tmp_path):
    for first in (0, 1):
        some = in_memory[first::2].copy()
        adata = lazy(some, (500, 50))
        ep.tl.embedding(adata, n_landmarks=200, store=tmp_path / "results.zarr")
        again = ep.tl.embedding(lazy(some, (500, 50)), n_landmarks=200, copy=True)
        np.testing.assert_array_equal(np.asarray(adata.obsm["X_entropath"]), np.asarray(again.obsm["X_entropath"]))


def test_errors_say_what_to_do(in_memory, tmp_path):
    adata = lazy(in_memory, (500, 50))
    with pytest.raises(ValueError, match="'compressed' needs all cells in memory"):
        ep.tl.embedding(adata, n_landmarks=200, landmark_graph="compressed")
    for n_bad in (1, 100):  # one is met in its block, many also in the sample that landmarks come from
        X = in_memory.obsm["X_pca"].copy()
        X[1234 : 1234 + n_bad, 5] = np.nan
        adata.obsm["X_pca"] = da.from_array(X, chunks=(500, 50))
        with pytest.raises(ValueError, match=r"NaN, inf or numbers too large .*, in \d+ of \d+ cells\. Remove"):
            ep.tl.embedding(adata, n_landmarks=200)
    with pytest.raises(ValueError, match="`store` is for a representation that is a dask array"):
        ep.tl.embedding(in_memory, n_landmarks=200, store=tmp_path / "results.zarr")


def test_few_lazy_cells_are_embedded_directly(in_memory):
    few = in_memory[:300].copy()
    adata = lazy(few, (100, 50))
    ep.tl.embedding(adata)
    assert adata.obs["entropath_landmark"].all()


# The command line.


@pytest.fixture(scope="module")
def stores(in_memory, tmp_path_factory):
    """The same cells as h5ad and as zarr, the latter with chunks of rows and of columns."""
    folder = tmp_path_factory.mktemp("stores")
    adata = ad.AnnData(in_memory.X, obs=in_memory.obs[["branch"]], obsm={"X_pca": in_memory.obsm["X_pca"]})
    adata.write_h5ad(folder / "in.h5ad")
    adata.write_zarr(folder / "in.zarr")
    obsm = zarr.open_group(folder / "in.zarr", use_consolidated=False)["obsm"]
    attributes = dict(obsm["X_pca"].attrs)
    chunked = obsm.create_array("X_pca", data=adata.obsm["X_pca"], chunks=(400, 20), overwrite=True)
    chunked.attrs.update(attributes)
    zarr.consolidate_metadata(folder / "in.zarr")
    return folder, in_memory.uns["root"]


def test_out_of_core_equals_in_memory(stores, tmp_path, capsys):
    folder, root = stores
    options = ["--root", root, "--n-landmarks", "200", "--quiet"]
    terminal = ["--terminal", "cell_2999"]
    for extra in ([], terminal):
        paths = {name: tmp_path / f"{name}{len(extra)}.zarr" for name in ("memory", "blocks")}
        for name, how in (("memory", []), ("blocks", ["--out-of-core"])):
            assert main(["run", str(folder / "in.zarr"), "-o", str(paths[name]), *options, *extra, *how]) == 0
        assert "cells      3000" in capsys.readouterr().out
        memory, blocks = (ad.read_zarr(path) for path in paths.values())
        assert_same(blocks, memory)
        np.testing.assert_allclose(blocks.obs["entropath_potential"], memory.obs["entropath_potential"], rtol=1e-9)
        assert (blocks.obs["entropath_landmark"] == memory.obs["entropath_landmark"]).all()
        added = ["entropath_landmark", "entropath_potential", "entropath_pseudotime"]
        assert list(blocks.obs.columns) == ["branch", *added]
        assert blocks.uns["entropath"].keys() == memory.uns["entropath"].keys()
        for part in ("params", "landmarks"):
            kept, expected = (found.uns["entropath"][part] for found in (blocks, memory))
            assert kept.keys() == expected.keys()
        np.testing.assert_allclose(kept["pseudotime"], expected["pseudotime"], atol=1e-5)
        for step in ("embedding", "pseudotime"):
            assert blocks.uns["entropath"]["params"][step].keys() == memory.uns["entropath"]["params"][step].keys()
        assert isinstance(read_elem_lazy(zarr.open_group(paths["blocks"])["obsm/X_entropath"]), da.Array)
    # The result is a reference for other cells.
    own = ep.tl.project(blocks, blocks, copy=True)
    np.testing.assert_allclose(own.obsm["X_entropath"], blocks.obsm["X_entropath"], atol=1e-5)
    # Nothing else is left behind.
    assert {p.name for p in tmp_path.iterdir()} == {"memory0.zarr", "memory2.zarr", "blocks0.zarr", "blocks2.zarr"}


def test_an_interrupted_command_goes_on(stores, tmp_path, monkeypatch, capsys):
    folder, root = stores
    shutil.copytree(folder / "in.zarr", tmp_path / "in.zarr")
    command = ["run", str(tmp_path / "in.zarr"), "-o", str(tmp_path / "out.zarr"), "--root", root, "--out-of-core"]
    command += ["--n-landmarks", "200", "--quiet"]
    with dask.config.set(scheduler="synchronous"):
        with monkeypatch.context() as patch:
            patch.setattr(_lazy, "_store_block", _raise_interrupt)
            assert main(command) == 130
        assert "The same command goes on" in capsys.readouterr().err
        assert not (tmp_path / "out.zarr").exists()
        with monkeypatch.context() as patch:
            n_blocks = read_elem_lazy(zarr.open_group(folder / "in.zarr")["obsm/X_pca"]).numblocks
            assert n_blocks == (8, 2)
            begun = interrupt_after(patch, n_blocks[0])
            assert main(command) == 0
            assert len(begun) == n_blocks[0]  # the votes were kept
    assert (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("on", ["cells", "landmarks"])
def test_what_the_order_runs_on_can_be_named(stores, tmp_path, on):
    folder, root = stores
    command = ["run", str(folder / "in.h5ad"), "-o", str(tmp_path / "out.h5ad"), "--root", root, "--quiet"]
    assert main([*command, "--n-landmarks", "200", "--order-on", on]) == 0
    assert ad.read_h5ad(tmp_path / "out.h5ad").uns["entropath"]["pseudotime"]["on"] == on


def _raise_interrupt(*_):
    raise KeyboardInterrupt


def test_roots_by_label_and_preprocessing(stores, tmp_path, capsys):
    folder, _ = stores
    label = ad.read_h5ad(folder / "in.h5ad").obs["branch"].iloc[0]
    for command in (
        [str(folder / "in.zarr"), "-o", str(tmp_path / "a.zarr"), "--out-of-core", "--root-label", "branch", label],
        [str(folder / "in.h5ad"), "-o", str(tmp_path / "b.zarr"), "--root-label", "branch", label],
    ):
        assert main(["run", *command, "--n-landmarks", "200", "--quiet"]) == 0
    a, b = ad.read_zarr(tmp_path / "a.zarr"), ad.read_zarr(tmp_path / "b.zarr")
    assert set(a.uns["entropath"]["pseudotime"]["roots"]) == set(b.uns["entropath"]["pseudotime"]["roots"])

    raw = ep.datasets.branching(n_cells=300, n_genes=100)
    ad.AnnData(raw.layers["counts"], obs=raw.obs[["branch"]]).write_h5ad(tmp_path / "counts.h5ad")
    command = ["run", str(tmp_path / "counts.h5ad"), "-o", str(tmp_path / "out.h5ad"), "--root", raw.uns["root"]]
    assert main(command) == 1
    assert "pass --preprocess" in capsys.readouterr().err
    figures = ["--figures", str(tmp_path / "figures"), "--color", "branch"]
    assert main([*command, "--preprocess", "--quiet", *figures]) == 0
    assert "entropath_pseudotime" in ad.read_h5ad(tmp_path / "out.h5ad").obs
    assert {p.name for p in (tmp_path / "figures").iterdir()} == {"embedding.png", "depth.png", "pseudotime.png"}
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.h5ad", "-o", "x.h5ad"], "there is no nowhere.h5ad"),
        (["IN.h5ad", "-o", "x.csv"], "must end in .h5ad or .zarr"),
        (["IN.h5ad", "-o", "IN.h5ad"], "never overwritten"),
        (["IN.h5ad", "-o", "IN.zarr"], "is there already"),
        (["IN.zarr", "-o", "IN.zarr/sub.zarr", "--out-of-core"], "must not lie inside the input"),
        (["IN.h5ad", "-o", "x.zarr", "--out-of-core"], "reads .zarr and writes .zarr"),
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--preprocess"], "--preprocess does not go with"),
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--scaling", "rank"], "always uses --scaling minmax"),
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--landmark-graph", "compressed"], "needs all cells in memory"),
        (["IN.zarr", "-o", "x.zarr", "--terminal", "cell_1"], "--terminal needs a root"),
        (["IN.zarr", "-o", "x.zarr", "--color", "branch"], "--color is for --figures"),
        (["IN.zarr", "-o", "x.zarr", "--figures", "f", "--n-components", "1"], "needs at least two components"),
        (["IN.zarr", "-o", "x.zarr", "--scheduler", "tcp://nowhere:1"], "is for --out-of-core"),
        (["IN.zarr", "-o", "x.zarr", "--root", "a", "--root-label", "b", "c"], "not both"),
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--depth", "banana"], "depth='banana' is not known"),
        (["IN.h5ad", "-o", "x.h5ad", "--order-depth", "banana"], "depth='banana' is not known"),
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--n-components", "0"], "n_components=0"),
        (["IN.h5ad", "-o", "x.h5ad", "--key-added", "a/b"], "must be a word without '/'"),
        (["IN.h5ad", "-o", "x.h5ad", "--root", "cell_1", "--refine", "2"], "must be a share from 0 to 1"),
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--root", "a", "--refine", "yes"], "must be a share from 0 to 1"),
        (["IN.h5ad", "-o", "x.h5ad", "--root", "a", "--refine", "1", "--preset", "paper"], "cannot be refined"),
        (["IN.h5ad", "-o", "x.h5ad", "--refine", "1"], "--refine needs a root"),
    ],
)
def test_wrong_arguments_exit_with_2(stores, arguments, message, capsys):
    folder, _ = stores
    arguments = [str(folder / a.replace("IN", "in")) if a.startswith("IN") else a for a in arguments]
    with pytest.raises(SystemExit) as stopped:
        main(["run", *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["in.h5ad", "--root", "nobody"], "'nobody' is not in adata.obs_names"),
        (["in.h5ad", "--root", "cell_1", "--terminal", "cell_1"], "both as root and as terminal"),
        (["in.h5ad", "--figures", "nowhere", "--color", "mood"], "'mood' is neither a gene nor a column of obs"),
        (["in.h5ad", "--preprocess"], "X holds other numbers"),
        (["in.zarr", "--out-of-core", "--root", "nobody"], "of 1 barcodes 0 were found"),
        (["in.zarr", "--out-of-core", "--root-label", "mood", "good"], "no column obs/mood"),
        (["in.zarr", "--out-of-core", "--root-label", "branch", "good"], "no cell has branch == 'good'"),
        (["in.zarr", "--out-of-core", "--use-rep", "X_scVI"], "no obsm/X_scVI"),
        (["in.zarr", "--out-of-core", "--n-landmarks", "3000"], "leave --out-of-core out"),
        (["in.zarr", "--out-of-core", "--root", "cell_1", "--terminal", "cell_1"], "both as root and as terminal"),
    ],
)
def test_data_that_do_not_allow_it_exit_with_1(stores, arguments, message, capsys, tmp_path):
    folder, _ = stores
    name, *options = arguments
    assert main(["run", str(folder / name), "-o", str(tmp_path / "x.zarr"), "--quiet", *options]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x.zarr").exists()


def test_the_fixture_has_a_shape(in_memory):
    # Should the embedding collapse, all comparisons above would hold.
    assert pdist(in_memory.obsm["X_entropath"][::10]).max() > 1
