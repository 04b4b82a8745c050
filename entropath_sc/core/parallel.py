"""Kernels on all cores, entered by one thread at a time; and linear algebra that is better off on one."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import numba
import numpy as np
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


def over_rows(kernel: Callable[[int, int], None], n_rows: int) -> None:
    """Call ``kernel(first, last)``, compiled without the GIL, on as many parts of the rows as numba may use threads.

    The threads end with the call, unlike numba's own.
    """
    n_threads = min(numba.get_num_threads(), n_rows)
    if n_threads <= 1:
        kernel(0, n_rows)
        return
    limits = np.linspace(0, n_rows, n_threads + 1).astype(int)
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(kernel, limits[:-1], limits[1:]))


@functools.cache
def thread_pools() -> ThreadpoolController:
    """The libraries with threads of their own; looking for them takes milliseconds, so it is done once."""
    return ThreadpoolController()


def on_one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which makes many short calls of BLAS.

    BLAS threads gain little there and spin-wait for each other, which takes many times as long on a busy machine.
    """

    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        # Limits hold for the whole process, and are given back in the order in which they were set.
        with ONE_AT_A_TIME, thread_pools().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return alone
