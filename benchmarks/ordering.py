"""Pseudotime against the truth: simulations with their true time, real cells with shortest paths and known stages.

    pip install -e ".[bench]"
    python benchmarks/ordering.py [--seeds 10] [--first-seed 0] [--cells N] [--methods entropath dpt ...]
    python benchmarks/ordering.py --components 50 [--sample N]

Adds a line to benchmarks/results/ordering.csv for each data set and method that is not there yet, and writes
ordering.md: Spearman and Kendall correlations, for real cells also with the stages of known lineages (in
data_manifests), how far the order was refined, and what the plain one reaches at each depth.
Real cells come from ENTROPATH_SC_DATA, through data_manifests. With ``--components``, only real cells: with so many
principal components of their own, of all cells, or of a random sample of ``--sample`` of them for each seed.
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
from anndata import AnnData
from tqdm import tqdm

import entropath_sc as ep
from entropath_sc.datasets._load import read_manifest

RESULTS = Path(__file__).parent / "results"
COLUMNS = "dataset seed method spearman kendall refined agreement seconds".split()
FOUND = ["refined", "agreement"]
REAL = ("paul15", "marrow", "pancreas")
DEPTHS = 2.0 ** np.arange(-1, 7)


def simulated(seed: int, n_cells: int | None) -> tuple[AnnData, str, np.ndarray]:
    size = {} if n_cells is None else {"n_cells": n_cells}
    adata = ep.datasets.branching(**size, random_state=seed)
    sc.pp.neighbors(adata, random_state=0)
    return adata, adata.uns["root"], adata.obs["time"].to_numpy()


def real(name: str, seed: int, n_components: int | None, n_cells: int | None) -> tuple[AnnData, str, np.ndarray]:
    adata = ep.datasets.load(name)
    root = adata.uns["manifest"]["root"]
    if n_cells:
        sample = np.random.default_rng(seed).choice(adata.n_obs, size=n_cells, replace=False)
        adata = adata[np.union1d(sample, adata.obs_names.get_loc(root))].copy()
    if n_components:
        sc.pp.pca(adata, n_comps=n_components, random_state=0)
        sc.pp.neighbors(adata, random_state=0)
    return adata, root, ep.metrics.shortest_paths(adata.obsp["distances"], sources=[adata.obs_names.get_loc(root)])[0]


def stages(name: str, adata: AnnData) -> dict[str, np.ndarray]:
    """The stage of each cell along each known lineage; NaN outside it."""
    manifest = read_manifest(name)
    labels = adata.obs[manifest["label_key"]].astype(str)
    places = {
        lineage: {label: place for place, together in enumerate(order) for label in together}
        for lineage, order in manifest["lineages"].items()
    }
    return {f"{name}: {lineage}": labels.map(place).to_numpy(dtype=float) for lineage, place in places.items()}


def shortest_path(adata: AnnData, root: str) -> np.ndarray:
    return ep.metrics.shortest_paths(adata.obsp["distances"], sources=[adata.obs_names.get_loc(root)])[0]


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


def entropath_paper(adata: AnnData, root: str) -> np.ndarray:
    ep.tl.merw_graph(adata, preset="paper")
    ep.tl.embedding(adata, preset="paper")
    ep.tl.pseudotime(adata, root=root, preset="paper")
    return adata.obs["entropath_pseudotime"].to_numpy()


def entropath(adata: AnnData, root: str, refine: float | str = "auto", on: str = "auto") -> np.ndarray:
    ep.tl.pseudotime(adata, root=root, refine=refine, on=on)
    return adata.obs["entropath_pseudotime"].to_numpy()


def entropath_on_cells(adata: AnnData, root: str) -> np.ndarray:
    return entropath(adata, root, on="cells")


def entropath_plain(adata: AnnData, root: str) -> np.ndarray:
    return entropath(adata, root, refine=0.0)


def entropath_refined(adata: AnnData, root: str) -> np.ndarray:
    return entropath(adata, root, refine=1.0)


OWN = (entropath_paper, entropath_plain, entropath_refined, entropath_on_cells, entropath)
METHODS = {f.__name__: f for f in (shortest_path, dpt, dtne, palantir, *OWN)}


def depths(adata: AnnData, root: str, truth: np.ndarray) -> list[dict]:
    """This package's order at each depth."""
    rows = []
    for depth in DEPTHS:
        ep.tl.pseudotime(adata, root=root, depth=float(depth))
        rows.append(
            {"method": f"depth {depth:g}"} | ep.metrics.pseudotime_agreement("entropath_pseudotime", truth, adata=adata)
        )
    return rows


def run(path: Path, methods: list[str], jobs: list[tuple[str, int]], options: argparse.Namespace) -> None:
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    done = set(pd.read_csv(path)[["dataset", "seed", "method"]].itertuples(index=False, name=None))
    for dataset, seed in (bar := tqdm(jobs, desc="ordering")):
        missing = [m for m in methods if (dataset, seed, m) not in done]
        if not missing:
            continue
        if dataset == "branching":
            adata, root, truth = simulated(seed, options.cells)
        else:
            adata, root, truth = real(dataset, seed, options.components, options.sample)
        known = {} if dataset == "branching" else stages(dataset, adata)
        rows = []
        for method in missing:
            bar.set_postfix_str(f"{dataset} {seed}, {method}")
            copy = adata.copy()
            began = time.perf_counter()
            order = METHODS[method](copy, root)
            row = {"dataset": dataset, "method": method, "seconds": round(time.perf_counter() - began, 2)}
            for lineage, stage in known.items():
                inside = np.isfinite(stage)
                agreement = ep.metrics.pseudotime_agreement(order[inside], stage[inside])
                rows.append({"dataset": lineage, "method": method} | agreement)
            rows.append(row | ep.metrics.pseudotime_agreement(order, truth))
            if method == "entropath":
                rows[-1] |= {name: copy.uns["entropath"]["pseudotime"][name] for name in FOUND}
                rows += [{"dataset": dataset} | row for row in depths(copy, root, truth)]
        frame = pd.DataFrame(rows, columns=COLUMNS).assign(seed=seed)
        frame.to_csv(path, mode="a", header=False, index=False)


def span(values: pd.Series, form: str) -> str:
    """The smallest and the largest value, or the only one."""
    return " to ".join(dict.fromkeys(format(v, form) for v in (values.min(), values.max())))


def by_method(scores: pd.DataFrame, heads: dict[str, str]) -> list[str]:
    """A row a method, a column a data set."""
    lines = ["| method | " + " | ".join(heads.values()) + " |", "|---" * (len(heads) + 1) + "|"]
    for method in [m for m in METHODS if m in set(scores["method"])]:
        cells = []
        for dataset in heads:
            rows = scores[(scores["dataset"] == dataset) & (scores["method"] == method)]
            cells.append(f"{rows['spearman'].mean():.4f} / {rows['kendall'].mean():.3f}" if len(rows) else "")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def tables(scores: pd.DataFrame) -> list[str]:
    names = list(dict.fromkeys(scores["dataset"]))
    counts = {d: scores[scores["dataset"] == d]["seed"].nunique() for d in names}
    heads = {d: f"{d} ({counts[d]} seeds)" if counts[d] > 1 else d for d in names}
    lineages = {d: heads[d] for d in names if ":" in d}
    heads = {d: head for d, head in heads.items() if d not in lineages}
    lines = ["Spearman / Kendall with the true time (branching) or with shortest paths from the root (real cells):", ""]
    lines += by_method(scores, heads)
    if lineages:
        lines += ["", "Spearman / Kendall with the stages of known lineages:", "", *by_method(scores, lineages)]
    heading = ["data", "disagreement (1e-4)", "refined", *(f"{d:g}" for d in DEPTHS)]
    lines += [
        "",
        "Disagreement of the plain depth and twice that, how far the order was refined, and Spearman at each depth:",
        "",
    ]
    lines += ["| " + " | ".join(heading) + " |", "|---" * len(heading) + "|"]
    for dataset, head in heads.items():
        rows = scores[scores["dataset"] == dataset]
        found = rows.dropna(subset=FOUND)
        cells = [span(1e4 * (1 - found["agreement"]), ".1f"), span(found["refined"], ".2f")]
        cells += [f"{rows[rows['method'] == f'depth {d:g}']['spearman'].mean():.3f}" for d in DEPTHS]
        lines.append(f"| {head} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0, help="other than 0, the results go to a file of their own")
    parser.add_argument("--cells", type=int, help="simulations of this size only, in a file of their own")
    parser.add_argument("--components", type=int, help="real cells only, with so many components of their own")
    parser.add_argument("--sample", type=int, help="with --components: random samples of so many cells, one a seed")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.sample and not options.components:
        parser.error("--sample needs --components: a sample has components of its own")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    names = list(REAL) if os.environ.get("ENTROPATH_SC_DATA") and not options.cells else []
    if not names and not options.cells:
        print("No real cells: ENTROPATH_SC_DATA is not set.")
    jobs = [("branching", seed) for seed in seeds] + [(name, 0) for name in names]
    name = "ordering" if not options.first_seed else f"ordering-{options.first_seed}"
    if options.cells:
        name += f"-{options.cells}-cells"
    if options.components:
        jobs = [(name, seed) for name in names for seed in (seeds if options.sample else [0])]
        name += f"-{options.components}-components" + (f"-{options.sample}-sampled" if options.sample else "")
    path = RESULTS / f"{name}.csv"
    run(path, options.methods, jobs, options)
    lines = tables(pd.read_csv(path))
    (RESULTS / f"{name}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
