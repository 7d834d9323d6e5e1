"""Between the schema that a file was written with and the one it is read with: columns by field id, casts, nulls for new ones.

A file of the table's own schema pays nothing for it: its columns are only looked up by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lsm_core.errors import CorruptFile, InvalidData, InvalidSchema
from lsm_core.files.merged_nulls import merging_leaves_nulls
from lsm_core.format.file_meta import DataFileMeta
from lsm_core.format.kv_layout import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.metadata.row_tracking import COLUMNS
from lsm_core.metadata.store import TableStore
from lsm_core.types import DataType, to_arrow
from lsm_core.types.nesting import refit, reshape, same_values
from lsm_core.types.padding import holds_char, unpadded

_SYSTEM = (SEQUENCE_NUMBER, VALUE_KIND)
_PADDING = ".orc"
_KEPT = "columns"
_KEPT_BYTES = 512


@dataclass(frozen=True)
class _Column:
    """One target column: the stored column that serves it (None: the file is older than it), and the cast it takes.

    ``is_newer``: the file has a newer schema than the table as it was opened, so that the cast goes back to the type of then.
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
        """Whether the target wants a dictionary."""
        return bool(pa.types.is_dictionary(self.field.type))


@dataclass(frozen=True)
class Evolution:
    """How batches of one file become batches of ``target``: `_KEY_*`, system and value columns of the table's schema."""

    table: str
    target: pa.Schema
    columns: tuple[_Column, ...]

    @classmethod
    def of(
        cls, store: TableStore, meta: DataFileMeta, source_schema: pa.Schema, target: pa.Schema, path: str = ""
    ) -> Evolution:
        """For a file with the stored columns ``source_schema``; names in ``target`` are of the store's schema.

        Raises :class:`CorruptFile` naming ``path`` when the file lacks a column that its own schema has, or when that schema
        is missing.
        """
        partly = None if meta.write_cols is None else tuple(meta.write_cols)
        coded = tuple(field.name for field in target if pa.types.is_dictionary(field.type))
        names = tuple(source_schema.names), tuple(target.names), coded
        kept_as = (_KEPT, store.schema.id, meta.schema_id, path.endswith(_PADDING), partly, *names)
        known: tuple[_Column, ...] | None = store.kept.get(kept_as)
        if known is None:
            written = store.schema_of(meta.schema_id)
            finder = _Finder(
                store.schema,
                None if written is store.schema else {column.id: column for column in written.fields},
                frozenset(source_schema.names),
                None if partly is None else frozenset(partly),
                path or meta.file_name,
                merging_leaves_nulls(store),
                meta.schema_id > store.schema.id,
            )
            known = tuple(finder.find(field) for field in target)
            store.kept.put(kept_as, known, _KEPT_BYTES * (1 + len(known)))
        return cls(store.name, target, known)

    @property
    def stored(self) -> list[str]:
        """Stored columns to decode, each once."""
        return sorted({column.stored for column in self.columns if column.stored is not None})

    @property
    def dictionaries(self) -> list[str]:
        """Stored columns that serve only columns which the target wants as dictionaries, and as they are stored."""
        plain = {column.stored for column in self.columns if not column.is_dictionary or column.written is not None}
        return [name for name in self.stored if name not in plain]

    def apply(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        """``batch`` (of :attr:`stored` columns, at least) as the target has it. One stored column may serve several.

        Raises :class:`CorruptFile` naming ``path`` for values of another type than its schema tells, and
        :class:`InvalidData` naming table and column for a value that the column's new type cannot take, :class:`InvalidSchema`
        for one of a newer type that the type of the table as it was opened cannot tell (Java cuts it).
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
            stored = _fitted(array, to_arrow(column.written), field.name, path)
            try:
                values = reshape(stored, column.written, column.wanted, cast_back if column.is_newer else cast_values)
            except CastError as error:
                if column.is_newer:
                    raise InvalidSchema(
                        f"table {self.table}: column '{field.name}' was changed from {column.wanted} to {column.written} since it was "
                        f"opened: {error} (stored in {path}): open the table again, or start the stream again "
                        "(without scan options that begin it in the past)"
                    ) from error
                reason = f"{error} (stored in {path} before the column's type changed)"
                raise InvalidData(self.table, field.name, reason) from error
            array = refit(values, field.type)
        elif not array.type.equals(field.type):
            array = _fitted(array, field.type, field.name, path)
        if not field.nullable and array.null_count and not column.may_be_null:
            raise CorruptFile(path, f"column '{field.name}' holds nulls but is NOT NULL")
        return array


def _fitted(array: pa.Array, kind: pa.DataType, name: str, path: str) -> pa.Array:
    """``array`` in the type that its schema tells, where its writer chose another physical one."""
    try:
        if pa.types.is_dictionary(kind):
            return refit(array, kind.value_type).dictionary_encode()
        return refit(array, kind)
    except pa.ArrowException as error:
        raise CorruptFile(path, f"column '{name}' is {array.type}, not {kind}: {error}") from error


@dataclass(frozen=True)
class _Finder:
    """Looks up what serves a target column in one file.

    ``written``: columns by id of the file's schema, None when it is the table's; ``partly``: the columns that a writer of
    only some of them left; ``merged_nulls``: merging may have left nulls in columns that are NOT NULL; ``is_newer``: the file's
    schema is newer than the table's.
    """

    schema: TableSchema
    written: Mapping[int, DataField] | None
    present: frozenset[str]
    partly: frozenset[str] | None
    path: str
    merged_nulls: bool
    is_newer: bool

    def find(self, field: pa.Field) -> _Column:
        """The column for ``field``; keys are served by whichever of their two copies the file has."""
        if not self.schema.primary_keys and field.name in COLUMNS:
            # Files as appended store neither: the reader fills in what is null.
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


__all__ = ["Evolution"]
