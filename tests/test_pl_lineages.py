from __future__ import annotations

import shutil
from pathlib import Path

import anndata as ad
import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from matplotlib.colors import to_hex, to_rgb
from matplotlib.testing.compare import compare_images
from matplotlib.testing.decorators import remove_ticks_and_titles

import entropath_sc as ep
from entropath_sc._keys import Keys
from entropath_sc.pl._drawing import GREY, PALETTE, colors_for, state_colors

PLOTS = [ep.pl.terminal_states, ep.pl.fates, ep.pl.tree, ep.pl.arrows]
STATES = ["left", "right", "up"]


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture
def drawn():
    """A trunk that splits in two, one of which splits again, with all values set by hand."""
    rng = np.random.default_rng(0)
    names, n = ["trunk", "left + right", "up", "left", "right"], 600
    code = np.sort(rng.choice(5, n, p=[0.3, 0.15, 0.3, 0.2, 0.05]))
    begin, end = np.array([0.0, 0.4, 0.4, 0.7, 0.7]), np.array([0.4, 0.7, 0.9, 1.0, 0.95])
    time = begin[code] + (end - begin)[code] * rng.random(n)
    start = np.array([[0, 0], [0, 4], [0, 4], [-2, 6], [-2, 6]])
    way = np.array([[0, 1], [-0.7, 0.7], [0.7, 0.7], [-1, 0.0], [0, 1.0]])
    at = start[code] + 10 * (time - begin[code])[:, None] * way[code]
    adata = ad.AnnData(
        np.column_stack([time, 1 - time]),
        obs=pd.DataFrame({"entropath_pseudotime": time}, index=[f"cell {i}" for i in range(n)]),
        var=pd.DataFrame(index=["late", "early"]),
    )
    adata.obsm["X_entropath"] = at + 0.1 * rng.normal(size=(n, 2))
    adata.obs["entropath_branch"] = pd.Categorical.from_codes(code, names)
    latest = {name: np.flatnonzero(code == names.index(name)) for name in STATES}
    latest = {name: cells[np.argsort(time[cells])[-10:]] for name, cells in latest.items()}
    state = np.full(n, -1)
    for i, cells in enumerate(latest.values()):
        state[cells] = i
    adata.obs["entropath_terminal"] = pd.Categorical.from_codes(state, STATES)
    probability = np.array([[1, 1, 1], [1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0]])[code] + 0.01
    probability /= probability.sum(axis=1, keepdims=True)
    adata.obsm["entropath_fates"] = pd.DataFrame(probability, index=adata.obs_names, columns=STATES)
    adata.obs["entropath_plasticity"] = np.array([1.0, 0.6, 0.0, 0.0, 0.0])[code]
    # Each cell moves to others on its branch, rather to later ones.
    ahead = time[None, :] - time[:, None]
    walk = np.where((code[None, :] == code[:, None]) & (np.abs(ahead) < 0.1), np.exp(5 * ahead), 0.0)
    adata.obsp["entropath_forward"] = sp.csr_matrix(walk / walk.sum(axis=1, keepdims=True))
    nodes = pd.DataFrame(
        {"kind": ["root", *2 * ["branch point"], *3 * ["tip"]], "pseudotime": [0.0, 0.4, 0.7, 0.9, 1.0, 0.95]},
        index=["root", "branch point 1", "branch point 2", "up", "left", "right"],
    )
    parents = ["root", "branch point 1", "branch point 1", "branch point 2", "branch point 2"]
    children = ["branch point 1", "branch point 2", "up", "left", "right"]
    edges = pd.DataFrame({"parent": parents, "child": children, "branch": names, "n_cells": np.bincount(code)})
    adata.uns["entropath"] = {
        "tree": {"nodes": nodes, "edges": edges},
        "pseudotime": {"roots": adata.obs_names[[time.argmin()]].to_numpy(dtype=object)},
    }
    return adata


def words(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize("plot", PLOTS)
def test_plots_draw_on_given_axes_or_return_a_figure(drawn, plot):
    options = {"same_plot": True} if plot is ep.pl.fates else {}
    figure, ax = plt.subplots()
    size = figure.get_size_inches().copy()
    assert plot(drawn, **options, ax=ax, show=False) is ax
    np.testing.assert_array_equal(figure.get_size_inches(), size)
    assert isinstance(plot(drawn, **options, return_fig=True), plt.Figure)
    assert plot(drawn, **options, show=True) is None
    assert len(plt.get_fignums()) == 3


@pytest.mark.parametrize("plot", PLOTS)
def test_a_tool_run_comes_first(cells, plot):
    command = {"fates": r"fates\(adata\)", "arrows": r"fates\(adata, forward=True\)"}
    with pytest.raises(KeyError, match=rf"ep\.tl\.{command.get(plot.__name__, 'terminal_states')}"):
        plot(cells)


@pytest.mark.parametrize("plot", [ep.pl.terminal_states, ep.pl.fates, ep.pl.arrows])
def test_any_embedding_can_be_drawn_on_to_scale(drawn, plot):
    with pytest.raises(KeyError, match=r"basis='umap'.*there is 'X_entropath'"):
        plot(drawn, basis="umap")
    del drawn.obsm["X_entropath"]
    with pytest.raises(KeyError, match=r"X_entropath.*ep\.tl\.embedding"):
        plot(drawn)
    drawn.obsm["X_umap"] = np.random.default_rng(0).normal(size=(drawn.n_obs, 2)) * [30, 1]
    axes = plot(drawn, basis="umap", show=False)
    for ax in axes if isinstance(axes, list) else [axes]:
        np.testing.assert_allclose(np.sort(ax.collections[0].get_offsets()[:, 0]), np.sort(drawn.obsm["X_umap"][:, 0]))
        assert (ax.get_aspect(), ax.get_xlabel()) == (1, "umap1")


def test_terminal_states_are_named_and_keep_their_colours(drawn):
    ax = ep.pl.terminal_states(drawn, show=False)
    assert words(ax) == ["root", *STATES]
    assert [to_hex(c.get_facecolor()[0]).upper() for c in ax.collections[1:4]] == list(PALETTE[:3])
    assert [len(c.get_offsets()) for c in ax.collections[1:4]] == [10, 10, 10]
    drawn.uns["entropath_terminal_colors"] = ["#111111", "#222222", "#333333"]
    ax = ep.pl.terminal_states(drawn, show=False)
    assert [to_hex(c.get_facecolor()[0]) for c in ax.collections[1:4]] == ["#111111", "#222222", "#333333"]


def test_branches_and_states_have_the_same_colours_in_every_plot(drawn):
    drawn.uns["entropath"]["terminal_states"] = pd.DataFrame({"n_cells": [10, 10, 10]}, index=STATES)
    before = set(drawn.uns)
    tree = ep.pl.tree(drawn, show=False).collections[0].get_facecolor()
    cells = ep.pl.embedding(drawn, "entropath_branch", show=False).collections[0].get_facecolor()
    np.testing.assert_allclose(cells, tree)
    arrows = ep.pl.arrows(drawn, "entropath_branch", show=False).collections[1].get_facecolor()
    np.testing.assert_allclose(arrows, tree)
    states = ep.pl.embedding(drawn, ["late", "entropath_terminal"], show=False)[1].collections[0].get_facecolor()
    drawn_states = {to_hex(color).upper() for color in states} & set(PALETTE)
    assert drawn_states == set(PALETTE[:3])
    assert set(drawn.uns) == before
    ax = ep.pl.embedding(drawn, "entropath_branch", palette=["#111111"] * 5, show=False)
    assert {to_hex(color) for color in ax.collections[0].get_facecolor()} == {"#111111"}


def test_names_neither_cover_each_other_nor_leave_the_axes(drawn):
    rng = np.random.default_rng(0)
    names = [f"state with a long name {i}" for i in range(8)]
    state = np.full(drawn.n_obs, -1)
    state[:80] = np.repeat(np.arange(8), 10)
    drawn.obs["entropath_terminal"] = pd.Categorical.from_codes(state, names)
    drawn.obsm["X_entropath"] = rng.normal(size=(drawn.n_obs, 2))
    drawn.obsm["X_entropath"][:80] = [1.0, 1.0] + 0.05 * rng.normal(size=(80, 2))  # all at one place
    figure = ep.pl.terminal_states(drawn, return_fig=True)
    figure.draw_without_rendering()
    (ax,) = figure.axes
    # The box of the words: that of an annotation includes the point that it names.
    boxes = [plt.Text.get_window_extent(text) for text in ax.texts]
    assert len(boxes) == 9
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert ax.bbox.x0 <= box.x0 < box.x1 <= ax.bbox.x1
        assert ax.bbox.y0 <= box.y0 < box.y1 <= ax.bbox.y1


def test_fates_have_a_panel_each_on_one_scale(drawn):
    panels = ep.pl.fates(drawn, ncols=2, show=False)
    assert [ax.get_title() for ax in panels] == STATES
    assert len(panels[0].figure.axes) == 4  # and one colour bar
    for ax, name in zip(panels, STATES, strict=True):
        assert ax.collections[0].get_clim() == (0, 1)
        np.testing.assert_array_equal(ax.collections[0].get_array(), np.sort(drawn.obsm["entropath_fates"][name]))
    assert ep.pl.fates(drawn, "up", show=False).get_title() == "up"
    assert [ax.get_title() for ax in ep.pl.fates(drawn, ["up", "left"], show=False)] == ["up", "left"]
    with pytest.raises(ValueError, match=r"no state 'down'; there is 'left', 'right', 'up'"):
        ep.pl.fates(drawn, "down")
    with pytest.raises(ValueError, match=r"states is empty. Choose some of 'left'"):
        ep.pl.fates(drawn, [])
    with pytest.raises(ValueError, match="ncols=0"):
        ep.pl.fates(drawn, ncols=0)
    with pytest.raises(ValueError, match=r"these are 3.*same_plot=True"):
        ep.pl.fates(drawn, ax=plt.gca())


def test_undecided_cells_are_grey_in_the_plot_of_all_fates(drawn):
    at = drawn.obsm["X_entropath"]

    def color_of(ax, branch):
        cell = np.flatnonzero(drawn.obs["entropath_branch"] == branch)[0]
        drawn_at = (np.asarray(ax.collections[0].get_offsets()) == at[cell]).all(axis=1)
        return ax.collections[0].get_facecolor()[drawn_at][0, :3]

    ax = ep.pl.fates(drawn, same_plot=True, show=False)
    np.testing.assert_allclose(color_of(ax, "trunk"), to_rgb(GREY))
    np.testing.assert_allclose(color_of(ax, "up"), to_rgb(PALETTE[2]))
    between = 0.6 * np.array(to_rgb(GREY)) + 0.4 * np.array(to_rgb(PALETTE[0]))
    np.testing.assert_allclose(color_of(ax, "left + right"), between)
    assert words(ax) == ["root", *STATES]
    ax = ep.pl.fates(drawn, ["left"], same_plot=True, show=False)
    assert words(ax) == ["root", "left"]
    assert color_of(ax, "up").min() > 0.8


def test_cells_stand_on_their_row_of_the_tree(drawn):
    ax = ep.pl.tree(drawn, show=False)
    x, y = ax.collections[0].get_offsets().T
    np.testing.assert_array_equal(x, drawn.obs["entropath_pseudotime"])
    rows = {"left": 0.0, "right": -1.0, "up": -2.0, "left + right": -0.5, "trunk": -1.25}
    off = np.abs(y - drawn.obs["entropath_branch"].map(rows).to_numpy(dtype=float))
    assert 0.3 < off.max() < 0.5
    many, few = (off[(drawn.obs["entropath_branch"] == name).to_numpy()].max() for name in ("trunk", "right"))
    assert few < 0.7 * many
    assert set(words(ax)) == {"root", *STATES}
    ax.figure.draw_without_rendering()
    for text in ax.texts:
        box = plt.Text.get_window_extent(text)
        assert ax.bbox.x0 <= box.x0 < box.x1 <= ax.bbox.x1 + 1
    assert len({tuple(color) for color in ax.collections[0].get_facecolor()}) == 5
    again = ep.pl.tree(drawn, show=False)
    np.testing.assert_array_equal(again.collections[0].get_offsets(), ax.collections[0].get_offsets())


def test_the_tree_by_a_gene_or_by_groups(drawn):
    drawn.layers["twice"] = 2 * drawn.X
    assert ep.pl.tree(drawn, "late", layer="twice", show=False).collections[0].get_array().max() > 1.5
    drawn.obs["group"] = pd.Categorical(np.where(drawn.obs["entropath_pseudotime"] > 0.5, "old", "young"))
    drawn.obs.loc[drawn.obs_names[:5], "group"] = np.nan
    legend = ep.pl.tree(drawn, "group", show=False).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["old", "young"]
    with pytest.raises(KeyError, match=r"color='Gata1' is no column of adata.obs and no gene"):
        ep.pl.tree(drawn, "Gata1")
    with pytest.raises(KeyError, match=r"color=\['late'\] is no column"):
        ep.pl.tree(drawn, ["late"])


def test_a_tree_of_one_branch_or_with_a_state_by_hand(cells):
    ep.tl.pseudotime(cells, root=cells.uns["root"])
    ep.tl.terminal_states(cells, n_states=0)
    assert set(words(ep.pl.tree(cells, show=False))) == {"root", "end"}
    inside = cells.obs_names[cells.obs["branch"] == "trunk"][:12]
    ep.tl.terminal_states(cells, groupby="branch", terminal={"rare": list(inside)}, n_resamples=0)
    ax = ep.pl.tree(cells, show=False)
    assert "rare" in words(ax)
    time = cells.uns["entropath"]["tree"]["nodes"]["pseudotime"]
    assert any(line.get_xdata()[-1] == time["rare"] for line in ax.lines)


def test_arrows_follow_the_walk(drawn):
    ax = ep.pl.arrows(drawn, grid=15, show=False)
    (quiver,) = [c for c in ax.collections if hasattr(c, "U")]
    on_trunk = (np.abs(quiver.X) < 0.3) & (quiver.Y < 2.5)
    assert on_trunk.sum() >= 3
    assert (quiver.V[on_trunk] > 5 * np.abs(quiver.U[on_trunk])).all()
    fewer = ep.pl.arrows(drawn, grid=15, min_cells=20, show=False)
    assert sum(hasattr(c, "U") and len(c.U) < len(quiver.U) for c in fewer.collections) == 1
    with pytest.raises(ValueError, match="grid=0"):
        ep.pl.arrows(drawn, grid=0)
    by_group = ep.pl.arrows(drawn, "entropath_branch", show=False)
    assert len(by_group.get_legend().get_texts()) == 5


def test_arrows_do_not_depend_on_the_scale_of_the_embedding(drawn):
    def lengths(adata):
        (quiver,) = [c for c in ep.pl.arrows(adata, show=False).collections if hasattr(c, "U")]
        return np.hypot(quiver.U, quiver.V)

    before = lengths(drawn)
    drawn.obsm["X_entropath"] = da.from_array(16 * drawn.obsm["X_entropath"], chunks=(100, 2))
    np.testing.assert_allclose(lengths(drawn), 16 * before)


def test_colours_do_not_repeat():
    for n in (3, 7, 8, 15, 40):
        assert len(set(colors_for(n))) == n
    assert colors_for(8) == colors_for(15)[:8]  # a state more changes no colour


# Machado, Oliveira and Fernandes (2009): what readers without one kind of cones see, in linear RGB.
READERS = {
    "all": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
}


def lab(colors, reader):
    """CIELAB of colours as a reader sees them."""
    rgb = np.array([to_rgb(color) for color in colors])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ np.transpose(READERS[reader]), 0, 1)
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
    x, y, z = np.cbrt(np.maximum(linear @ np.transpose(to_xyz) / [0.95047, 1, 1.08883], 0.0089)).T
    return np.column_stack([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("reader", READERS)
def test_colours_stay_apart_for_colour_blind_readers(reader):
    """Okabe and Ito's orange and yellow are 17 apart for readers with deuteranopia; no other pair may be nearer."""
    seen = lab(PALETTE, reader)
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)[np.triu_indices(len(seen), 1)]
    assert apart.min() > 16.9


def test_a_state_keeps_its_colour_among_selected_cells(cells):
    ep.tl.pseudotime(cells, root=cells.uns["root"])
    ep.tl.terminal_states(cells, groupby="branch", n_resamples=0)
    ep.tl.fates(cells)
    before = state_colors(cells, Keys(), cells.obsm["entropath_fates"])
    first = cells.obs["entropath_terminal"].cat.categories[0]
    some = cells[(cells.obs["entropath_terminal"] != first).to_numpy()].copy()
    assert first not in some.obs["entropath_terminal"].cat.categories
    assert state_colors(some, Keys(), some.obsm["entropath_fates"]) == before
    own = [f"#{i}{i}{i}{i}{i}{i}" for i in range(len(before))]
    cells.uns["entropath_terminal_colors"] = own
    some = cells[(cells.obs["entropath_terminal"] != first).to_numpy()].copy()
    assert list(state_colors(some, Keys(), some.obsm["entropath_fates"]).values())[1:] == own[1:]


def test_trends_of_other_cells_are_refused(cells):
    ep.tl.pseudotime(cells, root=cells.uns["root"])
    ep.tl.terminal_states(cells, groupby="branch", n_resamples=0)
    ep.tl.fates(cells)
    genes = list(cells.var_names[:3])
    ep.tl.trends(cells, genes)
    reordered = cells[::-1].copy()
    assert ep.pl.heatmap(reordered, genes, show=False)
    some = cells[: cells.n_obs // 2].copy()
    for plot in (ep.pl.trends, ep.pl.heatmap):
        with pytest.raises(ValueError, match=r"those of \d+ cells, and adata has \d+. Run `ep.tl.trends\(adata\)`"):
            plot(some, genes)
    ep.tl.trends(some, genes)
    assert ep.pl.heatmap(some, genes, show=False)


PICTURES = {
    "terminal_states": lambda adata: ep.pl.terminal_states(adata, return_fig=True),
    "fates": lambda adata: ep.pl.fates(adata, ["up", "left"], return_fig=True),
    "all_fates": lambda adata: ep.pl.fates(adata, same_plot=True, return_fig=True),
    "tree": lambda adata: ep.pl.tree(adata, return_fig=True),
    "arrows": lambda adata: ep.pl.arrows(adata, grid=15, return_fig=True),
}
BASELINES = Path(__file__).parent / "baseline"
# Root mean square over pixels, of 255: a few pixels of antialiasing, but no other mark, colour or curve.
TOLERANCE = 6.0


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_look_as_they_did(drawn, name, tmp_path):
    """To accept a new look: delete the file in tests/baseline, run the test once, and look at what it wrote."""
    pytest.importorskip("matplotlib", minversion="3.11", reason="older versions place axes some pixels apart")
    with plt.rc_context({"font.family": "DejaVu Sans", "figure.dpi": 60, "savefig.dpi": 60}):
        figure = PICTURES[name](drawn)
        # Text is drawn differently by each version of the font library; the rest is not.
        remove_ticks_and_titles(figure)
        if name == "tree":
            figure.axes[0].set_xlim(-0.15, 1.2)  # else as wide as the words
        for ax in figure.axes:
            ax.set(xlabel="", ylabel="")
            for text in list(ax.texts):
                text.remove()
        figure.set_size_inches(4.5, 3.5)
        figure.savefig(tmp_path / f"{name}.png")
    baseline = BASELINES / f"{name}.png"
    if not baseline.exists():
        shutil.copy(tmp_path / f"{name}.png", baseline)
        pytest.fail(f"There was no {baseline}; it is there now.")
    assert compare_images(str(baseline), str(tmp_path / f"{name}.png"), tol=TOLERANCE) is None
    # Another picture is another picture.
    other = BASELINES / f"{'arrows' if name != 'arrows' else 'tree'}.png"
    assert compare_images(str(other), str(tmp_path / f"{name}.png"), tol=TOLERANCE) is not None
