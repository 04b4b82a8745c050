"""The tree of branches as plain tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData

from ..core.branches import Tree
from ._ordered import Ordered

TRUNK = "trunk"


def tree_tables(
    adata: AnnData,
    ordered: Ordered,
    tree: Tree,
    advanced: np.ndarray,
    tips: list[str],
    peaks: np.ndarray,
    pseudotime: np.ndarray,
) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Nodes and edges of the tree, a row a branch, and how far along its branch each node of the graph is."""
    n_branches, points = len(tree.parents), tree.points(advanced, ordered.peaks.left_out)
    is_tip = points < 0
    number = np.cumsum(~is_tip)
    child = [tips[tree.leads_to[b][0]] if is_tip[b] else f"branch point {number[b]}" for b in range(n_branches)]
    last = np.array([peaks[tree.leads_to[b][0]] if is_tip[b] else points[b] for b in range(n_branches)])
    at = np.append(ordered.roots[0], last)
    cells = ordered.cells_of(at)
    # Noise of single cells does not turn a branch around: it ends where it began, or later.
    first = np.delete(ordered.order, ordered.roots).min(initial=ordered.order.max())
    begin, end, time = np.empty(n_branches), np.empty(n_branches), pseudotime[cells]
    for b, parent in enumerate(tree.parents):
        begin[b] = first if parent < 0 else end[parent]
        end[b] = max(ordered.order[last[b]], begin[b])
        time[b + 1] = max(time[b + 1], time[parent + 1])
    length = end - begin
    nodes = pd.DataFrame(
        {
            "kind": ["root", *np.where(is_tip, "tip", "branch point").tolist()],
            "cell": adata.obs_names[cells].astype(str).to_numpy(dtype=object),
            "potential": np.append(ordered.order[at[0]], end),
            "pseudotime": time,
        },
        index=pd.Index(["root", *child], dtype=object),
    )
    names = [" + ".join(tips[i] for i in leads_to) for leads_to in tree.leads_to]
    edges = pd.DataFrame(
        {
            "parent": ["root" if p < 0 else child[p] for p in tree.parents],
            "child": child,
            "branch": [TRUNK if b == 0 and n_branches > 1 else name for b, name in enumerate(names)],
            "length": length,
        }
    )
    branch = tree.place(advanced)
    along, whole = ordered.order - begin[branch], length[branch]
    position = np.clip(np.divide(along, whole, out=np.ones_like(along), where=whole > 0), 0.0, 1.0)
    return nodes, edges, position
