"""Means over 30 seeds that the paper prints, to stand beside what is measured here."""

_METHODS = ("diffusion_maps", "phate", "heatgeo", "dtne", "entropath_paper")

_DISTANCE = {
    "uniform roll": (0.499, 0.806, 0.791, 0.833, 0.877),
    "Beta(1,4) roll": (0.443, 0.816, 0.796, 0.808, 0.882),
    "Swiss hole": (0.350, 0.925, 0.958, 0.950, 0.935),
    "sphere": (0.430, 0.993, 0.992, 0.991, 0.981),
    "torus": (0.464, 0.960, 0.987, 0.984, 0.976),
    "sparse tree": (0.491, 0.318, 0.918, 0.927, 0.934),
    "dense tree": (0.846, 0.358, 0.954, 0.961, 0.947),
}
_EMBEDDING = {
    "uniform roll": (0.903, 0.802, 0.769, 0.829, 0.879),
    "Beta(1,4) roll": (0.725, 0.741, 0.714, 0.805, 0.875),
    "Swiss hole": (0.864, 0.907, 0.931, 0.920, 0.910),
    "sphere": (0.753, 0.766, 0.766, 0.768, 0.762),
    "torus": (0.963, 0.961, 0.976, 0.972, 0.974),
    "sparse tree": (0.767, 0.404, 0.770, 0.859, 0.869),
    "dense tree": (0.701, 0.349, 0.740, 0.829, 0.785),
}

PUBLISHED = {
    dataset: {
        "distance_spearman": dict(zip(_METHODS, _DISTANCE[dataset], strict=True)),
        "embedding_spearman": dict(zip(_METHODS, _EMBEDDING[dataset], strict=True)),
    }
    for dataset in _DISTANCE
}
