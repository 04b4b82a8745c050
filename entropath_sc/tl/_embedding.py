from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY, Keys
from ..core import diffusion as diffusing
from ..core import landmarks as landmarking
from ..core import mds as scaling
from ..core.model import DEPTH_RULES, Embedded, embed
from ._adata import (
    Cells,
    cell_indices,
    check_choice,
    check_count,
    check_depth,
    check_object,
    keys_for,
    record,
    representation,
    threads,
    writable,
)
from ._merw_graph import build_graph, graph_params, read_graph, write_graph
from ._presets import with_preset
from ._progress import progress


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
    preset: str = "default",
    key_added: str = DEFAULT_KEY,
    random_state: int = 0,
    n_jobs: int | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Embed cells by the free energies of the paths between them.

    Up to `n_landmarks` cells are embedded as they are. Above, that many landmark cells are embedded, and each other
    cell is placed among its nearest landmarks. :func:`~entropath_sc.tl.merw_graph` is run with its defaults where it
    has not been run and is needed.

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
        (cells nearest to centroids), `'random'`, or a list of barcodes.
    include
        Cells that must be landmarks: a barcode, several, or `('obs column', 'category')`. If they are more than
        `n_landmarks`, they are all the landmarks there are.
    landmark_graph
        `'compressed'`: the affinity of all cells, compressed onto the landmarks. `'anchor'`: each cell votes for its
        nearest landmarks; needs only the representation, no graph of cells. `'knn'`: a neighbour graph of the
        landmarks alone, as in the paper. `'auto'` (default) is `'compressed'` where there is a graph or neighbours, and
        `'anchor'` where there are none.
    depth
        A diffusion depth, or a rule that finds one: `'auto'` (default), the last doubling that keeps the ranks of the
        dissimilarities, or `'knee'` of the entropy curve as in the paper (which is also what `'auto'` means for the
        power).
    max_depth
        Deepest point of the entropy curve, and of the search for a consistent depth.
    diffusion
        `'heat'` (default), the walk in continuous time, which joins all pairs; or `'power'`, the paper's k steps.
    dissimilarity
        `'free_energy'`, -log of the path ensemble S as in the paper; `'normalised'`, -2 log of its cosine, which takes
        off what it costs to come back to the same cell; `'balanced'` (default), half way between them.
    mds
        `'metric'` (SMACOF, started from the classical solution) or `'classical'`.
    n_project
        Landmarks that each other cell is placed among, by default 10. More of them would reach across folds.
    preset
        `'paper'`: the paper's landmarks (`'kmeans'`), landmark graph (`'knn'`), projection (50), depth (`'knee'`),
        diffusion (`'power'`) and dissimilarity (`'free_energy'`), where they are not given. It used the Gaussian kernel
        on generated manifolds, and `'alpha_decay'` on cells.
    key_added
        Prefix of the fields that are set, and of the graph that is read.
    random_state
        Seed of the choice of landmarks.
    n_jobs
        Threads to use; by default all.
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
        What the projection of further cells needs; only where there are more cells than landmarks.

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
    check_choice("landmark_graph", landmark_graph, landmarking.GRAPHS)
    check_choice("diffusion", diffusion, diffusing.DIFFUSIONS)
    check_choice("dissimilarity", dissimilarity, diffusing.DISSIMILARITIES)
    check_choice("mds", mds, scaling.SOLVERS)
    check_depth(depth, diffusion, DEPTH_RULES)
    keys = keys_for(adata, key_added)
    start = logg.info("computing the EntroPath embedding")
    rule, chosen = _requested_landmarks(adata, landmarks, include)
    is_direct = rule is not None and adata.n_obs <= n_landmarks
    if landmark_graph == "auto":
        has_graph = keys.affinity in adata.obsp or "neighbors" in adata.uns
        landmark_graph = "compressed" if is_direct or has_graph else "anchor"
    new_graph, A, landmark_set = None, None, None
    with threads(n_jobs), progress() as report:
        if is_direct or landmark_graph != "anchor":
            A = read_graph(adata, keys)
            if A is None:
                new_graph = build_graph(adata, preset=preset, random_state=random_state)
                A = new_graph.affinity
        if not is_direct:
            params = graph_params(adata, keys) if new_graph is None else new_graph.params
            X, use_rep = representation(adata, params.get("use_rep"), params.get("n_pcs"))
            if rule is not None:
                chosen = landmarking.choose(X, n_landmarks, rule, include=chosen, random_state=random_state)
            landmark_set = landmarking.landmark_set(
                X,
                A,
                chosen,
                landmark_graph,
                n_project=n_project,
                n_neighbors=int(params["n_neighbors"]),
                kernel=params["kernel"],
                decay=params["decay"],
                report=report,
            )
            A = landmark_set.graph
        if n_components >= A.shape[0]:
            raise ValueError(f"n_components={n_components} must be below the number of embedded cells, {A.shape[0]}.")
        embedded = embed(
            A,
            n_components=n_components,
            depth=depth,
            max_depth=max_depth,
            diffusion=diffusion,
            dissimilarity=dissimilarity,
            mds=mds,
            report=report,
        )

    adata = adata.copy() if copy else adata
    if new_graph is not None:
        write_graph(adata, keys, new_graph)
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
    }
    if landmark_set is not None:
        params["use_rep"] = use_rep
    _write_embedding(adata, keys, embedded, landmark_set, params)
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


def _write_embedding(
    adata: AnnData,
    keys: Keys,
    embedded: Embedded,
    landmark_set: landmarking.LandmarkSet | None,
    params: dict[str, Any],
) -> None:
    writable(adata)
    coordinates = embedded.coordinates.astype(np.float32)
    is_landmark = np.ones(adata.n_obs, dtype=bool)
    stored = None
    if landmark_set is not None:
        is_landmark[:] = False
        is_landmark[landmark_set.cells] = True
        stored = {
            "barcodes": adata.obs_names[landmark_set.cells].to_numpy(dtype=object),
            "positions": landmark_set.positions,
            "bandwidth": landmark_set.bandwidth,
            "coordinates": coordinates,
            "affinity": landmark_set.graph,
            "lambda_max": embedded.diffused.lambda_max,
        }
        coordinates = landmark_set.weights @ coordinates
    adata.obsm[keys.coordinates] = coordinates
    adata.obs[keys.landmark] = is_landmark
    diffused, layout = embedded.diffused, embedded.layout
    record(
        adata,
        keys,
        "embedding",
        params,
        depth={
            "depths": np.arange(1, len(diffused.knee.entropy) + 1),
            "entropy": diffused.knee.entropy,
            "knee": diffused.knee.depth,
            "knee_range": diffused.knee.depth_range,
            "times": diffused.times,
            "agreement": diffused.agreement,
            "consistent": diffused.consistent,
            "chosen": diffused.depth,
        },
        embedding={
            "lambda_max": diffused.lambda_max,
            "stress": None if layout is None else layout.stress,
            "stress_1": None if layout is None else layout.stress_1,
            "iterations": None if layout is None else layout.n_iterations,
            "converged": None if layout is None else layout.converged,
        },
        landmarks=stored,
    )


def read_landmarks(adata: AnnData, keys: Keys) -> dict[str, Any] | None:
    """What `embedding` stored of its landmarks, or None where it embedded all cells or has not run."""
    return adata.uns.get(keys.uns, {}).get("landmarks")


def stored_graph(landmarks: dict[str, Any]) -> sp.csr_matrix:
    """The affinity among stored landmarks."""
    return sp.csr_matrix(landmarks["affinity"])
