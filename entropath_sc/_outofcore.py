"""Embedding and order of a zarr store whose cells do not fit into memory: nothing here grows with their number."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scanpy import logging as logg
from sklearn.utils import gen_batches

from ._keys import Keys
from .core import landmarks as landmarking
from .core import ordering
from .core.model import embed
from .core.placement import Carrier, Nodes
from .tl._adata import storable
from .tl._lazy import by_rows, map_cells
from .tl._nodes import diagnostics, landmark_cells
from .tl._progress import progress
from .tl._reference import stored_nodes

# Entries of a column that are read at a time, when a barcode or a category is looked for.
SCANNED = 200_000

Cells = Sequence[str] | tuple[str, str]


def run_out_of_core(
    source: Path,
    target: Path,
    *,
    root: Cells | None,
    terminal: Cells | None,
    use_rep: str,
    key: str,
    kernel: str,
    n_neighbors: int,
    embedding: dict[str, Any],
    pseudotime: dict[str, Any],
    random_state: int,
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
    if roots is not None and terminals is not None and len(np.intersect1d(roots, terminals)):
        raise ValueError("A cell is given both as root and as terminal.")
    n_landmarks = embedding["n_landmarks"]
    if X.shape[0] <= n_landmarks:
        raise ValueError(f"{source} has only {X.shape[0]} cells, and {n_landmarks} landmarks: leave --out-of-core out.")
    work = target.with_name(target.name + ".partial")
    work.mkdir(parents=True, exist_ok=True)
    store = work / "blocks.zarr"
    start = logg.info(f"embedding {X.shape[0]} cells in {X.numblocks[0]} blocks; finished blocks are kept in {work}")
    seconds = _Seconds()
    with progress() as report:
        landmarks = landmarking.choose(X, n_landmarks, embedding["landmarks"], random_state=random_state)
        seconds.took("sample")
        part = landmark_cells(
            X,
            None,
            landmarks,
            embedding["landmark_graph"],
            {"n_neighbors": n_neighbors, "kernel": kernel, "decay": 40.0},
            embedding["n_project"],
            use_rep=use_rep,
            store=store,
            report=report,
        )
        seconds.took("votes")
        options = ("n_components", "depth", "max_depth", "diffusion", "dissimilarity", "mds")
        embedded = embed(part.graph, **{name: embedding[name] for name in options}, report=report)
        coordinates = embedded.coordinates.astype(np.float32)
        found, potentials = _potentials(X, part.graph, part.nodes, embedded, roots, terminals, pseudotime)
        values = np.hstack([coordinates, potentials])
        seconds.took("landmarks")
        carrier = Carrier(part.nodes, values)
        table = map_cells(X, carrier, values.shape[1], np.float64, store=store, stage="cells", report=report)
        ranges = _ranges(table[:, coordinates.shape[1] :])
        seconds.took("cells")

        result = work / "result.zarr"
        shutil.rmtree(result, ignore_errors=True)
        shutil.copytree(source, result)
        keys = Keys(key)
        written: Any = zarr.open_group(result, mode="r+", use_consolidated=False)
        marks = {"chosen": part.cells, "roots": roots, "terminals": terminals}
        published = pseudotime["preset"] == "paper"
        _write_cells(written, keys, table, coordinates.shape[1], ranges, marks, published, report)

    barcodes = _index(group["obs"])
    kept = stored_nodes(part.nodes, barcodes.oindex[part.cells], embedded, part.graph)
    entry = {
        "params": {"embedding": {**embedding, "use_rep": use_rep, "random_state": random_state}},
        **diagnostics(embedded),
        "landmarks": kept,
    }
    if found is not None:
        entry["params"]["pseudotime"] = pseudotime
        entry["pseudotime"] = {
            "roots": barcodes.oindex[roots],
            "terminals": None if terminals is None else barcodes.oindex[terminals],
            "on": "landmarks",
            "depth": found.depth,
            "refined": found.refined,
            "agreement": found.agreement,
            "smoothness": found.smoothness,
        }
        if terminals is None:
            kept |= {"potential": found.values, "pseudotime": ordering.between(found.values, *ranges[0])}
        else:
            columns = {"potential": keys.potential, "pseudotime": keys.pseudotime}
            kept |= {name: written["obs"][column].oindex[part.cells] for name, column in columns.items()}
    _write_uns(written, keys, entry)
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
        "depth": f"{embedded.diffused.depth:g}",
        "seconds": ", ".join(f"{stage} {spent:.1f}" for stage, spent in seconds.items()),
    }


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
        there = ", ".join(map(repr, group["obsm"])) if "obsm" in group else "nothing"
        raise KeyError(f"There is no obsm/{use_rep} in the store; obsm holds {there}. Name one with --use-rep.")
    return by_rows(read_elem_lazy(group["obsm"][use_rep]))


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


def _potentials(
    X,
    graph,
    nodes: Nodes,
    embedded,
    roots: np.ndarray | None,
    terminals: np.ndarray | None,
    options: dict[str, Any],
) -> tuple[ordering.Potential | None, np.ndarray]:
    """The search from the roots, and the free energies from roots and terminals on the landmarks, as columns."""
    if roots is None:
        return None, np.empty((graph.shape[0], 0))
    depth = embedded.diffused.depth if options["depth"] == "embedding" else options["depth"]

    def from_cells(cells: np.ndarray, like: ordering.Potential | None = None) -> ordering.Potential:
        return ordering.potential_from(
            graph,
            embedded.diffused.lambda_max,
            nodes.mass(X, cells),
            X=nodes.positions,
            kind=options["potential"],
            diffusion=options["diffusion"],
            depth=depth,
            refine=options["refine"],
            means=True,
            like=like,
        )

    found = from_cells(roots)
    columns = [found.values] if terminals is None else [found.values, from_cells(terminals, like=found).values]
    return found, np.stack(columns, axis=1)


def _ranges(potentials) -> list[tuple[float, float]]:
    import dask

    columns = [(potentials[:, i].min(), potentials[:, i].max()) for i in range(potentials.shape[1])]
    return [(float(low), float(high)) for low, high in dask.compute(*columns)]


def _write_cells(
    group,
    keys: Keys,
    table,
    n_components: int,
    ranges: list[tuple[float, float]],
    marks: dict[str, np.ndarray | None],
    published: bool,
    report,
) -> None:
    """Coordinates, free energy, order and landmarks, block by block."""
    n_cells, block = table.shape[0], table.chunksize[0]
    obs = group["obs"]
    coordinates = _array(group["obsm"], keys.coordinates, (n_cells, n_components), block, np.float32)
    landmark = _array(obs, keys.landmark, (n_cells,), block, bool)
    columns = [keys.landmark]
    if ranges:
        potential = _array(obs, keys.potential, (n_cells,), block, np.float64)
        order = _array(obs, keys.pseudotime, (n_cells,), block, np.float64)
        columns += [keys.potential, keys.pseudotime]
    for some in gen_batches(n_cells, block):
        values = np.asarray(table[some])
        coordinates[some] = values[:, :n_components].astype(np.float32)
        landmark[some] = _marked(marks["chosen"], some)
        if ranges:
            free = values[:, n_components:]
            low, high = np.array(ranges).T
            scaled = ordering.between(free, low, high)
            is_root = _marked(marks["roots"], some)
            free[is_root, 0], scaled[is_root, 0] = low[0], 0.0
            if marks["terminals"] is not None:
                scaled[_marked(marks["terminals"], some), 1] = 0.0
                scaled[:, 0] = ordering.terminal_corrected(scaled[:, 0], scaled[:, 1], published=published)
            potential[some], order[some] = free[:, 0], scaled[:, 0]
        report("writing", some.stop, n_cells)
    named = list(obs.attrs["column-order"])
    obs.attrs["column-order"] = named + [column for column in columns if column not in named]


def _marked(cells: np.ndarray, some: slice) -> np.ndarray:
    inside = np.zeros(some.stop - some.start, dtype=bool)
    inside[cells[(cells >= some.start) & (cells < some.stop)] - some.start] = True
    return inside


def _array(group, name: str, shape: tuple[int, ...], block: int, dtype):
    """A new array with anndata's marks, in the place of one of the same name."""
    array = group.create_array(name, shape=shape, chunks=(block, *shape[1:]), dtype=dtype, overwrite=True)
    array.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    return array


def _write_uns(group, keys: Keys, entry: dict[str, Any]) -> None:
    from anndata.io import write_elem

    write_elem(group.require_group("uns"), keys.uns, storable(entry))
