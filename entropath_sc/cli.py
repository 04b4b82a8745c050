"""The `entropath-sc` command."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ._options import add_run
from ._run import run


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="entropath-sc", description=__doc__)
    parser.add_argument("--version", action="version", version=version("entropath_sc"))
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="generate branching cells, embed and order them, and write figures")
    demo.add_argument("-o", "--output", type=Path, default=Path("entropath_demo"), help="folder (default: %(default)s)")
    demo.add_argument("--cells", type=int, default=3000, help="number of cells (default: %(default)s)")
    demo.add_argument("--seed", type=int, default=0, help="seed of the cells (default: %(default)s)")
    run_parser = add_run(commands)
    options = parser.parse_args(arguments)
    if options.command == "run":
        return run(options, run_parser)
    if options.cells < 100:
        demo.error("--cells must be at least 100.")
    import scanpy as sc

    with sc.settings.verbosity.override("error"):  # other messages would stand in the middle of a step's line
        return run_demo(options.output, options.cells, options.seed)


def run_demo(output: Path, n_cells: int, seed: int) -> int:
    """Generate, embed, order, draw and write; prints what was found."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from scipy.stats import spearmanr

    from . import datasets, pl, tl

    step = _Steps(total=5)
    step(f"generating {n_cells} cells on a tree with three ends")
    adata = datasets.branching(n_cells, random_state=seed)
    step("graph of all cells")
    tl.merw_graph(adata)
    step("embedding (the first run on a machine also compiles it)")
    tl.embedding(adata)
    step("pseudotime from the earliest cell")
    tl.pseudotime(adata, root=adata.uns["root"])
    step("figures and demo.h5ad")
    output.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Callable[[], Any]] = {
        "embedding": lambda: pl.embedding(adata, "branch", return_fig=True),
        "depth": lambda: pl.depth(adata, return_fig=True),
        "pseudotime": lambda: pl.pseudotime(adata, return_fig=True),
        "overview": lambda: _overview(adata),
    }
    for name, draw in figures.items():
        figure = draw()
        figure.savefig(output / f"{name}.png", dpi=150, bbox_inches="tight")
        plt.close(figure)
    adata.write_h5ad(output / "demo.h5ad")
    step.done()

    agreement = spearmanr(adata.obs["entropath_pseudotime"], adata.obs["time"]).statistic
    depth = adata.uns["entropath"]["depth"]
    print(f"  cells       {adata.n_obs}, of which {int(adata.obs['entropath_landmark'].sum())} embedded directly")
    print(f"  depth       {depth['chosen']:g} neighbour distances")
    print(f"  stress-1    {adata.uns['entropath']['embedding']['stress_1']:.3f}")
    print(f"  pseudotime  Spearman {agreement:.3f} with the true time, from root {adata.uns['root']}")
    print(f"  written     {output / 'demo.h5ad'}, {', '.join(f'{name}.png' for name in figures)}")
    return 0


def _overview(adata):
    """Branches, order and true time, side by side."""
    import matplotlib.pyplot as plt

    from . import pl

    figure, axes = plt.subplots(1, 3, figsize=(14.5, 4), layout="constrained")
    pl.embedding(adata, "branch", ax=axes[0], show=False)
    pl.pseudotime(adata, ax=axes[1], show=False)
    pl.embedding(adata, "time", color_map="viridis", title="true time", ax=axes[2], show=False)
    return figure


class _Steps:
    """Numbered steps on standard error, each with the seconds it took."""

    def __init__(self, total: int) -> None:
        self._total, self._count, self._began = total, 0, time.perf_counter()

    def __call__(self, text: str) -> None:
        self.done()
        self._count, self._began = self._count + 1, time.perf_counter()
        print(f"[{self._count}/{self._total}] {text} ... ", end="", file=sys.stderr, flush=True)

    def done(self) -> None:
        if self._count:
            print(f"{time.perf_counter() - self._began:.1f} s", file=sys.stderr, flush=True)
