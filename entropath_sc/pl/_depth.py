from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from .._keys import DEFAULT_KEY, Keys
from ._drawing import BLACK, BLUE, GREY, LIGHT, ORANGE
from ._plots import _finished, require

# Depths that rank cells this alike are drawn as equivalent. A guide for the eye: nothing is computed from it.
ALIKE = 0.95


def depth(
    adata: AnnData,
    *,
    key: str = DEFAULT_KEY,
    ax: Axes | None = None,
    show: bool | None = None,
    return_fig: bool = False,
) -> Figure | Axes | None:
    """Show which depth was used, and whether another one would change the result.

    The curve compares other depths with the one used: 1 means that they rank the cells by distance in the same way.
    Where it is above the dotted line (0.95, shaded), the choice hardly matters. If the shaded range is narrow, the data
    have few cells or much noise.

    With `preset='paper'` it shows the paper's rule instead. The curve is the entropy of the walk, which falls as the
    walk gets longer and fewer directions remain. The depth is its knee, where two straight lines fit best.

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
    if len(found.get("depths", ())):
        _draw_agreement(ax, np.asarray(found["depths"]), np.asarray(found["agreement"]))
    else:
        _draw_entropy(ax, np.asarray(found["entropy"]), int(found["knee"]))
    chosen = float(found["chosen"])
    ax.axvline(chosen, color=BLACK, linestyle="--", linewidth=1, label=f"depth used: {chosen:g}", zorder=3)
    ax.spines[["top", "right"]].set_visible(False)
    # Above the axes, where no curve can pass.
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize="small")
    return _finished(ax, show, return_fig)


def _draw_agreement(ax: Axes, depths: np.ndarray, agreement: np.ndarray) -> None:
    """How alike other depths rank the cells, and the range around the one used in which they hardly differ."""
    position, fine = np.log(depths), np.linspace(np.log(depths[0]), np.log(depths[-1]), 400)
    alike = np.interp(fine, position, agreement) >= ALIKE
    middle = np.abs(fine - position[len(position) // 2]).argmin()
    left, right = middle, middle
    while left > 0 and alike[left - 1]:
        left -= 1
    while right < len(fine) - 1 and alike[right + 1]:
        right += 1
    low, high = np.exp(fine[[left, right]])
    ax.axvspan(low, high, color=LIGHT, alpha=0.6, linewidth=0, label=f"hardly matters: {_short(low)} to {_short(high)}")
    ax.axhline(ALIKE, color=GREY, linestyle=":", linewidth=1, label=f"agreement {ALIKE:g}")
    ax.plot(depths, agreement, "s-", color=ORANGE, markersize=4, label="agreement of other depths")
    ax.set(xscale="log", xlabel="depth: how far paths may wander (neighbour distances)")
    ax.set_ylabel("same ranking of cells\n(Spearman with the depth used)")
    ax.set_ylim(min(0.9, float(agreement.min()) - 0.01), 1.005)
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))


def _short(number: float) -> str:
    """Two digits, and never an exponent for a hundred."""
    return f"{float(f'{number:.2g}'):g}"


def _draw_entropy(ax: Axes, entropy: np.ndarray, knee: int) -> None:
    """The paper's rule: the entropy of the walk, and the two straight lines that meet at its knee."""
    steps = np.arange(1, len(entropy) + 1)
    ax.plot(steps, entropy, color=BLUE, label="entropy of the walk")
    for part in (slice(0, knee), slice(knee - 1, None)):
        if len(steps[part]) > 1:
            line = np.polyval(np.polyfit(steps[part], entropy[part], 1), steps[part])
            label = "two straight lines that fit it best" if part.start == 0 else None
            ax.plot(steps[part], line, color=ORANGE, linestyle=":", label=label)
    ax.plot(knee, entropy[knee - 1], "o", color=BLUE, label=f"knee: {knee}")
    ax.set(xlabel="depth: steps of the walk", ylabel="entropy of the walk\n(directions that remain, nats)")
