"""Rows on their way into ranges: in memory as long as they fit, else on the local disk, the largest range first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from lsm_core.compact.clustering.ranges import Cuts
from lsm_core.files import SpilledRun, SpillSpace
from lsm_core.merge.curves import Curve

_MOST_ROWS: Final = 65_536
_FEWEST_ROWS: Final = 16
_BATCH_BYTES: Final = 8 * 1024 * 1024


def batch_rows(row_bytes: float, budget: int) -> int:
    """Rows of a batch that takes an eighth of ``budget`` bytes and 8 MiB at most; no more than 65,536."""
    size = min(_BATCH_BYTES, budget // 8)
    return int(min(_MOST_ROWS, max(_FEWEST_ROWS, size / max(1.0, row_bytes))))


@dataclass
class RangeRows:
    """All rows of one range, in no order: ``size`` bytes once decoded, part of them spilled."""

    spilled: list[SpilledRun] = field(default_factory=list)
    kept: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0
    kept_bytes: int = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, each let go (and its file deleted) when it has been handed out."""
        while self.spilled:
            run = self.spilled.pop(0)
            yield from run.batches()
            run.delete()
        while self.kept:
            yield self.kept.pop(0)


class Spread:
    """Spreads batches over the ranges of ``cuts``; holds at most ``limit`` bytes of decoded rows in memory."""

    def __init__(self, curve: Curve, cuts: Cuts, schema: pa.Schema, limit: int, space: SpillSpace) -> None:
        self._curve, self._cuts, self._schema, self._space = curve, cuts, schema, space
        self._limit, self._held = limit, 0
        self._ranges = [RangeRows() for _ in range(cuts.ranges)]

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of ``batch``. Raises :class:`StorageFull`."""
        if self._cuts.bounds:
            order, stretches = self._cuts.split(self._curve.keys(batch))
            for place, start, end in stretches:
                self._put(place, batch.take(pa.array(order[start:end])))
        elif batch.num_rows:
            self._put(0, batch)
        while self._held > self._limit:
            self._park(max(self._ranges, key=lambda rows: rows.kept_bytes))

    def take(self, place: int) -> RangeRows:
        """The rows of one range; this lets go of them."""
        rows, self._ranges[place] = self._ranges[place], RangeRows()
        self._held -= rows.kept_bytes
        return rows

    def _put(self, place: int, batch: pa.RecordBatch) -> None:
        rows, size = self._ranges[place], batch.nbytes
        rows.kept.append(batch)
        rows.size += size
        rows.kept_bytes += size
        self._held += size

    def _park(self, rows: RangeRows) -> None:
        """Move what a range holds in memory to the disk, as one batch: many short ones take longer."""
        table = pa.Table.from_batches(rows.kept, self._schema)
        rows.kept.clear()
        most = max(1, int(min(_BATCH_BYTES, self._limit // 8) * table.num_rows / max(1, rows.kept_bytes)))
        rows.spilled.append(self._space.spill(table.combine_chunks().to_batches(max_chunksize=most), self._schema))
        self._held -= rows.kept_bytes
        rows.kept_bytes = 0


__all__ = ["RangeRows", "Spread", "batch_rows"]
