"""What each choice is worth: depth, kernel, bandwidth, neighbours, the walk, own noise, landmarks, noise in the data.

    python benchmarks/ablations.py depth|kernel|neighbors|walk|own-noise|landmarks|projection|noise [--seeds 3]

Prints a table and saves it in benchmarks/results. Embeddings: row-wise Spearman correlation of the layout with the true
geodesic, mean ± s.d. over the seeds, on two rolls and on the dense tree. Orders: Spearman with the true time, on
branching simulations and, where ENTROPATH_SC_DATA has them, on BEELINE's bifurcation with few early cells.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from ordering import FOLDER, load, score
from tqdm import tqdm

import entropath_sc as ep
from entropath_sc.core import layout as layouts
from entropath_sc.core.ensemble import PathEnsemble, step_costs
from entropath_sc.core.graph import Graph, graph_of_cells
from entropath_sc.core.layout import without_own_noise
from entropath_sc.core.neighbors import knn_distances
from entropath_sc.core.perron import perron_pair
from entropath_sc.core.pipeline import DEFAULT, N_NEIGHBORS, Settings

RESULTS = Path(__file__).parent / "results"
MANIFOLDS = {
    "uniform roll": lambda seed, **o: ep.datasets.swiss_roll(random_state=seed, **o),
    "Beta roll": lambda seed, **o: ep.datasets.swiss_roll(density="beta", random_state=seed, **o),
    "dense tree": lambda seed: ep.datasets.tree(
        n_branches=20, branch_length=100, n_dims=100, noise=4.0, random_state=seed
    ),
}
ORDERS = ("branching-2000", "branching-300", "beeline-BF0")
Ensemble = Callable[[Graph, float], PathEnsemble]


def ordinary(graph: Graph, depth: float) -> PathEnsemble:
    """The ordinary walk: transitions in proportion to the affinity, not equalised."""
    A = graph.affinity
    unit = float(np.median(graph.lengths))
    W = sp.csr_matrix((A.data * np.exp(-step_costs(graph.lengths, unit, depth)), A.indices, A.indptr), shape=A.shape)
    return PathEnsemble(W, np.asarray(A.sum(axis=1)).ravel(), np.ones(graph.n_nodes), unit, depth)


def merw(graph: Graph, depth: float) -> PathEnsemble:
    """The paper's maximum entropy walk: A/λ, whose Perron vector localises."""
    found = ordinary(graph, depth)
    return replace(found, degree=np.full(graph.n_nodes, perron_pair(graph.affinity).lambda_max))


def graph_of(X: np.ndarray, settings: Settings, n_neighbors: int) -> Graph:
    distances = knn_distances(X, n_neighbors)
    return graph_of_cells(distances, X, decay=settings.decay, bandwidth=settings.bandwidth)[0]


def variant(
    settings: Settings = DEFAULT,
    n_neighbors: int = N_NEIGHBORS,
    ensemble: Ensemble = PathEnsemble.of,
    finish: Callable[[np.ndarray], np.ndarray] = without_own_noise,
) -> list[Callable[[int], float]]:
    """A score for each manifold and for each order, as functions of the seed."""

    def embedded(name: str) -> Callable[[int], float]:
        def scored(seed: int) -> float:
            adata = MANIFOLDS[name](seed)
            D = finish(ensemble(graph_of(np.asarray(adata.X), settings, n_neighbors), settings.depth).free_energies())
            coordinates = layouts.smacof(D, layouts.classical(D**2, 2)).coordinates
            return ep.metrics.geodesic_correlation(coordinates, ep.datasets.geodesic(adata))

        return scored

    def ordered(name: str) -> Callable[[int], float]:
        def scored(seed: int) -> float:
            adata, root, truth = load(name, seed)
            graph = graph_of(np.asarray(adata.obsm["X_pca"], dtype=np.float64), settings, n_neighbors)
            return score(ensemble(graph, settings.depth).first_passages(adata.obs_names.get_indexer([root])), truth)

        return scored

    there = [name for name in ORDERS if not name.startswith("beeline") or (FOLDER / "beeline").is_dir()]
    return [*(embedded(name) for name in MANIFOLDS), *(ordered(name) for name in there)]


def through_landmarks(n_landmarks: int, neighbors: bool = True, noise: float = 0.05, **options) -> list:
    """Rolls of 5,000 cells through the public functions."""

    def embedded(name: str) -> Callable[[int], float]:
        def scored(seed: int) -> float:
            adata = MANIFOLDS[name](seed, n_cells=5000, noise=noise)
            if neighbors:
                ep.tl.merw_graph(adata, use_rep="X")
            ep.tl.embedding(adata, n_landmarks=n_landmarks, use_rep="X", random_state=seed, **options)
            return ep.metrics.geodesic_correlation(adata.obsm["X_entropath"], ep.datasets.geodesic(adata))

        return scored

    return [embedded("uniform roll"), embedded("Beta roll")]


def noisy(noise: float) -> list:
    def embedded(name: str, preset: str) -> Callable[[int], float]:
        def scored(seed: int) -> float:
            adata = MANIFOLDS[name](seed, noise=noise)
            kernel = {"decay": 2, "bandwidth": "adaptive"} if preset == "paper" else {}
            ep.tl.merw_graph(adata, use_rep="X", preset=preset, **kernel)
            ep.tl.embedding(adata, preset=preset)
            return ep.metrics.geodesic_correlation(adata.obsm["X_entropath"], ep.datasets.geodesic(adata))

        return scored

    return [embedded(name, preset) for preset in ("default", "paper") for name in ("uniform roll", "Beta roll")]


def tables() -> dict[str, dict[str, Callable[[], list]]]:
    return {
        "depth": {
            f"{t:g}": lambda t=t: variant(replace(DEFAULT, depth=t)) for t in (0.5, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
        },
        "kernel": {
            f"{bandwidth}, decay {decay:g}": lambda decay=decay, bandwidth=bandwidth: variant(
                replace(DEFAULT, decay=decay, bandwidth=bandwidth)
            )
            for bandwidth, decay in (
                *(("tempered", d) for d in (2.0, 3.0, 4.0)),
                ("fixed", 3.0),
                ("adaptive", 3.0),
                ("adaptive", 2.0),
                ("larger", 40.0),
            )
        },
        "neighbors": {f"{k}": lambda k=k: variant(n_neighbors=k) for k in (5, 10, 15, 20, 30, 50)},
        "walk": {
            "equalised": lambda: variant(),
            "ordinary walk": lambda: variant(ensemble=ordinary),
            "maximum entropy walk": lambda: variant(ensemble=merw),
        },
        "own-noise": {"taken off": lambda: variant(), "left in": lambda: variant(finish=lambda D: D)},
        "landmarks": {
            f"{m}, {how}": lambda m=m, how=how: through_landmarks(m, how == "graph of cells")
            for m in (250, 500, 1000, 2000)
            for how in ("graph of cells", "joined by cells")
        },
        "projection": {f"{k}": lambda k=k: through_landmarks(500, n_project=k) for k in (5, 10, 20, 50)},
        "noise": {f"{s:g}": lambda s=s: noisy(s) for s in (0.0, 0.05, 0.2, 0.5, 1.0)},
    }


def heads(what: str) -> list[str]:
    if what == "noise":
        return [f"{name}, {preset}" for preset in ("default", "paper") for name in ("uniform roll", "Beta roll")]
    if what in ("landmarks", "projection"):
        return ["uniform roll", "Beta roll"]
    return [*MANIFOLDS, *(f"order, {name}" for name in ORDERS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(tables()))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=100)
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    rows = {name: make() for name, make in tables()[options.what].items()}
    width = max(map(len, rows.values()))
    names = heads(options.what)[:width]
    lines = [f"| {options.what} | " + " | ".join(names) + " |", "|---" * (width + 1) + "|"]
    for name, scores in rows.items():
        cells = []
        for head, scored in zip(names, scores, strict=True):
            n_seeds = 1 if "beeline" in head else options.seeds
            seeds = tqdm(range(options.first_seed, options.first_seed + n_seeds), desc=f"{name}, {head}", leave=False)
            values = [scored(seed) for seed in seeds]
            cells.append(f"{np.mean(values):.3f}" + (f" ± {np.std(values):.3f}" if n_seeds > 1 else ""))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    lines = [f"Ablation of {options.what}, {options.seeds} seeds", "", *lines]
    (RESULTS / f"ablation-{options.what}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
