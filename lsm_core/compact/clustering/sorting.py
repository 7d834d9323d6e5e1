"""One range in order: sorted in memory where it fits, else in sorted runs on the local disk that are merged."""

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
"""Sorted runs merged at once; of more, the first ones are merged into one first."""


def sorted_batches(rows: RangeRows, curve: Curve, schema: pa.Schema, budget: int, space: SpillSpace) -> Batches:
    """The rows of one range along ``curve``, equal keys as they came; about ``budget`` bytes of decoded rows are in memory."""
    if rows.size <= budget:
        yield from _in_memory(list(rows.batches()), curve, schema)
        return
    chunk = max(1, budget // (2 * _FAN_IN))
    runs = [space.spill(_cut(_in_memory(load, curve, schema), chunk), schema) for load in _loads(rows, budget)]
    while len(runs) > _FAN_IN:
        merged = space.spill(_cut(_merged(runs[:_FAN_IN], curve, schema), chunk), schema)
        for run in runs[:_FAN_IN]:
            run.delete()
        runs = [merged, *runs[_FAN_IN:]]
    yield from _merged(runs, curve, schema)
    for run in runs:
        run.delete()


def _in_memory(load: list[pa.RecordBatch], curve: Curve, schema: pa.Schema) -> Batches:
    """Sort ``load``, which is emptied."""
    table = pa.Table.from_batches(load, schema)
    load.clear()
    (batch,) = table.combine_chunks().to_batches() or (None,)
    del table
    if batch is None:
        return
    order, _ = curve.keys(batch).order(sorted_runs=False)
    for start in range(0, len(order), _MOST_ROWS):
        yield batch.take(pa.array(order[start : start + _MOST_ROWS]))


def _loads(rows: RangeRows, budget: int) -> Iterator[list[pa.RecordBatch]]:
    """The rows in loads of at most ``budget`` bytes (or one batch)."""
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


def _cut(batches: Batches, size: int) -> Batches:
    """The same rows in batches of about ``size`` bytes: as many are in memory as runs are merged."""
    for batch in batches:
        rows = max(1, int(size * batch.num_rows / max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


class _Head:
    """A run being merged: its current batch, the keys of it, and how many of its rows are gone."""

    def __init__(self, run: SpilledRun, curve: Curve) -> None:
        self._batches, self._curve = run.batches(), curve
        self.keys: ByteKeys
        self.last = b""
        self._at = 0
        self.open = True
        self._advance()

    def until(self, bound: bytes) -> tuple[pa.RecordBatch, ByteKeys]:
        """Rows up to ``bound``, itself included."""
        stop = self.keys.bisect(bound, right=True)
        found = self._batch.slice(self._at, stop - self._at), self.keys.slice(self._at, stop)
        self._at = stop
        if stop == len(self.keys):
            self._advance()
        return found

    def _advance(self) -> None:
        batch = next(self._batches, None)
        if batch is None:
            self.open = False
            return
        self._batch, self._at = batch, 0
        self.keys = self._curve.keys(batch)
        self.last = self.keys.scalar(len(self.keys) - 1)


def _merged(runs: Sequence[SpilledRun], curve: Curve, schema: pa.Schema) -> Batches:
    """Sorted runs as one. In each step all rows up to the smallest last key in sight come out: one run at least moves on."""
    heads = [_Head(run, curve) for run in runs]
    while heads := [head for head in heads if head.open]:
        bound = min(head.last for head in heads)
        found = [head.until(bound) for head in heads]
        keys = ByteKeys.concat([part for _, part in found])
        order, _ = keys.order()
        rows = pa.Table.from_batches([batch for batch, _ in found], schema).combine_chunks()
        yield from rows.take(pa.array(order)).combine_chunks().to_batches(max_chunksize=_MOST_ROWS)


__all__ = ["sorted_batches"]
