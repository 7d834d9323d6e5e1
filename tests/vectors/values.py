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
