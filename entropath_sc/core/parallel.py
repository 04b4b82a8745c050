"""Kernels on all cores, entered by one thread at a time; and linear algebra that is better off on one."""

from __future__ import annotations

import _thread
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np
from sklearn.utils import gen_batches
from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")

# Each kernel uses all threads itself, and numba's simplest threading layer ends the process when it is entered twice.
ONE_AT_A_TIME = threading.RLock()


def serialized(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which calls parallel kernels, so that calls from several threads wait for each other."""

    @functools.wraps(function)
    def waiting(*args: P.args, **kwargs: P.kwargs) -> R:
        with ONE_AT_A_TIME:
            return function(*args, **kwargs)

    return waiting


# Asking numba would take a lock that an interrupt can leave taken, and then other threads wait for it forever.
_limit = threading.local()


def n_threads() -> int:
    """As many as this thread may use: all of numba's, unless :func:`use_threads` says otherwise."""
    return getattr(_limit, "n_threads", None) or all_threads()


def all_threads() -> int:
    """As many as numba may use."""
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


@contextmanager
def use_threads(n: int | None) -> Iterator[None]:
    """At most this many threads while it lasts."""
    before = getattr(_limit, "n_threads", None)
    _limit.n_threads = before if n is None else min(n, all_threads())
    try:
        yield
    finally:
        _limit.n_threads = before


def over_rows(kernel: Callable[[int, int], None], n_rows: int) -> None:
    """Call ``kernel(first, last)``, compiled without the GIL, on as many parts of the rows as there are threads.

    The threads end with the call, unlike numba's own.
    """
    n_parts = min(n_threads(), n_rows)
    if n_parts <= 1:
        kernel(0, n_rows)
        return
    limits = np.linspace(0, n_rows, n_parts + 1).astype(int)
    in_threads(lambda part: kernel(*part), pairwise(limits))


def in_threads(function: Callable[[Any], R], items: Iterable[Any]) -> list[R]:
    """A function that takes one thread of each item, on as many threads as this one may use."""
    return list(as_done(function, items))


# Entries that are computed at a time, so that temporary arrays fit into the cache: fresh memory costs more than sums.
_ENTRIES = 2**15


def in_blocks(function: Callable[[slice], np.ndarray], n: int, dtype: Any = np.float64) -> np.ndarray:
    """``n`` entries of an array, from a function that gives those of a slice."""
    found = np.empty(n, dtype)

    def fill(some: slice) -> None:
        found[some] = function(some)

    in_threads(fill, gen_batches(n, _ENTRIES))
    return found


def as_done(function: Callable[[Any], R], items: Iterable[Any]) -> Iterator[R]:
    """The same, one after the other as they come; what has not begun by an interrupt is not done any more."""
    items = list(items)
    n_workers = min(n_threads(), len(items))
    # One limit for all of them: each thread would otherwise set and reset its own.
    with thread_pools().limit(limits=1, user_api="blas"):
        yield from _Workers(function, items).results(n_workers) if n_workers > 1 else map(function, items)


class _Workers:
    """Threads that share items. They signal by plain locks only, which an interrupt cannot leave half taken.

    It can leave those of :class:`concurrent.futures.ThreadPoolExecutor` so, and then its threads never end.
    """

    def __init__(self, function: Callable[[Any], R], items: list[Any]) -> None:
        self._function, self._items = function, items
        self._next = iter(range(len(items)))  # the interpreter's lock guards it
        self._found: list[Any] = [None] * len(items)
        self._done = [_taken() for _ in items]
        self._stopped = False

    def results(self, n_workers: int) -> Iterator[R]:
        """Of the items, in their order; an error of one is raised here."""
        ended: list[Any] = []
        share = max(n_threads() // n_workers, 1)  # for threads that a function starts in its turn
        try:
            for _ in range(n_workers):
                end = _taken()
                # The start of a threading.Thread waits for it, and an interrupt there can be a RuntimeError.
                _thread.start_new_thread(self._work, (end, share))
                ended.append(end)
            for i, done in enumerate(self._done):
                done.acquire()
                result, error = self._found[i]
                if error is not None:
                    raise error
                yield result
        finally:
            self._stopped = True
            for end in ended:
                end.acquire()

    def _work(self, end: Any, share: int) -> None:
        _limit.n_threads = share
        try:
            for i in self._next:
                if self._stopped:
                    break
                try:
                    self._found[i] = self._function(self._items[i]), None
                except BaseException as error:
                    self._found[i] = None, error
                self._done[i].release()
        finally:
            end.release()


def _taken() -> Any:
    lock = threading.Lock()
    lock.acquire()
    return lock


class ThreadPools:
    """Libraries with threads of their own. Limits hold for the whole process; the last to end gives back what was."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._libraries = ThreadpoolController().lib_controllers
        self._limits: list[tuple[int, str | None]] = []
        self._before: list[int] = []

    @contextmanager
    def limit(self, *, limits: int | None, user_api: str | None = None):
        """At most this many threads while it lasts; calls from several threads may overlap, and the least holds."""
        if limits is None:
            yield
            return
        limit = (limits, user_api)
        with self._lock:
            if not self._limits:
                self._before = [library.num_threads for library in self._libraries]
            self._limits.append(limit)
            self._apply()
        try:
            yield
        finally:
            with self._lock:
                self._limits.remove(limit)
                self._apply()

    def _apply(self) -> None:
        for library, before in zip(self._libraries, self._before, strict=True):
            limits = (n for n, api in self._limits if api in (None, library.user_api))
            # Newer versions of threadpoolctl let one thread set OpenBLAS, and ignore all others. The lock does better.
            let_go = getattr(library, "clear_controlling_thread", lambda force: None)
            let_go(force=True)
            library.set_num_threads(min(limits, default=before))
            let_go(force=True)


# Two threads that make their first call at the same time must not get two of them, which would undo each other.
_CREATION = threading.RLock()
_found: list[ThreadPools] = []


def thread_pools() -> ThreadPools:
    """One for the process; looking for the libraries takes milliseconds, so it is done once."""
    with _CREATION:
        if not _found:
            _found.append(ThreadPools())
        return _found[0]


def without_openmp():
    """One thread for scikit-learn's OpenMP: once there was a second one, a forked process waits for it forever."""
    return thread_pools().limit(limits=1, user_api="openmp")


def on_one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which makes many short calls of BLAS.

    BLAS threads gain little there and spin-wait for each other, which takes many times as long on a busy machine.
    """

    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with thread_pools().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return alone
