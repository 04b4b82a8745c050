"""Manifold embedding and pseudotime from the maximum entropy random walk, for AnnData and scanpy."""

from importlib.metadata import version

from . import datasets, metrics, pl, tl

__version__ = version("entropath_sc")
__all__ = ["datasets", "metrics", "pl", "tl"]
