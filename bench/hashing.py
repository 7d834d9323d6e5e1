"""Hashing on one core: rows per second for buckets, and texts of bloom filters against the package xxhash."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import xxhash

from bench.data import text_column
from bench.harness import Result, Timing, alternate
from lsm_core.format import bucket_of
from lsm_core.format.xxhash64 import xxhash64

ROWS = 10_000_000


def run(rows: int | None, rounds: int) -> list[Result]:
    """Measure bucket hashes of a BIGINT key and of a (STRING, INT) key, and xxHash64 of texts."""
    total = rows or ROWS
    random = np.random.default_rng(1)
    numbers = random.integers(0, 2**62, total)
    whole = text_column(numbers)
    lengths = random.integers(0, 17, total).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)
    mixed = pa.StringArray.from_buffers(total, pa.py_buffer(starts), whole.buffers()[2])
    bigint = pa.record_batch({"id": pa.array(numbers)})
    pair = pa.record_batch({"name": mixed, "number": pa.array(numbers.astype(np.int32))})
    timings = alternate(
        {
            "BIGINT key": lambda: bucket_of(bigint, ["id"], 16, "default"),
            "(STRING, INT) key": lambda: bucket_of(pair, ["name", "number"], 16, "default"),
        },
        rounds,
    )
    texts = whole.slice(0, total // 10).cast(pa.binary())
    one_by_one = alternate(
        {
            "column": lambda: xxhash64(texts),
            "package": lambda: [xxhash.xxh64_intdigest(text) for text in texts.to_pylist()],
        },
        rounds,
    )
    ratio = one_by_one["package"].median / one_by_one["column"].median
    name = "xxHash64 of texts of 16 bytes: the package, value by value / a column at a time"
    return [
        *(
            figure(name, timing, total, target)
            for (name, timing), target in zip(timings.items(), (80.0, 5.0), strict=True)
        ),
        Result("hash", name, ratio, "times", 1.5, "higher").judged(),
    ]


def figure(name: str, timing: Timing, rows: int, target: float) -> Result:
    """Return million rows per second with the range over the rounds."""
    rates = [rows / s / 1e6 for s in timing.seconds]
    return Result(
        "hash", name, rows / timing.median / 1e6, "M rows/s", target, "higher", min(rates), max(rates)
    ).judged()
