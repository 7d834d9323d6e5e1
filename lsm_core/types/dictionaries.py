"""Text columns whose values repeat, carried as Arrow dictionaries: decoded, gathered and written as small numbers, each value once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar, numpy_array, value_offsets

_MOST_VALUES: Final = 1 << 16
"""Values of a shared dictionary from which a new one is begun."""
_LITTLE: Final = 16 << 20
"""Decoded bytes of a column that nobody need count."""


def as_dictionaries(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """``schema`` with the text columns ``names`` as dictionaries of int32 codes; other columns stay as they are."""
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
    """Whether ``kind`` is a dictionary of ``values``."""
    return bool(pa.types.is_dictionary(kind) and kind.value_type.equals(values))


def plain(column: pa.Array) -> pa.Array:
    """The values themselves, where ``column`` is a dictionary."""
    if not pa.types.is_dictionary(column.type):
        return column
    return pc.take(column.dictionary, column.indices, boundscheck=False)


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with the values themselves in place of dictionaries."""
    if not any(pa.types.is_dictionary(field.type) for field in batch.schema):
        return batch
    return batch_of([plain(column) for column in batch.columns], batch.schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """``schema`` with the type of the values in place of dictionaries."""
    return pa.schema(
        [field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema],
        schema.metadata,
    )


def plain_table(table: pa.Table, but: Collection[str] = ()) -> pa.Table:
    """:func:`plain_batch` of a table; the columns ``but`` stay as they are."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and field.name not in but:
            chunks = [plain(chunk) for chunk in table.column(place).chunks]
            values = pa.chunked_array(chunks, field.type.value_type)
            table = table.set_column(place, field.with_type(field.type.value_type), values)
    return table


def coded_table(table: pa.Table) -> pa.Table:
    """``table`` with its text columns as dictionaries, chunk by chunk."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            column = table.column(place).dictionary_encode()
            table = table.set_column(place, field.with_type(column.type), column)
    return table


def batch_of(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of ``schema``, except that a column may be a dictionary where the schema has values, and the other way round."""
    fields = [
        field if field.type.equals(column.type) else field.with_type(column.type)
        for field, column in zip(schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(list(columns), schema=pa.schema(fields, schema.metadata))


def rows_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of the rows of ``batch`` without the values of dictionaries, which a batch of few rows has just as well."""
    return sum(
        column.indices.nbytes if pa.types.is_dictionary(column.type) else column.nbytes for column in batch.columns
    )


def longest_value(column: pa.DictionaryArray) -> int:
    """Bytes of the longest value in the dictionary of texts or bytes of ``column``."""
    return int(np.diff(value_offsets(column.dictionary)).max(initial=0))


def decoded_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of ``batch``; with the values of each row where a dictionary has a long text once that many rows repeat."""
    total = int(batch.nbytes)
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and len(column) * longest_value(column) > _LITTLE:
            lengths = np.diff(value_offsets(column.dictionary))
            total += int(lengths[column.indices.drop_null().to_numpy()].sum())
    return total


def table_of(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The batches as one table; a column that is a dictionary in some of them only comes as plain text."""
    first = batches[0].schema
    if not all(batch.schema.equals(first) for batch in batches):
        mixed = [len({str(batch.schema.field(place).type) for batch in batches}) > 1 for place in range(len(first))]
        batches = [
            batch_of(
                [plain(column) if flag else column for column, flag in zip(batch.columns, mixed, strict=True)], first
            )
            for batch in batches
        ]
    return pa.Table.from_batches(batches, batches[0].schema)


class SharedDictionaries:
    """One dictionary a column for everything that is read together, so that joining and writing its batches look no value up again.

    It grows with what the batches bring. One that would get too large is begun anew; batches then have different ones, which
    :func:`joined` allows. One object serves the batches of one merge, from any number of files.
    """

    def __init__(self, most_values: int = _MOST_VALUES) -> None:
        self._most = most_values
        self._values: dict[str, pa.Array] = {}

    def reader(self) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """What gives the batches of one file, in their order, the shared dictionaries in place of their own."""
        last: dict[str, tuple[pa.Array, pa.Array, pa.Array]] = {}

        def shared(batch: pa.RecordBatch) -> pa.RecordBatch:
            columns = list(batch.columns)
            for place, (name, column) in enumerate(zip(batch.schema.names, columns, strict=True)):
                if pa.types.is_dictionary(column.type):
                    own = column.dictionary
                    if name not in last or not own.equals(last[name][0]):
                        last[name] = (own, *self._places(name, own))
                    _, places, values = last[name]
                    codes = pc.take(places, column.indices, boundscheck=False)
                    columns[place] = pa.DictionaryArray.from_arrays(codes, values, safe=False)
            return batch_of(columns, batch.schema)

        return shared

    def _places(self, name: str, own: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The codes in the shared dictionary of the values of a file's; values that it lacks are added."""
        values = self._values.get(name, own.slice(0, 0))
        both = pa.concat_arrays([values, own]).dictionary_encode()
        if len(both.dictionary) > self._most and len(values):
            del self._values[name]
            return self._places(name, own)
        if len(both.dictionary) > len(values):
            self._values[name] = values = both.dictionary
        return both.indices.slice(len(both.indices) - len(own)), values


def joined(columns: Sequence[pa.Array]) -> pa.Array:
    """The columns end to end. Different dictionaries are laid end to end too, so that one value may be in the result's several times;
    dictionaries beside plain text become text, and so do those with more values than rows."""
    if not any(pa.types.is_dictionary(column.type) for column in columns):
        return pa.concat_arrays(columns)
    if not all(pa.types.is_dictionary(column.type) for column in columns):
        return pa.concat_arrays([plain(column) for column in columns])
    dictionaries = [column.dictionary for column in columns]
    longest = max(dictionaries, key=len)
    codes = [column.indices for column in columns]
    if not all(one.equals(longest.slice(0, len(one))) for one in dictionaries):
        if sum(map(len, dictionaries)) > sum(map(len, columns)):
            return pa.concat_arrays([plain(column) for column in columns])
        starts = np.cumsum([0, *map(len, dictionaries)]).tolist()
        codes = [pc.add(one, arrow_scalar(start, pa.int32())) for one, start in zip(codes, starts, strict=False)]
        longest = pa.concat_arrays(dictionaries)
    return pa.DictionaryArray.from_arrays(pa.concat_arrays(codes), longest, safe=False)


def taken(column: pa.Array, rows: pa.Array) -> pa.Array:
    """``column`` at ``rows``, which are not checked; of a dictionary the codes alone are taken, five times as fast as Arrow does it."""
    if not pa.types.is_dictionary(column.type):
        return pc.take(column, rows, boundscheck=False)
    codes = pc.take(column.indices, rows, boundscheck=False)
    return pa.DictionaryArray.from_arrays(codes, column.dictionary, safe=False)


def unified(table: pa.Table) -> pa.Table:
    """``table`` with one dictionary a column: a Parquet row group falls back to plain text where it finds a second one."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and table.num_rows:
            column = joined(table.column(place).chunks)
            column = distinct(column) if pa.types.is_dictionary(column.type) else column.dictionary_encode()
            table = table.set_column(place, field, column)
    return table


def distinct(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """``column`` with a dictionary that holds each of its values once, and no other."""
    codes, dictionary = column.indices, column.dictionary
    once = dictionary.dictionary_encode()
    if len(once.dictionary) < len(dictionary):
        codes, dictionary = pc.take(once.indices, codes, boundscheck=False), once.dictionary
    used = np.bincount(numpy_array(codes.drop_null()), minlength=len(dictionary)) > 0
    if not used.all():
        places = pa.array(np.cumsum(used, dtype=np.int32) - np.int32(1))
        codes, dictionary = pc.take(places, codes, boundscheck=False), dictionary.filter(pa.array(used))
    return pa.DictionaryArray.from_arrays(codes, dictionary, safe=False)


__all__ = [
    "SharedDictionaries",
    "as_dictionaries",
    "batch_of",
    "coded_table",
    "decoded_bytes",
    "distinct",
    "is_dictionary_of",
    "joined",
    "longest_value",
    "plain",
    "plain_batch",
    "plain_schema",
    "plain_table",
    "rows_bytes",
    "table_of",
    "taken",
    "unified",
]
