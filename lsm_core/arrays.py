"""Arrow arrays and the NumPy arrays behind them: making them, joining chunks, choosing rows, reading buffers without a copy, ragged slices.

Every room may use this; nothing here knows tables, files or options.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import chain
from types import NoneType
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Values = TypeVar("Values", pa.Array, pa.RecordBatch)

_DECIMAL_BYTES = 16
_MOST_OFFSET: Final = 2**31 - 1
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()


# -- making ------------------------------------------------------------------------------------------------------------


def arrow_array(
    values: npt.NDArray[Any] | Sequence[Any], kind: pa.DataType | None = None, *, mask: Bools | None = None
) -> pa.Array:
    """`pa.array(values, kind, mask=mask)` that does not make Arrow look for pandas, where values are plain; numbers of NumPy are not copied.

    `pa.array` asks of everything but Arrow's own arrays whether it belongs to pandas, and imports that to find out: a
    quarter of a second and 38 MiB, once a process. Plain are NumPy's numbers and booleans, and sequences of the one Python
    type that ``kind`` stands for (int, float for doubles, bool, str, bytes, date), None among them, also in lists and structs.
    Everything else is `pa.array`'s to judge, and it raises what that raises.
    """
    made = None
    if type(values) is np.ndarray:  # not a masked one
        made = _of_numpy(values, kind, mask)
    elif isinstance(values, list | tuple) and mask is None:
        made = _of_objects(values, kind)
    return pa.array(values, kind, mask=mask) if made is None else made


def arrow_scalar(value: Any, kind: pa.DataType | None = None) -> pa.Scalar:
    """`pa.scalar(value, kind)` that does not make Arrow look for pandas, where the value is plain (see `arrow_array`)."""
    if value is None:
        return pa.nulls(1, kind)[0]
    made = _of_objects((value,), kind)
    return pa.scalar(value, kind) if made is None else made[0]


def empty_table(schema: pa.Schema) -> pa.Table:
    """No rows: `schema.empty_table()` that does not make Arrow look for pandas (see `arrow_array`)."""
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


_KIND_OF: Final[dict[type | None, pa.DataType]] = {
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
"""Of a fixed width: the one Python type of their values, and NumPy's name for them."""


def _of_numpy(values: npt.NDArray[Any], kind: pa.DataType | None, mask: Bools | None) -> pa.Array | None:
    """None where the array is of more dimensions than one, or not of numbers of ``kind``; null where ``mask`` is true."""
    own = _NUMBERS.get(values.dtype)
    if own is None or kind not in {None, own} or values.ndim != 1:
        return None
    valid = None if mask is None else _bits(~mask)
    data = _bits(values) if values.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(own, len(values), [valid, data])


def _of_objects(values: Sequence[Any], kind: pa.DataType | None) -> pa.Array | None:
    """None where a value is not of the one type that ``kind`` stands for, or does not fit it."""
    types = set(map(type, values))
    nulls = NoneType in types
    types.discard(NoneType)
    if kind is None:
        kind = _KIND_OF.get(next(iter(types), None)) if len(types) == 1 else None
        if kind is None:
            return None
    if not types:
        return pa.nulls(len(values), kind)
    present = np.array([value is not None for value in values], np.bool_) if nulls else None
    valid = None if present is None else _bits(present)
    if kind in _PLAIN:
        wanted, dtype = _PLAIN[kind]
        if types != {wanted}:
            return None
        try:
            numbers = np.array([0 if value is None else value for value in values] if nulls else values, dtype)
        except OverflowError:
            return None
        data = _bits(numbers) if dtype == "bool" else pa.py_buffer(numbers)
        return pa.Array.from_buffers(kind, len(values), [valid, data])
    if (types == {bytes} and pa.types.is_binary(kind)) or (types == {str} and pa.types.is_string(kind)):
        given = [value for value in values if value is not None] if nulls else values
        return _of_texts(given, np.ones(len(values), np.bool_) if present is None else present, valid, kind)
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


def _of_texts(
    given: Sequence[str] | Sequence[bytes], present: Bools, valid: pa.Buffer | None, kind: pa.DataType
) -> pa.Array | None:
    """The texts ``given`` for the places that are ``present``; None for half a surrogate pair, or more than 2 GiB."""
    if kind == pa.string():
        text = "".join(given)  # type: ignore[arg-type]
        try:
            joined = text.encode()
        except UnicodeEncodeError:
            return None
        if len(joined) > len(text):  # else ASCII: a byte a character
            given = [part.encode() for part in given]  # type: ignore[union-attr]
    else:
        joined = b"".join(given)  # type: ignore[arg-type]
    if len(joined) > _MOST_OFFSET:
        return None
    lengths = np.zeros(len(present), np.int64)
    lengths[present] = np.fromiter(map(len, given), np.int64, len(given))
    return pa.Array.from_buffers(kind, len(present), [valid, _offsets(lengths), pa.py_buffer(joined)])


def _offsets(lengths: I64) -> pa.Buffer:
    return pa.py_buffer(offsets_from(lengths).astype(np.int32))


def _bits(flags: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


# -- joining -----------------------------------------------------------------------------------------------------------


def one_array(column: pa.Array | pa.ChunkedArray, kind: pa.DataType | None = None) -> pa.Array:
    """The column as one Arrow array, copied only where it has several chunks; cast safely where it is not of type ``kind``.

    Raises pa.ArrowInvalid for a value that does not fit ``kind``, or for more than 2 GiB of text with 32-bit offsets.
    """
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            column = column.chunk(0)
        else:
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return column if kind is None or column.type == kind else column.cast(kind)


def chosen_rows(values: Values, places: pa.Array) -> Values:
    """Return the rows at ``places``, copied only if that saves memory: rows may be tens of megabytes wide.

    Args:
        values: array or record batch.
        places: int64 row numbers, ascending and each once.

    Returns:
        ``values`` itself where all of its rows are chosen and its buffers hold little else; otherwise a copy of the rows.
    """
    if len(places) == len(values) and values.get_total_buffer_size() <= 2 * values.nbytes:
        return values
    return values.take(places)


# -- buffers -----------------------------------------------------------------------------------------------------------


def numpy_array(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """`column.to_numpy(zero_copy_only=False)` that does not make Arrow look for pandas (see `arrow_array`), for numbers and booleans.

    Numbers of one chunk without nulls are not copied; whole numbers with nulls become doubles, as there.
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
    """True where null, or None when nothing is."""
    valid = valid_mask(array)
    return None if valid is None else ~valid


def valid_mask(array: pa.Array) -> Bools | None:
    """True where a value is present, or None when all are."""
    if array.null_count == 0:
        return None
    bits = array.buffers()[0]
    if bits is None:  # nulls of another making: a null array, a union, a dictionary
        return numpy_array(array.is_valid())
    return _flags(bits, array.offset, len(array))


def values_of(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The fixed-width values of ``array`` as NumPy sees its buffer: no copy; what lies under nulls is undefined."""
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, count=array.offset + len(array))[array.offset :]


def decimal_limbs(array: pa.Array) -> tuple[I64, U64]:
    """High (signed) and low (unsigned) 8 bytes of decimal128 values; what lies under nulls is undefined."""
    halves = values_of(array, np.dtype((np.int64, (2,))))
    return np.ascontiguousarray(halves[:, 1]), np.ascontiguousarray(halves[:, 0]).view(np.uint64)


def value_offsets(array: pa.Array) -> I64:
    """Where the values of a string, binary, list or map array begin in its data or child, and the end: len(array) + 1 numbers."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    if len(array) == 0:
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32, count=array.offset + len(array) + 1)
    return offsets[array.offset :].astype(np.int64)


def value_bytes(array: pa.Array) -> U8:
    """The bytes that `value_offsets` of a string or binary array count in: no copy."""
    data = array.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def text_parts(array: pa.Array) -> tuple[U8, I64, I64]:
    """Bytes, start and length of each value of a string or binary array, also of fixed width (nulls: length as stored, normally 0)."""
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
    """Cumulative offsets of counts (or of flags): 0, c0, c0+c1, .."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def slice_places(starts: I64, counts: I64) -> I64:
    """Positions ``starts[i], starts[i]+1, ..`` (``counts[i]`` of them) of all i, one after another."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    places: I64 = np.repeat(starts - (ends - counts), counts)
    places += np.arange(total, dtype=np.int64)
    return places


def places_within(counts: I64) -> I64:
    """0, 1, .. ``counts[i]`` - 1 of all i, one after another."""
    return slice_places(np.zeros(len(counts), np.int64), counts)


# -- decimals of any length --------------------------------------------------------------------------------------------


def limbs_from_big_endian(data: U8, starts: I64, lengths: I64) -> U8:
    """decimal128 values (16 bytes each, little-endian) of two's complement numbers of 0 to 16 big-endian bytes in ``data``."""
    count = len(starts)
    some = lengths > 0
    first = np.zeros(count, np.uint8)
    first[some] = data[starts[some]]
    digits = np.where(first >= 0x80, np.uint8(0xFF), np.uint8(0)).repeat(_DECIMAL_BYTES)
    ends = _DECIMAL_BYTES * np.arange(1, count + 1, dtype=np.int64)
    digits[slice_places(ends - lengths, lengths)] = data[slice_places(starts, lengths)]
    return np.ascontiguousarray(digits.reshape(count, _DECIMAL_BYTES)[:, ::-1])


def big_endian_digits(high: I64, low: U64) -> tuple[U8, I64]:
    """16 big-endian bytes of each 128-bit number, one number after another, and how many of the last bytes its shortest form takes.

    The shortest two's complement form is that of Java's `BigInteger.toByteArray`.
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
