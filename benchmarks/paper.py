"""The paper's configuration on its Swiss rolls, beside its published means (full rank, Gaussian kernel, k = 15).

python benchmarks/paper.py [--seeds 10] [--cells 2000]
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.manifold import trustworthiness
from tqdm import tqdm

import entropath_sc as ep
from entropath_sc.core.diffusion import POWER_FLOOR, free_energy, matrix_power

# Means over 30 seeds: Tables "Swiss roll, uniform", "Swiss roll, non-uniform" and "Swiss roll distance-level".
PUBLISHED = {"uniform": (0.877, 0.879, 0.961), "beta": (0.882, 0.875, 0.981)}


def one(density: str, n_cells: int, seed: int) -> tuple[float, float, float]:
    """Row-wise Spearman of the distance and of the embedding, and the embedding's trustworthiness at k = 50."""
    adata = ep.datasets.swiss_roll(n_cells, density=density, random_state=seed)
    ep.tl.merw_graph(adata, use_rep="X", kernel="gaussian", n_neighbors=15)
    ep.tl.embedding(adata, n_landmarks=n_cells, diffusion="power", depth="knee")
    found = adata.uns["entropath"]
    A = adata.obsp["entropath_affinity"].toarray() / found["graph"]["lambda_max"]
    D = free_energy(matrix_power(A, int(found["depth"]["chosen"])), floor=POWER_FLOOR)
    geodesic = cdist(adata.obsm["intrinsic"], adata.obsm["intrinsic"])
    Y = adata.obsm["X_entropath"]
    return (
        ep.metrics.geodesic_correlation(D, geodesic),
        ep.metrics.geodesic_correlation(Y, geodesic),
        float(trustworthiness(adata.X, Y, n_neighbors=50)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--cells", type=int, default=2000)
    options = parser.parse_args()
    print(f"{options.cells} points, mean ± s.d. of {options.seeds} seeds; published mean of 30 seeds in brackets\n")
    print("| roll | distance, Spearman | embedding, Spearman | trustworthiness |")
    print("|---|---|---|---|")
    for density, published in PUBLISHED.items():
        rows = [one(density, options.cells, seed) for seed in tqdm(range(options.seeds), desc=density, leave=False)]
        cells = [
            f"{mean:.3f} ± {sd:.3f} ({theirs:.3f})"
            for mean, sd, theirs in zip(np.mean(rows, axis=0), np.std(rows, axis=0), published, strict=True)
        ]
        print(f"| {density} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
