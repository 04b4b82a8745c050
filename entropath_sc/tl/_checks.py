"""Options that are checked, or take effect, in the same way everywhere."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import contextmanager
from numbers import Real

import numba
import numpy as np

from ..core.parallel import thread_pools


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Refuse a word that is not one of the choices, and list them."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not known. Choose one of {', '.join(map(repr, choices))}.")


def check_count(name: str, value: float, least: int) -> None:
    """Refuse what is not a whole number, or is too small."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}={value!r} must be a whole number of at least {least}.")


def check_key(key_added: str) -> None:
    """Refuse a prefix that files cannot hold."""
    if not isinstance(key_added, str) or not key_added or "/" in key_added:
        raise ValueError(f"key_added={key_added!r} must be a word without '/', which h5ad and zarr cannot store.")


def check_depth(depth: float | str, diffusion: str, rules: Collection[str]) -> None:
    """Refuse what is neither a rule nor a depth: any positive time for heat, whole steps for the power."""
    if isinstance(depth, str):
        check_choice("depth", depth, rules)
    elif diffusion == "power":
        check_count("depth", depth, 1)
    elif isinstance(depth, bool) or not (isinstance(depth, Real) and np.isfinite(depth) and depth > 0):
        raise ValueError(f"depth={depth!r} must be positive, or one of {', '.join(map(repr, rules))}.")


def check_refine(refine: float | str, potential: str, diffusion: str) -> None:
    """Refuse what is neither a share nor 'auto', or cannot be done to the potential."""
    is_share = isinstance(refine, Real) and not isinstance(refine, bool) and 0 <= refine <= 1
    if refine != "auto" and not is_share:
        raise ValueError(f"refine={refine!r} must be a share from 0 to 1, or 'auto'.")
    if is_share and refine and (potential, diffusion) != ("symmetric", "heat"):
        raise ValueError(
            f"potential={potential!r} with diffusion={diffusion!r} cannot be refined, only 'symmetric' with 'heat' can "
            "(and preset='paper' has others). Leave `refine` out."
        )


def all_threads() -> int:
    """As many as numba may use."""
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


@contextmanager
def threads(n_jobs: int | None):
    """Limit BLAS and numba to ``n_jobs`` threads while it lasts; None and -1 leave them as they are."""
    if n_jobs is not None and n_jobs != -1:
        check_count("n_jobs", n_jobs, 1)
    before = numba.get_num_threads()
    limit = before if n_jobs in (None, -1) else min(n_jobs, all_threads())
    numba.set_num_threads(limit)
    try:
        with thread_pools().limit(limits=None if n_jobs in (None, -1) else limit):
            yield
    finally:
        numba.set_num_threads(before)
