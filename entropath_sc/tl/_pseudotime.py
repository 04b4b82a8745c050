from __future__ import annotations

from numbers import Integral

import numpy as np
import scipy.sparse as sp
from anndata import AnnData
from scanpy import logging as logg

from .._keys import DEFAULT_KEY, Keys
from ..core import diffusion as diffusing
from ..core import ordering
from ..core.projection import nearest_landmarks, weights
from ._adata import (
    Cells,
    cell_indices,
    check_choice,
    check_depth,
    check_object,
    keys_for,
    record,
    representation,
    writable,
)
from ._embedding import read_landmarks, stored_graph
from ._merw_graph import build_graph, read_graph, write_graph
from ._presets import with_preset
from ._progress import progress

# The normalised potential needs the self-similarity of each cell, so a dense matrix; above, that of the landmarks.
MOST_DENSE_CELLS = 5000


def pseudotime(
    adata: AnnData,
    root: Cells | None = None,
    *,
    terminal: Cells | None = None,
    depth: float | str | None = None,
    diffusion: str | None = None,
    potential: str | None = None,
    scaling: str = "minmax",
    preset: str = "default",
    key_added: str = DEFAULT_KEY,
    copy: bool = False,
) -> AnnData | None:
    """Order cells by the free energy of the paths from a root.

    Runs on the graph of all cells, and needs no embedding. :func:`~entropath_sc.tl.merw_graph` is run with its defaults
    where it has not been run. After an embedding with `landmark_graph='anchor'`, which needs no such graph, the
    landmarks carry the order, with the root spread over those near it.

    Parameters
    ----------
    adata
        Annotated data.
    root
        Where the order begins: a barcode, a list of barcodes, or `('obs column', 'category')` for all cells of a
        category. By default `adata.uns['iroot']`.
    terminal
        Cells where it ends, given in the same ways; late cells are pulled towards them.
    depth
        Diffusion depth. `'auto'` (default) is the last doubling that still keeps the order of the cells; `'embedding'`
        is the depth that :func:`~entropath_sc.tl.embedding` chose, as in the paper.
    diffusion
        `'heat'` (default), the walk in continuous time, or `'power'`, the paper's k steps.
    potential
        `'symmetric'` (default), -log of the path ensemble, averaged over neighbours once for each doubling of the depth
        beyond 4; `'merw'`, -log of the walk's transition probability as in the paper; `'normalised'`, -2 log of the
        cosine.
    scaling
        `'minmax'` or `'rank'`, to [0, 1].
    preset
        `'paper'`: the paper's potential (`'merw'`), diffusion (`'power'`) and depth (`'embedding'`), where they are not
        given.
    key_added
        Prefix of the fields that are set, and of the graph that is read.
    copy
        Return a copy instead of writing to `adata`.

    Returns
    -------
    `None`, or the copy if `copy`. Sets the following fields:

    `adata.obs['entropath_pseudotime']` : float
        Order in [0, 1]; 0 at the root.
    `adata.obs['entropath_potential']` : float
        The free energy that it came from.
    `adata.uns['entropath']['pseudotime']` : dict
        `roots` and `terminals` as barcodes, the `depth`, and the `times` and `agreement` it was chosen by.

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
    check_depth(depth, diffusion, ("auto", "embedding"))
    roots = _root_indices(adata, root)
    terminals = None if terminal is None else cell_indices(adata, terminal, "terminal")
    if terminals is not None and len(both := np.intersect1d(roots, terminals)):
        raise ValueError(f"{adata.obs_names[both[0]]!r} is given both as root and as terminal.")
    keys = keys_for(adata, key_added)
    params = {"depth": depth, "diffusion": diffusion, "potential": potential, "scaling": scaling, "preset": preset}
    if depth == "embedding":
        depth = _embedding_depth(adata, keys, diffusion)
    start = logg.info("computing the EntroPath pseudotime")

    new_graph = None
    landmarks = read_landmarks(adata, keys)
    A, P = read_graph(adata, keys), None
    too_large = potential == "normalised" and adata.n_obs > MOST_DENSE_CELLS
    if landmarks is not None and (A is None or too_large):
        A, lambda_max, P = stored_graph(landmarks), float(landmarks["lambda_max"]), _weights(adata, keys, landmarks)
    elif too_large:
        raise ValueError(
            f"potential='normalised' needs landmarks above {MOST_DENSE_CELLS} cells. "
            "Run `ep.tl.embedding(adata)` first, or use potential='symmetric'."
        )
    elif A is None:
        new_graph = build_graph(adata, preset=preset)
        A, lambda_max = new_graph.affinity, new_graph.perron.lambda_max
    else:
        lambda_max = float(adata.uns[keys.uns]["graph"]["lambda_max"])

    def from_cells(cells: np.ndarray, depth: float | str) -> ordering.Potential:
        return ordering.potential_from(
            A, lambda_max, _source(cells, adata.n_obs, P), kind=potential, diffusion=diffusion, depth=depth
        )

    def on_cells(found: ordering.Potential, cells: np.ndarray) -> np.ndarray:
        return ordering.anchored(found.values if P is None else P @ found.values, cells)

    found = from_cells(roots, depth)
    free_energy = on_cells(found, roots)
    order = ordering.scaled(free_energy, scaling)
    if terminals is not None:
        towards = ordering.scaled(on_cells(from_cells(terminals, found.depth), terminals), scaling)
        order = ordering.terminal_corrected(order, towards)

    adata = adata.copy() if copy else adata
    if new_graph is not None:
        write_graph(adata, keys, new_graph)
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
            "depth": found.depth,
            "times": found.times,
            "agreement": found.agreement,
        },
    )
    logg.info("    finished", time=start, deep=f"added\n    {keys.pseudotime!r}, order in [0, 1] (adata.obs)")
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
    if not isinstance(iroot, Integral) or not 0 <= iroot < adata.n_obs:
        raise ValueError(
            f"adata.uns['iroot'] is {iroot!r}, not a position among the {adata.n_obs} cells. Pass `root=` a barcode."
        )
    return np.array([int(iroot)])


def _embedding_depth(adata: AnnData, keys: Keys, diffusion: str) -> float:
    found = adata.uns.get(keys.uns, {}).get("depth")
    if found is None:
        raise ValueError("depth='embedding' is the depth of the embedding: run `ep.tl.embedding(adata)` first.")
    return int(np.ceil(found["chosen"])) if diffusion == "power" else float(found["chosen"])


def _source(cells: np.ndarray, n_cells: int, P: sp.csr_matrix | None) -> np.ndarray:
    """One on each of the cells; through landmarks, the weights of those cells."""
    if P is not None:
        return np.asarray(P[cells].sum(axis=0), dtype=np.float64).ravel()
    source = np.zeros(n_cells)
    source[cells] = 1.0
    return source


def _weights(adata: AnnData, keys: Keys, landmarks: dict) -> sp.csr_matrix:
    """The weights of all cells on the stored landmarks."""
    params = adata.uns[keys.uns]["params"]["embedding"]
    positions = landmarks["positions"]
    X, _ = representation(adata, params["use_rep"], positions.shape[1])
    with progress() as report:
        nearest = nearest_landmarks(X, positions, min(int(params["n_project"]), len(positions)), report=report)
    return weights(*nearest, landmarks["bandwidth"])
