"""Methods that find terminal states, fates and trees, each from the root and the neighbours of a simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from scipy.spatial.distance import cdist
from trees import Tree

import entropath_sc as ep


def true_ends(adata: AnnData) -> dict[str, list[str]]:
    """The ten latest cells of each true end branch."""
    of = {end: adata.obs[adata.obs["branch"] == end] for end in adata.uns["ends"]}
    return {end: list(cells["time"].nlargest(10).index) for end, cells in of.items()}


@dataclass(frozen=True)
class Found:
    """What a method finds: a cell of each state, fates for the true ends, branches, a tree and distances along it."""

    states: list[str]
    fates: pd.DataFrame | None = None
    branches: pd.Series | None = None
    tree: Tree | None = None
    distances: np.ndarray | None = None


def entropath(adata: AnnData) -> Found:
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    ep.tl.terminal_states(adata)
    found = list(adata.uns["entropath"]["terminal_states"]["cell"])
    branches, edges = adata.obs["entropath_branch"].astype(str), adata.uns["entropath"]["tree"]["edges"]
    tree = Tree(list(zip(edges["parent"], edges["child"], strict=True)), edges["length"].to_numpy())
    at = branches.map(dict(zip(edges["branch"], range(len(edges)), strict=True))).to_numpy()
    distances = None
    if adata.uns["compared"] is not None:
        position = adata.obs["entropath_branch_position"].to_numpy()
        distances = tree.distances(at[adata.uns["compared"]], position[adata.uns["compared"]])
    fates = None
    if len(adata.uns["ends"]) > 1:
        ep.tl.terminal_states(adata, terminal=true_ends(adata), n_states=0, n_resamples=0)
        ep.tl.fates(adata)
        fates = adata.obsm["entropath_fates"]
    return Found(found, fates, branches, tree, distances)


def of_fates(
    adata: AnnData, states: list[str], pseudotime: np.ndarray, found: pd.DataFrame, fates: pd.DataFrame | None
):
    """As dynbenchmark takes fates: a star from the root to each state, and cells on it by pseudotime and fates."""
    star = Tree([("root", str(name)) for name in found], np.ones(found.shape[1]))
    distances = None
    if adata.uns["compared"] is not None:
        along = (found.to_numpy() * (pseudotime / np.max(pseudotime))[:, None])[adata.uns["compared"]]
        distances = cdist(along, along, "cityblock")
    return Found(states, fates, found.idxmax(axis=1).astype(str), star, distances)


def palantir(adata: AnnData) -> Found:
    import palantir

    palantir.utils.run_diffusion_maps(adata, pca_key="X_pca")
    palantir.utils.determine_multiscale_space(adata)
    options = {"num_waypoints": 500, "use_early_cell_as_start": True}
    found = palantir.core.run_palantir(adata.copy(), adata.uns["root"], **options)
    fates = None
    if len(adata.uns["ends"]) > 1:
        given = pd.Series({cells[0]: end for end, cells in true_ends(adata).items()})
        fates = palantir.core.run_palantir(adata, adata.uns["root"], terminal_states=given, **options).branch_probs
    states = list(found.branch_probs.columns)
    return of_fates(adata, states, found.pseudotime.to_numpy(), found.branch_probs, fates)


def cellrank(adata: AnnData) -> Found:
    import cellrank as cr

    adata.uns["iroot"] = adata.obs_names.get_loc(adata.uns["root"])
    sc.tl.diffmap(adata)
    sc.tl.dpt(adata)
    kernel = cr.kernels.PseudotimeKernel(adata, time_key="dpt_pseudotime").compute_transition_matrix()
    estimator = cr.estimators.GPCCA(kernel)
    estimator.compute_schur(n_components=15)
    estimator.compute_macrostates()
    estimator.predict_terminal_states()
    states = estimator.terminal_states

    def probabilities() -> pd.DataFrame:
        estimator.compute_fate_probabilities(show_progress_bar=False)
        known = estimator.fate_probabilities
        return pd.DataFrame(known.X, index=adata.obs_names, columns=list(known.names))

    names = [str(states.index[states == name][0]) for name in states.cat.categories]
    found, fates = probabilities(), None
    if len(adata.uns["ends"]) > 1:
        estimator.set_terminal_states(true_ends(adata))
        fates = probabilities()
    return of_fates(adata, names, adata.obs["dpt_pseudotime"].to_numpy(), found, fates)


def scfates(adata: AnnData) -> Found:
    """As in its tutorial: a principal tree of 200 points in Palantir's multiscale space. It has no fates."""
    import palantir
    import scFates as scf

    scf.settings.verbosity = 0
    palantir.utils.run_diffusion_maps(adata, pca_key="X_pca")
    palantir.utils.determine_multiscale_space(adata)
    X = adata.obsm["X_multiscale"] = np.asarray(adata.obsm["DM_EigenVectors_multiscaled"])
    scf.tl.tree(adata, Nodes=200, use_rep="X_multiscale", ppt_lambda=100, ppt_sigma=0.025, ppt_nsteps=200, seed=1)
    graph = adata.uns["graph"]
    far = np.linalg.norm(graph["F"].T - X[adata.obs_names.get_loc(adata.uns["root"])], axis=1)
    scf.tl.root(adata, int(min(graph["tips"], key=lambda tip: far[tip])))
    scf.tl.pseudotime(adata, seed=1)
    graph, segments = adata.uns["graph"], adata.uns["graph"]["pp_seg"]
    tree = Tree([(str(a), str(b)) for a, b in segments[["from", "to"]].to_numpy()], segments["d"].to_numpy())
    at = adata.obs["seg"].astype(int).map(dict(zip(segments["n"].astype(int), range(len(segments)), strict=True)))
    begin = graph["pp_info"]["time"].loc[segments["from"]].to_numpy()
    position = np.clip((adata.obs["t"].to_numpy() - begin[at]) / tree.lengths[at], 0.0, 1.0)
    inner = {parent for parent, _ in tree.edges}
    last = [adata.obs["t"][(at == i).to_numpy()].idxmax() for i, (_, b) in enumerate(tree.edges) if b not in inner]
    chosen = adata.uns["compared"]
    distances = None if chosen is None else tree.distances(at.to_numpy()[chosen], position[chosen])
    return Found(last, None, adata.obs["seg"].astype(str), tree, distances)


METHODS = {f.__name__: f for f in (entropath, palantir, cellrank, scfates)}
