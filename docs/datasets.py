"""Writes docs/datasets.md from the manifests: `python docs/datasets.py`."""

import tomllib
from pathlib import Path

HERE = Path(__file__).parent
MANIFESTS = HERE.parent / "data_manifests"


INTRODUCTION = """# Data sets

`ep.datasets.load(name)` loads a published data set and preprocesses it. It looks for the file in the folder that the
environment variable `ENTROPATH_SC_DATA` names, then in its cache, then downloads it where it can. The file must have
the checksum in its manifest (`data_manifests/<name>.toml`).

| name | cells | what | where the file comes from | licence |
|---|---|---|---|---|
"""
OTHERS = """
The paper of the method uses more data sets. No file of these has been checked, so they cannot be loaded by name. Read
them from their source with anndata, and preprocess them with scanpy (`target_sum=1e4`, 2,000 variable genes, 50
components, 15 neighbours).

| name | cells | what | source |
|---|---|---|---|
"""


def page() -> str:
    loaded, others = [], []
    for path in sorted(MANIFESTS.glob("*.toml")):
        manifest = tomllib.loads(path.read_text(encoding="utf-8"))
        name, files = path.stem, manifest["files"]
        what = f"{manifest['n_cells']:,} | {manifest['title']}. {manifest['citation']}"
        urls = [file["url"] for file in files if "url" in file]
        by_hand = " or ".join(f"`{file['name']}`" for file in files)
        where = f"downloaded from <{urls[0]}>" if urls else f"put {by_hand} in your folder"
        if files:
            loaded.append(f"| `{name}` | {what} | {where} | {manifest['licence']} |\n")
        else:
            others.append(f"| {name} | {what} | {manifest['source']} |\n")
    return INTRODUCTION + "".join(loaded) + OTHERS + "".join(others)


if __name__ == "__main__":
    (HERE / "datasets.md").write_text(page(), encoding="utf-8")
