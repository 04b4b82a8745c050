"""How faithful an embedding or an order is."""

from ._geodesic import demap, geodesic_correlation, shortest_paths
from ._labels import branch_silhouette, kmeans_agreement
from ._neighbourhoods import continuity, trustworthiness
from ._order import pseudotime_agreement

__all__ = [
    "branch_silhouette",
    "continuity",
    "demap",
    "geodesic_correlation",
    "kmeans_agreement",
    "pseudotime_agreement",
    "shortest_paths",
    "trustworthiness",
]
