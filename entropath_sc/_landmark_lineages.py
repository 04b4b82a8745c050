"""Lineages of cells out of core: terminal states and fates of the landmarks, carried to all cells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from ._keys import Keys
from ._store import Codes, Writing
from .core.graph import Graph
from .core.pipeline import Order, between
from .tl._blocks import BlockedCells
from .tl._fates import fate_fields, fates
from .tl._marks import fingerprint
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
        chosen: np.ndarray,
        ordered: Order,
        roots: np.ndarray,
        labels: pd.Series | None,
        options: dict[str, Any],
        keys: Keys,
    ) -> LandmarkLineages:
        """Of an order on the graph of the landmarks."""
        A, potential = graph.affinity, ordered.potentials[:, 0]
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
                "edges": fingerprint(np.sort(A.data)),
                "component_sizes": graph.bridges.component_sizes,
                "bridges": graph.bridges.pairs,
                "bridge_lengths": graph.bridges.lengths,
            },
            "pseudotime": {"roots": few.obs_names[at_roots].to_numpy(), "depth": ordered.depth},
        }
        terminal_states(few, **options, key_added=keys.key)
        nearest = np.asarray(graph.sources(cells, chosen).argmax(axis=1)).ravel()
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

    def columns(self, nearest, n_cells: int) -> dict[str, Any]:
        """Columns of `obs`, by the nearest landmark of each cell."""
        keys, obs = self.keys, self.few.obs
        terminal = np.full(n_cells, -1, dtype=np.int16)
        terminal[self.chosen] = obs[keys.terminal].cat.codes

        def carried(values: np.ndarray):
            return nearest.map_blocks(_taken, values, dtype=values.dtype, meta=np.empty(0, values.dtype))

        return {
            keys.terminal: Codes(terminal, self.names),
            keys.branch: Codes(carried(obs[keys.branch].cat.codes.to_numpy()), list(obs[keys.branch].cat.categories)),
            keys.position: carried(obs[keys.position].to_numpy()),
            keys.at_branch_point: carried(obs[keys.at_branch_point].to_numpy()),
        }

    def put_fates(self, writing: Writing, store: Path, passages) -> Any:
        """Put the tables of `obsm` into the store, and give the plasticity."""
        kept, n = self.few.uns[self.keys.uns]["fates"], len(self.names)
        how = (self.keys, kept["at_root"], kept["prior"], self.names)
        both = passages.map_blocks(
            _fates, *how, dtype=np.float64, chunks=(passages.chunks[0], (2 * n + 1,)), meta=np.empty((0, 0))
        )
        tables = {self.keys.fates: both[:, :n], self.keys.membership: both[:, n:-1], self.keys.passages: passages}
        for name, values in tables.items():
            writing.put_table(store, name, {state: values[:, i] for i, state in enumerate(self.names)})
        return both[:, -1]

    def entry(self, nearest, barcodes, pseudotime: np.ndarray) -> dict[str, Any]:
        """The parts of `uns`, with numbers of cells in the place of numbers of landmarks."""
        few, keys = self.few, self.keys
        kept = dict(few.uns[keys.uns])
        chunks = ((1,) * nearest.numblocks[0], (len(self.chosen),))
        counted = nearest.map_blocks(_counted, len(self.chosen), chunks=chunks, new_axis=1, dtype=np.int64)
        n_cells = np.asarray(counted.sum(axis=0))
        per_branch = pd.Series(n_cells).groupby(few.obs[keys.branch].to_numpy(), observed=False).sum()
        states, tree = kept["terminal_states"].copy(), {name: part.copy() for name, part in kept["tree"].items()}
        states["n_cells"] = [int(per_branch[name]) for name in states.index]
        tree["edges"]["n_cells"] = [int(per_branch[name]) for name in tree["edges"]["branch"]]
        for table in (states, tree["nodes"]):
            at = few.obs_names.get_indexer(table["cell"])
            table["pseudotime"] = pseudotime[at]
            table["cell"] = barcodes.oindex[self.chosen[at]].astype(object)
        parts = {"terminal_states": states, "tree": tree}
        if self.names:
            branch = few.obs[keys.branch].cat.codes.to_numpy()[self.nearest]
            parts["fates"] = dict(kept["fates"]) | {"passages": self.passages, "branch": branch}
        steps = [step for step in ("terminal_states", "fates") if step in kept["params"]]
        return parts | {"params": {step: kept["params"][step] | {"n_cells": int(n_cells.sum())} for step in steps}}


def _taken(nearest: np.ndarray, values: np.ndarray) -> np.ndarray:
    return values[nearest.astype(np.intp)]


def _counted(nearest: np.ndarray, n: int) -> np.ndarray:
    return np.bincount(nearest.astype(np.intp), minlength=n)[None]


def _fates(passages: np.ndarray, keys: Keys, at_root: np.ndarray, prior: np.ndarray, names: list[str]) -> np.ndarray:
    """Fates, membership and plasticity of a block."""
    found = fate_fields(keys, passages, at_root, prior, names, pd.RangeIndex(len(passages)))
    return np.column_stack([found.obsm[keys.fates], found.obsm[keys.membership], found.obs[keys.plasticity]])
