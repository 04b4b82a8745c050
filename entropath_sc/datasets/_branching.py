from __future__ import annotations

import numpy as np
import scanpy as sc
from anndata import AnnData

# A trunk that splits in two, one of which splits again: (name, parent, start, end) in true time.
SEGMENTS = (
    ("trunk", None, 0.0, 0.35),
    ("progenitor", "trunk", 0.35, 0.65),
    ("fate A", "trunk", 0.35, 1.0),
    ("fate B", "progenitor", 0.65, 1.0),
    ("fate C", "progenitor", 0.65, 1.0),
)


def branching(
    n_cells: int = 2000,
    n_genes: int = 500,
    *,
    densities: tuple[float, float, float, float, float] = (1.0, 1.0, 1.0, 0.5, 0.25),
    dropout: float = 0.1,
    random_state: int = 0,
) -> AnnData:
    """Generate cells on a tree that branches twice, with their true time, ready for `ep.tl`.

    The trunk splits into fate A and a progenitor, which splits into fates B and C. Each segment moves the log
    expression of all genes along a random direction. Counts are Poisson with an uneven sequencing depth. They are
    normalised, logged and reduced to 30 principal components.

    Parameters
    ----------
    n_cells, n_genes
        Size of the data.
    densities
        Relative number of cells per unit of time on the trunk, the progenitor and the fates A, B and C. Lower one to
        make a branch rare.
    dropout
        Probability that a count is lost. A larger value adds noise.
    random_state
        Seed.

    Returns
    -------
    AnnData with `obs['time']` (true, 0 to 1), `obs['branch']`, `layers['counts']`, `obsm['X_pca']`, and the earliest
    cell's barcode in `uns['root']`.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> ep.datasets.branching(n_cells=200).shape
    (200, 500)
    """
    rng = np.random.default_rng(random_state)
    lengths = np.array([end - begin for _, _, begin, end in SEGMENTS])
    share = lengths * np.asarray(densities, dtype=float)
    segment = np.sort(rng.choice(len(SEGMENTS), size=n_cells, p=share / share.sum()))
    progress = rng.uniform(size=n_cells)
    direction = rng.normal(scale=3.0, size=(len(SEGMENTS), n_genes))
    begins: dict[str | None, np.ndarray] = {None: rng.normal(scale=0.5, size=n_genes)}
    log_rate = np.empty((n_cells, n_genes))
    time = np.empty(n_cells)
    for i, (name, parent, begin, end) in enumerate(SEGMENTS):
        inside = segment == i
        time[inside] = begin + (end - begin) * progress[inside]
        log_rate[inside] = begins[parent] + np.outer(time[inside] - begin, direction[i])
        begins[name] = begins[parent] + (end - begin) * direction[i]
    rate = np.exp(log_rate)
    rate *= rng.lognormal(np.log(2.0 * n_genes), 0.3, size=(n_cells, 1)) / rate.sum(axis=1, keepdims=True)
    counts = rng.poisson(rate) * (rng.uniform(size=rate.shape) >= dropout)

    adata = AnnData(counts.astype(np.float32))
    adata.obs_names = [f"cell_{i}" for i in range(n_cells)]
    adata.var_names = [f"gene_{i}" for i in range(n_genes)]
    adata.obs["time"] = time
    adata.obs["branch"] = np.array([name for name, *_ in SEGMENTS])[segment]
    adata.obs["branch"] = adata.obs["branch"].astype("category")
    adata.uns["root"] = adata.obs_names[int(time.argmin())]
    adata.layers["counts"] = adata.X.copy()
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    sc.pp.pca(adata, n_comps=min(30, n_cells - 1, n_genes - 1), random_state=random_state)
    return adata
