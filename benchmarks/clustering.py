"""The paper's clustering table: k-means on the embeddings of a tree, of digits and of blood cells, against the labels.

    pip install -e ".[bench]"
    python benchmarks/clustering.py [--seeds 30] [--methods phate dtne ...]

Homogeneity and adjusted mutual information, mean ± s.d. over the seeds of k-means; each method embeds once. Digits are
scikit-learn's, blood cells scanpy's `pbmc68k_reduced`. Writes clustering.md in benchmarks/results.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import scanpy as sc
from methods import METHODS
from sklearn.datasets import load_digits

import entropath_sc as ep

RESULTS = Path(__file__).parent / "results"
SCORES = ("homogeneity", "ami")


def tree() -> tuple[np.ndarray, np.ndarray]:
    adata = ep.datasets.tree(random_state=42)
    return np.asarray(adata.X), adata.obs["branch"].to_numpy()


def digits() -> tuple[np.ndarray, np.ndarray]:
    found = load_digits()
    return found.data, found.target


def blood_cells() -> tuple[np.ndarray, np.ndarray]:
    adata = sc.datasets.pbmc68k_reduced()
    return np.asarray(adata.obsm["X_pca"], dtype=np.float64), adata.obs["bulk_labels"].astype(str).to_numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    shown = ["pca", "umap", "tsne", "diffusion_maps", "phate", "heatgeo", "dtne", "entropath_paper", "entropath"]
    parser.add_argument("--methods", nargs="+", default=shown, choices=list(METHODS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    RESULTS.mkdir(exist_ok=True)
    data = {function.__name__: function() for function in (tree, digits, blood_cells)}
    heads = [f"{name.replace('_', ' ')}, {score}" for name in data for score in SCORES]
    lines = ["| method | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for method in options.methods:
        cells = []
        for X, labels in data.values():
            layout = METHODS[method](X, 0).layout
            found = [ep.metrics.kmeans_agreement(layout, labels, random_state=seed) for seed in range(options.seeds)]
            for score in SCORES:
                values = [row[score] for row in found]
                cells.append(f"{np.mean(values):.3f} ± {np.std(values):.3f}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    (RESULTS / "clustering.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
