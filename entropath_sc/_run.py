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

from .core.affinity import KERNELS
from .core.diffusion import DIFFUSIONS, DISSIMILARITIES
from .core.landmarks import GRAPHS, RULES
from .core.mds import SOLVERS
from .core.model import DEPTH_RULES
from .core.ordering import POTENTIALS, SCALINGS
from .tl._adata import cell_indices
from .tl._checks import check_count, check_depth, check_key, check_refine
from .tl._ground import GROUNDS
from .tl._presets import PRESETS, with_preset

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
    add("--root-label", nargs=2, metavar=("COLUMN", "CATEGORY"), help="all cells of a category as roots")
    add("--terminal", nargs="+", metavar="BARCODE", help="cells where the order ends")
    add("--preprocess", action="store_true", help="X holds counts: normalise, log, 2,000 variable genes, 50 components")
    add("--out-of-core", action="store_true", help="zarr to zarr, block by block; goes on after an interruption")
    add("--scheduler", metavar="ADDRESS", help="dask cluster for --out-of-core, such as tcp://host:8786")
    add("--figures", type=Path, metavar="FOLDER", help="also draw the embedding, the depth and the order there")
    add("--color", nargs="+", default=[], metavar="COLUMN", help="columns to colour the embedding by")
    add("--overwrite", action="store_true", help="replace an output that is there")
    add("--quiet", action="store_true", help="no progress")

    graph = parser.add_argument_group("graph")
    graph.add_argument("--neighbors-key")
    graph.add_argument("--use-rep", help="representation to work in (default: that of the neighbours, else X_pca)")
    graph.add_argument(
        "--n-neighbors", type=int, help="search neighbourhoods of this size (default: those there, or 15)"
    )
    graph.add_argument("--kernel", choices=KERNELS)
    embedding = parser.add_argument_group("embedding")
    embedding.add_argument("--n-components", type=int, default=2)
    embedding.add_argument("--n-landmarks", type=int, default=2000)
    embedding.add_argument("--landmarks", choices=RULES)
    embedding.add_argument("--landmark-graph", choices=GRAPHS)
    embedding.add_argument("--depth", type=_number, help="a number, 'auto' or 'knee'")
    embedding.add_argument("--max-depth", type=int, default=150)
    embedding.add_argument("--diffusion", choices=DIFFUSIONS)
    embedding.add_argument("--dissimilarity", choices=tuple(DISSIMILARITIES))
    embedding.add_argument("--mds", choices=SOLVERS, default="metric")
    embedding.add_argument("--n-project", type=int)
    order = parser.add_argument_group("order")
    order.add_argument("--order-depth", type=_number, help="a number, 'auto' or 'embedding'")
    order.add_argument("--potential", choices=POTENTIALS)
    order.add_argument("--refine", type=_number, default="auto", help="share of the refined order, 0 to 1, or 'auto'")
    order.add_argument("--order-on", choices=GROUNDS, default="auto", help="what paths lead through")
    order.add_argument("--scaling", choices=SCALINGS, default="minmax")
    common = parser.add_argument_group("all steps")
    common.add_argument("--preset", choices=tuple(PRESETS), default="default")
    common.add_argument("--key-added", default="entropath")
    common.add_argument("--random-state", type=int, default=0)
    common.add_argument("--n-jobs", type=int)
    return parser


def _number(text: str) -> float | str:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text


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
    if not source.exists():
        parser.error(f"there is no {source}.")
    for path in (source, target):
        if path.suffix not in (".h5ad", ".zarr"):
            parser.error(f"{path} must end in .h5ad or .zarr.")
    if target.resolve() == source.resolve():
        parser.error("the output must not be the input: it is never overwritten.")
    if source.resolve() in target.resolve().parents:
        parser.error("the output must not lie inside the input: it is never changed.")
    if target.exists() and not options.overwrite:
        parser.error(f"{target} is there already. Choose another name, or pass --overwrite.")
    if options.root and options.root_label:
        parser.error("give --root or --root-label, not both.")
    if options.terminal and not (options.root or options.root_label):
        parser.error("--terminal needs a root.")
    if options.refine != "auto" and not (options.root or options.root_label):
        parser.error("--refine needs a root.")
    if options.color and not options.figures:
        parser.error("--color is for --figures.")
    if options.figures and options.n_components < 2:
        parser.error("--figures needs at least two components: raise --n-components.")
    if options.scheduler and not options.out_of_core:
        parser.error("--scheduler is for --out-of-core.")
    if options.out_of_core:
        if (source.suffix, target.suffix) != (".zarr", ".zarr"):
            parser.error("--out-of-core reads .zarr and writes .zarr; `adata.write_zarr` converts.")
        for name in ("preprocess", "neighbors_key", "kernel", "figures", "n_jobs"):
            if getattr(options, name):
                parser.error(f"--{name.replace('_', '-')} does not go with --out-of-core.")
        if options.landmark_graph == "compressed":
            parser.error("--landmark-graph compressed needs all cells in memory; --out-of-core uses anchor or knn.")
        if options.order_on == "cells":
            parser.error("--order-on cells needs all cells in memory; with --out-of-core landmarks carry the order.")
        if options.scaling != "minmax":
            parser.error("--out-of-core always uses --scaling minmax.")


def _roots(options: argparse.Namespace) -> list[str] | tuple[str, str] | None:
    return tuple(options.root_label) if options.root_label else options.root


def _check_values(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse what the functions would refuse later, after hours perhaps."""
    embedding, order = _embedding(options), _order(options)
    try:
        check_key(options.key_added)
        for name, least in (("n_components", 1), ("n_landmarks", 3), ("max_depth", 1), ("n_project", 1)):
            check_count(name, embedding[name], least)
        check_depth(embedding["depth"], embedding["diffusion"], DEPTH_RULES)
        check_depth(order["depth"], order["diffusion"], ("auto", "embedding"))
        check_refine(order["refine"], order["potential"], order["diffusion"])
    except ValueError as error:
        parser.error(str(error))


EMBEDDING = ("landmarks", "landmark_graph", "n_project", "depth", "diffusion", "dissimilarity")
PLAIN = ("n_components", "n_landmarks", "max_depth", "mds")


def _embedding(options: argparse.Namespace) -> dict[str, Any]:
    """The options of the embedding, with those of the preset."""
    governed = {name: getattr(options, name) for name in EMBEDDING}
    chosen = dict(zip(governed, with_preset(options.preset, "embedding", **governed), strict=True))
    return chosen | {name: getattr(options, name) for name in PLAIN}


def _order(options: argparse.Namespace) -> dict[str, Any]:
    """The options of the order, with those of the preset."""
    governed = {"depth": options.order_depth, "diffusion": options.diffusion, "potential": options.potential}
    chosen = dict(zip(governed, with_preset(options.preset, "pseudotime", **governed), strict=True))
    return {
        **chosen,
        "refine": options.refine,
        "scaling": options.scaling,
        "on": options.order_on,
        "preset": options.preset,
    }


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
            there = ", ".join(map(repr, adata.obs.columns[:12])) or "none"
            raise ValueError(f"--color: {color!r} is neither a gene nor a column of obs; columns are {there}.")
    if options.preprocess:
        _preprocess(adata, options.n_neighbors or 15)
    elif not (options.use_rep or options.neighbors_key or "neighbors" in adata.uns or "X_pca" in adata.obsm):
        raise ValueError(
            f"{options.input} has neither neighbours nor a PCA (obsm/X_pca). If X holds counts, pass --preprocess; "
            f"else name a representation with --use-rep: obsm holds {', '.join(adata.obsm) or 'nothing'}."
        )
    shared = {"preset": options.preset, "key_added": options.key_added}
    if options.n_neighbors and not (options.preprocess or options.neighbors_key):
        options.use_rep = options.use_rep or "X_pca"  # search anew, whatever neighbours there are
    if options.neighbors_key or options.kernel or options.use_rep:
        tl.merw_graph(
            adata,
            neighbors_key=options.neighbors_key,
            use_rep=options.use_rep,
            n_neighbors=options.n_neighbors,
            kernel=options.kernel,
            random_state=options.random_state,
            **shared,
        )
    tl.embedding(adata, **_embedding(options), **shared, random_state=options.random_state, n_jobs=options.n_jobs)
    if root is not None:
        tl.pseudotime(adata, root=root, terminal=options.terminal, **_order(options), key_added=options.key_added)
    if options.figures is not None:
        _draw(adata, options.figures, options.color, options.key_added, ordered=root is not None)
    _write(adata, options.output)
    found = adata.uns[options.key_added]
    summary = {
        "cells": adata.n_obs,
        "landmarks": int(adata.obs[f"{options.key_added}_landmark"].sum()),
        "depth": f"{found['depth']['chosen']:g}",
    }
    if root is not None:
        summary["refined"] = f"{found['pseudotime']['refined']:.0%} of the order"
    return {**summary, "written": options.output}


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

    embedding = _embedding(options)
    if embedding["landmark_graph"] == "auto":
        embedding["landmark_graph"] = "anchor"
    with ExitStack() as stack:
        if options.scheduler:
            from distributed import Client

            stack.enter_context(Client(options.scheduler))
        summary = run_out_of_core(
            options.input,
            options.output,
            root=_roots(options),
            terminal=options.terminal,
            use_rep=options.use_rep or "X_pca",
            key=options.key_added,
            kernel=PRESETS[options.preset]["merw_graph"]["kernel"],
            n_neighbors=options.n_neighbors or 15,
            embedding={**embedding, "preset": options.preset},
            pseudotime=_order(options),
            random_state=options.random_state,
            overwrite=options.overwrite,
        )
    return {**summary, "written": options.output}
