"""The cells that are embedded themselves, and how all others follow."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp
from anndata import AnnData

from ..core import landmarks as landmarking
from ..core.affinity import Bridges
from ..core.model import Embedded
from ..core.placement import Carrier, Nodes
from ..core.progress import Report
from . import _lazy
from ._adata import has_representation, representation
from ._merw_graph import described


def check_store(store: str | PathLike | None, X: Any) -> None:
    """Refuse a store for cells that are in memory."""
    if store is not None and not _lazy.is_lazy(X):
        raise ValueError("`store` is for a representation that is a dask array, of more cells than landmarks.")


@dataclass(frozen=True)
class Part:
    """The cells that are embedded themselves, and how the others follow; ``cells`` is None where these are all."""

    graph: sp.csr_matrix
    cells: np.ndarray | None
    nodes: Nodes | None
    use_rep: str | None
    weights: sp.csr_matrix | None = None

    def carried(self, X: Any, coordinates: np.ndarray, name: str, store: str | PathLike | None, report: Report) -> Any:
        """Coordinates of all cells."""
        if self.cells is None:
            return coordinates
        if self.weights is not None:
            return self.weights @ coordinates
        carrier = Carrier(self.nodes, coordinates)
        return _lazy.map_cells(
            X, carrier, coordinates.shape[1], coordinates.dtype, store=store, stage=name, report=report
        )


def all_cells(adata: AnnData, A: sp.csr_matrix, params: dict[str, Any], n_project: int) -> Part:
    """All cells; where the representation behind their graph is not there, no further cells can be placed."""
    use_rep = params.get("use_rep")
    if use_rep is None or not has_representation(adata, use_rep):
        return Part(A, None, None, None)
    X, _ = representation(adata, use_rep, params.get("n_pcs"))
    nodes = Nodes.at(X, n_project=n_project, n_neighbors=int(params["n_neighbors"]), coincide=True)
    return Part(A, None, nodes, use_rep)


def landmark_cells(
    X: Any,
    A: sp.csr_matrix | None,
    landmarks: landmarking.Landmarks,
    landmark_graph: str,
    params: dict[str, Any],
    n_project: int,
    *,
    use_rep: str,
    store: str | PathLike | None,
    report: Report,
) -> Part:
    """Landmarks, and the graph among them."""
    options = {
        "n_project": n_project,
        "n_neighbors": int(params["n_neighbors"]),
        "kernel": params["kernel"],
        "decay": params["decay"],
        "report": report,
    }
    if _lazy.is_lazy(X):
        nodes, graph, bridges = _lazy.landmark_graph(X, landmarks, landmark_graph, store=store, **options)
        warn_of_components(bridges, stacklevel=4)
        return Part(graph, landmarks.cells, nodes, use_rep)
    found = landmarking.landmark_set(X, A, landmarks, landmark_graph, **options)
    warn_of_components(found.bridges, stacklevel=4)
    return Part(found.graph, landmarks.cells, found.nodes, use_rep, found.weights)


def warn_of_components(bridges: Bridges, *, stacklevel: int, what: str = "landmarks") -> None:
    """Say so where they had to be joined."""
    sizes = bridges.component_sizes
    if len(sizes) > 1:
        warnings.warn(
            f"The {what} form {described(sizes)}. They are joined by their shortest bridges; distances and the "
            "order across a bridge are not to be trusted. Remove cells far from all others first.",
            UserWarning,
            stacklevel=stacklevel,
        )


def diagnostics(embedded: Embedded) -> dict[str, dict[str, Any]]:
    """What `uns` tells of the depth and of the layout."""
    diffused, layout = embedded.diffused, embedded.layout
    return {
        "depth": {
            "depths": np.arange(1, len(diffused.knee.entropy) + 1),
            "entropy": diffused.knee.entropy,
            "knee": diffused.knee.depth,
            "knee_range": diffused.knee.depth_range,
            "times": diffused.times,
            "agreement": diffused.agreement,
            "consistent": diffused.consistent,
            "chosen": diffused.depth,
        },
        "embedding": {
            "lambda_max": diffused.lambda_max,
            "stress": None if layout is None else layout.stress,
            "stress_1": None if layout is None else layout.stress_1,
            "iterations": None if layout is None else layout.n_iterations,
            "converged": None if layout is None else layout.converged,
        },
    }
