"""The graph that a tool works on: stored, made, or made again where what it was made of has changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import scanpy as sc
import scipy.sparse as sp
from anndata import AnnData

from .._keys import Keys
from ..core import paper
from ..core.ensemble import STEP_RANGE, equalise
from ..core.graph import Bridges, Graph, graph_of_cells
from ..core.kernel import Kernel
from ..core.neighbors import knn_distances
from ..core.perron import transition_matrix
from ..core.pipeline import N_NEIGHBORS, PRESETS, Settings
from ._adata import Fields, has_representation, named, neighbor_distances, picked, representation
from ._blocks import is_lazy
from ._checks import check_count, warn
from ._direction import OPTIONS, Direction, find_direction, is_there
from ._marks import fingerprint, fingerprint_in_any_order, mark_rows

# Numerical: how far the paper's walk may miss its equation before users are warned. The solver aims at 1e-6.
LARGEST_RESIDUAL = 1e-3
PLACEHOLDER = "Is it a placeholder? Compute a PCA and neighbours, or name another representation with `use_rep=`."


@dataclass(frozen=True)
class Source:
    """What a graph of cells is made of: neighbours that are there, or a representation to search them in.

    ``X`` is None where the representation behind the neighbours is not known, and may be a dask array.
    """

    distances: sp.csr_matrix | None
    X: Any
    params: dict[str, Any]
    fingerprint: str
    barcodes: pd.Index
    direction: Direction | None = None


def with_direction(source: Source, adata: AnnData, options: dict[str, Any]) -> Source:
    """The source with the direction that options ask for."""
    params = source.params | {name: options.get(name) for name in OPTIONS}
    if params["direction"] is not None and source.X is None:
        raise ValueError(
            "A direction needs positions, and what the neighbours were searched in is not in `adata`. Run "
            "`sc.pp.neighbors(adata)` again, or name a representation with `use_rep=`."
        )
    n_columns = 0 if source.X is None else int(source.X.shape[1])
    return replace(source, params=params, direction=find_direction(adata, params, params["use_rep"], n_columns))


def find_source(
    adata: AnnData,
    neighbors_key: str | None = None,
    use_rep: str | None = None,
    n_pcs: int | None = None,
    n_neighbors: int | None = None,
) -> Source:
    """scanpy's neighbours, unless another representation, or another size of neighbourhoods, is asked for."""
    searching = use_rep is not None or n_pcs is not None or n_neighbors is not None
    if searching and neighbors_key is not None:
        raise ValueError(
            "neighbors_key reads a graph, use_rep, n_pcs and n_neighbors search a new one: give one or the other, not "
            "both."
        )
    if adata.n_obs < 2:
        raise ValueError("`adata` has one cell, and a graph needs at least two.")
    found = None if searching else neighbor_distances(adata, neighbors_key)
    if found is not None:
        distances, stored = found
        use_rep, n_pcs = _where_searched(adata, distances, stored)
        X = None if use_rep is None else representation(adata, use_rep, n_pcs, lazy=True)[0]
        params = {"neighbors_key": neighbors_key or "neighbors", "use_rep": use_rep, "n_pcs": n_pcs}
        params["n_neighbors"] = int(stored.get("n_neighbors", np.diff(distances.indptr).max() + 1))
        entry = f"adata.uns[{params['neighbors_key']!r}]"
        if not distances.nnz:
            raise ValueError(f"{entry} joins no cells. Run `sc.pp.neighbors(adata)` again.")
        if not distances.data.any():
            raise ValueError(f"{entry} has all cells in one place. {PLACEHOLDER}")
        measured = X is not None and not is_lazy(X) and stored.get("metric") == "euclidean"
        if measured and not _fits(adata, distances, use_rep, n_pcs):
            warn(
                f"The neighbours in {entry} were not searched in the present {use_rep!r}, which has changed since. Run "
                "`sc.pp.neighbors(adata)` again."
            )
        mark = fingerprint(distances.data, distances.indices, distances.indptr)
        return Source(distances, X, params, mark, adata.obs_names)
    n_neighbors = N_NEIGHBORS if n_neighbors is None else n_neighbors
    check_count("n_neighbors", n_neighbors, 2)
    X, use_rep = representation(adata, use_rep, n_pcs, lazy=True)
    if adata.n_obs < n_neighbors:
        raise ValueError(
            f"n_neighbors={n_neighbors} needs at least {n_neighbors} cells, but adata has {adata.n_obs}. "
            f"Run `ep.tl.merw_graph(adata, n_neighbors={max(adata.n_obs // 2, 2)})`."
        )
    if not is_lazy(X) and (X[0] == X[1]).all() and not np.ptp(X, axis=0).any():
        raise ValueError(f"All cells are in one place in {use_rep!r}. {PLACEHOLDER}")
    params = {"neighbors_key": None, "use_rep": use_rep, "n_pcs": n_pcs, "n_neighbors": n_neighbors}
    return Source(None, X, params, content(X), adata.obs_names)


def content(X: Any) -> str:
    """By which positions are recognised: those of a dask array by the name that dask gives to its content."""
    return X.name if is_lazy(X) else fingerprint(mark_rows(X))


def _where_searched(adata: AnnData, distances: sp.csr_matrix, stored: dict[str, Any]) -> tuple[str | None, int | None]:
    """The name and the columns of what scanpy searched its neighbours in, if it is still there."""
    n_pcs = None if stored.get("n_pcs") is None else int(stored["n_pcs"])
    if stored.get("use_rep"):
        candidates = [stored["use_rep"]]
    else:
        # Where none is named, scanpy searches in X itself if it has few columns, or if no components are asked for.
        candidates = ["X", "X_pca"] if n_pcs == 0 or adata.n_vars <= sc.settings.N_PCS else ["X_pca", "X"]
    # Of X scanpy takes all columns, whatever n_pcs says.
    places = [(name, None if name == "X" else n_pcs or None) for name in candidates]
    there = [place for place in places if has_representation(adata, place[0])]
    if len(places) == 1 or not there:
        return there[0] if there else (None, None)
    # Genes may have been left out since, or a field deleted: the distances tell what they were measured in.
    likely = places[0] if places[0] in there else (None, None)
    return next((place for place in there if _fits(adata, distances, *place)), likely)


def _fits(adata: AnnData, distances: sp.csr_matrix, name: str, n_pcs: int | None) -> bool:
    """Whether the distances of a cell to its neighbours are those in a representation."""
    cell = int(np.diff(distances.indptr).argmax())
    neighbors = slice(distances.indptr[cell], distances.indptr[cell + 1])
    rows = np.append(cell, distances.indices[neighbors])
    X = picked(adata, name, rows)[:, :n_pcs]
    found, stored = np.linalg.norm(X[1:] - X[0], axis=1), distances.data[neighbors]
    # Some searches put copies of a cell at a small distance.
    rounding = 1e-3 * distances.data.mean()
    # NaN does not speak against it, and is refused later.
    return not (np.abs(found - stored) > 1e-3 * stored + rounding).any()


@dataclass(frozen=True)
class CellGraph:
    """The graph of all cells, what it was made with, and the fields to write where it is new."""

    graph: Graph
    params: dict[str, Any]
    fields: Fields | None = None


def make_graph(
    source: Source, settings: Settings, keys: Keys, *, disconnected: str, transitions: bool, extra: dict[str, Any]
) -> CellGraph:
    """One connected graph of a source, with the fields that hold it."""
    distances, X = source.distances, None if source.X is None else np.asarray(source.X)
    if distances is None:
        distances = knn_distances(X, source.params["n_neighbors"], random_state=extra["random_state"])
    _check_components(distances, X, disconnected)
    outliers = source.barcodes[_far_from_all(distances)]
    if len(outliers):
        warn(
            f"Outlying cells ({len(outliers)}), more than {STEP_RANGE:g} typical neighbour distances away from all "
            f"others: {named(outliers, 5)}. They hardly change the pseudotime of the others; consider removing them."
        )
    graph, bandwidths = graph_of_cells(distances, X, decay=settings.decay, bandwidth=settings.bandwidth)
    kernel = Kernel.fitted(settings.decay, settings.bandwidth, distances.data, bandwidths)
    params = {**source.params, "decay": settings.decay, "bandwidth": settings.bandwidth, "disconnected": disconnected}
    params |= {"transitions": transitions, **extra}
    part = {
        "fingerprint": source.fingerprint,
        "edges": fingerprint_in_any_order(graph.affinity.data),
        "outliers": outliers.to_numpy(dtype=object),
        "unit": kernel.length,
        "typical_bandwidth": kernel.typical,
        "component_sizes": graph.bridges.component_sizes,
        "bridges": graph.bridges.pairs,
        "bridge_lengths": graph.bridges.lengths,
    }
    graph = replace(graph, scale=equalise(graph.affinity))
    A, scale, mass, walk, arrows = graph.affinity, graph.scale, None, None, None
    if source.direction is not None:
        graph = replace(graph, forward=source.direction.forward(graph, X))
        arrows = sp.csr_matrix((graph.forward, A.indices, A.indptr), shape=A.shape)
        part["direction"] = source.direction.fingerprint
    if settings.is_published:
        perron = paper.perron_of(graph)
        mass = paper.stationary(graph, perron)
        part |= {"lambda_max": perron.lambda_max, "residual": perron.residual}
        walk = transition_matrix(paper.affinity_of(graph), perron.log_psi) if transitions else None
        warn_of_residual(perron.residual)
    elif transitions:
        walk = (sp.diags(scale) @ (A + sp.eye_array(graph.n_nodes)) @ sp.diags(scale)).tocsr()
    lengths = sp.csr_matrix((graph.lengths, A.indices, A.indptr), shape=A.shape)
    fields = Fields(
        obs={keys.stationary: mass},
        obsm={keys.scales: np.column_stack([bandwidths, scale])},
        obsp={keys.affinity: A, keys.lengths: lengths, keys.direction: arrows, keys.transitions: walk},
        params={"merw_graph": params},
        parts={"graph": part},
    )
    return CellGraph(graph, params, fields)


def _far_from_all(distances: sp.csr_matrix) -> np.ndarray:
    """Which cells are so far from their nearest neighbour that the cost of the step to it is clipped."""
    nearest = np.full(distances.shape[0], np.inf)
    np.minimum.at(nearest, np.repeat(np.arange(len(nearest)), np.diff(distances.indptr)), distances.data)
    return np.isfinite(nearest) & (nearest > STEP_RANGE * np.median(distances.data))


def warn_of_residual(residual: float | None) -> None:
    """Say so where the leading eigenvector of the paper's walk was not found."""
    if residual is not None and residual > LARGEST_RESIDUAL:
        warn(
            f"The maximum entropy random walk was not found: its equation holds only up to a relative error of "
            f"{residual:.1g}. Use more neighbours, remove outlying cells, or leave `preset` out."
        )


def described(sizes: np.ndarray) -> str:
    """How many components there are, and the sizes of the first."""
    return f"{len(sizes)} components, of {', '.join(map(str, sizes[:8]))}{', ...' if len(sizes) > 8 else ''}"


def _check_components(distances: sp.csr_matrix, X: np.ndarray | None, disconnected: str) -> None:
    n_components, label = sp.csgraph.connected_components(distances, directed=False)
    if n_components == 1:
        return
    found = f"The neighbour graph has {described(np.sort(np.bincount(label))[::-1])} cells."
    if disconnected == "error":
        raise ValueError(
            f"{found} The method needs one: raise `n_neighbors` in sc.pp.neighbors, remove outlying cells, "
            "or pass disconnected='bridge'."
        )
    if X is None:
        raise ValueError(f"{found} To join them, name the representation to measure in with `use_rep=`.")
    warn(f"{found} They are joined by their shortest bridges; do not trust distances across a bridge.")


def refuse_landmarks(adata: AnnData, keys: Keys, chosen: np.ndarray | None) -> None:
    """Directions are those of cells: landmarks have none."""
    if chosen is not None and keys.direction in adata.obsp:
        raise ValueError(
            f"The graph is directed (adata.obsp[{keys.direction!r}]), and landmarks have no direction. Leave "
            "`n_landmarks` out or raise it above the number of cells, or run `ep.tl.merw_graph(adata)` without one."
        )


def asked_for(adata: AnnData, keys: Keys, use_rep: str | None = None) -> dict[str, Any] | None:
    """The options of the stored graph where `merw_graph` was called to make it; None for one made on the way."""
    params = adata.uns.get(keys.uns, {}).get("params", {}).get("merw_graph")
    if params is None or params["automatic"]:
        return None
    return params if use_rep in (None, params.get("use_rep")) else None


def source_of_graph(adata: AnnData, params: dict[str, Any] | None, use_rep: str | None = None) -> Source | None:
    """What a graph would be made of now, as `merw_graph` was asked to or by default; None where it is gone."""
    if params is None:
        found = None if use_rep is None else neighbor_distances(adata, None)
        there = found is not None and _where_searched(adata, *found)[0] == use_rep
        return find_source(adata, use_rep=None if there else use_rep)
    key, name = params.get("neighbors_key"), params.get("use_rep")
    if (key not in adata.uns) if key is not None else not has_representation(adata, name):
        return None
    if key is not None:
        source = find_source(adata, key)
    else:
        n_pcs = None if params.get("n_pcs") is None else int(params["n_pcs"])
        source = find_source(adata, None, name, n_pcs, int(params["n_neighbors"]))
    return with_direction(source, adata, params) if is_there(adata, params) else source


def cell_graph(
    adata: AnnData,
    keys: Keys,
    settings: Settings,
    source: Source | None,
    asked: dict[str, Any] | None,
    *,
    preset: str,
    random_state: int = 0,
) -> CellGraph:
    """The stored graph where it is one of this source, as asked for or of this preset; else a new one."""
    entry = adata.uns.get(keys.uns, {})
    params, part = entry.get("params", {}).get("merw_graph"), entry.get("graph", {})
    is_there = {keys.affinity, keys.lengths} <= set(adata.obsp) and params is not None
    A = sp.csr_matrix(adata.obsp[keys.affinity]) if is_there else None
    # Cells in another order are the same graph, a subset of them is not.
    fits = is_there and part.get("edges") == fingerprint_in_any_order(A.data)
    if source is not None:
        fits = fits and part.get("fingerprint") == source.fingerprint
        if source.direction is not None:
            fits = fits and part.get("direction") == source.direction.fingerprint
    elif not fits:
        raise ValueError(
            f"adata.obsp[{keys.affinity!r}] is gone or was made for other cells, and what it was made of is not in "
            "`adata`. Run `ep.tl.merw_graph(adata, use_rep=...)`."
        )
    if fits and (asked is not None or params["preset"] == preset):
        if params["preset"] != preset and params["bandwidth"] == "tempered":
            warn(
                f"preset={preset!r} runs on the graph that is there, which is not the paper's: its bandwidth is "
                f"'tempered'. Run `ep.tl.merw_graph(adata, preset={preset!r})` first."
            )
        bridges = Bridges(*(np.asarray(part[name]) for name in ("component_sizes", "bridges", "bridge_lengths")))
        arrows = sp.csr_matrix(adata.obsp[keys.direction]).data if keys.direction in adata.obsp else None
        lengths = sp.csr_matrix(adata.obsp[keys.lengths]).data
        scale = np.asarray(adata.obsm[keys.scales])[:, 1] if keys.scales in adata.obsm else None
        return CellGraph(Graph(A, lengths, bridges, forward=arrows, scale=scale), params)
    extra: dict[str, Any] = {"preset": preset, "random_state": random_state, "automatic": True}
    disconnected, transitions = "bridge", False
    if asked is not None:
        if is_there:
            warn("The neighbours or positions that the graph was made of have changed: it is made again.")
        else:
            warn(f"The graph is no longer in adata.obsp[{keys.affinity!r}]: it is made again, with the same options.")
        settings = replace(PRESETS[asked["preset"]], decay=float(asked["decay"]), bandwidth=str(asked["bandwidth"]))
        disconnected, transitions = str(asked["disconnected"]), bool(asked["transitions"])
        extra = {"preset": asked["preset"], "random_state": int(asked["random_state"]), "automatic": False}
    return make_graph(source, settings, keys, disconnected=disconnected, transitions=transitions, extra=extra)
