"""Cells that do not fit into memory: dask arrays, block by block, on whatever scheduler is active.

With a zarr store, what a block gave is kept there, and is not computed again after an interruption.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import gen_batches

from ..core.cells import Cells
from ..core.nodes import Nodes
from ..core.parallel import ONE_AT_A_TIME
from ..core.progress import Report, silent
from ._checks import all_threads, threads

Store = str | PathLike | None

# Smaller chunks are joined to blocks of at least this many cells: below, a task costs more than its work.
LEAST_BLOCK_CELLS = 32_768
# Blocks that are handed to the scheduler at a time; progress is reported in between.
BLOCKS_AT_ONCE = 32


def is_lazy(X: Any) -> bool:
    """Whether this is a dask array; asking does not import dask."""
    dask_array = sys.modules.get("dask.array")
    return dask_array is not None and isinstance(X, dask_array.Array)


def by_rows(X):
    """The same dask array in blocks of whole rows, all with the same number of cells but the last."""
    largest = max(X.chunks[0])
    return X.rechunk({0: largest * -(-LEAST_BLOCK_CELLS // largest), 1: -1})


@dataclass(frozen=True)
class NearestNodes:
    """A function of the nearest nodes of cells, as a function of their positions."""

    nodes: Nodes
    function: Callable

    def __call__(self, X: np.ndarray) -> Any:
        """What the function gives for the cells at ``X``."""
        return self.function(*self.nodes.nearest(X))


@dataclass(frozen=True)
class Checkpoint:
    """One stage's group in a zarr store: its result, and which blocks of it are done."""

    store: str
    stage: str

    def opened(self, token: str, n_blocks: int) -> np.ndarray:
        """Which blocks are done; a stage that was begun with other input begins anew."""
        zarr = _zarr()
        root = zarr.open_group(self.store, mode="a")
        if self.stage not in root or root[self.stage].attrs.get("token") != token:
            if self.stage in root:
                del root[self.stage]
            stage = root.create_group(self.stage, attributes={"token": token})
            stage.create_array("done", shape=(n_blocks,), chunks=(1,), dtype="bool", fill_value=False)
        return root[f"{self.stage}/done"][:]

    def group(self):
        """The stage's group, for reading and writing."""
        return _zarr().open_group(self.store, mode="r+", path=self.stage)

    def finish(self, block: int) -> None:
        """Mark a block as done."""
        self.group()["done"][block] = True


def _zarr():
    try:
        import zarr
    except ImportError as error:
        raise ImportError('A store needs zarr: `pip install "entropath_sc[dask]"`.') from error
    return zarr


class BlockedCells(Cells):
    """Cells of a dask array, read block by block; with a store, what a block gave is kept there."""

    def __init__(self, X, report: Report = silent, *, store: Store = None) -> None:
        super().__init__(by_rows(X), report)
        self.store = store

    def total(self, nodes: Nodes, function: Callable[..., sp.csr_matrix], stage: str) -> sp.csr_matrix:
        """The sum over all blocks, in their order."""
        job = NearestNodes(nodes, function)
        checkpoint, done = self._begin(job, stage)
        tasks = [(_add_block, block, i, job, checkpoint, done[i]) for i, block in enumerate(self._delayed())]
        total = None
        for first, found in _computed(tasks, stage, self.report):
            for i, part in enumerate(found, first):
                if done[i]:
                    part = _read_part(checkpoint, i)
                total = part if total is None else total + part
        return total

    def map(self, nodes: Nodes, function: Callable[..., np.ndarray], n_columns: int, dtype: Any, stage: str):
        """A dask array: lazy without a store, and read from the store with one."""
        import dask.array

        X, job = self.X, NearestNodes(nodes, function)
        if self.store is None:
            chunks = (X.chunks[0], (n_columns,))
            return X.map_blocks(_applied, job, dtype=dtype, chunks=chunks, meta=np.empty((0, 0), dtype))
        checkpoint, done = self._begin(job, stage)
        group = checkpoint.group()
        if "values" not in group:
            group.create_array("values", shape=(X.shape[0], n_columns), chunks=(X.chunksize[0], n_columns), dtype=dtype)
        starts = np.concatenate([[0], np.cumsum(X.chunks[0])])
        tasks = [
            (_store_block, block, i, job, checkpoint, int(starts[i]), done[i])
            for i, block in enumerate(self._delayed())
        ]
        for _ in _computed(tasks, stage, self.report):
            pass
        return dask.array.from_zarr(checkpoint.store, component=f"{stage}/values")

    def _delayed(self) -> np.ndarray:
        return self.X.to_delayed().ravel()

    def _begin(self, job: NearestNodes, stage: str) -> tuple[Checkpoint | None, np.ndarray]:
        from dask.base import tokenize

        n_blocks = self.X.numblocks[0]
        if self.store is None:
            return None, np.zeros(n_blocks, dtype=bool)
        # Workers may run in another folder; an address is one everywhere.
        store = str(self.store) if "://" in str(self.store) else str(Path(self.store).absolute())
        checkpoint = Checkpoint(store, stage)
        return checkpoint, checkpoint.opened(tokenize(job, self.X.shape, self.X.chunksize), n_blocks)


def _add_block(X, i: int, function: Callable, checkpoint: Checkpoint | None) -> sp.csr_matrix:
    part = _applied(X, function)
    if checkpoint is not None:
        group = checkpoint.group()
        for name in ("data", "indices", "indptr"):
            values = getattr(part, name)
            group.create_array(f"{i}/{name}", data=values, overwrite=True)
        group[str(i)].attrs["shape"] = list(part.shape)
        checkpoint.finish(i)
    return part


def _read_part(checkpoint: Checkpoint, i: int) -> sp.csr_matrix:
    group = checkpoint.group()[str(i)]
    parts = tuple(group[name][:] for name in ("data", "indices", "indptr"))
    return sp.csr_matrix(parts, shape=tuple(group.attrs["shape"]))


def _store_block(X, i: int, function: Callable, checkpoint: Checkpoint, start: int) -> None:
    values = _applied(X, function)
    checkpoint.group()["values"][start : start + len(values)] = values
    checkpoint.finish(i)


def _computed(tasks: list[tuple], stage: str, report: Report):
    """(first block, results) of a batch of blocks at a time; nothing is computed for those that are done."""
    import dask

    for some in gen_batches(len(tasks), BLOCKS_AT_ONCE):
        pending = [None if done else dask.delayed(run)(*arguments) for run, *arguments, done in tasks[some]]
        found = dask.compute(*pending)
        report(stage, some.stop, len(tasks))
        yield some.start, found


def _applied(X: np.ndarray, function: Callable):
    """``function`` of a block of cells, with as many threads as this process has been given."""
    with ONE_AT_A_TIME, threads(_own_threads()):
        return function(np.asarray(X))


def _own_threads() -> int:
    """Those of the dask worker that this runs in; one in another process of a pool; else all."""
    if "distributed" in sys.modules:
        from distributed import get_worker

        try:
            return get_worker().state.nthreads
        except ValueError:  # not in a worker
            pass
    in_pool = multiprocessing.current_process().name != "MainProcess"
    return 1 if in_pool else all_threads()
