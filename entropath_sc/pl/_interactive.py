from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from anndata import AnnData

from .._keys import DEFAULT_KEY, Keys
from ._drawing import color_values, label_colors
from ._plots import require_coordinates

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def interactive(
    adata: AnnData,
    color: str | None = None,
    *,
    key: str = DEFAULT_KEY,
    hover: Sequence[str] = (),
    color_map: str = "Viridis",
    size: float = 3.0,
) -> Figure:
    """Draw the embedding to turn and zoom, in two or three dimensions; the mouse shows the barcode of a cell.

    Needs plotly: `pip install "entropath_sc[interactive]"`.

    Parameters
    ----------
    adata
        Annotated data after `ep.tl.embedding`. Three dimensions are drawn if it has three or more.
    color
        A column of `adata.obs`, or a gene.
    key
        The `key_added` of the embedding.
    hover
        Columns of `adata.obs` that the mouse shows too.
    color_map
        Name of a plotly colour scale, for numbers.
    size
        Size of a cell. Lower it if cells hide each other.

    Returns
    -------
    A plotly figure; notebooks show it, and `figure.write_html` keeps it.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=300)
    >>> ep.tl.embedding(adata, n_components=3)
    >>> figure = ep.pl.interactive(adata, "branch", hover=["time"])
    """
    try:
        from plotly import graph_objects as go
    except ImportError as error:
        raise ImportError('An interactive view needs plotly: `pip install "entropath_sc[interactive]"`.') from error
    keys = Keys(key)
    require_coordinates(adata, keys)
    Y = np.asarray(adata.obsm[keys.coordinates])
    draw = go.Scatter3d if Y.shape[1] > 2 else go.Scattergl
    axes = dict(zip("xyz", Y.T, strict=False))
    under_mouse = [f"{barcode}" for barcode in adata.obs_names]
    for column in hover:
        values = adata.obs[column]
        under_mouse = [f"{text}<br>{column}: {value}" for text, value in zip(under_mouse, values, strict=True)]

    def trace(cells: np.ndarray, name: str | None, marker: dict):
        some = {axis: values[cells] for axis, values in axes.items()}
        text = [under_mouse[i] for i in np.flatnonzero(cells)]
        return draw(**some, mode="markers", name=name, text=text, hoverinfo="text", marker={"size": size, **marker})

    everybody = np.ones(adata.n_obs, dtype=bool)
    if color is None:
        traces = [trace(everybody, None, {"color": "#0072B2"})]
    else:
        if not isinstance(color, str):
            raise TypeError(f"color={color!r} must be one column of adata.obs, or one gene.")
        values = color_values(adata, color, None)
        if isinstance(values, pd.Categorical):
            shades = label_colors(adata, color, values)
            traces = [
                trace(values.codes == i, str(group), {"color": shades[i]}) for i, group in enumerate(values.categories)
            ]
            if values.isna().any():
                traces.append(trace(values.isna(), "none", {"color": "lightgrey"}))
        else:
            traces = [trace(everybody, None, {"color": values, "colorscale": color_map, "colorbar": {"title": color}})]
    figure = go.Figure(traces)
    figure.update_layout(template="simple_white", legend={"itemsizing": "constant"}, margin={"t": 20})
    return figure
