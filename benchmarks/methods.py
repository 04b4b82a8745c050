"""The systems that the paper compares, each as a function of points: dissimilarities (or None) and a 2-D layout.

All use neighbourhoods of 15. A method's own package is used where it installs beside this one; what is implemented
here, from the paper's description, says so in its docstring.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from anndata import AnnData
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE, SpectralEmbedding
from sklearn.metrics import euclidean_distances

import entropath_sc as ep
from entropath_sc.core import layout as layouts
from entropath_sc.core.graph import Bridges, Graph, graph_of_cells
from entropath_sc.core.neighbors import knn_distances
from entropath_sc.core.pipeline import PRESETS, dissimilarities
from entropath_sc.tl._nodes import restored_graph

K = 15
NO_BRIDGES = Bridges(np.ones(1, dtype=int), np.empty((0, 2), dtype=int), np.empty(0))


@dataclass(frozen=True)
class Result:
    """A layout of all points, and dissimilarities among ``cells`` of them (all, where it is None)."""

    layout: np.ndarray
    distances: np.ndarray | None = None
    cells: np.ndarray | None = None


def _scaled(D: np.ndarray) -> np.ndarray:
    """Metric MDS of distances from their classical scaling."""
    return layouts.smacof(D, layouts.classical(D**2, 2)).coordinates


def pca(X: np.ndarray, seed: int) -> Result:
    """Principal components; the distance is the Euclidean one."""
    return Result(PCA(2, random_state=seed).fit_transform(X), cdist(X, X))


def metric_mds(X: np.ndarray, seed: int) -> Result:
    """Metric MDS of Euclidean distances, by this package's SMACOF."""
    D = cdist(X, X)
    return Result(_scaled(D), D)


def umap(X: np.ndarray, seed: int) -> Result:
    """umap-learn."""
    from umap import UMAP

    return Result(UMAP(n_neighbors=K, random_state=seed, n_jobs=1).fit_transform(X))


def tsne(X: np.ndarray, seed: int) -> Result:
    """scikit-learn's t-SNE."""
    return Result(TSNE(random_state=seed).fit_transform(X))


def _paths(X: np.ndarray) -> np.ndarray:
    return ep.metrics.shortest_paths(knn_distances(X, K + 1))


def isomap(X: np.ndarray, seed: int) -> Result:
    """Classical scaling of shortest paths."""
    D = _paths(X)
    return Result(layouts.classical(D**2, 2), D)


def shortest_path(X: np.ndarray, seed: int) -> Result:
    """Metric MDS of shortest paths."""
    D = _paths(X)
    return Result(_scaled(D), D)


def _connected(X: np.ndarray) -> np.ndarray:
    return graph_of_cells(knn_distances(X, K), X, decay=2, bandwidth="adaptive")[0].affinity


def laplacian_eigenmaps(X: np.ndarray, seed: int) -> Result:
    """scikit-learn's spectral embedding of the paper's Gaussian affinity."""
    layout = SpectralEmbedding(2, affinity="precomputed", random_state=seed).fit_transform(_connected(X).toarray())
    return Result(layout)


def diffusion_maps(X: np.ndarray, seed: int, time: int = 10) -> Result:
    """Diffusion maps with density correction at time 10, implemented here from the paper's description.

    The distance is the diffusion distance: eigenvectors have unit length under the stationary measure.
    """
    A = _connected(X).toarray()
    np.fill_diagonal(A, 1.0)
    density = A.sum(axis=1)
    A = A / np.outer(density, density)
    root = np.sqrt(A.sum(axis=1))
    values, vectors = np.linalg.eigh(A / np.outer(root, root))
    order = np.argsort(-np.abs(values))
    coordinates = (vectors / root[:, None] * np.linalg.norm(root) * values**time)[:, order]
    return Result(coordinates[:, 1:3], euclidean_distances(coordinates))


def phate(X: np.ndarray, seed: int) -> Result:
    """phate, without landmarks; the distance is the Euclidean one between its potentials."""
    from phate import PHATE

    operator = PHATE(knn=K, n_pca=None, n_landmark=None, verbose=0, random_state=seed)
    layout = operator.fit_transform(X)
    potential = operator.diff_potential
    return Result(layout, euclidean_distances(potential))


def heatgeo(X: np.ndarray, seed: int) -> Result:
    """heatgeo, whose first release asks for an old numpy but runs with this one."""
    from heatgeo.embedding import HeatGeo

    operator = HeatGeo(knn=K, n_pca=None)
    with contextlib.redirect_stdout(io.StringIO()):
        layout = operator.fit_transform(X)
    return Result(layout, operator.dist)


def dtne(X: np.ndarray, seed: int) -> Result:
    """dtne."""
    from dtne import DTNE

    operator = DTNE(k_neighbors=K, random_state=seed)
    layout = operator.fit_transform(X)
    return Result(layout, operator.dists)


def _entropath(X: np.ndarray, preset: str = "default", graph: dict | None = None, **options) -> Result:
    """Coordinates through the public functions; the dissimilarities that they are scaled from, once more."""
    adata = AnnData(X)
    ep.tl.merw_graph(adata, use_rep="X", preset=preset, **(graph or {}))
    ep.tl.embedding(adata, preset=preset, **options)
    entry = adata.uns["entropath"]
    if "landmarks" in entry:
        nodes, cells = restored_graph(entry["landmarks"]), np.flatnonzero(adata.obs["entropath_landmark"])
    else:
        lengths = adata.obsp["entropath_lengths"].data
        nodes, cells = Graph(adata.obsp["entropath_affinity"], lengths, NO_BRIDGES), None
    settings = replace(PRESETS[preset], depth=float(entry["depth"]["chosen"]))
    return Result(adata.obsm["X_entropath"], dissimilarities(nodes, settings)[0], cells)


def entropath_paper(X: np.ndarray, seed: int) -> Result:
    """This package with `preset='paper'`: Gaussian kernel, all cells embedded."""
    kernel = {"decay": 2, "bandwidth": "adaptive"}
    return _entropath(X, "paper", kernel, n_landmarks=len(X), random_state=seed)


def entropath(X: np.ndarray, seed: int) -> Result:
    """This package's defaults."""
    return _entropath(X, random_state=seed)


METHODS: dict[str, Callable[[np.ndarray, int], Result]] = {
    function.__name__: function
    for function in (
        pca,
        metric_mds,
        umap,
        tsne,
        isomap,
        shortest_path,
        laplacian_eigenmaps,
        diffusion_maps,
        phate,
        heatgeo,
        dtne,
        entropath_paper,
        entropath,
    )
}
DIFFUSION_METHODS = ("diffusion_maps", "phate", "heatgeo", "dtne", "entropath_paper")
