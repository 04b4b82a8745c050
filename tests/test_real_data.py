"""Published data end to end, where ENTROPATH_SC_DATA names a folder that holds it: `pytest -m slow`."""

from __future__ import annotations

import os
from pathlib import Path

import anndata as ad
import numpy as np
import pytest
import scanpy as sc

import entropath_sc as ep

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
FOLDER = Path(os.environ.get("ENTROPATH_SC_DATA", "nowhere"))


def needs(file):
    return pytest.mark.skipif(not (FOLDER / file).is_file(), reason=f"no {file} in ENTROPATH_SC_DATA")


def assert_runs(adata, root):
    ep.tl.merw_graph(adata)
    ep.tl.embedding(adata)
    ep.tl.pseudotime(adata, root=root)
    assert np.isfinite(adata.obsm["X_entropath"]).all()
    assert np.isfinite(adata.obs["entropath_pseudotime"]).all()
    assert adata.obs.loc[root, "entropath_pseudotime"] == 0
    return ep.metrics.demap(adata.obsp["distances"], adata.obsm["X_entropath"])[0]


@needs("paul15.h5ad")
def test_paul15():
    adata = ep.datasets.load("paul15")
    assert assert_runs(adata, adata.uns["manifest"]["root"]) > 0.9


@needs("palantir_marrow_cd34.h5ad")
def test_marrow():
    adata = ad.read_h5ad(FOLDER / "palantir_marrow_cd34.h5ad")
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    sc.pp.highly_variable_genes(adata, n_top_genes=2000)
    sc.pp.pca(adata, n_comps=30)
    sc.pp.neighbors(adata)
    assert assert_runs(adata, adata.uns["palantir_start_cell"]) > 0.85


@needs("palantir_marrow_cd34.h5ad")
def test_marrow_has_its_three_ends_and_cells_go_there():
    """From the start cell, no other option; cells count where their label and three markers say the same."""
    adata = ep.datasets.load("marrow")
    ep.tl.pseudotime(adata, root=adata.uns["palantir_start_cell"])
    ep.tl.terminal_states(adata, groupby="via_novershtern_label")
    ep.tl.fates(adata)
    states = adata.uns["entropath"]["terminal_states"]
    assert len(states) == 3
    assert (states["pseudotime"] > 0.8).all()
    label = adata.obs["via_novershtern_label"].astype(str)
    markers = adata[:, ["KLF1", "MPO", "IRF8"]].to_df()
    strongest = ((markers - markers.mean()) / markers.std()).idxmax(axis=1)
    largest = adata.obsm["entropath_fates"].idxmax(axis=1)
    for name, marker, share in (("Erythroid", "KLF1", 0.95), ("Mono", "MPO", 0.85), ("Dendritic", "IRF8", 0.85)):
        agree = label.str.contains(name) & (strongest == marker)
        assert largest[agree].str.contains(name).mean() >= share


@needs("pancreas_e15.h5ad")
def test_pancreas_has_alpha_beta_and_delta_ends_with_their_hormones():
    adata = ep.datasets.load("pancreas")
    ep.tl.pseudotime(adata, root=("SubCellType", "Ductal"))
    ep.tl.terminal_states(adata, groupby="SubCellType")
    assert sorted(adata.uns["entropath"]["terminal_states"].index) == ["Alpha", "Beta", "Delta"]
    ep.tl.terminal_states(adata, groupby="SubCellType", terminal={"Epsilon": ("SubCellType", "Epsilon")})
    ep.tl.fates(adata)
    ep.tl.drivers(adata)
    drivers = adata.uns["entropath"]["drivers"]
    for state, hormone in {"Alpha": "Gcg", "Beta": "Ins2", "Delta": "Sst", "Epsilon": "Ghrl"}.items():
        assert hormone in drivers["gene"][drivers["state"] == state].to_list()[:10]
