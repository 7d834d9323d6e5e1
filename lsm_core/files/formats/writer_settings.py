"""Options `parquet.*`, `orc.*` and `avro.*` of the writers of data files, with the names of Java's libraries.

Source: ``RowDataParquetBuilder``, ``ColumnConfigParser``, ``OrcConf``, ``AvroFileFormat``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from lsm_core.errors import InvalidOption
from lsm_core.options import TableOptions

PARQUET_CODEC: Final = "parquet.compression"
AVRO_CODEC: Final = "avro.codec"
_LEVEL: Final = "parquet.compression.codec.zstd.level"
_DICTIONARY: Final = "parquet.enable.dictionary"
_VERSION: Final = "parquet.writer.version"
_BLOOM: Final = "parquet.bloom.filter.enabled"
_NDV: Final = "parquet.bloom.filter.expected.ndv"
_FPP: Final = "parquet.bloom.filter.fpp"
_COLUMN_KEYS: Final = (PARQUET_CODEC, _DICTIONARY, _BLOOM, _NDV, _FPP)
_PAGE_VERSIONS: Final = {"v1": "1.0", "parquet_1_0": "1.0", "v2": "2.0", "parquet_2_0": "2.0"}
_FLAGS: Final = {"true": True, "false": False}
_LARGEST_LEVEL: Final = 22
_LARGEST_NDV: Final = 1 << 27
_ORC_STRATEGIES: Final = ("speed", "compression")

Convert = Callable[[str], Any]


def _converted(options: TableOptions, key: str, convert: Convert, accepted: str, default: Any = None) -> Any:
    """Return the converted value of an option, or ``default`` if the option is not set.

    Raises:
        InvalidOption: ``convert`` raises ValueError or KeyError for the value.
    """
    text = options.raw.get(key)
    if text is None:
        return default
    try:
        return convert(text.strip().lower())
    except (ValueError, KeyError) as error:
        raise InvalidOption(key, text, accepted, options.table) from error


def _flag(options: TableOptions, key: str, default: bool | None = None) -> Any:
    return _converted(options, key, _FLAGS.__getitem__, "true, false", default)


def _share(options: TableOptions, key: str, default: float, *, open_ended: bool = False) -> float:
    def convert(text: str) -> float:
        value = float(text)
        if not (0 <= value <= 1) or (open_ended and not (0 < value < 1)):
            raise ValueError(text)
        return value

    accepted = "a number between 0 and 1, both excluded" if open_ended else "a number from 0 to 1"
    return float(_converted(options, key, convert, accepted, default))


def _whole(options: TableOptions, key: str, least: int, most: int, default: int | None) -> Any:
    def convert(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return _converted(options, key, convert, f"a whole number from {least:,} to {most:,}", default)


class ParquetSettings(NamedTuple):
    """Settings of a Parquet writer.

    Attributes:
        codec: value of `parquet.compression`, or None for the codec of `file.compression`.
        codecs: codec by column path, of columns that have their own (`parquet.compression#<column>`).
        level: compression level of zstd.
        coded: columns that get a dictionary in any case.
        plain: columns that get no dictionary.
        page_version: version of the data pages, "1.0" or "2.0".
        bloom_filters: number of distinct values and false-positive probability, by column path.
    """

    codec: str | None
    codecs: Mapping[str, str]
    level: int
    coded: tuple[str, ...]
    plain: tuple[str, ...]
    page_version: str
    bloom_filters: Mapping[str, Mapping[str, Any]]


def parquet_settings(
    options: TableOptions, codec_of: Callable[[str, str], str], leaves: Mapping[str, pa.DataType], group_rows: int
) -> ParquetSettings:
    """Return the settings of a Parquet file.

    Args:
        options: options of the table.
        codec_of: function from (name of a codec, table) to Arrow's name of the codec.
        leaves: Arrow type by path of the columns ("a", "row.field", "list.list.element").
        group_rows: largest number of rows of a row group: a Bloom filter needs no more distinct values.

    Raises:
        InvalidOption: an option has an invalid value; the error names the option.
    """
    own = _column_values(options)
    codecs = {path: _codec(options, f"{PARQUET_CODEC}#{path}", codec_of) for path in own[PARQUET_CODEC]}
    dictionaries = {path: _flag(options, f"{_DICTIONARY}#{path}") for path in own[_DICTIONARY]}
    enabled = {path: _flag(options, f"{_BLOOM}#{path}") for path in own[_BLOOM]}
    by_default = _flag(options, _BLOOM, default=False)
    ndv = {path: _whole(options, f"{_NDV}#{path}", 1, _LARGEST_NDV, None) for path in own[_NDV]}
    fpp = {path: _share(options, f"{_FPP}#{path}", 0.01, open_ended=True) for path in own[_FPP]}
    shared_fpp = _share(options, _FPP, 0.01, open_ended=True)
    most = _whole(options, _NDV, 1, _LARGEST_NDV, group_rows)
    filters = {
        path: {"ndv": min(ndv.get(path) or most, group_rows), "fpp": fpp.get(path, shared_fpp)}
        for path, kind in leaves.items()
        if enabled.get(path, by_default) and not pa.types.is_boolean(kind)
    }
    return ParquetSettings(
        codec=None if PARQUET_CODEC not in options.raw else _codec(options, PARQUET_CODEC, codec_of),
        codecs={path: codec for path, codec in codecs.items() if path in leaves},
        level=_whole(options, _LEVEL, -(1 << 17), _LARGEST_LEVEL, options.zstd_level),
        coded=tuple(path for path, value in dictionaries.items() if value),
        plain=tuple(path for path, value in dictionaries.items() if not value),
        page_version=_converted(options, _VERSION, _PAGE_VERSIONS.__getitem__, "v1, v2", "1.0"),
        bloom_filters=filters,
    )


def _codec(options: TableOptions, key: str, codec_of: Callable[[str, str], str]) -> str:
    text = options.raw[key]
    try:
        return codec_of(text, options.table)
    except InvalidOption as error:
        raise InvalidOption(key, text, error.accepted, options.table) from error


def _column_values(options: TableOptions) -> dict[str, list[str]]:
    """Return the paths of the columns with an own value ("<option>#<path>"), by option."""
    paths: dict[str, list[str]] = {key: [] for key in _COLUMN_KEYS}
    for name in options.raw:
        key, mark, path = name.partition("#")
        if mark and key in paths:
            paths[key].append(path)
    return paths


def leaf_paths(fields: Sequence[pa.Field], prefix: str = "") -> dict[str, pa.DataType]:
    """Return the Arrow type of every leaf column of a Parquet schema, by its path."""
    leaves: dict[str, pa.DataType] = {}
    for field in fields:
        kind, path = field.type, f"{prefix}{field.name}"
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            leaves |= leaf_paths(list(kind), f"{path}.")
        elif pa.types.is_map(kind):
            entries = [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
            leaves |= leaf_paths(entries, f"{path}.key_value.")
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            leaves |= leaf_paths([kind.value_field.with_name("element")], f"{path}.list.")
        else:
            leaves[path] = kind
    return leaves


def orc_settings(options: TableOptions, schema: pa.Schema) -> dict[str, Any]:
    """Return further arguments of ``pyarrow.orc.ORCWriter`` from the options `orc.*`.

    Args:
        options: options of the table.
        schema: Arrow schema of the file.

    Raises:
        InvalidOption: an option has an invalid value; the error names the option.
    """
    settings: dict[str, Any] = {}
    threshold = "orc.dictionary.key.threshold"
    if threshold in options.raw:
        settings["dictionary_key_size_threshold"] = _share(options, threshold, 0.5)
    if "orc.block.padding.tolerance" in options.raw:
        settings["padding_tolerance"] = _share(options, "orc.block.padding.tolerance", 0.0)
    strategy = _converted(
        options, "orc.compression.strategy", _strategy, ", ".join(_ORC_STRATEGIES).upper(), _ORC_STRATEGIES[0]
    )
    settings["compression_strategy"] = strategy
    fpp = _share(options, "orc.bloom.filter.fpp", 0.01, open_ended=True)
    names = {name.strip() for name in options.raw.get("orc.bloom.filter.columns", "").split(",")}
    ids, number = [], 1
    for field in schema:
        if field.name in names:
            ids.append(number)
        number += _type_count(field.type)
    if ids:
        settings |= {"bloom_filter_columns": ids, "bloom_filter_fpp": fpp}
    return settings


def _strategy(text: str) -> str:
    if text not in _ORC_STRATEGIES:
        raise ValueError(text)
    return text


def _type_count(kind: pa.DataType) -> int:
    """Return the number of ORC types of a column: its own and those inside it."""
    return 1 + sum(_type_count(kind.field(index).type) for index in range(kind.num_fields))


def avro_codec(options: TableOptions, codec: str, codec_of: Callable[[str, str], str]) -> str:
    """Return Avro's name of the codec: that of `avro.codec`, else of ``codec``.

    Raises:
        InvalidOption: Avro files do not support the codec.
    """
    if AVRO_CODEC not in options.raw:
        return codec_of(codec, options.table)
    return _codec(options, AVRO_CODEC, lambda name, table: codec_of(name.strip().lower(), table))


KEYS: Final = (
    PARQUET_CODEC,
    _LEVEL,
    _VERSION,
    _BLOOM,
    _NDV,
    _FPP,
    "orc.dictionary.key.threshold",
    "orc.block.padding.tolerance",
    "orc.compression.strategy",
    "orc.bloom.filter.fpp",
    AVRO_CODEC,
)
"""Options that this module checks, without those of single columns."""


def is_setting(name: str) -> bool:
    """Return whether this module checks the value of the option ``name``."""
    return name in KEYS or name.partition("#")[0] in _COLUMN_KEYS
