"""Cells that do not fit into memory: dask arrays, block by block, on whatever scheduler is active.

With a zarr store, what a block gave is kept there, and is not computed again after an interruption.
"""

from __future__ import annotations

import functools
import hashlib
import io
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import starmap
from operator import add
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import gen_batches

from ..core.cells import Cells
from ..core.nodes import Nodes
from ..core.parallel import ONE_AT_A_TIME, all_threads
from ..core.progress import Report, silent
from ._checks import threads

Store = str | PathLike | None

# Smaller chunks are joined to blocks of at least this many cells: below, a task costs more than its work.
LEAST_BLOCK_CELLS = 32_768
# Blocks that are handed to the scheduler at a time; progress is reported in between.
BLOCKS_AT_ONCE = 128
# Attribute of the zarr stores that this package makes.
MARK = "entropath_sc"
AGAIN = "Run the function that made it again."


def is_lazy(X: Any) -> bool:
    """Whether this is a dask array; asking does not import dask."""
    dask_array = sys.modules.get("dask.array")
    return dask_array is not None and isinstance(X, dask_array.Array)


def by_rows(X):
    """The same dask array in blocks of whole rows, all with the same number of cells but the last."""
    largest = max(X.chunks[0])
    return X.rechunk({0: largest * -(-LEAST_BLOCK_CELLS // largest), 1: -1})


@dataclass(frozen=True)
class BlockStore:
    """Results of blocks in a zarr store, each under a name that is made of all that it was computed from.

    A call finds what an interrupted one left, and never what another function, or other cells, gave.
    """

    path: str

    @classmethod
    def opened(cls, store: str | PathLike) -> BlockStore:
        """The store, made where there is none; one that holds something else is refused."""
        zarr = _zarr()
        # Workers may run in another folder; an address is one everywhere.
        path = str(store) if "://" in str(store) else str(Path(store).absolute())
        try:
            attributes = zarr.open_group(path, mode="r", use_consolidated=False).attrs
        except FileNotFoundError:
            attributes = zarr.open_group(path, mode="a", attributes={MARK: "blocks"}).attrs
        if attributes.get(MARK) != "blocks":
            raise ValueError(f"The store {path} holds something else. Choose another name for it.")
        return cls(path)

    def write(self, name: str, value: np.ndarray | sp.csr_matrix) -> None:
        """Keep a result, with a digest by which it is recognised as complete."""
        buffer = io.BytesIO()
        if sp.issparse(value):
            sp.save_npz(buffer, value, compressed=False)
        else:
            np.save(buffer, value, allow_pickle=False)
        data = np.frombuffer(buffer.getvalue(), dtype=np.uint8)
        group = _zarr().open_group(self.path, mode="r+", use_consolidated=False)
        attributes = {"digest": _digest(data)}
        group.create_array(name, data=data, chunks=data.shape, compressors=None, attributes=attributes, overwrite=True)

    def find(self, name: str) -> np.ndarray | sp.csr_matrix | None:
        """A result, or None where it is not there, or not complete.

        Asked whether it is there first: zarr's error would keep the caller's arrays in memory.
        """
        group = _zarr().open_group(self.path, mode="r", use_consolidated=False)
        if name not in group:
            return None
        try:
            data = group[name][:]
            complete = group[name].attrs.get("digest") == _digest(data)
        except (OSError, ValueError, KeyError):
            return None
        if not complete:  # zarr gives zeros for numbers that are not there
            return None
        buffer = io.BytesIO(data.tobytes())
        return sp.load_npz(buffer) if data[:2].tobytes() == b"PK" else np.load(buffer, allow_pickle=False)

    def read(self, name: str) -> np.ndarray | sp.csr_matrix:
        """A result that was there before."""
        try:
            found = self.find(name)
        except OSError as error:
            raise ValueError(f"{self.path} no longer holds {name}: {error}. {AGAIN}") from error
        if found is None:
            raise ValueError(f"{self.path} no longer holds {name}, or only a part of it. {AGAIN}")
        return found


@dataclass(frozen=True)
class NearestNodes:
    """A function of the nearest nodes of cells, as a function of their positions.

    With a store the search is kept there, as it takes most of the time and other functions need it too; ``place`` then
    tells of which cells it is.
    """

    nodes: Nodes
    function: Callable
    store: BlockStore | None = None
    place: str = ""

    def __call__(self, X: np.ndarray) -> Any:
        """What the function gives for the cells at ``X``."""
        if self.store is None:
            return self.function(*self.nodes.nearest(X))
        name = _digest(version("entropath_sc"), self.place, self.nodes.positions, str(self.nodes.n_project))
        kept = self.store.find(name)
        if kept is None:
            indices, distances = self.nodes.nearest(X)
            kept = np.stack([indices.astype(np.int32), distances.astype(np.float32).view(np.int32)])
            self.store.write(name, kept)
        return self.function(kept[0], kept[1].view(np.float32))


def _digest(*parts: str | np.ndarray) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(part.encode() if isinstance(part, str) else np.ascontiguousarray(part).data)
    return found.hexdigest()


def _zarr():
    try:
        import zarr
    except ImportError as error:
        raise ImportError('A store needs zarr: `pip install "entropath_sc[dask]"`.') from error
    return zarr


class Blocks:
    """Rows of a dask array, in blocks that hold all columns; with a store, what a block gave is kept there."""

    def __init__(self, X, report: Report = silent, *, store: Store = None) -> None:
        self.X, self.report, self.store = X, report, store

    def total(self, job: Callable, stage: str) -> Any:
        """The sum of what all blocks give, in their order."""
        if self.store is not None:
            return functools.reduce(add, starmap(BlockStore.read, self._stored(job, stage)))
        tasks = self._tasks(_applied, job)
        # Sums of two at a time: what a block gave is not kept until all have given theirs.
        sums = [_sum_of(tasks[some]) for some in gen_batches(len(tasks), BLOCKS_AT_ONCE)]
        return functools.reduce(add, self._computed(sums, stage, at_once=1))

    def map(self, job: Callable, n_columns: int, dtype: Any, stage: str):
        """A dask array with a row for each row: lazy without a store, and read from the store with one."""
        import dask
        import dask.array

        X, meta = self.X, np.empty((0, 0), dtype)
        if self.store is None:
            return X.map_blocks(_applied, job, dtype=dtype, chunks=(X.chunks[0], (n_columns,)), meta=meta)
        blocks = [
            dask.array.from_delayed(dask.delayed(_read_block)(*stored, dtype), (n_rows, n_columns), meta=meta)
            for stored, n_rows in zip(self._stored(job, stage), X.chunks[0], strict=True)
        ]
        return dask.array.concatenate(blocks)

    def _tasks(self, function: Callable, *args: Any) -> list:
        """A task for each block that also reads it: blocks that are read ahead would fill the memory of workers."""
        import dask

        meta = np.empty((0, 0), dtype=object)
        args = tuple(map(dask.delayed, args))  # one of each for all tasks
        made = self.X.map_blocks(function, *args, dtype=object, chunks=(self.X.chunks[0], (1,)), meta=meta)
        return list(made.to_delayed().ravel())

    def _stored(self, job: Callable, stage: str) -> Iterator[tuple[BlockStore, str]]:
        """Where the result of each block is kept, once it is there."""
        from dask.base import tokenize

        store = BlockStore.opened(self.store)
        tasks = self._tasks(_store_block, job, tokenize(job, version("entropath_sc")), store)
        return self._computed(tasks, stage, at_once=BLOCKS_AT_ONCE)

    def _computed(self, tasks: list, stage: str, at_once: int) -> Iterator[Any]:
        import dask

        for some in gen_batches(len(tasks), at_once):
            yield from dask.compute(*tasks[some])
            self.report(f"{stage}, blocks", some.stop, len(tasks))


def _sum_of(tasks: list) -> Any:
    import dask

    while len(tasks) > 1:
        pairs = [tasks[i : i + 2] for i in range(0, len(tasks), 2)]
        tasks = [dask.delayed(add)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return tasks[0]


class BlockedCells(Cells):
    """Cells of a dask array, read block by block."""

    def __init__(self, X, report: Report = silent, *, store: Store = None) -> None:
        super().__init__(by_rows(X), report)
        self._read = Blocks(self.X, report, store=store)

    def total(self, nodes: Nodes, function: Callable[..., sp.csr_matrix], stage: str) -> sp.csr_matrix:
        """The sum over all blocks, in their order."""
        return self._read.total(self._job(nodes, function), stage)

    def map(self, nodes: Nodes, function: Callable[..., np.ndarray], n_columns: int, dtype: Any, stage: str):
        """A dask array: lazy without a store, and read from the store with one."""
        return self._read.map(self._job(nodes, function), n_columns, dtype, stage)

    def _job(self, nodes: Nodes, function: Callable) -> NearestNodes:
        store = self._read.store
        return NearestNodes(nodes, function, None if store is None else BlockStore.opened(store))


def _store_block(
    X: Any, job: Callable, token: str, store: BlockStore, block_id: tuple[int, ...] = ()
) -> tuple[BlockStore, str]:
    """Where the result of a block is kept; computed unless it was there.

    With the place of the block in names, no two tasks write the same result.
    """
    X = X if sp.issparse(X) else np.asarray(X)
    content = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
    place = f"{block_id} {_digest(X.dtype.str, str(X.shape), *content)}"
    name = _digest(token, place)
    if isinstance(job, NearestNodes):
        job = replace(job, place=place)
    if store.find(name) is None:
        store.write(name, _applied(X, job))
    return store, name


def _read_block(store: BlockStore, name: str, dtype: Any) -> np.ndarray:
    return store.read(name).astype(dtype, copy=False)


def _applied(X: Any, function: Callable):
    """``function`` of a block of cells, with as many threads as this process has been given."""
    with ONE_AT_A_TIME, threads(_own_threads()):
        return function(X if sp.issparse(X) else np.asarray(X))


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
