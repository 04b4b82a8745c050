"""What each public function answers to hostile input: a result, a warning, or the first sentence of an error.

python benchmarks/hostile.py        writes docs/hostile.md
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import matplotlib
import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.neighbors import kneighbors_graph

import entropath_sc as ep

PAGE = Path(__file__).parents[1] / "docs" / "hostile.md"
N = 60


def cells(n: int = N) -> ad.AnnData:
    """Two branches in four dimensions, with a root, a label and a gene or two."""
    time = np.linspace(0, 1, n)
    X = np.random.default_rng(0).normal(scale=0.05, size=(n, 4))
    X[:, 0] += time
    X[::2, 1] += np.maximum(time[::2] - 0.5, 0)
    obs = pd.DataFrame({"time": time, "branch": pd.Categorical(np.where(np.arange(n) % 2, "A", "B"))})
    obs.index = [f"cell_{i}" for i in range(n)]
    return ad.AnnData(X.astype(np.float32), obs=obs, obsm={"X_pca": X})


def changed(change: Callable[[ad.AnnData], Any]) -> Callable[[], ad.AnnData]:
    """Cells after a change, in place or as a new object."""

    def made() -> ad.AnnData:
        adata = cells()
        other = change(adata)
        return other if isinstance(other, ad.AnnData) else adata

    return made


def moved(function: Callable[[np.ndarray], Any]) -> Callable[[], ad.AnnData]:
    """Cells with other positions."""
    return changed(lambda adata: adata.obsm.update({"X_pca": function(adata.obsm["X_pca"])}))


def row(value: float, times: float = 0.0) -> Callable[[np.ndarray], np.ndarray]:
    """One cell elsewhere."""

    def function(X):
        X[5] = X[5] * times + value
        return X

    return function


def joined(distances, **entry) -> Callable[[], ad.AnnData]:
    """Cells with these neighbours, and without positions."""

    def change(adata):
        bare = ad.AnnData(obs=adata.obs)
        bare.obsp["distances"] = distances
        bare.uns["neighbors"] = {"distances_key": "distances", "params": {"n_neighbors": 8}, **entry}
        return bare

    return changed(change)


def neighbours(n_neighbors: int = 8) -> sp.csr_matrix:
    return kneighbors_graph(cells().obsm["X_pca"], n_neighbors - 1, mode="distance")


def edges(i: np.ndarray, j: np.ndarray, lengths: np.ndarray | float) -> sp.csr_matrix:
    return sp.csr_matrix((np.broadcast_to(lengths, len(i)).astype(float), (i, j)), shape=(N, N))


def with_entry(value: Any) -> Callable[[], ad.AnnData]:
    return changed(lambda adata: adata.uns.update({"entropath": value}))


def after(change: Callable[[ad.AnnData], Any]) -> Callable[[], ad.AnnData]:
    """Cells that the tools have seen, and that were changed since."""

    def made(adata):
        ep.tl.merw_graph(adata, bandwidth="adaptive")
        ep.tl.embedding(adata)
        ep.tl.pseudotime(adata, root="cell_0")
        other = change(adata)
        return other if isinstance(other, ad.AnnData) else adata

    return changed(made)


CHAIN = np.arange(N - 1)
LONG = 10.0 ** np.linspace(-300, 300, N - 1)
INPUTS: dict[str, Callable[[], Any]] = {
    "ordinary cells": cells,
    # Kinds of objects.
    "an array": lambda: cells().obsm["X_pca"],
    "no cells": changed(lambda adata: adata[:0].copy()),
    "one cell": changed(lambda adata: adata[:1].copy()),
    "two cells": changed(lambda adata: adata[:2].copy()),
    "fourteen cells, one less than a neighbourhood": changed(lambda adata: adata[:14].copy()),
    "fifteen cells": changed(lambda adata: adata[:15].copy()),
    "a view": changed(lambda adata: adata[10:]),
    "no positions and no neighbours": changed(lambda adata: adata.obsm.clear()),
    "barcodes that are given twice": changed(lambda adata: setattr(adata, "obs_names", ["cell_0", "twice"] * (N // 2))),
    "barcodes that are numbers": changed(lambda adata: setattr(adata, "obs_names", [str(i) for i in range(N)])),
    "empty barcodes": changed(lambda adata: setattr(adata, "obs_names", [""] * N)),
    # Numbers.
    "float16": moved(lambda X: X.astype(np.float16)),
    "uint8": moved(lambda X: np.round(60 + 60 * X).astype(np.uint8)),
    "bool": moved(lambda X: X > np.median(X, axis=0)),
    "complex numbers": moved(lambda X: X + 1j),
    "words": moved(lambda X: X.astype(str)),
    "a sparse matrix": moved(sp.csr_matrix),
    "a data frame": moved(lambda X: pd.DataFrame(X, index=[f"cell_{i}" for i in range(N)])),
    "no columns": moved(lambda X: X[:, :0]),
    "one column": moved(lambda X: X[:, :1]),
    "NaN in one cell": moved(row(np.nan)),
    "inf in one cell": moved(row(np.inf)),
    "positions + 1e7": moved(lambda X: X + 1e7),
    "positions + 1e15": moved(lambda X: X + 1e15),
    "positions times 1e-30": moved(lambda X: X * 1e-30),
    "positions times 1e30": moved(lambda X: X * 1e30),
    "positions times 1e300": moved(lambda X: X * 1e300),
    "all cells in one place": moved(np.ones_like),
    "all cells in two places": moved(lambda X: np.round(X[:, :1])),
    "half of the cells duplicated": moved(lambda X: np.repeat(X[::2], 2, axis=0)),
    "one cell at 100 times its distance": moved(row(0, 100)),
    "one cell at 10,000 times its distance": moved(row(0, 1e4)),
    "cells in two clouds, far apart": moved(lambda X: X + 1e3 * (np.arange(N) < N // 2)[:, None]),
    "a grid, with ties everywhere": moved(lambda X: np.column_stack([np.arange(N) // 8, np.arange(N) % 8])),
    # Neighbours.
    "neighbours without positions": joined(neighbours()),
    "a dense matrix of distances": joined(neighbours().toarray()),
    "neighbours with NaN": joined(neighbours() * np.nan),
    "neighbours with negative distances": joined(-neighbours()),
    "neighbours, all at no distance": joined(neighbours() * 0),
    "neighbours without an edge": joined(sp.csr_matrix((N, N))),
    "neighbours in two pieces, without positions": joined(edges(CHAIN[CHAIN != 30], CHAIN[CHAIN != 30] + 1, 1.0)),
    "neighbours in a chain": joined(edges(CHAIN, CHAIN + 1, 1.0)),
    "a chain with lengths from 1e-300 to 1e300": joined(edges(CHAIN, CHAIN + 1, LONG)),
    "a star": joined(edges(0 * CHAIN, CHAIN + 1, 1.0)),
    "each cell its own neighbour": joined(sp.eye_array(N, format="csr")),
    "distances under another name": joined(neighbours(), distances_key="nowhere"),
    "uns['neighbors'] is a word": changed(lambda adata: adata.uns.update({"neighbors": "none"})),
    # Fields of others.
    "uns['entropath'] is a number": with_entry(3),
    "uns['entropath'] of another tool": with_entry({"params": {"n_epochs": 3}}),
    # After the tools.
    "run before": after(lambda adata: None),
    "run before, then every second cell": after(lambda adata: adata[::2].copy()),
    "run before, then the cells reversed": after(lambda adata: adata[::-1].copy()),
    "run before, then new barcodes": after(
        lambda adata: setattr(adata, "obs_names", [f"cell_{i}" for i in range(N)][::-1])
    ),
    "run before, then new positions": after(lambda adata: adata.obsm.update({"X_pca": adata.obsm["X_pca"] ** 3})),
    "run before, then positions deleted": after(lambda adata: adata.obsm.pop("X_pca")),
    "run before, then positions and half of the cells deleted": after(
        lambda adata: [adata.obsm.pop("X_pca"), adata[::2].copy()][1]
    ),
    "run before, then the graph deleted": after(lambda adata: adata.obsp.clear()),
    "run before, then coordinates deleted": after(lambda adata: adata.obsm.pop("X_entropath")),
    "run before, then concatenated with itself": after(
        lambda adata: ad.concat([adata, adata], uns_merge="same", index_unique="-")
    ),
    "run before, then concatenated, `uns` lost": after(lambda adata: ad.concat([adata, adata], index_unique="-")),
}
KEYS = ["a/b", "a\\b", "..", "", "pca", "umap"]


def with_fields_of_others() -> ad.AnnData:
    adata = cells()
    adata.obsm["X_umap"] = adata.obsm["X_pca"][:, :2].copy()
    adata.uns["pca"] = {"params": {"zero_center": True}}
    return adata


@functools.cache
def reference() -> ad.AnnData:
    adata = cells(90)
    ep.tl.embedding(adata)
    ep.tl.pseudotime(adata, root="cell_0")
    return adata


def root_of(adata: Any) -> str:
    return str(adata.obs_names[0]) if len(getattr(adata, "obs_names", [])) else "cell_0"


TOOLS: dict[str, Callable[[Any], Any]] = {
    "merw_graph": ep.tl.merw_graph,
    "embedding": ep.tl.embedding,
    "pseudotime": lambda adata: ep.tl.pseudotime(adata, root=root_of(adata)),
    "project onto ordinary cells": lambda adata: ep.tl.project(adata, reference()),
    "project ordinary cells onto it": lambda adata: onto(adata),
}


def onto(adata: Any) -> None:
    if "entropath" not in getattr(adata, "uns", {}):
        ep.tl.embedding(adata)
    ep.tl.project(cells(20), adata)


def calls() -> dict[str, Callable[[], Any]]:
    """Calls of the other functions."""
    line, labels = np.arange(30.0)[:, None], np.repeat([0, 1, 2], 10)
    negative, zero = edges(CHAIN, CHAIN + 1, -1.0), edges(CHAIN, CHAIN + 1, 0.0)
    ready = reference().copy()
    ready.obsm["spatial"] = ready.obsm["X_umap"] = ready.obsm["X_pca"][:, :2].copy()
    ready.obs["some"] = ready.obs["branch"].where(ready.obs["time"] > 0.5)
    X = ready.obsm["X_pca"]
    metrics, plots = ep.metrics, ep.pl
    made: dict[str, Callable[[], Any]] = {
        "metrics.shortest_paths, negative lengths": lambda: metrics.shortest_paths(negative),
        "metrics.shortest_paths, edges without a length": lambda: metrics.shortest_paths(zero),
        "metrics.shortest_paths, a table that is not square": lambda: metrics.shortest_paths(sp.csr_matrix((2, 3))),
        "metrics.shortest_paths, a name without `adata`": lambda: metrics.shortest_paths("distances"),
        "metrics.geodesic_correlation, NaN": lambda: metrics.geodesic_correlation(line * np.nan, np.abs(line - line.T)),
        "metrics.geodesic_correlation, other cells": lambda: metrics.geodesic_correlation(
            line[1:], np.abs(line - line.T)
        ),
        "metrics.demap, NaN": lambda: metrics.demap(line * np.nan, line),
        "metrics.trustworthiness, few cells": lambda: metrics.trustworthiness(line[:4], line[:4]),
        "metrics.continuity, other cells": lambda: metrics.continuity(line, line[1:]),
        "metrics.branch_silhouette, other cells": lambda: metrics.branch_silhouette(line, labels[1:]),
        "metrics.kmeans_agreement, other cells": lambda: metrics.kmeans_agreement(line, labels[1:]),
        "metrics.pseudotime_agreement, other cells": lambda: metrics.pseudotime_agreement(line[:, 0], line[1:, 0]),
        "pl.embedding, key='spatial'": lambda: plots.embedding(ready, key="spatial", show=False),
        "pl.embedding, key='umap'": lambda: plots.embedding(ready, key="umap", show=False),
        "pl.embedding in 3d of two dimensions": lambda: plots.embedding(ready, projection="3d", show=False),
        "pl.density, a colour that is a word": lambda: plots.density(ready, "branch", show=False),
        "pl.depth before an embedding": lambda: plots.depth(cells(), show=False),
        "pl.pseudotime before an order": lambda: plots.pseudotime(cells(), show=False),
        "pl.interactive, cells without a category": lambda: plots.interactive(ready, "some"),
        "EntroPath, NaN": lambda: ep.EntroPath().fit(X * np.nan),
        "EntroPath, two samples": lambda: ep.EntroPath().fit(X[:2]),
        "EntroPath, positions + 1e7": lambda: ep.EntroPath().fit(X + 1e7),
        "EntroPath, an AnnData object": lambda: ep.EntroPath().fit(ready),
        "tl.project, labels='pseudotime'": lambda: ep.tl.project(
            cells(20), _with(ready, "pseudotime"), labels="pseudotime"
        ),
        "tl.project, labels that are not there": lambda: ep.tl.project(cells(20), ready, labels="mood"),
        "tl.pseudotime, no root": lambda: ep.tl.pseudotime(cells()),
        "tl.pseudotime, an unknown root": lambda: ep.tl.pseudotime(cells(), root="unknown"),
        "tl.pseudotime, a mask as root": lambda: ep.tl.pseudotime(cells(), root=np.ones(N, dtype=bool)),
        "tl.pseudotime, an empty category as root": lambda: ep.tl.pseudotime(cells(), root=("branch", "C")),
        "tl.embedding, use_rep='X' without X": lambda: ep.tl.embedding(ad.AnnData(obs=cells().obs), use_rep="X"),
        "tl.embedding, 60 components of 60 cells": lambda: ep.tl.embedding(cells(), n_components=60),
    }
    for key in KEYS:
        made[f"tl.embedding, key_added={key!r}"] = lambda key=key: ep.tl.embedding(
            with_fields_of_others(), key_added=key
        )
    return made


def _with(adata: ad.AnnData, column: str) -> ad.AnnData:
    adata = adata.copy()
    adata.obs[column] = 1.0
    return adata


def first_sentence(message: Any) -> str:
    text = str(message.args[0] if isinstance(message, KeyError) and message.args else message)
    text = re.split(r"(?<=[.?!]) (?=[A-Z`])", text.replace("\n", " "), maxsplit=1)[0]
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def answer(function: Callable[..., Any], *arguments: Any) -> str:
    """A result, a warning or an error, in a few words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function(*arguments)
        except Exception as error:
            return f"{type(error).__name__}: {first_sentence(error)}"
    own = [warning.message for warning in caught if warning.category is UserWarning]
    return f"result, with a warning: {first_sentence(own[0])}" if own else "result"


def page() -> str:
    """The page, with a row for each input."""
    matplotlib.use("Agg")
    lines = [
        "# Hostile input",
        "",
        "What the functions answer to input that is wrong, odd or out of date: a result, a result with a warning, or",
        "an error, of which the first sentence is shown. After an error the object is as it was. To be projected onto,",
        "cells are embedded first, unless they have been. `python benchmarks/hostile.py` writes this page.",
        "",
        "## Objects",
        "",
        "| input | " + " | ".join(f"`{name}`" if " " not in name else name for name in TOOLS) + " |",
        "|---" * (len(TOOLS) + 1) + "|",
    ]
    for name, made in INPUTS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            objects = [made() for _ in TOOLS]
        answers = [answer(tool, adata) for tool, adata in zip(TOOLS.values(), objects, strict=True)]
        lines.append(f"| {name} | " + " | ".join(answers) + " |")
    lines += ["", "## Calls", "", "| call | answer |", "|---|---|"]
    lines += [f"| {name} | {answer(call)} |" for name, call in calls().items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
