"""Where the time goes at several sizes, against the limits of the machine. Writes docs/profile.md.

    python benchmarks/time_spent.py [--cells 3000 50000 1000000 10000000] [--joined 3000 50000] [--repeats 3]

Each size runs in a process of its own, first on 9,000 cells (which compiles what there is to compile). Seconds are of
processor time on one thread, the least of the repeats: other programs change them little. Cells are without neighbours,
and of the sizes in ``--joined`` on the graph of scanpy's neighbours too, which is not timed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
from speed import N_LANDMARKS, N_PCS, annotated, cells, many_cells

PAGE = Path(__file__).parents[1] / "docs" / "profile.md"

# Functions that are timed, by the name of their row. What a tool does besides is its own row.
PARTS = {
    "marks of the positions": ["tl._graphs.content", "tl._nodes.content"],
    "marks of the rows": ["tl._embedding.row_marks", "tl._pseudotime.row_marks"],
    "choice of landmarks": ["core.pipeline.choose"],
    "nearest landmarks of all cells": ["core.cells.Nodes.nearest"],
    "graph among landmarks": ["core.nodes.SoftAssignment.__call__", "core.pipeline.compressed_graph"],
    "graph of cells": ["tl._nodes.cell_graph", "tl._merw_graph.make_graph"],
    "neighbours, read": ["tl._graphs.neighbor_distances"],
    "weights of paths": ["core.pipeline.PathEnsemble.of", "core.pipeline.PathEnsemble.residual"],
    "free energies": ["core.ensemble.PathEnsemble.free_energies"],
    "diagnosis of the depth": ["core.pipeline.agreement"],
    "metric scaling": ["core.layout.classical", "core.layout.smacof"],
    "first passages": ["core.ensemble.PathEnsemble.first_passages", "core.ensemble.PathEnsemble.nearest"],
    "orders of resamples": ["core.ensemble.PathEnsemble.relaxed"],
    "peaks": ["core.lineages.find_peaks", "tl._ordered.find_peaks", "tl._ordered.firm_edges"],
    "placing cells": ["core.nodes.Interpolator.__call__"],
}
TOOLS = ("merw_graph", "embedding", "pseudotime", "terminal_states", "fates")
SEARCH = "nearest landmarks of all cells"


class Clock:
    """Processor time of the parts; of a part inside another one it is the outer one's."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._inside = False

    def watch(self, row: str, where: str) -> None:
        """Time a function of the package, wherever it is called from."""
        *path, name = where.split(".")
        owner = import_module(f"entropath_sc.{path[0]}.{path[1]}")
        for part in path[2:]:
            owner = getattr(owner, part)
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*args, **kwargs):
            if self._inside:
                return function(*args, **kwargs)
            self._inside, began = True, time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[row] = self.spent.get(row, 0.0) + time.process_time() - began
                self._inside = False

        setattr(owner, name, timed)


def limits() -> dict[str, float]:
    """GFLOPS of a matrix product in single and double precision on one core, and GB/s of a copy."""
    from threadpoolctl import threadpool_limits

    def best(function) -> float:
        spent = []
        for _ in range(5):
            began = time.process_time()
            function()
            spent.append(time.process_time() - began)
        return min(spent)

    found = {}
    with threadpool_limits(1):
        for name, dtype in (("single", np.float32), ("double", np.float64)):
            A = np.ones((1500, 1500), dtype=dtype)
            found[name] = 2 * 1500**3 / best(functools.partial(np.dot, A, A)) / 1e9
        source, target = np.ones(2**25), np.empty(2**25)
        found["bandwidth"] = 2 * source.nbytes / best(functools.partial(np.copyto, target, source)) / 1e9
    return found


def child(n_cells: int, repeats: int, joined: bool) -> None:
    """Run all tools on one size, and print a line of JSON."""
    warnings.filterwarnings("ignore")
    import scanpy as sc

    import entropath_sc as ep

    clock = Clock()
    for row, functions in PARTS.items():
        for where in functions:
            clock.watch(row, where)

    def cells_of(X: np.ndarray):
        adata = annotated(X)
        if joined:
            sc.pp.neighbors(adata, use_rep="X_pca", method="gauss")  # only distances are read
        return adata

    def run(base) -> dict[str, float]:
        adata = base.copy() if joined else base
        clock.spent = {}
        for tool in TOOLS if joined else TOOLS[1:]:
            before, began = sum(clock.spent.values()), time.process_time()
            getattr(ep.tl, tool)(adata, **({"root": "cell_0"} if tool == "pseudotime" else {}))
            rest = time.process_time() - began - (sum(clock.spent.values()) - before)
            clock.spent[f"rest of `{tool}`"] = rest
        return clock.spent

    run(cells_of(cells(9000)))
    X = many_cells(n_cells)
    base = cells_of(X) if joined else None
    runs = [run(base if joined else cells_of(X)) for _ in range(repeats)]
    least = min(runs, key=lambda spent: sum(spent.values()))
    print("RESULT" + json.dumps(least))


def measure(n_cells: int, repeats: int, joined: bool) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", str(n_cells), "--repeats", str(repeats)]
    command += ["--joined", str(n_cells)] if joined else ["--joined"]
    # Parts that run at the same time cannot be told apart, so there is one thread.
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"NUMBA_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))[len("RESULT") :])


def table(found: dict[int, dict[str, float]]) -> list[str]:
    """A row a part, a column a size."""
    rows = [*PARTS, *(f"rest of `{tool}`" for tool in TOOLS)]
    lines = ["| processor seconds | " + " | ".join(f"{n:,} cells" for n in found) + " |", "|---|" + "---|" * len(found)]
    for row in rows:
        values = [spent.get(row, 0.0) for spent in found.values()]
        if max(values) >= 0.005:
            lines.append(f"| {row} | " + " | ".join(f"{value:.2f}" for value in values) + " |")
    lines.append("| all | " + " | ".join(f"{sum(spent.values()):.2f}" for spent in found.values()) + " |")
    each = (sum(spent.values()) / n * 1e6 for n, spent in found.items())
    return [*lines, "| microseconds a cell | " + " | ".join(f"{spent:.1f}" for spent in each) + " |"]


def against(found: dict[int, dict[str, float]], machine: dict[str, float]) -> list[str]:
    """The largest parts against the matrix product that they contain."""
    largest = max(found)
    product = 2e-9 * largest * N_LANDMARKS * (N_PCS + 1)
    rate = product / found[largest][SEARCH]
    inverse = 4e-9 * N_LANDMARKS**3 / 3
    return [
        f"One core of this machine multiplies matrices at {machine['single']:.0f} GFLOPS in single and "
        f"{machine['double']:.0f} in double precision, and copies {machine['bandwidth']:.1f} GB/s. "
        f"It has {os.cpu_count()} cores.",
        "",
        f"The search of nearest landmarks at {largest:,} cells contains a product of {product:.0f} GFLOP. It runs at "
        f"{rate:.0f} GFLOPS a core: {rate / machine['single']:.0%} of the product alone.",
        "",
        f"The inverse behind the free energies would have {inverse:.0f} GFLOP without its zeros, and take "
        f"{inverse / machine['double']:.2f} s at the rate of the product. With its zeros, and with logarithms, it "
        f"takes {found[largest]['free energies']:.2f} s.",
    ]


TEXT = """# Where the time goes

This page shows what each step costs, what the machine itself allows, and what you can do for more speed. The command
`python benchmarks/time_spent.py` writes it.

The cells are on a chain of nineteen segments in 50 dimensions, without neighbours: landmarks carry everything. Seconds
are processor time on one thread. With more threads, the search, the graph among landmarks, the free energies, the
diagnosis, the scaling and the placing of cells use all cores; the rest uses one.

{table}

{against}

Most data have neighbours, and each cell is a node of their graph. Landmarks then carry the coordinates only. After
`sc.pp.neighbors`, which is not part of it:

{joined}

## What the rows are

- *Nearest landmarks* compares every cell with all 2,000 landmarks. It is exact. It grows with the number of cells, and
  takes most of the time from about 100,000 cells on. It runs once: the tools that follow use what it found.
- *Free energies*, *diagnosis of the depth* and *metric scaling* depend on the number of landmarks alone. Together
  they take most of the time of a few thousand cells.
- *Free energies* come from the inverse of a matrix. It is fast where the graph falls into two halves with few edges
  between them, as a trajectory does. In a cloud of cells it takes several times as long.
- *First passages* solve one sparse system for the pseudotime, and one for each end that may be a terminal state.
- *Weights of paths* are those of their steps. By them a stored pseudotime is checked, too.
- *Orders of resamples* and *peaks* tell how often a terminal state is found again in samples of the cells.
- *Marks* are checksums of the positions. By them the tools notice that positions have changed.
- *Diagnosis of the depth* is not needed for coordinates: it is the curve of `ep.pl.depth`.

## The first call

The first call on a machine compiles the kernels. That takes three to six seconds, once: numba keeps the result on disk.
Set `NUMBA_CACHE_DIR` to a folder that lasts where containers start empty. After that, the first call of a process takes
about a third of a second longer than the next (`python benchmarks/start.py`).

`sc.pp.neighbors` compiles too, for up to a minute. Cells without neighbours need none of it.

## More speed

- Above 100,000 cells, leave `sc.pp.neighbors` out. Landmarks then carry coordinates, order and fates.
- Fewer landmarks: `n_landmarks=1000` halves the search, and takes an eighth of the free energies and the scaling. Fine
  branches may be lost.
- Fewer components: the search is proportional to them.
- `terminal_states(adata, n_resamples=0)` leaves out how often a state is found again, which takes about a third
  of that step.
- Keep the positions in single precision (`float32`). Others are converted in each call.
- Use the cores: `n_jobs` limits them, so does `NUMBA_NUM_THREADS`. More than one process per core is slower.
- Above memory, give a dask array, and a cluster: all per-cell steps run block by block, on all workers.
  `python benchmarks/scale.py` prints the stages for ten million cells, and what 100 million would take on 16 and 64
  workers.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, nargs="+", default=[3_000, 50_000, 1_000_000, 10_000_000])
    parser.add_argument("--joined", type=int, nargs="*", default=[3_000, 50_000], help="with neighbours")
    parser.add_argument("--repeats", type=int, default=3, help="of up to a million cells; more run once")
    parser.add_argument("--no-page", action="store_true", help="only print the table")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        child(options.one, options.repeats, joined=bool(options.joined))
        return
    found: dict[bool, dict[int, dict[str, float]]] = {False: {}, True: {}}
    for joined, sizes in ((False, options.cells), (True, options.joined)):
        for n in sizes:
            print(f"{n:,} cells{' with neighbours' if joined else ''} ...", file=sys.stderr, flush=True)
            found[joined][n] = measure(n, options.repeats if n <= 1_000_000 else 1, joined)
    parts = {
        "table": table(found[False]),
        "against": against(found[False], limits()),
        "joined": table(found[True]) if found[True] else [],
    }
    parts = {name: "\n".join(lines) for name, lines in parts.items()}
    print(*parts.values(), sep="\n\n")
    if not options.no_page:
        PAGE.write_text(TEXT.format(**parts))


if __name__ == "__main__":
    main()
