"""numba's parallel kernels, entered by one thread at a time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Each kernel uses all threads itself, and numba's simplest threading layer ends the process when it is entered twice.
ONE_AT_A_TIME = threading.RLock()


def exclusive(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, which calls parallel kernels, so that calls from several threads wait for each other."""

    @functools.wraps(function)
    def waiting(*args: P.args, **kwargs: P.kwargs) -> R:
        with ONE_AT_A_TIME:
            return function(*args, **kwargs)

    return waiting
