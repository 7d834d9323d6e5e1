"""Normalised keys: the key columns of each row as one value that compares fast, in Java's order.

Columns become order-preserving numbers, exactly as Java compares them. A sort key is an int64, or a byte string that is
compared eight bytes at a time (never through NumPy's `S` type).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_scalar, decimal_limbs, numpy_array, one_array, text_parts, valid_mask, values_of
from lsm_core.errors import InvalidData, InvalidOption, UnsupportedFeature
from lsm_core.format.schema import KEY_PREFIX, TableSchema


@dataclass(frozen=True)
class KeySpec:
    """Columns that order the rows of a table.

    A batch has a key column as `_KEY_<name>`, or as `<name>` if the key was decoded only once.

    Attributes:
        key_columns: names of the key columns in the table.
        sequence_columns: columns of option `sequence.field`.
        sequence_descending: whether smaller sequence fields are newer.
        table: name of the table, for errors.
        nullable: whether key columns may be null; nulls are equal and come first.
    """

    key_columns: tuple[str, ...]
    sequence_columns: tuple[str, ...] = ()
    sequence_descending: bool = False
    table: str = ""
    nullable: bool = False

    @staticmethod
    def of(
        schema: TableSchema, sequence_field: Sequence[str] = (), descending: bool = False, table: str = ""
    ) -> KeySpec:
        """Return the order of a primary-key table: its trimmed primary key, then `sequence.field`.

        Raises:
            InvalidOption: a sequence field does not exist, for example in a table that was created before Java checked
                this option.
        """
        for name in sequence_field:
            if not schema.has_field(name):
                raise InvalidOption("sequence.field", name, f"columns: {', '.join(schema.field_names)}", table)
        return KeySpec(schema.trimmed_primary_keys, tuple(sequence_field), descending, table, schema.nullable_key)

    def key_fields(self, schema: pa.Schema) -> list[str]:
        """Return the name of each key column in ``schema``: `_KEY_<name>` or `<name>`.

        Raises:
            InvalidData: a key column is missing.
        """
        names = set(schema.names)
        fields = []
        for key in self.key_columns:
            name = KEY_PREFIX + key if KEY_PREFIX + key in names else key
            if name not in names:
                raise InvalidData(self.table, key, "the batch lacks this key column")
            fields.append(name)
        return fields

    def keys(self, batch: pa.RecordBatch | pa.Table) -> NormalisedKeys:
        """Return the normalised keys of the rows of ``batch``.

        Raises:
            InvalidData: a key is null, but keys are not nullable; the error names the column.
        """
        fields = self.key_fields(batch.schema)
        columns = [flat(batch.column(name)) for name in fields]
        null = None if self.nullable else any_null(columns)
        if null is not None:
            raise InvalidData(self.table, self.key_columns[null], "a key is null")
        return normalise_keys(columns, nullable=self.nullable)


def normalise_keys(columns: Sequence[pa.Array], *, nullable: bool = False) -> NormalisedKeys:
    """Return one key for each row; the keys compare as Java compares the rows of key columns.

    Args:
        columns: key columns, most significant first.
        nullable: whether keys may be null; nulls are equal and come first.

    Returns:
        Fixed-width columns of at most 8 bytes together become int64; a single text column is used unchanged; all other
        keys, and keys that may be null, become bytes that compare as the rows do. The form depends only on the types
        and ``nullable``, so keys of different batches compare.

    Raises:
        InvalidData: a key is null but not ``nullable``, or the keys are too large.
        UnsupportedFeature: the type of a column has no order.
    """
    columns = [flat(column) for column in columns]
    if not columns:
        raise InvalidData("", "", "a key has no columns")
    if nullable:
        return ByteKeys.of(*text_parts(key_bytes(columns)))
    if any_null(columns) is not None:
        raise InvalidData("", "", "a key is null")
    if len(columns) == 1:
        if is_text(columns[0].type):
            return ByteKeys.of(*text_parts(columns[0]))
        if _sort_width(columns[0].type) <= 8:
            return IntKeys(numbers(columns[0]))
    widths = [None if is_text(column.type) else _sort_width(column.type) for column in columns]
    fixed = [width for width in widths if width is not None]
    if len(fixed) < len(columns):
        return ByteKeys.of(*text_parts(_join_parts(columns, nulls=False)))
    rows, width = len(columns[0]), sum(fixed)
    matrix = np.zeros((rows, max(width, 8)), np.uint8)
    offset = matrix.shape[1] - width
    for column in columns:
        part = big_endian(column)
        matrix[:, offset : offset + part.shape[1]] = part
        offset += part.shape[1]
    if width <= 8:
        return IntKeys(
            (matrix.view(np.dtype(">u8")).reshape(rows) ^ np.uint64(1 << 63)).astype(np.uint64).view(np.int64)
        )
    starts = np.arange(rows, dtype=np.int64) * width
    return ByteKeys.of(matrix.reshape(-1), starts, np.full(rows, width, np.int64))


def _sort_width(kind: pa.DataType) -> int:
    width = width_of(kind)
    assert width is not None
    return 8 if pa.types.is_floating(kind) else width


def key_bytes(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """Return memcomparable bytes of each row, for smallest and largest keys of files.

    Python's order of bytes is the keys' order.

    For each column these are a null byte (nulls first), then big-endian sign-flipped numbers, floats in Java's order,
    or text escaped (00 -> 00 FF) and terminated (00).

    Raises:
        UnsupportedFeature: a type has no order.
    """
    return _join_parts([flat(column) for column in columns], nulls=True)


def _join_parts(columns: Sequence[pa.Array], nulls: bool) -> pa.BinaryArray:
    """Return one byte string per row: the bytes of its columns, joined; texts are escaped.

    A text in the last column has no terminator, because no bytes follow the text. ``nulls``: whether a null byte
    precedes each column.
    """
    rows = len(columns[0])
    parts: list[pa.Array] = []
    pending: list[Bytes] = []
    for index, column in enumerate(columns):
        if nulls:
            valid = valid_mask(column)
            pending.append(np.ones((rows, 1), np.uint8) if valid is None else valid.astype(np.uint8)[:, None])
        if not is_text(column.type):
            pending.append(big_endian(column))
            continue
        if pending:
            parts.append(_fixed_array(np.hstack(pending)))
        last = index == len(columns) - 1
        parts.append(_text_array(column, escape=not last))
        # the byte after a terminator must be below FF: the next null byte is, else a second zero is added
        pending = [] if last else [np.zeros((rows, 1 if nulls else 2), np.uint8)]
    if pending:
        parts.append(_fixed_array(np.hstack(pending)))
    if len(parts) == 1:
        return parts[0].cast(pa.binary())
    try:
        keys = pc.binary_join_element_wise(*parts, arrow_scalar(b""))
    except pa.ArrowInvalid as error:
        raise InvalidData("", "", f"keys too large to compare: {error}") from error
    return keys


def _fixed_array(matrix: Bytes) -> pa.Array:
    rows, width = matrix.shape
    data = pa.py_buffer(np.ascontiguousarray(matrix))
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(width))
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, offsets, data])


def _text_array(column: pa.Array, escape: bool) -> pa.Array:
    raw = column.cast(pa.binary()) if not pa.types.is_binary(column.type) else column
    raw = raw.fill_null(b"") if raw.null_count else raw
    data, starts, lengths = text_parts(raw)
    if not escape or len(raw) == 0:
        return raw
    used_bytes = data[starts[0] : starts[-1] + lengths[-1]]
    return pc.replace_substring(raw, b"\x00", b"\x00\xff") if (used_bytes == 0).any() else raw


Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_SIGN64 = np.uint64(1 << 63)


def flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Convert a column to one contiguous array.

    Args:
        column: array, or chunks that are joined.

    Returns:
        The values; dictionaries are decoded, views and large offsets are converted.
    """
    column = one_array(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of the type are compared as unsigned bytes."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def width_of(kind: pa.DataType) -> int | None:
    """Return the width in bytes of a fixed-width type (decimal: 8 or 16), or None for text.

    Raises:
        UnsupportedFeature: the type has no order.
    """
    if is_text(kind):
        return None
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_decimal128(kind):
        return 8 if kind.precision <= 18 else 16
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        width = int(kind.bit_width) // 8
        if width in {1, 2, 4, 8} and not pa.types.is_float16(kind) and not pa.types.is_interval(kind):
            return width
    raise UnsupportedFeature(f"ordering by a column of type {kind}")


def numbers(column: pa.Array) -> Ints:
    """Return int64 numbers in the order of the column's values.

    Floats follow Java's compare: -0.0 < 0.0, every NaN equal and greatest. Booleans: false < true.

    Args:
        column: values of a fixed-width type of at most 8 bytes.

    Returns:
        One number for each value; undefined at null positions.
    """
    kind = column.type
    if pa.types.is_boolean(kind):
        bits = numpy_array(pc.cast(column, pa.int8()).fill_null(arrow_scalar(0, pa.int8())))
        return np.asarray(bits, dtype=np.int64)
    if pa.types.is_floating(kind):
        return float_order(values_of(column, np.float32 if kind.bit_width == 32 else np.float64))
    if pa.types.is_decimal128(kind):
        return values_of(column, np.dtype((np.int64, (2,))))[:, 0].astype(np.int64)
    sign = "u" if pa.types.is_unsigned_integer(kind) else "i"
    raw = values_of(column, np.dtype(f"{sign}{kind.bit_width // 8}"))
    if sign == "u" and kind.bit_width == 64:
        return np.asarray((raw ^ _SIGN64).view(np.int64))
    return np.asarray(raw, dtype=np.int64)


def float_order(values: npt.NDArray[Any]) -> Ints:
    """Return numbers in the order in which Java compares the floats."""
    bits = values.astype(np.float64).view(np.int64)
    bits = np.where(np.isnan(values), np.int64(0x7FF8000000000000), bits)
    # IEEE total order: all bits of negative numbers except the sign are inverted
    return np.asarray(bits ^ ((bits >> np.int64(63)) & np.int64(0x7FFFFFFFFFFFFFFF)), dtype=np.int64)


def big_endian(column: pa.Array) -> Bytes:
    """Return order-preserving big-endian bytes of a fixed-width column.

    Args:
        column: values of a type for which :func:`width_of` returns a width.

    Returns:
        Matrix with one row for each value and :func:`width_of` columns (8 for floats of any width); zeros for nulls.
    """
    width = width_of(column.type)
    assert width is not None
    if width == 16:
        high, low = decimal_limbs(column)
        words = np.empty((len(column), 2), np.dtype(">u8"))
        words[:, 0] = high.view(np.uint64) ^ _SIGN64
        words[:, 1] = low
        matrix = words.view(np.uint8).reshape(len(column), 16)
    else:
        if pa.types.is_floating(column.type):
            width = 8
        wide = numbers(column) ^ np.int64(-(1 << (8 * width - 1)))
        whole = np.ascontiguousarray(wide).astype(np.dtype(">i8")).view(np.uint8).reshape(len(column), 8)
        matrix = whole[:, 8 - width :]
    valid = valid_mask(column)
    return matrix if valid is None else np.where(valid[:, None], matrix, np.uint8(0))


def any_null(columns: Sequence[pa.Array]) -> int | None:
    """Find a null in a list of columns.

    Returns:
        Index of the first column with a null, or None.
    """
    return next((i for i, column in enumerate(columns) if column.null_count), None)


Words = npt.NDArray[np.uint64]
_WordsOf = Callable[[int, Ints], Words]
_PAD = 64
_SIGNED_BITS = 63
# masks of the first 0..8 bytes of a big-endian word
_KEEP = np.array([0, *(((1 << 64) - 1) ^ ((1 << (64 - 8 * n)) - 1) for n in range(1, 9))], dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class IntKeys:
    """Normalised keys as int64.

    Attributes:
        values: one number per row, which orders like the key.
    """

    values: Ints

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, stop: int) -> IntKeys:
        """Return the keys from row ``start`` up to, but not including, row ``stop``, without copying."""
        return IntKeys(self.values[start:stop])

    def take(self, rows: Ints) -> IntKeys:
        """Return the keys at ``rows``, in that order."""
        return IntKeys(self.values[rows])

    def scalar(self, row: int) -> int:
        """Return the key of one row as a value that Python compares."""
        return int(self.values[row])

    def bisect(self, key: int | bytes, right: bool) -> int:
        """Return the position of a key among these keys, which must be ascending.

        Args:
            key: the key.
            right: whether to count keys that equal ``key`` too.

        Returns:
            Number of these keys that are smaller than ``key``; with ``right``, that are not larger.
        """
        return int(np.searchsorted(self.values, np.int64(key), "right" if right else "left"))

    def ascending(self) -> bool:
        """Return whether no key is smaller than the one before it."""
        return bool((self.values[1:] >= self.values[:-1]).all())

    def climbing(self) -> bool:
        """Return whether every key is larger than the one before it."""
        return bool((self.values[1:] > self.values[:-1]).all())

    def order(self, sorted_runs: bool = True) -> tuple[Ints, Mask]:
        """Return a stable permutation that sorts the keys, and a mask of repeated keys.

        The mask has one element for each sorted key except the first: whether the key equals the key before it.

        Args:
            sorted_runs: whether the rows are a few ascending runs, which a merging sort detects.
        """
        if (packed := self._with_places()) is not None:
            packed.sort()
            bits = np.int64(len(packed).bit_length())
            order = packed & ((np.int64(1) << bits) - np.int64(1))
            packed >>= bits
            return order, packed[1:] == packed[:-1]
        order = np.argsort(self.values, kind="stable") if sorted_runs else np.argsort(self.values)
        ranked = self.values[order]
        same = ranked[1:] == ranked[:-1]
        if not sorted_runs and same.any():
            order = np.argsort(self.values, kind="stable")
        return order, same

    def _with_places(self) -> Ints | None:
        """Return, for each key, its difference from the smallest key, with the row number in the low bits.

        Sorting these numbers sorts the keys stably, in half the time of a sort of row numbers. The result is None
        without keys, or if these numbers would exceed 63 bits.
        """
        if not len(self.values):
            return None
        low, bits = int(self.values.min()), len(self.values).bit_length()
        if (int(self.values.max()) - low).bit_length() + bits > _SIGNED_BITS:
            return None
        packed = self.values - np.int64(low)
        packed <<= np.int64(bits)
        packed |= np.arange(len(packed))
        return np.asarray(packed, dtype=np.int64)

    @staticmethod
    def concat(parts: Sequence[IntKeys]) -> IntKeys:
        """Return the keys of all ``parts``, one part after the other."""
        return parts[0] if len(parts) == 1 else IntKeys(np.concatenate([part.values for part in parts]))


@dataclass(frozen=True, eq=False)
class Lead:
    """Eight bytes of each key, from the first position at which keys differ; positions are multiples of eight.

    All keys are equal before this position, if zeros are added to shorter keys.

    Attributes:
        position: number of bytes of each key before its eight bytes.
        words: the eight bytes of each key, as a big-endian number.
    """

    position: int
    words: Words


@dataclass(frozen=True, eq=False)
class ByteKeys:
    """Normalised keys as byte strings.

    Attributes:
        data: the bytes, with 64 spare bytes at the end.
        starts: first byte of each key.
        lengths: bytes of each key.
        width: length of all keys if they are equally long and contiguous, which makes reading several times faster;
            else 0.
        contiguous: whether each key starts where the one before it ends.
        known: cached value of :attr:`lead`, because computing it costs more than sorting by it; None if not computed.
    """

    data: Bytes
    starts: Ints
    lengths: Ints
    width: int = 0
    contiguous: bool = False
    known: Lead | None = None

    @staticmethod
    def of(data: Bytes, starts: Ints, lengths: Ints) -> ByteKeys:
        """Return the keys that are stored in ``data``; the bytes in use are copied.

        Args:
            data: bytes of all keys.
            starts: first byte of each key.
            lengths: bytes of each key.
        """
        if len(starts) == 0:
            return ByteKeys(np.zeros(_PAD, np.uint8), starts, lengths)
        contiguous = bool((starts[:-1] + lengths[:-1] == starts[1:]).all())
        if contiguous:
            low, high = int(starts[0]), int(starts[-1] + lengths[-1])
        else:
            low, high = int(starts.min()), int((starts + lengths).max())
        padded = np.empty(high - low + _PAD, np.uint8)
        padded[:-_PAD] = data[low:high]
        padded[-_PAD:] = 0
        width = int(lengths[0]) if contiguous and (lengths == lengths[0]).all() else 0
        return ByteKeys(padded, starts - low if low else starts, lengths, width, contiguous)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def bounds(self) -> tuple[int, int]:
        """(first byte, end) of the range of ``data`` that the keys use; there must be a key."""
        if self.contiguous:
            return int(self.starts[0]), int(self.starts[-1] + self.lengths[-1])
        return int(self.starts.min()), int((self.starts + self.lengths).max())

    def slice(self, start: int, stop: int) -> ByteKeys:
        """Return the keys from row ``start`` up to, but not including, row ``stop``, without copying."""
        lead = self._lead_so_far
        part = None if lead is None else Lead(lead.position, lead.words[start:stop])
        return ByteKeys(self.data, self.starts[start:stop], self.lengths[start:stop], self.width, self.contiguous, part)

    def take(self, rows: Ints) -> ByteKeys:
        """Return the keys at ``rows``, in that order, over the same bytes."""
        return ByteKeys(self.data, self.starts[rows], self.lengths[rows])

    @property
    def _lead_so_far(self) -> Lead | None:
        return self.__dict__.get("lead", self.known)

    @cached_property
    def lead(self) -> Lead:
        """Eight bytes of each key, from the first position (a multiple of eight) at which keys differ."""
        longest = int(self.lengths.max(initial=0))
        if self.known is None and 0 < longest <= _PAD and not self.width:
            return self._lead_of_short(longest)
        position, words = (0, self.words(0)) if self.known is None else (self.known.position, self.known.words)
        while position + 8 < longest and words[0] == words[-1] and (words == words[0]).all():
            position += 8
            words = self.words(position)
        return Lead(position, words)

    def _lead_of_short(self, longest: int) -> Lead:
        """Compute :attr:`lead` for short keys.

        For these, reading the whole key costs no more than reading eight bytes.
        """
        width, shortest = -(-longest // 8) * 8, int(self.lengths.min())
        view = np.ndarray((len(self.data) - width + 1,), f"V{width}", self.data, strides=(1,))
        matrix = view[self.starts].view(np.dtype(">u8")).reshape(len(self), width // 8)
        for position in range(0, width, 8):
            column, last = matrix[:, position // 8], position + 8 >= longest
            whole = position + 8 <= shortest
            if not last and whole and column[0] == column[-1] and (column == column[0]).all():
                continue
            words = column.astype(np.uint64)
            if not whole:
                words &= _KEEP[np.clip(self.lengths - position, 0, 8)]
            if last or words[0] != words[-1] or (words != words[0]).any():
                break
        return Lead(position, words)

    def scalar(self, row: int) -> bytes:
        """Return the key of one row as a value that Python compares."""
        start = self.starts[row]
        return self.data[start : start + self.lengths[row]].tobytes()

    def bisect(self, key: int | bytes, right: bool) -> int:
        """Return the position of a key among these keys, which must be ascending.

        Args:
            key: the key.
            right: whether to count keys that equal ``key`` too.

        Returns:
            Number of these keys that are smaller than ``key``; with ``right``, that are not larger.
        """
        low, high = 0, len(self)
        if isinstance(key, bytes) and high:
            # rows before those with the lead of `key` are smaller, all rows after them larger
            position, words = self.lead.position, self.lead.words
            key_prefix, common_prefix = (
                key[:position].ljust(position, b"\0"),
                self.scalar(0)[:position].ljust(position, b"\0"),
            )
            if key_prefix != common_prefix:
                return 0 if key_prefix < common_prefix else len(self)
            word = np.uint64(int.from_bytes(key[position : position + 8].ljust(8, b"\0"), "big"))
            low, high = int(np.searchsorted(words, word, "left")), int(np.searchsorted(words, word, "right"))
        return (bisect_right if right else bisect_left)(range(len(self)), key, low, high, key=self.scalar)

    def words(self, position: int, rows: Ints | None = None) -> Words:
        """Return eight bytes of each key as numbers.

        Args:
            position: first byte in each key.
            rows: rows to read; None for all.

        Returns:
            Big-endian uint64 words; bytes beyond a key's end are zero.
        """
        if rows is not None:
            return self.words_at(rows, position)
        if not self.width or position + 8 > self.width:
            return self._load(self.starts + position, self.lengths - position)
        # contiguous keys: a strided copy
        first = int(self.starts[0]) if len(self) else 0
        strided = np.ndarray((len(self),), np.dtype(">u8"), self.data, offset=first + position, strides=(self.width,))
        return strided.astype(np.uint64)

    def words_at(self, rows: Ints, positions: Ints | int) -> Words:
        """Return eight bytes of each key in ``rows`` as big-endian uint64; bytes beyond a key's end are zero.

        ``positions``: first byte in each of these keys, or one number for all.
        """
        return self._load(self.starts[rows] + positions, self.lengths[rows] - positions)

    def _load(self, offsets: Ints, remaining: Ints) -> Words:
        """Return the eight bytes at each of the ``offsets``; bytes after the first ``remaining`` are set to zero."""
        view = np.ndarray((len(self.data) - 7,), np.dtype(">u8"), self.data, strides=(1,))
        words = view[np.minimum(offsets, len(self.data) - 8)].astype(np.uint64)
        if len(remaining) and remaining.min() < 8:
            words &= _KEEP[np.clip(remaining, 0, 8)]
        return words

    def ascending(self) -> bool:
        """Return whether no key is smaller than the one before it."""
        tied = self._rows_tied_with_previous()
        return tied is not None and bool((self.lengths[tied] >= self.lengths[tied - 1]).all())

    def climbing(self) -> bool:
        """Return whether every key is larger than the one before it."""
        tied = self._rows_tied_with_previous()
        return tied is not None and bool((self.lengths[tied] > self.lengths[tied - 1]).all())

    def _rows_tied_with_previous(self) -> Ints | None:
        """Return the numbers of the keys that equal the previous key up to the end of the shorter one.

        The result is None if a key is smaller than the previous key.
        """
        if len(self) < 2:
            return np.zeros(0, np.int64)
        longest = int(self.lengths.max())
        position, words = self.lead.position, self.lead.words
        if (words[1:] < words[:-1]).any():
            return None
        tied = np.flatnonzero(words[1:] == words[:-1]) + 1
        while len(tied) and (position := position + 8) < longest:
            current, before = self.words(position, tied), self.words(position, tied - 1)
            if (current < before).any():
                return None
            tied = tied[current == before]
        return np.asarray(tied, np.int64)

    def order(self, sorted_runs: bool = True) -> tuple[Ints, Mask]:
        """Return a stable permutation that sorts the keys, and a mask of repeated keys.

        Eight bytes after the common prefix decide the order of almost all keys, later bytes only that of ties.

        Args:
            sorted_runs: whether the rows are a few ascending runs, which a merging sort detects; all other rows are
                sorted by digits.

        Returns:
            Stable permutation that sorts the keys, and for each sorted key but the first whether it equals the key
            before.
        """
        if len(self) == 0:
            return np.zeros(0, np.int64), np.zeros(0, np.bool_)
        longest = int(self.lengths.max())
        position, words = self.lead.position, self.lead.words
        if sorted_runs:
            order = np.argsort(words, kind="stable")
            ranked = words[order]
            same = ranked[1:] == ranked[:-1]
        else:
            order, same = _order_words(words)
        position += 8
        while position < longest and same.any():
            _refine(order, same, self.words, position)
            position += 8
        if same.any() and int(self.lengths.min()) != longest:
            lengths = self.lengths[order]
            if (same & (lengths[1:] != lengths[:-1])).any():
                _refine(order, same, lambda _, rows: self.lengths[rows].astype(np.uint64), 0)
        return order, same

    @staticmethod
    def concat(parts: Sequence[ByteKeys]) -> ByteKeys:
        """Return the keys of all ``parts``, one part after the other; only the bytes in use are copied."""
        if len(parts) == 1:
            return parts[0]
        blocks, starts, base = [], [], 0
        for part in parts:
            if len(part) == 0:
                continue
            low, high = part.bounds
            blocks.append(part.data[low:high])
            starts.append(part.starts + (base - low))
            base += high - low
        blocks.append(np.zeros(_PAD, np.uint8))
        widths = {part.width for part in parts if len(part)}
        return ByteKeys(
            np.concatenate(blocks),
            np.concatenate(starts) if starts else np.zeros(0, np.int64),
            np.concatenate([part.lengths for part in parts]),
            widths.pop() if len(widths) == 1 else 0,
            contiguous=False,
            known=_joint_lead([part for part in parts if len(part)]),
        )


def _joint_lead(parts: Sequence[ByteKeys]) -> Lead | None:
    """Return :attr:`ByteKeys.lead` of the keys of all parts together, computed from the parts' cached leads.

    Returns:
        The lead, or None if a part has no cached lead, or if the bytes before the leads differ between parts.
    """
    leads = [lead for part in parts if (lead := part._lead_so_far) is not None]  # noqa: SLF001
    if not parts or len(leads) < len(parts):
        return None
    position = min(lead.position for lead in leads)
    firsts = [part.scalar(0).ljust(lead.position + 8, b"\0") for part, lead in zip(parts, leads, strict=True)]
    if any(first[:position] != firsts[0][:position] for first in firsts):
        return None
    words = [
        lead.words
        if lead.position == position
        else np.full(len(part), int.from_bytes(first[position : position + 8], "big"), np.uint64)
        for part, lead, first in zip(parts, leads, firsts, strict=True)
    ]
    return Lead(position, np.concatenate(words))


def count_not_above(bounds: Sequence[bytes], keys: ByteKeys) -> Ints:
    """Return, for each key, the number of ``bounds`` that are smaller than the key or equal to it.

    Eight bytes are compared at a time. The next eight are read only for keys whose bytes so far equal those of a bound.

    Args:
        bounds: keys, ascending.
        keys: the keys.
    """
    counts = np.zeros(len(keys), np.int64)
    if not bounds or not len(keys):
        return counts
    ends = np.asarray([len(bound) for bound in bounds], np.int64)
    longest = max(int(ends.max()), int(keys.lengths.max()))
    # each step: rows (None: all) whose bytes before `position` equal those of bounds[first:last]
    steps: list[tuple[Ints | None, int, int, int]] = [(None, 0, len(bounds), 0)]
    while steps:
        rows, first, last, position = steps.pop()
        if position >= longest:  # equal up to zeros at the end: the shorter is smaller
            lengths = keys.lengths if rows is None else keys.lengths[rows]
            counts[slice(None) if rows is None else rows] = first + np.searchsorted(ends[first:last], lengths, "right")
            continue
        parts = [bound[position : position + 8].ljust(8, b"\0") for bound in bounds[first:last]]
        bound_words = np.frombuffer(b"".join(parts), np.dtype(">u8")).astype(np.uint64)
        words = keys.words(position, rows)
        not_above = np.searchsorted(bound_words, words, "right")
        counts[slice(None) if rows is None else rows] = first + not_above
        undecided = np.flatnonzero(np.append(bound_words[:1], bound_words)[not_above] == words)
        for end in np.unique(not_above[undecided]):
            members = undecided[not_above[undecided] == end]
            start = int(np.searchsorted(bound_words, words[members[0]]))
            steps.append((members if rows is None else rows[members], first + start, first + int(end), position + 8))
    return counts


NormalisedKeys = IntKeys | ByteKeys


_DIGIT_BITS = 16  # NumPy sorts 16-bit numbers by their bytes, in a seventh of the time of its sort of 64-bit numbers
_FIRST_BITS = 32
_MANY_TIES = 0.25


def stable_order(words: Words) -> Ints:
    """Return the stable permutation that sorts ``words``: a radix sort of the digits in which they differ."""
    if not len(words):
        return np.zeros(0, np.int64)
    low = words.min()
    bits, offsets = int(words.max() - low).bit_length(), words - low if low else words
    order = np.argsort(offsets.astype(np.uint16), kind="stable")
    for shift in range(_DIGIT_BITS, bits, _DIGIT_BITS):
        digits = (offsets >> np.uint64(shift)).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
    return order


def _order_words(words: Words) -> tuple[Ints, Mask]:
    """Return the stable permutation that sorts ``words``, and a mask of repeated words, as `ByteKeys.order` does.

    The upper 32 bits of the words' range are sorted first: lower bits rarely decide.
    """
    if (words[1:] >= words[:-1]).all():
        return np.arange(len(words)), words[1:] == words[:-1]
    low = words.min()
    shift = max(0, int(words.max() - low).bit_length() - _FIRST_BITS)
    upper = (words - low) >> np.uint64(shift)
    order = stable_order(upper)
    ranked = upper[order]
    same = ranked[1:] == ranked[:-1]
    if shift and np.count_nonzero(same) > _MANY_TIES * len(words):
        order = stable_order(words)
        ranked = words[order]
        return order, ranked[1:] == ranked[:-1]
    if shift and same.any():
        _refine(order, same, lambda _, rows: words[rows], 0)
    return order, same


def _refine(order: Ints, same: Mask, words_of: _WordsOf, position: int) -> None:
    """Sort the rows that are equal so far by their next words, and unmark rows with different words in ``same``.

    Both arrays are changed in place.

    Args:
        order: row numbers, sorted by the words compared before.
        same: mask of the positions i at which rows ``order[i]`` and ``order[i + 1]`` are equal so far.
        words_of: function of a position and row numbers that returns the words to compare.
        position: position that is passed to ``words_of``.
    """
    member = np.zeros(len(order), np.bool_)
    member[1:] |= same
    member[:-1] |= same
    positions = np.flatnonzero(member)
    rows = order[positions]
    words = words_of(position, rows)
    tied = np.zeros(len(positions), np.bool_)
    tied[1:] = same[positions[1:] - 1]
    if (tied[1:] & (words[1:] < words[:-1])).any():
        group = np.cumsum(~tied).astype(np.uint64)
        reordered = stable_order(words)
        reordered = reordered[stable_order(group[reordered])]
        order[positions] = rows[reordered]
        words = words[reordered]
    ties = np.flatnonzero(tied)
    same[positions[ties] - 1] = words[ties] == words[ties - 1]


def concat_keys(parts: Sequence[NormalisedKeys]) -> NormalisedKeys:
    """Return the keys of all ``parts``, one part after the other; all parts have the same class of keys."""
    first = parts[0]
    if isinstance(first, IntKeys):
        return IntKeys.concat([part for part in parts if isinstance(part, IntKeys)])
    return ByteKeys.concat([part for part in parts if isinstance(part, ByteKeys)])


def order_parts(column: pa.Array, descending: bool = False) -> list[Ints]:
    """Return numbers that sort as ``column`` does, with nulls first in both directions.

    Args:
        column: the values.
        descending: sort values in descending order.

    Returns:
        int64 columns, most significant first; numbers of text are ranks within the column, so they can only be
        compared with each other.
    """
    valid = valid_mask(column)
    if is_text(column.type):
        order, same = ByteKeys.of(*text_parts(column)).order(sorted_runs=False)
        ranks = np.zeros(len(order), np.int64)
        ranks[order[1:]] = np.cumsum(~same)
        parts = [ranks]  # ranks of nulls are replaced below
    elif pa.types.is_decimal128(column.type) and column.type.precision > 18:
        high, low = decimal_limbs(column)
        parts = [high, (low ^ np.uint64(1 << 63)).view(np.int64)]
    else:
        width_of(column.type)
        parts = [numbers(column)]
    if descending:
        parts = [~part for part in parts]
    if valid is None:
        return parts
    return [valid.astype(np.int64), *(np.where(valid, part, 0) for part in parts)]
