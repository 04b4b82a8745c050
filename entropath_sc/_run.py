"""`entropath-sc run`: from a file with cells to a file with their embedding and order."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ._keys import DEFAULT_KEY, Keys
from .core.kernel import BANDWIDTHS
from .core.landmarks import RULES
from .core.layout import SOLVERS
from .core.pipeline import N_LANDMARKS, N_NEIGHBORS, PRESETS, SCALINGS, Settings
from .tl._adata import cell_indices, named
from .tl._checks import check_count, check_key, settings_for

SUFFIXES = (".h5ad", ".zarr")
DESCRIPTION = """Embed the cells of an AnnData file, order them from a root, and write the file with the results.

The input needs a PCA (obsm/X_pca, or another representation named by --use-rep), or counts and --preprocess. It is
never changed, and the output appears under its name only when it is complete.

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
    add("--preprocess", action="store_true", help="X holds counts: normalise, log, 2,000 variable genes, 50 components")
    add("--out-of-core", action="store_true", help="zarr to zarr, block by block; goes on after an interruption")
    add("--scheduler", metavar="ADDRESS", help="dask cluster for --out-of-core, such as tcp://host:8786")
    add("--figures", type=Path, metavar="FOLDER", help="also draw the embedding, the depth and the order there")
    add("--color", nargs="+", default=[], metavar="COLUMN", help="columns to colour the embedding by")
    add("--overwrite", action="store_true", help="replace an output that is there")
    add("--quiet", action="store_true", help="no progress")

    for group, arguments in OPTIONS.items():
        section = parser.add_argument_group(group)
        for name, settings in arguments.items():
            section.add_argument(f"--{name}", **settings)
    return parser


def _number(text: str) -> float | str:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text


OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "graph": {
        "neighbors-key": {},
        "use-rep": {"help": "representation to work in (default: that of the neighbours, else X_pca)"},
        "n-neighbors": {"type": int, "help": "search neighbourhoods of this size (default: those there, or 15)"},
        "decay": {"type": float},
        "bandwidth": {"choices": BANDWIDTHS},
    },
    "embedding": {
        "n-components": {"type": int, "default": 2},
        "n-landmarks": {"type": int, "default": N_LANDMARKS},
        "landmarks": {"choices": RULES},
        "mds": {"choices": SOLVERS, "default": "metric"},
        "n-project": {"type": int},
    },
    "order": {"scaling": {"choices": SCALINGS, "default": "minmax"}},
    "all steps": {
        "preset": {"choices": tuple(PRESETS), "default": "default"},
        "depth": {"type": _number, "help": "neighbour distances that a path may wander (default: 10)"},
        "key-added": {"default": DEFAULT_KEY},
        "random-state": {"type": int, "default": 0},
        "n-jobs": {"type": int},
    },
}


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Check the files, run, and return the exit code; says in a line what went wrong."""
    _check_files(options, parser)
    _check_values(options, parser)
    import scanpy as sc

    before = sc.settings.verbosity
    sc.settings.verbosity = 1 if options.quiet else 2
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.filterwarnings("ignore", category=FutureWarning)
            summary = _out_of_core(options) if options.out_of_core else _in_memory(options)
    except KeyboardInterrupt:
        hint = " The same command goes on from there." if options.out_of_core else ""
        print(f"entropath-sc: interrupted, {options.output} was not written.{hint}", file=sys.stderr)
        return 130
    except (ValueError, KeyError, TypeError, ImportError, OSError) as error:
        # str() of a KeyError is a repr.
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        print(f"entropath-sc: {message}", file=sys.stderr)
        return 2 if isinstance(error, OSError) else 1
    finally:
        sc.settings.verbosity = before
    for name, value in summary.items():
        print(f"{name:10s} {value}")
    return 0


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _check_files(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse, before anything is read, what cannot end well."""
    source, target = options.input, options.output
    has_root = options.root or options.root_label
    refused = {
        f"there is no {source}.": not source.exists(),
        f"{source} must end in .h5ad or .zarr.": source.suffix not in SUFFIXES,
        f"{target} must end in .h5ad or .zarr.": target.suffix not in SUFFIXES,
        "the output must not be the input: it is never overwritten.": target.resolve() == source.resolve(),
        "the output must not lie inside the input: it is never changed.": source.resolve() in target.resolve().parents,
        f"{target} is there already. Choose another name, or pass --overwrite.": target.exists()
        and not options.overwrite,
        "give --root or --root-label, not both.": options.root and options.root_label,
        "--terminal needs a root.": options.terminal and not has_root,
        "--color is for --figures.": options.color and not options.figures,
        "--figures needs at least two components: raise --n-components.": options.figures and options.n_components < 2,
        "--scheduler is for --out-of-core.": options.scheduler and not options.out_of_core,
    }
    if options.out_of_core:
        is_zarr = (source.suffix, target.suffix) == (".zarr", ".zarr")
        refused["--out-of-core reads .zarr and writes .zarr; `adata.write_zarr` converts."] = not is_zarr
        for name in ("preprocess", "neighbors_key", "decay", "bandwidth", "figures", "n_jobs"):
            refused[f"--{name.replace('_', '-')} does not go with --out-of-core."] = getattr(options, name)
        refused["--out-of-core always uses --scaling minmax."] = options.scaling != "minmax"
    for why, applies in refused.items():
        if applies:
            parser.error(why)


def _roots(options: argparse.Namespace) -> list[str] | tuple[str, str] | None:
    return tuple(options.root_label) if options.root_label else options.root


def _check_values(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse what the functions would refuse later, after hours perhaps."""
    try:
        _settings(options)
        check_key(options.key_added)
        least = {"n_components": 1, "n_landmarks": 3, "random_state": 0, "n_neighbors": 2}
        for name, value in vars(options).items():
            if name in least and value is not None:
                check_count(name, value, least[name])
    except ValueError as error:
        parser.error(str(error))


def _settings(options: argparse.Namespace) -> Settings:
    """The settings of the preset, with the options that were given."""
    given = {name: getattr(options, name) for name in ("decay", "bandwidth", "landmarks", "n_project", "depth")}
    return settings_for(options.preset, **given)


def _in_memory(options: argparse.Namespace) -> dict[str, Any]:
    import anndata as ad

    from . import tl

    try:
        adata = ad.read_h5ad(options.input) if options.input.suffix == ".h5ad" else ad.read_zarr(options.input)
    except OSError as error:
        raise OSError(f"{options.input} cannot be read: {error}") from error
    root = _roots(options)
    if root is not None:
        # An error now, rather than after the embedding.
        roots = cell_indices(adata, root, "--root")
        if options.terminal and np.isin(roots, cell_indices(adata, options.terminal, "--terminal")).any():
            raise ValueError("A cell is given both as root and as terminal.")
    for color in options.color:
        if color not in adata.obs and color not in adata.var_names and not color.startswith(f"{options.key_added}_"):
            columns = named(adata.obs.columns)
            raise ValueError(f"--color: {color!r} is neither a gene nor a column of obs; columns are {columns}.")
    if options.preprocess:
        _preprocess(adata, options.n_neighbors or 15)
    elif not (options.use_rep or options.neighbors_key or "neighbors" in adata.uns or "X_pca" in adata.obsm):
        raise ValueError(
            f"{options.input} has neither neighbours nor a PCA (obsm/X_pca). If X holds counts, pass --preprocess; "
            f"else name a representation with --use-rep: obsm holds {named(adata.obsm)}."
        )
    shared = {"preset": options.preset, "key_added": options.key_added}
    if options.n_neighbors and not (options.preprocess or options.neighbors_key):
        options.use_rep = options.use_rep or "X_pca"  # search anew, whatever neighbours there are
    if options.neighbors_key or options.decay or options.bandwidth or options.n_neighbors:
        tl.merw_graph(
            adata,
            neighbors_key=options.neighbors_key,
            use_rep=options.use_rep,
            n_neighbors=None if options.preprocess else options.n_neighbors,
            decay=options.decay,
            bandwidth=options.bandwidth,
            random_state=options.random_state,
            **shared,
        )
    names = "n_components n_landmarks landmarks depth mds n_project use_rep random_state n_jobs".split()
    tl.embedding(adata, **{name: getattr(options, name) for name in names}, **shared)
    keys = Keys(options.key_added)
    if root is None:
        _forget_order(adata, keys)
    else:
        # Without neighbours the embedding's landmarks carry the order too.
        has_neighbors = "neighbors" in adata.uns or keys.affinity in adata.obsp
        tl.pseudotime(
            adata,
            root=root,
            terminal=options.terminal,
            depth=options.depth,
            scaling=options.scaling,
            n_landmarks=None if has_neighbors else options.n_landmarks,
            **shared,
        )
    if options.figures is not None:
        _draw(adata, options.figures, options.color, options.key_added, ordered=root is not None)
    _write(adata, options.output)
    return {
        "cells": adata.n_obs,
        "landmarks": int(adata.obs[keys.landmark].sum()),
        "depth": f"{adata.uns[keys.uns]['depth']['chosen']:g}",
        "written": options.output,
    }


def _forget_order(adata, keys: Keys) -> None:
    """An order of an earlier run does not go with a new embedding."""
    for name in (keys.pseudotime, keys.potential):
        if name in adata.obs:
            del adata.obs[name]
    entry = adata.uns[keys.uns]
    params = {step: params for step, params in entry["params"].items() if step != "pseudotime"}
    adata.uns[keys.uns] = {name: part for name, part in entry.items() if name != "pseudotime"} | {"params": params}


def _preprocess(adata, n_neighbors: int) -> None:
    """From counts to neighbours, as scanpy's tutorials do."""
    import scanpy as sc

    values = adata.X.data if sp.issparse(adata.X) else np.asarray(adata.X)
    if (values < 0).any() or (values != np.round(values)).any():
        raise ValueError(
            "--preprocess starts from counts, and X holds other numbers. If it is normalised already, leave "
            "--preprocess out (a PCA is then needed in obsm/X_pca); else put the counts into X."
        )
    adata.layers["counts"] = adata.X.copy()
    sc.pp.normalize_total(adata)
    sc.pp.log1p(adata)
    sc.pp.highly_variable_genes(adata, n_top_genes=min(2000, adata.n_vars))
    sc.pp.pca(adata, n_comps=min(50, adata.n_obs - 1, int(adata.var["highly_variable"].sum()) - 1))
    sc.pp.neighbors(adata, n_neighbors=n_neighbors)


def _write(adata, target: Path) -> None:
    """Write under another name first, so that what has the name is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.stem}.partial-{os.getpid()}{target.suffix}")
    try:
        adata.write_h5ad(partial) if target.suffix == ".h5ad" else adata.write_zarr(partial)
        if target.is_dir():
            shutil.rmtree(target)
        partial.replace(target)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)


def _draw(adata, folder: Path, colors: list[str], key: str, *, ordered: bool) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from . import pl

    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {"embedding": pl.embedding(adata, colors or None, key=key, return_fig=True)}
    figures["depth"] = pl.depth(adata, key=key, return_fig=True)
    if ordered:
        figures["pseudotime"] = pl.pseudotime(adata, key=key, return_fig=True)
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=150, bbox_inches="tight")
        plt.close(figure)


def _out_of_core(options: argparse.Namespace) -> dict[str, Any]:
    try:
        import dask.array  # noqa: F401
        import zarr  # noqa: F401
    except ImportError as error:
        raise ImportError('--out-of-core needs dask and zarr: `pip install "entropath_sc[dask]"`.') from error
    from contextlib import ExitStack

    from ._outofcore import run_out_of_core

    settings = _settings(options)
    names = ("n_components", "n_landmarks", "mds", "preset", "random_state")
    embedding = {name: getattr(options, name) for name in names}
    embedding |= {name: getattr(settings, name) for name in ("landmarks", "depth", "n_project")}
    pseudotime = {"depth": settings.depth, "scaling": "minmax", "n_landmarks": options.n_landmarks}
    with ExitStack() as stack:
        if options.scheduler:
            from distributed import Client

            stack.enter_context(Client(options.scheduler))
        summary = run_out_of_core(
            options.input,
            options.output,
            settings=settings,
            root=_roots(options),
            terminal=options.terminal,
            use_rep=options.use_rep or "X_pca",
            key=options.key_added,
            n_neighbors=N_NEIGHBORS if options.n_neighbors is None else options.n_neighbors,
            embedding=embedding,
            pseudotime=pseudotime | {"preset": options.preset},
            overwrite=options.overwrite,
        )
    return {**summary, "written": options.output}
