"""Writer of one bucket of an append table: rows are written to a rolling file in arrival order."""

from __future__ import annotations

from collections import deque
from typing import Final

import pyarrow as pa

from lsm_core.commit import CommitMessage
from lsm_core.files import AppendFileWriter, KeyValueFileWriter, SpilledRun
from lsm_core.files.blob_writer import BlobRowsWriter
from lsm_core.format.manifest import SOURCE_APPEND, DataFileMeta
from lsm_core.metadata.manifests import evolves
from lsm_core.metadata.store import TableStore
from lsm_core.read.evolution import blob_columns
from lsm_core.write.key_value import BufferPool

_SPILLED_ROWS: Final = 65_536
"""Number of rows in each batch that is spilled to the local disk."""


class AppendBucket:
    """Buffer and open file of one bucket.

    :meth:`flush` moves the buffer into the open file. :meth:`release` also closes that file, so that a writer over many
    partitions keeps few files open.

    Rows get sequence numbers from ``first_sequence`` on. In bucketed tables ``first_sequence`` is the bucket's largest
    sequence number + 1. In tables without buckets, whose rows have no order, ``first_sequence`` is 0.

    Source: Paimon `AppendOnlyWriter`.
    """

    def __init__(
        self, store: TableStore, partition: bytes, bucket: int, total_buckets: int, first_sequence: int = 0
    ) -> None:
        self._store = store
        self.partition, self.bucket, self.total_buckets = partition, bucket, total_buckets
        self._next = first_sequence
        self._buffer: list[pa.Table] = []
        self._writer: AppendFileWriter | KeyValueFileWriter | BlobRowsWriter | None = None
        self._spilled: deque[tuple[BufferPool, SpilledRun]] = deque()
        self.files: list[DataFileMeta] = []
        self.buffered_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether this writer has an open data file."""
        return self._writer is not None

    def add(self, rows: pa.Table) -> None:
        """Buffer rows, which have the table's columns."""
        self._buffer.append(rows)
        self.buffered_bytes += rows.nbytes

    def spill(self, pool: BufferPool) -> bool:
        """Move the buffer to the local disk until :meth:`flush`, so that fewer and larger files are written.

        Returns:
            Whether rows were spilled; False if ``pool`` does not allow spilling.

        Raises:
            StorageFull: the local disk is full.
        """
        if not self._buffer:
            return True
        if not pool.may_spill:
            return False
        rows = pa.concat_tables(self._buffer)
        self._spilled.append((pool, pool.spill(iter(rows.to_batches(max_chunksize=_SPILLED_ROWS)), rows.schema)))
        self._buffer, self.buffered_bytes = [], 0
        return True

    def flush(self) -> None:
        """Write the spilled rows, then the buffered rows, to the open file; after an error the open file is deleted."""
        if not self._buffer and not self._spilled:
            return
        if self._writer is None:
            self._writer = self._new_writer()
        while self._spilled:
            pool, run = self._spilled[0]
            for batch in run.batches():
                self._writer.write(batch)
            self._next += run.rows
            self._spilled.popleft()
            pool.free(run)
        if not self._buffer:
            return
        rows = pa.concat_tables(self._buffer)
        self._buffer, self.buffered_bytes = [], 0
        for batch in rows.to_batches():
            self._writer.write(batch)
        self._next += rows.num_rows

    def _new_writer(self) -> AppendFileWriter | KeyValueFileWriter | BlobRowsWriter:
        place = self.partition, self.bucket, self.total_buckets
        if evolves(self._store) and (blobs := blob_columns(self._store)):
            return BlobRowsWriter(self._store, *place, file_source=SOURCE_APPEND, blobs=blobs)
        return AppendFileWriter(self._store, *place, file_source=SOURCE_APPEND, first_sequence=self._next)

    def release(self) -> None:
        """Flush and close the open file."""
        self.flush()
        if self._writer is not None:
            self.files += self._writer.close()
            self._writer = None

    def settle(self, wait: bool) -> None:
        """Flush and close the open file, so that :meth:`drain` cannot fail.

        Args:
            wait: has no effect, because append tables have no running compactions to wait for.
        """
        self.release()

    def drain(self) -> CommitMessage:
        """Return a commit message with the bucket's data files that were written since the last call."""
        files, self.files = tuple(self.files), []
        return CommitMessage(self.partition, self.bucket, self.total_buckets, new_files=files)

    def abort(self) -> None:
        """Discard the buffer and the open file; files closed earlier stay in :attr:`files` for the caller to delete."""
        self._buffer, self.buffered_bytes = [], 0
        while self._spilled:
            pool, run = self._spilled.popleft()
            pool.free(run)
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
