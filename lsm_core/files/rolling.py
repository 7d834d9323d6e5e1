"""Writer of one stream of rows into files near the target size, with row groups of about 131k rows."""

from __future__ import annotations

from typing import Final, Protocol

import pyarrow as pa

from lsm_core.errors import DredgeError, InvalidData
from lsm_core.files.formats import FileSink, extension_of, format_for, format_of, open_sink
from lsm_core.files.formats.parquet import EXTENSION as PARQUET
from lsm_core.files.formats.parquet import ROW_GROUP_ROWS
from lsm_core.files.index_writer import SUFFIX, IndexWriter
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.stats import ColumnValues
from lsm_core.metadata.store import TableStore
from lsm_core.types.arrow import refit
from lsm_core.types.dictionaries import batch_of, decoded_bytes, is_dictionary_of, plain_table, table_of

_GROUP_BYTES: Final = 64 * 1024 * 1024
_BLOCK_BYTES: Final = 128 * 1024 * 1024
"""Encoded bytes of a row group without option `file.block-size`."""
_NULLS_REFUSED: Final = (
    "NOT NULL, but there are nulls in it, from before it became so: "
    "give these rows a value, or let the column have nulls"
)
_FULL_ENOUGH: Final = 0.9
"""Share of the target size from which a file is closed, because another row group would be very small."""


class FileDescriber(Protocol):
    """Collector of a file's manifest metadata while its rows are written."""

    dictionary: tuple[str, ...]
    delta: tuple[str, ...]

    def add(self, rows: pa.Table) -> None:
        """Add rows of the current file."""

    def describe(self, name: str, size: int, values: ColumnValues) -> DataFileMeta:
        """Return the metadata of the file just closed; the next :meth:`add` starts another file."""


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
    ) -> None:
        self._store = store
        self._partition, self._bucket = partition, bucket
        self._schema = schema
        self._describer = describer
        self._target = max(target_size, 1)
        self._most_rows = max(1, int(store.options.get("target-file-row-num")))
        self._file_rows = 0
        self._level = level
        self._block = int(store.options.get("file.block-size") or _BLOCK_BYTES)
        self._format = format_of(store.options, level)
        self._index = IndexWriter.of(store)
        self._sink: FileSink | None = None
        self._sink_name = ""
        self._paths: list[str] = []
        self._done: list[DataFileMeta] = []
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._encoded_row_bytes = 0.0
        self._closed = False
        self.group_rows: list[int] = []
        """Rows of each row group written so far, over all files."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch.

        Columns are matched by name and cast to the file's schema. Text columns may be Arrow dictionaries.

        Raises:
            InvalidData: a null in a NOT NULL column.
            StorageFull: the disk is full.
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
            while self._pending_rows >= (rows := self._group_rows()):
                self._write_group(rows)
        except BaseException:
            self.abort()
            raise

    def close(self) -> list[DataFileMeta]:
        """Finish the last file, and return all files in writing order; none without rows."""
        if self._closed:
            return list(self._done)
        try:
            while self._pending_rows:
                self._write_group(min(self._pending_rows, self._group_rows()))
            self._close_file()
        except BaseException:
            self.abort()
            raise
        self._closed = True
        return list(self._done)

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

    def _group_rows(self) -> int:
        """Return the rows of the next row group: bounded by count, decoded bytes, and the remaining target size."""
        decoded = max(self._pending_bytes / max(self._pending_rows, 1), 1.0)
        encoded = self._encoded_row_bytes or decoded
        remaining = self._target - (self._sink.position if self._sink is not None else 0)
        rows = int(max(1, min(ROW_GROUP_ROWS, _GROUP_BYTES / decoded, min(remaining, self._block) / encoded)))
        return min(rows, self._most_rows - self._file_rows)

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
        sink = self._sink or self._open(group)
        before = sink.position
        sink.write(group)
        self._describer.add(group)
        if self._index is not None:
            self._index.add(group)
        self._encoded_row_bytes = max((sink.position - before) / group.num_rows, 1e-3)
        self._file_rows += group.num_rows
        self.group_rows.append(group.num_rows)
        if sink.position >= self._target * _FULL_ENOUGH or self._file_rows >= self._most_rows:
            self._close_file()

    def _open(self, sample: pa.Table) -> FileSink:
        store = self._store
        self._sink_name = store.new_file_name(store.options.data_file_prefix, extension_of(store.options, self._format))
        path = store.data_path(self._partition, self._bucket, self._sink_name)
        store.require_folder()
        self._paths += [path] if self._index is None else [path, path + SUFFIX]
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

    def _close_file(self) -> None:
        if self._sink is None:
            return
        size, values = self._sink.close()
        path, self._sink, self._file_rows = self._sink.path, None, 0
        meta = self._describer.describe(self._sink_name, size, values)
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
