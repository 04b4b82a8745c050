from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from scipy.sparse.csgraph import connected_components
from scipy.stats import spearmanr

from .._keys import DEFAULT_KEY, Keys
from ..core.branches import grow
from ..core.lineages import Ends, find_ends
from ._adata import check_object, keys_for, named
from ._checks import warn
from ._ordered import Ordered, read_ordered
from ._progress import progress

# Limits that only this summary uses. They lie between real and simulated trajectories on one side (Paul15, marrow,
# pancreas, branching trees), and clouds, islands and CODEX cells on the other.
MOST_LOOSE = 0.01
MOST_IN_ONE_PLACE = 0.25
LEAST_NEARBY = 0.9
LEAST_FOUND_AGAIN = 0.7
MOST_PAST_ROOT = 0.1
# Kruskal's own words for a stress of 0.2 are "poor".
MOST_STRESS = 0.2

Finding = tuple[str, bool, str, str]


def diagnose(adata: AnnData, *, key_added: str = DEFAULT_KEY) -> pd.DataFrame:
    """Check how far the results can be trusted, and what to do next, in plain sentences.

    Checks what has been computed so far, from the input to the terminal states. Nothing is written to `adata`.

    Parameters
    ----------
    adata
        Annotated data after :func:`~entropath_sc.tl.pseudotime`.
    key_added
        Prefix of the fields that are read.

    Returns
    -------
    A table with a row for each check: whether it is `ok`, what was `found`, and what to do `next` where it is not.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=600)
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> bool(ep.tl.diagnose(adata)["ok"].all())
    True
    """
    check_object(adata)
    keys = keys_for(adata, key_added)
    with progress() as report:
        ordered = read_ordered(adata, keys, report)
        ends = find_ends(ordered.ensemble, ordered.roots, ordered.peaks)
        rows = [
            *_input(adata, ordered),
            *_graph(ordered),
            *_order(ordered, ends),
            *_results(adata, keys, ordered, ends),
        ]
    table = pd.DataFrame(rows, columns=["check", "ok", "found", "next"]).set_index("check")
    table.loc[table["ok"], "next"] = ""
    if not table["ok"].all():
        warn("; ".join(table["found"][~table["ok"]]) + ". See the column 'next' of the table for what to do.")
    return table


def _input(adata: AnnData, ordered: Ordered) -> Iterator[Finding]:
    """Whether the components look like those of raw counts: then the first one is the size of the cells."""
    use_rep = ordered.nodes.use_rep
    if use_rep == "X_pca" and adata.X is not None and "PCs" in adata.varm:
        X = adata.X[:200]
        values = X.toarray() if sp.issparse(X) else np.asarray(X)
        raw = bool((values == np.round(values)).all() and values.max(initial=0) > 20 and values.min(initial=0) >= 0)
        found = "adata.X holds counts, so the PCA may be one of raw counts" if raw else "adata.X is not raw counts"
        yield (
            "input",
            not raw,
            found,
            "Normalise and log first: sc.pp.normalize_total, sc.pp.log1p, then sc.pp.pca and sc.pp.neighbors.",
        )


def _graph(ordered: Ordered) -> Iterator[Finding]:
    """Components, and cells without a firm link to the rest."""
    graph = ordered.nodes.graph
    n_components = len(graph.bridges.component_sizes)
    yield (
        "components",
        n_components == 1,
        f"the neighbour graph has {n_components} component{'s' if n_components > 1 else ''}"
        + (", joined by bridges" if n_components > 1 else ""),
        "Analyse each component alone, or raise `n_neighbors`; distances across a bridge mean little.",
    )
    sizes = np.bincount(connected_components(ordered.firm, directed=False)[1])
    loose = 1.0 - sizes.max() / graph.n_nodes
    yield (
        "islands",
        loose <= MOST_LOOSE,
        f"{loose:.1%} of the cells have no firm link to the rest",
        "Are there several cell types without cells between them? Pseudotime needs a continuum: keep one lineage, and "
        "remove doublets and outliers.",
    )


def _order(ordered: Ordered, ends: Ends) -> Iterator[Finding]:
    """Whether cells spread along the order, whether it has a direction, and whether the root is at an end."""
    order, graph = ordered.order, ordered.nodes.graph
    others = np.delete(order, ordered.roots)
    counts, _ = np.histogram(others, bins=20)
    crowded = counts.max() / max(counts.sum(), 1)
    yield (
        "continuum",
        crowded <= MOST_IN_ONE_PLACE,
        f"{crowded:.0%} of the cells share a twentieth of the pseudotime",
        "Most cells are equally far from the root: a cloud or separate clusters rather than a trajectory. Look at "
        "ep.pl.pseudotime, and keep the cells of one process.",
    )
    yield (
        "direction",
        ordered.peaks.has_direction,
        f"{ordered.peaks.inside:.0%} of the links of the last cells stay among them",
        "Below half, the pseudotime has no direction: there may be no trajectory here.",
    )
    near = ordered.nearest(int(ordered.roots[0]), np.arange(graph.n_nodes))[1:4]
    nearby = min(float(spearmanr(order, ordered.ensemble.order(near[i : i + 1]))[0]) for i in range(len(near)))
    yield (
        "nearby roots",
        nearby >= LEAST_NEARBY,
        f"from a neighbour of the root the pseudotime agrees to {nearby:.2f}",
        "The root lies between branches: compare candidates with ep.tl.suggest_root, or give several barcodes.",
    )
    passing = _share_past_root(ordered, ends)
    yield (
        "root at an end",
        passing <= MOST_PAST_ROOT,
        f"{passing:.0%} of the paths between the first two branches pass by the root",
        "The root seems to lie inside a branch. Start from an end: `ep.tl.suggest_root(adata)` lists them.",
    )


def _share_past_root(ordered: Ordered, ends: Ends) -> float:
    """Of all paths between both sides of the first branch point, the share that comes past the root's neighbours."""
    if len(ends.peaks) < 2 or not ordered.peaks.has_direction:
        return 0.0
    tree, _ = grow(ends.passages, ordered.roots, ends.nodes, ends.apart)
    one, other = (int(ends.peaks[tree.leads_to[child][0]]) for child in tree.children(0))
    around = ordered.nearest(int(ordered.roots[0]), np.arange(len(ordered.order)))
    ensemble = ordered.ensemble.undirected
    to_root = ensemble.first_passages(around)
    to_end = ensemble.first_passages(np.array([one]))
    detour = to_root[other] + to_end[around].mean() - to_end[other]
    return float(min(np.exp(-detour), 1.0))


def _results(adata: AnnData, keys: Keys, ordered: Ordered, ends: Ends) -> Iterator[Finding]:
    """What other tools left: stress, terminal states, stability."""
    entry = adata.uns.get(keys.uns, {})
    if "stress_1" in entry.get("embedding", {}):
        stress = float(entry["embedding"]["stress_1"])
        yield (
            "embedding",
            stress <= MOST_STRESS,
            f"the embedding has a stress of {stress:.2f}",
            "Distances do not fit into so few dimensions: use `n_components=3`, and do not read distances off the map.",
        )
    if len(states := entry.get("terminal_states", pd.DataFrame())):
        again = states["found_again"].fillna(1.0)
        if "tips" in (repeats := entry.get("stability", {})):
            measured = pd.Series(np.asarray(repeats["found_again"]), index=list(repeats["tips"]))
            again = np.minimum(again, measured.reindex(states.index).fillna(1.0))
        unsure = list(states.index[again < LEAST_FOUND_AGAIN])
        found = f"not found again in most resamples: {named(unsure)}" if unsure else "those found are found again"
        asked = entry.get("params", {}).get("terminal_states", {})
        if ends.nearly is not None and asked.get("n_states") is None:
            cell = adata.obs_names[ordered.cells_of(np.array([ends.nearly[0]]))[0]]
            found += f"; the peak at {cell!r} is none, as its cells are {ends.nearly[1]:.0%} decided (half is needed)"
        yield (
            "terminal states",
            not unsure,
            found,
            "Confirm them with markers, or leave them out: with `names={'state': None}` and the same `groupby=` if "
            "they were found, from `terminal=` if they were given.",
        )
        if (groupby := asked.get("groupby")) in adata.obs:
            label = pd.crosstab(adata.obs[keys.terminal], adata.obs[groupby].astype(str)).idxmax(axis=1)
            several = label[label.duplicated(keep=False)]
            yield (
                "terminal states of one type",
                several.empty,
                f"with one label: {named(several.index)}" if len(several) else "each has its own label",
                "Compare their genes. If noise or batches split one end, ask for fewer states with `n_states=`.",
            )
    if "stability" in entry:
        agreement = float(np.mean(entry["stability"]["agreement"]))
        yield (
            "stability",
            agreement >= LEAST_NEARBY,
            f"with 20 % of the cells left out the pseudotime agrees with itself to {agreement:.2f}",
            "Use more cells or fewer components, and report only what is stable.",
        )
