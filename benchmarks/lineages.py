"""Terminal states, fates and branches against the truth of simulated trees, with peers in the same run.

    pip install -e ".[bench]"
    python benchmarks/lineages.py [--seeds 10] [--first-seed 900] [--methods entropath palantir cellrank] [--kinds ...]

Kinds: a line, even, uneven and rare bifurcations (the rare branch has about 1 % of the cells), the tree of
``ep.datasets.branching``, trees of 3 to 8 ends, a cycle, and a cloud without a trajectory; 300 cells in ``small``. All
start from the true earliest cell, on scanpy's neighbours. Measures, each the mean over the seeds:

- ``states``: share of the seeds with the right number of terminal states
- ``early``: terminal states per seed in the first half of the true time
- ``fates``: with the true ends given (their ten latest cells), share of the cells in the second half of an end branch
  whose largest fate is its own
- ``trunk``: with the same ends, mean distance from even fates, over the first three quarters of the trunk
- ``branches``: F1 of branches as in dynbenchmark: harmonic mean of the recovery and the relevance by Jaccard index

Adds a line to benchmarks/results/lineages.csv for each that is not there yet, and writes lineages.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import scanpy as sc
from anndata import AnnData
from tqdm import tqdm

import entropath_sc as ep

RESULTS = Path(__file__).parent / "results"
MEASURES = ["states", "early", "fates", "trunk", "branches"]
COLUMNS = ["kind", "seed", "method", "n_found", *MEASURES, "seconds", "error"]
Segments = list[tuple[str, str | None, float, float]]
FORK: Segments = [("trunk", None, 0.0, 0.4), ("A", "trunk", 0.4, 1.0), ("B", "trunk", 0.4, 1.0)]
TWICE: Segments = [
    ("trunk", None, 0.0, 0.35),
    ("progenitor", "trunk", 0.35, 0.65),
    ("A", "trunk", 0.35, 1.0),
    ("B", "progenitor", 0.65, 1.0),
    ("C", "progenitor", 0.65, 1.0),
]
KINDS = [
    "line",
    "even",
    "uneven",
    "rare",
    "branching",
    "small",
    "tree-3",
    "tree-4",
    "tree-5",
    "tree-8",
    "cycle",
    "cloud",
]


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


def simulate(kind: str, seed: int, n_genes: int = 500) -> AnnData:
    """Counts along segments, as in ``ep.datasets.branching``; ``uns['ends']`` names the true end branches."""
    rng = np.random.default_rng(seed)
    n_cells = 300 if kind == "small" else 3000 if kind.startswith("tree") else 2000
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
        branch = np.array([name for name, *_ in segments])[at]
        ends = [name for name, *_ in segments if name not in {parent for _, parent, *_ in segments}]
    rate = np.exp(log_rate)
    rate *= rng.lognormal(np.log(2.0 * n_genes), 0.3, size=(n_cells, 1)) / rate.sum(axis=1, keepdims=True)
    adata = AnnData((rng.poisson(rate) * (rng.uniform(size=rate.shape) >= 0.1)).astype(np.float32))
    adata.obs_names = [f"cell_{i}" for i in range(n_cells)]
    adata.obs["time"], adata.obs["branch"] = when, branch
    adata.uns.update(root=adata.obs_names[when.argmin()], ends=ends)
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    sc.pp.pca(adata, n_comps=30, random_state=0)
    sc.pp.neighbors(adata, random_state=0)
    return adata


def true_ends(adata: AnnData) -> dict[str, list[str]]:
    """The ten latest cells of each true end branch."""
    of = {end: adata.obs[adata.obs["branch"] == end] for end in adata.uns["ends"]}
    return {end: list(cells["time"].nlargest(10).index) for end, cells in of.items()}


def entropath(adata: AnnData) -> tuple[list[str], pd.DataFrame | None, pd.Series | None]:
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    ep.tl.terminal_states(adata)
    found = list(adata.uns["entropath"]["terminal_states"]["cell"])
    branches = adata.obs["entropath_branch"].astype(str)
    if len(adata.uns["ends"]) < 2:
        return found, None, branches
    ep.tl.terminal_states(adata, terminal=true_ends(adata), n_states=0, n_resamples=0)
    ep.tl.fates(adata)
    return found, adata.obsm["entropath_fates"], branches


def palantir(adata: AnnData) -> tuple[list[str], pd.DataFrame | None, pd.Series | None]:
    import palantir

    palantir.utils.run_diffusion_maps(adata, pca_key="X_pca")
    palantir.utils.determine_multiscale_space(adata)
    options = {"num_waypoints": 500, "use_early_cell_as_start": True}
    found = palantir.core.run_palantir(adata.copy(), adata.uns["root"], **options)
    states, branches = list(found.branch_probs.columns), found.branch_probs.idxmax(axis=1).astype(str)
    if len(adata.uns["ends"]) < 2:
        return states, None, branches
    given = pd.Series({cells[0]: end for end, cells in true_ends(adata).items()})
    known = palantir.core.run_palantir(adata, adata.uns["root"], terminal_states=given, **options)
    return states, known.branch_probs, branches


def cellrank(adata: AnnData) -> tuple[list[str], pd.DataFrame | None, pd.Series | None]:
    import cellrank as cr

    adata.uns["iroot"] = adata.obs_names.get_loc(adata.uns["root"])
    sc.tl.diffmap(adata)
    sc.tl.dpt(adata)
    kernel = cr.kernels.PseudotimeKernel(adata, time_key="dpt_pseudotime").compute_transition_matrix()
    estimator = cr.estimators.GPCCA(kernel)
    estimator.compute_schur(n_components=15)
    estimator.compute_macrostates()
    estimator.predict_terminal_states()
    states = estimator.terminal_states
    found = [str(states.index[states == name][0]) for name in states.cat.categories]
    if len(adata.uns["ends"]) < 2:
        return found, None, None
    estimator.set_terminal_states(true_ends(adata))
    estimator.compute_fate_probabilities(show_progress_bar=False)
    known = estimator.fate_probabilities
    return found, pd.DataFrame(known.X, index=adata.obs_names, columns=list(known.names)), None


METHODS = {f.__name__: f for f in (entropath, palantir, cellrank)}


def jaccard_f1(found: pd.Series, truth: pd.Series) -> float:
    """dynbenchmark's F1 of branches: each true branch with its best found one, and the other way round."""
    table = pd.crosstab(found, truth).to_numpy()
    jaccard = table / (table.sum(axis=0) + table.sum(axis=1, keepdims=True) - table)
    recovery, relevance = jaccard.max(axis=0).mean(), jaccard.max(axis=1).mean()
    return float(2 * recovery * relevance / (recovery + relevance))


def score(adata: AnnData, found: list[str], fates: pd.DataFrame | None, branches: pd.Series | None) -> dict[str, float]:
    obs, ends = adata.obs, adata.uns["ends"]
    row = {"n_found": len(found), "states": float(len(found) == len(ends))}
    row["early"] = float((obs.loc[found, "time"] < 0.5 * obs["time"].max()).sum()) if ends else np.nan
    if fates is not None:
        late = obs["branch"].isin(ends) & (
            obs["time"] > obs.groupby("branch")["time"].transform(lambda times: 0.5 * (times.min() + times.max()))
        )
        row["fates"] = float((fates.idxmax(axis=1)[late] == obs["branch"][late]).mean())
        trunk = obs["branch"].eq("trunk") & (obs["time"] < 0.75 * obs["time"][obs["branch"] == "trunk"].max())
        row["trunk"] = float((fates[trunk.to_numpy()] - 1 / len(ends)).abs().to_numpy().mean())
    if branches is not None and len(ends) > 1:
        row["branches"] = jaccard_f1(branches, obs["branch"])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=900)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "lineages.csv"
    rows = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=COLUMNS)
    done = set(rows[rows["error"].isna()][["kind", "seed", "method"]].itertuples(index=False, name=None))
    rows[rows["error"].isna()].to_csv(path, index=False)  # what failed is tried again
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for kind, seed in (bar := tqdm([(kind, seed) for kind in options.kinds for seed in seeds], desc="lineages")):
        missing = [method for method in options.methods if (kind, seed, method) not in done]
        if not missing:
            continue
        adata = simulate(kind, seed)
        for method in missing:
            bar.set_postfix_str(f"{kind} {seed}, {method}")
            row = {"kind": kind, "seed": seed, "method": method}
            began = time.perf_counter()
            try:
                row |= score(adata, *METHODS[method](adata.copy()))
            except Exception as error:  # a peer that fails is a result too
                row["error"] = f"{type(error).__name__}: {error}".replace("\n", " ").replace(",", ";")[:200]
            row["seconds"] = round(time.perf_counter() - began, 2)
            pd.DataFrame([row], columns=COLUMNS).to_csv(path, mode="a", header=False, index=False)
    scores = pd.read_csv(path)
    scores = scores[scores["kind"].isin(options.kinds) & scores["seed"].isin(seeds)]
    lines = ["| kind | method | seeds | failed | " + " | ".join([*MEASURES, "seconds"]) + " |", "|---" * 10 + "|"]
    for kind in [*options.kinds, None]:
        for method in options.methods:
            part = scores[(scores["method"] == method) & (True if kind is None else scores["kind"] == kind)]
            if not len(part):
                continue
            failed = int(part["error"].notna().sum())
            means = part.assign(states=part["states"].fillna(0.0))[[*MEASURES, "seconds"]].mean()
            values = " | ".join("" if np.isnan(value) else f"{value:.3g}" for value in means)
            lines.append(f"| {kind or 'mean'} | {method} | {len(part)} | {failed} | {values} |")
    (RESULTS / "lineages.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
