"""The documentation agrees with the package."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scanpy as sc

import entropath_sc as ep

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MODULES = {"tl": ep.tl, "pl": ep.pl, "datasets": ep.datasets, "metrics": ep.metrics}
# What a build of the site leaves there is made from the rest.
MADE = {"_build", "generated", "notebooks", "jupyter_execute"}
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted(page for page in DOCS.rglob("*.md") if not MADE & set(page.relative_to(DOCS).parts)),
]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LONGEST_SENTENCE = 35  # words


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
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            place = page.parent / target
            if page.is_relative_to(DOCS):  # where a build copies the notebooks to
                place = Path(str(place.resolve()).replace(str(DOCS / "notebooks"), str(ROOT / "notebooks")))
            assert place.exists(), f"{page.name}: {target}"


def test_pages_and_notebooks_are_in_the_table_of_contents():
    index = (DOCS / "index.md").read_text()
    listed = set(re.findall(r"^[\w/]+$", index, re.MULTILINE))
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES if page.is_relative_to(DOCS)} - {"index"}
    assert listed == pages | {f"notebooks/{path.stem}" for path in NOTEBOOKS}


def sentences(text: str) -> list[str]:
    """The sentences of Markdown: cells of tables, items of lists and headings are sentences of their own."""
    text = re.sub(r"^ *```.*?^ *```$|<!--.*?-->|\$\$.*?\$\$", "\n\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]+`|\$[^$]+\$", "Code", text)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.) )|\n(?=#)|(?<=[^\\])\|", text)
    found = [part for block in blocks for part in re.split(r"(?<=[.!?])[)\"'*]*\s+(?=[\"'*(]*[A-Z0-9])", block)]
    return [" ".join(sentence.split()) for sentence in found if re.search(r"\w", sentence)]


def prose(docstring: str) -> str:
    """A docstring as Markdown, in which what is indented is a paragraph of its own; examples are code."""
    text = re.sub(r"^-{3,}$", "", inspect.cleandoc(docstring).split("\nExamples\n---")[0], flags=re.MULTILINE)
    lines = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text).splitlines()
    new = [line.startswith(" ") != before.startswith(" ") for line, before in zip(lines, ["", *lines], strict=False)]
    return "\n".join("\n" * starts + line.strip() for line, starts in zip(lines, new, strict=True))


def public() -> dict[str, str]:
    """The docstrings of all that is public."""
    functions = {f"{name}.{item}": getattr(module, item) for name, module in MODULES.items() for item in module.__all__}
    methods = {f"EntroPath.{name}": item for name, item in vars(ep.EntroPath).items() if not name.startswith("_")}
    docstrings = {
        name: inspect.getdoc(item) for name, item in {"EntroPath": ep.EntroPath, **functions, **methods}.items()
    }
    return {name: text for name, text in docstrings.items() if text}


@cache
def texts() -> dict[str, str]:
    """All that a user reads, as Markdown by its name."""
    pages = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        pages[path.name] = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return pages | {name: prose(text) for name, text in public().items()}


def test_sentences_are_counted_as_a_reader_would():
    text = "One two. `a b c` four? | five | six seven |\n- eight\n- nine, [ten](far/away.md)\n\n```\nno\n```\nEnd"
    assert sentences(text) == ["One two.", "Code four?", "five", "six seven", "- eight", "- nine, ten", "End"]
    docstring = (
        "Do it.\n\nParameters\n----------\nx\n    What x is\ny\n    What y is\n    and more\n\nExamples\n---\n>>> x"
    )
    assert sentences(prose(docstring)) == ["Do it.", "Parameters", "x", "What x is", "y", "What y is and more"]


@pytest.mark.parametrize("name", texts())
def test_sentences_are_short(name):
    long = {s: n for s in sentences(texts()[name]) if (n := len(re.findall(r"\S*\w\S*", s))) > LONGEST_SENTENCE}
    assert not long


def code_blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


# Packages that pages compare with or lead on to, which the tests do not install.
PEERS = ("cellrank", "harmonypy", "palantir", "phate", "scvelo", "scvi")


@pytest.fixture
def example(cells, tmp_path, monkeypatch):
    """What pages take for granted: the reader's own cells, in a folder of their own."""
    cells.obs["cell_type"] = cells.obs["branch"].cat.rename_categories({"trunk": "stem cell"})
    cells.obs_names = ["AAACCTGAGCATGGCA" if name == cells.uns["root"] else name for name in cells.obs_names]
    cells.uns["root"] = "AAACCTGAGCATGGCA"
    genes = ["Gata1", "Mpo", "Klf1", "Irf8", "Neurog3", "Ins2", "Gcg", "Sst", "Sox9", "Hes1"]
    cells.var_names = [*genes, *cells.var_names[len(genes) :]]
    cells.obs["batch"] = pd.Categorical(np.where(np.arange(cells.n_obs) % 2, "first", "second"))
    cells.obs["sample"] = pd.Categorical([f"donor {i % 3}" for i in range(cells.n_obs)])
    cells.obsm["velocity"] = cells.obsm["X_pca"] - cells.obsm["X_pca"][cells.obs["time"].argmin()]
    cells.obsm["X_scVI"] = cells.obsm["X_pca_harmony"] = cells.obsm["X_pca"][:, :10].copy()
    monkeypatch.chdir(tmp_path)
    return {"adata": cells, "ep": ep, "sc": sc}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", [page for page in PAGES if code_blocks(page)], ids=lambda page: page.stem)
def test_code_of_pages_runs(page, example, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *args, **kwargs: plt.close("all"))
    monkeypatch.setattr(ep.datasets, "branching", partial(ep.datasets.branching, n_cells=400))
    for block in code_blocks(page):
        imported = re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE)
        if all(find_spec(name) for name in imported if name in PEERS):
            exec(compile(block, str(page), "exec"), example)
    plt.close("all")


# Words of earlier versions, and what is said now.
OLD_WORDS = {
    r"\bis told\b": "warns, says",
    r"\b(in|at most) so many\b": "a number",
    r"\bvotes?\b": "weights",
    r"\bwitness": "nearest cells",
    r"\blast word\b": "takes precedence",
    r"\bsomebody|\beverybody|\bnobody": "another tool, all cells",
    r"\bthe (more|less|greyer)\b[^.]*, the\b": "two main clauses",
}


@pytest.mark.parametrize("name", texts())
def test_words_are_those_of_the_field(name):
    found = {match[0] for pattern in OLD_WORDS for match in re.finditer(pattern, texts()[name])}
    assert not found


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx_book_theme")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(DOCS), str(tmp_path)]
    subprocess.run(command, check=True)
