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
from ..core.affinity import Kernel
from ..core.joining import Joining
from ..core.model import Embedded
from ..core.placement import Nodes
from ._adata import has_representation, picked, representation
from ._merw_graph import read_graph

# Cells that are compared to find what a PCA took off, and how far they may differ, relative to its largest score.
OFFSET_CELLS = 20
OFFSET_TOLERANCE = 1e-3

# Up to this many cells, all that an order was computed on are kept for new cells; of more, the landmarks carry it.
MOST_JOINED = 10_000

# The fields of what is kept that hold an order.
ORDER = ("potential", "pseudotime", "joining")


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
    joining: Joining | None
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
        _read_joining(stored["joining"], nodes) if "joining" in stored else None,
        stored.get("pca_offset"),
        entry["params"]["embedding"]["use_rep"],
    )


def _read_joining(stored: dict[str, Any], nodes: Nodes) -> Joining:
    return Joining(
        np.asarray(stored.get("positions", nodes.positions)),
        np.asarray(stored["bandwidth"]),
        int(stored["n_neighbors"]),
        Kernel(str(stored["kernel"]), *map(float, stored["scales"])),
        np.asarray(stored["potential"]),
        np.asarray(stored["pseudotime"]),
        np.asarray(stored["steps"]),
        np.asarray(stored["limits"]),
        float(stored["plain"]),
        bool(stored["monotone"]),
    )


def stored_order(adata: AnnData, keys: Keys, barcodes: pd.Index, nodes: Nodes, use_rep: str) -> dict[str, Any]:
    """The order of the embedded cells, as it is kept beside them; nothing where there is none.

    With, where it was computed on the graph of all cells, what new cells need to join that.
    """
    if keys.pseudotime not in adata.obs or "pseudotime" not in adata.uns.get(keys.uns, {}):
        return {}
    cells = np.flatnonzero(adata.obs[keys.landmark]) if keys.landmark in adata.obs else np.empty(0, dtype=int)
    if not np.array_equal(adata.obs_names[cells], barcodes):  # other cells than were embedded, or in another order
        if not adata.obs_names.is_unique:
            return {}
        cells = adata.obs_names.get_indexer(barcodes)
        if (cells < 0).any():
            return {}
    potential, pseudotime = (adata.obs[name].to_numpy(dtype=np.float64) for name in (keys.potential, keys.pseudotime))
    order: dict[str, Any] = {"potential": potential[cells], "pseudotime": pseudotime[cells]}
    joining = _joining(adata, keys, potential, pseudotime, use_rep)
    # New cells come in the representation of the nodes, or in its first columns.
    if joining is not None and joining.positions.shape[1] <= nodes.positions.shape[1]:
        kernel = joining.kernel
        order["joining"] = {
            "bandwidth": joining.bandwidth,
            "n_neighbors": joining.n_neighbors,
            "kernel": kernel.kind,
            "scales": np.array([kernel.decay, kernel.length, kernel.typical]),
            "potential": joining.potential,
            "pseudotime": joining.pseudotime,
            "steps": joining.steps,
            "limits": joining.limits,
            "plain": joining.plain,
            "monotone": joining.monotone,
        }
        if not (nodes.coincide and np.array_equal(nodes.positions, joining.positions)):
            order["joining"]["positions"] = joining.positions
    return order


def _joining(adata: AnnData, keys: Keys, potential: np.ndarray, pseudotime: np.ndarray, use_rep: str) -> Joining | None:
    """How new cells join the graph of all cells, where the order was computed on it by the symmetric heat kernel."""
    entry = adata.uns[keys.uns]
    params, found = entry["params"]["pseudotime"], entry["pseudotime"]
    is_plain = (params["potential"], params["diffusion"], found["on"]) == ("symmetric", "heat", "cells")
    A = read_graph(adata, keys) if is_plain and adata.n_obs <= MOST_JOINED else None
    if A is None:
        return None
    made = entry["params"]["merw_graph"]
    if made.get("use_rep") != use_rep or not has_representation(adata, use_rep):
        return None
    X, _ = representation(adata, use_rep, made.get("n_pcs") and int(made["n_pcs"]))
    return Joining.to(
        X,
        A,
        potential,
        pseudotime,
        plain=1.0 - float(found["refined"]),
        # Terminal cells pull at each cell in a way of its own.
        monotone=found.get("terminals") is None,
        n_neighbors=int(made["n_neighbors"]),
        kernel=made["kernel"],
        decay=float(made["decay"]),
    )


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
    # In one layout, whatever it was in: products of others differ in their last digits.
    offsets = X.astype(np.float64, order="C") @ np.ascontiguousarray(loadings) - scores
    agree = np.ptp(offsets, axis=0).max() <= OFFSET_TOLERANCE * np.abs(scores).max()
    return offsets.mean(axis=0) if agree else None
