"""Positions of all cells, and functions of their nearest nodes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import gen_batches

from .nodes import Nodes
from .parallel import in_threads
from .progress import Report, silent

_BLOCK = 16_384


class Cells:
    """Cells in memory. What is larger than memory is a subclass that reads them block by block."""

    def __init__(self, X: Any, report: Report = silent) -> None:
        self.X, self.report = X, report
        self._searched: tuple[Nodes, Any] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Cells and columns."""
        return self.X.shape

    def rows(self, chosen: np.ndarray) -> np.ndarray:
        """Positions of some cells, by sorted indices."""
        return np.asarray(self.X[chosen])

    def total(self, nodes: Nodes, function: Callable[..., sp.csr_matrix], stage: str) -> sp.csr_matrix:
        """The sum over all cells of a function of their nearest nodes and the distances to them."""
        return functools.reduce(operator.add, self._in_blocks(nodes, function))

    def map(self, nodes: Nodes, function: Callable[..., np.ndarray], n_columns: int, dtype: Any, stage: str) -> Any:
        """A function of the nearest nodes of each cell and the distances to them, a row a cell."""
        return np.concatenate(self._in_blocks(nodes, function))

    def assignment(self, nodes: Nodes) -> np.ndarray:
        """The nearest node of each cell."""
        return np.asarray(self.map(nodes, _nearest_alone, 1, np.int32, "assignment"))[:, 0]

    def _in_blocks(self, nodes: Nodes, function: Callable[..., Any]) -> list[Any]:
        """A function of the nearest nodes, for blocks of cells whose temporary arrays fit into the cache."""
        indices, distances = self._nearest(nodes)
        return in_threads(lambda some: function(indices[some], distances[some]), gen_batches(len(indices), _BLOCK))

    def _nearest(self, nodes: Nodes) -> Any:
        """What the last search found, where it was among the same nodes."""
        if self._searched is None or not self._searched[0].is_searched_as(nodes):
            self._searched = nodes, self._search(nodes)
        return self._searched[1]

    def _search(self, nodes: Nodes) -> Any:
        return nodes.nearest(self.X, report=self.report)


def _nearest_alone(indices: np.ndarray, distances: np.ndarray) -> np.ndarray:
    return indices[:, :1]
