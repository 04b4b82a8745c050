from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

from .._keys import DEFAULT_KEY, Keys
from ..tl._adata import own_fields
from ._drawing import check_color, is_number, label_colors, mark_ends, place_labels, robust_limits, unstretched

# A limit of the colours, as scanpy takes it.
Limit = str | float | Sequence[str | float] | None


def embedding(
    adata: AnnData,
    color: str | Sequence[str] | None = None,
    *,
    key: str = DEFAULT_KEY,
    projection: str = "2d",
    layer: str | None = None,
    use_raw: bool | None = None,
    gene_symbols: str | None = None,
    groups: str | Sequence[str] | None = None,
    sort_order: bool = True,
    color_map: str | Colormap | None = None,
    cmap: str | Colormap | None = None,
    palette: str | Sequence[str] | None = None,
    vmin: Limit = None,
    vmax: Limit = None,
    vcenter: Limit = None,
    norm: Normalize | Sequence[Normalize] | None = None,
    size: float | None = None,
    alpha: float | None = None,
    frameon: bool | None = None,
    ncols: int = 4,
    wspace: float | None = None,
    legend_loc: str | None = "right margin",
    legend_fontsize: float | str | None = None,
    title: str | Sequence[str] | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | list[Axes] | None:
    """Draw the embedding with :func:`scanpy.pl.embedding`, with the same scale on all axes.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.embedding`.
    color
        Columns of `adata.obs`, or genes; a panel for each.
    key
        The `key_added` of the embedding.
    projection
        `'2d'` or `'3d'`.
    layer, use_raw, gene_symbols
        Where genes are read, as in scanpy: a layer, `adata.raw`, or a column of `adata.var` with their names.
    groups
        Categories to colour; the others are grey.
    sort_order
        Draw the cells with the largest values on top.
    color_map, cmap
        Colours of numbers. Both names mean the same, as in scanpy.
    palette
        Colours of categories.
    vmin, vmax
        Limits of the colours: numbers, or percentiles such as `'p5'` and `'p95'`; one for all panels, or a list. By
        default the 1st and 99th percentile, so that a few extreme cells do not take all colours. `vmin='p0'` and
        `vmax='p100'` show the full range.
    vcenter, norm
        Middle of a diverging colour map, and a normalisation of matplotlib's, as in scanpy.
    size, alpha
        Size and opacity of a cell. Lower both if cells hide each other, or use :func:`~entropath_sc.pl.density`.
    frameon
        Whether to draw a frame.
    ncols, wspace
        Panels in a row, and the space between them.
    legend_loc
        Where names of categories stand: `'right margin'`, `'on data'` (beside their cells, where they do not cover each
        other), None for no legend, or a place of matplotlib's.
    legend_fontsize
        Size of these names.
    title
        Title of each panel.
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
    >>> fig = ep.pl.embedding(adata, "branch", legend_loc="on data", return_fig=True)
    """
    keys = Keys(key)
    require_dimensions(adata, keys, 3 if projection == "3d" else 2)
    colors = [color] if color is None or isinstance(color, str) else list(color)
    genes = _gene_names(adata, gene_symbols)
    for name in colors:
        if name is not None:
            check_color(adata, name, genes)
    on_data = legend_loc == "on data" and projection == "2d"
    cells = drawable(adata, keys.coordinates, {} if palette else _missing_colors(adata, colors))
    drawn = sc.pl.embedding(
        cells,
        basis=keys.coordinates,
        color=color,
        projection=projection,
        layer=layer,
        use_raw=use_raw,
        gene_symbols=gene_symbols,
        groups=groups,
        sort_order=sort_order,
        color_map=color_map,
        cmap=cmap,
        palette=palette,
        vmin=vmin,
        vmax=vmax,
        vcenter=vcenter,
        norm=norm,
        size=size,
        frameon=frameon,
        ncols=ncols,
        wspace=wspace,
        legend_loc=None if on_data else legend_loc,
        legend_fontsize=legend_fontsize,
        title=title,
        ax=ax,
        show=False,
        **({} if alpha is None else {"alpha": alpha}),
    )
    panels = drawn if isinstance(drawn, list) else [drawn]
    for i, (panel, name) in enumerate(zip(panels, colors, strict=False)):
        unstretched(panel)
        if norm is None and vcenter is None:
            robust_limits(panel, *(_of_panel(limit, i) for limit in (vmin, vmax)))
        if on_data and name in cells.obs and isinstance(cells.obs[name].dtype, pd.CategoricalDtype):
            at = pd.DataFrame(cells.obsm[keys.coordinates][:, :2]).groupby(cells.obs[name].to_numpy(), observed=True)
            anchors = {str(label): row.to_numpy() for label, row in at.median().iterrows()}
            place_labels(panel, cells.obsm[keys.coordinates][:, :2], anchors, legend_fontsize)
    return _finished(drawn, show, return_fig)


def _gene_names(adata: AnnData, gene_symbols: str | None) -> set[str]:
    """All names that scanpy finds genes by."""
    tables = [adata.var] if adata.raw is None else [adata.var, adata.raw.var]
    symbols = [table[gene_symbols] for table in tables if gene_symbols in table]
    return {name for names in (*(table.index for table in tables), *symbols) for name in names}


def _of_panel(limit: Limit, panel: int) -> Any:
    """The limit of one panel: scanpy repeats a list from its start."""
    return limit[panel % len(limit)] if isinstance(limit, Sequence) and not isinstance(limit, str) else limit


def pseudotime(
    adata: AnnData,
    *,
    key: str = DEFAULT_KEY,
    color_map: str | Colormap | None = None,
    cmap: str | Colormap | None = None,
    vmin: Limit = None,
    vmax: Limit = None,
    size: float | None = None,
    alpha: float | None = None,
    frameon: bool | None = None,
    title: str = "pseudotime",
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | None:
    """Draw the embedding coloured by pseudotime, with the root marked.

    Cells that were given to `ep.tl.pseudotime` as `terminal=` are marked too. Terminal states that
    `ep.tl.terminal_states` found are not: draw these with :func:`~entropath_sc.pl.terminal_states`.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.embedding` and `ep.tl.pseudotime`.
    key
        Their `key_added`.
    color_map, cmap
        Colours, by default `'viridis'`. Both names mean the same, as in scanpy.
    vmin, vmax
        Limits of the colours: numbers, or percentiles such as `'p5'` and `'p95'`. By default the 1st and 99th
        percentile, so that a few late outliers do not take all colours. The pointed ends of the colour bar stand for
        the cells beyond. `vmin=0` and `vmax=1` show the full range.
    size, alpha, frameon, title
        As in :func:`~entropath_sc.pl.embedding`.
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
    colors: Any = plt.get_cmap(cmap or color_map or "viridis").copy()
    colors.colorbar_extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(
        (vmin is None, vmax is None), "neither"
    )
    embedding(
        adata,
        keys.pseudotime,
        key=key,
        color_map=colors,
        vmin=vmin,
        vmax=vmax,
        size=size,
        alpha=alpha,
        frameon=frameon,
        title=title,
        ax=ax,
        show=False,
    )
    for name in ("roots", "terminals"):
        mark_ends(ax, adata, keys, np.asarray(adata.obsm[keys.coordinates]), name)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, loc="best", fontsize="small")
    return _finished(ax, show, return_fig)


def drawable(adata: AnnData, name: str, colors: dict[str, list[str]]) -> AnnData:
    """The same object, or a light one that also has these colours, and coordinates in memory, for scanpy to draw."""
    coordinates = adata.obsm[name]
    if isinstance(coordinates, np.ndarray) and not colors:
        return adata
    obsm, uns = {name: np.asarray(coordinates)}, {**adata.uns, **colors}
    return AnnData(adata.X, obs=adata.obs, var=adata.var, uns=uns, obsm=obsm, layers=adata.layers, raw=adata.raw)


def _missing_colors(adata: AnnData, names: Sequence[str | None]) -> dict[str, list[str]]:
    """Colours of categories that are not kept in `uns`, in scanpy's form: those of results, and those of a view."""
    found = {}
    for name in names:
        if name in adata.obs and f"{name}_colors" not in adata.uns and not is_number(adata.obs[name]):
            found[f"{name}_colors"] = label_colors(adata, str(name), pd.Categorical(adata.obs[name]))
    return {field: colors for field, colors in found.items() if field not in adata.uns}


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
