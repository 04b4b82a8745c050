from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from .._keys import DEFAULT_KEY, Keys
from ..tl._adata import named
from ..tl._checks import check_count
from ..tl._ordered import read_terminal
from ._drawing import (
    BLACK,
    GREY,
    LIGHT,
    mark_ends,
    place_labels,
    scatter,
    scatter_by,
    state_colors,
    unstretched,
    wrapped,
)
from ._plots import _finished, require, require_dimensions


def terminal_states(
    adata: AnnData,
    *,
    basis: str | None = None,
    key: str = DEFAULT_KEY,
    size: float | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | None:
    """Draw the embedding in grey, with the cells of each terminal state coloured and named, and the root marked.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.terminal_states`, with an embedding. Colours are those of
        `adata.uns['entropath_terminal_colors']` if it is there, else colour-blind safe ones.
    basis
        Another embedding in `adata.obsm` to draw on, such as `'umap'`.
    key
        The `key_added` of the terminal states.
    size
        Size of a cell, as in scanpy. By default smaller with more cells.
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
    >>> ep.tl.terminal_states(adata, groupby="branch")
    >>> fig = ep.pl.terminal_states(adata, return_fig=True)
    """
    keys = Keys(key)
    states = read_terminal(adata, keys)
    where = _basis(adata, keys, basis)
    ax = ax or _one_panel()
    at = _draw(ax, adata, where, LIGHT, size)
    colors = state_colors(adata, keys, states.cat.categories)
    for name, color in colors.items():
        cells = at[(states == name).to_numpy()]
        ax.scatter(
            cells[:, 0], cells[:, 1], s=30, color=color, edgecolor=BLACK, linewidth=0.5, zorder=4, rasterized=True
        )
    place_labels(ax, at, mark_ends(ax, adata, keys, at, "roots") | _centres(at, states))
    return _finished(ax, show, return_fig)


def fates(
    adata: AnnData,
    states: str | Sequence[str] | None = None,
    *,
    same_plot: bool = False,
    basis: str | None = None,
    key: str = DEFAULT_KEY,
    color_map: str = "viridis",
    size: float | None = None,
    ncols: int = 4,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | list[Axes] | None:
    """Draw the probability of each terminal state on the embedding, a panel each, or all in one.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.fates`, with an embedding.
    states
        Which states to draw. Default: all.
    same_plot
        Draw one panel. Each cell has the colour of its most likely state, and is greyer if its plasticity is high.
        Cells on their way to states that are not drawn are light grey.
    basis
        Another embedding in `adata.obsm` to draw on, such as `'umap'`.
    key
        The `key_added` of the fates.
    color_map
        Colours of the probabilities, from 0 to 1.
    size
        Size of a cell, as in scanpy. By default smaller with more cells.
    ncols
        Panels in a row.
    ax, show, return_fig
        As in scanpy: axes to draw on (for one panel), whether to show the figure, and whether to return it.

    Returns
    -------
    The figure if `return_fig`, else the axes if `show` is false, as a list if there are several.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=300)
    >>> ep.tl.embedding(adata)
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> ep.tl.terminal_states(adata, groupby="branch")
    >>> ep.tl.fates(adata)
    >>> fig = ep.pl.fates(adata, return_fig=True)
    >>> fig = ep.pl.fates(adata, same_plot=True, return_fig=True)
    """
    keys = Keys(key)
    require(adata.obsm, keys.fates, "obsm", "ep.tl.fates(adata)")
    probability = adata.obsm[keys.fates]
    shown = list(probability.columns) if states is None else [states] if isinstance(states, str) else list(states)
    if unknown := [name for name in shown if name not in probability]:
        raise ValueError(f"states: there is no state {unknown[0]!r}; there is {named(probability.columns)}.")
    if not shown:
        raise ValueError(f"states is empty. Choose some of {named(probability.columns)}, or leave it out.")
    check_count("ncols", ncols, 1)
    where = _basis(adata, keys, basis)
    if same_plot:
        return _finished(_all_fates(ax or _one_panel(), adata, keys, where, probability, shown, size), show, return_fig)
    if ax is not None and len(shown) > 1:
        raise ValueError(f"ax= takes one panel, and these are {len(shown)}. Give one state, or `same_plot=True`.")
    panels = [ax] if ax is not None else _panels(len(shown), ncols)
    for panel, name in zip(panels, shown, strict=True):
        values = probability[name].to_numpy()
        _draw(panel, adata, where, values, size, order=values, cmap=color_map, vmin=0, vmax=1)
        panel.set_title(wrapped(name), fontsize="medium")
    shrink = 0.8 / (-(-len(panels) // ncols))  # as high as a panel
    drawn = panels[0].collections[0]
    panels[0].figure.colorbar(drawn, ax=panels, label="fate probability", shrink=shrink, aspect=25)
    return _finished(panels if len(panels) > 1 else panels[0], show, return_fig)


def _all_fates(
    ax: Axes, adata: AnnData, keys: Keys, where: str, probability: pd.DataFrame, shown: list[str], size: float | None
) -> Axes:
    colors = state_colors(adata, keys, probability.columns)
    likeliest = probability.to_numpy().argmax(axis=1)
    plasticity = adata.obs[keys.plasticity].to_numpy()[:, None]
    own = np.array([to_rgb(colors[name]) for name in probability.columns])[likeliest]
    faded = plasticity * np.array(to_rgb(GREY)) + (1 - plasticity) * own
    faded[~np.isin(probability.columns.to_numpy()[likeliest], shown)] = to_rgb(LIGHT)
    at = _draw(ax, adata, where, faded, size, order=-plasticity.ravel())
    root = mark_ends(ax, adata, keys, at, "roots")
    ends = adata.obs[keys.terminal] if keys.terminal in adata.obs else probability.idxmax(axis=1)
    centres = {name: centre for name, centre in _centres(at, ends).items() if name in shown}
    place_labels(ax, at, root | centres)
    return ax


def arrows(
    adata: AnnData,
    color: str | None = None,
    *,
    basis: str | None = None,
    key: str = DEFAULT_KEY,
    grid: int = 25,
    min_cells: int | None = None,
    layer: str | None = None,
    color_map: str = "viridis",
    size: float | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | None:
    """Draw where the cells go next: arrows of the forward walk on an embedding.

    Each arrow is the mean over the cells in one square of a grid. It points from where they are to where the walk takes
    them. Lengths have no unit: they grow with the square root of that distance, relative to the rest of the figure.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.fates(adata, forward=True)`, with an embedding.
    color
        A column of `adata.obs`, or a gene, to colour the cells by. Default: grey.
    basis
        Another embedding in `adata.obsm` to draw on, such as `'umap'`.
    key
        The `key_added` of the fates.
    grid
        Squares across the longer side of the embedding. More give more and shorter arrows.
    min_cells
        Squares with fewer cells have no arrow. Raise it if arrows of few cells look random. By default 5, or a tenth of
        the mean number of cells in a square, if that is more.
    layer
        Layer of `adata` that a gene is read from.
    color_map
        Colours of numbers.
    size
        Size of a cell, as in scanpy. By default smaller with more cells.
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
    >>> ep.tl.terminal_states(adata, groupby="branch")
    >>> ep.tl.fates(adata, forward=True)
    >>> fig = ep.pl.arrows(adata, "branch", return_fig=True)
    """
    keys = Keys(key)
    require(adata.obsp, keys.forward, "obsp", "ep.tl.fates(adata, forward=True)")
    check_count("grid", grid, 1)
    where = _basis(adata, keys, basis)
    own_figure = ax is None
    ax = ax or _one_panel()
    at = _draw(ax, adata, where, LIGHT, size)
    if color is not None:
        scatter_by(ax, at, adata, color, layer, color_map, size, own_figure)
    step = _drift(adata.obsp[keys.forward], at)
    low, high = at.min(axis=0), at.max(axis=0)
    side = (high - low).max() / grid
    column, row = ((at - low) / side).astype(int).T
    _, square, n_cells = np.unique(column * (grid + 1) + row, return_inverse=True, return_counts=True)
    enough = n_cells >= (max(5, n_cells.mean() / 10) if min_cells is None else min_cells)
    if not enough.any():
        raise ValueError("No square of the grid has enough cells for an arrow. Lower `grid=`, or set `min_cells=1`.")
    x, y, *along = ((np.bincount(square, values) / n_cells)[enough] for values in (*at.T, *step.T))
    length = np.maximum(np.hypot(*along), np.finfo(float).tiny)
    relative = np.sqrt(np.minimum(length / np.percentile(length, 90), 1))
    dx, dy = (1.4 * side * relative / length * part for part in along)
    ax.quiver(
        x,
        y,
        dx,
        dy,
        angles="xy",
        scale_units="xy",
        scale=1,
        color=BLACK,
        edgecolor="white",
        linewidth=0.3,
        units="inches",
        width=0.016,
        headwidth=4,
        zorder=4,
    )
    place_labels(ax, at, mark_ends(ax, adata, keys, at, "roots"))
    return _finished(ax, show, return_fig)


def _drift(walk: Any, at: np.ndarray) -> np.ndarray:
    """Where the walk takes each cell, compared with a walk to any of the same neighbours.

    Neighbours lie to one side of a cell at the edge of a branch, which alone says nothing.
    """
    walk = walk.tocsr()
    anywhere = walk.copy()
    anywhere.data = np.repeat(1.0 / np.diff(walk.indptr), np.diff(walk.indptr))
    return (walk - anywhere) @ at


def _basis(adata: AnnData, keys: Keys, basis: str | None) -> str:
    """The name of the embedding to draw on, in `obsm`."""
    if basis is None:
        require_dimensions(adata, keys, 2)
        return keys.coordinates
    for name in (basis, f"X_{basis}"):
        if name in adata.obsm and adata.obsm[name].shape[1] >= 2:
            return name
    raise KeyError(f"basis={basis!r}: there is no such embedding in adata.obsm; there is {named(adata.obsm)}.")


def _one_panel() -> Axes:
    return plt.subplots(figsize=(4.6, 4.2), layout="constrained")[1]


def _panels(n: int, ncols: int) -> list[Axes]:
    """So many panels, row by row."""
    columns = min(n, ncols)
    rows = -(-n // columns)
    _, grid = plt.subplots(
        rows, columns, figsize=(3.0 * columns + 0.6, 3.1 * rows), layout="constrained", squeeze=False
    )
    for spare in grid.flat[n:]:
        spare.remove()
    return list(grid.flat[:n])


def _draw(
    ax: Axes,
    adata: AnnData,
    where: str,
    color: Any,
    size: float | None,
    order: np.ndarray | None = None,
    **options: Any,
) -> np.ndarray:
    """Cells on an embedding, the last in some order on top; returns their coordinates."""
    at = np.asarray(adata.obsm[where])[:, :2]
    drawn = slice(None) if order is None else np.argsort(order, kind="stable")
    scatter(ax, at[drawn], color if isinstance(color, str) else color[drawn], size, **options)
    name = where.removeprefix("X_")
    ax.set(xlabel=f"{name}1", ylabel=f"{name}2", xticks=[], yticks=[])
    unstretched(ax)
    return at


def _centres(at: np.ndarray, states: pd.Series) -> dict[str, np.ndarray]:
    """The most central cell of each state."""
    found = {}
    for name in states.astype("category").cat.categories:
        cells = at[(states == name).to_numpy()]
        if len(cells):
            found[name] = cells[np.linalg.norm(cells - np.median(cells, axis=0), axis=1).argmin()]
    return found
