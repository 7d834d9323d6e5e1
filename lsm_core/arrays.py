"""Arrow arrays and their NumPy buffers, and text columns with repeated values as Arrow dictionaries.

Creation, joining of chunks, row selection, reading without copies, ragged slices. Dictionaries are decoded, combined
and written as integer codes.

Every package may use this module; it has no knowledge of tables, files or options.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from types import NoneType
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Values = TypeVar("Values", pa.Array, pa.RecordBatch)

_DECIMAL_BYTES = 16
_MAX_OFFSET: Final = 2**31 - 1
_PANDAS: Final = "pandas"
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()


# -- creation ----------------------------------------------------------------------------------------------------------


def arrow_array(
    values: npt.NDArray[Any] | Sequence[Any], kind: pa.DataType | None = None, *, mask: Bools | None = None
) -> pa.Array:
    """Return `pa.array(values, kind, mask=mask)` without letting Arrow import pandas, if the values are plain.

    `pa.array` imports pandas to check whether values are pandas objects, which costs a quarter of a second and 38 MiB
    per process. Plain values are NumPy's numbers and booleans, which are not copied, and sequences of the Python type
    for ``kind`` (int, float for doubles, bool, str, bytes, date), including None, lists and structs. All values that
    are not plain are passed to `pa.array`, which may raise its own errors. In a process that has imported pandas, such
    as the platform's, all sequences are: `pa.array` takes half the time then.

    Args:
        values: the values of the array, as `pa.array` accepts them.
        kind: the Arrow type, or None to infer it.
        mask: True for null, or None.

    Returns:
        The array.
    """
    array = None
    if type(values) is np.ndarray:  # not a masked array
        array = _from_numpy(values, kind, mask)
    elif isinstance(values, list | tuple) and mask is None and _PANDAS not in sys.modules:
        array = _from_objects(values, kind)
    return pa.array(values, kind, mask=mask) if array is None else array


def arrow_scalar(value: Any, kind: pa.DataType | None = None) -> pa.Scalar:
    """Return `pa.scalar(value, kind)`, but without the costly import of pandas by Arrow if the value is plain."""
    if value is None:
        return pa.nulls(1, kind)[0]
    array = _from_objects((value,), kind) if _PANDAS not in sys.modules else None
    return pa.scalar(value, kind) if array is None else array[0]


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return `schema.empty_table()`, but without the costly import of pandas by Arrow."""
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


_ARROW_TYPES: Final[dict[type | None, pa.DataType]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}
_NUMBERS: Final = {
    np.dtype(name): kind
    for name, kind in {
        **{f"int{bits}": getattr(pa, f"int{bits}")() for bits in (8, 16, 32, 64)},
        **{f"uint{bits}": getattr(pa, f"uint{bits}")() for bits in (8, 16, 32, 64)},
        "float32": pa.float32(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
    }.items()
}
_DTYPES: Final = {kind: dtype for dtype, kind in _NUMBERS.items()}
_PLAIN: Final[dict[pa.DataType, tuple[type, str]]] = {
    **{kind: (int, dtype.name) for dtype, kind in _NUMBERS.items() if dtype.kind in "iu"},
    pa.float64(): (float, "float64"),
    pa.bool_(): (bool, "bool"),
}
"""Fixed-width types, with the Python type of their values and NumPy's name."""


def _from_numpy(values: npt.NDArray[Any], kind: pa.DataType | None, mask: Bools | None) -> pa.Array | None:
    """Return an array, null where ``mask`` is true; None for several dimensions or numbers that are not of ``kind``.

    Args:
        values: the NumPy array.
        kind: Arrow type of the result, or None for the type of ``values``.
        mask: mask of nulls, or None.
    """
    own = _NUMBERS.get(values.dtype)
    if own is None or kind not in {None, own} or values.ndim != 1:
        return None
    valid = None if mask is None else _bits(~mask)
    data = _bits(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(own, len(values), [valid, data])


def _from_objects(values: Sequence[Any], kind: pa.DataType | None) -> pa.Array | None:
    """Return an array of Python values, or None if a value does not fit or has a different type.

    Args:
        values: the values; None is null.
        kind: Arrow type of the result, or None for the type of the values.
    """
    types = set(map(type, values))
    nulls = NoneType in types
    types.discard(NoneType)
    if kind is None:
        kind = _ARROW_TYPES.get(next(iter(types), None)) if len(types) == 1 else None
        if kind is None:
            return None
    if not types:
        return pa.nulls(len(values), kind)
    is_present = np.array([value is not None for value in values], np.bool_) if nulls else None
    valid = None if is_present is None else _bits(is_present)
    if kind in _PLAIN:
        python_type, dtype = _PLAIN[kind]
        if types != {python_type}:
            return None
        try:
            numbers = np.array([0 if value is None else value for value in values] if nulls else values, dtype)
        except OverflowError:
            return None
        data = _bits(numbers) if dtype == "bool" else pa.py_buffer(numbers)
        return pa.Array.from_buffers(kind, len(values), [valid, data])
    if (types == {bytes} and pa.types.is_binary(kind)) or (types == {str} and pa.types.is_string(kind)):
        present_texts = [value for value in values if value is not None] if nulls else values
        return _from_texts(
            present_texts, np.ones(len(values), np.bool_) if is_present is None else is_present, valid, kind
        )
    if types == {dt.date} and pa.types.is_date32(kind):
        days = [None if value is None else value.toordinal() - _EPOCH_DAY for value in values]
        return arrow_array(days, pa.int32()).view(kind)
    if types <= {list, tuple} and pa.types.is_list(kind):
        items = [value or () for value in values]
        offsets = _offsets(np.fromiter(map(len, items), np.int64, len(items)))
        child = arrow_array(list(chain.from_iterable(items)), kind.value_type)
        return pa.Array.from_buffers(kind, len(values), [valid, offsets], children=[child])
    if types == {dict} and pa.types.is_struct(kind):
        records = [value or {} for value in values]
        children = [arrow_array([record.get(field.name) for record in records], field.type) for field in kind]
        return pa.Array.from_buffers(kind, len(values), [valid], children=children)
    return None


def _from_texts(
    texts: Sequence[str] | Sequence[bytes], present: Bools, valid: pa.Buffer | None, kind: pa.DataType
) -> pa.Array | None:
    """Return an array of texts at the positions in ``present``; None for a lone surrogate, or more than 2 GiB.

    Args:
        texts: the values that are not null.
        present: mask of the positions of these values.
        valid: validity bits of the result, or None without nulls.
        kind: Arrow type of the result: string or binary.
    """
    if kind == pa.string():
        text = "".join(texts)  # type: ignore[arg-type]
        try:
            data = text.encode()
        except UnicodeEncodeError:
            return None
        if len(data) > len(text):  # otherwise ASCII: one byte per character
            texts = [part.encode() for part in texts]  # type: ignore[union-attr]
    else:
        data = b"".join(texts)  # type: ignore[arg-type]
    if len(data) > _MAX_OFFSET:
        return None
    lengths = np.zeros(len(present), np.int64)
    lengths[present] = np.fromiter(map(len, texts), np.int64, len(texts))
    return pa.Array.from_buffers(kind, len(present), [valid, _offsets(lengths), pa.py_buffer(data)])


def _offsets(lengths: I64) -> pa.Buffer:
    return pa.py_buffer(offsets_from(lengths).astype(np.int32))


def _bits(flags: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


# -- joining -----------------------------------------------------------------------------------------------------------


def one_array(column: pa.Array | pa.ChunkedArray, kind: pa.DataType | None = None) -> pa.Array:
    """Return the column as one Arrow array, copied only if it has several chunks.

    Args:
        column: array or chunked array.
        kind: type to cast to safely, or None.

    Returns:
        The array.

    Raises:
        ArrowInvalid: a value does not fit ``kind``, or texts with 32-bit offsets exceed 2 GiB.
    """
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            column = column.chunk(0)
        else:
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return column if kind is None or column.type == kind else column.cast(kind)


def chosen_rows(values: Values, places: pa.Array) -> Values:
    """Return the rows at some positions, copied only if that saves memory, because rows may be tens of megabytes wide.

    Args:
        values: array or record batch.
        places: int64 row numbers, ascending and distinct.

    Returns:
        ``values`` itself if all rows are chosen, and its buffers are at most twice as large as these rows; otherwise a
        copy of the chosen rows.
    """
    if len(places) == len(values) and values.get_total_buffer_size() <= 2 * values.nbytes:
        return values
    return values.take(places)


# -- buffers -----------------------------------------------------------------------------------------------------------


def numpy_array(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return a column of numbers or booleans as NumPy array, but without the costly import of pandas by Arrow.

    The result is that of `column.to_numpy(zero_copy_only=False)`. Numbers of one chunk without nulls are not copied;
    integers with nulls become doubles, as in Arrow.
    """
    dtype = _DTYPES.get(column.type)
    if dtype is None or (column.null_count and dtype == np.bool_):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    array = one_array(column)
    if dtype == np.bool_:
        return _flags(array.buffers()[1], array.offset, len(array)) if len(array) else np.zeros(0, np.bool_)
    values = values_of(array, dtype)
    nulls = null_mask(array)
    if nulls is None:
        return values
    values = values.astype(dtype if dtype.kind == "f" else np.float64)
    values[nulls] = np.nan
    return values


def _flags(bits: pa.Buffer, start: int, count: int) -> Bools:
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=start + count, bitorder="little")[start:].view(np.bool_)


def null_mask(array: pa.Array) -> Bools | None:
    """Return a mask that is True for nulls, or None if the array has no nulls."""
    valid = valid_mask(array)
    return None if valid is None else ~valid


def valid_mask(array: pa.Array) -> Bools | None:
    """Return a mask that is True for values that are not null, or None if the array has no nulls."""
    if array.null_count == 0:
        return None
    bits = array.buffers()[0]
    if bits is None:  # nulls without a validity buffer: a null array, a union, a dictionary
        return numpy_array(array.is_valid())
    return _flags(bits, array.offset, len(array))


def values_of(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """Return the fixed-width values of an array as NumPy view of its buffer, without a copy.

    Values of nulls are undefined.
    """
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, count=array.offset + len(array))[array.offset :]


def decimal_limbs(array: pa.Array) -> tuple[I64, U64]:
    """Return the high (signed) and low (unsigned) 8 bytes of decimal128 values; values of nulls are undefined."""
    halves = values_of(array, np.dtype((np.int64, (2,))))
    return np.ascontiguousarray(halves[:, 1]), np.ascontiguousarray(halves[:, 0]).view(np.uint64)


def value_offsets(array: pa.Array) -> I64:
    """Return the offsets of a string, binary, list or map array, as int64.

    Value i has the bytes (or child elements) from ``offsets[i]`` up to, but not including, ``offsets[i + 1]``. The
    result has ``len(array) + 1`` numbers.
    """
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    if len(array) == 0:
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32, count=array.offset + len(array) + 1)
    return offsets[array.offset :].astype(np.int64)


def value_bytes(array: pa.Array) -> U8:
    """Return the bytes to which `value_offsets` of a string or binary array refer, without a copy."""
    data = array.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def text_parts(array: pa.Array) -> tuple[U8, I64, I64]:
    """Return bytes, start and length of each value of a string, binary or fixed-width binary array.

    The length of a null is the length in the offsets, normally 0.
    """
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        data = array.buffers()[1]
        raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        starts = (np.arange(len(array), dtype=np.int64) + array.offset) * width
        return raw, starts, np.full(len(array), width, np.int64)
    bounds = value_offsets(array)
    return value_bytes(array), bounds[:-1], np.diff(bounds)


# -- ragged slices -----------------------------------------------------------------------------------------------------


def offsets_from(counts: npt.NDArray[Any]) -> I64:
    """Return the cumulative offsets of counts (or flags): 0, c0, c0+c1, .."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def slice_places(starts: I64, counts: I64) -> I64:
    """Return the positions ``starts[i], starts[i]+1, ..`` (``counts[i]`` of them) of all i, concatenated."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    places: I64 = np.repeat(starts - (ends - counts), counts)
    places += np.arange(total, dtype=np.int64)
    return places


def places_within(counts: I64) -> I64:
    """Return 0, 1, .. ``counts[i]`` - 1 of all i, concatenated."""
    return slice_places(np.zeros(len(counts), np.int64), counts)


# -- decimals of any length --------------------------------------------------------------------------------------------


def limbs_from_big_endian(data: U8, starts: I64, lengths: I64) -> U8:
    """Return decimal128 values (16 bytes each, little-endian) of two's complement numbers of 0 to 16 big-endian bytes.

    Args:
        data: the bytes.
        starts: start of each number.
        lengths: number of bytes of each number.

    Returns:
        The values, concatenated.
    """
    count = len(starts)
    has_bytes = lengths > 0
    first = np.zeros(count, np.uint8)
    first[has_bytes] = data[starts[has_bytes]]
    digits = np.where(first >= 0x80, np.uint8(0xFF), np.uint8(0)).repeat(_DECIMAL_BYTES)
    ends = _DECIMAL_BYTES * np.arange(1, count + 1, dtype=np.int64)
    digits[slice_places(ends - lengths, lengths)] = data[slice_places(starts, lengths)]
    return np.ascontiguousarray(digits.reshape(count, _DECIMAL_BYTES)[:, ::-1])


def big_endian_digits(high: I64, low: U64) -> tuple[U8, I64]:
    """Return the 16 big-endian bytes of each 128-bit number, and the length of its shortest form.

    The shortest two's complement form consists of the last bytes, as in Java's `BigInteger.toByteArray`.

    Args:
        high: high 8 bytes of each number.
        low: low 8 bytes of each number.

    Returns:
        The bytes, concatenated, and the lengths.
    """
    count = len(high)
    big = np.empty((count, 2), ">u8")
    big[:, 0], big[:, 1] = high.view(np.uint64), low
    sign = (high >> 63).view(np.uint64)
    low, upper = low ^ sign, high.view(np.uint64) ^ sign
    sizes = np.ones(count, np.int64)
    for size in range(1, _DECIMAL_BYTES):
        bits = 8 * size - 1
        sizes += (upper != 0) | (low >> np.uint64(bits) != 0) if bits < 64 else upper >> np.uint64(bits - 64) != 0
    return big.view(np.uint8).reshape(count * _DECIMAL_BYTES), sizes


_MAX_VALUES: Final = 1 << 16
"""Number of values from which a new shared dictionary is started."""
_SMALL_COLUMN_BYTES: Final = 16 << 20
"""Decoded size of a column (bytes) below which repeated values are not counted."""


def as_dictionaries(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return a schema with some text columns as dictionaries of int32 codes.

    Args:
        schema: the schema.
        names: columns to change; columns that are not text are left unchanged.

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
    """Return columns as a batch of ``schema``, in which a field gets the type of its column if the types differ."""
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
    """One dictionary per column, shared by all batches of one merge, from any number of files.

    Batches with a shared dictionary are joined and written without look-ups of values. The dictionaries grow with the
    batches. A dictionary above the limit is replaced by a new dictionary. Batches then have different dictionaries,
    which :func:`concat_columns` supports.
    """

    def __init__(self, most_values: int = _MAX_VALUES) -> None:
        self._max_values = most_values
        self._values: dict[str, pa.Array] = {}

    def reader(self) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """Return a function that replaces a batch's own dictionaries by the shared ones, for the batches of one file.

        The function must be called in the order of the batches.
        """
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
        """Return (code of each file value in the shared dictionary, shared dictionary); missing values are added."""
        values = self._values.get(name, file_values.slice(0, 0))
        combined = pa.concat_arrays([values, file_values]).dictionary_encode()
        if len(combined.dictionary) > self._max_values and len(values):
            del self._values[name]
            return self._map_values(name, file_values)
        if len(combined.dictionary) > len(values):
            self._values[name] = values = combined.dictionary
        return combined.indices.slice(len(combined.indices) - len(file_values)), values


def concat_columns(columns: Sequence[pa.Array]) -> pa.Array:
    """Concatenate columns, which may be dictionary arrays.

    Different dictionaries are concatenated too, so the dictionary of the result may contain a value several times. The
    result is plain text if one of the columns is plain, or if the dictionaries have more values than rows.
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
