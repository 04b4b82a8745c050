"""The figures of `entropath-sc run`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import read_elem

from ._keys import Keys
from ._store import index_of, positions_of, rows_of

# Points of more cells hide each other: where no colour is asked for, their density is drawn.
MANY_CELLS = 100_000
# Cells of a store that are drawn at most; a picture has no more points.
MOST_DRAWN = 500_000
# Figures that need terminal states; an order may have none.
OF_STATES = ("terminal_states", "fates")


def figure_names(options: argparse.Namespace) -> list[str]:
    """Files that are drawn; those of lineages only where there are any."""
    names = ["embedding", "depth"] + ["pseudotime"] * bool(options.root or options.root_label)
    return [f"{name}.png" for name in [*names, *(["tree", *OF_STATES] if options.lineages else [])]]


def _colors(options: argparse.Namespace) -> list[str]:
    """What the embedding is coloured by: the labels that name the states, unless others are asked for."""
    return options.color or ([options.groupby] if options.groupby else [])


def draw_figures(adata: AnnData, drafts: Path, options: argparse.Namespace) -> None:
    """Draw the figures, and give them their names when all are there."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from . import pl

    colors = _colors(options)
    many = adata.n_obs > MANY_CELLS and not colors
    draw: dict[str, Any] = {"embedding": pl.density if many else partial(pl.embedding, color=colors or None)}
    draw |= {"depth": pl.depth, "pseudotime": pl.pseudotime, "tree": pl.tree}
    draw |= {"terminal_states": pl.terminal_states, "fates": pl.fates}
    has_states = Keys(options.key_added).fates in adata.obsm
    names = [name for name in figure_names(options) if has_states or Path(name).stem not in OF_STATES]
    for name in names:
        figure = draw[Path(name).stem](adata, key=options.key_added, return_fig=True)
        figure.savefig(drafts / name, dpi=150, bbox_inches="tight")
        plt.close(figure)
    for name in names:
        (drafts / name).replace(options.figures / name)


def sample_of(store: Path, options: argparse.Namespace) -> AnnData:
    """What figures show of a store: its results, with a random sample of the cells where there are many."""
    import zarr

    group: Any = zarr.open_group(store, mode="r")
    obs, keys = group["obs"], Keys(options.key_added)
    barcodes, entry = index_of(obs), read_elem(group["uns"][keys.uns])
    rows = np.arange(barcodes.shape[0])
    if len(rows) > MOST_DRAWN:
        rows = np.sort(np.random.default_rng(0).choice(len(rows), MOST_DRAWN, replace=False, shuffle=False))
        # Landmarks, which terminal states are among, and ends of the order are all shown.
        rows = np.union1d(rows, np.flatnonzero(obs[keys.landmark][:]))
        ends = entry.get("pseudotime", {})
        for name in ("roots", "terminals"):
            if name in ends:
                rows = np.union1d(rows, positions_of(obs, list(map(str, ends[name])), name))
    index = barcodes.oindex[rows].astype(object)
    wanted = dict.fromkeys([keys.pseudotime, keys.terminal, keys.branch, keys.plasticity, *_colors(options)])
    columns = {name: rows_of(obs[name], rows).array for name in wanted if name in obs}
    frame = pd.DataFrame(columns, index=pd.Index(index))
    sample = AnnData(obs=frame, uns={keys.uns: entry})
    sample.obsm[keys.coordinates] = group["obsm"][keys.coordinates].oindex[rows]
    if keys.fates in group["obsm"]:
        table = group["obsm"][keys.fates]
        columns = {name: table[name].oindex[rows] for name in table.attrs["column-order"]}
        sample.obsm[keys.fates] = pd.DataFrame(columns, index=frame.index)
    return sample
