"""Which types may become which: the table that schema changes and read-time casts share (Java `DataTypeCasts`)."""

from __future__ import annotations

from typing import Final

from lsm_core.types.data_type import MAX_LENGTH, DataType, TypeRoot
from lsm_core.types.nesting import same_values

TEXTS: Final = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
BINARIES: Final = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
INTEGERS: Final = frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT})
NUMBERS: Final = INTEGERS | {TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DECIMAL}
INSTANTS: Final = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_SECONDS: Final = frozenset({TypeRoot.INT, TypeRoot.BIGINT})
_ATOMIC: Final = TEXTS | BINARIES | NUMBERS | INSTANTS | {TypeRoot.BOOLEAN, TypeRoot.DATE, TypeRoot.TIME}

_IMPLICIT: Final[dict[TypeRoot, frozenset[TypeRoot]]] = {
    TypeRoot.CHAR: TEXTS,
    TypeRoot.VARCHAR: frozenset({TypeRoot.VARCHAR}),
    TypeRoot.BINARY: BINARIES,
    TypeRoot.VARBINARY: frozenset({TypeRoot.VARBINARY}),
    TypeRoot.TINYINT: NUMBERS,
    TypeRoot.SMALLINT: NUMBERS - {TypeRoot.TINYINT},
    TypeRoot.INT: NUMBERS - {TypeRoot.TINYINT, TypeRoot.SMALLINT},
    TypeRoot.BIGINT: NUMBERS - INTEGERS | {TypeRoot.BIGINT},
    TypeRoot.DECIMAL: NUMBERS - INTEGERS,
    TypeRoot.FLOAT: NUMBERS - INTEGERS,
    TypeRoot.DOUBLE: frozenset({TypeRoot.DOUBLE, TypeRoot.DECIMAL}),
    TypeRoot.TIMESTAMP: INSTANTS | {TypeRoot.DATE, TypeRoot.TIME},
    TypeRoot.TIMESTAMP_LTZ: INSTANTS,
}
_EXPLICIT: Final[dict[TypeRoot, frozenset[TypeRoot]]] = {
    **dict.fromkeys(TEXTS, _ATOMIC),
    **dict.fromkeys(BINARIES, BINARIES | TEXTS),
    TypeRoot.BOOLEAN: NUMBERS | TEXTS,
    TypeRoot.TINYINT: NUMBERS | TEXTS | {TypeRoot.BOOLEAN},
    TypeRoot.SMALLINT: NUMBERS | TEXTS | {TypeRoot.BOOLEAN},
    **dict.fromkeys(_SECONDS, NUMBERS | TEXTS | INSTANTS | {TypeRoot.BOOLEAN}),
    **dict.fromkeys(NUMBERS - INTEGERS, NUMBERS | TEXTS),
    **dict.fromkeys((TypeRoot.DATE, TypeRoot.TIME), INSTANTS | TEXTS),
    **dict.fromkeys(INSTANTS, _SECONDS | INSTANTS | TEXTS | {TypeRoot.DATE, TypeRoot.TIME}),
    **dict.fromkeys((TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW), TEXTS),
}
_ONLY_STRING: Final = INSTANTS | {TypeRoot.DATE, TypeRoot.TIME}
"""Java prints these into STRING alone, not into texts of a length."""


def castable(source: DataType, target: DataType, *, explicit: bool) -> bool:
    """Whether a column may change from ``source`` to ``target``, nullability aside: both allowed and carried out by Java.

    Without ``explicit`` only where no value can be lost by the types' families. Nested types only become texts; what is
    inside them changes field by field. Source class: ``DataTypeCasts``, ``CastExecutors.resolve``.
    """
    if same_values(source, target):
        return True
    allowed = _IMPLICIT.get(source.root, frozenset())
    if explicit:
        allowed = allowed | _EXPLICIT.get(source.root, frozenset())
    if target.root not in allowed:
        return False
    is_string = target.root is TypeRoot.VARCHAR and target.length == MAX_LENGTH
    return source.root not in _ONLY_STRING or target.root not in TEXTS or is_string


__all__ = ["BINARIES", "INSTANTS", "INTEGERS", "NUMBERS", "TEXTS", "castable"]
