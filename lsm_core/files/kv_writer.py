"""Writer of key-value files: from sorted rows to rolling data files and their manifest metadata (format.md 8.2)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final, Self

import numpy as np
import pyarrow as pa

from lsm_core.arrays import numpy_array, one_array
from lsm_core.files.index_writer import indexed_columns
from lsm_core.files.merged_nulls import with_merged_nulls
from lsm_core.files.rolling import RollingWriter
from lsm_core.format.binary_row import encode_rows
from lsm_core.format.file_index import BLOOM
from lsm_core.format.manifest import SOURCE_APPEND, DataFileMeta
from lsm_core.format.schema import SEQUENCE_NUMBER, VALUE_KIND, key_name, key_names, kv_arrow_schema
from lsm_core.format.stats import ColumnValues, key_stats, value_stats
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions

_LONG = np.iinfo(np.int64)


class KeyValueFileWriter:
    """Rolling writer of one (partition, bucket, level) of a primary-key table.

    Batches are in KV layout, ascending by key over the writer's whole life, each key once; the caller (merge)
    guarantees it.

    Source: ``KeyValueFileWriterFactory``.
    """

    @classmethod
    def of_changes(cls, store: TableStore, partition: bytes, bucket: int, total_buckets: int, level: int) -> Self:
        """Return a writer of changelog files, configured by options `changelog-file.*`, else as for data files.

        Its rows ascend by key too, but a key comes as often as it changed, in the order of the changes.

        Args:
            store: the table.
            partition: BinaryRow bytes of the partition.
            bucket: number of the bucket.
            total_buckets: number of buckets of the partition.
            level: level of the compaction's output.
        """
        return cls(changelog_files_of(store), partition, bucket, total_buckets, level, SOURCE_APPEND)

    def __init__(
        self, store: TableStore, partition: bytes, bucket: int, total_buckets: int, level: int, file_source: int
    ) -> None:
        """Prepare the writer; the first file is created with the first rows.

        Args:
            store: the table.
            partition: BinaryRow bytes of the partition.
            bucket: number of the bucket.
            total_buckets: number of buckets of the partition.
            level: level of the files.
            file_source: 0 for append, 1 for compact.
        """
        self.total_buckets = total_buckets
        describer = _Describer(store, level, file_source)
        schema = with_merged_nulls(store, kv_arrow_schema(store.schema, thin=store.options.thin_mode))
        target = store.options.target_file_size(has_primary_key=True)
        self._rolling = RollingWriter(store, partition, bucket, schema, describer, target, level)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a KV batch.

        Raises:
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        self._rolling.write(batch)

    @property
    def group_rows(self) -> Sequence[int]:
        """Rows of each row group written so far, over all files in writing order."""
        return self._rolling.group_rows

    def close(self) -> list[DataFileMeta]:
        """Finish, and return the files in key order; none without rows."""
        return self._rolling.close()

    def abort(self) -> None:
        """Delete all files of this writer, closed ones too."""
        self._rolling.abort()


_CHANGELOG_OPTIONS: Final = {
    "file.format": ("changelog-file.format", "file.format.per.level"),
    "file.compression": ("changelog-file.compression", "file.compression.per.level"),
    "metadata.stats-mode": ("changelog-file.stats-mode", "metadata.stats-mode.per.level"),
    "data-file.prefix": ("changelog-file.prefix", ""),
}
"""For each option of data files, the option of changelog files that replaces it, and an option that the latter
overrides.
"""


def changelog_files_of(store: TableStore) -> TableStore:
    """Return the table as writers of changelog files use it, with options `changelog-file.*` in place.

    Source: ``KeyValueFileWriterFactory``.
    """
    raw = dict(store.options.raw)
    for option, (own, overruled) in _CHANGELOG_OPTIONS.items():
        chosen = store.options.get(own)
        if chosen is not None:
            raw[option] = str(chosen)
            raw.pop(overruled, None)
    view = copy.copy(store)
    view.options = TableOptions(raw, store.name, stored=True)
    return view


class _Describer:
    """Keys, sequence range and delete count of the current file, collected while its rows are written."""

    def __init__(self, store: TableStore, level: int, file_source: int) -> None:
        self._store, self._level, self._source = store, level, file_source
        schema = store.schema
        # Thin files store the key once, among the values.
        self._keys = list(schema.trimmed_primary_keys if store.options.thin_mode else key_names(schema))
        self.dictionary: tuple[str, ...] = (VALUE_KIND,)
        # Sorted or nearly sorted integers: the sequence number, and integer keys under both of their names.
        arrow, whole = schema.arrow_schema, {pa.int32(), pa.int64()}
        integers = [name for name in schema.trimmed_primary_keys if arrow.field(name).type in whole]
        stored_twice = [] if store.options.thin_mode else [key_name(name) for name in integers]
        self.delta: tuple[str, ...] = (SEQUENCE_NUMBER, *stored_twice, *integers)
        # Where an index selects rows, Java 1.4.2 miscounts the rows that it skips in a delta-encoded page, and returns
        # values of other rows (`VectorizedDeltaBinaryPackedReader`; tests/interop/test_file_indexes.py).
        if any(column.kind != BLOOM for column in indexed_columns(schema, store.options)):
            self.delta = ()
        self._reset()

    def _reset(self) -> None:
        self._rows = 0
        self._deletes = 0
        self._first: pa.Table | None = None
        self._last: pa.Table | None = None
        self._low, self._high = _LONG.max, _LONG.min

    def add(self, rows: pa.Table) -> None:
        """Add rows of the current file."""
        keys = rows.select(self._keys)
        if self._first is None:
            self._first = keys.slice(0, 1)
        self._last = keys.slice(rows.num_rows - 1, 1)
        self._rows += rows.num_rows
        kinds = numpy_array(rows.column(VALUE_KIND))
        # -U and -D are the odd kinds.
        self._deletes += int(np.count_nonzero(kinds & 1))
        sequences = numpy_array(rows.column(SEQUENCE_NUMBER))
        self._low = min(self._low, int(sequences.min()))
        self._high = max(self._high, int(sequences.max()))

    def describe(self, name: str, size: int, column_values: ColumnValues) -> DataFileMeta:
        """Return the metadata of the file just closed."""
        assert self._first is not None
        assert self._last is not None
        store = self._store
        values, columns = value_stats(column_values, store.schema, store.options, level=self._level)
        ends = pa.concat_tables([self._first, self._last])
        keys = encode_rows([one_array(column) for column in ends.columns], store.schema.trimmed_key_types)
        meta = DataFileMeta(
            file_name=name,
            file_size=size,
            row_count=self._rows,
            min_key=bytes(keys[0].as_buffer()),
            max_key=bytes(keys[1].as_buffer()),
            key_stats=key_stats(column_values, store.schema),
            value_stats=values,
            min_sequence_number=int(self._low),
            max_sequence_number=int(self._high),
            schema_id=store.schema.id,
            level=self._level,
            creation_time_ms=store.clock.now_ms(),
            delete_row_count=self._deletes,
            file_source=self._source,
            value_stats_cols=columns,
        )
        self._reset()
        return meta
