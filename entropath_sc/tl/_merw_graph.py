from __future__ import annotations

from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY
from ._adata import check_object, keys_for, write
from ._checks import check_choice, check_count, removed, settings_for
from ._graphs import find_source, make_graph, with_direction

DISCONNECTED = ("bridge", "error")
KERNEL = (
    "Use `decay=` and `bandwidth=`: 'gaussian' is decay=2, bandwidth='adaptive'; 'alpha_decay' is decay=40, "
    "bandwidth='larger'; 'tempered' is the default."
)


@removed(kernel=KERNEL)
def merw_graph(
    adata: AnnData,
    *,
    neighbors_key: str | None = None,
    use_rep: str | None = None,
    n_pcs: int | None = None,
    n_neighbors: int | None = None,
    decay: float | None = None,
    bandwidth: str | None = None,
    direction: str | None = None,
    strength: float | None = None,
    confidence: str | None = None,
    time_key: str | None = None,
    disconnected: str = "bridge",
    transitions: bool = False,
    preset: str = "default",
    key_added: str = DEFAULT_KEY,
    random_state: int = 0,
    copy: bool = False,
) -> AnnData | None:
    """Make the graph of all cells that paths lead through.

    Reads the neighbours that :func:`scanpy.pp.neighbors` wrote. Where there are none, or where you give `use_rep`,
    `n_pcs` or `n_neighbors`, it searches neighbours in `use_rep` (by default `adata.obsm['X_pca']`): exactly up to
    about eight thousand cells, with pynndescent above. The other tools make this graph when they need it; call this
    function to change its options.

    Parameters
    ----------
    adata
        Annotated data with neighbours or a representation.
    neighbors_key
        Where scanpy stored the neighbours: the `key_added` of `sc.pp.neighbors`. By default `'neighbors'`.
    use_rep
        Search neighbours in this field of `adata.obsm` (or `'X'`) instead of reading them.
    n_pcs
        Search neighbours in this many leading columns of the representation.
    n_neighbors
        Search neighbourhoods of this size, which counts the cell itself as scanpy does. By default 15, where there are
        none to read.
    decay
        The affinity of two cells is exp(-(d/s)^decay), with d their distance and s the bandwidth. A larger decay cuts
        off long edges more sharply. By default 3.
    bandwidth
        How s follows the density: `'fixed'` is one length for all cells, `'adaptive'` follows each cell's own
        neighbourhood, `'tempered'` (default) lies half way and keeps distances best. `'larger'` takes the larger of
        both cells' own lengths, as the paper's α-decay kernel does.
    direction
        Name of the velocities. In `adata.layers` they are velocities of genes, such as scVelo's `'velocity'`; the
        loadings of the PCA make them velocities of components. In `adata.obsm` they are in the space of the
        representation. In `adata.obsp` or `adata.uns` they are transitions from rows to columns: CellRank's kernels,
        scVelo's velocity graph, or couplings between time points. Pseudotime, terminal states, fates and
        :func:`~entropath_sc.tl.suggest_root` then follow the arrows. Coordinates do not.
    strength
        How much a step against the arrows costs, by default 64 for a typical step straight back. 0 is the undirected
        graph. A smaller value trusts velocities less; from 32 on it hardly matters.
    confidence
        Column of `adata.obs` with the weight of each cell's velocity, such as scVelo's `'velocity_confidence'`.
    time_key
        Column of `adata.obs` with the time when cells were collected: numbers, an ordered category, or names with one
        number, such as `'E8.5'`. A step back by one time point costs `strength`.
    disconnected
        The graph must be in one piece. `'bridge'` joins several by their shortest bridges and warns, `'error'` refuses.
    transitions
        Also store the transition matrix of the walk. The walk has no direction, so neither its stationary distribution
        nor terminal states that other tools find on it mean anything: for these, use
        `ep.tl.fates(adata, forward=True)`.
    preset
        `'paper'` takes the paper's kernel for cells (`decay=40`, `bandwidth='larger'`) and also computes the maximum
        entropy random walk of that graph.
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
        Symmetric affinity of neighbours.
    `adata.obsp['entropath_lengths']` : :class:`scipy.sparse.csr_matrix`
        Their distances.
    `adata.obsm['entropath_scales']` : array of shape (n_obs, 2)
        The bandwidth of each cell, and the factor that equalises its affinities.
    `adata.obsp['entropath_direction']` : :class:`scipy.sparse.csr_matrix`
        How far the step from row to column goes forward, with `direction` or `time_key`.
    `adata.obsp['entropath_transitions']` : :class:`scipy.sparse.csr_matrix`
        Row-stochastic transition matrix, if `transitions`.
    `adata.obs['entropath_stationary']` : float
        Stationary mass of each cell, with `preset='paper'`. By default the walk is equalised: all have the same mass.
    `adata.uns['entropath']['graph']` : dict
        `component_sizes`, `bridges` with their `bridge_lengths`, barcodes of cells far from all others (`outliers`),
        and a `fingerprint` of what the graph was made of.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=300)
    >>> ep.tl.merw_graph(adata)
    >>> adata.obsp["entropath_affinity"].shape
    (300, 300)
    """
    check_object(adata)
    keys = keys_for(adata, key_added, "merw_graph")
    settings = settings_for(preset, decay=decay, bandwidth=bandwidth)
    check_choice("disconnected", disconnected, DISCONNECTED)
    check_count("random_state", random_state, 0)
    start = logg.info("computing the graph of all cells")
    source = find_source(adata, neighbors_key, use_rep, n_pcs, n_neighbors)
    options = {"direction": direction, "strength": strength, "confidence": confidence, "time_key": time_key}
    source = with_direction(source, adata, options)
    extra = {"preset": preset, "random_state": random_state, "automatic": False}
    made = make_graph(source, settings, keys, disconnected=disconnected, transitions=transitions, extra=extra)
    done = write(adata, keys, made.fields, copy=copy)
    logg.info("    finished", time=start, deep=f"added\n    {keys.affinity!r}, affinity (adata.obsp)")
    return done
