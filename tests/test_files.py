"""What `entropath-sc run` may write and remove: nothing that somebody else made."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import anndata as ad
import dask
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr

import entropath_sc as ep
from entropath_sc import _store
from entropath_sc._files import Workspace, within
from entropath_sc.cli import main
from entropath_sc.tl import _blocks
from entropath_sc.tl._adata import cell_indices
from entropath_sc.tl._checks import check_key

N_CELLS = 300
QUICK = ["--quiet", "--n-landmarks", "100"]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(_blocks, "LEAST_BLOCK_CELLS", 1)


@pytest.fixture(scope="module")
def cells():
    made = ep.datasets.branching(n_cells=N_CELLS, n_genes=60)
    adata = ad.AnnData(made.X, obs=made.obs[["branch"]], obsm={"X_pca": made.obsm["X_pca"][:, :10].copy()})
    return adata


@pytest.fixture(scope="module")
def typed(cells):
    """Columns and representations of all kinds."""
    adata, numbers = cells.copy(), np.arange(N_CELLS) % 3
    adata.obs["integer"], adata.obs["float"], adata.obs["bool"] = numbers, numbers / 2, numbers == 1
    adata.obs["category"] = pd.Categorical(numbers)
    adata.obs["nullable_integer"] = pd.array(np.where(numbers == 2, None, numbers), dtype="Int64")
    adata.obs["nullable_bool"] = pd.array(np.where(numbers == 2, None, numbers == 1), dtype="boolean")
    adata.obs["text"] = pd.Series([f"t{i}" for i in numbers], index=adata.obs_names, dtype=object)
    columns = [f"c{i}" for i in range(10)]
    adata.obsm["table"] = pd.DataFrame(adata.obsm["X_pca"], index=adata.obs_names, columns=columns)
    adata.obsm["words"] = pd.DataFrame({"a": "b"}, index=adata.obs_names)
    adata.obsm["sparse"] = sp.csr_matrix(adata.obsm["X_pca"])
    adata.obsm["by_column"] = sp.csc_matrix(adata.obsm["X_pca"])
    return adata


@pytest.fixture
def folder(cells, tmp_path):
    """With the same cells as h5ad and as zarr."""
    cells.write_h5ad(tmp_path / "in.h5ad")
    cells.copy().write_zarr(tmp_path / "in.zarr")
    obsm = zarr.open_group(tmp_path / "in.zarr", use_consolidated=False)["obsm"]
    attributes = dict(obsm["X_pca"].attrs)
    obsm.create_array("X_pca", data=cells.obsm["X_pca"], chunks=(100, 10), overwrite=True).attrs.update(attributes)
    zarr.consolidate_metadata(tmp_path / "in.zarr")
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    """All that is in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(folder: Path, source: str, target: str, *options: str) -> int:
    paths = {name: str(folder / name.removeprefix("@")) for name in options if name.startswith("@")}
    options = [paths.get(name, name) for name in options]
    return main(["run", str(folder / source), "-o", str(folder / target), *QUICK, *options])


def refused(capsys, *command: str) -> str:
    """What the command says when it exits with 2."""
    try:
        code = run(*command)
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        ("results.zarr/raw.h5ad", "results.zarr", ["--overwrite"], "input must not lie inside the output"),
        ("results.zarr/raw.zarr", "results.zarr", ["--overwrite", "--out-of-core"], "input must not lie inside"),
        ("link.zarr", "in.zarr", ["--overwrite"], "must not be the input"),
        ("in.zarr", "link.zarr", ["--overwrite", "--out-of-core"], "must not be the input"),
        ("in.zarr", "link.zarr/obs/out.zarr", [], "must not lie inside the input"),
        ("out.zarr.partial/in.h5ad", "out.zarr", [], "where the output is made"),
        ("in.zarr", "out.zarr", ["--figures", "@in.zarr"], "outside the input and the output"),
        ("in.zarr", "out.zarr", ["--figures", "@link.zarr/figures"], "outside the input and the output"),
        ("in.zarr", "out.zarr", ["--figures", "@out.zarr/figures"], "outside the input and the output"),
        ("in.h5ad", "notes.zarr", ["--overwrite"], "was not written by"),
        ("in.zarr", "notes.zarr", ["--overwrite", "--out-of-core"], "was not written by"),
        ("in.h5ad", "notes.h5ad", ["--overwrite"], "was not written by"),
        ("in.h5ad", "mine.zarr", ["--overwrite"], "was not written by"),
        ("in.h5ad", "linked.h5ad", ["--overwrite"], "is a link"),
        ("in.h5ad", "taken.zarr", [], "did not make it. Move it"),
        ("in.zarr", "taken.zarr", ["--out-of-core"], "did not make it. Move it"),
        ("in.h5ad", "out.h5ad", ["--figures", "@drawn"], "holds 'depth.png' already"),
        ("in.h5ad", "out.h5ad", ["--figures", "@in.h5ad/figures"], "outside the input"),
        ("in.h5ad", "out.h5ad", ["--figures", "@drawn/depth.png"], "depth.png"),
    ],
)
def test_nothing_of_somebody_else_is_touched(folder, source, target, options, message, capsys):
    (folder / "results.zarr").mkdir()
    shutil.copy(folder / "in.h5ad", folder / "results.zarr" / "raw.h5ad")
    shutil.copytree(folder / "in.zarr", folder / "results.zarr" / "raw.zarr")
    (folder / "out.zarr.partial").mkdir()
    shutil.copy(folder / "in.h5ad", folder / "out.zarr.partial" / "in.h5ad")
    shutil.copytree(folder / "in.zarr", folder / "mine.zarr")
    for name in ("notes.zarr", "notes.h5ad", "taken.zarr.partial", "drawn"):
        (folder / name).mkdir()
        (folder / name / "depth.png").write_text("mine")
    (folder / "link.zarr").symlink_to(folder / "in.zarr")
    (folder / "linked.h5ad").symlink_to(folder / "somewhere.h5ad")
    before = content(folder)
    assert message in refused(capsys, folder, source, target, *options)
    assert content(folder) == before


def test_own_outputs_are_replaced_but_not_what_else_lies_in_them(folder, capsys):
    for depth, how in ((10, []), (4, ["--out-of-core"]), (5, [])):
        assert run(folder, "in.zarr", "out.zarr", "--overwrite", "--depth", str(depth), *how) == 0
        assert ad.read_zarr(folder / "out.zarr").uns["entropath"]["depth"]["chosen"] == depth
    (folder / "out.zarr" / "notes.txt").write_text("mine")
    before = content(folder)
    assert "holds other files too" in refused(capsys, folder, "in.zarr", "out.zarr", "--overwrite")
    assert content(folder) == before
    assert run(folder, "in.zarr", "out.h5ad") == 0
    assert run(folder, "in.zarr", "out.h5ad", "--overwrite", "--depth", "4") == 0
    assert ad.read_h5ad(folder / "out.h5ad").uns["entropath"]["depth"]["chosen"] == 4
    assert {path.name for path in folder.iterdir()} == {"in.h5ad", "in.zarr", "out.h5ad", "out.zarr"}


def test_a_second_run_to_the_same_output_is_refused(folder, capsys):
    with Workspace(folder / "out.zarr", overwrite=False) as first:
        (first.folder / "blocks.zarr").mkdir()
        for how in ([], ["--out-of-core"]):
            assert "Another run is writing" in refused(capsys, folder, "in.zarr", "out.zarr", *how)
        assert (first.folder / "blocks.zarr").is_dir()
    # A run that died holds no lock.
    dies = "import os, sys; from pathlib import Path; from entropath_sc._files import Workspace\n"
    dies += "Workspace(Path(sys.argv[1]), overwrite=False).__enter__(); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", dies, str(folder / "out.zarr")]).returncode == 9
    assert (folder / "out.zarr.partial").is_dir()
    assert run(folder, "in.zarr", "out.zarr", "--out-of-core") == 0
    assert {path.name for path in folder.iterdir()} == {"in.h5ad", "in.zarr", "out.zarr"}


def test_the_working_folder_stays_ours_while_something_is_written_there(tmp_path, monkeypatch):
    workspace = Workspace(tmp_path / "out.zarr", overwrite=False)

    def fail(error: Exception, *, writing: bool) -> None:
        with workspace:
            if writing:
                workspace.result.mkdir()
            raise error

    for error, writing in ((OSError("full"), True), (ValueError("refused"), False), (OSError("full"), False)):
        with pytest.raises(type(error)):
            fail(error, writing=writing)
        assert workspace.folder.exists() == writing
    with monkeypatch.context() as patch:  # a thread of zarr writes into the folder while it is removed

        def late(folder: Path) -> None:
            raise OSError("not empty")

        patch.setattr(Path, "rmdir", late)
        with pytest.raises(ValueError, match="refused"):
            fail(ValueError("refused"), writing=False)
    with workspace:
        pass
    assert not list(tmp_path.iterdir())


def test_an_output_that_a_killed_run_moved_away_comes_back(folder):
    assert run(folder, "in.zarr", "out.zarr") == 0
    before = content(folder / "out.zarr")
    killed = Workspace(folder / "out.zarr", overwrite=True)
    with killed:
        (folder / "out.zarr").rename(killed.folder / "replaced.zarr")
    assert content(folder / "out.zarr") == before
    late = Workspace(folder / "out.zarr", overwrite=False)
    with pytest.raises(FileExistsError, match="is there already"):
        late.__enter__()
    assert not late.folder.exists()
    late = Workspace(folder / "late.zarr", overwrite=False)
    with late:
        late.result.write_text("new")
        late.target.write_text("somebody else's")
        with pytest.raises(FileExistsError, match="appeared meanwhile"):
            late.publish()
    assert content(folder / "out.zarr") == before
    assert late.target.read_text() == "somebody else's"


def test_an_interrupted_job_survives_a_wrong_command(folder, monkeypatch, capsys):
    how = ["--out-of-core", "--root"]
    applied, begun = _blocks._applied, []

    def counted(X, function):
        begun.append(len(X))
        if len(begun) == 5:
            raise KeyboardInterrupt
        return applied(X, function)

    with dask.config.set(scheduler="synchronous"), monkeypatch.context() as patch:
        patch.setattr(_blocks, "_applied", counted)
        assert run(folder, "in.zarr", "out.zarr", *how, "cell_0") == 130
        assert "The same command goes on" in capsys.readouterr().err
        assert run(folder, "in.zarr", "out.zarr", *how, "nobody") == 1
        # The input is corrected: the blocks that changed are computed again, and only those.
        X = zarr.open_group(folder / "in.zarr", use_consolidated=False)["obsm/X_pca"]
        X[250:] = X[250:] + 1e-4
        assert run(folder, "in.zarr", "out.zarr", *how, "cell_0") == 0
    assert run(folder, "in.zarr", "fresh.zarr", *how, "cell_0") == 0
    found, fresh = ad.read_zarr(folder / "out.zarr"), ad.read_zarr(folder / "fresh.zarr")
    np.testing.assert_array_equal(found.obsm["X_entropath"], fresh.obsm["X_entropath"])
    np.testing.assert_array_equal(found.obs["entropath_pseudotime"], fresh.obs["entropath_pseudotime"])


def test_figures_that_fail_do_not_cost_the_result(folder, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(ep.pl, "depth", full)
    said = refused(capsys, folder, "in.h5ad", "out.h5ad", "--figures", "@figures")
    assert "out.h5ad is written, but not its figures: No space left" in said
    assert "X_entropath" in ad.read_h5ad(folder / "out.h5ad").obsm
    assert not (folder / "figures").exists()


@pytest.mark.filterwarnings("ignore:zarr v3", "ignore:This setting will be removed:DeprecationWarning")
@pytest.mark.parametrize("version", [2, 3])
def test_roots_are_found_and_refused_as_in_memory(typed, version, tmp_path, monkeypatch):
    monkeypatch.setattr(_store, "SCANNED", 70)
    with ad.settings.override(zarr_write_format=version):
        typed.copy().write_zarr(tmp_path / "in.zarr")
    obs, adata = zarr.open_group(tmp_path / "in.zarr", mode="r")["obs"], ad.read_zarr(tmp_path / "in.zarr")
    asked = [(column, text) for column in adata.obs for text in ("0", "1", "0.5", "1.0", "True", "False", "<NA>", "t2")]
    asked += [["cell_3"], ["cell_250", "cell_3"], ["cell_3", "cell_3"], ["nobody"], ["cell_3", "nobody"], ("mood", "1")]
    n_found = 0
    for cells_asked in asked:
        answers = []
        for find in (_store.positions_of, lambda _, *rest: cell_indices(adata, *rest)):
            try:
                answers.append(list(find(obs, cells_asked, "--root")))
            except (KeyError, ValueError) as error:
                answers.append(str(error))
        assert answers[0] == answers[1], cells_asked
        n_found += isinstance(answers[0], list)
    assert n_found == 17


def test_any_kind_of_table_gives_what_memory_gives(typed, tmp_path, capsys):
    typed.copy().write_zarr(tmp_path / "in.zarr")
    group = zarr.open_group(tmp_path / "in.zarr", mode="r")
    for name in ("X_pca", "table", "sparse", "by_column"):
        np.testing.assert_array_equal(_store.representation_of(group, name).compute(), typed.obsm["X_pca"])
    np.testing.assert_array_equal(_store.representation_of(group, "X").compute(), typed.X)
    options = ["--root-label", "integer", "1"]
    assert run(tmp_path, "in.zarr", "memory.h5ad", *options) == 0
    assert run(tmp_path, "in.zarr", "blocks.zarr", *options, "--use-rep", "sparse", "--out-of-core") == 0
    memory, blocks = ad.read_h5ad(tmp_path / "memory.h5ad"), ad.read_zarr(tmp_path / "blocks.zarr")
    np.testing.assert_allclose(blocks.obsm["X_entropath"], memory.obsm["X_entropath"], atol=1e-4)
    np.testing.assert_allclose(blocks.obs["entropath_pseudotime"], memory.obs["entropath_pseudotime"], atol=1e-4)
    assert run(tmp_path, "in.zarr", "out.zarr", "--out-of-core", "--use-rep", "words") == 1
    assert "columns that are no plain numbers" in capsys.readouterr().err


def test_somebody_elses_uns_is_not_replaced(cells, tmp_path, capsys):
    adata = cells.copy()
    adata.uns["mine"] = "a note"
    adata.write_zarr(tmp_path / "in.zarr")
    for how in ([], ["--out-of-core"]):
        assert run(tmp_path, "in.zarr", "out.zarr", "--key-added", "mine", *how) == 1
        assert "adata.uns['mine'] holds something else" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"in.zarr"}


def test_the_summary_says_how_cells_were_embedded(folder, capsys):
    assert run(folder, "in.h5ad", "out.h5ad", "--n-landmarks", "300") == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["cells"] == f"{N_CELLS}, all embedded directly"
    assert lines["depth"] == "10"
    assert [part.split()[0] for part in lines["seconds"].split(", ")] == ["reading", "embedding", "order", "writing"]
    root = ad.read_h5ad(folder / "in.h5ad").obs_names[0]
    for n_landmarks, how in (300, "on the graph of all cells"), (100, "of landmarks"):
        options = ["--n-landmarks", str(n_landmarks), "--root", root, "--overwrite"]
        assert run(folder, "in.h5ad", "out.h5ad", *options) == 0
        assert dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())["order"] == how


@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
def test_barcodes_of_any_kind_of_text_are_written_again(cells, tmp_path, suffix):
    adata = ad.AnnData(obsm={"X_pca": cells.obsm["X_pca"]}, obs=pd.DataFrame(index=cells.obs_names.astype("string")))
    with ad.settings.override(allow_write_nullable_strings=True):
        getattr(adata, f"write_{suffix[1:]}")(tmp_path / f"in{suffix}")
    assert run(tmp_path, f"in{suffix}", f"out{suffix}", "--root", adata.obs_names[0]) == 0
    assert getattr(ad, f"read_{suffix[1:]}")(tmp_path / f"out{suffix}").obs_names.tolist() == cells.obs_names.tolist()


@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
def test_files_hold_any_key_that_is_not_refused(suffix, tmp_path):
    for i, key in enumerate(["a", "a b", "ä", "a.b", "a:b?*", "c", "0", "x" * 200, "_"]):
        check_key(key)
        adata = ad.AnnData(obs=pd.DataFrame({f"{key}_pseudotime": 1.0}, index=["a"]))
        adata.obsm[f"X_{key}"], adata.uns[key] = np.ones((1, 2)), {"depth": 1.0}
        path = tmp_path / f"{i}{suffix}"
        getattr(adata, f"write_{suffix[1:]}")(path)
        found = getattr(ad, f"read_{suffix[1:]}")(path)
        assert (list(found.obs), list(found.obsm), list(found.uns)) == ([f"{key}_pseudotime"], [f"X_{key}"], [key])


@pytest.mark.parametrize(
    "key", ["", "a/b", "a\\b", ".", "..", ".zgroup", "zarr.json", "a\x00b", "\ud800", "x" * 300, 7]
)
def test_keys_that_files_cannot_hold_are_refused(key):
    with pytest.raises(ValueError, match="h5ad and zarr cannot store"):
        check_key(key)


def test_paths_are_compared_by_where_they_lead(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert within(tmp_path / "link" / "b" / "new", tmp_path / "a")
    assert within(tmp_path / "a" / ".." / "a", tmp_path / "link")
    assert not within(tmp_path / "ab", tmp_path / "a")
