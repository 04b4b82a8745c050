from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY, Keys
from ..core.joining import Joining
from ..core.placement import Carrier
from ..core.progress import Report, silent
from . import _lazy
from ._adata import check_object, keys_for, record, representation, writable
from ._checks import threads
from ._nodes import check_store
from ._progress import progress
from ._reference import Reference, pca_offset, read_reference

# Loadings of one PCA agree to rounding; those of two PCAs differ by far more than this.
LOADINGS_TOLERANCE = 1e-3
# The median held-out cell is at a remoteness of 0.8 to 0.9. On Paul15, cells with a PCA of their own are at 1.6, and
# those that were not normalised at 2.5.
SUSPICIOUS_REMOTENESS = 1.4


def project(
    adata_new: AnnData,
    adata_ref: AnnData,
    *,
    labels: str | Sequence[str] | None = None,
    use_reference_pca: bool = False,
    key_added: str = DEFAULT_KEY,
    store: str | PathLike | None = None,
    n_jobs: int | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Place new cells in the embedding, and in the order, of a reference.

    Each new cell gets what its nearest embedded cells of the reference have, weighted as in
    :func:`~entropath_sc.tl.embedding`. An order that was computed on the graph of all cells (of up to 10,000) it joins
    by its own edges to that graph: as far as the order is not refined, what sets it apart from its neighbours counts
    too. The reference itself does not change, and need hold no expression matrix: all that is read is in
    `adata_ref.uns['entropath']` (and `adata_ref.obs` for `labels`).

    Parameters
    ----------
    adata_new
        New cells, with the same representation as the reference: the same principal components, not merely as many.
    adata_ref
        Cells on which :func:`~entropath_sc.tl.embedding` has been run, and :func:`~entropath_sc.tl.pseudotime` if the
        new cells are to be ordered too.
    labels
        Columns of `adata_ref.obs` to carry over: categories by weighted vote, numbers by weighted mean.
    use_reference_pca
        Compute the representation from `adata_new.X` with the loadings in `adata_ref.varm['PCs']`, and store it as
        `adata_new.obsm['X_pca']`. `adata_new.X` must be normalised as the reference was.
    key_added
        Prefix of the fields that are read in the reference, and set in the new cells.
    store
        For a dask array: a zarr store that results are streamed to, so that an interrupted call can go on.
    n_jobs
        Threads to use; by default all. For a dask array its workers decide.
    copy
        Return a copy instead of writing to `adata_new`.

    Returns
    -------
    `None`, or the copy if `copy`. Sets the following fields:

    `adata_new.obsm['X_entropath']` : float32
        Coordinates.
    `adata_new.obs['entropath_pseudotime']`, `adata_new.obs['entropath_potential']` : float
        Order and free energy, if the reference has them.
    `adata_new.obs['entropath_remoteness']` : float
        Distance to the nearest embedded cell of the reference, relative to how far that one is from its neighbours.
        Cells like those of the reference are around 1 or below; well above, coordinates and order mean little.
    `adata_new.obs['entropath_<label>']`, `adata_new.obs['entropath_<label>_share']`
        For each of `labels`, the value, and for categories the share of the vote that it got.
    `adata_new.uns['entropath']['params']` : dict
        The parameters.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=600)
    >>> ref, new = adata[::2].copy(), adata[1::2].copy()
    >>> ep.tl.embedding(ref)
    >>> ep.tl.project(new, ref, labels="branch")
    >>> new.obsm["X_entropath"].shape
    (300, 2)
    >>> bool((new.obs["entropath_branch"].astype(str) == new.obs["branch"].astype(str)).mean() > 0.8)
    True
    """
    check_object(adata_new)
    check_object(adata_ref)
    keys = keys_for(adata_ref, key_added)
    keys_for(adata_new, key_added)
    labels = [labels] if isinstance(labels, str) else list(labels or [])
    reference = _reference(adata_ref, keys)
    start = logg.info("projecting cells onto a reference")
    projection = _projection(adata_ref, reference, labels)
    scores = None
    with threads(n_jobs), progress() as report:
        if use_reference_pca:
            X = scores = _reference_scores(adata_new, adata_ref, reference)
        else:
            X = _representation_like(adata_new, adata_ref, keys, reference)
        check_store(store, X)
        if _lazy.is_lazy(X):
            stage, n_columns = f"{keys.key}_projected", projection.n_columns
            found = _lazy.map_cells(X, projection, n_columns, np.float64, store=store, stage=stage, report=report)
        else:
            found = projection(X, report=report)
        coordinates = found[:, : projection.n_components].astype(np.float32)
        rest = np.asarray(found[:, projection.n_components :])

    own = adata_new is adata_ref
    adata_new = adata_new.copy() if copy else adata_new
    writable(adata_new)
    if scores is not None:
        adata_new.obsm[reference.use_rep] = scores
    adata_new.obsm[keys.coordinates] = coordinates
    for name, column in projection.columns(rest, keys).items():
        adata_new.obs[name] = column
    for label in labels:
        if f"{label}_colors" in adata_ref.uns:
            adata_new.uns[f"{keys.key}_{label}_colors"] = adata_ref.uns[f"{label}_colors"]
    if not own:
        _forget_own(adata_new, keys)
    record(adata_new, keys, "project", {"labels": labels or None, "use_reference_pca": use_reference_pca})
    middle = float(np.median(adata_new.obs[keys.remoteness]))
    if middle > SUSPICIOUS_REMOTENESS:
        warnings.warn(
            f"Half of the new cells are more than {middle:.1f} times as far from the reference as its own cells from "
            f"each other (adata_new.obs[{keys.remoteness!r}]). Have they the same principal components, were they "
            "normalised in the same way, and batch effects removed?",
            UserWarning,
            stacklevel=2,
        )
    logg.info("    finished", time=start, deep=f"added\n    {keys.coordinates!r}, coordinates (adata_new.obsm)")
    return adata_new if copy else None


def _forget_own(adata_new: AnnData, keys: Keys) -> None:
    """What an embedding of the new cells themselves left, which does not go with their new coordinates."""
    entry = adata_new.uns.get(keys.uns, {})
    kept = {name: part for name, part in entry.items() if name == "graph"}
    kept["params"] = {step: params for step, params in entry.get("params", {}).items() if step == "merw_graph"}
    adata_new.uns[keys.uns] = kept
    if keys.landmark in adata_new.obs:
        del adata_new.obs[keys.landmark]


def _reference(adata_ref: AnnData, keys: Keys) -> Reference:
    reference = read_reference(adata_ref, keys)
    if reference is not None:
        return reference
    if "embedding" in adata_ref.uns.get(keys.uns, {}).get("params", {}):
        raise ValueError(
            "The reference was embedded without the representation behind its neighbours, so nothing can be placed in "
            "it. Run `ep.tl.merw_graph(adata_ref, use_rep=...)` and `ep.tl.embedding(adata_ref)` again."
        )
    raise ValueError(
        f"The reference has no embedding in adata_ref.uns[{keys.uns!r}]. Run `ep.tl.embedding(adata_ref)` first."
    )


def _representation_like(adata_new: AnnData, adata_ref: AnnData, keys: Keys, reference: Reference) -> Any:
    """The new cells' representation, after a look at whether it can be the reference's."""
    use_rep, n_columns = reference.use_rep, reference.nodes.positions.shape[1]
    if use_rep != "X" and use_rep not in adata_new.obsm:
        advice = " or pass use_reference_pca=True to compute it from adata_new.X" if use_rep == "X_pca" else ""
        raise KeyError(f"The reference lives in {use_rep!r}, and adata_new has no such field. Add it,{advice}.")
    X, _ = representation(adata_new, use_rep, None, lazy=True)
    sliced = adata_ref.uns[keys.uns]["params"].get("merw_graph", {}).get("n_pcs") is not None
    if X.shape[1] < n_columns or (X.shape[1] > n_columns and not sliced):
        raise ValueError(
            f"{use_rep!r} of adata_new has {X.shape[1]} columns, that of the reference {n_columns}. "
            "Both must be the same representation"
            + (": pass use_reference_pca=True to compute it from adata_new.X." if use_rep == "X_pca" else ".")
        )
    if use_rep == "X_pca" and "PCs" in adata_new.varm and "PCs" in adata_ref.varm:
        shared = adata_new.var_names.intersection(adata_ref.var_names)
        new = adata_new.varm["PCs"][adata_new.var_names.get_indexer(shared), :n_columns]
        old = adata_ref.varm["PCs"][adata_ref.var_names.get_indexer(shared), :n_columns]
        if not len(shared) or np.abs(new - old).max() > LOADINGS_TOLERANCE:
            raise ValueError(
                "adata_new has a PCA of its own: its loadings, adata_new.varm['PCs'], are not those of the reference. "
                "Pass use_reference_pca=True to compute the reference's components from adata_new.X."
            )
    return X[:, :n_columns]


def _reference_scores(adata_new: AnnData, adata_ref: AnnData, reference: Reference) -> np.ndarray:
    """Scores of the new cells in the reference's principal components."""
    if reference.use_rep != "X_pca" or "PCs" not in adata_ref.varm:
        raise ValueError(
            "use_reference_pca needs a reference that was embedded in 'X_pca' and still has its loadings, "
            "adata_ref.varm['PCs']."
        )
    offset = reference.pca_offset if reference.pca_offset is not None else pca_offset(adata_ref, "X_pca")
    if offset is None:
        raise ValueError(
            "The mean that the reference's PCA took off is not known: adata_ref.X is not what the PCA was computed "
            "from, and was not when `ep.tl.embedding` ran. Compute adata_new.obsm['X_pca'] yourself."
        )
    loadings = np.asarray(adata_ref.varm["PCs"])
    used = np.abs(loadings).max(axis=1) > 0
    if not adata_new.var_names.is_unique or not adata_ref.var_names.is_unique:
        raise ValueError("Gene names are given twice. Run `adata.var_names_make_unique()` on both objects first.")
    genes = adata_new.var_names.get_indexer(adata_ref.var_names[used])
    if (genes < 0).any():
        missing = adata_ref.var_names[used][genes < 0]
        raise ValueError(
            f"{len(missing)} of the {used.sum()} genes of the reference's PCA are not in adata_new.var_names, "
            f"for example {missing[0]!r}. Use the same gene names, and fill genes that were not measured with zeros."
        )
    X = adata_new.X[:, genes]
    scores = X @ loadings[used]
    scores = scores.toarray() if sp.issparse(scores) else np.asarray(scores)
    scores = (scores - offset).astype(np.float32)
    if not np.isfinite(scores).all():
        raise ValueError("adata_new.X holds NaN or inf.")
    return np.ascontiguousarray(scores[:, : reference.nodes.positions.shape[1]])


@dataclass(frozen=True)
class _Projection:
    """From positions of cells to one table: coordinates, order, remoteness, and code and share of each label."""

    carrier: Carrier
    n_components: int
    ordered: bool
    # The order of cells that join the graph which it was computed on; else it is carried as all else is.
    joining: Joining | None
    # The columns that a label has among those that are carried, and its categories; numbers have one and none.
    labels: dict[str, tuple[slice, pd.Index | None]]

    @property
    def n_columns(self) -> int:
        return self.n_components + 2 * self.ordered + 1 + sum(1 + (c is not None) for _, c in self.labels.values())

    def __call__(self, X: np.ndarray, *, report: Report = silent) -> np.ndarray:
        carried = self.carrier(X, report=report)
        n_plain = self.n_components + 2 * self.ordered
        if self.joining is not None:
            carried[:, self.n_components : n_plain] = self.joining(X, report=report)
        table = [carried[:, :n_plain], carried[:, -1:]]
        for columns, categories in self.labels.values():
            votes = carried[:, columns]
            if categories is None:
                table.append(votes)
            else:
                winner, share = votes.argmax(axis=1), votes.max(axis=1)
                table += [np.where(share > 0, winner, -1)[:, None], share[:, None]]
        return np.column_stack(table)

    def columns(self, table: np.ndarray, keys: Keys) -> dict[str, Any]:
        """The columns of `obs`, from what follows the coordinates in the table."""
        columns = iter(table.T)
        named: dict[str, Any] = {}
        if self.ordered:
            named[keys.potential] = next(columns)
            named[keys.pseudotime] = np.clip(next(columns), 0.0, 1.0)
        named[keys.remoteness] = next(columns)
        for label, (_, categories) in self.labels.items():
            name = keys.carried(label)
            if categories is None:
                named[name] = next(columns)
            else:
                named[name] = pd.Categorical.from_codes(next(columns).astype(int), categories)
                named[f"{name}_share"] = next(columns)
        return named


def _projection(adata_ref: AnnData, reference: Reference, labels: list[str]) -> _Projection:
    values = [reference.coordinates]
    ordered = reference.pseudotime is not None
    if ordered:
        values += [reference.potential[:, None], reference.pseudotime[:, None]]
    n_columns = sum(v.shape[1] for v in values)
    found: dict[str, tuple[slice, pd.Index | None]] = {}
    for label in labels:
        column = _landmark_labels(adata_ref, reference, label)
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            categories, carried = None, column.to_numpy(dtype=np.float64)[:, None]
        else:
            column = column.astype("category")
            categories = column.cat.categories
            if not len(categories):
                raise ValueError(f"labels: adata_ref.obs[{label!r}] is empty in all embedded cells of the reference.")
            carried = (column.cat.codes.to_numpy()[:, None] == np.arange(len(categories))).astype(np.float64)
        found[label] = slice(n_columns, n_columns + carried.shape[1]), categories
        values.append(carried)
        n_columns += carried.shape[1]
    carrier = Carrier(reference.nodes, np.hstack(values).astype(np.float64), remoteness=True)
    return _Projection(carrier, reference.coordinates.shape[1], ordered, reference.joining, found)


def _landmark_labels(adata_ref: AnnData, reference: Reference, label: str) -> pd.Series:
    if label not in adata_ref.obs:
        there = ", ".join(map(repr, adata_ref.obs.columns[:12]))
        raise KeyError(f"labels: there is no column adata_ref.obs[{label!r}]; there is {there}.")
    if not adata_ref.obs_names.is_unique:
        raise ValueError("labels: barcodes of the reference are given twice. Run `adata_ref.obs_names_make_unique()`.")
    missing = reference.barcodes.difference(adata_ref.obs_names)
    if len(missing):
        raise ValueError(
            f"labels: {len(missing)} landmarks of the reference, for example {missing[0]!r}, are no longer among its "
            "cells. Use the reference as it was embedded."
        )
    return adata_ref.obs.loc[reference.barcodes, label]
