"""Readers of append and key-value files, batch by batch, with conversion to the schema that the rows are read with.

Conversion matches columns by field id, casts them, and fills new columns with nulls. A file with the table's current
schema has no extra cost: its columns are only looked up by name. Each key column is decoded once, and system columns
only when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import arrow_array, as_dictionaries
from lsm_core.errors import ColumnNotFound, CorruptFile, InvalidData, InvalidSchema, UnsupportedFeature
from lsm_core.files.formats import FileLayout, FileSource
from lsm_core.files.formats import open_source as open_file
from lsm_core.files.merged_nulls import merging_leaves_nulls
from lsm_core.files.positions import Deleted, RowPositions, deleted_mask, places_of
from lsm_core.files.shredded_variants import unshred
from lsm_core.format.manifest import SOURCE_APPEND, DataFileMeta
from lsm_core.format.schema import (
    KEY_PREFIX,
    SEQUENCE_NUMBER,
    VALUE_KIND,
    DataField,
    TableSchema,
    append_arrow_schema,
    kv_arrow_schema,
)
from lsm_core.metadata import manifests
from lsm_core.metadata.manifests import COLUMNS
from lsm_core.metadata.store import TableStore
from lsm_core.storage import place_of
from lsm_core.types import DataType, TypeRoot, to_arrow
from lsm_core.types.arrow import holds_char, refit, reshape, same_values, unpadded

_SYSTEM = (SEQUENCE_NUMBER, VALUE_KIND)
_SYSTEM_TYPES = (DataType(TypeRoot.BIGINT, nullable=False), DataType(TypeRoot.TINYINT, nullable=False))
_PADDING = ".orc"
_KEPT = "columns"
_KEPT_BYTES = 512


@dataclass(frozen=True)
class _Column:
    """One target column and its source in the file.

    Attributes:
        field: the target column.
        stored: name of the column in the file; None if the file has no such column, so all values are null.
        written: type in the file's schema, if the values must be cast.
        target_type: type in the table's schema, if the values must be cast.
        may_be_null: whether nulls are allowed although the column is NOT NULL.
        padded: type in the file's schema if it contains CHAR values, which ORC pads; else None.
        is_newer: whether the file has a newer schema than the opened table, so that values are cast to the older type.
    """

    field: pa.Field
    stored: str | None
    written: DataType | None = None
    target_type: DataType | None = None
    may_be_null: bool = False
    padded: DataType | None = None
    is_newer: bool = False

    @property
    def is_dictionary(self) -> bool:
        """Whether the target column is an Arrow dictionary."""
        return bool(pa.types.is_dictionary(self.field.type))


@dataclass(frozen=True)
class Evolution:
    """Conversion of the rows of one file, which may have another schema than the table, to the schema ``target``.

    The target has `_KEY_*`, system and value columns of the table's schema.

    Attributes:
        table: name of the table, for errors.
        target: schema of the result.
        columns: source of each target column.
    """

    table: str
    target: pa.Schema
    columns: tuple[_Column, ...]

    @classmethod
    def of(
        cls, store: TableStore, meta: DataFileMeta, source_schema: pa.Schema, target: pa.Schema, path: str = ""
    ) -> Evolution:
        """Find the source of each target column in one file; the result is cached with the table.

        Args:
            store: the table.
            meta: manifest entry of the file.
            source_schema: columns of the file.
            target: schema of the result; names are of the store's schema.
            path: path of the file, for errors.

        Raises:
            CorruptFile: the file lacks a column of its own schema, or that schema is missing.
        """
        written_columns = None if meta.write_cols is None else tuple(meta.write_cols)
        dictionary_columns = tuple(field.name for field in target if pa.types.is_dictionary(field.type))
        names = tuple(source_schema.names), tuple(target.names), dictionary_columns
        cache_key = (_KEPT, store.schema.id, meta.schema_id, path.endswith(_PADDING), written_columns, *names)
        columns: tuple[_Column, ...] | None = store.kept.get(cache_key)
        if columns is None:
            written = store.schema_of(meta.schema_id)
            finder = _ColumnFinder(
                store.schema,
                None if written is store.schema else {column.id: column for column in written.fields},
                frozenset(source_schema.names),
                None if written_columns is None else frozenset(written_columns),
                path or meta.file_name,
                merging_leaves_nulls(store),
                meta.schema_id > store.schema.id,
            )
            columns = tuple(finder.find(field) for field in target)
            store.kept.put(cache_key, columns, _KEPT_BYTES * (1 + len(columns)))
        return cls(store.name, target, columns)

    @property
    def stored(self) -> list[str]:
        """Names of the columns to decode from the file, sorted and without duplicates."""
        return sorted({column.stored for column in self.columns if column.stored is not None})

    @property
    def dictionaries(self) -> list[str]:
        """Names in :attr:`stored` of the columns to decode as Arrow dictionaries.

        A column is decoded so if every target column that the column supplies is a dictionary and needs no cast.
        """
        plain = {column.stored for column in self.columns if not column.is_dictionary or column.written is not None}
        return [name for name in self.stored if name not in plain]

    def apply(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        """Convert a batch that has at least :attr:`stored` columns.

        One stored column may supply several target columns.

        Args:
            batch: rows of the file.
            path: path of the file, for errors.

        Raises:
            CorruptFile: values are of another type than the file's schema, or a NOT NULL column has nulls.
            InvalidData: a value does not fit the column's new type; the error names table and column.
            InvalidSchema: a value of a newer type does not fit the type of the table as it was opened (Java truncates
                it).
        """
        if not self.columns:
            return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), batch.num_rows, [None]))
        arrays = [self._array(column, batch, path) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)

    def _array(self, column: _Column, batch: pa.RecordBatch, path: str) -> pa.Array:
        field = column.field
        if column.stored is None:
            return pa.nulls(batch.num_rows, field.type)
        array = batch.column(column.stored)
        if column.padded is not None:
            array = unpadded(array, column.padded)
        if column.written is not None:
            from lsm_core.types.casts import CastError, cast_back, cast_values  # only a change of types needs them

            assert column.target_type is not None
            stored = _convert_type(array, to_arrow(column.written), field.name, path)
            try:
                values = reshape(
                    stored, column.written, column.target_type, cast_back if column.is_newer else cast_values
                )
            except CastError as error:
                if column.is_newer:
                    raise InvalidSchema(
                        f"table {self.table}: column '{field.name}' was changed from {column.target_type} to "
                        f"{column.written} since it was opened: {error} (stored in {path}): open the table again, "
                        "or start the stream again (without scan options that begin it in the past)"
                    ) from error
                reason = f"{error} (stored in {path} before the column's type changed)"
                raise InvalidData(self.table, field.name, reason) from error
            array = refit(values, field.type)
        elif not array.type.equals(field.type):
            array = _convert_type(array, field.type, field.name, path)
        if not field.nullable and array.null_count and not column.may_be_null:
            raise CorruptFile(path, f"column '{field.name}' holds nulls but is NOT NULL")
        return array


def _convert_type(array: pa.Array, kind: pa.DataType, name: str, path: str) -> pa.Array:
    """Convert ``array`` to the type of its schema if its writer used another physical type.

    Args:
        array: values of one column as stored.
        kind: Arrow type of the column in the file's schema.
        name: name of the column, for messages.
        path: path of the file, for messages.
    """
    array = unshred(array, kind, path)
    try:
        if pa.types.is_dictionary(kind):
            return refit(array, kind.value_type).dictionary_encode()
        return refit(array, kind)
    except pa.ArrowException as error:
        raise CorruptFile(path, f"column '{name}' is {array.type}, not {kind}: {error}") from error


@dataclass(frozen=True)
class _ColumnFinder:
    """Finder of the sources of target columns in one file.

    Attributes:
        schema: schema of the table.
        written: columns of the file's schema by id; None if the file has the table's schema.
        present: names of the stored columns.
        partly: columns of a file that stores only some of the schema's columns; None for all.
        path: path of the file, for errors.
        merged_nulls: whether merging may have left nulls in NOT NULL columns.
        is_newer: whether the file's schema is newer than the table's.
    """

    schema: TableSchema
    written: Mapping[int, DataField] | None
    present: frozenset[str]
    partly: frozenset[str] | None
    path: str
    merged_nulls: bool
    is_newer: bool

    def find(self, field: pa.Field) -> _Column:
        """Return the source of ``field``; a key is read from its value column, or from `_KEY_<c>` in a file without it.

        Raises:
            CorruptFile: the file lacks a column of its schema.
        """
        if not self.schema.primary_keys and field.name in COLUMNS:
            # Newly appended files store neither: the reader fills in the null values.
            return _Column(field, field.name if field.name in self.present else None, may_be_null=True)
        if field.name in _SYSTEM:
            return _Column(field, self._stored(field.name))
        is_key = field.name.startswith(KEY_PREFIX)
        now = self.schema.field(field.name.removeprefix(KEY_PREFIX))
        then = now if self.written is None else self.written.get(now.id)
        if then is None or (self.partly is not None and then.name not in self.partly):
            if now.name in self.schema.primary_keys:
                raise CorruptFile(self.path, f"has no key column '{now.name}'")
            return _Column(field, None)
        stored = self._stored(then.name)
        changed = then is not now and not same_values(then.type, now.type)
        padded = self.path.endswith(_PADDING) and holds_char(then.type)
        return _Column(
            field,
            stored,
            then.type if changed else None,
            now.type if changed else None,
            may_be_null=not is_key
            and (then.type.nullable or (self.merged_nulls and now.name not in self.schema.primary_keys)),
            padded=then.type if padded else None,
            is_newer=self.is_newer,
        )

    def _stored(self, name: str) -> str:
        if name in self.present:
            return name
        if KEY_PREFIX + name in self.present:
            return KEY_PREFIX + name
        raise CorruptFile(self.path, f"has no column '{name}'")


BATCH_ROWS: Final = 65_536
_SLICE_ROWS: Final = 4_096
"""Smallest average number of rows between deleted rows for which a batch is sliced instead of filtered.

Shorter slices save little: for slices of 1,000 rows, a read takes 0.95 of the time, and its consumer more.
"""

RowGroups = Sequence[int] | Callable[[FileSource], Sequence[int] | None] | None
"""Row groups to read, or a function that selects them from the open file; None for all."""


def open_append(
    store: TableStore,
    partition: bytes,
    bucket: int,
    meta: DataFileMeta,
    *,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    row_groups: RowGroups = None,
    deleted: Deleted | None = None,
    dictionaries: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an append file.

    Files of older schemas are read by field id: missing columns are null, and columns of older types are cast. The file
    is opened at the first ``next``.

    Args:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        meta: manifest entry of the file.
        columns: columns to return, in this order; None for all.
        batch_rows: largest number of rows of a batch.
        row_groups: numbers of the row groups to read, or a function from the open file to them; None for all.
        deleted: deleted rows, by position in the whole file; None if no row is deleted.
        dictionaries: text columns to return as Arrow dictionaries of int32.

    Raises:
        ColumnNotFound: a column does not exist.
        CorruptFile: the file is missing, truncated, or differs from its manifest entry; the error names the file.
        InvalidData: a value does not fit its column's new type.
        InvalidSchema: the file has a newer schema than ``store``, and a value does not fit the older type.
    """
    schema = append_arrow_schema(store.schema)
    target = pa.schema([schema.field(name) for name in value_columns(store, columns)])
    target = as_dictionaries(target, dictionaries)
    return read_rows(store, partition, bucket, meta, target, batch_rows, row_groups, deleted)


def value_columns(store: TableStore, columns: Sequence[str] | None) -> list[str]:
    """Return the chosen columns of the table; all of them for None.

    Raises:
        ColumnNotFound: a column does not exist.
    """
    field_names = store.schema.field_names
    for name in columns or ():
        if name not in field_names:
            raise ColumnNotFound(store.name, name, field_names)
    return list(field_names if columns is None else columns)


def open_source(
    store: TableStore, partition: bytes, bucket: int, meta: DataFileMeta, *, keep: bool = False
) -> FileSource:
    """Open a data file and compare its size and row count with its manifest entry.

    Args:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        meta: manifest entry of the file.
        keep: whether to cache the file's footer with the table, for repeated reads of a few rows. Footers of files in
            an object store are always cached.

    Raises:
        CorruptFile: the file is missing, damaged, or differs from its manifest entry.
    """
    path = store.data_path(partition, bucket, meta)
    # In an object store, opening the file again would cost another request.
    kept = store.kept if keep or place_of(path) else None
    return open_file(
        store.file_io,
        path,
        size=meta.file_size,
        rows=meta.row_count,
        table=store.name,
        kept=kept,
        layout=lambda: file_layout(store, meta.schema_id),
    )


def file_layout(store: TableStore, schema_id: int) -> FileLayout:
    """Return the columns of a data file that was written with a schema of the table.

    Key-value files have `_KEY_*` columns too. They are left out, because their values are also in the value columns.
    """
    schema = store.schema_of(schema_id)
    kinds = tuple(field.type for field in schema.fields)
    if not store.has_primary_key:
        return FileLayout(append_arrow_schema(schema), kinds, store.options)
    return FileLayout(kv_arrow_schema(schema, thin=True), (*_SYSTEM_TYPES, *kinds), store.options)


def read_rows(
    store: TableStore,
    partition: bytes,
    bucket: int,
    meta: DataFileMeta,
    target: pa.Schema,
    batch_rows: int,
    row_groups: RowGroups,
    deleted: Deleted | None,
    source: FileSource | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a key-value or append file, without the rows that ``deleted`` marks.

    Args:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        meta: manifest entry of the file.
        target: schema of the batches.
        batch_rows: largest number of rows of a batch.
        row_groups: numbers of the row groups to read, or a function from the open file to them; None for all.
        deleted: deleted rows, by position in the whole file; None if no row is deleted.
        source: part of the file that was opened instead of it, and is closed in the end; None to open the file.

    Raises:
        CorruptFile: the file is missing, truncated, or differs from its manifest entry.
        InvalidData: a value does not fit its column's new type.
        InvalidSchema: the file has a newer schema than ``store``, and a value does not fit the older type.
    """
    source = source or open_source(store, partition, bucket, meta)
    try:
        if callable(row_groups):
            row_groups = row_groups(source)
        evolution = Evolution.of(store, meta, source.schema, target, source.path)
        tracks_rows = not store.has_primary_key and any(name in target.names for name in manifests.COLUMNS)
        positions = RowPositions(source.group_rows, row_groups) if tracks_rows or deleted is not None else None
        number = None
        if numbered_by_snapshot(store, meta):
            place = target.get_field_index(SEQUENCE_NUMBER)
            number = None if place < 0 else (place, target.field(place))
        stored = evolution.stored
        dictionary_columns = source.repeating_texts(evolution.dictionaries)
        batches = (
            source.batches(stored, batch_rows, row_groups, dictionaries=dictionary_columns)
            if stored
            else _rows_without_columns(source, batch_rows, row_groups)
        )
        for batch in batches:
            ranges = [] if positions is None else positions.next_ranges(batch.num_rows)
            places = places_of(ranges) if tracks_rows else None
            parts = [(batch, places)]
            if deleted is not None:
                is_deleted = deleted_mask(ranges, deleted)
                if is_deleted.any():
                    parts = _without_deleted(batch, places, is_deleted)
            for part, part_places in parts:
                rows = evolution.apply(part, source.path)
                if number is not None:
                    numbers = pa.repeat(pa.scalar(meta.min_sequence_number, pa.int64()), len(rows))
                    rows = rows.set_column(*number, numbers)
                yield rows if part_places is None else manifests.fill_tracking(rows, meta, part_places, source.path)
    finally:
        source.close()


def _without_deleted(
    batch: pa.RecordBatch, places: npt.NDArray[np.int64] | None, is_deleted: npt.NDArray[np.bool_]
) -> list[tuple[pa.RecordBatch, npt.NDArray[np.int64] | None]]:
    """Return the rows of ``batch`` that are not deleted, with their positions in the file.

    If few rows are deleted, the rows between them are returned as slices, because a filter copies all rows.

    Args:
        batch: decoded rows.
        places: position of each row in the file; None if positions are not needed.
        is_deleted: mask of the deleted rows; at least one is deleted.

    Returns:
        Pairs (rows, positions); empty if no row is left.
    """
    marks = np.flatnonzero(is_deleted)
    if (len(marks) + 1) * _SLICE_ROWS > len(is_deleted):
        kept = ~is_deleted
        left = batch.filter(arrow_array(kept))
        return [(left, None if places is None else places[kept])] if left.num_rows else []
    bounds = zip([0, *(marks + 1).tolist()], [*marks.tolist(), len(is_deleted)], strict=True)
    return [
        (batch.slice(start, stop - start), None if places is None else places[start:stop])
        for start, stop in bounds
        if start < stop
    ]


def numbered_by_snapshot(store: TableStore, meta: DataFileMeta) -> bool:
    """Return whether the rows of a file have the id of its snapshot as sequence number, and not the stored numbers.

    The snapshot id is the file's smallest sequence number. Only compactions store snapshot ids in rows.

    Raises:
        UnsupportedFeature: the file does not record whether a compaction wrote it.

    Source: `KeyValueFileReaderFactory` (Paimon 2.0).
    """
    if not store.options.snapshot_ordering:
        return False
    if meta.file_source is None:
        raise UnsupportedFeature(
            f"'sequence.snapshot-ordering' with {meta.file_name}, which does not record whether a compaction wrote it",
            store.name,
        )
    return meta.file_source == SOURCE_APPEND


def _rows_without_columns(
    source: FileSource, batch_rows: int, row_groups: Sequence[int] | None
) -> Iterator[pa.RecordBatch]:
    """Yield batches without columns, with as many rows as the row groups have.

    They are for files that store none of the requested columns, so nothing is decoded.
    """
    counts = np.asarray(source.group_rows, np.int64)
    remaining = int(counts.sum() if row_groups is None else counts[list(row_groups)].sum())
    while remaining > 0:
        rows = min(remaining, batch_rows)
        yield pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))
        remaining -= rows


def kv_read_schema(
    store: TableStore,
    columns: Sequence[str] | None = None,
    *,
    need_sequence: bool = True,
    need_kind: bool = True,
    dictionaries: Collection[str] = (),
) -> pa.Schema:
    """Return the schema of the batches that :func:`open_kv` yields for the same arguments.

    The schema has the `_KEY_*` columns, the requested system columns, and ``columns``.

    Args:
        store: the table.
        columns: value columns to return; None for all.
        need_sequence: whether `_SEQUENCE_NUMBER` is returned.
        need_kind: whether `_VALUE_KIND` is returned.
        dictionaries: text columns to return as Arrow dictionaries.
    """
    layout = kv_arrow_schema(store.schema)
    names = [KEY_PREFIX + name for name in store.schema.trimmed_primary_keys]
    names += [SEQUENCE_NUMBER] if need_sequence else []
    names += [VALUE_KIND] if need_kind else []
    schema = pa.schema([layout.field(name) for name in (*names, *value_columns(store, columns))])
    return as_dictionaries(schema, dictionaries)


def open_kv(
    store: TableStore,
    partition: bytes,
    bucket: int,
    meta: DataFileMeta,
    *,
    columns: Sequence[str] | None = None,
    need_sequence: bool = True,
    need_kind: bool = True,
    batch_rows: int = BATCH_ROWS,
    row_groups: RowGroups = None,
    deleted: Deleted | None = None,
    dictionaries: Collection[str] = (),
    source: FileSource | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a key-value file in key order, as batches of :func:`kv_read_schema`.

    Thin files get their `_KEY_*` from the value columns. If both `_KEY_<c>` and ``<c>`` are stored, one is decoded and
    used for both, so damage of the second column is not detected. Files of older schemas are read by field id: missing
    columns are null, and columns of older types are cast. The file is opened at the first ``next``.

    Args:
        store: the table.
        partition: BinaryRow bytes of the partition.
        bucket: number of the bucket.
        meta: manifest entry of the file.
        columns: value columns to return, in this order; None for all.
        need_sequence: return `_SEQUENCE_NUMBER`.
        need_kind: return `_VALUE_KIND`.
        batch_rows: largest number of rows of a batch.
        row_groups: numbers of the row groups to read, or a function from the open file to them; None for all.
        deleted: deleted rows, by position in the whole file; None if no row is deleted.
        dictionaries: text columns to return as Arrow dictionaries of int32, even if the file stores plain text.
        source: part of the file that was opened instead of it, and is closed in the end; None to open the file.

    Raises:
        ColumnNotFound: a column does not exist.
        CorruptFile: the file is missing, truncated, or differs from its manifest entry; the error names the file.
        InvalidData: a value does not fit its column's new type.
        InvalidSchema: the file has a newer schema than ``store``, and a value does not fit the older type.
    """
    target = kv_read_schema(store, columns, need_sequence=need_sequence, need_kind=need_kind, dictionaries=dictionaries)
    return read_rows(store, partition, bucket, meta, target, batch_rows, row_groups, deleted, source)
