"""Plots, on scanpy's own."""

from ._interactive import interactive
from ._lineages import arrows, fates, terminal_states, tree
from ._plots import density, depth, embedding, pseudotime

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
