"""Plots, on scanpy's own."""

from ._density import density
from ._depth import depth
from ._interactive import interactive
from ._lineages import arrows, fates, terminal_states
from ._plots import embedding, pseudotime
from ._tree import tree
from ._trends import heatmap, trends

__all__ = [
    "arrows",
    "density",
    "depth",
    "embedding",
    "fates",
    "heatmap",
    "interactive",
    "pseudotime",
    "terminal_states",
    "tree",
    "trends",
]
