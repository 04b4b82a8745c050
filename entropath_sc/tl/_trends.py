from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY, Keys
from ..core.trends import lineage_end
from ..core.trends import trends as fitted_trends
from ._adata import Fields, check_object, keys_for, named, write
from ._checks import check_count, check_flags, warn
from ._progress import finished


def trends(
    adata: AnnData,
    genes: str | Sequence[str] | None = None,
    *,
    fate: str | Sequence[str] | None = None,
    layer: str | None = None,
    n_points: int = 100,
    key_added: str = DEFAULT_KEY,
    copy: bool = False,
) -> AnnData | None:
    """Smooth the expression of genes along the pseudotime of each lineage.

    Each curve is a penalised cubic spline, and each cell is weighted by its membership in the lineage. Generalised
    cross-validation chooses how smooth the curves are. One smoothness is used for all lineages of a gene, so that its
    curves agree where lineages share cells. Use normalised, log-transformed expression. The standard error takes
    pseudotime and lineages as given.

    Run :func:`~entropath_sc.tl.fates` first.

    Parameters
    ----------
    adata
        Annotated data after :func:`~entropath_sc.tl.pseudotime` and :func:`~entropath_sc.tl.fates`.
    genes
        Names from `adata.var_names`. Default: all genes, which takes longer and more memory.
    fate
        One or several terminal states. Default: all.
    layer
        Layer that holds the expression. Default: `adata.X`.
    n_points
        Points of each curve. More give a finer curve, not a less smooth one.
    key_added
        Prefix of the fields that are read and set.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    `None`, or the copy if `copy`. Replaces earlier trends, and sets the following fields:

    `adata.varm['entropath_trends_<state>']` : float32
        Smooth expression, genes × points, for each state; NaN for other genes, and for genes with NaN or inf. In the
        name of the field, `_` replaces characters such as `/`.
    `adata.varm['entropath_trends_<state>_se']` : float32
        Its standard error.
    `adata.uns['entropath']['trends']` : dict
        `states`, the `fields` of each, and the `pseudotime` of the points (states × points). A lineage begins at 0 and
        ends with its last cell of at least half membership.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=600)
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> ep.tl.terminal_states(adata, groupby="branch")
    >>> ep.tl.fates(adata)
    >>> ep.tl.trends(adata, ["gene_0", "gene_1"])
    >>> adata.varm["entropath_trends_fate A"].shape
    (500, 100)
    """
    check_object(adata)
    check_flags(copy=copy)
    keys = keys_for(adata, key_added, "trends")
    check_count("n_points", n_points, 2)
    chosen = gene_indices(adata, genes)
    lineages = read_lineages(adata, keys, fate)
    X = expression(adata, layer)
    start = logg.info("computing trends")
    # All lineages choose how smooth a gene is, so that the curve of one does not depend on which are asked for.
    weights = adata.obsm[keys.membership]
    weights = weights[[state for state in weights if lineage_end(lineages.pseudotime, weights[state].to_numpy()) > 0]]
    fitted = fitted_trends(X if genes is None else X[:, chosen], lineages.pseudotime, weights.to_numpy(), n_points)
    found = [fitted[weights.columns.get_loc(state)] for state in lineages.membership]
    warn_if_unfit(adata.var_names[chosen], np.any([np.isnan(curve.mean[:, 0]) for curve in found], axis=0))
    names = list(lineages.membership)
    at = [keys.trends(field) for field in storable_names(names)]
    earlier = adata.uns.get(keys.uns, {}).get("trends", {}).get("fields", [])
    varm: dict[str, Any] = {field + end: None for field in map(str, earlier) for end in ("", "_se")}
    for field, curve in zip(at, found, strict=True):
        for name, values in ((field, curve.mean), (f"{field}_se", curve.se)):
            varm[name] = np.full((adata.n_vars, n_points), np.nan, dtype=np.float32)
            varm[name][chosen] = values
    part = {
        "states": np.array(names, dtype=object),
        "fields": np.array(at, dtype=object),
        "pseudotime": np.stack([curve.grid for curve in found]),
    }
    params = {"layer": layer, "n_points": n_points, "n_genes": len(chosen)}
    done = write(adata, keys, Fields(varm=varm, params={"trends": params}, parts={"trends": part}), copy=copy)
    summary = f"{len(chosen):,} genes along {len(names)} lineages, {adata.n_obs:,} cells"
    finished(start, summary, f"{named(at)}, smooth expression (adata.varm)")
    return done


@dataclass(frozen=True)
class Lineages:
    """The order, and for each terminal state the membership and the fate of each cell."""

    pseudotime: np.ndarray
    membership: pd.DataFrame
    fates: pd.DataFrame


def read_lineages(adata: AnnData, keys: Keys, fate: str | Sequence[str] | None) -> Lineages:
    """What `pseudotime` and `fates` stored, of the chosen states."""
    steps = (
        (adata.obs, keys.pseudotime, "obs", "ep.tl.pseudotime(adata, root=...)"),
        (adata.obsm, keys.membership, "obsm", "ep.tl.fates(adata)"),
        (adata.obsm, keys.fates, "obsm", "ep.tl.fates(adata)"),
    )
    for place, name, where, command in steps:
        if name not in place:
            raise KeyError(f"No adata.{where}[{name!r}]. Run `{command}` first.")
        if bad := int((~np.isfinite(np.asarray(place[name], dtype=float)).reshape(adata.n_obs, -1).all(axis=1)).sum()):
            raise ValueError(f"adata.{where}[{name!r}] holds NaN or inf in {bad} of {adata.n_obs} cells. Remove them.")
    pseudotime = adata.obs[keys.pseudotime].to_numpy(dtype=float)
    membership, fates = adata.obsm[keys.membership], adata.obsm[keys.fates]
    there = list(membership)
    states = there if fate is None else [fate] if isinstance(fate, str) else list(fate)
    if unknown := [state for state in states if state not in there]:
        raise ValueError(f"fate: {unknown[0]!r} is not a terminal state. Choose from {named(there, 40)}.")
    if not states:
        raise ValueError(f"fate is empty. Choose from {named(there, 40)}.")
    for state in states:
        if lineage_end(pseudotime, membership[state].to_numpy()) <= 0:
            raise ValueError(f"fate: all cells on the way to {state!r} are at pseudotime 0, so nothing changes there.")
    return Lineages(pseudotime, membership[states], fates[states])


def expression(adata: AnnData, layer: str | None) -> Any:
    """`adata.X` or a layer."""
    if layer is None and adata.X is None:
        raise ValueError(f"adata.X is empty. Set `layer=` to one of {named(adata.layers)}.")
    if layer is not None and layer not in adata.layers:
        raise KeyError(f"No adata.layers[{layer!r}]; adata.layers holds {named(adata.layers)}.")
    return adata.X if layer is None else adata.layers[layer]


def gene_indices(adata: AnnData, genes: str | Sequence[str] | None) -> np.ndarray:
    """Positions of genes by name, in the order given; of all genes without names."""
    if genes is None:
        return np.arange(adata.n_vars)
    names = [genes] if isinstance(genes, str) else list(genes)
    if not names:
        raise ValueError("genes is empty. Give names from adata.var_names, or leave it out for all genes.")
    if unknown := [name for name in names if name not in adata.var_names]:
        more = f" nor are {len(unknown) - 1} others" if len(unknown) > 1 else ""
        raise KeyError(
            f"genes: {unknown[0]!r} is not in adata.var_names,{more} which look like {adata.var_names[0]!r}."
        )
    at = np.flatnonzero(adata.var_names.isin(names))
    if len(at) > len(set(names)):
        raise ValueError("genes: a name stands for several genes. Run `adata.var_names_make_unique()` first.")
    position = dict(zip(adata.var_names[at], at, strict=True))
    return np.array([position[name] for name in names])


def storable_names(states: Sequence[str]) -> list[str]:
    """State names as parts of a key that h5ad and zarr can hold, each once, also with `_se` appended."""
    found: list[str] = []
    for state in states:
        plain = name = re.sub(r"[^\w.+ -]", "_", str(state))
        number = 1
        while any(name + end in (other, f"{other}_se") for other in found for end in ("", "_se")):
            number += 1
            name = f"{plain}_{number}"
        found.append(name)
    return found


def warn_if_unfit(genes: pd.Index, unfit: np.ndarray) -> None:
    """Say which genes have no result."""
    if unfit.any():
        warn(
            f"{unfit.sum()} of {len(genes)} genes hold NaN or inf, and so do their results; first {genes[unfit][0]!r}."
        )
