"""Ablations on Swiss rolls: the paper's (depth, neighbours, kernel, landmarks, noise), and two more.

    python benchmarks/ablations.py depth|neighbors|kernel|dissimilarity|landmarks|projection|noise
        [--seeds 5] [--preset paper]

Prints a table of the row-wise Spearman correlation with the true geodesic, mean ± s.d., and saves it (and, for the
depth, a figure) in benchmarks/results. With ``--preset paper`` the paper's Gaussian kernel, powers and landmarks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
from tqdm import tqdm

import entropath_sc as ep
from entropath_sc.core import diffusion as diffusing
from entropath_sc.core.model import dissimilarities
from entropath_sc.core.perron import perron_pair

RESULTS = Path(__file__).parent / "results"
DENSITIES = ("uniform", "beta")
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 500)


def paper_kernel(preset: str) -> str | None:
    return "gaussian" if preset == "paper" else None


def embedded(seed: int, density: str, preset: str, *, n_cells=2000, noise=0.05, graph=None, **options):
    """An embedded roll, and its score."""
    adata = ep.datasets.swiss_roll(n_cells, density=density, noise=noise, random_state=seed)
    ep.tl.merw_graph(adata, use_rep="X", **({"kernel": paper_kernel(preset)} | (graph or {})))
    ep.tl.embedding(adata, preset=preset, random_state=seed, **options)
    return adata, ep.metrics.geodesic_correlation("X_entropath", ep.datasets.geodesic(adata), adata=adata)


def neighbors(preset: str) -> dict[str, Callable]:
    return {
        f"k = {k}": lambda s, d, k=k: embedded(s, d, preset, graph={"n_neighbors": k})[1]
        for k in (5, 10, 15, 20, 30, 50)
    }


def kernel(preset: str) -> dict[str, Callable]:
    names = ("tempered", "gaussian", "alpha_decay")
    return {name: lambda s, d, name=name: embedded(s, d, preset, graph={"kernel": name})[1] for name in names}


def landmarks(preset: str) -> dict[str, Callable]:
    return {
        f"{rule}, M = {m}": lambda s, d, m=m, rule=rule: embedded(
            s, d, preset, n_cells=5000, n_landmarks=m, landmarks=rule
        )[1]
        for rule in ("farthest", "kmeans", "random")
        for m in (250, 500, 1000, 2000)
    }


def dissimilarity(preset: str) -> dict[str, Callable]:
    names = ("averaged", "balanced", "free_energy", "normalised")
    return {name: lambda s, d, name=name: embedded(s, d, preset, dissimilarity=name)[1] for name in names}


def projection(preset: str) -> dict[str, Callable]:
    """Landmarks that a cell is placed among, of 500 on 5,000 cells."""
    options = {"n_cells": 5000, "n_landmarks": 500}
    return {f"{k}": lambda s, d, k=k: embedded(s, d, preset, n_project=k, **options)[1] for k in (5, 10, 20, 50)}


def noise(preset: str) -> dict[str, Callable]:
    return {f"σ = {x}": lambda s, d, x=x: embedded(s, d, preset, noise=x)[1] for x in (0.0, 0.05, 0.2, 0.5, 1.0)}


def depth_curve(seed: int, density: str, preset: str) -> tuple[list[float], float]:
    """Distance-level correlation at each depth, and the depth that the rule chose; the last value is the deep limit."""
    adata, _ = embedded(seed, density, preset)
    used, A = adata.uns["entropath"]["params"]["embedding"], adata.obsp["entropath_affinity"]
    pair = perron_pair(A)
    rescaled, truth = A.toarray() / pair.lambda_max, ep.datasets.geodesic(adata)
    scores = []
    for k in DEPTHS:
        if used["diffusion"] == "power":
            S = diffusing.matrix_power(rescaled, k)
        else:
            S = diffusing.heat_kernel(rescaled, k, reach=len(rescaled))
        D = dissimilarities(A, S, diffusion=used["diffusion"], dissimilarity=used["dissimilarity"])
        scores.append(ep.metrics.geodesic_correlation(D, truth))
    # At infinite depth S is ψψᵀ, and all that is left of the dissimilarity is -log ψ.
    limit = -np.add.outer(pair.log_psi, pair.log_psi)
    np.fill_diagonal(limit, 0.0)
    return [*scores, ep.metrics.geodesic_correlation(limit, truth)], adata.uns["entropath"]["depth"]["chosen"]


def depth(preset: str, seeds: int) -> list[str]:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = ["| roll | chosen | " + " | ".join(map(str, DEPTHS)) + " | limit |", "|---" * (len(DEPTHS) + 3) + "|"]
    figure, ax = plt.subplots(figsize=(5, 3.2))
    for density in DENSITIES:
        found = [depth_curve(seed, density, preset) for seed in tqdm(range(seeds), desc=density, leave=False)]
        curves, chosen = np.array([f[0] for f in found]), [f[1] for f in found]
        means = " | ".join(f"{m:.3f}" for m in curves.mean(axis=0))
        lines.append(f"| {density} | {min(chosen):g} to {max(chosen):g} | {means} |")
        (line,) = ax.semilogx(DEPTHS, curves.mean(axis=0)[:-1], "o-", base=2, ms=3, label=density)
        ax.axvline(np.median(chosen), color=line.get_color(), ls=":", lw=1)
    ax.set(xlabel="depth (dotted: chosen)", ylabel="correlation with the geodesic")
    ax.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(RESULTS / f"ablation-depth-{preset}.png", dpi=120)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {f.__name__: f for f in (neighbors, kernel, dissimilarity, landmarks, projection, noise)}
    parser.add_argument("what", choices=["depth", *tables])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--preset", default="default", choices=["default", "paper"])
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if options.what == "depth":
        lines = depth(options.preset, options.seeds)
    else:
        lines = [f"| {options.what} | " + " | ".join(DENSITIES) + " |", "|---" * 3 + "|"]
        for name, function in tables[options.what](options.preset).items():
            cells = []
            for density in DENSITIES:
                seeds = tqdm(range(options.seeds), desc=f"{name}, {density}", leave=False)
                scores = [function(seed, density) for seed in seeds]
                cells.append(f"{np.mean(scores):.3f} ± {np.std(scores):.3f}")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines = [f"Ablation of {options.what}, preset {options.preset}, {options.seeds} seeds", "", *lines]
    (RESULTS / f"ablation-{options.what}-{options.preset}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
