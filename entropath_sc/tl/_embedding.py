from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY
from ..core import layout as layouts
from ..core.pipeline import N_LANDMARKS, Embedded, embed
from ._adata import Cells, Fields, cell_indices, check_object, keys_for, write
from ._checks import check_choice, check_count, removed, settings_for, threads
from ._graphs import refuse_landmarks, warn_of_residual
from ._nodes import node_graph, stored_graph
from ._progress import finished, progress, say_if_compiling
from ._reference import pca_offset, row_marks

PATHS = (
    "Paths of all lengths replace it; `depth=` says how far they wander, and preset='paper' is the published method."
)


@removed(
    landmark_graph="Landmarks are joined by the graph of cells where there are neighbours, and by all cells where not.",
    diffusion=PATHS + " preset='heat' is that in continuous time.",
    dissimilarity=PATHS,
    max_depth="The entropy curve always has 150 points.",
)
def embedding(
    adata: AnnData,
    *,
    n_components: int = 2,
    n_landmarks: int = N_LANDMARKS,
    landmarks: str | Sequence[str] | None = None,
    include: Cells | None = None,
    depth: float | str | None = None,
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
    """Embed cells so that distances in the map follow all paths between them.

    Up to `n_landmarks` cells are embedded directly. Of more cells, `n_landmarks` landmarks are embedded, and each cell
    is placed among its nearest landmarks. If `adata` has neighbours, the graph of all cells joins the landmarks.
    Without neighbours, the cells around the landmarks join them. A dask array is read block by block, and the
    coordinates are a dask array too.

    Parameters
    ----------
    adata
        Annotated data with neighbours or a representation such as a PCA.
    n_components
        Dimensions of the embedding. Use 3 for :func:`~entropath_sc.pl.interactive`.
    n_landmarks
        Up to this number, all cells are embedded directly. More landmarks resolve finer branches; time grows with the
        cube of their number. Of cells in one place only one is a landmark. Default: 2,000.
    landmarks
        How landmarks are chosen. `'farthest'` (default) takes cells far from each other, which covers sparse branches
        as well as dense ones. `'kmeans'` and `'random'` follow the density of cells. A list of barcodes makes these
        cells landmarks.
    include
        Cells that must be landmarks: a barcode, several, or `('obs column', 'category')`. Use it for rare cells.
    depth
        How far paths may wander, in distances between neighbours. A larger depth averages over more paths, which
        smooths noise. A smaller one stays closer to shortest paths. Between 3 and 30 it hardly matters
        (:func:`~entropath_sc.pl.depth`). Default: 10. With `preset='paper'` it is a number of steps, or `'knee'`: the
        bend of the entropy curve, which :func:`~entropath_sc.pl.depth` draws.
    mds
        `'metric'` multidimensional scaling (default), or `'classical'`, which is faster and less accurate.
    n_project
        Number of landmarks that each cell is placed among. A larger value smooths the map, but may reach across folds.
        Default: 10.
    use_rep
        Field of `adata.obsm` (or `'X'`) to work in, such as an integrated one (`'X_scVI'`). Default: the one behind the
        neighbours, else `'X_pca'`.
    preset
        `'default'` is recommended. `'paper'` is the method as published. `'heat'` is the paper's with heat diffusion
        instead of steps of a random walk, for comparison only.
    key_added
        Prefix of the fields that are set, and of the graph that is read.
    random_state
        Seed of the choice of landmarks.
    store
        For a dask array: a zarr store for the nearest landmarks of each cell. An interrupted call resumes from it.
    n_jobs
        Number of threads; by default all. A dask array uses dask's workers instead.
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
        The `chosen` depth, with `depths` around it and how alike they rank the cells (`agreement`). With
        `preset='paper'` or `'heat'`, the `entropy` curve instead, its `knee`, and the `knee_range` on shorter curves.
    `adata.uns['entropath']['embedding']` : dict
        `stress`, Kruskal's `stress_1`, `iterations` and `converged`. `rows` is a checksum;
        :func:`~entropath_sc.tl.project` uses it to notice changed cells.
    `adata.uns['entropath']['landmarks']` : dict
        Where there are landmarks: the graph among them, and what :func:`~entropath_sc.tl.project` needs.
    `adata.uns['entropath']['pca_offset']` : array
        Where cells are embedded in a PCA: the mean that it subtracted, for new cells without a PCA.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=300)
    >>> ep.tl.embedding(adata)
    >>> adata.obsm["X_entropath"].shape
    (300, 2)
    """
    check_object(adata)
    keys = keys_for(adata, key_added, "merw_graph", "embedding")
    rule = landmarks if isinstance(landmarks, str) else None
    settings = settings_for(preset, depth=depth, landmarks=rule, n_project=n_project)
    check_count("n_components", n_components, 1)
    check_count("n_landmarks", n_landmarks, 3)
    check_count("random_state", random_state, 0)
    check_choice("mds", mds, layouts.SOLVERS)
    given = None if landmarks is None or rule is not None else np.sort(cell_indices(adata, landmarks, "landmarks"))
    included = None if include is None else cell_indices(adata, include, "include")
    start = logg.info("computing the EntroPath embedding")
    if mds == "metric":
        say_if_compiling(layouts._guttman_rows)
    with threads(n_jobs), progress() as report:
        nodes = node_graph(
            adata,
            keys,
            settings,
            preset=preset,
            report=report,
            n_landmarks=n_landmarks,
            given=given,
            include=included,
            use_rep=use_rep,
            random_state=random_state,
            store=store,
        )
        if settings.is_published:
            refuse_landmarks(adata, keys, nodes.chosen)
        if n_components >= nodes.graph.n_nodes:
            raise ValueError(
                f"n_components={n_components} must be below the number of embedded cells, {nodes.graph.n_nodes}."
            )
        found = embed(nodes.graph, settings, n_components=n_components, mds=mds, report=report)
        values = found.coordinates.astype(np.float32)
        coordinates = nodes.graph.carry(values, nodes.cells, keys.coordinates)
    is_landmark = np.full(adata.n_obs, nodes.chosen is None)
    kept = None
    if nodes.chosen is not None:
        is_landmark[nodes.chosen] = True
        barcodes = adata.obs_names[nodes.chosen].to_numpy(dtype=object)
        kept = stored_graph(nodes.graph, nodes.chosen, barcodes, values, nodes.frame)
        kept["fingerprint"] = nodes.fingerprint
    params = {
        "n_components": n_components,
        "n_landmarks": n_landmarks,
        "landmarks": settings.landmarks if given is None else "given",
        "depth": settings.depth,
        "mds": mds,
        "n_project": settings.n_project,
        "use_rep": nodes.use_rep,
        "n_pcs": nodes.n_pcs,
        "preset": preset,
        "random_state": random_state,
    }
    warn_of_residual(found.depth.residual)
    parts: dict[str, Any] = {**diagnostics(found), "landmarks": kept, "pca_offset": pca_offset(adata, nodes.use_rep)}
    parts["embedding"]["rows"] = row_marks(
        adata, nodes.use_rep, nodes.n_pcs, None if nodes.chosen is not None else coordinates
    )
    fields = Fields(
        obs={keys.landmark: is_landmark},
        obsm={keys.coordinates: coordinates},
        params={"embedding": params},
        parts=parts,
    )
    done = write(adata, keys, fields.add(nodes.fields), copy=copy)
    how = "embedded directly" if nodes.chosen is None else f"among {len(nodes.chosen):,} landmarks"
    summary = f"{adata.n_obs:,} cells {how}, depth {found.depth.depth:g}"
    finished(start, summary, f"{keys.coordinates!r}, coordinates (adata.obsm)")
    return done


def diagnostics(found: Embedded) -> dict[str, dict[str, Any]]:
    """What `uns` tells of the depth and of the layout."""
    depth, layout, knee = found.depth, found.layout, found.depth.knee
    return {
        "depth": {
            "chosen": depth.depth,
            "depths": depth.depths,
            "agreement": depth.agreement,
            "entropy": None if knee is None else knee.entropy,
            "knee": None if knee is None else knee.depth,
            "knee_range": None if knee is None else knee.depth_range,
        },
        "embedding": {
            "stress": None if layout is None else layout.stress,
            "stress_1": None if layout is None else layout.stress_1,
            "iterations": None if layout is None else layout.n_iterations,
            "converged": None if layout is None else layout.converged,
        },
    }
