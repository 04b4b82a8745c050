from __future__ import annotations

import numpy as np
from anndata import AnnData

from ..core.parallel import without_openmp
from ._fields import check_lengths, field


def trustworthiness(
    reference: np.ndarray | str, embedding: np.ndarray | str, *, n_neighbors: int = 15, adata: AnnData | None = None
) -> float:
    """Whether neighbours in the embedding are neighbours in the reference (Venna and Kaski 2006).

    Parameters
    ----------
    reference, embedding
        Coordinates of the same cells, or names of fields of `adata.obsm`.
    n_neighbors
        Size of the neighbourhoods; less than half the cells.
    adata
        Object that holds the named fields.

    Returns
    -------
    Between 0 and 1; 1 where no false neighbour appears.

    Examples
    --------
    >>> import numpy as np, entropath_sc as ep
    >>> points = np.random.default_rng(0).normal(size=(100, 2))
    >>> ep.metrics.trustworthiness(points, 2 * points)
    1.0
    """
    from sklearn import manifold

    reference, embedding = np.asarray(field(reference, adata)), np.asarray(field(embedding, adata))
    check_lengths(reference=reference, embedding=embedding)
    n = len(reference)
    if not 1 <= n_neighbors < n / 2:
        raise ValueError(f"n_neighbors={n_neighbors} must be between 1 and half the number of cells, {n}.")
    with without_openmp():
        return float(manifold.trustworthiness(reference, embedding, n_neighbors=n_neighbors))


def continuity(
    reference: np.ndarray | str, embedding: np.ndarray | str, *, n_neighbors: int = 15, adata: AnnData | None = None
) -> float:
    """Whether neighbours in the reference are still neighbours in the embedding.

    Parameters
    ----------
    reference, embedding
        Coordinates of the same cells, or names of fields of `adata.obsm`.
    n_neighbors
        Size of the neighbourhoods; less than half the cells.
    adata
        Object that holds the named fields.

    Returns
    -------
    Between 0 and 1; 1 where no neighbour is lost.

    Examples
    --------
    >>> import numpy as np, entropath_sc as ep
    >>> points = np.random.default_rng(0).normal(size=(100, 2))
    >>> ep.metrics.continuity(points, 2 * points)
    1.0
    """
    return trustworthiness(embedding, reference, n_neighbors=n_neighbors, adata=adata)
