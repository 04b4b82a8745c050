"""Where a command may write: never over an input, and it removes only what this package made."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO

from .tl._blocks import MARK

SIGN = "made_by_entropath_sc.txt"
SIGN_TEXT = (
    "A run of entropath-sc keeps its parts here until the output is complete. The same command goes on from them.\n"
)
# What the folder of an AnnData store holds.
STORE_PARTS = {"X", "layers", "obs", "obsm", "obsp", "raw", "uns", "var", "varm", "varp"}
STORE_PARTS |= {"zarr.json", ".zattrs", ".zgroup", ".zmetadata"}


def within(path: Path, folder: Path) -> bool:
    """Whether a path is a folder or file, or lies inside it, whatever name either goes by."""
    above = [path.resolve(), *path.resolve().parents]
    return folder.resolve() in above or (folder.exists() and any(p.exists() and p.samefile(folder) for p in above))


def overlap(a: Path, b: Path) -> bool:
    """Whether two paths are the same, or one lies inside the other."""
    return within(a, b) or within(b, a)


def must_stay(target: Path) -> str | None:
    """Why an output that is there must not be replaced; None where it may."""
    if target.is_symlink():
        return f"{target} is a link. Give the path that it leads to, or another name."
    if not target.exists() or (target.suffix == ".h5ad" and target.is_file()):
        return None
    if target.suffix == ".zarr" and _is_own_store(target):
        return None
    return (
        f"{target} was not written by `entropath-sc run`, or holds other files too, so --overwrite leaves it alone. "
        "Remove it yourself, or choose another name."
    )


def _is_own_store(folder: Path) -> bool:
    import zarr

    try:
        attributes = zarr.open_group(folder, mode="r", use_consolidated=False).attrs
    except (OSError, ValueError):
        return False
    is_marked = MARK in attributes and attributes.get("encoding-type") == "anndata"
    return is_marked and {path.name for path in folder.iterdir()} <= STORE_PARTS


@contextmanager
def drafts_in(folder: Path) -> Iterator[Path]:
    """A place for files that move to a folder when all are there; an error at once where nothing can be written."""
    is_new = not folder.exists()
    with _told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    try:
        with tempfile.TemporaryDirectory(prefix=".", dir=folder) as drafts:
            yield Path(drafts)
    finally:
        if is_new:
            with suppress(OSError):  # there are files in it now
                folder.rmdir()


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """An error that names the folder in which nothing can be written."""
    try:
        yield
    except OSError as error:
        raise OSError(f"Nothing can be written in {folder}: {error.strerror}. Choose another folder.") from error


def workspace_of(target: Path) -> Path:
    """The folder in which an output is made."""
    return target.with_name(f"{target.name}.partial")


class Workspace:
    """A folder beside the output, in which it is made before it gets its name.

    A file in it says that this package made it, and is locked while a run uses it: a second run is refused. The system
    takes the lock from a process that dies. What is worth keeping for the next run stays after an interruption.
    """

    def __init__(self, target: Path, *, overwrite: bool) -> None:
        self.target, self.overwrite = target, overwrite
        self.folder = workspace_of(target)
        self.result, self._old = self.folder / f"result{target.suffix}", self.folder / f"replaced{target.suffix}"
        self.published = self._is_new = False

    def __enter__(self) -> Workspace:
        with _told(self.target.parent):
            self.target.parent.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.target.parent).close()
        self._sign = self._locked()
        self._put_back()
        if os.path.lexists(self.target) and not self.overwrite:  # since a look before the lock
            self.__exit__(None, None, None)
            raise FileExistsError(f"{self.target} is there already. Choose another name, or pass --overwrite.")
        _remove(self.result)
        return self

    def __exit__(self, kind, error, trace) -> None:
        with self._sign, suppress(OSError):
            self._put_back()
            is_writing = self.result.is_dir()  # after an error, zarr's threads go on for a moment
            _remove(self.result)
            rest = [path for path in self.folder.iterdir() if path.name != SIGN]
            is_refused = self._is_new and isinstance(error, ValueError | KeyError | TypeError)
            if self.published or is_refused or not (rest or is_writing):
                for path in rest:
                    _remove(path)
                self._leave()

    def _leave(self) -> None:
        """Remove the folder; where something is still being written, it stays, and stays ours."""
        (self.folder / SIGN).unlink()
        try:
            self.folder.rmdir()
        except OSError:
            (self.folder / SIGN).write_text(SIGN_TEXT)

    def publish(self) -> None:
        """Give the result its name."""
        if self.result.is_dir():
            _mark_store(self.result)
        if os.path.lexists(self.target):
            why = must_stay(self.target) if self.overwrite else f"{self.target} has appeared meanwhile."
            if why is not None:
                raise FileExistsError(why)
            if self.target.is_dir():
                self.target.rename(self._old)
        self.result.replace(self.target)
        self.published = True

    def _put_back(self) -> None:
        """An output that was moved away for one that did not come."""
        if self._old.exists() and not os.path.lexists(self.target):
            self._old.rename(self.target)

    def _locked(self) -> IO[str]:
        """The sign of the folder, which is made if need be, locked."""
        path = self.folder / SIGN
        while True:
            if not os.path.lexists(self.folder):
                self._make()
            try:
                sign = path.open("r+")
            except (FileNotFoundError, NotADirectoryError) as error:
                raise FileExistsError(
                    f"{self.folder} is there, and entropath-sc did not make it. Move it, or choose another output."
                ) from error
            try:
                _lock(sign)
                if os.path.samestat(os.fstat(sign.fileno()), path.stat()):
                    return sign
            except FileNotFoundError:
                pass  # the run that had it has just ended
            except OSError as error:
                sign.close()
                raise OSError(
                    f"Another run is writing {self.target}: {self.folder} is locked ({error.strerror}). Wait for it to "
                    "end, or choose another name."
                ) from error
            sign.close()

    def _make(self) -> None:
        # Under another name first: the folder is never there without its sign.
        made = Path(tempfile.mkdtemp(prefix=f".{self.target.name}.", dir=self.target.parent))
        try:
            (made / SIGN).write_text(SIGN_TEXT)
            made.rename(self.folder)
            self._is_new = True
        except OSError:
            if not os.path.lexists(self.folder):  # else another run was faster
                raise
        finally:
            _remove(made)


def _lock(file: IO[str]) -> None:
    """Lock a file, or raise an OSError where another process has."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _mark_store(path: Path) -> None:
    """Say in the store that this package wrote it."""
    import zarr

    zarr.open_group(path, mode="r+", use_consolidated=False).attrs[MARK] = version("entropath_sc")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Consolidated metadata")  # anndata writes it in format 3 too
        zarr.consolidate_metadata(str(path))
