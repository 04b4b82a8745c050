"""Parts of a zarr store of cells, read and written without all of its rows in memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata.experimental import read_dispatched
from anndata.io import read_elem, write_elem
from sklearn.utils import gen_batches

from ._keys import Keys
from .core.progress import Report
from .tl._adata import as_text, cell_indices, group_labels, keys_for, named
from .tl._blocks import Blocks

# Entries of a column that are read at a time, when a barcode or a category is looked for.
SCANNED = 200_000
# Values of a column that an error lists, and a few more.
MOST_NAMED = 50
# Numbers in a block of counts: about 100 MB as a sparse matrix.
COUNTS_AT_ONCE = 2**23

NO_X = "There is no X, and --preprocess starts from its counts. If there is a PCA, leave --preprocess out."

Cells = Sequence[str] | tuple[str, str]


def opened(store: Path) -> Any:
    """The store to read from, with an error that names it."""
    import zarr

    try:
        group: Any = zarr.open_group(store, mode="r")
        if not {"obs", "var"} <= set(group):
            raise ValueError("it is no AnnData store")
    except (OSError, ValueError) as error:
        raise OSError(f"{store} cannot be read: {error}.") from error
    return group


def store_keys(group, key: str, *steps: str) -> tuple[Any, Keys]:
    """The fields of a key, which must not be somebody else's; and the names in the store, as if it were an object."""
    names: Any = SimpleNamespace(**{place: set(group.get(place, ())) for place in ("obs", "obsm", "obsp", "varm")})
    names.uns = {key: read_elem(group["uns"][key])} if key in group.get("uns", ()) else {}
    return names, keys_for(names, key, *steps)


def representation_of(group, use_rep: str):
    """A dask array of what cells are placed in, whatever kind of table it is stored as."""
    import dask.array
    from anndata.experimental import read_elem_lazy

    place = group if use_rep == "X" else group["obsm"] if "obsm" in group else {}
    if use_rep not in place or _is_empty(place[use_rep]):
        there = named(group["obsm"] if "obsm" in group else ())
        raise KeyError(
            f"There is no {use_rep!r} in the store; obsm holds {there}. Name one with --use-rep. If X holds counts, "
            "pass --preprocess."
        )
    node = place[use_rep]
    if node.attrs.get("encoding-type") == "dataframe":
        columns = [node[name] for name in node.attrs["column-order"]]
        if any(hasattr(column, "keys") or column.dtype.kind not in "iufb" for column in columns):
            raise ValueError(f"obsm/{use_rep} is a table with columns that are no plain numbers. Name another one.")
        return dask.array.stack([read_elem_lazy(column) for column in columns], axis=1)
    X = read_elem_lazy(node)
    if sp.issparse(X._meta):
        X = X.map_blocks(_dense, dtype=X.dtype, meta=np.empty((0, 0), X.dtype))
    return X


def counts_of(group):
    """A dask array of the counts in X, in blocks of whole rows that memory holds whatever the number of genes."""
    from anndata.experimental import read_elem_lazy

    if "X" not in group or _is_empty(group["X"]):
        raise KeyError(NO_X)
    node = group["X"]
    if node.attrs.get("encoding-type") == "csc_matrix":
        raise ValueError(
            "X is stored by columns (csc). Store it by rows: `adata.X = adata.X.tocsr()`, then write it again."
        )
    n_cells, n_genes = node.attrs["shape"] if hasattr(node, "keys") else node.shape
    per_cell = max(node["data"].shape[0] / max(n_cells, 1), 1) if hasattr(node, "keys") else n_genes
    n_rows = int(np.clip(COUNTS_AT_ONCE // per_cell, 1, n_cells))
    return read_elem_lazy(node, chunks=(n_rows, int(n_genes)))


def _is_empty(node) -> bool:
    """Whether something is stored as nothing, as some versions of anndata do where there is no X."""
    return node.attrs.get("encoding-type") == "null"


def _dense(X) -> np.ndarray:
    return X.toarray()


def index_of(obs):
    """The array of barcodes; a nullable one is a group with a mask."""
    node = obs[obs.attrs.get("_index", "_index")]
    return node["values"] if hasattr(node, "keys") else node


def positions_of(obs, cells: Cells, name: str) -> np.ndarray:
    """Positions of barcodes, or of all cells of a ``(column, category)``: read piece by piece, refused as in memory."""
    column = cells[0] if isinstance(cells, tuple) and cells[0] in obs.attrs["column-order"] else None
    node, wanted = (index_of(obs), list(cells)) if column is None else (obs[column], [cells[1]])
    pieces = list(gen_batches(index_of(obs).shape[0], SCANNED))
    found, values = zip(*_each(pieces, _looked_for, node, wanted, column is not None), strict=True)
    rows = np.concatenate(found)
    if column is not None and len(rows):
        return rows
    there = list(dict.fromkeys(chain.from_iterable(values)))[:MOST_NAMED]
    # What decides, and what errors name: the cells that were found, with the first as an example, or what is there.
    frame = pd.DataFrame({column: there})
    if column is None:
        rows = np.union1d(rows, [0])
        frame = pd.DataFrame(index=index_of(obs).oindex[rows].astype(object), columns=obs.attrs["column-order"])
    few: Any = SimpleNamespace(obs=frame, obs_names=frame.index)
    return rows[cell_indices(few, cells, name)]


def _looked_for(some: slice, node, wanted: list[str], listed: bool) -> tuple[np.ndarray, list[str]]:
    """Where in a part of a column there are certain values; and, if asked, which values there are."""
    values = as_text(rows_of(node, some))
    return some.start + np.flatnonzero(values.isin(wanted)), values.unique()[:MOST_NAMED].tolist() if listed else []


def barcodes_of(obs, rows: np.ndarray) -> np.ndarray:
    """The barcodes of some cells, by sorted positions; those of a few are in as many pieces as there are."""
    node = index_of(obs)
    ends = np.searchsorted(rows, np.arange(0, node.shape[0] + SCANNED, SCANNED))
    pieces = [rows[first:last] for first, last in pairwise(ends) if last > first]
    return np.concatenate(_each(pieces, _taken, node))


def _taken(rows: np.ndarray, node) -> np.ndarray:
    return node.oindex[rows].astype(object)


def _each(pieces: Sequence[Any], function: Callable, *args: Any) -> Sequence[Any]:
    """A function of each of the pieces, on whatever dask scheduler is active."""
    import dask

    task, args = dask.delayed(function), tuple(map(dask.delayed, args))
    return dask.compute(*(task(piece, *args) for piece in pieces))


def labels_of(obs, column: str, rows: np.ndarray) -> pd.Series:
    """The labels of some cells, refused as in memory."""
    there = obs.attrs["column-order"]
    frame = pd.DataFrame(columns=there) if column not in there else pd.DataFrame({column: rows_of(obs[column], rows)})
    found: Any = SimpleNamespace(obs=frame)
    return group_labels(found, column)


def rows_of(node, some: slice | np.ndarray) -> pd.Series:
    """Some rows of a column, as anndata reads them."""

    def read(function, name: str, elem, iospec):
        return function(elem) if hasattr(elem, "keys") or "categories" in name else elem.oindex[some]

    return pd.Series(read_dispatched(node, read))


class Writing:
    """Columns and tables that follow from the rows of a dask array: of each block, all are written by one task."""

    def __init__(self, rows) -> None:
        self._rows, self.n_rows = rows, rows.shape[0]
        self._jobs: list[tuple[Callable, list[Any]]] = []

    def put(self, function: Callable[[np.ndarray], Sequence[np.ndarray]], *targets: Any) -> None:
        """Write what a function gives of each block of rows: an array for each target."""
        self._jobs.append((function, list(targets)))

    def new(self, group, name: str, dtype: Any, n_columns: int | None = None) -> Any:
        """A target: an array as anndata writes it, with a row for each row."""
        chunk, columns = self._rows.chunksize[0], () if n_columns is None else (n_columns,)
        made = group.create_array(name, shape=(self.n_rows, *columns), dtype=dtype, chunks=(chunk, *columns))
        made.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
        return made

    def new_codes(self, obs, name: str, categories: Sequence[str], dtype: Any) -> Any:
        """A target: the codes of a column of categories."""
        group = obs.create_group(name)
        group.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
        write_elem(group, "categories", np.array(categories, dtype=object))
        return self.new(group, "codes", dtype)

    def new_table(self, store: Path, name: str, columns: Sequence[str]) -> list[Any]:
        """Targets: the columns of a data frame of `obsm`, with the index of `obs`."""
        import zarr

        group: Any = zarr.open_group(store, mode="r+", use_consolidated=False)
        table = group["obsm"].create_group(name)
        table.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
        table.attrs["column-order"] = list(columns)
        shutil.copytree(store / index_of(group["obs"]).path.removesuffix("/values"), store / table.path / "_index")
        return [self.new(table, column, np.float64) for column in columns]

    def finish(self, report: Report, summary: Callable[[np.ndarray], Any] | None = None) -> list[Any]:
        """Write all blocks, and give a summary of each."""
        chunk = self._rows.chunksize[0]
        return list(Blocks(self._rows, report).each("writing", _write_rows, self._jobs, summary, chunk))


def _write_rows(
    rows: np.ndarray, jobs: list[tuple[Callable, list]], summary: Callable | None, chunk: int, block_id: tuple[int, ...]
) -> Any:
    some = slice(block_id[0] * chunk, block_id[0] * chunk + len(rows))
    for function, targets in jobs:
        for target, values in zip(targets, function(rows), strict=True):
            target[some] = values
    return None if summary is None else summary(rows)
