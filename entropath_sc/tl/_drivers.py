from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from anndata import AnnData
from scanpy import logging as logg
from scipy.stats import false_discovery_control

from .._keys import DEFAULT_KEY
from ..core.trends import TEST_INTERVALS, Association, Contrast, associations, lineage_end, spline_basis
from ._adata import Fields, check_object, keys_for, write
from ._checks import check_flags
from ._progress import finished
from ._trends import Lineages, expression, read_lineages, warn_if_unfit

# Cells that each of two branches needs to be compared.
FEWEST_CELLS = 10


def drivers(
    adata: AnnData,
    *,
    fate: str | Sequence[str] | None = None,
    versus: tuple[str, str] | None = None,
    layer: str | None = None,
    key_added: str = DEFAULT_KEY,
    copy: bool = False,
) -> AnnData | None:
    """Find genes that follow each fate, change along pseudotime, or differ between two branches.

    A gene follows a fate if cells with a higher probability of that fate express more of it, among cells at the same
    pseudotime. A gene that rises in all lineages alike follows none. Use normalised, log-transformed expression.

    The p values take pseudotime and fates as given. Both were made from the same genes, so p values rank genes rather
    than prove them. With thousands of cells most are tiny; look at the effect sizes.

    Run :func:`~entropath_sc.tl.fates` first.

    Parameters
    ----------
    adata
        Annotated data after :func:`~entropath_sc.tl.pseudotime` and :func:`~entropath_sc.tl.fates`.
    fate
        One or several terminal states. Default: all.
    versus
        Two terminal states: compare their branches instead, from where they part. The cells of a branch have a
        membership of at least 0.5 in one state and less in the other.
    layer
        Layer that holds the expression. Default: `adata.X`.
    key_added
        Prefix of the fields that are read and set.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    `None`, or the copy if `copy`. Sets one of the following fields. The q values are p values after Benjamini and
    Hochberg, over all genes. Genes with NaN or inf have NaN.

    `adata.uns['entropath']['drivers']` : DataFrame
        All genes (`gene`) for each `state`, those that follow it most closely first. The columns are:

        - `correlation` with the probability of the fate at the same pseudotime, its `p` and `q`;
        - `change`, the share of variance along the lineage that pseudotime explains, `change_p` and `change_q`.
    `adata.uns['entropath']['versus']` : DataFrame
        With `versus`, all genes; those of the first state come first, those of the second last. The two states are in
        `adata.uns['entropath']['params']['drivers']['versus']`. The columns are:

        - `correlation` with being on the branch of the first state, at the same pseudotime;
        - `p` and `q`, whether expression differs between the branches at all, constantly or changing with pseudotime.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=600)
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> ep.tl.terminal_states(adata, groupby="branch")
    >>> ep.tl.fates(adata)
    >>> ep.tl.drivers(adata)
    >>> found = adata.uns["entropath"]["drivers"]
    >>> best = found[found["state"] == "fate A"].head(10)
    """
    check_object(adata)
    check_flags(copy=copy)
    keys = keys_for(adata, key_added, "drivers")
    if versus is not None and (isinstance(versus, str) or len(versus) != 2 or versus[0] == versus[1]):
        raise ValueError(f"versus={versus!r} must be two different terminal states.")
    if versus is not None and fate is not None:
        raise ValueError("Give either `fate` or `versus`.")
    lineages = read_lineages(adata, keys, fate if versus is None else list(versus))
    X = expression(adata, layer)
    start = logg.info("computing drivers")
    contrasts = _of_each_fate(lineages) if versus is None else [_between(lineages)]
    found = associations(X, contrasts)
    # Without a second state there are no fates to follow, and only the change along the order is known.
    warn_if_unfit(adata.var_names, np.isnan(found[-1].share))
    part = {"versus": _table(adata.var_names, found[0])}
    if versus is None:
        half = len(found) // 2
        tables = [_table(adata.var_names, *both) for both in zip(found[:half], found[half:], strict=True)]
        for state, table in zip(lineages.fates, tables, strict=True):
            table.insert(0, "state", state)
        part = {"drivers": pd.concat(tables, ignore_index=True).astype({"state": "category"})}
    params = {"layer": layer, "versus": None if versus is None else np.array(versus, dtype=object)}
    done = write(adata, keys, Fields(params={"drivers": params}, parts=part), copy=copy)
    summary = f"{adata.n_vars:,} genes along {lineages.fates.shape[1]} lineages, {adata.n_obs:,} cells"
    finished(start, summary, f"{next(iter(part))!r} (adata.uns[{keys.uns!r}])")
    return done


def _of_each_fate(lineages: Lineages) -> list[Contrast]:
    """Whether genes follow each fate beyond pseudotime; then whether they change along each lineage."""
    everyone = np.ones((len(lineages.pseudotime), 1))
    at_time = spline_basis(lineages.pseudotime / lineages.pseudotime.max(), TEST_INTERVALS).toarray()
    follow = [Contrast.of(at_time, fate[:, None]) for fate in lineages.fates.to_numpy().T]
    change = []
    for weight in lineages.membership.to_numpy().T:
        end = lineage_end(lineages.pseudotime, weight)
        along = spline_basis(lineages.pseudotime / end, TEST_INTERVALS).toarray()
        change.append(Contrast.of(everyone, along, np.where(lineages.pseudotime <= end, weight, 0.0)))
    return follow + change


def _between(lineages: Lineages) -> Contrast:
    """Whether genes differ between two branches beyond pseudotime."""
    states, (one, other) = list(lineages.membership), lineages.membership.to_numpy().T
    branches = [(one >= 0.5) & (other < 0.5), (other >= 0.5) & (one < 0.5)]
    for state, rival, cells in zip(states, states[::-1], branches, strict=True):
        if cells.sum() < FEWEST_CELLS:
            raise ValueError(
                f"versus: {cells.sum()} cells are on the way to {state!r} and not to {rival!r}, too few to compare. "
                "One of the two has no branch of its own."
            )
    together = branches[0] | branches[1]
    first, last = (limit(lineages.pseudotime[together]) for limit in (np.min, np.max))
    at_time = spline_basis((lineages.pseudotime - first) / max(last - first, 1e-12), TEST_INTERVALS).toarray()
    side = np.where(branches[0], 1.0, -1.0)[:, None]
    return Contrast.of(at_time, np.hstack([side, side * at_time]), together.astype(float))


def _table(genes: pd.Index, follow: Association, change: Association | None = None) -> pd.DataFrame:
    columns = {"gene": genes.astype(str), "correlation": follow.correlation, "p": follow.p, "q": adjusted(follow.p)}
    if change is not None:
        columns |= {"change": change.share, "change_p": change.p, "change_q": adjusted(change.p)}
    by = ["correlation", "change"] if change is not None else ["correlation"]
    return pd.DataFrame(columns).sort_values(by, ascending=False, kind="stable", ignore_index=True)


def adjusted(p: np.ndarray) -> np.ndarray:
    """The false discovery rate (Benjamini and Hochberg) at each p value; NaN stays."""
    q = np.full(len(p), np.nan)
    there = ~np.isnan(p)
    if there.any():
        q[there] = false_discovery_control(p[there])
    return q
