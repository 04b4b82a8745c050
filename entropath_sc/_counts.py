"""From counts to a PCA: with scanpy in memory, or block by block. Both give the same, up to rounding."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.linalg
import scipy.sparse as sp
from anndata.io import read_elem, write_elem

from ._store import NO_X, counts_of
from .core.progress import Report
from .tl._blocks import Blocks

N_GENES = 2000
N_COMPONENTS = 50
# Bins of genes with similar means, in which their dispersions are compared: Seurat's number, and scanpy's.
N_BINS = 20
# The mean that scanpy gives to genes without counts.
NO_COUNTS = 1e-12

REFUSED = (
    "--preprocess starts from counts, and X holds other numbers. If it is normalised already, leave "
    "--preprocess out (a PCA is then needed in obsm/X_pca); else put the counts into X."
)


def preprocess(adata, n_neighbors: int) -> None:
    """From counts to neighbours, as scanpy's tutorials do."""
    import scanpy as sc

    if adata.X is None:
        raise KeyError(NO_X)
    totals = count_totals(adata.X)
    adata.layers["counts"] = adata.X.copy()
    sc.pp.normalize_total(adata, target_sum=middle_total(totals))
    sc.pp.log1p(adata)
    sc.pp.highly_variable_genes(adata, n_top_genes=min(N_GENES, adata.n_vars))
    sc.pp.pca(adata, n_comps=n_components(adata.n_obs, int(adata.var["highly_variable"].sum())))
    sc.pp.neighbors(adata, n_neighbors=n_neighbors)


def n_components(n_cells: int, n_genes: int) -> int:
    """As many as there can be, at most the usual number."""
    return max(1, min(N_COMPONENTS, n_cells - 1, n_genes - 1))


@dataclass(frozen=True)
class Prepared:
    """A PCA of counts, block by block: positions of the cells, and what scanpy would store with them.

    ``logged`` gives the normalised logarithms of a block of counts.
    """

    scores: Any
    logged: Logged
    var: pd.DataFrame
    loadings: np.ndarray
    offset: np.ndarray
    variance: np.ndarray
    variance_ratio: np.ndarray

    def write(self, store: Path) -> None:
        """Write what scanpy's functions leave: counts in a layer, logarithms in X, variable genes and the PCA."""
        import zarr

        written: Any = zarr.open_group(store, mode="r+", use_consolidated=False)
        for path in ("layers/counts", "obsp/distances", "obsp/connectivities", "uns/neighbors"):
            if path in written:
                del written[path]  # of other numbers
        written.require_group("layers")
        (store / "X").rename(store / "layers" / "counts")
        X = counts_of({"X": written["layers"]["counts"]})
        write_elem(written, "X", X.map_blocks(self.logged, dtype=self.logged(X._meta).dtype))
        var = read_elem(written["var"])
        write_elem(written, "var", var.assign(**{name: self.var[name].to_numpy() for name in self.var}))
        for place, name, value in (
            ("obsm", "X_pca", self.scores),
            ("varm", "PCs", self.loadings),
            ("uns", "log1p", {}),
            ("uns", "hvg", {"flavor": "seurat"}),
            (
                "uns",
                "pca",
                {
                    "params": {"zero_center": True, "use_highly_variable": True, "mask_var": "highly_variable"},
                    "variance": self.variance,
                    "variance_ratio": self.variance_ratio,
                },
            ),
        ):
            write_elem(written.require_group(place), name, value)


def preprocess_blocks(X, report: Report, store: str | PathLike) -> Prepared:
    """The same of a dask array of counts; positions of cells are kept in the store."""
    counts, n_cells = Blocks(X, report), X.shape[0]
    logged = Logged(middle_total(counts.total(count_totals, "counts")))
    sums = counts.total(GeneSums(logged.target), "variable genes")
    mean = sums[0] / n_cells
    var = variable_genes(mean, (sums[1] - n_cells * mean**2) / max(n_cells - 1, 1))
    genes = np.flatnonzero(var["highly_variable"])
    gram = counts.total(Gram(logged, genes), "covariance of genes")
    mean = gram[-1] / n_cells
    covariance = (gram[:-1] - n_cells * np.outer(mean, mean)) / max(n_cells - 1, 1)
    n = n_components(n_cells, len(genes))
    variance, components = scipy.linalg.eigh(covariance, subset_by_index=[len(genes) - n, len(genes) - 1])
    variance, components = variance[::-1], components[:, ::-1]
    # As scikit-learn does: the largest loading is positive.
    components = components * np.sign(components[np.abs(components).argmax(axis=0), np.arange(n)])
    kept = Blocks(X, report, store=store)
    loadings = np.zeros((X.shape[1], n))
    loadings[genes] = components
    return Prepared(
        scores=kept.map(Scores(logged, genes, mean, components), n, np.float32, "principal components"),
        logged=logged,
        var=var,
        loadings=loadings,
        offset=mean @ components,
        variance=variance,
        variance_ratio=variance / np.trace(covariance),
    )


def count_totals(X: Any) -> Counter[float]:
    """How many cells have each total of counts; these are few, however many cells there are."""
    values = X.data if sp.issparse(X) else np.asarray(X)
    if (values < 0).any() or (values != np.round(values)).any():
        raise ValueError(REFUSED)
    totals, n_cells = np.unique(np.asarray(X.sum(axis=1, dtype=np.float64)).ravel(), return_counts=True)
    return Counter(dict(zip(totals.tolist(), n_cells.tolist(), strict=True)))


def middle_total(totals: Counter[float]) -> float:
    """The median total of the cells that have counts."""
    found = np.array(sorted(total for total in totals if total > 0))
    if not len(found):
        raise ValueError("X holds no counts: all cells are empty.")
    ends = np.cumsum([totals[total] for total in found])
    middle = [(ends[-1] - 1) // 2, ends[-1] // 2]
    return float(found[np.searchsorted(ends, middle, side="right")].mean())


def normalised(X: Any, target: float) -> Any:
    """Counts of each cell scaled to the same total; as scanpy, whole numbers become float32."""
    X = X.astype(X.dtype if X.dtype.kind == "f" else np.float32)  # a copy
    size = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel() / target
    size[size == 0] = 1.0
    if sp.issparse(X):
        X.data /= np.repeat(size, np.diff(X.indptr))
    else:
        X /= size[:, None]
    return X


@dataclass(frozen=True)
class Logged:
    """Logarithms of a block of counts, normalised to a total."""

    target: float

    def __call__(self, X: Any) -> Any:
        """A block of the same kind."""
        return np.log1p(normalised(X, self.target))


@dataclass(frozen=True)
class GeneSums:
    """Of each gene the sum of the normalised counts, and of their squares."""

    target: float

    def __call__(self, X: Any) -> np.ndarray:
        """Two rows, which add up over blocks."""
        X = normalised(X, self.target).astype(np.float64)
        squares = X.multiply(X) if sp.issparse(X) else X**2
        return np.vstack([np.asarray(some.sum(axis=0)).ravel() for some in (X, squares)])


@dataclass(frozen=True)
class Gram:
    """Products of the logarithms of genes, summed over cells, and below them their sums."""

    logged: Logged
    genes: np.ndarray

    def __call__(self, X: Any) -> np.ndarray:
        """These of a block, which add up over blocks."""
        X = _dense(self.logged(X)[:, self.genes])
        return np.vstack([X.T @ X, X.sum(axis=0)])


@dataclass(frozen=True)
class Scores:
    """Principal components of cells."""

    logged: Logged
    genes: np.ndarray
    mean: np.ndarray
    components: np.ndarray

    def __call__(self, X: Any) -> np.ndarray:
        """A row for each cell of a block."""
        return ((_dense(self.logged(X)[:, self.genes]) - self.mean) @ self.components).astype(np.float32)


def _dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)


def variable_genes(mean: np.ndarray, variance: np.ndarray, n_genes: int = N_GENES) -> pd.DataFrame:
    """scanpy's choice by Seurat's rule, from the mean and the variance of each gene: its columns of `var`."""
    mean = np.where(mean == 0, NO_COUNTS, mean)
    dispersion = variance / mean
    found = pd.DataFrame({"means": np.log1p(mean)})
    found["dispersions"] = np.log(dispersion, where=dispersion > 0, out=np.full(len(mean), np.nan))
    groups = found.groupby(pd.cut(found["means"], bins=N_BINS), observed=True)["dispersions"]
    centre, spread = groups.transform("mean"), groups.transform("std")
    alone = spread.isna()  # a gene alone in its bin gets a dispersion of 1
    centre, spread = centre.mask(alone, 0.0), spread.where(~alone, centre)
    found["dispersions_norm"] = (found["dispersions"] - centre) / spread
    highest = found["dispersions_norm"].dropna().nlargest(n_genes)
    found.insert(0, "highly_variable", found["dispersions_norm"] >= highest.min())
    return found
