"""Whether an order agrees with itself when what should not matter changes: Spearman correlations on the same cells.

    ENTROPATH_SC_DATA=... python benchmarks/stability.py [--data paul15 marrow pancreas]

Other numbers of principal components and of neighbours, samples of the cells, a rotation, one cell at 100 times its
distance from the centre, the nearest other cell as root, and the order before and after an embedding. The last line is
a simulation of 4,999 and of 5,001 cells. Writes stability.md in benchmarks/results.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import scanpy as sc
from anndata import AnnData
from scipy.stats import ortho_group, spearmanr

import entropath_sc as ep

RESULTS = Path(__file__).parent / "results"
N_SAMPLES = 3


def with_neighbors(adata: AnnData, X: np.ndarray, n_neighbors: int = 15) -> AnnData:
    fresh = AnnData(obs=adata.obs[[]].copy(), obsm={"X_pca": np.asarray(X, dtype=np.float32)})
    sc.pp.neighbors(fresh, n_neighbors=n_neighbors, use_rep="X_pca", random_state=0)
    return fresh


def order(adata: AnnData, root: str):
    ep.tl.pseudotime(adata, root=root)
    return adata.obs["entropath_pseudotime"]


def agreement(one, other) -> float:
    both = one.index.intersection(other.index)
    return float(spearmanr(one[both], other[both])[0])


def changes(name: str) -> dict[str, float]:
    adata = ep.datasets.load(name)
    root = adata.uns["manifest"]["root"]
    scores = {}
    for n in (15, 30, 50):
        sc.pp.pca(adata, n_comps=n, random_state=0)
        scores[n] = adata.obsm["X_pca"].copy()
    X = scores[30]
    plain = with_neighbors(adata, X)
    usual = order(plain, root)
    found = {f"{n} components": agreement(order(with_neighbors(adata, scores[n]), root), usual) for n in (15, 50)}
    for k in (10, 30):
        found[f"{k} neighbours"] = agreement(order(with_neighbors(adata, X, k), root), usual)
    for share in (0.8, 0.5):
        values = []
        for seed in range(N_SAMPLES):
            kept = np.random.default_rng(seed).random(adata.n_obs) < share
            kept[adata.obs_names.get_loc(root)] = True
            values.append(agreement(order(with_neighbors(adata[kept], X[kept]), root), usual))
        found[f"{share:.0%} of the cells"] = float(np.mean(values))
    rotation = ortho_group.rvs(X.shape[1], random_state=0)
    found["rotated"] = agreement(order(with_neighbors(adata, X @ rotation), root), usual)
    far = X.copy()
    outlier = int(np.random.default_rng(0).integers(adata.n_obs))
    far[outlier] *= 100
    found["one outlier"] = agreement(order(with_neighbors(adata, far), root).drop(adata.obs_names[outlier]), usual)
    at = adata.obs_names.get_loc(root)
    second = np.argsort(np.linalg.norm(X - X[at], axis=1))[1]
    found["next root"] = agreement(order(plain.copy(), adata.obs_names[second]), usual)
    embedded = with_neighbors(adata, X)
    ep.tl.embedding(embedded)
    found["after an embedding, largest difference"] = float((order(embedded, root) - usual).abs().max())
    return found


def across_sizes(seed: int = 800) -> float:
    adata = ep.datasets.branching(5001, random_state=seed)
    late = adata.obs["time"].argsort().to_numpy()[-2:]
    fewer = adata[np.setdiff1d(np.arange(5001), late)]
    orders = [order(with_neighbors(a, a.obsm["X_pca"]), adata.uns["root"]) for a in (adata, fewer)]
    return agreement(*orders)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["paul15", "marrow", "pancreas"])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    found = {name: changes(name) for name in options.data}
    lines = ["| what changes | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    for what in next(iter(found.values())):
        lines.append(f"| {what} | " + " | ".join(f"{found[name][what]:.4g}" for name in found) + " |")
    lines += ["", f"4,999 and 5,001 cells of one simulation: {across_sizes():.4f}"]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "stability.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
