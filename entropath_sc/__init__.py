"""Manifold embedding and pseudotime from the maximum entropy random walk, for AnnData and scanpy."""

from importlib.metadata import version

from . import datasets, metrics, pl, tl
from ._estimator import EntroPath

__version__ = version("entropath_sc")
__all__ = ["EntroPath", "datasets", "metrics", "pl", "tl"]
