"""Allowed type changes, shared by schema changes and casts during reads.

Source: ``DataTypeCasts``, ``CastExecutors.resolve``.
"""

from __future__ import annotations

from typing import Final

from lsm_core.types.arrow import same_values
from lsm_core.types.data_type import MAX_LENGTH, DataType, TypeRoot

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
"""Types that Java can print into STRING only, not into texts with a length."""


def castable(source: DataType, target: DataType, *, explicit: bool) -> bool:
    """Return whether a column may change its type, regardless of nullability: Java allows and implements the cast.

    Nested types can only become texts; types inside them change field by field.

    Args:
        source: the current type.
        target: the new type.
        explicit: whether to include casts that may lose information.

    Returns:
        Whether the cast is possible.
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
