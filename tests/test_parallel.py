"""Threads and processes: what a call leaves behind in the process that made it."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scanpy as sc
from numba import types
from numba.core.registry import CPUDispatcher
from threadpoolctl import threadpool_info

import entropath_sc as ep
from entropath_sc import core
from entropath_sc.core import parallel
from entropath_sc.core.parallel import in_threads, thread_pools
from entropath_sc.tl._checks import all_threads, threads

INTERRUPTS = """
import random, signal
from entropath_sc.core import parallel

signal.signal(signal.SIGALRM, signal.default_int_handler)
random.seed(0)
hits = 0
for _ in range(300):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-3))
            with parallel.use_threads(2):
                for _ in range(40):
                    parallel.in_threads(lambda i: sum(range(200)), range(4))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        hits += 1
assert parallel.in_threads(lambda i: i, range(8)) == list(range(8))
print(hits)
"""

FORK = """
import multiprocessing, warnings
import numpy as np
import entropath_sc as ep
warnings.simplefilter("ignore")  # Python's own, of a fork in a process with threads

def work(adata):
    ep.tl.embedding(adata, n_landmarks=60)
    ep.tl.pseudotime(adata, root="cell_0")
    ep.tl.project(adata, adata)
    D = np.linalg.norm(adata.obsm["X_pca"][:, None] - adata.obsm["X_pca"][None], axis=2)
    ep.tl.embedding(adata, n_landmarks=60, preset="paper", key_added="paper")
    Y = adata.obsm["X_entropath"]
    return [
        ep.metrics.geodesic_correlation(Y, D),
        ep.metrics.demap(adata.obsm["X_pca"], Y, n_repeats=2)[0],
        ep.metrics.trustworthiness(adata.obsm["X_pca"], Y),
        ep.metrics.branch_silhouette(Y, adata.obs["branch"]),
        ep.metrics.kmeans_agreement(Y, adata.obs["branch"])["ari"],
    ]

if __name__ == "__main__":
    cells = ep.datasets.branching(n_cells=120, n_genes=60)
    here = work(cells.copy())
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert np.allclose(pool.map_async(work, [cells.copy(), cells.copy()]).get(90), here)
    print("done")
"""


def test_a_fork_pool_works_after_calls_in_the_parent(tmp_path):
    script = tmp_path / "fork.py"
    script.write_text(FORK)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=180, check=False)
    assert done.stdout.strip() == "done", done.stderr[-2000:]


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_calls_from_several_threads_leave_blas_as_it_was(cells):
    before = blas_threads()
    barrier = threading.Barrier(3)
    found = {}

    def call(n_jobs):
        adata = cells.copy()
        barrier.wait()
        ep.tl.embedding(adata, n_landmarks=80, n_jobs=n_jobs)
        found[n_jobs] = adata.obsm["X_entropath"]

    threads = [threading.Thread(target=call, args=(n_jobs,)) for n_jobs in (1, 2, None)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blas_threads() == before
    np.testing.assert_array_equal(found[1], found[2])
    np.testing.assert_array_equal(found[1], found[None])


@pytest.mark.skipif(all_threads() < 2, reason="needs two threads")
def test_a_thread_gives_back_what_blas_had_before_although_another_set_it_first():
    before, limited, ended = blas_threads(), threading.Event(), threading.Event()

    def last() -> None:
        with thread_pools().limit(limits=1, user_api="blas"):
            limited.set()
            ended.wait()

    thread = threading.Thread(target=last)
    with thread_pools().limit(limits=1, user_api="blas"):
        thread.start()
        limited.wait()
    assert set(blas_threads()) == {1}
    ended.set()
    thread.join()
    assert blas_threads() == before


def test_first_calls_from_several_threads_share_the_limits(monkeypatch):
    monkeypatch.setattr(parallel, "_found", [])
    barrier, found = threading.Barrier(8), []

    class Slow(parallel.ThreadPools):
        def __init__(self):
            time.sleep(0.05)
            super().__init__()

    monkeypatch.setattr(parallel, "ThreadPools", Slow)
    threads = [threading.Thread(target=lambda: (barrier.wait(), found.append(thread_pools()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(pools) for pools in found}) == 1


def test_limits_that_overlap_end_in_any_order():
    before = blas_threads()
    one, two = thread_pools().limit(limits=1), thread_pools().limit(limits=2, user_api="blas")
    one.__enter__()
    two.__enter__()
    assert set(blas_threads()) == {1}
    one.__exit__(None, None, None)
    assert set(blas_threads()) == {2}
    two.__exit__(None, None, None)
    assert blas_threads() == before


@pytest.mark.skipif(all_threads() < 2, reason="needs two threads")
def test_functions_run_in_as_many_threads_as_are_allowed():
    meeting = threading.Barrier(2)
    with threads(2):
        assert sorted(in_threads(lambda _: meeting.wait(timeout=60), range(2))) == [0, 1]
    alone = threading.Barrier(2)
    with threads(1), pytest.raises(threading.BrokenBarrierError):
        in_threads(lambda _: alone.wait(timeout=0.1), range(2))


def test_threads_are_limited_while_it_lasts_and_errors_and_order_kept():
    before = parallel.n_threads()
    with parallel.use_threads(1):
        assert parallel.n_threads() == 1
        assert parallel.in_threads(lambda i: threading.get_ident(), range(4)) == [threading.get_ident()] * 4
    assert parallel.n_threads() == before
    with parallel.use_threads(2):
        assert parallel.in_threads(lambda i: i * i, range(50)) == [i * i for i in range(50)]

        def fails(i: int) -> int:
            done.append(i)
            time.sleep(1e-3)
            if i == 1:
                raise ValueError("one of them")
            return i

        done: list[int] = []
        with pytest.raises(ValueError, match="one of them"):
            parallel.in_threads(fails, range(500))
        assert len(done) < 500  # what had not begun was left


def test_functions_in_threads_share_the_threads_that_are_allowed(monkeypatch):
    monkeypatch.setattr(parallel, "all_threads", lambda: 8)
    for allowed, n_items, share in ((8, 2, 4), (4, 3, 1), (2, 5, 1), (1, 5, 1)):
        with parallel.use_threads(allowed):
            assert in_threads(lambda _: parallel.n_threads(), range(n_items)) == [share] * n_items
            assert parallel.n_threads() == allowed


def test_an_interrupt_ends_the_threads():
    """However often, and wherever it hits: no thread is left, and the next call works."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTS], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) > 100


def test_no_compiled_function_of_the_core_returns_an_array():
    """Numba calls Python to return an array, and Ctrl-C would be a SystemError there instead of an interrupt."""
    adata = ep.datasets.branching(n_cells=300, n_genes=100)
    sc.pp.neighbors(adata)
    ep.tl.embedding(adata, n_landmarks=100)
    ep.tl.pseudotime(adata, root=adata.uns["root"])
    ep.tl.terminal_states(adata, n_resamples=2)
    compiled = [
        (name, signature.return_type)
        for module in pkgutil.iter_modules(core.__path__)
        for name, function in vars(importlib.import_module(f"entropath_sc.core.{module.name}")).items()
        if isinstance(function, CPUDispatcher)
        for signature in function.nopython_signatures
    ]
    assert {"_inside", "_merge_downward", "_conjugate_gradients", "_select"} <= {name for name, _ in compiled}
    returned = [(name, part) for name, found in compiled for part in getattr(found, "types", [found])]
    assert [name for name, part in returned if isinstance(part, types.Array)] == []
