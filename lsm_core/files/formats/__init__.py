"""File formats: one module for each format, all with a sink and a source, and the choice of format and codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Final, cast

import pyarrow as pa

from lsm_core.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lsm_core.files.formats import parquet, writer_settings
from lsm_core.files.formats.layout import FileLayout, LayoutOf
from lsm_core.files.formats.protocol import FileFormat, FileSink, FileSource
from lsm_core.format.stats import ColumnValues
from lsm_core.options import TableOptions
from lsm_core.storage import FileIO, Kept

_NAMES: Final = ("parquet", "orc", "avro")
"""Formats; each is a module name, imported with its library when the first file of the format is used."""
READ_ONLY: Final = ("row", "csv", "json", "text")
"""Formats whose files are only read; new files of their tables are Parquet files, which Paimon reads too."""
_SHORT_NAMES = {"zstd": "zst", "gzip": "gz", "bzip2": "bz2"}


@cache
def _format(name: str) -> FileFormat:
    """Return the functions of the format ``name``, one of :data:`_NAMES`."""
    file_format: FileFormat = import_module(f"{__name__}.{name}").FORMAT
    return file_format


def open_source(
    file_io: FileIO,
    path: str,
    *,
    size: int | None = None,
    rows: int | None = None,
    table: str = "",
    kept: Kept | None = None,
    layout: LayoutOf | None = None,
) -> FileSource:
    """Open a data file in the format of its extension; compare size and rows with its manifest entry.

    Args:
        file_io: file system of the file.
        path: path of the file.
        size: expected bytes; None if unknown.
        rows: expected rows; None if unknown.
        table: name of the table, for errors.
        kept: cache for data that the next opening of the file needs again; None for no cache.
        layout: function that returns the columns of the file, for formats of `READ_ONLY`; None if they are unknown.

    Raises:
        CorruptFile: the file is missing, damaged, or not of ``size`` bytes and ``rows`` rows.
        UnsupportedFeature: the format is not known; the error names the table.
    """
    name = path.rpartition("/")[2]
    extension = name.rpartition(".")[2]
    if extension in _NAMES:
        source = _format(extension).open_source(file_io, path, size=size, rows=rows, table=table, kept=kept)
    else:
        extension = format_of_name(name)
        if extension not in READ_ONLY or layout is None:
            raise UnsupportedFeature(f"data files of format {extension} ({name})", table)
        source = _read_only(extension)(file_io, path, size=size, rows=rows, layout=layout, table=table, kept=kept)
    if len(set(source.schema.names)) < len(source.schema.names):
        source.close()
        raise CorruptFile(path, "two of its columns have the same name")
    return source


def format_of_name(name: str) -> str:
    """Return the format of a data file by its name: "csv" for `data-1.csv` and `data-1.csv.gz`."""
    parts = name.split(".")
    return parts[-2] if len(parts) > 2 and parts[-2] in READ_ONLY else parts[-1]


@cache
def _read_only(name: str) -> Callable[..., FileSource]:
    """Return the source of the format ``name``, one of `READ_ONLY`."""
    if name == "row":
        return cast("Callable[..., FileSource]", import_module(f"{__name__}.row").RowSource)
    return cast("Callable[..., FileSource]", import_module(f"{__name__}.text_lines").SOURCES[name])


def open_sink(
    file_io: FileIO,
    path: str,
    sample: pa.Table,
    options: TableOptions,
    *,
    level: int = 0,
    dictionary: Sequence[str] = (),
    delta: Sequence[str] = (),
    file_format: str | None = None,
) -> FileSink:
    """Create a data file in the format and codec that ``options`` define for ``level``.

    Args:
        file_io: file system of the file.
        path: path of the file, which must not exist.
        sample: first rows of the file, with its schema; field ids are in `PARQUET:field_id`.
        options: options of the table.
        level: level of the file.
        dictionary: columns that get a dictionary in any case (Parquet).
        delta: columns that are delta-encoded (Parquet).
        file_format: format that overrides the options (:func:`format_for`); None to use the options.

    Raises:
        InvalidOption: the format or codec is not known.
    """
    name, codec = file_format or format_of(options, level), compression_of(options, level)
    if name != options.format_of_level(level) and codec not in parquet.CODECS:
        codec = "zstd"
    return _format(name).open_sink(file_io, path, sample, options, codec=codec, dictionary=dictionary, delta=delta)


_SETTINGS: Final = (
    "file.format",
    "file.format.per.level",
    "file.compression",
    "file.compression.per.level",
    "changelog-file.format",
    "changelog-file.compression",
)


def settings() -> tuple[str, ...]:
    """Return the keys of the options whose valid values depend on the file format."""
    return (*_SETTINGS, *writer_settings.KEYS, *(size for name in _NAMES for size in _format(name).sizes))


def require_usable(options: TableOptions) -> None:
    """Check that the table's formats can write files with the codecs and sizes of the options.

    Unknown formats raise no error here; they are refused as unsupported features.

    Raises:
        InvalidOption: a codec or a size cannot be used; the error names the key.
    """
    levels = {*options.get("file.format.per.level"), *options.get("file.compression.per.level")}
    other_level = next(str(level) for level in range(len(levels) + 1) if str(level) not in levels)
    for level in sorted({*levels, other_level}):
        per_level = options.get("file.format.per.level")
        name = str(per_level.get(level, options.file_format)).strip().lower()
        codec = compression_of(options, int(level))
        try:
            _require_codec(name, codec, options.table)
        except InvalidOption as error:
            if level not in options.get("file.compression.per.level"):
                raise
            key = "file.compression.per.level"
            raise InvalidOption(key, f"{level}:{codec}", error.accepted, options.table) from error
    codec_text = options.get("changelog-file.compression")
    if codec_text is not None:
        name = str(options.get("changelog-file.format") or options.file_format).strip().lower()
        try:
            _require_codec(name, str(codec_text).strip().lower(), options.table)
        except InvalidOption as error:
            raise InvalidOption("changelog-file.compression", codec_text, error.accepted, options.table) from error
    for format_name in _NAMES:
        for key in _format(format_name).sizes:
            options.given_size(key, 1)
    writer_settings.parquet_settings(options, parquet.codec_of, {}, 1)
    writer_settings.orc_settings(options, pa.schema([]))
    if writer_settings.AVRO_CODEC in options.raw:
        writer_settings.avro_codec(options, "zstd", _format("avro").codec_of)


def _require_codec(name: str, codec: str, table: str) -> None:
    """Raise InvalidOption if files of format ``name`` cannot be written with ``codec``."""
    if name in _NAMES:
        _format(name).codec_of(codec, table)


def format_of(options: TableOptions, level: int) -> str:
    """Return the format of new files of a level.

    Returns:
        Option `file.format`, or the format of `file.format.per.level` ("0:avro,5:parquet") for the level; Parquet for
        the formats of `READ_ONLY`.

    Raises:
        InvalidOption: the format is not known.
    """
    name = options.format_of_level(level)
    if name in READ_ONLY:
        return parquet.EXTENSION
    if name not in _NAMES:
        by_level = str(level) in (options.get("file.format.per.level") or {})
        key = "file.format.per.level" if by_level else "file.format"
        raise InvalidOption(key, name, ", ".join((*_NAMES, *READ_ONLY)), options.table)
    return name


def format_for(options: TableOptions, level: int, rows: pa.Table) -> str:
    """Return the format in which rows are written.

    Readers (also Java's) choose the format by the file's extension, so formats may be mixed within a level.

    Args:
        options: options of the table.
        level: level of the file.
        rows: rows of the file.

    Returns:
        The format of ``level`` (:func:`format_of`), or Parquet if that format cannot store the rows, as some timestamps
        in ORC.
    """
    name = format_of(options, level)
    return parquet.EXTENSION if _format(name).unwritable(rows) else name


def compression_of(options: TableOptions, level: int) -> str:
    """Return option `file.compression`, or the codec of `file.compression.per.level` ("0:lz4,5:zstd") for the level."""
    per_level = options.get("file.compression.per.level") or {}
    return str(per_level.get(str(level), options.file_compression)).strip().lower()


def extension_of(options: TableOptions, name: str) -> str:
    """Return the extension of a file.

    Args:
        options: options of the table.
        name: name of the format.

    Returns:
        The format's name. With option `file.suffix.include.compression`, the codec of the table (never of a level) and
        a dot precede the name.
    """
    if not options.get("file.suffix.include.compression"):
        return name
    codec = options.file_compression
    return f"{_SHORT_NAMES.get(codec, codec)}.{name}"
