"""How faithful an embedding or an order is."""

from ._geodesic import demap, geodesic_correlation

__all__ = ["demap", "geodesic_correlation"]
