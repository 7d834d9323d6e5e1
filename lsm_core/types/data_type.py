"""Paimon's logical types as values, independent of storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from lsm_core.errors import InvalidSchema

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
        name: its name.
        type: its type.
        description: its comment, or None.
        default: its default value as text, or None.
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
        """Return the same type with the given nullability."""
        return self if nullable == self.nullable else replace(self, nullable=nullable)

    def __str__(self) -> str:
        """Return the SQL text."""
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
