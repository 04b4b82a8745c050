"""The tree of branches as plain tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData

from ..core.lineages import Split, Tree
from ._ordered import Ordered

TRUNK = "trunk"


def tree_tables(
    adata: AnnData,
    ordered: Ordered,
    tree: Tree,
    splits: list[Split],
    tips: list[str],
    tops: list[int],
    pseudotime: np.ndarray,
) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Nodes and edges of the tree, a row a branch, and how far along its branch each node of the graph is."""
    order = ordered.order
    tips = tips or ["end"]
    n_branches = len(tree.parents)

    def leads_to(b: int) -> list[str]:
        children = np.flatnonzero(tree.parents == b)
        return [name for child in children for name in leads_to(int(child))] if len(children) else [tips[tree.ends[b]]]

    is_tip = tree.splits < 0
    child = [tips[tree.ends[b]] if is_tip[b] else f"branch point {int(tree.splits[b]) + 1}" for b in range(n_branches)]
    last = np.array([tops[tree.ends[b]] if is_tip[b] else splits[tree.splits[b]].saddle for b in range(n_branches)])
    at = np.append(ordered.roots[0], last)
    cells = ordered.cells_of(at)
    nodes = pd.DataFrame(
        {
            "kind": ["root", *np.where(is_tip, "tip", "branch point").tolist()],
            "cell": adata.obs_names[cells].astype(str).to_numpy(dtype=object),
            "potential": order[at],
            "pseudotime": pseudotime[cells],
        },
        index=pd.Index(["root", *child], dtype=object),
    )
    first = np.delete(order, ordered.roots).min()
    begin = np.array([first if p < 0 else order[last[p]] for p in tree.parents])
    length = np.maximum(order[last] - begin, np.finfo(float).tiny)
    edges = pd.DataFrame(
        {
            "parent": ["root" if p < 0 else child[p] for p in tree.parents],
            "child": child,
            "branch": [TRUNK if b == 0 and n_branches > 1 else " + ".join(leads_to(b)) for b in range(n_branches)],
            "length": length,
        }
    )
    position = np.clip((order - begin[tree.branch]) / length[tree.branch], 0.0, 1.0)
    return nodes, edges, position
