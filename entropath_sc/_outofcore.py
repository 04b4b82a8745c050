"""Embedding and order of a zarr store whose cells do not fit into memory: nothing here grows with their number."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata.experimental import read_dispatched
from anndata.io import read_elem, write_elem
from scanpy import logging as logg
from sklearn.utils import gen_batches

from ._files import Workspace
from ._keys import Keys
from .core.nodes import Interpolator
from .core.pipeline import Settings, between, embed, landmark_graph, order, root_in, terminal_corrected
from .tl._adata import as_text, cell_indices, keys_for, named, storable
from .tl._blocks import BlockedCells
from .tl._embedding import diagnostics
from .tl._nodes import stored_graph, stored_order, warn_of_components
from .tl._progress import progress

# Entries of a column that are read at a time, when a barcode or a category is looked for.
SCANNED = 200_000
# Values of a column that an error lists, and a few more.
MOST_NAMED = 50
NO_CELLS = np.empty(0, dtype=np.int64)

Cells = Sequence[str] | tuple[str, str]


def run_out_of_core(
    source: Path,
    workspace: Workspace,
    seconds: Seconds,
    *,
    settings: Settings,
    root: Cells | None,
    terminal: Cells | None,
    use_rep: str,
    key: str,
    n_neighbors: int,
    embedding: dict[str, Any],
    pseudotime: dict[str, Any],
) -> tuple[int, int, float]:
    """Embed and order the cells of ``source``, and write all of it, with the results, as the workspace's result.

    Finished blocks are kept in the workspace: the same call goes on after an interruption. Runs on the active dask
    scheduler. Returns the numbers of cells and of landmarks, and the depth.
    """
    import zarr

    group: Any = zarr.open_group(source, mode="r")
    keys = _keys_for(group, key)
    X = _representation(group, use_rep)
    roots = None if root is None else _positions(group["obs"], root, "--root")
    terminals = None if terminal is None else _positions(group["obs"], terminal, "--terminal")
    if not isinstance(root, tuple):
        refuse_shared(roots, terminals)
    n_landmarks = embedding["n_landmarks"]
    if X.shape[0] <= n_landmarks:
        raise ValueError(f"{source} has only {X.shape[0]} cells, and {n_landmarks} landmarks: leave --out-of-core out.")
    with progress() as report:
        cells = BlockedCells(X, report, store=workspace.folder / "blocks.zarr")
        n_blocks = cells.X.numblocks[0]
        start = logg.info(f"embedding {X.shape[0]} cells in {n_blocks} blocks, which are kept in {workspace.folder}")
        landmarks, graph = landmark_graph(
            cells, settings, n_landmarks, n_neighbors=n_neighbors, random_state=embedding["random_state"]
        )
        warn_of_components(graph.bridges, "landmarks")
        seconds.took("joining")
        found = embed(graph, settings, n_components=embedding["n_components"], mds=embedding["mds"], report=report)
        coordinates = found.coordinates.astype(np.float32)
        values, ordered = coordinates, None
        if roots is not None:
            roots = _one_root(graph, settings, cells, roots, root)
            refuse_shared(roots, terminals)
            ends = [roots] if terminals is None else [roots, terminals]
            ordered = order(graph, settings, [graph.sources(cells, some) for some in ends])
            values = np.hstack([coordinates, ordered.potentials])
        seconds.took("landmarks")
        table = cells.map(graph.nodes, Interpolator(graph.nodes, values), values.shape[1], np.float64, "cells")
        seconds.took("cells")

        shutil.copytree(source, workspace.result)
        written: Any = zarr.open_group(workspace.result, mode="r+", use_consolidated=False)
        barcodes, chosen = _index(group["obs"]), landmarks.cells
        is_landmark = np.zeros(X.shape[0], dtype=bool)
        is_landmark[chosen] = True
        columns = {keys.landmark: is_landmark}
        entry = {
            "params": {"embedding": {**embedding, "use_rep": use_rep}},
            **diagnostics(found),
            "landmarks": stored_graph(graph, chosen, barcodes.oindex[chosen], coordinates),
        }
        if ordered is not None:
            potentials = table[:, coordinates.shape[1] :]
            ranges = _ranges(potentials)
            columns[keys.potential] = potentials[:, 0]
            columns[keys.pseudotime] = potentials.map_blocks(
                _scaled, ranges, settings, drop_axis=1, dtype=np.float64, meta=np.empty(0)
            )
        for place, name in (("obsp", keys.affinity), ("obsp", keys.lengths), ("obsm", keys.scales)):
            if place in written and name in written[place]:
                del written[place][name]  # of a graph that is no longer described
        write_elem(written["obsm"], keys.coordinates, table[:, : coordinates.shape[1]].astype(np.float32))
        _write_columns(written["obs"], columns, drop=(keys.potential, keys.pseudotime))
        if ordered is not None:
            _pin(written["obs"], keys, ranges, *ends)
            at_landmarks = written["obs"][keys.pseudotime].oindex[chosen]
            entry["params"]["pseudotime"] = pseudotime
            named_ends = [barcodes.oindex[some] for some in ends]
            entry["pseudotime"] = stored_order(ordered, named_ends, graph.nodes, use_rep, at_landmarks)
        write_elem(written.require_group("uns"), keys.uns, storable(entry))
    logg.info("    finished", time=start)
    return X.shape[0], n_landmarks, found.depth.depth


def refuse_shared(roots: np.ndarray | None, terminals: np.ndarray | None) -> None:
    """A cell cannot be at both ends."""
    if roots is not None and terminals is not None and len(np.intersect1d(roots, terminals)):
        raise ValueError("A cell is given both as root and as terminal.")


def _one_root(graph, settings: Settings, cells: BlockedCells, roots: np.ndarray, root: Cells) -> np.ndarray:
    """The roots, or the one that a category stands for."""
    if not isinstance(root, tuple):
        return roots
    found = root_in(graph, settings, cells, roots)
    if found is None:
        raise ValueError(f"--root-label: {root[0]} == {root[1]!r} is everywhere. Give a barcode with --root.")
    return np.array([found])


class Seconds(dict):
    """What each stage took."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def took(self, stage: str) -> None:
        """A stage has ended."""
        now = time.perf_counter()
        self[stage], self._began = now - self._began, now


def _keys_for(group, key: str) -> Keys:
    """The fields of a key, which must not be somebody else's."""
    names: Any = SimpleNamespace(**{place: set(group.get(place, ())) for place in ("obs", "obsm", "obsp")})
    names.uns = {key: read_elem(group["uns"][key])} if key in group.get("uns", ()) else {}
    return keys_for(names, key, "embedding", "pseudotime")


def _representation(group, use_rep: str):
    """A dask array of what cells are placed in, whatever kind of table it is stored as."""
    import dask.array
    from anndata.experimental import read_elem_lazy

    place = group if use_rep == "X" else group["obsm"] if "obsm" in group else {}
    if use_rep not in place:
        there = named(group["obsm"] if "obsm" in group else ())
        raise KeyError(f"There is no {use_rep!r} in the store; obsm holds {there}. Name one with --use-rep.")
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


def _dense(X) -> np.ndarray:
    return X.toarray()


def _index(obs):
    """The array of barcodes; a nullable one is a group with a mask."""
    node = obs[obs.attrs.get("_index", "_index")]
    return node["values"] if hasattr(node, "keys") else node


def _positions(obs, cells: Cells, name: str) -> np.ndarray:
    """Positions of barcodes, or of all cells of a ``(column, category)``: read piece by piece, refused as in memory."""
    column = cells[0] if isinstance(cells, tuple) and cells[0] in obs.attrs["column-order"] else None
    node, wanted = (_index(obs), list(cells)) if column is None else (obs[column], [cells[1]])
    found: list[np.ndarray] = []
    there: list[str] = []
    for some in gen_batches(_index(obs).shape[0], SCANNED):
        values = as_text(_rows(node, some))
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
        frame = pd.DataFrame(index=_index(obs).oindex[rows].astype(object), columns=obs.attrs["column-order"])
    few: Any = SimpleNamespace(obs=frame, obs_names=frame.index)
    return rows[cell_indices(few, cells, name)]


def _rows(node, some: slice) -> pd.Series:
    """Some rows of a column, as anndata reads them."""

    def read(function, name: str, elem, iospec):
        return function(elem) if hasattr(elem, "keys") or "categories" in name else elem[some]

    return pd.Series(read_dispatched(node, read))


def _ranges(potentials) -> list[tuple[float, float]]:
    import dask

    columns = [(potentials[:, i].min(), potentials[:, i].max()) for i in range(potentials.shape[1])]
    return [(float(low), float(high)) for low, high in dask.compute(*columns)]


def _scaled(potentials: np.ndarray, ranges: list[tuple[float, float]], settings: Settings) -> np.ndarray:
    """Pseudotime of a block, from its potentials and the range that they have in all blocks."""
    scaled = between(potentials, *np.array(ranges).T)
    if scaled.shape[1] == 1:
        return scaled[:, 0]
    return terminal_corrected(scaled[:, 0], scaled[:, 1], settings)


def _write_columns(obs, columns: dict[str, Any], drop: tuple[str, ...]) -> None:
    """Write columns of `obs`, in the place of those of the same names and of those to drop."""
    for name in {*columns, *drop} & set(obs):
        del obs[name]
    for name, values in columns.items():
        write_elem(obs, name, values)
    before = [name for name in obs.attrs["column-order"] if name not in (*columns, *drop)]
    obs.attrs["column-order"] = before + list(columns)


def _pin(
    obs, keys: Keys, ranges: list[tuple[float, float]], roots: np.ndarray, terminals: np.ndarray = NO_CELLS
) -> None:
    """Roots come first, and terminals last."""
    obs[keys.potential].oindex[roots] = ranges[0][0]
    obs[keys.pseudotime].oindex[roots] = 0.0
    if len(terminals):
        obs[keys.pseudotime].oindex[terminals] = 1.0
