"""Parts of sparse matrices, faster than by slicing and by products."""

from __future__ import annotations

import numba
import numpy as np
import scipy.sparse as sp

from .parallel import over_rows


def submatrix(M: sp.csr_matrix, nodes: np.ndarray) -> sp.csr_matrix:
    """The rows and columns of some nodes, in rising order."""
    place = np.full(M.shape[0], -1, dtype=M.indices.dtype)
    place[nodes] = np.arange(len(nodes), dtype=place.dtype)
    indptr, kept, columns = _inside(M.indptr, M.indices, place, nodes)
    return sp.csr_matrix((M.data[kept], columns, indptr), shape=(len(nodes), len(nodes)))


@numba.njit(nogil=True, cache=True)
def _inside(indptr, indices, place, nodes):
    """The beginnings of the rows, the positions of the kept entries, and their columns."""
    counts = np.zeros(len(nodes) + 1, dtype=indptr.dtype)
    for i in range(len(nodes)):
        n = 0
        for at in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            n += place[indices[at]] >= 0
        counts[i + 1] = counts[i] + n
    kept, columns = np.empty(counts[-1], dtype=np.int64), np.empty(counts[-1], dtype=indices.dtype)
    n = 0
    for node in nodes:
        for at in range(indptr[node], indptr[node + 1]):
            if place[indices[at]] >= 0:
                kept[n], columns[n] = at, place[indices[at]]
                n += 1
    return counts, kept, columns


def rearranged(M: sp.csr_matrix, order: np.ndarray) -> sp.csr_matrix:
    """The same matrix with its rows and columns in another order."""
    return M[order][:, order]


def have_common(M: sp.csr_matrix, least: int) -> np.ndarray:
    """Whether the two nodes of each entry of a symmetric matrix have so many neighbours in common."""
    found = np.zeros(M.nnz, dtype=bool)
    over_rows(lambda first, last: _have_common(M.indptr, M.indices, least, found, first, last), M.shape[0])
    return found


@numba.njit(nogil=True, cache=True)
def _have_common(indptr, indices, least, found, first, last):
    marked = np.full(len(indptr) - 1, -1, dtype=indices.dtype)
    for i in range(first, last):
        for at in range(indptr[i], indptr[i + 1]):
            marked[indices[at]] = i
        for at in range(indptr[i], indptr[i + 1]):
            n, j = 0, indices[at]
            for k in range(indptr[j], indptr[j + 1]):
                n += marked[indices[k]] == i
                if n >= least:
                    found[at] = True
                    break


def merge_downward(
    M: sp.csr_matrix, downward: np.ndarray, least: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Add nodes one by one, in the order given. Each joins the parts of its neighbours, which become one part.

    A part of ``least`` nodes or more is large. If only one of two parts that meet is large, its first node becomes the
    first of both. Returns four arrays:

    - the number of the part that each node is in at the end, -1 where it was not added;
    - the first node of each part, by its number;
    - for each time two large parts met, the first node of the later one;
    - and the node where they met.
    """
    return _merge_downward(M.indptr, M.indices, downward, least)


@numba.njit(nogil=True, cache=True)
def _merge_downward(indptr, indices, downward, least):
    n = len(indptr) - 1
    parent, first = np.full(n, -1), np.arange(n)
    size, place = np.zeros(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    lower, met = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    n_met = 0
    for at in range(len(downward)):
        x = downward[at]
        place[x] = at
        parent[x] = x
        for k in range(indptr[x], indptr[x + 1]):
            if parent[indices[k]] < 0:
                continue
            one, other = x, indices[k]
            while parent[one] != one:
                parent[one] = parent[parent[one]]
                one = parent[one]
            while parent[other] != other:
                parent[other] = parent[parent[other]]
                other = parent[other]
            if one == other:
                continue
            if place[first[one]] > place[first[other]]:
                one, other = other, one
            if size[other] >= least:
                if size[one] >= least:
                    lower[n_met], met[n_met] = first[other], x
                    n_met += 1
                else:
                    first[one] = first[other]
            if size[one] < size[other]:
                first[other] = first[one]
                one, other = other, one
            parent[other] = one
            size[one] += size[other]
        root = x
        while parent[root] != root:
            root = parent[root]
        size[root] += 1
    part = np.full(n, -1)
    for x in downward:
        root = x
        while parent[root] != root:
            parent[root] = parent[parent[root]]
            root = parent[root]
        part[x] = root
    return part, first, lower[:n_met], met[:n_met]


def product(M: sp.csr_matrix, factors: np.ndarray, X: np.ndarray, out: np.ndarray) -> None:
    """Set ``out`` to ``factors`` times M X, entry by entry, on all cores. The columns of X are next to each other."""
    over_rows(lambda first, last: _product(M.indptr, M.indices, M.data, factors, X, out, first, last), M.shape[0])


@numba.njit(nogil=True, cache=True)
def _product(indptr, indices, data, factors, X, out, first, last):
    for i in range(first, last):
        row = out[i]
        row[:] = 0
        for at in range(indptr[i], indptr[i + 1]):
            value, other = data[at], X[indices[at]]
            for c in range(len(row)):
                row[c] += value * other[c]
        row *= factors[i]
