"""`entropath-sc run`: in memory and out of core, and what it refuses."""

from __future__ import annotations

import shutil

import anndata as ad
import dask
import dask.array as da
import numpy as np
import pytest
import scanpy as sc
import zarr
from anndata.experimental import read_elem_lazy
from conftest import count_searches

import entropath_sc as ep
from entropath_sc.cli import main
from entropath_sc.tl import _blocks

N_CELLS = 1200


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(_blocks, "LEAST_BLOCK_CELLS", 1)
    monkeypatch.setattr(_blocks, "BLOCKS_AT_ONCE", 3)


@pytest.fixture(scope="module")
def generated():
    return ep.datasets.branching(n_cells=N_CELLS, n_genes=100)


@pytest.fixture(scope="module")
def stores(generated, tmp_path_factory):
    """The same cells as h5ad and as zarr, the latter with chunks of rows and of columns."""
    folder = tmp_path_factory.mktemp("stores")
    adata = ad.AnnData(generated.X, obs=generated.obs[["branch"]], obsm={"X_pca": generated.obsm["X_pca"]})
    adata.write_h5ad(folder / "in.h5ad")
    adata.write_zarr(folder / "in.zarr")
    obsm = zarr.open_group(folder / "in.zarr", use_consolidated=False)["obsm"]
    attributes = dict(obsm["X_pca"].attrs)
    chunked = obsm.create_array("X_pca", data=adata.obsm["X_pca"], chunks=(200, 20), overwrite=True)
    chunked.attrs.update(attributes)
    zarr.consolidate_metadata(folder / "in.zarr")
    return folder, generated.uns["root"]


def test_out_of_core_equals_in_memory(stores, tmp_path, capsys):
    folder, root = stores
    options = ["--root", root, "--n-landmarks", "200", "--quiet"]
    terminal = ["--terminal", "cell_1199"]
    for extra in ([], terminal):
        paths = {name: tmp_path / f"{name}{len(extra)}.zarr" for name in ("memory", "blocks")}
        for name, how in (("memory", []), ("blocks", ["--out-of-core"])):
            assert main(["run", str(folder / "in.zarr"), "-o", str(paths[name]), *options, *extra, *how]) == 0
        assert f"cells      {N_CELLS}, embedded among 200 landmarks\ndepth      10\n" in capsys.readouterr().out
        memory, blocks = (ad.read_zarr(path) for path in paths.values())
        np.testing.assert_allclose(blocks.obsm["X_entropath"], memory.obsm["X_entropath"], atol=1e-5)
        order = [found.obs["entropath_pseudotime"] for found in (blocks, memory)]
        np.testing.assert_allclose(*order, atol=1e-5)
        np.testing.assert_allclose(blocks.obs["entropath_potential"], memory.obs["entropath_potential"], rtol=1e-9)
        assert (blocks.obs["entropath_landmark"] == memory.obs["entropath_landmark"]).all()
        added = ["entropath_landmark", "entropath_potential", "entropath_pseudotime"]
        assert list(blocks.obs.columns) == ["branch", *added]
        kept, expected = (found.uns["entropath"] for found in (blocks, memory))
        assert kept.keys() == expected.keys()
        # In memory, a fingerprint tells whether the landmarks, and each row of the results, still fit the cells.
        for part in ("params", "depth", "embedding", "pseudotime"):
            assert kept[part].keys() == expected[part].keys() - {"rows"}, part
        assert kept["landmarks"].keys() == expected["landmarks"].keys() - {"fingerprint"}
        for step in ("embedding", "pseudotime"):
            assert kept["params"][step].keys() == expected["params"][step].keys()
        carried = [found["pseudotime"]["landmarks"] for found in (kept, expected)]
        for name in ("potential", "pseudotime", "positions"):
            np.testing.assert_allclose(carried[0][name], carried[1][name], atol=1e-5)
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
            count_searches(patch, most=4)
            assert main(command) == 130
        assert "The same command goes on" in capsys.readouterr().err
        assert not (tmp_path / "out.zarr").exists()
        with monkeypatch.context() as patch:
            n_blocks = read_elem_lazy(zarr.open_group(folder / "in.zarr")["obsm/X_pca"]).numblocks
            assert n_blocks == (6, 2)
            searched = count_searches(patch)
            assert main(command) == 0
            assert len(searched) == n_blocks[0] - 4
    assert (tmp_path / "out.zarr").exists()


def written(folder, tmp_path, *options, name: str = "in.h5ad"):
    """What the command writes with these options."""
    target = tmp_path / f"{len(list(tmp_path.iterdir()))}.h5ad"
    assert main(["run", str(folder / name), "-o", str(target), "--quiet", "--n-landmarks", "200", *options]) == 0
    return ad.read_h5ad(target)


def test_options_reach_the_functions(stores, tmp_path):
    folder, root = stores
    options = ["--root", root, "--depth", "4.5", "--decay", "2", "--bandwidth", "adaptive", "--n-neighbors", "11"]
    found = written(folder, tmp_path, *options, "--scaling", "rank", "--n-components", "3", "--key-added", "mine")
    expected = ad.read_h5ad(folder / "in.h5ad")
    ep.tl.merw_graph(expected, use_rep="X_pca", n_neighbors=11, decay=2, bandwidth="adaptive", key_added="mine")
    ep.tl.embedding(expected, n_landmarks=200, depth=4.5, n_components=3, key_added="mine")
    ep.tl.pseudotime(expected, root=root, depth=4.5, scaling="rank", key_added="mine")
    np.testing.assert_array_equal(found.obsm["X_mine"], expected.obsm["X_mine"])
    np.testing.assert_array_equal(found.obs["mine_pseudotime"], expected.obs["mine_pseudotime"])
    assert found.uns["mine"]["depth"]["chosen"] == found.uns["mine"]["pseudotime"]["depth"] == 4.5


@pytest.mark.parametrize("neighbours", [True, False])
def test_what_the_order_runs_on(stores, tmp_path, neighbours):
    folder, root = stores
    adata = ad.read_h5ad(folder / "in.h5ad")
    if neighbours:
        sc.pp.neighbors(adata, use_rep="X_pca")
    adata.write_h5ad(tmp_path / "x.h5ad")
    found = written(tmp_path, tmp_path, "--root", root, name="x.h5ad")
    # Without neighbours, the landmarks of the embedding carry the order.
    assert found.uns["entropath"]["pseudotime"]["on"] == ("cells" if neighbours else "landmarks")


@pytest.mark.parametrize("out_of_core", [False, True])
def test_without_a_root_an_old_order_does_not_stay(stores, tmp_path, out_of_core):
    folder, root = stores
    how = ["--quiet", "--n-landmarks", "200", *(["--out-of-core"] if out_of_core else [])]
    first, second = str(tmp_path / "first.zarr"), str(tmp_path / "second.zarr")
    assert main(["run", str(folder / "in.zarr"), "-o", first, "--root", root, *how]) == 0
    assert "entropath_pseudotime" in ad.read_zarr(first).obs
    assert main(["run", first, "-o", second, *how]) == 0
    found = ad.read_zarr(second)
    assert not {"entropath_pseudotime", "entropath_potential"} & set(found.obs)
    assert "pseudotime" not in found.uns["entropath"]
    assert "pseudotime" not in found.uns["entropath"]["params"]
    assert "X_entropath" in found.obsm
    # The input is not changed.
    assert "entropath_pseudotime" in ad.read_zarr(first).obs


def test_roots_by_label_and_preprocessing(stores, tmp_path, capsys):
    folder, _ = stores
    label = ad.read_h5ad(folder / "in.h5ad").obs["branch"].iloc[0]
    for command in (
        [str(folder / "in.zarr"), "-o", str(tmp_path / "a.zarr"), "--out-of-core", "--root-label", "branch", label],
        [str(folder / "in.h5ad"), "-o", str(tmp_path / "b.zarr"), "--root-label", "branch", label],
    ):
        assert main(["run", *command, "--n-landmarks", "200", "--quiet"]) == 0
    a, b = ad.read_zarr(tmp_path / "a.zarr"), ad.read_zarr(tmp_path / "b.zarr")
    (root,) = a.uns["entropath"]["pseudotime"]["roots"]
    assert [root] == list(b.uns["entropath"]["pseudotime"]["roots"])
    assert a.obs.loc[root, "branch"] == label

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
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--preprocess", "--use-rep", "Y"], "leave --use-rep out"),
        (["IN.h5ad", "-o", "x.h5ad", "--lineages"], "--lineages needs a root"),
        (["IN.h5ad", "-o", "x.h5ad", "--lineages", "--root", "a", "--preset", "paper"], "needs --preset default"),
        (["IN.h5ad", "-o", "x.h5ad", "--root", "a", "--groupby", "branch"], "pass --lineages too"),
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--scaling", "rank"], "always uses --scaling minmax"),
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--decay", "2"], "--decay does not go with"),
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--bandwidth", "fixed"], "--bandwidth does not go with"),
        (["IN.zarr", "-o", "x.zarr", "--terminal", "cell_1"], "--terminal needs a root"),
        (["IN.zarr", "-o", "x.zarr", "--color", "branch"], "--color is for --figures"),
        (["IN.zarr", "-o", "x.zarr", "--figures", "f", "--n-components", "1"], "needs at least two components"),
        (["IN.zarr", "-o", "x.zarr", "--scheduler", "tcp://nowhere:1"], "is for --out-of-core"),
        (["IN.zarr", "-o", "x.zarr", "--root", "a", "--root-label", "b", "c"], "not both"),
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--depth", "banana"], "depth='banana' must be a positive number"),
        (["IN.h5ad", "-o", "x.h5ad", "--depth", "0"], "depth=0 must be a positive number"),
        (["IN.h5ad", "-o", "x.h5ad", "--depth", "2.5", "--preset", "paper"], "depth=2.5 must be a whole number"),
        (["IN.h5ad", "-o", "x.h5ad", "--decay", "-1"], "decay=-1.0 must be a positive number"),
        (["IN.h5ad", "-o", "x.h5ad", "--decay", "0"], "decay=0.0 must be a positive number"),
        (["IN.h5ad", "-o", "x.h5ad", "--bandwidth", "wide"], "invalid choice: 'wide'"),
        (["IN.h5ad", "-o", "x.h5ad", "--n-neighbors", "0"], "n_neighbors=0 must be a whole number of at least 2"),
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--n-neighbors", "1"], "n_neighbors=1 must be"),
        (["IN.h5ad", "-o", "x.h5ad", "--n-project", "0"], "n_project=0 must be"),
        (["IN.zarr", "-o", "x.zarr", "--out-of-core", "--n-components", "0"], "n_components=0"),
        (["IN.h5ad", "-o", "x.h5ad", "--key-added", "a/b"], "must be a word without '/'"),
        (["IN.h5ad", "-o", "x.h5ad", "--key-added", "a\\b"], "must be a word without '/'"),
        (["IN.h5ad", "-o", "x.h5ad", "--key-added", ".."], "must be a word without '/'"),
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
        (
            ["in.h5ad", "--root", "nobody"],
            "'nobody' is not in adata.obs_names, which look like 'cell_0'. Give barcodes, or pass --root-label COLUMN",
        ),
        (["in.h5ad", "--root", "cell_1", "--terminal", "nobody"], "which look like 'cell_0'. Give barcodes."),
        (["in.h5ad", "--root", "cell_1", "--terminal", "cell_1"], "both as root and as terminal"),
        (["in.h5ad", "--color", "mood", "--figures", "FIGURES"], "'mood' is neither a gene nor a column of obs"),
        (["in.h5ad", "--preprocess"], "X holds other numbers"),
        (
            ["in.zarr", "--out-of-core", "--root", "nobody"],
            "'nobody' is not in adata.obs_names, which look like",
        ),
        (["in.zarr", "--out-of-core", "--root", "cell_1", "cell_1"], "'cell_1' is given twice"),
        (
            ["in.zarr", "--out-of-core", "--root-label", "mood", "good"],
            "no column adata.obs['mood']; there is 'br",
        ),
        (
            ["in.zarr", "--out-of-core", "--root-label", "branch", "good"],
            "no cell has adata.obs['branch'] == 'good'. It holds 'fate A', 'fate B'",
        ),
        (["in.zarr", "--out-of-core", "--use-rep", "X_scVI"], "There is no 'X_scVI' in the store; obsm holds 'X_pca'"),
        (["in.zarr", "--out-of-core", "--n-landmarks", "1200"], "leave --out-of-core out"),
        (
            ["in.zarr", "--out-of-core", "--n-landmarks", "200", "--root", "cell_1", "--terminal", "cell_1"],
            "both as root and as terminal",
        ),
    ],
)
def test_data_that_do_not_allow_it_exit_with_1(stores, arguments, message, capsys, tmp_path):
    folder, _ = stores
    name, *options = arguments
    options = [str(tmp_path / "figures") if option == "FIGURES" else option for option in options]
    assert main(["run", str(folder / name), "-o", str(tmp_path / "x.zarr"), "--quiet", *options]) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("--kernel", "--decay and --bandwidth"),
        ("--landmark-graph", "neighbours of all cells join"),
        ("--max-depth", "150 points"),
        ("--diffusion", "--preset paper"),
        ("--dissimilarity", "--preset paper"),
        ("--order-depth", "Use --depth"),
        ("--potential", "--preset paper"),
        ("--refine", "larger --depth"),
        ("--order-on", "--n-landmarks"),
    ],
)
def test_options_that_are_gone_name_what_replaces_them(stores, option, instead, capsys):
    folder, _ = stores
    with pytest.raises(SystemExit) as stopped:
        main(["run", str(folder / "in.h5ad"), "-o", "x.h5ad", option, "1"])
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert f"{option} is gone." in printed
    assert instead in printed
