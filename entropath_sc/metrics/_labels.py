from __future__ import annotations

import numpy as np
from anndata import AnnData

from ..core.parallel import without_openmp
from ._fields import check_lengths, field


def branch_silhouette(embedding: np.ndarray | str, labels: np.ndarray | str, *, adata: AnnData | None = None) -> float:
    """Silhouette of the labels in the embedding: how far branches or cell types are apart.

    Parameters
    ----------
    embedding
        Coordinates, or the name of a field of `adata.obsm`.
    labels
        One label for each cell, or the name of a column of `adata.obs`.
    adata
        Object that holds the named fields.

    Returns
    -------
    Between -1 and 1.

    Examples
    --------
    >>> import numpy as np, entropath_sc as ep
    >>> ep.metrics.branch_silhouette(np.array([[0.0], [0.1], [9.0], [9.1]]), [0, 0, 1, 1]) > 0.9
    True
    """
    from sklearn.metrics import silhouette_score

    embedding, labels = np.asarray(field(embedding, adata)), np.asarray(field(labels, adata))
    check_lengths(embedding=embedding, labels=labels)
    with without_openmp():
        return float(silhouette_score(embedding, labels))


def kmeans_agreement(
    embedding: np.ndarray | str, labels: np.ndarray | str, *, random_state: int = 0, adata: AnnData | None = None
) -> dict[str, float]:
    """Agreement of the labels with k-means on the standardised embedding, with as many clusters as labels.

    Parameters
    ----------
    embedding
        Coordinates, or the name of a field of `adata.obsm`.
    labels
        One label for each cell, or the name of a column of `adata.obs`.
    random_state
        Seed of k-means.
    adata
        Object that holds the named fields.

    Returns
    -------
    `homogeneity`, `ami` (adjusted mutual information), `ari` (adjusted Rand index) and `nmi`.

    Examples
    --------
    >>> import numpy as np, entropath_sc as ep
    >>> found = ep.metrics.kmeans_agreement(np.array([[0.0], [0.1], [9.0], [9.1]]), [0, 0, 1, 1])
    >>> found["ari"]
    1.0
    """
    from sklearn import metrics
    from sklearn.cluster import KMeans
    from sklearn.preprocessing import StandardScaler

    embedding, labels = np.asarray(field(embedding, adata)), np.asarray(field(labels, adata))
    check_lengths(embedding=embedding, labels=labels)
    kmeans = KMeans(len(np.unique(labels)), n_init=10, random_state=random_state)
    with without_openmp():
        clusters = kmeans.fit_predict(StandardScaler().fit_transform(embedding))
    scores = {
        "homogeneity": metrics.homogeneity_score,
        "ami": metrics.adjusted_mutual_info_score,
        "ari": metrics.adjusted_rand_score,
        "nmi": metrics.normalized_mutual_info_score,
    }
    return {name: float(score(labels, clusters)) for name, score in scores.items()}
