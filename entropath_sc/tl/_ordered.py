"""The graph that an order was made on, read again for what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData

from .._keys import Keys
from ..core.branches import END_CELLS
from ..core.ensemble import PathEnsemble
from ..core.lineages import Peaks, find_peaks, firm_edges
from ..core.pipeline import Settings, root_in
from ..core.progress import Report
from ._adata import Cells, cell_indices, is_category
from ._checks import settings_for, warn
from ._nodes import NodeGraph, node_graph

# The largest relative error with which a stored potential may solve the equations of the present graph: rounding.
SAME_ORDER = 1e-4
# The most that is added to it for values that are stored in single precision.
MOST_ROUNDING = 1e-2


@dataclass(frozen=True)
class Ordered:
    """The graph of an order with its path ensemble, the order of its nodes, and the nodes of the roots.

    ``ordering`` is the ensemble whose first passages are the order: the same one, unless there are arrows.
    """

    nodes: NodeGraph
    settings: Settings
    ensemble: PathEnsemble
    ordering: PathEnsemble
    order: np.ndarray
    roots: np.ndarray

    @property
    def weights(self) -> sp.csr_matrix:
        """The equalised affinity."""
        return self.ensemble.equalised(self.nodes.graph)

    @cached_property
    def firm(self) -> sp.csr_matrix:
        """The edges that peaks may meet along."""
        return firm_edges(self.ensemble, self.nodes.graph)

    @cached_property
    def peaks(self) -> Peaks:
        """Of the order."""
        return find_peaks(self.order, self.firm, self.weights)

    def nodes_of(self, cells: np.ndarray) -> np.ndarray:
        """The nodes that cells are at, or nearest to, each once."""
        sources = self.nodes.graph.sources(self.nodes.cells, cells)
        return np.unique(np.asarray(sources.argmax(axis=1)).ravel())

    def passages_to(self, ends: list[np.ndarray], stored: pd.DataFrame | None) -> np.ndarray:
        """First passages to each end: those that `terminal_states` stored, if they are of these ends."""
        if stored is not None and self.nodes.chosen is None and stored.shape == (len(self.order), len(ends)):
            passages = np.asarray(stored)
            if all(_are_passages(self.ensemble, *pair) for pair in zip(passages.T, ends, strict=True)):
                return passages.astype(np.float64)
        return self.ensemble.passages_to(ends)

    def cells_of(self, nodes: np.ndarray) -> np.ndarray:
        """The cells that nodes are."""
        return nodes if self.nodes.chosen is None else self.nodes.chosen[nodes]

    def on_cells(self, labels: np.ndarray) -> np.ndarray:
        """What nodes have, on all cells: their own, or that of the nearest landmark."""
        if self.nodes.chosen is None:
            return labels
        return labels[self._assignment]

    @cached_property
    def _assignment(self) -> np.ndarray:
        """The nearest landmark of each cell, which a dask array is read for."""
        return self.nodes.cells.assignment(self.nodes.graph.nodes)

    def nearest(self, node: int, among: np.ndarray) -> np.ndarray:
        """The few nodes among some that are nearest to one, itself included."""
        return self.ensemble.nearest([node], among, END_CELLS)[0]

    def given(self, adata: AnnData, cells: Cells, name: str) -> np.ndarray:
        """The nodes of cells that a user names: around one barcode, or around the cell deepest inside a category."""
        found = cell_indices(adata, cells, name)
        members = self.nodes_of(found)
        if isinstance(cells, str):
            return self.nearest(int(members[0]), np.arange(len(self.order)))
        if not is_category(adata, cells):
            return members
        deepest = root_in(self.nodes.graph, self.settings, self.nodes.cells, found)
        if deepest is None:
            raise ValueError(f"{name}: {tuple(cells)} is everywhere, so no cell is deepest inside it. Give a barcode.")
        return self.nearest(int(self.nodes_of(np.array([deepest]))[0]), members)


def read_ordered(adata: AnnData, keys: Keys, report: Report) -> Ordered:
    """The order that `pseudotime` stored, and the graph that it was made on."""
    entry = adata.uns.get(keys.uns, {})
    part = entry.get("pseudotime")
    if keys.potential not in adata.obs:
        raise KeyError(f"No order in adata.obs[{keys.potential!r}]. Run `ep.tl.pseudotime(adata, root=...)` first.")
    if part is None:
        raise KeyError(
            f"adata.obs[{keys.potential!r}] comes without its root, as `ep.tl.project` leaves it. Go on with the "
            "reference, or run `ep.tl.pseudotime(adata, root=...)` on these cells."
        )
    params = entry["params"]["pseudotime"]
    if params["preset"] != "default":
        raise ValueError(
            f"The order is one of preset={params['preset']!r}, and lineages follow from the default. Run "
            "`ep.tl.pseudotime(adata, root=...)` again, without `preset`."
        )
    roots = [str(barcode) for barcode in np.atleast_1d(part["roots"])]
    there = set(adata.obs_names[adata.obs_names.isin(roots)])  # a table of all would take seconds to make
    if missing := [barcode for barcode in roots if barcode not in there]:
        raise ValueError(f"The root {missing[0]!r} is no longer among the cells. Run `ep.tl.pseudotime` again.")
    if adata.n_obs < 2 * END_CELLS:
        raise ValueError(f"Lineages need at least {2 * END_CELLS} cells; adata has {adata.n_obs}.")
    settings = settings_for("default", depth=float(part["depth"]))
    n_landmarks = None if params.get("n_landmarks") is None else int(params["n_landmarks"])
    nodes = node_graph(
        adata,
        keys,
        settings,
        preset="default",
        report=report,
        n_landmarks=n_landmarks,
        use_rep=params.get("use_rep"),
        random_state=int(params.get("random_state", 0)),
    )
    ensemble = PathEnsemble.of(nodes.graph, float(settings.depth))
    sources = nodes.graph.sources(nodes.cells, cell_indices(adata, roots, "root"))
    at = np.unique(np.asarray(sources.argmax(axis=1)).ravel())
    ordering = ensemble.ordering(at)
    stored = adata.obs[keys.potential] if nodes.chosen is None else part["landmarks"]["potential"]
    order = np.asarray(stored)
    # Solving again would take most of the time of what follows.
    if not _are_passages(ordering, order, at):
        raise ValueError(
            f"adata.obs[{keys.potential!r}] was made with other neighbours or cells, or landmarks carried it and cells "
            "are in another order now. Run `ep.tl.pseudotime(adata, root=...)` again."
        )
    return Ordered(nodes, settings, ensemble, ordering, order.astype(np.float64), at)


def _are_passages(ensemble: PathEnsemble, values: np.ndarray, targets: np.ndarray) -> bool:
    """Whether stored values are the first passages to some nodes, up to the rounding of their type."""
    if values.dtype.kind != "f" or len(values) != len(ensemble.degree):
        return False
    # Single precision of a long order is coarse; half precision would let any values pass.
    rounding = min(4 * float(np.finfo(values.dtype).eps) * float(np.abs(values).max()), MOST_ROUNDING)
    return ensemble.residual(values.astype(np.float64), targets) <= SAME_ORDER + rounding


def warn_of_parts(ordered: Ordered) -> None:
    """Say which cells are in other parts than the one with the terminal states."""
    at, peaks = ordered.on_cells(np.arange(len(ordered.order))), ordered.peaks
    if len(peaks.before) >= END_CELLS:
        warn(
            f"The root and other cells around it, {np.isin(at, peaks.before).sum()} in all, have no firm link to the "
            "others. They are too few for a trajectory, or have no order among them. Terminal states are looked for in "
            "the part that the pseudotime reaches next."
        )
    if (apart := np.isin(at, peaks.left_out)).any():
        warn(
            f"{apart.sum()} of {len(apart)} cells, in groups of {END_CELLS} and more, have no firm link to the part "
            "where terminal states are looked for. Their fates mean little: analyse them alone, with a root of their "
            "own."
        )


def read_terminal(adata: AnnData, keys: Keys) -> pd.Series:
    """The terminal state of each cell, as `terminal_states` stored it."""
    if keys.terminal not in adata.obs:
        raise KeyError(f"No adata.obs[{keys.terminal!r}]. Run `ep.tl.terminal_states(adata)` first.")
    states = adata.obs[keys.terminal].astype("category").cat.remove_unused_categories()
    if not len(states.cat.categories):
        raise ValueError(
            "There is no terminal state: none was found, or all were removed. Name one by hand: "
            "`ep.tl.terminal_states(adata, terminal={'name': barcode})`."
        )
    return states
