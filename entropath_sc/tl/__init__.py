"""Tools: read keys of an AnnData object, call the core, write keys."""

from ._drivers import drivers
from ._embedding import embedding
from ._merw_graph import merw_graph
from ._project import project
from ._pseudotime import pseudotime
from ._trends import trends

__all__ = ["drivers", "embedding", "merw_graph", "project", "pseudotime", "trends"]
