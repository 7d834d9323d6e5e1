"""Values of the vectors (hex for bytes, text for decimals and times) as Arrow columns, and rows as they compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lsm_core.types import DataType, to_arrow

Row = Sequence[Any]


def value(raw: Any, kind: DataType) -> Any:
    """``raw`` of a vector as Python value that Arrow takes for ``kind``."""
    if isinstance(raw, dict) and "hex" in raw:
        return bytes.fromhex(raw["hex"])
    if isinstance(raw, dict) and "unscaled" in raw:
        return Decimal(int(raw["unscaled"])).scaleb(-(kind.scale or 0))
    arrow = to_arrow(kind)
    if raw is not None and pa.types.is_timestamp(arrow):
        return np.datetime64(raw, arrow.unit)
    if raw is not None and pa.types.is_decimal(arrow):
        return Decimal(str(raw))
    if isinstance(raw, str) and (pa.types.is_date(arrow) or pa.types.is_time(arrow)):
        return pa.array([raw]).cast(arrow)[0].as_py()
    return raw


def column(values: Sequence[Any], kind: DataType) -> pa.Array:
    """One Arrow column of vector values."""
    return pa.array([value(raw, kind) for raw in values], to_arrow(kind))


def columns(values: Row, kinds: Sequence[DataType]) -> list[pa.Array]:
    """One row of vector values as columns of one value each."""
    return [column([raw], kind) for raw, kind in zip(values, kinds, strict=True)]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of ``table`` as tuples."""
    lists = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return list(zip(*lists, strict=True))


def same_rows(found: Sequence[Row], expected: Sequence[Row], *, ordered: bool = False) -> None:
    """Assert that both hold the same rows, as multisets unless ``ordered``. Numbers keep their type; NaN equals NaN."""
    ours, wanted = ([tuple(map(repr, row)) for row in rows] for rows in (found, expected))
    if ordered:
        assert ours == wanted
    assert Counter(ours) == Counter(wanted)


def aggregate_value(raw: Any, kind: pa.DataType) -> Any:
    """``raw`` of the aggregator vectors (`hex`, `epoch_day`, `map`, rows as lists ...) as Arrow takes it for ``kind``."""
    if raw is None:
        return None
    if isinstance(raw, dict) and len(raw) == 1:
        ((form, inner),) = raw.items()
        if form == "hex":
            return bytes.fromhex(inner)
        if form == "decimal":
            return Decimal(inner)
        if form in {"epoch_day", "millis_of_day", "epoch_ms"}:
            unit = pa.int32() if form != "epoch_ms" else pa.int64()
            whole = pa.array([inner], unit)
            return whole.cast(pa.timestamp("ms")).cast(kind)[0] if form == "epoch_ms" else whole.cast(kind)[0]
        if form == "map":
            return [
                (aggregate_value(key, kind.key_type), aggregate_value(value, kind.item_type)) for key, value in inner
            ]
    if pa.types.is_decimal(kind):
        return Decimal(str(raw))
    if pa.types.is_binary(kind) and isinstance(raw, str):
        return bytes.fromhex(raw)
    if pa.types.is_struct(kind):
        return {field.name: aggregate_value(value, field.type) for field, value in zip(kind, raw, strict=True)}
    if pa.types.is_list(kind):
        return [aggregate_value(value, kind.value_type) for value in raw]
    return raw
