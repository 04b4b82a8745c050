from __future__ import annotations

import warnings
from numbers import Integral
from os import PathLike

import numpy as np
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY, Keys
from ..core import diffusion as diffusing
from ..core import ordering
from ._adata import Cells, cell_indices, check_object, keys_for, record, writable
from ._checks import check_choice, check_depth, check_refine
from ._ground import GROUNDS, find_ground
from ._merw_graph import write_graph
from ._nodes import check_store
from ._presets import with_preset
from ._reference import ORDER, Reference, read_reference, stored_order


def pseudotime(
    adata: AnnData,
    root: Cells | None = None,
    *,
    terminal: Cells | None = None,
    depth: float | str | None = None,
    diffusion: str | None = None,
    potential: str | None = None,
    refine: float | str = "auto",
    scaling: str = "minmax",
    on: str = "auto",
    preset: str = "default",
    key_added: str = DEFAULT_KEY,
    store: str | PathLike | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Order cells by the free energy of the paths from a root.

    Needs no embedding. Up to 5,000 cells it runs on the graph of all cells; :func:`~entropath_sc.tl.merw_graph` is run
    with its defaults where it has not been run. Of more cells, and after an embedding that needed no such graph,
    landmarks carry the order, with the root spread over those near it.

    Parameters
    ----------
    adata
        Annotated data.
    root
        Where the order begins: a barcode, a list of barcodes, or `('obs column', 'category')` for all cells of a
        category. By default `adata.uns['iroot']`.
    terminal
        Cells where it ends, given in the same ways. The nearer a cell is to one, the later it is; branches without
        one stay as they are.
    depth
        Diffusion depth of the plain order: by default (`'auto'`) 4, less in proportion below 2,000 cells or landmarks;
        in steps, as many as lead from the root to the last cell. `'embedding'` is the depth that
        :func:`~entropath_sc.tl.embedding` chose, as in the paper.
    diffusion
        `'heat'` (default), the walk in continuous time, or `'power'`, the paper's k steps.
    potential
        `'symmetric'` (default), -log of the path ensemble; of a single root, on cells, to a quarter as the 30 nearest
        to it see it, since one cell has noise of its own. `'merw'`, -log of the walk's transition probability as in
        the paper; `'normalised'`, -2 log of the cosine. The last two are not refined.
    refine
        How much of a refined order to mix in, from 0 to 1. It leaves out components of the representation that are
        mostly noise, averages over neighbours, and measures how far expression moves instead of counting steps. A plain
        order stays closest to shortest paths between neighbours; a refined one is mostly closer to known stages, and
        more stable when other cells are sampled. It needs the representation behind the neighbours,
        `potential='symmetric'` and `diffusion='heat'`. `'auto'` (default): the more, the better the plain orders at
        this depth and at twice it agree, as they do where there is little noise; and also where there is so much that
        the plain order is no longer like its own mean over neighbours. 0 at a given `depth`, and on fewer than 100
        landmarks.
    scaling
        `'minmax'` or `'rank'`, to [0, 1].
    on
        What paths lead through: `'cells'`, all of them; or `'landmarks'`, those of the embedding or else 2,000, joined
        by the votes of all cells (the `'anchor'` graph of :func:`~entropath_sc.tl.embedding`), whose order all cells
        follow. In large graphs this is faster and mostly closer to the truth, as chance and single false neighbours
        count less. `'auto'` (default): landmarks above 5,000 cells, where the representation behind the neighbours is
        there and the potential is not the paper's.
    preset
        `'paper'`: the paper's potential (`'merw'`), diffusion (`'power'`) and depth (`'embedding'`), where they are not
        given; with `terminal`, its share of the way alone, which turns branches without a terminal cell around.
    key_added
        Prefix of the fields that are set, and of the graph that is read.
    store
        For a dask array: a zarr store that results are streamed to, so that an interrupted call can go on.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    `None`, or the copy if `copy`. Sets the following fields:

    `adata.obs['entropath_pseudotime']` : float
        Order in [0, 1]; 0 at the root.
    `adata.obs['entropath_potential']` : float
        The free energy that it came from; in the part that is refined, a length in its units.
    `adata.uns['entropath']['pseudotime']` : dict
        `roots` and `terminals` as barcodes, what the order was computed `on`, the `depth` of the plain order, how much
        of it was `refined` (0 to 1), and what that follows from by itself: the rank `agreement` with twice that depth,
        and the `smoothness`, that with its mean over neighbours.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> adata = ep.datasets.branching(n_cells=300)
    >>> ep.tl.pseudotime(adata, root=adata.uns["root"])
    >>> float(adata.obs.loc[adata.uns["root"], "entropath_pseudotime"])
    0.0
    """
    check_object(adata)
    depth, diffusion, potential = with_preset(
        preset, "pseudotime", depth=depth, diffusion=diffusion, potential=potential
    )
    check_choice("diffusion", diffusion, diffusing.DIFFUSIONS)
    check_choice("potential", potential, ordering.POTENTIALS)
    check_choice("scaling", scaling, ordering.SCALINGS)
    check_choice("on", on, GROUNDS)
    check_depth(depth, diffusion, ("auto", "embedding"))
    check_refine(refine, potential, diffusion)
    roots = _root_indices(adata, root)
    terminals = None if terminal is None else cell_indices(adata, terminal, "terminal")
    if terminals is not None and len(both := np.intersect1d(roots, terminals)):
        raise ValueError(f"{adata.obs_names[both[0]]!r} is given both as root and as terminal.")
    keys = keys_for(adata, key_added)
    params = {"depth": depth, "diffusion": diffusion, "potential": potential}
    params |= {"refine": refine, "scaling": scaling, "on": on, "preset": preset}
    if depth == "embedding":
        depth = _embedding_depth(adata, keys, diffusion)
    start = logg.info("computing the EntroPath pseudotime")

    reference = read_reference(adata, keys)
    is_plain = (potential, diffusion) == ("symmetric", "heat")
    ground = find_ground(
        adata,
        keys,
        reference,
        on=on,
        potential=potential,
        diffusion=diffusion,
        preset=preset,
        with_positions=is_plain,
        store=store,
    )
    check_store(store, ground.X)
    if refine not in (0, "auto") and ground.positions is None:
        raise ValueError(
            "To refine the order, the representation behind the neighbours is needed, and it is no longer in "
            "`adata`. Run `ep.tl.merw_graph(adata, use_rep=...)`, or leave `refine` out."
        )

    def from_cells(cells: np.ndarray, like: ordering.Potential | None = None) -> ordering.Potential:
        return ordering.potential_from(
            ground.graph,
            ground.lambda_max,
            ground.source(cells),
            X=ground.positions,
            kind=potential,
            diffusion=diffusion,
            depth=depth,
            refine=refine,
            means=ground.nodes is not None,
            like=like,
        )

    found = from_cells(roots)
    columns = [found.values]
    if terminals is not None:
        columns.append(from_cells(terminals, like=found).values)
    on_cells = ground.carried(np.stack(columns, axis=1), keys.potential, store)
    free_energy = ordering.anchored(on_cells[:, 0], roots)
    order = ordering.scaled(free_energy, scaling)
    if terminals is not None:
        towards = ordering.scaled(ordering.anchored(on_cells[:, 1], terminals), scaling)
        order = ordering.terminal_corrected(order, towards, published=preset == "paper")

    adata = adata.copy() if copy else adata
    if ground.new_graph is not None:
        write_graph(adata, keys, ground.new_graph)
    writable(adata)
    adata.obs[keys.pseudotime] = order
    adata.obs[keys.potential] = free_energy
    record(
        adata,
        keys,
        "pseudotime",
        params,
        pseudotime={
            "roots": adata.obs_names[roots].to_numpy(dtype=object),
            "terminals": None if terminals is None else adata.obs_names[terminals].to_numpy(dtype=object),
            "on": "cells" if ground.nodes is None else "landmarks",
            "depth": found.depth,
            "refined": found.refined,
            "agreement": found.agreement,
            "smoothness": found.smoothness,
        },
    )
    if reference is not None:
        is_linear = ground.nodes is reference.nodes and scaling == "minmax" and terminals is None
        _keep_order(adata, keys, reference, found.values if is_linear else None)
    logg.info(
        "    finished",
        time=start,
        deep=f"added\n    {keys.pseudotime!r}, order in [0, 1] (adata.obs), refined to {found.refined:.0%}",
    )
    return adata if copy else None


def _root_indices(adata: AnnData, root: Cells | None) -> np.ndarray:
    if root is not None:
        return cell_indices(adata, root, "root")
    if "iroot" not in adata.uns:
        raise ValueError(
            "No root: pass `root=` a barcode from adata.obs_names, a list of them, or ('obs column', 'category'); "
            "or set adata.uns['iroot'] to the position of a cell."
        )
    iroot = adata.uns["iroot"]
    if not isinstance(iroot, Integral) or not 0 <= int(iroot) < adata.n_obs:
        raise ValueError(
            f"adata.uns['iroot'] is {iroot!r}, not a position among the {adata.n_obs} cells. Pass `root=` a barcode."
        )
    return np.array([int(iroot)])


def _embedding_depth(adata: AnnData, keys: Keys, diffusion: str) -> float:
    found = adata.uns.get(keys.uns, {}).get("depth")
    if found is None:
        raise ValueError("depth='embedding' is the depth of the embedding: run `ep.tl.embedding(adata)` first.")
    return int(np.ceil(found["chosen"])) if diffusion == "power" else float(found["chosen"])


def _keep_order(adata: AnnData, keys: Keys, reference: Reference, potential: np.ndarray | None) -> None:
    """Keep the order beside the embedded cells, for cells that come later.

    Where landmarks carried it and it is linear in their ``potential``, that is kept, and gives all cells their order
    back (but to the root, which is set to 0); else that of the landmarks' cells.
    """
    order = stored_order(adata, keys, reference.barcodes, reference.nodes, reference.use_rep)
    if potential is not None:
        free_energy = adata.obs[keys.potential]
        linear = ordering.between(potential, free_energy.min(), free_energy.max())
        order = {"potential": potential, "pseudotime": linear}
    if not order:
        warnings.warn(
            "The cells that were embedded are not in adata.obs_names any more, or not under one name each: "
            "`ep.tl.project` will give new cells no order. Run `ep.tl.embedding(adata)` again.",
            UserWarning,
            stacklevel=3,
        )
    entry = adata.uns[keys.uns]
    kept = {name: value for name, value in entry["landmarks"].items() if name not in ORDER}
    adata.uns[keys.uns] = {**entry, "landmarks": kept | order}
