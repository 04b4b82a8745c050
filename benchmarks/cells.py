"""Every system of the paper on real cells: geometry, neighbourhoods, cell types and seconds.

    pip install -e ".[bench]" && pip install --no-deps heatgeo
    ENTROPATH_SC_DATA=folder python benchmarks/cells.py [--datasets paul15 ...] [--methods dtne ...]

Adds a line to benchmarks/results/cells.csv for each data set and method that is not there yet, and writes cells.md.
The data sets and their preprocessing (30 components) are those of data_manifests, and pbmc is scanpy's sample of blood
cells, which comes with it (50 components). Orders are in ordering.py.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import scanpy as sc
from methods import METHODS
from tqdm import tqdm

import entropath_sc as ep

RESULTS = Path(__file__).parent / "results"
COLUMNS = "dataset method demap demap_sd trustworthiness continuity ari nmi seconds error".split()


def loaded(dataset: str):
    if dataset != "pbmc":
        return ep.datasets.load(dataset)
    adata = sc.datasets.pbmc68k_reduced()
    sc.pp.neighbors(adata)
    adata.uns["manifest"] = {"label_key": "bulk_labels"}
    return adata


def score(adata, method: str) -> dict:
    X = np.asarray(adata.obsm["X_pca"], dtype=np.float64)
    began = time.perf_counter()
    layout = METHODS[method](X, 0).layout
    row = {"seconds": round(time.perf_counter() - began, 1)}
    row["demap"], row["demap_sd"] = ep.metrics.demap("distances", layout, n_repeats=20, adata=adata)
    row["trustworthiness"] = ep.metrics.trustworthiness(X, layout)
    row["continuity"] = ep.metrics.continuity(X, layout)
    agreement = ep.metrics.kmeans_agreement(layout, adata.uns["manifest"]["label_key"], adata=adata)
    return row | {"ari": agreement["ari"], "nmi": agreement["nmi"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["paul15", "marrow", "pancreas", "pbmc"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "cells.csv"
    rows = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=COLUMNS)
    rows = rows[rows["error"].isna()]  # what failed is tried again
    rows.to_csv(path, index=False)
    done = set(rows[["dataset", "method"]].itertuples(index=False, name=None))
    for dataset in options.datasets:
        missing = [m for m in options.methods if (dataset, m) not in done]
        adata = loaded(dataset) if missing else None
        for method in tqdm(missing, desc=dataset):
            try:
                row = score(adata, method)
            except Exception as error:  # a peer that fails is a result too
                row = {"error": f"{type(error).__name__}: {error}".replace("\n", " ").replace(",", ";")[:200]}
            row |= {"dataset": dataset, "method": method}
            pd.DataFrame([row], columns=COLUMNS).to_csv(path, mode="a", header=False, index=False)
    scores = pd.read_csv(path)
    lines = ["# Real cells"]
    for dataset in options.datasets:
        lines += [f"\n## {dataset}\n", "| method | " + " | ".join(COLUMNS[2:-1]) + " |", "|---" * 8 + "|"]
        for method in METHODS:
            for row in scores[(scores["dataset"] == dataset) & (scores["method"] == method)].itertuples():
                values = [
                    f"{getattr(row, c):.1f}" if c == "seconds" else f"{getattr(row, c):.3f}" for c in COLUMNS[2:-1]
                ]
                lines.append(f"| {method} | " + " | ".join(values if pd.isna(row.error) else [row.error]) + " |")
    (RESULTS / "cells.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
