"""Marks by which the content of arrays is recognised."""

from __future__ import annotations

import hashlib

import numpy as np
from sklearn.utils import gen_batches

from ..core.parallel import in_threads

# An odd number without a pattern in its bits: with odd weights, no change of a single number can go unnoticed.
_BASE = np.uint64(0x9E3779B97F4A7C15)
# Rows at a time, which fit into the cache.
_BLOCK = 4096
# Bytes that an array's content is marked by together.
_ROW = 128


def fingerprint(*arrays: np.ndarray) -> str:
    """By which the content of arrays is recognised, in their order."""
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        whole = len(content) // _ROW * _ROW
        if whole:
            found.update(mark_rows(content[:whole].reshape(-1, _ROW)).data)
        found.update(content[whole:].data)
    return found.hexdigest()


def fingerprint_in_any_order(values: np.ndarray) -> str:
    """By which numbers are recognised, whatever their order."""

    def mixed(some: slice) -> int:
        words = np.asarray(values[some], dtype=np.float64).view(np.uint64) * _BASE
        # The upper half goes into the lower one, so that sums of numbers do not stand for each other.
        return int(((words ^ (words >> np.uint64(32))) * _BASE).sum(dtype=np.uint64))

    total = sum(in_threads(mixed, gen_batches(max(len(values), 1), _BLOCK)))
    return f"{len(values)} numbers, {total % 2**64:016x}"


def mark_rows(*tables: np.ndarray) -> np.ndarray:
    """A number for each row of tables side by side: its words of 32 bits, weighted by powers of a number modulo 2^64.

    Many times as fast as a cryptographic hash. It recognises what was changed by mistake, not with intent.
    """

    def marks(some: slice) -> np.ndarray:
        words = np.ascontiguousarray(np.column_stack([table[some] for table in tables])).view(np.uint32)
        weights = np.cumprod(np.full(words.shape[1], _BASE))
        return words.astype(np.uint64) @ weights

    return np.concatenate(in_threads(marks, gen_batches(len(tables[0]), _BLOCK)))
