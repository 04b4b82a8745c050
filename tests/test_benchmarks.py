from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import trapezoid

import entropath_sc as ep

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def load():
    def named(name):
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    before = dict(sys.modules)
    yield named
    for name in set(sys.modules) - set(before):
        if getattr(sys.modules[name], "__file__", None) and str(FOLDER) in sys.modules[name].__file__:
            del sys.modules[name]


def test_diffusion_maps_have_the_diffusion_distance(load):
    methods = load("methods")
    X = np.random.default_rng(0).normal(size=(60, 3))
    found = methods.diffusion_maps(X, 0, time=3)
    A = methods._connected(X).toarray()
    np.fill_diagonal(A, 1.0)
    density = A.sum(axis=1)
    A = A / np.outer(density, density)
    degree = A.sum(axis=1)
    walk = np.linalg.matrix_power(A / degree[:, None], 3)
    weighted = walk / np.sqrt(degree / degree.sum())
    expected = np.linalg.norm(weighted[:, None] - weighted[None], axis=2)
    np.testing.assert_allclose(found.distances, expected, atol=1e-6)


def test_distances_of_the_package_are_those_it_scales(load):
    methods = load("methods")
    X = np.asarray(ep.datasets.torus(300).X)
    for method in (methods.entropath, methods.entropath_paper):
        found = method(X, 0)
        assert found.distances.shape == (300, 300)
        embedded = ep.metrics.geodesic_correlation(found.layout, found.distances)
        assert embedded > 0.9
    with_landmarks = methods._entropath(X, n_landmarks=100)
    assert with_landmarks.distances.shape == (100, 100)
    assert len(with_landmarks.cells) == 100


def test_the_summary_compares_common_seeds_only(load):
    load("methods"), load("published")
    quality = load("quality")
    rows = []
    for seed, best in ((0, 0.9), (1, 0.1)):
        for method in [*quality.DIFFUSION_METHODS, "entropath"]:
            if (seed, method) != (1, "dtne"):
                score = best if method == "entropath" else 0.8
                rows.append(("sphere", seed, method, score, score))
    columns = ["dataset", "seed", "method", "distance_spearman", "embedding_spearman"]
    scores = pd.DataFrame(rows, columns=columns).assign(error=np.nan)
    lines = quality.summary(scores)
    assert "First in 2 of 2 rows" in lines[-1]
    assert "+0.100" in lines[2]


def test_hostile_input_has_a_result_or_a_named_error(load):
    hostile = load("hostile")
    found, written = hostile.page(), hostile.PAGE.read_text()
    rows = [line.split(" | ") for line in found.splitlines() if line.startswith("| ")]
    assert len(rows) > 60
    assert [row[0] for row in rows] == [line.split(" | ")[0] for line in written.splitlines() if line.startswith("| ")]
    answers = [answer for row in rows if row[0] not in ("| input", "| call") for answer in row[1:]]
    assert not [
        answer for answer in answers if not answer.startswith(("result", "ValueError", "KeyError", "TypeError"))
    ]


def test_distances_along_a_tree_are_those_on_paper(load):
    trees = load("trees")
    fork = trees.Tree([("root", "fork"), ("fork", "A"), ("fork", "B")], np.array([2.0, 3.0, 4.0]))
    edge, position = np.array([0, 0, 1, 2]), np.array([0.0, 0.5, 1.0, 0.25])
    expected = [[0, 1, 5, 3], [1, 0, 4, 2], [5, 4, 0, 4], [3, 2, 4, 0]]
    np.testing.assert_allclose(fork.distances(edge, position), expected)


def test_him_is_one_for_the_same_tree_and_as_on_paper_for_others(load):
    trees = load("trees")
    fork = trees.Tree([("root", "fork"), ("fork", "A"), ("fork", "B")], np.array([2.0, 3.0, 4.0]))
    same = trees.Tree([("x", "b"), ("r", "x"), ("x", "a")], np.array([8.0, 4.0, 6.0]))
    assert trees.him(fork, same) == pytest.approx(1.0)
    line, star = (trees.Tree(edges, np.ones(2)) for edges in ([("a", "b"), ("b", "c")], [("b", "a"), ("b", "c")]))
    # Both are three nodes in a row, of which the walk from the root has the middle one second or first: of 12 entries
    # of 1/4 in all, two edges of four differ, and the frequencies are the same.
    assert trees.him(line, star) == pytest.approx(1 - np.sqrt(0.5) * 4 * 0.25 / 6)
    # An edge alone has the frequencies 0 and 1, three nodes in a row 1/2 and sqrt(3)/2; each density is a sum of peaks.
    edge = trees.Tree([("a", "b")], np.ones(1))

    def density(w, peaks):
        peaks = np.array(peaks)
        values = (0.1 / ((w[:, None] - peaks) ** 2 + 0.01)).sum(axis=1)
        return values / np.sum(np.pi / 2 + np.arctan(peaks / 0.1))

    w = np.linspace(0, 200, 2_000_001)
    squares = (density(w, [0.0, 1.0]) - density(w, [0.5, np.sqrt(0.75)])) ** 2
    apart = trapezoid(squares, w)
    hamming = (2 * (0.5 - 0.25) + 2 * 0.25) / 6
    assert trees.him(edge, line) == pytest.approx(1 - np.sqrt(0.5 * (hamming**2 + apart)), abs=1e-4)
    deeper = trees.Tree([*fork.edges, ("A", "C"), ("A", "D")], np.array([2.0, 3.0, 4.0, 3.0, 3.0]))
    assert trees.him(edge, fork) < trees.him(deeper, fork) < 1
