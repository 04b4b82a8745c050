from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY, FOLLOWING, STEPS, Keys
from ..core.nodes import Interpolator, Nodes
from ..core.search import _search
from ._adata import Fields, carried_labels, cells_of, check_object, keys_for, named, representation, write
from ._checks import check_flags, threads, warn
from ._progress import finished, progress, say_if_compiling
from ._reference import Reference, pca_offset, read_order, read_reference

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
    """Place new cells in the embedding and the pseudotime of a reference.

    Each new cell gets the weighted mean of the coordinates of its nearest cells, or landmarks, in the reference. Its
    pseudotime and fates are computed as for the reference's own cells. The reference does not change. It
    needs no expression matrix, only the fields that the other tools set and the representation they used.

    Parameters
    ----------
    adata_new
        New cells, with the same representation as the reference: the same principal components, not merely as many.
    adata_ref
        Reference after :func:`~entropath_sc.tl.embedding`, and after :func:`~entropath_sc.tl.pseudotime` if new cells
        shall have a pseudotime too.
    labels
        Columns of `adata_ref.obs` to transfer. A new cell gets the category with the most weight among its nearest
        cells; numbers are averaged.
    use_reference_pca
        Compute the representation from `adata_new.X` with the loadings in `adata_ref.varm['PCs']`, and store it as
        `adata_new.obsm['X_pca']`. `adata_new.X` must be normalised as the reference was.
    key_added
        Prefix of the fields that are read in the reference, and set in the new cells.
    store
        For a dask array: a zarr store for the nearest landmarks of each cell. An interrupted call resumes from it.
    n_jobs
        Number of threads; by default all. A dask array uses dask's workers instead.
    copy
        Return a copy instead of writing to `adata_new`.

    Returns
    -------
    `None`, or the copy if `copy`. Sets the following fields:

    `adata_new.obsm['X_entropath']` : float32
        Coordinates.
    `adata_new.obs['entropath_pseudotime']`, `adata_new.obs['entropath_potential']` : float
        Pseudotime, scaled and not, if the reference has it.
    `adata_new.obsm['entropath_fates']`, `adata_new.obsm['entropath_membership']`,
    `adata_new.obsm['entropath_passages']` : DataFrame
        Fates, as :func:`~entropath_sc.tl.fates` gives them, if the reference has them.
    `adata_new.obs['entropath_plasticity']`, `adata_new.obs['entropath_branch']`
        Plasticity, and the branch that most of the nearest cells are on, if the reference has fates.
    `adata_new.obs['entropath_remoteness']` : float
        Distance to the nearest embedded cell of the reference, relative to how far that one is from its neighbours.
        Cells like those of the reference have about 1 or less. Well above 1, coordinates and pseudotime mean little.
    `adata_new.obs['entropath_<label>']`, `adata_new.obs['entropath_<label>_share']`
        For each of `labels`, the value, and for categories its share of the weight. A column `'branch'` is carried to
        `'entropath_branch_label'` if the reference has branches of its own.
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
    check_flags(use_reference_pca=use_reference_pca, copy=copy)
    labels = [labels] if isinstance(labels, str) else list(labels or [])
    keys = keys_for(adata_ref, key_added)
    carried_as = _carried_as(adata_ref, keys, labels)
    keys_for(adata_new, key_added, "embedding", "project", labels=carried_as.values())
    reference, order = read_reference(adata_ref, keys), read_order(adata_ref, keys)
    start = logg.info("projecting cells onto a reference")
    say_if_compiling(_search)
    projection = _projection(adata_ref, reference, carried_as)
    scores, found_order = None, None
    with threads(n_jobs), progress() as report:
        if use_reference_pca:
            X = scores = _reference_scores(adata_new, adata_ref, reference, keys)
        else:
            X = _representation_like(adata_new, adata_ref, reference.use_rep, reference.nodes, reference.sliced)
        cells = cells_of(X, reference.frame, report, store)
        found = cells.map(reference.nodes, projection, projection.n_columns, np.float64, f"{keys.key}_projected")
        coordinates = found[:, : projection.n_components].astype(np.float32)
        rest = np.asarray(found[:, projection.n_components :])
        if order is not None:
            if scores is None or order.use_rep != reference.use_rep:
                X = _representation_like(adata_new, adata_ref, order.use_rep, order.nodes, sliced=True)
            cells = cells_of(X[:, : order.nodes.positions.shape[1]], order.frame, report, store)
            stage = f"{keys.key}_projected_order"
            found_order = np.asarray(cells.map(order.nodes, order.function, order.n_columns, np.float64, stage))
    columns = projection.columns(rest, keys)
    carried = sorted({*carried_labels(adata_new, keys), *carried_as.values()})
    params = {"labels": labels or None, "carried": carried or None, "use_reference_pca": use_reference_pca}
    fields = Fields(obs=columns, obsm={keys.coordinates: coordinates}, params={"project": params})
    if order is not None:
        fields.add(order.fields(found_order, keys, adata_new.obs_names))
    if scores is not None:
        fields.obsm[reference.use_rep] = scores
    if adata_new is not adata_ref:
        _forget_own(adata_new, keys, fields)
    for label, name in carried_as.items():
        if f"{label}_colors" in adata_ref.uns:
            fields.uns[f"{keys.carried(name)}_colors"] = adata_ref.uns[f"{label}_colors"]
    middle = float(np.median(columns[keys.remoteness]))
    if middle > SUSPICIOUS_REMOTENESS:
        warn(
            f"Half of the new cells are more than {middle:.3g} times as far from the reference as its own cells from "
            f"each other (adata_new.obs[{keys.remoteness!r}]). Have they the same principal components, were they "
            "normalised in the same way, and batch effects removed?"
        )
    done = write(adata_new, keys, fields, copy=copy)
    where = f"{len(reference.coordinates):,} {'cells' if reference.all_cells else 'landmarks'} of the reference"
    finished(start, f"{adata_new.n_obs:,} cells among {where}", f"{keys.coordinates!r}, coordinates (adata_new.obsm)")
    return done


def _carried_as(adata_ref: AnnData, keys: Keys, labels: list[str]) -> dict[str, str]:
    """What each column is carried as. Refuses those that are not there, or would have the names of other results."""
    taken = {name for _, name in keys.fields(set(STEPS) - {"terminal_states"})}
    # Many data sets have a column 'branch'. Its name is free, unless the reference has branches of its own.
    has_branches = "terminal_states" in adata_ref.uns.get(keys.uns, {}).get("params", {})
    branches = {name for _, name in keys.fields(["terminal_states"])} if has_branches else set()
    found: dict[str, str] = {}
    for label in labels:
        if label not in adata_ref.obs:
            there = named(adata_ref.obs.columns)
            raise KeyError(f"labels: there is no column adata_ref.obs[{label!r}]; there is {there}.")
        as_name = f"{label}_label" if keys.carried(label) in branches else label
        new = {name for _, name in keys.fields([], [as_name])}
        if clash := sorted(new & (taken | branches)):
            raise ValueError(f"labels: {label!r} would be carried to {clash[0]!r}, which is another result. Rename it.")
        taken |= new
        found[label] = as_name
    return found


def _forget_own(adata_new: AnnData, keys: Keys, fields: Fields) -> None:
    """What an embedding or an order of the new cells themselves left does not go with their new coordinates."""
    entry = adata_new.uns.get(keys.uns, {})
    fields.parts |= {name: None for name in entry if name not in ("graph", "params")}
    fields.params |= {step: None for step in entry.get("params", {}) if step not in ("merw_graph", "project")}
    for place, name in keys.fields(["embedding", "pseudotime", *FOLLOWING["pseudotime"]]):
        getattr(fields, place).setdefault(name, None)


def _representation_like(adata_new: AnnData, adata_ref: AnnData, use_rep: str, nodes: Nodes, sliced: bool) -> Any:
    """The new cells' representation, after a look at whether it can be the reference's, or its first columns."""
    n_columns = nodes.positions.shape[1]
    if use_rep != "X" and use_rep not in adata_new.obsm:
        advice = " or pass use_reference_pca=True to compute it from adata_new.X" if use_rep == "X_pca" else ""
        raise KeyError(f"The reference lives in {use_rep!r}, and adata_new has no such field. Add it,{advice}.")
    X, _ = representation(adata_new, use_rep, None, lazy=True)
    if X.shape[1] < n_columns or (X.shape[1] > n_columns and not sliced):
        raise ValueError(
            f"{use_rep!r} of adata_new has {X.shape[1]} columns, that of the reference {n_columns}. "
            "Both must be the same representation"
            + (": pass use_reference_pca=True to compute it from adata_new.X." if use_rep == "X_pca" else ".")
        )
    if use_rep == "X_pca" and "PCs" in adata_new.varm and "PCs" in adata_ref.varm:
        _refuse_doubled_genes(adata_new=adata_new, adata_ref=adata_ref)
        shared = adata_new.var_names.intersection(adata_ref.var_names)
        new = adata_new.varm["PCs"][adata_new.var_names.get_indexer(shared), :n_columns]
        old = adata_ref.varm["PCs"][adata_ref.var_names.get_indexer(shared), :n_columns]
        if not len(shared) or np.abs(new - old).max() > LOADINGS_TOLERANCE:
            raise ValueError(
                "adata_new has a PCA of its own: its loadings, adata_new.varm['PCs'], are not those of the reference. "
                "Pass use_reference_pca=True to compute the reference's components from adata_new.X."
            )
    return X[:, :n_columns]


def _refuse_doubled_genes(**objects: AnnData) -> None:
    """Genes of both objects are matched by name, so each name must be there once."""
    for name, adata in objects.items():
        if not adata.var_names.is_unique:
            gene = adata.var_names[adata.var_names.duplicated()][0]
            raise ValueError(f"{name}: the gene {gene!r} is there twice. Run `{name}.var_names_make_unique()` first.")


def _reference_scores(adata_new: AnnData, adata_ref: AnnData, reference: Reference, keys: Keys) -> np.ndarray:
    """Scores of the new cells in the reference's principal components."""
    if reference.use_rep != "X_pca" or "PCs" not in adata_ref.varm:
        raise ValueError(
            "use_reference_pca needs a reference that was embedded in 'X_pca' and still has its loadings, "
            "adata_ref.varm['PCs']."
        )
    offset = adata_ref.uns[keys.uns].get("pca_offset", pca_offset(adata_ref, "X_pca"))
    if offset is None:
        raise ValueError(
            "The mean that the reference's PCA took off is not known: adata_ref.X is not what the PCA was computed "
            "from, and was not when `ep.tl.embedding` ran. Compute adata_new.obsm['X_pca'] yourself."
        )
    loadings = np.asarray(adata_ref.varm["PCs"])
    used = np.abs(loadings).max(axis=1) > 0
    _refuse_doubled_genes(adata_new=adata_new, adata_ref=adata_ref)
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
    """From nearest nodes of cells to one table: coordinates, remoteness, and code and share of each label."""

    interpolator: Interpolator
    n_components: int
    # The columns that a label has among those that are carried, and its categories; numbers have one and none.
    labels: dict[str, tuple[slice, pd.Index | None]]

    @property
    def n_columns(self) -> int:
        return self.n_components + 1 + sum(1 + (c is not None) for _, c in self.labels.values())

    def __call__(self, indices: np.ndarray, distances: np.ndarray) -> np.ndarray:
        carried = self.interpolator(indices, distances)
        table = [carried[:, : self.n_components], carried[:, -1:]]
        for columns, categories in self.labels.values():
            weights = carried[:, columns]
            if categories is None:
                table.append(weights)
            else:
                winner, share = weights.argmax(axis=1), weights.max(axis=1)
                table += [np.where(share > 0, winner, -1)[:, None], share[:, None]]
        return np.column_stack(table)

    def columns(self, table: np.ndarray, keys: Keys) -> dict[str, Any]:
        """The columns of `obs`, from what follows the coordinates in the table."""
        columns = iter(table.T)
        named_columns: dict[str, Any] = {keys.remoteness: next(columns)}
        for label, (_, categories) in self.labels.items():
            name = keys.carried(label)
            if categories is None:
                named_columns[name] = next(columns)
            else:
                named_columns[name] = pd.Categorical.from_codes(next(columns).astype(int), categories)
                named_columns[f"{name}_share"] = next(columns)
        return named_columns


def _projection(adata_ref: AnnData, reference: Reference, carried_as: dict[str, str]) -> _Projection:
    values = [reference.coordinates]
    n_components = n_columns = reference.coordinates.shape[1]
    found: dict[str, tuple[slice, pd.Index | None]] = {}
    for label, name in carried_as.items():
        column = _landmark_labels(adata_ref, reference, label)
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            categories, carried = None, column.to_numpy(dtype=np.float64)[:, None]
        else:
            column = column.astype("category")
            categories = column.cat.categories
            if not len(categories):
                raise ValueError(f"labels: adata_ref.obs[{label!r}] is empty in all embedded cells of the reference.")
            carried = (column.cat.codes.to_numpy()[:, None] == np.arange(len(categories))).astype(np.float64)
        found[name] = slice(n_columns, n_columns + carried.shape[1]), categories
        values.append(carried)
        n_columns += carried.shape[1]
    table = np.hstack(values).astype(np.float64)
    interpolator = Interpolator(reference.nodes, table, remoteness=True, exact=reference.all_cells)
    return _Projection(interpolator, n_components, found)


def _landmark_labels(adata_ref: AnnData, reference: Reference, label: str) -> pd.Series:
    if reference.all_cells:
        return adata_ref.obs[label]
    if not adata_ref.obs_names.is_unique:
        raise ValueError("labels: barcodes of the reference are given twice. Run `adata_ref.obs_names_make_unique()`.")
    missing = reference.cells.difference(adata_ref.obs_names)
    if len(missing):
        raise ValueError(
            f"labels: {len(missing)} landmarks of the reference, for example {missing[0]!r}, are no longer among its "
            "cells. Use the reference as it was embedded."
        )
    return adata_ref.obs.loc[reference.cells, label]
