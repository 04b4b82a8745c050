"""Faithfulness of the landmark graphs: Swiss rolls against the true geodesic, and real cells by DEMaP.

    python benchmarks/landmarks.py [--seeds 10] [--rules farthest kmeans] [--graphs compressed anchor knn]

Rolls: 5,000 points, k = 15; row-wise Spearman of the embedding of all cells. Real cells (where ENTROPATH_SC_DATA names
a folder that holds them): 2,000 variable genes, log, 30 principal components, 1,000 landmarks. The paper's row has its
kernels.
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


# The landmark route of the paper, as the last row.
PAPER = {"preset": "paper"}


def roll_score(density: str, n_landmarks: int, seed: int, options: dict[str, str]) -> float:
    adata = ep.datasets.swiss_roll(5000, density=density, random_state=seed)
    ep.tl.merw_graph(adata, use_rep="X", kernel="gaussian" if options == PAPER else None)
    ep.tl.embedding(adata, n_landmarks=n_landmarks, random_state=seed, **options)
    return ep.metrics.geodesic_correlation(adata.obsm["X_entropath"], ep.datasets.geodesic(adata))


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
    parser.add_argument("--rules", nargs="+", default=["farthest", "kmeans"])
    parser.add_argument("--graphs", nargs="+", default=["compressed", "anchor", "knn"])
    options = parser.parse_args()
    settings = {
        f"{rule}, {graph}": {"landmarks": rule, "landmark_graph": graph}
        for rule in options.rules
        for graph in options.graphs
    } | {"paper": PAPER}
    sizes = [(density, m) for density in ("uniform", "beta") for m in (500, 1500)]
    rows: dict[str, list[str]] = {}
    for name, setting in settings.items():
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
    rows = {name: [] for name in settings}
    for data in tqdm(there, desc="real cells", leave=False):
        adata = real_cells(folder / f"{data}.h5ad")
        for name, setting in settings.items():
            ep.tl.merw_graph(adata, preset=setting.get("preset", "default"))
            ep.tl.embedding(adata, n_landmarks=1000, **setting)
            mean, sd = ep.metrics.demap(adata.obsp["distances"], adata.obsm["X_entropath"], n_repeats=20)
            rows[name].append(f"{mean:.3f} ± {sd:.3f}")
    table("Real cells, DEMaP, mean of 20 subsets of 500 cells, 1,000 landmarks", there, rows)


if __name__ == "__main__":
    main()
