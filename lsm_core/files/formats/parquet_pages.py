"""Decoding of Parquet pages in bounded memory: the number of rows of a file that fit into memory at a time.

A few bytes of a file can decode to gigabytes: a page that compresses ten thousandfold, a long text of a dictionary that
a run of one number repeats a million times, texts with a long common prefix, one list of a billion equal elements. The
counts in the footer are not needed: page headers show the memory that a reader needs, before anything large is
decompressed. Batches are cut so that each fits into memory, and a value too large for any batch is rejected.

Arrow's decoder is used without `pyarrow.parquet`, which imports file systems, with SSL and the libraries of four
clouds: 9 MiB and a tenth of the time of importing Arrow. Files are read through `lsm_core.storage` here.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow._parquet import FileMetaData, ParquetReader

from lsm_core.arrays import longest_value, value_offsets
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
from lsm_core.files.formats.thrift import Struct, page_header


def open_reader(
    source: pa.NativeFile,
    *,
    metadata: FileMetaData | None = None,
    dictionaries: Sequence[str] = (),
    buffer_size: int = 0,
) -> Any:
    """Return Arrow's reader of ``source``, as `pyarrow.parquet.ParquetFile` opens it.

    The reader's `metadata` and `schema_arrow` describe the file.

    Args:
        source: the file.
        metadata: the footer, if already read.
        dictionaries: text columns to return as Arrow dictionaries.
        buffer_size: bytes of a column chunk that are read at a time; 0 for all.

    Raises:
        pyarrow.ArrowException: the file is not valid.
        OSError: the file cannot be read.
    """
    reader = ParquetReader()
    reader.open(
        source,
        metadata=metadata,
        read_dictionary=list(dictionaries) or None,
        buffer_size=buffer_size,
        pre_buffer=False,
        page_checksum_verification=True,  # for pages that have one, as Java's do
        arrow_extensions_enabled=True,
    )
    return reader


def iter_batches(
    reader: Any, rows: int, groups: Sequence[int] | None = None, leaves: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield decoded batches of a file, on the calling thread.

    Args:
        reader: Arrow's reader.
        rows: largest number of rows of a batch.
        groups: row groups to read; None for all.
        leaves: indexes of leaf columns; None for all.
    """
    chosen = range(reader.metadata.num_row_groups) if groups is None else groups
    batches: Iterator[pa.RecordBatch] = reader.iter_batches(
        rows, row_groups=chosen, column_indices=None if leaves is None else list(leaves), use_threads=False
    )
    return batches


LARGEST_VALUE: Final = 64 << 20
"""Largest bytes of a value that is read into memory; writers reject larger ones too."""
BATCH_BYTES: Final = 128 << 20
"""Largest decoded bytes of a batch, as far as page headers show the size of values."""
_HOLLOW: Final = 64
"""Compression ratio above which a large page counts as hollow (few stored bytes, many decoded bytes)."""
_LEAST_HOLLOW: Final = 2 << 20
_MOST_HOLLOW: Final = 256 << 20
"""Largest bytes of hollow pages that may be decompressed at a time, one of each column."""
_MOST_NESTED: Final = 256 << 20
"""Largest decoded bytes of one row of a nested leaf; in a smaller chunk, the lengths of rows are not checked."""
_ENTRY_BYTES: Final = 8
"""Bytes of an element in addition to its value: an offset, and bits."""
_RATIOS: Final = {0: 1, 1: 64, 2: 1_100, 5: 256, 6: 1 << 15, 7: 256}
"""Largest number of bytes that one stored byte of a codec decompresses to: none, Snappy, gzip, LZ4, Zstandard, LZ4
raw.
"""
_CODEC_NAMES: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_HEADER_READS: Final = (256, 1 << 14, 1 << 24)
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_KIND, _PLAIN_SIZE, _STORED_SIZE, _DATA_HEADER, _DICTIONARY_HEADER, _V2_HEADER = 1, 2, 3, 5, 7, 8
_RLE, _DELTA_BINARY_PACKED = 3, 5


class _Page(NamedTuple):
    """Header of one page of a column chunk.

    Attributes:
        kind: type of the page (Parquet `PageType`).
        plain: uncompressed bytes of the page.
        stored: compressed bytes of the page.
        values: number of values, nulls included.
        encoding: encoding of the values (Parquet `Encoding`).
        body: position of the page's first byte in the file, after the header.
        header: fields of the Thrift header for this type of page.
    """

    kind: int
    plain: int
    stored: int
    values: int
    encoding: int
    body: int
    header: Struct


class _Need(NamedTuple):
    """Memory that decoding one leaf of one row group takes.

    Attributes:
        hollow: decoded bytes of the leaf's largest hollow page, which has few stored bytes and many decoded bytes.
        row: decoded bytes of a row.
    """

    hollow: int
    row: float


def rows_at_once(
    source: pa.NativeFile,
    path: str,
    footer: Footer,
    groups: Sequence[int],
    leaves: Sequence[int],
    rows: int,
    kept: Container[str] = (),
) -> int:
    """Return the number of rows, at most ``rows``, of which a batch takes about `BATCH_BYTES` in any of the row groups.

    Args:
        source: the open file.
        path: path of the file, for errors.
        footer: footer of the file.
        groups: row groups to read.
        leaves: indexes of the leaves to read.
        rows: largest number of rows.
        kept: columns that are returned as Arrow dictionaries. The length of their texts is not counted here, because
            :func:`split_to_fit` measures it after decoding.

    Raises:
        ValueTooLarge: one value or row, or the pages that must be decompressed together, are too large.
        CorruptFile: a page is not valid.
    """
    batch_rows = rows
    for number in groups:
        group = footer.groups[number]
        chunks = [(footer.leaves[leaf], group.chunks[leaf]) for leaf in leaves]
        most_rows = min(rows, group.rows)
        if not most_rows or sum(_most_bytes(leaf, chunk, most_rows) for leaf, chunk in chunks) <= BATCH_BYTES:
            continue
        needs = [
            _needed_memory(source, path, leaf, chunk, group.rows, most_rows, leaf.name in kept)
            for leaf, chunk in chunks
        ]
        if sum(need.hollow for need in needs) > _MOST_HOLLOW:
            worst = chunks[max(range(len(needs)), key=lambda i: needs[i].hollow)][0]
            size = sum(need.hollow for need in needs)
            raise ValueTooLarge(f"file {path}, column '{worst.name}': pages that unpack to {size:,} bytes at a time")
        batch_rows = max(1, min(batch_rows, int(BATCH_BYTES / max(sum(need.row for need in needs), 1.0))))
    return batch_rows


def require_possible_pages(
    source: pa.NativeFile, path: str, footer: Footer, groups: Sequence[int], leaves: Sequence[int]
) -> None:
    """Check that no page claims more decompressed bytes than its codec can produce from the page's stored bytes.

    The reader calls this function after memory ran out, not on every read.

    Args:
        source: the open file.
        path: path of the file, for the error.
        footer: footer of the file.
        groups: row groups that were read.
        leaves: indexes of the leaf columns that were read.

    Raises:
        CorruptFile: a page has a forged size, so the file caused the lack of memory.
    """
    for group in (footer.groups[number] for number in groups):
        for place in leaves:
            leaf, chunk = footer.leaves[place], group.chunks[place]
            for page in _pages(source, path, leaf, chunk):
                if page.plain > page.stored * _RATIOS.get(chunk.codec, 1 << 40):
                    raise CorruptFile(
                        path,
                        f"column '{leaf.name}' has a page of {page.stored:,} bytes "
                        f"that claims to unpack to {page.plain:,}",
                    )


def split_to_fit(batch: pa.RecordBatch, path: str) -> Iterator[pa.RecordBatch]:
    """Yield ``batch`` in slices of about `BATCH_BYTES` each, counting the texts of its dictionaries in every row.

    Raises:
        ValueTooLarge: a text is too large.
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


def _most_bytes(leaf: Leaf, chunk: Chunk, rows: int) -> float:
    """Return an upper bound of the decoded bytes of ``rows`` rows, computed from the stored bytes.

    Args:
        leaf: the leaf of the schema.
        chunk: the leaf's column chunk.
        rows: number of rows.
    """
    page = float(chunk.stored_bytes * _RATIOS.get(chunk.codec, 1 << 40))
    value = _width(leaf) or page
    return page + (chunk.values if leaf.repeats else rows) * (value + _ENTRY_BYTES * leaf.repeats)


def _width(leaf: Leaf) -> int:
    """Return the bytes of a value of the leaf's physical type, or 0 for values of variable length."""
    return leaf.length or WIDTHS.get(leaf.physical, 0)


def _needed_memory(
    source: pa.NativeFile, path: str, leaf: Leaf, chunk: Chunk, rows: int, most_rows: int, kept: bool
) -> _Need:
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
    most = chunk.values if leaf.repeats else most_rows
    if coded and not kept and dictionary is not None and leaf.physical == BYTE_ARRAY:
        # Every other value of a dictionary takes at least four bytes.
        longest = max(0, dictionary.plain - 4 * dictionary.values)
        if longest * most > BATCH_BYTES:
            longest = _longest_text(source, chunk, dictionary)
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
    """Yield the pages of the chunk that a reader needs: those until its values are complete."""
    position, end, seen = chunk.start, chunk.start + chunk.stored_bytes, 0
    while seen < chunk.values and position < end:
        page = _page(source, path, leaf, position, end)
        position = page.body + page.stored
        if page.kind in (_DATA, _DATA_V2):
            seen += page.values
        elif page.kind != _DICTIONARY:
            continue
        yield page


class PageParts(NamedTuple):
    """Page as it is stored.

    Attributes:
        kind: type of the page (Parquet `PageType`).
        plain: bytes of the header and of the uncompressed page.
        stored: bytes of the header and of the stored page.
        values: number of values, nulls included.
        encoding: encoding of the values (Parquet `Encoding`).
    """

    kind: int
    plain: int
    stored: int
    values: int
    encoding: int

    @property
    def has_rows(self) -> bool:
        """Whether the page has values of rows; a dictionary has not."""
        return self.kind in (_DATA, _DATA_V2)


def stored_pages(data: bytes, path: str, leaf: Leaf) -> Iterator[PageParts]:
    """Yield the pages of which the bytes of a column chunk consist.

    Args:
        data: one page or several, whole.
        path: path of the file, for errors.
        leaf: the leaf of the schema that the pages store.

    Raises:
        CorruptFile: the bytes are not pages.
    """
    source, position = pa.BufferReader(data), 0
    while position < len(data):
        page = _page(source, path, leaf, position, len(data))
        end = page.body + page.stored
        yield PageParts(page.kind, page.body - position + page.plain, end - position, page.values, page.encoding)
        position = end


def _page(source: pa.NativeFile, path: str, leaf: Leaf, start: int, end: int) -> _Page:
    for size in _HEADER_READS:
        data = bytes(source.read_at(min(size, end - start), start))
        page_at_start = page_header(data)
        if page_at_start is not None:
            kind, plain, stored, values, encoding, levels, length = page_at_start
            page_fields: Struct = {3: (thrift.I32, levels[0]), 4: (thrift.I32, levels[1])}
            break
        reader = thrift.Reader(data)
        try:
            header = reader.struct()
        except (ValueError, IndexError) as error:  # truncated, or no header
            if size >= end - start or size == _HEADER_READS[-1]:
                raise CorruptFile(path, f"column '{leaf.name}' has a page without header: {error}") from error
            continue
        kind, plain, stored = (_number(header, field) for field in (_KIND, _PLAIN_SIZE, _STORED_SIZE))
        inner = header.get({_DATA: _DATA_HEADER, _DICTIONARY: _DICTIONARY_HEADER, _DATA_V2: _V2_HEADER}.get(kind, 0))
        page_fields = inner[1] if inner is not None and inner[0] == thrift.STRUCT else {}
        values, encoding, length = (
            _number(page_fields, 1),
            _number(page_fields, 4 if kind == _DATA_V2 else 2),
            reader.at,
        )
        break
    body = start + length
    if min(kind, plain, stored) < 0 or body + stored > end or (page_fields and (values < 0 or encoding < 0)):
        raise CorruptFile(path, f"column '{leaf.name}' has a page that does not fit: {plain} bytes in {stored}")
    if not page_fields and kind in (_DATA, _DICTIONARY, _DATA_V2):
        raise CorruptFile(path, f"column '{leaf.name}' has a page that is not described")
    return _Page(kind, plain, stored, values, encoding, body, page_fields)


def _number(struct: Struct, field: int) -> int:
    kind, value = struct.get(field, (0, -1))
    return int(value) if kind == thrift.I32 else -1


def _longest_text(source: pa.NativeFile, chunk: Chunk, page: _Page) -> int:
    """Return the bytes of the longest text of the dictionary page ``page``.

    The page has the layout of plain texts, so Arrow reads it as a column.
    """
    stored = bytes(source.read_at(page.stored, page.body))
    longest = 0
    for batch in _read_page_as_column(stored, page.plain, page.values, chunk.codec, BYTE_ARRAY, PLAIN):
        longest = max(longest, int(np.diff(value_offsets(batch.column(0))).max(initial=0)))
    return longest


def _longest_prefix(source: pa.NativeFile, path: str, leaf: Leaf, chunk: Chunk) -> int:
    """Return the length in bytes of the longest prefix that a text shares with the previous text.

    DELTA_BYTE_ARRAY stores the lengths of the prefixes before the texts. For pages that cannot be decompressed here,
    the size of the whole page is used.
    """
    longest = 0
    for page in _pages(source, path, leaf, chunk):
        if page.encoding != DELTA_BYTE_ARRAY or page.kind == _DICTIONARY:
            continue
        parts = _decompress_page(source, path, leaf, chunk, page)
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
            raise CorruptFile(
                path, f"column '{leaf.name}' has a page of {count} texts, its header states {page.values}"
            )
        column = _read_page_as_column(lengths, len(lengths), count, 0, INT32, _DELTA_BINARY_PACKED)
        for batch in column:
            longest = max(longest, int(batch.column(0).to_numpy().max(initial=0)))
    return longest


def _longest_row(source: pa.NativeFile, path: str, leaf: Leaf, chunk: Chunk) -> int:
    """Return the number of values of the longest row of a repeated leaf.

    A row begins where the level of repetition is 0.
    """
    longest = current = 0
    width = leaf.repeats.bit_length()
    for page in _pages(source, path, leaf, chunk):
        if page.kind == _DICTIONARY:
            continue
        parts = _decompress_page(source, path, leaf, chunk, page)
        if parts is None:  # unknown: a row may have all of them
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
    levels: bytes, width: int, remaining: int, path: str, leaf: Leaf
) -> Iterator[tuple[np.ndarray[Any, Any] | None, int]]:
    """Yield runs of repetition levels as (positions of zeros in the run, number of levels).

    The positions are None if no level of the run is zero. They are empty if one repeated level, zero, fills the run.

    Args:
        levels: the encoded levels of one page (RLE and bit-packed hybrid).
        width: bits of one level.
        remaining: number of levels to decode.
        path: path of the file, for messages.
        leaf: the leaf of the schema, for messages.

    Raises:
        CorruptFile: the levels are not valid; the message names ``path``.
    """
    reader = thrift.Reader(levels)
    try:
        while remaining > 0:
            head = reader.unsigned()
            if head & 1:
                size = (head >> 1) * width
                bits = np.frombuffer(reader.take(min(size, len(levels) - reader.at)), np.uint8)
                unpacked = np.unpackbits(bits, bitorder="little")
                flags = np.any(unpacked[: len(unpacked) // width * width].reshape(-1, width), axis=1)[:remaining]
                if not len(flags):
                    raise ValueError("no levels")
                starts = np.flatnonzero(~flags)
                yield (starts if len(starts) else None), len(flags)
                remaining -= len(flags)
            else:
                count = min(head >> 1, remaining)
                level = int.from_bytes(reader.take((width + 7) // 8), "little")
                if count:
                    yield (None if level else np.empty(0, np.int64)), count
                remaining -= count
                if not head:
                    raise ValueError("a run of nothing")
    except (ValueError, IndexError) as error:
        raise CorruptFile(path, f"column '{leaf.name}' has broken levels: {error}") from error


def _decompress_page(
    source: pa.NativeFile, path: str, leaf: Leaf, chunk: Chunk, page: _Page
) -> tuple[bytes, bytes] | None:
    """Return (levels of repetition, values) of a data page, or None for an unsupported codec or encoding of levels.

    Args:
        source: the open file.
        path: path of the file, for messages.
        leaf: the leaf of the schema.
        chunk: the column chunk of the page.
        page: header of the data page with the position of its bytes.
    """
    stored = bytes(source.read_at(page.stored, page.body))
    repeats = defined = 0
    if page.kind == _DATA_V2:
        defined, repeats = _number(page.header, 5), _number(page.header, 6)
        if min(defined, repeats) < 0 or defined + repeats > min(page.stored, page.plain):
            raise CorruptFile(path, f"column '{leaf.name}' has a page whose levels do not fit")
        levels, stored = stored[:repeats], stored[defined + repeats :]
        packed = page.header.get(7, (thrift.TRUE, True))[1]
        plain = _decompress(stored, page.plain - defined - repeats, chunk.codec if packed else 0, path, leaf)
        return None if plain is None else (levels, plain)
    if (leaf.repeats and _number(page.header, 4) != _RLE) or (leaf.optional and _number(page.header, 3) != _RLE):
        return None
    plain = _decompress(stored, page.plain, chunk.codec, path, leaf)
    if plain is None:
        return None
    offset, levels = 0, b""
    if leaf.repeats:
        offset = 4 + int.from_bytes(plain[:4], "little")
        levels = plain[4:offset]
    if leaf.optional:
        offset += 4 + int.from_bytes(plain[offset : offset + 4], "little")
    return levels, plain[offset:]


def _decompress(stored: bytes, size: int, codec: int, path: str, leaf: Leaf) -> bytes | None:
    if codec == 0 or not size:
        return stored
    name = _CODEC_NAMES.get(codec)
    if name is None or not pa.Codec.is_available(name):
        return None
    try:
        return bytes(pa.Codec(name).decompress(stored, decompressed_size=size, asbytes=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(path, f"column '{leaf.name}' has a page that does not unpack: {error}") from error


def _read_page_as_column(
    stored: bytes, plain: int, count: int, codec: int, physical: int, encoding: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a Parquet file in memory whose only column is one page of ``count`` values without nulls.

    Args:
        stored: the page's body as stored.
        plain: bytes of the body before compression.
        count: number of values.
        codec: number of the compression codec.
        physical: number of the physical type.
        encoding: number of the encoding.
    """
    i32, i64, text = thrift.I32, thrift.I64, thrift.BINARY
    described: Struct = {1: (i32, count), 2: (i32, encoding), 3: (i32, _RLE), 4: (i32, _RLE)}
    header: Struct = {1: (i32, _DATA), 2: (i32, plain), 3: (i32, len(stored)), 5: (thrift.STRUCT, described)}
    page = thrift.encode(header) + stored
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
    footer = thrift.encode({1: (i32, 2), 2: (thrift.LIST, schema), 3: (i64, count), 4: (thrift.LIST, [group])})
    data = b"PAR1" + page + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    return iter_batches(open_reader(pa.BufferReader(data)), 1 << 16)
