"""Row groups of Parquet files as bytes: where they are in a file, and whether a file may contain them with others.

A row group can be copied to another file without decoding if only its position changes. So files are refused whose
footers have fields that may contain further positions, or whose columns are encrypted or in files of their own.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.files.formats import thrift
from lsm_core.files.formats.guard import open_checked, quietly_close
from lsm_core.files.formats.parquet_footer import TAIL_BYTES, Footer, parse_footer, stored_footer
from lsm_core.files.formats.thrift_fields import Fields, Inner, number_of, split_list, split_struct
from lsm_core.storage import FileIO

# Field ids of the structs in parquet.thrift.
VERSION, SCHEMA, ROWS, GROUPS, PROPERTIES, CREATED_BY, ORDERS = range(1, 8)
GROUP_COLUMNS, GROUP_BYTES, GROUP_ROWS, GROUP_SORTING, GROUP_AT, GROUP_STORED, ORDINAL = range(1, 8)
CHUNK_AT, CHUNK_META, OFFSETS_AT, OFFSETS_BYTES, BOUNDS_AT, BOUNDS_BYTES = range(2, 8)
STORED_BYTES, DATA_AT, INDEX_PAGE_AT, DICTIONARY_AT, STATISTICS, BLOOM_AT, BLOOM_BYTES = 7, 9, 10, 11, 12, 14, 15
_FOOTER_FIELDS: Final = frozenset(range(VERSION, ORDERS + 1))
_GROUP_FIELDS: Final = frozenset(range(GROUP_COLUMNS, ORDINAL + 1))
_CHUNK_FIELDS: Final = frozenset(range(CHUNK_AT, BOUNDS_BYTES + 1))
_META_FIELDS: Final = frozenset(range(1, 18))
_MAGIC_BYTES: Final = 4
_KEPT_GROUPS: Final = 64
_MOST_INDEX_BYTES: Final = 1 << 26
"""Largest page index of a column chunk."""
_SAME: Final = {
    VERSION: "version",
    SCHEMA: "schema",
    PROPERTIES: "key-value metadata",
    CREATED_BY: "writer",
    ORDERS: "column orders",
}
"""Fields of a footer that must be equal in all files whose row groups are joined."""


class Span(NamedTuple):
    """Range of bytes of a file.

    Attributes:
        start: position of the first byte.
        end: position after the last byte.
    """

    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.start


class ChunkParts(NamedTuple):
    """Parts of a column chunk, with the fields that contain their positions.

    Attributes:
        fields: encoded fields of the ColumnChunk.
        meta: encoded fields of its ColumnMetaData.
        pages: the chunk's pages.
        bloom: its Bloom filter, or None.
        bounds: its ColumnIndex, or None.
        offsets: its OffsetIndex, or None.
    """

    fields: Fields
    meta: Fields
    pages: Span
    bloom: Span | None
    bounds: Span | None
    offsets: Span | None


class GroupParts(NamedTuple):
    """Parts of a row group.

    Attributes:
        fields: encoded fields of the RowGroup.
        chunks: parts of its column chunks.
        pages: pages of all chunks.
        rows: number of rows.
    """

    fields: Fields
    chunks: list[ChunkParts]
    pages: Span
    rows: int


class _UnknownLayout(ValueError):
    """A valid footer whose row groups are not copied; the message is the reason."""


@dataclass(frozen=True)
class StoredGroups:
    """Row groups of one Parquet file, checked to be inside the file.

    Attributes:
        path: path of the file.
        footer_at: position of the footer, before which all parts of row groups end.
        footer: the checked footer.
        refusal: reason why no row group of the file is copied, or "".
        pages: pages of each row group; empty if ``refusal`` is set.
        heads: encoded fields of the footer that all joined files must have in common.
        encoded: encoded RowGroup structs; empty if ``refusal`` is set.
    """

    path: str
    footer_at: int
    footer: Footer
    refusal: str
    pages: tuple[Span, ...]
    heads: Fields
    encoded: tuple[bytes, ...]

    @property
    def group_rows(self) -> list[int]:
        """Rows of each row group."""
        return [group.rows for group in self.footer.groups]

    def parts(self, number: int) -> GroupParts:
        """Return the parts of a row group, which the caller must not change.

        Raises:
            UnsupportedFeature: row groups of this file are not copied.
        """
        if self.refusal:
            raise UnsupportedFeature(f"copies of row groups of {self.path}: {self.refusal}")
        return _parts(self.encoded[number], self.footer_at)


def can_join(first: StoredGroups, second: StoredGroups) -> bool:
    """Return whether one file may contain row groups of both files."""
    return not join_refusal(first, second)


def join_refusal(first: StoredGroups, second: StoredGroups) -> str:
    """Return the reason why no file may contain row groups of both files, or ""."""
    if first.refusal or second.refusal:
        return first.refusal or second.refusal
    for number, name in _SAME.items():
        if first.heads.get(number) != second.heads.get(number):
            return f"{first.path} and {second.path} differ in {name}"
    return ""


def open_groups(file_io: FileIO, path: str, *, size: int | None = None) -> StoredGroups:
    """Return the row groups of a Parquet file; only its footer is read.

    Args:
        file_io: file system of the file.
        path: path of the file.
        size: expected bytes; None if unknown.

    Raises:
        CorruptFile: the file is missing, damaged, or not of ``size`` bytes.
    """
    with open_checked(file_io, path, "Parquet", size) as source:
        groups = read_groups(source, path)
    quietly_close(source)
    return groups


def read_groups(source: Any, path: str) -> StoredGroups:
    """Return the row groups of an open Parquet file; only its footer is read.

    Args:
        source: the open file.
        path: path of the file, for errors.

    Raises:
        CorruptFile: the footer is not valid.
    """
    try:
        data = stored_footer(source, path)
        footer = parse_footer(data, path, source.size())
    except UnsupportedFeature as error:
        return StoredGroups(path, 0, Footer(0, (), [], {}), str(error), (), {}, ())
    return split_footer(data, path, footer, source.size() - TAIL_BYTES - len(data))


def split_footer(data: bytes, path: str, footer: Footer, footer_at: int) -> StoredGroups:
    """Return the row groups of a footer.

    Args:
        data: the encoded footer.
        path: path of the file, for errors.
        footer: the same footer, checked.
        footer_at: position of the footer in the file.

    Raises:
        CorruptFile: parts of a row group are outside the file, or overlap.
    """
    heads: Fields = {}
    pages: list[Span] = []
    encoded: list[bytes] = []

    def split_group(data: bytes, at: int) -> int:
        end = thrift.skip(data, at, thrift.STRUCT)
        encoded.append(data[at:end])
        pages.append(_parts(encoded[-1], footer_at).pages)
        return end

    try:
        fields, _ = split_struct(data, 0, {GROUPS: lambda data, at, kind: split_list(data, at, kind, split_group)})
        heads = {number: fields[number] for number in _SAME if number in fields}
        _refuse_unknown(fields, _FOOTER_FIELDS, "its footer")
        ends = sorted(span for span in pages if span.size)
        if any(before.end > after.start for before, after in pairwise(ends)):
            raise ValueError("row groups that overlap")
    except _UnknownLayout as reason:
        return StoredGroups(path, footer_at, footer, str(reason), (), heads, ())
    except (ValueError, IndexError) as error:
        raise CorruptFile(path, f"not a readable Parquet file: its footer is broken ({error})") from error
    return StoredGroups(path, footer_at, footer, "", tuple(pages), heads, tuple(encoded))


@functools.lru_cache(maxsize=_KEPT_GROUPS)  # a splice needs the parts of a row group several times
def _parts(data: bytes, footer_at: int) -> GroupParts:
    """Split and check an encoded RowGroup.

    Args:
        data: the struct.
        footer_at: position of the footer in the file, before which all parts must end.

    Raises:
        ValueError: a part is outside the file, or parts overlap.
    """
    chunks: list[ChunkParts] = []

    def split_chunk(data: bytes, at: int) -> int:
        chunk, end = _chunk(data, at, footer_at)
        chunks.append(chunk)
        return end

    columns: Inner = lambda data, at, kind: split_list(data, at, kind, split_chunk)  # noqa: E731
    fields, _ = split_struct(data, 0, {GROUP_COLUMNS: columns})
    _refuse_unknown(fields, _GROUP_FIELDS, "a row group")
    spans = sorted(chunk.pages for chunk in chunks if chunk.pages.size)
    for before, after in pairwise(spans):
        if before.end > after.start:
            raise ValueError("column chunks that overlap")
        if before.end < after.start:
            raise _UnknownLayout("there are other bytes between the columns of a row group")
    pages = Span(spans[0].start, spans[-1].end) if spans else Span(_MAGIC_BYTES, _MAGIC_BYTES)
    return GroupParts(fields, chunks, pages, _count(fields, GROUP_ROWS))


def _chunk(data: bytes, at: int, footer_at: int) -> tuple[ChunkParts, int]:
    """Split and check the encoded ColumnChunk at byte ``at``, whose parts must end before byte ``footer_at``."""
    meta: Fields = {}

    def split_meta(data: bytes, at: int, kind: int) -> int:
        if kind != thrift.STRUCT:
            raise ValueError("a column without metadata")
        fields, end = split_struct(data, at)
        meta.update(fields)
        return end

    fields, chunk_end = split_struct(data, at, {CHUNK_META: split_meta})
    _refuse_unknown(fields, _CHUNK_FIELDS, "a column")
    _refuse_unknown(meta, _META_FIELDS, "the metadata of a column")
    size, start = _count(meta, STORED_BYTES), _count(meta, DATA_AT)
    positions = [start, *(number_of(meta, number) or 0 for number in (DICTIONARY_AT, INDEX_PAGE_AT) if number in meta)]
    pages = Span(_MAGIC_BYTES, _MAGIC_BYTES)
    if size:
        pages = _inside(min(position for position in positions if position > 0), size, footer_at)
        if any(position and not pages.start <= position < pages.end for position in positions):
            raise ValueError(f"pages at bytes {positions} outside of their column chunk")
    bloom = None
    if BLOOM_AT in meta:
        bloom_at, bloom_size = number_of(meta, BLOOM_AT), number_of(meta, BLOOM_BYTES, thrift.I32)
        if bloom_at is None or bloom_size is None:
            raise _UnknownLayout("a Bloom filter of unknown size")
        bloom = _inside(bloom_at, bloom_size, footer_at)
    offsets = _index(fields, OFFSETS_AT, OFFSETS_BYTES, footer_at)
    bounds = _index(fields, BOUNDS_AT, BOUNDS_BYTES, footer_at)
    return ChunkParts(fields, meta, pages, bloom, bounds, offsets), chunk_end


def _index(fields: Fields, position: int, length: int, footer_at: int) -> Span | None:
    """Return the bytes of a page index, or None.

    Args:
        fields: fields of the ColumnChunk.
        position: id of the field with the position of the index.
        length: id of the field with the bytes of the index.
        footer_at: position before which the index must end.
    """
    at, size = number_of(fields, position), number_of(fields, length, thrift.I32)
    if at is None or size is None:
        if at is not size:
            raise ValueError("a page index without position or size")
        return None
    if size > _MOST_INDEX_BYTES:
        raise ValueError(f"a page index of {size:,} bytes")
    return _inside(at, size, footer_at)


def _inside(start: int, size: int, footer_at: int) -> Span:
    """Return a range of bytes; raise ValueError if it is not between the file's magic and its footer."""
    if size < 0 or not _MAGIC_BYTES <= start <= start + size <= footer_at:
        raise ValueError(f"{size} bytes at byte {start}, outside of the file")
    return Span(start, start + size)


def _count(fields: Fields, number: int) -> int:
    """Return the required field ``number``, which must not be negative."""
    value = number_of(fields, number)
    if value is None or value < 0:
        raise ValueError(f"field {number} is {value}")
    return value


def _refuse_unknown(fields: Fields, known: frozenset[int], subject: str) -> None:
    """Raise _UnknownLayout if there are fields that may contain further positions, or keys of encryption."""
    if not known.issuperset(fields):
        raise _UnknownLayout(f"{subject} has field {min(fields.keys() - known)}")
