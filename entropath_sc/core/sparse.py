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
    # Each entry is written, and only kept ones move on to the next place: the last one needs a place too.
    most = int((M.indptr[nodes + 1] - M.indptr[nodes]).sum()) + 1
    indptr = np.zeros(len(nodes) + 1, dtype=M.indptr.dtype)
    columns, values = np.empty(most, dtype=M.indices.dtype), np.empty(most, dtype=M.data.dtype)
    n = _inside(M.indptr, M.indices, M.data, place, nodes, indptr, columns, values)
    return sp.csr_matrix((values[:n], columns[:n], indptr), shape=(len(nodes), len(nodes)))


# Compiled functions fill arrays that they are given. To return an array, numba calls Python, where a waiting Ctrl-C
# would come as an error of numba's.
@numba.njit(nogil=True, cache=True)
def _inside(indptr, indices, data, place, nodes, beginnings, columns, values):
    """The beginnings of the rows, the columns of the kept entries, and their values; how many these are."""
    n = 0
    for i in range(len(nodes)):
        for at in range(np.uint64(indptr[nodes[i]]), np.uint64(indptr[nodes[i] + 1])):
            columns[n], values[n] = place[np.uint32(indices[at])], data[at]
            n += columns[n] >= 0
        beginnings[i + 1] = n
    return n


def rearranged(M: sp.csr_matrix, order: np.ndarray) -> sp.csr_matrix:
    """The same matrix with its rows and columns in another order."""
    return M[order][:, order]


def have_common(M: sp.csr_matrix, least: int, wanted: np.ndarray) -> np.ndarray:
    """Whether the two nodes of each wanted entry of a symmetric matrix have so many neighbours in common."""
    found = np.zeros(M.nnz, dtype=bool)
    over_rows(lambda first, last: _have_common(M.indptr, M.indices, least, wanted, found, first, last), M.shape[0])
    return found


@numba.njit(nogil=True, cache=True)
def _have_common(indptr, indices, least, wanted, found, first, last):
    marked = np.full(len(indptr) - 1, -1, dtype=indices.dtype)
    for i in range(first, last):
        for at in range(indptr[i], indptr[i + 1]):
            marked[np.uint32(indices[at])] = i
        for at in range(indptr[i], indptr[i + 1]):
            if wanted[at]:
                n, j = 0, np.uint32(indices[at])
                k, stop = indptr[j], indptr[j + 1]
                while n < least and k < stop:
                    n += marked[np.uint32(indices[k])] == i
                    k += 1
                found[at] = n >= least


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
    n = M.shape[0]
    part, first, lower, met = np.full(n, -1), np.arange(n), np.empty(n, np.int64), np.empty(n, np.int64)
    n_met = _merge_downward(M.indptr, M.indices, downward, least, part, first, lower, met)
    return part, first, lower[:n_met], met[:n_met]


@numba.njit(nogil=True, cache=True)
def _merge_downward(indptr, indices, downward, least, part, first, lower, met):
    n = len(indptr) - 1
    parent, size, place = np.full(n, -1, np.int32), np.zeros(n, np.int32), np.empty(n, np.int32)
    above = np.empty(n, np.uint32)
    n_met = 0
    for at in range(len(downward)):
        x = downward[at]
        place[x] = at
        parent[x] = x
        # Half of the neighbours are there, which no processor can guess: they are picked without a branch.
        n_above = 0
        for k in range(indptr[x], indptr[x + 1]):
            above[n_above] = indices[k]
            n_above += parent[np.uint32(indices[k])] >= 0
        root = x
        for k in range(n_above):
            other = np.int64(parent[above[k]])
            if other == root:
                continue
            while parent[other] != other:
                parent[other] = parent[parent[other]]
                other = np.int64(parent[other])
            parent[above[k]] = other
            if other == root:
                continue
            one = root
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
            root = one
        size[root] += 1
    for x in downward:
        root = np.int64(x)
        while parent[root] != root:
            parent[root] = parent[parent[root]]
            root = np.int64(parent[root])
        part[x] = root
    return n_met


def product(M: sp.csr_matrix, factors: np.ndarray, X: np.ndarray, out: np.ndarray) -> None:
    """Set ``out`` to ``factors`` times M X, entry by entry, on all cores; fastest with a multiple of 8 columns."""
    over_rows(lambda first, last: _product(M.indptr, M.indices, M.data, factors, X, out, first, last), M.shape[0])


@numba.njit(nogil=True, cache=True)
def _product(indptr, indices, data, factors, X, out, first, last):
    total = np.empty(X.shape[1], X.dtype)
    for i in range(first, last):
        for c in range(len(total)):
            total[c] = 0
        # Unsigned, as numba would look at the sign of each index.
        for at in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            value, other = data[at], X[np.uint32(indices[at])]
            for c in range(len(total)):
                total[c] += value * other[c]
        for c in range(len(total)):
            out[i, c] = total[c] * factors[i, c]


def share_inside(M: sp.csr_matrix, nodes: np.ndarray, there: np.ndarray) -> float:
    """The share of the weight of the entries from some nodes, to nodes that are there, that leads to these again."""
    among = np.zeros(len(there), dtype=bool)
    among[nodes] = True
    return _share_inside(M.indptr, M.indices, M.data, nodes, among, there)


@numba.njit(nogil=True, cache=True)
def _share_inside(indptr, indices, data, nodes, among, there):
    inside, total = 0.0, 0.0
    for i in nodes:
        for at in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            j = np.uint32(indices[at])
            inside += data[at] * among[j]
            total += data[at] * there[j]
    return inside / total if total > 0 else 0.0
