"""What `project` reads of a reference: nodes, with the values that they carry to new cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData

from .._keys import Keys
from ..core.ensemble import PassagesOfNeighbors
from ..core.kernel import Kernel
from ..core.nodes import Interpolator, Nodes
from ._adata import has_representation, picked, representation
from ._nodes import restored_nodes

# Cells that are compared to find what a PCA took off, and how far they may differ, relative to its largest score.
OFFSET_CELLS = 20
OFFSET_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Reference:
    """The embedded cells of a reference (landmarks, or all of its cells), and their coordinates."""

    nodes: Nodes
    cells: pd.Index
    coordinates: np.ndarray
    all_cells: bool
    use_rep: str
    sliced: bool


def read_reference(adata: AnnData, keys: Keys) -> Reference:
    """What `embedding` left in a reference."""
    entry = adata.uns.get(keys.uns, {})
    params = entry.get("params", {}).get("embedding")
    if params is None:
        raise ValueError(
            f"The reference has no embedding in adata_ref.uns[{keys.uns!r}]. Run `ep.tl.embedding(adata_ref)` first."
        )
    if "landmarks" in entry:
        stored = entry["landmarks"]
        cells, coordinates = pd.Index(stored["barcodes"]), np.asarray(stored["coordinates"])
        return Reference(restored_nodes(stored), cells, coordinates, False, str(params["use_rep"]), "n_pcs" in params)
    nodes = _all_nodes(adata, keys, params.get("use_rep"), int(params["n_project"]))
    coordinates = np.asarray(adata.obsm[keys.coordinates])
    return Reference(nodes, adata.obs_names, coordinates, True, str(params["use_rep"]), "n_pcs" in params)


def _all_nodes(adata: AnnData, keys: Keys, use_rep: str | None, n_project: int) -> Nodes:
    """All cells of a reference, where they are."""
    if use_rep is None or not has_representation(adata, use_rep) or keys.scales not in adata.obsm:
        name = "the representation behind its neighbours" if use_rep is None else f"adata_ref.obsm[{use_rep!r}]"
        raise ValueError(
            f"The reference lacks {name} or adata_ref.obsm[{keys.scales!r}], so nothing can be placed in it. Run "
            "`ep.tl.merw_graph(adata_ref, use_rep=...)` and `ep.tl.embedding(adata_ref)` again."
        )
    params = adata.uns[keys.uns]["params"]["merw_graph"]
    n_pcs = None if params.get("n_pcs") is None else int(params["n_pcs"])
    X = np.ascontiguousarray(representation(adata, use_rep, n_pcs)[0], dtype=np.float32)
    return Nodes(X, np.asarray(adata.obsm[keys.scales])[:, 0], min(n_project, len(X)))


@dataclass(frozen=True)
class ReferenceOrder:
    """How new cells get the order of a reference: as a function of their nearest nodes, and from its own values."""

    nodes: Nodes
    function: Any
    use_rep: str
    potential: np.ndarray
    pseudotime: np.ndarray
    monotone: bool

    def columns(self, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Potential and pseudotime of new cells, from what the function gave."""
        potential, pseudotime = found[:, 0], found[:, 1]
        if self.monotone:
            rising = np.argsort(self.potential, kind="stable")
            pseudotime = np.interp(potential, self.potential[rising], self.pseudotime[rising])
        return potential, np.clip(pseudotime, 0.0, 1.0)


def read_order(adata: AnnData, keys: Keys) -> ReferenceOrder | None:
    """What `pseudotime` left in a reference; None where it has not run."""
    entry = adata.uns.get(keys.uns, {})
    part = entry.get("pseudotime")
    if part is None or keys.potential not in adata.obs:
        return None
    potential, pseudotime = (adata.obs[name].to_numpy(dtype=np.float64) for name in (keys.potential, keys.pseudotime))
    own = str(part.get("use_rep")), potential, pseudotime, "terminals" not in part
    if "landmarks" in part:
        stored = part["landmarks"]
        nodes, values = restored_nodes(stored), np.column_stack([stored["potential"], stored["pseudotime"]])
        return ReferenceOrder(nodes, Interpolator(nodes, values), *own)
    made = entry["params"]["merw_graph"]
    nodes = _all_nodes(adata, keys, part.get("use_rep"), int(made["n_neighbors"]) - 1)
    if "unit" not in part:  # the paper's
        values = np.column_stack([potential, pseudotime])
        return ReferenceOrder(nodes, Interpolator(nodes, values, exact=True), *own)
    graph = entry["graph"]
    function = PassagesOfNeighbors(
        Kernel(float(made["decay"]), str(made["bandwidth"]), float(graph["unit"]), float(graph["typical_bandwidth"])),
        nodes.bandwidths,
        np.asarray(adata.obsm[keys.scales])[:, 1],
        potential,
        pseudotime,
        float(part["unit"]),
        float(part["depth"]),
    )
    return ReferenceOrder(nodes, function, *own)


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
