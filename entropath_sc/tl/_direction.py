"""Where a direction is read from: velocities, transitions between cells, and experimental time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData

from ..core import direction as directions
from ..core.graph import Graph
from ._adata import named
from ._checks import check_not_negative, warn
from ._marks import fingerprint

# The options of a direction, as `merw_graph` has them.
OPTIONS = ("direction", "strength", "confidence", "time_key")
# Where a name is looked for, in this order.
PLACES = ("layers", "obsm", "obsp", "uns")
LOADINGS = "PCs"


@dataclass(frozen=True)
class Direction:
    """What gives steps a direction, and how much it counts.

    ``velocity`` is in the space of the representation; ``transitions`` lead from rows to columns; ``stage`` is the rank
    of each cell's time.
    """

    velocity: np.ndarray | None
    transitions: sp.csr_matrix | None
    confidence: np.ndarray | None
    stage: np.ndarray | None
    strength: float
    fingerprint: str

    def forward(self, graph: Graph, X: np.ndarray) -> np.ndarray:
        """How far each step of a graph goes forward, as the cost of the step back."""
        found = np.zeros(graph.affinity.nnz)
        X = np.asarray(X, dtype=np.float64) - X.mean(axis=0)
        velocity = self.velocity
        if self.transitions is not None:
            velocity = directions.velocity_of(self.transitions, X, graph)
        if velocity is not None:
            found += directions.along_velocity(graph, X, velocity, self.confidence)
        if self.stage is not None:
            found += directions.along_time(graph, self.stage)
        return self.strength * found


def is_there(adata: AnnData, params: dict[str, Any]) -> bool:
    """Whether the fields that a direction was read from are still there."""
    name, time_key, confidence = (params.get(option) for option in ("direction", "time_key", "confidence"))
    columns = [column for column in (time_key, confidence) if column is not None]
    return (name is None or _place(adata, name) is not None) and all(column in adata.obs for column in columns)


def first_cells(adata: AnnData, params: dict[str, Any]) -> np.ndarray | None:
    """The cells that were collected first, where a graph has its direction from experimental time alone."""
    if params.get("time_key") is None or params.get("direction") is not None or not is_there(adata, params):
        return None
    return np.flatnonzero(_stages(adata, params["time_key"]) == 0)


def find_direction(adata: AnnData, params: dict[str, Any], use_rep: str | None, n_columns: int) -> Direction | None:
    """The direction that options ask for; None where they ask for none."""
    name, time_key, confidence = (params.get(option) for option in ("direction", "time_key", "confidence"))
    strength = params.get("strength")
    strength = directions.STRENGTH if strength is None else strength
    check_not_negative("strength", strength)
    if name is not None and not isinstance(name, str):
        raise TypeError(
            "direction is the name of a field: store it, as in adata.layers['velocity'], and give 'velocity'."
        )
    if name is None and confidence is not None:
        raise ValueError("confidence weights velocities: give `direction=` too.")
    if name is None and time_key is None and params.get("strength") is not None:
        raise ValueError("strength is that of a direction: give `direction=` or `time_key=` too.")
    if (name is None and time_key is None) or strength == 0:
        return None
    velocity = transitions = weight = stage = None
    if name is not None:
        velocity, transitions = _velocity(adata, name, use_rep, n_columns)
        weight = None if confidence is None else _confidence(adata, confidence)
    if time_key is not None:
        stage = _stages(adata, time_key)
    parts = [part for part in (velocity, weight, stage) if part is not None]
    if transitions is not None:
        parts += [transitions.data, transitions.indices, transitions.indptr]
    mark = fingerprint(np.array([float(strength)]), *parts)
    return Direction(velocity, transitions, weight, stage, float(strength), mark)


def _place(adata: AnnData, name: str) -> str | None:
    return next((place for place in PLACES if name in getattr(adata, place)), None)


def _velocity(
    adata: AnnData, name: str, use_rep: str | None, n_columns: int
) -> tuple[np.ndarray | None, sp.csr_matrix | None]:
    place = _place(adata, name)
    if place is None:
        raise KeyError(
            f"direction: {name!r} is not in adata.layers ({named(adata.layers)}), adata.obsm ({named(adata.obsm)}) or "
            f"adata.obsp ({named(adata.obsp)}). Compute velocities first, for example with `scvelo.tl.velocity(adata)`."
        )
    what = f"adata.{place}[{name!r}]"
    found = getattr(adata, place)[name]
    if place in ("obsp", "uns"):
        return None, _transitions(adata, found, what)
    V = np.asarray(found.toarray() if sp.issparse(found) else found, dtype=np.float64)
    if place == "layers":
        grows = V.any() and not (V < 0).any()
        V = _in_components(adata, V, what, use_rep)
        if grows:
            raise ValueError(f"{what} has no negative value: it looks like expression, not like a velocity.")
    if V.ndim != 2 or V.shape[1] < n_columns:
        raise ValueError(
            f"{what} has the shape {V.shape}, and {use_rep!r} has {n_columns} columns. Velocities must be in the space "
            "that neighbours were searched in."
        )
    V = V[:, :n_columns]
    if bad := int((~np.isfinite(V)).any(axis=1).sum()):
        raise ValueError(f"{what} holds NaN or inf in {bad} cells. Set these rows to zero, or remove the cells.")
    still = int((~V.any(axis=1)).sum())
    if still == len(V):
        raise ValueError(f"{what} is zero in all cells. Compute velocities again, or leave `direction` out.")
    if still:
        warn(f"{what} is zero in {still} cells. They take the direction of their neighbours.")
    return V, None


def _in_components(adata: AnnData, V: np.ndarray, what: str, use_rep: str | None) -> np.ndarray:
    """Velocities of genes as velocities of principal components."""
    if use_rep != "X_pca" or LOADINGS not in adata.varm:
        there = "adata.varm['PCs'] is not there" if use_rep == "X_pca" else f"neighbours were searched in {use_rep!r}"
        raise ValueError(
            f"{what} is a velocity of genes, which needs the loadings of a PCA, and {there}. Run `sc.pp.pca(adata)` "
            "and `sc.pp.neighbors(adata)`, or give a velocity in adata.obsm or transitions in adata.obsp."
        )
    # Velocity tools leave genes without a velocity as NaN.
    known = ~np.isnan(V).all(axis=0)
    loadings = np.asarray(adata.varm[LOADINGS], dtype=np.float64)
    if not (loadings[known].any(axis=1)).any():
        raise ValueError(
            f"None of the {int(known.sum())} genes with a velocity in {what} has loadings in adata.varm['PCs']. Run "
            "`sc.pp.pca` with these genes, for example `mask_var='velocity_genes'`, and `sc.pp.neighbors` again."
        )
    return V[:, known] @ loadings[known]


def _transitions(adata: AnnData, found: Any, what: str) -> sp.csr_matrix:
    shape = getattr(found, "shape", None)
    if shape != (adata.n_obs, adata.n_obs):
        raise ValueError(f"{what} is no matrix of transitions between the {adata.n_obs} cells; its shape is {shape}.")
    T = sp.csr_matrix(found, dtype=np.float64, copy=True)
    if not np.isfinite(T.data).all():
        raise ValueError(f"{what} holds NaN or inf. Compute it again, or leave `direction` out.")
    # Negative cosines, as in a velocity graph, say where a cell does not go.
    T.data = np.maximum(T.data, 0.0)
    T.eliminate_zeros()
    still = int((np.diff(T.indptr) == 0).sum())
    if still == adata.n_obs:
        raise ValueError(f"{what} has no positive entry. Compute it again, or leave `direction` out.")
    if (abs(T - T.T) > 1e-6 * abs(T).max()).nnz == 0:
        raise ValueError(
            f"{what} is symmetric, so it leads nowhere. Give transitions, such as those of a CellRank kernel."
        )
    if still:
        warn(f"{what} has no transition from {still} cells. They take the direction of their neighbours.")
    return T


def _confidence(adata: AnnData, column: str) -> np.ndarray:
    if column not in adata.obs:
        raise KeyError(f"confidence: {column!r} is not in adata.obs, which has {named(adata.obs.columns)}.")
    values = pd.to_numeric(adata.obs[column], errors="coerce").to_numpy(dtype=np.float64)
    if not np.isfinite(values).all() or values.min() < 0 or not values.any():
        raise ValueError(f"adata.obs[{column!r}] must hold numbers of at least 0, without NaN and not all 0.")
    return values / values.max()


def _stages(adata: AnnData, column: str) -> np.ndarray:
    """The rank of each cell's time: of a number, of an ordered category, or of the number in names such as 'E8.5'."""
    if column not in adata.obs:
        raise KeyError(f"time_key: {column!r} is not in adata.obs, which has {named(adata.obs.columns)}.")
    times = adata.obs[column]
    if times.isna().any():
        raise ValueError(f"adata.obs[{column!r}] has no time for {int(times.isna().sum())} cells. Remove them first.")
    if isinstance(times.dtype, pd.CategoricalDtype) and times.cat.ordered:
        values = times.cat.codes.to_numpy()
    elif pd.api.types.is_numeric_dtype(times) and not pd.api.types.is_bool_dtype(times):
        values = times.to_numpy()
    else:
        numbers = {str(name): re.findall(r"\d+(?:\.\d+)?", str(name)) for name in times.unique()}
        units = {re.sub(r"[\d.]+", "", name) for name in numbers}
        if len(units) > 1 or any(len(found) != 1 for found in numbers.values()):
            raise ValueError(
                f"adata.obs[{column!r}] holds {named(numbers)}, which have no clear order. Make it numbers or an "
                "ordered category: `adata.obs[key].astype('category').cat.reorder_categories([...], ordered=True)`."
            )
        values = times.astype(str).map({name: float(found[0]) for name, found in numbers.items()}).to_numpy()
    points, stage = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True)
    if len(points) > 0.5 * len(stage) and len(stage) > 20:
        warn(f"adata.obs[{column!r}] has {len(points)} times for {len(stage)} cells: is it a time of collection?")
    if len(points) < 2:
        raise ValueError(f"adata.obs[{column!r}] has one time only, {times.iloc[0]!r}. Leave `time_key` out.")
    return stage.astype(np.float64)
