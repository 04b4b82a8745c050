"""Plots, on scanpy's own."""

from ._interactive import interactive
from ._lineages import arrows, fates, terminal_states
from ._plots import density, depth, embedding, pseudotime
from ._tree import tree

__all__ = [
    "arrows",
    "density",
    "depth",
    "embedding",
    "fates",
    "interactive",
    "pseudotime",
    "terminal_states",
    "tree",
]
