"""Interrupt the tools in memory at random, and look at what is left.

    python benchmarks/interrupts.py --interrupts 200

Interrupts come at random times by a signal, after which the same call must give what an undisturbed one gives; and at
random lines of the package, in a process of its own. That is because an interrupt at a line can also come where no
signal does, such as between the end of a `with` and its exit, and leave a lock taken. After each, the object must have
all of its old fields or all of its new ones. Exits with 1 where it does not.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import hashlib
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import anndata as ad
import numpy as np
import scipy.sparse as sp
from torture import LONGEST_CALL, report

import entropath_sc as ep

PACKAGES = tuple(str(Path(module.__file__).parent) for module in (ep, ad))


def state(adata: ad.AnnData) -> dict[str, str]:
    """A digest of each field."""
    fields = {
        f"{place}/{name}": value for place in ("obs", "obsm", "obsp") for name, value in getattr(adata, place).items()
    }
    return {"X": fingerprint(adata.X), "uns": fingerprint(adata.uns)} | {k: fingerprint(v) for k, v in fields.items()}


def fingerprint(value) -> str:
    if isinstance(value, dict):
        return repr([(name, fingerprint(part)) for name, part in sorted(value.items())])
    if sp.issparse(value):
        return repr([fingerprint(part) for part in (value.data, value.indices, value.indptr)])
    value = np.asarray(value)
    return hashlib.blake2b(value.tobytes() if value.dtype != object else repr(value.tolist()).encode()).hexdigest()


def tools() -> dict[str, tuple[ad.AnnData, Callable[[ad.AnnData], None], list[ad.AnnData]]]:
    """Of each tool, an object with older results, the call, and what else it reads."""
    adata = ep.datasets.branching(n_cells=400, n_genes=100)
    root = adata.uns["root"]
    ep.tl.merw_graph(adata, use_rep="X_pca", n_neighbors=10)
    ep.tl.embedding(adata, n_landmarks=150, depth=4)
    ep.tl.pseudotime(adata, root=root, depth=4)
    reference, new = adata[::2].copy(), adata[1::2].copy()
    ep.tl.embedding(reference)
    ep.tl.pseudotime(reference, root=reference.obs_names[0])
    ended = adata.copy()
    ep.tl.pseudotime(ended, root=root)
    ep.tl.terminal_states(ended, n_resamples=0)
    decided = ended.copy()
    ep.tl.terminal_states(decided, groupby="branch", n_resamples=0)
    return {
        "merw_graph": (adata, lambda a: ep.tl.merw_graph(a, use_rep="X_pca", n_neighbors=15), []),
        "embedding": (adata, lambda a: ep.tl.embedding(a, n_landmarks=150, depth=10), []),
        "pseudotime": (adata, lambda a: ep.tl.pseudotime(a, root=root, depth=10), []),
        "terminal_states": (ended, lambda a: ep.tl.terminal_states(a, groupby="branch"), []),
        "fates": (decided, lambda a: ep.tl.fates(a), []),
        "project": (new, lambda a: ep.tl.project(a, reference, labels="branch"), [reference]),
    }


def _interrupt(*_) -> None:
    raise KeyboardInterrupt


class Lines:
    """Counts the lines of the package and of anndata that run; raises an interrupt at one of them."""

    def __init__(self, at: int | None = None) -> None:
        self.count, self.at = 0, at

    def __call__(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(PACKAGES):
            return None
        if event == "line":
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt
        return self

    def run(self, call: Callable[[], None]) -> None:
        sys.settrace(self)
        try:
            call()
        finally:
            sys.settrace(None)


def interrupt(name: str, tool, n: int) -> Iterator[tuple[str, Counter]]:
    base, call, read = tool
    others, fresh = [state(other) for other in read], base.copy()
    call(fresh)
    before, after, again, lines = state(base), state(fresh), base.copy(), Lines()
    began = time.perf_counter()
    call(again)
    seconds = time.perf_counter() - began
    assert state(again) == after, f"{name}: two calls differ"

    def look(adata: ad.AnnData, found: Counter) -> None:
        found["input changed"] += [state(other) for other in read] != others
        now = state(adata)
        if now not in (before, after):
            found["half written"] += 1
            changed = sorted(field for field in before.keys() | now.keys() if before.get(field) != now.get(field))
            missing = sorted(field for field in after if after[field] != now.get(field))
            print(f"{name}: new are {changed}, old are {missing}", file=sys.stderr)

    found: Counter = Counter()
    while found["hit"] < n:
        faulthandler.dump_traceback_later(LONGEST_CALL, exit=True)
        adata = base.copy()
        found["tried"] += 1
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 1.05 * seconds))
        try:
            try:
                call(adata)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:  # also one that came just after the call
            found["hit"] += 1
        look(adata, found)
        call(adata)
        found["wrong afterwards"] += state(adata) != after
    faulthandler.cancel_dump_traceback_later()
    yield f"interrupt by signal, {name}", found

    lines.run(functools.partial(call, base.copy()))
    found = Counter()
    for at in random.choices(range(1, lines.count + 1), k=n):
        process = os.fork()
        if process == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LONGEST_CALL)
            adata, wrong = base.copy(), Counter()
            with contextlib.suppress(KeyboardInterrupt):
                Lines(at).run(functools.partial(call, adata))
            look(adata, wrong)
            os._exit(wrong["half written"] + 2 * wrong["input changed"])
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        found += Counter(
            {"tried": 1, "hit": status >= 0, "half written": status in (1, 3), "input changed": status in (2, 3)}
        )
    yield f"interrupt by line, {name}", found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interrupts", type=int, default=200, help="of each tool, by signals and by lines")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    random.seed(options.seed)
    return report(found for name, tool in tools().items() for found in interrupt(name, tool, options.interrupts))


if __name__ == "__main__":
    sys.exit(main())
