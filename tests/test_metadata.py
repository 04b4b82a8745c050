"""What lists, indexes and services read about the project: complete, and the same everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
yaml = pytest.importorskip("yaml")

HOME = "https://github.com/entropath-sc/entropath_sc"
DOCUMENTATION = "https://entropath-sc.readthedocs.io/"
# What an entry of scverse's list must have, what it may have, and of which kind.
REQUIRED = {
    **dict.fromkeys(["name", "description", "project_home", "documentation_home", "license", "language"], str),
    **dict.fromkeys(["primary_category", "category"], str),
    **dict.fromkeys(["tags", "contact"], list),
    "install": dict,
}
OPTIONAL = {"tutorials_home": str, "publications": list, "logo": str, "test_command": str}


def read(name: str):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_entry_for_scverse_is_complete(project):
    entry = read("meta.yaml")
    assert set(entry) >= set(REQUIRED)
    assert set(entry) <= set(REQUIRED) | set(OPTIONAL)  # no version: the list reads it from releases
    for name, value in entry.items():
        assert isinstance(value, (REQUIRED | OPTIONAL)[name]), name
        assert value, name
    for name in ("project_home", "documentation_home", "tutorials_home"):
        assert re.fullmatch(r"https://[\w.-]+/\S*", entry[name])
    for name in ("tags", "contact"):
        assert all(isinstance(item, str) for item in entry[name])
        assert len(set(entry[name])) == len(entry[name])
    assert set(entry["install"]) <= {"pypi", "conda"}
    assert entry["install"]["pypi"] == entry["name"] == project["name"]
    assert "::" in entry["install"].get("conda", "conda-forge::x")
    assert entry["category"] == "ecosystem"
    assert entry["language"] == "Python"
    assert entry["license"] == project["license"]
    assert len(re.findall(r"[.!?](?:\s|$)", entry["description"])) <= 2  # one or two sentences
    notebook = entry["tutorials_home"].rsplit("/", 1)[1].removesuffix(".html")
    assert (ROOT / "notebooks" / f"{notebook}.ipynb").exists()


def test_addresses_are_the_same_everywhere(project):
    entry, citation, recipe = read("meta.yaml"), read("CITATION.cff"), read("recipe/recipe.yaml")
    homes = [entry["project_home"], citation["repository-code"], recipe["about"]["homepage"], recipe["source"]["git"]]
    assert {*homes, project["urls"]["Homepage"], project["urls"]["Source"]} == {HOME}
    pages = [entry["documentation_home"], citation["url"], recipe["about"]["documentation"]]
    assert {*pages, project["urls"]["Documentation"]} == {DOCUMENTATION}
    assert all(url.startswith((HOME, DOCUMENTATION)) for url in project["urls"].values())


def test_the_last_release_is_the_same_everywhere():
    released = re.search(
        r"^## (\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    citation = read("CITATION.cff")
    version, date = released.groups()
    assert (citation["version"], str(citation["date-released"])) == (version, date)
    assert read("recipe/recipe.yaml")["context"]["version"] == version
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["version"]
    assert tool == {"source": "vcs", "fallback-version": version}


def test_python_versions_are_those_that_are_tested(project):
    listed = [re.search(r":: (3\.\d+)$", line) for line in project["classifiers"]]
    listed = sorted(found[1] for found in listed if found)
    tested = read(".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert listed == sorted(tested) == ["3.11", "3.12", "3.13"]
    assert project["requires-python"] == f">={listed[0]}"
    assert read(".readthedocs.yaml")["build"]["tools"]["python"] in listed


def test_the_conda_recipe_has_the_dependencies_of_the_package(project):
    def names(lines):
        return {re.split(r"[ <>=;\[]", line)[0] for line in lines}

    required = names(project["dependencies"])
    in_recipe = names(read("recipe/recipe.yaml")["requirements"]["run"])
    assert {name.removesuffix("-base") for name in in_recipe} == required | {"python"}
    assert read("recipe/recipe.yaml")["build"]["python"]["entry_points"] == [
        f"{name} = {target}" for name, target in project["scripts"].items()
    ]


def test_workflows_test_prereleases_properties_and_coverage():
    jobs = read(".github/workflows/test.yml")["jobs"]
    assert jobs["prereleases"]["continue-on-error"] is True
    assert any("--pre" in step.get("run", "") for step in jobs["prereleases"]["steps"])
    assert any("codecov" in step.get("uses", "") for step in jobs["test"]["steps"])
    nightly = read(".github/workflows/nightly.yml")["jobs"]["properties"]["steps"][-1]
    assert int(nightly["env"]["ENTROPATH_SC_CASES"]) >= 10_000
    assert nightly["run"].endswith("tests/test_properties.py")


def test_the_command_says_the_version_of_the_package():
    import entropath_sc as ep

    done = subprocess.run([sys.executable, "-m", "entropath_sc", "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == ep.__version__
    assert re.match(r"\d+\.\d+", ep.__version__)
