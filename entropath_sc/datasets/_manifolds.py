from __future__ import annotations

import numpy as np
from anndata import AnnData
from scipy.spatial.distance import cdist

from ..core.neighbors import knn_distances
from ..metrics import shortest_paths

# Neighbours in the graph of clean points whose shortest paths stand in where the geodesic has no formula.
REFERENCE_NEIGHBORS = 15

ROLL_HEIGHT = 63.0


def swiss_roll(
    n_cells: int = 2000,
    *,
    density: str = "uniform",
    hole: bool = False,
    noise: float = 0.05,
    random_state: int = 0,
) -> AnnData:
    """Generate the paper's Swiss roll: angle from 1.5π to 4.5π, height 0 to 63, Gaussian noise.

    Parameters
    ----------
    n_cells
        Number of points.
    density
        `'uniform'` along the angle, or `'beta'`: Beta(1, 4), dense inside and sparse outside.
    hole
        Leave out the middle ninth of the unrolled sheet: the paper's Swiss hole. Only with uniform density.
    noise
        Standard deviation in each of the three dimensions. A larger value lets folds touch.
    random_state
        Seed.

    Returns
    -------
    AnnData with the points as `X`, those without noise as `obsm['clean']`, and `obs['angle']`.
    `obsm['intrinsic']` has the unrolled coordinates (arc length, height), in which the geodesic distance of a roll
    without a hole is Euclidean.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> ep.datasets.swiss_roll(100).obsm["intrinsic"].shape
    (100, 2)
    """
    if density not in ("uniform", "beta"):
        raise ValueError(f"density={density!r} is not known. Choose 'uniform' or 'beta'.")
    if hole and density != "uniform":
        raise ValueError("hole=True goes with density='uniform' only.")
    rng = np.random.default_rng(random_state)
    if hole:
        # Eight of the nine tiles of the (angle, height) square, all but the middle one.
        tile = np.delete(np.arange(9), 4)[rng.integers(8, size=n_cells)]
        along, up = (np.stack([tile // 3, tile % 3]) + rng.uniform(size=(2, n_cells))) / 3
    else:
        along = rng.uniform(size=n_cells) if density == "uniform" else rng.beta(1, 4, size=n_cells)
        up = rng.uniform(size=n_cells)
    angle, height = 1.5 * np.pi * (1 + 2 * along), ROLL_HEIGHT * up
    clean = np.stack([angle * np.cos(angle), height, angle * np.sin(angle)], axis=1)
    adata = _noisy(clean, noise, rng, "around_hole" if hole else "intrinsic")
    adata.obs["angle"] = angle
    adata.obsm["intrinsic"] = np.stack([_arc_length(angle), height], axis=1)
    return adata


def _arc_length(angle: np.ndarray) -> np.ndarray:
    return 0.5 * (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle))


def sphere(n_cells: int = 2000, *, noise: float = 0.05, random_state: int = 0) -> AnnData:
    """Points uniform on the unit sphere, with Gaussian noise.

    Parameters
    ----------
    n_cells
        Number of points.
    noise
        Standard deviation in each of the three dimensions.
    random_state
        Seed.

    Returns
    -------
    AnnData with the points as `X`, those without noise as `obsm['clean']`, and the polar angle as `obs['angle']`.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> ep.datasets.sphere(100).shape
    (100, 3)
    """
    rng = np.random.default_rng(random_state)
    clean = rng.normal(size=(n_cells, 3))
    clean /= np.linalg.norm(clean, axis=1, keepdims=True)
    adata = _noisy(clean, noise, rng, "great_circle")
    adata.obs["angle"] = np.arccos(clean[:, 2])
    return adata


def torus(n_cells: int = 2000, *, noise: float = 0.05, random_state: int = 0) -> AnnData:
    """Points on a torus of radii 3 and 1, uniform in both angles, with Gaussian noise.

    Parameters
    ----------
    n_cells
        Number of points.
    noise
        Standard deviation in each of the three dimensions.
    random_state
        Seed.

    Returns
    -------
    AnnData with the points as `X`, those without noise as `obsm['clean']`, and the angle around the hole as
    `obs['angle']`.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> ep.datasets.torus(100).shape
    (100, 3)
    """
    rng = np.random.default_rng(random_state)
    around, across = rng.uniform(0, 2 * np.pi, size=(2, n_cells))
    from_axis = 3 + np.cos(across)
    clean = np.stack([from_axis * np.cos(around), from_axis * np.sin(around), np.sin(across)], axis=1)
    adata = _noisy(clean, noise, rng, "shortest_path")
    adata.obs["angle"] = around
    return adata


def tree(
    *,
    n_branches: int = 6,
    branch_length: int = 500,
    n_dims: int = 10,
    noise: float = 2.0,
    random_state: int = 0,
) -> AnnData:
    """A tree of random walks: one trunk, and branches that leave it at random places (diffusion-limited aggregation).

    The defaults are the paper's sparse tree; its dense one is `tree(n_branches=20, branch_length=100, n_dims=100,
    noise=4.0)`.

    Parameters
    ----------
    n_branches
        Number of branches, the trunk included.
    branch_length
        Cells on each.
    n_dims
        Dimensions; each step is uniform in (-1, 1) in each.
    noise
        Standard deviation in each dimension.
    random_state
        Seed.

    Returns
    -------
    AnnData with the points as `X`, those without noise as `obsm['clean']`, and `obs['branch']`.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> ep.datasets.tree(n_branches=3, branch_length=50).shape
    (150, 10)
    """
    # The old generator, in this order: the same seed gives the same clean tree as `phate.tree.gen_dla`.
    rng = np.random.RandomState(random_state)
    walks = [rng.uniform(-1, 1, size=(branch_length, n_dims)).cumsum(axis=0)]
    for _ in range(n_branches - 1):
        fork = walks[0][rng.randint(branch_length)]
        walks.append(fork + rng.uniform(-1, 1, size=(branch_length, n_dims)).cumsum(axis=0))
    adata = _noisy(np.concatenate(walks), noise, np.random.RandomState(random_state), "shortest_path")
    adata.obs["branch"] = np.repeat([f"branch {i}" for i in range(n_branches)], branch_length)
    adata.obs["branch"] = adata.obs["branch"].astype("category")
    return adata


def geodesic(adata: AnnData, *, protocol: str | None = None) -> np.ndarray:
    """Geodesic distances between the points of a generated manifold, without their noise.

    Parameters
    ----------
    adata
        What `swiss_roll`, `sphere`, `torus` or `tree` returned.
    protocol
        `'shortest_path'`: shortest paths on the graph of the 15 nearest neighbours of the clean points, as in the
        paper. On a roll with a hole some of these neighbours lie across a fold. By default the formula where the
        manifold has one (rolls, the sphere), and shortest paths where it has none.

    Returns
    -------
    Square matrix.

    Examples
    --------
    >>> import entropath_sc as ep
    >>> ep.datasets.geodesic(ep.datasets.sphere(50)).shape
    (50, 50)
    """
    if "clean" not in adata.obsm or "geodesic" not in adata.uns:
        raise ValueError("The geodesic is known for generated manifolds only: swiss_roll, sphere, torus and tree.")
    if protocol not in (None, "shortest_path"):
        raise ValueError(f"protocol={protocol!r} is not known. Choose 'shortest_path' or None.")
    kind = protocol or adata.uns["geodesic"]
    if kind == "intrinsic":
        return cdist(adata.obsm["intrinsic"], adata.obsm["intrinsic"])
    if kind == "around_hole":
        return _around_hole(adata.obsm["intrinsic"])
    clean = adata.obsm["clean"]
    if kind == "great_circle":
        return np.arccos(np.clip(clean @ clean.T, -1.0, 1.0)) * (1 - np.eye(len(clean)))
    # The search counts the cell itself.
    return shortest_paths(knn_distances(clean, min(REFERENCE_NEIGHBORS + 1, len(clean))))


def _around_hole(points: np.ndarray) -> np.ndarray:
    """Lengths of the shortest paths on the unrolled sheet, straight or around the corners of its hole."""
    left, right = _arc_length(1.5 * np.pi * (1 + 2 * np.array([1, 2]) / 3))
    bottom, top = ROLL_HEIGHT / 3, 2 * ROLL_HEIGHT / 3
    corners = np.array([[left, bottom], [left, top], [right, top], [right, bottom]])
    centre, half = corners.mean(axis=0), np.array([right - left, top - bottom]) / 2
    straight = np.where(_crosses(points, points, centre, half), np.inf, cdist(points, points))
    to_corners = np.where(_crosses(points, corners, centre, half), np.inf, cdist(points, corners))
    around = cdist(corners, corners)
    around[[0, 2, 1, 3], [2, 0, 3, 1]] = 2 * half.sum()  # opposite corners
    for i in range(4):
        for j in range(4):
            straight = np.minimum(straight, to_corners[:, i, None] + around[i, j] + to_corners[None, :, j])
    return straight


def _crosses(starts: np.ndarray, ends: np.ndarray, centre: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Which segments pass through the inside of a rectangle: those that overlap with it along all three normals."""
    inner = half * (1 - 1e-9)
    middle = 0.5 * (starts[:, None] + ends[None]) - centre
    reach = 0.5 * np.abs(starts[:, None] - ends[None])
    x, y = np.moveaxis(0.5 * (ends[None] - starts[:, None]), -1, 0)
    overlap = (np.abs(middle) < reach + inner).all(axis=-1)
    return overlap & (np.abs(middle[..., 0] * y - middle[..., 1] * x) < inner[0] * np.abs(y) + inner[1] * np.abs(x))


def _noisy(clean: np.ndarray, noise: float, rng: np.random.Generator | np.random.RandomState, geodesic: str) -> AnnData:
    adata = AnnData(clean + noise * rng.normal(size=clean.shape), obsm={"clean": clean})
    adata.uns["geodesic"] = geodesic
    return adata
