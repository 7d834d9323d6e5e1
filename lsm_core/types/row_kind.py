"""Row kinds: whether a row adds, changes or takes back. Numbers as files store them in ``_VALUE_KIND``."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
_TEXT_ARRAY = pa.array(_TEXTS, pa.string())


def kinds_from_text(texts: pa.Array | pa.ChunkedArray, table: str = "") -> pa.Array:
    """Return int8 kinds for an array of ``+I -U +U -D``. Raises InvalidData naming the first bad value."""
    flat = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if pa.types.is_integer(flat.type):
        return _checked_numbers(flat, table)
    if pa.types.is_dictionary(flat.type):
        flat = flat.dictionary_decode()
    found = pc.index_in(flat.cast(pa.string()), value_set=_TEXT_ARRAY)
    if found.null_count:
        bad = flat.filter(pc.is_null(found))[0].as_py()
        raise InvalidData(table, "row_kinds", f"{bad!r} is no row kind; accepted: {', '.join(_TEXTS)}")
    return found.cast(pa.int8())


def _checked_numbers(flat: pa.Array, table: str) -> pa.Array:
    good = pc.fill_null(pc.and_(pc.greater_equal(flat, 0), pc.less_equal(flat, 3)), fill_value=False)
    if not pc.all(good, min_count=0).as_py():
        bad = flat.filter(pc.invert(good))[0].as_py()
        raise InvalidData(table, "row_kinds", f"{bad!r} is no row kind; accepted: 0 to 3 or {', '.join(_TEXTS)}")
    return flat.cast(pa.int8())


def kinds_to_text(kinds: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the text of int8 kinds."""
    flat = kinds.combine_chunks() if isinstance(kinds, pa.ChunkedArray) else kinds
    return _TEXT_ARRAY.take(flat)


def is_retract(kinds: pa.Array | pa.ChunkedArray | npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """Tell for each kind whether it takes back (-U or -D): the odd numbers."""
    if isinstance(kinds, pa.ChunkedArray):
        kinds = kinds.combine_chunks()
    numbers = kinds.to_numpy(zero_copy_only=False) if isinstance(kinds, pa.Array) else np.asarray(kinds)
    return (numbers & 1).astype(np.bool_)
