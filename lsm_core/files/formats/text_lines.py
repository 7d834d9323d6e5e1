"""Files of lines: `csv`, `json` and `text` as Paimon's Java writes them; the sources only.

Numbers, times and decimals are texts, as Java's casts write them, and binary values are Base64. Arrow parses a few
megabytes of whole lines at a time.

Source: `CsvFileFormat`, `JsonFileFormat`, `TextFileFormat`, `AbstractTextFileReader` (Paimon 2.0, 2.1).
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import batch_of, offsets_from, slice_places, text_parts
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.files.formats.guard import check_rows, check_values, decoding_errors, open_checked, quietly_close
from lsm_core.files.formats.layout import LayoutOf
from lsm_core.files.formats.protocol import WholeFileSource
from lsm_core.storage import FileIO, Kept
from lsm_core.types import DataType, TypeRoot
from lsm_core.types.arrow import list_of, refit, struct_of

_CODECS: Final = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}
"""Extensions after the name of the format, and Arrow's names of the codecs."""
_OTHER_CODECS: Final = frozenset({"deflate", "lz4", "snappy"})
COMPRESSED: Final = frozenset(_CODECS) | _OTHER_CODECS
"""Extensions of all codecs with which Java writes files of lines."""
_GZIP: Final = b"\x1f\x8b"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_CHUNK_BYTES: Final = 1 << 20
_MOST_LINE: Final = 256 << 20
"""Largest line in bytes; a longer line would not fit the memory of a worker."""
_TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BINARIES: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_DELIMITERS: Final = {
    "csv": ("csv.line-delimiter", "lineSep"),
    "json": ("json.line-delimiter",),
    "text": ("text.line-delimiter", "lineSep"),
}
_REWRITE: Final = "set 'file.format' = 'parquet' and write the rows again"


class LinesSource(WholeFileSource, ABC):
    """File of lines that is being read; a subclass parses the lines of its format.

    The file names neither its columns nor its number of rows, so a complete read compares the number of lines with the
    manifest entry. Java's reader returns other rows than were written if the two differ; such a file is refused.
    """

    by_column = False
    kind = ""

    def __init__(
        self,
        file_io: FileIO,
        path: str,
        *,
        size: int | None,
        rows: int | None,
        layout: LayoutOf,
        table: str = "",
        kept: Kept | None = None,
    ) -> None:
        """Open the file ``path``.

        Args:
            file_io: access to the files.
            path: path of the file.
            size: expected size in bytes, or None if unknown.
            rows: expected number of rows, or None to count the lines.
            layout: function that returns the columns of the file.
            table: name of the table, for messages.
            kept: cache of footers, or None; unused.

        Raises:
            CorruptFile: the file is missing, or not of ``size`` bytes.
            UnsupportedFeature: the codec or an option of the format is not supported.
        """
        del kept
        self.path = path
        self._table = table
        self._layout = layout()
        self._check_options()
        names, kinds = self._layout.schema.names, self._layout.types
        self._types: dict[str, DataType] = dict(zip(names, kinds, strict=True))
        extension = path.rpartition(".")[2]
        if extension in _OTHER_CODECS:
            raise self._unsupported(f"the codec '{extension}'")
        self._codec = _CODECS.get(extension)
        self.schema = self._layout.schema
        with open_checked(file_io, path, self.kind, size) as self._input:
            if self._codec is None and bytes(self._input.read_at(2, 0)) == _GZIP:
                raise self._unsupported("compressed, but not by its name, so that Java reads no row of it")
            self.rows = sum(map(_count_lines, self._chunks())) if rows is None else rows
            self.group_rows = [self.rows]

    def _check_options(self) -> None:
        """Check that the options of the format are those that the source supports.

        Raises:
            UnsupportedFeature: an option is not supported.
        """
        if self._option(*_DELIMITERS[self.kind]) not in (None, "\n"):
            raise self._unsupported(f"'{_DELIMITERS[self.kind][0]}' other than a line feed")

    def _option(self, *keys: str) -> str | None:
        """Return the value of the first of ``keys`` that the table sets, or None."""
        raw = self._layout.options.raw
        return next((str(raw[key]) for key in keys if key in raw), None)

    def _unsupported(self, reason: str) -> UnsupportedFeature:
        return UnsupportedFeature(f"{self.kind} file {self.path}: {reason}; {_REWRITE}", self._table)

    def _chunks(self) -> Iterator[bytes]:
        """Yield the file's bytes in chunks of whole lines; the first chunk has no byte order mark.

        Raises:
            CorruptFile: the file cannot be decompressed.
            UnsupportedFeature: a line is too long.
        """
        self._input.seek(0)
        stream: Any = self._input
        if self._codec is not None:
            stream = pa.CompressedInputStream(_Unclosed(self._input), self._codec)
        parts: list[bytes] = []
        length, is_first = 0, True
        while True:
            with decoding_errors(self.path, self.kind):
                data = bytes(stream.read(_CHUNK_BYTES))
            if is_first:
                data, is_first = data.removeprefix(_BYTE_ORDER_MARK), False
            if not data:
                break
            end = data.rfind(b"\n") + 1
            if end:
                yield b"".join([*parts, data[:end]])
                parts, length = [], 0
            parts.append(data[end:])
            length += len(data) - end
            if length > _MOST_LINE:
                raise self._unsupported(f"a line of more than {_MOST_LINE:,} bytes")
        if length:
            yield b"".join(parts) + b"\n"

    def batches(
        self,
        columns: Sequence[str],
        batch_rows: int,
        row_groups: Sequence[int] | None = None,
        *,
        dictionaries: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of at most ``batch_rows`` rows of ``columns`` in file order; the whole file is one row group.

        Raises:
            CorruptFile: the file is damaged.
            UnsupportedFeature: the file has another number of lines than rows, or a value has no exact text.
        """
        del dictionaries  # repeating_texts returns none
        if row_groups is not None and not row_groups:
            return
        seen = 0
        for chunk in self._chunks():
            seen += _count_lines(chunk)
            if seen > self.rows:
                break
            if not columns:
                yield _rows_without_columns(_count_lines(chunk))
                continue
            with decoding_errors(self.path, self.kind):
                batch = self._parse(chunk, list(columns))
            if batch.num_rows != _count_lines(chunk):
                raise self._unsupported("a text with a line break, which Java reads as the end of a row")
            check_values(batch, self.path)
            yield from (batch.slice(start, batch_rows) for start in range(0, batch.num_rows, batch_rows))
        if seen > self.rows:
            raise self._unsupported(
                f"more lines than its {self.rows} rows: a text has a line break, which Java reads as the end of a row"
            )
        check_rows(self.path, seen, self.rows)

    @abstractmethod
    def _parse(self, lines: bytes, columns: list[str]) -> pa.RecordBatch:
        """Return ``columns`` of whole lines."""

    def _batch(self, columns: Sequence[str], texts: Callable[[str], pa.Array]) -> pa.RecordBatch:
        """Return a batch of columns whose texts are converted to the types of the layout.

        Raises:
            UnsupportedFeature: a text is not a value of its column's type, or the type has no exact text.
        """
        from lsm_core.types.casts import CastError  # only files of texts need it

        schema = pa.schema([self.schema.field(name).with_nullable(nullable=True) for name in columns])
        arrays = []
        for field in schema:
            try:
                values = self._convert(texts(field.name), self._types[field.name])
            except CastError as error:
                raise self._unsupported(f"column '{field.name}': {error}") from error
            if not self.schema.field(field.name).nullable and values.null_count:
                raise self._unsupported(f"an empty text of the NOT NULL column '{field.name}', which is null here")
            arrays.append(refit(values, field.type))
        return batch_of(arrays, schema)

    def _convert(self, texts: pa.Array, kind: DataType) -> pa.Array:
        """Return texts, or lists and structs of texts, as values of the type."""
        from lsm_core.types.casts import cast_values

        if kind.root is TypeRoot.ARRAY and kind.element is not None:
            values = self._convert(texts.values, kind.element)
            return list_of(texts, values, pa.list_(pa.field("element", values.type)))
        if kind.root is TypeRoot.ROW:
            children = [self._convert(texts.field(i), of.type) for i, of in enumerate(kind.fields)]
            inner = pa.struct([pa.field(of.name, c.type) for of, c in zip(kind.fields, children, strict=True)])
            return struct_of(texts, children, inner)
        if kind.root in _TEXTS:
            return texts
        if kind.root in _BINARIES:
            return self._decode_base64(texts)
        if kind.root is TypeRoot.TIMESTAMP_LTZ:
            raise self._unsupported("a TIMESTAMP_LTZ, whose text depends on the time zone of its writer")
        if kind.is_nested or kind.root is TypeRoot.VARIANT:
            raise self._unsupported(f"a column of type {kind}")
        return cast_values(texts, DataType(TypeRoot.VARCHAR, length=2**31 - 1), kind)

    def _decode_base64(self, texts: pa.Array) -> pa.Array:
        """Return the bytes of Base64 texts with padding; nulls stay null.

        Raises:
            CorruptFile: a text is not Base64.
        """
        data, starts, lengths = text_parts(texts.fill_null(""))
        data = np.append(data, np.uint8(0))  # an empty text has no last byte
        codes = _BASE64[data[slice_places(starts, lengths)]]
        if (lengths % 4).any() or (codes == _NO_CODE).any():
            raise CorruptFile(self.path, "a binary value that is not Base64")
        ends = starts + lengths
        is_padded = [(lengths > 0) & (data[np.maximum(ends - n, 0)] == ord("=")) for n in (1, 2)]
        sizes = lengths // 4 * 3 - sum(flags.astype(np.int64) for flags in is_padded)
        quads = codes.reshape(-1, 4).astype(np.uint32)
        packed = (quads[:, 0] << 18) | (quads[:, 1] << 12) | (quads[:, 2] << 6) | quads[:, 3]
        octets = packed.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:].reshape(-1)
        values = octets[slice_places(offsets_from(lengths // 4 * 3)[:-1], sizes)]
        offsets = offsets_from(sizes).astype(np.int32)
        decoded = pa.Array.from_buffers(
            pa.binary(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
        )
        return pc.if_else(texts.is_valid(), decoded, pa.scalar(None, pa.binary()))

    def close(self) -> None:
        """Release the file handle."""
        quietly_close(self._input)


_NO_CODE: Final = 255
_BASE64: Final = np.full(256, _NO_CODE, np.uint8)
_BASE64[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)
_BASE64[ord("=")] = 0


class _Unclosed(io.RawIOBase):
    """Input whose owner closes it, so that a decompressing stream around it can be dropped."""

    def __init__(self, source: Any) -> None:
        super().__init__()
        self._source = source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return bytes(self._source.read(size))


def _rows_without_columns(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))


def _count_lines(chunk: bytes) -> int:
    return chunk.count(b"\n")


class CsvSource(LinesSource):
    """CSV file that is being read."""

    kind = "csv"

    def _check_options(self) -> None:
        super()._check_options()
        self._delimiter = self._option("csv.field-delimiter", "field-delimiter", "seq", "delimiter") or ","
        self._quote = self._option("csv.quote-character", "quote") or '"'
        self._escape = self._option("csv.escape-character", "escape") or "\\"
        self._null = self._option("csv.null-literal", "nullvalue") or ""
        has_header = self._option("csv.include-header", "header") or "false"
        for name, value in (("field-delimiter", self._delimiter), ("quote-character", self._quote)):
            if len(value) != 1 or not value.isascii():
                raise self._unsupported(f"'csv.{name}' of other than one ASCII character")
        if len(self._escape) != 1 or not self._escape.isascii():
            raise self._unsupported("'csv.escape-character' of other than one ASCII character")
        if has_header.lower() != "false":
            raise self._unsupported("'csv.include-header' = 'true'")

    def _parse(self, lines: bytes, columns: list[str]) -> pa.RecordBatch:
        from pyarrow import csv  # imported here, because only tables of CSV files need it

        if b"\r" in lines:
            raise self._unsupported("a text with a carriage return, which Java reads as the end of a row")
        names = self.schema.names
        try:
            table = csv.read_csv(
                io.BytesIO(lines),
                csv.ReadOptions(column_names=names, block_size=len(lines) + 1, use_threads=False),
                csv.ParseOptions(
                    delimiter=self._delimiter,
                    quote_char=self._quote,
                    escape_char=self._escape,
                    ignore_empty_lines=False,
                ),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[self._null],
                    strings_can_be_null=True,
                    include_columns=columns,
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._unsupported(f"a line whose fields are not the table's columns: {error}") from error
        only = len(names) == 1

        def texts(name: str) -> pa.Array:
            values = table.column(name).combine_chunks()
            # Java reads a line of blanks as nulls.
            blank = pc.equal(pc.utf8_trim_whitespace(values), "").fill_null(fill_value=False)
            return pc.if_else(blank, pa.scalar(None, pa.string()), values) if only else values

        return self._batch(columns, texts)


class JsonSource(LinesSource):
    """JSON file that is being read: one object a line, whose values are texts, arrays and objects."""

    kind = "json"

    def _parse(self, lines: bytes, columns: list[str]) -> pa.RecordBatch:
        from pyarrow import json  # imported here, because only tables of JSON files need it

        for name in columns:
            if any(kind.root in (TypeRoot.MAP, TypeRoot.MULTISET) for kind in self._types[name].with_inner()):
                raise self._unsupported(f"column '{name}' of type {self._types[name]}")
        schema = pa.schema([pa.field(name, _text_type(self._types[name])) for name in columns])
        table = json.read_json(
            io.BytesIO(lines),
            json.ReadOptions(block_size=len(lines) + 1, use_threads=False),
            json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        return self._batch(columns, lambda name: table.column(name).combine_chunks())


class TextSource(LinesSource):
    """Text file that is being read: its lines are the values of the table's only column."""

    kind = "text"

    def _parse(self, lines: bytes, columns: list[str]) -> pa.RecordBatch:
        if b"\r" in lines:
            raise self._unsupported("a text with a carriage return, which Java reads as the end of a row")
        ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
        data = np.frombuffer(lines, np.uint8)[slice_places(starts, ends - starts)]
        offsets = offsets_from(ends - starts).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
        values = pa.Array.from_buffers(pa.string(), len(ends), buffers)
        return self._batch(columns, lambda _: values)


def _text_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a value in a JSON file: a text, or a list or struct of texts."""
    if kind.root is TypeRoot.ARRAY and kind.element is not None:
        return pa.list_(_text_type(kind.element))
    if kind.root is TypeRoot.ROW:
        return pa.struct([pa.field(field.name, _text_type(field.type)) for field in kind.fields])
    return pa.string()


SOURCES: Final[dict[str, type[LinesSource]]] = {"csv": CsvSource, "json": JsonSource, "text": TextSource}
