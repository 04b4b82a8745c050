"""What is stored, when it is used again, and when it is made again because cells or neighbours have changed."""

from __future__ import annotations

import sys
import warnings

import anndata as ad
import numpy as np
import pytest
import scanpy as sc
import scipy.sparse as sp
from conftest import assert_same, without_results
from scipy.stats import spearmanr

import entropath_sc as ep

CHANGED = "have changed: it is made again"


def order_of(adata) -> np.ndarray:
    return adata.obs["entropath_potential"].to_numpy()


@pytest.fixture(scope="module")
def _neighboured():
    adata = ep.datasets.branching(n_cells=240, n_genes=100)
    sc.pp.neighbors(adata, use_rep="X_pca")
    return adata


@pytest.fixture
def neighboured(_neighboured):
    """Branching cells with scanpy's neighbours."""
    return _neighboured.copy()


# An order does not depend on what was run before.


@pytest.mark.parametrize("neighbours", [True, False], ids=["neighbours", "no neighbours"])
@pytest.mark.parametrize("n_landmarks", [None, 120], ids=["cells", "landmarks"])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_an_embedding_before_does_not_change_the_order(neighboured, neighbours, n_landmarks, preset):
    if not neighbours:
        del neighboured.uns["neighbors"], neighboured.obsp["distances"], neighboured.obsp["connectivities"]
    options = {"root": ("branch", "trunk"), "n_landmarks": n_landmarks, "preset": preset}
    fresh = ep.tl.pseudotime(neighboured, **options, copy=True)
    # All cells, the landmarks of the order, and other ones.
    befores = [{}, {"n_landmarks": 120}, {"n_landmarks": 90, "depth": 3, "random_state": 3}]
    for before in befores if preset == "default" else befores[1:]:
        embedded = ep.tl.embedding(neighboured, preset=preset, **before, copy=True)
        ep.tl.pseudotime(embedded, **options)
        np.testing.assert_allclose(order_of(embedded), order_of(fresh), rtol=1e-12, atol=1e-12, err_msg=str(before))
        roots = [adata.uns["entropath"]["pseudotime"]["roots"].tolist() for adata in (embedded, fresh)]
        assert roots[0] == roots[1]


def test_an_embedding_of_another_preset_does_not_change_the_order(neighboured):
    fresh = ep.tl.pseudotime(neighboured, root="cell_0", copy=True)
    ep.tl.embedding(neighboured, preset="paper")
    ep.tl.pseudotime(neighboured, root="cell_0")
    np.testing.assert_allclose(order_of(neighboured), order_of(fresh), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n_landmarks", [2000, 120], ids=["cells", "landmarks"])
def test_an_order_before_does_not_change_the_embedding(neighboured, n_landmarks):
    fresh = ep.tl.embedding(neighboured, n_landmarks=n_landmarks, copy=True)
    for before in ({}, {"n_landmarks": 90}, {"preset": "paper"}, {"depth": 3}):
        ordered = ep.tl.pseudotime(neighboured, root="cell_0", **before, copy=True)
        ep.tl.embedding(ordered, n_landmarks=n_landmarks)
        np.testing.assert_array_equal(ordered.obsm["X_entropath"], fresh.obsm["X_entropath"], err_msg=str(before))


def test_a_graph_of_its_own_is_what_the_tools_make(neighboured):
    made = ep.tl.merw_graph(neighboured, copy=True)
    assert not made.uns["entropath"]["params"]["merw_graph"]["automatic"]
    for adata in (made, neighboured):
        ep.tl.embedding(adata)
        ep.tl.pseudotime(adata, root="cell_0")
    assert neighboured.uns["entropath"]["params"]["merw_graph"]["automatic"]
    np.testing.assert_array_equal(made.obsm["X_entropath"], neighboured.obsm["X_entropath"])
    np.testing.assert_array_equal(order_of(made), order_of(neighboured))


def test_options_of_an_explicit_graph_stay_in_force(neighboured):
    plain = ep.tl.pseudotime(neighboured, root="cell_0", copy=True)
    ep.tl.merw_graph(neighboured, decay=1.0, bandwidth="adaptive")
    A = neighboured.obsp["entropath_affinity"].copy()
    ep.tl.embedding(neighboured)
    ep.tl.pseudotime(neighboured, root="cell_0")
    assert (neighboured.obsp["entropath_affinity"] != A).nnz == 0
    assert not np.allclose(order_of(neighboured), order_of(plain))


# What a graph was made of has changed.


def test_an_explicit_graph_is_made_again_when_its_neighbours_are_new(cells):
    sc.pp.neighbors(cells, use_rep="X_pca")
    ep.tl.merw_graph(cells, decay=2, bandwidth="adaptive")
    before = cells.obsp["entropath_affinity"].nnz
    sc.pp.neighbors(cells, n_neighbors=30, use_rep="X_pca")
    order = cells.copy()
    for adata, step in ((cells, ep.tl.embedding), (order, lambda adata: ep.tl.pseudotime(adata, root="cell_0"))):
        with pytest.warns(UserWarning, match=CHANGED):
            step(adata)
        assert adata.obsp["entropath_affinity"].nnz > 1.5 * before
        params = adata.uns["entropath"]["params"]["merw_graph"]
        assert (params["decay"], params["bandwidth"], params["n_neighbors"]) == (2, "adaptive", 30)
        assert not params["automatic"]
        step(adata)  # a warning would be an error


def test_an_explicit_graph_is_made_again_when_its_representation_is_new(cells):
    ep.tl.merw_graph(cells, n_neighbors=12)
    ep.tl.embedding(cells)
    first = cells.obsm["X_entropath"].copy()
    cells.obsm["X_pca"] = cells.obsm["X_pca"][:, :5]
    with pytest.warns(UserWarning, match=CHANGED):
        ep.tl.embedding(cells)
    assert not np.allclose(first, cells.obsm["X_entropath"])
    assert cells.uns["entropath"]["params"]["merw_graph"]["n_neighbors"] == 12
    ep.tl.embedding(cells)
    fresh = cells.copy()
    ep.tl.merw_graph(fresh, n_neighbors=12)
    ep.tl.embedding(fresh)
    np.testing.assert_array_equal(cells.obsm["X_entropath"], fresh.obsm["X_entropath"])


def test_a_graph_whose_representation_is_gone_is_used_as_it_is(cells):
    ep.tl.merw_graph(cells)
    expected = ep.tl.pseudotime(cells, root="cell_0", copy=True)
    del cells.obsm["X_pca"]  # nothing to compare with, and nothing new
    ep.tl.pseudotime(cells, root="cell_0")
    np.testing.assert_array_equal(order_of(cells), order_of(expected))


def test_an_automatic_graph_is_made_again_without_a_word(neighboured):
    ep.tl.pseudotime(neighboured, root="cell_0")
    first = order_of(neighboured).copy()
    sc.pp.neighbors(neighboured, n_neighbors=30, use_rep="X_pca")
    fresh = neighboured.copy()
    for key in ("entropath_affinity", "entropath_lengths"):
        del fresh.obsp[key]
    del fresh.uns["entropath"], fresh.obsm["entropath_scales"]
    for adata in (neighboured, fresh):
        ep.tl.pseudotime(adata, root="cell_0")
    assert not np.allclose(order_of(neighboured), first)
    np.testing.assert_array_equal(order_of(neighboured), order_of(fresh))
    assert neighboured.uns["entropath"]["params"]["merw_graph"]["n_neighbors"] == 30


def test_neighbours_that_come_later_are_used(cells):
    ep.tl.pseudotime(cells, root="cell_0")  # on neighbours of its own
    assert "neighbors_key" not in cells.uns["entropath"]["params"]["merw_graph"]
    sc.pp.neighbors(cells, n_neighbors=30, use_rep="X_pca")
    ep.tl.pseudotime(cells, root="cell_0")
    params = cells.uns["entropath"]["params"]["merw_graph"]
    assert (params["neighbors_key"], params["n_neighbors"]) == ("neighbors", 30)


def test_the_same_neighbours_in_another_place_are_no_other_ones(neighboured):
    ep.tl.merw_graph(neighboured)
    ep.tl.embedding(neighboured.copy())
    ep.tl.pseudotime(neighboured, root="cell_0")
    # Written again with the same content.
    neighboured.obsp["distances"] = neighboured.obsp["distances"].copy()
    ep.tl.pseudotime(neighboured, root="cell_0")


def test_landmarks_are_made_again_when_cells_have_moved(cells):
    ep.tl.embedding(cells, n_landmarks=100)
    kept = cells.uns["entropath"]["landmarks"]
    ep.tl.embedding(cells, n_landmarks=100)
    assert cells.uns["entropath"]["landmarks"]["fingerprint"] == kept["fingerprint"]
    cells.obsm["X_pca"] = cells.obsm["X_pca"] * np.linspace(1, 3, cells.obsm["X_pca"].shape[1])
    moved = cells.copy()
    del moved.uns["entropath"]
    for adata in (cells, moved):
        ep.tl.embedding(adata, n_landmarks=100)
        ep.tl.pseudotime(adata, root="cell_0", n_landmarks=100)
    assert cells.uns["entropath"]["landmarks"]["fingerprint"] != kept["fingerprint"]
    np.testing.assert_array_equal(cells.obsm["X_entropath"], moved.obsm["X_entropath"])
    np.testing.assert_array_equal(order_of(cells), order_of(moved))


# Subsets.


@pytest.mark.filterwarnings("ignore:The neighbours or positions that the graph")
@pytest.mark.parametrize("explicit", [False, True], ids=["automatic", "explicit"])
@pytest.mark.parametrize("n_landmarks", [2000, 100], ids=["cells", "landmarks"])
def test_a_subset_with_a_pca_and_neighbours_of_its_own(neighboured, explicit, n_landmarks):
    if explicit:
        ep.tl.merw_graph(neighboured)
    ep.tl.embedding(neighboured, n_landmarks=n_landmarks)
    ep.tl.pseudotime(neighboured, root="cell_0")
    part = neighboured[neighboured.obs["branch"] != "fate C"].copy()
    sc.pp.pca(part, n_comps=20)
    sc.pp.neighbors(part)
    fresh = without_results(part)
    for adata in (part, fresh):
        ep.tl.embedding(adata, n_landmarks=n_landmarks)
        ep.tl.pseudotime(adata, root=part.obs_names[0], n_landmarks=None if n_landmarks > 1000 else n_landmarks)
    np.testing.assert_array_equal(part.obsm["X_entropath"], fresh.obsm["X_entropath"])
    np.testing.assert_array_equal(order_of(part), order_of(fresh))
    own = ep.tl.project(part, part, copy=True)
    np.testing.assert_allclose(own.obsm["X_entropath"], part.obsm["X_entropath"], atol=1e-5)


@pytest.mark.parametrize("first", ["embedding", "pseudotime"])
def test_a_subset_of_an_explicit_graph_is_told_once(neighboured, first):
    ep.tl.merw_graph(neighboured, bandwidth="fixed")
    part = neighboured[::2].copy()
    steps = {
        "embedding": lambda: ep.tl.embedding(part),
        "pseudotime": lambda: ep.tl.pseudotime(part, root=part.obs_names[0]),
    }
    with pytest.warns(UserWarning, match=CHANGED):
        steps.pop(first)()
    steps.popitem()[1]()
    assert part.uns["entropath"]["params"]["merw_graph"]["bandwidth"] == "fixed"
    assert part.obsp["entropath_affinity"].shape == (120, 120)
    assert sum(part.uns["entropath"]["graph"]["component_sizes"]) == 120


def test_a_subset_whose_positions_are_there_finds_neighbours_of_its_own(cells):
    ep.tl.pseudotime(cells, root="cell_0")  # automatic, without neighbours
    part = cells[cells.obs["branch"] != "fate C"].copy()
    fresh = without_results(part)
    for adata in (part, fresh):
        ep.tl.pseudotime(adata, root=part.obs_names[0])
    np.testing.assert_array_equal(order_of(part), order_of(fresh))
    assert spearmanr(order_of(part), part.obs["time"]).statistic > 0.8


def test_a_graph_of_other_cells_is_refused_where_nothing_is_left_to_make_it_of(cells):
    ep.tl.merw_graph(cells)
    part = cells[cells.obs["branch"] != "progenitor"].copy()
    del part.obsm["X_pca"]
    for step in (lambda: ep.tl.embedding(part), lambda: ep.tl.pseudotime(part, root=part.obs_names[0])):
        with pytest.raises(ValueError, match=r"entropath_affinity.*made for other cells.*ep\.tl\.merw_graph\(adata"):
            step()


def test_the_papers_preset_on_another_graph_is_told(cells):
    ep.tl.merw_graph(cells)
    for step in (ep.tl.embedding, lambda adata, preset: ep.tl.pseudotime(adata, root="cell_0", preset=preset)):
        for preset in ("paper", "heat"):
            with pytest.warns(UserWarning, match=f"'tempered'.*preset='{preset}'"):
                step(cells, preset=preset)
    ep.tl.merw_graph(cells, preset="paper")
    ep.tl.embedding(cells, preset="paper")
    ep.tl.pseudotime(cells, root="cell_0", preset="paper")


# Only what this package made is replaced.


@pytest.mark.parametrize("tool", ["embedding", "project"])
@pytest.mark.parametrize("key", ["scVI", "umap"])
def test_fields_of_others_are_not_replaced(neighboured, tool, key):
    latent = np.random.default_rng(0).normal(size=(neighboured.n_obs, 10))
    neighboured.obsm[f"X_{key}"] = latent
    reference = neighboured.copy()
    del reference.obsm[f"X_{key}"]
    ep.tl.embedding(reference, key_added=key)
    step = {
        "embedding": lambda: ep.tl.embedding(neighboured, use_rep=f"X_{key}", key_added=key),
        "project": lambda: ep.tl.project(neighboured, reference, key_added=key),
    }[tool]
    with pytest.raises(ValueError, match=rf"adata.obsm\['X_{key}'\] was not made by this package.*`key_added`"):
        step()
    np.testing.assert_array_equal(neighboured.obsm[f"X_{key}"], latent)
    assert key not in neighboured.uns
    # A graph under that key does not make the latent space ours.
    ep.tl.merw_graph(neighboured, key_added=key)
    with pytest.raises(ValueError, match="was not made by this package"):
        ep.tl.embedding(neighboured, key_added=key)


@pytest.mark.parametrize(
    ("place", "name"),
    [("obs", "my_pseudotime"), ("obs", "my_stationary"), ("obsp", "my_affinity"), ("obsm", "my_scales")],
)
def test_every_field_of_others_is_safe(neighboured, place, name):
    values = {"obs": np.arange(240.0), "obsm": np.ones((240, 2)), "obsp": np.eye(240)}[place]
    getattr(neighboured, place)[name] = values
    with pytest.raises(ValueError, match=rf"adata.{place}\['{name}'\] was not made by this package"):
        ep.tl.pseudotime(neighboured, root="cell_0", key_added="my")
    np.testing.assert_array_equal(getattr(neighboured, place)[name], values)


def test_fields_of_this_package_are_replaced_and_may_be_gone(neighboured):
    for _ in range(2):
        ep.tl.embedding(neighboured, key_added="my")
        ep.tl.pseudotime(neighboured, root="cell_0", key_added="my")
        ep.tl.project(neighboured, neighboured, labels="branch", key_added="my")
    for labels in (None, "time", "branch"):  # what was carried long ago is still ours
        ep.tl.project(neighboured, neighboured, labels=labels, key_added="my")
    del neighboured.obs["my_branch_share"], neighboured.obsm["my_scales"]
    ep.tl.project(neighboured[::2].copy(), ep.tl.embedding(neighboured, copy=True), key_added="entropath")
    ep.tl.pseudotime(neighboured, root="cell_0", key_added="my")
    # Concatenated, what `uns` held is gone; nobody else writes under this package's own name.
    both = ad.concat([ep.tl.embedding(neighboured, copy=True)] * 2, index_unique="-")
    assert "X_entropath" in both.obsm
    ep.tl.embedding(both)


def test_labels_that_would_replace_other_results_are_refused(neighboured):
    ep.tl.embedding(neighboured)
    ep.tl.pseudotime(neighboured, root="cell_0")
    new = neighboured[::3].copy()
    for label in ("pseudotime", "potential", "remoteness", "landmark", "stationary"):
        neighboured.obs[label] = 1.0
        before = new.copy()
        with pytest.raises(ValueError, match=rf"'{label}' would be carried to 'entropath_{label}'.*Rename it"):
            ep.tl.project(new, neighboured, labels=["branch", label])
        assert_same(new, before)
    neighboured.obs["branch_share"] = 1.0
    for labels in (["branch", "branch_share"], ["branch", "branch"]):
        with pytest.raises(ValueError, match="another result"):
            ep.tl.project(new, neighboured, labels=labels)
    new.obs["entropath_time"] = "mine"
    with pytest.raises(ValueError, match=r"adata.obs\['entropath_time'\] was not made by this package"):
        ep.tl.project(new, neighboured, labels="time")


# Nothing is half written.


class Interrupter:
    """Raises KeyboardInterrupt at the n-th line that a function executes."""

    def __init__(self, code, n: int) -> None:
        self.code, self.left, self.raised = code, n, False

    def __call__(self, frame, event, argument):
        return self.line if frame.f_code is self.code else None

    def line(self, frame, event, argument):
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.raised = True
                raise KeyboardInterrupt
        return self.line


@pytest.mark.parametrize("kind", ["fresh", "again", "view", "copy"])
def test_an_interrupt_while_fields_are_written_leaves_none(neighboured, kind):
    from entropath_sc._keys import Keys
    from entropath_sc.tl._adata import Fields, write

    def fields() -> Fields:
        n = neighboured.n_obs
        return Fields(
            obs={"entropath_pseudotime": np.ones(n), "entropath_landmark": None, "entropath_potential": np.ones(n)},
            obsm={"X_entropath": np.ones((n, 2)), "entropath_scales": None},
            obsp={"entropath_affinity": sp.eye_array(n, format="csr"), "entropath_lengths": None},
            params={"embedding": {}},
            parts={"depth": {"chosen": 1.0}},
        )

    if kind == "again":
        ep.tl.embedding(neighboured)
        ep.tl.pseudotime(neighboured, root="cell_0")
    target = neighboured[:] if kind == "view" else neighboured
    before = neighboured[:] if kind == "view" else neighboured.copy()
    n, finished, tracer = 0, False, sys.gettrace()  # the tracer may be that of a coverage report
    while not finished:
        n += 1
        interrupter = Interrupter(write.__code__, n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sys.settrace(interrupter)
            try:
                write(target, Keys(), fields(), copy=kind == "copy")
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(tracer)
        finished = not interrupter.raised or target.uns.get("entropath", {}).get("depth") == {"chosen": 1.0}
        if not finished:
            assert_same(target, before)
    assert n > 20
    assert kind == "copy" or list(target.obsp).count("entropath_affinity") == 1


# Results that no longer fit the cells are made again with a warning, or refused.


@pytest.mark.parametrize("n_landmarks", [2000, 100], ids=["cells", "landmarks"])
@pytest.mark.parametrize("change", ["new values", "shuffled rows", "fewer columns"])
def test_a_reference_with_new_positions_is_refused(cells, n_landmarks, change):
    new = cells[::4].copy()
    ep.tl.embedding(cells, n_landmarks=n_landmarks)
    ep.tl.pseudotime(cells, root="cell_0", n_landmarks=n_landmarks)
    X = cells.obsm["X_pca"]
    cells.obsm["X_pca"] = {"new values": X * 1.01, "shuffled rows": X[::-1].copy(), "fewer columns": X[:, :9]}[change]
    if change == "shuffled rows" and n_landmarks == 100:
        ep.tl.project(new, cells)  # landmarks keep positions of their own, in the same components
        return
    with pytest.raises(ValueError, match=r"changed since `ep.tl.embedding`.*in 'X_pca'.*Run `ep.tl.embedding` on it"):
        ep.tl.project(new, cells)
    if change == "new values":
        ep.tl.embedding(cells, n_landmarks=n_landmarks)
        with pytest.raises(ValueError, match=r"changed since `ep\.tl\.pseudotime`"):
            ep.tl.project(new, cells)
        ep.tl.pseudotime(cells, root="cell_0", n_landmarks=n_landmarks)
        new.obsm["X_pca"] = new.obsm["X_pca"] * 1.01
        ep.tl.project(new, cells)
        np.testing.assert_allclose(
            new.obs["entropath_potential"], cells.obs["entropath_potential"][::4], atol=1e-5 if n_landmarks > 100 else 9
        )


def test_an_order_whose_graph_was_replaced_is_refused(cells):
    new = cells[::4].copy()
    ep.tl.embedding(cells)
    ep.tl.pseudotime(cells, root="cell_0")
    ep.tl.merw_graph(cells, decay=1.0)
    with pytest.raises(ValueError, match=r"changed since `ep.tl.pseudotime`"):
        ep.tl.project(new, cells)


def test_a_reference_of_two_embeddings_is_refused(cells):
    one, other = cells[::2].copy(), cells[1::2].copy()
    for part in (one, other):
        ep.tl.embedding(part)
    new = cells[:20].copy()
    with pytest.raises(ValueError, match="200 of its 400 cells have other positions"):
        ep.tl.project(new, ad.concat([one, other], uns_merge="first"))
    halves = ad.concat([one[:100], one[100:]], uns_merge="same")
    np.testing.assert_array_equal(
        ep.tl.project(new, halves, copy=True).obsm["X_entropath"],
        ep.tl.project(new, one, copy=True).obsm["X_entropath"],
    )


CHANGES = {
    "subset": lambda adata: adata[adata.obs["branch"] != "fate C"].copy(),
    "reversed": lambda adata: adata[::-1].copy(),
    "renamed": lambda adata: renamed(adata),
    "concatenated": lambda adata: ad.concat([adata[:150], adata[150:]], uns_merge="same"),
    "doubled": lambda adata: ad.concat([adata, adata[:40]], uns_merge="same", index_unique="-"),
    "no affinity": lambda adata: without(adata, "entropath_affinity"),
    "no lengths": lambda adata: without(adata, "entropath_lengths"),
}


def renamed(adata):
    adata.obs_names = [f"new_{name}" for name in adata.obs_names]
    return adata


def without(adata, name):
    del adata.obsp[name]
    return adata


@pytest.mark.filterwarnings("ignore:The neighbours or positions that the graph", "ignore:The graph is no longer")
@pytest.mark.parametrize(
    ("n_landmarks", "options"),
    [(2000, {}), (2000, {"bandwidth": "adaptive"}), (100, {"bandwidth": "adaptive"})],
    ids=["automatic", "explicit", "landmarks"],
)
@pytest.mark.parametrize("change", CHANGES)
def test_results_after_a_change_are_those_of_a_fresh_object(neighboured, change, n_landmarks, options):
    del neighboured.uns["neighbors"]
    if options:
        ep.tl.merw_graph(neighboured, **options)
    ep.tl.embedding(neighboured, n_landmarks=n_landmarks)
    ep.tl.pseudotime(neighboured, root="cell_0", n_landmarks=n_landmarks)
    changed = CHANGES[change](neighboured)
    fresh = without_results(changed)
    if options:
        ep.tl.merw_graph(fresh, **options)
    for adata in (changed, fresh):
        ep.tl.embedding(adata, n_landmarks=n_landmarks)
        ep.tl.pseudotime(adata, root=adata.obs_names[3], n_landmarks=n_landmarks)
    np.testing.assert_array_equal(changed.obsm["X_entropath"], fresh.obsm["X_entropath"])
    np.testing.assert_array_equal(order_of(changed), order_of(fresh))


def test_a_deleted_graph_is_made_again_with_its_options_and_a_warning(cells):
    ep.tl.merw_graph(cells, bandwidth="fixed")
    A = cells.obsp.pop("entropath_affinity")
    with pytest.warns(UserWarning, match=r"no longer in adata.obsp\['entropath_affinity'\]: it is made again"):
        ep.tl.pseudotime(cells, root="cell_0")
    assert (cells.obsp["entropath_affinity"] != A).nnz == 0
    del cells.obsp["entropath_affinity"], cells.obsm["X_pca"]
    with pytest.raises(ValueError, match=r"entropath_affinity'\] is gone .*ep\.tl\.merw_graph"):
        ep.tl.pseudotime(cells, root="cell_0")


def test_a_graph_with_other_values_is_made_again(cells):
    ep.tl.merw_graph(cells)
    A = cells.obsp["entropath_affinity"]
    cells.obsp["entropath_affinity"] = 2 * A
    with pytest.warns(UserWarning, match="it is made again"):
        ep.tl.pseudotime(cells, root="cell_0")
    assert (cells.obsp["entropath_affinity"] != A).nnz == 0


def test_pieces_of_a_graph_that_add_up_to_its_cells_are_not_the_graph(cells):
    ep.tl.merw_graph(cells)
    pieces = ad.concat([cells[::2], cells[1::2]], uns_merge="same", pairwise=True)
    del pieces.obsm["X_pca"]
    with pytest.raises(ValueError, match="made for other cells"):
        ep.tl.pseudotime(pieces, root="cell_0")
    backwards = cells[::-1].copy()
    del backwards.obsm["X_pca"]
    for adata in (backwards, cells):
        ep.tl.pseudotime(adata, root="cell_0")
    np.testing.assert_allclose(order_of(backwards)[::-1], order_of(cells), rtol=1e-9)


def test_neighbours_of_older_positions_are_told(neighboured):
    neighboured.obsm["X_pca"] = neighboured.obsm["X_pca"][::-1].copy()
    for step in (ep.tl.merw_graph, ep.tl.embedding, lambda adata: ep.tl.pseudotime(adata, root="cell_0")):
        with pytest.warns(UserWarning, match=r"adata.uns\['neighbors'\] were not searched in the present 'X_pca'"):
            step(neighboured)
    sc.pp.neighbors(neighboured, use_rep="X_pca")
    ep.tl.embedding(without_results(neighboured))  # a warning would be an error
