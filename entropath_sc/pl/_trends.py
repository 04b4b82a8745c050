from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import matplotlib.pyplot as plt
import numpy as np
import scanpy as sc
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .._keys import DEFAULT_KEY, Keys
from ..tl._adata import check_same_cells
from ..tl._trends import gene_indices
from ._drawing import colors_for, state_colors, wrapped
from ._plots import require

# Standard errors in a band of 95 %.
BAND = 1.96
# A gene peaks in one lineage if the others stay this far below, relative to its range; otherwise it is shared.
DISTINCT = 0.15
# Inches that the name of a gene needs, and those that a heatmap may have in all.
NAME_HEIGHT, MOST_HEIGHT = 0.15, 10.0


@dataclass(frozen=True)
class Curves:
    """Trends of some genes (genes × points) along a lineage."""

    state: str
    pseudotime: np.ndarray
    mean: np.ndarray
    se: np.ndarray


def trends(
    adata: AnnData,
    genes: str | Sequence[str],
    *,
    fate: str | Sequence[str] | None = None,
    panels: str = "gene",
    n_cols: int = 4,
    key: str = DEFAULT_KEY,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | list[Axes] | None:
    """Draw smooth expression along pseudotime, a curve for each lineage, with bands of two standard errors (95 %).

    Parameters
    ----------
    adata
        Annotated data after :func:`~entropath_sc.tl.trends`.
    genes
        Names from `adata.var_names`.
    fate
        One or several terminal states. Default: all that have trends.
    panels
        `'gene'`: a panel for each gene, with a curve for each lineage. `'fate'`: a panel for each lineage, with a curve
        for each gene.
    n_cols
        Panels in a row at most.
    key
        The `key_added` of the trends.
    ax, show, return_fig
        As in scanpy: axes to draw on (for a single panel), whether to show the figure, and whether to return it.

    Returns
    -------
    The figure if `return_fig`, else the axes if `show` is false: a list where there are several panels.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=600)
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> ep.tl.terminal_states(adata, groupby="branch")
    >>> ep.tl.fates(adata)
    >>> ep.tl.trends(adata, ["gene_0", "gene_1"])
    >>> fig = ep.pl.trends(adata, ["gene_0", "gene_1"], return_fig=True)
    """
    if panels not in ("gene", "fate"):
        raise ValueError(f"panels={panels!r} is not known. Choose 'gene' or 'fate'.")
    names, curves = _read(adata, genes, fate, key)
    titles = names if panels == "gene" else [curve.state for curve in curves]
    n_rows = -(-len(titles) // max(n_cols, 1))
    n_cols = -(-len(titles) // n_rows)  # rows of about the same length
    size = (2.4 * n_cols + 1.2, 2.1 * n_rows + 0.2)
    figure, axes = _panels(len(titles), ax, size, n_rows, n_cols, sharex=True, sharey=panels == "fate")
    of_state = state_colors(adata, Keys(key), map(str, adata.uns[Keys(key).uns]["trends"]["states"]))
    of_gene = dict(zip(names, colors_for(len(names)), strict=True))
    for curve in curves:
        for i, name in enumerate(names):
            at, color, label = (
                (axes[i], of_state[curve.state], curve.state)
                if panels == "gene"
                else (axes[curves.index(curve)], of_gene[name], name)
            )
            mean, band = curve.mean[i], BAND * curve.se[i]
            at.fill_between(curve.pseudotime, mean - band, mean + band, color=color, alpha=0.2, linewidth=0, zorder=1)
            at.plot(curve.pseudotime, mean, color=color, linewidth=1.8, label=label, zorder=2)
    for i, (at, title) in enumerate(zip(axes, titles, strict=True)):
        at.set_title(wrapped(title), fontstyle="italic" if panels == "gene" else "normal", fontsize="medium")
        at.spines[["top", "right"]].set_visible(False)
        at.margins(x=0.02)
        if i % n_cols == 0 or ax is not None:
            at.set_ylabel("expression")
        if i + n_cols >= len(titles):
            at.set_xlabel("pseudotime")
            at.tick_params(labelbottom=True)
    handles, labels = axes[0].get_legend_handles_labels()
    if ax is None:
        figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize="small")
    else:
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    return _finished(figure, axes, show, return_fig)


def heatmap(
    adata: AnnData,
    genes: str | Sequence[str],
    *,
    fate: str | Sequence[str] | None = None,
    color_map: str = "viridis",
    sort: bool = True,
    key: str = DEFAULT_KEY,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | list[Axes] | None:
    """Draw genes by pseudotime, a panel for each lineage, sorted by where they peak.

    Each gene is scaled from its lowest (0) to its highest value (1) over all panels. Genes that peak alike in all
    lineages come first, then those of each lineage, the early ones at the top.

    Parameters
    ----------
    adata
        Annotated data after :func:`~entropath_sc.tl.trends`.
    genes
        Names from `adata.var_names`. If there are too many to read, only some names are written.
    fate
        One or several terminal states. Default: all that have trends.
    color_map
        Colours of the scaled expression.
    sort
        Sort genes by where they peak; otherwise they stay as given.
    key
        The `key_added` of the trends.
    ax, show, return_fig
        As in scanpy: axes to draw on (for a single lineage), whether to show the figure, and whether to return it.

    Returns
    -------
    The figure if `return_fig`, else the axes if `show` is false: a list where there are several lineages.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=600)
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> ep.tl.terminal_states(adata, groupby="branch")
    >>> ep.tl.fates(adata)
    >>> ep.tl.trends(adata)
    >>> fig = ep.pl.heatmap(adata, adata.var_names[:30], return_fig=True)
    """
    names, curves = _read(adata, genes, fate, key)
    scaled = _scaled(curves)
    order = _by_peak(scaled, curves) if sort else np.arange(len(names))
    ends = [curve.pseudotime[-1] for curve in curves]
    height = min(NAME_HEIGHT * len(names), MOST_HEIGHT)
    # The same length of pseudotime is as wide in all panels.
    size = (2.2 * sum(ends) / max(ends) + 1.8, height + 0.9)
    figure, axes = _panels(len(curves), ax, size, 1, len(curves), sharey=True, width_ratios=ends)
    for at, curve, values in zip(axes, curves, scaled, strict=True):
        extent = (0.0, curve.pseudotime[-1], len(names) - 0.5, -0.5)
        drawn = at.imshow(
            values[order], aspect="auto", extent=extent, cmap=color_map, vmin=0, vmax=1, interpolation="nearest"
        )
        at.set_title(wrapped(curve.state), fontsize="medium")
        at.set_xlabel("pseudotime")
        at.set_xticks([tick for tick in (0, 0.5, 1) if tick <= curve.pseudotime[-1]] if max(ends) > 0.5 else [0])
        at.xaxis.set_major_formatter("{x:g}")
        at.tick_params(axis="y", length=0)
    written = np.arange(0, len(names), int(np.ceil(len(names) * NAME_HEIGHT / height - 1e-9)))
    axes[0].set_yticks(written, [names[order[i]] for i in written], fontsize=8, fontstyle="italic")
    bar = figure.colorbar(
        drawn, ax=axes, label="expression, scaled by gene", ticks=[0, 1], aspect=15, shrink=min(1.0, 2.0 / height)
    )
    bar.outline.set_visible(False)
    return _finished(figure, axes, show, return_fig)


def _read(
    adata: AnnData, genes: str | Sequence[str], fate: str | Sequence[str] | None, key: str
) -> tuple[list[str], list[Curves]]:
    """Names of genes, and their trends along the chosen lineages."""
    keys = Keys(key)
    require(adata.uns.get(keys.uns, {}), "trends", f"uns[{key!r}]", "ep.tl.trends(adata)")
    check_same_cells(adata, keys, "trends")
    part = adata.uns[keys.uns]["trends"]
    rows = gene_indices(adata, genes)
    names = [str(name) for name in adata.var_names[rows]]
    there = [str(state) for state in part["states"]]
    states = there if fate is None else [fate] if isinstance(fate, str) else list(fate)
    if unknown := [state for state in states if state not in there]:
        raise ValueError(f"fate: there are no trends of {unknown[0]!r}, but of {', '.join(map(repr, there))}.")
    found = []
    for state in states:
        number = there.index(state)
        field = str(part["fields"][number])
        for name in (field, f"{field}_se"):
            require(adata.varm, name, "varm", "ep.tl.trends(adata)")
        mean, se = (np.asarray(adata.varm[name])[rows] for name in (field, f"{field}_se"))
        found.append(Curves(state, np.asarray(part["pseudotime"])[number], mean, se))
    missing = [name for i, name in enumerate(names) if np.isnan([curve.mean[i, 0] for curve in found]).all()]
    if missing:
        raise ValueError(f"genes: {missing[0]!r} has no trends. Run `ep.tl.trends(adata, genes)` with it.")
    return names, found


def _scaled(curves: list[Curves]) -> list[np.ndarray]:
    """Each gene from 0 to 1 over all lineages; 0 if it is constant."""
    low = np.nanmin([np.nanmin(curve.mean, axis=1) for curve in curves], axis=0)[:, None]
    high = np.nanmax([np.nanmax(curve.mean, axis=1) for curve in curves], axis=0)[:, None]
    span = np.where(high > low, high - low, 1.0)
    return [(curve.mean - low) / span for curve in curves]


def _by_peak(scaled: list[np.ndarray], curves: list[Curves]) -> np.ndarray:
    """Genes that peak alike in all lineages, then those of each lineage, each from early to late."""
    heights = np.stack([np.nan_to_num(values).max(axis=1) for values in scaled])
    lineage = heights.argmax(axis=0)
    genes = np.arange(len(lineage))
    at = np.stack([curve.pseudotime[np.nan_to_num(v).argmax(axis=1)] for curve, v in zip(curves, scaled, strict=True)])
    peak = at[lineage, genes]
    meanwhile = np.array(
        [
            [np.interp(time, curve.pseudotime, row) for time, row in zip(peak, np.nan_to_num(values), strict=True)]
            for curve, values in zip(curves, scaled, strict=True)
        ]
    )
    shared = meanwhile.min(axis=0) > heights.max(axis=0) - DISTINCT
    return np.lexsort((peak, np.where(shared, -1, lineage)))


def _panels(
    n_panels: int, ax: Axes | None, size: tuple[float, float], n_rows: int, n_cols: int, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels, or the axes that were given for one."""
    if ax is not None:
        if n_panels > 1:
            raise ValueError(f"`ax` is for one panel, and this plot has {n_panels}. Leave `ax` out, or choose one.")
        return cast(Figure, ax.figure), [ax]
    figure, axes = plt.subplots(n_rows, n_cols, figsize=size, layout="constrained", squeeze=False, **options)
    found = list(axes.flat)
    for unused in found[n_panels:]:
        unused.remove()
    return figure, found[:n_panels]


def _finished(figure: Figure, axes: list[Axes], show: bool | None, return_fig: bool) -> Figure | Axes | list | None:
    if return_fig:
        return figure
    if sc.settings.autoshow if show is None else show:
        plt.show()
        return None
    return axes[0] if len(axes) == 1 else axes
