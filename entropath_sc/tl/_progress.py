"""Progress on scanpy's terms: nothing below verbosity `info`, and no bars for steps that take a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import scanpy as sc
from scanpy import logging as logg

from ..core.progress import Report

SECONDS_BEFORE_SHOWN = 2.0


def say_if_compiling(kernel: Any) -> None:
    """Say that a call will take longer, if numba has no compiled code of the kernel in memory or on disk yet."""
    index = getattr(getattr(getattr(kernel, "_cache", None), "_cache_file", None), "_index_path", None)
    if index is not None and not kernel.signatures and not Path(index).exists():
        _say_compiling()


@cache  # once in a process, however many kernels there are
def _say_compiling() -> None:
    logg.warning("compiling: the first call on this machine takes some seconds longer, later ones do not")


def finished(start: datetime, summary: str, added: str) -> None:
    """The one line that sums up a tool: what it did and how long it took, and at `hint` which fields it added."""
    logg.info(f"    finished: {summary}", time=start, deep=f"added\n    {added}")


@contextmanager
def progress() -> Iterator[Report]:
    """Gives a function that shows a bar for each stage that is reported to it."""
    quiet = int(sc.settings.verbosity) < 2  # `info`
    bars: dict[str, Any] = {}

    def report(stage: str, done: int, total: int) -> None:
        if stage not in bars:
            from tqdm import tqdm

            close()
            bars[stage] = tqdm(total=total, desc=f"    {stage}", delay=SECONDS_BEFORE_SHOWN, leave=False, disable=quiet)
        bars[stage].update(done - bars[stage].n)

    def close() -> None:
        for bar in bars.values():
            bar.close()
        bars.clear()

    try:
        yield report
    finally:
        close()
