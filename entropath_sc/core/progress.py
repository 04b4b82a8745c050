"""How steps that take long report their progress."""

from __future__ import annotations

from collections.abc import Callable

# Called with the name of a stage, the units of it that are done, and how many there are.
Report = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""
