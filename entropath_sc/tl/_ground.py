"""What an order is computed on: the graph of all cells, or of landmarks that carry it."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp
from anndata import AnnData

from .._keys import Keys
from ..core.landmarks import anchored_set, choose
from ..core.perron import largest_eigenvalue
from ..core.placement import Carrier, Nodes
from . import _lazy
from ._adata import has_representation, representation
from ._merw_graph import Graph, graph_params, is_outdated, new_graph, read_graph, warn_of_kernel
from ._nodes import warn_of_components
from ._progress import progress
from ._reference import Reference

GROUNDS = ("auto", "cells", "landmarks")

# Above this many cells landmarks carry the order. In a larger graph paths have more hops, of which chance and density
# choose more, and one false edge among very many is enough for a short cut.
MOST_CELLS = 5000
# So many, where no embedding has chosen any; each cell is placed among so many of them.
N_LANDMARKS = 2000
N_PROJECT = 10


@dataclass(frozen=True)
class Ground:
    """A connected graph, and how values of its nodes become those of all cells; ``nodes`` is None where it is theirs.

    ``positions`` are those of the nodes, where they are known and asked for; ``new_graph`` had to be made for it.
    """

    graph: sp.csr_matrix
    lambda_max: float
    positions: np.ndarray | None
    nodes: Nodes | None = None
    X: Any = None
    weights: sp.csr_matrix | None = None
    new_graph: Graph | None = None

    def source(self, cells: np.ndarray) -> np.ndarray:
        """Weight of the given cells on each node."""
        if self.nodes is not None:
            return self.nodes.mass(self.X, cells)
        weight = np.zeros(self.graph.shape[0])
        weight[cells] = 1.0
        return weight

    def carried(self, values: np.ndarray, name: str, store: str | PathLike | None) -> np.ndarray:
        """Values of the nodes, on all cells."""
        if self.nodes is None:
            return values
        if self.weights is not None:
            return self.weights @ values
        carrier = Carrier(self.nodes, values)
        with progress() as report:
            if not _lazy.is_lazy(self.X):
                return carrier(self.X, report=report)
            n_columns, dtype = values.shape[1], values.dtype
            found = _lazy.map_cells(self.X, carrier, n_columns, dtype, store=store, stage=name, report=report)
            return np.asarray(found)


def find_ground(
    adata: AnnData,
    keys: Keys,
    reference: Reference | None,
    *,
    on: str,
    potential: str,
    diffusion: str,
    preset: str,
    with_positions: bool,
    store: str | PathLike | None,
) -> Ground:
    """What the order of these cells is computed on; `adata` is only read."""
    A = read_graph(adata, keys)
    if is_outdated(adata, keys):  # and so is what was embedded by it
        reference = None
    if on == "auto":
        is_carried = potential == "normalised" or (potential, diffusion) == ("symmetric", "heat")
        many = adata.n_obs > MOST_CELLS and is_carried
        only_landmarks = A is None and reference is not None
        on = "landmarks" if only_landmarks or (many and _is_placed(adata, keys, reference, preset)) else "cells"
    if on == "landmarks":
        return _on_landmarks(adata, keys, reference, preset, store, has_graph=A is not None)
    if potential == "normalised" and adata.n_obs > MOST_CELLS:
        raise ValueError(
            f"potential='normalised' forms a dense matrix, which {adata.n_obs:,} cells are too many for. Let landmarks "
            "carry it (on='landmarks'), or use potential='symmetric'."
        )
    made = new_graph(adata, keys, preset=preset, stacklevel=4) if A is None else None
    params = adata.uns[keys.uns]["params"]["merw_graph"] if made is None else made.params
    warn_of_kernel(params, preset, stacklevel=4)
    positions = _positions(adata, params) if with_positions else None
    if made is not None:
        return Ground(made.affinity, made.perron.lambda_max, positions, new_graph=made)
    return Ground(A, float(adata.uns[keys.uns]["graph"]["lambda_max"]), positions)


def _positions(adata: AnnData, params: dict[str, Any]) -> np.ndarray | None:
    """All cells in the representation behind their graph, if it is still there."""
    use_rep = params.get("use_rep")
    if use_rep is None or not has_representation(adata, use_rep):
        return None
    return representation(adata, use_rep, params.get("n_pcs"))[0]


def _is_placed(adata: AnnData, keys: Keys, reference: Reference | None, preset: str) -> bool:
    """Whether the positions of all cells, which landmarks are found in, are there."""
    if reference is not None:
        return has_representation(adata, reference.use_rep)
    use_rep = graph_params(adata, keys, preset).get("use_rep")
    # A graph of whose origin nothing is known may be one of anything.
    is_free = keys.affinity not in adata.obsp and "neighbors" not in adata.uns
    return has_representation(adata, use_rep or "X_pca") if use_rep or is_free else False


def _on_landmarks(
    adata: AnnData,
    keys: Keys,
    reference: Reference | None,
    preset: str,
    store: str | PathLike | None,
    *,
    has_graph: bool,
) -> Ground:
    if not _is_placed(adata, keys, reference, preset):
        raise ValueError(
            "Landmarks carry the order by the positions of all cells, and the representation that they were found in "
            + (f"({reference.use_rep!r}) " if reference is not None else "")
            + "is not in `adata`. Put it back, or use on='cells'."
        )
    nodes = None
    if reference is not None and not (has_graph and reference.nodes.coincide):
        nodes = reference.nodes
        X, _ = representation(adata, reference.use_rep, nodes.positions.shape[1], lazy=True)
        # What was embedded without a graph of the cells is joined by their votes already, or as was asked for.
        if not has_graph or _lazy.is_lazy(X):
            return Ground(reference.graph, reference.lambda_max, nodes.positions, nodes, X)
    with progress() as report:
        if nodes is None:
            params = graph_params(adata, keys, preset)
            X, _ = representation(adata, params.get("use_rep"), params.get("n_pcs"), lazy=True)
            if X.shape[0] <= N_LANDMARKS:
                raise ValueError(
                    f"on='landmarks' needs more than {N_LANDMARKS:,} cells, or an embedding with landmarks: run "
                    f"`ep.tl.embedding(adata, n_landmarks=...)` with fewer than the {X.shape[0]:,} cells first."
                )
            chosen = choose(X, N_LANDMARKS, "farthest")
            n_neighbors = int(params["n_neighbors"])
            if _lazy.is_lazy(X):
                nodes, graph, bridges = _lazy.landmark_graph(
                    X,
                    chosen,
                    "anchor",
                    n_project=N_PROJECT,
                    n_neighbors=n_neighbors,
                    kernel=params["kernel"],
                    decay=params["decay"],
                    store=store,
                    report=report,
                )
                warn_of_components(bridges, stacklevel=5)
                return Ground(graph, largest_eigenvalue(graph), nodes.positions, nodes, X)
            nodes = chosen.nodes("anchor", n_project=N_PROJECT, n_neighbors=n_neighbors)
        found = anchored_set(X, nodes, report=report)
    warn_of_components(found.bridges, stacklevel=5)
    return Ground(found.graph, largest_eigenvalue(found.graph), nodes.positions, nodes, X, found.weights)
