from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

# Only distances are read; connectivities by UMAP would compile for half a minute in each notebook.
QUICK_NEIGHBORS = """
import functools
import scanpy as sc

sc.pp.neighbors = functools.partial(sc.pp.neighbors, method="gauss")
"""

# Published cells are not there in tests: generated ones take their place, with the names that the notebooks use.
STAND_IN = """
import entropath_sc as ep

LABELS = {
    "paul15": ("cell_type_coarse", ["Mk", "GMP", "Ery", "Neu", "DC"]),
    "marrow": ("via_novershtern_label", ["Hematopoietic stem", "Common myeloid", "Erythroid", "Mono", "Dendritic"]),
    "pancreas": ("SubCellType", ["Ductal", "Ngn3 high EP", "Beta", "Alpha", "Epsilon"]),
}
GENES = ["Gata1", "Klf1", "Mpo", "Irf8", "Neurog3", "Ins1", "Ins2", "Gcg", "Sst", "Ghrl", "Sox9", "Hes1"]


def load(name):
    adata = ep.datasets.branching(1200)
    label, groups = LABELS[name]
    branches = ["trunk", "progenitor", "fate A", "fate B", "fate C"]
    adata.obs[label] = adata.obs["branch"].cat.rename_categories(dict(zip(branches, groups)))
    genes = [gene.upper() if name == "marrow" else gene for gene in GENES]
    adata.var_names = [*genes, *adata.var_names[len(genes) :]]
    adata.uns["manifest"] = {"root": adata.uns["root"]}
    adata.layers["spliced"] = adata.layers["counts"].copy()
    adata.layers["unspliced"] = adata.layers["counts"][::-1].copy()
    return adata


ep.datasets.load = load
"""

# The longest runs with the slow checks.
SLOW = {"manifolds"}
NOTEBOOKS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
    for path in sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebook_runs_from_its_first_cell(path, tmp_path, monkeypatch):
    monkeypatch.setenv("ENTROPATH_SC_CELLS", "20000")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(QUICK_NEIGHBORS))
    if any("ep.datasets.load(" in cell.source for cell in notebook.cells):
        notebook.cells.insert(0, nbformat.v4.new_code_cell(STAND_IN))
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    assert any(output.output_type == "display_data" for cell in code for output in cell.outputs)
