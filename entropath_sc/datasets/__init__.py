"""Generated cells and manifolds with a known answer, and published data through checked manifests."""

from ._branching import branching
from ._load import load
from ._manifolds import geodesic, sphere, swiss_roll, torus, tree

__all__ = ["branching", "geodesic", "load", "sphere", "swiss_roll", "torus", "tree"]
