from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from scipy.stats import pearsonr, spearmanr

from entropath_sc.metrics import demap, geodesic_correlation


@pytest.mark.parametrize(("method", "reference"), [("spearman", spearmanr), ("pearson", pearsonr)])
def test_geodesic_correlation_is_the_brute_force_one(method, reference):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 3)), rng.normal(size=(30, 2))
    G, D = cdist(X, X), cdist(Y, Y)
    rows = np.mean([reference(d, g).statistic for d, g in zip(D, G, strict=True)])
    assert geodesic_correlation(D, G, method=method) == pytest.approx(rows)
    assert geodesic_correlation(Y, G, method=method) == pytest.approx(rows)
    overall = reference(pdist(Y), pdist(X)).statistic
    assert geodesic_correlation(Y, G, method=method, rowwise=False) == pytest.approx(overall)


def test_demap_is_one_for_the_truth_and_low_for_noise():
    angle = np.sort(np.random.default_rng(0).uniform(0, 3, 300))
    X = np.c_[np.cos(angle), np.sin(angle)]
    assert demap(X, angle[:, None])[0] > 0.999
    assert abs(demap(X, np.random.default_rng(1).normal(size=(300, 2)))[0]) < 0.1
    assert demap(X, angle[:, None], n_cells=100)[1] > 0


def test_bad_shapes_are_refused():
    with pytest.raises(ValueError, match="square"):
        geodesic_correlation(np.zeros((3, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="3 cells, geodesic 4"):
        geodesic_correlation(np.zeros((3, 2)), np.zeros((4, 4)))
    with pytest.raises(ValueError, match="'pearson'"):
        geodesic_correlation(np.zeros((3, 2)), np.zeros((3, 3)), method="kendall")
