"""The documentation agrees with the package."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import forked

import entropath_sc as ep

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MODULES = {"tl": ep.tl, "pl": ep.pl, "datasets": ep.datasets, "metrics": ep.metrics}


def test_the_api_page_lists_what_is_public_and_nothing_else():
    listed = set(re.findall(r"^   ((?:\w+\.)?\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE))
    public = {f"{name}.{function}" for name, module in MODULES.items() for function in module.__all__}
    assert listed == public | (set(ep.__all__) - set(MODULES))


@pytest.mark.parametrize("name", ep.tl.__all__)
def test_tools_say_which_fields_they_set(cells, name):
    """Every field that a tool writes is in its docstring."""
    before = _fields(cells)
    if name == "project":
        ep.tl.embedding(cells)
        ep.tl.pseudotime(cells, root=cells.uns["root"])
        new = cells[::3].copy()
        for field in [*new.obs, *new.obsm]:
            if field.startswith(("entropath", "X_entropath")):
                del (new.obs if field in new.obs else new.obsm)[field]
        del new.uns["entropath"]
        before = _fields(new)
        ep.tl.project(new, cells)
        after = _fields(new)
    elif name in ("trends", "drivers"):
        tree = forked(100, 1)
        before = _fields(tree)
        ep.tl.trends(tree) if name == "trends" else ep.tl.drivers(tree)
        if name == "drivers":
            ep.tl.drivers(tree, versus=("A", "B"))
        after = {re.sub(r"(?<=trends_)[ABC]", "<state>", field) for field in _fields(tree)}
    else:
        if name == "merw_graph":
            ep.tl.merw_graph(cells, transitions=True)
        elif name == "embedding":
            ep.tl.merw_graph(cells)
            before = _fields(cells)
            ep.tl.embedding(cells)
        else:
            ep.tl.merw_graph(cells)
            before = _fields(cells)
            ep.tl.pseudotime(cells, root=cells.uns["root"])
        after = _fields(cells)
    text = inspect.getdoc(getattr(ep.tl, name))
    written = after - before
    assert written
    for field in written:
        assert field in text, field


def _fields(adata) -> set[str]:
    plain = {f"{name}['{key}']" for name in ("obs", "obsm", "obsp", "varm") for key in getattr(adata, name)}
    parts = {f"uns['entropath']['{part}']" for part in adata.uns.get("entropath", {}) if part != "params"}
    return plain | parts


def test_figures_and_links_are_there():
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            place = page.parent / target
            if target.startswith("notebooks/"):
                place = ROOT / target
            assert place.exists(), f"{page.name}: {target}"


def test_notebooks_are_in_the_table_of_contents():
    index = (DOCS / "index.md").read_text()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"notebooks/{path.stem}" in index


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx_book_theme")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(DOCS), str(tmp_path)]
    subprocess.run(command, check=True)
