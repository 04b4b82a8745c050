"""The affinity of two cells: exp(-(d/s)^decay), with d their distance and s a bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BANDWIDTHS = ("tempered", "adaptive", "fixed", "larger")

# Fitted on generated manifolds (seeds 100, 101 and 300 to 302 of benchmarks/quality.py): the width of a fixed or
# tempered bandwidth relative to the median distance, and how far a tempered one follows each cell's own scale
# (0: one length for all cells, 1: each cell's own).
WIDTH = 0.85
TEMPER = 0.5

# Numerical. A cell whose neighbours are all its duplicates has no scale of its own: it gets this fraction of the mean.
SMALLEST_RELATIVE_BANDWIDTH = 1e-3
# Numerical. An edge to a cell far from all others keeps this much, so that underflow cuts no cell off.
SMALLEST_AFFINITY = 1e-30


def positive_bandwidths(distances: np.ndarray) -> np.ndarray:
    """Distances to the farthest neighbour as bandwidths, with a floor for cells among their duplicates."""
    bandwidths = np.maximum(distances.astype(np.float64), SMALLEST_RELATIVE_BANDWIDTH * distances.mean())
    return bandwidths if bandwidths.any() else np.ones_like(bandwidths)


@dataclass(frozen=True)
class Kernel:
    """The affinity as a function of a distance and of the bandwidths σ of both cells.

    A cell's σ is the distance to the farthest of its neighbours. The bandwidth s of a pair is

    - ``adaptive``: sqrt(σ_i σ_j); with a decay of 2 the paper's kernel for manifolds
    - ``larger``: max(σ_i, σ_j); with a decay of 40 the paper's α-decay kernel for cells
    - ``fixed``: one for all pairs, relative to ``length``, the median distance between neighbours
    - ``tempered``: half way between fixed and adaptive, relative to ``typical``, the geometric mean of all σ

    A steep adaptive kernel stretches dense regions, a fixed one sparse regions; half way, distances keep their lengths.
    """

    decay: float
    bandwidth: str
    length: float
    typical: float

    @classmethod
    def fitted(cls, decay: float, bandwidth: str, distances: np.ndarray, bandwidths: np.ndarray) -> Kernel:
        """The kernel of cells with these distances to neighbours, and these bandwidths."""
        length = float(np.median(distances)) if len(distances) else 0.0
        return cls(decay, bandwidth, length or float(bandwidths.mean()), float(np.exp(np.log(bandwidths).mean())))

    def __call__(self, distances: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Affinities of pairs with these distances and bandwidths."""
        if self.bandwidth == "adaptive":
            scale = np.sqrt(one * other)
        elif self.bandwidth == "larger":
            scale = np.maximum(one, other)
        else:
            temper = TEMPER if self.bandwidth == "tempered" else 0.0
            scale = WIDTH * self.length * (one / self.typical * (other / self.typical)) ** (0.5 * temper)
        return np.maximum(np.exp(-((distances / scale) ** self.decay)), SMALLEST_AFFINITY)
