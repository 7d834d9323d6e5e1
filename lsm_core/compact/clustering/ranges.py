"""Cuts of a partition into ranges of curve keys, at quantiles of a sample, so that ranges are about equally large.

Source: ``RangeShuffle``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.compact.task import SortTask
from lsm_core.errors import CorruptFile
from lsm_core.files import open_append
from lsm_core.files.reader import open_source
from lsm_core.format.manifest import DataFileMeta
from lsm_core.json_text import parse_json
from lsm_core.merge.curves import ORDER, Curve, Scale
from lsm_core.merge.keys import ByteKeys, Ints, count_not_above, stable_order
from lsm_core.metadata.store import TableStore

_FEWEST_PROBES: Final = 16
_MOST_PROBES: Final = 256
"""Largest number of row groups to sample; if there are more, evenly spaced row groups are chosen."""
_FEWEST_SAMPLES: Final = 8192
_MOST_SAMPLES: Final = 1 << 18
_FINER: Final = 4
_MANY_RANGES: Final = 32
"""Number of ranges from which smaller ones would make the distribution slower: batches become too short."""


@dataclass(frozen=True)
class Cuts:
    """Keys at which the rows of a partition are divided into ranges.

    Attributes:
        bounds: the keys, ascending. Range i has the keys from bounds[i - 1] up to, but not including, bounds[i].
    """

    bounds: tuple[bytes, ...] = ()

    @property
    def ranges(self) -> int:
        """Number of key ranges between the cuts."""
        return len(self.bounds) + 1

    def split(self, keys: ByteKeys) -> tuple[Ints, list[tuple[int, int, int]]]:
        """Divide rows into ranges by their keys; the rows of a range keep their order.

        Returns:
            (Row numbers, range by range, list of tuples (range number, start, end)). Start and end are positions in the
                row numbers; ranges without rows are left out.
        """
        numbers = count_not_above(self.bounds, keys)
        order = stable_order(numbers.view(np.uint64))
        counts = np.bincount(numbers)
        ends = np.cumsum(counts)
        return order, [(int(i), int(ends[i] - counts[i]), int(ends[i])) for i in np.flatnonzero(counts)]


def range_count(rows: int, row_bytes: float, range_bytes: int) -> int:
    """Return the number of ranges so that each has at most about ``range_bytes`` bytes of decoded rows."""
    return max(1, -(-int(rows * row_bytes) // max(1, range_bytes)))


@dataclass(frozen=True)
class Layout:
    """Order of a partition's rows in a sort compaction, and its division into key ranges.

    Attributes:
        curve: order of the rows: by columns, or along a z-order or Hilbert curve scaled by a sample of the values.
        cuts: boundary values between the key ranges, which are sorted separately.
    """

    curve: Curve
    cuts: Cuts = Cuts()

    def shares(self, count: int) -> tuple[Cuts, list[Cuts]]:
        """Divide the key ranges among ``count`` workers.

        Returns:
            The cuts between the workers' shares, and for each worker the cuts between its ranges.
        """
        ends = [worker * self.cuts.ranges // count for worker in range(count + 1)]
        outer = Cuts(tuple(self.cuts.bounds[end - 1] for end in ends[1:-1]))
        return outer, [Cuts(self.cuts.bounds[start : end - 1]) for start, end in pairwise(ends)]

    def to_json(self) -> str:
        """Return the layout as text for workers."""
        scales = [[s.nulls, s.prefix.hex(), base64.b64encode(s.words.tobytes()).decode()] for s in self.curve.scales]
        curve = [self.curve.columns, self.curve.strategy, self.curve.text_bytes, scales]
        return json.dumps({"curve": curve, "bounds": [bound.hex() for bound in self.cuts.bounds]})

    @staticmethod
    def from_json(text: str) -> Layout:
        """Parse the text of :meth:`to_json`.

        Raises:
            CorruptFile: the text is not a layout.
        """
        try:
            value = parse_json(text)
            columns, strategy, text_bytes, scales = value["curve"]
            curve_scales = tuple(
                Scale(
                    int(nulls), np.frombuffer(base64.b64decode(words, validate=True), np.uint64), bytes.fromhex(prefix)
                )
                for nulls, prefix, words in scales
            )
            curve = Curve(tuple(columns), str(strategy), int(text_bytes), curve_scales)
            return Layout(curve, Cuts(tuple(bytes.fromhex(bound) for bound in value["bounds"])))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFile("<layout in transit>", f"unreadable: {error!r}") from error


def plan_layout(store: TableStore, task: SortTask, files: Sequence[DataFileMeta], ranges: int) -> Layout:
    """Scale the task's sort order by a sample of ``files``, and cut the rows into about ``ranges`` equal key ranges.

    Evenly spaced rows of evenly spaced row groups are sampled: `sort-compaction.local-sample.magnification` rows for
    each range. `sort-compaction.range-strategy` decides whether ranges have equal rows (quantity) or equal bytes (size:
    each sampled row counts as the average bytes of a row of its file).

    Few ranges are cut into smaller ones: those are sorted in the processor's cache, and leave more memory to the rows
    of the others. The sample, and with it the order of the rows, does not depend on that.

    Args:
        store: the table.
        task: the task.
        files: files to sample.
        ranges: number of ranges.

    Raises:
        CorruptFile: a file is damaged; the error names it.
    """
    curve = task.curve(store)
    if not any(file.row_count for file in files) or (ranges < 2 and curve.strategy == ORDER):
        return Layout(curve)
    by_size = str(store.options.get("sort-compaction.range-strategy")).lower() == "size"
    sample_size = max(_FEWEST_SAMPLES, ranges * int(store.options.get("sort-compaction.local-sample.magnification")))
    probes = min(_MOST_PROBES, max(_FEWEST_PROBES, 4 * ranges))
    parts = list(_samples(store, task, files, probes, min(_MOST_SAMPLES, sample_size)))
    sample = pa.concat_tables([part.rows for part in parts])
    curve = curve.scaled(sample)
    weight = np.concatenate([np.full(part.rows.num_rows, part.weight(by_size)) for part in parts])
    return Layout(curve, _quantiles(curve.keys(sample), weight, ranges * max(1, min(_FINER, _MANY_RANGES // ranges))))


@dataclass(frozen=True)
class _Part:
    """Sampled rows of one row group.

    Attributes:
        rows: the sampled rows, with the columns of the sort order.
        count: number of rows that the sample represents.
        row_bytes: average bytes of a row on disk.
    """

    rows: pa.Table
    count: float
    row_bytes: float

    def weight(self, by_size: bool) -> float:
        rows = int(self.rows.num_rows)
        return self.count / rows * (self.row_bytes if by_size else 1.0)


def _quantiles(keys: ByteKeys, weight: npt.NDArray[np.float64], ranges: int) -> Cuts:
    """Return cuts at the quantiles of the weighted keys; a key at several quantiles gets a separate range.

    ``weight``: number of rows that each sampled key stands for. ``ranges``: number of ranges to aim for.
    """
    order, same = keys.order(sorted_runs=False)
    cumulative = np.cumsum(weight[order])
    positions = np.searchsorted(cumulative, cumulative[-1] * np.arange(1, ranges) / ranges)
    starts = np.flatnonzero(np.concatenate([[True], ~same]))
    groups, hits = np.unique(np.searchsorted(starts, positions, side="right") - 1, return_counts=True)
    heavy = groups[hits > 1] + 1
    chosen = np.union1d(groups, heavy[heavy < len(starts)])
    return Cuts(tuple(keys.scalar(int(order[starts[group]])) for group in chosen if group))


def _samples(
    store: TableStore, task: SortTask, files: Sequence[DataFileMeta], probes: int, sample_size: int
) -> Iterator[_Part]:
    """Yield about ``sample_size`` rows, evenly spaced within ``probes`` row groups.

    The row groups are evenly spaced over all rows.
    """
    total = sum(file.row_count for file in files)
    places = (np.arange(probes) + 0.5) * total / probes
    share, start = -(-sample_size // probes), 0
    for file in files:
        probed_rows = places[(places >= start) & (places < start + file.row_count)] - start
        start += file.row_count
        if not len(probed_rows):
            continue
        with closing(open_source(store, task.partition, task.bucket, file)) as source:
            ends = np.cumsum(source.group_rows)
        groups, hits = np.unique(np.searchsorted(ends, probed_rows, side="right"), return_counts=True)
        for group, count in zip(groups, hits, strict=True):
            batches = open_append(
                store, task.partition, task.bucket, file, columns=task.order_by, row_groups=[int(group)]
            )
            with closing(batches):  # type: ignore[type-var]
                whole = pa.Table.from_batches(list(batches))
            step = max(1, whole.num_rows // max(1, share * int(count)))
            rows = whole.take(pa.array(np.arange(step // 2, whole.num_rows, step)))
            if rows.num_rows:
                yield _Part(rows, total / probes * int(count), file.file_size / file.row_count)
