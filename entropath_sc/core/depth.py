"""How deep to diffuse: the paper's entropy knee, and the self-consistency of the dissimilarity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.stats import rankdata

from .parallel import on_one_blas_thread


@dataclass(frozen=True)
class Knee:
    """Entropy of the spectrum at depths 1..max_depth, its knee, and where the knee lies on shorter curves."""

    entropy: np.ndarray
    depth: int
    depth_range: tuple[int, int]


def singular_values(T: sp.csr_matrix | np.ndarray) -> np.ndarray:
    """Singular values of T, from the symmetric eigenvalues of T Tᵀ: twice as fast as an SVD.

    Values below 1e-8 are lost, but they are also lost in the entropy.
    """
    gram = T @ T.T
    gram = gram.toarray() if sp.issparse(gram) else gram
    return np.sqrt(np.maximum(_eigenvalues(gram)[::-1], 0.0))


@on_one_blas_thread
def _eigenvalues(symmetric: np.ndarray) -> np.ndarray:
    return scipy.linalg.eigvalsh(symmetric, overwrite_a=True, check_finite=False, driver="evr")


def von_neumann_entropy(spectrum: np.ndarray, max_depth: int) -> np.ndarray:
    """Entropy of spectrum^t, normalised to sum to one, for t = 1..max_depth."""
    log_values = np.log(spectrum[spectrum > 0])
    entropy = np.empty(max_depth)
    for t in range(1, max_depth + 1):
        p = np.exp(t * (log_values - log_values.max()))
        p /= p.sum()
        p = p[p > 0]
        entropy[t - 1] = -(p * np.log(p)).sum()
    return entropy


def find_knee(curve: np.ndarray) -> int:
    """Index where two straight lines, fitted on either side and sharing that point, miss the curve least."""
    n = len(curve)
    if n < 4:
        return 0
    x = np.arange(n, dtype=np.float64)
    errors = np.full(n, np.inf)
    for i in range(1, n - 1):
        errors[i] = _line_error(x[: i + 1], curve[: i + 1]) + _line_error(x[i:], curve[i:])
    return int(errors.argmin())


def _line_error(x: np.ndarray, y: np.ndarray) -> float:
    dx, dy = x - x.mean(), y - y.mean()
    slope = (dx @ dy) / (dx @ dx)
    return float(np.abs(dy - slope * dx).sum())


def entropy_knee(T: sp.csr_matrix | np.ndarray, max_depth: int) -> Knee:
    """The paper's depth: the knee of the von Neumann entropy of the powers of T."""
    entropy = von_neumann_entropy(singular_values(T), max_depth)
    cuts = np.unique(np.linspace(max_depth / 2, max_depth, 6).astype(int))
    knees = [find_knee(entropy[:cut]) + 1 for cut in cuts if cut > 0]
    return Knee(entropy, knees[-1], (min(knees), max(knees)))


# D(t/2) and D(t) rank this many pairs, and at least this alike, as long as both are geodesic.
CONSISTENCY_PAIRS = 100_000
CONSISTENCY = 0.997

# What is geodesic at this time is not followed further: on most data deeper kernels only blur it. It is reached from
# a short time by so many doublings.
DEEPEST = 7.0
N_DOUBLINGS = 3


class ConsistencyWalk:
    """Follows the dissimilarity as t doubles: in the geodesic regime t D(t) does not change, so D keeps its ranks."""

    def __init__(self, n_nodes: int, threshold: float = CONSISTENCY) -> None:
        self._pairs = np.random.default_rng(0).integers(n_nodes, size=(2, CONSISTENCY_PAIRS))
        self._last: np.ndarray | None = None
        self._threshold = threshold
        self.times: list[float] = []
        self.agreement: list[float] = []

    def keeps(self, time: float, kernel: np.ndarray) -> bool:
        """Whether the pairs are still ranked as at half the time; true for the first time."""
        # The logarithm is monotone: ranks of the kernel are ranks of D.
        ranks = rankdata(kernel[self._pairs[0], self._pairs[1]])
        agreement = 1.0 if self._last is None else float(np.corrcoef(self._last, ranks)[0, 1])
        self._last = ranks
        self.times.append(time)
        self.agreement.append(agreement)
        return agreement >= self._threshold
