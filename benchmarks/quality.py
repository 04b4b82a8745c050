"""Every system of the paper on its generated manifolds, at distance and embedding level, in one resumable run.

    pip install -e ".[bench]" && pip install --no-deps heatgeo
    python benchmarks/quality.py [--seeds 10] [--datasets sphere ...] [--methods dtne ...]

Adds a line to benchmarks/results/quality.csv for each data set, seed and method that is not there yet; then writes
quality.md (mean ± s.d., published means of the paper in brackets) and one figure a data set beside it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from methods import DIFFUSION_METHODS, METHODS
from published import PUBLISHED
from tqdm import tqdm

import entropath_sc as ep

RESULTS = Path(__file__).parent / "results"
COLUMNS = (
    "dataset seed method distance_spearman distance_pearson embedding_spearman embedding_pearson trustworthiness "
    "continuity silhouette seconds error"
).split()
# The paper's neighbourhood for trustworthiness and continuity.
N_NEIGHBORS = 50

DATASETS = {
    "uniform roll": lambda seed: ep.datasets.swiss_roll(random_state=seed),
    "Beta(1,4) roll": lambda seed: ep.datasets.swiss_roll(density="beta", random_state=seed),
    "Swiss hole": lambda seed: ep.datasets.swiss_roll(hole=True, random_state=seed),
    "sphere": lambda seed: ep.datasets.sphere(random_state=seed),
    "torus": lambda seed: ep.datasets.torus(random_state=seed),
    "sparse tree": lambda seed: ep.datasets.tree(random_state=seed),
    "dense tree": lambda seed: ep.datasets.tree(
        n_branches=20, branch_length=100, n_dims=100, noise=4.0, random_state=seed
    ),
}


def score(adata, geodesic: np.ndarray, method: str, seed: int) -> tuple[dict[str, float], np.ndarray]:
    began = time.perf_counter()
    found = METHODS[method](np.asarray(adata.X), seed)
    row = {"seconds": round(time.perf_counter() - began, 2)}
    if found.distances is not None:
        among = slice(None) if found.cells is None else found.cells
        truth = geodesic[among][:, among]
        for kind in ("spearman", "pearson"):
            row[f"distance_{kind}"] = ep.metrics.geodesic_correlation(found.distances, truth, method=kind)
    for kind in ("spearman", "pearson"):
        row[f"embedding_{kind}"] = ep.metrics.geodesic_correlation(found.layout, geodesic, method=kind)
    row["trustworthiness"] = ep.metrics.trustworthiness(adata.X, found.layout, n_neighbors=N_NEIGHBORS)
    row["continuity"] = ep.metrics.continuity(adata.X, found.layout, n_neighbors=N_NEIGHBORS)
    if "branch" in adata.obs:
        row["silhouette"] = ep.metrics.branch_silhouette(found.layout, adata.obs["branch"])
    return row, found.layout


def run(path: Path, datasets: list[str], methods: list[str], seeds: range) -> None:
    """Fill in what ``path`` does not hold yet; methods that fail leave their error."""
    path.parent.mkdir(exist_ok=True)
    rows = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=COLUMNS)
    rows = rows[rows["error"].isna()]  # what failed is tried again
    rows.to_csv(path, index=False)
    done = set(rows[["dataset", "seed", "method"]].itertuples(index=False, name=None))
    missing = [(d, s, m) for s in seeds for d in datasets for m in methods if (d, s, m) not in done]
    current, adata, geodesic = None, None, None
    for dataset, seed, method in (bar := tqdm(missing, desc="quality")):
        bar.set_postfix_str(f"{dataset} {seed}, {method}")
        if current != (dataset, seed):
            current, adata = (dataset, seed), DATASETS[dataset](seed)
            geodesic = ep.datasets.geodesic(adata)
        try:
            row, layout = score(adata, geodesic, method, seed)
            if seed == seeds[0]:
                np.save(_layout_path(path, dataset, method), layout.astype(np.float32))
        except Exception as error:  # a peer that fails is a result too
            row = {"error": f"{type(error).__name__}: {error}".replace("\n", " ").replace(",", ";")[:200]}
        row |= {"dataset": dataset, "seed": seed, "method": method}
        pd.DataFrame([row], columns=COLUMNS).to_csv(path, mode="a", header=False, index=False)


def _layout_path(path: Path, dataset: str, method: str) -> Path:
    folder = path.parent / "layouts"
    folder.mkdir(exist_ok=True)
    return folder / f"{dataset}-{method}.npy".replace(" ", "_").replace("(", "").replace(")", "").replace(",", "-")


def tables(scores: pd.DataFrame) -> list[str]:
    lines = []
    for dataset in [d for d in DATASETS if d in set(scores["dataset"])]:
        part = scores[scores["dataset"] == dataset]
        shown = [c for c in COLUMNS[3:-2] if part[c].notna().any()]
        lines += [f"\n## {dataset}, {part['seed'].nunique()} seeds\n"]
        lines += ["| method | " + " | ".join(shown) + " |", "|---" * (len(shown) + 1) + "|"]
        for method in [m for m in METHODS if m in set(part["method"])]:
            rows = part[part["method"] == method]
            cells = []
            for column in shown:
                mean = f"{rows[column].mean():.3f} ± {rows[column].std(ddof=0):.3f}"
                theirs = PUBLISHED.get(dataset, {}).get(column, {}).get(method)
                cells.append("" if rows[column].isna().all() else mean + ("" if theirs is None else f" ({theirs:.3f})"))
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def summary(scores: pd.DataFrame) -> list[str]:
    """This package's defaults against the best diffusion method, row by row, on the seeds that all of them have.

    Beside it the paper's preset, on all its seeds, against what the paper prints.
    """
    heads = "data set,seeds,level,defaults,best other diffusion method,ahead by,`preset='paper'`,published".split(",")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    first, rows, worst = 0, 0, 0.0
    compared = [*DIFFUSION_METHODS, "entropath"]
    for dataset in DATASETS:
        part = scores[(scores["dataset"] == dataset) & scores["method"].isin(compared) & scores["error"].isna()]
        present = part.groupby("seed")["method"].nunique()
        common = present.index[present == len(compared)]
        if not len(common):
            continue
        means = part[part["seed"].isin(common)].groupby("method").mean(numeric_only=True)
        paper = part[part["method"] == "entropath_paper"].mean(numeric_only=True)
        for level in ("distance", "embedding"):
            column = f"{level}_spearman"
            value, others = means.loc["entropath", column], means.loc[list(DIFFUSION_METHODS), column]
            ahead = value - others.max()
            first, rows, worst = first + (ahead >= 0), rows + 1, min(worst, ahead)
            lines.append(
                f"| {dataset} | {len(common)} | {level} | {value:.3f} | {others.idxmax()} {others.max():.3f} | "
                f"{ahead:+.3f} | {paper[column]:.3f} | {PUBLISHED[dataset][column]['entropath_paper']:.3f} |"
            )
    return [*lines, "", f"First in {first} of {rows} rows; at most {-worst:.3f} behind."]


def figures(path: Path, seed: int) -> None:
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for dataset in DATASETS:
        found = {m: p for m in METHODS if (p := _layout_path(path, dataset, m)).exists()}
        if not found:
            continue
        obs = DATASETS[dataset](seed).obs
        colour = obs["branch"].cat.codes if "branch" in obs else obs["angle"]
        cmap = "tab20" if "branch" in obs else ("twilight" if dataset == "torus" else "viridis")
        n_columns = min(len(found), 7)
        n_rows = -(-len(found) // n_columns)
        figure, axes = plt.subplots(n_rows, n_columns, figsize=(2.2 * n_columns, 2.4 * n_rows), squeeze=False)
        for ax in axes.flat:
            ax.axis("off")
        for ax, (method, layout) in zip(axes.flat, found.items(), strict=False):
            ax.scatter(*np.load(layout).T, c=colour, cmap=cmap, s=2, linewidths=0, rasterized=True)
            ax.set_title(method.replace("_", " "), fontsize=9)
        figure.suptitle(dataset)
        figure.tight_layout()
        figure.savefig(path.parent / f"quality-{dataset.replace(' ', '_')}.png", dpi=120)
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=42, help="the paper's seeds begin at 42")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=list(DATASETS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    path = options.results / "quality.csv"
    run(path, options.datasets, options.methods, range(options.first_seed, options.first_seed + options.seeds))
    scores = pd.read_csv(path)
    lines = ["# Generated manifolds", "", *summary(scores), *tables(scores)]
    (options.results / "quality.md").write_text("\n".join(lines) + "\n")
    figures(path, options.first_seed)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
