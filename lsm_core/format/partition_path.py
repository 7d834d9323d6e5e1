"""Partitions as directories and as values: the names Java gives them, and the bytes manifests keep (format.md 1.1).

Names are those of JDK 8 to 18. A newer JDK writes some floating-point numbers with fewer digits, so its directories of such
partitions have other names (:func:`newer_partition_dir`), and nothing in the table's metadata says which of them is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array
from lsm_core.errors import InvalidFilter, UnsupportedFeature
from lsm_core.format.binary_row import EMPTY_ROW, decode_row, decode_rows, encode_row, one_value
from lsm_core.format.java_text import (
    date_text,
    decimal_text,
    float_text,
    local_date_time_text,
    time_text,
    timestamp_text,
)
from lsm_core.format.schema import TableSchema
from lsm_core.options import TableOptions
from lsm_core.types import DataType, TypeRoot, to_arrow

_ESCAPED = frozenset({*map(chr, range(0x20)), *"\"#%'*/:=?\\\x7f{}[]^"})
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_TIMESTAMPS = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_BINARIES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_FLOATS = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})
_TEXTS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_PER_MILLI = {"ms": 1, "us": 1000, "ns": 1_000_000}
# Java's Character.isWhitespace leaves out the spaces that do not break, and next-line.
_NOT_JAVA_SPACE = frozenset("\x85\xa0\u2007\u202f")


def escape(text: str) -> str:
    """Percent-escape a partition name or value (Java `PartitionPathUtils.escapePathName`)."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def unescape(text: str) -> str:
    """What :func:`escape` made the text of (Java `PartitionPathUtils.unescapePathName`); a % without two hex digits stays."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def partition_dir(schema: TableSchema, partition: bytes, options: TableOptions) -> str:
    """Directory of a partition below the table, such as ``dt=2024-01-01/h=1``; "" for a table without partitions.

    Raises :class:`CorruptFile` for bytes that do not fit the partition columns, :class:`UnsupportedFeature` for binary partition
    columns with legacy names (Java prints an object id there).
    """
    return partition_dirs(schema, [partition], options)[0]


def newer_partition_dir(schema: TableSchema, partition: bytes, options: TableOptions) -> str | None:
    """As :func:`partition_dir` on JDK 19 or newer; None where that is the same name, as it nearly always is."""
    if not any(kind.root in _FLOATS for kind in schema.partition_types):
        return None
    newer = partition_dirs(schema, [partition], options, newer=True)[0]
    return None if newer == partition_dir(schema, partition, options) else newer


def partition_text(schema: TableSchema, partition: bytes, options: TableOptions) -> str:
    """How a partition is named to people and to Dagster: see :func:`partition_names`."""
    return partition_names(schema, [partition], options)[0]


def partition_names(schema: TableSchema, partitions: Sequence[bytes], options: TableOptions) -> list[str]:
    """Partitions as people and Dagster see them: their directories, but for texts that share the directory of null.

    Null is `partition.default-name` (``dt=__DEFAULT_PARTITION__``). The empty text, one of spaces alone, and one that spells that
    name stand in quotes (``dt=""``), as no other text does: a quotation mark inside a text is escaped.
    """
    default = options.partition_default_name

    def name(text: str | None) -> str:
        if text is None:
            return escape(default)
        return f'"{escape(text)}"' if _is_blank(text) or text == default else escape(text)

    columns = [[name(text) for text in texts] for texts in _texts(schema, partitions, options.partition_legacy_name)]
    return _paths([escape(name) for name in schema.partition_keys], columns, len(partitions))


def partition_dirs(
    schema: TableSchema, partitions: Sequence[bytes], options: TableOptions, *, newer: bool = False
) -> list[str]:
    """As :func:`partition_dir` (or, if ``newer``, as JDK 19 and newer name them) for many partitions, decoded at once."""
    columns = [[escape(text) for text in texts] for texts in _unquoted(schema, partitions, options, newer=newer)]
    return _paths([escape(name) for name in schema.partition_keys], columns, len(partitions))


def partition_specs(schema: TableSchema, partitions: Sequence[bytes], options: TableOptions) -> list[str]:
    """As :func:`partition_dirs`, nothing escaped: how catalogs list partitions."""
    return _paths(schema.partition_keys, _unquoted(schema, partitions, options), len(partitions))


def java_texts(schema: TableSchema, partitions: Sequence[bytes]) -> list[tuple[str | None, ...]]:
    """The values of each partition as Java prints them inside (dates are epoch days), None for null; binary values print no time."""
    columns = _texts(schema, partitions, legacy=True, unprintable="[B@")
    return list(zip(*columns, strict=True)) if columns else [()] * len(partitions)


def _paths(names: Sequence[str], columns: Sequence[Sequence[str]], count: int) -> list[str]:
    """``a=1/b=2`` for each of ``count`` partitions; "" where there are no columns."""
    named = [[f"{name}={text}" for text in texts] for name, texts in zip(names, columns, strict=True)]
    return ["/".join(row) for row in zip(*named, strict=True)] if named else [""] * count


def _unquoted(
    schema: TableSchema, partitions: Sequence[bytes], options: TableOptions, *, newer: bool = False
) -> list[list[str]]:
    """The texts of each partition column, in which nulls and blank texts are one, as in Java."""
    default = options.partition_default_name
    columns = _texts(schema, partitions, options.partition_legacy_name, newer=newer)
    return [[default if text is None or _is_blank(text) else text for text in texts] for texts in columns]


def _texts(
    schema: TableSchema, partitions: Sequence[bytes], legacy: bool, *, newer: bool = False, unprintable: str = ""
) -> list[list[str | None]]:
    """The texts of each partition column, None for null; ``unprintable`` stands for binary values, whose legacy names are refused without."""
    columns = decode_rows(arrow_array(partitions, pa.binary()), schema.partition_types) if schema.partition_keys else []
    found: list[list[str | None]] = []
    for column, kind in zip(columns, schema.partition_types, strict=True):
        if unprintable and kind.root in _BINARIES:
            found.append([None if value is None else unprintable for value in column.to_pylist()])
            continue
        to_text = _formatter(kind, legacy, newer)
        # As plain integers: Python's own date types would not hold all of them.
        if kind.root in _TIMESTAMPS:
            column = column.cast(pa.int64())
        elif kind.root in (TypeRoot.DATE, TypeRoot.TIME):
            column = column.cast(pa.int32())
        found.append([None if value is None else to_text(value) for value in column.to_pylist()])
    return found


def _is_blank(text: str) -> bool:
    """Whether Java puts a text into the directory of null."""
    return all(char.isspace() and char not in _NOT_JAVA_SPACE for char in text)


def _formatter(kind: DataType, legacy: bool, newer: bool) -> Callable[[Any], str]:
    root = kind.root
    if root in _TIMESTAMPS:
        # Instants (LTZ) are named in UTC: Java takes its JVM's zone, and every engine of one table has to agree on it.
        per_milli = _PER_MILLI[to_arrow(kind).unit]

        def text(value: int) -> str:
            millis, rest = divmod(value, per_milli)
            nanos = rest * (1_000_000 // per_milli)
            return local_date_time_text(millis, nanos) if legacy else timestamp_text(millis, nanos, kind.precision or 0)

        return text
    if root in _BINARIES:
        if legacy:
            raise UnsupportedFeature("BINARY partition columns with partition.legacy-name=true")
        return lambda value: bytes(value).decode("utf-8", "replace")
    if root is TypeRoot.BOOLEAN:
        return lambda value: "true" if value else "false"
    if root in _FLOATS:
        return lambda value: float_text(value, single=root is TypeRoot.FLOAT, newer=newer)
    if root is TypeRoot.DECIMAL:
        return decimal_text
    if not legacy and root is TypeRoot.DATE:
        return date_text
    if not legacy and root is TypeRoot.TIME:
        return lambda value: time_text(value, kind.precision or 0)
    return str


def partition_values(schema: TableSchema, partition: bytes) -> dict[str, Any]:
    """Python values of a partition by column name (nanosecond timestamps as np.datetime64); raises CorruptFile."""
    return dict(zip(schema.partition_keys, decode_row(partition, schema.partition_types), strict=True))


def partition_bytes(schema: TableSchema, values: Mapping[str, Any], table: str = "") -> bytes:
    """Serialised BinaryRow of a whole partition given as values or as their texts (``{"dt": "2024-01-01", "h": "1"}``).

    Raises :class:`InvalidFilter` naming ``table`` and the column when one is missing, unknown, or cannot be read as its type.
    """
    of = f"table {table}: " if table else ""
    if not isinstance(values, Mapping):
        raise InvalidFilter(f"{of}partition {values!r}: a mapping of column names to values was expected")
    unknown = sorted(set(values) - set(schema.partition_keys))
    missing = [name for name in schema.partition_keys if name not in values]
    if unknown or missing:
        has = ", ".join(schema.partition_keys) or "none"
        raise InvalidFilter(f"{of}partition {dict(values)}: the partition columns are {has}")
    if not schema.partition_keys:
        return EMPTY_ROW
    typed = [
        partition_value(name, values[name], kind, of)
        for name, kind in zip(schema.partition_keys, schema.partition_types, strict=True)
    ]
    return encode_row(typed, schema.partition_types)


def partition_value(column: str, value: Any, kind: DataType, of: str = "") -> Any:
    """``value`` as partition column ``column`` holds it; a text is parsed by the column's type. Raises InvalidFilter, which ``of`` begins."""
    arrow = to_arrow(kind)
    try:
        if isinstance(value, str) and kind.root not in _TEXTS:
            return _parsed(value, kind, arrow)
        # Checked here, so that the error can name the column.
        one_value(value, arrow)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        TypeError,
        ValueError,
        InvalidOperation,
    ) as error:
        raise InvalidFilter(f'{of}partition column "{column}" ({kind}) cannot be {value!r}: {error}') from error
    return value


def _parsed(text: str, kind: DataType, arrow: pa.DataType) -> Any:
    if kind.root is TypeRoot.DATE and text.lstrip("-").isdigit():
        # The legacy directory name of a date is its epoch day.
        return arrow_array([int(text)], pa.int32()).view(pa.date32())[0].as_py()
    if kind.root in _BINARIES:
        return text.encode()
    if kind.root is TypeRoot.DECIMAL:
        return Decimal(text)
    if kind.root in _TIMESTAMPS:
        local = arrow_array([text]).cast(pa.timestamp(arrow.unit))[0]
        return np.datetime64(local.value, arrow.unit)
    return arrow_array([text]).cast(arrow)[0].as_py()


__all__ = [
    "escape",
    "java_texts",
    "newer_partition_dir",
    "partition_bytes",
    "partition_dir",
    "partition_dirs",
    "partition_names",
    "partition_specs",
    "partition_text",
    "partition_value",
    "partition_values",
]
