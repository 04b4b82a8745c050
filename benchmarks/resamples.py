"""How often ends are found again, by the number of steps that are traced within each resample.

    [ENTROPATH_SC_DATA=...] python benchmarks/resamples.py [--resamples 100]

All peaks are taken as ends here, also those that cells have not decided for: they are the ones that some resamples
miss. ``alone`` solves each resample on its own graph. The differences from it are the last rows. A share of 0.5 of 20
resamples has a standard error of 0.11. Writes resamples.md in benchmarks/results.
"""

from __future__ import annotations

import argparse
import os
import warnings
from unittest.mock import patch

import numpy as np
import scanpy as sc
from anndata import AnnData
from scipy.sparse.csgraph import connected_components
from speed import RESULTS

import entropath_sc as ep
from entropath_sc.core.ensemble import PathEnsemble
from entropath_sc.core.lineages import find_ends, induced, recovery
from entropath_sc.tl._adata import keys_for
from entropath_sc.tl._ordered import Ordered, read_ordered

STEPS = (0, 2, 4, 8, 16, 32)
RELAXED = PathEnsemble.relaxed


def cells():
    """Names and annotated data with neighbours, and their roots."""
    for seed in range(300, 304):
        adata = ep.datasets.branching(n_cells=500, random_state=seed)
        sc.pp.neighbors(adata)
        yield f"500 generated cells, seed {seed}", adata, adata.uns["root"]
    for name in ("marrow", "pancreas", "paul15") if "ENTROPATH_SC_DATA" in os.environ else ():
        loaded = ep.datasets.load(name)
        for n_neighbors in (10, 15):
            adata = AnnData(obs=loaded.obs, obsm={"X_pca": loaded.obsm["X_pca"]})
            sc.pp.neighbors(adata, n_neighbors=n_neighbors, use_rep="X_pca")
            yield f"{name}, {n_neighbors} neighbours", adata, loaded.uns["manifest"]["root"]


def alone(ordered: Ordered):
    """In the place of ``PathEnsemble.relaxed``: the order of each resample on its own graph."""
    band = ordered.ordering.banded[0]

    def orders(self, B, order, targets, kept):
        found = np.full(kept.shape, np.inf)
        for column, chosen in zip(found.T, kept.T, strict=True):
            at = np.flatnonzero(chosen)
            nodes = np.sort(band[at])
            label = connected_components(induced(ordered.nodes.graph, nodes).affinity, directed=False)[1]
            nodes = nodes[label == label[np.searchsorted(nodes, ordered.roots[0])]]
            at = at[np.isin(band[at], nodes)]
            part = PathEnsemble.of(induced(ordered.nodes.graph, nodes), self.depth)
            own = part.order(np.searchsorted(nodes, ordered.roots))
            column[at] = own[np.searchsorted(nodes, band[at])]
        return found

    return orders


def shares(adata: AnnData, root: str, n_resamples: int) -> dict[str, np.ndarray]:
    """How often each peak is found again, by the way to order resamples."""
    ep.tl.pseudotime(adata, root=root)
    ordered = read_ordered(adata, keys_for(adata, "entropath", "terminal_states"), lambda *_: None)
    ends = find_ends(ordered.ensemble, ordered.roots, ordered.peaks, len(ordered.peaks.nodes))

    def again(relaxed) -> np.ndarray:
        with patch.object(PathEnsemble, "relaxed", relaxed):
            how = (ordered.nodes.graph, ordered.ordering, ordered.order, ordered.roots, ordered.firm, ends)
            return recovery(*how, n_resamples, 0)

    by_steps = {str(n): again(lambda *args, n=n: RELAXED(*args, n_steps=n)) for n in STEPS}
    return by_steps | {"alone": again(alone(ordered))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resamples", type=int, default=100)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    ways = [*map(str, STEPS), "alone"]
    lines = ["| cells | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    far: dict[str, list[float]] = {way: [] for way in ways}
    for name, adata, root in cells():
        found = shares(adata, root, options.resamples)
        lines.append(f"| {name} | " + " | ".join(" ".join(f"{x:.2f}" for x in found[way]) for way in ways) + " |")
        for way in ways:
            far[way] += np.abs(found[way] - found["alone"]).tolist()
    lines.append("| largest difference from `alone` | " + " | ".join(f"{max(far[way]):.2f}" for way in ways) + " |")
    lines.append("| mean difference from `alone` | " + " | ".join(f"{np.mean(far[way]):.3f}" for way in ways) + " |")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "resamples.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
