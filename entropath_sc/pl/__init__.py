"""Plots, on scanpy's own."""

from ._interactive import interactive
from ._plots import density, depth, embedding, pseudotime
from ._trends import heatmap, trends

__all__ = ["density", "depth", "embedding", "heatmap", "interactive", "pseudotime", "trends"]
