"""The options of `entropath-sc run`, and what it refuses before anything is read."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from ._figures import figure_names
from ._files import must_stay, overlap, within, workspace_of
from ._keys import DEFAULT_KEY
from .core.kernel import BANDWIDTHS
from .core.landmarks import RULES
from .core.layout import SOLVERS
from .core.pipeline import N_LANDMARKS, PRESETS, SCALINGS, Settings
from .tl._adata import named
from .tl._checks import check_count, check_key, settings_for

SUFFIXES = (".h5ad", ".zarr")
DESCRIPTION = """Embed the cells of an AnnData file, order them from a root, find their fates (--lineages), and write
the file with the results.

The input needs a PCA (obsm/X_pca, or another representation named by --use-rep), or counts and --preprocess. It is
never changed, and the output appears under its name only when it is complete.

limits: By default all of the input is in memory, with --preprocess its counts two or three times (8 bytes for each
count that is not zero), and the graph of all cells where there are neighbours (about 3 kB a cell). As a rule of thumb,
16 GB hold a million cells with a PCA, or 200,000 with counts of 2,000 genes each. For more cells convert the input to
zarr and pass --out-of-core, which needs more cells than landmarks (2,000) and X by rows (csr or dense). It makes no
graph of all cells: landmarks carry the order and the fates, and memory hardly depends on the number of cells.

exit codes: 0 done, 1 the data do not allow it, 2 wrong arguments or files, 130 interrupted"""


def add_run(commands) -> argparse.ArgumentParser:
    """The `run` command with its options, named as in the functions."""
    parser = commands.add_parser(
        "run",
        usage="entropath-sc run INPUT -o OUTPUT [--root BARCODE] [options]; all options: entropath-sc run --help",
        help="embed and order the cells of an h5ad file or a zarr store",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("input", type=Path, help="in.h5ad or in.zarr")
    add("-o", "--output", type=Path, required=True, help="out.h5ad or out.zarr")
    add("--root", nargs="+", metavar="BARCODE", help="cells where the order begins; without a root there is no order")
    add("--root-label", nargs=2, metavar=("COLUMN", "CATEGORY"), help="begin at the cell deepest inside a category")
    add("--terminal", nargs="+", metavar="BARCODE", help="cells where the order ends")
    add("--lineages", action="store_true", help="also find terminal states, the tree of branches, and fates")
    add("--groupby", metavar="COLUMN", help="name the terminal states by the labels in this column of obs")
    add("--preprocess", action="store_true", help="X holds counts: normalise, log, 2,000 variable genes, 50 components")
    add("--out-of-core", action="store_true", help="zarr to zarr, block by block; goes on after an interruption")
    add("--scheduler", metavar="ADDRESS", help="dask cluster for --out-of-core, such as tcp://host:8786")
    add("--figures", type=Path, metavar="FOLDER", help="also draw there: embedding, order, tree, states, fates")
    add(
        "--color",
        nargs="+",
        default=[],
        metavar="COLUMN",
        help="columns to colour the embedding by (default: --groupby)",
    )
    add(
        "--overwrite",
        action="store_true",
        help="replace an h5ad file, figures, or a zarr store of this command",
    )
    add("--quiet", action="store_true", help="no progress")

    for group, arguments in OPTIONS.items():
        section = parser.add_argument_group(group)
        for name, settings in arguments.items():
            section.add_argument(f"--{name}", **settings)
    for name in GONE:
        add(f"--{name}", nargs="*", action=_Gone, help=argparse.SUPPRESS)
    return parser


class _Gone(argparse.Action):
    """Says what replaces an option that is no longer there."""

    def __call__(self, parser, namespace, values, option_string=None) -> None:
        parser.error(f"{option_string} is gone. {GONE[self.option_strings[0].removeprefix('--')]}")


def _number(text: str) -> float | str:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text


OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "graph": {
        "neighbors-key": {"help": "where scanpy stored the neighbours (default: neighbors)"},
        "use-rep": {"help": "representation to work in (default: that of the neighbours, else X_pca)"},
        "n-neighbors": {"type": int, "help": "search neighbourhoods of this size (default: those there, or 15)"},
        "decay": {"type": float, "help": "a larger value cuts off long edges more sharply (default: 3)"},
        "bandwidth": {"choices": BANDWIDTHS, "help": "how affinities follow the density of cells (default: tempered)"},
    },
    "embedding": {
        "n-components": {"type": int, "default": 2, "help": "dimensions of the embedding (default: %(default)s)"},
        "n-landmarks": {"type": int, "default": N_LANDMARKS, "help": "cells embedded directly (default: %(default)s)"},
        "landmarks": {"choices": RULES, "help": "how landmarks are chosen (default: farthest)"},
        "mds": {
            "choices": SOLVERS,
            "default": "metric",
            "help": "classical is faster and less accurate (default: metric)",
        },
        "n-project": {"type": int, "help": "landmarks that each cell is placed among (default: 10)"},
    },
    "order": {
        "scaling": {
            "choices": SCALINGS,
            "default": "minmax",
            "help": "linear, or spread evenly by rank (default: minmax)",
        }
    },
    "all steps": {
        "preset": {"choices": tuple(PRESETS), "default": "default", "help": "paper is the method as published"},
        "depth": {"type": _number, "help": "neighbour distances that a path may wander (default: 10)"},
        "key-added": {"default": DEFAULT_KEY, "help": "prefix of the fields that are set (default: %(default)s)"},
        "random-state": {"type": int, "default": 0, "help": "seed (default: %(default)s)"},
        "n-jobs": {"type": int, "help": "number of threads of the embedding (default: all)"},
    },
}


PATHS = (
    "Paths of all lengths replace it. --preset paper is the published method, --preset heat that in continuous time."
)
GONE = {
    "kernel": "Use --decay and --bandwidth: 2 and adaptive for gaussian, 40 and larger for alpha_decay.",
    "landmark-graph": "The neighbours of all cells join the landmarks; where there are none, all cells do.",
    "max-depth": "The entropy curve always has 150 points.",
    "diffusion": PATHS,
    "dissimilarity": PATHS,
    "order-depth": "Use --depth: embedding and order have the same.",
    "order-on": "All cells are ordered; where there are no neighbours, --n-landmarks landmarks carry the order.",
    "potential": PATHS,
    "refine": "The order needs none: a larger --depth smooths more.",
}


def check_files(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse, before anything is read, what cannot end well."""
    source, target, figures = options.input, options.output, options.figures
    made_in, has_root = workspace_of(target), options.root or options.root_label
    there = [] if figures is None else [name for name in figure_names(options) if (figures / name).exists()]
    among = figures is not None and any(within(figures, place) for place in (source, target, made_in))
    is_there = os.path.lexists(target)
    refused = {
        f"there is no {source}.": not source.exists(),
        f"{source} must end in .h5ad or .zarr.": source.suffix not in SUFFIXES,
        f"{target} must end in .h5ad or .zarr.": target.suffix not in SUFFIXES,
        "the output must not be the input: it is never overwritten.": target.resolve() == source.resolve(),
        "the output must not lie inside the input: it is never changed.": within(target, source),
        "the input must not lie inside the output, which is replaced as a whole.": within(source, target),
        f"the input must not lie inside {made_in}, where the output is made.": overlap(source, made_in),
        f"{target} is there already. Choose another name, or pass --overwrite.": is_there and not options.overwrite,
        must_stay(target): options.overwrite,
        "--figures must be a folder outside the input and the output.": among,
        f"{figures} holds {named(there)} already. Choose another folder, or pass --overwrite.": there
        and not options.overwrite,
        "give --root or --root-label, not both.": options.root and options.root_label,
        "--terminal needs a root.": options.terminal and not has_root,
        "--lineages needs a root: pass --root or --root-label.": options.lineages and not has_root,
        "--lineages needs --preset default.": options.lineages and options.preset != "default",
        "--groupby names terminal states: pass --lineages too.": options.groupby and not options.lineages,
        "--color is for --figures.": options.color and not options.figures,
        "--figures needs at least two components: raise --n-components.": options.figures and options.n_components < 2,
        "--scheduler is for --out-of-core.": options.scheduler and not options.out_of_core,
    }
    if options.out_of_core:
        is_zarr = (source.suffix, target.suffix) == (".zarr", ".zarr")
        refused["--out-of-core reads .zarr and writes .zarr; `adata.write_zarr` converts."] = not is_zarr
        for name in ("neighbors_key", "decay", "bandwidth", "n_jobs"):
            refused[f"--{name.replace('_', '-')} does not go with --out-of-core."] = getattr(options, name)
        refused["--out-of-core always uses --scaling minmax."] = options.scaling != "minmax"
        refused["--preprocess makes X_pca: leave --use-rep out."] = options.preprocess and options.use_rep
    for why, applies in refused.items():
        if why is not None and applies:
            parser.error(why)


def roots_of(options: argparse.Namespace) -> list[str] | tuple[str, str] | None:
    """Barcodes, or a column and a category."""
    return tuple(options.root_label) if options.root_label else options.root


def check_values(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse what the functions would refuse later, after hours perhaps."""
    try:
        settings_of(options)
        check_key(options.key_added)
        least = {"n_components": 1, "n_landmarks": 3, "random_state": 0, "n_neighbors": 2}
        for name, value in vars(options).items():
            if name in least and value is not None:
                check_count(name, value, least[name])
    except ValueError as error:
        parser.error(str(error))


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings of the preset, with the options that were given."""
    given = {name: getattr(options, name) for name in ("decay", "bandwidth", "landmarks", "n_project", "depth")}
    return settings_for(options.preset, **given)
