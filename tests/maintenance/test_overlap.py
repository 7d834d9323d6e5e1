"""Overlap is what counting every key says: random buckets of key ranges, counted one key at a time."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.format.binary_row import encode_rows
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.maintenance.observe import compute_overlaps
from lsm_core.types import parse
from tests.maintenance.tables import keyed, rows

Range = tuple[int, int]
_RANGE = st.tuples(st.integers(-20, 20), st.integers(0, 10)).map(lambda pair: (pair[0], pair[0] + pair[1]))
_FILE = st.tuples(st.integers(0, 2), _RANGE, st.integers(0, 50))


def mean_over(one: Range, ranges: list[Range]) -> float:
    """Mean number of ranges over the stretches into which all bounds cut this one."""
    low, high = one
    if low == high:
        return sum(a <= low <= b for a, b in ranges)
    bounds = sorted({bound for pair in ranges for bound in pair if low <= bound <= high})
    stretches = list(itertools.pairwise(bounds))
    return sum(sum(a <= left and right <= b for a, b in ranges) for left, right in stretches) / len(stretches)


@given(st.lists(_FILE, min_size=1, max_size=30))
def test_overlap_is_what_counting_says(files: list[tuple[int, Range, int]]) -> None:
    files.sort(key=lambda f: f[0])
    schema = TableSchema(0, (DataField(0, "k", parse("INT NOT NULL")),), 0, (), ("k",), {})
    types = list(schema.trimmed_key_types)
    low = encode_rows([pa.array([r[0] for _, r, _ in files], pa.int32())], types)
    high = encode_rows([pa.array([r[1] for _, r, _ in files], pa.int32())], types)
    names = {group: index for index, group in enumerate(sorted({group for group, _, _ in files}))}
    codes = np.array([names[group] for group, _, _ in files], np.int64)
    stored = np.array([count for _, _, count in files], np.int64)
    most, mean = compute_overlaps(schema, pa.table({"min_key": low, "max_key": high}), stored, codes, len(names))
    for group, index in names.items():
        ranges = [r for g, r, _ in files if g == group]
        counts = [max(count, 1) for g, _, count in files if g == group]
        keys = range(min(a for a, _ in ranges), max(b for _, b in ranges) + 1)
        assert most[index] == max(sum(a <= key <= b for a, b in ranges) for key in keys)
        slow = sum(n * mean_over(bounds, ranges) for n, bounds in zip(counts, ranges, strict=True)) / sum(counts)
        assert mean[index] == pytest.approx(slow, rel=1e-9)


def test_other_buckets_change_nothing(tmp_path: Path) -> None:
    lone = keyed(tmp_path / "a", partitioned=True)
    both = keyed(tmp_path / "b", partitioned=True)
    for table in (lone, both):
        table.write(rows([0, 100], dt="x"))
        table.write(rows([50, 60], dt="x"))
    both.write(rows([10, 20, 70], dt="y"))
    for table in (lone, both):
        (found,) = table.health({"dt": "x"})
        assert found.overlap_max == 2
        assert found.overlap_mean == pytest.approx((2 * 4 / 3 + 2 * 2) / 4, abs=0.001)
    assert [bucket.overlap_mean for bucket in both.health()] == [lone.health()[0].overlap_mean, 1.0]
