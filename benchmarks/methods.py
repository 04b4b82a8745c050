"""The systems that the paper compares, each as a function of points: dissimilarities (or None) and a 2-D layout.

All use neighbourhoods of 15. A method's own package is used where it installs beside this one; what is implemented
here, from the paper's description, says so in its docstring.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from anndata import AnnData
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE, SpectralEmbedding
from sklearn.metrics import euclidean_distances

import entropath_sc as ep
from entropath_sc.core import affinity as affinities
from entropath_sc.core import diffusion as diffusing
from entropath_sc.core import mds
from entropath_sc.core.model import dissimilarities

K = 15


@dataclass(frozen=True)
class Result:
    """A layout of all points, and dissimilarities among ``cells`` of them (all, where it is None)."""

    layout: np.ndarray
    distances: np.ndarray | None = None
    cells: np.ndarray | None = None


def _scaled(D: np.ndarray) -> np.ndarray:
    """Metric MDS of distances from their classical scaling."""
    return mds.smacof(D, mds.classical(D**2, 2)).coordinates


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
    return ep.metrics.shortest_paths(affinities.knn_distances(X, K + 1))


def isomap(X: np.ndarray, seed: int) -> Result:
    """Classical scaling of shortest paths."""
    D = _paths(X)
    return Result(mds.classical(D**2, 2), D)


def shortest_path(X: np.ndarray, seed: int) -> Result:
    """Metric MDS of shortest paths."""
    D = _paths(X)
    return Result(_scaled(D), D)


def _connected(X: np.ndarray, kernel: str = "gaussian") -> np.ndarray:
    A = affinities.affinity(affinities.knn_distances(X, K), kernel=kernel)
    return affinities.bridge_components(A, X)[0]


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


def _entropath(X: np.ndarray, **options) -> Result:
    """Coordinates through the public functions; the dissimilarities that they are scaled from, once more."""
    adata = AnnData(X)
    ep.tl.merw_graph(adata, use_rep="X", kernel=options.pop("kernel", None))
    ep.tl.embedding(adata, **options)
    found = adata.uns["entropath"]
    used = found["params"]["embedding"]
    stored = found.get("landmarks")
    A = adata.obsp["entropath_affinity"] if stored is None else stored["affinity"]
    rescaled = A.toarray() / found["embedding"]["lambda_max"]
    depth = float(found["depth"]["chosen"])
    if used["diffusion"] == "power":
        kernel = diffusing.matrix_power(rescaled, int(depth))
    else:
        kernel = diffusing.heat_kernel(rescaled, depth, reach=A.shape[0])
    D = dissimilarities(A, kernel, diffusion=used["diffusion"], dissimilarity=used["dissimilarity"])
    cells = None if stored is None else np.flatnonzero(adata.obs["entropath_landmark"])
    return Result(adata.obsm["X_entropath"], D, cells)


def entropath_paper(X: np.ndarray, seed: int) -> Result:
    """This package with `preset='paper'`: Gaussian kernel, all cells embedded."""
    return _entropath(X, kernel="gaussian", preset="paper", n_landmarks=len(X), random_state=seed)


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
