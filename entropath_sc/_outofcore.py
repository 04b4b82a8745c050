"""Embedding and order of a zarr store whose cells do not fit into memory: nothing here grows with their number."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from anndata.io import write_elem
from scanpy import logging as logg
from sklearn.utils import gen_batches

from ._keys import Keys
from .core.nodes import Interpolator
from .core.pipeline import Settings, between, embed, landmark_graph, order, root_in, terminal_corrected
from .tl._adata import named, storable
from .tl._blocks import BlockedCells
from .tl._embedding import diagnostics
from .tl._nodes import stored_graph, stored_order, warn_of_components
from .tl._progress import progress

# Entries of a column that are read at a time, when a barcode or a category is looked for.
SCANNED = 200_000
NO_CELLS = np.empty(0, dtype=np.int64)

Cells = Sequence[str] | tuple[str, str]


def run_out_of_core(
    source: Path,
    target: Path,
    *,
    settings: Settings,
    root: Cells | None,
    terminal: Cells | None,
    use_rep: str,
    key: str,
    n_neighbors: int,
    embedding: dict[str, Any],
    pseudotime: dict[str, Any],
    overwrite: bool = False,
) -> dict[str, Any]:
    """Embed and order the cells of ``source`` and write all of it, with the results, to ``target``.

    Finished blocks are kept beside the target until all is done: the same call goes on after an interruption. Runs on
    the active dask scheduler. Returns a summary.
    """
    import zarr

    group: Any = zarr.open_group(source, mode="r")
    X = _representation(group, use_rep)
    roots = None if root is None else _positions(group["obs"], root, "--root")
    terminals = None if terminal is None else _positions(group["obs"], terminal, "--terminal")
    if not isinstance(root, tuple):
        _refuse_shared(roots, terminals)
    n_landmarks, keys = embedding["n_landmarks"], Keys(key)
    if X.shape[0] <= n_landmarks:
        raise ValueError(f"{source} has only {X.shape[0]} cells, and {n_landmarks} landmarks: leave --out-of-core out.")
    work = target.with_name(target.name + ".partial")
    work.mkdir(parents=True, exist_ok=True)
    seconds = _Seconds()
    with progress() as report:
        cells = BlockedCells(X, report, store=work / "blocks.zarr")
        start = logg.info(f"embedding {X.shape[0]} cells in {cells.X.numblocks[0]} blocks, which are kept in {work}")
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
            _refuse_shared(roots, terminals)
            ends = [roots] if terminals is None else [roots, terminals]
            ordered = order(graph, settings, [graph.sources(cells, some) for some in ends])
            values = np.hstack([coordinates, ordered.potentials])
        seconds.took("landmarks")
        table = cells.map(graph.nodes, Interpolator(graph.nodes, values), values.shape[1], np.float64, "cells")
        seconds.took("cells")

        result = work / "result.zarr"
        shutil.rmtree(result, ignore_errors=True)
        shutil.copytree(source, result)
        written: Any = zarr.open_group(result, mode="r+", use_consolidated=False)
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
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata")  # anndata writes it in format 3 too
        zarr.consolidate_metadata(str(result))
    if overwrite:
        shutil.rmtree(target, ignore_errors=True)
    result.rename(target)
    shutil.rmtree(work)
    seconds.took("writing")
    logg.info("    finished", time=start)
    return {
        "cells": X.shape[0],
        "landmarks": n_landmarks,
        "depth": f"{found.depth.depth:g}",
        "seconds": ", ".join(f"{stage} {spent:.1f}" for stage, spent in seconds.items()),
    }


def _refuse_shared(roots: np.ndarray | None, terminals: np.ndarray | None) -> None:
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


class _Seconds(dict):
    """What each stage took."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def took(self, stage: str) -> None:
        now = time.perf_counter()
        self[stage], self._began = now - self._began, now


def _representation(group, use_rep: str):
    from anndata.experimental import read_elem_lazy

    if "obsm" not in group or use_rep not in group["obsm"]:
        there = named(group["obsm"] if "obsm" in group else ())
        raise KeyError(f"There is no obsm/{use_rep} in the store; obsm holds {there}. Name one with --use-rep.")
    return read_elem_lazy(group["obsm"][use_rep])


def _index(obs):
    """The array of barcodes."""
    return _values(obs[obs.attrs.get("_index", "_index")])


def _values(node):
    """The array itself, or that of a nullable one, which anndata stores as a group with a mask."""
    return node["values"] if hasattr(node, "keys") else node


def _positions(obs, cells: Cells, name: str) -> np.ndarray:
    """Positions of barcodes, or of all cells of a ``(column, category)``, read piece by piece."""
    if isinstance(cells, tuple):
        column, category = cells
        if column not in obs:
            raise KeyError(f"{name}: there is no column obs/{column}; there is {', '.join(obs.attrs['column-order'])}.")
        array, wanted = obs[column], category
        if hasattr(array, "keys") and "categories" in array:
            categories = [str(c) for c in _values(array["categories"])[:]]
            if category not in categories:
                raise ValueError(f"{name}: no cell has {column} == {category!r}. It holds {', '.join(categories)}.")
            array, wanted = array["codes"], categories.index(category)
        found = _scan(_values(array), [wanted])
    else:
        found = _scan(_index(obs), list(cells))
        if len(found) != len(cells):
            first = _index(obs)[:1][0]
            raise KeyError(
                f"{name}: of {len(cells)} barcodes {len(found)} were found. The store's look like {first!r}, and each "
                "must name one cell."
            )
    if not len(found):
        raise ValueError(f"{name}: no cell was found.")
    return found


def _scan(array, wanted: list) -> np.ndarray:
    found = [
        some.start + np.flatnonzero(np.isin(np.asarray(array[some]), wanted))
        for some in gen_batches(array.shape[0], SCANNED)
    ]
    return np.concatenate(found)


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
