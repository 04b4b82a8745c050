from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from .._keys import DEFAULT_KEY, Keys
from ._drawing import BLACK, ORANGE, branch_colors, label_ends, scatter, scatter_by
from ._plots import _finished, require

# Rows are one apart in a tree; cells take up to this much on either side.
HALF_ROW = 0.42


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
    """Draw the tree of branches along the pseudotime, with the cells on it.

    Each terminal state has a row. A branch is wider where there are more cells: the width follows the square root of
    their number at that pseudotime, so that rare branches can be seen.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.terminal_states`.
    color
        A column of `adata.obs`, or a gene. By default the branch: the colour of its terminal state, a colour of its own
        where it leads to several, and grey for the trunk.
    key
        The `key_added` of the terminal states.
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
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> ep.tl.terminal_states(adata, groupby="branch")
    >>> fig = ep.pl.tree(adata, return_fig=True)
    """
    keys = Keys(key)
    require(adata.obs, keys.branch, "obs", "ep.tl.terminal_states(adata)")
    require(adata.uns.get(keys.uns, {}), "tree", f"uns[{key!r}]", "ep.tl.terminal_states(adata)")
    nodes, edges = (adata.uns[keys.uns]["tree"][part] for part in ("nodes", "edges"))
    tips = _tips(edges, "root")
    row = {tip: -float(i) for i, tip in enumerate(tips)}
    for name in nodes.index[::-1].difference(tips, sort=False):  # half way between those that begin there
        row[name] = float(np.mean([row[child] for child in edges.loc[edges["parent"] == name, "child"]]))
    own = edges.set_index("branch")["child"]
    branch = adata.obs[keys.branch].astype(str)
    x = adata.obs[keys.pseudotime].to_numpy()
    y = branch.map(own.map(row)).to_numpy(dtype=float)
    own_figure = ax is None
    if ax is None:
        _, ax = plt.subplots(figsize=(5.0, 1.2 + 0.55 * len(tips)), layout="constrained")
    at = np.column_stack([x, y + _spread(x, branch.to_numpy())])
    if color is None:
        colors = {name: to_rgb(shade) for name, shade in branch_colors(adata, keys).items()}
        scatter(ax, at, np.array([colors[name] for name in branch]), size)
    else:
        scatter_by(ax, at, adata, color, layer, color_map, size, own_figure)
    time = nodes["pseudotime"]
    for parent, child in edges[["parent", "child"]].itertuples(index=False):
        elbow = [time[parent], time[parent], time[child]], [row[parent], row[child], row[child]]
        ax.plot(*elbow, color=BLACK, linewidth=1.2, solid_joinstyle="round")
    ax.scatter(time["root"], row["root"], marker="*", s=180, color=ORANGE, edgecolor="white", zorder=5)
    ends = {name: (time[name], row[name]) for name in ["root", *tips]}
    label_ends(ax, "root", ends, own_figure)
    ax.spines[["left", "top", "right"]].set_visible(False)
    ax.spines["bottom"].set_bounds(0, 1)
    low, high = ax.get_xlim()
    ax.set_xlabel("pseudotime", x=(0.5 - low) / (high - low))
    ax.set(xticks=[0, 0.5, 1], yticks=[], ylim=(-len(tips) + 0.45, 0.55))
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
