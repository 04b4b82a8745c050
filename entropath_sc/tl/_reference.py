"""What `project` reads of a reference: nodes, with the values that they carry to new cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData

from .._keys import Keys
from ..core.frame import Frame
from ..core.kernel import Kernel
from ..core.new_cells import PassagesOfNeighbors
from ..core.nodes import Interpolator, Nodes
from ._adata import Fields, has_representation, picked, representation
from ._blocks import is_lazy
from ._fates import fate_fields
from ._marks import mark_rows
from ._nodes import restored_frame, restored_nodes

# Cells that are compared to find what a PCA took off, and how far they may differ, relative to its largest score.
OFFSET_CELLS = 20
OFFSET_TOLERANCE = 1e-3


def row_marks(adata: AnnData, use_rep: str | None, n_pcs: int | None, *values: np.ndarray | None) -> np.ndarray | None:
    """A number for each cell, by which its position, together with values, is recognised.

    They go with a cell into a subset, another order and another name. None where positions are not known, or not read.
    """
    if use_rep is None or not has_representation(adata, use_rep):
        return None
    if is_lazy(adata.X if use_rep == "X" else adata.obsm[use_rep]):
        return None
    X = representation(adata, use_rep, None)[0][:, :n_pcs]
    return mark_rows(X, *(value for value in values if value is not None))


def _check_rows(adata: AnnData, part: Mapping, use_rep: str, n_pcs: int | None, command: str, *values: Any) -> None:
    """Refuse a reference some of whose cells have other positions, or other results, than were computed together."""
    found = row_marks(adata, use_rep, n_pcs, *values) if "rows" in part else None
    if found is not None and (changed := np.count_nonzero(~np.isin(found, part["rows"]))):
        raise ValueError(
            f"The reference has changed since `ep.tl.{command}`: {changed} of its {adata.n_obs} cells have other "
            f"positions in {use_rep!r}, or other results, than then. Run `ep.tl.{command}` on it again."
        )


def _columns(params: Mapping) -> int | None:
    return None if params.get("n_pcs") is None else int(params["n_pcs"])


@dataclass(frozen=True)
class Reference:
    """The embedded cells of a reference (landmarks, or all of its cells) in a frame, and their coordinates."""

    nodes: Nodes
    frame: Frame
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
    use_rep, n_pcs = params.get("use_rep"), _columns(params)
    if "landmarks" in entry:
        _check_rows(adata, entry["embedding"], use_rep, n_pcs, "embedding")
        stored = entry["landmarks"]
        cells, coordinates = pd.Index(stored["barcodes"]), np.asarray(stored["coordinates"])
        nodes, frame = restored_nodes(stored), restored_frame(stored)
        return Reference(nodes, frame, cells, coordinates, False, str(use_rep), n_pcs is not None)
    if keys.coordinates not in adata.obsm:
        raise ValueError(f"The reference lacks adata_ref.obsm[{keys.coordinates!r}]. Run `ep.tl.embedding(adata_ref)`.")
    coordinates = np.asarray(adata.obsm[keys.coordinates])
    _check_rows(adata, entry["embedding"], use_rep, n_pcs, "embedding", coordinates)
    nodes, frame = _all_nodes(adata, keys, use_rep, n_pcs, int(params["n_project"]))
    return Reference(nodes, frame, adata.obs_names, coordinates, True, str(use_rep), n_pcs is not None)


def _all_nodes(
    adata: AnnData, keys: Keys, use_rep: str | None, n_pcs: int | None, n_project: int
) -> tuple[Nodes, Frame]:
    """All cells of a reference, where they are, and the frame of their positions."""
    if use_rep is None or not has_representation(adata, use_rep) or keys.scales not in adata.obsm:
        name = "the representation behind its neighbours" if use_rep is None else f"adata_ref.obsm[{use_rep!r}]"
        raise ValueError(
            f"The reference lacks {name} or adata_ref.obsm[{keys.scales!r}], so nothing can be placed in it. Run "
            "`ep.tl.merw_graph(adata_ref, use_rep=...)` and `ep.tl.embedding(adata_ref)` again."
        )
    X = representation(adata, use_rep, n_pcs)[0]
    frame = Frame.of(X)
    bandwidths = np.asarray(adata.obsm[keys.scales])[:, 0] / frame.length
    return Nodes(np.ascontiguousarray(frame(X), dtype=np.float32), bandwidths, min(n_project, len(X))), frame


@dataclass(frozen=True)
class Lineages:
    """Terminal states and branches of a reference: passages to each state, at its nodes and at the root; branches."""

    states: list[str]
    at_root: np.ndarray
    prior: np.ndarray
    passages: np.ndarray
    branches: pd.Index
    branch: np.ndarray


@dataclass(frozen=True)
class ReferenceOrder:
    """How new cells get the order of a reference: as a function of their nearest nodes, and from its own values.

    The function gives the potential, the passages to each state, the pseudotime, and the weight of each branch.
    """

    nodes: Nodes
    frame: Frame
    function: Any
    use_rep: str
    potential: np.ndarray
    pseudotime: np.ndarray
    monotone: bool
    lineages: Lineages | None

    @property
    def n_columns(self) -> int:
        """How many columns the function gives."""
        return 2 if self.lineages is None else 2 + len(self.lineages.states) + len(self.lineages.branches)

    def fields(self, found: np.ndarray, keys: Keys, cells: pd.Index) -> Fields:
        """The fields of new cells, from what the function gave."""
        n_states = 0 if self.lineages is None else len(self.lineages.states)
        potential, pseudotime = found[:, 0], found[:, 1 + n_states]
        if self.monotone:
            rising = np.argsort(self.potential, kind="stable")
            pseudotime = np.interp(potential, self.potential[rising], self.pseudotime[rising])
        fields = Fields(obs={keys.potential: potential, keys.pseudotime: np.clip(pseudotime, 0.0, 1.0)})
        if (kept := self.lineages) is not None:
            passages = found[:, 1 : 1 + n_states]
            fields.add(fate_fields(keys, passages, kept.at_root, kept.prior, kept.states, cells))
            branch = found[:, 2 + n_states :].argmax(axis=1)
            fields.obs[keys.branch] = pd.Categorical.from_codes(branch, categories=kept.branches)
        return fields


def read_lineages(adata: AnnData, keys: Keys) -> Lineages | None:
    """What `fates` and `terminal_states` left, at all cells or at landmarks; None without fates."""
    part = adata.uns[keys.uns].get("fates")
    if part is None or keys.branch not in adata.obs or keys.passages not in adata.obsm:
        return None
    branch = adata.obs[keys.branch].astype("category").cat
    at_landmarks = "passages" in part
    return Lineages(
        states=[str(name) for name in part["states"]],
        at_root=np.asarray(part["at_root"]),
        prior=np.asarray(part["prior"]),
        passages=np.asarray(part["passages"] if at_landmarks else adata.obsm[keys.passages]),
        branches=branch.categories,
        branch=np.asarray(part["branch"]) if at_landmarks else branch.codes.to_numpy(),
    )


def read_order(adata: AnnData, keys: Keys) -> ReferenceOrder | None:
    """What `pseudotime` left in a reference, and the tools that follow it; None where it has not run."""
    entry = adata.uns.get(keys.uns, {})
    part = entry.get("pseudotime")
    if part is None or keys.potential not in adata.obs:
        return None
    if keys.pseudotime not in adata.obs:
        raise ValueError(f"The reference lacks adata_ref.obs[{keys.pseudotime!r}]. Run `ep.tl.pseudotime` on it again.")
    potential, pseudotime = (adata.obs[name].to_numpy(dtype=np.float64) for name in (keys.potential, keys.pseudotime))
    use_rep, n_pcs = part.get("use_rep"), _columns(part)
    scales = adata.obsm.get(keys.scales)
    carried_by = [] if "landmarks" in part else [potential, scales]
    _check_rows(adata, part, use_rep, n_pcs, "pseudotime", *carried_by)
    own = str(use_rep), potential, pseudotime, "terminals" not in part
    if "landmarks" in part:
        stored = part["landmarks"]
        nodes, kept = restored_nodes(stored), read_lineages(adata, keys)
        values = np.hstack(_columns_of(np.asarray(stored["potential"]), np.asarray(stored["pseudotime"]), kept))
        return ReferenceOrder(nodes, restored_frame(stored), Interpolator(nodes, values), *own, kept)
    made = entry["params"]["merw_graph"]
    nodes, frame = _all_nodes(adata, keys, use_rep, n_pcs, int(made["n_neighbors"]) - 1)
    kept = read_lineages(adata, keys)
    passages, values = _columns_of(potential, pseudotime, kept)
    if "unit" not in part:  # the paper's
        return ReferenceOrder(nodes, frame, Interpolator(nodes, np.hstack([passages, values]), exact=True), *own, kept)
    unit, typical, step = (
        float(value) / frame.length
        for value in (entry["graph"]["unit"], entry["graph"]["typical_bandwidth"], part["unit"])
    )
    function = PassagesOfNeighbors(
        Kernel(float(made["decay"]), str(made["bandwidth"]), unit, typical),
        nodes.bandwidths,
        np.asarray(scales)[:, 1],
        passages,
        values,
        step,
        float(part["depth"]),
    )
    return ReferenceOrder(nodes, frame, function, *own, kept)


def _columns_of(potential: np.ndarray, pseudotime: np.ndarray, kept: Lineages | None) -> tuple[np.ndarray, np.ndarray]:
    """Passages of the nodes (to the root, and to each state), and what is averaged: pseudotime, a column a branch."""
    if kept is None:
        return potential[:, None], pseudotime[:, None]
    on_branch = (kept.branch[:, None] == np.arange(len(kept.branches))).astype(np.float64)
    return np.column_stack([potential, kept.passages]), np.column_stack([pseudotime, on_branch])


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
