"""Rows of the benchmarks: a BIGINT key, 4 BIGINT, 2 DOUBLE, 2 STRING(16).

Half of each commit after the first updates existing keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        *[(f"n{i}", pa.int64()) for i in range(4)],
        *[(f"x{i}", pa.float64()) for i in range(2)],
        *[(f"s{i}", pa.string()) for i in range(2)],
    ]
)


TEXT_SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), *[(f"t{i}", pa.string()) for i in range(5)]])
TEXT_VALUES = 2_000
"""Distinct values of each text column of :data:`TEXT_SCHEMA`."""


def text_column(numbers: np.ndarray, width: int = 16) -> pa.Array:
    """Return strings of `width` hexadecimal digits made from hashed numbers, without a loop over rows."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    nibbles = (mixed[:, None] >> (np.arange(width, dtype=np.uint64) * np.uint64(4))) & np.uint64(15)
    letters = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)[nibbles]
    offsets = np.arange(0, (len(numbers) + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(letters)))


def rows(keys: np.ndarray, seed: int) -> pa.Table:
    """Return one row per key with values that do not repeat."""
    random = np.random.default_rng(seed)
    count = len(keys)
    integers = [pa.array(random.integers(0, 2**40, count)) for _ in range(4)]
    doubles = [pa.array(random.random(count)) for _ in range(2)]
    texts = [text_column(random.integers(0, 2**62, count)) for _ in range(2)]
    return pa.table([pa.array(keys), *integers, *doubles, *texts], schema=SCHEMA)


def text_rows(keys: np.ndarray, seed: int) -> pa.Table:
    """Return one row per key with five texts of 8 to 24 characters, 2,000 distinct values per column."""
    random = np.random.default_rng(seed)
    columns = []
    for place in range(5):
        values = [f"{place}-{number:05d}" + "abcdefghijklmnop"[: number % 17] for number in range(TEXT_VALUES)]
        columns.append(pa.array(values).take(pa.array(random.integers(0, TEXT_VALUES, len(keys)))))
    return pa.table([pa.array(keys), *columns], schema=TEXT_SCHEMA)


def commits(
    total: int, number: int, seed: int = 7, made: Callable[[np.ndarray, int], pa.Table] = rows
) -> Iterator[pa.Table]:
    """Yield `number` commits of `total / number` rows; half of each later commit updates existing keys."""
    random = np.random.default_rng(seed)
    each, known = total // number, 0
    for n in range(number):
        fresh = each if n == 0 else each - each // 2
        new = np.arange(known, known + fresh, dtype=np.int64)
        old = random.choice(known, each - fresh, replace=False).astype(np.int64) if n else np.empty(0, np.int64)
        keys = np.concatenate([new, old])
        random.shuffle(keys)
        known += fresh
        yield made(keys, seed * 1000 + n)
