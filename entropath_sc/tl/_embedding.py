from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY, Keys
from ..core import diffusion as diffusing
from ..core import landmarks as landmarking
from ..core import mds as scaling
from ..core.model import DEPTH_RULES, Embedded, embed
from . import _lazy
from ._adata import Cells, cell_indices, check_object, keys_for, record, representation, writable
from ._checks import check_choice, check_count, check_depth, threads
from ._merw_graph import graph_params, new_graph, read_graph, warn_of_kernel, write_graph
from ._nodes import Part, all_cells, check_store, diagnostics, landmark_cells
from ._presets import with_preset
from ._progress import progress
from ._reference import pca_offset, stored_nodes, stored_order


def embedding(
    adata: AnnData,
    *,
    n_components: int = 2,
    n_landmarks: int = 2000,
    landmarks: str | Sequence[str] | None = None,
    include: Cells | None = None,
    landmark_graph: str | None = None,
    depth: float | str | None = None,
    max_depth: int = 150,
    diffusion: str | None = None,
    dissimilarity: str | None = None,
    mds: str = "metric",
    n_project: int | None = None,
    use_rep: str | None = None,
    preset: str = "default",
    key_added: str = DEFAULT_KEY,
    random_state: int = 0,
    store: str | PathLike | None = None,
    n_jobs: int | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Embed cells by the free energies of the paths between them.

    Up to `n_landmarks` cells are embedded as they are. Above, that many landmark cells are embedded, and each other
    cell is placed among its nearest landmarks. :func:`~entropath_sc.tl.merw_graph` is run with its defaults where it
    has not been run and is needed.

    Where the representation is a dask array, cells are read block by block on the active scheduler, and the coordinates
    are a dask array too.

    Parameters
    ----------
    adata
        Annotated data with neighbours or a representation.
    n_components
        Dimensions of the embedding.
    n_landmarks
        Most cells that are embedded directly; time grows with its cube.
    landmarks
        `'farthest'` (default; farthest-point sampling, which covers sparse branches as well as dense ones), `'kmeans'`
        (cells nearest to centroids), `'random'`, or a list of barcodes. Each stands for the middle of the cells around
        it, except in `landmark_graph='knn'`.
    include
        Cells that must be landmarks: a barcode, several, or `('obs column', 'category')`. If they are more than
        `n_landmarks`, they are all the landmarks there are.
    landmark_graph
        `'compressed'`: the affinity of all cells, compressed onto the landmarks. `'anchor'`: each cell votes for its
        nearest landmarks; needs only the representation, no graph of cells. `'knn'`: a neighbour graph of the
        landmarks alone, as in the paper. `'auto'` (default) is `'compressed'` where there is a graph or neighbours, and
        `'anchor'` where there are none, or the representation is a dask array.
    depth
        A diffusion depth, or a rule that finds one: `'auto'` (default), the last doubling up to 7 that keeps the ranks
        of the dissimilarities, or `'knee'` of the entropy curve as in the paper (which is also what `'auto'` means for
        the power).
    max_depth
        Deepest point of the entropy curve; below 7, also of the search for a consistent depth.
    diffusion
        `'heat'` (default), the walk in continuous time, which joins all pairs; or `'power'`, the paper's k steps.
    dissimilarity
        `'free_energy'`, -log of the path ensemble S as in the paper; `'normalised'`, -2 log of its cosine, which takes
        off what it costs to come back to the same cell; `'balanced'`, half way between them; `'averaged'` (default),
        the balanced one, half as the two cells see it and half as their neighbours do.
    mds
        `'metric'` (SMACOF, started from the classical solution) or `'classical'`.
    n_project
        Landmarks that each other cell is placed among, by default 10. More of them would reach across folds.
    use_rep
        Field of `adata.obsm` (or `'X'`) to work in, such as an integrated one; a graph that was made in another one is
        made again. By default the one behind the neighbour graph, else `'X_pca'`.
    preset
        `'paper'`: the paper's landmarks (`'kmeans'`), landmark graph (`'knn'`), projection (50), depth (`'knee'`),
        diffusion (`'power'`) and dissimilarity (`'free_energy'`), where they are not given. It used the Gaussian kernel
        on generated manifolds, and `'alpha_decay'` on cells.
    key_added
        Prefix of the fields that are set, and of the graph that is read.
    random_state
        Seed of the choice of landmarks.
    store
        For a dask array: a zarr store that results are streamed to. What a block gave is kept there, so that the same
        call goes on after an interruption. Without one, coordinates are computed when they are asked for.
    n_jobs
        Threads to use; by default all. For a dask array its workers decide.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    `None`, or the copy if `copy`. Sets the following fields:

    `adata.obsm['X_entropath']` : float32
        Coordinates.
    `adata.obs['entropath_landmark']` : bool
        Which cells are landmarks; all, where all are embedded directly.
    `adata.uns['entropath']['depth']` : dict
        `depths` and `entropy` with their `knee` (and `knee_range`, its place on shorter curves), `times` and
        `agreement` with the `consistent` depth, and the depth that was `chosen`.
    `adata.uns['entropath']['embedding']` : dict
        `stress`, Kruskal's `stress_1`, `iterations` and `converged`; `lambda_max` of the embedded graph.
    `adata.uns['entropath']['landmarks']` : dict
        What :func:`~entropath_sc.tl.project` needs to place further cells.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=300)
    >>> ep.tl.embedding(adata)
    >>> adata.obsm["X_entropath"].shape
    (300, 2)
    """
    check_object(adata)
    landmarks, landmark_graph, n_project, depth, diffusion, dissimilarity = with_preset(
        preset,
        "embedding",
        landmarks=landmarks,
        landmark_graph=landmark_graph,
        n_project=n_project,
        depth=depth,
        diffusion=diffusion,
        dissimilarity=dissimilarity,
    )
    check_count("n_components", n_components, 1)
    check_count("n_landmarks", n_landmarks, 3)
    check_count("max_depth", max_depth, 1)
    check_count("n_project", n_project, 1)
    check_count("random_state", random_state, 0)
    check_choice("landmark_graph", landmark_graph, landmarking.GRAPHS)
    check_choice("diffusion", diffusion, diffusing.DIFFUSIONS)
    check_choice("dissimilarity", dissimilarity, diffusing.DISSIMILARITIES)
    check_choice("mds", mds, scaling.SOLVERS)
    check_depth(depth, diffusion, DEPTH_RULES)
    keys = keys_for(adata, key_added)
    start = logg.info("computing the EntroPath embedding")
    rule, chosen = _requested_landmarks(adata, landmarks, include)
    is_direct = rule is not None and adata.n_obs <= n_landmarks
    made, X = None, None
    with threads(n_jobs), progress() as report:
        params = graph_params(adata, keys, preset, use_rep)
        if not is_direct:
            X, found_rep = representation(adata, params.get("use_rep"), params.get("n_pcs"), lazy=True)
            landmark_graph = _landmark_graph(adata, keys, landmark_graph, lazy=_lazy.is_lazy(X))
        check_store(store, X)
        A = None
        if is_direct or not (landmark_graph == "anchor" or _lazy.is_lazy(X)):
            A = read_graph(adata, keys, use_rep)
            if A is None:
                made = new_graph(adata, keys, preset=preset, use_rep=use_rep, random_state=random_state, stacklevel=3)
                A, params = made.affinity, made.params
            warn_of_kernel(params, preset, stacklevel=3)
        if is_direct:
            part = all_cells(adata, A, params, n_project)
        else:
            # Where all landmarks are given, there is none to choose by a rule.
            n_chosen, chosen_by = (len(chosen), "farthest") if rule is None else (n_landmarks, rule)
            found = landmarking.choose(X, n_chosen, chosen_by, include=chosen, random_state=random_state)
            part = landmark_cells(
                X, A, found, landmark_graph, params, n_project, use_rep=found_rep, store=store, report=report
            )
        if n_components >= part.graph.shape[0]:
            n_nodes = part.graph.shape[0]
            raise ValueError(f"n_components={n_components} must be below the number of embedded cells, {n_nodes}.")
        embedded = embed(
            part.graph,
            n_components=n_components,
            depth=depth,
            max_depth=max_depth,
            diffusion=diffusion,
            dissimilarity=dissimilarity,
            mds=mds,
            report=report,
        )
        coordinates = part.carried(X, embedded.coordinates.astype(np.float32), keys.coordinates, store, report)

    adata = adata.copy() if copy else adata
    if made is not None:
        write_graph(adata, keys, made)
    params = {
        "n_components": n_components,
        "n_landmarks": n_landmarks,
        "landmarks": rule or "given",
        "landmark_graph": landmark_graph,
        "depth": depth,
        "max_depth": max_depth,
        "diffusion": diffusion,
        "dissimilarity": dissimilarity,
        "mds": mds,
        "n_project": n_project,
        "preset": preset,
        "random_state": random_state,
        "use_rep": part.use_rep,
    }
    _write_embedding(adata, keys, embedded, part, coordinates, params)
    logg.info(
        "    finished",
        time=start,
        deep=f"added\n    {keys.coordinates!r}, coordinates (adata.obsm)\n"
        f"    {keys.uns!r}, depth {embedded.diffused.depth:g} and how it was found (adata.uns)",
    )
    return adata if copy else None


def _requested_landmarks(
    adata: AnnData, landmarks: str | Sequence[str], include: Cells | None
) -> tuple[str | None, np.ndarray | None]:
    """The rule, and the cells that must be landmarks; no rule where the landmarks themselves are given."""
    included = None if include is None else cell_indices(adata, include, "include")
    if isinstance(landmarks, str):
        check_choice("landmarks", landmarks, landmarking.RULES)
        return landmarks, included
    given = cell_indices(adata, landmarks, "landmarks")
    return None, np.sort(given) if included is None else np.union1d(given, included)


def _landmark_graph(adata: AnnData, keys: Keys, landmark_graph: str, *, lazy: bool) -> str:
    """The graph that `'auto'` means here; refuses one that cannot be built block by block."""
    if landmark_graph == "auto":
        has_graph = keys.affinity in adata.obsp or "neighbors" in adata.uns
        return "compressed" if has_graph and not lazy else "anchor"
    if lazy and landmark_graph == "compressed":
        raise ValueError(
            "landmark_graph='compressed' needs all cells in memory, and the representation is a dask array. "
            "Use 'anchor', or load it: `adata.obsm['X_pca'] = adata.obsm['X_pca'].compute()`."
        )
    return landmark_graph


def _write_embedding(
    adata: AnnData, keys: Keys, embedded: Embedded, part: Part, coordinates: Any, params: dict[str, Any]
) -> None:
    writable(adata)
    adata.obsm[keys.coordinates] = coordinates
    cells = slice(None) if part.cells is None else part.cells
    is_landmark = np.zeros(adata.n_obs, dtype=bool)
    is_landmark[cells] = True
    adata.obs[keys.landmark] = is_landmark
    landmarks = None
    if part.nodes is not None:
        landmarks = stored_nodes(part.nodes, adata.obs_names[cells], embedded, part.graph)
        landmarks["pca_offset"] = pca_offset(adata, part.use_rep)
        landmarks |= stored_order(adata, keys, adata.obs_names[cells], part.nodes, part.use_rep)
    record(adata, keys, "embedding", params, **diagnostics(embedded), landmarks=landmarks)
