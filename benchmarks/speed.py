"""Seconds and peak memory of this package and its peers, from PCA to coordinates (or order), in one run.

    pip install -e ".[bench]"
    python benchmarks/speed.py [--cells 10000 50000 100000] [--alone 1000000] [--skip palantir ...] [--limit 300]

Each method runs in a process of its own, first on 9,000 cells (which compiles what there is to compile; that time is
reported apart), then on the data, and is stopped after ``--limit`` seconds in all. Writes speed.csv and speed.md in
benchmarks/results.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
N_PCS, N_LANDMARKS = 50, 2000


def cells(n: int, chunk: int = 0) -> np.ndarray:
    """A chain of nineteen segments in 50 dimensions, with noise; other cells of the same chain for each chunk."""
    rng = np.random.default_rng(0)
    corners = np.cumsum(3 * rng.normal(size=(20, N_PCS)), axis=0)
    if chunk:
        rng = np.random.default_rng(chunk)
    segment, along = rng.integers(19, size=n), rng.random((n, 1))
    X = corners[segment] * (1 - along) + corners[segment + 1] * along + rng.normal(size=(n, N_PCS))
    return X.astype(np.float32)


def many_cells(n: int, step: int = 100_000) -> np.ndarray:
    """As many, made in parts: the peak of memory is then that of the method, not of making its cells."""
    X = np.empty((n, N_PCS), dtype=np.float32)
    for i, first in enumerate(range(0, n, step)):
        X[first : first + step] = cells(min(step, n - first), chunk=i)
    return X


def annotated(X: np.ndarray):
    from anndata import AnnData

    adata = AnnData(np.zeros((len(X), 1), dtype=np.float32), obsm={"X_pca": X})
    adata.obs_names = [f"cell_{i}" for i in range(len(X))]
    return adata


class Stages(dict):
    def run(self, name, function, *args, **options):
        began = time.perf_counter()
        result = function(*args, **options)
        self[name] = time.perf_counter() - began
        return result


def entropath(X: np.ndarray, stages: Stages) -> None:
    import entropath_sc as ep

    adata = annotated(X)
    stages.run("embedding", ep.tl.embedding, adata)
    stages.run("pseudotime", ep.tl.pseudotime, adata, root="cell_0")
    lineages(adata, stages)


def lineages(adata, stages: Stages) -> None:
    """What no peer but Palantir does: reported, and not part of the seconds that are compared."""
    import entropath_sc as ep

    stages.run("terminal_states (beyond)", ep.tl.terminal_states, adata)
    stages.run("fates (beyond)", ep.tl.fates, adata)


def entropath_on_neighbors(X: np.ndarray, stages: Stages) -> None:
    import scanpy as sc

    import entropath_sc as ep

    adata = annotated(X)
    stages.run("sc.pp.neighbors (given)", sc.pp.neighbors, adata, use_rep="X_pca")
    stages.run("merw_graph", ep.tl.merw_graph, adata)
    stages.run("embedding", ep.tl.embedding, adata)
    stages.run("pseudotime", ep.tl.pseudotime, adata, root="cell_0")
    lineages(adata, stages)


def phate(X: np.ndarray, stages: Stages) -> None:
    import phate

    stages.run("embedding", phate.PHATE(verbose=0, n_pca=None, random_state=0).fit_transform, X)


def dtne(X: np.ndarray, stages: Stages) -> None:
    from dtne import DTNE

    stages.run("embedding", DTNE().fit_transform, X)


def umap(X: np.ndarray, stages: Stages) -> None:
    import umap

    stages.run("embedding", umap.UMAP().fit_transform, X)


def diffmap_dpt(X: np.ndarray, stages: Stages) -> None:
    import scanpy as sc

    adata = annotated(X)
    stages.run("neighbors", sc.pp.neighbors, adata, use_rep="X_pca")
    stages.run("diffmap", sc.tl.diffmap, adata)
    adata.uns["iroot"] = 0
    stages.run("dpt", sc.tl.dpt, adata)


def palantir(X: np.ndarray, stages: Stages) -> None:
    import palantir

    adata = annotated(X)
    stages.run("diffusion maps", palantir.utils.run_diffusion_maps, adata, pca_key="X_pca")
    stages.run("multiscale", palantir.utils.determine_multiscale_space, adata)
    stages.run("palantir", palantir.core.run_palantir, adata, "cell_0", num_waypoints=500)


METHODS = {f.__name__: f for f in (entropath, entropath_on_neighbors, phate, dtne, umap, diffmap_dpt, palantir)}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(method: str, n_cells: int) -> None:
    """Run one method and print one line of JSON."""
    warnings.filterwarnings("ignore")
    began = time.perf_counter()
    METHODS[method](cells(9000), Stages())
    warm_up = time.perf_counter() - began
    X = many_cells(n_cells)
    before = peak_mb()
    stages = Stages()
    METHODS[method](X, stages)
    print(
        "RESULT"
        + json.dumps({"warm_up": warm_up, "stages": stages, "peak_mb": peak_mb(), "above_mb": peak_mb() - before})
    )


def measure(method: str, n_cells: int, limit: float) -> dict:
    command = [sys.executable, __file__, "--one", method, str(n_cells)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"stopped after {limit:g} s"}
    for line in done.stdout.splitlines():
        if line.startswith("RESULT"):
            return json.loads(line[len("RESULT") :])
    return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}


def kernels() -> list[str]:
    """SMACOF and the nearest-landmark search against scikit-learn's, on the same input."""
    from sklearn.manifold import smacof as sklearn_smacof
    from sklearn.neighbors import NearestNeighbors

    from entropath_sc.core.cells import Cells
    from entropath_sc.core.layout import classical, smacof
    from entropath_sc.core.pipeline import DEFAULT, dissimilarities, landmark_graph
    from entropath_sc.core.search import nearest_landmarks

    X = cells(200_000)
    landmarks = landmark_graph(Cells(X[:20_000]), DEFAULT, N_LANDMARKS)[0].centres
    product = np.empty((4096, N_LANDMARKS), dtype=np.float32)
    lines = []
    for k in (10, 50):  # the default number of landmarks a cell is placed among, and the paper's
        nearest_landmarks(X[:1000], landmarks, k)
        brute = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(landmarks)
        ours, theirs, gemm = [], [], []
        for _ in range(3):
            began = time.perf_counter()
            nearest_landmarks(X, landmarks, k)
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            brute.kneighbors(X)
            theirs.append(time.perf_counter() - began)
            began = time.perf_counter()
            for first in range(0, len(X) - 4096, 4096):
                np.dot(X[first : first + 4096], landmarks.T, out=product)
            gemm.append(time.perf_counter() - began)
        lines.append(
            f"nearest {k} of {N_LANDMARKS} landmarks, 200,000 cells: {min(ours):.2f} s, scikit-learn's brute force "
            f"{min(theirs):.2f} s ({min(theirs) / min(ours):.1f} times); "
            f"{min(gemm) / min(ours):.0%} of the rate of the matrix product alone"
        )
    D = dissimilarities(landmark_graph(Cells(X[:20_000]), DEFAULT, N_LANDMARKS)[1], DEFAULT)[0]
    start = classical(D**2, 2)
    smacof(D[:50, :50], start[:50])
    began = time.perf_counter()
    layout = smacof(D, start)
    fast = time.perf_counter() - began
    began = time.perf_counter()
    _, stress = sklearn_smacof(
        D, init=start, n_init=1, n_components=2, eps=1e-6, max_iter=3000, normalized_stress=False
    )
    slow = time.perf_counter() - began
    lines.append(
        f"SMACOF, {N_LANDMARKS} landmarks: {fast:.2f} s, scikit-learn's {slow:.2f} s ({slow / fast:.1f} times); "
        f"stress {layout.stress / stress - 1:+.1e} relative to it"
    )
    return lines


def recall(n_cells: int = 50_000, n_neighbors: int = 15, n_checked: int = 1000) -> str:
    """How many of the true neighbours the package finds where it searches them itself."""
    from entropath_sc.core.neighbors import knn_distances

    X = cells(n_cells)
    knn_distances(X[:9000], n_neighbors)  # compiles
    began = time.perf_counter()
    found = knn_distances(X, n_neighbors).indices.reshape(n_cells, -1)
    spent = time.perf_counter() - began
    checked = np.random.default_rng(0).choice(n_cells, size=n_checked, replace=False)
    score = 0.5 * (X**2).sum(axis=1) - X[checked] @ X.T
    score[np.arange(n_checked), checked] = np.inf
    true = np.argpartition(score, n_neighbors - 2, axis=1)[:, : n_neighbors - 1]
    share = np.mean([np.isin(one, other).mean() for one, other in zip(true, found[checked], strict=True)])
    return f"{n_neighbors} neighbours of {n_cells:,} cells in {N_PCS} dimensions: recall {share:.4f}, {spent:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, nargs="*", default=[10_000, 50_000, 100_000])
    parser.add_argument(
        "--alone", type=int, nargs="*", default=[200_000, 1_000_000], help="sizes for this package only"
    )
    parser.add_argument("--skip", nargs="*", default=[], choices=list(METHODS))
    parser.add_argument("--limit", type=float, default=3600, help="seconds after which a method is stopped")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        child(options.one[0], int(options.one[1]))
        return
    RESULTS.mkdir(exist_ok=True)
    jobs = [(m, n) for n in options.cells for m in METHODS if m not in options.skip]
    jobs += [("entropath", n) for n in options.alone]
    rows = []
    for i, (method, n) in enumerate(jobs, 1):
        print(f"[{i}/{len(jobs)}] {method}, {n:,} cells ...", end=" ", file=sys.stderr, flush=True)
        found = measure(method, n, options.limit)
        own = {k: v for k, v in found.get("stages", {}).items() if "given" not in k and "beyond" not in k}
        row = {
            "method": method,
            "cells": n,
            "seconds": round(sum(own.values()), 2) if own else None,
            "stages": "; ".join(f"{k} {v:.2f}" for k, v in found.get("stages", {}).items()) or found.get("error"),
            "warm_up_seconds": round(found.get("warm_up", 0), 1),
            "peak_mb": round(found.get("peak_mb", 0)),
            "above_input_mb": round(found.get("above_mb", 0)),
        }
        rows.append(row)
        print(row["seconds"], "s", file=sys.stderr)
    for row in rows:
        peers = [
            r["seconds"]
            for r in rows
            if r["cells"] == row["cells"] and not r["method"].startswith("entropath") and r["seconds"]
        ]
        row["ratio_to_fastest_peer"] = round(row["seconds"] / min(peers), 2) if peers and row["seconds"] else None
    with (RESULTS / "speed.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(str(v) for v in row.values()) + " |" for row in rows]
    lines += ["", *kernels(), recall()]
    (RESULTS / "speed.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
