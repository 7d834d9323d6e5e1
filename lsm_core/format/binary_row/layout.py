"""Layout of types in a BinaryRow: slot widths, header sizes, use of the variable-length part (format.md 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import pyarrow as pa

from lsm_core.types import DataType, TypeRoot, to_arrow

EMPTY_ROW: Final = bytes(12)
"""Serialised row of arity 0: the partition of unpartitioned tables, and keys of append files."""

ARITY_BYTES: Final = 4
COMPACT_DECIMAL: Final = 18


class ValueStorage(Enum):
    """Storage of a value; all kinds except FIXED may use the variable-length part."""

    FIXED = auto()
    BYTES = auto()
    DECIMAL = auto()
    TIMESTAMP = auto()
    ARRAY = auto()
    MAP = auto()
    ROW = auto()
    VARIANT = auto()


@dataclass(frozen=True)
class Layout:
    """Storage of one type.

    Attributes:
        kind: kind of storage.
        arrow: Arrow type of the values.
        width: size as an array element (bytes).
        children: layouts of the element, of key and value, or of the fields.
    """

    kind: ValueStorage
    arrow: pa.DataType
    width: int = 8
    children: tuple[Layout, ...] = ()


def header_bytes(arity: int) -> int:
    """Return the bytes of row kind and null bits before the slots (Java `BinaryRow.calculateBitSetWidthInBytes`)."""
    return (arity + 63 + 8) // 64 * 8


def layout_of(data_type: DataType) -> Layout:
    """Return the layout of a Paimon type."""
    arrow = to_arrow(data_type)
    root = data_type.root
    if root is TypeRoot.VARIANT:
        return Layout(ValueStorage.VARIANT, arrow)
    if pa.types.is_decimal(arrow):
        return Layout(ValueStorage.FIXED if arrow.precision <= COMPACT_DECIMAL else ValueStorage.DECIMAL, arrow)
    if pa.types.is_timestamp(arrow):
        return Layout(ValueStorage.FIXED if arrow.unit == "ms" else ValueStorage.TIMESTAMP, arrow)
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        return Layout(ValueStorage.BYTES, arrow)
    if root is TypeRoot.ROW:
        return Layout(ValueStorage.ROW, arrow, children=tuple(layout_of(field.type) for field in data_type.fields))
    inner = [layout_of(child) for child in (data_type.key, data_type.value, data_type.element) if child is not None]
    if root is TypeRoot.MULTISET:
        inner.append(Layout(ValueStorage.FIXED, pa.int32(), 4))  # a MULTISET is a map from its element to a count
    if pa.types.is_map(arrow):
        return Layout(ValueStorage.MAP, arrow, children=tuple(inner))
    if inner:
        return Layout(ValueStorage.ARRAY, arrow, children=tuple(inner))
    return Layout(ValueStorage.FIXED, arrow, width=1 if pa.types.is_boolean(arrow) else arrow.bit_width // 8)


def layouts_of(types: Sequence[DataType]) -> list[Layout]:
    """Return the layouts of a row's column types."""
    return [layout_of(data_type) for data_type in types]
