"""Lineages of cells out of core: terminal states and fates of the landmarks, carried to all cells."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from anndata.io import write_elem

from ._keys import Keys
from ._store import Writing
from .core.graph import Graph
from .core.landmarks import Landmarks
from .core.pipeline import Order, between
from .tl._blocks import BlockedCells
from .tl._fates import fate_fields, fates
from .tl._marks import fingerprint_in_any_order
from .tl._terminal_states import terminal_states


@dataclass(frozen=True)
class LandmarkLineages:
    """Terminal states and fates of landmarks, and how all cells get them.

    ``few`` holds the landmarks as if they were all cells there are, named by their positions; ``nearest`` is the node
    that each of these cells is placed at.
    """

    few: AnnData
    keys: Keys
    chosen: np.ndarray
    nearest: np.ndarray

    @classmethod
    def found(
        cls,
        graph: Graph,
        cells: BlockedCells,
        landmarks: Landmarks,
        ordered: Order,
        roots: np.ndarray,
        labels: pd.Series | None,
        options: dict[str, Any],
        keys: Keys,
    ) -> LandmarkLineages:
        """Of an order on the graph of the landmarks."""
        A, potential, chosen = graph.affinity, ordered.potentials[:, 0], landmarks.cells
        few = AnnData(obs=pd.DataFrame(index=chosen.astype(str)))
        few.obs[keys.potential], few.obs[keys.pseudotime] = potential, between(potential, 0.0, potential.max())
        if labels is not None:
            few.obs[options["groupby"]] = labels.to_numpy()
        few.obsp[keys.affinity] = A
        few.obsp[keys.lengths] = type(A)((graph.lengths, A.indices, A.indptr), shape=A.shape)
        at_roots = np.unique(np.asarray(graph.sources(cells, roots).argmax(axis=1)).ravel())
        made = {"automatic": False, "preset": "default", "bandwidth": "landmarks", "use_rep": ""}
        few.uns[keys.uns] = {
            "params": {"merw_graph": made, "pseudotime": {"preset": "default"}},
            "graph": {
                "edges": fingerprint_in_any_order(A.data),
                "component_sizes": graph.bridges.component_sizes,
                "bridges": graph.bridges.pairs,
                "bridge_lengths": graph.bridges.lengths,
            },
            "pseudotime": {"roots": few.obs_names[at_roots].to_numpy(), "depth": ordered.depth},
        }
        terminal_states(few, **options, key_added=keys.key)
        nodes: Any = graph.nodes
        nearest = np.asarray(nodes.weights(*nodes.nearest(landmarks.positions)).argmax(axis=1)).ravel()
        states = few.obs[keys.terminal].cat
        if len(states.categories):
            # A state is the nodes that its cells are placed at, as in memory.
            codes = np.full(len(chosen), -1)
            codes[nearest[states.codes >= 0]] = states.codes[states.codes >= 0]
            own = few.obs[keys.terminal].copy()
            few.obs[keys.terminal] = pd.Categorical.from_codes(codes, categories=states.categories)
            fates(few, key_added=keys.key)
            few.obs[keys.terminal] = own
        return cls(few, keys, chosen, nearest)

    @property
    def names(self) -> list[str]:
        """Of the states."""
        return list(self.few.obs[self.keys.terminal].cat.categories)

    @property
    def passages(self) -> np.ndarray:
        """From each landmark to each state."""
        return self.few.obsm[self.keys.passages].to_numpy() if self.names else np.empty((len(self.chosen), 0))

    def put(self, writing: Writing, obs, store: Path, part: np.ndarray) -> list[str]:
        """Put what cells get into the store, and give the names of the columns of `obs`.

        Rows are of cells: passages in the columns ``part``, and the nearest landmark in the last.
        """
        keys, own, names = self.keys, self.few.obs, self.names
        terminal = np.full(writing.n_rows, -1, dtype=np.int16)
        terminal[self.chosen] = own[keys.terminal].cat.codes
        write_elem(obs, keys.terminal, pd.Categorical.from_codes(terminal, categories=names))
        branch, position, at_branch_point = own[keys.branch].cat, own[keys.position], own[keys.at_branch_point]
        carried = [some.to_numpy() for some in (branch.codes, position, at_branch_point)]
        targets = [
            writing.new_codes(obs, keys.branch, list(branch.categories), carried[0].dtype),
            writing.new(obs, keys.position, carried[1].dtype),
            writing.new(obs, keys.at_branch_point, carried[2].dtype),
        ]
        writing.put(_Carried(carried), *targets)
        columns = [keys.terminal, keys.branch, keys.position, keys.at_branch_point]
        if not names:
            return columns
        tables = [writing.new_table(store, name, names) for name in (keys.fates, keys.membership, keys.passages)]
        fates = self.few.uns[keys.uns]["fates"]
        plasticity = writing.new(obs, keys.plasticity, np.float64)
        writing.put(_Fates(part, keys, fates["at_root"], fates["prior"], names), *chain(*tables), plasticity)
        return [*columns, keys.plasticity]

    def entry(self, n_cells: np.ndarray, barcodes: np.ndarray, pseudotime: np.ndarray) -> dict[str, Any]:
        """The parts of `uns`, with numbers of cells in the place of numbers of landmarks.

        All are given by landmark: how many cells are placed there, its barcode, and its pseudotime.
        """
        few, keys = self.few, self.keys
        kept = dict(few.uns[keys.uns])
        per_branch = pd.Series(n_cells).groupby(few.obs[keys.branch].to_numpy(), observed=False).sum()
        states, tree = kept["terminal_states"].copy(), {name: part.copy() for name, part in kept["tree"].items()}
        states["n_cells"] = [int(per_branch[name]) for name in states.index]
        tree["edges"]["n_cells"] = [int(per_branch[name]) for name in tree["edges"]["branch"]]
        for table in (states, tree["nodes"]):
            at = few.obs_names.get_indexer(table["cell"])
            table["pseudotime"] = pseudotime[at]
            table["cell"] = barcodes[at]
        parts = {"terminal_states": states, "tree": tree}
        if self.names:
            branch = few.obs[keys.branch].cat.codes.to_numpy()[self.nearest]
            parts["fates"] = dict(kept["fates"]) | {"passages": self.passages, "branch": branch}
        steps = [step for step in ("terminal_states", "fates") if step in kept["params"]]
        return parts | {"params": {step: kept["params"][step] | {"n_cells": int(n_cells.sum())} for step in steps}}


@dataclass(frozen=True)
class _Carried:
    """Values of the landmarks, for cells in whose last column there is the nearest one."""

    values: list[np.ndarray]

    def __call__(self, rows: np.ndarray) -> list[np.ndarray]:
        nearest = rows[:, -1].astype(np.intp)
        return [values[nearest] for values in self.values]


@dataclass(frozen=True)
class _Fates:
    """Fates, membership and passages of cells, a column a state, and their plasticity."""

    part: np.ndarray
    keys: Keys
    at_root: np.ndarray
    prior: np.ndarray
    names: list[str]

    def __call__(self, rows: np.ndarray) -> list[np.ndarray]:
        index, keys = pd.RangeIndex(len(rows)), self.keys
        found = fate_fields(keys, rows[:, self.part], self.at_root, self.prior, self.names, index)
        tables = [found.obsm[name].to_numpy() for name in (keys.fates, keys.membership, keys.passages)]
        return [*np.hstack(tables).T, found.obs[keys.plasticity]]
