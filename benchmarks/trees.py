"""Two scores of dynbenchmark (Saelens et al. 2019) for trees: similarity of topologies, and distances along them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.integrate import quad
from scipy.sparse.csgraph import shortest_path

# Half the width of a peak in the density of frequencies, as in dynbenchmark.
WIDTH = 0.1


@dataclass(frozen=True)
class Tree:
    """Edges as (parent, child), away from the root, with their lengths."""

    edges: list[tuple[str, str]]
    lengths: np.ndarray

    def nodes(self) -> list[str]:
        """From the root, the child with the longest way to an end first: so trees of the same shape match."""
        children: dict[str, list[tuple[str, float]]] = {}
        for (parent, child), length in zip(self.edges, self.lengths, strict=True):
            children.setdefault(parent, []).append((child, float(length)))

        def farthest(node: str) -> float:
            return max((length + farthest(child) for child, length in children.get(node, [])), default=0.0)

        def below(node: str) -> list[str]:
            onward = sorted(children.get(node, []), key=lambda edge: -edge[1] - farthest(edge[0]))
            return [node, *(name for child, _ in onward for name in below(child))]

        (root,) = {parent for parent, _ in self.edges} - {child for _, child in self.edges}
        return below(root)

    def adjacency(self) -> np.ndarray:
        """Lengths of edges between nodes, in both directions."""
        at = {name: i for i, name in enumerate(self.nodes())}
        A = np.zeros((len(at), len(at)))
        for (parent, child), length in zip(self.edges, self.lengths, strict=True):
            A[at[parent], at[child]] = A[at[child], at[parent]] = length
        return A

    def distances(self, edge: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Distances through the tree between cells, each at a position from 0 to 1 on an edge."""
        at = {name: i for i, name in enumerate(self.nodes())}
        ends = np.array([[at[parent], at[child]] for parent, child in self.edges])[edge]
        between = shortest_path(self.adjacency(), directed=False)
        along = np.asarray(position) * self.lengths[edge]
        to_end = np.column_stack([along, self.lengths[edge] - along])
        ways = [
            to_end[:, None, i] + between[ends[:, None, i], ends[None, :, j]] + to_end[None, :, j]
            for i in (0, 1)
            for j in (0, 1)
        ]
        same = edge[:, None] == edge[None, :]
        return np.where(same, np.abs(along[:, None] - along[None, :]), np.min(ways, axis=0))


def him(one: Tree, other: Tree) -> float:
    """1 - HIM distance of two trees: 1 for the same tree, whatever its scale.

    The distance (Jurman et al. 2015) is the root mean square of a local part, Hamming's, which compares edges, and a
    global one, Ipsen's and Mikhailov's, which compares the frequencies at which the trees would swing. As in
    dynbenchmark, edges are weighted by their share of the tree's length.
    """
    n = max(len(one.edges), len(other.edges)) + 1
    A, B = (np.pad(M / M.sum(), (0, n - len(M))) for M in (one.adjacency(), other.adjacency()))
    hamming = np.abs(A - B).sum() / (n * (n - 1))
    a, b = _density(A), _density(B)
    peaks = np.sort(np.concatenate([a.peaks, b.peaks]))
    inner = quad(lambda w: (a(w) - b(w)) ** 2, 0.0, 2.0, points=np.unique(peaks[peaks > 0]), limit=500)[0]
    outer = quad(lambda w: (a(w) - b(w)) ** 2, 2.0, np.inf)[0]
    return float(1.0 - np.sqrt(0.5 * (hamming**2 + inner + outer)))


@dataclass(frozen=True)
class _Density:
    """Peaks of one width around frequencies, with a total of one above zero."""

    peaks: np.ndarray

    def __call__(self, w: float) -> float:
        total = (np.pi / 2 + np.arctan(self.peaks / WIDTH)).sum()
        return float((WIDTH / ((w - self.peaks) ** 2 + WIDTH**2)).sum() / total)


def _density(A: np.ndarray) -> _Density:
    """Of the square roots of all but the smallest eigenvalue of the Laplacian."""
    values = np.linalg.eigvalsh(np.diag(A.sum(axis=1)) - A)[1:]
    return _Density(np.sqrt(np.maximum(values, 0.0)))
