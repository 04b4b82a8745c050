"""Pseudotime against what is known: true time of simulations, stages of known lineages of real cells.

    pip install -e ".[bench]"
    python benchmarks/ordering.py [--seeds 10] [--first-seed 800] [--methods entropath dpt ...] [--data paul15-30 ...]

Data: ``branching-N``, simulations of this package with N cells, one for each seed; ``paul15-C``, ``marrow-C`` and
``pancreas-C``, real cells with C principal components (from ENTROPATH_SC_DATA, through data_manifests); ``beeline-X``,
simulations of the BEELINE benchmark (in the folder ``beeline`` there), from the earliest cell of the main component.
Adds a line to benchmarks/results/ordering.csv for each data set, seed and method that is not there yet, and writes
ordering.md: Spearman correlations, for real cells the mean over their lineages.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData, read_h5ad
from scipy.sparse.csgraph import connected_components
from scipy.stats import spearmanr
from tqdm import tqdm

import entropath_sc as ep
from entropath_sc.datasets._load import read_manifest

RESULTS = Path(__file__).parent / "results"
COLUMNS = "data seed method spearman seconds error".split()
FOLDER = Path(os.environ.get("ENTROPATH_SC_DATA", "nowhere"))
SIMULATED = ("branching-2000", "branching-300", "branching-100")
REAL = tuple(f"{name}-{n}" for name in ("paul15", "marrow", "pancreas") for n in (15, 30, 50))


def beeline() -> list[str]:
    return [f"beeline-{path.stem}" for path in sorted((FOLDER / "beeline").glob("*.h5ad"))]


def load(data: str, seed: int) -> tuple[AnnData, str, dict[str, np.ndarray]]:
    """Cells with neighbours, the root, and the truth of each lineage; NaN outside it."""
    name, size = data.split("-")
    if name == "branching":
        adata = ep.datasets.branching(int(size), random_state=seed)
        sc.pp.neighbors(adata, random_state=0)
        return adata, adata.uns["root"], {"time": adata.obs["time"].to_numpy()}
    if name == "beeline":
        adata = read_h5ad(FOLDER / "beeline" / f"{size}.h5ad")
        adata.obsm["X_pca"] = np.asarray(adata.X.toarray() if hasattr(adata.X, "toarray") else adata.X)
        sc.pp.neighbors(adata, use_rep="X_pca", random_state=0)
        label = connected_components(adata.obsp["distances"], directed=False)[1]
        main = np.flatnonzero(label == np.bincount(label).argmax())
        earliest = main[adata.obs["time"].to_numpy()[main].argmin()]
        return adata, adata.obs_names[earliest], {"time": adata.obs["time"].to_numpy()}
    adata = ep.datasets.load(name)
    sc.pp.pca(adata, n_comps=int(size), random_state=0)
    sc.pp.neighbors(adata, random_state=0)
    return adata, adata.uns["manifest"]["root"], stages(name, adata)


def stages(name: str, adata: AnnData) -> dict[str, np.ndarray]:
    """The stage of each cell along each known lineage; NaN outside it."""
    manifest = read_manifest(name)
    labels = adata.obs[manifest["label_key"]].astype(str)
    places = {
        lineage: {label: place for place, together in enumerate(order) for label in together}
        for lineage, order in manifest["lineages"].items()
    }
    return {lineage: labels.map(place).to_numpy(dtype=float) for lineage, place in places.items()}


def score(order: np.ndarray, truth: dict[str, np.ndarray]) -> float:
    """Mean over the lineages."""
    known = [np.isfinite(stage) & np.isfinite(order) for stage in truth.values()]
    return float(np.mean([spearmanr(order[k], t[k])[0] for k, t in zip(known, truth.values(), strict=True)]))


def dpt(adata: AnnData, root: str) -> np.ndarray:
    adata.uns["iroot"] = adata.obs_names.get_loc(root)
    sc.tl.diffmap(adata)
    sc.tl.dpt(adata)
    return adata.obs["dpt_pseudotime"].to_numpy()


def dtne(adata: AnnData, root: str) -> np.ndarray:
    from dtne import DTNE

    operator = DTNE(k_neighbors=15)
    operator.compute_embedding(X=np.asarray(adata.obsm["X_pca"], dtype=np.float64))
    return operator.order_cells(root_cells=[adata.obs_names.get_loc(root)])


def palantir(adata: AnnData, root: str) -> np.ndarray:
    import palantir

    palantir.utils.run_diffusion_maps(adata, pca_key="X_pca")
    palantir.utils.determine_multiscale_space(adata)
    palantir.core.run_palantir(adata, root, num_waypoints=500, use_early_cell_as_start=True)
    return adata.obs["palantir_pseudotime"].to_numpy()


def shortest_path(adata: AnnData, root: str) -> np.ndarray:
    return ep.metrics.shortest_paths(adata.obsp["distances"], sources=[adata.obs_names.get_loc(root)])[0]


def entropath(adata: AnnData, root: str) -> np.ndarray:
    ep.tl.pseudotime(adata, root=root)
    return adata.obs["entropath_pseudotime"].to_numpy()


def entropath_paper(adata: AnnData, root: str) -> np.ndarray:
    ep.tl.merw_graph(adata, preset="paper")
    ep.tl.pseudotime(adata, root=root, preset="paper")
    return adata.obs["entropath_pseudotime"].to_numpy()


METHODS = {f.__name__: f for f in (shortest_path, dpt, dtne, palantir, entropath_paper, entropath)}


def run(path: Path, jobs: list[tuple[str, int]], methods: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=COLUMNS)
    rows[rows["error"].isna()].to_csv(path, index=False)  # what failed is tried again
    done = set(rows[rows["error"].isna()][["data", "seed", "method"]].itertuples(index=False, name=None))
    for data, seed in (bar := tqdm(jobs, desc="ordering")):
        missing = [m for m in methods if (data, seed, m) not in done]
        if not missing:
            continue
        adata, root, truth = load(data, seed)
        for method in missing:
            bar.set_postfix_str(f"{data} {seed}, {method}")
            row = {"data": data, "seed": seed, "method": method}
            began = time.perf_counter()
            try:
                row["spearman"] = score(METHODS[method](adata.copy(), root), truth)
            except Exception as error:  # a peer that fails is a result too
                row["error"] = f"{type(error).__name__}: {error}".replace("\n", " ").replace(",", ";")[:200]
            row["seconds"] = round(time.perf_counter() - began, 2)
            pd.DataFrame([row], columns=COLUMNS).to_csv(path, mode="a", header=False, index=False)


def table(scores: pd.DataFrame, methods: list[str]) -> list[str]:
    names = list(dict.fromkeys(scores["data"]))
    lines = ["| data | seeds | " + " | ".join(methods) + " |", "|---" * (len(methods) + 2) + "|"]
    means: dict[str, list[float]] = {m: [] for m in methods}
    for name in names:
        part = scores[scores["data"] == name]
        found = [part[part["method"] == m]["spearman"].mean() for m in methods]
        for method, value in zip(methods, found, strict=True):
            means[method].append(value)
        cells = [f"**{v:.3f}**" if v == np.nanmax(found) else f"{v:.3f}" for v in found]
        lines.append(f"| {name} | {part['seed'].nunique()} | " + " | ".join(cells) + " |")
    return [*lines, "| mean | | " + " | ".join(f"{np.mean(means[m]):.3f}" for m in methods) + " |"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="of the simulations")
    parser.add_argument("--first-seed", type=int, default=800)
    parser.add_argument("--data", nargs="+", help="by default all that is there")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if not FOLDER.is_dir():
        print("No real cells: ENTROPATH_SC_DATA is not set.")
    names = options.data or [*SIMULATED, *(REAL if FOLDER.is_dir() else ()), *beeline()]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    jobs = [(name, seed) for name in names for seed in (seeds if name in SIMULATED else [0])]
    path = RESULTS / "ordering.csv"
    run(path, jobs, options.methods)
    scores = pd.read_csv(path)
    scores = scores[scores["data"].isin(names) & scores["seed"].isin([0, *seeds])]
    lines = ["Spearman correlation with the true time, or with the stages of known lineages:", ""]
    lines += table(scores, options.methods)
    (RESULTS / "ordering.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
