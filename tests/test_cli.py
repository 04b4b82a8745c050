from __future__ import annotations

import argparse
import subprocess
import sys

import anndata as ad
import pytest
import scanpy as sc

from entropath_sc._options import add_run
from entropath_sc.cli import main


def test_demo_writes_results_and_says_what_it_found(tmp_path, capsys):
    assert main(["demo", "-o", str(tmp_path / "out"), "--cells", "400"]) == 0
    printed = capsys.readouterr()
    assert "pseudotime  Spearman 0.9" in printed.out
    assert "[5/5]" in printed.err
    for name in ("embedding", "depth", "pseudotime", "overview"):
        assert (tmp_path / "out" / f"{name}.png").stat().st_size > 5_000
    written = ad.read_h5ad(tmp_path / "out" / "demo.h5ad")
    assert "X_entropath" in written.obsm
    assert "entropath_pseudotime" in written.obs


def test_messages_do_not_cut_the_demos_progress(tmp_path, monkeypatch):
    # "compiling" is a warning of scanpy's, which verbosity 0 leaves out.
    levels: list[int] = []
    say = "entropath_sc.tl._embedding.say_if_compiling"
    monkeypatch.setattr(say, lambda kernel: levels.append(int(sc.settings.verbosity)))
    before = sc.settings.verbosity
    assert main(["demo", "-o", str(tmp_path / "out"), "--cells", "100"]) == 0
    assert levels == [0]
    assert sc.settings.verbosity == before


def test_every_option_has_help():
    commands = argparse.ArgumentParser().add_subparsers()
    assert [action.dest for action in add_run(commands)._actions if not action.help] == []


def test_bad_arguments_exit_with_2(capsys):
    for arguments in ([], ["demo", "--cells", "5"], ["dance"]):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2
    assert "--cells must be at least 100" in capsys.readouterr().err


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "entropath_sc", "dance"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "dance" in done.stderr
