from __future__ import annotations

import functools
import hashlib
import importlib.util
import itertools
import json
import re
import threading
import tomllib
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anndata as ad
import jsonschema
import numpy as np
import pooch
import pytest
import scanpy as sc

import entropath_sc as ep
from entropath_sc.datasets import _load, _manifolds


def test_branching_cells_are_continuous_and_seeded():
    a, b = ep.datasets.branching(n_cells=500), ep.datasets.branching(n_cells=500)
    np.testing.assert_array_equal(a.X, b.X)
    assert a.obs.loc[a.uns["root"], "time"] == a.obs["time"].min()
    assert set(a.obs["branch"]) == {"trunk", "progenitor", "fate A", "fate B", "fate C"}
    sizes = ep.datasets.branching(n_cells=2000, densities=(1, 1, 1, 1, 0.1)).obs["branch"].value_counts()
    assert sizes["fate C"] < 0.3 * sizes["fate B"]
    assert (a.layers["counts"] == np.round(a.layers["counts"])).all()


def test_swiss_roll_unrolls_isometrically():
    roll = ep.datasets.swiss_roll(5000, noise=0.0)
    # Neighbours on the roll are as far apart as in the unrolled strip.
    order = np.argsort(roll.obsm["intrinsic"][:, 0])[2000:2010]
    for i, j in itertools.pairwise(order):
        inside = np.linalg.norm(roll.obsm["intrinsic"][i] - roll.obsm["intrinsic"][j])
        assert np.linalg.norm(roll.X[i] - roll.X[j]) == pytest.approx(inside, rel=1e-3)
    assert np.median(ep.datasets.swiss_roll(5000, density="beta").obs["angle"]) < np.median(roll.obs["angle"])
    with pytest.raises(ValueError, match="'uniform' or 'beta'"):
        ep.datasets.swiss_roll(10, density="normal")


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A small data set with a manifest of its own, in a local folder."""
    folder, manifests = tmp_path / "data", tmp_path / "manifests"
    folder.mkdir()
    manifests.mkdir()
    adata = ep.datasets.branching(n_cells=120, n_genes=80)
    adata.X = adata.layers["counts"]
    path = folder / "tiny.h5ad"
    adata.write_h5ad(path)
    (manifests / "tiny.toml").write_text(
        f"""
title = "Tiny"
citation = "Nobody (2026)"
licence = "BSD-3-Clause"
label_key = "branch"
root = "{adata.uns["root"]}"

[[files]]
name = "tiny.h5ad"
sha256 = "{hashlib.sha256(path.read_bytes()).hexdigest()}"
url = "https://127.0.0.1:9/tiny.h5ad"

[preprocessing]
target_sum = 10000.0
n_top_genes = 50
n_pcs = 10
n_neighbors = 10
"""
    )
    monkeypatch.setattr(_load, "manifest_folder", lambda: manifests)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ENTROPATH_SC_DATA", str(folder))
    return path


def test_load_reads_checks_and_preprocesses(published):
    adata = ep.datasets.load("tiny")
    assert adata.obsm["X_pca"].shape == (120, 10)
    ep.tl.pseudotime(adata, root=adata.uns["manifest"]["root"])
    assert adata.obs.loc[adata.uns["manifest"]["root"], "entropath_pseudotime"] == 0


def test_a_wrong_checksum_is_refused(published):
    published.write_bytes(published.read_bytes() + b"x")
    with pytest.raises(ValueError, match="not the expected file"):
        ep.datasets.load("tiny")


def test_no_network_is_a_clear_error(published, monkeypatch, tmp_path):
    monkeypatch.delenv("ENTROPATH_SC_DATA")
    with pytest.raises(ConnectionError, match=r"put tiny\.h5ad in a folder and set ENTROPATH_SC_DATA"):
        ep.datasets.load("tiny")
    assert not (tmp_path / "cache" / "entropath_sc" / "tiny.h5ad").exists()


def test_a_file_that_cannot_be_downloaded_says_where_to_put_it(published, monkeypatch):
    monkeypatch.delenv("ENTROPATH_SC_DATA")
    manifest = _load.manifest_folder() / "tiny.toml"
    manifest.write_text(re.sub("url = .*", "", manifest.read_text()))
    with pytest.raises(FileNotFoundError, match=r"put tiny\.h5ad in a folder and set ENTROPATH_SC_DATA"):
        ep.datasets.load("tiny")


def test_other_formats_are_read_by_scanpys_loader_whose_folder_stays(published, monkeypatch):
    path, before = published.with_suffix(".counts"), sc.settings.datasetdir
    published.rename(path)

    def tiny():
        return ad.read_h5ad(sc.settings.datasetdir / "tiny" / "tiny.counts")

    monkeypatch.setattr(sc.datasets, "tiny", tiny, raising=False)
    assert _load._read(path, {"scanpy_loader": "tiny"}).n_obs == 120
    path.write_bytes(b"broken")
    with pytest.raises(OSError, match="signature"):
        _load._read(path, {"scanpy_loader": "tiny"})
    assert sc.settings.datasetdir.resolve() == before.resolve()


def test_paths_around_a_hole_bend_at_its_corners():
    left, right = _manifolds._arc_length(1.5 * np.pi * (1 + 2 * np.array([1, 2]) / 3))
    bottom, top = _manifolds.ROLL_HEIGHT / 3, 2 * _manifolds.ROLL_HEIGHT / 3
    half = (top - bottom) / 2
    middle = bottom + half
    points = np.array([[left - 1, middle], [right + 1, middle], [left - 1, top + 1], [right + 1, top + 1]])
    found = _manifolds._around_hole(points)
    assert found[0, 1] == pytest.approx(2 * np.hypot(1, half) + right - left)
    assert found[2, 3] == pytest.approx(right - left + 2)  # nothing is between them
    assert found[0, 2] == pytest.approx(half + 1)
    np.testing.assert_array_equal(found, found.T)


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(ValueError, match="'paul15'"):
        ep.datasets.load("paul16")


def test_only_https_is_downloaded(published, monkeypatch):
    monkeypatch.delenv("ENTROPATH_SC_DATA")
    manifest = _load.manifest_folder() / "tiny.toml"
    for scheme in ("http", "ftp", "file"):
        manifest.write_text(re.sub('url = "[a-z]+:', f'url = "{scheme}:', manifest.read_text()))
        with pytest.raises(ValueError, match="only https is downloaded"):
            ep.datasets.load("tiny")


def test_downloads_are_checked_and_cached(published, monkeypatch, tmp_path):
    monkeypatch.delenv("ENTROPATH_SC_DATA")
    handler = functools.partial(QuietHandler, directory=published.parent)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        manifest = _load.manifest_folder() / "tiny.toml"
        address = f"https://127.0.0.1:{server.server_port}/"
        manifest.write_text(manifest.read_text().replace("https://127.0.0.1:9/", address))
        # The server here has no certificate.
        retrieve = pooch.retrieve
        monkeypatch.setattr(pooch, "retrieve", lambda url, **rest: retrieve(url.replace("https", "http"), **rest))
        ep.datasets.load("tiny")
        kept = tmp_path / "cache" / "entropath_sc" / "tiny.h5ad"
        assert kept.read_bytes() == published.read_bytes()
        kept.unlink()
        published.write_bytes(published.read_bytes() + b"x")
        with pytest.raises(ValueError, match="does not match the known hash"):
            ep.datasets.load("tiny")
        assert not kept.exists()
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


MANIFESTS = sorted(_load.manifest_folder().glob("*.toml"))


def test_all_data_sets_have_a_manifest():
    names = {path.stem for path in MANIFESTS}
    assert names == {"embryoid", "lymphoid", "marrow", "nestorowa", "pancreas", "paul15", "pbmc", "root_atlas"}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_follow_the_schema(path):
    schema = json.loads((path.parent / "schema.json").read_text())
    jsonschema.validate(tomllib.loads(path.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**tomllib.loads(path.read_text()), "mood": "good"}, schema)


@pytest.mark.parametrize("name", ["nestorowa", "paul16"])
def test_only_what_can_be_loaded_is_offered(name):
    offered = f"No data set '{name}' can be loaded. There is 'marrow', 'pancreas', 'paul15'."
    with pytest.raises(ValueError, match=re.escape(offered)):
        ep.datasets.load(name)


def test_the_page_of_data_sets_is_made_of_the_manifests():
    docs = Path(__file__).parents[1] / "docs"
    spec = importlib.util.spec_from_file_location("docs_datasets", docs / "datasets.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    page = (docs / "datasets.md").read_text(encoding="utf-8")
    assert page == made.page()
    for path in MANIFESTS:
        manifest = tomllib.loads(path.read_text(encoding="utf-8"))
        assert manifest["citation"] in page
        assert (f"| `{path.stem}` |" in page) == bool(manifest["files"])
        assert (f"| {manifest['source']} |" in page) == (not manifest["files"])


def test_the_hole_is_empty_and_the_rest_is_not():
    roll = ep.datasets.swiss_roll(9000, hole=True, noise=0.0)
    along = (roll.obs["angle"] / (1.5 * np.pi) - 1) / 2
    up = roll.obsm["intrinsic"][:, 1] / 63
    tiles = np.histogram2d(along, up, bins=3, range=[[0, 1], [0, 1]])[0]
    assert tiles[1, 1] == 0
    assert np.delete(tiles.ravel(), 4).min() > 900
    with pytest.raises(ValueError, match="density='uniform' only"):
        ep.datasets.swiss_roll(10, hole=True, density="beta")


def test_geodesics_of_known_points():
    ball = ep.datasets.sphere(500, noise=0.1)
    found = ep.datasets.geodesic(ball)
    clean = ball.obsm["clean"]
    np.testing.assert_allclose(2 * np.sin(found / 2), np.linalg.norm(clean[:, None] - clean[None], axis=2), atol=1e-7)
    roll = ep.datasets.swiss_roll(1500, noise=0.0)
    exact, paths = ep.datasets.geodesic(roll), ep.datasets.geodesic(roll, protocol="shortest_path")
    near = (exact > 0) & (exact < 10)
    assert np.median(paths[near] / exact[near]) == pytest.approx(1.0, abs=0.1)
    with pytest.raises(ValueError, match="generated manifolds only"):
        ep.datasets.geodesic(ep.datasets.branching(50))
    with pytest.raises(ValueError, match="protocol='exact'"):
        ep.datasets.geodesic(roll, protocol="exact")


def test_torus_lies_on_its_surface():
    x, y, z = ep.datasets.torus(1000, noise=0.0).X.T
    np.testing.assert_allclose((np.hypot(x, y) - 3) ** 2 + z**2, 1.0)


def test_branches_of_the_tree_leave_the_trunk():
    found = ep.datasets.tree(n_branches=4, branch_length=60, n_dims=5, noise=0.0)
    walks = found.obsm["clean"].reshape(4, 60, 5)
    assert np.abs(np.diff(walks, axis=1)).max() < 1
    for walk in walks[1:]:
        # A branch begins one step from some place on the trunk.
        assert np.abs(walk[0] - walks[0]).max(axis=1).min() < 1
    assert found.obs["branch"].nunique() == 4
    noisy = ep.datasets.tree(n_branches=4, branch_length=60, n_dims=5, noise=2.0)
    assert (noisy.X - noisy.obsm["clean"]).std() == pytest.approx(2.0, rel=0.1)
