"""Parts of a zarr store of cells, read and written without all of its rows in memory."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
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
from .tl._adata import as_text, cell_indices, group_labels, keys_for, named
from .tl._blocks import is_lazy

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
    if use_rep not in place:
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

    if "X" not in group:
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
    found: list[np.ndarray] = []
    there: list[str] = []
    for some in gen_batches(index_of(obs).shape[0], SCANNED):
        values = as_text(rows_of(node, some))
        found.append(some.start + np.flatnonzero(values.isin(wanted)))
        if column is not None and len(there) < MOST_NAMED:
            there += values.unique()[:MOST_NAMED].tolist()
    rows = np.concatenate(found)
    if column is not None and len(rows):
        return rows
    # What decides, and what errors name: the cells that were found, with the first as an example, or what is there.
    frame = pd.DataFrame({column: there})
    if column is None:
        rows = np.union1d(rows, [0])
        frame = pd.DataFrame(index=index_of(obs).oindex[rows].astype(object), columns=obs.attrs["column-order"])
    few: Any = SimpleNamespace(obs=frame, obs_names=frame.index)
    return rows[cell_indices(few, cells, name)]


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
    """Columns and tables of a store. Dask arrays are written together, so that each block is computed once."""

    def __init__(self) -> None:
        self._sources: list[Any] = []
        self._targets: list[Any] = []

    def put(self, group, name: str, values: Any) -> None:
        """Write an array as anndata does; a dask array once all are there."""
        if not is_lazy(values):
            write_elem(group, name, values)
            return
        target = group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=values.chunksize)
        target.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
        self._sources.append(values)
        self._targets.append(target)

    def finish(self) -> None:
        """Write the dask arrays, which have the same blocks of rows: all that is in a block by one task."""
        import dask

        if not self._sources:
            return
        ends = np.cumsum([0, *self._sources[0].chunks[0]])
        blocks = zip(*(source.to_delayed(optimize_graph=False).ravel() for source in self._sources), strict=True)
        write = dask.delayed(_write_rows)
        dask.compute(
            *(
                write(self._targets, slice(*rows), list(block))
                for rows, block in zip(pairwise(ends), blocks, strict=True)
            )
        )

    def put_columns(self, obs, columns: Mapping[str, Any]) -> None:
        """Add columns to `obs`."""
        for name, values in columns.items():
            if isinstance(values, Codes):
                self._put_codes(obs, name, values)
            else:
                self.put(obs, name, values)
        obs.attrs["column-order"] = [*obs.attrs["column-order"], *columns]

    def _put_codes(self, obs, name: str, values: Codes) -> None:
        group = obs.create_group(name)
        group.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
        self.put(group, "codes", values.codes)
        write_elem(group, "categories", np.array(values.categories, dtype=object))

    def put_table(self, store: Path, name: str, columns: Mapping[str, Any]) -> None:
        """Write columns as a data frame of `obsm`, with the index of `obs`."""
        import zarr

        group: Any = zarr.open_group(store, mode="r+", use_consolidated=False)
        table = group["obsm"].create_group(name)
        table.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
        table.attrs["column-order"] = list(columns)
        shutil.copytree(store / index_of(group["obs"]).path.removesuffix("/values"), store / table.path / "_index")
        for column, values in columns.items():
            self.put(table, column, values)


def _write_rows(targets: list, rows: slice, block: list[np.ndarray]) -> None:
    for target, values in zip(targets, block, strict=True):
        target[rows] = values


@dataclass(frozen=True)
class Codes:
    """A column of categories, whose codes may be a dask array."""

    codes: Any
    categories: Sequence[str]
