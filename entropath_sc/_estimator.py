"""The embedding as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .core import diffusion as diffusing
from .core import landmarks as landmarking
from .core import mds as scaling
from .core.affinity import KERNELS, affinity, bridge_components, knn_distances
from .core.model import DEPTH_RULES, embed
from .core.placement import Carrier, Nodes
from .tl._checks import check_choice, check_count, check_depth, threads
from .tl._nodes import warn_of_components
from .tl._presets import PRESETS

_EMBEDDING = PRESETS["default"]["embedding"]


class EntroPath(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """EntroPath for arrays: fit an embedding to cells, and place others in it.

    The same computation as :func:`entropath_sc.tl.embedding` on a representation without a neighbour graph: up to
    `n_landmarks` samples are embedded through a neighbour graph; above, that many landmarks through the votes of all.

    Parameters
    ----------
    n_components
        Dimensions of the embedding.
    n_neighbors
        Size of the neighbourhoods, the sample itself included.
    n_landmarks
        Most samples that are embedded directly.
    landmarks
        `'farthest'`, `'kmeans'` or `'random'`.
    kernel
        `'tempered'`, `'alpha_decay'` or `'gaussian'`: the affinity of neighbours, where samples are embedded directly.
    depth
        A diffusion depth, or `'auto'` or `'knee'`.
    dissimilarity
        `'averaged'`, `'balanced'`, `'free_energy'` or `'normalised'`.
    mds
        `'metric'` or `'classical'`.
    n_project
        Landmarks that each other sample is placed among.
    random_state
        Seed of the choice of landmarks.
    n_jobs
        Threads to use; by default all.

    Attributes
    ----------
    embedding_ : array of shape (n_samples, n_components)
        Coordinates of the samples that were fitted.
    depth_ : float
        The diffusion depth that was used.
    nodes_ : the embedded samples, and how others are placed among them
    coordinates_ : array of shape (n_nodes, n_components)
        Their coordinates.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> X = ep.datasets.branching(n_cells=400).obsm["X_pca"]
    >>> model = ep.EntroPath(n_components=2).fit(X[::2])
    >>> model.transform(X[1::2]).shape
    (200, 2)
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int = 15,
        n_landmarks: int = 2000,
        landmarks: str = _EMBEDDING["landmarks"],
        kernel: str = PRESETS["default"]["merw_graph"]["kernel"],
        depth: float | str = _EMBEDDING["depth"],
        dissimilarity: str = _EMBEDDING["dissimilarity"],
        mds: str = "metric",
        n_project: int = _EMBEDDING["n_project"],
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.kernel = kernel
        self.depth = depth
        self.dissimilarity = dissimilarity
        self.mds = mds
        self.n_project = n_project
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: None = None) -> Self:
        """Embed the samples in the rows of ``X``; ``y`` is ignored."""
        _refuse_objects(X)
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=3)
        self._check_options(len(X))
        with threads(self.n_jobs):
            n_neighbors = min(self.n_neighbors, len(X) - 1)
            if len(X) <= self.n_landmarks:
                A = affinity(knn_distances(X, n_neighbors, random_state=self.random_state), kernel=self.kernel)
                graph, bridges = bridge_components(A, X)
                self.nodes_ = Nodes.at(X, n_project=self.n_project, n_neighbors=n_neighbors, coincide=True)
            else:
                chosen = landmarking.choose(X, self.n_landmarks, self.landmarks, random_state=self.random_state)
                found = landmarking.landmark_set(
                    X, None, chosen, "anchor", n_project=self.n_project, n_neighbors=n_neighbors
                )
                self.nodes_, graph, bridges = found.nodes, found.graph, found.bridges
            what = "samples" if len(X) <= self.n_landmarks else "landmarks"
            warn_of_components(bridges, stacklevel=3, what=what)
            embedded = embed(
                graph,
                n_components=self.n_components,
                depth=self.depth,
                dissimilarity=self.dissimilarity,
                mds=self.mds,
            )
        self.coordinates_ = embedded.coordinates
        self.depth_ = embedded.diffused.depth
        self.embedding_ = self.transform(X)
        return self

    def _check_options(self, n_samples: int) -> None:
        check_count("n_components", self.n_components, 1)
        check_count("n_neighbors", self.n_neighbors, 2)
        check_count("n_landmarks", self.n_landmarks, 3)
        check_count("n_project", self.n_project, 1)
        check_choice("landmarks", self.landmarks, landmarking.RULES)
        check_choice("kernel", self.kernel, KERNELS)
        check_choice("dissimilarity", self.dissimilarity, tuple(diffusing.DISSIMILARITIES))
        check_choice("mds", self.mds, scaling.SOLVERS)
        check_depth(self.depth, "heat", DEPTH_RULES)
        n_nodes = min(n_samples, self.n_landmarks)
        if self.n_components >= n_nodes:
            raise ValueError(
                f"n_components={self.n_components} must be below the number of samples or landmarks, {n_nodes}."
            )

    def fit_transform(self, X: Any, y: None = None) -> np.ndarray:
        """Embed the samples in the rows of ``X``, and return their coordinates."""
        return self.fit(X).embedding_

    def transform(self, X: Any) -> np.ndarray:
        """Coordinates of the samples in the rows of ``X``, which need not be those that were fitted."""
        check_is_fitted(self)
        _refuse_objects(X)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        with threads(self.n_jobs):
            return Carrier(self.nodes_, self.coordinates_)(X).astype(X.dtype)

    @property
    def _n_features_out(self) -> int:
        return self.coordinates_.shape[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _refuse_objects(X: Any) -> None:
    if hasattr(X, "obsm"):
        raise TypeError("X is an AnnData object: use adata.obsm['X_pca'], or `ep.tl.embedding(adata)`.")
