"""Orders for clustering: by columns, along a z-order curve, or along a Hilbert curve, with keys that compare as bytes.

Z-order has the layout of Java's `ZIndexer`: eight bytes a column (text: `zorder.var-length-contribution` bytes of its
start), null as all zeros. Bits are taken in turn from the first column on; a column without further bits is skipped.
The bytes equal Java's for TINYINT to BIGINT, DATE, TIME, timestamps of up to 3 digits, text, binary and the upper 31
bits of floats. They differ for lower bits of floats and every DECIMAL (Java's bytes are not in the order of the
values), for `false` (Java does not distinguish it from null), and for timestamps of more digits (Java truncates them to
milliseconds).
Hilbert is Skilling's transform ("Programming the Hilbert curve", AIP 2004), which Java's `HilbertIndexer` uses too, on
64 bits a column instead of 63. Negative numbers, short texts and nulls keep their order here; in Java they do not.
In both curves a column has no effect if its upper bits vary less than those of its neighbour: an INT beside a DOUBLE,
small numbers beside large ones, addresses with a common start. So where a sample of the rows is available
(`Curve.scaled`), curves use the ranks of the values among the sampled values, 16 bits a column. Rows with the same
ranks are ordered column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import decimal_limbs, text_parts, valid_mask
from lsm_core.errors import UnsupportedFeature
from lsm_core.merge.keys import (
    ByteKeys,
    Bytes,
    Ints,
    Mask,
    flat,
    is_text,
    key_bytes,
    numbers,
    width_of,
)

Words = npt.NDArray[np.uint64]

ORDER: Final = "order"
ZORDER: Final = "zorder"
HILBERT: Final = "hilbert"
STRATEGIES: Final = (ORDER, ZORDER, HILBERT)

_WORD: Final = 8
_BITS: Final = 64
_SIGN: Final = np.uint64(1 << 63)
_ALL_BITS: Final = np.uint64((1 << 64) - 1)
_FALSE: Final = np.uint64(0x01 << 56)
_TRUE: Final = np.uint64(0x81 << 56)
_BLOCK_ROWS: Final = 16_384  # the words of a few columns stay in the processor's second cache
_PAD: Final = 8
_PLACE_BITS: Final = 16
_LAST_PLACE: Final = (1 << _PLACE_BITS) - 1
_CELL_BITS: Final = 16
_SAMPLED: Final = 4096
"""Largest number of sampled values to keep for each column."""


@dataclass(frozen=True, eq=False)
class Scale:
    """Distribution of a column's values, estimated from a sample.

    Attributes:
        nulls: number of sampled nulls. If the sample has more than 4,096 non-null values, the number is reduced in the
            same ratio as ``words``.
        words: order-preserving 64-bit numbers of the sampled non-null values, ascending, 4,096 at most.
        prefix: common prefix of all sampled texts; ``words`` are computed from the bytes after this prefix.
    """

    nulls: int
    words: Words
    prefix: bytes = b""

    @staticmethod
    def of(column: pa.Array) -> Scale:
        """Return the distribution of the values of ``column``, which are a sample.

        Raises:
            UnsupportedFeature: the type has no order.
        """
        values = flat(column).drop_null()
        prefix = b""
        if is_text(values.type) and len(values):
            # the common prefix of all texts is the common prefix of the smallest and the largest
            texts = ByteKeys.of(*text_parts(values))
            order, _ = texts.order(sorted_runs=False)
            low, high = texts.scalar(int(order[0])), texts.scalar(int(order[-1]))
            differs = (i for i, (left, right) in enumerate(zip(low, high, strict=False)) if left != right)
            prefix = low[: next(differs, min(len(low), len(high)))]
        words = np.sort(_words_after(values, prefix))
        kept = words[np.linspace(0, len(words) - 1, min(_SAMPLED, len(words))).astype(np.int64)]
        nulls = (len(column) - len(words)) * len(kept) // max(1, len(words))
        return Scale(nulls, kept, prefix)

    def places(self, column: pa.Array) -> Words:
        """Return the rank of each value among the sampled values, as a number from 0 to 65535.

        Returns:
            For each value, 65535 times the fraction of sampled values (nulls included) that are smaller; 0 for null.
        """
        return np.take(self.places_by_rank, self.ranks(_words_after(column, self.prefix), valid_mask(column)))

    def ranks(self, words: Words, valid: Mask | None) -> Ints:
        """Return the number of sampled values that are smaller than each value; for null their number plus one.

        Args:
            words: numbers of the values, as in the sample.
            valid: False for nulls; None without nulls.
        """
        count = len(self.words)
        if not count:
            ranks = np.zeros(len(words), np.int64)
        else:
            low, shift, starts, bounds = self._cells
            cells = np.maximum(words, low)
            cells -= low
            cells >>= shift
            np.minimum(cells, np.uint64(len(starts) - 1), out=cells)
            ranks = np.take(starts, cells.view(np.int64))
            crowded = np.flatnonzero(ranks < 0)
            ranks += np.take(bounds, ranks, mode="clip") < words
            if len(crowded):
                ranks[crowded] = np.searchsorted(self.words, words[crowded])
        if valid is not None:
            ranks[~valid] = count + 1
        return ranks

    def spread_places(self, count: int, place: int) -> Words:
        """Return, for each rank, the 16 bits of :meth:`places` at their positions in a z-order key.

        Args:
            count: number of columns, at most 4.
            place: number of the column.

        Returns:
            The first 8 bytes of the key, as a big-endian number in which the bits of other columns are 0.
        """
        spreads = self._spreads
        if (count, place) not in spreads:
            parts = [_as_bytes(np.zeros_like(self.places_by_rank), _PLACE_BITS)] * count
            parts[place] = _as_bytes(self.places_by_rank, _PLACE_BITS)
            key_bytes = np.zeros((len(self.places_by_rank), _WORD), np.uint8)
            key_bytes[:, : count * _PLACE_BITS // 8] = interleaved(parts)
            spreads[count, place] = key_bytes.view(">u8").reshape(len(self.places_by_rank)).astype(np.uint64)
        return spreads[count, place]

    @cached_property
    def places_by_rank(self) -> Words:
        """Place of each rank, from 0 to 65535; the last one, for nulls, is 0."""
        total = len(self.words) + self.nulls + 1
        ranks = np.arange(len(self.words) + 1, dtype=np.int64) + (self.nulls + 1)
        return np.append(ranks * _LAST_PLACE // total, 0).astype(np.uint64)

    @cached_property
    def _spreads(self) -> dict[tuple[int, int], Words]:
        """Cached results of :meth:`spread_places`."""
        return {}

    @cached_property
    def _cells(self) -> tuple[np.uint64, np.uint64, Ints, Words]:
        """Table for :meth:`ranks`: the range of the sampled values in at most 65,536 cells of equal width.

        Returns:
            (Smallest value, bits that a cell has, rank of each cell, values by rank). The rank of a cell is the number
                of sampled values before it; -1 if the cell has several values. Behind the last cell and the last value
                is one that is larger.
        """
        low, span = self.words[0], int(self.words[-1] - self.words[0])
        shift = np.uint64(max(0, span.bit_length() - _CELL_BITS))
        cells = ((self.words - low) >> shift).astype(np.int64)
        counts = np.bincount(cells, minlength=int(cells[-1]) + 2)
        starts = np.cumsum(counts) - counts
        starts[counts > 1] = -1
        return low, shift, starts, np.append(self.words, _ALL_BITS)


@dataclass(frozen=True)
class Curve:
    """Order in which rows are clustered: the byte order of the keys that :meth:`keys` returns, nulls first.

    Keys of different batches can be compared.

    Attributes:
        columns: names of the columns, in order.
        strategy: "order", "zorder" or "hilbert" (`STRATEGIES`).
        text_bytes: number of leading bytes of a text that z-order uses; order uses whole texts, Hilbert eight bytes.
        scales: one scale for each column, or empty to use the values themselves.
    """

    columns: tuple[str, ...]
    strategy: str = ORDER
    text_bytes: int = _WORD
    scales: tuple[Scale, ...] = ()

    def scaled(self, sample: pa.RecordBatch | pa.Table) -> Curve:
        """Return a curve that uses the ranks of values among sampled rows instead of the values.

        Args:
            sample: rows with the curve's columns.

        Returns:
            The curve with scales; a curve of strategy order is returned unchanged.
        """
        if self.strategy == ORDER:
            return self
        return replace(self, scales=tuple(Scale.of(flat(sample.column(name))) for name in self.columns))

    def keys(self, batch: pa.RecordBatch | pa.Table) -> ByteKeys:
        """Return a key (bytes) for each row; the byte order of the keys is the clustering order of the rows.

        Raises:
            UnsupportedFeature: the type of a column has no order.
        """
        columns = [flat(batch.column(name)) for name in self.columns]
        if self.strategy == ORDER:
            return ByteKeys.of(*text_parts(key_bytes(columns)))
        text_bytes = self.text_bytes if self.strategy == ZORDER else _WORD
        widths = [text_bytes if is_text(column.type) else _WORD for column in columns]
        rows, width = batch.num_rows, sum(widths) + len(self.scales) * _PLACE_BITS // 8
        data = np.zeros(rows * width + _PAD, np.uint8)
        matrix = data[: rows * width].reshape(rows, width)
        for start in range(0, rows, _BLOCK_ROWS):
            block = [column.slice(start, _BLOCK_ROWS) for column in columns]
            if self.scales:
                self._fill_scaled(matrix[start : start + _BLOCK_ROWS], block, widths)
            else:
                matrix[start : start + _BLOCK_ROWS] = self._plain_keys(block, widths)
        return ByteKeys(data, np.arange(rows, dtype=np.int64) * width, np.full(rows, width, np.int64), width)

    def _plain_keys(self, columns: Sequence[pa.Array], widths: Sequence[int]) -> Bytes:
        parts = [ordered_bytes(column, size) for column, size in zip(columns, widths, strict=True)]
        if self.strategy == ZORDER:
            return interleaved(parts)
        words = [np.ascontiguousarray(part).view(">u8").reshape(len(part)).astype(np.uint64) for part in parts]
        return _hilbert(words, _BITS)

    def _fill_scaled(self, keys: Bytes, columns: Sequence[pa.Array], widths: Sequence[int]) -> None:
        """Write the keys of some rows: the curve of the places, then the values column by column.

        Args:
            keys: matrix of the keys, zeros so far.
            columns: the columns of the rows.
            widths: bytes of each column's values.
        """
        count, start = len(columns), len(columns) * _PLACE_BITS // 8
        numbers_of = [None if is_text(column.type) else _words(column) for column in columns]
        ranks = [
            scale.ranks(_words_after(column, scale.prefix) if words is None else words, valid_mask(column))
            for scale, column, words in zip(self.scales, columns, numbers_of, strict=True)
        ]
        if self.strategy == ZORDER and count * _PLACE_BITS <= _BITS:
            head = np.take(self.scales[0].spread_places(count, 0), ranks[0])
            for place in range(1, count):
                head |= np.take(self.scales[place].spread_places(count, place), ranks[place])
            if keys.shape[1] < _WORD:
                keys[:, :start] = _as_bytes(head, _BITS)[:, :start]
            else:
                _put_words(keys, 0, head)  # bytes beyond the curve are overwritten below
        else:
            places = [np.take(scale.places_by_rank, rank) for scale, rank in zip(self.scales, ranks, strict=True)]
            if self.strategy == ZORDER:
                keys[:, :start] = interleaved([_as_bytes(place, _PLACE_BITS) for place in places])
            else:
                keys[:, :start] = _hilbert(places, _PLACE_BITS)
        for column, words, width in zip(columns, numbers_of, widths, strict=True):
            if words is None:
                keys[:, start : start + width] = ordered_bytes(column, width)
            else:
                _put_words(keys, start, words)
            start += width


def sortable(kind: pa.DataType) -> bool:
    """Return whether rows can be ordered by a column of this type."""
    try:
        width_of(kind)
    except UnsupportedFeature:
        return False
    return True


def ordered_bytes(column: pa.Array, text_bytes: int = _WORD) -> Bytes:
    """Return order-preserving big-endian bytes as a matrix with one row per value; a null is all zeros.

    Different values may have equal bytes: texts with the same start, decimals beyond 64 bits (clamped), null and the
    smallest value.

    Args:
        column: the values.
        text_bytes: number of bytes for a text; all other types have 8 bytes.
    """
    if not is_text(column.type):
        return _as_bytes(_words(column), _BITS)
    keys = ByteKeys.of(*text_parts(column))
    result = np.empty((len(column), -(-text_bytes // _WORD) * _WORD), np.uint8)
    for position in range(0, text_bytes, _WORD):
        words = keys.words(position).astype(">u8")  # zeros after the end of a text
        result[:, position : position + _WORD] = words.view(np.uint8).reshape(len(column), _WORD)
    valid = valid_mask(column)
    if valid is not None:
        result[~valid] = 0
    return result[:, :text_bytes]


def interleaved(parts: Sequence[Bytes]) -> Bytes:
    """Return the interleaved bits of all parts (z-order), most significant bits first.

    Args:
        parts: one matrix per column, with one row per value; the number of bytes may differ between parts.
    """
    widths = [part.shape[1] for part in parts]
    result = np.empty((len(parts[0]), sum(widths)), np.uint8)
    offset = 0
    for position in range(max(widths)):
        parts_with_byte = [part[:, position] for part in parts if part.shape[1] > position]
        share = np.take(_spread(len(parts_with_byte), 0), parts_with_byte[0], axis=0)
        for place, column in enumerate(parts_with_byte[1:], start=1):
            share |= np.take(_spread(len(parts_with_byte), place), column, axis=0)
        result[:, offset : offset + len(parts_with_byte)] = share
        offset += len(parts_with_byte)
    return result


def hilbert_transposed(axes: Sequence[Words], bits: int = _BITS) -> list[Words]:
    """Transform points, so that the interleaved bits of their coordinates are the distance along the Hilbert curve.

    The transform is Skilling's (see the module docstring).

    Args:
        axes: one array for each coordinate, with values below 2**``bits``.
        bits: bits of a coordinate.
    """
    # the narrowest words hold four times as many points in a register
    kind: Any = next(kind for kind in (np.uint16, np.uint32, np.uint64) if bits <= np.iinfo(kind).bits)
    coordinates: list[npt.NDArray[Any]] = [axis.astype(kind) for axis in axes]
    first, one = coordinates[0], kind(1)
    for bit in range(bits - 1, 0, -1):
        shift, low = kind(bit), kind((1 << bit) - 1)
        for axis in coordinates:
            # all ones where the bit is set: these points invert the first axis, the others swap low bits
            is_set = (axis >> shift) & one
            np.negative(is_set, out=is_set)
            is_set &= low
            swap = first ^ axis
            swap &= low & ~is_set
            axis ^= swap
            swap |= is_set
            first ^= swap
    for before, axis in pairwise(coordinates):
        axis ^= before
    parity = coordinates[-1] >> one
    step = 1
    while step < bits:
        parity ^= parity >> kind(step)
        step *= 2
    return [(axis ^ parity).astype(np.uint64) for axis in coordinates]


def _hilbert(axes: Sequence[Words], bits: int) -> Bytes:
    return interleaved([_as_bytes(axis, bits) for axis in hilbert_transposed(axes, bits)])


def _as_bytes(words: Words, bits: int) -> Bytes:
    """Return the lower ``bits`` of each word, big-endian."""
    return words.astype(">u8").view(np.uint8).reshape(len(words), _WORD)[:, _WORD - bits // 8 :]


def _put_words(keys: Bytes, start: int, words: Words) -> None:
    """Write one big-endian word into each key, from byte ``start`` on."""
    rows, width = keys.shape
    np.ndarray((rows,), np.dtype(">u8"), keys, offset=start, strides=(width,))[:] = words


def _words(column: pa.Array) -> Words:
    """Return a uint64 number for each value, in the order of the values; 0 for null."""
    kind = column.type
    if pa.types.is_boolean(kind):
        words = np.where(numbers(column) != 0, _TRUE, _FALSE)
    elif pa.types.is_decimal128(kind) and width_of(kind) == 2 * _WORD:
        # 128-bit numbers as 64-bit ones; numbers beyond that become the largest or the smallest
        high, low = decimal_limbs(column)
        sign = low.view(np.int64) >> np.int64(63)
        edge = np.where(high < 0, np.int64(-(1 << 63)), np.int64((1 << 63) - 1))
        words = np.where(high == sign, low.view(np.int64), edge).view(np.uint64) ^ _SIGN
    else:
        width_of(kind)
        words = numbers(column).view(np.uint64) ^ _SIGN
    valid = valid_mask(column)
    return words if valid is None else np.where(valid, words, np.uint64(0))


def _words_after(column: pa.Array, prefix: bytes) -> Words:
    """Return a uint64 number for each value, in the order of the values; for texts from the 8 bytes after ``prefix``.

    A text without the prefix gets the lowest or the highest word.
    """
    if not is_text(column.type):
        return _words(column)
    keys = ByteKeys.of(*text_parts(column))
    result = keys.words(len(prefix))
    same = np.ones(len(column), np.bool_)
    for position in range(0, len(prefix), _WORD):
        part = prefix[position : position + _WORD]
        mask = np.uint64(((1 << 8 * len(part)) - 1) << 8 * (_WORD - len(part)))
        expected, actual = np.uint64(int.from_bytes(part.ljust(_WORD, b"\0"), "big")), keys.words(position) & mask
        result[same & (actual < expected)] = 0
        result[same & (actual > expected)] = _ALL_BITS
        same &= actual == expected
    return result


@lru_cache(maxsize=256)
def _spread(count: int, place: int) -> Bytes:
    """Return a table with one row for each byte value 0 to 255: the bits of the value, spread over ``count`` bytes.

    Consecutive bits are ``count`` positions apart. The most significant bit is at position ``place``.
    """
    bits = np.zeros((256, 8 * count), np.uint8)
    bits[:, place::count] = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    table = np.packbits(bits, axis=1)
    table.flags.writeable = False
    return table
