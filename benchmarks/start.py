"""Seconds before the first result: the import, and the first call in a new process.

    python benchmarks/start.py [--cells 3000] [--repeats 3]

Each line is a process of its own. The import is compared with scanpy's. The first embedding and pseudotime of cells
without neighbours run once with an empty cache of compiled code and then with a filled one, and are compared with the
second call in the same process. Writes start.md in benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

from speed import RESULTS

IMPORTS = """
import time
began = time.perf_counter()
import scanpy
between = time.perf_counter()
import entropath_sc
print("RESULT", [between - began, time.perf_counter() - between])
"""
CALLS = """
import sys, time, warnings
warnings.filterwarnings("ignore")
sys.path.insert(0, {folder!r})
from speed import annotated, cells
import entropath_sc as ep
spent = []
for seed in (0, 1):
    adata = annotated(cells({n_cells}, seed))
    began = time.perf_counter()
    ep.tl.embedding(adata)
    ep.tl.pseudotime(adata, root="cell_0")
    spent.append(time.perf_counter() - began)
print("RESULT", spent)
"""


def run(script: str, cache: str) -> list[float]:
    """The two times that a new process prints."""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"NUMBA_CACHE_DIR": cache})
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))[len("RESULT") :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    calls = CALLS.format(folder=os.path.dirname(os.path.abspath(__file__)), n_cells=options.cells)
    lines = ["| process | first | second |", "|---|---|---|"]

    def tell(what: str, times: list[float]) -> None:
        lines.append(f"| {what} | {times[0]:.2f} | {times[1]:.2f} |")
        print(lines[-1], file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as cache:
        tell(f"embedding and pseudotime of {options.cells:,} cells, nothing compiled", run(calls, cache))
        for _ in range(options.repeats):
            tell("the same, compiled before", run(calls, cache))
        for _ in range(options.repeats):
            tell("import of scanpy, then of entropath_sc", run(IMPORTS, cache))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "start.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
