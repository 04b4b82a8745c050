"""`entropath-sc run`: from a file with cells to a file with their embedding, order and fates."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from ._counts import preprocess
from ._figures import draw_figures, sample_of
from ._files import Workspace, drafts_in
from ._keys import Keys
from ._options import check_files, check_values, roots_of, settings_of
from ._outofcore import Seconds, refuse_shared, run_out_of_core
from .core.pipeline import N_NEIGHBORS
from .tl._adata import Fields, cell_indices, group_labels, named, without_following, write
from .tl._nodes import has_graph


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Check the files, run, and return the exit code; says in a line what went wrong."""
    check_files(options, parser)
    check_values(options, parser)
    import scanpy as sc

    before = sc.settings.verbosity
    sc.settings.verbosity = 1 if options.quiet else 2
    workspace, seconds = Workspace(options.output, overwrite=options.overwrite), Seconds()
    try:
        with warnings.catch_warnings(), ExitStack() as stack:
            warnings.showwarning = _show_warning
            warnings.filterwarnings("ignore", category=FutureWarning)
            drafts = None if options.figures is None else stack.enter_context(drafts_in(options.figures))
            with workspace:
                run_as = _out_of_core if options.out_of_core else _in_memory
                summary, adata = run_as(options, workspace, seconds)
                workspace.publish()
                seconds.took("writing")
            if drafts is not None:
                draw_figures(adata or sample_of(options.output, options), drafts, options)
                seconds.took("figures")
    except KeyboardInterrupt:
        hint = " The same command goes on from there." if options.out_of_core else ""
        state = "is written, but not all else." if workspace.published else f"was not written.{hint}"
        print(f"entropath-sc: interrupted, {options.output} {state}", file=sys.stderr)
        return 130
    except (ArithmeticError, ValueError, KeyError, TypeError, ImportError, OSError) as error:
        # str() of a KeyError is a repr.
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        state = f"{options.output} is written, but not its figures: " if workspace.published else ""
        print(f"entropath-sc: {state}{message}", file=sys.stderr)
        return 2 if isinstance(error, OSError) else 1
    finally:
        sc.settings.verbosity = before
    took = ", ".join(f"{stage} {spent:.1f}" for stage, spent in seconds.items())
    files = {"written": options.output} | ({"figures": options.figures} if options.figures else {})
    for name, value in {**summary, "seconds": took, **files}.items():
        print(f"{name:10s} {value}")
    return 0


def _summary(n_cells: int, n_landmarks: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    """What was found, by what `uns` holds."""
    how = "all embedded directly" if n_landmarks == n_cells else f"embedded among {n_landmarks} landmarks"
    found = {"cells": f"{n_cells}, {how}", "depth": f"{entry['depth']['chosen']:g}"}
    if "pseudotime" in entry:
        roots = list(map(str, entry["pseudotime"]["roots"]))
        found["root"] = roots[0] if len(roots) == 1 else f"{len(roots)} cells"
        found["order"] = "of landmarks" if entry["pseudotime"]["on"] == "landmarks" else "on the graph of all cells"
    if "terminal_states" in entry:
        states = entry["terminal_states"]["n_cells"].items()
        found["states"] = ", ".join(f"{name} ({n} cells on its branch)" for name, n in states) or "none"
    return found


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _in_memory(options: argparse.Namespace, workspace: Workspace, seconds: Seconds) -> tuple[dict[str, Any], Any]:
    import anndata as ad

    from . import tl

    try:
        adata = ad.read_h5ad(options.input) if options.input.suffix == ".h5ad" else ad.read_zarr(options.input)
    except OSError as error:
        raise OSError(f"{options.input} cannot be read: {error}") from error
    root = roots_of(options)
    if root is not None:
        # An error now, rather than after the embedding.
        roots = cell_indices(adata, root, "--root")
        terminals = cell_indices(adata, options.terminal, "--terminal") if options.terminal else None
        if options.root_label is None:
            refuse_shared(roots, terminals)
    for color in options.color:
        if color not in adata.obs and color not in adata.var_names and not color.startswith(f"{options.key_added}_"):
            columns = named(adata.obs.columns)
            raise ValueError(f"--color: {color!r} is neither a gene nor a column of obs; columns are {columns}.")
    if options.groupby:
        group_labels(adata, options.groupby)
    seconds.took("reading")
    if options.preprocess:
        preprocess(adata, options.n_neighbors or N_NEIGHBORS)
        seconds.took("preprocessing")
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
    seconds.took("embedding")
    keys = Keys(options.key_added)
    if root is None:
        _forget_order(adata, keys)
    else:
        # Without neighbours landmarks carry the order too.
        on_cells = has_graph(adata, keys, settings_of(options), options.use_rep)
        tl.pseudotime(
            adata,
            root=root,
            terminal=options.terminal,
            depth=options.depth,
            scaling=options.scaling,
            n_landmarks=None if on_cells else options.n_landmarks,
            use_rep=options.use_rep,
            random_state=options.random_state,
            **shared,
        )
    seconds.took("order")
    if options.lineages:
        tl.terminal_states(adata, **_lineages(options), key_added=options.key_added)
        if len(adata.obs[keys.terminal].cat.categories):
            tl.fates(adata, key_added=options.key_added)
        seconds.took("lineages")
    # What the input held, such as barcodes that may be missing, can be written again.
    with ad.settings.override(allow_write_nullable_strings=True):
        adata.write_h5ad(workspace.result) if options.output.suffix == ".h5ad" else adata.write_zarr(workspace.result)
    return _summary(adata.n_obs, int(adata.obs[keys.landmark].sum()), adata.uns[keys.uns]), adata


def _lineages(options: argparse.Namespace) -> dict[str, Any] | None:
    """The options of `terminal_states`."""
    return {"groupby": options.groupby, "random_state": options.random_state} if options.lineages else None


def _forget_order(adata, keys: Keys) -> None:
    """An order of an earlier run does not go with a new embedding, nor does what followed from it."""
    order = dict.fromkeys([keys.pseudotime, keys.potential])
    gone = Fields(obs=order, params={"pseudotime": None}, parts={"pseudotime": None})
    write(adata, keys, without_following(adata, keys, "pseudotime").add(gone))


def _out_of_core(options: argparse.Namespace, workspace: Workspace, seconds: Seconds) -> tuple[dict[str, Any], None]:
    try:
        import dask.array  # noqa: F401
        import zarr  # noqa: F401
    except ImportError as error:
        raise ImportError('--out-of-core needs dask and zarr: `pip install "entropath_sc[dask]"`.') from error
    settings = settings_of(options)
    names = ("n_components", "n_landmarks", "mds", "preset", "random_state")
    embedding = {name: getattr(options, name) for name in names}
    embedding |= {name: getattr(settings, name) for name in ("landmarks", "depth", "n_project")}
    names = ("scaling", "n_landmarks", "use_rep", "preset", "random_state")
    pseudotime = {name: getattr(options, name) for name in names}
    with ExitStack() as stack:
        if options.scheduler:
            from distributed import Client

            stack.enter_context(Client(options.scheduler))
        found = run_out_of_core(
            options.input,
            workspace,
            seconds,
            settings=settings,
            preprocess=options.preprocess,
            root=roots_of(options),
            terminal=options.terminal,
            lineages=_lineages(options),
            colors=options.color,
            use_rep=options.use_rep or "X_pca",
            key=options.key_added,
            n_neighbors=N_NEIGHBORS if options.n_neighbors is None else options.n_neighbors,
            embedding=embedding,
            pseudotime=pseudotime | {"depth": settings.depth},
        )
    return _summary(*found), None
