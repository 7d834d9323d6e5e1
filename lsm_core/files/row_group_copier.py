"""Copies of row groups into a new Parquet file, byte for byte: only positions in footers and page indexes change.

Copying needs no decoding, no merge and no encoding. All files of a copy have the same schema and writer
(:func:`lsm_core.files.row_groups.can_join`). The page indexes are written at the end of the file. A Bloom filter
follows the row group that it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import xxhash

from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.files.formats import thrift
from lsm_core.files.formats.guard import disk_full_errors, open_checked, quietly_close
from lsm_core.files.formats.parquet_footer import Footer, parse_footer
from lsm_core.files.formats.thrift_fields import (
    Fields,
    join_fields,
    join_structs,
    nested,
    number_of,
    set_number,
    split_struct,
    split_structs,
)
from lsm_core.files.row_group_parts import LOCATION_AT, LOCATION_BYTES, LOCATIONS, GroupPages
from lsm_core.files.row_groups import (
    BLOOM_AT,
    BOUNDS_AT,
    BOUNDS_BYTES,
    CHUNK_AT,
    CHUNK_META,
    DATA_AT,
    DICTIONARY_AT,
    GROUP_AT,
    GROUP_BYTES,
    GROUP_COLUMNS,
    GROUP_ROWS,
    GROUP_STORED,
    GROUPS,
    INDEX_PAGE_AT,
    OFFSETS_AT,
    OFFSETS_BYTES,
    ORDINAL,
    ROWS,
    ChunkParts,
    GroupParts,
    Span,
    StoredGroups,
    join_refusal,
)
from lsm_core.storage import FileIO, ahead

_MAGIC: Final = b"PAR1"
_FIRST_LONG: Final = 1 << 4 | thrift.I64
_FIRST_LONG_BYTE: Final = bytes([_FIRST_LONG])
"""Header of a struct's field 1 of type I64."""
_BLOCK: Final = 4 << 20
"""Bytes that are read and written at a time."""
_AHEAD: Final = 4 * _BLOCK
"""Bytes of a remote file that are fetched at a time, while the bytes before are written."""
MOST_GROUPS: Final = 32_767
"""Largest number of row groups of a file: the position of a row group is a 16-bit number."""


@dataclass(frozen=True)
class CopiedBytes:
    """Range of an output file, with the digest of the bytes that were copied into it.

    Attributes:
        span: range of the output file.
        digest: XXH3 digest (128 bits) of the bytes as they were read from the source.
        source: path of the file that the bytes are from; "" for the end of the file, which is new.
    """

    span: Span
    digest: bytes
    source: str


@dataclass
class _Group:
    """A copied row group, whose page index is written at the end of the file.

    Attributes:
        rows: number of rows.
        fields: encoded fields of the RowGroup without its columns.
        chunks: encoded fields of each ColumnChunk without the positions of its page index.
        bounds: encoded ColumnIndex of each column chunk, or None.
        offsets: encoded OffsetIndex of each column chunk, with the positions of the output, or None.
    """

    rows: int
    fields: Fields
    chunks: list[Fields] = field(default_factory=list)
    bounds: list[bytes | None] = field(default_factory=list)
    offsets: list[bytes | None] = field(default_factory=list)


class RowGroupCopier:
    """Writer of a Parquet file that consists of copied row groups.

    The caller closes or aborts the output file.
    """

    def __init__(self, output: Any, path: str) -> None:
        """Write the start of the file.

        Args:
            output: the new file, an `OutputFile` to which nothing was written.
            path: path of the file, for errors.

        Raises:
            StorageFull: the storage is full.
        """
        self._output, self._path = output, path
        self._first: StoredGroups | None = None
        self._groups: list[_Group] = []
        self._copied: list[CopiedBytes] = []
        self.position = 0
        self._write(_MAGIC)

    @property
    def rows(self) -> int:
        """Rows of the copied row groups."""
        return sum(group.rows for group in self._groups)

    @property
    def copied(self) -> Sequence[CopiedBytes]:
        """Ranges written so far, with digests (:func:`require_copied`)."""
        return self._copied

    def copy(self, source: Any, groups: StoredGroups, numbers: Sequence[int]) -> None:
        """Append row groups of a file, in the order of ``numbers``.

        Memory is bounded by a block of pages and the page indexes of the output.

        Args:
            source: the open file.
            groups: row groups of this file.
            numbers: positions of the row groups in this file.

        Raises:
            UnsupportedFeature: the file cannot be joined with earlier ones.
            CorruptFile: the source is damaged.
            StorageFull: the storage is full.
        """
        self._require_place(groups, len(numbers))
        runs = list(_adjacent([groups.parts(number) for number in numbers]))
        spans = [Span(run[0].pages.start, run[-1].pages.end) for run in runs]
        fetched = _ahead(source, spans)
        for run, pages in zip(runs, spans, strict=True):
            shift = self.position - pages.start
            self._copy(fetched, groups.path, pages)
            for parts in run:
                self._keep(source, groups.path, parts, shift)

    def copy_part(self, source: Any, groups: StoredGroups, pages: GroupPages, first: int, stop: int) -> None:
        """Append a part of a row group of a file as a row group.

        Memory is bounded by the bytes of one column of the part.

        Args:
            source: the open file.
            groups: row groups of this file.
            pages: pages of the row group.
            first: first row of the part, one of the borders of ``pages``.
            stop: row after the last one, likewise.

        Raises:
            UnsupportedFeature: the file cannot be joined with earlier ones.
            CorruptFile: the source is damaged.
            StorageFull: the storage is full.
        """
        self._require_place(groups, 1)
        group = _Group(stop - first, dict(pages.parts.fields))
        chunks = list(pages.spans(first, stop))
        fetched = _ahead(source, [span for _, spans in chunks for span in spans if span.size])
        start, plain_bytes = self.position, 0
        for chunk, spans in chunks:
            data = b"".join(block for span in spans for block in _blocks(fetched, groups.path, span))
            part = chunk.part(data, self.position, first, stop, groups.path)
            chunk_at, digest = self.position, xxhash.xxh3_128()
            self._write(data, digest)
            self._copied.append(CopiedBytes(Span(chunk_at, self.position), digest.digest(), groups.path))
            plain_bytes += part.plain_bytes
            group.chunks.append(part.fields)
            group.bounds.append(part.bounds)
            group.offsets.append(part.offsets)
        group.fields.pop(GROUP_COLUMNS, None)
        set_number(group.fields, GROUP_ROWS, group.rows)
        set_number(group.fields, GROUP_BYTES, plain_bytes)
        set_number(group.fields, ORDINAL, len(self._groups), thrift.I16)
        for number, value in ((GROUP_AT, start), (GROUP_STORED, self.position - start)):
            if number in group.fields:
                set_number(group.fields, number, value)
        self._groups.append(group)

    def _require_place(self, groups: StoredGroups, count: int) -> None:
        """Check that ``count`` row groups of a file can follow those before."""
        first = self._first or groups
        refusal = join_refusal(first, groups)
        if refusal:
            raise UnsupportedFeature(f"copies of row groups into {self._path}: {refusal}")
        if len(self._groups) + count > MOST_GROUPS:
            raise UnsupportedFeature(f"more than {MOST_GROUPS:,} row groups in {self._path}")
        self._first = first

    def close(self) -> Footer:
        """Write page indexes and footer, and return the footer; the output file stays open.

        Raises:
            CorruptFile: the copied row groups do not make a valid file.
            StorageFull: the storage is full.
        """
        if self._first is None:
            raise ValueError(f"{self._path}: no row group was copied")
        start, digest = self.position, xxhash.xxh3_128()
        for data in self._indexes():
            self._write(data, digest)
        fields: Fields = dict(self._first.heads)
        set_number(fields, ROWS, self.rows)
        encoded = (_encode_group(group) for group in self._groups)
        fields[GROUPS] = thrift.LIST, join_structs(encoded)
        data = join_fields(fields)
        end = data + len(data).to_bytes(4, "little") + _MAGIC
        self._write(end, digest)
        self._copied.append(CopiedBytes(Span(start, self.position), digest.digest(), ""))
        return parse_footer(data, self._path, self.position)

    def _indexes(self) -> Iterator[bytes]:
        """Yield the page indexes in the order of the file, and put their positions into the column chunks."""
        position = self.position
        for at, size, name in ((BOUNDS_AT, BOUNDS_BYTES, "bounds"), (OFFSETS_AT, OFFSETS_BYTES, "offsets")):
            for group in self._groups:
                for fields, data in zip(group.chunks, getattr(group, name), strict=True):
                    if data is None:
                        continue
                    set_number(fields, at, position)
                    set_number(fields, size, len(data), thrift.I32)
                    position += len(data)
                    yield data

    def _keep(self, source: Any, path: str, parts: GroupParts, shift: int) -> None:
        """Adjust a row group whose pages were copied, copy its Bloom filters, and read its page indexes.

        Args:
            source: the open file.
            path: path of the file, for errors.
            parts: parts of the row group in the file.
            shift: difference between the positions of its pages in the output and in the file.
        """
        group = _Group(parts.rows, dict(parts.fields))
        for chunk in parts.chunks:
            fields, meta = _shifted(chunk, shift)
            if chunk.bloom is not None:
                set_number(meta, BLOOM_AT, self.position)
                self._copy(source, path, chunk.bloom)
            fields[CHUNK_META] = thrift.STRUCT, join_fields(meta)
            group.chunks.append(fields)
            bounds, offsets = (
                None if span is None else b"".join(_blocks(source, path, span))
                for span in (chunk.bounds, chunk.offsets)
            )
            group.bounds.append(bounds)
            group.offsets.append(None if offsets is None else _shift_offsets(offsets, chunk.pages, shift, path))
        del group.fields[GROUP_COLUMNS]
        set_number(group.fields, ORDINAL, len(self._groups), thrift.I16)
        if number_of(parts.fields, GROUP_AT) is not None:
            set_number(group.fields, GROUP_AT, parts.pages.start + shift)
        self._groups.append(group)

    def _copy(self, source: Any, path: str, span: Span) -> None:
        start, digest = self.position, xxhash.xxh3_128()
        for block in _blocks(source, path, span):
            self._write(block, digest)
        self._copied.append(CopiedBytes(Span(start, self.position), digest.digest(), path))

    def _write(self, data: bytes, digest: Any = None) -> None:
        if digest is not None:
            digest.update(data)
        with disk_full_errors(self._path):
            self._output.write(data)
        self.position += len(data)


def require_copied(file_io: FileIO, path: str, copied: Sequence[CopiedBytes]) -> None:
    """Read ranges of a finished file again, and compare them with the bytes that were copied.

    Args:
        file_io: file system of the file.
        path: path of the file.
        copied: the ranges (:attr:`RowGroupCopier.copied`).

    Raises:
        CorruptFile: the file differs from what was copied.
    """
    with open_checked(file_io, path, "Parquet", None) as opened:
        source = _ahead(opened, [part.span for part in copied])
        for part in copied:
            digest = xxhash.xxh3_128()
            for block in _blocks(source, path, part.span):
                digest.update(block)
            if digest.digest() != part.digest:
                origin = f"those of {part.source}" if part.source else "those written"
                span = f"bytes {part.span.start:,} to {part.span.end:,}"
                raise CorruptFile(path, f"its {span} are not {origin}: the storage changed them")
    quietly_close(opened)


def _ahead(source: Any, spans: Sequence[Span]) -> Any:
    """Return a source that fetches the next bytes of ``spans`` before they are read, if the file is remote."""
    steps = ((at, min(at + _AHEAD, span.end)) for span in spans for at in range(span.start, span.end, _AHEAD))
    return ahead(source, [[step] for step in steps])


def _adjacent(groups: Sequence[GroupParts]) -> Iterator[list[GroupParts]]:
    """Yield row groups in runs whose pages follow each other without a gap and without Bloom filters to copy."""
    run: list[GroupParts] = []
    for parts in groups:
        if run and run[-1].pages.end != parts.pages.start:
            yield run
            run = []
        run.append(parts)
    if run:
        yield run


def _blocks(source: Any, path: str, span: Span) -> Iterator[bytes]:
    """Yield the bytes of a range of an open file; raise CorruptFile if the file ends before."""
    position = span.start
    while position < span.end:
        block = source.read_at(min(_BLOCK, span.end - position), position)
        if not block:
            raise CorruptFile(path, f"ends at byte {position:,}, before its row groups end")
        yield block
        position += len(block)


def _shifted(chunk: ChunkParts, shift: int) -> tuple[Fields, Fields]:
    """Return the fields of a column chunk and of its metadata with the positions in the output."""
    fields, meta = dict(chunk.fields), dict(chunk.meta)
    for number in (DATA_AT, DICTIONARY_AT, INDEX_PAGE_AT):
        position = number_of(meta, number)
        if position is not None and chunk.pages.start <= position < chunk.pages.end:
            set_number(meta, number, position + shift)
    # The field is deprecated: some writers store 0, others the position of the pages or of a copy of the metadata.
    position = number_of(fields, CHUNK_AT) or 0
    inside = chunk.pages.start <= position < chunk.pages.end
    set_number(fields, CHUNK_AT, position + shift if inside else 0)
    return fields, meta


def _shift_offsets(data: bytes, pages: Span, shift: int, path: str) -> bytes:
    """Return an encoded OffsetIndex with the positions of the pages in the output.

    Args:
        data: the encoded OffsetIndex.
        pages: pages of the column chunk in its file.
        shift: difference between the positions in the output and in the file.
        path: path of the file, for errors.

    Raises:
        CorruptFile: the index is no OffsetIndex of these pages.
    """
    try:
        fields, end = split_struct(data)
        if end != len(data):
            raise ValueError("bytes after the index")
        locations = []
        for encoded in split_structs(nested(fields, LOCATIONS, thrift.LIST)):
            location = thrift.Reader(encoded).struct()
            (at_kind, position), (size_kind, size) = (
                location.get(number, (0, -1)) for number in (LOCATION_AT, LOCATION_BYTES)
            )
            if (at_kind, size_kind) != (thrift.I64, thrift.I32) or not (
                pages.start <= position < position + size <= pages.end
            ):
                raise ValueError(f"a page of {size} bytes at byte {position}")
            # The position is the first field: the others stay as they are encoded.
            later_fields = encoded[thrift.skip(encoded, 1, thrift.I64) :] if encoded[0] == _FIRST_LONG else None
            if later_fields is None:
                shifted, _ = split_struct(encoded)
                set_number(shifted, LOCATION_AT, position + shift)
                locations.append(join_fields(shifted))
            else:
                locations.append(_FIRST_LONG_BYTE + thrift.varint((position + shift) << 1) + later_fields)
    except (ValueError, IndexError) as error:
        raise CorruptFile(path, f"a page index is broken: {error}") from error
    fields[LOCATIONS] = thrift.LIST, join_structs(locations)
    return join_fields(fields)


def _encode_group(group: _Group) -> bytes:
    """Return the encoded RowGroup of a copied row group."""
    chunks = thrift.LIST, join_structs(map(join_fields, group.chunks))
    return join_fields({**group.fields, GROUP_COLUMNS: chunks})
