from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import scanpy as sc
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from pandas.api.types import is_numeric_dtype

from .._keys import DEFAULT_KEY, Keys
from ..tl._adata import own_fields
from ._drawing import BLACK, BLUE, ORANGE, mark_ends, unstretched

# A limit of the colours, as scanpy takes it.
Limit = str | float | Sequence[str | float] | None


def embedding(
    adata: AnnData,
    color: str | Sequence[str] | None = None,
    *,
    key: str = DEFAULT_KEY,
    projection: str = "2d",
    color_map: str | None = None,
    palette: str | Sequence[str] | None = None,
    vmin: Limit = None,
    vmax: Limit = None,
    layer: str | None = None,
    size: float | None = None,
    ncols: int = 4,
    legend_loc: str = "right margin",
    title: str | Sequence[str] | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | list[Axes] | None:
    """The embedding, drawn by :func:`scanpy.pl.embedding` with the same scale on all axes.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.embedding`.
    color
        Columns of `adata.obs`, or genes.
    key
        The `key_added` of the embedding.
    projection
        `'2d'` or `'3d'`.
    color_map, palette, size, ncols, legend_loc, title
        As in scanpy.
    vmin, vmax
        Limits of the colours, as in scanpy: numbers, or such as `'p1'` and `'p99'` for percentiles. One for all panels,
        or a list with one a panel.
    layer
        Layer of `adata` that genes are read from.
    ax, show, return_fig
        As in scanpy: axes to draw on (for a single `color`), whether to show the figure, and whether to return it.

    Returns
    -------
    The figure if `return_fig`, else the axes if `show` is false.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=300)
    >>> ep.tl.embedding(adata)
    >>> fig = ep.pl.embedding(adata, "branch", return_fig=True)
    """
    keys = Keys(key)
    require_dimensions(adata, keys, 3 if projection == "3d" else 2)
    drawn = sc.pl.embedding(
        in_memory(adata, keys.coordinates),
        basis=keys.coordinates,
        color=color,
        projection=projection,
        color_map=color_map,
        palette=palette,
        vmin=vmin,
        vmax=vmax,
        layer=layer,
        size=size,
        ncols=ncols,
        legend_loc=legend_loc,
        title=title,
        ax=ax,
        show=False,
    )
    for panel in drawn if isinstance(drawn, list) else [drawn]:
        unstretched(panel)
    return _finished(drawn, show, return_fig)


def density(
    adata: AnnData,
    color: str | None = None,
    *,
    key: str = DEFAULT_KEY,
    gridsize: int = 120,
    color_map: str = "viridis",
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | None:
    """The embedding in hexagons, where single points would hide each other.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.embedding`; its coordinates may be a dask array.
    color
        A column of numbers in `adata.obs`, whose mean over each hexagon is shown. By default the number of cells, on a
        logarithmic scale.
    key
        The `key_added` of the embedding.
    gridsize
        Hexagons across the plot.
    color_map
        As in scanpy.
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
    values = None
    if color is not None:
        if not isinstance(color, str) or color not in adata.obs or not is_numeric_dtype(adata.obs[color]):
            numbers = ", ".join(repr(name) for name in adata.obs if is_numeric_dtype(adata.obs[name])) or "none"
            raise ValueError(f"color={color!r} is no column of numbers in adata.obs; there is {numbers}.")
        values = adata.obs[color].to_numpy()
    if ax is None:
        _, ax = plt.subplots(figsize=(5.2, 4.2), layout="constrained")
    x, y = np.asarray(adata.obsm[keys.coordinates][:, :2]).T
    up = max(1, round(gridsize / np.sqrt(3) * np.ptp(y) / (np.ptp(x) or 1.0)))  # as many as make hexagons regular
    drawn = ax.hexbin(
        x,
        y,
        C=values,
        gridsize=(gridsize, up),
        bins=None if color else "log",
        cmap=color_map,
        mincnt=1,
        rasterized=True,
    )
    ax.figure.colorbar(drawn, ax=ax, label="cells" if color is None else f"mean of {color}")
    ax.set(xlabel=f"{key}1", ylabel=f"{key}2", xticks=[], yticks=[])
    unstretched(ax)
    return _finished(ax, show, return_fig)


def depth(
    adata: AnnData,
    *,
    key: str = DEFAULT_KEY,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | None:
    """Which depth was used, and how little other depths would change.

    The orange curve shows how alike other depths rank the cells: where it is near 1, the depth does not matter. The
    blue curve is the paper's rule, the entropy of the walk by the number of steps, with its knee; `preset='paper'` uses
    it.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.embedding`.
    key
        The `key_added` of the embedding.
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
    >>> fig = ep.pl.depth(adata, return_fig=True)
    """
    stored = adata.uns.get(Keys(key).uns, {})
    require(stored, "depth", f"uns[{key!r}]", "ep.tl.embedding(adata)")
    found = stored["depth"]
    if ax is None:
        _, ax = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    knee, chosen = int(found["knee"]), float(found["chosen"])
    published = not len(found["depths"])
    ax.axvline(chosen, color=BLACK, linestyle="--", linewidth=1, label=f"used: {chosen:g}")
    if not published:
        ax.plot(found["depths"], found["agreement"], "s-", color=ORANGE, markersize=4, label="agreement with it")
        ax.set(xlabel="depth (neighbour distances; steps for the entropy)")
        ax.set_ylabel("rank agreement with the depth used", color=ORANGE)
        ax.ticklabel_format(axis="y", useOffset=False)
        ax.set_ylim(min(0.9, float(np.min(found["agreement"])) - 0.01), 1.005)
    else:
        ax.set_xlabel("steps of the walk")
        ax.set_yticks([])
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    beside = ax.twinx()
    beside.plot(np.arange(1, len(found["entropy"]) + 1), found["entropy"], color=BLUE, alpha=0.7, label="entropy")
    beside.plot(knee, found["entropy"][knee - 1], "o", color=BLUE, label=f"its knee: {knee}")
    beside.set_ylabel("von Neumann entropy of the walk", color=BLUE)
    legends = [axes.get_legend_handles_labels() for axes in (ax, beside)]
    handles, labels = (one + other for one, other in zip(*legends, strict=True))
    for axes in (ax, beside):
        axes.spines["top"].set_visible(False)
    # Above the axes, where no curve can pass.
    ax.legend(handles, labels, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize="small")
    return _finished(ax, show, return_fig)


def pseudotime(
    adata: AnnData,
    *,
    key: str = DEFAULT_KEY,
    color_map: str = "viridis",
    vmin: Limit = None,
    vmax: Limit = None,
    size: float | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | None:
    """The embedding coloured by the order of the cells, with the root and terminal cells marked.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.embedding` and `ep.tl.pseudotime`.
    key
        Their `key_added`.
    color_map, size
        As in scanpy.
    vmin, vmax
        Limits of the colours, as in scanpy: numbers, or such as `'p1'` and `'p99'` for percentiles.
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
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> fig = ep.pl.pseudotime(adata, return_fig=True)
    """
    keys = Keys(key)
    require(adata.obs, keys.pseudotime, "obs", "ep.tl.pseudotime(adata, root=...)")
    require_dimensions(adata, keys, 2)
    if ax is None:
        _, ax = plt.subplots(figsize=(5.2, 4.2), layout="constrained")
    embedding(
        adata,
        keys.pseudotime,
        key=key,
        color_map=color_map,
        vmin=vmin,
        vmax=vmax,
        size=size,
        title="pseudotime",
        ax=ax,
        show=False,
    )
    for name in ("roots", "terminals"):
        mark_ends(ax, adata, keys, np.asarray(adata.obsm[keys.coordinates]), name)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, loc="best", fontsize="small")
    return _finished(ax, show, return_fig)


def in_memory(adata: AnnData, name: str) -> AnnData:
    """The same object, with coordinates that scanpy can draw: where they are a dask array, a light one around them."""
    coordinates = adata.obsm[name]
    if isinstance(coordinates, np.ndarray):
        return adata
    obsm = {name: np.asarray(coordinates)}
    return AnnData(adata.X, obs=adata.obs, var=adata.var, uns=adata.uns, obsm=obsm, layers=adata.layers)


def require(mapping: Mapping, field: str, where: str, command: str) -> None:
    """Refuse to draw what has not been computed, and name the command."""
    if field not in mapping:
        raise KeyError(f"No adata.{where}[{field!r}]. Run `{command}` first.")


def require_coordinates(adata: AnnData, keys: Keys) -> None:
    """Refuse to draw coordinates that are not there, or that something else made."""
    require(adata.obsm, keys.coordinates, "obsm", "ep.tl.embedding(adata)")
    if ("obsm", keys.coordinates) not in own_fields(adata, keys):
        raise ValueError(
            f"adata.obsm[{keys.coordinates!r}] was not made by this package. Draw it with "
            f"`sc.pl.embedding(adata, {keys.coordinates!r})`, or leave `key` out."
        )


def require_dimensions(adata: AnnData, keys: Keys, needed: int) -> None:
    require_coordinates(adata, keys)
    if (there := adata.obsm[keys.coordinates].shape[1]) < needed:
        raise ValueError(
            f"adata.obsm[{keys.coordinates!r}] has {there} dimensions, and this plot needs {needed}. "
            f"Run `ep.tl.embedding(adata, n_components={needed})`."
        )


def _finished(axes: Axes | list[Axes], show: bool | None, return_fig: bool) -> Any:
    if return_fig:
        return (axes[0] if isinstance(axes, list) else axes).figure
    if sc.settings.autoshow if show is None else show:
        plt.show()
        return None
    return axes
