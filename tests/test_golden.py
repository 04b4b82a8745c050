"""Values of the paper's preset and of behaviour that lasts, written once: drift shows here.

`python tests/test_golden.py` writes them again.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist

import entropath_sc as ep

FILE = Path(__file__).parent / "golden" / "paper.json"
SOME = slice(None, None, 37)


def cells():
    return ep.datasets.branching(n_cells=320, n_genes=200, random_state=5)


def affinity_of(**kernel) -> list[float]:
    adata = cells()
    ep.tl.merw_graph(adata, **kernel)
    A = adata.obsp["entropath_affinity"]
    return [A.nnz, A.sum(), *np.asarray(A.sum(axis=1)).ravel()[SOME]]


def paper(every: int | None = None) -> dict[str, list[float]]:
    """Landmarks are given: the rounding of k-means, and so its choice, differs between machines."""
    adata = cells()
    ep.tl.merw_graph(adata, preset="paper")
    ep.tl.embedding(adata, preset="paper", landmarks=None if every is None else list(adata.obs_names[::every]))
    found = adata.uns["entropath"]
    result = {
        "lambda_max": [found["graph"]["lambda_max"]],
        "stationary": list(adata.obs["entropath_stationary"].to_numpy()[SOME]),
        "entropy": list(found["depth"]["entropy"][::20]),
        "knee": [int(found["depth"]["knee"])],
        "stress_1": [found["embedding"]["stress_1"]],
        "landmarks": [int(i) for i in np.flatnonzero(adata.obs["entropath_landmark"])[:20]],
        "distances": list(pdist(adata.obsm["X_entropath"][SOME].astype(float))),
    }
    if every is None:
        last = adata.obs["time"].idxmax()
        for name, terminal in (("pseudotime", None), ("corrected", last)):
            ep.tl.pseudotime(adata, root=adata.uns["root"], terminal=terminal, preset="paper")
            result[name] = list(adata.obs["entropath_pseudotime"].to_numpy()[SOME])
        result["potential"] = list(adata.obs["entropath_potential"].to_numpy()[SOME])
    return result


GOLDEN = {
    "alpha_decay": lambda: {"affinity": affinity_of(decay=40, bandwidth="larger")},
    "gaussian": lambda: {"affinity": affinity_of(decay=2, bandwidth="adaptive")},
    "tempered": lambda: {"affinity": affinity_of()},
    "paper": paper,
    "paper with landmarks": lambda: paper(every=3),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_values_are_as_they_were(name):
    expected = json.loads(FILE.read_text())[name]
    found = GOLDEN[name]()
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-4, atol=1e-6, err_msg=key)


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    values = {name: function() for name, function in GOLDEN.items()}
    FILE.write_text(json.dumps(values, default=float, indent=1) + "\n")
