"""Writer of append files.

It turns batches in any order into rolling data files and their manifest metadata (format.md 8.3).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.files.rolling import RollingWriter
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import SEQUENCE_NUMBER, append_arrow_schema
from lsm_core.format.stats import EMPTY_STATS, ColumnValues, value_stats
from lsm_core.metadata.manifests import stores_row_ids
from lsm_core.metadata.store import TableStore


class AppendFileWriter:
    """Rolling writer of one (partition, bucket) of an append table.

    Files that store row ids (`metadata.row_tracking`) have the range of their rows' sequence numbers, with 0 as the
    largest where rows have none yet.

    Source: ``RowDataRollingFileWriter``.
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
        """Prepare the writer; the first file is created with the first rows.

        Args:
            store: the table.
            partition: BinaryRow bytes of the partition.
            bucket: number of the bucket.
            total_buckets: number of buckets of the partition.
            file_source: 0 for append, 1 for compact.
            first_sequence: start of the row counter: 0 in tables without buckets; for a rewrite of small files, the
                minimum of the first input.
        """
        self.total_buckets = total_buckets
        schema = append_arrow_schema(store.schema)
        target = store.options.target_file_size(has_primary_key=False)
        describer = _Describer(store, file_source, first_sequence)
        self._rolling = RollingWriter(store, partition, bucket, schema, describer, target)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of table columns.

        Raises:
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        self._rolling.write(batch)

    @property
    def group_rows(self) -> Sequence[int]:
        """Rows of each row group written so far, over all files in writing order."""
        return self._rolling.group_rows

    def close(self) -> list[DataFileMeta]:
        """Finish, and return the files in writing order; none without rows."""
        return self._rolling.close()

    def abort(self) -> None:
        """Delete all files of this writer, closed ones too."""
        self._rolling.abort()


class _Describer:
    """Sequence range of the current file: a running counter over the writer's rows."""

    def __init__(self, store: TableStore, file_source: int, first_sequence: int) -> None:
        self._store, self._source = store, file_source
        self._tracked = stores_row_ids(store.schema)
        self._numbers: list[tuple[int, int]] = []
        self._start = self._next = first_sequence
        self.dictionary: tuple[str, ...] = ()
        self.delta: tuple[str, ...] = ()

    def add(self, rows: pa.Table) -> None:
        """Count rows of the current file."""
        self._next += rows.num_rows
        if self._tracked:
            numbers = rows.column(SEQUENCE_NUMBER)
            ends = pc.min_max(numbers)
            self._numbers.append((ends["min"].as_py() or 0, 0 if numbers.null_count else ends["max"].as_py()))

    def describe(self, name: str, size: int, column_values: ColumnValues) -> DataFileMeta:
        """Return the metadata of the file just closed."""
        store = self._store
        values, columns = value_stats(column_values, store.schema, store.options, level=0)
        low, high = self._start, self._next - 1
        if self._tracked:
            low = min((number for number, _ in self._numbers if number), default=0)
            high = max(high for _, high in self._numbers) if all(high for _, high in self._numbers) else 0
            self._numbers = []
        meta = DataFileMeta(
            file_name=name,
            file_size=size,
            row_count=self._next - self._start,
            min_key=EMPTY_ROW,
            max_key=EMPTY_ROW,
            key_stats=EMPTY_STATS,
            value_stats=values,
            min_sequence_number=low,
            max_sequence_number=high,
            schema_id=store.schema.id,
            level=0,
            creation_time_ms=store.clock.now_ms(),
            delete_row_count=0,
            file_source=self._source,
            value_stats_cols=columns,
            write_cols=store.schema.field_names if self._tracked else None,
        )
        self._start = self._next
        return meta
