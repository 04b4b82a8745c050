"""The documentation agrees with the package."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import entropath_sc as ep

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MODULES = {"tl": ep.tl, "pl": ep.pl, "datasets": ep.datasets, "metrics": ep.metrics}


def test_the_api_page_lists_what_is_public_and_nothing_else():
    listed = set(re.findall(r"^   ((?:\w+\.)?\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE))
    public = {f"{name}.{function}" for name, module in MODULES.items() for function in module.__all__}
    assert listed == public | (set(ep.__all__) - set(MODULES))


# Each tool with the options that make it write all it can, in an order in which each has what it needs.
CALLS = {
    "merw_graph": lambda cells: ep.tl.merw_graph(cells, transitions=True),
    "embedding": ep.tl.embedding,
    "pseudotime": lambda cells: ep.tl.pseudotime(cells, root=cells.uns["root"]),
    "terminal_states": lambda cells: ep.tl.terminal_states(cells, groupby="branch", n_resamples=1),
    "fates": lambda cells: ep.tl.fates(cells, forward=True),
    "trends": ep.tl.trends,
    "drivers": lambda cells: (ep.tl.drivers(cells), ep.tl.drivers(cells, versus=("fate A", "fate B"))),
    "stability": lambda cells: ep.tl.stability(cells, n_repeats=2),
}
# These return a table, and write nothing.
TABLES = {"diagnose", "suggest_root"}


@pytest.mark.parametrize("name", sorted(set(ep.tl.__all__) - TABLES))
def test_tools_say_which_fields_they_set(cells, name):
    """Every field that a tool writes is in its docstring."""
    target = cells
    if name == "project":
        target = cells[::3].copy()
        for call in CALLS.values():
            call(cells)
    for earlier in list(CALLS)[: list(CALLS).index(name) if name in CALLS else 0]:
        CALLS[earlier](cells)
    before = _fields(target)
    ep.tl.project(target, cells) if name == "project" else CALLS[name](cells)
    text = inspect.getdoc(getattr(ep.tl, name))
    written = _fields(target) - before
    assert written
    for field in written:
        assert field in text, field


def _fields(adata) -> set[str]:
    plain = {f"{name}['{key}']" for name in ("obs", "obsm", "obsp", "varm") for key in getattr(adata, name)}
    plain = {re.sub(r"(?<=_trends_)fate [ABC]", "<state>", field) for field in plain}
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
