"""Cells that do not fit into memory: dask arrays, block by block, on whatever scheduler is active.

With a zarr store, what a block gave is kept there, and is not computed again after an interruption.
"""

from __future__ import annotations

import functools
import hashlib
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from operator import add
from os import PathLike
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import scipy.sparse as sp
from sklearn.utils import gen_batches

from ..core.cells import Cells
from ..core.nodes import Nodes
from ..core.parallel import ONE_AT_A_TIME, all_threads
from ..core.progress import Report, silent
from ..core.search import nearest_landmarks
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

    def write(self, name: str, value: np.ndarray) -> None:
        """Keep a result, with a checksum by which it is recognised as complete."""
        group = _zarr().open_group(self.path, mode="r+", use_consolidated=False)
        attributes = {"crc32": crc32(value.data)}
        group.create_array(
            name, data=value, chunks=value.shape, compressors=None, attributes=attributes, overwrite=True
        )

    def find(self, name: str) -> np.ndarray | None:
        """A result, or None where it is not there, or not complete.

        Asked whether it is there first: zarr's error would keep the caller's arrays in memory.
        """
        group = _zarr().open_group(self.path, mode="r", use_consolidated=False)
        if name not in group:
            return None
        try:
            value = group[name][:]
            complete = group[name].attrs.get("crc32") == crc32(value.data)
        except (OSError, ValueError, KeyError):
            return None
        return value if complete else None  # zarr gives zeros for numbers that are not there

    def read(self, name: str) -> np.ndarray:
        """A result that was there before."""
        try:
            found = self.find(name)
        except OSError as error:
            raise ValueError(f"{self.path} no longer holds {name}: {error}. {AGAIN}") from error
        if found is None:
            raise ValueError(f"{self.path} no longer holds {name}, or only a part of it. {AGAIN}")
        return found


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
        tasks = self._tasks(_applied, job)
        # Sums of two at a time: what a block gave is not kept until all have given theirs.
        sums = [_sum_of(tasks[some]) for some in gen_batches(len(tasks), BLOCKS_AT_ONCE)]
        return functools.reduce(add, self._computed(sums, stage, at_once=1))

    def map(self, job: Callable, n_columns: int, dtype: Any, stage: str):
        """A dask array with a row for each row: lazy without a store, and read from the store with one."""
        import dask
        import dask.array
        from dask.base import tokenize

        X, meta = self.X, np.empty((0, 0), dtype)
        if self.store is None:
            return X.map_blocks(_applied, job, dtype=dtype, chunks=(X.chunks[0], (n_columns,)), meta=meta)
        store = BlockStore.opened(self.store)
        names = self.each(stage, _store_block, job, tokenize(job, version("entropath_sc")), store)
        blocks = [
            dask.array.from_delayed(dask.delayed(store.read)(name), (n_rows, n_columns), meta=meta)
            for name, n_rows in zip(names, X.chunks[0], strict=True)
        ]
        return dask.array.concatenate(blocks)

    def each(self, stage: str, function: Callable, *args: Any) -> Iterator[Any]:
        """What a function gives of each block; it is also given the arguments, and which block it is."""
        return self._computed(self._tasks(function, *args), stage, at_once=BLOCKS_AT_ONCE)

    def _tasks(self, function: Callable, *args: Any) -> list:
        """A task for each block that also reads it: blocks that are read ahead would fill the memory of workers."""
        import dask

        meta = np.empty((0, 0), dtype=object)
        args = tuple(map(dask.delayed, args))  # one of each for all tasks
        made = self.X.map_blocks(function, *args, dtype=object, chunks=(self.X.chunks[0], (1,)), meta=meta)
        return list(made.to_delayed().ravel())

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
    """Cells of a dask array, read block by block; with a store, the search of their nearest nodes is kept there."""

    def __init__(self, X, report: Report = silent, *, store: Store = None) -> None:
        super().__init__(by_rows(X), report)
        self.store = store

    def total(self, nodes: Nodes, function: Callable[..., sp.csr_matrix], stage: str) -> sp.csr_matrix:
        """The sum over all blocks, in their order."""
        return Blocks(self._nearest(nodes), self.report).total(_OfSearched(function), stage)

    def map(self, nodes: Nodes, function: Callable[..., np.ndarray], n_columns: int, dtype: Any, stage: str):
        """A lazy dask array."""
        return Blocks(self._nearest(nodes)).map(_OfSearched(function), n_columns, dtype, stage)

    def _search(self, nodes: Nodes):
        """A dask array: which nodes are nearest, and how far they are."""
        search, k = _Search(nodes.positions, nodes.n_searched), nodes.n_searched
        return Blocks(self.X, self.report, store=self.store).map(search, 2 * k, np.float32, "nearest landmarks")


@dataclass(frozen=True)
class _Search:
    """The nearest of some nodes and their distances, side by side: single precision has room for their numbers."""

    positions: np.ndarray
    k: int

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """A row for each cell of a block."""
        return np.hstack(nearest_landmarks(X, self.positions, self.k), dtype=np.float32, casting="same_kind")


@dataclass(frozen=True)
class _OfSearched:
    """A function of the nearest nodes and their distances, of what a search gave."""

    function: Callable

    def __call__(self, searched: np.ndarray) -> Any:
        """What the function gives for the cells of a block."""
        indices, distances = np.hsplit(searched, 2)
        return self.function(indices.astype(np.int32), distances)


def _store_block(X: Any, job: Callable, token: str, store: BlockStore, block_id: tuple[int, ...]) -> str:
    """The name under which the result of a block is kept; computed unless it was there.

    With the place of the block in names, no two tasks write the same result.
    """
    X = X if sp.issparse(X) else np.asarray(X)
    content = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
    name = _digest(token, str(block_id), X.dtype.str, str(X.shape), *content)
    if store.find(name) is None:
        store.write(name, _applied(X, job))
    return name


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
