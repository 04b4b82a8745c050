"""Plots, on scanpy's own."""

from ._interactive import interactive
from ._plots import density, depth, embedding, pseudotime

__all__ = ["density", "depth", "embedding", "interactive", "pseudotime"]
