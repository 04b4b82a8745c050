"""Kill and starve the command line, and look at what is left.

    python benchmarks/torture.py --kills 50

Out-of-core jobs are killed (SIGKILL) at random times: the process itself, or one of three workers of a `distributed`
cluster, after which the job goes on with the others or fails. Commands meet a full disk and a folder that cannot be
written. After each, the input must have the same bytes, and the same call must then give what an undisturbed one gives.
Exits with 1 where one does not. `interrupts.py` does the same to the tools in memory.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import io
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import anndata as ad
import numpy as np
import zarr

from entropath_sc.cli import main as command
from entropath_sc.tl import _blocks

N_CELLS, N_COLUMNS, BLOCK = 3_000, 20, 250
# A call that hangs ends the script, with a traceback.
LONGEST_CALL = 300
COLUMNS = ("what", "tried", "hit", "input changed", "half written", "wrong afterwards")

BLOCKS = ("--out-of-core",)


def digest(path: Path) -> str:
    """Of all files in a folder, or of a file."""
    found = hashlib.blake2b(digest_size=16)
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            found.update(str(file.relative_to(path)).encode())
            found.update(file.read_bytes())
    return found.hexdigest()


def make_cells(folder: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    along = np.sort(rng.uniform(0, 10, N_CELLS))
    X = np.column_stack([np.cos(along), np.sin(along), along, *rng.normal(0, 0.3, (N_COLUMNS - 3, N_CELLS))])
    adata = ad.AnnData(np.zeros((N_CELLS, 1), dtype=np.float32))
    adata.obs_names = [f"cell_{i}" for i in range(N_CELLS)]
    adata.write_zarr(folder / "in.zarr")
    obsm = zarr.open_group(folder / "in.zarr", use_consolidated=False)["obsm"]
    made = obsm.create_array("X_pca", data=X.astype(np.float32), chunks=(BLOCK, N_COLUMNS))
    made.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    zarr.consolidate_metadata(str(folder / "in.zarr"))
    return folder / "in.zarr"


def job(source: Path, target: Path, *options: str) -> list[str]:
    return ["run", str(source), "-o", str(target), "--n-landmarks", "150", "--root", "cell_0", "--quiet", *options]


def quietly(arguments: list[str]) -> tuple[int, str]:
    """The exit code of a command, and what it said."""
    said = io.StringIO()
    faulthandler.dump_traceback_later(LONGEST_CALL, exit=True)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = command(arguments)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        except Exception:
            traceback.print_exc()
            code = -1
    faulthandler.cancel_dump_traceback_later()
    return code, said.getvalue()


class Jobs:
    """A job, out of core and in memory, with the output that it should have."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.source, self.folder = make_cells(folder, seed), folder
        self.before, self.expected = digest(self.source), {}
        for how in ((), BLOCKS):
            began = time.perf_counter()
            code, said = quietly(job(self.source, folder / "expected.zarr", *how))
            self.seconds = time.perf_counter() - began
            assert code == 0, said
            self.expected[how] = digest(folder / "expected.zarr")
            shutil.rmtree(folder / "expected.zarr")

    def look(
        self, found: Counter, target: Path, how: tuple[str, ...] = BLOCKS, *options: str, finished: bool = False
    ) -> None:
        """Count what is wrong, run the same command again unless it has finished, and count what is wrong then."""
        found["tried"] += 1
        found["input changed"] += digest(self.source) != self.before
        found["half written"] += target.exists() and digest(target) != self.expected[how]
        code, said = (0, "") if finished else quietly(job(self.source, target, "--overwrite", *how, *options))
        left = {path.name for path in target.parent.iterdir() if not path.name.startswith(".")} - {"in.zarr"}
        if code or digest(target) != self.expected[how] or left != {target.name}:
            found["wrong afterwards"] += 1
            print(f"exit code {code}, there is {left}\n{said}", file=sys.stderr)
        shutil.rmtree(target, ignore_errors=True)


def kill_processes(jobs: Jobs, n: int) -> Counter:
    found: Counter = Counter()
    while found["hit"] < n:
        target = jobs.folder / "out.zarr"
        arguments = [sys.executable, __file__, "--child", str(jobs.source), str(target)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            child.stdout.readline()  # it has imported the package
            time.sleep(random.uniform(0, 1.2 * jobs.seconds))
            child.kill()
        found["hit"] += child.returncode == -signal.SIGKILL
        jobs.look(found, target)
    return found


class Workers:
    """Workers of a cluster as processes of this script: the cluster's own restarts are slow under many kills."""

    N = 3

    def __init__(self, scheduler: str) -> None:
        worker = ["-m", "distributed.cli.dask_worker", scheduler, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
        # With the package imported, a kill hits the work and not the import.
        self.command = [sys.executable, *worker, "--preload", "entropath_sc.tl"]
        self.processes = [self.start() for _ in range(self.N)]

    def start(self) -> subprocess.Popen:
        return subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        """Any of them; its place is empty until `renew`."""
        killed = self.processes.pop(random.randrange(self.N))
        killed.kill()
        killed.wait()

    def renew(self) -> int:
        """Start those that are missing; how many these are."""
        missing = self.N - len(self.processes)
        self.processes += [self.start() for _ in range(missing)]
        return missing

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def kill_workers(jobs: Jobs, n: int) -> Counter:
    from distributed import Client, LocalCluster

    found, target = Counter(), jobs.folder / "out.zarr"
    quiet = {"dashboard_address": None, "silence_logs": 50}
    with LocalCluster(n_workers=0, **quiet) as cluster, Client(cluster) as client, contextlib.ExitStack() as stack:
        workers = Workers(cluster.scheduler_address)
        stack.callback(workers.stop)
        client.wait_for_workers(workers.N)
        scheduler = ["--scheduler", cluster.scheduler_address]
        seconds = 60.0
        while found["hit"] < n:
            timer = threading.Timer(random.uniform(0, seconds), workers.kill)
            began = time.perf_counter()
            timer.start()
            code, _ = quietly(job(jobs.source, target, *BLOCKS, *scheduler))
            timer.cancel()
            timer.join()
            seconds = min(seconds, time.perf_counter() - began)
            found["hit"] += workers.renew()
            found["went on"] += code == 0
            jobs.look(found, target, BLOCKS, *scheduler, finished=code == 0)
    print(f"{found['went on']} of {found['tried']} jobs went on without the killed worker", file=sys.stderr)
    return found


@contextlib.contextmanager
def limited(folder: Path, kind: str) -> Iterator[None]:
    """A folder on a disk that is full soon, or that cannot be written; root needs a file system of its own for it."""
    full = kind == "full disk"
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k" if full else "ro", "tmpfs", str(folder)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0:
        yield
        subprocess.run(["umount", str(folder)], check=True)
    elif full:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        yield
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    else:
        folder.chmod(0o555)
        yield
        folder.chmod(0o755)


def starve(jobs: Jobs, kind: str) -> Counter:
    found, folder = Counter(), jobs.folder / "disk"
    for how in ((), BLOCKS):
        folder.mkdir()
        target = folder / "out.zarr"
        with limited(folder, kind):
            code, said = quietly(job(jobs.source, target, *how))
            found["hit"] += code == 2 and len(said.splitlines()) == 1
            found["half written"] += target.exists()
            if kind == "full disk" and target.with_name("out.zarr.partial").exists():
                shutil.copytree(folder, jobs.folder / "kept")
        if (jobs.folder / "kept").exists():  # what was kept goes on where there is room
            shutil.rmtree(folder, ignore_errors=True)
            (jobs.folder / "kept").rename(folder)
        jobs.look(found, target, how)
        shutil.rmtree(folder)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="half of processes, half of workers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    _blocks.LEAST_BLOCK_CELLS, _blocks.BLOCKS_AT_ONCE = BLOCK, 4
    if options.child:
        print("ready", flush=True)
        return command(job(*options.child, *BLOCKS))
    random.seed(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        return report(tried(options, Path(folder)))


def tried(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Counter]]:
    jobs = Jobs(folder, options.seed)
    for kind in ("full disk", "read-only folder"):
        yield kind, starve(jobs, kind)
    yield "kill of the process", kill_processes(jobs, -(-options.kills // 2))
    yield "kill of a worker", kill_workers(jobs, options.kills // 2)


def report(found: Iterator[tuple[str, Counter]]) -> int:
    """Print a row for each way to disturb; 1 where something was wrong."""
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    wrong = 0
    for what, counts in found:
        print(f"| {what} | {' | '.join(str(counts[column]) for column in COLUMNS[1:])} |", flush=True)
        wrong += sum(counts[column] for column in COLUMNS[3:])
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
