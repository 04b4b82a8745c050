"""What an embedding keeps of itself, for cells that come later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData

from .._keys import Keys
from ..core.model import Embedded
from ..core.placement import Nodes
from ._adata import picked

# Cells that are compared to find what a PCA took off, and how far they may differ, relative to its largest score.
OFFSET_CELLS = 20
OFFSET_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Reference:
    """The embedded cells of a reference, with the values that they carry."""

    nodes: Nodes
    barcodes: pd.Index
    coordinates: np.ndarray
    graph: sp.csr_matrix
    lambda_max: float
    potential: np.ndarray | None
    pseudotime: np.ndarray | None
    pca_offset: np.ndarray | None
    use_rep: str


def stored_nodes(nodes: Nodes, barcodes: Sequence[str], embedded: Embedded, graph: sp.csr_matrix) -> dict[str, Any]:
    """The embedded cells as they are kept in `uns`."""
    return {
        "barcodes": np.asarray(barcodes, dtype=object),
        "positions": nodes.positions,
        "bandwidth": nodes.bandwidth,
        "n_project": nodes.n_project,
        "coincide": nodes.coincide,
        "coordinates": embedded.coordinates.astype(np.float32),
        "affinity": graph,
        "lambda_max": embedded.diffused.lambda_max,
    }


def read_reference(adata: AnnData, keys: Keys) -> Reference | None:
    """What `embedding` kept, or None where it has not run or could not keep it."""
    entry = adata.uns.get(keys.uns, {})
    stored = entry.get("landmarks")
    if stored is None:
        return None
    nodes = Nodes(
        np.asarray(stored["positions"]),
        np.asarray(stored["bandwidth"]),
        int(stored["n_project"]),
        bool(stored["coincide"]),
    )
    return Reference(
        nodes,
        pd.Index(stored["barcodes"]),
        np.asarray(stored["coordinates"]),
        sp.csr_matrix(stored["affinity"]),
        float(stored["lambda_max"]),
        stored.get("potential"),
        stored.get("pseudotime"),
        stored.get("pca_offset"),
        entry["params"]["embedding"]["use_rep"],
    )


def stored_order(adata: AnnData, keys: Keys, barcodes: pd.Index) -> dict[str, np.ndarray]:
    """The order of the embedded cells, as it is kept beside them; nothing where there is none."""
    if keys.pseudotime not in adata.obs or "pseudotime" not in adata.uns.get(keys.uns, {}):
        return {}
    cells = np.flatnonzero(adata.obs[keys.landmark]) if keys.landmark in adata.obs else np.empty(0, dtype=int)
    if not np.array_equal(adata.obs_names[cells], barcodes):  # other cells than were embedded, or in another order
        if not adata.obs_names.is_unique:
            return {}
        cells = adata.obs_names.get_indexer(barcodes)
        if (cells < 0).any():
            return {}
    columns = {"potential": keys.potential, "pseudotime": keys.pseudotime}
    return {name: adata.obs[column].to_numpy(dtype=np.float64)[cells] for name, column in columns.items()}


def pca_offset(adata: AnnData, use_rep: str | None) -> np.ndarray | None:
    """The mean expression in principal components, which scanpy's PCA takes off and does not store.

    Read off a few cells; None where `adata.X` is not what the PCA was computed from, or there is no PCA.
    """
    if use_rep != "X_pca" or "PCs" not in adata.varm or adata.X is None:
        return None
    rows = np.unique(np.linspace(0, adata.n_obs - 1, OFFSET_CELLS).astype(int))
    X, scores = adata.X[rows], picked(adata, use_rep, rows)
    X = X.toarray() if sp.issparse(X) else np.asarray(X)
    loadings = np.asarray(adata.varm["PCs"], dtype=np.float64)
    if loadings.shape[1] != scores.shape[1]:
        return None
    offsets = X.astype(np.float64) @ loadings - scores
    agree = np.ptp(offsets, axis=0).max() <= OFFSET_TOLERANCE * np.abs(scores).max()
    return offsets.mean(axis=0) if agree else None
