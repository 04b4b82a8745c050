"""What the options that a preset governs are, where they are not given."""

from __future__ import annotations

from typing import Any

from ._checks import check_choice

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": {
        "merw_graph": {"kernel": "tempered"},
        "embedding": {
            "landmarks": "farthest",
            "landmark_graph": "auto",
            "n_project": 10,
            "depth": "auto",
            "diffusion": "heat",
            "dissimilarity": "averaged",
        },
        "pseudotime": {"depth": "auto", "diffusion": "heat", "potential": "symmetric"},
    },
    "paper": {
        "merw_graph": {"kernel": "alpha_decay"},
        "embedding": {
            "landmarks": "kmeans",
            "landmark_graph": "knn",
            "n_project": 50,
            "depth": "knee",
            "diffusion": "power",
            "dissimilarity": "free_energy",
        },
        "pseudotime": {"depth": "embedding", "diffusion": "power", "potential": "merw"},
    },
}


def with_preset(preset: str, step: str, **given: Any) -> tuple[Any, ...]:
    """The given options, in their order, with those that are None taken from the preset."""
    check_choice("preset", preset, tuple(PRESETS))
    return tuple(PRESETS[preset][step][name] if value is None else value for name, value in given.items())
