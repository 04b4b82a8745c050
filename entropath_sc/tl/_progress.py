"""Progress on scanpy's terms: nothing below verbosity `info`, and nothing for steps that take a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import scanpy as sc
from tqdm import tqdm

SECONDS_BEFORE_SHOWN = 2.0


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for a step of ``total`` units; call what it gives with the units done so far."""
    quiet = sc.settings.verbosity < sc._settings.Verbosity.info
    with tqdm(total=total, desc=description, delay=SECONDS_BEFORE_SHOWN, leave=False, disable=quiet) as bar:
        yield lambda done: bar.update(done - bar.n)
