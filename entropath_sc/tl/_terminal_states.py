from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY, Keys
from ..core.branches import between, grow
from ..core.lineages import find_ends, recovery
from ..core.progress import Report
from ._adata import Cells, Fields, check_object, group_labels, keys_for, named, without_following, write
from ._checks import check_count, check_flags, warn
from ._ordered import Ordered, read_ordered, warn_of_parts
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

    A terminal state is a peak of the pseudotime whose cells have decided for it. At least 10 cells make a peak. The 10
    nearest to it have decided if it is on average more than three times as likely for them as the states on the other
    side of the branch point. A line has one terminal state, a cloud none. Early cells are rarely terminal, unless the
    root lies inside a branch; both give a warning.

    Run :func:`~entropath_sc.tl.pseudotime` first.

    Parameters
    ----------
    adata
        Annotated data after :func:`~entropath_sc.tl.pseudotime`.
    groupby
        Column of `adata.obs` that names the states: each gets the most frequent label among its cells. Without it,
        states are called `'end 1'`, `'end 2'` and so on, the most distinct first.
    n_states
        How many states to find: of the peaks, decided ones first, then by persistence. Default: all decided ones. 0
        finds none.
    terminal
        States to add by hand: a dict from names to cells. Cells are a barcode (and the 10 cells nearest to it), a list
        of barcodes, or `('obs column', 'category')`: the 10 cells around the one deepest inside the category. Use it
        for rare ends, or ends that are no peak. A given state replaces a found one on the same branch if cells do not
        decide between the two. If `groupby` gives them different labels, and they share no cell, both are kept.
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
    `adata.obsm['entropath_passages']` : DataFrame
        -log of the weight of all paths to each state, where all cells are nodes. `ep.tl.fates` reads it.
    `adata.uns['entropath']['terminal_states']` : DataFrame
        A row for each state, with these columns:

        - `cell`: its latest cell, and the `pseudotime` of that cell;
        - `n_cells`: the number of cells on its branch;
        - `persistence`: how far `obs['entropath_potential']` rises above the branch point;
        - `decided`: how far its cells have decided for it, on average: 0 not at all, 1 entirely;
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
        found = _found(ordered, labels, n_states, n_resamples, random_state, report)
    states = _renamed(found, names or {})
    for name, cells in (terminal or {}).items():
        _add(states, name, ordered.given(adata, cells, f"terminal[{name!r}]"), found, ordered, labels)
    _refuse_shared(adata, ordered, states)
    fields = _fields(adata, keys, ordered, states)
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
class State:
    """A terminal state: its peak, the nodes that stand for it, those on its branch, and the passages to it."""

    peak: int
    nodes: np.ndarray
    passages: np.ndarray
    region: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=int))
    found_again: float = np.nan
    given: bool = False


def _found(
    ordered: Ordered, labels: pd.Series | None, n_states: int | None, n_resamples: int, seed: int, report: Report
) -> dict[str, State]:
    """The states that are there, or ``n_states`` of them, by name."""
    graph, roots = ordered.nodes.graph, ordered.roots
    firm, peaks = ordered.firm, ordered.peaks
    warn_of_parts(ordered)
    if n_states == 0:
        return {}
    if n_states is None and not peaks.has_direction:
        warn(
            "No terminal state was found: the last cells have more links to all others than to each other, so the "
            "pseudotime has no direction. Is there a trajectory, and is the root at its beginning?"
        )
        return {}
    ends = find_ends(ordered.ensemble, roots, peaks, n_states)
    if n_states is not None and len(ends.nodes) < n_states:
        there = "1 peak" if len(ends.nodes) == 1 else f"{len(ends.nodes)} peaks"
        raise ValueError(
            f"n_states={n_states}, but the pseudotime has only {there}. Ask for fewer, or name cells with `terminal=`."
        )
    tree, advanced = grow(ends.passages, roots, ends.nodes, ends.apart)
    branch = tree.place(advanced)
    again = recovery(graph, ordered.ordering, ordered.order, roots, firm, ends, n_resamples, seed, report)
    return {
        name: State(
            int(ends.peaks[i]),
            ends.nodes[i],
            ends.passages[:, i],
            np.flatnonzero(branch == tree.tip(i)),
            again[i] if n_resamples else np.nan,
        )
        for i, name in enumerate(_named(ends.nodes, ordered, labels))
    }


def _add(
    states: dict[str, State],
    name: str,
    nodes: np.ndarray,
    found: dict[str, State],
    ordered: Ordered,
    labels: pd.Series | None,
) -> None:
    """Add a state by hand. It replaces a found one that it is the same end as, unless labels tell the two apart."""
    latest = int(nodes[ordered.order[nodes].argmax()])
    given = State(latest, nodes, ordered.ensemble.first_passages(nodes), given=True)
    for other in [key for key, state in states.items() if np.isin(nodes, state.region).all()]:
        if not _same_end(given, states[other], ordered):
            continue
        alike = _named([nodes], ordered, labels) == _named([states[other].nodes], ordered, labels)
        if alike or np.isin(nodes, states[other].nodes).any():
            given = replace(given, found_again=states.pop(other).found_again)
            continue
        was = next(key for key, state in found.items() if state is states[other])
        warn(
            f"{name!r} lies on the branch of {other!r}, and both are kept. If they are one, remove the found one "
            f"with `names={{{was!r}: None}}`."
        )
    if name in states:
        raise ValueError(
            f"terminal: {name!r} is already the name of a state that was found at other cells. Choose another name, or "
            "rename or remove that one with `names=`."
        )
    if np.isin(nodes, ordered.peaks.left_out).any():
        warn(
            f"{name!r} has no firm link to the part where states are looked for. Its branch and its fates mean little, "
            "and those of the other states may suffer: leave it out, or analyse its cells alone."
        )
    states[name] = given


def _same_end(one: State, other: State, ordered: Ordered) -> bool:
    """Whether the cells of one of two states have not decided against the other."""
    ends = [one.nodes, other.nodes]
    passages = np.column_stack([one.passages, other.passages])
    tree, advanced = grow(passages, ordered.roots, ends, ordered.peaks.left_out)
    return bool(tree.firmness(advanced, ends).min() <= 0.5)


def _named(ends: list[np.ndarray], ordered: Ordered, labels: pd.Series | None) -> list[str]:
    """A name for each end: its most frequent label, numbered where several share it."""
    found = [f"end {i}" for i in range(1, len(ends) + 1)]
    for i, nodes in enumerate(ends):
        known = pd.Series([], dtype=object) if labels is None else labels.iloc[ordered.cells_of(nodes)].dropna()
        if len(known):
            # What the tree and files could not hold is said in another way.
            name = str(known.astype(str).mode()[0]).replace("/", "-").replace(" + ", "+").strip() or found[i]
            found[i] = f"{name} end" if _is_reserved(name) else name
    taken = {name for name in found if found.count(name) == 1}
    for i, name in enumerate(found):
        if name not in taken:
            number = next(n for n in count(1) if f"{name} {n}" not in taken)
            found[i] = f"{name} {number}"
            taken.add(found[i])
    return found


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


def _refuse_shared(adata: AnnData, ordered: Ordered, states: Mapping[str, State]) -> None:
    """A cell stands for one state."""
    owner: dict[int, str] = {}
    for name, state in states.items():
        for node in state.nodes:
            if (other := owner.setdefault(int(node), name)) != name:
                cell = str(adata.obs_names[ordered.cells_of(np.array([node]))[0]])
                raise ValueError(
                    f"terminal: {cell!r} would stand for both {other!r} and {name!r}. Give each state other cells, or "
                    "remove the one that was found with `names={...: None}`."
                )


def _renamed(found: dict[str, State], names: Mapping[str, str | None]) -> dict[str, State]:
    """The found states by their new names, without those that are removed."""
    if unknown := [name for name in names if name not in found]:
        raise ValueError(
            f"names: there is no state {unknown[0]!r}; there is {named(found)}. Each call starts afresh: repeat "
            "`groupby=` if you gave it before."
        )
    kept = {old: new for old in found if (new := names.get(old, old)) is not None}
    if len(set(kept.values())) < len(kept):
        raise ValueError("names: two states would have the same name.")
    return {new: found[old] for old, new in kept.items()}


def _fields(adata: AnnData, keys: Keys, ordered: Ordered, states: dict[str, State]) -> Fields:
    """The fields of the states, and of the tree that leads to them."""
    names = pd.Index(list(states), dtype=object)
    pseudotime = adata.obs[keys.pseudotime].to_numpy()
    # Without a state, the tree is one branch to the latest node.
    latest = ordered.peaks.nodes[:1]
    drawn = states or {"end": State(int(latest[0]), latest, ordered.ensemble.first_passages(latest))}
    ends, peaks = [state.nodes for state in drawn.values()], np.array([state.peak for state in drawn.values()])
    passages = np.column_stack([state.passages for state in drawn.values()])
    tree, advanced = grow(passages, ordered.roots, ends, ordered.peaks.left_out)
    nodes, edges, position = tree_tables(adata, ordered, tree, advanced, list(drawn), peaks, pseudotime)
    on_nodes = tree.place(advanced)
    branch = ordered.on_cells(on_nodes)
    edges["n_cells"] = np.bincount(branch, minlength=len(edges))
    of_state = slice(len(states))
    tips = [tree.tip(i) for i in range(len(states))]
    cells = ordered.cells_of(peaks)[of_state]
    table = pd.DataFrame(
        {
            "cell": adata.obs_names[cells].astype(str).to_numpy(dtype=object),
            "n_cells": edges["n_cells"].to_numpy()[tips],
            "persistence": edges["length"].to_numpy()[tips],
            "decided": tree.firmness(advanced, ends)[of_state],
            "found_again": [state.found_again for state in states.values()],
            "given": np.array([state.given for state in states.values()], dtype=bool),
            "pseudotime": pseudotime[cells],
        },
        index=names,
    )
    if len(early := table.index[table["pseudotime"] < 0.5 * table["pseudotime"].max()]):
        warn(
            f"Terminal at less than half the pseudotime of the last state: {named(early)}. If the root is inside a "
            "branch, the other end of that branch looks like a terminal state. Choose a root at the end, or leave the "
            "state out: with `names=` if it was found, from `terminal=` if it was given."
        )
    code = np.full(adata.n_obs, -1)
    for i, state in enumerate(states.values()):
        code[ordered.cells_of(state.nodes)] = i
    on_cells = states and ordered.nodes.chosen is None
    return Fields(
        obs={
            keys.terminal: pd.Categorical.from_codes(code, categories=names),
            keys.branch: pd.Categorical.from_codes(branch, categories=pd.Index(edges["branch"], dtype=object)),
            keys.position: ordered.on_cells(position),
            keys.at_branch_point: ordered.on_cells(between(on_nodes, ordered.firm)),
        },
        obsm={keys.passages: pd.DataFrame(passages, adata.obs_names, names) if on_cells else None},
        parts={"terminal_states": table, "tree": {"nodes": nodes, "edges": edges}},
    )
