"""Distribution of rows over ranges: in memory as long as they fit, else on the local disk, the largest range first."""

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
    """Return the rows of a batch of an eighth of ``budget`` bytes, at most 8 MiB and 65,536 rows."""
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
        """Yield the rows, and release each (and its file) after it was returned."""
        while self.spilled:
            run = self.spilled.pop(0)
            yield from run.batches()
            run.delete()
        while self.kept:
            yield self.kept.pop(0)


class Spread:
    """Distributor of batches over the ranges of ``cuts``.

    It holds at most ``limit`` bytes of decoded rows in memory.
    """

    def __init__(self, curve: Curve, cuts: Cuts, schema: pa.Schema, limit: int, space: SpillSpace) -> None:
        self._curve, self._cuts, self._schema, self._space = curve, cuts, schema, space
        self._limit, self._held = limit, 0
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
        while self._held > self._limit:
            self._park(max(self._ranges, key=lambda rows: rows.kept_bytes))

    def take(self, place: int) -> RangeRows:
        """Return the rows of one range, and release them."""
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
        """Move a range's rows in memory to the disk, as one batch: many short ones take longer."""
        table = pa.Table.from_batches(rows.kept, self._schema)
        rows.kept.clear()
        most = max(1, int(min(_BATCH_BYTES, self._limit // 8) * table.num_rows / max(1, rows.kept_bytes)))
        rows.spilled.append(self._space.spill(table.combine_chunks().to_batches(max_chunksize=most), self._schema))
        self._held -= rows.kept_bytes
        rows.kept_bytes = 0
