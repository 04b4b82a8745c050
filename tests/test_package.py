"""Rules of the public interface, and that its page of stored fields is true."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import entropath_sc as ep

ROOT = Path(__file__).parents[1]
PUBLIC = [
    (module, name, getattr(module, name))
    for module in (ep.tl, ep.pl, ep.datasets, ep.metrics)
    for name in module.__all__
]
IDS = [f"{module.__name__}.{name}" for module, name, _ in PUBLIC]


@pytest.mark.parametrize(("module", "name", "function"), PUBLIC, ids=IDS)
def test_public_functions_keep_the_rules(module, name, function):
    parameters = list(inspect.signature(function).parameters.values())
    assert not any(p.kind is p.VAR_KEYWORD or p.kind is p.VAR_POSITIONAL for p in parameters)
    assert sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters) <= 2
    assert all(p.annotation is not p.empty for p in parameters)
    assert inspect.signature(function).return_annotation is not inspect.Signature.empty
    if module is ep.tl and "DataFrame" not in str(inspect.signature(function).return_annotation):  # writes nothing
        assert parameters[-1].name == "copy"
        assert parameters[-1].default is False


@pytest.mark.parametrize(("module", "name", "function"), PUBLIC, ids=IDS)
def test_public_functions_are_documented(module, name, function):
    text = inspect.getdoc(function)
    assert "Returns\n-------\n" in text
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"^(?:\w+, )*{parameter}(?:, \w+)*$", text, re.MULTILINE), parameter
    if name != "load":  # which needs data from outside
        assert ">>> " in text


def test_the_core_knows_nothing_of_anndata():
    for path in (ROOT / "entropath_sc" / "core").glob("*.py"):
        assert not re.search(r"^\s*(from|import) (anndata|scanpy|dask)", path.read_text(), re.MULTILINE), path


def test_import_has_no_side_effects():
    code = (
        "import logging, warnings, numpy as np, scanpy, matplotlib;"
        "state = lambda: (str(matplotlib.rcParams), logging.root.handlers[:], warnings.filters[:],"
        " np.random.get_state()[1].tolist(), scanpy.settings.verbosity, matplotlib.get_backend());"
        "before = state(); import entropath_sc; assert state() == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_loads_little_beyond_scanpy():
    code = (
        "import sys, scanpy; before = set(sys.modules); import entropath_sc;"
        "new = {m.split('.')[0] for m in set(sys.modules) - before} - {'tomllib'};"  # newer scanpy loads it
        "print(*sorted(new), 'sklearn.neighbors' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert found == ["entropath_sc", "False"]


def test_the_page_of_fields_lists_what_is_stored(cells):
    cells.obs["group"] = cells.obs["branch"]
    cells.obs["day"] = (4 * cells.obs["time"]).astype(int)
    published = cells.copy()
    ep.tl.merw_graph(published, transitions=True, preset="paper")
    ep.tl.embedding(published, n_landmarks=100)
    ep.tl.project(published, published, labels="group")
    directed = ep.tl.merw_graph(cells, time_key="day", copy=True)
    ep.tl.pseudotime(cells, root=cells.uns["root"])
    ep.tl.terminal_states(cells, groupby="branch", n_resamples=1)
    ep.tl.fates(cells, forward=True)
    ep.tl.embedding(cells)
    ep.tl.stability(cells, n_repeats=2)
    ep.tl.trends(cells, fate="fate A")
    ep.tl.drivers(cells)
    ep.tl.drivers(cells, versus=("fate A", "fate B"))
    page = (ROOT / "docs" / "stored.md").read_text()
    listed = set(re.findall(r"`((?:obs|obsm|obsp|varm|uns)\['[^`]*?'\])`", page))
    stored = set()
    for adata in (published, directed, cells):
        fields = {f"{name}['{key}']" for name in ("obs", "obsm", "obsp", "varm") for key in getattr(adata, name)}
        fields = {field for field in fields if "entropath" in field}
        stored |= {field.replace("_group", "_<label>").replace("_fate A", "_<state>") for field in fields}
        stored |= {f"uns['entropath']['{part}']" for part in adata.uns["entropath"]}
    assert listed == stored
