"""The nodes that a tool works on, all cells or landmarks, and what is kept of landmarks."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp
from anndata import AnnData

from .._keys import Keys
from ..core.cells import Cells
from ..core.frame import Frame
from ..core.graph import Bridges, Graph
from ..core.nodes import Nodes
from ..core.pipeline import N_LANDMARKS, Order, Settings, landmark_graph
from ..core.progress import Report
from ..core.search import _search
from ._adata import Fields, cells_of
from ._blocks import is_lazy
from ._checks import warn
from ._graphs import CellGraph, Source, asked_for, cell_graph, content, described, source_of_graph
from ._marks import fingerprint
from ._progress import say_if_compiling

AS_IT_IS = Frame()


@dataclass(frozen=True)
class NodeGraph:
    """A graph, the cells that are its landmarks (None: all cells are nodes), and how to read all cells.

    ``fields`` hold a graph of cells that had to be made; ``fingerprint`` tells of what, and how, landmarks were made;
    ``frame`` is what they are positioned in.
    """

    graph: Graph
    use_rep: str | None
    n_pcs: int | None
    chosen: np.ndarray | None = None
    cells: Cells | None = None
    fields: Fields | None = None
    fingerprint: str | None = None
    frame: Frame = AS_IT_IS

    def carried_by(self, adata: AnnData, keys: Keys, values: np.ndarray) -> list[np.ndarray | None]:
        """What new cells get values from besides positions: all cells, with their scales; of landmarks nothing."""
        return [] if self.chosen is not None else [values, (self.fields or adata).obsm.get(keys.scales)]


def node_graph(
    adata: AnnData,
    keys: Keys,
    settings: Settings,
    *,
    preset: str,
    report: Report,
    n_landmarks: int | None = None,
    given: np.ndarray | None = None,
    include: np.ndarray | None = None,
    use_rep: str | None = None,
    random_state: int = 0,
    store: str | PathLike | None = None,
) -> NodeGraph:
    """All cells, up to `n_landmarks` of them, else landmarks; `adata` is only read.

    Where no number is given, all cells if they have neighbours, else at most the default number. Landmarks may also be
    `given` themselves.
    """
    asked = asked_for(adata, keys, use_rep)
    source = source_of_graph(adata, asked, use_rep)
    params = asked if source is None else source.params
    joined = _are_joined(settings, asked, source)
    if n_landmarks is None:
        n_landmarks = adata.n_obs if joined else N_LANDMARKS

    def of_cells() -> CellGraph:
        return cell_graph(adata, keys, settings, source, asked, preset=preset, random_state=random_state)

    if given is None and adata.n_obs <= n_landmarks:
        if store is not None:
            raise ValueError(
                f"`store` is for more cells than the {n_landmarks} that are nodes themselves. Leave it out."
            )
        made = of_cells()
        return NodeGraph(made.graph, params.get("use_rep"), params.get("n_pcs"), fields=made.fields)
    if source is None or source.X is None:
        raise ValueError(
            "Landmarks need positions, and what the neighbours were searched in is not in `adata`. Put it back, name "
            "another representation with `use_rep=`, or raise `n_landmarks` above the number of cells."
        )
    say_if_compiling(_search)
    frame = AS_IT_IS if is_lazy(source.X) else Frame.of(source.X)
    # Without neighbours, the source is recognised by the positions themselves.
    positions = content(source.X) if source.distances is not None else source.fingerprint
    cells = _cells(adata, source.X, positions, frame, report, store)
    made = of_cells() if joined and not is_lazy(source.X) else None
    if given is not None:
        include, n_landmarks = given if include is None else np.union1d(given, include), 0
    affinity = None if made is None else made.graph.affinity
    options = {"include": include, "n_neighbors": params["n_neighbors"], "random_state": random_state}
    how = [settings, n_landmarks, options | {"include": None if include is None else include.tolist()}]
    how += [positions, None if affinity is None else fingerprint(affinity.data, affinity.indices)]
    mark = fingerprint(np.frombuffer(repr(how).encode(), dtype=np.uint8))
    kept = adata.uns.get(keys.uns, {}).get("landmarks", {})
    if kept.get("fingerprint") == mark:
        chosen, graph = np.asarray(kept["cells"]), restored_graph(kept)
    else:
        landmarks, graph = landmark_graph(cells, settings, n_landmarks, affinity=affinity, **options)
        chosen = landmarks.cells
        warn_of_components(graph.bridges, "landmarks")
    fields = None if made is None else made.fields
    return NodeGraph(graph, params["use_rep"], params["n_pcs"], chosen, cells, fields, mark, frame)


def has_graph(adata: AnnData, keys: Keys, settings: Settings, use_rep: str | None = None) -> bool:
    """Whether cells have a graph of their own in a representation, so that no landmarks need carry their order."""
    asked = asked_for(adata, keys, use_rep)
    return _are_joined(settings, asked, None if asked is not None else source_of_graph(adata, None, use_rep))


def _are_joined(settings: Settings, asked: dict[str, Any] | None, source: Source | None) -> bool:
    return (asked is not None or source.distances is not None) and not settings.is_published


# The cells of the last call, as long as its object lives: the tools that follow place the same cells among the same
# landmarks, which takes most of the time.
_LAST: list[tuple[weakref.ref, str, Cells]] = []


def _cells(adata: AnnData, X: Any, positions: str, frame: Frame, report: Report, store: str | PathLike | None) -> Cells:
    """The cells of an object, with what the last call searched for them if they are where they were."""
    for owner, mark, cells in _LAST:
        if owner() is adata and mark == positions and store is None:
            cells.report = report
            return cells
    cells = cells_of(X, frame, report, store)
    if not is_lazy(X):
        _LAST[:] = [(weakref.ref(adata, lambda _: _LAST.clear()), positions, cells)]
    return cells


def warn_of_components(bridges: Bridges, what: str) -> None:
    """Say so where nodes had to be joined."""
    if len(bridges.component_sizes) > 1:
        warn(
            f"The {what} form {described(bridges.component_sizes)}. They are joined by their shortest bridges; do not "
            "trust distances, nor the pseudotime, across a bridge. Remove cells far from all others first."
        )


def stored_nodes(nodes: Nodes, frame: Frame) -> dict[str, Any]:
    """Where landmarks are, as it is kept in `uns`."""
    kept = {"positions": nodes.positions, "bandwidths": nodes.bandwidths, "n_project": nodes.n_project}
    return kept if frame.is_identity else {**kept, "centre": frame.centre, "length": frame.length}


def stored_order(
    found: Order,
    ends: list[np.ndarray],
    nodes: Nodes | None,
    use_rep: str | None,
    at_landmarks: np.ndarray | None,
    frame: Frame = AS_IT_IS,
) -> dict[str, Any]:
    """An order as it is kept in `uns`, with the barcodes of its ends; landmarks carry it to new cells."""
    part: dict[str, Any] = {
        "roots": ends[0],
        "terminals": ends[1] if len(ends) > 1 else None,
        "on": "cells" if nodes is None else "landmarks",
        "depth": found.depth,
        "unit": found.unit,
        "residual": found.residual,
        "use_rep": use_rep,
    }
    if nodes is not None:
        kept = {"potential": found.potentials[:, 0], "pseudotime": at_landmarks}
        part["landmarks"] = {**stored_nodes(nodes, frame), **kept}
    return part


def restored_nodes(stored: Mapping[str, Any]) -> Nodes:
    """The landmarks that were kept."""
    return Nodes(np.asarray(stored["positions"]), np.asarray(stored["bandwidths"]), int(stored["n_project"]))


def restored_frame(stored: Mapping[str, Any]) -> Frame:
    """What the landmarks that were kept are positioned in."""
    return Frame(stored["centre"], float(stored["length"])) if "centre" in stored else AS_IT_IS


def stored_graph(
    graph: Graph, cells: np.ndarray, barcodes: np.ndarray, coordinates: np.ndarray, frame: Frame = AS_IT_IS
) -> dict[str, Any]:
    """Landmarks and the graph among them, as they are kept in `uns`."""
    return {
        **stored_nodes(graph.nodes, frame),
        "cells": cells,
        "barcodes": barcodes,
        "coordinates": coordinates,
        "affinity": graph.affinity,
        "lengths": graph.lengths,
        "component_sizes": graph.bridges.component_sizes,
    }


def restored_graph(stored: Mapping[str, Any]) -> Graph:
    """The graph among landmarks that was kept."""
    bridges = Bridges(np.asarray(stored["component_sizes"]), np.empty((0, 2), dtype=np.int64), np.empty(0))
    return Graph(sp.csr_matrix(stored["affinity"]), np.asarray(stored["lengths"]), bridges, restored_nodes(stored))
