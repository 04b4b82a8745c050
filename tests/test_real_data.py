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


def assert_runs(adata, root):
    ep.tl.merw_graph(adata)
    ep.tl.embedding(adata)
    ep.tl.pseudotime(adata, root=root)
    assert np.isfinite(adata.obsm["X_entropath"]).all()
    assert np.isfinite(adata.obs["entropath_pseudotime"]).all()
    assert adata.obs.loc[root, "entropath_pseudotime"] == 0
    return ep.metrics.demap(adata.obsp["distances"], adata.obsm["X_entropath"])[0]


@pytest.mark.skipif(not (FOLDER / "paul15.h5ad").is_file(), reason="no paul15.h5ad in ENTROPATH_SC_DATA")
def test_paul15():
    adata = ep.datasets.load("paul15")
    assert assert_runs(adata, adata.uns["manifest"]["root"]) > 0.9


@pytest.mark.skipif(not (FOLDER / "palantir_marrow_cd34.h5ad").is_file(), reason="no marrow data in ENTROPATH_SC_DATA")
def test_marrow():
    adata = ad.read_h5ad(FOLDER / "palantir_marrow_cd34.h5ad")
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    sc.pp.highly_variable_genes(adata, n_top_genes=2000)
    sc.pp.pca(adata, n_comps=30)
    sc.pp.neighbors(adata)
    assert assert_runs(adata, adata.uns["palantir_start_cell"]) > 0.85
