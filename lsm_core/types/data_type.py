"""Paimon's logical types and row kinds as values, independent of storage.

A row kind is stored as a number in ``_VALUE_KIND``: an insertion, an update or a deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, one_array
from lsm_core.errors import InvalidData, InvalidSchema

MAX_LENGTH = 2**31 - 1
MAX_DECIMAL_PRECISION = 38


class TypeRoot(Enum):
    """Family of a type. STRING and BYTES are the unbounded VARCHAR and VARBINARY; INT is Java's INTEGER."""

    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    STRING = "VARCHAR"  # noqa: PIE796 (another name of the same)
    BOOLEAN = "BOOLEAN"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    BYTES = "VARBINARY"  # noqa: PIE796 (another name of the same)
    DECIMAL = "DECIMAL"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    INTEGER = "INT"  # noqa: PIE796 (another name of the same)
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    VARIANT = "VARIANT"
    BLOB = "BLOB"
    GEOMETRY = "GEOMETRY"
    GEOGRAPHY = "GEOGRAPHY"
    VECTOR = "VECTOR"
    ARRAY = "ARRAY"
    MULTISET = "MULTISET"
    MAP = "MAP"
    ROW = "ROW"
    UNKNOWN = "UNKNOWN"
    """A type of a newer Paimon version, whose columns can be neither read nor written."""


NESTED = frozenset({TypeRoot.ARRAY, TypeRoot.MULTISET, TypeRoot.MAP, TypeRoot.ROW, TypeRoot.VECTOR})
_LENGTHS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY})
_PRECISIONS = {
    TypeRoot.DECIMAL: (1, MAX_DECIMAL_PRECISION),
    TypeRoot.TIME: (0, 9),
    TypeRoot.TIMESTAMP: (0, 9),
    TypeRoot.TIMESTAMP_LTZ: (0, 9),
}


@dataclass(frozen=True)
class RowField:
    """One field of a ROW.

    Attributes:
        id: table-wide id of the field.
        name: name of the field.
        type: type of the field.
        description: comment of the field, or None.
        default: default value of the field as text, or None.
    """

    id: int
    name: str
    type: DataType
    description: str | None = None
    default: str | None = None


@dataclass(frozen=True)
class DataType:
    """A logical type.

    Attributes:
        root: family of the type.
        nullable: whether null is allowed.
        length: characters or bytes of CHAR to VARBINARY, elements of VECTOR.
        precision: digits of DECIMAL, fraction digits of TIME and timestamps.
        scale: fraction digits of DECIMAL.
        element: element type of ARRAY, MULTISET, VECTOR.
        key: key type of MAP.
        value: value type of MAP.
        fields: fields of ROW.
        detail: text in the brackets of GEOMETRY and GEOGRAPHY; the whole text of UNKNOWN, or its JSON object.

    Raises:
        InvalidSchema: Paimon does not allow the length, precision or scale.
    """

    root: TypeRoot
    nullable: bool = True
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    element: DataType | None = None
    key: DataType | None = None
    value: DataType | None = None
    fields: tuple[RowField, ...] = ()
    detail: str | None = None

    def __post_init__(self) -> None:
        """Check length, precision and scale."""
        if self.root in _LENGTHS and not 1 <= (self.length or 0) <= MAX_LENGTH:
            raise InvalidSchema(f"{self.root.value} needs a length from 1 to {MAX_LENGTH}, not {self.length}")
        if self.root in _PRECISIONS:
            low, high = _PRECISIONS[self.root]
            if self.precision is None or not low <= self.precision <= high:
                raise InvalidSchema(f"{self.root.value} needs a precision from {low} to {high}, not {self.precision}")
        if self.root is TypeRoot.DECIMAL and not 0 <= (self.scale or 0) <= (self.precision or 0):
            raise InvalidSchema(f"DECIMAL needs a scale from 0 to its precision {self.precision}, not {self.scale}")

    @property
    def is_nested(self) -> bool:
        """Whether the type contains other types."""
        return self.root in NESTED

    def with_inner(self) -> Iterator[DataType]:
        """Yield the type itself and all types inside it, outermost first."""
        yield self
        for inner in (self.element, self.key, self.value, *(field.type for field in self.fields)):
            if inner is not None:
                yield from inner.with_inner()

    def with_nullable(self, nullable: bool) -> DataType:
        """Return the same type, nullable or not."""
        return self if nullable == self.nullable else replace(self, nullable=nullable)

    def __str__(self) -> str:
        """Return the SQL text of the type."""
        return to_sql(self)


def to_sql(kind: DataType) -> str:
    """Return the SQL text of a type, as ``asSQLString`` writes it (``DECIMAL(10, 2) NOT NULL``)."""
    return _bare_sql(kind) + ("" if kind.nullable else " NOT NULL")


def _bare_sql(kind: DataType) -> str:
    root = kind.root
    if root in (TypeRoot.VARCHAR, TypeRoot.VARBINARY) and kind.length == MAX_LENGTH:
        return "STRING" if root is TypeRoot.VARCHAR else "BYTES"
    if root is TypeRoot.DECIMAL:
        return f"DECIMAL({kind.precision}, {kind.scale or 0})"
    if root is TypeRoot.TIMESTAMP_LTZ:
        return f"TIMESTAMP({kind.precision}) WITH LOCAL TIME ZONE"
    if root in (TypeRoot.TIME, TypeRoot.TIMESTAMP):
        return f"{root.value}({kind.precision})"
    if root is TypeRoot.UNKNOWN:
        return kind.detail or root.value
    if root in (TypeRoot.GEOMETRY, TypeRoot.GEOGRAPHY):
        return root.value if kind.detail is None else f"{root.value}({kind.detail})"
    if root is TypeRoot.ROW:
        return f"ROW<{', '.join(_field_sql(f) for f in kind.fields)}>"
    if kind.key is not None and kind.value is not None:
        return f"MAP<{to_sql(kind.key)}, {to_sql(kind.value)}>"
    if kind.element is not None:
        size = f", {kind.length}" if root is TypeRoot.VECTOR else ""
        return f"{root.value}<{to_sql(kind.element)}{size}>"
    return root.value if kind.length is None else f"{root.value}({kind.length})"


def _field_sql(field: RowField) -> str:
    name = field.name.replace("`", "``")
    comment = "" if field.description is None else " '" + field.description.replace("'", "''") + "'"
    return f"`{name}` {to_sql(field.type)}{comment}"


class RowKind(IntEnum):
    """Kind of a row: insertion, row before or after an update, or deletion (Java ``RowKind``)."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def text(self) -> str:
        """The text ``+I``, ``-U``, ``+U`` or ``-D``."""
        return _TEXTS[self]


_TEXTS = ("+I", "-U", "+U", "-D")
_TEXT_ARRAY = arrow_array(_TEXTS, pa.string())


def kinds_from_text(
    texts: pa.Array | pa.ChunkedArray,
    table: str = "",
    column: str = "row_kinds",
    row_name: Callable[[int], str] = "row {}".format,
    any_case: bool = False,
) -> pa.Array:
    """Return row kinds for an array of texts or numbers.

    Args:
        texts: ``+I``, ``-U``, ``+U``, ``-D``, or numbers 0 to 3.
        table: the table's name, for messages.
        column: the column's name, for messages.
        row_name: function that formats the index of a row, for messages.
        any_case: whether to accept lower case, such as ``+i``.

    Returns:
        The kinds as int8.

    Raises:
        InvalidData: a value is not a row kind; the message names the column, the first bad value and its row.
    """
    values = one_array(texts)
    if pa.types.is_integer(values.type):
        is_valid = pc.fill_null(
            pc.and_(pc.greater_equal(values, arrow_scalar(0)), pc.less_equal(values, arrow_scalar(3))),
            arrow_scalar(value=False),
        )
        _require(is_valid, values, f"0 to 3 or {', '.join(_TEXTS)}", table, column, row_name)
        return values.cast(pa.int8())
    try:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        texts = values.cast(pa.string())
    except pa.ArrowException as error:
        raise InvalidData(table, column, f"the row kinds cannot be read: {error}") from error
    kinds = pc.index_in(pc.ascii_upper(texts) if any_case else texts, value_set=_TEXT_ARRAY)
    _require(pc.is_valid(kinds), values, ", ".join(_TEXTS), table, column, row_name)
    return kinds.cast(pa.int8())


def _require(
    is_valid: pa.Array, values: pa.Array, accepted: str, table: str, column: str, row_name: Callable[[int], str]
) -> None:
    row = pc.index(is_valid, arrow_scalar(value=False)).as_py()
    if row >= 0:
        message = f"{row_name(row)}: {values[row].as_py()!r} is no row kind; accepted: {accepted}"
        raise InvalidData(table, column, message)


def kinds_to_text(kinds: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return int8 row kinds as texts: "+I", "-U", "+U" or "-D"."""
    return _TEXT_ARRAY.take(one_array(kinds))


def is_retract(kinds: pa.Array | pa.ChunkedArray | npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """Return a mask of the retractions (-U and -D), which are the odd numbers."""
    if isinstance(kinds, pa.ChunkedArray):
        kinds = one_array(kinds)
    numbers = numpy_array(kinds) if isinstance(kinds, pa.Array) else np.asarray(kinds)
    return (numbers & 1).astype(np.bool_)
