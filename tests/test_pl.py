from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import anndata as ad
import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from matplotlib.colors import to_hex
from matplotlib.testing.compare import compare_images
from matplotlib.testing.decorators import remove_ticks_and_titles

import entropath_sc as ep


@pytest.fixture(autouse=True)
def _close():
    plt.close("all")
    yield
    plt.close("all")


@pytest.fixture
def ordered(cells):
    ep.tl.embedding(cells)
    ep.tl.pseudotime(cells, root=cells.uns["root"], terminal=list(cells.obs_names[-2:]))
    return cells


@pytest.mark.parametrize("plot", [ep.pl.embedding, ep.pl.density, ep.pl.depth, ep.pl.pseudotime])
def test_plots_draw_on_given_axes_or_return_a_figure(ordered, plot):
    _, ax = plt.subplots()
    assert plot(ordered, ax=ax, show=False) is ax
    assert isinstance(plot(ordered, return_fig=True), plt.Figure)
    assert len(plt.get_fignums()) == 2


def curve(axes, label: str):
    (found,) = [line for line in axes.lines if line.get_label() == label]
    return found


def test_depth_shows_the_curve_the_threshold_and_the_choice(ordered):
    (ax,) = ep.pl.depth(ordered, return_fig=True).axes
    found = ordered.uns["entropath"]["depth"]
    np.testing.assert_array_equal(curve(ax, "agreement of other depths").get_xdata(), found["depths"])
    np.testing.assert_array_equal(curve(ax, "agreement of other depths").get_ydata(), found["agreement"])
    assert curve(ax, f"depth used: {found['chosen']:g}").get_xdata()[0] == found["chosen"]
    assert set(curve(ax, "agreement 0.95").get_ydata()) == {0.95}
    low, high = ax.get_ylim()
    assert low < found["agreement"].min() <= found["agreement"].max() < high
    assert "neighbour distances" in ax.get_xlabel()


def test_depth_shades_the_range_in_which_it_hardly_matters(drawn):
    drawn.uns["entropath"]["depth"]["agreement"] = np.array([0.9, 0.95, 1.0, 0.97, 0.5])
    ax = ep.pl.depth(drawn, show=False)
    low, high = np.sort(np.unique(ax.patches[0].get_extents().transformed(ax.transData.inverted()).intervalx))
    assert low == pytest.approx(2.5, rel=0.02)
    assert 25 < high < 80
    assert f"hardly matters: 2.5 to {high:.2g}" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_depth_of_the_papers_walk_shows_its_knee(cells):
    ep.tl.embedding(cells, preset="paper")
    (ax,) = ep.pl.depth(cells, return_fig=True).axes
    found = cells.uns["entropath"]["depth"]
    np.testing.assert_array_equal(curve(ax, "entropy of the walk").get_ydata(), found["entropy"])
    knee = curve(ax, f"knee: {found['knee']}")
    assert (*knee.get_xdata(), *knee.get_ydata()) == (found["knee"], found["entropy"][found["knee"] - 1])
    lines = [line for line in ax.lines if line.get_linestyle() == ":"]
    assert [line.get_xdata()[[0, -1]].tolist() for line in lines] == [
        [1, found["knee"]],
        [found["knee"], len(found["entropy"])],
    ]
    assert curve(ax, f"depth used: {found['chosen']:g}").get_xdata()[0] == found["chosen"]


def test_pseudotime_marks_root_and_terminals(ordered):
    ax = ep.pl.pseudotime(ordered, show=False)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["root", "2 terminals"]
    marked = ax.collections[-2].get_offsets()
    root = ordered[ordered.uns["root"]].obsm["X_entropath"]
    np.testing.assert_allclose(marked, root[:, :2])


def test_the_colour_bar_of_a_pseudotime_is_pointed_where_it_is_cut(ordered):
    for limits, ends in (({}, "both"), ({"vmin": 0}, "max"), ({"vmin": 0, "vmax": 1}, "neither")):
        ax = ep.pl.pseudotime(ordered, **limits, show=False)
        assert ax.collections[0].colorbar.extend == ends


def test_maps_are_not_stretched(ordered):
    ordered.obsm["X_entropath"][:, 0] *= 20
    for plot in (ep.pl.embedding, ep.pl.density, ep.pl.pseudotime):
        ax = plot(ordered, show=False)
        ax.figure.draw_without_rendering()
        across, up = ax.transData.transform([(1, 0), (0, 1)]) - ax.transData.transform((0, 0))
        assert across[0] == pytest.approx(up[1])
        low, high = ax.get_xlim()
        assert low <= ordered.obsm["X_entropath"][:, 0].min() < ordered.obsm["X_entropath"][:, 0].max() <= high
    left, right = ep.pl.embedding(ordered, ["branch", "time"], ncols=1, show=False)
    assert left.get_aspect() == right.get_aspect() == 1
    assert left.get_position().y0 > right.get_position().y1


def test_hexagons_are_regular(ordered):
    ordered.obsm["X_entropath"][:, 0] *= 4
    hexagon = ep.pl.density(ordered, gridsize=100, show=False).collections[0].get_paths()[0].vertices
    across, up = np.ptp(hexagon, axis=0)
    assert up / across == pytest.approx(2 / np.sqrt(3), rel=0.05)


def test_colours_can_be_limited(ordered):
    ordered.layers["twice"] = 2 * ordered.X
    gene = ordered.var_names[0]
    plain, twice = (ep.pl.embedding(ordered, gene, layer=layer, show=False).collections[0] for layer in (None, "twice"))
    assert twice.get_clim()[1] == pytest.approx(2 * plain.get_clim()[1])
    for ax in (
        ep.pl.embedding(ordered, "entropath_pseudotime", vmin="p5", vmax="p95", show=False),
        ep.pl.pseudotime(ordered, vmin="p5", vmax="p95", show=False),
    ):
        expected = np.percentile(ordered.obs["entropath_pseudotime"], [5, 95])
        np.testing.assert_allclose(ax.collections[0].get_clim(), expected)


def test_one_mark_stands_for_many_roots(cells):
    ep.tl.embedding(cells)
    ep.tl.pseudotime(cells, root=cells.obs_names[cells.obs["branch"] == "trunk"])
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
    with pytest.raises(ValueError, match=r"1 dimensions.*n_components=2"):
        ep.pl.density(cells)


def test_missing_results_say_what_to_run(cells):
    with pytest.raises(KeyError, match=r"X_entropath.*ep\.tl\.embedding\(adata\)"):
        ep.pl.embedding(cells)
    with pytest.raises(KeyError, match=r"depth.*ep\.tl\.embedding\(adata\)"):
        ep.pl.depth(cells)
    with pytest.raises(KeyError, match=r"entropath_pseudotime.*ep\.tl\.pseudotime"):
        ep.pl.pseudotime(cells)


@pytest.mark.parametrize("color", ["nope", ["branch", "nope"]], ids=["one", "of two"])
def test_an_unknown_colour_says_what_there_is(ordered, color):
    with pytest.raises(KeyError, match=r"nope.*is no column of adata.obs and no gene; there is .*branch"):
        ep.pl.embedding(ordered, color)


def test_density_counts_cells_or_averages_a_column_or_a_gene(ordered):
    counts = ep.pl.density(ordered, gridsize=15, show=False).collections[0].get_array()
    assert counts.sum() == ordered.n_obs
    means = ep.pl.density(ordered, "time", gridsize=15, show=False).collections[0].get_array()
    assert (counts * means).sum() / ordered.n_obs == pytest.approx(ordered.obs["time"].mean())
    gene = ordered.var_names[3]
    ordered.layers["twice"] = 2 * ordered.X
    once, twice = (ep.pl.density(ordered, gene, layer=layer, show=False).collections[0] for layer in (None, "twice"))
    np.testing.assert_allclose(twice.get_array(), 2 * once.get_array(), rtol=1e-5)
    for wrong in ("nothing", ["time"]):
        with pytest.raises(KeyError, match=r"no column of adata.obs and no gene; there is 'time'"):
            ep.pl.density(ordered, wrong)


def test_density_shows_the_most_frequent_label(drawn):
    drawn.obsm["X_entropath"] = np.repeat([[0.0, 0.0], [10.0, 1.0]], 200, axis=0)
    labels = np.array(["up"] * 120 + ["down"] * 80 + ["down"] * 10 + [None] * 190, dtype=object)
    drawn.obs["label"] = pd.Categorical(labels, categories=["down", "up"])
    ax = ep.pl.density(drawn, "label", show=False)
    hexagons = ax.collections[0]
    shown = dict(zip(hexagons.get_offsets()[:, 0].round(), hexagons.get_array(), strict=True))
    assert shown == {0.0: 1.0, 10.0: 0.0}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["down", "up"]
    legend = [handle.get_facecolor()[0] for handle in ax.collections[1:]]
    np.testing.assert_allclose(hexagons.cmap(hexagons.norm([0.0, 1.0])), legend)


@pytest.mark.parametrize(("n_cells", "across"), [(100, 20), (2_500, 50), (40_000, 150)])
def test_hexagons_grow_finer_with_more_cells(drawn, n_cells, across):
    many = ad.AnnData(obs=pd.DataFrame(index=map(str, range(n_cells))), uns=drawn.uns)
    many.obsm["X_entropath"] = np.random.default_rng(0).random((n_cells, 2))
    hexagon = ep.pl.density(many, show=False).collections[0].get_paths()[0].vertices
    assert np.ptp(hexagon[:, 0]) == pytest.approx(1 / across, rel=0.02)


def test_a_few_extreme_cells_do_not_take_all_colours(ordered):
    ordered.obs["value"] = np.linspace(0, 1, ordered.n_obs)
    ordered.obs.loc[ordered.obs_names[5], "value"] = 1e6
    expected = np.percentile(ordered.obs["value"], [1, 99])
    np.testing.assert_allclose(ep.pl.embedding(ordered, "value", show=False).collections[0].get_clim(), expected)
    ax = ep.pl.embedding(ordered, "value", vmax=3, show=False)
    np.testing.assert_allclose(ax.collections[0].get_clim(), [expected[0], 3])
    both = ep.pl.embedding(ordered, ["value", "time"], vmax=[2, None], vmin="p0", show=False)
    assert both[0].collections[0].get_clim() == (0, 2)
    assert both[1].collections[0].get_clim() == (
        ordered.obs["time"].min(),
        pytest.approx(np.percentile(ordered.obs["time"], 99)),
    )
    # A gene that few cells express would have no colours at all.
    ordered.obs["rare"] = (np.arange(ordered.n_obs) == 7).astype(float)
    assert ep.pl.embedding(ordered, "rare", show=False).collections[0].get_clim() == (0, 1)
    full = ep.pl.pseudotime(ordered, vmin="p0", vmax="p100", show=False).collections[0].get_clim()
    assert full == (0, 1)


def test_scanpys_arguments_pass_through(ordered):
    ax = ep.pl.embedding(ordered, "time", cmap="magma", alpha=0.5, frameon=False, title="a title", show=False)
    assert ax.collections[0].get_cmap().name == "magma"
    assert ax.collections[0].get_alpha() == 0.5
    assert ax.get_title() == "a title"
    assert ep.pl.pseudotime(ordered, cmap="magma", show=False).collections[0].get_cmap().name == "magma"
    assert ep.pl.density(ordered, cmap="magma", show=False).collections[0].get_cmap().name == "magma"
    ordered.var["symbol"] = [f"symbol {i}" for i in range(ordered.n_vars)]
    by_symbol = ep.pl.embedding(ordered, "symbol 2", gene_symbols="symbol", show=False).collections[0].get_array()
    by_name = ep.pl.embedding(ordered, ordered.var_names[2], show=False).collections[0].get_array()
    np.testing.assert_array_equal(by_symbol, by_name)
    some = ep.pl.embedding(ordered, "branch", groups=["trunk"], show=False)
    assert "trunk" in [text.get_text() for text in some.get_legend().get_texts()]


def test_labels_on_data_do_not_cover_each_other(ordered):
    # Two categories with the same median, whose names would cover each other in the middle.
    ordered.obs["half"] = pd.Categorical(np.where(np.arange(ordered.n_obs) % 2, "one of two", "two of two"))
    ax = ep.pl.embedding(ordered, "half", legend_loc="on data", legend_fontsize=11, show=False)
    assert ax.get_legend() is None
    assert {text.get_text() for text in ax.texts} == {"one of two", "two of two"}
    assert {text.get_fontsize() for text in ax.texts} == {11}
    ax.figure.draw_without_rendering()
    one, other = (text.get_window_extent() for text in ax.texts)
    assert not one.overlaps(other)


def test_labels_are_wrapped_between_words_only(ordered):
    names = {"trunk": "megakaryocyteprogenitorlike cells", "fate A": "granulocyte-monocyte-progenitors"}
    ordered.obs["branch"] = ordered.obs["branch"].cat.rename_categories(names)
    ax = ep.pl.embedding(ordered, "branch", legend_loc="on data", show=False)
    found = {text.get_text() for text in ax.texts}
    assert {"megakaryocyteprogenitorlike\ncells", "granulocyte-monocyte-progenitors"} <= found


def test_plots_take_a_dask_array(ordered):
    expected = ep.pl.density(ordered, gridsize=15, show=False).collections[0].get_array()
    ordered.obsm["X_entropath"] = da.from_array(ordered.obsm["X_entropath"], chunks=(100, 2))
    found = ep.pl.density(ordered, gridsize=15, show=False).collections[0].get_array()
    np.testing.assert_array_equal(found, expected)
    ep.pl.pseudotime(ordered, show=False)


def test_an_interactive_view_has_every_cell_once(ordered):
    figure = ep.pl.interactive(ordered, "branch", hover=["time"])
    assert [trace.name for trace in figure.data] == list(ordered.obs["branch"].cat.categories)
    assert sum(len(trace.x) for trace in figure.data) == ordered.n_obs
    assert "time: " in figure.data[0].text[0]
    plain, by_gene = ep.pl.interactive(ordered), ep.pl.interactive(ordered, ordered.var_names[0])
    np.testing.assert_array_equal(plain.data[0].x, ordered.obsm["X_entropath"][:, 0])
    assert len(by_gene.data[0].marker.color) == ordered.n_obs
    ep.tl.embedding(ordered, n_components=3)
    assert ep.pl.interactive(ordered, "time").data[0].type == "scatter3d"
    with pytest.raises(KeyError, match=r"Run `ep\.tl\.embedding\(adata\)` first"):
        ep.pl.interactive(ordered, key="other")


# Pictures, of values that are set by hand: what is tested is the drawing.


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    time = rng.random(400)
    side = np.where(rng.random(400) < 0.5, 1.0, -1.0)
    obs = {"time": time, "branch": pd.Categorical(np.where(side > 0, "up", "down"))}
    adata = ad.AnnData(
        obs=pd.DataFrame(obs).set_index(pd.Index(map(str, range(400)))), var=pd.DataFrame(index=[*"abcd"])
    )
    bent = np.maximum(time - 0.4, 0) * side
    adata.obsm["X_entropath"] = np.column_stack([time, bent]) + 0.02 * rng.normal(size=(400, 2))
    adata.obs["entropath_pseudotime"] = adata.obs["entropath_potential"] = time
    adata.uns["entropath"] = {
        "depth": {
            "chosen": 8.0,
            "depths": np.array([0.8, 2.5, 8.0, 25.0, 80.0]),
            "agreement": np.array([0.95, 0.99, 1.0, 0.997, 0.98]),
            "entropy": 6 * np.exp(-np.arange(1, 101) / 15),
            "knee": 25,
            "knee_range": np.array([22, 27]),
        },
        "pseudotime": {"roots": adata.obs_names[[time.argmin()]].to_numpy(dtype=object)},
        "trends": {
            "states": np.array(["up", "down"], dtype=object),
            "fields": np.array(["entropath_trends_up", "entropath_trends_down"], dtype=object),
            "pseudotime": np.stack([np.linspace(0, 1.0, 50), np.linspace(0, 0.8, 50)]),
        },
    }
    # Gene a peaks first in both, b and c late in one, d in the middle of one.
    for state, late, middle in (("up", (1, 0), 1), ("down", (0, 1), 0)):
        t = np.linspace(0, 1, 50)
        adata.varm[f"entropath_trends_{state}"] = np.stack(
            [np.exp(-3 * t), late[0] * t**2, late[1] * 5 * t**2, middle * np.exp(-(((t - 0.5) / 0.2) ** 2))]
        )
        adata.varm[f"entropath_trends_{state}_se"] = np.full((4, 50), 0.05)
    return adata


PICTURES = {
    "embedding": lambda adata: ep.pl.embedding(adata, "branch", return_fig=True),
    "density": lambda adata: ep.pl.density(adata, "time", gridsize=20, return_fig=True),
    "depth": lambda adata: ep.pl.depth(adata, return_fig=True),
    "pseudotime": lambda adata: ep.pl.pseudotime(adata, return_fig=True),
    "trends": lambda adata: ep.pl.trends(adata, ["a", "b", "c", "d"], n_cols=2, return_fig=True),
    "heatmap": lambda adata: ep.pl.heatmap(adata, ["d", "c", "b", "a"], return_fig=True),
}
BASELINES = Path(__file__).parent / "baseline"


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_look_as_they_did(drawn, name, tmp_path):
    """To accept a new look: delete the file in tests/baseline, run the test once, and look at what it wrote."""
    pytest.importorskip("matplotlib", minversion="3.11", reason="older versions place axes some pixels apart")
    with plt.rc_context({"font.family": "DejaVu Sans", "figure.dpi": 60, "savefig.dpi": 60}):
        figure = PICTURES[name](drawn)
        # Text is drawn differently by each version of the font library; the rest is not.
        remove_ticks_and_titles(figure)
        for ax in figure.axes:
            ax.set(xlabel="", ylabel="")
        for legend in [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]:
            for text in legend.get_texts():
                text.set_text("")
        figure.set_size_inches(4.5, 3.5)
        figure.savefig(tmp_path / f"{name}.png")
    baseline = BASELINES / f"{name}.png"
    if not baseline.exists():
        shutil.copy(tmp_path / f"{name}.png", baseline)
        pytest.fail(f"There was no {baseline}; it is there now.")
    assert compare_images(str(baseline), str(tmp_path / f"{name}.png"), tol=TOLERANCE) is None
    # Another picture is another picture.
    other = BASELINES / f"{'depth' if name == 'density' else 'density'}.png"
    assert compare_images(str(other), str(tmp_path / f"{name}.png"), tol=TOLERANCE) is not None


def test_trends_draw_a_curve_and_a_band_for_each_lineage(drawn):
    first, *_ = axes = ep.pl.trends(drawn, ["b", "c"], show=False)
    assert [ax.get_title() for ax in axes] == ["b", "c"]
    assert [line.get_label() for line in first.lines] == ["up", "down"]
    np.testing.assert_array_equal(first.lines[0].get_ydata(), drawn.varm["entropath_trends_up"][1])
    band = first.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(1 + 1.96 * 0.05)
    (legend,) = first.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["up", "down"]
    # A lineage keeps its colour when it is drawn alone, and by fate the curves are genes.
    alone = ep.pl.trends(drawn, "b", fate="down", show=False)
    assert alone.lines[0].get_color() == first.lines[1].get_color() != first.lines[0].get_color()
    by_fate = ep.pl.trends(drawn, ["b", "c"], panels="fate", show=False)
    assert [ax.get_title() for ax in by_fate] == ["up", "down"]
    assert [line.get_label() for line in by_fate[0].lines] == ["b", "c"]


@pytest.mark.parametrize("plot", [ep.pl.heatmap, lambda *args, **kw: ep.pl.trends(*args, panels="fate", **kw)])
def test_long_titles_of_neighbouring_panels_do_not_overlap(drawn, plot):
    part = drawn.uns["entropath"]["trends"]
    part["states"] = np.array([f"{way} of the plasmacytoid dendritic cells" for way in ("up", "down")], dtype=object)
    figure = plot(drawn, ["a", "b"], return_fig=True)
    figure.draw_without_rendering()
    one, other = (ax.title.get_window_extent() for ax in figure.axes[:2])
    assert not one.overlaps(other)


def test_a_heatmap_is_scaled_by_gene_and_sorted_by_peak(drawn):
    up, down = ep.pl.heatmap(drawn, ["d", "c", "b", "a"], show=False)
    names = [label.get_text() for label in up.get_yticklabels()]
    assert names == ["a", "d", "b", "c"]  # shared; up, from early to late; down
    values = np.stack([ax.images[0].get_array() for ax in (up, down)])
    np.testing.assert_allclose(values.max(axis=(0, 2)), 1)
    np.testing.assert_allclose(values.min(axis=(0, 2)), 0, atol=1e-12)
    assert values[1, names.index("b")].max() == 0
    as_given = ep.pl.heatmap(drawn, ["d", "c", "b", "a"], sort=False, fate="up", show=False)
    assert [label.get_text() for label in as_given.get_yticklabels()] == ["d", "c", "b", "a"]


@pytest.mark.parametrize("plot", [ep.pl.trends, ep.pl.heatmap])
def test_plots_of_trends_take_axes_and_say_what_is_missing(drawn, plot):
    _, ax = plt.subplots()
    assert plot(drawn, "a", fate="up", ax=ax, show=False) is ax
    assert isinstance(plot(drawn, ["a", "b"], return_fig=True), plt.Figure)
    with pytest.raises(ValueError, match="`ax` is for one panel, and this plot has 2"):
        plot(drawn, ["a", "b"], ax=ax)
    with pytest.raises(ValueError, match=r"no trends of 'left', but of 'up', 'down'"):
        plot(drawn, "a", fate="left")
    with pytest.raises(KeyError, match=r"'e' is not in adata.var_names"):
        plot(drawn, "e")
    drawn.varm["entropath_trends_up"][1] = drawn.varm["entropath_trends_down"][1] = np.nan
    with pytest.raises(ValueError, match=r"'b' has no trends. Run `ep.tl.trends\(adata, genes\)`"):
        plot(drawn, ["a", "b"])
    del drawn.uns["entropath"]["trends"]
    with pytest.raises(KeyError, match=r"Run `ep\.tl\.trends\(adata\)` first"):
        plot(drawn, "a")


# Root mean square over pixels, of 255: a few pixels of antialiasing, but no other mark, colour or curve.
TOLERANCE = 6.0


# Only coordinates of this package are drawn, and all cells of them.


def test_coordinates_of_others_are_not_drawn(ordered):
    tissue = np.random.default_rng(0).normal(size=(ordered.n_obs, 2))
    ordered.obsm["spatial"], ordered.obsm["X_umap"] = tissue, tissue
    ordered.uns["umap"] = {"params": {"a": 0.58}}
    ordered.uns["spatial"] = {"library": {"images": {}}}
    for plot in (ep.pl.embedding, ep.pl.density, ep.pl.interactive):
        with pytest.raises(KeyError, match=r"No adata.obsm\['X_spatial'\]"):
            plot(ordered, key="spatial")
        with pytest.raises(ValueError, match=r"'X_umap'\] was not made by this package.*sc.pl.embedding"):
            plot(ordered, key="umap")
    ordered.obsm["drawn"] = tissue
    ep.tl.embedding(ordered, key_added="drawn")
    ax = ep.pl.embedding(ordered, key="drawn", show=False)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), ordered.obsm["X_drawn"])


def test_an_interactive_view_has_cells_without_a_category(ordered):
    ordered.obs["some"] = ordered.obs["branch"].where(ordered.obs["branch"] != "trunk")
    figure = ep.pl.interactive(ordered, "some")
    assert sum(len(trace.x) for trace in figure.data) == ordered.n_obs
    assert figure.data[-1].name == "none"
    assert len(figure.data[-1].x) == (ordered.obs["branch"] == "trunk").sum()


def test_a_column_has_the_same_colours_in_every_figure_whichever_comes_first(ordered):
    """Those that scanpy gives it."""
    by_scanpy, drawn = ordered.copy(), ordered.copy()
    sc.pl.pca(by_scanpy, color="branch", show=False)
    ep.pl.density(drawn, "branch", show=False)
    first = list(drawn.uns["branch_colors"])
    assert [to_hex(color) for color in by_scanpy.uns["branch_colors"]] == first
    for plot in (ep.pl.embedding, ep.pl.density, sc.pl.pca):
        plot(drawn, color=["branch", "time"] if plot is ep.pl.embedding else "branch", show=False)
        assert list(drawn.uns["branch_colors"]) == first
    other = ordered.copy()
    ep.pl.embedding(other, ["branch", "time"], show=False)
    assert list(other.uns["branch_colors"]) == first
    with warnings.catch_warnings():
        warnings.simplefilter("error", ad.ImplicitModificationWarning)
        view = other[:100]
        ep.pl.density(view, "branch", show=False)
    assert view.is_view
