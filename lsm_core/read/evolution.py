"""Rows of data-evolution tables (`data-evolution.enabled`): columns of several files, matched by row id.

Files whose ranges of row ids overlap form a group. A column comes from the newest file of the group that has it. The
values of BLOB columns are in separate files, which cover parts of the group's range.

Source: ``DataEvolutionSplitRead``, ``BlobFallbackRecordReader``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.files import open_append
from lsm_core.files.blob_descriptors import resolve_descriptors
from lsm_core.files.blob_reader import BlobValues, read_blobs
from lsm_core.files.positions import Deleted
from lsm_core.format.manifest import DataFileMeta, is_blob_file
from lsm_core.metadata.indexes import DeletionFile, read_vector
from lsm_core.metadata.manifests import COLUMNS, DESCRIPTORS, names_in
from lsm_core.metadata.store import TableStore
from lsm_core.types import TypeRoot

Batches = Generator[pa.RecordBatch, None, None]
_BATCH_ROWS = 65_536


def row_range(file: DataFileMeta, path: str) -> tuple[int, int]:
    """Return the first row id of a file, and the row id after its last row.

    Raises:
        CorruptFile: the file has no row ids; the message names ``path``.
    """
    if file.first_row_id is None:
        raise CorruptFile(path, "a data-evolution table has a file whose rows have no ids")
    return file.first_row_id, file.first_row_id + file.row_count


def blob_columns(store: TableStore) -> list[str]:
    """Return the names of the BLOB columns of a data-evolution table, whose values are in files of their own."""
    inline = names_in(store, DESCRIPTORS)
    return [f.name for f in store.schema.fields if f.type.root is TypeRoot.BLOB and f.name not in inline]


def descriptor_columns(store: TableStore, columns: Sequence[str]) -> list[str]:
    """Return those of some columns whose stored descriptors a read replaces by the bytes that they name.

    Args:
        store: the table.
        columns: columns that are read.
    """
    if store.options.get("blob-as-descriptor"):
        return []
    inline = names_in(store, DESCRIPTORS)
    return [name for name in columns if name in inline and _field_of(store, name).type == pa.binary()]


def without_blobs(store: TableStore) -> TableStore:
    """Return the table with the columns of its plain data files: all but the BLOB columns, whose values have own files.

    Args:
        store: the table.

    Returns:
        ``store`` itself if it has no BLOB column.
    """
    blobs = set(blob_columns(store))
    fields = tuple(field for field in store.schema.fields if field.name not in blobs)
    if len(fields) == len(store.schema.fields):
        return store
    return store.with_schema(replace(store.schema, fields=fields))


def group_files(files: Sequence[DataFileMeta], path: str) -> list[list[DataFileMeta]]:
    """Return the files in groups whose ranges of row ids overlap, ascending by row id.

    Args:
        files: files of one bucket.
        path: the bucket's directory, for errors.
    """
    groups: list[list[DataFileMeta]] = []
    reached = -1
    for file in sorted(files, key=lambda file: (row_range(file, path), file.file_name)):
        start, end = row_range(file, path)
        if start >= reached:
            groups.append([])
        groups[-1].append(file)
        reached = max(reached, end)
    return groups


def read_evolved(
    store: TableStore,
    place: tuple[bytes, int],
    files: Sequence[DataFileMeta],
    deletions: dict[str, DeletionFile],
    columns: Sequence[str],
    *,
    resolve: bool = False,
) -> Batches:
    """Yield the rows of files of one bucket, group by group, ascending by row id.

    Args:
        store: the table.
        place: partition (BinaryRow bytes) and number of the bucket.
        files: files of the bucket, whole groups only.
        deletions: deletion vectors by file name.
        columns: columns to return, in this order.
        resolve: whether values of `blob-descriptor-field` are the bytes that the stored descriptors name, unless
            `blob-as-descriptor` is true.

    Raises:
        CorruptFile: a file is missing or damaged, or the files of a group do not fit each other.
        UnsupportedFeature: a descriptor names a file that may not be read.
    """
    named = descriptor_columns(store, columns) if resolve else []
    for group in group_files(files, store.bucket_dir(*place)):
        with closing(_read_group(store, place, group, deletions, columns)) as batches:
            if not named:
                yield from batches
                continue
            for batch in batches:
                yield from resolve_descriptors(store, batch, named)


def _read_group(
    store: TableStore,
    place: tuple[bytes, int],
    group: Sequence[DataFileMeta],
    deletions: dict[str, DeletionFile],
    columns: Sequence[str],
) -> Batches:
    """Yield the rows of one group of files, without deleted rows."""
    bucket_dir = store.bucket_dir(*place)
    newest_first = sorted(group, key=lambda file: -file.max_sequence_number)
    plain = [file for file in newest_first if not is_blob_file(file.file_name)]
    if not plain or len({row_range(file, bucket_dir) for file in plain}) > 1:
        names = ", ".join(file.file_name for file in group[:4])
        raise CorruptFile(bucket_dir, f"files with overlapping but different ranges of row ids ({names})")
    start, end = row_range(plain[0], bucket_dir)
    target = pa.schema([_field_of(store, name) for name in columns])
    provided: dict[str, list[str]] = {}
    blobs: dict[str, list[DataFileMeta]] = {}
    for name in columns:
        provider = next((file for file in plain if _has_column(store, file, name)), None)
        holders = [file for file in newest_first if is_blob_file(file.file_name) and _has_column(store, file, name)]
        if holders:
            blobs[name] = holders
        elif provider is not None:
            provided.setdefault(provider.file_name, []).append(name)
    with ExitStack() as opened:
        streams: list[_Stream] = []
        for file in plain:
            if file.file_name in provided:
                rows = open_append(store, *place, file, columns=provided[file.file_name])
                streams.append(_Stream(opened.enter_context(closing(rows)), file.file_name))  # type: ignore[type-var]
        for name, holders in blobs.items():
            rows = _read_blob_column(store, place, holders, start, end, name)
            streams.append(_Stream(opened.enter_context(closing(rows)), name))
        vectors = [deletions[file.file_name] for file in group if file.file_name in deletions]
        deleted = _deleted_rows(store, vectors, end - start)
        at = 0
        while at < end - start:
            size = min([end - start - at, _BATCH_ROWS, *(stream.available() for stream in streams)])
            if not size:
                raise CorruptFile(bucket_dir, f"files of row ids {start} to {end - 1} have different numbers of rows")
            values = {name: array for stream in streams for name, array in stream.take(size).items()}
            arrays = [values[field.name] if field.name in values else pa.nulls(size, field.type) for field in target]
            batch = _batch_of(arrays, target, size)
            if deleted is not None:
                batch = batch.filter(arrow_array(~deleted.deleted_mask(at, size)))
            at += size
            if batch.num_rows:
                yield batch


def _field_of(store: TableStore, name: str) -> pa.Field:
    return store.schema.arrow_schema.field(name)


def _batch_of(arrays: Sequence[pa.Array], target: pa.Schema, size: int) -> pa.RecordBatch:
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.nulls(size, pa.struct([])))
    return pa.RecordBatch.from_arrays(list(arrays), schema=target)


def _has_column(store: TableStore, file: DataFileMeta, name: str) -> bool:
    """Return whether a file contains a column; every file without blobs has the columns of row tracking."""
    if name in COLUMNS:
        return not is_blob_file(file.file_name)
    field = store.schema.field(name)
    stored = next((column for column in store.schema_of(file.schema_id).fields if column.id == field.id), None)
    return stored is not None and (file.write_cols is None or stored.name in file.write_cols)


def _deleted_rows(store: TableStore, vectors: Sequence[DeletionFile], rows: int) -> Deleted | None:
    """Return the deleted rows of a group, or None.

    Raises:
        UnsupportedFeature: several files of the group have a deletion vector.
    """
    if len(vectors) > 1:
        raise UnsupportedFeature("several deletion vectors for the same row ids", store.name)
    return read_vector(store, vectors[0], rows) if vectors else None


class _Stream:
    """Rows of one source that are taken in pieces of any size."""

    def __init__(self, batches: Iterator[pa.RecordBatch], name: str) -> None:
        self._batches, self.name = batches, name
        self._held: pa.RecordBatch | None = None

    def available(self) -> int:
        """Return the number of rows that can be taken at once; 0 at the end."""
        while self._held is None or not self._held.num_rows:
            self._held = next(self._batches, None)
            if self._held is None:
                return 0
        return int(self._held.num_rows)

    def take(self, count: int) -> dict[str, pa.Array]:
        """Return the next rows as arrays by column name; ``count`` is at most :meth:`available`."""
        assert self._held is not None
        part, self._held = self._held.slice(0, count), self._held.slice(count)
        return dict(zip(part.schema.names, part.columns, strict=True))


def _read_blob_column(
    store: TableStore, place: tuple[bytes, int], files: Sequence[DataFileMeta], start: int, end: int, name: str
) -> Batches:
    """Yield the values of a BLOB column: of each row, the newest value that is no placeholder.

    Args:
        store: the table.
        place: partition (BinaryRow bytes) and number of the bucket.
        files: the blob files of the column, newest first.
        start: first row id of the group.
        end: row id after the last row of the group.
        name: the column.
    """
    generations: dict[int, list[DataFileMeta]] = {}
    for file in files:
        generations.setdefault(file.max_sequence_number, []).append(file)
    sources = [_BlobGeneration(store, place, members, start, end) for _, members in sorted(generations.items())[::-1]]
    target = pa.schema([_field_of(store, name)])
    at = start
    while at < end:
        size = min([end - at, *(source.available(at) for source in sources)])
        parts = [source.take(at, size) for source in sources]
        values, missing = parts[0].values, parts[0].placeholders
        for part in parts[1:]:
            if not missing.any():
                break
            values = pc.if_else(arrow_array(missing), part.values, values)
            missing = missing & part.placeholders
        yield pa.RecordBatch.from_arrays([values.cast(target.field(0).type)], schema=target)
        at += size


class _BlobGeneration:
    """Values of the blob files of one commit; rows that no file covers are placeholders."""

    def __init__(
        self, store: TableStore, place: tuple[bytes, int], files: Sequence[DataFileMeta], start: int, end: int
    ) -> None:
        self._store, self._place, self._end = store, place, end
        bucket_dir = store.bucket_dir(*place)
        self._files = sorted(files, key=lambda file: row_range(file, bucket_dir))
        reached = start
        for file in self._files:
            first, after = row_range(file, bucket_dir)
            if first < reached or after > end:
                raise CorruptFile(bucket_dir, f"blob file {file.file_name} overlaps another file of its commit")
            reached = after
        self._batches: Iterator[BlobValues] = iter(())
        self._held: BlobValues | None = None
        self._place_of_held = start

    def available(self, at: int) -> int:
        """Return the number of rows from row id ``at`` on that can be taken at once."""
        while self._held is None or not len(self._held.values):
            self._held = next(self._batches, None)
            if self._held is not None:
                break
            if not self._files:
                return self._end - at
            file = self._files[0]
            assert file.first_row_id is not None
            if file.first_row_id > at:
                return file.first_row_id - at
            self._files = self._files[1:]
            path = self._store.data_path(*self._place, file)
            self._batches = read_blobs(self._store.file_io, path, file.row_count)
        return len(self._held.values)

    def take(self, at: int, count: int) -> BlobValues:
        """Return the values of ``count`` rows from row id ``at`` on; ``count`` is at most what is available."""
        self.available(at)
        if self._held is None or not len(self._held.values):
            return BlobValues(pa.nulls(count, pa.large_binary()), np.ones(count, np.bool_))
        part = self._held.slice(0, count)
        self._held = self._held.slice(count, len(self._held.values))
        return part
