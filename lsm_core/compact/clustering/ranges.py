"""Where a partition is cut into ranges of curve keys: quantiles of a sample, so that each range holds about as much (Java `RangeShuffle`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.compact.clustering.task import SortTask
from lsm_core.files import open_append
from lsm_core.files.append_reader import open_source
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.merge.comparable import Ints
from lsm_core.merge.curves import Curve
from lsm_core.merge.keys import ByteKeys
from lsm_core.metadata.store import TableStore

_FEWEST_PROBES: Final = 16
_MOST_PROBES: Final = 256
"""Row groups that are looked into; of more, evenly spaced ones are."""
_MOST_SAMPLES: Final = 1 << 20


@dataclass(frozen=True)
class Cuts:
    """Ascending ``bounds`` between ranges: range i holds the keys from bounds[i - 1] on to before bounds[i]."""

    bounds: tuple[bytes, ...] = ()

    @property
    def ranges(self) -> int:
        """How many ranges there are."""
        return len(self.bounds) + 1

    def split(self, keys: ByteKeys) -> tuple[Ints, list[tuple[int, int, int]]]:
        """The permutation that sorts the rows, and (range, first, last + 1) of each stretch of it that lies in one range."""
        order, _ = keys.order(sorted_runs=False)
        ends, at = [0], 0
        for bound in self.bounds:
            at = _first_not_below(keys, order, bound, at)
            ends.append(at)
        ends.append(len(order))
        return order, [(i, one, end) for i, (one, end) in enumerate(pairwise(ends)) if one < end]


def _first_not_below(keys: ByteKeys, order: Ints, bound: bytes, low: int) -> int:
    high = len(order)
    while low < high:
        middle = (low + high) // 2
        if keys.scalar(int(order[middle])) < bound:
            low = middle + 1
        else:
            high = middle
    return low


def range_count(rows: int, row_bytes: float, range_bytes: int) -> int:
    """So many ranges that each holds at most about ``range_bytes`` of decoded rows."""
    return max(1, -(-int(rows * row_bytes) // max(1, range_bytes)))


def sample_cuts(store: TableStore, task: SortTask, files: Sequence[DataFileMeta], ranges: int) -> Cuts:
    """Cut ``files`` into about ``ranges`` equal ranges by evenly spaced rows of evenly spaced row groups.

    `sort-compaction.local-sample.magnification` rows are sampled for each range. `sort-compaction.range-strategy` says what is
    equal: rows (quantity), or bytes (size: each sampled row counts as much as the average row of its file takes on disk).
    Raises :class:`CorruptFile` naming a damaged file.
    """
    if ranges < 2 or not any(file.row_count for file in files):
        return Cuts()
    by_size = str(store.options.get("sort-compaction.range-strategy")).lower() == "size"
    wanted = min(_MOST_SAMPLES, ranges * int(store.options.get("sort-compaction.local-sample.magnification")))
    found = list(_samples(store, task, files, min(_MOST_PROBES, max(_FEWEST_PROBES, 4 * ranges)), wanted))
    keys = ByteKeys.concat([part for part, _, _ in found])
    weight = np.concatenate([np.full(len(part), rows / len(part)) for part, rows, _ in found])
    if by_size:
        weight *= np.concatenate([np.full(len(part), size) for part, _, size in found])
    return _quantiles(keys, weight, ranges)


def _quantiles(keys: ByteKeys, weight: npt.NDArray[np.float64], ranges: int) -> Cuts:
    order, _ = keys.order(sorted_runs=False)
    passed = np.cumsum(weight[order])
    at = np.searchsorted(passed, passed[-1] * np.arange(1, ranges) / ranges)
    bounds = sorted({keys.scalar(int(order[i])) for i in at})
    smallest = keys.scalar(int(order[0]))
    return Cuts(tuple(bound for bound in bounds if bound > smallest))


def _samples(
    store: TableStore, task: SortTask, files: Sequence[DataFileMeta], probes: int, wanted: int
) -> Iterator[tuple[ByteKeys, float, float]]:
    """Keys of sampled rows, how many rows they stand for, and the average bytes of such a row."""
    total = sum(file.row_count for file in files)
    places = (np.arange(probes) + 0.5) * total / probes
    curve, share, start = task.curve(store), -(-wanted // probes), 0
    for file in files:
        inside = places[(places >= start) & (places < start + file.row_count)] - start
        start += file.row_count
        if not len(inside):
            continue
        with closing(open_source(store, task.partition, task.bucket, file)) as source:
            ends = np.cumsum(source.group_rows)
        groups, hits = np.unique(np.searchsorted(ends, inside, side="right"), return_counts=True)
        for group, count in zip(groups, hits, strict=True):
            keys = _evenly(store, task, file, int(group), curve, share * int(count))
            if len(keys):
                yield keys, total / probes * int(count), file.file_size / file.row_count


def _evenly(store: TableStore, task: SortTask, file: DataFileMeta, group: int, curve: Curve, wanted: int) -> ByteKeys:
    """Keys of about ``wanted`` evenly spaced rows of one row group."""
    rows = open_append(store, task.partition, task.bucket, file, columns=task.order_by, row_groups=[group])
    with closing(rows):  # type: ignore[type-var]
        table = pa.Table.from_batches(list(rows))
    step = max(1, table.num_rows // max(1, wanted))
    return curve.keys(table.take(pa.array(np.arange(step // 2, table.num_rows, step))))


__all__ = ["Cuts", "range_count", "sample_cuts"]
