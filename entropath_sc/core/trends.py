"""Expression along lineages: penalised splines of all genes at once, and tests for genes that change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from scipy.interpolate import BSpline
from scipy.stats import f as f_distribution

# Intervals between knots. A curve may have many, since its penalty decides how smooth it is; a test has no penalty, and
# loses power with each.
CURVE_INTERVALS, TEST_INTERVALS = 20, 6
# Kim and Gu (2004): generalised cross-validation with this cost of a degree of freedom rarely follows noise.
COST_OF_FREEDOM = 1.4
# Penalties that are tried, relative to the data, smoothest first.
PENALTIES = np.logspace(6, -6, 49)
# Numerical. The share of a sum of squares that is rounding.
ROUNDING = 1e-12
# Values of an expression matrix that are in memory as float64 at a time.
BLOCK_VALUES = 2**21


@dataclass(frozen=True)
class Trends:
    """Curves of all genes along one lineage (genes × grid), and their standard errors."""

    grid: np.ndarray
    mean: np.ndarray
    se: np.ndarray


def trends(X: Any, time: np.ndarray, weights: np.ndarray, n_points: int) -> list[Trends]:
    """Penalised cubic splines of every gene (column of ``X``) along every lineage (column of ``weights``).

    A cell of weight 0.5 counts as half a cell. A lineage ends with the last cell of at least half its largest weight.
    Knots and the penalty of a gene are those of all lineages together, so that curves agree where lineages share cells.
    """
    ends = np.array([lineage_end(time, weight) for weight in weights.T])
    weights = np.where(time[:, None] <= ends, weights, 0.0)
    basis = spline_basis(time / ends.max(), CURVE_INTERVALS)
    weighted = [sp.csr_array(basis.multiply(weight[:, None])) for weight in weights.T]
    left = sp.hstack(weighted, format="csr")
    left.eliminate_zeros()
    products, (_, squares) = expression_sums(X, left, weights)
    grams = [(basis.T @ each).toarray() for each in weighted]
    unit = np.mean([np.trace(gram) for gram in grams]) / np.trace(_roughness(len(grams[0])))
    fits = [_Fits.of(*each, unit) for each in zip(grams, np.split(products, len(ends)), squares, strict=True)]
    # Generalised cross-validation of all lineages.
    left_over = np.sum([fit.n_cells - COST_OF_FREEDOM * fit.freedom for fit in fits], axis=0)
    residual = np.nansum([fit.residual for fit in fits], axis=0)
    with np.errstate(over="ignore"):
        best = np.where(left_over[:, None] > 0, residual / left_over[:, None] ** 2, np.inf).argmin(axis=0)
    grid = np.linspace(0.0, 1.0, n_points)
    return [fit.curves(best, grid * end, ends.max()) for fit, end in zip(fits, ends, strict=True)]


def lineage_end(time: np.ndarray, weight: np.ndarray) -> float:
    """The time of the last cell that belongs to a lineage by at least half."""
    return float(time[weight >= 0.5 * weight.max()].max())


def spline_basis(position: np.ndarray, n_intervals: int) -> sp.csr_array:
    """Cubic B-splines with equal intervals, at positions in [0, 1]; others are moved there."""
    knots = np.arange(-3.0, n_intervals + 4.0)
    return BSpline.design_matrix(np.clip(position, 0.0, 1.0) * n_intervals, knots, 3)


def expression_sums(X: Any, left: Any, weights: np.ndarray, powers: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """``left.T @ X``, and ``weights.T @ X**k`` for k = 1 to ``powers``, in blocks of cells.

    Where ``left`` is sparse, its zeros ignore NaN.
    """
    n_cells, n_genes = X.shape
    products, sums = np.zeros((left.shape[1], n_genes)), np.zeros((powers, weights.shape[1], n_genes))
    weights = sp.csr_array(weights)
    values_per_cell = X.nnz / max(n_cells, 1) if sp.issparse(X) else n_genes
    step = int(BLOCK_VALUES / max(values_per_cell, 1)) + 1
    for first in range(0, n_cells, step):
        rows = slice(first, first + step)
        block: Any = X[rows]
        block = block.compute() if hasattr(block, "compute") else block  # of a dask array
        block = (sp.csr_array(block) if sp.issparse(block) else np.asarray(block)).astype(np.float64)
        if sp.issparse(block):
            block.sum_duplicates()
        products += _dense(left[rows].T @ block)
        power = block.copy()
        for total in sums:
            total += _dense(weights[rows].T @ power)
            if sp.issparse(block):
                power.data *= block.data
            else:
                power *= block
    return products, sums


def _dense(found: Any) -> np.ndarray:
    return found.toarray() if sp.issparse(found) else found


def _roughness(n: int) -> np.ndarray:
    differences = np.diff(np.eye(n), 2, axis=0)
    return differences.T @ differences


@dataclass(frozen=True)
class _Fits:
    """Penalised splines of all genes along a lineage, with each of the penalties.

    In these coordinates (Demmler and Reinsch) the gram matrix and the penalty are diagonal, and so is every fit.
    """

    to_basis: np.ndarray
    shrunk: np.ndarray
    along: np.ndarray
    centre: np.ndarray
    residual: np.ndarray
    freedom: np.ndarray
    n_cells: float

    @classmethod
    def of(cls, gram: np.ndarray, products: np.ndarray, squares: np.ndarray, unit: float) -> _Fits:
        # The least penalty is part of the form, so that gaps without cells are bridged.
        least, roughness = PENALTIES[-1] * unit, _roughness(len(gram))
        penalised, to_basis = la.eigh(roughness, gram + least * roughness)
        penalised = np.clip(penalised, 0.0, 1.0 / least)
        fitted = 1.0 - least * penalised
        shrunk = 1.0 / (1.0 + np.outer(PENALTIES * unit - least, penalised))
        n_cells = gram.sum()
        with np.errstate(invalid="ignore", over="ignore"):
            centre = products.sum(axis=0) / n_cells
            along = to_basis.T @ (products - np.outer(gram.sum(axis=1), centre))
            total = squares - n_cells * centre**2
            residual = np.maximum(np.maximum(total, 0.0) - (shrunk * (2.0 - shrunk * fitted)) @ along**2, 0.0)
        residual[:, ~np.isfinite(squares)] = np.nan
        return cls(to_basis, shrunk, along, centre, residual, shrunk @ fitted, n_cells)

    def curves(self, best: np.ndarray, grid: np.ndarray, end: float) -> Trends:
        """Curves with one of the penalties for each gene; NaN where a gene cannot be fitted."""
        residual, freedom = self.residual[best, np.arange(len(best))], self.freedom[best]
        variance = residual / np.maximum(self.n_cells - freedom, 1.0)
        at_grid = spline_basis(grid / end, CURVE_INTERVALS) @ self.to_basis
        with np.errstate(invalid="ignore", over="ignore"):
            mean = self.centre[:, None] + (self.shrunk[best] * self.along.T) @ at_grid.T
            se = np.sqrt(variance[:, None] * (self.shrunk[best] @ (at_grid**2).T))
        mean[np.isnan(residual)] = se[np.isnan(residual)] = np.nan
        return Trends(grid, mean, se)


@dataclass(frozen=True)
class Contrast:
    """What is tested: whether expression follows ``direct`` and ``further``, beyond ``given``. All are orthonormal."""

    given: np.ndarray
    direct: np.ndarray
    further: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, given: np.ndarray, tested: np.ndarray, weight: np.ndarray | None = None) -> Contrast:
        """Columns of ``tested`` beyond those of ``given``, over cells with these weights."""
        weight = np.ones(len(tested)) if weight is None else weight
        root = np.sqrt(weight)[:, None]
        base = _orthonormal(root * given, np.empty((len(root), 0)))
        direct = _orthonormal(root * tested[:, :1], base)
        further = _orthonormal(root * tested[:, 1:], np.hstack([base, direct]))
        return cls(base, direct, further, weight)


@dataclass(frozen=True)
class Association:
    """Of every gene: correlation with the direct column, the share of variance that is explained, and its p value."""

    correlation: np.ndarray
    share: np.ndarray
    p: np.ndarray


def associations(X: Any, contrasts: Sequence[Contrast]) -> list[Association]:
    """F tests of all contrasts for all genes; NaN where there is nothing to test."""
    columns = [np.hstack([c.given, c.direct, c.further]) * np.sqrt(c.weight)[:, None] for c in contrasts]
    weights = np.column_stack([c.weight for c in contrasts])
    products, sums = expression_sums(X, np.hstack(columns), weights, powers=4)
    splits = np.cumsum([c.shape[1] for c in columns])[:-1]
    return [_tested(*each) for each in zip(contrasts, np.split(products, splits), sums.swapaxes(0, 1), strict=True)]


def _tested(contrast: Contrast, products: np.ndarray, sums: np.ndarray) -> Association:
    n_given, n_direct = contrast.given.shape[1], contrast.direct.shape[1]
    n_tested = n_direct + contrast.further.shape[1]
    free = contrast.weight.sum() - n_given - n_tested
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        left = sums[1] - (products[:n_given] ** 2).sum(axis=0)
        flat = left <= ROUNDING * sums[1]  # such as a constant gene
        explained = products[n_given:]
        share = np.where(flat, 0.0, np.minimum((explained**2).sum(axis=0) / left, 1.0))
        correlation = np.where(flat, 0.0, explained[:n_direct].sum(axis=0) / np.sqrt(left))
        if n_tested and free > 0:
            kept = np.where(flat, 1.0, _freedom_kept(contrast, sums))
            p = f_distribution.sf(share / n_tested / ((1.0 - share) / free), kept * n_tested, kept * free)
        else:
            p = np.full(len(share), np.nan)
    nothing = ~np.isfinite(sums[3]) | np.isnan(p)
    return Association(*(np.where(nothing, np.nan, value) for value in (correlation, share, p)))


def _freedom_kept(contrast: Contrast, sums: np.ndarray) -> np.ndarray:
    """The factor of an F test's degrees of freedom that gives the share explained its variance over permuted cells.

    Box and Watson (1962): a gene that few cells express has a large kurtosis, and chance explains more of it wherever
    the tested columns are far from even.
    """
    n_cells = contrast.weight.sum()
    mean, second, third, fourth = sums / n_cells
    variance = second - mean**2
    kurtosis = (fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4) / variance**2 - 3.0
    leverage = (contrast.direct**2).sum(axis=1) + (contrast.further**2).sum(axis=1)
    tested = leverage.sum()
    uneven = ((leverage**2).sum() - tested**2 / n_cells) / (2.0 * tested * (1.0 - tested / n_cells))
    return 1.0 / np.maximum(1.0 + kurtosis * uneven, 1.0)


def _orthonormal(columns: np.ndarray, against: np.ndarray) -> np.ndarray:
    """An orthonormal basis of what columns add to those they are taken ``against``; a single column keeps its sign."""
    scale = np.linalg.norm(columns)
    for _ in range(2):  # the second time against rounding
        columns = columns - against @ (against.T @ columns)
    basis, sizes, turned = np.linalg.svd(columns, full_matrices=False)
    kept = basis[:, sizes > 1e-6 * scale]
    return kept * np.sign(turned[0, 0]) if columns.shape[1] == 1 else kept
