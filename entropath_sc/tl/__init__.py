"""Tools: read keys of an AnnData object, call the core, write keys."""

from ._diagnose import diagnose
from ._drivers import drivers
from ._embedding import embedding
from ._fates import fates
from ._merw_graph import merw_graph
from ._project import project
from ._pseudotime import pseudotime
from ._stability import stability
from ._suggest_root import suggest_root
from ._terminal_states import terminal_states
from ._trends import trends

__all__ = [
    "diagnose",
    "drivers",
    "embedding",
    "fates",
    "merw_graph",
    "project",
    "pseudotime",
    "stability",
    "suggest_root",
    "terminal_states",
    "trends",
]
