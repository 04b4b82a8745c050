"""From cells that do not fit into memory to their fates: nothing here grows with their number."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from anndata.io import write_elem
from scanpy import logging as logg

from ._counts import preprocess_blocks
from ._files import Workspace
from ._keys import Keys
from ._landmark_lineages import LandmarkLineages
from ._store import (
    Cells,
    Writing,
    barcodes_of,
    counts_of,
    labels_of,
    opened,
    positions_of,
    representation_of,
    store_keys,
)
from .core.graph import Graph
from .core.nodes import Interpolator
from .core.pipeline import Settings, between, embed, landmark_graph, order, root_in, terminal_corrected
from .tl._adata import named, own_fields, storable
from .tl._blocks import BlockedCells
from .tl._embedding import diagnostics
from .tl._nodes import stored_graph, stored_order, warn_of_components
from .tl._progress import progress

NO_CELLS = np.empty(0, dtype=np.int64)


def run_out_of_core(
    source: Path,
    workspace: Workspace,
    seconds: Seconds,
    *,
    settings: Settings,
    preprocess: bool,
    root: Cells | None,
    terminal: Cells | None,
    lineages: dict[str, Any] | None,
    colors: list[str],
    use_rep: str,
    key: str,
    n_neighbors: int,
    embedding: dict[str, Any],
    pseudotime: dict[str, Any],
) -> tuple[int, int, dict[str, Any]]:
    """Embed and order the cells of ``source``, and write all of it, with the results, as the workspace's result.

    Finished blocks are kept in the workspace: the same call goes on after an interruption. Runs on the active dask
    scheduler. ``lineages`` holds the options of `terminal_states`. Returns the numbers of cells and of landmarks, and
    what `uns` holds now.
    """
    import dask.array
    import zarr

    group = opened(source)
    obs, n_landmarks = group["obs"], embedding["n_landmarks"]
    names, keys = store_keys(group, key, "embedding", "pseudotime", "terminal_states", "fates")
    X = counts_of(group) if preprocess else representation_of(group, use_rep)
    roots = None if root is None else positions_of(obs, root, "--root")
    terminals = None if terminal is None else positions_of(obs, terminal, "--terminal")
    if not isinstance(root, tuple):
        refuse_shared(roots, terminals)
    for color in colors:
        if color not in obs.attrs["column-order"] and not color.startswith(f"{key}_"):
            there = named(obs.attrs["column-order"])
            raise ValueError(f"--color: {color!r} is not a column of obs, and genes are not read; columns are {there}.")
    if lineages and lineages["groupby"]:
        labels_of(obs, lineages["groupby"], NO_CELLS)  # an error now, rather than after hours
    if X.shape[0] <= n_landmarks:
        raise ValueError(f"{source} has only {X.shape[0]} cells, and {n_landmarks} landmarks: leave --out-of-core out.")
    with progress() as report:
        store, prepared = workspace.folder / "blocks.zarr", None
        start = logg.info(f"reading {X.shape[0]} cells in blocks, which are kept in {workspace.folder}")
        if preprocess:
            prepared = preprocess_blocks(X, report, store)
            X = prepared.scores
            seconds.took("preprocessing")
        cells = BlockedCells(X, report, store=store)
        landmarks, graph = landmark_graph(
            cells, settings, n_landmarks, n_neighbors=n_neighbors, random_state=embedding["random_state"]
        )
        warn_of_components(graph.bridges, "landmarks")
        chosen = landmarks.cells
        seconds.took("joining")
        found = embed(graph, settings, n_components=embedding["n_components"], mds=embedding["mds"], report=report)
        coordinates = found.coordinates.astype(np.float32)
        values, ordered, few = [coordinates], None, None
        if roots is not None:
            roots = _one_root(graph, settings, cells, roots, root)
            refuse_shared(roots, terminals)
            ends = [roots] if terminals is None else [roots, terminals]
            ordered = order(graph, settings, [graph.sources(cells, some) for some in ends])
            values.append(ordered.potentials)
        if lineages is not None:
            labels = labels_of(obs, lineages["groupby"], chosen) if lineages["groupby"] else None
            few = LandmarkLineages.found(graph, cells, landmarks, ordered, roots, labels, lineages, keys)
            values.append(few.passages)
        seconds.took("landmarks")
        table = np.hstack(values)
        placed = _Placed(Interpolator(graph.nodes, table))
        on_cells = cells.map(graph.nodes, placed, table.shape[1] + 1, np.float64, "placing cells")
        parts = np.split(np.arange(table.shape[1]), np.cumsum([part.shape[1] for part in values])[:-1])

        shutil.copytree(source, workspace.result)
        seconds.took("copying")
        written: Any = zarr.open_group(workspace.result, mode="r+", use_consolidated=False)
        _remove_own(written, names, keys)
        is_landmark = np.zeros(X.shape[0], dtype=bool)
        is_landmark[chosen] = True
        write_elem(written["obs"], keys.landmark, is_landmark)
        columns, barcodes = [keys.landmark], barcodes_of(obs, chosen)
        entry: dict[str, Any] = {
            "params": {"embedding": {**embedding, "use_rep": use_rep}},
            **diagnostics(found),
            "landmarks": stored_graph(graph, chosen, barcodes, coordinates),
        }
        if prepared is not None:
            prepared.write(workspace.result)
            entry["pca_offset"] = prepared.offset
        writing = Writing(on_cells)
        target = writing.new(written.require_group("obsm"), keys.coordinates, np.float32, len(parts[0]))
        writing.put(_Columns(parts[0]), target)
        if ordered is not None:
            # Pseudotime needs the range of all cells. Until that is known, the potentials are kept.
            drafts = zarr.open_group(workspace.folder / "potentials.zarr", mode="w")
            kept = writing.new(drafts, "potentials", np.float64, len(parts[1]))
            writing.put(_Columns(parts[1]), kept)
            writing.put(_Columns(parts[1][0]), writing.new(written["obs"], keys.potential, np.float64))
            columns += [keys.potential, keys.pseudotime]
        if few is not None:
            columns += few.put(writing, written["obs"], workspace.result, parts[2])
        low, high, n_placed = _united(writing.finish(report, _Summary(len(chosen))))
        if ordered is not None:
            potentials = Writing(dask.array.from_zarr(kept))
            scaled = _Scaled(low[parts[1]], high[parts[1]], settings)
            potentials.put(scaled, potentials.new(written["obs"], keys.pseudotime, np.float64))
            potentials.finish(report)
        written["obs"].attrs["column-order"] = [*written["obs"].attrs["column-order"], *columns]
        if ordered is not None:
            _pin(written["obs"], keys, low[parts[1][0]], *ends)
            at_landmarks = written["obs"][keys.pseudotime].oindex[chosen]
            entry["params"]["pseudotime"] = pseudotime
            named_ends = [barcodes_of(obs, np.sort(some)) for some in ends]
            entry["pseudotime"] = stored_order(ordered, named_ends, graph.nodes, use_rep, at_landmarks)
        if few is not None:
            parts_of = few.entry(n_placed, barcodes, at_landmarks)
            entry |= parts_of | {"params": entry["params"] | parts_of["params"]}
        write_elem(written.require_group("uns"), keys.uns, storable(entry))
    logg.info("    finished", time=start)
    return X.shape[0], len(chosen), entry


@dataclass(frozen=True)
class _Placed:
    """Values of cells from those of their nearest landmarks, and which landmark is the nearest as one more column."""

    values: Interpolator

    def __call__(self, indices: np.ndarray, distances: np.ndarray) -> np.ndarray:
        return np.column_stack([self.values(indices, distances), indices[:, 0]])


def refuse_shared(roots: np.ndarray | None, terminals: np.ndarray | None) -> None:
    """A cell cannot be at both ends."""
    if roots is not None and terminals is not None and len(np.intersect1d(roots, terminals)):
        raise ValueError("A cell is given both as root and as terminal.")


def _one_root(graph: Graph, settings: Settings, cells: BlockedCells, roots: np.ndarray, root: Cells) -> np.ndarray:
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


def _remove_own(written, names, keys: Keys) -> None:
    """What this package wrote under the key before: a new run describes only its own results."""
    own = own_fields(names, keys) | {("varm", name) for name in names.varm if name.startswith(keys.trends(""))}
    for place, name in own:
        if name in getattr(names, place):
            del written[place][name]
    columns = written["obs"].attrs["column-order"]
    written["obs"].attrs["column-order"] = [name for name in columns if ("obs", name) not in own]


@dataclass(frozen=True)
class _Columns:
    """Some columns of a block, as one array to write."""

    some: Any

    def __call__(self, rows: np.ndarray) -> list[np.ndarray]:
        return [rows[:, self.some]]


@dataclass(frozen=True)
class _Summary:
    """The least and the largest of each column, and how many cells are placed at each landmark, by the last column."""

    n_landmarks: int

    def __call__(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return rows.min(axis=0), rows.max(axis=0), np.bincount(rows[:, -1].astype(np.intp), minlength=self.n_landmarks)


def _united(summaries: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    lows, highs, counts = zip(*summaries, strict=True)
    return np.min(lows, axis=0), np.max(highs, axis=0), np.sum(counts, axis=0)


@dataclass(frozen=True)
class _Scaled:
    """Pseudotime of a block, from its potentials and the range that they have in all blocks."""

    low: np.ndarray
    high: np.ndarray
    settings: Settings

    def __call__(self, potentials: np.ndarray) -> list[np.ndarray]:
        scaled = between(potentials, self.low, self.high)
        if scaled.shape[1] == 1:
            return [scaled[:, 0]]
        return [terminal_corrected(scaled[:, 0], scaled[:, 1], self.settings)]


def _pin(obs, keys: Keys, least: float, roots: np.ndarray, terminals: np.ndarray = NO_CELLS) -> None:
    """Roots come first, and terminals last."""
    obs[keys.potential].oindex[roots] = least
    obs[keys.pseudotime].oindex[roots] = 0.0
    if len(terminals):
        obs[keys.pseudotime].oindex[terminals] = 1.0
