"""Bucket hashes of whole columns (format.md 7): Murmur3 of BinaryRow words, the bucket functions, Hive's row hash.

Source: ``MurmurHashUtils``, ``BucketFunction``, ``HiveBucketFunction``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import I64, U64, decimal_limbs, null_mask, one_array, values_of
from lsm_core.errors import InvalidOption
from lsm_core.format.binary_row import Layout, Parts, assemble, byte_ranges, header_words, layouts_of, parts_of
from lsm_core.types import DataType, TypeRoot, from_arrow

I32 = npt.NDArray[np.int32]
U32 = npt.NDArray[np.uint32]

EMPTY_HASH = -1670924195
"""Hash of a row without columns."""

# Blocks of this size keep all temporary arrays in the processor's cache (kernels.md).
_BLOCK_ROWS = 16_384
_SEED = 42
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_FIVE, _ADD = np.uint32(5), np.uint32(0xE6546B64)
_FEW_ROWS = 8


class _State:
    """Murmur3 hashes of a block of rows, with temporary arrays that every step reuses.

    Attributes:
        hashes: hash of each row so far.
    """

    def __init__(self, count: int) -> None:
        self.hashes: U32 = np.full(count, _SEED, np.uint32)
        self._k: U32 = np.empty(count, np.uint32)
        self._t: U32 = np.empty(count, np.uint32)

    def mix(self, quads: U32) -> None:
        """Apply one Murmur3 round to the first ``len(quads)`` rows, with one 4-byte word per row."""
        count = len(quads)
        k, t, h = self._k[:count], self._t[:count], self.hashes[:count]
        np.multiply(quads, _C1, out=k)
        _rotate(k, t, 15)
        np.multiply(k, _C2, out=k)
        np.bitwise_xor(h, k, out=h)
        _rotate(h, t, 13)
        np.multiply(h, _FIVE, out=h)
        np.add(h, _ADD, out=h)

    def mix_words(self, words: U64) -> None:
        """Apply two rounds, with the lower and then the upper half of 8-byte words."""
        # Compact decimals are every other limb of their buffer, so they are not contiguous.
        halves = np.ascontiguousarray(words).view(np.uint32)
        self.mix(halves[0::2])
        self.mix(halves[1::2])

    def finish(self, byte_lengths: Any) -> I32:
        """Mix in each row's length in bytes, apply Murmur3's final mix, and return the hashes as int32."""
        h, t = self.hashes, self._t
        np.bitwise_xor(h, byte_lengths, out=h)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, None)):
            np.right_shift(h, np.uint32(shift), out=t)
            np.bitwise_xor(h, t, out=h)
            if factor is not None:
                np.multiply(h, np.uint32(factor), out=h)
        return h.view(np.int32)


def _rotate(values: U32, scratch: U32, bits: int) -> None:
    np.right_shift(values, np.uint32(32 - bits), out=scratch)
    np.left_shift(values, np.uint32(bits), out=values)
    np.bitwise_or(values, scratch, out=values)


def hash_rows(columns: Sequence[Any], types: Sequence[DataType]) -> I32:
    """Return the hash of each row.

    Murmur3-32 (seed 42, 4-byte little-endian words) of the BinaryRow bytes without arity.

    Args:
        columns: Arrow arrays of equal length.
        types: their logical types.

    Returns:
        The hashes as int32.

    Raises:
        ValueError: the rows have no columns.

    Source: `MurmurHashUtils.hashBytesByWords`, `BinaryRow.hashCode`.
    """
    layouts = layouts_of(types)
    arrays = [one_array(column, layout.arrow) for column, layout in zip(columns, layouts, strict=True)]
    if not arrays:
        raise ValueError("rows without columns have no length; their hash is EMPTY_HASH")
    result = np.empty(len(arrays[0]), np.int32)
    for first in range(0, len(arrays[0]), _BLOCK_ROWS):
        parts, count = parts_of([array.slice(first, _BLOCK_ROWS) for array in arrays], layouts)
        if all(part.words is None for part in parts):
            hashes = _hash_fixed(parts, count)
        else:
            hashes = hash_words(*assemble(parts, count))
        result[first : first + count] = hashes
    return result


def _hash_fixed(parts: Sequence[Parts], count: int) -> I32:
    """Return hashes of rows without variable-length parts, computed from the columns without building rows.

    Args:
        parts: the encoded columns.
        count: number of rows.
    """
    state = _State(count)
    headers = header_words(parts)
    for header in headers:
        if header is None:
            zero = np.zeros(count, np.uint32) if len(headers) > 1 else None
            if zero is None:
                state.hashes[:] = _AFTER_ZERO_WORD
            else:
                state.mix(zero)
                state.mix(zero)
        else:
            state.mix_words(header)
    for part in parts:
        state.mix_words(part.slots)
    return state.finish(np.uint32(8 * (len(headers) + len(parts))))


def _after_zero_word() -> np.uint32:
    state = _State(1)
    state.mix_words(np.zeros(1, np.uint64))
    return np.uint32(state.hashes[0])


_AFTER_ZERO_WORD = _after_zero_word()


def hash_words(words: U64, offsets: I64) -> I32:
    """Return hashes of rows of 8-byte words; row i is ``words[offsets[i]:offsets[i + 1]]``."""
    lengths = np.diff(offsets)
    count = len(lengths)
    if count == 0:
        return np.zeros(0, np.int32)
    longest, shortest = int(lengths.max()), int(lengths.min())
    state = _State(count)
    if longest == shortest:
        quads = words.view(np.uint32).reshape(count, 2 * longest)
        for index in range(2 * longest):
            state.mix(quads[:, index])
        return state.finish(np.uint32(8 * longest))
    # With the longest rows first, the rows that still have a j-th word form a prefix, which is mixed in place.
    order = np.argsort((longest - lengths).astype(np.uint16 if longest < 65_536 else np.int64), kind="stable")
    starts = offsets[:-1][order]
    sizes = lengths[order]
    remaining_rows = count - np.searchsorted(sizes[::-1], np.arange(longest), side="right")
    step = 0
    while step < longest and remaining_rows[step] > _FEW_ROWS:
        state.mix_words(words[starts[: remaining_rows[step]] + step])
        step += 1
    for row in range(int(remaining_rows[step]) if step < longest else 0):
        tail = words[starts[row] + step : starts[row] + sizes[row]]
        state.hashes[row] = _mix_tail(int(state.hashes[row]), tail.view(np.uint32))
    result = np.empty(count, np.int32)
    result[order] = state.finish((8 * sizes).astype(np.uint32))
    return result


def _mix_tail(seed: int, quads: U32) -> np.uint32:
    """Apply the Murmur3 rounds with Python integers to the remaining 4-byte words of one very long row.

    Args:
        seed: hash of the row so far.
        quads: the remaining 4-byte words.

    Returns:
        The hash after these rounds.
    """
    with np.errstate(over="ignore"):
        scrambled = quads * _C1
        scrambled = (scrambled << np.uint32(15)) | (scrambled >> np.uint32(17))
        scrambled = scrambled * _C2
    value = seed
    for quad in scrambled.tolist():
        value ^= quad
        value = ((value << 13) | (value >> 19)) & 0xFFFFFFFF
        value = (value * 5 + 0xE6546B64) & 0xFFFFFFFF
    return np.uint32(value)


def bucket_of(
    rows: pa.RecordBatch | pa.Table | Sequence[Any],
    keys: Mapping[str, DataType] | Sequence[str] | Sequence[DataType],
    num_buckets: int,
    function: str = "default",
) -> I32:
    """Return the bucket of each row by its bucket key.

    Pass a batch with its key columns and the table's types, or the key columns with their types. For a batch with
    column names only, Arrow's types are used, which is correct for rows in their stored form. For example, a
    TIMESTAMP(3) column in microseconds gets the table's buckets only if the type TIMESTAMP(3) is passed.

    Args:
        rows: a batch or table, or the key columns.
        keys: bucket key columns with types, their names, or the types of the key columns.
        num_buckets: number of buckets, at least 1.
        function: `default` (|hash % n| with Java's remainder), `mod` (one INT or BIGINT column, floor modulo) or
            `hive`.

    Returns:
        The buckets as int32, from 0 to ``num_buckets`` - 1.

    Raises:
        InvalidOption: the function is unknown or cannot hash a type, or the number of buckets is below 1.

    Source: `BucketFunction`, `FixedBucketRowKeyExtractor`.
    """
    if isinstance(rows, pa.RecordBatch | pa.Table):
        columns = [rows.column(name) for name in keys]
        types = list(keys.values()) if isinstance(keys, Mapping) else [from_arrow(column.type) for column in columns]
    else:
        columns, types = list(rows), list(cast("Sequence[DataType]", keys))
    if num_buckets < 1:
        raise InvalidOption("bucket", num_buckets, "a fixed number of buckets, 1 or more")
    bucket_function = _FUNCTIONS.get(function)
    if bucket_function is None:
        raise InvalidOption("bucket-function.type", function, ", ".join(_FUNCTIONS))
    return bucket_function(columns, types, num_buckets)


def _default_bucket(columns: Sequence[Any], types: Sequence[DataType], num_buckets: int) -> I32:
    # fmod has the sign of the dividend, like Java's remainder.
    buckets: I32 = np.abs(np.fmod(hash_rows(columns, types), np.int32(num_buckets)))
    return buckets


def _mod_bucket(columns: Sequence[Any], types: Sequence[DataType], num_buckets: int) -> I32:
    if len(types) != 1 or types[0].root not in (TypeRoot.INT, TypeRoot.BIGINT):
        raise InvalidOption("bucket-function.type", "mod", "for one bucket key column of type INT or BIGINT")
    layout = layouts_of(types)[0]
    array = one_array(columns[0], layout.arrow)
    values = values_of(array, f"<i{layout.width}")
    buckets: I32 = np.mod(values, num_buckets).astype(np.int32)
    nulls = null_mask(array)
    return buckets if nulls is None else np.where(nulls, np.int32(0), buckets)


def _hive_bucket(columns: Sequence[Any], types: Sequence[DataType], num_buckets: int) -> I32:

    hashes = hive_hash(columns, types)
    buckets: I32 = np.mod(hashes & np.int32(0x7FFFFFFF), np.int32(num_buckets)).astype(np.int32)
    return buckets


_FUNCTIONS: dict[str, Callable[[Sequence[Any], Sequence[DataType], int], I32]] = {
    "default": _default_bucket,
    "mod": _mod_bucket,
    "hive": _hive_bucket,
}


_U32 = npt.NDArray[np.uint32]

_FACTOR = np.uint32(31)
_INTEGERS = frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT})
_BYTES = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})


def hive_hash(columns: Sequence[Any], types: Sequence[DataType]) -> npt.NDArray[np.int32]:
    """Return Hive's hash of each row: ``h = 31 * h + hash(field)`` over the columns, with 0 for a null field.

    Returns:
        The hashes as int32.

    Raises:
        InvalidOption: Hive's hash does not support a type.
    """
    layouts = layouts_of(types)
    arrays = [one_array(column, layout.arrow) for column, layout in zip(columns, layouts, strict=True)]
    total: _U32 = np.zeros(len(arrays[0]) if arrays else 0, np.uint32)
    for array, kind, layout in zip(arrays, types, layouts, strict=True):
        field = _field_hash(array, kind, layout)
        nulls = null_mask(array)
        if nulls is not None:
            field = np.where(nulls, np.uint32(0), field)
        total = total * _FACTOR + field
    return total.view(np.int32)


def _field_hash(array: pa.Array, kind: DataType, layout: Layout) -> _U32:
    if kind.root is TypeRoot.BOOLEAN:
        filled = array.fill_null(fill_value=False)
        booleans: _U32 = filled.to_numpy(zero_copy_only=False).astype(np.uint32)
        return booleans
    if kind.root in _INTEGERS:
        integers: _U32 = values_of(array, f"<i{layout.width}").astype(np.int32).view(np.uint32)
        return integers
    if kind.root is TypeRoot.BIGINT:
        return _fold_long(values_of(array, "<u8"))
    if kind.root is TypeRoot.FLOAT:
        singles = values_of(array, "<f4")
        return np.where(singles == 0, np.float32(0), _canonical(singles)).view(np.uint32)
    if kind.root is TypeRoot.DOUBLE:
        doubles = values_of(array, "<f8")
        return _fold_long(np.where(doubles == 0, np.float64(0), _canonical(doubles)).view(np.uint64))
    if kind.root in _BYTES:
        return _polynomial(array)
    if kind.root is TypeRoot.DECIMAL:
        return _decimals(array, kind)
    raise InvalidOption("bucket-function.type", "hive", f"for bucket key types that Hive hashes, not {kind}")


def _canonical(values: Any) -> Any:
    """Return the values with the same bits for every NaN, as Java's floatToIntBits returns."""
    return np.where(np.isnan(values), values.dtype.type(np.nan), values)


def _fold_long(values: npt.NDArray[np.uint64]) -> _U32:
    folded: _U32 = (values ^ (values >> np.uint64(32))).astype(np.uint32)
    return folded


def _polynomial(array: pa.Array) -> _U32:
    """Return the polynomial hash (factor 31) of each value's signed bytes.

    The hashes are computed byte position by byte position, over the values that have a byte at the position.
    """
    if len(array) == 0:
        return np.zeros(0, np.uint32)
    data, starts, lengths = byte_ranges(array)
    signed = data.view(np.int8).astype(np.int32).view(np.uint32)
    hashes = np.zeros(len(array), np.uint32)
    # With the longest rows first, the rows that have a j-th byte form a prefix.
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    remaining_rows = len(lengths) - np.searchsorted(lengths[::-1], np.arange(int(lengths[0])), side="right")
    for position, count in enumerate(remaining_rows.tolist()):
        hashes[:count] = hashes[:count] * _FACTOR + signed[starts[:count] + position]
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


def _decimals(array: pa.Array, kind: DataType) -> _U32:
    """Return Hive's hash of each decimal: ``31 * sign * (31 * high + low) + scale``.

    ``high`` and ``low`` are the 32-bit halves of the magnitude without trailing zeros; the scale never gets negative.
    """
    if len(array) == 0:
        return np.zeros(0, np.uint32)
    high, low = decimal_limbs(array)
    unscaled = low.view(np.int64)
    nulls = null_mask(array)
    wide = (high != unscaled >> 63) if nulls is None else (high != unscaled >> 63) & ~nulls
    if wide.any():
        raise InvalidOption("bucket-function.type", "hive", "for decimals of at most 63 bits")
    magnitude = np.abs(unscaled)
    scale = np.full(len(array), kind.scale or 0, np.int64)
    for _ in range(kind.scale or 0):
        strip = (scale > 0) & (magnitude % 10 == 0)
        magnitude = np.where(strip, magnitude // 10, magnitude)
        scale -= strip
    bits = magnitude.view(np.uint64)
    inner = (bits >> np.uint64(32)).astype(np.uint32) * _FACTOR + bits.astype(np.uint32)
    sign = np.sign(unscaled).astype(np.int32).view(np.uint32)
    hashed: _U32 = inner * sign * _FACTOR + scale.astype(np.uint32)
    return np.where(unscaled == 0, np.uint32(0), hashed)
