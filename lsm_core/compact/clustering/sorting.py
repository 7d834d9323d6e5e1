"""Sort of one range: in memory if it fits, else in sorted runs on the local disk that are merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from lsm_core.compact.clustering.spread import RangeRows
from lsm_core.files import SpilledRun, SpillSpace
from lsm_core.merge.curves import Curve
from lsm_core.merge.keys import ByteKeys

Batches = Iterator[pa.RecordBatch]

_MOST_ROWS: Final = 65_536
_FAN_IN: Final = 32
"""Number of sorted runs merged at once; of more, the first ones are merged into one before."""


def sorted_batches(rows: RangeRows, curve: Curve, schema: pa.Schema, budget: int, space: SpillSpace) -> Batches:
    """Yield the rows of one range along ``curve``; rows of equal keys keep their order.

    Args:
        rows: rows of the range, which are released.
        curve: the order.
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
    """Yield the same rows in batches of about ``size`` bytes: one for each merged run is in memory."""
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
        """Return the rows up to ``bound``, which is included."""
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
