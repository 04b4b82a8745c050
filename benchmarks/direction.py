"""Pseudotime, roots and fates along velocities, against the truth of simulated flows and on the pancreas.

    pip install -e ".[bench]" scvelo cellrank
    python benchmarks/direction.py [--seeds 10] [--first-seed 900] [--cosines 0.3 0.7] [--peers] [--pancreas] [--rows]

Flows: a line, a tree that branches twice, a fork with a branch that bends back to the other, a cycle, and a loop with
an exit whose ends come close to each other; 1,000 cells in 30 dimensions with noise. Velocities have a known cosine
with the true ones. Measures, the mean over the seeds:

- ``order``: Spearman correlation of the pseudotime from the true earliest cell with the true time
- ``root``: share of the seeds whose root, found without help, lies in the first tenth of the true time
- ``fates``: with the true ends given, the mean probability of the right end: in the second half of each end branch of
  the tree, and on the straight branch of the fork before the other one meets it

``--peers`` adds scVelo's velocity pseudotime and CellRank's initial states. ``--pancreas`` runs scVelo's deterministic
velocities (data from ENTROPATH_SC_DATA). ``--rows`` compares the direct dissimilarity with that of rows. Prints tables.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr
from tqdm import tqdm

import entropath_sc as ep

DIMENSIONS = 30
# Parent, start and end of each branch of the tree, in true time.
TREE = [(None, 0.0, 0.35), (0, 0.35, 0.65), (0, 0.35, 1.0), (1, 0.65, 1.0), (1, 0.65, 1.0)]
# The fork: where it begins, the length of its straight branch, and the radius of the other one, which is half a circle.
FORK, STRAIGHT, RADIUS, GAP = 3.6, 8.4, 2.2, 1.0
ENDS = {"tree": [2, 3, 4], "fork": [1, 2]}
NOISE = {"line": 0.3, "tree": 0.3, "fork": 0.3, "cycle": 0.1, "loop": 0.3}
STAGES = {"Ductal": 0, "Ngn3 low EP": 1, "Ngn3 high EP": 2, "Pre-endocrine": 3}


def simulated(kind: str, cosine: float, seed: int, n_cells: int = 1000) -> AnnData:
    """Cells of a flow with noisy positions, and velocities of a known cosine with the true ones."""
    rng = np.random.default_rng(seed)
    branch = np.zeros(n_cells, dtype=int)
    frame = np.linalg.qr(rng.normal(size=(DIMENSIONS, 5)))[0].T
    if kind == "tree":
        lengths = np.array([end - start for _, start, end in TREE])
        branch = rng.choice(len(TREE), n_cells, p=lengths / lengths.sum())
        time, place = np.empty(n_cells), np.zeros((n_cells, DIMENSIONS))
        begins = {None: np.zeros(DIMENSIONS)}
        for i, (parent, start, end) in enumerate(TREE):
            inside = branch == i
            time[inside] = rng.uniform(start, end, size=inside.sum())
            place[inside] = begins[parent] + 12 * np.outer(time[inside] - start, frame[i])
            begins[i] = begins[parent] + 12 * (end - start) * frame[i]
        tangent = frame[branch]
    elif kind == "fork":
        lengths = np.array([FORK, STRAIGHT, np.pi * RADIUS - GAP])
        branch = rng.choice(3, n_cells, p=lengths / lengths.sum())
        along = rng.uniform(size=n_cells) * lengths[branch]
        time, angle = along + np.where(branch > 0, FORK, 0.0), np.pi - along / RADIUS
        bent = np.column_stack([FORK + RADIUS * (1 + np.cos(angle)), RADIUS * np.sin(angle)])
        straight = np.column_stack([time, np.zeros(n_cells)])
        place = np.where((branch == 2)[:, None], bent, straight) @ frame[:2]
        tangent = (
            np.where((branch == 2)[:, None], np.column_stack([np.sin(angle), -np.cos(angle)]), [1.0, 0.0]) @ frame[:2]
        )
    else:
        time = rng.uniform(size=n_cells)
        curve, along = CURVES[kind](time)
        place, tangent = curve @ frame[:3], along @ frame[:3]
        tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    across = rng.normal(size=place.shape)
    across -= (across * tangent).sum(axis=1, keepdims=True) * tangent
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    X = (place + NOISE[kind] * rng.normal(size=place.shape)).astype(np.float32)
    adata = AnnData(X, obs=pd.DataFrame({"time": time, "branch": branch}, index=[f"cell_{i}" for i in range(n_cells)]))
    adata.obsm["X_pca"] = X
    adata.uns["kind"] = kind
    # Where each cell lies on the circle of the cycle, noise included: no pseudotime can be better than that.
    adata.obs["angle"] = np.arctan2(X @ frame[1], X @ frame[0])
    adata.obsm["velocity_pca"] = (cosine * tangent + np.sqrt(1 - cosine**2) * across).astype(np.float32)
    return adata


def _line(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    zero = np.zeros_like(t)
    return np.column_stack([10 * t, 2 * np.sin(4 * t), zero]), np.column_stack([zero + 10, 8 * np.cos(4 * t), zero])


def _cycle(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    angle, zero = 2 * np.pi * t, np.zeros_like(t)
    return 3 * np.column_stack([np.cos(angle), np.sin(angle), zero]), np.column_stack(
        [-np.sin(angle), np.cos(angle), zero]
    )


def _loop(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nine tenths of a circle, then straight away from its plane."""
    around, zero = 0.9 * 2 * np.pi * np.minimum(1.5 * t, 1.0), np.zeros_like(t)
    out = 6 * np.maximum(3 * t - 2, 0.0)
    place = np.column_stack([2.5 * np.cos(around), 2.5 * np.sin(around), out])
    inside = np.column_stack([-np.sin(around), np.cos(around), zero])
    return place, np.where((out > 0)[:, None], [0.0, 0.0, 1.0], inside)


CURVES = {"line": _line, "cycle": _cycle, "loop": _loop}


def scored(adata: AnnData, directed: bool) -> dict[str, float]:
    """Order, root and fates of this package, with or without velocities."""
    time = adata.obs["time"]
    ep.tl.merw_graph(adata, direction="velocity_pca" if directed else None)
    ep.tl.pseudotime(adata, root=time.idxmin())
    found = {"order": spearmanr(adata.obs["entropath_pseudotime"], time)[0]}
    # Without a direction, the first of the ends of the tree is as good as any.
    first = ep.tl.suggest_root(adata, n_candidates=1).index[0]
    found["root"] = float((time < time[first]).mean() < 0.1)
    if ends := ENDS.get(adata.uns["kind"]):
        branch = adata.obs["branch"]
        last = {str(end): time[branch == end].nlargest(10).index.tolist() for end in ends}
        ep.tl.terminal_states(adata, terminal=last, n_states=0)
        ep.tl.fates(adata)
        fates = adata.obsm["entropath_fates"]
        sure = {end: (branch == end) & (time > 0.5 + 0.5 * TREE[end][1]) for end in ends}
        if adata.uns["kind"] == "fork":
            sure = {1: (branch == 1) & time.between(FORK + 0.5 * RADIUS, FORK + 2 * RADIUS)}
        found["fates"] = float(np.mean([fates[str(end)][cells].mean() for end, cells in sure.items()]))
    return found


def peers(adata: AnnData) -> dict[str, dict[str, float]]:
    """scVelo's velocity pseudotime from the same root, and CellRank's initial state."""
    import cellrank as cr
    import scvelo as scv

    # CellRank 2.0 calls it with names of arguments that numpy has since renamed.
    same = np.testing.assert_array_equal
    np.testing.assert_array_equal = lambda *args, **named: same(*(args or (named.pop("x"), named.pop("y"))), **named)
    time = adata.obs["time"]
    other = AnnData(adata.X.copy(), obs=adata.obs.copy(), obsm={"X_pca": adata.obsm["X_pca"]})
    other.layers["Ms"], other.layers["velocity"] = other.X.copy(), adata.obsm["velocity_pca"]
    other.var["velocity_genes"] = True
    sc.pp.neighbors(other, use_rep="X_pca")
    found: dict[str, dict[str, float]] = {}
    scv.tl.velocity_graph(other, show_progress_bar=False)
    scv.tl.velocity_pseudotime(other, root_key=int(time.to_numpy().argmin()))
    found["scVelo"] = {"order": spearmanr(other.obs["velocity_pseudotime"], time)[0]}
    kernel = cr.kernels.VelocityKernel(other).compute_transition_matrix(show_progress_bar=False)
    kernel = 0.8 * kernel + 0.2 * cr.kernels.ConnectivityKernel(other).compute_transition_matrix()
    estimator = cr.estimators.GPCCA(kernel)
    # A number of states can split a pair of complex eigenvalues, which CellRank refuses: then one state less.
    for most in range(8, 2, -1):
        try:
            estimator.fit(n_states=[3, most])
            estimator.predict_initial_states()
            first = time[estimator.initial_states.dropna().index].median()
            found["CellRank"] = {"root": float((time < first).mean() < 0.1)}
            break
        except ValueError:
            found["CellRank"] = {"root": 0.0}
    return found


def pancreas() -> None:
    """Root, order and stages of the pancreas, with scVelo's deterministic velocities."""
    import scvelo as scv

    adata = ep.datasets.load("pancreas")
    label = adata.obs[adata.uns["manifest"]["label_key"]].astype(str)
    stage = label.map(STAGES).fillna(len(STAGES))
    ep.tl.pseudotime(adata, root=adata.uns["manifest"]["root"])
    undirected = adata.obs["entropath_pseudotime"].copy()
    for layer in ("spliced", "unspliced"):
        sc.pp.normalize_total(adata, layer=layer)
    scv.pp.moments(adata, n_neighbors=None, n_pcs=None)
    scv.tl.velocity(adata, mode="deterministic")
    ep.tl.merw_graph(adata, direction="velocity")
    table = ep.tl.suggest_root(adata, groupby=adata.uns["manifest"]["label_key"])
    print(table.round(3).to_markdown())
    ep.tl.pseudotime(adata)
    directed = adata.obs["entropath_pseudotime"]
    print(directed.groupby(stage).mean().round(3).to_dict(), "mean pseudotime of the stages")
    print(f"Spearman with the stages: {spearmanr(directed, stage)[0]:.3f}, without velocities ", end="")
    print(f"{spearmanr(undirected, stage)[0]:.3f}; with each other {spearmanr(directed, undirected)[0]:.3f}")
    ep.tl.terminal_states(adata, groupby=adata.uns["manifest"]["label_key"])
    print("terminal states:", sorted(adata.obs["entropath_terminal"].dropna().unique()))


def rows(seeds: range) -> pd.DataFrame:
    """Geodesics of noisy flows in maps of the direct dissimilarity, of distances between its rows, and half way."""
    from entropath_sc.core import layout
    from entropath_sc.core.ensemble import PathEnsemble
    from entropath_sc.core.layout import without_own_noise
    from entropath_sc.tl._graphs import cell_graph, find_source

    found = []
    for kind in ("line", "cycle"):
        for noise in (0.1, 0.3, 0.5):
            for seed in seeds:
                NOISE[kind] = noise
                adata = simulated(kind, 1.0, seed)
                source = find_source(adata)
                graph = cell_graph(adata, ep._keys.Keys(), _default(), source, None, preset="default").graph
                D = without_own_noise(PathEnsemble.of(graph, 10.0).free_energies())
                R = squareform(pdist(D)) / np.sqrt(len(D))
                time = adata.obs["time"].to_numpy()
                truth = np.abs(time[:, None] - time)
                truth = np.minimum(truth, 1 - truth) if kind == "cycle" else truth
                for name, M in (("direct", D), ("half", D / D.std() + R / R.std()), ("rows", R)):
                    drawn = squareform(pdist(layout.smacof(M, layout.classical(M**2, 2)).coordinates))
                    scores = [np.mean([spearmanr(S[i], truth[i])[0] for i in range(0, len(S), 20)]) for S in (M, drawn)]
                    found.append({"kind": kind, "noise": noise, "of": name, "matrix": scores[0], "map": scores[1]})
    table = pd.DataFrame(found).pivot_table(index=["kind", "noise"], columns="of", values=["matrix", "map"])
    table.columns = [f"{of}, {what}" for what, of in table.columns]
    return table


def _default():
    from entropath_sc.core.pipeline import DEFAULT

    return DEFAULT


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=900)
    parser.add_argument("--cosines", type=float, nargs="+", default=[0.3, 0.7])
    parser.add_argument("--kinds", nargs="+", default=list(NOISE), choices=list(NOISE))
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--pancreas", action="store_true")
    parser.add_argument("--rows", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if options.pancreas:
        pancreas()
        return
    if options.rows:
        print(rows(seeds).round(3).reset_index().to_markdown(index=False))
        return
    found = []
    todo = [(kind, cosine, seed) for kind in options.kinds for cosine in options.cosines for seed in seeds]
    for kind, cosine, seed in tqdm(todo, disable=None):
        adata = simulated(kind, cosine, seed)
        results = {"undirected": scored(adata, False), "directed": scored(adata, True)}
        if kind == "cycle":
            angle = adata.obs["angle"] - adata.obs["angle"][adata.obs["time"].idxmin()]
            results["angle"] = {"order": spearmanr(angle % (2 * np.pi), adata.obs["time"])[0]}
        if options.peers:
            results |= peers(adata)
        found += [{"kind": kind, "cosine": cosine, "method": name, **result} for name, result in results.items()]
    table = pd.DataFrame(found).groupby(["kind", "cosine", "method"], sort=False).mean()
    print(table.round(3).reset_index().to_markdown(index=False))


if __name__ == "__main__":
    main()
