"""Row kinds: whether a row adds, changes or takes back. Numbers as files store them in ``_VALUE_KIND``."""

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
    """Source class: ``RowKind``."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def text(self) -> str:
        """Return ``+I``, ``-U``, ``+U`` or ``-D``."""
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
    """Return int8 kinds for an array of ``+I -U +U -D`` (also ``+i`` and so on with ``any_case``), or of their numbers.

    Raises InvalidData naming ``column``, the first bad value and its row as ``row_name`` calls it.
    """
    flat = one_array(texts)
    if pa.types.is_integer(flat.type):
        good = pc.fill_null(
            pc.and_(pc.greater_equal(flat, arrow_scalar(0)), pc.less_equal(flat, arrow_scalar(3))),
            arrow_scalar(value=False),
        )
        _require(good, flat, f"0 to 3 or {', '.join(_TEXTS)}", table, column, row_name)
        return flat.cast(pa.int8())
    try:
        if pa.types.is_dictionary(flat.type):
            flat = flat.dictionary_decode()
        texts = flat.cast(pa.string())
    except pa.ArrowException as error:
        raise InvalidData(table, column, f"no column of row kinds: {error}") from error
    found = pc.index_in(pc.ascii_upper(texts) if any_case else texts, value_set=_TEXT_ARRAY)
    _require(pc.is_valid(found), flat, ", ".join(_TEXTS), table, column, row_name)
    return found.cast(pa.int8())


def _require(
    good: pa.Array, given: pa.Array, accepted: str, table: str, column: str, row_name: Callable[[int], str]
) -> None:
    row = pc.index(good, arrow_scalar(value=False)).as_py()
    if row >= 0:
        said = f"{row_name(row)}: {given[row].as_py()!r} is no row kind; accepted: {accepted}"
        raise InvalidData(table, column, said)


def kinds_to_text(kinds: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the text of int8 kinds."""
    return _TEXT_ARRAY.take(one_array(kinds))


def is_retract(kinds: pa.Array | pa.ChunkedArray | npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """Tell for each kind whether it takes back (-U or -D): the odd numbers."""
    if isinstance(kinds, pa.ChunkedArray):
        kinds = one_array(kinds)
    numbers = numpy_array(kinds) if isinstance(kinds, pa.Array) else np.asarray(kinds)
    return (numbers & 1).astype(np.bool_)
