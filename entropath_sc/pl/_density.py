from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from .._keys import DEFAULT_KEY, Keys
from ._drawing import color_values, label_colors, label_legend, robust_limits, unstretched
from ._plots import Limit, _finished, require_dimensions

# Hexagons across a plot: the square root of the number of cells, a few cells in each, between what can be seen.
FEWEST_HEXAGONS, MOST_HEXAGONS = 20, 150


def density(
    adata: AnnData,
    color: str | None = None,
    *,
    key: str = DEFAULT_KEY,
    layer: str | None = None,
    gridsize: int | None = None,
    color_map: str | None = None,
    cmap: str | None = None,
    vmin: Limit = None,
    vmax: Limit = None,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | None:
    """Draw the embedding in hexagons, where single points would hide each other.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.embedding`; its coordinates may be a dask array.
    color
        A column of `adata.obs`, or a gene. Each hexagon shows the mean of numbers, or the most frequent category. By
        default it shows the number of cells, on a logarithmic scale.
    key
        The `key_added` of the embedding.
    layer
        Layer of `adata` that a gene is read from.
    gridsize
        Hexagons across the plot. More show finer detail, with fewer cells in each. By default the square root of the
        number of cells, but at least 20 and at most 150.
    color_map, cmap
        Colours of numbers, by default `'viridis'`. Both names mean the same, as in scanpy.
    vmin, vmax
        Limits of the colours: numbers, or percentiles of the hexagons such as `'p5'`. By default the 1st and 99th
        percentile for a `color`, and all for the number of cells.
    ax, show, return_fig
        As in scanpy: axes to draw on, whether to show the figure, and whether to return it.

    Returns
    -------
    The figure if `return_fig`, else the axes if `show` is false.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=300)
    >>> ep.tl.embedding(adata)
    >>> fig = ep.pl.density(adata, "time", gridsize=30, return_fig=True)
    """
    keys = Keys(key)
    require_dimensions(adata, keys, 2)
    values = None if color is None else color_values(adata, color, layer)
    own = ax is None
    if ax is None:
        _, ax = plt.subplots(figsize=(5.2, 4.2), layout="constrained")
    at = np.asarray(adata.obsm[keys.coordinates][:, :2], dtype=np.float64)
    if gridsize is None:
        gridsize = int(np.clip(np.sqrt(len(at)), FEWEST_HEXAGONS, MOST_HEXAGONS))
    low, span = at.min(axis=0), np.ptp(at, axis=0)
    span[span == 0] = 1.0
    across = (gridsize, max(1, round(gridsize / np.sqrt(3) * span[1] / span[0])))  # as many as make hexagons regular
    hexagon, centres = _hexagons((at - low) / span * across)
    n_cells = np.bincount(hexagon)
    options: dict[str, Any] = {"cmap": cmap or color_map or "viridis"}
    there = np.ones(len(n_cells), dtype=bool)
    labels = colors = None
    if values is None:
        shown, options["bins"] = n_cells.astype(float), "log"
    elif isinstance(values, pd.Categorical):
        shown, labels = _most_frequent(hexagon, values.codes), values.categories
        there, colors = shown >= 0, label_colors(adata, str(color), values)
        options |= {"cmap": ListedColormap(colors), "vmin": -0.5, "vmax": len(colors) - 0.5}
    else:
        known = np.isfinite(values)
        total = np.bincount(hexagon[known], values[known], minlength=len(n_cells))
        counted = np.bincount(hexagon[known], minlength=len(n_cells))
        there = counted > 0
        shown = total / np.maximum(counted, 1)
    # One point for each hexagon, so that ten million cells are drawn as quickly as a thousand.
    x, y = (low + centres[there] * span / across).T
    drawn = ax.hexbin(
        x,
        y,
        C=shown[there],
        gridsize=across,
        extent=(low[0], low[0] + span[0], low[1], low[1] + span[1]),
        linewidths=0.2,
        rasterized=True,
        **options,
    )
    if labels is not None:
        label_legend(ax, str(color), labels, colors, own)
    else:
        if color is not None:
            robust_limits(ax, vmin, vmax)
        elif vmin is not None or vmax is not None:
            robust_limits(ax, "p0" if vmin is None else vmin, "p100" if vmax is None else vmax)
        ax.figure.colorbar(drawn, ax=ax, label="cells" if color is None else f"mean of {color}")
    ax.set(xlabel=f"{key}1", ylabel=f"{key}2", xticks=[], yticks=[])
    unstretched(ax)
    return _finished(ax, show, return_fig)


def _hexagons(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hexagon of each point and the centre of each hexagon, in units of the two lattices that matplotlib fills."""
    corner, middle = np.round(at), np.floor(at) + 0.5
    weight = np.array([1.0, 3.0])
    nearer = ((at - corner) ** 2 @ weight < (at - middle) ** 2 @ weight)[:, None]
    x, y = (2 * np.where(nearer, corner, middle)).astype(np.int64).T + 1  # none is negative
    place = x * (y.max() + 1) + y
    there = np.bincount(place) > 0
    centres = np.column_stack(np.divmod(np.flatnonzero(there), y.max() + 1))
    return (np.cumsum(there) - 1)[place], (centres - 1) / 2


def _most_frequent(hexagon: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The most frequent code in each hexagon, of cells that have one; -1 where none has."""
    n = int(codes.max(initial=0)) + 1
    known = codes >= 0
    pairs, counts = np.unique(hexagon[known] * np.int64(n) + codes[known], return_counts=True)
    most = np.full(int(hexagon.max()) + 1, -1.0)
    last = np.lexsort((counts, pairs // n))  # the most frequent of each hexagon is written last
    most[(pairs // n)[last]] = (pairs % n)[last]
    return most
