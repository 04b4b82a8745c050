"""The figures of the documentation: `python docs/figures.py` writes them to docs/images, or only those it is given.

Some show published cells, which it reads from the folder that the environment variable ENTROPATH_SC_DATA names.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import scanpy as sc
import scipy.sparse as sp
from anndata import AnnData

import entropath_sc as ep
from entropath_sc.core.ensemble import PathEnsemble
from entropath_sc.core.graph import Bridges, Graph
from entropath_sc.core.perron import log_stationary, perron_pair

IMAGES = Path(__file__).parent / "images"
GREY, BLUE, ORANGE = "#BBBBBB", "#0072B2", "#D55E00"


def save(figure: plt.Figure, name: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    figure.savefig(IMAGES / f"{name}.png", dpi=110)
    plt.close(figure)


def panels(n: int, height: float = 3.4) -> tuple[plt.Figure, np.ndarray]:
    figure, axes = plt.subplots(1, n, figsize=(3.9 * n, height), layout="constrained")
    for ax in axes:
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_visible(False)
    return figure, axes


def lattice(size: int, missing: np.ndarray) -> tuple[np.ndarray, Graph]:
    """A square lattice without some of its nodes: positions, and the graph of the largest connected part."""
    nodes = np.array([(x, y) for x in range(size) for y in range(size)])[~missing]
    near = sp.csr_matrix((np.abs(nodes[:, None] - nodes[None]).sum(axis=2) == 1).astype(float))
    label = sp.csgraph.connected_components(near)[1]
    kept = label == np.bincount(label).argmax()
    A = near[kept][:, kept]
    bridges = Bridges(np.array([kept.sum()]), np.empty((0, 2), dtype=np.int64), np.empty(0))
    return nodes[kept], Graph(A, np.ones(A.nnz), bridges)


def at(nodes: np.ndarray, place: tuple[int, int]) -> int:
    """The node at a place of the lattice."""
    return int(np.flatnonzero((nodes == place).all(axis=1))[0])


def walks() -> None:
    """How often three walks visit each node of a lattice with holes."""
    size = 24
    nodes, graph = lattice(size, np.random.default_rng(3).random(size * size) < 0.12)
    A = graph.affinity
    degree = np.asarray(A.sum(axis=1)).ravel()
    mass = {
        "ordinary walk": degree / degree.sum(),
        "maximum entropy walk": np.exp(log_stationary(A, perron_pair(A).log_psi)),
        "either walk, equalised": np.full(len(nodes), 1 / len(nodes)),
    }
    figure, axes = panels(3)
    for ax, (title, values) in zip(axes, mass.items(), strict=True):
        dots = ax.scatter(*nodes.T, c=values * len(nodes), cmap="viridis", s=34, marker="s", vmin=0, vmax=3)
        ax.set_title(title, size=11)
        ax.set_aspect("equal")
    figure.colorbar(dots, ax=axes, label="visits, relative to the mean", extend="max")
    save(figure, "walks")


def bottleneck() -> None:
    """Two halls, joined by one door or by three: more paths lead to the other side, so it is nearer."""
    figure, axes = panels(2, 3.1)
    size = 15
    for ax, doors in zip(axes, ([7], [3, 7, 11]), strict=True):
        grid = np.array([(x, y) for x in range(size) for y in range(size)])
        nodes, graph = lattice(size, (grid[:, 0] == size // 2) & ~np.isin(grid[:, 1], doors))
        start = at(nodes, (2, 7))
        energy = PathEnsemble.of(graph, 10.0).first_passages(np.array([start]))
        dots = ax.scatter(*nodes.T, c=energy, cmap="viridis", s=62, marker="s", vmin=0, vmax=12)
        ax.scatter(*nodes[start], marker="*", s=160, color=ORANGE, edgecolor="white")
        across = at(nodes, (12, 2))
        ax.scatter(*nodes[across], marker="o", s=50, color="none", edgecolor="white")
        number = {1: "one door", 3: "three doors"}[len(doors)]
        ax.set_title(f"{number}: {energy[across]:.1f} from the circle", size=10)
        ax.set_aspect("equal")
    figure.colorbar(dots, ax=axes, label="distance to the star, over all paths")
    save(figure, "bottleneck")


def ensemble() -> None:
    """All paths between two cells: the share of their weight that passes through each cell in between."""
    grid = np.array([(x, y) for x in range(19) for y in range(19)])
    nodes, graph = lattice(19, (np.abs(grid[:, 0] - 9) <= 1) & (np.abs(grid[:, 1] - 10) <= 4))
    one, other = at(nodes, (2, 9)), at(nodes, (16, 9))
    figure, axes = panels(3)
    for ax, depth in zip(axes, (1, 10, 100), strict=True):
        D = PathEnsemble.of(graph, float(depth)).free_energies()
        # Distances add up along a path, so what a detour through x costs is how rarely paths take it.
        share = np.exp(D[one, other] - D[one] - D[other])
        dots = ax.scatter(*nodes.T, c=share, cmap="viridis", s=38, marker="s", vmin=0, vmax=1)
        ax.scatter(*nodes[[one, other]].T, marker="*", s=150, color=ORANGE, edgecolor="white")
        ax.set_title(f"depth {depth}", size=10)
        ax.set_aspect("equal")
    figure.colorbar(dots, ax=axes, label="share of the paths")
    save(figure, "ensemble")


def length() -> None:
    """Along a chain: distances over all paths grow with the length, those over k steps with its square."""
    n = 60
    A = sp.diags([np.ones(n - 1)] * 2, [-1, 1]).tocsr()
    graph = Graph(A, np.ones(A.nnz), Bridges(np.array([n]), np.empty((0, 2), dtype=np.int64), np.empty(0)))
    steps = np.linalg.matrix_power(A.toarray() / perron_pair(A).lambda_max + np.eye(n), 60)
    figure, ax = plt.subplots(figsize=(4.6, 3.2), layout="constrained")
    energy = PathEnsemble.of(graph, 10.0).free_energies()[10]
    squared = np.log(steps[10, 10]) - np.log(steps[10])
    along = np.arange(40)
    ax.plot(along, (energy / energy[49])[10:50], color=BLUE, label="paths of all lengths")
    ax.plot(along, (squared / squared[49])[10:50], color=ORANGE, label="paths of at most 60 steps")
    ax.set(xlabel="cells apart", ylabel="distance (relative)")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    save(figure, "length")


def depth() -> None:
    """A roll at a small, the default, and a large depth."""
    adata = ep.datasets.swiss_roll(1500, random_state=1)
    ep.tl.merw_graph(adata, use_rep="X")
    truth = ep.datasets.geodesic(adata)
    figure, axes = panels(3)
    for ax, depth in zip(axes, (0.3, 10, 1000), strict=True):
        ep.tl.embedding(adata, depth=depth)
        score = ep.metrics.geodesic_correlation(adata.obsm["X_entropath"], truth)
        ax.scatter(*adata.obsm["X_entropath"].T, c=adata.obsm["intrinsic"][:, 0], cmap="viridis", s=2)
        ax.set_aspect("equal", adjustable="datalim")
        ax.set_title(f"depth {depth:g}: {score:.2f} with the geodesic", size=10)
        print(f"  depth {depth:g}: {score:.3f}")
    save(figure, "depth")


def landmarks() -> None:
    """A roll through 400 landmarks: neighbours among landmarks, as in the paper, and the paths of all cells."""
    adata = ep.datasets.swiss_roll(4000, random_state=0)
    truth = ep.datasets.geodesic(adata)
    figure, axes = panels(3)
    color = adata.obsm["intrinsic"][:, 0]
    axes[0].scatter(adata.X[:, 0], adata.X[:, 2], c=color, cmap="viridis", s=2)
    axes[0].set_title("4,000 cells on a roll", size=10)
    axes[0].set_aspect("equal")
    for ax, (preset, title) in zip(
        axes[1:], {"paper": "neighbours of landmarks (paper)", "default": "paths of all cells"}.items(), strict=True
    ):
        ep.tl.merw_graph(adata, use_rep="X", preset=preset)
        ep.tl.embedding(adata, n_landmarks=400, preset=preset)
        score = ep.metrics.geodesic_correlation(adata.obsm["X_entropath"], truth)
        ax.scatter(*adata.obsm["X_entropath"].T, c=color, cmap="viridis", s=2)
        ax.set_aspect("equal", adjustable="datalim")
        ax.set_title(f"{title}: {score:.2f}", size=10)
        print(f"  {preset}: {score:.3f}")
    save(figure, "landmarks")


def ordered(adata: AnnData) -> AnnData:
    ep.tl.embedding(adata)
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    return adata


def draw(adata: AnnData, labels: np.ndarray, name: str, legend: str) -> None:
    """Embedding by label and by pseudotime, and the histogram of the pseudotime."""
    figure, axes = panels(3)
    Y, order = adata.obsm["X_entropath"], adata.obs["entropath_pseudotime"].to_numpy()
    for color, label in zip((BLUE, ORANGE, "#009E73", "#CC79A7"), np.unique(labels), strict=False):
        axes[0].scatter(*Y[labels == label].T, s=4, color=color, label=label)
    axes[0].legend(frameon=False, markerscale=3, title=legend, fontsize="small")
    axes[1].scatter(*Y.T, c=order, cmap="viridis", s=4)
    axes[1].scatter(*Y[adata.obs_names.get_loc(adata.uns["root"])], marker="*", s=150, color=ORANGE, edgecolor="white")
    axes[1].set_title("pseudotime from the star", size=10)
    for ax in axes[:2]:
        ax.set_aspect("equal", adjustable="datalim")
    axes[2].hist(order, bins=60, color=GREY)
    axes[2].set_xticks([0, 0.5, 1])
    axes[2].set_title("histogram of the pseudotime", size=10)
    save(figure, name)


def lineages() -> None:
    """From pseudotime to lineages: pseudotime, terminal states, the tree between them, and where each cell is going."""
    adata = ordered(ep.datasets.branching(1500, random_state=0))
    ep.tl.terminal_states(adata, groupby="branch")
    ep.tl.fates(adata)
    figure, axes = plt.subplots(2, 2, figsize=(10, 7.4), layout="constrained")
    ep.pl.pseudotime(adata, ax=axes[0, 0], show=False)
    ep.pl.terminal_states(adata, ax=axes[0, 1], show=False)
    ep.pl.tree(adata, ax=axes[1, 0], show=False)
    ep.pl.fates(adata, same_plot=True, ax=axes[1, 1], show=False)
    for ax, title in zip(axes.flat, ("pseudotime", "terminal states", "tree", "fates"), strict=True):
        ax.set_title(title, size=11)
    save(figure, "lineages")


def pancreas() -> AnnData:
    """Endocrine cells of the mouse pancreas, from the folder that ENTROPATH_SC_DATA names, with their fates."""
    adata = ep.datasets.load("pancreas")
    ep.tl.embedding(adata)
    ep.tl.pseudotime(adata, root=ep.tl.suggest_root(adata, markers=["Sox9", "Hes1"]).index[0])
    ep.tl.terminal_states(adata, groupby="SubCellType")
    ep.tl.fates(adata, forward=True)
    return adata


def overview() -> None:
    """Cell types, pseudotime, terminal states and fates of the pancreas, for the start page."""
    adata = pancreas()
    figure, axes = plt.subplots(2, 2, figsize=(10, 5.6), layout="constrained")
    ep.pl.embedding(adata, "SubCellType", legend_loc="on data", size=25, ax=axes[0, 0], show=False)
    ep.pl.pseudotime(adata, size=25, ax=axes[0, 1], show=False)
    ep.pl.terminal_states(adata, size=8, ax=axes[1, 0], show=False)
    ep.pl.fates(adata, same_plot=True, size=8, ax=axes[1, 1], show=False)
    for ax, title in zip(axes.flat, ("cell types", "pseudotime", "terminal states", "fates"), strict=True):
        ax.set_title(title, size=12)
        ax.set(xlabel="", ylabel="")
    save(figure, "../overview")


def gallery() -> None:
    """Every plot of the gallery, by the lines that its page shows above it."""
    page = (IMAGES.parent / "gallery.md").read_text(encoding="utf-8")
    adata = ep.datasets.load("pancreas")
    adata.obs["cell_type"] = adata.obs["SubCellType"]
    names: dict[str, Any] = {"adata": adata, "ep": ep}
    sc.settings.autoshow = False
    for code, image in re.findall(
        r"^```python\n(.*?)^```\n(?:\n!\[[^\]]*\]\(([^)]+)\))?", page, re.DOTALL | re.MULTILINE
    ):
        exec(code, names)
        if "interactive" in image:
            photograph(names["figure"], IMAGES.parent / image)
        elif image:
            plt.gcf().savefig(IMAGES.parent / image, dpi=90, bbox_inches="tight")
        plt.close("all")


def photograph(figure: Any, path: Path) -> None:
    """A picture of an interactive figure, as a browser shows it."""
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "figure.html"
        figure.write_html(html, default_width="860px", default_height="560px")
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        options = ["--headless", "--no-sandbox", "--window-size=900,680", "--hide-scrollbars"]
        options += [
            "--virtual-time-budget=5000",
            "--use-gl=angle",
            "--use-angle=swiftshader",
            "--enable-unsafe-swiftshader",
        ]
        subprocess.run([browser, *options, f"--screenshot={path}", html.as_uri()], check=True, capture_output=True)


def failure_modes() -> None:
    rng = np.random.default_rng(0)
    centres = {"disconnected": [0.0, 30.0], "clusters": [0.0, 12.0, 24.0, 36.0]}
    for name, places in centres.items():
        X = rng.normal(size=(1200, 10))
        label = rng.integers(len(places), size=1200)
        # Each cloud is somewhere else, in a direction of its own.
        for i, place in enumerate(places):
            X[label == i, i] += place
        X[:, 9] += 3 * rng.random(1200) * (name == "disconnected")
        adata = AnnData(obsm={"X_pca": X}, obs={"cloud": label.astype(str)})
        adata.uns["root"] = adata.obs_names[np.flatnonzero(label == 0)[0]]
        draw(ordered(adata), adata.obs["cloud"].to_numpy(), name, "cloud")
    adata = ep.datasets.branching(1500, random_state=0)
    batch = np.where(rng.random(1500) < 0.5, "first", "second")
    adata.obsm["X_pca"] = (
        adata.obsm["X_pca"] + 6.0 * (batch == "second")[:, None] * rng.normal(size=50)[: adata.obsm["X_pca"].shape[1]]
    )
    draw(ordered(adata), batch, "batches", "batch")


FIGURES = (overview, gallery, walks, ensemble, bottleneck, length, depth, landmarks, lineages, failure_modes)

if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="The neighbour graph has")
    names = sys.argv[1:] or [figure.__name__ for figure in FIGURES]
    for figure in FIGURES:
        if figure.__name__ in names:
            print(figure.__name__)
            figure()
