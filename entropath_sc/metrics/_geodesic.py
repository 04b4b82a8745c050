from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra
from scipy.spatial.distance import cdist, pdist
from scipy.stats import rankdata
from sklearn.neighbors import kneighbors_graph


def geodesic_correlation(
    estimate: np.ndarray, geodesic: np.ndarray, *, method: str = "spearman", rowwise: bool = True
) -> float:
    """Correlation of distances with the geodesic ones.

    Parameters
    ----------
    estimate
        Distances (a square matrix), or coordinates whose Euclidean distances are meant.
    geodesic
        True distances, square.
    method
        `'spearman'` or `'pearson'`.
    rowwise
        Mean over cells of the correlation of their distances, as in the paper, instead of one correlation over all.

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
    geodesic = np.asarray(geodesic, dtype=np.float64)
    if geodesic.ndim != 2 or geodesic.shape[0] != geodesic.shape[1]:
        raise ValueError(f"geodesic must be square, not {geodesic.shape}.")
    if len(estimate) != len(geodesic):
        raise ValueError(f"estimate has {len(estimate)} rows, geodesic {len(geodesic)}.")
    D = np.asarray(estimate if np.shape(estimate) == geodesic.shape else cdist(estimate, estimate), dtype=np.float64)
    if not rowwise:
        above = np.triu_indices(len(geodesic), 1)
        D, geodesic = D[above][None, :], geodesic[above][None, :]
    if method == "spearman":
        D, geodesic = rankdata(D, axis=1), rankdata(geodesic, axis=1)
    return float(_row_pearson(D, geodesic).mean())


def _row_pearson(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    return (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))


def demap(
    reference: np.ndarray | sp.spmatrix,
    embedding: np.ndarray,
    *,
    n_neighbors: int = 15,
    n_cells: int = 500,
    n_repeats: int = 10,
    random_state: int = 0,
) -> tuple[float, float]:
    """Denoised embedding manifold preservation (Moon et al. 2019), on random subsets of the cells.

    Parameters
    ----------
    reference
        Representation in which shortest paths on a neighbour graph are the geodesic, or sparse neighbour distances.
    embedding
        Coordinates of the same cells.
    n_neighbors
        Size of the neighbourhoods of that graph.
    n_cells, n_repeats
        Cells in a subset (at most all), and number of subsets.
    random_state
        Seed of the subsets.

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
    graph = reference if sp.issparse(reference) else kneighbors_graph(reference, n_neighbors, mode="distance")
    graph = graph.maximum(graph.T)
    embedding = np.asarray(embedding)
    if graph.shape[0] != len(embedding):
        raise ValueError(f"reference has {graph.shape[0]} cells, embedding {len(embedding)}.")
    rng = np.random.default_rng(random_state)
    scores = []
    for _ in range(n_repeats):
        subset = rng.choice(len(embedding), size=min(n_cells, len(embedding)), replace=False)
        geodesic = dijkstra(graph, directed=False, indices=subset)[:, subset][np.triu_indices(len(subset), 1)]
        joined = np.isfinite(geodesic)
        ranks = rankdata(geodesic[joined]), rankdata(pdist(embedding[subset])[joined])
        scores.append(float(np.corrcoef(*ranks)[0, 1]))
    return float(np.mean(scores)), float(np.std(scores))
