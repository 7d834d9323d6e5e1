"""Values of the vectors (hex for bytes, text for decimals and times) as Arrow columns, and rows as they compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lsm_core.types import DataType, to_arrow
from tests.vectors.cases import BadVectors

Row = Sequence[Any]


_FORMS: Final = {"hex", "unscaled", "decimal", "epoch_day", "millis_of_day", "epoch_ms", "map"}
_MILLIS: Final = {"epoch_ms", "epoch_millis", "millis", "milliseconds"}
_NANOS: Final = {"nanos", "nano_of_milli", "nanos_of_milli", "nano_of_millisecond", "nanos_of_millisecond"}


def value(raw: Any, kind: DataType) -> Any:
    """Convert a value of a vector to the Python value that Arrow takes for ``kind``."""
    return arrow_value(raw, to_arrow(kind))


def arrow_value(raw: Any, kind: pa.DataType) -> Any:
    """Convert a value of a vector to the Python value that Arrow takes for ``kind``.

    Bytes are given as `hex`, dates and times as numbers or text, decimals as text or unscaled, maps as pairs, and rows
    as lists. Raises BadVectors for an object of a different form.
    """
    if raw is None:
        return None
    if isinstance(raw, dict):
        return _of_form(raw, kind)
    if pa.types.is_timestamp(kind):
        return np.datetime64(raw, kind.unit)
    if pa.types.is_decimal(kind):
        return Decimal(str(raw))
    if pa.types.is_binary(kind) and isinstance(raw, str):
        return bytes.fromhex(raw)
    if isinstance(raw, str) and (pa.types.is_date(kind) or pa.types.is_time(kind)):
        return pa.array([raw]).cast(kind)[0].as_py()
    if pa.types.is_struct(kind):
        return {field.name: arrow_value(inner, field.type) for field, inner in zip(kind, raw, strict=True)}
    if pa.types.is_list(kind):
        return [arrow_value(inner, kind.value_type) for inner in raw]
    return raw


def _of_form(raw: dict[str, Any], kind: pa.DataType) -> Any:
    """Convert an object: one of `_FORMS`, or the milliseconds and nanoseconds of a timestamp."""
    form = next(iter(raw), "")
    if len(raw) == 2 and pa.types.is_timestamp(kind):
        millis, nanos = [n for n in raw if n in _MILLIS], [n for n in raw if n in _NANOS]
        if len(millis) == len(nanos) == 1:
            whole = np.datetime64(raw[millis[0]], "ms").astype("datetime64[ns]") + np.timedelta64(raw[nanos[0]], "ns")
            return whole.astype(f"datetime64[{kind.unit}]")
    if len(raw) != 1 or form not in _FORMS:
        raise BadVectors(f"a value of unknown form for {kind}: {raw}")
    inner = raw[form]
    if form == "hex":
        return bytes.fromhex(inner)
    if form == "unscaled":
        return Decimal(int(inner)).scaleb(-kind.scale)
    if form == "decimal":
        return Decimal(inner)
    if form == "map":
        return [(arrow_value(key, kind.key_type), arrow_value(item, kind.item_type)) for key, item in inner]
    if form == "epoch_ms":
        return pa.array([inner], pa.int64()).cast(pa.timestamp("ms")).cast(kind)[0]
    return pa.array([inner], pa.int32()).cast(kind)[0]


def column(values: Sequence[Any], kind: DataType) -> pa.Array:
    """Return values of a vector as one Arrow column."""
    return pa.array([value(raw, kind) for raw in values], to_arrow(kind))


def columns(values: Row, kinds: Sequence[DataType]) -> list[pa.Array]:
    """Return one row of a vector as Arrow columns of one value each."""
    return [column([raw], kind) for raw, kind in zip(values, kinds, strict=True)]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of ``table`` as tuples."""
    lists = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return list(zip(*lists, strict=True))


def same_rows(found: Sequence[Row], expected: Sequence[Row], *, ordered: bool = False) -> None:
    """Assert that both hold the same rows, as multisets unless ``ordered``. Numbers keep their type; NaN equals NaN."""
    ours, wanted = ([tuple(map(repr, row)) for row in rows] for rows in (found, expected))
    if ordered:
        assert ours == wanted
    assert Counter(ours) == Counter(wanted)


def without_order(rows: Sequence[Row], places: Sequence[int]) -> list[tuple[Any, ...]]:
    """Return ``rows`` with sorted arrays and maps in the columns ``places``, so that their order does not count."""
    return [
        tuple(sorted(item, key=repr) if at in places and item is not None else item for at, item in enumerate(row))
        for row in rows
    ]
