"""First passages of new cells, from those of the cells of a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, softmax

from .ensemble import step_costs
from .kernel import Kernel
from .nodes import SAME_PLACE


@dataclass(frozen=True)
class PassagesOfNeighbors:
    """First passages of new cells, from those of their nearest cells in a graph, and means of what these have.

    A new cell x has f(x) = Σ_y P_xy e^{-cost_xy} f(y) with P_xy ∝ A_xy s_y: the equation that the graph's own cells
    solve. ``passages`` has a column for each set of targets, ``values`` for each mean. A cell in the place of one of
    the graph has its values.
    """

    kernel: Kernel
    bandwidths: np.ndarray
    scale: np.ndarray
    passages: np.ndarray
    values: np.ndarray
    unit: float
    depth: float

    def __call__(self, indices: np.ndarray, distances: np.ndarray) -> np.ndarray:
        """Passages and means, as columns, of cells with these nearest cells of the graph."""
        far = distances.astype(np.float64)
        own = np.maximum(far[:, -1:], self.bandwidths.min())
        weight = np.log(self.kernel(far, own, self.bandwidths[indices])) + np.log(self.scale[indices])
        total, leaving = logsumexp(weight, axis=1), weight - step_costs(far, self.unit, self.depth)
        passages = [total - logsumexp(leaving - column[indices], axis=1) for column in self.passages.T]
        share = softmax(weight, axis=1)
        means = [(share * column[indices]).sum(axis=1) for column in self.values.T]
        nearest = indices[:, 0]
        same = far[:, 0] <= SAME_PLACE * self.bandwidths[nearest]
        known = np.hstack([self.passages[nearest], self.values[nearest]])
        return np.where(same[:, None], known, np.column_stack([*passages, *means]))
