"""Conversion from the schema of a file to the schema it is read with.

Columns by field id, casts, nulls for new columns.

A file with the table's current schema has no extra cost: its columns are only looked up by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lsm_core.errors import CorruptFile, InvalidData, InvalidSchema
from lsm_core.files.merged_nulls import merging_leaves_nulls
from lsm_core.format.manifest import DataFileMeta
from lsm_core.format.schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, DataField, TableSchema
from lsm_core.metadata.manifests import COLUMNS
from lsm_core.metadata.store import TableStore
from lsm_core.types import DataType, to_arrow
from lsm_core.types.arrow import holds_char, refit, reshape, same_values, unpadded

_SYSTEM = (SEQUENCE_NUMBER, VALUE_KIND)
_PADDING = ".orc"
_KEPT = "columns"
_KEPT_BYTES = 512


@dataclass(frozen=True)
class _Column:
    """One target column and its source in the file.

    Attributes:
        field: the target column.
        stored: the stored column; None if the file is older than the column.
        written: type in the file's schema, if it must be cast.
        wanted: type in the table's schema, if it must be cast.
        may_be_null: whether nulls are allowed although the column is NOT NULL.
        padded: type with CHAR values that ORC pads.
        is_newer: whether the file has a newer schema than the table as it was opened, so values are cast to the
            older type.
    """

    field: pa.Field
    stored: str | None
    written: DataType | None = None
    wanted: DataType | None = None
    may_be_null: bool = False
    padded: DataType | None = None
    is_newer: bool = False

    @property
    def is_dictionary(self) -> bool:
        """Whether the target column is an Arrow dictionary."""
        return bool(pa.types.is_dictionary(self.field.type))


@dataclass(frozen=True)
class Evolution:
    """Conversion of batches of one file to batches of ``target``.

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
        """Stored columns to decode, each once."""
        return sorted({column.stored for column in self.columns if column.stored is not None})

    @property
    def dictionaries(self) -> list[str]:
        """Stored columns that are only used as dictionaries, without a cast."""
        plain = {column.stored for column in self.columns if not column.is_dictionary or column.written is not None}
        return [name for name in self.stored if name not in plain]

    def apply(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        """Convert a batch that has at least :attr:`stored` columns.

        One stored column may supply several target columns.

        Args:
            batch: rows of the file.
            path: path of the file, for errors.

        Raises:
            CorruptFile: values are of another type than the file's schema.
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

            assert column.wanted is not None
            stored = _convert_type(array, to_arrow(column.written), field.name, path)
            try:
                values = reshape(stored, column.written, column.wanted, cast_back if column.is_newer else cast_values)
            except CastError as error:
                if column.is_newer:
                    raise InvalidSchema(
                        f"table {self.table}: column '{field.name}' was changed from {column.wanted} to "
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
    """Convert ``array`` to the type of its schema if its writer used another physical type."""
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
        written: columns of the file's schema by id; None if it is the table's.
        present: names of the stored columns.
        partly: columns that a writer of only some of them stored; None for all.
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
        """Return the source of ``field``. A key may be stored twice; then either copy is returned."""
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
