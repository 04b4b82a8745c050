from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import scanpy as sc
from anndata import AnnData, read_h5ad
from scanpy import logging as logg

ENVIRONMENT = "ENTROPATH_SC_DATA"


def load(name: str) -> AnnData:
    """A published data set, preprocessed and ready for `ep.tl`.

    Looks for its file in the folder named by the environment variable `ENTROPATH_SC_DATA`, then in the cache
    (`~/.cache/entropath_sc`), then downloads it there. The checksum in the manifest is verified each time.

    Parameters
    ----------
    name
        Name of a manifest, for example `'paul15'`.

    Returns
    -------
    AnnData with counts in `layers['counts']`, log-normalised `X`, `obsm['X_pca']` and neighbours. `uns['manifest']`
    holds title, citation, licence and the names of the label and the root.
    """
    manifest = read_manifest(name)
    path, file = _find(name, manifest["files"])
    logg.info(f"reading {path}")
    adata = _read(path, file)
    _preprocess(adata, manifest["preprocessing"])
    adata.uns["manifest"] = {key: manifest[key] for key in ("title", "citation", "licence", "label_key", "root")}
    return adata


def manifest_folder() -> Path:
    """Where the manifests are: inside an installed package, beside it in a checkout."""
    installed = Path(str(resources.files("entropath_sc"))) / "data_manifests"
    return installed if installed.is_dir() else installed.parents[1] / "data_manifests"


def read_manifest(name: str) -> dict[str, Any]:
    """The manifest of a data set that can be loaded: one with a file whose checksum is known."""
    paths = sorted(manifest_folder().glob("*.toml"))
    known = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in paths}
    known = {name: manifest for name, manifest in known.items() if manifest["files"]}
    if name not in known:
        raise ValueError(f"No data set {name!r} can be loaded. There is {', '.join(map(repr, known))}.")
    return known[name]


def cache_folder() -> Path:
    """Where downloads are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "entropath_sc"


def _find(name: str, files: list[dict[str, str]]) -> tuple[Path, dict[str, str]]:
    """The first of the manifest's files that is there, else the first that can be downloaded; checked either way."""
    folders = [Path(os.environ[ENVIRONMENT])] if os.environ.get(ENVIRONMENT) else []
    for folder in [*folders, cache_folder()]:
        for file in files:
            if (path := folder / file["name"]).is_file():
                _verify(path, file["sha256"])
                return path, file
    for file in files:
        if "url" in file:
            return _download(file, name), file
    names = " or ".join(file["name"] for file in files)
    raise FileNotFoundError(f"{name!r} cannot be downloaded: put {names} in a folder and set {ENVIRONMENT} to it.")


def _verify(path: Path, sha256: str) -> None:
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(
            f"{path} is not the expected file: its sha256 is {found[:12]}…, the manifest says {sha256[:12]}…. "
            "Delete it to download it again, or put the right file there."
        )


def _download(file: dict[str, str], name: str) -> Path:
    import pooch

    if not file["url"].startswith("https://"):
        raise ValueError(f"{name!r}: its manifest names {file['url']}, and only https is downloaded.")
    try:
        return Path(
            pooch.retrieve(file["url"], known_hash=f"sha256:{file['sha256']}", fname=file["name"], path=cache_folder())
        )
    except OSError as error:
        raise ConnectionError(
            f"Could not download {name!r} from {file['url']} ({type(error).__name__}). "
            f"Without a network, put {file['name']} in a folder and set {ENVIRONMENT} to it."
        ) from error


def _read(path: Path, file: dict[str, str]) -> AnnData:
    if path.suffix == ".h5ad":
        return read_h5ad(path)
    # Other formats are read by scanpy's own loader, which finds its file under <datasetdir>/<loader>/<file>.
    before = sc.settings.datasetdir
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / file["scanpy_loader"] / path.name
        place.parent.mkdir()
        shutil.copy(path, place)
        sc.settings.datasetdir = folder
        try:
            return getattr(sc.datasets, file["scanpy_loader"])()
        finally:
            sc.settings.datasetdir = before


def _preprocess(adata: AnnData, steps: dict[str, Any]) -> None:
    adata.var_names_make_unique()
    adata.layers["counts"] = adata.X.copy()
    sc.pp.normalize_total(adata, target_sum=steps["target_sum"])
    sc.pp.log1p(adata)
    sc.pp.highly_variable_genes(adata, n_top_genes=steps["n_top_genes"])
    sc.pp.pca(adata, n_comps=steps["n_pcs"], random_state=0)
    sc.pp.neighbors(adata, n_neighbors=steps["n_neighbors"], random_state=0)
