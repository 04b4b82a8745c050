"""The same bytes on threads and on a cluster of four processes, also where workers are killed.

    pip install -e ".[bench]"
    python benchmarks/workers.py [--cells 262144] [--tries 10] [--landmarks 500]

From a dask array to coordinates, order, terminal states and fates: once on threads, once on a cluster, and then
``--tries`` times with one worker of four killed at a random moment. Writes workers.md in benchmarks/results. Ends with
an error where a result differs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import signal
import sys
import threading
import time
import warnings

import dask
import dask.array as da
import numpy as np
from speed import N_PCS, RESULTS, cells

BLOCK = 32_768
N_WORKERS = 4


def lazy_cells(n_cells: int):
    """Cells that workers make themselves, so that only landmarks and results travel."""
    from anndata import AnnData

    sizes = [min(BLOCK, n_cells - first) for first in range(0, n_cells, BLOCK)]
    blocks = [
        da.from_delayed(dask.delayed(cells)(size, chunk=i), (size, N_PCS), np.float32)
        for i, size in enumerate(sizes, 1)
    ]
    adata = AnnData(np.zeros((n_cells, 1), dtype=np.float32), obsm={"X_pca": da.concatenate(blocks)})
    adata.obs_names = [f"cell_{i}" for i in range(n_cells)]
    return adata


def digest(n_cells: int, n_landmarks: int) -> str:
    """Run all tools on the active scheduler, and give the hash of what they found."""
    import entropath_sc as ep

    adata = lazy_cells(n_cells)
    ep.tl.embedding(adata, n_landmarks=n_landmarks)
    ep.tl.pseudotime(adata, root="cell_0", n_landmarks=n_landmarks)
    ep.tl.terminal_states(adata)
    ep.tl.fates(adata)
    found = hashlib.blake2b(digest_size=8)
    for values in (
        np.asarray(adata.obsm["X_entropath"]),
        adata.obs["entropath_pseudotime"].to_numpy(),
        adata.obs["entropath_branch"].cat.codes.to_numpy(),
        adata.obsm["entropath_fates"].to_numpy(),
    ):
        found.update(np.ascontiguousarray(values))
    return found.hexdigest()


def timed(function, *args):
    """What a function gives, and the seconds that it takes."""
    began = time.perf_counter()
    return function(*args), time.perf_counter() - began


def kill_one(client, seconds: float, chance: random.Random) -> threading.Timer:
    """Kill a random worker within the time that the job takes."""

    def kill() -> None:
        os.kill(chance.choice(list(client.run(os.getpid).values())), signal.SIGKILL)

    timer = threading.Timer(chance.uniform(0.05, 0.8) * seconds, kill)
    timer.start()
    return timer


def on_cluster(job: tuple[int, int], seconds: float | None, chance: random.Random) -> tuple[str, float]:
    """Run on a cluster of its own, and kill a worker if it is said how long the job takes."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        timer = None if seconds is None else kill_one(client, seconds, chance)
        found = timed(digest, *job)
        if timer is not None:
            timer.join()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=8 * BLOCK)
    parser.add_argument("--landmarks", type=int, default=500)
    parser.add_argument("--tries", type=int, default=10)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    job = (options.cells, options.landmarks)
    lines = ["| scheduler | killed | seconds | same bytes |", "|---|---|---|---|"]

    def tell(scheduler: str, killed: str, seconds: float, same: bool) -> None:
        lines.append(f"| {scheduler} | {killed} | {seconds:.1f} | {'yes' if same else 'NO'} |")
        print(lines[-1], file=sys.stderr, flush=True)

    with dask.config.set(scheduler="threads"):
        expected, seconds = timed(digest, *job)
    tell("threads", "none", seconds, True)
    chance, all_same = random.Random(0), True
    for attempt in range(options.tries + 1):
        found, spent = on_cluster(job, seconds if attempt else None, chance)
        seconds = seconds if attempt else spent
        tell(f"{N_WORKERS} processes", f"one, try {attempt}" if attempt else "none", spent, found == expected)
        all_same = all_same and found == expected
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines += [
        "",
        f"{options.cells:,} cells, {options.landmarks} landmarks; client and scheduler: {peak:.0f} MB at most.",
    ]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "workers.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    if not all_same:
        sys.exit("A result differs.")


if __name__ == "__main__":
    main()
