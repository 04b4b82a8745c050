"""Faithfulness of the landmark graphs: Swiss rolls against the true geodesic, and real cells by DEMaP.

    python benchmarks/landmarks.py [--seeds 10]

Rolls: 5,000 points, k = 15; row-wise Spearman of the embedding of all cells. Real cells (where ENTROPATH_SC_DATA names
a folder that holds them): 2,000 variable genes, log, 30 principal components, 1,000 landmarks.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import anndata as ad
import numpy as np
import scanpy as sc
from tqdm import tqdm

import entropath_sc as ep

REAL = ("paul15", "pancreas_e15", "palantir_marrow_cd34")


# How landmarks are joined: by the graph of cells, by the cells around them, or, as in the paper, by themselves.
SETTINGS = {
    f"{rule}, {how}": {"landmarks": rule, "neighbors": how == "graph of cells"}
    for rule in ("farthest", "kmeans")
    for how in ("graph of cells", "joined by cells")
} | {"paper": {"preset": "paper", "neighbors": False}}


def embedded(adata: ad.AnnData, n_landmarks: int, use_rep: str, *, neighbors: bool, random_state: int = 0, **options):
    fresh = ad.AnnData(obs=adata.obs[[]], obsm={"X_used": adata.X if use_rep == "X" else adata.obsm[use_rep]})
    if neighbors:
        ep.tl.merw_graph(fresh, use_rep="X_used")
    ep.tl.embedding(fresh, n_landmarks=n_landmarks, use_rep="X_used", random_state=random_state, **options)
    return fresh.obsm["X_entropath"]


def roll_score(density: str, n_landmarks: int, seed: int, options: dict) -> float:
    adata = ep.datasets.swiss_roll(5000, density=density, random_state=seed)
    layout = embedded(adata, n_landmarks, "X", random_state=seed, **options)
    return ep.metrics.geodesic_correlation(layout, ep.datasets.geodesic(adata))


def real_cells(path: Path) -> ad.AnnData:
    adata = ad.read_h5ad(path)
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    sc.pp.highly_variable_genes(adata, n_top_genes=2000)
    sc.pp.pca(adata, n_comps=30)
    sc.pp.neighbors(adata)
    return adata


def table(title: str, columns: list[str], rows: dict[str, list[str]]) -> None:
    print(f"\n{title}\n\n| landmarks, graph | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, values in rows.items():
        print(f"| {name} | {' | '.join(values)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    sizes = [(density, m) for density in ("uniform", "beta") for m in (500, 1500)]
    rows: dict[str, list[str]] = {}
    for name, setting in SETTINGS.items():
        rows[name] = []
        for density, m in sizes:
            seeds = tqdm(range(options.seeds), desc=f"{name}, {density} {m}", leave=False)
            scores = [roll_score(density, m, seed, setting) for seed in seeds]
            rows[name].append(f"{np.mean(scores):.3f} ± {np.std(scores):.3f}")
    table(f"Swiss roll, mean of {options.seeds} seeds", [f"{d}, M = {m}" for d, m in sizes], rows)

    folder = Path(os.environ.get("ENTROPATH_SC_DATA", "nowhere"))
    there = [name for name in REAL if (folder / f"{name}.h5ad").is_file()]
    if not there:
        print("\nNo real cells: ENTROPATH_SC_DATA names no folder that holds them.")
        return
    rows = {name: [] for name in SETTINGS}
    for data in tqdm(there, desc="real cells", leave=False):
        adata = real_cells(folder / f"{data}.h5ad")
        for name, setting in SETTINGS.items():
            layout = embedded(adata, 1000, "X_pca", **setting)
            mean, sd = ep.metrics.demap(adata.obsp["distances"], layout, n_repeats=20)
            rows[name].append(f"{mean:.3f} ± {sd:.3f}")
    table("Real cells, DEMaP, mean of 20 subsets of 500 cells, 1,000 landmarks", there, rows)


if __name__ == "__main__":
    main()
