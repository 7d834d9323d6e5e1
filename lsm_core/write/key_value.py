"""One bucket of a primary-key table being written: number the rows, buffer them, merge them by key into level-0 files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lsm_core.files import KeyValueFileWriter
from lsm_core.format.file_meta import SOURCE_APPEND, DataFileMeta
from lsm_core.format.kv_layout import kv_arrow_schema
from lsm_core.merge import KeySpec, MergeFunction, merge_function, merge_unsorted
from lsm_core.metadata.store import TableStore

_WRITE_ROWS = 131_072


class KeyValueBucket:
    """Buffer of one (partition, bucket) (Java `MergeTreeWriter`).

    Every incoming row takes the next sequence number, from ``first_sequence`` on; :meth:`flush` sorts and merges the
    buffer into files of level 0, so that each of them has unique keys.
    """

    def __init__(
        self, store: TableStore, partition: bytes, bucket: int, total_buckets: int, first_sequence: int
    ) -> None:
        self._store = store
        self.partition, self.bucket, self.total_buckets = partition, bucket, total_buckets
        self._next = first_sequence
        self._layout = kv_arrow_schema(store.schema)
        options = store.options
        self._function: MergeFunction = merge_function(store.schema, options.raw, store.name)
        self._keys: KeySpec = KeySpec.of(store.schema, options.sequence_field, options.sequence_descending)
        self._buffer: list[pa.Table] = []
        self.files: list[DataFileMeta] = []
        self.buffered_bytes = 0

    def add(self, rows: pa.Table, kinds: pa.Array | None) -> None:
        """Buffer ``rows`` (the table's columns) in arrival order; ``kinds`` int8, None = all inserts."""
        count = rows.num_rows
        numbers = pa.array(np.arange(self._next, self._next + count, dtype=np.int64))
        self._next += count
        kinds = pa.repeat(pa.scalar(0, pa.int8()), count) if kinds is None else kinds
        keys = [rows.column(name) for name in self._store.schema.trimmed_primary_keys]
        self._buffer.append(pa.table([*keys, numbers, kinds, *rows.columns], schema=self._layout))
        self.buffered_bytes += rows.nbytes + 9 * count

    def flush(self) -> None:
        """Merge the buffer by key and write it to level 0; on failure nothing of that flush is left."""
        if not self._buffer:
            return
        table = pa.concat_tables(self._buffer)
        self._buffer, self.buffered_bytes = [], 0
        merged = merge_unsorted(table, self._function, self._keys)
        del table
        writer = KeyValueFileWriter(
            self._store, self.partition, self.bucket, self.total_buckets, level=0, file_source=SOURCE_APPEND
        )
        for batch in merged.to_batches(max_chunksize=_WRITE_ROWS):
            writer.write(batch)
        self.files += writer.close()

    def finish(self) -> list[DataFileMeta]:
        """Flush and give the files written since the last call; the bucket can be written on."""
        self.flush()
        files, self.files = self.files, []
        return files

    def abort(self) -> None:
        """Forget the buffer; files of earlier flushes stay in :attr:`files` for the caller to delete."""
        self._buffer, self.buffered_bytes = [], 0
