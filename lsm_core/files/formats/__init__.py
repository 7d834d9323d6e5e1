"""File formats: one module a format, each with the same two halves, a sink and a source; here is who takes which."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Final

import pyarrow as pa

from lsm_core.errors import CorruptFile, InvalidOption, UnsupportedFeature
from lsm_core.files.formats import parquet
from lsm_core.files.formats.protocol import FileFormat, FileSink, FileSource
from lsm_core.format.stats import ColumnValues
from lsm_core.options import TableOptions
from lsm_core.storage import FileIO, Kept

_NAMES: Final = ("parquet", "orc", "avro")
"""Formats; each is the module of its name, imported when the first file of it comes up: it brings its library along."""
_SHORT_NAMES = {"zstd": "zst", "gzip": "gz", "bzip2": "bz2"}


@cache
def _format(name: str) -> FileFormat:
    """One of :data:`_NAMES`."""
    found: FileFormat = import_module(f"{__name__}.{name}").FORMAT
    return found


def open_source(
    file_io: FileIO,
    path: str,
    *,
    size: int | None = None,
    rows: int | None = None,
    table: str = "",
    kept: Kept | None = None,
) -> FileSource:
    """Open a data file of any format, told by its last extension, and compare it with its manifest entry.

    ``kept`` remembers what a next opening needs not read again.

    Raises :class:`lsm_core.errors.CorruptFile` when it is missing, damaged, or not of ``size`` bytes and ``rows`` rows, and
    UnsupportedFeature naming ``table`` for another format.
    """
    name = path.rpartition("/")[2]
    extension = name.rpartition(".")[2]
    if extension not in _NAMES:
        raise UnsupportedFeature(f"data files of format {extension} ({name})", table)
    source = _format(extension).open_source(file_io, path, size=size, rows=rows, table=table, kept=kept)
    if len(set(source.schema.names)) < len(source.schema.names):
        source.close()
        raise CorruptFile(path, "two of its columns have the same name")
    return source


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
    """Create a data file in the format and codec that ``options`` want for ``level``; ``path`` must not exist.

    ``sample`` (its first rows) gives the schema; field ids come with it as `PARQUET:field_id`. ``file_format`` overrides the
    options (:func:`format_for` tells). Raises InvalidOption.
    """
    name, codec = file_format or format_of(options, level), compression_of(options, level)
    if name != format_of(options, level) and codec not in parquet.CODECS:
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
    """Options that only a format can tell usable from unusable."""
    return (*_SETTINGS, *(size for name in _NAMES for size in _format(name).sizes))


def require_usable(options: TableOptions) -> None:
    """Raise InvalidOption, naming the key, for a codec or a size that files of the table's formats cannot be written with.

    Formats that are not known are left to who refuses them as unsupported features.
    """
    levels = {*options.get("file.format.per.level"), *options.get("file.compression.per.level")}
    others = next(str(level) for level in range(len(levels) + 1) if str(level) not in levels)
    for level in sorted({*levels, others}):
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
    told = options.get("changelog-file.compression")
    if told is not None:
        name = str(options.get("changelog-file.format") or options.file_format).strip().lower()
        try:
            _require_codec(name, str(told).strip().lower(), options.table)
        except InvalidOption as error:
            raise InvalidOption("changelog-file.compression", told, error.accepted, options.table) from error
    for each in _NAMES:
        for key in _format(each).sizes:
            options.given_size(key, 1)


def _require_codec(name: str, codec: str, table: str) -> None:
    """Raise InvalidOption where files of format ``name`` cannot be written with ``codec``."""
    if name in _NAMES:
        _format(name).codec_of(codec, table)


def format_of(options: TableOptions, level: int) -> str:
    """Option `file.format`, or what `file.format.per.level` ("0:avro,5:parquet") says; raises InvalidOption."""
    name = options.format_of_level(level)
    if name not in _NAMES:
        by_level = str(level) in (options.get("file.format.per.level") or {})
        key = "file.format.per.level" if by_level else "file.format"
        raise InvalidOption(key, name, ", ".join(_NAMES), options.table)
    return name


def format_for(options: TableOptions, level: int, rows: pa.Table) -> str:
    """The format of ``level`` (:func:`format_of`), or Parquet for ``rows`` that its writer cannot hold: timestamps, in ORC.

    Every file is read by its own extension, in Java too, so that formats may mix within a level.
    """
    name = format_of(options, level)
    return parquet.EXTENSION if _format(name).unwritable(rows) else name


def compression_of(options: TableOptions, level: int) -> str:
    """Option `file.compression`, or what `file.compression.per.level` ("0:lz4,5:zstd") says for the level."""
    per_level = options.get("file.compression.per.level") or {}
    return str(per_level.get(str(level), options.file_compression)).strip().lower()


def extension_of(options: TableOptions, name: str) -> str:
    """Format ``name``, with `file.suffix.include.compression` the table-wide codec before it (never the per-level one)."""
    if not options.get("file.suffix.include.compression"):
        return name
    codec = options.file_compression
    return f"{_SHORT_NAMES.get(codec, codec)}.{name}"


__all__ = [
    "ColumnValues",
    "FileSink",
    "FileSource",
    "compression_of",
    "extension_of",
    "format_for",
    "format_of",
    "open_sink",
    "open_source",
    "require_usable",
    "settings",
]
