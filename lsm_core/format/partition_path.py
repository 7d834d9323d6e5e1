"""Partitions as directories and values: Java's directory names, and the serialised rows in manifests (format.md 1.1).

Names follow JDK 8 to 18. A newer JDK writes some floating-point numbers with fewer digits, so its directories have
other names (:func:`newer_partition_dir`). The table's metadata does not record which of them exists.
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
# Java's Character.isWhitespace excludes non-breaking spaces and next-line.
_NOT_JAVA_SPACE = frozenset("\x85\xa0\u2007\u202f")


def escape(text: str) -> str:
    """Percent-escape a partition name or value (Java `PartitionPathUtils.escapePathName`)."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def unescape(text: str) -> str:
    """Reverse :func:`escape` (Java `PartitionPathUtils.unescapePathName`); a % without two hex digits stays."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def partition_dir(schema: TableSchema, partition: bytes, options: TableOptions) -> str:
    """Return the directory of a partition below the table, as in ``dt=2024-01-01/h=1``.

    Args:
        schema: the table's schema.
        partition: the partition as a serialised row.
        options: the table's options.

    Returns:
        The relative directory, or "" for a table without partitions.

    Raises:
        CorruptFile: the bytes do not fit the partition columns.
        UnsupportedFeature: a binary partition column has legacy names, for which Java prints an object id.
    """
    return partition_dirs(schema, [partition], options)[0]


def newer_partition_dir(schema: TableSchema, partition: bytes, options: TableOptions) -> str | None:
    """Return the directory of a partition on JDK 19 or newer, or None if it is the usual one.

    It almost always is.
    """
    if not any(kind.root in _FLOATS for kind in schema.partition_types):
        return None
    newer = partition_dirs(schema, [partition], options, newer=True)[0]
    return None if newer == partition_dir(schema, partition, options) else newer


def partition_text(schema: TableSchema, partition: bytes, options: TableOptions) -> str:
    """Return the name of a partition for users and for Dagster; see :func:`partition_names`."""
    return partition_names(schema, [partition], options)[0]


def partition_names(schema: TableSchema, partitions: Sequence[bytes], options: TableOptions) -> list[str]:
    """Return partition names for users and for Dagster.

    Directories, but with distinct names for texts that share null's directory.

    Null is `partition.default-name` (``dt=__DEFAULT_PARTITION__``). The empty text, texts of spaces only, and the text
    of the default name are quoted (``dt=""``). No other text is quoted, because a quotation mark inside a text is
    escaped.

    Args:
        schema: the table's schema.
        partitions: partitions as serialised rows.
        options: the table's options.

    Returns:
        One name per partition.
    """
    default = options.partition_default_name

    def name(text: str | None) -> str:
        if text is None:
            return escape(default)
        return f'"{escape(text)}"' if _is_blank(text) or text == default else escape(text)

    columns = [
        [name(text) for text in texts] for texts in _column_texts(schema, partitions, options.partition_legacy_name)
    ]
    return _paths([escape(name) for name in schema.partition_keys], columns, len(partitions))


def partition_dirs(
    schema: TableSchema, partitions: Sequence[bytes], options: TableOptions, *, newer: bool = False
) -> list[str]:
    """Return the directories of many partitions, which are decoded together.

    Args:
        schema: the table's schema.
        partitions: partitions as serialised rows.
        options: the table's options.
        newer: whether to use the names of JDK 19 or newer.

    Returns:
        One relative directory per partition; see :func:`partition_dir` for the errors.
    """
    columns = [[escape(text) for text in texts] for texts in _directory_texts(schema, partitions, options, newer=newer)]
    return _paths([escape(name) for name in schema.partition_keys], columns, len(partitions))


def partition_specs(schema: TableSchema, partitions: Sequence[bytes], options: TableOptions) -> list[str]:
    """Return partitions as in :func:`partition_dirs` but without escaping, as catalogs list them."""
    return _paths(schema.partition_keys, _directory_texts(schema, partitions, options), len(partitions))


def java_texts(schema: TableSchema, partitions: Sequence[bytes]) -> list[tuple[str | None, ...]]:
    """Return the values of each partition in Java's internal text form (dates are epoch days).

    Returns:
        One tuple per partition, with None for null; binary values give a text that is not a time.
    """
    columns = _column_texts(schema, partitions, legacy=True, unprintable="[B@")
    return list(zip(*columns, strict=True)) if columns else [()] * len(partitions)


def _paths(names: Sequence[str], columns: Sequence[Sequence[str]], count: int) -> list[str]:
    """Return ``a=1/b=2`` for each of ``count`` partitions, or "" without columns."""
    named = [[f"{name}={text}" for text in texts] for name, texts in zip(names, columns, strict=True)]
    return ["/".join(row) for row in zip(*named, strict=True)] if named else [""] * count


def _directory_texts(
    schema: TableSchema, partitions: Sequence[bytes], options: TableOptions, *, newer: bool = False
) -> list[list[str]]:
    """Return the directory texts of each partition column, in which nulls and blank texts are equal, as in Java."""
    default = options.partition_default_name
    columns = _column_texts(schema, partitions, options.partition_legacy_name, newer=newer)
    return [[default if text is None or _is_blank(text) else text for text in texts] for texts in columns]


def _column_texts(
    schema: TableSchema, partitions: Sequence[bytes], legacy: bool, *, newer: bool = False, unprintable: str = ""
) -> list[list[str | None]]:
    """Return the texts of each partition column, with None for null.

    ``unprintable`` replaces binary values; without it, binary columns with legacy names are refused.
    """
    columns = decode_rows(arrow_array(partitions, pa.binary()), schema.partition_types) if schema.partition_keys else []
    texts: list[list[str | None]] = []
    for column, kind in zip(columns, schema.partition_types, strict=True):
        if unprintable and kind.root in _BINARIES:
            texts.append([None if value is None else unprintable for value in column.to_pylist()])
            continue
        to_text = _formatter(kind, legacy, newer)
        # As integers, because Python's date types do not cover the whole range.
        if kind.root in _TIMESTAMPS:
            column = column.cast(pa.int64())
        elif kind.root in (TypeRoot.DATE, TypeRoot.TIME):
            column = column.cast(pa.int32())
        texts.append([None if value is None else to_text(value) for value in column.to_pylist()])
    return texts


def _is_blank(text: str) -> bool:
    """Return whether Java stores the text in the directory of null."""
    return all(char.isspace() and char not in _NOT_JAVA_SPACE for char in text)


def _formatter(kind: DataType, legacy: bool, newer: bool) -> Callable[[Any], str]:
    root = kind.root
    if root in _TIMESTAMPS:
        # Instants (LTZ) are named in UTC. Java uses the JVM's zone, which must be the same for all engines of a table.
        per_milli = _PER_MILLI[to_arrow(kind).unit]

        def text(value: int) -> str:
            millis, fraction = divmod(value, per_milli)
            nanos = fraction * (1_000_000 // per_milli)
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
    """Return the Python values of a partition by column name (nanosecond timestamps as np.datetime64).

    Raises:
        CorruptFile: the bytes do not fit the partition columns.
    """
    return dict(zip(schema.partition_keys, decode_row(partition, schema.partition_types), strict=True))


def partition_bytes(schema: TableSchema, values: Mapping[str, Any], table: str = "") -> bytes:
    """Return the serialised BinaryRow of a whole partition.

    Args:
        schema: the table's schema.
        values: values or their texts by column (``{"dt": "2024-01-01", "h": "1"}``).
        table: the table's name, for messages.

    Returns:
        The serialised row.

    Raises:
        InvalidFilter: a column is missing, unknown, or has an invalid value; the message names table and column.
    """
    prefix = f"table {table}: " if table else ""
    if not isinstance(values, Mapping):
        raise InvalidFilter(f"{prefix}partition {values!r}: a mapping of column names to values was expected")
    unknown = sorted(set(values) - set(schema.partition_keys))
    missing = [name for name in schema.partition_keys if name not in values]
    if unknown or missing:
        columns = ", ".join(schema.partition_keys) or "none"
        raise InvalidFilter(f"{prefix}partition {dict(values)}: the partition columns are {columns}")
    if not schema.partition_keys:
        return EMPTY_ROW
    row = [
        partition_value(name, values[name], kind, prefix)
        for name, kind in zip(schema.partition_keys, schema.partition_types, strict=True)
    ]
    return encode_row(row, schema.partition_types)


def partition_value(column: str, value: Any, kind: DataType, of: str = "") -> Any:
    """Return a value in the form of its partition column; a text is parsed by the column's type.

    Args:
        column: name of the column.
        value: the value or its text.
        kind: type of the column.
        of: prefix of error messages.

    Returns:
        The value.

    Raises:
        InvalidFilter: the value is invalid; the message names the column.
    """
    arrow = to_arrow(kind)
    try:
        if isinstance(value, str) and kind.root not in _TEXTS:
            return _parse_text(value, kind, arrow)
        # Validated here so that the error can name the column.
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


def _parse_text(text: str, kind: DataType, arrow: pa.DataType) -> Any:
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
