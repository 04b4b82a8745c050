from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from scanpy import logging as logg
from scipy.stats import spearmanr

from .._keys import DEFAULT_KEY
from ..core.branches import END_CELLS
from ..core.direction import upstream, upstream_again
from ..core.ensemble import PathEnsemble
from ..core.lineages import find_ends, find_peaks
from ..core.pipeline import DEFAULT
from ._adata import cell_indices, check_object, group_labels, is_category, keys_for, named
from ._checks import check_count
from ._direction import first_cells
from ._nodes import node_graph
from ._ordered import Ordered
from ._progress import progress

# Of a directed graph: the share of all cells that counts as near a candidate, and how often it is looked for again.
NEAR = 0.1
N_RESAMPLES = 20


def suggest_root(
    adata: AnnData,
    within: tuple[str, str] | None = None,
    *,
    groupby: str | None = None,
    markers: str | Sequence[str] | None = None,
    layer: str | None = None,
    n_candidates: int = 5,
    key_added: str = DEFAULT_KEY,
) -> pd.DataFrame:
    """List cells that the pseudotime could start from, and how much it would depend on the choice.

    Candidates are the ends of the tree of all cells, or the cells deepest inside a category. Where the graph has a
    direction (`ep.tl.merw_graph(adata, direction=...)`), they are the cells that the arrows lead away from, the most
    upstream first. With `time_key=` alone they lie deepest inside the first time point. Nothing is written to `adata`:
    pass a barcode from the table to :func:`~entropath_sc.tl.pseudotime`.

    Parameters
    ----------
    adata
        Annotated data with neighbours or a representation such as a PCA.
    within
        `('obs column', 'category')` to choose the root from, such as `('cell_type', 'stem cell')`. Give it if you know
        the earliest cell type.
    groupby
        Column of `adata.obs` that names the cells around each candidate.
    markers
        Genes that early cells express. Candidates are sorted by their mean z-score, the highest first.
    layer
        Layer that holds the expression. Default: `adata.X`.
    n_candidates
        The largest number of candidates to list.
    key_added
        Prefix of the graph that is read.

    Returns
    -------
    A table with a row for each candidate and its barcode as the index. The columns are:

    - `group`: the most frequent label around it;
    - `markers`: the mean z-score of the markers around it;
    - `n_genes`: the mean number of expressed genes around it, which tends to be larger in early cells;
    - `nearby`: the rank correlation of the pseudotime with that from the cells next to it (the lowest);
    - `first`: the rank correlation with the pseudotime from the first candidate;
    - `confidence`, with a direction: how often the most upstream cell is near this one, if a fifth of the cells is
      left out.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=600)
    >>> table = ep.tl.suggest_root(adata, groupby="branch")
    >>> "trunk" in set(table["group"])
    True
    """
    check_object(adata)
    keys = keys_for(adata, key_added)
    check_count("n_candidates", n_candidates, 1)
    if within is not None and not is_category(adata, within):
        raise ValueError(f"within={within!r} must be ('obs column', 'category'); there is {named(adata.obs.columns)}.")
    labels = None if groupby is None else group_labels(adata, groupby)
    if adata.n_obs < 2 * END_CELLS:
        raise ValueError(f"Candidates need at least {2 * END_CELLS} cells; adata has {adata.n_obs}.")
    if layer is not None and layer not in adata.layers:
        raise KeyError(f"layer: there is no adata.layers[{layer!r}]; there is {named(adata.layers)}.")
    X = adata.X if layer is None else adata.layers[layer]
    markers = [markers] if isinstance(markers, str) else list(markers or [])
    if markers and X is None:
        raise ValueError("markers need expression, and adata.X is None. Set `layer=`.")
    unknown = [gene for gene in markers if gene not in adata.var_names]
    if unknown:
        raise KeyError(f"markers: {unknown[0]!r} is not in adata.var_names, which look like {adata.var_names[0]!r}.")
    start = logg.info("looking for roots")
    with progress() as report:
        nodes = node_graph(adata, keys, DEFAULT, preset="default", report=report)
        ensemble = PathEnsemble.of(nodes.graph, float(DEFAULT.depth))
        state = Ordered(nodes, DEFAULT, ensemble, ensemble, np.empty(nodes.graph.n_nodes), np.empty(0, dtype=int))
        params = adata.uns.get(keys.uns, {}).get("params", {}).get("merw_graph", {})
        inside = first_cells(adata, params) if within is None else cell_indices(adata, within, "within")
        members = None if inside is None else state.nodes_of(inside)
        directed = members is None and nodes.graph.forward is not None
        if directed:
            found, around = _upstream(state, n_candidates)
        else:
            found = _tips(state) if members is None else _inside(state, members, n_candidates)
        rows = [_row(adata, state, node, labels, markers, X) for node in found]
        score = [row.get("markers", row.get("n_genes", 0.0)) for row in rows]
        best = list(range(len(found)))
        if members is None and not directed:
            best.sort(key=lambda i: -score[i])
        best = best[:n_candidates]
        orders = {i: ensemble.order(np.array([found[i]])) for i in best}
        for i in best:
            near = state.nearest(found[i], np.arange(nodes.graph.n_nodes))[1:4]
            others = [ensemble.order(near[k : k + 1]) for k in range(len(near))]
            rows[i]["nearby"] = min(float(spearmanr(orders[i], other)[0]) for other in others)
            rows[i]["first"] = float(spearmanr(orders[i], orders[best[0]])[0])
        if directed:
            again = upstream_again(nodes.graph, around, N_RESAMPLES, seed=0)
            for i, confidence in zip(best, again, strict=True):
                rows[i]["confidence"] = float(confidence)
    cells = state.cells_of(np.array([found[i] for i in best]))
    table = pd.DataFrame([rows[i] for i in best], index=adata.obs_names[cells])
    logg.info(f"    {len(table)} candidates", time=start)
    return table


def _upstream(state: Ordered, n_candidates: int) -> tuple[list[int], list[np.ndarray]]:
    """Nodes that arrows lead away from, each away from those before, and the nodes around each."""
    graph, ensemble = state.nodes.graph, state.ensemble
    candidates, share = upstream(graph, state.firm)
    logg.info(f"    {share:.0%} of the arrows agree with one another; the rest is circular or noise")
    found: list[int] = []
    around: list[np.ndarray] = []
    n_near = max(int(NEAR * graph.n_nodes), END_CELLS)
    for node in candidates:
        if len(found) < n_candidates and not any(node in nodes for nodes in around):
            found.append(node)
            around += ensemble.nearest([node], np.arange(graph.n_nodes), n_near)
    return found, around


def _tips(state: Ordered) -> list[int]:
    """The ends of the tree of all nodes: the farthest from any, and the peaks of the order from there."""
    ensemble = state.ensemble
    farthest = find_peaks(ensemble.first_passages(np.array([0])), state.firm, state.weights).nodes[:1]
    peaks = find_peaks(ensemble.first_passages(farthest), state.firm, state.weights)
    ends = find_ends(ensemble, farthest, peaks).peaks if peaks.has_direction else peaks.nodes[:1]
    return [int(farthest[0]), *ends.tolist()]


def _inside(state: Ordered, members: np.ndarray, n_candidates: int) -> list[int]:
    """Members farthest from all other nodes, as the mean over neighbours sees it, each away from those before."""
    outside = np.setdiff1d(np.arange(state.nodes.graph.n_nodes), members)
    if not len(outside):
        raise ValueError("within: the category is everywhere, so no cell is deepest inside it.")
    W = state.ensemble.weights
    depth = W @ state.ensemble.first_passages(outside) / np.asarray(W.sum(axis=1)).ravel()
    found: list[int] = []
    free = members[np.argsort(-depth[members], kind="stable")]
    while len(free) and len(found) < n_candidates:
        found.append(int(free[0]))
        free = np.setdiff1d(free, state.nearest(found[-1], members), assume_unique=True)
        free = free[np.argsort(-depth[free], kind="stable")]
    return found


def _row(
    adata: AnnData, state: Ordered, node: int, labels: pd.Series | None, markers: list[str], X: Any
) -> dict[str, Any]:
    """What is known of the cells around a candidate."""
    around = state.cells_of(state.nearest(node, np.arange(state.nodes.graph.n_nodes)))
    row: dict[str, Any] = {}
    if labels is not None:
        known = labels.iloc[around].dropna().astype(str)
        row["group"] = str(known.mode()[0]) if len(known) else None
    if markers:
        genes = adata.var_names.get_indexer_for(markers)
        values = X[:, genes].toarray() if sp.issparse(X) else np.asarray(X[:, genes])
        sd = values.std(axis=0)
        row["markers"] = float(((values[around] - values.mean(axis=0)) / np.where(sd > 0, sd, 1.0)).mean())
    if X is not None and X.shape[1] > 1:
        row["n_genes"] = float((X[around] > 0).sum() / len(around))
    return row
