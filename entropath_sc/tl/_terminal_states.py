from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY, Keys
from ..core.lineages import Peaks, Split, Tree, find_peaks, firm_edges, recovery, tree_of
from ..core.parallel import in_threads
from ..core.progress import Report
from ._adata import Cells, Fields, check_object, group_labels, keys_for, named, without_following, write
from ._checks import check_count, check_flags, warn
from ._ordered import Ordered, read_ordered
from ._progress import finished, progress
from ._tree import TRUNK, tree_tables


def terminal_states(
    adata: AnnData,
    *,
    groupby: str | None = None,
    n_states: int | None = None,
    terminal: Mapping[str, Cells] | None = None,
    names: Mapping[str, str | None] | None = None,
    n_resamples: int = 20,
    key_added: str = DEFAULT_KEY,
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Find where the pseudotime ends, and the tree of branches that leads there.

    A terminal state is a peak of the pseudotime on a branch of its own. The branch has at least 10 cells, which are
    linked more to each other than to all other cells. A line has one terminal state, a cloud none. Early cells are
    never terminal, unless the root lies inside a branch, which gives a warning.

    Run :func:`~entropath_sc.tl.pseudotime` first.

    Parameters
    ----------
    adata
        Annotated data after :func:`~entropath_sc.tl.pseudotime`.
    groupby
        Column of `adata.obs` that names the states: each gets the most frequent label among its cells. Without it,
        states are called `'end 1'`, `'end 2'` and so on, the most distinct first.
    n_states
        How many states to find, the most distinct first. Default: all that are there. 0 finds none.
    terminal
        States to add by hand: a dict from names to cells. Cells are a barcode (and the 10 cells nearest to it), a list
        of barcodes, or `('obs column', 'category')`. Use it for rare ends, or ends without a branch of their own. On
        the branch of a found state, it replaces that state. If `groupby` gives the two different labels, both are kept.
    names
        New names for states that were found: a dict from old to new names. None removes a state.
    n_resamples
        How many random samples of 80 % of the cells to search again, for `found_again`. More give a steadier share.
        0 skips this and saves time.
    key_added
        Prefix of the fields that are read and set.
    random_state
        Seed of the samples.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    `None`, or the copy if `copy`. Sets the following fields:

    `adata.obs['entropath_terminal']` : categorical
        The 10 cells nearest to the peak of each state; missing for all other cells.
    `adata.obs['entropath_branch']` : categorical
        The branch of each cell. A branch has the name of the state that it leads to, or of several joined by `' + '`.
        The first one is `'trunk'`.
    `adata.obs['entropath_branch_position']` : float
        How far along its branch a cell is, from 0 to 1.
    `adata.obs['entropath_at_branch_point']` : bool
        Whether a cell has neighbours on another branch.
    `adata.uns['entropath']['terminal_states']` : DataFrame
        A row for each state, with these columns:

        - `cell`: its latest cell, and the `pseudotime` of that cell;
        - `n_cells`: the number of cells on its branch;
        - `persistence`: how far `obs['entropath_potential']` rises above the branch point;
        - `inside`: the share of the branch's links that stay on it;
        - `found_again`: the share of resamples that find it again;
        - `given`: whether it was added by hand.
    `adata.uns['entropath']['tree']` : dict
        DataFrames `nodes` (root, branch points and tips) and `edges` (parent, child, branch, length, n_cells). With
        networkx: `nx.from_pandas_edgelist(tree['edges'], 'parent', 'child', True, nx.DiGraph)`.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=600)
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> ep.tl.terminal_states(adata, groupby="branch")
    >>> sorted(adata.obs["entropath_terminal"].cat.categories)
    ['fate A', 'fate B', 'fate C']
    """
    check_object(adata)
    check_flags(copy=copy)
    keys = keys_for(adata, key_added, "terminal_states")
    for name, value in (("n_states", n_states), ("n_resamples", n_resamples), ("random_state", random_state)):
        if value is not None:
            check_count(name, value, 0)
    labels = None if groupby is None else group_labels(adata, groupby)
    for option, given in (("terminal", terminal), ("names", names)):
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"{option} must be a dict, with the names of states as its keys. Got {given!r}.")
    for name in [*(terminal or {}), *(name for name in (names or {}).values() if name is not None)]:
        _check_name(name)
    start = logg.info("finding terminal states")
    with progress() as report:
        ordered = read_ordered(adata, keys, report)
        ends = _found(ordered, n_states, n_resamples, random_state, report)
    found = _named(ends.nodes, ordered, labels)
    kept = _renamed(found, names or {})
    tips = [new or old for old, new in zip(found, kept, strict=True)]
    states = {name: _state(ordered, ends, i) for i, name in enumerate(kept) if name is not None}
    for name, cells in (terminal or {}).items():
        nodes = ordered.given(adata, cells, f"terminal[{name!r}]")
        on = next((i for i, region in enumerate(ends.regions) if np.isin(nodes, region).all()), None)
        replaced: dict[str, Any] = {}
        if on is not None and not states.get(tips[on], {}).get("given"):
            if _named([nodes], ordered, labels) == _named([ends.nodes[on]], ordered, labels):
                replaced = states.pop(tips[on], {})
                tips[on] = name
            elif tips[on] in states:
                warn(
                    f"{name!r} lies on the branch of {tips[on]!r}, and both are kept. If they are one, remove the "
                    f"found one with `names={{{found[on]!r}: None}}`."
                )
        latest = int(nodes[ordered.order[nodes].argmax()])
        states[name] = {"n_cells": len(nodes)} | replaced | {"nodes": nodes, "latest": latest, "given": True}
    _refuse_shared(adata, ordered, states)
    fields = _fields(adata, keys, ordered, ends, tips, states)
    fields.params["terminal_states"] = {
        "groupby": groupby,
        "n_states": n_states,
        "terminal": None if terminal is None else {k: str(v) for k, v in terminal.items()},
        "names": None if names is None else {k: str(v) for k, v in names.items()},
        "n_resamples": n_resamples,
        "random_state": random_state,
    }
    done = write(
        adata, keys, without_following(adata, keys, "terminal_states").add(fields).add(ordered.nodes.fields), copy=copy
    )
    summary = f"{len(states)} terminal states ({named(states)})" if states else "no terminal state"
    finished(start, f"{summary} of {adata.n_obs:,} cells", f"{keys.terminal!r}, terminal states (adata.obs)")
    return done


@dataclass(frozen=True)
class Ends:
    """Ends of an order and their tree: the nodes that stand for each, those on its branch, how often it is found again.

    The first is the highest peak, the others are those of the splits.
    """

    peaks: Peaks
    splits: list[Split]
    tree: Tree
    nodes: list[np.ndarray]
    regions: list[np.ndarray]
    found_again: np.ndarray


def _found(ordered: Ordered, n_states: int | None, n_resamples: int, seed: int, report: Report) -> Ends:
    graph, weights = ordered.nodes.graph, ordered.weights
    firm = firm_edges(ordered.ensemble, graph)
    peaks = find_peaks(ordered.order, firm, weights)
    if (apart := _left_out(ordered, peaks)).any():
        warn(
            f"{apart.sum()} of {len(apart)} cells have no firm link to the part with the root. Terminal states are "
            "looked for in that part only, and fates of the others mean little: analyse them alone, with a root of "
            "their own."
        )
    splits = peaks.ends(n_states)
    if splits is None:
        if n_states is None:
            warn(
                "No terminal state was found: the last cells have more links to all others than to each other, so the "
                "pseudotime has no direction. Is there a trajectory, and is the root at its beginning?"
            )
        return Ends(peaks, [], tree_of(peaks, [], firm, weights), [], [], np.empty(0))
    if n_states is not None and len(splits) + 1 < n_states:
        raise ValueError(
            f"n_states={n_states}, but the pseudotime has only {len(splits) + 1} peaks of 10 cells or more. Ask for "
            "fewer, or name cells by hand: `terminal={'name': barcode}`."
        )
    tree = tree_of(peaks, splits, firm, weights)
    regions = [tree.branch_of_end(i) for i in range(len(splits) + 1)]
    tops = [peaks.top, *(split.peak for split in splits)]
    nodes = in_threads(lambda end: ordered.nearest(*end), zip(tops, regions, strict=True))
    again = recovery(graph, ordered.ensemble.depth, ordered.roots, firm, regions, n_resamples, seed, report)
    return Ends(peaks, splits, tree, nodes, regions, again if n_resamples else np.full(len(tops), np.nan))


def _left_out(ordered: Ordered, peaks: Peaks) -> np.ndarray:
    """Whether each cell is in a part without the root."""
    return np.isin(ordered.on_cells(np.arange(len(ordered.order))), peaks.left_out)


def _named(ends: list[np.ndarray], ordered: Ordered, labels: pd.Series | None) -> list[str]:
    """A name for each end: its most frequent label, numbered where several share it."""
    found = [f"end {i}" for i in range(1, len(ends) + 1)]
    for i, nodes in enumerate(ends):
        known = pd.Series([], dtype=object) if labels is None else labels.iloc[ordered.cells_of(nodes)].dropna()
        if len(known):
            # What the tree and files could not hold is said in another way.
            name = str(known.astype(str).mode()[0]).replace("/", "-").replace(" + ", "+").strip() or found[i]
            found[i] = f"{name} end" if _is_reserved(name) else name
    count = {name: found.count(name) for name in found}
    place = [found[: i + 1].count(name) for i, name in enumerate(found)]
    return [f"{name} {i}" if count[name] > 1 else name for name, i in zip(found, place, strict=True)]


def _is_reserved(name: str) -> bool:
    return name in ("root", TRUNK) or name.startswith("branch point ")


def _check_name(name: Any) -> None:
    """Refuse names that the tree uses itself, or that files cannot hold."""
    if not isinstance(name, str) or not name.strip():
        raise TypeError(f"{name!r} is not a name of a terminal state. Give a word, such as 'Beta'.")
    if _is_reserved(name) or "/" in name or " + " in name:
        raise ValueError(
            f"A terminal state cannot be called {name!r}: 'root', 'trunk' and 'branch point' are other parts of the "
            "tree, ' + ' joins states, and zarr cannot store '/'. Choose another name."
        )


def _refuse_shared(adata: AnnData, ordered: Ordered, states: Mapping[str, dict[str, Any]]) -> None:
    """A cell stands for one state."""
    owner: dict[int, str] = {}
    for name, state in states.items():
        for node in state["nodes"]:
            if (other := owner.setdefault(int(node), name)) != name:
                cell = str(adata.obs_names[ordered.cells_of(np.array([node]))[0]])
                raise ValueError(
                    f"terminal: {cell!r} would stand for both {other!r} and {name!r}. Give each state other cells, or "
                    "remove the one that was found with `names={...: None}`."
                )


def _renamed(found: list[str], names: Mapping[str, str | None]) -> list[str | None]:
    if unknown := [name for name in names if name not in found]:
        raise ValueError(
            f"names: there is no state {unknown[0]!r}; there is {named(found)}. Each call starts afresh: repeat "
            "`groupby=` if you gave it before."
        )
    new = [names.get(name, name) for name in found]
    kept = [name for name in new if name is not None]
    if len(set(kept)) < len(kept):
        raise ValueError("names: two states would have the same name.")
    return new


def _state(ordered: Ordered, ends: Ends, i: int) -> dict[str, Any]:
    """What is known of an end."""
    split = None if i == 0 else ends.splits[i - 1]
    latest = ends.peaks.top if split is None else split.peak
    first = float(np.delete(ordered.order, ordered.roots).min())
    return {
        "nodes": ends.nodes[i],
        "latest": latest,
        "n_cells": int(np.isin(ordered.on_cells(np.arange(len(ordered.order))), ends.regions[i]).sum()),
        "persistence": ordered.order[latest] - first if split is None else split.persistence,
        "inside": ends.peaks.inside if split is None else split.inside,
        "found_again": ends.found_again[i],
        "given": False,
    }


def _fields(
    adata: AnnData, keys: Keys, ordered: Ordered, ends: Ends, tips: list[str], states: dict[str, dict[str, Any]]
) -> Fields:
    """The fields of the states, and of the tree with these names of its tips."""
    names = pd.Index(list(states), dtype=object)
    pseudotime = adata.obs[keys.pseudotime].to_numpy()
    latest = ordered.cells_of(np.array([state["latest"] for state in states.values()], dtype=int))
    columns = ["n_cells", "persistence", "inside", "found_again", "given"]
    table = pd.DataFrame(
        {"cell": adata.obs_names[latest].astype(str).to_numpy(dtype=object)}
        | {c: [state.get(c, np.nan) for state in states.values()] for c in columns}
        | {"pseudotime": pseudotime[latest]},
        index=names,
    )
    table["given"] = table["given"].astype(bool)
    last = pseudotime[~_left_out(ordered, ends.peaks)].max()
    if len(early := table.index[table["pseudotime"] < 0.5 * last]):
        warn(
            f"Terminal in the first half of the pseudotime: {named(early)}. If the root is inside a branch, the other "
            "end of that branch looks like a terminal state: choose a root at the end, or remove it with `names=`."
        )
    tops = [ends.peaks.top, *(split.peak for split in ends.splits)]
    tops[: len(tips)] = [states.get(name, {}).get("latest", top) for name, top in zip(tips, tops, strict=False)]
    nodes, edges, position = tree_tables(adata, ordered, ends.tree, ends.splits, tips, tops, pseudotime)
    branch = ordered.on_cells(ends.tree.branch)
    edges["n_cells"] = np.bincount(branch, minlength=len(edges))
    branches = pd.Index(edges["branch"], dtype=object)
    for name in names.difference(nodes.index):  # given by hand, without a branch of its own
        potential = ordered.order[states[name]["latest"]]
        parent, on = edges.loc[branch[latest[names.get_loc(name)]], ["parent", "branch"]]
        nodes.loc[name] = ["tip", table.loc[name, "cell"], potential, table.loc[name, "pseudotime"]]
        edges.loc[len(edges)] = [parent, name, on, max(potential - nodes.loc[parent, "potential"], 0.0), 0]
    code = np.full(adata.n_obs, -1)
    for i, state in enumerate(states.values()):
        code[ordered.cells_of(state["nodes"])] = i
    return Fields(
        obs={
            keys.terminal: pd.Categorical.from_codes(code, categories=names),
            keys.branch: pd.Categorical.from_codes(branch, categories=branches),
            keys.position: ordered.on_cells(position),
            keys.at_branch_point: ordered.on_cells(ends.tree.between),
        },
        parts={"terminal_states": table, "tree": {"nodes": nodes, "edges": edges}},
    )
