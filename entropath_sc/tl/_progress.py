"""Progress on scanpy's terms: nothing below verbosity `info`, and nothing for steps that take a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import scanpy as sc
from scanpy import logging as logg

from ..core.layout import _guttman_rows
from ..core.progress import Report

SECONDS_BEFORE_SHOWN = 2.0


def say_if_compiling() -> None:
    """Say that a call will take longer, where numba has no compiled code in memory or on disk yet."""
    index = getattr(getattr(getattr(_guttman_rows, "_cache", None), "_cache_file", None), "_index_path", None)
    if index is not None and not _guttman_rows.signatures and not Path(index).exists():
        logg.warning("compiling: the first call on this machine takes some seconds longer")


@contextmanager
def progress() -> Iterator[Report]:
    """Gives a function that shows a bar for each stage that is reported to it."""
    quiet = int(sc.settings.verbosity) < 2  # `info`
    bars: dict[str, Any] = {}

    def report(stage: str, done: int, total: int) -> None:
        if stage not in bars:
            from tqdm import tqdm

            close()
            bars[stage] = tqdm(total=total, desc=stage, delay=SECONDS_BEFORE_SHOWN, leave=False, disable=quiet)
        bars[stage].update(done - bars[stage].n)

    def close() -> None:
        for bar in bars.values():
            bar.close()
        bars.clear()

    try:
        yield report
    finally:
        close()
