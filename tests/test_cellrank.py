"""CellRank reads the forward walk; runs where CellRank is installed."""

from __future__ import annotations

import pytest

import entropath_sc as ep

cellrank = pytest.importorskip("cellrank")


@pytest.mark.filterwarnings("ignore")
def test_cellrank_finds_the_tips_on_the_forward_walk():
    adata = ep.datasets.branching(n_cells=600, random_state=3)
    ep.tl.merw_graph(adata)
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    ep.tl.terminal_states(adata, groupby="branch", n_resamples=0)
    ep.tl.fates(adata, forward=True)
    tips = set(adata.obs["entropath_terminal"].cat.categories)
    kernel = cellrank.kernels.PrecomputedKernel(adata.obsp["entropath_forward"], adata=adata)
    estimator = cellrank.estimators.GPCCA(kernel)
    estimator.compute_schur(n_components=10)
    estimator.compute_macrostates(n_states=len(tips), n_cells=10, cluster_key="branch")
    estimator.predict_terminal_states()
    found = estimator.terminal_states.dropna()
    assert set(found.cat.categories) == tips  # each is named by the branch of most of its cells
    assert adata.obs.loc[found.index, "time"].groupby(found.to_numpy(), observed=True).median().min() > 0.8
