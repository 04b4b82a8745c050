from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest

import entropath_sc as ep


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture
def ordered(cells):
    ep.tl.embedding(cells)
    ep.tl.pseudotime(cells, root=cells.uns["root"], terminal=list(cells.obs_names[-2:]))
    return cells


@pytest.mark.parametrize("plot", [ep.pl.embedding, ep.pl.depth, ep.pl.pseudotime])
def test_plots_draw_on_given_axes_or_return_a_figure(ordered, plot):
    _, ax = plt.subplots()
    assert plot(ordered, ax=ax, show=False) is ax
    assert isinstance(plot(ordered, return_fig=True), plt.Figure)
    assert len(plt.get_fignums()) == 2


def test_depth_shows_the_curves_and_the_choice(ordered):
    figure = ep.pl.depth(ordered, return_fig=True)
    curves, beside = figure.axes
    found = ordered.uns["entropath"]["depth"]
    np.testing.assert_array_equal(curves.lines[0].get_ydata(), found["entropy"])
    np.testing.assert_array_equal(beside.lines[0].get_ydata(), found["agreement"][1:])
    labels = [text.get_text() for text in curves.get_legend().get_texts()]
    assert f"chosen depth, {found['chosen']:g}" in labels
    assert f"knee, {found['knee']}" in labels


def test_depth_of_the_papers_power_has_one_curve(cells):
    ep.tl.embedding(cells, diffusion="power")
    assert len(ep.pl.depth(cells, return_fig=True).axes) == 1


def test_pseudotime_marks_root_and_terminals(ordered):
    ax = ep.pl.pseudotime(ordered, show=False)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["root", "2 terminals"]
    marked = ax.collections[-2].get_offsets()
    root = ordered[ordered.uns["root"]].obsm["X_entropath"]
    np.testing.assert_allclose(marked, root[:, :2])


def test_one_mark_stands_for_many_roots(cells):
    ep.tl.embedding(cells)
    ep.tl.pseudotime(cells, root=("branch", "trunk"))
    ax = ep.pl.pseudotime(cells, show=False)
    n_roots = (cells.obs["branch"] == "trunk").sum()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [f"{n_roots} roots"]
    assert len(ax.collections[-1].get_offsets()) == 1


def test_three_dimensions(cells):
    ep.tl.embedding(cells, n_components=3)
    figure = ep.pl.embedding(cells, "branch", projection="3d", return_fig=True)
    assert figure.axes[0].name == "3d"


def test_one_dimension_cannot_be_drawn(cells):
    ep.tl.embedding(cells, n_components=1)
    with pytest.raises(ValueError, match=r"1 dimensions.*n_components=2"):
        ep.pl.embedding(cells)


def test_missing_results_say_what_to_run(cells):
    with pytest.raises(KeyError, match=r"X_entropath.*ep\.tl\.embedding\(adata\)"):
        ep.pl.embedding(cells)
    with pytest.raises(KeyError, match=r"depth.*ep\.tl\.embedding\(adata\)"):
        ep.pl.depth(cells)
    with pytest.raises(KeyError, match=r"entropath_pseudotime.*ep\.tl\.pseudotime"):
        ep.pl.pseudotime(cells)
