"""Colours, marks, and words on a picture that do not cover each other."""

from __future__ import annotations

import textwrap
from collections.abc import Container, Iterable, Mapping
from typing import Any, cast

import matplotlib
import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from .._keys import Keys
from ..tl._adata import named

BLUE, ORANGE, BLACK = "#0072B2", "#D55E00", "#222222"
GREY, LIGHT = "#999999", "#DDDDDD"

# Okabe and Ito's colours, the least legible last, and more that stay as far apart. A test looks at them as readers with
# deuteranopia and protanopia do (Machado et al. 2009).
PALETTE = (
    *("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#D55E00", "#F0E442", "#222222"),
    *("#0000FF", "#330099", "#99FF99", "#6666FF", "#663300", "#660066", "#336666"),
)

HALO = withStroke(linewidth=2.5, foreground="white")

# Roots or terminals that are each marked in a plot.
MOST_MARKED = 10

# Where a label may stand: directions, and distances in points from what it names.
DIRECTIONS = np.linspace(0, 2 * np.pi, 16, endpoint=False)
DISTANCES = (4.0, 10.0, 20.0, 35.0, 55.0)

# Percentiles of the values that limit the colours: a few extreme cells do not take all of them.
ROBUST = (1.0, 99.0)

# Cells that are looked at for a place that is free of them.
MOST_CELLS = 4000


def colors_for(n: int) -> list[str]:
    """Colours that colour-blind readers can tell apart, up to fifteen; scanpy's for more."""
    colors = PALETTE if n <= len(PALETTE) else sc.pl.palettes.default_102
    return [colors[i % len(colors)] for i in range(n)]


def scanpy_colors(n: int) -> list[str]:
    """Those that scanpy chooses where nobody else has chosen."""
    palettes = sc.pl.palettes
    cycle = matplotlib.rcParams["axes.prop_cycle"].by_key()["color"]
    choices = (cycle, palettes.default_20, palettes.default_28, palettes.default_102, ["grey"] * n)
    return [to_hex(color) for color in next(colors for colors in choices if len(colors) >= n)[:n]]


def state_colors(adata: AnnData, keys: Keys, names: Iterable[str]) -> dict[str, str]:
    """The same colour for a state in every plot: the one in `uns`, as scanpy stores it, or a colour-blind safe one."""
    names = list(names)
    there = list(adata.obs[keys.terminal].astype("category").cat.categories) if keys.terminal in adata.obs else names
    table = adata.uns.get(keys.uns, {}).get("terminal_states")
    known = there if table is None else list(table.index)  # selected cells may have lost states, the table has not
    colors = dict(zip(known, colors_for(len(known)), strict=True))
    chosen = adata.uns.get(f"{keys.terminal}_colors", ())
    if len(chosen) == len(there):
        colors |= zip(there, chosen, strict=True)
    return {name: colors.get(name, GREY) for name in names}


def branch_colors(adata: AnnData, keys: Keys) -> dict[str, str]:
    """A branch has the colour of its terminal state, one of its own if it leads to several, and the trunk is grey."""
    edges = adata.uns[keys.uns]["tree"]["edges"]
    own = edges.drop_duplicates("branch").set_index("branch")["child"]
    colors = state_colors(adata, keys, edges.loc[~edges["child"].isin(edges["parent"]), "child"])
    spare = iter([shade for shade in (*PALETTE, *colors_for(100)) if shade not in colors.values()])
    for child in own:
        if child not in colors:
            colors[child] = GREY if child == own.iloc[0] else next(spare)
    return {str(name): colors[child] for name, child in own.items()}


def mark_ends(ax: Axes, adata: AnnData, keys: Keys, coordinates: np.ndarray, name: str) -> dict[str, np.ndarray]:
    """Mark the 'roots' or 'terminals' of an order, and tell where; projected cells and subsets may have none."""
    ends = adata.uns.get(keys.uns, {}).get("pseudotime", {})
    at = coordinates[adata.obs_names.isin(ends.get(name, []))]
    if not len(at):
        return {}
    label = name[:-1] if len(at) == 1 else f"{len(at)} {name}"
    central = np.linalg.norm(at - np.median(at, axis=0), axis=1).argmin()
    if len(at) > MOST_MARKED:  # such as a whole cell type: its most central cell stands for it
        at, central = at[[central]], 0
    marker, color = ("*", ORANGE) if name == "roots" else ("X", BLACK)
    ax.scatter(at[:, 0], at[:, 1], marker=marker, s=180, color=color, edgecolor="white", label=label, zorder=5)
    return {label: at[central]}


def unstretched(ax: Axes) -> None:
    """The same scale on all axes, for distances are what a map shows; axes have the plain name of the embedding."""
    ax.set_aspect("equal", adjustable="datalim")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_label_text(axis.get_label_text().removeprefix("X_"))


def scatter(ax: Axes, at: np.ndarray, color: Any, size: float | None = None, **options: Any) -> Any:
    size = np.clip(40_000 / len(at), 0.5, 15) if size is None else size
    return ax.scatter(at[:, 0], at[:, 1], c=color, s=size, linewidths=0, rasterized=True, **options)


def robust_limits(ax: Axes, vmin: Any = None, vmax: Any = None) -> None:
    """Set the limits of the colours that are drawn last: numbers, percentiles, or by default those of `ROBUST`."""
    drawn = next((found for found in reversed(ax.collections) if found.get_array() is not None), None)
    if drawn is None:
        return
    values = np.ma.masked_invalid(drawn.get_array()).compressed()
    if not len(values):
        return
    limits = [np.percentile(values, share) for share in ROBUST]
    if limits[0] == limits[1]:  # such as a gene that few cells express
        limits = [values.min(), values.max()]
    for i, given in enumerate((vmin, vmax)):
        if isinstance(given, str):
            limits[i] = np.percentile(values, float(given.removeprefix("p")))
        elif callable(given):
            limits[i] = given(values)
        elif given is not None:
            limits[i] = given
    drawn.set_clim(*(float(limit) for limit in limits))


def check_color(adata: AnnData, color: str, genes: Container[str]) -> None:
    """Refuse what is neither a column nor a gene."""
    if not isinstance(color, str) or (color not in adata.obs and color not in genes):
        raise KeyError(f"color={color!r} is no column of adata.obs and no gene; there is {named(adata.obs.columns)}.")


def color_values(adata: AnnData, color: str, layer: str | None) -> np.ndarray | pd.Categorical:
    """A column or a gene: numbers, or categories."""
    check_color(adata, color, adata.var_names)
    values = sc.get.obs_df(adata, [color], layer=layer)[color]
    if is_number(values):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return pd.Categorical(values)


def is_number(values: pd.Series) -> bool:
    """Whether a column has numbers, which a colour map stands for; else it has categories."""
    return is_numeric_dtype(values) and not is_bool_dtype(values)


def label_colors(adata: AnnData, color: str, labels: pd.Categorical) -> list[str]:
    """The colours of categories: those in `uns`, those of results, or those that scanpy would give them.

    The latter are put into `uns`, as scanpy does, so that all figures have the same.
    """
    field = f"{color}_colors"
    colors = adata.uns.get(field, ())
    if isinstance(colors, list | tuple | np.ndarray) and len(colors) == len(labels.categories):
        return list(colors)
    found = result_colors(adata, color, labels)
    if found is None:
        found = scanpy_colors(len(labels.categories))
        if field not in adata.uns and not adata.is_view:
            adata.uns[field] = found
    return found


def result_colors(adata: AnnData, color: str, labels: pd.Categorical) -> list[str] | None:
    """The colours of branches or terminal states, the same in every plot; None for other columns."""
    keys = Keys(color.rpartition("_")[0])
    entry = adata.uns.get(keys.uns, {})
    if color == keys.terminal and "terminal_states" in entry:
        found = state_colors(adata, keys, map(str, labels.categories))
    elif color == keys.branch and "tree" in entry:
        found = branch_colors(adata, keys)
    else:
        return None
    return [found.get(str(name), GREY) for name in labels.categories]


def label_legend(ax: Axes, title: str, names: Iterable[str], colors: Iterable[str], own: bool) -> None:
    """Names of categories beside the axes; `own` figures grow with them."""
    for name, shade in zip(names, colors, strict=True):
        ax.scatter([], [], color=shade, s=30, label=name)
    lines = max(1, int(ax.get_window_extent().height / root_figure(ax).dpi / 0.19))
    legend = ax.legend(
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        frameon=False,
        fontsize="small",
        title=title,
        alignment="left",
        ncols=-(-len(list(names)) // lines),
    )
    if own:
        widen(ax, legend.get_window_extent().width)


def scatter_by(
    ax: Axes,
    at: np.ndarray,
    adata: AnnData,
    color: str,
    layer: str | None,
    color_map: str | None,
    size: float | None,
    own: bool,
) -> None:
    """Cells by a column or a gene, with a colour bar or a legend; `own` figures grow with it."""
    values = color_values(adata, color, layer)
    if not isinstance(values, pd.Categorical):
        last = values.argsort(kind="stable")  # the largest on top, as in scanpy
        drawn = scatter(ax, at[last], values[last], size, cmap=color_map)
        robust_limits(ax)
        ax.figure.colorbar(drawn, ax=ax, label=color, aspect=25, pad=0.02)
        if own:
            widen(ax, 0.8 * root_figure(ax).dpi)
        return
    colors = label_colors(adata, color, values)
    scatter(ax, at, np.array([to_rgb(shade) for shade in [*colors, LIGHT]])[values.codes], size)
    label_legend(ax, color, values.categories, colors, own)


def root_figure(ax: Axes) -> Figure:
    return cast(Figure, ax.figure.canvas.figure)


def widen(ax: Axes, pixels: float) -> None:
    """Make room for words beside the axes."""
    figure = root_figure(ax)
    figure.set_figwidth(figure.get_figwidth() + pixels / figure.dpi)


def wrapped(name: str) -> str:
    """A long name in lines of whole words."""
    return textwrap.fill(name, 20, break_long_words=False, break_on_hyphens=False)


def place_labels(
    ax: Axes, cells: np.ndarray, anchors: Mapping[str, np.ndarray], fontsize: float | str | None = None
) -> None:
    """Name points, each where its name covers no other name, few cells, and nothing outside the axes."""
    if not anchors:
        return
    ax.margins(0.12)
    root_figure(ax).draw_without_rendering()  # so that the layout and the limits are settled
    point = root_figure(ax).dpi / 72
    inside = np.array(ax.get_window_extent().extents)
    crowd = ax.transData.transform(cells[:: -(-len(cells) // MOST_CELLS)])
    taken = [_box(at, np.full(2, 12 * point)) for at in ax.transData.transform(np.array(list(anchors.values())))]
    for name, anchor in anchors.items():
        text = ax.annotate(
            wrapped(name), tuple(anchor), xytext=(0, 0), textcoords="offset points", ha="center", va="center", zorder=6
        )
        text.set(fontsize=fontsize or "small", color=BLACK, path_effects=[HALO])
        size = np.array(text.get_window_extent().size)
        at = ax.transData.transform(anchor)
        places: list[tuple[float, int, np.ndarray, np.ndarray, float]] = []
        for distance in DISTANCES:
            for angle in DIRECTIONS:
                way = np.array([np.cos(angle), np.sin(angle)])
                offset = np.clip(1.5 * way, -1, 1) * size / 2 + way * (6 + distance) * point
                box = _box(at + offset, size + 4 * point)
                covered = sum(_overlap(box, other) for other in taken)
                outside = np.prod(box[2:] - box[:2]) - _overlap(box, inside)
                under = ((crowd > box[:2]) & (crowd < box[2:])).all(axis=1).sum()
                cost = 100 * (covered + outside) + 30 * under + distance
                places.append((cost, len(places), offset / point, box, distance))
        _, _, offset, box, distance = min(places)
        text.set_position(tuple(offset))
        taken.append(box)
        if distance > DISTANCES[1]:
            ends = ax.transData.inverted().transform([at, at + 0.8 * offset * point])
            ax.plot(*ends.T, color=BLACK, linewidth=0.6, zorder=5)


def _box(centre: np.ndarray, size: np.ndarray) -> np.ndarray:
    """A rectangle, as left, bottom, right and top."""
    return np.concatenate([centre - size / 2, centre + size / 2])


def _overlap(one: np.ndarray, other: np.ndarray) -> float:
    """The area that two rectangles share."""
    return float(np.prod(np.clip(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0, None)))


def label_ends(ax: Axes, first: str, ends: Mapping[str, tuple[float, float]], own: bool) -> None:
    """Name points to their right, and the first to its left, with axes wide enough; `own` figures grow instead."""
    options: dict[str, Any] = {"textcoords": "offset points", "va": "center", "path_effects": [HALO]}
    texts = {
        name: ax.annotate(wrapped(name), at, xytext=(-10, 0), ha="right", **options)
        if name == first
        else ax.annotate(wrapped(name), at, xytext=(7, 0), ha="left", **options)
        for name, at in ends.items()
    }
    width = {name: text.get_window_extent().width + 14 * root_figure(ax).dpi / 72 for name, text in texts.items()}
    if own:
        widen(ax, width[first] + max(width.values()))
    root_figure(ax).draw_without_rendering()
    # A name takes this share of the axes, which must lie beyond its point.
    share = {name: min(pixels / ax.get_window_extent().width, 0.5) for name, pixels in width.items()}
    low, high = ax.get_xlim()
    for _ in range(20):  # each side takes from the other
        low = min(low, (ends[first][0] - share[first] * high) / (1 - share[first]))
        high = max(
            high, *((x - share[name] * low) / (1 - share[name]) for name, (x, _) in ends.items() if name != first)
        )
    ax.set_xlim(low, high)
