from __future__ import annotations

import functools

import numba
import numpy as np
import scipy.sparse as sp
from anndata import AnnData
from scipy.sparse.csgraph import dijkstra
from scipy.spatial.distance import cdist, pdist
from scipy.stats import rankdata

from ..core.parallel import over_rows, without_openmp
from ._fields import check_finite, check_lengths, field

# Numerical: sums of edges without a length are below this.
_NO_LENGTH = 1e-300


def geodesic_correlation(
    estimate: np.ndarray | str,
    geodesic: np.ndarray | str,
    *,
    method: str = "spearman",
    rowwise: bool = True,
    adata: AnnData | None = None,
) -> float:
    """Correlation of distances with the true, geodesic ones.

    Parameters
    ----------
    estimate
        Distances (a square matrix), coordinates (their Euclidean distances are taken), or the name of a field of
        `adata.obsp` or `adata.obsm`.
    geodesic
        True distances, square, or the name of a field of `adata.obsp`.
    method
        `'spearman'` or `'pearson'`.
    rowwise
        Mean over cells of the correlation of their distances, as in the paper, instead of one correlation over all.
    adata
        Object that holds the named fields.

    Returns
    -------
    The correlation.

    Examples
    --------
    >>> import numpy as np, entropath_sc as ep
    >>> line = np.arange(5.0)[:, None]
    >>> round(ep.metrics.geodesic_correlation(line, np.abs(line - line.T)), 6)
    1.0
    """
    if method not in ("spearman", "pearson"):
        raise ValueError(f"method={method!r} is not known. Choose 'spearman' or 'pearson'.")
    estimate, geodesic = field(estimate, adata), np.asarray(field(geodesic, adata), dtype=np.float64)
    if geodesic.ndim != 2 or geodesic.shape[0] != geodesic.shape[1]:
        raise ValueError(f"geodesic must be square, not {geodesic.shape}.")
    estimate = np.asarray(estimate, dtype=np.float64)
    check_lengths(estimate=estimate, geodesic=geodesic)
    check_finite(estimate=estimate, geodesic=geodesic)
    D = estimate if estimate.shape == geodesic.shape else cdist(estimate, estimate)
    if not rowwise:
        above = np.triu_indices(len(geodesic), 1)
        D, geodesic = D[above][None, :], geodesic[above][None, :]
    correlations = np.empty(len(D))
    over_rows(functools.partial(_row_correlations, D, geodesic, method == "spearman", correlations), len(D))
    return float(correlations.mean())


@numba.njit(nogil=True, cache=True)
def _row_correlations(A, B, by_rank, correlations, begin, end):
    for i in range(begin, end):
        a, b = (_ranks(A[i]), _ranks(B[i])) if by_rank else (A[i], B[i])
        a, b = a - a.mean(), b - b.mean()
        correlations[i] = (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())


@numba.njit(cache=True)
def _ranks(values):
    """Ranks, ties sharing their mean."""
    n = len(values)
    order = np.argsort(values)
    ranks = np.empty(n)
    first = 0
    while first < n:
        last = first
        while last + 1 < n and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in range(first, last + 1):
            ranks[order[place]] = 0.5 * (first + last)
        first = last + 1
    return ranks


def shortest_paths(
    graph: sp.spmatrix | str, *, sources: np.ndarray | None = None, adata: AnnData | None = None
) -> np.ndarray:
    """Lengths of the shortest paths on a neighbour graph, whose edges may be stored in one direction only.

    Parameters
    ----------
    graph
        Sparse neighbour distances, such as scanpy's `adata.obsp['distances']`, or the name of a field of
        `adata.obsp`.
    sources
        Positions of the cells to start from; by default all.
    adata
        Object that holds the named field.

    Returns
    -------
    Array of sources × cells. Pairs in different components get twice the longest path there is.

    Examples
    --------
    >>> import scipy.sparse as sp, entropath_sc as ep
    >>> ep.metrics.shortest_paths(sp.csr_matrix([[0, 1.0, 0], [0, 0, 2.0], [0, 0, 0]]), sources=[0])
    array([[0., 1., 3.]])
    """
    lengths = dijkstra(_both_ways(field(graph, adata)), directed=False, indices=sources)
    lengths[lengths < _NO_LENGTH] = 0.0
    joined = np.isfinite(lengths)
    return lengths if joined.all() else np.where(joined, lengths, 2 * lengths[joined].max())


def _both_ways(graph: sp.spmatrix | np.ndarray) -> sp.csr_matrix:
    """Edges in both directions, also those between duplicates, which have no length."""
    graph = sp.csr_matrix(graph, dtype=np.float64)
    if graph.shape[0] != graph.shape[1]:
        raise ValueError(f"graph must be square, not {graph.shape}.")
    check_finite(graph=graph.data)
    if graph.data.min(initial=0.0) < 0:
        raise ValueError("graph holds negative lengths. Pass distances, such as adata.obsp['distances'].")
    # A sparse matrix forgets zeros; the smallest number, and the sum of many, changes no other length.
    apart = np.maximum(graph.data, np.finfo(float).tiny)
    graph = sp.csr_matrix((apart, graph.indices, graph.indptr), shape=graph.shape)
    return graph.maximum(graph.T)


def demap(
    reference: np.ndarray | sp.spmatrix | str,
    embedding: np.ndarray | str,
    *,
    n_neighbors: int = 15,
    n_cells: int = 500,
    n_repeats: int = 10,
    random_state: int = 0,
    adata: AnnData | None = None,
) -> tuple[float, float]:
    """Denoised embedding manifold preservation (Moon et al. 2019), on random subsets of the cells.

    It compares distances in the embedding with shortest paths between neighbours in the reference.

    Parameters
    ----------
    reference
        Coordinates in which neighbours are searched, sparse neighbour distances, or the name of a field of `adata.obsm`
        or `adata.obsp`.
    embedding
        Coordinates of the same cells, or the name of a field of `adata.obsm`.
    n_neighbors
        Size of the neighbourhoods in the reference.
    n_cells, n_repeats
        Cells in a subset (at most all), and number of subsets. More give a steadier score and take longer.
    random_state
        Seed of the subsets.
    adata
        Object that holds the named fields.

    Returns
    -------
    Mean and standard deviation over the subsets of the Spearman correlation of geodesic and embedded distances.

    Examples
    --------
    >>> import numpy as np, entropath_sc as ep
    >>> line = np.arange(100.0)[:, None]
    >>> mean, sd = ep.metrics.demap(line, line, n_neighbors=3)
    >>> round(mean, 6)
    1.0
    """
    reference, embedding = field(reference, adata), np.asarray(field(embedding, adata))
    check_lengths(reference=reference, embedding=embedding)
    check_finite(embedding=embedding)
    if not sp.issparse(reference):
        from sklearn.neighbors import kneighbors_graph

        check_finite(reference=reference)
        with without_openmp():
            reference = kneighbors_graph(reference, n_neighbors, mode="distance")
    graph = _both_ways(reference)
    rng = np.random.default_rng(random_state)
    scores = []
    for _ in range(n_repeats):
        subset = rng.choice(len(embedding), size=min(n_cells, len(embedding)), replace=False)
        geodesic = dijkstra(graph, directed=False, indices=subset)[:, subset][np.triu_indices(len(subset), 1)]
        joined = np.isfinite(geodesic)
        ranks = rankdata(geodesic[joined]), rankdata(pdist(embedding[subset])[joined])
        scores.append(float(np.corrcoef(*ranks)[0, 1]))
    return float(np.mean(scores)), float(np.std(scores))
