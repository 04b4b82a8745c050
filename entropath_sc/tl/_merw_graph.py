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

    The other tools make this graph when they need it. Call this function to change its options.

    It reads the neighbours that :func:`scanpy.pp.neighbors` wrote. If there are none, or if you give `use_rep`, `n_pcs`
    or `n_neighbors`, it searches for neighbours in `use_rep`. The search is exact up to about 8,000 cells and uses
    pynndescent above.

    Parameters
    ----------
    adata
        Annotated data with neighbours or a representation such as a PCA.
    neighbors_key
        Where scanpy stored the neighbours: the `key_added` of `sc.pp.neighbors`. Default: `'neighbors'`.
    use_rep
        Search for neighbours in this field of `adata.obsm` (or `'X'`) instead of reading them. Give an integrated
        representation here, such as `'X_scVI'`. Default: `'X_pca'`.
    n_pcs
        Search for neighbours in the first `n_pcs` columns of the representation. More columns keep finer differences
        and more noise. Default: all.
    n_neighbors
        Size of the neighbourhoods, which counts the cell itself as scanpy does. Raise it if the graph falls into
        pieces. A larger value smooths more, but can join branches that lie close together. Default: 15.
    decay
        The affinity of two cells is exp(-(d/s)^decay), with d their distance and s the bandwidth. A larger value cuts
        off long edges more sharply. There is rarely a reason to change it. Default: 3.
    bandwidth
        How the bandwidth follows the density of cells. `'fixed'` is one length for all cells. `'adaptive'` is a length
        for each cell, from its own neighbourhood. `'tempered'` (default) lies half way and keeps distances best.
        `'larger'` takes the larger length of the two cells, as the paper's α-decay kernel does.
    direction
        Name of the velocities. In `adata.layers` they are velocities of genes, such as scVelo's `'velocity'`; the
        loadings of the PCA make them velocities of components. In `adata.obsm` they are in the space of the
        representation. In `adata.obsp` or `adata.uns` they are transitions from rows to columns: CellRank's kernels,
        scVelo's velocity graph, or couplings between time points. Pseudotime, terminal states, fates and
        :func:`~entropath_sc.tl.suggest_root` then follow the arrows. The embedding does not.
    strength
        How much `direction` or `time_key` counts. 0 ignores them. The larger it is, the less weight have paths that go
        around a cycle against the arrows; from 32 on it hardly matters. Lower it if velocities are noisy. Default: 64.
    confidence
        Column of `adata.obs` with the weight of each cell's velocity, such as scVelo's `'velocity_confidence'`. A
        velocity of weight 0 is ignored. Only ratios matter: weights are divided by the largest.
    time_key
        Column of `adata.obs` with the time when cells were collected: numbers, an ordered category, or names with one
        number, such as `'E8.5'`. A step to a later time point goes forward, and one to an earlier goes back. How far
        apart the two times are does not count. With `direction`, both add up.
    disconnected
        What to do if the graph is in several pieces. `'bridge'` (default) joins them by their shortest bridges and
        warns. `'error'` stops instead, which suits a pipeline.
    transitions
        Also store the transition matrix of the walk. This walk has no direction: do not look for terminal states on
        it. For CellRank use `ep.tl.fates(adata, forward=True)` instead.
    preset
        `'paper'` takes the paper's kernel for cells (`decay=40`, `bandwidth='larger'`). It also computes the maximum
        entropy random walk of that graph.
    key_added
        Prefix of the fields that are set. Change it to keep several results in one object.
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
        The bandwidth of each cell, and a factor that gives every cell the same total affinity.
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
