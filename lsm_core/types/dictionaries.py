"""Text columns with repeated values as Arrow dictionaries, which are decoded, combined and written as integer codes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar, numpy_array, value_offsets

_MAX_VALUES: Final = 1 << 16
"""Number of values from which a new shared dictionary is started."""
_SMALL_COLUMN_BYTES: Final = 16 << 20
"""Decoded size of a column (bytes) below which repeated values are not counted."""


def as_dictionaries(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return a schema with some text columns as dictionaries of int32 codes.

    Args:
        schema: the schema.
        names: columns to change; other types than text remain.

    Returns:
        The new schema.
    """
    if not names:
        return schema
    return pa.schema(
        [
            field.with_type(pa.dictionary(pa.int32(), field.type))
            if field.name in names and pa.types.is_string(field.type)
            else field
            for field in schema
        ],
        schema.metadata,
    )


def is_dictionary_of(kind: pa.DataType, values: pa.DataType) -> bool:
    """Return whether ``kind`` is a dictionary with values of type ``values``."""
    return bool(pa.types.is_dictionary(kind) and kind.value_type.equals(values))


def plain(column: pa.Array) -> pa.Array:
    """Return the column with its values in place of a dictionary."""
    if not pa.types.is_dictionary(column.type):
        return column
    return pc.take(column.dictionary, column.indices, boundscheck=False)


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with values in place of dictionaries."""
    if not any(pa.types.is_dictionary(field.type) for field in batch.schema):
        return batch
    return batch_of([plain(column) for column in batch.columns], batch.schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with value types in place of dictionaries."""
    return pa.schema(
        [field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema],
        schema.metadata,
    )


def plain_table(table: pa.Table, excluded: Collection[str] = ()) -> pa.Table:
    """Return the table with values in place of dictionaries, except in the columns ``excluded``."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and field.name not in excluded:
            chunks = [plain(chunk) for chunk in table.column(index).chunks]
            values = pa.chunked_array(chunks, field.type.value_type)
            table = table.set_column(index, field.with_type(field.type.value_type), values)
    return table


def coded_table(table: pa.Table) -> pa.Table:
    """Return the table with its text columns as dictionaries, chunk by chunk."""
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = table.column(index).dictionary_encode()
            table = table.set_column(index, field.with_type(column.type), column)
    return table


def batch_of(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of ``schema``; a column may be a dictionary in place of plain values, and vice versa."""
    fields = [
        field if field.type.equals(column.type) else field.with_type(column.type)
        for field, column in zip(schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(list(columns), schema=pa.schema(fields, schema.metadata))


def rows_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of the rows in bytes, without the values of dictionaries.

    The size of dictionaries does not depend on the rows.
    """
    return sum(
        column.indices.nbytes if pa.types.is_dictionary(column.type) else column.nbytes for column in batch.columns
    )


def longest_value(column: pa.DictionaryArray) -> int:
    """Return the size in bytes of the longest value in a column's dictionary of texts or bytes."""
    return int(np.diff(value_offsets(column.dictionary)).max(initial=0))


def decoded_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of a batch in bytes, including the decoded rows of dictionaries with long texts."""
    total = int(batch.nbytes)
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and len(column) * longest_value(column) > _SMALL_COLUMN_BYTES:
            lengths = np.diff(value_offsets(column.dictionary))
            total += int(lengths[column.indices.drop_null().to_numpy()].sum())
    return total


def table_of(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return batches as one table.

    Returns:
        The table; a column that is a dictionary in only some of the batches becomes plain text.
    """
    schema = batches[0].schema
    if not all(batch.schema.equals(schema) for batch in batches):
        is_mixed = [len({str(batch.schema.field(index).type) for batch in batches}) > 1 for index in range(len(schema))]
        batches = [
            batch_of(
                [plain(column) if flag else column for column, flag in zip(batch.columns, is_mixed, strict=True)],
                schema,
            )
            for batch in batches
        ]
    return pa.Table.from_batches(batches, batches[0].schema)


class SharedDictionaries:
    """One dictionary per column for all batches of one merge.

    Joining and writing them then needs no lookups of values.

    The dictionaries grow with the batches. A dictionary above the limit is replaced by a new one; batches then have
    different dictionaries, which :func:`concat_columns` supports. One object serves the batches of one merge from any
    number of files.
    """

    def __init__(self, most_values: int = _MAX_VALUES) -> None:
        self._max_values = most_values
        self._values: dict[str, pa.Array] = {}

    def reader(self) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """Return a function that gives the batches of one file, in their order, the shared dictionaries."""
        mappings: dict[str, tuple[pa.Array, pa.Array, pa.Array]] = {}

        def share(batch: pa.RecordBatch) -> pa.RecordBatch:
            columns = list(batch.columns)
            for index, (name, column) in enumerate(zip(batch.schema.names, columns, strict=True)):
                if pa.types.is_dictionary(column.type):
                    file_dictionary = column.dictionary
                    if name not in mappings or not file_dictionary.equals(mappings[name][0]):
                        mappings[name] = (file_dictionary, *self._map_values(name, file_dictionary))
                    _, new_codes, values = mappings[name]
                    codes = pc.take(new_codes, column.indices, boundscheck=False)
                    columns[index] = pa.DictionaryArray.from_arrays(codes, values, safe=False)
            return batch_of(columns, batch.schema)

        return share

    def _map_values(self, name: str, file_values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the shared codes of a file's dictionary values; missing values are added."""
        values = self._values.get(name, file_values.slice(0, 0))
        combined = pa.concat_arrays([values, file_values]).dictionary_encode()
        if len(combined.dictionary) > self._max_values and len(values):
            del self._values[name]
            return self._map_values(name, file_values)
        if len(combined.dictionary) > len(values):
            self._values[name] = values = combined.dictionary
        return combined.indices.slice(len(combined.indices) - len(file_values)), values


def concat_columns(columns: Sequence[pa.Array]) -> pa.Array:
    """Concatenate columns.

    Different dictionaries are concatenated as well, so that the result may contain a value several times. Dictionaries
    become plain text if another column is plain, or if they have more values than rows.
    """
    if not any(pa.types.is_dictionary(column.type) for column in columns):
        return pa.concat_arrays(columns)
    if not all(pa.types.is_dictionary(column.type) for column in columns):
        return pa.concat_arrays([plain(column) for column in columns])
    dictionaries = [column.dictionary for column in columns]
    longest = max(dictionaries, key=len)
    codes = [column.indices for column in columns]
    if not all(values.equals(longest.slice(0, len(values))) for values in dictionaries):
        if sum(map(len, dictionaries)) > sum(map(len, columns)):
            return pa.concat_arrays([plain(column) for column in columns])
        starts = np.cumsum([0, *map(len, dictionaries)]).tolist()
        codes = [pc.add(values, arrow_scalar(start, pa.int32())) for values, start in zip(codes, starts, strict=False)]
        longest = pa.concat_arrays(dictionaries)
    return pa.DictionaryArray.from_arrays(pa.concat_arrays(codes), longest, safe=False)


def take_rows(column: pa.Array, rows: pa.Array) -> pa.Array:
    """Return a column at some positions, which are not checked.

    Args:
        column: array or dictionary array. For a dictionary only codes are taken, which is five times as fast as Arrow's
            take.
        rows: positions.

    Returns:
        An array of the same type.
    """
    if not pa.types.is_dictionary(column.type):
        return pc.take(column, rows, boundscheck=False)
    codes = pc.take(column.indices, rows, boundscheck=False)
    return pa.DictionaryArray.from_arrays(codes, column.dictionary, safe=False)


def unified(table: pa.Table) -> pa.Table:
    """Return the table with one dictionary per column.

    A Parquet row group falls back to plain text at a second dictionary.
    """
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and table.num_rows:
            column = concat_columns(table.column(index).chunks)
            column = distinct(column) if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            table = table.set_column(index, field, column)
    return table


def distinct(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return the column with a dictionary that contains each used value once, and no other value."""
    codes, dictionary = column.indices, column.dictionary
    encoded = dictionary.dictionary_encode()
    if len(encoded.dictionary) < len(dictionary):
        codes, dictionary = pc.take(encoded.indices, codes, boundscheck=False), encoded.dictionary
    is_used = np.bincount(numpy_array(codes.drop_null()), minlength=len(dictionary)) > 0
    if not is_used.all():
        new_codes = pa.array(np.cumsum(is_used, dtype=np.int32) - np.int32(1))
        codes, dictionary = pc.take(new_codes, codes, boundscheck=False), dictionary.filter(pa.array(is_used))
    return pa.DictionaryArray.from_arrays(codes, dictionary, safe=False)
