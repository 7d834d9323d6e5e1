"""Writer of blob files (`.blob`), and of rows whose BLOB columns are in such files beside a file of the other columns.

Source: ``BlobFormatWriter``, ``DedicatedFormatRollingFileWriter``, ``MultipleBlobFileWriter`` of Paimon 2.0.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.errors import DredgeError, InvalidData, UnsupportedFeature
from lsm_core.files.blob_reader import CHECK, HEAD, MAGIC, NULL, PLACEHOLDER, TAIL, VERSION
from lsm_core.files.writer import AppendFileWriter
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.format.manifest import BLOB_EXTENSION, DataFileMeta
from lsm_core.format.stats import EMPTY_STATS
from lsm_core.metadata.store import TableStore
from lsm_core.storage import OutputFile

_REFERENCES: Final = ((0x424C4F4244455343).to_bytes(8, "little"), (0x424C4F4256494557).to_bytes(8, "little"))
"""Bytes 1 to 8 of a descriptor ("BLOBDESC") and of a view ("BLOBVIEW")."""


def encode_lengths(lengths: npt.NDArray[np.int64]) -> bytes:
    """Return the index of a blob file: variable-length integers of the differences between record lengths.

    Args:
        lengths: length of each record in bytes, -1 for null, -2 for a placeholder.
    """
    deltas = np.diff(lengths, prepend=0).astype(np.int64)
    numbers = ((deltas << 1) ^ (deltas >> 63)).view(np.uint64)
    sizes = np.ones(len(numbers), np.int64)
    for place in range(1, 10):  # bytes of a number, at most ten
        sizes[numbers >> np.uint64(7 * place) > 0] = place + 1
    starts = np.cumsum(sizes) - sizes
    encoded = np.zeros(int(sizes.sum()), np.uint8)
    for place in range(int(sizes.max(initial=0))):
        longer = sizes > place
        more = (sizes[longer] > place + 1).astype(np.uint8) << 7
        part = (numbers[longer] >> np.uint64(7 * place)) & np.uint64(0x7F)
        encoded[starts[longer] + place] = part.astype(np.uint8) | more
    return encoded.tobytes()


class BlobFileWriter:
    """Rolling writer of one BLOB column of a bucket; each value is a record between a header and a checksum.

    A new file begins at `blob.target-file-size`, or `target-file-size` if that is not set.
    """

    def __init__(
        self, store: TableStore, partition: bytes, bucket: int, column: str, file_source: int, *, rolls: bool = True
    ) -> None:
        """Prepare the writer; the first file is created with the first value.

        Args:
            store: the table.
            partition: BinaryRow bytes of the partition.
            bucket: number of the bucket.
            column: the BLOB column.
            file_source: 0 for append, 1 for compact.
            rolls: whether a new file begins at the target size.
        """
        self._store, self._place, self._column, self._source = store, (partition, bucket), column, file_source
        size = store.options.get("blob.target-file-size")
        self._target = int(store.options.target_file_size(has_primary_key=False) if size is None else size)
        self._rolls = rolls
        self._nullable = store.schema.field(column).type.nullable
        self._output: OutputFile | None = None
        self._name = ""
        self._external_path: str | None = None
        self._paths: list[str] = []
        self._lengths: list[int] = []
        self._done: list[DataFileMeta] = []

    def write(self, values: pa.Array, placeholders: npt.NDArray[np.bool_] | None = None) -> None:
        """Append the values of consecutive rows.

        Args:
            values: binary values; null for a null and for a placeholder.
            placeholders: mask of the rows whose value is in an older file; None for none.

        Raises:
            InvalidData: a null in a NOT NULL column.
            UnsupportedFeature: a value is a reference to another file, which Java would open.
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        try:
            self._require_values(values, placeholders)
            for place, value in enumerate(values):  # blobs are large
                if placeholders is not None and placeholders[place]:
                    self._append(None, PLACEHOLDER)
                elif not value.is_valid:
                    self._append(None, NULL)
                else:
                    self._append(value.as_buffer(), 0)
        except BaseException:
            self.abort()
            raise

    def _require_values(self, values: pa.Array, placeholders: npt.NDArray[np.bool_] | None) -> None:
        """Raise InvalidData for a null that the column does not allow, UnsupportedFeature for references to files."""
        store, column = self._store, self._column
        nulls = int(values.null_count) - (0 if placeholders is None else int(placeholders.sum()))
        if nulls > 0 and not self._nullable:
            raise InvalidData(store.name, column, "NOT NULL, but there are nulls in it")
        heads = pc.binary_slice(values, 1, 9)
        for magic in _REFERENCES:
            if pc.any(pc.equal(heads, pa.scalar(magic, heads.type)), min_count=0).as_py():
                reason = "a value is a descriptor or view of another file, which Java would copy from there"
                raise UnsupportedFeature(f"column '{column}' of type BLOB: {reason}; write the bytes", store.name)

    def _append(self, payload: pa.Buffer | None, length: int) -> None:
        output = self._output or self._open()
        if payload is not None:
            length = HEAD + payload.size + TAIL
            size = length.to_bytes(TAIL - CHECK, "little")
            check = zlib.crc32(size, zlib.crc32(payload, zlib.crc32(MAGIC)))
            output.write(MAGIC)
            output.write(payload)
            output.write(size + check.to_bytes(CHECK, "little"))
        self._lengths.append(length)
        if self._rolls and output.tell() >= self._target:
            self._close_file()

    def _open(self) -> OutputFile:
        store = self._store
        store.require_folder()
        self._name = store.new_file_name(store.options.data_file_prefix, BLOB_EXTENSION.removeprefix("."))
        path, self._external_path = store.new_data_file(*self._place, self._name)
        self._paths.append(path)
        self._output = store.file_io.open_output(path)
        return self._output

    def _close_file(self) -> None:
        output, store = self._output, self._store
        if output is None:
            return
        index = encode_lengths(np.asarray(self._lengths, np.int64))
        output.write(index + len(index).to_bytes(4, "little") + bytes([VERSION]))
        size, rows = output.tell(), len(self._lengths)
        output.close()
        self._output, self._lengths = None, []
        self._done.append(
            DataFileMeta(
                file_name=self._name,
                file_size=size,
                row_count=rows,
                min_key=EMPTY_ROW,
                max_key=EMPTY_ROW,
                key_stats=EMPTY_STATS,
                value_stats=EMPTY_STATS,
                min_sequence_number=0,
                max_sequence_number=0,
                schema_id=store.schema.id,
                level=0,
                creation_time_ms=store.clock.now_ms(),
                delete_row_count=0,
                file_source=self._source,
                value_stats_cols=(),
                write_cols=(self._column,),
                external_path=self._external_path,
            )
        )

    def close(self) -> list[DataFileMeta]:
        """Finish the last file, and return all files in writing order.

        Raises:
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        try:
            self._close_file()
        except BaseException:
            self.abort()
            raise
        done, self._done, self._paths = self._done, [], []
        return done

    def abort(self) -> None:
        """Delete all files that :meth:`close` did not return."""
        if self._output is not None:
            self._output.abort()
            self._output = None
        for path in self._paths:
            try:
                self._store.delete(path)
            except (OSError, DredgeError):
                continue  # no snapshot names the file, so orphan cleaning removes it later
        self._paths, self._done, self._lengths = [], [], []


class BlobRowsWriter:
    """Rolling writer of rows with BLOB columns: a file of the other columns, then blob files with the same rows.

    The files are returned in the order in which a commit gives them row ids.
    """

    def __init__(
        self,
        store: TableStore,
        partition: bytes,
        bucket: int,
        total_buckets: int,
        file_source: int,
        *,
        blobs: Sequence[str],
    ) -> None:
        """Prepare the writer; the first files are created with the first rows.

        Args:
            store: the table.
            partition: BinaryRow bytes of the partition.
            bucket: number of the bucket.
            total_buckets: number of buckets of the partition.
            file_source: 0 for append, 1 for compact.
            blobs: the BLOB columns.
        """
        self._store, self._place, self._source = store, (partition, bucket), file_source
        self._total = total_buckets
        self._blobs, self._plain = list(blobs), [name for name in store.schema.field_names if name not in blobs]
        self._target = store.options.target_file_size(has_primary_key=False)
        self._most_rows = max(1, int(store.options.get("target-file-row-num")))
        self._rows = 0
        self._writer: AppendFileWriter | None = None
        self._blob_writers: dict[str, BlobFileWriter] = {}
        self._done: list[DataFileMeta] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows with the table's columns.

        Raises:
            InvalidData: a null in a NOT NULL column.
            UnsupportedFeature: a BLOB value is a reference to another file.
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        try:
            while batch.num_rows:
                part = batch.slice(0, self._most_rows - self._rows)
                batch = batch.slice(part.num_rows)
                self._write_part(part)
        except BaseException:
            self.abort()
            raise

    def _write_part(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = AppendFileWriter(
                self._store, *self._place, self._total, self._source, columns=self._plain, rolls=False
            )
            self._blob_writers = {
                name: BlobFileWriter(self._store, *self._place, name, self._source) for name in self._blobs
            }
        self._writer.write(batch.select(self._plain))
        for name, writer in self._blob_writers.items():
            writer.write(one_array(batch.column(name)))
        self._rows += batch.num_rows
        if self._rows >= self._most_rows or self._writer.size >= self._target:
            self._close_files()

    def _close_files(self) -> None:
        if self._writer is None:
            return
        files = self._writer.close()
        if len(files) > 1:
            feature = f"values that a file of format '{self._store.options.file_format}' cannot store"
            raise UnsupportedFeature(f"{feature}: set 'file.format' = 'parquet'", self._store.name)
        self._done += files
        for writer in self._blob_writers.values():
            self._done += writer.close()
        self._writer, self._blob_writers, self._rows = None, {}, 0

    def close(self) -> list[DataFileMeta]:
        """Finish the last files, and return all files; an empty list if no row was written.

        Raises:
            StorageFull: the disk is full. After any error, every file of this writer is deleted.
        """
        try:
            self._close_files()
        except BaseException:
            self.abort()
            raise
        done, self._done = self._done, []
        return done

    def abort(self) -> None:
        """Delete all files that :meth:`close` did not return."""
        if self._writer is not None:
            self._writer.abort()
        for writer in self._blob_writers.values():
            writer.abort()
        for file in self._done:
            try:
                self._store.delete(self._store.data_path(*self._place, file))
            except (OSError, DredgeError):
                continue  # no snapshot names the file, so orphan cleaning removes it later
        self._writer, self._blob_writers, self._done = None, {}, []
