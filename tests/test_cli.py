from __future__ import annotations

import subprocess
import sys

import anndata as ad
import pytest

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
