from __future__ import annotations

from numbers import Integral
from os import PathLike

import numpy as np
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY, Keys
from ..core.pipeline import SCALINGS, Settings, order, pinned, root_in, scaled, terminal_corrected
from ._adata import Cells, Fields, cell_indices, check_object, is_category, keys_for, without_following, write
from ._checks import check_choice, check_count, removed, settings_for, warn
from ._graphs import refuse_landmarks, warn_of_residual
from ._nodes import NodeGraph, node_graph, stored_order
from ._progress import progress
from ._reference import row_marks
from ._suggest_root import suggest_root

SMOOTH = (
    "The order needs no refinement: paths of all lengths average over noise themselves. A larger `depth=` smooths more."
)


@removed(
    refine=SMOOTH,
    potential="There is one potential, the free energy of first passages; preset='paper' has the published one.",
    diffusion="Paths of all lengths replace it; preset='paper' is the published method, 'heat' the continuous one.",
    on="Pass `n_landmarks=` to let landmarks carry the order; cells with neighbours are ordered on their own graph.",
)
def pseudotime(
    adata: AnnData,
    root: Cells | None = None,
    *,
    terminal: Cells | None = None,
    depth: float | str | None = None,
    scaling: str = "minmax",
    n_landmarks: int | None = None,
    use_rep: str | None = None,
    preset: str = "default",
    key_added: str = DEFAULT_KEY,
    random_state: int = 0,
    store: str | PathLike | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Order cells by all paths that lead to the root.

    A cell has a small pseudotime if many short paths lead from it to the root, and a large one if paths are few or
    long. If `adata` has neighbours, paths lead through the graph of all cells, at any number of cells. Without
    neighbours, landmarks carry the pseudotime of more than 2,000 cells. No embedding is needed, and an earlier one
    changes nothing.

    Parameters
    ----------
    adata
        Annotated data with neighbours or a representation such as a PCA.
    root
        Where the pseudotime is 0: a barcode, or a list of barcodes. `('obs column', 'category')` finds one root in the
        category: the cell deepest inside it, farthest from all cells outside. Default: `adata.uns['iroot']`,
        or the most upstream cell of a graph with a direction. :func:`~entropath_sc.tl.suggest_root` lists candidates.
    terminal
        Known last cells, as barcodes or a category. Cells near them come later, and branches without them stay as they
        are. Give it if mature cells come out too early. It does not define the states of
        :func:`~entropath_sc.tl.terminal_states`.
    depth
        How far paths may wander, in distances between neighbours, as in :func:`~entropath_sc.tl.embedding`. A larger
        depth smooths more. Between 3 and 30 it hardly matters. Default: 10.
    scaling
        Scale the pseudotime to [0, 1] linearly (`'minmax'`), or by rank (`'rank'`), which spreads cells evenly.
        Terminal states and fates do not depend on it.
    n_landmarks
        Let this many landmarks carry the pseudotime. Use it if single false neighbours mislead the paths. Fewer
        landmarks smooth more, and may lose fine branches. Default: all cells where there are neighbours.
    use_rep
        Field of `adata.obsm` (or `'X'`) to work in, such as an integrated one. Default: the one behind the neighbours,
        else `'X_pca'`.
    preset
        `'default'` is recommended. `'paper'` is the method as published. `'heat'` is the paper's with heat diffusion
        instead of steps of a random walk, for comparison only.
    key_added
        Prefix of the fields that are set, and of the graph that is read.
    random_state
        Seed of the choice of landmarks. Where landmarks carry the pseudotime, compare a few.
    store
        For a dask array: a zarr store for the nearest landmarks of each cell. An interrupted call resumes from it.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    `None`, or the copy if `copy`. Sets the following fields:

    `adata.obs['entropath_pseudotime']` : float
        Pseudotime in [0, 1]. The root is 0. With `scaling='minmax'` and without landmarks, the cell nearest to
        the root is 0 too.
    `adata.obs['entropath_potential']` : float
        The pseudotime before scaling: -log of the weight of all paths to the root.
    `adata.uns['entropath']['pseudotime']` : dict
        `roots` and `terminals` as barcodes, the `depth`, and whether `'cells'` or `'landmarks'` carried it (`on`).
        `residual` is the largest relative error of the equation. The rest is for :func:`~entropath_sc.tl.project`.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=300)
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> float(adata.obs.loc[adata.uns["root"], "entropath_pseudotime"])
    0.0
    """
    check_object(adata)
    keys = keys_for(adata, key_added, "merw_graph", "pseudotime")
    settings = settings_for(preset, depth=depth)
    check_choice("scaling", scaling, SCALINGS)
    if n_landmarks is not None:
        check_count("n_landmarks", n_landmarks, 3)
    check_count("random_state", random_state, 0)
    roots = _root_indices(adata, root, keys)
    terminals = None if terminal is None else cell_indices(adata, terminal, "terminal")
    start = logg.info("computing the EntroPath pseudotime")
    with progress() as report:
        nodes = node_graph(
            adata,
            keys,
            settings,
            preset=preset,
            report=report,
            n_landmarks=n_landmarks,
            use_rep=use_rep,
            random_state=random_state,
            store=store,
        )
        refuse_landmarks(adata, keys, nodes.chosen)
        if is_category(adata, root):
            roots = _root_in(adata, nodes, settings, roots, root)
        if terminals is not None and len(both := np.intersect1d(roots, terminals)):
            raise ValueError(f"{adata.obs_names[both[0]]!r} is given both as root and as terminal.")
        ends = [roots] if terminals is None else [roots, terminals]
        found = order(nodes.graph, settings, [nodes.graph.sources(nodes.cells, cells) for cells in ends])
        potentials = np.asarray(nodes.graph.carry(found.potentials, nodes.cells, keys.potential))
    potential = pinned(potentials[:, 0], roots)
    on_cells = nodes.chosen is None and not settings.is_published
    pseudotime = scaled(potential, scaling, roots if on_cells else None)
    if terminals is not None:
        towards = scaled(pinned(potentials[:, 1], terminals), scaling)
        pseudotime = terminal_corrected(pseudotime, towards, settings)
    at_landmarks = None if nodes.chosen is None else pseudotime[nodes.chosen]
    barcodes = [adata.obs_names[cells].to_numpy(dtype=object) for cells in ends]
    part = stored_order(found, barcodes, nodes.graph.nodes, nodes.use_rep, at_landmarks, nodes.frame)
    part["n_pcs"] = nodes.n_pcs
    part["rows"] = row_marks(adata, nodes.use_rep, nodes.n_pcs, *nodes.carried_by(adata, keys, potential))
    if settings.is_published:
        warn_of_residual(found.residual)
    fields = Fields(
        obs={keys.pseudotime: pseudotime, keys.potential: potential},
        params={
            "pseudotime": {
                "depth": settings.depth,
                "scaling": scaling,
                "n_landmarks": n_landmarks,
                "use_rep": use_rep,
                "preset": preset,
                "random_state": random_state,
            }
        },
        parts={"pseudotime": part},
    )
    done = write(adata, keys, without_following(adata, keys, "pseudotime").add(fields).add(nodes.fields), copy=copy)
    logg.info("    finished", time=start, deep=f"added\n    {keys.pseudotime!r}, order in [0, 1] (adata.obs)")
    return done


def _root_indices(adata: AnnData, root: Cells | None, keys: Keys) -> np.ndarray:
    if root is not None:
        return cell_indices(adata, root, "root")
    if "iroot" not in adata.uns and keys.direction in adata.obsp:
        table = suggest_root(adata, n_candidates=1, key_added=keys.key)
        first, confidence = table.index[0], table["confidence"].iloc[0] if "confidence" in table else 1.0
        logg.info(f"    root {first!r}, the first candidate of ep.tl.suggest_root")
        if confidence < 0.5:
            warn(
                f"The root {first!r} is found again in {confidence:.0%} of resamplings only. Compare candidates with "
                "`ep.tl.suggest_root(adata)`, and give one as `root=`."
            )
        return cell_indices(adata, str(first), "root")
    if "iroot" not in adata.uns:
        raise ValueError(
            "No root: pass `root=` a barcode from adata.obs_names, a list of them, or ('obs column', 'category'); "
            "or set adata.uns['iroot'] to the position of a cell. `ep.tl.suggest_root(adata)` lists candidates."
        )
    iroot = adata.uns["iroot"]
    if not isinstance(iroot, Integral) or not 0 <= int(iroot) < adata.n_obs:
        raise ValueError(
            f"adata.uns['iroot'] is {iroot!r}, not a position among the {adata.n_obs} cells. Pass `root=` a barcode."
        )
    return np.array([int(iroot)])


def _root_in(adata: AnnData, nodes: NodeGraph, settings: Settings, members: np.ndarray, root: Cells) -> np.ndarray:
    """The one root that a category stands for."""
    found = root_in(nodes.graph, settings, nodes.cells, members)
    if found is None:
        raise ValueError(f"root: {tuple(root)} is everywhere, so no cell is deepest inside it. Give a barcode.")
    logg.info(f"    root {adata.obs_names[found]!r}, the cell deepest inside {root[0]} == {root[1]!r}")
    return np.array([found])
