"""Generated cells and manifolds with a known answer, and published data through checked manifests."""

from ._generate import branching, swiss_roll
from ._load import load

__all__ = ["branching", "load", "swiss_roll"]
