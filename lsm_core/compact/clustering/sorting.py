"""Distribution of rows over ranges, and the sort of each range.

Rows are kept in memory while they fit; then the largest range is spilled to the local disk first. A range is sorted in
memory if it fits, else in sorted runs on the local disk, which are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from lsm_core.compact.clustering.ranges import Cuts
from lsm_core.files import SpilledRun, SpillSpace
from lsm_core.merge.curves import Curve
from lsm_core.merge.keys import ByteKeys

PARTS: Final = 3
"""A range may use 1/3 of the merge budget: during the sort its rows are in memory twice, and its keys once."""

_FEWEST_ROWS: Final = 16
_BATCH_BYTES: Final = 8 * 1024 * 1024


def batch_rows(row_bytes: float, budget: int) -> int:
    """Return the number of rows, 16 to 65,536, that take about an eighth of ``budget`` bytes, or at most 8 MiB."""
    size = min(_BATCH_BYTES, budget // 8)
    return int(min(_MOST_ROWS, max(_FEWEST_ROWS, size / max(1.0, row_bytes))))


@dataclass
class RangeRows:
    """All rows of one range, unordered.

    Attributes:
        spilled: rows on the local disk.
        kept: rows in memory.
        size: decoded bytes of all rows.
        kept_bytes: decoded bytes of the rows in memory.
    """

    spilled: list[SpilledRun] = field(default_factory=list)
    kept: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0
    kept_bytes: int = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches; the memory or file of each batch is released after it was yielded."""
        while self.spilled:
            run = self.spilled.pop(0)
            yield from run.batches()
            run.delete()
        while self.kept:
            yield self.kept.pop(0)


class RangeDistributor:
    """Distributor of rows over the ranges of ``cuts``.

    Rows stay in memory as long as the largest range could be sorted beside them: a sort needs two copies of its range,
    or of ``limit`` bytes if the range is larger. All together never exceed three times ``limit`` bytes of decoded rows.
    """

    def __init__(self, curve: Curve, cuts: Cuts, schema: pa.Schema, limit: int, space: SpillSpace) -> None:
        self._curve, self._cuts, self._schema, self._space = curve, cuts, schema, space
        self._limit, self._held, self._largest = limit, 0, 0
        self._ranges = [RangeRows() for _ in range(cuts.ranges)]

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of ``batch``.

        Raises:
            StorageFull: the disk is full.
        """
        if self._cuts.bounds:
            order, stretches = self._cuts.split(self._curve.keys(batch))
            for place, start, end in stretches:
                self._put(place, batch.take(pa.array(order[start:end])))
        elif batch.num_rows:
            self._put(0, batch)
        while self._held + 2 * min(self._largest, self._limit) > PARTS * self._limit:
            self._park(max(self._ranges, key=lambda rows: rows.kept_bytes))

    def take(self, place: int) -> RangeRows:
        """Remove and return the rows of the range with number ``place``."""
        rows, self._ranges[place] = self._ranges[place], RangeRows()
        self._held -= rows.kept_bytes
        return rows

    def _put(self, place: int, batch: pa.RecordBatch) -> None:
        rows, size = self._ranges[place], batch.nbytes
        rows.kept.append(batch)
        rows.size += size
        rows.kept_bytes += size
        self._held += size
        self._largest = max(self._largest, rows.size)

    def _park(self, rows: RangeRows) -> None:
        """Spill a range's rows from memory to the local disk as one batch, because many short batches are slower."""
        table = pa.Table.from_batches(rows.kept, self._schema)
        rows.kept.clear()
        most = max(1, int(min(_BATCH_BYTES, self._limit // 8) * table.num_rows / max(1, rows.kept_bytes)))
        rows.spilled.append(self._space.spill(table.combine_chunks().to_batches(max_chunksize=most), self._schema))
        self._held -= rows.kept_bytes
        rows.kept_bytes = 0


Batches = Iterator[pa.RecordBatch]

_MOST_ROWS: Final = 65_536
_FAN_IN: Final = 32
"""Largest number of sorted runs to merge at once; if there are more, the first runs are merged into one run first."""


def sort_batches(rows: RangeRows, curve: Curve, schema: pa.Schema, budget: int, space: SpillSpace) -> Batches:
    """Yield the rows of one range along ``curve``; rows of equal keys keep their order.

    Args:
        rows: rows of the range; they are released while they are sorted.
        curve: sort order.
        schema: schema of the rows.
        budget: approximate bytes of decoded rows in memory.
        space: folder for sorted runs.
    """
    if rows.size <= budget:
        yield from _sort_in_memory(list(rows.batches()), curve, schema)
        return
    chunk = max(1, budget // (2 * _FAN_IN))
    runs = [
        space.spill(_cut_batches(_sort_in_memory(load, curve, schema), chunk), schema)
        for load in _split_into_loads(rows, budget)
    ]
    while len(runs) > _FAN_IN:
        merged_run = space.spill(_cut_batches(_merge_sorted_runs(runs[:_FAN_IN], curve, schema), chunk), schema)
        for run in runs[:_FAN_IN]:
            run.delete()
        runs = [merged_run, *runs[_FAN_IN:]]
    yield from _merge_sorted_runs(runs, curve, schema)
    for run in runs:
        run.delete()


def _sort_in_memory(load: list[pa.RecordBatch], curve: Curve, schema: pa.Schema) -> Batches:
    """Sort the batches of ``load`` and empty the list."""
    table = pa.Table.from_batches(load, schema)
    load.clear()
    (batch,) = table.combine_chunks().to_batches() or (None,)
    del table
    if batch is None:
        return
    order, _ = curve.keys(batch).order(sorted_runs=False)
    for start in range(0, len(order), _MOST_ROWS):
        yield batch.take(pa.array(order[start : start + _MOST_ROWS]))


def _split_into_loads(rows: RangeRows, budget: int) -> Iterator[list[pa.RecordBatch]]:
    """Yield the rows in loads of at most ``budget`` bytes (or one batch)."""
    load: list[pa.RecordBatch] = []
    size = 0
    for batch in rows.batches():
        if load and size + batch.nbytes > budget:
            yield load
            load, size = [], 0
        load.append(batch)
        size += batch.nbytes
    if load:
        yield load


def _cut_batches(batches: Batches, size: int) -> Batches:
    """Yield the rows in batches of about ``size`` bytes, because the merge holds a batch of every run in memory."""
    for batch in batches:
        rows = max(1, int(size * batch.num_rows / max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


class _Head:
    """Run that is being merged: its current batch, the batch's keys, and the number of rows already returned."""

    def __init__(self, run: SpilledRun, curve: Curve) -> None:
        self._batches, self._curve = run.batches(), curve
        self.keys: ByteKeys
        self.last = b""
        self._at = 0
        self.open = True
        self._advance()

    def until(self, bound: bytes) -> tuple[pa.RecordBatch, ByteKeys]:
        """Return (rows with keys up to and including ``bound``, keys of these rows)."""
        stop = self.keys.bisect(bound, right=True)
        rows_and_keys = self._batch.slice(self._at, stop - self._at), self.keys.slice(self._at, stop)
        self._at = stop
        if stop == len(self.keys):
            self._advance()
        return rows_and_keys

    def _advance(self) -> None:
        batch = next(self._batches, None)
        if batch is None:
            self.open = False
            return
        self._batch, self._at = batch, 0
        self.keys = self._curve.keys(batch)
        self.last = self.keys.scalar(len(self.keys) - 1)


def _merge_sorted_runs(runs: Sequence[SpilledRun], curve: Curve, schema: pa.Schema) -> Batches:
    """Merge sorted runs; each step returns all rows up to the smallest last key of the current batches.

    At least one run advances in each step.
    """
    heads = [_Head(run, curve) for run in runs]
    while heads := [head for head in heads if head.open]:
        bound = min(head.last for head in heads)
        parts = [head.until(bound) for head in heads]
        keys = ByteKeys.concat([part for _, part in parts])
        order, _ = keys.order()
        rows = pa.Table.from_batches([batch for batch, _ in parts], schema).combine_chunks()
        yield from rows.take(pa.array(order)).combine_chunks().to_batches(max_chunksize=_MOST_ROWS)
