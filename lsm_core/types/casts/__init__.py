"""Casts between types for reading old files: the allowed type changes and the conversion of each value.

The rules were determined by running Java 1.4.2 (tests/types/cast_vectors.json). If Java keeps a value that the new type
cannot represent (times below zero, fractions beyond the precision), the value is truncated. Local time zones are UTC
here.

Source: ``CastExecutors``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.types.arrow import same_values, to_arrow
from lsm_core.types.casts import from_text, numbers, times, to_text
from lsm_core.types.casts.cast_errors import CastError, refuse
from lsm_core.types.casts.castable import BINARIES, INSTANTS, INTEGERS, NUMBERS, TEXTS, castable
from lsm_core.types.data_type import DataType, TypeRoot

Cast = Callable[[pa.Array, DataType, DataType], pa.Array]


def cast_values(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Cast values to another type; nulls stay null.

    As in Java, integers wrap around, floating-point numbers saturate, decimals that do not fit become null, and texts
    are truncated or padded.

    Args:
        array: values with the type `to_arrow(source)`.
        source: logical type of the values.
        target: the new logical type.

    Returns:
        Values with the type `to_arrow(target)`.

    Raises:
        CastError: a text is not a value of ``target`` (the message names the first invalid text), or the types cannot
            be cast.
    """
    if same_values(source, target):
        return array
    cast: Cast | None
    if target.root in TEXTS:
        cast = to_text.cast
    elif source.root in TEXTS:
        cast = _FROM_TEXT.get(target.root)
    else:
        cast = next((rule for froms, tos, rule in _RULES if source.root in froms and target.root in tos), None)
    if cast is None or not castable(source, target, explicit=True):
        raise CastError(f"{source} does not cast to {target}")
    kind = to_arrow(target)
    if not len(array):
        return pa.nulls(0, kind)
    converted = cast(array, source, target)
    return converted if converted.type.equals(kind) else converted.cast(kind)


def cast_back(array: pa.Array, source: DataType, target: DataType) -> pa.Array:
    """Cast values of a newer type to the previous type of their column, without truncation or wrap-around.

    Only conversions to FLOAT and DOUBLE may round.

    Args:
        array: values with the type `to_arrow(source)`.
        source: the newer logical type.
        target: the previous logical type.

    Returns:
        Values with the type `to_arrow(target)`.

    Raises:
        CastError: a value cannot be represented (the message names the first such value), or the types cannot be cast.
    """
    converted = cast_values(array, source, target)
    if same_values(source, target) or target.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return converted
    refuse(array, pc.not_equal(cast_values(converted, target, source), array).fill_null(fill_value=True), target)
    return converted


_FROM_TEXT: Final[dict[TypeRoot, Cast]] = {
    TypeRoot.BOOLEAN: from_text.to_boolean,
    TypeRoot.DECIMAL: from_text.to_decimal,
    TypeRoot.DATE: from_text.to_date,
    TypeRoot.TIME: from_text.to_time,
    TypeRoot.BINARY: to_text.to_binary,
    TypeRoot.VARBINARY: to_text.to_binary,
    **dict.fromkeys(INTEGERS, from_text.to_integer),
    **dict.fromkeys((TypeRoot.FLOAT, TypeRoot.DOUBLE), from_text.to_floating),
    **dict.fromkeys(INSTANTS, from_text.to_timestamp),
}
_BOOLEAN: Final = frozenset({TypeRoot.BOOLEAN})
_DECIMAL: Final = frozenset({TypeRoot.DECIMAL})
_RULES: Final[tuple[tuple[frozenset[TypeRoot], frozenset[TypeRoot], Cast], ...]] = (
    (BINARIES, BINARIES, to_text.to_binary),
    (NUMBERS - _DECIMAL, NUMBERS - _DECIMAL, numbers.between_primitives),
    (NUMBERS | _BOOLEAN, _DECIMAL, numbers.to_decimal),
    (_DECIMAL, NUMBERS, numbers.from_decimal),
    (INTEGERS, _BOOLEAN, numbers.to_boolean),
    (_BOOLEAN, NUMBERS, numbers.from_boolean),
    (INTEGERS, INSTANTS, times.from_seconds),
    (INSTANTS, INTEGERS, times.to_seconds),
    (INSTANTS, INSTANTS, times.between_timestamps),
    (INSTANTS, frozenset({TypeRoot.DATE}), times.to_date),
    (INSTANTS, frozenset({TypeRoot.TIME}), times.to_time),
    (frozenset({TypeRoot.DATE}), INSTANTS, times.from_date),
    (frozenset({TypeRoot.TIME}), INSTANTS, times.from_time),
)
