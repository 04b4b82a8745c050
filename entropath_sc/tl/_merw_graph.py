from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import scanpy as sc
import scipy.sparse as sp
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY, Keys
from ..core import affinity as affinities
from ..core.perron import PerronPair, log_stationary, perron_pair, transition_matrix
from ._adata import (
    check_object,
    has_representation,
    keys_for,
    neighbor_distances,
    picked,
    record,
    representation,
    writable,
)
from ._checks import check_choice, check_count
from ._presets import PRESETS, with_preset

DISCONNECTED = ("bridge", "error")
# Where neighbours are searched and no size is given.
N_NEIGHBORS = 15


@dataclass(frozen=True)
class Graph:
    """A connected affinity over all cells, before it is written to an AnnData object."""

    affinity: sp.csr_matrix
    perron: PerronPair
    bridges: affinities.Bridges
    params: dict[str, Any]
    made_of: np.ndarray


def merw_graph(
    adata: AnnData,
    *,
    neighbors_key: str | None = None,
    use_rep: str | None = None,
    n_pcs: int | None = None,
    n_neighbors: int | None = None,
    kernel: str | None = None,
    decay: float = 40.0,
    disconnected: str = "bridge",
    transitions: bool = False,
    preset: str = "default",
    key_added: str = DEFAULT_KEY,
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Affinity and maximum entropy random walk over all cells.

    Reads the neighbour graph that :func:`scanpy.pp.neighbors` wrote. Where there is none, or where `use_rep`, `n_pcs`
    or `n_neighbors` is given, neighbours are searched in `use_rep` (by default `adata.obsm['X_pca']`), exactly up to
    about eight thousand cells and with pynndescent above.

    Parameters
    ----------
    adata
        Annotated data with neighbours or a representation.
    neighbors_key
        Where scanpy stored the neighbours: the `key_added` of `sc.pp.neighbors`. By default `'neighbors'`.
    use_rep
        Search neighbours in this field of `adata.obsm` (or `'X'`) instead of reading a graph.
    n_pcs
        Search neighbours in that many leading columns of the representation.
    n_neighbors
        Search neighbourhoods of this size, the cell itself included, as scanpy counts; by default 15 where there are
        none to read.
    kernel
        `'tempered'` (default), exp(-(d/s_ij)³) with s_ij half way between one length for all cells and the cells' own,
        which keeps lengths best; `'alpha_decay'`, exp(-(d/σ_i)^decay), and `'gaussian'`, exp(-d²/(σ_i σ_j)), adapt to
        the density, as in the paper (for cells and for generated manifolds). σ of a cell is the distance to the
        farthest of its neighbours.
    decay
        Exponent of the α-decay kernel.
    disconnected
        The walk is defined on one component. `'bridge'` joins several by their shortest bridges and warns; `'error'`
        refuses.
    transitions
        Also store the walk's transition matrix, for example for CellRank's `PrecomputedKernel`.
    preset
        `'paper'`: the kernel that the paper uses for cells, where none is given.
    key_added
        Prefix of the fields that are set.
    random_state
        Seed of the neighbour search.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    `None`, or the copy if `copy`. Sets the following fields:

    `adata.obsp['entropath_affinity']` : :class:`scipy.sparse.csr_matrix`
        Symmetric affinity over all cells.
    `adata.obsp['entropath_transitions']` : :class:`scipy.sparse.csr_matrix`
        Row-stochastic transition matrix, if `transitions`.
    `adata.obs['entropath_stationary']` : float
        Stationary mass of each cell; sums to one.
    `adata.uns['entropath']['graph']` : dict
        `lambda_max`, `residual` of the Perron pair, `component_sizes`, `bridges` with their `bridge_lengths`, and
        `made_of`, by which the neighbours or positions that it was made of are recognised.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=300)
    >>> ep.tl.merw_graph(adata)
    >>> float(round(adata.obs["entropath_stationary"].sum(), 6))
    1.0
    """
    check_object(adata)
    keys = keys_for(adata, key_added)
    start = logg.info("computing the maximum entropy random walk graph")
    graph = build_graph(
        adata,
        neighbors_key=neighbors_key,
        use_rep=use_rep,
        n_pcs=n_pcs,
        n_neighbors=n_neighbors,
        kernel=kernel,
        decay=decay,
        disconnected=disconnected,
        preset=preset,
        random_state=random_state,
    )
    adata = adata.copy() if copy else adata
    write_graph(adata, keys, graph, transitions=transitions)
    logg.info(
        "    finished",
        time=start,
        deep=f"added\n    {keys.affinity!r}, affinity (adata.obsp)\n    {keys.stationary!r}, mass (adata.obs)",
    )
    return adata if copy else None


def build_graph(
    adata: AnnData,
    *,
    neighbors_key: str | None = None,
    use_rep: str | None = None,
    n_pcs: int | None = None,
    n_neighbors: int | None = None,
    kernel: str | None = None,
    decay: float = 40.0,
    disconnected: str = "bridge",
    preset: str = "default",
    random_state: int = 0,
) -> Graph:
    """Read or search neighbours and make one connected graph of them; `adata` is only read."""
    (kernel,) = with_preset(preset, "merw_graph", kernel=kernel)
    check_choice("kernel", kernel, affinities.KERNELS)
    check_choice("disconnected", disconnected, DISCONNECTED)
    check_count("random_state", random_state, 0)
    if not (isinstance(decay, Real) and decay > 0):
        raise ValueError(f"decay={decay!r} must be positive.")
    searching = use_rep is not None or n_pcs is not None or n_neighbors is not None
    if searching and neighbors_key is not None:
        raise ValueError(
            "neighbors_key reads a graph, use_rep, n_pcs and n_neighbors search a new one: give one or the other, not "
            "both."
        )
    found = None if searching else neighbor_distances(adata, neighbors_key)
    if found is None:
        n_neighbors = N_NEIGHBORS if n_neighbors is None else n_neighbors
        check_count("n_neighbors", n_neighbors, 2)
        X, use_rep = representation(adata, use_rep, n_pcs)
        if adata.n_obs < n_neighbors + 1:
            raise ValueError(
                f"n_neighbors={n_neighbors} needs at least {n_neighbors + 1} cells, but adata has {adata.n_obs}. "
                "Lower `n_neighbors`."
            )
        distances = affinities.knn_distances(X, n_neighbors, random_state=random_state)
        made_of = _summary(X)
    else:
        distances, stored = found
        use_rep, n_pcs = _where_searched(adata, distances, stored)
        X = None if use_rep is None else representation(adata, use_rep, n_pcs)[0]
        n_neighbors = _size_of_neighbourhoods(distances, stored)
        made_of = _summary(distances.data)
    A, bridges = _connected(affinities.affinity(distances, kernel=kernel, decay=decay), X, disconnected)
    params = {
        "neighbors_key": None if found is None else neighbors_key or "neighbors",
        "use_rep": use_rep,
        "n_pcs": n_pcs,
        "n_neighbors": n_neighbors,
        "kernel": kernel,
        "decay": decay,
        "disconnected": disconnected,
        "preset": preset,
        "random_state": random_state,
    }
    return Graph(A, perron_pair(A), bridges, params, made_of)


def _summary(values: np.ndarray) -> np.ndarray:
    """By which neighbours or positions are recognised, in whatever order the cells are."""
    return np.array([np.count_nonzero(values), np.abs(values).sum(dtype=np.float64)])


def _where_searched(adata: AnnData, distances: sp.csr_matrix, stored: dict[str, Any]) -> tuple[str | None, int | None]:
    """The name and the columns of what scanpy searched its neighbours in, if it is still there."""
    n_pcs = None if stored.get("n_pcs") is None else int(stored["n_pcs"])
    if stored.get("use_rep"):
        candidates = [stored["use_rep"]]
    else:
        # Where none is named, scanpy searches in X itself if it has few columns, or if no components are asked for.
        candidates = ["X", "X_pca"] if n_pcs == 0 or adata.n_vars <= sc.settings.N_PCS else ["X_pca", "X"]
    # Of X scanpy takes all columns, whatever n_pcs says.
    places = [(name, None if name == "X" else n_pcs or None) for name in candidates]
    likely = places[0] if has_representation(adata, candidates[0]) else (None, None)
    if len(places) == 1:
        return likely
    # Genes may have been left out since, or a field deleted: what the distances were measured in has the last word.
    there = [place for place in places if has_representation(adata, place[0])]
    return next((place for place in there if _fits(adata, distances, *place)), likely)


def _fits(adata: AnnData, distances: sp.csr_matrix, name: str, n_pcs: int | None) -> bool:
    """Whether the distances of a cell to its neighbours are those in a representation."""
    cell = int(np.diff(distances.indptr).argmax())
    neighbors = slice(distances.indptr[cell], distances.indptr[cell + 1])
    rows = np.append(cell, distances.indices[neighbors])
    X = picked(adata, name, rows)[:, :n_pcs]
    return np.allclose(np.linalg.norm(X[1:] - X[0], axis=1), distances.data[neighbors], rtol=1e-3)


def described(sizes: np.ndarray) -> str:
    """How many components there are, and the sizes of the first."""
    return f"{len(sizes)} components, of {', '.join(map(str, sizes[:8]))}{', ...' if len(sizes) > 8 else ''}"


def _connected(A: sp.csr_matrix, X: np.ndarray | None, disconnected: str) -> tuple[sp.csr_matrix, affinities.Bridges]:
    n_components, label = affinities.connected_components(A, directed=False)
    if n_components > 1:
        sizes = np.sort(np.bincount(label))[::-1]
        found = f"The neighbour graph has {described(sizes)} cells."
        if disconnected == "error":
            raise ValueError(
                f"{found} The walk needs one: raise `n_neighbors` in sc.pp.neighbors, remove outlying cells, "
                "or pass disconnected='bridge'."
            )
        if X is None:
            raise ValueError(f"{found} To join them, name the representation to measure in with `use_rep=`.")
        warnings.warn(
            f"{found} They are joined by their shortest bridges; distances across a bridge are not to be trusted.",
            UserWarning,
            stacklevel=4,
        )
    return affinities.bridge_components(A, X)


def write_graph(adata: AnnData, keys: Keys, graph: Graph, *, transitions: bool = False) -> None:
    """Set the fields of a graph."""
    writable(adata)
    adata.obsp[keys.affinity] = graph.affinity
    if transitions:
        adata.obsp[keys.transitions] = transition_matrix(graph.affinity, graph.perron.log_psi)
    elif keys.transitions in adata.obsp:  # those of an earlier graph
        del adata.obsp[keys.transitions]
    adata.obs[keys.stationary] = np.exp(log_stationary(graph.affinity, graph.perron.log_psi))
    record(
        adata,
        keys,
        "merw_graph",
        {**graph.params, "transitions": transitions},
        graph={
            "lambda_max": graph.perron.lambda_max,
            "residual": graph.perron.residual,
            "made_of": graph.made_of,
            "component_sizes": graph.bridges.component_sizes,
            "bridges": graph.bridges.cells,
            "bridge_lengths": graph.bridges.lengths,
        },
    )


def read_graph(adata: AnnData, keys: Keys, use_rep: str | None = None) -> sp.csr_matrix | None:
    """The stored affinity; None where `merw_graph` has not run, or on something else than is there or asked for."""
    entry = adata.uns.get(keys.uns, {})
    made_in = entry.get("params", {}).get("merw_graph", {}).get("use_rep")
    if keys.affinity not in adata.obsp or use_rep not in (None, made_in):
        return None
    stored = entry.get("graph")
    if stored is None or int(np.sum(stored["component_sizes"])) != adata.n_obs:
        raise ValueError(
            f"adata.obsp[{keys.affinity!r}] was made for other cells: adata has been subset, or its "
            f"adata.uns[{keys.uns!r}] is gone. Run `ep.tl.merw_graph(adata)` again."
        )
    return None if is_outdated(adata, keys) else sp.csr_matrix(adata.obsp[keys.affinity])


def is_outdated(adata: AnnData, keys: Keys) -> bool:
    """Whether the neighbours or positions that the stored graph was made of have been replaced since."""
    entry = adata.uns.get(keys.uns, {})
    if keys.affinity not in adata.obsp or "made_of" not in entry.get("graph", {}):
        return False
    params = entry["params"]["merw_graph"]
    key, use_rep, n_pcs = (params.get(name) for name in ("neighbors_key", "use_rep", "n_pcs"))
    if key is not None:
        distances = adata.obsp.get(adata.uns.get(key, {}).get("distances_key", "distances"))
        values = distances.data if sp.issparse(distances) else None
    else:
        there = has_representation(adata, use_rep)
        X = representation(adata, use_rep, n_pcs and int(n_pcs), lazy=True)[0] if there else None
        values = X if isinstance(X, np.ndarray) else None
    return values is not None and not np.allclose(_summary(values), entry["graph"]["made_of"], rtol=1e-6)


def new_graph(
    adata: AnnData, keys: Keys, *, preset: str, use_rep: str | None = None, random_state: int = 0, stacklevel: int
) -> Graph:
    """The graph of cells that have none; or, with the options of the old one, of neighbours that are new."""
    if use_rep is not None or not is_outdated(adata, keys):
        return build_graph(adata, use_rep=use_rep, preset=preset, random_state=random_state)
    params = adata.uns[keys.uns]["params"]["merw_graph"]
    key = params.get("neighbors_key")
    warnings.warn(
        f"{'The representation is' if key is None else 'The neighbours are'} not what adata.obsp[{keys.affinity!r}] "
        "was made of. It is made again, with the same options.",
        UserWarning,
        stacklevel=stacklevel,
    )
    options = {name: params[name] for name in ("kernel", "decay", "disconnected", "preset", "random_state")}
    if key is not None:
        return build_graph(adata, neighbors_key=key, **options)
    n_pcs = params.get("n_pcs")
    return build_graph(adata, use_rep=params["use_rep"], n_pcs=n_pcs, n_neighbors=int(params["n_neighbors"]), **options)


def warn_of_kernel(params: dict[str, Any], preset: str, *, stacklevel: int) -> None:
    """Say so where the paper's method is asked for on a graph that is not the paper's."""
    if preset == "paper" and params["kernel"] == "tempered":
        warnings.warn(
            "preset='paper' runs on the graph that is there, which is not the paper's: its kernel is 'tempered'. Run "
            "`ep.tl.merw_graph(adata, preset='paper')` first.",
            UserWarning,
            stacklevel=stacklevel,
        )


def graph_params(adata: AnnData, keys: Keys, preset: str, use_rep: str | None = None) -> dict[str, Any]:
    """What the stored graph was made with, else what `merw_graph` would use; ``use_rep`` has the last word on where."""
    params = {"kernel": PRESETS[preset]["merw_graph"]["kernel"], "decay": 40.0, "n_neighbors": N_NEIGHBORS}
    stored = None if is_outdated(adata, keys) else adata.uns.get(keys.uns, {}).get("params", {}).get("merw_graph")
    found = neighbor_distances(adata, None) if stored is None and use_rep is None else None
    if stored is not None:
        params |= stored
    elif found is not None:
        params["use_rep"], params["n_pcs"] = _where_searched(adata, *found)
        params["n_neighbors"] = _size_of_neighbourhoods(*found)
    if use_rep is not None and use_rep != params.get("use_rep"):
        params |= {"use_rep": use_rep, "n_pcs": None}
    return params


def _size_of_neighbourhoods(distances: sp.csr_matrix, stored: dict[str, Any]) -> int:
    return int(stored.get("n_neighbors", np.diff(distances.indptr).max() + 1))
