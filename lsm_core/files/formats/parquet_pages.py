"""How many rows of a Parquet file fit into memory at a time: found from page headers before anything large is unpacked.

A few bytes of a file can stand for gigabytes: a page that compresses ten thousandfold, a long text in a dictionary that a run of one
number repeats a million times, texts that share a long prefix, one list of a billion equal elements. No count in the footer is
needed to tell: what a reader takes in is what page headers say. Batches are cut so that one fits, and what fits nowhere is refused.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from lsm_core.arrays import value_offsets
from lsm_core.errors import CorruptFile, ValueTooLarge
from lsm_core.files.formats import thrift
from lsm_core.files.formats.parquet_footer import (
    BYTE_ARRAY,
    CODED,
    DELTA_BYTE_ARRAY,
    INT32,
    PLAIN,
    WIDTHS,
    Chunk,
    Footer,
    Leaf,
)
from lsm_core.files.formats.parquet_reader import iter_batches, open_reader
from lsm_core.files.formats.parquet_usual import page_header
from lsm_core.files.formats.thrift import Struct
from lsm_core.types.dictionaries import longest_value

LARGEST_VALUE: Final = 64 << 20
"""Bytes of a value that is taken into memory; writers refuse larger ones too."""
BATCH_BYTES: Final = 128 << 20
"""Decoded bytes of a batch, as far as page headers tell them."""
_HOLLOW: Final = 64
"""A page that compresses more than so many times counts as hollow, if it is large at all."""
_LEAST_HOLLOW: Final = 2 << 20
_MOST_HOLLOW: Final = 256 << 20
"""Bytes of hollow pages that may be unpacked at a time, one of each column."""
_MOST_NESTED: Final = 256 << 20
"""Bytes of a row group's nested leaf up to which one row may hold all of them."""
_ENTRY_BYTES: Final = 8
"""What an element costs beside its value: an offset, and bits."""
_RATIOS: Final = {0: 1, 1: 64, 2: 1_100, 5: 256, 6: 1 << 15, 7: 256}
"""Bytes that one stored byte of a codec can unpack to at most: none, Snappy, gzip, LZ4, Zstandard, LZ4 again."""
_CODEC_NAMES: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_HEADER_READS: Final = (256, 1 << 14, 1 << 24)
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_KIND, _PLAIN_SIZE, _STORED_SIZE, _DATA_HEADER, _DICTIONARY_HEADER, _V2_HEADER = 1, 2, 3, 5, 7, 8
_RLE, _DELTA_BINARY_PACKED = 3, 5


class _Page(NamedTuple):
    kind: int
    plain: int
    stored: int
    values: int
    encoding: int
    body: int
    """Where in the file its bytes begin."""
    header: Struct


class _Need(NamedTuple):
    """The memory that decoding one leaf of one row group takes."""

    hollow: int
    """Bytes of its largest hollow page."""
    row: float
    """Decoded bytes of a row."""


def rows_at_once(
    source: pa.NativeFile,
    path: str,
    footer: Footer,
    groups: Sequence[int],
    leaves: Sequence[int],
    rows: int,
    kept: Container[str] = (),
) -> int:
    """At most ``rows``, and so few that a batch of ``leaves`` (indexes) of any of the row ``groups`` takes about `BATCH_BYTES`.

    ``kept``: columns that come out as the dictionaries that they are stored as; what their texts take in each row is for
    :func:`fitting` to say, who need not unpack them once more.

    Raises :class:`ValueTooLarge` where one value or row, or the pages that must be unpacked together, are too large; CorruptFile for pages
    that are none.
    """
    found = rows
    for number in groups:
        group = footer.groups[number]
        chunks = [(footer.leaves[leaf], group.chunks[leaf]) for leaf in leaves]
        taken = min(rows, group.rows)
        if not taken or sum(_at_most(leaf, chunk, taken) for leaf, chunk in chunks) <= BATCH_BYTES:
            continue
        needs = [_need(source, path, leaf, chunk, group.rows, taken, leaf.name in kept) for leaf, chunk in chunks]
        if sum(need.hollow for need in needs) > _MOST_HOLLOW:
            worst = chunks[max(range(len(needs)), key=lambda i: needs[i].hollow)][0]
            size = sum(need.hollow for need in needs)
            raise ValueTooLarge(f"file {path}, column '{worst.name}': pages that unpack to {size:,} bytes at a time")
        found = max(1, min(found, int(BATCH_BYTES / max(sum(need.row for need in needs), 1.0))))
    return found


def require_possible_pages(
    source: pa.NativeFile, path: str, footer: Footer, groups: Sequence[int], leaves: Sequence[int]
) -> None:
    """Check that no page claims more bytes than its codec can unpack it to; asked after memory ran out, not on every read.

    Args:
        source: the open file.
        path: its path, for the error.
        footer: its footer.
        groups: row groups that were read.
        leaves: indexes of the leaf columns that were read.

    Raises:
        CorruptFile: a page has a forged size: the lack of memory is the file's fault.
    """
    for group in (footer.groups[number] for number in groups):
        for place in leaves:
            leaf, chunk = footer.leaves[place], group.chunks[place]
            for page in _pages(source, path, leaf, chunk):
                if page.plain > page.stored * _RATIOS.get(chunk.codec, 1 << 40):
                    text = f"column '{leaf.name}' has a page of {page.stored:,} bytes that claims to unpack to {page.plain:,}"
                    raise CorruptFile(path, text)


def fitting(batch: pa.RecordBatch, path: str) -> Iterator[pa.RecordBatch]:
    """``batch`` in slices of which each takes about `BATCH_BYTES` with the texts of its dictionaries in every row.

    Raises :class:`ValueTooLarge` for a text that is too large.
    """
    row = 0
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_dictionary(field.type):
            longest = longest_value(column)
            if longest > LARGEST_VALUE:
                raise ValueTooLarge(f"file {path}, column '{field.name}': a value of {longest:,} bytes")
            row += longest + _ENTRY_BYTES
    most = max(1, BATCH_BYTES // max(row, 1))
    for start in range(0, max(batch.num_rows, 1), most):
        yield batch if batch.num_rows <= most else batch.slice(start, most)


def _at_most(leaf: Leaf, chunk: Chunk, rows: int) -> float:
    """The most bytes that ``rows`` decoded rows can take, by the stored bytes alone."""
    page = float(chunk.stored_bytes * _RATIOS.get(chunk.codec, 1 << 40))
    value = _width(leaf) or page
    return page + (chunk.values if leaf.repeats else rows) * (value + _ENTRY_BYTES * leaf.repeats)


def _width(leaf: Leaf) -> int:
    """Bytes of a value of fixed width, else 0."""
    return leaf.length or WIDTHS.get(leaf.physical, 0)


def _need(source: pa.NativeFile, path: str, leaf: Leaf, chunk: Chunk, rows: int, taken: int, kept: bool) -> _Need:
    hollow = 0
    width = _width(leaf)
    value = float(width)
    dictionary: _Page | None = None
    coded = prefixed = False
    for page in _pages(source, path, leaf, chunk):
        if page.plain > max(_HOLLOW * page.stored, _LEAST_HOLLOW):
            hollow = max(hollow, page.plain)
        if page.kind == _DICTIONARY:
            dictionary = page
        elif page.encoding in CODED:
            coded = True
        elif not width:
            value = max(value, page.plain / max(page.values, 1))
            prefixed = prefixed or page.encoding == DELTA_BYTE_ARRAY
    if hollow > _MOST_HOLLOW:
        return _Need(hollow, value)
    most = chunk.values if leaf.repeats else taken
    if coded and not kept and dictionary is not None and leaf.physical == BYTE_ARRAY:
        # All other values of a dictionary take four bytes at least.
        longest = max(0, dictionary.plain - 4 * dictionary.values)
        if longest * most > BATCH_BYTES:
            longest = _longest(source, chunk, dictionary)
        value = max(value, longest)
    if prefixed:
        value += _longest_prefix(source, path, leaf, chunk)
    if value > LARGEST_VALUE:
        raise ValueTooLarge(f"file {path}, column '{leaf.name}': a value of {int(value):,} bytes")
    value += _ENTRY_BYTES
    if not leaf.repeats:
        return _Need(hollow, value)
    row = value * chunk.values / rows
    if value * chunk.values > _MOST_NESTED:
        longest_row = _longest_row(source, path, leaf, chunk)
        if longest_row * value > _MOST_NESTED:
            size = int(longest_row * value)
            raise ValueTooLarge(f"file {path}, column '{leaf.name}': a row of {longest_row:,} values, {size:,} bytes")
        row = max(row, min(longest_row * value, BATCH_BYTES / 1_024))
    return _Need(hollow, row)


def _pages(source: pa.NativeFile, path: str, leaf: Leaf, chunk: Chunk) -> Iterator[_Page]:
    """The pages that a reader of the chunk takes in: those until its values are complete."""
    at, end, seen = chunk.start, chunk.start + chunk.stored_bytes, 0
    while seen < chunk.values and at < end:
        page = _page(source, path, leaf, at, end)
        at = page.body + page.stored
        if page.kind in (_DATA, _DATA_V2):
            seen += page.values
        elif page.kind != _DICTIONARY:
            continue
        yield page


def _page(source: pa.NativeFile, path: str, leaf: Leaf, at: int, end: int) -> _Page:
    for size in _HEADER_READS:
        data = bytes(source.read_at(min(size, end - at), at))
        usual = page_header(data)
        if usual is not None:
            kind, plain, stored, values, encoding, levels, length = usual
            told: Struct = {3: (thrift.I32, levels[0]), 4: (thrift.I32, levels[1])}
            break
        reader = thrift.Reader(data)
        try:
            header = reader.struct()
        except (ValueError, IndexError) as error:  # cut, or no header at all
            if size >= end - at or size == _HEADER_READS[-1]:
                raise CorruptFile(path, f"column '{leaf.name}' has a page without header: {error}") from error
            continue
        kind, plain, stored = (_number(header, field) for field in (_KIND, _PLAIN_SIZE, _STORED_SIZE))
        inner = header.get({_DATA: _DATA_HEADER, _DICTIONARY: _DICTIONARY_HEADER, _DATA_V2: _V2_HEADER}.get(kind, 0))
        told = inner[1] if inner is not None and inner[0] == thrift.STRUCT else {}
        values, encoding, length = _number(told, 1), _number(told, 4 if kind == _DATA_V2 else 2), reader.at
        break
    body = at + length
    if min(kind, plain, stored) < 0 or body + stored > end or (told and (values < 0 or encoding < 0)):
        raise CorruptFile(path, f"column '{leaf.name}' has a page that does not fit: {plain} bytes in {stored}")
    if not told and kind in (_DATA, _DICTIONARY, _DATA_V2):
        raise CorruptFile(path, f"column '{leaf.name}' has a page that is not described")
    return _Page(kind, plain, stored, values, encoding, body, told)


def _number(struct: Struct, field: int) -> int:
    kind, value = struct.get(field, (0, -1))
    return int(value) if kind == thrift.I32 else -1


def _longest(source: pa.NativeFile, chunk: Chunk, page: _Page) -> int:
    """Bytes of the longest text of a dictionary: its page is what a column of plain texts is stored as, so Arrow reads it as one."""
    stored = bytes(source.read_at(page.stored, page.body))
    longest = 0
    for batch in _as_column(stored, page.plain, page.values, chunk.codec, BYTE_ARRAY, PLAIN):
        longest = max(longest, int(np.diff(value_offsets(batch.column(0))).max(initial=0)))
    return longest


def _longest_prefix(source: pa.NativeFile, path: str, leaf: Leaf, chunk: Chunk) -> int:
    """Bytes of the longest prefix that texts share with the one before: what DELTA_BYTE_ARRAY stores first, as packed integers."""
    longest = 0
    for page in _pages(source, path, leaf, chunk):
        if page.encoding != DELTA_BYTE_ARRAY or page.kind == _DICTIONARY:
            continue
        parts = _unpacked(source, path, leaf, chunk, page)
        if parts is None:
            longest = max(longest, page.plain)
            continue
        lengths = parts[1]
        reader = thrift.Reader(lengths)
        try:
            _block, _parts, count = reader.unsigned(), reader.unsigned(), reader.unsigned()
        except (ValueError, IndexError) as error:
            raise CorruptFile(path, f"column '{leaf.name}' has a broken page: {error}") from error
        if count > page.values:
            raise CorruptFile(path, f"column '{leaf.name}' has a page of {count} texts, its header says {page.values}")
        column = _as_column(lengths, len(lengths), count, 0, INT32, _DELTA_BINARY_PACKED)
        for batch in column:
            longest = max(longest, int(batch.column(0).to_numpy().max(initial=0)))
    return longest


def _longest_row(source: pa.NativeFile, path: str, leaf: Leaf, chunk: Chunk) -> int:
    """Values of the longest row of a repeated leaf, from its levels of repetition: a row begins where the level is 0."""
    longest = current = 0
    width = leaf.repeats.bit_length()
    for page in _pages(source, path, leaf, chunk):
        if page.kind == _DICTIONARY:
            continue
        parts = _unpacked(source, path, leaf, chunk, page)
        if parts is None:  # nothing tells: all of them
            return chunk.values
        for starts, count in _runs(parts[0], width, page.values, path, leaf):
            if starts is None:
                current += count
            elif len(starts) == 0:
                longest, current = max(longest, current, 1), 1
            else:
                gaps = np.diff(starts)
                longest = max(longest, current + int(starts[0]), int(gaps.max(initial=0)))
                current = count - int(starts[-1])
        longest = max(longest, current)
    return longest


def _runs(
    levels: bytes, width: int, left: int, path: str, leaf: Leaf
) -> Iterator[tuple[np.ndarray[Any, Any] | None, int]]:
    """Runs of levels as (places of zeros, levels): None where there are none, no places where all are zeros."""
    reader = thrift.Reader(levels)
    try:
        while left > 0:
            head = reader.unsigned()
            if head & 1:
                size = (head >> 1) * width
                bits = np.frombuffer(reader.take(min(size, len(levels) - reader.at)), np.uint8)
                unpacked = np.unpackbits(bits, bitorder="little")
                flags = np.any(unpacked[: len(unpacked) // width * width].reshape(-1, width), axis=1)[:left]
                if not len(flags):
                    raise ValueError("no levels")
                starts = np.flatnonzero(~flags)
                yield (starts if len(starts) else None), len(flags)
                left -= len(flags)
            else:
                count = min(head >> 1, left)
                level = int.from_bytes(reader.take((width + 7) // 8), "little")
                if count:
                    yield (None if level else np.empty(0, np.int64)), count
                left -= count
                if not head:
                    raise ValueError("a run of nothing")
    except (ValueError, IndexError) as error:
        raise CorruptFile(path, f"column '{leaf.name}' has broken levels: {error}") from error


def _unpacked(source: pa.NativeFile, path: str, leaf: Leaf, chunk: Chunk, page: _Page) -> tuple[bytes, bytes] | None:
    """(levels of repetition, values) of a data page; None for a codec or an encoding of levels that is not read here."""
    stored = bytes(source.read_at(page.stored, page.body))
    repeats = defined = 0
    if page.kind == _DATA_V2:
        defined, repeats = _number(page.header, 5), _number(page.header, 6)
        if min(defined, repeats) < 0 or defined + repeats > min(page.stored, page.plain):
            raise CorruptFile(path, f"column '{leaf.name}' has a page whose levels do not fit")
        levels, stored = stored[:repeats], stored[defined + repeats :]
        packed = page.header.get(7, (thrift.TRUE, True))[1]
        plain = _plain(stored, page.plain - defined - repeats, chunk.codec if packed else 0, path, leaf)
        return None if plain is None else (levels, plain)
    if (leaf.repeats and _number(page.header, 4) != _RLE) or (leaf.optional and _number(page.header, 3) != _RLE):
        return None
    plain = _plain(stored, page.plain, chunk.codec, path, leaf)
    if plain is None:
        return None
    at, levels = 0, b""
    if leaf.repeats:
        at = 4 + int.from_bytes(plain[:4], "little")
        levels = plain[4:at]
    if leaf.optional:
        at += 4 + int.from_bytes(plain[at : at + 4], "little")
    return levels, plain[at:]


def _plain(stored: bytes, size: int, codec: int, path: str, leaf: Leaf) -> bytes | None:
    if codec == 0 or not size:
        return stored
    name = _CODEC_NAMES.get(codec)
    if name is None or not pa.Codec.is_available(name):
        return None
    try:
        return bytes(pa.Codec(name).decompress(stored, decompressed_size=size, asbytes=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(path, f"column '{leaf.name}' has a page that does not unpack: {error}") from error


def _as_column(
    stored: bytes, plain: int, count: int, codec: int, physical: int, encoding: int
) -> Iterator[pa.RecordBatch]:
    """Batches of a Parquet file in memory whose only column is one page of ``count`` values without nulls."""
    i32, i64, text = thrift.I32, thrift.I64, thrift.BINARY
    described: Struct = {1: (i32, count), 2: (i32, encoding), 3: (i32, _RLE), 4: (i32, _RLE)}
    header: Struct = {1: (i32, _DATA), 2: (i32, plain), 3: (i32, len(stored)), 5: (thrift.STRUCT, described)}
    page = thrift.encoded(header) + stored
    size = len(page)
    column: Struct = {
        1: (i32, physical),
        2: (thrift.LIST, [encoding]),
        3: (thrift.LIST, [b"c"]),
        4: (i32, codec),
        5: (i64, count),
        6: (i64, size + plain - len(stored)),
        7: (i64, size),
        9: (i64, 4),
    }
    group: Struct = {
        1: (thrift.LIST, [{2: (i64, 4), 3: (thrift.STRUCT, column)}]),
        2: (i64, size),
        3: (i64, count),
    }
    schema: list[Struct] = [{4: (text, b"r"), 5: (i32, 1)}, {1: (i32, physical), 3: (i32, 0), 4: (text, b"c")}]
    footer = thrift.encoded({1: (i32, 2), 2: (thrift.LIST, schema), 3: (i64, count), 4: (thrift.LIST, [group])})
    data = b"PAR1" + page + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    return iter_batches(open_reader(pa.BufferReader(data)), 1 << 16)


__all__ = ["BATCH_BYTES", "LARGEST_VALUE", "fitting", "require_possible_pages", "rows_at_once"]
