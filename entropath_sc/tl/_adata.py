"""What the tools read from an AnnData object, and how they write to it. Errors here are read by tired people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from scanpy import logging as logg
from sklearn.utils import gen_batches

from .._keys import DEFAULT_KEY, FOLLOWING, PARTS, STEPS, Keys
from ..core.cells import Cells as CellsInMemory
from ..core.frame import Frame
from ..core.parallel import in_threads
from ..core.progress import Report
from ._blocks import BlockedCells, is_lazy
from ._checks import check_count, check_key, warn

# Rows at a time, whose temporary arrays fit into the cache.
_BLOCK = 16_384

Cells = str | Sequence[str] | tuple[str, str]


def check_object(adata: AnnData) -> None:
    """Refuse what no tool can work on."""
    if not isinstance(adata, AnnData):
        raise TypeError(f"Expected an AnnData object, got {type(adata).__name__}.")
    if adata.isbacked:
        raise ValueError("`adata` is backed by a file. Load it first: `adata = adata.to_memory()`.")
    if adata.n_obs == 0:
        raise ValueError("`adata` has no cells (n_obs is 0). Check the filter that made it.")


def keys_for(adata: AnnData, key_added: str, *steps: str, labels: Iterable[str] = ()) -> Keys:
    """The fields of a key, which must be storable; those that the steps will write must be free, or this package's."""
    check_key(key_added)
    keys = Keys(key_added)
    entry = adata.uns.get(key_added, {"params": {}})
    if not isinstance(entry, Mapping) or not set(entry.get("params", ["?"])) <= set(STEPS):
        raise ValueError(f"adata.uns[{key_added!r}] holds something else. Choose another `key_added`.")
    for place, name in sorted(keys.fields(steps, labels) - own_fields(adata, keys)):
        if name in getattr(adata, place):
            raise ValueError(
                f"adata.{place}[{name!r}] was not made by this package, and would be replaced. Choose another "
                "`key_added`, or rename that field."
            )
    return keys


def carried_labels(adata: AnnData, keys: Keys) -> list[str]:
    """The labels that `project` has carried over, now or before."""
    return [str(label) for label in _steps(adata, keys).get("project", {}).get("carried", ())]


def _steps(adata: AnnData, keys: Keys) -> Mapping[str, Any]:
    """The steps that this package ran under a key, with their parameters."""
    entry = adata.uns.get(keys.uns)
    params = entry.get("params") if isinstance(entry, Mapping) else None
    return params if isinstance(params, Mapping) and set(params) <= set(STEPS) else {}


def own_fields(adata: AnnData, keys: Keys) -> set[tuple[str, str]]:
    """The fields of a key that this package wrote, by the steps that `uns` records; the default key is its own."""
    steps = STEPS if keys.key == DEFAULT_KEY else _steps(adata, keys)
    return keys.fields(steps, carried_labels(adata, keys))


def neighbor_distances(adata: AnnData, neighbors_key: str | None) -> tuple[sp.csr_matrix, dict[str, Any]] | None:
    """scanpy's sparse neighbour distances with their parameters; None where there are none and none were asked for."""
    name = neighbors_key or "neighbors"
    if name not in adata.uns:
        if neighbors_key is None:
            return None
        raise KeyError(
            f"No neighbours under adata.uns[{name!r}]. "
            f"Run `sc.pp.neighbors(adata, key_added={name!r})`, or leave `neighbors_key` out."
        )
    entry = adata.uns[name]
    if not isinstance(entry, Mapping):
        raise ValueError(f"adata.uns[{name!r}] is not what scanpy writes. Run `sc.pp.neighbors(adata)` again.")
    distances_key = entry.get("distances_key", "distances")
    if distances_key not in adata.obsp:
        raise KeyError(
            f"adata.uns[{name!r}] points to adata.obsp[{distances_key!r}], which is not there. "
            "Run `sc.pp.neighbors(adata)` again."
        )
    distances = adata.obsp[distances_key]
    if not sp.issparse(distances):
        raise ValueError(
            f"adata.obsp[{distances_key!r}] is dense, not a neighbour graph. Run `sc.pp.neighbors(adata, knn=True)`."
        )
    edges = distances.tocoo()
    if not np.isfinite(edges.data).all() or edges.data.min(initial=0) < 0:
        raise ValueError(
            f"adata.obsp[{distances_key!r}] holds NaN, inf or negative numbers. Run `sc.pp.neighbors(adata)` again."
        )
    # Of many cells, scanpy stores the cell itself too, and unsorted indices. What is made of them must not share these:
    # sorting there would mix up what is stored here.
    others = edges.row != edges.col
    data, row, col = edges.data[others].astype(np.float64), edges.row[others], edges.col[others]
    return sp.csr_matrix((data, (row, col)), shape=edges.shape), dict(entry.get("params", {}))


def named(names: Iterable[Any], most: int = 12) -> str:
    """Names as a list to read, at most the first of them."""
    names = [str(name) for name in names if name is not None]  # X is a layer of anndata 0.13 by the name of None
    return (", ".join(map(repr, names[:most])) or "nothing") + (", ..." if len(names) > most else "")


def has_representation(adata: AnnData, name: str) -> bool:
    """Whether a field of `obsm`, or `'X'`, is there."""
    return adata.X is not None if name == "X" else name in adata.obsm


def representation(
    adata: AnnData, use_rep: str | None, n_pcs: int | None, *, lazy: bool = False
) -> tuple[np.ndarray, str]:
    """The coordinates that neighbours and landmarks are found in, as floats, and the name they were found under.

    With ``lazy`` a dask array stays one; otherwise it is computed.
    """
    name = use_rep or "X_pca"
    if not has_representation(adata, name):
        there = f"adata.obsm holds {named(adata.obsm)}"
        if use_rep == "X":
            raise KeyError(f"use_rep='X', but adata.X is None; {there}. Set `use_rep=` to one of them.")
        if use_rep is not None:
            raise KeyError(f"No adata.obsm[{use_rep!r}]; {there}. Set `use_rep=` to one of them, or 'X'.")
        if "neighbors" in adata.uns:
            raise KeyError(
                f"No PCA (adata.obsm['X_pca']) to search new neighbours in; {there}. Name one with `use_rep=`, or "
                "leave `n_neighbors` and `n_pcs` out to use the neighbours that are there (adata.uns['neighbors'])."
            )
        raise KeyError(
            "Found neither neighbours (adata.uns['neighbors']) nor a PCA (adata.obsm['X_pca']). "
            "Run `sc.pp.pca(adata)` and `sc.pp.neighbors(adata)`, or name a representation with `use_rep=`."
        )
    X = adata.X if name == "X" else adata.obsm[name]
    if n_pcs is not None:
        check_count("n_pcs", n_pcs, 1)
        if n_pcs > X.shape[1]:
            raise ValueError(f"n_pcs={n_pcs}, but {name!r} has {X.shape[1]} columns. Use at most that many.")
    if lazy and is_lazy(X):
        if sp.issparse(X._meta):
            raise ValueError(f"{name!r} is a dask array of sparse blocks. Use a dense representation, such as a PCA.")
        return X[:, :n_pcs], name
    X = as_floats(X, name)[:, :n_pcs]
    if X.shape[1] == 0:
        raise ValueError(f"{name!r} has no columns. Name another representation with `use_rep=`.")
    if not all(in_threads(lambda some: np.isfinite(X[some]).all(), gen_batches(len(X), _BLOCK))):
        bad = int((~np.isfinite(X).all(axis=1)).sum())
        raise ValueError(f"{name!r} holds NaN or inf in {bad} of {X.shape[0]} cells. Remove them, or compute it again.")
    return X, name


def as_floats(X: Any, name: str) -> np.ndarray:
    """A table as an array of float32, which stay as they are, or of float64: small integers would wrap around."""
    X = X.toarray() if sp.issparse(X) else np.asarray(X)
    if X.dtype.kind not in "fiubO":  # of objects, such as a data frame of several kinds, the cast tells
        raise ValueError(f"{name!r} holds {X.dtype}, not real numbers. Name another representation with `use_rep=`.")
    return X if X.dtype == np.float32 else X.astype(np.float64, copy=False)


def cells_of(X: Any, frame: Frame, report: Report, store: Any = None) -> CellsInMemory:
    """Cells in a frame, in memory or of a dask array block by block."""
    if is_lazy(X):
        if not frame.is_identity:
            X = X.rechunk({1: -1}).map_blocks(frame, dtype=np.float32, meta=np.empty((0, 0), np.float32))
        return BlockedCells(X, report, store=store)
    if store is not None:
        raise ValueError("`store` is for a representation that is a dask array, of more cells than landmarks.")
    return CellsInMemory(frame(X), report)


def picked(adata: AnnData, name: str, rows: np.ndarray) -> np.ndarray:
    """Some cells in a field of `obsm`, or in `'X'`, whatever kind of table it is."""
    return as_floats(adata[rows].X if name == "X" else adata[rows].obsm[name], name).astype(np.float64)


def group_labels(adata: AnnData, groupby: str) -> pd.Series:
    """A column of labels that cells are grouped by; missing labels stay missing."""
    if not isinstance(groupby, str) or groupby not in adata.obs:
        raise KeyError(f"groupby: there is no column adata.obs[{groupby!r}]; there is {named(adata.obs.columns)}.")
    if pd.api.types.is_float_dtype(adata.obs[groupby]):
        raise ValueError(f"groupby: adata.obs[{groupby!r}] holds numbers, not labels. Name a column of cell types.")
    return adata.obs[groupby]


def is_category(adata: AnnData, cells: Cells | None) -> bool:
    """Whether cells are given as ``('column', 'category')``."""
    return isinstance(cells, tuple) and len(cells) == 2 and cells[0] in adata.obs


def as_text(column: pd.Series) -> pd.Series:
    """Values as they are printed; missing ones too, which pandas 3 leaves missing."""
    return column.astype(str).fillna(str(getattr(column.dtype, "na_value", np.nan)))


def cell_indices(adata: AnnData, cells: Cells, name: str) -> np.ndarray:
    """Positions of a barcode, a list of barcodes, or all cells of a ``('column', 'category')``."""
    if is_category(adata, cells):
        column, category = cells[0], cells[1]
        if isinstance(category, Iterable) and not isinstance(category, str):
            raise TypeError(f"{name}: ({column!r}, {category!r}) names several categories. Name one, or list barcodes.")
        # A number may be given as it is printed, as on a command line.
        found = np.flatnonzero((as_text(adata.obs[column]) == str(category)).to_numpy())
        if not len(found):
            there = named(sorted(map(str, adata.obs[column].unique())), 40)
            raise ValueError(f"{name}: no cell has adata.obs[{column!r}] == {category!r}. It holds {there}.")
        return found
    if isinstance(cells, pd.DataFrame):
        raise TypeError(f"{name} is a table. Pass a barcode: `{name}=table.index[0]` for its first row.")
    if str(getattr(cells, "dtype", "")) == "bool" or (isinstance(cells, list) and cells and isinstance(cells[0], bool)):
        raise TypeError(f"{name} is a mask of true and false. Pass the barcodes: adata.obs_names[mask].")
    barcodes = list(cells) if isinstance(cells, Iterable) and not isinstance(cells, str) else [cells]
    if len(barcodes) == 0:
        raise ValueError(f"{name} is empty. Give a barcode, a list of barcodes, or ('obs column', 'category').")
    for barcode in barcodes:
        if not isinstance(barcode, str):
            raise TypeError(f"{name}: {barcode!r} is not a barcode. Use adata.obs_names[{barcode!r}].")
    if len(set(barcodes)) < len(barcodes):
        twice = next(b for b in barcodes if barcodes.count(b) > 1)
        raise ValueError(f"{name}: {twice!r} is given twice. Name each cell once.")
    found = np.flatnonzero(adata.obs_names.isin(barcodes))
    # Other barcodes may name several cells: that is no concern here. Nor is a table of all made, which takes time.
    at = dict(zip(adata.obs_names[found], found, strict=True))
    unknown = [b for b in barcodes if b not in at]
    if isinstance(cells, tuple) and len(cells) == 2 and unknown == barcodes:
        raise KeyError(f"{name}: there is no column adata.obs[{cells[0]!r}]; there is {named(adata.obs.columns)}.")
    if unknown:
        on_command_line = {"--root": "barcodes, or pass --root-label COLUMN CATEGORY", "--terminal": "barcodes"}
        ways = on_command_line.get(name, "a barcode, a list of barcodes, or ('obs column', 'category')")
        raise KeyError(
            f"{name}: {unknown[0]!r} is not in adata.obs_names, which look like {adata.obs_names[0]!r}. Give {ways}."
        )
    if len(found) > len(barcodes):
        raise ValueError(f"{name}: a barcode names several cells. Run `adata.obs_names_make_unique()` first.")
    return np.array([at[barcode] for barcode in barcodes])


def storable(value: Any) -> Any:
    """What h5ad and zarr give back unchanged: no None, no tuples, arrays for lists."""
    if isinstance(value, Mapping):
        return {str(k): storable(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return np.asarray(value)
    return value


@dataclass
class Fields:
    """What a step sets in an object; None removes a field, or a part of the key's entry in `uns`."""

    obs: dict[str, Any] = field(default_factory=dict)
    obsm: dict[str, Any] = field(default_factory=dict)
    obsp: dict[str, Any] = field(default_factory=dict)
    varm: dict[str, Any] = field(default_factory=dict)
    uns: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)

    def add(self, other: Fields | None) -> Fields:
        """Both, where a step had to do another one first."""
        for place in ("obs", "obsm", "obsp", "varm", "uns", "params", "parts"):
            getattr(self, place).update({} if other is None else getattr(other, place))
        return self


def without_following(adata: AnnData, keys: Keys, step: str) -> Fields:
    """Removes what was made from an earlier result of a step."""
    entry, fields = adata.uns.get(keys.uns, {}), Fields()
    done = [later for later in FOLLOWING[step] if later in entry.get("params", {})]
    for place, name in keys.fields(done):
        getattr(fields, place)[name] = None
    if "trends" in done:
        fields.varm = {name: None for name in adata.varm if name.startswith(keys.trends(""))}
    fields.params = dict.fromkeys(done)
    fields.parts = {part: None for later in done for part in PARTS[later]}
    if done:
        logg.info(f"    removed the results of {', '.join(done)}, which followed from earlier ones")
    return fields


def check_same_cells(adata: AnnData, keys: Keys, step: str) -> None:
    """Refuse tables in `uns` that were made of more cells, or fewer: what is stored by cell follows a selection."""
    n_cells = _steps(adata, keys).get(step, {}).get("n_cells", adata.n_obs)
    if n_cells != adata.n_obs:
        raise ValueError(
            f"The {step} under {keys.uns!r} are those of {n_cells} cells, and adata has {adata.n_obs}. Run "
            f"`ep.tl.{step}(adata)` again."
        )


def write(adata: AnnData, keys: Keys, fields: Fields, *, copy: bool = False) -> AnnData | None:
    """Set all fields, in the object or in a copy that is returned, or none; what other steps wrote stays."""
    is_view = adata.is_view and not copy
    if is_view:
        warn("Received a view of an AnnData. Making a copy.")
    target = adata.copy() if copy or is_view else adata
    entry = dict(target.uns.get(keys.uns, {}))
    for step in PARTS:  # tables in `uns` do not follow when cells are selected
        if fields.params.get(step) is not None:
            fields.params[step]["n_cells"] = target.n_obs
    entry["params"] = {**entry.get("params", {}), **fields.params}
    fields.uns[keys.uns] = storable({**entry, **fields.parts})
    before: dict[str, Any] = {place: dict(getattr(target, place)) for place in ("obsm", "obsp", "varm", "uns")}
    before["obs"], attributes = target.obs.copy(deep=False), dict(vars(adata))
    try:
        for place in ("obs", "obsm", "obsp", "varm", "uns"):
            there = getattr(target, place)
            for name, value in getattr(fields, place).items():
                if value is not None:
                    there[name] = value
                elif name in there:
                    del there[name]
        if is_view:
            adata._init_as_actual(target)
    except BaseException:  # Ctrl-C too
        if is_view:
            vars(adata).update(attributes)
        else:
            for place, value in before.items():
                setattr(target, place, value)
        raise
    return target if copy else None
