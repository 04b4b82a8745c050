"""What tools that follow each other compute once."""

from __future__ import annotations

import gc
import weakref

import dask.array as da
import numpy as np
import pytest
from conftest import count_searches

import entropath_sc as ep
from entropath_sc.core import nodes
from entropath_sc.tl import _marks, _nodes, _reference


@pytest.fixture
def searches(monkeypatch) -> list[int]:
    """The numbers of cells that nearest landmarks were searched for."""
    found = []

    def counted(X, *args, **kwargs):
        found.append(len(X))
        return search(X, *args, **kwargs)

    search = nodes.nearest_landmarks
    monkeypatch.setattr(nodes, "nearest_landmarks", counted)
    return found


def cells_without_neighbors(n_cells=700):
    return ep.datasets.branching(n_cells=n_cells, n_genes=100)


def lineages_of(adata):
    ep.tl.embedding(adata, n_landmarks=200)
    ep.tl.pseudotime(adata, root=adata.uns["root"], n_landmarks=200)
    ep.tl.terminal_states(adata, n_resamples=1)
    ep.tl.fates(adata)
    return adata


def test_all_tools_share_one_search_of_nearest_landmarks(searches):
    adata = lineages_of(cells_without_neighbors())
    assert searches.count(700) == 1
    again = lineages_of(cells_without_neighbors())
    assert searches.count(700) == 2
    for name in ("entropath_pseudotime", "entropath_branch", "entropath_plasticity"):
        assert (adata.obs[name].to_numpy() == again.obs[name].to_numpy()).all()


def test_cells_that_moved_are_searched_again(searches):
    adata, moved = cells_without_neighbors(), cells_without_neighbors()
    ep.tl.embedding(adata, n_landmarks=200)
    for one in (adata, moved):
        one.obsm["X_pca"][::2] *= 1.5
        ep.tl.embedding(one, n_landmarks=200)
    assert searches.count(700) == 3
    np.testing.assert_array_equal(adata.obsm["X_entropath"], moved.obsm["X_entropath"])


def test_other_landmarks_are_searched_again(searches):
    adata = cells_without_neighbors()
    ep.tl.embedding(adata, n_landmarks=200)
    ep.tl.embedding(adata, n_landmarks=210)
    assert searches.count(700) == 2


def test_terminal_states_read_a_dask_array_once(monkeypatch):
    adata = cells_without_neighbors()
    adata.obsm["X_pca"] = da.from_array(adata.obsm["X_pca"])
    ep.tl.embedding(adata, n_landmarks=200)
    ep.tl.pseudotime(adata, root=adata.uns["root"], n_landmarks=200)
    searched = count_searches(monkeypatch)
    ep.tl.terminal_states(adata, n_resamples=1)
    assert len(adata.obs["entropath_terminal"].cat.categories) > 1
    assert searched == [700]


def test_a_search_is_forgotten_with_its_object():
    adata = cells_without_neighbors()
    ep.tl.embedding(adata, n_landmarks=200)
    (kept,) = _nodes._LAST
    cells = weakref.ref(kept[2])
    del adata, kept
    gc.collect()
    assert not _nodes._LAST
    assert cells() is None


def test_rows_are_marked_alike_in_blocks_of_any_size(monkeypatch):
    adata = ep.datasets.branching(n_cells=60, n_genes=40)
    values = np.arange(60.0)
    table = np.column_stack([adata.obsm["X_pca"], values])
    words = np.ascontiguousarray(table).view(np.uint32).tolist()
    weights = [int(_marks._BASE) ** (j + 1) for j in range(len(words[0]))]
    expected = [sum(w * x for w, x in zip(weights, row, strict=True)) % 2**64 for row in words]
    for block in (7, 1000):
        monkeypatch.setattr(_marks, "_BLOCK", block)
        np.testing.assert_array_equal(_reference.row_marks(adata, "X_pca", None, values), expected)


def test_any_changed_number_changes_the_mark_of_its_row():
    X = np.random.default_rng(0).normal(size=(400, 20)).astype(np.float32)
    changed = X.copy()
    row, column = np.arange(400), np.arange(400) % 20
    changed[row, column] = np.nextafter(changed[row, column], np.float32(np.inf))
    changed[:20] = -X[:20]
    assert not (_marks.mark_rows(X) == _marks.mark_rows(changed)).any()
    assert len(np.unique(np.append(_marks.mark_rows(X), _marks.mark_rows(changed)))) == 800


def test_any_change_of_an_array_changes_its_fingerprint():
    values = np.random.default_rng(0).normal(size=70)
    swapped, moved = values.copy(), values.copy()
    swapped[[3, 60]] = swapped[[60, 3]]
    moved[3], moved[4] = np.nextafter(moved[3], np.inf), np.nextafter(moved[4], -np.inf)
    last = np.append(values[:-1], 0.0)
    different = [
        values,
        swapped,
        moved,
        last,
        values[:-1],
        values[:0],
        values.reshape(7, 10),
        values.astype(np.float32),
    ]
    assert len({_marks.fingerprint(some) for some in different}) == len(different)
    assert _marks.fingerprint(values, swapped) != _marks.fingerprint(swapped, values)


def test_numbers_are_recognised_in_any_order_and_only_those():
    values = np.random.default_rng(0).random(9000)
    mark = _marks.fingerprint_in_any_order(values)
    assert _marks.fingerprint_in_any_order(np.random.default_rng(1).permutation(values)) == mark
    moved, twice = values.copy(), values.copy()
    moved[3], moved[4] = np.nextafter(moved[3], np.inf), np.nextafter(moved[4], -np.inf)
    twice[0] = twice[1]
    for other in (moved, twice, values[1:], values[:0]):
        assert _marks.fingerprint_in_any_order(other) != mark
