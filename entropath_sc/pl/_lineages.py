from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from .._keys import DEFAULT_KEY, Keys
from ..tl._adata import named
from ..tl._ordered import read_terminal
from ._labels import GREY, LIGHT, colors_for, label_ends, mixed, place_labels, state_colors
from ._plots import BLACK, ORANGE, _finished, in_memory, mark_ends, require, require_dimensions, unstretched

# Rows are one apart in a tree; cells take up to this much on either side.
HALF_ROW = 0.42


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
    """The embedding in grey, with the cells of each terminal state coloured and named, and the root marked.

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
        Size of a cell, as in scanpy.
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
        ax.scatter(*cells.T, s=30, color=color, edgecolor=BLACK, linewidth=0.5, zorder=4, rasterized=True)
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
    """The probability of each terminal state on the embedding, a panel each, or all in one.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.fates`, with an embedding.
    states
        Which states to draw; all by default.
    same_plot
        Draw one panel. Each cell has the colour of its most likely state, the greyer the higher its plasticity; cells
        on their way to states that are not drawn are light grey.
    basis
        Another embedding in `adata.obsm` to draw on, such as `'umap'`.
    key
        The `key_added` of the fates.
    color_map
        Colours of the probabilities, from 0 to 1.
    size
        Size of a cell, as in scanpy.
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
    where = _basis(adata, keys, basis)
    if same_plot:
        return _finished(_all_fates(ax or _one_panel(), adata, keys, where, probability, shown, size), show, return_fig)
    if ax is not None and len(shown) > 1:
        raise ValueError(f"ax= takes one panel, and these are {len(shown)}. Give one state, or `same_plot=True`.")
    panels = [ax] if ax is not None else _panels(len(shown), ncols)
    for panel, name in zip(panels, shown, strict=True):
        values = probability[name].to_numpy()
        _draw(panel, adata, where, values, size, order=values, cmap=color_map, vmin=0, vmax=1)
        panel.set_title(name)
    panels[0].figure.colorbar(panels[0].collections[0], ax=panels, label="fate probability", shrink=0.8, aspect=25)
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


def tree(
    adata: AnnData,
    color: str | None = None,
    *,
    key: str = DEFAULT_KEY,
    layer: str | None = None,
    color_map: str = "viridis",
    size: float | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | None:
    """The tree of branches along the pseudotime, with the cells on it.

    Each terminal state has a row. Cells spread across their branch as far as there are many: the width follows the
    square root of the number of cells at that time, so that rare branches can be seen. A state without a branch of its
    own is joined by a dashed line.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.terminal_states`.
    color
        A column of `adata.obs`, or a gene. By default the branch: colours of its terminal state, mixed where it leads
        to several.
    key
        The `key_added` of the terminal states.
    layer
        Layer of `adata` that a gene is read from.
    color_map
        Colours of numbers.
    size
        Size of a cell, as in scanpy.
    ax, show, return_fig
        As in scanpy: axes to draw on, whether to show the figure, and whether to return it.

    Returns
    -------
    The figure if `return_fig`, else the axes if `show` is false.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=300)
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> ep.tl.terminal_states(adata, groupby="branch")
    >>> fig = ep.pl.tree(adata, return_fig=True)
    """
    keys = Keys(key)
    require(adata.obs, keys.branch, "obs", "ep.tl.terminal_states(adata)")
    require(adata.uns.get(keys.uns, {}), "tree", f"uns[{key!r}]", "ep.tl.terminal_states(adata)")
    nodes, edges = (adata.uns[keys.uns]["tree"][part] for part in ("nodes", "edges"))
    leads_to = {name: _tips(edges, name) for name in nodes.index}
    rows = {tip: -float(i) for i, tip in enumerate(leads_to["root"])}
    row = {name: float(np.mean([rows[tip] for tip in tips])) for name, tips in leads_to.items()}
    own = edges.drop_duplicates("branch").set_index("branch")["child"]
    branch = adata.obs[keys.branch].astype(str)
    x = adata.obs[keys.pseudotime].to_numpy()
    y = branch.map(own.map(row)).to_numpy(dtype=float)
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 1.6 + 0.75 * len(rows)), layout="constrained")
    at = np.column_stack([x, y + _spread(x, branch.to_numpy())])
    colors = state_colors(adata, keys, leads_to["root"])
    if color is None:
        by_branch = {name: mixed([colors[tip] for tip in leads_to[child]]) for name, child in own.items()}
        _scatter(ax, at, np.array([by_branch[name] for name in branch]), size)
    else:
        _scatter_by(ax, at, adata, color, layer, color_map, size)
    time = nodes["pseudotime"]
    for parent, child, n_cells in edges[["parent", "child", "n_cells"]].itertuples(index=False):
        elbow = [time[parent], time[parent], time[child]], [row[parent], row[child], row[child]]
        ax.plot(*elbow, color=BLACK, linewidth=1.2, linestyle="-" if n_cells else "--", solid_joinstyle="round")
    ax.scatter(time["root"], row["root"], marker="*", s=180, color=ORANGE, edgecolor="white", zorder=5)
    ends = {name: (time[name], row[name]) for name in ["root", *rows]}
    label_ends(ax, "root", ends)
    ax.set(xlabel="pseudotime", yticks=[], ylim=(-len(rows) + 0.45, 0.55))
    return _finished(ax, show, return_fig)


def _tips(edges: pd.DataFrame, node: str) -> list[str]:
    """The tips that a node leads to, from top to bottom."""
    children = edges.loc[edges["parent"] == node, "child"]
    return [tip for child in children for tip in _tips(edges, child)] if len(children) else [node]


def _spread(x: np.ndarray, branch: np.ndarray) -> np.ndarray:
    """How far from the middle of its row each cell is drawn: at random, and farther where its branch has more cells."""
    side = np.random.default_rng(0).uniform(-1, 1, len(x))
    bins = np.linspace(0, 1, 51)
    width = np.zeros(len(x))
    for name in np.unique(branch):
        on = branch == name
        counts = np.convolve(np.histogram(x[on], bins)[0], [0.25, 0.5, 0.25], mode="same")
        width[on] = np.sqrt(np.interp(x[on], (bins[1:] + bins[:-1]) / 2, counts))
    return HALF_ROW * side * width / width.max()


def _scatter_by(
    ax: Axes, at: np.ndarray, adata: AnnData, color: str, layer: str | None, color_map: str, size: float | None
) -> None:
    """Cells by a column or a gene, with a colour bar or a legend."""
    if color not in adata.obs and color not in adata.var_names:
        raise KeyError(f"color={color!r} is no column of adata.obs and no gene; there is {named(adata.obs.columns)}.")
    values = sc.get.obs_df(adata, [color], layer=layer)[color]
    if is_numeric_dtype(values) and not is_bool_dtype(values):
        drawn = _scatter(ax, at, values.to_numpy(), size, cmap=color_map)
        ax.figure.colorbar(drawn, ax=ax, label=color, aspect=25)
        return
    groups = values.astype("category").cat
    palette = adata.uns.get(f"{color}_colors", ())
    if len(palette) != len(groups.categories):
        palette = colors_for(len(groups.categories))
    _scatter(ax, at, np.array([to_rgb(c) for c in [*palette, LIGHT]])[groups.codes], size)
    for name, shade in zip(groups.categories, palette, strict=True):
        ax.scatter([], [], color=shade, s=30, label=name)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small", title=color)


def arrows(
    adata: AnnData,
    color: str | None = None,
    *,
    basis: str | None = None,
    key: str = DEFAULT_KEY,
    grid: int = 30,
    min_cells: int | None = None,
    color_map: str | None = None,
    size: float | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | None:
    """Where the cells go next: arrows of the forward walk on an embedding.

    Each arrow is the mean of the cells in one square of a grid, from where they are towards where the walk takes them.
    Lengths compare squares of one figure; they have no unit.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.fates(adata, forward=True)`, with an embedding.
    color
        A column of `adata.obs`, or a gene, to colour the cells by; grey by default.
    basis
        Another embedding in `adata.obsm` to draw on, such as `'umap'`.
    key
        The `key_added` of the fates.
    grid
        Squares across the longer side of the embedding.
    min_cells
        Squares with fewer cells have no arrow. By default 3, or a tenth of the mean where that is more.
    color_map
        Colours of numbers.
    size
        Size of a cell, as in scanpy.
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
    where = _basis(adata, keys, basis)
    ax = ax or _one_panel()
    sc.pl.embedding(
        in_memory(adata, where), where, color=color, color_map=color_map, size=size, title="", ax=ax, show=False
    )
    unstretched(ax)
    at = np.asarray(adata.obsm[where])[:, :2]
    step = adata.obsp[keys.forward] @ at - at
    low, high = at.min(axis=0), at.max(axis=0)
    side = (high - low).max() / grid
    column, row = ((at - low) / side).astype(int).T
    _, square, n_cells = np.unique(column * (grid + 1) + row, return_inverse=True, return_counts=True)
    enough = n_cells >= (max(3, n_cells.mean() / 10) if min_cells is None else min_cells)
    x, y, dx, dy = ((np.bincount(square, values) / n_cells)[enough] for values in (*at.T, *step.T))
    length = np.hypot(dx, dy)
    scale = (
        side / max(np.percentile(length, 95), np.finfo(float).tiny) / np.maximum(1, length / np.percentile(length, 95))
    )
    ax.quiver(x, y, dx * scale, dy * scale, angles="xy", scale_units="xy", scale=1, color=BLACK, width=0.003, zorder=4)
    mark_ends(ax, adata, keys, at, "roots")
    return _finished(ax, show, return_fig)


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
    _scatter(ax, at[drawn], color if isinstance(color, str) else color[drawn], size, **options)
    name = where.removeprefix("X_")
    ax.set(xlabel=f"{name}1", ylabel=f"{name}2", xticks=[], yticks=[])
    unstretched(ax)
    return at


def _scatter(ax: Axes, at: np.ndarray, color: Any, size: float | None, **options: Any) -> Any:
    size = np.clip(60_000 / len(at), 1, 30) if size is None else size
    return ax.scatter(*at.T, c=color, s=size, linewidths=0, rasterized=True, **options)


def _centres(at: np.ndarray, states: pd.Series) -> dict[str, np.ndarray]:
    """The most central cell of each state."""
    found = {}
    for name in states.astype("category").cat.categories:
        cells = at[(states == name).to_numpy()]
        if len(cells):
            found[name] = cells[np.linalg.norm(cells - np.median(cells, axis=0), axis=1).argmin()]
    return found
