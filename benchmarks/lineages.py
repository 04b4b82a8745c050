"""Terminal states, fates and branches against the truth of simulated trees, with peers in the same run.

    pip install -e ".[bench]" cellrank scFates
    python benchmarks/lineages.py [--seeds 10] [--first-seed 900] [--methods entropath ...] [--kinds ...] [--cells 1000]
    python benchmarks/lineages.py --large
    ENTROPATH_SC_DATA=... python benchmarks/lineages.py --real

Kinds: a line, even, uneven and rare bifurcations (the rare branch has about 1 % of the cells), the tree of
``ep.datasets.branching``, trees of 3 to 8 ends, a cycle, and a cloud without a trajectory; 300 cells in ``small``,
3,000 in trees, else 2,000, or ``--cells``. All start from the true earliest cell, on scanpy's neighbours. Measures,
each the mean over the seeds:

- ``states``: share of the seeds with the right number of terminal states
- ``early``: terminal states per seed in the first half of the true time
- ``fates``: with the true ends given (their ten latest cells), share of the cells in the second half of an end branch
  whose largest fate is its own
- ``trunk``: with the same ends, mean distance from even fates, over the first three quarters of the trunk
- ``branches``: F1 of branches as in dynbenchmark: harmonic mean of the recovery and the relevance by Jaccard index
- ``HIM``: similarity of the found tree and the true one, as in dynbenchmark (see trees.py)
- ``geodesic``: Spearman correlation of distances along the found tree and the true one, among 500 cells

Palantir and CellRank have no tree. As in dynbenchmark, theirs is a star from the root to each state, and a cell lies on
it by its pseudotime times its fates. A run that fails counts as 0 where more is better.

Adds a line to benchmarks/results/lineages.csv for each that is not there yet, and writes lineages.md. ``--large`` times
100,000 cells of ``ep.datasets.branching`` instead: after the graph, terminal states, fates and trends of 2,000 genes.
``--real`` prints the terminal states of marrow, pancreas and Paul15 with several numbers of genes, components and
neighbours, and those of BEELINE's simulations from their earliest cell.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from itertools import product
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from lineage_methods import METHODS, Found
from tqdm import tqdm
from trees import Tree, him

import entropath_sc as ep

RESULTS = Path(__file__).parent / "results"
MEASURES = ["states", "early", "fates", "trunk", "branches", "HIM", "geodesic"]
COLUMNS = ["kind", "seed", "method", "cells", "n_found", *MEASURES, "seconds", "error"]
COMPARED = 500
Segments = list[tuple[str, str | None, float, float]]
FORK: Segments = [("trunk", None, 0.0, 0.4), ("A", "trunk", 0.4, 1.0), ("B", "trunk", 0.4, 1.0)]
TWICE: Segments = [
    ("trunk", None, 0.0, 0.35),
    ("progenitor", "trunk", 0.35, 0.65),
    ("A", "trunk", 0.35, 1.0),
    ("B", "progenitor", 0.65, 1.0),
    ("C", "progenitor", 0.65, 1.0),
]
KINDS = {
    "line": "line",
    "even": "even fork",
    "uneven": "uneven fork (15 % density)",
    "rare": "rare branch (1 % of the cells)",
    "branching": "`ep.datasets.branching`",
    "small": "the same, 300 cells",
    "tree-3": "tree of 3 ends",
    "tree-4": "tree of 4 ends",
    "tree-5": "tree of 5 ends",
    "tree-8": "tree of 8 ends",
    "cycle": "cycle",
    "cloud": "cloud",
}


def random_tree(n_ends: int, rng: np.random.Generator) -> Segments:
    """Splits of the branch that ends first, until there are enough; end branches are at least 0.3 long."""
    segments: Segments = [("trunk", None, 0.0, 0.25)]
    ends = [0]
    while len(ends) < n_ends:
        first = min(ends, key=lambda i: segments[i][3])
        ends.remove(first)
        name, _, _, begin = segments[first]
        for _ in range(2):
            ends.append(len(segments))
            segments.append((f"branch {len(segments)}", name, begin, begin + rng.uniform(0.15, 0.3)))
    for i in ends:
        name, parent, begin, end = segments[i]
        segments[i] = (name, parent, begin, max(end, begin + 0.3))
    return segments


def simulate(kind: str, seed: int, n_cells: int | None = None, n_genes: int = 500) -> AnnData:
    """Counts along segments, as in ``ep.datasets.branching``; ``uns['ends']`` names the true end branches."""
    rng = np.random.default_rng(seed)
    if kind == "small" or n_cells is None:
        n_cells = 300 if kind == "small" else 3000 if kind.startswith("tree") else 2000
    tree = compared = distances = None
    base = rng.normal(scale=0.5, size=n_genes)
    if kind in ("cycle", "cloud"):
        when = rng.uniform(size=n_cells)
        angle, axes = 2 * np.pi * when, rng.normal(size=(2, n_genes))
        log_rate = base + (np.outer(np.cos(angle), axes[0]) + np.outer(np.sin(angle), axes[1])) * (kind == "cycle")
        branch, ends = np.full(n_cells, kind), ["cycle"] if kind == "cycle" else []
    else:
        segments: Segments = {"line": [("line", None, 0.0, 1.0)], "branching": TWICE, "small": TWICE}.get(kind, FORK)
        if kind.startswith("tree"):
            segments = random_tree(int(kind.split("-")[1]), rng)
        density = {"uneven": [1, 1, 0.15], "rare": [1, 1, 0.028], "branching": [1, 1, 1, 0.5, 0.25]}.get(kind)
        length = np.array([end - begin for _, _, begin, end in segments])
        share = length * (np.ones(len(length)) if density is None else np.asarray(density))
        at = rng.choice(len(segments), size=n_cells, p=share / share.sum())
        along, direction = rng.uniform(size=n_cells), rng.normal(scale=3.0, size=(len(segments), n_genes))
        begins, log_rate, when = {None: base}, np.empty((n_cells, n_genes)), np.empty(n_cells)
        for i, (name, parent, begin, end) in enumerate(segments):
            inside = at == i
            when[inside] = begin + (end - begin) * along[inside]
            log_rate[inside] = begins[parent] + np.outer(when[inside] - begin, direction[i])
            begins[name] = begins[parent] + (end - begin) * direction[i]
        tree = Tree([(parent or "root", name) for name, parent, *_ in segments], length)
        compared = rng.choice(n_cells, size=min(COMPARED, n_cells), replace=False)
        distances = tree.distances(at[compared], along[compared])
        branch = np.array([name for name, *_ in segments])[at]
        ends = [name for name, *_ in segments if name not in {parent for _, parent, *_ in segments}]
    rate = np.exp(log_rate)
    rate *= rng.lognormal(np.log(2.0 * n_genes), 0.3, size=(n_cells, 1)) / rate.sum(axis=1, keepdims=True)
    adata = AnnData((rng.poisson(rate) * (rng.uniform(size=rate.shape) >= 0.1)).astype(np.float32))
    adata.obs_names = [f"cell_{i}" for i in range(n_cells)]
    adata.obs["time"], adata.obs["branch"] = when, branch
    adata.uns.update(root=adata.obs_names[when.argmin()], ends=ends, tree=tree, compared=compared, distances=distances)
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    sc.pp.pca(adata, n_comps=30, random_state=0)
    sc.pp.neighbors(adata, random_state=0)
    return adata


def jaccard_f1(found: pd.Series, truth: pd.Series) -> float:
    """dynbenchmark's F1 of branches: each true branch with its best found one, and the other way round."""
    table = pd.crosstab(found, truth).to_numpy()
    jaccard = table / (table.sum(axis=0) + table.sum(axis=1, keepdims=True) - table)
    recovery, relevance = jaccard.max(axis=0).mean(), jaccard.max(axis=1).mean()
    return float(2 * recovery * relevance / (recovery + relevance))


def score(adata: AnnData, found: Found) -> dict[str, float]:
    obs, ends, fates = adata.obs, adata.uns["ends"], found.fates
    row = {"n_found": len(found.states), "states": float(len(found.states) == len(ends))}
    row["early"] = float((obs.loc[found.states, "time"] < 0.5 * obs["time"].max()).sum()) if ends else np.nan
    if fates is not None:
        late = obs["branch"].isin(ends) & (
            obs["time"] > obs.groupby("branch")["time"].transform(lambda times: 0.5 * (times.min() + times.max()))
        )
        row["fates"] = float((fates.idxmax(axis=1)[late] == obs["branch"][late]).mean())
        trunk = obs["branch"].eq("trunk") & (obs["time"] < 0.75 * obs["time"][obs["branch"] == "trunk"].max())
        row["trunk"] = float((fates[trunk.to_numpy()] - 1 / len(ends)).abs().to_numpy().mean())
    if found.branches is not None and len(ends) > 1:
        row["branches"] = jaccard_f1(found.branches, obs["branch"])
    if adata.uns["tree"] is not None:
        row["HIM"] = him(found.tree, adata.uns["tree"])
        row["geodesic"] = ep.metrics.geodesic_correlation(found.distances, adata.uns["distances"], rowwise=False)
    return row


def measured(kind: str) -> list[str]:
    """Where more is better and a kind has the measure: a run that fails has 0 there."""
    if kind in ("cycle", "cloud"):
        return ["states"]
    return ["states", "HIM", "geodesic"] + ([] if kind == "line" else ["fates", "branches"])


def table(scores: pd.DataFrame, by: str, names: dict[str, str]) -> list[str]:
    """Means over the runs of each kind or method."""
    columns = [by, "runs", "failed", *MEASURES, "seconds"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for name in [*names, *(["mean"] if by == "kind" else [])]:
        part = scores if name == "mean" else scores[scores[by] == name]
        if not len(part):
            continue
        failed = part["error"].notna()
        values = part[[*MEASURES, "seconds"]].mean()
        shown = " | ".join("" if np.isnan(value) else f"{value:.2g}" for value in values)
        lines.append(f"| {names.get(name, name)} | {len(part)} | {failed.sum()} | {shown} |")
    return lines


def large(n_cells: int = 100_000, n_genes: int = 2000) -> None:
    """Seconds, by the clock and of the processor, of all that follows from a graph of many cells."""
    adata = ep.datasets.branching(n_cells, n_genes=n_genes)
    steps = {
        "neighbours": lambda: sc.pp.neighbors(adata, random_state=0),
        "graph": lambda: ep.tl.merw_graph(adata),
        "order": lambda: ep.tl.pseudotime(adata, root=adata.uns["root"]),
        "terminal states": lambda: ep.tl.terminal_states(adata, groupby="branch"),
        "fates": lambda: ep.tl.fates(adata),
        f"trends of {n_genes:,} genes": lambda: ep.tl.trends(adata),
    }
    print(f"| {n_cells:,} cells | seconds | processor seconds |\n|---|---|---|")
    after = np.zeros(2)
    for i, (name, step) in enumerate(steps.items()):
        began = np.array([time.perf_counter(), time.process_time()])
        step()
        took = np.array([time.perf_counter(), time.process_time()]) - began
        after += took * (i > 1)
        print(f"| {name} | {took[0]:.1f} | {took[1]:.1f} |", flush=True)
    print(f"| all after the graph | {after[0]:.1f} | {after[1]:.1f} |")
    late = adata.obs["branch"].str.startswith("fate") & (adata.obs["time"] > 0.85)
    right = (adata.obsm["entropath_fates"].idxmax(axis=1)[late] == adata.obs["branch"][late].astype(str)).mean()
    print(f"\nLargest fate right in {right:.1%}. States:\n{adata.uns['entropath']['terminal_states']}")


REAL = {
    "marrow": ("palantir_marrow_cd34.h5ad", "via_novershtern_label", lambda adata: adata.uns["palantir_start_cell"]),
    "pancreas": ("pancreas_e15.h5ad", "SubCellType", lambda adata: ("SubCellType", "Ductal")),
    "paul15": ("paul15.h5ad", "paul15_clusters", lambda adata: adata.obs_names[int(adata.uns["iroot"])]),
}


def real() -> None:
    """Terminal states of published cells: each with how far its cells have decided, and how often it is found."""
    folder = Path(os.environ["ENTROPATH_SC_DATA"])
    print("| data | genes | components | neighbours | states: decided, found again |\n|---|---|---|---|---|")
    for name, (file, labels, root) in REAL.items():
        cells = ad.read_h5ad(folder / file)
        cells.var_names_make_unique()
        sc.pp.normalize_total(cells, target_sum=1e4)
        sc.pp.log1p(cells)
        for n_genes, n_comps, k in product((2000, 4000), (30, 50), (10, 15, 30)):
            adata = cells.copy()
            sc.pp.highly_variable_genes(adata, n_top_genes=min(n_genes, adata.n_vars))
            sc.pp.pca(adata, n_comps=n_comps, random_state=0)
            sc.pp.neighbors(adata, n_neighbors=k, random_state=0)
            print(f"| {name} | {n_genes:,} | {n_comps} | {k} | {states_of(adata, root(adata), labels)} |", flush=True)
    for path in sorted((folder / "beeline").glob("*.h5ad")):
        adata = ad.read_h5ad(path)
        sc.pp.neighbors(adata, use_rep="X", random_state=0)
        first = adata.obs["time"].idxmin()
        print(f"| {path.stem} | {adata.n_vars} | all | 15 | {states_of(adata, first, 'lineage')} |", flush=True)


def states_of(adata: ad.AnnData, root: str, labels: str) -> str:
    ep.tl.pseudotime(adata, root=root)
    ep.tl.terminal_states(adata, groupby=labels)
    found = adata.uns["entropath"]["terminal_states"]
    return "; ".join(f"{state} {row.decided:.2f}, {row.found_again:.2f}" for state, row in found.iterrows())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=900)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--cells", type=int, help="of every kind but 'small'")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--real", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.large or options.real:
        large() if options.large else real()
        return
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "lineages.csv"
    rows = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=COLUMNS)
    cells = options.cells or 0
    rows = rows[rows["error"].isna()]  # what failed is tried again
    rows.to_csv(path, index=False)
    done = set(rows.loc[rows["cells"] == cells, ["kind", "seed", "method"]].itertuples(index=False, name=None))
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for kind, seed in (bar := tqdm([(kind, seed) for kind in options.kinds for seed in seeds], desc="lineages")):
        missing = [method for method in options.methods if (kind, seed, method) not in done]
        if not missing:
            continue
        adata = simulate(kind, seed, options.cells)
        for method in missing:
            bar.set_postfix_str(f"{kind} {seed}, {method}")
            row = {"kind": kind, "seed": seed, "method": method, "cells": cells}
            began = time.perf_counter()
            try:
                row |= score(adata, METHODS[method](adata.copy()))
            except Exception as error:  # a peer that fails is a result too
                row["error"] = f"{type(error).__name__}: {error}".replace("\n", " ").replace(",", ";")[:200]
            row["seconds"] = round(time.perf_counter() - began, 2)
            pd.DataFrame([row], columns=COLUMNS).to_csv(path, mode="a", header=False, index=False)
    scores = pd.read_csv(path)
    scores = scores[scores["kind"].isin(options.kinds) & scores["seed"].isin(seeds) & (scores["cells"] == cells)]
    for kind in options.kinds:
        failed = (scores["kind"] == kind) & scores["error"].notna()
        scores.loc[failed, measured(kind)] = 0.0
    # The latest cell of a cycle is half way around, so its true time says nothing.
    scores.loc[scores["kind"] == "cycle", "early"] = np.nan
    # scFates has no fates, also where it fails.
    scores.loc[scores["method"] == "scfates", "fates"] = np.nan
    parts = [table(scores[scores["method"] == method], "kind", KINDS) for method in options.methods]
    lines = [
        line for method, part in zip(options.methods, parts, strict=True) for line in (f"{method}:", "", *part, "")
    ]
    lines += table(scores, "method", {method: method for method in options.methods})
    (RESULTS / "lineages.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
