"""Writes append files: rows as they come, rolling Parquet files and their manifest metadata out (format.md 8.3)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lsm_core.files.rolling import RollingWriter
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.format.file_meta import EMPTY_STATS, DataFileMeta
from lsm_core.format.kv_layout import append_arrow_schema
from lsm_core.format.stats import ColumnValues, value_stats
from lsm_core.metadata.store import TableStore


class AppendFileWriter:
    """Rolling writer of one (partition, bucket) of an append table (Java `RowDataRollingFileWriter`).

    ``first_sequence`` is the running row counter's start: 0 for a writer of an unaware-bucket table; a rewrite of
    small files starts at its first input's minimum. ``file_source`` 0 append, 1 compact.
    """

    def __init__(
        self,
        store: TableStore,
        partition: bytes,
        bucket: int,
        total_buckets: int,
        file_source: int,
        first_sequence: int = 0,
    ) -> None:
        self.total_buckets = total_buckets
        schema = append_arrow_schema(store.schema)
        target = store.options.target_file_size(has_primary_key=False)
        describer = _Describer(store, file_source, first_sequence)
        self._rolling = RollingWriter(store, partition, bucket, schema, describer, target)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of table columns. On failure every file of this writer is gone before the error leaves."""
        self._rolling.write(batch)

    @property
    def group_rows(self) -> Sequence[int]:
        """Rows of every row group written so far, over all files in writing order."""
        return self._rolling.group_rows

    def close(self) -> list[DataFileMeta]:
        """Finish; returns the files in writing order (none without rows)."""
        return self._rolling.close()

    def abort(self) -> None:
        """Delete all files of this writer, closed ones too."""
        self._rolling.abort()


class _Describer:
    """The sequence range of the current file: a running counter over the writer's rows."""

    def __init__(self, store: TableStore, file_source: int, first_sequence: int) -> None:
        self._store, self._source = store, file_source
        self._start = self._next = first_sequence
        self.dictionary: tuple[str, ...] = ()
        self.delta: tuple[str, ...] = ()

    def add(self, rows: pa.Table) -> None:
        """See rows of the current file."""
        self._next += rows.num_rows

    def describe(self, name: str, size: int, found: ColumnValues) -> DataFileMeta:
        """Metadata of the file just closed."""
        store = self._store
        values, columns = value_stats(found, store.schema, store.options, level=0)
        meta = DataFileMeta(
            file_name=name,
            file_size=size,
            row_count=self._next - self._start,
            min_key=EMPTY_ROW,
            max_key=EMPTY_ROW,
            key_stats=EMPTY_STATS,
            value_stats=values,
            min_sequence_number=self._start,
            max_sequence_number=self._next - 1,
            schema_id=store.schema.id,
            level=0,
            creation_time_ms=store.clock.now_ms(),
            delete_row_count=0,
            file_source=self._source,
            value_stats_cols=columns,
        )
        self._start = self._next
        return meta


__all__ = ["AppendFileWriter"]
