"""Options that are checked, or take effect, in the same way everywhere."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Collection
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..core.kernel import BANDWIDTHS
from ..core.landmarks import RULES
from ..core.parallel import all_threads, thread_pools, use_threads
from ..core.pipeline import PRESETS, Settings

P = ParamSpec("P")
R = TypeVar("R")


# A file name has at most 255 bytes, and fields add a word to the key.
LONGEST_KEY = 200
PACKAGE = str(Path(__file__).parents[1])


def warn(message: str) -> None:
    """Warn at the line outside this package that called it."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Refuse a word that is not one of the choices, and list them."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not known. Choose one of {', '.join(map(repr, choices))}.")


def check_count(name: str, value: float, least: int) -> None:
    """Refuse what is not a whole number, or is too small."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}={value!r} must be a whole number of at least {least}.")


def check_flags(**flags: bool) -> None:
    """Refuse what is neither true nor false: any word would count as true."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name}={value!r} must be True or False.")


def check_key(key_added: str) -> None:
    """Refuse a prefix that files cannot hold."""
    fits = isinstance(key_added, str) and key_added.isprintable() and 0 < len(key_added.encode()) <= LONGEST_KEY
    if not fits or "/" in key_added or "\\" in key_added or key_added.startswith(".") or key_added == "zarr.json":
        raise ValueError(
            f"key_added={key_added!r} must be a word without '/', '\\' and control characters, not begin with '.', and "
            f"have at most {LONGEST_KEY} bytes: h5ad and zarr cannot store others."
        )


def check_depth(depth: float | str, settings: Settings) -> None:
    """Refuse what is no depth: any positive number of neighbour distances, or the paper's knee or number of steps."""
    if depth == "knee" and settings.is_published:
        return
    if settings.walk == "power":
        check_count("depth", depth, 1)  # type: ignore[arg-type]
    elif isinstance(depth, bool | str) or not (isinstance(depth, Real) and np.isfinite(depth) and depth > 0):
        knee = " or 'knee'" if settings.is_published else ", in neighbour distances; leave it out for the default"
        raise ValueError(f"depth={depth!r} must be a positive number{knee}.")


def check_positive(name: str, value: float) -> None:
    """Refuse what is not a positive number."""
    if isinstance(value, bool) or not (isinstance(value, Real) and np.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value!r} must be a positive number.")


def check_not_negative(name: str, value: float) -> None:
    """Refuse what is not a number of at least 0."""
    if isinstance(value, bool) or not (isinstance(value, Real) and np.isfinite(value) and value >= 0):
        raise ValueError(f"{name}={value!r} must be a number of at least 0.")


def settings_for(preset: str, **given: Any) -> Settings:
    """The settings of a preset, with the options that were given instead of its own; None means not given."""
    check_choice("preset", preset, PRESETS)
    settings = replace(PRESETS[preset], **{name: value for name, value in given.items() if value is not None})
    check_depth(settings.depth, settings)
    check_positive("decay", settings.decay)
    check_choice("bandwidth", settings.bandwidth, BANDWIDTHS)
    check_choice("landmarks", settings.landmarks, RULES)
    check_count("n_project", settings.n_project, 1)
    return settings


def removed(**advice: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Options that a function had before, each with what replaces it."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name in advice:
                    raise TypeError(
                        f"{function.__qualname__.removesuffix('.__init__')}: `{name}` is gone. {advice[name]}"
                    )
            return function(*args, **kwargs)

        return checked

    return decorated


@contextmanager
def threads(n_jobs: int | None):
    """Limit BLAS and kernels to ``n_jobs`` threads while it lasts; None and -1 leave them as they are."""
    limit = None
    if n_jobs is not None and n_jobs != -1:
        check_count("n_jobs", n_jobs, 1)
        limit = min(n_jobs, all_threads())
    with use_threads(limit), thread_pools().limit(limits=limit):
        yield
