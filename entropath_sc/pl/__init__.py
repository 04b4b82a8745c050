"""Plots, on scanpy's own."""

from ._plots import depth, embedding, pseudotime

__all__ = ["depth", "embedding", "pseudotime"]
