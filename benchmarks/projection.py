"""New cells: a fifth is held out of a fit, projected onto it, and compared with where a joint fit puts them.

    ENTROPATH_SC_DATA=... python benchmarks/projection.py [--splits 5] [--data paul15 marrow pancreas simulation]

Coordinates are compared after the similarity that brings the reference's own cells onto the joint fit, as a share of
the joint embedding's diameter. Beside each figure stands that of the reference's own cells, which a projection cannot
beat: how far the fit itself moves when a fifth of the cells is missing. Writes projection.md in benchmarks/results.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

import entropath_sc as ep

RESULTS = Path(__file__).parent / "results"


def similarity(source: np.ndarray, target: np.ndarray):
    """Rotation, reflection, scale and shift that bring ``source`` onto ``target``."""
    a, b = source.mean(axis=0), target.mean(axis=0)
    U, s, Vt = np.linalg.svd((source - a).T @ (target - b))
    scale = s.sum() / ((source - a) ** 2).sum()
    return lambda points: scale * (points - a) @ U @ Vt + b


def fitted(adata, root: str):
    ep.tl.merw_graph(adata, use_rep="X_pca")
    ep.tl.embedding(adata)
    ep.tl.pseudotime(adata, root=root)
    return adata


def split(adata, root: str, joint, seed: int) -> dict[str, float]:
    held = np.random.default_rng(seed).random(adata.n_obs) < 0.2
    held[adata.obs_names.get_loc(root)] = False
    ref, new = fitted(adata[~held].copy(), root), adata[held].copy()
    ep.tl.project(new, ref)
    own = ep.tl.project(ref, ref, copy=True)
    target = joint.obsm["X_entropath"]
    place = similarity(ref.obsm["X_entropath"], target[~held])
    diameter = pdist(target).max()

    def agreement(cells, joint, where) -> float:
        return float(spearmanr(cells.obs["entropath_pseudotime"], joint.obs["entropath_pseudotime"][where])[0])

    def error(cells, where) -> float:
        return float(np.median(np.linalg.norm(place(cells.obsm["X_entropath"]) - target[where], axis=1)) / diameter)

    return {
        "own cells back": float(np.abs(own.obsm["X_entropath"] - ref.obsm["X_entropath"]).max()),
        "own order back": float((own.obs["entropath_pseudotime"] - ref.obs["entropath_pseudotime"]).abs().max()),
        "error, new": error(new, held),
        "error, kept": error(ref, ~held),
        "order, new": agreement(new, joint, held),
        "order, kept": agreement(ref, joint, ~held),
        "remoteness, median new": float(new.obs["entropath_remoteness"].median()),
    }


def data(name: str):
    if name == "simulation":
        adata = ep.datasets.branching(3000, random_state=7)
        return adata, adata.uns["root"]
    adata = ep.datasets.load(name)
    return adata, adata.uns["manifest"]["root"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--data", nargs="+", default=["paul15", "marrow", "pancreas", "simulation"])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    RESULTS.mkdir(exist_ok=True)
    lines = []
    for name in options.data:
        adata, root = data(name)
        joint = fitted(adata.copy(), root)
        rows = []
        for seed in range(options.splits):
            print(f"{name}, split {seed + 1} of {options.splits}", file=sys.stderr, flush=True)
            rows.append(split(adata, root, joint, seed))
        if not lines:
            lines = [f"| data | splits | {' | '.join(rows[0])} |", "|" + "---|" * (len(rows[0]) + 2)]
        means = [np.mean([row[k] for row in rows]) for k in rows[0]]
        cells = [f"{m:.1e}" if k.startswith("own") else f"{m:.3f}" for k, m in zip(rows[0], means, strict=True)]
        lines.append(f"| {name} | {options.splits} | {' | '.join(cells)} |")
    (RESULTS / "projection.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
