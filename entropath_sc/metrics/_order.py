from __future__ import annotations

import numpy as np
from anndata import AnnData
from scipy.stats import kendalltau, spearmanr

from ._fields import check_lengths, field


def pseudotime_agreement(
    pseudotime: np.ndarray | str, truth: np.ndarray | str, *, adata: AnnData | None = None
) -> dict[str, float]:
    """Rank correlations of a pseudotime with the true time, or with another pseudotime.

    Parameters
    ----------
    pseudotime, truth
        One number for each cell, or names of columns of `adata.obs`. Cells where either is not finite are left out.
    adata
        Object that holds the named fields.

    Returns
    -------
    `spearman` and `kendall`; 1 is the same order, -1 the reverse.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> found = ep.metrics.pseudotime_agreement([0.0, 0.5, 1.0], [1.0, 2.0, 9.0])
    >>> round(found["spearman"], 6), round(found["kendall"], 6)
    (1.0, 1.0)
    """
    pseudotime = np.asarray(field(pseudotime, adata), dtype=np.float64)
    truth = np.asarray(field(truth, adata), dtype=np.float64)
    check_lengths(pseudotime=pseudotime, truth=truth)
    known = np.isfinite(pseudotime) & np.isfinite(truth)
    a, b = pseudotime[known], truth[known]
    return {"spearman": float(spearmanr(a, b).statistic), "kendall": float(kendalltau(a, b).statistic)}
