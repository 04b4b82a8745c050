"""How long steps tell how far they are."""

from __future__ import annotations

from collections.abc import Callable

# Called with the name of a stage, the units of it that are done, and how many there are at most.
Report = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Report to nobody."""
