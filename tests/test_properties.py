"""Properties that hold for every graph, every object and every sequence of calls.

An ordinary run tries about 300 cases. `ENTROPATH_SC_CASES=10000 pytest tests/test_properties.py` tries more, and others
each time.
"""

from __future__ import annotations

import os
import tempfile
import traceback
from pathlib import Path

import anndata as ad
import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import without_results
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from scipy.stats import ortho_group
from sklearn.neighbors import kneighbors_graph

import entropath_sc as ep

CASES = int(os.environ.get("ENTROPATH_SC_CASES", 300))
PACKAGE = str(Path(ep.__file__).parent)
SEEDS = st.integers(0, 2**32 - 1)

pytestmark = pytest.mark.filterwarnings("ignore")


def cases(share: float, **others) -> settings:
    """This share of all cases; the same ones each time in an ordinary run."""
    n = max(1, round(share * CASES))
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(
        max_examples=n, derandomize=CASES <= 300, deadline=None, database=None, suppress_health_check=checks, **others
    )


def content(adata) -> str:
    """By which all fields of an object are recognised."""

    def plain(value):
        if sp.issparse(value):
            return [value.shape, value.tocsr().data, value.tocsr().indices, value.tocsr().indptr]
        return {key: plain(part) for key, part in value.items()} if isinstance(value, dict) else value

    parts = {place: plain(dict(getattr(adata, place))) for place in ("obsm", "obsp", "uns")}
    return joblib.hash([adata.is_view, adata.obs, adata.var, plain(adata.X), parts])


def answered(tool, adata, *fields: str, **options) -> bool:
    """Whether a tool gave finite results, and did not refuse; a refusal names its reason and changes nothing."""
    before, refusal = content(adata), None
    try:
        tool(adata, **options)
    except (ValueError, KeyError, TypeError) as error:
        refusal = error
    if refusal is not None:
        assert str(refusal).strip()
        # The reason is this package's own, and not that of a library somewhere below.
        if not traceback.extract_tb(refusal.__traceback__)[-1].filename.startswith(PACKAGE):
            raise refusal
        assert content(adata) == before
        return False
    for name in fields:
        found = np.asarray((adata.obsm if name in adata.obsm else adata.obs)[name])
        assert np.isfinite(found).all(), name
    return True


def embedding(adata, **options) -> bool:
    return answered(ep.tl.embedding, adata, "X_entropath", **options)


def pseudotime(adata, **options) -> bool:
    return answered(ep.tl.pseudotime, adata, "entropath_pseudotime", "entropath_potential", **options)


# Graphs.


def cells_with(distances: np.ndarray) -> ad.AnnData:
    """Cells with these distances to neighbours, as scanpy stores them; NaN where two are no neighbours."""
    n = len(distances)
    adata = ad.AnnData(obs=pd.DataFrame(index=[f"c{i}" for i in range(n)]))
    i, j = np.nonzero(~np.isnan(distances))
    adata.obsp["distances"] = sp.csr_matrix((distances[i, j], (i, j)), shape=(n, n))
    adata.uns["neighbors"] = {"distances_key": "distances", "params": {"n_neighbors": min(n, 4)}}
    return adata


@st.composite
def graphs(
    draw, kinds=("random", "pieces", "star", "bipartite", "path", "complete"), least: int = 1, range_: int = 300
):
    n = draw(st.integers(least, 14))
    kind = draw(st.sampled_from(kinds))
    rng = np.random.default_rng(draw(SEEDS))
    spread = draw(st.sampled_from([0, 1, range_ // 10, range_]))
    lengths = 10.0 ** rng.uniform(-spread, spread, (n, n))
    if draw(st.booleans()):  # duplicates
        lengths[rng.random((n, n)) < 0.3] = 0.0
    i, j = np.indices((n, n))
    joined = {
        "random": (rng.random((n, n)) < 0.3) | (j == i + 1),
        "pieces": (i < n // 2) == (j < n // 2),
        "star": i == 0,
        "bipartite": (i + j) % 2 == 1,
        "path": j == i + 1,
        "complete": i != j,
    }[kind]
    upper = np.where(joined & (i < j), lengths, np.nan)
    return upper if draw(st.booleans()) else np.fmax(upper, upper.T)


@cases(0.25)
@given(graphs(), st.sampled_from(["default", "paper", "heat"]), st.integers(0, 13))
def test_every_graph_has_a_finite_result_or_a_named_error(distances, preset, root):
    adata = cells_with(distances)
    embedding(adata.copy(), preset=preset, n_components=1)
    pseudotime(adata, preset=preset, root=f"c{root % len(distances)}")


@cases(0.08)
@given(graphs(("random", "complete"), least=3, range_=3), SEEDS, st.integers(-100, 100))
def test_an_order_on_a_graph_depends_on_neither_places_nor_units(distances, seed, exponent):
    some = np.random.default_rng(seed).permutation(len(distances))
    plain, other = cells_with(distances), cells_with(distances[np.ix_(some, some)] * 10.0**exponent)
    if not pseudotime(plain, root=f"c{some[0]}"):
        return
    assert pseudotime(other, root="c0")
    expected = plain.obs["entropath_potential"].to_numpy()[some]
    np.testing.assert_allclose(other.obs["entropath_potential"], expected, rtol=1e-6, atol=1e-9)


@cases(0.08)
@given(st.integers(2, 60), SEEDS, st.sampled_from([0.0, 0.3, 1.0]))
def test_the_order_on_a_path_is_monotone(n, seed, spread):
    lengths = 10.0 ** np.random.default_rng(seed).uniform(-spread, spread, n - 1)
    distances = np.full((n, n), np.nan)
    distances[np.arange(n - 1), np.arange(1, n)] = lengths
    adata = cells_with(distances)
    assert pseudotime(adata, root="c0")
    assert (np.diff(adata.obs["entropath_potential"]) > 0).all()


# Positions.


@cases(0.1)
@given(SEEDS, st.integers(2, 6), st.integers(-200, 100), st.floats(-6, 7), st.sampled_from([None, 24]))
def test_an_order_depends_on_neither_axes_nor_place_nor_unit(seed, n_columns, exponent, shift, n_landmarks):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, n_columns)) + 3 * np.linspace(0, 1, 40)[:, None]
    Q = ortho_group.rvs(n_columns, random_state=seed % 2**31)
    orders = []
    for positions in (X, X @ Q, X + 10.0**shift, X * 10.0**exponent):
        adata = ad.AnnData(obs=pd.DataFrame(index=[f"c{i}" for i in range(40)]), obsm={"X_pca": positions})
        assert pseudotime(adata, root="c0", n_landmarks=n_landmarks)
        orders.append(adata.obs["entropath_potential"].to_numpy())
    for found in orders[1:]:
        np.testing.assert_allclose(found, orders[0], rtol=1e-4 if n_landmarks else 1e-6)


# Objects.

KINDS = ["float64", "float32", "float16", "int8", "uint8", "int64", "bool", "complex128", "object", "str"]


@st.composite
def objects(draw):
    n, n_columns = draw(st.integers(1, 30)), draw(st.integers(0, 5))
    rng = np.random.default_rng(draw(SEEDS))
    kind = draw(st.sampled_from(KINDS))
    X = rng.normal(size=(n, n_columns)) * draw(st.sampled_from([1.0, 100.0]))
    X = X.astype(object) if kind == "object" else np.abs(X).astype(kind) if kind == "uint8" else X.astype(kind)
    flaw = draw(st.sampled_from([None, None, None, "nan", "inf", "duplicates", "one place"]))
    if flaw == "duplicates":
        X = X[rng.integers(0, max(n // 3, 1), n)]
    elif flaw == "one place":
        X = np.repeat(X[:1], n, axis=0)
    elif flaw and kind.startswith("float") and X.size:
        X.flat[rng.integers(X.size)] = np.nan if flaw == "nan" else np.inf
    names = draw(st.sampled_from([lambda i: f"c{i}", lambda i: i, lambda i: f"c{i // 2}", lambda i: ""]))
    adata = ad.AnnData(obs=pd.DataFrame(index=[str(names(i)) for i in range(n)]))
    label = pd.Categorical(rng.choice(["a", "b"], n), categories=["a", "b", "unused"])
    adata.obs["label"] = label.set_categories(["a", "unused"]) if draw(st.booleans()) else label
    form = draw(st.sampled_from(["dense", "fortran", "sparse", "csc", "frame"]))
    if form in ("sparse", "csc") and kind not in ("float16", "object", "str"):
        X = sp.csr_matrix(X) if form == "sparse" else sp.csc_matrix(X)
    elif form == "fortran":
        X = np.asfortranarray(X)
    elif form == "frame":
        X = pd.DataFrame(X, index=adata.obs_names, columns=[f"x{i}" for i in range(n_columns)])
    adata.obsm["X_pca"] = X
    return adata[draw(st.sampled_from([slice(None), slice(None, None, 2)]))] if draw(st.booleans()) else adata


@cases(0.3)
@given(objects(), st.integers(2, 16), st.sampled_from([3, 2000]), st.sampled_from(["first", "category", "nobody"]))
def test_every_object_has_a_finite_result_or_a_named_error(adata, n_neighbors, n_landmarks, root):
    roots = {"first": str(adata.obs_names[0]), "category": ("label", "a"), "nobody": ("label", "unused")}
    if answered(ep.tl.merw_graph, adata, "entropath_scales", n_neighbors=n_neighbors):
        if embedding(adata, n_components=1, n_landmarks=n_landmarks):
            answered(ep.tl.project, adata, "X_entropath", adata_ref=adata.copy(), labels="label")
        pseudotime(adata, root=roots[root])


# Sequences of calls.


class Session(RuleBasedStateMachine):
    """Calls in any order, and changes of the cells: results are those of a fresh object with the same data."""

    @initialize(seed=SEEDS)
    def start(self, seed):
        self.rng = np.random.default_rng(seed)
        X = self.rng.normal(size=(60, 4)) + 4 * np.linspace(0, 1, 60)[:, None]
        obs = pd.DataFrame({"half": pd.Categorical(["a", "b"] * 30)}, index=[f"c{i}" for i in range(60)])
        self.adata = ad.AnnData(obs=obs, obsm={"X_pca": X})
        self.options = None  # those of the last call of merw_graph

    @rule()
    def new_positions(self):
        X = self.adata.obsm["X_pca"]
        self.adata.obsm["X_pca"] = X @ ortho_group.rvs(4, random_state=self.rng) * self.rng.uniform(0.5, 2, 4)

    @rule(n_neighbors=st.integers(6, 12))
    def new_neighbours(self, n_neighbors):
        distances = kneighbors_graph(self.adata.obsm["X_pca"], n_neighbors - 1, mode="distance")
        self.adata.obsp["distances"] = distances.tocsr()
        params = {"n_neighbors": n_neighbors, "use_rep": "X_pca"}
        self.adata.uns["neighbors"] = {"distances_key": "distances", "params": params}

    @precondition(lambda self: self.adata.n_obs > 40)
    @rule()
    def subset(self):
        self.adata = self.adata[self.rng.random(self.adata.n_obs) < 0.9].copy()

    @rule()
    def reorder(self):
        self.adata = self.adata[self.rng.permutation(self.adata.n_obs)].copy()

    @precondition(lambda self: self.adata.n_obs < 100)
    @rule(again=st.booleans())
    def concatenate(self, again):
        parts = [self.adata[:20], self.adata[20:], *([self.adata[:5]] if again else [])]
        self.adata = ad.concat(parts, uns_merge="same", index_unique="-")

    @rule()
    def rename(self):
        self.adata.obs_names = [f"r{i}" for i in self.rng.permutation(self.adata.n_obs)]

    @rule(suffix=st.sampled_from(["h5ad", "zarr"]))
    def write_and_read(self, suffix):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"x.{suffix}"
            if suffix == "h5ad":
                self.adata.write_h5ad(path)
                self.adata = ad.read_h5ad(path)
            else:
                self.adata.write_zarr(path)
                self.adata = ad.read_zarr(path)

    @rule(data=st.data())
    def delete(self, data):
        own = [
            (place, name)
            for place in ("obs", "obsm", "obsp")
            for name in getattr(self.adata, place)
            if "entropath" in name
        ]
        if own:
            place, name = data.draw(st.sampled_from(sorted(own)))
            del getattr(self.adata, place)[name]

    @rule(bandwidth=st.sampled_from(["fixed", "adaptive"]), searched=st.booleans())
    def merw_graph(self, bandwidth, searched):
        options = {"bandwidth": bandwidth}
        if searched or "neighbors" not in self.adata.uns:
            options |= {"use_rep": "X_pca", "n_neighbors": 8}
        if answered(ep.tl.merw_graph, self.adata, **options):
            self.options = options

    @rule(n_landmarks=st.sampled_from([30, 2000]), preset=st.sampled_from(["default", "paper"]))
    def embedding(self, n_landmarks, preset):
        self.compare(embedding, "obsm", "X_entropath", n_landmarks=n_landmarks, preset=preset)

    @rule(n_landmarks=st.sampled_from([None, 30]), category=st.booleans())
    def pseudotime(self, n_landmarks, category):
        root = ("half", "a") if category else str(self.adata.obs_names[7])
        self.compare(pseudotime, "obs", "entropath_potential", root=root, n_landmarks=n_landmarks)

    @rule()
    def project(self):
        new = without_results(self.adata[::3])
        answered(ep.tl.project, new, "X_entropath", adata_ref=self.adata)

    def compare(self, step, place, name, **options):
        fresh = without_results(self.adata)
        if self.options is not None and not answered(ep.tl.merw_graph, fresh, **self.options):
            return
        assert step(self.adata, **options) == step(fresh, **options)
        if name in getattr(fresh, place):
            np.testing.assert_array_equal(getattr(self.adata, place)[name], getattr(fresh, place)[name])


TestSession = Session.TestCase
TestSession.settings = cases(0.05, stateful_step_count=12)
