"""Arrays, or the names of fields of an AnnData object that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
from anndata import AnnData


def field(value: Any, adata: AnnData | None) -> Any:
    """``value`` itself, or what ``adata`` holds under that name in `obsm`, `obsp` or `obs`."""
    if not isinstance(value, str):
        return value
    if adata is None:
        raise ValueError(f"{value!r} is a name: pass `adata=` the object that holds it, or an array instead.")
    for place, fields in (("obsm", adata.obsm), ("obsp", adata.obsp), ("obs", adata.obs)):
        if value in fields:
            found = fields[value]
            return found.to_numpy() if place == "obs" else found
    there = [*adata.obsm, *adata.obsp, *adata.obs]
    raise KeyError(f"{value!r} is neither in adata.obsm nor obsp nor obs, which hold {there}.")


def check_lengths(**arrays: Any) -> None:
    """All arrays have as many rows as the first."""
    (name, first), *others = arrays.items()
    for other, array in others:
        if array.shape[0] != first.shape[0]:
            raise ValueError(f"{name} has {first.shape[0]} cells, {other} {array.shape[0]}.")


def check_finite(**arrays: Any) -> None:
    """Refuse NaN and inf, which a correlation would not show."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or inf.")
