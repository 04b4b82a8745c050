"""Cells that are read block by block give the same as cells in memory, also after an interruption."""

from __future__ import annotations

import gc
import shutil
import weakref

import anndata as ad
import dask
import dask.array as da
import numpy as np
import pytest
from conftest import count_searches
from scipy.spatial.distance import pdist

import entropath_sc as ep
from entropath_sc.tl import _blocks

N_CELLS = 3000


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(_blocks, "LEAST_BLOCK_CELLS", 1)
    monkeypatch.setattr(_blocks, "BLOCKS_AT_ONCE", 3)


@pytest.fixture(scope="module")
def in_memory():
    """Embedded, ordered, and with new cells placed in it."""
    adata = ep.datasets.branching(n_cells=N_CELLS, n_genes=200)
    ep.tl.embedding(adata, n_landmarks=200)
    ep.tl.pseudotime(adata, root=adata.uns["root"], n_landmarks=200)
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
    ep.tl.pseudotime(adata, root=adata.uns["root"], n_landmarks=200, store=store)
    assert_same(adata, in_memory)

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
        ep.tl.pseudotime(adata, root=adata.uns["root"], n_landmarks=200)
        assert_same(adata, in_memory)


def test_a_distributed_cluster_gives_what_memory_gives(in_memory, tmp_path):
    from distributed import Client

    adata = lazy(in_memory, (800, 50))
    with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None):
        ep.tl.embedding(adata, n_landmarks=200, store=tmp_path / "results.zarr")
        ep.tl.pseudotime(adata, root=adata.uns["root"], n_landmarks=200, store=tmp_path / "results.zarr")
        assert_same(adata, in_memory)


def test_an_order_alone_needs_no_embedding(in_memory, tmp_path, monkeypatch):
    from entropath_sc.tl import _nodes

    monkeypatch.setattr(_nodes, "N_LANDMARKS", 200)
    adata = lazy(in_memory, (700, 50))
    ep.tl.pseudotime(adata, root=adata.uns["root"], store=tmp_path / "results.zarr")
    assert adata.uns["entropath"]["pseudotime"]["on"] == "landmarks"
    assert "X_entropath" not in adata.obsm
    np.testing.assert_allclose(adata.obs["entropath_pseudotime"], in_memory.obs["entropath_pseudotime"], atol=1e-5)


def test_a_category_has_the_root_that_it_has_in_memory(in_memory):
    adata, fresh = lazy(in_memory, (700, 50)), lazy(in_memory, (3000, 50))
    fresh.obsm["X_pca"] = in_memory.obsm["X_pca"]
    for some in (adata, fresh):
        ep.tl.pseudotime(some, root=("branch", "trunk"), n_landmarks=200)
    roots = [list(some.uns["entropath"]["pseudotime"]["roots"]) for some in (adata, fresh)]
    assert roots[0] == roots[1]
    assert len(roots[0]) == 1
    np.testing.assert_allclose(adata.obs["entropath_pseudotime"], fresh.obs["entropath_pseudotime"], atol=1e-5)


def test_a_reference_in_memory_that_is_all_cells(in_memory, tmp_path):
    reference = ep.datasets.branching(n_cells=300, n_genes=200)
    reference.obsm["X_pca"] = in_memory.obsm["X_pca"][:300]
    ep.tl.embedding(reference)
    ep.tl.pseudotime(reference, root="cell_0")
    expected = lazy(in_memory, (3000, 50))
    expected.obsm["X_pca"] = in_memory.obsm["X_pca"]
    new = lazy(in_memory, (400, 20))
    ep.tl.project(new, reference, store=tmp_path / "results.zarr")
    ep.tl.project(expected, reference)
    assert_same(new, expected)
    np.testing.assert_allclose(new.obs["entropath_pseudotime"][:300], reference.obs["entropath_pseudotime"], atol=1e-5)


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
    applied = _blocks._applied

    def counted(X, function):
        begun.append(len(X))
        if len(begun) > n_blocks:
            raise Interrupted
        return applied(X, function)

    monkeypatch.setattr(_blocks, "_applied", counted)
    return begun


@pytest.mark.parametrize("n_blocks", [2, 9], ids=["in the search", "while joining"])
def test_an_interrupted_job_goes_on_without_searching_again(in_memory, n_blocks, tmp_path, monkeypatch):
    store, n_all = tmp_path / "results.zarr", N_CELLS // 500
    with dask.config.set(scheduler="synchronous"):
        with monkeypatch.context() as patch:
            interrupt_after(patch, n_blocks)
            adata = lazy(in_memory, (500, 50))
            before = set(adata.obsm) | set(adata.uns)
            with pytest.raises(Interrupted):
                ep.tl.embedding(adata, n_landmarks=200, store=store)
            assert set(adata.obsm) | set(adata.uns) == before
        searched = count_searches(monkeypatch)
        ep.tl.embedding(adata, n_landmarks=200, store=store)
        assert len(searched) == max(n_all - n_blocks, 0)
        ep.tl.embedding(adata, n_landmarks=200, store=store)  # all is there already
        assert len(searched) == max(n_all - n_blocks, 0)
    np.testing.assert_allclose(np.asarray(adata.obsm["X_entropath"]), in_memory.obsm["X_entropath"], atol=1e-5)


def test_a_store_keeps_the_search_for_what_follows(in_memory, tmp_path, monkeypatch):
    """Joining landmarks and placing cells need the same nearest landmarks."""
    adata, searched = lazy(in_memory, (500, 50)), count_searches(monkeypatch)
    with dask.config.set(scheduler="synchronous"):
        ep.tl.embedding(adata, n_landmarks=200, store=tmp_path / "store.zarr")
        np.testing.assert_allclose(np.asarray(adata.obsm["X_entropath"]), in_memory.obsm["X_entropath"], atol=1e-5)
        ep.tl.pseudotime(adata, root=adata.uns["root"], n_landmarks=200, store=tmp_path / "store.zarr")
    assert searched == [500] * (N_CELLS // 500)


def test_a_block_leaves_memory_once_its_result_is_stored(in_memory, tmp_path):
    X = in_memory.obsm["X_pca"][:500].copy()
    freed, store = weakref.ref(X), _blocks.BlockStore.opened(tmp_path / "store.zarr")
    gc.collect()
    gc.disable()  # what only the collector frees stays for many blocks
    try:
        _blocks._store_block(X, np.square, "square", store, (0, 0))
        del X
        assert freed() is None
    finally:
        gc.enable()


def test_a_store_of_other_cells_begins_anew(in_memory, tmp_path):
    for first in (0, 1):
        some = in_memory[first::2].copy()
        adata = lazy(some, (500, 50))
        ep.tl.embedding(adata, n_landmarks=200, store=tmp_path / "results.zarr")
        again = ep.tl.embedding(lazy(some, (500, 50)), n_landmarks=200, copy=True)
        np.testing.assert_array_equal(np.asarray(adata.obsm["X_entropath"]), np.asarray(again.obsm["X_entropath"]))


def test_a_result_in_a_store_stays_what_it_was(in_memory, tmp_path):
    first, second = (lazy(in_memory[start::2].copy(), (500, 50)) for start in (0, 1))
    for adata in (first, second):
        ep.tl.project(adata, in_memory, store=tmp_path / "results.zarr")
    again = ep.tl.project(lazy(in_memory[::2].copy(), (500, 50)), in_memory, copy=True)
    # Another batch of the same shape has results of its own, and another call does not touch those of the first.
    np.testing.assert_array_equal(np.asarray(first.obsm["X_entropath"]), np.asarray(again.obsm["X_entropath"]))
    apart = np.abs(np.asarray(first.obsm["X_entropath"]) - np.asarray(second.obsm["X_entropath"]))
    assert apart.max() > 0.1
    # Another depth is another result.
    ep.tl.embedding(first, n_landmarks=200, depth=10, store=tmp_path / "results.zarr")
    before = np.asarray(first.obsm["X_entropath"])
    ep.tl.embedding(second, n_landmarks=200, depth=4, store=tmp_path / "results.zarr")
    np.testing.assert_array_equal(np.asarray(first.obsm["X_entropath"]), before)


@pytest.mark.parametrize("lost", ["store", "numbers"])
def test_a_lost_store_is_an_error_and_not_zeros(in_memory, lost, tmp_path):
    adata, store = lazy(in_memory, (1500, 50)), tmp_path / "results.zarr"
    ep.tl.project(adata, in_memory, store=store)
    if lost == "store":
        shutil.rmtree(store)
    else:
        for path in store.rglob("*"):
            if path.is_file() and path.name != "zarr.json":
                path.unlink()
    with pytest.raises(ValueError, match=r"results\.zarr no longer holds .* Run .* again"):
        np.asarray(adata.obsm["X_entropath"])


def test_corrected_cells_do_not_keep_old_rows(in_memory, tmp_path, monkeypatch):
    right = in_memory.obsm["X_pca"]
    wrong = right.copy()
    wrong[:500] += 1.0
    adata = lazy(in_memory, (500, 50))
    with dask.config.set(scheduler="synchronous"):
        adata.obsm["X_pca"] = da.from_array(wrong, chunks=(500, 50))
        with monkeypatch.context() as patch:
            interrupt_after(patch, 4)
            with pytest.raises(Interrupted):
                ep.tl.project(adata, in_memory, store=tmp_path / "results.zarr")
        adata.obsm["X_pca"], searched = da.from_array(right, chunks=(500, 50)), count_searches(monkeypatch)
        ep.tl.project(adata, in_memory, store=tmp_path / "results.zarr")
    assert searched == [500] * 3  # of the six blocks, three were right already
    expected = ep.tl.project(lazy(in_memory, (500, 50)), in_memory, copy=True)
    np.testing.assert_array_equal(np.asarray(adata.obsm["X_entropath"]), np.asarray(expected.obsm["X_entropath"]))
    np.testing.assert_array_equal(adata.obs["entropath_pseudotime"], expected.obs["entropath_pseudotime"])


def test_a_store_that_holds_something_else_is_refused(in_memory, tmp_path):
    adata = lazy(in_memory, (1500, 50))
    in_memory[:10].copy().write_zarr(tmp_path / "mine.zarr")
    before = sorted((tmp_path / "mine.zarr").rglob("*"))
    with pytest.raises(ValueError, match="holds something else"):
        ep.tl.project(adata, in_memory, store=tmp_path / "mine.zarr")
    assert sorted((tmp_path / "mine.zarr").rglob("*")) == before


def test_errors_say_what_to_do(in_memory, tmp_path):
    adata = lazy(in_memory, (500, 50))
    for n_bad in (1, 100):  # one is met in its block, many also in the sample that landmarks come from
        X = in_memory.obsm["X_pca"].copy()
        X[1234 : 1234 + n_bad, 5] = np.nan
        adata.obsm["X_pca"] = da.from_array(X, chunks=(500, 50))
        with pytest.raises(ValueError, match=r"NaN, inf or .*, in \d+ of the \d+ cells looked at so far\. Remove"):
            ep.tl.embedding(adata, n_landmarks=200)
    with pytest.raises(ValueError, match="`store` is for a representation that is a dask array"):
        ep.tl.embedding(in_memory, n_landmarks=200, store=tmp_path / "results.zarr")
    with pytest.raises(ValueError, match="`store` is for more cells than the 3000 that are nodes themselves"):
        ep.tl.embedding(adata, n_landmarks=3000, store=tmp_path / "results.zarr")


def test_few_blocks_cells_are_embedded_directly(in_memory):
    few = in_memory[:300].copy()
    adata = lazy(few, (100, 50))
    ep.tl.embedding(adata)
    assert adata.obs["entropath_landmark"].all()
    few.obsm = {"X_pca": few.obsm["X_pca"]}
    ep.tl.embedding(few, key_added="memory")
    np.testing.assert_allclose(adata.obsm["X_entropath"], few.obsm["X_memory"], atol=1e-5)


def test_the_fixture_has_a_shape(in_memory):
    # Should the embedding collapse, all comparisons above would hold.
    assert pdist(in_memory.obsm["X_entropath"][::10]).max() > 1
