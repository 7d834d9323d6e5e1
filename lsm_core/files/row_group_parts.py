"""Parts of row groups: ranges of rows at whose ends a page ends in every column.

A part can be copied without decoding, like a row group: its column chunks are the dictionaries and some of the pages of
those of the row group. Counts and bounds of its columns are in the page index of the file.
"""

from __future__ import annotations

import functools
import math
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa

from lsm_core.errors import CorruptFile
from lsm_core.files.formats import thrift
from lsm_core.files.formats.parquet_footer import FLOATS, INT96, Chunk, Footer, Leaf, stored_bound
from lsm_core.files.formats.parquet_pages import PageParts, stored_pages
from lsm_core.files.formats.thrift_fields import (
    Fields,
    join_elements,
    join_fields,
    join_structs,
    nested,
    number_of,
    set_number,
    split_elements,
    split_struct,
    split_structs,
)
from lsm_core.files.row_groups import (
    CHUNK_AT,
    CHUNK_META,
    DATA_AT,
    DICTIONARY_AT,
    STATISTICS,
    STORED_BYTES,
    ChunkParts,
    GroupParts,
    Span,
    StoredGroups,
)

# Field ids of the structs in parquet.thrift.
PATH, VALUES, PLAIN_BYTES, PAGE_COUNTS, LEVELS = 3, 5, 6, 13, 16
LOCATIONS, TEXT_BYTES = 1, 2
LOCATION_AT, LOCATION_BYTES, LOCATION_ROW = 1, 2, 3
_EMPTY, _LOWS, _HIGHS, _NULLS, _REPEATS, _DEFINED = 1, 2, 3, 5, 6, 7
_OLD_HIGH, _OLD_LOW, _NULL_COUNT, _HIGH, _LOW, _HIGH_EXACT, _LOW_EXACT = 1, 2, 3, 5, 6, 7, 8
_CUT: Final = frozenset({*range(1, 8), DATA_AT, DICTIONARY_AT, STATISTICS, PAGE_COUNTS, LEVELS})
"""Fields of a column chunk's metadata that :meth:`ChunkPages.part` adjusts or keeps; with others it is not cut."""
_LOCATION_TYPES: Final = {LOCATION_AT: thrift.I64, LOCATION_BYTES: thrift.I32, LOCATION_ROW: thrift.I64}
_MISSING: Final = (0, None)
_MOST_PATHS: Final = 1024
_MOST_INDEXES: Final = 16 << 20
"""Largest bytes between the pages and the footer of a file, where the page indexes are, that are read at once."""


class PartChunk(NamedTuple):
    """Column chunk of a part of a row group.

    Attributes:
        fields: encoded fields of the ColumnChunk without the positions of its page index.
        bounds: encoded ColumnIndex, or None.
        offsets: encoded OffsetIndex.
        plain_bytes: bytes of its pages before compression.
    """

    fields: Fields
    bounds: bytes | None
    offsets: bytes
    plain_bytes: int


@dataclass(frozen=True)
class ChunkPages:
    """Pages of a column chunk, from its page index.

    Attributes:
        chunk: parts of the chunk.
        leaf: the leaf of the schema that the chunk stores.
        kind: Arrow type of the leaf if it is a top-level column outside of lists, else None.
        bounds: encoded ColumnIndex; None for a column without bounds, whose lists of them are empty.
        offsets: encoded OffsetIndex.
        starts: position of each page, and the end of the last one.
        first_rows: first row of each page, and the number of rows.
        empty: whether each page has nulls only.
        nulls: number of nulls of each page.
        lows: smallest value of each page as stored.
        highs: largest value of each page as stored.
    """

    chunk: ChunkParts
    leaf: Leaf
    kind: pa.DataType | None
    bounds: bytes | None
    offsets: bytes
    starts: list[int]
    first_rows: list[int]
    empty: list[bool]
    nulls: list[int]
    lows: list[bytes]
    highs: list[bytes]

    @staticmethod
    def of(
        chunk: ChunkParts, leaf: Leaf, kind: pa.DataType | None, rows: int, indexes: tuple[bytes | None, bytes]
    ) -> ChunkPages:
        """Parse the page index of a column chunk.

        Args:
            chunk: parts of the chunk.
            leaf: the leaf of the schema that the chunk stores.
            kind: Arrow type of a top-level column, else None.
            rows: rows of the row group.
            indexes: encoded ColumnIndex, or None for a column without statistics, and OffsetIndex.

        Raises:
            ValueError: the index is not one of these pages.
            IndexError: the index is truncated.
        """
        bounds, offsets = indexes
        starts, ends, first_rows = [], [], []
        for location in _list(thrift.Reader(offsets).struct(), LOCATIONS):
            described = location if isinstance(location, dict) else {}
            at, size, row = (described.get(number, _MISSING) for number in _LOCATION_TYPES)
            if (at[0], size[0], row[0]) != tuple(_LOCATION_TYPES.values()) or size[1] <= 0:
                raise ValueError("a page without position")
            starts.append(at[1])
            ends.append(at[1] + size[1])
            first_rows.append(row[1])
        dictionary = number_of(chunk.meta, DICTIONARY_AT) or 0
        begins = chunk.pages.start if not dictionary else starts[0] if dictionary == chunk.pages.start else -1
        if [begins, *ends] != [*starts, chunk.pages.end]:
            raise ValueError("pages with other bytes between them")
        first_rows.append(rows)
        if first_rows[0] or sorted({*first_rows}) != first_rows:
            raise ValueError("pages whose rows do not ascend")
        ends_of_pages = [*starts, chunk.pages.end]
        if bounds is None:
            return ChunkPages(chunk, leaf, kind, None, offsets, ends_of_pages, first_rows, [], [], [], [])
        stated = thrift.Reader(bounds).struct()
        lists = [_list(stated, number) for number in (_EMPTY, _LOWS, _HIGHS, _NULLS)]
        if any(len(values) != len(starts) for values in lists):
            raise ValueError("a page index of other pages")
        empty, lows, highs, nulls = lists
        if not {*map(type, lows), *map(type, highs)} <= {bytes}:
            raise ValueError("bounds that are not bytes")
        if not {*map(type, empty)} <= {bool}:
            raise ValueError("marks of empty pages that are not boolean")
        if not {*map(type, nulls)} <= {int} or min(nulls) < 0:
            raise ValueError("numbers of nulls that are not counts")
        return ChunkPages(chunk, leaf, kind, bounds, offsets, ends_of_pages, first_rows, empty, nulls, lows, highs)

    @property
    def dictionary(self) -> Span:
        """Bytes before the first page of rows."""
        return Span(self.chunk.pages.start, self.starts[0])

    def between(self, first: int, stop: int) -> tuple[int, int]:
        """Return the pages of the rows from ``first`` to before ``stop``, as (first page, end)."""
        return bisect_left(self.first_rows, first), bisect_left(self.first_rows, stop)

    def ends(self, low: int, high: int) -> tuple[bytes, bytes] | None:
        """Return the smallest and the largest value of some pages as stored; None if their order is not known.

        Args:
            low: the first page.
            high: the page after the last one.
        """
        if self.bounds is None or self.kind is None or self.leaf.physical == INT96:
            return None
        pages = [page for page in range(low, high) if not self.empty[page]]
        if not pages:
            return None
        smallest = min(pages, key=lambda page: self._order(self.lows[page]))
        largest = max(pages, key=lambda page: self._order(self.highs[page]))
        return self.lows[smallest], self.highs[largest]

    def _order(self, raw: bytes) -> Any:
        """Return the value of a stored bound, for comparisons.

        Raises:
            ValueError: the bound has another size than the type, or is NaN.
        """
        float_format = FLOATS.get(self.leaf.physical)
        if float_format is None:
            return stored_bound(raw, self.leaf.physical, self.kind)
        try:
            (value,) = struct.unpack(float_format, raw)
        except struct.error as error:
            raise ValueError(f"a bound of {len(raw)} bytes") from error
        if math.isnan(value):
            raise ValueError("a bound that is NaN")
        return value

    def agrees_with(self, chunk: Chunk) -> bool:
        """Return whether bounds and null count of the chunk in the footer are those of its pages, if they have any."""
        if self.bounds is None:
            return True
        if chunk.nulls is not None and chunk.nulls != sum(self.nulls):
            return False
        if chunk.low is None or chunk.high is None or self.kind is None:
            return True
        try:
            if pa.types.is_string(self.kind):
                for bound in (*self.lows, *self.highs):
                    bound.decode()
            ends = self.ends(0, len(self.lows))
            return ends is not None and all(
                self._order(stated) == self._order(of_pages)
                for stated, of_pages in zip((chunk.low, chunk.high), ends, strict=True)
            )
        except ValueError:
            return False

    def part(self, data: bytes, position: int, first: int, stop: int, path: str) -> PartChunk:
        """Return the column chunk of a part.

        Args:
            data: bytes of the chunk's dictionary and of the part's pages.
            position: position of ``data`` in the output.
            first: first row of the part.
            stop: row after the last one.
            path: path of the file, for errors.

        Raises:
            CorruptFile: the pages are not those that the page index describes, or the index is broken.
        """
        try:
            return self._part(data, position, first, stop, path)
        except (ValueError, IndexError) as error:
            raise CorruptFile(path, f"the page index of column '{self.leaf.name}' is broken: {error}") from error

    def _part(self, data: bytes, position: int, first: int, stop: int, path: str) -> PartChunk:
        low, high = self.between(first, stop)
        pages = list(stored_pages(data, path, self.leaf))
        of_rows = [page for page in pages if page.has_rows]
        sizes = [after - before for before, after in pairwise(self.starts[low : high + 1])]
        values = sum(page.values for page in of_rows)
        if [page.stored for page in of_rows] != sizes or pages[len(pages) - len(of_rows) :] != of_rows:
            raise CorruptFile(path, f"column '{self.leaf.name}' has other pages than its page index describes")
        if values < stop - first or (values > stop - first and not self.leaf.repeats):
            raise CorruptFile(path, f"column '{self.leaf.name}' has {values} values in {stop - first} rows")
        shift = position + self.dictionary.size - self.starts[low]
        meta = dict(self.chunk.meta)
        set_number(meta, VALUES, values)
        set_number(meta, PLAIN_BYTES, sum(page.plain for page in pages))
        set_number(meta, STORED_BYTES, len(data))
        set_number(meta, DATA_AT, position + self.dictionary.size)
        if DICTIONARY_AT in meta:
            set_number(meta, DICTIONARY_AT, position if self.dictionary.size else 0)
        if PAGE_COUNTS in meta:
            meta[PAGE_COUNTS] = thrift.LIST, _page_counts(pages)
        if self.bounds is None:
            meta.pop(STATISTICS, None)
        elif STATISTICS in meta:
            meta[STATISTICS] = thrift.STRUCT, self._statistics(nested(meta, STATISTICS, thrift.STRUCT), low, high)
        count = len(self.starts) - 1
        bounds: Fields = {} if self.bounds is None else split_struct(self.bounds)[0]
        offsets, _ = split_struct(self.offsets)
        levels = {_REPEATS: self.leaf.repeats + 1, _DEFINED: self.leaf.optional + 1}
        for fields, numbers in ((bounds, (_EMPTY, _LOWS, _HIGHS, _NULLS, *levels)), (offsets, (TEXT_BYTES,))):
            for number in numbers:
                if number in fields:
                    encoded = nested(fields, number, thrift.LIST)
                    fields[number] = thrift.LIST, _cut(encoded, count, levels.get(number, 1), low, high)
        locations = []
        for page, stored in enumerate(split_structs(nested(offsets, LOCATIONS, thrift.LIST))[low:high], low):
            location, _ = split_struct(stored)
            set_number(location, LOCATION_AT, self.starts[page] + shift)
            set_number(location, LOCATION_ROW, self.first_rows[page] - first)
            locations.append(join_fields(location))
        offsets[LOCATIONS] = thrift.LIST, join_structs(locations)
        if LEVELS in meta:
            meta[LEVELS] = thrift.STRUCT, _level_counts(bounds, offsets, high - low)
        chunk = dict(self.chunk.fields)
        set_number(chunk, CHUNK_AT, 0)
        chunk[CHUNK_META] = thrift.STRUCT, join_fields(meta)
        plain_bytes = sum(page.plain for page in pages)
        return PartChunk(chunk, join_fields(bounds) if bounds else None, join_fields(offsets), plain_bytes)

    def _statistics(self, stored: bytes, low: int, high: int) -> bytes:
        """Return the encoded Statistics of some pages.

        Args:
            stored: encoded Statistics of the chunk.
            low: the first page.
            high: the page after the last one.
        """
        before, _ = split_struct(stored)
        statistics: thrift.Struct = {_NULL_COUNT: (thrift.I64, sum(self.nulls[low:high]))}
        try:
            ends = self.ends(low, high) if before.keys() >= {_LOW, _HIGH} else None
        except ValueError:
            ends = None
        if ends is not None:
            for number, value in ((_LOW, ends[0]), (_HIGH, ends[1]), (_OLD_LOW, ends[0]), (_OLD_HIGH, ends[1])):
                if number in before:
                    statistics[number] = thrift.BINARY, value
            for flag in (_HIGH_EXACT, _LOW_EXACT):
                if flag in before:
                    statistics[flag] = before[flag][0], before[flag][0] == thrift.TRUE
        return thrift.encode(statistics)


@dataclass(frozen=True)
class GroupPages:
    """Pages of the column chunks of a row group.

    Attributes:
        parts: parts of the row group.
        chunks: pages of each column chunk.
        borders: ascending rows at which a page begins in every column, from 0 to the number of rows.
    """

    parts: GroupParts
    chunks: tuple[ChunkPages, ...]
    borders: tuple[int, ...]

    def spans(self, first: int, stop: int) -> Iterator[tuple[ChunkPages, tuple[Span, Span]]]:
        """Yield each chunk with the bytes of its dictionary and of its pages of the rows from ``first`` to ``stop``."""
        for chunk in self.chunks:
            low, high = chunk.between(first, stop)
            yield chunk, (chunk.dictionary, Span(chunk.starts[low], chunk.starts[high]))

    def sizes(self) -> PartSizes:
        """Return the rows at which the row group may be cut, and the bytes between them."""
        dictionaries = sum(chunk.dictionary.size for chunk in self.chunks)
        before = [
            sum(chunk.starts[chunk.between(0, row)[1]] - chunk.starts[0] for chunk in self.chunks)
            for row in self.borders
        ]
        return PartSizes(self.borders, tuple(before), dictionaries)


class PartSizes(NamedTuple):
    """Rows at which a row group may be cut, and the bytes of its parts.

    Attributes:
        borders: ascending rows, from 0 to the number of rows.
        before: bytes of the pages before each of these rows.
        dictionaries: bytes of the dictionaries, which every part has.
    """

    borders: tuple[int, ...]
    before: tuple[int, ...]
    dictionaries: int

    def between(self, first: int, stop: int) -> int:
        """Return the bytes of the rows from ``first`` to before ``stop``, both among the borders."""
        low, high = (bisect_left(self.borders, row) for row in (first, stop))
        return self.before[high] - self.before[low] + self.dictionaries


class PageIndexes:
    """Page indexes of one file, read at once."""

    def __init__(self, source: Any, groups: StoredGroups, schema: pa.Schema) -> None:
        """Read the page indexes.

        Args:
            source: the open file.
            groups: row groups of the file.
            schema: Arrow schema of the file as its writer had it; dictionaries count as their values.

        Raises:
            CorruptFile: the file is shorter than its footer says.
        """
        self._groups, self._schema = groups, schema
        self._start = max((span.end for span in groups.pages), default=groups.footer_at)
        self._data = b""
        if groups.footer_at - self._start <= _MOST_INDEXES:
            self._data = bytes(source.read_at(groups.footer_at - self._start, self._start))
            if len(self._data) < groups.footer_at - self._start:
                raise CorruptFile(groups.path, "it ends before its page indexes")

    def of(self, number: int) -> GroupPages | None:
        """Return the pages of a row group, or None if it cannot be cut.

        Raises:
            CorruptFile: bounds or null counts of the footer are not those of the page index, or names of columns not
                those of the schema.
        """
        if not self._data:
            return None
        parts, footer = self._groups.parts(number), self._groups.footer
        if not parts.rows:
            return None
        chunks: list[ChunkPages] = []
        for chunk, leaf, stated in zip(parts.chunks, footer.leaves, footer.groups[number].chunks, strict=True):
            if split_elements(nested(chunk.meta, PATH, thrift.LIST))[1] != _encoded_path(leaf.path):
                raise CorruptFile(self._groups.path, f"column '{leaf.name}' has another name in row group {number}")
            if chunk.offsets is None or not chunk.meta.keys() <= _CUT:
                return None
            if any(span is not None and span.start < self._start for span in (chunk.bounds, chunk.offsets)):
                return None
            indexes = None if chunk.bounds is None else self._bytes(chunk.bounds), self._bytes(chunk.offsets)
            try:
                pages = ChunkPages.of(chunk, leaf, self._kind(footer, leaf), parts.rows, indexes)
            except (ValueError, IndexError):
                return None
            # Pages with NaN only have no bounds, so that the column has no index; bounds of floats are decoded anyway.
            if pages.bounds is None and stated.low is not None and leaf.physical not in FLOATS:
                return None
            if not pages.agrees_with(stated):
                reason = f"the bounds of column '{leaf.name}' in row group {number} are not those of its pages"
                raise CorruptFile(self._groups.path, reason)
            chunks.append(pages)
        common = set(chunks[0].first_rows).intersection(*(chunk.first_rows for chunk in chunks[1:]))
        return GroupPages(parts, tuple(chunks), tuple(sorted(common)))

    def _bytes(self, span: Span) -> bytes:
        return self._data[span.start - self._start : span.end - self._start]

    def _kind(self, footer: Footer, leaf: Leaf) -> pa.DataType | None:
        at = footer.single(leaf.name)
        place = self._schema.get_field_index(leaf.name)
        if at is None or place < 0 or footer.leaves[at] is not leaf:
            return None
        return self._schema.field(place).type


@functools.lru_cache(maxsize=_MOST_PATHS)
def _encoded_path(path: tuple[str, ...]) -> list[bytes]:
    """Return the encoded elements of a column's path."""
    names = [name.encode() for name in path]
    return [thrift.varint(len(name)) + name for name in names]


def _list(fields: thrift.Struct, number: int) -> list[Any]:
    """Return the required list field ``number`` of a struct."""
    kind, values = fields.get(number, _MISSING)
    if kind != thrift.LIST or not values:
        raise ValueError(f"field {number} is missing")
    return values  # type: ignore[no-any-return]


def _cut(data: bytes, pages: int, each: int, low: int, high: int) -> bytes:
    """Return the elements of an encoded list that belong to some pages.

    Args:
        data: list with the same number of elements for each page.
        pages: number of all pages.
        each: number of elements for each page.
        low: the first page.
        high: the page after the last one.
    """
    kind, elements = split_elements(data)
    if len(elements) != pages * each:
        raise ValueError(f"a list of {len(elements)} elements for {pages} pages")
    return join_elements(kind, elements[low * each : high * each])


def _page_counts(pages: Sequence[PageParts]) -> bytes:
    """Return the encoded list of PageEncodingStats."""
    counts: dict[tuple[int, int], int] = {}
    for page in pages:
        counts[page.kind, page.encoding] = counts.get((page.kind, page.encoding), 0) + 1
    return join_structs(
        thrift.encode({1: (thrift.I32, kind), 2: (thrift.I32, encoding), 3: (thrift.I32, count)})
        for (kind, encoding), count in counts.items()
    )


def _level_counts(bounds: Fields, offsets: Fields, pages: int) -> bytes:
    """Return the encoded SizeStatistics of a column chunk from those of its pages.

    Args:
        bounds: encoded fields of the ColumnIndex.
        offsets: encoded fields of the OffsetIndex.
        pages: number of pages.
    """
    fields: Fields = {}
    if TEXT_BYTES in offsets:
        sizes = thrift.Reader(nested(offsets, TEXT_BYTES, thrift.LIST)).value(thrift.LIST)
        set_number(fields, 1, sum(sizes))
    for number, of_pages in ((2, _REPEATS), (3, _DEFINED)):
        if of_pages in bounds:
            counts = thrift.Reader(nested(bounds, of_pages, thrift.LIST)).value(thrift.LIST)
            each = len(counts) // pages
            sums = [sum(counts[level::each]) for level in range(each)]
            fields[number] = (
                thrift.LIST,
                join_elements(thrift.I64, [thrift.varint((count << 1) ^ (count >> 63)) for count in sums]),
            )
    return join_fields(fields)


__all__ = ["ChunkPages", "GroupPages", "PageIndexes", "PartChunk", "PartSizes"]
