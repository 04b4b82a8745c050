"""The embedding as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .core import layout as layouts
from .core.cells import Cells
from .core.frame import Frame
from .core.graph import graph_of_cells
from .core.neighbors import knn_distances
from .core.nodes import Interpolator, Nodes
from .core.pipeline import DEFAULT, N_LANDMARKS, N_NEIGHBORS, embed, landmark_graph
from .tl._checks import check_choice, check_count, removed, settings_for, threads
from .tl._merw_graph import KERNEL
from .tl._nodes import warn_of_components


class EntroPath(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Embedding of arrays as a scikit-learn estimator: fit it to cells, and place others in it.

    It is the computation of :func:`entropath_sc.tl.embedding` on a representation without neighbours. Up to
    `n_landmarks` samples are embedded through a neighbour graph. Of more, `n_landmarks` landmarks are embedded, joined
    by all samples.

    Parameters
    ----------
    n_components
        Dimensions of the embedding.
    n_neighbors
        Size of the neighbourhoods, which counts the sample itself. A larger value smooths more.
    n_landmarks
        Up to this number, all samples are embedded directly. More landmarks resolve finer branches; time grows with the
        cube of their number.
    landmarks
        How landmarks are chosen: `'farthest'`, `'kmeans'` or `'random'`.
    decay, bandwidth
        The affinity of neighbours, as in :func:`entropath_sc.tl.merw_graph`, where samples are embedded directly.
    depth
        How far paths may wander, in distances between neighbours. A larger depth smooths more; between 3 and 30 it
        hardly matters.
    mds
        `'metric'` or `'classical'` multidimensional scaling.
    n_project
        Number of landmarks that each other sample is placed among. A larger value smooths more.
    random_state
        Seed of the choice of landmarks.
    n_jobs
        Number of threads; by default all.

    Attributes
    ----------
    embedding_ : array of shape (n_samples, n_components)
        Coordinates of the samples that were fitted.
    nodes_ : entropath_sc.core.nodes.Nodes
        The embedded samples, and how others are placed among them.
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

    @removed(kernel=KERNEL, dissimilarity="There is one dissimilarity, the free energy of all paths.")
    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int = N_NEIGHBORS,
        n_landmarks: int = N_LANDMARKS,
        landmarks: str = DEFAULT.landmarks,
        decay: float = DEFAULT.decay,
        bandwidth: str = DEFAULT.bandwidth,
        depth: float | str = DEFAULT.depth,
        mds: str = "metric",
        n_project: int = DEFAULT.n_project,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.decay = decay
        self.bandwidth = bandwidth
        self.depth = depth
        self.mds = mds
        self.n_project = n_project
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: None = None) -> Self:
        """Embed the samples in the rows of ``X``; ``y`` is ignored."""
        _refuse_objects(X)
        samples = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=3)
        self._frame = Frame.of(samples)
        X = self._frame(samples)
        check_count("n_components", self.n_components, 1)
        check_count("n_neighbors", self.n_neighbors, 2)
        check_count("n_landmarks", self.n_landmarks, 3)
        check_choice("mds", self.mds, layouts.SOLVERS)
        if self.n_components >= (n_nodes := min(len(X), self.n_landmarks)):
            raise ValueError(
                f"n_components={self.n_components} must be below the number of samples or landmarks, {n_nodes}."
            )
        names = ("decay", "bandwidth", "landmarks", "depth", "n_project")
        settings = settings_for("default", **{name: getattr(self, name) for name in names})
        n_neighbors = min(self.n_neighbors, len(X) - 1)
        with threads(self.n_jobs):
            if len(X) <= self.n_landmarks:
                distances = knn_distances(X, n_neighbors, random_state=self.random_state)
                graph, bandwidths = graph_of_cells(distances, X, decay=self.decay, bandwidth=self.bandwidth)
                positions = np.ascontiguousarray(X, dtype=np.float32)
                self.nodes_ = Nodes(positions, bandwidths, min(self.n_project, len(X)))
            else:
                _, graph = landmark_graph(
                    Cells(X), settings, self.n_landmarks, n_neighbors=n_neighbors, random_state=self.random_state
                )
                self.nodes_ = graph.nodes
            warn_of_components(graph.bridges, "samples" if graph.nodes is None else "landmarks")
            found = embed(graph, settings, n_components=self.n_components, mds=self.mds)
        self.coordinates_ = found.coordinates
        self._exact = graph.nodes is None
        self.embedding_ = self.transform(samples)
        return self

    def fit_transform(self, X: Any, y: None = None) -> np.ndarray:
        """Embed the samples in the rows of ``X``, and return their coordinates."""
        return self.fit(X).embedding_

    def transform(self, X: Any) -> np.ndarray:
        """Coordinates of the samples in the rows of ``X``, which need not be those that were fitted."""
        check_is_fitted(self)
        _refuse_objects(X)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        with threads(self.n_jobs):
            placed = Interpolator(self.nodes_, self.coordinates_, exact=self._exact)
            return placed(*self.nodes_.nearest(self._frame(X))).astype(X.dtype)

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
