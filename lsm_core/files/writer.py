"""Writers of append and key-value files: rolling data files near the target size, and their metadata.

The columns of these files are those of format.md 8.2 and 8.3.

Source: ``RollingFileWriter``, ``KeyValueDataFileWriter``, ``RowDataFileWriter``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import batch_of, decoded_bytes, is_dictionary_of, numpy_array, one_array, plain_table, table_of
from lsm_core.errors import DredgeError, InvalidData
from lsm_core.files.formats import READ_ONLY, FileSink, compression_of, extension_of, format_for, format_of, open_sink
from lsm_core.files.formats.parquet import EXTENSION as PARQUET
from lsm_core.files.formats.parquet import ROW_GROUP_ROWS, codec_numbers
from lsm_core.files.index_writer import SUFFIX, IndexWriter, indexed_columns
from lsm_core.files.merged_nulls import with_merged_nulls
from lsm_core.files.row_group_copier import CopiedBytes
from lsm_core.files.splicing import OpenPart, SplicingSink, StoredGroup, part_opener
from lsm_core.format.binary_row import EMPTY_ROW, encode_rows
from lsm_core.format.file_index import BLOOM
from lsm_core.format.manifest import SOURCE_APPEND, DataFileMeta
from lsm_core.format.schema import (
    SEQUENCE_NUMBER,
    VALUE_KIND,
    TableSchema,
    append_arrow_schema,
    key_name,
    key_names,
    kv_arrow_schema,
)
from lsm_core.format.stats import EMPTY_STATS, ColumnValues, key_stats, value_stats
from lsm_core.metadata.manifests import stores_row_ids
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions
from lsm_core.types.arrow import refit

_GROUP_BYTES: Final = 64 * 1024 * 1024
_BLOCK_BYTES: Final = 128 * 1024 * 1024
"""Largest encoded bytes of a row group if option `file.block-size` is not set."""
_NULLS_REFUSED: Final = (
    "NOT NULL, but there are nulls in it, from before it became so: "
    "give these rows a value, or let the column have nulls"
)
_FULL_ENOUGH: Final = 0.9
_NO_LIMIT: Final = 1 << 62
"""Size and number of rows that no file reaches."""
"""Fraction of the target size from which a file is closed, because its next row group would be very small."""


class FileDescriber(Protocol):
    """Collector of a file's manifest metadata while its rows are written.

    Attributes:
        dictionary: columns that get a dictionary in any case (Parquet).
        delta: columns that are delta-encoded (Parquet).
    """

    dictionary: tuple[str, ...]
    delta: tuple[str, ...]

    def add(self, rows: pa.Table) -> None:
        """Include rows of the current file in its collected metadata."""

    def splice(self, group: StoredGroup) -> None:
        """Include a spliced row group of the current file in its collected metadata."""

    def describe(self, name: str, size: int, values: ColumnValues) -> DataFileMeta:
        """Return the metadata of the file just closed; the next :meth:`add` belongs to the next file.

        Args:
            name: name of the file.
            size: size of the file in bytes.
            values: bounds and null counts of the file's columns, by name.
        """


def row_group_bytes(store: TableStore, level: int) -> int:
    """Return the largest encoded bytes of a row group of new files on a level."""
    block = store.options.get("file.block-size") if store.options.format_of_level(level) not in READ_ONLY else None
    return int(block or store.options.given_size("parquet.block.size", _BLOCK_BYTES))


class RollingWriter:
    """Writer of batches into as many files of one bucket as the target size and `target-file-row-num` require.

    Every file is new (exclusive names). A failure removes all files of this writer before the error is raised.
    """

    def __init__(
        self,
        store: TableStore,
        partition: bytes,
        bucket: int,
        schema: pa.Schema,
        describer: FileDescriber,
        target_size: int,
        level: int = 0,
        *,
        rolls: bool = True,
        indexed: bool = True,
        splices: bool = False,
        copier: Executor | None = None,
    ) -> None:
        self._store = store
        self._copier = copier
        self._partition, self._bucket = partition, bucket
        self._schema = schema
        self._describer = describer
        self._target = max(target_size, 1) if rolls else _NO_LIMIT
        self._most_rows = max(1, int(store.options.get("target-file-row-num"))) if rolls else _NO_LIMIT
        self._file_rows = 0
        self._level = level
        # The blocks of row files are much smaller than good row groups.
        self._block = row_group_bytes(store, level)
        self._format = format_of(store.options, level)
        self._index = IndexWriter.of(store) if indexed else None
        self._splices = splices
        self._sink: FileSink | None = None
        self._sink_name = ""
        self._external_path: str | None = None
        self._paths: list[str] = []
        self._done: list[DataFileMeta] = []
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._encoded_row_bytes = 0.0
        self._closed = False
        self.group_rows: list[int] = []
        """Rows of each row group written so far, over all files."""
        self.spliced: dict[str, Sequence[CopiedBytes]] = {}
        """Spliced ranges of each file, with the digests of the bytes in their sources."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch.

        Columns are matched by name and cast to the file's schema. Text columns may be Arrow dictionaries.

        Raises:
            InvalidData: a null in a NOT NULL column.
            StorageFull: the disk is full.
            DredgeError: the writer was closed or aborted before.
        """
        if self._closed:
            raise DredgeError(f"table {self._store.name}: write to a file writer that was closed")
        if batch.num_rows == 0:
            return
        try:
            fitted = fit(batch, self._schema)
            for field, column in zip(fitted.schema, fitted.columns, strict=True):
                if not field.nullable and column.null_count:  # Java does not write these either
                    raise InvalidData(self._store.name, field.name, _NULLS_REFUSED)
            self._pending.append(fitted)
            self._pending_rows += fitted.num_rows
            self._pending_bytes += decoded_bytes(fitted)
            # Rows before a spliced row group are cut evenly: a last small row group would remain small for ever.
            while self._pending_rows >= (rows := self._group_rows()) * (1.5 if self._splices else 1):
                self._write_group(rows)
        except BaseException:
            self.abort()
            raise

    def close(self) -> list[DataFileMeta]:
        """Finish the last file, and return all files in writing order; an empty list if no row was written.

        Raises:
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        if self._closed:
            return list(self._done)
        try:
            self._write_pending()
            self._close_file()
        except BaseException:
            self.abort()
            raise
        self._closed = True
        return list(self._done)

    def flush(self) -> None:
        """Write all rows so far, also if they are few for a row group.

        Raises:
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        try:
            self._write_pending()
        except BaseException:
            self.abort()
            raise

    def splice(self, group: StoredGroup) -> None:
        """Add a row group of another file after all rows so far, without decoding it.

        Raises:
            CorruptFile: the file of the row group is damaged.
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        self.flush()
        try:
            self._close_if_full(group.rows, group.size)
            sink = self._sink or self._open(None)
            assert isinstance(sink, SplicingSink)
            sink.splice(group)
            self._describer.splice(group)
            self._end_group(group.rows)
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Delete every file of this writer; safe to call at any time and more than once."""
        self._closed = True
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        if self._sink is not None:
            self._sink.discard()
            self._sink = None
        for path in self._paths:
            try:
                self._store.delete(path)
            except (OSError, DredgeError):
                continue  # no snapshot names the file, so orphan cleaning removes it later
        self._paths, self._done = [], []

    @property
    def size(self) -> int:
        """Bytes of the current file; rows that are not encoded yet count with their decoded size."""
        return int(self._pending_bytes) + (0 if self._sink is None else int(self._sink.position))

    def _group_rows(self) -> int:
        """Return the rows of the next row group: bounded by count, decoded bytes, and the remaining target size."""
        decoded = max(self._pending_bytes / max(self._pending_rows, 1), 1.0)
        encoded = self._encoded_row_bytes or decoded
        remaining = self._target - (0 if self._sink is None or self._splices else self._sink.position)
        rows = int(max(1, min(ROW_GROUP_ROWS, _GROUP_BYTES / decoded, min(remaining, self._block) / encoded)))
        return min(rows, self._most_rows - (0 if self._splices else self._file_rows))

    def _write_pending(self) -> None:
        """Write all pending rows; a writer that splices cuts them into even row groups."""
        while self._pending_rows:
            rows = self._group_rows()
            if self._splices:
                rows = -(-self._pending_rows // -(-self._pending_rows // rows))
            self._write_group(min(self._pending_rows, rows))

    def _close_if_full(self, rows: int, size: float) -> None:
        """Close the current file of a writer that splices if it is nearer to its target without the next row group.

        A file that has the most row groups is closed too.

        Args:
            rows: rows of the row group.
            size: its bytes.
        """
        if isinstance(self._sink, SplicingSink) and (
            self._sink.position + size / 2 > self._target
            or self._file_rows + rows > self._most_rows
            or self._sink.is_full
        ):
            self._close_file()

    def _end_group(self, rows: int) -> None:
        """Count a row group that was written to the current file, and close the file if it is full."""
        self._file_rows += rows
        self.group_rows.append(rows)
        if self._sink is not None and (
            self._sink.position >= self._target * _FULL_ENOUGH or self._file_rows >= self._most_rows
        ):
            self._close_file()

    def _write_group(self, rows: int) -> None:
        table = table_of(self._pending)
        group, remaining = table.slice(0, rows), table.slice(rows)
        self._pending = remaining.to_batches()
        self._pending_rows = remaining.num_rows
        self._pending_bytes = sum(map(decoded_bytes, self._pending))
        name = format_for(self._store.options, self._level, group)
        if name != self._format:
            self._close_file()
            self._format = name
        if self._format != PARQUET:
            group = plain_table(group)
        if self._splices:
            self._close_if_full(rows, rows * self._encoded_row_bytes)
        sink = self._sink or self._open(group)
        before = sink.position
        sink.write(group)
        self._describer.add(group)
        if self._index is not None:
            self._index.add(group)
        self._encoded_row_bytes = max((sink.position - before) / group.num_rows, 1e-3)
        self._end_group(group.num_rows)

    def _open(self, sample: pa.Table | None) -> FileSink:
        store = self._store
        self._sink_name = store.new_file_name(store.options.data_file_prefix, extension_of(store.options, self._format))
        path, self._external_path = store.new_data_file(self._partition, self._bucket, self._sink_name)
        store.require_folder()
        self._paths += [path] if self._index is None else [path, path + SUFFIX]
        if self._splices or sample is None:
            self._sink = self._open_splicing(path)
            return self._sink
        self._sink = open_sink(
            store.file_io,
            path,
            sample,
            store.options,
            level=self._level,
            file_format=self._format,
            dictionary=self._describer.dictionary,
            delta=self._describer.delta,
        )
        return self._sink

    def _open_splicing(self, path: str) -> SplicingSink:
        part = part_opener(self._store.options, self._level, self._describer.dictionary, self._describer.delta)
        return SplicingSink(self._store.file_io, path, self._schema, part, self._copier)

    def _close_file(self) -> None:
        if self._sink is None:
            return
        size, values = self._sink.close()
        if isinstance(self._sink, SplicingSink):
            self.spliced[self._sink_name] = self._sink.spliced
        path, self._sink, self._file_rows = self._sink.path, None, 0
        meta = replace(self._describer.describe(self._sink_name, size, values), external_path=self._external_path)
        self._done.append(meta if self._index is None else self._index.finish(path, meta))


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch to a schema; columns are matched by name, and dictionaries of a column's type are kept.

    Args:
        batch: rows with at least the schema's columns.
        schema: the schema.

    Raises:
        KeyError: a column is missing.
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = []
    for field in schema:
        column = batch.column(field.name)
        columns.append(column if is_dictionary_of(column.type, field.type) else refit(column, field.type))
    return batch_of(columns, schema)


_LONG = np.iinfo(np.int64)


class _FileWriter:
    """Rolling writer of one (partition, bucket): what the writers of both kinds of tables share."""

    _rolling: RollingWriter

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of rows in the schema of the files.

        Raises:
            InvalidData: a null in a NOT NULL column.
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        self._rolling.write(batch)

    def flush(self) -> None:
        """Write all rows so far, also if they are few for a row group.

        Raises:
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        self._rolling.flush()

    def splice(self, group: StoredGroup) -> None:
        """Append a row group of another file without decoding it; with keys, they follow those of all rows so far.

        Raises:
            CorruptFile: the file of the row group is damaged.
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        self._rolling.splice(group)

    @property
    def spliced(self) -> Mapping[str, Sequence[CopiedBytes]]:
        """Spliced ranges of each finished file, with the digests of the bytes in their sources."""
        return self._rolling.spliced

    @property
    def size(self) -> int:
        """Bytes of the current file; rows that are not encoded yet count with their decoded size."""
        return self._rolling.size

    @property
    def group_rows(self) -> Sequence[int]:
        """Rows of each row group written so far, over all files in writing order."""
        return self._rolling.group_rows

    def close(self) -> list[DataFileMeta]:
        """Finish the last file, and return all files in writing order; an empty list if no row was written.

        Raises:
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        return self._rolling.close()

    def abort(self) -> None:
        """Delete all files of this writer, closed ones too."""
        self._rolling.abort()


class KeyValueFileWriter(_FileWriter):
    """Rolling writer of one (partition, bucket, level) of a primary-key table.

    Batches have the columns of `kv_arrow_schema`. Keys ascend over all batches of the writer, and each key occurs once;
    the caller (the merge) guarantees this.

    Source: ``KeyValueFileWriterFactory``.
    """

    @classmethod
    def of_changes(cls, store: TableStore, partition: bytes, bucket: int, total_buckets: int, level: int) -> Self:
        """Return a writer of changelog files; options `changelog-file.*` override the options of data files.

        Keys ascend over all batches, but a key occurs once per change, in the order of the changes.

        Args:
            store: the table.
            partition: BinaryRow bytes of the partition.
            bucket: number of the bucket.
            total_buckets: number of buckets of the partition.
            level: level of the compaction's output.
        """
        return cls(changelog_files_of(store), partition, bucket, total_buckets, level, SOURCE_APPEND)

    def __init__(
        self,
        store: TableStore,
        partition: bytes,
        bucket: int,
        total_buckets: int,
        level: int,
        file_source: int,
        *,
        splices: bool = False,
        copier: Executor | None = None,
    ) -> None:
        """Prepare the writer; the first file is created with the first rows.

        Args:
            store: the table.
            partition: BinaryRow bytes of the partition.
            bucket: number of the bucket.
            total_buckets: number of buckets of the partition.
            level: level of the files.
            file_source: 0 for append, 1 for compact.
            splices: whether :meth:`splice` is called.
            copier: executor of one thread that copies spliced row groups; None to copy them in the calling thread.
        """
        self.total_buckets = total_buckets
        describer = _Describer(store, level, file_source)
        schema = KeyValueFileWriter.file_schema(store)
        target = store.options.target_file_size(has_primary_key=True)
        self._rolling = RollingWriter(
            store, partition, bucket, schema, describer, target, level, splices=splices, copier=copier
        )

    @staticmethod
    def part_opener(store: TableStore, level: int) -> tuple[OpenPart, pa.Schema]:
        """Return the function that creates Parquet files as this writer does, and the schema of the files."""
        describer = _Describer(store, level, SOURCE_APPEND)
        opener = part_opener(store.options, level, describer.dictionary, describer.delta)
        return opener, KeyValueFileWriter.file_schema(store)

    @staticmethod
    def file_schema(store: TableStore) -> pa.Schema:
        """Return the schema of the files that this writer creates."""
        return with_merged_nulls(store, kv_arrow_schema(store.schema, thin=store.options.thin_mode))

    @staticmethod
    def encoding(store: TableStore, level: int) -> tuple[Callable[[Sequence[str]], Collection[int]], bool]:
        """Return how this writer's Parquet files are encoded.

        Args:
            store: the table.
            level: level of the files.

        Returns:
            A function from the path of a leaf to the numbers of its codecs, and whether columns are delta-encoded.
        """
        schema = KeyValueFileWriter.file_schema(store)
        codecs = codec_numbers(store.options, compression_of(store.options, level), schema)
        return codecs, bool(_Describer(store, level, SOURCE_APPEND).delta)


_CHANGELOG_OPTIONS: Final = {
    "file.format": ("changelog-file.format", "file.format.per.level"),
    "file.compression": ("changelog-file.compression", "file.compression.per.level"),
    "metadata.stats-mode": ("changelog-file.stats-mode", "metadata.stats-mode.per.level"),
    "data-file.prefix": ("changelog-file.prefix", ""),
}
"""For each option of data files: the changelog option that replaces it, and the option that is then removed, or ""."""


def changelog_files_of(store: TableStore) -> TableStore:
    """Return ``store`` for writing changelog files: set options `changelog-file.*` replace the options of data files.

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
        # Where an index selects rows, Java miscounts the rows that it skips in a delta-encoded page, and returns values
        # of other rows (`VectorizedDeltaBinaryPackedReader`; tests/interop/test_file_indexes.py). Tables with deletion
        # vectors may get an index (`pk-btree.index.columns`) at any time, which Java then builds for existing files.
        selects_rows = any(column.kind != BLOOM for column in indexed_columns(schema, store.options))
        if selects_rows or store.options.deletion_vectors_enabled:
            self.delta = ()
        self._reset()

    def _reset(self) -> None:
        self._rows = 0
        self._deletes = 0
        self._first: pa.Table | None = None
        self._last: pa.Table | None = None
        self._low, self._high = _LONG.max, _LONG.min

    def splice(self, group: StoredGroup) -> None:
        """Include a spliced row group without deletes in the metadata of the current file."""
        keys = pa.table(group.keys.columns, self._keys)
        if self._first is None:
            self._first = keys.slice(0, 1)
        self._last = keys.slice(1, 1)
        self._rows += group.rows
        low, high = group.sequences()
        self._low, self._high = min(self._low, low), max(self._high, high)

    def add(self, rows: pa.Table) -> None:
        """Include rows of the current file in its collected metadata."""
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
        """Return the metadata of the file just closed.

        Args:
            name: name of the file.
            size: size of the file in bytes.
            column_values: bounds and null counts of the file's columns, by name.
        """
        assert self._first is not None
        assert self._last is not None
        store = self._store
        values, columns = value_stats(column_values, store.schema, store.options, level=self._level)
        pairs = zip(self._first.columns, self._last.columns, strict=True)
        ends = [pa.concat_arrays([one_array(first), one_array(last)]) for first, last in pairs]
        keys = encode_rows(ends, store.schema.trimmed_key_types)
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


class AppendFileWriter(_FileWriter):
    """Rolling writer of one (partition, bucket) of an append table.

    If the files store the columns `_ROW_ID` and `_SEQUENCE_NUMBER` (row tracking), their metadata has the range of the
    stored sequence numbers. The largest number is then 0 if a row has no sequence number yet.

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
        *,
        rolls: bool = True,
        columns: Sequence[str] | None = None,
        splices: bool = False,
    ) -> None:
        """Prepare the writer; the first file is created with the first rows.

        Args:
            store: the table.
            partition: BinaryRow bytes of the partition.
            bucket: number of the bucket.
            total_buckets: number of buckets of the partition.
            file_source: 0 for append, 1 for compact.
            first_sequence: sequence number of the first row; each further row has the next number. For new rows of a
                table without buckets it is 0. For a rewrite of small files it is the smallest sequence number of the
                first input file.
            rolls: whether a new file begins at `target-file-size` and `target-file-row-num`; otherwise all rows are in
                one file.
            columns: columns to write, for files with some columns of their rows (data evolution); None for all.
            splices: whether :meth:`splice` is called.
        """
        self.total_buckets = total_buckets
        stored = store if columns is None else store.with_schema(_schema_of_columns(store.schema, columns))
        schema = append_arrow_schema(stored.schema)
        target = store.options.target_file_size(has_primary_key=False)
        describer = _AppendDescriber(stored, file_source, first_sequence, has_all_columns=columns is None)
        self._rolling = RollingWriter(
            store, partition, bucket, schema, describer, target, rolls=rolls, indexed=columns is None, splices=splices
        )

    @staticmethod
    def part_opener(store: TableStore) -> tuple[OpenPart, pa.Schema]:
        """Return the function that creates Parquet files as this writer does, and the schema of the files."""
        describer = _AppendDescriber(store, SOURCE_APPEND, 0, has_all_columns=True)
        schema = append_arrow_schema(store.schema)
        return part_opener(store.options, 0, describer.dictionary, describer.delta), schema

    @staticmethod
    def codecs(store: TableStore) -> Callable[[Sequence[str]], Collection[int]]:
        """Return a function from the path of a leaf to the numbers of the codecs that this writer uses for it."""
        return codec_numbers(store.options, compression_of(store.options, 0), append_arrow_schema(store.schema))


def _schema_of_columns(schema: TableSchema, columns: Sequence[str]) -> TableSchema:
    """Return the schema of a file with some columns of its rows."""
    return replace(schema, fields=tuple(schema.field(name) for name in columns))


class _AppendDescriber:
    """Sequence range of the current file, collected by counting the rows that the writer writes."""

    def __init__(
        self, store: TableStore, file_source: int, first_sequence: int, *, has_all_columns: bool = True
    ) -> None:
        self._store, self._source, self._has_all_columns = store, file_source, has_all_columns
        self._tracked = stores_row_ids(store.schema)
        self._numbers: list[tuple[int, int]] = []
        self._start = self._next = first_sequence
        self.dictionary: tuple[str, ...] = ()
        self.delta: tuple[str, ...] = ()

    def add(self, rows: pa.Table) -> None:
        """Include rows of the current file in its sequence range."""
        self._next += rows.num_rows
        if self._tracked:
            numbers = rows.column(SEQUENCE_NUMBER)
            ends = pc.min_max(numbers)
            self._numbers.append((ends["min"].as_py() or 0, 0 if numbers.null_count else ends["max"].as_py()))

    def splice(self, group: StoredGroup) -> None:
        """Include a spliced row group in the sequence range of the current file."""
        self._next += group.rows
        if self._tracked:
            low, high = group.sequences()
            self._numbers.append((low, 0 if group.nulls(SEQUENCE_NUMBER) else high))

    def describe(self, name: str, size: int, column_values: ColumnValues) -> DataFileMeta:
        """Return the metadata of the file just closed.

        Args:
            name: name of the file.
            size: size of the file in bytes.
            column_values: bounds and null counts of the file's columns, by name.
        """
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
            write_cols=store.schema.field_names if self._tracked or not self._has_all_columns else None,
        )
        self._start = self._next
        return meta
