from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def empty_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_from_its_first_cell(path, tmp_path, empty_cache, monkeypatch):
    monkeypatch.setenv("ENTROPATH_SC_CELLS", "20000")
    # Without real data: no folder, an empty cache, and no way to the network.
    monkeypatch.delenv("ENTROPATH_SC_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(empty_cache))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    assert any(output.output_type == "display_data" for cell in code for output in cell.outputs)
