"""Write buffer of one bucket: rows in memory and in sorted runs on the local disk, merged into one stream by a flush.

All buckets of a writer share one pool. When its memory is used up, the largest bucket is sorted and spilled, so that a
flush makes few large files from any number of rows. When its share of the disk is used up too, that bucket is flushed.

Source: Paimon `MemoryPoolFactory`, `SortBufferWriteBuffer`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Final

import pyarrow as pa

from lsm_core.errors import DredgeError
from lsm_core.files import SpilledRun, SpillSpace
from lsm_core.merge import FoldFunction, MergeFunction, RunInput, merge_streams, merge_unsorted
from lsm_core.merge.engines.internal import AllVersions
from lsm_core.options import TableOptions
from lsm_core.read.passes import next_pass

_FEWEST_ROWS: Final = 16
_MOST_ROWS: Final = 65_536
_OUTPUT_ROWS: Final = 131_072

Batches = Generator[pa.RecordBatch, None, None]


class BufferPool:
    """Memory and local disk that the buckets of one writer share.

    Attributes:
        memory: bytes of `write-buffer-size`.
        batch_bytes: bytes of a spilled batch. One batch of each of `local-sort.max-num-file-handles` runs takes half of
            the memory together.

    Raises:
        InvalidOption: an option of the buffer cannot be used.
    """

    def __init__(self, options: TableOptions) -> None:
        self.memory = options.write_buffer_size
        self.handles = max(2, int(options.get("local-sort.max-num-file-handles")))
        self.batch_bytes = max(1, self.memory // (2 * self.handles))
        self._spillable = bool(options.get("write-buffer-spillable"))
        self._disk = int(options.get("write-buffer-spill.max-disk-size"))
        self._space = SpillSpace.of(options)
        self.disk_used = 0

    @property
    def may_spill(self) -> bool:
        """Whether spilling is enabled and the disk budget has room; as in Java, the last run may exceed the budget."""
        return self._spillable and self.disk_used < self._disk

    def spill(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> SpilledRun:
        """Write a run. Raises :class:`StorageFull`, which names the file; the file is deleted."""
        run = self._space.spill(batches, schema)
        self.disk_used += run.size
        return run

    def free(self, run: SpilledRun) -> None:
        """Release the disk space of a run."""
        run.delete()
        self.disk_used -= run.size

    def close(self) -> None:
        """Remove every run; the pool can still be used."""
        self._space.close()
        self.disk_used = 0


class SortBuffer:
    """Rows of one bucket in KV layout, added in arrival order; :meth:`drain` returns them merged.

    Runs hold the versions of a key in merge order (key, user sequence, sequence number), which the merge kernels
    require. A later run is newer. Engines that build rows must see all versions of a key at once, so their runs keep
    every version; runs of other engines are merged when they are spilled.
    """

    def __init__(
        self, pool: BufferPool, function: MergeFunction, schema: pa.Schema, table: str, *, keeps_all: bool = False
    ) -> None:
        """Create an empty buffer.

        Args:
            pool: memory and disk shared with other buckets.
            function: merge function of the table.
            schema: Arrow schema of the KV layout.
            table: name of the table, for errors.
            keeps_all: return every version from :meth:`drain`, in merge order.
        """
        self._pool, self._schema, self._table = pool, schema, table
        versions = AllVersions(function.key_spec)
        self._function: MergeFunction = versions if keeps_all else function
        self._in_runs: MergeFunction = versions if isinstance(function, FoldFunction) else self._function
        self._memory: list[pa.Table] = []
        self._runs: list[SpilledRun] = []
        self._rows = 0
        self._row_bytes = 0.0
        self._broken = False
        self.bytes = 0

    def __len__(self) -> int:
        """Return the number of rows since the last drain."""
        return self._rows

    def add(self, rows: pa.Table, size: int) -> None:
        """Buffer rows of ``size`` bytes. Raises DredgeError after a failure that lost rows."""
        self._require_whole()
        self._memory.append(rows)
        self._rows += rows.num_rows
        self.bytes += size

    def spill(self) -> bool:
        """Move the rows in memory to a sorted run; return False when the pool does not allow it."""
        self._require_whole()
        if not self._memory:
            return True
        if not self._pool.may_spill:
            return False
        self._broken = True
        self._runs.append(self._pool.spill(self._sorted(self._in_runs, self._pool.batch_bytes), self._schema))
        self._broken = False
        return True

    def drain(self) -> Batches:
        """Yield all rows by ascending key and empty the buffer.

        Each key occurs once unless all versions are kept; deletes are kept. If the caller stops early or fails, the
        remaining rows are lost, and every further call raises.
        """
        self._require_whole()
        self._broken = True
        if not self._runs:
            yield from self._sorted(self._function, None)
        else:
            yield from self._merged()
        self.clear()

    def spoil(self) -> None:
        """Mark drained rows as lost: from now on every call but :meth:`clear` raises."""
        self._broken = True

    def clear(self) -> None:
        """Discard all rows, and the mark of lost rows."""
        self._memory.clear()
        for run in self._runs:
            self._pool.free(run)
        self._runs.clear()
        self._rows, self.bytes, self._broken = 0, 0, False

    def _merged(self) -> Batches:
        """Yield the runs and the rows in memory as one stream.

        More runs than may be open are merged in passes before.
        """
        if self._memory and len(self._runs) >= self._pool.handles:
            self._runs.append(self._pool.spill(self._sorted(self._in_runs, self._pool.batch_bytes), self._schema))
        while len(self._runs) > self._pool.handles:
            self._one_pass()
        inputs = [run.batches() for run in self._runs]
        if self._memory:
            inputs.append(self._sorted(self._in_runs, self._pool.batch_bytes))
        with closing(self._streams(inputs, self._function)) as merged:
            yield from merged

    def _one_pass(self) -> None:
        sizes = [float(run.size) for run in self._runs]
        fewer: list[SpilledRun] = []
        done = 0
        for group in next_pass(sizes, self._pool.handles, 0):
            chosen = self._runs[group.start : group.stop]
            fewer += self._runs[done : group.start]
            done = group.stop
            if len(chosen) == 1:
                fewer += chosen
                continue
            with closing(self._streams([run.batches() for run in chosen], self._in_runs)) as merged:
                fewer.append(self._pool.spill(self._cut(merged, self._pool.batch_bytes), self._schema))
            for run in chosen:
                self._pool.free(run)
        self._runs = [*fewer, *self._runs[done:]]

    def _streams(self, inputs: list[Iterator[pa.RecordBatch]], function: MergeFunction) -> Batches:
        """Merge inputs, oldest first. They hold about half of the pool's memory together."""
        sources = [RunInput(batches, 0, age, f"spilled run {age}") for age, batches in enumerate(inputs)]
        row_bytes = max(1.0, self._row_bytes)
        fair = int(self._pool.memory / (2 * len(inputs) * row_bytes))
        try:
            yield from merge_streams(sources, function, batch_rows=max(_FEWEST_ROWS, min(fair, _MOST_ROWS)))
        finally:
            for batches in inputs:
                batches.close()  # type: ignore[attr-defined]

    def _sorted(self, function: MergeFunction, cut: int | None) -> Batches:
        """Yield the rows in memory, merged by ``function``, in batches of about ``cut`` bytes.

        Their memory is released batch by batch.
        """
        table = pa.concat_tables(self._memory).combine_chunks()
        self._row_bytes = max(self._row_bytes, table.nbytes / max(1, table.num_rows))
        self._memory.clear()
        self.bytes = 0
        merged = merge_unsorted(table, function)
        del table
        batches = merged.to_batches(max_chunksize=_OUTPUT_ROWS)
        del merged
        batches.reverse()
        while batches:
            yield from self._cut(iter((batches.pop(),)), cut)

    @staticmethod
    def _cut(batches: Iterator[pa.RecordBatch], size: int | None) -> Batches:
        for batch in batches:
            rows = batch.num_rows
            if size is not None:
                rows = max(_FEWEST_ROWS, int(size * batch.num_rows / max(1, batch.nbytes)))
            for start in range(0, batch.num_rows, max(1, rows)):
                yield batch.slice(start, rows)

    def _require_whole(self) -> None:
        if self._broken:
            raise DredgeError(
                f"table {self._table}: an earlier failure of this writer lost rows; abort it and write them again"
            )
