from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from anndata import AnnData
from scanpy import logging as logg
from sklearn.utils import gen_batches

from .._keys import DEFAULT_KEY, Keys
from ..core import lineages
from ..core.branches import passages_from
from ..core.parallel import in_threads
from ._adata import Fields, check_object, keys_for, named, without_following, write
from ._checks import check_flags, check_positive, warn
from ._ordered import read_ordered, read_terminal
from ._progress import finished, progress

# Cells that a thread takes at a time.
_BLOCK = 65_536


def fates(
    adata: AnnData,
    *,
    prior: str | Mapping[str, float] = "uniform",
    forward: bool = False,
    key_added: str = DEFAULT_KEY,
    copy: bool = False,
) -> AnnData | None:
    """Give each cell the probability of each terminal state.

    Of all paths from the root to each state, on which does a cell lie? At the root and along the trunk, all states are
    equally likely. Past a branch point, the states that lie ahead take over, however far away they are.
    With several roots, it is all of them together that have even fates.
    If a branch leads to no terminal state, its cells get the probabilities of the nearest ones.

    Run :func:`~entropath_sc.tl.terminal_states` first.

    Parameters
    ----------
    adata
        Annotated data after :func:`~entropath_sc.tl.terminal_states`.
    prior
        Probability of the states at the root: `'uniform'`, or a dict with a number for each state. Give numbers if you
        know how often each fate is taken; they need not sum to one. A larger number raises that fate in all undecided
        cells.
    forward
        Also store the forward walk: a random walk along all paths that is bound to reach a terminal state. CellRank
        (`PrecomputedKernel`) and :func:`~entropath_sc.pl.arrows` read it.
    key_added
        Prefix of the fields that are read and set.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    `None`, or the copy if `copy`. Sets the following fields:

    `adata.obsm['entropath_fates']` : DataFrame
        Probability of each terminal state, a column each; rows sum to one.
    `adata.obs['entropath_plasticity']` : float
        Entropy of the fates, from 0 (committed) to 1 (undecided).
    `adata.obsm['entropath_membership']` : DataFrame
        How far each cell lies on the way to each state: 1 on the trunk and on the state's own branch, near 0 on others.
        :func:`~entropath_sc.tl.trends` weights cells by it.
    `adata.obsm['entropath_passages']` : DataFrame
        -log of the weight of all paths to each state. Fates and membership are computed from these.
    `adata.uns['entropath']['fates']` : dict
        The `states`, their `prior`, and what :func:`~entropath_sc.tl.project` needs.
    `adata.obsp['entropath_forward']` : :class:`scipy.sparse.csr_matrix`
        Transition matrix of the forward walk, if `forward`. From a terminal state the walk never leaves.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=600)
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> ep.tl.terminal_states(adata, groupby="branch")
    >>> ep.tl.fates(adata)
    >>> adata.obsm["entropath_fates"].loc[adata.uns["root"]].round(2).tolist()
    [0.33, 0.33, 0.33]
    """
    check_object(adata)
    check_flags(forward=forward, copy=copy)
    keys = keys_for(adata, key_added, "fates")
    states = read_terminal(adata, keys)
    names = list(states.cat.categories)
    weight = _prior(prior, names)
    start = logg.info("computing fates")
    with progress() as report:
        ordered = read_ordered(adata, keys, report)
        graph = ordered.nodes.graph
        if forward and ordered.nodes.chosen is not None:
            raise ValueError(
                "The forward walk is one of cells, and landmarks carried this pseudotime. Run "
                "`sc.pp.neighbors(adata)` and `ep.tl.pseudotime(adata, root=...)` without `n_landmarks`."
            )
        # As an array: numpy looks for attributes of a series, and pandas makes a table of all barcodes to answer.
        ends = [ordered.nodes_of(np.flatnonzero((states == name).to_numpy())) for name in names]
        passages = ordered.passages_to(ends, adata.obsm.get(keys.passages))
        at_root = passages_from(passages, ordered.roots)
        on_cells = np.asarray(graph.carry(passages, ordered.nodes.cells, keys.passages))
        walk = None
        if forward:
            walk = lineages.forward_walk(ordered.ensemble, passages, at_root, weight, ends)
    fields = fate_fields(keys, on_cells, at_root, weight, names, adata.obs_names)
    fields.obsp[keys.forward] = walk
    _say_if_tied(fields.obsm[keys.membership], states, adata.uns[keys.uns]["terminal_states"]["decided"])
    fields.params["fates"] = {"prior": prior if isinstance(prior, str) else dict(prior), "forward": forward}
    fields.parts["fates"] = {
        "states": np.array(names, dtype=object),
        "at_root": at_root,
        "prior": weight,
    }
    if ordered.nodes.chosen is not None:
        codes = adata.obs[keys.branch].astype("category").cat.codes.to_numpy()
        fields.parts["fates"] |= {"passages": passages, "branch": codes[ordered.nodes.chosen]}
    done = write(adata, keys, without_following(adata, keys, "fates").add(fields).add(ordered.nodes.fields), copy=copy)
    summary = f"{adata.n_obs:,} cells, {len(names)} terminal states"
    finished(start, summary, f"{keys.fates!r}, fate probabilities (adata.obsm)")
    return done


def fate_fields(
    keys: Keys, passages: np.ndarray, at_root: np.ndarray, prior: np.ndarray, names: list[str], cells: pd.Index
) -> Fields:
    """The fields that follow from passages to each state, of a reference's own cells or of new ones."""

    probability, membership = np.empty(passages.shape), np.empty(passages.shape)
    plasticity = np.empty(len(passages))

    def fill(some: slice) -> None:
        probability[some] = lineages.fates(passages[some], at_root, prior)
        relative = probability[some] / prior
        membership[some] = relative / relative.max(axis=1, keepdims=True)
        plasticity[some] = lineages.plasticity(probability[some])

    in_threads(fill, gen_batches(len(passages), _BLOCK))
    tables = {keys.fates: probability, keys.membership: membership, keys.passages: passages}
    obsm = {name: pd.DataFrame(values, index=cells, columns=names) for name, values in tables.items()}
    return Fields(obs={keys.plasticity: plasticity}, obsm=obsm)


def _prior(prior: str | Mapping[str, float], names: list[str]) -> np.ndarray:
    if isinstance(prior, str):
        if prior != "uniform":
            raise ValueError(f"prior={prior!r} is not known. Choose 'uniform', or give a number for each state.")
        return np.full(len(names), 1.0 / len(names))
    if not isinstance(prior, Mapping) or set(prior) != set(names):
        raise ValueError(f"prior must have a number for each of the states {named(names)}; got {prior!r}.")
    for value in prior.values():
        check_positive("prior", value)
    weight = np.array([float(prior[name]) for name in names])
    return weight / weight.sum()


def _say_if_tied(membership: pd.DataFrame, states: pd.Series, decided: pd.Series) -> None:
    """A state on the way to another one cannot be told from it."""
    for name in membership.columns[decided.reindex(membership.columns) <= 0.5]:
        rival = membership[(states == name).to_numpy()].mean().drop(name).idxmax()
        warn(
            f"The cells of {name!r} are as much on their way to {rival!r}: {name!r} lies on the paths to it, or has no "
            "branch of its own. Leave one of the two out, with `names=` or from `terminal=` of "
            "`ep.tl.terminal_states`."
        )
