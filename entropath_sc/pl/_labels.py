"""Colours of terminal states, and words on a picture that do not cover each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patheffects import withStroke

from .._keys import Keys
from ._plots import BLACK

GREY, LIGHT = "#999999", "#DDDDDD"

# Okabe and Ito's colours, the least legible last; and Krzywinski's fifteen, for more.
OKABE_ITO = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#D55E00", "#F0E442")
FIFTEEN = (
    *("#003C86", "#008607", "#EF0096", "#FFDC3D", "#009FFA", "#F60239", "#00DCB5", "#9400E6"),
    *("#00E307", "#FF71FD", "#008169", "#6A0213", "#7CFFFA", "#68023F", "#FFCFE2"),
)

HALO = withStroke(linewidth=2.5, foreground="white")

# Where a label may stand: directions, and distances in points from what it names.
DIRECTIONS = np.linspace(0, 2 * np.pi, 16, endpoint=False)
DISTANCES = (4.0, 10.0, 20.0, 35.0, 55.0)

# Cells that are looked at for a place that is free of them.
MOST_CELLS = 4000


def colors_for(n: int) -> list[str]:
    """So many colours that stay apart for colour-blind readers; they start again after fifteen."""
    colors = OKABE_ITO if n <= len(OKABE_ITO) else FIFTEEN
    return [colors[i % len(colors)] for i in range(n)]


def state_colors(adata: AnnData, keys: Keys, names: Iterable[str]) -> dict[str, str]:
    """The same colour for a state in every plot: the one in `uns`, as scanpy stores it, or a colour-blind safe one."""
    names = list(names)
    known = list(adata.obs[keys.terminal].astype("category").cat.categories) if keys.terminal in adata.obs else names
    chosen = adata.uns.get(f"{keys.terminal}_colors", ())
    colors = dict(zip(known, chosen if len(chosen) == len(known) else colors_for(len(known)), strict=True))
    return {name: colors.get(name, GREY) for name in names}


def mixed(colors: Sequence[str]) -> np.ndarray:
    """The colour between some, greyer than each; itself where there is one."""
    mean = np.mean([to_rgb(color) for color in colors], axis=0)
    return mean if len(colors) == 1 else (mean + np.array(to_rgb(GREY))) / 2


def place_labels(ax: Axes, cells: np.ndarray, anchors: Mapping[str, np.ndarray]) -> None:
    """Name points, each where its name covers no other name, few cells, and nothing outside the axes."""
    ax.margins(0.12)
    ax.figure.draw_without_rendering()  # so that the layout and the limits are settled
    point = ax.figure.dpi / 72
    inside = ax.get_window_extent().extents
    crowd = ax.transData.transform(cells[:: -(-len(cells) // MOST_CELLS)])
    taken = [_box(at, np.full(2, 12 * point)) for at in ax.transData.transform(np.array(list(anchors.values())))]
    for name, anchor in anchors.items():
        text = ax.annotate(name, anchor, xytext=(0, 0), textcoords="offset points", ha="center", va="center", zorder=6)
        text.set(fontsize="small", color=BLACK, path_effects=[HALO])
        size = np.array(text.get_window_extent().size)
        at = ax.transData.transform(anchor)
        places = []
        for distance in DISTANCES:
            for angle in DIRECTIONS:
                way = np.array([np.cos(angle), np.sin(angle)])
                offset = way * (size / 2 + (6 + distance) * point)
                box = _box(at + offset, size + 4 * point)
                covered = sum(_overlap(box, other) for other in taken)
                outside = np.prod(size) - _overlap(box, inside)
                under = ((crowd > box[:2]) & (crowd < box[2:])).all(axis=1).sum()
                cost = 100 * (covered + max(outside, 0)) + 30 * under + distance
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


def label_ends(ax: Axes, first: str, ends: Mapping[str, tuple[float, float]]) -> None:
    """Name points to their right, and the first to its left, and widen the axes until all names fit."""
    gap = 7.0
    sides = {name: -1 if name == first else 1 for name in ends}
    texts = {
        name: ax.annotate(
            name,
            at,
            xytext=(sides[name] * (gap + 3 * (name == first)), 0),
            textcoords="offset points",
            ha="left" if sides[name] > 0 else "right",
            va="center",
            path_effects=[HALO],
        )
        for name, at in ends.items()
    }
    ax.figure.draw_without_rendering()
    across = ax.get_window_extent().width
    share = {name: (t.get_window_extent().width + 2 * gap * ax.figure.dpi / 72) / across for name, t in texts.items()}
    low, high = ax.get_xlim()
    left = min(share[first], 0.4)
    # A point at x has (high - x)/(high - low) of the axes to its right, of which its name needs its share.
    for _ in range(20):
        low = min(low, (ends[first][0] - left * high) / (1 - left))
        needs = [
            (x - s * low) / (1 - s) for name, (x, _) in ends.items() if name != first and (s := min(share[name], 0.6))
        ]
        high = max(high, *needs)
    ax.set_xlim(low, high)
