"""Out of core: time and peak memory at one and ten million cells, on a dask cluster of two workers.

The command line embeds and orders the cells of a store, and finds terminal states and fates.

    pip install -e ".[bench]"
    python benchmarks/scale.py [--cells 1000000 10000000] [--folder /tmp/entropath_scale] [--memory-limit 2GB]

Each size runs in a process of its own, with a cluster of its own. Makes the stores it needs, in chunks, and leaves them
there for the next run; their results are deleted. Writes scale.md in benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from speed import N_PCS, RESULTS, cells

CHUNK = 100_000
STAGES = ("joining", "landmarks", "copying", "writing")
# What is shared among workers; landmarks are done once, and one process copies the input.
SHARED = ("joining", "writing")


def make_store(path: Path, n_cells: int) -> None:
    """An AnnData store of ``n_cells`` with barcodes and components, written chunk by chunk."""
    import anndata as ad
    import zarr

    partial = path.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    ad.AnnData(obs={"_": []}, obsm={"X_pca": np.empty((0, N_PCS), dtype=np.float32)}).write_zarr(partial)
    group = zarr.open_group(partial, mode="r+", use_consolidated=False)
    del group["obs/_"]
    group["obs"].attrs["column-order"] = []
    attributes = dict(group["obsm/X_pca"].attrs)
    index = group["obs"].create_array("_index", shape=(n_cells,), chunks=(CHUNK,), dtype=str, overwrite=True)
    index.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
    pca = group["obsm"].create_array(
        "X_pca", shape=(n_cells, N_PCS), chunks=(CHUNK, N_PCS), dtype=np.float32, overwrite=True
    )
    pca.attrs.update(attributes)
    for first in range(0, n_cells, CHUNK):
        last = min(first + CHUNK, n_cells)
        # The same corners for all chunks, and other cells between them.
        pca[first:last] = cells(last - first, chunk=first // CHUNK)
        index[first:last] = np.array([f"cell_{i}" for i in range(first, last)], dtype=object)
    zarr.consolidate_metadata(str(partial))
    partial.rename(path)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(store: Path, memory_limit: str) -> None:
    """Run out of core on one store, and print a line of JSON."""
    from distributed import Client, LocalCluster

    from entropath_sc.cli import main

    output = store.with_name(f"out_{store.name}")
    shutil.rmtree(output, ignore_errors=True)
    command = ["run", str(store), "-o", str(output), "--root", "cell_0", "--lineages", "--out-of-core", "--quiet"]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=memory_limit, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        began = time.perf_counter()
        code = main([*command, "--scheduler", cluster.scheduler_address])
        spent = time.perf_counter() - began
        found = {"seconds": spent, "main_mb": peak_mb(), "worker_mb": list(client.run(peak_mb).values())}
        shutil.rmtree(output, ignore_errors=True)
        if code:
            sys.exit(code)
    print("RESULT" + json.dumps(found))


def measure(store: Path, memory_limit: str) -> dict:
    command = [sys.executable, __file__, "--one", str(store), "--memory-limit", memory_limit]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{store}: exit {done.returncode}\n{done.stderr}")
    lines = done.stdout.splitlines()
    found = json.loads(next(line for line in lines if line.startswith("RESULT"))[len("RESULT") :])
    told = next(line for line in lines if line.startswith("seconds")).removeprefix("seconds").strip()
    found["stages"] = {stage: float(spent) for stage, spent in (part.split() for part in told.split(", "))}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/entropath_scale"))
    parser.add_argument("--memory-limit", default="2GB", help="of each worker")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.one:
        child(options.one, options.memory_limit)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    lines = [
        f"| cells | seconds | {' | '.join(STAGES)} | peak MB, main | peak MB, workers | peak MB, all |",
        "|" + "---|" * (len(STAGES) + 5),
    ]
    for n in options.cells:
        store = options.folder / f"cells_{n}.zarr"
        if not store.exists():
            print(f"making {store} ...", file=sys.stderr, flush=True)
            make_store(store, n)
        print(f"{n:,} cells ...", end=" ", file=sys.stderr, flush=True)
        found = measure(store, options.memory_limit)
        print(f"{found['seconds']:.1f} s", file=sys.stderr)
        stages = " | ".join(f"{found['stages'][stage]:.1f}" for stage in STAGES)
        total = found["main_mb"] + sum(found["worker_mb"])
        workers = " + ".join(f"{mb:.0f}" for mb in found["worker_mb"])
        lines.append(
            f"| {n:,} | {found['seconds']:.1f} | {stages} | {found['main_mb']:.0f} | {workers} | {total:.0f} |"
        )
    lines += ["", *projected(n, found["stages"])]
    (RESULTS / "scale.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def projected(n: int, stages: dict[str, float], n_cells: int = 100_000_000) -> list[str]:
    """From the costs per cell of the last run, with two workers: what more cells on more workers would take."""
    alone = stages["landmarks"] + stages["copying"] * n_cells / n
    lines = [
        f"{n_cells:,} cells, from the costs of {n:,}:",
        "",
        "| workers | minutes | shared by the workers | not shared (landmarks, and one process that copies) |",
        "|---|---|---|---|",
    ]
    for n_workers in (16, 64):
        shared = sum(stages[s] for s in SHARED) * (n_cells / n) * (2 / n_workers)
        lines.append(f"| {n_workers} | {(shared + alone) / 60:.1f} | {shared / 60:.1f} | {alone / 60:.1f} |")
    return lines


if __name__ == "__main__":
    main()
