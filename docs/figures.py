"""The figures of the documentation: `python docs/figures.py` writes them to docs/images."""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from anndata import AnnData

import entropath_sc as ep
from entropath_sc.core.diffusion import heat_kernel
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


def lattice(size: int, missing: np.ndarray) -> tuple[np.ndarray, sp.csr_matrix]:
    """A square lattice without some of its nodes: positions, and the graph of what is left."""
    nodes = np.array([(x, y) for x in range(size) for y in range(size)])[~missing]
    near = np.abs(nodes[:, None] - nodes[None]).sum(axis=2) == 1
    return nodes, sp.csr_matrix(near.astype(float))


def bottleneck() -> None:
    """Two halls, joined by one door or by three: the ordinary walk hardly notices, path ensembles do."""
    figure, axes = panels(2, 3.1)
    size = 15
    for ax, doors in zip(axes, ([7], [3, 7, 11]), strict=True):
        grid = np.array([(x, y) for x in range(size) for y in range(size)])
        missing = (grid[:, 0] == size // 2) & ~np.isin(grid[:, 1], doors)
        nodes, A = lattice(size, missing)
        kernel = heat_kernel(A.toarray() / perron_pair(A).lambda_max, 60.0, reach=60)
        start = int(np.flatnonzero((nodes == (2, 7)).all(axis=1))[0])
        energy = -np.log(kernel[start])
        dots = ax.scatter(*nodes.T, c=energy, cmap="viridis", s=62, marker="s", vmin=3, vmax=12)
        ax.scatter(*nodes[start], marker="*", s=160, color=ORANGE, edgecolor="white")
        across = energy[(nodes == (12, 7)).all(axis=1)][0]
        ax.set_title(f"{len(doors)} door{'s' if len(doors) > 1 else ''}: {across:.1f} to the same cell across", size=10)
        ax.set_aspect("equal")
    figure.colorbar(dots, ax=axes, label="free energy from the star")
    save(figure, "bottleneck")


def walks() -> None:
    """Where the ordinary walk and the maximum entropy walk spend their time, on a lattice with holes."""
    size = 24
    missing = np.random.default_rng(3).random(size * size) < 0.12
    nodes, A = lattice(size, missing)
    label = sp.csgraph.connected_components(A)[1]
    kept = label == np.bincount(label).argmax()
    nodes, A = nodes[kept], A[kept][:, kept]
    degree = np.asarray(A.sum(axis=1)).ravel()
    stationary = np.exp(log_stationary(A, perron_pair(A).log_psi))
    figure, axes = panels(2)
    for ax, mass, title in zip(
        axes, (degree / degree.sum(), stationary), ("ordinary walk", "maximum entropy walk"), strict=True
    ):
        ax.scatter(*nodes.T, c=mass, cmap="viridis", s=34, marker="s")
        ax.set_title(title)
        ax.set_aspect("equal")
    save(figure, "walks")


def ensemble() -> None:
    """All paths between two cells: how often they pass through each cell in between."""
    grid = np.array([(x, y) for x in range(19) for y in range(19)])
    missing = (np.abs(grid[:, 0] - 9) <= 1) & (np.abs(grid[:, 1] - 9) <= 4)
    nodes, A = lattice(19, missing)
    rescaled = A.toarray() / perron_pair(A).lambda_max
    ends = [int(np.flatnonzero((nodes == cell).all(axis=1))[0]) for cell in ((2, 9), (16, 9))]
    figure, axes = panels(3)
    for ax, depth in zip(axes, (15, 60, 400), strict=True):
        # Passing through x half way: what reaches it from one end, times what goes on to the other.
        half = heat_kernel(rescaled, depth / 2, reach=40)
        density = half[ends[0]] * half[ends[1]]
        ax.scatter(*nodes.T, c=density / density.max(), cmap="viridis", s=38, marker="s")
        ax.scatter(*nodes[ends].T, marker="*", s=150, color=ORANGE, edgecolor="white")
        ax.set_title(f"depth {depth}: where paths are half way", size=10)
        ax.set_aspect("equal")
    save(figure, "ensemble")


def depth() -> None:
    """A roll at too small, chosen, and too large depth."""
    adata = ep.datasets.swiss_roll(4000, random_state=0)
    ep.tl.merw_graph(adata, use_rep="X")
    ep.tl.embedding(adata, n_landmarks=800)
    chosen = adata.uns["entropath"]["depth"]["chosen"]
    truth = ep.datasets.geodesic(adata)
    figure, axes = panels(3)
    for ax, (title, depth) in zip(axes, (("shallow", 0.1), ("chosen", chosen), ("deep", 40 * chosen)), strict=True):
        ep.tl.embedding(adata, n_landmarks=800, depth=depth)
        score = ep.metrics.geodesic_correlation(adata.obsm["X_entropath"], truth)
        ax.scatter(*adata.obsm["X_entropath"].T, c=adata.obsm["intrinsic"][:, 0], cmap="viridis", s=2)
        ax.set_title(f"{title}, depth {depth:g}: {score:.2f} with the geodesic", size=10)
    save(figure, "depth")


def landmarks() -> None:
    """The same roll through 400 landmarks: fresh neighbours, and the paths of all cells."""
    adata = ep.datasets.swiss_roll(4000, random_state=0)
    ep.tl.merw_graph(adata, use_rep="X")
    truth = ep.datasets.geodesic(adata)
    figure, axes = panels(3)
    color = adata.obsm["intrinsic"][:, 0]
    axes[0].scatter(adata.X[:, 0], adata.X[:, 2], c=color, cmap="viridis", s=2)
    axes[0].set_title("4,000 cells on a roll", size=10)
    for ax, graph in zip(axes[1:], ("knn", "compressed"), strict=True):
        ep.tl.embedding(adata, n_landmarks=400, landmark_graph=graph)
        score = ep.metrics.geodesic_correlation(adata.obsm["X_entropath"], truth)
        ax.scatter(*adata.obsm["X_entropath"].T, c=color, cmap="viridis", s=2)
        ax.set_title(f"400 landmarks, '{graph}': {score:.2f}", size=10)
    save(figure, "landmarks")


def ordered(adata: AnnData) -> AnnData:
    ep.tl.embedding(adata)
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    return adata


def draw(adata: AnnData, labels: np.ndarray, name: str, legend: str) -> None:
    """Embedding by label and by order, and the histogram of the order."""
    figure, axes = panels(3)
    Y, order = adata.obsm["X_entropath"], adata.obs["entropath_pseudotime"].to_numpy()
    for color, label in zip((BLUE, ORANGE, "#009E73", "#CC79A7"), np.unique(labels), strict=False):
        axes[0].scatter(*Y[labels == label].T, s=4, color=color, label=label)
    axes[0].legend(frameon=False, markerscale=3, title=legend, fontsize="small")
    axes[1].scatter(*Y.T, c=order, cmap="viridis", s=4)
    axes[1].scatter(*Y[adata.obs_names.get_loc(adata.uns["root"])], marker="*", s=150, color=ORANGE, edgecolor="white")
    axes[1].set_title("order from the star", size=10)
    axes[2].hist(order, bins=60, color=GREY)
    axes[2].set_xticks([0, 0.5, 1])
    axes[2].set_title("histogram of the order", size=10)
    save(figure, name)


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


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="The neighbour graph has")
    for figure in (bottleneck, walks, ensemble, depth, landmarks, failure_modes):
        print(figure.__name__)
        figure()
