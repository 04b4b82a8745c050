"""Sphinx configuration: `sphinx-build -W docs docs/_build` from the project's root, without a network."""

import re
import shutil
from importlib.metadata import version as installed
from pathlib import Path

HERE = Path(__file__).parent
# Notebooks live beside the package; the site shows them with the outputs that they are stored with.
shutil.copytree(HERE.parent / "notebooks", HERE / "notebooks", dirs_exist_ok=True)

project = "entropath_sc"
author = "The entropath_sc developers"
copyright = author
version = release = installed("entropath_sc")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
autosummary_generate = True
autodoc_typehints = "none"
napoleon_google_docstring = False
default_role = "code"
smartquotes = False
nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

html_theme = "sphinx_book_theme"
html_title = "entropath_sc"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
# The theme has a search button in its header; a second box in the sidebar is one too many.
html_sidebars = {"**": ["navbar-logo.html", "sbt-sidebar-nav.html"]}
maximum_signature_line_length = 80
exclude_patterns = ["_build", "jupyter_execute"]
suppress_warnings = ["mystnb.unknown_mime_type"]


def _plain_field_names(app, what, name, obj, options, lines):
    """Fields that a function sets are named as code in docstrings; napoleon makes them bold, quotes and all."""
    lines[:] = [re.sub(r"^`([^`]+)`(, `([^`]+)`)?( : |$)", lambda m: m[0].replace("`", ""), line) for line in lines]


def setup(app):
    """Before napoleon reads the docstrings."""
    app.connect("autodoc-process-docstring", _plain_field_names, priority=400)
