from __future__ import annotations

import numpy as np
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY, Keys
from ..core.branches import grow
from ..core.progress import Report
from ..core.stability import repeat_map, repeat_order
from ._adata import Fields, check_object, keys_for, representation, write
from ._checks import check_count, check_flags
from ._nodes import restored_graph
from ._ordered import Ordered, read_ordered, read_terminal
from ._progress import finished, progress
from ._reference import read_reference


def stability(
    adata: AnnData,
    *,
    n_repeats: int = 20,
    key_added: str = DEFAULT_KEY,
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Measure how far pseudotime, fates, branches and coordinates can be trusted, cell by cell.

    Each repeat leaves out 20 % of the cells and starts from a cell next to the root. A result that changes with this is
    not firm. The function measures what has been computed: the pseudotime, and if they are there the terminal states,
    the fates and the embedding.

    Parameters
    ----------
    adata
        Annotated data after :func:`~entropath_sc.tl.pseudotime`.
    n_repeats
        How many repeats. More give steadier figures and take longer.
    key_added
        Prefix of the fields that are read and set.
    random_state
        Seed of the repeats.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    `None`, or the copy if `copy`. Sets the following fields:

    `adata.obs['entropath_pseudotime_sd']` : float
        Standard deviation of the pseudotime over the repeats.
    `adata.obs['entropath_fates_sd']` : float
        Standard deviation of the fate probabilities, the largest of all states, after :func:`~entropath_sc.tl.fates`.
    `adata.obs['entropath_same_branch']` : float
        Share of the repeats in which the cell's branch leads to the same states, after
        :func:`~entropath_sc.tl.terminal_states`.
    `adata.obs['entropath_coordinates_sd']` : float
        How far the cell moves in the embedding relative to the radius of the map, after
        :func:`~entropath_sc.tl.embedding`.
    `adata.uns['entropath']['stability']` : dict
        `agreement`, the rank correlation between the full pseudotime and that of each repeat; `found_again`, the
        share of the repeats that find each tip of the tree, and the names of these (`tips`).

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=300)
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> ep.tl.stability(adata, n_repeats=3)
    >>> bool(adata.uns["entropath"]["stability"]["agreement"].min() > 0.9)
    True
    """
    check_object(adata)
    check_flags(copy=copy)
    keys = keys_for(adata, key_added, "stability")
    check_count("n_repeats", n_repeats, 2)
    check_count("random_state", random_state, 0)
    start = logg.info("measuring stability")
    with progress() as report:
        ordered = read_ordered(adata, keys, report)
        graph = ordered.nodes.graph
        tree, ends, tips, branch = None, [], None, np.empty(0, dtype=int)
        if keys.terminal in adata.obs and adata.obs[keys.terminal].notna().any():
            states = read_terminal(adata, keys)
            tips = states.cat.categories.to_numpy(dtype=object)
            ends = [ordered.nodes_of(np.flatnonzero((states == name).to_numpy())) for name in tips]
            passages = ordered.ensemble.passages_to(ends)
            tree, advanced = grow(passages, ordered.roots, ends, ordered.peaks.left_out)
            branch = tree.place(advanced)
        near = ordered.nearest(int(ordered.roots[0]), np.arange(graph.n_nodes))
        roots = ordered.roots if len(ordered.roots) > 1 else None
        chosen = [near[r % len(near)][None] if roots is None else roots for r in range(n_repeats)]
        apart = ordered.peaks.left_out
        found = repeat_order(
            graph, ordered.ensemble.depth, ordered.order, chosen, tree, branch, ends, apart, random_state, report
        )
        moved = _moved(adata, keys, ordered, n_repeats, random_state, report)
    columns: dict[str, np.ndarray | None] = {keys.pseudotime_sd: ordered.on_cells(found.pseudotime_sd)}
    columns[keys.fates_sd] = ordered.on_cells(found.fates_sd.max(axis=1)) if keys.fates in adata.obsm else None
    columns[keys.same_branch] = None if tree is None else ordered.on_cells(found.same_branch)
    columns[keys.coordinates_sd] = moved
    part = {"agreement": found.agreement, "tips": tips, "found_again": None if tips is None else found.found_again}
    fields = Fields(obs=columns, params={"stability": {"n_repeats": n_repeats, "random_state": random_state}})
    fields.parts["stability"] = part
    done = write(adata, keys, fields.add(ordered.nodes.fields), copy=copy)
    summary = f"{n_repeats} repeats of {adata.n_obs:,} cells, whose pseudotimes agree to {found.agreement.mean():.3f}"
    finished(start, summary, f"{keys.pseudotime_sd!r} and others (adata.obs)")
    return done


def _moved(
    adata: AnnData, keys: Keys, ordered: Ordered, n_repeats: int, seed: int, report: Report
) -> np.ndarray | None:
    """How far cells move in the embedding: those embedded, and others as the nearest landmark does."""
    entry = adata.uns[keys.uns]
    if entry["params"].get("embedding", {}).get("preset") != "default":
        return None
    depth, landmarks = float(entry["depth"]["chosen"]), entry.get("landmarks")
    graph = ordered.nodes.graph if landmarks is None else restored_graph(landmarks)
    reference = read_reference(adata, keys)
    if graph.n_nodes != len(reference.coordinates):
        return None  # the embedding is one of all cells, and landmarks carried the order
    moved = repeat_map(graph, depth, reference.coordinates, n_repeats, seed, report)
    if landmarks is None:
        return moved
    X = representation(adata, reference.use_rep, reference.nodes.positions.shape[1])[0]
    return moved[reference.nodes.nearest(reference.frame(X))[0][:, 0]]
