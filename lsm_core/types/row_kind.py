"""Row kinds: whether a row is an insertion, an update or a deletion; numbers as stored in ``_VALUE_KIND``."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, arrow_scalar, numpy_array, one_array
from lsm_core.errors import InvalidData


class RowKind(IntEnum):
    """Kind of a row (Java ``RowKind``)."""

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
        row_name: formats the index of a row, for messages.
        any_case: whether to accept ``+i`` and so on.

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
        raise InvalidData(table, column, f"no column of row kinds: {error}") from error
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
    """Return the texts of int8 kinds."""
    return _TEXT_ARRAY.take(one_array(kinds))


def is_retract(kinds: pa.Array | pa.ChunkedArray | npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """Return for each kind whether it is a retraction (-U or -D), which are the odd numbers."""
    if isinstance(kinds, pa.ChunkedArray):
        kinds = one_array(kinds)
    numbers = numpy_array(kinds) if isinstance(kinds, pa.Array) else np.asarray(kinds)
    return (numbers & 1).astype(np.bool_)
